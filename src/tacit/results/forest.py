"""The numbers of a forest plot: means and two intervals, in the units that are shown."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tacit.errors import InvalidArgument
from tacit.models.reading import Units
from tacit.results.drawings import Bar
from tacit.results.summary import coordinates
from tacit.results.units import checked, in_units

if TYPE_CHECKING:
    from tacit.results.posterior import Posterior

LEVEL, HALF = 0.9, 0.5


def labelled_draws(
    posterior: "Posterior", names: Sequence[str] | None = None, units: Units | None = None
) -> dict[str, tuple[str, NDArray[Any]]]:
    """The role and the draws of each number, by its label with what one unit is.

    Args:
        posterior: The posterior.
        names: The parameters; by default all.
        units: Other units for some columns, as for `Posterior.summary`.

    Returns:
        Draws in the units that are shown.

    Raises:
        InvalidArgument: If a name or a unit is unknown.
    """
    reading, asked = posterior.reading, checked(posterior.reading, units)
    draws = in_units(posterior.draws, reading, asked).draws
    found: dict[str, tuple[str, NDArray[Any]]] = {}
    for name in list(draws) if names is None else _listed(names):
        if name not in draws:
            raise InvalidArgument(
                f"{name!r} is not a parameter; the parameters are {', '.join(draws)}."
            )
        meaning = None if reading is None else reading.parameters.get(name)
        unit = "" if meaning is None else meaning.words(asked)
        axes, role = posterior.labels.get(name), "" if meaning is None else meaning.role
        flat = draws[name].reshape(posterior.num_draws, -1).T
        labels = (label for label, _ in coordinates(name, draws[name].shape[1:], axes))
        for label, values in zip(labels, flat, strict=True):
            found[f"{label}, {unit}" if unit else label] = role, values
    return found


def bars_of(
    posterior: "Posterior",
    most: int,
    names: Sequence[str] | None = None,
    units: Units | None = None,
) -> list[Bar]:
    """The bars of the first numbers of a posterior, at most ``most``."""
    found = list(labelled_draws(posterior, names, units).items())[:most]
    return [_bar(label, role, values) for label, (role, values) in found]


def _bar(label: str, role: str, values: NDArray[Any]) -> Bar:
    tails = [(1 - LEVEL) / 2, (1 - HALF) / 2, (1 + HALF) / 2, (1 + LEVEL) / 2]
    with np.errstate(all="ignore"):  # draws may be infinite
        mean = float(np.mean(values, dtype=np.float64))
        low, half_low, half_high, high = np.quantile(values.astype(np.float64), tails).tolist()
    return Bar(label, mean, low, half_low, half_high, high, role)


def _listed(names: Sequence[str]) -> list[str]:
    return [names] if isinstance(names, str) else list(names)

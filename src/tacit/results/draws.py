"""Draws of named parameters, and their statistics."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np
from attrs import field, frozen
from numpy.typing import ArrayLike, NDArray

from tacit.errors import InvalidArgument
from tacit.inference import mixing

Array = NDArray[np.floating]
_K = TypeVar("_K")


def of_draws(values: Mapping[str, ArrayLike]) -> dict[str, Array]:
    """Float arrays that have the same number of draws, at least one."""
    return _alike("draws", values)


def of_steps(values: Mapping[str, ArrayLike]) -> dict[str, Array]:
    """Float arrays that have the same number of steps, at least one."""
    return _alike("steps of the trace", values)


@frozen(kw_only=True, repr=False, eq=False, slots=False)
class NamedDraws:
    """Draws of named parameters.

    Attributes:
        draws: An array [draws, *shape] for each parameter.
        chains: The number of chains of equal length whose draws follow one another.
    """

    draws: Mapping[str, Array] = field(converter=of_draws)
    chains: int = 1

    def __attrs_post_init__(self) -> None:
        if not self.draws:
            raise InvalidArgument("A posterior needs draws of at least one parameter.")

    @property
    def num_draws(self) -> int:
        """The number of draws."""
        return len(next(iter(self.draws.values())))

    def mean(self) -> dict[str, Array]:
        """Posterior means.

        Returns:
            An array for each parameter.
        """
        with np.errstate(all="ignore"):  # draws may be infinite
            return {n: np.mean(d, axis=0, dtype=np.float64) for n, d in self.draws.items()}

    def sd(self) -> dict[str, Array]:
        """Posterior standard deviations.

        Returns:
            An array for each parameter.
        """
        with np.errstate(all="ignore"):
            return {n: np.std(d, axis=0, dtype=np.float64) for n, d in self.draws.items()}

    def quantiles(self, probabilities: Sequence[float]) -> dict[str, Array]:
        """Posterior quantiles.

        Args:
            probabilities: Probabilities between 0 and 1.

        Returns:
            An array [probabilities, *shape] for each parameter.

        Raises:
            InvalidArgument: If a probability is out of range.
        """
        levels = np.asarray(probabilities, np.float64)
        if levels.ndim != 1 or not ((levels >= 0) & (levels <= 1)).all():
            raise InvalidArgument("Pass a list of probabilities between 0 and 1.")
        with np.errstate(all="ignore"):
            return {
                name: np.quantile(draws.astype(np.float64), levels, axis=0)
                for name, draws in self.draws.items()
            }

    def interval(self, level: float = 0.9) -> dict[str, Array]:
        """Equal-tailed credible intervals.

        ``intervals`` says whether they account for the privacy noise.

        Args:
            level: The posterior probability of the interval, between 0 and 1.

        Returns:
            An array [2, *shape] for each parameter.

        Raises:
            InvalidArgument: If the level is out of range.
        """
        if not (0 < level < 1):
            raise InvalidArgument(f"level must be between 0 and 1; got {level!r}.")
        return self.quantiles([(1 - level) / 2, (1 + level) / 2])

    def effective_sizes(self) -> dict[str, Array]:
        """Effective sample sizes.

        Returns:
            An array for each parameter.
        """
        return mixing.effective_sizes(self.draws, self.chains)

    def r_hats(self) -> dict[str, Array]:
        """R-hat of the chains, split in halves and by ranks, as ArviZ computes it.

        Returns:
            An array for each parameter; 1 means that all halves agree.
        """
        return mixing.r_hats(self.draws, self.chains)


def _alike(what: str, values: Mapping[str, ArrayLike]) -> dict[str, Array]:
    """Float arrays that all have the same number of ``what``, at least one."""
    arrays = {name: _float(value) for name, value in values.items()}
    lengths = {array.shape[:1] for array in arrays.values()}
    if len(lengths) > 1 or lengths & {(), (0,)}:
        raise InvalidArgument(f"All arrays must have the same number of {what}, at least one.")
    return arrays


def _float(value: ArrayLike) -> Array:
    array = np.asarray(value)
    return array if array.dtype in (np.float32, np.float64) else array.astype(np.float64)


def same_arrays(one: Mapping[_K, Array], other: Mapping[_K, Array]) -> bool:
    """Whether two mappings have the same names in the same order, and equal arrays."""
    return list(one) == list(other) and all(
        np.array_equal(value, other[name], equal_nan=True) for name, value in one.items()
    )

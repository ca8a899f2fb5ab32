"""From a NumPyro function to a model of rows: arguments and latents.

Everything here runs on made-up rows and on shapes. An error names the site and a remedy. It may
quote made-up values, never rows.
"""

import inspect
from collections.abc import Iterable, Mapping
from typing import Any, Protocol, runtime_checkable

import jax
import numpy as np

from tacit.errors import InvalidArgument
from tacit.models.effects import Effect, effect, points_of
from tacit.models.made_up import MadeUp
from tacit.models.numpyro import NumPyro, NumPyroModel
from tacit.models.places import Limits, Shape, layout, limits, unconstrained_shape
from tacit.models.plates import Draft
from tacit.models.sites import Statement


def from_numpyro(described: NumPyro, made_up: MadeUp, person: str | None = None) -> NumPyroModel:
    """The model of rows that a NumPyro function describes.

    Args:
        described: The function with its options.
        made_up: Makes up values of the columns that exist.
        person: The column that identifies the person of a row.

    Returns:
        The model, not yet checked by `tacit.models.verify`.

    Raises:
        InvalidArgument: The function cannot be a model of rows.
    """
    if isinstance(described.integrate, str):
        raise InvalidArgument("integrate must be a list of names of latent variables.")
    columns = tuple(made_up(1, 0))
    used, person_column = _arguments(described, columns, person)
    draft = Draft(described, used, person_column, made_up)
    plates = draft.row_plates()
    person_plate = draft.person_plate()
    lengths = dict.fromkeys(plates | ({person_plate} if person_plate else set()), 1)

    def look(sites: Mapping[str, Statement]) -> Any:
        _refuse_unobserved(sites, plates)
        return _sorted(described, sites, plates, person_plate)

    places, row_effects, person_effects = draft.look_at_one_row(lengths, look)
    arrays, settings = _split(described.constants)
    model = NumPyroModel(
        function=described.function,
        columns=used,
        arrays=arrays,
        settings=settings,
        person_column=person_column,
        row_plates=frozenset(plates),
        person_plate=person_plate,
        places=layout(_ordered(places, _order(described.function))),
        row_effects=row_effects,
        person_effects=person_effects,
        nodes=described.nodes,
        made_up={name: value[0] for name, value in made_up(1, 0).items()},
        labels=described.labels,
        reading=described.reading,
    )
    for effects in (row_effects, person_effects):
        if effects:
            points_of(effects, described.nodes)  # refuses too many
    return model


@runtime_checkable
class Listing(Protocol):
    """A function that lists its columns and parameters, as one made from a formula does."""

    @property
    def takes(self) -> tuple[str, ...]:
        """Names of the columns that it takes."""
        ...

    @property
    def order(self) -> tuple[str, ...]:
        """Names of the parameters, in the order in which they are reported."""
        ...


def _arguments(
    described: NumPyro, columns: tuple[str, ...], person: str | None
) -> tuple[tuple[str, ...], str | None]:
    """Which columns the function takes, and whether it takes the person's."""
    kinds = inspect.Parameter
    used, person_column = [], None
    for name, parameter in _parameters(described.function).items():
        if name in described.constants:
            if name in columns:
                raise InvalidArgument(f"{name!r} is a column and a constant; rename one of them.")
        elif name == person:
            person_column = name
        elif name in columns:
            used.append(name)
        elif parameter.kind in (kinds.VAR_POSITIONAL, kinds.VAR_KEYWORD):
            continue
        elif parameter.default is kinds.empty or parameter.kind is kinds.POSITIONAL_ONLY:
            raise InvalidArgument(
                f"The model asks for {name!r}, which is not a column; the columns are "
                f"{', '.join(columns)}; declare it in the schema, or pass it in constants if it "
                "is public."
            )
    if not used:
        raise InvalidArgument(
            f"The model takes none of the columns; name its arguments after them: "
            f"{', '.join(columns)}."
        )
    return tuple(used), person_column


def _ordered(places: Mapping[str, Any], order: Iterable[str]) -> dict[str, Any]:
    """Latents in the given order, followed by those that it does not list."""
    first = {name: places[name] for name in order if name in places}
    return {**first, **places}


def _parameters(function: object) -> Mapping[str, inspect.Parameter]:
    """The arguments of a function. One made from a formula lists them, as names may be any text."""
    if isinstance(function, Listing):
        plain = inspect.Parameter("column", inspect.Parameter.KEYWORD_ONLY)
        return dict.fromkeys(function.takes, plain)
    assert callable(function)
    return inspect.signature(function).parameters


def _order(function: object) -> tuple[str, ...]:
    """The order of the parameters, if the function lists them."""
    return function.order if isinstance(function, Listing) else ()


def _split(constants: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Arrays, which are inputs of the compiled program, and settings, which are part of it."""
    arrays = {n: v for n, v in constants.items() if isinstance(v, np.ndarray | jax.Array)}
    return arrays, {n: v for n, v in constants.items() if n not in arrays}


def _refuse_unobserved(sites: Mapping[str, Statement], plates: set[str]) -> None:
    observed = [site for site in sites.values() if site.observed]
    if not any(plates & set(site.plates) for site in observed):
        raise InvalidArgument(
            "Nothing is observed in the plate over rows; pass the outcome as obs= of a "
            "numpyro.sample, and name it as a column."
        )
    for site in sites.values():
        if len(plates & set(site.plates)) > 1:
            raise InvalidArgument(
                f"Statement {site.name!r} is in two plates over rows; put it in one, or name the plate "
                "over rows with row_plate=."
            )


def _sorted(
    described: NumPyro, sites: Mapping[str, Statement], plates: set[str], person: str | None
) -> tuple[dict[str, tuple[Shape, Limits]], tuple[Effect, ...], tuple[Effect, ...]]:
    """Parameters (shapes of their unconstrained numbers, limits), effects of rows, effects of people."""
    parameters: dict[str, tuple[Shape, Limits]] = {}
    of_rows, of_people = [], []
    for site in sites.values():
        fn: Any = site.distribution
        if fn is None or site.observed:
            continue
        if plates & set(site.plates):
            if not fn.support.is_discrete and site.name not in described.integrate:
                raise InvalidArgument(_LOCAL.format(name=site.name))
            of_rows.append(effect(site.name, fn, 1))
        elif person in site.plates:
            of_people.append(effect(site.name, fn, 1))
        elif fn.support.is_discrete:
            parameters[site.name] = fn.shape(), limits(site.name, fn)
        else:
            parameters[site.name] = unconstrained_shape(fn), None
    for name in described.integrate:
        if name not in {each.name for each in of_rows}:
            raise InvalidArgument(
                f"integrate has {name!r}, which is not a latent inside the plate over rows; remove it."
            )
    if not parameters:
        raise InvalidArgument("The model has no parameter outside the plate over rows.")
    return parameters, tuple(of_rows), tuple(of_people)


_LOCAL = (
    "Latent {name!r} is inside the plate over rows: one number for each row, which cannot be "
    "released privately; integrate it out in the model (as a negative binomial does for Poisson "
    "rates), or pass integrate=[{name!r}] to have it done by quadrature."
)

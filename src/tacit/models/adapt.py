"""From a NumPyro function to a model of rows: arguments, plates, latents.

Everything here runs on made-up rows and on shapes. What cannot work is refused with the name
of the site and the remedy; messages may quote made-up values, never rows.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import biject_to

from tacit.errors import InvalidArgument, TacitError
from tacit.models.effects import Effect, effect, points_of
from tacit.models.numpyro import NumPyro, NumPyroModel
from tacit.models.places import layout, limits, unconstrained_shape
from tacit.models.sites import Message, Run, Site

MadeUp = Callable[[int, int], dict[str, Any]]
"""Made-up rows: how many, and a seed."""


def from_numpyro(described: NumPyro, made_up: MadeUp, person: str | None = None) -> NumPyroModel:
    """The model of rows that a NumPyro function describes.

    ``made_up`` gives the columns that exist, with made-up values; ``person`` is the column
    that says whose a row is.
    """
    if isinstance(described.integrate, str):
        raise InvalidArgument("integrate must be a list of names of latents.")
    columns = tuple(made_up(1, 0))
    used, person_column = _arguments(described, columns, person)
    draft = _Draft(described, used, person_column, made_up)
    plates = draft.row_plates()
    person_plate = draft.person_plate()
    lengths = dict.fromkeys(plates | ({person_plate} if person_plate else set()), 1)

    def look(sites: Mapping[str, Site]) -> Any:
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
    )
    for effects in (row_effects, person_effects):
        if effects:
            points_of(effects, described.nodes)  # refuses too many
    return model


@runtime_checkable
class Listing(Protocol):
    """A function that lists the columns that it takes, and its parameters as they are reported."""

    @property
    def takes(self) -> tuple[str, ...]:
        """Names of the columns."""
        ...

    @property
    def order(self) -> tuple[str, ...]:
        """Names of the parameters."""
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
    """Latents in an order of their own, those it does not have after the others."""
    first = {name: places[name] for name in order if name in places}
    return {**first, **places}


def _parameters(function: Any) -> Mapping[str, inspect.Parameter]:
    """The arguments of a function; one made from a formula lists them, whatever they are called."""
    if not isinstance(function, Listing):
        return inspect.signature(function).parameters
    plain = inspect.Parameter("column", inspect.Parameter.KEYWORD_ONLY)
    return dict.fromkeys(function.takes, plain)


def _order(function: Any) -> tuple[str, ...]:
    return function.order if isinstance(function, Listing) else ()


def _split(constants: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Arrays, which are inputs of the compiled program, and settings, which are part of it."""
    arrays = {n: v for n, v in constants.items() if isinstance(v, np.ndarray | jax.Array)}
    return arrays, {n: v for n, v in constants.items() if n not in arrays}


@contextmanager
def explained(doing: str) -> Iterator[None]:
    """Errors of the model's own code, on made-up rows, in words a user can act on."""
    try:
        yield
    except TacitError:
        raise
    except (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError) as error:
        raise InvalidArgument(
            "The model decides something in Python, or in NumPy, by a value that differs from row "
            "to row; use jnp.where instead of if, and jax.numpy throughout."
        ) from error
    except Exception as error:
        text = (str(error).strip().splitlines() or [""])[0][:200].rstrip(".")
        raise InvalidArgument(
            f"The model fails {doing}, on made-up values ({type(error).__name__}: {text}); it must "
            "run on any number of rows, with columns of the shapes that the schema declares."
        ) from error


class _Draft:
    """Runs of a function on shapes alone, before its structure is known."""

    def __init__(
        self,
        described: NumPyro,
        used: tuple[str, ...],
        person_column: str | None,
        made_up: MadeUp,
    ) -> None:
        self._described, self._used = described, used
        self._person_column, self._made_up = person_column, made_up

    def _attempt(self, count: int, lengths: Mapping[str, int], look: Any = None) -> Any:
        """A run on so many made-up rows, looked at while its values are alive."""
        columns = {name: self._made_up(count, 0)[name] for name in self._used}
        if self._person_column is not None:
            columns[self._person_column] = np.zeros(count, np.int32)
        run = Run(self._described.function, lengths, _at_zero)
        self._last, seen = run, []

        def go(columns: Any) -> None:
            run(**self._described.constants, **columns)
            seen.append(None if look is None else look(run.sites))

        jax.eval_shape(go, columns)
        return seen[0]

    def look_at_one_row(self, lengths: Mapping[str, int], look: Any) -> Any:
        """What ``look`` finds at the sites of a run on a single row."""
        with explained("on a single row"):
            return self._attempt(1, lengths, look)

    def row_plates(self) -> set[str]:
        """The plates over rows: those that grow with the rows, or the one that fits them."""
        plates, person = self._plates(), self.person_plate()
        named = self._described.row_plate
        if named is not None:
            if named not in plates:
                raise InvalidArgument(
                    f"The model has no plate {named!r}, only {_quoted(plates)}; pass the one over "
                    "rows as row_plate=."
                )
            return {named}
        others = [name for name in plates if name != person]
        growing = self._growing(person)
        over_rows = {name for name in others if growing.get(name) == (3, 5)}
        if not over_rows:
            fitting = [name for name in others if self._fits(name, person)]
            over_rows = set(fitting) if len(fitting) == 1 else set()
        if not over_rows:
            self._refuse(others, person, growing)
        return over_rows

    def _refuse(
        self, others: list[str], person: str | None, growing: Mapping[str, tuple[int, int]]
    ) -> None:
        with explained("on 3 rows"):
            self._attempt(3, {person: 1} if person else {})
        for name, (at_three, at_five) in growing.items():
            if at_three != at_five:
                raise InvalidArgument(
                    f"Plate {name!r} has {at_three} entries for 3 rows, so rows are dropped or meet "
                    "there; every row must be an entry of its own, by its own columns."
                )
        if not others:
            raise InvalidArgument(
                "The model has no plate over rows: put what is observed inside "
                'with numpyro.plate("rows", n), where n is the number of rows.'
            )
        raise InvalidArgument(
            f"Which plate is over rows is not clear; the model has {_quoted(others)}; give it the "
            "number of rows as its size, or pass row_plate=."
        )

    def person_plate(self) -> str | None:
        """The plate over people, if the model has one."""
        if self._described.person_plate is None and self._person_column is None:
            return None
        name = self._described.person_plate or self._person_column
        plates = self._plates()
        if name in plates:
            return name
        with explained("on 3 rows"):
            self._attempt(3, {})
        raise InvalidArgument(
            f"The model takes the column that says whose a row is but has no plate {name!r}, only "
            f"{_quoted(plates)}; call the plate over people {name!r}, or pass person_plate=."
        )

    def _plates(self) -> dict[str, int]:
        """All plates, as far as a run gets: one of fixed size may not fit three rows."""
        with suppress(Exception):
            self._attempt(3, {})
        return self._last.plates

    def _growing(self, person: str | None) -> dict[str, tuple[int, int]]:
        """Sizes of the plates on three and on five rows; none if the model needs its own number."""
        sizes = []
        for count in (3, 5):
            with suppress(Exception):
                self._attempt(count, {person: 1} if person else {})
                sizes.append(self._last.plates)
        if len(sizes) < 2:
            return {}
        return {name: (size, sizes[1].get(name, 0)) for name, size in sizes[0].items()}

    def _fits(self, name: str, person: str | None) -> bool:
        """Whether the model runs on three rows, and observes them, if this plate is over rows."""
        with suppress(Exception):
            return bool(
                self._attempt(
                    3,
                    {name: 3} | ({person: 1} if person else {}),
                    lambda sites: any(s.observed and name in s.plates for s in sites.values()),
                )
            )
        return False


def _at_zero(message: Message) -> jax.Array:
    """Some value of a latent: where its unconstrained numbers are zero."""
    fn = message["fn"]
    if fn.support is None or fn.support.is_discrete:
        return jnp.zeros(fn.shape(), jnp.int32)
    value: jax.Array = biject_to(fn.support)(jnp.zeros(unconstrained_shape(fn)))
    return value


def _quoted(plates: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in plates) or "none"


def _refuse_unobserved(sites: Mapping[str, Site], plates: set[str]) -> None:
    observed = [site for site in sites.values() if site.observed]
    if not any(plates & set(site.plates) for site in observed):
        raise InvalidArgument(
            "Nothing is observed in the plate over rows; pass the outcome as obs= of a "
            "numpyro.sample, and name it as a column."
        )
    for site in sites.values():
        if len(plates & set(site.plates)) > 1:
            raise InvalidArgument(
                f"Site {site.name!r} is in two plates over rows; put it in one, or name the plate "
                "over rows with row_plate=."
            )


def _sorted(
    described: NumPyro, sites: Mapping[str, Site], plates: set[str], person: str | None
) -> tuple[dict[str, tuple[tuple[int, ...], Any]], tuple[Effect, ...], tuple[Effect, ...]]:
    """Parameters with the shapes of their numbers and limits of whole ones, effects of rows, effects of people."""
    parameters: dict[str, tuple[tuple[int, ...], Any]] = {}
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
                f"integrate has {name!r}, which is no latent inside the plate over rows; leave it "
                "out."
            )
    if not parameters:
        raise InvalidArgument("The model has no parameter outside the plate over rows.")
    return parameters, tuple(of_rows), tuple(of_people)


_LOCAL = (
    "Latent {name!r} is inside the plate over rows, a number for each row, which cannot be "
    "released privately; integrate it out in the model (as a negative binomial does for Poisson "
    "rates), or pass integrate=[{name!r}] to have it done by quadrature."
)

"""Models written in NumPyro: each row's term is the model run on that row alone.

The prior is the model's latents on a made-up row; a row's likelihood is what the model
observes when it is given that row and nothing else. So rows cannot meet, and the prior
cannot see them, whatever the model's code does. `tacit.models.verify` then checks, on made-up
rows only, that this is also what the model means when it is given many rows.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from tacit.errors import InvalidArgument
from tacit.models.base import (
    Discrete,
    Held,
    Outcomes,
    Parameters,
    Prediction,
    Row,
    finite_start,
    refuse_strangers,
    shaped_start,
)
from tacit.models.draws import drawn
from tacit.models.effects import Effect, integrated
from tacit.models.expected import logit, mean
from tacit.models.places import Place
from tacit.models.sites import Latent, Message, Run, Site

Columns = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class NumPyro:
    """A NumPyro model with options.

    Args:
        function: The model function. Its arguments are columns, by name.
        constants: Further arguments of the function that are public: numbers, arrays, settings.
        row_plate: The name of the plate over rows, if it is ambiguous.
        person_plate: The name of the plate over people, if it differs from the person column of the
            schema.
        integrate: Names of latent variables of single rows to integrate out by quadrature.
        nodes: The number of quadrature nodes per dimension.
        labels: Names for the entries of array parameters: for each parameter a list of names for
            every axis.
    """

    function: Callable[..., Any]
    _: KW_ONLY
    constants: Mapping[str, Any] = field(default_factory=dict)
    row_plate: str | None = None
    person_plate: str | None = None
    integrate: Sequence[str] = ()
    nodes: int | None = None
    labels: Mapping[str, Sequence[Sequence[str]]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, eq=False)  # equal only to itself, and hashable
class NumPyroModel:
    """A NumPyro model as densities of one unconstrained vector, a row at a time."""

    function: Callable[..., Any]
    columns: tuple[str, ...]
    arrays: Mapping[str, Any]
    settings: Mapping[str, Any]
    person_column: str | None
    row_plates: frozenset[str]
    person_plate: str | None
    places: Mapping[str, Place]
    derived: tuple[str, ...] = ()
    predictors: tuple[str, ...] = ()
    row_effects: tuple[Effect, ...]
    person_effects: tuple[Effect, ...]
    nodes: int | None
    made_up: Mapping[str, Any]  # one row, public
    labels: Mapping[str, Sequence[Sequence[str]]] = field(default_factory=dict)

    declared_public: ClassVar[tuple[str, ...]] = (
        "arrays", "constants", "made_up", "places", "settings",
    )  # fmt: skip

    @cached_property
    def constants(self) -> dict[str, Any]:
        """Public inputs of the compiled program: declared arrays, and the made-up row."""
        row = {name: self.made_up[name] for name in self.columns}
        return {"arrays": dict(self.arrays), "row": row}

    @property
    def dimension(self) -> int:
        """Length of the unconstrained vector."""
        return max(place.stop for place in self.places.values())

    @property
    def names(self) -> tuple[str, ...]:
        """Parameters in the order of the model, then what it derives from them."""
        return (*self.places, *self.derived)

    @property
    def searched(self) -> tuple[Any, ...]:
        """What might hold an array of rows."""
        return (self.function,)

    @property
    def discrete(self) -> Discrete:
        """Places of whole numbers in the vector, with their limits."""
        return tuple(
            Held(i, *place.limits, name)
            for name, place in self.places.items()
            if place.limits is not None
            for i in range(place.start, place.stop)
        )

    @property
    def whole_units(self) -> bool:
        """Whether rows of a person share an effect, so that only all of them have a density."""
        return bool(self.person_effects)

    @cached_property
    def _lengths(self) -> dict[str, int]:
        plates = self.row_plates | ({self.person_plate} if self.person_plate else set())
        return dict.fromkeys(plates, 1)

    def run(
        self,
        columns: Columns,
        constants: Any,
        latent: Latent,
        *,
        lengths: Mapping[str, int] | None = None,
        observe: Latent | None = None,
    ) -> dict[str, Site]:
        """The model's sites on these columns, which have an axis for rows."""
        lengths = self._lengths if lengths is None else lengths
        given = {name: columns[name] for name in self.columns}
        if self.person_column is not None:
            given[self.person_column] = columns[self.person_column]
        run = Run(self.function, lengths, latent, observe)
        run(**self.settings, **(constants or self.constants)["arrays"], **given)
        return run.sites

    def alone(self, row: Row | None, constants: Any = None) -> dict[str, Any]:
        """Columns of a single row, or of the made-up one, as the model takes them."""
        row = (constants or self.constants)["row"] if row is None else row
        columns = {name: jnp.asarray(row[name])[None] for name in self.columns}
        if self.person_column is not None:
            columns[self.person_column] = jnp.zeros(1, jnp.int32)  # alone, so the first
        return columns

    def unconstrained(self, vector: jax.Array, slopes: list[jax.Array]) -> Latent:
        """Values of the model's parameters; adds log-determinants to ``slopes``."""

        def latent(message: Message) -> jax.Array:
            value, slope = self.places[message["name"]].value(message["fn"], vector)
            slopes.append(slope)
            return value

        return latent

    def with_effects(self, parameters: Latent, points: Mapping[str, jax.Array]) -> Latent:
        """Parameters as they are, effects at their points [entries, axes]."""
        effects = {each.name: each for each in self.row_effects + self.person_effects}

        def latent(message: Message) -> jax.Array:
            name = message["name"]
            if name not in effects:
                return parameters(message)
            return effects[name].at(message["fn"], points[name])

        return latent

    def constrain(self, vector: jax.Array, constants: Any = None) -> Parameters:
        """Parameters on their supports, and what the model derives from them."""
        sites = self._prior_run(vector, constants, [])
        return {name: sites[name].value for name in self.names}

    def _prior_run(
        self, vector: jax.Array, constants: Any, slopes: list[jax.Array]
    ) -> dict[str, Site]:
        nowhere = _points(self.row_effects + self.person_effects, None)
        latent = self.with_effects(self.unconstrained(vector, slopes), nowhere)
        return self.run(self.alone(None, constants), constants, latent)

    def prior_vector(self, key: jax.Array) -> jax.Array:
        """An unconstrained vector, drawn from the prior."""
        keys, parts = _keys(key, list(self.places)), {}

        def latent(message: Message) -> jax.Array:
            name, fn = message["name"], message["fn"]
            value = jnp.asarray(fn.sample(keys[name]))
            parts[name] = jnp.ravel(self.places[name].inverse(fn, value))
            return value

        nowhere = _points(self.row_effects + self.person_effects, None)
        self.run(self.alone(None), None, self.with_effects(latent, nowhere))
        return jnp.concatenate([parts[name] for name in self.places])

    def prior_density(self, vector: jax.Array, constants: Any = None) -> jax.Array:
        """Log prior of the unconstrained vector, with the Jacobian of its map.

        Includes observations and factors outside the plate over rows: they see no row.
        """
        slopes: list[jax.Array] = []
        total = jnp.zeros((), vector.dtype)
        for site in self._prior_run(vector, constants, slopes).values():
            if site.distribution is not None and not self.is_local(site):
                total = total + site.log_prob().sum()
        return total + sum(slopes)

    def is_local(self, site: Site) -> bool:
        """Whether a site belongs to single rows or people."""
        return any(name in self._lengths for name in site.plates)

    def row_density(
        self, vector: jax.Array, row: Row, constants: Any = None, outcomes: Outcomes = None
    ) -> jax.Array:
        """Log-likelihood of one row, its own effects summed or integrated out."""
        return self._row_term(vector, row, constants, None, outcomes)

    def _row_term(
        self,
        vector: jax.Array,
        row: Row,
        constants: Any,
        person: jax.Array | None,
        outcomes: Outcomes,
    ) -> jax.Array:
        """The same given a point of the person's effects."""
        columns = self.alone(row)
        shared = _points(self.person_effects, person)
        observe = None if outcomes is None else _replaced(outcomes)

        def at(point: jax.Array | None) -> jax.Array:
            points = shared | _points(self.row_effects, point)
            latent = self.with_effects(self.unconstrained(vector, []), points)
            return self.row_terms(self.run(columns, constants, latent, observe=observe)).sum()

        return integrated(at, self.row_effects, self.nodes) if self.row_effects else at(None)

    def row_terms(self, sites: Mapping[str, Site]) -> jax.Array:
        """What each row adds: its observations, and the probabilities of its discrete effects."""
        listed = {each.name for each in self.row_effects if each.values is not None}
        total: jax.Array = jnp.zeros(())
        for site in sites.values():
            if site.observed or site.name in listed:
                for plate in self.row_plates & set(site.plates):
                    total = total + site.by_plate(plate)
        return total

    def unit_density(
        self,
        vector: jax.Array,
        rows: Row,
        present: jax.Array,
        constants: Any = None,
        outcomes: Outcomes = None,
    ) -> jax.Array:
        """Log-likelihood of all rows of a person, who has effects of her own."""
        safe = self._filled(rows, present, constants)

        def at(point: jax.Array) -> jax.Array:
            def term(row: Row, outcomes: Outcomes) -> jax.Array:
                return self._row_term(vector, row, constants, point, outcomes)

            terms = jax.vmap(term)(safe, outcomes)
            return jnp.where(present, terms, 0.0).sum() + self._listed(vector, constants, point)

        return integrated(at, self.person_effects, self.nodes)

    def _filled(self, rows: Row, present: jax.Array, constants: Any) -> dict[str, jax.Array]:
        """Rows, and made-up ones where there are none, so that their gradients are finite."""

        def filled(values: Any, example: Any) -> jax.Array:
            mask = present.reshape(-1, *(1,) * (jnp.ndim(values) - 1))
            return jnp.where(mask, values, jnp.asarray(example, values.dtype))

        example = (constants or self.constants)["row"]
        return {name: filled(rows[name], example[name]) for name in self.columns}

    def _listed(self, vector: jax.Array, constants: Any, point: jax.Array) -> jax.Array:
        """Log-probability of the person's discrete effects at a point."""
        names = [each.name for each in self.person_effects if each.values is not None]
        if not names:
            return jnp.zeros(())
        points = _points(self.person_effects, point) | _points(self.row_effects, None)
        latent = self.with_effects(self.unconstrained(vector, []), points)
        sites = self.run(self.alone(None, constants), constants, latent)
        return sum((sites[name].log_prob().sum() for name in names), start=jnp.zeros(()))

    @cached_property
    def _outcome_sites(self) -> tuple[str, ...]:
        """What is observed in a row, in the model's order; none if some of it cannot be drawn."""
        names: list[str] = []

        def observe(message: Message) -> jax.Array:
            value: jax.Array = message["value"]
            if self._in_row(message):
                value = drawn(message["fn"], jax.random.key(0))
                names.append(message["name"])
            return value

        def look() -> None:
            vector = jnp.zeros(self.dimension)
            nowhere = _points(self.row_effects + self.person_effects, None)
            latent = self.with_effects(self.unconstrained(vector, []), nowhere)
            self.run(self.alone(None), None, latent, observe=observe)

        with suppress(Exception):  # whatever a distribution without draws says of it
            jax.eval_shape(look)
            return tuple(names)
        return ()

    def _in_row(self, message: Message) -> bool:
        return any(frame.name in self.row_plates for frame in message["cond_indep_stack"])

    @property
    def simulates(self) -> bool:
        """Whether all that is observed in a row can be drawn."""
        return bool(self._outcome_sites)

    def row_outcomes(
        self, key: jax.Array, vector: jax.Array, row: Row, constants: Any = None
    ) -> Outcomes:
        """Values of what is observed in the row, by site, drawn with effects of its own."""
        person, own = jax.random.split(key) if self.person_effects else (key, key)
        return self._row_draw(person, own, vector, row, constants)

    def unit_outcomes(
        self,
        key: jax.Array,
        vector: jax.Array,
        rows: Row,
        present: jax.Array,
        constants: Any = None,
    ) -> Outcomes:
        """The same for all rows of a person, who has the same effects in all of them."""
        person, own = jax.random.split(key)
        safe = self._filled(rows, present, constants)

        def draw(key: jax.Array, row: Row) -> Outcomes:
            return self._row_draw(person, key, vector, row, constants)

        return jax.vmap(draw)(jax.random.split(own, len(present)), safe)

    def _row_draw(
        self, person: jax.Array, own: jax.Array, vector: jax.Array, row: Row, constants: Any
    ) -> Outcomes:
        """A row's outcomes; a person's effects are the same for the same key."""
        if not self.simulates:
            raise InvalidArgument(
                "The model cannot draw outcomes: it has a factor, or a distribution without draws."
            )
        keys = _keys(person, [each.name for each in self.person_effects])
        keys |= _keys(own, [*(each.name for each in self.row_effects), *self._outcome_sites])
        parameters = self.unconstrained(jax.lax.stop_gradient(vector), [])
        effects = {each.name: each for each in self.row_effects + self.person_effects}
        found: dict[str, jax.Array] = {}

        def latent(message: Message) -> jax.Array:
            name = message["name"]
            if name not in effects:
                return parameters(message)
            return effects[name].drawn(message["fn"], keys[name])

        def observe(message: Message) -> jax.Array:
            name = message["name"]
            if name not in self._outcome_sites:
                value: jax.Array = message["value"]
                return value
            found[name] = drawn(message["fn"], keys[name])
            return found[name]

        self.run(self.alone(row), constants, latent, observe=observe)
        return found

    def predict(
        self, key: jax.Array, params: Parameters, row: Row, constants: Any = None
    ) -> dict[str, "Prediction"]:
        """What each observed site would be for a new row, given parameters.

        A new row has effects of its own: they are drawn.
        """
        keys: list[jax.Array] = [key]
        found: dict[str, Any] = {}

        def fresh() -> jax.Array:
            first, second = jax.random.split(keys[0])
            keys[0] = first
            return jnp.asarray(second)

        def latent(message: Message) -> jax.Array:
            name = message["name"]
            value: jax.Array = params[name] if name in self.places else _drawn(message, fresh())
            return value

        def observe(message: Message) -> jax.Array:
            value = _drawn(message, fresh())
            found[message["name"]] = value, mean(message["fn"]), logit(message["fn"])
            return value

        sites = self.run(self.alone(row), constants, latent, observe=observe)

        def alone(site: Site, value: Any) -> Any:
            return None if value is None else _without(site, self._lengths, value)

        return {
            name: Prediction(*(alone(sites[name], each) for each in values))
            for name, values in found.items()
        }

    def start(self, values: Mapping[str, Any]) -> jax.Array:
        """The unconstrained vector of given values; zero for parameters not given."""
        refuse_strangers(values, self.places)
        vector = np.zeros(self.dimension, np.float32)

        def latent(message: Message) -> jax.Array:
            name, fn = message["name"], message["fn"]
            place = self.places[name]
            if name in values:
                value = shaped_start(name, values[name], fn.shape())
                vector[place.start : place.stop] = finite_start(place.inverse(fn, value))
            return place.value(fn, jnp.asarray(vector))[0]

        nowhere = _points(self.row_effects + self.person_effects, None)
        self.run(self.alone(None), None, self.with_effects(latent, nowhere))
        return jnp.asarray(vector)


def _points(effects: Sequence[Effect], point: jax.Array | None) -> dict[str, jax.Array]:
    """Each effect's part of a point, with an axis for the one row or person there is."""
    total = sum(each.size for each in effects)
    whole = jnp.zeros(total) if point is None else point
    parts, start = {}, 0
    for each in effects:
        parts[each.name] = whole[None, start : start + each.size]
        start += each.size
    return parts


def _keys(key: jax.Array, names: Sequence[str]) -> dict[str, jax.Array]:
    """A key for each name."""
    keys = jax.random.split(key, len(names)) if len(names) > 1 else [key]
    return {name: keys[i] for i, name in enumerate(names)}


def _replaced(outcomes: Mapping[str, jax.Array]) -> Latent:
    """Values of what is observed, or those given in their place."""
    return lambda message: outcomes.get(message["name"], message["value"])


def _drawn(message: Message, key: jax.Array) -> jax.Array:
    value: jax.Array = message["fn"].sample(key)
    return value


def _without(site: Site, lengths: Mapping[str, int], value: Any) -> jax.Array:
    """A value without the axes of the one row and person it is for."""
    array = jnp.asarray(value)
    assert site.distribution is not None
    batch = len(site.distribution.batch_shape)
    axes = tuple(batch + dim for name, dim in site.plates.items() if name in lengths)
    return jnp.squeeze(array, axis=axes)

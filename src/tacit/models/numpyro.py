"""Models written in NumPyro: the likelihood of a row is that of the model run on this row only.

The prior is the density of the model's latents on a dummy row. The likelihood of a row is what the model observes
when it is given that row and nothing else. So rows cannot interact, and the prior cannot depend on them, whatever the
model's code does. `tacit.models.numpyro_structure` checks on dummy rows that this is also what the model means when
it is given many rows.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from threading import RLock
from typing import Any, ClassVar, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike
from numpyro.distributions import Distribution
from numpyro.primitives import Messenger

from tacit.errors import InvalidArgument
from tacit.models.base import (
    Outcomes,
    Parameters,
    Prediction,
    PyTree,
    Row,
    broadcast_start,
    check_finite_start,
    check_start_names,
)
from tacit.models.distributions import distribution_logit, distribution_mean, fast_sample
from tacit.models.interpretation import Interpretation
from tacit.models.jax_model import AdaptedModel
from tacit.models.random_effects import RandomEffect, integrate_out

Message = dict[str, Any]
SiteValue = Callable[[Message], jax.Array]
# Kinds of statements that a model of rows cannot have, and what to write instead.
_UNSUPPORTED_STATEMENTS = {
    "param": "has a free parameter without a prior; use numpyro.sample with a prior",
    "mutable": "keeps a state that changes from call to call; remove it",
    "prng_key": "draws random numbers outside of a site; use numpyro.sample",
    "control_flow": "is a NumPyro loop; write it with jax.lax.scan or a Python loop",
}


@dataclass(frozen=True)
class Site:
    """One sample or deterministic statement of a run."""

    name: str
    distribution: Distribution | None
    value: Any
    observed: bool
    plates: Mapping[str, int]
    scale: Any

    def log_prob(self) -> jax.Array:
        """Log density of each entry of the value, scaled only by handlers of the model itself."""
        assert self.distribution is not None
        terms: jax.Array = self.distribution.log_prob(self.value) * self.scale
        return terms

    def by_plate(self, plate: str) -> jax.Array:
        """Log density of each entry of a plate, summed over all other axes."""
        terms = self.log_prob()
        axis = terms.ndim + self.plates[plate]
        return terms.sum(axis=tuple(i for i in range(terms.ndim) if i != axis))


_HANDLER_LOCK = RLock()


class SiteRecorder(Messenger):  # type: ignore[misc]
    """Runs a model with given plate lengths and values of latents, and collects its sites.

    Args:
        function: The model.
        lengths: Lengths of the plates over rows and people. These plates get the index 0, 1, ...
            whatever size the model gives them, and are not scaled for subsampling.
        latent: Returns the value of a latent.
        observe: Returns the value of an observed site in these plates; its own by default.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        lengths: Mapping[str, int],
        latent: SiteValue,
        observe: SiteValue | None = None,
    ) -> None:
        super().__init__(function)
        self._lengths, self._latent, self._observe = lengths, latent, observe
        self.sites: dict[str, Site] = {}
        self.plates: dict[str, int] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the model, one thread at a time: all threads share NumPyro's stack of handlers."""
        with _HANDLER_LOCK:
            return super().__call__(*args, **kwargs)

    def process_message(self, msg: Message) -> None:
        """Sets the index of plates and the values of latents."""
        kind = msg["type"]
        if kind == "plate":
            self._give_index(msg)
        elif kind == "subsample":
            msg["type"] = "rows as they came"  # otherwise the plate would select from them again
        elif kind == "sample" and not msg["is_observed"]:
            msg["value"] = self._latent(msg)
        elif kind == "sample" and self._observe is not None and self._in_plates(msg):
            msg["value"] = self._observe(msg)
        elif kind in _UNSUPPORTED_STATEMENTS:
            name = f"Statement {msg['name']!r}" if msg.get("name") else "The model"
            raise InvalidArgument(f"{name} {_UNSUPPORTED_STATEMENTS[kind]}.")

    def _give_index(self, msg: Message) -> None:
        name, (size, part) = msg["name"], msg["args"]
        self.plates[name] = size
        if name in self._lengths:
            msg["value"], msg["args"] = jnp.arange(self._lengths[name]), (size, None)
        elif part is not None and part != size:
            raise InvalidArgument(
                f"Plate {name!r} has a subsample_size; only the plate over rows may have one, and it is "
                "ignored there."
            )

    def _in_plates(self, msg: Message) -> bool:
        return any(frame.name in self._lengths for frame in msg["cond_indep_stack"])

    def postprocess_message(self, msg: Message) -> None:
        """Records the result of a statement."""
        if msg["type"] not in ("sample", "deterministic"):
            return
        if msg["name"] in self.sites:
            raise InvalidArgument(
                f"The model has two sites called {msg['name']!r}; give them different names."
            )
        plates = {frame.name: frame.dim for frame in msg["cond_indep_stack"]}
        self.sites[msg["name"]] = Site(
            name=msg["name"],
            distribution=msg["fn"] if msg["type"] == "sample" else None,
            value=msg["value"],
            observed=msg["type"] == "sample" and msg["is_observed"],
            plates=plates,
            scale=self._own_scale(msg, plates),
        )

    def _own_scale(self, msg: Message, plates: Mapping[str, int]) -> Any:
        """The scale of the model's own handlers, without that of plates whose length was changed."""
        scale = msg.get("scale")
        if scale is None:
            return 1.0
        for name in plates:
            length = self._lengths.get(name)
            if length is not None and self.plates[name] != length:
                scale = scale * (length / self.plates[name])
        return scale


Columns = Mapping[str, Any]


class PublicInputs(NamedTuple):
    """Public inputs of the compiled program: declared arrays, and the made-up row."""

    arrays: Mapping[str, Any]
    row: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, eq=False)  # equal only to itself, and hashable
class NumPyroRuns(AdaptedModel):
    """A NumPyro function with the structure that was found in it.

    Attributes:
        function: The model function.
        settings: Declared constants of the function that are not arrays.
        person_column: The column that identifies the person of a row, if the function takes it.
        row_plates: Names of the plates over rows.
        person_plate: Name of the plate over people, if there is one.
        row_effects: Latents of single rows.
        person_effects: Latents of single people.
        nodes: The number of quadrature nodes per dimension, if it was given.
    """

    function: Callable[..., Any]
    settings: Mapping[str, Any]
    person_column: str | None
    row_plates: frozenset[str]
    person_plate: str | None
    row_effects: tuple[RandomEffect, ...]
    person_effects: tuple[RandomEffect, ...]
    nodes: int | None

    @cached_property
    def constants(self) -> PublicInputs:
        """Public inputs of the compiled program."""
        row = {name: self.made_up[name] for name in self.columns}
        return PublicInputs(dict(self.arrays), row)

    def public(self, constants: PyTree) -> PublicInputs:
        """The constants that were passed back, or the model's own."""
        return self.constants if constants is None else cast(PublicInputs, constants)

    @cached_property
    def lengths_of_one(self) -> dict[str, int]:
        """Lengths of the plates over rows and people in a run on a single row."""
        plates = self.row_plates | ({self.person_plate} if self.person_plate else set())
        return dict.fromkeys(plates, 1)

    @property
    def effects(self) -> tuple[RandomEffect, ...]:
        """Latents of single rows and of single people."""
        return self.row_effects + self.person_effects

    def run(
        self,
        columns: Columns,
        constants: PyTree,
        latent: SiteValue,
        *,
        lengths: Mapping[str, int] | None = None,
        observe: SiteValue | None = None,
    ) -> dict[str, Site]:
        """The model's sites on these columns, which have an axis for rows."""
        lengths = self.lengths_of_one if lengths is None else lengths
        given = {name: columns[name] for name in self.columns}
        if self.person_column is not None:
            given[self.person_column] = columns[self.person_column]
        run = SiteRecorder(self.function, lengths, latent, observe)
        run(**self.settings, **self.public(constants).arrays, **given)
        return run.sites

    def single(self, row: Row) -> dict[str, Any]:
        """The columns of a table that has this row only."""
        columns = {name: jnp.asarray(row[name])[None] for name in self.columns}
        if self.person_column is not None:
            columns[self.person_column] = jnp.zeros(1, jnp.int32)  # the only person
        return columns

    def run_made_up(
        self, latent: SiteValue, constants: PyTree = None, observe: SiteValue | None = None
    ) -> dict[str, Site]:
        """A run on the made-up row, with effects at their middle."""
        columns = self.single(self.public(constants).row)
        latent = self.with_effects(latent, split_point(self.effects, None))
        return self.run(columns, constants, latent, observe=observe)

    def parameters(self, vector: jax.Array, slopes: list[jax.Array] | None = None) -> SiteValue:
        """Values of the parameters at a vector; adds log-determinants to ``slopes``."""

        def latent(message: Message) -> jax.Array:
            value, slope = self.places[message["name"]].value(message["fn"], vector)
            if slopes is not None:
                slopes.append(slope)
            return value

        return latent

    def with_effects(self, parameters: SiteValue, points: Mapping[str, jax.Array]) -> SiteValue:
        """The given parameters, and effects at points [entries, axes] of their grid."""
        effects = {each.name: each for each in self.effects}

        def latent(message: Message) -> jax.Array:
            name = message["name"]
            if name not in effects:
                return parameters(message)
            return effects[name].at(message["fn"], points[name])

        return latent

    def is_local(self, site: Site) -> bool:
        """Whether a site belongs to single rows or people."""
        return any(name in self.lengths_of_one for name in site.plates)

    def row_terms(self, sites: Mapping[str, Site]) -> jax.Array:
        """What each row adds: its observations, and the probabilities of its discrete effects."""
        discrete = {each.name for each in self.row_effects if each.values is not None}
        total: jax.Array = jnp.zeros(())
        for site in sites.values():
            if site.observed or site.name in discrete:
                for plate in self.row_plates & set(site.plates):
                    total = total + site.by_plate(plate)
        return total

    def filled(self, rows: Row, present: jax.Array, constants: PyTree) -> dict[str, jax.Array]:
        """Rows, with made-up values where no row is present, so that gradients are finite."""

        def filled(values: jax.Array, example: Any) -> jax.Array:
            mask = present.reshape(-1, *(1,) * (jnp.ndim(values) - 1))
            return jnp.where(mask, values, jnp.asarray(example, values.dtype))

        example = self.public(constants).row
        return {name: filled(rows[name], example[name]) for name in self.columns}


def split_point(effects: Sequence[RandomEffect], point: jax.Array | None) -> dict[str, jax.Array]:
    """Each effect's part of a point, with an axis for the single row or person.

    None stands for zeros, the middle of every continuous effect.
    """
    total = sum(each.size for each in effects)
    whole = jnp.zeros(total) if point is None else point
    parts, start = {}, 0
    for each in effects:
        parts[each.name] = whole[None, start : start + each.size]
        start += each.size
    return parts


def keys_by_name(key: jax.Array, names: Sequence[str]) -> dict[str, jax.Array]:
    """A random key for each name."""
    keys = jax.random.split(key, len(names)) if len(names) > 1 else [key]
    return {name: keys[i] for i, name in enumerate(names)}


def outcome_sites(model: NumPyroRuns) -> tuple[str, ...]:
    """Sites that are observed in a row, in the model's order; none if one cannot be drawn."""
    names: list[str] = []

    def observe(message: Message) -> jax.Array:
        value: jax.Array = message["value"]
        if any(frame.name in model.row_plates for frame in message["cond_indep_stack"]):
            value = fast_sample(message["fn"], jax.random.key(0))
            names.append(message["name"])
        return value

    def look() -> None:
        model.run_made_up(model.parameters(jnp.zeros(model.dimension)), observe=observe)

    with suppress(Exception):  # a distribution without draws may raise anything
        jax.eval_shape(look)
        return tuple(names)
    return ()


def draw_outcomes(
    model: NumPyroRuns,
    sites: tuple[str, ...],
    keys: tuple[jax.Array, jax.Array],
    vector: jax.Array,
    row: Row,
    constants: PyTree,
) -> dict[str, jax.Array]:
    """A draw of the outcomes of a row, by site.

    The two keys are the person's and the row's. Rows with the same key of their person have the
    same effects of that person.
    """
    if not sites:
        raise InvalidArgument(
            "The model cannot draw outcomes: it has a factor, or a distribution without draws."
        )
    person, own = keys
    key_of = keys_by_name(person, [each.name for each in model.person_effects])
    key_of |= keys_by_name(own, [*(each.name for each in model.row_effects), *sites])
    parameters = model.parameters(jax.lax.stop_gradient(vector))
    effects = {each.name: each for each in model.effects}
    found: dict[str, jax.Array] = {}

    def latent(message: Message) -> jax.Array:
        name = message["name"]
        if name not in effects:
            return parameters(message)
        return effects[name].drawn(message["fn"], key_of[name])

    def observe(message: Message) -> jax.Array:
        name = message["name"]
        if name not in sites:
            value: jax.Array = message["value"]
            return value
        found[name] = fast_sample(message["fn"], key_of[name])
        return found[name]

    model.run(model.single(row), constants, latent, observe=observe)
    return found


def predict_outcomes(
    model: NumPyroRuns, key: jax.Array, params: Parameters, row: Row, constants: PyTree
) -> dict[str, Prediction]:
    """Predictions of each observed site of a new row, given parameters.

    The effects of a new row and of its person are drawn.
    """
    keys: list[jax.Array] = [key]
    found: dict[str, tuple[Any, Any, Any]] = {}

    def sample(message: Message) -> jax.Array:
        keys[0], fresh = jax.random.split(keys[0])
        value: jax.Array = message["fn"].sample(fresh)
        return value

    def latent(message: Message) -> jax.Array:
        name = message["name"]
        return params[name] if name in model.places else sample(message)

    def observe(message: Message) -> jax.Array:
        value = sample(message)
        found[message["name"]] = (
            value,
            distribution_mean(message["fn"]),
            distribution_logit(message["fn"]),
        )
        return value

    sites = model.run(model.single(row), constants, latent, observe=observe)
    return {
        name: Prediction(*(_squeeze_plates(model, sites[name], each) for each in values))
        for name, values in found.items()
    }


def _squeeze_plates(model: NumPyroRuns, site: Site, value: Any) -> jax.Array | None:
    """A value without the axes of the single row and person; None stays None."""
    if value is None:
        return None
    assert site.distribution is not None
    batch = len(site.distribution.batch_shape)
    axes = tuple(batch + dim for name, dim in site.plates.items() if name in model.lengths_of_one)
    return jnp.squeeze(jnp.asarray(value), axis=axes)


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
        reading: How to read the parameters, for summaries and reports; see `tacit.models.interpretation`.
    """

    function: Callable[..., Any]
    _: KW_ONLY
    constants: Mapping[str, Any] = field(default_factory=dict)
    row_plate: str | None = None
    person_plate: str | None = None
    integrate: Sequence[str] = ()
    nodes: int | None = None
    labels: Mapping[str, Sequence[Sequence[str]]] = field(default_factory=dict)
    reading: Interpretation | None = None


@dataclass(frozen=True, kw_only=True, eq=False)  # equal only to itself, and hashable
class NumPyroModel(NumPyroRuns):
    """A NumPyro model as log densities of one unconstrained vector, row by row."""

    declared_public: ClassVar[tuple[str, ...]] = (
        "arrays", "constants", "made_up", "places", "settings",
    )  # fmt: skip

    @property
    def searched(self) -> tuple[object, ...]:
        """The model function, to be searched for captured data."""
        return (self.function,)

    @property
    def whole_units(self) -> bool:
        """Whether rows of a person share an effect, so that only all of them have a density."""
        return bool(self.person_effects)

    def constrain(self, vector: jax.Array, constants: PyTree = None) -> Parameters:
        """Parameters on their supports, and what the model derives from them."""
        sites = self.run_made_up(self.parameters(vector), constants)
        return {name: sites[name].value for name in self.names}

    def prior_vector(self, key: jax.Array) -> jax.Array:
        """A draw of the unconstrained vector from the prior."""
        keys, parts = keys_by_name(key, list(self.places)), {}

        def latent(message: Message) -> jax.Array:
            name, fn = message["name"], message["fn"]
            value = jnp.asarray(fn.sample(keys[name]))
            parts[name] = jnp.ravel(self.places[name].inverse(fn, value))
            return value

        self.run_made_up(latent)
        return jnp.concatenate([parts[name] for name in self.places])

    def prior_density(self, vector: jax.Array, constants: PyTree = None) -> jax.Array:
        """Log prior of the unconstrained vector, with the Jacobian of its map.

        Includes observations and factors outside the plate over rows, which depend on no row.
        """
        slopes: list[jax.Array] = []
        total = jnp.zeros((), vector.dtype)
        for site in self.run_made_up(self.parameters(vector, slopes), constants).values():
            if site.distribution is not None and not self.is_local(site):
                total = total + site.log_prob().sum()
        return total + sum(slopes)

    def row_density(
        self, vector: jax.Array, row: Row, constants: PyTree = None, outcomes: Outcomes = None
    ) -> jax.Array:
        """Log-likelihood of one row, with its effects summed or integrated out."""
        return self._row_density_given(None, vector, row, constants, outcomes)

    def _row_density_given(
        self,
        person: jax.Array | None,
        vector: jax.Array,
        row: Row,
        constants: PyTree,
        outcomes: Outcomes,
    ) -> jax.Array:
        """Log-likelihood of one row given a point of the person's effects."""
        columns = self.single(row)
        shared = split_point(self.person_effects, person)
        observe = None if outcomes is None else _replace_outcomes(outcomes)

        def at(point: jax.Array | None) -> jax.Array:
            points = shared | split_point(self.row_effects, point)
            latent = self.with_effects(self.parameters(vector), points)
            return self.row_terms(self.run(columns, constants, latent, observe=observe)).sum()

        return integrate_out(at, self.row_effects, self.nodes) if self.row_effects else at(None)

    def unit_density(
        self,
        vector: jax.Array,
        rows: Row,
        present: jax.Array,
        constants: PyTree = None,
        outcomes: Outcomes = None,
    ) -> jax.Array:
        """Log-likelihood of all rows of a person, with the person's effects integrated out."""
        if len(present) == 1 and not self.person_effects:  # no axis for the rows, which takes time
            row, own = jax.tree.map(lambda leaf: leaf[0], (rows, outcomes))
            return jnp.where(present[0], self.row_density(vector, row, constants, own), 0.0)
        filled = self.filled(rows, present, constants)

        def at(point: jax.Array) -> jax.Array:
            def term(row: Row, outcomes: Outcomes) -> jax.Array:
                return self._row_density_given(point, vector, row, constants, outcomes)

            terms = jnp.where(present, jax.vmap(term)(filled, outcomes), 0.0)
            return terms.sum() + self._discrete_density(vector, constants, point)

        return integrate_out(at, self.person_effects, self.nodes)

    def _discrete_density(
        self, vector: jax.Array, constants: PyTree, point: jax.Array
    ) -> jax.Array:
        """Log-probability of the person's discrete effects at a point."""
        names = [each.name for each in self.person_effects if each.values is not None]
        if not names:
            return jnp.zeros(())
        points = split_point(self.person_effects, point) | split_point(self.row_effects, None)
        latent = self.with_effects(self.parameters(vector), points)
        sites = self.run(self.single(self.public(constants).row), constants, latent)
        return sum((sites[name].log_prob().sum() for name in names), start=jnp.zeros(()))

    @cached_property
    def _outcome_sites(self) -> tuple[str, ...]:
        return outcome_sites(self)

    @property
    def simulates(self) -> bool:
        """Whether all that is observed in a row can be drawn."""
        return bool(self._outcome_sites)

    def row_outcomes(
        self, key: jax.Array, vector: jax.Array, row: Row, constants: PyTree = None
    ) -> Outcomes:
        """A draw of the row's outcomes, by site. Its effects are drawn too."""
        person, own = jax.random.split(key) if self.person_effects else (key, key)
        return draw_outcomes(self, self._outcome_sites, (person, own), vector, row, constants)

    def unit_outcomes(
        self,
        key: jax.Array,
        vector: jax.Array,
        rows: Row,
        present: jax.Array,
        constants: PyTree = None,
    ) -> Outcomes:
        """A draw of the outcomes of all rows of a person, who has the same effects in all."""
        person, own = jax.random.split(key)
        filled = self.filled(rows, present, constants)

        def draw(key: jax.Array, row: Row) -> Outcomes:
            return draw_outcomes(self, self._outcome_sites, (person, key), vector, row, constants)

        return jax.vmap(draw)(jax.random.split(own, len(present)), filled)

    def predict(
        self, key: jax.Array, params: Parameters, row: Row, constants: PyTree = None
    ) -> dict[str, Prediction]:
        """Predictions of each observed site of a new row, given parameters."""
        return predict_outcomes(self, key, params, row, constants)

    def start(self, values: Mapping[str, ArrayLike]) -> jax.Array:
        """The unconstrained vector of given values; zero for parameters not given."""
        check_start_names(values, self.places)
        vector = np.zeros(self.dimension, np.float32)

        def latent(message: Message) -> jax.Array:
            name, fn = message["name"], message["fn"]
            place = self.places[name]
            if name in values:
                value = broadcast_start(name, values[name], fn.shape())
                vector[place.start : place.stop] = check_finite_start(place.inverse(fn, value))
            return place.value(fn, jnp.asarray(vector))[0]

        self.run_made_up(latent)
        return jnp.asarray(vector)


def _replace_outcomes(outcomes: Mapping[str, jax.Array]) -> SiteValue:
    """The given values of observed sites; others keep their own."""
    return lambda message: outcomes.get(message["name"], message["value"])

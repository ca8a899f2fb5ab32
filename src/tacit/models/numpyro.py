"""Models written in NumPyro: the likelihood of a row is that of the model run on this row only.

The prior is the density of the model's latents on a dummy row. The likelihood of a row is what the model observes
when it is given that row and nothing else. So rows cannot interact, and the prior cannot depend on them, whatever the
model's code does. `tacit.models.numpyro_structure` checks on dummy rows that this is also what the model means when
it is given many rows.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property, partial
from threading import RLock
from typing import Any, ClassVar, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.interpreters import partial_eval
from numpy.typing import ArrayLike
from numpyro.distributions import Distribution
from numpyro.primitives import Messenger

from tacit._typing import ArrayTree
from tacit.errors import InvalidArgument
from tacit.models.base import (
    Labels,
    Outcomes,
    Parameters,
    Place,
    Prediction,
    PublicArrays,
    Row,
    UnitModel,
    broadcast_start,
    check_finite_start,
    check_start_names,
    sum_over_rows,
)
from tacit.models.distributions import (
    distribution_logit,
    distribution_mean,
    fast_sample,
    outcome_interval,
)
from tacit.models.interpretation import Interpretation
from tacit.models.jax_model import AdaptedModel
from tacit.models.random_effects import RandomEffect, integrate_out

_T = TypeVar("_T")
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
    value: jax.Array
    observed: bool
    plates: Mapping[str, int]
    scale: jax.Array | float

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
        function: Callable[..., object],
        lengths: Mapping[str, int],
        latent: SiteValue,
        observe: SiteValue | None = None,
    ) -> None:
        super().__init__(function)
        self._lengths, self._latent, self._observe = lengths, latent, observe
        self.sites: dict[str, Site] = {}
        self.plates: dict[str, int] = {}

    def __call__(self, *args: object, **kwargs: object) -> object:
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

    def _own_scale(self, msg: Message, plates: Mapping[str, int]) -> jax.Array | float:
        """The scale of the model's own handlers, without that of plates whose length was changed."""
        scale: jax.Array | float | None = msg.get("scale")
        if scale is None:
            return 1.0
        for name in plates:
            length = self._lengths.get(name)
            if length is not None and self.plates[name] != length:
                scale = scale * (length / self.plates[name])
        return scale


class PublicInputs(NamedTuple):
    """Public inputs of the compiled program: declared arrays, and the dummy row."""

    arrays: PublicArrays
    row: PublicArrays


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
        interpretation: How to interpret the parameters, for summaries and reports.
        columns: Names of the columns that the function takes, if they are not those of its
            arguments.
        order: Names of parameters, in the order in which they are reported; others follow.
        outcomes: Names of the observed sites that are predicted for new rows. Others keep the new
            row's own values. By default all are predicted.
    """

    function: Callable[..., object]
    _: KW_ONLY
    constants: Mapping[str, object] = field(default_factory=dict)
    row_plate: str | None = None
    person_plate: str | None = None
    integrate: Sequence[str] = ()
    nodes: int | None = None
    labels: Labels = field(default_factory=dict)
    interpretation: Interpretation | None = None
    columns: Sequence[str] | None = None
    order: Sequence[str] = ()
    outcomes: Sequence[str] | None = None


@dataclass(frozen=True, kw_only=True, eq=False)  # equal only to itself, and hashable
class NumPyroModel(AdaptedModel):
    """A NumPyro function with the structure that was found in it, as log densities of a vector.

    Attributes:
        function: The model function.
        settings: Declared constants of the function that are not arrays.
        person_column: The column that identifies the person of a row, if the function takes it.
        row_plates: Names of the plates over rows.
        person_plate: Name of the plate over people, if there is one.
        row_effects: Latents of single rows.
        person_effects: Latents of single people.
        nodes: The number of quadrature nodes per dimension, if it was given.
        outcomes: Names of the observed sites that are predicted; None if all are.
    """

    function: Callable[..., object]
    settings: Mapping[str, object]
    person_column: str | None
    row_plates: frozenset[str]
    person_plate: str | None
    row_effects: tuple[RandomEffect, ...]
    person_effects: tuple[RandomEffect, ...]
    nodes: int | None
    outcomes: tuple[str, ...] | None = None

    declared_public: ClassVar[tuple[str, ...]] = (
        "arrays", "constants", "dummy_row", "settings", "slices",
    )  # fmt: skip

    @cached_property
    def unit_model(self) -> UnitModel:
        """The model as inference takes it."""
        made = self.make_unit_model(
            constrain=_keep_trace(self.constrain),
            unconstrain=self.unconstrain,
            log_prior=_keep_trace(self.log_prior),
            log_likelihood=_keep_trace(self.log_likelihood),
            simulate=_keep_trace(self.simulate) if self._outcome_sites else None,
        )
        return replace(
            made,
            constants=self.constants,
            sample_prior=self.sample_prior,
            predict=self.predict,
            place=_keep_trace(self.place),
            has_person_effects=bool(self.person_effects),
            user_functions=(self.function,),
        )

    @cached_property
    def constants(self) -> PublicInputs:
        """Public inputs of the compiled program."""
        row = {name: self.dummy_row[name] for name in self.columns}
        return PublicInputs(dict(self.arrays), row)

    def _public_inputs(self, constants: ArrayTree) -> PublicInputs:
        """The constants that were passed back, or the model's own."""
        if constants is None:
            return self.constants
        assert isinstance(constants, PublicInputs)
        return constants

    @cached_property
    def local_plates(self) -> frozenset[str]:
        """Names of the plates over rows and people, which have one entry in a run on a single row."""
        return self.row_plates | ({self.person_plate} if self.person_plate else set())

    @property
    def effects(self) -> tuple[RandomEffect, ...]:
        """Latents of single rows and of single people."""
        return self.row_effects + self.person_effects

    # Runs of the function on given columns and latents.

    def run(
        self,
        columns: Row,
        constants: ArrayTree,
        latent: SiteValue,
        *,
        lengths: Mapping[str, int] | None = None,
        observe: SiteValue | None = None,
    ) -> dict[str, Site]:
        """The model's sites on these columns, which have an axis for rows."""
        lengths = dict.fromkeys(self.local_plates, 1) if lengths is None else lengths
        given = {name: columns[name] for name in self.columns}
        if self.person_column is not None:
            given[self.person_column] = columns[self.person_column]
        run = SiteRecorder(self.function, lengths, latent, observe)
        run(**self.settings, **self._public_inputs(constants).arrays, **given)
        return run.sites

    def single_row_table(self, row: Mapping[str, ArrayLike]) -> dict[str, jax.Array]:
        """The columns of a table that has this row only."""
        columns = {name: jnp.asarray(row[name])[None] for name in self.columns}
        if self.person_column is not None:
            columns[self.person_column] = jnp.zeros(1, jnp.int32)  # the only person
        return columns

    def run_on_dummy_row(
        self, latent: SiteValue, constants: ArrayTree = None, observe: SiteValue | None = None
    ) -> dict[str, Site]:
        """A run on the dummy row, with effects at their middle."""
        columns = self.single_row_table(self._public_inputs(constants).row)
        latent = self.with_effects(latent, split_point(self.effects, None))
        return self.run(columns, constants, latent, observe=observe)

    def parameters(self, vector: jax.Array, log_dets: list[jax.Array] | None = None) -> SiteValue:
        """Values of the parameters at a vector; adds log-determinants of the map to ``log_dets``."""
        # All parts at once: the derivative of single slices would add up as many vectors as there are parameters.
        sizes = [here.stop - here.start for here in self.slices.values()]
        parts = dict(zip(self.slices, jax.lax.split(vector, sizes), strict=True))

        def latent(message: Message) -> jax.Array:
            name = message["name"]
            value, log_det = self.slices[name].value(message["fn"], parts[name])
            if log_dets is not None:
                log_dets.append(log_det)
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
        return bool(self.local_plates & site.plates.keys())

    def row_terms(self, sites: Mapping[str, Site]) -> jax.Array:
        """What each row adds: its observations, and the probabilities of its discrete effects."""
        discrete = {each.name for each in self.row_effects if each.values is not None}
        total: jax.Array = jnp.zeros(())
        for site in sites.values():
            if site.observed or site.name in discrete:
                for plate in self.row_plates & set(site.plates):
                    total = total + site.by_plate(plate)
        return total

    # The functions of the model as inference takes it.

    def constrain(self, vector: jax.Array, constants: ArrayTree = None) -> Parameters:
        """Parameters on their supports, and what the model derives from them."""
        sites = self.run_on_dummy_row(self.parameters(vector), constants)
        return {name: sites[name].value for name in self.names}

    def unconstrain(self, values: Mapping[str, ArrayLike]) -> jax.Array:
        """The unconstrained vector of given values; zero for parameters not given."""
        check_start_names(values, self.slices)
        vector = np.zeros(self.dimension, np.float32)

        def latent(message: Message) -> jax.Array:
            name, fn = message["name"], message["fn"]
            here = self.slices[name]
            if name in values:
                value = broadcast_start(name, values[name], fn.shape())
                vector[here.start : here.stop] = check_finite_start(here.inverse(fn, value))
            return here.value(fn, jnp.asarray(vector[here.start : here.stop]))[0]

        self.run_on_dummy_row(latent)
        return jnp.asarray(vector)

    def sample_prior(self, key: jax.Array) -> jax.Array:
        """A draw of the unconstrained vector from the prior."""
        keys, parts = keys_by_name(key, list(self.slices)), {}

        def latent(message: Message) -> jax.Array:
            name, fn = message["name"], message["fn"]
            value = jnp.asarray(fn.sample(keys[name]))
            parts[name] = jnp.ravel(self.slices[name].inverse(fn, value))
            return value

        self.run_on_dummy_row(latent)
        return jnp.concatenate([parts[name] for name in self.slices])

    def log_prior(self, vector: jax.Array, constants: ArrayTree = None) -> jax.Array:
        """Log prior of the unconstrained vector, with the Jacobian of its map.

        Includes observations and factors outside the plate over rows, which depend on no row.
        """
        log_dets: list[jax.Array] = []
        total = jnp.zeros((), vector.dtype)
        for site in self.run_on_dummy_row(self.parameters(vector, log_dets), constants).values():
            if site.distribution is not None and not self.is_local(site):
                total = total + site.log_prob().sum()
        return total + sum(log_dets)

    def log_likelihood(
        self,
        vector: jax.Array,
        rows: Row,
        present: jax.Array,
        constants: ArrayTree = None,
        outcomes: Outcomes = None,
    ) -> jax.Array:
        """Log-likelihood of the rows of a unit, with the effects of their person integrated out."""
        if self.person_effects or len(present) > 1:
            rows = self._fill_absent(rows, present, constants)

        def given(person: jax.Array | None) -> jax.Array:
            of_rows = sum_over_rows(partial(self._row_log_likelihood, person))
            return of_rows(vector, rows, present, constants, outcomes)

        def at(person: jax.Array) -> jax.Array:
            return given(person) + self._discrete_log_prob(vector, constants, person)

        if not self.person_effects:
            return given(None)
        return integrate_out(at, self.person_effects, self.nodes)

    def _row_log_likelihood(
        self,
        person: jax.Array | None,
        vector: jax.Array,
        row: Row,
        constants: ArrayTree,
        outcomes: Outcomes,
    ) -> jax.Array:
        """Log-likelihood of one row, given a point of the effects of its person."""
        columns = self.single_row_table(row)
        shared = split_point(self.person_effects, person)

        def observe(message: Message) -> jax.Array:
            own: jax.Array = message["value"]
            return own if outcomes is None else outcomes.get(message["name"], own)

        def at(point: jax.Array | None) -> jax.Array:
            points = shared | split_point(self.row_effects, point)
            latent = self.with_effects(self.parameters(vector), points)
            return self.row_terms(self.run(columns, constants, latent, observe=observe)).sum()

        return integrate_out(at, self.row_effects, self.nodes) if self.row_effects else at(None)

    def _discrete_log_prob(
        self, vector: jax.Array, constants: ArrayTree, point: jax.Array
    ) -> jax.Array:
        """Log-probability of the person's discrete effects at a point."""
        names = [each.name for each in self.person_effects if each.values is not None]
        if not names:
            return jnp.zeros(())
        points = split_point(self.person_effects, point) | split_point(self.row_effects, None)
        latent = self.with_effects(self.parameters(vector), points)
        row = self.single_row_table(self._public_inputs(constants).row)
        sites = self.run(row, constants, latent)
        return sum((sites[name].log_prob().sum() for name in names), start=jnp.zeros(()))

    def _fill_absent(
        self, rows: Row, present: jax.Array, constants: ArrayTree
    ) -> dict[str, jax.Array]:
        """Rows, with dummy values where no row is present, so that gradients are finite."""
        example, filled = self._public_inputs(constants).row, {}
        for name in self.columns:
            mask = present.reshape(-1, *(1,) * (jnp.ndim(rows[name]) - 1))
            dummy = jnp.asarray(example[name], rows[name].dtype)
            filled[name] = jnp.where(mask, rows[name], dummy)
        return filled

    @cached_property
    def _outcome_sites(self) -> tuple[str, ...]:
        """Sites that are observed in a row, in the model's order; none if one cannot be drawn."""
        names: list[str] = []

        def observe(message: Message) -> jax.Array:
            value: jax.Array = message["value"]
            if any(frame.name in self.row_plates for frame in message["cond_indep_stack"]):
                value = fast_sample(message["fn"], jax.random.key(0))
                names.append(message["name"])
            return value

        def run() -> None:
            self.run_on_dummy_row(self.parameters(jnp.zeros(self.dimension)), observe=observe)

        with suppress(Exception):  # a distribution without draws may raise anything
            jax.eval_shape(run)
            return tuple(names)
        return ()

    def simulate(
        self,
        key: jax.Array,
        vector: jax.Array,
        rows: Row,
        present: jax.Array,
        constants: ArrayTree = None,
    ) -> Mapping[str, jax.Array]:
        """A draw of the outcomes of all rows of a unit, by site. Effects are drawn too."""
        if len(present) == 1 and not self.person_effects:
            alone = jax.tree.map(lambda leaf: leaf[0], rows)
            drawn = self._simulate_row(key, key, vector, alone, constants)
            return {name: value[None] for name, value in drawn.items()}
        person, own = jax.random.split(key)
        filled = self._fill_absent(rows, present, constants)

        def draw(key: jax.Array, row: Row) -> dict[str, jax.Array]:
            return self._simulate_row(person, key, vector, row, constants)

        return jax.vmap(draw)(jax.random.split(own, len(present)), filled)

    def _simulate_row(
        self,
        person_key: jax.Array,
        row_key: jax.Array,
        vector: jax.Array,
        row: Row,
        constants: ArrayTree,
    ) -> dict[str, jax.Array]:
        """A draw of the outcomes of a row. Rows with the same key of their person share its effects."""
        keys = keys_by_name(person_key, [each.name for each in self.person_effects])
        own = [*(each.name for each in self.row_effects), *self._outcome_sites]
        keys |= keys_by_name(row_key, own)
        parameters = self.parameters(jax.lax.stop_gradient(vector))
        effects = {each.name: each for each in self.effects}
        drawn: dict[str, jax.Array] = {}

        def latent(message: Message) -> jax.Array:
            name = message["name"]
            if name not in effects:
                return parameters(message)
            return effects[name].sample(message["fn"], keys[name])

        def observe(message: Message) -> jax.Array:
            name, value = message["name"], message["value"]
            if name in self._outcome_sites:
                value = drawn[name] = fast_sample(message["fn"], keys[name])
            return jnp.asarray(value)

        self.run(self.single_row_table(row), constants, latent, observe=observe)
        return drawn

    def predict(
        self,
        key: jax.Array,
        params: Parameters,
        row: Mapping[str, ArrayLike],
        constants: ArrayTree = None,
    ) -> dict[str, Prediction]:
        """Predictions of each observed site of a new row, given parameters.

        The effects of a new row and of its person are drawn.
        """
        keys: list[jax.Array] = [key]
        found: dict[str, tuple[jax.Array | None, jax.Array | None, jax.Array | None]] = {}

        def sample(message: Message) -> jax.Array:
            keys[0], fresh = jax.random.split(keys[0])
            return jnp.asarray(message["fn"].sample(fresh))

        def latent(message: Message) -> jax.Array:
            name = message["name"]
            return params[name] if name in self.slices else sample(message)

        def observe(message: Message) -> jax.Array:
            name, fn = message["name"], message["fn"]
            if self.outcomes is not None and name not in self.outcomes:
                return jnp.asarray(message["value"])
            value = sample(message)
            found[name] = value, distribution_mean(fn), distribution_logit(fn)
            return value

        table = self.single_row_table(row)
        sites = self.run(table, constants, latent, observe=observe)
        return {
            name: Prediction(*(self._squeeze_plates(sites[name], each) for each in values))
            for name, values in found.items()
        }

    def place(
        self,
        vector: jax.Array,
        row: Row,
        constants: ArrayTree = None,
        outcomes: Outcomes = None,
    ) -> Place:
        """The place of a row's outcome in its distribution, with effects of the row and its person integrated out.

        Raises:
            InvalidArgument: If the row has several outcomes, or one whose distribution function is not known.
        """
        table = self.single_row_table(row)

        def observe(message: Message) -> jax.Array:
            own: jax.Array = message["value"]
            return own if outcomes is None else outcomes.get(message["name"], own)

        def at(point: jax.Array | None) -> tuple[Place, jax.Array]:
            latent = self.with_effects(self.parameters(vector), split_point(self.effects, point))
            sites = self.run(table, constants, latent, observe=observe)
            seen = [each for each in sites.values() if each.observed and self.is_local(each)]
            named = [s for s in seen if self.outcomes is None or s.name in self.outcomes]
            if len(named) != 1:
                raise InvalidArgument("A check needs a model with one outcome in each row.")
            chosen = [each for each in self.effects if each.values is not None]
            weight = sum((sites[e.name].log_prob().sum() for e in chosen), start=jnp.zeros(()))
            return _place_of(named[0]), weight

        if not self.effects:
            return at(None)[0]

        def integrated(which: int) -> jax.Array:
            def log_of(point: jax.Array) -> jax.Array:
                found, weight = at(point)
                return jnp.log(jnp.clip(found[which], 1e-7, 1.0)) + weight

            return jnp.clip(jnp.exp(integrate_out(log_of, self.effects, self.nodes)), 0.0, 1.0)

        return at(None)[0]._replace(below=integrated(0), until=integrated(1))

    def _squeeze_plates(self, site: Site, value: jax.Array | None) -> jax.Array | None:
        """A value without the axes of the single row and person; None stays None."""
        if value is None:
            return None
        assert site.distribution is not None
        batch = len(site.distribution.batch_shape)
        axes = [batch + dim for name, dim in site.plates.items() if name in self.local_plates]
        return jnp.squeeze(value, axis=tuple(axes))


def _place_of(site: Site) -> Place:
    """The place of a single value in the distribution of its site."""
    fn = site.distribution
    assert fn is not None
    try:
        low, high = outcome_interval(fn, site.value)
    except (AttributeError, NotImplementedError, ImportError):
        raise InvalidArgument(
            f"A check needs the distribution function of {site.name!r}, which is not known for {type(fn).__name__}."
        ) from None
    if jnp.size(low) != 1:
        raise InvalidArgument(f"A check needs a single number for {site.name!r} in a row.")
    mean, likely = distribution_mean(fn), jnp.full((), jnp.nan)
    if mean is None:
        mean = jnp.zeros(())
    elif jnp.size(mean) > 1:  # probabilities of levels
        likely = jnp.argmax(mean.ravel()).astype(jnp.float32)
        mean = (mean.ravel() * jnp.arange(jnp.size(mean))).sum()
    elif distribution_logit(fn) is not None:
        likely = (jnp.reshape(mean, ()) > 0.5).astype(jnp.float32)
    value = jnp.ravel(site.value)
    return Place(
        below=jnp.reshape(low, ()),
        until=jnp.reshape(high, ()),
        predicted=jnp.reshape(mean, ()),
        value=value[0].astype(jnp.float32) if len(value) == 1 else jnp.full((), jnp.nan),
        likely=likely,
    )


def _keep_trace(function: Callable[..., _T]) -> Callable[..., _T]:
    """The same function, of which JAX keeps the trace: derivatives start from it, and NumPyro's handlers run once.

    Whatever does not lead to the result is left out. Handlers compute much of that, and it would be differentiated too.
    """

    # Without annotations, which jax.jit would copy to an attribute that the search for captured data looks into.
    def traced(*given):  # type: ignore[no-untyped-def]  # noqa: ANN002, ANN202
        trace, shape = jax.make_jaxpr(function, return_shape=True)(*given)
        used, _ = partial_eval.dce_jaxpr(
            trace.jaxpr, [True] * len(trace.jaxpr.outvars), instantiate=True
        )
        leaves = jax.core.eval_jaxpr(used, trace.consts, *jax.tree.leaves(given))
        return jax.tree.unflatten(jax.tree.structure(shape), leaves)

    return jax.jit(traced)


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

"""Models written in NumPyro: the likelihood of a row is that of the model run on this row only.

The prior is the density of the model's latents on a made-up row. The likelihood of a row is what
the model observes when it is given that row and nothing else. So rows cannot interact, and the
prior cannot depend on them, whatever the model's code does. `tacit.models.verify` checks on
made-up rows that this is also what the model means when it is given many rows.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from tacit.models.base import (
    Outcomes,
    Parameters,
    Prediction,
    PyTree,
    Row,
    finite_start,
    refuse_strangers,
    shaped_start,
)
from tacit.models.effects import integrated
from tacit.models.numpyro_outcomes import drawn_outcomes, outcome_sites, predictions
from tacit.models.numpyro_runs import NumPyroRuns, named_keys, split
from tacit.models.reading import Reading
from tacit.models.sites import Latent, Message


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
        reading: How to read the parameters, for summaries and reports; see `tacit.models.reading`.
    """

    function: Callable[..., Any]
    _: KW_ONLY
    constants: Mapping[str, Any] = field(default_factory=dict)
    row_plate: str | None = None
    person_plate: str | None = None
    integrate: Sequence[str] = ()
    nodes: int | None = None
    labels: Mapping[str, Sequence[Sequence[str]]] = field(default_factory=dict)
    reading: Reading | None = None


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
        keys, parts = named_keys(key, list(self.places)), {}

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
        shared = split(self.person_effects, person)
        observe = None if outcomes is None else _replaced(outcomes)

        def at(point: jax.Array | None) -> jax.Array:
            points = shared | split(self.row_effects, point)
            latent = self.with_effects(self.parameters(vector), points)
            return self.row_terms(self.run(columns, constants, latent, observe=observe)).sum()

        return integrated(at, self.row_effects, self.nodes) if self.row_effects else at(None)

    def unit_density(
        self,
        vector: jax.Array,
        rows: Row,
        present: jax.Array,
        constants: PyTree = None,
        outcomes: Outcomes = None,
    ) -> jax.Array:
        """Log-likelihood of all rows of a person, with the person's effects integrated out."""
        filled = self.filled(rows, present, constants)

        def at(point: jax.Array) -> jax.Array:
            def term(row: Row, outcomes: Outcomes) -> jax.Array:
                return self._row_density_given(point, vector, row, constants, outcomes)

            terms = jnp.where(present, jax.vmap(term)(filled, outcomes), 0.0)
            return terms.sum() + self._discrete_density(vector, constants, point)

        return integrated(at, self.person_effects, self.nodes)

    def _discrete_density(
        self, vector: jax.Array, constants: PyTree, point: jax.Array
    ) -> jax.Array:
        """Log-probability of the person's discrete effects at a point."""
        names = [each.name for each in self.person_effects if each.values is not None]
        if not names:
            return jnp.zeros(())
        points = split(self.person_effects, point) | split(self.row_effects, None)
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
        return drawn_outcomes(self, self._outcome_sites, (person, own), vector, row, constants)

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
            return drawn_outcomes(self, self._outcome_sites, (person, key), vector, row, constants)

        return jax.vmap(draw)(jax.random.split(own, len(present)), filled)

    def predict(
        self, key: jax.Array, params: Parameters, row: Row, constants: PyTree = None
    ) -> dict[str, Prediction]:
        """Predictions of each observed site of a new row, given parameters."""
        return predictions(self, key, params, row, constants)

    def start(self, values: Mapping[str, ArrayLike]) -> jax.Array:
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

        self.run_made_up(latent)
        return jnp.asarray(vector)


def _replaced(outcomes: Mapping[str, jax.Array]) -> Latent:
    """The given values of observed sites; others keep their own."""
    return lambda message: outcomes.get(message["name"], message["value"])

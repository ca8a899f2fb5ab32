"""A model that differs from another in a part, and is that model otherwise."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax

from tacit.models.base import AnyModel, Discrete, Labels, Outcomes, Parameters, PyTree, Row
from tacit.models.reading import Reading, reading_of


@dataclass(frozen=True)
class WrappedModel:
    """All of a model, for classes that change a part of it."""

    model: AnyModel

    @property
    def constants(self) -> Any:
        """As for the model."""
        return self.model.constants

    def of_model(self, constants: PyTree) -> PyTree:
        """The wrapped model's own constants, of those of this one."""
        return constants

    @property
    def dimension(self) -> int:
        """As for the model."""
        return self.model.dimension

    @property
    def names(self) -> tuple[str, ...]:
        """As for the model."""
        return self.model.names

    @property
    def columns(self) -> tuple[str, ...] | None:
        """As for the model."""
        return self.model.columns

    @property
    def labels(self) -> Labels:
        """As for the model."""
        return self.model.labels

    @property
    def reading(self) -> Reading | None:
        """As for the model."""
        return reading_of(self.model)

    @property
    def searched(self) -> tuple[Any, ...]:
        """As for the model."""
        return self.model.searched

    @property
    def whole_units(self) -> bool:
        """As for the model."""
        return self.model.whole_units

    @property
    def discrete(self) -> Discrete:
        """As for the model."""
        return self.model.discrete

    def start(self, values: Mapping[str, Any]) -> Any:
        """As for the model."""
        return self.model.start(values)

    def constrain(self, vector: jax.Array, constants: PyTree = None) -> Parameters:
        """As for the model."""
        return self.model.constrain(vector, self.of_model(constants))

    def prior_density(self, vector: jax.Array, constants: PyTree = None) -> jax.Array:
        """As for the model."""
        return self.model.prior_density(vector, self.of_model(constants))

    def row_density(
        self,
        vector: jax.Array,
        row: Row,
        constants: PyTree = None,
        outcomes: Outcomes = None,
    ) -> jax.Array:
        """As for the model."""
        return self.model.row_density(vector, row, self.of_model(constants), outcomes)

    def unit_density(
        self,
        vector: jax.Array,
        rows: Row,
        present: jax.Array,
        constants: PyTree = None,
        outcomes: Outcomes = None,
    ) -> jax.Array:
        """As for the model."""
        given = self.of_model(constants)
        return self.model.unit_density(vector, rows, present, given, outcomes)

    @property
    def simulates(self) -> bool:
        """As for the model."""
        return self.model.simulates

    def row_outcomes(
        self, key: jax.Array, vector: jax.Array, row: Row, constants: PyTree = None
    ) -> Outcomes:
        """As for the model."""
        return self.model.row_outcomes(key, vector, row, self.of_model(constants))

    def unit_outcomes(
        self,
        key: jax.Array,
        vector: jax.Array,
        rows: Row,
        present: jax.Array,
        constants: PyTree = None,
    ) -> Outcomes:
        """As for the model."""
        given = self.of_model(constants)
        return self.model.unit_outcomes(key, vector, rows, present, given)

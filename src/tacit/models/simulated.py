"""A model of made-up tables, whose outcomes the model itself has drawn."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax

from tacit.models.base import Outcomes, PyTree, Row
from tacit.models.wrapped import WrappedModel

_DRAWN = "drawn "


@dataclass(frozen=True, eq=False)
class SimulatedModel(WrappedModel):
    """A model that takes its outcomes from fields of a made-up row, where `with_outcomes` put them.

    Everything else is the model's own. So a method does with a made-up table exactly what it does
    with a real one, whatever the outcomes are: columns of the table, or functions of them.
    """

    @property
    def columns(self) -> tuple[str, ...] | None:
        """Not restricted, because a made-up row has fields beside the columns."""
        return None

    def row_density(
        self, vector: jax.Array, row: Row, constants: PyTree = None, outcomes: Outcomes = None
    ) -> jax.Array:
        """Log-likelihood of the drawn outcomes of a row, or of others in their place."""
        own = _own(row) if outcomes is None else outcomes
        return super().row_density(vector, row, constants, own)

    def unit_density(
        self,
        vector: jax.Array,
        rows: Row,
        present: jax.Array,
        constants: PyTree = None,
        outcomes: Outcomes = None,
    ) -> jax.Array:
        """The same for all rows of a unit."""
        own = _own(rows) if outcomes is None else outcomes
        return super().unit_density(vector, rows, present, constants, own)


def with_outcomes(columns: Mapping[str, Any], outcomes: Mapping[str, Any]) -> dict[str, Any]:
    """Columns of a made-up table, with drawn outcomes where `SimulatedModel` looks for them."""
    return {**columns, **{f"{_DRAWN}{name}": values for name, values in outcomes.items()}}


def _own(row: Row) -> dict[str, jax.Array]:
    return {name.removeprefix(_DRAWN): row[name] for name in row if name.startswith(_DRAWN)}

"""Private rows of a table, dummy rows of the same shapes, and simulated units."""

from collections.abc import Sequence
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tacit.data.schema import Schema
from tacit.data.tables import TableLike
from tacit.models.base import Row, UnitModel
from tacit.privacy.rows import Rows, Units

# Rows that are simulated from the schema.
_NUM_SIMULATED_ROWS = 1000


def model_columns(model: UnitModel, schema: Schema) -> tuple[str, ...]:
    """The columns a model takes; a model in plain JAX may take any."""
    return schema.names if model.columns is None else model.columns


def model_rows(model: UnitModel, schema: Schema, data: TableLike) -> Rows:
    """The private rows of a table, encoded by the schema."""
    return encode_rows(schema, model_columns(model, schema), data)


def encode_rows(schema: Schema, names: Sequence[str], data: TableLike) -> Rows:
    """The private rows of some columns of a table, encoded by the schema."""
    rows = Rows.of_encoded(*schema.encode(data, names))
    rows.simulated = simulated_units(schema, names)
    return rows


def simulated_units(schema: Schema, names: Sequence[str]) -> Units:
    """Units drawn from the schema alone, by a fixed seed.

    Numbers are uniform within their bounds, one in ten at a bound; levels are equally frequent.
    People have any number of rows up to the most that they may have.
    """
    if schema.most_rows is None:
        return Units(schema.made_up(_NUM_SIMULATED_ROWS, names), None)
    rng = np.random.default_rng(0)
    people = max(1, _NUM_SIMULATED_ROWS // schema.most_rows)
    columns = schema.made_up(people * schema.most_rows, names)
    fields = {n: v.reshape(people, schema.most_rows, *v.shape[1:]) for n, v in columns.items()}
    number = rng.integers(1, schema.most_rows, people, endpoint=True)
    return Units(fields, np.arange(schema.most_rows) < number[:, None])


def dummy_rows(model: UnitModel, schema: Schema, units: int) -> Rows:
    """Made-up rows of the shapes that the data will have."""
    columns = schema.made_up(units, names=model_columns(model, schema))
    if schema.most_rows is None:
        return Rows(columns)
    return Rows.by_person(columns, np.arange(units), schema.most_rows)


_NUM_PROBE_ROWS = 200  # made-up rows


@lru_cache(maxsize=32)
def gradient_norms(model: UnitModel, schema: Schema) -> NDArray[np.floating]:
    """Lengths of the gradients of made-up units with one row each, at the start of a fit."""
    rows = schema.made_up(_NUM_PROBE_ROWS, names=model_columns(model, schema))
    theta = 0.1 * jax.random.normal(jax.random.key(0), (model.dimension,))

    @jax.jit
    @jax.vmap
    def length(row: Row) -> jax.Array:
        def density(theta: jax.Array) -> jax.Array:
            if not model.whole_units:
                return model.row_density(theta, row, model.constants)
            alone = jax.tree.map(lambda leaf: leaf[None], row)
            return model.unit_density(theta, alone, jnp.ones(1, jnp.bool_), model.constants)

        return jnp.asarray(jnp.linalg.norm(jax.grad(density)(theta)))

    return np.asarray(length(rows))

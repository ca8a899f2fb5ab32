"""Lengths of gradients on made-up rows, to compare with a clip."""

from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tacit.data.schema import Schema
from tacit.interfaces.rows import columns_of
from tacit.models.base import AnyModel, Row

_TRIED = 200  # made-up rows


@lru_cache(maxsize=32)
def gradient_lengths(model: AnyModel, schema: Schema) -> NDArray[np.floating]:
    """Lengths of the gradients of made-up units with one row each, at the start of a fit."""
    rows = schema.made_up(_TRIED, names=columns_of(model, schema))
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

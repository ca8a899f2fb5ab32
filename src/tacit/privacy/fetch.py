"""Bringing sampled units from memory to the steps that use them."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def take(fields: Any, indices: jax.Array) -> Any:
    """The units at these places."""

    def of(leaf: jax.Array) -> jax.Array:
        return leaf.at[indices].get(mode="promise_in_bounds", wrap_negative_indices=False)

    return jax.tree.map(of, fields)


def held(fields: Any, batch: Any) -> Any:
    """The units themselves, where they were fetched on the host."""
    del fields
    return batch


def scan(
    advance: Callable[[Any, Any], Any],
    take: Callable[[Any, Any], Any],
    fields: Any,
    states: Any,
    xs: tuple[Any, ...],
) -> tuple[Any, Any]:
    """Steps in turn, each with its batch in a buffer that has one place more: of zeros, for nobody.

    A fetch that stands alone is spread over threads however small it is, and a thread that was
    woken stays awake for a while. One that writes into a part of something larger is not.
    """
    width = xs[1].ndim - 2

    def room(leaf: Any) -> jax.Array:
        return jnp.zeros([n + (axis == width) for axis, n in enumerate(leaf.shape)], leaf.dtype)

    def fill(held: jax.Array, batch: jax.Array) -> jax.Array:
        return jax.lax.dynamic_update_slice(held, batch, [0] * held.ndim)

    def following(carry: Any, x: Any) -> Any:
        states, held = carry
        indices, *rest = x
        held = jax.tree.map(fill, held, take(fields, indices))
        states, out = advance(states, (held, *rest))
        return (states, held), out

    first = jax.tree.map(lambda leaf: leaf[0], xs[0])
    held = jax.tree.map(room, jax.eval_shape(take, fields, first))
    (states, _), out = jax.lax.scan(following, (states, held), xs)
    return states, out


def stack(leaves: Sequence[Any]) -> jax.Array:
    """Rows of several gates, padded to one length; the padding is never sampled."""
    hosts = {id(leaf): np.asarray(leaf) for leaf in leaves}  # gates may share rows
    longest, first = max(len(leaf) for leaf in leaves), hosts[id(leaves[0])]
    stacked = np.zeros((len(leaves), longest, *first.shape[1:]), first.dtype)
    for place, leaf in zip(stacked, leaves, strict=True):
        place[: len(leaf)] = hosts[id(leaf)]
    return jnp.asarray(stacked)


def widen(values: Any, width: int) -> Any:
    """Batches padded to a common width."""
    if values.shape[1] == width:
        return values
    return np.pad(values, [(0, 0), (0, width - values.shape[1])])


def side_by_side(values: Sequence[Any]) -> Any:
    """What several gates get in the same steps; copied only if there are several."""
    return values[0][:, None] if len(values) == 1 else np.stack(values, axis=1)

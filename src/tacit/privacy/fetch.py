"""Bringing sampled units from memory to the steps that use them."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

# Bytes of batches fetched together: what stays in a core's cache until it is used.
_FETCH = 2**20


def take(fields: Any, indices: jax.Array) -> Any:
    """The units at these places."""
    return jax.tree.map(lambda leaf: leaf.at[indices].get(mode="promise_in_bounds"), fields)


def scan(
    advance: Callable[[Any, Any], Any],
    take: Callable[[Any, Any], Any],
    fields: Any,
    states: Any,
    xs: tuple[Any, ...],
) -> tuple[Any, Any]:
    """Steps in turn, whose batches are fetched several at a time.

    A fetch is spread over threads however small it is, and a thread that was woken stays
    awake for a while; so a fetch for every step would keep all of them busy waiting.
    """
    steps = len(xs[0])
    batch = jax.eval_shape(take, fields, xs[0][:1])
    size = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(batch))
    together = max(
        n for n in range(1, steps + 1) if steps % n == 0 and n * size <= max(_FETCH, size)
    )

    def several(states: Any, x: Any) -> Any:
        indices, *rest = x
        return jax.lax.scan(advance, states, (take(fields, indices), *rest))

    grouped = jax.tree.map(lambda leaf: leaf.reshape(-1, together, *leaf.shape[1:]), xs)
    states, out = jax.lax.scan(several, states, grouped)
    return states, jax.tree.map(lambda leaf: leaf.reshape(steps, *leaf.shape[2:]), out)


def stack(leaves: Sequence[Any]) -> jax.Array:
    """Rows of several gates, padded to one length; the padding is never sampled."""
    longest = max(len(leaf) for leaf in leaves)
    padded = [
        np.pad(leaf, [(0, longest - len(leaf))] + [(0, 0)] * (leaf.ndim - 1)) for leaf in leaves
    ]
    return jnp.asarray(np.stack(padded))


def widen(values: Any, width: int) -> Any:
    """Batches padded to a common width."""
    if values.shape[1] == width:
        return values
    return np.pad(values, [(0, 0), (0, width - values.shape[1])])

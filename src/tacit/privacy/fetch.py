"""Bringing sampled units from memory to the steps that use them."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from tacit.privacy.units import Units


def take(units: Units, places: jax.Array) -> Units:
    """The units at these places."""

    def of(leaf: jax.Array) -> jax.Array:
        return leaf.at[places].get(mode="promise_in_bounds", wrap_negative_indices=False)

    taken: Units = jax.tree.map(of, units)
    return taken


def scan(
    advance: Callable[[Any, Any, Any], Any],
    bring: Callable[[Any], Any],
    state: Any,
    inputs: Any,
) -> tuple[Any, Any]:
    """Steps in turn, each with its units in a buffer that has one place more: of zeros, for nobody.

    A fetch that stands by itself is spread over threads however small it is, and a thread that was
    woken stays awake for a while. One that writes into a part of something larger is not.
    """

    def room(leaf: jax.ShapeDtypeStruct) -> jax.Array:
        return jnp.zeros((leaf.shape[0] + 1, *leaf.shape[1:]), leaf.dtype)

    def fill(buffer: jax.Array, units: jax.Array) -> jax.Array:
        return jax.lax.dynamic_update_slice(buffer, units, [0] * buffer.ndim)

    def following(carry: Any, inputs: Any) -> Any:
        state, buffer = carry
        buffer = jax.tree.map(fill, buffer, bring(inputs.whom))
        state, out = advance(state, buffer, inputs)
        return (state, buffer), out

    first = jax.tree.map(lambda leaf: leaf[0], inputs.whom)
    buffer = jax.tree.map(room, jax.eval_shape(bring, first))
    (state, _), out = jax.lax.scan(following, (state, buffer), inputs)
    return state, out

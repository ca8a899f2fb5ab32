"""Hamiltonian Monte Carlo for many short chains side by side, on densities without data."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

# Leapfrog steps of a proposal, and the share of proposals to accept.
_LEAPS, _ACCEPTED = 12, 0.8


class Chains(NamedTuple):
    """Where each chain is, and the step size that all share."""

    place: jax.Array
    step: jax.Array


@partial(jax.jit, static_argnames=("density", "rounds"))
def last_of_chains(
    density: Callable[[jax.Array, Any, Any], jax.Array],
    given: Any,
    shared: Any,
    starts: jax.Array,
    roots: jax.Array,
    key: jax.Array,
    rounds: int = 100,
) -> jax.Array:
    """Where chains end that start at ``starts``, one draw of each.

    ``density(place, given, shared)`` is the log density of one chain, ``given`` having a leading
    axis for chains. ``roots`` are matrices that make each chain's density about round. The step
    size is adapted in the first half, to all chains together.
    """

    def log_density(round_place: jax.Array, root: jax.Array, start: jax.Array, own: Any) -> Any:
        value = density(start + root @ round_place, own, shared)
        return jnp.where(jnp.isfinite(value), value, -1e30)

    slope = jax.value_and_grad(log_density)

    def propose(
        place: jax.Array,
        momentum: jax.Array,
        step: jax.Array,
        root: jax.Array,
        start: jax.Array,
        own: Any,
    ) -> Any:
        value, gradient = slope(place, root, start, own)
        before = value - 0.5 * momentum @ momentum

        def leap(_: Any, at: Any) -> Any:
            place, momentum, gradient, _ = at
            momentum = momentum + 0.5 * step * gradient
            place = place + step * momentum
            value, gradient = slope(place, root, start, own)
            return place, momentum + 0.5 * step * gradient, gradient, value

        moved, momentum, _, value = jax.lax.fori_loop(
            0, _LEAPS, leap, (place, momentum, gradient, value)
        )
        gain = value - 0.5 * momentum @ momentum - before
        return moved, jnp.where(jnp.isfinite(gain), gain, -jnp.inf)

    def turn(chains: Chains, x: Any) -> Any:
        index, key = x
        for_momentum, for_test, for_step = jax.random.split(key, 3)
        momentum = jax.random.normal(for_momentum, chains.place.shape)
        # Every fourth round takes small steps, for chains that began where the density is steep.
        small = index % 4 == 1
        step = chains.step * jax.random.uniform(for_step, minval=0.6, maxval=1.2)
        step = step * jnp.where(small, 0.1, 1.0)
        moved, gain = jax.vmap(propose, in_axes=(0, 0, None, 0, 0, 0))(
            chains.place, momentum, step, roots, starts, given
        )
        accept = jnp.log(jax.random.uniform(for_test, gain.shape)) < gain
        share = jnp.minimum(1.0, jnp.exp(gain)).mean()
        changed = chains.step * jnp.exp(0.5 * (share - _ACCEPTED) / (1 + index / 5) ** 0.5)
        place = jnp.where(accept[:, None], moved, chains.place)
        adapt = (index < rounds // 2) & ~small
        return Chains(place, jnp.where(adapt, changed, chains.step)), None

    first = Chains(jnp.zeros_like(starts), jnp.asarray(0.2, starts.dtype))
    chains, _ = jax.lax.scan(turn, first, (jnp.arange(rounds), jax.random.split(key, rounds)))
    return starts + jnp.einsum("cij,cj->ci", roots, chains.place)

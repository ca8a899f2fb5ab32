"""Elliptical slice sampling (Murray, Adams and MacKay 2010), without data.

The target is a standard normal density times a likelihood. A step needs no step size, is never rejected,
and may have a likelihood of zero in places.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

LogLikelihood = Callable[[jax.Array], jax.Array]
# Angles that are tried in a step; if none will do, the chain stays where it is.
_MOST = 60


class _Search(NamedTuple):
    """An angle on the ellipse, the bracket that it was drawn from, and what is there."""

    angle: jax.Array
    low: jax.Array
    high: jax.Array
    value: jax.Array
    key: jax.Array
    tries: jax.Array


class Slices(NamedTuple):
    """Several chains: how many, stops that are thrown away, then kept ones, and steps for each."""

    chains: int
    burn_in: int
    kept: int
    sweeps: int

    def run(self, log_likelihood: LogLikelihood, start: jax.Array, key: jax.Array) -> jax.Array:
        """The places [chains, kept, dimension] of chains that begin at the same place.

        The first step of each goes to any place of its ellipse whose likelihood is not zero.
        """
        lowest = jnp.full((), np.finfo(start.dtype).min / 2, start.dtype)

        def step(state: Any, key: jax.Array) -> tuple[Any, None]:
            return moved(log_likelihood, state[0], state[1], key), None

        def stop(state: Any, key: jax.Array) -> tuple[Any, jax.Array]:
            keys = jax.random.split(key, self.sweeps)
            state = jax.lax.scan(step, state, keys)[0]
            return state, state[0]

        def chain(key: jax.Array) -> jax.Array:
            keys = jax.random.split(key, self.burn_in + self.kept)
            places = jax.lax.scan(stop, (start, lowest), keys)[1]
            return places[self.burn_in :]

        return jax.vmap(chain)(jax.random.split(key, self.chains))


def moved(
    log_likelihood: LogLikelihood, place: jax.Array, value: jax.Array, key: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The next place of a chain, and the log-likelihood there."""
    for_normals, for_numbers, later = jax.random.split(key, 3)
    other = jax.random.normal(for_normals, place.shape, place.dtype)
    first, second = jax.random.uniform(for_numbers, (2,), place.dtype)
    least, angle = value + jnp.log(first), 2 * jnp.pi * second

    def there(angle: jax.Array) -> jax.Array:
        return place * jnp.cos(angle) + other * jnp.sin(angle)

    def tried(now: _Search) -> _Search:  # the next angle is drawn where the likelihood is evaluated
        key, use = jax.random.split(now.key)
        low = jnp.where(now.angle < 0, now.angle, now.low)
        high = jnp.where(now.angle < 0, now.high, now.angle)
        drawn = low + (high - low) * jax.random.uniform(use, (), place.dtype)
        angle = jnp.where(now.tries == 0, now.angle, drawn)
        return _Search(angle, low, high, log_likelihood(there(angle)), key, now.tries + 1)

    none = jnp.full_like(least, -jnp.inf)
    begin = _Search(angle, angle - 2 * jnp.pi, angle, none, later, jnp.zeros((), int))
    found = jax.lax.while_loop(lambda s: (s.value < least) & (s.tries < _MOST), tried, begin)
    good = found.value >= least
    return jnp.where(good, there(found.angle), place), jnp.where(good, found.value, value)

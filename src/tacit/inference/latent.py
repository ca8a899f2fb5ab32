"""The posterior of parameters given a noisy sum, where true sums are whole numbers.

The true totals are unknown: whole numbers whose probability under the model is known in
closed form, seen through noise of a known law. A chain over them alone, the parameters
integrated out, is exact but for its length; parameters are drawn at its stops.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from tacit.models.counts import CountModel

# Steps of the chain are from a fifth of the noise's size to four times it.
_SHORTEST, _LONGEST = 0.2, 4.0


class Noise(NamedTuple):
    """The law of the noise in every number of a release. ``scale`` is a normal's sd."""

    scale: Any
    laplace: bool

    def log_density(self, noise: jax.Array) -> jax.Array:
        """Log density of independent draws, up to a constant."""
        scaled = jnp.abs(noise) / self.scale
        return -jnp.sum(scaled if self.laplace else scaled**2 / 2)

    @property
    def sd(self) -> Any:
        """Standard deviation of one draw."""
        return self.scale * (2**0.5 if self.laplace else 1.0)


class Length(NamedTuple):
    """How long a chain is: stops that are thrown away, then kept ones, and sweeps for each."""

    burn_in: int
    kept: int
    sweeps: int

    def run(self, stop: Callable[[Any, jax.Array], Any], state: Any, key: jax.Array) -> Any:
        """What ``stop(state, key)`` draws at the kept stops of a chain that begins at a state."""
        keys = jax.random.split(key, self.burn_in + self.kept)
        draws = jax.lax.scan(stop, state, keys)[1]
        return jax.tree.map(lambda each: each[self.burn_in :], draws)


@partial(jax.jit, static_argnames=("model", "laplace", "size", "length"))
def counting_chain(
    model: CountModel,
    seen: jax.Array,
    scale: jax.Array,
    key: jax.Array,
    *,
    laplace: bool,
    size: int | None,
    length: Length,
) -> Any:
    """Draws [kept, ...] of the parameters, by what was released."""
    noise = Noise(scale, laplace)
    ways = jnp.asarray(model.directions(size_known=size is not None), seen.dtype)
    spans = jax.vmap(lambda way: jnp.linalg.norm(model.released(way)))(ways)
    reach = noise.sd / spans  # how far along each way the noise would carry

    def density(totals: jax.Array) -> jax.Array:
        return model.log_evidence(totals) + noise.log_density(seen - model.released(totals))

    def move(key: jax.Array, totals: jax.Array) -> jax.Array:
        """Tries a step of random length along every way in turn."""

        def along(totals: jax.Array, given: Any) -> Any:
            normal, (scale, sign, test), way, far = given
            # Of random scale, so that one is about right wherever the chain is.
            step = _SHORTEST * (_LONGEST / _SHORTEST) ** scale * far * jnp.abs(normal)
            steps = jnp.maximum(jnp.rint(step), 1.0)
            there = totals + way * jnp.where(sign < 0.5, steps, -steps)
            gain = density(there) - density(totals)
            return jnp.where(jnp.log(test) < gain, there, totals), None

        for_normals, for_uniforms = jax.random.split(key)
        normals = jax.random.normal(for_normals, (len(ways),), seen.dtype)
        uniforms = jax.random.uniform(for_uniforms, (len(ways), 3), seen.dtype)
        return jax.lax.scan(along, totals, (normals, uniforms, ways, reach))[0]

    def stop(totals: jax.Array, key: jax.Array) -> Any:
        key, last = jax.random.split(key)
        keys = jax.random.split(key, length.sweeps)
        totals = jax.lax.scan(lambda at, key: (move(key, at), None), totals, keys)[0]
        return totals, model.conjugate_draw(last, totals)

    return length.run(stop, model.totals(seen, size), key)


@partial(jax.jit, static_argnames=("model", "size", "kept"))
def counting_draws(
    model: CountModel, seen: jax.Array, key: jax.Array, *, size: int | None, kept: int
) -> Any:
    """Draws as if what was released were exact, but for what no rows could add up to."""
    totals = model.totals(seen, size)
    return jax.vmap(lambda key: model.conjugate_draw(key, totals))(jax.random.split(key, kept))

"""The posterior of a linear model given noisy sums of products, by Gibbs sampling.

The true sums are unknown, and seen through the noise. A sweep draws them given parameters,
and parameters given them (Bernstein and Sheldon 2018, 2019). Where noise is large, that takes
short steps: sums stay near what the parameters say, and parameters near what the sums say. So
a second move shifts both together.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve, solve_triangular

from tacit.inference.latent import Length, Noise
from tacit.inference.moments import (
    LinearSetting,
    Theta,
    conjugate_draw,
    conjugate_normals,
    log_prior,
    moments,
    nearest,
    possible,
    somewhere,
)
from tacit.models.linear import Linear

# The second move's steps, and how many are tried in a sweep.
_SHORTEST, _LONGEST, _SHIFTS = 0.005, 1.0, 4


class _ChainState(NamedTuple):
    """Where a chain is. The moments are those of the parameters."""

    theta: Theta
    mean: jax.Array
    factor: jax.Array
    rows: jax.Array
    sums: jax.Array


@partial(jax.jit, static_argnames=("model", "laplace", "size", "length"))
def linear_chain(
    model: Linear,
    seen: jax.Array,
    scale: jax.Array,
    key: jax.Array,
    *,
    laplace: bool,
    size: int | None,
    length: Length,
) -> Any:
    """Draws [kept, ...] of scaled weights and variances, by what was released."""
    noise = Noise(scale, laplace)
    setting = LinearSetting(model.scaled_prior(), model.products, seen, noise, size)
    return _chain(setting, key, length)


@partial(jax.jit, static_argnames=("model", "size", "kept"))
def linear_draws(
    model: Linear, seen: jax.Array, key: jax.Array, *, size: int | None, kept: int
) -> Any:
    """Draws as if what was released were exact, but for what no rows could add up to."""
    setting = LinearSetting(model.scaled_prior(), model.products, seen, Noise(0.0, False), size)
    sums = nearest(setting)[1]

    def draw(key: jax.Array, normals: jax.Array) -> Any:
        theta = conjugate_draw(setting, key, normals, sums)
        return theta.weights, jnp.exp(theta.log_variance)

    first, second = jax.random.split(key)
    normals = jax.random.normal(first, (kept, conjugate_normals(setting)), sums.dtype)
    return jax.vmap(draw)(jax.random.split(second, kept), normals)


def _chain(setting: LinearSetting, key: jax.Array, length: Length) -> Any:
    def sweep(state: _ChainState, key: jax.Array) -> tuple[_ChainState, None]:
        luck = _luck(setting, key)
        rows, sums = _new_sums(setting, luck, _shifted(setting, luck, state))
        theta = conjugate_draw(setting, luck.key, luck.for_theta, sums)
        return _ChainState(theta, *moments(setting, theta), rows, sums), None

    def stop(state: _ChainState, key: jax.Array) -> Any:
        state, _ = jax.lax.scan(sweep, state, jax.random.split(key, length.sweeps))
        return state, (state.theta.weights, jnp.exp(state.theta.log_variance))

    start = somewhere(setting)
    state = _ChainState(start, *moments(setting, start), *nearest(setting))
    return length.run(stop, state, key)


class _Luck(NamedTuple):
    """All that is random in a sweep, drawn at once: it compiles much faster."""

    key: jax.Array
    for_theta: jax.Array
    for_sums: tuple[jax.Array, jax.Array]
    for_shifts: tuple[jax.Array, jax.Array]


def _luck(setting: LinearSetting, key: jax.Array) -> _Luck:
    keys, dtype, size = jax.random.split(key, 3), setting.seen.dtype, len(setting.pairs)
    free = _free(setting)
    ends = [3 * size, 3 * size + _SHIFTS * free]
    total = ends[1] + conjugate_normals(setting)
    normals = jnp.split(jax.random.normal(keys[0], (total,), dtype), ends)
    many = 2 * size + _SHIFTS * (free + 2)
    uniforms = jnp.split(jax.random.uniform(keys[1], (many,), dtype), [2 * size])
    return _Luck(
        keys[2],
        normals[2],
        (normals[0].reshape(3, size), uniforms[0].reshape(2, size)),
        (normals[1].reshape(_SHIFTS, free), uniforms[1].reshape(_SHIFTS, free + 2)),
    )


def _free(setting: LinearSetting) -> int:
    """How many numbers a shift may move."""
    count = setting.entries - 2
    return 2 * count + 2 + count * count


def _new_sums(
    setting: LinearSetting, luck: _Luck, state: _ChainState
) -> tuple[jax.Array, jax.Array]:
    """A number of rows and sums, given parameters and what was seen."""
    normals, uniforms = luck.for_sums
    variances = _variances(setting, state.sums, normals[0], uniforms[0])
    rows, mean, factor = state.rows, state.mean[1:], state.factor
    covariance = factor @ factor.T
    if setting.size is None:
        rows = _new_rows(setting, state, covariance, variances, normals[1, 0], uniforms[1])
    # A draw without looking, then moved by what looking says (Matheron's rule).
    blind = rows * mean + jnp.sqrt(rows) * factor @ normals[1, 1:]
    noise = jnp.sqrt(variances[1:]) * normals[2, 1:]
    both = jnp.linalg.cholesky(rows * covariance + jnp.diag(variances[1:]))
    missed = setting.seen[1:] - blind - noise
    sums = jnp.append(rows, blind + rows * covariance @ cho_solve((both, True), missed))
    kept = possible(setting, sums)
    return jnp.where(kept, rows, state.rows), jnp.where(kept, sums, state.sums)


def _variances(
    setting: LinearSetting, sums: jax.Array, normals: jax.Array, uniforms: jax.Array
) -> jax.Array:
    """Variances of the noise: a Laplace draw is a normal one of random variance."""
    noise, left = setting.noise, jnp.abs(setting.seen - sums)
    if not noise.laplace:
        return jnp.full_like(sums, noise.scale**2)
    # One over the variance is inverse Gaussian (Park and Casella 2008).
    mean = 1 / jnp.maximum(left / noise.scale, 1e-10)
    precision = jnp.maximum(_inverse_gaussian(mean, normals, uniforms), 1e-12)
    return jnp.asarray(noise.scale**2 / precision)


def _inverse_gaussian(mean: jax.Array, normals: jax.Array, uniforms: jax.Array) -> jax.Array:
    """With shape 1, by the smaller root, without cancellation (Michael et al. 1976)."""
    half = mean * normals**2 / 2
    smaller = mean / (1 + half + jnp.sqrt(half * (2 + half)))
    return jnp.where(uniforms * (mean + smaller) <= mean, smaller, mean**2 / smaller)


def _new_rows(
    setting: LinearSetting,
    state: _ChainState,
    covariance: jax.Array,
    variances: jax.Array,
    normal: jax.Array,
    uniforms: jax.Array,
) -> jax.Array:
    """One step of a chain over the number of rows, with the sums integrated out."""

    def density(rows: jax.Array) -> jax.Array:
        missed = setting.seen - rows * state.mean
        both = jnp.linalg.cholesky(rows * covariance + jnp.diag(variances[1:]))
        scaled = solve_triangular(both, missed[1:], lower=True)
        value = -scaled @ scaled / 2 - jnp.log(jnp.diag(both)).sum()
        return value - missed[0] ** 2 / (2 * variances[0])

    steps = jnp.maximum(jnp.rint(jnp.abs(2 * setting.noise.sd * normal)), 1.0)
    there = state.rows + jnp.where(uniforms[0] < 0.5, steps, -steps)
    here, moved = jax.vmap(density)(jnp.stack([state.rows, jnp.maximum(there, 0.0)]))
    accepted = (jnp.log(uniforms[1]) < moved - here) & (there >= 0)
    return jnp.where(accepted, there, state.rows)


def _shifted(setting: LinearSetting, luck: _Luck, state: _ChainState) -> _ChainState:
    """Moves parameters, and sums with them: what stays is the sums in units of their spread."""
    centred = state.sums[1:] - state.rows * state.mean[1:]
    held = solve_triangular(state.factor, centred, lower=True)

    def attempt(state: _ChainState, given: Any) -> tuple[_ChainState, None]:
        normals, uniforms = given
        theta = _perturbed(setting, state.theta, normals, uniforms[1:])
        mean, factor = moments(setting, theta)
        sums = jnp.append(state.rows, state.rows * mean[1:] + factor @ held)
        gain = log_prior(setting, theta) - log_prior(setting, state.theta)
        gain += setting.noise.log_density(setting.seen - sums)
        gain -= setting.noise.log_density(setting.seen - state.sums)
        accepted = (jnp.log(uniforms[0]) < gain) & possible(setting, sums)
        moved = _ChainState(theta, mean, factor, state.rows, sums)
        return jax.tree.map(partial(jnp.where, accepted), moved, state), None

    return jax.lax.scan(attempt, state, luck.for_shifts)[0]


def _perturbed(
    setting: LinearSetting, theta: Theta, normals: jax.Array, uniforms: jax.Array
) -> Theta:
    """Some of the parameters moved, by steps of random scale."""
    count = setting.entries - 2
    scale = _SHORTEST * (_LONGEST / _SHORTEST) ** uniforms[0]
    step = jnp.where(uniforms[1:] < 0.5, scale * normals, 0.0)
    weights, variance, centre, factor = jnp.split(step, [count + 1, count + 2, 2 * count + 2])
    square = factor.reshape(count, count)
    diagonal = jnp.diag(jnp.diag(theta.factor) * jnp.exp(jnp.diag(square)))
    known = setting.prior.variance is not None
    return Theta(
        theta.weights + weights,
        theta.log_variance + (0.0 if known else variance[0]),
        theta.centre + centre,
        jnp.tril(theta.factor + square, -1) + diagonal,
    )

"""The posterior of a linear model given noisy sums of products, by Gibbs sampling.

The true sums are unknown. Given parameters and the number of rows they are about normal, by
the central limit theorem, with moments that follow from the parameters; they are seen
through the noise; and given them the parameters have their conjugate posterior (Bernstein and
Sheldon 2018, 2019). Predictors are taken to be jointly normal, with a mean and a covariance
that are unknown too: their fourth moments are what the sums of their products vary by.

Where noise is large, that chain takes short steps: sums stay near what the parameters say,
and parameters near what the sums say. A second move shifts both together.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve, solve_triangular

from tacit.inference.latent import Length, Noise
from tacit.models.linear import Linear, LinearPrior

# The prior of predictors scaled to [-1, 1]: their mean is worth a tenth of a row, their
# covariance as little as it can be, around a standard deviation of .4.
_MEAN_ROWS, _VARIANCE = 0.1, 0.16
# The second move's steps, and how many are tried in a sweep.
_SHORTEST, _LONGEST, _SHIFTS = 0.005, 1.0, 4


class _Theta(NamedTuple):
    """Weights, the noise's log variance, and mean and covariance (by a factor) of predictors."""

    weights: jax.Array
    log_variance: jax.Array
    centre: jax.Array
    factor: jax.Array


class _State(NamedTuple):
    theta: _Theta
    rows: jax.Array
    sums: jax.Array


class _Setting(NamedTuple):
    """What a chain is about: all of it public or released."""

    prior: LinearPrior
    pairs: tuple[tuple[int, int], ...]
    seen: jax.Array
    noise: Noise
    size: int | None

    @property
    def index(self) -> tuple[jax.Array, jax.Array]:
        first, second = zip(*self.pairs, strict=True)
        return jnp.array(first), jnp.array(second)

    @property
    def entries(self) -> int:
        """The length of v = (1, predictors, outcome)."""
        return len(self.prior.mean) + 1


@partial(jax.jit, static_argnames=("model", "laplace", "size", "length"))
def linear_chains(
    model: Linear,
    released: jax.Array,
    scales: jax.Array,
    keys: jax.Array,
    *,
    laplace: bool,
    size: int | None,
    length: Length,
) -> Any:
    """Draws [releases, kept, ...] of scaled weights and variances, for each of several releases."""

    def one(seen: jax.Array, scale: jax.Array, key: jax.Array) -> Any:
        noise = Noise(scale, laplace)
        setting = _Setting(model.scaled_prior(), model.products, seen, noise, size)
        return _chain(setting, key, length)

    return jax.vmap(one)(released, scales, keys)


@partial(jax.jit, static_argnames=("model", "size", "kept"))
def linear_draws(
    model: Linear, released: jax.Array, keys: jax.Array, *, size: int | None, kept: int
) -> Any:
    """Draws as if what was released were exact, but for what no rows could add up to."""

    def one(seen: jax.Array, key: jax.Array) -> Any:
        setting = _Setting(model.scaled_prior(), model.products, seen, Noise(0.0, False), size)
        sums = _nearest(setting)[1]

        def draw(key: jax.Array) -> Any:
            weights, log_variance = _weights(setting, key, _matrix(setting, sums))
            return weights, jnp.exp(log_variance)

        return jax.vmap(draw)(jax.random.split(key, kept))

    return jax.vmap(one)(released, keys)


def _chain(setting: _Setting, key: jax.Array, length: Length) -> Any:
    first, key = jax.random.split(key)
    rows, sums = _nearest(setting)
    state = _State(_conjugate(setting, first, sums), rows, sums)

    def sweep(state: _State, key: jax.Array) -> tuple[_State, None]:
        for_shifts, for_sums, for_theta = jax.random.split(key, 3)
        state = _shifted(setting, for_shifts, state)
        state = _new_sums(setting, for_sums, state)
        return state._replace(theta=_conjugate(setting, for_theta, state.sums)), None

    def stop(state: _State, key: jax.Array) -> Any:
        state, _ = jax.lax.scan(sweep, state, jax.random.split(key, length.sweeps))
        return state, (state.theta.weights, jnp.exp(state.theta.log_variance))

    keys = jax.random.split(key, length.burn_in + length.kept)
    draws = jax.lax.scan(stop, state, keys)[1]
    return jax.tree.map(lambda each: each[length.burn_in :], draws)


def _matrix(setting: _Setting, sums: jax.Array) -> jax.Array:
    """The sum of v v', from its products; zero where the outcome's square was not released."""
    first, second = setting.index
    empty = jnp.zeros((setting.entries, setting.entries), sums.dtype)
    return empty.at[first, second].set(sums).at[second, first].set(sums)


def _possible(setting: _Setting, sums: jax.Array) -> jax.Array:
    """Whether rows could add up to this: a sum of v v' has no negative eigenvalue."""
    matrix = _matrix(setting, sums)
    if setting.prior.variance is not None:
        matrix = matrix[:-1, :-1]
    slack = 1e-9 * (1 + jnp.abs(sums[0])) * jnp.eye(len(matrix))
    return jnp.isfinite(jnp.linalg.cholesky(matrix + slack)).all()


def _nearest(setting: _Setting) -> tuple[jax.Array, jax.Array]:
    """Sums near those released that rows could have, and how many rows."""
    seen = setting.seen
    rows = jnp.maximum(jnp.rint(seen[0]), 0.0) if setting.size is None else setting.size * 1.0
    sums = jnp.clip(seen.at[0].set(rows), -rows, rows)
    matrix = _matrix(setting, sums)
    last = setting.entries - 1
    if setting.prior.variance is not None:  # as large as can be
        matrix = matrix.at[last, last].set(rows)
    values, vectors = jnp.linalg.eigh(matrix)
    inside = (vectors * jnp.maximum(values, 0.0)) @ vectors.T
    # Back to the number of rows, which the line before may have raised.
    shrunk = inside * jnp.where(inside[0, 0] > 0, rows / jnp.maximum(inside[0, 0], 1e-300), 0.0)
    return jnp.asarray(rows), shrunk[setting.index]


def _conjugate(setting: _Setting, key: jax.Array, sums: jax.Array) -> _Theta:
    """A draw of the parameters given the true sums."""
    for_weights, for_predictors = jax.random.split(key)
    matrix = _matrix(setting, sums)
    weights, log_variance = _weights(setting, for_weights, matrix)
    return _Theta(weights, log_variance, *_predictors(setting, for_predictors, matrix))


def _weights(
    setting: _Setting, key: jax.Array, matrix: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Weights and log variance: normal and inverse gamma, or the known one."""
    prior, for_variance, for_weights = setting.prior, *jax.random.split(key)
    squares, products, outcome = matrix[:-1, :-1], matrix[:-1, -1], matrix[-1, -1]
    ahead = prior.precision @ prior.mean
    factor = jnp.linalg.cholesky(squares + prior.precision)
    mean = cho_solve((factor, True), products + ahead)
    if prior.variance is not None:
        variance = jnp.asarray(prior.variance, matrix.dtype)
    else:
        left = outcome + prior.mean @ ahead - mean @ (products + ahead)
        shape = prior.shape + matrix[0, 0] / 2
        drawn = jax.random.gamma(for_variance, shape, dtype=matrix.dtype)
        variance = (prior.scale + jnp.maximum(left, 0.0) / 2) / drawn
    normal = jax.random.normal(for_weights, mean.shape, matrix.dtype)
    spread = solve_triangular(factor, normal, lower=True, trans=1)
    return mean + jnp.sqrt(variance) * spread, jnp.log(variance)


def _predictors(
    setting: _Setting, key: jax.Array, matrix: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Mean and covariance of predictors: normal and inverse Wishart."""
    count = setting.entries - 2
    if count == 0:
        return jnp.zeros(0, matrix.dtype), jnp.zeros((0, 0), matrix.dtype)
    keys = jax.random.split(key, 3)
    rows, totals, squares = matrix[0, 0], matrix[0, 1:-1], matrix[1:-1, 1:-1]
    weight = rows + _MEAN_ROWS
    scale = squares - jnp.outer(totals, totals) / weight + _VARIANCE * jnp.eye(count)
    # Bartlett: the inverse of the covariance is L A A' L' with L L' the inverse of the scale.
    degrees = rows + count + 2 - jnp.arange(count)
    chi = jnp.sqrt(2 * jax.random.gamma(keys[0], degrees / 2, dtype=matrix.dtype))
    below = jnp.tril(jax.random.normal(keys[1], (count, count), matrix.dtype), -1)
    root = jnp.linalg.cholesky(scale)
    part = solve_triangular(below + jnp.diag(chi), root.T, lower=True)
    factor = jnp.linalg.cholesky(part.T @ part)
    normal = jax.random.normal(keys[2], (count,), matrix.dtype)
    return totals / weight + factor @ normal / jnp.sqrt(weight), factor


def _moments(setting: _Setting, theta: _Theta) -> tuple[jax.Array, jax.Array]:
    """Mean of a row's products, and a factor of their covariance, without the number of rows.

    Of normal v, by Isserlis' theorem.
    """
    slopes, covariance = theta.weights[1:], theta.factor @ theta.factor.T
    outcome = theta.weights[0] + slopes @ theta.centre
    mean = jnp.concatenate([jnp.ones(1), theta.centre, outcome[None]])
    crossed = covariance @ slopes
    variance = slopes @ crossed + jnp.exp(theta.log_variance)
    whole = jnp.block([[covariance, crossed[:, None]], [crossed[None], variance[None, None]]])
    spread = jnp.pad(whole, ((1, 0), (1, 0)))
    i, j = setting.index
    first, second = (i[1:, None], j[1:, None]), (i[None, 1:], j[None, 1:])
    total = jnp.zeros((len(setting.pairs) - 1,) * 2, mean.dtype)
    for a, b in (first, first[::-1]):
        for c, d in (second, second[::-1]):
            total += spread[a, c] * (spread[b, d] / 2 + mean[b] * mean[d])
    tiny = 1e-12 * jnp.diag(jnp.diag(total) + 1e-12)
    products = jnp.outer(mean, mean) + spread
    return products[i, j], jnp.linalg.cholesky(total + tiny)


def _new_sums(setting: _Setting, key: jax.Array, state: _State) -> _State:
    """A number of rows and sums, given parameters and what was seen."""
    keys = jax.random.split(key, 5)
    variances = _variances(setting, keys[0], state.sums)
    mean, factor = _moments(setting, state.theta)
    rows = state.rows
    if setting.size is None:
        rows = _new_rows(setting, keys[1], rows, mean, factor, variances)
    # A draw without looking, then moved by what looking says (Matheron's rule).
    blind = rows * mean[1:] + jnp.sqrt(rows) * factor @ jax.random.normal(
        keys[2], (len(factor),), mean.dtype
    )
    noise = jnp.sqrt(variances[1:]) * jax.random.normal(keys[3], (len(factor),), mean.dtype)
    covariance = rows * factor @ factor.T
    both = jnp.linalg.cholesky(covariance + jnp.diag(variances[1:]))
    missed = setting.seen[1:] - blind - noise
    sums = jnp.append(rows, blind + covariance @ cho_solve((both, True), missed))
    kept = _possible(setting, sums)
    return state._replace(
        rows=jnp.where(kept, rows, state.rows), sums=jnp.where(kept, sums, state.sums)
    )


def _variances(setting: _Setting, key: jax.Array, sums: jax.Array) -> jax.Array:
    """Variances of the noise: a Laplace draw is a normal one of random variance."""
    noise, left = setting.noise, jnp.abs(setting.seen - sums)
    if not noise.laplace:
        return jnp.full_like(sums, noise.scale**2)
    # One over the variance is inverse Gaussian (Park and Casella 2008).
    mean = 1 / jnp.maximum(left / noise.scale, 1e-10)
    return noise.scale**2 / jnp.maximum(_inverse_gaussian(key, mean), 1e-12)


def _inverse_gaussian(key: jax.Array, mean: jax.Array) -> jax.Array:
    """With shape 1, by the smaller root, without cancellation (Michael et al. 1976)."""
    first, second = jax.random.split(key)
    square = jax.random.normal(first, mean.shape, mean.dtype) ** 2
    half = mean * square / 2
    smaller = mean / (1 + half + jnp.sqrt(half * (2 + half)))
    kept = jax.random.uniform(second, mean.shape, mean.dtype) * (mean + smaller) <= mean
    return jnp.where(kept, smaller, mean**2 / smaller)


def _new_rows(
    setting: _Setting,
    key: jax.Array,
    rows: jax.Array,
    mean: jax.Array,
    factor: jax.Array,
    variances: jax.Array,
) -> jax.Array:
    """One step of a chain over the number of rows, with the sums integrated out."""
    for_length, for_sign, for_test = jax.random.split(key, 3)

    def density(rows: jax.Array) -> jax.Array:
        missed = setting.seen - rows * mean
        both = jnp.linalg.cholesky(rows * factor @ factor.T + jnp.diag(variances[1:]))
        scaled = solve_triangular(both, missed[1:], lower=True)
        value = -scaled @ scaled / 2 - jnp.log(jnp.diag(both)).sum()
        return value - missed[0] ** 2 / (2 * variances[0])

    far = 2 * setting.noise.sd * jax.random.normal(for_length, (), mean.dtype)
    steps = jnp.maximum(jnp.rint(jnp.abs(far)), 1.0)
    there = rows + steps * jax.random.rademacher(for_sign, (), mean.dtype)
    gain = density(jnp.maximum(there, 0.0)) - density(rows)
    accepted = jnp.log(jax.random.uniform(for_test, (), mean.dtype)) < gain
    return jnp.where(accepted & (there >= 0), there, rows)


def _shifted(setting: _Setting, key: jax.Array, state: _State) -> _State:
    """Moves parameters, and sums with them: what stays is the sums in units of their spread."""

    def attempt(state: _State, key: jax.Array) -> tuple[_State, None]:
        for_step, for_test = jax.random.split(key)
        mean, factor = _moments(setting, state.theta)
        centred = state.sums[1:] - state.rows * mean[1:]
        held = solve_triangular(factor, centred, lower=True)
        theta = _perturbed(setting, for_step, state.theta)
        mean, factor = _moments(setting, theta)
        sums = jnp.append(state.rows, state.rows * mean[1:] + factor @ held)
        gain = _log_prior(setting, theta) - _log_prior(setting, state.theta)
        gain += setting.noise.log_density(setting.seen - sums)
        gain -= setting.noise.log_density(setting.seen - state.sums)
        accepted = jnp.log(jax.random.uniform(for_test, (), sums.dtype)) < gain
        accepted &= _possible(setting, sums)
        moved = _State(theta, state.rows, sums)
        return jax.tree.map(partial(jnp.where, accepted), moved, state), None

    return jax.lax.scan(attempt, state, jax.random.split(key, _SHIFTS))[0]


def _perturbed(setting: _Setting, key: jax.Array, theta: _Theta) -> _Theta:
    """Some of the parameters moved, by steps of random scale."""
    keys = jax.random.split(key, 3)
    count = setting.entries - 2
    free = len(theta.weights) + 1 + count + count * count
    dtype = theta.weights.dtype
    scale = jnp.exp(
        jax.random.uniform(keys[0], (), dtype, jnp.log(_SHORTEST), jnp.log(_LONGEST))
    )
    chosen = jax.random.bernoulli(keys[1], 0.5, (free,))
    step = jnp.where(chosen, scale * jax.random.normal(keys[2], (free,), dtype), 0.0)
    weights, variance, centre, factor = jnp.split(
        step, [count + 1, count + 2, 2 * count + 2]
    )
    square = factor.reshape(count, count)
    diagonal = jnp.diag(jnp.diag(theta.factor) * jnp.exp(jnp.diag(square)))
    known = setting.prior.variance is not None
    return _Theta(
        theta.weights + weights,
        theta.log_variance + (0.0 if known else variance[0]),
        theta.centre + centre,
        jnp.tril(theta.factor + square, -1) + diagonal,
    )


def _log_prior(setting: _Setting, theta: _Theta) -> jax.Array:
    """Log prior of what `_perturbed` moves: logarithms where it moves those."""
    prior, variance = setting.prior, jnp.exp(theta.log_variance)
    away = theta.weights - prior.mean
    value = -away @ prior.precision @ away / (2 * variance)
    if prior.variance is None:
        value -= (prior.shape + len(away) / 2) * theta.log_variance + prior.scale / variance
    count = setting.entries - 2
    if count == 0:
        return value
    logs = jnp.log(jnp.diag(theta.factor))
    inverse = solve_triangular(theta.factor, jnp.eye(count), lower=True)
    centred = inverse @ theta.centre
    value -= (2 * count + 4) * logs.sum() + _VARIANCE * jnp.sum(inverse**2) / 2
    value += ((count + 1 - jnp.arange(count)) * logs).sum()
    return value - _MEAN_ROWS * centred @ centred / 2

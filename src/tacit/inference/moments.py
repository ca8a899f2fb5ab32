"""What a linear model says of sums of products: their moments, and parameters given them.

Given parameters and the number of rows, the sums are about normal, by the central limit
theorem, with moments that follow from the parameters. Predictors are taken to be jointly
normal, with a mean and a covariance that are unknown, too: their fourth moments are what
the sums of their products vary by. Given the true sums, parameters have their conjugate
posterior (Bernstein and Sheldon 2018, 2019).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve, solve_triangular

from tacit.inference.latent import Noise
from tacit.models.linear import LinearPrior

# The prior of predictors scaled to [-1, 1]: their mean is worth one row, their covariance as
# little as it can be, around a standard deviation of .4.
_MEAN_ROWS, _VARIANCE = 1.0, 0.16


class Theta(NamedTuple):
    """Weights, the noise's log variance, and mean and covariance (by a factor) of predictors."""

    weights: jax.Array
    log_variance: jax.Array
    centre: jax.Array
    factor: jax.Array


class LinearSetting(NamedTuple):
    """What a chain is about: all of it public or released."""

    prior: LinearPrior
    pairs: tuple[tuple[int, int], ...]
    seen: jax.Array
    noise: Noise
    size: int | None

    @property
    def places(self) -> tuple[jax.Array, jax.Array]:
        """Where in v v' the products are."""
        first, second = zip(*self.pairs, strict=True)
        return jnp.array(first), jnp.array(second)

    @property
    def entries(self) -> int:
        """The length of v = (1, predictors, outcome)."""
        return len(self.prior.mean) + 1


def matrix_of(setting: LinearSetting, sums: jax.Array) -> jax.Array:
    """The sum of v v', from its products; zero where the outcome's square was not released."""
    first, second = setting.places
    empty = jnp.zeros((setting.entries, setting.entries), sums.dtype)
    return empty.at[first, second].set(sums).at[second, first].set(sums)


def possible(setting: LinearSetting, sums: jax.Array) -> jax.Array:
    """Whether rows could add up to this: a sum of v v' has no negative eigenvalue."""
    matrix = matrix_of(setting, sums)
    if setting.prior.variance is not None:
        matrix = matrix[:-1, :-1]
    slack = 1e-9 * (1 + jnp.abs(sums[0])) * jnp.eye(len(matrix))
    return jnp.isfinite(jnp.linalg.cholesky(matrix + slack)).all()


def nearest(setting: LinearSetting) -> tuple[jax.Array, jax.Array]:
    """Sums near those released that rows could have, and how many rows."""
    seen = setting.seen
    rows = jnp.maximum(jnp.rint(seen[0]), 0.0) if setting.size is None else setting.size * 1.0
    sums = jnp.clip(seen.at[0].set(rows), -rows, rows)
    matrix = matrix_of(setting, sums)
    last = setting.entries - 1
    if setting.prior.variance is not None:  # as large as can be
        matrix = matrix.at[last, last].set(rows)
    values, vectors = jnp.linalg.eigh(matrix)
    inside = (vectors * jnp.maximum(values, 0.0)) @ vectors.T
    # Back to the number of rows, which the line before may have raised.
    shrunk = inside * jnp.where(inside[0, 0] > 0, rows / jnp.maximum(inside[0, 0], 1e-300), 0.0)
    return jnp.asarray(rows), shrunk[setting.places]


def conjugate_draw(
    setting: LinearSetting, key: jax.Array, normals: jax.Array, sums: jax.Array
) -> Theta:
    """A draw of the parameters given the true sums.

    ``normals`` are standard normal numbers, as many as `conjugate_normals` says.
    """
    prior, count = setting.prior, setting.entries - 2
    matrix, normals = matrix_of(setting, sums), normals.reshape(count + 2, count + 1)
    rows = matrix[0, 0]
    shapes = jnp.append((rows + count + 2 - jnp.arange(count)) / 2, prior.shape + rows / 2)
    gammas = jax.random.gamma(key, shapes, dtype=sums.dtype)
    weights, log_variance = _weights(prior, matrix, gammas[-1], normals[0])
    centre, factor = _predictors(matrix, gammas[:-1], normals[1:, :-1])
    return Theta(weights, log_variance, centre, factor)


def conjugate_normals(setting: LinearSetting) -> int:
    """How many normal numbers `conjugate_draw` takes."""
    return setting.entries * (setting.entries - 1)


def somewhere(setting: LinearSetting) -> Theta:
    """Parameters to start from: the middle of the prior."""
    prior, count = setting.prior, setting.entries - 2
    variance = prior.scale / prior.shape if prior.variance is None else prior.variance
    dtype = setting.seen.dtype
    return Theta(
        jnp.asarray(prior.mean, dtype),
        jnp.log(jnp.asarray(variance, dtype)),
        jnp.zeros(count, dtype),
        _VARIANCE**0.5 * jnp.eye(count, dtype=dtype),
    )


def _weights(
    prior: LinearPrior, matrix: jax.Array, gamma: jax.Array, normal: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Weights and log variance: normal and inverse gamma, or the known one."""
    squares, products, outcome = matrix[:-1, :-1], matrix[:-1, -1], matrix[-1, -1]
    ahead = prior.precision @ prior.mean
    factor = jnp.linalg.cholesky(squares + prior.precision)
    mean = cho_solve((factor, True), products + ahead)
    if prior.variance is not None:
        variance = jnp.asarray(prior.variance, matrix.dtype)
    else:
        left = outcome + prior.mean @ ahead - mean @ (products + ahead)
        variance = (prior.scale + jnp.maximum(left, 0.0) / 2) / gamma
    spread = solve_triangular(factor, normal, lower=True, trans=1)
    return mean + jnp.sqrt(variance) * spread, jnp.log(variance)


def _predictors(
    matrix: jax.Array, gammas: jax.Array, normals: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Mean and covariance of predictors: normal and inverse Wishart."""
    count = len(gammas)
    if count == 0:
        return jnp.zeros(0, matrix.dtype), jnp.zeros((0, 0), matrix.dtype)
    rows, totals, squares = matrix[0, 0], matrix[0, 1:-1], matrix[1:-1, 1:-1]
    weight = rows + _MEAN_ROWS
    scale = squares - jnp.outer(totals, totals) / weight + _VARIANCE * jnp.eye(count)
    # Bartlett: the inverse of the covariance is L A A' L' with L L' the inverse of the scale.
    bartlett = jnp.tril(normals[1:], -1) + jnp.diag(jnp.sqrt(2 * gammas))
    part = solve_triangular(bartlett, jnp.linalg.cholesky(scale).T, lower=True)
    factor = jnp.linalg.cholesky(part.T @ part)
    return totals / weight + factor @ normals[0] / jnp.sqrt(weight), factor


def moments(setting: LinearSetting, theta: Theta) -> tuple[jax.Array, jax.Array]:
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
    i, j = setting.places
    first, second = (i[1:, None], j[1:, None]), (i[None, 1:], j[None, 1:])
    total = jnp.zeros((len(setting.pairs) - 1,) * 2, mean.dtype)
    for a, b in (first, first[::-1]):
        for c, d in (second, second[::-1]):
            total += spread[a, c] * (spread[b, d] / 2 + mean[b] * mean[d])
    tiny = 1e-12 * jnp.diag(jnp.diag(total) + 1e-12)
    products = jnp.outer(mean, mean) + spread
    return products[i, j], jnp.linalg.cholesky(total + tiny)


def log_prior(setting: LinearSetting, theta: Theta) -> jax.Array:
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

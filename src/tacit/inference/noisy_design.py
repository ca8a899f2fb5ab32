"""The posterior of a linear regression given noisy sums of products of its columns.

Let A, b and c be the sums of products of predictors with predictors, of predictors with the outcome, and of
the outcome with itself, all of them seen with normal noise of a known standard deviation t. Given A, weights w and the
outcome's standard deviation s, least squares says that b is normal with mean A w and covariance
s^2 A, and that c less b' A^-1 b is s^2 times chi-squared, independently (Bernstein and Sheldon 2019 take sums to be
normal, too). So noisy b given A, w and s is normal with covariance s^2 A + t^2; with a normal prior, w is
integrated out. A has a flat prior on what rows could add up to, matrices without a negative eigenvalue; for nothing is
said of the predictors. Noisy c is taken to be normal, by its exact mean and variance.

What is left is sampled by slices: the noise of A, standard normal numbers that place w in its
posterior given A and s, and the logarithm of s. All three are standard normal but for a likelihood.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve, solve_triangular
from numpy.typing import NDArray

from tacit.inference.elliptical import Slices
from tacit.models.design_sums import DesignSums

Floats = NDArray[np.float64]
# Of the scaled outcome's log standard deviation where the sums say little: middle and spread.
_LOG_SPREAD, _WIDE = np.log(0.15), 1.2
# They say much if the variance is so many errors large. How much wider than they say it is looked for.
_MUCH, _WIDER = 8.0, 2.0


class Seen(NamedTuple):
    """What was released, and where to begin."""

    squares: Any  # the distinct products of predictors, the number of rows first
    scales: Any  # the noise's, which is zero for a number of rows that is public
    products: Any
    outcome: Any
    scale: Any
    log_spread: Any
    reach: Any
    start: Any


def design_draws(
    sums: DesignSums,
    released: Any,
    scale: float,
    key: jax.Array,
    slices: Slices,
) -> tuple[Floats, Floats]:
    """Draws of scaled weights [chains * kept, numbers] and standard deviations, chain by chain.

    ``scale`` is the noise's standard deviation; zero takes the sums for exact.
    """
    with jax.enable_x64(True):
        seen = _seen(sums, np.array(released, np.float64), scale)
        _, weights, spread = _drawn(sums, seen, key, slices)
        return np.asarray(weights), np.asarray(spread)


def _parts(sums: DesignSums) -> tuple[Any, Any, Any, int]:
    """Places of squares, products and outcome in a release, and of each square among the distinct ones."""
    places = sums.places
    inner = places[:-1, :-1]
    distinct = np.unique(inner[inner >= 0])
    order = np.where(inner >= 0, np.searchsorted(distinct, inner), len(distinct))
    return distinct, places[:-1, -1], order, int(places[-1, -1])


def _seen(sums: DesignSums, released: Floats, scale: float) -> Seen:
    distinct, products, order, last = _parts(sums)
    squares, b, c = released[distinct], released[products], released[last]
    possible = _possible(np.append(squares, 0.0)[order], sums.typical)
    nearest = np.array([possible[order == k][0] for k in range(len(distinct))])
    fitted = np.linalg.solve(possible, b)
    rows = max(possible[0, 0], 1.0)
    variance = (c - b @ fitted) / rows
    length = 1 + fitted @ fitted
    error = (np.sqrt(2 * rows) * max(variance, 0.0) + scale * length) / rows
    told = variance > _MUCH * error
    scales = np.full(len(distinct), scale)
    noise = (squares - nearest) / np.where(scales > 0, scales, np.inf)
    return Seen(
        squares if scale > 0 else nearest,
        scales,
        b,
        c,
        float(scale),
        float(0.5 * np.log(variance) if told else _LOG_SPREAD),
        float(_WIDER * error / (2 * variance) if told else _WIDE),
        np.concatenate([noise, np.zeros(len(products) + 1)]),
    )


def _possible(matrix: Floats, typical: Floats) -> Floats:
    """Sums that rows could have: the matrix, mixed with typical products until it is positive."""
    rows = max(matrix[0, 0], 2.0 * len(matrix))
    for part in (0.0, *(2.0 ** -np.arange(10, -1, -1))):
        mixed = (1 - part) * matrix + part * rows * typical
        if np.linalg.eigvalsh(mixed)[0] > 1e-6 * rows and mixed[0, 0] > len(matrix):
            return np.asarray(mixed)
    return np.asarray(rows * typical)


@partial(jax.jit, static_argnames=("sums", "slices"))
def _drawn(sums: DesignSums, seen: Seen, key: jax.Array, slices: Slices) -> Any:
    target = partial(_placed, sums, seen)
    places = slices.run(lambda place: target(place)[0], jnp.asarray(seen.start), key)
    return jax.lax.map(target, places.reshape(-1, places.shape[-1]))


def _placed(sums: DesignSums, seen: Seen, place: jax.Array) -> tuple[jax.Array, ...]:
    """The log-likelihood of a place, and the weights and the standard deviation there."""
    _, _, order, _ = _parts(sums)
    size, count = len(order), len(place) - len(order) - 1
    noise, normals, step = place[:count], place[count:-1], place[-1]
    matrix = jnp.append(seen.squares - seen.scales * noise, 0.0)[order]
    log_spread = seen.log_spread + seen.reach * step
    found = _given(sums, seen, matrix, jnp.exp(2 * log_spread))
    weights = found.mean + solve_triangular(found.root, normals, lower=True, trans=1)
    value = found.value + _outcome(seen, matrix, jnp.exp(2 * log_spread), found, weights)
    value += sums.spread_density(log_spread) + step**2 / 2
    slack = 1e-9 * jnp.abs(matrix[0, 0]) * jnp.eye(size)
    possible = jnp.isfinite(jnp.linalg.cholesky(matrix + slack)).all() & (matrix[0, 0] > size)
    value = jnp.where(possible & jnp.isfinite(value), value, -jnp.inf)
    return value, weights, jnp.exp(log_spread)


class _Given(NamedTuple):
    """Weights given squares and variance: mean, root of the precision, and the evidence of the products."""

    mean: jax.Array
    root: jax.Array
    value: jax.Array
    noisy: jax.Array  # the root of the covariance of the products


def _given(sums: DesignSums, seen: Seen, matrix: jax.Array, variance: jax.Array) -> _Given:
    prior, size = sums.prior, len(matrix)
    noisy = jnp.linalg.cholesky(variance * matrix + seen.scale**2 * jnp.eye(size))
    left = seen.products - matrix @ prior.mean
    scaled, slope = (solve_triangular(noisy, x, lower=True) for x in (left, matrix))
    root = jnp.linalg.cholesky(jnp.diag(prior.sd**-2.0) + slope.T @ slope)
    told = solve_triangular(root, slope.T @ scaled, lower=True)
    value = (told @ told - scaled @ scaled) / 2
    value -= jnp.log(jnp.diag(noisy)).sum() + jnp.log(jnp.diag(root)).sum()
    mean = jnp.asarray(prior.mean) + solve_triangular(root, told, lower=True, trans=1)
    return _Given(mean, root, value, noisy)


def _outcome(
    seen: Seen, matrix: jax.Array, variance: jax.Array, given: _Given, weights: jax.Array
) -> jax.Array:
    """Log density of the outcome's noisy square, given everything else."""
    size, rows = len(matrix), matrix[0, 0]
    left = seen.products - matrix @ weights
    fitted = weights + variance * cho_solve((given.noisy, True), left)
    hidden = seen.scale**2 * variance * cho_solve((given.noisy, True), jnp.eye(size))
    free = jnp.maximum(rows - size, 1.0)
    mean = fitted @ matrix @ fitted + jnp.trace(hidden) + free * variance
    spread = 4 * fitted @ matrix @ hidden @ fitted + 2 * jnp.sum(hidden * hidden.T)
    spread += 2 * free * variance**2 + seen.scale**2
    return jnp.asarray(-0.5 * ((seen.outcome - mean) ** 2 / spread + jnp.log(spread)))

"""The posterior of a Gaussian formula given noisy sums of products of its columns. All post-processing.

Let A, b and c be the sums of products of predictors with predictors, of predictors with the outcome, and of
the outcome with itself, all of them seen with normal noise of a known standard deviation t. Given A, weights w and the
outcome's standard deviation s, least squares says that b is normal with mean A w and covariance
s^2 A, and that c less b' A^-1 b is s^2 times chi-squared, independently (Bernstein and Sheldon 2019 take sums to be
normal, too). So noisy b given A, w and s is normal with covariance s^2 A + t^2; with a normal prior, w is
integrated out. A has a flat prior on what rows could add up to, matrices without a negative eigenvalue; for the
predictors have no model. Noisy c is taken to be normal, by its exact mean and variance.

What is left is sampled by elliptical slice sampling (Murray, Adams and MacKay 2010): the noise of A, standard normal
numbers that position w in its posterior given A and s, and the logarithm of s. All three are standard normal but for a
likelihood. A step needs no step size, is never rejected, and the likelihood may be zero in positions.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve, solve_triangular
from numpy.typing import NDArray

from tacit._typing import Floats
from tacit.models.glm_statistics import LinearStatistics

LogLikelihood = Callable[[jax.Array], jax.Array]
# The position of a chain, and the log-likelihood there.
State = tuple[jax.Array, jax.Array]
# The most angles that are tried in a step; if none is accepted, the chain stays where it is.
_MAX_TRIES = 60


class _Search(NamedTuple):
    """An angle on the ellipse, the bracket that it was drawn from, and the log-likelihood there."""

    angle: jax.Array
    low: jax.Array
    high: jax.Array
    value: jax.Array
    key: jax.Array
    tries: jax.Array


class SliceChains(NamedTuple):
    """The number of chains; how many draws of each are discarded and then kept; and how many steps make one draw."""

    chains: int
    burn_in: int
    kept: int
    sweeps: int

    def run(self, log_likelihood: LogLikelihood, start: jax.Array, key: jax.Array) -> jax.Array:
        """The positions [chains, kept, dimension] of chains that begin at the same position.

        The first step of each goes to any position of its ellipse whose likelihood is not zero.
        """
        lowest = jnp.full((), np.finfo(start.dtype).min / 2, start.dtype)

        def step(state: State, key: jax.Array) -> tuple[State, None]:
            return elliptical_step(log_likelihood, state[0], state[1], key), None

        def stop(state: State, key: jax.Array) -> tuple[State, jax.Array]:
            keys = jax.random.split(key, self.sweeps)
            state = jax.lax.scan(step, state, keys)[0]
            return state, state[0]

        def chain(key: jax.Array) -> jax.Array:
            keys = jax.random.split(key, self.burn_in + self.kept)
            positions = jax.lax.scan(stop, (start, lowest), keys)[1]
            return positions[self.burn_in :]

        return jax.vmap(chain)(jax.random.split(key, self.chains))


def elliptical_step(
    log_likelihood: LogLikelihood, position: jax.Array, value: jax.Array, key: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The next position of a chain, and the log-likelihood there."""
    for_normals, for_numbers, later = jax.random.split(key, 3)
    other = jax.random.normal(for_normals, position.shape, position.dtype)
    first, second = jax.random.uniform(for_numbers, (2,), position.dtype)
    least, angle = value + jnp.log(first), 2 * jnp.pi * second

    def there(angle: jax.Array) -> jax.Array:
        return position * jnp.cos(angle) + other * jnp.sin(angle)

    def tried(now: _Search) -> _Search:  # the next angle is drawn where the likelihood is evaluated
        key, use = jax.random.split(now.key)
        low = jnp.where(now.angle < 0, now.angle, now.low)
        high = jnp.where(now.angle < 0, now.high, now.angle)
        drawn = low + (high - low) * jax.random.uniform(use, (), position.dtype)
        angle = jnp.where(now.tries == 0, now.angle, drawn)
        return _Search(angle, low, high, log_likelihood(there(angle)), key, now.tries + 1)

    none = jnp.full_like(least, -jnp.inf)
    begin = _Search(angle, angle - 2 * jnp.pi, angle, none, later, jnp.zeros((), int))
    found = jax.lax.while_loop(lambda s: (s.value < least) & (s.tries < _MAX_TRIES), tried, begin)
    good = found.value >= least
    return jnp.where(good, there(found.angle), position), jnp.where(good, found.value, value)


Integers = NDArray[np.int64]
# Centre and width of the range of the scaled outcome's log standard deviation where the sums are not informative.
_LOG_SD_CENTRE, _LOG_SD_WIDTH = np.log(0.15), 1.2
# Sums are informative if the variance is more than so many times its error. The range is then so many times wider
# than this error.
_INFORMATIVE_RATIO, _WIDENING = 8.0, 2.0


class ReleasedSums(NamedTuple):
    """The released sums and their noise, the range of the log standard deviation, and the start of the chains."""

    squares: jax.Array  # the distinct products of predictors, the number of rows first
    scales: jax.Array  # the noise's, which is zero for a number of rows that is public
    products: jax.Array
    outcome: jax.Array
    scale: jax.Array
    log_spread: jax.Array
    reach: jax.Array
    start: jax.Array


def design_draws(
    sums: LinearStatistics,
    released: Floats,
    scale: float,
    key: jax.Array,
    slices: SliceChains,
) -> tuple[Floats, Floats]:
    """Draws of scaled weights [chains * kept, numbers] and standard deviations, chain by chain.

    ``scale`` is the noise's standard deviation; zero takes the sums for exact.
    """
    with jax.enable_x64(True):
        seen = _released_sums(sums, np.array(released, np.float64), scale)
        _, weights, spread = _sample(sums, seen, key, slices)
        return np.asarray(weights), np.asarray(spread)


def _release_indices(sums: LinearStatistics) -> tuple[Integers, Integers, Integers, int]:
    """Indices of squares, products and outcome in a release, and of each square among the distinct ones."""
    indices = sums.places
    inner = indices[:-1, :-1]
    distinct = np.unique(inner[inner >= 0])
    order = np.where(inner >= 0, np.searchsorted(distinct, inner), len(distinct))
    return distinct, indices[:-1, -1], order, int(indices[-1, -1])


def _released_sums(sums: LinearStatistics, released: Floats, scale: float) -> ReleasedSums:
    distinct, products, order, last = _release_indices(sums)
    squares, b, c = released[distinct], released[products], released[last]
    possible = _nearest_feasible(np.append(squares, 0.0)[order], sums.typical)
    nearest = np.array([possible[order == k][0] for k in range(len(distinct))])
    fitted = np.linalg.solve(possible, b)
    rows = max(possible[0, 0], 1.0)
    variance = (c - b @ fitted) / rows
    length = 1 + fitted @ fitted
    error = (np.sqrt(2 * rows) * max(variance, 0.0) + scale * length) / rows
    told = variance > _INFORMATIVE_RATIO * error
    scales = np.full(len(distinct), scale)
    noise = (squares - nearest) / np.where(scales > 0, scales, np.inf)
    made = (
        squares if scale > 0 else nearest,
        scales,
        b,
        c,
        scale,
        0.5 * np.log(variance) if told else _LOG_SD_CENTRE,
        _WIDENING * error / (2 * variance) if told else _LOG_SD_WIDTH,
        np.concatenate([noise, np.zeros(len(products) + 1)]),
    )
    return ReleasedSums._make(jnp.asarray(each, jnp.float64) for each in made)


def _nearest_feasible(matrix: Floats, typical: Floats) -> Floats:
    """Sums that rows could have: the matrix, mixed with typical products until it is positive definite."""
    rows = max(matrix[0, 0], 2.0 * len(matrix))
    for part in (0.0, *(2.0 ** -np.arange(10, -1, -1))):
        mixed = (1 - part) * matrix + part * rows * typical
        if np.linalg.eigvalsh(mixed)[0] > 1e-6 * rows and mixed[0, 0] > len(matrix):
            return np.asarray(mixed)
    return np.asarray(rows * typical)


@partial(jax.jit, static_argnames=("sums", "slices"))
def _sample(
    sums: LinearStatistics, seen: ReleasedSums, key: jax.Array, slices: SliceChains
) -> tuple[jax.Array, ...]:
    target = partial(_target, sums, seen)
    positions = slices.run(lambda position: target(position)[0], seen.start, key)
    found: tuple[jax.Array, ...] = jax.lax.map(target, positions.reshape(-1, positions.shape[-1]))
    return found


def _target(
    sums: LinearStatistics, seen: ReleasedSums, position: jax.Array
) -> tuple[jax.Array, ...]:
    """The log-likelihood at a position, and the weights and the standard deviation there."""
    _, _, order, _ = _release_indices(sums)
    size, count = len(order), len(position) - len(order) - 1
    noise, normals, step = position[:count], position[count:-1], position[-1]
    matrix = jnp.append(seen.squares - seen.scales * noise, 0.0)[order]
    log_spread = seen.log_spread + seen.reach * step
    found = _weights_posterior(sums, seen, matrix, jnp.exp(2 * log_spread))
    weights = found.mean + solve_triangular(found.root, normals, lower=True, trans=1)
    value = found.value + _outcome_log_density(
        seen, matrix, jnp.exp(2 * log_spread), found, weights
    )
    value += sums.spread_density(log_spread) + step**2 / 2
    slack = 1e-9 * jnp.abs(matrix[0, 0]) * jnp.eye(size)
    possible = jnp.isfinite(jnp.linalg.cholesky(matrix + slack)).all() & (matrix[0, 0] > size)
    value = jnp.where(possible & jnp.isfinite(value), value, -jnp.inf)
    return value, weights, jnp.exp(log_spread)


class _WeightsPosterior(NamedTuple):
    """The posterior of weights given squares and variance, and the log marginal likelihood of the products."""

    mean: jax.Array
    root: jax.Array
    value: jax.Array
    noisy: jax.Array  # the root of the covariance of the products


def _weights_posterior(
    sums: LinearStatistics, seen: ReleasedSums, matrix: jax.Array, variance: jax.Array
) -> _WeightsPosterior:
    prior, size = sums.prior, len(matrix)
    noisy = jnp.linalg.cholesky(variance * matrix + seen.scale**2 * jnp.eye(size))
    left = seen.products - matrix @ prior.mean
    scaled, slope = (solve_triangular(noisy, x, lower=True) for x in (left, matrix))
    root = jnp.linalg.cholesky(jnp.diag(prior.sd**-2.0) + slope.T @ slope)
    told = solve_triangular(root, slope.T @ scaled, lower=True)
    value = (told @ told - scaled @ scaled) / 2
    value -= jnp.log(jnp.diag(noisy)).sum() + jnp.log(jnp.diag(root)).sum()
    mean = jnp.asarray(prior.mean) + solve_triangular(root, told, lower=True, trans=1)
    return _WeightsPosterior(mean, root, value, noisy)


def _outcome_log_density(
    seen: ReleasedSums,
    matrix: jax.Array,
    variance: jax.Array,
    given: _WeightsPosterior,
    weights: jax.Array,
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

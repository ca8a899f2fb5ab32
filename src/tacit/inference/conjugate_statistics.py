"""The posterior of a model of `tacit.conjugate` given a noisy sum of its statistics. All post-processing.

The true sums are unknown, and observed through noise of a known distribution (Bernstein and Sheldon 2018, 2019).

Counts: the true totals are whole numbers whose probability under the model is known in closed form. A chain over
them alone, the parameters integrated out, is exact but for its length; parameters are drawn given its states.

Linear regression: given parameters and the number of rows, sums of products are about normal, by the central limit
theorem, with moments that follow from the parameters. Predictors are taken to be jointly normal, with an unknown mean
and covariance: their fourth moments are what the sums of their products vary by. A Gibbs sweep draws the sums given
parameters, and parameters given the sums, from their conjugate posterior. Where noise is large, that takes short
steps: sums stay near what the parameters say, and parameters near what the sums say. So a second move shifts both
together.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve, solve_triangular

from tacit.models.base import Parameters
from tacit.models.conjugate import CountModel, Linear, LinearPrior

# The range of step sizes of the chain over totals, in standard deviations of the noise.
_MIN_COUNT_STEP, _MAX_COUNT_STEP = 0.2, 4.0


# The state of a chain, and what it draws.
_S = TypeVar("_S")
_D = TypeVar("_D")


class NoiseLaw(NamedTuple):
    """The distribution of the noise in every number of a release: Laplace, or normal with standard deviation ``scale``."""

    scale: jax.Array
    laplace: bool

    def log_density(self, noise: jax.Array) -> jax.Array:
        """Log density of independent draws, up to a constant."""
        scaled = jnp.abs(noise) / self.scale
        return -jnp.sum(scaled if self.laplace else scaled**2 / 2)

    @property
    def sd(self) -> jax.Array:
        """Standard deviation of one draw."""
        return self.scale * (2**0.5 if self.laplace else 1.0)


class ChainLength(NamedTuple):
    """The length of a chain: how many draws are discarded and then kept, and how many sweeps make one draw."""

    burn_in: int
    kept: int
    sweeps: int

    def run(
        self, draw_next: Callable[[_S, jax.Array], tuple[_S, _D]], state: _S, key: jax.Array
    ) -> _D:
        """The kept draws of a chain that begins at a state; ``draw_next(state, key)`` gives the next state and a draw."""
        keys = jax.random.split(key, self.burn_in + self.kept)
        draws: _D = jax.tree.map(
            lambda each: each[self.burn_in :], jax.lax.scan(draw_next, state, keys)[1]
        )
        return draws


@partial(jax.jit, static_argnames=("model", "laplace", "size", "length"))
def count_chain(
    model: CountModel,
    seen: jax.Array,
    scale: jax.Array,
    key: jax.Array,
    *,
    laplace: bool,
    size: int | None,
    length: ChainLength,
) -> Parameters:
    """Draws [kept, ...] of the parameters given the noisy sum."""
    noise = NoiseLaw(scale, laplace)
    directions = jnp.asarray(model.directions(size_known=size is not None), seen.dtype)
    spans = jax.vmap(lambda direction: jnp.linalg.norm(model.statistic_from_totals(direction)))(
        directions
    )
    reach = noise.sd / spans  # how far along each direction the noise would carry

    def density(totals: jax.Array) -> jax.Array:
        return model.log_marginal_likelihood(totals) + noise.log_density(
            seen - model.statistic_from_totals(totals)
        )

    def move(key: jax.Array, totals: jax.Array) -> jax.Array:
        """Metropolis steps of random length along every direction in turn."""

        def along(
            totals: jax.Array, given: tuple[jax.Array, jax.Array, jax.Array, jax.Array]
        ) -> tuple[jax.Array, None]:
            normal, (scale, sign, test), direction, far = given
            # Of random scale, so that some steps have a suitable length wherever the chain is.
            step = (
                _MIN_COUNT_STEP
                * (_MAX_COUNT_STEP / _MIN_COUNT_STEP) ** scale
                * far
                * jnp.abs(normal)
            )
            steps = jnp.maximum(jnp.rint(step), 1.0)
            there = totals + direction * jnp.where(sign < 0.5, steps, -steps)
            gain = density(there) - density(totals)
            return jnp.where(jnp.log(test) < gain, there, totals), None

        for_normals, for_uniforms = jax.random.split(key)
        normals = jax.random.normal(for_normals, (len(directions),), seen.dtype)
        uniforms = jax.random.uniform(for_uniforms, (len(directions), 3), seen.dtype)
        return jax.lax.scan(along, totals, (normals, uniforms, directions, reach))[0]

    def draw_next(totals: jax.Array, key: jax.Array) -> tuple[jax.Array, Parameters]:
        key, last = jax.random.split(key)
        keys = jax.random.split(key, length.sweeps)
        totals = jax.lax.scan(lambda at, key: (move(key, at), None), totals, keys)[0]
        return totals, model.sample_posterior(last, totals)

    return length.run(draw_next, model.nearest_totals(seen, size), key)


@partial(jax.jit, static_argnames=("model", "size", "kept"))
def count_draws(
    model: CountModel, seen: jax.Array, key: jax.Array, *, size: int | None, kept: int
) -> Parameters:
    """Draws as if the released sum were exact, after it was moved to the nearest sum that rows could have."""
    totals = model.nearest_totals(seen, size)
    return jax.vmap(lambda key: model.sample_posterior(key, totals))(jax.random.split(key, kept))


# The prior of predictors scaled to [-1, 1]: their mean counts as one row, and their covariance has the fewest degrees
# of freedom of a proper prior, around a variance of .16.
_PRIOR_ROWS, _PRIOR_VARIANCE = 1.0, 0.16


class LinearParameters(NamedTuple):
    """Weights, the noise's log variance, and mean and covariance (by a factor) of predictors."""

    weights: jax.Array
    log_variance: jax.Array
    centre: jax.Array
    factor: jax.Array


class LinearProblem(NamedTuple):
    """The prior, the released sums and their noise. All of it is public or released."""

    prior: LinearPrior
    pairs: tuple[tuple[int, int], ...]
    seen: jax.Array
    noise: NoiseLaw
    size: int | None

    @property
    def places(self) -> tuple[jax.Array, jax.Array]:
        """Row and column of each product in v v'."""
        first, second = zip(*self.pairs, strict=True)
        return jnp.array(first), jnp.array(second)

    @property
    def entries(self) -> int:
        """The length of v = (1, predictors, outcome)."""
        return len(self.prior.mean) + 1


def product_matrix(setting: LinearProblem, sums: jax.Array) -> jax.Array:
    """The sum of v v', from its products; zero where the outcome's square was not released."""
    first, second = setting.places
    empty = jnp.zeros((setting.entries, setting.entries), sums.dtype)
    return empty.at[first, second].set(sums).at[second, first].set(sums)


def is_feasible(setting: LinearProblem, sums: jax.Array) -> jax.Array:
    """Whether rows could add up to this: a sum of v v' has no negative eigenvalue."""
    matrix = product_matrix(setting, sums)
    if setting.prior.variance is not None:
        matrix = matrix[:-1, :-1]
    slack = 1e-9 * (1 + jnp.abs(sums[0])) * jnp.eye(len(matrix))
    return jnp.isfinite(jnp.linalg.cholesky(matrix + slack)).all()


def nearest_feasible(setting: LinearProblem) -> tuple[jax.Array, jax.Array]:
    """The number of rows, and sums near those released that so many rows could have."""
    seen = setting.seen
    rows = jnp.maximum(jnp.rint(seen[0]), 0.0) if setting.size is None else setting.size * 1.0
    sums = jnp.clip(seen.at[0].set(rows), -rows, rows)
    matrix = product_matrix(setting, sums)
    last = setting.entries - 1
    if setting.prior.variance is not None:  # as large as can be
        matrix = matrix.at[last, last].set(rows)
    values, vectors = jnp.linalg.eigh(matrix)
    inside = (vectors * jnp.maximum(values, 0.0)) @ vectors.T
    # The projection may have raised the number of rows.
    shrunk = inside * jnp.where(inside[0, 0] > 0, rows / jnp.maximum(inside[0, 0], 1e-300), 0.0)
    return jnp.asarray(rows), shrunk[setting.places]


def sample_posterior(
    setting: LinearProblem, key: jax.Array, normals: jax.Array, sums: jax.Array
) -> LinearParameters:
    """A draw of the parameters given the true sums.

    ``normals`` are standard normal numbers, as many as `num_conjugate_normals` says.
    """
    prior, count = setting.prior, setting.entries - 2
    matrix, normals = product_matrix(setting, sums), normals.reshape(count + 2, count + 1)
    rows = matrix[0, 0]
    shapes = jnp.append((rows + count + 2 - jnp.arange(count)) / 2, prior.shape + rows / 2)
    gammas = jax.random.gamma(key, shapes, dtype=sums.dtype)
    weights, log_variance = _draw_weights(prior, matrix, gammas[-1], normals[0])
    centre, factor = _draw_predictors(matrix, gammas[:-1], normals[1:, :-1])
    return LinearParameters(weights, log_variance, centre, factor)


def num_conjugate_normals(setting: LinearProblem) -> int:
    """How many normal numbers `conjugate_draw` takes."""
    return setting.entries * (setting.entries - 1)


def prior_centre(setting: LinearProblem) -> LinearParameters:
    """Parameters to start from: the middle of the prior."""
    prior, count = setting.prior, setting.entries - 2
    variance = prior.scale / prior.shape if prior.variance is None else prior.variance
    dtype = setting.seen.dtype
    return LinearParameters(
        jnp.asarray(prior.mean, dtype),
        jnp.log(jnp.asarray(variance, dtype)),
        jnp.zeros(count, dtype),
        _PRIOR_VARIANCE**0.5 * jnp.eye(count, dtype=dtype),
    )


def _draw_weights(
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


def _draw_predictors(
    matrix: jax.Array, gammas: jax.Array, normals: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Mean and covariance of predictors: normal and inverse Wishart."""
    count = len(gammas)
    if count == 0:
        return jnp.zeros(0, matrix.dtype), jnp.zeros((0, 0), matrix.dtype)
    rows, totals, squares = matrix[0, 0], matrix[0, 1:-1], matrix[1:-1, 1:-1]
    weight = rows + _PRIOR_ROWS
    scale = squares - jnp.outer(totals, totals) / weight + _PRIOR_VARIANCE * jnp.eye(count)
    # Bartlett: the inverse of the covariance is L A A' L' with L L' the inverse of the scale.
    bartlett = jnp.tril(normals[1:], -1) + jnp.diag(jnp.sqrt(2 * gammas))
    part = solve_triangular(bartlett, jnp.linalg.cholesky(scale).T, lower=True)
    factor = jnp.linalg.cholesky(part.T @ part)
    return totals / weight + factor @ normals[0] / jnp.sqrt(weight), factor


def statistic_moments(
    setting: LinearProblem, theta: LinearParameters
) -> tuple[jax.Array, jax.Array]:
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


def log_prior(setting: LinearProblem, theta: LinearParameters) -> jax.Array:
    """Log prior of the coordinates that `_perturb` moves: logarithms of variances."""
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
    value -= (2 * count + 4) * logs.sum() + _PRIOR_VARIANCE * jnp.sum(inverse**2) / 2
    value += ((count + 1 - jnp.arange(count)) * logs).sum()
    return value - _PRIOR_ROWS * centred @ centred / 2


# The range of step sizes of the joint shift of parameters and sums, and how many shifts are tried in a sweep.
_MIN_SHIFT, _MAX_SHIFT, _SHIFTS_PER_SWEEP = 0.005, 1.0, 4


class _ChainState(NamedTuple):
    """The state of a chain. Mean and factor are the moments of the sums given the parameters."""

    theta: LinearParameters
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
    length: ChainLength,
) -> tuple[jax.Array, jax.Array]:
    """Draws [kept, ...] of scaled weights and variances given the noisy sums."""
    noise = NoiseLaw(scale, laplace)
    setting = LinearProblem(model.scaled_prior(), model.products, seen, noise, size)
    return _gibbs_chain(setting, key, length)


@partial(jax.jit, static_argnames=("model", "size", "kept"))
def linear_draws(
    model: Linear, seen: jax.Array, key: jax.Array, *, size: int | None, kept: int
) -> tuple[jax.Array, jax.Array]:
    """Draws as if the released sum were exact, after it was moved to the nearest sum that rows could have."""
    setting = LinearProblem(
        model.scaled_prior(), model.products, seen, NoiseLaw(jnp.zeros(()), False), size
    )
    sums = nearest_feasible(setting)[1]

    def draw(key: jax.Array, normals: jax.Array) -> tuple[jax.Array, jax.Array]:
        theta = sample_posterior(setting, key, normals, sums)
        return theta.weights, jnp.exp(theta.log_variance)

    first, second = jax.random.split(key)
    normals = jax.random.normal(first, (kept, num_conjugate_normals(setting)), sums.dtype)
    return jax.vmap(draw)(jax.random.split(second, kept), normals)


def _gibbs_chain(
    setting: LinearProblem, key: jax.Array, length: ChainLength
) -> tuple[jax.Array, jax.Array]:
    def sweep(state: _ChainState, key: jax.Array) -> tuple[_ChainState, None]:
        random = _sweep_draws(setting, key)
        rows, sums = _draw_sums(setting, random, _shift_jointly(setting, random, state))
        theta = sample_posterior(setting, random.key, random.for_theta, sums)
        return _ChainState(theta, *statistic_moments(setting, theta), rows, sums), None

    def draw_next(
        state: _ChainState, key: jax.Array
    ) -> tuple[_ChainState, tuple[jax.Array, jax.Array]]:
        state, _ = jax.lax.scan(sweep, state, jax.random.split(key, length.sweeps))
        return state, (state.theta.weights, jnp.exp(state.theta.log_variance))

    start = prior_centre(setting)
    state = _ChainState(start, *statistic_moments(setting, start), *nearest_feasible(setting))
    return length.run(draw_next, state, key)


class _SweepDraws(NamedTuple):
    """All random numbers of a sweep, drawn at once because this compiles much faster."""

    key: jax.Array
    for_theta: jax.Array
    for_sums: tuple[jax.Array, jax.Array]
    for_shifts: tuple[jax.Array, jax.Array]


def _sweep_draws(setting: LinearProblem, key: jax.Array) -> _SweepDraws:
    keys, dtype, size = jax.random.split(key, 3), setting.seen.dtype, len(setting.pairs)
    free = _shift_size(setting)
    ends = [3 * size, 3 * size + _SHIFTS_PER_SWEEP * free]
    total = ends[1] + num_conjugate_normals(setting)
    normals = jnp.split(jax.random.normal(keys[0], (total,), dtype), ends)
    many = 2 * size + _SHIFTS_PER_SWEEP * (free + 2)
    uniforms = jnp.split(jax.random.uniform(keys[1], (many,), dtype), [2 * size])
    return _SweepDraws(
        keys[2],
        normals[2],
        (normals[0].reshape(3, size), uniforms[0].reshape(2, size)),
        (
            normals[1].reshape(_SHIFTS_PER_SWEEP, free),
            uniforms[1].reshape(_SHIFTS_PER_SWEEP, free + 2),
        ),
    )


def _shift_size(setting: LinearProblem) -> int:
    """How many numbers a shift may move."""
    count = setting.entries - 2
    return 2 * count + 2 + count * count


def _draw_sums(
    setting: LinearProblem, random: _SweepDraws, state: _ChainState
) -> tuple[jax.Array, jax.Array]:
    """A draw of the number of rows and the sums, given parameters and the noisy sums."""
    normals, uniforms = random.for_sums
    variances = _noise_variances(setting, state.sums, normals[0], uniforms[0])
    rows, mean, factor = state.rows, state.mean[1:], state.factor
    covariance = factor @ factor.T
    if setting.size is None:
        rows = _move_row_count(setting, state, covariance, variances, normals[1, 0], uniforms[1])
    # A draw of the prior, moved by its misfit to the data (Matheron's rule).
    blind = rows * mean + jnp.sqrt(rows) * factor @ normals[1, 1:]
    noise = jnp.sqrt(variances[1:]) * normals[2, 1:]
    both = jnp.linalg.cholesky(rows * covariance + jnp.diag(variances[1:]))
    missed = setting.seen[1:] - blind - noise
    sums = jnp.append(rows, blind + rows * covariance @ cho_solve((both, True), missed))
    kept = is_feasible(setting, sums)
    return jnp.where(kept, rows, state.rows), jnp.where(kept, sums, state.sums)


def _noise_variances(
    setting: LinearProblem, sums: jax.Array, normals: jax.Array, uniforms: jax.Array
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


def _move_row_count(
    setting: LinearProblem,
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


def _shift_jointly(setting: LinearProblem, random: _SweepDraws, state: _ChainState) -> _ChainState:
    """Moves parameters, and sums with them such that the standardised sums stay the same."""
    centred = state.sums[1:] - state.rows * state.mean[1:]
    held = solve_triangular(state.factor, centred, lower=True)

    def attempt(state: _ChainState, given: tuple[jax.Array, jax.Array]) -> tuple[_ChainState, None]:
        normals, uniforms = given
        theta = _perturb(setting, state.theta, normals, uniforms[1:])
        mean, factor = statistic_moments(setting, theta)
        sums = jnp.append(state.rows, state.rows * mean[1:] + factor @ held)
        gain = log_prior(setting, theta) - log_prior(setting, state.theta)
        gain += setting.noise.log_density(setting.seen - sums)
        gain -= setting.noise.log_density(setting.seen - state.sums)
        accepted = (jnp.log(uniforms[0]) < gain) & is_feasible(setting, sums)
        moved = _ChainState(theta, mean, factor, state.rows, sums)
        return jax.tree.map(partial(jnp.where, accepted), moved, state), None

    return jax.lax.scan(attempt, state, random.for_shifts)[0]


def _perturb(
    setting: LinearProblem, theta: LinearParameters, normals: jax.Array, uniforms: jax.Array
) -> LinearParameters:
    """Moves some of the parameters, by steps of random scale."""
    count = setting.entries - 2
    scale = _MIN_SHIFT * (_MAX_SHIFT / _MIN_SHIFT) ** uniforms[0]
    step = jnp.where(uniforms[1:] < 0.5, scale * normals, 0.0)
    weights, variance, centre, factor = jnp.split(step, [count + 1, count + 2, 2 * count + 2])
    square = factor.reshape(count, count)
    diagonal = jnp.diag(jnp.diag(theta.factor) * jnp.exp(jnp.diag(square)))
    known = setting.prior.variance is not None
    return LinearParameters(
        theta.weights + weights,
        theta.log_variance + (0.0 if known else variance[0]),
        theta.centre + centre,
        jnp.tril(theta.factor + square, -1) + diagonal,
    )

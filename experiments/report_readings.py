"""Readings of the report's Figure 4.1: how it might scale the gradients of its private ascent.

The report says 50 local steps, rate 1e-5, one point a lot, clip 10, noise 1, and a divergence of
about 1e-3 in the end; not how the gradient of one point becomes that of the local free energy.
Here each way that its text allows is played on made-up data, in plain JAX and for the mean and the
log variance as it says (the engine takes the log deviation, which is twice as quick). And `by_author` has the
settings of the author's public program, which the text does not state.
"""

import jax
import jax.numpy as jnp
import numpy as np

NOISE_VARIANCE, PRIOR_PRECISION = 0.25, 0.04
CLIP, POINTS, SITES, STEPS = 10.0, 10, 5, 50

# Each: what a point's gradient is times, what share of the terms without data is clipped with it,
# what share is added after, and what the noisy sum is times.
READINGS = {
    "sum over rows; noise scaled with it": (1.0, 0.0, 1.0, POINTS),
    "mean over rows (Algorithm 1)": (1.0, 1 / POINTS, 0.0, 1.0),
    "whole energy from one point, clipped": (POINTS, 1.0, 0.0, 1.0),
    "that point as if it were the site": (1.0, 1.0, 0.0, 1.0),
    "clipped first, noise not scaled (*)": (1.0, 0.0, 1.0, 1.0),
}
UNSCALED = "clipped first, noise not scaled (*)"  # not private at the epsilon that is printed


def ascent(numbers, rate, half, x, y, key, rounds):
    """Divergence from the exact posterior, and q, after each round; for one data set [sites, points].

    ``numbers`` are those of a reading, and what a clipped gradient is times before noise is added.
    """
    times, inside, outside, after, lift = numbers

    def step(state, given, cavity, x, y):
        (mean, log_variance), (point, normal) = state, given
        variance = jnp.exp(log_variance)
        precision = x[point] ** 2 / NOISE_VARIANCE
        slope = x[point] * y[point] / NOISE_VARIANCE - precision * mean
        data = jnp.stack([slope, -half * precision * variance])
        rest = jnp.stack([cavity[1] - cavity[0] * mean, 0.5 - half * cavity[0] * variance])
        one = times * data + inside * rest
        one = one / jnp.maximum(jnp.linalg.norm(one) / CLIP, 1)
        move = after * (lift * one + CLIP * normal) + outside * rest
        return (mean + rate * move[0], log_variance + rate * move[1]), None

    def site(state, given):
        (q, factors), (i, key) = state, given
        start, cavity = (q[1] / q[0], -jnp.log(q[0])), q - factors[i]
        first, second = jax.random.split(key)
        points = jax.random.randint(first, (STEPS,), 0, POINTS)
        normals = jax.random.normal(second, (STEPS, 2))
        (mean, log_variance), _ = jax.lax.scan(
            lambda s, g: step(s, g, cavity, x[i], y[i]), start, (points, normals)
        )
        new = jnp.exp(-log_variance) * jnp.stack([jnp.ones(()), mean])
        return (new, factors.at[i].add(new - q)), None

    def round_of(state, key):
        state, _ = jax.lax.scan(site, state, (jnp.arange(SITES), jax.random.split(key, SITES)))
        return state, state[0]

    prior = jnp.array([PRIOR_PRECISION, 0.0])
    start = prior, jnp.zeros((SITES, 2))
    _, path = jax.lax.scan(round_of, start, jax.random.split(key, rounds))
    return _divergence(path, x, y), path


LOG_VARIANCE_RATE = 1e-2  # a thousand times the mean's
THRESHOLD = 1000.0  # of each noisy gradient (Section 4.2.1)


def by_author(x, y, *, rate, rounds, seed=1):
    """Divergence and q after every round with the settings of the author's program: [sets, rounds].

    All sites answer at once. A step has one random point: the gradient of its log-likelihood and of a tenth of the
    rest, for mean and variance, is clipped and noised as one, and the variance's is then multiplied by the variance.
    Both are cut back to a threshold. The log variance has a rate of its own, and the precision of a factor is kept
    from being negative. The start is the prior.
    """

    def step(state, given, cavity, x, y):
        (mean, log_variance), (point, normal) = state, given
        variance = jnp.exp(log_variance)
        precision = x[point] ** 2 / NOISE_VARIANCE
        data = jnp.stack([x[point] * y[point] / NOISE_VARIANCE - precision * mean, -precision / 2])
        rest = jnp.stack([cavity[1] - cavity[0] * mean, (1 / variance - cavity[0]) / 2])
        one = data + rest / POINTS
        noisy = one / jnp.maximum(jnp.linalg.norm(one) / CLIP, 1) + CLIP * normal
        move = jnp.clip(noisy * jnp.stack([1.0, variance]), -THRESHOLD, THRESHOLD)
        return (mean + rate * move[0], log_variance + LOG_VARIANCE_RATE * move[1]), None

    def site(q, factor, key, x, y):
        first, second = jax.random.split(key)
        points = jax.random.randint(first, (STEPS,), 0, POINTS)
        given = points, jax.random.normal(second, (STEPS, 2))
        start = q[1] / q[0], -jnp.log(q[0])
        (mean, log_variance), _ = jax.lax.scan(
            lambda s, g: step(s, g, q - factor, x, y), start, given
        )
        new = factor + jnp.exp(-log_variance) * jnp.stack([jnp.ones(()), mean]) - q
        return new.at[0].set(jnp.maximum(new[0], 0))

    def play(x, y, key):
        prior = jnp.array([PRIOR_PRECISION, 0.0])

        def round_of(factors, key):
            q = prior + factors.sum(axis=0)
            keys = jax.random.split(key, SITES)
            factors = jax.vmap(site, (None, 0, 0, 0, 0))(q, factors, keys, x, y)
            return factors, prior + factors.sum(axis=0)

        start = jnp.zeros((SITES, 2))
        _, path = jax.lax.scan(round_of, start, jax.random.split(key, rounds))
        return _divergence(path, x, y), path

    with jax.enable_x64(True):
        keys = jax.random.split(jax.random.key(seed), len(x))
        gaps, paths = jax.jit(jax.vmap(play))(jnp.asarray(x), jnp.asarray(y), keys)
    return np.asarray(gaps), np.asarray(paths)


def _divergence(path, x, y):
    """KL(q, exact) along a path of natural parameters, for one data set."""
    precision = PRIOR_PRECISION + jnp.sum(x * x) / NOISE_VARIANCE
    mean = jnp.sum(x * y) / NOISE_VARIANCE / precision
    ratio, away = precision / path[:, 0], path[:, 1] / path[:, 0] - mean
    return (ratio + precision * away**2 - 1 - jnp.log(ratio)) / 2


def made_up(sets, seed=0):
    """Inputs and outcomes of so many data sets: [sets, sites, points]."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(sets, SITES, POINTS))
    return x, 2 * x + np.sqrt(NOISE_VARIANCE) * rng.normal(size=x.shape)


def played(readings, ways, *, sets, rounds):
    """For each reading and way, divergence and q after every round: [sets, rounds] and one more axis.

    ``ways`` are pairs of a rate and the factor of eq. 4.17, 0.5 or as printed 1. All have the same noise.
    """
    x, y = made_up(sets)
    numbers = np.array([[*READINGS[r], POINTS if r == UNSCALED else 1.0] for r in readings])
    rates, halves = np.array(list(ways.values())).T

    def play(numbers, rate, half, x, y, key):
        return ascent(numbers, rate, half, x, y, key, rounds)

    every = jax.vmap(play, (None, None, None, 0, 0, 0))
    every = jax.vmap(every, (None, 0, 0, None, None, None))
    every = jax.vmap(every, (0, None, None, None, None, None))
    with jax.enable_x64(True):
        keys = jax.random.split(jax.random.key(0), sets)
        gaps, paths = map(np.asarray, jax.jit(every)(numbers, rates, halves, x, y, keys))
    return {
        (r, way): (gaps[i, j], paths[i, j])
        for i, r in enumerate(readings)
        for j, way in enumerate(ways)
    }

"""Private regressions of the literature, to compare with: SSP, AdaSSP and noisy gradient descent.

Each gets all of the budget, by the accounting that Tacit uses itself, under add-remove. A row of
the design matrix is ``x``; rows longer than ``radius`` are shortened together with their outcome,
which weights them less and biases nothing in a linear model. Outcomes of linear models are within
[-1, 1]. Settings are tuned by the rows that the benchmark scores, which no analyst could do.
"""

import itertools
from functools import cache

import numpy as np

from tacit.accounting import calibrate

STEPS, CLIPS = (30, 100, 300), (0.5, 1.0, 2.0, 4.0)
RATES = 2.0 ** np.arange(-2, 6)  # of the mean gradient
RADII = (1.0, 0.75, 0.5, 0.35)  # as shares of the longest row that a schema allows
RIDGES = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)  # over the noise of an entry of X'X
_ALPHA = 0.05  # AdaSSP's chance that its ridge is too small


@cache
def noise(budget, releases):
    """The standard deviation of Gaussian noise for a sensitivity of one, shared by releases."""
    return np.sqrt(releases) * calibrate.noise_multiplier(budget)


def _sums(x, y, radius, scale, rng):
    """X'X and X'y with noise: a row changes them by radius^2 and by radius at most."""
    weight = np.minimum(1, radius / np.linalg.norm(x, axis=1))
    x, y = weight[:, None] * x, weight * y
    above = np.triu(rng.standard_normal((x.shape[1],) * 2))
    square = x.T @ x + scale * radius**2 * (above + np.triu(above, 1).T)
    return x, square, x.T @ y + scale * radius * rng.standard_normal(x.shape[1])


def ssp(x, y, budget, rng, *, radius, ridge):
    """Least squares from noisy sums, with a ridge in units of the noise."""
    scale = noise(budget, 2)
    _, square, product = _sums(x, y, radius, scale, rng)
    return np.linalg.solve(square + ridge * scale * radius**2 * np.eye(len(product)), product)


def adassp(x, y, budget, rng, *, radius):
    """AdaSSP (Wang 2018, Algorithm 2): the ridge adapts to a private least eigenvalue.

    A third of the budget each goes to the eigenvalue, X'X and X'y. The paper's noise of
    sqrt(log(6 / delta)) / (epsilon / 3) is replaced by the smaller that the same budget needs.
    """
    scale, columns = noise(budget, 3), x.shape[1]
    x, square, product = _sums(x, y, radius, scale, rng)
    least = np.linalg.eigvalsh(x.T @ x)[0] + scale * radius**2 * rng.standard_normal()
    least = max(least - scale * radius**2 * np.sqrt(np.log(6 / budget.delta)), 0)
    needed = scale * radius**2 * np.sqrt(columns * np.log(2 * columns**2 / _ALPHA))
    return np.linalg.solve(square + max(0, needed - least) * np.eye(columns), product)


def descent(x, y, budget, rng, *, steps, clip, rates):
    """Logistic regression by full-batch noisy gradient descent, for all rates side by side.

    Returns the mean of the second half of the iterates, [columns, rates].
    """
    scale, rates = noise(budget, steps) * clip, np.asarray(rates, np.float32)
    x, most = x.astype(np.float32), (clip / np.linalg.norm(x, axis=1)).astype(np.float32)
    weights = np.zeros((x.shape[1], len(rates)), np.float32)
    total = np.zeros_like(weights)
    for step in range(steps):
        residual = 1 / (1 + np.exp(-np.clip(x @ weights, -30, 30))) - y[:, None].astype(np.float32)
        clipped = np.clip(
            residual, -most[:, None], most[:, None]
        )  # the gradient is residual times x
        gradient = x.T @ clipped + scale * rng.standard_normal(weights.shape, np.float32)
        weights -= rates / len(x) * gradient
        if step >= steps // 2:
            total += weights
    return total.astype(float) / (steps - steps // 2)


def _best(fits, loss):
    """The settings with the smallest mean loss. ``fits`` has lists of coefficients by settings."""
    return min(fits, key=lambda settings: np.mean([loss(each) for each in fits[settings]]))


def linear(x, y, budget, repeats, seed, longest, loss):
    """Coefficients by each method for each repeat, and the settings that won in forty other repeats."""
    grids = {
        "AdaSSP": (adassp, [{"radius": r * longest} for r in RADII]),
        "SSP": (
            ssp,
            [{"radius": r * longest, "ridge": k} for r, k in itertools.product(RADII, RIDGES)],
        ),
    }
    found = {}
    for name, (fit, grid) in grids.items():

        def fits(settings, purpose, count, fit=fit):
            generators = (np.random.default_rng([seed, purpose, i]) for i in range(count))
            return [fit(x, y, budget, rng, **settings) for rng in generators]

        tried = {tuple(settings.items()): fits(settings, 0, 40) for settings in grid}
        best = dict(_best(tried, loss))
        found[name] = fits(best, 1, repeats), best
    return found


def logistic(x, y, budget, repeats, seed, loss):
    """Coefficients by DP-SGD for each repeat, and the settings that won in three other repeats."""
    fits = {}
    for steps, clip in itertools.product(STEPS, CLIPS):
        rng = np.random.default_rng([seed, steps, round(100 * clip)])
        tried = descent(x, y, budget, rng, steps=steps, clip=clip, rates=np.repeat(RATES, 3))
        for i, rate in enumerate(RATES):
            fits[steps, clip, rate] = tried.T[3 * i : 3 * i + 3]
    steps, clip, rate = _best(fits, loss)
    rng = np.random.default_rng([seed, 1])
    final = descent(x, y, budget, rng, steps=steps, clip=clip, rates=np.full(repeats, rate))
    return {"DP-SGD": (list(final.T), {"steps": steps, "clip": clip, "rate": float(rate)})}

"""Private regressions of the literature, as short as they can be written, to run beside Tacit.

All get the whole budget by the accounting that Tacit uses itself: several Gaussian releases cost as one of larger noise.
Rows are shortened to ``radius``; outcomes of linear models are within [-1, 1], those of logistic ones 0 or 1.
Neighbours differ in one row that is added or removed.
"""

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from tacit.accounting import calibrate


def noise(budget, releases):
    """Standard deviation of Gaussian noise for a sensitivity of one, for each of so many releases."""
    return releases**0.5 * calibrate.noise_multiplier(budget)


def shortened(x, radius):
    """Rows no longer than the radius."""
    return x * np.minimum(1, radius / np.maximum(np.linalg.norm(x, axis=1), 1e-12))[:, None]


def _symmetric(size, rng):
    above = np.triu(rng.standard_normal((size, size)))
    return above + np.triu(above, 1).T


def ssp(x, y, budget, rng, *, ridge):
    """Sufficient statistics (SSP) in one joint Gaussian release; rows have norm 1 at most.

    ``ridge`` is in units of the noise of an entry. X'X above the diagonal and X'y move by one each.
    """
    scale, size = noise(budget, 2), x.shape[1]
    square = x.T @ x + scale * _symmetric(size, rng)
    product = x.T @ y + scale * rng.standard_normal(size)
    return np.linalg.solve(square + ridge * scale * np.eye(size), product)


def adassp(x, y, budget, rng, *, alpha=0.05):
    """AdaSSP (Wang 2018, Algorithm 2), with tight accounting of its three releases."""
    scale, size = noise(budget, 3), x.shape[1]
    least = np.linalg.eigvalsh(x.T @ x)[0] + scale * rng.standard_normal()
    least = max(least - scale * np.sqrt(np.log(6 / budget.delta)), 0)
    needed = scale * np.sqrt(size * np.log(2 * size**2 / alpha))
    square = x.T @ x + scale * _symmetric(size, rng) + max(0, needed - least) * np.eye(size)
    return np.linalg.solve(square, x.T @ y + scale * rng.standard_normal(size))


def descent(x, y, budget, rng, *, steps, clip, rates):
    """DP-SGD on all rows for several rates side by side: the mean of the second half of the iterates."""
    scale, rates = noise(budget, steps) * clip, np.asarray(rates, np.float32)
    x = x.astype(np.float32)
    most = (clip / np.linalg.norm(x, axis=1)).astype(np.float32)[:, None]
    weights = np.zeros((x.shape[1], len(rates)), np.float32)
    total = np.zeros_like(weights)
    for step in range(steps):
        residual = expit(x @ weights) - y[:, None].astype(np.float32)
        gradient = x.T @ np.clip(residual, -most, most)
        noisy = gradient + scale * rng.standard_normal(weights.shape, np.float32)
        weights -= rates / len(x) * noisy
        total += weights * (step >= steps // 2)
    return total.astype(float) / (steps - steps // 2)


def objective(x, y, budget, rng, *, radius):
    """Objective perturbation with Gaussian noise (Kifer, Smith and Thakurta 2012, Algorithm 1), for logistic regression."""
    x = shortened(x, radius)
    epsilon, delta = budget.epsilon, budget.delta
    shrink = radius**2 / 2 / epsilon  # twice the largest curvature of a row, over epsilon
    spread = radius * np.sqrt(8 * np.log(2 / delta) + 4 * epsilon) / epsilon
    pull, signs = spread * rng.standard_normal(x.shape[1]), 2 * y - 1

    def loss(w):
        at = signs * (x @ w)
        value = np.logaddexp(0, -at).sum() + shrink / 2 * w @ w + pull @ w
        return value, -x.T @ (signs * expit(-at)) + shrink * w + pull

    return minimize(loss, np.zeros(x.shape[1]), jac=True, method="L-BFGS-B").x


def newton(x, y, budget, rng, *, radius, steps):
    """Newton's method with noise on gradient and Hessian (Avella-Medina, Bradshaw and Loh 2023), with a N(0, 1) prior."""
    x, size = shortened(x, radius), x.shape[1]
    scale, weights = noise(budget, 2 * steps), np.zeros(x.shape[1])
    floor = scale * radius**2 / 4 * np.sqrt(size)  # about the noise's own largest eigenvalue
    for _ in range(steps):
        chances = expit(x @ weights)
        gradient = x.T @ (y - chances) + scale * radius * rng.standard_normal(size)
        bent = (x * (chances * (1 - chances))[:, None]).T @ x
        bent += scale * radius**2 / 4 * _symmetric(size, rng)
        values, vectors = np.linalg.eigh(bent)
        move = vectors.T @ (gradient - weights) / (np.maximum(values, floor) + 1)
        weights = weights + vectors @ move
    return weights

"""The mixture of two means: the model, made-up rows, its true posterior, and exact chains."""

import math

import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm
from scipy.special import expit, logsumexp

from tacit import Model
from tacit.models import Parameter


def two_means():
    """Half the rows around theta_1, half around theta_1 + theta_2, with variance 2.

    A column ``x``; priors N(0, 10) and N(0, 1). The posterior has two modes, so it is a common test
    of samplers (Welling and Teh 2011; Heikkilä et al. 2019, Section 4).
    """

    def log_likelihood(p, row):
        places = jnp.stack([p["theta"][0], p["theta"].sum()])
        parts = norm.logpdf(row["x"], places, math.sqrt(2))
        return jnp.logaddexp(parts[0], parts[1]) - math.log(2)

    def log_prior(p):
        return jnp.sum(norm.logpdf(p["theta"], 0, jnp.array([math.sqrt(10), 1])))

    parameters = {"theta": Parameter((2,))}
    return Model(
        parameters=parameters, log_prior=log_prior, log_likelihood=log_likelihood
    ).unit_model


def mixture_rows(units, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(rng.integers(0, 2, units), math.sqrt(2))


def mixture_grid(x, counted, power=1):
    """The tempered posterior raised to a power, over a grid of theta: both axes, and weights.

    Rows are counted in narrow bins.
    """
    counts, edges = np.histogram(x, bins=500)
    centres, shares = (edges[1:] + edges[:-1]) / 2, counts / len(x)
    first, second = np.linspace(-2, 3, 241), np.linspace(-4.5, 4.5, 361)
    one = np.exp(-((centres - first[:, None]) ** 2) / 4)
    log_density = np.empty((len(first), len(second)))
    for i, place in enumerate(first):
        two = np.exp(-((centres - place - second[:, None]) ** 2) / 4)
        fit = counted * (np.log(one[i] + two) @ shares)
        log_density[i] = power * (fit - place**2 / 20 - second**2 / 2)
    weights = np.exp(log_density - log_density.max())
    weights /= weights.sum()
    edge = max(weights[0].max(), weights[-1].max(), weights[:, 0].max(), weights[:, -1].max())
    assert edge < 1e-9 * weights.max(), "the grid is too narrow"
    return first, second, weights


def mixture_moments(x, counted, power=1):
    """Mean and variance of the tempered posterior raised to a power."""
    return grid_moments(*mixture_grid(x, counted, power))


def grid_moments(first, second, weights):
    """Mean and variance of what `mixture_grid` returns."""
    values, margins = (first, second), (weights.sum(axis=1), weights.sum(axis=0))
    means = np.array([w @ v for v, w in zip(values, margins, strict=True)])
    squares = np.array([w @ v**2 for v, w in zip(values, margins, strict=True)])
    return means, squares - means**2


def grid_draws(first, second, weights, count, rng):
    """Independent draws of theta, spread evenly over the cells of the grid."""
    cells = rng.choice(weights.size, count, p=weights.ravel())
    at = np.stack([first[cells // len(second)], second[cells % len(second)]], axis=1)
    widths = first[1] - first[0], second[1] - second[0]
    return at + (rng.random((count, 2)) - 0.5) * widths


def log_likelihoods(x, theta):
    """Of each row at each of several theta, but for a constant."""
    places = np.stack([theta[:, 0], theta.sum(axis=1)])
    return logsumexp(-((x - places[..., None]) ** 2) / 4, axis=0)


def exact_chains(x, counted, steps, scale, count, start, seed=0):
    """Chains of exact Barker tests on all rows, without privacy: shape (count, steps, 2).

    Rows are counted in 400 bins, which is as good as exact and a thousand times faster.
    """
    counts, edges = np.histogram(x, bins=400)
    centres, shares = (edges[1:] + edges[:-1]) / 2, counted * counts / len(x)
    rng = np.random.default_rng(seed)

    def log_posterior(theta):
        one = np.exp(-((centres - theta[:, :1]) ** 2) / 4)
        two = np.exp(-((centres - theta.sum(axis=1, keepdims=True)) ** 2) / 4)
        return np.log(one + two) @ shares - theta[:, 0] ** 2 / 20 - theta[:, 1] ** 2 / 2

    theta = np.tile(np.asarray(start, float), (count, 1))
    now, chain = log_posterior(theta), np.empty((steps, count, 2))
    for step in range(steps):
        proposed = theta + scale * rng.normal(size=theta.shape)
        then = log_posterior(proposed)
        accepted = rng.random(count) < expit(then - now)
        theta = np.where(accepted[:, None], proposed, theta)
        now = np.where(accepted, then, now)
        chain[step] = theta
    return chain.swapaxes(0, 1)

"""Rows for the mixture of two means (`tacit.models.mixture`), and its true posterior."""

import math

import numpy as np


def mixture_rows(units, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(rng.integers(0, 2, units), math.sqrt(2))


def mixture_moments(x, counted, power=1):
    """Mean and variance of the tempered posterior raised to a power.

    By a grid over theta, with rows counted in narrow bins.
    """
    counts, edges = np.histogram(x, bins=2000)
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
    values, margins = (first, second), (weights.sum(axis=1), weights.sum(axis=0))
    means = np.array([w @ v for v, w in zip(values, margins, strict=True)])
    squares = np.array([w @ v**2 for v, w in zip(values, margins, strict=True)])
    return means, squares - means**2

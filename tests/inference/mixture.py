"""The two-component mixture of Welling and Teh 2011, and its posterior by a grid."""

import jax.numpy as jnp
import numpy as np

from tacit import Model, Parameter

TEMPERED_SIZE = 100


def data(size, seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 2, size=size) + np.sqrt(2) * rng.normal(size=size)


def mixture():
    def log_likelihood(p, row):
        first, second = row["x"] - p["theta"][0], row["x"] - p["theta"].sum()
        return jnp.logaddexp(-(first**2) / 4, -(second**2) / 4)

    return Model(
        parameters={"theta": Parameter((2,))},
        log_prior=lambda p: -(p["theta"][0] ** 2) / 20 - p["theta"][1] ** 2 / 2,
        log_likelihood=log_likelihood,
    )


def grid_moments(x, tempered_size=TEMPERED_SIZE, points=161):
    """Mean and variance of the tempered posterior. Rows are binned: they are many."""
    count, edges = np.histogram(x, bins=400)
    middle = (edges[1:] + edges[:-1]) / 2
    first, second = np.linspace(-2, 3, points), np.linspace(-4, 4, points)
    a, b = (g.ravel()[:, None] for g in np.meshgrid(first, second, indexing="ij"))
    terms = np.logaddexp(-((middle - a) ** 2) / 4, -((middle - a - b) ** 2) / 4)
    log = tempered_size / len(x) * terms @ count - a[:, 0] ** 2 / 20 - b[:, 0] ** 2 / 2
    weights = np.exp(log - log.max())
    weights /= weights.sum()
    grid = np.concatenate([a, b], axis=1)
    mean = weights @ grid
    return mean, weights @ (grid - mean) ** 2

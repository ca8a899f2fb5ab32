"""A fitted posterior: draws of named parameters, and what they cost."""

from collections.abc import Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tacit.results.statement import PrivacyStatement


@dataclass(frozen=True, kw_only=True)
class Posterior:
    """Draws from an approximate posterior, with its privacy statement.

    ``unconstrained_mean`` and ``unconstrained_covariance`` are the Gaussian that was fitted;
    ``draws`` are of the model's own parameters. ``trace`` has every step of the fit:
    released values, free to look at. No reference to a row survives in here.
    """

    draws: Mapping[str, NDArray[np.floating]]
    unconstrained_mean: NDArray[np.floating]
    unconstrained_covariance: NDArray[np.floating]
    trace: Mapping[str, NDArray[np.floating]]
    settled_from: int | None
    averaged: bool
    privacy: PrivacyStatement

    @property
    def settled(self) -> bool:
        """Whether the fit had stopped drifting before it ended."""
        return self.settled_from is not None

    def mean(self) -> dict[str, NDArray[np.floating]]:
        """Posterior means."""
        return {name: draws.mean(axis=0) for name, draws in self.draws.items()}

    def sd(self) -> dict[str, NDArray[np.floating]]:
        """Posterior standard deviations."""
        return {name: draws.std(axis=0) for name, draws in self.draws.items()}


def draw_gaussian(key: jax.Array, mean: jax.Array, covariance: jax.Array, count: int) -> jax.Array:
    """Draws from the fitted Gaussian."""
    return jax.random.multivariate_normal(key, mean, covariance, (count,), method="svd")


def as_numpy(tree: Mapping[str, jax.Array]) -> dict[str, NDArray[np.floating]]:
    """Host copies, so that a result holds no device memory."""
    return {name: np.asarray(jnp.asarray(value)) for name, value in tree.items()}

"""Gaussian variational families on the unconstrained space."""

import math
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp

from tacit import _validate

Params = dict[str, jax.Array]


@runtime_checkable
class Guide(Protocol):
    """A family of distributions: theta is a smooth function of parameters and standard normals."""

    def start(self, dimension: int) -> Params:
        """Parameters to begin with, around zero."""
        ...

    def moved(self, params: Params, centre: jax.Array) -> Params:
        """The same around another centre."""
        ...

    def noise_size(self, dimension: int) -> int:
        """How many standard normals one draw takes."""
        ...

    def draw(self, params: Params, noise: jax.Array) -> jax.Array:
        """One draw."""
        ...

    def entropy(self, params: Params, noise: jax.Array) -> jax.Array:
        """Entropy up to a constant, or what estimates it without bias from one draw's noise."""
        ...

    def covariance(self, params: Params) -> jax.Array | None:
        """Covariance matrix around ``params["mean"]``, or None if this is no Gaussian."""
        ...


class _Gaussian:
    """What the Gaussian families share."""

    def moved(self, params: Params, centre: jax.Array) -> Params:
        return params | {"mean": jnp.asarray(centre, jnp.float32)}


@dataclass(frozen=True, kw_only=True)
class MeanField(_Gaussian):
    """A Gaussian with independent coordinates.

    Args:
        start_scale: Initial standard deviation of every coordinate.
    """

    start_scale: float = 0.1

    def start(self, dimension: int) -> Params:
        level = math.log(_validate.positive("start_scale", self.start_scale))
        return {"mean": jnp.zeros(dimension), "log_scale": jnp.full(dimension, level)}

    def noise_size(self, dimension: int) -> int:
        return dimension

    def draw(self, params: Params, noise: jax.Array) -> jax.Array:
        return params["mean"] + jnp.exp(params["log_scale"]) * noise

    def entropy(self, params: Params, noise: jax.Array) -> jax.Array:  # noqa: ARG002
        return params["log_scale"].sum()

    def covariance(self, params: Params) -> jax.Array:
        return jnp.diag(jnp.exp(2 * params["log_scale"]))


@dataclass(frozen=True, kw_only=True)
class FullRank(_Gaussian):
    """A Gaussian with any covariance, by its Cholesky factor.

    Args:
        start_scale: Initial standard deviation of every coordinate.
    """

    start_scale: float = 0.1

    def start(self, dimension: int) -> Params:
        below = jnp.zeros((dimension, dimension))
        return MeanField(start_scale=self.start_scale).start(dimension) | {"below": below}

    def noise_size(self, dimension: int) -> int:
        return dimension

    def _factor(self, params: Params) -> jax.Array:
        return jnp.tril(params["below"], -1) + jnp.diag(jnp.exp(params["log_scale"]))

    def draw(self, params: Params, noise: jax.Array) -> jax.Array:
        return params["mean"] + self._factor(params) @ noise

    def entropy(self, params: Params, noise: jax.Array) -> jax.Array:  # noqa: ARG002
        return params["log_scale"].sum()

    def covariance(self, params: Params) -> jax.Array:
        factor = self._factor(params)
        return factor @ factor.T


@dataclass(frozen=True, kw_only=True)
class LowRank(_Gaussian):
    """A Gaussian with a diagonal plus low-rank covariance.

    Args:
        rank: The rank of the second part.
        start_scale: Initial standard deviation of every coordinate.
    """

    rank: int
    start_scale: float = 0.1

    def start(self, dimension: int) -> Params:
        rank = _validate.count("rank", self.rank)
        directions = self.start_scale * small_directions(dimension, rank)
        return MeanField(start_scale=self.start_scale).start(dimension) | {"directions": directions}

    def noise_size(self, dimension: int) -> int:
        return dimension + self.rank

    def draw(self, params: Params, noise: jax.Array) -> jax.Array:
        size = params["mean"].shape[0]
        spread = jnp.exp(params["log_scale"]) * noise[:size]
        return params["mean"] + spread + params["directions"] @ noise[size:]

    def entropy(self, params: Params, noise: jax.Array) -> jax.Array:  # noqa: ARG002
        scaled = params["directions"] * jnp.exp(-params["log_scale"])[:, None]
        inner = jnp.eye(self.rank) + scaled.T @ scaled
        total: jax.Array = params["log_scale"].sum() + 0.5 * jnp.linalg.slogdet(inner)[1]
        return total

    def covariance(self, params: Params) -> jax.Array:
        spread = jnp.diag(jnp.exp(2 * params["log_scale"]))
        return spread + params["directions"] @ params["directions"].T


def flat_size(params: Any) -> int:
    """How many numbers a guide's parameters are."""
    return sum(leaf.size for leaf in jax.tree.leaves(params))


def small_directions(dimension: int, rank: int) -> jax.Array:
    """Small and different in every direction, so that symmetry does not hold them at zero."""
    angles = jnp.arange(dimension * rank, dtype=jnp.float32).reshape(dimension, rank)
    return 0.1 * jnp.sin(1.0 + 1.7 * angles)

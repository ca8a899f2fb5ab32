"""Coordinates in which a model's prior has mean zero and spread one. Found without data."""

from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tacit.errors import InvalidArgument
from tacit.inference.hmc import last_of_chains
from tacit.models.base import AnyModel, DrawsPrior

_DRAWS = 2000
_FAR = 2.5  # robust standard deviations beyond which a draw counts no more
_PLACES = 4  # where curvatures are compared
Vector = NDArray[np.float64]


class Whitened(NamedTuple):
    """The unconstrained vector is ``mean + scale @ w``; ``quadratic`` if the prior of w is normal."""

    mean: Vector
    scale: NDArray[np.float64]
    quadratic: bool


@lru_cache(maxsize=32)
def whitened(model: AnyModel) -> Whitened:
    """The coordinates of a model, by its prior alone."""
    normal = _normal_prior(model)
    if normal is not None:
        return normal
    draws = prior_draws(model)
    draws = draws[np.isfinite(draws).all(axis=1)]
    low, mean, high = np.quantile(draws, [0.16, 0.5, 0.84], axis=0)
    spread = np.maximum((high - low) / 2, 1e-6)
    near = np.clip((draws - mean) / spread, -_FAR, _FAR)
    together = np.corrcoef(near.T).reshape(model.dimension, -1)
    root = np.linalg.cholesky(0.99 * together + 0.01 * np.eye(model.dimension))
    return Whitened(mean, spread[:, None] * root, quadratic=False)


def _normal_prior(model: AnyModel) -> Whitened | None:
    """The prior's own mean and spread if it is normal on the unconstrained scale, else None."""
    curvature = jax.jit(jax.hessian(model.prior_density))
    slope = jax.jit(jax.grad(model.prior_density))
    places = np.random.default_rng(0).normal(size=(_PLACES, model.dimension)).astype(np.float32)
    places[0] = 0
    found = [np.asarray(curvature(jnp.asarray(p), model.constants), np.float64) for p in places]
    first = -(found[0] + found[0].T) / 2
    size = np.abs(first).max()
    if not np.isfinite(found).all() or any(
        np.abs(-each - first).max() > 1e-4 * size for each in found
    ):
        return None
    if np.linalg.eigvalsh(first)[0] <= 1e-9 * size:
        return None
    at_zero = np.asarray(slope(jnp.asarray(places[0]), model.constants), np.float64)
    mean = np.asarray(np.linalg.solve(first, at_zero), np.float64)
    return Whitened(mean, np.linalg.cholesky(np.linalg.inv(first)), quadratic=True)


def prior_draws(model: AnyModel) -> NDArray[np.float64]:
    """Draws of the unconstrained vector from the prior: of the model's own, or by a sampler."""
    key = jax.random.key(0)
    if isinstance(model, DrawsPrior):
        try:
            drawn = jax.jit(jax.vmap(model.prior_vector))(jax.random.split(key, _DRAWS))
        except NotImplementedError:
            raise InvalidArgument(
                "Scoring needs a proper prior, whose mean and spread it starts from, and NumPyro "
                "cannot draw from this model's; give every parameter a proper prior, or use "
                "tacit.Variational()."
            ) from None
        return np.asarray(drawn, np.float64)
    starts = jax.random.normal(key, (_DRAWS // 2, model.dimension))
    roots = jnp.broadcast_to(jnp.eye(model.dimension), (len(starts), *[model.dimension] * 2))
    nothing = jnp.zeros((len(starts), 0))
    ends = last_of_chains(_prior_of(model), nothing, model.constants, starts, roots, key, 200)
    return np.asarray(ends, np.float64)


@lru_cache(maxsize=32)
def _prior_of(model: AnyModel) -> Any:
    return lambda place, _, constants: model.prior_density(place, constants)

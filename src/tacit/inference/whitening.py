"""Coordinates in which a model's prior has mean zero and spread one. Found without data.

If the prior is not Gaussian and the model cannot draw from it, its draws come from many short Hamiltonian chains side
by side, `final_states`, which `tacit.inference.scoring_posterior` uses too.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tacit._compile import jit, stored_jit
from tacit._typing import ArrayTree
from tacit.errors import InvalidArgument
from tacit.models.base import UnitModel

# Leapfrog steps of a proposal, and the share of proposals to accept.
_LEAPFROG_STEPS, _TARGET_ACCEPTANCE = 12, 0.8


# What each chain has of its own, with a leading axis for chains; and what all share.
_Own = TypeVar("_Own")
_Shared = TypeVar("_Shared")
# Position, momentum, and gradient and log density at the position.
_Leap = tuple[jax.Array, jax.Array, jax.Array, jax.Array]


class Chains(NamedTuple):
    """The position of each chain, relative to its start, and the step size that all share."""

    position: jax.Array
    step: jax.Array


@partial(jax.jit, static_argnames=("density", "rounds"))
def final_states(
    density: Callable[[jax.Array, _Own, _Shared], jax.Array],
    given: _Own,
    shared: _Shared,
    starts: jax.Array,
    roots: jax.Array,
    key: jax.Array,
    rounds: int = 100,
) -> jax.Array:
    """The last states of chains that start at ``starts``: one draw of each.

    ``density(position, given, shared)`` is the log density of one chain, ``given`` having a leading
    axis for chains. ``roots`` are roots of approximate covariances of each chain. The step
    size is adapted in the first half, to all chains together.
    """

    def log_density(
        scaled_position: jax.Array, root: jax.Array, start: jax.Array, own: _Own
    ) -> jax.Array:
        # The model may compute in 64 bits; chains keep the type of their starts.
        value = density(start + root @ scaled_position, own, shared).astype(starts.dtype)
        return jnp.where(jnp.isfinite(value), value, -1e30)

    slope = jax.value_and_grad(log_density)

    def propose(
        position: jax.Array,
        momentum: jax.Array,
        step: jax.Array,
        root: jax.Array,
        start: jax.Array,
        own: _Own,
    ) -> tuple[jax.Array, jax.Array]:
        value, gradient = slope(position, root, start, own)
        before = value - 0.5 * momentum @ momentum

        def leap(_: jax.Array, at: _Leap) -> _Leap:
            position, momentum, gradient, _ = at
            momentum = momentum + 0.5 * step * gradient
            position = position + step * momentum
            value, gradient = slope(position, root, start, own)
            return position, momentum + 0.5 * step * gradient, gradient, value

        moved, momentum, _, value = jax.lax.fori_loop(
            0, _LEAPFROG_STEPS, leap, (position, momentum, gradient, value)
        )
        gain = value - 0.5 * momentum @ momentum - before
        return moved, jnp.where(jnp.isfinite(gain), gain, -jnp.inf)

    def turn(chains: Chains, x: tuple[jax.Array, jax.Array]) -> tuple[Chains, None]:
        index, key = x
        for_momentum, for_test, for_step = jax.random.split(key, 3)
        momentum = jax.random.normal(for_momentum, chains.position.shape, starts.dtype)
        # Every fourth round takes small steps, for chains that began where the density is steep.
        small = index % 4 == 1
        step = chains.step * jax.random.uniform(for_step, (), starts.dtype, 0.6, 1.2)
        step = step * jnp.where(small, 0.1, 1.0)
        moved, gain = jax.vmap(propose, in_axes=(0, 0, None, 0, 0, 0))(
            chains.position, momentum, step, roots, starts, given
        )
        accept = jnp.log(jax.random.uniform(for_test, gain.shape)) < gain
        share = jnp.minimum(1.0, jnp.exp(gain)).mean()
        changed = chains.step * jnp.exp(0.5 * (share - _TARGET_ACCEPTANCE) / (1 + index / 5) ** 0.5)
        position = jnp.where(accept[:, None], moved, chains.position)
        adapt = (index < rounds // 2) & ~small
        kept = jnp.where(adapt, changed.astype(starts.dtype), chains.step)
        return Chains(position, kept), None

    first = Chains(jnp.zeros_like(starts), jnp.asarray(0.2, starts.dtype))
    chains, _ = jax.lax.scan(turn, first, (jnp.arange(rounds), jax.random.split(key, rounds)))
    return starts + jnp.einsum("cij,cj->ci", roots, chains.position)


_PRIOR_DRAWS = 2000
_MAX_DEVIATION = 2.5  # robust standard deviations beyond which a draw counts no more
_HESSIAN_POINTS = 4  # where curvatures are compared
Vector = NDArray[np.float64]


class Whitening(NamedTuple):
    """The unconstrained vector is ``mean + scale @ w``; ``quadratic`` if the prior of w is normal."""

    mean: Vector
    scale: NDArray[np.float64]
    quadratic: bool


@lru_cache(maxsize=32)
def whiten_prior(model: UnitModel) -> Whitening:
    """The coordinates in which the prior of a model has mean zero and unit scale."""
    normal = _gaussian_prior(model)
    if normal is not None:
        return normal
    draws = prior_draws(model)
    draws = draws[np.isfinite(draws).all(axis=1)]
    low, mean, high = np.quantile(draws, [0.16, 0.5, 0.84], axis=0)
    spread = np.maximum((high - low) / 2, 1e-6)
    near = np.clip((draws - mean) / spread, -_MAX_DEVIATION, _MAX_DEVIATION)
    together = np.corrcoef(near.T).reshape(model.dimension, -1)
    root = np.linalg.cholesky(0.99 * together + 0.01 * np.eye(model.dimension))
    return Whitening(mean, spread[:, None] * root, quadratic=False)


def _gaussian_prior(model: UnitModel) -> Whitening | None:
    """The prior's own mean and spread if it is normal on the unconstrained scale, else None."""

    def derivatives(position: jax.Array, constants: ArrayTree) -> tuple[jax.Array, jax.Array]:
        slope = jax.grad(model.log_prior)
        return slope(position, constants), jax.jacfwd(slope)(position, constants)

    at = stored_jit(derivatives, model.program_key("prior"))
    positions = (
        np.random.default_rng(0).normal(size=(_HESSIAN_POINTS, model.dimension)).astype(np.float32)
    )
    positions[0] = 0
    slopes, curvatures = zip(*(at(p, model.constants) for p in positions), strict=True)
    found = np.asarray(curvatures, np.float64)
    first = -(found[0] + found[0].T) / 2
    size = np.abs(first).max()
    if not np.isfinite(found).all() or any(
        np.abs(-each - first).max() > 1e-4 * size for each in found
    ):
        return None
    if np.linalg.eigvalsh(first)[0] <= 1e-9 * size:
        return None
    at_zero = np.asarray(slopes[0], np.float64)
    mean = np.asarray(np.linalg.solve(first, at_zero), np.float64)
    return Whitening(mean, np.linalg.cholesky(np.linalg.inv(first)), quadratic=True)


def prior_draws(model: UnitModel) -> NDArray[np.float64]:
    """Draws of the unconstrained vector from the prior: of the model's own, or by a sampler."""
    key = jax.random.key(0)
    if model.sample_prior is not None:
        try:
            drawn = jit(jax.vmap(model.sample_prior))(jax.random.split(key, _PRIOR_DRAWS))
        except NotImplementedError:
            raise InvalidArgument(
                "Scoring needs a proper prior, whose mean and spread it starts from, and NumPyro "
                "cannot draw from this model's; give every parameter a proper prior, or use "
                "tacit.Variational()."
            ) from None
        return np.asarray(drawn, np.float64)
    starts = jax.random.normal(key, (_PRIOR_DRAWS // 2, model.dimension))
    roots = jnp.broadcast_to(jnp.eye(model.dimension), (len(starts), *[model.dimension] * 2))
    nothing = jnp.zeros((len(starts), 0))
    ends = final_states(_prior_density(model), nothing, model.constants, starts, roots, key, 200)
    return np.asarray(ends, np.float64)


@lru_cache(maxsize=32)
def _prior_density(
    model: UnitModel,
) -> Callable[[jax.Array, jax.Array, ArrayTree], jax.Array]:
    return lambda position, _, constants: model.log_prior(position, constants)

"""Effects that belong to one row or one person: summed or integrated out inside it.

Each such latent takes axes of a grid. A discrete one takes an axis with an entry for each of
its values, weighted by their probabilities. A continuous one takes an axis for each of its
numbers, which are standard normal deviates turned into draws of the effect. Over these the
integral is by evenly spaced nodes around the largest contribution, as wide as its curvature
says (adaptive quadrature): where that is depends on the row or person, and on no other.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from numpy.typing import NDArray
from numpyro import distributions as dist

from tacit.errors import InvalidArgument

# Points of a grid, by default and at most; nodes of an axis, by default at most and at least.
_USUAL_POINTS, _MOST_POINTS, _MOST_NODES, _FEWEST_NODES = 1024, 4096, 32, 7
_NEWTON_STEPS = 8
_WRAPPERS = (dist.ExpandedDistribution, dist.Independent, dist.MaskedDistribution)


@dataclass(frozen=True)
class Effect:
    """A latent of one row or person, and the axes of the grid it takes."""

    name: str
    values: int | None  # how many, if it is discrete
    size: int  # how many axes

    def at(self, fn: Any, points: jax.Array) -> jax.Array:
        """The latent's value at points [entries, size] of its axes, one for each plate entry."""
        if self.values is not None:
            support = fn.enumerate_support(expand=False)
            index = points[:, 0].astype(jnp.int32)
            return jnp.reshape(jnp.ravel(support)[index], fn.shape())
        return from_normal(fn, jnp.reshape(points, fn.shape()))

    def drawn(self, fn: Any, key: jax.Array) -> jax.Array:
        """A value of the latent at random, for one entry."""
        if self.values is not None:
            value: jax.Array = fn.sample(key)
            return value
        return self.at(fn, jax.random.normal(key, (1, self.size)))


def effect(name: str, fn: Any, entries: int) -> Effect:
    """How a latent can be summed or integrated out; refuses where it cannot."""
    if fn.support.is_discrete:
        if not fn.has_enumerate_support or fn.event_shape:
            raise InvalidArgument(
                f"Latent {name!r} is discrete without a finite list of values to sum over; "
                "write the sum into the model."
            )
        if math.prod(fn.batch_shape) != entries:
            raise InvalidArgument(
                f"Latent {name!r} is several discrete numbers for one row or person; give each "
                "its own site, or write the sum into the model."
            )
        return Effect(name, fn.enumerate_support(expand=False).shape[0], 1)
    size = math.prod(fn.shape()) // entries
    from_normal(fn, jnp.zeros(fn.shape()))  # refuses what cannot be drawn from normals
    return Effect(name, None, size)


def bare(fn: Any) -> Any:
    """A distribution without what only reshapes or masks it."""
    while isinstance(fn, _WRAPPERS):
        fn = fn.base_dist
    return fn


def from_normal(fn: Any, normal: jax.Array) -> jax.Array:
    """A draw from a continuous distribution, as a function of standard normal deviates."""
    fn = bare(fn)
    if isinstance(fn, dist.Normal):
        return jnp.asarray(fn.loc + fn.scale * normal)
    if isinstance(fn, dist.MultivariateNormal):
        return jnp.asarray(fn.loc + jnp.einsum("...ij,...j->...i", fn.scale_tril, normal))
    if isinstance(fn, dist.TransformedDistribution):
        value = from_normal(fn.base_dist, normal)
        for transform in fn.transforms:
            value = transform(value)
        return value
    try:
        return jnp.asarray(fn.icdf(jax.scipy.special.ndtr(normal)))
    except (NotImplementedError, ImportError):  # some quantiles need other libraries
        raise InvalidArgument(
            f"An effect that is {type(fn).__name__} cannot be integrated out; use a normal "
            "one, a transformed normal, or a distribution with quantiles (icdf)."
        ) from None


def points_of(effects: Sequence[Effect], nodes: int | None) -> tuple[Any, Any]:
    """Combinations of the discrete effects' values, and of nodes of the others.

    Refuses more than can be afforded.
    """
    axes = sum(each.size for each in effects if each.values is None)
    listed = math.prod(each.values or 1 for each in effects)
    if nodes is None:
        room = max(_USUAL_POINTS / listed, 1.0)
        nodes = min(int(room ** (1 / axes) + 1e-9), _MOST_NODES) if axes else 1
    if (axes and nodes < _FEWEST_NODES) or listed * nodes**axes > _MOST_POINTS:
        raise InvalidArgument(
            f"Integrating out {', '.join(each.name for each in effects)} takes too few nodes or "
            "too many points; use fewer effects, or write the integral into the model."
        )
    values = [np.arange(each.values) for each in effects if each.values is not None]
    return _combined(values), _combined([_spaced(nodes)] * axes)


def _combined(axes: Sequence[Any]) -> NDArray[np.float32]:
    """All combinations, [combinations, axes]; a single empty one if there are no axes."""
    if not axes:
        return np.zeros((1, 0), np.float32)
    grids = np.meshgrid(*axes, indexing="ij")
    return np.stack([each.ravel() for each in grids], axis=1).astype(np.float32)


def _spaced(count: int) -> NDArray[np.floating]:
    """Evenly spaced deviates: the rule for smooth integrands that vanish at both ends.

    What is cut off, exp(-reach^2 / 2), is what the spacing costs, exp(-2 pi^2 / spacing^2)
    (Trefethen and Weideman 2014).
    """
    reach = min(math.sqrt(math.pi * (count - 1)), 6.0)
    return np.linspace(-reach, reach, count)


def integrated(
    log_density: Callable[[jax.Array], jax.Array], effects: Sequence[Effect], nodes: int | None
) -> jax.Array:
    """The logarithm of a density with its effects summed and integrated out.

    ``log_density`` takes a point of the effects' axes, in their order, and includes the
    probabilities of discrete effects; the normal density of the other axes is added here.
    """
    listed, deviates = points_of(effects, nodes)
    order = _order(effects)

    def given(values: jax.Array) -> jax.Array:
        def joint(normal: jax.Array) -> jax.Array:
            point = jnp.concatenate([values, normal])[order]
            return log_density(point) - 0.5 * jnp.sum(normal**2)

        size = deviates.shape[1]
        if size == 0:
            return joint(jnp.zeros(0))
        centre, stretch = _peak(joint, size)
        terms = jax.vmap(lambda each: joint(centre + stretch @ each))(jnp.asarray(deviates))
        spacing = size * math.log((deviates[-1, -1] - deviates[0, -1]) / (_count(deviates) - 1))
        volume = jnp.log(jnp.abs(jnp.diag(stretch))).sum() + spacing
        found: jax.Array = logsumexp(terms) + volume - 0.5 * size * math.log(2 * math.pi)
        return found

    total: jax.Array = logsumexp(jax.vmap(given)(jnp.asarray(listed)))
    return total


def _count(deviates: NDArray[np.float32]) -> int:
    return len(np.unique(deviates[:, -1]))


def _order(effects: Sequence[Effect]) -> NDArray[np.int32]:
    """Where each axis of a point is among the values of discrete effects, then the deviates."""
    kinds = [each.values is None for each in effects for _ in range(each.size)]
    values, deviates = iter(range(len(kinds))), iter(range(kinds.count(False), len(kinds)))
    return np.array([next(deviates if normal else values) for normal in kinds], np.int32)


def _peak(joint: Callable[[jax.Array], jax.Array], size: int) -> tuple[jax.Array, jax.Array]:
    """Where a log density is largest, and a matrix that makes it round there.

    By Newton's steps, none longer than two and none uphill in curvature. Where the nodes lie
    is no part of the derivative with respect to parameters.
    """

    def curvature(normal: jax.Array) -> jax.Array:
        matrix = -jax.hessian(joint)(normal)
        matrix = jnp.where(jnp.isfinite(matrix).all(), matrix, jnp.eye(size))
        # At least a quarter in every direction, by a bound on the smallest eigenvalue.
        sides = jnp.abs(matrix).sum(axis=1) - jnp.abs(jnp.diag(matrix))
        lowest = jnp.min(jnp.diag(matrix) - sides)
        return matrix + jnp.maximum(0.25 - lowest, 0.0) * jnp.eye(size)

    def improve(_: Any, normal: jax.Array) -> jax.Array:
        slope = jax.grad(joint)(normal)
        slope = jnp.where(jnp.isfinite(slope).all(), slope, 0.0)
        step = jnp.linalg.solve(curvature(normal), slope)
        step = step / jnp.maximum(jnp.linalg.norm(step) / 2, 1.0)
        return jnp.asarray(jax.lax.stop_gradient(normal + step))

    centre = jax.lax.fori_loop(0, _NEWTON_STEPS, improve, jnp.zeros(size))
    lower = jnp.linalg.cholesky(curvature(centre))
    stretch = jax.scipy.linalg.solve_triangular(lower, jnp.eye(size), lower=True).T
    return centre, jax.lax.stop_gradient(stretch)

"""Effects of single rows or people, which are summed or integrated out.

Each effect has axes in a grid. A discrete effect has one axis, with an entry for each of its values,
weighted by their probabilities. A continuous effect has an axis for each of its numbers; points are
standard normal deviates, which are turned into values of the effect. The integral is by adaptive
quadrature: nodes are evenly spaced around the largest contribution, and their spacing follows from
its curvature. The nodes depend on the row or person itself, and on no other.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from numpy.typing import ArrayLike, NDArray
from numpyro import distributions as dist

from tacit.errors import InvalidArgument
from tacit.models.distributions import unwrap_distribution

# Points of a grid, by default and at most; nodes of an axis, by default at most and at least.
_DEFAULT_MAX_POINTS, _MAX_POINTS, _MAX_DEFAULT_NODES, _MIN_NODES = 1024, 4096, 32, 7
_NEWTON_STEPS = 8


@dataclass(frozen=True)
class RandomEffect:
    """A latent of one row or person.

    Attributes:
        name: Name of the latent.
        values: The number of its values, if it is discrete.
        size: The number of its axes in the grid.
    """

    name: str
    values: int | None
    size: int

    def at(self, fn: dist.Distribution, points: jax.Array) -> jax.Array:
        """The values at points [entries, size] of the grid, one for each entry of the plate."""
        if self.values is not None:
            support = fn.enumerate_support(expand=False)
            index = points[:, 0].astype(jnp.int32)
            return jnp.reshape(jnp.ravel(support)[index], fn.shape())
        return value_from_normal(fn, jnp.reshape(points, fn.shape()))

    def sample(self, fn: dist.Distribution, key: jax.Array) -> jax.Array:
        """A random value, for one entry of the plate."""
        if self.values is not None:
            value: jax.Array = fn.sample(key)
            return value
        return self.at(fn, jax.random.normal(key, (1, self.size)))


def random_effect(name: str, fn: dist.Distribution, entries: int) -> RandomEffect:
    """The effect that a latent is; raises if it cannot be summed or integrated out.

    Args:
        name: Name of the latent.
        fn: Its distribution.
        entries: The number of entries of its plate.
    """
    if fn.support.is_discrete:
        if not fn.has_enumerate_support or fn.event_shape:
            raise InvalidArgument(
                f"Latent {name!r} is discrete, and its values cannot be listed to sum over them; "
                "write the sum into the model."
            )
        if math.prod(fn.batch_shape) != entries:
            raise InvalidArgument(
                f"Latent {name!r} has several discrete numbers for one row or person; make each of "
                "them a site, or write the sum into the model."
            )
        return RandomEffect(name, fn.enumerate_support(expand=False).shape[0], 1)
    size = math.prod(fn.shape()) // entries
    value_from_normal(fn, jnp.zeros(fn.shape()))  # raises if it cannot be made from normals
    return RandomEffect(name, None, size)


def value_from_normal(fn: dist.Distribution, normal: jax.Array) -> jax.Array:
    """Values of a continuous distribution, as a function of standard normal deviates."""
    fn = unwrap_distribution(fn)
    if isinstance(fn, dist.Normal):
        return jnp.asarray(fn.loc + fn.scale * normal)
    if isinstance(fn, dist.MultivariateNormal):
        return jnp.asarray(fn.loc + jnp.einsum("...ij,...j->...i", fn.scale_tril, normal))
    if isinstance(fn, dist.TransformedDistribution):
        value = value_from_normal(fn.base_dist, normal)
        for transform in fn.transforms:
            value = transform(value)
        return value
    try:
        return jnp.asarray(fn.icdf(jax.scipy.special.ndtr(normal)))
    except (NotImplementedError, ImportError):  # some quantiles need other libraries
        raise InvalidArgument(
            f"An effect with distribution {type(fn).__name__} cannot be integrated out; use a normal, "
            "a transformed normal, or a distribution with quantiles (icdf)."
        ) from None


def quadrature_points(
    effects: Sequence[RandomEffect], nodes: int | None
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Combinations of the values of discrete effects, and of the nodes of the others.

    Args:
        effects: The effects.
        nodes: The number of nodes per dimension; None to choose it.

    Raises:
        InvalidArgument: There would be too many points, or too few nodes.
    """
    axes = sum(each.size for each in effects if each.values is None)
    listed = math.prod(each.values or 1 for each in effects)
    if nodes is None:
        room = max(_DEFAULT_MAX_POINTS / listed, 1.0)
        nodes = min(int(room ** (1 / axes) + 1e-9), _MAX_DEFAULT_NODES) if axes else 1
    if (axes and nodes < _MIN_NODES) or listed * nodes**axes > _MAX_POINTS:
        raise InvalidArgument(
            f"Integrating out {', '.join(each.name for each in effects)} takes too few nodes or "
            "too many points; use fewer effects, or write the integral into the model."
        )
    values = [np.arange(each.values) for each in effects if each.values is not None]
    return _cartesian_product(values), _cartesian_product([_trapezoidal_nodes(nodes)] * axes)


def _cartesian_product(axes: Sequence[ArrayLike]) -> NDArray[np.float32]:
    """All combinations, [combinations, axes]; one empty combination if there are no axes."""
    if not axes:
        return np.zeros((1, 0), np.float32)
    grids = np.meshgrid(*axes, indexing="ij")
    return np.stack([each.ravel() for each in grids], axis=1).astype(np.float32)


def _trapezoidal_nodes(count: int) -> NDArray[np.floating]:
    """Evenly spaced deviates: the trapezoidal rule for smooth integrands that vanish at both ends.

    The reach balances the error of truncation, exp(-reach^2 / 2), and that of the spacing,
    exp(-2 pi^2 / spacing^2) (Trefethen and Weideman 2014).
    """
    reach = min(math.sqrt(math.pi * (count - 1)), 6.0)
    return np.linspace(-reach, reach, count)


def integrate_out(
    log_density: Callable[[jax.Array], jax.Array],
    effects: Sequence[RandomEffect],
    nodes: int | None,
) -> jax.Array:
    """The logarithm of a density with its effects summed and integrated out.

    Args:
        log_density: A function of a point in the grid, in the order of the effects' axes. It includes
            the probabilities of discrete effects. The normal density of the other axes is added here.
        effects: The effects.
        nodes: The number of nodes per dimension; None to choose it.
    """
    listed, deviates = quadrature_points(effects, nodes)
    order = _axis_order(effects)

    def given(values: jax.Array) -> jax.Array:
        def joint(normal: jax.Array) -> jax.Array:
            point = jnp.concatenate([values, normal])[order]
            return log_density(point) - 0.5 * jnp.sum(normal**2)

        size = deviates.shape[1]
        if size == 0:
            return joint(jnp.zeros(0))
        centre, stretch = _find_mode(joint, size)
        terms = jax.vmap(lambda each: joint(centre + stretch @ each))(jnp.asarray(deviates))
        spacing = size * math.log((deviates[-1, -1] - deviates[0, -1]) / (_num_nodes(deviates) - 1))
        volume = jnp.log(jnp.abs(jnp.diag(stretch))).sum() + spacing
        found: jax.Array = logsumexp(terms) + volume - 0.5 * size * math.log(2 * math.pi)
        return found

    total: jax.Array = logsumexp(jax.vmap(given)(jnp.asarray(listed)))
    return total


def _num_nodes(deviates: NDArray[np.float32]) -> int:
    return len(np.unique(deviates[:, -1]))


def _axis_order(effects: Sequence[RandomEffect]) -> NDArray[np.int32]:
    """Positions of a point's axes in the vector that has discrete values first, then deviates."""
    kinds = [each.values is None for each in effects for _ in range(each.size)]
    values, deviates = iter(range(len(kinds))), iter(range(kinds.count(False), len(kinds)))
    return np.array([next(deviates if normal else values) for normal in kinds], np.int32)


def _find_mode(joint: Callable[[jax.Array], jax.Array], size: int) -> tuple[jax.Array, jax.Array]:
    """The maximum of a log density, and a matrix in whose coordinates it is round there.

    By Newton's method, with steps of at most length two. Derivatives with respect to parameters do
    not go through the position of the nodes.
    """

    def curvature(normal: jax.Array) -> jax.Array:
        matrix = -jax.hessian(joint)(normal)
        matrix = jnp.where(jnp.isfinite(matrix).all(), matrix, jnp.eye(size))
        # At least a quarter in every direction, by a bound on the smallest eigenvalue.
        sides = jnp.abs(matrix).sum(axis=1) - jnp.abs(jnp.diag(matrix))
        lowest = jnp.min(jnp.diag(matrix) - sides)
        return matrix + jnp.maximum(0.25 - lowest, 0.0) * jnp.eye(size)

    def improve(_: int, normal: jax.Array) -> jax.Array:
        slope = jax.grad(joint)(normal)
        slope = jnp.where(jnp.isfinite(slope).all(), slope, 0.0)
        step = jnp.linalg.solve(curvature(normal), slope)
        step = step / jnp.maximum(jnp.linalg.norm(step) / 2, 1.0)
        return jnp.asarray(jax.lax.stop_gradient(normal + step))

    centre = jax.lax.fori_loop(0, _NEWTON_STEPS, improve, jnp.zeros(size))
    lower = jnp.linalg.cholesky(curvature(centre))
    stretch = jax.scipy.linalg.solve_triangular(lower, jnp.eye(size), lower=True).T
    return centre, jax.lax.stop_gradient(stretch)

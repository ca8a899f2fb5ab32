"""Effects that belong to one row or one person: summed or integrated out inside it.

Each such latent takes axes of a grid. A discrete one takes an axis with an entry for each of
its values, weighted by their probabilities. A continuous one takes an axis for each of its
numbers: standard normal deviates at evenly spaced nodes, turned into draws of the effect, so
that the weights are those of the normal distribution and never depend on data. Even spacing is
the rule for smooth integrands that vanish at both ends (Trefethen and Weideman 2014); nodes of
Gauss and Hermite lie apart further in the middle, where a person with many rows has all her mass.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from numpyro import distributions as dist

from tacit.errors import InvalidArgument

# Points of a grid, by default and at most.
_USUAL_POINTS, _MOST_POINTS, _MOST_NODES = 1024, 4096, 64
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


def effect(name: str, fn: Any, entries: int) -> Effect:
    """How a latent can be summed or integrated out; refuses where it cannot."""
    if fn.support.is_discrete:
        if not getattr(fn, "has_enumerate_support", False) or fn.event_shape:
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


def from_normal(fn: Any, normal: jax.Array) -> jax.Array:
    """A draw from a continuous distribution, as a function of standard normal deviates."""
    if isinstance(fn, _WRAPPERS):
        return from_normal(fn.base_dist, normal)
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


def grid(
    effects: Sequence[Effect], nodes: int | None
) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
    """All combinations of the effects' axes, and the logarithms of their weights.

    A discrete axis has weight one: its probabilities come from the model.
    """
    normal_axes = sum(each.size for each in effects if each.values is None)
    listed = math.prod(each.values or 1 for each in effects)
    if nodes is None:
        room = max(_USUAL_POINTS / listed, 1.0)
        nodes = min(int(room ** (1 / normal_axes) + 1e-9), _MOST_NODES) if normal_axes else 1
    if nodes < 5 <= 5 * normal_axes or listed * nodes**normal_axes > _MOST_POINTS:
        raise InvalidArgument(
            f"Integrating out {', '.join(each.name for each in effects)} takes a grid of too many "
            "points; use fewer effects, or write the integral into the model."
        )
    normals, weights = _normal_nodes(nodes)
    axes: list[Any] = []
    log_weights: list[Any] = []
    for each in effects:
        if each.values is not None:
            axes.append(np.arange(each.values))
            log_weights.append(np.zeros(each.values))
        else:
            axes += [normals] * each.size
            log_weights += [weights] * each.size
    points = np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")], axis=1)
    total = sum(axis.ravel() for axis in np.meshgrid(*log_weights, indexing="ij"))
    return points.astype(np.float32), np.asarray(total, dtype=np.float32)


def _normal_nodes(count: int) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
    """Evenly spaced deviates and the logarithms of their weights."""
    # What is cut off, exp(-reach^2 / 2), is what the spacing costs, exp(-2 pi^2 / spacing^2).
    reach = min(math.sqrt(math.pi * max(count - 1, 0)), 6.0)
    normals = np.linspace(-reach, reach, count)
    logs = -(normals**2) / 2
    return normals, logs - np.log(np.exp(logs).sum())

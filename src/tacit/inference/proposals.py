"""Symmetric proposals of a chain. They use public random numbers only."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtr

from tacit import _validate
from tacit.models.base import Discrete

# Normal draws that decide a jump among whole numbers.
_JUMP = 3


@runtime_checkable
class Proposal(Protocol):
    """A symmetric step of the real coordinates. ``scale`` is None until a method fills it in."""

    def __hash__(self) -> int: ...

    @property
    def scale(self) -> float | None:
        """The length scale of a step."""
        ...

    def scaled(self, scale: float) -> "Proposal":
        """A copy with this scale."""
        ...

    def move(self, noise: jax.Array) -> jax.Array:
        """A move of ``len(noise) - 2`` coordinates, at a scale of one."""
        ...


@dataclass(frozen=True)
class GaussianWalk:
    """A random walk with normal steps.

    Args:
        scale: Standard deviation of a step in every coordinate. By default the method chooses it.
    """

    scale: float | None = None

    def __post_init__(self) -> None:
        if self.scale is not None:
            _validate.positive("scale", self.scale)

    def scaled(self, scale: float) -> "GaussianWalk":
        """A copy with this scale."""
        return GaussianWalk(scale)

    def move(self, noise: jax.Array) -> jax.Array:
        """A standard normal move."""
        return noise[:-2]


@dataclass(frozen=True)
class BoundedWalk:
    """A random walk with steps that are uniform in a ball.

    Args:
        scale: Radius of the ball. By default the method chooses it.
    """

    scale: float | None = None

    def __post_init__(self) -> None:
        if self.scale is not None:
            _validate.positive("scale", self.scale)

    def scaled(self, scale: float) -> "BoundedWalk":
        """A copy with this scale."""
        return BoundedWalk(scale)

    def move(self, noise: jax.Array) -> jax.Array:
        """A move that is uniform in the unit ball: all but two coordinates of a point on a sphere."""
        return noise[:-2] / jnp.maximum(jnp.linalg.norm(noise), 1e-30)


def draws_needed(dimension: int) -> int:
    """How many normal draws a proposal takes."""
    return dimension + 2 + _JUMP


def propose(
    proposal: Proposal, theta: jax.Array, noise: jax.Array, scale: jax.Array, discrete: Discrete
) -> jax.Array:
    """A move of the real coordinates; or, half of the time, a jump of one whole number."""
    real, jump = noise[:-_JUMP], ndtr(noise[-_JUMP:])
    walked = theta + scale * proposal.move(real)
    if not discrete:
        return walked
    places = jnp.array([each.place for each in discrete])
    low = jnp.array([each.low for each in discrete], theta.dtype)
    high = jnp.array([each.high for each in discrete], theta.dtype)
    which = jnp.minimum((jump[0] * len(discrete)).astype(jnp.int32), len(discrete) - 1)
    values = high[which] - low[which] + 1
    further = 1 + jnp.floor(jump[1] * (values - 1) * (1 - 2.0**-20))
    place = places[which]
    jumped = theta.at[place].set(low[which] + (theta[place] - low[which] + further) % values)
    walked = walked.at[places].set(theta[places])
    jumps = True if len(discrete) == len(theta) else jump[2] < 0.5
    return jnp.where(jumps, jumped, walked)


def inside(theta: jax.Array, discrete: Discrete) -> jax.Array:
    """A start whose whole numbers are whole."""
    for each in discrete:
        value = jnp.clip(jnp.rint(theta[each.place]), each.low, each.high)
        theta = theta.at[each.place].set(value)
    return theta

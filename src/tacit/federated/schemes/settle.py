"""From a released sum of clipped changes to a change of the posterior: post-processing."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tacit.errors import InvalidArgument
from tacit.federated.server import common_grid
from tacit.federated.target import Target
from tacit.federated.transport import Reply
from tacit.models.gaussians import DiagonalGaussian, FullGaussian
from tacit.models.natural import Vector
from tacit.privacy.noise import Randomness
from tacit.privacy.total import noisy_total


@dataclass(frozen=True, kw_only=True)
class Settling:
    """How a released vector becomes a change of natural parameters.

    It depends on released and public values only. A ``steady`` change moves the mean as if every
    precision were larger by the noise, so that it moves little where the noise dominates. With
    ``floor``, precisions (or counts) do not fall below those of the prior, because rows can only add to
    them.

    Args:
        target: What sites fit together.
        centred: Whether the released vector is centred around the present mean.
        mean_step: Share of the change that the mean takes.
        steady: Whether the mean moves less where the noise dominates.
        floor: Whether precisions stay at least those of the prior; only for ``steady``.
    """

    target: Target
    centred: bool
    mean_step: float
    steady: bool
    floor: bool

    def change(self, posterior: Vector, released: Vector, noise_std: float) -> Vector:
        """The change of natural parameters for a released vector with noise of ``noise_std``."""
        family, prior = self.target.family, self.target.prior
        floored = self.floor and self.steady
        if not isinstance(family, DiagonalGaussian | FullGaussian):
            after = posterior + released
            return (family.at_least(after, prior) if floored else after) - posterior
        if not self.centred:
            return released
        bend, slope = family.split(released)
        mean = family.mean(posterior)
        # The server keeps q proper where noise made a precision negative; the mean needs a
        # positive one here.
        solid = family.split(family.at_least(posterior + released, prior))[0]
        precision = solid if floored else family.split(posterior)[0] + bend
        spare = noise_std if self.steady else 0.0
        if isinstance(family, DiagonalGaussian):
            moved = self.mean_step * slope * solid / (solid + spare)
            return family.join(precision, precision * mean + moved) - posterior
        firm = solid + spare * np.eye(family.dimension)
        moved = self.mean_step * solid @ np.linalg.solve(firm, slope)
        return family.join(precision, precision @ mean + moved) - posterior


@dataclass(frozen=True)
class Total:
    """The server's part where the noise is shared or its own: a sum, and the change that it means."""

    settling: Settling
    noise_std: float
    points: float
    source: Randomness

    def __call__(self, replies: Sequence[Reply], posterior: Vector) -> Vector:
        """The change of the posterior by the replies of a round."""
        grid = common_grid(replies)
        if grid is None:
            raise InvalidArgument("Sites answered without a lattice; their settings differ.")
        whole = noisy_total([reply.change for reply in replies], self.points, self.source)
        return self.settling.change(posterior, whole.astype(np.float64) * grid, self.noise_std)

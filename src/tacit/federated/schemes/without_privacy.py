"""No privacy: the reference that private schemes are compared with."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tacit import _validate
from tacit.federated.schemes.base import Aggregation, Prepared, RunSetting
from tacit.federated.schemes.local_change import careful_change, local_change
from tacit.federated.target import Approximate, Target
from tacit.models.gaussians import DiagonalGaussian
from tacit.models.natural import Vector
from tacit.privacy.groups import in_the_clear
from tacit.privacy.noise import Randomness
from tacit.privacy.rows import Rows


@dataclass(frozen=True, kw_only=True)
class WithoutPrivacy:
    """A reference without noise. It is exact for conjugate models.

    Args:
        num_iterations: Number of times that a site approximates the likelihood for one answer.
    """

    num_iterations: int = 1

    protects: ClassVar[str] = "rows"
    trust: ClassVar[tuple[str, ...]] = ()
    each_message_private: ClassVar[bool] = True
    own_factors: ClassVar[bool] = False
    split: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _validate.count("num_iterations", self.num_iterations)

    def prepare(self, setting: RunSetting) -> Prepared:
        """Work without noise."""
        return Prepared(work=_Clear(setting.target, self.num_iterations), event=None)

    def aggregation(self, setting: RunSetting, source: Randomness) -> Aggregation:  # noqa: ARG002
        """The sum of the changes."""
        return Aggregation()


@dataclass(frozen=True)
class _Clear:
    target: Target
    num_iterations: int
    grid: ClassVar[None] = None

    @property
    def size(self) -> int:
        return self.target.family.size

    def change(self, rows: Rows, posterior: Vector, factor: Vector, source: Randomness) -> Vector:  # noqa: ARG002
        target = self.target
        function = (
            careful_change(target, self.num_iterations)
            if isinstance(target, Approximate) and isinstance(target.family, DiagonalGaussian)
            else local_change(target, 1.0, self.num_iterations)
        )
        given = posterior, factor, self.target.constants
        return np.asarray(in_the_clear(rows, function, given), np.float64)

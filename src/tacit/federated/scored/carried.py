"""A site's answer in the metric of another round, to stand in for one that is missing."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tacit.inference.scores import parts_of, released_of
from tacit.models.natural import Vector


class MetricFrame(NamedTuple):
    """The metric of a round, as a Cholesky factor, its clips and its shares."""

    root: NDArray[np.float64]
    clips: Vector
    shares: Vector


def carried(answer: Vector, before: MetricFrame, after: MetricFrame) -> Vector:
    """An answer in one frame, as it would be in another if the place were the same."""
    size = len(before.root)
    seen = parts_of(answer, size, 1.0, before.clips, before.shares)
    turn = np.linalg.solve(after.root, before.root)
    seen = seen._replace(score=turn @ seen.score, curvature=turn @ seen.curvature @ turn.T)
    return np.asarray(released_of(seen, size, after.clips, after.shares), np.float64)

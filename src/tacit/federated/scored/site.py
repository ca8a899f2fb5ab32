"""A site's part of pooled scoring: one noisy sum of its rows' scores, at the place that it is asked for.

What a row adds is that of `tacit.inference.scores`, and the gate clips it, whatever the server asks for. All
sites are asked for the same place, so that sums over sites are sums over all rows.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tacit.federated.schemes.base import no_inputs
from tacit.inference.scores import Given, contribution, width
from tacit.models.base import AnyModel
from tacit.models.natural import Vector
from tacit.privacy.gate import Gate, run
from tacit.privacy.mechanisms import NoisySums
from tacit.privacy.noise import Randomness
from tacit.privacy.program import Step
from tacit.privacy.release import Release
from tacit.privacy.rows import Rows

# Numbers of a question beside the place and the metric: two clips and six shares.
_BESIDE = 8
# Beyond these a question is no place that a fit can have come to.
_FARTHEST, _STEEPEST, _LARGEST = 1e6, 1e9, 1e6


@dataclass(frozen=True)
class Question:
    """What a task holds: a place, a metric, clips and shares, as one vector.

    ``proper`` refuses what no fit can ask for. Privacy does not depend on it, because the gate clips.
    """

    dimension: int

    @property
    def size(self) -> int:
        """Length of the vector."""
        return self.dimension * (self.dimension + 1) + _BESIDE

    def packed(self, given: Given) -> Vector:
        """Public arguments of a release as one vector, without the model's constants."""
        parts = [given.theta, given.to_metric, given.clip, given.wide, given.shares]
        return np.concatenate([np.ravel(np.asarray(part, np.float64)) for part in parts])

    def given(self, vector: Vector, constants: Any) -> Given:
        """The arguments of a release that a vector stands for."""
        size = self.dimension
        values = np.asarray(vector, np.float32)
        theta, metric, clips, shares = np.split(values, [size, size + size**2, self.size - 6])
        return Given(
            theta=jnp.asarray(theta),
            to_metric=jnp.asarray(metric.reshape(size, size)),
            clip=jnp.asarray(clips[0]),
            wide=jnp.asarray(clips[1]),
            shares=jnp.asarray(shares),
            constants=constants,
        )

    def proper(self, vector: Vector) -> bool:
        """Whether a fit can ask for this."""
        size = self.dimension
        theta, metric, clips, shares = np.split(vector, [size, size + size**2, self.size - 6])
        return bool(
            np.isfinite(vector).all()
            and np.all(np.abs(theta) <= _FARTHEST)
            and np.all(np.abs(metric) <= _STEEPEST)
            and np.all((clips > 0) & (clips <= _LARGEST))
            and np.all(shares > 0)
            and np.sum(shares**2) < 1.001
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class ScoredTarget:
    """What sites fit together by pooled scoring: any model that Scoring fits.

    ``family`` says what a task holds, and ``prior`` is for the digest of the study.
    """

    model: AnyModel
    family: Question
    prior: Vector

    declared_public: ClassVar[tuple[str, ...]] = ("prior",)

    @property
    def constants(self) -> Any:
        """Public arrays of the model."""
        return self.model.constants


@dataclass(frozen=True)
class SummedScores:
    """Work that releases the noisy sum of a site's scores and of their curvature."""

    target: ScoredTarget
    outcomes: int
    mechanism: NoisySums

    @property
    def size(self) -> int:
        """Length of an answer."""
        return width(self.target.model.dimension)

    @property
    def grid(self) -> float | None:
        """The factor of answers that are whole numbers, or None."""
        return self.mechanism.grid if self.mechanism.whole else None

    def change(
        self,
        rows: Rows,
        posterior: Vector,
        factor: Vector,  # noqa: ARG002 (answers go into no factor)
        source: Randomness,
    ) -> NDArray[Any]:
        """The noisy sum, at the place that the task holds. [site-scores]"""
        target = self.target
        gate = Gate(rows, self.mechanism, source.child("gate"))
        constants = jax.tree.map(jnp.asarray, target.constants)
        given = target.family.given(posterior, constants)
        _, out = run(gate, _step_of(target.model, self.outcomes), given, no_inputs)
        if not self.mechanism.whole:
            return np.asarray(out[0], np.float64)
        return with_high_words(np.asarray(out[0]), source.child("high words"))


def with_high_words(low: NDArray[np.int32], source: Randomness) -> NDArray[np.int64]:
    """Numbers of 64 bits whose lower half is given, and whose upper half is uniform.

    The sum of some shows the sum of their lower halves modulo 2^32, and nothing else: not whether the
    number of one site has wrapped around. [whole-sum]
    """
    high = source.words(len(low)) << np.uint64(32)
    return (high | low.view(np.uint32).astype(np.uint64)).view(np.int64)


def low_words(total: NDArray[np.int64]) -> NDArray[np.int32]:
    """The lower halves of a sum of such numbers."""
    return (total.view(np.uint64) & np.uint64(2**32 - 1)).astype(np.uint32).view(np.int32)


@lru_cache(maxsize=32)
def _step_of(model: AnyModel, outcomes: int) -> Step:
    """The release of a site: the same object again, so that it compiles once."""
    per_unit = contribution(model, outcomes)

    def step(state: Given, _: Any, release: Release) -> tuple[Any, Any]:
        return state, release.noisy_unit_sum(per_unit, state)

    return step

"""A site's part of pooled scoring: one noisy sum of what its rows add, for the question that it is asked.

What a row adds is that of `tacit.inference.scores`, and the gate clips it, whatever the server asks for. All
sites are asked the same, so that sums over sites are sums over all rows.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tacit.federated.schemes.base import no_inputs
from tacit.inference.scores import Question, width
from tacit.inference.scoring import step_of
from tacit.models.base import AnyModel
from tacit.models.natural import Vector
from tacit.privacy.gate import Gate, run
from tacit.privacy.mechanisms import NoisySums
from tacit.privacy.noise import Randomness
from tacit.privacy.rows import Rows
from tacit.privacy.units import Units

# Lengths of a question beside the place and the metric: clip, length, steep, steep_each; and shares.
_LENGTHS, _SHARES = 4, 9
# Beyond these a question is no place that a fit can have come to. Squares of smaller lengths are not
# those of single precision, and what is clipped at them may be longer.
_FARTHEST, _STEEPEST, _SMALLEST, _LARGEST = 1e6, 1e9, 1e-6, 1e6


@dataclass(frozen=True)
class QuestionVector:
    """What a task holds: a `tacit.inference.scores.Question` as one vector, without the model's constants.

    ``proper`` refuses what no fit can ask for. Privacy does not depend on it, because the gate clips.
    """

    dimension: int

    @property
    def size(self) -> int:
        """Length of the vector."""
        return self.dimension * (self.dimension + 1) + _LENGTHS + 1 + _SHARES

    def packed(self, question: Question) -> Vector:
        """A question as one vector."""
        return np.concatenate([np.ravel(np.asarray(part, np.float64)) for part in question[:-1]])

    def unpacked(self, vector: Vector, constants: Any) -> Question:
        """The question that a vector stands for."""
        theta, metric, lengths, sizes, shares = self._parts(np.asarray(vector, np.float32))
        parts = (theta, metric.reshape(self.dimension, -1), *lengths, sizes[0], shares)
        return Question._make([*map(jnp.asarray, parts), constants])

    def proper(self, vector: Vector) -> bool:
        """Whether a fit can ask for this."""
        theta, metric, lengths, sizes, shares = self._parts(vector)
        return bool(
            np.isfinite(vector).all()
            and np.all(np.abs(theta) <= _FARTHEST)
            and np.all(np.abs(metric) <= _STEEPEST)
            and np.all((lengths >= _SMALLEST) & (lengths <= _LARGEST))
            and sizes[0] in {0, 1}
            and np.all(shares >= 0)
            and np.sum(shares**2) < 1.001
        )

    def _parts(self, vector: NDArray[Any]) -> list[NDArray[Any]]:
        lengths = [self.dimension, self.dimension**2, _LENGTHS, 1]
        return np.split(vector, np.cumsum(lengths))


@dataclass(frozen=True, kw_only=True, eq=False)
class ScoredTarget:
    """What sites fit together by pooled scoring: any model that Scoring fits.

    ``family`` says what a task holds, ``prior`` is for the digest of the study, and ``simulated`` are
    public units that were drawn from the schema alone, for the server, or None if there is no schema.
    """

    model: AnyModel
    family: QuestionVector
    prior: Vector
    simulated: Units | None = None

    declared_public: ClassVar[tuple[str, ...]] = ("prior",)

    @property
    def constants(self) -> Any:
        """Public arrays of the model."""
        return self.model.constants


@dataclass(frozen=True)
class SummedScores:
    """Work that releases the noisy sum of what a site's rows add."""

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
        """The noisy sum, for the question that the task holds. [site-scores]"""
        target = self.target
        gate = Gate(rows, self.mechanism, source.child("gate"))
        constants = jax.tree.map(jnp.asarray, target.constants)
        question = target.family.unpacked(posterior, constants)
        _, out = run(gate, step_of(target.model, self.outcomes), question, no_inputs)
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

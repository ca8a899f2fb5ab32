"""How well a posterior predicts rows that were not used for it, by one noisy sum."""

import math
from dataclasses import dataclass
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tacit import _validate
from tacit._typing import ArrayTree, Floats
from tacit.accounting import Budget, calibrate
from tacit.errors import InvalidArgument
from tacit.inference.method import no_inputs
from tacit.models.base import Row, UnitModel
from tacit.privacy.gate import Gate, run
from tacit.privacy.mechanisms import NoisySums, Release
from tacit.privacy.rows import Rows
from tacit.privacy.trace import Step

# The number of posterior draws that a density is averaged over.
_NUM_DRAWS = 32
# The most units that a sum can add up without wrapping around.
_BATCH_BOUND = 2**31
# A unit adds a one, its score and the score's square, each at most one.
_RELEASE_SIZE = 3
# If the noisy number of units is below so many standard deviations of its noise, no score is reported.
_MIN_COUNT_TO_NOISE = 5.0


@dataclass(frozen=True, kw_only=True)
class HeldOutScore:
    """A released score and how far off it may be. It follows from released and public values.

    Args:
        mean: The mean log density per row, clipped to the range of the release; None if there are too
            few rows for the noise.
        noise_sd: The standard deviation that the noise gives the mean.
        rows_sd: The standard deviation of the mean over held-out rows, estimated.
    """

    mean: float | None
    noise_sd: float
    rows_sd: float

    def __str__(self) -> str:
        if self.mean is None:
            return "There are too few held-out rows for the noise of this budget to tell anything."
        return (
            f"mean log density {self.mean:.3f} (standard deviation {self.noise_sd:.2g} from the noise, "
            f"{self.rows_sd:.2g} from the choice of rows)"
        )


@dataclass(frozen=True, kw_only=True)
class ScoreRelease:
    """What a release of a score does, all of it public.

    A unit's score is the log of the posterior's mean density of its rows, divided by their number, clipped
    to a range.

    Args:
        low: Scores below this count as this.
        high: Scores above this count as this. Log probabilities are at most 0.
    """

    low: float = -5.0
    high: float = 0.0

    def __post_init__(self) -> None:
        _validate.finite("low", self.low)
        _validate.finite("high", self.high)
        if self.low >= self.high:
            raise InvalidArgument("The range of scores must go from a lower to a higher number.")

    def calibrate(self, budget: Budget) -> NoisySums:
        """One noisy sum, with the noise that a budget asks for."""
        return NoisySums(
            sampling_rate=1.0,
            num_steps=1,
            clip=math.sqrt(_RELEASE_SIZE),
            noise_multiplier=calibrate.noise_multiplier(budget, num_steps=1),
            dimension=_RELEASE_SIZE,
            batch_bound=_BATCH_BOUND,
        )

    def run(self, rows: Rows, plan: NoisySums, model: UnitModel, vectors: Floats) -> HeldOutScore:
        """The score of a posterior, from what the gate releases. [held-out-score]

        Args:
            rows: The held-out rows.
            plan: The release, as charged.
            model: The model.
            vectors: Public draws of the posterior, unconstrained.

        Returns:
            The score.
        """
        constants = jax.tree.map(jnp.asarray, model.constants)
        given = (jnp.asarray(vectors, jnp.float32), jnp.array([self.low, self.high]), constants)
        _, released = run(Gate(rows, plan), _score_step(model), given, no_inputs)
        return self._told(np.asarray(released[0], np.float64), plan.noise_std)

    def _told(self, released: Floats, noise: float) -> HeldOutScore:
        count, total, squares = released
        if count < _MIN_COUNT_TO_NOISE * noise:
            return HeldOutScore(mean=None, noise_sd=math.inf, rows_sd=math.inf)
        width, mean = self.high - self.low, min(max(total / count, 0.0), 1.0)
        spread = max(squares / count - mean**2, 0.0)
        return HeldOutScore(
            mean=self.low + width * mean,
            noise_sd=width * noise * math.sqrt(1 + mean**2) / count,
            rows_sd=width * math.sqrt(spread / count),
        )


def gaussian_draws(mean: NDArray[np.floating], covariance: NDArray[np.floating]) -> Floats:
    """Draws of a posterior that is normal on the unconstrained scale; always the same ones."""
    return np.random.default_rng(0).multivariate_normal(mean, covariance, _NUM_DRAWS)


# Draws of the posterior, the range of scores, and the constants of the model.
Given = tuple[jax.Array, jax.Array, ArrayTree]


@lru_cache(maxsize=8)
def _score_step(model: UnitModel) -> Step:
    def score(given: Given, rows: Row, present: jax.Array) -> jax.Array:
        vectors, edges, constants = given

        def density(vector: jax.Array) -> jax.Array:
            return model.log_likelihood(vector, rows, present, constants)

        logs = jax.vmap(density)(vectors)
        mean = jax.nn.logsumexp(logs) - math.log(_NUM_DRAWS)
        each = mean / jnp.maximum(present.sum(), 1)
        share = jnp.clip((each - edges[0]) / (edges[1] - edges[0]), 0, 1)
        share = jnp.where(jnp.isnan(share), 0, share)
        return jnp.stack([jnp.ones(()), share, share**2]) * present.any()

    def step(state: Given, _: jax.Array, release: Release) -> tuple[Given, jax.Array]:
        return state, release.noisy_sum(score, state)

    return step

"""How well posteriors predict rows that were not used for them, by one noisy sum.

A unit adds numbers z, each between -1 and 1, and their products: how far its log density under the first posterior is from
a public middle, how far that under each other posterior is from the first, and, where outcomes are levels or numbers,
whether the likeliest level is right, or squared errors. Differences between posteriors are paired, and smaller than the
log densities, so that they are known better.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from tacit import _validate
from tacit._typing import ArrayTree, Floats
from tacit.accounting import Budget, calibrate
from tacit.errors import InvalidArgument
from tacit.inference.method import SumRelease
from tacit.models.base import Row, UnitModel
from tacit.privacy.mechanisms import NoisySums, Release
from tacit.privacy.trace import Step

# The number of posterior draws that a density is averaged over.
_NUM_DRAWS = 32
# The most units that a sum can add up without wrapping around, and by how much a unit's vector is shorter than the clip.
_BATCH_BOUND, _CLIP_MARGIN = 2**31, 2.0**-12
# If the noisy number of units is below so many standard deviations of its noise, no score is reported.
_MIN_COUNT_TO_NOISE = 5.0
# The same of the variance of the outcome, for R2.
_MIN_VARIANCE_TO_NOISE = 6.0
# What is scored beside the log density: whether levels are right, squared errors of numbers, or nothing.
Measure = Literal["accuracy", "r2"]


@dataclass(frozen=True, kw_only=True)
class HeldOutScore:
    """A released number and how far off it may be. It follows from released and public values.

    Args:
        mean: The number, such as the mean log density per row; None if there are too few rows for the noise.
        noise_sd: The standard deviation that the noise gives it.
        rows_sd: Its standard deviation over held-out rows, estimated.
    """

    mean: float | None
    noise_sd: float
    rows_sd: float

    @property
    def sd(self) -> float:
        """Its standard deviation by both."""
        return math.hypot(self.noise_sd, self.rows_sd)

    def interval(self, level: float = 0.9) -> tuple[float, float]:
        """An interval that contains noise and sampling; infinite if there are too few rows."""
        if self.mean is None:
            return -math.inf, math.inf
        half = float(ndtri((1 + level) / 2)) * self.sd
        return self.mean - half, self.mean + half

    def __str__(self) -> str:
        if self.mean is None:
            return "There are too few held-out rows for the noise of this budget to tell anything."
        return (
            f"mean log density {self.mean:.3f} (standard deviation {self.noise_sd:.2g} from the noise, "
            f"{self.rows_sd:.2g} from the choice of rows)"
        )


@dataclass(frozen=True, kw_only=True)
class ScoreRange:
    """The range of log densities, which is public.

    Args:
        low: Log densities below this count as this.
        high: Log densities above this count as this. Log probabilities are at most 0.
    """

    low: float = -5.0
    high: float = 0.0

    def __post_init__(self) -> None:
        _validate.finite("low", self.low)
        _validate.finite("high", self.high)
        if self.low >= self.high:
            raise InvalidArgument("The range of scores must go from a lower to a higher number.")


@dataclass(frozen=True, kw_only=True, eq=False)
class ScoreRelease(SumRelease):
    """What a release of scores asks, all of it public.

    A unit's score is the log of the posterior's mean density of its rows, divided by their number.

    Args:
        models: The models.
        vectors: Draws of each posterior, unconstrained.
        range: The range of log densities under the first model.
        middle: Where these are measured from.
        spans: For every other model, the largest difference of a log density from the first model's.
        measure: What else is scored.
        centres: The posterior mean of each model, for this measure.
        outcome: For ``"r2"``, the middle of outcomes, half their range, and the largest error.
    """

    models: tuple[UnitModel, ...]
    vectors: tuple[Floats, ...]
    range: ScoreRange
    middle: float
    spans: tuple[float, ...] = ()
    measure: Measure | None = None
    centres: tuple[Floats, ...] = ()
    outcome: tuple[float, float, float] = (0.0, 1.0, 1.0)

    @property
    def size(self) -> int:
        """How many numbers a unit's scores are."""
        own = 0 if self.measure is None else len(self.models)
        return len(self.models) + own + 2 * (self.measure == "r2")

    @property
    def product_weight(self) -> float:
        """What products are multiplied with, so that they are not longer than the numbers themselves."""
        return 1 / math.sqrt(2 * self.size)

    @property
    def clip(self) -> float:
        """The norm of a unit's vector, at most. [held-out-score]"""
        square = 1 + self.size + (self.product_weight * self.size) ** 2
        return math.sqrt(square) * (1 + _CLIP_MARGIN)

    def mechanism(self, noise_multiplier: float) -> NoisySums:
        """One noisy sum, with this noise."""
        return NoisySums(
            sampling_rate=1.0,
            num_steps=1,
            clip=self.clip,
            noise_multiplier=noise_multiplier,
            dimension=1 + self.size + self.size * (self.size + 1) // 2,
            batch_bound=_BATCH_BOUND,
        )

    def calibrate(self, budget: Budget) -> NoisySums:
        """One noisy sum, with the noise that a budget asks for."""
        return self.mechanism(calibrate.noise_multiplier(budget, num_steps=1))

    def question(self) -> "ScoreQuestion":
        """What the release is given, as arrays."""
        return ScoreQuestion(
            tuple(jnp.asarray(each, jnp.float32) for each in self.vectors),
            tuple(jnp.asarray(each, jnp.float32) for each in self.centres),
            jnp.asarray([self.range.low, self.range.high, self.middle], jnp.float32),
            jnp.asarray(self.spans, jnp.float32),
            jnp.asarray(self.outcome, jnp.float32),
            jnp.float32(self.product_weight),
            tuple(jax.tree.map(jnp.asarray, each.constants) for each in self.models),
        )

    @property
    def step(self) -> Step:
        """The step that releases the sums."""
        return _score_step(self.models, self.measure)

    def found(self, released: Floats, noise: float) -> "ScoreSums":
        """The released vector, taken apart.

        Args:
            released: The noisy sum.
            noise: The standard deviation of the noise in every number.
        """
        products = np.zeros((self.size, self.size))
        rows, columns = np.triu_indices(self.size)
        packed = released[1 + self.size :] / self.product_weight
        products[rows, columns] = np.where(rows == columns, packed, packed / math.sqrt(2))
        products = products + np.triu(products, 1).T
        return ScoreSums(self, float(released[0]), released[1 : 1 + self.size], products, noise)


def gaussian_draws(mean: NDArray[np.floating], covariance: NDArray[np.floating]) -> Floats:
    """Draws of a posterior that is normal on the unconstrained scale; always the same ones."""
    return np.random.default_rng(0).multivariate_normal(mean, covariance, _NUM_DRAWS)


class ScoreQuestion(NamedTuple):
    """What a unit's scores depend on beside its rows. All of it is public."""

    vectors: tuple[jax.Array, ...]
    centres: tuple[jax.Array, ...]
    edges: jax.Array
    spans: jax.Array
    outcome: jax.Array
    product_weight: jax.Array
    constants: tuple[ArrayTree, ...]


@lru_cache(maxsize=16)
def _score_step(models: tuple[UnitModel, ...], measure: Measure | None) -> Step:
    def contribution(given: ScoreQuestion, rows: Row, present: jax.Array) -> jax.Array:
        """What one unit adds: numbers between -1 and 1, and their products. [held-out-score]"""
        each = zip(models, given.vectors, given.constants, strict=True)
        logs = [log_density(model)(v, rows, present, constants) for model, v, constants in each]
        low, high, middle = given.edges
        first = (jnp.clip(logs[0], low, high) - middle) / jnp.maximum(high - middle, middle - low)
        found = [first[None]]
        if len(models) > 1:
            found.append(jnp.clip((jnp.stack(logs[1:]) - logs[0]) / given.spans, -1, 1))
        if measure is not None:
            found.append(_point_scores(models, measure, given, rows, present))
        numbers = jnp.concatenate(found)
        numbers = jnp.clip(jnp.where(jnp.isnan(numbers), 0.0, numbers), -1, 1) * present.any()
        left, right = np.triu_indices(len(numbers))
        # So that the products are as long as their matrix is.
        factors = np.where(left == right, 1.0, math.sqrt(2)).astype(np.float32)
        products = numbers[left] * numbers[right] * factors * given.product_weight
        return jnp.concatenate([jnp.ones(1) * present.any(), numbers, products])

    def step(
        state: ScoreQuestion, _: jax.Array, release: Release
    ) -> tuple[ScoreQuestion, jax.Array]:
        return state, release.noisy_sum(contribution, state)

    return step


def log_density(model: UnitModel) -> Callable[..., jax.Array]:
    """The log of the mean density of a unit's rows over draws, per row; of rows' own outcomes or drawn ones."""

    def density(
        vectors: jax.Array,
        rows: Row,
        present: jax.Array,
        constants: ArrayTree,
        outcomes: object = None,
    ) -> jax.Array:
        def one(vector: jax.Array) -> jax.Array:
            return model.log_likelihood(vector, rows, present, constants, outcomes)

        mean = jax.nn.logsumexp(jax.vmap(one)(vectors)) - math.log(len(vectors))
        return mean / jnp.maximum(present.sum(), 1)

    return density


def _point_scores(
    models: Sequence[UnitModel],
    measure: Measure,
    given: ScoreQuestion,
    rows: Row,
    present: jax.Array,
) -> jax.Array:
    """Of each model, the share of a unit's rows whose level is right, or squared errors; then outcomes and their squares."""
    share = present / jnp.maximum(present.sum(), 1)
    centre, reach, error = given.outcome
    found, value = [], jnp.zeros(len(present))
    for model, theta, constants in zip(models, given.centres, given.constants, strict=True):
        place = model.place
        assert place is not None
        at = jax.vmap(lambda row, place=place, theta=theta, c=constants: place(theta, row, c))(
            dict(rows)
        )
        value = at.value
        if measure == "accuracy":
            each = (value == at.likely) * 1.0
        else:
            each = jnp.clip((value - at.predicted) / error, -1, 1) ** 2
        found.append(share @ jnp.where(present, each, 0.0))
    if measure == "r2":
        scaled = jnp.where(present, jnp.clip((value - centre) / reach, -1, 1), 0.0)
        found += [share @ scaled, share @ scaled**2]
    return jnp.stack(found)


@dataclass(frozen=True)
class ScoreSums:
    """What a release of scores found, and what follows.

    Args:
        release: What was computed from the rows.
        count: The number of units, noisy.
        numbers: The sums of the units' numbers.
        products: The sums of their products.
        noise: The standard deviation of the noise in every number.
    """

    release: ScoreRelease
    count: float
    numbers: Floats
    products: Floats
    noise: float

    @property
    def is_enough(self) -> bool:
        """Whether there are enough units for the noise to tell anything."""
        return self.count >= _MIN_COUNT_TO_NOISE * self.noise

    @cached_property
    def means(self) -> Floats:
        """Means of the units' numbers."""
        return np.asarray(np.clip(self.numbers / max(self.count, 1.0), -1, 1))

    @cached_property
    def covariance(self) -> Floats:
        """The covariance of the units' numbers."""
        found = self.products / max(self.count, 1.0) - np.outer(self.means, self.means)
        values, vectors = np.linalg.eigh(found)
        return np.asarray((vectors * np.maximum(values, 0.0)) @ vectors.T)

    def combination(self, by: Floats, start: float = 0.0) -> HeldOutScore:
        """A linear function of the means."""
        if not self.is_enough:
            return HeldOutScore(mean=None, noise_sd=math.inf, rows_sd=math.inf)
        mean = float(by @ self.means)
        return HeldOutScore(
            mean=start + mean,
            noise_sd=self.noise * math.sqrt(float(by @ by) + mean**2) / self.count,
            rows_sd=math.sqrt(max(float(by @ self.covariance @ by), 0.0) / self.count),
        )

    def _log_density(self, model: int) -> Floats:
        """What the log density under a model is multiplied together from."""
        found, release = np.zeros(self.release.size), self.release
        middle = release.middle
        found[0] = max(release.range.high - middle, middle - release.range.low)
        if model:
            found[model] = release.spans[model - 1]
        return found

    def log_density(self, model: int = 0) -> HeldOutScore:
        """The mean log density per row under a model."""
        return self.combination(self._log_density(model), self.release.middle)

    def difference(self, first: int, second: int) -> HeldOutScore:
        """By how much the mean log density under one model is higher than that under another, from the same rows."""
        return self.combination(self._log_density(first) - self._log_density(second))

    def point(self, model: int = 0) -> HeldOutScore:
        """The accuracy or R2 of a model."""
        release, by = self.release, np.zeros(self.release.size)
        own = len(release.models) + model
        if release.measure == "accuracy":
            by[own] = 1.0
            return self.combination(by)
        centre = 2 * len(release.models)
        _, reach, largest = release.outcome
        error = float(self.means[own]) * largest**2
        middle, square = self.means[centre : centre + 2]
        variance = reach**2 * float(square - middle**2)
        if (
            not self.is_enough
            or variance <= _MIN_VARIANCE_TO_NOISE * reach**2 * self.noise / self.count
        ):
            return HeldOutScore(mean=None, noise_sd=math.inf, rows_sd=math.inf)
        # The derivative of 1 - error / variance.
        by[own] = -(largest**2) / variance
        by[centre] = -2 * middle * reach**2 * error / variance**2
        by[centre + 1] = reach**2 * error / variance**2
        found = self.combination(by)
        return HeldOutScore(
            mean=1 - error / variance, noise_sd=found.noise_sd, rows_sd=found.rows_sd
        )

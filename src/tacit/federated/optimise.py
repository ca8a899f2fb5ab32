"""Rows protected by noise in the site's own optimisation, or in its statistics.

Every release is the gate's: clipped contributions of single units, summed, with noise. What leaves
a site follows from released values, so that it is protected whoever sees it.
"""

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, ClassVar, Literal

import jax.numpy as jnp
import numpy as np

from tacit import _validate
from tacit.accounting import Budget, calibrate, events
from tacit.errors import InvalidArgument
from tacit.federated.local import gaussian_of, guide_of, optimised
from tacit.federated.natural import DiagonalGaussian, FullGaussian, Vector
from tacit.federated.scheme import (
    ALONE,
    SEVERAL_SITES,
    Aggregation,
    Prepared,
    Setting,
    covered,
)
from tacit.federated.target import Conjugate, Target
from tacit.inference.variational import Variational
from tacit.privacy.gate import Gate, run
from tacit.privacy.noise import Randomness
from tacit.privacy.plans import NoisySums
from tacit.privacy.release import Release
from tacit.privacy.rows import Rows

Floor = Literal["statistic", "factor"]


class _Alone:
    """What schemes share whose every message is protected by itself."""

    protects: ClassVar[str] = "rows"
    trust: ClassVar[tuple[str, ...]] = (ALONE, SEVERAL_SITES)
    alone: ClassVar[bool] = True
    own_factors: ClassVar[bool] = False
    split: ClassVar[bool] = False

    def aggregation(self, setting: Setting, source: Randomness) -> Aggregation:  # noqa: ARG002
        """The sum."""
        return Aggregation()


@dataclass(frozen=True, kw_only=True)
class Optimised(_Alone):
    """Each site maximises its local free energy by private gradients, the cavity as its prior.

    ``variational`` has the settings of one answer; its guide is the posterior's own. A given
    ``noise_multiplier`` must be covered by the budget.
    """

    variational: Variational = field(default_factory=lambda: Variational(num_steps=200))
    noise_multiplier: float | None = None

    def prepare(self, setting: Setting) -> Prepared:
        """Noise for the steps of all answers. Theorem F1."""
        method = suited(self.variational, setting.target)
        steps = method.num_steps
        rate, steps = method.sampling_rate, steps * setting.answers
        noise, event = self.noise_multiplier or 0.0, None
        if setting.budget is not None and self.noise_multiplier is None:
            noise = calibrate.noise_multiplier(setting.budget, sampling_rate=rate, num_steps=steps)
        if noise > 0:
            event = covered(events.sampled_gaussian(noise, rate, steps), setting.budget)
        plan = method.plan(setting.target.model, noise)
        return Prepared(work=_Optimising(setting.target, method, plan), event=event)


@dataclass(frozen=True)
class _Optimising:
    target: Target
    method: Variational
    plan: NoisySums
    grid: ClassVar[None] = None

    @property
    def size(self) -> int:
        return self.target.family.size

    def change(self, rows: Rows, posterior: Vector, factor: Vector, source: Randomness) -> Vector:
        return self.fitted(rows, posterior - factor, posterior, source) - posterior

    def fitted(self, rows: Rows, cavity: Vector, start: Vector, source: Randomness) -> Vector:
        gate = Gate(rows, self.plan, source.child("gate"))
        key = int(source.child("model").words(1)[0] >> np.uint64(33))
        return optimised(self.target, self.method, gate, cavity, start, key)


@dataclass(frozen=True, kw_only=True)
class ClippedStatistics(_Alone):
    """Each answer releases a conjugate model's statistics anew (the report's eqs. 4.19-4.21).

    ``clip`` bounds what one row adds to the natural parameters. ``floor="statistic"`` sets a
    negative precision that was released to zero, as eq. 4.20 does; ``"factor"`` keeps the
    precision of the factor, after damping, from becoming negative. Both bias the precision upwards;
    by default the guard of the server is enough.
    """

    clip: float
    floor: Floor | None = None
    noise_multiplier: float | None = None

    def __post_init__(self) -> None:
        _validate.positive("clip", self.clip)
        if self.floor is not None:
            _validate.choice("floor", self.floor, ("statistic", "factor"))

    def prepare(self, setting: Setting) -> Prepared:
        """Noise for the statistics of all answers. Theorem F2."""
        noise, event = self.noise_multiplier or 0.0, None
        if setting.budget is not None and self.noise_multiplier is None:
            noise = calibrate.noise_multiplier(setting.budget, num_steps=setting.answers)
        if noise > 0:
            repeated = events.repeat(events.gaussian(noise), setting.answers)
            event = covered(repeated, setting.budget)
        work = Statistics(_conjugate(setting.target), self.plan(setting.target, noise))
        if self.floor is not None:
            work = _Floored(work.target, work.plan, self.floor, setting.damping)
        return Prepared(work=work, event=event)

    def plan(self, target: Target, noise_multiplier: float) -> NoisySums:
        """One release of the statistics."""
        return NoisySums(
            sampling_rate=1.0,
            num_steps=1,
            clip=self.clip,
            noise_multiplier=noise_multiplier,
            dimension=target.family.size,
        )


@dataclass(frozen=True, kw_only=True)
class OneRelease(ClippedStatistics):
    """The statistics of a conjugate model are released once, at the whole budget.

    One round is then all there is to do, and its noise is that of a single release.
    """

    def prepare(self, setting: Setting) -> Prepared:
        """Noise for one release. Theorem F2."""
        if setting.answers != 1:
            raise InvalidArgument("Statistics are released once: pass num_rounds=1.")
        return super().prepare(setting)


@dataclass(frozen=True)
class Statistics:
    """Work that releases the statistics of all rows, and is done."""

    target: Conjugate
    plan: NoisySums
    grid: ClassVar[None] = None

    @property
    def size(self) -> int:
        """How many numbers a change has."""
        return self.target.family.size

    def released(self, rows: Rows, source: Randomness) -> Vector:
        """The noisy sum of the rows' statistics."""
        gate = Gate(rows, self.plan, source.child("statistics"))
        _, out = run([gate], statistic_step(self.target), jnp.zeros((1, 1)), no_inputs)
        return np.asarray(out[0, 0], np.float64)

    def change(self, rows: Rows, posterior: Vector, factor: Vector, source: Randomness) -> Vector:  # noqa: ARG002
        """From the factor that stood for the rows to their statistics."""
        return self.released(rows, source) - factor


@dataclass(frozen=True)
class _Floored(Statistics):
    floor: Floor
    damping: float

    def change(self, rows: Rows, posterior: Vector, factor: Vector, source: Randomness) -> Vector:  # noqa: ARG002
        """The same, with precisions kept from being negative."""
        places = _precisions(self.target)
        found = self.released(rows, source)
        if self.floor == "statistic":
            found[places] = np.maximum(found[places], 0.0)
        change = found - factor
        if self.floor == "factor":
            change[places] = np.maximum(change[places], -factor[places] / self.damping)
        return change


@dataclass(frozen=True, kw_only=True)
class Hybrid(_Alone):
    """Statistics, released with a share of the budget, say where the optimisation starts."""

    clip: float
    variational: Variational = field(default_factory=lambda: Variational(num_steps=100))
    statistics_share: float = 0.3

    def __post_init__(self) -> None:
        _validate.positive("clip", self.clip)
        share = _validate.rate("statistics_share", self.statistics_share)
        if share == 1:
            raise InvalidArgument("statistics_share must leave some of the budget for the steps.")

    def prepare(self, setting: Setting) -> Prepared:
        """Noise for both kinds of release in all answers. Theorem F3."""
        target, answers = setting.target, setting.answers
        method = suited(self.variational, target)
        one, other, event = 0.0, 0.0, None
        if setting.budget is not None:
            budget, share = setting.budget, self.statistics_share
            part = Budget(share * budget.epsilon, share * budget.delta, budget.adjacency)
            one = calibrate.noise_multiplier(part, num_steps=answers)
            first = events.repeat(events.gaussian(one), answers)

            def whole(noise: float) -> Any:
                steps = answers * method.num_steps
                return events.compose(
                    first, events.sampled_gaussian(noise, method.sampling_rate, steps)
                )

            other = calibrate.calibrate(whole, budget)
            event = whole(other)
        statistics = ClippedStatistics(clip=self.clip).plan(target, one)
        work = _Hybrid(
            _Optimising(target, method, method.plan(target.model, other)),
            Statistics(_conjugate(target), statistics),
        )
        return Prepared(work=work, event=event)


@dataclass(frozen=True)
class _Hybrid:
    optimising: _Optimising
    statistics: Statistics
    grid: ClassVar[None] = None

    @property
    def size(self) -> int:
        return self.statistics.size

    def change(self, rows: Rows, posterior: Vector, factor: Vector, source: Randomness) -> Vector:
        cavity = posterior - factor
        start = cavity + self.statistics.released(rows, source)
        if not self.statistics.target.family.proper(start):
            start = posterior
        return self.optimising.fitted(rows, cavity, start, source) - posterior


def suited(method: Variational, target: Target) -> Variational:
    """The same settings, with the guide of the posterior's family."""
    return replace(method, guide=guide_of(gaussian_of(target)), start=None)


def _conjugate(target: Target) -> Conjugate:
    if not isinstance(target, Conjugate):
        raise InvalidArgument(
            "Only conjugate models have statistics; use Optimised() for other models."
        )
    return target


def _precisions(target: Conjugate) -> Any:
    """Where natural parameters must not be negative: precisions on the diagonal, or all."""
    if isinstance(target.family, DiagonalGaussian):
        return np.arange(target.family.dimension)
    if isinstance(target.family, FullGaussian):
        return np.cumsum(np.arange(1, target.family.dimension + 1)) - 1
    return np.arange(target.family.size)


@lru_cache(maxsize=32)
def statistic_step(target: Conjugate) -> Any:
    """A step of the gate that releases the sum of the rows' statistics."""

    def per_row(_: Any, row: Any) -> Any:
        return target.statistic(row)

    def step(state: Any, _: Any, release: Release) -> Any:
        return state, release.noisy_sum(per_row, state)

    return step


def no_inputs(_: int, steps: int) -> Any:
    """Inputs of steps that have none."""
    return np.zeros((steps, 1, 1), np.float32)

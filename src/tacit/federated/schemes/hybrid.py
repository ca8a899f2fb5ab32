"""Released statistics as the starting point of a private optimisation."""

from dataclasses import dataclass, field
from typing import ClassVar

from dp_accounting.dp_event import DpEvent

from tacit import _validate
from tacit.accounting import Budget, calibrate, events
from tacit.errors import InvalidArgument
from tacit.federated.schemes.base import EachMessagePrivate, Prepared, RunSetting
from tacit.federated.schemes.optimised import Optimising, suited
from tacit.federated.schemes.statistics import (
    ReleaseStatistics,
    conjugate_only,
    statistics_mechanism,
)
from tacit.inference.variational import Variational
from tacit.models.natural import Vector
from tacit.privacy.noise import Randomness
from tacit.privacy.rows import Rows


@dataclass(frozen=True, kw_only=True)
class Hybrid(EachMessagePrivate):
    """The optimisation of every answer starts from statistics released with a share of the budget.

    Args:
        clip: Bound on the 2-norm of what one unit adds to the natural parameters.
        variational: Settings of the optimisation of one answer.
        statistics_share: Share of the budget for the statistics.
    """

    clip: float
    variational: Variational = field(default_factory=lambda: Variational(num_steps=100))
    statistics_share: float = 0.3

    def __post_init__(self) -> None:
        _validate.positive("clip", self.clip)
        share = _validate.rate("statistics_share", self.statistics_share)
        if share == 1:
            raise InvalidArgument("statistics_share must leave some of the budget for the steps.")

    def prepare(self, setting: RunSetting) -> Prepared:
        """Noise for both kinds of release in all answers. Theorem F3."""
        target, answers = conjugate_only(setting.target), setting.answers
        method = suited(self.variational, target)
        for_statistics, for_steps, event = 0.0, 0.0, None
        if setting.budget is not None:
            budget, share = setting.budget, self.statistics_share
            part = Budget(share * budget.epsilon, share * budget.delta, budget.adjacency)
            for_statistics = calibrate.noise_multiplier(part, num_steps=answers)
            first = events.repeat(events.gaussian(for_statistics), answers)

            def both(noise: float) -> DpEvent:
                steps = answers * method.num_steps
                return events.compose(
                    first, events.sampled_gaussian(noise, method.constant_rate, steps)
                )

            for_steps = calibrate.calibrate(both, budget)
            event = both(for_steps)
        work = _Hybrid(
            Optimising(target, method, method.mechanism(target.model, for_steps)),
            ReleaseStatistics(target, statistics_mechanism(target, self.clip, for_statistics)),
        )
        return Prepared(work=work, event=event)


@dataclass(frozen=True)
class _Hybrid:
    optimising: Optimising
    statistics: ReleaseStatistics
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

"""Schemes of partitioned inference that exist to reproduce papers; "Papers" in the documentation says what we advise instead.

`Hybrid` starts a private optimisation from released statistics (001, Section 4.2). `virtual_clients` and
`local_averaging` divide a site's rows over shards, each with a clipped change of its own (Heikkilä et al. 2023).
`algorithm_three` is the report's protection of whole data sets as printed (001, Algorithm 3). Each is a scheme for
`tacit.federated.Partitioned`.
"""

from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

from tacit import _validate
from tacit.accounting import Budget, calibrate, events
from tacit.accounting.events import DpEvent, NonPrivateDpEvent
from tacit.errors import InvalidArgument
from tacit.federated.agreement import NO_GUARANTEE
from tacit.federated.schemes import (
    Aggregation,
    ClippedChanges,
    LocalOptimisation,
    NoiseSource,
    Prepared,
    RunSetting,
    Scheme,
    StatisticsRelease,
    check_conjugate,
    statistics_mechanism,
    with_family_guide,
)
from tacit.federated.server import sum_replies
from tacit.federated.targets import NaturalTarget
from tacit.inference.variational import Variational
from tacit.models.exponential_families import Vector
from tacit.privacy.groups import random_shards
from tacit.privacy.mechanisms import NoisySums
from tacit.privacy.noise import Randomness
from tacit.privacy.rows import Rows


@dataclass(frozen=True, kw_only=True)
class Hybrid(Scheme[NaturalTarget]):
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

    def prepare(self, setting: RunSetting[NaturalTarget]) -> Prepared:
        """Noise for both kinds of release in all answers. Theorem F3."""
        target, answers = check_conjugate(setting.target), setting.answers
        method = with_family_guide(self.variational, target)
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
        work = _HybridUpdate(
            LocalOptimisation(target, method, method.mechanism(target.model, for_steps)),
            StatisticsRelease(target, statistics_mechanism(target, self.clip, for_statistics)),
        )
        return Prepared(work=work, event=event)


@dataclass(frozen=True)
class _HybridUpdate:
    optimising: LocalOptimisation
    statistics: StatisticsRelease
    grid: ClassVar[None] = None

    @property
    def size(self) -> int:
        return self.statistics.size

    def change(self, rows: Rows, posterior: Vector, factor: Vector, source: Randomness) -> Vector:
        cavity = posterior - factor
        start = cavity + self.statistics.release(rows, source)
        if not self.statistics.target.family.is_proper(start):
            start = posterior
        return self.optimising.fit(rows, cavity, start, source) - posterior


@dataclass(frozen=True, kw_only=True)
class ShardedChanges(ClippedChanges):
    """Clipped changes of shards: a site's rows are divided at random, and rows are protected.

    One row moves the sum by up to two clips, as it changes a shard from one value to another.

    Args:
        clip: See `ClippedChanges`, also for the other settings that are not listed here.
        num_shards: Number of shards of a site.
        shard_rows: The largest number of rows of a shard: a declared number, as the actual one is private.
        average: Whether each shard is fitted as if it were all of the site's rows and the mean is
            taken. Otherwise each shard is a small site.
    """

    num_shards: int
    shard_rows: int
    average: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        _validate.count("num_shards", self.num_shards)
        _validate.count("shard_rows", self.shard_rows)
        if self.average and self.noise != "site":
            raise InvalidArgument('Local averaging adds its noise at the site: noise="site".')

    @property
    def protects(self) -> Literal["rows", "data set"]:
        """Each unit of the rows."""
        return "rows"

    @property
    def num_groups(self) -> int:
        """The number of shards."""
        return self.num_shards

    @property
    def averages(self) -> bool:
        """Whether the mean of the shards' changes is released."""
        return self.average

    @property
    def sensitivity(self) -> float:
        """One row changes a shard from one value to another."""
        return 2.0

    def group_rows(self, rows: Rows, source: Randomness) -> Rows:
        """The rows in shards."""
        return random_shards(rows, self.num_shards, self.shard_rows, source)


def local_averaging(*, clip: float, num_shards: int, shard_rows: int) -> ShardedChanges:
    """Local averaging: each shard is fitted as if it were all of a site's rows.

    Args:
        clip: Bound on the 2-norm of the change of one shard.
        num_shards: Number of shards of a site.
        shard_rows: The largest number of rows of a shard: a declared number.

    Returns:
        A scheme that releases the mean of the changes.
    """
    return ShardedChanges(clip=clip, num_shards=num_shards, shard_rows=shard_rows, average=True)


def virtual_clients(
    *, clip: float, num_shards: int, shard_rows: int, noise: NoiseSource = "site"
) -> ShardedChanges:
    """Virtual clients: each shard is a small site.

    Args:
        clip: Bound on the 2-norm of the change of one shard.
        num_shards: Number of shards of a site.
        shard_rows: The largest number of rows of a shard: a declared number.
        noise: Who adds the noise. ``"split"`` needs secure aggregation.

    Returns:
        A scheme that releases the sum of the changes.
    """
    return ShardedChanges(clip=clip, num_shards=num_shards, shard_rows=shard_rows, noise=noise)


@dataclass(frozen=True, kw_only=True)
class OwnFactorChanges(ClippedChanges):
    """Clipped changes whose hidden noise sites keep in their own factors; see `algorithm_three`.

    A site corrects this noise in the next round, and so reveals it. The noise of several rounds then protects less
    than it seems to, and no epsilon is claimed (federated/PROOFS.md).
    """

    noise: NoiseSource = "split"
    dishonest: int = 0
    centred: bool = False
    steady: bool = False

    @property
    def trust(self) -> tuple[str, ...]:
        """That there is no guarantee."""
        return NO_GUARANTEE, *super().trust

    @property
    def keeps_factors(self) -> bool:
        """Sites keep what they sent, with their share of the noise."""
        return True

    def _event(
        self,
        setting: RunSetting[NaturalTarget],  # noqa: ARG002
        noise: float,  # noqa: ARG002
        mechanism: NoisySums,  # noqa: ARG002
    ) -> DpEvent:
        """No privacy is claimed, whatever the noise."""
        return NonPrivateDpEvent()

    def aggregation(self, setting: RunSetting[NaturalTarget], source: Randomness) -> Aggregation:
        """The sum of the changes, from which the server follows the factors of sites."""
        return replace(super().aggregation(setting, source), tracked=True, aggregate=sum_replies)


def algorithm_three(*, clip: float, noise_multiplier: float) -> OwnFactorChanges:
    """Algorithm 3 of the report as printed, to reproduce it. No epsilon is claimed for it.

    Args:
        clip: Bound on the 2-norm of the change of a site.
        noise_multiplier: Noise of the sum, over clip.

    Returns:
        The scheme.
    """
    return OwnFactorChanges(clip=clip, noise_multiplier=noise_multiplier)

"""Whole changes clipped and noised: of a site, or of shards of its rows.

A change is computed in the clear from all rows of a group, clipped as a whole, and summed with
noise by the gate, for which a group is a unit like any other. It may depend on nothing but the
group's rows and what is public: so the factor that stands for the group must be public too. It is,
if every message is protected by itself (``noise="site"``), as the site's factor is then a sum
of what it sent. If only the sum over sites is public, all groups share the factor
(q - prior) / number of groups. A site that kept its own hidden noise in its factor would correct it
in the next round and so tell it: then noise of several rounds protects less than one thinks, and
no epsilon is claimed (``own_factors``; Algorithm 3 of the report is this).
"""

import math
from dataclasses import dataclass, replace
from typing import Literal

from dp_accounting.dp_event import DpEvent, NonPrivateDpEvent

from tacit import _validate
from tacit.accounting import Budget, calibrate, events
from tacit.errors import InvalidArgument
from tacit.federated.changing import Changing, Total
from tacit.federated.scheme import (
    ALONE,
    SEVERAL_SITES,
    Aggregation,
    Prepared,
    Setting,
    covered,
)
from tacit.privacy.noise import Randomness
from tacit.privacy.plans import NoisySums
from tacit.privacy.shares import extra_delta
from tacit.privacy.total import EXACT, exact_bound

Place = Literal["site", "split", "server"]
# Of delta, for a sum of shares of noise that is not quite normal; up to which epsilon it is enough.
_FOR_SHARES, _UP_TO = 2.0**-40, 100.0
_SUM_ONLY = (
    "whoever adds up the sites' messages sees nothing but their sum: single messages have too "
    "little noise to protect anyone, so they must be masked (secure aggregation)"
)
_HONEST = "at most {dishonest} of the sites tell others the noise that they added, or leave it out"
_SERVER = (
    "the server is trusted with the sites' changes, which it gets without noise, and with the "
    "noise; the way to it is encrypted"
)
_TRUST = {
    "site": (ALONE,),
    "split": (_SUM_ONLY, _HONEST),
    "server": (_SERVER,),
}
_ZEROS = (
    "add-remove compares a site's change with zeros in its place; what other data, or none, would "
    "have given instead is what replace compares"
)
_OUTSIDE = "no guarantee: sites keep hidden noise in their own factors, and later rounds reveal it"


@dataclass(frozen=True, kw_only=True)
class ClippedChanges:
    """Changes of whole groups of rows, clipped to ``clip`` in natural parameters.

    ``protects="data set"``: a site is one group, and what is protected is everything it holds.
    ``protects="rows"``: a site's rows are spread at random over ``num_shards`` groups, and one row
    moves the sum by up to two clips; a shard has room for ``shard_rows`` rows, a declared number.
    ``average`` fits each shard as if it were all of the site's rows and takes the mean (local
    averaging); otherwise each is a small site of its own (virtual clients).

    ``noise`` is added by each ``"site"`` in full, ``"split"`` over sites so that the sum has enough
    even if ``dishonest`` of them tell theirs, or by the ``"server"``. ``centred`` clips precision
    times (mean - present mean) rather than precision times mean: the same change, but noise in a
    precision then does not move the mean. ``mean_step`` is the share of that change that the mean
    takes: below one for posteriors without correlations, where all coordinates step at once and
    together step too far. ``steady`` moves the mean less where noise drowns what
    the rows say. ``own_factors`` and a given ``noise_multiplier`` are for comparisons only.
    """

    clip: float
    protects: Literal["rows", "data set"] = "data set"
    num_shards: int = 1
    shard_rows: int | None = None
    average: bool = False
    noise: Place = "site"
    dishonest: int = 1
    num_iterations: int = 1
    centred: bool = True
    mean_step: float = 1.0
    steady: bool = True
    own_factors: bool = False
    noise_multiplier: float | None = None

    def __post_init__(self) -> None:
        _validate.positive("clip", self.clip)
        _validate.choice("protects", self.protects, ("rows", "data set"))
        _validate.choice("noise", self.noise, ("site", "split", "server"))
        _validate.count("num_shards", self.num_shards)
        _validate.count("dishonest", self.dishonest, least=0)
        _validate.count("num_iterations", self.num_iterations)
        _validate.rate("mean_step", self.mean_step)
        if self.protects == "data set" and self.num_shards > 1:
            raise InvalidArgument("A data set that is protected as a whole is not cut into shards.")
        if self.num_shards > 1 and self.shard_rows is None:
            raise InvalidArgument(
                "Declare shard_rows, the most rows of a shard: how many there are is private."
            )
        if self.own_factors and (self.noise != "split" or self.centred or self.average):
            raise InvalidArgument("own_factors is for algorithm_three(...) alone.")
        if self.average and self.noise != "site":
            raise InvalidArgument('Local averaging adds its noise at the site: noise="site".')

    @property
    def alone(self) -> bool:
        """Whether every message is protected by itself."""
        return self.noise == "site"

    @property
    def split(self) -> bool:
        """Whether each site adds a share of the noise."""
        return self.noise == "split"

    @property
    def trust(self) -> tuple[str, ...]:
        """Who is trusted."""
        several = (SEVERAL_SITES,) if self.protects == "rows" else (_ZEROS,)
        own = (_OUTSIDE,) if self.own_factors else ()
        said = (each.format(dishonest=self.dishonest) for each in _TRUST[self.noise])
        return (*own, *said, *several)

    @property
    def sensitivity(self) -> float:
        """What one unit moves the sum by, in clips: a row changes its shard from one to another."""
        return 2.0 if self.protects == "rows" else 1.0

    def multiplier(self, setting: Setting) -> float:
        """Noise of the sum over clip."""
        if self.noise_multiplier is not None:
            return self.noise_multiplier
        budget = self._budget(setting)
        if budget is None:
            return 0.0
        least = calibrate.noise_multiplier(budget, num_steps=setting.answers)
        return self.sensitivity * least

    def _budget(self, setting: Setting) -> Budget | None:
        """What normal noise may cost: of delta, all but what shares of it take, and as much again."""
        budget = setting.budget
        if budget is None or self.noise != "split":
            return budget
        return replace(budget, delta=budget.delta * (1 - 2 * _FOR_SHARES))

    def prepare(self, setting: Setting) -> Prepared:
        """Noise for all answers. Theorems F4 (rows) and F5 (data sets)."""
        noise = self.multiplier(setting)
        event: DpEvent | None = None
        if self.own_factors:
            event = NonPrivateDpEvent()  # whatever the noise: see PROOFS.md
        elif noise > 0:
            one = events.gaussian(noise / self.sensitivity)
            event = covered(events.repeat(one, setting.answers), self._budget(setting))
            if self.noise == "split" and setting.budget is not None:
                slack = events.Slack(delta=_FOR_SHARES * setting.budget.delta)
                event = events.compose(event, slack)
        plan = self._plan(setting, noise)
        if event is not None and self.noise == "split" and not self.own_factors:
            self._refuse_coarse(setting, plan)
        work = Changing(self, setting.target, plan, setting.sites)
        return Prepared(work=work, event=event)

    def share(self, setting: Setting, noise: float) -> float:
        """A site's own noise over clip."""
        if self.noise == "site":
            return noise
        if self.noise == "server":
            return 0.0
        honest = setting.together - self.dishonest
        if honest < 1:
            raise InvalidArgument(
                f"With {setting.together} sites in a round and {self.dishonest} dishonest ones nobody is left to "
                'add noise; use noise="site".'
            )
        return noise / math.sqrt(honest)

    def _refuse_coarse(self, setting: Setting, plan: NoisySums) -> None:
        """The sum of shares is normal but for a chance, for which delta has room. Lemma 4."""
        budget = setting.budget or Budget(0.0, 0.5)  # for comparisons
        extra = extra_delta(
            plan.lattice.noise_std / plan.lattice.grid,
            setting.together - self.dishonest,
            numbers=plan.dimension * setting.answers,
            epsilon=max(budget.epsilon, _UP_TO),
        )
        if extra > _FOR_SHARES * budget.delta:
            raise InvalidArgument(
                "A site's share of the noise is too few lattice points for shares to add up to "
                'normal noise; use fewer shards, or noise="site".'
            )

    def _plan(self, setting: Setting, noise: float) -> NoisySums:
        """One release. The lattice is so coarse that what it gives is whole numbers in float32."""
        share = self.share(setting, noise)
        plan = NoisySums(
            sampling_rate=1.0,
            num_steps=1,
            clip=self.clip,
            noise_multiplier=share,
            dimension=setting.target.family.size,
            batch_bound=exact_bound(self.num_shards + 16 * share),
        )
        most = plan.lattice.points * (self.num_shards + 16 * share)
        if self.noise != "site" and most > EXACT:
            raise InvalidArgument(
                f"{plan.dimension} numbers from {self.num_shards} shards with this noise do not "
                'fit whole numbers; use fewer shards, guide=tacit.MeanField(), or noise="site".'
            )
        return plan

    def aggregation(self, setting: Setting, source: Randomness) -> Aggregation:
        """The sum, with noise if the server adds it; all or nothing where noise is shared."""
        if self.noise == "site":
            return Aggregation()
        noise = self.multiplier(setting)
        plan = self._plan(setting, noise)
        grid = Changing(self, setting.target, plan, setting.sites).grid
        if self.own_factors and self.noise == "split":
            return Aggregation(whole=True, grid=grid)
        points = noise * plan.lattice.points if self.noise == "server" else 0.0
        std = noise * self.clip
        aggregate = Total(self, setting.target, std, points, source.child("server"))
        # Sites repeat an answer to this server only: another's noise would be a second release.
        mark = source.child("mark").words(4).tobytes() if self.noise == "server" else b""
        return Aggregation(whole=True, tracked=False, aggregate=aggregate, mark=mark, grid=grid)


def local_averaging(*, clip: float, num_shards: int, shard_rows: int) -> ClippedChanges:
    """Every shard is fitted as if it were all of a site's rows, and the mean of changes released."""
    return ClippedChanges(
        clip=clip, protects="rows", num_shards=num_shards, shard_rows=shard_rows, average=True
    )


def virtual_clients(
    *, clip: float, num_shards: int, shard_rows: int, noise: Place = "site"
) -> ClippedChanges:
    """Every shard is a small site of its own; with ``noise="split"`` under secure aggregation."""
    return ClippedChanges(
        clip=clip, protects="rows", num_shards=num_shards, shard_rows=shard_rows, noise=noise
    )


def algorithm_three(*, clip: float, noise_multiplier: float) -> ClippedChanges:
    """The report's Algorithm 3 as printed: to reproduce it; no epsilon is claimed for it."""
    return ClippedChanges(
        clip=clip,
        noise="split",
        dishonest=0,
        centred=False,
        steady=False,
        own_factors=True,
        noise_multiplier=noise_multiplier,
    )

"""`PooledScoring`: the settings of private Fisher scoring over several sites."""

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, cast

import numpy as np

from tacit import _validate
from tacit.accounting import Budget, calibrate, events
from tacit.accounting.events import DpEvent
from tacit.errors import InvalidArgument
from tacit.federated.method import Fitted
from tacit.federated.pooled_server import (
    PooledServer,
    PooledTarget,
    QuestionVector,
    ScoreSumRelease,
)
from tacit.federated.schemes import (
    SHARES_DELTA,
    Aggregation,
    Prepared,
    RunSetting,
    Scheme,
    check_noise_shares,
)
from tacit.federated.server import Schedule, ScheduleName, Server
from tacit.federated.targets import ConjugateTarget, study_digest
from tacit.federated.trust import BY_NOISE, MAY_LEAVE, SEVERAL_SITES
from tacit.inference.score_contributions import contribution_size
from tacit.inference.scoring import check_model
from tacit.inference.whitening import whiten_prior
from tacit.models.base import UnitModel
from tacit.privacy.mechanisms import NoisySums
from tacit.privacy.noise import Randomness
from tacit.privacy.rows import Rows

# Sites of a round whose answers are masked.
_MIN_MASKED_SITES = 2


@dataclass(frozen=True, kw_only=True)
class PooledScheme(Scheme):
    """How sites protect their rows in pooled scoring: every answer is one noisy clipped sum.

    Args:
        noise: Each ``"site"`` adds all the noise that its answers need; or it is ``"split"`` over sites,
            whose answers are masked, so that their sum has as much as that of one table.
        dishonest: With ``"split"``, the number of sites that may reveal or leave out their noise.
        dropouts: With ``"split"``, the number of sites that may be missing from a sum.
        num_outcomes: As of `tacit.Scoring`.
        rows_bound: A declared bound on the number of units at a site.
    """

    noise: Literal["site", "split"] = "site"
    dishonest: int = 1
    dropouts: int = 0
    num_outcomes: int = 6
    rows_bound: int = 2**17

    @property
    def trust(self) -> tuple[str, ...]:
        """Who is trusted."""
        said = (*BY_NOISE[self.noise], *((MAY_LEAVE,) if self.dropouts else ()))
        numbers = {"dishonest": self.dishonest, "dropouts": self.dropouts}
        return (*(each.format(**numbers) for each in said), SEVERAL_SITES)

    @property
    def each_message_private(self) -> bool:
        """Whether every message has enough noise by itself."""
        return self.noise == "site"

    @property
    def split(self) -> bool:
        """Whether only the sum of all messages has enough noise."""
        return self.noise == "split"

    def prepare(self, setting: RunSetting) -> Prepared:
        """Noise for all answers. Theorem F7."""
        noise, event = 0.0, None
        if setting.budget is not None:
            budget = self._budget(setting.budget)
            noise = calibrate.noise_multiplier(budget, num_steps=setting.answers)
            event = self._event(noise, setting, setting.budget)
        mechanism = self.mechanism(setting, noise)
        if self.split and setting.budget is not None:
            self._refuse_coarse(setting, mechanism, setting.budget)
        work = ScoreSumRelease(setting.target, self.num_outcomes, mechanism)
        return Prepared(work=work, event=event, in_factor=False)

    def aggregation(self, setting: RunSetting, source: Randomness) -> Aggregation:  # noqa: ARG002
        """The sum of the answers; where noise is shared, all sites must answer, but for dropouts."""
        work = cast("ScoreSumRelease", self.prepare(setting).work)
        return Aggregation(needs_all_sites=self.split, tracked=False, grid=work.grid)

    def mechanism(self, setting: RunSetting, noise: float) -> NoisySums:
        """One answer, with noise so many times the clip in the sum that must be private."""
        honest = self._honest(setting)
        if self.split and honest < 1:
            raise InvalidArgument(
                f"With {setting.together} sites, of which {self.dishonest} may be dishonest and "
                f'{self.dropouts} may leave, nobody is left to add noise; use noise="site".'
            )
        if self.split and setting.together - self.dropouts < _MIN_MASKED_SITES:
            raise InvalidArgument(
                f"With {setting.together} sites, of which {self.dropouts} may leave, one could be left, whose "
                'answer nobody masks; use noise="site", or fewer dropouts.'
            )
        return NoisySums(
            sampling_rate=1.0,
            num_steps=1,
            clip=1.0,
            noise_multiplier=noise / math.sqrt(honest) if self.split else noise,
            dimension=contribution_size(setting.target.model.dimension),
            batch_bound=self.rows_bound,
            secrets=True,
            whole=self.split,
        )

    def _honest(self, setting: RunSetting) -> int:
        """The least number of sites whose shares of noise are in a sum. Theorem F8."""
        return setting.together - self.dishonest - self.dropouts

    def _budget(self, budget: Budget) -> Budget:
        """The budget of normal noise: without twice the part of delta that is kept for shares of noise."""
        return (
            replace(budget, delta=budget.delta * (1 - 2 * SHARES_DELTA)) if self.split else budget
        )

    def _event(self, noise: float, setting: RunSetting, budget: Budget) -> DpEvent:
        event = events.sampled_gaussian(noise, 1.0, setting.answers)
        if not self.split:
            return event
        return events.compose(event, events.Slack(delta=SHARES_DELTA * budget.delta))

    def _refuse_coarse(self, setting: RunSetting, mechanism: NoisySums, budget: Budget) -> None:
        """Refuses shares of noise whose sum is further from normal than delta allows. Lemma F1."""
        check_noise_shares(
            mechanism,
            setting,
            budget,
            self._honest(setting),
            'use noise="site", or a smaller rows_bound',
        )


@dataclass(frozen=True, kw_only=True)
class PooledScoring:
    """Private Fisher scoring over several sites, the default federated method.

    In every round all sites are asked for the noisy sum of what their rows add at the same place, in the
    metric of what was learned so far. The server adds the sums up, which makes them sums over all rows.
    What it asks for next, and the posterior, follow from them as in `tacit.Scoring`. Intervals include the
    noise. Nothing needs tuning, and how rows are spread over sites does not matter.

    The model must be able to draw its outcomes, and have at most 400 unconstrained numbers. All settings
    are public and the same at all sites.

    Args:
        num_rounds: How often every site is asked; the first round counts the units.
        noise: With ``"site"`` every answer is private by itself. The noise of the sum then grows with
            the square root of the number of sites. With ``"split"`` sites share the noise and mask
            their answers; the result is that of one table.
        dishonest: With ``"split"``, the number of sites that may reveal or leave out their noise.
        dropouts: With ``"split"``, the number of sites that may leave for good without ending the run.
            Each site adds as much more noise. One that leaves in the middle of a round costs an answer
            of the others, so ``spare_answers`` must be at least as many.
        spare_answers: Answers that are charged in addition to the rounds.
        num_outcomes: As of `tacit.Scoring`.
        rows_bound: A declared bound on the number of units at a site.
    """

    num_rounds: int = 20
    noise: Literal["site", "split"] = "site"
    dishonest: int = 1
    dropouts: int = 0
    spare_answers: int = 0
    num_outcomes: int = 6
    rows_bound: int = 2**17

    schedule: ClassVar[ScheduleName] = "synchronous"

    def __post_init__(self) -> None:
        _validate.integer("num_rounds", self.num_rounds, least=4)
        _validate.count("spare_answers", self.spare_answers, least=0)
        _validate.choice("noise", self.noise, ("site", "split"))
        _validate.count("dishonest", self.dishonest, least=0)
        _validate.count("dropouts", self.dropouts, least=0)
        if self.dropouts and self.noise == "site":
            raise InvalidArgument('dropouts is for noise="split"; other runs go on without a site.')
        if self.dropouts > self.spare_answers:
            raise InvalidArgument(
                "A site that leaves in the middle of a round costs an answer of the others; pass "
                "spare_answers of at least dropouts."
            )
        _validate.count("num_outcomes", self.num_outcomes, least=2)
        _validate.count("rows_bound", self.rows_bound)

    @property
    def scheme(self) -> PooledScheme:
        """How sites protect their rows."""
        return PooledScheme(
            noise=self.noise,
            dishonest=self.dishonest,
            dropouts=self.dropouts,
            num_outcomes=self.num_outcomes,
            rows_bound=self.rows_bound,
        )

    def rounds(self, sites: int) -> Schedule:  # noqa: ARG002 (all are asked in every round)
        """The schedule: all sites in every round."""
        return Schedule(num_rounds=self.num_rounds)

    def target(self, model: UnitModel | ConjugateTarget) -> PooledTarget:
        """What sites fit together."""
        if isinstance(model, ConjugateTarget):
            raise InvalidArgument(
                "PooledScoring() needs a model; use tacit.federated.Partitioned()."
            )
        check_model(model)
        space = whiten_prior(model)
        prior = np.concatenate([space.mean, np.ravel(space.scale)])
        return PooledTarget(model=model, family=QuestionVector(model.dimension), prior=prior)

    def setting(self, target: PooledTarget, budget: Budget | None, sites: int) -> RunSetting:
        """What one site knows about the run."""
        answers = self.num_rounds + self.spare_answers
        return RunSetting(
            target=target,
            budget=budget,
            answers=answers,
            sites=sites,
            together=sites,
            dropouts=self.dropouts,
            rows_bound=self.rows_bound,
        )

    def about(self, target: PooledTarget, sites: int, rows: Rows) -> str:
        """A digest that identifies the study; it depends on the types of the columns, not on values."""
        return study_digest((self, sites), target, rows)

    def server(
        self,
        target: PooledTarget,
        names: tuple[str, ...],
        *,
        run: str,
        budget: Budget | None,
        source: Randomness,
    ) -> PooledServer:
        """The server of a run. The budget tells it how much noise answers have."""
        setting = self.setting(target, budget, len(names))
        aggregation = self.scheme.aggregation(setting, source)
        work = cast("ScoreSumRelease", self.scheme.prepare(setting).work)
        return PooledServer(
            run=run,
            model=target.model,
            simulated=target.simulated,
            sites=names,
            num_rounds=self.num_rounds,
            noise=work.mechanism.noise_std,
            outcomes=self.num_outcomes,
            rows_bound=self.rows_bound,
            needs_all_sites=aggregation.needs_all_sites,
            dropouts=self.dropouts,
            spare_rounds=self.spare_answers,
            grid=aggregation.grid,
        )

    def fitted(self, target: PooledTarget, server: Server, seed: int) -> Fitted:  # noqa: ARG002
        """The posterior of a finished run."""
        return cast("PooledServer", server).fitted(np.random.default_rng(seed))

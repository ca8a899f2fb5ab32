"""`PooledScoring`: the settings of private Fisher scoring over several sites, and how they protect rows."""

import math
from dataclasses import dataclass
from typing import Literal, cast

import numpy as np

from tacit import _validate
from tacit.accounting import Budget, calibrate, events
from tacit.errors import InvalidArgument
from tacit.federated.method import FederatedMethod
from tacit.federated.pooled_server import (
    PooledServer,
    PooledTarget,
    QuestionVector,
    ScoreSumRelease,
)
from tacit.federated.schemes import (
    Prepared,
    RunSetting,
    Scheme,
    check_noise_shares,
    normal_noise_budget,
    shares_slack,
)
from tacit.federated.server import Schedule, Server
from tacit.federated.targets import ConjugateTarget
from tacit.federated.trust import BY_NOISE, MAY_LEAVE, SEVERAL_SITES
from tacit.inference.method import MethodResult
from tacit.inference.score_contributions import contribution_size
from tacit.inference.scoring import check_model
from tacit.inference.whitening import whiten_prior
from tacit.models.base import UnitModel
from tacit.privacy.mechanisms import NoisySums
from tacit.privacy.noise import Randomness

# Sites of a round whose answers are masked.
_MIN_MASKED_SITES = 2


@dataclass(frozen=True, kw_only=True)
class PooledScoring(FederatedMethod[PooledTarget], Scheme[PooledTarget]):
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
    def scheme(self) -> Scheme[PooledTarget]:  # type: ignore[override]
        """How sites protect their rows, which follows from the same settings."""
        return self

    @property
    def trust(self) -> tuple[str, ...]:
        """Who is trusted."""
        sentences = (*BY_NOISE[self.noise], *((MAY_LEAVE,) if self.dropouts else ()))
        numbers = {"dishonest": self.dishonest, "dropouts": self.dropouts}
        return (*(each.format(**numbers) for each in sentences), SEVERAL_SITES)

    @property
    def each_message_private(self) -> bool:
        """Whether every message has enough noise by itself."""
        return self.noise == "site"

    @property
    def split(self) -> bool:
        """Whether only the sum of all messages has enough noise."""
        return self.noise == "split"

    def prepare(self, setting: RunSetting[PooledTarget]) -> Prepared:
        """Noise for all answers: each is one noisy clipped sum. Theorem F7."""
        budget, noise, event = setting.budget, 0.0, None
        if budget is not None:
            normal = normal_noise_budget(budget) if self.split else budget
            noise = calibrate.noise_multiplier(normal, num_steps=setting.answers)
            event = events.sampled_gaussian(noise, 1.0, setting.answers)
        # The least number of sites whose shares of noise are in a sum. Theorem F8.
        honest = setting.together - self.dishonest - self.dropouts
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
        mechanism = NoisySums(
            sampling_rate=1.0,
            num_steps=1,
            clip=1.0,
            noise_multiplier=noise / math.sqrt(honest) if self.split else noise,
            dimension=contribution_size(setting.target.model.dimension),
            batch_bound=self.rows_bound,
            secrets=True,
            whole=self.split,
        )
        if self.split and budget is not None and event is not None:
            advice = 'use noise="site", or a smaller rows_bound'
            check_noise_shares(mechanism, setting, budget, honest, advice)
            event = events.compose(event, shares_slack(budget))
        work = ScoreSumRelease(setting.target, self.num_outcomes, mechanism)
        return Prepared(work=work, event=event, in_factor=False, noise_std=mechanism.noise_std)

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

    def setting(
        self, target: PooledTarget, budget: Budget | None, sites: int
    ) -> RunSetting[PooledTarget]:
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

    def server(
        self,
        target: PooledTarget,
        names: tuple[str, ...],
        *,
        run: str,
        budget: Budget | None,
        source: Randomness,  # noqa: ARG002 (the server adds no noise)
    ) -> PooledServer:
        """The server of a run. The budget tells it how much noise answers have."""
        prepared = self.prepare(self.setting(target, budget, len(names)))
        return PooledServer(
            run=run,
            model=target.model,
            simulated=target.simulated,
            sites=names,
            num_rounds=self.num_rounds,
            noise=prepared.noise_std,
            outcomes=self.num_outcomes,
            rows_bound=self.rows_bound,
            needs_all_sites=self.split,
            dropouts=self.dropouts,
            spare_rounds=self.spare_answers,
            grid=prepared.work.grid,
        )

    def fitted(self, target: PooledTarget, server: Server, seed: int) -> MethodResult:  # noqa: ARG002
        """The posterior of a finished run."""
        return cast("PooledServer", server).fitted(np.random.default_rng(seed))

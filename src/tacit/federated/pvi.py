"""Settings of partitioned variational inference."""

from dataclasses import dataclass, field
from typing import cast

import numpy as np

from tacit import _validate
from tacit.accounting import Budget
from tacit.errors import InvalidArgument
from tacit.federated.method import Fitted
from tacit.federated.schemes import Optimised, RunSetting, Scheme, WithoutPrivacy
from tacit.federated.server import AnyServer, Schedule, ScheduleName, Server, influence_warnings
from tacit.federated.targets import (
    ApproximateTarget,
    ConjugateTarget,
    Target,
    conjugate_target,
    family_for_guide,
    study_digest,
)
from tacit.inference.guides import Guide, MeanField
from tacit.inference.method import Intervals
from tacit.models.base import UnitModel
from tacit.models.conjugate import Conjugate
from tacit.models.exponential_families import DiagonalGaussian, FullGaussian
from tacit.privacy.noise import Randomness
from tacit.privacy.rows import Rows

_POSTERIOR_DRAWS = 1000
_ROUNDS_UNCHECKED = "It is not checked whether the number of rounds was enough; see plot_trace()."


@dataclass(frozen=True, kw_only=True)
class Partitioned:
    """Partitioned variational inference. All settings are public and the same at all sites.

    Args:
        scheme: How sites protect their data; see `tacit.federated.schemes` and docs/federated.md.
        num_rounds: How often every site is asked.
        schedule: ``"synchronous"``, ``"sequential"`` or ``"asynchronous"``.
        damping: Factor that a site's change is multiplied by. By default 1; or one over the number of
            sites that are asked together for private optimisation, whose changes overlap.
        group_size: Number of sites that are asked at a time.
        spare_answers: Answers that are charged in addition to the rounds, for tasks that must be
            asked again.
        guide: The family of the posterior: ``tacit.methods.MeanField()`` or ``tacit.methods.FullRank()``. Conjugate
            models have a family of their own and ignore it.
        num_draws: Number of pairs of opposite draws that expectations are computed with.
    """

    scheme: Scheme = field(default_factory=Optimised)
    num_rounds: int = 10
    schedule: ScheduleName = "synchronous"
    damping: float | None = None
    group_size: int | None = None
    spare_answers: int = 0
    guide: Guide = field(default_factory=MeanField)
    num_draws: int = 8

    def __post_init__(self) -> None:
        _ = self.rounds(1)
        _validate.count("spare_answers", self.spare_answers, least=0)
        if self.schedule != "synchronous" and not self.scheme.each_message_private:
            raise InvalidArgument(
                "With this scheme only the sum over all sites is private, so all sites must answer in "
                'the same round; use schedule="synchronous".'
            )

    def rounds(self, sites: int) -> Schedule:
        """The schedule: which sites are asked when."""
        damping = self.damping
        if damping is None:
            together = sites if self.group_size is None else self.group_size
            overlap = isinstance(self.scheme, Optimised) and self.schedule == "synchronous"
            damping = 1 / together if overlap else 1.0
        return Schedule(
            num_rounds=self.num_rounds,
            kind=self.schedule,
            group_size=self.group_size,
            damping=damping,
        )

    def target(self, model: UnitModel | ConjugateTarget) -> Target:
        """What sites fit together: the model, with the natural parameters of its posterior."""
        if isinstance(model, ConjugateTarget):
            return model
        if isinstance(model, Conjugate):
            return conjugate_target(model)
        family = family_for_guide(self.guide, model.dimension)
        return ApproximateTarget(model=model, family=family, num_draws=self.num_draws)

    def setting(self, target: Target, budget: Budget | None, sites: int) -> RunSetting:
        """What one site knows about the run."""
        together = sites if self.group_size is None else self.group_size
        if not self.scheme.each_message_private and sites % together:
            raise InvalidArgument(
                f"{sites} sites cannot be divided into groups of {together}; sites that share noise "
                "need groups of equal size."
            )
        return RunSetting(
            target=target,
            budget=budget,
            answers=self.num_rounds + self.spare_answers,
            sites=sites,
            together=together,
            damping=self.rounds(sites).damping,
        )

    def about(self, target: Target, sites: int, rows: Rows) -> str:
        """A digest that identifies the study; it depends on the types of the columns, not on values."""
        return study_digest((self, sites), target, rows)

    def server(
        self,
        target: Target,
        names: tuple[str, ...],
        *,
        run: str,
        budget: Budget | None,
        source: Randomness,
    ) -> Server:
        """The server of a run. The budget is used only if the server adds noise."""
        aggregation = self.scheme.aggregation(self.setting(target, budget, len(names)), source)
        return Server(
            run=run,
            family=target.family,
            prior=target.prior,
            sites=names,
            damping=self.rounds(len(names)).damping,
            whole=aggregation.whole,
            tracked=aggregation.tracked,
            aggregate=aggregation.aggregate,
            mark=aggregation.mark,
            grid=aggregation.grid,
        )

    def fitted(self, target: Target, server: AnyServer, seed: int) -> Fitted:
        """The posterior of a finished run."""
        held = cast("Server", server)
        family, found = target.family, held.posterior
        gaussian = family if isinstance(family, DiagonalGaussian | FullGaussian) else None
        clear = isinstance(self.scheme, WithoutPrivacy)
        return Fitted(
            draws=target.named(found, _POSTERIOR_DRAWS, seed),
            trace={"natural": np.array(server.trace)},
            mean=None if gaussian is None else gaussian.mean(found),
            covariance=None if gaussian is None else gaussian.covariance(found),
            said=(_ROUNDS_UNCHECKED, *influence_warnings(held.influence())),
            fitted_by=(
                f"Partitioned variational inference over {len(server.sites)} sites.",
                f"{self.num_rounds} rounds.",
            ),
            intervals=Intervals.NO_NOISE if clear else Intervals.LEFT_OUT,
        )

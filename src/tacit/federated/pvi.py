"""Partitioned variational inference: the server's update rule, and the method's settings.

The posterior q is the prior times one factor for each site, and sites answer with changes of their factor. A factor
need not be a distribution by itself: its precision may be negative. But q must be one, and so must every cavity,
which is q without the factor of one site. If a change would make one of them improper, only the largest possible
share of the change is applied.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, cast

import numpy as np

from tacit import _validate
from tacit.accounting import Budget
from tacit.errors import InvalidArgument, TacitError
from tacit.federated.method import FederatedFit
from tacit.federated.protocol import Arrays, Reply
from tacit.federated.schemes import Aggregate, Optimised, RunSetting, Scheme, WithoutPrivacy
from tacit.federated.server import (
    Influence,
    Schedule,
    ScheduleName,
    Server,
    influence_sentences,
    other_state,
    sum_replies,
)
from tacit.federated.targets import (
    ApproximateTarget,
    ConjugateTarget,
    NaturalTarget,
    conjugate_target,
    family_for_guide,
)
from tacit.inference.guides import Guide, MeanField
from tacit.inference.result import Intervals, MethodResult
from tacit.models.base import UnitModel
from tacit.models.conjugate import Conjugate
from tacit.models.exponential_families import (
    DiagonalGaussian,
    ExponentialFamily,
    FullGaussian,
    Vector,
    kl_divergence,
)
from tacit.privacy.noise import Randomness

# The squares of larger numbers overflow.
_MAX_NUMBER = 1e100
_POSTERIOR_DRAWS = 1000
_ROUNDS_UNCHECKED = "It is not checked whether the number of rounds was enough; see plot_trace()."


@dataclass(kw_only=True)
class PVIServer(Server):
    """The posterior, and what the server knows about the factors of sites.

    Args:
        run: See `Server`, also for the other settings that are not listed here.
        family: The family of the posterior.
        prior: Natural parameters of the prior.
        damping: The factor that changes are multiplied by.
        tracked: Whether the server sees single changes, and uses them to keep cavities proper.
            Otherwise all sites share the public factor, whose cavity is proper if q is.
        aggregate: Turns replies into a change of the posterior; by default their sum.
    """

    family: ExponentialFamily
    prior: Vector
    damping: float = 1.0
    tracked: bool = True
    aggregate: Aggregate = sum_replies
    posterior: Vector = field(init=False)
    factors: dict[str, Vector] = field(init=False)

    rule_fields: ClassVar[Mapping[str, tuple[str, int]]] = {
        "posterior": ("f", 1),
        "factors": ("f", 2),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.family.is_proper(self.prior):
            raise InvalidArgument("The prior must be a proper distribution.")
        self.posterior = np.array(self.prior, np.float64)
        self.factors = {name: np.zeros(self.family.size) for name in self.sites}

    @property
    def query(self) -> Vector:
        """The posterior."""
        return self.posterior

    @property
    def answer_size(self) -> int:
        """The number of natural parameters."""
        return self.family.size

    @property
    def position(self) -> Vector:
        """The posterior."""
        return self.posterior

    def is_possible(self, name: str, values: Vector) -> bool:  # noqa: ARG002
        """Whether the numbers are finite, and their squares too."""
        return bool(np.all(np.abs(values) < _MAX_NUMBER))  # not so for NaN

    def update(self, replies: Mapping[str, Reply]) -> Vector:
        """Applies the largest share of the changes that keeps q and all cavities proper."""
        change = self.aggregate(list(replies.values()), self.posterior)
        if change.shape != self.prior.shape or not np.isfinite(change).all():
            raise InvalidArgument("The sum of the answers is not finite, or has the wrong shape.")
        own = {name: reply.values for name, reply in replies.items()} if self.tracked else {}
        share = self._largest_share(change, own)
        self.posterior = self.posterior + share * change
        parts = {name: share * values for name, values in own.items()}
        for name, part in parts.items():
            self.factors[name] = self.factors[name] + part
        # Where the factor is shared, sites keep none of their own.
        return share if self.tracked else np.zeros(0)

    def _largest_share(self, change: Vector, own: Mapping[str, Vector]) -> Vector:
        """The largest share of a change, at most the damping, that keeps q and all cavities proper.

        There is a share for each entry, so that independent coordinates do not hold each other back. The
        proper vectors of a family are a convex set, so every smaller share keeps them proper as well.

        Args:
            change: The change of q.
            own: The part of the change that goes into the factor of a site, by name. It does not change
                the cavity of that site.

        Returns:
            The share of each entry.
        """
        steps = [(self.posterior, change)]
        if self.tracked:
            steps += [
                (self.posterior - factor, change - own.get(name, 0.0))
                for name, factor in self.factors.items()
            ]
        shares = [self.family.largest_step(eta, self.damping * step) for eta, step in steps]
        return self.damping * np.asarray(np.min(np.stack(shares), axis=0), np.float64)

    def _influences(self, factors: Mapping[str, Vector]) -> dict[str, Influence]:
        """How far the posterior would move without each factor, as a shift of so many standard deviations.

        It is the square root of twice the Kullback-Leibler divergence, which for a shift of a Gaussian is
        its length. It is infinite if the rest is no distribution.
        """

        def away(rest: Vector) -> float:
            if not self.family.is_proper(rest):
                return math.inf
            return math.sqrt(2 * max(kl_divergence(self.family, rest, self.posterior), 0.0))

        return {
            name: Influence(away(self.posterior - factor), 0.0) for name, factor in factors.items()
        }

    def influence(self) -> dict[str, Influence]:
        """How far the posterior would move without each site.

        Nothing is known if only the sum of answers is.
        """
        return self._influences(self.factors) if self.tracked and len(self.sites) > 1 else {}

    def without(self, sites: Sequence[str]) -> Vector:
        """The posterior without some sites: divided by their factors."""
        if not self.tracked:
            raise InvalidArgument("Only the sum of answers is known.")
        factors = np.stack([self.factors[name] for name in sites])
        rest = np.asarray(self.posterior - factors.sum(axis=0), np.float64)
        if not self.family.is_proper(rest):
            raise TacitError("Without these sites the posterior is not a distribution.")
        return rest

    def rule_state(self) -> Sequence[Vector]:
        """The posterior and the factors of all sites."""
        return self.posterior, np.stack([self.factors[name] for name in self.sites])

    def restore_rule(self, state: Arrays) -> None:
        """Takes the posterior and the factors of a state."""
        if state["factors"].shape != (len(self.sites), self.family.size):
            raise other_state()
        self.posterior = state["posterior"]
        self.factors = dict(zip(self.sites, state["factors"], strict=True))


@dataclass(frozen=True, kw_only=True)
class Partitioned(FederatedFit[NaturalTarget]):
    """Partitioned variational inference. All settings are public and the same at all sites.

    Args:
        scheme: How sites protect their data; see `tacit.federated.schemes`, and "Several sites" in the documentation.
        num_rounds: How often every site is asked.
        schedule: ``"synchronous"`` or ``"sequential"``.
        damping: Factor that a site's change is multiplied by. By default 1; or one over the number of
            sites that are asked together for private optimisation, whose changes overlap.
        group_size: Number of sites that are asked at a time.
        spare_answers: Answers that are charged in addition to the rounds, for tasks that must be
            asked again.
        guide: The family of the posterior: ``tacit.methods.MeanField()`` or ``tacit.methods.FullRank()``. Conjugate
            models have a family of their own and ignore it.
        num_draws: Number of pairs of opposite draws that expectations are computed with.
    """

    scheme: Scheme[NaturalTarget] = field(default_factory=Optimised)
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

    def target(self, model: UnitModel | ConjugateTarget) -> NaturalTarget:
        """What sites fit together: the model, with the natural parameters of its posterior."""
        if isinstance(model, ConjugateTarget):
            return model
        if isinstance(model.source, Conjugate):
            return conjugate_target(model.source)
        family = family_for_guide(self.guide, model.dimension)
        return ApproximateTarget(model=model, family=family, num_draws=self.num_draws)

    def setting(
        self, target: NaturalTarget, budget: Budget | None, sites: int
    ) -> RunSetting[NaturalTarget]:
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

    def server(
        self,
        target: NaturalTarget,
        names: tuple[str, ...],
        *,
        run: str,
        budget: Budget | None,
        source: Randomness,
    ) -> PVIServer:
        """The server of a run. The budget is used only if the server adds noise."""
        aggregation = self.scheme.aggregation(self.setting(target, budget, len(names)), source)
        return PVIServer(
            run=run,
            family=target.family,
            prior=target.prior,
            sites=names,
            damping=self.rounds(len(names)).damping,
            needs_all_sites=aggregation.needs_all_sites,
            tracked=aggregation.tracked,
            aggregate=aggregation.aggregate,
            mark=aggregation.mark,
            grid=aggregation.grid,
        )

    def fitted(self, target: NaturalTarget, server: Server, seed: int) -> MethodResult:
        """The posterior of a finished run."""
        held = cast("PVIServer", server)
        family, found = target.family, held.posterior
        gaussian = family if isinstance(family, DiagonalGaussian | FullGaussian) else None
        clear = isinstance(self.scheme, WithoutPrivacy)
        moved = influence_sentences(held.influence())
        return MethodResult(
            draws=target.named_draws(found, _POSTERIOR_DRAWS, seed),
            trace={"natural": np.array(server.trace)},
            unconstrained_mean=None if gaussian is None else gaussian.mean(found),
            unconstrained_covariance=None if gaussian is None else gaussian.covariance(found),
            messages=(_ROUNDS_UNCHECKED, *moved),
            fitted_by=(
                f"Partitioned variational inference over {len(server.sites)} sites.",
                f"{self.num_rounds} rounds.",
            ),
            intervals=Intervals.NO_NOISE if clear else Intervals.LEFT_OUT,
        )

"""Settings of Barker chains, and the tests that fit a budget."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Self

from numpy.typing import ArrayLike

from tacit import _validate
from tacit.accounting import PLD, Budget, calibrate, events
from tacit.errors import BudgetError, InvalidArgument
from tacit.inference.barker_guided import GUIDED_STEPS
from tacit.inference.mixing import LEAST_EFFECTIVE
from tacit.inference.proposals import BoundedWalk, GaussianWalk, Proposal
from tacit.inference.reference import USUAL_SHARE, FirstFit, share_of
from tacit.inference.scoring import Scoring, suits
from tacit.inference.tempering import tempering
from tacit.inference.variational import Variational
from tacit.models.base import AnyModel
from tacit.privacy.decisions import BarkerTests, SampledBarkerTests, tests_event
from tacit.privacy.mechanisms import Mechanism, Stages

_STEPS, _START_SHARE = 5000, 0.2
# As large as the bound on a row's log ratio need ever be.
_HARDLY = 64.0
Tests = BarkerTests | SampledBarkerTests


@dataclass(frozen=True, kw_only=True)
class BarkerSettings:
    """Settings of a chain, and what the gate will do by them. See `tacit.Barker`."""

    num_steps: int | None = None
    ratio_bound: float | None = None
    noise_variance: float | None = None
    batch_size: int | None = None
    size: int | None = None
    tempered_size: float | None = None
    correction: Literal["table", "mixture"] = "table"
    proposal: Proposal | None = None
    lipschitz: float | None = None
    start: Scoring | Variational | Mapping[str, ArrayLike] | None = field(
        default=None, compare=False
    )
    start_share: float | None = None
    burn_in: float | None = None
    thin: int = 1

    declared_public: ClassVar[tuple[str, ...]] = ("start",)
    by_gradients: ClassVar[bool] = False
    assumptions: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        given = {name: value for name, value in vars(self).items() if value is not None}
        for name in ("num_steps", "batch_size"):
            if name in given:
                _validate.integer(name, given[name])
        for name in ("ratio_bound", "lipschitz", "noise_variance"):
            if name in given:
                _validate.positive(name, given[name])
        _validate.choice("correction", self.correction, ("table", "mixture"))
        _validate.count("thin", self.thin)
        if not (0 <= given.get("burn_in", 0) < 1 and 0 < given.get("start_share", 0.5) < 1):
            raise InvalidArgument("burn_in and start_share must be shares of the whole, below 1.")
        if self.proposal is not None and not isinstance(self.proposal, Proposal):
            raise InvalidArgument(
                "proposal must be a GaussianWalk or BoundedWalk of tacit.methods."
            )
        if self.lipschitz is not None and isinstance(self.proposal, GaussianWalk):
            raise InvalidArgument("lipschitz works only with proposal=tacit.methods.BoundedWalk().")
        self._refuse_sizes()

    def _refuse_sizes(self) -> None:
        _ = self.tempering  # refuses sizes that make no sense
        if self.batch_size is None:
            return
        if self.size is None:
            raise InvalidArgument("batch_size needs size=, the public number of units.")
        if self.ratio_bound is not None or self.noise_variance is not None:
            raise InvalidArgument(
                "batch_size determines the bound, sqrt(batch_size) / tempered_size, and the noise "
                "variance, 2, as the proof needs them; leave out ratio_bound and noise_variance."
            )

    @property
    def tempering(self) -> float:
        """The factor that the log-likelihood is multiplied by."""
        return tempering(self.size, self.tempered_size)

    def for_size(self, model: AnyModel, size: int, budget: Budget) -> Self:  # noqa: ARG002
        """The method for a declared size."""
        return self if self.size is not None else replace(self, size=size)

    def first_fit(self, model: AnyModel) -> FirstFit | None:
        """The fit whose draws are the proposals; None for a walk."""
        walk = self.proposal, self.lipschitz, self.ratio_bound, self.noise_variance
        plain = *walk, self.batch_size, self.tempered_size
        if isinstance(self.start, Scoring):
            if any(each is not None for each in plain):
                raise InvalidArgument(
                    "A start by Scoring makes its own proposals and bound; leave out settings of the walk."
                )
            return FirstFit(self.start, self.start_share or USUAL_SHARE)
        if self.start is not None or any(each is not None for each in plain) or not suits(model):
            return None
        return FirstFit(Scoring(), self.start_share or USUAL_SHARE, self.size)

    def public_start(self, model: AnyModel) -> Any:
        """Where a walk begins, by values that were given."""
        return model.start(self.start if isinstance(self.start, Mapping) else {})

    def calibrated(self, model: AnyModel, budget: Budget) -> Mechanism:
        """The tests that fit a budget, after a start that has its share of it."""
        fitted = self.first_fit(model)
        if fitted is not None:
            first: Mechanism = fitted.calibrated(model, budget)
            return Stages((first, self._tests(budget, (first.event,), GUIDED_STEPS)))
        if not isinstance(self.start, Variational):
            return self._tests(budget, ())
        first = self.start.calibrated(model, share_of(budget, self.start_share or _START_SHARE))
        return Stages((first, self._tests(budget, (first.event,))))

    def _tests(self, budget: Budget, before: tuple[Any, ...], usual: int = _STEPS) -> Tests:
        if self.batch_size is not None and budget.adjacency != "replace":
            raise InvalidArgument(
                "Tests on batches of fixed size have no guarantee under add-remove; pass "
                'Budget(..., adjacency="replace"), which takes the number of units as public.'
            )
        bound = self._stated_bound()
        if bound is None:
            return self._by_bound(budget, before, usual)
        if self.num_steps is None:
            most = calibrate.most_steps(
                lambda steps: events.compose(*before, self._plan(bound, steps).event), budget
            )
            return self._plan(bound, most)
        tests = self._plan(bound, self.num_steps)
        spent = PLD().epsilon(events.compose(*before, tests.event), budget.delta, budget.adjacency)
        if spent > budget.epsilon:
            raise BudgetError(
                f"{self.num_steps} tests with ratios bounded by {bound:.4g} cost epsilon "
                f"{spent:.4g}, more than {budget}; take fewer, or leave num_steps or the bound out."
            )
        return tests

    def _stated_bound(self) -> float | None:
        """The bound of ratios, where settings determine it."""
        if self.batch_size is not None:
            return math.sqrt(self.batch_size) / self._tempered_size
        if self.ratio_bound is not None or self.lipschitz is None:
            return self.ratio_bound
        if self.proposal is None or self.proposal.scale is None:
            return None
        return self.tempering * self.lipschitz * self.proposal.scale

    @property
    def _tempered_size(self) -> float:
        assert self.size is not None
        return float(self.size) if self.tempered_size is None else self.tempered_size

    def _by_bound(self, budget: Budget, before: tuple[Any, ...], usual: int) -> Tests:
        """The largest bound that the budget allows for so many steps."""
        steps = self.num_steps or usual
        left = 1 - (USUAL_SHARE if before else 0) ** 2  # of the budget, as squares add up
        inverse = calibrate.calibrate(
            lambda inverse: events.compose(
                *before, tests_event(1 / inverse, self.noise_variance, steps)
            ),
            budget,
            guess=math.sqrt(steps) / (2 * calibrate.usual_mu(budget) * math.sqrt(left)),
        )
        return self._plan(min(1 / inverse, _HARDLY), steps)

    def _plan(self, bound: float, steps: int, *, private: bool = True) -> Tests:
        """The tests; those on batches have a bound of their own."""
        if self.batch_size is None:
            return BarkerTests(
                num_steps=steps,
                ratio_bound=bound,
                noise_variance=self.noise_variance,
                private=private,
            )
        assert self.size is not None
        return SampledBarkerTests(
            num_steps=steps,
            batch_size=self.batch_size,
            dataset_size=self.size,
            tempered_size=self._tempered_size,
            private=private,
        )

    def without_noise(self, model: AnyModel) -> Mechanism:
        """Without privacy: the same chain, with ratios hardly clipped."""
        fitted = self.first_fit(model)
        usual = _STEPS if fitted is None else GUIDED_STEPS
        tests = self._plan(_HARDLY, self.num_steps or usual, private=False)
        if fitted is not None:
            return Stages((fitted.scoring.without_noise(model), tests))
        if not isinstance(self.start, Variational):
            return tests
        return Stages((self.start.without_noise(model), tests))

    def walk(self, model: AnyModel, tests: Tests) -> Proposal:
        """The proposal, with its scale: by default what the bound allows a typical row."""
        chosen = self.proposal or (GaussianWalk() if self.lipschitz is None else BoundedWalk())
        if chosen.scale is not None:
            return chosen
        # Bound of the likelihood's own ratio; a batch's is not tempered.
        bound = tests.clip / (self.tempering if self.batch_size is None else 1.0)
        if self.lipschitz is not None:
            return chosen.scaled(bound / self.lipschitz)
        # A row's gradient is about sqrt(dimension) long. Four standard deviations of its ratio are
        # not to be clipped: with two the posterior is off by a tenth.
        scale = min(bound / 4, 1.0) / math.sqrt(model.dimension)
        ball = isinstance(chosen, BoundedWalk)
        return chosen.scaled(scale * math.sqrt(model.dimension + 2) if ball else scale)

    def refuse_hopeless(self, model: AnyModel, tests: Tests) -> None:
        """Raises if a walk by settings that nobody chose will not mix, as far as a size tells."""
        chosen = self.num_steps, self.ratio_bound, self.proposal, self.tempered_size, self.lipschitz
        if self.size is None or any(each is not None for each in chosen):
            return
        # A move is this part of a posterior standard deviation, if a row's slope is usual.
        part = (self.walk(model, tests).scale or 0.0) * math.sqrt(self.size)
        worth = tests.num_steps * min(part**2, 1.0) / 8
        if worth < LEAST_EFFECTIVE:
            raise InvalidArgument(
                f"A walk of Barker tests would be worth about {worth:.0f} independent draws at this "
                f"budget and size, and {LEAST_EFFECTIVE:.0f} are needed. Give the model a way to draw its "
                "outcomes, use tacit.Variational(), or choose num_steps yourself."
            )

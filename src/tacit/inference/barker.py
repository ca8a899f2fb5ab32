"""Differentially private Markov chain Monte Carlo, by the Barker test (DP-MCMC).

A step proposes a move and asks the gate whether to make it. The answer, one bit, is all that
is learnt of the rows: accepted with probability sigmoid(log posterior ratio), the randomness of
the test is the privacy. So any model will do whose likelihood can be evaluated, also one with
discrete parameters, and nothing depends on whether the chain has converged.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from tacit import _validate
from tacit.accounting import PLD, Budget, calibrate, events
from tacit.errors import BudgetError, InvalidArgument
from tacit.inference.barker_steps import state_of, step_of
from tacit.inference.base import (
    Intervals,
    MethodResult,
    Progress,
    Steps,
    normals,
    parameters,
    seed_of,
)
from tacit.inference.correction import correction
from tacit.inference.guides import FullRank, LowRank, MeanField
from tacit.inference.mixing import bad_mixing
from tacit.inference.proposals import (
    BoundedWalk,
    GaussianWalk,
    Proposal,
    draws_needed,
)
from tacit.inference.tempering import tempering
from tacit.inference.variational import Variational
from tacit.models.base import AnyModel
from tacit.privacy.captured import refuse_captured
from tacit.privacy.decisions import BarkerTests, SampledBarkerTests, tests_event
from tacit.privacy.gate import Gate, check, run
from tacit.privacy.mechanisms import Mechanism, Stages
from tacit.privacy.program import Step

_STEPS = 5000
# As large as the bound on a row's log ratio need ever be.
_HARDLY = 64.0
_Tests = BarkerTests | SampledBarkerTests


@dataclass(frozen=True, kw_only=True)
class Barker:
    """Private Markov chain Monte Carlo by Barker accept/reject tests. All settings are public.

    By default every step tests a proposal on all units, and the accept decision is exact. With
    tight accounting this is the most private form. ``num_steps`` and the budget determine
    ``ratio_bound``; if the bound is passed instead, the chain is as long as the budget allows.

    Args:
        num_steps: Number of steps; 5000 if neither this nor ``ratio_bound`` is passed.
        ratio_bound: Bound that one unit's log-likelihood ratio is clipped to.
        noise_variance: Use the published test with Gaussian noise of this variance and a correction
            (Heikkilä et al. 2019).
        batch_size: Test on random batches of this many units. This is faster for millions of rows,
            but approximate and not more private. It needs ``size`` and a budget under replace.
        size: The public number of units. Do not count it from private data. Without ``batch_size``
            it need not be exact.
        tempered_size: Scale the log-likelihood by ``tempered_size / size``, for a wider posterior
            and larger steps.
        correction: The correction distribution of the published test: ``"table"`` (optimised) or
            ``"mixture"`` (the paper's).
        proposal: `tacit.methods.GaussianWalk` or `tacit.methods.BoundedWalk`. By default normal steps, short enough
            that a typical row is not clipped.
        lipschitz: A Lipschitz constant of a row's log-likelihood on the unconstrained scale. Steps
            are then bounded so that nothing is clipped (Heikkilä et al. 2019, Lemma 2). If the
            constant is wrong, clipping still protects.
        start: Settings of a `Variational` fit to start from, or public values of some parameters.
        start_share: The share of the budget that a `Variational` start gets.
        burn_in: The share of the steps that is discarded at the start.
        thin: Keep every ``thin``-th of the remaining draws.
    """

    num_steps: int | None = None
    ratio_bound: float | None = None
    noise_variance: float | None = None
    batch_size: int | None = None
    size: int | None = None
    tempered_size: float | None = None
    correction: Literal["table", "mixture"] = "table"
    proposal: Proposal | None = None
    lipschitz: float | None = None
    start: Variational | Mapping[str, ArrayLike] | None = field(default=None, compare=False)
    start_share: float = 0.2
    burn_in: float = 0.2
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
        if not (0 <= self.burn_in < 1 and 0 < self.start_share < 1):
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

    def calibrated(self, model: AnyModel, budget: Budget) -> Mechanism:
        """The tests that fit a budget, after a start that has its share of it."""
        if not isinstance(self.start, Variational):
            return self._tests(budget, ())
        part = self.start_share
        share = Budget(part * budget.epsilon, part * budget.delta, budget.adjacency)
        first = self.start.calibrated(model, share)
        return Stages((first, self._tests(budget, (first.event,))))

    def _tests(self, budget: Budget, before: tuple[Any, ...]) -> _Tests:
        if self.batch_size is not None and budget.adjacency != "replace":
            raise InvalidArgument(
                "Tests on batches of fixed size have no guarantee under add-remove; pass "
                'Budget(..., adjacency="replace"), which takes the number of units as public.'
            )
        bound = self._stated_bound()
        if bound is None:
            return self._by_bound(budget, before)
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

    def _by_bound(self, budget: Budget, before: tuple[Any, ...]) -> _Tests:
        """The largest bound that the budget allows for so many steps."""
        steps = self.num_steps or _STEPS
        inverse = calibrate.calibrate(
            lambda inverse: events.compose(
                *before, tests_event(1 / inverse, self.noise_variance, steps)
            ),
            budget,
            guess=math.sqrt(steps),
        )
        return self._plan(min(1 / inverse, _HARDLY), steps)

    def _plan(self, bound: float, steps: int, *, private: bool = True) -> _Tests:
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
        steps = self.num_steps or _STEPS
        tests = self._plan(_HARDLY, steps, private=False)
        if not isinstance(self.start, Variational):
            return tests
        return Stages((self.start.without_noise(model), tests))

    def walk(self, model: AnyModel, tests: _Tests) -> Proposal:
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

    def check(self, model: AnyModel, gate: Gate) -> None:
        """Raises what `run` would raise of the model, without reading a row."""
        refuse_captured(*model.searched)
        if isinstance(self.start, Variational):
            if model.discrete:
                raise InvalidArgument(
                    "A variational start needs gradients, and the model has discrete parameters; "
                    "start at values of some parameters instead."
                )
            first, gate = gate.stages()
            self.start.check(model, first)
            if not isinstance(self.start.guide, MeanField | FullRank | LowRank):
                raise InvalidArgument("A start needs a Gaussian guide, such as MeanField().")
        else:
            model.start(self.start or {})
        self._refuse_what_cannot_end(gate.mechanism.num_steps)
        walk = self.walk(model, gate.mechanism)
        start = state_of(model, jnp.zeros(model.dimension), walk)
        given = jnp.zeros(draws_needed(model.dimension)), np.float32(0)
        check(self._step(walk, model), start, given, gate)

    def _refuse_what_cannot_end(self, steps: int) -> None:
        """Raises where there is no correction for the noise, or no draw would be kept."""
        self._corrections([0], 0, 1)
        if not range(steps)[self._kept(steps)]:
            raise InvalidArgument(
                f"burn_in leaves no draw of {steps} steps; lower it, or take more steps."
            )

    def _kept(self, steps: int) -> slice:
        return slice(math.ceil(self.burn_in * steps), None, self.thin)

    def run(
        self, model: AnyModel, gate: Gate, key: jax.Array, progress: Progress | None = None
    ) -> MethodResult:
        """The chain's draws."""
        start, gate, progress = self._start(model, gate, key, progress)
        steps = self._steps_from(start, model, gate.mechanism, key)
        _, (chain, accepted) = run(gate, *steps, progress=progress)
        return self._found(model, gate.mechanism.num_steps, chain, accepted)

    def steps(self, model: AnyModel, mechanism: _Tests, key: jax.Array) -> Steps | None:
        """The chain as steps; None where another fit comes first."""
        if isinstance(self.start, Variational):
            return None
        start = jnp.asarray(model.start(self.start or {}))
        return self._steps_from(start, model, mechanism, key)

    def _steps_from(
        self, start: jax.Array, model: AnyModel, mechanism: _Tests, key: jax.Array
    ) -> Steps:
        seed, walk = seed_of(key), self.walk(model, mechanism)

        def inputs(first: int, steps: int) -> Any:
            moves = normals(seed, first, steps, (draws_needed(model.dimension),))
            return moves, self._corrections(seed, first, steps)

        return Steps(self._step(walk, model), state_of(model, start, walk), inputs)

    def _start(
        self, model: AnyModel, gate: Gate, key: jax.Array, progress: Progress | None
    ) -> tuple[jax.Array, Gate, Progress | None]:
        """Where the chain begins, and the gate and the progress that are left."""
        if not isinstance(self.start, Variational):
            return jnp.asarray(model.start(self.start or {})), gate, progress
        first, then = gate.stages()
        fitted = self.start.run(model, first, jax.random.fold_in(key, 1), progress)
        done = first.mechanism.num_steps
        later = None if progress is None else lambda steps: progress(done + steps)
        return jnp.asarray(fitted.mean), then, later  # Gaussian, as `check` has seen

    def _step(self, walk: Proposal, model: AnyModel) -> Step:
        """The step of the chain; its state has the scale of the proposal."""
        power = self.tempering if self.batch_size is None else 1.0
        return step_of(power, walk.scaled(1.0), model)

    def _corrections(self, seed: Sequence[int], first: int, steps: int) -> Any:
        """What makes Gaussian noise logistic; nothing where the test is exact."""
        if self.batch_size is None and self.noise_variance is None:
            return np.zeros(steps, np.float32)
        variance = 2.0 if self.noise_variance is None else self.noise_variance
        drawn = correction(variance, self.correction).draws(seed, first, steps)
        return drawn.astype(np.float32)

    def _found(self, model: AnyModel, steps: int, chain: Any, accepted: Any) -> MethodResult:
        kept = self._kept(steps)
        draws = parameters(model, jnp.asarray(chain[kept]))
        mixing = bad_mixing(draws)
        return MethodResult(
            draws=draws,
            trace={"theta": chain, "accepted": accepted},
            chain=True,
            sample_stats={"accepted": accepted[kept]},
            converged=False if mixing else None,
            said=mixing,
            intervals=Intervals.SAMPLED,
        )

    def trial(self, num_steps: int) -> "Barker":
        """The same method with so few steps, all of them kept."""
        return replace(self, num_steps=num_steps, burn_in=0.0)

    def describe(self, model: AnyModel) -> str:
        """A line for people."""
        kind = "all rows" if self.batch_size is None else "random batches"
        return (
            f"Markov chain of Barker tests on {kind}, for {model.dimension} unconstrained numbers."
        )

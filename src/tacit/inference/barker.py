"""Differentially private Markov chain Monte Carlo, by the Barker test (DP-MCMC).

A step proposes a move and asks the gate whether to make it. The answer, one bit, is all that
is learnt of the rows: accepted with probability sigmoid(log posterior ratio), the randomness of
the test is the privacy. So any model will do whose likelihood can be evaluated, also one with
discrete parameters, and nothing depends on whether the chain has converged.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tacit.captured.search import refuse_captured
from tacit.errors import InvalidArgument
from tacit.inference.barker_guided import (
    GUIDED_STEPS,
    check_guided,
    describe_guided,
    guided_steps,
    run_guided,
)
from tacit.inference.barker_settings import BarkerSettings, Tests
from tacit.inference.barker_steps import state_of, step_of
from tacit.inference.base import (
    Intervals,
    Method,
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
    Proposal,
    draws_needed,
)
from tacit.inference.turns import chains_of
from tacit.inference.variational import Variational
from tacit.models.base import AnyModel
from tacit.privacy.gate import Gate, run
from tacit.privacy.gate import check as check_step
from tacit.privacy.mechanisms import Mechanism, Stages
from tacit.privacy.program import Step

_BURN_IN, _GUIDED_BURN_IN = 0.2, 0.05


@dataclass(frozen=True, kw_only=True)
class Barker(BarkerSettings):
    """Private Markov chain Monte Carlo by Barker accept/reject tests. All settings are public.

    By default most of the budget goes to a `Scoring` fit, whose draws are proposed one after the other,
    and the tests weigh what the likelihood says beyond that approximation. Settings of the walk
    (``ratio_bound``, ``noise_variance``, ``batch_size``, ``tempered_size``, ``proposal``,
    ``lipschitz``, or a ``start`` at values) give the plain chain instead, and so do models
    that `Scoring` cannot fit.

    Every step tests a proposal on all units, and the accept decision is exact. With
    tight accounting this is the most private form. ``num_steps`` and the budget determine
    ``ratio_bound``; if the bound is passed instead, the chain is as long as the budget allows.

    Args:
        num_steps: Number of steps; by default 1600 after a start by `Scoring`, which four chains share, and 5000 for a walk.
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
        start: Settings of a `Scoring` fit, whose draws are then the proposals; of a `Variational` fit
            to start from; or public values of some parameters.
        start_share: The share of the budget that a fit to start from gets: by default .95 for
            `Scoring`, and .2 for `Variational`.
        burn_in: The share of the steps that is discarded at the start; by default .05 after a start
            by `Scoring`, and else .2.
        thin: Keep every ``thin``-th of the remaining draws.
    """

    def check(self, model: AnyModel, gate: Gate) -> None:
        """Raises what `run` would raise of the model, without reading a row."""
        refuse_captured(*model.searched)
        fitted = self.first_fit(model)
        if fitted is not None:
            gate = fitted.check(model, gate)
            steps = gate.mechanism.num_steps
            self._refuse_what_cannot_end(steps // chains_of(steps), _GUIDED_BURN_IN)
            check_guided(model, gate)
            return
        if isinstance(self.start, Variational):
            gate = self._checked_start(self.start, model, gate)
        else:
            self.public_start(model)
        self._refuse_what_cannot_end(gate.mechanism.num_steps)
        self.refuse_hopeless(model, gate.mechanism)
        walk = self.walk(model, gate.mechanism)
        start = state_of(model, jnp.zeros(model.dimension), walk)
        given = jnp.zeros(draws_needed(model.dimension)), np.float32(0)
        check_step(self._step(walk, model), start, given, gate)

    def _checked_start(self, start: Variational, model: AnyModel, gate: Gate) -> Gate:
        if model.discrete:
            raise InvalidArgument(
                "A variational start needs gradients, and the model has discrete parameters; "
                "start at values of some parameters instead."
            )
        first, then = gate.stages()
        start.check(model, first)
        if not isinstance(start.guide, MeanField | FullRank | LowRank):
            raise InvalidArgument("A start needs a Gaussian guide, such as MeanField().")
        return then

    def _refuse_what_cannot_end(self, steps: int, burn_in: float = _BURN_IN) -> None:
        """Raises where there is no correction for the noise, or no draw would be kept."""
        self._corrections([0], 0, 1)
        if not range(steps)[self._kept(steps, burn_in)]:
            raise InvalidArgument(
                f"burn_in leaves no draw of {steps} steps; lower it, or take more steps."
            )

    def _kept(self, steps: int, burn_in: float = _BURN_IN) -> slice:
        share = burn_in if self.burn_in is None else self.burn_in
        return slice(math.ceil(share * steps), None, self.thin)

    def run(
        self, model: AnyModel, gate: Gate, key: jax.Array, progress: Progress | None = None
    ) -> MethodResult:
        """The chain's draws."""
        fitted = self.first_fit(model)
        if fitted is not None:
            steps = gate.mechanism.mechanisms[1].num_steps
            kept = self._kept(steps // chains_of(steps), _GUIDED_BURN_IN)
            return run_guided(fitted, model, gate, key, progress, kept)
        start, gate, progress = self._start(model, gate, key, progress)
        steps = self._steps_from(start, model, gate.mechanism, key)
        _, (chain, accepted) = run(gate, *steps, progress=progress)
        return self._found(model, gate.mechanism.num_steps, chain, accepted)

    def steps(self, model: AnyModel, mechanism: Tests, key: jax.Array) -> Steps | None:
        """The chain as steps; None where another fit comes first."""
        if isinstance(self.start, Variational) or self.first_fit(model) is not None:
            return None
        start = jnp.asarray(self.public_start(model))
        return self._steps_from(start, model, mechanism, key)

    def stages(self, model: AnyModel, mechanism: Mechanism) -> tuple[Method, Steps] | None:
        """The fit whose draws are proposals, and the chains as steps; None for a walk."""
        fitted = self.first_fit(model)
        if fitted is None or not isinstance(mechanism, Stages):
            return None
        return fitted.scoring, guided_steps(model, mechanism.mechanisms[1].num_steps)

    def _steps_from(
        self, start: jax.Array, model: AnyModel, mechanism: Tests, key: jax.Array
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
            return jnp.asarray(self.public_start(model)), gate, progress
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
        fitted = self.first_fit(model)
        if fitted is not None:
            return describe_guided(model, self.num_steps or GUIDED_STEPS)
        kind = "all rows" if self.batch_size is None else "random batches"
        return (
            f"Markov chain of Barker tests on {kind}, for {model.dimension} unconstrained numbers."
        )

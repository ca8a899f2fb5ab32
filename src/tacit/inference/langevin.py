"""Langevin dynamics at the temperature of the posterior.

By default a private approximation guides the chain (`tacit.inference.langevin_guided`).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import jax
import numpy as np
from numpy.typing import NDArray

from tacit.accounting import Budget, calibrate
from tacit.errors import InvalidArgument
from tacit.inference.base import Method, MethodResult, Progress, Steps
from tacit.inference.langevin_chain import USUAL_STEPS, LangevinChain, each_of
from tacit.inference.langevin_guided import GuidedLangevin
from tacit.inference.mixing import LEAST_EFFECTIVE
from tacit.inference.reference import USUAL_SHARE, FirstFit, like_reference
from tacit.inference.scoring import Scoring, suits
from tacit.inference.sizes import rate_for
from tacit.models.base import AnyModel
from tacit.privacy.gate import Gate
from tacit.privacy.mechanisms import Mechanism, NoisySums, Stages

# By which share the default step may make variances too large.
_EXCESS = 0.1


@dataclass(frozen=True, kw_only=True)
class Langevin(LangevinChain):
    """Private Langevin dynamics at the temperature of the posterior. All settings are public.

    By default most of the budget goes to a `Scoring` fit. The chain moves in coordinates in which that
    approximation is standard normal, and follows what the likelihood says beyond it. If one of
    ``step_size``, ``clip`` and ``tempered_size`` is passed, or the model is one that `Scoring` cannot
    fit, the chain is a plain one; the rest of this text is about it.

    The noise of the release is part of the chain's own noise, so privacy does not change the
    target, but it limits how far the chain can move: without tempering, all step sizes add up to
    about (epsilon / clip)^2 / log(1 / delta) at most. Steps that are smaller than the budget allows
    carry more noise than privacy needs, and are charged less.

    The default step size is the largest that two bounds allow. The first is that its noise is what
    the budget requires. The second keeps the discretisation and sampling error of variances near a
    tenth, and needs ``size``. Gradients are at most as long as the clip C, so N units have at most
    N C^2 of information, summed over all d directions. A step size h at sampling rate q inflates
    the variance in a direction of information I by the share h I (1 + b (1 - q) / q) / 2, where b
    is the tempering. The bound makes this a tenth for I = b N C^2 / d. The share is smaller where
    gradients are shorter than the clip, and larger in directions with more than their share of
    information. During the first half of the burn-in the second bound is 1 / (b N C^2), with which
    the chain moves to the posterior quickly and is stable in all directions. If the second bound is
    the smaller one, the run costs less than its budget.

    Clipped gradients make the posterior look flatter, so draws spread wider. A larger clip can then
    be worth its cost.

    Args:
        sampling_rate: Probability that a unit is sampled in a step.
        num_steps: Number of steps.
        clip: Bound on the norm of one unit's gradient; by default sqrt(dimension).
        step_size: Step size on the unconstrained scale, or a function of the step, which is held
            constant over twentieths of the run.
        size: A public number of units; it need not be exact. Do not count it from private data.
        tempered_size: Scale the log-likelihood by ``tempered_size / size``.
        burn_in: The share of the steps that is discarded at the start; by default half of a plain
            chain, and .05 after a start by `Scoring`.
        thin: Keep every ``thin``-th of the remaining draws.
        batch_bound: A public bound on the number of units in a batch, beyond which sums could wrap
            around. By default several times the expected batch.
        hot: Whether to allow steps whose own noise is too small for the budget. The release then
            has the noise that the budget requires, and draws spread wider than the posterior.
    """

    step_size: float | Callable[[int], float] | None = None
    hot: bool = False

    noise_per_step: ClassVar[float] = 2.0

    def for_size(self, model: AnyModel, size: int, budget: Budget) -> "Langevin":  # noqa: ARG002
        """The method for a declared size: of many units, a step looks at a smaller part."""
        rate = rate_for(self.sampling_rate, size)
        return self if self.size is not None else replace(self, size=size, sampling_rate=rate)

    def guided(self, model: AnyModel) -> GuidedLangevin | None:
        """The chain by a private approximation; None for a plain one."""
        plain = self.step_size, self.clip, self.tempered_size
        if self.hot or any(each is not None for each in plain) or not suits(model):
            return None
        return GuidedLangevin(
            first_fit=FirstFit(Scoring(), USUAL_SHARE, self.size),
            sampling_rate=self.sampling_rate,
            num_steps=self.num_steps,
            batch_bound=self._batch_bound,
            burn_in=self.burn_in,
            thin=self.thin,
        )

    def calibrated(self, model: AnyModel, budget: Budget) -> Mechanism:
        """The release, with the noise of the chain or of the budget, whichever is more."""
        guided = self.guided(model)
        if guided is not None:
            return guided.calibrated(model, budget)
        if self.step_size is None and self.size is None:
            raise InvalidArgument(
                "The default step size depends on the number of units; pass size=, a public guess at "
                "it, or step_size=."
            )
        least = calibrate.noise_multiplier(
            budget, sampling_rate=self.sampling_rate, num_steps=self.num_steps
        )
        clip = self._clip(model)
        given = self._held() if self.step_size is not None else self._bounds(clip, model.dimension)
        carried = [(self._carried(size, clip), steps) for size, steps in given]
        strict = self.step_size is not None and not self.hot
        if strict and any(noise < least for noise, _ in carried):
            largest = self.noise_per_step / (self._scale * least * clip) ** 2
            raise InvalidArgument(
                f"With steps larger than {largest:.3g} the budget's noise is more than the "
                "posterior's own, and draws would spread too wide; lower step_size, or pass "
                "hot=True to accept it."
            )
        return self._plan(model, [(max(noise, least), steps) for noise, steps in carried])

    def _bounds(self, clip: float, dimension: int) -> list[tuple[float, int]]:
        """The largest default steps that suit the posterior, and for how many steps."""
        assert self.size is not None
        most, rate = self.tempering * self.size * clip**2, self.sampling_rate
        sampled = 1 + self.tempering * (1 - rate) / rate
        accurate = min(2 * _EXCESS * dimension / sampled, 1.0) / most
        fast = math.ceil(self.discarded * self.num_steps) // 2
        phases = [(1 / most, fast), (accurate, self.num_steps - fast)]
        return [(size, steps) for size, steps in phases if steps]

    def _sizes(self, release: NoisySums) -> NDArray[np.float64]:
        if self.step_size is not None:
            return super()._sizes(release)
        bounds = each_of(self._bounds(release.clip, release.dimension))
        noise_std = each_of(release.phases) * release.clip * self._scale
        # The same again, unless the budget asked for more noise, and so for smaller steps.
        return np.minimum(bounds, self.noise_per_step / np.maximum(noise_std, 1e-30) ** 2)

    def without_noise(self, model: AnyModel) -> Mechanism:
        """Without privacy: all noise is added outside the release."""
        guided = self.guided(model)
        return super().without_noise(model) if guided is None else guided.without_noise(model)

    def check(self, model: AnyModel, gate: Gate) -> None:
        """Raises what `run` would raise of the model, without reading a row."""
        guided = self.guided(model)
        if guided is not None:
            guided.check(model, gate)
            return
        self._refuse_hopeless(gate.mechanism)
        super().check(model, gate)

    def _refuse_hopeless(self, mechanism: NoisySums) -> None:
        """Raises if a chain by settings that nobody chose will not mix, as far as a size tells."""
        chosen = self.step_size, self.clip, self.tempered_size
        if any(each is not None for each in chosen) or self.num_steps != USUAL_STEPS:
            return
        assert self.size is not None
        # With usual gradients, a unit tells one about each number.
        worth = self.kept * math.tanh(float(self._sizes(mechanism)[-1]) * self.size / 2)
        if worth < LEAST_EFFECTIVE:
            raise InvalidArgument(
                f"A plain Langevin chain would be worth about {worth:.0f} independent draws at this "
                f"budget and size, and {LEAST_EFFECTIVE:.0f} are needed. Give the model a way to draw "
                "its outcomes, use tacit.Variational(), or choose num_steps or step_size yourself."
            )

    def steps(self, model: AnyModel, mechanism: NoisySums, key: jax.Array) -> Steps | None:
        """The chain as steps; None where another fit comes first."""
        return None if self.guided(model) is not None else super().steps(model, mechanism, key)

    def stages(self, model: AnyModel, mechanism: Mechanism) -> tuple[Method, Steps] | None:
        """The fit that comes first, and the chains as steps; None for a plain chain."""
        guided = self.guided(model)
        if guided is None or not isinstance(mechanism, Stages):
            return None
        sums = mechanism.mechanisms[1]
        return guided.first_fit.scoring, guided.steps(model, sums, like_reference(model), [0])

    def run(
        self, model: AnyModel, gate: Gate, key: jax.Array, progress: Progress | None = None
    ) -> MethodResult:
        """The chain's draws."""
        guided = self.guided(model)
        if guided is not None:
            return guided.run(model, gate, key, progress)
        return super().run(model, gate, key, progress)

    def describe(self, model: AnyModel) -> str:
        """A line for people."""
        guided = self.guided(model)
        return super().describe(model) if guided is None else guided.describe(model)

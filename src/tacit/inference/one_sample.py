"""One draw of the posterior: private by itself, where one unit's say in it is bounded.

A posterior is spread out, and a draw of it is noisy by nature. Where no unit can move the
posterior by much, one draw gives no unit away: no noise is added at all. To reach a budget,
the likelihood counts with a power below one, which spreads the posterior further.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp

from tacit import _validate
from tacit.accounting import PLD, Budget, calibrate
from tacit.captured.search import refuse_captured
from tacit.errors import InvalidArgument
from tacit.inference.base import Intervals, MethodResult, Progress, parameters
from tacit.inference.samplers import Sampler
from tacit.models.base import AnyModel
from tacit.privacy.gate import Gate
from tacit.privacy.mechanisms import Mechanism
from tacit.privacy.one_draw.claims import Claim, LogConcave
from tacit.privacy.one_draw.gate import draw_gate

_ONE = "One draw shows where the posterior is, but not how wide it is."


@dataclass(frozen=True, kw_only=True)
class OneSample:
    """Draws from the posterior that are private by themselves. All settings are public.

    The likelihood is raised to the largest power, at most one, that the budget allows. Every draw
    is charged, so several draws have a lower power each. One draw shows where the posterior is, but
    not how wide it is.

    Args:
        sampler: How to draw: exactly, by `tacit.methods.GridSampler`, `tacit.methods.ConjugateSampler` or
            `tacit.methods.LogisticRejection`; or approximately, by `tacit.methods.ChainSampler`, which states an
            assumption.
        claim: What bounds the influence of one unit: `tacit.methods.BoundedLikelihood`,
            `tacit.methods.LipschitzLikelihood` or `tacit.methods.LogConcave`. The conjugate and logistic samplers
            have their own.
        num_draws: Number of draws.
    """

    sampler: Sampler
    claim: Claim | None = None
    num_draws: int = 1

    by_gradients: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _validate.count("num_draws", self.num_draws)
        known = self.sampler.claims
        if not known and self.claim is not None:
            raise InvalidArgument(
                f"{type(self.sampler).__name__} has its own bound on one unit: leave claim out."
            )
        if known and not isinstance(self.claim, known):
            names = " or ".join(kind.__name__ for kind in known)
            raise InvalidArgument(
                f"A draw is private only if the influence of one unit is bounded: with "
                f"{type(self.sampler).__name__}, pass claim={names}(...)."
            )

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What is taken to be true, where the sampler is not exact."""
        if self.sampler.reason is None:
            return ()
        exact = (
            "each chain ended in an exact draw of its posterior, with random numbers nobody can "
            f'guess; the reason given is: "{self.sampler.reason}"'
        )
        if not isinstance(self.claim, LogConcave):
            return (exact,)
        slope, concavity = self.claim.slope, self.claim.concavity
        concave = (
            "a unit's log-likelihood is concave in the unconstrained parameters, with a slope of "
            f"at most {slope:g}, and the log prior is concave by at least {concavity:g}"
        )
        return exact, concave

    def calibrated(self, model: AnyModel, budget: Budget) -> Mechanism:
        """The release, with the largest power that the budget allows."""
        mechanism = self.sampler.mechanism(model, self.claim, self.num_draws)
        return mechanism(_power(mechanism, budget))

    def without_noise(self, model: AnyModel) -> Mechanism:
        """The posterior itself, whatever its draws would cost."""
        return self.sampler.mechanism(model, self.claim, self.num_draws)(1.0)

    def check(self, model: AnyModel, gate: Gate) -> None:
        """Raises what `run` would raise of the model, without reading a row."""
        refuse_captured(*model.searched)
        self.sampler.check(model, draw_gate(gate))

    def run(
        self,
        model: AnyModel,
        gate: Gate,
        key: jax.Array,  # noqa: ARG002 (all randomness here protects)
        progress: Progress | None = None,
    ) -> MethodResult:
        """Draws through the gate."""
        drawn = self.sampler.draw(model, draw_gate(gate))
        if progress is not None:
            progress(self.num_draws)
        return MethodResult(
            draws=parameters(model, jnp.asarray(drawn, jnp.float32)),
            trace={},
            said=(_ONE,) if self.num_draws == 1 else (),
            intervals=Intervals.SAMPLED,
        )

    def describe(self, model: AnyModel) -> str:
        """A line for people."""
        count = "One draw" if self.num_draws == 1 else f"{self.num_draws} draws"
        return (
            f"{count} of the posterior by {type(self.sampler).__name__}, for {model.dimension} "
            "unconstrained numbers."
        )


def _power(mechanism: Callable[[float], Mechanism], budget: Budget) -> float:
    """The largest power, up to one, that the budget allows."""
    spent = PLD().epsilon(mechanism(1.0).event, budget.delta, budget.adjacency)
    if spent <= budget.epsilon:
        return 1.0
    guess = max(spent / max(budget.epsilon, 1e-300), 1.0)
    return 1 / calibrate.calibrate(
        lambda noise: mechanism(min(1 / noise, 1.0)).event, budget, None, guess
    )

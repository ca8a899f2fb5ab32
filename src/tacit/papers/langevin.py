"""DP-SGLD as published, for reproduction (Wang et al. 2015; thesis Algorithm 2)."""

import math
from dataclasses import dataclass
from typing import ClassVar

from tacit.accounting import PLD, Budget
from tacit.accounting.events import DpEvent
from tacit.errors import BudgetError, InvalidArgument
from tacit.inference.chains import FirstFit
from tacit.inference.langevin import LangevinChain
from tacit.models.base import UnitModel
from tacit.privacy.mechanisms import NoisySums

_TEMPERATURE_MESSAGE = (
    "As published, the chain is not at the posterior's temperature: its draws spread less than the "
    "posterior, or more."
)


@dataclass(frozen=True, kw_only=True)
class PublishedLangevin(LangevinChain):
    """DP-SGLD as published, for reproduction. Use `Langevin` otherwise. All settings are public.

    Algorithm 2 of the thesis takes N units, batches of tau and T passes, which is n = N T / tau
    steps (``num_steps``) at the sampling rate tau / N. A step of size eta adds eta times the
    gradient of the log posterior to theta, and noise of variance:

        max(128 n L^2 / epsilon^2 * log(2.5 n / delta) * log(2 / delta) * eta^2, eta)

    where L, the Lipschitz constant of a unit's (tempered) log-likelihood, is enforced by ``clip``.

    The charge is not the published composition but the cost of what is done: the formula determines
    the noise, and the accountant computes its cost. The cost is far below the budget, because the
    first variance is 350 to 800 times what the budget needs under replace (the paper's adjacency),
    and four times that under add-remove. A run that is so short that the formula gives too little
    noise is refused.

    If the second variance is the larger one, the chain samples at temperature 1/2: a drift of eta
    needs noise of 2 eta, so a Gaussian posterior comes out with half its variance. If the first is
    the larger, the temperature is half the ratio of the two.

    Args:
        sampling_rate: Probability that a unit is sampled in a step.
        num_steps: Number of steps.
        clip: Bound on the norm of one unit's gradient; by default sqrt(dimension).
        step_size: Step size on the unconstrained scale, or a function of the step, which is held
            constant over twentieths of the run.
        size: A public number of units; it need not be exact. Do not count it from private data.
        tempered_size: Scale the log-likelihood by ``tempered_size / size``.
        burn_in: The share of the steps that is discarded at the start.
        thin: Keep every ``thin``-th of the remaining draws.
        batch_bound: A public bound on the number of units in a batch, beyond which sums could wrap
            around. By default several times the expected batch.
    """

    noise_per_step: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.step_size is None:
            raise InvalidArgument("The published form has no default step; pass step_size=.")

    def _releases(
        self,
        model: UnitModel,
        budget: Budget | None,
        first: FirstFit | None,  # noqa: ARG002
        before: tuple[DpEvent, ...],  # noqa: ARG002
    ) -> NoisySums:
        """The release with the published noise, if that is enough."""
        if budget is None:
            return self._sums(model, [(0.0, self.num_steps)])
        least, clip = self._published(budget), self._clip(model)
        own = [(self._own_noise(size, clip), steps) for size, steps in self._given_sizes()]
        release = self._sums(model, [(max(noise, least), steps) for noise, steps in own])
        spent = PLD().epsilon(release.event, budget.delta, budget.adjacency)
        if spent > budget.epsilon:
            raise BudgetError(
                f"With {self.num_steps} steps the published noise is too little for {budget}: the "
                f"published proof needs {self._proved_from(budget):,} steps or more. Take more, "
                "or use tacit.Langevin."
            )
        return release

    def _published(self, budget: Budget) -> float:
        """The first variance as a noise multiplier; L and the step size cancel."""
        if budget.is_pure or budget.epsilon == 0:
            raise BudgetError(f"Gaussian noise needs an epsilon and a delta above 0; got {budget}.")
        steps, delta = self.num_steps, budget.delta
        logs = math.log(2.5 * steps / delta) * math.log(2 / delta)
        return self.sampling_rate * math.sqrt(128 * steps * logs) / budget.epsilon

    def _proved_from(self, budget: Budget) -> int:
        """T >= epsilon^2 N / (32 tau log(2 / delta)) passes, in steps."""
        logs = 32 * math.log(2 / budget.delta)
        return math.ceil((budget.epsilon / self.sampling_rate) ** 2 / logs)

    def _remarks(
        self,
        mechanism: NoisySums,  # noqa: ARG002
        acceptance: float | None,  # noqa: ARG002
        *,
        guided: bool,  # noqa: ARG002
    ) -> tuple[str, ...]:
        """That draws do not spread as the posterior does."""
        return (_TEMPERATURE_MESSAGE,)

    def describe(self, model: UnitModel) -> str:
        """A line for people."""
        return f"{super().describe(model)} As published, not at the posterior's temperature."

"""Private Fisher scoring: a posterior whose intervals include the noise of privacy.

Each step asks the gate for one noisy sum over units, of bounded scores and of their curvature
(`tacit.inference.scores`), in coordinates in which the prior is round. Scores are clipped in the
metric of the curvature seen so far, so that every direction gets noise by what it can bear. Small
steps by that curvature go to where scores cancel the prior. All else is post-processing: how large
the curvature is follows by a filter that knows the noise, and the releases of the last steps make
the posterior (`tacit.inference.evidence`).
"""

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from tacit import _validate
from tacit.accounting import Budget, calibrate, events
from tacit.captured.search import refuse_captured
from tacit.errors import InvalidArgument
from tacit.inference.base import Intervals, MethodResult, Progress, Steps, parameters, seed_of
from tacit.inference.evidence import USUAL_DRAWS, Result, posterior_of
from tacit.inference.scores import SHARES, final_noise, tempo_of, width
from tacit.inference.scoring_steps import USUAL_LEVEL, start_of, step_of
from tacit.inference.sizes import rate_for, room_for
from tacit.inference.whitened import whitened
from tacit.models.base import AnyModel
from tacit.privacy.gate import Gate, check, run
from tacit.privacy.mechanisms import NoisySums

# More numbers than this have a curvature too long to release.
MOST_NUMBERS = 64
# The first steps only find the way: so large a part of them, with so much more noise.
_EARLY, _LOUDER = 0.4, 1.6
# Steps for each unit that there is beside the noise and the numbers to learn, up to the usual
# number, and the fewest (benchmarks/settings.py).
_STEPS_PER_TOLD, _FEWEST_STEPS = 20.0, 125


@dataclass(frozen=True, kw_only=True)
class Scoring:
    """Settings of private Fisher scoring, the default method.

    The model must be able to draw its outcomes, and have at most 64 unconstrained numbers. All
    settings are public.

    Args:
        sampling_rate: Probability with which each unit takes part in a step.
        num_steps: Number of steps. The noise of each grows with it, so that the budget holds.
        num_outcomes: Number of outcomes drawn from the model for each unit, to compare its own
            with. More need a little less noise and more time.
        batch_bound: A declared bound on the number of units in a batch.
    """

    sampling_rate: float = 0.1
    num_steps: int = 500
    num_outcomes: int = 4
    batch_bound: int = 2**17

    by_gradients: ClassVar[bool] = True
    assumptions: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        _validate.integer("num_steps", self.num_steps, least=4)
        _validate.rate("sampling_rate", self.sampling_rate)
        _validate.count("num_outcomes", self.num_outcomes, least=2)

    def for_size(self, model: AnyModel, size: int, budget: Budget) -> "Scoring":
        """The method with settings for a declared size and a budget.

        Args:
            model: The model.
            size: About how many units there are. Public.
            budget: The budget.

        Returns:
            The method. Where noise is strong beside what the data tell, it takes fewer steps, each
            with less noise. Of many units, a step looks at a smaller part.
        """
        rate = rate_for(self.sampling_rate, size)
        noise = calibrate.noise_multiplier(budget, sampling_rate=1.0, num_steps=1)
        told = size * math.sqrt(SHARES[1][0]) / (noise * model.dimension)
        wanted = min(max(_STEPS_PER_TOLD * told, _FEWEST_STEPS), self.num_steps)
        # Halves of the usual number: blocks of steps are then alike, and compile once.
        steps = round(self.num_steps / 2 ** round(math.log2(self.num_steps / wanted)))
        return replace(
            self,
            sampling_rate=rate,
            num_steps=steps,
            batch_bound=room_for(self.batch_bound, rate, size),
        )

    @property
    def _phases(self) -> tuple[int, int]:
        early = round(_EARLY * self.num_steps)
        return early, self.num_steps - early

    def _schedule(self, multiplier: float) -> tuple[tuple[float, int], ...]:
        early, late = self._phases
        return (_LOUDER * multiplier, early), (multiplier, late)

    def mechanism(self, model: AnyModel, noise_multiplier: float) -> NoisySums:
        """What the gate will do for this model; the noise is that of the late steps."""
        refuse_unfit(model)
        return NoisySums(
            sampling_rate=self.sampling_rate,
            num_steps=self.num_steps,
            clip=1.0,
            noise_multiplier=self._schedule(noise_multiplier),
            dimension=width(model.dimension),
            batch_bound=self.batch_bound,
            secrets=True,
        )

    def calibrated(self, model: AnyModel, budget: Budget) -> NoisySums:
        """What the gate will do, with the least noise that meets a budget."""
        refuse_unfit(model)
        early, late = self._phases
        guess = calibrate.noise_multiplier(
            budget,
            sampling_rate=self.sampling_rate,
            num_steps=max(1, round(late + early / _LOUDER**2)),
        )

        def event(multiplier: float) -> Any:
            return events.sampled_gaussian(list(self._schedule(multiplier)), self.sampling_rate)

        return self.mechanism(model, calibrate.calibrate(event, budget, guess=guess))

    def without_noise(self, model: AnyModel) -> NoisySums:
        """The same without privacy."""
        return self.mechanism(model, 0.0)

    def check(self, model: AnyModel, gate: Gate) -> None:
        """Raises what `run` would raise of the model, without reading a row."""
        refuse_captured(*model.searched)
        check(
            step_of(model, self.num_outcomes, self.sampling_rate),
            start_of(model),
            tempo_of(gate.mechanism).given[0],
            gate,
        )

    def steps(
        self,
        model: AnyModel,
        mechanism: NoisySums,
        key: jax.Array,  # noqa: ARG002 (draws of the model are those of units, by the gate)
    ) -> Steps:
        """The fit as steps."""
        given = tempo_of(mechanism).given

        def inputs(first: int, steps: int) -> Any:
            return given[first : first + steps]

        step = step_of(model, self.num_outcomes, self.sampling_rate)
        return Steps(step, start_of(model), inputs)

    def run(
        self, model: AnyModel, gate: Gate, key: jax.Array, progress: Progress | None = None
    ) -> MethodResult:
        """The posterior."""
        return _found(model, *self.fitted(model, gate, key, progress))

    def fitted(
        self,
        model: AnyModel,
        gate: Gate,
        key: jax.Array,
        progress: Progress | None = None,
        draws: int = USUAL_DRAWS,
    ) -> tuple[Result, Any]:
        """The posterior in whitened coordinates, with so many draws; and where the steps were."""
        steps = self.steps(model, gate.mechanism, key)
        _, trace = run(gate, *steps, progress=progress)
        rng = np.random.default_rng(seed_of(key))
        found = posterior_of(model, tempo_of(gate.mechanism), trace, self.num_outcomes, rng, draws)
        return found, trace.place

    def trial(self, num_steps: int) -> "Scoring":
        """The same method with so few steps, all of them kept."""
        return replace(self, num_steps=num_steps)

    def describe(self, model: AnyModel) -> str:
        """A line for people."""
        return (
            f"Private Fisher scoring for {model.dimension} unconstrained numbers; "
            "intervals include the noise."
        )

    def expect(self, mechanism: NoisySums, many: str) -> str:
        """About how many units it takes to learn anything, from public numbers alone."""
        size = _size(mechanism)
        needed = 4 * final_noise(mechanism) * math.sqrt(size) / math.exp(USUAL_LEVEL / 2)
        few = f"{float(f'{needed:.1g}'):,.0f}"
        return (
            f"As a rule, fewer than about {few} {many} tell little more than the prior at this "
            "budget; intervals are then nearly the prior's."
        )


def refuse_unfit(model: AnyModel) -> None:
    """Raises if the method cannot fit a model."""
    if not model.simulates:
        raise InvalidArgument(
            "Scoring compares each outcome with draws of the model, and this model cannot draw its "
            "outcomes; give a tacit.Model simulate=, or use tacit.Variational()."
        )
    if model.dimension > MOST_NUMBERS:
        raise InvalidArgument(
            f"Scoring releases the curvature of all parameters, and {model.dimension} unconstrained "
            f"numbers have too much of it (at most {MOST_NUMBERS}); use tacit.Variational()."
        )


def suits(model: AnyModel) -> bool:
    """Whether the method can fit a model."""
    return model.simulates and model.dimension <= MOST_NUMBERS and not model.discrete


def _size(mechanism: NoisySums) -> int:
    """How many unconstrained numbers a mechanism is for."""
    return next(size for size in range(1, MOST_NUMBERS + 1) if width(size) == mechanism.dimension)


def _found(model: AnyModel, result: Result, places: Any) -> MethodResult:
    space = whitened(model)
    vectors = space.mean + result.draws @ space.scale.T
    return MethodResult(
        draws=parameters(model, jnp.asarray(vectors, jnp.float32)),
        trace={"mean": space.mean + np.asarray(places, np.float64) @ space.scale.T},
        converged=result.converged,
        said=result.said,
        intervals=Intervals.INCLUDED,
        mean=vectors.mean(axis=0),
        covariance=np.atleast_2d(np.cov(vectors.T)),
    )

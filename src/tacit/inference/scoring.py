"""Private Fisher scoring: a posterior whose intervals include the noise of privacy.

Each step asks the gate for one noisy sum over units, of bounded scores and of their curvature
(`tacit.inference.scores`), in coordinates in which the prior is round. Scores are clipped in the
metric of the curvature seen so far, so that every direction gets noise by what it can bear. Small
steps by that curvature go to where scores cancel the prior. All else is post-processing: how large
the curvature is follows by a filter that knows the noise, and the releases of the last steps make
the posterior (`tacit.inference.evidence`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from tacit import _validate
from tacit.accounting import Budget, calibrate, events
from tacit.errors import InvalidArgument
from tacit.inference.base import Found, Intervals, Progress, Steps, parameters, seed_of
from tacit.inference.evidence import Seen, posterior_of
from tacit.inference.scores import final_noise, noise_of, width
from tacit.inference.scoring_steps import USUAL_LEVEL, start_of, step_of
from tacit.inference.whitened import whitened
from tacit.models.base import AnyModel
from tacit.privacy.captured import refuse_captured
from tacit.privacy.fetch import side_by_side
from tacit.privacy.gate import Gate, check, run
from tacit.privacy.plans import NoisySums

# More numbers than this have a curvature too long to release.
MOST_NUMBERS = 64
# The first steps only find the way: so large a part of them, with so much more noise.
_EARLY, _LOUDER = 0.4, 1.6


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
        object.__setattr__(self, "num_steps", _validate.count("num_steps", self.num_steps, least=4))
        _validate.rate("sampling_rate", self.sampling_rate)
        _validate.count("num_outcomes", self.num_outcomes, least=2)

    @property
    def _phases(self) -> tuple[int, int]:
        early = round(_EARLY * self.num_steps)
        return early, self.num_steps - early

    def _schedule(self, multiplier: float) -> tuple[tuple[float, int], ...]:
        early, late = self._phases
        return (_LOUDER * multiplier, early), (multiplier, late)

    def plan(self, model: AnyModel, noise_multiplier: float) -> NoisySums:
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

        return self.plan(model, calibrate.calibrate(event, budget, guess=guess))

    def without_noise(self, model: AnyModel) -> NoisySums:
        """The same without privacy."""
        return self.plan(model, 0.0)

    def check(self, model: AnyModel, gate: Gate) -> None:
        """Raises what `run` would raise of the model, without reading a row."""
        refuse_captured(*model.searched)
        check(
            step_of(model, self.num_outcomes, self.sampling_rate),
            start_of(model),
            noise_of(gate.plan)[0],
            gate,
        )

    def steps(
        self, model: AnyModel, plans: Sequence[NoisySums], keys: Sequence[jax.Array]
    ) -> Steps:
        """The fits as steps, side by side."""
        states = jax.tree.map(lambda leaf: jnp.stack([leaf] * len(keys)), start_of(model))
        given = [noise_of(plan) for plan in plans]

        def inputs(first: int, steps: int) -> Any:
            return side_by_side([each[first : first + steps] for each in given])

        return Steps(step_of(model, self.num_outcomes, self.sampling_rate), states, inputs)

    def run(
        self,
        model: AnyModel,
        gates: Sequence[Gate],
        keys: Sequence[jax.Array],
        progress: Progress | None = None,
    ) -> list[Found]:
        """A posterior for each gate."""
        plans = [gate.plan for gate in gates]
        _, trace = run(gates, *self.steps(model, plans, keys), progress=progress)
        each = zip(plans, keys, strict=True)
        return [
            _found(self, model, plan, jax.tree.map(lambda leaf, i=i: leaf[:, i], trace), key)
            for i, (plan, key) in enumerate(each)
        ]

    def describe(self, model: AnyModel) -> str:
        """A line for people."""
        return (
            f"Private Fisher scoring for {model.dimension} unconstrained numbers; "
            "intervals include the noise."
        )

    def expect(self, plan: NoisySums, many: str) -> str:
        """About how many units it takes to learn anything, from public numbers alone."""
        size = _size(plan)
        needed = 4 * final_noise(plan) * math.sqrt(size) / math.exp(USUAL_LEVEL / 2)
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


def _size(plan: NoisySums) -> int:
    """How many unconstrained numbers a plan is for."""
    return next(size for size in range(1, MOST_NUMBERS + 1) if width(size) == plan.dimension)


def _found(method: Scoring, model: AnyModel, plan: NoisySums, seen: Seen, key: jax.Array) -> Found:
    space = whitened(model)
    result = posterior_of(
        model, plan, seen, method.num_outcomes, np.random.default_rng(seed_of(key))
    )
    vectors = space.mean + result.draws @ space.scale.T
    return Found(
        draws=parameters(model, jnp.asarray(vectors, jnp.float32)),
        trace={"mean": space.mean + np.asarray(seen.place, np.float64) @ space.scale.T},
        converged=result.converged,
        said=result.said,
        intervals=Intervals.INCLUDED,
        mean=vectors.mean(axis=0),
        covariance=np.atleast_2d(np.cov(vectors.T)),
    )

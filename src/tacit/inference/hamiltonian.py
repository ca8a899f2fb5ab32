"""Private Hamiltonian Monte Carlo (DP-HMC), and the penalty method.

A trajectory follows noisy clipped gradients by leapfrog steps. Whether it is kept is decided by a
noisy clipped log ratio: the noise is normal and its variance is known, so that taking half of the variance
off the log ratio makes the test exact (the penalty of Ceperley and Dewing). Räisä, Koskela and Honkela 2021;
without gradients it is the method of Yıldırım and Ermiş 2019.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

from tacit import _validate
from tacit.accounting import Budget, calibrate, events
from tacit.captured.search import refuse_captured
from tacit.errors import InvalidArgument
from tacit.inference.base import (
    Intervals,
    Method,
    MethodResult,
    Progress,
    Steps,
    parameters,
    seed_of,
)
from tacit.inference.hamiltonian_steps import Bounds, evaluations, state_of, step_of
from tacit.inference.mixing import bad_mixing
from tacit.inference.reference import USUAL_SHARE, Approximated, FirstFit, Reference
from tacit.inference.scoring import Scoring, suits
from tacit.inference.turns import chain_by_chain, chains_of
from tacit.models.base import AnyModel
from tacit.privacy.gate import Gate, check, run
from tacit.privacy.mechanisms import Mechanism, NoisySums, Stages

# Trajectories of a guided chain, and how far each goes: a quarter of a turn is a new place.
_STEPS, _QUARTER = 1000, math.pi / 2
# Noise of a guided chain, which sets its clips: of a log ratio over a usual distance, and of a gradient's length.
_RATIO_NOISE, _GRADIENT_NOISE = 1.0, 0.2
_BURN_IN, _GUIDED_BURN_IN = 0.2, 0.05
# Clips where nothing is private.
_HARDLY = 64.0
_ROOM = 2**24


@dataclass(frozen=True, kw_only=True)
class Hamiltonian:
    """Private Hamiltonian Monte Carlo with the penalty test. All settings are public.

    By default most of the budget goes to a `Scoring` fit. The chain moves in coordinates in which that
    approximation is standard normal: the normal part of a trajectory is exact, and gradients and log ratios
    are of what the likelihood says beyond it. If ``step_size`` and the clips are passed, or a
    ``start`` at values, the chain is the plain one of the paper, on the unconstrained scale.

    Args:
        num_steps: Number of trajectories; by default 1000. After a start by `Scoring`, four chains share them.
        num_leapfrog: Number of leapfrog steps in a trajectory. With 0 there are no gradients: this is the penalty
            method, with random walks as proposals.
        step_size: Length of a leapfrog step, which varies by a fifth from trajectory to trajectory. In a guided chain
            it is an angle, by default such that a trajectory is a quarter of a turn.
        gradient_clip: Bound on the norm of one unit's gradient.
        ratio_clip: Bound on one unit's log ratio, for a distance of one between the two places.
        gradient_share: The share that gradients have of the chain's budget; log ratios have the rest.
        start: Settings of a `Scoring` fit, or public values of some parameters.
        start_share: The share of the budget that a `Scoring` fit gets.
        size: A public number of units; it need not be exact. Do not count it from private data.
        burn_in: The share of the trajectories that is discarded at the start; by default .05 after a
            `Scoring` fit, and else .2.
        thin: Keep every ``thin``-th of the remaining draws.
    """

    num_steps: int = _STEPS
    num_leapfrog: int = 1
    step_size: float | None = None
    gradient_clip: float | None = None
    ratio_clip: float | None = None
    gradient_share: float = 0.25
    start: Scoring | Mapping[str, ArrayLike] | None = field(default=None, compare=False)
    start_share: float = USUAL_SHARE
    size: int | None = None
    burn_in: float | None = None
    thin: int = 1

    declared_public: ClassVar[tuple[str, ...]] = ("start",)
    by_gradients: ClassVar[bool] = True
    assumptions: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        _validate.integer("num_steps", self.num_steps)
        _validate.integer("num_leapfrog", self.num_leapfrog, least=0)
        for name in ("step_size", "gradient_clip", "ratio_clip"):
            if vars(self)[name] is not None:
                _validate.positive(name, vars(self)[name])
        _validate.count("thin", self.thin)
        shares = (
            self.gradient_share,
            self.start_share,
            0.5 if self.burn_in is None else self.burn_in,
        )
        if not (min(shares[:2]) > 0 and max(shares) < 1 and shares[2] >= 0):
            raise InvalidArgument(
                "gradient_share, start_share and burn_in must be shares of the whole, below 1."
            )

    def for_size(self, model: AnyModel, size: int, budget: Budget) -> "Hamiltonian":  # noqa: ARG002
        """The method for a declared size."""
        return self if self.size is not None else replace(self, size=size)

    def first_fit(self, model: AnyModel) -> FirstFit | None:
        """The fit that comes first; None for a plain chain."""
        if isinstance(self.start, Scoring):
            return FirstFit(self.start, self.start_share)
        plain = self.gradient_clip, self.ratio_clip, self.start
        if any(each is not None for each in plain):
            return None
        if suits(model):
            return FirstFit(Scoring(), self.start_share, self.size)
        raise InvalidArgument(
            "Hamiltonian starts from private Fisher scoring, which cannot fit this model; pass "
            "step_size=, gradient_clip= and ratio_clip= for a plain chain."
        )

    @property
    def _every(self) -> int:
        return self.num_leapfrog + 1

    def calibrated(self, model: AnyModel, budget: Budget) -> Mechanism:
        """The releases that fit a budget, after a start that has its share of it."""
        fitted = self.first_fit(model)
        if fitted is None:
            self._refuse_incomplete()
            return self._releases(model, self._scale(budget, (), 1.0))
        first = fitted.calibrated(model, budget)
        left = math.sqrt(1 - fitted.share**2)
        return Stages((first, self._releases(model, self._scale(budget, (first.event,), left))))

    def without_noise(self, model: AnyModel) -> Mechanism:
        """The same without privacy."""
        fitted, releases = self.first_fit(model), self._releases(model, 0.0)
        if fitted is None:
            return releases
        return Stages((fitted.scoring.without_noise(model), releases))

    def _scale(self, budget: Budget, before: tuple[Any, ...], left: float) -> float:
        """The least noise, as a multiple of what the shares ask for."""

        def event(scale: float) -> Any:
            return events.compose(*before, events.sampled_gaussian(list(self._phases(scale)), 1.0))

        guess = 1 / (calibrate.usual_mu(budget) * left)
        return calibrate.calibrate(event, budget, guess=guess)

    def _phases(self, scale: float) -> tuple[tuple[float, int], ...]:
        """Noise of the evaluations before the last one of all trajectories, and of the last ones."""
        gradient, ratio = self._multipliers(scale)
        if self.num_leapfrog == 0:
            return ((ratio, self.num_steps),)
        last = 1 / math.hypot(1 / gradient, 1 / ratio) if scale else 0.0
        return (gradient, self.num_steps * self.num_leapfrog), (last, self.num_steps)

    def _multipliers(self, scale: float) -> tuple[float, float]:
        """Noise of gradients and of log ratios, over their clips."""
        if self.num_leapfrog == 0:
            return math.inf, scale * math.sqrt(self.num_steps)
        gradient = scale * math.sqrt(self.num_steps * self._every / self.gradient_share)
        return gradient, scale * math.sqrt(self.num_steps / (1 - self.gradient_share))

    def _releases(self, model: AnyModel, scale: float) -> NoisySums:
        whole = self._phases(scale)
        # The evaluations of one trajectory, over and over.
        phases = tuple((noise, steps // self.num_steps) for noise, steps in whole)
        return NoisySums(
            sampling_rate=1.0,
            num_steps=self.num_steps * self._every,
            clip=1.0,
            noise_multiplier=phases,
            dimension=model.dimension + 1 if self.num_leapfrog else 1,
            batch_bound=_ROOM,
            rounds=self.num_steps,
        )

    def _refuse_incomplete(self) -> None:
        needed = {"step_size": self.step_size, "ratio_clip": self.ratio_clip}
        if self.num_leapfrog:
            needed["gradient_clip"] = self.gradient_clip
        missing = [name for name, value in needed.items() if value is None]
        if missing:
            raise InvalidArgument(f"A plain chain needs {missing[0]}= too.")

    def bounds(self, model: AnyModel, releases: NoisySums) -> tuple[Bounds, Any]:
        """Clips and noise of a chain, and the weights of gradient and ratio in a trajectory's last release."""
        noise = [scale for scale, _ in releases.phases[:2]]
        guided, size = self.first_fit(model) is not None, model.dimension
        if not noise[-1]:
            usual, weights, ratio = (_HARDLY, _HARDLY), (math.sqrt(0.5), math.sqrt(0.5)), 0.0
        elif self.num_leapfrog == 0:
            ratio, weights = noise[0], (0.0, 1.0)
            usual = 1.0, _RATIO_NOISE / (ratio * math.sqrt(2 * size))
        else:
            ratio = 1 / math.sqrt(noise[1] ** -2 - noise[0] ** -2)
            weights = noise[1] / noise[0], noise[1] / ratio
            gradient = _GRADIENT_NOISE / (noise[0] * math.sqrt(size))
            usual = gradient, _RATIO_NOISE / (ratio * math.sqrt(2 * size))
        if not guided and noise[-1]:
            usual = self.gradient_clip or 1.0, self.ratio_clip or 1.0
        return Bounds(*(np.float32(each) for each in (*usual, ratio))), np.asarray(weights)

    def check(self, model: AnyModel, gate: Gate) -> None:
        """Raises what `run` would raise of the model, without reading a row."""
        refuse_captured(*model.searched)
        fitted = self.first_fit(model)
        if fitted is not None:
            gate = fitted.check(model, gate)
        start = self._place(model)
        chains, kept = self._kept(fitted is not None)
        if not range(self.num_steps // chains)[kept]:
            raise InvalidArgument("burn_in and thin leave no draw; keep more, or take more steps.")
        steps = self._steps(model, gate.mechanism, jax.random.key(0), None, start)
        example = jax.tree.map(lambda leaf: leaf[0], steps.inputs(0, 1))
        check(steps.step, steps.state, example, gate)

    def _place(self, model: AnyModel) -> Any:
        """Where a plain chain begins, as the first of one."""
        return model.start(self.start if isinstance(self.start, Mapping) else {})[None]

    def _kept(self, guided: bool) -> tuple[int, slice]:
        """How many chains there are, and which draws of each are kept."""
        chains = chains_of(self.num_steps) if guided else 1
        usual = _GUIDED_BURN_IN if guided else _BURN_IN
        share = usual if self.burn_in is None else self.burn_in
        return chains, slice(math.ceil(share * (self.num_steps // chains)), None, self.thin)

    def steps(self, model: AnyModel, mechanism: NoisySums, key: jax.Array) -> Steps | None:
        """The chain as steps; None where another fit comes first."""
        if self.first_fit(model) is not None:
            return None
        return self._steps(model, mechanism, key, None, self._place(model))

    def stages(self, model: AnyModel, mechanism: Mechanism) -> tuple[Method, Steps] | None:
        """The fit that comes first, and the chains as steps; None for a plain chain."""
        fitted = self.first_fit(model)
        if fitted is None or not isinstance(mechanism, Stages):
            return None
        releases, start = mechanism.mechanisms[1], self._place(model)
        return fitted.scoring, self._steps(model, releases, jax.random.key(0), None, start)

    def _steps(
        self,
        model: AnyModel,
        releases: NoisySums,
        key: jax.Array,
        reference: Reference | None,
        start: Any,
    ) -> Steps:
        bounds, weights = self.bounds(model, releases)
        seed, guided = seed_of(key), self.first_fit(model) is not None
        usual = _QUARTER / max(self.num_leapfrog, 1)
        length = usual if self.step_size is None else self.step_size

        def inputs(first: int, count: int) -> Any:
            numbers = model.dimension, self.num_leapfrog, length, weights
            return evaluations(seed, first, count, *numbers, len(start))

        step = step_of(model, guided=guided, gradients=self.num_leapfrog > 0)
        return Steps(step, state_of(model, bounds, reference, start), inputs)

    def run(
        self, model: AnyModel, gate: Gate, key: jax.Array, progress: Progress | None = None
    ) -> MethodResult:
        """The chain's draws."""
        fitted, found, reference = self.first_fit(model), None, None
        start = self._place(model)
        if fitted is not None:
            found = fitted.run(model, gate, key, progress)
            gate, progress, reference = found.gate, found.progress, found.reference
            chains = chains_of(self.num_steps)
            start = jax.random.normal(jax.random.fold_in(key, 2), (chains, model.dimension))
        steps = self._steps(model, gate.mechanism, key, reference, start)
        _, (chain, accepted) = run(gate, *steps, progress=progress)
        ends = slice(self.num_leapfrog, None, self._every)
        return self._found(model, found, chain[ends], accepted[ends])

    def _found(
        self, model: AnyModel, found: Approximated | None, chain: Any, accepted: Any
    ) -> MethodResult:
        chains, kept = self._kept(found is not None)
        draws = parameters(model, jnp.asarray(chain_by_chain(chain, chains, kept)))
        mixing = bad_mixing(draws, chains)
        poor = mixing or (found is not None and not found.result.converged)
        return MethodResult(
            draws=draws,
            trace={"theta": chain, "accepted": accepted},
            chain=True,
            chains=chains,
            sample_stats={"accepted": chain_by_chain(accepted, chains, kept)},
            converged=False if poor else None,
            said=(*mixing, *(() if found is None else found.result.said)),
            intervals=Intervals.SAMPLED if found is None else Intervals.INCLUDED,
        )

    def describe(self, model: AnyModel) -> str:
        """A line for people."""
        kind = "Hamiltonian Monte Carlo" if self.num_leapfrog else "Markov chain of penalty tests"
        line = f"{kind} on all rows, for {model.dimension} unconstrained numbers."
        if self.first_fit(model) is None:
            return line
        chance = 2 * float(ndtr(-_RATIO_NOISE / 2))
        worth = self.num_steps * chance / (2 - chance)
        return (
            f"{line} It starts from private Fisher scoring; about {worth:.0f} effective draws to expect. "
            "Intervals include the noise."
        )

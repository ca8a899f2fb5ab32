"""Langevin dynamics at the temperature of the posterior (DP-SGLD).

A plain chain moves along the noisy gradient of the log posterior, and adds noise so that it
converges to the posterior: variance 2h for a step of size h. The noise of the release is
part of it. Where the Langevin noise alone is more than privacy needs, the release carries
all of it and costs less; where privacy needs more, the chain is hotter than the posterior,
which is refused unless asked for.

A guided chain, the default, moves in coordinates z in which a private approximation
(`tacit.inference.guided_chains`) is standard normal. A step shrinks z, follows
the noisy gradient of what prior and likelihood say beyond the approximation, and adds noise:
z' = e^-h z + (1 - e^-h) G(z) + noise. Without G this is exact, however long a step is. The noise of the release counts
towards the chain's own, so that it widens nothing.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tacit import _validate
from tacit.accounting import Budget, calibrate, events
from tacit.errors import InvalidArgument
from tacit.inference.diagnostics import MIN_EXPECTED_EFFECTIVE_SIZE, mixing_warnings
from tacit.inference.guided_chains import (
    DEFAULT_SHARE,
    FirstFit,
    Reference,
    chain_indices,
    describe_chains,
    dummy_reference,
    group_by_chain,
    num_chains,
    remainder_gradient,
    remainder_prior,
)
from tacit.inference.method import (
    Intervals,
    Method,
    MethodResult,
    Progress,
    Steps,
    constrained_draws,
    noisy_gradient,
    per_step_normals,
    sampling_rate_for_size,
    seed_from_key,
    tempering,
)
from tacit.inference.scoring import Scoring
from tacit.models.base import UnitModel
from tacit.privacy.captured import check_captured
from tacit.privacy.compiled_step import Step
from tacit.privacy.gate import Gate, check, run
from tacit.privacy.mechanisms import Mechanism, NoisySums, Release, Stages

# Step sizes of a schedule are held for so many steps at least: each has a price of its own.
_MAX_PHASES = 20
_PLAIN_BURN_IN, DEFAULT_STEPS = 0.5, 5000
_HOT_MESSAGE = "The budget asks for more noise than the chain needs: the draws spread wider than the posterior."


@dataclass(frozen=True, kw_only=True)
class LangevinChain(Method):
    """Settings of a Langevin chain, shared by both forms. All of them are public.

    Args:
        sampling_rate: Probability that a unit is sampled in a step.
        num_steps: Number of steps.
        clip: Bound on the norm of one unit's gradient; by default sqrt(dimension).
        step_size: Step size on the unconstrained scale, or a function of the step, which is held
            constant over twentieths of the run.
        size: A public number of units; it need not be exact. Do not count it from private data.
        tempered_size: Scale the log-likelihood by ``tempered_size / size``.
        burn_in: The share of the steps that is discarded at the start; by default half.
        thin: Keep every ``thin``-th of the remaining draws.
        batch_bound: A public bound on the number of units in a batch, beyond which sums could wrap
            around. By default several times the expected batch.
    """

    sampling_rate: float = 0.05
    num_steps: int = DEFAULT_STEPS
    clip: float | None = None
    step_size: float | Callable[[int], float] | None
    size: int | None = None
    tempered_size: float | None = None
    burn_in: float | None = None
    thin: int = 1
    batch_bound: int | None = None

    by_gradients: ClassVar[bool] = True
    # Variance of the chain's own noise, over the step size.
    noise_per_step: ClassVar[float]

    def __post_init__(self) -> None:
        _validate.integer("num_steps", self.num_steps)
        _validate.rate("sampling_rate", self.sampling_rate)
        _validate.count("thin", self.thin)
        if not (0 <= self.discarded < 1):
            raise InvalidArgument(f"burn_in must be at least 0 and below 1; got {self.burn_in}.")
        if self.step_size is not None and not callable(self.step_size):
            _validate.positive("step_size", self.step_size)
        if self.kept < 1:
            raise InvalidArgument("burn_in and thin leave no draw; keep more, or take more steps.")
        _ = self.tempering  # refuses sizes that make no sense

    @property
    def discarded(self) -> float:
        """The share of the steps that is discarded."""
        return _PLAIN_BURN_IN if self.burn_in is None else self.burn_in

    @property
    def kept(self) -> int:
        """How many draws there will be."""
        return len(range(math.ceil(self.discarded * self.num_steps), self.num_steps, self.thin))

    @property
    def tempering(self) -> float:
        """What the log-likelihood is multiplied by."""
        return tempering(self.size, self.tempered_size)

    def without_noise(self, model: UnitModel) -> Mechanism:
        """Without privacy: all noise is added outside the release."""
        return self._plan(model, [(0.0, self.num_steps)])

    def _plan(self, model: UnitModel, phases: Iterable[tuple[float, int]]) -> NoisySums:
        runs = groupby(phases, key=itemgetter(0))
        merged = tuple((noise, sum(steps for _, steps in same)) for noise, same in runs)
        return NoisySums(
            sampling_rate=self.sampling_rate,
            num_steps=self.num_steps,
            clip=self._clip(model),
            noise_multiplier=merged,
            dimension=model.dimension,
            batch_bound=self._batch_bound,
        )

    @property
    def _batch_bound(self) -> int:
        """As declared, or several times what a declared size, which may be a guess, amounts to."""
        if self.batch_bound is not None:
            return self.batch_bound
        return max(2**17, math.ceil(4 * (self.size or 0) * self.sampling_rate))

    def _clip(self, model: UnitModel) -> float:
        return model.dimension**0.5 if self.clip is None else self.clip

    @property
    def _scale(self) -> float:
        """From a released sum to the gradient of the log posterior."""
        return self.tempering / self.sampling_rate

    def _carried(self, size: float, clip: float) -> float:
        """The multiplier whose noise, once scaled by a step, is the chain's own."""
        return math.sqrt(self.noise_per_step / size) / (self._scale * clip)

    def _held(self) -> list[tuple[float, int]]:
        """Step sizes as they were given, and how many steps each is held for."""
        if not callable(self.step_size):
            assert self.step_size is not None
            return [(self.step_size, self.num_steps)]
        length = -(-self.num_steps // _MAX_PHASES)
        starts = [step // length * length for step in range(self.num_steps)]
        sizes = [_validate.positive("step_size", self.step_size(start)) for start in starts]
        return [(size, len(list(same))) for size, same in groupby(sizes)]

    def _sizes(self, release: NoisySums) -> NDArray[np.float64]:  # noqa: ARG002
        """The size of each step."""
        return repeat_by_phase(self._held())

    def sizes(self, release: NoisySums) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """For each step its size, and the noise to add to what the release carries."""
        size = self._sizes(release)
        noise_std = repeat_by_phase(release.phases) * release.clip * self._scale
        missing = self.noise_per_step * size - (size * noise_std) ** 2
        return size.astype(np.float32), np.sqrt(np.maximum(missing, 0)).astype(np.float32)

    def check(self, model: UnitModel, gate: Gate) -> None:
        """Raises what `run` would raise of the model, without reading a row."""
        check_captured(*model.searched, (self.step_size,))
        number = np.float32(0)
        given = jnp.zeros(model.dimension), number, number
        check(_plain_step(self._scale, model), _initial_state(model), given, gate)

    def steps(self, model: UnitModel, mechanism: NoisySums, key: jax.Array) -> Steps | None:
        """The chain as steps, where there is nothing else."""
        return self._plain_steps(model, mechanism, key)

    def _plain_steps(self, model: UnitModel, mechanism: NoisySums, key: jax.Array) -> Steps:
        sizes, missing = self.sizes(mechanism)
        seed = seed_from_key(key)

        def inputs(first: int, steps: int) -> Any:
            part = slice(first, first + steps)
            return (
                per_step_normals(seed, first, steps, (model.dimension,)),
                sizes[part],
                missing[part],
            )

        return Steps(_plain_step(self._scale, model), _initial_state(model), inputs)

    def run(
        self, model: UnitModel, gate: Gate, key: jax.Array, progress: Progress | None = None
    ) -> MethodResult:
        """The chain's draws."""
        _, trace = run(gate, *self._plain_steps(model, gate.mechanism, key), progress=progress)
        return self._found(model, gate.mechanism, trace)

    def _found(self, model: UnitModel, mechanism: NoisySums, chain: Any) -> MethodResult:
        kept = chain[math.ceil(self.discarded * self.num_steps) :: self.thin]
        draws = constrained_draws(model, jnp.asarray(kept))
        mixing = mixing_warnings(draws)
        return MethodResult(
            draws=draws,
            trace={"theta": chain},
            chain=True,
            converged=False if mixing else None,
            said=(*mixing, *self._temperature(mechanism)),
            intervals=Intervals.SAMPLED,
        )

    def _temperature(self, mechanism: NoisySums) -> tuple[str, ...]:
        """Whether the release has more noise than the chain needs."""
        size, noise_std = (
            self._sizes(mechanism),
            repeat_by_phase(mechanism.phases) * mechanism.clip * self._scale,
        )
        if np.all(size * noise_std**2 <= self.noise_per_step * (1 + 1e-6)):
            return ()
        return (_HOT_MESSAGE,)

    def trial(self, num_steps: int) -> "LangevinChain":
        """The same method with so few steps, all of them kept."""
        return replace(self, num_steps=num_steps, burn_in=0.0)

    def describe(self, model: UnitModel) -> str:
        """A line for people."""
        line = f"Langevin chain, {self.kept} draws, for {model.dimension} unconstrained numbers."
        if self.tempered_size is None:
            return line
        return f"{line} Tempered: {self.size:,} units count as {self.tempered_size:,g}."


def repeat_by_phase(phases: Iterable[tuple[float, int]]) -> NDArray[np.float64]:
    """The number that holds at each step."""
    numbers, counts = zip(*phases, strict=True)
    return np.repeat(np.asarray(numbers, np.float64), counts)


def _initial_state(model: UnitModel) -> Any:
    return jnp.zeros(model.dimension), jax.tree.map(jnp.asarray, model.constants)


@lru_cache(maxsize=32)
def _plain_step(scale: float, model: UnitModel) -> Step:
    """The step of a chain: the same object again, so that it compiles once."""

    def gradient(density: Callable[..., Any], theta: jax.Array) -> Any:
        return jax.grad(density)(theta)

    def step(state: Any, given: Any, release: Release) -> tuple[Any, Any]:
        theta, constants = state
        noise, size, missing = given
        total = scale * noisy_gradient(release, model, gradient, (theta, constants))
        prior = jax.grad(model.prior_density)(theta, constants)
        theta = theta + size * (total + prior) + missing * noise
        return (theta, constants), theta

    return step


# How far a chain goes in all, and how long a step is at most, in units of the exponent h.
_TOTAL_TIME, _MAX_STEP = 1000.0, 0.5
# The share of the chain's own variance that the release may carry; it sets the clip.
_RELEASE_NOISE_SHARE = 0.5
_GUIDED_BURN_IN = 0.05
# The clip where nothing is private.
_LOOSE_CLIP = 64.0


@dataclass(frozen=True, kw_only=True)
class GuidedLangevin:
    """A chain in the coordinates of a private approximation."""

    first_fit: FirstFit
    sampling_rate: float
    num_steps: int
    batch_bound: int
    burn_in: float | None
    thin: int

    @property
    def _length(self) -> float:
        return min(_TOTAL_TIME / self.num_steps, _MAX_STEP)

    def calibrate(self, model: UnitModel, budget: Budget) -> Stages:
        """The approximation with its share of the budget, and sums of gradients with the rest."""
        first = self.first_fit.calibrate(model, budget)
        rate, steps = self.sampling_rate, self.num_steps
        left = calibrate.approximate_mu(budget) * math.sqrt(1 - self.first_fit.share**2)
        guess = 1 / math.sqrt(math.log1p((left / rate) ** 2 / steps))

        def event(noise: float) -> Any:
            return events.compose(first.event, events.sampled_gaussian(noise, rate, steps))

        noise = calibrate.calibrate(event, budget, guess=guess)
        return Stages((first, self._sums(model, noise)))

    def without_noise(self, model: UnitModel) -> Stages:
        """The same without privacy."""
        return Stages((self.first_fit.scoring.without_noise(model), self._sums(model, 0.0)))

    def _sums(self, model: UnitModel, noise: float) -> NoisySums:
        shrink = 1 - math.exp(-self._length)
        most = math.sqrt(_RELEASE_NOISE_SHARE * (1 - (1 - shrink) ** 2)) / shrink
        return NoisySums(
            sampling_rate=self.sampling_rate,
            num_steps=self.num_steps,
            clip=min(most * self.sampling_rate / noise, _LOOSE_CLIP) if noise else _LOOSE_CLIP,
            noise_multiplier=noise,
            dimension=model.dimension,
            batch_bound=self.batch_bound,
        )

    def check(self, model: UnitModel, gate: Gate) -> None:
        """Raises what `run` would raise of the model, without reading a row."""
        check_captured(*model.searched)
        second = self.first_fit.check(model, gate)
        places = np.zeros((num_chains(self.num_steps), model.dimension), np.float32)
        start = _guided_state(model, places, dummy_reference(model), np.zeros(3, np.float32))
        check(_guided_step(model), start, (jnp.zeros(model.dimension), np.int32(0)), second)

    def run(
        self, model: UnitModel, gate: Gate, key: jax.Array, progress: Progress | None
    ) -> MethodResult:
        """The approximation, and the chain's draws."""
        found, seed = self.first_fit.run(model, gate, key, progress), seed_from_key(key)

        steps = self.steps(model, found.gate.mechanism, found.reference, seed)
        _, chain = run(found.gate, *steps, progress=found.progress)
        chains = num_chains(self.num_steps)
        burn_in = _GUIDED_BURN_IN if self.burn_in is None else self.burn_in
        kept = slice(math.ceil(burn_in * (self.num_steps // chains)), None, self.thin)
        draws = constrained_draws(model, jnp.asarray(group_by_chain(chain, chains, kept)))
        mixing = mixing_warnings(draws, chains)
        return MethodResult(
            draws=draws,
            trace={"theta": chain},
            chain=True,
            chains=chains,
            converged=False if mixing or not found.result.converged else None,
            said=(*mixing, *found.result.said),
            intervals=Intervals.INCLUDED,
        )

    def steps(
        self, model: UnitModel, sums: NoisySums, reference: Reference, seed: list[int]
    ) -> Steps:
        """The chains as steps. They begin at draws of the approximation."""
        chains, shape = num_chains(self.num_steps), (model.dimension,)

        def inputs(first: int, steps: int) -> Any:
            return per_step_normals(seed, chains + first, steps, shape), chain_indices(
                first, steps, chains
            )

        begun = per_step_normals(seed, 0, chains, shape)
        state = _guided_state(model, begun, reference, self._numbers(sums))
        return Steps(_guided_step(model), state, inputs)

    def _numbers(self, sums: NoisySums) -> Any:
        """What z shrinks by, what a released sum counts, and the noise that is still missing."""
        kept, rate = math.exp(-self._length), self.sampling_rate
        carried = (1 - kept) * sums.noise_std / rate
        missing = math.sqrt(1 - kept**2 - carried**2)
        return np.array([kept, 1 / rate, missing], np.float32)

    def describe(self, model: UnitModel) -> str:
        """A line for people."""
        burn_in = _GUIDED_BURN_IN if self.burn_in is None else self.burn_in
        worth = self.num_steps * (1 - burn_in) * math.tanh(self._length / 2)
        return (
            f"{describe_chains(self.num_steps)} of Langevin dynamics for {model.dimension} unconstrained numbers, in the "
            f"coordinates of a private approximation by Fisher scoring; about {worth:.0f} effective draws to expect. Intervals "
            "include the noise."
        )


def _guided_state(model: UnitModel, places: Any, reference: Reference, numbers: Any) -> Any:
    return jax.tree.map(jnp.asarray, (places, reference, numbers, model.constants))


@lru_cache(maxsize=32)
def _guided_step(model: UnitModel) -> Step:
    """The step of a chain: the same object again, so that it compiles once."""

    def gradient(density: Any, theta: jax.Array, reference: Any) -> jax.Array:
        return jnp.asarray(remainder_gradient(density, reference, theta) @ reference.root)

    def step(state: Any, given: Any, release: Release) -> tuple[Any, Any]:
        (places, reference, numbers, constants), (noise, turn) = state, given
        (kept, scale, missing), z = numbers, places[turn]
        theta = reference.at(z)
        total = scale * noisy_gradient(release, model, gradient, (theta, reference, constants))
        prior = jax.grad(remainder_prior, argnums=2)(model, reference, theta, constants)
        z = kept * z + (1 - kept) * (total + prior @ reference.root) + missing * noise
        return (places.at[turn].set(z), reference, numbers, constants), reference.at(z)

    return step


# By which share the default step may make variances too large.
_VARIANCE_EXCESS = 0.1


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

    def for_size(self, model: UnitModel, size: int, budget: Budget) -> "Langevin":  # noqa: ARG002
        """The method for a declared size: of many units, a step looks at a smaller part."""
        rate = sampling_rate_for_size(self.sampling_rate, size)
        return self if self.size is not None else replace(self, size=size, sampling_rate=rate)

    def guided(self, model: UnitModel) -> GuidedLangevin | None:
        """The chain by a private approximation; None for a plain one."""
        plain = self.step_size, self.clip, self.tempered_size
        if self.hot or any(each is not None for each in plain) or not Scoring.can_fit(model):
            return None
        return GuidedLangevin(
            first_fit=FirstFit(Scoring(), DEFAULT_SHARE, self.size),
            sampling_rate=self.sampling_rate,
            num_steps=self.num_steps,
            batch_bound=self._batch_bound,
            burn_in=self.burn_in,
            thin=self.thin,
        )

    def calibrate(self, model: UnitModel, budget: Budget) -> Mechanism:
        """The release, with the noise of the chain or of the budget, whichever is more."""
        guided = self.guided(model)
        if guided is not None:
            return guided.calibrate(model, budget)
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
        accurate = min(2 * _VARIANCE_EXCESS * dimension / sampled, 1.0) / most
        fast = math.ceil(self.discarded * self.num_steps) // 2
        phases = [(1 / most, fast), (accurate, self.num_steps - fast)]
        return [(size, steps) for size, steps in phases if steps]

    def _sizes(self, release: NoisySums) -> NDArray[np.float64]:
        if self.step_size is not None:
            return super()._sizes(release)
        bounds = repeat_by_phase(self._bounds(release.clip, release.dimension))
        noise_std = repeat_by_phase(release.phases) * release.clip * self._scale
        # The same again, unless the budget asked for more noise, and so for smaller steps.
        return np.minimum(bounds, self.noise_per_step / np.maximum(noise_std, 1e-30) ** 2)

    def without_noise(self, model: UnitModel) -> Mechanism:
        """Without privacy: all noise is added outside the release."""
        guided = self.guided(model)
        return super().without_noise(model) if guided is None else guided.without_noise(model)

    def check(self, model: UnitModel, gate: Gate) -> None:
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
        if any(each is not None for each in chosen) or self.num_steps != DEFAULT_STEPS:
            return
        assert self.size is not None
        # With usual gradients, a unit tells one about each number.
        worth = self.kept * math.tanh(float(self._sizes(mechanism)[-1]) * self.size / 2)
        if worth < MIN_EXPECTED_EFFECTIVE_SIZE:
            raise InvalidArgument(
                f"A plain Langevin chain would be worth about {worth:.0f} independent draws at this "
                f"budget and size, and {MIN_EXPECTED_EFFECTIVE_SIZE:.0f} are needed. Give the model a way to draw "
                "its outcomes, use tacit.Variational(), or choose num_steps or step_size yourself."
            )

    def steps(self, model: UnitModel, mechanism: NoisySums, key: jax.Array) -> Steps | None:
        """The chain as steps; None where another fit comes first."""
        return None if self.guided(model) is not None else super().steps(model, mechanism, key)

    def stages(self, model: UnitModel, mechanism: Mechanism) -> tuple[Method, Steps] | None:
        """The fit that comes first, and the chains as steps; None for a plain chain."""
        guided = self.guided(model)
        if guided is None or not isinstance(mechanism, Stages):
            return None
        sums = mechanism.mechanisms[1]
        return guided.first_fit.scoring, guided.steps(model, sums, dummy_reference(model), [0])

    def run(
        self, model: UnitModel, gate: Gate, key: jax.Array, progress: Progress | None = None
    ) -> MethodResult:
        """The chain's draws."""
        guided = self.guided(model)
        if guided is not None:
            return guided.run(model, gate, key, progress)
        return super().run(model, gate, key, progress)

    def describe(self, model: UnitModel) -> str:
        """A line for people."""
        guided = self.guided(model)
        return super().describe(model) if guided is None else guided.describe(model)

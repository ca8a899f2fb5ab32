"""Langevin dynamics at the temperature of the posterior (DP-SGLD).

A plain chain moves along the noisy gradient of the log posterior, and adds noise so that it
converges to the posterior: variance 2h for a step of size h. The noise of the release is
part of it. Where the Langevin noise alone is more than privacy needs, the release carries
all of it and costs less; where privacy needs more, the chain is hotter than the posterior,
which is refused unless it is requested.

A guided chain, the default, moves in coordinates z in which a private approximation
(`tacit.inference.chains`) is standard normal. A step shrinks z, follows
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
from typing import ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tacit import _validate
from tacit._typing import ArrayTree
from tacit.accounting import Budget, calibrate, events
from tacit.accounting.events import DpEvent
from tacit.errors import InvalidArgument
from tacit.inference.chains import (
    DEFAULT_SHARE,
    GUIDED_BURN_IN,
    LOOSE_CLIP,
    Approximation,
    ChainMethod,
    FirstFit,
    Reference,
    ScoringFit,
    Start,
    chain_indices,
    describe_chains,
    num_chains,
    remainder_gradient,
    remainder_prior,
)
from tacit.inference.diagnostics import MIN_EXPECTED_EFFECTIVE_SIZE
from tacit.inference.method import (
    Density,
    Steps,
    noisy_gradient,
    per_step_normals,
    sampling_rate_for_size,
    seed_from_key,
    tempering,
)
from tacit.inference.scoring import Scoring
from tacit.models.base import UnitModel
from tacit.privacy.mechanisms import NoisySums, Release
from tacit.privacy.trace import Step

DEFAULT_STEPS = 5000
# Step sizes of a schedule are held for so many steps at least: each has a price of its own.
_MAX_PHASES = 20
# The relative excess of variances that the default step of a plain chain may cause.
_VARIANCE_EXCESS = 0.1
# The total time of a guided chain, and the longest step, in units of the exponent h.
_TOTAL_TIME, _MAX_STEP = 1000.0, 0.5
# The share of a guided chain's own variance that the release may carry; it sets the clip.
_RELEASE_NOISE_SHARE = 0.5
_HOT_MESSAGE = "The budget requires more noise than the chain needs: the draws spread wider than the posterior."


@dataclass(frozen=True, kw_only=True)
class LangevinChain(ChainMethod[NoisySums]):
    """A plain Langevin chain, as `Langevin` and `tacit.papers.langevin` share it. All settings are public.

    Args:
        sampling_rate: Probability that a unit is sampled in a step.
        num_steps: Number of steps, 5000 by default.
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
    plain_burn_in: ClassVar[float] = 0.5
    # Variance of the chain's own noise, divided by the step size.
    noise_per_step: ClassVar[float]

    def __post_init__(self) -> None:
        _validate.integer("num_steps", self.num_steps)
        _validate.rate("sampling_rate", self.sampling_rate)
        _validate.count("thin", self.thin)
        if not (0 <= self.discarded < 1):
            raise InvalidArgument(f"burn_in must be at least 0 and below 1; got {self.burn_in}.")
        if self.step_size is not None and not callable(self.step_size):
            _validate.positive("step_size", self.step_size)
        if self.num_kept < 1:
            raise InvalidArgument("burn_in and thin leave no draw; keep more, or take more steps.")
        _ = self.tempering  # raises if the sizes make no sense

    @property
    def discarded(self) -> float:
        """The share of the steps of a plain chain that is discarded."""
        return self.plain_burn_in if self.burn_in is None else self.burn_in

    @property
    def num_kept(self) -> int:
        """The number of draws of a plain chain."""
        return len(range(math.ceil(self.discarded * self.num_steps), self.num_steps, self.thin))

    @property
    def tempering(self) -> float:
        """What the log-likelihood is multiplied by."""
        return tempering(self.size, self.tempered_size)

    def trial(self, num_steps: int) -> Self:
        """The same method with so few steps, all of them kept."""
        return replace(self, num_steps=num_steps, burn_in=0.0)

    def first_fit(self, model: UnitModel) -> FirstFit | None:  # noqa: ARG002
        """None: the chain begins at zero."""
        return None

    def _sums(self, model: UnitModel, phases: Iterable[tuple[float, int]]) -> NoisySums:
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
        """As declared, or several times the expected batch, as the declared size may be a guess."""
        if self.batch_bound is not None:
            return self.batch_bound
        return max(2**17, math.ceil(4 * (self.size or 0) * self.sampling_rate))

    def _clip(self, model: UnitModel) -> float:
        return model.dimension**0.5 if self.clip is None else self.clip

    @property
    def _scale(self) -> float:
        """The factor from a released sum to the gradient of the tempered log-likelihood of all units."""
        return self.tempering / self.sampling_rate

    def _own_noise(self, size: float, clip: float) -> float:
        """The noise multiplier at which the release carries all of the chain's own noise."""
        return math.sqrt(self.noise_per_step / size) / (self._scale * clip)

    def _given_sizes(self) -> list[tuple[float, int]]:
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
        return repeat_by_phase(self._given_sizes())

    def sizes(self, release: NoisySums) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """For each step its size, and the noise to add to what the release carries."""
        size = self._sizes(release)
        noise_std = repeat_by_phase(release.phases) * release.clip * self._scale
        missing = self.noise_per_step * size - (size * noise_std) ** 2
        return size.astype(np.float32), np.sqrt(np.maximum(missing, 0)).astype(np.float32)

    @property
    def _functions(self) -> tuple[object, ...]:
        return (self.step_size,)

    def _chain(self, model: UnitModel, mechanism: NoisySums, key: jax.Array, start: Start) -> Steps:
        sizes, missing = self.sizes(mechanism)
        seed = seed_from_key(key)

        def inputs(first: int, steps: int) -> ArrayTree:
            part = slice(first, first + steps)
            normals = per_step_normals(seed, first, steps, (model.dimension,))
            return normals, sizes[part], missing[part]

        assert not isinstance(start, Approximation)
        state = start, jax.tree.map(jnp.asarray, model.constants)
        return Steps(_plain_step(self._scale, model), state, inputs)

    def _remarks(
        self,
        mechanism: NoisySums,
        acceptance: float | None,  # noqa: ARG002
        *,
        guided: bool,
    ) -> tuple[str, ...]:
        """Whether the release has more noise than a plain chain needs."""
        if guided:
            return ()
        noise_std = repeat_by_phase(mechanism.phases) * mechanism.clip * self._scale
        needed = self.noise_per_step * (1 + 1e-6)
        hot = not np.all(self._sizes(mechanism) * noise_std**2 <= needed)
        return (_HOT_MESSAGE,) if hot else ()

    def describe(self, model: UnitModel) -> str:
        """A line for the printed plan."""
        line = f"Langevin chain, {self.num_kept} draws, for {model.dimension} unconstrained parameters."
        if self.tempered_size is None:
            return line
        return f"{line} Tempered: {self.size:,} units count as {self.tempered_size:,g}."


def repeat_by_phase(phases: Iterable[tuple[float, int]]) -> NDArray[np.float64]:
    """The value of each step."""
    numbers, counts = zip(*phases, strict=True)
    return np.repeat(np.asarray(numbers, np.float64), counts)


@lru_cache(maxsize=32)
def _plain_step(scale: float, model: UnitModel) -> Step:
    """The step of a chain. Cached, so that it compiles once."""

    def gradient(density: Density, theta: jax.Array) -> jax.Array:
        return jnp.asarray(jax.grad(density)(theta))

    def step(
        state: tuple[jax.Array, ArrayTree],
        given: tuple[jax.Array, jax.Array, jax.Array],
        release: Release,
    ) -> tuple[tuple[jax.Array, ArrayTree], jax.Array]:
        theta, constants = state
        noise, size, missing = given
        total = scale * noisy_gradient(release, model, gradient, (theta, constants))
        prior = jax.grad(model.log_prior)(theta, constants)
        theta = theta + size * (total + prior) + missing * noise
        return (theta, constants), theta

    return step


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

    def first_fit(self, model: UnitModel) -> FirstFit | None:
        """The fit that guides the chain; None for a plain one."""
        plain = self.step_size, self.clip, self.tempered_size
        if self.hot or any(each is not None for each in plain) or not Scoring.can_fit(model):
            return None
        return ScoringFit(DEFAULT_SHARE, Scoring(), self.size)

    def _releases(
        self,
        model: UnitModel,
        budget: Budget | None,
        first: FirstFit | None,
        before: tuple[DpEvent, ...],
    ) -> NoisySums:
        """Sums of gradients, with the noise of the chain or of the budget, whichever is more."""
        if first is not None:
            return self._guided_sums(model, self._guided_noise(budget, first, before))
        if budget is None:  # all noise is added outside the release
            return self._sums(model, [(0.0, self.num_steps)])
        if self.step_size is None and self.size is None:
            raise InvalidArgument(
                "The default step size depends on the number of units; pass size=, a public guess at "
                "it, or step_size=."
            )
        least = calibrate.noise_multiplier(
            budget, sampling_rate=self.sampling_rate, num_steps=self.num_steps
        )
        clip = self._clip(model)
        given = (
            self._given_sizes()
            if self.step_size is not None
            else self._default_sizes(clip, model.dimension)
        )
        carried = [(self._own_noise(size, clip), steps) for size, steps in given]
        strict = self.step_size is not None and not self.hot
        if strict and any(noise < least for noise, _ in carried):
            largest = self.noise_per_step / (self._scale * least * clip) ** 2
            raise InvalidArgument(
                f"With steps larger than {largest:.3g} the budget's noise is more than the "
                "posterior's own, and draws would spread too wide; lower step_size, or pass "
                "hot=True to accept it."
            )
        return self._sums(model, [(max(noise, least), steps) for noise, steps in carried])

    def _default_sizes(self, clip: float, dimension: int) -> list[tuple[float, int]]:
        """The upper bounds on default step sizes, and for how many steps each holds."""
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
        bounds = repeat_by_phase(self._default_sizes(release.clip, release.dimension))
        noise_std = repeat_by_phase(release.phases) * release.clip * self._scale
        # Smaller where the budget needs more noise than a step of this size has.
        return np.minimum(bounds, self.noise_per_step / np.maximum(noise_std, 1e-30) ** 2)

    def _check_plain(self, model: UnitModel, mechanism: NoisySums) -> None:  # noqa: ARG002
        """Raises if a chain by settings that nobody chose will not mix, as far as a size tells."""
        chosen = self.step_size, self.clip, self.tempered_size
        if any(each is not None for each in chosen) or self.num_steps != DEFAULT_STEPS:
            return
        assert self.size is not None
        # Typical gradients are as long as the clip: a unit has an information of about one on each parameter.
        worth = self.num_kept * math.tanh(float(self._sizes(mechanism)[-1]) * self.size / 2)
        if worth < MIN_EXPECTED_EFFECTIVE_SIZE:
            raise InvalidArgument(
                f"A plain Langevin chain would be worth about {worth:.0f} independent draws at this "
                f"budget and size, and {MIN_EXPECTED_EFFECTIVE_SIZE:.0f} are needed. Give the model a way to draw "
                "its outcomes, use tacit.Variational(), or choose num_steps or step_size yourself."
            )

    @property
    def _step_length(self) -> float:
        """The exponent h of a step."""
        return min(_TOTAL_TIME / self.num_steps, _MAX_STEP)

    def _guided_noise(
        self, budget: Budget | None, first: FirstFit, before: tuple[DpEvent, ...]
    ) -> float:
        """The noise multiplier with which a chain and what comes before it meet a budget."""
        if budget is None:
            return 0.0
        rate, steps = self.sampling_rate, self.num_steps
        left = calibrate.approximate_mu(budget) * math.sqrt(1 - first.share**2)
        guess = 1 / math.sqrt(math.log1p((left / rate) ** 2 / steps))

        def event(noise: float) -> DpEvent:
            return events.compose(*before, events.sampled_gaussian(noise, rate, steps))

        return calibrate.calibrate(event, budget, guess=guess)

    def _guided_sums(self, model: UnitModel, noise: float) -> NoisySums:
        shrink = 1 - math.exp(-self._step_length)
        most = math.sqrt(_RELEASE_NOISE_SHARE * (1 - (1 - shrink) ** 2)) / shrink
        return NoisySums(
            sampling_rate=self.sampling_rate,
            num_steps=self.num_steps,
            clip=min(most * self.sampling_rate / noise, LOOSE_CLIP) if noise else LOOSE_CLIP,
            noise_multiplier=noise,
            dimension=model.dimension,
            batch_bound=self._batch_bound,
        )

    def _chain(self, model: UnitModel, mechanism: NoisySums, key: jax.Array, start: Start) -> Steps:
        if not isinstance(start, Approximation):
            return super()._chain(model, mechanism, key, start)
        chains, shape, seed = num_chains(self.num_steps), (model.dimension,), seed_from_key(key)

        def inputs(first: int, steps: int) -> ArrayTree:
            noise = per_step_normals(seed, chains + first, steps, shape)
            return noise, chain_indices(first, steps, chains)

        # What z shrinks by, what a released sum is multiplied by, and the noise that is still missing.
        kept, rate = math.exp(-self._step_length), self.sampling_rate
        carried = (1 - kept) * mechanism.noise_std / rate
        missing = math.sqrt(1 - kept**2 - carried**2)
        numbers = np.array([kept, 1 / rate, missing], np.float32)
        begun = per_step_normals(seed, 0, chains, shape)
        state = jax.tree.map(jnp.asarray, (begun, start.reference, numbers, model.constants))
        return Steps(_guided_step(model), state, inputs)

    def describe(self, model: UnitModel) -> str:
        """A line for the printed plan."""
        if self.first_fit(model) is None:
            return super().describe(model)
        burn_in = GUIDED_BURN_IN if self.burn_in is None else self.burn_in
        worth = self.num_steps * (1 - burn_in) * math.tanh(self._step_length / 2)
        return (
            f"{describe_chains(self.num_steps)} of Langevin dynamics for {model.dimension} unconstrained parameters, in the "
            f"coordinates of a private approximation by Fisher scoring; about {worth:.0f} effective draws to expect. Intervals "
            "include the noise."
        )


# The positions of chains, the approximation, three numbers of a step, and the constants of the model.
GuidedState = tuple[jax.Array, Reference, jax.Array, ArrayTree]


@lru_cache(maxsize=32)
def _guided_step(model: UnitModel) -> Step:
    """The step of a chain. Cached, so that it compiles once."""

    def gradient(density: Density, theta: jax.Array, reference: Reference) -> jax.Array:
        return jnp.asarray(remainder_gradient(density, reference, theta) @ reference.root)

    def step(
        state: GuidedState, given: tuple[jax.Array, jax.Array], release: Release
    ) -> tuple[GuidedState, jax.Array]:
        (positions, reference, numbers, constants), (noise, turn) = state, given
        (kept, scale, missing), z = numbers, positions[turn]
        theta = reference.at(z)
        total = scale * noisy_gradient(release, model, gradient, (theta, reference, constants))
        prior = jax.grad(remainder_prior, argnums=2)(model, reference, theta, constants)
        z = kept * z + (1 - kept) * (total + prior @ reference.root) + missing * noise
        return (positions.at[turn].set(z), reference, numbers, constants), reference.at(z)

    return step

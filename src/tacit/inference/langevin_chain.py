"""Chains of differentially private stochastic-gradient Langevin dynamics (DP-SGLD).

A step moves along the noisy gradient of the log posterior, and adds noise so that the chain
settles into the posterior: variance 2h for a step of size h. The noise of the release is
part of it. Where the Langevin noise alone is more than privacy needs, the release carries
all of it and costs less; where privacy needs more, the chain is hotter than the posterior,
which is refused unless asked for.
"""

import math
from abc import ABC, abstractmethod
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
from tacit.accounting import Budget
from tacit.captured.search import refuse_captured
from tacit.errors import InvalidArgument
from tacit.inference.base import (
    Intervals,
    MethodResult,
    Progress,
    Steps,
    noisy_gradient,
    normals,
    parameters,
    seed_of,
)
from tacit.inference.mixing import bad_mixing
from tacit.inference.tempering import tempering
from tacit.models.base import AnyModel
from tacit.privacy.gate import Gate, check, run
from tacit.privacy.mechanisms import Mechanism, NoisySums
from tacit.privacy.program import Step
from tacit.privacy.release import Release

# Step sizes of a schedule are held for so many steps at least: each has a price of its own.
_PHASES = 20
_BURN_IN, USUAL_STEPS = 0.5, 5000
_HOT = "The budget asks for more noise than the chain needs: the draws spread wider than the posterior."


@dataclass(frozen=True, kw_only=True)
class LangevinChain(ABC):
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
    num_steps: int = USUAL_STEPS
    clip: float | None = None
    step_size: float | Callable[[int], float] | None
    size: int | None = None
    tempered_size: float | None = None
    burn_in: float | None = None
    thin: int = 1
    batch_bound: int | None = None

    by_gradients: ClassVar[bool] = True
    assumptions: ClassVar[tuple[str, ...]] = ()
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
        return _BURN_IN if self.burn_in is None else self.burn_in

    @property
    def kept(self) -> int:
        """How many draws there will be."""
        return len(range(math.ceil(self.discarded * self.num_steps), self.num_steps, self.thin))

    @property
    def tempering(self) -> float:
        """What the log-likelihood is multiplied by."""
        return tempering(self.size, self.tempered_size)

    @abstractmethod
    def calibrated(self, model: AnyModel, budget: Budget) -> Mechanism:
        """What the gate will do, with the noise that a budget asks for."""

    def without_noise(self, model: AnyModel) -> Mechanism:
        """Without privacy: all noise is added outside the release."""
        return self._plan(model, [(0.0, self.num_steps)])

    def _plan(self, model: AnyModel, phases: Iterable[tuple[float, int]]) -> NoisySums:
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

    def _clip(self, model: AnyModel) -> float:
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
        length = -(-self.num_steps // _PHASES)
        starts = [step // length * length for step in range(self.num_steps)]
        sizes = [_validate.positive("step_size", self.step_size(start)) for start in starts]
        return [(size, len(list(same))) for size, same in groupby(sizes)]

    def _sizes(self, release: NoisySums) -> NDArray[np.float64]:  # noqa: ARG002
        """The size of each step."""
        return each_of(self._held())

    def sizes(self, release: NoisySums) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """For each step its size, and the noise to add to what the release carries."""
        size = self._sizes(release)
        noise_std = each_of(release.phases) * release.clip * self._scale
        missing = self.noise_per_step * size - (size * noise_std) ** 2
        return size.astype(np.float32), np.sqrt(np.maximum(missing, 0)).astype(np.float32)

    def check(self, model: AnyModel, gate: Gate) -> None:
        """Raises what `run` would raise of the model, without reading a row."""
        refuse_captured(*model.searched, (self.step_size,))
        number = np.float32(0)
        given = jnp.zeros(model.dimension), number, number
        check(_step(self._scale, model), _start(model), given, gate)

    def steps(self, model: AnyModel, mechanism: NoisySums, key: jax.Array) -> Steps | None:
        """The chain as steps, where there is nothing else."""
        return self._plain_steps(model, mechanism, key)

    def _plain_steps(self, model: AnyModel, mechanism: NoisySums, key: jax.Array) -> Steps:
        sizes, missing = self.sizes(mechanism)
        seed = seed_of(key)

        def inputs(first: int, steps: int) -> Any:
            part = slice(first, first + steps)
            return normals(seed, first, steps, (model.dimension,)), sizes[part], missing[part]

        return Steps(_step(self._scale, model), _start(model), inputs)

    def run(
        self, model: AnyModel, gate: Gate, key: jax.Array, progress: Progress | None = None
    ) -> MethodResult:
        """The chain's draws."""
        _, trace = run(gate, *self._plain_steps(model, gate.mechanism, key), progress=progress)
        return self._found(model, gate.mechanism, trace)

    def _found(self, model: AnyModel, mechanism: NoisySums, chain: Any) -> MethodResult:
        kept = chain[math.ceil(self.discarded * self.num_steps) :: self.thin]
        draws = parameters(model, jnp.asarray(kept))
        mixing = bad_mixing(draws)
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
            each_of(mechanism.phases) * mechanism.clip * self._scale,
        )
        if np.all(size * noise_std**2 <= self.noise_per_step * (1 + 1e-6)):
            return ()
        return (_HOT,)

    def trial(self, num_steps: int) -> "LangevinChain":
        """The same method with so few steps, all of them kept."""
        return replace(self, num_steps=num_steps, burn_in=0.0)

    def describe(self, model: AnyModel) -> str:
        """A line for people."""
        line = f"Langevin chain, {self.kept} draws, for {model.dimension} unconstrained numbers."
        if self.tempered_size is None:
            return line
        return f"{line} Tempered: {self.size:,} units count as {self.tempered_size:,g}."


def each_of(phases: Iterable[tuple[float, int]]) -> NDArray[np.float64]:
    """The number that holds at each step."""
    numbers, counts = zip(*phases, strict=True)
    return np.repeat(np.asarray(numbers, np.float64), counts)


def _start(model: AnyModel) -> Any:
    return jnp.zeros(model.dimension), jax.tree.map(jnp.asarray, model.constants)


@lru_cache(maxsize=32)
def _step(scale: float, model: AnyModel) -> Step:
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

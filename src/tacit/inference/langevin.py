"""Differentially private stochastic-gradient Langevin dynamics (DP-SGLD).

A step moves along the noisy gradient of the log posterior, and adds noise so that the chain
settles into the posterior: variance 2h for a step of size h. The noise of the release is
part of it. Where the Langevin noise alone is more than privacy needs, the release carries
all of it and costs less; where privacy needs more, the chain is hotter than the posterior,
which is refused unless asked for.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from tacit import _validate
from tacit.accounting import Budget, calibrate
from tacit.errors import InvalidArgument
from tacit.inference.base import Found, Progress, noisy_gradient, normals, parameters, seed_of
from tacit.inference.convergence import settled_from
from tacit.models.model import AnyModel
from tacit.privacy.check import refuse_captured
from tacit.privacy.fetch import side_by_side
from tacit.privacy.gate import Gate, check, run
from tacit.privacy.plans import NoisySums
from tacit.privacy.release import Release

# Step sizes of a schedule are held for so many steps at least: each has a price of its own.
_PHASES = 20


@dataclass(frozen=True, kw_only=True)
class Langevin:
    """Settings of a private Langevin chain. All are public, and none is read from data.

    ``step_size`` is h, on the unconstrained scale. By default it is the largest whose
    Langevin noise is what the budget asks for, so that privacy costs no accuracy but only
    how far the chain gets. A function of the step makes a schedule, held constant over
    twentieths of the run; smaller steps carry more noise than privacy needs, and are charged less.
    With ``hot=True`` a larger step is allowed: the chain then spreads wider than the posterior.

    ``clip`` bounds what one unit adds to the gradient. The first ``burn_in`` of the steps
    are left out of the draws, and of the rest every ``thin``-th is kept.
    """

    sampling_rate: float = 0.05
    num_steps: int = 5000
    clip: float | None = None
    step_size: float | Callable[[int], float] | None = None
    hot: bool = False
    burn_in: float = 0.5
    thin: int = 1
    batch_bound: int = 2**17

    by_gradients: ClassVar[bool] = True
    assumptions: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "num_steps", _validate.count("num_steps", self.num_steps))
        _validate.count("thin", self.thin)
        if not (0 <= self.burn_in < 1):
            raise InvalidArgument(f"burn_in is a share of the steps, below 1; got {self.burn_in}.")
        if self.step_size is not None and not callable(self.step_size):
            _validate.positive("step_size", self.step_size)
        if self.kept < 1:
            raise InvalidArgument("burn_in and thin leave no draw; keep more, or take more steps.")

    @property
    def kept(self) -> int:
        """How many draws there will be."""
        return len(range(math.ceil(self.burn_in * self.num_steps), self.num_steps, self.thin))

    def calibrated(self, model: AnyModel, budget: Budget) -> NoisySums:
        """The release, with the noise of the chain or of the budget, whichever is more."""
        least = calibrate.noise_multiplier(
            budget, sampling_rate=self.sampling_rate, num_steps=self.num_steps
        )
        clip = self._clip(model)
        if self.step_size is None:
            return self._plan(model, ((least, self.num_steps),))
        carried = [(self._carried(size, clip), steps) for size, steps in self._sizes()]
        if not self.hot and any(noise < least for noise, _ in carried):
            largest = 2 * (self.sampling_rate / (clip * least)) ** 2
            raise InvalidArgument(
                f"With steps larger than {largest:.3g} the budget's noise is more than the "
                "posterior's own, and draws would spread too wide; lower step_size, or pass "
                "hot=True to accept it."
            )
        return self._plan(model, tuple((max(noise, least), steps) for noise, steps in carried))

    def without_noise(self, model: AnyModel) -> NoisySums:
        """Without privacy: all noise is added outside the release."""
        if self.step_size is None:
            raise InvalidArgument("Without a budget there is no default step; pass step_size=.")
        return self._plan(model, ((0.0, self.num_steps),))

    def _plan(self, model: AnyModel, phases: tuple[tuple[float, int], ...]) -> NoisySums:
        return NoisySums(
            sampling_rate=self.sampling_rate,
            num_steps=self.num_steps,
            clip=self._clip(model),
            noise_multiplier=phases,
            dimension=model.dimension,
            batch_bound=self.batch_bound,
        )

    def _clip(self, model: AnyModel) -> float:
        return model.dimension**0.5 if self.clip is None else self.clip

    def _carried(self, size: float, clip: float) -> float:
        """The multiplier whose noise, once scaled by a step, has the Langevin variance 2h."""
        return self.sampling_rate * math.sqrt(2 / size) / clip

    def _sizes(self) -> list[tuple[float, int]]:
        """Step sizes, and how many steps each is held for."""
        if not callable(self.step_size):
            assert self.step_size is not None
            return [(self.step_size, self.num_steps)]
        length = -(-self.num_steps // _PHASES)
        starts = [step // length * length for step in range(self.num_steps)]
        sizes = [_validate.positive("step_size", self.step_size(start)) for start in starts]
        return [(size, len(list(same))) for size, same in groupby(sizes)]

    def sizes(self, release: NoisySums) -> tuple[Any, Any]:
        """For each step its size, and the noise to add to what the release carries."""
        steps = self._sizes() if self.step_size is not None else None
        if steps is None:
            noise = release.phases[0][0]
            steps = [(2 * (self.sampling_rate / (release.clip * noise)) ** 2, self.num_steps)]
        size = np.repeat([each for each, _ in steps], [count for _, count in steps])
        scales, lengths = zip(*release.phases, strict=True)
        noise_std = np.repeat(scales, lengths) * release.clip
        missing = 2 * size - (size * noise_std / self.sampling_rate) ** 2
        return size.astype(np.float32), np.sqrt(np.maximum(missing, 0)).astype(np.float32)

    def check(self, model: AnyModel, gate: Gate) -> None:
        """Raises what `run` would raise of the model, without reading a row."""
        refuse_captured(*model.searched, (self.step_size,))
        number = np.float32(0)
        check(_step(self, model), _start(model), (jnp.zeros(model.dimension), number, number), gate)

    def run(
        self,
        model: AnyModel,
        gates: Sequence[Gate],
        keys: Sequence[jax.Array],
        progress: Progress | None = None,
    ) -> list[Found]:
        """One chain for each gate."""
        states = jax.tree.map(lambda leaf: jnp.stack([leaf] * len(gates)), _start(model))
        sizes, missing = zip(*(self.sizes(gate.plan) for gate in gates), strict=True)
        seeds = [seed_of(key) for key in keys]

        def inputs(first: int, steps: int) -> Any:
            blocks = [normals(seed, first, steps, (model.dimension,)) for seed in seeds]
            part = slice(first, first + steps)
            return tuple(
                side_by_side(each)
                for each in (blocks, [s[part] for s in sizes], [m[part] for m in missing])
            )

        _, trace = run(gates, _step(self, model), states, inputs, progress=progress)
        return [self._found(model, np.asarray(trace[:, i])) for i in range(len(gates))]

    def _found(self, model: AnyModel, chain: Any) -> Found:
        kept = chain[math.ceil(self.burn_in * self.num_steps) :: self.thin]
        return Found(
            draws=parameters(model, jnp.asarray(kept)),
            trace={"theta": chain},
            settled_from=settled_from(chain),
            chain=True,
        )

    def describe(self, model: AnyModel) -> str:
        """A line for people."""
        return f"Langevin chain, {self.kept} draws, for {model.dimension} unconstrained numbers."


def _start(model: AnyModel) -> Any:
    return jnp.zeros(model.dimension), jax.tree.map(jnp.asarray, model.constants)


@lru_cache(maxsize=32)
def _step(method: Langevin, model: AnyModel) -> Callable[[Any, Any, Release], tuple[Any, Any]]:
    """The step of a chain: the same object again, so that it compiles once."""

    def gradient(density: Callable[..., Any], theta: jax.Array) -> Any:
        return jax.grad(density)(theta)

    def step(state: Any, given: Any, release: Release) -> tuple[Any, Any]:
        theta, constants = state
        noise, size, missing = given
        total = noisy_gradient(release, model, gradient, (theta, constants)) / method.sampling_rate
        prior = jax.grad(model.prior_density)(theta, constants)
        theta = theta + size * (total + prior) + missing * noise
        return (theta, constants), theta

    return step

"""Langevin chains that a private approximation guides.

The chain moves in coordinates z in which the approximation is standard normal. A step shrinks z, follows
the noisy gradient of what prior and likelihood say beyond the approximation, and adds noise:
z' = e^-h z + (1 - e^-h) G(z) + noise. Without G this is exact, however long a step is. The noise of the release counts
towards the chain's own, so that it widens nothing.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tacit.accounting import Budget, calibrate, events
from tacit.captured.search import refuse_captured
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
from tacit.inference.reference import (
    FirstFit,
    Reference,
    like_reference,
    prior_beyond,
    slope_beyond,
)
from tacit.inference.turns import chain_by_chain, chains_in_words, chains_of, turns
from tacit.models.base import AnyModel
from tacit.privacy.gate import Gate, check, run
from tacit.privacy.mechanisms import NoisySums, Stages
from tacit.privacy.program import Step
from tacit.privacy.release import Release

# How far a chain goes in all, and how long a step is at most, in units of the exponent h.
_FAR, _LONGEST = 1000.0, 0.5
# The share of the chain's own variance that the release may carry; it sets the clip.
_CARRIED = 0.5
_BURN_IN = 0.05
# The clip where nothing is private.
_HARDLY = 64.0


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
        return min(_FAR / self.num_steps, _LONGEST)

    def calibrated(self, model: AnyModel, budget: Budget) -> Stages:
        """The approximation with its share of the budget, and sums of gradients with the rest."""
        first = self.first_fit.calibrated(model, budget)
        rate, steps = self.sampling_rate, self.num_steps
        left = calibrate.usual_mu(budget) * math.sqrt(1 - self.first_fit.share**2)
        guess = 1 / math.sqrt(math.log1p((left / rate) ** 2 / steps))

        def event(noise: float) -> Any:
            return events.compose(first.event, events.sampled_gaussian(noise, rate, steps))

        noise = calibrate.calibrate(event, budget, guess=guess)
        return Stages((first, self._sums(model, noise)))

    def without_noise(self, model: AnyModel) -> Stages:
        """The same without privacy."""
        return Stages((self.first_fit.scoring.without_noise(model), self._sums(model, 0.0)))

    def _sums(self, model: AnyModel, noise: float) -> NoisySums:
        shrink = 1 - math.exp(-self._length)
        most = math.sqrt(_CARRIED * (1 - (1 - shrink) ** 2)) / shrink
        return NoisySums(
            sampling_rate=self.sampling_rate,
            num_steps=self.num_steps,
            clip=min(most * self.sampling_rate / noise, _HARDLY) if noise else _HARDLY,
            noise_multiplier=noise,
            dimension=model.dimension,
            batch_bound=self.batch_bound,
        )

    def check(self, model: AnyModel, gate: Gate) -> None:
        """Raises what `run` would raise of the model, without reading a row."""
        refuse_captured(*model.searched)
        second = self.first_fit.check(model, gate)
        places = np.zeros((chains_of(self.num_steps), model.dimension), np.float32)
        start = _state(model, places, like_reference(model), np.zeros(3, np.float32))
        check(_step_of(model), start, (jnp.zeros(model.dimension), np.int32(0)), second)

    def run(
        self, model: AnyModel, gate: Gate, key: jax.Array, progress: Progress | None
    ) -> MethodResult:
        """The approximation, and the chain's draws."""
        found, seed = self.first_fit.run(model, gate, key, progress), seed_of(key)

        steps = self.steps(model, found.gate.mechanism, found.reference, seed)
        _, chain = run(found.gate, *steps, progress=found.progress)
        chains = chains_of(self.num_steps)
        burn_in = _BURN_IN if self.burn_in is None else self.burn_in
        kept = slice(math.ceil(burn_in * (self.num_steps // chains)), None, self.thin)
        draws = parameters(model, jnp.asarray(chain_by_chain(chain, chains, kept)))
        mixing = bad_mixing(draws, chains)
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
        self, model: AnyModel, sums: NoisySums, reference: Reference, seed: list[int]
    ) -> Steps:
        """The chains as steps. They begin at draws of the approximation."""
        chains, shape = chains_of(self.num_steps), (model.dimension,)

        def inputs(first: int, steps: int) -> Any:
            return normals(seed, chains + first, steps, shape), turns(first, steps, chains)

        begun = normals(seed, 0, chains, shape)
        state = _state(model, begun, reference, self._numbers(sums))
        return Steps(_step_of(model), state, inputs)

    def _numbers(self, sums: NoisySums) -> Any:
        """What z shrinks by, what a released sum counts, and the noise that is still missing."""
        kept, rate = math.exp(-self._length), self.sampling_rate
        carried = (1 - kept) * sums.noise_std / rate
        missing = math.sqrt(1 - kept**2 - carried**2)
        return np.array([kept, 1 / rate, missing], np.float32)

    def describe(self, model: AnyModel) -> str:
        """A line for people."""
        burn_in = _BURN_IN if self.burn_in is None else self.burn_in
        worth = self.num_steps * (1 - burn_in) * math.tanh(self._length / 2)
        return (
            f"{chains_in_words(self.num_steps)} of Langevin dynamics for {model.dimension} unconstrained numbers, in the "
            f"coordinates of a private approximation by Fisher scoring; about {worth:.0f} effective draws to expect. Intervals "
            "include the noise."
        )


def _state(model: AnyModel, places: Any, reference: Reference, numbers: Any) -> Any:
    return jax.tree.map(jnp.asarray, (places, reference, numbers, model.constants))


@lru_cache(maxsize=32)
def _step_of(model: AnyModel) -> Step:
    """The step of a chain: the same object again, so that it compiles once."""

    def gradient(density: Any, theta: jax.Array, reference: Any) -> jax.Array:
        return jnp.asarray(slope_beyond(density, reference, theta) @ reference.root)

    def step(state: Any, given: Any, release: Release) -> tuple[Any, Any]:
        (places, reference, numbers, constants), (noise, turn) = state, given
        (kept, scale, missing), z = numbers, places[turn]
        theta = reference.at(z)
        total = scale * noisy_gradient(release, model, gradient, (theta, reference, constants))
        prior = jax.grad(prior_beyond, argnums=2)(model, reference, theta, constants)
        z = kept * z + (1 - kept) * (total + prior @ reference.root) + missing * noise
        return (places.at[turn].set(z), reference, numbers, constants), reference.at(z)

    return step

"""What a gate will do, as frozen public values: which releases, how many, with what noise.

A mechanism's event is made from the very fields that the gate executes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from dp_accounting.dp_event import DpEvent, NonPrivateDpEvent
from numpy.typing import NDArray

from tacit import _validate
from tacit.accounting import events
from tacit.errors import InvalidArgument
from tacit.privacy.bound import Lattice, RatioLattice
from tacit.privacy.noise import Randomness, rounded_laplaces, rounded_normals
from tacit.privacy.sample import Batches, poisson_batches, usual_capacity


class Mechanism(Protocol):
    """What every mechanism is to whoever charges and describes it."""

    @property
    def event(self) -> DpEvent:
        """What is charged."""
        ...

    @property
    def num_steps(self) -> int:
        """How many releases there are."""
        ...

    def explain(self, unit: str, many: str) -> list[str]:
        """Lines for people, who call one unit ``unit`` and several ``many``."""
        ...


class StepMechanism(Mechanism, Protocol):
    """A mechanism of like steps, as the gate executes it.

    Where a step does not look at ``everyone``, it looks at a batch, of a usual ``capacity``.
    """

    @property
    def clip(self) -> float:
        """What a unit's contribution is clipped to."""
        ...

    @property
    def lattice(self) -> Lattice | RatioLattice:
        """Where contributions are added up."""
        ...

    @property
    def words(self) -> int:
        """How many 32-bit integers of noise a step gets."""
        ...

    @property
    def everyone(self) -> bool:
        """Whether every step looks at all units."""
        ...

    def noise(self, bits: Randomness, start: int, steps: int) -> NDArray[np.int32]:
        """The noise of some steps, as integers."""
        ...

    def capacity(self, units: int) -> int:
        """A usual width of batches of so many units, for speed only."""
        ...

    def batches(self, bits: Randomness, units: int, steps: int, capacity: int) -> Batches:
        """Which units the steps look at."""
        ...

    def looked_at(self, units: int) -> float:
        """About how many of so many units a step looks at."""
        ...

    def trial(self, steps: int, batch: int) -> tuple["StepMechanism", int]:
        """A few steps of the same kind, to see how long they take, and units for them."""
        ...


@dataclass(frozen=True, kw_only=True)
class NoisySums:
    """Steps that each release one noisy clipped sum. All public.

    ``noise_multiplier`` is noise std over clip, or a schedule of (multiplier, steps) pairs, which is
    gone through ``rounds`` times; zero is without privacy, and the event says so.
    ``batch_bound`` is a declared bound on the units in a batch; it sets the lattice, never
    the guarantee, and a batch beyond it may wrap around.
    With ``laplace``, the clip is in the 1-norm, noise is Laplace and its multiplier is scale
    over clip; every step then looks at all units.
    With ``secrets``, every unit gets 64 random bits in every step that it is looked at: fresh,
    secret and its own, for what a step draws for a unit. They are no part of the release, and
    the event is the same (PROOFS.md, Theorem 1S).
    With ``whole``, a release is the lattice points themselves, as integers of 32 bits, which sites
    can mask and add up; the real numbers would be those times ``grid``.
    """

    sampling_rate: float
    num_steps: int
    clip: float
    noise_multiplier: float | tuple[tuple[float, int], ...]
    dimension: int
    batch_bound: int = 2**17
    laplace: bool = False
    secrets: bool = False
    rounds: int = 1
    whole: bool = False

    def __post_init__(self) -> None:
        _validate.rate("sampling_rate", self.sampling_rate)
        if self.laplace and not self.everyone:
            raise InvalidArgument("Laplace noise needs sampling_rate=1: every step uses all units.")
        _validate.count("num_steps", self.num_steps)
        _validate.positive("clip", self.clip)
        _validate.count("dimension", self.dimension)
        _validate.count("batch_bound", self.batch_bound)
        _validate.count("rounds", self.rounds)
        for scale, steps in self.phases:
            _validate.non_negative("noise_multiplier", scale)
            _validate.count("the steps of a phase", steps)
        if sum(steps for _, steps in self.phases) != self.num_steps:
            raise InvalidArgument("The steps of the noise schedule must add up to num_steps.")
        _ = self.lattice  # refuses a lattice that would be too coarse

    @property
    def phases(self) -> tuple[tuple[float, int], ...]:
        """The noise schedule: multipliers and the number of steps each holds for."""
        if isinstance(self.noise_multiplier, tuple):
            return self.noise_multiplier * self.rounds
        return ((self.noise_multiplier, self.num_steps),)

    @property
    def event(self) -> DpEvent:
        """The event to account for: of the very numbers that are executed."""
        if any(scale == 0 for scale, _ in self.phases):
            return NonPrivateDpEvent()
        if self.laplace:
            return events.compose(
                *(events.repeat(events.laplace(scale), steps) for scale, steps in self._counted)
            )
        return events.sampled_gaussian(list(self._counted), self.sampling_rate)

    @property
    def _counted(self) -> tuple[tuple[float, int], ...]:
        """How many steps each multiplier holds for in all: what composes does not mind the order."""
        total = dict[float, int]()
        for scale, steps in self.phases:
            total[scale] = total.get(scale, 0) + steps
        return tuple(total.items())

    @property
    def noise_std(self) -> float:
        """The largest standard deviation of the noise."""
        scale = max(scale for scale, _ in self.phases)
        return self.clip * scale * (math.sqrt(2) if self.laplace else 1.0)

    @property
    def lattice(self) -> Lattice:
        """One lattice for all phases, by the largest noise."""
        order = 1 if self.laplace else 2
        noise = self.noise_std / self.clip
        return Lattice.fitting(noise, self.dimension, self.batch_bound, order, whole=self.whole)

    @property
    def grid(self) -> float:
        """Distance between neighbouring points of the lattice."""
        return self.clip / self.lattice.points

    @property
    def words(self) -> int:
        """How many 32-bit integers of noise a step gets."""
        return self.dimension * (2 if self.lattice.wide else 1)

    @property
    def everyone(self) -> bool:
        """Whether every step looks at all units."""
        return self.sampling_rate >= 1

    def capacity(self, units: int) -> int:
        """A usual width of batches, for speed only."""
        return usual_capacity(self.sampling_rate, units)

    def batches(self, bits: Randomness, units: int, steps: int, capacity: int) -> Batches:
        """Which units the steps look at."""
        return poisson_batches(bits, self.sampling_rate, units, steps, capacity)

    def noise(self, bits: Randomness, start: int, steps: int) -> NDArray[np.int32]:
        """Integer noise for a block of steps, each phase at its own scale. [gate-noise]"""
        parts, begin, grid = [], 0, self.grid  # which looks at all phases, so it is computed once
        for scale, length in self.phases:
            inside = min(start + steps, begin + length) - max(start, begin)
            if inside > 0:
                points, count = scale * self.clip / grid, inside * self.dimension
                rounded = rounded_laplaces if self.laplace else rounded_normals
                drawn = rounded(bits, points, count)
                parts.append(drawn.reshape(inside, self.dimension))
            begin += length
        noise = parts[0] if len(parts) == 1 else np.concatenate(parts)
        return noise.view(np.int32) if self.lattice.wide else noise.astype(np.int32)

    def secret(self, bits: Randomness, steps: int, width: int) -> NDArray[np.uint32]:
        """Two secret words for every place of the batches of some steps: fresh ones. [gate-secret]"""
        return bits.words(steps * width).view(np.uint32).reshape(steps, width, 2)

    def looked_at(self, units: int) -> float:
        """About how many of so many units a step looks at."""
        return units * self.sampling_rate

    def trial(self, steps: int, batch: int) -> tuple["NoisySums", int]:
        """A few steps of the same kind, to see how long they take, and units for them."""
        rate = 1.0 if self.laplace else 0.5
        noise: float | tuple[tuple[float, int], ...] = 1.0
        if isinstance(self.noise_multiplier, tuple):  # as many phases
            ends = [steps * i // len(self.phases) for i in range(len(self.phases) + 1)]
            noise = tuple((1.0, end - start) for start, end in pairwise(ends) if end > start)
        short = replace(self, num_steps=steps, sampling_rate=rate, noise_multiplier=noise, rounds=1)
        return short, round(batch / rate)

    def explain(self, unit: str, many: str) -> list[str]:
        """Lines for people."""
        by_turns = " or " if len(self._counted) < len(self.phases) else ", then "
        noise = by_turns.join(f"{scale:.4g}" for scale, _ in self._counted)
        share = f"a random {self.sampling_rate:.3g} of the {many}"
        return [
            f"{self.num_steps} steps, each on {f'all {many}' if self.everyone else share}.",
            f"One {unit} moves a step's sum by at most the clip, {self.clip:.4g}.",
            f"{'Laplace noise' if self.laplace else 'Noise'} is {noise} clips in every number of it.",
        ]


@dataclass(frozen=True)
class Stages:
    """Several mechanisms, one after the other, under one charge."""

    mechanisms: tuple[Any, ...]

    @property
    def event(self) -> DpEvent:
        """All of them."""
        return events.compose(*(mechanism.event for mechanism in self.mechanisms))

    @property
    def num_steps(self) -> int:
        """All steps."""
        return sum(mechanism.num_steps for mechanism in self.mechanisms)

    def explain(self, unit: str, many: str) -> list[str]:
        """Lines for people."""
        parts: Sequence[list[str]] = [
            mechanism.explain(unit, many) for mechanism in self.mechanisms
        ]
        return [line for part in parts for line in part]


def has_secrets(mechanism: Mechanism) -> bool:
    """Whether a mechanism gives units secret bits of their own."""
    return type(mechanism) is NoisySums and mechanism.secrets

"""What a gate will do, as frozen public values: which releases, how many, with what noise.

A plan's event is made from the very fields that the gate executes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Protocol, runtime_checkable

import numpy as np
from dp_accounting.dp_event import DpEvent, NonPrivateDpEvent
from numpy.typing import NDArray

from tacit import _validate
from tacit.accounting import events
from tacit.errors import InvalidArgument
from tacit.privacy.bound import Lattice, RatioLattice
from tacit.privacy.noise import Randomness, logistics, normals, rounded_laplaces, rounded_normals
from tacit.privacy.sample import Batches, fixed_batches, poisson_batches, usual_capacity


class ReleasePlan(Protocol):
    """What every plan is to whoever charges and describes it."""

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


@runtime_checkable
class SideBySide(Protocol):
    """A plan of steps, which may run beside others of the same shape."""

    @property
    def shape(self) -> tuple[Any, ...]:
        """What gates that run side by side must agree in."""
        ...


@runtime_checkable
class Counting(Protocol):
    """A plan that takes the number of units as public."""

    def refuse_misfit(self, units: int) -> None:
        """Raises if there are not as many units as were declared."""
        ...


@dataclass(frozen=True, kw_only=True)
class NoisySums:
    """Steps that each release one noisy clipped sum. All public.

    ``noise_multiplier`` is noise std over clip, or a schedule of (multiplier, steps) pairs;
    zero is without privacy, and the event says so.
    ``batch_bound`` is a declared bound on the units in a batch; it sets the lattice, never
    the guarantee, and a batch beyond it may wrap around.
    With ``laplace``, the clip is in the 1-norm, noise is Laplace and its multiplier is scale
    over clip; every step then looks at all units.
    With ``secrets``, every unit gets 64 random bits in every step that it is looked at: fresh,
    secret and its own, for what a step draws for a unit. They are no part of the release, and
    the event is the same (PROOFS.md, Theorem 1S).
    """

    sampling_rate: float
    num_steps: int
    clip: float
    noise_multiplier: float | tuple[tuple[float, int], ...]
    dimension: int
    batch_bound: int = 2**17
    laplace: bool = False
    secrets: bool = False

    def __post_init__(self) -> None:
        _validate.rate("sampling_rate", self.sampling_rate)
        if self.laplace and not self.everyone:
            raise InvalidArgument("With Laplace noise every step looks at all: sampling_rate is 1.")
        _validate.count("num_steps", self.num_steps)
        _validate.positive("clip", self.clip)
        _validate.count("dimension", self.dimension)
        _validate.count("batch_bound", self.batch_bound)
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
            return self.noise_multiplier
        return ((self.noise_multiplier, self.num_steps),)

    @property
    def event(self) -> DpEvent:
        """The event to account for: of the very numbers that are executed."""
        if any(scale == 0 for scale, _ in self.phases):
            return NonPrivateDpEvent()
        if self.laplace:
            return events.compose(
                *(events.repeat(events.laplace(scale), steps) for scale, steps in self.phases)
            )
        return events.sampled_gaussian(list(self.phases), self.sampling_rate)

    @property
    def lattice(self) -> Lattice:
        """One lattice for all phases, by the largest noise."""
        std = self.clip * max(scale for scale, _ in self.phases)
        if self.laplace:
            return Lattice(self.clip, math.sqrt(2) * std, self.dimension, self.batch_bound, order=1)
        return Lattice(self.clip, std, self.dimension, self.batch_bound)

    @property
    def shape(self) -> tuple[Any, ...]:
        """What gates that run side by side must agree in."""
        lattice = self.lattice
        sums = self.dimension, lattice.points, lattice.wide, lattice.order
        return self.num_steps, self.everyone, self.secrets, *sums

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
        parts, begin = [], 0
        for scale, length in self.phases:
            inside = min(start + steps, begin + length) - max(start, begin)
            if inside > 0:
                points, count = scale * self.clip / self.lattice.grid, inside * self.dimension
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
        short = replace(self, num_steps=steps, sampling_rate=rate, noise_multiplier=noise)
        return short, round(batch / rate)

    def explain(self, unit: str, many: str) -> list[str]:
        """Lines for people."""
        noise = ", then ".join(f"{scale:.4g}" for scale, _ in self.phases)
        share = f"a random {self.sampling_rate:.3g} of the {many}"
        return [
            f"{self.num_steps} steps, each on {f'all {many}' if self.everyone else share}.",
            f"One {unit} moves a step's sum by at most the clip, {self.clip:.4g}.",
            f"{'Laplace noise' if self.laplace else 'Noise'} is {noise} clips in every number of it.",
        ]


@dataclass(frozen=True, kw_only=True)
class BarkerTests:
    """Steps that each release one accept/reject decision on all units. All public.

    ``ratio_bound`` is what a unit's (tempered) log-likelihood ratio is clipped to. The decision
    is exact; or, with ``noise_variance``, made by Gaussian noise of that variance and a
    correction that the step adds (Heikkilä et al. 2019, Theorem 1). Without ``private``, ratios
    are hardly clipped at all, and the event says so.
    """

    num_steps: int
    ratio_bound: float
    noise_variance: float | None = None
    private: bool = True

    everyone = True
    words = 2

    def __post_init__(self) -> None:
        _validate.count("num_steps", self.num_steps)
        _ = self.event
        if not (1e-6 <= self.ratio_bound <= 100):
            raise InvalidArgument(
                f"A bound of {self.ratio_bound:.3g} on one unit's log ratio is beyond what a test "
                "can carry (1e-6 to 100); take fewer steps, or change the budget."
            )

    @property
    def event(self) -> DpEvent:
        """The event to account for."""
        if not self.private:
            return NonPrivateDpEvent()
        return tests_event(self.ratio_bound, self.noise_variance, self.num_steps)

    @property
    def clip(self) -> float:
        """What a unit's ratio is clipped to."""
        return self.ratio_bound

    @property
    def lattice(self) -> RatioLattice:
        """Fine enough that rounding is no matter; finer where nothing is clipped."""
        return RatioLattice(points=2**20 if self.private else 2**29)

    @property
    def shape(self) -> tuple[Any, ...]:
        """What gates that run side by side must agree in."""
        return self.num_steps, self.everyone, self.lattice

    def noise(self, bits: Randomness, start: int, steps: int) -> NDArray[np.int32]:  # noqa: ARG002
        """What the log ratio must exceed, in double precision. [test-threshold]"""
        if self.noise_variance is None:
            thresholds = logistics(bits, steps)
        else:
            thresholds = math.sqrt(self.noise_variance) * normals(bits, steps)
        return thresholds.view(np.int32).reshape(steps, 2)

    def looked_at(self, units: int) -> float:
        """All of them."""
        return units

    def trial(self, steps: int, batch: int) -> tuple["BarkerTests", int]:
        """A few steps of the same kind, to see how long they take, and units for them."""
        return replace(self, num_steps=steps), batch

    def explain(self, unit: str, many: str) -> list[str]:
        """Lines for people."""
        return [
            f"{self.num_steps} steps, each a decision on all {many} to accept a proposal or not.",
            f"One {unit} moves the log odds of a decision by at most {self.ratio_bound:.4g}.",
        ]


def tests_event(ratio_bound: float, noise_variance: float | None, num_steps: int) -> DpEvent:
    """So many tests on all units, exact or by Gaussian noise."""
    one: DpEvent = events.BarkerTest(ratio_bound=ratio_bound)
    if noise_variance is not None:
        one = events.GaussianBarkerTest(ratio_bound=ratio_bound, noise_variance=noise_variance)
    return events.repeat(one, num_steps)


@dataclass(frozen=True, kw_only=True)
class SampledBarkerTests:
    """Steps that each release one decision on a random batch of fixed size. All public.

    A unit's log-likelihood ratio is clipped to sqrt(batch_size) / tempered_size; the number of
    units is public, and only replace has a bound (Heikkilä et al. 2019, Theorem 2, C = 2).
    """

    num_steps: int
    batch_size: int
    dataset_size: int
    tempered_size: float
    private: bool = True

    everyone = False
    words = 2

    def __post_init__(self) -> None:
        _validate.count("num_steps", self.num_steps)
        _validate.positive("tempered_size", self.tempered_size)
        _ = self.event
        if self.batch_size > 2**20:
            raise InvalidArgument("A batch of more than 2^20 units is too large for its proof.")

    @property
    def event(self) -> DpEvent:
        """The event to account for."""
        test = events.SubsampledBarkerTest(
            batch_size=self.batch_size, dataset_size=self.dataset_size
        )
        return events.repeat(test, self.num_steps) if self.private else NonPrivateDpEvent()

    @property
    def clip(self) -> float:
        """What a unit's ratio is clipped to."""
        return math.sqrt(self.batch_size) / self.tempered_size

    @property
    def lattice(self) -> RatioLattice:
        """A lattice for the batch's ratios."""
        return RatioLattice(points=2**20, batch_size=self.batch_size)

    @property
    def shape(self) -> tuple[Any, ...]:
        """What gates that run side by side must agree in."""
        return self.num_steps, self.everyone, self.lattice, self.dataset_size

    def refuse_misfit(self, units: int) -> None:
        """The number of units is public here, and must be the one that was declared."""
        if units != self.dataset_size:
            raise InvalidArgument(
                f"The test was planned for a public number of {self.dataset_size} units, and there "
                "are not as many; declare the right size."
            )

    def capacity(self, units: int) -> int:
        """The width of batches."""
        self.refuse_misfit(units)
        return self.batch_size

    def batches(self, bits: Randomness, units: int, steps: int, capacity: int) -> Batches:
        """Which units the steps look at."""
        return fixed_batches(bits, units, capacity, steps)

    def noise(self, bits: Randomness, start: int, steps: int) -> NDArray[np.int32]:  # noqa: ARG002
        """Standard normal numbers in double precision."""
        return normals(bits, steps).view(np.int32).reshape(steps, 2)

    def looked_at(self, units: int) -> float:  # noqa: ARG002
        """A batch."""
        return self.batch_size

    def trial(self, steps: int, batch: int) -> tuple["SampledBarkerTests", int]:
        """A few steps of the same kind, to see how long they take, and units for them."""
        short = replace(self, num_steps=steps, batch_size=batch, dataset_size=2 * batch)
        return short, 2 * batch

    def explain(self, unit: str, many: str) -> list[str]:
        """Lines for people."""
        of = f"{self.batch_size} random ones of the {self.dataset_size} {many}"
        return [
            f"{self.num_steps} steps, each a decision on {of}, whose number is public.",
            f"One {unit}'s log-likelihood ratio counts for at most {self.clip:.4g}.",
        ]


@dataclass(frozen=True)
class Stages:
    """Several plans, one after the other, under one charge."""

    plans: tuple[Any, ...]

    @property
    def event(self) -> DpEvent:
        """All of them."""
        return events.compose(*(plan.event for plan in self.plans))

    @property
    def num_steps(self) -> int:
        """All steps."""
        return sum(plan.num_steps for plan in self.plans)

    @property
    def shape(self) -> tuple[Any, ...]:
        """What gates that run side by side must agree in."""
        return tuple(plan.shape for plan in self.plans)

    def explain(self, unit: str, many: str) -> list[str]:
        """Lines for people."""
        parts: Sequence[list[str]] = [plan.explain(unit, many) for plan in self.plans]
        return [line for part in parts for line in part]

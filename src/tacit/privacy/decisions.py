"""Mechanisms of accept/reject decisions: Barker tests on all units, or on batches of fixed size."""

import math
from dataclasses import dataclass, replace

import numpy as np
from dp_accounting.dp_event import DpEvent, NonPrivateDpEvent
from numpy.typing import NDArray

from tacit import _validate
from tacit.accounting import events
from tacit.errors import InvalidArgument
from tacit.privacy.bound import RatioLattice
from tacit.privacy.noise import Randomness, logistics, normals
from tacit.privacy.sample import Batches, fixed_batches


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
                f"The bound on one unit's log ratio must be between 1e-6 and 100; this plan has "
                f"{self.ratio_bound:.3g}. Take fewer steps, or change the budget."
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

    def capacity(self, units: int) -> int:
        """Every step looks at all units."""
        return units

    def batches(self, bits: Randomness, units: int, steps: int, capacity: int) -> Batches:  # noqa: ARG002
        """All units in every step; the gate does not ask for them."""
        everyone = np.broadcast_to(np.arange(units, dtype=np.int32), (steps, units))
        return Batches(everyone, np.ones((steps, units), np.bool_))

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
            raise InvalidArgument(
                "batch_size must be at most 2^20: the proof covers no larger batches."
            )

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

    def refuse_misfit(self, units: int) -> None:
        """The number of units is public here, and must be the one that was declared."""
        if units != self.dataset_size:
            raise InvalidArgument(
                f"The plan declares a public number of {self.dataset_size} units, and the data have "
                "another number; declare the right size."
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

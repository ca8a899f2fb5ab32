"""Mechanisms, which are what a gate executes and a ledger is charged for, and the releases of their steps.

A mechanism is frozen public numbers: how many releases, with what clip, noise and sampling. Its event is
computed from the very fields that the gate executes. A release is a JAX primitive, so that the walk over a
step's trace (`tacit.privacy.trace`) finds it.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, wraps
from itertools import pairwise
from typing import Any, NamedTuple, NoReturn, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Jaxpr, JaxprEqn, Primitive
from jax.interpreters import batching, mlir
from jax.tree_util import PyTreeDef
from numpy.typing import ArrayLike, NDArray

from tacit import _validate
from tacit._typing import AnyArray, PyTree
from tacit.accounting import events
from tacit.accounting.events import DpEvent, NonPrivateDpEvent
from tacit.errors import BoundaryError, InvalidArgument
from tacit.privacy.captured import check_captured
from tacit.privacy.clipping import (
    Lattice,
    RatioLattice,
    add_noise,
    barker_decision,
    batch_barker_decision,
    clip_ratios,
    clip_to_lattice,
    clip_to_lattice_l1,
    integer_sum,
    partial_ratio_sums,
    partial_sums,
)
from tacit.privacy.noise import (
    Randomness,
    rounded_laplaces,
    rounded_normals,
    standard_logistics,
    standard_normals,
)
from tacit.privacy.rows import Units
from tacit.privacy.sampling import Batches, fixed_size_batches, poisson_batches, typical_batch_width


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
    With ``as_integers``, a release is the lattice points themselves, as integers of 64 bits in halves, which
    sites can mask and add up; the real numbers would be those times ``grid``.
    With ``stop_after``, the run may stop for good after so many steps, by what they released; see
    ``stopped_event``. Zero: it goes through all steps.
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
    as_integers: bool = False
    stop_after: int = 0

    def __post_init__(self) -> None:
        _validate.rate("sampling_rate", self.sampling_rate)
        if self.laplace and not self.uses_all_units:
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
        _validate.count("stop_after", self.stop_after, least=0)
        if self.stop_after >= self.num_steps:
            raise InvalidArgument("A run can stop only before its last step: lower stop_after.")
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
        return self._event_until(self.num_steps)

    @property
    def stopped_event(self) -> DpEvent | None:
        """The event of a run that stops after ``stop_after`` steps; None if it never stops. [stop-event]"""
        return self._event_until(self.stop_after) if self.stop_after else None

    def _event_until(self, steps: int) -> DpEvent:
        """The event of the first steps."""
        counted = self._counted(steps)
        if any(scale == 0 for scale, _ in counted):
            return NonPrivateDpEvent()
        if self.laplace:
            return events.compose(
                *(events.repeat(events.laplace(scale), number) for scale, number in counted)
            )
        return events.sampled_gaussian(list(counted), self.sampling_rate)

    def _counted(self, steps: int) -> tuple[tuple[float, int], ...]:
        """How many of the first steps each multiplier holds for: composition does not depend on the order."""
        total, left = dict[float, int](), steps
        for scale, length in self.phases:
            if here := min(length, left):
                total[scale] = total.get(scale, 0) + here
                left -= here
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
        return Lattice.fitting(
            noise, self.dimension, self.batch_bound, order, as_integers=self.as_integers
        )

    @property
    def grid(self) -> float:
        """Distance between neighbouring points of the lattice."""
        return self.clip / self.lattice.points

    @property
    def noise_words(self) -> int:
        """How many 32-bit integers of noise a step gets."""
        return self.dimension * (2 if self.lattice.wide else 1)

    @property
    def uses_all_units(self) -> bool:
        """Whether every step looks at all units."""
        return self.sampling_rate >= 1

    def batch_width(self, units: int) -> int:
        """A usual width of batches, for speed only."""
        return typical_batch_width(self.sampling_rate, units)

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

    def expected_batch(self, units: int) -> float:
        """About how many of so many units a step looks at."""
        return units * self.sampling_rate

    def trial(self, steps: int, batch: int) -> tuple["NoisySums", int]:
        """A few steps of the same kind, to see how long they take, and units for them."""
        rate = 1.0 if self.laplace else 0.5
        noise: float | tuple[tuple[float, int], ...] = 1.0
        if isinstance(self.noise_multiplier, tuple):  # as many phases
            ends = [steps * i // len(self.phases) for i in range(len(self.phases) + 1)]
            noise = tuple((1.0, end - start) for start, end in pairwise(ends) if end > start)
        short = replace(
            self,
            num_steps=steps,
            sampling_rate=rate,
            noise_multiplier=noise,
            rounds=1,
            stop_after=0,
        )
        return short, round(batch / rate)

    def explain(self, unit: str, many: str) -> list[str]:
        """Lines for people."""
        counted = self._counted(self.num_steps)
        by_turns = " or " if len(counted) < len(self.phases) else ", then "
        noise = by_turns.join(f"{scale:.4g}" for scale, _ in counted)
        share = f"a random {self.sampling_rate:.3g} of the {many}"
        return [
            f"{self.num_steps} steps, each on {f'all {many}' if self.uses_all_units else share}.",
            f"One {unit} moves a step's sum by at most the clip, {self.clip:.4g}.",
            f"{'Laplace noise' if self.laplace else 'Noise'} is {noise} clips in each of its numbers.",
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


def stopped_event(mechanism: Mechanism) -> DpEvent | None:
    """What is executed of a mechanism if it stops early; None if it cannot."""
    return mechanism.stopped_event if isinstance(mechanism, NoisySums) else None


def without_stop(mechanism: Mechanism) -> Mechanism:
    """The same mechanism, which always goes through all its steps."""
    return replace(mechanism, stop_after=0) if isinstance(mechanism, NoisySums) else mechanism


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

    uses_all_units = True
    noise_words = 2

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
        return barker_event(self.ratio_bound, self.noise_variance, self.num_steps)

    @property
    def clip(self) -> float:
        """What a unit's ratio is clipped to."""
        return self.ratio_bound

    @property
    def lattice(self) -> RatioLattice:
        """Fine enough that rounding is no matter; finer where nothing is clipped."""
        return RatioLattice(points=2**20 if self.private else 2**29)

    def batch_width(self, units: int) -> int:
        """Every step looks at all units."""
        return units

    def batches(self, bits: Randomness, units: int, steps: int, capacity: int) -> Batches:  # noqa: ARG002
        """All units in every step; the gate does not ask for them."""
        everyone = np.broadcast_to(np.arange(units, dtype=np.int32), (steps, units))
        return Batches(everyone, np.ones((steps, units), np.bool_))

    def noise(self, bits: Randomness, start: int, steps: int) -> NDArray[np.int32]:  # noqa: ARG002
        """What the log ratio must exceed, in double precision. [test-threshold]"""
        if self.noise_variance is None:
            thresholds = standard_logistics(bits, steps)
        else:
            thresholds = math.sqrt(self.noise_variance) * standard_normals(bits, steps)
        return thresholds.view(np.int32).reshape(steps, 2)

    def expected_batch(self, units: int) -> float:
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


def barker_event(ratio_bound: float, noise_variance: float | None, num_steps: int) -> DpEvent:
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

    uses_all_units = False
    noise_words = 2

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

    def check_size(self, units: int) -> None:
        """The number of units is public here, and must be the one that was declared."""
        if units != self.dataset_size:
            raise InvalidArgument(
                f"The plan declares a public number of {self.dataset_size} units, and the data have "
                "another number; declare the right size."
            )

    def batch_width(self, units: int) -> int:
        """The width of batches."""
        self.check_size(units)
        return self.batch_size

    def batches(self, bits: Randomness, units: int, steps: int, capacity: int) -> Batches:
        """Which units the steps look at."""
        return fixed_size_batches(bits, units, capacity, steps)

    def noise(self, bits: Randomness, start: int, steps: int) -> NDArray[np.int32]:  # noqa: ARG002
        """Standard normal numbers in double precision."""
        return standard_normals(bits, steps).view(np.int32).reshape(steps, 2)

    def expected_batch(self, units: int) -> float:  # noqa: ARG002
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


# Mechanisms of like steps, which the gate executes one after the other.
StepMechanism = NoisySums | BarkerTests | SampledBarkerTests
# Units that are looked at together, and numbers that they add, so that what is in between fits a cache.
_UNITS_PER_PIECE, _NUMBERS_PER_PIECE = 2**14, 2**20
RowFunction = Callable[[PyTree, Mapping[str, jax.Array]], jax.Array]
# Of public arguments, the rows of a unit by column, which of them are real, and the unit's secret words if the
# mechanism has them.
UnitFunction = Callable[..., jax.Array]


class Batch(NamedTuple):
    """Inputs of one step: units, secret bits, mask and noise, which are private, and the public clip and grid.

    ``secret`` are words of each unit's own, or None. ``present`` says which places hold a unit.
    """

    units: Units
    secret: AnyArray | None
    present: AnyArray
    noise: AnyArray
    clip: AnyArray
    grid: AnyArray


class _PublicInputs(NamedTuple):
    """What a release is given that is public. ``shift`` is that of a test; None for a sum."""

    constants: list[AnyArray]
    arguments: list[AnyArray]
    shift: jax.Array | None


class Release:
    """Handed to a step, which calls one of its methods once: that of the kind of release its mechanism makes."""

    def __init__(self, batch: Batch, lattice: Lattice | RatioLattice) -> None:
        self._batch, self._lattice = batch, lattice

    def noisy_sum(self, per_unit: UnitFunction, arguments: PyTree) -> jax.Array:
        """The noisy sum over the sampled units of ``per_unit(arguments, rows, present)``, a vector.

        ``rows`` are all rows of a unit, [rows of a unit, ...] for each column, and ``present`` tells which of
        them are real. A vector that is not finite counts as zero. If rows contribute each by itself, `sum_rows`
        makes such a function. Where the mechanism has secrets, ``per_unit(arguments, rows, present, secret)``
        gets the two words of 32 bits that are the unit's own in this step: fresh, and never released.

        Formal guarantees:
            Released: the sum over sampled units of a vector clipped to the mechanism's clip, plus noise,
                on the mechanism's lattice.
            Neighbours: add-remove and replace, of one unit.
            Sensitivity under add-remove: `clip`, for a unit that is sampled; in the 2-norm, with
                Laplace noise in the 1-norm.
            Sensitivity under replace: `2 * clip`.
            Event: `NoisySums.event`.
            Public inputs: the mechanism, and the arguments, which the walk proves to be free of rows.
            Theorem: 1; with Laplace noise 3; with secrets 1S.
        """
        return self._bind(Lattice, per_unit, arguments, None)

    def noisy_test(self, per_unit: UnitFunction, arguments: PyTree, shift: ArrayLike) -> jax.Array:
        """Whether to accept: a noisy test of the sum of ``per_unit(arguments, rows, present)``, a number, plus ``shift``.

        The function is as for `noisy_sum`. NaN counts as zero, and an infinite number as the clip.

        Formal guarantees:
            Released: one bit, true with a probability that follows the sum over units of a number
                clipped to the mechanism's clip, and the shift.
            Neighbours: add-remove and replace on all units; replace on a batch of fixed size.
            Sensitivity under add-remove: `clip`, in the log odds; none for `SampledBarkerTests`.
            Sensitivity under replace: `2 * clip`, in the log odds; for `SampledBarkerTests` in the sum of
                the batch's log ratios.
            Event: `BarkerTests.event` or `SampledBarkerTests.event`.
            Public inputs: the mechanism, and the arguments and the shift, which the walk proves to be
                free of rows; for `SampledBarkerTests` the number of units.
            Theorem: 4 on all units; 5 on a batch of fixed size.
        """
        shift = jnp.asarray(shift, jnp.float32).reshape(())
        return self._bind(RatioLattice, per_unit, arguments, shift)

    def _bind(
        self, kind: type, per_unit: UnitFunction, arguments: PyTree, shift: jax.Array | None
    ) -> jax.Array:
        batch, lattice = self._batch, self._lattice
        if not isinstance(lattice, kind):
            raise BoundaryError("The step calls another kind of release than its mechanism makes.")
        check_captured(per_unit)

        def contribution(arguments: PyTree, units: Units, secret: jax.Array | None) -> jax.Array:
            own = () if secret is None else (secret,)
            return per_unit(arguments, *units, *own).astype(jnp.float32)

        unit = jax.tree.map(lambda leaf: _shape_dtype(leaf, leaf.shape[1:]), batch[:2])
        traced, shape = jax.make_jaxpr(contribution, return_shape=True)(arguments, *unit)
        if shape.shape != lattice.unit_shape:
            raise BoundaryError(
                f"The mechanism adds up arrays of shape {lattice.unit_shape}, but the contribution of a "
                f"unit has shape {shape.shape}."
            )
        public = _PublicInputs(list(traced.consts), jax.tree.leaves(arguments), shift)
        released: jax.Array = release_p.bind(  # type: ignore[no-untyped-call]
            *jax.tree.leaves(public),
            *jax.tree.leaves(batch),
            unit=traced.jaxpr,
            public=jax.tree.structure(public),
            batch=jax.tree.structure(batch),
            lattice=lattice,
        )
        return released


def sum_rows(per_row: RowFunction) -> UnitFunction:
    """What a unit contributes if its rows contribute each by itself: the sum of ``per_row(arguments, row)``.

    For `Release.noisy_sum`: a row whose contribution is not finite contributes nothing; other rows of the unit still do.
    """

    @wraps(per_row)
    def per_unit(
        arguments: PyTree, rows: Mapping[str, jax.Array], present: jax.Array, *_: jax.Array
    ) -> jax.Array:
        def contribution(row: Mapping[str, jax.Array], is_real: jax.Array) -> jax.Array:
            value = per_row(arguments, row).astype(jnp.float32)
            return jnp.where(is_real & jnp.isfinite(value).all(), value, 0.0)

        if len(present) == 1:  # without an axis for the rows, which would only take time
            return contribution({name: leaf[0] for name, leaf in rows.items()}, present[0])
        return jax.vmap(contribution)(rows, present).sum(axis=0)

    return per_unit


def _shape_dtype(leaf: AnyArray, shape: tuple[int, ...]) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, leaf.dtype)  # type: ignore[no-untyped-call]


# A primitive, so that the walk can find it; without rules for grad and vmap, so that neither can
# turn one charged release into several.
release_p = Primitive("tacit_release")


def _release_impl(
    *operands: jax.Array,
    unit: Jaxpr,
    public: PyTreeDef,
    batch: PyTreeDef,
    lattice: Lattice | RatioLattice,
) -> jax.Array:
    inputs: _PublicInputs = jax.tree.unflatten(public, operands[: public.num_leaves])
    given: Batch = jax.tree.unflatten(batch, operands[public.num_leaves :])
    if isinstance(lattice, RatioLattice):
        return _decision(unit, inputs, given, lattice)
    return add_noise(_clipped_sums(unit, inputs, given, lattice), given.noise, given.grid, lattice)


def noiseless_sum(
    *operands: jax.Array, unit: Jaxpr, public: PyTreeDef, batch: PyTreeDef, lattice: Lattice
) -> jax.Array:
    """The sum that a release has of a part of the units, as integers without noise. Gate only.

    It is added to those of the other parts and to noise before anything leaves. [parts-sum]
    """
    inputs: _PublicInputs = jax.tree.unflatten(public, operands[: public.num_leaves])
    given: Batch = jax.tree.unflatten(batch, operands[public.num_leaves :])
    return integer_sum(_clipped_sums(unit, inputs, given, lattice), lattice)


def _contributions(unit: Jaxpr, inputs: _PublicInputs, axis: int = 0) -> Callable[..., jax.Array]:
    """What units contribute, each by itself. ``axis`` is that of the units in what is given."""

    def contribution(*leaves: jax.Array) -> jax.Array:
        (found,) = jax.core.eval_jaxpr(unit, inputs.constants, *inputs.arguments, *leaves)
        return jnp.asarray(found)

    return jax.vmap(contribution, in_axes=axis)


def _decision(unit: Jaxpr, inputs: _PublicInputs, given: Batch, lattice: RatioLattice) -> jax.Array:
    """The decision of a test on all units, or on a batch of fixed size.

    Units are the last axis here, as a column's values then lie one after the other: products with parameters take a
    fraction of the time.
    """
    assert inputs.shift is not None
    ratios = _contributions(unit, inputs, axis=-1)

    def on_lattice(*private: jax.Array) -> jax.Array:
        turned = [jnp.moveaxis(leaf, 0, -1) for leaf in private]
        # Or the compiler would turn them back.
        turned = jax.lax.optimization_barrier(turned)  # type: ignore[no-untyped-call]
        return clip_ratios(ratios(*turned), given.clip, lattice)

    def sums(*operands: jax.Array) -> jax.Array:
        *private, present = operands
        return partial_ratio_sums(on_lattice(*private), present, lattice)

    private = jax.tree.leaves((given.units, given.secret))
    if lattice.batch_size is None:
        parts = _in_pieces(sums, [*private, given.present])
        return barker_decision(parts, given.noise, given.grid, inputs.shift)
    units = on_lattice(*private)
    return batch_barker_decision(units, given.present, given.noise, inputs.shift, lattice)


def _clipped_sums(unit: Jaxpr, inputs: _PublicInputs, given: Batch, lattice: Lattice) -> jax.Array:
    """Sums of the units present, on the lattice, in parts as of `partial_sums`."""
    place = clip_to_lattice if lattice.order == 2 else clip_to_lattice_l1
    contributions = _contributions(unit, inputs)

    def sums(*operands: jax.Array) -> jax.Array:
        *private, present = operands
        values = contributions(*private)
        units = jax.vmap(lambda vector: place(vector, given.clip, lattice.points))(values)
        return partial_sums(units, present, lattice)

    # By public numbers alone, like the lattice.
    most = min(_UNITS_PER_PIECE, max(2**8, _NUMBERS_PER_PIECE // lattice.dimension))
    return _in_pieces(sums, [*jax.tree.leaves((given.units, given.secret)), given.present], most)


def _in_pieces(
    sums: Callable[..., jax.Array], operands: Sequence[AnyArray], most: int | None = None
) -> jax.Array:
    """Sums over units; over many, ``most`` at a time: integers add up to the same, in less memory."""
    units, most = len(operands[-1]), most or _UNITS_PER_PIECE
    if units <= most:
        return sums(*operands)

    def piece(start: jax.Array) -> jax.Array:
        return sums(*[jax.lax.dynamic_slice_in_dim(leaf, start, most) for leaf in operands])

    even = units // most * most
    parts = jax.lax.map(piece, jnp.arange(0, even, most))
    flat: jax.Array = parts.reshape(-1, *parts.shape[2:])
    if even == units:
        return flat
    return jnp.concatenate([flat, sums(*[leaf[even:] for leaf in operands])])


def check_vmappable(equations: Iterable[JaxprEqn]) -> None:
    """Raises what compiling a release would raise, before the charge: some operations have no rule for `jax.vmap`."""
    for equation in equations:
        if equation.primitive is release_p:
            avals: list[AnyArray] = [atom.aval for atom in equation.invars]
            given = [_shape_dtype(aval, aval.shape) for aval in avals]
            jax.eval_shape(partial(_release_impl, **equation.params), *given)


def _release_shape(
    *_: jax.core.ShapedArray, lattice: Lattice | RatioLattice, **__: object
) -> jax.core.ShapedArray:
    return jax.core.ShapedArray(*lattice.released)


def _raise_on_vmap(*_: object, **__: object) -> NoReturn:
    raise BoundaryError(
        "vmap over a release is refused: it would make several of one that is charged once."
    )


release_p.def_impl(_release_impl)  # type: ignore[no-untyped-call]
release_p.def_abstract_eval(_release_shape)  # type: ignore[no-untyped-call]
mlir.register_lowering(release_p, mlir.lower_fun(_release_impl, multiple_results=False))
batching.primitive_batchers[release_p] = _raise_on_vmap

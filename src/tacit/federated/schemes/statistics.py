"""Rows protected by noise in the sum of the sufficient statistics of a conjugate model."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np

from tacit import _validate
from tacit.accounting import calibrate, events
from tacit.errors import InvalidArgument
from tacit.federated.schemes.base import (
    EachMessagePrivate,
    Prepared,
    RunSetting,
    covered,
    no_inputs,
)
from tacit.federated.target import ConjugateTarget, Target
from tacit.models.base import Row
from tacit.models.natural import Vector
from tacit.models.statistic import Constants
from tacit.privacy.gate import Gate, run
from tacit.privacy.mechanisms import NoisySums
from tacit.privacy.noise import Randomness
from tacit.privacy.release import Release
from tacit.privacy.rows import Rows

Floor = Literal["statistic", "factor"]
Step = Callable[[Constants, jax.Array, Release], tuple[Constants, jax.Array]]


@dataclass(frozen=True, kw_only=True)
class ClippedStatistics(EachMessagePrivate):
    """Every answer releases the statistics of a conjugate model again (eqs. 4.19-4.21 of the report).

    Args:
        clip: Bound on the 2-norm of what one unit adds to the natural parameters.
        floor: ``"statistic"`` sets released precisions (or counts) that are negative to zero, as
            eq. 4.20 does. ``"factor"`` keeps the precision of the factor, after damping, from
            becoming negative. Both bias the precision upwards. By default only the server keeps
            the posterior proper.
        noise_multiplier: Noise over clip. By default it is calibrated to the budget; a given value
            must be covered by the budget.
    """

    clip: float
    floor: Floor | None = None
    noise_multiplier: float | None = None

    def __post_init__(self) -> None:
        _validate.positive("clip", self.clip)
        if self.floor is not None:
            _validate.choice("floor", self.floor, ("statistic", "factor"))

    def prepare(self, setting: RunSetting) -> Prepared:
        """Noise for the statistics of all answers. Theorem F2."""
        noise, event = self.noise_multiplier or 0.0, None
        if setting.budget is not None and self.noise_multiplier is None:
            noise = calibrate.noise_multiplier(setting.budget, num_steps=setting.answers)
        if noise > 0:
            repeated = events.repeat(events.gaussian(noise), setting.answers)
            event = covered(repeated, setting.budget)
        target = conjugate_only(setting.target)
        mechanism = statistics_mechanism(target, self.clip, noise)
        if self.floor is None:
            return Prepared(work=ReleaseStatistics(target, mechanism), event=event)
        floored = _Floored(target, mechanism, self.floor, setting.damping)
        return Prepared(work=floored, event=event)


@dataclass(frozen=True, kw_only=True)
class OneRelease(ClippedStatistics):
    """The statistics of a conjugate model are released once, with the whole budget.

    It needs one round, and its noise is that of a single release.
    """

    def prepare(self, setting: RunSetting) -> Prepared:
        """Noise for one release. Theorem F2."""
        if setting.answers != 1:
            raise InvalidArgument("OneRelease releases statistics once: pass num_rounds=1.")
        return super().prepare(setting)


@dataclass(frozen=True)
class ReleaseStatistics:
    """Work that releases the sum of the statistics of all rows."""

    target: ConjugateTarget
    mechanism: NoisySums
    grid: ClassVar[None] = None

    @property
    def size(self) -> int:
        """Length of a change."""
        return self.target.family.size

    def released(self, rows: Rows, source: Randomness) -> Vector:
        """The noisy sum of the rows' statistics."""
        gate = Gate(rows, self.mechanism, source.child("statistics"))
        constants = jax.tree.map(jnp.asarray, self.target.constants)
        _, out = run(gate, statistic_step(self.target), constants, no_inputs)
        return np.asarray(out[0], np.float64)

    def change(self, rows: Rows, posterior: Vector, factor: Vector, source: Randomness) -> Vector:  # noqa: ARG002
        """The released statistics minus the factor that stood for the rows."""
        return self.released(rows, source) - factor


@dataclass(frozen=True)
class _Floored(ReleaseStatistics):
    floor: Floor
    damping: float

    def change(self, rows: Rows, posterior: Vector, factor: Vector, source: Randomness) -> Vector:  # noqa: ARG002
        """The same, with precisions kept from being negative."""
        places = self.target.family.nonnegative
        found = self.released(rows, source)
        if self.floor == "statistic":
            found[places] = np.maximum(found[places], 0.0)
        change = found - factor
        if self.floor == "factor":
            change[places] = np.maximum(change[places], -factor[places] / self.damping)
        return change


def statistics_mechanism(target: Target, clip: float, noise_multiplier: float) -> NoisySums:
    """One release of the statistics of all rows."""
    return NoisySums(
        sampling_rate=1.0,
        num_steps=1,
        clip=clip,
        noise_multiplier=noise_multiplier,
        dimension=target.family.size,
    )


def conjugate_only(target: Target) -> ConjugateTarget:
    """The target, if it is conjugate; other targets are refused."""
    if not isinstance(target, ConjugateTarget):
        raise InvalidArgument(
            "Only conjugate models (tacit.conjugate) have sufficient statistics; use Optimised() for "
            "other models."
        )
    return target


@lru_cache(maxsize=32)
def statistic_step(target: ConjugateTarget) -> Step:
    """A step of the gate that releases the sum of the rows' statistics."""

    def per_row(constants: Constants, row: Row) -> jax.Array:
        return target.statistic(row, constants)

    def step(constants: Constants, _: jax.Array, release: Release) -> tuple[Constants, jax.Array]:
        return constants, release.noisy_sum(per_row, constants)

    return step

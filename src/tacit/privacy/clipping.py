"""Bounding one unit's contribution: clipping, and rounding to a public integer lattice.

Contributions are added up as integers, on a lattice with ``points`` steps to a clip. Integer sums are exact,
so the sensitivity of a sum is a bound on integers, whatever floating point does.

Formal guarantees:
    Sums (Lemmas 1 and 4): the integers of a unit have 2-norm at most `Lattice.points`, with Laplace noise 1-norm, whatever
        the unit holds: what is not finite becomes zero. So one unit more or less moves a sum by at most one clip, and
        one that is replaced by at most two.
    Tests (Theorems 4 and 5): the integer of a unit's log ratio is at most `RatioLattice.most` in size.
    Public: the lattice, which is a function of the mechanism's numbers and never of the rows.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tacit._typing import AnyArray, HostArray
from tacit.errors import InvalidArgument

# Margin for rounding: an added unit may change the last bits of other units' values (PROOFS.md, Lemma 1).
_ROUNDING_MARGIN = 2.0**-13


@dataclass(frozen=True)
class Lattice:
    """The integers that sums are made of: so many ``points`` are one clip.

    A function of public numbers only, and never of the number of units: two neighbouring data sets
    must have the same lattice, or the lattice itself tells them apart. With ``wide``, sums take 64
    bits. ``order`` is that of the norm that units are clipped in. With ``as_integers``, what is released is
    the integers themselves, as halves of 64 bits, so that sites can mask and add them.
    """

    points: int
    dimension: int
    wide: bool
    order: int = 2
    as_integers: bool = False

    @classmethod
    def fitting(
        cls,
        noise_multiplier: float,
        dimension: int,
        batch_bound: int,
        order: int = 2,
        *,
        as_integers: bool = False,
    ) -> "Lattice":
        """The finest lattice on which sums of so many clips and their noise do not overflow."""
        if dimension > 2**20:
            raise InvalidArgument(
                f"A release of {dimension} numbers is too long for the clip's rounding margin."
            )
        reach = batch_bound + 16 * noise_multiplier
        # Without noise, nothing is larger than the rounding; and 32 bits must not be too coarse.
        coarse = noise_multiplier == 0 or _largest_power_of_two(2.0**30, reach) < 500 * math.sqrt(
            dimension
        )
        wide = coarse or as_integers  # of which other sites add more
        points = _largest_power_of_two(2.0**62 if wide else 2.0**30, reach)
        if points < 100 * math.sqrt(dimension):
            raise InvalidArgument(
                f"With noise of {noise_multiplier:.3g} clips and {dimension} "
                "numbers per release, the lattice is too coarse to carry the sum; release "
                "fewer numbers or lower the noise."
            )
        return cls(points, dimension, wide, order, as_integers)

    @property
    def unit_shape(self) -> tuple[int, ...]:
        """Shape of what one unit contributes."""
        return (self.dimension,)

    @property
    def released(self) -> tuple[tuple[int, ...], type[jnp.generic]]:
        """Shape and type of a release."""
        if self.as_integers:
            return (2 * self.dimension,), jnp.int32
        return (self.dimension,), jnp.float32


def _largest_power_of_two(room: float, reach: float) -> int:
    """The largest power of two p up to 2^20 for which p times ``reach`` does not overflow."""
    return int(2.0 ** min(math.floor(math.log2(room / reach)), 20))


@dataclass(frozen=True)
class RatioLattice:
    """The integers that log-likelihood ratios are rounded to: so many ``points`` from zero to the clip.

    With a ``batch_size``, ratios are of a batch of that size, and their variance takes part in the test.
    """

    points: int
    batch_size: int | None = None

    unit_shape: ClassVar[tuple[int, ...]] = ()
    released: ClassVar[tuple[tuple[int, ...], type[jnp.generic]]] = (), jnp.bool_

    @property
    def most(self) -> int:
        """What a unit's integer is clamped to: below the clip, so that rounding cannot exceed it."""
        return self.points - 8 - (self.points >> (13 if self.batch_size is None else 11))


def clip_to_lattice(vector: jax.Array, clip: jax.Array, points: int) -> jax.Array:
    """One unit's vector, clipped to 2-norm ``clip``, as integers of 2-norm at most ``points``.

    The order matters: a vector that is not finite, or whose norm is not, becomes zero;
    the rest is clipped a little below the bound so that float32 rounding cannot exceed it,
    truncated towards zero by the cast, and clamped. [bound-unit]
    """
    unit = vector * (1 / clip)  # so that nothing depends on the clip's own size
    return _zero_if_too_long(
        _scale_and_truncate(unit, jnp.sqrt(jnp.sum(unit * unit)), points), points, 2
    )


def clip_to_lattice_l1(vector: jax.Array, clip: jax.Array, points: int) -> jax.Array:
    """The same in the 1-norm, the sum of sizes. [bound-unit-sum]"""
    unit = vector * (1 / clip)
    return _zero_if_too_long(_scale_and_truncate(unit, jnp.sum(jnp.abs(unit)), points), points, 1)


def _scale_and_truncate(unit: jax.Array, norm: jax.Array, points: int) -> jax.Array:
    finite = norm < jnp.inf  # false for NaN, too
    short = points * (1 - _ROUNDING_MARGIN - (unit.size + 8) * 2.0**-24)
    scale = jnp.minimum(short / jnp.maximum(norm, 0.5), points)  # what is within stays as it is
    scaled = jnp.where(finite, unit, 0.0) * jnp.where(finite, scale, 0.0)
    return jnp.clip(scaled.astype(jnp.int32), -points, points)


def _zero_if_too_long(whole: jax.Array, points: int, order: int) -> jax.Array:
    """The same integers, or zeros if their norm is beyond the bound after all. [bound-again]

    What was clipped correctly is always kept. A compiler with fast-math flags may have let NaN through, or
    clipped less exactly; but integers are never NaN, so the bound is checked once more on them.
    """
    # In single precision, the norm of many numbers would be too uncertain.
    many = whole.size > (2**11 if order == 2 else 2**9)
    with jax.enable_x64(many):
        real = whole.astype(jnp.float64 if many else jnp.float32)
        others = real if order == 2 else jnp.sign(real)
        most = float(points) ** order * (1 - (0 if many else (whole.size + 8) * 2.0**-24))
        short = jnp.dot(real, others, precision="highest") <= most  # much faster than a sum
    return jnp.where(short, whole, 0)


def partial_sums(units: jax.Array, present: jax.Array, lattice: Lattice) -> jax.Array:
    """Sums of the units present, in parts [parts, numbers] that 32 bits can hold if they must.

    On a lattice that is not wide 32 bits may wrap around, as the whole may.
    """
    kept = jnp.where(present[:, None], units, 0)
    if not lattice.wide:
        return kept.sum(axis=0, dtype=jnp.int32, keepdims=True)
    return _int32_sums(kept, lattice.points)


def add_noise(parts: jax.Array, noise: jax.Array, grid: jax.Array, lattice: Lattice) -> jax.Array:
    """The sum of the parts, plus noise, as integers; then as real numbers, unless the lattice says otherwise.

    Integers wrap around rather than round: that, like the final scaling, is a function of
    (sum + noise) alone. Noise for a wide lattice comes as halves of 64 bits. [bound-sum]
    """
    if not lattice.wide:
        return (parts.sum(axis=0, dtype=jnp.int32) + noise).astype(jnp.float32) * grid
    with jax.enable_x64(True):
        drawn = jax.lax.bitcast_convert_type(noise.reshape(-1, 2), jnp.int64)
        total = parts.astype(jnp.int64).sum(axis=0) + drawn
        if lattice.as_integers:
            return jax.lax.bitcast_convert_type(total, jnp.int32).reshape(-1)
        real: jax.Array = total.astype(jnp.float64) * grid.astype(jnp.float64)
        return real.astype(jnp.float32)


def wide_integers(words: AnyArray, lattice: Lattice) -> NDArray[np.int64]:
    """The integers of a sum, as of `integer_sum`, or of noise, in 64 bits. Gate only."""
    numbers = np.asarray(words)
    return numbers.view(np.int64) if lattice.wide else numbers.astype(np.int64)


def released_numbers(total: NDArray[np.int64], clip: float, lattice: Lattice) -> HostArray:
    """What `add_noise` makes of a sum, if the sum with its noise was added up on the host in 64 bits. [bound-sum]"""
    grid = np.float32(clip) / np.float32(lattice.points)
    if lattice.as_integers:
        return total.view(np.int32)
    if lattice.wide:
        return (total.astype(np.float64) * np.float64(grid)).astype(np.float32)
    return total.astype(np.int32).astype(np.float32) * grid  # the first wraps around


def integer_sum(parts: jax.Array, lattice: Lattice) -> jax.Array:
    """The sum of the parts as integers, without noise: in the form that noise has. Gate only."""
    if not lattice.wide:
        return parts.sum(axis=0, dtype=jnp.int32)
    with jax.enable_x64(True):
        total = parts.astype(jnp.int64).sum(axis=0)
        halves: jax.Array = jax.lax.bitcast_convert_type(total, jnp.int32)
    return halves.reshape(-1)


def clip_ratios(ratios: jax.Array, clip: jax.Array, lattice: RatioLattice) -> jax.Array:
    """The units' log-likelihood ratios as integers, clamped; NaN becomes zero.

    An infinite one, of a unit with likelihood zero at the present or proposed point, is clamped, too.
    [test-unit]
    """
    scaled = jnp.where(jnp.isnan(ratios), 0.0, ratios) * (lattice.points / clip)
    near = jnp.clip(scaled, -2.0 * lattice.points, 2.0 * lattice.points)  # fits an integer
    return jnp.clip(jnp.rint(near).astype(jnp.int32), -lattice.most, lattice.most)


def partial_ratio_sums(units: jax.Array, present: jax.Array, lattice: RatioLattice) -> jax.Array:
    """Sums of the units present, in parts [parts] that 32 bits can hold."""
    return _int32_sums(jnp.where(present, units, 0), lattice.points)


def barker_decision(
    parts: jax.Array, noise: jax.Array, grid: jax.Array, shift: jax.Array
) -> jax.Array:
    """Whether the sum of ratios, given in parts, and the shift together exceed the noise. [test-decide]"""
    with jax.enable_x64(True):
        drawn = jax.lax.bitcast_convert_type(noise, jnp.float64)
        total = parts.astype(jnp.int64).sum(axis=0).astype(jnp.float64)
        return total > (drawn - shift.astype(jnp.float64)) / grid.astype(jnp.float64)


def batch_barker_decision(
    units: jax.Array, present: jax.Array, noise: jax.Array, shift: jax.Array, lattice: RatioLattice
) -> jax.Array:
    """The same of a batch of fixed size, whose variance takes part. [test-decide-batch]"""
    kept = jnp.where(present, units, 0)
    size, one = lattice.batch_size or 1, float(lattice.points)
    with jax.enable_x64(True):
        drawn = jax.lax.bitcast_convert_type(noise, jnp.float64)
        total = _int32_sums(kept, lattice.points).astype(jnp.int64).sum(axis=0)
        squares = jnp.sum(jnp.square(kept.astype(jnp.int64))).astype(jnp.float64)
        mean = total.astype(jnp.float64) / (size * one)
        variance = jnp.clip(squares / (size * one**2) - mean * mean, 0.0, 1.0)
        ratio = math.sqrt(size) * mean + shift.astype(jnp.float64)
        accepted: jax.Array = ratio > jnp.sqrt(2 - variance) * drawn
        return accepted


def _int32_sums(kept: jax.Array, points: int) -> jax.Array:
    """Sums of parts so short that 32 bits, which are faster than 64, cannot overflow."""
    length = min(2**30 // points, len(kept))
    even = len(kept) // length * length  # padding instead would be much slower
    parts = kept[:even].reshape(-1, length, *kept.shape[1:]).sum(axis=1, dtype=jnp.int32)
    rest = kept[even:].sum(axis=0, dtype=jnp.int32)
    return jnp.concatenate([parts, rest[None]])

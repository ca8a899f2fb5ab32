"""The convolution of privacy-loss distributions on a grid.

Given parts (pair, times), bounds the hockey-stick divergence delta(epsilon) of their
composition **from above**, with every numerical error charged:

1. *Dots.* Each pair's loss is moved onto a grid so that every bin keeps both its P-mass
   and its Q-mass (Doroshenko et al. 2022, "connect the dots"): the pair on the grid
   dominates the pair itself. Masses are rounded up by the error of the tails, and mass
   is only ever moved towards larger losses. What lies beyond the grid is charged to delta.
2. *Tilt.* Masses are weighted by exp(tilt x loss). The T-fold convolution by FFT then has
   its rounding error relative to delta instead of relative to one, so that a tiny delta
   loses little (unless one rare jump of a tiny sampling rate decides: there no tilt helps).
3. *Window.* The convolution is circular. Wrapped mass only adds to what lies inside the
   window; what truly lies above it is charged by a Chernoff bound of the very grid masses.
4. *Rounding.* The error of the FFT is bounded in the 2-norm (Higham 2002, Theorem 24.2),
   that of the power entry by entry, and both are charged to delta.

Choosing tilt, window and grid needs no rigour: a bad choice makes the bound loose, not wrong.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import fft
from scipy.special import logsumexp

from tacit.accounting.pairs import Array
from tacit.accounting.sketch import TAIL_SHARE, Part, Sketches, connect_dots

_UNIT = float(np.finfo(np.float64).eps)
# Growth of the tilted variance that the grid may cause: epsilon moves by about half of it.
_VARIANCE_SHARE = 1e-4
_MIN_BINS, _MAX_BINS = 2**13, 2**20
# Logarithm of how much of the best Chernoff bound a smaller tilt may give away.
_TILT_LOSS = 7.0
# Relative 2-norm error of an FFT of length n is below log2(n) times this (Higham 2002).
_FFT_ERROR = 4 * _UNIT


@dataclass(frozen=True)
class Window:
    """Tilt, window and grid of one composition."""

    parts: Sequence[Part]
    ranges: Sequence[tuple[float, float]]
    tilt: float
    tail_tilt: float
    low: float
    width: float
    bins: int
    log_delta: float

    @classmethod
    def around(
        cls,
        sketch: Sketches,
        epsilon: float,
        log_delta: float,
        *,
        tilt_at: float | None = None,
    ) -> "Window":
        """The window that makes the bound tight near this point of the curve."""
        target = epsilon if tilt_at is None else tilt_at
        ends = (sketch.moments - log_delta - math.log(TAIL_SHARE)) / sketch.tilts
        top = max(float(ends.min()), epsilon)
        ranges = [(float(each.losses[0]), float(each.losses[-1])) for each in sketch.each]
        finest = max(end - start for start, end in ranges) / _MAX_BINS
        # The smallest tilt whose Chernoff bound is within a factor of the best: a stronger
        # one would only fatten the tilted upper tail. The grid must resolve it, too.
        bounds = np.where(
            sketch.tilts * finest < 1, sketch.moments - sketch.tilts * target, math.inf
        )
        best = int(np.argmax(bounds <= max(log_delta, bounds.min()) + _TILT_LOSS))
        tilt = float(sketch.tilts[best])
        low = min(sketch.tilted_end(tilt, up=False), epsilon)
        high = max(sketch.tilted_end(tilt, up=True), top)
        width = math.sqrt(6 * _VARIANCE_SHARE * sketch.variance(tilt) / sketch.steps)
        width = max(min(width, (high - low) / _MIN_BINS), (high - low) / _MAX_BINS, finest)
        # The grid itself spreads the sum; past a million steps, some of it may wrap around.
        margin = min(6 * width * math.sqrt(sketch.steps), high - low)
        low, high = low - margin, high + margin
        return cls(
            parts=sketch.parts,
            ranges=ranges,
            tilt=tilt,
            tail_tilt=float(sketch.tilts[ends.argmin()]),
            low=low,
            width=width,
            bins=2 ** max(math.ceil(math.log2((high - low) / width)), 10),
            log_delta=log_delta,
        )

    def compose(self) -> "Composition":
        """The tilted convolution of all parts inside the window, with its error bounds."""
        n, fft_error = self.bins, _FFT_ERROR * math.log2(self.bins)
        factors = [
            LossFactor.of(part, span, self)
            for part, span in zip(self.parts, self.ranges, strict=True)
        ]
        log_spectrum = np.zeros(n // 2 + 1, dtype=np.complex128)
        log_error = np.full(n // 2 + 1, (8 + len(factors)) * _UNIT)
        growth = into_power = 0.0
        for factor in factors:
            folded: Array = np.bincount(  # type: ignore[assignment]  # weighted: floats
                (factor.indices - factor.centre) % n, weights=factor.tilted, minlength=n
            )
            norm = _norm(folded)
            with np.errstate(divide="ignore"):
                log_factor = np.log(fft.rfft(folded))
            log_spectrum += factor.times * log_factor
            log_error += factor.times * 4 * _UNIT * (1 + np.abs(log_factor))
            growth += factor.times * (factor.excess + fft_error * math.sqrt(n) * norm)
            into_power += factor.times * fft_error * norm
        with np.errstate(invalid="ignore"):
            spectrum = np.nan_to_num(np.exp(log_spectrum), nan=0.0)
            power_error = np.abs(spectrum) * np.expm1(np.minimum(log_error, 1.0))
        circular = fft.irfft(spectrum, n)
        error = (
            into_power * math.exp(growth)
            + _norm(np.nan_to_num(power_error)) * math.sqrt(2 / n)
            + fft_error * _norm(circular)
        )
        first = math.floor(self.low / self.width)
        shift = sum(factor.times * factor.centre for factor in factors)
        indices = np.arange(first, first + n)
        tilted = np.maximum(circular[(indices - shift) % n], 0)
        log_scale = math.fsum(factor.times * factor.log_scale for factor in factors)
        top = (first + n - 1) * self.width
        log_tail = math.fsum(f.times * f.log_tail for f in factors) - self.tail_tilt * top
        beyond = math.fsum(f.times * f.beyond for f in factors) + math.exp(min(log_tail, 0.0))
        rounding = math.fsum(f.times * f.rounding for f in factors) + 8 * _UNIT * (
            4 + abs(log_scale) + self.tilt * max(abs(self.low), abs(top))
        )
        return Composition.untilt(
            self, indices, tilted, log_scale, error, beyond, math.exp(min(rounding, 600.0))
        )


@dataclass(frozen=True)
class LossFactor:
    """One part on the grid, tilted and normalised."""

    times: int
    indices: NDArray[np.int64]
    tilted: Array
    centre: int
    log_scale: float  # logarithm of what the tilted masses were divided by
    log_tail: float  # logarithm of the moment at the tail's tilt
    beyond: float  # mass past the grid
    excess: float  # by how much the tilted masses sum to more than one
    rounding: float  # relative error of a tilted mass

    @classmethod
    def of(cls, part: Part, span: tuple[float, float], window: Window) -> "LossFactor":
        """A part whose losses lie in ``span``, on the grid of a window."""
        first = math.floor(span[0] / window.width)
        last = max(math.ceil(span[1] / window.width), first + 1)
        indices = np.arange(first, last + 1)
        losses: Array = indices.astype(np.float64) * window.width
        masses, beyond = connect_dots(part.pair, losses)
        kept = masses > 0
        indices, losses, log_masses = indices[kept], losses[kept], np.log(masses[kept])
        log_weights = window.tilt * losses + log_masses
        log_scale = float(logsumexp(log_weights))
        tilted = np.exp(log_weights - log_scale)
        size = float(np.max(np.abs(window.tilt * losses)) + np.max(np.abs(log_masses)))
        return cls(
            times=part.times,
            indices=indices,
            tilted=tilted,
            centre=round(_dot(tilted, indices.astype(np.float64)) / float(tilted.sum())),
            log_scale=log_scale,
            log_tail=float(logsumexp(window.tail_tilt * losses + log_masses)),
            beyond=beyond,
            excess=abs(float(tilted.sum()) - 1) + _UNIT * len(tilted),
            rounding=4 * _UNIT * (4 + size + abs(log_scale)),
        )


class Composition(NamedTuple):
    """Upper bounds on the P-mass at each loss of the window, and the charges on top."""

    first: float  # the smallest loss
    width: float
    masses: Array
    squared_weights: Array  # what one unit of convolution error is worth, squared
    error: float  # 2-norm of the convolution error
    beyond: float
    factor: float

    @classmethod
    def untilt(
        cls,
        window: Window,
        indices: NDArray[np.int64],
        tilted: Array,
        log_scale: float,
        error: float,
        beyond: float,
        factor: float,
    ) -> "Composition":
        """The composition whose tilted masses are given, with its charges."""
        # Losses with a weight that would overflow lie far below any epsilon of interest. Those
        # whose weight vanishes next to delta are charged as a whole: tiny numbers are slow.
        log_weights = log_scale - window.tilt * (indices * window.width)
        start = min(int(np.searchsorted(-log_weights, -300.0)), len(indices) - 1)
        stop = max(int(np.searchsorted(-log_weights, 100.0 - window.log_delta)), start + 1)
        with np.errstate(over="ignore"):  # an infinite weight claims nothing
            weights = np.exp(log_weights[start:stop])
            squared = weights**2
        if stop < len(indices):
            beyond += 2 * (1 + error * math.sqrt(len(indices))) * float(weights[-1])
        return cls(
            first=float(indices[start] * window.width),
            width=window.width,
            masses=tilted[start:stop] * weights,
            squared_weights=squared,
            error=error,
            beyond=beyond,
            factor=factor,
        )

    def delta(self, epsilon: float) -> float:
        """Bound on the hockey-stick divergence at `epsilon`."""
        if not (epsilon >= self.first):
            return 1.0
        at = (epsilon - self.first) / self.width
        start = max(math.floor(at) + 1, 0)
        excess = -np.expm1(-self.width * (np.arange(start, len(self.masses)) - at))
        bound = self._charge(start, excess)
        return bound if bound <= 1 else 1.0

    def _charge(self, start: int, excess: Array) -> float:
        body = _dot(self.masses[start:], excess)
        noise = self.error * math.sqrt(_dot(self.squared_weights[start:], excess**2))
        # Rounding of the two sums above: at most a unit a term.
        return (body + noise) * (self.factor + 2 * len(self.masses) * _UNIT) + self.beyond

    def epsilon(self, delta: float) -> float:
        """The smallest epsilon in the window, not below zero, whose bound is `delta`."""
        steps = -np.expm1(-self.width * np.arange(1, len(self.masses) + 1))

        def on_grid(index: int) -> float:
            return self._charge(index + 1, steps[: len(self.masses) - index - 1])

        low, high = -1, len(self.masses) - 1
        if not (on_grid(high) <= delta):
            return math.inf
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if on_grid(middle) <= delta else (middle, high)
        upper = self.first + high * self.width
        if high == 0 or upper <= 0:
            return max(upper, 0.0)
        # Between grid points the bound is linear in exp(epsilon), up to convexity of the
        # error term, so the chord lies above it.
        above, below = on_grid(high - 1), on_grid(high)
        part = min((above - delta) / (above - below), 1.0)
        inside = upper - self.width + math.log1p(part * math.expm1(self.width))
        return max(min(inside * (1 + 4 * _UNIT), upper), 0.0)


def _dot(one: Array, other: Array) -> float:
    """Without BLAS, whose threads cost more than they bring at these lengths."""
    return float(np.sum(one * other))


def _norm(values: Array) -> float:
    return math.sqrt(_dot(values, values))

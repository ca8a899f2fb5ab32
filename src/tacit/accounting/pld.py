"""Composition of dominating pairs by their privacy-loss distributions.

`composed_epsilon` and `composed_delta` bound the privacy curve of a composition **from above**, with every
numerical error charged. Parts with a formula use it; the others are convolved on a grid:

1. *Dots.* Each pair's loss is moved onto a grid so that every bin keeps both its P-mass and its Q-mass
   (Doroshenko et al. 2022, "connect the dots"): the pair on the grid dominates the pair itself. Masses are rounded
   up by the error of the tails, and mass is only ever moved towards larger losses. What lies beyond the grid is
   charged to delta.
2. *Tilt.* Masses are weighted by exp(tilt x loss). The T-fold convolution by FFT then has its rounding error
   relative to delta instead of relative to one, so that a tiny delta loses little (unless one rare jump of a tiny
   sampling rate decides: there no tilt helps).
3. *Window.* The convolution is circular. Wrapped mass only adds to what lies inside the window; what truly lies
   above it is charged by a Chernoff bound of the very grid masses.
4. *Rounding.* The error of the FFT is bounded in the 2-norm (Higham 2002, Theorem 24.2), that of the power entry by
   entry, and both are charged to delta.

Tilt, window and grid are chosen from a coarse version of the pairs (`CoarseComposition`). The choice needs no
rigour: a bad one makes the bound loose, not wrong.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import fft
from scipy.special import log_ndtr, logsumexp

from tacit.accounting.pairs import TAIL_ERROR, Array, GaussianPair, Pair

_MACHINE_EPSILON = float(np.finfo(np.float64).eps)
# Growth of the tilted variance that the grid may cause: epsilon moves by about half of it.
_MAX_VARIANCE_GROWTH = 1e-4
_MIN_BINS, _MAX_BINS = 2**13, 2**20
# Logarithm of how much of the best Chernoff bound a smaller tilt may give away.
_MAX_LOG_CHERNOFF_LOSS = 7.0
# Relative 2-norm error of an FFT of length n is below log2(n) times this (Higham 2002).
_FFT_ERROR = 4 * _MACHINE_EPSILON
# Windows tried for one delta.
_MAX_WINDOWS = 6
# Share of delta that may go, in all, to losses outside grid and window.
_TAIL_DELTA_SHARE = 1e-7
# Chance that any loss of a composition is raised to the lower end of the grid.
_LOW_TAIL_MASS = 1e-7


class Part(NamedTuple):
    """One release and how many times it happens."""

    pair: Pair
    times: int


def connect_dots(pair: Pair, edges: Array) -> tuple[Array, float]:
    """P-masses on `edges` of a pair that dominates `pair`, and the mass beyond them."""
    up_p, up_q = pair.upper(edges)
    low_p, low_q = pair.lower(edges)
    # Differences of whichever tail is small keep their relative precision.
    positive = edges[:-1] >= 0
    p = np.where(positive, up_p[:-1] - up_p[1:], low_p[1:] - low_p[:-1])
    q = np.where(positive, up_q[:-1] - up_q[1:], low_q[1:] - low_q[:-1])
    p_error = 2 * TAIL_ERROR * np.where(positive, up_p[:-1], low_p[1:])
    q_error = 2 * TAIL_ERROR * np.where(positive, up_q[:-1], low_q[1:])
    p = np.maximum(p, 0) + p_error
    q = np.maximum(q - q_error, 0)
    # The share that goes to the upper edge keeps both masses of the bin: a + b = p and
    # a exp(-edge) + b exp(-next edge) = q. Less q moves mass upwards; q_error covers rounding.
    with np.errstate(divide="ignore", over="ignore"):
        matched = np.exp(np.log(q) + edges[:-1])
    share = np.clip((p - matched) / -np.expm1(-np.diff(edges)), 0, p)
    masses = np.zeros_like(edges)
    masses[1:] += share
    masses[:-1] += p - share
    masses[0] += float(low_p[0]) * (1 + TAIL_ERROR)
    return masses, float(up_p[-1]) * (1 + TAIL_ERROR)


class CoarseLoss(NamedTuple):
    """A part on a coarse grid, fine in relative terms: enough to choose tilt and window."""

    losses: Array
    log_masses: Array
    times: int

    @classmethod
    def from_part(cls, part: Part) -> "CoarseLoss":
        """From tiny losses to huge ones, by ratios."""
        side = np.geomspace(1e-14, 1e6, 800)
        edges = np.concatenate([-side[::-1], [0.0], side])
        masses, _ = connect_dots(part.pair, edges)
        kept = masses > 1e-300
        return cls(edges[kept], np.log(masses[kept]), part.times)

    def log_moments(self, tilts: Array) -> Array:
        """Logarithm of E[exp(tilt x loss)], of all its releases together."""
        exponents = np.multiply.outer(tilts, self.losses) + self.log_masses
        largest = exponents.max(axis=-1, keepdims=True)
        sums = np.exp(exponents - largest).sum(axis=-1)
        return np.asarray(self.times * (np.log(sums) + largest[..., 0]))

    def variance(self, tilt: float) -> float:
        """Variance of the tilted loss, of all its releases together."""
        weights = tilt * self.losses + self.log_masses
        weights = np.exp(weights - weights.max())
        weights /= weights.sum()
        return self.times * float(weights @ (self.losses - weights @ self.losses) ** 2)

    def cut(self, below: float, above: float) -> "CoarseLoss":
        """Without the losses past which one release has less mass than this."""
        masses = np.exp(self.log_masses)
        first = int(np.argmax(np.cumsum(masses) > below))
        last = len(masses) - int(np.argmax(np.cumsum(masses[::-1]) > above))
        kept = slice(max(first - 1, 0), last + 1)
        return CoarseLoss(self.losses[kept], self.log_masses[kept], self.times)


@dataclass(frozen=True)
class CoarseComposition:
    """All parts on coarse grids, and their joint log-moments over a range of tilts."""

    parts: Sequence[Part]
    each: Sequence[CoarseLoss]
    tilts: Array
    moments: Array

    @classmethod
    def from_parts(cls, parts: Sequence[Part]) -> "CoarseComposition":
        """All parts on coarse grids, with tilts on the scale of their spread."""
        each = [CoarseLoss.from_part(part) for part in parts]
        spread = math.sqrt(math.fsum(coarse.variance(0.0) for coarse in each))
        tilts = np.geomspace(1e-6, 1e5, 160) / max(spread, 1e-200)
        return cls(parts, each, tilts, _log_moments(each, tilts))

    @property
    def steps(self) -> int:
        """How many releases there are."""
        return sum(part.times for part in self.parts)

    def cut(self, log_delta: float) -> "CoarseComposition":
        """Without the tails whose whole mass is a small share of this delta."""
        tail = math.exp(max(log_delta + math.log(_TAIL_DELTA_SHARE), -650.0)) / self.steps
        each = [coarse.cut(below=_LOW_TAIL_MASS / self.steps, above=tail) for coarse in self.each]
        return replace(self, each=each, moments=_log_moments(each, self.tilts))

    def variance(self, tilt: float) -> float:
        """Variance of the tilted loss of the composition."""
        return math.fsum(coarse.variance(tilt) for coarse in self.each)

    def tilted_end(self, tilt: float, *, up: bool) -> float:
        """A loss beyond which the tilted composition has hardly any mass."""
        steps = self.tilts if up else -self.tilts
        here = _log_moments(self.each, np.asarray(tilt))
        ends = (_log_moments(self.each, tilt + steps) - here - math.log(1e-9)) / steps
        return float(ends.min() if up else ends.max())


def _log_moments(losses: Sequence[CoarseLoss], tilts: Array) -> Array:
    return np.asarray(np.sum([coarse.log_moments(tilts) for coarse in losses], axis=0))


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
        coarse: CoarseComposition,
        epsilon: float,
        log_delta: float,
        *,
        tilt_at: float | None = None,
    ) -> "Window":
        """The window that makes the bound tight near this point of the curve."""
        target = epsilon if tilt_at is None else tilt_at
        ends = (coarse.moments - log_delta - math.log(_TAIL_DELTA_SHARE)) / coarse.tilts
        top = max(float(ends.min()), epsilon)
        ranges = [(float(each.losses[0]), float(each.losses[-1])) for each in coarse.each]
        finest = max(end - start for start, end in ranges) / _MAX_BINS
        # The smallest tilt whose Chernoff bound is within a factor of the best: a stronger
        # one would only fatten the tilted upper tail. The grid must resolve it, too.
        bounds = np.where(
            coarse.tilts * finest < 1, coarse.moments - coarse.tilts * target, math.inf
        )
        best = int(np.argmax(bounds <= max(log_delta, bounds.min()) + _MAX_LOG_CHERNOFF_LOSS))
        tilt = float(coarse.tilts[best])
        low = min(coarse.tilted_end(tilt, up=False), epsilon)
        high = max(coarse.tilted_end(tilt, up=True), top)
        width = math.sqrt(6 * _MAX_VARIANCE_GROWTH * coarse.variance(tilt) / coarse.steps)
        width = max(min(width, (high - low) / _MIN_BINS), (high - low) / _MAX_BINS, finest)
        # The grid itself spreads the sum; past a million steps, some of it may wrap around.
        margin = min(6 * width * math.sqrt(coarse.steps), high - low)
        low, high = low - margin, high + margin
        return cls(
            parts=coarse.parts,
            ranges=ranges,
            tilt=tilt,
            tail_tilt=float(coarse.tilts[ends.argmin()]),
            low=low,
            width=width,
            bins=2 ** max(math.ceil(math.log2((high - low) / width)), 10),
            log_delta=log_delta,
        )

    def compose(self) -> "Composition":
        """The tilted convolution of all parts inside the window, with its error bounds."""
        n, fft_error = self.bins, _FFT_ERROR * math.log2(self.bins)
        factors = [
            LossFactor.from_part(part, span, self)
            for part, span in zip(self.parts, self.ranges, strict=True)
        ]
        log_spectrum = np.zeros(n // 2 + 1, dtype=np.complex128)
        log_error = np.full(n // 2 + 1, (8 + len(factors)) * _MACHINE_EPSILON)
        growth = into_power = 0.0
        for factor in factors:
            folded: Array = np.bincount(  # type: ignore[assignment]  # weighted: floats
                (factor.indices - factor.centre) % n, weights=factor.tilted, minlength=n
            )
            norm = _norm(folded)
            with np.errstate(divide="ignore"):
                log_factor = np.log(fft.rfft(folded))
            log_spectrum += factor.times * log_factor
            log_error += factor.times * 4 * _MACHINE_EPSILON * (1 + np.abs(log_factor))
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
        rounding = math.fsum(f.times * f.rounding for f in factors) + 8 * _MACHINE_EPSILON * (
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
    def from_part(cls, part: Part, span: tuple[float, float], window: Window) -> "LossFactor":
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
            excess=abs(float(tilted.sum()) - 1) + _MACHINE_EPSILON * len(tilted),
            rounding=4 * _MACHINE_EPSILON * (4 + size + abs(log_scale)),
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
        return (body + noise) * (
            self.factor + 2 * len(self.masses) * _MACHINE_EPSILON
        ) + self.beyond

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
        return max(min(inside * (1 + 4 * _MACHINE_EPSILON), upper), 0.0)


def _dot(one: Array, other: Array) -> float:
    """Without BLAS, whose threads cost more than they bring at these lengths."""
    return float(np.sum(one * other))


def _norm(values: Array) -> float:
    return math.sqrt(_dot(values, values))


def composed_epsilon(parts: Sequence[Part], delta: float) -> float:
    """The smallest epsilon, rounded up, at which the composition has this delta."""
    parts = merge_equal_pairs(parts)
    best = _pure_epsilon(parts)
    if delta == 0 or not parts:
        return best
    if len(parts) == 1 and parts[0].times == 1:
        pair = parts[0].pair
        return min(best, invert_decreasing(lambda epsilon: single_delta(pair, epsilon), delta))
    coarse = CoarseComposition.from_parts(parts).cut(math.log(delta))
    guess = float(np.min((coarse.moments - math.log(delta)) / coarse.tilts))
    for share in (1.0, 0.5, 0.0):
        composition = Window.around(coarse, share * guess, math.log(delta)).compose()
        best = min(best, composition.epsilon(delta))
        if best > composition.first or best <= 0:
            break  # otherwise the answer lies below the window, so a lower one is tried
    return best


def composed_delta(parts: Sequence[Part], epsilon: float) -> float:
    """The smallest delta, rounded up, at which the composition has this epsilon."""
    parts = merge_equal_pairs(parts)
    if not parts or epsilon >= _pure_epsilon(parts):
        return 0.0
    if len(parts) == 1 and parts[0].times == 1:
        return single_delta(parts[0].pair, epsilon)
    coarse, best = CoarseComposition.from_parts(parts), 1.0
    guess = min(float(np.min(coarse.moments - coarse.tilts * epsilon)), 0.0)
    for _ in range(_MAX_WINDOWS):
        cut = coarse.cut(guess)
        # Tilted for the epsilon at which Chernoff's bound has this delta, which is not too small.
        reach = float(np.min((cut.moments - guess) / cut.tilts))
        composition = Window.around(cut, epsilon, guess, tilt_at=max(epsilon, reach)).compose()
        bound = composition.delta(epsilon)
        best = min(best, bound)
        log_bound = math.log(max(bound - composition.beyond, 1e-290))
        if composition.beyond < 1e-4 * bound and log_bound > guess - 5:
            break
        # Delta is so much smaller than guessed that tilt and tails no longer fit.
        guess = min(log_bound, guess - 2)
    return best


def _pure_epsilon(parts: Sequence[Part]) -> float:
    """The largest loss the composition can have, correctly rounded."""
    return math.fsum(part.times * part.pair.max_loss for part in parts)


def merge_equal_pairs(parts: Sequence[Part]) -> list[Part]:
    """Counts equal pairs together, and combines all full-data Gaussians into one."""
    counts: dict[Pair, int] = {}
    for pair, times in parts:
        counts[pair] = counts.get(pair, 0) + times
    gaussian = [(pair, times) for pair, times in counts.items() if isinstance(pair, GaussianPair)]
    merged = [Part(pair, n) for pair, n in counts.items() if not isinstance(pair, GaussianPair)]
    if gaussian:
        mu = math.sqrt(math.fsum(times * pair.mu**2 for pair, times in gaussian))
        merged.append(Part(GaussianPair(mu * (1 + _MACHINE_EPSILON * 8)), 1))
    return merged


def single_delta(pair: Pair, epsilon: float) -> float:
    """delta(epsilon) of one release, by its definition P(L > e) - exp(e) Q(L > e)."""
    if isinstance(pair, GaussianPair):
        # Balle and Wang 2018, Theorem 8, in logarithms.
        log_p = float(log_ndtr(pair.mu / 2 - epsilon / pair.mu))
        log_q = epsilon + float(log_ndtr(-pair.mu / 2 - epsilon / pair.mu))
    else:
        p, q = pair.upper(np.asarray(epsilon))
        if p <= 0:
            return 0.0
        log_p = math.log(p)
        log_q = epsilon + math.log(q) if q > 0 else -math.inf
    slack = 2 * TAIL_ERROR * (1 + abs(log_p))
    return min(1.0, math.exp(log_p) * (max(0.0, -math.expm1(log_q - log_p)) + slack))


def invert_decreasing(curve: Callable[[float], float], level: float) -> float:
    """The smallest x >= 0, rounded up, where a falling curve is at most `level`."""
    if curve(0.0) <= level:
        return 0.0
    low, high = 0.0, 1.0
    while curve(high) > level:
        low, high = high, 2 * high
        if high > 1e300:
            return math.inf
    while high - low > 4 * _MACHINE_EPSILON * high:
        middle = (low + high) / 2
        if curve(middle) <= level:
            high = middle
        else:
            low = middle
    return high

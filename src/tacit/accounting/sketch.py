"""Dominating pairs on a grid, and in outline: where a composition's loss will lie.

`connect_dots` is rigorous: the pair on the grid dominates the pair itself. A sketch uses it on
a coarse grid to choose tilt, window and grid width, which needs no rigour.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from tacit.accounting.pairs import TAIL_ERROR, Array, Pair

# Share of delta that may go, in all, to losses outside grid and window.
TAIL_SHARE = 1e-7
# Chance that any loss of a composition is raised to the lower end of the grid.
_LOW_SHARE = 1e-7


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


class Sketch(NamedTuple):
    """A part on a coarse grid, fine in relative terms: enough to choose tilt and window."""

    losses: Array
    log_masses: Array
    times: int

    @classmethod
    def of(cls, part: Part) -> "Sketch":
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

    def cut(self, below: float, above: float) -> "Sketch":
        """Without the losses past which one release has less mass than this."""
        masses = np.exp(self.log_masses)
        first = int(np.argmax(np.cumsum(masses) > below))
        last = len(masses) - int(np.argmax(np.cumsum(masses[::-1]) > above))
        kept = slice(max(first - 1, 0), last + 1)
        return Sketch(self.losses[kept], self.log_masses[kept], self.times)


@dataclass(frozen=True)
class Sketches:
    """All parts in outline, and their joint log-moments over a range of tilts."""

    parts: Sequence[Part]
    each: Sequence[Sketch]
    tilts: Array
    moments: Array

    @classmethod
    def of(cls, parts: Sequence[Part]) -> "Sketches":
        """Sketches of all parts, with tilts on the scale of their spread."""
        each = [Sketch.of(part) for part in parts]
        spread = math.sqrt(math.fsum(sketch.variance(0.0) for sketch in each))
        tilts = np.geomspace(1e-6, 1e5, 160) / max(spread, 1e-200)
        return cls(parts, each, tilts, _log_moments(each, tilts))

    @property
    def steps(self) -> int:
        """How many releases there are."""
        return sum(part.times for part in self.parts)

    def cut(self, log_delta: float) -> "Sketches":
        """Without the tails whose whole mass is a small share of this delta."""
        tail = math.exp(max(log_delta + math.log(TAIL_SHARE), -650.0)) / self.steps
        each = [sketch.cut(below=_LOW_SHARE / self.steps, above=tail) for sketch in self.each]
        return replace(self, each=each, moments=_log_moments(each, self.tilts))

    def variance(self, tilt: float) -> float:
        """Variance of the tilted loss of the composition."""
        return math.fsum(sketch.variance(tilt) for sketch in self.each)

    def tilted_end(self, tilt: float, *, up: bool) -> float:
        """A loss beyond which the tilted composition has hardly any mass."""
        steps = self.tilts if up else -self.tilts
        here = _log_moments(self.each, np.asarray(tilt))
        ends = (_log_moments(self.each, tilt + steps) - here - math.log(1e-9)) / steps
        return float(ends.min() if up else ends.max())


def _log_moments(sketches: Sequence[Sketch], tilts: Array) -> Array:
    return np.asarray(np.sum([sketch.log_moments(tilts) for sketch in sketches], axis=0))

"""Where the lines of a forecast's picture run: half widths of intervals against epsilon."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

# Of the picture, in pixels of its own coordinates.
WIDTH, HEIGHT = 720, 360
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 12, 14, 44
# Colours that people with any colour vision tell apart, on white and on black.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6bb1", "#7f7f7f")


class Series(NamedTuple):
    """The half widths of one parameter: at each epsilon, and without privacy."""

    name: str
    widths: tuple[float, ...]
    floor: float


class DrawnCurve(NamedTuple):
    """A series in the picture's coordinates."""

    name: str
    colour: str
    points: tuple[tuple[float, float], ...]
    floor: float | None

    @property
    def path(self) -> str:
        """The points as SVG has them."""
        return " ".join(f"{x:.1f},{y:.1f}" for x, y in self.points)


class Tick(NamedTuple):
    """A mark on an axis: where it is, and what it says."""

    place: float
    text: str


@dataclass(frozen=True)
class Picture:
    """Series on two logarithmic axes."""

    epsilons: Sequence[float]
    series: Sequence[Series]

    left, right, top, bottom = _LEFT, WIDTH - _RIGHT, _TOP, HEIGHT - _BOTTOM
    width, height = WIDTH, HEIGHT

    def _across(self, epsilon: float) -> float:
        low, high = math.log(min(self.epsilons)), math.log(max(self.epsilons))
        if low == high:
            return (self.left + self.right) / 2
        inside = (self.right - self.left) * 0.94
        return (
            self.left
            + 0.03 * (self.right - self.left)
            + inside * (math.log(epsilon) - low) / (high - low)
        )

    @property
    def _ends(self) -> tuple[float, float]:
        every = [w for s in self.series for w in (*s.widths, s.floor) if math.isfinite(w) and w > 0]
        low, high = min(every, default=1.0), max(every, default=1.0)
        return math.log10(low) - 0.08, math.log10(high) + 0.08

    def _down(self, width: float) -> float:
        low, high = self._ends
        return self.bottom - (self.bottom - self.top) * (math.log10(width) - low) / (high - low)

    @property
    def curves(self) -> list[DrawnCurve]:
        """A line for each series, and where it would be without privacy."""
        return [
            DrawnCurve(
                each.name,
                COLOURS[i % len(COLOURS)],
                tuple(
                    (self._across(e), self._down(w))
                    for e, w in zip(self.epsilons, each.widths, strict=True)
                ),
                self._down(each.floor) if math.isfinite(each.floor) and each.floor > 0 else None,
            )
            for i, each in enumerate(self.series)
        ]

    @property
    def epsilon_ticks(self) -> list[Tick]:
        """One for each epsilon."""
        return [Tick(self._across(each), f"{each:g}") for each in self.epsilons]

    @property
    def width_ticks(self) -> list[Tick]:
        """Round numbers: 1, 2 and 5 times powers of ten, or powers alone if there are many."""
        low, high = self._ends
        powers = range(math.floor(low), math.ceil(high) + 1)
        for steps in ((1, 2, 5), (1, 3), (1,)):
            found = [
                s * 10.0**p for p in powers for s in steps if low <= math.log10(s * 10.0**p) <= high
            ]
            if len(found) <= 7:
                break
        return [Tick(self._down(each), f"{each:g}") for each in found]

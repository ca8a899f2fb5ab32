"""Drawings of a report, as SVG inside the page: no library, no file, no script.

Places across are percentages and places down are pixels, so that a drawing is as wide as the
screen or the paper while its letters keep their size. Colours are the style sheet's.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tacit._format import in_digits, printed
from tacit.accounting import Adjacency, Curve
from tacit.results.wording import escaped

# Of the width, on either side of what is drawn, so that marks at the ends are whole.
_MARGIN = 0.05
# Parameters of which one is so many times as large as another do not share an axis.
_ALIKE = 50.0
_NOTHING = 1e-300
_ROW, _AXIS = 22, 20
# Where the curves are, in percent across and pixels down.
_LEFT, _WIDTH, _TOP, _HEIGHT = 11.0, 85.0, 24, 190


class Bar(NamedTuple):
    """One number of the posterior, to draw: two intervals around a mean."""

    name: str
    mean: float
    lower: float
    half_lower: float
    half_upper: float
    upper: float


class Scale(NamedTuple):
    """An axis from ``low`` to ``high``, in multiples of ``unit``, a power of ten."""

    low: float
    high: float
    unit: float

    def share(self, value: float) -> float:
        """How far along the axis a value is, from 0 to 1."""
        return (value / self.unit - self.low) / (self.high - self.low)

    def ticks(self) -> list[tuple[float, str]]:
        """Round numbers within the axis: how far along each is, and how it is written."""
        many = self._ticks(7)
        return many if max((len(text) for _, text in many), default=0) <= 4 else self._ticks(4)

    def _ticks(self, most: int) -> list[tuple[float, str]]:
        """By the least round step that makes no more of them."""
        step, places = (self.high - self.low) / (most + 1), range(most + 1)
        while len(places) > most:
            step = _round_step(step * 1.01)
            places = range(math.ceil(self.low / step), math.floor(self.high / step) + 1)
        return [(self.share(i * step * self.unit), self._label(i, step)) for i in places]

    def _label(self, place: int, step: float) -> str:
        if not place:
            return "0"
        value = place * step * self.unit
        last = math.floor(math.log10(step) + 1e-9)  # the power of ten of the last digit
        decimals = -last - round(math.log10(self.unit))
        if abs(value) < 1e5 and decimals <= 4:
            return f"{value:.{max(decimals, 0)}f}"
        digits = math.floor(math.log10(abs(place) * step) + 1e-9) - last
        return f"{value:.{max(digits, 0)}e}"


def panels(bars: Sequence[Bar]) -> list[list[Bar]]:
    """Numbers of like size together, each panel in the order given; the largest come first."""
    drawn = [bar for bar in bars if all(map(math.isfinite, bar[1:]))]
    groups: list[list[Bar]] = []
    for bar in sorted(drawn, key=_reach):
        if groups and _reach(bar) <= _ALIKE * max(_reach(groups[-1][0]), _NOTHING):
            groups[-1].append(bar)
        else:
            groups.append([bar])
    order = {id(bar): place for place, bar in enumerate(bars)}
    return [sorted(group, key=lambda bar: order[id(bar)]) for group in reversed(groups)]


def scale(bars: Sequence[Bar]) -> Scale:
    """An axis that holds all intervals, and zero if it is near."""
    unit = _power(max(map(_reach, bars)))
    low = min(bar.lower / unit for bar in bars)
    high = max(bar.upper / unit for bar in bars)
    span = high - low
    if 0 < low <= span:
        low = 0.0
    if 0 < -high <= span:
        high = 0.0
    if low == high:
        low, high = low - (abs(low) or 1.0), high + (abs(high) or 1.0)
    margin = _MARGIN * (high - low)
    return Scale(low - margin, high + margin, unit)


def strip(bar: Bar, axis: Scale, label: str) -> str:
    """A row of a forest: the intervals and the mean of one number."""
    at = axis.share
    marks = [
        *(_upright(share, "zero" if text == "0" else "grid") for share, text in axis.ticks()),
        _across(at(bar.lower), at(bar.upper), "wide"),
        _across(at(bar.half_lower), at(bar.half_upper), "half"),
        f'<circle class="mean" cx="{_percent(at(bar.mean))}" cy="50%" r="4.5"/>',
    ]
    return _svg("strip", _ROW, "".join(marks), label)


def ruler(axis: Scale) -> str:
    """The numbers of a forest's axis. Hidden from readers of text, who have the table."""
    words = "".join(
        f'<text x="{_percent(share)}" y="14" text-anchor="middle">{text}</text>'
        for share, text in axis.ticks()
    )
    return f'<svg class="ruler" width="100%" height="{_AXIS}" aria-hidden="true">{words}</svg>'


def curves(
    found: Mapping[Adjacency, Curve], marked: Mapping[Adjacency, tuple[float, float]], asked: str
) -> str:
    """Epsilon over delta, a line for each adjacency, with the points of the statement."""
    lines = {name: _finite_points(curve) for name, curve in found.items()}
    top = _top([e for line in lines.values() for _, e in line] + [e for _, e in marked.values()])
    deltas = [d for line in lines.values() for d, _ in line]
    ends = math.floor(math.log10(min(deltas))), math.ceil(math.log10(max(deltas)))
    plot = Plot(top, *ends)
    drawn = "".join(
        f'<polyline class="curve {_kind(name, asked)}" points="{plot.points(line)}"/>'
        for name, line in lines.items()
    )
    area = (
        f'<svg x="{_LEFT}%" y="{_TOP}" width="{_WIDTH}%" height="{_HEIGHT}" class="area">'
        f'<svg viewBox="0 0 100 100" preserveAspectRatio="none" width="100%" height="100%">'
        f"{drawn}</svg>{_points(plot, marked, asked)}</svg>"
    )
    said = "; ".join(
        f"{name}: epsilon {printed(e)} at delta {in_digits(d)}" for name, (d, e) in marked.items()
    )
    return _svg("curves", _TOP + _HEIGHT + 40, plot.axes() + area, "Epsilon at every delta", said)


class Plot(NamedTuple):
    """Where deltas and epsilons are."""

    top: float
    first: int
    last: int

    def across(self, delta: float) -> float:
        """From 0 to 1; deltas off the axis are at its end."""
        place = math.log10(delta) if delta > 0 else self.first
        return min(max((place - self.first) / (self.last - self.first), 0.0), 1.0)

    def down(self, epsilon: float) -> float:
        """From 0 at the top to 1."""
        return 1 - epsilon / self.top

    def points(self, line: Sequence[tuple[float, float]]) -> str:
        """A line on a square of 100."""
        return " ".join(f"{100 * self.across(d):.3f},{100 * self.down(e):.3f}" for d, e in line)

    def axes(self) -> str:
        """Grid, numbers and names of both axes."""
        parts = []
        for share, text in Scale(0.0, self.top, 1.0).ticks():
            y = _TOP + _HEIGHT * (1 - share)
            parts.append(
                f'<line class="grid" x1="{_LEFT}%" x2="{_LEFT + _WIDTH}%" y1="{y:.1f}" y2="{y:.1f}"/>'
                f'<text x="{_LEFT - 1.5}%" y="{y + 4:.1f}" text-anchor="end">{text}</text>'
            )
        every = 3 if self.last - self.first > 6 else 1
        for place in (each for each in range(self.first, self.last + 1) if each % every == 0):
            x = _LEFT + _WIDTH * (place - self.first) / (self.last - self.first)
            parts.append(
                f'<line class="grid" x1="{x:.2f}%" x2="{x:.2f}%" y1="{_TOP}" y2="{_TOP + _HEIGHT}"/>'
                f'<text x="{x:.2f}%" y="{_TOP + _HEIGHT + 17}" text-anchor="middle">{10.0**place:g}</text>'
            )
        middle = _LEFT + _WIDTH / 2
        return (
            f'{"".join(parts)}<text class="name" x="1%" y="12">epsilon</text><text class="name" '
            f'x="{middle}%" y="{_TOP + _HEIGHT + 35}" text-anchor="middle">delta</text>'
        )


def shares(parts: Sequence[tuple[str, float]], label: str) -> str:
    """A bar of parts that add up to the whole, each with its class."""
    total = math.fsum(size for _, size in parts) or 1.0
    drawn, begun = [], 0.0
    for kind, size in parts:
        drawn.append(
            f'<rect class="{kind}" x="{_percent(begun / total)}" y="0" '
            f'width="{_percent(size / total)}" height="100%"/>'
        )
        begun += size
    return _svg("shares", 24, "".join(drawn), label)


def swatch(kind: str) -> str:
    """The sign of a line or a part, for a legend."""
    inside = f'<line class="curve {kind}" x1="0" x2="28" y1="6" y2="6"/>'
    if kind in ("earlier", "run", "left"):
        inside = f'<rect class="{kind}" x="0" y="0" width="28" height="12"/>'
    return f'<svg class="swatch" width="28" height="12" aria-hidden="true">{inside}</svg>'


def _points(plot: Plot, marked: Mapping[Adjacency, tuple[float, float]], asked: str) -> str:
    parts = []
    for name, (delta, epsilon) in marked.items():
        x, y = plot.across(delta), plot.down(epsilon)
        anchor, shift = ("end", -9) if x > 0.6 else ("start", 9)
        parts.append(
            f'<circle class="point {_kind(name, asked)}" cx="{_percent(x)}" cy="{_percent(y)}" r="5"/>'
            f'<text class="value" x="{_percent(x)}" y="{_percent(y)}" dx="{shift}" dy="-7" '
            f'text-anchor="{anchor}">{printed(epsilon)}</text>'
        )
    return "".join(parts)


def _kind(name: str, asked: str) -> str:
    return "asked" if name == asked else "other"


def _svg(kind: str, height: int, inside: str, title: str, described: str = "") -> str:
    words = f"<title>{escaped(title)}</title>" + (
        f"<desc>{escaped(described)}</desc>" if described else ""
    )
    label = escaped(f"{title}. {described}" if described else title)
    return (
        f'<svg class="{kind}" width="100%" height="{height}" role="img" aria-label="{label}">'
        f"{words}{inside}</svg>"
    )


def _upright(share: float, kind: str) -> str:
    return f'<line class="{kind}" x1="{_percent(share)}" x2="{_percent(share)}" y1="0" y2="100%"/>'


def _across(begin: float, end: float, kind: str) -> str:
    return f'<line class="{kind}" x1="{_percent(begin)}" x2="{_percent(end)}" y1="50%" y2="50%"/>'


def _percent(share: float) -> str:
    return f"{100 * share:.3f}%"


def _reach(bar: Bar) -> float:
    return max(abs(value) for value in bar[1:])


def _power(size: float) -> float:
    """The power of ten below a size; sizes next to nothing count as nothing."""
    return 10.0 ** math.floor(math.log10(size)) if size > _NOTHING else 1.0


def _round_step(least: float) -> float:
    """The next of 1, 2, 5, 10, 20, ..."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(power * each for each in (1, 2, 5, 10) if power * each >= least * (1 - 1e-9))


def _top(epsilons: Sequence[float]) -> float:
    highest = max([e for e in epsilons if math.isfinite(e)] or [1.0]) or 1.0
    step = _round_step(highest / 4)
    return step * math.ceil(highest / step)


def _finite_points(curve: Curve) -> list[tuple[float, float]]:
    return [(d, e) for d, e in zip(*curve, strict=True) if math.isfinite(e)]

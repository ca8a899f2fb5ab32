"""What is drawn and where: bars of a forest plot, line charts, and bars of a budget.

Drawings are plain data, independent of what draws them: `tacit.results.plots` uses matplotlib, and
``templates/drawings.html`` writes SVG.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from tacit._format import format_epsilon, format_number
from tacit._typing import FloatArray
from tacit.accounting import Curve
from tacit.errors import InvalidArgument
from tacit.models.interpretation import IncrementSizes, ParameterMeaning
from tacit.results.summary import check_units, coordinates, draws_in_units

if TYPE_CHECKING:
    from tacit.results.posterior import Posterior


_Name = TypeVar("_Name", bound=str)

# The posterior probabilities of the two intervals of a forest plot.
INTERVAL_LEVEL, INNER_LEVEL = 0.9, 0.5
# Colours that people with any colour vision distinguish, on white and on black.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6bb1", "#7f7f7f")
# The share of the width on either side of the drawing, so that marks at the ends are complete.
_MARGIN = 0.05
# Parameters share an axis unless one is more than so many times as large as another.
_MAX_SIZE_RATIO = 50.0
_TINY = 1e-300
# An interval is nearly the prior's if it is wider than this share of it. It is cut if it would make the axis so many times
# as long.
_UNLEARNED_RATIO, _MAX_STRETCH = 0.6, 1.5
# Rows of a forest that fit below something else on a sheet of paper.
_MAX_ROWS_PER_SHEET = 30
# Letters of a name that fit beside a strip on a phone.
_MAX_SHORT_NAME = 11


# Kinds of parameters in the order of their panels. Those without a kind come first.
ROLE_TITLES = {
    "": "",
    "coefficient": "Coefficients",
    "effect": "Groups",
    "intercept": "Intercept",
    "spread": "Standard deviations and shapes",
}
_ROLES_WITH_ZERO = ("coefficient", "effect")


class Bar(NamedTuple):
    """One number of the posterior: a mean and two intervals, and what kind of parameter it is.

    ``is_ratio`` says whether its exponential is a ratio, and ``is_unlearned`` whether its interval is nearly the prior's.
    """

    name: str
    mean: float
    lower: float
    half_lower: float
    half_upper: float
    upper: float
    role: str = ""
    is_ratio: bool = False
    is_unlearned: bool = False

    @property
    def numbers(self) -> tuple[float, ...]:
        """The mean and the ends of the intervals."""
        return self[1:6]

    def description(self, interval: str) -> str:
        """The bar in words, for screen readers."""
        return f"{self.name}: mean {self.mean:.4g}, {interval} {self.lower:.4g} to {self.upper:.4g}"


class Axis(NamedTuple):
    """An axis from ``low`` to ``high``, in multiples of ``unit``, a power of ten."""

    low: float
    high: float
    unit: float

    def share(self, value: float) -> float:
        """The position of a value on the axis, from 0 to 1."""
        return (value / self.unit - self.low) / (self.high - self.low)

    def cut_share(self, value: float) -> float:
        """The same, but of a value beyond an end at that end."""
        return min(max(self.share(value), 0.0), 1.0)

    def ratio_ticks(self) -> list[tuple[float, str]]:
        """Round ratios whose logarithms lie on the axis: the position of each, and its text."""
        ends = [math.exp(min(max(end * self.unit, -300.0), 300.0)) for end in (self.low, self.high)]
        found: list[float] = []
        for ratios in _ROUND_RATIOS:  # from fine to coarse
            found = [each for each in ratios if ends[0] <= each <= ends[1]]
            if len(found) <= _MAX_RATIO_TICKS:
                break
        return [(self.share(math.log(each)), f"{each:g}") for each in found]

    def ticks(self) -> list[tuple[float, str]]:
        """Round numbers on the axis: the position of each, and its text."""
        many = self._ticks(7)
        return many if max((len(text) for _, text in many), default=0) <= 4 else self._ticks(4)

    def _ticks(self, most: int) -> list[tuple[float, str]]:
        """Ticks with the smallest round step that gives at most ``most`` of them."""
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


def _round_ratios() -> list[list[float]]:
    """Lists of round ratios, ever fewer: for axes from a few per cent wide to many powers of ten."""
    decades = [10.0**power for power in range(-9, 10)]
    fine = [
        [round(1 + i * step, 4) for i in range(-round(0.9 / step), round(9 / step) + 1)]
        for step in (0.01, 0.02, 0.05, 0.1)
    ]
    coarse = [
        [round(each * ten, 12) for ten in decades for each in some]
        for some in ((1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,))
    ]
    return [*fine, *coarse, decades[::3]]


_MAX_RATIO_TICKS = 7
_ROUND_RATIOS = _round_ratios()


class Panel(NamedTuple):
    """A part of a forest: numbers of one kind and of similar size, on one axis."""

    bars: Sequence[Bar]
    axis: Axis
    title: str = ""

    @property
    def has_ratios(self) -> bool:
        """Whether the exponentials of all its numbers are ratios."""
        return all(bar.is_ratio for bar in self.bars)

    @property
    def is_cut(self) -> bool:
        """Whether some intervals are longer than the axis."""
        ends = [end for bar in self.bars for end in (bar.lower, bar.upper)]
        return any(not 0 <= self.axis.share(end) <= 1 for end in ends)

    @property
    def is_tall(self) -> bool:
        """Whether there are more rows than fit below something else on a sheet of paper."""
        return len(self.bars) > _MAX_ROWS_PER_SHEET

    @property
    def is_short(self) -> bool:
        """Whether all names fit beside their strips on a phone."""
        return max(len(bar.name) for bar in self.bars) <= _MAX_SHORT_NAME


def forest_panels(bars: Sequence[Bar]) -> list[Panel]:
    """Panels of numbers of one kind and of similar size, coefficients first, the largest first.

    Intercepts and standard deviations have axes of their own, so that they do not squeeze the
    coefficients. Numbers that are not finite are left out.
    """
    drawn = [bar for bar in bars if all(map(math.isfinite, bar.numbers))]
    roles = [role for role in ROLE_TITLES if any(bar.role == role for bar in drawn)]
    found = []
    for role in roles:
        own = [bar for bar in drawn if bar.role == role]
        groups = groups_by_size([_max_abs(bar) for bar in own])
        for place, group in enumerate([own[each] for each in places] for places in groups):
            title = ROLE_TITLES[role] if len(roles) > 1 else ""
            smaller = ", smaller numbers" if title and place else ""
            found.append(Panel(group, axis_for_bars(group), title + smaller))
    return found


def groups_by_size(sizes: Sequence[float]) -> list[list[int]]:
    """The places of numbers of similar size, the largest first, each group in the order that they came in.

    >>> groups_by_size([3.0, 500.0, 0.5, 120.0])
    [[1, 3], [0, 2]]
    """
    groups: list[list[int]] = []
    # From the largest on, so that one small number does not part two large ones.
    for place in sorted(range(len(sizes)), key=lambda each: sizes[each], reverse=True):
        if groups and sizes[groups[-1][0]] <= _MAX_SIZE_RATIO * max(sizes[place], _TINY):
            groups[-1].append(place)
        else:
            groups.append([place])
    return [sorted(group) for group in groups]


def axis_for_bars(bars: Sequence[Bar]) -> Axis:
    """An axis that contains all intervals, and zero if it is near or the bars are effects.

    Intervals that are nearly the prior's, as that of a level that nobody has, do not rule it: they are cut at its ends.
    """
    learned = [bar for bar in bars if not bar.is_unlearned]
    if learned and max(map(_max_abs, bars)) > _MAX_STRETCH * max(map(_max_abs, learned)):
        bars = learned
    largest = max(map(_max_abs, bars))
    unit = 10.0 ** math.floor(math.log10(largest)) if largest > _TINY else 1.0
    low = min(bar.lower / unit for bar in bars)
    high = max(bar.upper / unit for bar in bars)
    near = math.inf if bars[0].role in _ROLES_WITH_ZERO else high - low
    if 0 < low <= near:
        low = 0.0
    if 0 < -high <= near:
        high = 0.0
    if low == high:
        low, high = low - (abs(low) or 1.0), high + (abs(high) or 1.0)
    margin = _MARGIN * (high - low)
    return Axis(low - margin, high + margin, unit)


class ChartAxis(NamedTuple):
    """An axis of a chart, from ``low`` to ``high``, with ticks: the position of each, and its text."""

    name: str
    low: float
    high: float
    ticks: Sequence[tuple[float, str]]
    is_log: bool = False

    def share(self, value: float) -> float:
        """The position of a value on the axis, from 0 to 1; values off the axis are at its end."""
        low, high = self.low, self.high
        if self.is_log:
            low, high = math.log10(low), math.log10(high)
            value = math.log10(value) if value > 0 else low
        return min(max((value - low) / (high - low), 0.0), 1.0)


class ChartLine(NamedTuple):
    """A line of a chart. Its kind is its class in the style sheet; a colour replaces that of the kind."""

    name: str
    points: Sequence[tuple[float, float]]
    kind: str = "asked"
    colour: str | None = None
    has_dots: bool = False


class ChartMark(NamedTuple):
    """A point of a chart with a text beside it."""

    x: float
    y: float
    text: str
    kind: str = "asked"


@dataclass(frozen=True, kw_only=True)
class LineChart:
    """Lines over two axes, such as epsilon over delta or over time.

    Attributes:
        title: What is drawn, for screen readers.
        described: The numbers that matter, for screen readers.
        x: The axis across.
        y: The axis upwards.
        lines: The lines, in the order in which they are drawn.
        marks: Points with a text.
    """

    title: str
    described: str = ""
    x: ChartAxis
    y: ChartAxis
    lines: Sequence[ChartLine]
    marks: Sequence[ChartMark] = ()

    @property
    def legend(self) -> list[ChartLine]:
        """The lines that have a name."""
        return [line for line in self.lines if line.name]

    def places(self, line: ChartLine) -> list[tuple[float, float]]:
        """Where the points of a line are: from the left and from the top, each from 0 to 1."""
        return [(self.x.share(x), 1 - self.y.share(y)) for x, y in line.points]

    def path(self, line: ChartLine) -> str:
        """The points of a line on a square of 100, as SVG takes them."""
        return " ".join(f"{100 * x:.3f},{100 * y:.3f}" for x, y in self.places(line))


def privacy_chart(
    curves: Mapping[_Name, Curve],
    marked: Mapping[_Name, tuple[float, float]],
    *,
    asked: str | None = None,
) -> LineChart:
    """A chart of epsilon over delta.

    Args:
        curves: The curves, by name.
        marked: Points of the curves whose epsilon is written beside them.
        asked: The requested curve. Without it each curve has a colour of its own.

    Returns:
        The chart, with a logarithmic axis of delta.
    """
    lines = []
    for place, (name, curve) in enumerate(curves.items()):
        points = [(d, e) for d, e in zip(*curve, strict=True) if math.isfinite(e)]
        if asked is not None:
            lines.append(ChartLine(name, points, "asked" if name == asked else "other"))
        else:
            kind = "asked" if place < len(COLOURS) else "other"  # the same colours again, dashed
            lines.append(ChartLine(name, points, kind, COLOURS[place % len(COLOURS)]))
    shown = [point for line in lines for point in line.points]
    highest = max([e for _, e in (*shown, *marked.values())], default=1.0) or 1.0
    step = _round_step(highest / 4)
    top = step * math.ceil(highest / step)
    deltas = [math.log10(d) for d, _ in shown]
    first, last = math.floor(min(deltas)), math.ceil(max(deltas))
    every = 3 if last - first > 6 else 1
    powers = [power for power in range(first, last + 1) if power % every == 0]
    ticks = [((power - first) / (last - first), format_number(10.0**power)) for power in powers]
    described = (
        f"{name}: epsilon {format_epsilon(epsilon)} at delta {format_number(delta)}"
        for name, (delta, epsilon) in marked.items()
    )
    return LineChart(
        title="Epsilon at every delta",
        described="; ".join(described),
        x=ChartAxis("delta", 10.0**first, 10.0**last, ticks, is_log=True),
        y=ChartAxis("epsilon", 0.0, top, Axis(0.0, top, 1.0).ticks()),
        lines=lines,
        marks=[
            ChartMark(*point, format_epsilon(point[1]), "asked" if name == asked else "other")
            for name, point in marked.items()
        ],
    )


def log_axis(name: str, values: Sequence[float], ticks: Sequence[float] | None = None) -> ChartAxis:
    """A logarithmic axis that contains all positive values, with ticks as given or at round numbers."""
    positive = [math.log10(value) for value in values if math.isfinite(value) and value > 0]
    low, high = min(positive, default=0.0) - 0.08, max(positive, default=0.0) + 0.08
    shown = ticks or ()
    for steps in () if ticks else ((1, 2, 5), (1, 3), (1,)):
        powers = range(math.floor(low), math.ceil(high) + 1)
        round_numbers = [step * 10.0**power for power in powers for step in steps]
        shown = [each for each in round_numbers if low <= math.log10(each) <= high]
        if len(shown) <= 7:
            break
    axis = ChartAxis(name, 10.0**low, 10.0**high, (), is_log=True)
    return axis._replace(ticks=[(axis.share(each), f"{each:g}") for each in shown])


class BarSegment(NamedTuple):
    """A part of a bar: its style, name and size, where it begins and how long it is."""

    kind: str
    name: str
    size: float
    begin: float
    share: float


def bar_segments(parts: Sequence[tuple[str, str, float]]) -> list[BarSegment]:
    """A bar of parts, each a style, a name and a size, that add up to the whole."""
    total, found, begun = math.fsum(size for _, _, size in parts) or 1.0, [], 0.0
    for kind, name, size in parts:
        found.append(BarSegment(kind, name, size, begun / total, size / total))
        begun += size
    return found


def _max_abs(bar: Bar) -> float:
    return max(abs(value) for value in bar.numbers)


def _round_step(least: float) -> float:
    """The next of 1, 2, 5, 10, 20, ..."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(power * each for each in (1, 2, 5, 10) if power * each >= least * (1 - 1e-9))


class LabelledDraws(NamedTuple):
    """The draws of one number, what it means, and the width of 95% of its prior; infinite if that is not known."""

    values: FloatArray
    meaning: ParameterMeaning | None
    prior_width: float


def labelled_draws(
    posterior: "Posterior", names: Sequence[str] | None = None, units: IncrementSizes | None = None
) -> dict[str, LabelledDraws]:
    """The draws of each number, by its label with what one unit is.

    Args:
        posterior: The posterior.
        names: The parameters; by default all.
        units: Other units for some columns, as for `Posterior.summary`.

    Returns:
        Draws in the units that are shown.

    Raises:
        InvalidArgument: If a name or a unit is unknown.
    """
    interpretation, asked = posterior.interpretation, check_units(posterior.interpretation, units)
    draws = draws_in_units(posterior.draws, interpretation, asked).draws
    found: dict[str, LabelledDraws] = {}
    asked_names = [names] if isinstance(names, str) else names
    for name in list(draws) if asked_names is None else asked_names:
        if name not in draws:
            raise InvalidArgument(
                f"{name!r} is not a parameter; the parameters are {', '.join(draws)}."
            )
        meaning = None if interpretation is None else interpretation.parameters.get(name)
        unit = "" if meaning is None else meaning.words(asked)
        axes, wide = posterior.labels.get(name), math.inf
        prior = None if meaning is None else meaning.prior
        if meaning is not None and prior and prior.low is not None and prior.high is not None:
            wide = abs(meaning.factor(asked)) * (prior.high - prior.low)
        flat = draws[name].reshape(posterior.num_draws, -1).T
        labels = (label for label, _ in coordinates(name, draws[name].shape[1:], axes))
        for label, values in zip(labels, flat, strict=True):
            found[f"{label}, {unit}" if unit else label] = LabelledDraws(values, meaning, wide)
    return found


def forest_bars(
    posterior: "Posterior",
    most: int,
    names: Sequence[str] | None = None,
    units: IncrementSizes | None = None,
) -> list[Bar]:
    """The bars of the first numbers of a posterior, at most ``most``."""
    found = list(labelled_draws(posterior, names, units).items())[:most]
    return [_forest_bar(label, each) for label, each in found]


def _forest_bar(label: str, drawn: LabelledDraws) -> Bar:
    values, meaning = drawn.values, drawn.meaning
    tails = [
        (1 - INTERVAL_LEVEL) / 2,
        (1 - INNER_LEVEL) / 2,
        (1 + INNER_LEVEL) / 2,
        (1 + INTERVAL_LEVEL) / 2,
    ]
    with np.errstate(all="ignore"):  # draws may be infinite
        mean = float(np.mean(values, dtype=np.float64))
        low, half_low, half_high, high = np.quantile(values.astype(np.float64), tails).tolist()
    # The central 90% of a normal prior are 0.84 of its central 95%.
    unlearned = high - low > _UNLEARNED_RATIO * 0.84 * drawn.prior_width
    role, ratio = ("", False) if meaning is None else (meaning.role, meaning.ratio)
    return Bar(label, mean, low, half_low, half_high, high, role, ratio, unlearned)

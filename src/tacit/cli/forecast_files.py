"""A forecast as an HTML page or as a plot."""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tacit._html import render_template
from tacit.api.forecast_result import UNIT_PLURALS, Forecast
from tacit.cli.runs import Request
from tacit.errors import InvalidArgument
from tacit.results.plots import load_pyplot, saving_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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


class ChartCurve(NamedTuple):
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
class WidthChart:
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
    def curves(self) -> list[ChartCurve]:
        """A line for each series, and where it would be without privacy."""
        return [
            ChartCurve(
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


PathLike = str | os.PathLike[str]


def width_chart(forecast: Forecast) -> WidthChart:
    """The half widths of all parameters, by growing epsilon."""
    order = sorted(range(len(forecast.budgets)), key=lambda i: forecast.budgets[i].epsilon)
    series = [
        Series(
            forecast.label(same[0]),
            tuple(line.width / 2 for line in same),
            same[0].without_privacy / 2,
        )
        for same in zip(*(forecast.at(i) for i in order), strict=True)
    ]
    return WidthChart([forecast.budgets[i].epsilon for i in order], series)


def plot_forecast(forecast: Forecast, path: PathLike | None = None) -> "Figure":
    """Plots half widths of 90% intervals against epsilon, a line for each parameter.

    Args:
        forecast: The forecast.
        path: A PNG, PDF or SVG file to write.

    Returns:
        The figure of matplotlib. Dashed lines are the half widths without privacy.
    """
    picture = width_chart(forecast)
    with saving_figure(path) as keep:
        figure, axes = load_pyplot().subplots(figsize=(7.2, 4.6), layout="constrained")
        for i, each in enumerate(picture.series):
            colour = COLOURS[i % len(COLOURS)]
            axes.plot(picture.epsilons, each.widths, "o-", color=colour, label=each.name)
            axes.axhline(each.floor, color=colour, linestyle="--", linewidth=1)
        axes.set(xscale="log", yscale="log", xlabel="epsilon", ylabel="half width of 90% interval")
        axes.set_xticks(picture.epsilons, [f"{each:g}" for each in picture.epsilons], minor=False)
        axes.set_xticks([], minor=True)
        axes.legend(ncols=2, fontsize=8, frameon=False)
        about = f"About {forecast.size:,} {UNIT_PLURALS[forecast.unit]}; dashed: without privacy"
        axes.set_title(about, fontsize=10, loc="left")
        return keep(figure)


def forecast_html(forecast: Forecast, asked: Request) -> str:
    """The forecast as one self-contained HTML page, for a protocol or an application.

    Args:
        forecast: The forecast.
        asked: What it is about.

    Returns:
        HTML without scripts, fonts or pictures from elsewhere.
    """
    title = f"{asked.formula or asked.file}: what {forecast.size:,} {UNIT_PLURALS[forecast.unit]} will tell"
    return render_template(
        "forecast.html",
        forecast=forecast,
        title=title,
        model=asked.described,
        schema=str(asked.schema),
        picture=width_chart(forecast),
        widths=forecast.widths(),
        fits=forecast.fits(),
        many=UNIT_PLURALS[forecast.unit],
        warnings=[said for i in range(len(forecast.budgets)) for said in forecast.warnings(i)],
        about=forecast.about,
    )


def write_forecast_page(forecast: Forecast, path: Path, asked: Request) -> None:
    """Writes the page to a file.

    Args:
        forecast: The forecast.
        path: The file.
        asked: What it is about.

    Raises:
        InvalidArgument: If the file cannot be written.
    """
    try:
        path.write_text(forecast_html(forecast, asked), encoding="utf-8")
    except OSError as error:
        raise InvalidArgument(f"{path} cannot be written: {error.strerror}.") from None

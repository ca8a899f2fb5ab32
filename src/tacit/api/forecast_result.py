"""The result of a forecast: expected interval widths for each parameter and budget, as text, plain data, a plot or a page."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tacit._format import text_table
from tacit._html import render_template
from tacit._typing import JSON
from tacit.accounting import Budget
from tacit.api.precision import range_text, two_digits
from tacit.api.simulate import INTERVAL_LEVEL, MAX_UNITS
from tacit.results.drawings import COLOURS, ChartLine, LineChart, log_axis
from tacit.results.statement import UNIT_PLURALS

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

# An interval that is wider than this share of the prior's is uninformative.
_UNINFORMATIVE_RATIO = 0.8
# A forecast with a smaller share of converged fits is hopeless.
_MIN_CONVERGED_SHARE = 0.5
# A forecast is hopeless if the coverage of 90% intervals is below this by more than so many standard errors.
_MIN_COVERAGE, _COVERAGE_STANDARD_ERRORS = 0.85, 2.5


class ForecastLine(NamedTuple):
    """What to expect of one parameter at one budget. Widths are those of 90% intervals.

    Attributes:
        parameter: The name, as in a summary.
        epsilon: The budget's epsilon.
        width: The expected width.
        error: The expected error of the posterior mean (root mean square).
        without_privacy: The width without privacy.
        prior: The width by the prior alone, without any data.
        coverage: The share of intervals that contained the true value.
        detectable: The smallest effect that 80% of fits distinguish from zero.
        chance: The share of fits whose interval excludes zero for the requested effect, if there was one.
        wide: The expected width if columns that no scenario describes are unfavourable.
    """

    parameter: str
    epsilon: float
    width: float
    error: float
    without_privacy: float
    prior: float
    coverage: float
    detectable: float
    chance: float | None
    wide: float = 0.0

    @property
    def is_uninformative(self) -> bool:
        """Whether the interval is nearly as wide as the prior's."""
        return self.width > _UNINFORMATIVE_RATIO * self.prior


@dataclass(frozen=True, kw_only=True, eq=False)
class Forecast:
    """What fits of simulated tables found. Print it for a table and a sentence for each budget.

    Attributes:
        size: The number of units that was declared.
        unit: The unit of privacy, ``"row"`` or ``"person"``.
        budgets: The budgets.
        method: The settings of the method at each budget.
        assumptions: What was assumed of the data, in sentences.
        lines: One line for each parameter and budget.
        seconds: The time of one fit at each budget, without compiling.
        converged: The share of fits that converged at each budget.
        noise_included: Whether intervals include the noise at each budget, as the method says.
        effective: The effective sample size at each budget, of the parameter that mixes worst; NaN for methods
            whose draws are independent.
        repeats: The number of tables.
        focus: The parameter that sentences are about.
        effect: The effect of interest, or None.
        units: What one unit of a parameter is, as a summary says it, by its name.
    """

    size: int
    unit: str
    budgets: tuple[Budget, ...]
    method: tuple[str, ...]
    assumptions: tuple[str, ...]
    lines: tuple[ForecastLine, ...]
    seconds: tuple[float, ...]
    converged: tuple[float, ...]
    noise_included: tuple[bool, ...]
    effective: tuple[float, ...]
    repeats: int
    focus: str
    effect: float | None
    units: Mapping[str, str] = field(default_factory=dict)

    def at(self, budget: int) -> tuple[ForecastLine, ...]:
        """The lines of one budget, by its index in ``budgets``."""
        each = len(self.lines) // len(self.budgets)
        return self.lines[budget * each : (budget + 1) * each]

    @property
    def sentences(self) -> tuple[str, ...]:
        """What to conclude about the parameter in ``focus``, at every budget."""
        lines = [
            next(x for x in self.at(i) if x.parameter == self.focus)
            for i in range(len(self.budgets))
        ]
        return tuple(map(self._sentence, lines)) + self._floor(lines[0])

    def _sentence(self, line: ForecastLine) -> str:
        people = f"about {self.size:,} {UNIT_PLURALS[self.unit]}"
        start = f"With {people} and epsilon {line.epsilon:g}"
        if line.is_uninformative:
            return f"{start}, the data would tell almost nothing about {line.parameter} that the prior does not."
        unit = self.units.get(line.parameter)
        what = line.parameter if unit is None else f"{line.parameter} ({unit})"
        low, high = (two_digits(each / 2) for each in (line.width, line.wide))
        said = f"{start}, expect {what} to within ±{low}"
        if low == high or line.wide < line.width:
            return f"{said}."
        return f"{said} if columns spread over their bounds, and ±{high} if they fill a small part."

    def _floor(self, line: ForecastLine) -> tuple[str, ...]:
        prior = f"the prior alone says ±{two_digits(line.prior / 2)}"
        if not np.isfinite(line.without_privacy):
            return (f"By comparison, {prior}.",)
        return (f"Without privacy it would be ±{two_digits(line.without_privacy / 2)}; {prior}.",)

    def warnings(self, budget: int = 0) -> tuple[str, ...]:
        """Reasons not to spend a budget: nothing would be learnt, a chain would not mix, or intervals would be wrong.

        Args:
            budget: The index of the budget in ``budgets``.

        Returns:
            Sentences; none if the budget is worth spending.
        """
        lines, reasons = self.at(budget), []
        epsilon = self.budgets[budget].epsilon
        where = f"with about {self.size:,} {UNIT_PLURALS[self.unit]} and epsilon {epsilon:g}"
        if all(line.is_uninformative for line in lines):
            reasons.append(
                f"The forecast is hopeless: {where}, intervals would be nearly as wide as the prior's. "
                "Use a larger budget, more data, fewer parameters or a stronger prior."
            )
        if self.converged[budget] < _MIN_CONVERGED_SHARE:
            reasons.append(
                f"The forecast is hopeless: {where}, {1 - self.converged[budget]:.0%} of fits to simulated "
                "tables did not converge. Use other settings or another method."
            )
        coverage = self._coverage(budget)
        # The standard error if the intervals of one table were all right or all wrong.
        error = np.sqrt(INTERVAL_LEVEL * (1 - INTERVAL_LEVEL) / self.repeats)
        if (
            self.noise_included[budget]
            and coverage < _MIN_COVERAGE - _COVERAGE_STANDARD_ERRORS * error
        ):
            reasons.append(
                f"The forecast is hopeless: {where}, only {coverage:.0%} of the {INTERVAL_LEVEL:.0%} intervals of fits to simulated "
                "tables contained the true value. Use other settings, another method, or a model that fits the scenario. "
                "If effects of the prior are so strong that outcomes exceed their bounds, use a scenario with spread below 1."
            )
        return tuple(reasons)

    def _coverage(self, budget: int) -> float:
        """The share of intervals that contained the true value."""
        return float(np.mean([line.coverage for line in self.at(budget)]))

    def __str__(self) -> str:
        widths, fits = _table_lines(self.widths()), _table_lines(self.fits())
        return "\n".join(
            [*widths, "", *self.assumptions, "", *fits, "", *self.sentences, self.about]
        )

    def widths(self) -> list[list[str]]:
        """Half widths of intervals: a row for each parameter, a column for each budget."""
        header = [
            "half width of the 90% interval",
            "prior",
            *(f"epsilon {b.epsilon:g}" for b in self.budgets),
        ]
        rows = [[*header, "no privacy"]]
        for same in zip(*map(self.at, range(len(self.budgets))), strict=True):
            first = same[0]
            widths = [range_text(line.width / 2, line.wide / 2) for line in same]
            ends = [two_digits(each / 2) for each in (first.prior, first.without_privacy)]
            rows.append([self.label(first), ends[0], *widths, ends[1]])
        return rows

    def label(self, line: ForecastLine) -> str:
        """The name of a parameter, with what one unit is."""
        unit = self.units.get(line.parameter)
        return line.parameter if unit is None else f"{line.parameter}, {unit}"

    def fits(self) -> list[list[str]]:
        """How the fits went: a row for each budget."""
        header = [
            "epsilon",
            "intervals that contained the true value",
            f"smallest {self.focus} found",
            "seconds",
        ]
        asked = [] if self.effect is None else [f"{self.focus} of {self.effect:g} found in"]
        chain = ["effective draws"] if np.isfinite(self.effective).any() else []
        rows = [[*header[:-1], *asked, *chain, header[-1]]]
        for i, budget in enumerate(self.budgets):
            line = next(each for each in self.at(i) if each.parameter == self.focus)
            chance = [] if line.chance is None else [f"{line.chance:.0%}"]
            rows.append(
                [
                    f"{budget.epsilon:g}",
                    f"{self._coverage(i):.0%}",
                    f"±{two_digits(line.detectable)}",
                    *chance,
                    *[two_digits(self.effective[i]) for _ in chain],
                    two_digits(self.seconds[i]),
                ]
            )
        return rows

    @property
    def about(self) -> str:
        """A sentence on where the numbers come from."""
        fewer = f" of {MAX_UNITS:,} {UNIT_PLURALS[self.unit]}" if self.size > MAX_UNITS else ""
        return f"From fits to {self.repeats} simulated tables{fewer}. No data has been read and nothing charged."

    def to_dict(self) -> dict[str, JSON]:
        """The forecast as plain values, for JSON."""
        return {
            "size": self.size,
            "unit": self.unit,
            "tables": self.repeats,
            "level": INTERVAL_LEVEL,
            "assumptions": list(self.assumptions),
            "sentences": list(self.sentences),
            "budgets": [
                {
                    "epsilon": budget.epsilon,
                    "delta": budget.delta,
                    "adjacency": budget.adjacency,
                    "method": self.method[i],
                    "seconds": self.seconds[i],
                    "converged": self.converged[i],
                    "effective_draws": _finite_or_none(self.effective[i]),
                    "warnings": list(self.warnings(i)),
                    "parameters": [
                        {
                            name: _finite_or_none(value)
                            for name, value in line._asdict().items()
                            if name != "epsilon"
                        }
                        for line in self.at(i)
                    ],
                }
                for i, budget in enumerate(self.budgets)
            ],
        }

    def to_json(self) -> str:
        """The forecast as JSON."""
        return json.dumps(self.to_dict(), indent=2)

    def to_pandas(self) -> "pd.DataFrame":
        """A data frame with a row for each parameter and budget."""
        import pandas as pd

        return pd.DataFrame(self.lines).set_index(["parameter", "epsilon"])


def width_chart(forecast: Forecast) -> LineChart:
    """The half widths of the intervals of all parameters, by growing epsilon."""
    order = sorted(range(len(forecast.budgets)), key=lambda i: forecast.budgets[i].epsilon)
    epsilons = [forecast.budgets[i].epsilon for i in order]
    x = log_axis("epsilon: larger means less protection", epsilons, ticks=epsilons)
    lines, floors = [], []
    for place, same in enumerate(zip(*(forecast.at(i) for i in order), strict=True)):
        colour, floor = COLOURS[place % len(COLOURS)], same[0].without_privacy / 2
        widths = [line.width / 2 for line in same]
        points = list(zip(epsilons, widths, strict=True))
        lines.append(ChartLine(forecast.label(same[0]), points, "asked", colour, has_dots=True))
        if floor > 0:
            floors.append(ChartLine("", [(x.low, floor), (x.high, floor)], "reference", colour))
    heights = [y for line in (*lines, *floors) for _, y in line.points]
    return LineChart(
        title="Half width of 90% intervals against epsilon; the table below has the numbers",
        x=x,
        y=log_axis("half width of the 90% interval", heights),
        lines=[*floors, *lines],
    )


def plot_forecast(forecast: Forecast, path: str | os.PathLike[str] | None = None) -> "Figure":
    """Plots half widths of 90% intervals against epsilon, a line for each parameter.

    Args:
        forecast: The forecast.
        path: A PNG, PDF or SVG file to write.

    Returns:
        The figure of matplotlib. Dashed lines are the half widths without privacy.
    """
    from tacit.results.plots import draw_chart, load_pyplot, saving_figure  # they load xarray

    chart, epsilons = width_chart(forecast), sorted(each.epsilon for each in forecast.budgets)
    with saving_figure(path) as keep:
        figure, axes = load_pyplot().subplots(figsize=(7.2, 4.6), layout="constrained")
        draw_chart(axes, chart)
        axes.set_xticks(epsilons, [f"{each:g}" for each in epsilons], minor=False)
        axes.set_xticks([], minor=True)
        about = f"About {forecast.size:,} {UNIT_PLURALS[forecast.unit]}; dashed: without privacy"
        axes.set_title(about, fontsize=10, loc="left")
        return keep(figure)


def forecast_html(forecast: Forecast, *, model: str, description: str, schema: str) -> str:
    """The forecast as one self-contained HTML page, for a protocol or an application.

    Args:
        forecast: The forecast.
        model: The formula, or the file of the model.
        description: The model in words.
        schema: The schema as text.

    Returns:
        HTML without scripts, fonts or pictures from elsewhere.
    """
    title = f"{model}: what {forecast.size:,} {UNIT_PLURALS[forecast.unit]} will tell"
    return render_template(
        "forecast.html",
        forecast=forecast,
        title=title,
        model=description,
        schema=schema,
        # One budget is a column of dots, which says less than the table.
        chart=width_chart(forecast) if len(forecast.budgets) > 1 else None,
        widths=forecast.widths(),
        fits=forecast.fits(),
        many=UNIT_PLURALS[forecast.unit],
        warnings=[said for i in range(len(forecast.budgets)) for said in forecast.warnings(i)],
        about=forecast.about,
    )


def _table_lines(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table: names to the left, numbers to the right."""
    header, *cells = rows
    return text_table(cells, "l" + "r" * (len(header) - 1), header).splitlines()


def _finite_or_none(value: JSON) -> JSON:
    """A value for JSON, which has no infinity and no NaN."""
    return None if isinstance(value, float) and not np.isfinite(value) else value

"""A forecast as an HTML page or as a plot."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from tacit._html import render_template
from tacit.api.forecast_result import UNIT_PLURALS, Forecast
from tacit.cli.runs import Request
from tacit.errors import InvalidArgument
from tacit.results.drawings import COLOURS, ChartLine, LineChart, log_axis
from tacit.results.plots import draw_chart, load_pyplot, saving_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


PathLike = str | os.PathLike[str]


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


def plot_forecast(forecast: Forecast, path: PathLike | None = None) -> "Figure":
    """Plots half widths of 90% intervals against epsilon, a line for each parameter.

    Args:
        forecast: The forecast.
        path: A PNG, PDF or SVG file to write.

    Returns:
        The figure of matplotlib. Dashed lines are the half widths without privacy.
    """
    chart, epsilons = width_chart(forecast), sorted(each.epsilon for each in forecast.budgets)
    with saving_figure(path) as keep:
        figure, axes = load_pyplot().subplots(figsize=(7.2, 4.6), layout="constrained")
        draw_chart(axes, chart)
        axes.set_xticks(epsilons, [f"{each:g}" for each in epsilons], minor=False)
        axes.set_xticks([], minor=True)
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
        chart=width_chart(forecast),
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

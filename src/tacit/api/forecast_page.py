"""A forecast as an HTML page or as a plot."""

import os
from typing import TYPE_CHECKING

from tacit._html import render_template
from tacit.api.forecast_result import UNIT_PLURALS, Forecast
from tacit.results.drawings import COLOURS, ChartLine, LineChart, log_axis
from tacit.results.plots import draw_chart, load_pyplot, saving_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
        chart=width_chart(forecast),
        widths=forecast.widths(),
        fits=forecast.fits(),
        many=UNIT_PLURALS[forecast.unit],
        warnings=[said for i in range(len(forecast.budgets)) for said in forecast.warnings(i)],
        about=forecast.about,
    )

"""A forecast as a page or a picture."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from tacit._html import render
from tacit.errors import InvalidArgument
from tacit.interfaces.forecasting.drawing import COLOURS, Picture, Series
from tacit.interfaces.forecasting.result import PLURAL, Forecast
from tacit.interfaces.requests import Request
from tacit.results.figures import pyplot, saved

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PathLike = str | os.PathLike[str]


def picture_of(forecast: Forecast) -> Picture:
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
    return Picture([forecast.budgets[i].epsilon for i in order], series)


def plot(forecast: Forecast, path: PathLike | None = None) -> "Figure":
    """Plots half widths of 90% intervals against epsilon, a line for each parameter.

    Args:
        forecast: The forecast.
        path: A PNG, PDF or SVG file to write.

    Returns:
        The figure of matplotlib. Dashed lines are the half widths without privacy.
    """
    picture = picture_of(forecast)
    with saved(path) as keep:
        figure, axes = pyplot().subplots(figsize=(7.2, 4.6), layout="constrained")
        for i, each in enumerate(picture.series):
            colour = COLOURS[i % len(COLOURS)]
            axes.plot(picture.epsilons, each.widths, "o-", color=colour, label=each.name)
            axes.axhline(each.floor, color=colour, linestyle="--", linewidth=1)
        axes.set(xscale="log", yscale="log", xlabel="epsilon", ylabel="half width of 90% interval")
        axes.set_xticks(picture.epsilons, [f"{each:g}" for each in picture.epsilons], minor=False)
        axes.set_xticks([], minor=True)
        axes.legend(ncols=2, fontsize=8, frameon=False)
        about = f"About {forecast.size:,} {PLURAL[forecast.unit]}; dashed: without privacy"
        axes.set_title(about, fontsize=10, loc="left")
        return keep(figure)


def page(forecast: Forecast, asked: Request) -> str:
    """The forecast as one self-contained HTML page, for a protocol or an application.

    Args:
        forecast: The forecast.
        asked: What it is about.

    Returns:
        HTML without scripts, fonts or pictures from elsewhere.
    """
    title = (
        f"{asked.formula or asked.file}: what {forecast.size:,} {PLURAL[forecast.unit]} will tell"
    )
    return render(
        "forecast.html",
        forecast=forecast,
        title=title,
        model=asked.described,
        schema=str(asked.schema),
        picture=picture_of(forecast),
        widths=forecast.widths(),
        fits=forecast.fits(),
        many=PLURAL[forecast.unit],
        warnings=[said for i in range(len(forecast.budgets)) for said in forecast.warnings(i)],
        about=forecast.about,
    )


def write_page(forecast: Forecast, path: Path, asked: Request) -> None:
    """Writes the page to a file.

    Args:
        forecast: The forecast.
        path: The file.
        asked: What it is about.

    Raises:
        InvalidArgument: If the file cannot be written.
    """
    try:
        path.write_text(page(forecast, asked), encoding="utf-8")
    except OSError as error:
        raise InvalidArgument(f"{path} cannot be written: {error.strerror}.") from None

"""Plots of posteriors and privacy curves. They need the ``plots`` extra.

Densities are drawn by ArviZ, version 0 or 1; the rest is drawn here. A result without a
guarantee, or that did not converge, has a warning above each plot. Captions say whether intervals include the
privacy noise.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from tacit._format import printed
from tacit.accounting import ADJACENCIES, Curve
from tacit.errors import InvalidArgument, TacitError
from tacit.results import drawings
from tacit.results.figures import (
    PathLike,
    arviz_library,
    caption,
    is_first_generation,
    pyplot,
    saved,
)
from tacit.results.forest import HALF, LEVEL, bars_of, labelled_draws
from tacit.results.statement import PrivacyStatement
from tacit.results.summary import coordinates
from tacit.results.wording import CONVERGED, beside

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from tacit.results.posterior import Posterior

# More could not be told apart.
_MOST_FOREST, _MOST_DIST, _MOST_LINES, _MOST_NAMED = 60, 24, 40, 20


def forest(
    posterior: "Posterior", names: Sequence[str] | None = None, path: PathLike | None = None
) -> "Figure":
    """Plots intervals and means; see `Posterior.plot_forest`."""
    with saved(path) as keep:
        _, note = _coordinates(posterior, names, _MOST_FOREST)
        panels = drawings.panels(bars_of(posterior, _MOST_FOREST, names))
        rows = [len(panel.bars) + 1 for panel in panels]
        figure, axes = pyplot().subplots(
            len(panels),
            figsize=(7.2, 0.9 + 0.3 * sum(rows)),
            squeeze=False,
            layout="constrained",
            height_ratios=rows,
        )
        for one, panel in zip(axes[:, 0], panels, strict=True):
            _draw_panel(one, panel)
        words = f"mean, {HALF:.0%} and {LEVEL:.0%} intervals"
        caption(figure, posterior.warnings, beside(words, posterior.intervals) + note)
        return keep(figure)


def _draw_panel(axes: "Axes", panel: drawings.Panel) -> None:
    """Draws the bars of a panel from the top, with a line at zero if it is on the axis."""
    colour = "#0b5cad"
    for place, bar in enumerate(panel.bars):
        axes.hlines(place, bar.lower, bar.upper, color=colour, linewidth=1.5)
        axes.hlines(place, bar.half_lower, bar.half_upper, color=colour, linewidth=4.5)
        axes.plot(bar.mean, place, "o", markersize=6, markerfacecolor="white", color=colour)
    low, high = (end * panel.axis.unit for end in (panel.axis.low, panel.axis.high))
    if low <= 0 <= high:
        axes.axvline(0, color="0.4", linewidth=1, zorder=0)
    axes.set(xlim=(low, high), ylim=(len(panel.bars) - 0.4, -0.6))
    axes.set_yticks(range(len(panel.bars)), [_plain(bar.name) for bar in panel.bars], fontsize=9)
    axes.set_title(panel.title, fontsize=9, loc="left", fontweight="bold")
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", labelsize=8)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.grid(axis="x", color="0.92", linewidth=0.6)


def dist(
    posterior: "Posterior", names: Sequence[str] | None = None, path: PathLike | None = None
) -> "Figure":
    """Plots densities with intervals; see `Posterior.plot_dist`."""
    with saved(path) as keep:
        shown, note = _coordinates(posterior, names, _MOST_DIST)
        columns = min(4, len(shown))
        rows = math.ceil(len(shown) / columns)
        size = (max(2.7 * columns, 4.5), 0.9 + 2.3 * rows)
        figure = _arviz_dist(arviz_library(), shown, size, (rows, columns))
        caption(figure, posterior.warnings, _interval_words(posterior) + note)
        return keep(figure)


def trace(posterior: "Posterior", path: PathLike | None = None) -> "Figure":
    """Plots released values over the steps of the fit; see `Posterior.plot_trace`."""
    if not posterior.trace:
        raise TacitError(
            "This posterior was not fitted step by step, so there is no trace to plot."
        )
    with saved(path) as keep:
        shown = {name: value for name, value in posterior.trace.items() if name != "accepted"}
        labels = _trace_labels(posterior)
        size = (7.2, 1.0 + 2.2 * len(shown))
        figure, axes = pyplot().subplots(
            len(shown), figsize=size, sharex=True, squeeze=False, layout="constrained"
        )
        notes = [
            _lines(one, name, value, labels)
            for one, (name, value) in zip(axes[:, 0], shown.items(), strict=True)
        ]
        axes[-1, 0].set_xlabel("step")
        caption(figure, posterior.warnings, _course_words(posterior) + max(notes, key=len))
        return keep(figure)


def privacy(statement: PrivacyStatement, path: PathLike | None = None) -> "Figure":
    """Plots epsilon over delta; see `Posterior.plot_privacy`."""
    curves = {a: statement.curve(a) for a in ADJACENCIES}
    known = {a: curve for a, curve in curves.items() if curve is not None}
    if not known:
        raise TacitError("There is no privacy curve to plot: the fit was made without privacy.")
    with saved(path) as keep:
        size = (7.2, 4.2)
        figure, axes = pyplot().subplots(figsize=size, layout="constrained")
        _draw_curves(axes, {str(a): curve for a, curve in known.items()}, statement.delta)
        for adjacency in known:
            epsilon = statement.epsilons[adjacency]
            if epsilon is not None and 0 < epsilon < math.inf:
                axes.plot(statement.delta, epsilon, "o", color="0.2", markersize=5)
                words = f"  {printed(epsilon)}"
                axes.annotate(words, (statement.delta, epsilon), va="bottom", fontsize=9)
        above = () if statement.warning is None else (statement.warning,)
        caption(figure, above, f"what the result cost one {statement.unit}")
        return keep(figure)


def privacy_curves(curves: Mapping[str, Curve], path: Path, *, title: str, delta: float) -> None:
    """Plots curves of epsilon over delta, with a line at one delta, into a file."""
    with saved(path) as keep:
        pyplot().switch_backend("Agg")  # a command needs no window
        figure, axes = pyplot().subplots(figsize=(7.2, 4.4), layout="constrained")
        _draw_curves(axes, curves, delta)
        axes.set_title(title, fontsize=10, loc="left")
        keep(figure)


def _draw_curves(axes: "Axes", curves: Mapping[str, Curve], delta: float) -> None:
    colours = len(pyplot().rcParams["axes.prop_cycle"])
    for place, (label, curve) in enumerate(curves.items()):
        points = [(d, e) for d, e in zip(*curve, strict=True) if math.isfinite(e) and e > 0]
        style = "-" if place < colours else "--"
        axes.plot(*zip(*points, strict=True), style, label=label, linewidth=1.8)
    axes.axvline(delta, color="0.6", linewidth=0.8, zorder=0)
    axes.set(xscale="log", yscale="log", xlabel="delta", ylabel="epsilon")
    axes.grid(which="major", color="0.9", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1.0, 0.5))


def _arviz_dist(
    arviz: ModuleType,
    shown: dict[str, NDArray[Any]],
    size: tuple[float, float],
    grid: tuple[int, int],
) -> "Figure":
    if not is_first_generation(arviz):
        drawn = arviz.plot_dist(
            _tree(shown),
            ci_kind="eti",
            ci_prob=LEVEL,
            point_estimate="median",
            col_wrap=grid[1],
            figure_kwargs={"figsize": size},
            visuals={"point_estimate_text": False},
            backend="matplotlib",
        )
        figure: Figure = drawn.viz["figure"].item()
        return figure
    axes = arviz.plot_posterior(
        _tree(shown)["posterior"].to_dataset(),
        hdi_prob=LEVEL,
        figsize=size,
        grid=grid,
        textsize=9,
        point_estimate=None,
        round_to=3,
    )
    below: Figure = np.ravel(axes)[0].figure
    return below


def _tree(shown: dict[str, NDArray[Any]]) -> xr.DataTree:
    labels = {label.replace("/", "::"): draws for label, draws in shown.items()}
    variables = {_plain(label): (("chain", "draw"), d[None]) for label, d in labels.items()}
    return xr.DataTree.from_dict({"posterior": xr.Dataset(variables)})


def _coordinates(
    posterior: "Posterior", names: Sequence[str] | None, most: int
) -> tuple[dict[str, NDArray[Any]], str]:
    """The draws of each coordinate to plot, by label, and a note if some are left out."""
    found = {label: draws for label, (_, draws) in labelled_draws(posterior, names).items()}
    for label, draws in found.items():
        if not np.isfinite(draws).all():
            raise TacitError(
                f"{label} has draws that are not finite; choose other parameters with names=."
            )
    if not found:
        raise InvalidArgument("There is nothing to plot: these parameters have no coordinates.")
    note = f"; the first {most} of {len(found)} coordinates" if len(found) > most else ""
    return dict(list(found.items())[:most]), note


def _plain(text: str) -> str:
    """Text in which a dollar sign does not begin a formula of matplotlib."""
    return text.replace("$", r"\$")


def _lines(axes: "Axes", name: str, values: NDArray[Any], labels: Sequence[str]) -> str:
    """Draws a line for each coordinate, or for some of many; returns a note in that case."""
    flat = values.reshape(len(values), -1)
    count = flat.shape[1]
    some = np.unique(np.linspace(0, count - 1, min(_MOST_LINES, count)).astype(int))
    lines = axes.plot(flat[:, some], linewidth=0.9, alpha=1.0 if len(some) <= 10 else 0.7)
    for place, line in enumerate(lines):  # ten colours, then the same ones with dashes
        line.set_linestyle(("-", "--", ":", "-.")[place // 10 % 4])
    axes.set_ylabel(_plain(name))
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="0.9", linewidth=0.6)
    if count > 1:
        named = labels if len(labels) == count else [f"{name}[{i}]" for i in range(count)]
        shown = [_plain(named[i]) for i in some][:_MOST_NAMED]
        more = f" and {count - len(shown)} more" if count > len(shown) else None
        axes.legend(
            lines[: len(shown)],
            shown,
            loc="center left",
            bbox_to_anchor=(1.0, 0.5),
            frameon=False,
            fontsize=8,
            title=more,
            title_fontsize=8,
        )
    return f"; at most {_MOST_LINES} coordinates each" if len(some) < count else ""


def _trace_labels(posterior: "Posterior") -> list[str]:
    """Names of the unconstrained numbers, which are those of the parameters in their order."""
    found: list[str] = []
    for name, draws in posterior.draws.items():
        axes = posterior.labels.get(name)
        found += [label for label, _ in coordinates(name, draws.shape[1:], axes)]
    return found


def _course_words(posterior: "Posterior") -> str:
    if posterior.converged is False:  # the warning above says it
        return "the course of the fit"
    return f"the course of the fit. {CONVERGED[posterior.converged].removesuffix('.')}"


def _interval_words(posterior: "Posterior") -> str:
    kind = "highest-density" if is_first_generation(arviz_library()) else "equal-tailed"
    return beside(f"{LEVEL:.0%} {kind} intervals", posterior.intervals)

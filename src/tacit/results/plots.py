"""Plots of posteriors and privacy curves with matplotlib and ArviZ, which are optional (the ``plots`` extra).

Densities are drawn by ArviZ, version 0 or 1; the rest is drawn here. A result without a guarantee, or that
did not converge, has a warning above each plot. Captions say whether intervals include the privacy noise.
"""

import math
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from tacit._precision import in_32_bits
from tacit._typing import FloatArray
from tacit.accounting import ADJACENCIES, Curve
from tacit.errors import InvalidArgument, MissingPackage, TacitError
from tacit.models.interpretation import IncrementSizes
from tacit.results import drawings
from tacit.results.drawings import (
    COLOURS,
    INNER_LEVEL,
    INTERVAL_LEVEL,
    LineChart,
    forest_bars,
    labelled_draws,
    privacy_chart,
)
from tacit.results.statement import PrivacyStatement
from tacit.results.summary import (
    CONVERGENCE_SENTENCES,
    coordinates,
    to_table_units,
    with_noise_note,
)

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from tacit.results.posterior import Posterior


# An early step may be this many times as far away as the later ones, before it is cut.
_MAX_EARLY_RATIO = 20.0
# Parts of a trace that are points of the unconstrained space.
_POSITIONS = ("mean", "theta")
_FIGURE_FORMATS = (".png", ".pdf", ".svg")
# Colours of lines by their kind; those of ``templates/page.css``.
_KIND_COLOURS = {"asked": "#0b5cad", "other": "#a84c00"}

PathLike = str | os.PathLike[str]


def add_caption(figure: "Figure", above: Sequence[str], words: str) -> None:
    """Adds a title to a figure, below warnings in red if there are any."""
    figure.set_layout_engine("constrained")  # ArviZ leaves no room on top
    if not above:
        figure.suptitle(words, fontsize=10, x=0.01, ha="left")
        return
    lines = "\n".join([*above, words])
    figure.suptitle(lines, fontsize=9, x=0.01, ha="left", color="#b3261e")


def is_legacy_arviz(arviz: ModuleType) -> bool:
    """Whether the installed ArviZ is older than version 1, which has other functions."""
    return int(str(arviz.__version__).partition(".")[0]) == 0


def load_arviz() -> ModuleType:
    """ArviZ, or an error that says how to install it."""
    load_pyplot()
    with warnings.catch_warnings():
        # Versions before 1 announce version 1 whenever they are imported.
        warnings.simplefilter("ignore", FutureWarning)
        try:
            import arviz
        except ModuleNotFoundError as error:
            raise MissingPackage("arviz", "This plot") from error
    found: ModuleType = arviz
    return found


def load_pyplot() -> ModuleType:
    """Matplotlib's pyplot, or an error that says how to install it."""
    try:
        from matplotlib import pyplot as plt
    except ModuleNotFoundError as error:
        raise MissingPackage("matplotlib", "A plot") from error
    return plt


@contextmanager
def saving_figure(path: PathLike | None) -> Iterator["Callable[[Figure], Figure]"]:
    """Yields a function that writes a figure to ``path`` and closes it.

    Without a path the figure stays open, for a notebook or a window to show. If an error is raised,
    figures that were opened meanwhile are closed.
    """
    before = set(load_pyplot().get_fignums())

    def keep(figure: "Figure") -> "Figure":
        if path is not None:
            _write_figure(figure, Path(path))
            load_pyplot().close(figure)
        return figure

    try:
        yield keep
    except BaseException:
        for opened in set(load_pyplot().get_fignums()) - before:
            load_pyplot().close(opened)
        raise


def _write_figure(figure: "Figure", path: Path) -> None:
    if path.suffix.lower() not in _FIGURE_FORMATS:
        raise InvalidArgument(
            f"Plots are written as {', '.join(_FIGURE_FORMATS)}; got {path.name!r}."
        )
    try:
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise TacitError(f"The plot could not be written to {path}: {error}.") from error


# More could not be distinguished.
_MAX_FOREST_BARS, _MAX_DENSITIES, _MAX_TRACE_LINES, _MAX_LEGEND_NAMES = 60, 24, 40, 20


def plot_forest(
    posterior: "Posterior",
    names: Sequence[str] | None = None,
    path: PathLike | None = None,
    *,
    ratios: bool = False,
) -> "Figure":
    """Plots intervals and means; see `Posterior.plot_forest`."""
    ratio = None if posterior.interpretation is None else posterior.interpretation.ratio
    with saving_figure(path) as keep:
        _, note = _selected_draws(posterior, names, _MAX_FOREST_BARS)
        bars = forest_bars(posterior, _MAX_FOREST_BARS, names)
        if ratios:
            bars = [bar for bar in bars if bar.is_ratio]
        if not bars or (ratios and ratio is None):
            raise InvalidArgument(
                "There is no ratio to plot: the exponentials of these parameters are no ratios."
            )
        panels = drawings.forest_panels(bars)
        rows = [len(panel.bars) + 1 for panel in panels]
        figure, axes = load_pyplot().subplots(
            len(panels),
            figsize=(7.2, 0.9 + 0.3 * sum(rows)),
            squeeze=False,
            layout="constrained",
            height_ratios=rows,
        )
        for one, panel in zip(axes[:, 0], panels, strict=True):
            _draw_panel(one, panel, ratio if ratios else None)
        words = f"mean, {INNER_LEVEL:.0%} and {INTERVAL_LEVEL:.0%} intervals"
        add_caption(figure, posterior.warnings, with_noise_note(words, posterior.intervals) + note)
        return keep(figure)


def plot_comparison(
    fits: Mapping[str, "Posterior"],
    title: str,
    path: PathLike | None = None,
    units: IncrementSizes | None = None,
) -> "Figure":
    """Plots the intervals of several fits of one model beside each other.

    Args:
        fits: The posteriors, by the names of the fits.
        title: A title.
        path: A file to save the figure to.
        units: Other units for some columns, as for `Posterior.summary`.

    Returns:
        The matplotlib figure.
    """
    with saving_figure(path) as keep:
        bars = {
            name: forest_bars(each, _MAX_FOREST_BARS, units=units) for name, each in fits.items()
        }
        rows = len(next(iter(bars.values())))
        figure, axes = load_pyplot().subplots(figsize=(7.2, 1.2 + 0.6 * rows), layout="constrained")
        for place, (name, own) in enumerate(bars.items()):
            shift = 0.22 * (place - (len(fits) - 1) / 2)
            _draw_bars(axes, own, COLOURS[place % len(COLOURS)], shift, name)
        axes.axvline(0, color="0.4", linewidth=1, zorder=0)
        figure.legend(loc="outside lower center", ncols=len(fits), frameon=False)
        axes.set_title(title, fontsize=10, loc="left")
        return keep(figure)


def _draw_panel(axes: "Axes", panel: drawings.Panel, ratio: str | None = None) -> None:
    """Draws the bars of a panel from the top, with a line at zero if it is on the axis.

    With ``ratio``, the name of what exponentials are, the axis has their numbers.
    """
    _draw_bars(axes, panel.bars)
    for height, bar in enumerate(panel.bars):  # arrows where an interval goes on beyond the axis
        for end, mark, at in ((bar.lower, "<", 0.0), (bar.upper, ">", 1.0)):
            if not 0 <= panel.axis.share(end) <= 1:
                style = {"color": _KIND_COLOURS["asked"], "markersize": 6, "clip_on": False}
                axes.plot(at, height, mark, transform=axes.get_yaxis_transform(), **style)  # type: ignore[arg-type]
    low, high = (end * panel.axis.unit for end in (panel.axis.low, panel.axis.high))
    if low <= 0 <= high:
        axes.axvline(0, color="0.4", linewidth=1, zorder=0)
    axes.set_xlim(low, high)
    axes.set_title(panel.title, fontsize=9, loc="left", fontweight="bold")
    if ratio is not None:
        ticks = [(low + share * (high - low), text) for share, text in panel.axis.ratio_ticks()]
        axes.set_xticks([at for at, _ in ticks], [text for _, text in ticks])
        axes.set_xlabel(ratio, fontsize=9)


def _draw_bars(
    axes: "Axes",
    bars: Sequence[drawings.Bar],
    colour: str = _KIND_COLOURS["asked"],
    shift: float = 0.0,
    label: str = "",
) -> None:
    """Draws a mean and two intervals for each bar, from the top; ``shift`` moves them down."""
    for place, bar in enumerate(bars):
        height, inner = place + shift, (bar.half_lower, bar.half_upper)
        axes.hlines(height, bar.lower, bar.upper, color=colour, linewidth=1.5)
        axes.hlines(height, *inner, color=colour, linewidth=4.5, label="" if place else label)
        axes.plot(bar.mean, height, "o", markersize=6, markerfacecolor="white", color=colour)
    axes.set_yticks(range(len(bars)), [_escape_mathtext(bar.name) for bar in bars], fontsize=9)
    axes.set_ylim(len(bars) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", labelsize=8)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.grid(axis="x", color="0.92", linewidth=0.6)


def plot_dist(
    posterior: "Posterior", names: Sequence[str] | None = None, path: PathLike | None = None
) -> "Figure":
    """Plots densities with intervals; see `Posterior.plot_dist`."""
    with saving_figure(path) as keep:
        shown, note = _selected_draws(posterior, names, _MAX_DENSITIES)
        columns = min(4, len(shown))
        rows = math.ceil(len(shown) / columns)
        size = (max(2.7 * columns, 4.5), 0.9 + 2.3 * rows)
        arviz = load_arviz()
        figure = _arviz_dist(arviz, shown, size, (rows, columns))
        kind = "highest-density" if is_legacy_arviz(arviz) else "equal-tailed"
        words = f"{INTERVAL_LEVEL:.0%} {kind} intervals"
        add_caption(figure, posterior.warnings, with_noise_note(words, posterior.intervals) + note)
        return keep(figure)


def plot_trace(posterior: "Posterior", path: PathLike | None = None) -> "Figure":
    """Plots released values over the steps of the fit; see `Posterior.plot_trace`."""
    if not posterior.trace:
        raise TacitError(
            "This posterior was not fitted step by step, so there is no trace to plot."
        )
    with saving_figure(path) as keep:
        shown = _trace_panels(posterior)
        size = (7.2, 1.0 + 2.2 * len(shown))
        figure, axes = load_pyplot().subplots(
            len(shown), figsize=size, sharex=True, squeeze=False, layout="constrained"
        )
        notes = [
            _draw_trace_lines(one, *panel) for one, panel in zip(axes[:, 0], shown, strict=True)
        ]
        caption = "the course of the fit"
        if posterior.converged is not False:  # if it did not converge, the warning above says it
            caption += f". {CONVERGENCE_SENTENCES[posterior.converged].removesuffix('.')}"
        axes[-1, 0].set_xlabel("step")
        add_caption(figure, posterior.warnings, f"{caption}{max(notes, key=len)}")
        return keep(figure)


def plot_privacy(statement: PrivacyStatement, path: PathLike | None = None) -> "Figure":
    """Plots epsilon over delta; see `Posterior.plot_privacy`."""
    curves = {a: curve for a in ADJACENCIES if (curve := statement.curve(a)) is not None}
    if not curves:
        raise TacitError("There is no privacy curve to plot: the fit was made without privacy.")
    known = {a: statement.epsilons[a] for a in curves}
    marked = {a: (statement.delta, e) for a, e in known.items() if e and math.isfinite(e)}
    chart = privacy_chart(curves, marked, asked=statement.adjacency)
    with saving_figure(path) as keep:
        figure, axes = load_pyplot().subplots(figsize=(7.2, 4.2), layout="constrained")
        draw_chart(axes, chart, log_y=True)
        axes.axvline(statement.delta, color="0.6", linewidth=0.8, zorder=0)
        above = () if statement.warning is None else (statement.warning,)
        add_caption(figure, above, f"what the result cost one {statement.unit}")
        return keep(figure)


def plot_privacy_curves(
    curves: Mapping[str, Curve], path: Path, *, title: str, delta: float
) -> None:
    """Plots curves of epsilon over delta, with a line at one delta, into a file."""
    with saving_figure(path) as keep:
        load_pyplot().switch_backend("Agg")  # a command needs no window
        figure, axes = load_pyplot().subplots(figsize=(7.2, 4.4), layout="constrained")
        draw_chart(axes, privacy_chart(curves, {}), log_y=True)
        axes.axvline(delta, color="0.6", linewidth=0.8, zorder=0)
        axes.set_title(title, fontsize=10, loc="left")
        keep(figure)


def draw_chart(axes: "Axes", chart: LineChart, *, log_y: bool = False) -> None:
    """Draws a chart: its lines, marks, axes and legend.

    Args:
        axes: The axes of matplotlib.
        chart: The chart.
        log_y: Whether the axis upwards is logarithmic even if that of the chart is not.
    """
    for line in chart.lines:
        axes.plot(
            *zip(*line.points, strict=True),
            marker="o" if line.has_dots else None,
            linestyle="-" if line.kind == "asked" else "--",
            linewidth=1.0 if line.kind == "reference" else 1.8,
            color=line.colour or _KIND_COLOURS[line.kind],
            label=line.name or None,
        )
    for mark in chart.marks:
        axes.plot(mark.x, mark.y, "o", color="0.2", markersize=5)
        axes.annotate(f"  {mark.text}", (mark.x, mark.y), va="bottom", fontsize=9)
    axes.set(xlabel=chart.x.name, ylabel=chart.y.name)
    axes.set_xscale("log" if chart.x.is_log else "linear")
    axes.set_yscale("log" if chart.y.is_log or log_y else "linear")
    axes.grid(which="major", color="0.9", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1.0, 0.5))


def _arviz_dist(
    arviz: ModuleType,
    shown: dict[str, FloatArray],
    size: tuple[float, float],
    grid: tuple[int, int],
) -> "Figure":
    if not is_legacy_arviz(arviz):
        drawn = arviz.plot_dist(
            _draws_tree(shown),
            ci_kind="eti",
            ci_prob=INTERVAL_LEVEL,
            point_estimate="median",
            col_wrap=grid[1],
            figure_kwargs={"figsize": size},
            visuals={"point_estimate_text": False},
            backend="matplotlib",
        )
        figure: Figure = drawn.viz["figure"].item()
        return figure
    axes = arviz.plot_posterior(
        _draws_tree(shown)["posterior"].to_dataset(),
        hdi_prob=INTERVAL_LEVEL,
        figsize=size,
        grid=grid,
        textsize=9,
        point_estimate=None,
        round_to=3,
    )
    below: Figure = np.ravel(axes)[0].figure
    return below


def _draws_tree(shown: dict[str, FloatArray]) -> "xr.DataTree":
    import xarray as xr  # it takes a while to load

    labels = {label.replace("/", "::"): draws for label, draws in shown.items()}
    variables = {
        _escape_mathtext(label): (("chain", "draw"), d[None]) for label, d in labels.items()
    }
    return xr.DataTree.from_dict({"posterior": xr.Dataset(variables)})


def _selected_draws(
    posterior: "Posterior", names: Sequence[str] | None, most: int
) -> tuple[dict[str, FloatArray], str]:
    """The draws of each coordinate to plot, by label, and a note if some are left out."""
    found = {label: each.values for label, each in labelled_draws(posterior, names).items()}
    for label, draws in found.items():
        if not np.isfinite(draws).all():
            raise TacitError(
                f"{label} has draws that are not finite; choose other parameters with names=."
            )
    if not found:
        raise InvalidArgument("There is nothing to plot: these parameters have no coordinates.")
    note = f"; the first {most} of {len(found)} coordinates" if len(found) > most else ""
    return dict(list(found.items())[:most]), note


def _escape_mathtext(text: str) -> str:
    """Text in which a dollar sign does not begin a formula of matplotlib."""
    return text.replace("$", r"\$")


def _draw_trace_lines(axes: "Axes", name: str, values: FloatArray, labels: Sequence[str]) -> str:
    """Draws a line for each coordinate, or for some of many; returns a note in that case."""
    flat = values.reshape(len(values), -1)
    count = flat.shape[1]
    some = np.unique(np.linspace(0, count - 1, min(_MAX_TRACE_LINES, count)).astype(int))
    lines = axes.plot(flat[:, some], linewidth=0.9, alpha=1.0 if len(some) <= 10 else 0.7)
    for place, line in enumerate(lines):  # ten colours, then the same ones with dashes
        line.set_linestyle(("-", "--", ":", "-.")[place // 10 % 4])
    axes.set_ylabel(_escape_mathtext(name))
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="0.9", linewidth=0.6)
    late = flat[len(flat) // 4 :]
    if np.isfinite(flat).all() and np.ptp(flat) > _MAX_EARLY_RATIO * np.ptp(late) > 0:
        margin = 0.3 * np.ptp(late)  # an early step is cut, so that the others can be seen
        axes.set_ylim(late.min() - margin, late.max() + margin)
    if count > 1:
        named = labels if len(labels) == count else [f"{name}[{i}]" for i in range(count)]
        shown = [_escape_mathtext(named[i]) for i in some][:_MAX_LEGEND_NAMES]
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
    return f"; at most {_MAX_TRACE_LINES} coordinates each" if len(some) < count else ""


@in_32_bits
def _trace_panels(posterior: "Posterior") -> list[tuple[str, FloatArray, list[str]]]:
    """Parts of a trace to plot, with names of their lines.

    Where a fit was at each step is shown as its draws are: in the units of the summary, and numbers of unlike size apart.
    """
    found, labels, model = [], _trace_labels(posterior), posterior.model
    if model is None and posterior.recipe is not None and posterior.schema is not None:
        from tacit.results.predictive import model_from_spec

        model = model_from_spec(posterior.recipe, posterior.schema)
    for name, value in posterior.trace.items():
        if name == "accepted":
            continue
        if model is None or name not in _POSITIONS or value.shape[1:] != (model.dimension,):
            found.append((name, value, labels))
            continue
        import jax.numpy as jnp

        from tacit.inference.method import constrained_draws

        vectors = jnp.asarray(value, jnp.float32)
        scaled = to_table_units(constrained_draws(model, vectors), posterior.interpretation)
        flat = np.concatenate(
            [scaled[each].reshape(len(value), -1) for each in posterior.draws], axis=1
        )
        groups = drawings.groups_by_size(np.abs(flat[len(flat) // 4 :]).max(axis=0).tolist())
        for group in groups:
            names = [labels[place] for place in group]
            found.append((name if len(names) > 1 else names[0], flat[:, group], names))
    return found


def _trace_labels(posterior: "Posterior") -> list[str]:
    """Names of the numbers of the parameters, in their order."""
    found: list[str] = []
    for name, draws in posterior.draws.items():
        axes = posterior.labels.get(name)
        found += [label for label, _ in coordinates(name, draws.shape[1:], axes)]
    return found

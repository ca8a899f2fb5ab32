"""Pictures of public values. Needs the ``plots`` extra.

Densities and forests are ArviZ's, of whichever generation is installed; the rest is drawn here.
A result that has no guarantee, or did not converge, says so on top of each; and intervals whether
the noise is in them.
"""

import math
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tacit._format import printed
from tacit.accounting import ADJACENCIES, Curve
from tacit.errors import InvalidArgument, TacitError
from tacit.results.statement import PrivacyStatement
from tacit.results.summary import coordinates
from tacit.results.wording import CONVERGED, beside

if TYPE_CHECKING:
    from tacit.results.posterior import Posterior

_LEVEL = 0.9
# More than these cannot be told apart on a page.
_MOST_FOREST, _MOST_DIST, _MOST_LINES = 60, 24, 40
_FORMATS = (".png", ".pdf", ".svg")

PathLike = str | os.PathLike[str]


def forest(
    posterior: "Posterior", names: Sequence[str] | None = None, path: PathLike | None = None
) -> Any:
    """Each coordinate's interval, half interval and middle, one below the other."""
    with _saved(path) as keep:
        shown, note = _coordinates(posterior, names, _MOST_FOREST)
        size = (7.2, 1.4 + 0.32 * len(shown))
        figure = _arviz_forest(_arviz(), shown, size)
        _caption(figure, posterior.warnings, _interval_words(posterior) + note)
        return keep(figure)


def dist(
    posterior: "Posterior", names: Sequence[str] | None = None, path: PathLike | None = None
) -> Any:
    """The density of each coordinate, with its interval."""
    with _saved(path) as keep:
        shown, note = _coordinates(posterior, names, _MOST_DIST)
        columns = min(4, len(shown))
        rows = math.ceil(len(shown) / columns)
        size = (max(2.7 * columns, 4.5), 0.9 + 2.3 * rows)
        figure = _arviz_dist(_arviz(), shown, size, (rows, columns))
        _caption(figure, posterior.warnings, _interval_words(posterior) + note)
        return keep(figure)


def trace(posterior: "Posterior", path: PathLike | None = None) -> Any:
    """Released values over the steps of the fit."""
    if not posterior.trace:
        raise TacitError("This posterior was not fitted step by step: there is no trace to draw.")
    with _saved(path) as keep:
        shown = {name: value for name, value in posterior.trace.items() if name != "accepted"}
        size = (7.2, 1.0 + 1.9 * len(shown))
        figure, axes = _pyplot().subplots(
            len(shown), figsize=size, sharex=True, squeeze=False, layout="constrained"
        )
        notes = [
            _lines(one, name, value)
            for one, (name, value) in zip(axes[:, 0], shown.items(), strict=True)
        ]
        axes[-1, 0].set_xlabel("step")
        _caption(figure, posterior.warnings, _course_words(posterior) + max(notes, key=len))
        return keep(figure)


def privacy(statement: PrivacyStatement, path: PathLike | None = None) -> Any:
    """Epsilon against delta under each adjacency, with what was asked for marked."""
    curves = {a: statement.curve(a) for a in ADJACENCIES}
    known = {a: curve for a, curve in curves.items() if curve is not None}
    if not known:
        raise TacitError("There is no privacy curve to draw: the fit was made without privacy.")
    with _saved(path) as keep:
        size = (7.2, 4.2)
        figure, axes = _pyplot().subplots(figsize=size, layout="constrained")
        _draw_curves(axes, {str(a): curve for a, curve in known.items()}, statement.delta)
        for adjacency in known:
            epsilon = statement.epsilons[adjacency]
            if epsilon is not None and 0 < epsilon < math.inf:
                axes.plot(statement.delta, epsilon, "o", color="0.2", markersize=5)
                words = f"  {printed(epsilon)}"
                axes.annotate(words, (statement.delta, epsilon), va="bottom", fontsize=9)
        above = () if statement.warning is None else (statement.warning,)
        _caption(figure, above, f"what the result cost one {statement.unit}")
        return keep(figure)


def privacy_curves(curves: Mapping[str, Curve], path: Path, *, title: str, delta: float) -> None:
    """Epsilon against delta, a line for each curve, with a rule at the delta in question."""
    with _saved(path) as keep:
        figure, axes = _pyplot(headless=True).subplots(figsize=(7.2, 4.4), layout="constrained")
        _draw_curves(axes, curves, delta)
        axes.set_title(title, fontsize=10, loc="left")
        keep(figure)


def _draw_curves(axes: Any, curves: Mapping[str, Curve], delta: float) -> None:
    colours = len(_pyplot().rcParams["axes.prop_cycle"])
    for place, (label, curve) in enumerate(curves.items()):
        points = [(d, e) for d, e in zip(*curve, strict=True) if math.isfinite(e) and e > 0]
        style = "-" if place < colours else "--"
        axes.plot(*zip(*points, strict=True), style, label=label, linewidth=1.8)
    axes.axvline(delta, color="0.6", linewidth=0.8, zorder=0)
    axes.set(xscale="log", yscale="log", xlabel="delta", ylabel="epsilon")
    axes.grid(which="major", color="0.9", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1.0, 0.5))


def _arviz_forest(arviz: Any, shown: dict[str, NDArray[Any]], size: tuple[float, float]) -> Any:
    if not _is_first_generation(arviz):
        drawn = arviz.plot_forest(
            _tree(shown),
            combined=True,
            ci_kind="eti",
            ci_probs=(0.5, _LEVEL),
            point_estimate="median",
            figure_kwargs={"figsize": size},
            backend="matplotlib",
        )
        figure = drawn.viz["figure"].item()
        figure.axes[0].xaxis.set_visible(False)  # the column of labels has no scale
        figure.axes[0].spines["bottom"].set_visible(False)
        return figure
    axes = arviz.plot_forest(
        _tree(shown)["posterior"].to_dataset(),
        combined=True,
        hdi_prob=_LEVEL,
        figsize=size,
        textsize=10,
    )
    axes[0].set_title("")
    axes[0].spines["top"].set_visible(False)
    return axes[0].figure


def _arviz_dist(
    arviz: Any, shown: dict[str, NDArray[Any]], size: tuple[float, float], grid: tuple[int, int]
) -> Any:
    if not _is_first_generation(arviz):
        drawn = arviz.plot_dist(
            _tree(shown),
            ci_kind="eti",
            ci_prob=_LEVEL,
            point_estimate="median",
            col_wrap=grid[1],
            figure_kwargs={"figsize": size},
            visuals={"point_estimate_text": False},
            backend="matplotlib",
        )
        return drawn.viz["figure"].item()
    axes = arviz.plot_posterior(
        _tree(shown)["posterior"].to_dataset(),
        hdi_prob=_LEVEL,
        figsize=size,
        grid=grid,
        textsize=9,
        point_estimate=None,
        round_to=3,
    )
    return np.ravel(axes)[0].figure


def _tree(shown: dict[str, NDArray[Any]]) -> Any:
    import xarray as xr

    labels = {label.replace("/", "::"): draws for label, draws in shown.items()}
    # A dollar sign would begin a formula.
    variables = {
        label.replace("$", r"\$"): (("chain", "draw"), d[None]) for label, d in labels.items()
    }
    return xr.DataTree.from_dict({"posterior": xr.Dataset(variables)})


def _coordinates(
    posterior: "Posterior", names: Sequence[str] | None, most: int
) -> tuple[dict[str, NDArray[Any]], str]:
    """The coordinates to draw, by label, and a note if some are left out."""
    chosen = list(posterior.draws) if names is None else _listed(names)
    found: dict[str, NDArray[Any]] = {}
    for name in chosen:
        if name not in posterior.draws:
            raise InvalidArgument(f"{name!r} is none of {', '.join(posterior.draws)}.")
        draws = posterior.draws[name]
        if not np.isfinite(draws).all():
            raise TacitError(f"{name} has draws that are not finite; choose others by names=.")
        columns = draws.reshape(len(draws), -1).T
        axes = posterior.labels.get(name)
        labels = [label for label, _ in coordinates(name, draws.shape[1:], axes)]
        found |= dict(zip(labels, columns, strict=True))
    if not found:
        raise InvalidArgument("There is nothing to draw: these parameters have no coordinates.")
    note = f"; the first {most} of {len(found)} coordinates" if len(found) > most else ""
    return dict(list(found.items())[:most]), note


def _listed(names: Sequence[str]) -> list[str]:
    return [names] if isinstance(names, str) else list(names)


def _lines(axes: Any, name: str, values: NDArray[Any]) -> str:
    """A line for each coordinate; what cannot be told apart is thinned, which is noted."""
    flat = values.reshape(len(values), -1)
    some = np.unique(np.linspace(0, flat.shape[1] - 1, min(_MOST_LINES, flat.shape[1])).astype(int))
    axes.plot(flat[:, some], linewidth=0.9, alpha=1.0 if len(some) <= 10 else 0.5)
    axes.set_ylabel(name.replace("$", r"\$"))
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="0.9", linewidth=0.6)
    return f"; at most {_MOST_LINES} coordinates each" if len(some) < flat.shape[1] else ""


def _course_words(posterior: "Posterior") -> str:
    if posterior.converged is False:  # which is said above
        return "the course of the fit"
    return f"the course of the fit. {CONVERGED[posterior.converged].removesuffix('.')}"


def _caption(figure: Any, above: Sequence[str], words: str) -> None:
    """What is shown, and above it, in red, why it is not to be released or relied on."""
    figure.set_layout_engine("constrained")  # ArviZ leaves no room on top
    if not above:
        figure.suptitle(words, fontsize=10, x=0.01, ha="left")
        return
    lines = "\n".join([*above, words])
    figure.suptitle(lines, fontsize=9, x=0.01, ha="left", color="#b3261e")


def _interval_words(posterior: "Posterior") -> str:
    kind = "highest-density" if _is_first_generation(_arviz()) else "equal-tailed"
    return beside(f"{_LEVEL:.0%} {kind} intervals", posterior.intervals)


def _is_first_generation(arviz: Any) -> bool:
    return str(arviz.__version__).startswith("0.")


def _arviz() -> Any:
    _pyplot()
    with warnings.catch_warnings():
        # Its first generation announces the second whenever it is imported.
        warnings.simplefilter("ignore", FutureWarning)
        try:
            import arviz
        except ImportError as error:
            raise TacitError("This plot needs ArviZ: pip install 'tacit[plots]'.") from error
    return arviz


def _pyplot(*, headless: bool = False) -> Any:
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise TacitError("Plots need matplotlib: pip install 'tacit[plots]'.") from error
    if headless:
        mpl.use("Agg")
    import matplotlib.pyplot as plt

    return plt


@contextmanager
def _saved(path: PathLike | None) -> Iterator[Any]:
    """Hands on what writes a figure to ``path``, if there is one, and then closes it.

    Without a path the figure stays open, for a notebook or a window to show.
    """
    before = set(_pyplot().get_fignums())

    def keep(figure: Any) -> Any:
        if path is not None:
            _write(figure, Path(path))
            _pyplot().close(figure)
        return figure

    try:
        yield keep
    except BaseException:
        for opened in set(_pyplot().get_fignums()) - before:
            _pyplot().close(opened)
        raise


def _write(figure: Any, path: Path) -> None:
    if path.suffix.lower() not in _FORMATS:
        raise InvalidArgument(f"Plots are written as {', '.join(_FORMATS)}; got {path.name!r}.")
    try:
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise TacitError(f"The plot could not be written to {path}: {error}.") from error

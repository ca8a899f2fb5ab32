"""Survival curves and restricted mean survival times from the draws of a posterior: free of charge, and without a row."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tacit import _validate
from tacit.errors import InvalidArgument
from tacit.results import effects

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from tacit.results.posterior import Posterior

# How many times a curve has if none are given.
_CURVE_TIMES = 61


def survival(
    posterior: "Posterior",
    times: Sequence[float] | float | None = None,
    at: effects.At | None = None,
    rmst: float | None = None,
    level: float = 0.9,
) -> "pd.DataFrame":
    """See `Posterior.survival`."""
    import pandas as pd

    means = _time_means(posterior)
    longest = float(means.column.high)
    if times is None:
        chosen = [] if rmst is not None else np.linspace(0, longest, _CURVE_TIMES).tolist()
    else:
        chosen = [_validate.non_negative("times", each) for each in np.atleast_1d(times).tolist()]
    asked = [("survival", each) for each in chosen]
    if rmst is not None:
        asked.append(("restricted mean", _validate.positive("rmst", rmst)))
    if not asked:
        raise InvalidArgument("Pass times, rmst, or both.")
    table = effects.grid(posterior, means, at or {})
    draws = posterior.model_draws
    curves = means.time_curves(
        draws, means.linear_predictor(draws, effects.encode_grid(means, table))
    )
    assert curves is not None
    found = []
    for quantity, time in asked:
        if quantity != "survival":
            values = curves.restricted_mean(time)
        elif time > 0:
            values = curves.survival(time)
        else:  # nobody has had the event at the beginning
            values = np.ones_like(curves.survival(longest))
        rows = len(next(iter(table.values()), [0]))
        labels = {"quantity": [quantity] * rows, "time": [time] * rows}
        found.append(effects.frame_of(means, {**table, **labels}, values, level))
    # All times of a curve one below the other.
    return pd.concat(found).sort_index(kind="stable").reset_index(drop=True)


def _time_means(posterior: "Posterior") -> effects.FormulaMeans:
    """The means of a formula whose outcome is a time; raises if it is not."""
    means = effects.formula_means(posterior)
    if means.spec.family not in effects.TIME_FAMILIES:
        raise InvalidArgument(
            f"Survival curves are for {', '.join(effects.TIME_FAMILIES)}; this is a model of the "
            f"{means.spec.family} family."
        )
    return means


def plot_survival(
    posterior: "Posterior",
    times: Sequence[float] | None = None,
    by: str | None = None,
    at: effects.At | None = None,
    path: str | os.PathLike[str] | None = None,
) -> "Figure":
    """See `Posterior.plot_survival`."""
    from matplotlib.figure import Figure

    means = _time_means(posterior)
    asked = dict(at or {})
    if by is not None:
        asked = {by: asked.get(by, "all"), **{n: v for n, v in asked.items() if n != by}}
    frame = survival(posterior, times, asked)
    names = [name for name in asked if len(set(frame[name])) > 1]
    figure = Figure(figsize=(6, 3.8), layout="constrained")
    axes = figure.subplots()
    groups = frame.groupby(names, sort=False) if names else [((), frame)]
    for i, (label, curve) in enumerate(groups):
        low, high = curve.columns[-2:]
        words = ", ".join(effects.value_text(each) for each in label)
        colour = f"C{i % 10}"
        axes.plot(curve["time"], curve["mean"], color=colour, label=words)
        axes.fill_between(
            curve["time"], curve[low], curve[high], color=colour, alpha=0.2, linewidth=0
        )
    axes.set_ylim(0, 1)
    axes.set_xlim(0, float(frame["time"].max()))
    unit = "" if means.column.measured_in is None else f" ({means.column.measured_in})"
    axes.set_xlabel(means.outcome + unit)
    axes.set_ylabel("probability of no event")
    axes.spines[["top", "right"]].set_visible(False)
    if names:
        axes.legend(title=", ".join(names), frameon=False, fontsize=8)
    if path is not None:
        figure.savefig(path, dpi=150)
    return figure

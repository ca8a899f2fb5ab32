"""Pictures of public values. Needs the ``plots`` extra."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tacit.accounting import Curve
from tacit.errors import TacitError


def privacy_curves(curves: Mapping[str, Curve], path: Path, *, title: str, delta: float) -> None:
    """Epsilon against delta, a line for each curve, with a rule at the delta in question."""
    plt = _pyplot()
    figure, axes = plt.subplots(figsize=(7.2, 4.4), layout="constrained")
    try:
        for number, (label, curve) in enumerate(curves.items()):
            points = [(d, e) for d, e in zip(*curve, strict=True) if math.isfinite(e) and e > 0]
            style = "-" if number < len(plt.rcParams["axes.prop_cycle"]) else "--"
            axes.plot(*zip(*points, strict=True), style, label=label, linewidth=1.8)
        axes.axvline(delta, color="0.6", linewidth=0.8, zorder=0)
        axes.set(xscale="log", yscale="log", xlabel="delta", ylabel="epsilon")
        axes.set_title(title, fontsize=10, loc="left")
        axes.grid(which="major", color="0.9", linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1.0, 0.5))
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as error:
        raise TacitError(f"The plot could not be written to {path}: {error}.") from error
    finally:
        plt.close(figure)


def _pyplot() -> Any:
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise TacitError("Plots need matplotlib: pip install 'tacit[plots]'.") from error
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    return plt

"""Sweeps of DPVI over one parameter: runs at every value, curves, and claims that they share."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from logistic import (
    HEADER,
    MOMENTS,
    Line,
    Table,
    advanced_sigma,
    cost,
    draw,
    lines,
    published_runs,
)
from reproduction import Setting, Verdict, save_figure, save_table

# The thesis: noise levels of the authors' scripts, and the number of steps.
SIGMAS = {"Abalone": (2.0, 4.0, 6.0, 8.0, 10.0), "Adult": (0.4, 0.8, 1.2, 1.6, 2.0)}
STEPS = 2000


class Point(NamedTuple):
    """A value of the parameter that is swept, with the sampling ratio and threshold of its runs."""

    value: float
    rate: float
    clip: float


class Length(NamedTuple):
    """How long a sweep is: which values of many, how many steps, and how many runs."""

    every: int
    steps: int
    runs: int


def thesis_length(setting: Setting, steps: int = STEPS) -> Length:
    """Five runs; ten, as the thesis says, if asked for."""
    every, runs = setting.pick(quick=4, usual=1), setting.pick(quick=2, usual=5, paper=10)
    return Length(every, setting.pick(quick=steps // 10, usual=steps), runs)


def abstract_length(setting: Setting, steps: int) -> Length:
    """Ten runs, as the extended abstract says."""
    every, runs = setting.pick(quick=2, usual=1), setting.pick(quick=2, usual=10)
    return Length(every, setting.pick(quick=steps // 10, usual=steps), runs)


def swept(
    data: Table,
    points: Sequence[Point],
    length: Length,
    noise: Callable[[float, int], tuple[Sequence[float], np.ndarray]],
) -> list[Line]:
    """DPVI at every value; ``noise`` has sigmas and their epsilons by sampling ratio and steps."""
    found = []
    for value, rate, clip in points[:: length.every]:
        sigmas, epsilons = noise(rate, length.steps)
        accurate, density = published_runs(
            data, sigmas, rate=rate, steps=length.steps, clip=clip, runs=length.runs
        )
        found.append(
            Line(value=value, sigmas=sigmas, epsilons=epsilons, found=accurate, density=density)
        )
    return found


def swept_in_thesis(setting: Setting, data: Table, points: Sequence[Point]) -> list[Line]:
    """At the thesis' noise levels, epsilons by the moments accountant."""
    length = thesis_length(setting)
    sigmas = SIGMAS[data.name][:: length.every]
    return swept(
        data, points, length, lambda rate, steps: (sigmas, cost(MOMENTS, sigmas, rate, steps))
    )


def swept_in_abstract(
    data: Table, points: Sequence[Point], length: Length, asked: Sequence[float]
) -> list[Line]:
    """At the noise that the abstract's own formula asks for at each epsilon."""

    def noise(rate: float, steps: int) -> tuple[Sequence[float], np.ndarray]:
        return [advanced_sigma(e, rate, steps) for e in asked], np.array(asked)

    return swept(data, points, length, noise)


class Sheet:
    """A figure with a panel for each table, and the numbers behind it."""

    def __init__(self, figure: Any) -> None:
        self._figure, self._numbers = figure, []

    def panel(
        self,
        axis: Any,
        data: Table,
        found: Sequence[Line],
        ours: Mapping[str, tuple[Sequence[float], np.ndarray]],
        label: Callable[[Line], str],
        legend: Callable[[Line], str] | None = None,
    ) -> None:
        """A curve for every value, and one for each of Tacit's methods."""
        for i, line in enumerate(found):
            draw(axis, line.epsilons, line.found, (legend or label)(line), color=f"C{i}")
            self._numbers += lines(data.name, label(line), line.sigmas, line.epsilons, line.found)
        for (name, (asked, runs)), colour in zip(ours.items(), ("black", "dimgray"), strict=False):
            draw(axis, asked, runs, name, color=colour, linestyle=":")
            self._numbers += lines(data.name, name, [""] * len(asked), asked, runs)

    def save(self, setting: Setting, name: str) -> None:
        """Writes the figure and the numbers."""
        self._figure.tight_layout()
        save_figure(setting, name, self._figure)
        save_table(setting, name, HEADER, self._numbers)


def crosses(axis: Any, epsilons: np.ndarray, stored: np.ndarray, errors: np.ndarray) -> None:
    """The authors' stored results, sigmas by values, in the colours of their curves."""
    for i in range(stored.shape[1]):
        axis.errorbar(
            epsilons[:, i], stored[:, i], yerr=errors[:, i], fmt="x", color=f"C{i}", markersize=5,
            linewidth=0.8, label="as stored by the authors" if i == 0 else None,
        )  # fmt: skip


def listed(found: Sequence[Line], epsilon: float) -> str:
    """Accuracies of all thresholds at an epsilon."""
    return ", ".join(f"c={line.value:g}: {line.at(epsilon)[0]:.4f}" for line in found)


def best_of(found: Sequence[Line], asked: Sequence[float]) -> list[tuple[tuple[float, float], ...]]:
    """The best mean accuracy and the best log density at each epsilon, with standard errors."""
    return [
        (max(line.at(e) for line in found), max(line.density_at(e) for line in found))
        for e in asked
    ]


def verdict(agrees: bool, in_part: bool = False) -> Verdict:
    """Whether a claim holds, or at least a part of it."""
    return "agrees" if agrees else "agrees in part" if in_part else "does not agree"

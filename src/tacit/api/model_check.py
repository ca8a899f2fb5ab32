"""A check of a model: tests, what does not fit in words, a picture, JSON and a page."""

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri
from scipy.stats import chi2, ncx2

from tacit._format import format_count, text_table
from tacit._html import render_template
from tacit._typing import Floats
from tacit.api.release import SiteStatements, site_dicts, sites_sentences
from tacit.inference.model_checks import PIT_EDGES, TAIL, CheckSums, Family
from tacit.results.drawings import Bar, axis_for_bars
from tacit.results.report import write_files
from tacit.results.statement import UNIT_PLURALS, PrivacyStatement

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from tacit.api.check import CheckPlan

HTML_FILE, JSON_FILE = "check.html", "check.json"
# Tests are two-sided at 5% in all; a misfit counts as detectable if it is found four times in five.
_LEVEL, _POWER = 0.05, 0.8
_BAND = float(ndtri(0.95))
# By how much the second Legendre polynomial's mean rises with the relative standard deviation of a normal outcome, and the
# mean residual with a shift by its standard deviation.
_DISPERSION_SLOPE, _SHIFT_SLOPE = 6 / (2 * math.pi * math.sqrt(3)) / 2, 1 / math.sqrt(math.pi)
_MOST_SHOWN = 3


class TestResult(NamedTuple):
    """One test.

    Attributes:
        name: What is tested.
        p: The p-value, of data for which the model is right: noise, the choice of rows and the posterior's uncertainty are in it.
        adjusted: The same, adjusted for the number of tests (Holm).
        found: What was found, with a 90% interval where it is one number.
        least: The misfit that would be found four times in five.
    """

    name: str
    p: float
    adjusted: float
    found: str
    least: str


class CellResidual(NamedTuple):
    """A residual, or the share of a bin, with the band in which it is nine times in ten if the model is right."""

    label: str
    value: float
    lower: float
    upper: float


@dataclass(frozen=True, kw_only=True, eq=False)
class ModelCheck:
    """What a check found. Everything follows from what was released. Print it.

    Attributes:
        title: The model.
        sums: What was released.
        predictors: The columns that the outcome depends on in the model.
        is_number: For each column that was checked by, whether it is a number.
        privacy: The privacy statement; of several sites, that of the one that spent most.
        sites: Of several sites, the privacy statement of each by its name; None for a site that did not answer.
    """

    title: str
    sums: CheckSums
    predictors: tuple[str, ...]
    is_number: Mapping[str, bool]
    privacy: PrivacyStatement
    sites: SiteStatements = field(default_factory=dict)

    @staticmethod
    def plan(post: Any, **settings: Any) -> "CheckPlan":
        """What a check will ask and cost, and how strong a misfit it can see: as `tacit.check`, without data.

        Args:
            post: The posterior.
            settings: ``by``, ``bins`` and a budget, as for `tacit.check`; and ``size``, about how many rows or people there are.

        Returns:
            The plan. Print it.
        """
        from tacit.api.check import plan_check

        return plan_check(post, **settings)

    @cached_property
    def tests(self) -> tuple[TestResult, ...]:
        """All tests, those with the smallest p-values first."""
        families = list(self.sums.parts)
        tests = [self.sums.test(each) for each in families]
        least = dict(least_effects(self.sums))
        order = np.argsort([each.log_p for each in tests], kind="stable")
        found: list[TestResult] = []
        highest = 0.0
        for rank, place in enumerate(order):
            family, test = families[place], tests[place]
            highest = max(highest, min(1.0, (len(order) - rank) * test.p))
            name = family_name(family)
            found.append(TestResult(name, test.p, highest, self._effect(family), least[name]))
        return tuple(found)

    @property
    def p_values(self) -> dict[str, float]:
        """The p-value of each test, by its name."""
        return {each.name: each.p for each in self.tests}

    def _family(self, name: str) -> Family:
        return next(each for each in self.sums.parts if family_name(each) == name)

    def _effect(self, family: Family) -> str:
        """What was found, in words."""
        if family.kind == "tails":
            mean, spread = self.sums.mean(family)
            share, half = 100 * (mean + 2 * TAIL), 100 * _BAND * spread
            return f"{share:.1f}% (±{half:.2g}) of outcomes are where the model expects {200 * TAIL:g}%"
        if family.kind == "dispersion":
            mean, spread = self.sums.mean(family)
            wide, half = 100 * mean / _DISPERSION_SLOPE, 100 * _BAND * spread / _DISPERSION_SLOPE
            return f"spread {wide:+.2g}% (±{half:.2g}) of what the model says"
        if family.kind == "pair":
            return ""
        labels, values = _labels(self.sums, family), self.sums.cell_means(family)
        excess = values[0] - (np.diff(PIT_EDGES) if family.kind == "pit" else 0.0)
        most = int(np.argmax(np.abs(excess) / values[1]))
        scaled = 100 * np.array([excess[most], _BAND * values[1][most]])
        return f"most at {labels[most]}: {scaled[0]:+.2g} (±{scaled[1]:.2g}) points"

    @cached_property
    def finding(self) -> str:
        """What does not fit, in a sentence; or that nothing was found, and how strong a misfit could have been missed."""
        wrong = [each for each in self.tests if each.adjusted < _LEVEL]
        if not wrong:
            seen = "; ".join(f"{each.name} {each.least}" for each in self.tests[-_MOST_SHOWN:])
            return (
                "Nothing was found that noise and chance do not explain. A misfit would have been found four times in five from "
                f"about: {seen}."
            )
        said = self._named([self._family(each.name) for each in wrong])
        more = "" if len(said) <= _MOST_SHOWN else f"; and {len(said) - _MOST_SHOWN} more"
        p = wrong[0].adjusted
        shown = "p < 0.001" if p < 0.001 else f"p = {p:.2g}"
        return f"The model does not fit: {'; '.join(said[:_MOST_SHOWN])}{more} ({shown}, for {len(self.tests)} tests)."

    def _named(self, wrong: Sequence[Family]) -> list[str]:
        """The misfits that explain which tests are significant, the clearest first.

        One cause shows in several tests. What is missing in one place shows by the prediction, too, and as spread. A wrong link shows in
        many places.
        """
        numbers = [
            f
            for f in wrong
            if f.kind == "column" and self.is_number[f.names[0]] and f.names[0] in self.predictors
        ]
        pairs = [f for f in wrong if f.kind == "pair"]
        calibration = [f for f in wrong if f.kind == "calibration"]
        is_link = bool(calibration) and (len(numbers) > 1 or bool(numbers and pairs))
        if is_link and len(pairs) == 1:  # a wrong link curves all that an interaction bends
            curved = min(self.sums.test(each).log_p for each in numbers)
            is_link = 4 * curved < self.sums.test(pairs[0]).log_p
        if is_link or (calibration and not numbers and not pairs):
            local = {*numbers, *pairs}
        elif pairs and calibration:
            local = {*numbers, *calibration}
        else:
            local = set(calibration)
        shapes = [f for f in wrong if f.kind in ("pit", "dispersion", "tails")]
        kept = [f for f in wrong if f not in local and (f not in shapes or wrong[0] in shapes)]
        # Levels that are in the model have residuals where a fit was biased by something else.
        levels = [
            f
            for f in kept
            if f.kind == "column" and f.names[0] in self.predictors and f not in numbers
        ]
        kept = [f for f in kept if f not in levels] or kept
        return list(dict.fromkeys(map(self._misfit, kept)))

    def _misfit(self, family: Family) -> str:
        """The name of a misfit."""
        if family.kind in ("pit", "dispersion", "tails"):
            return self._misfit_of_shape()
        if family.kind == "calibration":
            return "a wrong link or a missing term: residuals depend on how high the prediction is"
        if family.kind == "pair":
            return f"a missing interaction of {family.names[0]} and {family.names[1]}"
        (name,) = family.names
        if name not in self.predictors:
            return f"a missing predictor: {name}"
        if self.is_number[name]:
            return f"curvature in {name}, or a wrong link"
        return f"levels of {name} that the model does not distinguish"

    def _misfit_of_shape(self) -> str:
        """What is wrong with the distribution of outcomes within what is predicted for them."""
        kinds = {each.kind: each for each in self.sums.parts}
        means = {n: self.sums.mean(kinds[n]) for n in ("dispersion", "tails") if n in kinds}
        clear = {n: mean / spread for n, (mean, spread) in means.items()}
        excess = means.get("tails", (0.0, 1.0))
        wider = means.get("dispersion", (0.0, 1.0))[0]
        beyond = (excess[0] - (_tail_of_spread(wider) - 2 * TAIL)) / excess[1]
        if clear.get("tails", 0.0) > 2 and beyond > 2:
            share = 100 * (excess[0] + 2 * TAIL)
            return f"outliers: {share:.1f}% of outcomes are where the model expects {200 * TAIL:g}%, so the clip may have cut them in the fit"
        if clear.get("dispersion", 0.0) > 2:
            return "overdispersion: outcomes are more spread out than the model says"
        if clear.get("dispersion", 0.0) < -2:
            return "underdispersion: outcomes are less spread out than the model says"
        return "the distribution of outcomes has another shape than the model's"

    def cells(self, name: str) -> list[CellResidual]:
        """The bins of a test by its name: residuals, with the band that noise and chance explain; for the distribution, shares.

        Args:
            name: The name, such as ``"by age"``.
        """
        family = self._family(name)
        if family.kind in ("dispersion", "tails"):
            mean, spread = self.sums.mean(family)
            return [CellResidual(name, mean, -_BAND * spread, _BAND * spread)]
        if family.kind == "pair":
            return _crossed_cells(self.sums, family)
        found, spreads = self.sums.cell_means(family)
        middle = np.diff(PIT_EDGES) if family.kind == "pit" else np.zeros(family.size)
        return [
            CellResidual(label, float(value), float(m - _BAND * s), float(m + _BAND * s))
            for label, value, m, s in zip(
                _labels(self.sums, family), found, middle, spreads, strict=True
            )
        ]

    def frame(self) -> "pd.DataFrame":
        """The tests as a data frame."""
        import pandas as pd

        return pd.DataFrame(self.tests)

    def plot(self, path: str | os.PathLike[str] | None = None) -> "Figure":
        """Residuals and shares in bins, over the bands that noise and chance explain. Needs matplotlib (the ``plots`` extra).

        Args:
            path: A file to save the figure to, PNG, PDF or SVG.

        Returns:
            The matplotlib figure.
        """
        from tacit.results.plots import add_caption, load_pyplot, saving_figure

        panels = self._panels()
        with saving_figure(path) as keep:
            columns = min(3, len(panels))
            lines = -(-len(panels) // columns)
            figure, axes = load_pyplot().subplots(
                lines,
                columns,
                figsize=(3.4 * columns, 0.6 + 2.9 * lines),
                squeeze=False,
                layout="constrained",
            )
            for one, (name, cells) in zip(axes.ravel(), panels, strict=False):
                _draw_cells(one, name, cells)
            for empty in axes.ravel()[len(panels) :]:
                empty.set_axis_off()
            above = () if self.privacy.warning is None else (self.privacy.warning,)
            add_caption(
                figure,
                above,
                "points: what was released; bands: nine times in ten if the model is right, noise included",
            )
            return keep(figure)

    def _panels(self) -> list[tuple[str, list[CellResidual]]]:
        """What is drawn: each test that has bins."""
        names = [family_name(each) for each in self.sums.parts if each.size > 1]
        return [(name, self.cells(name)) for name in names]

    def report(self, folder: str | os.PathLike[str]) -> None:
        """Writes ``check.html``, a page of tests and charts, and ``check.json``, into a folder.

        Args:
            folder: The folder, which is created if necessary.

        Raises:
            TacitError: If a file cannot be written.
        """
        write_files(Path(folder), {JSON_FILE: self.to_json(), HTML_FILE: self.to_html()})

    def to_html(self) -> str:
        """The page: one file without scripts, which loads nothing."""
        panels = []
        for name, cells in self._panels():
            ends = [
                Bar(c.label, c.value, min(c.lower, c.value), 0.0, 0.0, max(c.upper, c.value))
                for c in cells
            ]
            bars = [(c, not c.lower <= c.value <= c.upper) for c in cells]
            panels.append((name, bars, axis_for_bars(ends)))
        rows = [
            [_p_text(each.p), _p_text(each.adjusted), each.found, each.least] for each in self.tests
        ]
        return render_template(
            "check.html",
            check=self,
            title=f"Check of {self.title}",
            panels=panels,
            rows=[[each.name, *row] for each, row in zip(self.tests, rows, strict=True)],
            statement=self.privacy,
            sites=sites_sentences(self.sites),
        )

    def to_json(self) -> str:
        """Everything as JSON."""
        return json.dumps(self.to_dict(), indent=1, allow_nan=False, ensure_ascii=False)

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data."""
        return {
            "model": self.title,
            "finding": self.finding,
            "tests": [each._asdict() for each in self.tests],
            "cells": {n: [each._asdict() for each in cells] for n, cells in self._panels()},
            "units": self.sums.count,
            "noise": self.sums.noise,
            "privacy": self.privacy.to_dict(),
            **({"sites": site_dicts(self.sites)} if self.sites else {}),
        }

    def __repr__(self) -> str:
        return f"ModelCheck({self.privacy.headline}; print it)"

    def __str__(self) -> str:
        lines = [["test", "p", "adjusted", "found", "seen from about"]]
        lines += [[e.name, _p_text(e.p), _p_text(e.adjusted), e.found, e.least] for e in self.tests]
        warning = () if self.privacy.warning is None else (self.privacy.warning,)
        many = UNIT_PLURALS[self.privacy.unit]
        about = f"{format_count(self.sums.count, self.sums.count_noise)} {many}. Residuals are in points: the chance of a lower outcome less that of a higher one."
        cost = self.privacy.cost_sentence if self.privacy.is_private else ""
        parts = [
            *warning,
            f"Check of {self.title}",
            self.finding,
            "",
            text_table(lines, "lrrll"),
            "",
            about,
            *sites_sentences(self.sites),
            cost,
        ]
        return "\n".join(parts).rstrip()


def family_name(family: Family) -> str:
    """What a family is called."""
    names = {
        "pit": "distribution",
        "dispersion": "dispersion",
        "tails": "outliers",
        "calibration": "by prediction",
    }
    return names.get(family.kind) or f"by {' and '.join(family.names)}"


def _labels(sums: CheckSums, family: Family) -> Sequence[str]:
    """Names of a family's bins."""
    if family.kind == "pit":
        return [f"{100 * a:g}-{100 * b:g}%" for a, b in pairwise(PIT_EDGES)]
    if family.kind == "calibration":
        return sums.release.prediction.labels
    return sums.release.column(family.names[0]).labels


def _crossed_cells(sums: CheckSums, family: Family) -> list[CellResidual]:
    """What two columns add beyond each of them, cell by cell, per unit of an average cell."""
    from scipy.linalg import helmert

    labels = [sums.release.column(name).group_labels for name in family.names]
    crossed = np.kron(*(helmert(len(each)) for each in labels))
    per = max(sums.count, 1.0) / family.cells
    values = crossed.T @ sums.parts[family].sums / per
    spread = np.sqrt(np.diag(crossed.T @ sums.covariance(family) @ crossed)) / per
    names = [f"{a}, {b}" for a in labels[0] for b in labels[1]]
    return [
        CellResidual(n, float(v), float(-_BAND * s), float(_BAND * s))
        for n, v, s in zip(names, values, spread, strict=True)
    ]


def least_effects(sums: CheckSums) -> tuple[tuple[str, str], ...]:
    """For each test, its name and the misfit that it finds four times in five, in words."""
    found = []
    count = max(sums.count, 1.0)
    unit = "of a standard deviation" if sums.release.has_tails else "points"
    scale = 1 / _SHIFT_SLOPE if sums.release.has_tails else 100.0
    for family in sums.parts:
        spread = math.sqrt(float(np.mean(np.diag(sums.covariance(family)))))
        needed = math.sqrt(_noncentrality(max(family.size - (family.kind == "pit"), 1)))
        if family.kind == "dispersion":
            words = f"spread off by {100 * needed * spread / count / _DISPERSION_SLOPE:.2g}%"
        elif family.kind == "tails":
            words = f"{100 * (needed * spread / count + 2 * TAIL):.2g}% of outcomes in the outer 1%"
        elif family.kind == "pit":
            words = f"{100 * needed * spread / count:.2g}% of outcomes in other bins"
        elif family.kind == "pair":
            words = f"cells off by {_rounded(scale * needed * spread * math.sqrt(family.cells) / count)} {unit}"
        else:
            words = f"bins off by {_rounded(scale * needed * spread * math.sqrt(family.size) / count)} {unit}"
        found.append((family_name(family), words))
    return tuple(found)


def _rounded(number: float) -> str:
    return f"{number:.2g}" if number < 10 else f"{number:.0f}"


def _noncentrality(degrees: int) -> float:
    """Of a chi-square test at 5%, the noncentrality at which it rejects four times in five."""
    bound = chi2.isf(_LEVEL, degrees)
    return float(brentq(lambda each: ncx2.sf(bound, degrees, each) - _POWER, 1e-3, 500.0))


def _tail_of_spread(dispersion: float) -> float:
    """The share of a normal's outer 1% if its spread explains a mean of the second Legendre polynomial."""
    grid = np.linspace(-6, 6, 1201)
    density = np.exp(-(grid**2) / 2)
    density /= density.sum()

    def mean(scale: float) -> float:
        return float(density @ (3 * (2 * ndtr(scale * grid) - 1) ** 2 - 1) / 2)

    scale = float(brentq(lambda s: mean(s) - min(max(dispersion, -0.4), 0.9), 0.05, 50.0))
    return float(2 * ndtr(ndtri(TAIL) / scale))


def _p_text(p: float) -> str:
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def _draw_cells(axes: "Axes", name: str, cells: Sequence[CellResidual]) -> None:
    """Points over bands."""
    places: Floats = np.arange(len(cells), dtype=np.float64)
    lower, upper = (np.array([getattr(c, end) for c in cells]) for end in ("lower", "upper"))
    middle = (lower + upper) / 2
    axes.bar(places, upper - lower, 0.9, bottom=lower, color="#d6e4f0", zorder=1)
    axes.step(places, middle, where="mid", color="#7a8a99", linewidth=0.8, zorder=2)
    values = np.array([c.value for c in cells])
    outside = (values < lower) | (values > upper)
    axes.plot(places[~outside], values[~outside], "o", color="#1f5a8a", markersize=4, zorder=3)
    axes.plot(places[outside], values[outside], "D", color="#b3401f", markersize=4.5, zorder=3)
    axes.set_title(name, fontsize=9)
    axes.set_xticks(places, [c.label for c in cells], rotation=60, ha="right", fontsize=6)
    axes.tick_params(axis="y", labelsize=7)

"""The summary of a posterior: a table of its parameters."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tacit._html import render
from tacit.inference.base import Intervals
from tacit.results.wording import beside

Labels = Mapping[str, Sequence[Sequence[str]]]
"""Names of the entries of array parameters, axis by axis."""

# Nobody reads a table of thousands of lines; `Summary.to_pandas` has them all.
_PRINTED = 100
# Columns of the interval.
_ENDS = slice(3, 5)


class Line(NamedTuple):
    """Mean, standard deviation and interval of one number.

    For a chain, also its effective sample size and R-hat. If the model says how to read it: what
    one unit is, whether its exponential is a ratio, and the prior's central 95%.
    """

    name: str
    mean: float
    sd: float
    lower: float
    upper: float
    effective: float = math.nan
    r_hat: float = math.nan
    unit: str = ""
    is_ratio: bool = False
    prior: str = ""

    @property
    def label(self) -> str:
        """The name, with what one unit is."""
        return f"{self.name}, {self.unit}" if self.unit else self.name

    @property
    def ratio(self) -> tuple[float, float, float]:
        """The exponential of the mean and of the ends of the interval; NaN if it is no ratio."""
        if not self.is_ratio:
            return math.nan, math.nan, math.nan
        with np.errstate(over="ignore"):
            found = np.exp([self.mean, self.lower, self.upper])
        return float(found[0]), float(found[1]), float(found[2])


@dataclass(frozen=True, kw_only=True)
class Summary:
    """Mean, standard deviation and an equal-tailed interval of every parameter.

    For a chain also the effective sample size (``ess``) and R-hat.

    Attributes:
        lines: A line for each number.
        level: The posterior probability of the intervals.
        warnings: Printed before the table.
        trust: What intervals include, and whether the fit converged, in one sentence.
        notes: Printed after the table.
        chain: Whether the draws are a Markov chain.
        intervals: Whether intervals and standard deviations account for the privacy noise; printed above
            them.
        ratio: The name of the ratio that the exponential of a coefficient is, or None.
    """

    lines: tuple[Line, ...]
    level: float
    warnings: tuple[str, ...] = ()
    trust: str = ""
    notes: tuple[str, ...] = ()
    chain: bool = False
    intervals: Intervals = Intervals.UNKNOWN
    ratio: str | None = None
    spread_columns: ClassVar[slice] = slice(2, 5)
    """The columns that `spread` is about."""

    def __str__(self) -> str:
        cells = [self.header(), *self.shown()]
        widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
        table = [
            "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])])
            for row in cells
        ]
        # Above the columns that it is about; if it is longer, it begins further left.
        end = sum(widths[: self.spread_columns.stop]) + 2 * (self.spread_columns.stop - 1)
        above = self.spread.rjust(end).ljust(len(table[0]))
        return "\n".join([*self.before(), above, *table, *self.after()])

    def _repr_html_(self) -> str:
        return render("summary.html", summary=self)

    def to_pandas(self) -> pd.DataFrame:
        """Converts to a data frame with a row for each line.

        Returns:
            The data frame. The names of interval columns say so if the noise is not included.
        """
        header = self._columns()[1:]
        frame = pd.DataFrame([line[1 : len(header) + 1] for line in self.lines], columns=header)
        frame.index = pd.Index([line.name for line in self.lines], name="parameter", dtype=object)
        if self.ratio is not None:
            names = [self.ratio, *(f"{self.ratio} {end}" for end in header[2:4])]
            ratios = np.array([line.ratio for line in self.lines])
            frame[names] = ratios
        if any(line.unit for line in self.lines):
            frame["unit"] = [line.unit for line in self.lines]
        return frame

    def header(self) -> list[str]:
        """The names of the columns; that of the first, the parameters, is empty."""
        return [*self._header(), *self._more()]

    def columns(self) -> list[str]:
        """Column names for use without `spread`: ends of intervals without noise say so."""
        return [*self._columns(), *self._more()]

    def _header(self) -> list[str]:
        tail = (1 - self.level) / 2
        ends = [f"{100 * tail:.4g}%", f"{100 * (1 - tail):.4g}%"]
        return ["", "mean", "sd", *ends, *(["ess", "r_hat"] if self.chain else [])]

    def _columns(self) -> list[str]:
        names = self._header()
        if self.intervals == Intervals.LEFT_OUT:
            names[_ENDS] = [beside(name, self.intervals) for name in names[_ENDS]]
        return names

    def _more(self) -> list[str]:
        """Columns of text after the numbers."""
        ratio = [] if self.ratio is None else [self.ratio]
        return [*ratio, *(["95% of the prior"] if self._has_priors else [])]

    @property
    def _has_priors(self) -> bool:
        return any(line.prior for line in self.lines)

    @property
    def spread(self) -> str:
        """What is printed above the standard deviations and intervals."""
        return beside(f"sd and {100 * self.level:.4g}% interval", self.intervals)

    def cells(self) -> list[list[str]]:
        """Every line as text."""
        return [self._cells(line) for line in self.lines]

    def _cells(self, line: Line) -> list[str]:
        ratio = [] if self.ratio is None else [_ratio(line)]
        prior = [line.prior] if self._has_priors else []
        return [line.label, *_numbers(line)[: len(self._header()) - 1], *ratio, *prior]

    def shown(self) -> list[list[str]]:
        """The lines that are printed, as text."""
        return self.cells()[:_PRINTED]

    def before(self) -> list[str]:
        """What is printed above the table."""
        return [*self.warnings, *([self.trust] if self.trust else [])]

    def after(self) -> list[str]:
        """What is printed below the table."""
        more = len(self.lines) - _PRINTED
        hidden = [f"... and {more} more; to_pandas() has them all"] if more > 0 else []
        return [*hidden, *self.notes]


def summary_lines(
    mean: Mapping[str, NDArray[np.floating]],
    sd: Mapping[str, NDArray[np.floating]],
    interval: Mapping[str, NDArray[np.floating]],
    *mixing: Mapping[str, NDArray[np.floating]],
    labels: Labels | None = None,
    meanings: Mapping[str, tuple[str, bool, str]] | None = None,
) -> tuple[Line, ...]:
    """A line for every coordinate of every parameter.

    ``meanings`` has the unit of a parameter, whether it is a ratio, and the prior, by its name.
    """

    def columns(name: str) -> tuple[NDArray[np.floating], ...]:
        return (mean[name], sd[name], *interval[name], *(each[name] for each in mixing))

    return tuple(
        _line(label, [float(v[where]) for v in columns(name)], (meanings or {}).get(name))
        for name in mean
        for label, where in coordinates(name, mean[name].shape, (labels or {}).get(name))
    )


def _line(label: str, values: Sequence[float], about: tuple[str, bool, str] | None) -> Line:
    mean, sd, lower, upper, *mixing = values
    effective, r_hat = mixing or (math.nan, math.nan)
    return Line(label, mean, sd, lower, upper, effective, r_hat, *(about or ("", False, "")))


def coordinates(
    name: str, shape: tuple[int, ...], axes: Sequence[Sequence[str]] | None = None
) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The label and index of every coordinate of a parameter; ``axes`` names the entries.

    >>> [label for label, _ in coordinates("w", (2, 1))]
    ['w[0, 0]', 'w[1, 0]']
    >>> [label for label, _ in coordinates("ward", (2,), [["B", "other"]])]
    ['ward[B]', 'ward[other]']
    """
    for where in np.ndindex(shape):
        entries = where if axes is None else [axis[i] for axis, i in zip(axes, where, strict=True)]
        yield f"{name}[{', '.join(map(str, entries))}]" if shape else name, where


def _numbers(line: Line) -> list[str]:
    """Numbers rounded to two significant digits of the standard deviation."""
    values = line[1:5]
    mixing = [f"{line.effective:.0f}", f"{line.r_hat:.2f}"]
    plain = 0 < line.sd < 1e6 and all(abs(value) < 1e6 for value in values)
    decimals = 1 - math.floor(math.log10(line.sd)) if plain else math.inf
    if decimals > 6:
        return [*(f"{value:.4g}" for value in values), *mixing]
    return [*(f"{value:.{max(int(decimals), 0)}f}" for value in values), *mixing]


def _ratio(line: Line) -> str:
    """A ratio and its interval: three digits, or more where they would not tell its ends apart."""
    if not line.is_ratio:
        return ""
    width = line.upper - line.lower  # of the ratio, beside itself
    digits = 1 - math.floor(math.log10(width)) if 0 < width < math.inf else 3
    form = ".3g" if digits <= 3 else f"#.{min(digits, 9)}g"
    middle, low, high = (format(value, form) for value in line.ratio)
    return f"{middle} ({low} to {high})"

"""A posterior as a table of its parameters."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tacit.errors import TacitError
from tacit.inference.base import Intervals
from tacit.results import html
from tacit.results.wording import beside

if TYPE_CHECKING:
    import pandas as pd

Labels = Mapping[str, Sequence[Sequence[str]]]
"""Names of the entries of arrays, axis by axis."""

# A table of thousands of lines helps nobody; `Summary.to_pandas` has them all.
_PRINTED = 100
# Columns of the standard deviation and of the interval, and of the interval alone.
_SPREAD, _ENDS = slice(2, 5), slice(3, 5)


class Line(NamedTuple):
    """One number of the posterior: where it is, and the interval that holds most of it.

    For a chain, also how many independent draws it is worth, and how far apart its halves are.
    """

    name: str
    mean: float
    sd: float
    lower: float
    upper: float
    effective: float = math.nan
    r_hat: float = math.nan


@dataclass(frozen=True, kw_only=True)
class Summary:
    """Mean, standard deviation and an equal-tailed interval of every parameter.

    For a chain, effective sample sizes (``ess``) and R-hat too.
    ``warnings`` stand before the table and ``notes`` after it. ``intervals`` is what the
    intervals say about noise; it stands above them.
    """

    lines: tuple[Line, ...]
    level: float
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    chain: bool = False
    intervals: Intervals = Intervals.UNKNOWN

    def __str__(self) -> str:
        cells = [self.header(), *self._shown()]
        widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
        table = [
            "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])])
            for row in cells
        ]
        # Above the columns it is about, and to the left of them if it is longer.
        end = sum(widths[: _SPREAD.stop]) + 2 * (_SPREAD.stop - 1)
        above = self.spread.rjust(end).ljust(len(table[0]))
        return "\n".join([*self.warnings, above, *table, *self._after()])

    def _repr_html_(self) -> str:
        return html.box(
            *map(html.warning, self.warnings),
            html.table(self.header(), self._shown(), above=(self.spread, _SPREAD)),
            *(html.paragraph(note) for note in self._after()),
        )

    def to_pandas(self) -> "pd.DataFrame":
        """A data frame with a row for each line.

        Columns of intervals that leave out the noise have it in their names.
        """
        try:
            import pandas as pd
        except ImportError as error:
            raise TacitError("to_pandas needs pandas: pip install pandas.") from error
        header = self.columns()[1:]
        frame = pd.DataFrame([line[1 : len(header) + 1] for line in self.lines], columns=header)
        frame.index = pd.Index([line.name for line in self.lines], name="parameter", dtype=object)
        return frame

    def header(self) -> list[str]:
        """The names of the columns; the first, of parameters, has none."""
        tail = (1 - self.level) / 2
        ends = [f"{100 * tail:.4g}%", f"{100 * (1 - tail):.4g}%"]
        return ["", "mean", "sd", *ends, *(["ess", "r_hat"] if self.chain else [])]

    def columns(self) -> list[str]:
        """The same for columns that stand alone: ends that leave out the noise say so."""
        names = self.header()
        if self.intervals == Intervals.LEFT_OUT:
            names[_ENDS] = [beside(name, self.intervals) for name in names[_ENDS]]
        return names

    @property
    def spread(self) -> str:
        """What stands above the standard deviations and intervals."""
        return beside(f"sd and {100 * self.level:.4g}% interval", self.intervals)

    def cells(self) -> list[list[str]]:
        """Every line as text."""
        return [_cells(line)[: len(self.header())] for line in self.lines]

    def _shown(self) -> list[list[str]]:
        return self.cells()[:_PRINTED]

    def _after(self) -> list[str]:
        more = len(self.lines) - _PRINTED
        hidden = [f"... and {more} more; to_pandas() has them all"] if more > 0 else []
        return [*hidden, *self.notes]


def summary_lines(
    mean: Mapping[str, NDArray[np.floating]],
    sd: Mapping[str, NDArray[np.floating]],
    interval: Mapping[str, NDArray[np.floating]],
    *mixing: Mapping[str, NDArray[np.floating]],
    labels: Labels | None = None,
) -> tuple[Line, ...]:
    """A line for every coordinate of every parameter."""

    def columns(name: str) -> tuple[NDArray[np.floating], ...]:
        return (mean[name], sd[name], *interval[name], *(each[name] for each in mixing))

    return tuple(
        Line(label, *(float(v[where]) for v in columns(name)))
        for name in mean
        for label, where in coordinates(name, mean[name].shape, (labels or {}).get(name))
    )


def coordinates(
    name: str, shape: tuple[int, ...], axes: Sequence[Sequence[str]] | None = None
) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Every coordinate of a parameter, with its label, by names of the axes' entries if given.

    >>> [label for label, _ in coordinates("w", (2, 1))]
    ['w[0, 0]', 'w[1, 0]']
    >>> [label for label, _ in coordinates("ward", (2,), [["B", "other"]])]
    ['ward[B]', 'ward[other]']
    """
    for where in np.ndindex(shape):
        entries = where if axes is None else [axis[i] for axis, i in zip(axes, where, strict=True)]
        yield f"{name}[{', '.join(map(str, entries))}]" if shape else name, where


def _cells(line: Line) -> list[str]:
    """Numbers to two significant digits of the standard deviation: more would be noise."""
    values = line[1:5]
    mixing = [f"{line.effective:.0f}", f"{line.r_hat:.2f}"]
    plain = 0 < line.sd < 1e6 and all(abs(value) < 1e6 for value in values)
    decimals = 1 - math.floor(math.log10(line.sd)) if plain else math.inf
    if decimals > 6:
        return [line.name, *(f"{value:.4g}" for value in values), *mixing]
    return [line.name, *(f"{value:.{max(int(decimals), 0)}f}" for value in values), *mixing]

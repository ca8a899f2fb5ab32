"""A posterior as a table of its parameters."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tacit.errors import TacitError
from tacit.results import html

if TYPE_CHECKING:
    import pandas as pd

# A table of thousands of lines helps nobody; `Summary.to_pandas` has them all.
_PRINTED = 100


class Line(NamedTuple):
    """One number of the posterior: where it is, and the interval that holds most of it."""

    name: str
    mean: float
    sd: float
    lower: float
    upper: float


@dataclass(frozen=True, kw_only=True)
class Summary:
    """Mean, standard deviation and an equal-tailed interval of every parameter.

    ``warning`` stands before the table and ``notes`` after it.
    """

    lines: tuple[Line, ...]
    level: float
    warning: str | None = None
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        cells = [self._header(), *(_cells(line) for line in self.lines[:_PRINTED])]
        widths = [max(len(row[column]) for row in cells) for column in range(5)]
        table = [
            "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])])
            for row in cells
        ]
        return "\n".join([*([self.warning] if self.warning else []), *table, *self._after()])

    def _repr_html_(self) -> str:
        shown = [_cells(line) for line in self.lines[:_PRINTED]]
        return html.box(
            html.warning(self.warning) if self.warning else "",
            html.table(self._header(), shown),
            *(html.paragraph(note) for note in self._after()),
        )

    def to_pandas(self) -> "pd.DataFrame":
        """A data frame with a row for each line."""
        try:
            import pandas as pd
        except ImportError as error:
            raise TacitError("to_pandas needs pandas: pip install pandas.") from error
        frame = pd.DataFrame([line[1:] for line in self.lines], columns=self._header()[1:])
        frame.index = pd.Index([line.name for line in self.lines], name="parameter", dtype=object)
        return frame

    def _header(self) -> list[str]:
        tail = (1 - self.level) / 2
        return ["", "mean", "sd", f"{100 * tail:.4g}%", f"{100 * (1 - tail):.4g}%"]

    def _after(self) -> list[str]:
        more = len(self.lines) - _PRINTED
        hidden = [f"... and {more} more; to_pandas() has them all"] if more > 0 else []
        return [*hidden, *self.notes]


def summary_lines(
    mean: Mapping[str, NDArray[np.floating]],
    sd: Mapping[str, NDArray[np.floating]],
    interval: Mapping[str, NDArray[np.floating]],
) -> tuple[Line, ...]:
    """A line for every coordinate of every parameter."""
    return tuple(
        Line(label, *(float(v[where]) for v in (mean[name], sd[name], *interval[name])))
        for name in mean
        for label, where in coordinates(name, mean[name].shape)
    )


def coordinates(name: str, shape: tuple[int, ...]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Every coordinate of a parameter, with its label.

    >>> [label for label, _ in coordinates("w", (2, 1))]
    ['w[0, 0]', 'w[1, 0]']
    """
    for where in np.ndindex(shape):
        yield f"{name}[{', '.join(map(str, where))}]" if shape else name, where


def _cells(line: Line) -> list[str]:
    """Numbers to two significant digits of the standard deviation: more would be noise."""
    values = line[1:]
    plain = 0 < line.sd < 1e6 and all(abs(value) < 1e6 for value in values)
    decimals = 1 - math.floor(math.log10(line.sd)) if plain else math.inf
    if decimals > 6:
        return [line.name, *(f"{value:.4g}" for value in values)]
    return [line.name, *(f"{value:.{max(int(decimals), 0)}f}" for value in values)]

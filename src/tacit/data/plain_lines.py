"""Where the cells of plain lines are: lines with the right number of cells, all at once.

A line is plain if it has no carriage return inside, is not too long, and each of its quotes begins or ends a
cell: `1,"a, b",2` is plain, and a line with doubled quotes inside a cell is not. The csv module finds the
same cells in plain lines.
"""

import csv
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_LINE, _QUOTE, _RETURN = ord("\n"), ord('"'), ord("\r")

Places = NDArray[np.int64]


class Lines(NamedTuple):
    """The lines of a block, and the cells of the plain ones."""

    text: NDArray[np.uint8]
    quoted: bool
    """Whether there are quotes."""
    starts: Places
    stops: Places
    """Where each line begins and ends."""
    odd: Places
    """The lines that are not plain."""
    plain: NDArray[np.bool_] | slice
    """The lines that are."""
    cells: Places
    """Where each cell of a plain line ends."""

    def column(self, place: int) -> tuple[Places, Places]:
        """Where the cells of a column begin in plain lines, and their sizes, without quotes."""
        begin = self.cells[:, place - 1] + 1 if place else self.starts[self.plain]
        size = self.cells[:, place] - begin
        if not self.quoted:
            return begin, size
        quoted = self.text[begin] == _QUOTE
        return begin + quoted, size - 2 * quoted


def found_cells(block: bytes, separator: bytes, width: int, longest: int) -> Lines:
    """Finds the cells in a block of lines that each end in a line feed.

    Args:
        block: The lines.
        separator: What is between cells.
        width: How many cells a line must have.
        longest: How many bytes it may have.
    """
    text, mark = np.frombuffer(block, np.uint8), ord(separator)
    marks = np.flatnonzero((text == mark) | (text == _LINE))
    ends = text[marks] == _LINE
    stops = marks[ends]
    starts = np.concatenate([[0], stops[:-1] + 1])[: len(stops)]
    odd = stops - starts > longest
    if b"\r" in block:
        odd[np.searchsorted(stops, np.flatnonzero(text == _RETURN))] = True
    quoted = b'"' in block
    if quoted:
        quotes = text == _QUOTE
        _refuse_quotes(text, quotes, starts, stops, odd, mark)
        outside = np.cumsum(quotes, dtype=np.uint8)[marks] % 2 == 0
        marks, ends = marks[outside], ends[outside]
    counts = np.diff(np.flatnonzero(ends), prepend=-1)
    odd |= counts != width
    if not odd.any():
        return Lines(text, quoted, starts, stops, stops[:0], slice(None), marks.reshape(-1, width))
    cells = marks[np.repeat(~odd, counts)].reshape(-1, width)
    return Lines(text, quoted, starts, stops, np.flatnonzero(odd), ~odd, cells)


def _refuse_quotes(
    text: NDArray[np.uint8],
    quotes: NDArray[np.bool_],
    starts: Places,
    stops: Places,
    odd: NDArray[np.bool_],
    mark: int,
) -> None:
    """Marks the lines with a quote elsewhere than around a cell, and forgets the quotes in odd lines."""
    places = np.flatnonzero(quotes)
    first = np.searchsorted(places, starts)
    counts = np.diff(first, append=len(places))
    line = np.repeat(np.arange(len(starts)), counts)
    opening = (np.arange(len(places)) - first[line]) % 2 == 0
    beside = text[np.where(opening, places - 1, places + 1)]
    odd |= (counts % 2 == 1) | ((counts > 0) & (stops - starts > csv.field_size_limit()))
    odd[line[(beside != mark) & (beside != _LINE)]] = True
    quotes[places[odd[line]]] = False

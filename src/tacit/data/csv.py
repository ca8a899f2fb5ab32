"""CSV files, read line by line: what one line holds cannot change how another is read.

By the usual rule a quoted cell may contain line breaks, and then one stray quote swallows the rows after it: one
person's cell would delete or merge other people's rows. So here every line is one record. A quote that is not closed
ends with its line. Nothing is guessed from the rows: every cell is text, the first line is the header, and what
separates cells is declared or seen in the header.

A line whose number of cells differs from the header's, or that is longer than a mebibyte, is a row of which every
cell is missing. Empty lines are skipped, except in a file with one column, where an empty line is a missing cell.
Bytes that are not UTF-8 become replacement characters.

A line is plain if it has no carriage return inside, is not too long, and each of its quotes begins or ends a cell:
`1,"a, b",2` is plain, and a line with doubled quotes inside a cell is not. Plain lines are read all at once, by the
places of their separators, and every other line by the csv module, which gives the same cells. This is written by hand
because `pyarrow.csv` (version 26) does not keep the rule above: also with ``newlines_in_values=False``, a stray quote
swallows the following lines up to the end of a block.
"""

import csv
import gzip
import io
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tacit.data.cells import PADDING, Cells, Texts
from tacit.errors import InvalidArgument, os_error_reason

_LINE_FEED, _QUOTE, _CARRIAGE_RETURN = ord("\n"), ord('"'), ord("\r")

Offsets = NDArray[np.int64]


class Lines(NamedTuple):
    """The lines of a block, and the cells of the plain ones."""

    text: NDArray[np.uint8]
    quoted: bool
    """Whether there are quotes."""
    starts: Offsets
    stops: Offsets
    """Where each line begins and ends."""
    odd: Offsets
    """The lines that are not plain."""
    plain: NDArray[np.bool_] | slice
    """The lines that are."""
    cells: Offsets
    """Where each cell of a plain line ends."""

    def column(self, place: int) -> tuple[Offsets, Offsets]:
        """Where the cells of a column begin in plain lines, and their sizes, without quotes."""
        begin = self.cells[:, place - 1] + 1 if place else self.starts[self.plain]
        size = self.cells[:, place] - begin
        if not self.quoted:
            return begin, size
        quoted = self.text[begin] == _QUOTE
        return begin + quoted, size - 2 * quoted


def find_cells(block: bytes, separator: bytes, width: int, longest: int) -> Lines:
    """Finds the cells in a block of lines that each end in a line feed.

    Args:
        block: The lines.
        separator: What is between cells.
        width: How many cells a line must have.
        longest: How many bytes it may have.
    """
    text, mark = np.frombuffer(block, np.uint8), ord(separator)
    marks = np.flatnonzero((text == mark) | (text == _LINE_FEED))
    ends = text[marks] == _LINE_FEED
    stops = marks[ends]
    starts = np.concatenate([[0], stops[:-1] + 1])[: len(stops)]
    odd = stops - starts > longest
    if b"\r" in block:
        odd[np.searchsorted(stops, np.flatnonzero(text == _CARRIAGE_RETURN))] = True
    quoted = b'"' in block
    if quoted:
        quotes = text == _QUOTE
        _mark_stray_quotes(text, quotes, starts, stops, odd, mark)
        outside = np.cumsum(quotes, dtype=np.uint8)[marks] % 2 == 0
        marks, ends = marks[outside], ends[outside]
    counts = np.diff(np.flatnonzero(ends), prepend=-1)
    odd |= counts != width
    if not odd.any():
        return Lines(text, quoted, starts, stops, stops[:0], slice(None), marks.reshape(-1, width))
    cells = marks[np.repeat(~odd, counts)].reshape(-1, width)
    return Lines(text, quoted, starts, stops, np.flatnonzero(odd), ~odd, cells)


def _mark_stray_quotes(
    text: NDArray[np.uint8],
    quotes: NDArray[np.bool_],
    starts: Offsets,
    stops: Offsets,
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
    odd[line[(beside != mark) & (beside != _LINE_FEED)]] = True
    quotes[places[odd[line]]] = False


_BLOCK_BYTES, _MAX_LINE_BYTES = (
    2**21,
    2**20,
)  # bytes that are read at a time, and of the longest line
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"  # with which some programs begin a UTF-8 file


# What may separate cells, in the order of preference where a header has equally many of them.
SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}


def header(path: Path, sep: str | None = None) -> tuple[list[str], str]:
    """The names in the first line, and what separates them: declared, or most frequent in that line."""
    line = next(_blocks(path), b"").partition(b"\n")[0].removeprefix(_BYTE_ORDER_MARK)
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text or len(line) > _MAX_LINE_BYTES:
        raise InvalidArgument(f"{path} must be text in UTF-8; its first line is not.")
    if "\r" in text.rstrip("\r"):
        # The whole file would be read as its header, and appear in errors.
        raise InvalidArgument(
            f"{path} must have lines that end in a line feed, as Unix and Windows write them; its "
            "first line has a carriage return inside: save it again as CSV in UTF-8."
        )
    if not text.strip():
        raise InvalidArgument(
            f"{path} must begin with a line that names the columns; that line is empty."
        )
    separator = _likely_separator(path, text) if sep is None else sep
    return [name.strip() for name in _split(text, separator)], separator


def chunks(path: Path, names: Sequence[str], sep: str | None = None) -> Iterator[dict[str, Cells]]:
    """The cells of some columns as text, chunk by chunk; the first chunk has no rows."""
    known, separator = header(path, sep)
    places = [known.index(name) for name in names]
    yield {name: Cells(np.empty(0, dtype=object)) for name in names}
    began = False
    for block in _blocks(path):
        rows = block if began else block[block.index(b"\n") + 1 :]  # without the header
        began = True
        yield dict(zip(names, _columns(rows, separator, len(known), places), strict=True))


def _likely_separator(path: Path, line: str) -> str:
    """A tab in .tsv files; otherwise what a header has most of, outside of quotes."""
    if ".tsv" in [suffix.lower() for suffix in path.suffixes]:
        return "\t"
    plain = "".join(line.split('"')[::2])
    return max(SEPARATORS, key=plain.count)  # the first of several with equal counts


def _columns(block: bytes, separator: str, width: int, places: Sequence[int]) -> Iterator[Cells]:
    """Some columns of a block of lines, of which plain ones are read all at once."""
    block = block.replace(b"\r\n", b"\n") if b"\r" in block else block
    lines = find_cells(block, separator.encode(), width, _MAX_LINE_BYTES)
    kept, present = np.ones((2, len(lines.starts)), np.bool_)
    others: list[bytes] = []  # the cells of other lines, which are put after the block
    ends = lines.starts[lines.odd].tolist(), lines.stops[lines.odd].tolist()
    for line, start, stop in zip(lines.odd.tolist(), *ends, strict=True):
        raw = block[start:stop].rstrip(b"\r")
        cells = _line_cells(raw, separator, width)
        kept[line], present[line] = width == 1 or bool(raw.strip(b" \r")), cells is not None
        others += [b"" if cells is None else cells[place].encode() for place in places]
    data = b"".join([block, *others, PADDING])
    sizes = np.fromiter(map(len, others), np.int64, len(others))
    starts = len(block) + np.cumsum(sizes) - sizes
    there = np.stack([starts, sizes]).reshape(2, len(lines.odd), len(places))
    marked = None if present.all() else present[kept]
    for i, place in enumerate(places):
        found = lines.column(place)
        if len(lines.odd):
            everywhere = np.empty((2, len(kept)), np.int64)
            everywhere[:, lines.plain], everywhere[:, lines.odd] = found, there[:, :, i]
            found = everywhere[0, kept], everywhere[1, kept]
        yield Cells(Texts(data, *found), marked)


def _line_cells(line: bytes, separator: str, width: int) -> list[str] | None:
    """The cells of a line, or None if their number is wrong."""
    if len(line) > _MAX_LINE_BYTES:
        return None
    cells = _split(line.decode("utf-8", "replace"), separator)
    return cells if len(cells) == width else None


def _split(line: str, separator: str) -> list[str]:
    text = line.rstrip("\r")
    if '"' not in text:
        return text.split(separator)
    # The csv module would end the record at a carriage return within the line.
    try:
        found = list(csv.reader([text.replace("\r", " ")], delimiter=separator))
    except csv.Error:  # a cell beyond the module's limit
        return []
    return found[0] if found else []


def _blocks(path: Path) -> Iterator[bytes]:
    """Whole lines of a file, a block at a time; the end of a line that is too long is left out."""
    compressed = path.suffix.lower() == ".gz"
    try:
        with gzip.open(path) if compressed else path.open("rb") as file:
            yield from _split_blocks(file)
    except (OSError, EOFError, zlib.error) as error:
        reason = os_error_reason(error) or "its compressed data are damaged"
        raise InvalidArgument(f"{path} cannot be read: {reason}.") from None


def _split_blocks(file: io.BufferedIOBase) -> Iterator[bytes]:
    rest = b""
    while block := file.read(_BLOCK_BYTES):
        end = block.rfind(b"\n") + 1
        if end:
            yield rest + block[:end]
            rest = b""
        rest = (rest + block[end:])[: _MAX_LINE_BYTES + 1]
    if rest:
        yield rest + b"\n"

"""CSV files, read line by line: what one line holds cannot change how another is read.

By the usual rule a quoted cell may contain line breaks, and then one stray quote swallows the rows
after it: one person's cell would delete or merge other people's rows. So here every line is one
record. A quote that is not closed ends with its line. Nothing is guessed from the rows: the separator
follows from the file's name, every cell is text, and the first line is the header.

A line whose number of cells differs from the header's, or that is longer than a mebibyte, is a row of
which every cell is missing. Empty lines are skipped, except in a file with one column, where an empty line is
a missing cell. Bytes that are not UTF-8 become replacement characters.

This is written by hand because `pyarrow.csv` (version 26) does not keep that rule: also with
``newlines_in_values=False``, a stray quote swallows the following lines up to the end of a block.
"""

import csv
import gzip
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from typing import IO, Any

import numpy as np

from tacit.data.cells import Cells
from tacit.errors import InvalidArgument, reason_of

_BLOCK, _LONGEST = 2**22, 2**20  # bytes that are read at a time, and of the longest line
_MARK = b"\xef\xbb\xbf"  # with which some programs begin a UTF-8 file


def header(path: Path) -> list[str]:
    """The names in the first line."""
    line = next((lines[0] for lines in _blocks(path) if lines), b"").removeprefix(_MARK)
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text or len(line) > _LONGEST:
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
    return [name.strip() for name in _split(text, _separator(path))]


def chunks(path: Path, names: Sequence[str]) -> Iterator[dict[str, Cells]]:
    """The cells of some columns as text, chunk by chunk; the first chunk has no rows."""
    known = header(path)
    places = [known.index(name) for name in names]
    yield {name: Cells(np.empty(0, dtype=object)) for name in names}
    separator, first = _separator(path), 1  # after the header
    for lines in _blocks(path):
        yield _table(lines[first:], names, places, len(known), separator)
        first = 0 if lines else first


def _separator(path: Path) -> str:
    return "\t" if ".tsv" in [suffix.lower() for suffix in path.suffixes] else ","


def _table(
    lines: Sequence[bytes], names: Sequence[str], places: Sequence[int], width: int, separator: str
) -> dict[str, Cells]:
    held = lines
    columns = _square(held, separator, width)
    if columns is None:
        held = [line.rstrip(b"\r") for line in lines]
        held = held if width == 1 else [line for line in held if line.strip(b" \r")]
        columns = _square(held, separator, width) or _ragged(held, separator, width)
    return {
        name: Cells(np.fromiter(columns(place), dtype=object, count=len(held)))
        for name, place in zip(names, places, strict=True)
    }


_Columns = Callable[[int], Iterable[str | None]]


def _square(lines: Sequence[bytes], separator: str, width: int) -> _Columns | None:
    """The columns of plain lines: all with the right number of cells, and none with a quote.

    They are the same as line by line, but faster. None if a line is not plain.
    """
    mark, most = separator.encode(), _LONGEST
    if not lines or any(line.count(mark) != width - 1 or len(line) > most for line in lines):
        return None
    whole = mark.join(lines)
    if b'"' in whole or b"\r" in whole:
        return None
    cells = whole.decode("utf-8", "replace").split(separator)
    return lambda place: cells[place::width]


def _ragged(lines: Sequence[bytes], separator: str, width: int) -> _Columns:
    """The columns of any lines, read line by line."""
    bad = [None] * width
    rows = [_cells(line, separator, width) or bad for line in lines]
    return lambda place: map(itemgetter(place), rows)


def _cells(line: bytes, separator: str, width: int) -> list[str] | None:
    """The cells of a line, or None if their number is wrong."""
    if len(line) > _LONGEST:
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


def _blocks(path: Path) -> Iterator[list[bytes]]:
    """The lines of a file, a block at a time; the end of a line that is too long is left out."""
    opener: Callable[..., Any] = gzip.open if path.suffix.lower() == ".gz" else open
    try:
        with opener(path, "rb") as file:
            yield from _split_blocks(file)
    except (OSError, EOFError, zlib.error) as error:
        reason = reason_of(error) or "its compressed data are damaged"
        raise InvalidArgument(f"{path} cannot be read: {reason}.") from None


def _split_blocks(file: IO[bytes]) -> Iterator[list[bytes]]:
    rest = b""
    while block := file.read(_BLOCK):
        *whole, rest = (rest + block).split(b"\n")
        yield whole
        rest = rest[: _LONGEST + 1]
    if rest:
        yield [rest]

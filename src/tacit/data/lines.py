"""CSV files, a line at a time: what one line holds cannot change how another is read.

By the usual rule a quoted cell may hold line breaks, and then a single stray quote swallows the
rows after it: one person's cell would delete other people's rows, or merge them. So here a
record is a line, always. A quote that is not closed ends with its line. Nothing is guessed from
rows: the separator comes from the file's name, every cell is text, and the header is the first line.

A line with another number of cells than the header, or longer than a mebibyte, is a row of which
every cell is missing. Empty lines are skipped, except in a file of one column, where they are how a missing
cell is written. Bytes that are not UTF-8 become replacement characters.
"""

import csv
import gzip
import zlib
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from typing import IO, Any

import numpy as np

from tacit.data.cells import Cells
from tacit.errors import InvalidArgument, reason_of

_BLOCK, _LONGEST = 2**22, 2**20  # bytes read at a time, and of a line
_MARK = b"\xef\xbb\xbf"  # some programs begin a UTF-8 file with it


def header(path: Path) -> list[str]:
    """The names in the first line."""
    line = next(_lines(path), b"").removeprefix(_MARK)
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text or len(line) > _LONGEST:
        raise InvalidArgument(f"{path} must be text in UTF-8; its first line is not.")
    if "\r" in text.rstrip("\r"):
        # The whole file would be taken for its header, and named in errors.
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
    """The cells of some columns as text, many rows at a time; the first chunk has none."""
    known = header(path)
    places = [known.index(name) for name in names]
    yield {name: Cells(np.empty(0, dtype=object)) for name in names}
    lines = _lines(path)
    next(lines)
    some: list[bytes] = []
    size = 0
    for line in lines:
        some.append(line)
        size += len(line) + 1
        if size > _BLOCK:
            yield _table(some, names, places, len(known), _separator(path))
            some, size = [], 0
    yield _table(some, names, places, len(known), _separator(path))


def _separator(path: Path) -> str:
    return "\t" if ".tsv" in [suffix.lower() for suffix in path.suffixes] else ","


def _table(
    lines: Sequence[bytes], names: Sequence[str], places: Sequence[int], width: int, separator: str
) -> dict[str, Cells]:
    bad = [None] * width
    held = lines if width == 1 else [line for line in lines if line.strip(b" \r")]
    rows = [_cells(line, separator, width) or bad for line in held]
    return {
        name: Cells(np.fromiter(map(itemgetter(place), rows), dtype=object, count=len(rows)))
        for name, place in zip(names, places, strict=True)
    }


def _cells(line: bytes, separator: str, width: int) -> list[str] | None:
    """The cells of a line, or None unless there are so many."""
    if len(line) > _LONGEST:
        return None
    cells = _split(line.decode("utf-8", "replace"), separator)
    return cells if len(cells) == width else None


def _split(line: str, separator: str) -> list[str]:
    text = line.rstrip("\r")
    if '"' not in text:
        return text.split(separator)
    # A carriage return within the line would end the record for the csv module.
    try:
        found = list(csv.reader([text.replace("\r", " ")], delimiter=separator))
    except csv.Error:  # a cell beyond the module's limit
        return []
    return found[0] if found else []


def _lines(path: Path) -> Iterator[bytes]:
    """The lines of a file; of one that is too long, no more than shows that it is."""
    opener: Callable[..., Any] = gzip.open if path.suffix.lower() == ".gz" else open
    try:
        with opener(path, "rb") as file:
            yield from _split_blocks(file)
    except (OSError, EOFError, zlib.error) as error:
        reason = reason_of(error) or "its compressed data are damaged"
        raise InvalidArgument(f"{path} cannot be read: {reason}.") from None


def _split_blocks(file: IO[bytes]) -> Iterator[bytes]:
    rest = b""
    while block := file.read(_BLOCK):
        *whole, rest = (rest + block).split(b"\n")
        yield from whole
        rest = rest[: _LONGEST + 1]
    if rest:
        yield rest

"""CSV files, read line by line: what one line holds cannot change how another is read.

By the usual rule a quoted cell may contain line breaks, and then one stray quote swallows the rows
after it: one person's cell would delete or merge other people's rows. So here every line is one
record. A quote that is not closed ends with its line. Nothing is guessed from the rows: the separator
follows from the file's name, every cell is text, and the first line is the header.

A line whose number of cells differs from the header's, or that is longer than a mebibyte, is a row of
which every cell is missing. Empty lines are skipped, except in a file with one column, where an empty line is
a missing cell. Bytes that are not UTF-8 become replacement characters.

Plain lines are read all at once, by the places of their separators (see `tacit.data.plain_lines`), and
every other line by the csv module, which gives the same cells. This is written by hand because
`pyarrow.csv` (version 26) does not keep the rule above: also with ``newlines_in_values=False``, a stray
quote swallows the following lines up to the end of a block.
"""

import csv
import gzip
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from tacit.data.cells import Cells
from tacit.data.plain_lines import found_cells
from tacit.data.texts import PADDING, Texts
from tacit.errors import InvalidArgument, reason_of

_BLOCK, _LONGEST = 2**21, 2**20  # bytes that are read at a time, and of the longest line
_MARK = b"\xef\xbb\xbf"  # with which some programs begin a UTF-8 file


def header(path: Path) -> list[str]:
    """The names in the first line."""
    line = next(_blocks(path), b"").partition(b"\n")[0].removeprefix(_MARK)
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
    separator, began = _separator(path), False
    for block in _blocks(path):
        rows = block if began else block[block.index(b"\n") + 1 :]  # without the header
        began = True
        yield dict(zip(names, _columns(rows, separator, len(known), places), strict=True))


def _separator(path: Path) -> str:
    return "\t" if ".tsv" in [suffix.lower() for suffix in path.suffixes] else ","


def _columns(block: bytes, separator: str, width: int, places: Sequence[int]) -> Iterator[Cells]:
    """Some columns of a block of lines, of which plain ones are read all at once."""
    block = block.replace(b"\r\n", b"\n") if b"\r" in block else block
    lines = found_cells(block, separator.encode(), width, _LONGEST)
    kept, present = np.ones((2, len(lines.starts)), np.bool_)
    others: list[bytes] = []  # the cells of other lines, which are put after the block
    ends = lines.starts[lines.odd].tolist(), lines.stops[lines.odd].tolist()
    for line, start, stop in zip(lines.odd.tolist(), *ends, strict=True):
        raw = block[start:stop].rstrip(b"\r")
        cells = _cells(raw, separator, width)
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


def _blocks(path: Path) -> Iterator[bytes]:
    """Whole lines of a file, a block at a time; the end of a line that is too long is left out."""
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
        end = block.rfind(b"\n") + 1
        if end:
            yield rest + block[:end]
            rest = b""
        rest = (rest + block[end:])[: _LONGEST + 1]
    if rest:
        yield rest + b"\n"

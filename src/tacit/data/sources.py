"""Sources of rows: tables in memory, memory maps and files, as chunks of columns.

A file is never loaded whole. Its header, and in Parquet and Arrow files the types, are public and
may be named in errors; cells are not. The first line of a CSV file might be a row, if somebody
forgot the header, and the columns of a frame its rows, if somebody turned it. So names are told only if one of
the wanted columns is among them, and none of them is a number or a date.
"""

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np

from tacit.data import lines, tables
from tacit.data.cells import Cells, number_of
from tacit.data.paths import path_of
from tacit.data.store import lies_on_disk
from tacit.errors import InvalidArgument

Chunk = dict[str, Cells]
_ROWS = 2**16  # in a chunk
_KNOWN = ".csv, .tsv (either may end in .gz), .parquet, .feather, .arrow or .npy"


@dataclass(frozen=True, kw_only=True, eq=False)
class Source:
    """A table: the names of its columns, and a way to read some of them chunk by chunk."""

    names: Sequence[Any]
    read: Callable[[Sequence[str]], Iterator[Chunk]]
    path: Path | None = None
    mapped: bool = False
    """Whether the rows lie on a disk, so that what is made of them should, too."""
    types: Mapping[str, str] | None = None
    """What a file's header says of its columns' types, if anything."""

    def chunks(self, names: Sequence[str]) -> Iterator[Chunk]:
        """Cells of columns that are there once each. Of a file the first chunk has no rows."""
        self.refuse(names)
        return self.read(names)

    def blank(self, names: Sequence[str]) -> Chunk:
        """No rows of these columns, by header and types alone."""
        return {name: cells.part(0, 0) for name, cells in next(self.chunks(names)).items()}

    def refuse(self, names: Iterable[str]) -> None:
        """Raises unless the columns are there, once each."""
        wanted = list(names)
        if not wanted:
            raise InvalidArgument("The data must have one column or more; it has none.")
        missing = [name for name in wanted if name not in self.names]
        where = "data" if self.path is None else f"file {self.path}"
        if missing and not (len(missing) < len(wanted) and all(map(_is_name, self.names))):
            raise InvalidArgument(f"The {where} has no column {', '.join(missing)}; {self._advice}")
        if missing:
            raise no_column(where, missing[0], self.names)
        for name in wanted:
            if list(self.names).count(name) > 1:
                raise InvalidArgument(
                    f"The {where} has several columns named {name!r}; rename all but one."
                )

    @property
    def _advice(self) -> str:
        if self.path is None:
            return "its columns must have the names that the schema declares, each a single piece of text."
        return (
            "its header, in a CSV file the first line, must name the columns, in .csv with commas and in "
            ".tsv with tabs between them."
        )


def opened(data: Any) -> Source:
    """The source that a table, or the path of a file, stands for. Reads a header at most."""
    if isinstance(data, str | os.PathLike):
        return _file(path_of(data, "data", _ENDINGS))
    return _table(data)


def _is_name(name: Any) -> bool:
    """Whether a column's name cannot be a number or a date."""
    text = isinstance(name, str) and any(letter.isalpha() for letter in name)
    return text and math.isnan(number_of(name))


def no_column(where: str, name: Any, known: Iterable[Any]) -> InvalidArgument:
    """The error that a column is not there, with the name that was meant, perhaps."""
    names = [str(other) for other in known]
    near = get_close_matches(str(name), names, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    shown = ", ".join(names[:30]) + (", ..." if len(names) > 30 else "")
    return InvalidArgument(f"The {where} has no column {name!r}; {hint}it has {shown or 'none'}.")


def _table(data: Any, path: Path | None = None) -> Source:
    names = tables.header(data)
    held = data.values() if isinstance(data, Mapping) else [data]
    mapped = any(lies_on_disk(each) for each in held)
    return Source(names=names, read=lambda some: _slices(data, some), path=path, mapped=mapped)


def _slices(data: Any, names: Sequence[str]) -> Iterator[Chunk]:
    table = {name: tables.read_column(data, name) for name in names}
    lengths = {len(cells.values) for cells in table.values()}
    if len(lengths) > 1:
        raise InvalidArgument(
            f"Columns {', '.join(table)} must have equally many rows; pass a value for each row."
        )
    for start in range(0, max([1, *lengths]), _ROWS):
        yield {name: cells.part(start, start + _ROWS) for name, cells in table.items()}


def _file(path: Path) -> Source:
    _refuse_path(path)
    suffix = path.suffixes[-2:] if path.suffix.lower() == ".gz" else path.suffixes[-1:]
    kind = suffix[0].lower() if suffix else ""
    if kind in _LINES:
        return Source(
            names=lines.header(path),
            read=lambda names: lines.chunks(path, names),
            path=path,
            mapped=True,
        )
    if kind in _READERS and path.suffix.lower() != ".gz":
        return _READERS[kind](path)
    raise InvalidArgument(f"{path} is not a kind of file that is known here: name it {_KNOWN}.")


def _refuse_path(path: Path) -> None:
    if path.is_dir():
        raise InvalidArgument(f"{path} is a folder; pass the path of a file in it.")
    if not path.is_file():
        raise InvalidArgument(f"There is no data file at {path}.")
    try:
        path.open("rb").close()
    except OSError as error:
        raise InvalidArgument(f"{path} cannot be read: {error.strerror}.") from None


def _array(path: Path) -> Source:
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError):
        raise InvalidArgument(
            f"{path} must be a NumPy file of numbers or text; it is damaged or holds something else."
        ) from None
    if not array.dtype.names or array.ndim != 1:
        raise InvalidArgument(
            f"{path} must hold a structured array, a record for each row, so that its columns have "
            "names; pass a mapping from names to arrays instead."
        )
    return _table(array, path)


def _parquet(path: Path) -> Source:
    from tacit.data import arrow

    return Source(
        names=arrow.schema(path).names,
        read=lambda names: arrow.chunks(path, names, _ROWS),
        path=path,
        mapped=True,
        types={field.name: str(field.type) for field in arrow.schema(path)},
    )


_LINES = (".csv", ".tsv", ".txt")
_READERS: dict[str, Callable[[Path], Source]] = {
    ".parquet": _parquet,
    ".pq": _parquet,
    ".feather": _parquet,
    ".arrow": _parquet,
    ".npy": _array,
}
_ENDINGS = frozenset([*_LINES, ".gz", *_READERS])

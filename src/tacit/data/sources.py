"""Sources of rows: tables in memory, memory maps and files, as chunks of columns.

A file is never loaded whole. Its header, and in Parquet and Arrow files the types, are public and may be named in
errors; cells are not. If the header of a CSV file is missing, its first line is a row; if a frame was transposed, its
columns are rows. So errors repeat names only if one of the wanted columns is among them, and none of them is a number or
a date. Text that was passed as a path may contain rows, too.
"""

import math
import os
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path

import numpy as np

from tacit._files import nearest_file
from tacit.data import csv
from tacit.data.cells import Cells, parse_number
from tacit.data.store import is_memmap
from tacit.data.tables import InMemory, TableLike, column_names, likely_kinds, read_column
from tacit.errors import InvalidArgument, MissingPackage

_MAX_PATH_LENGTH, _MAX_PART_LENGTH = 1000, 255  # characters


def check_path(text: str | os.PathLike[str], what: str, endings: Collection[str]) -> Path:
    """The path that a text names: of something that exists, or at least a text that looks like a path.

    The text could be a table that was passed by mistake, which errors must not repeat. So if it names
    nothing, it is repeated only if it is one short line, without comma or semicolon, with one of the
    ``endings``.
    """
    name = os.fsdecode(text)
    path = Path(name)
    if not _exists(path) and not _looks_like_path(name, endings):
        raise InvalidArgument(
            f"{what} must be a path, but the text that was passed names no file. It is not repeated here, because "
            f"it may be data. Pass the path of a file that ends in {', '.join(sorted(endings))}."
        )
    return path


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # too long, or with a zero byte
        return False


def _looks_like_path(name: str, endings: Collection[str]) -> bool:
    path = Path(name)
    short = len(name) <= _MAX_PATH_LENGTH and all(
        len(part) <= _MAX_PART_LENGTH for part in path.parts
    )
    plain = name.isprintable() and not set(",;") & set(name)
    return short and plain and path.suffix.lower() in endings


Chunk = dict[str, Cells]
_ROWS_PER_CHUNK = 2**16  # in a chunk
_KNOWN_FORMATS = ".csv, .tsv, .txt (also with .gz), .parquet, .feather, .arrow, .npy, .xlsx, .dta, .sav, .sas7bdat and .xpt"


@dataclass(frozen=True, kw_only=True, eq=False)
class Source:
    """A table: the names of its columns, and a way to read some of them chunk by chunk."""

    names: Sequence[Hashable]
    read: Callable[[Sequence[str]], Iterator[Chunk]]
    path: Path | None = None
    mapped: bool = False
    """Whether the rows are on disk, so that encoded rows should be, too."""
    likely: Mapping[str, str] = field(default_factory=dict)
    """Kinds of columns, where their types leave no doubt."""
    sep: str | None = None
    """What separates the cells of a text file."""

    def chunks(self, names: Sequence[str]) -> Iterator[Chunk]:
        """The cells of some columns, chunk by chunk. The first chunk of a file has no rows."""
        self.check_columns(names)
        return self.read(names)

    def blank(self, names: Sequence[str]) -> Chunk:
        """A chunk without rows, from the header and types alone."""
        return {name: cells.part(0, 0) for name, cells in next(self.chunks(names)).items()}

    def check_columns(self, names: Iterable[str]) -> None:
        """Raises unless the table has each of the columns once."""
        wanted = list(names)
        if not wanted:
            raise InvalidArgument("The data must have at least one column; it has none.")
        missing = [name for name in wanted if name not in self.names]
        where = "data" if self.path is None else f"file {self.path}"
        if missing and not (len(missing) < len(wanted) and all(map(_is_name, self.names))):
            raise InvalidArgument(f"The {where} has no column {', '.join(missing)}; {self._advice}")
        if missing:
            raise missing_column_error(where, missing[0], self.names)
        for name in wanted:
            if list(self.names).count(name) > 1:
                raise InvalidArgument(
                    f"The {where} has several columns named {name!r}; rename all but one."
                )

    @property
    def _advice(self) -> str:
        if self.path is None:
            return "its columns must have the names that the schema declares, as text."
        advice = "its header, in a text file the first line, must name the columns"
        if self.sep is None:
            return f"{advice}."
        words = csv.SEPARATORS.get(self.sep, repr(self.sep))
        return f"{advice}, which are taken to be separated by {words}; if they are not, declare sep in the schema."


def open_source(data: TableLike, sep: str | None = None) -> Source:
    """Opens a table, or the file at a path, with the separator of text files. Reads nothing but the header."""
    if isinstance(data, str | os.PathLike):
        return _file_source(check_path(data, "data", _ENDINGS), sep)
    return _table_source(data)


def _is_name(name: Hashable) -> bool:
    """Whether a text is a name, and cannot be a number or a date."""
    text = isinstance(name, str) and any(letter.isalpha() for letter in name)
    return text and math.isnan(parse_number(name))


def missing_column_error(where: str, name: str, known: Iterable[Hashable]) -> InvalidArgument:
    """The error that a column does not exist, with the most similar name."""
    names = [str(other) for other in known]
    near = get_close_matches(str(name), names, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    shown = ", ".join(names[:30]) + (", ..." if len(names) > 30 else "")
    return InvalidArgument(f"The {where} has no column {name!r}; {hint}it has {shown or 'none'}.")


def _table_source(data: InMemory, path: Path | None = None) -> Source:
    names = column_names(data)
    held = data.values() if isinstance(data, Mapping) else [data]
    mapped = any(is_memmap(each) for each in held)
    return Source(
        names=names,
        read=lambda some: _slices(data, some),
        path=path,
        mapped=mapped,
        likely=likely_kinds(data),
    )


def _slices(data: InMemory, names: Sequence[str]) -> Iterator[Chunk]:
    table = {name: read_column(data, name) for name in names}
    lengths = {len(cells.values) for cells in table.values()}
    if len(lengths) > 1:
        raise InvalidArgument(
            f"Columns {', '.join(table)} must have the same number of rows, a value for each row."
        )
    for start in range(0, max([1, *lengths]), _ROWS_PER_CHUNK):
        yield {name: cells.part(start, start + _ROWS_PER_CHUNK) for name, cells in table.items()}


def _file_source(path: Path, sep: str | None) -> Source:
    _check_file(path)
    suffix = path.suffixes[-2:] if path.suffix.lower() == ".gz" else path.suffixes[-1:]
    kind = suffix[0].lower() if suffix else ""
    if kind in _TEXT_ENDINGS:
        known, found = csv.header(path, sep)
        return Source(
            names=known,
            read=lambda names: csv.chunks(path, names, found),
            path=path,
            mapped=True,
            sep=found,
        )
    if kind in _READERS and path.suffix.lower() != ".gz":
        return _READERS[kind](path)
    raise InvalidArgument(f"{path} has an unknown file extension; known are {_KNOWN_FORMATS}.")


def _check_file(path: Path) -> None:
    if path.is_dir():
        raise InvalidArgument(f"{path} is a folder; pass the path of a file in it.")
    if not path.is_file():
        raise InvalidArgument(f"There is no data file at {path}.{nearest_file(path)}")
    try:
        path.open("rb").close()
    except OSError as error:
        raise InvalidArgument(f"{path} cannot be read: {error.strerror}.") from None


def _npy_source(path: Path) -> Source:
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError):
        raise InvalidArgument(
            f"{path} must be a NumPy file of numbers or text; it is damaged, or holds something else."
        ) from None
    if not array.dtype.names or array.ndim != 1:
        raise InvalidArgument(
            f"{path} must hold a structured array, a record for each row, so that its columns have "
            "names; pass a mapping from names to arrays instead."
        )
    return _table_source(array, path)


def _arrow_source(path: Path) -> Source:
    try:
        from tacit.data.arrow import chunks, read_file_schema
        from tacit.data.arrow import likely_kinds as kinds_of
    except ModuleNotFoundError:
        raise MissingPackage("pyarrow", f"Reading {path}") from None
    found = read_file_schema(path)
    return Source(
        names=found.names,
        read=lambda names: chunks(path, names, _ROWS_PER_CHUNK),
        path=path,
        mapped=True,
        likely=kinds_of(found),
    )


def _foreign_source(path: Path) -> Source:
    from tacit.data import foreign

    return Source(
        names=foreign.header(path),
        read=lambda names: foreign.chunks(path, names, _ROWS_PER_CHUNK),
        path=path,
        mapped=True,
    )


_TEXT_ENDINGS = (".csv", ".tsv", ".txt")
_READERS: dict[str, Callable[[Path], Source]] = {
    ".parquet": _arrow_source,
    ".pq": _arrow_source,
    ".feather": _arrow_source,
    ".arrow": _arrow_source,
    ".npy": _npy_source,
    ".xlsx": _foreign_source,
    ".dta": _foreign_source,
    ".sav": _foreign_source,
    ".sas7bdat": _foreign_source,
    ".xpt": _foreign_source,
}
_ENDINGS = frozenset([*_TEXT_ENDINGS, ".gz", *_READERS])

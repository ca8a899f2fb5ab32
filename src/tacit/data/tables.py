"""Columns from data frames and other containers, with their missing values.

A container's header, types and shapes are public and may be named in errors; cells are not.
"""

import os
import re
import sys
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.data.cells import Cells
from tacit.errors import InvalidArgument

ListType = tuple[Any, int | None] | None
"""The type of what lists hold, and their length if it is fixed; None for a type that is no list."""
_Column = TypeVar("_Column")


class DecimalType(Protocol):
    """A type of decimals."""

    precision: int | None
    scale: int


def object_cells(column: Sequence[object]) -> Cells:
    """A column of Python objects, each read by itself."""
    # Not np.asarray: it would turn numbers into text if one cell is text.
    return Cells(np.fromiter(column, dtype=object, count=len(column)), shape=None)


def text_cells(column: NDArray[Any]) -> Cells:
    """A column of text."""
    return Cells(column.astype(object), shape=column.shape[1:])


def numpy_cells(name: str, column: ArrayLike) -> Cells:
    """A column from an array, or from what NumPy makes an array of."""
    array = np.asarray(column)
    if array.ndim == 0:
        raise InvalidArgument(
            f"Column {name!r} must be an array or a list with a value for each row."
        )
    if array.dtype.kind == "S":
        array = np.frompyfunc(decode_utf8, 1, 1)(array.astype(object))
        cells = Cells(array, shape=array.shape[1:])
    elif array.dtype.kind in "UT":
        cells = text_cells(array)
    elif array.dtype.kind in "biufO":
        by_cell = array.dtype.kind == "O" and array.ndim == 1
        shape = None if by_cell else array.shape[1:]
        cells = Cells(array, shape=shape, rounded=array.dtype.kind == "f")
    else:
        raise column_type_error(name, array.dtype)
    if isinstance(column, np.ma.MaskedArray) and np.ma.is_masked(column):
        cells = cells._replace(present=~np.ma.getmaskarray(column))
    return cells


def loses_digits(kind: DecimalType) -> bool:
    """Whether two decimals of a type may become one float; whole numbers are checked one by one."""
    return bool(kind.scale) and (kind.precision is None or kind.precision > sys.float_info.dig)


def list_shape(kind: Any, inside: Callable[[Any], ListType]) -> tuple[tuple[int | None, ...], Any]:
    """The shape of lists, or of lists of lists, by their type, and the type of the entries."""
    shape: tuple[int | None, ...] = ()
    while (found := inside(kind)) is not None:
        kind, size = found
        shape = *shape, size
    return shape, kind


def check_entries(
    name: str, kind: object, entries: _Column, read: Callable[[str, _Column], Cells]
) -> None:
    """Raises if the entries of lists, by their type, could not be a column either."""
    try:
        readable = read(name, entries).readable
    except InvalidArgument:
        readable = False
    if not readable:
        raise column_type_error(name, kind)


def decode_utf8(cell: object) -> object:
    """Text, if the cell is bytes that are text in UTF-8; otherwise the cell as it is."""
    try:
        return cell.decode("utf-8") if isinstance(cell, bytes) else cell
    except UnicodeDecodeError:
        return cell


def column_type_error(name: str, dtype: object) -> InvalidArgument:
    """The error that a column's type cannot be read."""
    word = re.match(r"\w+", str(dtype))  # only a word: the names of a struct's fields may be data
    return InvalidArgument(
        f"Column {name!r} must hold numbers, Booleans or text, but its type is "
        f"{word[0] if word else 'another'}; convert it first, for example a date into days since "
        "a public date."
    )


class Frame(Protocol):
    """A data frame of pandas or Polars, or an Arrow table."""

    def __getitem__(self, name: str, /) -> Any:
        """The column of a name."""


InMemory = Mapping[str, ArrayLike] | NDArray[Any] | Frame
"""A table in memory: a mapping of arrays, a structured array or a data frame."""
TableLike = str | os.PathLike[str] | InMemory
"""A table in memory, or the path of a file."""


class _Reader(Protocol):
    """A module that reads the tables of a library."""

    def header(self, data: object, /) -> list[Hashable] | None: ...

    def cells(self, name: str, column: object, /) -> Cells | None: ...


def column_names(data: object) -> list[Hashable]:
    """The names of a table's columns."""
    if isinstance(data, Mapping):
        return list(data)
    if isinstance(data, np.ndarray) and data.dtype.names:
        return list(data.dtype.names)
    for library in _loaded_readers():
        if (names := library.header(data)) is not None:
            return names
    raise InvalidArgument(
        "data must be a mapping of arrays, a pandas or polars DataFrame (collected, if lazy), a "
        f"pyarrow Table or a NumPy structured array; got a {type(data).__name__}."
    )


def read_column(data: InMemory, name: str) -> Cells:
    """The cells of one column that is in the header."""
    if column_names(data).count(name) > 1:
        raise InvalidArgument(f"The data has several columns named {name!r}; rename all but one.")
    column: Any = data[name]
    for library in _loaded_readers():
        if (cells := library.cells(name, column)) is not None:
            return cells
    if isinstance(column, Sequence) and not isinstance(column, str | bytes):
        return object_cells(column)
    return numpy_cells(name, column)


def _loaded_readers() -> Iterator[_Reader]:
    """Readers for the libraries that are loaded. There are no tables of one that is not."""
    if sys.modules.get("pandas") is not None:
        from tacit.data import pandas

        yield pandas
    if sys.modules.get("polars") is not None:
        from tacit.data import polars

        yield polars
    if sys.modules.get("pyarrow") is not None:
        from tacit.data import arrow

        yield arrow

"""Columns of NumPy arrays and Python sequences, and what readers of other containers share.

A container's header, types and shapes are public and may be named in errors; cells are not.
"""

import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.data.cells import Cells
from tacit.errors import InvalidArgument

Inside = tuple[Any, int | None] | None
"""The type of what lists hold, and their length if it is fixed; None for a type that is no list."""
_Column = TypeVar("_Column")


class Decimals(Protocol):
    """A type of decimals."""

    precision: int | None
    scale: int


def objects(column: Sequence[object]) -> Cells:
    """A column of Python objects, each read by itself."""
    # Not np.asarray: it would turn numbers into text if one cell is text.
    return Cells(np.fromiter(column, dtype=object, count=len(column)), shape=None)


def texts(column: NDArray[Any]) -> Cells:
    """A column of text."""
    return Cells(column.astype(object), shape=column.shape[1:])


def from_numpy(name: str, column: ArrayLike) -> Cells:
    """A column from an array, or from what NumPy makes an array of."""
    array = np.asarray(column)
    if array.ndim == 0:
        raise InvalidArgument(
            f"Column {name!r} must be an array or a list with a value for each row."
        )
    if array.dtype.kind == "S":
        array = np.frompyfunc(decoded, 1, 1)(array.astype(object))
        cells = Cells(array, shape=array.shape[1:])
    elif array.dtype.kind in "UT":
        cells = texts(array)
    elif array.dtype.kind in "biufO":
        by_cell = array.dtype.kind == "O" and array.ndim == 1
        shape = None if by_cell else array.shape[1:]
        cells = Cells(array, shape=shape, rounded=array.dtype.kind == "f")
    else:
        raise refusal(name, array.dtype)
    if isinstance(column, np.ma.MaskedArray) and np.ma.is_masked(column):
        cells = cells._replace(present=~np.ma.getmaskarray(column))
    return cells


def rounds(kind: Decimals) -> bool:
    """Whether two decimals of a type may become one float; whole numbers are checked one by one."""
    return bool(kind.scale) and (kind.precision is None or kind.precision > sys.float_info.dig)


def list_form(kind: Any, inside: Callable[[Any], Inside]) -> tuple[tuple[int | None, ...], Any]:
    """The shape of lists, or of lists of lists, by their type, and the type of the entries."""
    shape: tuple[int | None, ...] = ()
    while (found := inside(kind)) is not None:
        kind, size = found
        shape = *shape, size
    return shape, kind


def refuse_entries(
    name: str, kind: object, entries: _Column, read: Callable[[str, _Column], Cells]
) -> None:
    """Raises if the entries of lists, by their type, could not be a column either."""
    try:
        readable = read(name, entries).readable
    except InvalidArgument:
        readable = False
    if not readable:
        raise refusal(name, kind)


def decoded(cell: object) -> object:
    """Text, if the cell is bytes that are text in UTF-8; otherwise the cell as it is."""
    try:
        return cell.decode("utf-8") if isinstance(cell, bytes) else cell
    except UnicodeDecodeError:
        return cell


def refusal(name: str, dtype: object) -> InvalidArgument:
    """The error that a column's type cannot be read."""
    word = re.match(r"\w+", str(dtype))  # only a word: the names of a struct's fields may be data
    return InvalidArgument(
        f"Column {name!r} must hold numbers, Booleans or text, but its type is "
        f"{word[0] if word else 'another'}; convert it first, for example a date into days since "
        "a public date."
    )

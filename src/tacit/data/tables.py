"""Columns from data frames and other containers, with their missing values.

A container's header, types and shapes are public and may be named in errors; cells are not.
"""

import os
import re
import sys
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.data.cells import Cells
from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

# The type of what lists hold, in a container's own words, and their length if it is fixed; None for what is no list.
ListType = tuple[Any, int | None] | None
_Column = TypeVar("_Column")


def object_cells(column: Sequence[object]) -> Cells:
    """A column of Python objects, each read by itself."""
    # Not np.asarray: it would turn numbers into text if one cell is text.
    return Cells(np.fromiter(column, dtype=object, count=len(column)), shape=None)


def text_cells(column: NDArray[np.generic]) -> Cells:
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
    elif array.dtype.kind == "M":
        cells = Cells(array, shape=array.shape[1:])
    elif array.dtype.kind in "biufO":
        by_cell = array.dtype.kind == "O" and array.ndim == 1
        shape = None if by_cell else array.shape[1:]
        cells = Cells(array, shape=shape, rounded=array.dtype.kind == "f")
    else:
        raise column_type_error(name, array.dtype)
    if isinstance(column, np.ma.MaskedArray) and np.ma.is_masked(column):
        cells = cells._replace(present=~np.ma.getmaskarray(column))
    return cells


def loses_digits(precision: int | None, scale: int) -> bool:
    """Whether two decimals of a type may become one float; whole numbers are checked one by one."""
    return bool(scale) and (precision is None or precision > sys.float_info.dig)


def list_shape(
    kind: Any, list_type: Callable[[Any], ListType]
) -> tuple[tuple[int | None, ...], Any]:
    """The shape of lists, or of lists of lists, by their type, and the type of the entries."""
    shape: tuple[int | None, ...] = ()
    while (found := list_type(kind)) is not None:
        kind, size = found
        shape = *shape, size
    return shape, kind


def check_entries(
    name: str, kind: object, entries: _Column, read: Callable[[str, _Column], Cells]
) -> None:
    """Raises if the entries of lists, by their type, could not be a column either."""
    try:
        found = read(name, entries)
        readable = found.readable and not found.is_dates
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
        f"{word[0] if word else 'another'}; convert it first."
    )


class Frame(Protocol):
    """A data frame of pandas or Polars, or an Arrow table."""

    def __getitem__(self, name: str, /) -> Any:
        """The column of a name."""


InMemory = Mapping[str, ArrayLike] | NDArray[np.void] | Frame
"""A table in memory: a mapping of arrays, a structured array or a data frame."""
TableLike = str | os.PathLike[str] | InMemory
"""A table in memory, or the path of a file."""


def column_names(data: object) -> list[Hashable]:
    """The names of a table's columns."""
    if isinstance(data, Mapping):
        return list(data)
    if isinstance(data, np.ndarray) and data.dtype.names:
        return list(data.dtype.names)
    if _is_a(data, "pandas", "DataFrame") or _is_a(data, "polars", "DataFrame"):
        return list(data.columns)  # type: ignore[attr-defined]
    if _is_a(data, "pyarrow", "Table", "RecordBatch"):
        return list(data.column_names)  # type: ignore[attr-defined]
    raise InvalidArgument(
        "data must be a mapping of arrays, a pandas or polars DataFrame (collected, if lazy), a "
        f"pyarrow Table or a NumPy structured array; got a {type(data).__name__}."
    )


# Text may be anything: numbers with units, dates, yes and no.
_LIKELY_KINDS = {"f": "number", "b": "binary", "M": "date"}


def likely_kinds(data: InMemory) -> dict[str, str]:
    """The kind of each column whose type leaves no doubt. Only types are looked at."""
    if _is_a(data, "pyarrow", "Table", "RecordBatch"):
        from tacit.data.arrow import likely_kinds as of_schema

        return of_schema(data.schema)  # type: ignore[union-attr]
    names = [name for name in column_names(data) if isinstance(name, str)]
    found = {name: _likely_kind(data, name) for name in names if names.count(name) == 1}
    return {name: kind for name, kind in found.items() if kind is not None}


def _likely_kind(data: InMemory, name: str) -> str | None:
    dtype: Any = getattr(data[name], "dtype", None)
    if _is_a(data, "polars", "DataFrame"):
        import polars as pl

        if dtype in (pl.Categorical, pl.Enum):
            return "category"
        if dtype.is_float() or dtype.is_decimal():
            return "number"
        return (
            "binary" if dtype == pl.Boolean else "date" if dtype in (pl.Date, pl.Datetime) else None
        )
    if getattr(dtype, "name", "") == "category":  # of pandas
        return "category"
    return _LIKELY_KINDS.get(getattr(dtype, "kind", ""))


def read_column(data: InMemory, name: str) -> Cells:
    """The cells of one column that is in the header."""
    if column_names(data).count(name) > 1:
        raise InvalidArgument(f"The data has several columns named {name!r}; rename all but one.")
    column: Any = data[name]
    if _is_a(column, "pandas", "Index"):
        column = column.to_series()
    if _is_a(column, "pandas", "Series"):
        return _pandas_cells(name, column)
    if _is_a(column, "polars", "Series"):
        return _polars_cells(name, column)
    if _is_a(column, "pyarrow", "Array", "ChunkedArray"):
        from tacit.data.arrow import array_cells

        return array_cells(name, column)
    if isinstance(column, Sequence) and not isinstance(column, str | bytes):
        return object_cells(column)
    return numpy_cells(name, column)


def _is_a(value: object, library: str, *classes: str) -> bool:
    """Whether a value is of a library's classes. Of one that is not loaded there are no values."""
    module = sys.modules.get(library)
    return module is not None and isinstance(value, tuple(getattr(module, c) for c in classes))


def _pandas_cells(name: str, column: "pd.Series") -> Cells:
    import pandas as pd

    dtype = column.dtype
    if isinstance(dtype, pd.ArrowDtype):
        from tacit.data.arrow import array_cells  # needs pyarrow, which this column is of

        return array_cells(name, column.array.__arrow_array__())
    if isinstance(dtype, pd.CategoricalDtype):
        # Refuses types that are refused elsewhere.
        kinds = _pandas_cells(name, dtype.categories.to_series())
        labels, *_ = object_cells([*dtype.categories, None])  # the code -1 means missing
        if kinds.is_dates:
            dates = np.asarray(kinds.values)
            labels = np.append(dates, np.array("NaT", dates.dtype))
        return Cells(labels[column.array.codes], rounded=kinds.rounded)
    if isinstance(dtype, pd.PeriodDtype | pd.IntervalDtype):
        raise column_type_error(name, dtype)
    if isinstance(dtype, pd.DatetimeTZDtype):
        column = column.dt.tz_localize(None)  # the date and time of the place
    if isinstance(dtype, pd.StringDtype):
        return text_cells(column.to_numpy(dtype=object, na_value=None))
    # A NumPy type with missing values, whose class is not public.
    if not isinstance(dtype, np.dtype) and hasattr(dtype, "numpy_dtype"):
        values = column.to_numpy(dtype=dtype.numpy_dtype, na_value=0)
        return Cells(values, ~column.isna().to_numpy(), rounded=values.dtype.kind == "f")
    return numpy_cells(name, column.to_numpy())


def _polars_cells(name: str, column: "pl.Series") -> Cells:
    import polars as pl

    def list_type(kind: object) -> ListType:
        if isinstance(kind, pl.Array | pl.List):
            return kind.inner, kind.size if isinstance(kind, pl.Array) else None
        return None

    dtype = column.dtype
    if dtype in (pl.Date, pl.Datetime):
        local = column.dt.replace_time_zone(None) if dtype == pl.Datetime else column
        return Cells(local.to_numpy())
    if dtype.is_temporal():
        raise column_type_error(name, dtype)
    rounded = dtype.is_float()
    if isinstance(dtype, pl.Decimal):
        rounded, column = loses_digits(dtype.precision, dtype.scale), column.cast(pl.Float64)
    wide = dtype in (pl.Int128, pl.UInt128)  # NumPy has no such integers
    if (dtype.is_numeric() and not wide) or dtype == pl.Boolean:
        filler = False if dtype == pl.Boolean else 0
        values, present = column.fill_null(filler).to_numpy(), column.is_not_null().to_numpy()
        return Cells(values, present, rounded=rounded)
    found = object_cells([decode_utf8(cell) for cell in column.to_list()])
    if isinstance(dtype, pl.Array | pl.List):
        shape, inner = list_shape(dtype, list_type)
        check_entries(name, dtype, pl.Series([], dtype=inner), _polars_cells)
        return found._replace(shape=shape)
    if dtype.is_nested():
        raise column_type_error(name, dtype)
    return found._replace(shape=None if dtype == pl.Object else ())

"""Columns from data frames and other containers, with their missing values.

A container's header, types and shapes are public and may be named in errors; cells are not.
"""

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from tacit.data.cells import Cells
from tacit.errors import InvalidArgument

# What lists hold, and how many of it, if that is fixed; None of what is no list.
Inside = tuple[Any, int | None] | None


def header(data: Any) -> list[Any]:
    """The names of a table's columns."""
    if isinstance(data, Mapping):
        return list(data)
    if isinstance(data, np.ndarray) and data.dtype.names:
        return list(data.dtype.names)
    if _is(data, "pandas.DataFrame", "polars.DataFrame"):
        return list(data.columns)
    if _is(data, "pyarrow.Table", "pyarrow.RecordBatch"):
        return list(data.column_names)
    raise InvalidArgument(
        "data must be a mapping of arrays, a pandas or polars DataFrame (collected, if lazy), a "
        f"pyarrow Table or a NumPy structured array; got a {type(data).__name__}."
    )


def read_column(data: Any, name: str) -> Cells:
    """The cells of one column that is in the header."""
    if header(data).count(name) > 1:
        raise InvalidArgument(f"The data has several columns named {name!r}; rename all but one.")
    column = data[name]
    if _is(column, "pandas.Index"):
        column = column.to_series()
    if _is(column, "pandas.Series"):
        return _from_pandas(name, column)
    if _is(column, "polars.Series"):
        return _from_polars(name, column)
    if _is(column, "pyarrow.Array", "pyarrow.ChunkedArray"):
        return _from_arrow(name, column)
    if isinstance(column, Sequence) and not isinstance(column, str | bytes):
        return _objects(column)
    return _from_numpy(name, column)


def _is(value: Any, *kinds: str) -> bool:
    """Whether a value is of a library's type, without importing the library."""
    for kind in kinds:
        library, _, name = kind.partition(".")
        if library in sys.modules and isinstance(value, vars(sys.modules[library])[name]):
            return True
    return False


def _objects(column: Any) -> Cells:
    # Not np.asarray: it would turn numbers into text if one cell is text.
    return Cells(np.fromiter(column, dtype=object, count=len(column)), shape=None)


def _texts(column: NDArray[Any]) -> Cells:
    return Cells(column.astype(object), shape=column.shape[1:])


def _from_numpy(name: str, column: Any) -> Cells:
    array = np.asarray(column)
    if array.ndim == 0:
        raise InvalidArgument(
            f"Column {name!r} must be an array or a list with a value for each row."
        )
    if array.dtype.kind == "S":
        array = np.frompyfunc(_decoded, 1, 1)(array.astype(object))
        cells = Cells(array, shape=array.shape[1:])
    elif array.dtype.kind in "UT":
        cells = _texts(array)
    elif array.dtype.kind in "biufO":
        by_cell = array.dtype.kind == "O" and array.ndim == 1
        cells = Cells(array, shape=None if by_cell else array.shape[1:])
    else:
        raise _refusal(name, array.dtype)
    if np.ma.is_masked(column):
        cells = cells._replace(present=~np.ma.getmaskarray(column))
    return cells


# Types of pandas, by what they are made of.
@runtime_checkable
class _OfArrow(Protocol):
    pyarrow_dtype: Any


@runtime_checkable
class _OfCategories(Protocol):
    categories: Any


@runtime_checkable
class _OfNumPy(Protocol):
    numpy_dtype: Any


def _from_pandas(name: str, column: Any) -> Cells:
    dtype = column.dtype
    if isinstance(dtype, _OfArrow):
        return _from_arrow(name, column.array.__arrow_array__())
    if isinstance(dtype, _OfCategories):
        _from_pandas(
            name, dtype.categories.to_series()
        )  # refuses what is refused outside a category
        labels = _objects([*dtype.categories, None]).values  # the code -1 means missing
        return Cells(labels[column.array.codes])
    if str(dtype).startswith(("period", "interval", "datetime64")):
        raise _refusal(name, dtype)
    if dtype.name in {"str", "string"}:
        return _texts(column.to_numpy(dtype=object, na_value=None))
    if not isinstance(dtype, np.dtype) and isinstance(dtype, _OfNumPy):
        values = column.to_numpy(dtype=dtype.numpy_dtype, na_value=0)
        return Cells(values, ~column.isna().to_numpy())
    return _from_numpy(name, column.to_numpy())


def _from_polars(name: str, column: Any) -> Cells:
    import polars as pl

    dtype = column.dtype
    if dtype.is_temporal():
        raise _refusal(name, dtype)
    rounded = dtype.is_decimal() and _rounds(dtype)
    if dtype.is_decimal():
        column = column.cast(pl.Float64)
    wide = dtype.is_integer() and str(dtype).endswith("128")  # NumPy has no such integers
    if (dtype.is_numeric() and not wide) or dtype == pl.Boolean:
        filler = False if dtype == pl.Boolean else 0
        values, present = column.fill_null(filler).to_numpy(), column.is_not_null().to_numpy()
        return Cells(values, present, rounded=rounded)
    cells = _objects([_decoded(cell) for cell in column.to_list()])
    if isinstance(dtype, pl.Array | pl.List):
        shape, inner = _form(dtype, _in_polars_lists)
        _refuse_entries(name, dtype, pl.Series([], dtype=inner), _from_polars)
        return cells._replace(shape=shape)
    if dtype.is_nested():
        raise _refusal(name, dtype)
    return cells._replace(shape=None if dtype == pl.Object else ())


def _from_arrow(name: str, column: Any) -> Cells:
    import pyarrow as pa

    kind = column.type
    if pa.types.is_dictionary(kind):
        return _from_arrow(name, column.cast(kind.value_type))
    if pa.types.is_temporal(kind):
        raise _refusal(name, kind)
    rounded = pa.types.is_decimal(kind) and _rounds(kind)
    if pa.types.is_decimal(kind):
        column, kind = column.cast(pa.float64()), pa.float64()
    if pa.types.is_primitive(kind):
        filler = pa.scalar(0).cast(kind)
        values = np.asarray(column.fill_null(filler))
        return Cells(values, np.asarray(column.is_valid()), rounded=rounded)
    if _is_one_of(kind, "string", "large_string", "string_view") or _is_one_of(
        kind, "binary", "large_binary", "binary_view"
    ):
        texts = column.cast(pa.large_binary()).to_pylist()
        return _objects([_decoded(cell) for cell in texts])._replace(shape=())
    cells = _objects([_python(cell) for cell in column])
    if _in_lists(kind) is not None:
        shape, inner = _form(kind, _in_lists)
        _refuse_entries(name, kind, pa.array([], inner), _from_arrow)
        return cells._replace(shape=shape)
    if pa.types.is_nested(kind):
        raise _refusal(name, kind)
    return cells._replace(shape=(), readable=pa.types.is_null(kind))


def _rounds(kind: Any) -> bool:
    """Whether decimals of a type may be one float though they differ; whole ones show it themselves."""
    return bool(kind.scale) and (kind.precision is None or kind.precision > sys.float_info.dig)


def _is_one_of(kind: Any, *names: str) -> bool:
    """Whether a type is one of those that pyarrow calls so."""
    from pyarrow import types

    return any(vars(types)[f"is_{name}"](kind) for name in names)


def _in_lists(kind: Any) -> Inside:
    """What lists of Arrow hold, by their type, and how many; None if it is of no lists."""
    if _is_one_of(kind, "list", "large_list", "fixed_size_list", "list_view", "large_list_view"):
        return kind.value_type, kind.list_size if _is_one_of(kind, "fixed_size_list") else None
    return None


def _in_polars_lists(kind: Any) -> Inside:
    """The same of Polars."""
    import polars as pl

    if isinstance(kind, pl.Array | pl.List):
        return kind.inner, kind.size if isinstance(kind, pl.Array) else None
    return None


def _form(kind: Any, inside: Callable[[Any], Inside]) -> tuple[tuple[int | None, ...], Any]:
    """The shape of lists, or of lists of lists, by their type, and what the innermost hold."""
    shape: tuple[int | None, ...] = ()
    while (found := inside(kind)) is not None:
        kind, size = found
        shape = *shape, size
    return shape, kind


def _refuse_entries(name: str, kind: Any, entries: Any, read: Callable[..., Cells]) -> None:
    """Raises if the entries of lists, by their type, could not be a column either."""
    try:
        readable = read(name, entries).readable
    except InvalidArgument:
        readable = False
    if not readable:
        raise _refusal(name, kind)


def _python(cell: Any) -> Any:
    """An array or another nested value as Python has it; None if it has none, as of broken text."""
    try:
        return cell.as_py()
    except Exception:  # noqa: BLE001 no error may tell of a cell
        return None


def _decoded(cell: Any) -> Any:
    """Text, if bytes are that in UTF-8. They may be anything; pyarrow would raise an error."""
    try:
        return cell.decode("utf-8") if isinstance(cell, bytes) else cell
    except UnicodeDecodeError:
        return cell


def _refusal(name: str, dtype: Any) -> InvalidArgument:
    word = re.match(r"\w+", str(dtype))  # no more: a struct's fields may be anybody's
    return InvalidArgument(
        f"Column {name!r} must hold numbers, Booleans or text, but its type is "
        f"{word[0] if word else 'another'}; turn it into one of them first, as a date into days since "
        "a public date."
    )

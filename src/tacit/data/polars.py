"""Columns of Polars data frames."""

from collections.abc import Hashable
from typing import Any

import polars as pl

from tacit.data.cells import Cells
from tacit.data.tables import (
    ListType,
    check_entries,
    column_type_error,
    decode_utf8,
    list_shape,
    loses_digits,
    object_cells,
)


def header(data: object) -> list[Hashable] | None:
    """The names of a data frame's columns, or None for anything else."""
    return list(data.columns) if isinstance(data, pl.DataFrame) else None


def cells(name: str, column: object) -> Cells | None:
    """The cells of a series, or None for anything else."""
    return _series_cells(name, column) if isinstance(column, pl.Series) else None


def _series_cells(name: str, column: Any) -> Cells:
    dtype = column.dtype
    if dtype.is_temporal():
        raise column_type_error(name, dtype)
    rounded = dtype.is_float() or (dtype.is_decimal() and loses_digits(dtype))
    if dtype.is_decimal():
        column = column.cast(pl.Float64)
    wide = dtype in (pl.Int128, pl.UInt128)  # NumPy has no such integers
    if (dtype.is_numeric() and not wide) or dtype == pl.Boolean:
        filler = False if dtype == pl.Boolean else 0
        values, present = column.fill_null(filler).to_numpy(), column.is_not_null().to_numpy()
        return Cells(values, present, rounded=rounded)
    found = object_cells([decode_utf8(cell) for cell in column.to_list()])
    if isinstance(dtype, pl.Array | pl.List):
        shape, inner = list_shape(dtype, _list_type)
        check_entries(name, dtype, pl.Series([], dtype=inner), _series_cells)
        return found._replace(shape=shape)
    if dtype.is_nested():
        raise column_type_error(name, dtype)
    return found._replace(shape=None if dtype == pl.Object else ())


def _list_type(kind: Any) -> ListType:
    if isinstance(kind, pl.Array | pl.List):
        return kind.inner, kind.size if isinstance(kind, pl.Array) else None
    return None

"""Columns of Polars data frames."""

from collections.abc import Hashable
from typing import Any

import polars as pl

from tacit.data.arrays import Inside, decoded, list_form, objects, refusal, refuse_entries, rounds
from tacit.data.cells import Cells


def header(data: object) -> list[Hashable] | None:
    """The names of a data frame's columns, or None for anything else."""
    return list(data.columns) if isinstance(data, pl.DataFrame) else None


def cells(name: str, column: object) -> Cells | None:
    """The cells of a series, or None for anything else."""
    return _of_series(name, column) if isinstance(column, pl.Series) else None


def _of_series(name: str, column: Any) -> Cells:
    dtype = column.dtype
    if dtype.is_temporal():
        raise refusal(name, dtype)
    rounded = dtype.is_float() or (dtype.is_decimal() and rounds(dtype))
    if dtype.is_decimal():
        column = column.cast(pl.Float64)
    wide = dtype in (pl.Int128, pl.UInt128)  # NumPy has no such integers
    if (dtype.is_numeric() and not wide) or dtype == pl.Boolean:
        filler = False if dtype == pl.Boolean else 0
        values, present = column.fill_null(filler).to_numpy(), column.is_not_null().to_numpy()
        return Cells(values, present, rounded=rounded)
    found = objects([decoded(cell) for cell in column.to_list()])
    if isinstance(dtype, pl.Array | pl.List):
        shape, inner = list_form(dtype, _inside)
        refuse_entries(name, dtype, pl.Series([], dtype=inner), _of_series)
        return found._replace(shape=shape)
    if dtype.is_nested():
        raise refusal(name, dtype)
    return found._replace(shape=None if dtype == pl.Object else ())


def _inside(kind: Any) -> Inside:
    if isinstance(kind, pl.Array | pl.List):
        return kind.inner, kind.size if isinstance(kind, pl.Array) else None
    return None

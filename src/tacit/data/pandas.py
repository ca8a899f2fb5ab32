"""Columns of pandas data frames."""

from collections.abc import Hashable
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pandas as pd

from tacit.data.cells import Cells
from tacit.data.tables import column_type_error, numpy_cells, object_cells, text_cells


@runtime_checkable
class _Masked(Protocol):
    """A type of pandas that is a NumPy type with missing values; its class is not public."""

    numpy_dtype: np.dtype[Any]


def header(data: object) -> list[Hashable] | None:
    """The names of a data frame's columns, or None for anything else."""
    return list(data.columns) if isinstance(data, pd.DataFrame) else None


def cells(name: str, column: object) -> Cells | None:
    """The cells of a series or an index, or None for anything else."""
    if isinstance(column, pd.Index):
        column = column.to_series()
    return _series_cells(name, column) if isinstance(column, pd.Series) else None


def _series_cells(name: str, column: Any) -> Cells:
    dtype = column.dtype
    if isinstance(dtype, pd.ArrowDtype):
        from tacit.data import arrow  # needs pyarrow, which is there: this column is of it

        return arrow.array_cells(name, column.array.__arrow_array__())
    if isinstance(dtype, pd.CategoricalDtype):
        # Refuses types that are refused elsewhere.
        kinds = _series_cells(name, dtype.categories.to_series())
        labels, *_ = object_cells([*dtype.categories, None])  # the code -1 means missing
        return Cells(labels[column.array.codes], rounded=kinds.rounded)
    if isinstance(dtype, pd.PeriodDtype | pd.IntervalDtype | pd.DatetimeTZDtype):
        raise column_type_error(name, dtype)
    if isinstance(dtype, pd.StringDtype):
        return text_cells(column.to_numpy(dtype=object, na_value=None))
    if not isinstance(dtype, np.dtype) and isinstance(dtype, _Masked):
        values = column.to_numpy(dtype=dtype.numpy_dtype, na_value=0)
        return Cells(values, ~column.isna().to_numpy(), rounded=values.dtype.kind == "f")
    return numpy_cells(name, column.to_numpy())

"""Columns of Arrow tables."""

from collections.abc import Hashable
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import types

from tacit.data.arrays import Inside, list_form, objects, refusal, refuse_entries, rounds
from tacit.data.cells import Cells
from tacit.data.texts import PADDING, Texts

_TEXTS = (
    types.is_string,
    types.is_large_string,
    types.is_string_view,
    types.is_binary,
    types.is_large_binary,
    types.is_binary_view,
)
_LISTS = (
    types.is_list,
    types.is_large_list,
    types.is_fixed_size_list,
    types.is_list_view,
    types.is_large_list_view,
)


def header(data: object) -> list[Hashable] | None:
    """The names of a table's columns, or None for anything else."""
    return list(data.column_names) if isinstance(data, pa.Table | pa.RecordBatch) else None


def cells(name: str, column: object) -> Cells | None:
    """The cells of an array, or None for anything else."""
    return of_array(name, column) if isinstance(column, pa.Array | pa.ChunkedArray) else None


def of_array(name: str, column: Any) -> Cells:
    """The cells of a `pyarrow.Array` or `pyarrow.ChunkedArray`."""
    kind = column.type
    if types.is_dictionary(kind):
        return of_array(name, column.cast(kind.value_type))
    if types.is_temporal(kind):
        raise refusal(name, kind)
    rounded = types.is_floating(kind) or (types.is_decimal(kind) and rounds(kind))
    if types.is_decimal(kind):
        column, kind = column.cast(pa.float64()), pa.float64()
    if types.is_primitive(kind):
        if not column.null_count:  # not copied, unless it is in several pieces or Booleans
            return Cells(np.asarray(column), rounded=rounded)
        filler = pa.scalar(0).cast(kind)
        values = np.asarray(column.fill_null(filler))
        return Cells(values, np.asarray(column.is_valid()), rounded=rounded)
    if any(is_text(kind) for is_text in _TEXTS):
        return _of_texts(column)
    found = objects([_python(cell) for cell in column])
    if _inside(kind) is not None:
        shape, inner = list_form(kind, _inside)
        refuse_entries(name, kind, pa.array([], inner), of_array)
        return found._replace(shape=shape)
    if types.is_nested(kind):
        raise refusal(name, kind)
    return found._replace(shape=(), readable=types.is_null(kind))


def _of_texts(column: Any) -> Cells:
    """Text, which may be broken: pyarrow would raise an error."""
    whole = column.cast(pa.large_binary())
    if isinstance(whole, pa.ChunkedArray):
        whole = whole.combine_chunks()
    _, places, data = whole.buffers()
    ends = np.frombuffer(places, np.int64, len(whole) + 1, 8 * whole.offset)
    cut = b"" if data is None else data.slice(ends[0], ends[-1] - ends[0]).to_pybytes()
    texts = Texts(cut + PADDING, ends[:-1] - ends[0], np.diff(ends), known=True)
    return Cells(texts, np.asarray(whole.is_valid()))


def _inside(kind: Any) -> Inside:
    if any(is_list(kind) for is_list in _LISTS):
        return kind.value_type, kind.list_size if types.is_fixed_size_list(kind) else None
    return None


def _python(cell: Any) -> Any:
    """A cell as a Python value, or None where that fails, as for broken text."""
    try:
        return cell.as_py()
    except Exception:  # noqa: BLE001 no error may show a cell
        return None

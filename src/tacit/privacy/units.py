"""From columns to units: rows as they come, or all rows of a person together."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit import _validate
from tacit.data.people import MOST_ROWS
from tacit.data.store import lies_on_disk, room
from tacit.errors import InvalidArgument


class Units(NamedTuple):
    """Units as arrays: an array for each column, and which of a unit's rows are real.

    ``row_present`` is None where each unit is a row.
    """

    fields: dict[str, Any]
    row_present: Any

    @property
    def length(self) -> int:
        """How many units there is room for."""
        return length_of(self.fields)


def grouped(
    fields: dict[str, NDArray[np.generic]], ids: NDArray[np.bytes_], most_rows: int
) -> Units:
    """People as units: each one's rows in the order given, up to a number.

    Rows without a person are left out. Every rule looks at one person only.
    """
    most = _validate.count("most_rows", most_rows, most=MOST_ROWS)
    if ids.shape != (length_of(fields),):
        raise InvalidArgument("person must name one person for each row.")
    order = np.argsort(ids, kind="stable")
    order = order[ids[order] != b""]
    first = np.ones(len(order), np.bool_)
    first[1:] = ids[order[1:]] != ids[order[:-1]]
    owner = np.cumsum(first) - 1
    place = np.arange(len(order)) - np.flatnonzero(first)[owner]
    kept = place < most
    order, where = order[kept], (owner[kept], place[kept])
    try:
        return Units(*_spread(fields, order, where, (int(first.sum()), most)))
    except MemoryError:
        raise InvalidArgument(
            "There is not enough memory for most_rows rows of every person; declare fewer."
        ) from None


def _spread(
    fields: dict[str, NDArray[np.generic]],
    order: NDArray[np.intp],
    where: tuple[NDArray[np.intp], NDArray[np.intp]],
    size: tuple[int, int],
) -> tuple[dict[str, NDArray[np.generic]], NDArray[np.bool_]]:
    """Rows, each at its place among its person's, and which places have one."""
    present = room(size, np.bool_)
    present[where] = True
    units = {}
    for name, values in fields.items():
        mapped = lies_on_disk(values)
        units[name] = room((*size, *values.shape[1:]), values.dtype, mapped=mapped)
        units[name][where] = values[order]
    return units, present


def checked_columns(columns: Mapping[str, ArrayLike]) -> dict[str, NDArray[np.generic]]:
    """Columns as arrays of float32 and int32, all of the same length."""
    fields: dict[str, NDArray[np.generic]] = {}
    for name, values in columns.items():
        try:
            array = np.asarray(values)
        except ValueError:
            raise InvalidArgument(f"Column {name!r} must have one shape for all rows.") from None
        if array.ndim == 0 or array.dtype.kind not in "fiub":
            raise InvalidArgument(
                f"Column {name!r} must be an array of numbers, with one entry for each row."
            )
        fields[name] = _narrow(array)
    if not fields or len({len(values) for values in fields.values()}) > 1:
        raise InvalidArgument("Pass one or more columns with a value for each row.")
    return fields


def _narrow(array: NDArray[Any]) -> NDArray[np.generic]:
    """Floats to float32, where what is too large becomes infinite; integers to the nearest int32.

    Always a copy: what a caller does to the array afterwards changes nothing here.
    """
    narrow = room(array.shape, np.float32 if array.dtype.kind == "f" else np.int32)
    if array.dtype.kind == "f":
        with np.errstate(all="ignore"):  # no warning may tell of a cell
            np.copyto(narrow, array, casting="same_kind")
    elif array.dtype.itemsize < 4 or array.dtype == np.int32:
        np.copyto(narrow, array)
    else:
        limits = np.iinfo(np.int32)
        lowest = limits.min if array.dtype.kind == "i" else 0
        np.clip(array, lowest, limits.max, out=narrow, casting="unsafe")
    return narrow


def length_of(fields: Mapping[str, NDArray[np.generic]]) -> int:
    """How many entries the columns have."""
    return len(next(iter(fields.values())))

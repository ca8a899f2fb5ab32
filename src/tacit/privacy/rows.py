"""The private data: units of privacy, each a row or all rows of a person."""

import hmac
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import jax
import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit import _validate
from tacit.data.people import MAX_ROWS_PER_PERSON, People
from tacit.data.store import allocate, drop_pages, is_memmap
from tacit.data.tables import read_column
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
        return leading_length(self.fields)


def group_by_person(
    fields: dict[str, NDArray[np.generic]], ids: NDArray[np.bytes_], most_rows: int
) -> Units:
    """People as units: each one's rows in the order given, up to a number.

    Rows without a person are left out. Every rule looks at one person only.
    """
    most = _validate.count("most_rows", most_rows, most=MAX_ROWS_PER_PERSON)
    if ids.shape != (leading_length(fields),):
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
        return Units(*_scatter_rows(fields, order, where, (int(first.sum()), most)))
    except MemoryError:
        raise InvalidArgument(
            "There is not enough memory for most_rows rows of every person; declare fewer."
        ) from None


def _scatter_rows(
    fields: dict[str, NDArray[np.generic]],
    order: NDArray[np.intp],
    where: tuple[NDArray[np.intp], NDArray[np.intp]],
    size: tuple[int, int],
) -> tuple[dict[str, NDArray[np.generic]], NDArray[np.bool_]]:
    """Rows, each at its place among its person's, and which places have one."""
    present = allocate(size, np.bool_)
    present[where] = True
    units = {}
    for name, values in fields.items():
        mapped = is_memmap(values)
        units[name] = allocate((*size, *values.shape[1:]), values.dtype, mapped=mapped)
        units[name][where] = values[order]
    return units, present


def check_columns(columns: Mapping[str, ArrayLike]) -> dict[str, NDArray[np.generic]]:
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
        fields[name] = _to_32_bits(array)
    if not fields or len({len(values) for values in fields.values()}) > 1:
        raise InvalidArgument("Pass one or more columns with a value for each row.")
    return fields


def _to_32_bits(array: NDArray[Any]) -> NDArray[np.generic]:
    """Floats to float32, where what is too large becomes infinite; integers to the nearest int32.

    Always a copy: what a caller does to the array afterwards changes nothing here.
    """
    narrow = allocate(array.shape, np.float32 if array.dtype.kind == "f" else np.int32)
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


def leading_length(fields: Mapping[str, NDArray[np.generic]]) -> int:
    """How many entries the columns have."""
    return len(next(iter(fields.values())))


# Bytes that are digested at a time, which is what a map's pages may take in memory.
_DIGEST_BYTES: Final = 2**25


class Rows:
    """Private rows as named columns, grouped into units. Its repr shows nothing of the data.

    A unit is what is sampled, clipped and protected: a row, or with `by_person` all rows of a
    person up to a declared number.

    Args:
        columns: An array for each column, all of the same length.
    """

    unit: str
    # Public units that were drawn from the schema alone, if there is one.
    simulated: Units | None = None

    def __init__(self, columns: Mapping[str, ArrayLike]) -> None:
        self._hold(check_columns(columns), None)

    def _hold(
        self,
        fields: dict[str, NDArray[np.generic]],
        present: NDArray[np.bool_] | None,
        silent: int = 0,
    ) -> None:
        self._fields, self._present, self._silent = fields, present, silent
        self._device: dict[int, Units] = {}
        self.unit = "row" if present is None else "person"

    @classmethod
    def by_person(
        cls, columns: Mapping[str, ArrayLike], person: ArrayLike, most_rows: int
    ) -> "Rows":
        """Groups rows into people, of at most ``most_rows`` rows each.

        A person's rows beyond that number are left out, in the order given. Rows without a person
        are left out too, because many of them could belong to one person. Identifiers are compared
        as for a schema; see `tacit.data.people`.

        Args:
            columns: An array for each column, all of the same length.
            person: The identifier of each row's person.
            most_rows: The largest number of rows per person that are used.

        Returns:
            The rows.
        """
        cells = read_column({"person": person}, "person")
        if cells.shape:
            raise InvalidArgument("person must name one person for each row; it has arrays.")
        codes = People().codes(cells)
        return cls._grouped(check_columns(columns), codes, most_rows, codes[:0])

    @classmethod
    def of_encoded(
        cls,
        columns: Mapping[str, NDArray[Any]],
        person: NDArray[np.bytes_] | None = None,
        most_rows: int | None = None,
        left_out: NDArray[np.bytes_] | int = 0,
    ) -> "Rows":
        """Rows from arrays of float32 and int32. They are not copied; do not change them.

        Args:
            columns: The encoded columns.
            person: Codes of people.
            most_rows: The largest number of rows per person.
            left_out: Codes of the people whose records were left out, or the number of records left
                out. They stay units that contribute nothing.

        Returns:
            The rows.
        """
        fields = dict(columns)
        if any(values.dtype not in (np.float32, np.int32) for values in fields.values()):
            raise InvalidArgument("Encoded columns must be of float32 or int32.")
        if person is not None and most_rows is not None:
            gone = left_out if isinstance(left_out, np.ndarray) else person[:0]
            return cls._grouped(fields, person, most_rows, gone)
        rows = cls({name: values[:0] for name, values in fields.items()})
        rows._hold(fields, None, int(left_out))
        return rows

    @classmethod
    def _grouped(
        cls,
        fields: dict[str, NDArray[np.generic]],
        ids: NDArray[np.bytes_],
        most_rows: int,
        left_out: NDArray[np.bytes_],
    ) -> "Rows":
        units = group_by_person(fields, ids, most_rows)
        rows = cls({name: values[:0] for name, values in fields.items()})
        silent = np.setdiff1d(left_out[left_out != b""], ids)
        rows._hold(units.fields, units.row_present, len(silent))
        return rows

    @classmethod
    def of_groups(
        cls, fields: dict[str, NDArray[Any]], present: NDArray[np.bool_], unit: str
    ) -> "Rows":
        """Units [units, rows of each, ...] that were grouped already; see `tacit.privacy.groups`."""
        rows = cls({name: np.zeros((1, *values.shape[2:])) for name, values in fields.items()})
        rows._hold(dict(fields), present)
        rows.unit = unit
        return rows

    @property
    def _count(self) -> int:
        """How many units have a row. Private under add-remove: for the gate only."""
        return leading_length(self._fields)

    def is_longer_than(self, bound: int) -> bool:
        """Whether there are more units than ``bound``. It is private: for those who hold the rows only."""
        return self._count > bound

    @property
    def _units(self) -> int:
        """How many units there are, those without a usable row too. [rows-silent]

        Where this number is public, it must not depend on anybody's cells.
        """
        return self._count + self._silent

    def _host_fields(self) -> Units:
        """All units, for the boundary only."""
        return Units(self._fields, self._present)

    def _device_fields(self, length: int | None = None) -> Units:
        """All units on the device, for the gate only; with zeros up to a length, and never empty."""
        wanted = max(self._count if length is None else length, 1)

        def padded(values: NDArray[np.generic]) -> jax.Array:
            some: NDArray[Any] = values
            if len(values) < wanted:
                some = np.zeros_like(values, shape=(wanted, *values.shape[1:]))
                some[: len(values)] = values
            array: jax.Array = jax.device_put(some, may_alias=True)
            return array

        if wanted not in self._device:
            present = None if self._present is None else padded(self._present)
            fields = {name: padded(values) for name, values in self._fields.items()}
            self._device[wanted] = Units(fields, present)
        return self._device[wanted]

    def _padded(self, length: int) -> Units:
        """All units on the device, with zeros up to a length, for the gate only."""

        def of(values: NDArray[Any]) -> jax.Array:
            held = allocate((length, *values.shape[1:]), values.dtype, mapped=is_memmap(values))
            held[: len(values)] = values
            array: jax.Array = jax.device_put(held, may_alias=True)
            return array

        present = None if self._present is None else of(self._present)
        return Units({name: of(values) for name, values in self._fields.items()}, present)

    @property
    def on_disk(self) -> bool:
        """Whether rows lie in a memory map, so that few of its pages should be in memory at once."""
        return any(is_memmap(values) for values in self._fields.values())

    @property
    def unit_bytes(self) -> int:
        """How much memory one unit takes, which is public: shapes and types are."""
        return sum(value.nbytes for value in self.made_up_unit().values())

    def _fetch(self, indices: NDArray[np.int32]) -> Units:
        """The units at these places, a column at a time, for the gate only."""

        def of(values: NDArray[Any]) -> jax.Array:
            some = values if len(values) else np.zeros_like(values, shape=(1, *values.shape[1:]))
            taken = allocate((*indices.shape, *values.shape[1:]), values.dtype)
            np.take(some, indices, axis=0, out=taken, mode="clip")
            drop_pages(values)
            array: jax.Array = jax.device_put(taken, may_alias=True)
            return array

        present = None if self._present is None else of(self._present)
        return Units({name: of(values) for name, values in self._fields.items()}, present)

    def _taken(self, indices: NDArray[np.int32]) -> Units:
        """The units at a few places, on the host, for the gate only."""

        def of(values: NDArray[Any]) -> NDArray[Any]:
            some = values if len(values) else np.zeros_like(values, shape=(1, *values.shape[1:]))
            taken: NDArray[Any] = some.take(indices, axis=0, mode="clip")
            drop_pages(values)
            return taken

        present = None if self._present is None else of(self._present)
        return Units({name: of(values) for name, values in self._fields.items()}, present)

    def _chunks(self, size: int) -> Iterator[tuple[Any, dict[str, Any], Any]]:
        """Units in chunks of one size: who is there, columns, which rows are real. Gate only.

        The last chunk is filled up with zeros, so that shapes do not tell how many there are.
        """
        for start in range(0, self._count, size):

            def part(values: NDArray[np.generic], start: int = start) -> NDArray[np.generic]:
                some = values[start : start + size]
                return np.pad(some, [(0, size - len(some))] + [(0, 0)] * (some.ndim - 1))

            here = np.arange(start, start + size) < self._count
            present = None if self._present is None else part(self._present)
            yield here, {name: part(values) for name, values in self._fields.items()}, present

    def _keyed_digest(self, key: bytes) -> bytes:
        """A keyed digest of all units, in their order, for the boundary only. [kept-rows]"""
        found = hmac.new(key, f"{self.shapes} {self._count} {self._silent}".encode(), "sha256")
        held = self._fields if self._present is None else {**self._fields, "": self._present}
        for values in held.values():
            size = max(1, _DIGEST_BYTES // max(1, values[:1].nbytes))
            for start in range(0, len(values), size):
                found.update(np.ascontiguousarray(values[start : start + size]).data)
                drop_pages(values)
        return found.digest()

    def __repr__(self) -> str:
        return f"Rows({', '.join(self._fields)}; one unit is a {self.unit})"

    @property
    def names(self) -> tuple[str, ...]:
        """The columns' names, which are public."""
        return tuple(self._fields)

    @property
    def shapes(self) -> tuple[Any, ...]:
        """The unit, and the columns' shapes and types, which are public."""
        made_up = self.made_up_unit().items()
        return self.unit, tuple((name, each.shape, each.dtype) for name, each in made_up)

    def blank(self) -> "Rows":
        """One made-up unit of the same columns, for whoever needs shapes and must not hold rows."""
        fields, present = self.made_up_units()
        rows = Rows(fields)
        rows._hold(rows._fields, present)
        rows.simulated = self.simulated
        return rows

    def made_up_unit(self) -> dict[str, NDArray[np.generic]]:
        """A unit of zeros with the columns' shapes and types, which are public."""
        return {n: np.zeros(v.shape[1:], dtype=v.dtype) for n, v in self._fields.items()}

    def made_up_presence(self) -> NDArray[np.bool_] | None:
        """Which rows of a made-up unit are real: none; or None if a unit is a row."""
        return None if self._present is None else np.zeros(self._present.shape[1:], np.bool_)

    def made_up_units(self) -> Units:
        """One made-up unit, with a leading axis for the units."""
        present = self.made_up_presence()
        unit = {name: value[None] for name, value in self.made_up_unit().items()}
        return Units(unit, None if present is None else present[None])

    def made_up_row(self) -> dict[str, NDArray[np.generic]]:
        """A row of zeros with the columns' shapes and types, which are public."""
        skip = 1 if self._present is None else 2
        return {n: np.zeros(v.shape[skip:], dtype=v.dtype) for n, v in self._fields.items()}

"""The private data: units of privacy, each a row or all rows of a person.

A unit is what is sampled, clipped and protected. Every column is held as an array [units, rows of a unit, ...]
of float32 or int32, with an array that says which of a unit's rows are real. Rows that are units by themselves are
units of one row, so nothing else in the boundary tells the two cases apart. How rows are grouped, narrowed and left
out follows rules that look at one row, or at one person, alone.
"""

import hmac
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

import jax
import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from tacit import _validate
from tacit._typing import AnyArray, HostArray
from tacit.data.people import MAX_ROWS_PER_PERSON, People
from tacit.data.store import allocate, drop_pages, is_memmap
from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from tacit.privacy.noise import Randomness

# Bytes that are digested at a time, which is what a map's pages may take in memory.
_DIGEST_BYTES: Final = 2**25


class Units(NamedTuple):
    """Units as arrays: [units, rows of a unit, ...] for each column, and which of the rows are real.

    Of a single unit, the same without the leading axis.
    """

    fields: Mapping[str, AnyArray]
    present: AnyArray

    @classmethod
    def single_rows(cls, columns: Mapping[str, HostArray]) -> "Units":
        """Rows that are units by themselves, from arrays [rows, ...], which are not copied."""
        fields = {name: values[:, None] for name, values in columns.items()}
        length = len(next(iter(columns.values())))
        return cls(fields, np.broadcast_to(np.True_, (length, 1)))

    @property
    def length(self) -> int:
        """Length of the axis of units, padding included."""
        return len(self.present)


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
        self._hold(Units.single_rows(check_columns(columns)))

    def _hold(self, units: Units, unit: str = "row", silent: int = 0) -> None:
        self._fields: dict[str, HostArray] = {n: np.asarray(v) for n, v in units.fields.items()}
        self._present: NDArray[np.bool_] = np.asarray(units.present)
        self.unit, self._silent = unit, silent
        self._device: dict[int, Units] = {}

    @classmethod
    def _of(cls, units: Units, unit: str, silent: int = 0) -> "Rows":
        rows = cls.__new__(cls)
        rows._hold(units, unit, silent)
        return rows

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
        from tacit.data.tables import read_column

        cells = read_column({"person": person}, "person")
        if cells.shape:
            raise InvalidArgument("person must name one person for each row; it has arrays.")
        units = group_by_person(check_columns(columns), People().codes(cells), most_rows)
        return cls._of(units, "person")

    @classmethod
    def from_encoded(
        cls,
        columns: Mapping[str, HostArray],
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
                out. They still count where the number of units is public, but contribute nothing.
                [rows-silent]

        Returns:
            The rows.
        """
        if any(values.dtype not in (np.float32, np.int32) for values in columns.values()):
            raise InvalidArgument("Encoded columns must be of float32 or int32.")
        if person is None or most_rows is None:
            assert isinstance(left_out, int)
            return cls._of(Units.single_rows(columns), "row", left_out)
        gone = left_out if isinstance(left_out, np.ndarray) else person[:0]
        silent = np.setdiff1d(gone[gone != b""], person)
        return cls._of(group_by_person(columns, person, most_rows), "person", len(silent))

    @classmethod
    def from_units(cls, units: Units, unit: str) -> "Rows":
        """Units [units, rows of each, ...] that were grouped already; see `tacit.privacy.groups`."""
        return cls._of(units, unit)

    def split(self, bits: "Randomness", share: float) -> tuple["Rows", "Rows"]:
        """Deals the units to two parts by a secret coin of each. [split-coins]

        Args:
            bits: Where coins are from. Nothing else may be drawn from it.
            share: The probability of the first part.

        Returns:
            The two parts. Which unit is in which must not leave, nor how many are.
        """
        words = bits.words(self._units) >> np.uint64(1)
        coins = words < np.uint64(round(share * 2**63))
        own = coins[: self._count]
        parts = []
        for chosen, silent in ((own, coins[self._count :]), (~own, ~coins[self._count :])):

            def taken(values: HostArray, chosen: NDArray[np.bool_] = chosen) -> HostArray:
                return values[chosen]

            part = Rows._of(self._each_column(taken), self.unit, int(silent.sum()))
            part.simulated = self.simulated
            parts.append(part)
        return parts[0], parts[1]

    @property
    def _count(self) -> int:
        """How many units have a row. Private under add-remove: for the gate only."""
        return len(self._present)

    @property
    def _units(self) -> int:
        """How many units there are, those without a usable row too. [rows-silent]

        Where this number is public, it must not depend on anybody's cells.
        """
        return self._count + self._silent

    def _host_fields(self) -> Units:
        """All units, for the boundary only."""
        return Units(self._fields, self._present)

    def _each_column(self, function: Callable[[HostArray], AnyArray]) -> Units:
        """Units of what a function makes of each column, and of which rows are real."""
        fields = {name: function(values) for name, values in self._fields.items()}
        return Units(fields, function(self._present))

    def _device_fields(self, length: int | None = None) -> Units:
        """All units on the device, for the gate only; with zeros up to a length, and never empty."""
        wanted = max(self._count if length is None else length, 1)

        def padded(values: HostArray) -> jax.Array:
            some = values
            if len(values) < wanted:
                shape = wanted, *values.shape[1:]
                some = allocate(shape, values.dtype, mapped=is_memmap(values))
                some[: len(values)] = values
            array: jax.Array = jax.device_put(some, may_alias=True)
            return array

        if wanted not in self._device:
            self._device[wanted] = self._each_column(padded)
        return self._device[wanted]

    @property
    def on_disk(self) -> bool:
        """Whether rows lie in a memory map, so that few of its pages should be in memory at once."""
        return any(is_memmap(values) for values in self._fields.values())

    @property
    def unit_bytes(self) -> int:
        """How much memory one unit takes, which is public: shapes and types are."""
        return sum(value.nbytes for value in self.dummy_unit().fields.values())

    def _fetch(self, indices: NDArray[np.int32]) -> Units:
        """The units at these places on the device, a column at a time, for the gate only."""

        def taken(values: HostArray) -> jax.Array:
            found = allocate((*indices.shape, *values.shape[1:]), values.dtype)
            np.take(_never_empty(values), indices, axis=0, out=found, mode="clip")
            drop_pages(values)
            array: jax.Array = jax.device_put(found, may_alias=True)
            return array

        return self._each_column(taken)

    def _taken(self, indices: NDArray[np.int32]) -> Units:
        """The units at a few places, on the host, for the gate only."""

        def taken(values: HostArray) -> HostArray:
            found = _never_empty(values).take(indices, axis=0, mode="clip")
            drop_pages(values)
            return found

        return self._each_column(taken)

    def _chunks(self, size: int) -> Iterator[tuple[NDArray[np.bool_], Units]]:
        """Chunks of equal size: a mask of real units, and the units. Gate only.

        The last chunk is filled up with zeros, so that shapes do not tell how many there are.
        """
        for start in range(0, self._count, size):

            def part(values: HostArray, start: int = start) -> HostArray:
                some = values[start : start + size]
                return np.pad(some, [(0, size - len(some))] + [(0, 0)] * (some.ndim - 1))

            yield np.arange(start, start + size) < self._count, self._each_column(part)

    def _keyed_digest(self, key: bytes) -> bytes:
        """A keyed digest of all units, in their order, for the boundary only. [kept-rows]"""
        found = hmac.new(key, f"{self.shapes} {self._count} {self._silent}".encode(), "sha256")
        for values in (*self._fields.values(), self._present):
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
    def rows_per_unit(self) -> int:
        """How many rows a unit has room for, which is public."""
        return int(self._present.shape[1])

    @property
    def shapes(self) -> tuple[str, tuple[tuple[str, tuple[int, ...], DTypeLike], ...]]:
        """The unit, and the columns' shapes and types, which are public."""
        held = self._fields.items()
        return self.unit, tuple((name, each.shape[1:], each.dtype) for name, each in held)

    def blank(self) -> "Rows":
        """One unit of zeros in the same columns, for whoever needs shapes and must not hold rows."""
        rows = Rows._of(self.dummy_units(), self.unit)
        rows.simulated = self.simulated
        return rows

    def dummy_unit(self) -> Units:
        """One unit of zeros with the columns' shapes and types, which are public; all its rows count as real."""
        fields = {name: np.zeros(v.shape[1:], v.dtype) for name, v in self._fields.items()}
        return Units(fields, np.ones(self.rows_per_unit, np.bool_))

    def dummy_units(self) -> Units:
        """The same with a leading axis for the units."""
        unit = self.dummy_unit()
        return Units({name: v[None] for name, v in unit.fields.items()}, unit.present[None])

    def dummy_row(self) -> dict[str, HostArray]:
        """A row of zeros with the columns' shapes and types, which are public."""
        return {name: np.zeros(v.shape[2:], v.dtype) for name, v in self._fields.items()}


def _never_empty(values: HostArray) -> HostArray:
    """The same units, or one of zeros if there are none."""
    return values if len(values) else np.zeros_like(values, shape=(1, *values.shape[1:]))


def group_by_person(
    fields: Mapping[str, HostArray], ids: NDArray[np.bytes_], most_rows: int
) -> Units:
    """People as units: each one's rows in the order given, up to a number.

    Rows without a person are left out. Every rule looks at one person only.
    """
    most = _validate.count("most_rows", most_rows, most=MAX_ROWS_PER_PERSON)
    if any(ids.shape != (len(values),) for values in fields.values()):
        raise InvalidArgument("person must name one person for each row.")
    order = np.argsort(ids, kind="stable")
    order = order[ids[order] != b""]
    first = np.ones(len(order), np.bool_)
    first[1:] = ids[order[1:]] != ids[order[:-1]]
    owner = np.cumsum(first) - 1
    place = np.arange(len(order)) - np.flatnonzero(first)[owner]
    kept = place < most
    order, where = order[kept], (owner[kept], place[kept])
    size = int(first.sum()), most
    try:
        present = allocate(size, np.bool_)
        present[where] = True
        units = {}
        for name, values in fields.items():
            shape = *size, *values.shape[1:]
            units[name] = allocate(shape, values.dtype, mapped=is_memmap(values))
            units[name][where] = values[order]
    except MemoryError:
        raise InvalidArgument(
            "There is not enough memory for most_rows rows of every person; declare fewer."
        ) from None
    return Units(units, present)


def check_columns(columns: Mapping[str, ArrayLike]) -> dict[str, HostArray]:
    """Columns as arrays of float32 and int32, all of the same length."""
    fields: dict[str, HostArray] = {}
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


def _to_32_bits(array: HostArray) -> HostArray:
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

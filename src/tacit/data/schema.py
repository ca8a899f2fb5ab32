"""Schemas: the public facts about a table, declared before the data are read."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tacit import _validate
from tacit._format import in_digits
from tacit.data import description, sources
from tacit.data.cells import Cells
from tacit.data.columns import Kind
from tacit.data.people import MOST_ROWS, People
from tacit.data.store import Store
from tacit.errors import InvalidArgument

_BESIDE = ""  # what is kept beside the columns, whose names are not empty


class Encoded(NamedTuple):
    """Encoded rows, which are private, in the form that `Rows.of_encoded` takes."""

    columns: dict[str, NDArray[Any]]
    person: NDArray[np.bytes_] | None
    most_rows: int | None
    left_out: NDArray[np.bytes_] | int = 0
    """How many rows were left out for a missing value; or whose they were, where people are units."""


class Released(NamedTuple):
    """Columns whose centre and spread were released from the data, and for how much.

    >>> print(Released(("age", "dose"), 0.1, 1e-6, "add-remove"))
    centre and spread of age, dose, released at epsilon 0.1, delta 1e-06 (add-remove)
    """

    columns: tuple[str, ...]
    epsilon: float
    delta: float
    adjacency: str

    def __str__(self) -> str:
        cost = (
            f"epsilon {in_digits(self.epsilon)}, delta {in_digits(self.delta)} ({self.adjacency})"
        )
        return f"centre and spread of {', '.join(self.columns)}, released at {cost}"


@dataclass(frozen=True, init=False, repr=False)
class Schema:
    """The public facts about a table: kinds, bounds and levels of columns, and the unit of privacy.

    A guarantee holds for every table that the data could have been, so bounds must not come from
    the data. Declare them from domain knowledge: ages are 18 to 100 by the study's protocol, not
    because the oldest participant is 100.

    Args:
        columns: The kind of each column: `Number`, `Count`, `Binary` or `Category`.
        person: The column that identifies the person a row belongs to. The unit of privacy is then
            a person, and rows without a person are left out. Without it the unit is a row.
        most_rows: The largest number of rows per person that are used. Required with ``person``.
        released: Records of numbers that were estimated from the data in a charged release; filled
            in by `tacit.private_scales`.

    Raises:
        InvalidArgument: If a declaration is wrong.

    Examples:
        >>> import tacit
        >>> schema = tacit.Schema(
        ...     {"age": tacit.Number(18, 100), "ward": tacit.Category(["A", "B"], other="other")},
        ...     person="patient",
        ...     most_rows=20,
        ... )
        >>> print(schema)
        column  kind      public facts        if missing
        age     number    18 to 100           row left out
        ward    category  2 levels and other  row left out
        One unit is a person, by column patient, of at most 20 rows.
    """

    items: tuple[tuple[str, Kind], ...]
    person: str | None
    most_rows: int | None
    released: tuple[Released, ...]

    def __init__(
        self,
        columns: Mapping[str, Kind],
        *,
        person: str | None = None,
        most_rows: int | None = None,
        released: Iterable[Released] = (),
    ) -> None:
        _check_columns(columns)
        most = most_rows
        if most_rows is not None:
            most = _validate.count("most_rows", most_rows, most=MOST_ROWS)
        _check_person(columns, person, most)
        for name, value in (
            ("items", tuple(columns.items())),
            ("person", person),
            ("most_rows", most),
            ("released", tuple(released)),
        ):
            object.__setattr__(self, name, value)

    @classmethod
    def from_yaml(cls, path: str | Path) -> "Schema":
        """Reads a schema from a YAML file as `to_yaml` writes it.

        Args:
            path: The file.

        Returns:
            The schema.

        Raises:
            InvalidArgument: If the file cannot be read or declares something wrong.
        """
        columns, more = description.read(path)
        try:
            more["released"] = _all_noted(more.get("released", []))
            return cls(columns, **more)
        except InvalidArgument as error:
            raise InvalidArgument(f"{path}: {error}") from None

    def to_yaml(self, path: str | Path) -> None:
        """Writes the schema to a YAML file.

        Args:
            path: The file.
        """
        more: dict[str, Any] = {}
        if self.person is not None:
            more |= {"person": self.person, "most_rows": self.most_rows}
        if self.released:
            notes = [each._asdict() for each in self.released]
            more["released"] = [{**note, "columns": list(note["columns"])} for note in notes]
        description.write(path, dict(self.items), more)

    def with_columns(
        self, columns: Mapping[str, Kind], *, released: Iterable[Released] | None = None
    ) -> "Schema":
        """A copy with some columns declared differently.

        Args:
            columns: The new kinds, by column name.
            released: The new records of releases; by default unchanged.

        Returns:
            The new schema.
        """
        notes = self.released if released is None else released
        kinds = {**dict(self.items), **columns}
        return Schema(kinds, person=self.person, most_rows=self.most_rows, released=notes)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the declared columns."""
        return tuple(name for name, _ in self.items)

    @property
    def unit(self) -> str:
        """The unit of privacy: ``"row"`` or ``"person"``."""
        return "row" if self.person is None else "person"

    def __getitem__(self, name: str) -> Kind:
        return dict(self.items)[self._choose([name])[0]]

    def encode(self, data: Any, names: Iterable[str] | None = None) -> Encoded:
        """Encodes a table as arrays, each row by itself.

        A file is read in chunks; large results are stored in a memory map. Rows keep their order. A
        row that is left out for a missing value stays a unit that contributes nothing. The table is
        not changed. Errors depend on the header, types and shapes only, never on a cell.

        Args:
            data: A mapping of arrays, a pandas or polars DataFrame, a pyarrow Table, a NumPy
                structured array, or the path of a CSV, Parquet, Arrow or NumPy file.
            names: The columns to encode; by default all declared columns.

        Returns:
            The encoded rows, which are private.

        Raises:
            InvalidArgument: If the table lacks a column or has types or shapes that do not fit.
        """
        chosen = self._choose(names)
        source, people = sources.opened(data), People()
        wanted = chosen if self.person is None else (*chosen, self.person)
        out, number = Store(mapped=False), 0
        with Store(mapped=source.mapped) as store:
            for table in source.chunks(wanted):
                columns, kept = self._encode(table, chosen)
                if self.person is not None:
                    columns[_BESIDE] = _person(self.person, table[self.person], people)
                    out.append({_BESIDE: np.unique(columns[_BESIDE][~kept])})
                everyone, number = bool(kept.all()), number + int(np.sum(~kept))
                store.append(columns if everyone else {n: v[kept] for n, v in columns.items()})
            whole = store.finish()
        person = whole.pop(_BESIDE, None)
        left_out = number if person is None else out.finish()[_BESIDE]
        return Encoded(whole, person, self.most_rows, left_out)

    def refuse(self, data: Any, names: Iterable[str] | None = None) -> None:
        """Raises if a table lacks declared columns or has types that do not fit. Reads no rows.

        Args:
            data: The table, as for `encode`.
            names: The columns to check; by default all declared columns.

        Raises:
            InvalidArgument: If the table cannot be encoded.
        """
        chosen = self._choose(names)
        wanted = chosen if self.person is None else (*chosen, self.person)
        blank = sources.opened(data).blank(wanted)
        self._encode(blank, chosen)
        if self.person is not None:
            _person(self.person, blank[self.person], People())

    def encode_new(
        self, data: Any, names: Iterable[str]
    ) -> tuple[dict[str, NDArray[Any]], NDArray[np.bool_]]:
        """Encodes rows to predict for. No row is left out.

        Args:
            data: The table, as for `encode`.
            names: The columns to encode.

        Returns:
            The encoded columns, and a Boolean array that is true for rows without missing values.
        """
        chosen = tuple(names)
        source, store = sources.opened(data), Store(mapped=False)
        for table in source.chunks(chosen or tuple(source.names)[:1]):
            columns, present = self._encode(table, chosen)
            store.append(columns | {_BESIDE: present})
        whole = store.finish()
        present = whole.pop(_BESIDE)
        return whole, present

    def _encode(
        self, table: Mapping[str, Cells], names: tuple[str, ...]
    ) -> tuple[dict[str, NDArray[Any]], NDArray[np.bool_]]:
        encoded = {
            name: self[name].encode(_shaped(name, table[name], self[name])) for name in names
        }
        present = np.ones(len(next(iter(table.values())).values), np.bool_)
        for column in encoded.values():
            if column.present is not None:
                present &= column.present
        return {name: column.values for name, column in encoded.items()}, present

    def made_up(
        self, count: int, names: Iterable[str] | None = None, seed: int = 0
    ) -> dict[str, NDArray[Any]]:
        """Generates made-up encoded rows within the bounds, to try a model without data.

        The values of a column do not depend on which other columns are requested.

        Args:
            count: The number of rows.
            names: The columns; by default all declared columns.
            seed: Seed of the random numbers.

        Returns:
            The encoded columns.
        """
        number = _validate.count("count", count, least=0)
        start = _validate.count("seed", seed, least=0)
        return {
            name: self[name].made_up(number, np.random.default_rng([start, self.names.index(name)]))
            for name in self._choose(names)
        }

    def _choose(self, names: Iterable[str] | None) -> tuple[str, ...]:
        if isinstance(names, str):
            known = f" pass [{names!r}]." if names in self.names else " pass a list."
            raise InvalidArgument(f"names must be a list of names, and not text;{known}")
        chosen = self.names if names is None else tuple(names)
        if not chosen or len(set(chosen)) < len(chosen):
            raise InvalidArgument("names must be one or more different columns of the schema.")
        for name in chosen:
            if name not in self.names:
                raise sources.no_column("schema", name, self.names)
        return chosen

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences on the unit of privacy and on earlier releases."""
        unit = "One unit is a row."
        if self.person is not None:
            unit = (
                f"One unit is a person, by column {self.person}, of at most {self.most_rows} rows."
            )
        return (unit, *(f"From the data: {each}." for each in self.released))

    def __str__(self) -> str:
        return "\n".join([description.table(dict(self.items)), *self.notes])

    def __repr__(self) -> str:
        unit = (
            "" if self.person is None else f", person={self.person!r}, most_rows={self.most_rows}"
        )
        released = f", released={list(self.released)}" if self.released else ""
        return f"Schema({dict(self.items)}{unit}{released})"


def _all_noted(notes: Any) -> list[Released]:
    if not isinstance(notes, list):
        raise InvalidArgument("released must be a list, as tacit wrote it.")
    return [_noted(note) for note in notes]


def _noted(note: Any) -> Released:
    try:
        found = Released(**{**note, "columns": tuple(note["columns"])})
        numbers = float(found.epsilon), float(found.delta)
        return found._replace(epsilon=numbers[0], delta=numbers[1])
    except (KeyError, TypeError, ValueError):
        raise InvalidArgument(
            f"Each of released must have {', '.join(Released.__annotations__)}, as tacit wrote it."
        ) from None


def _check_columns(columns: Any) -> None:
    if not isinstance(columns, Mapping) or not columns:
        raise InvalidArgument(
            "Pass a schema's columns as a mapping from one or more names to kinds such as "
            "tacit.Number(0, 1)."
        )
    for name, kind in columns.items():
        if not isinstance(name, str) or not name:
            raise InvalidArgument(f"Names of columns must be text, and not empty; got {name!r}.")
        if not isinstance(kind, Kind):
            raise InvalidArgument(
                f"Column {name!r} must be a Number, Count, Binary or Category; got {kind!r}."
            )


def _check_person(columns: Mapping[str, Kind], person: Any, most_rows: int | None) -> None:
    if (person is None) != (most_rows is None):
        raise InvalidArgument(
            "Pass both person, the column that says whose row it is, and most_rows, the largest "
            "number of rows used of a person; or neither, if every row is another person's."
        )
    if person is not None and (not isinstance(person, str) or not person):
        raise InvalidArgument(f"person must be the name of a column; got {person!r}.")
    if person in columns:
        raise InvalidArgument(
            f"person {person!r} says whose row it is and cannot be a column of the model as well; "
            "leave it out of the columns, or put a copy under another name into the data."
        )


def _shaped(name: str, cells: Cells, kind: Kind) -> Cells:
    if not cells.readable:
        raise InvalidArgument(
            f"Column {name!r} must hold numbers, Booleans or text, and its type is another; turn it into "
            "one of them first."
        )
    if cells.shape is not None and not _fits(cells.shape, kind.shape):
        found = f"arrays of shape {cells.shape}" if cells.shape else "single values"
        found = "lists" if None in cells.shape else found
        wanted = f"arrays of shape {kind.shape}" if kind.shape else "a single value"
        raise InvalidArgument(
            f"Column {name!r} must have {wanted} in each row, as the schema says; found {found}; "
            "change the schema or reshape the column."
        )
    return cells


def _fits(found: tuple[int | None, ...], wanted: tuple[int, ...]) -> bool:
    """Whether rows can have a shape, by what their type says of it."""
    pairs = zip(found, wanted, strict=False)
    return len(found) == len(wanted) and all(a in (None, b) for a, b in pairs)


def _person(name: str, cells: Cells, people: People) -> NDArray[np.bytes_]:
    if cells.shape:
        raise InvalidArgument(f"Column {name!r} must name one person in each row; found arrays.")
    return people.codes(cells)

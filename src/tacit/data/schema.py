"""Schemas: the public facts about a table, declared before the data are read."""

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from tacit import _validate
from tacit.data import description, encode, sources
from tacit.data.columns import Kind
from tacit.data.encoded import Encoded
from tacit.data.people import MOST_ROWS
from tacit.data.released import Released, records_of
from tacit.data.tables import TableLike
from tacit.errors import InvalidArgument


def _items(columns: Mapping[str, Kind]) -> tuple[tuple[str, Kind], ...]:
    if not isinstance(columns, Mapping) or not columns:
        raise InvalidArgument(
            "Pass a schema's columns as a mapping from one or more names to kinds such as "
            "tacit.Number(0, 1)."
        )
    for name, kind in columns.items():
        if not isinstance(name, str) or not name:
            raise InvalidArgument(f"Names of columns must be text that is not empty; got {name!r}.")
        if not isinstance(kind, Kind):
            raise InvalidArgument(
                f"Column {name!r} must be a Number, Count, Binary or Category; got {kind!r}."
            )
    return tuple(columns.items())


def _most_rows(most_rows: int | None) -> int | None:
    return None if most_rows is None else _validate.count("most_rows", most_rows, most=MOST_ROWS)


def _records(released: Iterable[Released]) -> tuple[Released, ...]:
    return tuple(released)


@frozen(repr=False)
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
        One unit is a person, by column patient, with at most 20 rows.
    """

    items: tuple[tuple[str, Kind], ...] = field(converter=_items, alias="columns")
    person: str | None = field(default=None, kw_only=True)
    most_rows: int | None = field(default=None, converter=_most_rows, kw_only=True)
    released: tuple[Released, ...] = field(default=(), converter=_records, kw_only=True)

    def __attrs_post_init__(self) -> None:
        _check_person(self.names, self.person, self.most_rows)

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
        return cls._declared(path, *description.read(path))

    @classmethod
    def from_text(cls, text: str) -> "Schema":
        """Reads a schema from YAML as `to_text` returns it.

        Args:
            text: The YAML.

        Returns:
            The schema.

        Raises:
            InvalidArgument: If the text declares something wrong.
        """
        where = "The text of the schema"
        return cls._declared(where, *description.parsed(text, where))

    @classmethod
    def _declared(
        cls, where: str | Path, columns: Mapping[str, Kind], more: dict[str, Any]
    ) -> "Schema":
        try:
            more["released"] = records_of(more.get("released", []))
            return cls(columns, **more)
        except InvalidArgument as error:
            raise InvalidArgument(f"{where}: {error}") from None

    def to_yaml(self, path: str | Path) -> None:
        """Writes the schema to a YAML file.

        Args:
            path: The file.
        """
        Path(path).write_text(self.to_text(), encoding="utf-8")

    def to_text(self) -> str:
        """The schema as YAML.

        Returns:
            The text, which `from_text` reads.
        """
        more: dict[str, Any] = {}
        if self.person is not None:
            more |= {"person": self.person, "most_rows": self.most_rows}
        if self.released:
            notes = [each._asdict() for each in self.released]
            more["released"] = [{**note, "columns": list(note["columns"])} for note in notes]
        return description.text_of(dict(self.items), more)

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

    def encode(
        self, data: TableLike, names: Iterable[str] | None = None, *, tables: int = 1
    ) -> Encoded:
        """Encodes a table as arrays, each row by itself.

        A file is read in chunks; large results are stored in a memory map. Rows keep their order. A
        row that is left out for a missing value stays a unit that contributes nothing. The table is
        not changed. Errors depend on the header, types and shapes only, never on a cell.

        Args:
            data: A mapping of arrays, a pandas or polars DataFrame, a pyarrow Table, a NumPy
                structured array, or the path of a CSV, Parquet, Arrow or NumPy file.
            names: The columns to encode; by default all declared columns.
            tables: How many such tables will be in memory at once.

        Returns:
            The encoded rows, which are private.

        Raises:
            InvalidArgument: If the table lacks a column or has types or shapes that do not fit.
        """
        source = sources.opened(data)
        return encode.encode_table(source, self._kinds(names), self.person, self.most_rows, tables)

    def refuse(self, data: TableLike, names: Iterable[str] | None = None) -> None:
        """Raises if a table lacks declared columns or has types that do not fit. Reads no rows.

        Args:
            data: The table, as for `encode`.
            names: The columns to check; by default all declared columns.

        Raises:
            InvalidArgument: If the table cannot be encoded.
        """
        kinds = self._kinds(names)
        encode.refuse_table(sources.opened(data), kinds, self.person)

    def encode_new(
        self, data: TableLike, names: Iterable[str]
    ) -> tuple[dict[str, NDArray[Any]], NDArray[np.bool_]]:
        """Encodes rows to predict for. No row is left out.

        Args:
            data: The table, as for `encode`.
            names: The columns to encode.

        Returns:
            The encoded columns, and a Boolean array that is true for rows without missing values.
        """
        return encode.encode_all(sources.opened(data), {name: self[name] for name in names})

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

    def _kinds(self, names: Iterable[str] | None) -> dict[str, Kind]:
        kinds = dict(self.items)
        return {name: kinds[name] for name in self._choose(names)}

    def _choose(self, names: Iterable[str] | None) -> tuple[str, ...]:
        if isinstance(names, str):
            known = f" pass [{names!r}]." if names in self.names else " pass a list."
            raise InvalidArgument(f"names must be a list of names, not text;{known}")
        chosen = self.names if names is None else tuple(names)
        if not chosen or len(set(chosen)) < len(chosen):
            raise InvalidArgument("names must be one or more columns of the schema, each once.")
        for name in chosen:
            if name not in self.names:
                raise sources.no_column("schema", name, self.names)
        return chosen

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences on the unit of privacy and on earlier releases."""
        unit = "One unit is a row."
        if self.person is not None:
            unit = f"One unit is a person, by column {self.person}, with at most {self.most_rows} rows."
        return (unit, *(f"From the data: {each}." for each in self.released))

    def __str__(self) -> str:
        return "\n".join([description.table(dict(self.items)), *self.notes])

    def __repr__(self) -> str:
        unit = (
            "" if self.person is None else f", person={self.person!r}, most_rows={self.most_rows}"
        )
        released = f", released={list(self.released)}" if self.released else ""
        return f"Schema({dict(self.items)}{unit}{released})"


def _check_person(columns: Collection[object], person: object, most_rows: int | None) -> None:
    if (person is None) != (most_rows is None):
        raise InvalidArgument(
            "Pass both person, the column that identifies the person of a row, and most_rows, the largest "
            "number of rows used per person; or neither, if every row belongs to another person."
        )
    if person is not None and (not isinstance(person, str) or not person):
        raise InvalidArgument(f"person must be the name of a column; got {person!r}.")
    if person in columns:
        raise InvalidArgument(
            f"person {person!r} identifies people and cannot be a column of the model as well; leave it "
            "out of the columns, or add a copy under another name to the data."
        )

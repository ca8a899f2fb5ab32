"""Schemas: the public facts about a table, declared before the data are read; as YAML and as text; and encoding by them.

Rows are encoded each by itself.
"""

import dataclasses
import os
import string
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import yaml
from numpy.typing import NDArray

from tacit import _validate
from tacit._files import nearest_file
from tacit._format import format_number
from tacit.data import sources
from tacit.data.cells import Cells, Texts
from tacit.data.columns import DROP, KINDS, Category, Date, Encoded, Kind, Number, mark_missing
from tacit.data.people import MAX_ROWS_PER_PERSON, People
from tacit.data.sources import Source, check_path
from tacit.data.store import ColumnStore
from tacit.data.tables import TableLike
from tacit.errors import InvalidArgument, os_error_reason

if TYPE_CHECKING:
    from tacit.data.check import TableCheck
    from tacit.data.draft import Draft


class Released(NamedTuple):
    """Columns whose centre and spread were estimated from the data, and the cost.

    >>> print(Released(("age", "dose"), 0.1, 1e-6, "add-remove"))
    centre and spread of age, dose, released at epsilon 0.1, delta 1e-6 (add-remove)
    """

    columns: tuple[str, ...]
    epsilon: float
    delta: float
    adjacency: str

    def __str__(self) -> str:
        cost = f"epsilon {format_number(self.epsilon)}, delta {format_number(self.delta)} ({self.adjacency})"
        return f"centre and spread of {', '.join(self.columns)}, released at {cost}"


def parse_released(notes: object) -> list[Released]:
    """The records in a YAML file, as `Schema.to_yaml` wrote them."""
    if not isinstance(notes, list):
        raise InvalidArgument("released must be a list, as written by tacit.")
    return [_parse_record(note) for note in notes]


def _parse_record(note: Any) -> Released:
    try:
        found = Released(**{**note, "columns": tuple(note["columns"])})
        numbers = float(found.epsilon), float(found.delta)
        return found._replace(epsilon=numbers[0], delta=numbers[1])
    except (KeyError, TypeError, ValueError):
        raise InvalidArgument(
            f"Each entry of released must have {', '.join(Released.__annotations__)}, as written by tacit."
        ) from None


# Marks what somebody has to fill in, in a drafted file.
TO_FILL_IN = "TO FILL IN"
_SCHEMA_KEYS = ("columns", "person", "most_rows", "sep", "released")


def read_yaml(path: str | Path) -> tuple[dict[str, Kind], dict[str, Any]]:
    """Reads the columns of a schema file, and its other declarations."""
    path = check_path(path, "A schema", (".yaml", ".yml"))
    return parse_yaml(read_text(path), path)


def read_text(path: Path) -> str:
    """The text of a schema file."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = os_error_reason(error) or "it is not text in UTF-8"
        near = "" if path.exists() else nearest_file(path)
        raise InvalidArgument(f"The schema {path} cannot be read: {reason}.{near}") from None


def parse_yaml(text: str, path: str | Path) -> tuple[dict[str, Kind], dict[str, Any]]:
    """The same from text, which errors say to be at ``path``."""
    content = load_declarations(text, path)
    columns = {
        name: parse_kind(f"{path}, column {name!r}", of) for name, of in content["columns"].items()
    }
    more = {key: content[key] for key in _SCHEMA_KEYS[1:] if key in content}
    if TO_FILL_IN in map(str, more.values()):
        raise InvalidArgument(f"{path}: person and most_rows are not filled in yet.")
    return columns, more


def load_declarations(text: str, path: str | Path) -> dict[str, Any]:
    """The declarations in a schema's text, of which those about columns are not checked yet."""
    content = _load_yaml(text, path)
    if not isinstance(content, dict) or not isinstance(content.get("columns"), dict):
        raise InvalidArgument(
            f"{path} must be a mapping with a key 'columns' that maps names to kinds, as in "
            "'columns: {age: {kind: number, low: 18, high: 100}}'."
        )
    _check_keys(f"{path}", content, _SCHEMA_KEYS)
    return content


def is_to_fill_in(declared: object) -> bool:
    """Whether something is left to fill in about a column of a drafted file."""
    return isinstance(declared, dict) and TO_FILL_IN in map(str, declared.values())


def format_yaml(columns: Mapping[str, Kind], more: Mapping[str, object]) -> str:
    """Text that `parse_yaml` reads, without the settings that have their default value."""
    kinds = {name: declaration(kind) for name, kind in columns.items()}
    style = {"sort_keys": False, "default_flow_style": None}
    text: str = yaml.safe_dump({"columns": kinds, **more}, allow_unicode=True, **style)
    if not text.replace("\n", "").isprintable():  # unusual line breaks must be written as escapes
        text = yaml.safe_dump({"columns": kinds, **more}, **style)
    return text


def public_facts(columns: Mapping[str, Kind], *, whole: bool = False) -> list[tuple[str, ...]]:
    """A table of the columns, with a header; if ``whole``, with all levels of categories."""
    lines: list[tuple[str, ...]] = [("column", "kind", "public facts", "if missing")]
    for name, kind in columns.items():
        missing = "row left out" if kind.missing == DROP else f"{_without_decimals(kind.missing)}"
        if isinstance(kind, Number) and kind.has_gaps:
            missing = "left to the model"
        facts = kind.listed() if whole and isinstance(kind, Category) else kind.describe()
        lines.append((name, kind.kind, facts, missing))
    return lines


def format_table(columns: Mapping[str, Kind]) -> str:
    """The columns as a plain text table."""
    lines = public_facts(columns)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = (
        "  ".join(word.ljust(width) for word, width in zip(line, widths, strict=True))
        for line in lines
    )
    return "\n".join(line.rstrip() for line in padded)


def _load_yaml(text: str, path: str | Path) -> Any:
    try:
        _check_no_repeats(path, yaml.compose(text, Loader=yaml.SafeLoader))
        return yaml.safe_load(text)
    except RecursionError:
        raise InvalidArgument(f"{path} is nested too deeply to be a schema.") from None
    except yaml.YAMLError as error:
        marked = isinstance(error, yaml.MarkedYAMLError)
        mark, problem = (error.problem_mark, error.problem) if marked else (None, None)
        where = "" if mark is None else f" in line {mark.line + 1}"
        raise InvalidArgument(
            f"{path} must be valid YAML; found an error{where}: {problem or 'it cannot be parsed'}."
        ) from None


def _check_no_repeats(path: str | Path, node: yaml.Node | None, depth: int = 0) -> None:
    """Raises if a key is repeated, of which YAML would use the last."""
    if node is None or isinstance(node.value, str) or depth > 3:  # file, columns, column, levels
        return
    pairs = [part if isinstance(part, tuple) else (None, part) for part in node.value]
    keys = [key.value for key, _ in pairs if key is not None and isinstance(key.value, str)]
    for key in keys:
        if keys.count(key) > 1:
            raise InvalidArgument(f"{path} must have each key once; found {key!r} repeated.")
    for _, value in pairs:
        _check_no_repeats(path, value, depth + 1)


def parse_kind(where: str, declared: Any) -> Kind:
    """A column as YAML declares it; raises if something is wrong or to be filled in."""
    if is_to_fill_in(declared):
        raise InvalidArgument(
            f"{where} is not filled in yet: replace every {TO_FILL_IN}, or delete the column."
        )
    if not isinstance(declared, dict) or declared.get("kind") not in list(KINDS):
        raise InvalidArgument(
            f"{where} must be a mapping with a key 'kind' that is one of {', '.join(KINDS)}."
        )
    # YAML reads the words yes and no as Booleans, also where they are keys.
    named = {True: "yes", False: "no"}
    declared = {named.get(k, k) if isinstance(k, bool) else k: v for k, v in declared.items()}
    kind = KINDS[declared["kind"]]
    names = [each.name for each in dataclasses.fields(kind)]
    _check_keys(where, declared, ["kind", *names])
    for each in dataclasses.fields(kind):
        if each.default is dataclasses.MISSING and each.name not in declared:
            raise InvalidArgument(f"{where} must have a key {each.name!r}; add it.")
    settings = {
        key: _parse_yaml_number(key, value) for key, value in declared.items() if key != "kind"
    }
    try:
        return kind(**settings)
    except InvalidArgument as error:
        raise InvalidArgument(f"{where}: {error}") from None


def _check_keys(where: str, found: Iterable[object], known: Collection[str]) -> None:
    for key in found:
        if key not in known:
            raise InvalidArgument(
                f"{where} must have keys among {', '.join(known)}; found {key!r}."
            )


def _parse_yaml_number(key: str, value: object) -> Any:
    """YAML reads 1e5, unlike 1.0e+5, as text."""
    if key not in {"low", "high", "centre", "spread"} or not isinstance(value, str):
        return value
    try:
        return float(value)
    except ValueError:
        return value


def declaration(kind: Kind) -> dict[str, object]:
    """A column as YAML declares it."""
    declared: dict[str, object] = {"kind": kind.kind}
    for field in dataclasses.fields(kind):
        value = getattr(kind, field.name)
        if value != field.default:  # what has no default differs from it
            plain = list(value) if isinstance(value, tuple) else _without_decimals(value)
            declared[field.name] = dict(value) if field.name == "aliases" else plain
    if isinstance(kind, Date):  # which keeps its bounds as numbers
        declared |= dict(zip(("low", "high"), kind.dates, strict=True))
    return declared


def _without_decimals(value: object) -> object:
    """Whole floats as integers, which are read the same and look better."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


_EXTRA_COLUMN = ""  # what is kept beside the columns, whose names are not empty
_MAX_THREADS = min(4, os.cpu_count() or 1)
Arrays = dict[str, NDArray[np.generic]]
_EncodedChunk = tuple[Arrays, NDArray[np.bool_]]


def encode_table(
    source: Source,
    kinds: Mapping[str, Kind],
    person: str | None,
    most_rows: int | None,
    tables: int = 1,
    keep_missing: bool | Collection[str] = False,
) -> Encoded:
    """All rows of a table, one of so many in memory; see `Schema.encode`."""
    people, out, number = People(), ColumnStore(mapped=False), 0
    names = columns_to_read(kinds, person)
    with ColumnStore(mapped=source.mapped, tables=tables) as store:
        for table, columns, kept in encoded_chunks(source, names, kinds, keep_missing):
            if person is not None:
                columns[_EXTRA_COLUMN] = person_codes(person, table[person], people)
                out.append({_EXTRA_COLUMN: np.unique(columns[_EXTRA_COLUMN][~kept])})
            everyone, number = bool(kept.all()), number + int(np.sum(~kept))
            store.append(columns if everyone else {n: v[kept] for n, v in columns.items()})
        whole = store.finish()
    codes = whole.pop(_EXTRA_COLUMN, None)
    left_out = number if codes is None else out.finish()[_EXTRA_COLUMN]
    return Encoded(whole, codes, most_rows, left_out)


def check_table(source: Source, kinds: Mapping[str, Kind], person: str | None) -> None:
    """Raises if a table cannot be encoded, by its header and types; see `Schema.check`."""
    blank = source.blank(columns_to_read(kinds, person))
    _encode_chunk(blank, kinds)
    if person is not None:
        person_codes(person, blank[person], People())


def encode_new_rows(source: Source, kinds: Mapping[str, Kind]) -> tuple[Arrays, NDArray[np.bool_]]:
    """All rows, and which of them have no missing value; see `Schema.encode_new`."""
    store = ColumnStore(mapped=False)
    # Without predictors, the number of rows is read off the first column, whatever its name.
    wanted: Sequence[Any] = tuple(kinds) or tuple(source.names)[:1]
    for _, columns, present in encoded_chunks(source, wanted, kinds):
        store.append(columns | {_EXTRA_COLUMN: present})
    whole = store.finish()
    present = whole.pop(_EXTRA_COLUMN)
    return whole, present


def encoded_chunks(
    source: Source,
    names: Sequence[str],
    kinds: Mapping[str, Kind],
    keep_missing: bool | Collection[str] = False,
) -> Iterator[tuple[Mapping[str, Cells], Arrays, NDArray[np.bool_]]]:
    """The chunks of a table and their encoded rows, in order; chunks of a file at the same time."""
    chunks = source.chunks(names)
    if source.path is None:  # whose cells may be objects that mind
        yield from ((table, *_encode_chunk(table, kinds, keep_missing)) for table in chunks)
        return
    pending: deque[tuple[Mapping[str, Cells], Future[_EncodedChunk]]] = deque()
    with ThreadPoolExecutor(_MAX_THREADS) as pool:
        for table in chunks:
            pending.append((table, pool.submit(_encode_chunk, table, kinds, keep_missing)))
            if len(pending) > _MAX_THREADS:
                first, rows = pending.popleft()
                yield first, *rows.result()
        for first, rows in pending:
            yield first, *rows.result()


def columns_to_read(kinds: Mapping[str, Kind], person: str | None) -> Sequence[str]:
    """The columns of a table that are needed."""
    return tuple(kinds) if person is None else (*kinds, person)


def _encode_chunk(
    table: Mapping[str, Cells],
    kinds: Mapping[str, Kind],
    keep_missing: bool | Collection[str] = False,
) -> _EncodedChunk:
    """An encoded chunk, and which of its rows are not left out for a missing value."""
    encoded = {
        name: kind.encode(_check_cells(name, table[name], kind)) for name, kind in kinds.items()
    }
    present = np.ones(len(next(iter(table.values())).values), np.bool_)
    kept = _kept_columns(encoded, keep_missing)
    for name, column in encoded.items():
        if column.present is not None and name not in kept:
            present &= column.present
    return {
        name: mark_missing(column) if name in kept else column.values
        for name, column in encoded.items()
    }, present


def _kept_columns(names: Iterable[str], keep_missing: bool | Collection[str]) -> Collection[str]:
    """The columns of which missing values leave no row out."""
    if isinstance(keep_missing, bool):
        return frozenset(names) if keep_missing else ()
    return keep_missing


def person_codes(name: str, cells: Cells, people: People) -> NDArray[np.bytes_]:
    """The code of the person in each row; see `People.codes`."""
    if cells.shape or cells.is_dates:
        raise InvalidArgument(
            f"Column {name!r} must identify one person in each row; found "
            f"{'arrays' if cells.shape else 'dates'}."
        )
    return people.codes(cells)


def _check_cells(name: str, cells: Cells, kind: Kind) -> Cells:
    if cells.is_dates and not isinstance(kind, Date):
        raise InvalidArgument(
            f"Column {name!r} must hold numbers, Booleans or text, but its type is that of dates; declare it "
            "as a Date (in YAML, kind: date)."
        )
    numbers = not isinstance(cells.values, Texts) and cells.values.dtype.kind in "biuf"
    if numbers and isinstance(kind, Date) and kind.format is None:
        raise InvalidArgument(
            f"Column {name!r} must hold dates, but its type is that of numbers; declare it as a Number, or "
            "say how the dates are written, such as format='%Y%m%d' for 20200317."
        )
    if not cells.readable:
        raise InvalidArgument(
            f"Column {name!r} must hold numbers, Booleans or text, but its type is another; convert it "
            "first."
        )
    if cells.shape is not None and not _shape_fits(cells.shape, kind.shape):
        found = f"arrays of shape {cells.shape}" if cells.shape else "single values"
        found = "lists" if None in cells.shape else found
        wanted = f"arrays of shape {kind.shape}" if kind.shape else "a single value"
        raise InvalidArgument(
            f"Column {name!r} must have {wanted} in each row, as the schema says; found {found}; "
            "change the schema or reshape the column."
        )
    return cells


def _shape_fits(found: tuple[int | None, ...], wanted: tuple[int, ...]) -> bool:
    """Whether rows of a type, which may leave sizes open, can have a shape."""
    pairs = zip(found, wanted, strict=False)
    return len(found) == len(wanted) and all(a in (None, b) for a, b in pairs)


def _check_columns(columns: Mapping[str, Kind]) -> tuple[tuple[str, Kind], ...]:
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
                f"Column {name!r} must be a Number, Count, Binary, Category or Date; got {kind!r}."
            )
    return tuple(columns.items())


@dataclasses.dataclass(frozen=True, repr=False, init=False)
class Schema:
    """The public facts about a table: kinds, bounds and levels of columns, and the unit of privacy.

    A guarantee holds for every table that the data could have been, so bounds must not come from
    the data. Declare them from domain knowledge: ages are 18 to 100 by the study's protocol, not
    because the oldest participant is 100.

    Args:
        columns: The kind of each column: `Number`, `Count`, `Binary`, `Category` or `Date`.
        person: The column that identifies the person a row belongs to. The unit of privacy is then
            a person, and rows without a person are left out. Without it the unit is a row.
        most_rows: The largest number of rows per person that are used. Required with ``person``.
        sep: What separates the cells of a line in text files, such as ``";"``. By default the header
            shows it.
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

    items: tuple[tuple[str, Kind], ...]
    person: str | None
    most_rows: int | None
    sep: str | None
    released: tuple[Released, ...]

    def __init__(
        self,
        columns: Mapping[str, Kind],
        *,
        person: str | None = None,
        most_rows: int | None = None,
        sep: str | None = None,
        released: Iterable[Released] = (),
    ) -> None:
        if most_rows is not None:
            most_rows = _validate.count("most_rows", most_rows, most=MAX_ROWS_PER_PERSON)
        _validate.set_fields(
            self,
            items=_check_columns(columns),
            person=person,
            most_rows=most_rows,
            sep=_check_sep(sep),
            released=tuple(released),
        )
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
        return cls._declared(path, *read_yaml(path))

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
        return cls._declared(where, *parse_yaml(text, where))

    @classmethod
    def _declared(
        cls, where: str | Path, columns: Mapping[str, Kind], more: dict[str, Any]
    ) -> "Schema":
        try:
            more["released"] = parse_released(more.get("released", []))
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
        more: dict[str, object] = {}
        if self.person is not None:
            more |= {"person": self.person, "most_rows": self.most_rows}
        if self.sep is not None:
            more["sep"] = self.sep
        if self.released:
            notes = [each._asdict() for each in self.released]
            more["released"] = [{**note, "columns": list(note["columns"])} for note in notes]
        return format_yaml(dict(self.items), more)

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
        return Schema(
            kinds, person=self.person, most_rows=self.most_rows, sep=self.sep, released=notes
        )

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
        self,
        data: TableLike,
        names: Iterable[str] | None = None,
        *,
        tables: int = 1,
        keep_missing: bool | Collection[str] = False,
    ) -> Encoded:
        """Encodes a table as arrays, each row by itself.

        A file is read in chunks; large results are stored in a memory map. Rows keep their order. A
        row that is left out for a missing value stays a unit that contributes nothing. The table is
        not changed. Errors depend on the header, types and shapes only, never on a cell.

        Args:
            data: A mapping of arrays, a pandas or polars DataFrame, a pyarrow Table, a NumPy
                structured array, or the path of a CSV, Parquet, Arrow, NumPy, Excel, Stata, SPSS or SAS
                file.
            names: The columns to encode; by default all declared columns.
            tables: How many such tables will be in memory at once.
            keep_missing: Whether rows with missing values stay, or the columns of which they do, whatever the
                columns' rules: NaN in a column of numbers, and the least int32 in others.

        Returns:
            The encoded rows, which are private.

        Raises:
            InvalidArgument: If the table lacks a column or has types or shapes that do not fit.
        """
        source, kinds = sources.open_source(data, self.sep), self._kinds(names)
        kept = _kept_columns(kinds, keep_missing)
        kinds = {
            name: dataclasses.replace(kind, missing=DROP) if name in kept else kind
            for name, kind in kinds.items()
        }
        return encode_table(source, kinds, self.person, self.most_rows, tables, keep_missing)

    def check_header(self, data: TableLike, names: Iterable[str] | None = None) -> None:
        """Raises if a table lacks declared columns or has types that do not fit. Reads no rows.

        Args:
            data: The table, as for `encode`.
            names: The columns to check; by default all declared columns.

        Raises:
            InvalidArgument: If the table cannot be encoded.
        """
        kinds = self._kinds(names)
        check_table(sources.open_source(data, self.sep), kinds, self.person)

    def check(self, data: TableLike, names: Iterable[str] | None = None) -> "TableCheck":
        """Counts which cells of a table can be read, and says why others cannot. Not private.

        For somebody who may see the rows, before a fit. The counts have no noise, and no ledger knows
        of them: do not pass them on. Nothing is written to a file.

        Args:
            data: The table, as for `encode`.
            names: The columns to check; by default all declared columns.

        Returns:
            The counts; print them.

        Raises:
            InvalidArgument: If the table lacks a column or has types or shapes that do not fit.
        """
        from tacit.data.check import check_rows

        return check_rows(sources.open_source(data, self.sep), self, self._kinds(names))

    @classmethod
    def draft(cls, data: TableLike) -> "Draft":
        """Drafts a schema from the names and types of a table's columns. Reads no rows.

        Args:
            data: The table, as for `encode`.

        Returns:
            The draft, which says what is left to fill in. Print it as Python, or write it to a file
            with `Draft.to_yaml`.

        Raises:
            InvalidArgument: If the header cannot be used.
        """
        from tacit.data.draft import Draft

        return Draft.of(data)

    def encode_new(
        self, data: TableLike, names: Iterable[str]
    ) -> tuple[dict[str, NDArray[np.generic]], NDArray[np.bool_]]:
        """Encodes rows to predict for. No row is left out.

        Args:
            data: The table, as for `encode`.
            names: The columns to encode.

        Returns:
            The encoded columns, and a Boolean array that is true for rows without missing values.
        """
        source = sources.open_source(data, self.sep)
        return encode_new_rows(source, {name: self[name] for name in names})

    def dummy_rows(
        self, count: int, names: Iterable[str] | None = None, seed: int = 0
    ) -> dict[str, NDArray[np.generic]]:
        """Generates random encoded rows within the bounds, to try a model without data.

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
            name: self[name].dummy_values(
                number, np.random.default_rng([start, self.names.index(name)])
            )
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
                raise sources.missing_column_error("schema", name, self.names)
        return chosen

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences on the unit of privacy and on earlier releases."""
        unit = "One unit is a row."
        if self.person is not None:
            unit = f"One unit is a person, by column {self.person}, with at most {self.most_rows} rows."
        return (unit, *(f"From the data: {each}." for each in self.released))

    def __str__(self) -> str:
        return "\n".join([format_table(dict(self.items)), *self.notes])

    def __repr__(self) -> str:
        unit = (
            "" if self.person is None else f", person={self.person!r}, most_rows={self.most_rows}"
        )
        sep = "" if self.sep is None else f", sep={self.sep!r}"
        released = f", released={list(self.released)}" if self.released else ""
        return f"Schema({dict(self.items)}{unit}{sep}{released})"


_NOT_SEPARATORS = f'{string.ascii_letters}{string.digits}"\r\n.-+ _\0'


def _check_sep(sep: str | None) -> str | None:
    if sep is None or (sep in {*map(chr, range(128))} - {*_NOT_SEPARATORS}):
        return sep
    raise InvalidArgument(f"sep must be one character such as ';', or a tab; got {sep!r}.")


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

"""Encoding the chunks of a table by a schema's kinds, each row by itself."""

import os
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.data.cells import Cells
from tacit.data.columns import Kind
from tacit.data.encoded import Encoded
from tacit.data.people import People
from tacit.data.sources import Source
from tacit.data.store import Store
from tacit.errors import InvalidArgument

_BESIDE = ""  # what is kept beside the columns, whose names are not empty
_THREADS = min(4, os.cpu_count() or 1)
Arrays = dict[str, NDArray[np.generic]]
_Rows = tuple[Arrays, NDArray[np.bool_]]


def encode_table(
    source: Source,
    kinds: Mapping[str, Kind],
    person: str | None,
    most_rows: int | None,
    tables: int = 1,
) -> Encoded:
    """All rows of a table, one of so many in memory; see `Schema.encode`."""
    people, out, number = People(), Store(mapped=False), 0
    with Store(mapped=source.mapped, tables=tables) as store:
        for table, columns, kept in _encoded(source, _wanted(kinds, person), kinds):
            if person is not None:
                columns[_BESIDE] = _codes(person, table[person], people)
                out.append({_BESIDE: np.unique(columns[_BESIDE][~kept])})
            everyone, number = bool(kept.all()), number + int(np.sum(~kept))
            store.append(columns if everyone else {n: v[kept] for n, v in columns.items()})
        whole = store.finish()
    codes = whole.pop(_BESIDE, None)
    left_out = number if codes is None else out.finish()[_BESIDE]
    return Encoded(whole, codes, most_rows, left_out)


def refuse_table(source: Source, kinds: Mapping[str, Kind], person: str | None) -> None:
    """Raises if a table cannot be encoded, by its header and types; see `Schema.refuse`."""
    blank = source.blank(_wanted(kinds, person))
    _encode(blank, kinds)
    if person is not None:
        _codes(person, blank[person], People())


def encode_all(source: Source, kinds: Mapping[str, Kind]) -> tuple[Arrays, NDArray[np.bool_]]:
    """All rows, and which of them have no missing value; see `Schema.encode_new`."""
    store = Store(mapped=False)
    # Without predictors, the number of rows is read off the first column, whatever its name.
    wanted: Sequence[Any] = tuple(kinds) or tuple(source.names)[:1]
    for _, columns, present in _encoded(source, wanted, kinds):
        store.append(columns | {_BESIDE: present})
    whole = store.finish()
    present = whole.pop(_BESIDE)
    return whole, present


def _encoded(
    source: Source, names: Sequence[str], kinds: Mapping[str, Kind]
) -> Iterator[tuple[Mapping[str, Cells], Arrays, NDArray[np.bool_]]]:
    """The chunks of a table and their encoded rows, in order; chunks of a file at the same time."""
    chunks = source.chunks(names)
    if source.path is None:  # whose cells may be objects that mind
        yield from ((table, *_encode(table, kinds)) for table in chunks)
        return
    pending: deque[tuple[Mapping[str, Cells], Future[_Rows]]] = deque()
    with ThreadPoolExecutor(_THREADS) as pool:
        for table in chunks:
            pending.append((table, pool.submit(_encode, table, kinds)))
            if len(pending) > _THREADS:
                first, rows = pending.popleft()
                yield first, *rows.result()
        for first, rows in pending:
            yield first, *rows.result()


def _wanted(kinds: Mapping[str, Kind], person: str | None) -> Sequence[str]:
    return tuple(kinds) if person is None else (*kinds, person)


def _encode(table: Mapping[str, Cells], kinds: Mapping[str, Kind]) -> _Rows:
    """An encoded chunk, and which of its rows are not left out for a missing value."""
    encoded = {name: kind.encode(_shaped(name, table[name], kind)) for name, kind in kinds.items()}
    present = np.ones(len(next(iter(table.values())).values), np.bool_)
    for column in encoded.values():
        if column.present is not None:
            present &= column.present
    return {name: column.values for name, column in encoded.items()}, present


def _codes(name: str, cells: Cells, people: People) -> NDArray[np.bytes_]:
    if cells.shape:
        raise InvalidArgument(
            f"Column {name!r} must identify one person in each row; found arrays."
        )
    return people.codes(cells)


def _shaped(name: str, cells: Cells, kind: Kind) -> Cells:
    if not cells.readable:
        raise InvalidArgument(
            f"Column {name!r} must hold numbers, Booleans or text, but its type is another; convert it "
            "first."
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
    """Whether rows of a type, which may leave sizes open, can have a shape."""
    pairs = zip(found, wanted, strict=False)
    return len(found) == len(wanted) and all(a in (None, b) for a, b in pairs)

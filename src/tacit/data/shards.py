"""Dealing the rows of files to shards, out of core: all rows of a person go to one of them."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow.parquet import ParquetFile, ParquetWriter

from tacit import _validate
from tacit.data.deal import Deal, refuse_twice
from tacit.data.people import People
from tacit.data.tables import read_column
from tacit.errors import InvalidArgument

# Rows that are read at a time, and bytes that all shards together hold before they are written.
_ROWS: Final = 2**16
_HELD: Final = 2**28


def deal_rows(
    paths: Sequence[Path], into: int, folder: Path, person: str | None = None
) -> list[Path]:
    """Writes the rows of Parquet files into shards.

    Args:
        paths: The files, which must have the same columns of the same types.
        into: The number of shards.
        folder: The folder of the shards, which must be new or empty.
        person: The column that identifies people. By default rows are dealt in turn.

    Returns:
        The files that were written; they and their folder are for their owner only.

    Raises:
        InvalidArgument: If a file cannot be read or written, or files differ in their columns.
    """
    _validate.count("into", into)
    refuse_twice(paths)
    header = _header(paths)
    kind = "" if person is None else _type(header, person, paths[0])
    deal = Deal.new(person, kind, into)
    shards = [folder / f"shard-{i:0{len(str(into - 1))}d}.parquet" for i in range(into)]
    try:
        _make(folder, shards)
        with ExitStack() as stack:
            writers = [
                stack.enter_context(ParquetWriter(path, _noted(header, replace(deal, index=index))))
                for index, path in enumerate(shards)
            ]
            _write(_batches(paths), deal, header, writers)
    except (pa.ArrowException, OSError) as error:  # whose words may show cells
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "damaged"
        raise InvalidArgument(f"The rows cannot be dealt to {folder}: {reason}.") from None
    return shards


def _header(paths: Sequence[Path]) -> Any:
    """The schema that all files share."""
    found = []
    for path in paths:
        try:
            with ParquetFile(path) as file:
                found.append(file.schema_arrow.remove_metadata())
        except (pa.ArrowException, OSError):
            raise InvalidArgument(f"{path} cannot be read as a Parquet file.") from None
        if not found[-1].equals(found[0]):
            raise InvalidArgument(f"{path} has other columns or types than {paths[0]}.")
    return found[0]


def _type(header: Any, person: str, path: Path) -> str:
    if header.names.count(person) != 1:
        raise InvalidArgument(f"{path} must have one column {person!r}, which identifies people.")
    blank = read_column(header.empty_table(), person)
    if blank.shape or not blank.readable:
        raise InvalidArgument(f"Column {person!r} must identify one person in each row.")
    People().codes(blank)  # refuses types that cannot identify people
    return str(header.field(person).type)


def _make(folder: Path, shards: Sequence[Path]) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise InvalidArgument(f"{folder} is not empty; pass a new folder with --out.")
    folder.chmod(0o700)
    for path in shards:
        path.touch(mode=0o600)


def _noted(header: Any, deal: Deal) -> Any:
    return header.with_metadata(deal.note())


def _batches(paths: Sequence[Path]) -> Iterator[Any]:
    for path in paths:
        with ParquetFile(path, pre_buffer=False) as file:
            yield from file.iter_batches(batch_size=_ROWS)


def _write(
    batches: Iterator[Any], deal: Deal, header: Any, writers: Sequence[ParquetWriter]
) -> None:
    """Deals batch by batch; what a shard gets is held until it is worth writing."""
    held: list[list[Any]] = [[] for _ in writers]
    people, seen = People(), 0
    for batch in batches:
        table = pa.Table.from_batches([batch], header)
        shard, seen = _shards(table, deal, people, seen), seen + len(table)
        order = np.argsort(shard, kind="stable")
        ends = np.searchsorted(shard[order], np.arange(deal.into + 1))
        dealt = table.take(pa.array(order))
        for index in range(deal.into):
            held[index].append(dealt.slice(ends[index], ends[index + 1] - ends[index]))
        if sum(part.nbytes for parts in held for part in parts[-1:]) * len(held[0]) > _HELD:
            held = _written(held, writers)
    _written(held, writers)


def _shards(table: Any, deal: Deal, people: People, seen: int) -> NDArray[np.int64]:
    """The shard of each row. Rows without a person all go to one, and fits leave them out."""
    if deal.person is None:
        return (seen + np.arange(len(table))) % deal.into
    return deal.files(people.codes(read_column(table, deal.person)))


def _written(held: list[list[Any]], writers: Sequence[ParquetWriter]) -> list[list[Any]]:
    for parts, writer in zip(held, writers, strict=True):
        if parts:
            writer.write_table(pa.concat_tables(parts).cast(writer.schema).combine_chunks())
    return [[] for _ in writers]

"""What needs pyarrow: columns of Arrow tables, reading Parquet and Arrow files in batches, and writing shards."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute, types
from pyarrow.parquet import ParquetFile, ParquetWriter

from tacit import _validate
from tacit.data.cells import PADDING, Cells, Texts
from tacit.data.people import People
from tacit.data.shards import ShardAssignment, check_distinct_files
from tacit.data.tables import (
    ListType,
    check_entries,
    column_type_error,
    list_shape,
    loses_digits,
    object_cells,
    read_column,
)
from tacit.errors import InvalidArgument

_TEXT_TYPES = (
    types.is_string,
    types.is_large_string,
    types.is_string_view,
    types.is_binary,
    types.is_large_binary,
    types.is_binary_view,
)
_LIST_TYPES = (
    types.is_list,
    types.is_large_list,
    types.is_fixed_size_list,
    types.is_list_view,
    types.is_large_list_view,
)


def array_cells(name: str, column: pa.Array | pa.ChunkedArray) -> Cells:
    """The cells of a `pyarrow.Array` or `pyarrow.ChunkedArray`."""
    kind = column.type
    if types.is_dictionary(kind):
        return array_cells(name, column.cast(kind.value_type))
    if types.is_timestamp(kind) and kind.tz is not None:
        column = compute.local_timestamp(column)  # the date and time of the place
    if types.is_temporal(kind) and not (types.is_date(kind) or types.is_timestamp(kind)):
        raise column_type_error(name, kind)
    rounded = types.is_floating(kind)
    if types.is_decimal(kind):
        rounded = loses_digits(kind.precision, kind.scale)
        column, kind = column.cast(pa.float64()), pa.float64()
    if types.is_primitive(kind):
        # Not copied, unless it is in several pieces or Booleans. Of dates, those that are missing are marked.
        if not column.null_count or types.is_temporal(kind):
            return Cells(np.asarray(column), rounded=rounded)
        filler = pa.scalar(0).cast(kind)
        values = np.asarray(column.fill_null(filler))
        return Cells(values, np.asarray(column.is_valid()), rounded=rounded)
    if any(is_text(kind) for is_text in _TEXT_TYPES):
        return _text_array_cells(column)
    found = object_cells([_python_value(cell) for cell in column])
    if _list_type(kind) is not None:
        shape, inner = list_shape(kind, _list_type)
        check_entries(name, kind, pa.array([], inner), array_cells)
        return found._replace(shape=shape)
    if types.is_nested(kind):
        raise column_type_error(name, kind)
    return found._replace(shape=(), readable=types.is_null(kind))


def _text_array_cells(column: pa.Array | pa.ChunkedArray) -> Cells:
    """Text, which may be broken: pyarrow would raise an error."""
    whole = column.cast(pa.large_binary())
    if isinstance(whole, pa.ChunkedArray):
        whole = whole.combine_chunks()
    _, places, data = whole.buffers()
    ends = np.frombuffer(places, np.int64, len(whole) + 1, 8 * whole.offset)
    cut = b"" if data is None else data.slice(ends[0], ends[-1] - ends[0]).to_pybytes()
    texts = Texts(cut + PADDING, ends[:-1] - ends[0], np.diff(ends), known=True)
    return Cells(texts, np.asarray(whole.is_valid()))


def _list_type(kind: pa.DataType) -> ListType:
    if any(is_list(kind) for is_list in _LIST_TYPES):
        return kind.value_type, kind.list_size if types.is_fixed_size_list(kind) else None
    return None


def _python_value(cell: pa.Scalar) -> object:
    """A cell as a Python value, or None where that fails, as for broken text."""
    try:
        return cell.as_py()
    except Exception:  # noqa: BLE001 no error may show a cell
        return None


Batches = Callable[[list[str], int], Iterator[pa.RecordBatch]]


def read_file_schema(path: Path) -> pa.Schema:
    """Names and types of the columns, from the file's header."""
    with _open_file(path) as (found, _):
        return found


def likely_kinds(found: pa.Schema) -> dict[str, str]:
    """The kind of each column of a schema whose type leaves no doubt."""
    return {field.name: kind for field in found if (kind := _likely_kind(field.type))}


def _likely_kind(type_: pa.DataType) -> str | None:
    if types.is_floating(type_) or types.is_decimal(type_):
        return "number"
    if types.is_boolean(type_):
        return "binary"
    if types.is_date(type_) or types.is_timestamp(type_):
        return "date"
    # Text may be anything: numbers with units, dates, yes and no.
    return "category" if types.is_dictionary(type_) else None


def chunks(path: Path, names: Sequence[str], rows: int) -> Iterator[dict[str, Cells]]:
    """The cells of some columns, so many rows at a time; the first chunk has none.

    The first chunk shows whether the types are right before any row is read.
    """
    with _open_file(path) as (found, batches):
        empty = found.empty_table()
        yield {name: read_column(empty, name) for name in names}
        for batch in batches(list(names), rows):
            yield {name: read_column(batch, name) for name in names}
    pa.default_memory_pool().release_unused()  # which pyarrow would keep


@contextmanager
def _open_file(path: Path) -> Iterator[tuple[pa.Schema, Batches]]:
    """A file's schema, and its batches. Errors do not show the content of the file."""
    is_parquet = path.suffix.lower() in {".parquet", ".pq"}
    try:
        with _open_parquet(path) if is_parquet else _open_ipc(path) as opened:
            yield opened
    except (pa.ArrowException, OSError, EOFError):
        # Messages of pyarrow may show cells.
        raise InvalidArgument(
            f"{path} cannot be read as {'a Parquet' if is_parquet else 'an Arrow'} file: it is "
            "damaged, or of another kind."
        ) from None


@contextmanager
def _open_parquet(path: Path) -> Iterator[tuple[pa.Schema, Batches]]:
    with ParquetFile(path, pre_buffer=False) as file:

        def batches(names: list[str], rows: int) -> Iterator[pa.RecordBatch]:
            yield from file.iter_batches(batch_size=rows, columns=names, use_threads=False)

        yield file.schema_arrow, batches


@contextmanager
def _open_ipc(path: Path) -> Iterator[tuple[pa.Schema, Batches]]:
    with pa.memory_map(str(path)) as memory:
        found = pa.ipc.open_file(memory).schema

        def batches(names: list[str], rows: int) -> Iterator[pa.RecordBatch]:
            fields = [found.names.index(name) for name in names]
            options = pa.ipc.IpcReadOptions(included_fields=fields)
            file = pa.ipc.open_file(memory, options=options)
            for place in range(file.num_record_batches):
                whole = file.get_batch(place)
                for start in range(0, whole.num_rows, rows):
                    yield whole.slice(start, rows)

        yield found, batches


# Rows that are read at a time, and bytes that all shards together hold before they are written.
_ROWS_PER_BATCH: Final = 2**16
_MAX_BUFFERED_BYTES: Final = 2**28


def write_shards(
    paths: Sequence[Path], into: int, folder: Path, person: str | None = None
) -> list[Path]:
    """Writes the rows of Parquet files into shards.

    Args:
        paths: The files, which must have the same columns of the same types.
        into: The number of shards.
        folder: The folder of the shards, which must be new or empty.
        person: The column that identifies people. By default rows are assigned to shards in turn.

    Returns:
        The files that were written; they and their folder are for their owner only.

    Raises:
        InvalidArgument: If a file cannot be read or written, or files differ in their columns.
    """
    _validate.count("into", into)
    check_distinct_files(paths)
    header = _common_schema(paths)
    kind = "" if person is None else _person_type(header, person, paths[0])
    assignment = ShardAssignment.new(person, kind, into)
    shards = [folder / f"shard-{i:0{len(str(into - 1))}d}.parquet" for i in range(into)]
    try:
        _make_folder(folder, shards)
        with ExitStack() as stack:
            writers = [
                stack.enter_context(
                    ParquetWriter(
                        path, header.with_metadata(replace(assignment, index=index).note())
                    )
                )
                for index, path in enumerate(shards)
            ]
            _write_batches(_read_batches(paths), assignment, header, writers)
    except (pa.ArrowException, OSError) as error:  # whose words may show cells
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "damaged"
        raise InvalidArgument(f"The rows cannot be written to {folder}: {reason}.") from None
    return shards


def _common_schema(paths: Sequence[Path]) -> pa.Schema:
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


def _person_type(header: pa.Schema, person: str, path: Path) -> str:
    if header.names.count(person) != 1:
        raise InvalidArgument(f"{path} must have one column {person!r}, which identifies people.")
    blank = read_column(header.empty_table(), person)
    if blank.shape or blank.is_dates or not blank.readable:
        raise InvalidArgument(f"Column {person!r} must identify one person in each row.")
    People().codes(blank)  # refuses types that cannot identify people
    return str(header.field(person).type)


def _make_folder(folder: Path, shards: Sequence[Path]) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise InvalidArgument(f"{folder} is not empty; pass a new folder with --out.")
    folder.chmod(0o700)
    for path in shards:
        path.touch(mode=0o600)


def _read_batches(paths: Sequence[Path]) -> Iterator[pa.RecordBatch]:
    for path in paths:
        with ParquetFile(path, pre_buffer=False) as file:
            yield from file.iter_batches(batch_size=_ROWS_PER_BATCH)


def _write_batches(
    batches: Iterator[pa.RecordBatch],
    assignment: ShardAssignment,
    header: pa.Schema,
    writers: Sequence[ParquetWriter],
) -> None:
    """Assigns rows to shards batch by batch; what a shard gets is buffered until it is worth writing."""
    buffered: list[list[pa.Table]] = [[] for _ in writers]
    people, seen = People(), 0
    for batch in batches:
        table = pa.Table.from_batches([batch], header)
        shard, seen = _shard_indices(table, assignment, people, seen), seen + len(table)
        order = np.argsort(shard, kind="stable")
        ends = np.searchsorted(shard[order], np.arange(assignment.into + 1))
        sorted_rows = table.take(pa.array(order))
        for index in range(assignment.into):
            buffered[index].append(sorted_rows.slice(ends[index], ends[index + 1] - ends[index]))
        if (
            sum(part.nbytes for parts in buffered for part in parts[-1:]) * len(buffered[0])
            > _MAX_BUFFERED_BYTES
        ):
            buffered = _flush(buffered, writers)
    _flush(buffered, writers)


def _shard_indices(
    table: pa.Table, assignment: ShardAssignment, people: People, seen: int
) -> NDArray[np.int64]:
    """The shard of each row. Rows without a person all go to one, and fits leave them out."""
    if assignment.person is None:
        return (seen + np.arange(len(table))) % assignment.into
    return assignment.files(people.codes(read_column(table, assignment.person)))


def _flush(
    buffered: list[list[pa.Table]], writers: Sequence[ParquetWriter]
) -> list[list[pa.Table]]:
    for parts, writer in zip(buffered, writers, strict=True):
        if parts:
            writer.write_table(pa.concat_tables(parts).cast(writer.schema).combine_chunks())
    return [[] for _ in writers]

"""Parquet and Arrow files, read in batches of rows with pyarrow."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import types
from pyarrow.parquet import ParquetFile

from tacit.data.cells import Cells
from tacit.data.tables import read_column
from tacit.errors import InvalidArgument

Batches = Callable[[list[str], int], Iterator[Any]]


def schema(path: Path) -> Any:
    """Names and types of the columns, from the file's header."""
    with _opened(path) as (found, _):
        return found


def likely_kinds(found: Any) -> dict[str, str]:
    """The kind of each column of a schema whose type leaves no doubt."""
    return {field.name: kind for field in found if (kind := _likely(field.type))}


def _likely(type_: Any) -> str | None:
    if types.is_floating(type_) or types.is_decimal(type_):
        return "number"
    if types.is_boolean(type_):
        return "binary"
    return "category" if types.is_string(type_) or types.is_large_string(type_) else None


def chunks(path: Path, names: Sequence[str], rows: int) -> Iterator[dict[str, Cells]]:
    """The cells of some columns, so many rows at a time; the first chunk has none.

    The first chunk shows whether the types are right before any row is read.
    """
    with _opened(path) as (found, batches):
        empty = found.empty_table()
        yield {name: read_column(empty, name) for name in names}
        for batch in batches(list(names), rows):
            yield {name: read_column(batch, name) for name in names}
    pa.default_memory_pool().release_unused()  # which pyarrow would keep


@contextmanager
def _opened(path: Path) -> Iterator[tuple[Any, Batches]]:
    """A file's schema, and its batches. Errors do not show the content of the file."""
    is_parquet = path.suffix.lower() in {".parquet", ".pq"}
    try:
        with _parquet(path) if is_parquet else _ipc(path) as opened:
            yield opened
    except (pa.ArrowException, OSError, EOFError):
        # Messages of pyarrow may show cells.
        raise InvalidArgument(
            f"{path} cannot be read as {'a Parquet' if is_parquet else 'an Arrow'} file: it is "
            "damaged, or of another kind."
        ) from None


@contextmanager
def _parquet(path: Path) -> Iterator[tuple[Any, Batches]]:
    with ParquetFile(path, pre_buffer=False) as file:

        def batches(names: list[str], rows: int) -> Iterator[Any]:
            yield from file.iter_batches(batch_size=rows, columns=names, use_threads=False)

        yield file.schema_arrow, batches


@contextmanager
def _ipc(path: Path) -> Iterator[tuple[Any, Batches]]:
    with pa.memory_map(str(path)) as memory:
        found = pa.ipc.open_file(memory).schema

        def batches(names: list[str], rows: int) -> Iterator[Any]:
            fields = [found.names.index(name) for name in names]
            options = pa.ipc.IpcReadOptions(included_fields=fields)
            file = pa.ipc.open_file(memory, options=options)
            for place in range(file.num_record_batches):
                whole = file.get_batch(place)
                for start in range(0, whole.num_rows, rows):
                    yield whole.slice(start, rows)

        yield found, batches

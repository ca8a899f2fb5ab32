"""Parquet and Arrow files, read in batches of rows with pyarrow."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tacit.data import tables
from tacit.data.cells import Cells
from tacit.errors import InvalidArgument

Batches = Callable[[list[str], int], Iterator[Any]]


def schema(path: Path) -> Any:
    """Names and types of the columns, from the file's header."""
    with _opened(path) as (found, _):
        return found


def chunks(path: Path, names: Sequence[str], rows: int) -> Iterator[dict[str, Cells]]:
    """The cells of some columns, so many rows at a time; the first chunk has none.

    From that one it is seen whether the types will do, whatever rows there are.
    """
    with _opened(path) as (found, batches):
        empty = found.empty_table()
        yield {name: tables.read_column(empty, name) for name in names}
        for batch in batches(list(names), rows):
            yield {name: tables.read_column(batch, name) for name in names}
    _give_back()


def _give_back() -> None:
    """Memory that pyarrow has no use for any more, and would keep."""
    import pyarrow as pa

    pa.default_memory_pool().release_unused()


@contextmanager
def _opened(path: Path) -> Iterator[tuple[Any, Batches]]:
    """A file's schema, and its batches; what is wrong with it in one sentence, without a cell."""
    try:
        import pyarrow as pa
    except ImportError:
        raise InvalidArgument(
            f"{path} needs the package pyarrow: pip install 'tacit[parquet]'; or pass a CSV file."
        ) from None
    opener = _parquet if path.suffix.lower() in {".parquet", ".pq"} else _ipc
    try:
        with opener(path) as opened:
            yield opened
    except (pa.ArrowException, OSError, EOFError):
        # Their words may hold what stands in the file.
        raise InvalidArgument(
            f"{path} cannot be read as a {'Parquet' if opener is _parquet else 'Arrow'} file: it is "
            "damaged, or of another kind."
        ) from None


@contextmanager
def _parquet(path: Path) -> Iterator[tuple[Any, Batches]]:
    from pyarrow.parquet import ParquetFile

    with ParquetFile(path, pre_buffer=False) as file:

        def batches(names: list[str], rows: int) -> Iterator[Any]:
            yield from file.iter_batches(batch_size=rows, columns=names, use_threads=False)

        yield file.schema_arrow, batches


@contextmanager
def _ipc(path: Path) -> Iterator[tuple[Any, Batches]]:
    import pyarrow as pa

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

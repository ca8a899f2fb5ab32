"""Encoded columns that grow chunk by chunk, in memory or in files that nobody else can open.

Such a file has no name, so it disappears when the process ends for any reason. It is in the system's
temporary folder, which can be set by ``TMPDIR``.
"""

import contextlib
import math
import mmap
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from typing import IO, Any, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

from tacit.errors import InvalidArgument

_HUGE_PAGE = 2**21  # a huge page: with fewer pages, rows are found faster
_MAX_BYTES_IN_MEMORY = 2**25  # bytes; larger results of files are kept on disk


class ColumnStore:
    """Columns of one length, to which rows are added; with ``mapped``, on disk once they are large.

    Memory is for ``tables`` stores of the same kind, so that each has a part of it.
    """

    def __init__(self, *, mapped: bool, tables: int = 1) -> None:
        self._mapped, self._tables, self._size = mapped, tables, 0
        self._parts: dict[str, list[NDArray[np.generic]]] = {}
        self._files: dict[str, IO[bytes]] = {}
        self._shapes: dict[str, tuple[tuple[int, ...], np.dtype[np.generic]]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            file.close()

    def append(self, columns: Mapping[str, NDArray[np.generic]]) -> None:
        """Adds rows."""
        for name, values in columns.items():
            self._shapes[name] = values.shape[1:], values.dtype
            self._parts.setdefault(name, []).append(values)
            self._size += values.nbytes
        if self._mapped and self._size > _MAX_BYTES_IN_MEMORY // self._tables:
            self._spill()

    def finish(self) -> dict[str, NDArray[Any]]:
        """The columns, each beginning at the start of a page."""
        if self._files:
            self._spill()
        return {name: self._whole(name) for name in self._shapes}

    def _spill(self) -> None:
        with _translated_disk_errors():
            for name, parts in self._parts.items():
                if name not in self._files:
                    self._files[name] = tempfile.TemporaryFile(prefix="tacit-")  # noqa: SIM115
                for part in parts:
                    self._files[name].write(np.ascontiguousarray(part).data)
        self._parts, self._size = {}, 0

    def _whole(self, name: str) -> NDArray[np.generic]:
        shape, dtype = self._shapes[name]
        if name not in self._files:
            parts = self._parts.pop(name)
            held = allocate((sum(map(len, parts)), *shape), dtype)
            return np.concatenate(parts, out=held)
        with _translated_disk_errors(), self._files.pop(name) as file:
            file.flush()
            memory = mmap.mmap(file.fileno(), 0)
        return np.frombuffer(memory, dtype).reshape(-1, *shape)


def allocate(
    shape: tuple[int, ...], dtype: DTypeLike, *, mapped: bool = False
) -> NDArray[np.generic]:
    """An array of zeros at the start of a page, which JAX uses in place instead of copying it."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    if mapped and size > _MAX_BYTES_IN_MEMORY:
        with _translated_disk_errors(), tempfile.TemporaryFile(prefix="tacit-") as file:
            reserve(file, size)
            mapped_room: NDArray[np.generic] = np.frombuffer(mmap.mmap(file.fileno(), size), dtype)
            return mapped_room.reshape(shape)
    memory = np.zeros(size + _HUGE_PAGE, np.uint8)
    start = -memory.ctypes.data % _HUGE_PAGE
    held: NDArray[np.generic] = memory[start : start + size].view(dtype).reshape(shape)
    return held


def is_memmap(values: object) -> bool:
    """Whether an array is in a memory map."""
    return _memory_map(values) is not None


def drop_pages(values: NDArray[np.generic]) -> None:
    """Frees the memory of a map's pages, which stay on disk and are loaded again when needed."""
    memory = _memory_map(values)
    if memory is not None and sys.platform != "win32":
        memory.madvise(mmap.MADV_DONTNEED)


def _memory_map(values: object) -> mmap.mmap | None:
    while isinstance(values, np.ndarray | memoryview):
        values = values.obj if isinstance(values, memoryview) else values.base
    return values if isinstance(values, mmap.mmap) else None


def reserve(file: IO[bytes], size: int) -> None:
    """Sets the size of a file. A full disk raises an error here, not when a page is written."""
    if sys.platform not in ("win32", "darwin"):
        os.posix_fallocate(file.fileno(), 0, size)
    else:
        file.truncate(size)


@contextlib.contextmanager
def _translated_disk_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InvalidArgument(
            f"Encoded rows cannot be kept in {tempfile.gettempdir()}: {error.strerror}; make room, or "
            "name another temporary folder in the environment variable TMPDIR."
        ) from None

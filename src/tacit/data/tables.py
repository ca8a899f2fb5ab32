"""Columns from data frames and other containers, with their missing values.

A container's header, types and shapes are public and may be named in errors; cells are not.
"""

import os
import sys
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.data.arrays import from_numpy, objects
from tacit.data.cells import Cells
from tacit.errors import InvalidArgument


class Frame(Protocol):
    """A data frame of pandas or Polars, or an Arrow table."""

    def __getitem__(self, name: str, /) -> Any:
        """The column of a name."""


InMemory = Mapping[str, ArrayLike] | NDArray[Any] | Frame
"""A table in memory: a mapping of arrays, a structured array or a data frame."""
TableLike = str | os.PathLike[str] | InMemory
"""A table in memory, or the path of a file."""


class _Library(Protocol):
    """A module that reads the tables of a library."""

    def header(self, data: object, /) -> list[Hashable] | None: ...

    def cells(self, name: str, column: object, /) -> Cells | None: ...


def header(data: object) -> list[Hashable]:
    """The names of a table's columns."""
    if isinstance(data, Mapping):
        return list(data)
    if isinstance(data, np.ndarray) and data.dtype.names:
        return list(data.dtype.names)
    for library in _loaded():
        if (names := library.header(data)) is not None:
            return names
    raise InvalidArgument(
        "data must be a mapping of arrays, a pandas or polars DataFrame (collected, if lazy), a "
        f"pyarrow Table or a NumPy structured array; got a {type(data).__name__}."
    )


def read_column(data: InMemory, name: str) -> Cells:
    """The cells of one column that is in the header."""
    if header(data).count(name) > 1:
        raise InvalidArgument(f"The data has several columns named {name!r}; rename all but one.")
    column: Any = data[name]
    for library in _loaded():
        if (cells := library.cells(name, column)) is not None:
            return cells
    if isinstance(column, Sequence) and not isinstance(column, str | bytes):
        return objects(column)
    return from_numpy(name, column)


def _loaded() -> Iterator[_Library]:
    """Readers for the libraries that are loaded. There are no tables of one that is not."""
    if sys.modules.get("pandas") is not None:
        from tacit.data import pandas

        yield pandas
    if sys.modules.get("polars") is not None:
        from tacit.data import polars

        yield polars
    if sys.modules.get("pyarrow") is not None:
        from tacit.data import arrow

        yield arrow

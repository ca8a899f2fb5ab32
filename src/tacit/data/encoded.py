"""Encoded columns and rows."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

DROP = "drop"
"""The rule that leaves out rows with a missing value."""


class Column(NamedTuple):
    """An encoded column."""

    values: NDArray[Any]
    present: NDArray[np.bool_] | None
    """Which rows have a value; None if all do. The other rows are left out."""


class Encoded(NamedTuple):
    """Encoded rows, which are private, in the form that `Rows.of_encoded` takes."""

    columns: dict[str, NDArray[Any]]
    person: NDArray[np.bytes_] | None
    most_rows: int | None
    left_out: NDArray[np.bytes_] | int = 0
    """The number of rows that were left out for a missing value; if people are units, their codes."""

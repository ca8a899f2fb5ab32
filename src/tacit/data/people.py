"""Whose row is it: any kind of identifier as a number that means nothing."""

from collections.abc import Hashable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.data.cells import Cells, text_of


def person_codes(cells: Cells) -> NDArray[np.float64]:
    """A number for each row, equal for rows of one person; NaN for a person unknown.

    Identifiers are the same if their text is: 7, 7.0 and "7" are one person, "07" is another.
    Other hashable objects go by equality. A missing identifier, or one that is not even equal
    to itself or cannot be hashed, is NaN: whose row it is, is not known, and it is left out. The
    numbers are as private as the identifiers: they serve to group rows and go no further.
    """
    values = cells.values
    if values.dtype.kind == "O":
        codes = _codes_of_objects(values)
    else:
        _, inverse = np.unique(values, return_inverse=True)
        codes = inverse.astype(np.float64)
        if values.dtype.kind == "f":
            codes[np.isnan(values)] = np.nan
    if cells.present is not None:
        codes[~cells.present] = np.nan
    return codes


def _codes_of_objects(values: NDArray[Any]) -> NDArray[np.float64]:
    seen: dict[Hashable, int] = {}
    codes = np.full(len(values), np.nan)
    for place, cell in enumerate(values):
        text = text_of(cell)
        try:
            if text is not None or (cell is not None and bool(cell == cell)):  # noqa: PLR0124 NaN is not
                codes[place] = seen.setdefault(cell if text is None else text, len(seen))
        except Exception:  # noqa: BLE001, S112 objects may raise anything, and no error may tell
            continue
    return codes

"""Whose row is it: any kind of identifier as a number that means nothing."""

from collections.abc import Hashable
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.data.cells import GAPS, Cells, plain, text_of

_BITS = 52  # A float64 holds every whole number of so many


class People:
    """Codes for the persons of a table that comes in chunks.

    A code is a hash of the identifier, so that no list of all people is kept. Two people get
    the same code with a chance of one in 10^15, and are then protected as if they were one.
    """

    def __init__(self) -> None:
        self._seen: dict[Hashable, int] = {}

    def codes(self, cells: Cells) -> NDArray[np.float64]:
        """A number for each row, equal for rows of one person; NaN for a person unknown.

        Identifiers are the same if their text is: 7, 7.0, "7" and "7.0" are one person, "07" is another.
        Other hashable objects go by equality. A missing identifier, or one that is not even
        equal to itself or cannot be hashed, is NaN: whose row it is, is not known, and it is left
        out. The numbers are as private as the identifiers: they serve to group rows and go no
        further.
        """
        values = cells.values
        if values.dtype.kind == "O":
            codes = np.fromiter(map(self._code, values), np.float64, len(values))
        elif values.dtype.kind in "iu" and values.dtype.itemsize == 8:
            codes = _mixed(values)
        else:
            codes = values.astype(np.float64)
        if cells.present is not None:
            codes[~cells.present] = np.nan
        return codes

    def _code(self, cell: Any) -> float:
        text = text_of(cell)
        if text is not None:
            short = plain(text)
            return np.nan if short in GAPS else _hashed(short)
        try:
            if cell is not None and bool(cell == cell):  # noqa: PLR0124 NaN is not
                return _hashed(f"\0{self._seen.setdefault(cell, len(self._seen))}")
        except Exception:  # noqa: BLE001, S110 objects may raise anything, and no error may tell
            pass
        return np.nan


def _hashed(text: str) -> float:
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return float(int.from_bytes(digest, "big") >> (64 - _BITS))


def _mixed(values: NDArray[Any]) -> NDArray[np.float64]:
    """Integers of 64 bits by the finaliser of SplitMix64, as neighbours would not fit otherwise."""
    mixed = values.astype(np.uint64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed ^= mixed >> np.uint64(shift)
        mixed *= np.uint64(factor)
    mixed ^= mixed >> np.uint64(31)
    return (mixed >> np.uint64(64 - _BITS)).astype(np.float64)

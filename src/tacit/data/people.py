"""Identifiers of people as meaningless codes."""

import re
from collections.abc import Hashable
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.data.cells import GAPS, Cells, inexact, plain, text_of
from tacit.errors import InvalidArgument

# A letter for the kind of identifier, and what stands for it; nothing at all for a person unknown.
_CODE = np.dtype("S17")
# Rows of a person for which there is room, at most: everybody takes as much.
MOST_ROWS = 100_000
# How floats that are not exact are written, by pandas or as `text_of` has them.
_INEXACT = re.compile(r"-?([0-9]+\.0+|[0-9](\.[0-9]+)?e\+[0-9]+|0x1\.[0-9a-f]+p\+[0-9]+|inf)")


class People:
    """Codes for the persons of a table that comes in chunks.

    The code of a text is a hash of 128 bits, so that no list of all people is kept and no two of
    them share a code: if they did, one's rows would be counted as the other's, and the
    guarantee of either would not hold. Numbers stand for themselves.
    """

    def __init__(self) -> None:
        self._seen: dict[Hashable, int] = {}

    def codes(self, cells: Cells) -> NDArray[np.bytes_]:
        """A code for each row, equal for rows of one person; empty for a person unknown.

        Identifiers are the same if their text is: 7, 7.0, "7" and "7.0" are one person, "07" is another.
        So are decimals and fractions that are those numbers. Tuples and frozen sets go by their parts,
        and other hashable objects by equality. A missing identifier or part of one, or one that is not
        even equal to itself, has no equality of its own, or cannot be hashed, is empty: whose row it
        is, is not known, and it is left out. So is a float from 2^53 on, which may stand for several integers, and text with
        a replacement character, which stands for bytes that are not UTF-8, whatever they were. The codes are as private as the identifiers: they serve to group rows and go no
        further.
        """
        if cells.rounded:
            raise InvalidArgument(
                "Persons are named by decimals with more digits than are kept of a number; turn them "
                "into whole numbers or text."
            )
        values = cells.values
        if values.dtype.kind == "O":
            codes = np.fromiter(map(self._code, values), _CODE, len(values))
        elif values.dtype.kind in "iu":
            codes = _plain(b"i", values.astype(np.uint64))
        else:
            with np.errstate(all="ignore"):  # no warning may tell of a cell
                real = values.astype(np.float64) + 0.0  # no negative zero
                codes = _plain(b"f", real.view(np.uint64))
                if values.dtype.kind == "f":
                    codes[inexact(values) | (real != values)] = b""
        if cells.present is not None:
            codes[~cells.present] = b""
        return codes

    def _code(self, cell: Any) -> bytes:
        text = text_of(_number(cell) if isinstance(cell, Decimal | Fraction) else cell)
        if text is not None:
            short = plain(text)
            if short in GAPS or _INEXACT.fullmatch(short):
                return b""
            if "\ufffd" in short:  # bytes that are not UTF-8: known only if they are at hand
                return _hashed(cell) if isinstance(cell, bytes) else b""
            return _hashed(short.encode("utf-8", "surrogatepass"))
        try:
            if isinstance(cell, tuple | frozenset):
                return self._code_of_parts(cell)
            # Without equality of its own, a person's next row would be another person's.
            equality: Any = type(cell).__eq__
            named = isinstance(cell, Enum) or equality is not object.__eq__
            if cell is not None and named and bool(cell == cell):  # noqa: PLR0124 NaN is not
                return b"o%d" % self._seen.setdefault(cell, len(self._seen))
        except Exception:  # noqa: BLE001, S110 objects may raise anything, and no error may tell
            pass
        return b""

    def _code_of_parts(self, cells: tuple[Any, ...] | frozenset[Any]) -> bytes:
        codes = [self._code(cell) for cell in cells]
        if b"" in codes:
            return b""
        held = codes if isinstance(cells, tuple) else sorted(codes)
        whole = repr((isinstance(cells, tuple), held)).encode()
        return b"p" + blake2b(whole, digest_size=16).digest()


def _number(cell: Decimal | Fraction) -> Any:
    """The same number as Python or NumPy have it, if it is exactly that."""
    try:
        near = float(cell)
        if near == cell:
            return int(near) if near.is_integer() else near
        if abs(near) < 2.0**100 and int(cell) == cell:
            return int(cell)
    except Exception:  # noqa: BLE001, S110 a number may signal, or be too large, and no error may tell
        pass
    return cell


def _hashed(text: bytes) -> bytes:
    return b"t" + blake2b(text, digest_size=16).digest()


def _plain(letter: bytes, words: NDArray[np.uint64]) -> NDArray[np.bytes_]:
    """Numbers of 64 bits as they are."""
    codes = np.zeros((len(words), _CODE.itemsize), np.uint8)
    codes[:, 0] = letter[0]
    codes[:, 1:9] = words[:, None].view(np.uint8)
    found: NDArray[np.bytes_] = codes.view(_CODE)[:, 0]
    return found

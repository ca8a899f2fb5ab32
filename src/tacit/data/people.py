"""Identifiers of people, as codes that only serve to group rows."""

import re
from collections.abc import Hashable
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from tacit.data.cells import MISSING_TEXTS, Cells, Texts, is_inexact, label_text, normalised_text
from tacit.errors import InvalidArgument

# The number of this way to code identifiers: shards of another would put people elsewhere.
CODE_VERSION = 2
# A letter for the kind of identifier, and its code of so many bytes; empty for an unknown person.
_CODE_BYTES = 16
_CODE_TYPE = np.dtype(f"S{1 + _CODE_BYTES}")
# The largest number of rows per person. Every person takes up that much memory.
MAX_ROWS_PER_PERSON = 100_000
# Text of these characters, with a digit among them, is neither missing nor a float, and counts as it is.
_DIGITS, _LETTERS = b"0123456789", b"-_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
# Text of floats that may have been rounded, as pandas or `label_text` writes them.
_INEXACT_TEXT = re.compile(r"-?([0-9]+\.0+|[0-9](\.[0-9]+)?e\+[0-9]+|0x1\.[0-9a-f]+p\+[0-9]+|inf)")


class People:
    """Codes for the persons of a table that is read in chunks.

    The code of a number or of a text of up to 16 bytes is itself. That of a longer text is a hash of 128
    bits. So no list of people is kept and no two people share a code. If two did, the rows of one would
    count as the other's, and the guarantee would hold for neither.
    """

    def __init__(self) -> None:
        self._seen: dict[Hashable, int] = {}

    def codes(self, cells: Cells) -> NDArray[np.bytes_]:
        """A code for each row: the same for all rows of a person, and empty for an unknown person.

        Identifiers are compared as text: 7, 7.0, "7" and "7.0" are one person, and "07" is another.
        Decimals and fractions are compared as numbers, tuples and frozen sets by their parts, and other
        hashable objects by equality. The person is unknown, and the row is left out, if the identifier or
        a part of it is missing, differs from itself, defines no equality or cannot be hashed. The same
        holds for a float from 2^53 among objects, which may stand for several integers, and for text with
        a replacement character, which stands for unknown bytes. A column of floats is refused by its
        type, whatever it holds: it may be one of integers that one record without an identifier has
        turned into floats, which would make everybody unknown whose identifier is large.
        The codes are as private as the identifiers, and are used for nothing but to group rows.
        """
        if cells.rounded:
            raise InvalidArgument(
                "The column that identifies persons is of floats, or of decimals with more digits than a float "
                "holds, and its numbers may have been rounded; read the identifiers as text or as whole numbers "
                "(in pandas, dtype=str or Int64)."
            )
        values = cells.values
        if isinstance(values, Texts):
            codes = self._codes_of_texts(values)
        elif values.dtype.kind == "O":
            codes = np.fromiter(map(self._code, values), _CODE_TYPE, len(values))
        elif values.dtype.kind in "iu":
            codes = _codes_of_words(b"i", values.astype(np.uint64))
        else:  # Booleans, and decimals, of which a whole number may be too large for a float
            real = values.astype(np.float64) + 0.0  # no negative zero
            codes = _codes_of_words(b"f", real.view(np.uint64))
            codes[is_inexact(real)] = b""
        if cells.present is not None:
            codes[~cells.present] = b""
        return codes

    def _codes_of_texts(self, texts: Texts) -> NDArray[np.bytes_]:
        """The same as `_code` of every cell; of those that are plain, without a function of our own."""
        codes = np.zeros((len(texts), _CODE_TYPE.itemsize), np.uint8)
        every = np.arange(len(texts))
        short = texts.made_of(every, _LETTERS, _DIGITS) & (texts.sizes <= _CODE_BYTES)
        codes[short, 0] = ord("s")
        codes[short, 1:] = texts.characters(every[short], _CODE_BYTES)
        found: NDArray[np.bytes_] = codes.view(_CODE_TYPE)[:, 0]
        if not short.all():
            firsts, same = texts.distinct(every[~short])
            plain = texts.made_of(firsts, _LETTERS, _DIGITS)
            data, places = texts.data, texts.places(firsts[plain])
            hashed = [blake2b(data[a:b], digest_size=_CODE_BYTES).digest() for a, b in places]
            others = np.empty(len(firsts), _CODE_TYPE)
            others[plain] = np.frombuffer(b"".join([b"t" + each for each in hashed]), _CODE_TYPE)
            others[~plain] = [self._code(cell) for cell in texts.cells(firsts[~plain])]
            found[~short] = others[same]
        return found

    def _code(self, cell: object) -> bytes:
        text = label_text(_exact_number(cell) if isinstance(cell, Decimal | Fraction) else cell)
        if text is not None:
            short = normalised_text(text)
            if short in MISSING_TEXTS or _INEXACT_TEXT.fullmatch(short):
                return b""
            if (
                "\ufffd" in short
            ):  # invalid UTF-8, which identifies a person only if the bytes are known
                return _text_code(cell) if isinstance(cell, bytes) else b""
            return _text_code(short.encode("utf-8", "surrogatepass"))
        try:
            if isinstance(cell, tuple | frozenset):
                return self._code_of_parts(cell)
            # Without its own equality, the next row of the person would count as another person's.
            named = isinstance(cell, Enum) or type(cell).__eq__ is not object.__eq__
            if cell is not None and named and bool(cell == cell):  # noqa: PLR0124 NaN is not
                return b"o%d" % self._seen.setdefault(cell, len(self._seen))
        except Exception:  # noqa: BLE001, S110 objects may raise anything, and no error may show a cell
            pass
        return b""

    def _code_of_parts(self, cells: tuple[object, ...] | frozenset[object]) -> bytes:
        codes = [self._code(cell) for cell in cells]
        if b"" in codes:
            return b""
        held = codes if isinstance(cells, tuple) else sorted(codes)
        whole = repr((isinstance(cells, tuple), held)).encode()
        return b"p" + _digest(whole)


def _exact_number(cell: Decimal | Fraction) -> object:
    """The same number as an integer or a float, if there is exactly that one."""
    try:
        near = float(cell)
        if near == cell:
            return int(near) if near.is_integer() else near
        if abs(near) < 2.0**100 and int(cell) == cell:
            return int(cell)
    except Exception:  # noqa: BLE001, S110 a number may signal, or be too large, and no error may show a cell
        pass
    return cell


def _text_code(text: bytes) -> bytes:
    """Text as it is, if it is short and no zeros could be lost at its end; otherwise its hash."""
    return b"s" + text if len(text) <= _CODE_BYTES and b"\0" not in text else b"t" + _digest(text)


def _digest(text: bytes) -> bytes:
    return blake2b(text, digest_size=_CODE_BYTES).digest()


def _codes_of_words(letter: bytes, words: NDArray[np.uint64]) -> NDArray[np.bytes_]:
    """Codes of numbers, which are their 64 bits."""
    codes = np.zeros((len(words), _CODE_TYPE.itemsize), np.uint8)
    codes[:, 0] = letter[0]
    codes[:, 1:9] = words[:, None].view(np.uint8)
    found: NDArray[np.bytes_] = codes.view(_CODE_TYPE)[:, 0]
    return found

"""Reading the cells of one column. Each is read by itself, and no content raises an error.

How a cell is read never depends on other cells. A reader such as ``pandas.read_csv`` may turn a whole column
into text because of one odd cell. So text that spells a number is read as that number, and 3, 3.0, "3" and
"3.0" are the same label. The text of a label is looked up as it is, and then without the spaces around it. If
it is not found, and is one of the usual spellings of "no value", it is missing.
"""

import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tacit.data.texts import Texts

_NUMBERS = (int, float, np.integer, np.floating, np.bool_)
_BY_ONES = 2.0**11  # below this, floats of any precision represent all whole numbers
UNKNOWN, MISSING = -1, -2  # codes of a label that was not declared, and of a missing one
WHOLE = re.compile(r"0|-?[1-9][0-9]{0,17}")  # text of an integer that fits in 64 bits
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,19}")  # text of an integer that may fit
_DECIMALS = re.compile(r"(0|-?[1-9][0-9]*)\.0+")  # integers as a column of floats writes them
# The text that pandas reads as Booleans in a CSV file: cells mean the same with and without pandas.
BOOLEANS = {"True": 1, "true": 1, "TRUE": 1, "False": 0, "false": 0, "FALSE": 0}
GAPS = frozenset(["", "NA", "N/A", "NaN", "nan", "NULL", "null", "None", "?"])


class Cells(NamedTuple):
    """The cells of a column as they came: Booleans, integers, floats, objects or text, one for each row."""

    values: NDArray[Any] | Texts
    present: NDArray[np.bool_] | None = None
    """False where the container marks a value as missing; None if it marks none."""
    shape: tuple[int | None, ...] | None = ()
    """The shape of one row, by the column's type. None for objects, each of which may have another shape;
    an entry is None for lists of any length."""
    readable: bool = True
    """Whether the column's type is numbers, Booleans or text. Other types can only be identifiers."""
    rounded: bool = False
    """Whether whole numbers of this type may have been rounded on the way, so that two of them became equal:
    floats, and decimals with more digits. Containers turn whole numbers into floats if one is missing."""

    def part(self, start: int, stop: int) -> "Cells":
        """Some of the rows."""
        present = None if self.present is None else self.present[start:stop]
        return self._replace(values=self.values[start:stop], present=present)


def number_of(cell: object) -> float:
    """The number in a cell, also of text that spells a number; otherwise NaN."""
    if isinstance(cell, str):  # first, because a file has millions of them
        return _spelled(cell)
    if isinstance(cell, _NUMBERS):
        try:
            return float(cell)
        except OverflowError:
            return math.inf if cell > 0 else -math.inf
        except Exception:  # noqa: BLE001 objects may raise anything, and no error may show a cell
            return math.nan
    return math.nan


def _spelled(text: str) -> float:
    try:
        return math.nan if "_" in text else float(text)
    except ValueError:
        return float(BOOLEANS.get(text.strip(), math.nan))


def text_of(cell: object) -> str | None:
    """The text of a label: "3" for 3, 3.0 and "3". None for anything but text, numbers and Booleans.

    Bytes are read as UTF-8; invalid ones become replacement characters.
    """
    if isinstance(cell, str):
        return str.__str__(cell)
    if isinstance(cell, bytes):
        return bytes.decode(cell, "utf-8", "replace")
    try:
        return _text_of_number(cell)
    except Exception:  # noqa: BLE001 objects may raise anything, and no error may show a cell
        return None


def _text_of_number(cell: object) -> str | None:
    if isinstance(cell, bool | np.bool_):
        return "True" if cell else "False"
    if isinstance(cell, int | np.integer):
        return _text_of_integer(int(cell))
    if isinstance(cell, float | np.floating):
        number = float(cell)
        if number.is_integer():
            known = abs(number) < _BY_ONES or not inexact(np.asarray(cell))
            return _text_of_integer(int(number)) if known else number.hex()
        return None if math.isnan(number) else repr(number)
    return None


def inexact(floats: NDArray[np.floating[Any]]) -> NDArray[np.bool_]:
    """Which floats may stand for several whole numbers: those from 2^53, in single precision from 2^24.

    Libraries that convert integers to floats, as pandas does if one is missing, round such numbers. So
    they are not read as labels or identifiers.
    """
    bits = min(np.finfo(floats.dtype).nmant, 52) + 1
    with np.errstate(all="ignore"):  # no warning may show a cell
        found: NDArray[np.bool_] = ~(np.abs(floats) < 2.0**bits)
    return found


def plain(text: str) -> str:
    """Text without the spaces around it, and without decimal zeros after a whole number."""
    short = text.strip()
    whole = _DECIMALS.fullmatch(short)
    if whole is None or len(whole[1]) > 17 or abs(int(whole[1])) >= 2**53:  # as `inexact`
        return short
    return whole[1]


def _text_of_integer(value: int) -> str:
    # Python refuses to write very long integers in decimals.
    return str(value) if value.bit_length() < 2000 else hex(value)


def read_numbers(cells: Cells, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Every cell as a number, or as an array of ``shape``; NaN where missing."""
    values = cells.values
    with np.errstate(all="ignore"):
        if isinstance(values, Texts):
            numbers = values.numbers(number_of)
        elif values.dtype.kind != "O":
            numbers = values.astype(np.float64, copy=False)
        elif values.ndim == 1 and shape:
            numbers = _arrays(values, shape)
        else:
            flat = (number_of(cell) for cell in values.ravel())
            numbers = np.fromiter(flat, np.float64, values.size).reshape(values.shape)
    if cells.present is None:
        return numbers
    present = cells.present.reshape(
        cells.present.shape + (1,) * (numbers.ndim - cells.present.ndim)
    )
    return np.where(present, numbers, np.nan)


def _arrays(values: NDArray[Any], shape: tuple[int, ...]) -> NDArray[np.float64]:
    numbers = np.full((len(values), *shape), np.nan)
    for place, cell in enumerate(values):
        if isinstance(cell, list | tuple | np.ndarray):
            parts = _parts(cell)
            if parts.shape == shape:
                flat = (number_of(part) for part in parts.ravel())
                numbers[place] = np.fromiter(flat, np.float64, parts.size).reshape(shape)
    return numbers


def _parts(cell: Any) -> NDArray[Any]:
    if isinstance(cell, np.ma.MaskedArray):
        parts = np.array(cell, dtype=object)
        parts[np.ma.getmaskarray(cell)] = None
        return parts
    try:
        return np.array(cell, dtype=object)
    except Exception:  # noqa: BLE001 objects in a cell may raise anything, and no error may show a cell
        return np.empty(0, dtype=object)


def read_labels(cells: Cells, table: Mapping[str, int]) -> NDArray[np.int32]:
    """The code of every cell's text in ``table``; `UNKNOWN` or `MISSING` for the others."""
    values = cells.values
    if isinstance(values, Texts):
        codes = values.labels(table, lambda cell: _code(cell, table))
    elif values.dtype.kind == "O":
        codes = np.fromiter((_code(cell, table) for cell in values), np.int32, len(values))
    elif values.dtype.kind == "b":
        yes, no = table.get("True", UNKNOWN), table.get("False", UNKNOWN)
        codes = np.where(values, np.int32(yes), np.int32(no))
    else:
        codes = _codes_of_numbers(values, table)
    if cells.present is not None:
        codes[~cells.present] = MISSING
    return codes


def _code(cell: object, table: Mapping[str, int]) -> int:
    text = text_of(cell)
    if text is None:
        return MISSING
    code = table.get(text)
    if code is None:
        short = plain(text)
        code = table.get(short, MISSING if short in GAPS else UNKNOWN)
    return code


def _codes_of_numbers(values: NDArray[Any], table: Mapping[str, int]) -> NDArray[np.int32]:
    """The same as `_code` of every number, without a loop over rows."""
    wide: type[Any] = {"i": np.int64, "u": np.uint64, "f": np.float64}[values.dtype.kind]
    with np.errstate(all="ignore"):
        numbers = values.astype(wide, copy=False)
    codes = np.full(len(numbers), UNKNOWN, dtype=np.int32)
    if values.dtype.kind == "f":
        codes[np.isnan(numbers)] = MISSING
    known = _levels(table, wide)
    if known:
        levels = np.array(sorted(known), dtype=wide)
        place = np.minimum(np.searchsorted(levels, numbers), len(levels) - 1)
        hits = levels[place] == numbers
        if values.dtype.kind == "f":
            hits &= ~inexact(values) | np.isinf(numbers)
        codes[hits] = np.array([known[level] for level in sorted(known)], np.int32)[place[hits]]
    return codes


def _levels(table: Mapping[str, int], wide: type[Any]) -> dict[Any, int]:
    """The codes of those labels that are the text of a number of this type."""
    if wide is np.float64:
        spelled = {text: _spelled(text) for text in table}
        return {
            spelled[text]: code for text, code in table.items() if text_of(spelled[text]) == text
        }
    limits = np.iinfo(wide)
    whole = {int(text): code for text, code in table.items() if _INTEGER.fullmatch(text)}
    return {n: code for n, code in whole.items() if limits.min <= n <= limits.max}

"""Reading the cells of one column. Each is read by itself, and no content raises an error.

How a cell is read never depends on other cells. A reader such as ``pandas.read_csv`` may turn a whole column into
text because of one odd cell. So text that spells a number is read as that number, and 3, 3.0, "3" and "3.0" are the
same label. The text of a label is looked up as it is, and then without the spaces around it. If it is not found, and
is one of the usual spellings of "no value", it is missing. What a schema declares about the spelling of a column (a
decimal comma, a unit of measurement, a format of dates) is public and holds for all of its cells.

Text is read without a loop over cells where that is exact: equal cells are read once, and plain decimals are added up
digit by digit. Every other cell is read by the function of one cell.
"""

import datetime as dt
import math
import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple, Self, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

MAX_DECIMAL_LENGTH = 24  # characters
_MAX_DIGITS = 19  # of a whole number that fits into 64 bits
_WideType: TypeAlias = type[np.int64] | type[np.uint64] | type[np.float64]
_POWERS_OF_TEN = np.array([float(10**power) for power in range(_MAX_DIGITS + 1)])  # all exact
_EXACT_IN_FLOAT64 = np.uint64(2**53)  # up to which floats represent all whole numbers


def parse_decimals(
    characters: NDArray[np.uint8], sizes: NDArray[np.int64], mark: str = "."
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Numbers that are spelled as a sign, digits and a decimal point.

    Args:
        characters: A row of characters for each cell, zeros after its last one.
        sizes: The number of characters of each.
        mark: What is written for the decimal point.

    Returns:
        What ``float`` makes of each cell, and which cells that holds for. The others are not such decimals,
        or would need more digits to be rounded for certain.
    """
    longest = int(sizes.max(initial=0))
    columns = np.ascontiguousarray(characters.T[:longest])
    digits, points, after = (np.zeros(len(sizes), np.uint8) for _ in range(3))
    whole: NDArray[Any] = np.zeros(len(sizes), np.uint32 if longest <= 9 else np.uint64)
    for column in columns:
        digit = column - np.uint8(ord("0"))
        is_digit = digit < 10
        whole *= is_digit * np.uint8(9) + np.uint8(1)
        whole += digit * is_digit
        digits += is_digit
        after += is_digit & (points > 0)
        points += column == ord(mark)
    first = columns[0] if longest else np.zeros(len(sizes), np.uint8)
    minus = first == ord("-")
    signs = minus | (first == ord("+"))
    plain = (digits > 0) & (digits <= _MAX_DIGITS) & (points <= 1)
    plain &= digits + points + signs == sizes
    powers: NDArray[np.float64] = _POWERS_OF_TEN[np.minimum(after, _MAX_DIGITS)]
    values = whole / powers
    wide = plain & (whole > _EXACT_IN_FLOAT64)
    if wide.any():
        values[wide], sure = _divide_rounded(whole[wide], powers[wide])
        plain[wide] = sure
    return np.where(minus, -values, values), plain


def _divide_rounded(
    whole: NDArray[np.uint64], powers: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Quotients of whole numbers below 10^19 by powers of ten, and whether they are surely the nearest floats.

    The remainder of the division is exact, so that the quotient and its correction have about 100 bits.
    Only if these are next to the middle between two floats is the nearest one uncertain.
    """
    near = whole.astype(np.float64)
    rest = (whole - near.astype(np.uint64)).view(np.int64).astype(np.float64)
    quotient = near / powers
    product = quotient * powers
    a, b = _dekker_split(quotient)
    c, d = _dekker_split(powers)
    error = a * c - product + a * d + b * c + b * d
    correction = (near - product - error + rest) / powers
    value = quotient + correction
    left = np.abs(correction - (value - quotient))
    gap = np.spacing(value)
    sure = np.abs(left / gap - 0.5) > 2.0**-30
    return value, sure & (np.abs(left / gap - 0.25) > 2.0**-30)


def _dekker_split(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Floats as sums of two with half as many bits, whose products are exact (Dekker 1971)."""
    scaled = values * (2.0**27 + 1)
    high = scaled - (scaled - values)
    return high, values - high


RowIndices = NDArray[np.intp]
_Number = TypeVar("_Number", np.float64, np.int32)
PADDING = bytes(64)  # which the bytes of a column must end in, so that any cell has words
_WORD_BYTES = 8
# Odd numbers, by which words are mixed. Cells with equal mixtures are compared before they count as equal.
_MIX_FACTORS = np.array(
    [0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93] * 2, np.uint64
)
# Words of which the first so many bytes are kept.
_BYTE_MASKS = np.array([(1 << 8 * size) - 1 for size in range(_WORD_BYTES + 1)], "<u8")


class Texts:
    """A column of text.

    Args:
        data: Bytes, with `PADDING` at the end.
        starts: Where each cell begins.
        sizes: How many bytes each cell has.
        known: Whether bytes that are not UTF-8 stay bytes; otherwise they become replacement
            characters.
    """

    def __init__(
        self,
        data: bytes,
        starts: NDArray[np.int64],
        sizes: NDArray[np.int64],
        *,
        known: bool = False,
    ) -> None:
        self.data, self.starts, self.sizes, self.known = data, starts, sizes, known

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, some: slice) -> Self:
        return type(self)(self.data, self.starts[some], self.sizes[some], known=self.known)

    def cells(self, rows: RowIndices) -> list[str | bytes]:
        """The cells of some rows, one by one."""
        return [self._decoded(self.data[start:stop]) for start, stop in self.places(rows)]

    def _decoded(self, raw: bytes) -> str | bytes:
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return raw if self.known else raw.decode("utf-8", "replace")

    def numbers(self, read: Callable[[object], float], mark: str = ".") -> NDArray[np.float64]:
        """What ``read`` says of each cell, if it reads plain decimals as Python does, with that decimal mark."""
        there, width = self._short(MAX_DECIMAL_LENGTH)
        characters = self._words(there, width).view(np.uint8)
        values, plain = parse_decimals(characters, self.sizes[there], mark)
        if len(values) == len(self) and plain.all():
            return values
        found, rest = np.empty(len(self)), np.ones(len(self), np.bool_)
        found[there], rest[there] = values, ~plain
        return self._read(np.flatnonzero(rest), found, read)

    def labels(self, table: Mapping[str, int], read: Callable[[object], int]) -> NDArray[np.int32]:
        """What ``read`` says of each cell, if it says what ``table`` says of the labels in it."""
        found = np.empty(len(self), np.int32)
        known = {text.encode("utf-8", "surrogatepass"): code for text, code in table.items()}
        there, width = self._short(max(map(len, known), default=0))
        sizes = self.sizes[there]
        if not len(sizes) or not known:
            return self._read(np.arange(len(self)), found, read)
        levels = sorted(((_label_words(text, width), code) for text, code in known.items()))
        words = self._words(there, width)
        mixed = _mix_words(words, sizes)
        place = np.searchsorted(np.array([level[0] for level, _ in levels], np.uint64), mixed)
        place = np.minimum(place, len(levels) - 1)
        hits = sizes == np.array([level[1] for level, _ in levels])[place]
        wanted = np.array([words for (_, _, *words), _ in levels], "<u8")
        hits &= _equal_words(words, wanted, place)
        found[there] = np.array([code for _, code in levels], np.int32)[place]
        rest = np.ones(len(self), np.bool_)
        rest[there] = ~hits
        return self._read(np.flatnonzero(rest), found, read)

    def each(self, read: Callable[[object], float]) -> NDArray[np.float64]:
        """What ``read`` says of each cell."""
        return self._read(np.arange(len(self)), np.empty(len(self)), read)

    def _read(
        self, rows: RowIndices, found: NDArray[_Number], read: Callable[[object], float]
    ) -> NDArray[_Number]:
        """Fills in what ``read`` says of some rows; of equal cells only once."""
        if len(rows):
            firsts, same = self.distinct(rows)
            found[rows] = np.array([read(cell) for cell in self.cells(firsts)], found.dtype)[same]
        return found

    def distinct(self, rows: RowIndices) -> tuple[RowIndices, RowIndices]:
        """Rows of different cells, and for each of the given rows which of these has its cell.

        Long cells may count as different though they are equal.
        """
        short, width = self._short_of(rows)
        words = self._words(short, width)
        _, first, same = np.unique(
            _mix_words(words, self.sizes[short]), return_index=True, return_inverse=True
        )
        equal = self.sizes[short] == self.sizes[short[first]][same]
        equal &= _equal_words(words, words[first], same)
        if len(short) == len(rows) and equal.all():
            return short[first], same
        place = np.full(len(self), -1, np.intp)
        place[short[equal]] = same[equal]
        alone = rows[place[rows] < 0]
        place[alone] = len(first) + np.arange(len(alone))
        return np.concatenate([short[first], alone]), place[rows]

    def made_of(self, rows: RowIndices, letters: bytes, digits: bytes) -> NDArray[np.bool_]:
        """Which cells are made of these letters and digits, have a digit, and are not long."""
        short, width = self._short_of(rows)
        kinds = np.zeros(256, np.uint8)
        kinds[[*letters]], kinds[[*digits]] = 1, 2
        found = kinds[self._words(short, width).view(np.uint8)]
        made = np.zeros(len(self), np.bool_)
        made[short] = (found > 0).sum(axis=1) == self.sizes[short]
        made[short] &= (found > 1).any(axis=1)
        return made[rows]

    def characters(self, rows: RowIndices, most: int) -> NDArray[np.uint8]:
        """The bytes of cells that have at most so many, followed by zeros."""
        width = -(-most // _WORD_BYTES)
        return self._words(rows, width).view(np.uint8)[:, :most]

    def places(self, rows: RowIndices) -> Iterable[tuple[int, int]]:
        """Where cells begin and end in the data."""
        starts = self.starts[rows]
        return zip(starts.tolist(), (starts + self.sizes[rows]).tolist(), strict=True)

    def _short(self, most: int) -> tuple[RowIndices | slice, int]:
        """The rows whose cells are not longer than so many bytes, and how many words those have."""
        short = self.sizes <= min(most, len(PADDING))
        found = slice(None) if short.all() else np.flatnonzero(short)
        return found, self._width(found)

    def _short_of(self, rows: RowIndices) -> tuple[RowIndices, int]:
        """Those of some rows whose cells are not longer than the padding, and how many words they have."""
        found = rows[self.sizes[rows] <= len(PADDING)]
        return found, self._width(found)

    def _width(self, rows: RowIndices | slice) -> int:
        return -(-int(self.sizes[rows].max(initial=1)) // _WORD_BYTES)

    def _words(self, rows: RowIndices | slice, width: int) -> NDArray[np.uint64]:
        """The words of cells, with zeros where a cell has no bytes any more."""
        size = width * _WORD_BYTES
        every = np.ndarray((len(self.data) - size + 1,), f"V{size}", self.data, strides=(1,))
        words: NDArray[np.uint64] = every[self.starts[rows]].view("<u8").reshape(-1, width)
        left = self.sizes[rows]
        if width == 1:
            words &= _BYTE_MASKS[left][:, None]
            return words
        for place in range(width):
            words[:, place] &= _BYTE_MASKS[np.clip(left - place * _WORD_BYTES, 0, _WORD_BYTES)]
        return words


def _equal_words(
    words: NDArray[np.uint64], others: NDArray[np.uint64], place: RowIndices
) -> NDArray[np.bool_]:
    """Which cells have the words of others, each at a place."""
    equal = np.ones(len(words), np.bool_)
    for word, other in zip(words.T, others.T, strict=True):
        equal &= word == np.ascontiguousarray(other)[place]
    return equal


def _mix_words(words: NDArray[np.uint64], sizes: NDArray[np.int64]) -> NDArray[np.uint64]:
    mixed = sizes.astype(np.uint64)
    for word, factor in zip(words.T, _MIX_FACTORS, strict=False):
        mixed = mixed + (word ^ word >> np.uint64(32)) * factor
    return mixed


def _label_words(text: bytes, width: int) -> tuple[int, ...]:
    """The mixture, size and words of a label, where labels that are too long match no cell."""
    size = np.array([len(text)])
    padded = text[: width * _WORD_BYTES].ljust(width * _WORD_BYTES, b"\0")
    words = np.frombuffer(padded, "<u8").reshape(1, width)
    return int(_mix_words(words, size)[0]), len(text), *map(int, words[0])


_NUMBER_TYPES = (int, float, np.integer, np.floating, np.bool_)
_EXACT_IN_ANY_FLOAT = 2.0**11  # below this, floats of any precision represent all whole numbers
UNKNOWN, MISSING = -1, -2  # codes of a label that was not declared, and of a missing one
INTEGER_TEXT = re.compile(r"0|-?[1-9][0-9]{0,17}")  # text of an integer that fits in 64 bits
_LONG_INTEGER_TEXT = re.compile(r"0|-?[1-9][0-9]{0,19}")  # text of an integer that may fit
_INTEGER_AS_DECIMAL = re.compile(
    r"(0|-?[1-9][0-9]*)\.0+"
)  # integers as a column of floats writes them
# The text that pandas reads as Booleans in a CSV file: cells mean the same with and without pandas.
BOOLEAN_TEXTS = {"True": 1, "true": 1, "TRUE": 1, "False": 0, "false": 0, "FALSE": 0}
MISSING_TEXTS = frozenset(["", "NA", "N/A", "NaN", "nan", "NULL", "null", "None", "?"])


class Cells(NamedTuple):
    """The cells of a column as they came: Booleans, integers, floats, objects or text, one for each row."""

    values: NDArray[np.generic] | Texts
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

    @property
    def is_dates(self) -> bool:
        """Whether the column's type is that of dates, with or without a time."""
        return not isinstance(self.values, Texts) and self.values.dtype.kind == "M"

    def part(self, start: int, stop: int) -> "Cells":
        """Some of the rows."""
        present = None if self.present is None else self.present[start:stop]
        return self._replace(values=self.values[start:stop], present=present)


class LabelledNumber(float):
    """A number with a label, as data sets of Stata and SPSS have them: as a level, either of them."""

    label: str

    def __new__(cls, number: float, label: str) -> Self:
        """The number and its label."""
        found = super().__new__(cls, number)
        found.label = label
        return found


class NumberFormat(NamedTuple):
    """How the text of a column spells numbers."""

    decimal: str = "."
    """The decimal mark."""
    unit: str | None = None
    """A unit of measurement that may follow a number."""


PLAIN_NUMBERS = NumberFormat()
_NO_LABELS: Mapping[str, int] = MappingProxyType({})


def parse_number(cell: object, spelled: NumberFormat = PLAIN_NUMBERS) -> float:
    """The number in a cell, also of text that spells a number; otherwise NaN."""
    if isinstance(cell, str):  # first, because a file has millions of them
        found, unit = _parse_text(cell, spelled.decimal), spelled.unit
        if unit is not None and math.isnan(found) and cell.rstrip().endswith(unit):
            found = _parse_text(cell.rstrip().removesuffix(unit), spelled.decimal)
        return found
    if isinstance(cell, _NUMBER_TYPES):
        try:
            return float(cell)
        except OverflowError:
            return math.inf if cell > 0 else -math.inf
        except Exception:  # noqa: BLE001 objects may raise anything, and no error may show a cell
            return math.nan
    return math.nan


def _parse_text(text: str, decimal: str = ".") -> float:
    if decimal != ".":
        # A point could separate thousands, so it is not taken for a decimal mark as well.
        text = "" if "." in text else text.replace(decimal, ".")
    try:
        return math.nan if "_" in text else float(text)
    except ValueError:
        return float(BOOLEAN_TEXTS.get(text.strip(), math.nan))


# A date with the year first, and perhaps a time. Zones are ignored: the date is that of the place.
_YEAR_FIRST = re.compile(
    r"(?P<Y>[0-9]{4})([-/.])(?P<m>[0-9]{1,2})\2(?P<d>[0-9]{1,2})"
    r"(?:[T ](?P<H>[0-9]{1,2}):(?P<M>[0-9]{2})(?::(?P<S>[0-9]{2})(?:\.[0-9]*)?)?(?:Z|[+-][0-9:]{2,6})?)?"
)
# The letters of ``strptime`` for numbers. Names of days and months would depend on the language of the machine.
_DATE_LETTERS = {"Y": "[0-9]{4}", "y": "[0-9]{2}"} | dict.fromkeys("mdHMS", "[0-9]{1,2}")
EPOCH = dt.date(1970, 1, 1)
_DAY = np.timedelta64(1, "D")
_YEAR = np.timedelta64(1, "Y")


@lru_cache(maxsize=64)
def date_pattern(form: str) -> re.Pattern[str] | None:
    """What dates look like that are written in a form such as ``"%d.%m.%Y"``; None if that is no form."""
    pieces = re.split(r"%(.)", form)
    letters = pieces[1::2]
    known = {*letters} <= {*_DATE_LETTERS} and len({*letters}) == len(letters)
    if not known or not {"d", "m"} <= {*letters} or len({"Y", "y"} & {*letters}) != 1:
        return None
    parts = [
        f"(?P<{each}>{_DATE_LETTERS[each]})" if place % 2 else re.escape(each)
        for place, each in enumerate(pieces)
    ]
    return re.compile("".join(parts))


def parse_date(cell: object, form: str | None = None) -> float:
    """The date in a cell as days since 1970, with the time of day as a fraction; NaN for anything else.

    Args:
        cell: A date of any library, or text: a date with the year first, such as 2020-03-17, or one of the
            form.
        form: How dates are written, in the letters of ``strptime``.
    """
    try:
        if isinstance(cell, np.datetime64):
            return float(days_since_epoch(np.asarray(cell)))
        if isinstance(cell, dt.datetime):
            return _moment_days(cell)
        if isinstance(cell, dt.date):
            return float(cell.toordinal() - EPOCH.toordinal())
        if not isinstance(cell, str) and form is None:
            return math.nan
        text = label_text(cell)
        return math.nan if text is None else _parse_date_text(text.strip(), form)
    except Exception:  # noqa: BLE001 objects may raise anything, and no error may show a cell
        return math.nan


def _moment_days(moment: dt.datetime) -> float:
    seconds = 3600 * moment.hour + 60 * moment.minute + moment.second + moment.microsecond / 1e6
    return float(moment.toordinal() - EPOCH.toordinal() + seconds / 86400)


def _parse_date_text(text: str, form: str | None) -> float:
    wanted = None if form is None else date_pattern(form)
    found = None if wanted is None else wanted.fullmatch(text)
    found = _YEAR_FIRST.fullmatch(text) if found is None else found
    if found is None:
        return math.nan
    part = {letter: int(digits or 0) for letter, digits in found.groupdict().items()}
    year = part["Y"] if "Y" in part else part["y"] + (2000 if part["y"] < 69 else 1900)  # as POSIX
    hour, minute, second = (part.get(letter, 0) for letter in "HMS")
    day = dt.date(year, part["m"], part["d"])
    return _moment_days(dt.datetime.combine(day, dt.time(hour, minute, second)))


def days_since_epoch(moments: NDArray[np.datetime64]) -> NDArray[np.float64]:
    """Moments as days since 1970, with the time of day as a fraction; NaN for those that are missing."""
    whole = moments.astype("M8[D]")
    days = whole.astype(np.int64) + (moments - whole) / _DAY
    return np.where(np.isnat(moments), np.nan, days)


def years_of_days(days: NDArray[np.float64]) -> NDArray[np.float64]:
    """Days since 1970 as calendar years: 2020.5 is the middle of 2020. NaN where the days are."""
    # No calendar is needed beyond the years that a date can have, and NumPy's would overflow.
    inside = np.clip(np.nan_to_num(days), -719162.0, 2932897.0)
    year = np.floor(inside).astype("M8[D]").astype("M8[Y]")
    start, end = (each.astype("M8[D]").astype(np.int64) for each in (year, year + _YEAR))
    years = 1970 + year.astype(np.int64) + (inside - start) / (end - start)
    return np.where(np.isnan(days), np.nan, years)


def days_of_years(years: NDArray[np.float64]) -> NDArray[np.float64]:
    """The inverse of `years_of_days`."""
    whole = np.floor(years)
    year = (whole.astype(np.int64) - 1970).astype("M8[Y]")
    start, end = (each.astype("M8[D]").astype(np.int64) for each in (year, year + _YEAR))
    return np.asarray(start + (years - whole) * (end - start))


def read_dates(cells: Cells, form: str | None) -> NDArray[np.float64]:
    """Every cell as days since 1970; NaN where missing."""
    values = cells.values
    if isinstance(values, Texts):
        days = values.each(lambda cell: parse_date(cell, form))
    elif values.dtype.kind == "M":
        days = days_since_epoch(np.asarray(values, values.dtype))
    else:
        days = np.fromiter((parse_date(cell, form) for cell in values), np.float64, len(values))
    return days if cells.present is None else np.where(cells.present, days, np.nan)


def is_missing(cell: object) -> bool:
    """Whether a cell says that there is no value: nothing, NaN, or one of the usual words for it."""
    try:
        if isinstance(cell, str):
            return normalised_text(cell) in MISSING_TEXTS
        return cell is None or bool(cell != cell)  # noqa: PLR0124 NaN differs from itself
    except Exception:  # noqa: BLE001 as pandas.NA does, which is neither equal nor different
        return True


def label_text(cell: object) -> str | None:
    """The text of a label: "3" for 3, 3.0 and "3". None for anything but text, numbers and Booleans.

    Bytes are read as UTF-8; invalid ones become replacement characters.
    """
    if isinstance(cell, str):
        return str.__str__(cell)
    if isinstance(cell, bytes):
        return bytes.decode(cell, "utf-8", "replace")
    try:
        return _number_text(cell)
    except Exception:  # noqa: BLE001 objects may raise anything, and no error may show a cell
        return None


def _number_text(cell: object) -> str | None:
    if isinstance(cell, bool | np.bool_):
        return "True" if cell else "False"
    if isinstance(cell, int | np.integer):
        return _integer_text(int(cell))
    if isinstance(cell, float | np.floating):
        number = float(cell)
        if number.is_integer():
            known = abs(number) < _EXACT_IN_ANY_FLOAT or not is_inexact(np.asarray(cell))
            return _integer_text(int(number)) if known else number.hex()
        return None if math.isnan(number) else repr(number)
    return None


def is_inexact(floats: NDArray[np.floating]) -> NDArray[np.bool_]:
    """Which floats may stand for several whole numbers: those from 2^53, in single precision from 2^24.

    Libraries that convert integers to floats, as pandas does if one is missing, round such numbers. So
    they are not read as labels or identifiers.
    """
    bits = min(np.finfo(floats.dtype).nmant, 52) + 1
    with np.errstate(all="ignore"):  # no warning may show a cell
        found: NDArray[np.bool_] = ~(np.abs(floats) < 2.0**bits)
    return found


def normalised_text(text: str) -> str:
    """Text without the spaces around it, and without decimal zeros after a whole number."""
    short = text.strip()
    whole = _INTEGER_AS_DECIMAL.fullmatch(short)
    if whole is None or len(whole[1]) > 17 or abs(int(whole[1])) >= 2**53:  # as `is_inexact`
        return short
    return whole[1]


def _integer_text(value: int) -> str:
    # Python refuses to write very long integers in decimals.
    return str(value) if value.bit_length() < 2000 else hex(value)


def read_numbers(
    cells: Cells, shape: tuple[int, ...], spelled: NumberFormat = PLAIN_NUMBERS
) -> NDArray[np.float64]:
    """Every cell as a number, or as an array of ``shape``; NaN where missing."""
    values = cells.values
    with np.errstate(all="ignore"):
        if isinstance(values, Texts):
            numbers = values.numbers(lambda cell: parse_number(cell, spelled), spelled.decimal)
        elif values.dtype.kind != "O":
            numbers = values.astype(np.float64, copy=False)
        elif values.ndim == 1 and shape:
            numbers = _read_arrays(values, shape, spelled)
        else:
            flat = (parse_number(cell, spelled) for cell in values.ravel())
            numbers = np.fromiter(flat, np.float64, values.size).reshape(values.shape)
    if cells.present is None:
        return numbers
    present = cells.present.reshape(
        cells.present.shape + (1,) * (numbers.ndim - cells.present.ndim)
    )
    return np.where(present, numbers, np.nan)


def _read_arrays(
    values: NDArray[np.generic], shape: tuple[int, ...], spelled: NumberFormat
) -> NDArray[np.float64]:
    numbers = np.full((len(values), *shape), np.nan)
    for place, cell in enumerate(values):
        if isinstance(cell, list | tuple | np.ndarray):
            parts = _object_array(cell)
            if parts.shape == shape:
                flat = (parse_number(part, spelled) for part in parts.ravel())
                numbers[place] = np.fromiter(flat, np.float64, parts.size).reshape(shape)
    return numbers


def _object_array(cell: object) -> NDArray[np.generic]:
    if isinstance(cell, np.ma.MaskedArray):
        parts = np.array(cell, dtype=object)
        parts[np.ma.getmaskarray(cell)] = None
        return parts
    try:
        return np.array(cell, dtype=object)
    except Exception:  # noqa: BLE001 objects in a cell may raise anything, and no error may show a cell
        return np.empty(0, dtype=object)


def read_labels(
    cells: Cells, table: Mapping[str, int], folded: Mapping[str, int] = _NO_LABELS
) -> NDArray[np.int32]:
    """The code of every cell's text in ``table``; `UNKNOWN` or `MISSING` for the others.

    Text that is not in the table is looked up in ``folded`` without regard to case (`str.casefold`).
    """
    values = cells.values
    if isinstance(values, Texts):
        codes = values.labels(table, lambda cell: _label_code(cell, table, folded))
    elif values.dtype.kind == "O":
        found = (_label_code(cell, table, folded) for cell in values)
        codes = np.fromiter(found, np.int32, len(values))
    elif values.dtype.kind == "b":
        yes, no = (_label_code(each, table, folded) for each in (True, False))
        codes = np.where(values, np.int32(yes), np.int32(no))
    else:
        codes = _number_codes(values, {**folded, **table})  # the text of a number has no case
    if cells.present is not None:
        codes[~cells.present] = MISSING
    return codes


def _label_code(cell: object, table: Mapping[str, int], folded: Mapping[str, int]) -> int:
    if isinstance(cell, LabelledNumber):
        named, coded = (_label_code(each, table, folded) for each in (cell.label, float(cell)))
        return coded if named < 0 <= coded else named
    text = label_text(cell)
    if text is None:
        return MISSING
    code = table.get(text)
    if code is None:
        short = normalised_text(text)
        code = table.get(short)
        if code is None and folded:
            code = folded.get(text.casefold(), folded.get(short.casefold()))
        if code is None:
            code = MISSING if short in MISSING_TEXTS else UNKNOWN
    return code


def _number_codes(values: NDArray[np.generic], table: Mapping[str, int]) -> NDArray[np.int32]:
    """The same as `_label_code` of every number, without a loop over rows."""
    wide_types: dict[str, _WideType] = {"i": np.int64, "u": np.uint64, "f": np.float64}
    wide = wide_types[values.dtype.kind]
    with np.errstate(all="ignore"):
        numbers = values.astype(wide, copy=False)
    codes = np.full(len(numbers), UNKNOWN, dtype=np.int32)
    if values.dtype.kind == "f":
        codes[np.isnan(numbers)] = MISSING
    known = _numeric_levels(table, wide)
    if known:
        levels = np.array(sorted(known), dtype=wide)
        place = np.minimum(np.searchsorted(levels, numbers), len(levels) - 1)
        hits = levels[place] == numbers
        if values.dtype.kind == "f":
            floats: NDArray[np.floating] = np.asarray(values, values.dtype)
            hits &= ~is_inexact(floats) | np.isinf(numbers)
        codes[hits] = np.array([known[level] for level in sorted(known)], np.int32)[place[hits]]
    return codes


def _numeric_levels(table: Mapping[str, int], wide: _WideType) -> dict[float, int]:
    """The codes of those labels that are the text of a number of this type."""
    if wide is np.float64:
        spelled = {text: _parse_text(text) for text in table}
        return {
            spelled[text]: code for text, code in table.items() if label_text(spelled[text]) == text
        }
    limits = np.iinfo(np.int64 if wide is np.int64 else np.uint64)
    whole = {int(text): code for text, code in table.items() if _LONG_INTEGER_TEXT.fullmatch(text)}
    return {n: code for n, code in whole.items() if limits.min <= n <= limits.max}

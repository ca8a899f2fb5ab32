"""Kinds of columns: what is public about a column, and how its cells are encoded.

Bounds and levels are declared by a person before looking at the data. They must not be read from it: the largest age
in a table is somebody's age. A value outside the bounds is moved to the nearest bound, whatever the other values are.
How cells are written (a decimal comma, the words for yes and no, the format of dates) is declared as well.
"""

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tacit import _validate
from tacit.data.cells import (
    EPOCH,
    INTEGER_TEXT,
    MISSING,
    UNKNOWN,
    Cells,
    NumberFormat,
    date_pattern,
    days_of_years,
    label_text,
    parse_date,
    read_dates,
    read_labels,
    read_numbers,
    years_of_days,
)
from tacit.errors import InvalidArgument

DROP = "drop"
"""The rule that leaves out rows with a missing value."""
KEEP = "keep"
"""The rule that leaves a missing value to the model, as NaN."""


class Column(NamedTuple):
    """An encoded column."""

    values: NDArray[np.generic]
    present: NDArray[np.bool_] | None
    """Which rows have a value; None if all do. The other rows are left out."""


MISSING_INTEGER = int(np.iinfo(np.int32).min)
"""What stands for a missing value in a column of integers whose rows are all kept."""


def mark_missing(column: Column) -> NDArray[np.generic]:
    """The values of a column; NaN, or `MISSING_INTEGER`, where there is none."""
    if column.present is None:
        return column.values
    if column.values.dtype == np.float32:
        return np.where(column.present, column.values, np.float32(np.nan))
    return np.where(column.present, column.values, np.int32(MISSING_INTEGER))


class Encoded(NamedTuple):
    """Encoded rows, which are private, in the form that `Rows.from_encoded` takes."""

    columns: dict[str, NDArray[np.generic]]
    person: NDArray[np.bytes_] | None
    most_rows: int | None
    left_out: NDArray[np.bytes_] | int = 0
    """The number of rows that were left out for a missing value; if people are units, their codes."""


def _check_bound(name: str, value: object) -> float:
    return _validate.finite(name, value) + 0.0  # no negative zero


def _check_centre(name: str, value: object) -> float | None:
    return None if value is None else _validate.finite(name, value)


def _check_spread(name: str, value: object) -> float | None:
    return None if value is None else _validate.positive(name, value)


def _check_shape(_name: str, value: object) -> tuple[int, ...]:
    if not isinstance(value, tuple | list):
        raise InvalidArgument(f"shape must be a tuple such as (16,); got {value!r}.")
    return tuple(_validate.count("shape", size) for size in value)


def _check_missing(name: str, value: object) -> float | str:
    if isinstance(value, str):
        if value in (DROP, KEEP):
            return value
        raise InvalidArgument(
            f"missing must be 'drop' or a number from low to high; got {value!r}."
        )
    return _validate.finite(name, value) + 0.0


def _check_measured_in(_name: str, value: object) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise InvalidArgument(
            f"measured_in must be a word or two such as 'years', or None; got {value!r}."
        )
    return value


def _check_decimal(_name: str, value: object) -> str:
    if value not in (".", ","):
        raise InvalidArgument(f"decimal must be '.' or ','; got {value!r}.")
    return str(value)


@dataclass(frozen=True)
class Number:
    """A real number between public bounds, encoded as float32.

    Booleans count as 0 and 1, also as text. Text that spells a number is read as that number, also
    if the unit in ``measured_in`` follows it, as in "142 mmHg". Any other cell that is not a Python or
    NumPy number is missing.

    Args:
        low: The lower bound. Smaller values, including infinities, are moved to it.
        high: The upper bound. Larger values are moved to it.
        scaled: Whether to map [low, high] to [-1, 1].
        centre: A public number that is subtracted from values; used together with ``spread``.
        spread: A public number that values are then divided by.
        shape: The shape of the array in each row, if a row holds an array of numbers.
        missing: ``"drop"`` to leave out rows with a missing value, or a public number to replace it
            with, in the column's own unit. In a column of arrays each missing entry is replaced. Or
            ``"keep"``: the row stays, and the model finds NaN there. Formulas cannot use such a column.
        measured_in: The unit of measurement. Reports name it, and cells may end in it.
        decimal: The decimal mark of numbers that are text, ``"."`` or ``","``. With a comma, text with a
            point is missing, because the point may separate thousands.

    Examples:
        >>> Number(18, 100, measured_in="years").describe()
        '18 to 100 years'
        >>> Number(0, 1, scaled=True, shape=(16,)).describe()
        '0 to 1, scaled to [-1, 1], in arrays of 16'
        >>> Number(18, 100, centre=48, spread=15).describe()
        '18 to 100, less 48 and divided by 15'
    """

    low: float
    high: float
    _: KW_ONLY
    scaled: bool = False
    centre: float | None = None
    spread: float | None = None
    shape: tuple[int, ...] = ()
    missing: float | str = DROP
    measured_in: str | None = None
    decimal: str = "."

    kind: ClassVar[str] = "number"
    labels: ClassVar[tuple[str, ...]] = ()
    dtype: ClassVar[np.dtype[np.generic]] = np.dtype(np.float32)

    def __post_init__(self) -> None:
        _validate.convert_fields(
            self,
            low=_check_bound,
            high=_check_bound,
            centre=_check_centre,
            spread=_check_spread,
            shape=_check_shape,
            missing=_check_missing,
            measured_in=_check_measured_in,
            decimal=_check_decimal,
        )
        _check_bounds(self.low, self.high, self.missing)
        if not isinstance(self.scaled, bool):
            raise InvalidArgument(f"scaled must be True or False; got {self.scaled!r}.")
        if self._narrow[0] >= self._narrow[1]:
            raise InvalidArgument(
                f"low and high must be within ±3.4e38 and differ as float32 numbers do, by about "
                f"one part in ten million; got {self.low} and {self.high}; shift or rescale the "
                "column."
            )
        if (self.centre is None) != (self.spread is None) or (self.scaled and self.spread):
            raise InvalidArgument(
                "Pass both centre and spread, or scaled, or neither of them; not all of them."
            )
        if not np.abs(self.ends).max() < np.finfo(np.float32).max:
            raise InvalidArgument(f"spread is too small for these bounds; got {self.spread!r}.")

    @property
    def has_gaps(self) -> bool:
        """Whether encoded values may be NaN, because missing values are left to the model."""
        return self.missing == KEEP

    @property
    def scale(self) -> tuple[float, float] | None:
        """The number that is subtracted from values and the number they are divided by, or None."""
        if self.centre is not None and self.spread is not None:
            return self.centre, self.spread
        if self.scaled:
            return self.low + (self.high - self.low) / 2, (self.high - self.low) / 2
        return None

    @property
    def ends(self) -> tuple[float, float]:
        """The lowest and the highest encoded value."""
        if self.centre is not None and self.spread is not None:
            return (self.low - self.centre) / self.spread, (self.high - self.centre) / self.spread
        return (-1.0, 1.0) if self.scaled else (self.low, self.high)

    @property
    def _narrow(self) -> tuple[np.float32, np.float32]:
        """The float32 numbers nearest to the bounds that do not lie outside them."""
        with np.errstate(over="ignore"):
            low, high = np.float32(self.low), np.float32(self.high)
        if not (np.isfinite(low) and np.isfinite(high)):
            return high, high
        low = low if float(low) >= self.low else np.nextafter(low, np.float32(np.inf))
        high = high if float(high) <= self.high else np.nextafter(high, np.float32(-np.inf))
        return low, high

    def read(self, cells: Cells) -> NDArray[np.float64]:
        """The numbers in cells, not yet moved to the bounds; NaN where there is none."""
        return read_numbers(cells, self.shape, NumberFormat(self.decimal, self.measured_in))

    def encode(self, cells: Cells) -> Column:
        """Encodes cells, each row by itself."""
        numbers, present = _fill_missing_numbers(self.read(cells), self.missing, self.low)
        return Column(self.place(numbers), present)

    def place(self, numbers: NDArray[np.float64]) -> NDArray[np.float32]:
        """Numbers as they are encoded."""
        inside = np.clip(numbers, self.low, self.high)
        if self.scaled:
            return ((inside - self.low) / (self.high - self.low) * 2 - 1).astype(np.float32)
        if self.centre is not None and self.spread is not None:
            return ((inside - self.centre) / self.spread).astype(np.float32)
        return np.clip(inside.astype(np.float32), *self._narrow)

    def dummy_values(self, count: int, generator: np.random.Generator) -> NDArray[np.float32]:
        """Encoded values drawn uniformly between the bounds, one in ten at a bound."""
        size = (count, *self.shape)
        numbers = generator.uniform(self.low, self.high, size)
        extremes = generator.choice([self.low, self.high], size)
        return self.place(np.where(generator.uniform(size=size) < 0.1, extremes, numbers))

    def describe(self) -> str:
        """The bounds in words."""
        scaled = ", scaled to [-1, 1]" if self.scaled else ""
        if self.centre is not None:
            scaled = f", less {self.centre:.6g} and divided by {self.spread:.6g}"
        arrays = f", in arrays of {' x '.join(map(str, self.shape))}" if self.shape else ""
        measure = "" if self.measured_in is None else f" {self.measured_in}"
        return f"{self.low:.12g} to {self.high:.12g}{measure}{scaled}{arrays}"


def _check_integer(name: str, value: object) -> int:
    number, limits = _validate.finite(name, value), np.iinfo(np.int32)
    if number % 1 or number < limits.min or number > limits.max:
        raise InvalidArgument(
            f"low and high of a count must be whole numbers within ±2147483647; got {value!r} for "
            f"{name}; use a Number for other ranges."
        )
    return int(number)


def _check_integer_missing(name: str, value: object) -> int | str:
    found = _check_missing(name, value)
    if found == KEEP:  # there is no NaN among whole numbers
        raise InvalidArgument("missing='keep' needs a Number; declare the count as a Number.")
    if isinstance(found, str):
        return found
    if found % 1:
        raise InvalidArgument(f"missing must be a whole number in a count; got {value!r}.")
    return int(found)


@dataclass(frozen=True)
class Count:
    """A whole number between public bounds, encoded as int32.

    Numbers are rounded to the nearest whole number (ties to even) and moved to the nearest bound.
    Cells are read as for `Number`.

    Args:
        high: The upper bound.
        low: The lower bound.
        missing: ``"drop"`` to leave out rows with a missing value, or a public count to replace it
            with.
        measured_in: The unit of measurement. Reports name it, and cells may end in it.
        decimal: The decimal mark of numbers that are text, as for `Number`.

    Examples:
        >>> Count(30).describe()
        'whole, 0 to 30'
    """

    high: int
    _: KW_ONLY
    low: int = 0
    missing: int | str = DROP
    measured_in: str | None = None
    decimal: str = "."

    kind: ClassVar[str] = "count"
    shape: ClassVar[tuple[int, ...]] = ()
    labels: ClassVar[tuple[str, ...]] = ()
    dtype: ClassVar[np.dtype[np.generic]] = np.dtype(np.int32)

    def __post_init__(self) -> None:
        _validate.convert_fields(
            self,
            high=_check_integer,
            low=_check_integer,
            missing=_check_integer_missing,
            measured_in=_check_measured_in,
            decimal=_check_decimal,
        )
        _check_bounds(self.low, self.high, self.missing)

    @property
    def ends(self) -> tuple[float, float]:
        """The lowest and the highest encoded value."""
        return float(self.low), float(self.high)

    def read(self, cells: Cells) -> NDArray[np.float64]:
        """The numbers in cells, not yet rounded and moved to the bounds; NaN where there is none."""
        return read_numbers(cells, (), NumberFormat(self.decimal, self.measured_in))

    def encode(self, cells: Cells) -> Column:
        """Encodes cells, each row by itself."""
        numbers, present = _fill_missing_numbers(self.read(cells), self.missing, self.low)
        return Column(np.clip(np.rint(numbers), self.low, self.high).astype(np.int32), present)

    def dummy_values(self, count: int, generator: np.random.Generator) -> NDArray[np.int32]:
        """Encoded values drawn uniformly between the bounds, one in ten at a bound."""
        counts = generator.integers(self.low, self.high, count, np.int32, endpoint=True)
        extremes = generator.choice(np.array([self.low, self.high], np.int32), count)
        return np.where(generator.uniform(size=count) < 0.1, extremes, counts)

    def describe(self) -> str:
        """The bounds in words."""
        measure = "" if self.measured_in is None else f" {self.measured_in}"
        return f"whole, {self.low} to {self.high}{measure}"


def _fill_missing_numbers(
    numbers: NDArray[np.float64], missing: float | str, placeholder: float
) -> tuple[NDArray[np.float64], NDArray[np.bool_] | None]:
    """Applies the rule for missing values. Rows that are left out hold the placeholder."""
    gaps = np.isnan(numbers)
    if missing == KEEP or not gaps.any():
        return numbers, None
    if not isinstance(missing, str):
        return np.where(gaps, missing, numbers), None
    present = np.asarray(~gaps.reshape(len(gaps), -1).any(axis=1))
    return np.where(gaps, placeholder, numbers), present


def _check_bounds(low: float, high: float, missing: float | str) -> None:
    if low >= high:
        raise InvalidArgument(f"low must be below high; got {low!r} and {high!r}.")
    if not isinstance(missing, str) and not low <= missing <= high:
        raise InvalidArgument(
            f"missing must be 'drop' or a number from low to high; got {missing!r}."
        )


def _check_date(name: str, value: object) -> dt.date:
    days = parse_date(value) if isinstance(value, str | dt.date) else np.nan
    if not days % 1 == 0:  # NaN or a time of day
        raise InvalidArgument(f"{name} must be a date such as '2020-03-17'; got {value!r}.")
    return EPOCH + dt.timedelta(days=days)


def _check_date_format(value: str | None) -> str | None:
    if value is None or (isinstance(value, str) and date_pattern(value) is not None):
        return value
    raise InvalidArgument(
        "format must be written in the letters %d, %m, %Y (or %y), %H, %M and %S, with day, month and year, as "
        f"in '%d.%m.%Y'; got {value!r}."
    )


@dataclass(frozen=True, repr=False, init=False)
class Date:
    """A date between public bounds, encoded as a number (float32): a formula uses it as one.

    The number is days since 1970, or calendar years: 2020.5 is the middle of 2020. Differences of two
    dates are durations. Cells may be dates of any library, or text with the year first, such as
    2020-03-17 or "2020-03-17 12:30"; the time is a part of the day. Other ways to write a date need
    ``format``, so that nobody has to guess which of two numbers is the month. Every other cell is
    missing.

    Args:
        low: The first possible date, such as ``"2015-01-01"``. Earlier dates are moved to it. It is kept as a
            number.
        high: The last possible date. Later dates are moved to it.
        measured_in: ``"days"`` or ``"years"``: what a coefficient is about.
        format: How dates are written in text, as in ``"%d.%m.%Y"`` for 17.03.2020 (the letters of
            ``strptime``). With it, numbers such as 20200317 can be dates, too.
        missing: ``"drop"`` to leave out rows with a missing value, or a date to replace it with.

    Examples:
        >>> Date("2015-01-01", "2024-12-31", measured_in="years").describe()
        '2015-01-01 to 2024-12-31, in years'
    """

    low: float
    high: float
    _: KW_ONLY
    measured_in: str = "days"
    format: str | None = None
    missing: str = DROP

    kind: ClassVar[str] = "date"
    shape: ClassVar[tuple[int, ...]] = ()
    labels: ClassVar[tuple[str, ...]] = ()
    dtype: ClassVar[np.dtype[np.generic]] = np.dtype(np.float32)

    def __init__(
        self,
        low: str | dt.date | float,
        high: str | dt.date | float,
        *,
        measured_in: str = "days",
        format: str | None = None,  # noqa: A002 the word that pandas and R use
        missing: str | dt.date = DROP,
    ) -> None:
        _validate.choice("measured_in", measured_in, ("days", "years"))
        _validate.set_fields(self, measured_in=measured_in, format=_check_date_format(format))
        first, last = self._end("low", low), self._end("high", high)
        fill = None if missing == DROP else _check_date("missing", missing)
        if not first < last or not (fill is None or first <= fill <= last):
            raise InvalidArgument(
                f"low must be before high, and missing 'drop' or a date from low to high; got {first}, {last} "
                f"and {missing}."
            )
        ends = self.to_numbers(np.array([first, last], "M8[D]").astype(np.float64))
        kept = DROP if fill is None else fill.isoformat()
        _validate.set_fields(self, low=float(ends[0]), high=float(ends[1]), missing=kept)

    def _end(self, name: str, value: str | dt.date | float) -> dt.date:
        if isinstance(value, float) and np.isfinite(
            value
        ):  # as it is kept: `dataclasses.replace` passes it
            found: dt.date = self.to_moments(np.array(value)).astype("M8[D]").item()
            return found
        return _check_date(name, value)

    @cached_property
    def dates(self) -> tuple[dt.date, dt.date]:
        """The first and the last possible date."""
        return self._end("low", self.low), self._end("high", self.high)

    @property
    def ends(self) -> tuple[float, float]:
        """The lowest and the highest encoded value."""
        return self.low, self.high

    @property
    def _number(self) -> Number:
        return Number(self.low, self.high)

    def to_numbers(self, days: NDArray[np.float64]) -> NDArray[np.float64]:
        """Days since 1970 in the column's own unit."""
        return days if self.measured_in == "days" else years_of_days(days)

    def to_moments(self, numbers: NDArray[np.float64]) -> NDArray[np.datetime64]:
        """The dates and times of numbers in the column's own unit."""
        days = numbers if self.measured_in == "days" else days_of_years(numbers)
        return np.rint(days * 86400).astype("M8[s]")

    def read(self, cells: Cells) -> NDArray[np.float64]:
        """The dates in cells as numbers, not yet moved to the bounds; NaN where there is none."""
        return self.to_numbers(read_dates(cells, self.format))

    def encode(self, cells: Cells) -> Column:
        """Encodes cells, each row by itself."""
        days = np.array([parse_date(self.missing)])
        missing = DROP if self.missing == DROP else float(self.to_numbers(days)[0])
        numbers, present = _fill_missing_numbers(self.read(cells), missing, self.low)
        return Column(self._number.place(numbers), present)

    def dummy_values(self, count: int, generator: np.random.Generator) -> NDArray[np.float32]:
        """Encoded values drawn uniformly between the bounds, one in ten at a bound."""
        return self._number.dummy_values(count, generator)

    def describe(self) -> str:
        """The bounds in words."""
        return f"{self.dates[0]} to {self.dates[1]}, in {self.measured_in}"

    def __repr__(self) -> str:
        more = f"measured_in={self.measured_in!r}, format={self.format!r}, missing={self.missing!r}"
        return f"Date('{self.dates[0]}', '{self.dates[1]}', {more})"


Label = str | int
_BINARY_WORDS = {"1": 1, "yes": 1, "y": 1, "true": 1, "0": 0, "no": 0, "n": 0, "false": 0}
_BINARY_CODES = {**_BINARY_WORDS, "True": 1, "False": 0}  # the usual ones need no second look
Aliases = Mapping[Label, Label] | Iterable[tuple[Label, Label]]


def _check_aliases(_name: str, value: object) -> tuple[tuple[Label, Label], ...]:
    """Pairs of a spelling and its level, in the order of their text."""
    pairs: Any = value.items() if isinstance(value, Mapping) else value
    try:
        found = [(spelling, level) for spelling, level in pairs]
    except (TypeError, ValueError):
        raise InvalidArgument(
            f"aliases must map spellings to levels, as in {{'med': 'medical'}}; got {value!r}."
        ) from None
    return tuple(sorted(found, key=lambda pair: str(pair[0])))


def _check_ignore_case(_name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise InvalidArgument(f"ignore_case must be True or False; got {value!r}.")
    return value


def _spellings(
    levels: Mapping[str, int], aliases: Aliases, *, ignore_case: bool
) -> tuple[dict[str, int], dict[str, int]]:
    """The code of each spelling, and if case is ignored that of each spelling without its case."""
    codes = dict(levels)
    for spelling, level in _check_aliases("aliases", aliases):
        name = label_text(level)
        if name is None or name not in levels:
            raise InvalidArgument(
                f"aliases must map spellings to levels that are declared; got {level!r}, which is none."
            )
        (text,) = _label_texts([spelling])
        if text in codes:
            raise InvalidArgument(
                f"aliases must be new spellings; {spelling!r} is a level or repeated."
            )
        codes[text] = levels[name]
    if not ignore_case:
        return codes, {}
    folded: dict[str, int] = {}
    for text, code in codes.items():
        if folded.setdefault(text.casefold(), code) != code:
            raise InvalidArgument(
                f"With ignore_case, levels must differ in more than case; {text!r} does not."
            )
    return codes, folded


def _check_binary_missing(_name: str, value: object) -> int | str:
    if isinstance(value, bool) or value not in (DROP, 0, 1):
        raise InvalidArgument(f"missing must be 'drop', 0 or 1 in a binary; got {value!r}.")
    return DROP if value == DROP else int(value == 1)


def _check_levels(_name: str, value: object) -> tuple[Label, ...]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise InvalidArgument(f"levels must be a list of text or integers; got {value!r}.")
    found = tuple(value)
    if not found:
        raise InvalidArgument("levels must have one level or more; got none.")
    return found


@dataclass(frozen=True, kw_only=True)
class Binary:
    """One of two values, encoded as int32: 1 for yes and 0 for no.

    Without labels, Booleans and 0 and 1 are accepted, also as text, and the words yes, no, y, n, true
    and false in upper or lower case. With labels, only the two labels and their aliases are. Every
    other cell is missing.

    Args:
        yes: The label that becomes 1.
        no: The label that becomes 0.
        aliases: Other spellings of the two labels, each with its label, as in ``{"dec.": "dead"}``.
        ignore_case: Whether labels may be written in upper or lower case.
        missing: ``"drop"`` to leave out rows with a missing value, or 0 or 1 to replace it with.

    Examples:
        >>> Binary(yes="treated", no="control").describe()
        'treated (1) or control (0)'
    """

    yes: Label | None = None
    no: Label | None = None
    aliases: Aliases = ()
    ignore_case: bool = False
    missing: int | str = DROP

    kind: ClassVar[str] = "binary"
    shape: ClassVar[tuple[int, ...]] = ()
    low: ClassVar[float] = 0.0
    high: ClassVar[float] = 1.0
    measured_in: ClassVar[None] = None
    dtype: ClassVar[np.dtype[np.generic]] = np.dtype(np.int32)

    def __post_init__(self) -> None:
        _validate.convert_fields(
            self,
            aliases=_check_aliases,
            ignore_case=_check_ignore_case,
            missing=_check_binary_missing,
        )
        if (self.yes is None) != (self.no is None):
            raise InvalidArgument("Pass both yes and no, the labels in the data, or neither.")
        if self.yes is None and (self.aliases or self.ignore_case):
            raise InvalidArgument("aliases and ignore_case need the labels: pass yes and no.")
        self._codes  # noqa: B018 raises if labels or aliases are wrong

    @cached_property
    def _codes(self) -> tuple[Mapping[str, int], Mapping[str, int]]:
        if self.yes is None:
            return _BINARY_CODES, _BINARY_WORDS
        levels = {text: code for code, text in enumerate(_label_texts([self.no, self.yes]))}
        return _spellings(levels, self.aliases, ignore_case=self.ignore_case)

    @property
    def labels(self) -> tuple[str, str]:
        """The label of 0 and the label of 1, as text."""
        return ("0", "1") if self.yes is None else (str(self.no), str(self.yes))

    @property
    def ends(self) -> tuple[float, float]:
        """The lowest and the highest code."""
        return self.low, self.high

    def encode(self, cells: Cells) -> Column:
        """Encodes cells, each row by itself."""
        fill = None if isinstance(self.missing, str) else self.missing
        return _fill_missing_labels(self.read(cells), fill, fill)

    def read(self, cells: Cells) -> NDArray[np.int32]:
        """The codes of cells; `UNKNOWN` for other labels and `MISSING` for missing values."""
        return read_labels(cells, *self._codes)

    def dummy_values(self, count: int, generator: np.random.Generator) -> NDArray[np.int32]:
        """0 or 1 with equal probability."""
        return generator.integers(0, 2, count, np.int32)

    def describe(self) -> str:
        """The two values in words."""
        return "0 or 1" if self.yes is None else f"{self.yes} (1) or {self.no} (0)"


@dataclass(frozen=True)
class Category:
    """One of a list of public levels, encoded as its position in the list (int32).

    Levels are compared as text: 3, 3.0, "3" and "3.0" are the same level, but "03" is another.
    Spaces around text are ignored unless a level is declared with them. A Boolean is "True" or
    "False", never 1. A cell that is not text, a number or a Boolean is missing, and so is text such
    as "" or "NA" (see `tacit.data.cells`) unless it is a level.

    Args:
        levels: The levels, text or integers.
        other: A name for all values that are not in ``levels``. They get the code after the last
            level. Without it they are missing.
        aliases: Other spellings, each with its level, as in ``{"med": "medical"}``.
        ignore_case: Whether levels may be written in upper or lower case.
        missing: ``"drop"`` to leave out rows with a missing value, or the level (or ``other``) to
            replace it with.

    Examples:
        >>> Category(["A", "B", "C"], other="other").describe()
        '3 levels and other'
    """

    levels: Sequence[Label]
    _: KW_ONLY
    other: Label | None = None
    aliases: Aliases = ()
    ignore_case: bool = False
    missing: Label = DROP

    kind: ClassVar[str] = "category"
    shape: ClassVar[tuple[int, ...]] = ()
    low: ClassVar[float] = 0.0
    measured_in: ClassVar[None] = None
    dtype: ClassVar[np.dtype[np.generic]] = np.dtype(np.int32)

    def __post_init__(self) -> None:
        _validate.convert_fields(
            self, levels=_check_levels, aliases=_check_aliases, ignore_case=_check_ignore_case
        )
        self._spelled  # noqa: B018 raises if levels or aliases are wrong
        if label_text(self.missing) not in [DROP, *self._codes]:
            raise InvalidArgument(
                f"missing must be 'drop', a level or the name in other; got {self.missing!r}."
            )

    @cached_property
    def _codes(self) -> dict[str, int]:
        named = [*self.levels, *([] if self.other is None else [self.other])]
        return {text: code for code, text in enumerate(_label_texts(named))}

    @cached_property
    def _spelled(self) -> tuple[Mapping[str, int], Mapping[str, int]]:
        return _spellings(self._codes, self.aliases, ignore_case=self.ignore_case)

    @property
    def size(self) -> int:
        """The number of codes."""
        return len(self._codes)

    @property
    def labels(self) -> tuple[str, ...]:
        """The levels as text, in the order of their codes, with ``other`` last."""
        return tuple(self._codes)

    @property
    def high(self) -> float:
        """The highest code."""
        return float(self.size - 1)

    @property
    def ends(self) -> tuple[float, float]:
        """The lowest and the highest code."""
        return self.low, self.high

    def encode(self, cells: Cells) -> Column:
        """Encodes cells, each row by itself."""
        missing = None if self.missing == DROP else self._codes[str(label_text(self.missing))]
        unknown = missing if self.other is None else self.size - 1
        return _fill_missing_labels(self.read(cells), unknown, missing)

    def read(self, cells: Cells) -> NDArray[np.int32]:
        """The codes of cells; `UNKNOWN` for other labels and `MISSING` for missing values."""
        return read_labels(cells, *self._spelled)

    def dummy_values(self, count: int, generator: np.random.Generator) -> NDArray[np.int32]:
        """Codes with equal probability."""
        return generator.integers(0, self.size, count, np.int32)

    def describe(self) -> str:
        """How many levels there are."""
        number = self.size - (self.other is not None)
        levels = "1 level" if number == 1 else f"{number} levels"
        return levels if self.other is None else f"{levels} and {self.other}"

    def listed(self) -> str:
        """All levels, in their order.

        Examples:
            >>> Category(["A", "B"], other="other").listed()
            'A, B; anything else is other'
        """
        levels = ", ".join(map(str, self.levels))
        return levels if self.other is None else f"{levels}; anything else is {self.other}"


def _fill_missing_labels(
    codes: NDArray[np.int32], unknown: int | None, missing: int | None
) -> Column:
    """Applies the rules for unknown and missing labels; None leaves the row out."""
    if unknown is not None:
        codes[codes == UNKNOWN] = unknown
    if missing is not None:
        codes[codes == MISSING] = missing
    present = codes >= 0
    return Column(np.where(present, codes, np.int32(0)), present)


def _label_texts(labels: Iterable[object]) -> list[str]:
    texts: list[str] = []
    for label in labels:
        text = label_text(label)
        if text is None or not isinstance(label, str | int) or isinstance(label, bool):
            raise InvalidArgument(
                f"Levels must be text or integers; got {label!r}; in YAML, put quotes around it."
            )
        if isinstance(label, int) and not INTEGER_TEXT.fullmatch(text):
            raise InvalidArgument(f"Integer levels must be below 10^18; declare {text} as text.")
        if text in texts:
            raise InvalidArgument(f"Levels must differ, also as text; got {label!r} twice.")
        texts.append(text)
    return texts


Kind = Number | Count | Binary | Category | Date
KINDS: dict[str, type[Kind]] = {each.kind: each for each in (Number, Count, Binary, Category, Date)}

__all__ = ["KINDS", "Binary", "Category", "Count", "Date", "Kind", "Number"]

"""Columns of numbers: real numbers and counts between public bounds."""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from tacit import _validate
from tacit.data.cells import Cells, read_numbers
from tacit.data.encoded import DROP, Column
from tacit.errors import InvalidArgument


def _low(value: float) -> float:
    return _validate.finite("low", value) + 0.0  # no negative zero


def _high(value: float) -> float:
    return _validate.finite("high", value) + 0.0


def _centre(value: float | None) -> float | None:
    return None if value is None else _validate.finite("centre", value)


def _spread(value: float | None) -> float | None:
    return None if value is None else _validate.positive("spread", value)


def _shape(value: Sequence[int]) -> tuple[int, ...]:
    if not isinstance(value, tuple | list):
        raise InvalidArgument(f"shape must be a tuple such as (16,); got {value!r}.")
    return tuple(_validate.count("shape", size) for size in value)


def _fill(value: float | str) -> float | str:
    if isinstance(value, str):
        if value == DROP:
            return DROP
        raise InvalidArgument(
            f"missing must be 'drop' or a number from low to high; got {value!r}."
        )
    return _validate.finite("missing", value) + 0.0


def _measure(value: str | None) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise InvalidArgument(
            f"measured_in must be a word or two such as 'years', or None; got {value!r}."
        )
    return value


@frozen(slots=False)
class Number:
    """A real number between public bounds, encoded as float32.

    Booleans count as 0 and 1, also as text. Text that spells a number is read as that number. Any
    other cell that is not a Python or NumPy number is missing.

    Args:
        low: The lower bound. Smaller values, including infinities, are moved to it.
        high: The upper bound. Larger values are moved to it.
        scaled: Whether to map [low, high] to [-1, 1].
        centre: A public number that is subtracted from values; used together with ``spread``.
        spread: A public number that values are then divided by.
        shape: The shape of the array in each row, if a row holds an array of numbers.
        missing: ``"drop"`` to leave out rows with a missing value, or a public number to replace it
            with, in the column's own unit. In a column of arrays each missing entry is replaced.
        measured_in: The unit of measurement, for reports.

    Examples:
        >>> Number(18, 100, measured_in="years").describe()
        '18 to 100 years'
        >>> Number(0, 1, scaled=True, shape=(16,)).describe()
        '0 to 1, scaled to [-1, 1], in arrays of 16'
        >>> Number(18, 100, centre=48, spread=15).describe()
        '18 to 100, less 48 and divided by 15'
    """

    low: float = field(converter=_low)
    high: float = field(converter=_high)
    scaled: bool = field(default=False, kw_only=True)
    centre: float | None = field(default=None, converter=_centre, kw_only=True)
    spread: float | None = field(default=None, converter=_spread, kw_only=True)
    shape: tuple[int, ...] = field(default=(), converter=_shape, kw_only=True)
    missing: float | str = field(default=DROP, converter=_fill, kw_only=True)
    measured_in: str | None = field(default=None, converter=_measure, kw_only=True)

    kind: ClassVar[str] = "number"
    dtype: ClassVar[np.dtype[Any]] = np.dtype(np.float32)

    def __attrs_post_init__(self) -> None:
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

    def encode(self, cells: Cells) -> Column:
        """Encodes cells, each row by itself."""
        numbers, present = _without_gaps(read_numbers(cells, self.shape), self.missing, self.low)
        return Column(self._place(numbers), present)

    def _place(self, numbers: NDArray[np.float64]) -> NDArray[np.float32]:
        inside = np.clip(numbers, self.low, self.high)
        if self.scaled:
            return ((inside - self.low) / (self.high - self.low) * 2 - 1).astype(np.float32)
        if self.centre is not None and self.spread is not None:
            return ((inside - self.centre) / self.spread).astype(np.float32)
        return np.clip(inside.astype(np.float32), *self._narrow)

    def made_up(self, count: int, generator: np.random.Generator) -> NDArray[np.float32]:
        """Encoded values drawn uniformly between the bounds, one in ten at a bound."""
        size = (count, *self.shape)
        numbers = generator.uniform(self.low, self.high, size)
        extremes = generator.choice([self.low, self.high], size)
        return self._place(np.where(generator.uniform(size=size) < 0.1, extremes, numbers))

    def describe(self) -> str:
        """The bounds in words."""
        scaled = ", scaled to [-1, 1]" if self.scaled else ""
        if self.centre is not None:
            scaled = f", less {self.centre:.6g} and divided by {self.spread:.6g}"
        arrays = f", in arrays of {' x '.join(map(str, self.shape))}" if self.shape else ""
        measure = "" if self.measured_in is None else f" {self.measured_in}"
        return f"{self.low:.12g} to {self.high:.12g}{measure}{scaled}{arrays}"


def _whole_low(value: int) -> int:
    return _whole("low", value)


def _whole_high(value: int) -> int:
    return _whole("high", value)


def _whole(name: str, value: int) -> int:
    number, limits = _validate.finite(name, value), np.iinfo(np.int32)
    if number % 1 or number < limits.min or number > limits.max:
        raise InvalidArgument(
            f"low and high of a count must be whole numbers within ±2147483647; got {value!r} for "
            f"{name}; use a Number for other ranges."
        )
    return int(number)


def _whole_fill(value: int | str) -> int | str:
    found = _fill(value)
    if isinstance(found, str):
        return found
    if found % 1:
        raise InvalidArgument(f"missing must be a whole number in a count; got {value!r}.")
    return int(found)


@frozen(slots=False)
class Count:
    """A whole number between public bounds, encoded as int32.

    Numbers are rounded to the nearest whole number (ties to even) and moved to the nearest bound.
    Cells are read as for `Number`.

    Args:
        high: The upper bound.
        low: The lower bound.
        missing: ``"drop"`` to leave out rows with a missing value, or a public count to replace it
            with.
        measured_in: The unit of measurement, for reports.

    Examples:
        >>> Count(30).describe()
        'whole, 0 to 30'
    """

    high: int = field(converter=_whole_high)
    low: int = field(default=0, converter=_whole_low, kw_only=True)
    missing: int | str = field(default=DROP, converter=_whole_fill, kw_only=True)
    measured_in: str | None = field(default=None, converter=_measure, kw_only=True)

    kind: ClassVar[str] = "count"
    shape: ClassVar[tuple[int, ...]] = ()
    dtype: ClassVar[np.dtype[Any]] = np.dtype(np.int32)

    def __attrs_post_init__(self) -> None:
        _check_bounds(self.low, self.high, self.missing)

    def encode(self, cells: Cells) -> Column:
        """Encodes cells, each row by itself."""
        numbers, present = _without_gaps(read_numbers(cells, ()), self.missing, self.low)
        return Column(np.clip(np.rint(numbers), self.low, self.high).astype(np.int32), present)

    def made_up(self, count: int, generator: np.random.Generator) -> NDArray[np.int32]:
        """Encoded values drawn uniformly between the bounds, one in ten at a bound."""
        counts = generator.integers(self.low, self.high, count, np.int32, endpoint=True)
        extremes = generator.choice(np.array([self.low, self.high], np.int32), count)
        return np.where(generator.uniform(size=count) < 0.1, extremes, counts)

    def describe(self) -> str:
        """The bounds in words."""
        measure = "" if self.measured_in is None else f" {self.measured_in}"
        return f"whole, {self.low} to {self.high}{measure}"


def _without_gaps(
    numbers: NDArray[np.float64], missing: float | str, placeholder: float
) -> tuple[NDArray[np.float64], NDArray[np.bool_] | None]:
    """Applies the rule for missing values. Rows that are left out hold the placeholder."""
    gaps = np.isnan(numbers)
    if not gaps.any():
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

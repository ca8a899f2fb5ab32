"""Argument checks: return the value in its proper type, or say what to pass."""

import math
from collections.abc import Collection
from typing import Any

from tacit.errors import InvalidArgument


def finite(name: str, value: Any) -> float:
    """A number that is not infinite."""
    number = _number(name, value)
    if math.isinf(number):
        raise InvalidArgument(f"{name} must be a finite number; got {value!r}.")
    return number


def positive(name: str, value: Any) -> float:
    """A finite number above zero."""
    number = _number(name, value)
    if not (0 < number < math.inf):
        raise InvalidArgument(f"{name} must be a positive, finite number; got {value!r}.")
    return number


def non_negative(name: str, value: Any) -> float:
    """A finite number, zero allowed."""
    number = _number(name, value)
    if not (0 <= number < math.inf):
        raise InvalidArgument(f"{name} must be zero or a positive, finite number; got {value!r}.")
    return number


def probability(name: str, value: Any) -> float:
    """A number in [0, 1): the range of a delta."""
    number = _number(name, value)
    if not (0 <= number < 1):
        raise InvalidArgument(f"{name} must be at least 0 and below 1; got {value!r}.")
    return number


def rate(name: str, value: Any) -> float:
    """A number in (0, 1]: the chance that one person is looked at in one step."""
    number = _number(name, value)
    if not (0 < number <= 1):
        raise InvalidArgument(f"{name} must be above 0 and at most 1; got {value!r}.")
    return number


def count(name: str, value: Any, *, least: int = 1, most: int | None = None) -> int:
    """A whole number of at least ``least``, and at most ``most`` if there is such a limit."""
    number = finite(name, value)
    if number != math.floor(number) or number < least:
        raise InvalidArgument(f"{name} must be a whole number of at least {least}; got {value!r}.")
    if most is not None and number > most:
        raise InvalidArgument(f"{name} must be at most {most}; got {value!r}.")
    return int(number)


def choice(name: str, value: Any, options: Collection[str]) -> str:
    """One of a few names."""
    if value not in options:
        raise InvalidArgument(f"{name} must be one of {', '.join(options)}; got {value!r}.")
    return str(value)


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool | str):
        raise InvalidArgument(f"{name} must be a number; got {value!r}.")
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise InvalidArgument(f"{name} must be a number; got {value!r}.") from None
    if math.isnan(number):
        raise InvalidArgument(f"{name} must be a number; got NaN.")
    return number

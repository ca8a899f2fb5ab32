"""Argument checks: return the value in its proper type, or say what to pass."""

import math
from collections.abc import Callable, Collection
from numbers import Integral

from tacit.errors import InvalidArgument


def finite(name: str, value: object) -> float:
    """A finite number."""
    number = real(name, value)
    if math.isinf(number):
        raise InvalidArgument(f"{name} must be a finite number; got {value!r}.")
    return number


def positive(name: str, value: object) -> float:
    """A finite number above zero."""
    number = real(name, value)
    if not (0 < number < math.inf):
        raise InvalidArgument(f"{name} must be a positive, finite number; got {value!r}.")
    return number


def non_negative(name: str, value: object) -> float:
    """A finite number that is not negative."""
    number = real(name, value)
    if not (0 <= number < math.inf):
        raise InvalidArgument(f"{name} must be zero or a positive, finite number; got {value!r}.")
    return number


def probability(name: str, value: object) -> float:
    """A number in [0, 1): the range of a delta."""
    number = real(name, value)
    if not (0 <= number < 1):
        raise InvalidArgument(f"{name} must be at least 0 and below 1; got {value!r}.")
    return number


def rate(name: str, value: object) -> float:
    """A number in (0, 1]: the range of a sampling rate."""
    number = real(name, value)
    if not (0 < number <= 1):
        raise InvalidArgument(f"{name} must be above 0 and at most 1; got {value!r}.")
    return number


def count(name: str, value: object, *, least: int = 1, most: int | None = None) -> int:
    """A whole number of at least ``least``, and at most ``most`` if there is such a limit."""
    number = finite(name, value)
    if number != math.floor(number) or number < least:
        raise InvalidArgument(f"{name} must be a whole number of at least {least}; got {value!r}.")
    if most is not None and number > most:
        raise InvalidArgument(f"{name} must be at most {most}; got {value!r}.")
    return int(number)


def integer(name: str, value: object, *, least: int = 1) -> int:
    """An int of at least ``least``, and not a float that is whole: for what is stored as it comes."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise InvalidArgument(f"{name} must be an integer of at least {least}; got {value!r}.")
    return count(name, value, least=least)


def choice(name: str, value: object, options: Collection[str]) -> str:
    """One of a few names."""
    if value not in options:
        raise InvalidArgument(f"{name} must be one of {', '.join(options)}; got {value!r}.")
    return str(value)


def real(name: str, value: object) -> float:
    """A number, which may be infinite."""
    if isinstance(value, bool | str):
        raise InvalidArgument(f"{name} must be a number; got {value!r}.")
    try:
        number = float(value)  # type: ignore[arg-type]  # what is no number is refused
    except (TypeError, ValueError, OverflowError):
        raise InvalidArgument(f"{name} must be a number; got {value!r}.") from None
    if math.isnan(number):
        raise InvalidArgument(f"{name} must be a number; got NaN.")
    return number


def convert_fields(instance: object, **checks: Callable[[str, object], object]) -> None:
    """Replaces fields of a frozen dataclass by what their checks return: for its ``__post_init__``.

    Args:
        instance: The dataclass.
        **checks: A check for each field, which takes its name and its value.
    """
    set_fields(
        instance, **{name: check(name, getattr(instance, name)) for name, check in checks.items()}
    )


def set_fields(instance: object, **values: object) -> None:
    """Sets fields of a frozen dataclass, while it is created."""
    for name, value in values.items():
        object.__setattr__(instance, name, value)

"""Plain decimals such as -12.5, read for many cells at once and rounded as Python rounds them."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

LONGEST = 24  # characters
_MOST_DIGITS = 19  # of a whole number that fits into 64 bits
_POWERS = np.array([float(10**power) for power in range(_MOST_DIGITS + 1)])  # all exact
_EXACT = np.uint64(2**53)  # up to which floats represent all whole numbers


def decimals(
    characters: NDArray[np.uint8], sizes: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Numbers that are spelled as a sign, digits and a decimal point.

    Args:
        characters: A row of characters for each cell, zeros after its last one.
        sizes: The number of characters of each.

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
        points += column == ord(".")
    first = columns[0] if longest else np.zeros(len(sizes), np.uint8)
    minus = first == ord("-")
    signs = minus | (first == ord("+"))
    plain = (digits > 0) & (digits <= _MOST_DIGITS) & (points <= 1)
    plain &= digits + points + signs == sizes
    powers: NDArray[np.float64] = _POWERS[np.minimum(after, _MOST_DIGITS)]
    values = whole / powers
    wide = plain & (whole > _EXACT)
    if wide.any():
        values[wide], sure = _rounded(whole[wide], powers[wide])
        plain[wide] = sure
    return np.where(minus, -values, values), plain


def _rounded(
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
    a, b = _halves(quotient)
    c, d = _halves(powers)
    error = a * c - product + a * d + b * c + b * d
    correction = (near - product - error + rest) / powers
    value = quotient + correction
    left = np.abs(correction - (value - quotient))
    gap = np.spacing(value)
    sure = np.abs(left / gap - 0.5) > 2.0**-30
    return value, sure & (np.abs(left / gap - 0.25) > 2.0**-30)


def _halves(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Floats as sums of two with half as many bits, whose products are exact (Dekker 1971)."""
    scaled = values * (2.0**27 + 1)
    high = scaled - (scaled - values)
    return high, values - high

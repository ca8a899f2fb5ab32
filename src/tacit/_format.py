"""How numbers that promise something are printed."""

import math


def printed(epsilon: float | None) -> str:
    """An epsilon, rounded up at the fifth digit so that it is never printed too small.

    >>> printed(0.123441), printed(math.inf), printed(None)
    ('0.12345', 'unlimited', 'not available')
    """
    if epsilon is None:
        return "not available"
    if not (0 < epsilon < math.inf):
        return "unlimited" if epsilon else "0"
    digits = 4 - math.floor(math.log10(epsilon))
    return f"{math.ceil(epsilon * 10.0**digits - 1e-9) / 10.0**digits:.6g}"

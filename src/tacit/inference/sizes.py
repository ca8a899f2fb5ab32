"""Settings for a declared number of units: how many a step looks at.

The number is public. It is a guess of the user's, and never read from data.
"""

import math

from tacit import _validate

# Units that settings are for if no number is declared.
USUAL_SIZE = 20_000
# How fast the sampling rate falls with more units: so that 500 steps at a rate of 0.1 for the usual
# number look about five times at each of a million. What sampling then adds to the error is small (benchmarks/settings.py). Beyond a
# million it falls faster: a fit to a hundred million takes less than three times one to 100,000.
_FALLING, _MANY, _FALLING_FASTER = 0.59, 1_000_000, 0.85


def rate_for(rate: float, size: int) -> float:
    """The sampling rate for a number of units.

    Args:
        rate: The rate for the usual number of units, or fewer.
        size: The declared number of units.

    Returns:
        The rate, lower for more units, so that time grows more slowly than the data.

    >>> rate_for(0.1, 500), rate_for(0.1, 1_000_000), rate_for(0.1, 10_000_000)
    (0.1, 0.00995, 0.0014)
    """
    units = max(_validate.count("size", size), USUAL_SIZE)
    slowly = (USUAL_SIZE / min(units, _MANY)) ** _FALLING
    faster = (_MANY / max(units, _MANY)) ** _FALLING_FASTER
    return float(f"{rate * slowly * faster:.3g}")


def room_for(bound: int, rate: float, size: int) -> int:
    """The bound on a batch: the given one, or a larger power of two if batches need it.

    >>> room_for(2**17, 0.1, 1000) == 2**17, room_for(2**17, 0.1, 10**7) == 2**22
    (True, True)
    """
    return max(bound, 1 << math.ceil(math.log2(4 * rate * size)))

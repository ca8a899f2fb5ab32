"""Noise that several sites add up: how far a sum of rounded normals is from a rounded normal.

Each site adds round(a Z) of its own. The sum of n of these is not the rounding of one normal with
deviation a sqrt(n), so that the Gaussian mechanism's theorem does not hold for it as it stands. It
holds up to a chance that this module bounds (federated/PROOFS.md, Lemma F1), and that chance is
charged: it comes out of delta.
"""

import math

from tacit import _validate


def distance(std: float, count: int) -> float:
    """A bound on the total variation between two distributions of whole numbers.

    One is the sum of ``count`` independent round(std Z). The other is round(sqrt(count) std Z + U),
    U a sum of count - 1 uniform numbers on (-1/2, 1/2): normal noise of the sum's deviation, to
    which more was done without looking at data. [noise-shares]

    >>> 0 < distance(1.5, 10) < 1e-5
    True
    """
    return math.exp(_log_distance(std, count))


def _log_distance(std: float, count: int) -> float:
    """The bound's logarithm, which does not underflow."""
    scale, number = _validate.positive("std", std), _validate.count("count", count)
    if number == 1:
        return -math.inf
    exponent = math.pi**2 * scale**2
    nearby = 2 / -math.expm1(-2 * exponent)
    pointwise = number * nearby + (number + 1) * nearby**2
    reach = scale * math.sqrt(2 * number * (exponent + math.log(2))) + number / 2
    # No more than any two distributions differ by.
    return min(0.0, math.log((2 * reach + 3) * pointwise + 1) - exponent)


def extra_delta(std: float, count: int, *, numbers: int, epsilon: float) -> float:
    """What is added to delta where ``numbers`` numbers get noise by ``count`` shares of ``std``.

    A mechanism within t of one that is (epsilon, delta)-private is
    (epsilon, delta + (1 + e^epsilon) t)-private.
    """
    total = math.log(_validate.count("numbers", numbers)) + _log_distance(std, count)
    cost = _validate.non_negative("epsilon", epsilon)
    return math.exp(min(0.0, total + cost + math.log1p(math.exp(-cost))))

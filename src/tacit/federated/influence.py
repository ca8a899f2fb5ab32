"""How far single sites move a posterior, and sentences about it.

All of it follows from what sites released and from public numbers.
"""

import logging
import math
from collections.abc import Mapping

from tacit.models.natural import ExponentialFamily, Vector, divergence

_LOG = logging.getLogger(__name__)
# With more sites than this, they are not compared with each other.
MOST_COMPARED = 30
# A site whose rows move the posterior by more standard deviations than this is named.
_MUCH = 3.0


def influences(
    family: ExponentialFamily, posterior: Vector, factors: Mapping[str, Vector]
) -> dict[str, float]:
    """How far a posterior would move without each factor, as a shift of so many standard deviations.

    It is the square root of twice the Kullback-Leibler divergence, which for a shift of a Gaussian is its
    length. It is infinite if the rest is no distribution.
    """

    def away(rest: Vector) -> float:
        if not family.proper(rest):
            return math.inf
        return math.sqrt(2 * max(divergence(family, rest, posterior), 0.0))

    return {name: away(posterior - factor) for name, factor in factors.items()}


def swayed(found: Mapping[str, float]) -> tuple[str, ...]:
    """A sentence about the site with the most influence, if that is much."""
    name = max(found, key=lambda each: found[each], default="")
    if not name or found[name] < _MUCH:
        return ()
    moves = (
        f"Without {name} the posterior would move by {found[name]:.1f} of its standard deviations"
    )
    return (f"{moves}; compare the sites' data, or leave it out.",)


def tell(number: int, found: Mapping[str, float]) -> None:
    """Logs which site moved the posterior most in a round."""
    if len(found) > 1:
        name = max(found, key=lambda each: found[each])
        _LOG.info(
            "Round %d: %s moved the posterior most, by %.1f standard deviations.",
            number,
            name,
            found[name],
        )

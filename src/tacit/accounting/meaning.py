"""What a guarantee means against an attacker who wants to know whether one person's data were used.

The attacker knows everything else, sees the result, and decides. Of people whose data were not used, a test says yes
for a share, its false positives; of people whose data were used, for another, its true positives. The largest difference
of the two is the attacker's advantage (Kulynych et al. 2024). Under ``replace`` the two cases are one record or another.

Differential privacy bounds both: at every epsilon, true positives are at most delta(epsilon) + exp(epsilon) times false
positives. One pair (epsilon, delta) gives one such bound, and the same with the two cases exchanged. The curve of a run
gives a bound at every epsilon, and the smallest of them is much smaller than that of a pair on the curve.
"""

import math
from typing import NamedTuple

from tacit import _validate
from tacit.accounting.accountants import PLD, Accountant, Curve
from tacit.accounting.budget import Adjacency, Budget
from tacit.accounting.events import DpEvent

# The false positive rates that are reported.
FALSE_POSITIVE_RATES = (0.01, 0.05)
# Beyond this, exp(epsilon) times any false positive rate of interest is above one.
_MAX_EPSILON = 30.0


class Meaning(NamedTuple):
    """What an attacker can do at most.

    Attributes:
        advantage: The largest difference between true and false positive rates.
        true_positive_rates: The largest true positive rate at each of `FALSE_POSITIVE_RATES`.
    """

    advantage: float
    true_positive_rates: tuple[float, ...]

    @property
    def best_guess(self) -> float:
        """The largest probability of a correct guess, if both cases are equally likely."""
        return (1 + self.advantage) / 2


def budget_meaning(budget: Budget) -> Meaning:
    """What an attacker can do against any run within a budget.

    Args:
        budget: The budget.

    Returns:
        The worst case of its epsilon and delta, and of its advantage if it has one.

    Examples:
        >>> round(budget_meaning(Budget(1, 1e-6)).advantage, 3)
        0.462
    """
    most = budget.max_advantage

    def rate(false_positives: float) -> float:
        bound = _bound(budget.epsilon, budget.delta, false_positives)
        return min(bound, false_positives + most)

    return Meaning(most, tuple(rate(each) for each in FALSE_POSITIVE_RATES))


def event_meaning(
    event: DpEvent, adjacency: Adjacency = "add-remove", accountant: Accountant | None = None
) -> Meaning:
    """What an attacker can do against a run, by its whole privacy curve.

    Args:
        event: What the run does to the data.
        adjacency: ``"add-remove"`` or ``"replace"``; see `Budget`.
        accountant: The accountant; by default `PLD`.

    Returns:
        Upper bounds, which are exact for Gaussian noise on all units.

    Raises:
        UnsupportedEvent: If no bound is known for the event.
    """
    chosen = accountant or PLD()
    rates = tuple(
        true_positive_rate(event, each, adjacency, chosen) for each in FALSE_POSITIVE_RATES
    )
    return Meaning(chosen.delta(event, 0.0, adjacency), rates)


def curve_meaning(advantage: float, curve: Curve) -> Meaning:
    """What an attacker can do, by an advantage and some points of a privacy curve: at little cost, and hardly above `event_meaning`."""
    points = [(0.0, advantage), *zip(curve.epsilons, curve.deltas, strict=True)]
    rates = tuple(min(_bound(*each, rate) for each in points) for rate in FALSE_POSITIVE_RATES)
    return Meaning(advantage, rates)


def true_positive_rate(
    event: DpEvent,
    false_positive_rate: float,
    adjacency: Adjacency = "add-remove",
    accountant: Accountant | None = None,
) -> float:
    """The largest true positive rate of any test with a false positive rate.

    Args:
        event: What the run does to the data.
        false_positive_rate: The false positive rate.
        adjacency: ``"add-remove"`` or ``"replace"``; see `Budget`.
        accountant: The accountant; by default `PLD`.

    Returns:
        An upper bound.

    Raises:
        UnsupportedEvent: If no bound is known for the event.
    """
    from scipy.optimize import minimize_scalar  # it takes a while to load

    chosen, level = accountant or PLD(), _validate.probability("rate", false_positive_rate)

    def bound(epsilon: float) -> float:
        return _bound(epsilon, chosen.delta(event, epsilon, adjacency), level)

    # Every epsilon gives a bound, so the search needs no rigour. Along it the bound falls, then rises.
    end = 1.0
    while end < _MAX_EPSILON and chosen.delta(event, end, adjacency) > 0.1 * level:
        end *= 2
    found = minimize_scalar(bound, bounds=(0.0, end), method="bounded", options={"xatol": 0.01})
    return float(min(found.fun, bound(0.0), 1.0))


def _bound(epsilon: float, delta: float, false_positives: float) -> float:
    """The largest true positive rate by one point of a curve, from P <= exp(e) Q + d both ways."""
    grown = math.exp(min(epsilon, 700.0))
    other_way = 1 - (1 - delta - false_positives) / grown
    return max(min(delta + grown * false_positives, other_way, 1.0), 0.0)

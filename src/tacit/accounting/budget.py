"""Privacy budgets, and privacy filters: whether one more run fits into a total that is fixed in advance.

Runs are chosen after seeing earlier results, so a composition theorem for runs that are fixed in advance does
not apply to them. Two rules hold for adaptively chosen runs:

- ``"sum"``: the epsilons and deltas of the runs add up (Rogers et al. 2016).
- ``"renyi"``: divergences of one order, fixed in advance, add up, and the total is converted once
  (Feldman and Zrnic 2021, Theorem 4.3).
"""

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal, NamedTuple, get_args

from tacit import _validate, accounting
from tacit._format import format_number, round_up_epsilon, subtract_decimals
from tacit.accounting.events import DpEvent
from tacit.errors import InvalidArgument

Adjacency = Literal["add-remove", "replace"]
ADJACENCIES: tuple[Adjacency, ...] = get_args(Adjacency)
# What an attacker wants to know.
ADJACENCY_WORLDS: dict[str, str] = {
    "add-remove": "whether yours is in the data",
    "replace": "which of two records is yours",
}


@dataclass(frozen=True)
class Budget:
    """A differential privacy budget: how much a result may depend on any one person.

    A run within ``Budget(epsilon, delta)`` makes no outcome more than ``exp(epsilon)`` times as
    likely because one person's data were used, except for outcomes of total probability ``delta``.

    Budgets are partially ordered. One budget is at most another if both have the same adjacency and
    none of its numbers is larger.

    Args:
        epsilon: The privacy loss. Smaller is more private.
        delta: The probability with which the bound may fail. Zero is pure differential privacy.
        adjacency: Which data sets are neighbours. ``"add-remove"``: one person's data are added or
            removed. ``"replace"``: one person's record is replaced by another; this hides the
            content of a record but not its presence, and costs more for the same noise.
        advantage: The largest advantage of an attacker who wants to know whether a person's data
            were used: the difference between true and false positives of any test. It is kept in
            addition to epsilon and delta, by the whole privacy curve of a run. Without an epsilon,
            epsilon is that of Gaussian noise with this advantage, and delta is 1e-6.

    Raises:
        InvalidArgument: If a value is out of range.

    Examples:
        >>> Budget(1, 1e-6) <= Budget(2, 1e-6)
        True
        >>> Budget(1, 1e-5) <= Budget(2, 1e-6) or Budget(2, 1e-6) <= Budget(1, 1e-5)
        False
        >>> print(Budget(advantage=0.1))
        epsilon 1.0668, delta 1e-6, advantage 0.1 (add-remove)
    """

    epsilon: float = math.nan  # which is no epsilon: it then follows from the advantage
    delta: float = 0.0
    adjacency: Adjacency = "add-remove"
    advantage: float | None = None

    def __post_init__(self) -> None:
        _validate.choice("adjacency", self.adjacency, ADJACENCIES)
        if self.advantage is not None:
            self._check_advantage(self.advantage)
        elif isinstance(self.epsilon, float) and math.isnan(self.epsilon):
            raise InvalidArgument("Pass an epsilon, a number of zero or more, or an advantage.")
        _validate.convert_fields(self, epsilon=_validate.non_negative, delta=_validate.probability)

    def _check_advantage(self, advantage: object) -> None:
        """Checks the advantage, and sets an epsilon and a delta that were not passed."""
        number = _validate.real("advantage", advantage)
        if not (0 < number < 1):
            raise InvalidArgument(f"advantage must be between 0 and 1; got {advantage!r}.")
        _validate.set_fields(self, advantage=number)
        if isinstance(self.epsilon, float) and math.isnan(self.epsilon):
            # Gaussian noise with this advantage has mu = 2 Phi^-1((1 + advantage) / 2).
            mu = 2 * NormalDist().inv_cdf((1 + number) / 2)
            delta = _validate.probability("delta", self.delta) or DEFAULT_DELTA
            epsilon = accounting.convert.gdp_epsilon(mu, delta)
            # Rounded up: the advantage itself is kept in any case.
            _validate.set_fields(self, epsilon=round_up_epsilon(epsilon), delta=delta)

    def __le__(self, other: "Budget") -> bool:
        if not isinstance(other, Budget):
            return NotImplemented
        return (
            self.adjacency == other.adjacency
            and self.epsilon <= other.epsilon
            and self.delta <= other.delta
            and (1 if self.advantage is None else self.advantage)
            <= (1 if other.advantage is None else other.advantage)
        )

    def __lt__(self, other: "Budget") -> bool:
        if not isinstance(other, Budget):
            return NotImplemented
        return self <= other and self != other

    def __ge__(self, other: "Budget") -> bool:
        if not isinstance(other, Budget):
            return NotImplemented
        return other <= self

    def __gt__(self, other: "Budget") -> bool:
        if not isinstance(other, Budget):
            return NotImplemented
        return other < self

    @property
    def is_pure(self) -> bool:
        """Whether delta is zero."""
        return self.delta == 0

    @property
    def best_guess(self) -> float:
        """The largest probability with which an attacker can guess about one person correctly.

        The attacker knows everything except one person's record, considers two equally likely
        worlds (the person is in or out; or the record is one or another), and sees the result.
        Guessing by a coin toss is right half the time.

        Examples:
            >>> round(Budget(1, 1e-5).best_guess, 3)
            0.731
        """
        return (1 + self.max_advantage) / 2

    @property
    def max_advantage(self) -> float:
        """The largest advantage of an attacker against any run within the budget.

        Examples:
            >>> round(Budget(1, 1e-5).max_advantage, 3)
            0.462
        """
        # From P(S) <= e^eps Q(S) + delta both ways: the two error rates of any test
        # add up to at least 2 (1 - delta) / (1 + e^eps) (Kairouz et al. 2015).
        of_pair = 1 - 2 * (1 - self.delta) / (1 + math.exp(min(self.epsilon, 700.0)))
        return of_pair if self.advantage is None else min(of_pair, self.advantage)

    def explain(self) -> str:
        """One sentence on what the budget means for a person in the data.

        Examples:
            >>> print(Budget(1, 1e-5).explain())
            Someone who knows every other record and tosses a fair coin over whether yours is in the data can, after seeing the result, guess right at most 73.2% of the time.
        """
        return (
            f"Someone who knows every other record and tosses a fair coin over "
            f"{ADJACENCY_WORLDS[self.adjacency]} can, after seeing the result, guess right "
            f"at most {percent_rounded_up(self.best_guess)} of the time."
        )

    @property
    def amounts(self) -> str:
        """Epsilon, delta and advantage as text; delta is left out if it is zero, an advantage if there is none."""
        delta = "" if self.is_pure else f", delta {format_number(self.delta)}"
        most = "" if self.advantage is None else f", advantage {format_number(self.advantage)}"
        return f"epsilon {format_number(self.epsilon)}{delta}{most}"

    def __str__(self) -> str:
        return f"{self.amounts} ({self.adjacency})"


# The delta of a budget that names only its epsilon.
DEFAULT_DELTA = 1e-6


def choose_budget(budget: Budget | None, epsilon: float | None, delta: float | None) -> Budget:
    """The budget of a call that takes ``budget=``, or ``epsilon=`` with ``delta=`` 1e-6 by default.

    Raises:
        InvalidArgument: If both or neither are passed.
    """
    if budget is None and epsilon is not None:
        return Budget(epsilon, DEFAULT_DELTA if delta is None else delta)
    if not isinstance(budget, Budget) or epsilon is not None or delta is not None:
        raise InvalidArgument(
            "Pass epsilon= (with delta= if it is not 1e-6), or budget=tacit.Budget(epsilon, delta)."
        )
    return budget


def percent_rounded_up(share: float) -> str:
    """Rounded up, so that the sentence it stands in stays true."""
    decimals = 1 if share < 0.999 else 6
    scale = 10.0 ** (decimals + 2)
    return f"{math.ceil(share * scale - 1e-9) / scale * 100:.{decimals}f}%"


Rule = Literal["sum", "renyi"]
RULES: tuple[Rule, ...] = get_args(Rule)
# Rounding errors do not count as overspending.
_ROUNDING_TOLERANCE = 1e-12


class PastCosts(NamedTuple):
    """What earlier runs cost, an entry for each."""

    epsilon: tuple[float, ...]
    delta: tuple[float, ...]
    divergence: tuple[float, ...]

    def first(self, runs: int) -> "PastCosts":
        """What the first few of them cost."""
        return PastCosts(*(costs[:runs] for costs in self))


@dataclass(frozen=True)
class PrivacyFilter:
    """The total budget of several runs, and the rule by which their costs compose.

    ``order`` is the Rényi order of the rule ``"renyi"``.
    """

    total: Budget
    rule: Rule
    order: float

    def divergence(self, event: DpEvent) -> float:
        """The Rényi divergence of a run, or zero under the rule ``"sum"``, which has no use for it."""
        if self.rule == "sum":
            return 0.0
        return accounting.renyi.ledger_divergence(event, self.order, self.total.adjacency)

    def admits(self, spent: PastCosts, budget: Budget, divergence: float) -> bool:
        """Whether one more run, of this cost, fits into the total."""
        total = self.total
        if self.rule == "sum":
            epsilon = subtract_decimals(total.epsilon, *spent.epsilon, budget.epsilon)
            delta = subtract_decimals(total.delta, *spent.delta, budget.delta)
            return (
                epsilon >= -_ROUNDING_TOLERANCE * total.epsilon
                and delta >= -_ROUNDING_TOLERANCE * total.delta
            )
        return self._convert(math.fsum((*spent.divergence, divergence))) <= total.epsilon

    def left(self, spent: PastCosts) -> Budget:
        """What is left of the total; under ``"renyi"``, roughly what one more run may cost."""
        total = self.total
        if self.rule == "renyi":
            divergence = math.fsum(spent.divergence)
            epsilon = round_up_epsilon(self._convert(divergence)) if divergence else 0.0
            return Budget(
                max(subtract_decimals(total.epsilon, epsilon), 0.0), total.delta, total.adjacency
            )
        return Budget(
            max(subtract_decimals(total.epsilon, *spent.epsilon), 0.0),
            max(subtract_decimals(total.delta, *spent.delta), 0.0),
            total.adjacency,
        )

    def _convert(self, divergence: float) -> float:
        return accounting.renyi.ledger_epsilon(divergence, self.order, self.total.delta)

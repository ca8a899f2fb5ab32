"""Privacy filters: whether one more run fits into a total that is fixed in advance.

Runs are chosen after seeing earlier results, so a composition theorem for runs that are fixed in
advance does not apply. Two rules hold for adaptively chosen runs:

- ``"sum"``: the epsilons and deltas of the runs add up (Rogers et al. 2016).
- ``"renyi"``: divergences of one order, fixed in advance, add up, and the total is converted once
  (Feldman and Zrnic 2021, Theorem 4.3).
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from tacit import accounting
from tacit._format import less, stated
from tacit.accounting.budget import Budget

if TYPE_CHECKING:  # it takes a second to load, and showing a ledger does not need it
    from dp_accounting.dp_event import DpEvent

Rule = Literal["sum", "renyi"]
RULES: tuple[Rule, ...] = get_args(Rule)
# Rounding errors do not count as overspending.
_ROUNDING = 1e-12


class Spent(NamedTuple):
    """What earlier runs cost, an entry for each."""

    epsilon: tuple[float, ...]
    delta: tuple[float, ...]
    divergence: tuple[float, ...]

    def first(self, runs: int) -> "Spent":
        """What the first few of them cost."""
        return Spent(*(costs[:runs] for costs in self))


@dataclass(frozen=True)
class PrivacyFilter:
    """The total budget of several runs, and the rule by which their costs compose.

    ``order`` is the Rényi order of the rule ``"renyi"``.
    """

    total: Budget
    rule: Rule
    order: float

    def divergence(self, event: "DpEvent") -> float:
        """The Rényi divergence of a run, or zero under the rule ``"sum"``, which has no use for it."""
        if self.rule == "sum":
            return 0.0
        return accounting.renyi_filter.divergence_of(event, self.order, self.total.adjacency)

    def admits(self, spent: Spent, budget: Budget, divergence: float) -> bool:
        """Whether one more run, of this cost, fits into the total."""
        total = self.total
        if self.rule == "sum":
            epsilon = less(total.epsilon, *spent.epsilon, budget.epsilon)
            delta = less(total.delta, *spent.delta, budget.delta)
            return epsilon >= -_ROUNDING * total.epsilon and delta >= -_ROUNDING * total.delta
        return self._convert(math.fsum((*spent.divergence, divergence))) <= total.epsilon

    def left(self, spent: Spent) -> Budget:
        """What is left of the total; under ``"renyi"``, roughly what one more run may cost."""
        total = self.total
        if self.rule == "renyi":
            divergence = math.fsum(spent.divergence)
            epsilon = stated(self._convert(divergence)) if divergence else 0.0
            return Budget(max(less(total.epsilon, epsilon), 0.0), total.delta, total.adjacency)
        return Budget(
            max(less(total.epsilon, *spent.epsilon), 0.0),
            max(less(total.delta, *spent.delta), 0.0),
            total.adjacency,
        )

    def _convert(self, divergence: float) -> float:
        return accounting.renyi_filter.epsilon_of(divergence, self.order, self.total.delta)

"""Accountants: the privacy cost of an event, by privacy-loss distributions or Rényi divergences.

Every accountant gives upper bounds, and raises an error for events that it cannot bound. `PLD` is the default and the
tightest. `cost` is the number that is charged to the ledger and stated with a result.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np

from tacit import _validate
from tacit._format import round_up_epsilon
from tacit.accounting import events, renyi
from tacit.accounting.budget import ADJACENCIES, Adjacency, Budget
from tacit.accounting.convert import Conversion, delta_by_order, epsilon_by_order
from tacit.accounting.events import DpEvent
from tacit.accounting.pairs import Array, BoundedRangePair, dominating_pairs
from tacit.accounting.pld import Part, composed_delta, composed_epsilon
from tacit.errors import BudgetError, InvalidArgument, TheoremDoesNotHold, UnsupportedEvent

if TYPE_CHECKING:
    from dp_accounting.pld.pld_privacy_accountant import PLDAccountant

# Below this epsilon the rounding errors of the grid matter, and Rényi orders can be tighter.
_SMALL_EPSILON = 1e-3
# The default deltas of a curve: four points a decade.
DEFAULT_DELTAS = tuple(10.0 ** (exponent / 4) for exponent in range(-48, -3))


class Curve(NamedTuple):
    """Points of a privacy curve: the epsilon that holds at each delta."""

    deltas: tuple[float, ...]
    epsilons: tuple[float, ...]


class Accountant(ABC):
    """Computes the privacy cost of events.

    Every accountant gives upper bounds, and raises `UnsupportedEvent` for events that it cannot bound.
    """

    name: ClassVar[str]

    def epsilon(self, event: DpEvent, delta: float, adjacency: Adjacency = "add-remove") -> float:
        """The smallest epsilon that this accountant can prove.

        Args:
            event: What is done to the data.
            delta: The delta at which epsilon is wanted.
            adjacency: ``"add-remove"`` or ``"replace"``; see `Budget`.

        Returns:
            Epsilon, which may be infinite.

        Raises:
            UnsupportedEvent: If no bound is known for the event.
        """
        delta = _validate.probability("delta", delta)
        _validate.choice("adjacency", adjacency, ADJACENCIES)
        if not _is_private(event):
            return math.inf
        rest, slack = events.split_slack(event)
        if slack >= delta > 0 or (slack > 0 and delta == 0):
            return math.inf
        return self._epsilon(rest, delta - slack, adjacency)

    def delta(self, event: DpEvent, epsilon: float, adjacency: Adjacency = "add-remove") -> float:
        """The smallest delta that this accountant can prove.

        Args:
            event: What is done to the data.
            epsilon: The epsilon at which delta is wanted.
            adjacency: ``"add-remove"`` or ``"replace"``; see `Budget`.

        Returns:
            Delta, at most 1.

        Raises:
            UnsupportedEvent: If no bound is known for the event.
        """
        epsilon = _validate.non_negative("epsilon", epsilon)
        _validate.choice("adjacency", adjacency, ADJACENCIES)
        if not _is_private(event):
            return 1.0
        rest, slack = events.split_slack(event)
        return min(1.0, self._delta(rest, epsilon, adjacency) + slack)

    def curve(
        self,
        event: DpEvent,
        adjacency: Adjacency = "add-remove",
        deltas: Sequence[float] | None = None,
    ) -> Curve:
        """Epsilon over a range of deltas.

        Args:
            event: What is done to the data.
            adjacency: ``"add-remove"`` or ``"replace"``; see `Budget`.
            deltas: The deltas; by default from 1e-12 to 0.1.

        Returns:
            The curve. Deltas at which the accountant's theorem does not hold are left out.

        Raises:
            UnsupportedEvent: If no bound is known for the event.
        """
        points = []
        for delta in DEFAULT_DELTAS if deltas is None else deltas:
            try:
                points.append((delta, self.epsilon(event, delta, adjacency)))
            except TheoremDoesNotHold:
                continue
        return Curve(tuple(d for d, _ in points), tuple(e for _, e in points))

    def epsilons(self, event: DpEvent, delta: float) -> dict[Adjacency, float | None]:
        """Epsilon under each adjacency.

        Args:
            event: What is done to the data.
            delta: The delta at which epsilon is wanted.

        Returns:
            Epsilon by adjacency; None where no bound is known.
        """
        result: dict[Adjacency, float | None] = {}
        for adjacency in ADJACENCIES:
            try:
                result[adjacency] = self.epsilon(event, delta, adjacency)
            except UnsupportedEvent:
                result[adjacency] = None
        return result

    @abstractmethod
    def _epsilon(self, event: DpEvent, delta: float, adjacency: Adjacency) -> float: ...

    def _delta(self, event: DpEvent, epsilon: float, adjacency: Adjacency) -> float:
        """By inverting epsilon(delta), for accountants that have no formula."""

        def suffices(minus_log_delta: float) -> bool:
            try:
                return self._epsilon(event, math.exp(-minus_log_delta), adjacency) <= epsilon
            except TheoremDoesNotHold:
                return False

        low, high = 1e-9, 700.0
        if not suffices(low):
            return 1.0
        while high - low > 1e-9 * high:
            middle = (low + high) / 2
            low, high = (middle, high) if suffices(middle) else (low, middle)
        return math.exp(-low)


def _is_private(event: DpEvent) -> bool:
    if not isinstance(event, DpEvent):
        raise InvalidArgument(
            f"An accountant takes an event of tacit.accounting.events; got {type(event).__name__}. "
            "Convert an event of dp-accounting with events.from_dp_event."
        )
    for leaf, _ in events.leaves(event):
        inner = leaf.event if isinstance(leaf, events.RepeatAndSelectDpEvent) else None
        if isinstance(leaf, events.NonPrivateDpEvent) or (inner and not _is_private(inner)):
            return False
    return True


@dataclass(frozen=True)
class PLD(Accountant):
    """Privacy-loss distributions: the tightest accountant, and the default.

    It needs a dominating pair for every part of the event. If a part has none (a subsampled Barker test,
    repeat-and-select), the whole event is accounted by Rényi orders. A bounded-range release (the Barker
    accept bit) has a dominating pair that no actual pair of outcomes attains, so Rényi orders can be
    tighter; the better of the two bounds is used. The same holds for an epsilon so small that rounding
    matters.
    """

    name: ClassVar[str] = "pld"

    def _epsilon(self, event: DpEvent, delta: float, adjacency: Adjacency) -> float:
        if _has_truncated_batches(event):
            return float(_dp_accounting_pld(event, adjacency).get_epsilon(delta))
        if self.needs_renyi_orders(event):
            return Renyi().epsilon(event, delta, adjacency)
        directions = parts_by_direction(event, adjacency)
        best = max(composed_epsilon(parts, delta) for parts in directions)
        if delta > 0 and (
            _has_bounded_range(directions) or 0 < best < _SMALL_EPSILON or best == math.inf
        ):
            return min(best, Renyi().epsilon(event, delta, adjacency))
        return best

    def _delta(self, event: DpEvent, epsilon: float, adjacency: Adjacency) -> float:
        if _has_truncated_batches(event):
            return float(_dp_accounting_pld(event, adjacency).get_delta(epsilon))
        if self.needs_renyi_orders(event):
            return Renyi().delta(event, epsilon, adjacency)
        directions = parts_by_direction(event, adjacency)
        best = max(composed_delta(parts, epsilon) for parts in directions)
        if _has_bounded_range(directions) or epsilon < _SMALL_EPSILON:
            return min(best, Renyi().delta(event, epsilon, adjacency))
        return best

    @staticmethod
    def needs_renyi_orders(event: DpEvent) -> bool:
        """Whether the event has a part without a dominating pair, so that `Renyi` accounts all of it."""
        without = (events.SubsampledBarkerTest, events.RepeatAndSelectDpEvent)
        return any(isinstance(leaf, without) for leaf, _ in events.leaves(event))


@dataclass(frozen=True)
class Renyi(Accountant):
    """Rényi differential privacy. It covers every event, and is a little loose.

    Args:
        orders: The Rényi orders, all above 1. By default a range is searched and refined.
        conversion: How divergences are converted; see `tacit.accounting.convert.renyi_epsilon`.
        doubled: Whether a replaced unit is accounted as one of twice the clip, as in the papers, where
            that is larger than the direct bound.
    """

    name: ClassVar[str] = "rdp"
    orders: tuple[float, ...] | None = None
    conversion: Conversion = "improved"
    doubled: bool = False

    def __post_init__(self) -> None:
        if self.orders is not None and not (
            self.orders and all(1 < order < math.inf for order in self.orders)
        ):
            raise InvalidArgument(f"Rényi orders must be above 1 and finite; got {self.orders}.")

    def _epsilon(self, event: DpEvent, delta: float, adjacency: Adjacency) -> float:
        if delta == 0:  # no finite order shows a pure epsilon
            return math.inf if any(True for _ in events.leaves(event)) else 0.0
        return self._best(
            event, adjacency, lambda a, r: epsilon_by_order(a, r, delta, self.conversion)
        )

    def _delta(self, event: DpEvent, epsilon: float, adjacency: Adjacency) -> float:
        return self._best(
            event, adjacency, lambda a, r: delta_by_order(a, r, epsilon, self.conversion)
        )

    def _best(
        self,
        event: DpEvent,
        adjacency: Adjacency,
        bound: Callable[[Array, Array], Array],
    ) -> float:
        integer = renyi.needs_integer_orders(event)
        orders = renyi.default_orders(integer=integer)
        if self.orders is not None:  # integers too become floats: a bound may be infinite
            orders = np.sort(np.asarray(self.orders, np.float64))
        bounds = bound(orders, self._divergence(event, orders, adjacency))
        if self.orders is None and not integer and np.isfinite(bounds.min()):
            orders = renyi.refine_orders(orders, int(bounds.argmin()))
            bounds = np.append(bounds, bound(orders, self._divergence(event, orders, adjacency)))
        return float(bounds.min())

    def _divergence(self, event: DpEvent, orders: Array, adjacency: Adjacency) -> Array:
        return renyi.divergence(event, orders, adjacency, doubled=self.doubled)


def parts_by_direction(event: DpEvent, adjacency: Adjacency) -> list[list[Part]]:
    """The parts of a composition in each direction; a single list if both directions are alike."""
    pairs = [(dominating_pairs(leaf, adjacency), n) for leaf, n in events.leaves(event)]
    directions = max((len(pair) for pair, _ in pairs), default=1)
    return [[Part(pair[min(i, len(pair) - 1)], n) for pair, n in pairs] for i in range(directions)]


def _has_bounded_range(directions: list[list[Part]]) -> bool:
    return any(isinstance(part.pair, BoundedRangePair) for part in directions[0])


def _has_truncated_batches(event: DpEvent) -> bool:
    truncated = events.TruncatedSubsampledGaussianDpEvent
    return any(isinstance(leaf, truncated) for leaf, _ in events.leaves(event))


def _dp_accounting_pld(event: DpEvent, adjacency: Adjacency) -> "PLDAccountant":
    """The accountant of dp-accounting, for truncated batches, which Tacit itself never draws."""
    plain = (
        events.GaussianDpEvent,
        events.PoissonSampledDpEvent,
        events.TruncatedSubsampledGaussianDpEvent,
    )
    for leaf, _ in events.leaves(event):
        if not isinstance(leaf, plain):
            raise UnsupportedEvent("Truncated batches compose with Gaussian releases only.")
        if not isinstance(leaf, events.TruncatedSubsampledGaussianDpEvent):
            dominating_pairs(leaf, adjacency)  # raises an error if there is none
    theirs = events.to_dp_event(event)
    from dp_accounting.pld.pld_privacy_accountant import PLDAccountant
    from dp_accounting.privacy_accountant import NeighboringRelation

    relation = "REPLACE_ONE" if adjacency == "replace" else "ADD_OR_REMOVE_ONE"
    accountant = PLDAccountant(NeighboringRelation[relation])
    accountant.compose(theirs)
    return accountant


# Classes of `tacit.papers.accountants`, a package above this one: imported by name only, on request.
_PAPER_ACCOUNTANTS = {
    "moments": "Moments",
    "advanced": "Advanced",
    "basic": "Basic",
    "classical-gaussian": "ClassicalGaussian",
    "analytic-gaussian": "AnalyticGaussian",
}


def accountant(name: str) -> Accountant:
    """The accountant of this name, with its default settings.

    Args:
        name: ``"pld"``, ``"rdp"``, or the name of an accountant in `tacit.papers.accountants`.

    Returns:
        The accountant.
    """
    own: dict[str, type[Accountant]] = {PLD.name: PLD, Renyi.name: Renyi}
    _validate.choice("accountant", name, (*own, *_PAPER_ACCOUNTANTS))
    if name in own:
        return own[name]()
    papers = import_module("tacit.papers.accountants")
    kind: type[Accountant] = getattr(papers, _PAPER_ACCOUNTANTS[name])
    return kind()


def cost(event: DpEvent, budget: Budget) -> Budget:
    """The cost of a run within a budget, which may be less than the budget.

    The cost is the run's epsilon at the budget's delta, rounded up at the fifth digit but not above the
    budget's epsilon.

    Args:
        event: What the run does to the data.
        budget: The budget that the run was calibrated to.

    Returns:
        The cost.

    Raises:
        BudgetError: If the run costs more than the budget.
    """
    spent = PLD().epsilon(event, budget.delta, budget.adjacency)
    most = budget.advantage
    if not (spent <= budget.epsilon) or not (
        most is None or PLD().delta(event, 0.0, budget.adjacency) <= most
    ):
        raise BudgetError(f"The run would cost more than the {budget} it declares.")
    return Budget(round_up_epsilon(spent, budget.epsilon), budget.delta, budget.adjacency)


# The part of a run's delta that pays for its stopping early, where it may.
_STOPPED_DELTA_SHARE = 1e-6


def unstopped_budget(budget: Budget) -> Budget:
    """What all steps of a run that may stop early must fit into: a little less delta than its budget."""
    return replace(budget, delta=budget.delta * (1 - _STOPPED_DELTA_SHARE))


def stopping_costs(event: DpEvent, stopped: DpEvent, budget: Budget) -> tuple[Budget, Budget]:
    """The costs of a run that may stop early: if it does not stop, and if it does.

    Which of them counts is known only when the run has ended, so that the two share one delta: it is spent
    in any case (PROOFS.md, Theorem 12).

    Args:
        event: What the run does to the data if it does not stop.
        stopped: What it does until it stops.
        budget: The budget that the run was calibrated to, by `unstopped_budget`.

    Returns:
        The two costs.

    Raises:
        BudgetError: If the run costs more than the budget.
    """
    whole = replace(cost(event, unstopped_budget(budget)), delta=budget.delta)
    spent = PLD().epsilon(stopped, budget.delta * _STOPPED_DELTA_SHARE, budget.adjacency)
    return whole, replace(whole, epsilon=min(round_up_epsilon(spent), whole.epsilon))


def costs(
    event: DpEvent, delta: float, adjacency: Adjacency, most: float | None = None
) -> dict[Adjacency, float | None]:
    """Epsilon at a delta under each adjacency, rounded as it is charged; None where no bound is known.

    ``most`` is the requested epsilon, under ``adjacency``.
    """
    found = PLD().epsilons(event, delta)
    return {
        name: None
        if (spent := found[name]) is None
        # The request concerns one adjacency only.
        else round_up_epsilon(spent, most if name == adjacency else None)
        for name in ADJACENCIES
    }

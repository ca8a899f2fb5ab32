"""Accountants: from an event to epsilon(delta), delta(epsilon) and the whole curve.

All bound from above, and all refuse what they cannot bound. `PLD` is the default and the
tightest; the rest are what the papers use.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from dp_accounting import dp_event
from dp_accounting.dp_event import DpEvent
from dp_accounting.pld.pld_privacy_accountant import PLDAccountant
from dp_accounting.privacy_accountant import NeighboringRelation
from scipy.optimize import minimize_scalar

from tacit import _validate
from tacit.accounting import classical, events, renyi
from tacit.accounting.budget import ADJACENCIES, Adjacency
from tacit.accounting.convert import (
    Conversion,
    delta_by_order,
    epsilon_by_order,
    gdp_delta,
    gdp_epsilon,
)
from tacit.accounting.dominate import dominating_pairs
from tacit.accounting.pairs import Array, BoundedRangePair, GaussianPair
from tacit.accounting.pld import composed_delta, composed_epsilon
from tacit.accounting.sketch import Part
from tacit.errors import InvalidArgument, TheoremDoesNotHold, UnsupportedEvent

# Below this epsilon, rounding is a share of the loss of a single step.
_TINY = 1e-3
# Where a curve is drawn unless told: four points a decade.
DELTAS = tuple(10.0 ** (exponent / 4) for exponent in range(-48, -3))


class Curve(NamedTuple):
    """Points of a privacy curve: at each delta, the epsilon that holds."""

    deltas: tuple[float, ...]
    epsilons: tuple[float, ...]


class Accountant(ABC):
    """Turns an event into what it costs a person in the data."""

    name: ClassVar[str]

    def epsilon(self, event: DpEvent, delta: float, adjacency: Adjacency = "add-remove") -> float:
        """The smallest epsilon this accountant can prove at ``delta``; may be infinite."""
        delta = _validate.probability("delta", delta)
        _validate.choice("adjacency", adjacency, ADJACENCIES)
        if not _is_private(event):
            return math.inf
        rest, slack = events.without_slack(event)
        if slack >= delta > 0 or (slack > 0 and delta == 0):
            return math.inf
        return self._epsilon(rest, delta - slack, adjacency)

    def delta(self, event: DpEvent, epsilon: float, adjacency: Adjacency = "add-remove") -> float:
        """The smallest delta this accountant can prove at ``epsilon``."""
        epsilon = _validate.non_negative("epsilon", epsilon)
        _validate.choice("adjacency", adjacency, ADJACENCIES)
        if not _is_private(event):
            return 1.0
        rest, slack = events.without_slack(event)
        return min(1.0, self._delta(rest, epsilon, adjacency) + slack)

    def curve(
        self,
        event: DpEvent,
        adjacency: Adjacency = "add-remove",
        deltas: Sequence[float] | None = None,
    ) -> Curve:
        """Epsilon over a range of deltas (1e-12 to 0.1 unless told).

        Deltas at which the accountant's theorem does not hold are left out.
        """
        points = []
        for delta in DELTAS if deltas is None else deltas:
            try:
                points.append((delta, self.epsilon(event, delta, adjacency)))
            except TheoremDoesNotHold:
                continue
        return Curve(tuple(d for d, _ in points), tuple(e for _, e in points))

    def epsilons(self, event: DpEvent, delta: float) -> dict[Adjacency, float | None]:
        """Epsilon under each adjacency; None where no bound is known."""
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


@dataclass(frozen=True)
class PLD(Accountant):
    """Privacy-loss distributions, the tightest known, where every part has a dominating pair.

    A composition with a part that has none (a subsampled Barker test, repeat-and-select)
    goes by Rényi orders as a whole. Bounded-range releases (the Barker accept bit) have a
    pair, but no single pair of outcomes attains it, so their composition can be tighter by
    Rényi orders: the better of the two is taken. So it is for an epsilon so tiny that
    rounding matters.
    """

    name: ClassVar[str] = "pld"

    def _epsilon(self, event: DpEvent, delta: float, adjacency: Adjacency) -> float:
        if _is_truncated(event):
            return float(_dp_accounting(event, adjacency).get_epsilon(delta))
        if self.goes_by_orders(event):
            return Renyi().epsilon(event, delta, adjacency)
        worlds = _directions(event, adjacency)
        best = max(composed_epsilon(parts, delta) for parts in worlds)
        if delta > 0 and (_is_loose(worlds) or 0 < best < _TINY or best == math.inf):
            return min(best, Renyi().epsilon(event, delta, adjacency))
        return best

    def _delta(self, event: DpEvent, epsilon: float, adjacency: Adjacency) -> float:
        if _is_truncated(event):
            return float(_dp_accounting(event, adjacency).get_delta(epsilon))
        if self.goes_by_orders(event):
            return Renyi().delta(event, epsilon, adjacency)
        worlds = _directions(event, adjacency)
        best = max(composed_delta(parts, epsilon) for parts in worlds)
        if _is_loose(worlds) or epsilon < _TINY:
            return min(best, Renyi().delta(event, epsilon, adjacency))
        return best

    @staticmethod
    def goes_by_orders(event: DpEvent) -> bool:
        """Whether a part without a dominating pair sends the whole event to `Renyi`."""
        without = (events.SubsampledBarkerTest, dp_event.RepeatAndSelectDpEvent)
        return any(isinstance(leaf, without) for leaf, _ in events.leaves(event))


@dataclass(frozen=True)
class Renyi(Accountant):
    """Rényi differential privacy: covers every event, a little loose.

    ``orders`` fixes the orders; without, a range is searched and refined. ``doubled``
    accounts a replaced unit as one of twice the clip, as the papers do, where that is
    larger than the direct bound.
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
        whole = renyi.needs_whole_orders(event)
        orders = renyi.default_orders(whole)
        if self.orders is not None:  # whole numbers too are kept in floats: a bound may be infinite
            orders = np.sort(np.asarray(self.orders, np.float64))
        bounds = bound(orders, self._divergence(event, orders, adjacency))
        if self.orders is None and not whole and np.isfinite(bounds.min()):
            orders = renyi.refine(orders, int(bounds.argmin()))
            bounds = np.append(bounds, bound(orders, self._divergence(event, orders, adjacency)))
        return float(bounds.min())

    def _divergence(self, event: DpEvent, orders: Array, adjacency: Adjacency) -> Array:
        return renyi.divergence(event, orders, adjacency, doubled=self.doubled)


@dataclass(frozen=True)
class Moments(Accountant):
    """The moments accountant of Abadi et al. 2016, as the thesis and the DP-PVI report use it.

    Log-moments of order 1 to ``max_order`` by numerical integration, both directions, and
    the tail bound. Its epsilon cannot fall below log(1/delta) / max_order, whatever the noise.
    """

    name: ClassVar[str] = "moments"
    max_order: int = 32

    def __post_init__(self) -> None:
        _validate.count("max_order", self.max_order)

    def _epsilon(self, event: DpEvent, delta: float, adjacency: Adjacency) -> float:
        return self._renyi().epsilon(event, delta, adjacency)

    def _delta(self, event: DpEvent, epsilon: float, adjacency: Adjacency) -> float:
        return self._renyi().delta(event, epsilon, adjacency)

    def _renyi(self) -> Renyi:
        # The moment of order l is l times the divergence of order l + 1.
        orders = tuple(float(order) for order in range(2, self.max_order + 2))
        return Renyi(orders=orders, conversion="basic", doubled=True)


@dataclass(frozen=True)
class Advanced(Accountant):
    """Advanced composition with amplification by sampling: thesis Theorems 2.25 and 2.27.

    With the classical Gaussian theorem this is the formula of DP-ADVI, valid only where a
    single step's epsilon is below one, and refused elsewhere. ``slack`` is the share of delta
    given to the composition theorem; None searches for the best.
    """

    name: ClassVar[str] = "advanced"
    gaussian: classical.GaussianTheorem = "classical"
    slack: float | None = 0.5
    check: bool = True

    def __post_init__(self) -> None:
        if self.slack is not None and not (0 < self.slack < 1):
            raise InvalidArgument(f"slack is a share of delta, between 0 and 1; got {self.slack}.")

    def _epsilon(self, event: DpEvent, delta: float, adjacency: Adjacency) -> float:
        if delta == 0:
            return Basic(self.gaussian).epsilon(event, 0.0, adjacency)

        def total(share: float) -> float:
            steps = classical.step_epsilons(
                event, delta * (1 - share), adjacency, self.gaussian, self.check
            )
            return classical.advanced_epsilon(steps, delta * share)

        if self.slack is not None:
            return total(self.slack)
        found = minimize_scalar(total, bounds=(1e-3, 1 - 1e-3), method="bounded")
        return float(min(found.fun, total(0.5)))


@dataclass(frozen=True)
class Basic(Accountant):
    """Basic composition, thesis Theorem 2.26: epsilons and deltas add up."""

    name: ClassVar[str] = "basic"
    gaussian: classical.GaussianTheorem = "classical"

    def _epsilon(self, event: DpEvent, delta: float, adjacency: Adjacency) -> float:
        theorem = self.gaussian if delta > 0 else "analytic"
        steps = classical.step_epsilons(event, delta, adjacency, theorem)
        return math.fsum(epsilon * count for epsilon, count in steps)


@dataclass(frozen=True)
class ClassicalGaussian(Accountant):
    """The Gaussian mechanism of thesis Definition 2.17, for full-data Gaussian noise only."""

    name: ClassVar[str] = "classical-gaussian"

    def _epsilon(self, event: DpEvent, delta: float, adjacency: Adjacency) -> float:
        return classical.classical_gaussian_epsilon(_total_mu(event, adjacency), delta)


@dataclass(frozen=True)
class AnalyticGaussian(Accountant):
    """The exact Gaussian mechanism (Balle and Wang 2018), for full-data Gaussian noise only."""

    name: ClassVar[str] = "analytic-gaussian"

    def _epsilon(self, event: DpEvent, delta: float, adjacency: Adjacency) -> float:
        return gdp_epsilon(_total_mu(event, adjacency), delta)

    def _delta(self, event: DpEvent, epsilon: float, adjacency: Adjacency) -> float:
        return gdp_delta(_total_mu(event, adjacency), epsilon)


ACCOUNTANTS: dict[str, type[Accountant]] = {
    each.name: each
    for each in (PLD, Renyi, Moments, Advanced, Basic, ClassicalGaussian, AnalyticGaussian)
}


def accountant(name: str) -> Accountant:
    """The accountant of this name, with its default settings."""
    return ACCOUNTANTS[_validate.choice("accountant", name, ACCOUNTANTS)]()


def _is_private(event: DpEvent) -> bool:
    if not isinstance(event, DpEvent):
        raise InvalidArgument(f"An accountant takes an event; got {type(event).__name__}.")
    for leaf, _ in events.leaves(event):
        inner = leaf.event if isinstance(leaf, dp_event.RepeatAndSelectDpEvent) else None
        if isinstance(leaf, dp_event.NonPrivateDpEvent) or (inner and not _is_private(inner)):
            return False
    return True


def _directions(event: DpEvent, adjacency: Adjacency) -> list[list[Part]]:
    """Parts for the composition seen from either world, or one list if they look alike."""
    pairs = [(dominating_pairs(leaf, adjacency), n) for leaf, n in events.leaves(event)]
    worlds = max((len(pair) for pair, _ in pairs), default=1)
    return [[Part(pair[min(i, len(pair) - 1)], n) for pair, n in pairs] for i in range(worlds)]


def _is_loose(worlds: list[list[Part]]) -> bool:
    return any(isinstance(part.pair, BoundedRangePair) for part in worlds[0])


def _total_mu(event: DpEvent, adjacency: Adjacency) -> float:
    parts = _directions(event, adjacency)[0]
    if not parts or not all(isinstance(part.pair, GaussianPair) for part in parts):
        raise UnsupportedEvent(
            "The Gaussian mechanism covers full-data Gaussian noise only; use the pld accountant."
        )
    return math.sqrt(math.fsum(n * p.mu**2 for p, n in parts if isinstance(p, GaussianPair)))


def _is_truncated(event: DpEvent) -> bool:
    truncated = dp_event.TruncatedSubsampledGaussianDpEvent
    return any(isinstance(leaf, truncated) for leaf, _ in events.leaves(event))


def _dp_accounting(event: DpEvent, adjacency: Adjacency) -> PLDAccountant:
    """dp-accounting's own accountant, for truncated batches, which Tacit never draws."""
    for leaf, _ in events.leaves(event):
        if not isinstance(leaf, dp_event.TruncatedSubsampledGaussianDpEvent):
            dominating_pairs(leaf, adjacency)  # refuses what has none
    plain = (
        dp_event.GaussianDpEvent,
        dp_event.PoissonSampledDpEvent,
        dp_event.TruncatedSubsampledGaussianDpEvent,
    )
    if not all(isinstance(leaf, plain) for leaf, _ in events.leaves(event)):
        raise UnsupportedEvent("Truncated batches compose with Gaussian releases only.")
    relation = (
        NeighboringRelation.REPLACE_ONE
        if adjacency == "replace"
        else NeighboringRelation.ADD_OR_REMOVE_ONE
    )
    book = PLDAccountant(relation)
    book.compose(event)
    return book

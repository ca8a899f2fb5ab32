"""The accountants that Tacit uses: privacy-loss distributions and Rényi divergences.

Both give upper bounds, and refuse events that they cannot bound. `PLD` is the default and the tightest.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from dp_accounting import dp_event
from dp_accounting.dp_event import DpEvent
from dp_accounting.pld.pld_privacy_accountant import PLDAccountant
from dp_accounting.privacy_accountant import NeighboringRelation

from tacit.accounting import events, renyi
from tacit.accounting.base import Accountant
from tacit.accounting.budget import Adjacency
from tacit.accounting.convert import Conversion, delta_by_order, epsilon_by_order
from tacit.accounting.dominate import dominating_pairs
from tacit.accounting.pairs import Array, BoundedRangePair
from tacit.accounting.pld import composed_delta, composed_epsilon
from tacit.accounting.sketch import Part
from tacit.errors import InvalidArgument, UnsupportedEvent

# Below this epsilon, rounding is a share of the loss of a single step.
_TINY = 1e-3


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
        if _is_truncated(event):
            return float(_dp_accounting(event, adjacency).get_epsilon(delta))
        if self.goes_by_orders(event):
            return Renyi().epsilon(event, delta, adjacency)
        worlds = directions(event, adjacency)
        best = max(composed_epsilon(parts, delta) for parts in worlds)
        if delta > 0 and (_is_loose(worlds) or 0 < best < _TINY or best == math.inf):
            return min(best, Renyi().epsilon(event, delta, adjacency))
        return best

    def _delta(self, event: DpEvent, epsilon: float, adjacency: Adjacency) -> float:
        if _is_truncated(event):
            return float(_dp_accounting(event, adjacency).get_delta(epsilon))
        if self.goes_by_orders(event):
            return Renyi().delta(event, epsilon, adjacency)
        worlds = directions(event, adjacency)
        best = max(composed_delta(parts, epsilon) for parts in worlds)
        if _is_loose(worlds) or epsilon < _TINY:
            return min(best, Renyi().delta(event, epsilon, adjacency))
        return best

    @staticmethod
    def goes_by_orders(event: DpEvent) -> bool:
        """Whether the event has a part without a dominating pair, so that `Renyi` accounts all of it."""
        without = (events.SubsampledBarkerTest, dp_event.RepeatAndSelectDpEvent)
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


def directions(event: DpEvent, adjacency: Adjacency) -> list[list[Part]]:
    """The parts of a composition in each direction; a single list if both directions are alike."""
    pairs = [(dominating_pairs(leaf, adjacency), n) for leaf, n in events.leaves(event)]
    worlds = max((len(pair) for pair, _ in pairs), default=1)
    return [[Part(pair[min(i, len(pair) - 1)], n) for pair, n in pairs] for i in range(worlds)]


def _is_loose(worlds: list[list[Part]]) -> bool:
    return any(isinstance(part.pair, BoundedRangePair) for part in worlds[0])


def _is_truncated(event: DpEvent) -> bool:
    truncated = dp_event.TruncatedSubsampledGaussianDpEvent
    return any(isinstance(leaf, truncated) for leaf, _ in events.leaves(event))


def _dp_accounting(event: DpEvent, adjacency: Adjacency) -> PLDAccountant:
    """The accountant of dp-accounting, for truncated batches, which Tacit itself never draws."""
    for leaf, _ in events.leaves(event):
        if not isinstance(leaf, dp_event.TruncatedSubsampledGaussianDpEvent):
            dominating_pairs(leaf, adjacency)  # raises an error if there is none
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

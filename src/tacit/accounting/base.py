"""The interface of accountants, and what they share."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from dp_accounting import dp_event
from dp_accounting.dp_event import DpEvent

from tacit import _validate
from tacit.accounting import events
from tacit.accounting.budget import ADJACENCIES, Adjacency
from tacit.errors import InvalidArgument, TheoremDoesNotHold, UnsupportedEvent

# The default deltas of a curve: four points a decade.
DELTAS = tuple(10.0 ** (exponent / 4) for exponent in range(-48, -3))


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
        rest, slack = events.without_slack(event)
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
        rest, slack = events.without_slack(event)
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
        for delta in DELTAS if deltas is None else deltas:
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
        raise InvalidArgument(f"An accountant takes an event; got {type(event).__name__}.")
    for leaf, _ in events.leaves(event):
        inner = leaf.event if isinstance(leaf, dp_event.RepeatAndSelectDpEvent) else None
        if isinstance(leaf, dp_event.NonPrivateDpEvent) or (inner and not _is_private(inner)):
            return False
    return True

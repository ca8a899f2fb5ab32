"""Accountants of the papers, to reproduce their numbers."""

import math
from dataclasses import dataclass
from typing import ClassVar

from dp_accounting.dp_event import DpEvent
from scipy.optimize import minimize_scalar

from tacit import _validate
from tacit.accounting import classical
from tacit.accounting.accountants import Renyi, directions
from tacit.accounting.base import Accountant
from tacit.accounting.budget import Adjacency
from tacit.accounting.convert import gdp_delta, gdp_epsilon
from tacit.accounting.pairs import GaussianPair
from tacit.errors import InvalidArgument, UnsupportedEvent


@dataclass(frozen=True)
class Moments(Accountant):
    """The moments accountant of Abadi et al. 2016, as used in the thesis and the DP-PVI report.

    It integrates log-moments of order 1 to ``max_order`` numerically, in both directions, and applies the
    tail bound. Its epsilon is never below log(1/delta) / max_order, whatever the noise.

    Args:
        max_order: The largest order.
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

    With the classical Gaussian theorem this is the formula of DP-ADVI. It is valid only if a single
    step's epsilon is below one; otherwise an error is raised.

    Args:
        gaussian: The theorem for one step, ``"classical"`` or ``"analytic"``.
        slack: The share of delta that the composition theorem gets; None searches for the best.
        check: Whether to raise an error if the condition of the classical theorem fails.
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


def _total_mu(event: DpEvent, adjacency: Adjacency) -> float:
    parts = directions(event, adjacency)[0]
    if not parts or not all(isinstance(part.pair, GaussianPair) for part in parts):
        raise UnsupportedEvent(
            "The Gaussian mechanism covers full-data Gaussian noise only; use the pld accountant."
        )
    return math.sqrt(math.fsum(n * p.mu**2 for p, n in parts if isinstance(p, GaussianPair)))

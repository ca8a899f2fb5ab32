"""Accountants of the papers, to reproduce their numbers.

Each release gets an epsilon at its share of delta; sampling amplifies it (thesis Theorem 2.25); a composition theorem
adds them up (2.26, 2.27). The privacy-loss accountant is tighter and needs no validity conditions.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from scipy.optimize import minimize_scalar

from tacit import _validate
from tacit.accounting import events
from tacit.accounting.accountants import Accountant, Renyi, parts_by_direction
from tacit.accounting.budget import Adjacency
from tacit.accounting.convert import gdp_delta, gdp_epsilon
from tacit.accounting.events import DpEvent
from tacit.accounting.pairs import (
    GaussianPair,
    RemovedPair,
    ReplacedPair,
    SwappedPair,
    dominating_pairs,
)
from tacit.errors import InvalidArgument, TheoremDoesNotHold, UnsupportedEvent

GaussianTheorem = Literal["classical", "analytic"]


def classical_gaussian_epsilon(mu: float, delta: float, *, check: bool = True) -> float:
    """sqrt(2 log(1.25 / delta)) mu: the Gaussian mechanism of thesis Definition 2.17.

    The theorem holds for epsilon below one only, and above that the formula can be too
    small; ``check=False`` evaluates it regardless, for comparison with published figures.
    """
    epsilon = math.sqrt(2 * math.log(1.25 / delta)) * mu if delta > 0 else math.inf
    if check and not (epsilon < 1):
        raise TheoremDoesNotHold(
            f"The classical Gaussian theorem holds for a per-step epsilon below 1; here it "
            f"would be {epsilon:.3g}. Use more noise, the analytic form or the pld accountant."
        )
    return epsilon


def amplify(epsilon: float, sampling_rate: float) -> float:
    """Thesis Theorem 2.25: what sampling makes of a release's epsilon (delta shrinks too)."""
    if epsilon > 700:
        return epsilon + math.log(sampling_rate)
    return math.log1p(sampling_rate * math.expm1(epsilon))


def advanced_epsilon(steps: list[tuple[float, int]], slack: float) -> float:
    """Thesis Theorem 2.27 for (epsilon, count) pairs, giving up ``slack`` of delta.

    With all epsilons equal this is the theorem as printed; otherwise its sum form.
    """
    squares = math.fsum(count * epsilon**2 for epsilon, count in steps)
    drift = math.fsum(count * epsilon * math.expm1(min(epsilon, 700)) for epsilon, count in steps)
    return math.sqrt(2 * math.log(1 / slack) * squares) + drift


def step_epsilons(
    event: DpEvent,
    delta: float,
    adjacency: Adjacency,
    theorem: GaussianTheorem,
    check: bool = True,
) -> list[tuple[float, int]]:
    """Epsilon of every release when delta is shared equally among those that need one."""
    parts = [(_as_sampled_gaussian(leaf, adjacency), count) for leaf, count in events.leaves(event)]
    sharing = sum(count for part, count in parts if isinstance(part, _SampledGaussian))
    return [
        (part if isinstance(part, float) else part.epsilon(delta / sharing, theorem, check), count)
        for part, count in parts
    ]


@dataclass(frozen=True)
class _SampledGaussian:
    mu: float
    rate: float

    def epsilon(self, delta: float, theorem: GaussianTheorem, check: bool) -> float:
        delta = delta / self.rate
        if delta <= 0 or delta >= 1:
            return math.inf if delta <= 0 else 0.0
        if theorem == "classical":
            base = classical_gaussian_epsilon(self.mu, delta, check=check)
        else:
            base = gdp_epsilon(self.mu, delta)
        return amplify(base, self.rate)


def _as_sampled_gaussian(event: DpEvent, adjacency: Adjacency) -> float | _SampledGaussian:
    """A release as sampled Gaussian noise, or as its pure epsilon."""
    pair = dominating_pairs(event, adjacency)[0]
    match pair:
        case GaussianPair(mu=mu):
            return _SampledGaussian(mu, 1.0)
        case RemovedPair(rate=rate, scale=scale) | SwappedPair(rate=rate, scale=scale):
            return _SampledGaussian(1 / scale, rate)
        case ReplacedPair(rate=rate, scale=scale):
            # By joint convexity (Balle, Barthe and Gaboardi 2018): of the sampled record's
            # two exchanges, with nothing and with another, the larger counts.
            return _SampledGaussian(2 / scale, rate)
        case _:
            return pair.max_loss


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
    gaussian: GaussianTheorem = "classical"
    slack: float | None = 0.5
    check: bool = True

    def __post_init__(self) -> None:
        if self.slack is not None and not (0 < self.slack < 1):
            raise InvalidArgument(f"slack is a share of delta, between 0 and 1; got {self.slack}.")

    def _epsilon(self, event: DpEvent, delta: float, adjacency: Adjacency) -> float:
        if delta == 0:
            return Basic(self.gaussian).epsilon(event, 0.0, adjacency)

        def total(share: float) -> float:
            steps = step_epsilons(event, delta * (1 - share), adjacency, self.gaussian, self.check)
            return advanced_epsilon(steps, delta * share)

        if self.slack is not None:
            return total(self.slack)
        found = minimize_scalar(total, bounds=(1e-3, 1 - 1e-3), method="bounded")
        return float(min(found.fun, total(0.5)))


@dataclass(frozen=True)
class Basic(Accountant):
    """Basic composition, thesis Theorem 2.26: epsilons and deltas add up."""

    name: ClassVar[str] = "basic"
    gaussian: GaussianTheorem = "classical"

    def _epsilon(self, event: DpEvent, delta: float, adjacency: Adjacency) -> float:
        theorem = self.gaussian if delta > 0 else "analytic"
        steps = step_epsilons(event, delta, adjacency, theorem)
        return math.fsum(epsilon * count for epsilon, count in steps)


@dataclass(frozen=True)
class ClassicalGaussian(Accountant):
    """The Gaussian mechanism of thesis Definition 2.17, for full-data Gaussian noise only."""

    name: ClassVar[str] = "classical-gaussian"

    def _epsilon(self, event: DpEvent, delta: float, adjacency: Adjacency) -> float:
        return classical_gaussian_epsilon(_total_mu(event, adjacency), delta)


@dataclass(frozen=True)
class AnalyticGaussian(Accountant):
    """The exact Gaussian mechanism (Balle and Wang 2018), for full-data Gaussian noise only."""

    name: ClassVar[str] = "analytic-gaussian"

    def _epsilon(self, event: DpEvent, delta: float, adjacency: Adjacency) -> float:
        return gdp_epsilon(_total_mu(event, adjacency), delta)

    def _delta(self, event: DpEvent, epsilon: float, adjacency: Adjacency) -> float:
        return gdp_delta(_total_mu(event, adjacency), epsilon)


def _total_mu(event: DpEvent, adjacency: Adjacency) -> float:
    parts = parts_by_direction(event, adjacency)[0]
    if not parts or not all(isinstance(part.pair, GaussianPair) for part in parts):
        raise UnsupportedEvent(
            "The Gaussian mechanism covers full-data Gaussian noise only; use the pld accountant."
        )
    return math.sqrt(math.fsum(n * p.mu**2 for p, n in parts if isinstance(p, GaussianPair)))

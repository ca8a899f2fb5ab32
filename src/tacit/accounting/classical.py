"""Composition of (epsilon, delta) pairs, as the papers do it.

Each release gets an epsilon at its share of delta; sampling amplifies it (thesis Theorem
2.25); a composition theorem adds them up (2.26, 2.27). Kept for reproduction and for
comparison: the privacy-loss accountant is tighter and needs no validity conditions.
"""

import math
from dataclasses import dataclass
from typing import Literal

from dp_accounting.dp_event import DpEvent

from tacit.accounting import events
from tacit.accounting.budget import Adjacency
from tacit.accounting.convert import gdp_epsilon
from tacit.accounting.dominate import dominating_pairs
from tacit.accounting.pairs import GaussianPair, RemovedPair, ReplacedPair, SwappedPair
from tacit.errors import TheoremDoesNotHold

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
    parts = [(_reduce(leaf, adjacency), count) for leaf, count in events.leaves(event)]
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


def _reduce(event: DpEvent, adjacency: Adjacency) -> float | _SampledGaussian:
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

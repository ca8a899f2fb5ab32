"""Rounding, wrapping and cutting in the composition are charged: against sums in higher precision.

The grid of a composition is taken as given, and the same composition of its masses is computed
one product at a time, with eleven bits more: what differs is numerical error alone.
"""

import math
from dataclasses import replace

import mpmath
import numpy as np
import pytest

from tacit.accounting import pld
from tacit.accounting import pld as pld_module
from tacit.accounting.pairs import GaussianPair, LaplacePair, RemovedPair
from tacit.accounting.pld import CoarseComposition, Part, composed_delta, composed_epsilon

CASES = {
    "sampled": (RemovedPair(0.2, 1.5), 3, 1e-6),
    "a tiny delta": (RemovedPair(0.2, 1.5), 2, 1e-14),
    "laplace": (LaplacePair(0.8), 3, 1e-4),
}


class Slowly:
    """A composition by `pld`, and the same of its grid's masses in long doubles."""

    def __init__(self, case):
        pair, times, self.delta = CASES[case]
        part = Part(pair, times)
        self.epsilon = composed_epsilon([part], self.delta)
        coarse = CoarseComposition.from_parts([part]).cut(math.log(self.delta))
        self.plan = plan = pld_module.Window.around(coarse, self.epsilon, math.log(self.delta))
        self.composition = plan.compose()
        factor = pld_module.LossFactor.from_part(part, plan.ranges[0], plan)
        first = int(factor.indices[0])
        dense = np.zeros(int(factor.indices[-1]) - first + 1, np.longdouble)
        dense[factor.indices - first] = factor.tilted
        self.tilted = dense
        for _ in range(times - 1):
            self.tilted = np.convolve(self.tilted, dense)
        self.indices = np.arange(len(self.tilted)) + times * first
        self.losses = self.indices * np.longdouble(plan.width)
        self.masses = self.tilted * np.exp(
            times * np.longdouble(factor.log_scale) - np.longdouble(plan.tilt) * self.losses
        )
        self.past_grid = times * factor.beyond

    def in_the_window(self):
        """The tilted masses where the composition has them; what is outside wraps around."""
        first = math.floor(self.plan.low / self.plan.width)
        folded = np.zeros(self.plan.bins, np.longdouble)
        np.add.at(folded, (self.indices - first) % self.plan.bins, self.tilted)
        start = round(self.composition.first / self.composition.width) - first
        return folded[start : start + len(self.composition.masses)]

    def exact_delta(self, epsilon):
        excess = -np.expm1(np.minimum(epsilon - self.losses, 0))
        return float(np.sum(self.masses * excess))


@pytest.fixture(scope="module", params=CASES)
def slowly(request):
    return Slowly(request.param)


def test_the_bound_is_above_the_sum(slowly):
    for share in np.linspace(0.3, 1.6, 60):
        epsilon = share * slowly.epsilon
        if epsilon > slowly.composition.first:
            exact = slowly.exact_delta(epsilon) + slowly.past_grid
            assert slowly.composition.delta(epsilon) >= exact
    near = slowly.composition.delta(slowly.epsilon)
    assert near == pytest.approx(slowly.exact_delta(slowly.epsilon), rel=1e-3)


def test_rounding_is_within_the_error_that_is_stated(slowly):
    """In the norm in which it is charged; and it is not nothing."""
    composition = slowly.composition
    found = composition.masses / np.sqrt(composition.squared_weights)
    error = float(np.sqrt(np.sum((found - slowly.in_the_window()) ** 2)))
    assert 0 < error <= composition.error < 1e-9


@pytest.mark.parametrize("share", [2, 4, 8])
def test_a_window_that_is_too_small_makes_the_bound_loose_not_wrong(slowly, share):
    """A choice that needs no rigour; and then most of the mass may be above the window."""
    plan = replace(slowly.plan, bins=slowly.plan.bins // share)
    composition = plan.compose()
    for at in np.linspace(0.05, 0.95, 19):
        epsilon = plan.low + at * plan.bins * plan.width
        assert composition.delta(epsilon) >= min(slowly.exact_delta(epsilon), 1)


@pytest.mark.parametrize("error", [1e-12, 1e-3])
def test_any_error_of_the_stated_size_is_covered(slowly, error):
    """Whatever was wrong with the masses, the worst that could be among it."""
    composition = slowly.composition._replace(error=error)
    weights = np.sqrt(composition.squared_weights)
    losses = composition.first + composition.width * np.arange(len(weights))
    for epsilon in (0.8 * slowly.epsilon, slowly.epsilon, 1.1 * slowly.epsilon):
        if epsilon < composition.first:
            continue
        excess = -np.expm1(np.minimum(epsilon - losses, 0))
        direction = weights * excess
        worst = composition.masses + weights * error * direction / np.linalg.norm(direction)
        true = math.fsum(worst * excess) + composition.beyond  # without rounding of its own
        assert composition.delta(epsilon) >= min(true, 1) * (1 - 1e-13)


def test_worse_rounding_costs_more(monkeypatch):
    """From end to end: the error of a transform comes out of delta."""
    part = Part(RemovedPair(0.2, 1.5), 50)
    epsilon, delta = composed_epsilon([part], 1e-6), composed_delta([part], 4.0)
    monkeypatch.setattr(pld_module, "_FFT_ERROR", 1e-7)
    assert composed_epsilon([part], 1e-6) > epsilon * (1 + 1e-5)
    assert composed_delta([part], 4.0) > delta * (1 + 1e-5)


def test_tails_are_rounded_up():
    """One release has no transform; what its distribution function may err by is charged."""
    pair = GaussianPair(1.0)
    for epsilon in (0.5, 2.0, 6.0):
        with mpmath.workprec(200):
            exact = mpmath.ncdf(0.5 - epsilon) - mpmath.exp(epsilon) * mpmath.ncdf(-0.5 - epsilon)
            found = mpmath.mpf(pld.single_delta(pair, epsilon))
            assert exact < found < exact * (1 + mpmath.mpf("1e-9"))

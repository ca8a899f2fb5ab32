"""The composition against independent truths: other libraries, exact sums, brute force."""

import itertools
import math
from fractions import Fraction

import dp_accounting as dpa
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as dpa_pld
from scipy.special import expit

from tacit.accounting import PLD, convert, events
from tacit.accounting.pairs import BoundedRangePair, FinitePair, LaplacePair
from tacit.accounting.pld import Part, composed_delta, composed_epsilon, connect_dots, single_delta

RELATIONS = {
    "add-remove": dpa.NeighboringRelation.ADD_OR_REMOVE_ONE,
    "replace": dpa.NeighboringRelation.REPLACE_ONE,
}

# (sampling rate, noise multiplier, steps, delta, width of dp-accounting's grid)
GRID = [
    (1e-6, 0.5, 1_000, 1e-8, 1e-5),  # tiny rate: a rare jump decides
    (1e-5, 2.0, 100_000, 1e-9, 1e-6),  # tiny epsilon
    (1e-4, 10.0, 1_000, 1e-5, 1e-7),  # tiny epsilon
    (0.001, 0.4, 100, 1e-6, 1e-4),
    (0.001, 1.0, 1_000_000, 1e-6, 1e-4),  # a million steps
    (0.01, 0.5, 10_000, 1e-6, 1e-4),
    (0.02, 3.0, 2, 1e-5, 1e-5),
    (0.1, 50.0, 1_000, 1e-9, 1e-5),
    (0.2, 2.0, 100_000, 1e-6, 1e-3),  # huge epsilon
    (0.5, 0.3, 10, 1e-6, 1e-4),
    (0.9, 0.2, 30, 1e-9, 1e-3),  # huge epsilon
]
LONG = {0, 3, 5, 9}  # for dp-accounting


@pytest.mark.parametrize(
    ("case", "adjacency"),
    [
        pytest.param(
            case,
            adjacency,
            id=f"{case}-{adjacency}",
            marks=pytest.mark.slow if (i + j) % 2 or i in LONG else (),
        )
        for i, case in enumerate(GRID)
        for j, adjacency in enumerate(RELATIONS)
    ],
)
def test_agrees_with_dp_accounting(case, adjacency):
    rate, scale, steps, delta, width = case
    book = dpa.pld.PLDAccountant(RELATIONS[adjacency], width)
    book.compose(dpa.PoissonSampledDpEvent(rate, dpa.GaussianDpEvent(scale)), steps)
    run = events.sampled_gaussian(scale, rate, steps)
    assert PLD().epsilon(run, delta, adjacency) == pytest.approx(book.get_epsilon(delta), rel=6e-3)


@pytest.mark.parametrize("adjacency", RELATIONS)
@pytest.mark.parametrize(("rate", "scale", "steps"), [(0.05, 1.0, 100), (0.3, 2.0, 20)])
def test_is_above_an_optimistic_distribution(rate, scale, steps, adjacency):
    lower = dpa_pld.from_gaussian_mechanism(
        scale,
        sampling_prob=rate,
        pessimistic_estimate=False,
        value_discretization_interval=1e-4,
        use_connect_dots=False,
        neighboring_relation=RELATIONS[adjacency],
    ).self_compose(steps)
    run = events.sampled_gaussian(scale, rate, steps)
    for delta in (1e-2, 1e-5, 1e-8):
        epsilon = PLD().epsilon(run, delta, adjacency)
        assert epsilon >= lower.get_epsilon_for_delta(delta)
        assert PLD().delta(run, epsilon, adjacency) == pytest.approx(delta, rel=2e-3)


def test_delta_far_below_rounding_of_one():
    """dp-accounting has no answer here: its convolution drowns in rounding."""
    run = events.sampled_gaussian(1.0, 0.3, 50)
    epsilon = PLD().epsilon(run, 1e-20)
    assert 30 < epsilon < 40
    assert PLD().delta(run, epsilon) == pytest.approx(1e-20, rel=1e-3)
    # Between the exact bound without sampling and the Rényi bound.
    assert epsilon < convert.gdp_epsilon(math.sqrt(50), 1e-20)


@pytest.mark.parametrize(
    ("epsilon", "steps"),
    [(0.1, 50), (1.0, 7), pytest.param(0.01, 400, marks=pytest.mark.slow)],
)
def test_randomised_response_is_exact(epsilon, steps):
    """k-fold randomised response has a binomial privacy loss: sum it with fractions."""
    yes = Fraction(math.exp(epsilon) / (1 + math.exp(epsilon)))
    pair = FinitePair(p=(float(yes), float(1 - yes)), q=(float(1 - yes), float(yes)))
    for target in (0.0, 0.3 * epsilon * steps**0.5, epsilon * steps**0.5):
        factor = Fraction(math.exp(target))
        exact = sum(
            max(
                Fraction(0),
                math.comb(steps, k)
                * (
                    yes**k * (1 - yes) ** (steps - k) - factor * yes ** (steps - k) * (1 - yes) ** k
                ),
            )
            for k in range(steps + 1)
        )
        bound = composed_delta([Part(pair, steps)], target)
        assert float(exact) <= bound
        # The loss is a lattice; ours need not be on it, so the curve's kinks are smoothed.
        assert bound == pytest.approx(float(exact), rel=2e-2)


def test_pure_epsilon_adds_up():
    parts = [Part(LaplacePair(0.2), 3), Part(FinitePair((0.75, 0.25), (0.25, 0.75)), 2)]
    assert composed_epsilon(parts, 0.0) == pytest.approx(0.6 + 2 * math.log(3))
    assert composed_delta(parts, 0.6 + 2 * math.log(3) + 1e-9) == 0.0


def test_laplace_matches_dp_accounting():
    for scale, steps in ((0.5, 1), (5.0, 40)):
        theirs = dpa_pld.from_laplace_mechanism(scale).self_compose(steps)
        run = events.repeat(events.laplace(scale), steps)
        for delta in (1e-3, 1e-6):
            theirs_at = theirs.get_epsilon_for_delta(delta)
            assert PLD().epsilon(run, delta) == pytest.approx(theirs_at, rel=2e-3)


def test_mixed_composition_matches_dp_accounting():
    run = events.compose(
        events.sampled_gaussian([(2.0, 100), (1.5, 50)], 0.02),
        events.repeat(events.gaussian(6.0), 3),
        events.laplace(4.0),
    )
    book = dpa.pld.PLDAccountant(dpa.NeighboringRelation.ADD_OR_REMOVE_ONE)
    book.compose(events.to_dp_event(run))
    assert PLD().epsilon(run, 1e-5) == pytest.approx(book.get_epsilon(1e-5), rel=1e-3)


def bernoulli_delta(p, q, epsilon):
    """Hockey-stick divergence of two distributions over a few outcomes."""
    return float(np.maximum(np.asarray(p) - math.exp(epsilon) * np.asarray(q), 0).sum())


def bit(logit):
    return np.array([expit(logit), expit(-logit)])


def test_accept_bit_is_dominated_wherever_its_logit_is():
    width = 0.4
    pair = BoundedRangePair(width)
    for epsilon in np.linspace(0, 0.39, 9):
        worst = max(
            bernoulli_delta(bit(logit), bit(logit - width), epsilon)
            for logit in np.linspace(-6, 6, 4001)
        )
        assert worst <= single_delta(pair, float(epsilon)) <= worst + 1e-6


def test_adaptive_accept_bits_are_dominated():
    """Two bits, the second's logit chosen after seeing the first: try them all."""
    width, logits = 0.8, np.linspace(-4, 4, 41)
    run = events.repeat(events.BarkerTest(ratio_bound=width), 2)
    for epsilon in (0.0, 0.2, 0.6, 1.2):
        worst = 0.0
        for first, *then in itertools.product(logits, logits[::4], logits[::4]):
            p, q = (
                np.concatenate(
                    [bit(first - d)[i] * bit(second - d) for i, second in enumerate(then)]
                )
                for d in (0.0, width)
            )
            worst = max(worst, bernoulli_delta(p, q, epsilon))
        assert worst <= PLD().delta(run, epsilon)


def test_dots_keep_both_masses():
    pair = LaplacePair(1.0)
    edges = np.linspace(-1.1, 1.1, 45)
    masses, beyond = connect_dots(pair, edges)
    assert beyond == 0
    assert masses.sum() == pytest.approx(1, abs=1e-11)
    assert masses @ np.exp(-edges) == pytest.approx(1, abs=1e-9)


def test_nothing_costs_nothing():
    nothing = events.NoOpDpEvent()
    assert PLD().epsilon(nothing, 1e-6) == 0
    assert PLD().delta(nothing, 0.0) == 0
    no_noise = events.compose(events.gaussian(1.0), events.NonPrivateDpEvent())
    assert PLD().epsilon(no_noise, 1e-6) == math.inf
    assert PLD().delta(no_noise, 5.0) == 1

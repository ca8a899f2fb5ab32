"""Rényi divergences against high-precision integrals, dp-accounting and brute force."""

import math

import dp_accounting as dpa
import mpmath
import numpy as np
import pytest

from tacit.accounting import PLD, Renyi, events, renyi
from tacit.errors import UnsupportedEvent

DENSITIES = {  # positions of the mixture's moved part in the two worlds; None: not there
    "remove": (1, None),
    "add": (None, 1),
    "replace": (1, -1),
}


def exact_divergence(rate, scale, order, direction):
    def density(moved):
        def at(x):
            base = mpmath.npdf(x, 0, scale)
            if moved is None:
                return base
            return (1 - rate) * base + rate * mpmath.npdf(x, moved, scale)

        return at

    p, q = (density(moved) for moved in DENSITIES[direction])
    nodes = [scale * (k - 20) - order for k in range(int(3 * order / scale) + 41)]
    integral = mpmath.quad(lambda x: p(x) ** order * q(x) ** (1 - order), nodes)
    return float(mpmath.log(integral) / (order - 1))


@pytest.mark.parametrize("direction", DENSITIES)
@pytest.mark.parametrize(
    ("rate", "scale", "order"),
    [
        (0.01, 1.0, 1.1),
        pytest.param(0.5, 0.5, 2.5, marks=pytest.mark.slow),
        (1e-6, 3.0, 2),
        (1e-4, 0.7, 5),
        (1e-13, 30.0, 3),
        pytest.param(0.9, 5, 40, marks=pytest.mark.slow),
    ],
)
def test_quadrature_is_exact(rate, scale, order, direction):
    with mpmath.workdps(40):
        exact = exact_divergence(rate, scale, order, direction)
    ours = renyi.log_moment(rate, scale, order, direction) / (order - 1)
    assert ours == pytest.approx(exact, rel=1e-9)


def test_whole_orders_match_dp_accounting():
    orders = np.array([2.0, 3.0, 8.0, 32.0, 100.0])
    for rate, scale in ((0.01, 1.0), (0.9, 5.0), (1e-6, 3.0)):
        book = dpa.rdp.RdpAccountant(list(orders))
        book.compose(dpa.PoissonSampledDpEvent(rate, dpa.GaussianDpEvent(scale)))
        ours = renyi.divergence(events.sampled_gaussian(scale, rate), orders, "add-remove")
        np.testing.assert_allclose(ours, book.rdp, rtol=1e-5)


@pytest.mark.parametrize("shape", [0.0, 0.5, 1.0, math.inf])
def test_repeat_and_select_matches_dp_accounting(shape):
    orders = renyi.default_orders(integer=False)
    run = events.repeat_and_select(events.gaussian(4.0), 10, shape)
    book = dpa.rdp.RdpAccountant(list(orders))
    book.compose(events.to_dp_event(run))
    np.testing.assert_allclose(renyi.divergence(run, orders, "add-remove"), book.rdp, rtol=1e-8)


def test_selection_costs_less_than_ten_runs():
    base = events.sampled_gaussian(2.0, 0.01, 1000)
    best = PLD().epsilon(events.repeat_and_select(base, 10), 1e-6)
    assert PLD().epsilon(base, 1e-6) < best < PLD().epsilon(events.repeat(base, 10), 1e-6)


def test_selection_works_under_replace():
    run = events.repeat_and_select(events.sampled_gaussian(2.0, 0.01, 1000), 5, 1.0)
    assert PLD().epsilon(run, 1e-6, "replace") > PLD().epsilon(run, 1e-6)


def gaussian_divergence(order, mean, variance, other_mean, other_variance):
    """Lemma 1 of Heikkilä et al. 2019."""
    mixed = order * other_variance + (1 - order) * variance
    if mixed <= 0:
        return math.inf
    return (
        0.5 * math.log(other_variance / variance)
        + math.log(other_variance / mixed) / (2 * (order - 1))
        + order / 2 * (mean - other_mean) ** 2 / mixed
    )


@pytest.mark.parametrize("paper_bound", [False, True])
def test_barker_theorem_holds_for_every_exchange_tried(paper_bound):
    rng = np.random.default_rng(0)
    b = 100
    worst = {2: 0.0, 5: 0.0, 15: 0.0}
    for _ in range(4000):
        style = rng.integers(4)
        ratios = rng.uniform(-1, 1, b) if style else rng.choice([-1.0, 1.0], b)
        if style == 1:
            ratios = np.sign(ratios) * np.abs(ratios) ** 0.1
        other = ratios.copy()
        ratios[0], other[0] = rng.choice([(-1, 1), (1, -1), (0, 1), (1, 0), (-1, 0)])
        means = [math.sqrt(b) * r.mean() for r in (ratios, other)]
        variances = [2 - r.var() for r in (ratios, other)]
        for order, most in worst.items():
            found = gaussian_divergence(order, means[0], variances[0], means[1], variances[1])
            worst[order] = max(most, found)
    orders = np.array(list(worst), dtype=float)
    claimed = renyi.barker_divergence(b, orders, paper_bound=paper_bound)
    assert np.all(claimed >= np.array(list(worst.values())))


def test_subsampled_barker_has_no_add_remove_bound():
    run = events.SubsampledBarkerTest(batch_size=100, dataset_size=10_000)
    with pytest.raises(UnsupportedEvent, match="replace"):
        PLD().epsilon(run, 1e-6)
    assert PLD().epsilons(run, 1e-6)["add-remove"] is None
    assert PLD().epsilon(run, 1e-6, "replace") > 0


def test_one_part_without_a_pair_sends_all_by_orders():
    chain = events.repeat(events.SubsampledBarkerTest(batch_size=1000, dataset_size=10**6), 1000)
    start = events.sampled_gaussian(10.0, 1e-4, 1000)
    run = events.compose(start, chain)
    assert PLD.needs_renyi_orders(run)
    both = PLD().epsilon(run, 1e-6, "replace")
    assert both == Renyi().epsilon(run, 1e-6, "replace")
    assert both > PLD().epsilon(chain, 1e-6, "replace")


@pytest.mark.parametrize(
    "event",
    [
        events.repeat(events.SubsampledBarkerTest(batch_size=1000, dataset_size=10**6), 1000),
        events.sampled_gaussian(1.3, 0.01, 200),
        events.repeat(events.BarkerTest(ratio_bound=0.01), 1000),
    ],
)
def test_orders_given_as_whole_numbers_bound_as_much_as_the_same_orders_as_floats(event):
    whole, floats = (Renyi(orders=tuple(kind(k) for k in range(2, 41))) for kind in (int, float))
    assert whole.epsilon(event, 1e-6, "replace") == floats.epsilon(event, 1e-6, "replace")
    assert whole.delta(event, 1.0, "replace") == floats.delta(event, 1.0, "replace")

import math

import dp_accounting as dpa
import pytest

from tacit.accounting import PLD, Budget, Renyi, convert, events
from tacit.errors import InvalidArgument


def test_gdp_matches_dp_accounting():
    for mu, delta in ((0.1, 1e-3), (1.0, 1e-5), (20.0, 1e-9)):
        theirs = dpa.get_epsilon_gaussian(1 / mu, delta)
        assert convert.gdp_epsilon(mu, delta) == pytest.approx(theirs, rel=1e-9)
        assert convert.gdp_delta(mu, theirs) == pytest.approx(delta, rel=1e-6)
    assert convert.gdp_epsilon(1.0, 0.0) == math.inf
    assert convert.gdp_epsilon(0.01, 0.5) == 0


def test_zcdp_lies_between_exact_and_basic():
    mu = 0.5
    exact = convert.gdp_epsilon(mu, 1e-6)
    by_zcdp = convert.zcdp_epsilon(mu**2 / 2, 1e-6)
    simple = mu**2 / 2 + 2 * math.sqrt(mu**2 / 2 * math.log(1e6))  # Bun and Steinke 2016
    assert exact < by_zcdp < simple
    assert by_zcdp == pytest.approx(Renyi().epsilon(events.gaussian(1 / mu), 1e-6), rel=1e-4)


def test_improved_conversion_is_never_worse():
    orders = [1.5, 2.0, 4.0, 16.0, 64.0]
    divergences = [0.02 * order for order in orders]
    for delta in (1e-2, 1e-5, 1e-9):
        improved = convert.renyi_epsilon(orders, divergences, delta)
        assert improved <= convert.renyi_epsilon(orders, divergences, delta, "basic")
        there = convert.renyi_delta(orders, divergences, improved)
        assert there == pytest.approx(delta, rel=1e-6)


def test_divergences_are_checked():
    for orders, divergences in (([1.0], [0.1]), ([2.0], [-0.1]), ([2.0, 3.0], [0.1]), ([], [])):
        with pytest.raises(InvalidArgument):
            convert.renyi_epsilon(orders, divergences, 1e-5)


def test_group_privacy_of_one_is_the_same():
    assert convert.group_privacy(Budget(0.7, 1e-6), 1) == Budget(0.7, 1e-6)


def test_group_privacy_covers_a_gaussian_group():
    """A group of k shifts a Gaussian release k times as far; the rule must cover that."""
    delta = 1e-9
    epsilon = convert.gdp_epsilon(0.2, delta)
    for k in (2, 5):
        claimed = convert.group_privacy(Budget(epsilon, delta), k)
        assert claimed.delta >= convert.gdp_delta(0.2 * k, claimed.epsilon)


def test_group_without_a_guarantee_is_refused():
    with pytest.raises(InvalidArgument, match="no guarantee"):
        convert.group_privacy(Budget(2, 1e-3), 10)
    with pytest.raises(InvalidArgument, match="meaningful"):
        convert.group_privacy(Budget(2, 1e-3), 1000)


def test_replace_theorems_cover_the_direct_computation():
    run = events.sampled_gaussian(1.0, 0.05, 100)
    one = Budget(PLD().epsilon(run, 1e-6), 1e-6)
    by_theorem = convert.add_remove_to_replace(one)
    assert by_theorem.adjacency == "replace"
    assert PLD().epsilon(run, by_theorem.delta, "replace") <= by_theorem.epsilon
    pure = convert.add_remove_to_replace(Budget(0.5))
    assert pure == Budget(1.0, 0.0, "replace")
    with pytest.raises(InvalidArgument, match="already"):
        convert.add_remove_to_replace(by_theorem)


def test_doubling_epsilon_alone_would_be_wrong():
    run = events.sampled_gaussian(2.0, 0.05, 1000)
    assert 2 * PLD().epsilon(run, 1e-3) < PLD().epsilon(run, 1e-3, "replace")

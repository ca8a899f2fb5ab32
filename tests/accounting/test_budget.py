import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tacit.accounting import ADJACENCIES, PLD, Budget, accountants, calibrate, events, meaning
from tacit.errors import BudgetError, InvalidArgument

budgets = st.builds(
    Budget,
    st.sampled_from([0.0, 0.5, 1.0, 2.0]),
    st.sampled_from([0.0, 1e-6, 1e-5]),
    st.sampled_from(ADJACENCIES),
    st.sampled_from([None, 0.1, 0.5]),
)


@given(budgets, budgets, budgets)
def test_is_a_partial_order(a, b, c):
    assert a <= a  # noqa: PLR0124
    assert not (a <= b and b <= a) or a == b
    assert not (a <= b and b <= c) or a <= c
    assert (a < b) == (a <= b and a != b)
    assert (a >= b) == (b <= a)
    assert (a > b) == (b < a)


def test_trading_epsilon_for_delta_is_not_comparable():
    assert not Budget(1, 1e-5) <= Budget(2, 1e-6)
    assert not Budget(2, 1e-6) <= Budget(1, 1e-5)


def test_adjacencies_are_not_comparable():
    assert not Budget(1, 0, "replace") <= Budget(5, 0, "add-remove")
    assert not Budget(1, 0, "add-remove") <= Budget(5, 0, "replace")


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ((-1.0,), "epsilon"),
        ((math.nan,), "epsilon"),
        ((math.inf,), "epsilon"),
        (("1",), "epsilon"),
        ((1.0, 1.0), "delta"),
        ((1.0, -1e-9), "delta"),
        ((1.0, math.nan), "delta"),
        ((1.0, 0.0, "swap"), "adjacency"),
    ],
)
def test_refuses_what_is_no_budget(arguments, word):
    with pytest.raises(InvalidArgument, match=word):
        Budget(*arguments)


def test_best_guess_runs_from_a_coin_to_certainty():
    assert Budget(0).best_guess == 0.5
    assert Budget(0, 0.5).best_guess == 0.75
    assert Budget(1e4).best_guess == pytest.approx(1)
    assert Budget(math.log(3)).best_guess == pytest.approx(0.75)


def test_explanation_never_understates():
    for epsilon in (0.01, 0.5, 1, 4, 8, 12):
        percent = float(Budget(epsilon, 1e-6).explain().split("most ")[1].split("%")[0])
        assert percent / 100 >= Budget(epsilon, 1e-6).best_guess
        assert percent <= 100
    assert "which of two records" in Budget(1, 0, "replace").explain()


def gaussian_power(mu, level):
    """The power of the best test of N(mu, 1) against N(0, 1), by the lemma of Neyman and Pearson."""
    return stats.norm.sf(stats.norm.isf(level) - mu)


def test_the_meaning_of_gaussian_noise_is_that_of_the_best_test():
    for scale in (0.5, 2.0, 10.0):
        found = meaning.event_meaning(events.gaussian(scale))
        assert found.advantage == pytest.approx(2 * stats.norm.cdf(0.5 / scale) - 1, rel=1e-6)
        for level, rate in zip(
            meaning.FALSE_POSITIVE_RATES, found.true_positive_rates, strict=True
        ):
            assert rate == pytest.approx(gaussian_power(1 / scale, level), rel=1e-3)
            assert rate >= gaussian_power(1 / scale, level) * (1 - 1e-9)


def test_the_meaning_of_a_budget_is_that_of_randomised_response():
    """Which reveals a bit by this epsilon, and with probability delta for certain: the worst case of a pair."""
    epsilon, delta = 1.3, 0.02
    found = meaning.budget_meaning(Budget(epsilon, delta))
    keep = (1 - delta) * np.exp(epsilon) / (1 + np.exp(epsilon))
    p = np.array([delta, 0, keep, 1 - delta - keep])
    q = np.array([0, delta, 1 - delta - keep, keep])
    assert found.advantage == pytest.approx(np.maximum(p - q, 0).sum())
    for level, rate in zip(meaning.FALSE_POSITIVE_RATES, found.true_positive_rates, strict=True):
        # Say yes to what shows it, and to a part of what makes it likely.
        assert rate == pytest.approx(p[0] + p[2] * level / q[2])
        assert rate >= meaning.true_positive_rate(
            events.gaussian(calibrate.noise_multiplier(Budget(epsilon, delta))), level
        )


def test_sampled_runs_have_the_meaning_of_their_curve():
    """An attack on samples: a threshold on the sum, in both worlds, at a rate that was not fitted."""
    run = events.sampled_gaussian(1.0, 0.3, 4)
    found = meaning.event_meaning(run)
    rng = np.random.default_rng(0)
    out = rng.normal(size=(200_000, 4))
    member = out + (rng.random(out.shape) < 0.3)
    loss = [np.log(0.7 + 0.3 * np.exp(x - 0.5)).sum(axis=1) for x in (out, member)]
    for level, rate in zip(meaning.FALSE_POSITIVE_RATES, found.true_positive_rates, strict=True):
        reached = np.mean(loss[1] > np.quantile(loss[0], 1 - level))
        assert reached - 0.005 < rate < reached + 0.02
    threshold = np.mean(loss[1] > 0) - np.mean(loss[0] > 0)
    assert threshold - 0.005 < found.advantage < threshold + 0.02


@pytest.mark.parametrize("adjacency", ["add-remove", "replace"])
def test_a_budget_by_its_advantage_is_kept(adjacency):
    budget = Budget(advantage=0.1, adjacency=adjacency)
    assert budget.delta == 1e-6
    for sampling_rate, steps in ((1.0, 29), (0.1, 50)):
        noise = calibrate.noise_multiplier(budget, sampling_rate=sampling_rate, num_steps=steps)
        run = events.sampled_gaussian(noise, sampling_rate, steps)
        assert 0.09 < PLD().delta(run, 0.0, adjacency) <= 0.1
        assert accountants.cost(run, budget).epsilon <= budget.epsilon
    # Laplace noise of the same epsilon has a larger advantage, so the run is refused.
    pure = events.laplace((2 if adjacency == "replace" else 1) / budget.epsilon)
    with pytest.raises(BudgetError, match="advantage"):
        accountants.cost(pure, budget)
    accountants.cost(pure, Budget(budget.epsilon, budget.delta, adjacency))


def test_advantages_are_checked():
    assert Budget(advantage=0.2, epsilon=0.1).best_guess < 0.55
    assert Budget(advantage=0.2, delta=1e-5).delta == 1e-5
    assert Budget(0.5, 1e-6, advantage=0.3) <= Budget(0.5, 1e-6)
    assert not Budget(3, 1e-6) <= Budget(3, 1e-6, advantage=0.3)
    for wrong in (0, 1, -0.1, "much", math.nan):
        with pytest.raises(InvalidArgument, match="advantage"):
            Budget(advantage=wrong)
    with pytest.raises(InvalidArgument, match="Pass an epsilon"):
        Budget()


def test_points_of_a_curve_bound_an_attacker_nearly_as_well_as_all_of_it():
    for event in (events.sampled_gaussian(4.0, 1.0, 1), events.sampled_gaussian(1.0, 0.05, 40)):
        whole = meaning.event_meaning(event)
        curve = PLD().curve(event, "add-remove", tuple(10.0**-k for k in range(12, 0, -1)))
        some = meaning.curve_meaning(whole.advantage, curve)
        for rough, tight in zip(some.true_positive_rates, whole.true_positive_rates, strict=True):
            assert tight - 1e-6 <= rough <= 1.1 * tight

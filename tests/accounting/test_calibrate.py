import math

import pytest

from tacit.accounting import PLD, Budget, calibrate, events
from tacit.errors import BudgetError, InvalidArgument
from tacit.papers.accountants import Advanced, Moments


@pytest.mark.parametrize("adjacency", ["add-remove", "replace"])
def test_most_steps_is_the_last_that_fits(adjacency):
    budget = Budget(1, 1e-5, adjacency)
    most = calibrate.num_steps(budget, noise_multiplier=1.0, sampling_rate=0.01)
    fits, too_many = (
        PLD().epsilon(events.sampled_gaussian(1.0, 0.01, t), 1e-5, adjacency)
        for t in (most, most + 1)
    )
    assert fits <= 1 < too_many


def test_largest_rate_fits_and_no_larger_does():
    budget = Budget(1, 1e-5)
    rate = calibrate.sampling_rate(budget, noise_multiplier=1.0, num_steps=2000)
    fits, too_often = (
        PLD().epsilon(events.sampled_gaussian(1.0, q, 2000), 1e-5) for q in (rate, 1.001 * rate)
    )
    assert fits <= 1 < too_often


def test_rate_is_one_where_all_may_be_looked_at():
    assert calibrate.sampling_rate(Budget(1, 1e-5), noise_multiplier=20, num_steps=2) == 1.0


def test_any_family_of_events_can_be_calibrated():
    scale = calibrate.calibrate(
        lambda s: events.compose(events.laplace(s), events.laplace(2 * s)), Budget(0.5)
    )
    assert 1.5 / scale <= 0.5
    assert scale == pytest.approx(3.0, rel=1e-4)


def test_pure_budget_cannot_be_met_by_gaussian_noise():
    with pytest.raises(BudgetError, match="Laplace"):
        calibrate.noise_multiplier(Budget(1), sampling_rate=0.1, num_steps=10)
    with pytest.raises(BudgetError, match="Not one step"):
        calibrate.num_steps(Budget(1), noise_multiplier=5)


def test_moments_accountant_says_when_it_cannot():
    with pytest.raises(BudgetError, match="pld"):
        calibrate.noise_multiplier(Budget(0.1, 1e-6), accountant=Moments())


def test_validity_condition_bounds_the_noise_from_below():
    """The classical theorem holds only below one a step, so its noise is never less."""
    scale = calibrate.noise_multiplier(
        Budget(20, 1e-3), sampling_rate=0.005, num_steps=10, accountant=Advanced()
    )
    share = 1e-3 / 2 / 10 / 0.005
    assert math.sqrt(2 * math.log(1.25 / share)) / scale < 1


def test_a_delta_that_needs_no_noise_is_refused():
    with pytest.raises(BudgetError, match="Choose a delta"):
        calibrate.noise_multiplier(Budget(1, 0.4), sampling_rate=1e-3, num_steps=10)


def test_zero_epsilon_is_refused():
    with pytest.raises(BudgetError, match="positive epsilon"):
        calibrate.noise_multiplier(Budget(0, 1e-5))


def test_not_one_step():
    with pytest.raises(BudgetError, match="Raise the noise"):
        calibrate.num_steps(Budget(0.01, 1e-9), noise_multiplier=0.5, sampling_rate=0.5)


def test_wrong_arguments():
    for wrong in ({"sampling_rate": 0}, {"sampling_rate": 1.5}, {"num_steps": 0}):
        with pytest.raises(InvalidArgument):
            calibrate.noise_multiplier(Budget(1, 1e-5), **wrong)
    with pytest.raises(InvalidArgument):
        calibrate.num_steps(Budget(1, 1e-5), noise_multiplier=-1)

"""DP-SGLD as published: its temperature, its noise, its charge; and ours beside it."""

import numpy as np
import pytest
import thesis_langevin as experiment
from mixture import mixture_moments, mixture_rows, two_means

from tacit import Budget, Langevin, Rows, fit, fit_without_privacy
from tacit.accounting import calibrate
from tacit.errors import BudgetError, InvalidArgument
from tacit.methods import PublishedLangevin

COUNTED = 100


def variances(model, x, exact, method, budget, chains, alike):
    """Variances over true ones, and the standard errors of that."""
    _, truth = exact(x, COUNTED)
    _, found, error, _ = experiment.moments(model, x, method, budget, chains, alike=alike)
    return found / truth, error / truth


@pytest.mark.slow
def test_on_a_gaussian_ours_is_right_and_the_published_one_has_half_the_variance():
    x = experiment.gaussian_rows(40_000, 32)
    settings = {
        "sampling_rate": 0.005,
        "num_steps": 12_000,
        "clip": 9.0,
        "step_size": 1.2e-4,
        "size": len(x),
        "tempered_size": COUNTED,
        "burn_in": 0.1,
    }
    for method, share in ((Langevin(**settings), 1), (PublishedLangevin(**settings), 0.5)):
        ratio, error = variances(
            experiment.gaussian(32),
            x,
            experiment.gaussian_moments,
            method,
            Budget(20, 1e-5),
            8,
            True,
        )
        assert error < 0.01
        assert ratio == pytest.approx(share, rel=0.03)


@pytest.mark.slow
def test_on_a_mixture_ours_is_right_and_the_published_one_too_narrow():
    x = mixture_rows(100_000)
    settings = {
        "sampling_rate": 0.004,
        "num_steps": 40_000,
        "clip": 5.0,
        "step_size": 3e-3,
        "size": len(x),
        "tempered_size": COUNTED,
        "burn_in": 0.1,
        "thin": 10,
    }
    mixed = two_means(), x, mixture_moments
    ours, error = variances(*mixed, Langevin(**settings), Budget(20, 1e-5), 16, False)
    assert np.all(error < 0.04)
    assert ours == pytest.approx([1, 1], rel=0.15)
    published, error = variances(*mixed, PublishedLangevin(**settings), Budget(20, 1e-5), 16, False)
    assert np.all(error < 0.04)
    assert np.all((published > 0.6) & (published < 0.88))


def test_no_rows_wander_in_half_the_prior():
    rows = Rows({"x": np.zeros((0, 3))})
    method = PublishedLangevin(sampling_rate=0.5, num_steps=20_000, step_size=0.05, clip=5e-4)
    draws = fit(experiment.gaussian(3), rows, budget=Budget(5, 1e-5), method=method, seed=0).draws
    assert draws["theta"].var() == pytest.approx(0.5, rel=0.2)
    alone = fit_without_privacy(experiment.gaussian(3), rows, method=method).draws
    assert alone["theta"].var() == pytest.approx(0.5, rel=0.2)


def test_where_privacy_asks_for_the_noise_the_chain_is_hot():
    rows = Rows({"x": np.zeros((0, 3))})
    method = PublishedLangevin(sampling_rate=0.5, num_steps=5000, step_size=0.1, clip=1.0)
    draws = fit(experiment.gaussian(3), rows, budget=Budget(5, 1e-5), method=method, seed=0).draws
    assert draws["theta"].var() > 100


@pytest.mark.parametrize(
    ("adjacency", "least", "most"), [("replace", 350, 820), ("add-remove", 1000, 3000)]
)
def test_its_noise_is_far_more_than_needed_and_charged_as_what_it_is(adjacency, least, most):
    budget = Budget(1, 1e-5, adjacency=adjacency)
    method = PublishedLangevin(sampling_rate=0.01, num_steps=2000, step_size=1.0)
    model = experiment.gaussian(3)
    needed = calibrate.noise_multiplier(budget, sampling_rate=0.01, num_steps=2000)
    ((noise, _),) = method.calibrate(model, budget).phases
    assert least < (noise / needed) ** 2 < most
    rows = Rows({"x": np.zeros((10, 3))})
    spent = fit(model, rows, budget=budget, method=method, seed=0).privacy.epsilons[adjacency]
    assert spent < 0.1


def test_runs_too_short_for_its_noise_are_refused():
    method = PublishedLangevin(sampling_rate=0.001, num_steps=5, step_size=1.0, clip=100.0)
    model = experiment.gaussian(3)
    with pytest.raises(BudgetError, match="needs 40,964 steps or more"):
        method.calibrate(model, Budget(4, 1e-5))
    with pytest.raises(BudgetError, match="delta above 0"):
        method.calibrate(model, Budget(4, 0))
    with pytest.raises(InvalidArgument, match="no default step"):
        PublishedLangevin(step_size=None)

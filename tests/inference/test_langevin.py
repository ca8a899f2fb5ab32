"""Langevin chains: the right temperature, whether the release carries the noise or not."""

from dataclasses import replace
from functools import cache

import jax.numpy as jnp
import numpy as np
import pytest

from tacit import Budget, Langevin, Ledger, Model, Rows, fit, fit_without_privacy
from tacit.api.fit import fit_many
from tacit.errors import InvalidArgument
from tacit.models import Parameter

RNG = np.random.default_rng(0)
X = RNG.normal(size=(4000, 2)) @ np.array([[1.0, 0.5], [0.0, 0.8]])
Y = X @ [1.0, -0.5] + RNG.normal(size=4000)
ROWS = Rows({"x": X, "y": Y})
PRECISION = X.T @ X + np.eye(2)
MEAN, COVARIANCE = np.linalg.solve(PRECISION, X.T @ Y), np.linalg.inv(PRECISION)
SD = np.sqrt(np.diag(COVARIANCE))
BUDGET = Budget(2, 1e-5)


@cache
def linear():
    return Model(
        parameters={"w": Parameter((2,))},
        log_prior=lambda p: -0.5 * jnp.sum(p["w"] ** 2),
        log_likelihood=lambda p, row: -0.5 * (row["y"] - jnp.dot(row["x"], p["w"])) ** 2,
    ).unit_model


@pytest.mark.slow
def test_without_noise_it_is_the_posterior():
    method = Langevin(sampling_rate=1.0, num_steps=30_000, clip=100.0, step_size=2e-5, burn_in=0.1)
    post = fit_without_privacy(linear(), ROWS, method=method)
    assert post.mean()["w"] == pytest.approx(MEAN, abs=0.2 * SD.min())
    assert post.sd()["w"] == pytest.approx(SD, rel=0.1)
    assert np.corrcoef(post.draws["w"].T)[0, 1] == pytest.approx(
        COVARIANCE[0, 1] / SD.prod(), abs=0.1
    )


def chains(method, budget, count=8):
    return fit_many(linear(), [ROWS] * count, [budget] * count, method, seeds=range(count))


def spread(posteriors):
    """Root mean square distance from the true mean, in true standard deviations."""
    draws = np.stack([posterior.draws["w"] for posterior in posteriors])
    with np.errstate(over="ignore", invalid="ignore"):
        return np.sqrt(((draws - MEAN) ** 2).mean(axis=(0, 1))) / SD


@pytest.mark.slow
@pytest.mark.parametrize(
    ("epsilon", "size", "spent"),
    [(2, 1000, 2), (20, 4000, None)],
)
def test_the_default_step_is_right_whether_privacy_or_the_posterior_bounds_it(epsilon, size, spent):
    method = Langevin(sampling_rate=0.25, num_steps=12_000, clip=4.0, size=size, burn_in=0.3)
    budget = Budget(epsilon, 1e-5)
    sizes, missing = method.sizes(method.calibrate(linear(), budget))
    assert np.all(missing < 1e-3 * np.sqrt(2 * sizes))  # the release carries all of the noise
    posteriors = chains(method, budget)
    assert spread(posteriors) == pytest.approx(1, rel=0.25)
    charged = posteriors[0].privacy.epsilons["add-remove"]
    assert charged < epsilon / 2 if spent is None else charged == pytest.approx(spent, rel=1e-3)


@pytest.mark.slow
def test_the_largest_step_that_the_budget_allows_can_be_too_large():
    given = Langevin(sampling_rate=0.25, num_steps=8000, clip=4.0, step_size=1.0)
    budget = Budget(60, 1e-5)
    with pytest.raises(InvalidArgument, match="larger than") as refused:
        given.calibrate(linear(), budget)
    largest = float(str(refused.value).split()[4])
    wide = spread(chains(replace(given, step_size=0.99 * largest), budget, 4))
    assert np.all(~(wide < 10))  # or not even finite
    bounded = spread(chains(replace(given, step_size=None, size=4000), budget, 4))
    assert np.all(bounded < 1.5)


@pytest.mark.slow
def test_a_declared_size_may_be_a_guess():
    for guess in (1000, 16_000):
        method = Langevin(sampling_rate=0.25, num_steps=4000, clip=4.0, size=guess, burn_in=0.3)
        assert np.all(spread(chains(method, Budget(20, 1e-5), 4)) < 2)


@pytest.mark.slow
def test_a_tempered_posterior_is_that_of_fewer_units():
    # Each row counts as a sixteenth, so that all deviations are about four times as large.
    method = Langevin(
        sampling_rate=0.1, num_steps=8000, clip=6.0, size=4000, tempered_size=250, burn_in=0.2
    )
    precision = X.T @ X / 16 + np.eye(2)
    truth = np.sqrt(np.diag(np.linalg.inv(precision)))
    posteriors = chains(replace(method, step_size=1e-4), BUDGET)
    draws = np.concatenate([posterior.draws["w"] for posterior in posteriors])
    assert draws.std(axis=0) == pytest.approx(truth, rel=0.15)
    assert "4,000 units count as 250" in method.describe(linear())


def test_no_rows_wander_in_the_prior():
    empty = Rows({"x": np.zeros((0, 2)), "y": np.zeros(0)})
    method = Langevin(sampling_rate=0.5, num_steps=20_000, step_size=0.05, clip=0.01)
    post = fit(linear(), empty, budget=Budget(5, 1e-5), method=method, seed=0)
    assert post.sd()["w"] == pytest.approx([1, 1], rel=0.2)


def test_small_steps_carry_more_noise_and_cost_less():
    largest = Langevin(sampling_rate=0.2, num_steps=400, size=1)
    size = float(largest.sizes(largest.calibrate(linear(), BUDGET))[0][0])
    falling = Langevin(
        sampling_rate=0.2, num_steps=400, step_size=lambda step: size / (1 + step / 100)
    )
    release = falling.calibrate(linear(), BUDGET)
    assert len(release.phases) > 10
    post = fit(linear(), ROWS, budget=BUDGET, method=falling, seed=0)
    assert post.privacy.epsilons["add-remove"] < 1.8
    assert len(post.draws["w"]) == 200


def test_steps_that_would_be_too_hot_are_refused():
    with pytest.raises(InvalidArgument, match="spread too wide"):
        fit(linear(), ROWS, budget=BUDGET, method=Langevin(step_size=1.0))
    mild, hot = (Langevin(step_size=size, num_steps=50, hot=True) for size in (1e-6, 1.0))
    found = fit(linear(), ROWS, budget=BUDGET, method=mild)
    assert found.chain
    assert not any("spread wider" in each for each in found.messages)
    found = fit(linear(), ROWS, budget=BUDGET, method=hot)
    assert "spread wider" in found.messages[-1]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"burn_in": 1.0}, "burn_in must be"),
        ({"thin": 0}, "thin"),
        ({"step_size": -1.0}, "step_size"),
        ({"num_steps": 10, "burn_in": 0.99}, "leave no draw"),
        ({"tempered_size": 10}, "tempered_size needs size="),
        ({"size": 100, "tempered_size": 101}, "at most size"),
        ({"size": 0}, "size"),
        ({"sampling_rate": 0}, "sampling_rate"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, words):
    with pytest.raises(InvalidArgument, match=words):
        Langevin(**{"step_size": 1e-3} | settings)


def test_a_plain_chain_needs_a_step_or_a_size():
    with pytest.raises(InvalidArgument, match="pass size="):
        fit(linear(), ROWS, budget=BUDGET, method=Langevin(clip=1.0))


def test_a_chain_is_repeatable_charged_and_says_so(tmp_path):
    method = Langevin(num_steps=60, thin=2, size=1)
    ledger = Ledger.new(tmp_path / "l.db", total=Budget(3, 1e-4))
    fit(linear(), ROWS, budget=BUDGET, method=method, ledger=ledger)
    assert ledger.left.epsilon == pytest.approx(1)
    first, second = (fit(linear(), ROWS, budget=BUDGET, method=method, seed=3) for _ in range(2))
    assert np.array_equal(first.draws["w"], second.draws["w"])
    assert len(first.draws["w"]) == 15
    first.save(tmp_path / "c.nc")
    assert type(first).load(tmp_path / "c.nc").chain


def test_sums_over_many_rows_that_agree_do_not_wrap_around():
    """The chain goes towards the data, however many rows pull at it."""
    many = Rows({"x": np.full(600_000, 5.0, np.float32)})
    mean = Model(
        parameters={"mean": Parameter(())},
        log_prior=lambda p: -0.5 * (p["mean"] / 10) ** 2,
        log_likelihood=lambda p, row: -0.5 * (row["x"] - p["mean"]) ** 2,
    ).unit_model
    method = Langevin(size=600_000, sampling_rate=1.0, num_steps=20)
    post = fit(mean, many, budget=Budget(5, 1e-6), method=method, seed=0)
    assert (post.trace["theta"] > 0).all()
    assert abs(post.trace["theta"][-1, 0] - 5) < 0.5

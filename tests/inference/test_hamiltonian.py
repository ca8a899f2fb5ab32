"""Hamiltonian chains and the penalty method: the right posterior under noise, and the right cost."""

import math
from functools import cache

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import erfc

from tacit import Budget, Hamiltonian, Model, Rows, fit
from tacit.accounting import PLD, events
from tacit.errors import InvalidArgument
from tacit.inference.chains import dummy_reference
from tacit.inference.diagnostics import effective_sample_sizes
from tacit.inference.hamiltonian import _unit_contribution
from tacit.models import Parameter

SIZE = 150
Y = np.random.default_rng(3).normal(0.4, 1.0, SIZE)
ROWS = Rows({"y": Y})
MEAN, VARIANCE = Y.sum() / (SIZE + 1), 1 / (SIZE + 1)


@cache
def normal_mean():
    """A mean with a standard normal prior, and errors of variance one: the posterior is known."""
    return Model(
        parameters={"mean": Parameter()},
        log_prior=lambda p: -0.5 * p["mean"] ** 2,
        log_likelihood=lambda p, row: -0.5 * (row["y"] - p["mean"]) ** 2,
    ).unit_model


# So much noise that a log ratio is off by about one, over a usual distance.
NOISY = {
    "penalty": (
        Hamiltonian(num_steps=12_000, num_leapfrog=0, step_size=0.12, ratio_clip=5.0),
        Budget(700, 1e-3),
    ),
    "hamiltonian": (
        Hamiltonian(
            num_steps=5000, num_leapfrog=3, step_size=0.05, gradient_clip=5.0, ratio_clip=5.0,
            gradient_share=0.5,
        ),
        Budget(6000, 1e-3),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NOISY)
def test_noise_in_the_test_does_not_change_the_posterior(name):
    method, budget = NOISY[name]
    post = fit(normal_mean(), ROWS, budget=budget, method=method, seed=0)
    draws = post.draws["mean"]
    size = float(effective_sample_sizes({"m": draws})["m"])
    squares = (draws - MEAN) ** 2
    worth = float(effective_sample_sizes({"m": squares})["m"])
    bounds, _ = method.bounds(normal_mean(), method.calibrate(normal_mean(), budget), guided=False)
    assert 0.3 < bounds.noise * bounds.ratio * 0.08 < 3  # noise of a log ratio
    assert size > 300
    assert abs(draws.mean() - MEAN) < 4.5 * math.sqrt(VARIANCE / size)
    assert abs(squares.mean() - VARIANCE) < 4.5 * squares.std() / math.sqrt(worth)


@pytest.mark.parametrize("leapfrog", [0, 4])
def test_the_cost_is_the_published_one(leapfrog):
    """Räisä, Koskela and Honkela 2021, Theorem 3: tau sqrt(n) is noise over what replacing a unit moves."""
    method = Hamiltonian(
        num_steps=500, num_leapfrog=leapfrog, step_size=0.1, gradient_clip=1.0, ratio_clip=1.0
    )
    budget = Budget(4, 1e-5, "replace")
    releases = method.calibrate(normal_mean(), budget)
    noise = [scale for scale, _ in releases.phases[:2]]
    ratio = noise[0] if leapfrog == 0 else 1 / math.sqrt(noise[1] ** -2 - noise[0] ** -2)
    mu = 500 / (2 * (ratio / 2) ** 2)
    if leapfrog:
        mu += 500 * (leapfrog + 1) / (2 * (noise[0] / 2) ** 2)
    epsilon, root = budget.epsilon, 2 * math.sqrt(mu)
    delta = 0.5 * (erfc((epsilon - mu) / root) - math.exp(epsilon) * erfc((epsilon + mu) / root))
    assert delta == pytest.approx(budget.delta, rel=2e-3)
    assert PLD().epsilon(releases.event, budget.delta, "replace") <= budget.epsilon
    assert releases.num_steps == 500 * (leapfrog + 1)


def test_gradients_and_ratios_have_their_shares():
    """Of one over squared noise, which adds up: all gradients of all trajectories have what was asked."""
    method = Hamiltonian(
        num_steps=60, num_leapfrog=3, step_size=0.1, gradient_clip=1.0, ratio_clip=1.0,
        gradient_share=0.4,
    )  # fmt: skip
    releases = method.calibrate(normal_mean(), Budget(1, 1e-6))
    (first, _), (last, _) = releases.phases[:2]
    whole = 60 * (3 / first**2 + 1 / last**2)
    assert 60 * 4 / first**2 == pytest.approx(0.4 * whole, rel=1e-9)


@pytest.mark.parametrize("weights", [(1.0, 0.0), (0.6, 0.8)])
def test_no_unit_is_longer_than_one(weights):
    """Before the gate bounds it: what a chain hears of a unit is not cut once more."""
    model, clip, length = normal_mean(), 0.3, 0.05
    per_unit = _unit_contribution(model, guided=False, gradients=True)
    longest = 0.0
    for value in (-1e6, -2.0, 0.3, 5.0, 1e6):
        given = (
            jnp.array([0.5]), jnp.array([0.1]), weights[0] / clip, weights[1] / length, clip, length,
            dummy_reference(model), model.constants,
        )  # fmt: skip
        found = per_unit(given, {"y": jnp.array([value])}, jnp.ones(1, bool))
        longest = max(longest, float(jnp.linalg.norm(found)))
    assert 1 - 1e-5 < longest <= 1 + 1e-5


def test_alternating_noise_costs_the_same_in_any_order():
    method = Hamiltonian(
        num_steps=50, num_leapfrog=2, step_size=0.1, gradient_clip=1.0, ratio_clip=1.0
    )
    releases = method.calibrate(normal_mean(), Budget(1, 1e-6))
    (first, gradients), (last, ratios) = releases.phases[:2]
    assert (gradients, ratios) == (2, 1)
    total = math.sqrt(100 / first**2 + 50 / last**2)
    one = PLD().epsilon(events.gaussian(1 / total), 1e-6)
    assert PLD().epsilon(releases.event, 1e-6) == pytest.approx(one, rel=1e-4)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"num_steps": 0}, "num_steps"),
        ({"num_leapfrog": -1}, "num_leapfrog"),
        ({"gradient_clip": 0.0}, "gradient_clip"),
        ({"gradient_share": 1.0}, "shares"),
        ({"burn_in": 1.0}, "shares"),
        ({"thin": 0}, "thin"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, words):
    with pytest.raises(InvalidArgument, match=words):
        Hamiltonian(**settings)


def test_a_start_at_values_is_where_the_chain_begins():
    method = Hamiltonian(
        num_steps=5, num_leapfrog=0, step_size=1e-4, ratio_clip=1.0, start={"mean": 2.0}
    )
    post = fit(normal_mean(), ROWS, budget=Budget(1, 1e-6), method=method, seed=0)
    assert np.abs(post.trace["theta"] - jnp.asarray(2.0)).max() < 1e-2

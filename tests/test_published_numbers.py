"""What the reproductions take as given: the papers' noise, their accountant, their optimiser."""

import jax.numpy as jnp
import numpy as np
import pytest
from logistic import MOMENTS, Published, Table, cost, windowed_adagrad
from sweeps import SIGMAS
from thesis_sampling import RATES, STEPS, STORED_EPSILONS

from tacit.accounting import PLD, Budget


def test_the_moments_accountant_has_the_authors_epsilons_for_adult():
    ours = [cost(MOMENTS, SIGMAS["Adult"], rate, STEPS) for rate in RATES["Adult"]]
    assert np.transpose(ours) == pytest.approx(STORED_EPSILONS, rel=1e-3)


def test_the_moments_accountant_has_the_authors_epsilons_for_abalone():
    ours = cost(MOMENTS, SIGMAS["Abalone"], 0.01, STEPS)
    assert ours == pytest.approx([0.93577, 0.43312, 0.28375, 0.21126, 0.16834], rel=1e-3)


def test_published_noise_keeps_the_promise_it_is_listed_with():
    (epsilon,) = cost(MOMENTS, [2.0], 0.01, 100)
    method = Published(sampling_rate=0.01, num_steps=100, clip=3.0, sigmas=((epsilon, 2.0),))
    table = Table(name="made up", x=np.zeros((10, 2)), y=np.zeros(10, bool))
    release = method.calibrate(table.model, Budget(epsilon, 1e-3, "replace"))
    assert release.phases == ((4.0, 100),)  # over the clip, of which a replaced row moves two
    assert PLD().epsilon(release.event, 1e-3, "replace") < epsilon


def test_windowed_adagrad_forgets():
    optimiser = windowed_adagrad(0.1, window=10, offset=0.0)
    state = optimiser.init(jnp.zeros(1))
    for size in [100.0] * 10 + [1.0] * 10:
        move, state = optimiser.update(jnp.full(1, size), state)
    # Ten squares of one: AdaGrad proper would still be dividing by those of a hundred.
    assert float(move[0]) == pytest.approx(-0.1 / 10**0.5, rel=1e-6)


def test_accuracy_goes_by_the_mean_probability():
    table = Table(name="made up", x=np.ones((10, 1)), y=np.ones(10, bool))
    assert table.accuracy(np.array([1.0])) == 1
    # The mean weight is above zero, but the mean probability below a half.
    assert table.accuracy(np.array([[-8.0], [-8.0], [17.0]])) == 0

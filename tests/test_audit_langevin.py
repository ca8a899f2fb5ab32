"""An audit of Langevin chains from outside, through everything that a fit does.

Many short chains run with and without a canary whose gradient is as long as the clip. The
observer sees every place of a chain and knows all that is public: the settings, the prior,
and the model's own draws, which may be guessed. What is left of a step is the noisy sum.
"""

from dataclasses import replace

import jax
import numpy as np
import pytest
from audit import claimed_tradeoff, contradictions, log_ratio, tradeoff_of

from tacit import Budget, Langevin, Model, Rows
from tacit.accounting import calibrate
from tacit.inference.method import per_step_normals, seed_from_key
from tacit.models import Parameter
from tacit.privacy import mechanisms
from tacit.privacy.gate import Gate, run
from tacit.privacy.noise import Randomness

RATE, STEPS, CHAINS, CLIP = 0.25, 16, 800, 2.0
BUDGET = Budget(8, 1e-3)
# Two phases, so that multipliers of about 1 and 1.4 are charged.
METHOD = Langevin(
    sampling_rate=RATE,
    num_steps=STEPS,
    clip=CLIP,
    step_size=lambda step: 0.03 if step < STEPS // 2 else 0.015,
    burn_in=0.0,
)
# A row's gradient is the row, wherever the chain is.
MODEL = Model(
    parameters={"w": Parameter(())},
    log_prior=lambda p: -0.5 * p["w"] ** 2,
    log_likelihood=lambda p, row: p["w"] * row["x"],
).unit_model


def chains(method, release, canary, seed):
    """Noisy sums, in clips, as the observer reads them off many independent chains."""
    rows = Rows({"x": np.array([0, 0, 0, 0, *[1e6] * canary], np.float32)})
    gates = [Gate(rows, release, Randomness(seed + i)) for i in range(CHAINS)]
    keys = list(jax.random.split(jax.random.key(seed), CHAINS))
    pairs = zip(gates, keys, strict=True)
    found = [run(gate, *method.steps(MODEL, release, key))[1][:, 0] for gate, key in pairs]
    after = np.stack(found).astype(np.float64)
    before = np.hstack([np.zeros((CHAINS, 1)), after[:, :-1]])
    own = np.stack([per_step_normals(seed_from_key(key), 0, STEPS, (1,))[:, 0] for key in keys])
    size, missing = method.sizes(release)
    drift = (after - before - missing * own) / size
    return (drift + before) * RATE / CLIP


def scores(x, release):
    scale = np.repeat(*zip(*release.phases, strict=True))
    return {
        "ratio": log_ratio(x, RATE, scale),
        "spread": x.max(axis=1) - x.min(axis=1),
        "sum": x.sum(axis=1),
    }


def audit(tradeoff, method=METHOD, release=None, seed=0):
    release = release or method.calibrate(MODEL, BUDGET)
    inside, outside = (
        scores(chains(method, release, canary, seed + canary * 10**6), release)
        for canary in (True, False)
    )
    return inside, outside, contradictions(inside, outside, tradeoff)


@pytest.fixture(scope="module")
def charged():
    return METHOD.calibrate(MODEL, BUDGET)


@pytest.fixture(scope="module")
def tradeoff(charged):
    return claimed_tradeoff(charged.event)


def test_the_charge_is_within_the_budget_and_in_two_phases(charged, tradeoff):
    assert len(charged.phases) == 2
    false_positives = np.linspace(0, 1, 101)
    budget = tradeoff_of([(BUDGET.epsilon, BUDGET.delta)])
    assert np.all(tradeoff(false_positives) >= budget(false_positives) - 1e-12)


def test_a_chain_keeps_its_claim_and_the_audit_nearly_reaches_it(tradeoff):
    inside, outside, found = audit(tradeoff)
    assert found == []
    threshold = np.median(outside["ratio"])
    assert (inside["ratio"] <= threshold).mean() < tradeoff(0.5) + 0.05


def half_noise(monkeypatch):
    real = mechanisms.rounded_normals
    monkeypatch.setattr(mechanisms, "rounded_normals", lambda bits, s, n: real(bits, s / 2, n))


def more_batches(monkeypatch):
    """Sampled twice as often as is charged."""
    real = mechanisms.poisson_batches
    monkeypatch.setattr(
        mechanisms, "poisson_batches", lambda bits, rate, *rest: real(bits, 2 * rate, *rest)
    )


@pytest.mark.parametrize("fault", [half_noise, pytest.param(more_batches, marks=pytest.mark.slow)])
def test_faults_of_the_gate_are_caught(fault, tradeoff, monkeypatch):
    fault(monkeypatch)
    assert audit(tradeoff)[2] != []


@pytest.mark.slow
def test_noise_that_protects_nobody_must_not_be_counted(charged, tradeoff):
    """Half the noise outside the release: the chain looks the same, and is not as private."""
    halved = tuple((noise / 2, steps) for noise, steps in charged.phases)
    release = replace(charged, noise_multiplier=halved)
    assert np.all(METHOD.sizes(release)[1] > 0)
    assert audit(tradeoff, release=release)[2] != []


@pytest.mark.slow
def test_a_budget_for_fewer_steps_than_are_taken_is_caught(monkeypatch):
    budget = Budget(1, 0.05)
    method = replace(METHOD, step_size=0.2, hot=True)
    promised = tradeoff_of([(budget.epsilon, budget.delta)])
    release = method.calibrate(MODEL, budget)
    assert audit(promised, method, release)[2] == []
    real = calibrate.noise_multiplier
    monkeypatch.setattr(
        calibrate, "noise_multiplier", lambda b, **s: real(b, **s | {"num_steps": 1})
    )
    release = method.calibrate(MODEL, budget)
    assert audit(promised, method, release)[2] != []

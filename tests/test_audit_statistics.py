"""The audit of private statistics: a canary in one noisy sum, from a fit as users make it.

Many data sets go through `Statistics` itself, with and without a canary: a person whose rows
add up to a statistic exactly as long as the bound on it, in either norm.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from audit import claimed_tradeoff, contradictions

from tacit import Budget, Rows, Statistics, conjugate
from tacit.inference import statistics
from tacit.privacy import mechanisms
from tacit.privacy.gate import Gate, run
from tacit.privacy.noise import Randomness

FITS, NOISES = 1000, ["gaussian", "laplace"]
MODEL = conjugate.Bernoulli("x").unit_model
BUDGETS = {"gaussian": Budget(3, 1e-5), "laplace": Budget(3)}
METHODS = {
    noise: Statistics(noise=noise, noise_aware=False, num_draws=1, most_rows=2) for noise in NOISES
}
OTHERS = np.array([3.0, 0.0])  # what the others add up to
CANARY = np.array([0.0, 2.0])


def planned(noise):
    return METHODS[noise].calibrate(MODEL, BUDGETS[noise])


def released(noise, canary, seed):
    """What many fits release: of three people, and of a fourth with two rows, or without."""
    values, people = np.zeros(3, int), np.arange(3)
    if canary:
        values, people = np.append(values, [1, 1]), np.append(people, [3, 3])
    rows, plan = Rows.by_person({"x": values}, people, 2), planned(noise)
    steps = METHODS[noise].steps(MODEL, plan, jax.random.key(0))
    gates = [Gate(rows, plan, Randomness(seed * FITS + i)) for i in range(FITS)]
    return np.array([run(gate, *steps)[1][0] for gate in gates])


def scores(noise, sums):
    """Larger means more likely in. The first is the likelihood ratio of the claim itself."""
    left, moved = sums - OTHERS, sums - OTHERS - CANARY
    norm = np.abs if noise == "laplace" else np.square
    ratio = (norm(left) - norm(moved)).sum(axis=1)
    return {"ratio": ratio, "no": sums[:, 0], "rows": sums.sum(axis=1)}


def found(noise, seed=1):
    inside, outside = (scores(noise, released(noise, c, seed + c)) for c in (True, False))
    return inside, outside, contradictions(inside, outside, claimed_tradeoff(planned(noise).event))


@pytest.mark.parametrize("noise", NOISES)
def test_statistics_keep_their_claim(noise):
    inside, outside, broken = found(noise)
    assert broken == []
    # And the canary is told apart about as well as the claim allows: the audit has teeth.
    seen = (inside["ratio"] <= np.median(outside["ratio"])).mean()
    assert seen < claimed_tradeoff(planned(noise).event)(0.5) + 0.03


def half_noise(monkeypatch):
    for name in ("rounded_normals", "rounded_laplaces"):
        real = getattr(mechanisms, name)
        monkeypatch.setattr(mechanisms, name, lambda bits, s, n, real=real: real(bits, s / 2, n))


def rows_not_people(monkeypatch):
    """A bound for each row, where a person has two."""
    # Without its cache, so that the program is made anew, with the fault in it.
    monkeypatch.setattr(statistics, "_statistics_step", statistics._statistics_step.__wrapped__)
    for name in ("clip_to_lattice", "clip_to_lattice_l1"):
        real = getattr(mechanisms, name)

        def loose(vector, clip, points, real=real):
            return (2 * real(vector / 2, clip / 2, points)).astype(jnp.int32)

        monkeypatch.setattr(mechanisms, name, loose)


@pytest.mark.parametrize(
    ("noise", "fault"),
    [
        ("gaussian", rows_not_people),
        ("laplace", half_noise),
        pytest.param("gaussian", half_noise, marks=pytest.mark.slow),
        pytest.param("laplace", rows_not_people, marks=pytest.mark.slow),
    ],
)
def test_planted_faults_are_caught(noise, fault, monkeypatch):
    fault(monkeypatch)
    assert found(noise, seed=5)[2] != []

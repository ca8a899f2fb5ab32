"""Audits of the Barker test: can the accept bits tell a canary better than was claimed?

The real gate decides many times with and without a canary whose log ratio is clipped to the
bound; other rows are neutral. Planted faults must be caught.
"""

import jax.numpy as jnp
import numpy as np
import pytest
from audit import claimed_tradeoff, contradictions

from tacit.privacy import clipping, mechanisms
from tacit.privacy.gate import Gate, run
from tacit.privacy.mechanisms import BarkerTests, SampledBarkerTests, sum_rows
from tacit.privacy.noise import Randomness
from tacit.privacy.rows import Rows

STEPS, TRANSCRIPTS = 16, 4000
OTHERS = 4


def bits(plan, values, seed):
    """Decisions [transcripts, steps]: many independent chains as one long run without memory."""

    def step(state, _, release):
        return state, release.noisy_test(sum_rows(lambda _, row: row["x"]), (), jnp.float32(0.0))

    gate = Gate(Rows({"x": np.asarray(values, np.float32)}), plan, Randomness(seed))
    nothing = lambda _, n: np.zeros(n, np.float32)  # noqa: E731
    _, out = run(gate, step, jnp.zeros(1), nothing, block=4000)
    return np.asarray(out).reshape(TRANSCRIPTS, STEPS)


def scores(accepted):
    """Larger means more likely in: the canary votes for accepting."""
    pairs = accepted.reshape(TRANSCRIPTS, -1, 2)
    return {
        "sum": accepted.sum(axis=1),
        "first": accepted[:, :4].sum(axis=1),
        "runs": -(pairs[..., 0] != pairs[..., 1]).sum(axis=1),
    }


def full(noise_variance=None):
    return BarkerTests(
        num_steps=STEPS * TRANSCRIPTS, ratio_bound=0.8, noise_variance=noise_variance
    )


def claim(plan):
    """Of one transcript."""
    return BarkerTests(
        num_steps=STEPS, ratio_bound=plan.ratio_bound, noise_variance=plan.noise_variance
    ).event


def found(plan, seed=0):
    neutral = [0.0] * OTHERS
    inside = scores(bits(plan, [*neutral, 1e6], seed))  # clipped to the bound
    outside = scores(bits(plan, neutral, seed + 1))
    return inside, outside


@pytest.mark.parametrize("noise_variance", [None, 2.0])
def test_the_test_on_all_units_keeps_its_claim(noise_variance):
    plan = full(noise_variance)
    assert contradictions(*found(plan), claimed_tradeoff(claim(plan))) == []


def test_replacing_keeps_its_claim():
    plan, neutral = full(), [0.0] * OTHERS
    inside = scores(bits(plan, [*neutral, 1e6], 0))
    outside = scores(bits(plan, [*neutral, -1e6], 1))
    assert contradictions(inside, outside, claimed_tradeoff(claim(plan), "replace", 30.0)) == []


def test_the_audit_has_teeth():
    """The canary is in fact told apart almost as well as the claim allows."""
    plan = full()
    inside, outside = (each["sum"] for each in found(plan))
    threshold = np.median(outside)
    positives, negatives = (outside > threshold).mean(), (inside <= threshold).mean()
    assert negatives < claimed_tradeoff(claim(plan))(positives) + 0.12


def half_noise(monkeypatch):
    real = mechanisms.standard_logistics
    monkeypatch.setattr(mechanisms, "standard_logistics", lambda stream, n: real(stream, n) / 2)


def loose_clip(monkeypatch):
    monkeypatch.setattr(
        clipping.RatioLattice, "most", property(lambda lattice: 2 * lattice.points), raising=True
    )


@pytest.mark.parametrize("fault", [half_noise, loose_clip])
def test_planted_faults_are_caught(fault, monkeypatch):
    fault(monkeypatch)
    plan = full()
    assert contradictions(*found(plan), claimed_tradeoff(claim(plan))) != []


def batched():
    """The published test on half of few rows: one of them weighs as much as the bound allows."""
    return SampledBarkerTests(
        num_steps=STEPS * TRANSCRIPTS, batch_size=60, dataset_size=120, tempered_size=1.0
    )


def batched_found(plan, seed=0):
    neutral = [0.0] * (plan.dataset_size - 1)
    return tuple(
        scores(bits(plan, [*neutral, canary], seed + i)) for i, canary in enumerate((1e6, -1e6))
    )


def batched_claim():
    one = SampledBarkerTests(num_steps=STEPS, batch_size=60, dataset_size=120, tempered_size=1.0)
    return claimed_tradeoff(one.event, "replace", 30.0)


def test_the_test_on_batches_keeps_its_claim():
    assert contradictions(*batched_found(batched()), batched_claim()) == []


def test_a_fault_on_batches_is_caught(monkeypatch):
    real = mechanisms.standard_normals
    monkeypatch.setattr(mechanisms, "standard_normals", lambda stream, n: 0.05 * real(stream, n))
    assert contradictions(*batched_found(batched()), batched_claim()) != []

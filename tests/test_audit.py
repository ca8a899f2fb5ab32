"""An audit from outside: can a canary be told from the releases better than was claimed?

The real gate runs with and without a canary row whose contribution has exactly the clip's
norm. Scores of whole transcripts must not tell "in" from "out" better than the claimed
trade-off curve allows. Four planted faults must be caught by the same audit.
"""

import math

import jax.numpy as jnp
import numpy as np
import pytest
from audit import claimed_tradeoff, contradictions, log_ratio

from tacit.accounting import PLD, events
from tacit.privacy import mechanisms
from tacit.privacy import mechanisms as release_module
from tacit.privacy.gate import Gate, run
from tacit.privacy.mechanisms import NoisySums, sum_rows
from tacit.privacy.noise import Randomness
from tacit.privacy.rows import Rows
from tacit.privacy.sampling import Batches

RATE, SCALE, STEPS, TRANSCRIPTS, CLIP = 0.25, 1.0, 16, 3000, 2.0


def transcripts(canary, seed):
    """Many independent transcripts, as one long run without memory."""
    values = np.zeros((4, 1), np.float32)
    if canary:
        values = np.vstack([values, [[1e6]]]).astype(np.float32)  # clipped to the clip
    plan = NoisySums(
        sampling_rate=RATE,
        num_steps=STEPS * TRANSCRIPTS,
        clip=CLIP,
        noise_multiplier=SCALE,
        dimension=1,
    )

    def step(state, _, release):
        return state, release.noisy_sum(sum_rows(lambda _, row: row["x"]), ())

    gate = Gate(Rows({"x": values}), plan, Randomness(seed))
    _, out = run(gate, step, jnp.zeros(1), lambda _, n: np.zeros(n, np.float32), block=4000)
    return out.reshape(TRANSCRIPTS, STEPS) / CLIP


def scores(x):
    """Larger means more likely in. The first is the likelihood ratio of the claim itself."""
    period = round(1 / RATE)
    phases = {f"phase {i}": x[:, i::period].sum(axis=1) for i in range(period)}
    spread = x.max(axis=1) - x.min(axis=1)
    return {"ratio": log_ratio(x, RATE, SCALE), "spread": spread, "sum": x.sum(axis=1)} | phases


def found(tradeoff, seed=0):
    """Scores that contradict the claim."""
    inside, outside = scores(transcripts(True, seed)), scores(transcripts(False, seed + 1))
    return contradictions(inside, outside, tradeoff)


@pytest.fixture(scope="module")
def tradeoff():
    return claimed_tradeoff(events.sampled_gaussian(SCALE, RATE, STEPS))


def test_the_gate_keeps_its_claim(tradeoff):
    assert found(tradeoff) == []


def test_the_audit_has_teeth(tradeoff):
    """The canary is in fact told apart almost as well as the claim allows."""
    inside, outside = (scores(transcripts(c, 5 + c))["ratio"] for c in (True, False))
    threshold = np.median(outside)
    seen = (inside <= threshold).mean()
    assert seen < tradeoff(0.5) + 0.05


def half_noise(monkeypatch):
    real = mechanisms.rounded_normals
    monkeypatch.setattr(mechanisms, "rounded_normals", lambda bits, s, n: real(bits, s / 2, n))


def wrong_clip(monkeypatch):
    real = release_module.clip_to_lattice

    def loose(vector, clip, points):
        return (2.5 * real(vector, clip, points)).astype(jnp.int32)

    monkeypatch.setattr(release_module, "clip_to_lattice", loose)


def fixed_batches(monkeypatch):
    """Every unit in every fourth step, as shuffled or cyclic batches have it."""

    def cyclic(bits, rate, units, steps, capacity):
        period, width = round(1 / rate), max(capacity, units)
        own = np.arange(units) * 7 % period
        present = np.zeros((steps, width), bool)
        present[:, :units] = np.arange(steps)[:, None] % period == own
        indices = np.broadcast_to(np.minimum(np.arange(width), units - 1), (steps, width))
        return Batches(indices.astype(np.int32), present)

    monkeypatch.setattr(mechanisms, "poisson_batches", cyclic)


def reused_noise(monkeypatch):
    """One draw of noise serves a whole transcript."""
    real = mechanisms.rounded_normals

    def repeated(bits, scale, count):
        return np.repeat(real(bits, scale, math.ceil(count / STEPS)), STEPS)[:count]

    monkeypatch.setattr(mechanisms, "rounded_normals", repeated)


@pytest.mark.parametrize("fault", [half_noise, wrong_clip, fixed_batches, reused_noise])
def test_planted_faults_are_caught(fault, tradeoff, monkeypatch):
    fault(monkeypatch)
    assert found(tradeoff) != []


def test_claim_is_the_one_that_is_charged():
    assert math.isclose(
        PLD().epsilon(events.sampled_gaussian(SCALE, RATE, STEPS), 1e-5),
        PLD().epsilon(
            NoisySums(
                sampling_rate=RATE,
                num_steps=STEPS,
                clip=CLIP,
                noise_multiplier=SCALE,
                dimension=1,
            ).event,
            1e-5,
        ),
    )

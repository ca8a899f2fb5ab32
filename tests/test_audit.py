"""An audit from outside: can a canary be told from the releases better than was claimed?

The real gate runs with and without a canary row whose contribution has exactly the clip's
norm. Scores of whole transcripts give a test of "in or out"; its error rates, bounded with
Clopper and Pearson, must not fall below the claimed trade-off curve. Four planted faults
must be caught by the same audit.
"""

import math

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from tacit.accounting import PLD, events
from tacit.privacy import plans
from tacit.privacy import release as release_module
from tacit.privacy.gate import Gate, run
from tacit.privacy.noise import Randomness
from tacit.privacy.plans import NoisySums
from tacit.privacy.rows import Rows
from tacit.privacy.sample import Batches

RATE, SCALE, STEPS, TRANSCRIPTS, CLIP = 0.25, 1.0, 16, 3000, 2.0
CONFIDENCE = 1e-4  # of a false alarm, over all scores and thresholds of one audit


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
        return state, release.noisy_sum(lambda _, row: row["x"], ())

    gate = Gate(Rows({"x": values}), plan, Randomness(seed))
    _, out = run(
        [gate], step, jnp.zeros((1, 1)), lambda _, n: np.zeros((n, 1), np.float32), block=4000
    )
    return out.reshape(TRANSCRIPTS, STEPS) / CLIP


def scores(x):
    """Larger means more likely in. The first is the likelihood ratio of the claim itself."""
    ratio = np.log1p(RATE * np.expm1((2 * x - 1) / (2 * SCALE**2))).sum(axis=1)
    period = round(1 / RATE)
    phases = {f"phase {i}": x[:, i::period].sum(axis=1) for i in range(period)}
    spread = x.max(axis=1) - x.min(axis=1)
    return {"ratio": ratio, "spread": spread, "sum": x.sum(axis=1)} | phases


def claimed_tradeoff():
    """Least false negatives at given false positives that the claimed curve allows."""
    run_ = events.sampled_gaussian(SCALE, RATE, STEPS)
    epsilons = np.linspace(0, 12, 61)
    deltas = np.array([PLD().delta(run_, e) for e in epsilons])

    def tradeoff(false_positives):
        a = np.asarray(false_positives)[..., None]
        steep = 1 - deltas - np.exp(epsilons) * a
        flat = np.exp(-epsilons) * (1 - deltas - a)
        return np.maximum(np.maximum(steep, flat).max(axis=-1), 0)

    return tradeoff


def upper(errors, trials, alpha):
    return stats.beta.ppf(1 - alpha, errors + 1, trials - errors) if errors < trials else 1.0


def contradictions(tradeoff, seed=0):
    """Scores whose error rates are certainly below the claim."""
    inside, outside = scores(transcripts(True, seed)), scores(transcripts(False, seed + 1))
    half = TRANSCRIPTS // 2
    found = []
    for name in inside:
        chosen = np.unique(np.concatenate([inside[name][:half], outside[name][:half]]))
        chosen = chosen[:: max(len(chosen) // 400, 1)]
        positives = (outside[name][:half, None] > chosen).mean(axis=0)
        negatives = (inside[name][:half, None] <= chosen).mean(axis=0)
        threshold = chosen[np.argmax(tradeoff(positives) - negatives)]
        alpha = CONFIDENCE / len(inside) / 2
        fresh = half  # the other half bounds what the first half chose
        false_positives = upper(int((outside[name][half:] > threshold).sum()), fresh, alpha)
        false_negatives = upper(int((inside[name][half:] <= threshold).sum()), fresh, alpha)
        if false_negatives < tradeoff(false_positives):
            found.append(name)
    return found


@pytest.fixture(scope="module")
def tradeoff():
    return claimed_tradeoff()


def test_the_gate_keeps_its_claim(tradeoff):
    assert contradictions(tradeoff) == []


def test_the_audit_has_teeth(tradeoff):
    """The canary is in fact told apart almost as well as the claim allows."""
    inside, outside = (scores(transcripts(c, 5 + c))["ratio"] for c in (True, False))
    threshold = np.median(outside)
    seen = (inside <= threshold).mean()
    assert seen < tradeoff(0.5) + 0.05


def half_noise(monkeypatch):
    real = plans.rounded_normals
    monkeypatch.setattr(plans, "rounded_normals", lambda bits, s, n: real(bits, s / 2, n))


def wrong_clip(monkeypatch):
    real = release_module.on_lattice

    def loose(vector, clip, points):
        return (2.5 * real(vector, clip, points)).astype(jnp.int32)

    monkeypatch.setattr(release_module, "on_lattice", loose)


def fixed_batches(monkeypatch):
    """Every unit in every fourth step, as shuffled or cyclic batches have it."""

    def cyclic(bits, rate, units, steps, capacity):
        period, width = round(1 / rate), max(capacity, units)
        own = np.arange(units) * 7 % period
        present = np.zeros((steps, width), bool)
        present[:, :units] = np.arange(steps)[:, None] % period == own
        indices = np.broadcast_to(np.minimum(np.arange(width), units - 1), (steps, width))
        return Batches(indices.astype(np.int32), present)

    monkeypatch.setattr(plans, "poisson_batches", cyclic)


def reused_noise(monkeypatch):
    """One draw of noise serves a whole transcript."""
    real = plans.rounded_normals

    def repeated(bits, scale, count):
        return np.repeat(real(bits, scale, math.ceil(count / STEPS)), STEPS)[:count]

    monkeypatch.setattr(plans, "rounded_normals", repeated)


@pytest.mark.parametrize("fault", [half_noise, wrong_clip, fixed_batches, reused_noise])
def test_planted_faults_are_caught(fault, tradeoff, monkeypatch):
    fault(monkeypatch)
    assert contradictions(tradeoff) != []


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

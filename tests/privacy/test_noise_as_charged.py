"""Noise on the released whole numbers, to one percent: its size, its law, and that it is fresh.

Everything expected is computed from the event that is charged, so that a lie of 5% shows.
"""

import math

import jax.numpy as jnp
import numpy as np
import pytest
from measure import (
    accepted,
    correlations,
    just_release,
    released,
    said,
)
from scipy import stats

from tacit.accounting import events
from tacit.privacy import mechanisms
from tacit.privacy.distributed import add_server_noise
from tacit.privacy.gate import Gate, run
from tacit.privacy.mechanisms import BarkerTests, NoisySums, SampledBarkerTests
from tacit.privacy.noise import Randomness
from tacit.privacy.rows import Rows

# More numbers than a word has bytes: the last ones get noise as the first do.
DIMENSION = 12


def mechanism(**changes):
    settings = {
        "sampling_rate": 1.0,
        "num_steps": 30_000,
        "clip": 2.0,
        "noise_multiplier": 1.5,
        "dimension": DIMENSION,
    }
    return NoisySums(**(settings | changes))


def nobody():
    return np.zeros((0, DIMENSION))


SUMS = {
    "all": {},
    "sampled": {"sampling_rate": 0.2},
    "wide": {"batch_bound": 2**25},
    "laplace": {"laplace": True, "noise_multiplier": 0.7},
    "wide laplace": {"laplace": True, "batch_bound": 2**31},
}


@pytest.mark.parametrize("case", SUMS)
def test_variance_is_the_charged_one(case):
    """Of all numbers together to 1%, and of each within six standard errors."""
    settings = mechanism(**SUMS[case])
    (charged,) = said(settings)
    noise = released(settings, nobody())
    assert len(noise) == charged.steps
    expected = (charged.multiplier * settings.lattice.points) ** 2 * (2 if settings.laplace else 1)
    assert np.mean(np.square(noise, dtype=float)) == pytest.approx(expected, rel=0.01)
    assert np.allclose(noise.var(axis=0), expected, rtol=0.07 if settings.laplace else 0.05)
    assert abs(noise.mean()) < 4.5 * math.sqrt(expected / noise.size)


def test_every_phase_of_a_schedule_has_its_own():
    settings = mechanism(noise_multiplier=((3.0, 10_000), (0.5, 12_000), (1.0, 8_000)))
    noise = released(settings, nobody(), block=900)  # blocks cross the changes
    start = 0
    for charged in said(settings):
        part = noise[start : start + charged.steps] / (charged.multiplier * settings.lattice.points)
        assert np.mean(part**2) == pytest.approx(1, rel=0.02)
        assert np.mean(part[:100] ** 2) == pytest.approx(1, rel=0.2)  # from its first steps on
        start += charged.steps
    assert start == len(noise)


def chances(law, scale, reach):
    """Of each whole number within reach, and of what is beyond, for rounded draws of a law."""
    edges = np.concatenate([[-np.inf], np.arange(-reach, reach) + 0.5, [np.inf]])
    return np.diff(law.cdf(edges / scale))


@pytest.mark.parametrize("points", [0.4, 1.2, 5.0])
@pytest.mark.parametrize("laplace", [False, True])
def test_law_is_that_of_rounded_noise(points, laplace):
    """Few lattice points to a standard deviation, where rounding shows: chi-square."""
    of_a_clip = mechanism(laplace=laplace).lattice.points
    settings = mechanism(laplace=laplace, noise_multiplier=points / of_a_clip)
    (charged,) = said(settings)
    scale = charged.multiplier * settings.lattice.points
    law = stats.laplace if laplace else stats.norm
    reach = math.ceil(law.isf(1e-4) * scale)
    noise = released(settings, nobody()).ravel()
    observed = np.bincount(np.clip(noise, -reach, reach) + reach, minlength=2 * reach + 1)
    expected = chances(law, scale, reach) * len(noise)
    assert stats.chisquare(observed, expected).pvalue > 1e-3


@pytest.mark.parametrize("case", ["all", "sampled", "wide"])
def test_noise_is_fresh_in_every_step_and_number(case):
    """No number is like one of another step, at any distance, nor of another coordinate."""
    settings = mechanism(**SUMS[case], num_steps=8000)
    noise = released(settings, nobody(), block=250).astype(float)
    assert np.abs(correlations(noise, 7000)).max() < 5.5
    between = np.corrcoef(noise.T)[np.triu_indices(DIMENSION, 1)] * math.sqrt(len(noise))
    assert np.abs(between).max() < 4.5
    sizes = np.corrcoef(np.abs(noise).T)[np.triu_indices(DIMENSION, 1)] * math.sqrt(len(noise))
    assert np.abs(sizes).max() < 4.5


def test_several_gates_have_noise_of_their_own():
    settings = [
        mechanism(noise_multiplier=s, clip=c) for s, c in ((1.5, 2.0), (1.2, 0.5), (1.5, 2.0))
    ]
    rows = [Rows({"x": np.zeros((n, DIMENSION))}) for n in (0, 3, 1)]
    standard = []
    for i, each in enumerate(settings):
        (charged,) = said(each)
        noise = released(each, rows[i], seed=i)
        standard.append(noise / (charged.multiplier * each.lattice.points))
        assert np.mean(standard[-1] ** 2) == pytest.approx(1, rel=0.01)
    between = np.corrcoef([each.ravel() for each in standard])[np.triu_indices(3, 1)]
    assert np.abs(between).max() < 4.5 / math.sqrt(standard[0].size)


def test_stages_have_noise_of_their_own():
    one = mechanism(num_steps=5000)
    several = Gate(Rows({"x": nobody()}), mechanisms.Stages((one, one)), Randomness(3))
    first, second = (
        run(gate, just_release, jnp.zeros(1), lambda _, n: np.zeros(n))[1].ravel()
        for gate in several.stages()
    )
    assert abs(np.corrcoef(first, second)[0, 1]) < 4.5 / math.sqrt(len(first))


def test_a_trusted_server_s_noise():
    std = 123.0
    total = add_server_noise([np.ones(200_000, np.int64)] * 3, std, Randomness(4)) - 3
    assert total.var() == pytest.approx(std**2, rel=0.01)


# Tests that accept or not ------------------------------------------------------------------


SHIFTS = (-2.0, -1.0, 0.0, 1.0, 2.0)


@pytest.mark.parametrize("noise_variance", [None, 2.0])
def test_acceptance_has_the_charged_law(noise_variance):
    """At several shifts, as by the logistic or the normal distribution function: chi-square."""
    settings = BarkerTests(num_steps=400_000, ratio_bound=0.8, noise_variance=noise_variance)
    ((test, times),) = events.leaves(settings.event)
    assert times == settings.num_steps
    law = stats.logistic
    if noise_variance is not None:
        law = stats.norm(scale=math.sqrt(test.noise_variance))
    counts, each = accepted(settings, [0.0] * 3, SHIFTS)
    assert _fits(counts, each, law.cdf(SHIFTS))


def test_acceptance_on_a_batch_has_the_charged_law():
    """Units that say nothing: noise of variance 2, as the published test has it."""
    settings = SampledBarkerTests(
        num_steps=400_000, batch_size=4, dataset_size=9, tempered_size=1.0
    )
    counts, each = accepted(settings, [0.0] * 9, SHIFTS)
    assert _fits(counts, each, stats.norm(scale=math.sqrt(2)).cdf(SHIFTS))


def _fits(counts, each, chance):
    score = np.sum((counts - each * chance) ** 2 / (each * chance * (1 - chance)))
    return stats.chi2.sf(score, len(counts)) > 1e-3

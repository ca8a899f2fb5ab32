"""What one unit moves, in the whole numbers that are released: all that was charged, and no more.

Releases with and without a unit have the same noise, so their difference is that unit's.
"""

import math
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest
from measure import accepted, just_release, released, said
from scipy import stats

from tacit.accounting import events
from tacit.privacy.gate import open_gate
from tacit.privacy.mechanisms import BarkerTests, NoisySums, SampledBarkerTests
from tacit.privacy.noise import Randomness
from tacit.privacy.one_draw import chain, logistic
from tacit.privacy.one_draw.claims import BoundedLikelihood, LipschitzLikelihood, LogConcave
from tacit.privacy.rows import Rows

RNG = np.random.default_rng(0)
OTHERS = RNG.normal(size=(40, 5))
# In every direction, from just beyond the clip on.
LARGE = RNG.standard_cauchy((60, 5))
LARGE *= 2.0 * np.geomspace(1.0001, 1e12, 60)[:, None] / np.linalg.norm(LARGE, axis=1)[:, None]


def mechanism(**changes):
    settings = {
        "sampling_rate": 1.0,
        "num_steps": 2,
        "clip": 2.0,
        "noise_multiplier": 0.8,
        "dimension": 5,
    }
    return NoisySums(**(settings | changes))


def size(moved, settings):
    """In the norm that the mechanism clips in, exactly."""
    numbers = [int(each) for each in moved]
    if settings.laplace:
        return sum(abs(each) for each in numbers)
    return math.sqrt(sum(each**2 for each in numbers))


def per_unit(state, _, release):
    return state, release.noisy_sum(
        lambda _, rows, present: jnp.where(present[:, None], rows["x"], 0.0).sum(axis=0), ()
    )


def of_rows(*extra):
    return Rows({"x": np.vstack([OTHERS, *extra])})


def of_people(*extra):
    """Everybody has three rows, and whoever is added has them all as large."""
    values = [np.repeat(OTHERS, 3, axis=0), *(np.tile(each, (3, 1)) for each in extra)]
    people = np.repeat(np.arange(len(OTHERS) + len(extra)), 3)
    return Rows.by_person({"x": np.vstack(values)}, people, most_rows=3)


@pytest.mark.parametrize("laplace", [False, True])
@pytest.mark.parametrize("units", [of_rows, of_people])
@pytest.mark.parametrize("step", [just_release, per_unit], ids=["by rows", "by units"])
def test_a_unit_beyond_the_clip_moves_a_sum_by_the_clip(laplace, units, step):
    """Never by more; and by all of it but a thousandth, or this test would see nothing."""
    settings = mechanism(laplace=laplace)
    without = released(settings, units(), step=step)
    for extra in LARGE[::6]:
        moved = released(settings, units(extra), step=step) - without
        assert (moved[0] == moved[1]).all()
        sizes = size(moved[0], settings)
        assert sizes <= settings.lattice.points
        assert sizes >= settings.lattice.points * 0.999 - 5


def test_noise_over_what_a_unit_moves_is_the_charged_multiplier():
    """The one ratio that all of the accounting rests on, measured whole, to 1%."""
    settings = mechanism(num_steps=60_000)
    without = released(settings, of_rows())
    moved = max(
        size(released(mechanism(), of_rows(e))[0] - without[0], settings) for e in LARGE[::10]
    )
    (charged,) = said(settings)
    spread = math.sqrt(without.var(axis=0).mean())
    assert spread / moved == pytest.approx(charged.multiplier, rel=0.01)


# Tests that accept or not ------------------------------------------------------------------


@pytest.mark.parametrize("noise_variance", [None, 2.0])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_unit_moves_the_log_odds_by_the_charged_bound(noise_variance, sign):
    """A hundred units at the bound, and a shift that takes them back: an even chance to 1%."""
    settings = BarkerTests(num_steps=20_000, ratio_bound=0.8, noise_variance=noise_variance)
    ((test, _),) = events.leaves(settings.event)
    for extreme in (1e9, np.inf):
        shift = -sign * 100 * test.ratio_bound
        counts, each = accepted(settings, [sign * extreme] * 100, (shift,))
        assert counts[0] / each == pytest.approx(0.5, abs=0.018)  # five standard errors


def test_a_unit_of_a_batch_counts_for_one_clip():
    settings = SampledBarkerTests(
        num_steps=10_000, batch_size=900, dataset_size=900, tempered_size=30.0
    )
    ((test, _),) = events.leaves(settings.event)
    for sign in (1, -1):
        shift = -sign * math.sqrt(test.batch_size)
        counts, each = accepted(settings, [sign * 1e9] * 900, (shift,))
        assert counts[0] / each == pytest.approx(0.5, abs=0.025)
    # What is within the clip, of sqrt(900) / 30, counts as it is.
    half = math.sqrt(test.batch_size) / 2
    counts, each = accepted(settings, [0.5] * 900, (0.2 - half,))
    assert counts[0] / each == pytest.approx(stats.norm.cdf(0.2 / math.sqrt(2)), abs=0.025)


# Draws by chains ---------------------------------------------------------------------------


class Still(NamedTuple):
    """A chain that does not move, and ends with what it was told about the posterior."""

    z: Any


AT = jnp.array([0.3, -0.7])


@pytest.fixture
def told(monkeypatch):
    """What a chain is told of the posterior at one place: its own height there, for any rows."""

    def stands_still(potential_fn_gen, algo):
        def begin(start, warm_up, rng_key, model_args):
            return Still(jnp.full_like(start, potential_fn_gen(*model_args)(AT)))

        return begin, lambda state, model_args: state  # noqa: ARG005

    monkeypatch.setattr(chain, "hmc", stands_still)
    chain._compiled_chains.cache_clear()

    def height(claim, density, rows):
        settings = chain.ChainDraws(
            claim=claim, dimension=2, power=0.5, warm_up=1, length=1, resolution=2.0**-20
        )
        ((event, _),) = events.leaves(settings.event)
        gate = open_gate(rows, settings, Randomness(0))
        found = gate.draw(lambda vector, _: -jnp.sum(vector**2), density, None)
        return -found[0, 0], event

    yield height
    chain._compiled_chains.cache_clear()


def times_x(vector, rows, present, _):
    return jnp.where(present, rows["x"], 0.0).sum()


@pytest.mark.parametrize("people", [1, 4])
@pytest.mark.parametrize("extreme", [1e6, -1e6])
def test_a_chain_hears_of_a_unit_no_more_than_was_charged(told, extreme, people):
    """A bounded log-likelihood counts with its bound times the power, at any place."""
    ids = [0, *[1] * people]

    def height(last):
        values = [0.1, *[last] * people]
        rows = Rows({"x": values}) if people == 1 else Rows.by_person({"x": values}, ids, people)
        return told(BoundedLikelihood(bound=1.5), times_x, rows)

    moved, event = height(extreme)
    assert moved - height(0.0)[0] == pytest.approx(
        math.copysign(event.likelihood_bound, extreme), rel=1e-4
    )


@pytest.mark.parametrize("extreme", [1e6, -1e6])
def test_a_chain_hears_of_a_record_no_more_than_its_slope(told, extreme):
    """Around a record of zeros, as far as the norm of a record and the slope allow."""

    def density(vector, rows, present, _):
        return times_x(vector, rows, present, _) - 4.0  # of a record of zeros

    claim = LipschitzLikelihood(slope=0.7, radius=2.0)
    moved, event = told(claim, density, Rows({"x": [0.1, extreme]}))
    zeros, _ = told(claim, density, Rows({"x": [0.1, 0.0]}))
    assert moved - zeros == pytest.approx(
        math.copysign(event.lipschitz * event.radius, extreme), rel=1e-4
    )


@pytest.mark.parametrize("vectors", [True, False])
def test_a_chain_hears_of_features_as_long_as_stated(told, vectors):
    """A log-likelihood that tilts: its slope is the norm to which a row is shortened."""
    claim = LogConcave(slope=2.0, concavity=4.0, shortened=("x", 2.0))

    def tilt(vector, rows, present, _):
        sums = rows["x"] @ vector if vectors else rows["x"] * jnp.linalg.norm(vector)
        return jnp.where(present, sums, 0.0).sum()

    def rows(long):
        return Rows({"x": [[0.1, 0.1], [long, -long * 7 / 3]] if vectors else [0.1, long]})

    moved, event = told(claim, tilt, rows(1e5))
    pull = (moved - told(claim, tilt, rows(0.0))[0]) / float(jnp.linalg.norm(AT))
    assert pull == pytest.approx(event.lipschitz, rel=1e-4)  # x points as AT does


# Draws by rejection ------------------------------------------------------------------------


@pytest.mark.parametrize("rows_per_unit", [1, 3])
def test_rows_of_a_logistic_regression_are_as_long_as_charged(rows_per_unit):
    """The slope of a unit's log-likelihood is the power times the lengths of its rows."""
    settings = logistic.LogisticDraws(
        features="x",
        outcome="y",
        dimension=5,
        radius=1.7,
        precision=0.5,
        power=0.6,
        resolution=2.0**-20,
        rows_per_unit=rows_per_unit,
    )
    ((event, _),) = events.leaves(settings.event)
    table = {"x": LARGE, "y": np.arange(60) % 2}
    people = np.repeat(np.arange(20), 3)
    rows = Rows(table) if rows_per_unit == 1 else Rows.by_person(table, people, rows_per_unit)
    longest = np.linalg.norm(logistic._signed_rows(rows, settings), axis=1).max()
    most = event.lipschitz / settings.power / rows_per_unit
    assert 0.999 * most < longest <= most

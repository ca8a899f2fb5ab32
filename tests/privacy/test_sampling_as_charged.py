"""Who is in a batch, read off the released whole numbers: the charged rate to 1%, and by chance.

Every unit moves a number of its own by a clip, under noise too small to hide it, so that a
release tells who was there. Everything expected is computed from the event that is charged.
"""

import math

import numpy as np
import pytest
from measure import accepted, correlations, released, said
from scipy import stats

from tacit.accounting import events
from tacit.privacy import gate as gate_module
from tacit.privacy.groups import random_shards
from tacit.privacy.mechanisms import NoisySums, SampledBarkerTests, sum_rows
from tacit.privacy.noise import Randomness
from tacit.privacy.rows import Rows

UNITS = 200


def mechanism(**changes):
    settings = {
        "sampling_rate": 0.05,
        "num_steps": 20_000,
        "clip": 1.0,
        "noise_multiplier": 1e-3,
        "dimension": UNITS,
        "batch_bound": 2**12,
    }
    return NoisySums(**(settings | changes))


def who_was_there(out, settings):
    """Whether each unit counted, in each step: its number is a clip, or next to nothing."""
    share = out / settings.lattice.points
    there = share > 0.5
    assert np.abs(share - there).max() < 0.02  # nobody twice, and nothing in between
    return there


@pytest.fixture(scope="module")
def there():
    return who_was_there(released(mechanism(), np.eye(UNITS), block=250), mechanism())


def test_rate_is_the_charged_one(there):
    (charged,) = said(mechanism())
    assert there.shape == (charged.steps, UNITS)
    assert there.mean() == pytest.approx(charged.rate, rel=0.01)


def test_every_unit_has_the_same_rate(there):
    (charged,) = said(mechanism())
    counts = there.sum(axis=0)
    spread = charged.steps * charged.rate * (1 - charged.rate)
    score = np.sum((counts - charged.steps * charged.rate) ** 2) / spread
    assert 1e-3 < stats.chi2.sf(score, UNITS) < 1 - 1e-3
    assert np.abs(counts - charged.steps * charged.rate).max() < 4.5 * math.sqrt(spread)


def test_steps_are_independent_at_any_distance(there):
    """Batches that come again, in every block or after any number of steps, would show."""
    assert np.abs(correlations(there.astype(float), 18_000)).max() < 5.5
    sizes = there.sum(axis=1, keepdims=True).astype(float)
    assert np.abs(correlations(sizes, 18_000)).max() < 5.5


def test_units_are_independent(there):
    (charged,) = said(mechanism())
    between = np.corrcoef(there.T)[np.triu_indices(UNITS, 1)] * math.sqrt(charged.steps)
    assert np.abs(between).max() < 5.5
    sizes = there.sum(axis=1)
    assert sizes.var() == pytest.approx(UNITS * charged.rate * (1 - charged.rate), rel=0.05)


def test_several_gates_sample_each_for_itself():
    settings = [mechanism(sampling_rate=rate, num_steps=6000) for rate in (0.2, 0.05, 0.2)]
    rows = [Rows({"x": np.eye(UNITS)[:n]}) for n in (UNITS, UNITS - 60, UNITS)]
    found = []
    for i, each in enumerate(settings):
        (charged,) = said(each)
        taken = who_was_there(released(each, rows[i], seed=i, block=250), each)
        assert not taken[:, len(rows[i]._fields["x"]) :].any()
        found.append(taken[:, : UNITS - 60])
        assert found[-1].mean() == pytest.approx(charged.rate, rel=0.02)
    between = np.corrcoef([taken.ravel() for taken in found])[np.triu_indices(3, 1)]
    assert np.abs(between).max() < 4.5 / math.sqrt(found[0].size)


@pytest.mark.parametrize(("batch", "units"), [(400, 1000), (700, 1000)])
def test_batches_of_a_test_have_the_charged_size(batch, units):
    """All units say as much as they may, and the shift takes it back: an even chance.

    A batch larger by 1% would have the test accept in 56 cases of 100 for 400 units.
    """
    settings = SampledBarkerTests(
        num_steps=20_000, batch_size=batch, dataset_size=units, tempered_size=1.0
    )
    ((test, _),) = events.leaves(settings.event)
    assert (test.batch_size, test.dataset_size) == (batch, units)
    counts, each = accepted(settings, [1e9] * units, (-math.sqrt(test.batch_size),))
    assert counts[0] / each == pytest.approx(0.5, abs=0.02)


def test_batches_of_a_test_are_fresh_and_hold_everybody_alike():
    settings = SampledBarkerTests(
        num_steps=3000, batch_size=30, dataset_size=UNITS, tempered_size=1.0
    )
    ((test, _),) = events.leaves(settings.event)
    gate = gate_module.Gate(Rows({"x": np.zeros(UNITS)}), settings, Randomness(8))
    taken = np.zeros((3000, UNITS))
    for start in range(0, 3000, 500):  # blocks, as `run` asks for them
        indices, present = gate._session.runner(gate, 500)._batches(
            500, settings.batch_width(UNITS)
        )
        assert present.sum(axis=1).tolist() == [test.batch_size] * 500
        np.put_along_axis(taken[start : start + 500], indices, 1.0, axis=1)
    rate = test.batch_size / test.dataset_size
    assert (taken.sum(axis=1) == test.batch_size).all()
    spread = math.sqrt(3000 * rate * (1 - rate))
    assert np.abs(taken.sum(axis=0) - 3000 * rate).max() < 4.5 * spread
    assert np.abs(correlations(taken, 2800)).max() < 5.5


def shards_of(seed, units=4000, count=5):
    """Which shard holds each unit."""
    rows = Rows({"who": np.arange(units)})
    dealt = random_shards(rows, count, units, Randomness(seed))
    shard, place = np.nonzero(dealt._present)
    owner = np.full(units, -1)
    owner[dealt._fields["who"][shard, place]] = shard
    return owner


def test_shards_are_dealt_by_chance():
    """Every unit by itself, evenly, whatever its place; and anew for every study."""
    one, other = shards_of(1), shards_of(2)
    for owner in (one, other):
        assert stats.chisquare(np.bincount(owner, minlength=5)).pvalue > 1e-3
        for table in (
            (owner[1:], owner[:-1]),
            (owner[5:], owner[:-5]),
            (owner, np.arange(4000) % 5),
            (owner, np.arange(4000) // 800),
            (one, other),
        ):
            if table[0] is not table[1]:
                seen = np.histogram2d(*table, bins=np.arange(6) - 0.5)[0]
                assert stats.chi2_contingency(seen).pvalue > 1e-3


def test_what_a_method_hears_follows_steps_and_not_rows(monkeypatch):
    """Batches of many rows make blocks of few steps, which must not show."""
    told, asked = {}, {}
    for units in (10, 1000):
        told[units], asked[units] = [], []
        monkeypatch.setattr(gate_module, "_MAX_BATCH_PLACES", 2000)
        settings = mechanism(sampling_rate=0.5, num_steps=90, dimension=3)
        gate = gate_module.Gate(Rows({"x": np.zeros((units, 3))}), settings, Randomness(0))
        assert (2000 // settings.batch_width(units) >= 40) == (units == 10)

        def step(state, number, release):
            return state, (number, release.noisy_sum(sum_rows(lambda _, row: row["x"]), ()))

        def inputs(start, steps, asked=asked[units]):
            asked.append((start, steps))
            return np.arange(start, start + steps, dtype=np.float32)

        _, out = gate_module.run(
            gate,
            step,
            np.zeros(1, np.float32),
            inputs,
            block=40,
            progress=told[units].append,
        )
        assert np.array_equal(out[0], np.arange(90))
    assert told[10] == told[1000] == [40, 80, 90]
    assert asked[10] == asked[1000] == [(0, 40), (40, 40), (80, 10)]

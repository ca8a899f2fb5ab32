"""Random words: all of a key's bits come from the system, and no word is ever drawn twice."""

import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest
from measure import just_release, nothing
from scipy import stats

from tacit.papers.response import randomised_response
from tacit.privacy import noise
from tacit.privacy.gate import Gate, run
from tacit.privacy.mechanisms import NoisySums, SampledBarkerTests, Stages, sum_rows
from tacit.privacy.noise import Randomness
from tacit.privacy.rows import Rows


@pytest.fixture
def drawn(monkeypatch):
    """All words that are drawn, by whatever stream."""
    words, found = Randomness.words, []

    def noted(self, count):
        found.append(words(self, count))
        return found[-1]

    monkeypatch.setattr(Randomness, "words", noted)
    return found


def assert_no_word_twice(drawn, least):
    """Of 64 bits each, no two of so few words are the same by chance."""
    words = np.concatenate(drawn)
    assert len(words) >= least
    assert len(np.unique(words)) == len(words)
    assert len(np.unique(words >> np.uint64(16))) == len(words)
    counts = np.bincount((words % np.uint64(256)).astype(int), minlength=256)
    assert stats.chisquare(counts).pvalue > 1e-4


def mechanism(**changes):
    settings = {
        "sampling_rate": 0.3,
        "num_steps": 400,
        "clip": 1.0,
        "noise_multiplier": 1.0,
        "dimension": 3,
    }
    return NoisySums(**(settings | changes))


def rows(units=100):
    return Rows({"x": np.zeros((units, 3))})


@pytest.mark.parametrize("seed", [None, 5])
def test_no_word_is_drawn_twice_in_a_run(drawn, seed):
    """Neither by sampling and noise, nor in two blocks."""
    gate = Gate(rows(), mechanism(), Randomness(seed))
    run(gate, just_release, jnp.zeros(1), nothing, block=50)
    assert_no_word_twice(drawn, 400 * (3 + 30))


@pytest.mark.parametrize("rate", [0.3, 1.0])
def test_no_word_is_drawn_twice_where_units_have_secret_ones(drawn, rate):
    """Neither by sampling, noise and units, nor in two blocks."""
    gate = Gate(rows(), mechanism(secrets=True, sampling_rate=rate), Randomness(5))
    run(gate, just_release, jnp.zeros(1), nothing, block=50)
    assert_no_word_twice(drawn, 400 * (3 + 100 * rate))


@pytest.mark.parametrize("source", ["one", "seeds", "system"])
def test_no_word_is_drawn_twice_by_several_gates(drawn, source):
    one = Randomness(1)
    sources = {"one": lambda _: one, "seeds": Randomness, "system": lambda _: Randomness()}
    for gate in [Gate(rows(), mechanism(), sources[source](i)) for i in range(3)]:
        run(gate, just_release, jnp.zeros(1), nothing, block=50)
    assert_no_word_twice(drawn, 3 * 400 * (3 + 30))


def test_no_word_is_drawn_twice_in_stages(drawn):
    several = Gate(
        rows(), Stages((mechanism(), mechanism(laplace=True, sampling_rate=1.0))), Randomness(1)
    )
    for gate in several.stages():
        run(gate, just_release, jnp.zeros(1), nothing, block=50)
    assert_no_word_twice(drawn, 400 * (3 + 30 + 3))


def test_no_word_is_drawn_twice_by_a_test_on_batches(drawn):
    settings = SampledBarkerTests(num_steps=400, batch_size=20, dataset_size=100, tempered_size=1.0)

    def step(state, _, release):
        return state, release.noisy_test(sum_rows(lambda _, row: row["x"][0]), (), jnp.float32(0))

    run(Gate(rows(), settings), step, jnp.zeros(1), nothing, block=50)
    assert_no_word_twice(drawn, 400 * 21)


def test_no_word_is_drawn_twice_by_answers(drawn):
    randomised_response(np.zeros(5000, int), 0.5, 3, Randomness(1))
    assert_no_word_twice(drawn, 10_000)


def test_children_of_a_stream_are_all_different(drawn):
    for source in (Randomness(1), Randomness(2), Randomness()):
        for label in ("a", "b", "a"):
            child = source.child(label)
            child.words(1000)
            child.child("a").words(1000)
        source.words(1000)
    assert_no_word_twice(drawn, 3 * 7 * 1000)


def test_a_key_is_all_that_the_system_gives(monkeypatch):
    """32 bytes of it, every one of which counts."""
    asked = []

    def system(count):
        asked.append(count)
        return bytes(given[:count])

    monkeypatch.setattr(noise.os, "urandom", system)
    given = bytearray(32)
    usual = Randomness().words(4).tolist()
    for byte in range(32):
        given = bytearray(32)
        given[byte] = 1
        assert Randomness().words(4).tolist() != usual
    assert asked == [32] * 33


def test_keys_from_the_system_do_not_repeat():
    """Of 16 bits, three thousand would have seventy pairs alike; of 32, still one in a thousand."""
    words = np.array([Randomness().words(1)[0] for _ in range(3000)])
    assert len(np.unique(words)) == 3000
    high = np.bincount((words >> np.uint64(60)).astype(int), minlength=16)
    assert stats.chisquare(high).pvalue > 1e-6


DRAWS = "from tacit.privacy.noise import Randomness; print(Randomness().words(4).tolist())"


@pytest.mark.processes
def test_processes_draw_different_words():
    """Started alike and at once, they have nothing in common but the system."""
    several = [
        subprocess.Popen([sys.executable, "-c", DRAWS], stdout=subprocess.PIPE) for _ in range(3)
    ]
    said = [process.communicate()[0] for process in several]
    assert all(each.startswith(b"[") for each in said)
    assert len(set(said)) == 3


def test_whatever_comes_from_a_seed_says_so():
    """A child of a seeded stream is no more private than the stream."""
    for source, seeded in ((Randomness(1), True), (Randomness(), False)):
        assert source.child("a").child("b").seeded is seeded
        gate = Gate(rows(), Stages((mechanism(),)), source)
        assert gate.seeded is seeded
        assert gate.stages()[0].seeded is seeded
    assert Randomness.from_key(bytes(32), seeded=True).child("a").seeded

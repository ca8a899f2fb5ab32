"""Rows in parts, over processes: the sums of all, sampled and clipped as of one table, bit for bit."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from threading import Barrier, Thread

import jax.numpy as jnp
import numpy as np
import pytest
from parts_worker import NUMBER, WAYS, mechanism, released, rows, step

from tacit.cli.distributed import _free_port
from tacit.errors import InvalidArgument
from tacit.privacy.distributed import PartitionedRows, Processes
from tacit.privacy.gate import open_gate, run
from tacit.privacy.mechanisms import BarkerTests, NoisySums, sum_rows
from tacit.privacy.noise import Randomness
from tacit.privacy.rows import Rows


@pytest.fixture(scope="module")
def alone():
    """What one process releases that holds all parts."""
    return {way: released(Processes(), way) for way in WAYS}


def value(_, row):
    return row["x"]


def just_release(state, _, release):
    return state, release.noisy_sum(sum_rows(value), ())


def nothing(_, steps):
    return np.zeros(steps, np.float32)


def sums(parts, seed=0, **settings):
    made = NoisySums(**({"clip": 2.0, "noise_multiplier": 0.0, "num_steps": 1} | settings))
    gate = open_gate(PartitionedRows(parts, len(parts), Processes()), made, Randomness(seed))
    return np.asarray(run(gate, just_release, jnp.zeros(()), nothing)[1])


def in_processes(size, attempts=3):
    """What so many processes print; again if somebody else took the port that was free."""
    port, worker = _free_port(), Path(__file__).with_name("parts_worker.py")
    started = [
        subprocess.Popen(
            [sys.executable, str(worker), str(rank), str(size), str(port)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(size)
    ]
    said = [each.communicate(timeout=400)[0].splitlines() for each in started]
    if any(each.returncode for each in started) and attempts > 1:
        return in_processes(size, attempts - 1)
    return said


@pytest.mark.parametrize("size", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_several_processes_release_what_one_does_bit_for_bit(alone, size):
    total = (2**62 + 3) * size
    for numbers, told, sums in in_processes(size):
        assert numbers == str([total - 2**64 * (total >= 2**63), -5 * size])
        assert told == "from the first"
        assert sums == alone["batches"].tobytes().hex()


@pytest.mark.parametrize("way", ["everyone", "wide"])
def test_so_do_steps_on_everyone_and_sums_of_64_bits(alone, way):
    assert mechanism("wide").lattice.wide
    for each in in_threads(3, lambda group: released(group, way)):
        np.testing.assert_array_equal(each, alone[way])


def test_parts_add_up_to_the_exact_sum_of_clipped_rows():
    parts = {number: rows(number) for number in range(3)}
    own = {number: each._fields["x"][:, 0] for number, each in parts.items()}
    values = np.concatenate(list(own.values())).astype(np.float64) * 3
    tripled = {number: Rows({"x": 3 * each}) for number, each in own.items()}
    lengths = np.linalg.norm(values, axis=1, keepdims=True)
    exact = (values * np.minimum(1, 2 / lengths)).sum(axis=0)
    found = sums(tripled, sampling_rate=1.0, dimension=3)[0]
    np.testing.assert_allclose(found, exact, rtol=3e-4)  # clips end 2^-13 below the bound


def test_noise_is_drawn_once_and_as_strong_as_charged():
    empty = {number: Rows({"x": np.zeros((4, 3))}) for number in range(4)}
    found = sums(empty, sampling_rate=1.0, dimension=3, noise_multiplier=1.5, num_steps=1500)
    # 4500 draws: their standard deviation is within 6% by more than five standard errors.
    assert found.std() == pytest.approx(3.0, rel=0.06)
    assert len(np.unique(found, axis=0)) == 1500


def test_every_unit_of_every_part_is_sampled_as_charged():
    """Units that each move a number of their own show who was sampled."""
    whole = np.eye(12, dtype=np.float32)
    parts = {number: Rows({"x": whole[4 * number : 4 * number + 4]}) for number in range(3)}
    found = sums(parts, sampling_rate=0.25, dimension=12, num_steps=1200, clip=1.0)
    taken = np.rint(found * 1.001)
    assert set(np.unique(taken)) == {0.0, 1.0}
    error = np.sqrt(0.25 * 0.75 / 1200)
    np.testing.assert_allclose(taken.mean(axis=0), 0.25, atol=5.5 * error)
    together = np.corrcoef(taken.T)[np.triu_indices(12, 1)]
    assert np.abs(together).max() < 5.5 / np.sqrt(1200)  # also between parts
    steps = [np.corrcoef(taken[1:, i], taken[:-1, i])[0, 1] for i in range(12)]
    assert np.abs(steps).max() < 5.5 / np.sqrt(1200)


def test_what_a_part_draws_does_not_depend_on_the_parts_beside_it():
    """Nobody in the other parts: the sums of one are the same wherever the others are."""
    own, nobody = rows(1), Rows({"x": np.zeros((0, 3))})
    ways = [{0: nobody, 1: own, 2: nobody}, {0: Rows({"x": np.zeros((500, 3))}), 1: own, 2: nobody}]
    first, second = [sums(way, sampling_rate=0.3, dimension=3, num_steps=20) for way in ways]
    np.testing.assert_array_equal(first, second)
    assert len(np.unique(first, axis=0)) == 20


class _Together(Processes):
    """Processes as threads of one, which add up through what they share."""

    def __init__(self, rank, size, shared):
        self.rank, self.size, self._shared = rank, size, shared

    def add(self, numbers):
        told, barrier = self._shared
        told[self.rank] = np.asarray(numbers, np.int64)
        barrier.wait(600)
        total = sum(told.values(), np.zeros(1, np.int64))
        barrier.wait(600)
        return total


def in_threads(size, work):
    """What so many threads return, or raise."""
    shared, found = ({}, Barrier(size)), {}

    def runs(rank):
        try:
            found[rank] = work(_Together(rank, size, shared))
        except Exception as error:  # noqa: BLE001
            found[rank] = error

    threads = [Thread(target=runs, args=(rank,)) for rank in range(size)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return [found[rank] for rank in range(size)]


def test_who_holds_which_part_does_not_matter(alone):
    def work(group):
        return released(group, "batches", [(0, 4), (1, 2, 3)][group.rank])

    for each in in_threads(2, work):
        np.testing.assert_array_equal(each, alone["batches"])


def test_all_processes_go_where_the_first_one_says():
    """Others may have rounded otherwise, and would look elsewhere."""

    def still(state, _, release):
        return state, step(state, 0.0, release)[1]

    def driven(group, wrong=0.0):
        held = range(group.rank, NUMBER, group.size)
        parts = PartitionedRows({number: rows(number) for number in held}, NUMBER, group)
        gate = open_gate(parts, mechanism("everyone"), Randomness(4))

        def update(given):
            return np.asarray(given / 100 + wrong * group.rank, np.float32)

        return run(gate, still, np.zeros(3, np.float32), nothing, update=update)

    state, sums = driven(Processes())
    for own, each in in_threads(3, lambda group: driven(group, wrong=0.3)):
        assert np.array_equal(each, sums)
        assert np.array_equal(own, state)


def test_all_processes_stop_where_the_first_one_does():
    """Whatever the others think of the count, and so that none waits for another."""

    def stopping(group, says):
        held = range(group.rank, NUMBER, group.size)
        parts = PartitionedRows({number: rows(number) for number in held}, NUMBER, group)
        gate = open_gate(parts, replace(mechanism("everyone"), stop_after=2), Randomness(4))

        def update(given):
            return np.asarray(given / 100, np.float32)

        def still(state, _, release):
            return state, step(state, 0.0, release)[1]

        start = np.zeros(3, np.float32)
        _, out = run(gate, still, start, nothing, update=update, stop=lambda _: says(group.rank))
        return gate.stopped, len(out)

    assert in_threads(3, lambda group: stopping(group, lambda rank: rank == 0)) == [(True, 2)] * 3
    assert in_threads(3, lambda group: stopping(group, lambda rank: rank > 0)) == [(False, 25)] * 3


@pytest.mark.parametrize(
    ("held", "said"),
    [
        ([(0, 1), (2, 3)], "some are missing"),
        ([(0, 1, 2), (2, 3, 4)], "given to several"),
        ([range(NUMBER), ()], "needs a file of its own"),
    ],
)
def test_parts_that_are_missing_or_held_twice_are_refused_by_all(held, said):
    errors = in_threads(2, lambda group: released(group, "batches", held[group.rank]))
    assert all(isinstance(each, InvalidArgument) and said in str(each) for each in errors)


def test_another_question_in_another_process_is_refused():
    def work(group):
        parts = PartitionedRows({group.rank: rows(group.rank)}, 2, group)
        parts.check_same(b"one" if group.rank == 0 else b"another")

    first, second = in_threads(2, work)
    assert first is None
    assert "same columns, model, method, settings and number of threads" in str(second)


def test_a_digest_of_parts_is_that_of_all_and_of_their_places():
    def digest(order, key=b"k" * 32):
        held = {number: rows(source) for number, source in enumerate(order)}
        return PartitionedRows(held, 3, Processes())._keyed_digest(key)

    def work(group):
        held = {n: rows(n) for n in range(group.rank, 3, 2)}
        return PartitionedRows(held, 3, group)._keyed_digest(b"k" * 32 if group.rank == 0 else b"")

    whole = digest([0, 1, 2])
    assert in_threads(2, work) == [whole, whole]
    assert len({whole, digest([1, 0, 2]), digest([0, 1, 1]), digest([0, 1, 2], b"l" * 32)}) == 4


def test_other_mechanisms_are_refused_in_a_sentence():
    parts = PartitionedRows({0: rows(0)}, 1, Processes())
    tests = BarkerTests(num_steps=5, ratio_bound=1.0)
    with pytest.raises(InvalidArgument, match="need a method of one sequence of noisy sums"):
        open_gate(parts, tests)


def test_the_keys_of_parts_and_noise_differ():
    gate = open_gate(
        PartitionedRows({0: rows(0)}, 1, Processes()), mechanism("batches"), Randomness(1)
    )
    drawn_by_parts = gate._session.runner(gate, 1)._drawn_by_parts
    assert drawn_by_parts._key != gate._bits.noise._key
    labels = [drawn_by_parts.named(f"{w} of part {p} in step {s}")._key
              for w in ("sampling", "secret") for p in range(3) for s in range(3)]  # fmt: skip
    assert len(set(labels)) == 18

"""Runs that stop early do no more to the rows than their charge says then, whatever happens to them."""

import numpy as np
import pytest
from measure import just_release, nothing, value

from tacit.accounting import events
from tacit.errors import BoundaryError, InvalidArgument, TacitError
from tacit.privacy import checkpoint
from tacit.privacy.checkpoint import Checkpoint, checkpointed
from tacit.privacy.distributed import PartitionedRows, Processes
from tacit.privacy.gate import open_gate, run
from tacit.privacy.mechanisms import (
    BarkerTests,
    NoisySums,
    Stages,
    stopped_event,
    sum_rows,
    without_stop,
)
from tacit.privacy.noise import Randomness
from tacit.privacy.rows import Rows

VALUES = np.random.default_rng(0).normal(size=(40, 2)).astype(np.float32)
SCHEDULE = ((5.0, 1), (2.0, 3), (1.0, 4))


def sums(**changes):
    settings = {
        "sampling_rate": 1.0,
        "num_steps": 8,
        "clip": 1.0,
        "noise_multiplier": SCHEDULE,
        "dimension": 2,
        "stop_after": 1,
    }
    return NoisySums(**(settings | changes))


KINDS = {
    "one process": lambda: Rows({"x": VALUES}),
    "parts": lambda: PartitionedRows({0: Rows({"x": VALUES})}, 1, Processes()),
}


class Executed:
    """What a gate executed, by whoever draws its noise."""

    def __init__(self, monkeypatch):
        self.noise, usual = [], NoisySums.noise

        def drawn(mechanism, bits, start, steps):
            found = usual(mechanism, bits, start, steps)
            scales = [scale for scale, number in mechanism.phases for _ in range(number)]
            self.noise += scales[start : start + steps]
            return found

        monkeypatch.setattr(NoisySums, "noise", drawn)

    @property
    def event(self):
        counted = [(scale, self.noise.count(scale)) for scale in dict.fromkeys(self.noise)]
        return events.sampled_gaussian(counted, 1.0)


@pytest.fixture
def executed(monkeypatch):
    return Executed(monkeypatch)


def same(_):
    return np.float32(0)


def stopping(gate, stop=lambda _: True, **more):
    return run(gate, just_release, np.float32(0), nothing, update=same, stop=stop, **more)


@pytest.mark.parametrize("rows", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("after", [1, 3])
def test_what_is_executed_until_a_stop_is_what_is_charged_then(executed, rows, after):
    gate = open_gate(rows(), sums(stop_after=after), Randomness(1))
    told = []
    _, out = stopping(gate, progress=told.append)
    assert gate.stopped
    assert len(out) == len(executed.noise) == after
    assert executed.event == gate.mechanism.stopped_event
    assert told == []
    with pytest.raises(BoundaryError, match="has been used"):
        stopping(gate)
    assert len(executed.noise) == after


@pytest.mark.parametrize("rows", KINDS.values(), ids=KINDS)
def test_a_run_that_does_not_stop_is_the_run_that_cannot(executed, rows):
    asked = []

    def never(out):
        asked.append(out)
        return False

    gate = open_gate(rows(), sums(), Randomness(1))
    _, out = stopping(gate, never)
    assert not gate.stopped
    assert executed.event == gate.mechanism.event
    assert np.array_equal(asked, out[:1])  # once, and of what was released
    plain = open_gate(rows(), without_stop(gate.mechanism), Randomness(1))
    assert np.array_equal(out, run(plain, just_release, np.float32(0), nothing, update=same)[1])


def test_the_event_of_a_stop_is_that_of_the_first_steps():
    for after, kept in {1: SCHEDULE[:1], 3: ((5.0, 1), (2.0, 2)), 6: (*SCHEDULE[:2], (1.0, 2))}.items():  # fmt: skip
        for changes in ({}, {"sampling_rate": 0.1}, {"laplace": True}):
            short = sums(num_steps=after, noise_multiplier=kept, stop_after=0, **changes)
            assert sums(stop_after=after, **changes).stopped_event == short.event
            assert sums(stop_after=after, **changes).event == sums(stop_after=0, **changes).event
    twice = sums(noise_multiplier=((2.0, 1), (1.0, 1)), num_steps=4, rounds=2, stop_after=3)
    assert sorted(n for _, n in events.leaves(twice.stopped_event)) == [1, 2]
    assert stopped_event(sums(stop_after=0)) is None
    assert stopped_event(BarkerTests(num_steps=3, ratio_bound=1.0)) is None


def test_a_run_stops_only_where_its_mechanism_says(executed):
    with pytest.raises(BoundaryError, match="only if its mechanism says"):
        stopping(open_gate(KINDS["one process"](), sums(stop_after=0)))
    with pytest.raises(BoundaryError, match="only if its mechanism says"):
        run(
            open_gate(KINDS["one process"](), sums()),
            just_release,
            np.float32(0),
            nothing,
            stop=lambda _: True,
        )
    with pytest.raises(BoundaryError, match="none can stop early"):
        open_gate(KINDS["one process"](), Stages((sums(), sums()))).stages()
    for wrong in (8, -1, 0.5):
        with pytest.raises(InvalidArgument, match="stop"):
            sums(stop_after=wrong)
    assert executed.noise == []


def kept(folder):
    """A gate that is kept in a folder: begun, or as far as it was."""
    rows = Rows({"x": VALUES})
    if checkpoint.is_resumable(folder):
        held = Checkpoint.open(folder)
    else:
        held = Checkpoint.begin(folder, Randomness(), rows, {}, {}, 1000)
    return held, open_gate(rows, sums(), held.randomness(), checkpointed(held))


def test_a_stop_is_on_disk_before_it_is_known_and_nothing_is_drawn_again(tmp_path, executed):
    held, gate = kept(tmp_path)
    _, first = stopping(gate)
    held.close()  # as if the process had ended here
    assert executed.noise == [5.0]
    held, again = kept(tmp_path)
    assert held.started
    _, second = stopping(again)
    held.close()
    assert again.stopped
    assert np.array_equal(first, second)
    assert executed.noise == [5.0]


def test_a_stop_that_cannot_be_stored_does_not_leave(tmp_path, monkeypatch):
    held, gate = kept(tmp_path)

    def full(*_):
        raise OSError(28, "No space left on device")

    def asked(_):
        monkeypatch.setattr(checkpoint, "write_atomically", full)
        return True

    with pytest.raises(TacitError, match="cannot be written"):
        stopping(gate, asked)
    held.close()


class Killed(BaseException):
    """Stands for the end of the process."""


@pytest.mark.parametrize("stored", [True, False])
def test_a_run_that_was_killed_after_its_count_goes_on_with_it(
    tmp_path, monkeypatch, executed, stored
):
    """From the count that was stored, or else with the same noise: there is no second one."""
    monkeypatch.setattr(checkpoint, "_MIN_SECONDS_BETWEEN_WRITES", 0.0 if stored else 1e9)
    monkeypatch.setattr(checkpoint, "_WRITE_TIME_FACTOR", 0.0)
    held, gate = kept(tmp_path)
    seen, runner = [], gate._session.runner

    def remembers(out):
        seen.append(np.array(out))
        return False

    def killed_in_the_second_step(own, every):
        made = runner(own, every)
        usual = made.run

        def counted(start, *rest):
            if start == 1:
                raise Killed
            return usual(start, *rest)

        made.run = counted
        return made

    gate._session.runner = killed_in_the_second_step
    with pytest.raises(Killed):
        stopping(gate, remembers)
    held.close()
    assert executed.noise == [5.0]
    held, again = kept(tmp_path)
    stopping(again, remembers)
    held.close()
    assert np.array_equal(*seen)
    assert executed.noise.count(5.0) == (1 if stored else 2)


def test_a_run_that_went_on_cannot_stop_later(tmp_path, monkeypatch, executed):
    """Even if what decides changes its mind when the run is resumed: more was executed than the count."""
    monkeypatch.setattr(checkpoint, "_MIN_SECONDS_BETWEEN_WRITES", 0.0)
    monkeypatch.setattr(checkpoint, "_WRITE_TIME_FACTOR", 0.0)
    held, gate = kept(tmp_path)

    def killed(done):
        if done == 4:
            raise Killed

    with pytest.raises(Killed):
        stopping(gate, lambda _: False, block=4, progress=killed)
    held.close()
    held, again = kept(tmp_path)
    stopping(again, lambda _: True)
    held.close()
    assert not again.stopped
    assert len(executed.noise) == 8


def test_what_decides_on_a_stop_is_given_what_was_released_and_nothing_else():
    """Rows and noise by themselves never leave the gate."""
    given = []

    def stop(*arguments, **more):
        given.append((arguments, more))
        return True

    gate = open_gate(Rows({"x": VALUES}), sums(), Randomness(3))
    _, out = stopping(gate, stop)
    ((arguments, more),) = given
    assert len(arguments) == 1
    assert not more
    assert np.array_equal(arguments[0], out[0])
    exact = np.asarray(sum_rows(value)((), {"x": VALUES}, np.ones(40, bool)))
    assert not np.allclose(out[0], exact, atol=0.1)

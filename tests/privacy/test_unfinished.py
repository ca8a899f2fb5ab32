"""Gates that are kept on disk: killed anywhere, they go on with the same noise to the same releases."""

import errno
import json
import os
import stat
import sys
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tacit import _files
from tacit.errors import InvalidArgument, TacitError
from tacit.privacy import checkpoint
from tacit.privacy.checkpoint import Checkpoint, checkpointed, destroy_checkpoint, is_resumable
from tacit.privacy.gate import open_gate, run
from tacit.privacy.mechanisms import BarkerTests, NoisySums, SampledBarkerTests, Stages, sum_rows
from tacit.privacy.noise import Randomness
from tacit.privacy.one_draw.chain import ChainDraws
from tacit.privacy.one_draw.claims import BoundedLikelihood
from tacit.privacy.one_draw.exact import GridDraws
from tacit.privacy.rows import Rows

STEPS, BLOCK = 60, 25
BOUND = {"another model": "a"}
VALUES = np.random.default_rng(0).normal(size=(40, 2)).astype(np.float32)


class Killed(BaseException):
    """Stands for the end of the process: nothing handles it."""


@pytest.fixture(autouse=True)
def often(monkeypatch):
    """Every block is stored, and is as small as for many rows."""
    monkeypatch.setattr(checkpoint, "_MIN_SECONDS_BETWEEN_WRITES", 0.0)
    monkeypatch.setattr(checkpoint, "_WRITE_TIME_FACTOR", 0.0)
    monkeypatch.setattr("tacit.privacy.gate._MAX_BATCH_PLACES", 200)


def rows(values=VALUES):
    return Rows({"x": values})


def begun(folder, source, data=None):
    if is_resumable(folder):
        held = Checkpoint.open(folder)
        held.check_same(data or rows(), BOUND)
        return held
    return Checkpoint.begin(folder, source, data or rows(), BOUND, {}, 1000)


def sums(**changes):
    settings = {
        "sampling_rate": 0.3,
        "num_steps": STEPS,
        "clip": 1.0,
        "noise_multiplier": 1.0,
        "dimension": 2,
    }
    return NoisySums(**(settings | changes))


def adding(state, given, release):
    """The state is an array and a number."""
    total, count = state
    found = release.noisy_sum(sum_rows(lambda at, row: row["x"] - 0.01 * at), total)
    return (total + found + given, count + 1), {"sum": found, "count": count}


def deciding(state, given, release):
    total, count = state
    accepted = release.noisy_test(
        sum_rows(lambda at, row: row["x"][0] - 0.1 * at[0]), total, jnp.float32(0) + given
    )
    return (jnp.where(accepted, total + 0.5, total - 0.5), count + 1), (accepted, total)


def start():
    return jnp.zeros(2), np.float32(0)


def inputs(first, steps):
    return np.linspace(0, 1, STEPS, dtype=np.float32)[first : first + steps]


KINDS = {
    "sampled": (sums(), adding),
    "everyone": (sums(sampling_rate=1.0), adding),
    "laplace": (sums(sampling_rate=1.0, laplace=True), adding),
    "tests": (BarkerTests(num_steps=STEPS, ratio_bound=1.0), deciding),
    "batches": (
        SampledBarkerTests(num_steps=STEPS, batch_size=9, dataset_size=40, tempered_size=10.0),
        deciding,
    ),
}


def with_secrets(state, given, release):
    total, count = state

    def of(at, columns, present, secret):
        return columns["x"][0] - 0.01 * at + secret[0].astype(jnp.float32) * 2.0**-33

    found = release.noisy_sum(of, total)
    return (total + found + given, count + 1), found


KINDS["secrets"] = (sums(secrets=True), with_secrets)


def through(gate, step):
    return run(gate, step, start(), inputs, block=BLOCK)


def numbers(tree):
    return [np.asarray(leaf).tolist() for leaf in jax.tree.leaves(tree)]


def killing(monkeypatch, number, *, after):
    """Ends the run before or after so many writes of its state."""
    done, write = [], checkpoint.write_atomically

    def counted(path, content):
        if path.name == "state":
            done.append(path)
            if len(done) == number and not after:
                raise Killed
        write(path, content)
        if len(done) == number:
            raise Killed

    monkeypatch.setattr(checkpoint, "write_atomically", counted)


def to_the_end(folder, source, mechanism, go, *, after):
    """What a run gives that is killed after every write, or before every second; and how often."""
    for kills in range(100):
        held = begun(folder, source)
        with pytest.MonkeyPatch.context() as patch:
            killing(patch, 1 if after else 2, after=after)
            try:
                found = go(open_gate(rows(), mechanism, held.randomness(), checkpointed(held)))
            except Killed:
                continue
            finally:
                held.close()
        return found, kills
    raise AssertionError


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_gate_goes_on_bit_for_bit(tmp_path, kind, after):
    """With keys of the system, as of a fit without a seed."""
    mechanism, step = KINDS[kind]
    source = Randomness()
    whole = through(open_gate(rows(), mechanism, Randomness.from_key(source._key)), step)
    found, kills = to_the_end(
        tmp_path, source, mechanism, lambda gate: through(gate, step), after=after
    )
    assert kills >= 2
    assert numbers(found) == numbers(whole)


@pytest.mark.parametrize("after", [False, True])
def test_steps_that_an_update_drives_go_on_bit_for_bit(tmp_path, after):
    """An update remembers what it was given, and is given it again by the next process."""
    mechanism = sums(num_steps=9, noise_multiplier=((2.0, 1), (1.0, 8)))
    calls = []

    def driven(gate):
        seen = []

        def update(given):
            seen.append(given["sum"])
            calls.append(len(seen))
            return np.mean(seen, axis=0, dtype=np.float32), np.float32(len(seen))

        start = np.zeros(2, np.float32), np.float32(0)
        state, outputs = run(gate, adding, start, inputs, update=update)
        assert np.array_equal(seen, outputs["sum"])
        return state, outputs

    source = Randomness()
    whole = driven(open_gate(rows(), mechanism, Randomness.from_key(source._key)))
    assert calls == list(range(1, 10))
    found, kills = to_the_end(tmp_path, source, mechanism, driven, after=after)
    assert kills >= 8
    assert len(calls) > 2 * 9
    assert numbers(found) == numbers(whole)


def test_stages_go_on_bit_for_bit(tmp_path):
    mechanism = Stages((sums(), BarkerTests(num_steps=STEPS, ratio_bound=1.0)))

    def both(gate):
        first, then = gate.stages()
        return through(first, adding), through(then, deciding)

    source = Randomness()
    whole = both(open_gate(rows(), mechanism, Randomness.from_key(source._key)))
    found, kills = to_the_end(tmp_path, source, mechanism, both, after=True)
    assert kills > 4
    assert numbers(found) == numbers(whole)


def test_no_word_is_drawn_twice_by_a_run_that_goes_on(tmp_path):
    """But for those of a block that was not stored, which nobody has seen."""
    mechanism, step = KINDS["secrets"]
    words, drawn = Randomness.words, []

    def noted(self, count):
        drawn.append(words(self, count))
        return drawn[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Randomness, "words", noted)
        to_the_end(tmp_path, Randomness(), mechanism, lambda g: through(g, step), after=True)
    found = np.concatenate(drawn)
    assert len(found) > STEPS * 12
    assert len(np.unique(found)) == len(found)


@pytest.mark.parametrize("drawn", [0, 1, 2, 7, 2**14 + 3, 10**12 + 1])
def test_a_stream_goes_on_where_it_was(drawn):
    key = bytes(range(32))
    one, other = Randomness.from_key(key), Randomness.from_key(key)
    if drawn < 10**6:
        one.words(drawn)
    else:
        one.skip_to(drawn - 5)
        one.words(5)
    other.skip_to(drawn)
    assert one.words(9).tolist() == other.words(9).tolist()
    assert one.drawn == other.drawn == drawn + 9


def half_done(folder, monkeypatch, kind="sampled", source=None):
    """A run that was killed in the middle."""
    mechanism, step = KINDS[kind]
    held = begun(folder, source or Randomness())
    with pytest.MonkeyPatch.context() as patch:
        killing(patch, 5, after=True)
        with pytest.raises(Killed):
            through(open_gate(rows(), mechanism, held.randomness(), checkpointed(held)), step)
    held.close()
    return held


def test_files_are_for_their_owner_only(tmp_path, monkeypatch):
    """Whatever the process lets others do with its files."""
    before = os.umask(0)
    try:
        half_done(tmp_path / "run", monkeypatch)
    finally:
        os.umask(before)
    place = tmp_path / "run" / "unfinished"
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    files = {path.name: stat.S_IMODE(path.stat().st_mode) for path in place.iterdir()}
    assert files == {"keys": 0o600, "state": 0o600, "lock": 0o600}


class Windows:
    """The locks of Windows: a byte of a file is one handle's, until that is closed."""

    LK_NBLCK = 2

    def __init__(self):
        self.locks = {}

    def locking(self, handle, mode, size):
        assert (mode, size) == (self.LK_NBLCK, 1)
        file = os.fstat(handle).st_ino
        if file in self.locks:
            raise PermissionError(errno.EACCES, "Permission denied")
        self.locks[file] = handle

    def close(self, handle):
        self.locks = {file: held for file, held in self.locks.items() if held != handle}
        self.closed(handle)


@pytest.mark.parametrize("system", ["this", "Windows"])
def test_one_process_at_a_time_has_a_run(tmp_path, monkeypatch, system):
    if system == "Windows":
        fake = Windows()
        fake.closed = os.close
        monkeypatch.setattr(os, "close", fake.close)
        monkeypatch.setitem(sys.modules, "msvcrt", fake)
        monkeypatch.setattr(_files, "sys", SimpleNamespace(platform="win32"))
    held = begun(tmp_path / "run", Randomness())
    with pytest.raises(InvalidArgument, match="Another process is at work on the run"):
        Checkpoint.open(tmp_path / "run")
    held.close()
    Checkpoint.open(tmp_path / "run").close()


def test_what_others_may_read_has_neither_keys_nor_rows(tmp_path, monkeypatch):
    """Neither does the state, which is sealed."""
    source = Randomness()
    folder = tmp_path / "run"
    held = half_done(folder, monkeypatch, source=source)
    secrets = [source._key, source._key.hex().encode(), VALUES[3, :1].tobytes()]
    secrets += [bytes.fromhex(held._held[name]) for name in ("seal", "mac", "rows")]
    secrets += [stream.words(3).tobytes() for stream in (source, source.child("sampling"))]
    for path in folder.rglob("*"):
        if path.is_file() and path.name != "keys":
            content = path.read_bytes()
            assert not any(secret in content for secret in secrets), path
    keys = (folder / "unfinished" / "keys").read_bytes()
    assert source._key.hex().encode() in keys
    assert VALUES[3, :1].tobytes() not in keys
    assert b"another model" not in (folder / "unfinished" / "state").read_bytes()


def test_a_finished_run_destroys_its_keys(tmp_path, monkeypatch):
    """They are overwritten where they were, and then removed."""
    held = half_done(tmp_path, monkeypatch)
    keys = tmp_path / "unfinished" / "keys"
    size = keys.stat().st_size
    with keys.open("rb") as same_place:
        held.destroy()
        assert same_place.read() == bytes(size)
    assert list(tmp_path.iterdir()) == []
    assert not is_resumable(tmp_path)
    with pytest.raises(InvalidArgument, match="no unfinished run"):
        Checkpoint.open(tmp_path)


def test_keys_that_were_overwritten_are_no_run(tmp_path, monkeypatch):
    """A process that ends between overwriting and removing leaves a file of zeros."""
    half_done(tmp_path, monkeypatch)
    _files.overwrite_with_zeros(tmp_path / "unfinished" / "keys")
    assert not is_resumable(tmp_path)
    destroy_checkpoint(tmp_path)
    assert list(tmp_path.iterdir()) == []


OTHERS = {
    "a value": np.where(np.arange(80).reshape(40, 2) == 7, 9.0, VALUES),
    "the order": VALUES[::-1],
    "a row less": VALUES[:-1],
    "a row of zeros more": np.concatenate([VALUES, np.zeros((1, 2))]),
    "a sign of zero": None,
}


@pytest.mark.parametrize("change", OTHERS)
def test_other_rows_are_refused(tmp_path, change):
    """Also those whose numbers compare as equal, as a likelihood could tell them apart."""
    first, then = VALUES, OTHERS[change]
    if then is None:
        first, then = np.zeros((3, 2)), np.array([[0.0, 0], [-0.0, 0], [0, 0]])
    Checkpoint.begin(tmp_path, Randomness(), rows(first), BOUND, {}, 1000).close()
    held = Checkpoint.open(tmp_path)
    held.check_same(rows(first.copy()), BOUND)
    with pytest.raises(InvalidArgument, match="begun with other data"):
        held.check_same(rows(then), BOUND)
    held.close()


def test_people_are_compared_with_all_their_rows(tmp_path):
    def people(who, left_out=()):
        codes, gone = (np.array(list(each), "S1") for each in (who, left_out))
        return Rows.from_encoded({"x": np.zeros(3, np.float32)}, codes, 2, gone)

    Checkpoint.begin(tmp_path, Randomness(), people("aab"), BOUND, {}, 1000).close()
    held = Checkpoint.open(tmp_path)
    held.check_same(people("aab"), BOUND)
    for other in (people("abb"), people("abc"), people("aab", "d"), Rows({"x": np.zeros(3)})):
        with pytest.raises(InvalidArgument, match="other data"):
            held.check_same(other, BOUND)
    held.close()


def test_what_differs_is_named(tmp_path):
    Checkpoint.begin(tmp_path, Randomness(), rows(), BOUND, {}, 1000).close()
    held = Checkpoint.open(tmp_path)
    for other in ({"another model": "b"}, {}, {**BOUND, "another schema": "c"}):
        with pytest.raises(InvalidArgument, match="begun with another"):
            held.check_same(rows(), other)
    held.close()


def other_step(state, given, release):
    (total, count), out = adding(state, given, release)
    return (total + 0.5, count), out


@pytest.mark.parametrize(
    ("mechanism", "step", "state", "given"),
    [
        (sums(noise_multiplier=1.1), adding, start(), inputs),
        (sums(), other_step, start(), inputs),
        (sums(), adding, (jnp.ones(2), np.float32(0)), inputs),
        (sums(), adding, start(), lambda first, steps: inputs(first, steps) + np.float32(1e-3)),
    ],
)
def test_another_question_is_refused(tmp_path, monkeypatch, mechanism, step, state, given):
    """Another mechanism, step, start or input, before any noise is drawn."""
    half_done(tmp_path, monkeypatch)
    held = Checkpoint.open(tmp_path)
    source = held.randomness()
    gate = open_gate(rows(), mechanism, source, checkpointed(held))
    monkeypatch.setattr(Randomness, "words", lambda *_: pytest.fail("drawn"))
    with pytest.raises(InvalidArgument, match="never answer another question"):
        run(gate, step, state, given, block=BLOCK)
    held.close()


def in_a_function(shift):
    """A density whose number no text of its trace has."""
    return lambda at, fields, _present, _constants: jax.jit(
        lambda x: -((x * np.full(2, shift, np.float32)).sum() ** 2)
    )(fields["x"][0] - at[0])


def quadratic(at, _constants):
    return -0.5 * (at**2).sum()


def with_rule(shift):
    """A prior whose derivative has a rule of its own, which the trace of its value lacks."""
    of = jax.custom_jvp(quadratic)
    of.defjvp(lambda at, along: (of(*at), shift * (along[0]).sum()))
    return of


DRAWS = {
    "grid": GridDraws(
        claim=BoundedLikelihood(bound=1.0),
        power=1.0,
        num_draws=1,
        low=(-1.0,),
        high=(1.0,),
        points=(5,),
    ),
    "chain": ChainDraws(
        claim=BoundedLikelihood(bound=1.0),
        power=1.0,
        num_draws=1,
        dimension=1,
        warm_up=1,
        length=1,
        resolution=0.1,
    ),
}


@pytest.mark.parametrize(
    ("kind", "first", "second"),
    [
        ("grid", (np.zeros(5), in_a_function(1.0)), (np.zeros(5), in_a_function(2.0))),
        ("grid", (np.zeros(5), in_a_function(1.0)), (np.arange(5.0), in_a_function(1.0))),
        ("chain", (quadratic, in_a_function(1.0)), (quadratic, in_a_function(2.0))),
        ("chain", (with_rule(1.0), in_a_function(1.0)), (with_rule(2.0), in_a_function(1.0))),
    ],
)
def test_another_draw_is_refused(tmp_path, monkeypatch, kind, first, second):
    """Functions count by what they are traced as; asked again, they are the same."""
    drawn = []
    monkeypatch.setattr(
        "tacit.privacy.one_draw.gate._DRAW_FUNCTIONS",
        {type(DRAWS[kind]): (lambda *_: None, lambda *_: drawn.append(kind))},
    )
    held = begun(tmp_path, Randomness())

    def draw(given):
        open_gate(rows(), DRAWS[kind], held.randomness(), checkpointed(held)).draw(*given, None)

    draw(first)
    draw(first)
    with pytest.raises(InvalidArgument, match="never answer another question"):
        draw(second)
    assert len(drawn) == 2
    held.close()


def test_the_question_is_on_disk_before_the_charge(tmp_path):
    """Of a gate of steps, with the inputs of all of them."""
    mechanism, step = KINDS["sampled"]
    held, charged = begun(tmp_path, Randomness()), []

    def charge():
        charged.append(Checkpoint._read(held))
        raise Killed

    def asking(given):
        gate = open_gate(rows(), mechanism, held.randomness(), checkpointed(held, charge))
        run(gate, step, start(), given, block=BLOCK)

    with pytest.raises(Killed):
        asking(inputs)
    (stored,) = charged
    assert [each.steps for each in stored.values()] == [0]
    with pytest.raises(InvalidArgument, match="never answer another question"):
        asking(lambda first, steps: inputs(first, steps) + (first > 0))
    assert len(charged) == 1
    held.close()


def test_one_process_at_a_time(tmp_path):
    held = Checkpoint.begin(tmp_path, Randomness(), rows(), BOUND, {}, 1000)
    with pytest.raises(InvalidArgument, match="Another process"):
        Checkpoint.open(tmp_path)
    with pytest.raises(InvalidArgument, match="Another process"):
        Checkpoint.begin(tmp_path, Randomness(), rows(), BOUND, {}, 1000)
    held.close()
    Checkpoint.open(tmp_path).close()


@pytest.mark.parametrize("damage", ["cut", "changed", "of another run"])
def test_a_damaged_state_is_refused(tmp_path, monkeypatch, damage):
    half_done(tmp_path / "a", monkeypatch)
    half_done(tmp_path / "b", monkeypatch)
    state = tmp_path / "a" / "unfinished" / "state"
    content = bytearray(state.read_bytes())
    content[-20] ^= 1
    changes = {
        "cut": state.read_bytes()[:-5],
        "changed": bytes(content),
        "of another run": (tmp_path / "b" / "unfinished" / "state").read_bytes(),
    }
    state.write_bytes(changes[damage])
    with pytest.raises(TacitError, match="damaged"):
        Checkpoint.open(tmp_path / "a")


def no_room(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_is_refused_at_the_start(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "reserve", no_room)
    with pytest.raises(InvalidArgument, match=r"No space left on device. Nothing was charged"):
        begun(tmp_path / "run", Randomness())
    assert list((tmp_path / "run").iterdir()) == []


def test_a_disk_that_is_full_for_a_while_costs_nothing(tmp_path, monkeypatch):
    """What was stored last stays; the last position has to be stored before anything leaves."""
    mechanism, step = KINDS["sampled"]
    source = Randomness()
    whole = through(open_gate(rows(), mechanism, Randomness.from_key(source._key)), step)
    held = begun(tmp_path, source)
    write, done = checkpoint.write_atomically, []

    def fails(path, content):
        done.append(path)
        (write if len(done) < 3 else no_room)(path, content)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "write_atomically", fails)
        with pytest.raises(TacitError, match="No space left"):
            through(open_gate(rows(), mechanism, held.randomness(), checkpointed(held)), step)
    held.close()
    assert len(done) > 6
    held = begun(tmp_path, source)
    found = through(open_gate(rows(), mechanism, held.randomness(), checkpointed(held)), step)
    assert numbers(found) == numbers(whole)
    held.close()


def test_a_write_that_is_cut_off_leaves_the_last_state(tmp_path, monkeypatch):
    """As by a loss of power: the draft is there, in part, and not in its place."""
    half_done(tmp_path, monkeypatch)
    place = tmp_path / "unfinished"
    before = (place / "state").read_bytes()
    (place / "draft-x").write_bytes(before[:100])
    Checkpoint.open(tmp_path).close()
    assert (place / "state").read_bytes() == before
    assert not (place / "draft-x").exists()


def test_the_keys_are_readable_json(tmp_path):
    """For whoever finds the file: it says what it is."""
    Checkpoint.begin(tmp_path, Randomness(), rows(), BOUND, {"data": "/d.csv"}, 1000).close()
    held = json.loads(Path(tmp_path / "unfinished" / "keys").read_text())
    assert "Secret keys" in held["note"]
    assert held["notes"] == {"data": "/d.csv"}

"""The gate from outside: what it adds, what it bounds, and what it refuses."""

import copy
import dataclasses
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tacit.accounting import events
from tacit.errors import BoundaryError, InvalidArgument
from tacit.privacy import mechanisms
from tacit.privacy.clipping import clip_to_lattice
from tacit.privacy.gate import Gate, check, run
from tacit.privacy.mechanisms import NoisySums, Release, sum_rows
from tacit.privacy.noise import Randomness
from tacit.privacy.rows import Rows


def mechanism(**changes):
    settings = {
        "sampling_rate": 1.0,
        "num_steps": 400,
        "clip": 2.0,
        "noise_multiplier": 1.5,
        "dimension": 3,
    }
    return NoisySums(**(settings | changes))


def value(_, row):
    return row["x"]


def just_release(state, _, release):
    return state, release.noisy_sum(sum_rows(value), ())


def nothing(start, steps):
    return np.zeros(steps, np.float32)


def released(rows, settings, seed=0, step=just_release, **options):
    gate = Gate(rows, settings, Randomness(seed))
    return run(gate, step, jnp.zeros(3), nothing, **options)[1]


def rows(values):
    return Rows({"x": np.asarray(values, np.float32).reshape(-1, 3)})


BASE = np.random.default_rng(0).normal(size=(50, 3)) * 5


@pytest.mark.parametrize("extra", [[9e9, 0, 0], [3, -3, 3], [0.5, 0, 0]])
def test_noise_over_sensitivity_is_the_multiplier(extra):
    """Same noise with and without a row: the difference is what the row can change."""
    settings = mechanism()
    with_row = released(rows(np.vstack([BASE, extra])), settings)
    without = released(rows(BASE), settings)
    moved = np.linalg.norm(with_row[0] - without[0])
    grid = settings.grid
    assert moved <= settings.clip + 1e-5
    assert moved == pytest.approx(min(settings.clip, np.linalg.norm(extra)), abs=4 * grid)
    spread = without.std(axis=0)
    assert np.allclose(spread / settings.clip, 1.5, rtol=0.12)


def test_person_is_bounded_as_a_whole():
    """Ten rows of one person move the sum no further than one row may."""
    person = np.repeat(np.arange(20), 5)
    values = np.random.default_rng(1).normal(size=(100, 3)).astype(np.float32) * 5
    hers = np.full((10, 3), 4.0, np.float32)
    settings = mechanism(noise_multiplier=0.7)

    def units(x, ids):
        return Rows.by_person({"x": x}, ids, most_rows=10)

    with_her = released(units(np.vstack([values, hers]), np.append(person, [77] * 10)), settings)
    without = released(units(values, person), settings)
    moved = np.linalg.norm(with_her[0] - without[0])
    assert moved == pytest.approx(settings.clip, abs=4 * settings.grid)
    assert moved <= settings.clip + 1e-5
    assert np.allclose(without.std(axis=0) / settings.clip, 0.7, rtol=0.12)


def test_rows_beyond_the_declared_number_are_left_out():
    ids = [1, 1, 1, 2]
    three = Rows.by_person({"x": np.eye(4, 3, dtype=np.float32)}, ids, most_rows=2)
    settings = mechanism(noise_multiplier=1e-3, num_steps=1, clip=10.0)
    assert np.allclose(released(three, settings)[0], [1, 1, 0], atol=0.05)


def test_schedule_of_noise():
    settings = mechanism(noise_multiplier=((3.0, 200), (0.5, 200)))
    out = released(rows(BASE), settings, block=150)  # a block crosses the change
    assert out[:200].std(axis=0).mean() / 2 == pytest.approx(3.0, rel=0.1)
    assert out[200:].std(axis=0).mean() / 2 == pytest.approx(0.5, rel=0.1)
    assert settings.event == events.sampled_gaussian([(3.0, 200), (0.5, 200)], 1.0)


def test_what_is_charged_is_what_is_done():
    settings = mechanism(sampling_rate=0.2, num_steps=70)
    assert settings.event == events.sampled_gaussian(1.5, 0.2, 70)
    assert released(rows(BASE), settings).shape == (70, 3)


def test_bad_rows_contribute_nothing():
    bad = [[np.nan, 1, 1], [np.inf, 0, 0], [1, -np.inf, np.nan], [1e38, 1e38, -1e38]]
    settings = mechanism(num_steps=5)
    with_bad = released(rows(np.vstack([BASE, bad])), settings)
    assert np.array_equal(with_bad, released(rows(BASE), settings))


def test_no_rows_and_no_batch_are_ordinary():
    for empty, rate in ((rows(np.zeros((0, 3))), 0.5), (rows(BASE), 1e-7)):
        out = released(empty, mechanism(sampling_rate=rate))
        assert np.isfinite(out).all()
        assert out.std() / 2 == pytest.approx(1.5, rel=0.1)
        assert abs(out.mean()) < 0.5


def test_padding_changes_nothing(monkeypatch):
    settings = mechanism(sampling_rate=0.3, num_steps=60)
    usual = released(rows(BASE), settings)
    for capacity in (8, 200):
        monkeypatch.setattr(mechanisms, "typical_batch_width", lambda *_, c=capacity: c)
        assert np.array_equal(released(rows(BASE), settings), usual)


def test_blocks_do_not_repeat_noise():
    """Two runs of different block lengths both have noise of the right size and no repeats."""
    for block in (7, 400):
        out = released(rows(BASE), mechanism(), block=block)
        assert len(np.unique(out, axis=0)) == 400


def test_wide_lattice_agrees():
    """Past 2^14 units sums take 64 bits; the answer is the same but for the noise."""
    many = np.tile([[1.0, 0, 0]], (40_000, 1))
    settings = mechanism(num_steps=3, batch_bound=2**25, noise_multiplier=0.1)
    assert settings.lattice.wide
    assert not mechanism().lattice.wide
    out = released(rows(many), settings)
    assert out.dtype == np.float32
    assert np.allclose(out, [40_000, 0, 0], rtol=1e-5, atol=2)


def test_lattice_depends_on_public_numbers_only():
    assert mechanism().lattice == mechanism().lattice
    few, many = (
        released(rows(x), mechanism(num_steps=2)) for x in (BASE[:2], np.tile(BASE, (40, 1)))
    )
    grid = mechanism().grid
    for out in (few, many):
        assert np.allclose(out / grid, np.round(out / grid), atol=1e-3)


def test_too_coarse_a_lattice_is_refused():
    with pytest.raises(InvalidArgument, match="coarse"):
        mechanism(noise_multiplier=1e18)
    with pytest.raises(InvalidArgument, match="too long"):
        mechanism(dimension=10**9)


def test_a_gate_is_good_for_one_run():
    gate = Gate(rows(BASE), mechanism(num_steps=2), Randomness(0))
    run(gate, just_release, jnp.zeros(3), nothing)
    with pytest.raises(BoundaryError, match="spent"):
        run(gate, just_release, jnp.zeros(3), nothing)


def test_a_copy_of_a_gate_is_not_another_gate():
    gate = Gate(rows(BASE), mechanism(num_steps=2), Randomness(0))
    twin = copy.copy(gate)
    run(gate, just_release, jnp.zeros(3), nothing)
    with pytest.raises(BoundaryError, match="spent"):
        run(twin, just_release, jnp.zeros(3), nothing)


def test_of_many_threads_one_uses_a_gate():
    gate, together = Gate(rows(BASE), mechanisms.Stages((mechanism(),)), Randomness(0)), Barrier(8)

    def attempt(_):
        together.wait()
        try:
            return gate.stages() is not None
        except BoundaryError:
            return False

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(attempt, range(8))) == 1


def test_nothing_shows_the_data():
    secret = rows(BASE * 0 + 7.25)
    shown = repr(secret) + str(secret) + repr(Gate(secret, mechanism()))
    assert "7.25" not in shown
    assert "50" not in shown


# What a step may not do ---------------------------------------------------------------------


def twice(state, _, release):
    return state, release.noisy_sum(sum_rows(value), ()) + release.noisy_sum(sum_rows(value), ())


def hidden_in_jit(state, _, release):
    extra = jax.jit(lambda: release.noisy_sum(sum_rows(value), ()))()
    return state, extra + release.noisy_sum(sum_rows(value), ())


def never(state, _, release):
    return state, state


def returns_rows(state, _, release):
    return release._batch.units.fields["x"].sum(axis=(0, 1)) + state, release.noisy_sum(
        sum_rows(value), ()
    )


def rows_into_arguments(state, _, release):
    mean = release._batch.units.fields["x"].mean(axis=(0, 1))
    return state, release.noisy_sum(sum_rows(lambda shift, row: row["x"] - shift), mean)


def changes_the_batch(state, _, release):
    batch = release._batch
    values = batch.units.fields["x"]
    mixed = batch.units._replace(fields={"x": values - values.mean(axis=0)})
    release._batch = batch._replace(units=mixed)
    return state, release.noisy_sum(sum_rows(value), ())


def takes_everyone(state, _, release):
    release._batch = release._batch._replace(present=jnp.ones_like(release._batch.present))
    return state, release.noisy_sum(sum_rows(value), ())


def subtracts_noise(state, _, release):
    noise = release._batch.noise
    return state, release.noisy_sum(sum_rows(value), ()) - noise


def no_noise(state, _, release):
    release._batch = release._batch._replace(noise=jnp.zeros(3, jnp.int32))
    return state, release.noisy_sum(sum_rows(value), ())


def larger_clip(state, _, release):
    release._batch = release._batch._replace(clip=release._batch.clip * 10)
    return state, release.noisy_sum(sum_rows(value), ())


def batch_size(state, _, release):
    return state, release.noisy_sum(sum_rows(value), ()) * release._batch.present.sum()


def calls_back(state, _, release):
    jax.debug.print("{}", release._batch.units.fields["x"])
    return state, release.noisy_sum(sum_rows(value), ())


def in_a_loop(state, _, release):
    def body(carry, _):
        return carry + release.noisy_sum(sum_rows(value), ()), None

    return state, jax.lax.scan(body, jnp.zeros(3), length=5)[0]


def in_a_while(state, _, release):
    done = jax.lax.while_loop(
        lambda c: c[0] < 5,
        lambda c: (c[0] + 1, c[1] + release.noisy_sum(sum_rows(value), ())),
        (0, state),
    )
    return state, done[1]


def in_a_branch(state, _, release):
    chosen = jax.lax.cond(
        state[0] > 0, lambda: release.noisy_sum(sum_rows(value), ()), lambda: jnp.zeros(3)
    )
    return state, chosen


def in_a_call(state, _, release):
    """Its trace would hold the width of the batch."""
    return state, jax.jit(lambda by: by * release.noisy_sum(sum_rows(value), ()))(jnp.ones(3))


def mapped(state, _, release):
    both = jax.vmap(lambda shift: release.noisy_sum(sum_rows(lambda s, row: row["x"] + s), shift))(
        jnp.zeros((2, 3))
    )
    return state, both.sum(axis=0)


def differentiated(state, _, release):
    slope = jax.grad(lambda s: release.noisy_sum(sum_rows(lambda a, row: row["x"] * a), s).sum())(
        state
    )
    return state, slope


CAPTURED = jnp.asarray(BASE, jnp.float32)


def captures_rows(state, _, release):
    return state + CAPTURED.mean(axis=0), release.noisy_sum(sum_rows(value), ())


def captures_rows_inside(state, _, release):
    return state, release.noisy_sum(sum_rows(lambda _, row: row["x"] + CAPTURED.sum(axis=0)), ())


NUMPY = np.asarray(BASE, np.float32)


def captures_numpy(state, _, release):
    return state, release.noisy_sum(
        sum_rows(lambda _, row: row["x"] + NUMPY.sum(axis=0) * NUMPY[0]), ()
    )


def prints_inside(state, _, release):
    def per_row(_, row):
        jax.debug.print("{}", row["x"])
        return row["x"]

    return state, release.noisy_sum(sum_rows(per_row), ())


def calls_back_inside(state, _, release):
    def per_row(_, row):
        shape = jax.ShapeDtypeStruct((3,), jnp.float32)
        return jax.pure_callback(lambda v: v, shape, row["x"], vmap_method="sequential")

    return state, release.noisy_sum(sum_rows(per_row), ())


@jax.custom_batching.custom_vmap
def meets_others(x):
    return x


@meets_others.def_vmap
def _(size, _batched, x):
    return jnp.broadcast_to(x.sum(axis=0), x.shape), True


def custom_batching(state, _, release):
    return state, release.noisy_sum(sum_rows(lambda _, row: meets_others(row["x"])), ())


def mutable_reference(state, _, release):
    ref = jax.new_ref(jnp.zeros(3))
    ref[...] = release._batch.units.fields["x"][0, 0]
    return state + ref[...], release.noisy_sum(sum_rows(value), ())


def other_lattice(state, _, release):
    finer = dataclasses.replace(release._lattice, points=2 * release._lattice.points)
    return state, Release(release._batch, finer).noisy_sum(sum_rows(value), ())


@jax.jit
def jitted_with_global(x):
    return x + CAPTURED.sum(axis=0)


def captures_through_jit(state, _, release):
    return state, release.noisy_sum(sum_rows(lambda _, row: jitted_with_global(row["x"])), ())


class Holder:
    def __init__(self):
        self.data = NUMPY

    def __call__(self, _, row):
        return row["x"] + self.data.mean(axis=0) * np.float32(2)


def captures_in_an_object(state, _, release):
    return state, release.noisy_sum(sum_rows(HOLDER), ())


HOLDER = Holder()
LISTED = BASE[:, 0].tolist()


def captures_a_list(state, _, release):
    return state + sum(LISTED), release.noisy_sum(sum_rows(value), ())


def keys_of_rows(state, _, release):
    """With such keys a batch's numbers are made from the first row's."""

    def per_row(_, row):
        key = jax.random.key(row["x"][0].astype(jnp.int32), impl="rbg")
        return jax.random.normal(key, (3,))

    return state, release.noisy_sum(sum_rows(per_row), ())


def goes_on_for_all(state, _, release):
    """An incomplete beta function takes as many turns for every row as the slowest needs."""

    def per_row(_, row):
        return jax.scipy.special.betainc(1 + row["x"] ** 2, 2.0, 0.5)

    return state, release.noisy_sum(sum_rows(per_row), ())


BAD = [
    keys_of_rows,
    goes_on_for_all,
    prints_inside,
    calls_back_inside,
    custom_batching,
    mutable_reference,
    other_lattice,
    captures_through_jit,
    captures_in_an_object,
    captures_a_list,
    twice,
    hidden_in_jit,
    never,
    returns_rows,
    rows_into_arguments,
    changes_the_batch,
    takes_everyone,
    subtracts_noise,
    no_noise,
    larger_clip,
    batch_size,
    calls_back,
    in_a_loop,
    in_a_while,
    in_a_branch,
    in_a_call,
    mapped,
    captures_rows,
    captures_rows_inside,
    captures_numpy,
]


@pytest.mark.parametrize("step", BAD, ids=lambda step: step.__name__)
def test_refused_before_anything_is_read(step, monkeypatch):
    monkeypatch.setattr(mechanisms, "poisson_batches", None)  # would fail if reached
    with pytest.raises(BoundaryError):
        released(rows(BASE), mechanism(num_steps=2), step=step)


def test_the_program_that_runs_is_the_one_that_was_walked():
    """A step that behaves at width one, and leaks at the width it runs at."""

    def leaks_when_wide(state, _, release):
        total = release.noisy_sum(sum_rows(value), ())
        batch = release._batch
        return state, total + batch.units.fields["x"].sum(axis=(0, 1)) if len(
            batch.present
        ) > 1 else total

    def tells_the_width(state, _, release):
        return state, (
            release.noisy_sum(sum_rows(value), ()),
            jnp.zeros(len(release._batch.present)),
        )

    def counts_the_width(state, _, release):
        return state, release.noisy_sum(sum_rows(value), ()) + float(len(release._batch.present))

    def holds_the_width(state, _, release):
        return state, release.noisy_sum(sum_rows(value), ()) + np.float32(
            [len(release._batch.present)] * 3
        )

    for step in (leaks_when_wide, tells_the_width, counts_the_width, holds_the_width):
        for rate in (0.2, 1.0):  # a batch, or everybody
            with pytest.raises(BoundaryError):
                released(rows(BASE), mechanism(num_steps=2, sampling_rate=rate), step=step)


def test_shared_randomness_gives_different_noise():
    shared = Randomness()
    gates = [Gate(rows(BASE), mechanism(num_steps=50), shared) for _ in range(2)]
    one, other = (run(gate, just_release, jnp.zeros(3), nothing)[1] for gate in gates)
    assert np.abs(one - other).mean() > 1


def test_forked_randomness_is_refused(monkeypatch):
    made_before = Randomness()
    monkeypatch.setattr("tacit.privacy.noise.os.getpid", lambda: -1)
    with pytest.raises(BoundaryError, match="fork"):
        made_before.words(1)
    with pytest.raises(BoundaryError, match="fork"):
        made_before.child("noise")


FORKING = """
import os
from tacit.errors import BoundaryError
from tacit.privacy.noise import Randomness

made_before = Randomness()
if os.fork():
    os.wait()
    print("parent", made_before.child("noise").words(1)[0], flush=True)
else:
    try:
        print("child", made_before.child("noise").words(1)[0], flush=True)
    except BoundaryError:
        print("child refused", flush=True)
    os._exit(0)
"""


@pytest.mark.processes
def test_a_real_fork_has_no_streams_of_its_parents_key():
    command = [sys.executable, "-W", "ignore", "-c", FORKING]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert said[0] == "child refused"
    assert said[1].startswith("parent ")


@pytest.mark.parametrize("clip", [1e-19, 1e-6, 1.0, 1e15])
@pytest.mark.parametrize("dimension", [2, 1000])
def test_no_unit_exceeds_the_bound(clip, dimension):
    """Whatever its size, and however small the clip, in exact integer arithmetic."""
    rng = np.random.default_rng(0)
    for size in (1e-3, 0.999999, 1.0, 1.000001, 50.0, 1e10):
        direction = rng.standard_cauchy((40, dimension))
        direction /= np.linalg.norm(direction, axis=1, keepdims=True)
        vectors = jnp.asarray(direction * size * clip, jnp.float32)
        units = jax.vmap(lambda v: clip_to_lattice(v, jnp.float32(clip), 8192))(vectors)
        squared = (np.asarray(units, dtype=object) ** 2).sum(axis=1)
        assert max(squared) <= 8192**2


def test_large_batches_do_not_wrap_by_default():
    settings = NoisySums(
        sampling_rate=1.0, num_steps=1, clip=1.0, noise_multiplier=0.1, dimension=3
    )
    out = released(rows(np.tile([[2.0, 0, 0]], (100_000, 1))), settings)
    assert out[0, 0] == pytest.approx(100_000, rel=1e-3)


def test_odd_columns_are_taken_quietly(recwarn):
    odd = Rows({"f": [1e300, 1.0], "i": np.array([2**40, -(2**40)]), "b": [True, False]})
    fields, _ = odd._device_fields()
    assert not recwarn.list
    assert np.isinf(fields["f"][0])
    assert fields["i"].tolist() == [[2**31 - 1], [-(2**31)]]
    people = Rows.by_person({"x": [1.0, 2.0, 3.0]}, [1.0, np.nan, np.nan], most_rows=2)
    assert people._count == 1  # rows without a person could all be one person's


def test_gradient_through_a_release_is_refused():
    with pytest.raises(InvalidArgument, match="NotImplementedError"):
        released(rows(BASE), mechanism(num_steps=2), step=differentiated)


def callback_with_a_gradient(x):
    shape = jax.ShapeDtypeStruct((3,), jnp.float32)
    return jax.pure_callback(lambda v: v, shape, x, vmap_method="sequential").sum()


@jax.custom_vjp
def with_a_bad_rule(x):
    return x.sum()


with_a_bad_rule.defvjp(lambda x: (x.sum(), None), lambda _, change: (change, change, change))


def a_key_that_is_a_shape(x):
    return {"x": x.sum()}[x.shape[0]]


@pytest.mark.parametrize(
    "function", [callback_with_a_gradient, with_a_bad_rule, a_key_that_is_a_shape]
)
def test_what_jax_cannot_trace_is_said_in_a_sentence(function):
    def step(state, _, release):
        return state, release.noisy_sum(sum_rows(lambda _, row: jax.grad(function)(row["x"])), ())

    with pytest.raises(InvalidArgument, match="JAX cannot trace the model") as caught:
        released(rows(BASE), mechanism(num_steps=2), step=step)
    assert str(caught.value).count(". ") == 0
    assert caught.value.__cause__ is None


def test_what_cannot_be_done_unit_by_unit_is_said_before_the_charge():
    def from_a_row(_, row):
        total = jax.lax.reduce(row["x"], row["x"][0], jax.lax.add, (0,))
        return row["x"] * total

    def step(state, _, release):
        return state, release.noisy_sum(sum_rows(from_a_row), ())

    with pytest.raises(InvalidArgument, match="JAX cannot trace the model"):
        check(step, jnp.zeros(3), jnp.zeros(3), Gate(rows(BASE), mechanism(num_steps=2)))


def test_arrays_made_inside_are_fine():
    def step(state, _, release):
        weights = jnp.array([1.0, 2.0, 3.0])
        return state, release.noisy_sum(sum_rows(lambda w, row: row["x"] * w), weights)

    assert released(rows(BASE), mechanism(num_steps=2), step=step).shape == (2, 3)


def test_a_row_that_was_kept_while_tracing_is_refused():
    kept = []

    def keeps(_, row):
        kept.append(row["x"])
        return row["x"]

    def step(state, _, release):
        return state, release.noisy_sum(sum_rows(keeps), ()) + kept[-1]

    with pytest.raises(BoundaryError, match="kept from inside"):
        released(rows(BASE), mechanism(num_steps=2), step=step)


def test_wrong_shape_is_refused():
    def step(state, _, release):
        return state, release.noisy_sum(sum_rows(lambda _, row: row["x"][:2]), ())

    with pytest.raises(BoundaryError, match="shape"):
        released(rows(BASE), mechanism(num_steps=2), step=step)


def test_wrong_columns_are_refused():
    for columns in ({}, {"x": [1, 2], "y": [1]}, {"x": ["a", "b"]}, {"x": 3.0}):
        with pytest.raises(InvalidArgument):
            Rows(columns)
    with pytest.raises(InvalidArgument, match="person"):
        Rows.by_person({"x": [1.0, 2.0]}, [1], most_rows=1)


def around(state, _, release):
    """Looks where the state says, and leaves it as it is."""
    return state, release.noisy_sum(sum_rows(lambda at, row: row["x"] - at), state)


def moving(state, _, release):
    found = release.noisy_sum(sum_rows(lambda at, row: row["x"] - at), state)
    return state + found / 64, found


class Moved:
    """An update that notes what it is given."""

    def __init__(self):
        self.given, self.state = [], np.zeros(3, np.float32)

    def __call__(self, given):
        self.given.append(given)
        self.state = self.state + given / np.float32(64)
        return self.state


def test_an_update_is_given_what_was_released_and_nothing_else():
    update, settings = Moved(), mechanism(num_steps=7)
    gate = Gate(rows(BASE), settings, Randomness(0))
    state, out = run(gate, around, np.zeros(3, np.float32), nothing, block=3, update=update)
    assert all(type(each) is np.ndarray for each in update.given)
    assert np.array_equal(update.given, out)
    assert np.array_equal(state, update.state)


@pytest.mark.parametrize("rate", [1.0, 0.4])
def test_steps_that_an_update_drives_are_those_that_drive_themselves(rate):
    """The same words, and the same noise in the same steps."""
    settings = mechanism(num_steps=7, sampling_rate=rate, noise_multiplier=((3.0, 2), (0.5, 5)))
    gate = Gate(rows(BASE), settings, Randomness(0))
    driven = run(gate, around, np.zeros(3, np.float32), nothing, update=Moved())[1]
    gate = Gate(rows(BASE), settings, Randomness(0))
    alone = run(gate, moving, np.zeros(3, np.float32), nothing, block=1)[1]
    assert driven == pytest.approx(alone, rel=1e-4, abs=1e-4)


def test_the_state_that_a_step_returns_is_not_used_beside_an_update():
    def far(state, _, release):
        return state + 1e6, release.noisy_sum(sum_rows(lambda at, row: row["x"] - at), state)

    found = []
    for step in (around, far):
        gate = Gate(rows(BASE), mechanism(num_steps=4), Randomness(0))
        found.append(run(gate, step, np.zeros(3, np.float32), nothing, update=Moved())[1])
    assert np.array_equal(*found)


def test_an_update_cannot_make_another_step_of_it():
    """A state of another shape would be another trace, which nobody has walked."""

    def by_shape(state, _, release):
        return state, release.noisy_sum(sum_rows(lambda at, row: row["x"] - at.sum()), state)

    def update(_):
        return np.zeros((2, 3), np.float32)

    gate = Gate(rows(BASE), mechanism(num_steps=4), Randomness(0))
    with pytest.raises(BoundaryError):
        run(gate, by_shape, np.zeros(3, np.float32), nothing, update=update)


def test_progress_of_driven_steps_is_told_by_blocks():
    told = []
    gate = Gate(rows(BASE), mechanism(num_steps=10), Randomness(0))
    start = np.zeros(3, np.float32)
    run(gate, around, start, nothing, block=4, progress=told.append, update=Moved())
    assert told == [4, 8, 10]

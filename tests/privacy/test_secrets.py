"""Secret words: each unit's own, fresh in every step, and in nothing that leaves (Theorem 1S)."""

import copy
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from tacit.accounting import events
from tacit.errors import BoundaryError, InvalidArgument
from tacit.privacy import gate as gate_module
from tacit.privacy.gate import Gate, run
from tacit.privacy.mechanisms import NoisySums, Stages, sum_rows
from tacit.privacy.noise import Randomness
from tacit.privacy.rows import Rows

UNITS, STEPS = 12, 60


def mechanism(**changes):
    """Without noise, and on a lattice that tells numbers of 16 bits exactly."""
    settings = {
        "sampling_rate": 1.0,
        "num_steps": STEPS,
        "clip": 2.0**18,
        "noise_multiplier": 0.0,
        "dimension": 4 * UNITS,
        "secrets": True,
    }
    return NoisySums(**(settings | changes))


def spell(_, rows, present, secret):
    """A unit's words, by 16 bits, in numbers that are the unit's alone."""
    first = jnp.argmax(present)
    halves = jnp.stack([secret & 0xFFFF, secret >> 16], axis=1).reshape(-1)
    return (jax.nn.one_hot(rows["id"][first], UNITS)[:, None] * halves).reshape(-1)


def spelling(state, _, release):
    return state, release.noisy_sum(spell, ())


def nothing(_, steps):
    return np.zeros(steps, np.float32)


def by_rows():
    return Rows({"id": np.arange(UNITS, dtype=np.int32)})


def by_people(**_):
    """One row for the first person, two for the second, three for the third, and so on again."""
    person = np.repeat(np.arange(UNITS), 1 + np.arange(UNITS) % 3)
    return Rows.by_person({"id": person.astype(np.int32)}, person, 3)


def words_of(gate, block=7):
    """What units got [steps, units]: 64 bits each, and zero for who was not looked at."""
    _, out = run(gate, spelling, jnp.zeros(1), nothing, block=block)
    halves = np.asarray(out, np.float64).astype(np.uint64).reshape(len(out), UNITS, 4)
    return (halves << (np.uint64(16) * np.arange(4, dtype=np.uint64))).sum(axis=-1)


def words(rows=None, seed=0, settings=None, **options):
    gate = Gate(rows or by_rows(), settings or mechanism(), Randomness(seed))
    return words_of(gate, **options)


def assert_own(found, least):
    """No two are alike, and every byte is uniform."""
    some = found[found != 0]
    assert len(some) >= least
    assert len(np.unique(some)) == len(some)
    halves = some.view(np.uint32)
    assert len(np.unique(halves)) >= len(halves) - 3
    counts = np.bincount(some.view(np.uint8), minlength=256)
    assert stats.chisquare(counts).pvalue > 1e-4
    ones = np.unpackbits(some.view(np.uint8)).reshape(len(some), 64).sum(axis=0)
    assert np.abs(ones - len(some) / 2).max() < 4.5 * len(some) ** 0.5 / 2


WAYS = {
    "all rows": (by_rows, 1.0),
    "batches of rows": (by_rows, 0.4),
    "all people": (by_people, 1.0),
    "batches of people": (by_people, 0.4),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("slots", [2**21, 5])  # with few, every step is a block of its own
def test_words_are_each_unit_s_own_and_fresh(way, slots, monkeypatch):
    monkeypatch.setattr(gate_module, "_MAX_BATCH_PLACES", slots)
    make, rate = WAYS[way]
    found = words(make(), settings=mechanism(sampling_rate=rate))
    assert_own(found, 0.8 * rate * found.size)
    if rate == 1:
        assert (found != 0).all()


def test_rows_that_are_fetched_from_a_disk_get_words_too(tmp_path):
    mapped = np.memmap(tmp_path / "id.bin", np.int32, "w+", shape=(UNITS,))
    mapped[:] = np.arange(UNITS)
    rows = Rows.from_encoded({"id": mapped})
    assert rows.on_disk
    found = words(rows, settings=mechanism(sampling_rate=0.4))
    assert_own(found, 0.3 * found.size)
    everyone = words(rows)
    assert_own(everyone, everyone.size)
    here = words(settings=mechanism(sampling_rate=0.4))
    assert np.array_equal(found, here)


def test_several_gates_have_words_of_their_own():
    """With rows of their own, of different number and width, and with one source for all."""
    few = Rows({"id": np.arange(UNITS - 5, dtype=np.int32)})
    for rate in (1.0, 0.4):
        settings = mechanism(sampling_rate=rate)
        for one in (None, Randomness(3)):
            gates = [
                Gate(rows, settings, one or Randomness(i))
                for i, rows in enumerate((by_rows(), few, by_rows()))
            ]
            found = np.stack([words_of(gate) for gate in gates])
            assert_own(found, 0.8 * rate * 2 * UNITS * STEPS)
            assert not found[1, :, UNITS - 5 :].any()


def test_stages_and_runs_have_words_of_their_own():
    """And without a seed every run has others; with one, the same."""
    several = Gate(by_rows(), Stages((mechanism(), mechanism(sampling_rate=0.5))), Randomness(1))
    found = [words_of(each) for each in several.stages()]
    found += [words_of(Gate(by_rows(), mechanism())) for _ in range(2)]
    found += [words(seed=seed) for seed in (1, 2)]
    assert_own(np.concatenate(found), 5.3 * UNITS * STEPS)
    assert np.array_equal(words(seed=1), words(seed=1))


def test_laplace_noise_goes_with_words_too():
    settings = mechanism(laplace=True, clip=2.0**18)
    found = words(settings=settings)
    assert_own(found, found.size)


@pytest.mark.parametrize("rate", [1.0, 0.9])
def test_every_unit_of_many_has_words(rate):
    """More units than are looked at together: how often each value of ten bits was dealt."""
    count = 2**14 + 5000

    def step(state, _, release):
        def per_unit(_, _rows, _present, secret):
            return jax.nn.one_hot(secret % 1024, 1024, dtype=jnp.float32).reshape(-1)

        return state, release.noisy_sum(per_unit, ())

    settings = mechanism(sampling_rate=rate, num_steps=3, clip=4.0, dimension=2048)
    gate = Gate(Rows({"x": np.zeros(count)}), settings, Randomness(0))
    _, out = run(gate, step, jnp.zeros(1), nothing)
    dealt = np.asarray(out).reshape(-1, 1024)
    assert dealt.sum(axis=1) == pytest.approx(rate * count, rel=0.02)
    assert min(stats.chisquare(each).pvalue for each in dealt) > 1e-4
    assert np.abs(np.corrcoef(dealt) - np.eye(len(dealt))).max() < 0.2


def test_sums_by_rows_have_no_use_for_words():
    def step(state, _, release):
        return state, release.noisy_sum(sum_rows(lambda _, row: jnp.ones(1) * row["id"]), ())

    gate = Gate(by_people(), mechanism(dimension=1, num_steps=2), Randomness(0))
    _, out = run(gate, step, jnp.zeros(1), nothing)
    assert (out == sum(i * (1 + i % 3) for i in range(UNITS))).all()


def test_what_is_charged_is_the_same():
    changed = {"noise_multiplier": 2.0, "sampling_rate": 0.3}
    with_words, without = mechanism(**changed), mechanism(**changed, secrets=False)
    assert with_words.event == without.event == events.sampled_gaussian(2.0, 0.3, STEPS)


# Words do not leave ---------------------------------------------------------------------------


def returns_words(state, _, release):
    return state, (release.noisy_sum(spell, ()), release._batch.secret.sum())


def keeps_a_word(state, _, release):
    released = release.noisy_sum(spell, ())
    return state + release._batch.secret[0, 0], released


def words_into_arguments(state, _, release):
    first = release._batch.secret[0]
    return state, release.noisy_sum(lambda own, *unit: spell(own, *unit[:2], own), first)


def takes_words_off(state, _, release):
    released = release.noisy_sum(spell, ())
    return state, released - release._batch.secret[:, 0].sum()


def branches_on_a_word(state, _, release):
    released = release.noisy_sum(spell, ())
    odd = release._batch.secret[0, 0] % 2 == 1
    return state, jax.lax.cond(odd, lambda: released, lambda: -released)


def words_in_a_loop(state, _, release):
    released = release.noisy_sum(spell, ())
    word = release._batch.secret[0, 0].astype(jnp.float32)
    return state, jax.lax.fori_loop(0, 3, lambda _, total: total + word, released)


def exchanges_words(state, _, release):
    release._batch = release._batch._replace(secret=release._batch.secret[::-1])
    return state, release.noisy_sum(spell, ())


def chooses_words(state, _, release):
    release._batch = release._batch._replace(secret=jnp.zeros_like(release._batch.secret))
    return state, release.noisy_sum(spell, ())


def leaves_words_out(state, _, release):
    release._batch = release._batch._replace(secret=None)
    word = jnp.ones(2, jnp.uint32)
    return state, release.noisy_sum(lambda own, *unit: spell(own, *unit, own), word)


def prints_words(state, _, release):
    def per_unit(_, rows, present, secret):
        jax.debug.print("{}", secret)
        return spell(_, rows, present, secret)

    return state, release.noisy_sum(per_unit, ())


def releases_twice(state, _, release):
    """A curvature beside a score, each by a sum of its own."""
    score = release.noisy_sum(spell, ())
    return state, (score, release.noisy_sum(spell, ()))


BAD = [
    returns_words,
    keeps_a_word,
    words_into_arguments,
    takes_words_off,
    branches_on_a_word,
    words_in_a_loop,
    exchanges_words,
    chooses_words,
    leaves_words_out,
    prints_words,
    releases_twice,
]


@pytest.mark.parametrize("step", BAD, ids=lambda step: step.__name__)
def test_refused_before_anything_is_drawn(step, monkeypatch):
    monkeypatch.setattr(Randomness, "words", None)  # would fail if reached
    gate = Gate(by_rows(), mechanism(), Randomness(0))
    try:
        run(gate, step, jnp.zeros(1), nothing)
    except BoundaryError:
        return
    except TypeError:  # from where words are drawn
        pass
    pytest.fail("not refused")


def test_without_secrets_there_are_no_words():
    gate = Gate(by_rows(), mechanism(secrets=False), Randomness(0))
    assert gate._bits.secret is None
    with pytest.raises(InvalidArgument, match="trace"):
        run(gate, spelling, jnp.zeros(1), nothing)


def test_a_gate_does_not_show_its_words_and_has_no_second_copy_of_them():
    gate = Gate(by_rows(), mechanism(), Randomness())
    assert gate._bits.secret._key.hex() not in repr(gate) + repr(vars(gate))
    for duplicate in (pickle.dumps, copy.deepcopy):
        with pytest.raises(TypeError, match="pickle"):
            duplicate(gate)
    twin = copy.copy(gate)
    words_of(gate)
    with pytest.raises(BoundaryError, match="spent"):
        words_of(twin)


def test_a_copy_in_another_process_gets_no_words(monkeypatch):
    gate = Gate(by_rows(), mechanism(sampling_rate=0.5), Randomness())
    monkeypatch.setattr("tacit.privacy.noise.os.getpid", lambda: -1)
    with pytest.raises(BoundaryError, match="fork"):
        gate.mechanism.secret(gate._bits.secret, 1, 1)


# Words, noise and sampling are independent ----------------------------------------------------


@pytest.mark.parametrize("bit", [0, 31, 32, 62, 63])
def test_words_tell_nothing_of_the_noise(bit):
    """A unit that knew the noise's sign could take some of it away, and many units all of it."""
    count = 6000

    def step(state, _, release):
        def per_unit(_, _rows, _present, secret):
            set_ = (secret[bit // 32] >> (bit % 32)) & 1
            return jnp.where(set_ == 1, 0.5, -0.5)[None]

        return state, release.noisy_sum(per_unit, ())

    settings = mechanism(clip=1.0, noise_multiplier=0.5, dimension=1, num_steps=count)
    gate = Gate(Rows({"x": np.zeros(1)}), settings, Randomness(1))
    _, out = run(gate, step, jnp.zeros(1), nothing, block=1000)
    # Of a sum of two independent numbers of variance a quarter each.
    assert np.var(out) == pytest.approx(0.5, abs=5 * 0.5 * np.sqrt(1.5 / count))


# One unit more, and what others make up -------------------------------------------------------


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("units", "columns"),
    [
        pytest.param(1001, 10, marks=SLOW),
        pytest.param(1001, 33, marks=SLOW),
        pytest.param(40_001, 10, marks=SLOW),
        (40_001, 33),
    ],
)
def test_one_unit_more_hardly_moves_the_chances_of_others(units, columns):
    """Their last bits may decide between two outcomes: of a few units, one time in millions."""

    def make_up(weights, row, secret):
        key = jax.random.key(0, impl="threefry2x32")
        own = jax.random.fold_in(jax.random.fold_in(key, secret[0]), secret[1])
        chance = jax.nn.sigmoid(row @ weights)
        return chance, jax.random.uniform(own) < chance

    generator = np.random.default_rng(columns)
    compiled, moved = jax.jit(jax.vmap(make_up, in_axes=(None, 0, 0))), []
    for _ in range(5):
        rows = generator.normal(size=(units, columns)).astype(np.float32)
        weights = generator.normal(size=columns).astype(np.float32)
        secret = generator.integers(0, 2**32, size=(units, 2), dtype=np.uint32)
        chances, outcomes = compiled(weights, rows, secret)
        others, without = compiled(weights, rows[1:], secret[1:])
        moved.append(np.abs(np.asarray(chances[1:], np.float64) - np.asarray(others)).sum())
        assert (outcomes[1:] != without).sum() <= 1
    assert np.mean(moved) < 1e-5

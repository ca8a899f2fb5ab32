"""Laplace noise: its law, exactness at boundaries, clipping in the 1-norm, what is charged."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from tacit.accounting import PLD
from tacit.errors import InvalidArgument
from tacit.privacy.clipping import clip_to_lattice_l1
from tacit.privacy.gate import Gate, run
from tacit.privacy.mechanisms import NoisySums, sum_rows
from tacit.privacy.noise import Randomness
from tacit.privacy.rows import Rows


@pytest.mark.parametrize("dimension", [1, 3, 100, 5000])
def test_integers_keep_the_bound(dimension):
    generator = np.random.default_rng(dimension)
    points, clip = 2**20, np.float32(3.7)
    vectors = generator.normal(size=(300, dimension)) * 10.0 ** generator.uniform(-3, 3, (300, 1))
    # And some that have exactly the bound.
    vectors[:100] *= clip / np.abs(vectors[:100]).sum(axis=1, keepdims=True)
    place = jax.jit(jax.vmap(lambda v: clip_to_lattice_l1(v, clip, points)))
    placed = np.asarray(place(vectors.astype(np.float32)), np.int64)
    sizes = np.abs(placed).sum(axis=1)
    assert sizes.max() <= points
    assert sizes[:100].min() > points * (1 - 2**-13 - 1e-5) - dimension  # truncated, and no more
    odd = np.array([[np.nan] * 3, [np.inf, 0, 0], [3e38, 3e38, 3e38]], np.float32)
    placed = np.asarray(jax.vmap(lambda v: clip_to_lattice_l1(v, clip, points))(odd))
    assert not placed[:2].any()
    assert np.abs(placed[2].astype(np.int64)).sum() <= points


def released(values, steps=4000, **settings):
    mechanism = NoisySums(
        sampling_rate=1.0, num_steps=steps, clip=2.0, dimension=3, laplace=True, **settings
    )

    def step(state, _, release):
        return state, release.noisy_sum(sum_rows(lambda _, row: row["x"]), ())

    gate = Gate(Rows({"x": values}), mechanism, Randomness(1))
    inputs = lambda _, n: np.zeros(n, np.float32)  # noqa: E731
    return np.asarray(run(gate, step, jnp.zeros(1), inputs, block=4000)[1])


@pytest.mark.parametrize("batch_bound", [2**10, 2**31])
def test_what_is_released(batch_bound):
    """The sum of clipped rows, and noise of the planned scale over the clip."""
    values = np.array([[1.0, 0.5, -0.5], [4.0, -4.0, 8.0]], np.float32)
    out = released(values, noise_multiplier=1.5, batch_bound=batch_bound)
    middle = [1.5, 0.0, 0.5]  # the second is a quarter of what it was: (.5, -.5, 1)
    assert np.median(out, axis=0) == pytest.approx(middle, abs=6 * 3 / np.sqrt(4000))
    assert stats.kstest((out - middle).ravel() / 3.0, "laplace").pvalue > 1e-4


def test_what_is_charged():
    """The cost of a release is change over scale, without a delta; schedules add up."""
    settings = {"sampling_rate": 1.0, "clip": 5.0, "dimension": 2, "laplace": True}
    once = NoisySums(num_steps=1, noise_multiplier=4.0, **settings)
    assert PLD().epsilon(once.event, 0.0) == pytest.approx(0.25, rel=1e-4)
    assert PLD().epsilon(once.event, 0.0, "replace") == pytest.approx(0.5, rel=1e-4)
    more = NoisySums(num_steps=3, noise_multiplier=((4.0, 2), (8.0, 1)), **settings)
    assert PLD().epsilon(more.event, 0.0) == pytest.approx(0.625, rel=1e-4)


def test_a_sample_is_refused():
    with pytest.raises(InvalidArgument, match="uses all units"):
        NoisySums(
            sampling_rate=0.5,
            num_steps=1,
            clip=1.0,
            noise_multiplier=1.0,
            dimension=1,
            laplace=True,
        )


def test_shifts_in_several_coordinates_are_no_easier_to_see():
    """By simulation: the best test of a shift spread over coordinates against one of them."""
    generator = np.random.default_rng(0)
    shift = np.array([0.5, 0.3, 0.2])
    x = generator.laplace(size=(400_000, 3))

    def score(x):
        return (np.abs(x) - np.abs(x - shift)).sum(axis=1)

    for level in (0.05, 0.2, 0.5):
        threshold = np.quantile(score(x), 1 - level)
        power = (score(x + shift) > threshold).mean()
        best = stats.laplace.sf(stats.laplace.isf(level) - shift.sum())
        assert level < power < best + 0.005

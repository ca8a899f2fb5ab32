"""Bits, noise and sampling: distributions, exactness, and the floating-point attack."""

from collections import Counter
from itertools import combinations

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from scipy import stats

from tacit.privacy import noise
from tacit.privacy.noise import (
    Randomness,
    geometric_gaps,
    rounded_laplaces,
    rounded_normals,
    standard_logistics,
    standard_normals,
    uniform_integers,
)
from tacit.privacy.sampling import fixed_size_batches, poisson_batches


def test_streams():
    assert np.array_equal(Randomness(1).words(9), Randomness(1).words(9))
    assert not np.array_equal(Randomness(1).words(9), Randomness(2).words(9))
    assert not np.array_equal(Randomness().words(9), Randomness().words(9))
    one = Randomness(1)
    assert not np.array_equal(one.child("a").words(9), one.child("b").words(9))
    assert "not private" in repr(one)
    assert one.child("a").seeded
    assert not Randomness().seeded


# How noise is drawn, the law of it, and what two million draws reach.
LAWS = [(rounded_normals, stats.norm, 4.7), (rounded_laplaces, stats.laplace, 12.0)]
each_law = pytest.mark.parametrize(("draw", "law", "far"), LAWS, ids=["normal", "laplace"])


@each_law
@pytest.mark.parametrize("scale", [0.3, 1.0, 7.5, 1e6])
def test_noise_is_rounded(draw, law, far, scale):
    drawn = draw(Randomness(3), scale, 200_000)
    edges = np.unique(np.round(scale * law.ppf(np.linspace(0.02, 0.98, 25)))) + 0.5
    observed = np.histogram(drawn, np.concatenate([[-np.inf], edges, [np.inf]]))[0]
    chances = np.diff(law.cdf(np.concatenate([[-np.inf], edges / scale, [np.inf]])))
    assert stats.chisquare(observed, chances * len(drawn)).pvalue > 1e-4


@each_law
def test_tails_are_reached(draw, law, far):
    drawn = draw(Randomness(4), 1e9, 2_000_000) / 1e9
    assert abs(drawn).max() > far
    assert stats.kstest(drawn[:100_000], law.cdf).pvalue > 1e-4


def test_doubtful_draws_are_decided_exactly(monkeypatch):
    """With every draw in doubt, high precision decides all, and nothing changes."""
    quick = rounded_normals(Randomness(5), 1234.5, 300)
    laplaces = rounded_laplaces(Randomness(5), 1234.5, 300)
    gaps = geometric_gaps(Randomness(5), 0.013, 300)
    monkeypatch.setattr(noise, "_FLOAT_ERROR", 10.0)
    assert np.array_equal(rounded_laplaces(Randomness(5), 1234.5, 300), laplaces)
    assert np.array_equal(rounded_normals(Randomness(5), 1234.5, 300), quick)
    assert np.array_equal(geometric_gaps(Randomness(5), 0.013, 300), gaps)


TAILS = {
    "normal": (rounded_normals, mpmath.ncdf),
    "laplace": (rounded_laplaces, lambda x: mpmath.exp(x) / 2),
}


@pytest.mark.parametrize("kind", TAILS)
def test_exact_decision_at_a_boundary(kind):
    """A draw an ulp from a boundary: double precision cannot tell, the exact path must."""
    rounded, tail = TAILS[kind]
    with mpmath.workprec(400):
        at = tail(mpmath.mpf("-2.5") / 3)  # 3 z = 2.5 exactly
        above, below = (int(mpmath.floor(at * 2**64)) + step for step in (-2, 2))

    class Fixed(Randomness):
        def __init__(self, word):
            super().__init__(0)
            self._given = [np.array([word | 2**63], dtype=np.uint64)]

        def words(self, count):
            return self._given.pop() if self._given else np.full(count, 2**63, dtype=np.uint64)

    assert rounded(Fixed(above), 3.0, 1)[0] == 3
    assert rounded(Fixed(below), 3.0, 1)[0] == 2


def test_inclusion_is_bernoulli_and_independent():
    units, steps, rate = 200, 4000, 0.03
    batches = poisson_batches(Randomness(6), rate, units, steps, 8)
    taken = np.zeros((steps, units), dtype=bool)
    step, slot = np.nonzero(batches.present)
    taken[step, batches.indices[step, slot]] = True
    assert taken.sum() == batches.present.sum()  # nobody twice in a batch
    for axis, trials in ((0, steps), (1, units)):
        counts = taken.sum(axis=axis)
        spread = counts.var() / (trials * rate * (1 - rate))
        dof = len(counts) - 1
        assert stats.chi2.ppf(1e-4, dof) / dof < spread < stats.chi2.ppf(1 - 1e-4, dof) / dof
    assert stats.binomtest(int(taken.sum()), taken.size, rate).pvalue > 1e-4
    centred = taken - rate
    neighbours = (centred[:, 1:] * centred[:, :-1]).sum() / (rate * (1 - rate))
    later = (centred[1:] * centred[:-1]).sum() / (rate * (1 - rate))
    assert abs(neighbours) < 4.5 * np.sqrt(taken.size)
    assert abs(later) < 4.5 * np.sqrt(taken.size)


def test_batches_at_the_edges():
    empty = poisson_batches(Randomness(7), 0.5, 0, 3, 8)
    assert not empty.present.any()
    rare = poisson_batches(Randomness(7), 1e-9, 50, 3, 8)
    assert not rare.present.any()
    wide = poisson_batches(Randomness(7), 0.9, 100, 4, 8)
    assert wide.present.sum(axis=1).min() > 60


def test_batches_of_fixed_size_are_uniform_over_sets():
    drawn = fixed_size_batches(Randomness(3), 6, 3, 40_000).indices
    assert (np.diff(drawn) > 0).all()
    sets = [*combinations(range(6), 3)]
    seen = Counter(map(tuple, drawn.tolist()))
    counts = [seen[each] for each in sets]
    assert sum(counts) == 40_000
    assert stats.chisquare(counts).pvalue > 1e-4
    assert fixed_size_batches(Randomness(3), 4, 4, 2).indices.tolist() == [[0, 1, 2, 3]] * 2
    # Nearly everybody, and still at once: to wait for the last one would take hours.
    nearly = fixed_size_batches(Randomness(3), 1_000_000, 999_999, 2).indices
    assert (np.diff(nearly) > 0).all()


def test_large_batches_of_fixed_size_are_equally_likely():
    drawn = fixed_size_batches(Randomness(4), 6, 4, 40_000).indices
    sets, counts = np.unique(drawn, axis=0, return_counts=True)
    assert len(sets) == 15
    assert stats.chisquare(counts).pvalue > 1e-4


def test_whole_numbers_do_not_favour_any():
    # A bound for which a quarter of all words is unfair.
    drawn = uniform_integers(Randomness(4), 3 * 2**61, 30_000)
    assert stats.kstest(drawn / (3 * 2**61), "uniform").pvalue > 1e-4


@pytest.mark.parametrize(
    ("draw", "law"), [(standard_normals, stats.norm), (standard_logistics, stats.logistic)]
)
def test_real_noise_has_its_law_and_its_tails(draw, law):
    assert stats.kstest(draw(Randomness(5), 100_000), law.cdf).pvalue > 1e-4
    assert len(np.unique(draw(Randomness(6), 100_000))) == 100_000


def float32_noise_values(std):
    """Every value that jax.random.normal can take in float32, times a standard deviation."""
    low = np.nextafter(np.float32(-1), np.float32(0))
    fractions = np.arange(2**23, dtype=np.uint32) | np.uint32(0x3F800000)
    uniform = fractions.view(np.float32) - np.float32(1)
    uniform = np.maximum(low, uniform * (np.float32(1) - low) + low)
    normal = np.float32(np.sqrt(2)) * np.asarray(jax.lax.erf_inv(jnp.asarray(uniform)))
    return np.float32(std) * normal


def test_floating_point_attack():
    """Which of two neighbours it was can be read off plain float32 noise, and not off ours."""
    std, ours, neighbours = 1.7, 3.0, 2.0
    values = np.unique(np.float32(neighbours) + float32_noise_values(std))
    released = np.float32(ours) + np.float32(std) * np.asarray(
        jax.random.normal(jax.random.key(0), (20_000,))
    )
    found = values[np.minimum(np.searchsorted(values, released), len(values) - 1)]
    impossible = np.mean(found != released)
    assert impossible > 0.02  # a hundred coordinates give it away with near certainty

    # On the lattice both neighbours' sums are integers and so is the noise: every output of
    # one is an output of the other, and their frequencies are as close as epsilon says.
    grid = 2.0**-16
    noise_of = rounded_normals(Randomness(8), std / grid, 20_000)
    outputs = round(ours / grid) + noise_of
    residual = outputs - round(neighbours / grid)
    assert residual.dtype == np.int64
    assert stats.kstest(residual * grid / std - 1 / std, "norm").pvalue > 1e-4

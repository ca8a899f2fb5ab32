"""Fast draws of outcomes have the distributions that SciPy knows."""

from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

from tacit.models.distributions import fast_sample

COUNT = 40_000


@lru_cache
def compiled(make):
    return jax.jit(
        jax.vmap(lambda key, given: fast_sample(make(*given), key), in_axes=(0, None)),
    )


def draws(make, *given, count=COUNT, seed=0):
    """One draw for each of many keys, as for many units."""
    keys = jax.random.split(jax.random.key(seed), count)
    return np.asarray(compiled(make)(keys, [jnp.float32(each) for each in given]))


def chance_of_counts(found, exact):
    """The p-value of a chi-square test, rare values together."""
    edges = np.unique(exact.ppf(np.linspace(0.001, 0.999, 60)).astype(int))
    cells = np.concatenate([[-1], edges, [np.inf]])
    probabilities = np.diff(np.concatenate([[0.0], exact.cdf(edges), [1.0]]))
    seen = np.histogram(found, bins=cells + 0.5)[0]
    big = probabilities * len(found) > 5
    seen = np.append(seen[big], seen[~big].sum())
    expected = np.append(probabilities[big], probabilities[~big].sum()) * len(found)
    keep = expected > 0
    assert seen[~keep].sum() == 0
    return stats.chisquare(seen[keep], expected[keep]).pvalue if keep.sum() > 1 else 1.0


@pytest.mark.parametrize("rate", [0.01, 0.3, 1.0, 4.0, 15.9, 16.1, 40.0, 300.0, 1e4])
def test_poisson(rate):
    found = draws(dist.Poisson, rate)
    assert found.dtype == np.int32
    assert chance_of_counts(found, stats.poisson(rate)) > 1e-3
    error = np.sqrt(rate / COUNT)
    assert abs(found.mean() - rate) < 4 * error
    fourth = np.sqrt((2 + 1 / rate) / COUNT)
    assert abs(found.var() / rate - 1) < 4 * fourth


def test_poisson_of_a_small_rate():
    found = draws(lambda: dist.Poisson(1e-4).expand([50]).to_event(1))
    assert found.max() <= 2
    assert abs(found.sum() - 50 * COUNT * 1e-4) < 4 * np.sqrt(50 * COUNT * 1e-4)


def quantile(rate, words):
    from tacit.models.distributions import _poisson_from_word

    return np.asarray(jax.jit(_poisson_from_word)(jnp.full(words.shape, rate, jnp.float32), words))


@pytest.mark.parametrize("rate", [1e-3, 0.1, 1.0, 7.0, 15.9, 16.1, 30.0, 200.0, 1e4])
def test_poisson_is_the_quantile_of_its_word(rate):
    """Of two million evenly spaced words the shares are the probabilities, tails included."""
    words = jnp.asarray(np.arange(2**21, dtype=np.uint32) * 2**11 + 1023, jnp.uint32)
    values, counts = np.unique(quantile(rate, words), return_counts=True)
    exact = stats.poisson(rate)
    wrong = np.abs(counts / 2**21 - exact.pmf(values)).sum() + 1 - exact.pmf(values).sum()
    assert wrong / 2 < 4e-5 + len(values) * 2**-21


@pytest.mark.parametrize("mean", [0.2, 3.0, 50.0])
@pytest.mark.parametrize("size", [0.1, 0.7, 5.0, 200.0])
def test_negative_binomial(mean, size):
    exact = stats.nbinom(size, size / (size + mean))
    for make, given in (
        (dist.NegativeBinomial2, (mean, size)),
        (dist.NegativeBinomialProbs, (size, mean / (size + mean))),
        (dist.NegativeBinomialLogits, (size, np.log(mean / size))),
        (dist.GammaPoisson, (size, size / mean)),
    ):
        found = draws(make, *given)
        assert chance_of_counts(found, exact) > 1e-3
        assert abs(found.mean() - mean) < 4 * exact.std() / np.sqrt(COUNT)


@pytest.mark.parametrize("df", [0.5, 1.0, 3.0, 8.0, 1e4])
def test_student(df):
    found = draws(dist.StudentT, df, 1.0, 2.0)
    assert stats.kstest((found - 1) / 2, stats.t(df).cdf).pvalue > 1e-3


@pytest.mark.parametrize("shape", [0.05, 0.5, 1.0, 2.5, 30.0, 1e3])
def test_gamma(shape):
    found = draws(dist.Gamma, shape, 2.0, count=200_000)
    # Of the smallest shapes some numbers are below what float32 can hold.
    floor = 1e-37
    exact = stats.gamma(shape, scale=0.5)
    seen = found[found > floor]
    low = exact.cdf(floor)
    assert abs((found <= floor).mean() - low) < 4 * np.sqrt(low / len(found)) + 1e-6
    assert stats.kstest(seen, lambda x: (exact.cdf(x) - low) / (1 - low)).pvalue > 1e-3


@pytest.mark.parametrize(("first", "second"), [(0.3, 0.4), (2.0, 5.0), (80.0, 1.0)])
def test_beta(first, second):
    found = draws(dist.Beta, first, second)
    inside = found[found < 1]  # the rest is rounded
    assert (found == 1).mean() < 2e-3
    assert stats.kstest(inside, stats.beta(first, second).cdf).pvalue > 1e-3


def test_zero_inflated():
    exact = 0.3 * (np.arange(20) == 0) + 0.7 * stats.poisson(2.0).pmf(np.arange(20))
    for make in (
        lambda: dist.ZeroInflatedPoisson(0.3, 2.0),
        lambda: dist.ZeroInflatedDistribution(dist.Poisson(2.0), gate_logits=np.log(3 / 7)),
    ):
        seen = np.bincount(draws(make), minlength=20)[:20] / COUNT
        np.testing.assert_allclose(seen, exact, atol=4 * 0.5 / np.sqrt(COUNT))


@pytest.mark.slow
def test_entries_are_drawn_each_by_itself():
    scale = jnp.array([1.0, 4.0, 16.0])
    for fn, shape in (
        (dist.Poisson(scale).expand([2, 3]).to_event(1), (2, 3)),
        (dist.Gamma(3.0, 1 / scale).mask(jnp.array([True, False, True])), (3,)),
        (dist.NegativeBinomial2(scale, 3.0).to_event(1).expand([2]), (2, 3)),
        (dist.StudentT(5.0, scale, 1.0).expand([4, 2, 3]).to_event(2), (4, 2, 3)),
        (dist.Beta(scale, 1.0).expand([2, 3]), (2, 3)),
        (dist.ZeroInflatedPoisson(0.5, scale).expand([2, 3]), (2, 3)),
        (dist.Normal(scale, 1.0), (3,)),
    ):
        found = draws(lambda fn=fn: fn, count=5000)
        assert found.shape == (5000, *shape)
        flat = found.reshape(5000, -1)
        np.testing.assert_array_less(np.abs(np.corrcoef(flat.T) - np.eye(flat.shape[1])), 0.08)
        exact = np.broadcast_to(fn.mean, shape)
        spread = np.sqrt(np.broadcast_to(fn.variance, shape) / 5000)
        np.testing.assert_array_less(np.abs(found.mean(axis=0) - exact), 5 * spread)


def test_words_of_one_draw_do_not_go_together():
    from tacit.models.distributions import _random_words, _uniform_from_word

    keys = jax.random.split(jax.random.key(1), 100_000)
    found = np.asarray(
        jax.vmap(lambda k: _uniform_from_word(jnp.stack(_random_words(k, 9, ()))))(keys)
    )
    np.testing.assert_array_less(np.abs(np.corrcoef(found.T) - np.eye(9)), 5 / np.sqrt(100_000))
    for each in found.T:
        assert stats.kstest(each, "uniform").pvalue > 1e-3
    pairs = np.floor(found * 16).astype(int)
    for i in range(1, 9):
        seen = np.bincount(pairs[:, 0] * 16 + pairs[:, i], minlength=256)
        assert stats.chisquare(seen).pvalue > 1e-4


STRANGE = [np.nan, np.inf, -np.inf, -1.0, 0.0, 1e-38, 1e30, 3e38]
KINDS = {
    "poisson": dist.Poisson,
    "negative binomial": lambda value: dist.NegativeBinomial2(value, 2.0),
    "size": lambda value: dist.NegativeBinomial2(2.0, value),
    "gamma": lambda value: dist.Gamma(value, 2.0),
    "student": lambda value: dist.StudentT(value, 1.0, 2.0),
    "beta": lambda value: dist.Beta(value, 2.0),
    "inflated": lambda value: dist.ZeroInflatedPoisson(0.2, value),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_strange_parameter_of_one_unit_changes_no_other(kind):
    keys = jax.random.split(jax.random.key(2), 64)
    values = jnp.asarray(np.linspace(0.1, 30, 64), jnp.float32)
    many = jax.jit(jax.vmap(lambda key, value: fast_sample(KINDS[kind](value), key)))
    usual = np.asarray(many(keys, values))
    for strange in STRANGE:
        found = np.asarray(many(keys, values.at[17].set(strange)))
        np.testing.assert_array_equal(np.delete(found, 17), np.delete(usual, 17))

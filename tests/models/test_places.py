"""Where outcomes lie in their distributions: against SciPy's distribution functions."""

import jax.numpy as jnp
import numpy as np
import pytest
from numpyro import distributions as dist
from scipy import stats

from tacit.models.distributions import ClippedDraws, outcome_interval
from tacit.models.survival import CensoredTimes, WeibullTimes

COUNTS = np.arange(0, 12)


@pytest.mark.parametrize(
    ("own", "known"),
    [
        (dist.Poisson(3.5), stats.poisson(3.5)),
        (dist.NegativeBinomial2(3.5, 1.7), stats.nbinom(1.7, 1.7 / (1.7 + 3.5))),
        (dist.BinomialProbs(0.3, 9), stats.binom(9, 0.3)),
        (dist.BinomialLogits(-0.5, 9), stats.binom(9, 1 / (1 + np.exp(0.5)))),
    ],
)
def test_of_counts(own, known):
    low, high = outcome_interval(own, jnp.asarray(COUNTS))
    assert np.allclose(low, known.cdf(COUNTS - 1), atol=2e-6)
    assert np.allclose(high, known.cdf(COUNTS), atol=2e-6)


@pytest.mark.parametrize("shape", [0.05, 0.8, 30.0])
def test_of_large_and_overdispersed_counts(shape):
    for mean in (0.01, 3.0, 400.0):
        counts = np.array([0, 1, 80, 400, 3000])
        low, high = outcome_interval(dist.NegativeBinomial2(mean, shape), jnp.asarray(counts))
        known = stats.nbinom(shape, shape / (shape + mean))
        assert np.allclose(low, known.cdf(counts - 1), atol=1e-3)
        assert np.allclose(high, known.cdf(counts), atol=1e-3)


def test_of_counts_with_more_zeros():
    own = dist.ZeroInflatedPoisson(0.2, 3.5)
    low, high = outcome_interval(own, jnp.asarray(COUNTS))
    known = 0.2 + 0.8 * stats.poisson(3.5).cdf(COUNTS)
    assert np.allclose(high, known, atol=2e-6)
    assert np.allclose(low, [0, *known[:-1]], atol=2e-6)


@pytest.mark.parametrize(
    ("own", "known"),
    [
        (dist.Normal(1.0, 2.0), stats.norm(1, 2)),
        (dist.Gamma(2.0, 0.7), stats.gamma(2, scale=1 / 0.7)),
        (dist.Beta(2.0, 5.0), stats.beta(2, 5)),
        (dist.StudentT(4.0, 0.0, 1.0), stats.t(4)),
        (dist.StudentT(4.0, 0.5, 2.0), stats.t(4, 0.5, 2)),
    ],
)
def test_of_numbers(own, known):
    values = np.array([0.05, 0.3, 0.9])
    low, high = outcome_interval(own, jnp.asarray(values, jnp.float32))
    assert np.allclose(low, known.cdf(values), atol=2e-6)
    assert np.allclose(high, low)


def test_of_levels_and_binary_outcomes():
    low, high = outcome_interval(dist.CategoricalProbs(jnp.array([0.2, 0.5, 0.3])), jnp.arange(3))
    assert np.allclose(low, [0, 0.2, 0.7])
    assert np.allclose(high, [0.2, 0.7, 1])
    low, high = outcome_interval(dist.BernoulliProbs(0.3), jnp.arange(2))
    assert np.allclose(low + high - 1, [-0.3, 0.7])  # the value less its probability


def test_what_was_moved_to_a_bound_or_censored_may_be_anywhere_beyond():
    own = ClippedDraws(dist.Gamma(2.0, 1.0), 0.5, 4.0)
    low, high = outcome_interval(own, jnp.array([0.5, 1.0, 4.0]))
    known = stats.gamma(2).cdf([0.5, 1.0, 4.0])
    assert np.allclose(low, [0, known[1], known[2]], atol=1e-6)
    assert np.allclose(high, [known[0], known[1], 1], atol=1e-6)
    times = CensoredTimes(WeibullTimes(jnp.zeros(4), jnp.full(4, 1.5)), (1e-3, 9.0))
    seen = jnp.array([[0.7, 0.7], [0.7, jnp.inf], [0.0, 0.7], [0.7, 1.1]])
    low, high = outcome_interval(times, seen)
    first, last = stats.weibull_min(1.5).cdf([0.7, 1.1])
    assert np.allclose(low, [first, first, 0, first], atol=1e-6)
    assert np.allclose(high, [first, 1, first, last], atol=1e-6)


def test_a_distribution_without_one_is_refused():
    with pytest.raises(NotImplementedError):
        outcome_interval(dist.MultivariateNormal(jnp.zeros(2), jnp.eye(2)), jnp.zeros(2))

"""Fast draws of outcomes from their distributions.

JAX's draws of counts and of gamma variables repeat a rejection step, with new random bits each time,
until all entries are accepted, which is slow for many units. Those here take a fixed number of
operations, whatever the parameters are. Their distribution is right up to about 1e-5, the accuracy
of float32 sums.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import distributions as dist

from tacit.models.distributions import CensoredWeibull, Moved
from tacit.models.effects import bare

# Distributions whose density is not that of what they draw, or that draw nothing random.
_WITHOUT = (
    dist.Delta,
    dist.IntervalCensoredDistribution,
    dist.LeftCensoredDistribution,
    dist.RightCensoredDistribution,
    dist.Unit,
)
# Poisson variables with a rate below this are drawn by summing this many terms.
_FEW, _TERMS = 16.0, 48
_MOST = 1e9  # counts that int32 can hold
_PROPOSALS, _BOOSTS = 3, 2


def drawn(fn: dist.Distribution, key: jax.Array) -> jax.Array:
    """A draw from a distribution; raises NotImplementedError if it cannot be drawn."""
    base = bare(fn)
    if isinstance(base, _WITHOUT):
        raise NotImplementedError
    fast = _FAST.get(type(base))
    if fast is not None:
        return fast(base, key, fn.shape())
    value: jax.Array = fn.sample(key)
    if value.shape != fn.shape():
        raise NotImplementedError
    return value


def _words(key: jax.Array, count: int, shape: tuple[int, ...]) -> list[jax.Array]:
    """Random words: two from JAX, and further ones by hashing these.

    Words from JAX would take most of the time. No privacy depends on them.
    """
    if count == 1:
        return [jax.random.bits(key, shape)]
    first, second = jax.random.bits(key, (2, *shape))
    if count == 2:
        return [first, second]
    return [_mixed(_mixed(first + np.uint32(i * _STEP % 2**32)) + second) for i in range(count)]


_STEP = 0x9E3779B9  # odd, so that all words start from different values


def _mixed(word: jax.Array) -> jax.Array:
    """A hash in which every bit depends on all bits of a word (lowbias32, Wellons 2018)."""
    word = (word ^ (word >> 16)) * np.uint32(0x7FEB352D)
    word = (word ^ (word >> 15)) * np.uint32(0x846CA68B)
    return word ^ (word >> 16)


def _uniform(words: jax.Array) -> jax.Array:
    """Numbers between 0 and 1, exact close to 0."""
    return jnp.maximum(words.astype(jnp.float32), 0.5) * np.float32(2.0**-32)


def _normal(words: jax.Array) -> jax.Array:
    """Standard normal numbers."""
    signed = jax.lax.bitcast_convert_type(words, jnp.int32)
    sides = signed.astype(jnp.float32) * np.float32(2.0**-31)
    inside = jnp.clip(sides, np.float32(-1 + 2.0**-24), np.float32(1 - 2.0**-24))
    return np.float32(np.sqrt(2)) * jax.lax.erf_inv(inside)


def _poisson(fn: Any, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    return _count(jnp.broadcast_to(fn.rate, shape), _words(key, 1, shape)[0])


def _count(rate: jax.Array, words: jax.Array) -> jax.Array:
    """A Poisson variable."""
    rate = jnp.clip(jnp.where(jnp.isnan(rate), 0.0, rate).astype(jnp.float32), 0.0, _MOST)
    found = jnp.where(rate < _FEW, _summed(rate, _uniform(words)), _expanded(rate, _normal(words)))
    return found.astype(jnp.int32)


def _summed(rate: jax.Array, uniform: jax.Array) -> jax.Array:
    """The Poisson quantile at a uniform number, by summing terms.

    Written out, the sum would be computed again for every derivative that needs the count. A loop is
    computed once, and ends with the largest count.
    """
    rate = jnp.minimum(rate, _FEW)

    def further(state: Any) -> Any:
        k, _, _, _, likely = state
        return (k < _TERMS) & jnp.any(likely)

    def summed(state: Any) -> Any:
        k, term, tail, count, likely = state
        count, term = count + jnp.where(likely, 1.0, 0.0), term * (rate / (k + 1))
        return (k + 1, term, tail - term, count, is_likely(k + 1, term, tail - term))

    def is_likely(k: jax.Array, term: jax.Array, tail: jax.Array) -> jax.Array:
        # Once terms are much smaller, what is left of the tail is rounding error.
        return (tail >= uniform) & ((16 * term >= uniform) | (rate > k))

    zero, term, tail = jnp.zeros((), jnp.float32), jnp.exp(-rate), -jnp.expm1(-rate)
    begin = (zero, term, tail, jnp.zeros_like(rate), is_likely(zero, term, tail))
    return jnp.asarray(jax.lax.while_loop(further, summed, begin)[3])


# The quantile of a Poisson variable as a real number x, where P(X < x) = Phi(w), is
# rate r + c(s) + d(s) / rate with s = w / sqrt(rate) and 1 - r + r log(r) = s^2 / 2 (Temme 1979;
# Giles 2016). Polynomials for c and d, lowest power first, by least squares.
_FIRST = (0.3333334, -0.0277766, 0.0086437, -0.0035920, 0.0017570, -0.0007829, 0.0003377)
_SECOND = (-0.0197768, 0.0172709, -0.0129500, 0.0114200, -0.0084245)


def _expanded(rate: jax.Array, normal: jax.Array) -> jax.Array:
    """A Poisson variable with a large rate, by an expansion of its quantiles."""
    rate = jnp.maximum(rate, _FEW)
    s = normal / jnp.sqrt(rate)

    def nearer(_: int, t: jax.Array) -> jax.Array:
        slope = jnp.log1p(t)
        step = ((1 + t) * slope - t - s * s / 2) / jnp.where(slope == 0, 1.0, slope)
        return jnp.maximum(t - step, -0.999)

    begin = jnp.maximum(s * (1 + s * (1 / 6 - s / 72)), -0.99)
    t = jax.lax.fori_loop(0, 3, nearer, begin)  # r = 1 + t
    x = rate + rate * t + _polynomial(_FIRST, s) + _polynomial(_SECOND, s) / rate
    return jnp.maximum(jnp.floor(x), 0.0)


def _polynomial(coefficients: tuple[float, ...], x: jax.Array) -> jax.Array:
    total = jnp.full_like(x, coefficients[-1])
    for each in coefficients[-2::-1]:
        total = total * x + each
    return total


def _gamma(fn: Any, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    words = _words(key, _GAMMA_WORDS, shape)
    return jnp.asarray(jnp.exp(_log_gamma(fn.concentration, words)) / fn.rate)


def _log_gamma(concentration: Any, words: Sequence[jax.Array]) -> jax.Array:
    """The logarithm of a gamma variable (Marsaglia and Tsang 2000).

    The concentration is raised by two, so that fewer than one in 50 proposals is rejected, and two
    beta variables make up for the difference. The first of three proposals that is accepted is
    used, or else the last.
    """
    concentration = jnp.broadcast_to(jnp.asarray(concentration, jnp.float32), words[0].shape)
    raised, log_uniform = concentration + _BOOSTS, [jnp.log(_uniform(each)) for each in words]
    centre = raised - 1 / 3
    width = jax.lax.rsqrt(9 * centre)
    found, done = jnp.zeros_like(centre), jnp.zeros_like(centre, bool)
    for i in range(_PROPOSALS):
        normal = _normal(words[2 * i])
        root = 1 + width * normal
        log_cube = 3 * jnp.log(jnp.maximum(root, 1e-6))
        ratio = normal**2 / 2 + centre * (1 - root**3 + log_cube)
        found = jnp.where(done, found, log_cube)
        done = done | ((root > 0) & (log_uniform[2 * i + 1] < ratio))
    found = found + jnp.log(centre)
    for i in range(_BOOSTS):
        found = found + log_uniform[2 * _PROPOSALS + i] / (concentration + i)
    return found


_GAMMA_WORDS = 2 * _PROPOSALS + _BOOSTS


def _negative_binomial(fn: Any, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    words = _words(key, _GAMMA_WORDS + 1, shape)
    rate = jnp.exp(_log_gamma(fn.concentration, words[1:])) / fn.rate
    return _count(rate, words[0])


def _student(fn: Any, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """By the polar method (Bailey 1994)."""
    radius, angle = _words(key, 2, shape)
    squared = fn.df * jnp.expm1(-2 / fn.df * jnp.log(_uniform(radius)))
    turn = jnp.cos(np.float32(2 * np.pi) * _uniform(angle))
    return jnp.asarray(fn.loc + fn.scale * jnp.sqrt(squared) * turn)


def _beta(fn: Any, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    words = _words(key, 2 * _GAMMA_WORDS, shape)
    first = _log_gamma(fn.concentration1, words[:_GAMMA_WORDS])
    return jax.nn.sigmoid(first - _log_gamma(fn.concentration0, words[_GAMMA_WORDS:]))


def _zero_inflated(fn: Any, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    first, second = jax.random.split(key)
    value = drawn(fn.base_dist.expand(shape), first)
    return jnp.where(_uniform(_words(second, 1, shape)[0]) < fn.gate, 0, value)


def _moved(fn: Any, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    return jnp.asarray(fn.moved(drawn(fn.base.expand(shape), key)))


def _censored(fn: Any, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    first, second = _words(key, 2, shape)
    return jnp.asarray(fn.observed(_uniform(first), _uniform(second)))


# For these classes only: a subclass may draw in another way.
_FAST: dict[type, Callable[[Any, jax.Array, tuple[int, ...]], jax.Array]] = {
    CensoredWeibull: _censored,
    Moved: _moved,
    dist.Beta: _beta,
    dist.Gamma: _gamma,
    dist.GammaPoisson: _negative_binomial,
    dist.NegativeBinomial2: _negative_binomial,
    dist.NegativeBinomialLogits: _negative_binomial,
    dist.NegativeBinomialProbs: _negative_binomial,
    dist.Poisson: _poisson,
    dist.StudentT: _student,
    dist.ZeroInflatedLogits: _zero_inflated,
    dist.ZeroInflatedPoisson: _zero_inflated,
    dist.ZeroInflatedProbs: _zero_inflated,
}

"""Distributions that NumPyro lacks, and fast draws from those that it has.

`Rescaled` is a prior whose unconstrained numbers have their own unit. A fit takes steps of about the same length in
every coordinate. A parameter in dollars, or an effect that is small because all effects of its group are, is
therefore fitted in its own unit: value = centre + unit x number, or unit x exp(pace x number) for a positive
parameter. Ordered numbers have the centre and unit in common. A share between 0 and 1 has only a pace. The prior is
not changed.

JAX's draws of counts and of gamma variables repeat a rejection step, with new random bits each time, until all
entries are accepted, which is slow for many units. Those here take a fixed number of operations, whatever the
parameters are. Their distribution is right up to about 1e-5, the accuracy of float32 sums.
"""

import math
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import betaln, gammaincc, xlogy
from jax.typing import ArrayLike
from numpyro import distributions as dist
from numpyro.distributions import Distribution, biject_to, constraints
from numpyro.distributions.transforms import AffineTransform, ComposeTransform, Transform

from tacit.models.survival import CensoredTimes


class RescaledSupport(constraints.Constraint):  # type: ignore[misc]
    """A support whose unconstrained numbers have a centre and a unit."""

    def __init__(
        self, base: constraints.Constraint, centre: ArrayLike, unit: ArrayLike, pace: float
    ) -> None:
        self.base, self.centre, self.unit, self.pace = base, centre, unit, pace

    @property
    def event_dim(self) -> int:
        """The number of event dimensions of the support."""
        dimensions: int = self.base.event_dim
        return dimensions

    def __call__(self, value: ArrayLike) -> jax.Array:
        """Whether a value is in the support, which does not depend on units."""
        return jnp.asarray(self.base(value))

    def feasible_like(self, prototype: ArrayLike) -> jax.Array:
        """Some value in the support."""
        return jnp.asarray(self.base.feasible_like(prototype))

    def tree_flatten(self) -> tuple[tuple[object, ...], tuple[object, ...]]:
        """The parts of the pytree."""
        return (self.base, self.centre, self.unit), (
            ("base", "centre", "unit"),
            {"pace": self.pace},
        )


def _rescaled_transform(constraint: RescaledSupport) -> Transform:
    inner = biject_to(constraint.base)
    first = [] if constraint.pace == 1.0 else [AffineTransform(0.0, constraint.pace)]
    last = AffineTransform(constraint.centre, constraint.unit)
    return ComposeTransform([*first, inner, last])


biject_to.register(RescaledSupport, _rescaled_transform)


class Rescaled(Distribution):  # type: ignore[misc]
    """A distribution over real, ordered or positive numbers or shares, fitted from a centre and in a unit."""

    pytree_data_fields = ("base", "centre", "unit")
    pytree_aux_fields = ("pace",)

    def __init__(
        self, base: Distribution, centre: ArrayLike, unit: ArrayLike, pace: float = 1.0
    ) -> None:
        self.base, self.centre, self.unit, self.pace = base, centre, unit, pace
        super().__init__(base.batch_shape, base.event_shape)

    @property
    def support(self) -> RescaledSupport:
        """The support, in units."""
        # Positive numbers stay above zero: only their unit changes.
        support = self.base.support
        moves = support is constraints.real or support is constraints.ordered_vector
        unit = 1.0 if support is constraints.unit_interval else self.unit
        return RescaledSupport(support, self.centre if moves else 0.0, unit, self.pace)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        """Draws from the distribution."""
        return jnp.asarray(self.base.sample(key, sample_shape))

    def log_prob(self, value: jax.Array) -> jax.Array:
        """Log density of the distribution."""
        return jnp.asarray(self.base.log_prob(value))


class Ordered(Distribution):  # type: ignore[misc]
    """Independent draws from one distribution over the real numbers, sorted."""

    support = constraints.ordered_vector
    pytree_data_fields = ("base",)

    def __init__(self, base: Distribution, count: int) -> None:
        self.base = base
        super().__init__((), (count,))

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        """Draws, in order."""
        return jnp.sort(self.base.sample(key, (*sample_shape, *self.event_shape)), axis=-1)

    def log_prob(self, value: jax.Array) -> jax.Array:
        """Log density: that of all orders of the same numbers."""
        orders = math.lgamma(self.event_shape[0] + 1)
        return jnp.asarray(self.base.log_prob(value).sum(axis=-1) + orders)


class ClippedDraws(Distribution):  # type: ignore[misc]
    """A distribution whose draws are moved to bounds, as values of a column are.

    The density is that of the distribution without bounds. Drawn outcomes are thus like those of
    the rows, also where rows were moved.
    """

    support = constraints.real
    pytree_data_fields = ("base", "low", "high")

    def __init__(self, base: Distribution, low: float, high: float) -> None:
        self.base, self.low, self.high = base, low, high
        super().__init__(base.batch_shape, base.event_shape)

    @property
    def mean(self) -> jax.Array:
        """The mean without bounds."""
        return jnp.asarray(self.base.mean)

    def clip(self, value: ArrayLike) -> jax.Array:
        """A value within the bounds."""
        return jnp.clip(value, self.low, self.high)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        """Draws within the bounds."""
        return self.clip(self.base.sample(key, sample_shape))

    def log_prob(self, value: jax.Array) -> jax.Array:
        """Log density without bounds."""
        return jnp.asarray(self.base.log_prob(value))


class Weighted(Distribution):  # type: ignore[misc]
    """A distribution whose log density counts as often as a weight says. Its draws and mean are its own."""

    pytree_data_fields = ("base_dist", "weight")

    def __init__(self, base: Distribution, weight: ArrayLike) -> None:
        self.base_dist, self.weight = base, weight
        super().__init__(base.batch_shape, base.event_shape)

    @property
    def support(self) -> constraints.Constraint:
        """The support of the distribution."""
        return self.base_dist.support

    @property
    def mean(self) -> jax.Array:
        """The mean of the distribution."""
        return jnp.asarray(self.base_dist.mean)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        """Draws from the distribution."""
        return jnp.asarray(self.base_dist.sample(key, sample_shape))

    def log_prob(self, value: jax.Array) -> jax.Array:
        """The weighted log density."""
        return jnp.asarray(self.weight * self.base_dist.log_prob(value))


_WRAPPERS = (dist.ExpandedDistribution, dist.Independent, dist.MaskedDistribution, Weighted)


def unwrap_distribution(fn: dist.Distribution) -> dist.Distribution:
    """A distribution without wrappers that only reshape or mask it."""
    while isinstance(fn, _WRAPPERS):
        fn = fn.base_dist
    return fn


def distribution_logit(fn: dist.Distribution) -> jax.Array | None:
    """The log odds of a binary distribution; None for others."""
    base = unwrap_distribution(fn)
    if not isinstance(base, dist.BernoulliLogits | dist.BernoulliProbs):
        return None
    return jnp.broadcast_to(base.logits, fn.shape())


def distribution_mean(fn: dist.Distribution) -> jax.Array | None:
    """The mean (for a category, the probabilities of all levels); None where it is not known."""
    base = unwrap_distribution(fn)
    if isinstance(base, dist.CategoricalLogits | dist.CategoricalProbs):
        return jnp.broadcast_to(base.probs, (*fn.shape(), base.probs.shape[-1]))
    # The mean of censored times is one number, while what is seen of a time is two.
    shape = fn.batch_shape if isinstance(base, CensoredTimes) else fn.shape()
    try:
        return jnp.broadcast_to(fn.mean, shape).astype(jnp.float32)
    except NotImplementedError:
        return None


def outcome_interval(fn: dist.Distribution, value: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The probability of a lower value, and of this value or a lower one.

    For a continuous distribution the two are equal; of a censored time, they are the probabilities up to the ends of what is
    known, so that a time within them is as likely to be anywhere between. Values that were moved to bounds are like that, too.

    Raises:
        NotImplementedError: If the distribution function is not known.
    """
    base = unwrap_distribution(fn)
    if isinstance(base, CensoredTimes):
        ended = jnp.isinf(value[..., 1])
        after, until = value[..., 0], jnp.where(ended, base.bounds[1], value[..., 1])
        low, high = (-jnp.expm1(-base.times.cumulative_hazard(each)) for each in (after, until))
        return low, jnp.where(ended, 1.0, high)
    if isinstance(base, ClippedDraws):
        low, high = outcome_interval(base.base, value)
        return jnp.where(value <= base.low, 0.0, low), jnp.where(value >= base.high, 1.0, high)
    if isinstance(base, dist.CategoricalLogits | dist.CategoricalProbs):
        levels = jnp.arange(base.probs.shape[-1])
        own = jnp.asarray(value)[..., None]
        return tuple(  # type: ignore[return-value]  # two
            jnp.where(chosen, base.probs, 0.0).sum(axis=-1)
            for chosen in (levels < own, levels <= own)
        )
    if fn.event_shape:
        raise NotImplementedError
    if base.support.is_discrete:
        return _discrete_cdf(base, jnp.asarray(value) - 1), _discrete_cdf(base, jnp.asarray(value))
    found = _continuous_cdf(base, jnp.asarray(value))
    return found, found


def _continuous_cdf(fn: dist.Distribution, value: jax.Array) -> jax.Array:
    if isinstance(fn, dist.Beta):
        return _regularized_beta(fn.concentration1, fn.concentration0, value, 1 - value)
    if isinstance(fn, dist.StudentT):
        square = ((value - fn.loc) / fn.scale) ** 2
        beyond = _regularized_beta(
            fn.df / 2, 0.5, fn.df / (fn.df + square), square / (fn.df + square)
        )
        return jnp.where(value > fn.loc, 1 - beyond / 2, beyond / 2)
    return jnp.asarray(fn.cdf(value))


def _discrete_cdf(fn: dist.Distribution, value: jax.Array) -> jax.Array:
    """The probability of a whole number or a lower one."""
    if isinstance(fn, dist.BernoulliLogits | dist.BernoulliProbs):
        return jnp.where(value < 0, 0.0, jnp.where(value < 1, 1 - fn.probs, 1.0))
    if isinstance(fn, dist.ZeroInflatedProbs | dist.ZeroInflatedLogits):
        gate = fn.gate if isinstance(fn, dist.ZeroInflatedProbs) else jax.nn.sigmoid(fn.gate_logits)
        inside = gate + (1 - gate) * _discrete_cdf(unwrap_distribution(fn.base_dist), value)
        return jnp.where(value < 0, 0.0, inside)
    count = jnp.maximum(jnp.asarray(value, jnp.float32), 0.0)
    if isinstance(fn, dist.BinomialLogits | dist.BinomialProbs):
        fewer = jnp.minimum(count, fn.total_count - 1.0)
        more = jnp.maximum(fn.total_count - fewer, 0.5)
        inside = _regularized_beta(more, fewer + 1, 1 - fn.probs, fn.probs)
        inside = jnp.where(count >= fn.total_count, 1.0, inside)
    elif isinstance(fn, dist.Poisson):
        inside = gammaincc(count + 1, fn.rate)
    elif isinstance(fn, dist.GammaPoisson):
        odds = 1 + fn.rate
        inside = _regularized_beta(fn.concentration, count + 1, fn.rate / odds, 1 / odds)
    else:
        raise NotImplementedError
    return jnp.where(jnp.asarray(value) < 0, 0.0, inside)


def _regularized_beta(a: ArrayLike, b: ArrayLike, x: ArrayLike, rest: ArrayLike) -> jax.Array:
    """The regularized incomplete beta function of ``x``, where ``rest`` is ``1 - x``.

    By Lentz's method for its continued fraction, for a fixed number of terms. JAX's ``betainc`` goes on for all rows until
    the slowest has converged, so no function of one row may use it.
    """
    a, b, x, rest = (jnp.asarray(each, jnp.float32) for each in (a, b, x, rest))
    swapped = x > (a + 1) / (a + b + 2)  # the fraction converges slowly there
    first, second = jnp.where(swapped, b, a), jnp.where(swapped, a, b)
    at, other = jnp.where(swapped, rest, x), jnp.where(swapped, x, rest)

    def not_zero(value: jax.Array) -> jax.Array:
        return jnp.where(jnp.abs(value) < _TINY, _TINY, value)

    def extend(fraction: Fraction, term: jax.Array) -> Fraction:
        numerator, denominator, value = fraction
        denominator = 1 / not_zero(1 + term * denominator)
        numerator = not_zero(1 + term / numerator)
        return numerator, denominator, value * numerator * denominator

    def two_terms(m: jax.Array, fraction: Fraction) -> Fraction:
        twice = first + 2 * m
        even = m * (second - m) * at / ((twice - 1) * twice)
        odd = -(first + m) * (first + second + m) * at / (twice * (twice + 1))
        return extend(extend(fraction, even), odd)

    start = 1 / not_zero(1 - (first + second) * at / (first + 1))
    one = jnp.ones_like(start)
    _, _, value = jax.lax.fori_loop(1, _BETA_TERMS, two_terms, (one, start, start))
    log_front = xlogy(first, at) + xlogy(second, other) - betaln(first, second) - jnp.log(first)
    found = jnp.clip(jnp.exp(log_front) * value, 0.0, 1.0)
    return jnp.where(swapped, 1 - found, found)


# A continued fraction so far: a ratio of numerators, one of denominators, and the value.
Fraction = tuple[jax.Array, jax.Array, jax.Array]
# Enough for counts to some ten thousand.
_BETA_TERMS, _TINY = 200, 1e-30
# Distributions whose density is not that of what they draw, or that draw nothing random.
_NOT_DRAWABLE = (
    dist.Delta,
    dist.IntervalCensoredDistribution,
    dist.LeftCensoredDistribution,
    dist.RightCensoredDistribution,
    dist.Unit,
)
# Poisson variables with a rate below this are drawn by summing this many terms.
_MAX_SUMMED_RATE, _MAX_TERMS = 16.0, 48
_MAX_RATE = 1e9  # counts that int32 can hold
_NUM_PROPOSALS, _NUM_BOOSTS = 3, 2


def fast_sample(fn: dist.Distribution, key: jax.Array) -> jax.Array:
    """A draw from a distribution; raises NotImplementedError if it cannot be drawn."""
    base = unwrap_distribution(fn)
    if isinstance(base, _NOT_DRAWABLE):
        raise NotImplementedError
    fast = _FAST_SAMPLERS.get(type(base))
    if fast is not None:
        return fast(base, key, fn.shape())
    value: jax.Array = fn.sample(key)
    if value.shape != fn.shape():
        raise NotImplementedError
    return value


def _random_words(key: jax.Array, count: int, shape: tuple[int, ...]) -> list[jax.Array]:
    """Random words: two from JAX, and further ones by hashing these.

    Words from JAX would take most of the time. No privacy depends on them.
    """
    if count == 1:
        return [jax.random.bits(key, shape)]
    first, second = jax.random.bits(key, (2, *shape))
    if count == 2:
        return [first, second]
    return [
        _hash_word(_hash_word(first + np.uint32(i * _HASH_INCREMENT % 2**32)) + second)
        for i in range(count)
    ]


_HASH_INCREMENT = 0x9E3779B9  # odd, so that all words start from different values


def _hash_word(word: jax.Array) -> jax.Array:
    """A hash in which every bit depends on all bits of a word (lowbias32, Wellons 2018)."""
    word = (word ^ (word >> 16)) * np.uint32(0x7FEB352D)
    word = (word ^ (word >> 15)) * np.uint32(0x846CA68B)
    return word ^ (word >> 16)


def _uniform_from_word(words: jax.Array) -> jax.Array:
    """Numbers between 0 and 1, exact close to 0."""
    return jnp.maximum(words.astype(jnp.float32), 0.5) * np.float32(2.0**-32)


def _normal_from_word(words: jax.Array) -> jax.Array:
    """Standard normal numbers."""
    signed = jax.lax.bitcast_convert_type(words, jnp.int32)
    sides = signed.astype(jnp.float32) * np.float32(2.0**-31)
    inside = jnp.clip(sides, np.float32(-1 + 2.0**-24), np.float32(1 - 2.0**-24))
    return np.float32(np.sqrt(2)) * jax.lax.erf_inv(inside)


def _sample_poisson(fn: dist.Distribution, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    return _poisson_from_word(jnp.broadcast_to(fn.rate, shape), _random_words(key, 1, shape)[0])


def _poisson_from_word(rate: jax.Array, words: jax.Array) -> jax.Array:
    """A Poisson variable."""
    rate = jnp.clip(jnp.where(jnp.isnan(rate), 0.0, rate).astype(jnp.float32), 0.0, _MAX_RATE)
    found = jnp.where(
        rate < _MAX_SUMMED_RATE,
        _poisson_by_summation(rate, _uniform_from_word(words)),
        _poisson_by_expansion(rate, _normal_from_word(words)),
    )
    return found.astype(jnp.int32)


# Of each term: its number, itself, what is left of the tail, the count so far, whether to go on.
_Summation = tuple[jax.Array, jax.Array, jax.Array, jax.Array, jax.Array]


def _poisson_by_summation(rate: jax.Array, uniform: jax.Array) -> jax.Array:
    """The Poisson quantile at a uniform number, by summing terms.

    Written out, the sum would be computed again for every derivative that needs the count. A loop is
    computed once, and ends with the largest count.
    """
    rate = jnp.minimum(rate, _MAX_SUMMED_RATE)

    def unfinished(state: _Summation) -> jax.Array:
        k, _, _, _, likely = state
        return (k < _MAX_TERMS) & jnp.any(likely)

    def add_term(state: _Summation) -> _Summation:
        k, term, tail, count, likely = state
        count, term = count + jnp.where(likely, 1.0, 0.0), term * (rate / (k + 1))
        return (k + 1, term, tail - term, count, is_likely(k + 1, term, tail - term))

    def is_likely(k: jax.Array, term: jax.Array, tail: jax.Array) -> jax.Array:
        # Once terms are much smaller, what is left of the tail is rounding error.
        return (tail >= uniform) & ((16 * term >= uniform) | (rate > k))

    zero, term, tail = jnp.zeros((), jnp.float32), jnp.exp(-rate), -jnp.expm1(-rate)
    begin = (zero, term, tail, jnp.zeros_like(rate), is_likely(zero, term, tail))
    return jnp.asarray(jax.lax.while_loop(unfinished, add_term, begin)[3])


# The quantile of a Poisson variable as a real number x, where P(X < x) = Phi(w), is
# rate r + c(s) + d(s) / rate with s = w / sqrt(rate) and 1 - r + r log(r) = s^2 / 2 (Temme 1979;
# Giles 2016). Polynomials for c and d, lowest power first, by least squares.
_QUANTILE_C = (0.3333334, -0.0277766, 0.0086437, -0.0035920, 0.0017570, -0.0007829, 0.0003377)
_QUANTILE_D = (-0.0197768, 0.0172709, -0.0129500, 0.0114200, -0.0084245)


def _poisson_by_expansion(rate: jax.Array, normal: jax.Array) -> jax.Array:
    """A Poisson variable with a large rate, by an expansion of its quantiles."""
    rate = jnp.maximum(rate, _MAX_SUMMED_RATE)
    s = normal / jnp.sqrt(rate)

    def nearer(_: int, t: jax.Array) -> jax.Array:
        slope = jnp.log1p(t)
        step = ((1 + t) * slope - t - s * s / 2) / jnp.where(slope == 0, 1.0, slope)
        return jnp.maximum(t - step, -0.999)

    begin = jnp.maximum(s * (1 + s * (1 / 6 - s / 72)), -0.99)
    t = jax.lax.fori_loop(0, 3, nearer, begin)  # r = 1 + t
    x = rate + rate * t + _polynomial(_QUANTILE_C, s) + _polynomial(_QUANTILE_D, s) / rate
    return jnp.maximum(jnp.floor(x), 0.0)


def _polynomial(coefficients: tuple[float, ...], x: jax.Array) -> jax.Array:
    total = jnp.full_like(x, coefficients[-1])
    for each in coefficients[-2::-1]:
        total = total * x + each
    return total


def _sample_gamma(fn: dist.Distribution, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    words = _random_words(key, _WORDS_PER_GAMMA, shape)
    return jnp.asarray(jnp.exp(_log_gamma(fn.concentration, words)) / fn.rate)


def _log_gamma(concentration: ArrayLike, words: Sequence[jax.Array]) -> jax.Array:
    """The logarithm of a gamma variable (Marsaglia and Tsang 2000).

    The concentration is raised by two, so that fewer than one in 50 proposals is rejected, and two
    beta variables make up for the difference. The first of three proposals that is accepted is
    used, or else the last.
    """
    concentration = jnp.broadcast_to(jnp.asarray(concentration, jnp.float32), words[0].shape)
    raised, log_uniform = (
        concentration + _NUM_BOOSTS,
        [jnp.log(_uniform_from_word(each)) for each in words],
    )
    centre = raised - 1 / 3
    width = jax.lax.rsqrt(9 * centre)
    found, done = jnp.zeros_like(centre), jnp.zeros_like(centre, bool)
    for i in range(_NUM_PROPOSALS):
        normal = _normal_from_word(words[2 * i])
        root = 1 + width * normal
        log_cube = 3 * jnp.log(jnp.maximum(root, 1e-6))
        ratio = normal**2 / 2 + centre * (1 - root**3 + log_cube)
        found = jnp.where(done, found, log_cube)
        done = done | ((root > 0) & (log_uniform[2 * i + 1] < ratio))
    found = found + jnp.log(centre)
    for i in range(_NUM_BOOSTS):
        found = found + log_uniform[2 * _NUM_PROPOSALS + i] / (concentration + i)
    return found


_WORDS_PER_GAMMA = 2 * _NUM_PROPOSALS + _NUM_BOOSTS


def _sample_negative_binomial(
    fn: dist.Distribution, key: jax.Array, shape: tuple[int, ...]
) -> jax.Array:
    words = _random_words(key, _WORDS_PER_GAMMA + 1, shape)
    rate = jnp.exp(_log_gamma(fn.concentration, words[1:])) / fn.rate
    return _poisson_from_word(rate, words[0])


def _sample_student_t(fn: dist.Distribution, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """By the polar method (Bailey 1994)."""
    radius, angle = _random_words(key, 2, shape)
    squared = fn.df * jnp.expm1(-2 / fn.df * jnp.log(_uniform_from_word(radius)))
    turn = jnp.cos(np.float32(2 * np.pi) * _uniform_from_word(angle))
    return jnp.asarray(fn.loc + fn.scale * jnp.sqrt(squared) * turn)


def _sample_beta(fn: dist.Distribution, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    words = _random_words(key, 2 * _WORDS_PER_GAMMA, shape)
    first = _log_gamma(fn.concentration1, words[:_WORDS_PER_GAMMA])
    return jax.nn.sigmoid(first - _log_gamma(fn.concentration0, words[_WORDS_PER_GAMMA:]))


def _sample_zero_inflated(
    fn: dist.Distribution, key: jax.Array, shape: tuple[int, ...]
) -> jax.Array:
    first, second = jax.random.split(key)
    value = fast_sample(fn.base_dist.expand(shape), first)
    return jnp.where(_uniform_from_word(_random_words(second, 1, shape)[0]) < fn.gate, 0, value)


def _sample_clipped(fn: dist.Distribution, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    return jnp.asarray(fn.clip(fast_sample(fn.base.expand(shape), key)))


def _sample_censored(fn: dist.Distribution, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    first, second = _random_words(key, 2, shape[:-1])
    return jnp.asarray(fn.sample_observed(_uniform_from_word(first), _uniform_from_word(second)))


# For these classes only: a subclass may draw in another way.
_FAST_SAMPLERS: dict[type, Callable[[dist.Distribution, jax.Array, tuple[int, ...]], jax.Array]] = {
    CensoredTimes: _sample_censored,
    ClippedDraws: _sample_clipped,
    dist.Beta: _sample_beta,
    dist.Gamma: _sample_gamma,
    dist.GammaPoisson: _sample_negative_binomial,
    dist.NegativeBinomial2: _sample_negative_binomial,
    dist.NegativeBinomialLogits: _sample_negative_binomial,
    dist.NegativeBinomialProbs: _sample_negative_binomial,
    dist.Poisson: _sample_poisson,
    dist.StudentT: _sample_student_t,
    dist.ZeroInflatedLogits: _sample_zero_inflated,
    dist.ZeroInflatedPoisson: _sample_zero_inflated,
    dist.ZeroInflatedProbs: _sample_zero_inflated,
}

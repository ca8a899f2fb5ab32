"""Distributions of times until an event, and what a study sees of them.

`WeibullTimes`, `LogNormalTimes` and `PiecewiseExponentialTimes` are distributions of the time itself. `CensoredTimes` is
the distribution of what a study sees of one: the time, or an interval that it lies in.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln, log_ndtr, ndtri
from jax.typing import ArrayLike
from numpyro.distributions import Distribution, constraints

# Beyond these, on the log scale, a time or a cumulative hazard makes no difference.
_MAX_LOG_TIME, _MAX_LOG_HAZARD = 60.0, 40.0
# Probabilities of later events are kept so far from 0 and 1 that times are finite and positive.
_MIN_PROBABILITY, _MAX_PROBABILITY = 1e-9, 1.0 - 1e-7
# The least hazard between the ends of an interval, so that its probability has a logarithm.
_MIN_HAZARD_BETWEEN = 1e-30


class Times(Protocol):
    """A distribution of times until an event."""

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The shape of its parameters."""

    @property
    def mean(self) -> jax.Array:
        """The mean time."""

    def log_density(self, time: jax.Array) -> jax.Array:
        """The log density at a positive time."""

    def cumulative_hazard(self, time: jax.Array) -> jax.Array:
        """Minus the log-probability of no event until a time, which may be zero."""

    def event(self, later: jax.Array) -> jax.Array:
        """The time after which an event comes with this probability."""


class WeibullTimes(NamedTuple):
    """Weibull times: no event until t with probability exp(-(t / scale)^alpha)."""

    log_scale: jax.Array
    alpha: jax.Array

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The shape of its parameters."""
        return jnp.broadcast_shapes(jnp.shape(self.log_scale), jnp.shape(self.alpha))

    @property
    def mean(self) -> jax.Array:
        """The mean time."""
        return jnp.exp(self.log_scale + gammaln(1 + 1 / self.alpha))

    def _log_hazard(self, log_time: jax.Array) -> jax.Array:
        """The logarithm of the cumulative hazard."""
        return jnp.minimum(self.alpha * (log_time - self.log_scale), _MAX_LOG_HAZARD)

    def log_density(self, time: jax.Array) -> jax.Array:
        """The log density at a positive time."""
        log_time = jnp.log(time)
        passed = self._log_hazard(log_time)
        return jnp.log(self.alpha) + passed - log_time - jnp.exp(passed)

    def cumulative_hazard(self, time: jax.Array) -> jax.Array:
        """Minus the log-probability of no event until a time."""
        positive = jnp.where(time > 0, time, 1.0)
        return jnp.where(time > 0, jnp.exp(self._log_hazard(jnp.log(positive))), 0.0)

    def event(self, later: jax.Array) -> jax.Array:
        """The time after which an event comes with this probability."""
        log_time = self.log_scale + jnp.log(-jnp.log(later)) / self.alpha
        return jnp.exp(jnp.minimum(log_time, _MAX_LOG_TIME))


class LogNormalTimes(NamedTuple):
    """Times whose logarithms are normal."""

    location: jax.Array
    sigma: jax.Array

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The shape of its parameters."""
        return jnp.broadcast_shapes(jnp.shape(self.location), jnp.shape(self.sigma))

    @property
    def mean(self) -> jax.Array:
        """The mean time."""
        return jnp.exp(jnp.minimum(self.location + self.sigma**2 / 2, _MAX_LOG_TIME))

    def log_density(self, time: jax.Array) -> jax.Array:
        """The log density at a positive time."""
        log_time = jnp.log(time)
        deviate = (log_time - self.location) / self.sigma
        return -(deviate**2) / 2 - jnp.log(self.sigma) - log_time - math.log(2 * math.pi) / 2

    def cumulative_hazard(self, time: jax.Array) -> jax.Array:
        """Minus the log-probability of no event until a time."""
        positive = jnp.where(time > 0, time, 1.0)
        deviate = (jnp.log(positive) - self.location) / self.sigma
        return jnp.where(time > 0, -log_ndtr(-deviate), 0.0)

    def event(self, later: jax.Array) -> jax.Array:
        """The time after which an event comes with this probability."""
        log_time = self.location - self.sigma * ndtri(later)
        return jnp.exp(jnp.minimum(log_time, _MAX_LOG_TIME))


class PiecewiseExponentialTimes(NamedTuple):
    """Times whose hazard is constant between cut points, and from the last one on.

    Attributes:
        log_hazard: The logarithm of the hazard in each interval, [..., intervals].
        cuts: Where intervals begin: 0, and the cut points in increasing order.
    """

    log_hazard: jax.Array
    cuts: Sequence[float]

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The shape of its parameters."""
        return jnp.shape(self.log_hazard)[:-1]

    def _passed(self) -> jax.Array:
        """The cumulative hazard at the beginning of each interval."""
        widths = jnp.diff(jnp.asarray(self.cuts))
        each = jnp.exp(self.log_hazard[..., :-1]) * widths
        zero = jnp.zeros_like(self.log_hazard[..., :1])
        return jnp.concatenate([zero, jnp.cumsum(each, axis=-1)], axis=-1)

    @property
    def mean(self) -> jax.Array:
        """The mean time: what is survived of each interval, over its hazard."""
        survived = jnp.exp(-self._passed())
        lost = survived - jnp.concatenate(
            [survived[..., 1:], jnp.zeros_like(survived[..., :1])], axis=-1
        )
        return jnp.sum(lost * jnp.exp(-self.log_hazard), axis=-1)

    def log_density(self, time: jax.Array) -> jax.Array:
        """The log density at a positive time."""
        begun = time[..., None] > jnp.asarray(self.cuts)
        ended = jnp.concatenate([begun[..., 1:], jnp.zeros_like(begun[..., :1])], axis=-1)
        here = jnp.sum(jnp.where(begun & ~ended, self.log_hazard, 0.0), axis=-1)
        return here - self.cumulative_hazard(time)

    def cumulative_hazard(self, time: jax.Array) -> jax.Array:
        """Minus the log-probability of no event until a time."""
        starts = jnp.asarray(self.cuts)
        ends = jnp.concatenate([starts[1:], jnp.full(1, jnp.inf)])
        spent = jnp.clip(time[..., None], starts, ends) - starts
        return jnp.sum(jnp.exp(self.log_hazard) * spent, axis=-1)

    def event(self, later: jax.Array) -> jax.Array:
        """The time after which an event comes with this probability."""
        wanted, passed = -jnp.log(later)[..., None], self._passed()
        within = passed <= wanted
        last = jnp.sum(within, axis=-1, keepdims=True) - 1
        rest = (wanted - passed) * jnp.exp(-self.log_hazard)
        found = jnp.asarray(self.cuts) + rest
        chosen = jnp.arange(len(self.cuts)) == last
        return jnp.minimum(jnp.sum(jnp.where(chosen, found, 0.0), axis=-1), jnp.exp(_MAX_LOG_TIME))


class FollowUp(NamedTuple):
    """How long and how closely rows are observed, so that outcomes can be drawn as a study would see them.

    Attributes:
        limit: When follow-up ended, or would have without an event.
        leaving: The distribution of the times at which people leave before the end of the study; None if
            ``limit`` says when follow-up ends.
        visits: A visit, and the time between visits: an event is only known to lie between two of them. If the time
            between is zero, events are seen when they happen. None if that is so in all rows.
        detected_from: Earlier times are only known to be earlier than this; None if there is no such limit.
    """

    limit: ArrayLike = jnp.inf
    leaving: Times | None = None
    visits: tuple[jax.Array, jax.Array] | None = None
    detected_from: ArrayLike | None = None


class CensoredTimes(Distribution):  # type: ignore[misc]
    """What a study sees of times until an event.

    A value is a pair: the event came after the first time and not after the second. The two are equal if the time of the
    event is known. The second is infinite if follow-up ended before the event (right censoring), and the first is
    zero if only the second is known (left censoring).

    If people leave at times that have a distribution, the pair tells about these, too, and the log density is that of
    both. Pairs are then drawn with a new end of follow-up, so that drawn pairs have the distribution of the rows' own.

    `sample` draws times of events, for predictions. `sample_observed` draws pairs.

    Args:
        times: The distribution of the times.
        bounds: The shortest and the longest time.
        follow_up: How rows are observed.
        in_intervals: Whether values may be intervals that end.
    """

    support = constraints.real_vector
    pytree_data_fields = ("times", "bounds", "follow_up")
    pytree_aux_fields = ("in_intervals",)

    def __init__(
        self,
        times: Times,
        bounds: tuple[float, float],
        follow_up: FollowUp | None = None,
        *,
        in_intervals: bool = False,
    ) -> None:
        self.times, self.bounds = times, bounds
        self.follow_up = FollowUp() if follow_up is None else follow_up
        self.in_intervals = in_intervals
        super().__init__(times.batch_shape, (2,))

    @property
    def mean(self) -> jax.Array:
        """The mean time until an event, as if follow-up never ended."""
        return self.times.mean

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        """Times of events, however long they take."""
        return _draw(self.times, jax.random.uniform(key, (*sample_shape, *self.batch_shape)))

    def sample_observed(self, first: jax.Array, second: jax.Array) -> jax.Array:
        """What a study would see, by two uniform numbers: for the event and for the follow-up."""
        low, high = self.bounds
        until, leaving, visits, detected_from = self.follow_up
        limit = jnp.asarray(until)
        if leaving is not None:
            limit = jnp.minimum(_draw(leaving, second), high)
        time = _draw(self.times, first)
        last_seen = jnp.clip(limit, low, high)
        known = jnp.clip(time, low, high)
        lower = upper = known
        seen = time <= limit
        if visits is not None:
            origin, between = visits
            gap = jnp.where(between > 0, between, 1.0)
            before = origin + jnp.floor((time - origin) / gap) * gap
            # Rounding may leave a time at the end of the next interval.
            before = jnp.where(time > before, before, before - gap)
            after = before + gap
            lower = jnp.where(between > 0, jnp.clip(before, 0.0, high), lower)
            upper = jnp.where(between > 0, jnp.clip(after, low, high), upper)
            seen = jnp.where(between > 0, after <= limit * (1 + 1e-5), seen)
            last_visit = origin + jnp.floor((limit * (1 + 1e-5) - origin) / gap) * gap
            last_seen = jnp.where(
                between > 0, jnp.minimum(jnp.maximum(last_visit, low), last_seen), last_seen
            )
        if detected_from is not None:
            hidden = time < detected_from
            lower = jnp.where(hidden, 0.0, lower)
            upper = jnp.where(hidden, jnp.maximum(detected_from, low), upper)
        lower, upper = jnp.where(seen, lower, last_seen), jnp.where(seen, upper, jnp.inf)
        return jnp.stack([lower, upper], axis=-1)

    def log_prob(self, value: jax.Array) -> jax.Array:
        """Log density of an event or of the end of follow-up, or log-probability of an interval."""
        after, until = value[..., 0], value[..., 1]
        ended, happened = jnp.isinf(until), after == until
        known = jnp.where(happened | ended, after, self.bounds[1])
        found = jnp.where(
            ended, -self.times.cumulative_hazard(known), self.times.log_density(known)
        )
        if self.in_intervals:
            between = ~ended & ~happened
            ends = jnp.where(between, after, 0.0), jnp.where(between, until, self.bounds[1])
            first, last = (self.times.cumulative_hazard(each) for each in ends)
            hazard = jnp.maximum(last - first, _MIN_HAZARD_BETWEEN)
            found = jnp.where(between, jnp.log(-jnp.expm1(-hazard)) - first, found)
        if (leaving := self.follow_up.leaving) is not None:
            left = ended & (after < self.bounds[1])  # and not just at the end of the study
            last = jnp.where(ended, after, until)
            found = found + jnp.where(
                left, leaving.log_density(last), -leaving.cumulative_hazard(last)
            )
        return found


def _draw(times: Times, uniform: jax.Array) -> jax.Array:
    """A time by a uniform number, the probability of a later one."""
    return times.event(jnp.clip(uniform, _MIN_PROBABILITY, _MAX_PROBABILITY))

"""Distributions that NumPyro lacks and formulas need."""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln
from numpyro.distributions import Distribution, constraints

# Beyond these, on the log scale, a time or a cumulative hazard makes no difference.
_LONGEST, _CERTAIN = 60.0, 40.0


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


class Moved(Distribution):  # type: ignore[misc]
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

    def moved(self, value: Any) -> jax.Array:
        """A value within the bounds."""
        return jnp.clip(value, self.low, self.high)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        """Draws within the bounds."""
        return self.moved(self.base.sample(key, sample_shape))

    def log_prob(self, value: jax.Array) -> jax.Array:
        """Log density without bounds."""
        return jnp.asarray(self.base.log_prob(value))


class CensoredWeibull(Distribution):  # type: ignore[misc]
    """Times until an event, or until follow-up ended before it.

    A value is the time of an event, or minus the time at which follow-up ended. `sample` draws
    times of events, for predictions. `observed` draws what a study would see: it stops at the
    end of follow-up.

    Follow-up ends at a known limit; or, if there is a rate of drop-out, at any time by this rate and
    at the longest time at the latest. The rate is a parameter, of which the follow-up of rows tells.
    Given the rows, it and the parameters of the event are independent.

    Args:
        log_scale: Logarithm of the time by which an event has happened with probability 1 - 1/e.
        alpha: The shape: above 1, the hazard rises with time.
        bounds: The shortest and the longest time.
        limit: When the row's follow-up ended, or would have.
        drop_out: The rate of drop-out; None if limits are known.
    """

    support = constraints.real
    pytree_data_fields = ("log_scale", "alpha", "bounds", "limit", "drop_out")

    def __init__(
        self,
        log_scale: Any,
        alpha: Any,
        bounds: tuple[float, float],
        limit: Any = jnp.inf,
        drop_out: Any = None,
    ) -> None:
        self.log_scale, self.alpha = log_scale, alpha
        self.bounds, self.limit, self.drop_out = bounds, limit, drop_out
        super().__init__(jnp.broadcast_shapes(jnp.shape(log_scale), jnp.shape(alpha)), ())

    @property
    def mean(self) -> jax.Array:
        """The mean time until an event."""
        return jnp.exp(self.log_scale + gammaln(1 + 1 / self.alpha))

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        """Times of events, however long they take."""
        return self._event(jax.random.uniform(key, (*sample_shape, *self.batch_shape)))

    def _event(self, uniform: jax.Array) -> jax.Array:
        """The time of an event, by the probability that it comes later."""
        log_hazard = jnp.log(-jnp.log(jnp.clip(uniform, 1e-9, 1.0 - 1e-7)))
        return jnp.exp(jnp.minimum(self.log_scale + log_hazard / self.alpha, _LONGEST))

    def observed(self, first: jax.Array, second: jax.Array) -> jax.Array:
        """What a study would see, by two uniform numbers: for the event and for the follow-up."""
        low, high = self.bounds
        limit = self.limit
        if self.drop_out is not None:
            limit = jnp.minimum(-jnp.log(second) / self.drop_out, high)
        event = self._event(first)
        return jnp.where(event <= limit, jnp.clip(event, low, high), -jnp.clip(limit, low, high))

    def log_prob(self, value: jax.Array) -> jax.Array:
        """Log density of an event or of the end of follow-up, and of neither before."""
        time, happened = jnp.abs(value), value > 0
        passed = jnp.minimum(self.alpha * (jnp.log(time) - self.log_scale), _CERTAIN)
        hazard = jnp.log(self.alpha) + passed - jnp.log(time)
        found = jnp.where(happened, hazard, 0.0) - jnp.exp(passed)
        if self.drop_out is None:
            return found
        left = ~happened & (time < self.bounds[1])  # and not just at the end of the study
        rate = jnp.asarray(self.drop_out)
        return found + jnp.where(left, jnp.log(rate), 0.0) - rate * time

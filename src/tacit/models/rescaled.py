"""Priors whose unconstrained numbers are in a unit of their own.

A fit takes steps of about the same length in every coordinate. A parameter that is reported
in dollars, or an effect that is small because all effects of its group are, is therefore
fitted in its own unit: value = centre + unit x number, or unit x exp(pace x number) for a
positive one. The prior stays what it is.
"""

from typing import Any

import jax
import jax.numpy as jnp
from numpyro.distributions import Distribution, biject_to, constraints
from numpyro.distributions.transforms import AffineTransform, ComposeTransform


class InUnits(constraints.Constraint):  # type: ignore[misc]
    """Values of a support, seen from a centre in a unit."""

    def __init__(self, base: Any, centre: Any, unit: Any, pace: float) -> None:
        self.base, self.centre, self.unit, self.pace = base, centre, unit, pace

    @property
    def event_dim(self) -> int:
        """As the support has it."""
        dimensions: int = self.base.event_dim
        return dimensions

    def __call__(self, value: Any) -> Any:
        """Whether a value is in the support: units change nothing in that."""
        return self.base(value)

    def feasible_like(self, prototype: Any) -> Any:
        """Some value of the support."""
        return self.base.feasible_like(prototype)

    def tree_flatten(self) -> Any:
        """Parts for JAX."""
        return (self.base, self.centre, self.unit), (
            ("base", "centre", "unit"),
            {"pace": self.pace},
        )


def _in_units(constraint: InUnits) -> Any:
    inner = biject_to(constraint.base)
    first = [] if constraint.pace == 1.0 else [AffineTransform(0.0, constraint.pace)]
    last = AffineTransform(constraint.centre, constraint.unit)
    return ComposeTransform([*first, inner, last])


biject_to.register(InUnits, _in_units)


class Rescaled(Distribution):  # type: ignore[misc]
    """A distribution over real or over positive numbers, fitted from a centre and in a unit."""

    pytree_data_fields = ("base", "centre", "unit")
    pytree_aux_fields = ("pace",)

    def __init__(self, base: Any, centre: Any, unit: Any, pace: float = 1.0) -> None:
        self.base, self.centre, self.unit, self.pace = base, centre, unit, pace
        super().__init__(base.batch_shape, base.event_shape)

    @property
    def support(self) -> Any:
        """The support, in units."""
        # Positive numbers keep their end: only their unit changes.
        real = self.base.support is constraints.real
        return InUnits(self.base.support, self.centre if real else 0.0, self.unit, self.pace)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        """Draws of the distribution itself."""
        return jnp.asarray(self.base.sample(key, sample_shape))

    def log_prob(self, value: jax.Array) -> jax.Array:
        """The density of the distribution itself."""
        return jnp.asarray(self.base.log_prob(value))

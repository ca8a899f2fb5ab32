"""Priors whose unconstrained numbers have their own unit.

A fit takes steps of about the same length in every coordinate. A parameter in dollars, or an effect
that is small because all effects of its group are, is therefore fitted in its own unit:
value = centre + unit x number, or unit x exp(pace x number) for a positive parameter. Numbers in
order have the centre and unit in common. A share between 0 and 1 has only a pace. The prior is not
changed.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from numpyro.distributions import Distribution, biject_to, constraints
from numpyro.distributions.transforms import AffineTransform, ComposeTransform, Transform


class InUnits(constraints.Constraint):  # type: ignore[misc]
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

    def tree_flatten(self) -> Any:
        """The parts of the pytree."""
        return (self.base, self.centre, self.unit), (
            ("base", "centre", "unit"),
            {"pace": self.pace},
        )


def _in_units(constraint: InUnits) -> Transform:
    inner = biject_to(constraint.base)
    first = [] if constraint.pace == 1.0 else [AffineTransform(0.0, constraint.pace)]
    last = AffineTransform(constraint.centre, constraint.unit)
    return ComposeTransform([*first, inner, last])


biject_to.register(InUnits, _in_units)


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
    def support(self) -> InUnits:
        """The support, in units."""
        # Positive numbers stay above zero: only their unit changes.
        support = self.base.support
        moves = support is constraints.real or support is constraints.ordered_vector
        unit = 1.0 if support is constraints.unit_interval else self.unit
        return InUnits(support, self.centre if moves else 0.0, unit, self.pace)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        """Draws from the distribution."""
        return jnp.asarray(self.base.sample(key, sample_shape))

    def log_prob(self, value: jax.Array) -> jax.Array:
        """Log density of the distribution."""
        return jnp.asarray(self.base.log_prob(value))

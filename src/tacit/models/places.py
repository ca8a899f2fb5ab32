"""Where a NumPyro model's latents are in the unconstrained vector."""

from collections.abc import Mapping
from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from numpyro.distributions import biject_to

from tacit.errors import InvalidArgument


class Place(NamedTuple):
    """Where a latent's unconstrained numbers are in the vector."""

    start: int
    stop: int
    shape: tuple[int, ...]
    limits: tuple[int, int] | None = None  # of the place of a value among those it may have

    def value(self, fn: Any, vector: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The latent's value, and the log-determinant of the map to it."""
        flat = vector[self.start : self.stop].reshape(self.shape)
        if self.limits is not None:
            which = jnp.clip(jnp.rint(flat), *self.limits).astype(jnp.int32)
            return fn.enumerate_support(expand=False).ravel()[which], jnp.zeros(())
        transform = biject_to(fn.support)
        value: jax.Array = transform(flat)
        return value, jnp.sum(transform.log_abs_det_jacobian(flat, value))

    def inverse(self, fn: Any, value: jax.Array) -> jax.Array:
        """The numbers that a value is made from."""
        if self.limits is None:
            return jnp.ravel(biject_to(fn.support).inv(value))
        values = fn.enumerate_support(expand=False).ravel()
        return jnp.argmin(jnp.abs(values - jnp.ravel(value)[:, None]), axis=1)


def unconstrained_shape(fn: Any) -> tuple[int, ...]:
    """Shape of the real numbers a latent is made from."""
    shape: tuple[int, ...] = biject_to(fn.support).inverse_shape(fn.shape())
    return shape


def limits(name: str, fn: Any) -> tuple[int, int]:
    """First and last place among the values that a discrete latent may have."""
    if not fn.has_enumerate_support or fn.event_shape:
        raise InvalidArgument(
            f"Latent {name!r} is discrete, shared by all rows, and its values cannot be listed; use "
            "a distribution with a public lowest and highest value, such as DiscreteUniform."
        )
    return 0, fn.enumerate_support(expand=False).shape[0] - 1


def layout(latents: Mapping[str, tuple[tuple[int, ...], Any]]) -> dict[str, Place]:
    """Places one after the other, in the order of the model, from shapes and limits."""
    places, start = {}, 0
    for name, (shape, bounds) in latents.items():
        places[name] = Place(start, start + prod(shape), shape, bounds)
        start += prod(shape)
    return places

"""Where parameters are in the unconstrained vector, and what models adapted from other libraries share."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from numpyro.distributions import Distribution, biject_to

from tacit.errors import InvalidArgument
from tacit.models.base import Discrete, Held
from tacit.models.reading import Reading

Shape = tuple[int, ...]
Limits = tuple[int, int] | None


class Place(NamedTuple):
    """The part of the vector that holds a parameter's unconstrained numbers.

    Attributes:
        start: The first coordinate.
        stop: The coordinate after the last.
        shape: Shape of the unconstrained numbers.
        limits: Of a discrete parameter, which is stored as a position in the list of its values:
            the first and the last position.
    """

    start: int
    stop: int
    shape: Shape
    limits: Limits = None

    def value(self, fn: Distribution, vector: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The parameter's value, and the log-determinant of the map to it."""
        flat = vector[self.start : self.stop].reshape(self.shape)
        if self.limits is not None:
            which = jnp.clip(jnp.rint(flat), *self.limits).astype(jnp.int32)
            return fn.enumerate_support(expand=False).ravel()[which], jnp.zeros(())
        transform = biject_to(fn.support)
        value: jax.Array = transform(flat)
        return value, jnp.sum(transform.log_abs_det_jacobian(flat, value))

    def inverse(self, fn: Distribution, value: jax.Array) -> jax.Array:
        """The unconstrained numbers of a value, flat."""
        if self.limits is None:
            return jnp.ravel(biject_to(fn.support).inv(value))
        values = fn.enumerate_support(expand=False).ravel()
        return jnp.argmin(jnp.abs(values - jnp.ravel(value)[:, None]), axis=1)


@dataclass(frozen=True, kw_only=True, eq=False)  # equal only to itself, and hashable
class PlacedModel:
    """What adapted NumPyro and PyMC models have in common.

    Attributes:
        columns: Columns that the model takes.
        arrays: Public arrays that the user declared, by name.
        places: Where each parameter is in the unconstrained vector.
        derived: Names of what the model computes from its parameters.
        predictors: Columns that a prediction for a new row needs.
        made_up: One made-up row, public.
        labels: Names for the entries of array parameters, axis by axis.
        reading: How to read the parameters, if the model says so.
    """

    columns: tuple[str, ...]
    arrays: Mapping[str, Any]
    places: Mapping[str, Place]
    derived: tuple[str, ...] = ()
    predictors: tuple[str, ...] = ()
    made_up: Mapping[str, Any]
    labels: Mapping[str, Sequence[Sequence[str]]] = field(default_factory=dict)
    reading: Reading | None = None

    @property
    def dimension(self) -> int:
        """Length of the unconstrained vector."""
        return max(place.stop for place in self.places.values())

    @property
    def names(self) -> tuple[str, ...]:
        """Parameters in the order of the model, then what it derives from them."""
        return (*self.places, *self.derived)

    @property
    def discrete(self) -> Discrete:
        """Coordinates of the vector that hold whole numbers, with their limits."""
        return tuple(
            Held(i, *place.limits, name)
            for name, place in self.places.items()
            if place.limits is not None
            for i in range(place.start, place.stop)
        )


def unconstrained_shape(fn: Distribution) -> Shape:
    """Shape of the unconstrained numbers of a latent."""
    shape: Shape = biject_to(fn.support).inverse_shape(fn.shape())
    return shape


def limits(name: str, fn: Distribution) -> tuple[int, int]:
    """First and last position in the list of values of a discrete latent."""
    if not fn.has_enumerate_support or fn.event_shape:
        raise InvalidArgument(
            f"Latent {name!r} is discrete and shared by all rows, and its values cannot be listed; "
            "use a distribution with a public lowest and highest value, such as DiscreteUniform."
        )
    return 0, fn.enumerate_support(expand=False).shape[0] - 1


def layout(latents: Mapping[str, tuple[Shape, Limits]]) -> dict[str, Place]:
    """Consecutive places, in the given order, from shapes and limits."""
    places, start = {}, 0
    for name, (shape, bounds) in latents.items():
        places[name] = Place(start, start + prod(shape), shape, bounds)
        start += prod(shape)
    return places

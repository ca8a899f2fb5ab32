"""A model as plain JAX functions: a prior over named parameters, a likelihood of one row."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any, ClassVar, Protocol

import jax
import jax.numpy as jnp

from tacit.errors import InvalidArgument

Parameters = dict[str, jax.Array]
Row = Mapping[str, Any]


class Bijection(Protocol):
    """A smooth map from all real arrays onto a parameter's support."""

    def size(self, shape: tuple[int, ...]) -> int:
        """How many real numbers a parameter of this shape is made from."""
        ...

    def forward(self, flat: jax.Array, shape: tuple[int, ...]) -> tuple[jax.Array, jax.Array]:
        """The parameter, and the log-determinant of the map."""
        ...


@dataclass(frozen=True)
class Real:
    """Any real number."""

    def size(self, shape: tuple[int, ...]) -> int:
        return prod(shape)

    def forward(self, flat: jax.Array, shape: tuple[int, ...]) -> tuple[jax.Array, jax.Array]:
        return flat.reshape(shape), jnp.zeros((), flat.dtype)


@dataclass(frozen=True)
class Positive:
    """Positive numbers, by the exponential."""

    def size(self, shape: tuple[int, ...]) -> int:
        return prod(shape)

    def forward(self, flat: jax.Array, shape: tuple[int, ...]) -> tuple[jax.Array, jax.Array]:
        return jnp.exp(flat).reshape(shape), flat.sum()


@dataclass(frozen=True)
class Interval:
    """Numbers between two bounds, by the logistic function."""

    low: float = 0.0
    high: float = 1.0

    def __post_init__(self) -> None:
        if not (self.low < self.high):
            raise InvalidArgument(f"An interval needs low < high; got {self.low}, {self.high}.")

    def size(self, shape: tuple[int, ...]) -> int:
        return prod(shape)

    def forward(self, flat: jax.Array, shape: tuple[int, ...]) -> tuple[jax.Array, jax.Array]:
        width = self.high - self.low
        slope = jax.nn.log_sigmoid(flat) + jax.nn.log_sigmoid(-flat) + jnp.log(width)
        return (self.low + width * jax.nn.sigmoid(flat)).reshape(shape), slope.sum()


@dataclass(frozen=True)
class Simplex:
    """Vectors of positive numbers that sum to one, along the last axis, by stick-breaking."""

    def size(self, shape: tuple[int, ...]) -> int:
        return prod(shape[:-1]) * (shape[-1] - 1)

    def forward(self, flat: jax.Array, shape: tuple[int, ...]) -> tuple[jax.Array, jax.Array]:
        pieces = shape[-1] - 1
        free = flat.reshape(*shape[:-1], pieces)
        # Centred so that zeros give equal shares.
        shifted = free - jnp.log(jnp.arange(pieces, 0, -1, dtype=flat.dtype))
        log_taken, log_left = jax.nn.log_sigmoid(shifted), jax.nn.log_sigmoid(-shifted)
        before = jnp.cumsum(log_left, axis=-1) - log_left
        rest = jnp.cumsum(log_left, axis=-1)[..., -1:]
        value = jnp.exp(jnp.concatenate([before + log_taken, rest], axis=-1))
        return value, (before + log_taken + log_left).sum()


@dataclass(frozen=True)
class Parameter:
    """Shape and support of one parameter."""

    shape: tuple[int, ...] = ()
    support: Bijection = field(default_factory=Real)


@dataclass(frozen=True, kw_only=True, eq=False)  # equal only to itself, and hashable
class Model:
    """A prior and a likelihood over named parameters, in plain JAX.

    ``log_prior(params)`` and ``log_likelihood(params, row)`` return scalars; ``row`` is a
    mapping from column names to values of one row, so that rows cannot interact. Public
    arrays that the functions need go into ``constants``, which is then passed to both as a
    last argument.

    Inference happens on one unconstrained vector; `constrain` turns it into parameters.
    """

    parameters: Mapping[str, Parameter]
    log_prior: Callable[..., jax.Array]
    log_likelihood: Callable[..., jax.Array]
    constants: Any = None

    declared_public: ClassVar[tuple[str, ...]] = ("constants",)

    @cached_property
    def _layout(self) -> list[tuple[str, Parameter, int, int]]:
        layout, start = [], 0
        for name, parameter in self.parameters.items():
            size = parameter.support.size(parameter.shape)
            layout.append((name, parameter, start, start + size))
            start += size
        if start == 0:
            raise InvalidArgument("A model needs at least one parameter.")
        return layout

    @property
    def dimension(self) -> int:
        """Length of the unconstrained vector."""
        return self._layout[-1][3]

    def constrain(self, vector: jax.Array) -> Parameters:
        """Parameters on their supports."""
        return self._constrain(vector)[0]

    def _constrain(self, vector: jax.Array) -> tuple[Parameters, jax.Array]:
        values, slope = {}, jnp.zeros((), vector.dtype)
        for name, parameter, start, stop in self._layout:
            values[name], log_det = parameter.support.forward(vector[start:stop], parameter.shape)
            slope = slope + log_det
        return values, slope

    def _extra(self, constants: Any) -> tuple[Any, ...]:
        return () if self.constants is None else (constants,)

    def prior_density(self, vector: jax.Array, constants: Any = None) -> jax.Array:
        """Log prior of the unconstrained vector, with the Jacobian of its map."""
        params, slope = self._constrain(vector)
        return self.log_prior(params, *self._extra(constants)) + slope

    def row_density(self, vector: jax.Array, row: Row, constants: Any = None) -> jax.Array:
        """Log-likelihood of one row at the unconstrained vector."""
        return self.log_likelihood(self.constrain(vector), row, *self._extra(constants))

"""A model as plain JAX functions: a prior over named parameters, a likelihood of one row."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any, ClassVar, Protocol

import jax
import jax.numpy as jnp

from tacit.errors import InvalidArgument
from tacit.models.base import (
    Discrete,
    Held,
    Labels,
    Outcomes,
    Parameters,
    Row,
    RowByRow,
    finite_start,
    like_columns,
    refuse_strangers,
    shaped_start,
)


class Bijection(Protocol):
    """A smooth map from all real arrays onto a parameter's support."""

    def size(self, shape: tuple[int, ...]) -> int:
        """How many real numbers a parameter of this shape is made from."""
        ...

    def forward(self, flat: jax.Array, shape: tuple[int, ...]) -> tuple[jax.Array, jax.Array]:
        """The parameter, and the log-determinant of the map."""
        ...

    def inverse(self, value: jax.Array) -> jax.Array:
        """The real numbers a parameter is made from, flat."""
        ...


@dataclass(frozen=True)
class Real:
    """Any real number."""

    def size(self, shape: tuple[int, ...]) -> int:
        return prod(shape)

    def forward(self, flat: jax.Array, shape: tuple[int, ...]) -> tuple[jax.Array, jax.Array]:
        return flat.reshape(shape), jnp.zeros((), flat.dtype)

    def inverse(self, value: jax.Array) -> jax.Array:
        return value.ravel()


@dataclass(frozen=True)
class Positive:
    """Positive numbers, by the exponential."""

    def size(self, shape: tuple[int, ...]) -> int:
        return prod(shape)

    def forward(self, flat: jax.Array, shape: tuple[int, ...]) -> tuple[jax.Array, jax.Array]:
        return jnp.exp(flat).reshape(shape), flat.sum()

    def inverse(self, value: jax.Array) -> jax.Array:
        return jnp.log(value).ravel()


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

    def inverse(self, value: jax.Array) -> jax.Array:
        return (jnp.log(value - self.low) - jnp.log(self.high - value)).ravel()


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

    def inverse(self, value: jax.Array) -> jax.Array:
        pieces = value.shape[-1] - 1
        rest = jnp.cumsum(value[..., ::-1], axis=-1)[..., -2::-1]  # of what comes after
        shifted = jnp.log(value[..., :-1]) - jnp.log(rest)
        return (shifted + jnp.log(jnp.arange(pieces, 0, -1, dtype=value.dtype))).ravel()


@dataclass(frozen=True)
class Whole:
    """Whole numbers in a range, for samplers that need no gradient.

    Args:
        low: The lowest value.
        high: The highest value.
    """

    low: int
    high: int

    def __post_init__(self) -> None:
        if not (self.low < self.high):
            raise InvalidArgument(f"Whole numbers need low < high; got {self.low}, {self.high}.")

    def size(self, shape: tuple[int, ...]) -> int:
        return prod(shape)

    def forward(self, flat: jax.Array, shape: tuple[int, ...]) -> tuple[jax.Array, jax.Array]:
        value = jnp.clip(jnp.rint(flat), self.low, self.high).astype(jnp.int32)
        return value.reshape(shape), jnp.zeros((), flat.dtype)

    def inverse(self, value: jax.Array) -> jax.Array:
        return value.ravel()


@dataclass(frozen=True)
class Parameter:
    """Shape and support of one parameter.

    Args:
        shape: The shape; ``()`` for a scalar.
        support: The map from unconstrained numbers: `Real` (the default), `Positive`, `Interval`,
            `Simplex` or `Whole`.
    """

    shape: tuple[int, ...] = ()
    support: Bijection = field(default_factory=Real)


@dataclass(frozen=True, kw_only=True, eq=False)  # equal only to itself, and hashable
class Model(RowByRow):
    """A model in plain JAX: a log-prior and a log-likelihood of one row.

    Inference uses one unconstrained vector; `constrain` turns it into parameters. The functions
    must not hold data; pass public arrays as ``constants``.

    Args:
        parameters: The parameters, by name.
        log_prior: ``log_prior(params)``, a scalar.
        log_likelihood: ``log_likelihood(params, row)``, a scalar. ``row`` maps column names to the
            values of one row, so rows cannot interact.
        constants: Public arrays. If given, they are passed to all functions as a last argument.
        simulate: ``simulate(key, params, row)``, which draws the outcomes of a row and returns them
            by column name. `tacit.Scoring` needs it.
    """

    parameters: Mapping[str, Parameter]
    log_prior: Callable[..., jax.Array]
    log_likelihood: Callable[..., jax.Array]
    constants: Any = None
    simulate: Callable[..., Mapping[str, jax.Array]] | None = None

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

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters, in the order they were declared."""
        return tuple(self.parameters)

    def start(self, values: Mapping[str, Any]) -> jax.Array:
        """The unconstrained vector of given values; zero for parameters not given."""
        refuse_strangers(values, self.parameters)
        vector = jnp.zeros(self.dimension)
        for name, parameter, start, stop in self._layout:
            if name in values:
                value = shaped_start(name, values[name], parameter.shape)
                vector = vector.at[start:stop].set(parameter.support.inverse(value))
        return finite_start(vector)

    @property
    def columns(self) -> None:
        """Any."""
        return

    @property
    def labels(self) -> Labels:
        """None."""
        return {}

    @property
    def searched(self) -> tuple[Any, ...]:
        """What might hold an array of rows."""
        supports = [parameter.support for parameter in self.parameters.values()]
        return (self.log_prior, self.log_likelihood, self.simulate, supports)

    @property
    def discrete(self) -> Discrete:
        """Places of whole numbers in the vector, with their limits."""
        return tuple(
            Held(i, parameter.support.low, parameter.support.high, name)
            for name, parameter, start, stop in self._layout
            if isinstance(parameter.support, Whole)
            for i in range(start, stop)
        )

    def constrain(self, vector: jax.Array, constants: Any = None) -> Parameters:  # noqa: ARG002
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

    def row_density(
        self, vector: jax.Array, row: Row, constants: Any = None, outcomes: Outcomes = None
    ) -> jax.Array:
        """Log-likelihood of one row at the unconstrained vector."""
        row = {**row, **(outcomes or {})}
        return self.log_likelihood(self.constrain(vector), row, *self._extra(constants))

    @property
    def simulates(self) -> bool:
        """Whether there is a function that draws outcomes."""
        return self.simulate is not None

    def row_outcomes(
        self, key: jax.Array, vector: jax.Array, row: Row, constants: Any = None
    ) -> Outcomes:
        """Columns of the row's outcomes, drawn."""
        if self.simulate is None:
            raise InvalidArgument(
                "The model cannot draw outcomes; pass Model(simulate=...), a function of a key, "
                "parameters and a row that does."
            )
        params = self.constrain(jax.lax.stop_gradient(vector))
        found = self.simulate(key, params, row, *self._extra(constants))
        return like_columns(found, row)

"""A model as plain JAX functions: a prior over named parameters, a likelihood of one row."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import ClassVar

import jax
import jax.numpy as jnp
from numpy.typing import ArrayLike
from numpyro.distributions import biject_to, constraints
from numpyro.distributions.constraints import Constraint

from tacit.errors import InvalidArgument
from tacit.models.base import (
    Discrete,
    Held,
    Labels,
    Outcomes,
    Parameters,
    PyTree,
    Row,
    RowByRow,
    finite_start,
    like_columns,
    refuse_strangers,
    shaped_start,
)


class Support(ABC):
    """The set of values of a parameter, with a smooth map from unconstrained numbers onto it."""

    @property
    @abstractmethod
    def constraint(self) -> Constraint:
        """The set as NumPyro names it."""

    def size(self, shape: tuple[int, ...]) -> int:
        """The number of unconstrained numbers of a parameter with this shape."""
        return prod(biject_to(self.constraint).inverse_shape(shape))

    def forward(self, flat: jax.Array, shape: tuple[int, ...]) -> tuple[jax.Array, jax.Array]:
        """The parameter, and the log-determinant of the map."""
        transform = biject_to(self.constraint)
        numbers = flat.reshape(transform.inverse_shape(shape))
        value = jnp.asarray(transform(numbers))
        return value, jnp.sum(transform.log_abs_det_jacobian(numbers, value))

    def inverse(self, value: jax.Array) -> jax.Array:
        """The unconstrained numbers of a parameter, flat."""
        return jnp.ravel(biject_to(self.constraint).inv(value))


@dataclass(frozen=True)
class Real(Support):
    """Any real number."""

    @property
    def constraint(self) -> Constraint:
        """The real numbers."""
        return constraints.real


@dataclass(frozen=True)
class Positive(Support):
    """Positive numbers, by the exponential."""

    @property
    def constraint(self) -> Constraint:
        """The positive numbers."""
        return constraints.positive


@dataclass(frozen=True)
class Interval(Support):
    """Numbers between two bounds, by the logistic function.

    Args:
        low: The lower bound.
        high: The upper bound.
    """

    low: float = 0.0
    high: float = 1.0

    def __post_init__(self) -> None:
        if not (self.low < self.high):
            raise InvalidArgument(f"An interval needs low < high; got {self.low}, {self.high}.")

    @property
    def constraint(self) -> Constraint:
        """The interval."""
        return constraints.interval(self.low, self.high)


@dataclass(frozen=True)
class Simplex(Support):
    """Vectors of positive numbers that sum to one along the last axis, by stick-breaking."""

    @property
    def constraint(self) -> Constraint:
        """The simplex."""
        return constraints.simplex


@dataclass(frozen=True)
class Whole(Support):
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

    @property
    def constraint(self) -> Constraint:
        """The whole numbers of the range."""
        return constraints.integer_interval(self.low, self.high)

    # By hand: NumPyro has no map onto whole numbers. They are rounded, without a Jacobian.
    def size(self, shape: tuple[int, ...]) -> int:
        """The number of entries."""
        return prod(shape)

    def forward(self, flat: jax.Array, shape: tuple[int, ...]) -> tuple[jax.Array, jax.Array]:
        """The nearest whole numbers in the range, and zero."""
        value = jnp.clip(jnp.rint(flat), self.low, self.high).astype(jnp.int32)
        return value.reshape(shape), jnp.zeros((), flat.dtype)

    def inverse(self, value: jax.Array) -> jax.Array:
        """The same numbers, flat."""
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
    support: Support = field(default_factory=Real)


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
    constants: PyTree = None
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

    def start(self, values: Mapping[str, ArrayLike]) -> jax.Array:
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
        """None: the functions may use any column."""
        return

    @property
    def labels(self) -> Labels:
        """Empty: entries of arrays are numbered."""
        return {}

    @property
    def searched(self) -> tuple[object, ...]:
        """The functions and supports, to be searched for captured data."""
        supports = [parameter.support for parameter in self.parameters.values()]
        return (self.log_prior, self.log_likelihood, self.simulate, supports)

    @property
    def discrete(self) -> Discrete:
        """Coordinates of the vector that hold whole numbers, with their limits."""
        return tuple(
            Held(i, parameter.support.low, parameter.support.high, name)
            for name, parameter, start, stop in self._layout
            if isinstance(parameter.support, Whole)
            for i in range(start, stop)
        )

    def constrain(self, vector: jax.Array, constants: PyTree = None) -> Parameters:  # noqa: ARG002
        """Parameters on their supports."""
        return self._constrain(vector)[0]

    def _constrain(self, vector: jax.Array) -> tuple[Parameters, jax.Array]:
        values, slope = {}, jnp.zeros((), vector.dtype)
        for name, parameter, start, stop in self._layout:
            values[name], log_det = parameter.support.forward(vector[start:stop], parameter.shape)
            slope = slope + log_det
        return values, slope

    def _extra(self, constants: PyTree) -> tuple[PyTree, ...]:
        return () if self.constants is None else (constants,)

    def prior_density(self, vector: jax.Array, constants: PyTree = None) -> jax.Array:
        """Log prior of the unconstrained vector, with the Jacobian of its map."""
        params, slope = self._constrain(vector)
        return self.log_prior(params, *self._extra(constants)) + slope

    def row_density(
        self, vector: jax.Array, row: Row, constants: PyTree = None, outcomes: Outcomes = None
    ) -> jax.Array:
        """Log-likelihood of one row at the unconstrained vector."""
        row = {**row, **(outcomes or {})}
        return self.log_likelihood(self.constrain(vector), row, *self._extra(constants))

    @property
    def simulates(self) -> bool:
        """Whether the model has a function that draws outcomes."""
        return self.simulate is not None

    def row_outcomes(
        self, key: jax.Array, vector: jax.Array, row: Row, constants: PyTree = None
    ) -> Outcomes:
        """A draw of the row's outcomes, by column."""
        if self.simulate is None:
            raise InvalidArgument(
                "The model cannot draw outcomes; pass Model(simulate=...), a function of a key, "
                "parameters and a row that draws them."
            )
        params = self.constrain(jax.lax.stop_gradient(vector))
        found = self.simulate(key, params, row, *self._extra(constants))
        return like_columns(found, row)

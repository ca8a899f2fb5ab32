"""Models as plain JAX functions: a prior over named parameters and a log-likelihood of one row.

Parameters with their supports are laid out in one unconstrained vector, which is what inference works with.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from math import prod
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike
from numpyro.distributions import Distribution, biject_to, constraints
from numpyro.distributions.constraints import Constraint

from tacit import _validate
from tacit.errors import InvalidArgument
from tacit.models.base import (
    DiscreteCoordinate,
    DiscreteCoordinates,
    Labels,
    Outcomes,
    Parameters,
    PyTree,
    Row,
    RowByRow,
    broadcast_start,
    cast_to_columns,
    check_finite_start,
    check_start_names,
)
from tacit.models.interpretation import Interpretation


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
        check_start_names(values, self.parameters)
        vector = jnp.zeros(self.dimension)
        for name, parameter, start, stop in self._layout:
            if name in values:
                value = broadcast_start(name, values[name], parameter.shape)
                vector = vector.at[start:stop].set(parameter.support.inverse(value))
        return check_finite_start(vector)

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
    def discrete(self) -> DiscreteCoordinates:
        """Coordinates of the vector that hold whole numbers, with their limits."""
        return tuple(
            DiscreteCoordinate(i, parameter.support.low, parameter.support.high, name)
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
        return cast_to_columns(found, row)


Shape = tuple[int, ...]
Limits = tuple[int, int] | None


class ParameterSlice(NamedTuple):
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
class AdaptedModel:
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
    places: Mapping[str, ParameterSlice]
    derived: tuple[str, ...] = ()
    predictors: tuple[str, ...] = ()
    made_up: Mapping[str, Any]
    labels: Mapping[str, Sequence[Sequence[str]]] = field(default_factory=dict)
    reading: Interpretation | None = None

    @property
    def dimension(self) -> int:
        """Length of the unconstrained vector."""
        return max(place.stop for place in self.places.values())

    @property
    def names(self) -> tuple[str, ...]:
        """Parameters in the order of the model, then what it derives from them."""
        return (*self.places, *self.derived)

    @property
    def discrete(self) -> DiscreteCoordinates:
        """Coordinates of the vector that hold whole numbers, with their limits."""
        return tuple(
            DiscreteCoordinate(i, *place.limits, name)
            for name, place in self.places.items()
            if place.limits is not None
            for i in range(place.start, place.stop)
        )


def unconstrained_shape(fn: Distribution) -> Shape:
    """Shape of the unconstrained numbers of a latent."""
    shape: Shape = biject_to(fn.support).inverse_shape(fn.shape())
    return shape


def support_limits(name: str, fn: Distribution) -> tuple[int, int]:
    """First and last position in the list of values of a discrete latent."""
    if not fn.has_enumerate_support or fn.event_shape:
        raise InvalidArgument(
            f"Latent {name!r} is discrete and shared by all rows, and its values cannot be listed; "
            "use a distribution with a public lowest and highest value, such as DiscreteUniform."
        )
    return 0, fn.enumerate_support(expand=False).shape[0] - 1


def layout(latents: Mapping[str, tuple[Shape, Limits]]) -> dict[str, ParameterSlice]:
    """Consecutive places, in the given order, from shapes and limits."""
    places, start = {}, 0
    for name, (shape, bounds) in latents.items():
        places[name] = ParameterSlice(start, start + prod(shape), shape, bounds)
        start += prod(shape)
    return places


@lru_cache(maxsize=64)
def classification_model(features: int, classes: int, scale: float) -> Model:
    """Logistic regression for two classes, softmax regression for more."""
    scale = _validate.positive("prior_scale", scale)
    # With two classes there is one score, of the second class.
    scores = () if classes == 2 else (classes,)

    def log_likelihood(params: Parameters, row: Row) -> jax.Array:
        score = _linear_predictor(params, row)
        if classes == 2:
            return jnp.asarray(row["target"] * score - jnp.logaddexp(0.0, score))
        return jax.nn.log_softmax(score)[row["target"]]

    def simulate(key: jax.Array, params: Parameters, row: Row) -> dict[str, jax.Array]:
        score = _linear_predictor(params, row)
        drawn = jax.random.bernoulli if classes == 2 else jax.random.categorical
        return {"target": drawn(key, jax.nn.sigmoid(score) if classes == 2 else score)}

    return Model(
        parameters={
            "intercept": Parameter(scores),
            "coefficients": Parameter((features, *scores)),
        },
        log_prior=lambda params: (
            _log_normal_prior(params["intercept"], scale)
            + _log_normal_prior(params["coefficients"], scale)
        ),
        log_likelihood=log_likelihood,
        simulate=simulate,
    )


@lru_cache(maxsize=64)
def regression_model(features: int, scale: float) -> Model:
    """Linear regression with normal errors. Their standard deviation has a half-normal prior.

    Intercept and coefficients are in units of this standard deviation, and ``root`` is its inverse.
    The length of a row's gradient then hardly depends on it. In the usual form gradients get longer
    as errors get smaller, and clipping would halve the estimated standard deviation. `unscale_regression_draws`
    converts draws to the usual form.
    """
    scale = _validate.positive("prior_scale", scale)

    def log_prior(params: Parameters) -> jax.Array:
        root = params["root"]
        shared = _log_normal_prior(params["intercept"] / root, scale) + _log_normal_prior(
            params["coefficients"] / root, scale
        )
        # The Jacobian of the map to these units is root^-1 for each weight and root^-2 for root.
        return shared + _log_normal_prior(1 / root, 1.0) - (features + 3) * jnp.log(root)

    def log_likelihood(params: Parameters, row: Row) -> jax.Array:
        residual = params["root"] * row["target"] - _linear_predictor(params, row)
        return jnp.asarray(jnp.log(params["root"]) - 0.5 * residual**2)

    def simulate(key: jax.Array, params: Parameters, row: Row) -> dict[str, jax.Array]:
        return {
            "target": (_linear_predictor(params, row) + jax.random.normal(key)) / params["root"]
        }

    return Model(
        parameters={
            "intercept": Parameter(),
            "coefficients": Parameter((features,)),
            "root": Parameter(support=Positive()),
        },
        log_prior=log_prior,
        log_likelihood=log_likelihood,
        simulate=simulate,
    )


def unscale_regression_draws(draws: Mapping[str, Any]) -> dict[str, Any]:
    """Draws of `regression_model` as intercept, coefficients and the standard deviation of errors."""
    root = np.asarray(draws["root"], np.float64)
    return {
        "intercept": draws["intercept"] / root,
        "coefficients": draws["coefficients"] / root[:, None],
        "noise": 1 / root,
    }


def _linear_predictor(params: Parameters, row: Row) -> jax.Array:
    return jnp.asarray(params["intercept"] + row["features"] @ params["coefficients"])


def _log_normal_prior(values: jax.Array, scale: float) -> jax.Array:
    return -0.5 * jnp.sum((values / scale) ** 2)

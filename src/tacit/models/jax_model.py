"""Models as plain JAX functions: a prior over named parameters and a log-likelihood of one row.

Parameters with their supports are laid out in one unconstrained vector, which is what inference works with.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from math import prod
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray
from numpyro.distributions import Distribution, biject_to, constraints
from numpyro.distributions.constraints import Constraint

from tacit import _validate
from tacit._precision import to_32_bits
from tacit._typing import ArrayTree, Floats
from tacit.errors import InvalidArgument
from tacit.models.base import (
    DiscreteCoordinate,
    Labels,
    Outcomes,
    Parameters,
    PublicArrays,
    Row,
    UnitModel,
    broadcast_start,
    cast_to_columns,
    check_finite_start,
    check_start_names,
    simulate_each_row,
    sum_over_rows,
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
class Model:
    """A model in plain JAX: a log-prior and a log-likelihood of one row.

    The functions must not hold data; pass public arrays as ``constants``.

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
    constants: ArrayTree = None
    simulate: Callable[..., Mapping[str, jax.Array]] | None = None

    declared_public: ClassVar[tuple[str, ...]] = ("constants",)

    @cached_property
    def unit_model(self) -> UnitModel:
        """The model as inference takes it."""
        slices, names = self._slices, tuple(self.parameters)
        return UnitModel(
            names=names,
            parameters=names,
            dimension=slices[names[-1]].stop,
            columns=None,
            constrain=self._constrain,
            unconstrain=self._unconstrain,
            log_prior=self._log_prior,
            log_likelihood=sum_over_rows(self._row_log_likelihood),
            simulate=None if self.simulate is None else simulate_each_row(self._simulate_row),
            constants=to_32_bits(self.constants),
            discrete=tuple(
                DiscreteCoordinate(i, parameter.support.low, parameter.support.high, name)
                for name, parameter in self.parameters.items()
                if isinstance(parameter.support, Whole)
                for i in range(slices[name].start, slices[name].stop)
            ),
            user_functions=(
                self.log_prior,
                self.log_likelihood,
                self.simulate,
                [parameter.support for parameter in self.parameters.values()],
            ),
            source=self,
        )

    @cached_property
    def _slices(self) -> dict[str, slice]:
        """The coordinates of each parameter in the unconstrained vector."""
        slices, start = {}, 0
        for name, parameter in self.parameters.items():
            stop = start + parameter.support.size(parameter.shape)
            slices[name], start = slice(start, stop), stop
        if start == 0:
            raise InvalidArgument("A model needs at least one parameter.")
        return slices

    def _unconstrain(self, values: Mapping[str, ArrayLike]) -> jax.Array:
        check_start_names(values, self.parameters)
        vector = jnp.zeros(self.unit_model.dimension)
        for name, parameter in self.parameters.items():
            if name in values:
                value = broadcast_start(name, values[name], parameter.shape)
                vector = vector.at[self._slices[name]].set(parameter.support.inverse(value))
        return check_finite_start(vector)

    def _constrain(self, vector: jax.Array, constants: ArrayTree = None) -> Parameters:  # noqa: ARG002
        return self._constrain_with_log_det(vector)[0]

    def _constrain_with_log_det(self, vector: jax.Array) -> tuple[Parameters, jax.Array]:
        values, log_det = {}, jnp.zeros((), vector.dtype)
        for name, parameter in self.parameters.items():
            flat = vector[self._slices[name]]
            values[name], own = parameter.support.forward(flat, parameter.shape)
            log_det = log_det + own
        return values, log_det

    def _constants_argument(self, constants: ArrayTree) -> tuple[ArrayTree, ...]:
        """The last argument of the user's functions, if there are constants."""
        return () if self.constants is None else (constants,)

    def _log_prior(self, vector: jax.Array, constants: ArrayTree = None) -> jax.Array:
        params, log_det = self._constrain_with_log_det(vector)
        return self.log_prior(params, *self._constants_argument(constants)) + log_det

    def _row_log_likelihood(
        self, vector: jax.Array, row: Row, constants: ArrayTree, outcomes: Outcomes
    ) -> jax.Array:
        row = {**row, **(outcomes or {})}
        constants_argument = self._constants_argument(constants)
        return self.log_likelihood(self._constrain(vector), row, *constants_argument)

    def _simulate_row(
        self, key: jax.Array, vector: jax.Array, row: Row, constants: ArrayTree
    ) -> dict[str, jax.Array]:
        assert self.simulate is not None
        params = self._constrain(jax.lax.stop_gradient(vector))
        drawn = self.simulate(key, params, row, *self._constants_argument(constants))
        return cast_to_columns(drawn, row)


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

    def value(self, fn: Distribution, part: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The parameter's value from its part of the vector, and the log-determinant of the map to it."""
        flat = part.reshape(self.shape)
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
    """What models adapted from NumPyro and PyMC have in common.

    Attributes:
        columns: Columns that the model takes.
        arrays: Public arrays that the user declared, by name.
        slices: The part of the unconstrained vector that holds each parameter.
        derived: Names of what the model computes from its parameters.
        predictors: Columns that a prediction for a new row needs.
        dummy_row: One dummy row, public.
        labels: Names for the entries of array parameters, axis by axis.
        interpretation: How to interpret the parameters, if the model says so.
    """

    columns: tuple[str, ...]
    arrays: PublicArrays
    slices: Mapping[str, ParameterSlice]
    derived: tuple[str, ...] = ()
    predictors: tuple[str, ...] = ()
    dummy_row: PublicArrays
    labels: Labels = field(default_factory=dict)
    interpretation: Interpretation | None = None

    @property
    def dimension(self) -> int:
        """Length of the unconstrained vector."""
        return max(each.stop for each in self.slices.values())

    @property
    def names(self) -> tuple[str, ...]:
        """Parameters in the order of the model, then what it derives from them."""
        return (*self.slices, *self.derived)

    def make_unit_model(
        self,
        *,
        constrain: Callable[..., Parameters],
        unconstrain: Callable[[Mapping[str, ArrayLike]], jax.Array],
        log_prior: Callable[..., jax.Array],
        log_likelihood: Callable[..., jax.Array],
        simulate: Callable[..., Mapping[str, jax.Array]] | None,
    ) -> UnitModel:
        """The model as inference takes it, with these functions."""
        return UnitModel(
            names=self.names,
            parameters=tuple(self.slices),
            dimension=self.dimension,
            columns=self.columns,
            constrain=constrain,
            unconstrain=unconstrain,
            log_prior=log_prior,
            log_likelihood=log_likelihood,
            simulate=simulate,
            predictors=self.predictors,
            dummy_row=self.dummy_row,
            arrays=self.arrays,
            labels=self.labels,
            discrete=tuple(
                DiscreteCoordinate(i, *each.limits, name)
                for name, each in self.slices.items()
                if each.limits is not None
                for i in range(each.start, each.stop)
            ),
            interpretation=self.interpretation,
            source=self,
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
    """Consecutive slices of the vector, in the given order, from shapes and limits."""
    slices, start = {}, 0
    for name, (shape, bounds) in latents.items():
        slices[name] = ParameterSlice(start, start + prod(shape), shape, bounds)
        start += prod(shape)
    return slices


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


def unscale_regression_draws(draws: Mapping[str, NDArray[np.floating]]) -> dict[str, Floats]:
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

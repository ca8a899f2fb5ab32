"""Conjugate models with normal outcomes: a mean and a variance, and linear regression.

A normal outcome is a regression on nothing but an intercept, so both are one model: with
v = (1, predictors, outcome), every column scaled to [-1, 1] by its bounds, a row's statistic
is the products of entries of v.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tacit import _validate
from tacit.errors import InvalidArgument
from tacit.models.base import Parameters, Prediction, Row
from tacit.models.model import Parameter, Positive
from tacit.models.statistic import Conjugate, log_normal_density

Array = NDArray[np.float64]


class LinearPrior(NamedTuple):
    """The prior of intercept and coefficients, for columns scaled to [-1, 1].

    They are normal with ``mean`` and covariance ``variance`` times the inverse of
    ``precision``; the variance is known, or inverse gamma with ``shape`` and ``scale``.
    """

    mean: Array
    precision: Array
    shape: float
    scale: float
    variance: float | None


@dataclass(frozen=True, kw_only=True)
class Linear(Conjugate):
    """A normal outcome that is linear in the predictors, of which there may be none."""

    variance_shape: float = 2.0
    variance_scale: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        _validate.positive("variance_shape", self.variance_shape)
        _validate.positive("variance_scale", self.variance_scale)

    @property
    @abstractmethod
    def known_variance(self) -> float | None:
        """The outcome's variance around its mean, if it is known."""

    @abstractmethod
    def _coefficient_prior(self) -> tuple[Array, Array]:
        """Mean and precision of intercept and coefficients, in the columns' units.

        The precision is in units of one over the variance, unless that is known.
        """

    @abstractmethod
    def named(self, weights: Any, variance: Any) -> Parameters:
        """Parameters by name, of weights [..., intercept and coefficients] and a variance."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Predictors, then the outcome."""
        return (*self.predictors, self._outcome)

    @property
    @abstractmethod
    def _outcome(self) -> str: ...

    @property
    def products(self) -> tuple[tuple[int, int], ...]:
        """Which products of entries of v are released; the first is the number of rows."""
        size = len(self.columns) + 1
        pairs = [(i, j) for i in range(size) for j in range(i, size)]
        # A known variance needs no squares of the outcome.
        return tuple(pairs if self.known_variance is None else pairs[:-1])

    @property
    def statistic_size(self) -> int:
        """How many products there are."""
        return len(self.products)

    def statistic(self, row: Row, constants: Any) -> jax.Array:
        """The products."""
        low, high = constants["low"], constants["high"]
        values = [
            (jnp.clip(row[name], low[i], high[i]) - low[i]) / (high[i] - low[i]) * 2 - 1
            for i, name in enumerate(self.columns)
        ]
        entries = [jnp.ones(()), *values]
        return jnp.stack([entries[i] * entries[j] for i, j in self.products])

    def longest(self, order: int) -> float:
        """Every product is from -1 to 1."""
        return float(len(self.products) ** (1 / order))

    def _scaling(self) -> tuple[Array, Array, float]:
        """Weights in the columns' units are matrix @ scaled weights + shift; the last is a unit."""
        bounds = np.asarray(self._known_bounds(), np.float64)
        middle, half = bounds.mean(axis=1), np.diff(bounds, axis=1)[:, 0] / 2
        matrix = np.diag(half[-1] / np.append(1.0, half[:-1]))
        matrix[0, 1:] = -np.diag(matrix)[1:] * middle[:-1]
        shift = np.zeros(len(matrix))
        shift[0] = middle[-1]
        return matrix, shift, float(half[-1])

    def scaled_prior(self) -> LinearPrior:
        """The prior for scaled columns."""
        matrix, shift, unit = self._scaling()
        mean, precision = self._coefficient_prior()
        known = self.known_variance
        per_variance = unit**2 if known is None else unit**2 / known
        return LinearPrior(
            mean=np.asarray(np.linalg.solve(matrix, mean - shift), np.float64),
            precision=matrix.T @ precision @ matrix / per_variance,
            shape=self.variance_shape,
            scale=self.variance_scale / unit**2,
            variance=None if known is None else known / unit**2,
        )

    def in_units(self, weights: Any, variance: Any) -> Parameters:
        """Draws of scaled weights and variances as parameters, in the columns' units."""
        matrix, shift, unit = self._scaling()
        return self.named(weights @ matrix.T + shift, variance * unit**2)


def _log_inverse_gamma(value: Any, shape: float, scale: float) -> Any:
    return -(shape + 1) * jnp.log(value) - scale / value


@dataclass(frozen=True)
class Normal(Linear):
    """A normal column, with a normal-inverse-gamma prior on its ``mean`` and ``variance``.

    The variance is inverse gamma with ``variance_shape`` and ``variance_scale``; given it, the
    mean is normal around ``mean``, as sure as the average of ``mean_rows`` rows.
    """

    column: str
    _: KW_ONLY
    mean: float = 0.0
    mean_rows: float = 1.0

    kinds: ClassVar[tuple[str, ...]] = ("number", "count")

    def __post_init__(self) -> None:
        super().__post_init__()
        _validate.finite("mean", self.mean)
        _validate.positive("mean_rows", self.mean_rows)

    @property
    def _outcome(self) -> str:
        return self.column

    @property
    def known_variance(self) -> None:
        """Never known."""
        return

    @property
    def parameters(self) -> Mapping[str, Parameter]:
        """Mean and variance."""
        return {"mean": Parameter(), "variance": Parameter((), Positive())}

    def _coefficient_prior(self) -> tuple[Array, Array]:
        return np.array([self.mean]), np.array([[self.mean_rows]])

    def named(self, weights: Any, variance: Any) -> Parameters:
        """Mean and variance."""
        return {"mean": weights[..., 0], "variance": variance}

    def log_prior(self, params: Parameters, constants: Any) -> jax.Array:  # noqa: ARG002
        """Normal-inverse-gamma, up to a constant."""
        variance = params["variance"]
        return jnp.asarray(
            _log_inverse_gamma(variance, self.variance_shape, self.variance_scale)
            + log_normal_density(params["mean"], self.mean, variance / self.mean_rows)
        )

    def log_likelihood(self, params: Parameters, row: Row, constants: Any) -> jax.Array:
        """Normal."""
        value = jnp.clip(row[self.column], constants["low"][0], constants["high"][0])
        return log_normal_density(value, params["mean"], params["variance"])

    def predict(
        self,
        key: jax.Array,
        params: Parameters,
        row: Row,  # noqa: ARG002
        constants: Any = None,  # noqa: ARG002
    ) -> dict[str, Prediction]:
        """Another value."""
        return _normal(key, self.column, params["mean"], params["variance"])


@dataclass(frozen=True)
class LinearRegression(Linear):
    """An outcome that is linear in ``predictors``, with normal noise.

    Parameters are the ``intercept``, ``coefficients``, and the ``variance`` of the noise unless
    ``noise_sd`` says what it is. An unknown variance is inverse gamma with ``variance_shape``
    and ``variance_scale``. ``intercept_sd`` and ``coefficient_sd`` are standard deviations of
    the priors around zero: in units of the noise's standard deviation if that is unknown, as a
    conjugate prior has it, or else in the columns' own units.
    """

    outcome: str
    predictors: Sequence[str] = ()
    _: KW_ONLY
    noise_sd: float | None = None
    intercept_sd: float = 1.0
    coefficient_sd: float = 1.0

    def __post_init__(self) -> None:
        if isinstance(self.predictors, str) or not self.predictors:
            raise InvalidArgument("predictors must be a list of one or more columns.")
        object.__setattr__(self, "predictors", tuple(self.predictors))  # a list has no hash
        if len(set(self.columns)) < len(self.columns):
            raise InvalidArgument("The outcome and the predictors must be different columns.")
        super().__post_init__()
        _validate.positive("intercept_sd", self.intercept_sd)
        _validate.positive("coefficient_sd", self.coefficient_sd)
        if self.noise_sd is not None:
            _validate.positive("noise_sd", self.noise_sd)

    @property
    def _outcome(self) -> str:
        return self.outcome

    @property
    def known_variance(self) -> float | None:
        """The noise's, if it was given."""
        return None if self.noise_sd is None else self.noise_sd**2

    @property
    def parameters(self) -> Mapping[str, Parameter]:
        """Intercept, coefficients, and the variance if it is unknown."""
        free = {"intercept": Parameter(), "coefficients": Parameter((len(self.predictors),))}
        if self.known_variance is None:
            free["variance"] = Parameter((), Positive())
        return free

    def _coefficient_prior(self) -> tuple[Array, Array]:
        sds = np.array([self.intercept_sd] + [self.coefficient_sd] * len(self.predictors))
        return np.zeros(len(sds)), np.diag(sds**-2.0)

    def named(self, weights: Any, variance: Any) -> Parameters:
        """Intercept, coefficients, and the variance if it is unknown."""
        found = {"intercept": weights[..., 0], "coefficients": weights[..., 1:]}
        return found if self.known_variance is not None else {**found, "variance": variance}

    def _variance(self, params: Parameters) -> Any:
        known = self.known_variance
        return params["variance"] if known is None else known

    def log_prior(self, params: Parameters, constants: Any) -> jax.Array:  # noqa: ARG002
        """Normal, or normal-inverse-gamma, up to a constant."""
        variance: Any = 1.0
        density = jnp.zeros(())
        if self.known_variance is None:
            variance = params["variance"]
            density += _log_inverse_gamma(variance, self.variance_shape, self.variance_scale)
        density += log_normal_density(params["intercept"], 0.0, variance * self.intercept_sd**2)
        slopes = params["coefficients"]
        return density + log_normal_density(slopes, 0.0, variance * self.coefficient_sd**2).sum()

    def _mean(self, params: Parameters, row: Row, constants: Any) -> jax.Array:
        low, high = constants["low"], constants["high"]
        clamped = [jnp.clip(row[n], low[i], high[i]) for i, n in enumerate(self.predictors)]
        return params["intercept"] + jnp.dot(jnp.stack(clamped), params["coefficients"])

    def log_likelihood(self, params: Parameters, row: Row, constants: Any) -> jax.Array:
        """Normal around the line."""
        value = jnp.clip(row[self.outcome], constants["low"][-1], constants["high"][-1])
        return log_normal_density(value, self._mean(params, row, constants), self._variance(params))

    def predict(
        self, key: jax.Array, params: Parameters, row: Row, constants: Any = None
    ) -> dict[str, Prediction]:
        """An outcome for these predictors."""
        mean = self._mean(params, row, self.constants if constants is None else constants)
        return _normal(key, self.outcome, mean, self._variance(params))


def _normal(key: jax.Array, name: str, mean: Any, variance: Any) -> dict[str, Prediction]:
    draw = mean + jnp.sqrt(variance) * jax.random.normal(key)
    return {name: Prediction(draw, jnp.asarray(mean), None)}

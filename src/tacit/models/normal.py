"""Conjugate models with normal outcomes: one normal column, and linear regression."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from tacit import _validate
from tacit.errors import InvalidArgument
from tacit.models.base import Labels, Parameters, Prediction, Row
from tacit.models.linear import Linear
from tacit.models.model import Parameter, Positive
from tacit.models.natural import Vector
from tacit.models.statistic import Constants, OneColumn, log_normal_density


def _log_inverse_gamma(value: jax.Array, shape: float, scale: float) -> jax.Array:
    """Log density of an inverse gamma distribution, up to a constant."""
    return -(shape + 1) * jnp.log(value) - scale / value


@dataclass(frozen=True)
class Normal(OneColumn, Linear):
    """A normal column, with a normal-inverse-gamma prior on its ``mean`` and ``variance``.

    Args:
        column: The numeric column.
        mean: Prior mean of the mean.
        mean_rows: Number of rows that the prior of the mean is worth: given the variance, the mean
            has prior variance ``variance / mean_rows``.
        variance_shape: Shape of the inverse gamma prior of the variance.
        variance_scale: Scale of the inverse gamma prior of the variance.
        bounds: ``((low, high),)``; or leave it to a schema.
    """

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
        """The variance is never known."""
        return

    @property
    def parameters(self) -> Mapping[str, Parameter]:
        """Mean and variance."""
        return {"mean": Parameter(), "variance": Parameter((), Positive())}

    def _coefficient_prior(self) -> tuple[Vector, Vector]:
        return np.array([self.mean]), np.array([[self.mean_rows]])

    def named(self, weights: Vector, variance: Vector) -> dict[str, Vector]:
        """Mean and variance."""
        return {"mean": weights[..., 0], "variance": variance}

    def log_prior(self, params: Parameters, constants: Constants) -> jax.Array:  # noqa: ARG002
        """Log density of the normal-inverse-gamma prior, up to a constant."""
        variance = params["variance"]
        density = _log_inverse_gamma(variance, self.variance_shape, self.variance_scale)
        return density + log_normal_density(params["mean"], self.mean, variance / self.mean_rows)

    def log_likelihood(self, params: Parameters, row: Row, constants: Constants) -> jax.Array:
        """Log density of the value."""
        (value,) = self._clamped(row, constants)
        return log_normal_density(value, params["mean"], params["variance"])

    def outcome_of(self, key: jax.Array, params: Parameters) -> Prediction:
        """A value."""
        return _normal(key, params["mean"], params["variance"])


@dataclass(frozen=True)
class LinearRegression(Linear):
    """A numeric outcome that is linear in ``predictors``, with normal errors.

    Parameters are the ``intercept``, the ``coefficients``, and the ``variance`` of the errors unless
    ``noise_sd`` is given.

    Args:
        outcome: The column of the outcome.
        predictors: The columns of the predictors.
        noise_sd: Standard deviation of the errors, if it is known.
        intercept_sd: Prior standard deviation of the intercept, around zero. With an unknown
            variance it is in units of the errors' standard deviation, as conjugate priors are.
        coefficient_sd: Prior standard deviation of the coefficients, in the same units.
        variance_shape: Shape of the inverse gamma prior of an unknown variance.
        variance_scale: Scale of the inverse gamma prior of an unknown variance.
        bounds: ``(low, high)`` for each predictor, then for the outcome; or leave it to a schema.
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
        """The variance of the errors, if it was given."""
        return None if self.noise_sd is None else self.noise_sd**2

    @property
    def parameters(self) -> Mapping[str, Parameter]:
        """Intercept, coefficients, and the variance if it is unknown."""
        free = {"intercept": Parameter(), "coefficients": Parameter((len(self.predictors),))}
        if self.known_variance is None:
            free["variance"] = Parameter((), Positive())
        return free

    def _coefficient_prior(self) -> tuple[Vector, Vector]:
        sds = np.array([self.intercept_sd] + [self.coefficient_sd] * len(self.predictors))
        return np.zeros(len(sds)), np.diag(sds**-2.0)

    @property
    def labels(self) -> Labels:
        """Coefficients are named after their columns."""
        return {"coefficients": (tuple(self.predictors),)}

    def named(self, weights: Vector, variance: Vector) -> dict[str, Vector]:
        """Intercept, coefficients, and the variance if it is unknown."""
        found = {"intercept": weights[..., 0], "coefficients": weights[..., 1:]}
        return found if self.known_variance is not None else {**found, "variance": variance}

    def _variance(self, params: Parameters) -> jax.Array:
        """The variance of the errors, a parameter or known."""
        known = self.known_variance
        return params["variance"] if known is None else jnp.asarray(known)

    def log_prior(self, params: Parameters, constants: Constants) -> jax.Array:  # noqa: ARG002
        """Log density of the normal or normal-inverse-gamma prior, up to a constant."""
        variance, density = jnp.ones(()), jnp.zeros(())
        if self.known_variance is None:
            variance = params["variance"]
            density += _log_inverse_gamma(variance, self.variance_shape, self.variance_scale)
        density += log_normal_density(params["intercept"], 0.0, variance * self.intercept_sd**2)
        slopes = params["coefficients"]
        return density + log_normal_density(slopes, 0.0, variance * self.coefficient_sd**2).sum()

    def _mean(self, params: Parameters, row: Row, constants: Constants) -> jax.Array:
        """The mean of the outcome."""
        low, high = constants["low"], constants["high"]
        clamped = [jnp.clip(row[n], low[i], high[i]) for i, n in enumerate(self.predictors)]
        return params["intercept"] + jnp.dot(jnp.stack(clamped), params["coefficients"])

    def log_likelihood(self, params: Parameters, row: Row, constants: Constants) -> jax.Array:
        """Log density of the outcome."""
        value = self._clamped(row, constants)[-1]
        return log_normal_density(value, self._mean(params, row, constants), self._variance(params))

    def predict(
        self, key: jax.Array, params: Parameters, row: Row, constants: Constants | None = None
    ) -> dict[str, Prediction]:
        """A prediction of the outcome for these predictors."""
        mean = self._mean(params, row, self.constants if constants is None else constants)
        return {self.outcome: _normal(key, mean, self._variance(params))}


def _normal(key: jax.Array, mean: jax.Array, variance: jax.Array) -> Prediction:
    """A prediction of a normal outcome."""
    draw = mean + jnp.sqrt(variance) * jax.random.normal(key)
    return Prediction(draw, jnp.asarray(mean), None)

"""What conjugate models with normal outcomes share (`tacit.models.normal`).

A normal column is a regression with only an intercept, so both share their code. With v = (1, predictors,
outcome), and every column scaled to [-1, 1] by its bounds, the statistic of a row has the products of
entries of v.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tacit import _validate
from tacit.models.base import Row
from tacit.models.gaussians import FullGaussian, NormalInverseGamma
from tacit.models.matrices import triangle
from tacit.models.natural import Vector
from tacit.models.statistic import Conjugate, Constants


class LinearPrior(NamedTuple):
    """The prior of intercept and coefficients, for columns scaled to [-1, 1].

    They are normal with ``mean`` and covariance ``variance`` times the inverse of ``precision``. The
    variance is known, or inverse gamma with ``shape`` and ``scale``.
    """

    mean: Vector
    precision: Vector
    shape: float
    scale: float
    variance: float | None


@dataclass(frozen=True, kw_only=True)
class Linear(Conjugate):
    """A normal outcome that is linear in the predictors, if there are any."""

    variance_shape: float = 2.0
    variance_scale: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        _validate.positive("variance_shape", self.variance_shape)
        _validate.positive("variance_scale", self.variance_scale)

    @property
    @abstractmethod
    def known_variance(self) -> float | None:
        """The variance of the outcome around its mean, if it is known."""

    @abstractmethod
    def _coefficient_prior(self) -> tuple[Vector, Vector]:
        """Mean and precision of intercept and coefficients, in the columns' units.

        The precision is relative to one over the variance, unless the variance is known.
        """

    @abstractmethod
    def named(self, weights: Vector, variance: Vector) -> dict[str, Vector]:
        """Parameters by name, from weights [..., intercept and coefficients] and a variance."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Predictors, then the outcome."""
        return (*self.predictors, self._outcome)

    @property
    @abstractmethod
    def _outcome(self) -> str: ...

    @property
    def products(self) -> tuple[tuple[int, int], ...]:
        """The released products of entries of v. The first sums to the number of rows."""
        size = len(self.columns) + 1
        pairs = [(i, j) for i in range(size) for j in range(i, size)]
        # With a known variance the square of the outcome is not needed.
        return tuple(pairs if self.known_variance is None else pairs[:-1])

    @property
    def statistic_size(self) -> int:
        """The number of products."""
        return len(self.products)

    def statistic(self, row: Row, constants: Constants) -> jax.Array:
        """The products."""
        low, high = constants["low"], constants["high"]
        values = [
            (value - low[i]) / (high[i] - low[i]) * 2 - 1
            for i, value in enumerate(self._clamped(row, constants))
        ]
        entries = [jnp.ones(()), *values]
        return jnp.stack([entries[i] * entries[j] for i, j in self.products])

    def longest(self, order: int) -> float:
        """A bound for products that lie between -1 and 1."""
        return float(len(self.products) ** (1 / order))

    @property
    def family(self) -> FullGaussian | NormalInverseGamma:
        """Normal distributions of intercept and coefficients, with the variance if it is unknown."""
        size = len(self.predictors) + 1
        return NormalInverseGamma(size) if self.known_variance is None else FullGaussian(size)

    @property
    def natural_prior(self) -> Vector:
        """The prior in the columns' units."""
        (mean, precision), family = self._coefficient_prior(), self.family
        if isinstance(family, FullGaussian):
            return family.join(precision, precision @ mean)
        return family.from_prior(mean, precision, self.variance_shape, self.variance_scale)

    def natural_statistic(self, row: Row, constants: Constants) -> jax.Array:
        """Products of intercept, predictors and outcome."""
        v = jnp.stack([jnp.ones(()), *self._clamped(row, constants)])
        known = self.known_variance
        entries = v if known is None else v[:-1]
        rows, columns, scale = triangle(len(entries))
        products = entries[rows] * entries[columns] * jnp.asarray(scale, v.dtype)
        if known is None:
            return jnp.append(products, 0.5)
        return jnp.concatenate([products, entries * v[-1]]) / known

    def from_draws(self, drawn: Vector) -> dict[str, Vector]:
        """Intercept and coefficients, and the variance if it is unknown."""
        size = len(self.predictors) + 1
        return self.named(drawn[:, :size], drawn[:, -1])

    def _clamped(self, row: Row, constants: Constants) -> list[jax.Array]:
        """The values of the columns, moved into their bounds."""
        low, high = constants["low"], constants["high"]
        return [
            jnp.clip(jnp.asarray(row[name]) * 1.0, low[i], high[i])
            for i, name in enumerate(self.columns)
        ]

    def _scaling(self) -> tuple[Vector, Vector, float]:
        """Matrix, shift and unit: weights in the columns' units are matrix @ scaled weights + shift."""
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

    def in_units(self, weights: Vector, variance: Vector) -> dict[str, Vector]:
        """Parameters in the columns' units, from draws of scaled weights and variances."""
        matrix, shift, unit = self._scaling()
        return self.named(weights @ matrix.T + shift, variance * unit**2)

"""Gaussian families by natural parameters, with known or unknown variance of the outcome.

>>> family = DiagonalGaussian(1)
>>> prior = family.from_moments([0.0], [25.0])
>>> family.mean(prior + [4.0, 8.0])  # a factor of precision 4 around 2
array([1.98019802])
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg, special

from tacit import _validate
from tacit.errors import InvalidArgument
from tacit.models.matrices import (
    cholesky,
    diagonal,
    inverse,
    largest_bend,
    packed,
    raised,
    unpacked,
)
from tacit.models.natural import Places, Vector, within


@dataclass(frozen=True)
class DiagonalGaussian:
    """Independent normal numbers: precisions, then precision times mean.

    The statistics are -x^2/2 and x, so that precisions are themselves natural parameters.
    """

    dimension: int

    def __post_init__(self) -> None:
        _validate.count("dimension", self.dimension)

    @property
    def size(self) -> int:
        """Length of a vector of natural parameters."""
        return 2 * self.dimension

    @property
    def nonnegative(self) -> Places:
        """The precisions."""
        return np.arange(self.dimension)

    def split(self, eta: ArrayLike) -> tuple[Vector, Vector]:
        """Precisions, and precision times mean."""
        vector = _vector(eta, self.size)
        return vector[: self.dimension], vector[self.dimension :]

    def join(self, precision: ArrayLike, weighted: ArrayLike) -> Vector:
        """The vector of precisions and precision times mean."""
        return np.concatenate([np.asarray(precision, np.float64), np.asarray(weighted, np.float64)])

    def from_moments(self, mean: ArrayLike, covariance: ArrayLike) -> Vector:
        """The vector of a mean and variances, or of the diagonal of a covariance matrix."""
        variance = np.asarray(covariance, np.float64)
        precision = 1 / (np.diag(variance) if variance.ndim == 2 else variance)
        return self.join(precision, precision * np.asarray(mean, np.float64))

    def mean(self, eta: Vector) -> Vector:
        """The mean."""
        precision, weighted = self.split(eta)
        return weighted / precision

    def covariance(self, eta: Vector) -> Vector:
        """The covariance matrix."""
        return np.diag(1 / self.split(eta)[0])

    def proper(self, eta: Vector) -> bool:
        """Whether all precisions are positive, and everything is finite."""
        return bool(np.isfinite(eta).all() and (self.split(eta)[0] > 0).all())

    def largest_step(self, eta: Vector, change: Vector) -> Vector:
        """The largest share of a change that keeps precisions positive, for each coordinate."""
        if not np.isfinite(change).all():
            return np.zeros(self.size)
        return np.tile(within(self.split(eta)[0], self.split(change)[0]), 2)

    def at_least(self, eta: Vector, least: Vector) -> Vector:
        """The vector with precisions of at least those of another."""
        precision, weighted = self.split(eta)
        return self.join(np.maximum(precision, self.split(least)[0]), weighted)

    def log_partition(self, eta: Vector) -> float:
        """The log of the normalising constant."""
        precision, weighted = self.split(eta)
        return float(np.sum(weighted**2 / precision - np.log(precision)) / 2)

    def expected(self, eta: Vector) -> Vector:
        """Means of -x^2/2 and x."""
        mean, variance = self.mean(eta), 1 / self.split(eta)[0]
        return np.concatenate([-(mean**2 + variance) / 2, mean])

    def draws(self, eta: Vector, count: int, rng: np.random.Generator) -> Vector:
        """Draws [count, dimension]."""
        spread = 1 / np.sqrt(self.split(eta)[0])
        drawn: Vector = self.mean(eta) + spread * rng.standard_normal((count, self.dimension))
        return drawn


@dataclass(frozen=True)
class FullGaussian:
    """A normal vector with any covariance: the packed precision matrix, then precision times mean.

    See `packed`: the 2-norm of the vector is the Frobenius norm of the matrix, so that a clip means
    the same in every direction.
    """

    dimension: int

    def __post_init__(self) -> None:
        _validate.count("dimension", self.dimension)

    @property
    def size(self) -> int:
        """Length of a vector of natural parameters."""
        return self.dimension * (self.dimension + 1) // 2 + self.dimension

    @property
    def nonnegative(self) -> Places:
        """The diagonal of the precision matrix."""
        return diagonal(self.dimension)

    def split(self, eta: ArrayLike) -> tuple[Vector, Vector]:
        """The precision matrix, and precision times mean."""
        vector = _vector(eta, self.size)
        return unpacked(vector[: -self.dimension], self.dimension), vector[-self.dimension :]

    def join(self, precision: ArrayLike, weighted: ArrayLike) -> Vector:
        """The vector of a precision matrix and precision times mean."""
        return np.concatenate([packed(precision), np.asarray(weighted, np.float64)])

    def from_moments(self, mean: ArrayLike, covariance: ArrayLike) -> Vector:
        """The vector of a mean and a covariance matrix, or variances."""
        matrix = np.asarray(covariance, np.float64)
        precision = np.diag(1 / matrix) if matrix.ndim == 1 else np.linalg.inv(matrix)
        precision = (precision + precision.T) / 2
        return self.join(precision, precision @ np.asarray(mean, np.float64))

    def mean(self, eta: Vector) -> Vector:
        """The mean."""
        precision, weighted = self.split(eta)
        solved: Vector = linalg.cho_solve(linalg.cho_factor(precision), weighted)
        return solved

    def covariance(self, eta: Vector) -> Vector:
        """The covariance matrix."""
        return inverse(self.split(eta)[0])

    def proper(self, eta: Vector) -> bool:
        """Whether the precision matrix is positive definite, and everything is finite."""
        return bool(np.isfinite(eta).all()) and cholesky(self.split(eta)[0]) is not None

    def largest_step(self, eta: Vector, change: Vector) -> Vector:
        """The largest share of a change that keeps the precision positive definite."""
        if not np.isfinite(change).all():
            return np.zeros(self.size)
        if self.proper(eta + change):
            return np.ones(self.size)
        return np.full(self.size, largest_bend(self.split(eta)[0], self.split(change)[0]))

    def at_least(self, eta: Vector, least: Vector) -> Vector:
        """The vector with the nearest precision that is nowhere below that of another."""
        precision, weighted = self.split(eta)
        return self.join(raised(precision, self.split(least)[0]), weighted)

    def log_partition(self, eta: Vector) -> float:
        """The log of the normalising constant."""
        precision, weighted = self.split(eta)
        half = float(np.log(np.diag(np.linalg.cholesky(precision))).sum())
        return float(weighted @ self.mean(eta)) / 2 - half

    def expected(self, eta: Vector) -> Vector:
        """Means of -x x'/2 and x."""
        mean = self.mean(eta)
        return self.join(-(self.covariance(eta) + np.outer(mean, mean)) / 2, mean)

    def draws(self, eta: Vector, count: int, rng: np.random.Generator) -> Vector:
        """Draws [count, dimension]."""
        factor = np.linalg.cholesky(self.split(eta)[0])
        normal = rng.standard_normal((self.dimension, count))
        drawn: Vector = self.mean(eta) + linalg.solve_triangular(factor.T, normal).T
        return drawn


Gaussian = DiagonalGaussian | FullGaussian


@dataclass(frozen=True)
class NormalInverseGamma:
    """Weights w of a linear model and the variance v of its outcome: v inverse gamma, w normal given v.

    With u = (w, -1) the density is v^-(shape + 1 + dimension/2) exp(-u'Mu / 2v). The vector is the
    packed matrix M, then the shape. A row with features z and outcome y adds (z, y)(z, y)' and 1/2.
    """

    dimension: int

    def __post_init__(self) -> None:
        _validate.count("dimension", self.dimension)

    @property
    def size(self) -> int:
        """Length of a vector of natural parameters."""
        return (self.dimension + 1) * (self.dimension + 2) // 2 + 1

    @property
    def nonnegative(self) -> Places:
        """The diagonal of M, and the shape."""
        return np.append(diagonal(self.dimension + 1), self.size - 1)

    def from_prior(
        self, mean: ArrayLike, precision: ArrayLike, shape: float, scale: float
    ) -> Vector:
        """The vector of a prior; ``precision`` is that of the weights times the variance."""
        centre, inner = np.asarray(mean, np.float64), np.asarray(precision, np.float64)
        weighted = inner @ centre
        corner = 2 * scale + centre @ weighted
        matrix = np.block([[inner, weighted[:, None]], [weighted[None], np.array([[corner]])]])
        return np.append(packed(matrix), shape)

    def split(self, eta: ArrayLike) -> tuple[Vector, float]:
        """The matrix M, and the shape."""
        vector = _vector(eta, self.size)
        return unpacked(vector[:-1], self.dimension + 1), float(vector[-1])

    def _moments(self, eta: Vector) -> tuple[Vector, Vector, float, float]:
        """Mean and relative precision of the weights, and shape and scale of the variance."""
        matrix, shape = self.split(eta)
        precision, weighted = matrix[:-1, :-1], matrix[:-1, -1]
        mean: Vector = linalg.cho_solve(linalg.cho_factor(precision), weighted)
        return mean, precision, shape, float(matrix[-1, -1] - weighted @ mean) / 2

    def proper(self, eta: Vector) -> bool:
        """Whether M is positive definite, the shape positive, and everything finite."""
        matrix, shape = self.split(eta)
        return bool(np.isfinite(eta).all() and shape > 0) and cholesky(matrix) is not None

    def largest_step(self, eta: Vector, change: Vector) -> Vector:
        """The largest share of a change that keeps M positive definite and the shape positive."""
        if not np.isfinite(change).all():
            return np.zeros(self.size)
        if self.proper(eta + change):
            return np.ones(self.size)
        (matrix, shape), (bend, more) = self.split(eta), self.split(change)
        shares = within(np.array([shape]), np.array([more]))
        return np.full(self.size, min(largest_bend(matrix, bend), float(shares[0])))

    def at_least(self, eta: Vector, least: Vector) -> Vector:
        """The vector with the nearest M and shape that are nowhere below those of another."""
        (matrix, shape), (low, fewest) = self.split(eta), self.split(least)
        return np.append(packed(raised(matrix, low)), max(shape, fewest))

    def log_partition(self, eta: Vector) -> float:
        """The log of the normalising constant."""
        _, precision, shape, scale = self._moments(eta)
        half = float(np.log(np.diag(np.linalg.cholesky(precision))).sum())
        return float(special.gammaln(shape) - shape * np.log(scale)) - half

    def expected(self, eta: Vector) -> Vector:
        """Means of -uu'/2v and -log v."""
        mean, precision, shape, scale = self._moments(eta)
        corner = np.append(mean, -1.0)
        matrix = np.outer(corner, corner) * shape / scale
        matrix[:-1, :-1] += inverse(precision)
        return np.append(packed(-matrix / 2), special.digamma(shape) - np.log(scale))

    def draws(self, eta: Vector, count: int, rng: np.random.Generator) -> Vector:
        """Draws [count, dimension + 1] of the weights, then the variance."""
        mean, precision, shape, scale = self._moments(eta)
        variance = scale / rng.gamma(shape, size=count)
        normal = rng.standard_normal((self.dimension, count)) * np.sqrt(variance)
        factor = np.linalg.cholesky(precision)
        weights = mean + linalg.solve_triangular(factor.T, normal).T
        return np.column_stack([weights, variance])


def _vector(eta: ArrayLike, size: int) -> Vector:
    vector = np.asarray(eta, np.float64)
    if vector.shape != (size,):
        raise InvalidArgument(
            f"Natural parameters of this family are {size} numbers; got shape {vector.shape}."
        )
    return vector

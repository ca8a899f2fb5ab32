"""Natural parameters: distributions as vectors that add when densities multiply.

A family says how its vectors are read. Adding, subtracting and scaling are those of the vectors
themselves, in double precision: a product of densities is a sum, a quotient a difference, a power
a multiple. A factor need not be a distribution, only what it is multiplied into; `proper` says
whether a vector is one.

>>> family = DiagonalGaussian(1)
>>> prior = family.from_moments([0.0], [25.0])
>>> family.mean(prior + [4.0, 8.0])  # a factor of precision 4 around 2
array([1.98019802])
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg, special

from tacit import _validate
from tacit.errors import InvalidArgument

Vector = NDArray[np.float64]
# A step that would leave the family goes this share of the way to its edge, and no further: on
# the edge itself a variance is infinite.
SHORT = 0.9


class Family(Protocol):
    """How natural parameters of one kind of distribution are read."""

    @property
    def size(self) -> int:
        """How many numbers a vector has."""
        ...

    def proper(self, eta: Vector) -> bool:
        """Whether these are the parameters of a distribution."""
        ...

    def largest_step(self, eta: Vector, change: Vector) -> Vector:
        """The largest share of a change, at most one, that a proper vector stays well proper under.

        One for each number; the same for numbers that are proper together or not.
        """
        ...

    def log_partition(self, eta: Vector) -> float:
        """The log of the normalising constant, up to one that all vectors share."""
        ...

    def expected(self, eta: Vector) -> Vector:
        """What the statistics are on average; the gradient of `log_partition`."""
        ...

    def draws(self, eta: Vector, count: int, rng: np.random.Generator) -> Vector:
        """Draws [count, numbers]."""
        ...


def divergence(family: Family, one: Vector, other: Vector) -> float:
    """The Kullback-Leibler divergence from ``one`` to ``other``: zero if they are the same."""
    inner = float(np.dot(one - other, family.expected(one)))
    return inner - family.log_partition(one) + family.log_partition(other)


@dataclass(frozen=True)
class DiagonalGaussian:
    """Independent normal numbers: precisions, then precision times mean.

    The statistics are -x^2/2 and x, so that precisions are the parameters themselves.
    """

    dimension: int

    def __post_init__(self) -> None:
        _validate.count("dimension", self.dimension)

    @property
    def size(self) -> int:
        """How many numbers a vector has."""
        return 2 * self.dimension

    def split(self, eta: ArrayLike) -> tuple[Vector, Vector]:
        """Precisions, and precision times mean."""
        vector = _vector(eta, self.size)
        return vector[: self.dimension], vector[self.dimension :]

    def join(self, precision: ArrayLike, weighted: ArrayLike) -> Vector:
        """The vector of precisions and precision times mean."""
        return np.concatenate([np.asarray(precision, np.float64), np.asarray(weighted, np.float64)])

    def from_moments(self, mean: ArrayLike, covariance: ArrayLike) -> Vector:
        """The vector of a mean and variances; of a covariance matrix, its diagonal."""
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
        """Whether all precisions are positive, and everything finite."""
        return bool(np.isfinite(eta).all() and (self.split(eta)[0] > 0).all())

    def largest_step(self, eta: Vector, change: Vector) -> Vector:
        """The largest share of a change that keeps precisions positive, for each coordinate."""
        if not np.isfinite(change).all():
            return np.zeros(self.size)
        return np.tile(_within(self.split(eta)[0], self.split(change)[0]), 2)

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
    """A normal vector with any covariance: the precision matrix, then precision times mean.

    The matrix is its lower triangle with entries off the diagonal times sqrt(2), so that the
    2-norm of the vector is the Frobenius norm of the matrix and a clip means the same in every
    direction.
    """

    dimension: int

    def __post_init__(self) -> None:
        _validate.count("dimension", self.dimension)

    @property
    def size(self) -> int:
        """How many numbers a vector has."""
        return self.dimension * (self.dimension + 1) // 2 + self.dimension

    def split(self, eta: ArrayLike) -> tuple[Vector, Vector]:
        """The precision matrix, and precision times mean."""
        vector = _vector(eta, self.size)
        rows, columns, scale = _triangle(self.dimension)
        matrix = np.zeros((self.dimension, self.dimension))
        matrix[rows, columns] = matrix[columns, rows] = vector[: len(rows)] / scale
        return matrix, vector[len(rows) :]

    def join(self, precision: ArrayLike, weighted: ArrayLike) -> Vector:
        """The vector of a precision matrix and precision times mean."""
        rows, columns, scale = _triangle(self.dimension)
        packed = np.asarray(precision, np.float64)[rows, columns] * scale
        return np.concatenate([packed, np.asarray(weighted, np.float64)])

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
        precision = self.split(eta)[0]
        inverse = linalg.cho_solve(linalg.cho_factor(precision), np.eye(self.dimension))
        symmetric: Vector = (inverse + inverse.T) / 2
        return symmetric

    def proper(self, eta: Vector) -> bool:
        """Whether the precision matrix is positive definite, and everything finite."""
        return bool(np.isfinite(eta).all()) and _factor(self.split(eta)[0]) is not None

    def largest_step(self, eta: Vector, change: Vector) -> Vector:
        """The largest share of a change that keeps the precision positive definite."""
        return np.full(self.size, self._largest_step(eta, change))

    def _largest_step(self, eta: Vector, change: Vector) -> float:
        if not np.isfinite(change).all():
            return 0.0
        if self.proper(eta + change):
            return 1.0
        factor = _factor(self.split(eta)[0])
        if factor is None:
            return 0.0
        half = linalg.solve_triangular(factor, self.split(change)[0], lower=True)
        relative = linalg.solve_triangular(factor, half.T, lower=True)
        bends = linalg.eigvalsh((relative + relative.T) / 2)
        return float(_within(np.ones(self.dimension), bends).min())

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


class _Positive:
    """Families whose vectors are distributions if all their numbers are positive."""

    def proper(self, eta: Vector) -> bool:
        """Whether all numbers are positive and finite."""
        return bool(np.isfinite(eta).all() and (np.asarray(eta) > 0).all())

    def largest_step(self, eta: Vector, change: Vector) -> Vector:
        """The largest share of a change that keeps all numbers positive."""
        if not np.isfinite(change).all():
            return np.zeros(len(eta))
        return np.full(len(eta), _within(np.asarray(eta), np.asarray(change)).min())


@dataclass(frozen=True)
class Gamma(_Positive):
    """A gamma-distributed number: shape and rate. Statistics: log x and -x, on the scale 1/x."""

    size = 2

    def log_partition(self, eta: Vector) -> float:
        """The log of the normalising constant."""
        shape, rate = eta
        return float(special.gammaln(shape) - shape * np.log(rate))

    def expected(self, eta: Vector) -> Vector:
        """Means of log x and -x."""
        shape, rate = eta
        return np.array([special.digamma(shape) - np.log(rate), -shape / rate])

    def draws(self, eta: Vector, count: int, rng: np.random.Generator) -> Vector:
        """Draws [count, 1]."""
        return rng.gamma(eta[0], 1 / eta[1], (count, 1))


@dataclass(frozen=True)
class Dirichlet(_Positive):
    """Shares of several categories; of two, the beta distribution. Statistics: their logs."""

    categories: int

    def __post_init__(self) -> None:
        _validate.count("categories", self.categories, least=2)

    @property
    def size(self) -> int:
        """How many numbers a vector has."""
        return self.categories

    def log_partition(self, eta: Vector) -> float:
        """The log of the normalising constant."""
        return float(special.gammaln(eta).sum() - special.gammaln(np.sum(eta)))

    def expected(self, eta: Vector) -> Vector:
        """Means of the logs."""
        means: Vector = special.digamma(eta) - special.digamma(np.sum(eta))
        return means

    def draws(self, eta: Vector, count: int, rng: np.random.Generator) -> Vector:
        """Draws [count, categories]."""
        return rng.dirichlet(eta, count)


Triangle = tuple[NDArray[np.intp], NDArray[np.intp], Vector]


def triangle(dimension: int) -> Triangle:
    """Where a packed matrix has its entries, and what they are multiplied by.

    New arrays every time, so that a step that is compiled makes its own.
    """
    rows, columns = np.tril_indices(dimension)
    return rows, columns, np.where(rows == columns, 1.0, np.sqrt(2.0))


_triangle = lru_cache(maxsize=16)(triangle)


def _within(values: Vector, change: Vector) -> Vector:
    """The largest shares, at most one, of changes that keep positive values well positive."""
    reach = np.where(change < 0, values / np.minimum(change, -1e-300) * -1, np.inf)
    return np.where(reach > 1, 1.0, SHORT * np.maximum(reach, 0.0))


def _factor(matrix: Vector) -> Vector | None:
    try:
        return np.asarray(np.linalg.cholesky(matrix), np.float64)
    except np.linalg.LinAlgError:
        return None


def _vector(eta: ArrayLike, size: int) -> Vector:
    vector = np.asarray(eta, np.float64)
    if vector.shape != (size,):
        raise InvalidArgument(
            f"Natural parameters of this family are {size} numbers; got shape {vector.shape}."
        )
    return vector

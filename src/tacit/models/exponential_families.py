"""Exponential families, whose natural parameters add when densities are multiplied.

A distribution is a vector of natural parameters in double precision. A product of densities is the sum of their
vectors, a quotient the difference, and a power a multiple. A factor of a posterior need not be a distribution by
itself; `is_proper` tells whether a vector is one.

>>> family = Gamma()
>>> family.expected_statistics(np.array([3.0, 1.0]) + [5.0, 3.0])[1]  # minus the mean, after counts 2, 3 and 0
np.float64(-2.0)
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
Indices = NDArray[np.intp]
# A step that would leave the family goes this share of the way to its edge. On the edge itself a
# variance is infinite.
STEP_FRACTION = 0.9


class ExponentialFamily(Protocol):
    """A family of distributions with natural parameters."""

    @property
    def size(self) -> int:
        """Length of a vector of natural parameters."""
        ...

    @property
    def nonnegative(self) -> Indices:
        """The entries to which rows can only add: precisions, or counts."""
        ...

    def is_proper(self, eta: Vector) -> bool:
        """Whether these are the parameters of a distribution."""
        ...

    def largest_step(self, eta: Vector, change: Vector) -> Vector:
        """The largest share of a change, at most one, under which a proper vector stays proper.

        One share for each entry. Entries that are proper only together have the same share.
        """
        ...

    def at_least(self, eta: Vector, least: Vector) -> Vector:
        """The vector with precisions, or counts, raised where they are below those of ``least``."""
        ...

    def log_partition(self, eta: Vector) -> float:
        """The log of the normalising constant, up to a constant of the family."""
        ...

    def expected_statistics(self, eta: Vector) -> Vector:
        """Expected sufficient statistics: the gradient of `log_partition`."""
        ...

    def draws(self, eta: Vector, count: int, rng: np.random.Generator) -> Vector:
        """Draws [count, numbers]."""
        ...


def kl_divergence(family: ExponentialFamily, one: Vector, other: Vector) -> float:
    """The Kullback-Leibler divergence KL(one, other)."""
    inner = float(np.dot(one - other, family.expected_statistics(one)))
    return inner - family.log_partition(one) + family.log_partition(other)


class _PositiveFamily:
    """Families whose vectors are distributions if all entries are positive."""

    @property
    def size(self) -> int:
        """Length of a vector of natural parameters."""
        raise NotImplementedError

    @property
    def nonnegative(self) -> Indices:
        """All entries."""
        return np.arange(self.size)

    def is_proper(self, eta: Vector) -> bool:
        """Whether all entries are positive and finite."""
        return bool(np.isfinite(eta).all() and (np.asarray(eta) > 0).all())

    def largest_step(self, eta: Vector, change: Vector) -> Vector:
        """The largest share of a change that keeps all entries positive."""
        if not np.isfinite(change).all():
            return np.zeros(len(eta))
        return np.full(len(eta), largest_fractions(np.asarray(eta), np.asarray(change)).min())

    def at_least(self, eta: Vector, least: Vector) -> Vector:
        """The larger of the two, entry by entry."""
        return np.maximum(eta, least)


@dataclass(frozen=True)
class Gamma(_PositiveFamily):
    """A gamma distribution by shape and rate. Statistics: log x and -x, on the scale 1/x."""

    @property
    def size(self) -> int:
        """Length of a vector of natural parameters."""
        return 2

    def log_partition(self, eta: Vector) -> float:
        """The log of the normalising constant."""
        shape, rate = eta
        return float(special.gammaln(shape) - shape * np.log(rate))

    def expected_statistics(self, eta: Vector) -> Vector:
        """Means of log x and -x."""
        shape, rate = eta
        return np.array([special.digamma(shape) - np.log(rate), -shape / rate])

    def draws(self, eta: Vector, count: int, rng: np.random.Generator) -> Vector:
        """Draws [count, 1]."""
        return rng.gamma(eta[0], 1 / eta[1], (count, 1))


@dataclass(frozen=True)
class Dirichlet(_PositiveFamily):
    """Probabilities of several categories; of two, the beta distribution. Statistics: their logs."""

    categories: int

    def __post_init__(self) -> None:
        _validate.count("categories", self.categories, least=2)

    @property
    def size(self) -> int:
        """Length of a vector of natural parameters."""
        return self.categories

    def log_partition(self, eta: Vector) -> float:
        """The log of the normalising constant."""
        return float(special.gammaln(eta).sum() - special.gammaln(np.sum(eta)))

    def expected_statistics(self, eta: Vector) -> Vector:
        """Means of the logs."""
        means: Vector = special.digamma(eta) - special.digamma(np.sum(eta))
        return means

    def draws(self, eta: Vector, count: int, rng: np.random.Generator) -> Vector:
        """Draws [count, categories]."""
        return rng.dirichlet(eta, count)


def largest_fractions(values: Vector, change: Vector) -> Vector:
    """The largest shares, at most one, of changes that keep positive values away from zero."""
    reach = np.where(change < 0, values / np.minimum(change, -1e-300) * -1, np.inf)
    return np.where(reach > 1, 1.0, STEP_FRACTION * np.maximum(reach, 0.0))


PackedIndices = tuple[NDArray[np.intp], NDArray[np.intp], Vector]


def packed_indices(dimension: int) -> PackedIndices:
    """Rows and columns of the entries of a packed matrix, and the factors of the entries.

    Returns new arrays in every call, so that a compiled step makes its own.
    """
    rows, columns = np.tril_indices(dimension)
    return rows, columns, np.where(rows == columns, 1.0, np.sqrt(2.0))


_cached_packed_indices = lru_cache(maxsize=16)(packed_indices)


def pack_symmetric(matrix: ArrayLike) -> Vector:
    """The lower triangle of a symmetric matrix, with entries off the diagonal times sqrt(2).

    The 2-norm of the result is the Frobenius norm of the matrix.
    """
    square = np.asarray(matrix, np.float64)
    rows, columns, scale = _cached_packed_indices(len(square))
    lower: Vector = square[rows, columns] * scale
    return lower


def unpack_symmetric(vector: Vector, dimension: int) -> Vector:
    """The symmetric matrix that `pack_symmetric` packed."""
    rows, columns, scale = _cached_packed_indices(dimension)
    matrix = np.zeros((dimension, dimension))
    matrix[rows, columns] = matrix[columns, rows] = vector / scale
    return matrix


def packed_diagonal(dimension: int) -> Indices:
    """Entries of a packed matrix that are on its diagonal."""
    return np.cumsum(np.arange(1, dimension + 1)) - 1


def inverse_symmetric(matrix: Vector) -> Vector:
    """The inverse of a positive definite matrix."""
    solved = linalg.cho_solve(linalg.cho_factor(matrix), np.eye(len(matrix)))
    symmetric: Vector = (solved + solved.T) / 2
    return symmetric


def largest_definite_fraction(matrix: Vector, change: Vector) -> float:
    """The largest share of a change under which a positive definite matrix stays so."""
    factor = cholesky_or_none(matrix)
    if factor is None:
        return 0.0
    half = linalg.solve_triangular(factor, change, lower=True)
    relative = linalg.solve_triangular(factor, half.T, lower=True)
    bends = linalg.eigvalsh((relative + relative.T) / 2)
    return float(largest_fractions(np.ones(len(matrix)), bends).min())


def raise_to_at_least(matrix: Vector, least: Vector) -> Vector:
    """The nearest matrix that is nowhere below another."""
    values, vectors = np.linalg.eigh(matrix - least)
    return np.asarray(least + (vectors * np.maximum(values, 0)) @ vectors.T, np.float64)


def cholesky_or_none(matrix: Vector) -> Vector | None:
    """The lower Cholesky factor, or None if the matrix is not positive definite."""
    try:
        return np.asarray(np.linalg.cholesky(matrix), np.float64)
    except np.linalg.LinAlgError:
        return None


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
    def nonnegative(self) -> Indices:
        """The precisions."""
        return np.arange(self.dimension)

    def split(self, eta: ArrayLike) -> tuple[Vector, Vector]:
        """Precisions, and precision times mean."""
        vector = _check_natural_parameters(eta, self.size)
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

    def is_proper(self, eta: Vector) -> bool:
        """Whether all precisions are positive, and everything is finite."""
        return bool(np.isfinite(eta).all() and (self.split(eta)[0] > 0).all())

    def largest_step(self, eta: Vector, change: Vector) -> Vector:
        """The largest share of a change that keeps precisions positive, for each coordinate."""
        if not np.isfinite(change).all():
            return np.zeros(self.size)
        return np.tile(largest_fractions(self.split(eta)[0], self.split(change)[0]), 2)

    def at_least(self, eta: Vector, least: Vector) -> Vector:
        """The vector with precisions of at least those of another."""
        precision, weighted = self.split(eta)
        return self.join(np.maximum(precision, self.split(least)[0]), weighted)

    def log_partition(self, eta: Vector) -> float:
        """The log of the normalising constant."""
        precision, weighted = self.split(eta)
        return float(np.sum(weighted**2 / precision - np.log(precision)) / 2)

    def expected_statistics(self, eta: Vector) -> Vector:
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

    See `pack_symmetric`: the 2-norm of the vector is the Frobenius norm of the matrix, so that a clip means
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
    def nonnegative(self) -> Indices:
        """The diagonal of the precision matrix."""
        return packed_diagonal(self.dimension)

    def split(self, eta: ArrayLike) -> tuple[Vector, Vector]:
        """The precision matrix, and precision times mean."""
        vector = _check_natural_parameters(eta, self.size)
        return unpack_symmetric(vector[: -self.dimension], self.dimension), vector[
            -self.dimension :
        ]

    def join(self, precision: ArrayLike, weighted: ArrayLike) -> Vector:
        """The vector of a precision matrix and precision times mean."""
        return np.concatenate([pack_symmetric(precision), np.asarray(weighted, np.float64)])

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
        return inverse_symmetric(self.split(eta)[0])

    def is_proper(self, eta: Vector) -> bool:
        """Whether the precision matrix is positive definite, and everything is finite."""
        return bool(np.isfinite(eta).all()) and cholesky_or_none(self.split(eta)[0]) is not None

    def largest_step(self, eta: Vector, change: Vector) -> Vector:
        """The largest share of a change that keeps the precision positive definite."""
        if not np.isfinite(change).all():
            return np.zeros(self.size)
        if self.is_proper(eta + change):
            return np.ones(self.size)
        return np.full(
            self.size, largest_definite_fraction(self.split(eta)[0], self.split(change)[0])
        )

    def at_least(self, eta: Vector, least: Vector) -> Vector:
        """The vector with the nearest precision that is nowhere below that of another."""
        precision, weighted = self.split(eta)
        return self.join(raise_to_at_least(precision, self.split(least)[0]), weighted)

    def log_partition(self, eta: Vector) -> float:
        """The log of the normalising constant."""
        precision, weighted = self.split(eta)
        half = float(np.log(np.diag(np.linalg.cholesky(precision))).sum())
        return float(weighted @ self.mean(eta)) / 2 - half

    def expected_statistics(self, eta: Vector) -> Vector:
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
    def nonnegative(self) -> Indices:
        """The diagonal of M, and the shape."""
        return np.append(packed_diagonal(self.dimension + 1), self.size - 1)

    def from_prior(
        self, mean: ArrayLike, precision: ArrayLike, shape: float, scale: float
    ) -> Vector:
        """The vector of a prior; ``precision`` is that of the weights times the variance."""
        centre, inner = np.asarray(mean, np.float64), np.asarray(precision, np.float64)
        weighted = inner @ centre
        corner = 2 * scale + centre @ weighted
        matrix = np.block([[inner, weighted[:, None]], [weighted[None], np.array([[corner]])]])
        return np.append(pack_symmetric(matrix), shape)

    def split(self, eta: ArrayLike) -> tuple[Vector, float]:
        """The matrix M, and the shape."""
        vector = _check_natural_parameters(eta, self.size)
        return unpack_symmetric(vector[:-1], self.dimension + 1), float(vector[-1])

    def _moments(self, eta: Vector) -> tuple[Vector, Vector, float, float]:
        """Mean and relative precision of the weights, and shape and scale of the variance."""
        matrix, shape = self.split(eta)
        precision, weighted = matrix[:-1, :-1], matrix[:-1, -1]
        mean: Vector = linalg.cho_solve(linalg.cho_factor(precision), weighted)
        return mean, precision, shape, float(matrix[-1, -1] - weighted @ mean) / 2

    def is_proper(self, eta: Vector) -> bool:
        """Whether M is positive definite, the shape positive, and everything finite."""
        matrix, shape = self.split(eta)
        return bool(np.isfinite(eta).all() and shape > 0) and cholesky_or_none(matrix) is not None

    def largest_step(self, eta: Vector, change: Vector) -> Vector:
        """The largest share of a change that keeps M positive definite and the shape positive."""
        if not np.isfinite(change).all():
            return np.zeros(self.size)
        if self.is_proper(eta + change):
            return np.ones(self.size)
        (matrix, shape), (bend, more) = self.split(eta), self.split(change)
        shares = largest_fractions(np.array([shape]), np.array([more]))
        return np.full(self.size, min(largest_definite_fraction(matrix, bend), float(shares[0])))

    def at_least(self, eta: Vector, least: Vector) -> Vector:
        """The vector with the nearest M and shape that are nowhere below those of another."""
        (matrix, shape), (low, fewest) = self.split(eta), self.split(least)
        return np.append(pack_symmetric(raise_to_at_least(matrix, low)), max(shape, fewest))

    def log_partition(self, eta: Vector) -> float:
        """The log of the normalising constant."""
        _, precision, shape, scale = self._moments(eta)
        half = float(np.log(np.diag(np.linalg.cholesky(precision))).sum())
        return float(special.gammaln(shape) - shape * np.log(scale)) - half

    def expected_statistics(self, eta: Vector) -> Vector:
        """Means of -uu'/2v and -log v."""
        mean, precision, shape, scale = self._moments(eta)
        corner = np.append(mean, -1.0)
        matrix = np.outer(corner, corner) * shape / scale
        matrix[:-1, :-1] += inverse_symmetric(precision)
        return np.append(pack_symmetric(-matrix / 2), special.digamma(shape) - np.log(scale))

    def draws(self, eta: Vector, count: int, rng: np.random.Generator) -> Vector:
        """Draws [count, dimension + 1] of the weights, then the variance."""
        mean, precision, shape, scale = self._moments(eta)
        variance = scale / rng.gamma(shape, size=count)
        normal = rng.standard_normal((self.dimension, count)) * np.sqrt(variance)
        factor = np.linalg.cholesky(precision)
        weights = mean + linalg.solve_triangular(factor.T, normal).T
        return np.column_stack([weights, variance])


def _check_natural_parameters(eta: ArrayLike, size: int) -> Vector:
    vector = np.asarray(eta, np.float64)
    if vector.shape != (size,):
        raise InvalidArgument(
            f"Natural parameters of this family are {size} numbers; got shape {vector.shape}."
        )
    return vector

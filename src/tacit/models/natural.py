"""Exponential families, whose natural parameters add when densities are multiplied.

A distribution is a vector of natural parameters in double precision. A product of densities is the
sum of their vectors, a quotient the difference, and a power a multiple. A factor of a posterior need
not be a distribution by itself; `proper` tells whether a vector is one. Gaussian families are in
`tacit.models.gaussians`.

>>> family = Gamma()
>>> family.expected(np.array([3.0, 1.0]) + [5.0, 3.0])[1]  # minus the mean, after counts 2, 3 and 0
np.float64(-2.0)
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import special

from tacit import _validate

Vector = NDArray[np.float64]
Places = NDArray[np.intp]
# A step that would leave the family goes this share of the way to its edge. On the edge itself a
# variance is infinite.
SHORT = 0.9


class ExponentialFamily(Protocol):
    """A family of distributions with natural parameters."""

    @property
    def size(self) -> int:
        """Length of a vector of natural parameters."""
        ...

    @property
    def nonnegative(self) -> Places:
        """The entries to which rows can only add: precisions, or counts."""
        ...

    def proper(self, eta: Vector) -> bool:
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

    def expected(self, eta: Vector) -> Vector:
        """Expected sufficient statistics: the gradient of `log_partition`."""
        ...

    def draws(self, eta: Vector, count: int, rng: np.random.Generator) -> Vector:
        """Draws [count, numbers]."""
        ...


def divergence(family: ExponentialFamily, one: Vector, other: Vector) -> float:
    """The Kullback-Leibler divergence KL(one, other)."""
    inner = float(np.dot(one - other, family.expected(one)))
    return inner - family.log_partition(one) + family.log_partition(other)


class _Positive:
    """Families whose vectors are distributions if all entries are positive."""

    @property
    def size(self) -> int:
        """Length of a vector of natural parameters."""
        raise NotImplementedError

    @property
    def nonnegative(self) -> Places:
        """All entries."""
        return np.arange(self.size)

    def proper(self, eta: Vector) -> bool:
        """Whether all entries are positive and finite."""
        return bool(np.isfinite(eta).all() and (np.asarray(eta) > 0).all())

    def largest_step(self, eta: Vector, change: Vector) -> Vector:
        """The largest share of a change that keeps all entries positive."""
        if not np.isfinite(change).all():
            return np.zeros(len(eta))
        return np.full(len(eta), within(np.asarray(eta), np.asarray(change)).min())

    def at_least(self, eta: Vector, least: Vector) -> Vector:
        """The larger of the two, entry by entry."""
        return np.maximum(eta, least)


@dataclass(frozen=True)
class Gamma(_Positive):
    """A gamma distribution by shape and rate. Statistics: log x and -x, on the scale 1/x."""

    @property
    def size(self) -> int:
        """Length of a vector of natural parameters."""
        return 2

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

    def expected(self, eta: Vector) -> Vector:
        """Means of the logs."""
        means: Vector = special.digamma(eta) - special.digamma(np.sum(eta))
        return means

    def draws(self, eta: Vector, count: int, rng: np.random.Generator) -> Vector:
        """Draws [count, categories]."""
        return rng.dirichlet(eta, count)


def within(values: Vector, change: Vector) -> Vector:
    """The largest shares, at most one, of changes that keep positive values away from zero."""
    reach = np.where(change < 0, values / np.minimum(change, -1e-300) * -1, np.inf)
    return np.where(reach > 1, 1.0, SHORT * np.maximum(reach, 0.0))

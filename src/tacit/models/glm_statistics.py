"""Sums of products of a formula's columns, which are sufficient for a normal outcome.

A row is a vector v = (1, columns of the design, outcome) whose parts are scaled by public bounds. The sum of
the products of its entries over all rows is all that the likelihood of a linear regression depends on.
Products that are always zero or always equal to another one, as those of levels of a category, are left out.
"""

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from numpyro.distributions import Normal
from scipy.linalg import block_diag

from tacit.errors import InvalidArgument
from tacit.models.base import Row, UnitModel
from tacit.models.glm import INTERCEPT, GLMFunction, format_prior
from tacit.models.numpyro import NumPyroModel

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


class ScaledPrior(NamedTuple):
    """Means and standard deviations of the normal priors of intercept and coefficients, for scaled columns."""

    mean: FloatArray
    sd: FloatArray


@dataclass(frozen=True, eq=False)
class LinearStatistics:
    """What `tacit.Statistics` needs of a linear regression by formula: statistics, bounds and priors."""

    model: NumPyroModel

    # All of these follow from the formula and the schema.
    declared_public: ClassVar[tuple[str, ...]] = ("places", "prior", "typical", "_scales")

    @property
    def function(self) -> GLMFunction:
        """The function of the formula."""
        function = self.model.function
        assert isinstance(function, GLMFunction)
        return function

    @property
    def user_functions(self) -> tuple[object, ...]:
        """What the boundary searches for arrays of rows."""
        return (self.model.function,)

    @property
    def constants(self) -> tuple[()]:
        """No public arrays are inputs of the compiled function."""
        return ()

    @property
    def _outcome(self) -> tuple[float, float]:
        """The middle of the outcome's bounds, and half of their distance."""
        outcome = self.function.outcome
        return outcome.middle, outcome.half_range

    @cached_property
    def places(self) -> IntArray:
        """Which number of the statistic the product of two entries is; -1 where it is always zero."""
        owners = [t for t in range(len(self.function.terms)) for _ in self._width(t)]
        size, count = len(owners) + 2, 0
        found = np.full((size, size), -1)
        for i, j in zip(*np.triu_indices(size), strict=True):
            inner = 0 < i <= j < size - 1 and owners[i - 1] == owners[j - 1]
            block = self.function.terms[owners[i - 1]].block if inner else None
            if block is not None and i != j and block.exclusive:
                continue
            if block is not None and i == j and block.indicator:
                found[i, i] = found[0, i]
                continue
            found[i, j] = found[j, i] = count
            count += 1
        return found

    def _width(self, term: int) -> range:
        return range(max(len(self.function.terms[term].block.labels), 1))

    @cached_property
    def typical(self) -> FloatArray:
        """Mean products of predictors that dummy rows have: independent, levels equally frequent."""
        means, variances = [1.0], [np.zeros((1, 1))]
        for t, term in enumerate(self.function.terms):
            width = len(self._width(t))
            share = 1 / (width + 1) if term.block.indicator else 0.0
            means += [share] * width
            diagonal = share if term.block.indicator else 0.3 / width
            variances.append(diagonal * np.eye(width) - share**2)
        return np.asarray(np.outer(means, means) + block_diag(*variances))

    @property
    def statistic_size(self) -> int:
        """The number of products."""
        return int(self.places.max()) + 1

    def statistic_norm_bound(self, order: int) -> float:
        """A public bound on the 1-norm or the 2-norm of a row's statistic.

        The 2-norm: every part of v has length one at most, and an indicator's square is left out.
        """
        parts = len(self.function.terms) + 2
        if order == 1:
            return float(self.statistic_size)
        left_out = sum(term.block.indicator for term in self.function.terms)
        return math.sqrt(parts * (parts + 1) / 2 - left_out)

    def statistic(self, row: Row, _: object) -> jax.Array:
        """The products of a row."""
        columns = {name: jnp.asarray(value)[None] for name, value in row.items()}
        middle, half = self._outcome
        outcome = (self.function.outcome.read(columns) - middle) / half
        parts = [term.read(columns)[0] / term.block.max_norm for term in self.function.terms]
        v = jnp.clip(jnp.concatenate([jnp.ones(1), *parts, outcome]), -1.0, 1.0)
        first = [np.argwhere(self.places == k)[0] for k in range(self.statistic_size)]
        return jnp.stack([v[i] * v[j] for i, j in first])

    @cached_property
    def _scales(self) -> FloatArray:
        """What intercept and coefficients of scaled columns are multiplied by."""
        _, half = self._outcome
        long = [
            term.block.max_norm
            for t, term in enumerate(self.function.terms)
            for _ in self._width(t)
        ]
        return half / np.array([1.0, *long])

    @cached_property
    def prior(self) -> ScaledPrior:
        """The priors of intercept and coefficients, which are normal."""
        each = [self.function.priors[name] for name, width in self._widths for _ in range(width)]
        mean, sd = np.array([[float(prior.loc), float(prior.scale)] for prior in each]).T
        mean[0] -= self._outcome[0]
        return ScaledPrior(mean / self._scales, sd / self._scales)

    @property
    def _widths(self) -> list[tuple[str, int]]:
        terms = self.function.terms
        return [(INTERCEPT, 1), *((term.name, len(self._width(t))) for t, term in enumerate(terms))]

    @property
    def _spread(self) -> str:
        return next(iter(self.function.auxiliary))

    def spread_density(self, log_spread: jax.Array) -> jax.Array:
        """Log prior density of the logarithm of the scaled standard deviation of the outcome."""
        _, half = self._outcome
        density = self.function.priors[self._spread].log_prob(jnp.exp(log_spread) * half)
        return jnp.asarray(density + log_spread)

    def named(self, weights: FloatArray, spread: FloatArray) -> dict[str, FloatArray]:
        """Parameters by name, from draws of scaled weights [draws, numbers] and standard deviations [draws]."""
        middle, half = self._outcome
        ends = np.cumsum([width for _, width in self._widths])[:-1]
        parts = np.split(weights * self._scales, ends, axis=1)
        found = {name: part for (name, _), part in zip(self._widths, parts, strict=True)}
        found[INTERCEPT] = found[INTERCEPT] + middle
        single = [INTERCEPT, *(term.name for term in self.function.terms if not term.shape)]
        found |= {name: found[name][:, 0] for name in single} | {self._spread: spread * half}
        return {name: found[name] for name in self.model.names}

    def described_priors(self) -> str:
        """The priors in words, the same one once."""
        by_prior: dict[str, list[str]] = {}
        for name, prior in self.function.priors.items():
            by_prior.setdefault(format_prior(prior), []).append(name)
        return ", ".join(f"{' and '.join(names)} {prior}" for prior, names in by_prior.items())


@lru_cache(maxsize=32)
def linear_statistics(model: UnitModel) -> LinearStatistics | None:
    """The statistics of a linear regression by formula, or None if the model is something else.

    Raises:
        InvalidArgument: If it is a linear regression that statistics do not suffice for.
    """
    source = model.source
    if not isinstance(source, NumPyroModel) or not isinstance(source.function, GLMFunction):
        return None
    function = source.function
    if function.family.name != "gaussian" or function.link != "identity":
        return None
    _check_sufficient(function)
    return LinearStatistics(source)


def _check_sufficient(function: GLMFunction) -> None:
    if function.outcome.weight is not None or function.missing:
        raise InvalidArgument(
            "tacit.Statistics fits formulas without weighted(...) and mi(...); use tacit.Scoring for this one."
        )
    if function.groups or function.offsets or not function.intercept:
        raise InvalidArgument(
            "tacit.Statistics fits formulas with an intercept, without groups (1|g) and offsets; use "
            "tacit.Scoring for this one."
        )
    for name in (INTERCEPT, *(term.name for term in function.terms)):
        if not isinstance(function.priors[name], Normal):
            raise InvalidArgument(
                f"tacit.Statistics needs normal priors of coefficients, and that of {name!r} is "
                f"{format_prior(function.priors[name])}; use tacit.Scoring for this one."
            )

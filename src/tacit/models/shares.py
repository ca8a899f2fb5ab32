"""Conjugate models of binary and categorical outcomes, by the number of rows of each level."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from itertools import pairwise
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln, xlogy

from tacit import _validate
from tacit.errors import InvalidArgument
from tacit.models.base import Parameters, Prediction, Row
from tacit.models.counts import CountModel, Directions
from tacit.models.model import Interval, Parameter, Simplex
from tacit.models.natural import Dirichlet, Vector
from tacit.models.statistic import Constants, Limit, OneColumn


@dataclass(frozen=True)
class _Shares(OneColumn, CountModel):
    """Models in which every row has one level; the totals are the numbers of rows of each level."""

    @property
    @abstractmethod
    def _prior(self) -> tuple[float, ...]:
        """The concentration of the Dirichlet prior for each level."""

    @property
    def constants(self) -> Constants:
        """Public inputs of the compiled program: the prior."""
        return {"concentration": np.asarray(self._prior, np.float32)}

    @property
    def statistic_size(self) -> int:
        """The number of levels."""
        return len(self._prior)

    def longest(self, order: int) -> float:  # noqa: ARG002
        """One: the statistic of a row is a one and zeros."""
        return 1.0

    @property
    def family(self) -> Dirichlet:
        """Dirichlet distributions of the levels' probabilities."""
        return Dirichlet(len(self._prior))

    @property
    def natural_prior(self) -> Vector:
        """The concentrations."""
        return np.asarray(self._prior, np.float64)

    def natural_statistic(self, row: Row, constants: Constants) -> jax.Array:
        """A one for the row's level."""
        return self.statistic(row, constants)

    def released(self, totals: jax.Array) -> jax.Array:
        """The totals themselves."""
        return totals

    def totals(self, released: jax.Array, size: float | None) -> jax.Array:
        """The released sums, rounded and not negative.

        A known size is divided in proportion; the largest level gets the remainder.
        """
        found = jnp.rint(jnp.maximum(released, 0.0))
        if size is None:
            return found
        share = (found + 1e-9) / (found + 1e-9).sum()
        whole = jnp.floor(share * size)
        return whole.at[jnp.argmax(share)].add(size - whole.sum())

    def log_evidence(self, totals: jax.Array) -> jax.Array:
        """Log probability of a Dirichlet-multinomial, given the number of rows."""
        prior = jnp.asarray(self._prior)
        rows, cells = totals.sum(), jnp.maximum(totals, 0.0)
        value = (gammaln(cells + prior) - gammaln(cells + 1)).sum()
        value += gammaln(jnp.maximum(rows, 0) + 1) - gammaln(jnp.maximum(rows, 0) + prior.sum())
        return jnp.where((totals >= 0).all(), value, -jnp.inf)

    def directions(self, *, size_known: bool) -> Directions:
        """The number of rows of one level; for a known size, rows that move between levels."""
        levels = range(len(self._prior))
        single = tuple(tuple(int(i == j) for j in levels) for i in levels)
        moved = tuple(
            tuple(b - a for a, b in zip(one, other, strict=True)) for one, other in pairwise(single)
        )
        return moved if size_known else single

    def shares(self, key: jax.Array, totals: jax.Array) -> jax.Array:
        """A draw of the levels' probabilities."""
        return jax.random.dirichlet(key, totals + jnp.asarray(self._prior))


@dataclass(frozen=True)
class Bernoulli(_Shares):
    """A binary outcome, with a beta prior on the ``probability`` of a one.

    Args:
        column: The binary column.
        successes: First parameter of the prior.
        failures: Second parameter of the prior. With 1 and 1 the prior is uniform.
    """

    _: KW_ONLY
    kinds: ClassVar[tuple[str, ...]] = ("binary",)
    successes: float = 1.0
    failures: float = 1.0

    def __post_init__(self) -> None:
        _validate.positive("successes", self.successes)
        _validate.positive("failures", self.failures)
        if self.bounds is not None:
            raise InvalidArgument("A binary column has no bounds; leave bounds out.")

    def _with(self, limits: Sequence[Limit]) -> "Bernoulli":  # noqa: ARG002
        return self

    @property
    def _prior(self) -> tuple[float, ...]:
        return self.failures, self.successes

    @property
    def parameters(self) -> Mapping[str, Parameter]:
        """One probability."""
        return {"probability": Parameter((), Interval())}

    def log_prior(self, params: Parameters, constants: Constants) -> jax.Array:
        """Log density of the beta prior, up to a constant."""
        no, yes = constants["concentration"] - 1
        p = params["probability"]
        return xlogy(yes, p) + xlogy(no, 1 - p)

    def log_likelihood(self, params: Parameters, row: Row, constants: Constants) -> jax.Array:  # noqa: ARG002
        """Log probability of the outcome."""
        p = params["probability"]
        return jnp.where(row[self.column] > 0.5, jnp.log(p), jnp.log1p(-p))

    def statistic(self, row: Row, constants: Constants) -> jax.Array:  # noqa: ARG002
        """(1, 0) for a zero and (0, 1) for a one."""
        yes = jnp.where(row[self.column] > 0.5, 1.0, 0.0)
        return jnp.stack([1 - yes, yes])

    def conjugate_draw(self, key: jax.Array, totals: jax.Array) -> Parameters:
        """A draw from the beta posterior."""
        return {"probability": self.shares(key, totals)[1]}

    def from_draws(self, drawn: Vector) -> dict[str, Vector]:
        """The probability of a one."""
        return {"probability": drawn[:, 1]}

    def outcome_of(self, key: jax.Array, params: Parameters) -> Prediction:
        """A zero or a one."""
        p = params["probability"]
        draw = jax.random.bernoulli(key, p).astype(jnp.int32)
        return Prediction(draw, p, jnp.log(p) - jnp.log1p(-p))


@dataclass(frozen=True)
class Categorical(_Shares):
    """A categorical outcome, with a Dirichlet prior on the ``probabilities`` of its levels.

    Args:
        column: The categorical column.
        levels: The number of levels; or leave it to a schema.
        concentration: Concentration of the prior, the same for every level.
    """

    _: KW_ONLY
    kinds: ClassVar[tuple[str, ...]] = ("category", "binary")
    levels: int | None = None
    concentration: float = 1.0

    def __post_init__(self) -> None:
        _validate.positive("concentration", self.concentration)
        if self.levels is not None:
            _validate.count("levels", self.levels, least=2)
        if self.bounds is not None:
            raise InvalidArgument("A categorical column has no bounds; leave bounds out.")

    def _with(self, limits: Sequence[Limit]) -> "Categorical":
        found = int(limits[0].high) + 1
        if self.levels not in (None, found):
            raise InvalidArgument(
                f"Categorical has levels={self.levels}, but the schema declares {found} for "
                f"{self.column!r}."
            )
        return replace(self, levels=found)

    @property
    def _prior(self) -> tuple[float, ...]:
        if self.levels is None:
            raise InvalidArgument("Categorical needs levels=, or a schema that declares them.")
        return (self.concentration,) * self.levels

    @property
    def parameters(self) -> Mapping[str, Parameter]:
        """A probability for each level."""
        return {"probabilities": Parameter((len(self._prior),), Simplex())}

    def log_prior(self, params: Parameters, constants: Constants) -> jax.Array:
        """Log density of the Dirichlet prior, up to a constant."""
        return xlogy(constants["concentration"] - 1, params["probabilities"]).sum()

    def log_likelihood(self, params: Parameters, row: Row, constants: Constants) -> jax.Array:
        """Log probability of the level."""
        return xlogy(self.statistic(row, constants), params["probabilities"]).sum()

    def statistic(self, row: Row, constants: Constants) -> jax.Array:
        """A one for the row's level; an unknown code counts as the nearest level."""
        size = len(constants["concentration"])
        code = jnp.clip(row[self.column], 0, size - 1).astype(jnp.int32)
        return jax.nn.one_hot(code, size)

    def conjugate_draw(self, key: jax.Array, totals: jax.Array) -> Parameters:
        """A draw from the Dirichlet posterior."""
        return {"probabilities": self.shares(key, totals)}

    def from_draws(self, drawn: Vector) -> dict[str, Vector]:
        """The probabilities of the levels."""
        return {"probabilities": drawn}

    def outcome_of(self, key: jax.Array, params: Parameters) -> Prediction:
        """A level, and the probabilities of all levels."""
        p = params["probabilities"]
        return Prediction(jax.random.categorical(key, jnp.log(p)), p, None)

"""Conjugate models of yes or no and of categories: how many rows there are of each level."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln, xlogy

from tacit import _validate
from tacit.errors import InvalidArgument
from tacit.models.base import Parameters, Prediction, Row
from tacit.models.counts import Counting, Directions
from tacit.models.model import Interval, Parameter, Simplex
from tacit.models.statistic import Limit


@dataclass(frozen=True, kw_only=True)
class _Shares(Counting):
    """Rows of one level each; the totals are how many rows have each level."""

    @property
    @abstractmethod
    def _prior(self) -> tuple[float, ...]:
        """The Dirichlet's concentration for each level."""

    @property
    def constants(self) -> dict[str, Any]:
        """Public inputs of the compiled program: the prior."""
        return {"concentration": np.asarray(self._prior, np.float32)}

    @property
    def statistic_size(self) -> int:
        """One for each level: they say how many rows there are, too."""
        return len(self._prior)

    def longest(self, order: int) -> float:  # noqa: ARG002
        """A row is a one and zeros."""
        return 1.0

    def released(self, totals: jax.Array) -> jax.Array:
        """The totals themselves."""
        return totals

    def totals(self, released: jax.Array, size: float | None) -> jax.Array:
        """Not negative; with a known size, in proportion, what is left over to the largest."""
        found = jnp.rint(jnp.maximum(released, 0.0))
        if size is None:
            return found
        share = (found + 1e-9) / (found + 1e-9).sum()
        whole = jnp.floor(share * size)
        return whole.at[jnp.argmax(share)].add(size - whole.sum())

    def log_evidence(self, totals: jax.Array) -> jax.Array:
        """Dirichlet-multinomial, given the number of rows."""
        prior = jnp.asarray(self._prior)
        rows, cells = totals.sum(), jnp.maximum(totals, 0.0)
        value = (gammaln(cells + prior) - gammaln(cells + 1)).sum()
        value += gammaln(jnp.maximum(rows, 0) + 1) - gammaln(jnp.maximum(rows, 0) + prior.sum())
        return jnp.where((totals >= 0).all(), value, -jnp.inf)

    def directions(self, *, size_known: bool) -> Directions:
        """Rows of a level more or less; of known number, rows that change their level."""
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
    """Yes or no, with a Beta prior on the ``probability`` of a yes.

    ``successes`` and ``failures`` are the prior's: with 1 and 1, all probabilities are as likely.
    """

    column: str
    _: KW_ONLY
    kinds: ClassVar[tuple[str, ...]] = ("binary",)
    successes: float = 1.0
    failures: float = 1.0

    def __post_init__(self) -> None:
        _validate.positive("successes", self.successes)
        _validate.positive("failures", self.failures)
        if self.bounds is not None:
            raise InvalidArgument("A yes or no has no bounds; leave them out.")

    @property
    def columns(self) -> tuple[str, ...]:
        """The column of the outcome."""
        return (self.column,)

    def _with(self, limits: Sequence[Limit]) -> "Bernoulli":  # noqa: ARG002
        return self

    @property
    def _prior(self) -> tuple[float, ...]:
        return self.failures, self.successes

    @property
    def parameters(self) -> Mapping[str, Parameter]:
        """One probability."""
        return {"probability": Parameter((), Interval())}

    def log_prior(self, params: Parameters, constants: Any) -> jax.Array:
        """Beta, up to a constant."""
        no, yes = constants["concentration"] - 1
        p = params["probability"]
        return xlogy(yes, p) + xlogy(no, 1 - p)

    def log_likelihood(self, params: Parameters, row: Row, constants: Any) -> jax.Array:  # noqa: ARG002
        """Of a yes or a no."""
        p = params["probability"]
        return jnp.where(row[self.column] > 0.5, jnp.log(p), jnp.log1p(-p))

    def statistic(self, row: Row, constants: Any) -> jax.Array:  # noqa: ARG002
        """(no, yes)."""
        yes = jnp.where(row[self.column] > 0.5, 1.0, 0.0)
        return jnp.stack([1 - yes, yes])

    def conjugate_draw(self, key: jax.Array, totals: jax.Array) -> Parameters:
        """Beta."""
        return {"probability": self.shares(key, totals)[1]}

    def predict(
        self,
        key: jax.Array,
        params: Parameters,
        row: Row,  # noqa: ARG002
        constants: Any = None,  # noqa: ARG002
    ) -> dict[str, Prediction]:
        """A yes or a no."""
        p = params["probability"]
        draw = jax.random.bernoulli(key, p).astype(jnp.int32)
        return {self.column: Prediction(draw, p, jnp.log(p) - jnp.log1p(-p))}


@dataclass(frozen=True)
class Categorical(_Shares):
    """One of several levels, with a Dirichlet prior on their ``probabilities``.

    ``levels`` is how many codes the column has, which a schema declares too.
    ``concentration`` is the prior's, for every level.
    """

    column: str
    _: KW_ONLY
    kinds: ClassVar[tuple[str, ...]] = ("category", "binary")
    levels: int | None = None
    concentration: float = 1.0

    def __post_init__(self) -> None:
        _validate.positive("concentration", self.concentration)
        if self.levels is not None:
            _validate.count("levels", self.levels, least=2)
        if self.bounds is not None:
            raise InvalidArgument("Categories have levels and no bounds; leave bounds out.")

    @property
    def columns(self) -> tuple[str, ...]:
        """The column of the outcome."""
        return (self.column,)

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

    def log_prior(self, params: Parameters, constants: Any) -> jax.Array:
        """Dirichlet, up to a constant."""
        return xlogy(constants["concentration"] - 1, params["probabilities"]).sum()

    def log_likelihood(self, params: Parameters, row: Row, constants: Any) -> jax.Array:
        """Of a level."""
        return xlogy(self.statistic(row, constants), params["probabilities"]).sum()

    def statistic(self, row: Row, constants: Any) -> jax.Array:
        """A one for the row's level; a code that is none counts as the nearest."""
        size = len(constants["concentration"])
        code = jnp.clip(row[self.column], 0, size - 1).astype(jnp.int32)
        return jax.nn.one_hot(code, size)

    def conjugate_draw(self, key: jax.Array, totals: jax.Array) -> Parameters:
        """Dirichlet."""
        return {"probabilities": self.shares(key, totals)}

    def predict(
        self,
        key: jax.Array,
        params: Parameters,
        row: Row,  # noqa: ARG002
        constants: Any = None,  # noqa: ARG002
    ) -> dict[str, Prediction]:
        """A level, and the probabilities of all."""
        p = params["probabilities"]
        return {self.column: Prediction(jax.random.categorical(key, jnp.log(p)), p, None)}

"""Conjugate models of yes or no, of categories and of counts: their sums are whole numbers."""

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
from tacit.models.model import Interval, Parameter, Parameters, Positive, Prediction, Row, Simplex
from tacit.models.statistic import Conjugate, Limit

Directions = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, kw_only=True)
class Counting(Conjugate):
    """A model whose sums are whole numbers, with the parameters integrated out in closed form.

    The functions here take ``totals``: whole numbers that what is released is linear in.
    """

    @abstractmethod
    def released(self, totals: jax.Array) -> jax.Array:
        """The sum of statistics that these totals make."""

    @abstractmethod
    def totals(self, released: jax.Array, size: float | None) -> jax.Array:
        """The totals nearest to what was released that rows could have, perhaps of known number."""

    @abstractmethod
    def log_evidence(self, totals: jax.Array) -> jax.Array:
        """Log probability of the totals under the prior, with every number of rows as likely."""

    @abstractmethod
    def directions(self, *, size_known: bool) -> Directions:
        """Ways in which totals can change, without the number of rows if that is known."""

    @abstractmethod
    def conjugate_draw(self, key: jax.Array, totals: jax.Array) -> Parameters:
        """A draw from the posterior given the true totals."""


@dataclass(frozen=True, kw_only=True)
class _Shares(Counting):
    """Rows of one level each; the totals are how many rows have each level."""

    @property
    @abstractmethod
    def _prior(self) -> tuple[float, ...]:
        """The Dirichlet's concentration for each level."""

    @property
    def constants(self) -> dict[str, Any]:  # type: ignore[override]
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
            tuple(b - a for a, b in zip(one, other, strict=True))
            for one, other in pairwise(single)
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
        self, key: jax.Array, params: Parameters, row: Row, constants: Any = None  # noqa: ARG002
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
        self, key: jax.Array, params: Parameters, row: Row, constants: Any = None  # noqa: ARG002
    ) -> dict[str, Prediction]:
        """A level, and the probabilities of all."""
        p = params["probabilities"]
        return {self.column: Prediction(jax.random.categorical(key, jnp.log(p)), p, None)}


@dataclass(frozen=True)
class Poisson(Counting):
    """Counts, with a Gamma prior on their ``rate``.

    ``shape`` and ``inverse_scale`` are the prior's: its mean is their ratio. The highest
    count is public, in ``bounds=((0, high),)`` or in a schema.
    """

    column: str
    _: KW_ONLY
    kinds: ClassVar[tuple[str, ...]] = ("count",)
    shape: float = 1.0
    inverse_scale: float = 1.0

    def __post_init__(self) -> None:
        _validate.positive("shape", self.shape)
        _validate.positive("inverse_scale", self.inverse_scale)
        super().__post_init__()
        if self.bounds is not None and not (self.bounds[0][0] >= 0 and self._highest % 1 == 0):
            raise InvalidArgument("The bounds of a Poisson count must be whole and not negative.")

    @property
    def columns(self) -> tuple[str, ...]:
        """The column of the outcome."""
        return (self.column,)

    @property
    def _highest(self) -> float:
        return self._known_bounds()[0][1]

    @property
    def parameters(self) -> Mapping[str, Parameter]:
        """One rate."""
        return {"rate": Parameter((), Positive())}

    def log_prior(self, params: Parameters, constants: Any) -> jax.Array:  # noqa: ARG002
        """Gamma, up to a constant."""
        rate = params["rate"]
        return xlogy(self.shape - 1, rate) - self.inverse_scale * rate

    def log_likelihood(self, params: Parameters, row: Row, constants: Any) -> jax.Array:
        """Of a count."""
        count = jnp.clip(row[self.column], constants["low"][0], constants["high"][0])
        return xlogy(count, params["rate"]) - params["rate"] - gammaln(count + 1.0)

    @property
    def statistic_size(self) -> int:
        """The count and what it is below the highest: together they say how many rows."""
        return 2

    def statistic(self, row: Row, constants: Any) -> jax.Array:
        """(1 - u, u) for a count that is a share u of the highest."""
        high = constants["high"][0]
        share = jnp.clip(row[self.column], constants["low"][0], high) / high
        return jnp.stack([1 - share, share])

    def longest(self, order: int) -> float:  # noqa: ARG002
        """Two shares that add up to one."""
        return 1.0

    def released(self, totals: jax.Array) -> jax.Array:
        """Of (rows, sum of counts)."""
        share = totals[1] / self._highest
        return jnp.stack([totals[0] - share, share])

    def totals(self, released: jax.Array, size: float | None) -> jax.Array:
        """(rows, sum of counts), with no count above the highest."""
        rows = jnp.rint(jnp.maximum(released.sum(), 0.0)) if size is None else jnp.asarray(size)
        total = jnp.rint(released[1] * self._highest)
        return jnp.stack([rows * 1.0, jnp.clip(total, 0.0, rows * self._highest)])

    def log_evidence(self, totals: jax.Array) -> jax.Array:
        """Negative binomial, given the number of rows."""
        rows, total = jnp.maximum(totals, 0.0)
        value = gammaln(total + self.shape) - gammaln(total + 1) + xlogy(total, rows)
        value -= (total + self.shape) * jnp.log(self.inverse_scale + rows)
        possible = (totals >= 0).all() & (total <= rows * self._highest)
        return jnp.where(possible, value, -jnp.inf)

    def directions(self, *, size_known: bool) -> Directions:
        """Rows more or less, and counts."""
        return ((0, 1),) if size_known else ((1, 0), (0, 1))

    def conjugate_draw(self, key: jax.Array, totals: jax.Array) -> Parameters:
        """Gamma."""
        drawn = jax.random.gamma(key, self.shape + totals[1], dtype=totals.dtype)
        return {"rate": drawn / (self.inverse_scale + totals[0])}

    def predict(
        self, key: jax.Array, params: Parameters, row: Row, constants: Any = None  # noqa: ARG002
    ) -> dict[str, Prediction]:
        """A count."""
        rate = params["rate"]
        return {self.column: Prediction(jax.random.poisson(key, rate), rate, None)}

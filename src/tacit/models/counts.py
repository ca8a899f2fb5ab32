"""Conjugate models whose sums are whole numbers, and the one of counts."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln, xlogy

from tacit import _validate
from tacit.errors import InvalidArgument
from tacit.models.base import Parameters, Prediction, Row
from tacit.models.model import Parameter, Positive
from tacit.models.statistic import Conjugate

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
        self,
        key: jax.Array,
        params: Parameters,
        row: Row,  # noqa: ARG002
        constants: Any = None,  # noqa: ARG002
    ) -> dict[str, Prediction]:
        """A count."""
        rate = params["rate"]
        return {self.column: Prediction(jax.random.poisson(key, rate), rate, None)}

"""Conjugate models whose sums are whole numbers, and the Poisson model of counts."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln, xlogy

from tacit import _validate
from tacit.errors import InvalidArgument
from tacit.models.base import Parameters, Prediction, Row
from tacit.models.model import Parameter, Positive
from tacit.models.natural import Gamma, Vector
from tacit.models.statistic import Conjugate, Constants, OneColumn

Directions = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, kw_only=True)
class CountModel(Conjugate):
    """A model whose sums are whole numbers, with parameters that integrate out in closed form.

    ``totals`` are whole numbers, such as the number of rows and the sum of counts. The sum of
    statistics is a linear function of them.
    """

    @abstractmethod
    def released(self, totals: jax.Array) -> jax.Array:
        """The sum of statistics for given totals."""

    @abstractmethod
    def totals(self, released: jax.Array, size: float | None) -> jax.Array:
        """Possible totals near a released sum; ``size`` is the number of rows if it is known."""

    @abstractmethod
    def log_evidence(self, totals: jax.Array) -> jax.Array:
        """Log probability of the totals under the prior, with a flat prior on the number of rows."""

    @abstractmethod
    def directions(self, *, size_known: bool) -> Directions:
        """Directions in which totals can change; a known number of rows is fixed."""

    @abstractmethod
    def conjugate_draw(self, key: jax.Array, totals: jax.Array) -> Parameters:
        """A draw from the posterior given the true totals."""


@dataclass(frozen=True)
class Poisson(OneColumn, CountModel):
    """Counts, with a gamma prior on their ``rate``.

    Args:
        column: The column of counts.
        shape: Shape of the prior.
        inverse_scale: Inverse scale of the prior. The prior mean is ``shape / inverse_scale``.
        bounds: ``((0, high),)``, where the highest count is public; or leave it to a schema.
    """

    _: KW_ONLY
    kinds: ClassVar[tuple[str, ...]] = ("count",)
    shape: float = 1.0
    inverse_scale: float = 1.0

    def __post_init__(self) -> None:
        _validate.positive("shape", self.shape)
        _validate.positive("inverse_scale", self.inverse_scale)
        super().__post_init__()
        if self.bounds is not None and not (self.bounds[0][0] >= 0 and self._highest % 1 == 0):
            raise InvalidArgument(
                "The bounds of a Poisson count must be whole numbers of at least 0."
            )

    @property
    def _highest(self) -> float:
        return self._known_bounds()[0][1]

    @property
    def parameters(self) -> Mapping[str, Parameter]:
        """One rate."""
        return {"rate": Parameter((), Positive())}

    def log_prior(self, params: Parameters, constants: Constants) -> jax.Array:  # noqa: ARG002
        """Log density of the gamma prior, up to a constant."""
        rate = params["rate"]
        return xlogy(self.shape - 1, rate) - self.inverse_scale * rate

    def log_likelihood(self, params: Parameters, row: Row, constants: Constants) -> jax.Array:
        """Log probability of a count."""
        count = jnp.clip(row[self.column], constants["low"][0], constants["high"][0])
        return xlogy(count, params["rate"]) - params["rate"] - gammaln(count + 1.0)

    @property
    def statistic_size(self) -> int:
        """Two: the count, and its distance from the highest count."""
        return 2

    def statistic(self, row: Row, constants: Constants) -> jax.Array:
        """(1 - u, u), where u is the count divided by the highest count."""
        high = constants["high"][0]
        share = jnp.clip(row[self.column], constants["low"][0], high) / high
        return jnp.stack([1 - share, share])

    def longest(self, order: int) -> float:  # noqa: ARG002
        """One: the entries are not negative and add up to one."""
        return 1.0

    @property
    def family(self) -> Gamma:
        """Gamma distributions of the rate."""
        return Gamma()

    @property
    def natural_prior(self) -> Vector:
        """Shape and inverse scale."""
        return np.array([self.shape, self.inverse_scale], np.float64)

    def natural_statistic(self, row: Row, constants: Constants) -> jax.Array:
        """The count, and one for the row."""
        count = jnp.clip(row[self.column], constants["low"][0], constants["high"][0])
        return jnp.stack([count * 1.0, jnp.ones_like(count * 1.0)])

    def from_draws(self, drawn: Vector) -> dict[str, Vector]:
        """The rate."""
        return {"rate": drawn[:, 0]}

    def released(self, totals: jax.Array) -> jax.Array:
        """The sum of statistics for (rows, sum of counts)."""
        share = totals[1] / self._highest
        return jnp.stack([totals[0] - share, share])

    def totals(self, released: jax.Array, size: float | None) -> jax.Array:
        """(rows, sum of counts), where no count is above the highest."""
        rows = jnp.rint(jnp.maximum(released.sum(), 0.0)) if size is None else jnp.asarray(size)
        total = jnp.rint(released[1] * self._highest)
        return jnp.stack([rows * 1.0, jnp.clip(total, 0.0, rows * self._highest)])

    def log_evidence(self, totals: jax.Array) -> jax.Array:
        """Log probability of a negative binomial, given the number of rows."""
        rows, total = jnp.maximum(totals, 0.0)
        value = gammaln(total + self.shape) - gammaln(total + 1) + xlogy(total, rows)
        value -= (total + self.shape) * jnp.log(self.inverse_scale + rows)
        possible = (totals >= 0).all() & (total <= rows * self._highest)
        return jnp.where(possible, value, -jnp.inf)

    def directions(self, *, size_known: bool) -> Directions:
        """The number of rows, and the sum of counts."""
        return ((0, 1),) if size_known else ((1, 0), (0, 1))

    def conjugate_draw(self, key: jax.Array, totals: jax.Array) -> Parameters:
        """A draw from the gamma posterior."""
        drawn = jax.random.gamma(key, self.shape + totals[1], dtype=totals.dtype)
        return {"rate": drawn / (self.inverse_scale + totals[0])}

    def outcome_of(self, key: jax.Array, params: Parameters) -> Prediction:
        """A count."""
        rate = params["rate"]
        return Prediction(jax.random.poisson(key, rate), rate, None)

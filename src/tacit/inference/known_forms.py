"""Samplers for `OneSample` for models of a known form.

The model is compared with the form before anything is charged, so that the draws are those of
its posterior; that they are private does not depend on it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from tacit import _validate
from tacit.errors import InvalidArgument
from tacit.inference.samplers import Floats, ends_of, prior_at
from tacit.models.base import AnyModel
from tacit.privacy.mechanisms import Mechanism
from tacit.privacy.one_draw.claims import Claim
from tacit.privacy.one_draw.gate import DrawGate
from tacit.privacy.one_draw.reject import LogisticDraws
from tacit.privacy.one_draw.statistic import StatisticDraws

# How far, relative to its size, a model may be from what it is said to be: single precision.
_ALIKE = 1e-3


@dataclass(frozen=True, kw_only=True)
class ConjugateSampler:
    """Exact draws of one parameter that depends on the rows through the sum of one column.

    Examples are a probability, the mean of counts, and a mean with known variance, with any prior.
    The bound on one row's influence follows from the parameter's public range.

    Args:
        column: The column.
        values: The lowest and highest value of the column, to which it is clamped.
        whole: Whether the column holds whole numbers.
        low: The lower end of the parameter's public range, by its name.
        high: The upper end.
        points: Number of grid points.
        rows_per_unit: The largest number of rows per person.
    """

    column: str
    values: tuple[float, float] = (0.0, 1.0)
    whole: bool = True
    low: Mapping[str, ArrayLike] = field(hash=False)
    high: Mapping[str, ArrayLike] = field(hash=False)
    points: int = 2**13
    rows_per_unit: int = 1

    claims: ClassVar[tuple[type, ...]] = ()
    reason: ClassVar[None] = None

    def __post_init__(self) -> None:
        least, largest = self.values
        if not (least < largest) or (self.whole and any(v != round(v) for v in self.values)):
            raise InvalidArgument(
                "values must be the smallest and the largest value of the column."
            )

    def mechanism(
        self,
        model: AnyModel,
        claim: Claim | None,  # noqa: ARG002 (its own)
        num_draws: int,
    ) -> Callable[[float], Mechanism]:
        """The mechanism for a power."""
        _require_form(model)
        low, high = ends_of(model, self.low, self.high)
        if len(low) != 1:
            raise InvalidArgument(f"ConjugateSampler is for one parameter; there are {len(low)}.")
        places = np.linspace(low, high, _validate.count("points", self.points, least=2))
        least, largest = self.values
        at_low, at_high = self._tables(model, places)
        settings = partial(
            StatisticDraws,
            column=self.column,
            low=float(least),
            high=float(largest),
            steps=round(largest - least) if self.whole else 2**20,
            places=places,
            prior=prior_at(model, places),
            at_low=at_low,
            at_high=at_high,
            rows_per_unit=self.rows_per_unit,
            num_draws=num_draws,
        )
        return lambda power: settings(power=power)

    def _tables(self, model: AnyModel, places: Floats) -> tuple[Floats, Floats]:
        """Log-likelihoods of the least and the largest value; refused if not linear between."""
        least, largest = self.values
        tried = np.linspace(least, largest, 9)
        tried = np.unique(np.round(tried)) if self.whole else tried
        tables = [self._table(model, places, value) for value in tried]
        low, high = tables[0], tables[-1]
        size = 1 + max(np.ptp(low), np.ptp(high))
        for value, table in zip(tried, tables, strict=True):
            share = (value - least) / (largest - least)
            if not np.ptp(table - (1 - share) * low - share * high) <= _ALIKE * size:
                raise InvalidArgument(
                    f"The log-likelihood is not linear in {self.column}, but for what does not "
                    "depend on the parameter; use GridSampler."
                )
        return low, high

    def _table(self, model: AnyModel, places: Floats, value: float) -> Floats:
        row = {self.column: np.array([value], np.int32 if self.whole else np.float32)}
        return _of_made_up(model, places, row)

    def check(self, model: AnyModel, gate: DrawGate) -> None:  # noqa: ARG002 (by protocol)
        """Raises what `draw` would raise."""
        gate.check_draw()

    def draw(self, model: AnyModel, gate: DrawGate) -> Floats:  # noqa: ARG002
        """Points of the parameter's range."""
        return gate.draw()


@dataclass(frozen=True, kw_only=True)
class LogisticRejection:
    """Exact draws for logistic regression with independent normal priors around zero.

    The model is compared with this form and refused if it differs. Proposals are rejected until one
    is accepted. With many coefficients (about twenty) and few rows this can take very many
    proposals. The running time is not protected.

    Args:
        features: The column of feature vectors. Vectors longer than ``radius`` are shortened to it.
        outcome: The column of outcomes, 0 or 1.
        radius: The largest norm of a feature vector.
        precision: The precision of the prior.
        rows_per_unit: The largest number of rows per person.
        resolution: Draws are rounded to multiples of this number.
    """

    features: str = "x"
    outcome: str = "y"
    radius: float = 1.0
    precision: float = 1.0
    rows_per_unit: int = 1
    resolution: float = 2.0**-20

    claims: ClassVar[tuple[type, ...]] = ()
    reason: ClassVar[None] = None

    def mechanism(
        self,
        model: AnyModel,
        claim: Claim | None,  # noqa: ARG002 (its own)
        num_draws: int,
    ) -> Callable[[float], Mechanism]:
        """The mechanism for a power."""
        _require_form(model)
        self._refuse_others(model)

        def of(power: float) -> LogisticDraws:
            return LogisticDraws(
                features=self.features,
                outcome=self.outcome,
                dimension=model.dimension,
                radius=self.radius,
                precision=self.precision,
                power=power,
                resolution=self.resolution,
                rows_per_unit=self.rows_per_unit,
                num_draws=num_draws,
            )

        return of

    def _refuse_others(self, model: AnyModel) -> None:
        """Compares the model with the formula on made-up values."""
        rng, size = np.random.default_rng(0), model.dimension
        theta = rng.normal(size=(64, size)) / np.sqrt(self.precision)
        theta[0] = 0
        prior = prior_at(model, theta)
        expected = -self.precision * np.sum(theta**2, axis=1) / 2
        wrong = not np.allclose(prior - prior[0], expected, rtol=_ALIKE, atol=_ALIKE)
        for outcome in (0, 1):
            x = rng.normal(size=size)
            x *= self.radius / np.linalg.norm(x)
            row = {self.features: x[None].astype(np.float32), self.outcome: np.array([outcome])}
            found = _of_made_up(model, theta, row)
            logits = (2 * outcome - 1) * (theta @ x)
            wrong |= not np.allclose(found, -np.logaddexp(0, -logits), rtol=_ALIKE, atol=_ALIKE)
        if wrong:
            raise InvalidArgument(
                f"The model is not a logistic regression of {self.outcome} on {self.features} with "
                f"a normal prior of precision {self.precision:g}; use another sampler."
            )

    def check(self, model: AnyModel, gate: DrawGate) -> None:  # noqa: ARG002 (by protocol)
        """Raises what `draw` would raise."""
        gate.check_draw()

    def draw(self, model: AnyModel, gate: DrawGate) -> Floats:  # noqa: ARG002
        """Coefficients."""
        return gate.draw()


def _require_form(model: AnyModel) -> None:
    """Refuses what neither form has."""
    if model.whole_units:
        raise InvalidArgument(
            "This model has effects of people, so that a row by itself has no likelihood; use "
            "GridSampler or ChainSampler."
        )
    if model.discrete:
        raise InvalidArgument("This model has discrete parameters; use GridSampler.")


def _of_made_up(model: AnyModel, places: Floats, row: dict[str, Any]) -> Floats:
    """The log-likelihood of a made-up row at each of many places."""
    vectors, one = jnp.asarray(places, jnp.float32), jnp.ones(1, jnp.bool_)
    try:
        found = jax.vmap(lambda v: model.unit_density(v, row, one, model.constants))(vectors)
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidArgument(
            f"The model cannot be computed from {', '.join(row)} alone, which is all that this "
            "sampler reads; use another."
        ) from error
    return np.asarray(found, np.float64)

"""Ways to make a draw of a posterior that is private by itself, for `OneSample`.

Three are exact, which is what the theorems are about: on a grid, by a sum where the model is
an exponential family, and by rejection for logistic regression. A chain is not, and asks for
a reason to take it for exact.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit import _validate
from tacit.errors import InvalidArgument
from tacit.models.model import AnyModel
from tacit.privacy.chain import ChainDraws, draw_by_chain
from tacit.privacy.claims import (
    BoundedLikelihood,
    Claim,
    LipschitzLikelihood,
    LogConcave,
    check_rows_per_unit,
)
from tacit.privacy.density import check_density
from tacit.privacy.draw import GridDraws, draw_from_grid
from tacit.privacy.gate import Gate
from tacit.privacy.plans import ReleasePlan
from tacit.privacy.reject import LogisticDraws, draw_by_rejection
from tacit.privacy.statistic import StatisticDraws, draw_by_statistic

Floats = NDArray[np.float64]
# How far, relative to its size, a model may be from what it is said to be: single precision.
_ALIKE = 1e-3


class Sampler(Protocol):
    """How draws are made: settings, all public."""

    @property
    def claims(self) -> tuple[type, ...]:
        """Kinds of claim it can work with; none if it knows its own bound."""
        ...

    @property
    def reason(self) -> str | None:
        """Why its draws may be taken for exact, where that is an assumption."""
        ...

    def plan(
        self, model: AnyModel, claim: Claim | None, num_draws: int
    ) -> Callable[[float], ReleasePlan]:
        """What the gate will do, for each power that the likelihood may count with."""
        ...

    def check(self, model: AnyModel, gate: Gate) -> None:
        """Raises what `draw` would raise, without reading a row."""
        ...

    def draw(self, model: AnyModel, gate: Gate) -> Floats:
        """Unconstrained vectors, one below the other."""
        ...


@dataclass(frozen=True, kw_only=True)
class GridSampler:
    """Exact draws from the posterior on a public grid, for models with few parameters.

    ``low`` and ``high`` give the ends for each parameter, on its own scale; the grid has
    ``points`` places along each unconstrained number, equally far apart on that scale.
    """

    low: Mapping[str, ArrayLike] = field(hash=False)
    high: Mapping[str, ArrayLike] = field(hash=False)
    points: int = 500

    claims: ClassVar[tuple[type, ...]] = (BoundedLikelihood, LipschitzLikelihood)
    reason: ClassVar[None] = None

    def plan(
        self, model: AnyModel, claim: Claim | None, num_draws: int
    ) -> Callable[[float], ReleasePlan]:
        """The plan for a power."""
        assert isinstance(claim, BoundedLikelihood | LipschitzLikelihood)
        low, high = _ends(model, self.low, self.high)

        def of(power: float) -> GridDraws:
            return GridDraws(
                claim=claim,
                low=low,
                high=high,
                points=self.points,
                power=power,
                num_draws=num_draws,
            )

        return of

    def check(self, model: AnyModel, gate: Gate) -> None:
        """Raises what `draw` would raise."""
        check_density(gate, model.unit_density, model.dimension, model.constants)
        if gate.unit == "person" and isinstance(gate.plan.claim, LipschitzLikelihood):
            raise InvalidArgument(
                "A Lipschitz bound speaks of replacing one record by another; people have several. "
                "State a BoundedLikelihood instead."
            )

    def draw(self, model: AnyModel, gate: Gate) -> Floats:
        """Points of the grid."""
        prior = _prior(model, gate.plan.places)
        return draw_from_grid(gate, prior, model.unit_density, model.constants)


@dataclass(frozen=True, kw_only=True)
class ConjugateSampler:
    """Exact draws for one parameter that rows inform by the sum of one column.

    So it is for a yes or no with an unknown rate, a count with an unknown mean, a number with an
    unknown mean and known spread; whatever the prior. ``values`` are the least and the largest
    value of ``column``, to which it is clamped; ``whole`` says that it holds whole numbers.
    ``low`` and ``high`` are the ends of the parameter's public range: how much one row can say
    follows from them and need not be stated. A person has up to ``rows_per_unit`` rows.
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
                "values are the least and the largest value of the column, whole if it is."
            )

    def plan(
        self,
        model: AnyModel,
        claim: Claim | None,  # noqa: ARG002 (its own)
        num_draws: int,
    ) -> Callable[[float], ReleasePlan]:
        """The plan for a power."""
        _require_separate_rows(model)
        low, high = _ends(model, self.low, self.high)
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
            prior=_prior(model, places),
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

    def check(self, model: AnyModel, gate: Gate) -> None:  # noqa: ARG002 (by protocol)
        """Raises what `draw` would raise."""
        check_rows_per_unit(gate, self.rows_per_unit)

    def draw(self, model: AnyModel, gate: Gate) -> Floats:  # noqa: ARG002
        """Points of the parameter's range."""
        return draw_by_statistic(gate)


@dataclass(frozen=True, kw_only=True)
class LogisticRejection:
    """Exact draws for logistic regression with independent normal coefficients around zero.

    The log odds of ``outcome`` (0 or 1) are the product of the coefficients and the vector
    ``features``, which is shortened to norm ``radius`` where it is longer; ``precision`` is
    the prior's. The model is compared with this, and refused where it differs. A person has up
    to ``rows_per_unit`` rows. Draws are rounded to multiples of ``resolution``.

    Proposals have the prior's spread, so the number that are rejected grows as the posterior
    narrows: good for some ten coefficients and a power x rows of some hundreds. It takes its time.
    """

    features: str = "x"
    outcome: str = "y"
    radius: float = 1.0
    precision: float = 1.0
    rows_per_unit: int = 1
    resolution: float = 2.0**-20

    claims: ClassVar[tuple[type, ...]] = ()
    reason: ClassVar[None] = None

    def plan(
        self,
        model: AnyModel,
        claim: Claim | None,  # noqa: ARG002 (its own)
        num_draws: int,
    ) -> Callable[[float], ReleasePlan]:
        """The plan for a power."""
        _require_separate_rows(model)
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
        prior = _prior(model, theta)
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

    def check(self, model: AnyModel, gate: Gate) -> None:  # noqa: ARG002 (by protocol)
        """Raises what `draw` would raise."""
        check_rows_per_unit(gate, self.rows_per_unit)

    def draw(self, model: AnyModel, gate: Gate) -> Floats:  # noqa: ARG002
        """Coefficients."""
        return draw_by_rejection(gate)


@dataclass(frozen=True, kw_only=True)
class ChainSampler:
    """Draws that are the ends of long chains (NUTS), for any model: approximate.

    The guarantee is about exact draws, so ``approximate`` must say, in words, why these may be
    taken for exact; the privacy statement repeats it. Each draw has a chain of its own, and is
    rounded to multiples of ``resolution``.
    """

    approximate: str | None = None
    warm_up: int = 1000
    length: int = 1000
    resolution: float = 2.0**-20

    claims: ClassVar[tuple[type, ...]] = (BoundedLikelihood, LipschitzLikelihood, LogConcave)

    def __post_init__(self) -> None:
        if not isinstance(self.approximate, str) or not self.approximate.strip():
            raise InvalidArgument(
                "A chain only comes near its posterior, and the guarantee is about exact draws. "
                'Say why its draws may be taken for exact, approximate="..."; the privacy '
                "statement will repeat it. Or use an exact sampler."
            )

    @property
    def reason(self) -> str | None:
        """What the caller said."""
        return self.approximate

    def plan(
        self, model: AnyModel, claim: Claim | None, num_draws: int
    ) -> Callable[[float], ReleasePlan]:
        """The plan for a power."""
        assert claim is not None

        def of(power: float) -> ChainDraws:
            return ChainDraws(
                claim=claim,
                dimension=model.dimension,
                power=power,
                warm_up=self.warm_up,
                length=self.length,
                resolution=self.resolution,
                num_draws=num_draws,
            )

        return of

    def check(self, model: AnyModel, gate: Gate) -> None:
        """Raises what `draw` would raise; or if the prior is plainly less concave than claimed."""
        check_density(gate, model.unit_density, model.dimension, model.constants)
        claim = gate.plan.claim
        if isinstance(claim, LogConcave) and not (_concavity(model) >= claim.concavity * 0.999):
            raise InvalidArgument(
                f"The log prior is not as concave as claimed, {claim.concavity:g}, everywhere on the "
                "unconstrained scale; a normal prior is, by its precision."
            )

    def draw(self, model: AnyModel, gate: Gate) -> Floats:
        """Ends of chains."""
        ends: Floats = draw_by_chain(gate, model.prior_density, model.unit_density, model.constants)
        return ends


def _require_separate_rows(model: AnyModel) -> None:
    if model.whole_units:
        raise InvalidArgument(
            "This model has effects of people, so that a row by itself has no likelihood; use "
            "GridSampler or ChainSampler."
        )


def _ends(
    model: AnyModel, low: Mapping[str, ArrayLike], high: Mapping[str, ArrayLike]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The ends of a grid on the unconstrained scale."""
    first, last = (np.asarray(model.start(end), np.float64).ravel() for end in (low, high))
    return tuple(first.tolist()), tuple(last.tolist())


def _prior(model: AnyModel, places: Floats) -> Floats:
    vectors = jnp.asarray(places, jnp.float32)
    found = jax.vmap(lambda vector: model.prior_density(vector, model.constants))(vectors)
    return np.asarray(found, np.float64)


def _concavity(model: AnyModel) -> float:
    """The least curvature of the log prior at a few places: no proof, but it finds mistakes."""
    places = jax.random.normal(jax.random.key(0), (16, model.dimension)) * 3
    curvature = jax.vmap(jax.hessian(model.prior_density), in_axes=(0, None))
    return float(jnp.linalg.eigvalsh(-curvature(places, model.constants)).min())


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

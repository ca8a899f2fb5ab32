"""One draw of the posterior: private by itself, where one unit's influence on it is bounded.

A posterior is spread out, and a draw of it is noisy by nature. Where no unit can move the
posterior by much, one draw gives no unit away: no noise is added at all. To reach a budget,
the likelihood counts with a power below one, which spreads the posterior further.

Three samplers are exact, which is what the theorems are about: on a grid, by a sum where the model is
an exponential family, and by rejection for logistic regression. For the last two the model is compared with the form
before anything is charged, so that the draws are those of its posterior; that they are private does not depend on it.
A chain is not exact, and asks for a reason to take it for exact.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit import _validate
from tacit._typing import Floats
from tacit.accounting import PLD, Budget, calibrate
from tacit.accounting.events import DpEvent
from tacit.errors import InvalidArgument
from tacit.inference.method import Method, Progress, constrained_draws
from tacit.inference.result import Intervals, MethodResult
from tacit.models.base import UnitModel
from tacit.privacy.captured import check_captured
from tacit.privacy.gate import Gate
from tacit.privacy.mechanisms import Mechanism
from tacit.privacy.one_draw.chain import ChainDraws
from tacit.privacy.one_draw.claims import (
    BoundedLikelihood,
    Claim,
    LipschitzLikelihood,
    LogConcave,
)
from tacit.privacy.one_draw.exact import GridDraws, StatisticDraws
from tacit.privacy.one_draw.gate import DrawGate, as_draw_gate
from tacit.privacy.one_draw.logistic import LogisticDraws

# Mechanisms that release draws of a posterior whose likelihood is raised to their ``power``.
DrawMechanism = GridDraws | StatisticDraws | LogisticDraws | ChainDraws


class Sampler(ABC):
    """How draws are made: settings, all public.

    Attributes:
        claims: The kinds of claim that it can work with; none if it has its own bound.
    """

    claims: ClassVar[tuple[type, ...]] = ()

    @property
    def reason(self) -> str | None:
        """Why its draws may be taken for exact, where that is an assumption."""
        return None

    @abstractmethod
    def mechanism(self, model: UnitModel, claim: Claim | None, num_draws: int) -> DrawMechanism:
        """What the gate will do if the likelihood counts in full, with a power of one."""

    def _functions(self, model: UnitModel, gate: DrawGate) -> tuple[Any, ...]:  # noqa: ARG002
        """What the gate needs of the model to draw."""
        return ()

    def check(self, model: UnitModel, gate: DrawGate) -> None:
        """Raises what `draw` would raise, without reading a row."""
        gate.check_draw(*self._functions(model, gate))

    def draw(self, model: UnitModel, gate: DrawGate) -> Floats:
        """Unconstrained vectors [draws, dimension]."""
        return gate.draw(*self._functions(model, gate))


@dataclass(frozen=True, kw_only=True)
class GridSampler(Sampler):
    """Exact draws from the posterior on a public grid, for models with few parameters.

    Args:
        low: The lower end of the grid for each parameter, on its own scale.
        high: The upper end for each parameter.
        points: Number of grid points along each unconstrained dimension, equally spaced on that
            scale. All values of a discrete parameter are included.
    """

    low: Mapping[str, ArrayLike] = field(hash=False)
    high: Mapping[str, ArrayLike] = field(hash=False)
    points: int = 500

    claims: ClassVar[tuple[type, ...]] = (BoundedLikelihood, LipschitzLikelihood)

    def mechanism(self, model: UnitModel, claim: Claim | None, num_draws: int) -> DrawMechanism:
        """The draws, at a power of one."""
        assert isinstance(claim, BoundedLikelihood | LipschitzLikelihood)
        low, high = grid_ends(model, self.low, self.high)
        points = [_validate.count("points", self.points, least=2)] * model.dimension
        for place, least, most, _ in model.discrete:
            low[place], high[place], points[place] = float(least), float(most), most - least + 1
        return GridDraws(
            claim=claim,
            low=tuple(low),
            high=tuple(high),
            points=tuple(points),
            power=1.0,
            num_draws=num_draws,
        )

    def _functions(self, model: UnitModel, gate: DrawGate) -> tuple[Any, ...]:
        prior = log_prior_at(model, gate.mechanism.places)
        return prior, model.log_likelihood, model.constants


@dataclass(frozen=True, kw_only=True)
class ChainSampler(Sampler):
    """Approximate draws for any model: the last states of long NUTS chains.

    The guarantee holds for exact draws, so ``approximate`` must state why these may be treated as
    exact. The privacy statement repeats it. Each draw has its own chain. With `BoundedLikelihood`,
    a unit's log-likelihood is clamped to [-bound, bound]. A `LogConcave` claim is not enforced; it
    is an assumption too.

    Args:
        approximate: The reason why the draws may be treated as exact.
        warm_up: Number of warm-up steps.
        length: Number of steps after the warm-up.
        resolution: Draws are rounded to multiples of this number.
    """

    approximate: str | None = None
    warm_up: int = 1000
    length: int = 1000
    resolution: float = 2.0**-20

    claims: ClassVar[tuple[type, ...]] = (BoundedLikelihood, LipschitzLikelihood, LogConcave)

    def __post_init__(self) -> None:
        if not isinstance(self.approximate, str) or not self.approximate.strip():
            raise InvalidArgument(
                "A chain is only approximately at its posterior, and the guarantee is about exact "
                'draws. Say why its draws may be treated as exact, with approximate="..."; the '
                "privacy statement repeats it. Or use an exact sampler."
            )

    @property
    def reason(self) -> str | None:
        """What the caller declared."""
        return self.approximate

    def mechanism(self, model: UnitModel, claim: Claim | None, num_draws: int) -> DrawMechanism:
        """The draws, at a power of one."""
        assert claim is not None
        if model.discrete:
            raise InvalidArgument(
                "A chain needs gradients, and the model has discrete parameters; use GridSampler."
            )
        return ChainDraws(
            claim=claim,
            dimension=model.dimension,
            power=1.0,
            warm_up=self.warm_up,
            length=self.length,
            resolution=self.resolution,
            num_draws=num_draws,
        )

    def _functions(self, model: UnitModel, gate: DrawGate) -> tuple[Any, ...]:  # noqa: ARG002
        return model.log_prior, model.log_likelihood, model.constants

    def check(self, model: UnitModel, gate: DrawGate) -> None:
        """Raises what `draw` would raise; or if the prior is plainly less concave than claimed."""
        super().check(model, gate)
        claim = gate.mechanism.claim
        if isinstance(claim, LogConcave) and not (
            _prior_concavity(model) >= claim.concavity * 0.999
        ):
            raise InvalidArgument(
                f"The log prior is not as concave as claimed, {claim.concavity:g}, everywhere on the "
                "unconstrained scale; a normal prior is, by its precision."
            )


def grid_ends(
    model: UnitModel, low: Mapping[str, ArrayLike], high: Mapping[str, ArrayLike]
) -> tuple[list[float], list[float]]:
    """The ends of a grid on the unconstrained scale."""
    first, last = (np.asarray(model.unconstrain(end), np.float64).ravel() for end in (low, high))
    return first.tolist(), last.tolist()


def log_prior_at(model: UnitModel, places: Floats) -> Floats:
    """The log prior at each of many places."""
    vectors = jnp.asarray(places, jnp.float32)
    found = jax.vmap(lambda vector: model.log_prior(vector, model.constants))(vectors)
    return np.asarray(found, np.float64)


def _prior_concavity(model: UnitModel) -> float:
    """The least curvature of the log prior at a few places: no proof, but it finds mistakes."""
    places = jax.random.normal(jax.random.key(0), (16, model.dimension)) * 3
    curvature = jax.vmap(jax.hessian(model.log_prior), in_axes=(0, None))
    return float(jnp.linalg.eigvalsh(-curvature(places, model.constants)).min())


# How far, relative to its size, a model may be from its declared form: single precision.
_FORM_TOLERANCE = 1e-3


@dataclass(frozen=True, kw_only=True)
class ConjugateSampler(Sampler):
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

    def __post_init__(self) -> None:
        least, largest = self.values
        if not (least < largest) or (self.whole and any(v != round(v) for v in self.values)):
            raise InvalidArgument(
                "values must be the smallest and the largest value of the column."
            )

    def mechanism(
        self,
        model: UnitModel,
        claim: Claim | None,  # noqa: ARG002 (its own)
        num_draws: int,
    ) -> DrawMechanism:
        """The draws, at a power of one."""
        _check_form(model)
        low, high = grid_ends(model, self.low, self.high)
        if len(low) != 1:
            raise InvalidArgument(f"ConjugateSampler is for one parameter; there are {len(low)}.")
        places = np.linspace(low, high, _validate.count("points", self.points, least=2))
        least, largest = self.values
        at_low, at_high = self._tables(model, places)
        return StatisticDraws(
            column=self.column,
            low=float(least),
            high=float(largest),
            steps=round(largest - least) if self.whole else 2**20,
            places=places,
            prior=log_prior_at(model, places),
            at_low=at_low,
            at_high=at_high,
            rows_per_unit=self.rows_per_unit,
            power=1.0,
            num_draws=num_draws,
        )

    def _tables(self, model: UnitModel, places: Floats) -> tuple[Floats, Floats]:
        """Log-likelihoods of the least and the largest value; refused if not linear between."""
        least, largest = self.values
        tried = np.linspace(least, largest, 9)
        tried = np.unique(np.round(tried)) if self.whole else tried
        tables = [self._table(model, places, value) for value in tried]
        low, high = tables[0], tables[-1]
        size = 1 + max(np.ptp(low), np.ptp(high))
        for value, table in zip(tried, tables, strict=True):
            share = (value - least) / (largest - least)
            if not np.ptp(table - (1 - share) * low - share * high) <= _FORM_TOLERANCE * size:
                raise InvalidArgument(
                    f"The log-likelihood is not linear in {self.column}, but for what does not "
                    "depend on the parameter; use GridSampler."
                )
        return low, high

    def _table(self, model: UnitModel, places: Floats, value: float) -> Floats:
        row = {self.column: np.array([value], np.int32 if self.whole else np.float32)}
        return _dummy_row_density(model, places, row)


@dataclass(frozen=True, kw_only=True)
class LogisticRejection(Sampler):
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

    def mechanism(
        self,
        model: UnitModel,
        claim: Claim | None,  # noqa: ARG002 (its own)
        num_draws: int,
    ) -> DrawMechanism:
        """The draws, at a power of one."""
        _check_form(model)
        self._check_logistic(model)
        return LogisticDraws(
            features=self.features,
            outcome=self.outcome,
            dimension=model.dimension,
            radius=self.radius,
            precision=self.precision,
            power=1.0,
            resolution=self.resolution,
            rows_per_unit=self.rows_per_unit,
            num_draws=num_draws,
        )

    def _check_logistic(self, model: UnitModel) -> None:
        """Compares the model with the formula on dummy values."""
        rng, size = np.random.default_rng(0), model.dimension
        theta = rng.normal(size=(64, size)) / np.sqrt(self.precision)
        theta[0] = 0
        prior = log_prior_at(model, theta)
        expected = -self.precision * np.sum(theta**2, axis=1) / 2
        wrong = not np.allclose(
            prior - prior[0], expected, rtol=_FORM_TOLERANCE, atol=_FORM_TOLERANCE
        )
        for outcome in (0, 1):
            x = rng.normal(size=size)
            x *= self.radius / np.linalg.norm(x)
            row = {self.features: x[None].astype(np.float32), self.outcome: np.array([outcome])}
            found = _dummy_row_density(model, theta, row)
            logits = (2 * outcome - 1) * (theta @ x)
            wrong |= not np.allclose(
                found, -np.logaddexp(0, -logits), rtol=_FORM_TOLERANCE, atol=_FORM_TOLERANCE
            )
        if wrong:
            raise InvalidArgument(
                f"The model is not a logistic regression of {self.outcome} on {self.features} with "
                f"a normal prior of precision {self.precision:g}; use another sampler."
            )


def _check_form(model: UnitModel) -> None:
    """Refuses what neither form has."""
    if model.has_person_effects:
        raise InvalidArgument(
            "This model has effects of people, so that a row by itself has no likelihood; use "
            "GridSampler or ChainSampler."
        )
    if model.discrete:
        raise InvalidArgument("This model has discrete parameters; use GridSampler.")


def _dummy_row_density(
    model: UnitModel, places: Floats, row: Mapping[str, NDArray[np.generic]]
) -> Floats:
    """The log-likelihood of a dummy row at each of many places."""
    vectors, one = jnp.asarray(places, jnp.float32), jnp.ones(1, jnp.bool_)
    try:
        found = jax.vmap(lambda v: model.log_likelihood(v, row, one, model.constants))(vectors)
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidArgument(
            f"The model cannot be computed from {', '.join(row)} alone, which is all that this "
            "sampler reads; use another."
        ) from error
    return np.asarray(found, np.float64)


_NO_SAMPLER = (
    "OneSample needs a sampler, as in tacit.OneSample(sampler=tacit.methods.GridSampler(...), claim=...). "
    "Exact samplers: GridSampler for up to about three parameters, with a claim that bounds the likelihood "
    "(BoundedLikelihood or LipschitzLikelihood); ConjugateSampler for one parameter that depends on the sum "
    "of one column; LogisticRejection for logistic regression. ChainSampler takes any model, with a claim, "
    "and needs a reason why its draws may be treated as exact. All are in tacit.methods; see 'Methods' in the documentation."
)
_ONE_DRAW_MESSAGE = "One draw shows where the posterior is, but not how wide it is."


@dataclass(frozen=True, kw_only=True)
class OneSample(Method):
    """Draws from the posterior that are private by themselves. All settings are public.

    The likelihood is raised to the largest power, at most one, that the budget allows. Every draw
    is charged, so several draws have a lower power each. One draw shows where the posterior is, but
    not how wide it is.

    Args:
        sampler: How to draw: exactly, by `tacit.methods.GridSampler`, `tacit.methods.ConjugateSampler` or
            `tacit.methods.LogisticRejection`; or approximately, by `tacit.methods.ChainSampler`, which states an
            assumption.
        claim: What bounds the influence of one unit: `tacit.methods.BoundedLikelihood`,
            `tacit.methods.LipschitzLikelihood` or `tacit.methods.LogConcave`. The conjugate and logistic samplers
            have their own.
        num_draws: Number of draws.
    """

    sampler: Sampler = None  # type: ignore[assignment]  # a missing one is refused by a list of samplers
    claim: Claim | None = None
    num_draws: int = 1

    def __post_init__(self) -> None:
        _validate.count("num_draws", self.num_draws)
        if not isinstance(self.sampler, Sampler):
            raise InvalidArgument(_NO_SAMPLER)
        known = self.sampler.claims
        if not known and self.claim is not None:
            raise InvalidArgument(
                f"{type(self.sampler).__name__} has its own bound on one unit: leave claim out."
            )
        if known and not isinstance(self.claim, known):
            names = " or ".join(kind.__name__ for kind in known)
            raise InvalidArgument(
                f"A draw is private only if the influence of one unit is bounded: with "
                f"{type(self.sampler).__name__}, pass claim={names}(...)."
            )

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What is taken to be true, where the sampler is not exact."""
        if self.sampler.reason is None:
            return ()
        exact = (
            "each chain ended in an exact draw of its posterior, with random numbers nobody can "
            f'guess; the reason given is: "{self.sampler.reason}"'
        )
        if not isinstance(self.claim, LogConcave):
            return (exact,)
        slope, concavity = self.claim.slope, self.claim.concavity
        concave = (
            "a unit's log-likelihood is concave in the unconstrained parameters, with a slope of "
            f"at most {slope:g}, and the log prior is concave by at least {concavity:g}"
        )
        return exact, concave

    def calibrate(self, model: UnitModel, budget: Budget) -> Mechanism:
        """The release, with the largest power that the budget allows."""
        mechanism = self.sampler.mechanism(model, self.claim, self.num_draws)
        return replace(mechanism, power=_largest_power(mechanism, budget))

    def without_noise(self, model: UnitModel) -> Mechanism:
        """The posterior itself, whatever its draws would cost."""
        return self.sampler.mechanism(model, self.claim, self.num_draws)

    def check(self, model: UnitModel, gate: Gate) -> None:
        """Raises what `run` would raise of the model, without reading a row."""
        check_captured(*model.user_functions)
        self.sampler.check(model, as_draw_gate(gate))

    def run(
        self,
        model: UnitModel,
        gate: Gate,
        key: jax.Array,  # noqa: ARG002 (all randomness here protects)
        progress: Progress | None = None,
    ) -> MethodResult:
        """Draws through the gate."""
        drawn = self.sampler.draw(model, as_draw_gate(gate))
        if progress is not None:
            progress(self.num_draws)
        return MethodResult(
            draws=constrained_draws(model, jnp.asarray(drawn, jnp.float32)),
            trace={},
            messages=(_ONE_DRAW_MESSAGE,) if self.num_draws == 1 else (),
            intervals=Intervals.SAMPLED,
        )

    def describe(self, model: UnitModel) -> str:
        """A line for the printed plan."""
        count = "One draw" if self.num_draws == 1 else f"{self.num_draws} draws"
        return (
            f"{count} of the posterior by {type(self.sampler).__name__}, for {model.dimension} "
            "unconstrained parameters."
        )


def _largest_power(mechanism: DrawMechanism, budget: Budget) -> float:
    """The largest power, up to one, that the budget allows."""
    spent = PLD().epsilon(mechanism.event, budget.delta, budget.adjacency)
    if spent <= budget.epsilon:
        return 1.0

    def event(noise: float) -> DpEvent:
        return replace(mechanism, power=min(1 / noise, 1.0)).event

    guess = max(spent / max(budget.epsilon, 1e-300), 1.0)
    return 1 / calibrate.calibrate(event, budget, None, guess)

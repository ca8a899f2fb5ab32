"""Private Fisher scoring: a posterior whose intervals include the noise of privacy.

A few rounds each ask the gate for one noisy sum over all units: of bounded scores, of their
curvature and of a few numbers beside them (`tacit.inference.score_contributions`). The first round counts the
units, and a fit that has too few ends there. The early ones find where scores cancel the prior, and the metric in which every direction
gets noise by what it can bear; they start from what is public of the curvature. The late ones make
the posterior (`tacit.inference.scoring_rounds`). All but the sums is post-processing.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from tacit import _validate
from tacit._compile import stored_jit
from tacit._typing import ArrayTree, Floats
from tacit.accounting import Budget, calibrate, events
from tacit.accounting.accountants import unstopped_budget
from tacit.accounting.events import DpEvent
from tacit.errors import InvalidArgument, TooFewUnits
from tacit.inference.method import (
    Method,
    Progress,
    Steps,
    batch_bound_for_size,
    constrained_draws,
    no_inputs,
    sampling_rate_for_size,
    seed_from_key,
)
from tacit.inference.result import Intervals, MethodResult
from tacit.inference.score_contributions import (
    ScoreQuery,
    contribution_size,
    drawn_scores,
    split_release,
    unit_contribution,
)
from tacit.inference.scoring_posterior import DEFAULT_DRAWS, ScoringResult, draw_posterior
from tacit.inference.scoring_rounds import COUNT_SHARES, LATE_SHARES, Rounds, WhitenedQuery
from tacit.inference.whitening import Whitening, whiten_prior
from tacit.models.base import Row, UnitModel
from tacit.privacy.captured import check_captured
from tacit.privacy.gate import Gate, check, run
from tacit.privacy.mechanisms import NoisySums, Release
from tacit.privacy.rows import Units
from tacit.privacy.trace import Step

# With more parameters, the computations between rounds take too long.
MAX_DIMENSION = 400
# Shares of the budget, which is quadratic in the inverse noise, for the count, the early and the late rounds; and the
# fraction of the rounds after the count that are early.
COUNT_BUDGET, EARLY_BUDGET, LATE_BUDGET = 0.01, 0.30, 0.69
_EARLY_FRACTION = 4 / 7
# A noisy count below so many of its standard deviations is not clearly more than none, and ends the fit.
MIN_COUNT_SDS = 2.0
# With more parameters, a round takes longer, and there are fewer rounds.
_MAX_FAST_DIMENSION = 32
# The sampling rate at the default size, if rates could exceed one: it determines from which size on a round samples.
_RATE_AT_DEFAULT_SIZE = 2.6
# The number of positions at which simulated rows are searched for directions that no row informs.
_CURVATURE_POINTS = 4
# Without a schema: the assumed standard deviation of a row's score, in coordinates in which the prior has unit scale.
_DEFAULT_SCORE_SD = 0.5


@dataclass(frozen=True, kw_only=True)
class Scoring(Method):
    """Settings of private Fisher scoring, the default method.

    The model must be able to draw its outcomes, and have at most 400 unconstrained parameters. All
    settings are public.

    Args:
        num_steps: Number of rounds, of which the first counts the units; by default 29, and 21 for more
            than 32 unconstrained parameters. The noise of each grows with their number, so that the budget
            holds.
        num_outcomes: Number of outcomes drawn from the model for each unit, to compare its own
            with. More need a little less noise and more time.
        sampling_rate: Probability with which each unit takes part in a round. Less than one is
            for very many units.
        batch_bound: A declared bound on the number of units in a round. It never affects the
            guarantee; sums over more units could wrap around.
        check_count: Whether the fit ends after its first round, with `tacit.errors.TooFewUnits`, if the
            noisy count of units is below twice its standard deviation. Only the count is spent then.
    """

    num_steps: int | None = None
    num_outcomes: int = 6
    sampling_rate: float = 1.0
    batch_bound: int = 2**22
    check_count: bool = True

    by_gradients: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.num_steps is not None:
            _validate.integer("num_steps", self.num_steps, least=8)
        _validate.rate("sampling_rate", self.sampling_rate)
        _validate.count("num_outcomes", self.num_outcomes, least=2)
        if not isinstance(self.check_count, bool):
            raise InvalidArgument(f"check_count must be True or False; got {self.check_count!r}.")

    @classmethod
    def can_fit(cls, model: UnitModel) -> bool:
        """Whether the model can draw its outcomes, and has few enough parameters, none of them discrete."""
        return (
            model.simulate is not None and model.dimension <= MAX_DIMENSION and not model.discrete
        )

    def for_size(self, model: UnitModel, size: int, budget: Budget) -> "Scoring":  # noqa: ARG002
        """The method with settings for a declared size: with very many units, a round samples them.

        Args:
            model: The model.
            size: About how many units there are. Public.
            budget: The budget.

        Returns:
            The method.
        """
        rate = min(self.sampling_rate, scoring_rate_for_size(size))
        return replace(
            self, sampling_rate=rate, batch_bound=batch_bound_for_size(self.batch_bound, rate, size)
        )

    def _schedule(self, model: UnitModel, multiplier: float) -> tuple[tuple[float, int], ...]:
        rounds = self.num_steps or (29 if model.dimension <= _MAX_FAST_DIMENSION else 21)
        early = num_early_rounds(rounds)
        parts = (COUNT_BUDGET, 1), (EARLY_BUDGET, early), (LATE_BUDGET, rounds - 1 - early)
        return tuple((multiplier * math.sqrt(number / part), number) for part, number in parts)

    def mechanism(self, model: UnitModel, noise_multiplier: float) -> NoisySums:
        """What the gate will do for this model; the noise is that of all rounds together."""
        check_model(model)
        schedule = self._schedule(model, noise_multiplier)
        return NoisySums(
            sampling_rate=self.sampling_rate,
            num_steps=sum(rounds for _, rounds in schedule),
            clip=1.0,
            noise_multiplier=schedule,
            dimension=contribution_size(model.dimension),
            batch_bound=self.batch_bound,
            secrets=True,
            stop_after=1 if self.check_count and noise_multiplier > 0 else 0,
        )

    def calibrate(self, model: UnitModel, budget: Budget) -> NoisySums:
        """What the gate will do, with the least noise that meets a budget."""
        check_model(model)

        def event(multiplier: float) -> DpEvent:
            return events.sampled_gaussian(
                list(self._schedule(model, multiplier)), self.sampling_rate
            )

        budget = unstopped_budget(budget) if self.check_count else budget
        # Without sampling, the sums compose to one of all the noise: the guess is the answer, or nearly.
        guess = calibrate.noise_multiplier(budget, sampling_rate=1.0, num_steps=1)
        guess *= max(self.sampling_rate, 0.1)
        return self.mechanism(model, calibrate.calibrate(event, budget, guess=guess))

    def without_noise(self, model: UnitModel) -> NoisySums:
        """The same without privacy."""
        return self.mechanism(model, 0.0)

    def has_finite_scores(self, model: UnitModel, simulated: Units) -> bool:
        """Whether simulated units have scores at the prior mean, where the first round asks."""
        return bool(
            simulated_scores(model, simulated, self.num_outcomes)(np.zeros(model.dimension)).any()
        )

    def check(self, model: UnitModel, gate: Gate) -> None:
        """Raises what `run` would raise of the model, without reading a row."""
        check_captured(*model.user_functions)
        whiten_prior(model)  # raises if the prior is not proper
        check(scoring_step(model, self.num_outcomes), _dummy_query(model), np.float32(0), gate)

    def steps(
        self,
        model: UnitModel,
        mechanism: NoisySums,  # noqa: ARG002
        key: jax.Array,  # noqa: ARG002 (draws of the model are those of units, by the gate)
    ) -> Steps:
        """The rounds as steps that all have the same query, for audits and timings."""
        return Steps(scoring_step(model, self.num_outcomes), _dummy_query(model), no_inputs)

    def rounds(self, model: UnitModel, mechanism: NoisySums, simulated: Units | None) -> Rounds:
        """The state of a fit before its first round."""
        rate = mechanism.sampling_rate
        noise = [scale for scale, rounds in mechanism.phases for _ in range(rounds)]
        early = num_early_rounds(mechanism.num_steps)
        return start_rounds(model, simulated, noise, early, self.num_outcomes, rate)

    def run(
        self, model: UnitModel, gate: Gate, key: jax.Array, progress: Progress | None = None
    ) -> MethodResult:
        """The posterior."""
        return method_result(model, *self.posterior(model, gate, key, progress))

    def posterior(
        self,
        model: UnitModel,
        gate: Gate,
        key: jax.Array,
        progress: Progress | None = None,
        draws: int = DEFAULT_DRAWS,
    ) -> tuple[ScoringResult, Rounds]:
        """The posterior in whitened coordinates, with so many draws; and the rounds.

        Raises:
            TooFewUnits: If the fit ends after its count.
        """
        mechanism = gate.mechanism
        rounds = self.rounds(model, mechanism, gate.simulated)
        space = whiten_prior(model)

        def update(released: jax.Array) -> ScoreQuery:
            record_release(rounds, released, rate=mechanism.sampling_rate)
            return make_query(model, space, rounds.ask())

        def counted(released: jax.Array) -> float:
            shares, noise = np.sqrt(COUNT_SHARES), mechanism.phases[0][0]
            return split_release(
                released, model.dimension, shares, noise, mechanism.sampling_rate
            ).units

        def stop(released: jax.Array) -> bool:
            return counted(released) < min_count(mechanism)

        start = make_query(model, space, rounds.ask())
        step = scoring_step(model, self.num_outcomes)
        _, released = run(
            gate,
            step,
            start,
            no_inputs,
            block=4,
            progress=progress,
            update=update,
            stop=stop if mechanism.stop_after else None,
        )
        if gate.stopped:
            count, sd = counted(released[0]), count_sd(mechanism)
            raise TooFewUnits("The noisy count of units shows too few of them.", count, sd)
        rng = np.random.default_rng(seed_from_key(key))
        return draw_posterior(model, rounds, rng, draws), rounds

    def trial(self, num_steps: int) -> "Scoring":
        """The same method with so few steps, all of them kept."""
        return replace(self, num_steps=num_steps)

    def describe(self, model: UnitModel) -> str:
        """A line for the printed plan."""
        return (
            f"Private Fisher scoring for {model.dimension} unconstrained parameters; "
            "intervals include the noise."
        )

    def expect(self, mechanism: NoisySums, many: str) -> str:
        """About how many units it takes to learn anything, from public numbers alone."""
        noise = final_noise(mechanism)
        size = next(
            d for d in range(1, MAX_DIMENSION + 1) if contribution_size(d) == mechanism.dimension
        )
        few = f"{float(f'{2 * noise * size:.1g}'):,.0f}"
        return (
            f"As a rule, fewer than about {few} {many} tell little more than the prior at this "
            "budget; intervals are then nearly the prior's."
        )


def scoring_rate_for_size(size: int) -> float:
    """The sampling rate for a number of units: less than one for very many."""
    return min(1.0, sampling_rate_for_size(_RATE_AT_DEFAULT_SIZE, size))


def num_early_rounds(rounds: int) -> int:
    """The number of rounds that find the position and the metric."""
    return round(_EARLY_FRACTION * (rounds - 1))


def final_noise(mechanism: NoisySums) -> float:
    """Noise of the averaged scores of the late rounds, in clips, for all units."""
    noise, rounds = mechanism.phases[-1]
    return noise / (mechanism.sampling_rate * math.sqrt(rounds * LATE_SHARES[0]))


def count_sd(mechanism: NoisySums) -> float:
    """Standard deviation of the noise in the count of units, which the first round releases."""
    return mechanism.phases[0][0] * mechanism.clip / mechanism.sampling_rate


def min_count(mechanism: NoisySums) -> float:
    """The noisy count below which a fit ends after it."""
    return MIN_COUNT_SDS * count_sd(mechanism)


def stopping_probability(mechanism: NoisySums, size: int) -> float:
    """The probability with which a fit of so many units ends after its count."""
    noise, rate = count_sd(mechanism), mechanism.sampling_rate
    deviation = math.sqrt(noise**2 + size * (1 - rate) / rate)  # of noise, and of who is sampled
    return 0.5 * math.erfc((size - min_count(mechanism)) / (math.sqrt(2) * deviation))


def check_model(model: UnitModel) -> None:
    """Raises if the method cannot fit a model."""
    if model.simulate is None:
        raise InvalidArgument(
            "Scoring compares each outcome with draws of the model, and this model cannot draw its "
            "outcomes; give a tacit.Model simulate=, or use tacit.Variational()."
        )
    if model.dimension > MAX_DIMENSION:
        raise InvalidArgument(
            f"Scoring fits at most {MAX_DIMENSION} unconstrained parameters, and this model has "
            f"{model.dimension}; use tacit.Variational()."
        )


@lru_cache(maxsize=32)
def scoring_step(model: UnitModel, outcomes: int) -> Step:
    """One round as a step of the gate: the same object again, so that it compiles once."""

    def per_unit(query: ScoreQuery, rows: Row, present: jax.Array, secret: jax.Array) -> jax.Array:
        return _compiled_contribution(model, outcomes)(query, rows, present, secret)

    def step(state: ScoreQuery, _: jax.Array, release: Release) -> tuple[ScoreQuery, jax.Array]:
        return state, release.noisy_sum(per_unit, state)

    step.known_digest = model.program_key(f"step {outcomes}")  # type: ignore[attr-defined]
    return step


@lru_cache(maxsize=32)
def _compiled_contribution(model: UnitModel, outcomes: int) -> Callable[..., jax.Array]:
    """Compiled, because the gate traces a step several times and JAX caches traces of compiled functions."""
    return jax.jit(unit_contribution(model, outcomes))


def make_query(model: UnitModel, space: Whitening, query: WhitenedQuery) -> ScoreQuery:
    """A query in the coordinates of the model."""
    numbers = (
        query.clip,
        query.curvature_clip,
        query.max_slope,
        query.max_direction_slope,
        query.sizing,
    )
    made = (
        space.mean + space.scale @ query.position,
        query.to_metric @ space.scale.T,
        *numbers,
        query.shares,
    )
    constants = jax.tree.map(jnp.asarray, model.constants)
    return ScoreQuery._make([*(np.asarray(each, np.float32) for each in made), constants])


def _dummy_query(model: UnitModel) -> ScoreQuery:
    """A query of the right shapes, for checks."""
    size = model.dimension
    query = WhitenedQuery(
        np.zeros(size), np.eye(size), 1.0, 1.0, 1.0, 1.0, 0.0, np.full(9, 9**-0.5)
    )
    return make_query(model, Whitening(np.zeros(size), np.eye(size), quadratic=True), query)


def record_release(rounds: Rounds, released: ArrayLike, rate: float = 1.0) -> None:
    """Tells the rounds of a fit what was released."""
    assert rounds.query is not None
    number = rounds.done + (0 if math.isnan(rounds.units) else 1)
    noise = float(rounds.noise[number])
    rounds.tell(split_release(released, rounds.size, rounds.query.shares, noise, rate))


def start_rounds(
    model: UnitModel,
    simulated: Units | None,
    noise: Sequence[float],
    early: int,
    outcomes: int,
    rate: float = 1.0,
) -> Rounds:
    """The rounds of a fit, before the first; see `tacit.inference.scoring_rounds.Rounds`.

    Simulated rows that tell nothing where the fit starts are not used.
    """
    size = model.dimension
    rng = np.random.default_rng(0)
    if simulated is None:
        drawn = _DEFAULT_SCORE_SD * rng.normal(size=(max(500, size), outcomes + 1, size))
        typical = None if model.weights is None else (model.weights.typical, np.ones(1))
        return Rounds(lambda _: drawn, [np.zeros(size)], noise, early, outcomes, rate, typical)
    at = simulated_scores(model, simulated, outcomes)
    if not at(np.zeros(size)).any():
        return start_rounds(model, None, noise, early, outcomes, rate)
    positions = [np.zeros(size), *(0.5 * rng.normal(size=(_CURVATURE_POINTS - 1, size)))]
    return Rounds(at, positions, noise, early, outcomes, rate, _weights(model, simulated))


def _weights(model: UnitModel, simulated: Units) -> tuple[float, Floats] | None:
    """A typical weight, and the weights of simulated units relative to it; None if the model has none."""
    if model.weights is None:
        return None
    relative = jax.vmap(model.weights.relative)(*simulated)
    return model.weights.typical, np.asarray(relative, np.float64)


def simulated_scores(
    model: UnitModel, simulated: Units, outcomes: int
) -> Callable[[Floats], Floats]:
    """Scores of simulated units at a position where the prior is round, [units, outcomes + 1, size]; zero if not finite."""
    space = whiten_prior(model)
    scores = _compiled_scores(model, outcomes + 1)

    def at(position: Floats) -> Floats:
        theta = np.asarray(space.mean + space.scale @ position, np.float32)
        found = np.asarray(scores(theta, simulated, model.constants), np.float64) @ space.scale
        return np.where(np.isfinite(found).all(axis=(1, 2), keepdims=True), found, 0.0)

    return at


@lru_cache(maxsize=32)
def _compiled_scores(model: UnitModel, outcomes: int) -> Callable[..., jax.Array]:
    """Scores of simulated units for outcomes that the model draws, [units, outcomes, size]."""

    def of_unit(key: jax.Array, theta: jax.Array, unit: Units, constants: ArrayTree) -> jax.Array:
        return drawn_scores(model, theta, *unit, constants, key, outcomes)

    def of_all(theta: jax.Array, units: Units, constants: ArrayTree) -> jax.Array:
        keys = jax.random.split(jax.random.key(0, impl="threefry2x32"), units.length)
        return jax.vmap(of_unit, in_axes=(0, None, 0, None))(keys, theta, units, constants)

    return stored_jit(of_all, model.program_key(f"scores {outcomes}"))


def method_result(model: UnitModel, result: ScoringResult, rounds: Rounds) -> MethodResult:
    """The posterior in the coordinates of the model."""
    space = whiten_prior(model)
    vectors = space.mean + result.draws @ space.scale.T
    positions = np.array([each.position for each in rounds.records]) @ rounds.basis.T
    return MethodResult(
        draws=constrained_draws(model, jnp.asarray(vectors, jnp.float32)),
        trace={"mean": space.mean + positions @ space.scale.T},
        converged=result.converged,
        messages=result.messages,
        intervals=Intervals.INCLUDED,
        unconstrained_mean=vectors.mean(axis=0),
        unconstrained_covariance=np.atleast_2d(np.cov(vectors.T)),
    )

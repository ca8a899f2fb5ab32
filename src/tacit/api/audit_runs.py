"""The parts of an audit: the canary, what an observer sees of each run, the runs, and the lower bound on epsilon.

A fair coin decides for each run which of two neighbouring data sets it has. An observer looks at what was released and
guesses the coin, or abstains. Under (epsilon, delta) a guess is right with a probability of at most
e^epsilon / (1 + e^epsilon), except in runs that are lost with a probability of at most delta each. More right guesses than
that contradict the claim. Nothing is assumed about the distribution of releases; "Audits" in the documentation has the proof.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import log_ndtr
from numpy.typing import NDArray
from scipy import special, stats

from tacit._typing import Array, ArrayTree, Floats, HostArray, PyTree
from tacit.api.plan import Plan
from tacit.api.rows import model_columns
from tacit.data.columns import Category
from tacit.errors import InvalidArgument
from tacit.inference.method import Steps
from tacit.inference.result import MethodResult
from tacit.models.base import Row
from tacit.privacy.gate import Gate, open_gate, run
from tacit.privacy.mechanisms import (
    BarkerTests,
    Mechanism,
    NoisySums,
    Release,
    UnitFunction,
    has_secrets,
    without_stop,
)
from tacit.privacy.noise import Randomness
from tacit.privacy.rows import Rows, Units
from tacit.privacy.trace import Step

# Mechanisms whose every release an observer can use.
ObservableMechanism = NoisySums | BarkerTests
Columns = dict[str, HostArray]
Coins = NDArray[np.bool_]

# The observer. Part of the error probability that pays for the runs lost to delta.
_DELTA_ERROR_SHARE = 0.1
# Shares of the runs that it may guess on: the ones it is surest of.
_GUESS_SHARES = np.geomspace(0.001, 1.0, 60)
# Its logistic regression: the precision of the prior, and Newton's steps.
_RIDGE, _NEWTON_STEPS = 1.0, 30
# It plans with an error probability that is smaller by this factor. It then guesses on more runs, and luck matters less.
_PLANNING_FACTOR = 50
# Words that stand for a unit's secret ones, which the observer does not know.
_NUM_SECRETS = 8
# Numbers of the draws that it takes into account, if it does not see releases.
_MAX_FEATURES = 40

# The canary. Candidates within the bounds; columns that are tried beyond them, and by which factors.
_CANDIDATES_WITHIN, _MAX_COLUMNS_BEYOND, _FACTORS_BEYOND = 32, 24, (3.0, 10.0, 100.0, 1e4)
# A canary within the bounds is preferred if it has this share of the best one's strength.
_MIN_RELATIVE_STRENGTH = 0.95
# Parameter vectors at which likelihoods of candidates are compared, where there are no steps.
_NUM_POINTS = 64

# Runs between two calls of progress, and steps whose noise is drawn at once.
_PROGRESS_INTERVAL, _NOISE_BLOCK = 1_000, 1_000


@dataclass(frozen=True)
class Observer:
    """Log odds of the coin by what is seen of a run, and how sure it must be to guess."""

    weights: Floats
    centre: Floats
    spread: Floats
    least: float = 0.0

    def log_odds(self, seen: Floats) -> Floats:
        """Of heads, for each run."""
        odds: Floats = self.weights[0] + (seen - self.centre) / self.spread @ self.weights[1:]
        return odds

    def guesses(self, seen: Floats, coins: Coins) -> tuple[int, int]:
        """How many guesses are right, and how many there are."""
        odds = self.log_odds(seen)
        made = np.abs(odds) > self.least
        return int((made & ((odds > 0) == coins)).sum()), int(made.sum())


def lower_bound(right: float, guesses: float, runs: int, delta: float, error: float) -> float:
    """The largest epsilon that guesses contradict, with a chance of at most ``error`` to be wrong.

    Of ``runs`` runs, ``guesses`` were guessed on and ``right`` of them rightly. Zero if nothing
    is contradicted.
    """
    lost = stats.binom.isf(_DELTA_ERROR_SHARE * error, runs, delta)
    left = error - stats.binom.sf(lost, runs, delta)
    counted = right - lost
    if counted <= 0:
        return 0.0
    chance = stats.beta.ppf(left, counted, guesses - right + 1)
    return max(float(np.log(chance) - np.log1p(-chance)), 0.0)


def train_observer(seen: Floats, coins: Coins, fresh: int, delta: float, error: float) -> Observer:
    """An observer that has learned from some runs, for ``fresh`` others.

    It guesses where it expects the highest bound from that. Whatever it learns, the bound holds:
    the others are new to it.
    """
    spread = seen.std(axis=0)
    centre, spread = seen.mean(axis=0), np.where(spread > 0, spread, 1.0)
    standard = np.column_stack([np.ones(len(seen)), (seen - centre) / spread])
    weights = _logistic_regression(standard, coins)
    sure = np.sort(np.abs(standard @ weights))[::-1]
    places = np.unique(np.ceil(_GUESS_SHARES * (len(sure) - 1)).astype(int))
    right = np.cumsum(special.expit(sure))[places - 1] / len(sure) * fresh
    bounds = [
        lower_bound(r, p / len(sure) * fresh, fresh, delta, error / _PLANNING_FACTOR)
        for r, p in zip(right, places, strict=True)
    ]
    return Observer(weights, centre, spread, float(sure[places[int(np.argmax(bounds))]]))


def _logistic_regression(inputs: Floats, coins: Coins) -> Floats:
    """Weights by Newton's steps, held a little towards zero so that they exist."""
    weights = np.zeros(inputs.shape[1])
    for _ in range(_NEWTON_STEPS):
        chance = special.expit(inputs @ weights)
        slope = inputs.T @ (coins - chance) - _RIDGE * weights
        curve = (inputs.T * (chance * (1 - chance))) @ inputs + _RIDGE * np.eye(len(weights))
        weights = weights + np.linalg.solve(curve, slope)
    return weights


class ObservedPlan(NamedTuple):
    """A plan whose every release an observer sees: what is charged, and the steps that are made."""

    mechanism: ObservableMechanism
    steps: Steps


@dataclass(frozen=True)
class Observation:
    """One release, and what each simulated unit contributes to it if it takes part, in clips.

    Where units have secret words, it is the mean over some words: nobody knows those of a run.
    """

    released: Array
    shift: Array
    units: Array


class _ObservingRelease:
    """Takes the place of a step's release: passes each call on, and records what an observer sees of it."""

    def __init__(self, release: Release, mechanism: ObservableMechanism, units: Units) -> None:
        self._release, self._mechanism, self._observed = release, mechanism, units
        self.observation: Observation

    def noisy_sum(self, per_unit: UnitFunction, arguments: PyTree) -> Array:
        released = self._release.noisy_sum(per_unit, arguments)
        return self._record(released, per_unit, arguments, has_secret=has_secrets(self._mechanism))

    def noisy_test(self, per_unit: UnitFunction, arguments: PyTree, shift: Array) -> Array:
        bit = self._release.noisy_test(per_unit, arguments, shift)
        return self._record(bit, per_unit, arguments, shift)

    def _record(
        self,
        released: Array,
        per_unit: UnitFunction,
        arguments: PyTree,
        shift: "Array | float" = 0.0,
        *,
        has_secret: bool = False,
    ) -> Array:
        order = 1 if isinstance(self._mechanism, NoisySums) and self._mechanism.laplace else 2

        def clipped(rows: Row, present: Array, *secret: Array) -> Array:
            value = per_unit(arguments, rows, present, *secret).astype(jnp.float32).reshape(-1)
            value = jnp.where(jnp.isfinite(value).all(), value, 0.0)
            return value / jnp.maximum(jnp.linalg.norm(value, order), self._mechanism.clip)

        def expected(rows: Row, present: Array) -> Array:
            if not has_secret:
                return clipped(rows, present)
            secrets = jax.random.bits(jax.random.key(0, impl="threefry2x32"), (_NUM_SECRETS, 2))
            return jax.vmap(lambda secret: clipped(rows, present, secret))(secrets).mean(axis=0)

        contributions = jnp.asarray(jax.vmap(expected)(*self._observed))
        self.observation = Observation(released, jnp.asarray(shift), contributions)
        return released


@lru_cache(maxsize=8)
def observing_step(step: Step, mechanism: ObservableMechanism, others: int) -> Step:
    """A step that returns a log-likelihood ratio of its release for each canary, instead of its own output.

    Its state has the simulated units beside it: first ``others`` units, then the canaries. The ratio takes the noise of
    a sum to have a scale of one clip; `run_scores` corrects this.
    """

    def observing(state: PyTree, inputs: PyTree, release: Release) -> tuple[PyTree, PyTree]:
        inner, units = state
        observer = _ObservingRelease(release, mechanism, units)
        inner, _ = step(inner, inputs, observer)  # type: ignore[arg-type]
        return (inner, units), _log_likelihood_ratio(mechanism, observer.observation, others)

    return observing


@lru_cache(maxsize=8)
def measuring_step(step: Step, mechanism: ObservableMechanism) -> Step:
    """A step that adds up inner products of the contributions of simulated units.

    Its state has the units and the sums beside it.
    """

    def measuring(state: PyTree, inputs: PyTree, release: Release) -> tuple[PyTree, PyTree]:
        inner, units, sums = state
        observer = _ObservingRelease(release, mechanism, units)
        inner, _ = step(inner, inputs, observer)  # type: ignore[arg-type]
        found = observer.observation.units
        return (inner, units, sums + found @ found.T), jnp.zeros(())

    return measuring


def _log_likelihood_ratio(
    mechanism: ObservableMechanism, observed: Observation, others: int
) -> Array:
    rest, canaries = observed.units[:others], observed.units[others:]
    if isinstance(mechanism, BarkerTests):
        base = mechanism.clip * rest.sum() + observed.shift
        with_each = base + mechanism.clip * canaries[:, 0]
        return _log_probability(mechanism, observed.released, with_each) - _log_probability(
            mechanism, observed.released, base
        )
    total = observed.released / mechanism.clip - mechanism.sampling_rate * rest.sum(axis=0)
    if mechanism.laplace:
        return (jnp.abs(total) - jnp.abs(total - canaries)).sum(axis=1)
    return canaries @ total - jnp.square(canaries).sum(axis=1) / 2


def _log_probability(mechanism: BarkerTests, accepted: Array, logit: Array) -> Array:
    """The log probability of a decision, by the mechanism that is charged."""
    signed = jnp.where(accepted, logit, -logit)
    if mechanism.noise_variance is None:
        return jax.nn.log_sigmoid(signed)
    return log_ndtr(signed / mechanism.noise_variance**0.5)


def run_scores(mechanism: ObservableMechanism, ratios: NDArray[np.floating]) -> Floats:
    """The log-likelihood ratio of a whole run for each canary being present against absent.

    Args:
        mechanism: What is charged.
        ratios: The ratios of `observing_step`, [steps, canaries].
    """
    each = ratios.astype(np.float64)
    if isinstance(mechanism, NoisySums):
        scales, steps = zip(*mechanism.phases, strict=True)
        noise = np.repeat(np.asarray(scales), steps)[:, None]
        each /= noise if mechanism.laplace else noise**2
        rate = mechanism.sampling_rate
        if rate < 1:
            each = np.logaddexp(np.log1p(-rate), np.log(rate) + each)
    total: Floats = each.sum(axis=0)
    return total


@dataclass(frozen=True, eq=False)
class AuditData:
    """Simulated units: the others, and one canary that is added, or two of which one replaces the other.

    ``strength`` is the root mean square of how far the canary moves a release, in clips, or of the distance of two
    canaries. None where it is not known. ``beyond`` says whether a canary lies beyond the schema's bounds.
    """

    others: Columns
    canaries: Columns
    beyond: bool
    strength: float | None
    most_rows: int | None

    @property
    def counts(self) -> tuple[int, int]:
        """How many others and canaries there are."""
        return _num_rows(self.others), _num_rows(self.canaries)

    def describe(self, unit: str) -> str:
        """The canary in words. It is simulated, so nothing in it is private."""
        where = "beyond the schema's bounds" if self.beyond else "within the schema's bounds"
        pair = self.counts[1] == 2
        what = (
            f"two simulated units {where}, one in place of the other"
            if pair
            else (f"a simulated {unit} {where}, there or not")
        )
        if self.strength is None:
            return what
        moves = "lie {:.3g} clips apart" if pair else "moves a release by {:.3g} clips"
        return f"{what}, which {moves.format(self.strength)}"

    def rows(self, *canaries: int) -> Rows:
        """The others, with these canaries."""
        chosen = {
            name: np.concatenate([values, self.canaries[name][list(canaries)]])
            for name, values in self.others.items()
        }
        return as_rows(chosen, self.most_rows)

    @property
    def units(self) -> Units:
        """All units, first the others."""
        everyone = {n: np.concatenate([v, self.canaries[n]]) for n, v in self.others.items()}
        return as_units(everyone, self.most_rows)


def as_rows(columns: Columns, most_rows: int | None) -> Rows:
    """Private rows, each row a unit, or as many times over as a person may have rows."""
    if most_rows is None:
        return Rows(columns)
    repeated = {name: np.repeat(values, most_rows, axis=0) for name, values in columns.items()}
    people = np.repeat(np.arange(_num_rows(columns)), most_rows)
    return Rows.by_person(repeated, people, most_rows)


def as_units(columns: Columns, most_rows: int | None) -> Units:
    """The same as arrays [units, rows, ...], and which rows are real: all."""
    copies = most_rows or 1
    fields = {
        name: jnp.asarray(np.repeat(np.asarray(values)[:, None], copies, axis=1))
        for name, values in columns.items()
    }
    return Units(fields, jnp.ones((_num_rows(columns), copies), jnp.bool_))


def choose_canary(
    plan: Plan, observed: ObservedPlan | None, others: int, *, seed: int
) -> AuditData:
    """Simulates others, and chooses the candidate that moves the releases of one run on the others most."""
    assert plan.schema is not None
    names = model_columns(plan.model, plan.schema)
    beside = dict(plan.schema.dummy_rows(others, names=names, seed=seed + 1))
    tried, within = _candidates(plan, seed, beyond=observed is not None)
    if observed is None:
        products, strength_known = _similarity_by_density(plan, tried), False
    else:
        products, strength_known = _similarity_by_steps(plan, observed, tried, beside), True
    replace = plan.budget.adjacency == "replace"
    chosen, strength = _strongest_canary(products, within, replace=replace)
    if not strength > 0:
        raise InvalidArgument(
            "No simulated row changes what is released, so that there is nothing to audit."
        )
    return AuditData(
        others=beside,
        canaries={name: values[chosen] for name, values in tried.items()},
        beyond=max(chosen) >= within,
        strength=float(np.sqrt(strength)) if strength_known else None,
        most_rows=plan.schema.most_rows,
    )


def _candidates(plan: Plan, seed: int, *, beyond: bool) -> tuple[Columns, int]:
    """Simulated rows, first those within the bounds, and how many these are."""
    assert plan.schema is not None
    names = model_columns(plan.model, plan.schema)
    inside = dict(plan.schema.dummy_rows(_CANDIDATES_WITHIN, names=names, seed=seed))
    tried = [inside]
    numbers = [name for name in names if not isinstance(plan.schema[name], Category)]
    for name in numbers[-_MAX_COLUMNS_BEYOND:] if beyond else ():
        far = np.outer(_FACTORS_BEYOND, (1, -1)).ravel() * max(
            float(np.abs(inside[name]).max()), 1.0
        )
        rows = {each: np.repeat(values[:1], len(far), axis=0) for each, values in inside.items()}
        rows[name][...] = far.reshape(-1, *[1] * (rows[name].ndim - 1))
        tried.append(rows)
    return {
        name: np.concatenate([each[name] for each in tried]) for name in names
    }, _CANDIDATES_WITHIN


def _similarity_by_steps(
    plan: Plan, observed: ObservedPlan, tried: Columns, others: Columns
) -> Floats:
    """Mean inner products of what candidates contribute, over the steps of one run on the others."""
    mechanism, steps = observed
    most_rows = plan.schema.most_rows if plan.schema else None
    units = as_units(tried, most_rows)
    count = _num_rows(tried)
    gate = Gate(as_rows(others, most_rows), mechanism, Randomness(0))
    step = measuring_step(steps.step, mechanism)
    state = steps.state, units, jnp.zeros((count, count))
    (_, _, sums), _ = run(gate, step, state, steps.inputs)
    found: Floats = np.asarray(sums, np.float64) / mechanism.num_steps
    return found


def _similarity_by_density(plan: Plan, tried: Columns) -> Floats:
    """Mean products of candidates' centred log likelihoods at some parameters, for runs that are not made of steps."""
    model = plan.model
    rows, present = as_units(tried, plan.schema.most_rows if plan.schema else None)
    places = jax.random.normal(jax.random.key(0), (_NUM_POINTS, model.dimension))

    @jax.jit
    def density(rows: Row, present: Array, constants: ArrayTree) -> Array:
        def at(place: Array, fields: Row, there: Array) -> Array:
            return model.log_likelihood(place, fields, there, constants)

        over_units = jax.vmap(at, in_axes=(None, 0, 0))
        return jax.vmap(over_units, in_axes=(0, None, None))(places, rows, present)

    found = np.asarray(density(rows, present, model.constants), np.float64)
    found = np.where(np.isfinite(found), found, 0.0)
    found -= found.mean(axis=0)
    products: Floats = found.T @ found / len(found)
    return products


def _strongest_canary(products: Floats, within: int, *, replace: bool) -> tuple[list[int], float]:
    """The strongest candidate or pair of candidates, and its squared strength. One within the bounds is preferred."""
    sizes = np.diag(products)
    if not replace:
        inner, best = int(np.argmax(sizes[:within])), int(np.argmax(sizes))
        chosen = inner if sizes[inner] >= _MIN_RELATIVE_STRENGTH * sizes[best] else best
        return [chosen], float(sizes[chosen])
    apart = sizes[:, None] + sizes - 2 * products
    inner_pair = np.unravel_index(np.argmax(apart[:within, :within]), (within, within))
    pair = np.unravel_index(np.argmax(apart), apart.shape)
    chosen_pair = inner_pair if apart[inner_pair] >= _MIN_RELATIVE_STRENGTH * apart[pair] else pair
    return [int(each) for each in chosen_pair], float(apart[chosen_pair])


def _num_rows(columns: Columns) -> int:
    return len(next(iter(columns.values())))


@dataclass(frozen=True, kw_only=True, eq=False)
class AuditRuns:
    """Runs of a plan, each on one of two neighbouring sets of simulated units, as its coin says.

    ``mechanism`` is what the gates execute: the plan's own, or one with less noise.
    """

    plan: Plan
    mechanism: Mechanism
    data: AuditData
    coins: Coins
    source: Randomness
    progress: Callable[[int, int], None] | None = None

    def releases(self, observed: ObservedPlan) -> Floats:
        """The log-likelihood ratio of the coin by all releases of each run, [runs, 1]."""
        charged, steps = observed
        others, canaries = self.data.counts
        step = observing_step(steps.step, charged, others)
        state = steps.state, self.data.units
        found = []
        for gate in self._gates():
            _, ratios = run(gate, step, state, steps.inputs, block=_NOISE_BLOCK)
            found.append(run_scores(charged, ratios))
        each = np.stack(found)
        return each if canaries == 1 else each[:, 1:] - each[:, :1]

    def draws(self) -> Floats:
        """Means and log standard deviations of each run's draws, [runs, numbers]."""
        key = jax.random.key(0)
        method, model = self.plan.method, self.plan.model
        found = [
            _draw_features(method.run(model, gate, jax.random.fold_in(key, i)))
            for i, gate in enumerate(self._gates())
        ]
        return np.stack(found)

    def _gates(self) -> Iterator[Gate]:
        """A gate for each run in turn."""
        worlds = self._worlds()
        for done, coin in enumerate(self.coins):
            if self.progress is not None and done and done % _PROGRESS_INTERVAL == 0:
                self.progress(done, len(self.coins))
            mechanism = without_stop(self.mechanism)  # more is seen of a run that goes on
            yield open_gate(worlds[int(coin)], mechanism, self.source.child("run"))
        if self.progress is not None:
            self.progress(len(self.coins), len(self.coins))

    def _worlds(self) -> tuple[Rows, Rows]:
        """The two data sets: what a run gets if its coin is 0, and if it is 1."""
        if self.data.counts[1] == 1:
            return self.data.rows(), self.data.rows(0)
        return self.data.rows(0), self.data.rows(1)


def with_broken_noise(mechanism: ObservableMechanism, factor: float) -> ObservableMechanism:
    """A mechanism with the noise times a factor; for tests, with the bound of a unit divided by it."""
    if isinstance(mechanism, NoisySums):
        # Phases are those of all rounds.
        phases = tuple((factor * scale, steps) for scale, steps in mechanism.phases)
        return replace(mechanism, noise_multiplier=phases, rounds=1)
    return replace(mechanism, ratio_bound=mechanism.ratio_bound / factor)


def _draw_features(found: MethodResult) -> Floats:
    draws = [np.asarray(each, np.float64) for each in found.draws.values()]
    flat = np.concatenate([each.reshape(len(each), -1) for each in draws], axis=1)
    several = len(flat) > 1
    parts = [flat.mean(axis=0)] + ([np.log(flat.std(axis=0) + 1e-9)] if several else [])
    return np.concatenate([part[:_MAX_FEATURES] for part in parts])

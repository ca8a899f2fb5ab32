"""The parts of an audit: the canary, what an observer sees of each run, the runs, and the lower bound on epsilon.

A fair coin decides for each run which of two neighbouring data sets it has. An observer looks at what was released and
guesses the coin, or abstains. Under (epsilon, delta) a guess is right with a probability of at most
e^epsilon / (1 + e^epsilon), except in runs that are lost with a probability of at most delta each. More right guesses than
that contradict the claim. Nothing is assumed about the distribution of releases; docs/audit.md has the proof.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import log_ndtr
from numpy.typing import NDArray
from scipy import special, stats

from tacit.api.plan import Plan
from tacit.api.rows import model_columns
from tacit.data.columns import Category
from tacit.errors import InvalidArgument
from tacit.inference.method import MethodResult, Steps
from tacit.models.base import Row
from tacit.privacy.gate import Gate, open_gate, run
from tacit.privacy.mechanisms import (
    BarkerTests,
    Mechanism,
    NoisySums,
    Release,
    UnitFunction,
    has_secrets,
)
from tacit.privacy.noise import Randomness
from tacit.privacy.rows import Rows, Units
from tacit.privacy.trace import Step

# The part of the error probability that pays for the runs lost to delta.
_DELTA_ERROR_SHARE = 0.1
# Shares of the runs that an observer may guess on: the ones it is surest of.
_GUESS_SHARES = np.geomspace(0.001, 1.0, 60)
_RIDGE, _NEWTON_STEPS = 1.0, 30
# How much less error than there is it plans with: on more guesses, so that luck matters less.
_PLANNING_FACTOR = 50

Floats = NDArray[np.float64]
Coins = NDArray[np.bool_]


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


# Mechanisms of whose releases an observer can make use.
ObservableMechanism = NoisySums | BarkerTests
# Secret bits that are tried for a unit, as the observer does not know its own.
_NUM_SECRETS = 8


class ObservedPlan(NamedTuple):
    """A plan whose every release an observer sees: what is charged, and the steps that are made."""

    mechanism: ObservableMechanism
    steps: Steps


@dataclass(frozen=True)
class Observation:
    """One release, and what each made-up unit contributes to it if it takes part, in clips.

    Where units have secret bits, on average over them: nobody knows those of a run.
    """

    released: jax.Array
    shift: jax.Array
    units: jax.Array


class _ObservingRelease:
    """Stands for a step's release: passes it on, and keeps what is seen of it."""

    def __init__(self, release: Release, mechanism: ObservableMechanism, units: Units) -> None:
        self._release, self._mechanism, self._made_up = release, mechanism, units
        self.seen: Observation

    def noisy_sum(self, per_unit: UnitFunction, arguments: Any) -> jax.Array:
        released = self._release.noisy_sum(per_unit, arguments)
        return self._kept(released, per_unit, arguments, by_secrets=has_secrets(self._mechanism))

    def noisy_test(self, per_unit: UnitFunction, arguments: Any, shift: jax.Array) -> jax.Array:
        bit = self._release.noisy_test(per_unit, arguments, shift)
        return self._kept(bit, per_unit, arguments, shift)

    def _kept(
        self,
        released: jax.Array,
        per_unit: Callable[..., Any],
        arguments: Any,
        shift: jax.Array | float = 0.0,
        *,
        by_secrets: bool = False,
    ) -> jax.Array:
        order = 1 if isinstance(self._mechanism, NoisySums) and self._mechanism.laplace else 2

        def each(rows: Row, present: jax.Array, *own: jax.Array) -> jax.Array:
            value = _zero_if_not_finite(per_unit(arguments, rows, present, *own)).reshape(-1)
            return value / jnp.maximum(jnp.linalg.norm(value, order), self._mechanism.clip)

        def expected(rows: Row, present: jax.Array) -> jax.Array:
            if not by_secrets:
                return each(rows, present)
            tried = jax.random.bits(jax.random.key(0, impl="threefry2x32"), (_NUM_SECRETS, 2))
            return jax.vmap(lambda own: each(rows, present, own))(tried).mean(axis=0)

        clipped = jnp.asarray(jax.vmap(expected)(*self._made_up))
        self.seen = Observation(released, jnp.asarray(shift), clipped)
        return released


def _zero_if_not_finite(value: jax.Array) -> jax.Array:
    value = value.astype(jnp.float32)
    return jnp.where(jnp.isfinite(value).all(), value, 0.0)


@lru_cache(maxsize=8)
def observing_step(step: Step, mechanism: ObservableMechanism, others: int) -> Step:
    """A step that returns what its release says of each canary, instead of what it did.

    Its state has the made-up units beside it: so many others, then the canaries. What is said is
    a log-likelihood ratio, in which the noise is taken to be one clip wide, or for tests as it is;
    `run_scores` makes scores of it.
    """

    def watching(state: Any, given: Any, release: Release) -> tuple[Any, Any]:
        own, units = state
        witness = _ObservingRelease(release, mechanism, units)
        own, _ = step(own, given, witness)  # type: ignore[arg-type]
        return (own, units), _log_likelihood_ratio(mechanism, witness.seen, others)

    return watching


@lru_cache(maxsize=8)
def measuring_step(step: Step, mechanism: ObservableMechanism) -> Step:
    """A step that adds up how much alike the contributions of made-up units are.

    Its state has the units and the sums beside it.
    """

    def measuring(state: Any, given: Any, release: Release) -> tuple[Any, Any]:
        own, units, sums = state
        witness = _ObservingRelease(release, mechanism, units)
        own, _ = step(own, given, witness)  # type: ignore[arg-type]
        found = witness.seen.units
        return (own, units, sums + found @ found.T), jnp.zeros(())

    return measuring


def _log_likelihood_ratio(
    mechanism: ObservableMechanism, seen: Observation, others: int
) -> jax.Array:
    rest, canaries = seen.units[:others], seen.units[others:]
    if isinstance(mechanism, BarkerTests):
        base = mechanism.clip * rest.sum() + seen.shift
        with_each = base + mechanism.clip * canaries[:, 0]
        return _log_probability(mechanism, seen.released, with_each) - _log_probability(
            mechanism, seen.released, base
        )
    total = seen.released / mechanism.clip - mechanism.sampling_rate * rest.sum(axis=0)
    if mechanism.laplace:
        return (jnp.abs(total) - jnp.abs(total - canaries)).sum(axis=1)
    return canaries @ total - jnp.square(canaries).sum(axis=1) / 2


def _log_probability(mechanism: BarkerTests, accepted: jax.Array, logit: jax.Array) -> jax.Array:
    """Of a decision, as it is charged."""
    signed = jnp.where(accepted, logit, -logit)
    if mechanism.noise_variance is None:
        return jax.nn.log_sigmoid(signed)
    return log_ndtr(signed / mechanism.noise_variance**0.5)


def run_scores(mechanism: ObservableMechanism, said: NDArray[np.floating]) -> NDArray[np.float64]:
    """Scores of the canaries, by what was said [steps, canaries]: log-likelihood ratios.

    Of each canary being there against nobody in its place, over the whole run.
    """
    each = said.astype(np.float64)
    if isinstance(mechanism, NoisySums):
        scales, steps = zip(*mechanism.phases, strict=True)
        noise = np.repeat(np.asarray(scales), steps)[:, None]
        each /= noise if mechanism.laplace else noise**2
        rate = mechanism.sampling_rate
        if rate < 1:
            each = np.logaddexp(np.log1p(-rate), np.log(rate) + each)
    total: NDArray[np.float64] = each.sum(axis=0)
    return total


# Candidates within the bounds, how many columns are tried beyond them, and how far.
_CANDIDATES_WITHIN, _MAX_COLUMNS_BEYOND, _FACTORS_BEYOND = 32, 24, (3.0, 10.0, 100.0, 1e4)
# A canary within the bounds is taken if it says this much of what the best one says.
_MIN_RELATIVE_STRENGTH = 0.95
_NUM_POINTS = 64

Columns = dict[str, NDArray[Any]]


@dataclass(frozen=True, eq=False)
class AuditData:
    """The others, and the canaries: one that is added, or two of which one replaces the other.

    ``strength`` is how far the canary moves a release, in clips, by its mean square; or for two,
    how far they are apart. None where that is not known.
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
        """In words; made up, so that all of it may be told."""
        where = "beyond the schema's bounds" if self.beyond else "within the schema's bounds"
        pair = self.counts[1] == 2
        what = (
            f"two made-up units {where}, one in place of the other"
            if pair
            else (f"a made-up {unit} {where}, there or not")
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
        """All of them, in the form that a witness takes."""
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


def choose_canary(plan: Plan, watched: ObservedPlan | None, others: int, *, seed: int) -> AuditData:
    """Others, and the canary that says most of many that are tried in one run on the others."""
    assert plan.schema is not None
    names = model_columns(plan.model, plan.schema)
    beside = dict(plan.schema.made_up(others, names=names, seed=seed + 1))
    tried, within = _candidates(plan, seed, beyond=watched is not None)
    if watched is None:
        alike, strength_known = _similarity_by_density(plan, tried), False
    else:
        alike, strength_known = _similarity_by_steps(plan, watched, tried, beside), True
    replace = plan.budget.adjacency == "replace"
    chosen, strength = _strongest_canary(alike, within, replace=replace)
    if not strength > 0:
        raise InvalidArgument(
            "No made-up row changes what is released, so that there is nothing to audit."
        )
    return AuditData(
        others=beside,
        canaries={name: values[chosen] for name, values in tried.items()},
        beyond=max(chosen) >= within,
        strength=float(np.sqrt(strength)) if strength_known else None,
        most_rows=plan.schema.most_rows,
    )


def _candidates(plan: Plan, seed: int, *, beyond: bool) -> tuple[Columns, int]:
    """Made-up rows: first those within the bounds, whose number is told, then some beyond them."""
    assert plan.schema is not None
    names = model_columns(plan.model, plan.schema)
    inside = dict(plan.schema.made_up(_CANDIDATES_WITHIN, names=names, seed=seed))
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
    plan: Plan, watched: ObservedPlan, tried: Columns, others: Columns
) -> NDArray[np.float64]:
    """Mean products of what candidates contribute, over the steps of one run on the others."""
    mechanism, steps = watched
    most_rows = plan.schema.most_rows if plan.schema else None
    units = as_units(tried, most_rows)
    count = _num_rows(tried)
    gate = Gate(as_rows(others, most_rows), mechanism, Randomness(0))
    step = measuring_step(steps.step, mechanism)
    state = steps.state, units, jnp.zeros((count, count))
    (_, _, sums), _ = run(gate, step, state, steps.inputs)
    found: NDArray[np.float64] = np.asarray(sums, np.float64) / mechanism.num_steps
    return found


def _similarity_by_density(plan: Plan, tried: Columns) -> NDArray[np.float64]:
    """Products of what candidates say of some places, where a run is not made of steps."""
    model = plan.model
    rows, present = as_units(tried, plan.schema.most_rows if plan.schema else None)
    places = jax.random.normal(jax.random.key(0), (_NUM_POINTS, model.dimension))

    @jax.jit
    def density(rows: Row, present: jax.Array, constants: Any) -> Any:
        def at(place: jax.Array, fields: Row, there: jax.Array) -> jax.Array:
            return model.unit_density(place, fields, there, constants)

        over_units = jax.vmap(at, in_axes=(None, 0, 0))
        return jax.vmap(over_units, in_axes=(0, None, None))(places, rows, present)

    found = np.asarray(density(rows, present, model.constants), np.float64)
    found = np.where(np.isfinite(found), found, 0.0)
    found -= found.mean(axis=0)
    products: NDArray[np.float64] = found.T @ found / len(found)
    return products


def _strongest_canary(
    alike: NDArray[np.float64], within: int, *, replace: bool
) -> tuple[list[int], float]:
    """The canary or the pair of canaries that says most, and how much: within the bounds if it can be."""
    sizes = np.diag(alike)
    if not replace:
        inner, best = int(np.argmax(sizes[:within])), int(np.argmax(sizes))
        chosen = inner if sizes[inner] >= _MIN_RELATIVE_STRENGTH * sizes[best] else best
        return [chosen], float(sizes[chosen])
    apart = sizes[:, None] + sizes - 2 * alike
    inner_pair = np.unravel_index(np.argmax(apart[:within, :within]), (within, within))
    pair = np.unravel_index(np.argmax(apart), apart.shape)
    chosen_pair = inner_pair if apart[inner_pair] >= _MIN_RELATIVE_STRENGTH * apart[pair] else pair
    return [int(each) for each in chosen_pair], float(apart[chosen_pair])


def _num_rows(columns: Columns) -> int:
    return len(next(iter(columns.values())))


# Runs between two calls of progress, and steps whose noise is drawn at once.
_PROGRESS_INTERVAL, _NOISE_BLOCK = 1_000, 1_000
# Numbers of the draws that an observer takes into account.
_MAX_FEATURES = 40


@dataclass(frozen=True, kw_only=True, eq=False)
class AuditRuns:
    """Runs of a plan, each with one of two neighbouring sets of made-up units, as its coin says.

    ``mechanism`` is what the gates execute: the plan's own, or with noise that was broken.
    """

    plan: Plan
    mechanism: Mechanism
    made_up: AuditData
    coins: Coins
    source: Randomness
    progress: Callable[[int, int], None] | None = None

    def releases(self, seen: ObservedPlan) -> Floats:
        """What all releases of a run say of the coin: its log-likelihood ratio [runs, 1]."""
        charged, steps = seen
        others, canaries = self.made_up.counts
        step = observing_step(steps.step, charged, others)
        state = steps.state, self.made_up.units
        found = []
        for gate in self._gates():
            _, said = run(gate, step, state, steps.inputs, block=_NOISE_BLOCK)
            found.append(run_scores(charged, said))
        each = np.stack(found)
        return each if canaries == 1 else each[:, 1:] - each[:, :1]

    def draws(self) -> Floats:
        """Means and spreads of a run's draws: some numbers [runs, numbers]."""
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
            yield open_gate(worlds[int(coin)], self.mechanism, self.source.child("run"))
        if self.progress is not None:
            self.progress(len(self.coins), len(self.coins))

    def _worlds(self) -> tuple[Rows, Rows]:
        """The two data sets: what a run gets if its coin is 0, and if it is 1."""
        if self.made_up.counts[1] == 1:
            return self.made_up.rows(), self.made_up.rows(0)
        return self.made_up.rows(0), self.made_up.rows(1)


def with_broken_noise(mechanism: ObservableMechanism, factor: float) -> ObservableMechanism:
    """A mechanism whose noise is so many times what is charged; or a unit's say in a test the inverse."""
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

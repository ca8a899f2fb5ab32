"""Private Fisher scoring: a posterior whose intervals include the noise of privacy.

Each step asks the gate for one noisy sum over units, of bounded scores and of their curvature
(`tacit.inference.scores`), in coordinates in which the prior is round. Scores are clipped in the
metric of the curvature seen so far, so that every direction gets noise by what it can bear. Small
steps by that curvature go to where scores cancel the prior. All else is post-processing: how large
the curvature is follows by a filter that knows the noise, and the releases of the last steps make
the posterior (`tacit.inference.evidence`).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tacit import _validate
from tacit.accounting import Budget, calibrate, events
from tacit.errors import InvalidArgument
from tacit.inference.base import Found, Intervals, Progress, Steps, parameters, seed_of
from tacit.inference.evidence import Seen, posterior_of
from tacit.inference.scores import (
    FEWEST,
    LEVELS,
    Given,
    clipped_share,
    contribution,
    dispersion,
    final_noise,
    noise_of,
    parts_of,
    slope_noise,
    slope_ratio,
    width,
)
from tacit.inference.whitened import whitened
from tacit.models.model import AnyModel
from tacit.privacy.captured import refuse_captured
from tacit.privacy.fetch import side_by_side
from tacit.privacy.gate import Gate, check, run
from tacit.privacy.plans import NoisySums
from tacit.privacy.release import Release

# More numbers than this have a curvature too long to release.
MOST_NUMBERS = 64
# The first steps only find the way: so large a part of them, with so much more noise.
_EARLY, _LOUDER = 0.4, 1.6
# Of a step: how much slower noise makes it at most, and its length in standard deviations of a row.
_SLOWEST, _LONGEST = 0.2, 0.4
# Weight of the newest step in a slow average.
_FORGETTING = 0.03
# The clip grows with units over the variance of noise, from so many on, until noise is such a part
# of the sampling variance, or to so many times the usual. That of curvature grows until an entry's
# final noise is such a part of it.
_MANY, _NOISE_PART, _LOOSEST = 8.0, 0.2, 10.0
_ENTRY_NOISE, _WIDEST = 0.03, 2.0
# What there is of curvature after clipping, beside the noise of scores; and a limit to dispersion.
_USUAL_SHARE, _MOST_DISPERSED = 0.25, 2.0
# Log of one row's information over the prior's, before any is seen; and how long it is remembered.
_LEVEL, _LEVEL_SPREAD, _MEMORY = -1.5, 2.0, 0.998
# How much noise the shape of the metric may take on.
_SHAPE_TRUST = 0.06
# How much of a round metric is added to what is seen.
_ROUND = 0.05


@dataclass(frozen=True, kw_only=True)
class Scoring:
    """Settings of private Fisher scoring, the default method. All are public.

    Each of ``num_steps`` steps looks at a random part ``sampling_rate`` of the units. For each of
    them ``num_outcomes`` outcomes are drawn from the model, with which its own is compared: more
    need less noise and more time. ``batch_bound`` is a declared bound on the units in a batch.
    The model must be able to draw its outcomes, and have at most 64 unconstrained numbers.
    """

    sampling_rate: float = 0.1
    num_steps: int = 500
    num_outcomes: int = 4
    batch_bound: int = 2**17

    by_gradients: ClassVar[bool] = True
    assumptions: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "num_steps", _validate.count("num_steps", self.num_steps, least=4))
        _validate.rate("sampling_rate", self.sampling_rate)
        _validate.count("num_outcomes", self.num_outcomes, least=2)

    @property
    def _phases(self) -> tuple[int, int]:
        early = round(_EARLY * self.num_steps)
        return early, self.num_steps - early

    def _schedule(self, multiplier: float) -> tuple[tuple[float, int], ...]:
        early, late = self._phases
        return (_LOUDER * multiplier, early), (multiplier, late)

    def plan(self, model: AnyModel, noise_multiplier: float) -> NoisySums:
        """What the gate will do for this model; the noise is that of the late steps."""
        refuse_unfit(model)
        return NoisySums(
            sampling_rate=self.sampling_rate,
            num_steps=self.num_steps,
            clip=1.0,
            noise_multiplier=self._schedule(noise_multiplier),
            dimension=width(model.dimension),
            batch_bound=self.batch_bound,
            secrets=True,
        )

    def calibrated(self, model: AnyModel, budget: Budget) -> NoisySums:
        """What the gate will do, with the least noise that meets a budget."""
        refuse_unfit(model)
        early, late = self._phases
        guess = calibrate.noise_multiplier(
            budget,
            sampling_rate=self.sampling_rate,
            num_steps=max(1, round(late + early / _LOUDER**2)),
        )

        def event(multiplier: float) -> Any:
            return events.sampled_gaussian(list(self._schedule(multiplier)), self.sampling_rate)

        return self.plan(model, calibrate.calibrate(event, budget, guess=guess))

    def without_noise(self, model: AnyModel) -> NoisySums:
        """The same without privacy."""
        return self.plan(model, 0.0)

    def check(self, model: AnyModel, gate: Gate) -> None:
        """Raises what `run` would raise of the model, without reading a row."""
        refuse_captured(*model.searched)
        check(_step(self, model), _start(model), noise_of(gate.plan)[0], gate)

    def steps(
        self, model: AnyModel, plans: Sequence[NoisySums], keys: Sequence[jax.Array]
    ) -> Steps:
        """The fits as steps, side by side."""
        states = jax.tree.map(lambda leaf: jnp.stack([leaf] * len(keys)), _start(model))
        given = [noise_of(plan) for plan in plans]

        def inputs(first: int, steps: int) -> Any:
            return side_by_side([each[first : first + steps] for each in given])

        return Steps(_step(self, model), states, inputs)

    def run(
        self,
        model: AnyModel,
        gates: Sequence[Gate],
        keys: Sequence[jax.Array],
        progress: Progress | None = None,
    ) -> list[Found]:
        """A posterior for each gate."""
        plans = [gate.plan for gate in gates]
        _, trace = run(gates, *self.steps(model, plans, keys), progress=progress)
        each = zip(plans, keys, strict=True)
        return [
            _found(self, model, plan, jax.tree.map(lambda leaf, i=i: leaf[:, i], trace), key)
            for i, (plan, key) in enumerate(each)
        ]

    def describe(self, model: AnyModel) -> str:
        """A line for people."""
        return (
            f"Private Fisher scoring for {model.dimension} unconstrained numbers; "
            "intervals include the noise."
        )

    def expect(self, plan: NoisySums, many: str) -> str:
        """About how many units it takes to learn anything, from public numbers alone."""
        size = _size(plan)
        needed = 4 * final_noise(plan) * math.sqrt(size) / math.exp(_LEVEL / 2)
        few = f"{float(f'{needed:.1g}'):,.0f}"
        return (
            f"As a rule, fewer than about {few} {many} tell little more than the prior at this "
            "budget; intervals are then nearly the prior's."
        )


def refuse_unfit(model: AnyModel) -> None:
    """Raises if the method cannot fit a model."""
    if not model.simulates:
        raise InvalidArgument(
            "Scoring compares each outcome with draws of the model, and this model cannot draw its "
            "outcomes; give a tacit.Model simulate=, or use tacit.Variational()."
        )
    if model.dimension > MOST_NUMBERS:
        raise InvalidArgument(
            f"Scoring releases the curvature of all parameters, and {model.dimension} unconstrained "
            f"numbers have too much of it (at most {MOST_NUMBERS}); use tacit.Variational()."
        )


def suits(model: AnyModel) -> bool:
    """Whether the method can fit a model."""
    return model.simulates and model.dimension <= MOST_NUMBERS and not model.discrete


def _size(plan: NoisySums) -> int:
    """How many unconstrained numbers a plan is for."""
    return next(size for size in range(1, MOST_NUMBERS + 1) if width(size) == plan.dimension)


class State(NamedTuple):
    """Where a fit is. Follows from released values only.

    ``root`` is a Cholesky factor of the metric, ``level`` the logarithm of its scale. ``chances``
    are the log posterior of the curvature's level on a grid. ``slow`` has averages of its trace, of
    the slope and of the own outcomes'; ``counts`` sums for those of the units, the informative
    ones, and weights. ``dispersion`` is how much more outcomes vary than the model says.
    """

    place: jax.Array
    root: jax.Array
    level: jax.Array
    chances: jax.Array
    slow: jax.Array
    dispersion: jax.Array
    counts: jax.Array
    step: jax.Array
    mean: jax.Array
    scale: jax.Array
    constants: Any


def _start(model: AnyModel) -> State:
    space, size = whitened(model), model.dimension

    def made(numbers: Any) -> jax.Array:
        return jnp.asarray(np.asarray(numbers, np.float32))

    return State(
        place=made(np.zeros(size)),
        root=made(math.exp(_LEVEL / 2) * np.eye(size)),
        level=made(_LEVEL),
        chances=made(-0.5 * ((LEVELS - _LEVEL) / _LEVEL_SPREAD) ** 2),
        slow=made(np.zeros(3)),
        dispersion=made(1),
        counts=made(np.zeros(3)),
        step=made(0),
        mean=made(space.mean),
        scale=made(space.scale),
        constants=jax.tree.map(jnp.asarray, model.constants),
    )


@lru_cache(maxsize=32)
def _step(method: Scoring, model: AnyModel) -> Callable[[Any, Any, Release], tuple[Any, Any]]:
    """The step of a method on a model: the same object again, so that it compiles once."""
    size, rate = model.dimension, method.sampling_rate
    per_unit = contribution(model, method.num_outcomes)

    def step(state: State, given: Any, release: Release) -> tuple[Any, Any]:
        noise, final, pace, late, shares = given[0], given[1], given[2], given[3], given[4:]
        clips = _clips(state, final, size)
        arguments = Given(
            theta=state.mean + state.scale @ state.place,
            to_metric=jax.scipy.linalg.solve_triangular(state.root, state.scale.T, lower=True),
            clip=clips[0],
            wide=clips[1],
            shares=shares,
            constants=state.constants,
        )
        released = release.noisy_unit_sum(per_unit, arguments)
        seen = parts_of(released, size, rate, clips, shares)
        weight = 1 / jnp.maximum(noise, 1e-3) ** 2
        counts = state.counts + weight * jnp.stack([seen.count, seen.informative, jnp.ones(())])
        units, informative = _units(counts)
        now = jnp.stack([jnp.trace(seen.curvature), seen.slope, seen.own]) / units
        gain = jnp.maximum(_FORGETTING, 1 / (state.step + 1))
        slow = state.slow + gain * (now - state.slow)
        averaged = noise * jnp.sqrt(gain / (2 - gain)) * slope_noise(clips[0]) / units

        looser, wider = clips**2 / size
        off = wider * noise / (shares[1] * units)
        chances, trace, change = _level(state, now[0], off, informative, wider)
        root = _metric(state, seen.curvature / units, off, trace, change)
        known = averaged / (shares[2] * trace)
        ratio = slope_ratio(slow[1] / jnp.maximum(slow[0], 0.3 * trace), known, looser, wider)
        curve = ratio * trace / size
        drowned = (final * clips[0] / curve) ** 2 / units
        pace = pace * jnp.maximum(1 / (1 + drowned / 4), _SLOWEST)
        move = _move(state, seen.score, units * curve, pace)
        fine = jnp.isfinite(move).all() & jnp.isfinite(root).all()
        after = state._replace(
            place=jnp.where(fine, state.place + move, state.place),
            root=jnp.where(fine, root, state.root),
            level=jnp.where(fine, state.level + change, state.level),
            chances=chances,
            slow=slow,
            dispersion=1 + late * (dispersion(ratio * trace, slow[2], averaged / shares[3]) - 1),
            counts=counts,
            step=state.step + 1,
        )
        return after, Seen(state.place, state.root, state.level, clips, released, chances)

    return step


def _level(state: State, seen: Any, off: Any, informative: Any, wider: Any) -> tuple[Any, Any, Any]:
    """Chances of the curvature's levels, the trace they expect, and by how much to change the scale.

    What the trace would be if the level were any of the grid's, against what it is.
    """
    size = len(state.place)
    levels = jnp.linspace(LEVELS[0], LEVELS[-1], len(LEVELS))
    traces = size * clipped_share(levels - state.level, informative, wider)
    spread = size * jnp.maximum(math.sqrt(size) * off, 0.02 * informative)
    chances = _MEMORY * state.chances - 0.5 * ((seen - traces) / spread) ** 2
    chances = chances - chances.max()
    weights = jax.nn.softmax(chances)
    return chances, weights @ traces, jnp.clip(weights @ levels - state.level, -0.3, 0.3)


def _metric(state: State, seen: jax.Array, off: Any, trace: Any, change: Any) -> jax.Array:
    """The next metric: an average of curvatures that knows how noisy they are.

    A little of a round one is added. A direction of which few rows tell could go to nothing
    otherwise, for however long their scores become, they are clipped.
    """
    size, root = len(state.place), state.root
    eye = jnp.eye(size)
    inverse = jax.scipy.linalg.solve_triangular(root, eye, lower=True)
    round_ = jnp.exp(state.level) * inverse @ inverse.T
    entry = off * size**2 / trace
    trust = jnp.minimum(_SHAPE_TRUST / (size * entry**2 + 1e-9), 0.1)
    shape = (1 - _ROUND) * seen * (size / trace) + _ROUND * round_
    shape = shape - jnp.trace(shape) / size * eye
    metric = _at_least(eye + trust * shape, 0.5)
    metric = metric * (size / jnp.trace(metric)) * jnp.exp(change)
    metric = root @ metric @ root.T
    return jnp.asarray(jnp.linalg.cholesky((metric + metric.T) / 2 + 1e-9 * eye))


def _move(state: State, score: jax.Array, curve: Any, pace: Any) -> jax.Array:
    """A part of Newton's step, cut where it is long beside the spread of a row."""
    pull = state.root @ score - state.place
    move = pace * jnp.linalg.solve(curve * state.root @ state.root.T + jnp.eye(len(pull)), pull)
    length = jnp.linalg.norm(state.root.T @ move)
    return jnp.asarray(move * jnp.minimum(1.0, _LONGEST / jnp.maximum(length, 1e-12)))


def _units(counts: Any) -> tuple[Any, Any]:
    """About how many units there are, and the share of those that tell anything."""
    units = jnp.maximum(counts[0] / counts[2], FEWEST)
    return units, jnp.clip(counts[1] / counts[2] / units, 0.05, 1.0)


def _clips(state: State, final: jax.Array, size: int) -> jax.Array:
    """Clips of scores and of curvature: wider where there are many units and little noise.

    Where outcomes vary more than the model says, scores may take more noise beside it; the early
    steps, which are far from where it holds, cannot tell.
    """
    counts = state.counts
    units = jnp.where(counts[2] > 0, counts[0] / jnp.maximum(counts[2], 1e-30), 1000.0)
    units, final = jnp.maximum(units, FEWEST), jnp.maximum(final, 1e-6)
    more = units / (size * final**2) - _MANY
    part = _NOISE_PART * jnp.minimum(state.dispersion, _MOST_DISPERSED) ** 2
    looser = jnp.clip(1 + part * more, 1.0, _LOOSEST**2)
    entry = final * size / (_USUAL_SHARE * units)
    wider = jnp.clip(_ENTRY_NOISE / entry, 1.0, jnp.minimum(looser, _WIDEST**2))
    return jnp.sqrt(size * jnp.stack([looser, wider]))


def _at_least(matrix: jax.Array, least: float) -> jax.Array:
    values, vectors = jnp.linalg.eigh((matrix + matrix.T) / 2)
    return jnp.asarray((vectors * jnp.maximum(values, least)) @ vectors.T)


def _found(method: Scoring, model: AnyModel, plan: NoisySums, seen: Seen, key: jax.Array) -> Found:
    space = whitened(model)
    result = posterior_of(
        model, plan, seen, method.num_outcomes, np.random.default_rng(seed_of(key))
    )
    vectors = space.mean + result.draws @ space.scale.T
    return Found(
        draws=parameters(model, jnp.asarray(vectors, jnp.float32)),
        trace={"mean": space.mean + np.asarray(seen.place, np.float64) @ space.scale.T},
        converged=result.converged,
        said=result.said,
        intervals=Intervals.INCLUDED,
        mean=vectors.mean(axis=0),
        covariance=np.atleast_2d(np.cov(vectors.T)),
    )

"""The steps of `tacit.inference.scoring`: where to look next, by what was released so far.

Nothing here sees a row. A step asks for one noisy sum (`tacit.inference.scores`); the rest is
post-processing of it.
"""

import math
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tacit.inference.evidence import StepRecord
from tacit.inference.scores import (
    FEWEST,
    LEVELS,
    Given,
    clipped_share,
    contribution,
    dispersion,
    parts_of,
    slope_noise,
    slope_ratio,
)
from tacit.inference.whitened import whitened
from tacit.models.base import AnyModel
from tacit.privacy.program import Step
from tacit.privacy.release import Release

# The clip grows with units over the variance of noise, from so many on, until noise is such a part
# of the sampling variance, or to so many times the usual. That of curvature grows until an entry's
# final noise is such a part of it.
_MANY, _NOISE_PART, _LOOSEST = 8.0, 0.2, 10.0
_ENTRY_NOISE, _WIDEST = 0.03, 2.0
# What there is of curvature after clipping, beside the noise of scores; and a limit to dispersion.
_USUAL_SHARE, _MOST_DISPERSED = 0.25, 2.0
# Log of one row's information over the prior's, before any is seen; and how long it is remembered.
USUAL_LEVEL, _LEVEL_SPREAD, _MEMORY = -1.5, 2.0, 0.998
# How much noise the shape of the metric may take on.
_SHAPE_TRUST = 0.06
# How much of a round metric is added to what is seen.
_ROUND = 0.05


class Stride(NamedTuple):
    """How far a step may go at once.

    ``longest`` is its length in standard deviations of a row, ``slowest`` how much slower noise makes
    it at most, ``forgetting`` the weight of the newest step in slow averages, ``reshape`` how much of
    the metric's shape it may replace, and ``rescale`` by how much it may change the logarithm of the
    metric's scale.
    """

    longest: float
    slowest: float
    forgetting: float
    reshape: float
    rescale: float


# Of many small steps, and of a few long ones (benchmarks/federation.py).
SMALL = Stride(longest=0.4, slowest=0.2, forgetting=0.03, reshape=0.1, rescale=0.3)
LONG = Stride(longest=0.6, slowest=0.7, forgetting=0.3, reshape=0.5, rescale=1.0)


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


def start_of(model: AnyModel) -> State:
    """Where a fit begins: at the mean of the prior, in a round metric."""
    space, size = whitened(model), model.dimension

    def made(numbers: Any) -> Any:
        return np.asarray(numbers, np.float32)

    return State(
        place=made(np.zeros(size)),
        root=made(math.exp(USUAL_LEVEL / 2) * np.eye(size)),
        level=made(USUAL_LEVEL),
        chances=made(-0.5 * ((LEVELS - USUAL_LEVEL) / _LEVEL_SPREAD) ** 2),
        slow=made(np.zeros(3)),
        dispersion=made(1),
        counts=made(np.zeros(3)),
        step=made(0),
        mean=made(space.mean),
        scale=made(space.scale),
        constants=jax.tree.map(jnp.asarray, model.constants),
    )


@lru_cache(maxsize=32)
def step_of(model: AnyModel, outcomes: int, rate: float) -> Step:
    """The step of a fit of a model: the same object again, so that it compiles once."""

    def per_unit(*given: Any) -> jax.Array:
        vector: jax.Array = _parts(model, outcomes, rate)[1](*given)
        return vector

    def step(state: State, given: Any, release: Release) -> tuple[Any, Any]:
        ask, _, move = _parts(model, outcomes, rate)
        arguments = ask(state, given)
        released = release.noisy_unit_sum(per_unit, arguments)
        after: tuple[Any, Any] = move(state, given, arguments, released)
        return after

    return step


def asked(state: State, given: Any) -> Given:
    """What a step asks the units for. ``given`` is a line of `tacit.inference.scores.Tempo`."""
    clips = _clips(state, given[1], len(state.place))
    return Given(
        theta=state.mean + state.scale @ state.place,
        to_metric=jax.scipy.linalg.solve_triangular(state.root, state.scale.T, lower=True),
        clip=clips[0],
        wide=clips[1],
        shares=given[4:],
        constants=state.constants,
    )


def moved(
    state: State, given: Any, arguments: Given, released: jax.Array, rate: float, stride: Stride
) -> tuple[State, StepRecord]:
    """Where a fit is after a release of so large a part of the units, and what is kept of the step."""
    size = len(state.place)
    noise, final, pace, late, shares = given[0], given[1], given[2], given[3], given[4:]
    clips = jnp.stack([arguments.clip, arguments.wide])
    seen = parts_of(released, size, rate, clips, shares)
    weight = 1 / jnp.maximum(noise, 1e-3) ** 2
    counts = state.counts + weight * jnp.stack([seen.count, seen.informative, jnp.ones(())])
    units, informative = _units(counts)
    now = jnp.stack([jnp.trace(seen.curvature), seen.slope, seen.own]) / units
    gain = jnp.maximum(stride.forgetting, 1 / (state.step + 1))
    slow = state.slow + gain * (now - state.slow)
    averaged = noise * jnp.sqrt(gain / (2 - gain)) * slope_noise(clips[0]) / units

    looser, wider = clips**2 / size
    off = wider * noise / (shares[1] * units)
    chances, trace, level = _level(state, now[0], off, informative, wider)
    change = jnp.clip(level - state.level, -stride.rescale, stride.rescale)
    root = _metric(state, seen.curvature / units, off, trace, change, stride.reshape)
    known = averaged / (shares[2] * trace)
    ratio = slope_ratio(slow[1] / jnp.maximum(slow[0], 0.3 * trace), known, looser, wider)
    curve = ratio * trace / size
    drowned = (final * clips[0] / curve) ** 2 / units
    pace = pace * jnp.maximum(1 / (1 + drowned / 4), stride.slowest)
    move = _move(state, seen.score, units * curve, pace, stride.longest)
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
    return after, StepRecord(state.place, state.root, state.level, clips, released, chances)


def _level(state: State, seen: Any, off: Any, informative: Any, wider: Any) -> tuple[Any, Any, Any]:
    """Chances of the curvature's levels, the trace and the level that they expect.

    What the trace would be if the level were any of the grid's, against what it is.
    """
    size = len(state.place)
    levels = jnp.linspace(LEVELS[0], LEVELS[-1], len(LEVELS))
    traces = size * clipped_share(levels - state.level, informative, wider)
    spread = size * jnp.maximum(math.sqrt(size) * off, 0.02 * informative)
    chances = _MEMORY * state.chances - 0.5 * ((seen - traces) / spread) ** 2
    chances = chances - chances.max()
    weights = jax.nn.softmax(chances)
    return chances, weights @ traces, weights @ levels


def _metric(
    state: State, seen: jax.Array, off: Any, trace: Any, change: Any, most: float
) -> jax.Array:
    """The next metric: an average of curvatures that knows how noisy they are.

    A little of a round one is added. A direction of which few rows tell could go to nothing
    otherwise, for however long their scores become, they are clipped.
    """
    size, root = len(state.place), state.root
    eye = jnp.eye(size)
    inverse = jax.scipy.linalg.solve_triangular(root, eye, lower=True)
    round_ = jnp.exp(state.level) * inverse @ inverse.T
    entry = off * size**2 / trace
    trust = jnp.minimum(_SHAPE_TRUST / (size * entry**2 + 1e-9), most)
    shape = (1 - _ROUND) * seen * (size / trace) + _ROUND * round_
    shape = shape - jnp.trace(shape) / size * eye
    metric = _at_least(eye + trust * shape, 0.5)
    metric = metric * (size / jnp.trace(metric)) * jnp.exp(change)
    metric = root @ metric @ root.T
    return jnp.asarray(jnp.linalg.cholesky((metric + metric.T) / 2 + 1e-9 * eye))


def _move(state: State, score: jax.Array, curve: Any, pace: Any, longest: float) -> jax.Array:
    """A part of Newton's step, cut where it is long beside the spread of a row."""
    pull = state.root @ score - state.place
    move = pace * jnp.linalg.solve(curve * state.root @ state.root.T + jnp.eye(len(pull)), pull)
    length = jnp.linalg.norm(state.root.T @ move)
    return jnp.asarray(move * jnp.minimum(1.0, longest / jnp.maximum(length, 1e-12)))


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


@lru_cache(maxsize=32)
def _parts(model: AnyModel, outcomes: int, rate: float) -> Any:
    """What a step asks, what a unit adds, and how a step moves.

    JAX keeps the traces of compiled functions, and the gate traces a step several times.
    """
    return (
        jax.jit(lambda state, given: asked(state, given)),  # noqa: PLW0108 (traces are kept by function)
        jax.jit(contribution(model, outcomes)),
        jax.jit(lambda state, given, *of: moved(state, given, of[0], of[1], rate, SMALL)),
    )

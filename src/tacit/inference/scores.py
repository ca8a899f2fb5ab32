"""What one unit adds to a step of `tacit.inference.scoring`, and what its sum says.

A unit's score is the gradient of its log-likelihood. Beside the unit's own outcome stand a few
that the model draws for it at the present parameters, by random bits that are the unit's own and
secret. Where the parameters are the true ones, own and drawn outcomes are exchangeable. So any
function that treats them all alike and is odd has mean zero there: clipping biases nothing.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tacit.models.base import AnyModel, Outcomes, Row
from tacit.privacy.mechanisms import NoisySums

# What a drawn outcome's slope is cut at, in squared clips.
_STEEPEST = 3.0
# Scores shorter than this part of the usual clip count as none.
_NOTHING = 1e-3
SCALARS = 4
# ScoreSums of the squared clip for scores, curvature, slope, dispersion, informative units and their
# count: in the early steps, which learn the metric, and in the late ones, which make the posterior.
SHARES = ((0.40, 0.51, 0.05, 0.02, 0.01, 0.01), (0.72, 0.20, 0.04, 0.02, 0.01, 0.01))
# What part of a Newton step the early and the late steps are.
PACES = (0.06, 0.05)
# Where the level of curvature is sought: the log of one row's information over the prior's.
LEVELS = np.linspace(-12.0, 12.0, 97)
# Added to the squared clip of curvature, this is the level at which half of it is clipped.
_HALF = 0.2
# Standard deviations of noise that are not taken for dispersion, and the most that there may be.
_SURE, MOST_DISPERSED = 3.0, 10.0
FEWEST = 30.0  # units, as far as the method is concerned

# Arrays while a step is traced, and of NumPy afterwards.
AnyArray = jax.Array | NDArray[np.floating]


class Given(NamedTuple):
    """Public arguments of a step's release: all units get the same.

    ``to_metric`` turns a gradient into a score that is about as long as the square root of the
    dimension. ``wide`` is what outcomes that are drawn for the curvature are clipped at. ``shares``
    are square roots of the parts of the clip that scores, curvature, slope, dispersion, informative
    units and the count may take; their squares add up to one.
    """

    theta: jax.Array
    to_metric: jax.Array
    clip: jax.Array
    wide: jax.Array
    shares: jax.Array
    constants: Any


class ScoreSums(NamedTuple):
    """Sums over all units: of scores, their curvature (both in the metric), slopes and counts.

    ``own`` is for the own outcome what ``slope`` is for drawn ones.
    """

    score: Any
    curvature: Any
    slope: Any
    own: Any
    informative: Any
    count: Any


class Tempo(NamedTuple):
    """What is known of the steps of a fit before it begins.

    ``given`` has a line for each step: the noise of a sum for all units, that of the average of late
    scores, the part of a Newton step to go, whether it is late, and the square roots of shares.
    ``late`` is the number of late steps, and ``rate`` the part of the units that a step looks at.
    """

    given: NDArray[np.float32]
    late: int
    rate: float


def width(size: int) -> int:
    """How many numbers a unit adds."""
    return size + size * (size + 1) // 2 + SCALARS


def contribution(
    model: AnyModel, outcomes: int
) -> Callable[[Given, Any, jax.Array, jax.Array], jax.Array]:
    """A unit's vector, of norm at most one whatever the unit holds.

    With u_0 the score of the own outcome and u_1, ..., u_m those of drawn ones, all less their
    mean, psi_j = s (clip(u_j) - mean of clip(u)), where s <= 1 makes the longest of them no longer
    than the clip. Only psi_0 is added up as a score. The drawn ones give curvature, with a clip of
    its own, and the slope of psi. What gives the slope is computed of the own outcome too: if the
    model is right, the two have the same mean.
    """
    size = model.dimension

    def vector(given: Given, rows: Row, present: jax.Array, secret: jax.Array) -> jax.Array:
        scores = _scores(model, outcomes, given, rows, present, secret)
        clip = given.clip
        centred = scores - scores.mean(axis=0)
        kept = _shorter(centred, clip)
        kept = kept - kept.mean(axis=0)
        longest = jnp.linalg.norm(kept, axis=-1).max()
        kept = kept * jnp.minimum(1.0, clip / jnp.maximum(longest, 1e-12))
        drawn = scores[1:] - scores[1:].mean(axis=0)
        drawn = drawn * (outcomes / math.sqrt((outcomes - 1) * (outcomes + 1)))
        short = _shorter(drawn, given.wide) / given.wide
        # Entry by entry, and a triangle by a product: much faster than small matrices and gathers.
        square = (short[:, :, None] * short[:, None, :]).mean(axis=0)
        curvature = square.ravel() @ _triangle(size)
        steep = _STEEPEST * clip**2
        slopes = jnp.clip((kept * centred).sum(axis=-1), 0.0, steep) / steep
        informative = (longest > _NOTHING * math.sqrt(size)).astype(jnp.float32)
        scalars = given.shares[2:] * jnp.stack(
            [slopes[1:].mean(), slopes[0], informative, jnp.ones(())]
        )
        vectors = given.shares[0] * kept[0] / clip, given.shares[1] * curvature
        return jnp.concatenate([*vectors, scalars])

    return vector


def _scores(
    model: AnyModel, outcomes: int, given: Given, rows: Row, present: jax.Array, secret: jax.Array
) -> jax.Array:
    """Scores in the metric, [1 + outcomes, size]: of the unit's own outcome, then of drawn ones."""
    theta, constants = given.theta, given.constants
    one_row = len(present) == 1 and not model.whole_units
    row = jax.tree.map(lambda leaf: leaf[0], rows)

    def draw(key: jax.Array) -> Outcomes:
        if one_row:
            return model.row_outcomes(key, theta, row, constants)
        return model.unit_outcomes(key, theta, rows, present, constants)

    def density(theta: jax.Array, drawn: Outcomes) -> jax.Array:
        if one_row:
            return model.row_density(theta, row, constants, drawn)
        return model.unit_density(theta, rows, present, constants, drawn)

    key = jax.random.fold_in(
        jax.random.fold_in(jax.random.key(0, impl="threefry2x32"), secret[0]), secret[1]
    )
    # One after the other: otherwise they would be drawn again for every derivative that needs them.
    drawn = jax.lax.map(draw, jax.random.split(key, outcomes))
    own = jax.grad(density)(theta, None)
    others = jax.vmap(lambda each: jax.grad(density)(theta, each))(drawn)
    return jnp.concatenate([own[None], others]) @ given.to_metric.T


def _shorter(vectors: jax.Array, clip: jax.Array) -> jax.Array:
    norms = jnp.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors * jnp.minimum(1.0, clip / jnp.maximum(norms, 1e-12))


def _weights(size: int) -> Any:
    """What makes the norm of a triangle of numbers that of the whole symmetric matrix."""
    first, second = np.triu_indices(size)
    return np.where(first == second, 1.0, math.sqrt(2)).astype(np.float32)


def _triangle(size: int) -> Any:
    """The product with this takes a symmetric matrix, all entries in a row, to weighted ones."""
    first, second = np.triu_indices(size)
    taken = np.zeros((size * size, len(first)), np.float32)
    taken[first * size + second, np.arange(len(first))] = _weights(size)
    return taken


def parts_of(
    released: AnyArray, size: int, rate: float, clips: AnyArray, shares: AnyArray
) -> ScoreSums:
    """The parts of a release, for all units instead of those sampled; of several, if stacked.

    ``clips`` are those of scores and of curvature.
    """
    clip, wide = clips[..., 0], clips[..., 1]
    pairs = size * (size + 1) // 2
    first, second = np.triu_indices(size)
    where = np.zeros((size, size), int)
    where[first, second] = where[second, first] = np.arange(pairs)
    score, triangle = released[..., :size], released[..., size : size + pairs]
    slope, own, informative, count = (released[..., size + pairs + i] for i in range(SCALARS))
    share = [shares[..., i] for i in range(shares.shape[-1])]
    flat = (triangle / _weights(size))[..., where.ravel()]
    curvature = flat.reshape(*flat.shape[:-1], size, size)
    return ScoreSums(
        score * (clip / (share[0] * rate))[..., None],
        curvature * (wide**2 / (share[1] * rate))[..., None, None],
        slope * slope_noise(clip) / (share[2] * rate),
        own * slope_noise(clip) / (share[3] * rate),
        informative / (share[4] * rate),
        count / (share[5] * rate),
    )


def released_of(seen: ScoreSums, size: int, clips: AnyArray, shares: AnyArray) -> AnyArray:
    """The release, of all units, that has these parts; undoes `parts_of`."""
    first, second = np.triu_indices(size)
    triangle = np.asarray(seen.curvature)[first, second] * _weights(size)
    steep = slope_noise(clips[0])
    parts = [
        np.asarray(seen.score) * (shares[0] / clips[0]),
        triangle * (shares[1] / clips[1] ** 2),
        [seen.slope * shares[2] / steep, seen.own * shares[3] / steep],
        [seen.informative * shares[4], seen.count * shares[5]],
    ]
    return np.concatenate(parts)


def slope_noise(clip: Any) -> Any:
    """What a slope is multiplied by when it is released, and its noise with it."""
    return _STEEPEST * clip**2


def final_noise(mechanism: NoisySums) -> float:
    """Noise of the averaged scores of the late steps, in clips, for all units."""
    noise, steps = mechanism.phases[-1]
    return noise / (mechanism.sampling_rate * math.sqrt(steps * SHARES[1][0]))


def tempo_of(mechanism: NoisySums) -> Tempo:
    """The steps of a mechanism that releases scores."""
    noise, steps = zip(*mechanism.phases, strict=True)
    given = tempo(np.asarray(noise) / mechanism.sampling_rate, final_noise(mechanism), PACES, steps)
    return Tempo(given, steps[-1], mechanism.sampling_rate)


def tempo(
    noise: Sequence[float] | NDArray[np.floating],
    final: float,
    paces: Sequence[float],
    steps: Sequence[int],
) -> NDArray[np.float32]:
    """Lines of a `Tempo`: for each phase its noise for all units, its pace, and its steps."""
    phases = len(steps)
    lines = np.column_stack(
        [
            noise,
            np.full(phases, final),
            paces[-phases:],
            (0, 1)[-phases:],
            np.sqrt(SHARES)[-phases:],
        ]
    )
    return np.repeat(lines, steps, axis=0).astype(np.float32)


def clipped_share(levels: Any, informative: Any, wider: Any) -> Any:
    """The trace of clipped curvature over the dimension, where it is so much above the metric's.

    ``wider`` is the square of its clip over the dimension. A fit to how scores of regressions are cut.
    """
    exp = jnp.exp if isinstance(levels, jax.Array) else np.exp
    above = exp(levels)
    clipped = 1 - (1 - informative) / wider  # that few rows tell matters if these are clipped
    return clipped * wider * above / (above + wider + _HALF)


def slope_ratio(seen: Any, noise: Any, looser: Any, wider: Any) -> Any:
    """Slope over curvature, whose clip is tighter; drawn to the usual where noise hides it.

    ``looser`` and ``wider`` are squares of the clips of scores and curvature, over the dimension.
    """
    clip = jnp.clip if isinstance(seen, jax.Array) else np.clip
    usual = (1.7 - 0.5 / looser) * (1 + wider + _HALF) / ((2 + _HALF) * wider)
    return usual + (clip(seen, 0.8, 4.0) - usual) / (1 + (noise / 0.3) ** 2)


def dispersion(expected: Any, own: Any, noise: Any) -> Any:
    """How much more outcomes vary than the model says: one, or as much more as noise cannot explain.

    ``expected`` is the slope that the model expects of them; ``own`` theirs, with such noise.
    """
    clip = jnp.clip if isinstance(own, jax.Array) else np.clip
    return clip((own - _SURE * noise) / expected, 1.0, MOST_DISPERSED)

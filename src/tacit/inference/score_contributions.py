"""What one unit adds to a round of `tacit.inference.scoring`.

A unit's score is the gradient of its log-likelihood. It is compared with scores of a few outcomes that the model draws
for the unit at the current parameters, from secret random bits of the unit's own. At the true parameters, own and drawn
outcomes are exchangeable. So any odd function that treats them all alike has mean zero there, and clipping does not
bias the fit.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from tacit._typing import ArrayTree, Floats
from tacit.models.base import Outcomes, Row, UnitModel

# With more parameters than this, only the diagonal of the curvature is released: noise would hide the other entries.
MAX_CURVATURE_DIMENSION = 64
# A unit whose longest score is below this part of the curvature clip counts as uninformative.
_MIN_INFORMATIVE_LENGTH = 1e-3
# A relative weight below this counts as this, where something is divided by it.
_MIN_WEIGHT = 1e-6
# The number of drawn outcomes that the curvature is made from; more would hardly make it less noisy.
_CURVATURE_OUTCOMES = 2
# The parts of a release that are single numbers.
NUM_SCALARS = 6


_A = TypeVar("_A", jax.Array, Floats)


class ScoreQuery(NamedTuple):
    """Public arguments of a round's release: all units get the same.

    ``to_metric`` maps a gradient to a score in the metric; its rows for directions that no row informs are zero.
    ``clip`` bounds the score, ``curvature_clip`` the scores that make the curvature, and ``max_slope`` and
    ``max_direction_slope`` the slopes. ``shares`` are the weights of the parts of `ScoreSums` in the released vector;
    their squares add up to one. If ``sizing`` is one, the diagonal is the size of scores in each direction, else the
    slope.
    """

    theta: jax.Array
    to_metric: jax.Array
    clip: jax.Array
    curvature_clip: jax.Array
    max_slope: jax.Array
    max_direction_slope: jax.Array
    sizing: jax.Array
    shares: jax.Array
    constants: ArrayTree


class ScoreSums(NamedTuple):
    """Noisy sums over all units.

    ``noise`` has the standard deviation of the noise in the numbers of each part, by the part's name; for the
    curvature, that of entries on the diagonal.
    """

    score: Floats
    curvature: Floats | None
    diagonal: Floats
    slope: float
    informative: float
    excess: float
    drawn: float
    extreme: float
    units: float
    noise: dict[str, float]


_PARTS = tuple(name for name in ScoreSums.__annotations__ if name != "noise")


def contribution_size(size: int) -> int:
    """The length of the vector that a unit adds."""
    return 2 * size + _curvature_size(size) + NUM_SCALARS


def _curvature_size(size: int) -> int:
    return size * (size // 2 + 1) if size <= MAX_CURVATURE_DIMENSION else 0


def unit_contribution(
    model: UnitModel, outcomes: int
) -> Callable[[ScoreQuery, Row, jax.Array, jax.Array], jax.Array]:
    """A unit's vector, of norm at most one whatever the unit holds. [score-unit]

    With u_0 the score of the own outcome and u_1, ..., u_m those of drawn ones, all less their
    mean, psi_j = s (clip(u_j) - mean of clip(u)), where s <= 1 makes the longest of them no longer
    than the clip. Only psi_0 is added up as a score. The drawn ones give the curvature, which is
    u u' / max(|u|, curvature_clip)^2, and how steeply the mean of psi falls: psi_j u_j. Two numbers have mean zero
    if the model is right: the excess |psi_0|^2 - mean |psi_j|^2, and whether the own outcome is extreme,
    less how often drawn ones are.
    """

    def vector(given: ScoreQuery, rows: Row, present: jax.Array, secret: jax.Array) -> jax.Array:
        scores = _unit_scores(model, outcomes, given, rows, present, secret)
        weight = None if model.weights is None else model.weights.relative(rows, present)
        return contribution_of_scores(given, scores, weight)

    return vector


def contribution_of_scores(
    given: ScoreQuery, scores: jax.Array, weight: jax.Array | None = None
) -> jax.Array:
    """The vector of a unit with these scores in the metric, [1 + outcomes, size]; see `unit_contribution`.

    Scores of a weighted unit are as many times as large as its weight says. Their mean falls as if the weight stood
    there once, and not squared as in a product of two scores: slopes are divided by the weight, before they are bounded.
    """
    size = scores.shape[1]
    kept, centred = clip_exchangeably(scores, given.clip)
    lengths = jnp.linalg.norm(centred, axis=-1)
    products = kept[1:] * centred[1:]
    if weight is not None:
        products = products / jnp.maximum(weight, _MIN_WEIGHT)
    slopes = jnp.clip(products.sum(axis=-1), 0.0, given.max_slope).mean() / given.max_slope
    each = products.mean(axis=0)
    each = each / jnp.maximum(jnp.linalg.norm(each), given.max_direction_slope)
    squares = centred[1:] ** 2
    sizes = (squares / (1 + squares)).mean(axis=0) / math.sqrt(size)
    squared = (kept**2).sum(axis=-1) / given.clip**2
    least = _MIN_INFORMATIVE_LENGTH * given.curvature_clip
    extreme = _is_extreme(lengths, least)
    few = centred[1 : 1 + _CURVATURE_OUTCOMES]
    few = few / jnp.maximum(lengths[1 : 1 + _CURVATURE_OUTCOMES], given.curvature_clip)[:, None]
    parts = [
        kept[0] / given.clip,
        *([_pack_symmetric(few)] if _curvature_size(size) else []),
        jnp.where(given.sizing > 0, sizes, each),
        slopes[None],
        (lengths.max() > least).astype(jnp.float32)[None],
        (squared[0] - squared[1:].mean())[None],
        squared[1:].mean()[None],
        (extreme[0] - extreme[1:].mean())[None],
        jnp.ones(1),
    ]
    shares = [given.shares[i] for i in range(NUM_SCALARS + 3) if i != 1 or _curvature_size(size)]
    return jnp.concatenate([share * part for share, part in zip(shares, parts, strict=True)])


def _is_extreme(lengths: jax.Array, least: jax.Array) -> jax.Array:
    """For each score, whether it is more than twice as long as every other, and longer than rounding makes it."""
    # By two maxima: sorting takes a fourth of a step with few columns. Of two that are longest, neither is extreme.
    longest = lengths.max()
    is_longest = lengths == longest
    next_longest = jnp.where(is_longest, 0.0, lengths).max()
    alone = is_longest & (longest > jnp.maximum(2 * next_longest, least)) & (is_longest.sum() == 1)
    return jnp.asarray(alone, jnp.float32)


def clip_exchangeably(scores: _A, clip: jax.Array | float) -> tuple[_A, _A]:
    """Clips scores [..., outcomes, size], all outcomes alike; also returns the scores less their mean."""
    xp: Any = jnp if isinstance(scores, jax.Array) else np
    number = scores.shape[-2]
    centred = scores - scores.mean(axis=-2, keepdims=True)
    norms = xp.linalg.norm(centred, axis=-1, keepdims=True)
    # A score less the mean of all is (number - 1) / number times the score less the mean of the others.
    kept = centred * xp.minimum(1.0, number / (number - 1) * clip / xp.maximum(norms, 1e-12))
    kept = kept - kept.mean(axis=-2, keepdims=True)
    longest = xp.linalg.norm(kept, axis=-1).max(axis=-1)[..., None, None]
    return kept * xp.minimum(1.0, clip / xp.maximum(longest, 1e-12)), centred


def _unit_scores(
    model: UnitModel,
    outcomes: int,
    given: ScoreQuery,
    rows: Row,
    present: jax.Array,
    secret: jax.Array,
) -> jax.Array:
    """Scores in the metric, [1 + outcomes, size]: of the unit's own outcome, then of drawn ones."""
    theta, constants = given.theta, given.constants
    key = jax.random.fold_in(
        jax.random.fold_in(jax.random.key(0, impl="threefry2x32"), secret[0]), secret[1]
    )
    own = score_function(model)(theta, None, rows, present, constants)
    others = drawn_scores(model, theta, rows, present, constants, key, outcomes)
    scores: jax.Array = jnp.concatenate([own[None], others]) @ given.to_metric.T
    return scores


def drawn_scores(
    model: UnitModel,
    theta: jax.Array,
    rows: Row,
    present: jax.Array,
    constants: ArrayTree,
    key: jax.Array,
    outcomes: int,
) -> jax.Array:
    """Scores of outcomes that the model draws for a unit, [outcomes, size]."""
    simulate, score = _simulator(model), score_function(model)
    # By lax.map: under vmap they would be drawn again for every derivative that needs them.
    drawn = jax.lax.map(
        lambda key: simulate(key, theta, rows, present, constants), jax.random.split(key, outcomes)
    )
    found: jax.Array = jax.vmap(lambda each: score(theta, each, rows, present, constants))(drawn)
    return found


# Compiled by themselves, so that JAX keeps their traces: contributions of units and scores of simulated units share
# them.
@lru_cache(maxsize=32)
def score_function(model: UnitModel) -> Callable[..., jax.Array]:
    """The derivative of a unit's log-likelihood by the parameters, for outcomes of its own (None) or drawn ones."""

    def density(
        theta: jax.Array, drawn: Outcomes, rows: Row, present: jax.Array, constants: ArrayTree
    ) -> jax.Array:
        return model.log_likelihood(theta, rows, present, constants, drawn)

    return jax.jit(jax.grad(density))


@lru_cache(maxsize=32)
def _simulator(model: UnitModel) -> Callable[..., Outcomes]:
    assert model.simulate is not None
    return jax.jit(model.simulate)


def _pack_symmetric(vectors: jax.Array) -> jax.Array:
    """The mean of u u' as a vector of the same norm: its diagonals, wrapped around.

    Slices and products are much faster than gathers of a triangle.
    """
    size = vectors.shape[-1]
    twice = jnp.concatenate([vectors, vectors], axis=-1)
    apart = [
        (vectors * twice[:, k : k + size]).mean(axis=0) * _packing_weight(k, size)
        for k in range(size // 2 + 1)
    ]
    return jnp.concatenate(apart)


def _packing_weight(apart: int, size: int) -> float:
    """Entries off the diagonal stand for two entries of the matrix; the diagonal in the middle has each of its entries twice."""
    return 1.0 if apart == 0 or 2 * apart == size else math.sqrt(2)


def _unpack_symmetric(numbers: Floats, size: int) -> Floats:
    matrix = np.zeros((size, size))
    index = np.arange(size)
    for k in range(size // 2 + 1):
        values = numbers[k * size : (k + 1) * size] / _packing_weight(k, size)
        if 2 * k == size:  # each of these came twice
            values = (values + np.roll(values, k)) / 2
        matrix[index, (index + k) % size] = matrix[(index + k) % size, index] = values
    return matrix


def split_release(
    released: ArrayLike, size: int, shares: ArrayLike, noise: float, rate: float = 1.0
) -> ScoreSums:
    """The parts of a release, for all units instead of those sampled.

    Args:
        released: The noisy sum.
        size: The number of parameters.
        shares: As in `ScoreQuery`.
        noise: Standard deviation of the noise in each number of the release.
        rate: The part of the units that were sampled.

    Returns:
        The sums. Parts that were not requested are zero, with infinite noise.
    """
    values = np.asarray(released, np.float64) / rate
    shares = np.asarray(shares, np.float64)
    factor = np.divide(1.0, shares, out=np.zeros(len(shares)), where=shares > 0)
    spread = np.where(shares > 0, noise / rate * factor, np.inf)
    pairs = _curvature_size(size)
    ends = [size, size + pairs, 2 * size + pairs]
    score, curvature, diagonal, scalars = np.split(values, ends)
    vectors = (
        score * factor[0],
        _unpack_symmetric(curvature * factor[1], size) if pairs else None,
        diagonal * factor[2],
    )
    named = dict(zip(_PARTS, spread.tolist(), strict=True))
    return ScoreSums._make([*vectors, *(scalars * factor[3:]).tolist(), named])

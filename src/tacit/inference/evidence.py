"""From the releases of `tacit.inference.scoring` to a posterior. All of it is post-processing.

In the late steps the averaged score is r = A (theta - place) + error, where theta is the true
vector, place the average of where the steps were, A the slope of the clipped score, and the error
has the variance of sampling, of drawn outcomes, and of the noise. A is a multiple of the curvature
C, which is released too, and so has noise of its own. For each draw of the posterior A is drawn
first, around what was seen by how noisy that was; then theta, given A, of prior times likelihood.
"""

import math
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tacit.inference.base import parameters
from tacit.inference.hmc import last_of_chains
from tacit.inference.scores import (
    FEWEST,
    LEVELS,
    MOST_DISPERSED,
    SHARES,
    ScoreSums,
    Tempo,
    clipped_share,
    dispersion,
    parts_of,
    slope_noise,
    slope_ratio,
)
from tacit.inference.whitened import Whitened, whitened
from tacit.models.base import AnyModel

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
USUAL_DRAWS = 1000
# How far curvature may be from the metric, before it is seen: on the diagonal, and off it (over
# the root of twice the dimension); and the least that is left in any direction.
_DIAGONAL, _BESIDE, _LEAST = 0.5, 0.6, 0.03
# Of entries: what is usual counts for so many that are seen, and such a part of it is the least.
_AS_MANY, _AT_LEAST = 10.0, 0.87
# In posterior standard deviations: how far steps may move between the halves of the late ones, or
# lie from the posterior, if the fit is to count as converged.
_MOST_MOVED, _MOST_OFF = 4.0, 4.0
# Variance beyond the model's that is worth a sentence.
_MUCH_DISPERSED = 1.5
# A posterior spread that is so large a part of the prior's tells little.
_LITTLE = 0.8


class StepRecord(NamedTuple):
    """What a step left: where it was, the metric, the clips, the release, and the level's chances."""

    place: Any
    root: Any
    level: Any
    clips: Any
    released: Any
    chances: Any


class Result(NamedTuple):
    """Draws in whitened coordinates, whether the fit converged, and what is said of it."""

    draws: Matrix
    converged: bool
    said: tuple[str, ...]
    evidence: "Evidence"


class Evidence(NamedTuple):
    """The likelihood of each draw's curvature: exp(pull (w - place) - (w - place) P (w - place) / 2).

    ``information`` is what one unit would tell without clip and noise, as far as is known, and
    ``units`` how many there are.
    """

    place: Vector
    precision: Matrix  # [draws, size, size]
    pull: Matrix  # [draws, size]
    dispersed: float  # how much more outcomes vary than the model says
    information: Matrix
    units: float


class Late(NamedTuple):
    """Averages over the late steps; ``noise`` is that of an average, before shares and clip."""

    place: Vector
    root: Matrix
    score: Vector
    curvature: Matrix
    slope: float
    own: float
    score_noise: Matrix
    noise: float
    units: float
    informative: float
    level: float
    clips: Vector
    steps: int


def posterior_of(
    model: AnyModel,
    tempo: Tempo,
    seen: StepRecord,
    outcomes: int,
    rng: np.random.Generator,
    count: int = USUAL_DRAWS,
) -> Result:
    """So many draws of the posterior, in whitened coordinates, and how the fit went."""
    late = _late(model.dimension, tempo, seen)
    evidence = _evidence(late, seen, tempo.rate, outcomes, rng, count)
    draws = _drawn(model, evidence, rng)
    places = np.asarray(seen.place, np.float64)[-late.steps :]
    converged, how = _judged(late, places, draws)
    said = how, *_misfit(evidence.dispersed), *_little(model, whitened(model), draws)
    return Result(draws, converged, said, evidence)


def _late(size: int, tempo: Tempo, seen: StepRecord) -> Late:
    given, steps = tempo.given.astype(np.float64), tempo.late
    clips = np.asarray(seen.clips, np.float64)
    released = np.asarray(seen.released, np.float64)
    every: ScoreSums = parts_of(released, size, tempo.rate, clips, given[:, 4:])
    weights = 1 / np.maximum(given[:, 0], 1e-3) ** 2
    units = max(float(weights @ every.count / weights.sum()), FEWEST)
    informative = float(weights @ every.informative / weights.sum()) / units
    roots = np.asarray(seen.root, np.float64)[-steps:]
    metrics = roots @ roots.transpose(0, 2, 1)
    noise = math.sqrt(np.mean(given[-steps:, 0] ** 2) / steps)
    by_clip = (noise / math.sqrt(SHARES[1][0])) ** 2 * (clips[-steps:, 0] ** 2)[:, None, None]
    curvature = roots @ every.curvature[-steps:] @ roots.transpose(0, 2, 1)
    return Late(
        place=np.asarray(seen.place, np.float64)[-steps:].mean(axis=0),
        root=np.linalg.cholesky(metrics.mean(axis=0)),
        score=np.einsum("tij,tj->i", roots, every.score[-steps:]) / steps,
        curvature=curvature.mean(axis=0) / units,
        slope=float(every.slope[-steps:].mean()) / units,
        own=float(every.own[-steps:].mean()) / units,
        score_noise=(by_clip * metrics).mean(axis=0),
        noise=float(noise),
        units=units,
        informative=min(max(informative, 0.05), 1.0),
        level=float(np.mean(np.asarray(seen.level, np.float64)[-steps:])),
        clips=clips[-1],
        steps=steps,
    )


def _evidence(
    late: Late,
    seen: StepRecord,
    rate: float,
    outcomes: int,
    rng: np.random.Generator,
    count: int,
) -> Evidence:
    """For each draw its own curvature, and the likelihood that goes with it."""
    size = len(late.place)
    chances = np.exp(np.asarray(seen.chances[-1], np.float64))
    between = LEVELS[1] - LEVELS[0]
    levels = rng.choice(LEVELS, size=count, p=chances / chances.sum())
    levels = levels + between * rng.uniform(-0.5, 0.5, size=count)
    looser, wider = late.clips**2 / size
    traces = size * clipped_share(levels - late.level, late.informative, wider)
    trace = float(traces.mean())
    share, of_slope = (math.sqrt(SHARES[1][i]) for i in (1, 2))
    entry = wider * late.noise * size**2 / (share * late.units * trace)
    shapes = _shapes(late, trace, entry, rng, count)
    known = late.noise * slope_noise(late.clips[0]) / (of_slope * late.units * trace)
    ratio = float(slope_ratio(late.slope / trace, known, looser, wider))
    slope = late.units * ratio * shapes * (traces / size)[:, None, None]
    # Clipped scores vary less than their slope says: the more, the more is clipped.
    dispersed = _dispersed(late, ratio * trace)
    less = (1 - 0.25 / looser) * dispersed
    kept = outcomes / (outcomes + 1)
    again = ((1 - rate) / rate + 1 / (outcomes * rate)) / late.steps
    variance = less * kept * (1 + again) * slope + late.score_noise
    gain = np.linalg.solve(variance, slope).transpose(0, 2, 1)
    precision = gain @ slope
    precision = (precision + precision.transpose(0, 2, 1)) / 2
    full = (np.exp(levels - late.level)[:, None, None] * shapes).mean(axis=0)
    return Evidence(late.place, precision, gain @ late.score, dispersed, full, late.units)


def _dispersed(late: Late, expected: float) -> float:
    """How much more outcomes vary than the model says."""
    noise = late.noise * slope_noise(late.clips[0]) / (math.sqrt(SHARES[1][3]) * late.units)
    return float(dispersion(expected, late.own, noise))


def _shapes(late: Late, trace: float, entry: float, rng: np.random.Generator, count: int) -> Matrix:
    """Curvatures of trace ``size`` in the metric, as far as the noise of one entry lets it be seen."""
    size = len(late.place)
    inverse = np.linalg.inv(late.root)
    found = inverse @ late.curvature @ inverse.T * (size / trace)
    found = found - (np.trace(found) / size - 1) * np.eye(size)
    above = found[np.triu_indices(size, 1)]
    beside = _spread(above, entry, _BESIDE / math.sqrt(2 * size))
    diagonal = _spread(np.diag(found) - 1, entry, _DIAGONAL)
    trust, trust_beside = (each**2 / (each**2 + entry**2) for each in (diagonal, beside))
    centre = trust_beside * found
    np.fill_diagonal(centre, 1 + trust * (np.diag(found) - 1))
    off = np.triu(rng.normal(size=(count, size, size)), 1) * beside * math.sqrt(1 - trust_beside)
    off = off + off.transpose(0, 2, 1)
    which = np.arange(size)
    off[:, which, which] = rng.normal(size=(count, size)) * diagonal * math.sqrt(1 - trust)
    values, vectors = np.linalg.eigh(centre + off)
    shapes = (vectors * np.maximum(values, _LEAST)[:, None, :]) @ vectors.transpose(0, 2, 1)
    return np.asarray(late.root @ shapes @ late.root.T)


def _spread(seen: Vector, noise: float, usual: float) -> float:
    """How far such entries lie from zero, beyond their noise; about the usual, if they are few."""
    beyond = float(np.sum(seen**2 - noise**2))
    found = (_AS_MANY * usual**2 + beyond) / (_AS_MANY + len(seen))
    return math.sqrt(max(found, (_AT_LEAST * usual) ** 2))


def _drawn(model: AnyModel, evidence: Evidence, rng: np.random.Generator) -> Matrix:
    """One draw for each curvature: at once if the prior is normal, else by a chain for each."""
    size, space = len(evidence.place), whitened(model)
    whole = evidence.precision + np.eye(size)
    pulled = (evidence.pull - evidence.place)[..., None]
    centres = evidence.place + np.linalg.solve(whole, pulled)[..., 0]
    roots = np.linalg.inv(np.linalg.cholesky(whole)).transpose(0, 2, 1)
    draws: Matrix = centres + (roots @ rng.normal(size=(*centres.shape, 1)))[..., 0]
    if space.quadratic:
        return draws
    given = tuple(jnp.asarray(each, jnp.float32) for each in (evidence.precision, evidence.pull))
    shared = tuple(
        jnp.asarray(each, jnp.float32) for each in (evidence.place, space.mean, space.scale)
    )
    starts, around = (jnp.asarray(each, jnp.float32) for each in (draws, roots))
    key = jax.random.key(int(rng.integers(2**31)))
    ends = last_of_chains(_density(model), given, (*shared, model.constants), starts, around, key)
    return np.asarray(ends, np.float64)


@lru_cache(maxsize=32)
def _density(model: AnyModel) -> Any:
    """The prior itself, times a normal likelihood: the same object again, so that it compiles once."""

    def density(place: jax.Array, given: Any, shared: Any) -> jax.Array:
        precision, pull = given
        centre, mean, scale, constants = shared
        off = place - centre
        prior = model.prior_density(mean + scale @ place, constants)
        return jnp.asarray(prior + off @ pull - 0.5 * off @ precision @ off)

    return density


def _judged(late: Late, places: Matrix, draws: Matrix) -> tuple[bool, str]:
    """Whether steps had come to rest, as far as noise lets it be seen; and a sentence about it."""
    spread = np.maximum(draws.std(axis=0), 1e-12)
    half = late.steps // 2
    moved = float(np.max(np.abs(places[:half].mean(axis=0) - places[half:].mean(axis=0)) / spread))
    off = float(np.max(np.abs(draws.mean(axis=0) - late.place) / spread))
    sound = bool(np.isfinite(draws).all())
    converged = sound and moved < _MOST_MOVED and off < _MOST_OFF
    if converged:
        how = (
            f"Its late steps moved by {moved:.1f} posterior standard deviations, and lie within "
            f"{off:.1f} of the posterior."
        )
    else:
        how = (
            f"The late steps still moved by {moved:.1f} posterior standard deviations, or lie {off:.1f} "
            f"of them from the posterior (more than {_MOST_MOVED:g} is too much): take more steps, "
            "tacit.Scoring(num_steps=2000), or look at the model and its prior."
        )
    return converged, how


def _misfit(dispersed: float) -> tuple[str, ...]:
    """A sentence about outcomes that vary more than the model says."""
    if dispersed < _MUCH_DISPERSED:
        return ()
    how = f"about {dispersed:.1f}" if dispersed < MOST_DISPERSED else "ten or more"
    said = (
        f"Outcomes vary {how} times as much as the model says; intervals are wider for it, "
        "but another family of outcomes would fit better."
    )
    return (said,)


def _little(model: AnyModel, space: Whitened, draws: Matrix) -> tuple[str, ...]:
    """A sentence about the parameters of which the data tell little."""
    normal = np.random.default_rng(0).normal(size=draws.shape)
    before, after = (
        parameters(model, jnp.asarray(space.mean + each @ space.scale.T, jnp.float32))
        for each in (normal, draws)
    )
    little = {name: _unlearned(before[name], after[name]) for name in before}
    names = [
        name if which.all() else f"parts of {name}" for name, which in little.items() if which.any()
    ]
    if not names:
        return ()
    return (f"The data tell little about {', '.join(names)}: intervals are nearly the prior's.",)


def _unlearned(before: NDArray[np.floating], after: NDArray[np.floating]) -> NDArray[np.bool_]:
    """Which entries vary nearly as much after the data as before."""
    ends = [np.quantile(each.astype(np.float64), [0.16, 0.84], axis=0) for each in (before, after)]
    widths = [each[1] - each[0] for each in ends]
    return np.asarray(widths[1] > _LITTLE * widths[0])

"""The posterior that the rounds of `tacit.inference.scoring` determine, and remarks on the fit. All post-processing."""

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tacit._typing import ArrayTree
from tacit.inference.method import constrained_draws
from tacit.inference.result import UNLEARNED
from tacit.inference.scoring_rounds import Rounds, ScoreLikelihood
from tacit.inference.whitening import Whitening, final_states, whiten_prior
from tacit.models.base import UnitModel

Matrix = NDArray[np.float64]
DEFAULT_DRAWS = 1000
# A fit counts as converged if, in posterior standard deviations, the two halves of the late rounds differ by less than the
# first, the second half is nearer to the posterior mean than the second, and late positions vary by less than the third
# (benchmarks/calibration.py).
_MAX_HALF_SHIFT, _MAX_OFFSET, _MAX_WANDER = 3.0, 2.0, 2.2
# Overdispersion is reported beyond this ratio of variances, if it is so many standard deviations of its noise.
_MIN_OVERDISPERSION, _DISPERSION_SIGNIFICANCE = 1.15, 2.8
# Outliers are reported beyond this share, if it is so many standard deviations of its noise.
_MIN_OUTLIER_SHARE, _OUTLIER_SIGNIFICANCE = 0.01, 3.0
# Below this ratio of variances, significantly, a scale parameter is far too large and the fit has not converged.
_MAX_UNDERDISPERSION = 0.8
# If the noise of the curvature relative to its mean is larger, small eigenvalues cannot be detected.
_MAX_CURVATURE_NOISE = 0.9
# If the posterior's width is more than this part of the prior's, the data tell little about a parameter.
_UNLEARNED_RATIO, _MAX_NAMED_ENTRIES = 0.8, 4


# Of a chain: precision and gradient of its likelihood. Of all: the position of the expansion, mean and scale of the
# prior, and the constants of the model.
_Own = tuple[jax.Array, jax.Array]
_Shared = tuple[jax.Array, jax.Array, jax.Array, ArrayTree]


class ScoringResult(NamedTuple):
    """Draws in whitened coordinates, whether the fit converged, and messages about it."""

    draws: Matrix
    converged: bool
    messages: tuple[str, ...]
    likelihood: ScoreLikelihood


def draw_posterior(
    model: UnitModel, rounds: Rounds, rng: np.random.Generator, count: int = DEFAULT_DRAWS
) -> ScoringResult:
    """Draws of the posterior, in whitened coordinates, and remarks on the fit."""
    likelihood = rounds.likelihood(rng, count)
    draws = _posterior_draws(model, likelihood, rng)
    converged, how = _convergence(rounds, likelihood, draws)
    misfit = _misfit_messages(likelihood) if converged else ()  # elsewhere any model misfits
    said = (
        how,
        *misfit,
        *_collinearity_message(rounds),
        *_unlearned_message(model, whiten_prior(model), draws),
    )
    return ScoringResult(draws, converged, said, likelihood)


def _posterior_draws(
    model: UnitModel, likelihood: ScoreLikelihood, rng: np.random.Generator
) -> Matrix:
    """One draw for each drawn slope: directly if the prior is Gaussian, else by a chain for each."""
    size, space = len(likelihood.position), whiten_prior(model)
    whole = likelihood.precision + np.eye(size)
    shifted = (likelihood.gradient - likelihood.position)[..., None]
    centres = likelihood.position + np.linalg.solve(whole, shifted)[..., 0]
    roots = np.linalg.inv(np.linalg.cholesky(whole)).transpose(0, 2, 1)
    draws: Matrix = centres + (roots @ rng.normal(size=(*centres.shape, 1)))[..., 0]
    if space.quadratic:
        return draws
    given = tuple(
        jnp.asarray(each, jnp.float32) for each in (likelihood.precision, likelihood.gradient)
    )
    shared = tuple(
        jnp.asarray(each, jnp.float32) for each in (likelihood.position, space.mean, space.scale)
    )
    starts, around = (jnp.asarray(each, jnp.float32) for each in (draws, roots))
    key = jax.random.key(int(rng.integers(2**31)))
    ends = final_states(
        _log_posterior(model), given, (*shared, model.constants), starts, around, key
    )
    return np.asarray(ends, np.float64)


@lru_cache(maxsize=32)
def _log_posterior(model: UnitModel) -> Callable[[jax.Array, _Own, _Shared], jax.Array]:
    """The log prior plus a quadratic log-likelihood. Cached, so that it compiles once."""

    def density(position: jax.Array, given: _Own, shared: _Shared) -> jax.Array:
        precision, gradient = given
        centre, mean, scale, constants = shared
        off = position - centre
        prior = model.log_prior(mean + scale @ position, constants)
        return jnp.asarray(prior + off @ gradient - 0.5 * off @ precision @ off)

    return density


def _convergence(rounds: Rounds, likelihood: ScoreLikelihood, draws: Matrix) -> tuple[bool, str]:
    """Whether the rounds converged, as far as the noise shows it; and a sentence about it."""
    if not np.isfinite(draws).all():
        return (
            False,
            "The fit did not converge: its rounds diverged. Check the model and its prior.",
        )
    spread = np.maximum(draws.std(axis=0), 1e-12)
    positions = np.array([each.position for each in rounds.records if each.late]) @ rounds.basis.T
    half = len(positions) // 2
    first, second = positions[:half].mean(axis=0), positions[half:].mean(axis=0)
    moved = float(np.max(np.abs(first - second) / spread))
    off = float(np.max(np.abs(draws.mean(axis=0) - second) / spread))
    wandered = float(np.max(positions.std(axis=0) / spread))
    found = f"moved by {moved:.1f} posterior standard deviations, and are {off:.1f} from the posterior mean"
    if moved < _MAX_HALF_SHIFT and off < _MAX_OFFSET and wandered < _MAX_WANDER:
        less, noise = likelihood.dispersion, likelihood.dispersion_noise
        if less > _MAX_UNDERDISPERSION or 1 - less < _DISPERSION_SIGNIFICANCE * noise:
            return True, f"Its late rounds {found}."
        how = (
            f"The fit did not converge: outcomes vary {less:.2f} times as much as the model says where its rounds "
            "ended, so that a scale may be too large. Narrow bounds or priors that are much too wide, take more "
            "rounds, tacit.Scoring(num_steps=57), or use a family of outcomes that vary less."
        )
        return False, how
    how = (
        f"The fit did not converge: its late rounds still {found}. Narrow bounds or priors that are much "
        "too wide, take more rounds, tacit.Scoring(num_steps=57), or check the model."
    )
    return False, how


def _misfit_messages(likelihood: ScoreLikelihood) -> tuple[str, ...]:
    """Sentences about overdispersion and outliers."""
    said = []
    more, noise = likelihood.dispersion, likelihood.dispersion_noise
    if more > _MIN_OVERDISPERSION and more - 1 > _DISPERSION_SIGNIFICANCE * noise:
        said.append(
            f"Outcomes vary about {more:.1f} times as much as the model says: another family of outcomes "
            "would fit better, and estimates may differ from those of the likelihood."
        )
    far, noise = likelihood.extreme, likelihood.extreme_noise
    if far > max(_OUTLIER_SIGNIFICANCE * noise, _MIN_OUTLIER_SHARE):
        said.append(
            f"About {far:.1%} of outcomes are outliers, which the model cannot explain. Their influence is "
            "bounded, so that estimates differ from those of the likelihood; a family with heavier tails "
            "would fit better."
        )
    return tuple(said)


def _collinearity_message(rounds: Rounds) -> tuple[str, ...]:
    """A sentence about collinear columns that noise may hide."""
    if rounds.curvature_noise < _MAX_CURVATURE_NOISE:
        return ()
    why = (
        "At this budget there are too few rows to see which columns are strongly collinear."
        if rounds.releases_curvature
        else "Of so many parameters, it is not released which columns are strongly collinear."
    )
    return (f"{why} If some are, their intervals are too narrow: leave one of them out.",)


def _unlearned_message(model: UnitModel, space: Whitening, draws: Matrix) -> tuple[str, ...]:
    """A sentence about parameters whose posterior is nearly the prior."""
    normal = np.random.default_rng(0).normal(size=draws.shape)
    before, after = (
        constrained_draws(model, jnp.asarray(space.mean + each @ space.scale.T, jnp.float32))
        for each in (normal, draws)
    )
    little = {name: _is_unlearned(before[name], after[name]) for name in before}
    names = [each for name, which in little.items() for each in _entry_names(model, name, which)]
    if not names:
        return ()
    return (f"{UNLEARNED} {', '.join(names)}: intervals are nearly the prior's.",)


def _entry_names(model: UnitModel, name: str, which: NDArray[np.bool_]) -> list[str]:
    """A parameter, or the entries of it that were chosen, if there are few and they have names."""
    axes = model.labels.get(name)
    if which.all() or not which.any():
        return [name] if which.any() else []
    if axes is None or which.sum() > _MAX_NAMED_ENTRIES:
        return [f"parts of {name}"]
    places = np.argwhere(which)
    return [
        f"{name}[{', '.join(axis[i] for axis, i in zip(axes, at, strict=True))}]" for at in places
    ]


def _is_unlearned(before: NDArray[np.floating], after: NDArray[np.floating]) -> NDArray[np.bool_]:
    """Which entries have a posterior nearly as wide as the prior."""
    ends = [np.quantile(each.astype(np.float64), [0.16, 0.84], axis=0) for each in (before, after)]
    widths = [each[1] - each[0] for each in ends]
    return np.asarray(widths[1] > _UNLEARNED_RATIO * widths[0])

"""Effective sample sizes and R-hat of chains, from released draws.

Both are computed as ArviZ does: by ranks, which heavy tails do not disturb, and R-hat also of the distances from the
median (Vehtari et al. 2021). Chains of equal length follow one another, and each is split in two halves.
"""

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray
from numpyro.diagnostics import effective_sample_size, gelman_rubin
from scipy.special import ndtri
from scipy.stats import rankdata

Floats = NDArray[np.floating]
Arrays = Mapping[str, Floats]
# Beyond these a chain is said to mix badly.
_MOST_R_HAT, _LEAST_SIZE = 1.05, 50.0
# A chain that is expected to be worth less is refused, unless somebody asked for it.
LEAST_EFFECTIVE = 100.0
_FEWEST = 4  # draws of a chain, or nothing can be said


def by_chain(draws: Arrays, chains: int) -> dict[str, Floats]:
    """Draws [draws, ...] as [chains, draws of each, ...]."""
    return {
        name: value.reshape(chains, len(value) // chains, *value.shape[1:])
        for name, value in draws.items()
    }


def effective_sizes(draws: Arrays, chains: int = 1) -> dict[str, Floats]:
    """How many independent draws would know as much of each mean; NaN if nothing moves."""
    return {name: _each(_size, value) for name, value in by_chain(draws, chains).items()}


def r_hats(draws: Arrays, chains: int = 1) -> dict[str, Floats]:
    """How much wider all draws are than halves of chains: near one if the chains have mixed."""
    return {name: _each(_ratio, value) for name, value in by_chain(draws, chains).items()}


def _each(measure: Callable[[Floats], Floats], draws: Floats) -> Floats:
    """A measure of each number of an array [chains, draws, ...]; NaN if some draw is not finite."""
    if draws.shape[1] < _FEWEST or not draws.size:
        return np.full(draws.shape[2:], np.nan)
    fine = np.isfinite(draws).all(axis=(0, 1))
    with np.errstate(all="ignore"):  # draws that never move
        found = measure(_halves(np.where(fine, draws, 0.0).astype(np.float64)))
    return np.asarray(np.where(fine, found, np.nan), np.float64)


def _halves(draws: Floats) -> Floats:
    """The halves of each chain as chains; a draw in the middle is left out."""
    half = draws.shape[1] // 2
    return np.concatenate([draws[:, :half], draws[:, -half:]])


def _size(draws: Floats) -> Floats:
    return np.asarray(effective_sample_size(_by_rank(draws)))


def _ratio(draws: Floats) -> Floats:
    folded = np.abs(draws - np.median(draws, axis=(0, 1)))
    both = [np.asarray(gelman_rubin(_by_rank(each))) for each in (draws, folded)]
    return np.asarray(np.maximum(*both))


def _by_rank(draws: Floats) -> Floats:
    """Normal scores of the ranks among all draws."""
    flat = draws.reshape(-1, *draws.shape[2:])
    ranks = rankdata(flat, axis=0)
    scores = np.where(flat.std(axis=0) > 0, ndtri((ranks - 0.375) / (len(flat) + 0.25)), np.nan)
    return np.asarray(scores.reshape(draws.shape))


def bad_mixing(draws: Arrays, chains: int = 1) -> tuple[str, ...]:
    """A sentence if some number of the posterior cannot be trusted, or nothing.

    Halves of one chain that agree are no proof that it got to the posterior.
    """
    sizes, ratios = effective_sizes(draws, chains), r_hats(draws, chains)
    size, ratio = (np.concatenate([np.ravel(v) for v in by.values()]) for by in (sizes, ratios))
    moved = np.isfinite(size) & np.isfinite(ratio)
    said = []
    if not moved.all():
        said.append("Some numbers never moved, or there are too few draws to tell how they mix.")
    least, most = size[moved].min(initial=np.inf), ratio[moved].max(initial=0)
    if least < _LEAST_SIZE or most > _MOST_R_HAT:
        said.append(
            f"The chain mixes badly: its draws are worth {max(least, 0):.0f} independent ones at worst, and "
            f"R-hat reaches {most:.2f}, where 1 is best and {_MOST_R_HAT:g} the most that is trusted."
        )
    advice = "Take more steps, larger ones, or a better start."
    return (" ".join([*said, advice]),) if said else ()

"""Effective sample sizes and R-hat of chains, from released draws.

Both are computed as ArviZ does: by ranks, which heavy tails do not disturb, and R-hat also of the distances from the
median (Vehtari et al. 2021). Chains of equal length follow one another, and each is split in two halves.
"""

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]
Arrays = Mapping[str, Floats]
# A chain mixes badly if R-hat is above the first or the effective sample size below the second.
_MAX_R_HAT, _MIN_EFFECTIVE_SIZE = 1.05, 50.0
# Default settings that are expected to have a smaller effective sample size are refused.
MIN_EXPECTED_EFFECTIVE_SIZE = 100.0
_MIN_DRAWS = 4  # draws of a chain, fewer say nothing about convergence


def split_chains(draws: Arrays, chains: int) -> dict[str, Floats]:
    """Draws [draws, ...] as [chains, draws of each, ...]."""
    return {
        name: value.reshape(chains, len(value) // chains, *value.shape[1:])
        for name, value in draws.items()
    }


def effective_sample_sizes(draws: Arrays, chains: int = 1) -> dict[str, Floats]:
    """The effective sample size of each parameter's mean; NaN if it never moves."""
    return {
        name: _per_entry(_rank_effective_size, value)
        for name, value in split_chains(draws, chains).items()
    }


def r_hats(draws: Arrays, chains: int = 1) -> dict[str, Floats]:
    """R-hat of each parameter: near one if the chains have mixed."""
    return {
        name: _per_entry(_rank_r_hat, value) for name, value in split_chains(draws, chains).items()
    }


def _per_entry(measure: Callable[[Floats], Floats], draws: Floats) -> Floats:
    """A diagnostic of each entry of an array [chains, draws, ...]; NaN where some draw is not finite."""
    if draws.shape[1] < _MIN_DRAWS or not draws.size:
        return np.full(draws.shape[2:], np.nan)
    fine = np.isfinite(draws).all(axis=(0, 1))
    with np.errstate(all="ignore"):  # draws that never move
        whole, half = np.where(fine, draws, 0.0).astype(np.float64), draws.shape[1] // 2
        # The halves of each chain as chains; a draw in the middle is left out.
        found = measure(np.concatenate([whole[:, :half], whole[:, -half:]]))
    return np.asarray(np.where(fine, found, np.nan), np.float64)


def _rank_effective_size(draws: Floats) -> Floats:
    from numpyro.diagnostics import effective_sample_size

    return np.asarray(effective_sample_size(_rank_normalise(draws)))


def _rank_r_hat(draws: Floats) -> Floats:
    folded = np.abs(draws - np.median(draws, axis=(0, 1)))
    from numpyro.diagnostics import gelman_rubin

    both = [np.asarray(gelman_rubin(_rank_normalise(each))) for each in (draws, folded)]
    return np.asarray(np.maximum(*both))


def _rank_normalise(draws: Floats) -> Floats:
    """Normal scores of the ranks among all draws."""
    flat = draws.reshape(-1, *draws.shape[2:])
    from scipy.special import ndtri  # these take a while to load, and only chains need them
    from scipy.stats import rankdata

    ranks = rankdata(flat, axis=0)
    scores = np.where(flat.std(axis=0) > 0, ndtri((ranks - 0.375) / (len(flat) + 0.25)), np.nan)
    return np.asarray(scores.reshape(draws.shape))


def mixing_warnings(draws: Arrays, chains: int = 1) -> tuple[str, ...]:
    """A sentence if some number of the posterior cannot be trusted, or nothing.

    Halves of one chain that agree are no proof that it got to the posterior.
    """
    sizes, ratios = effective_sample_sizes(draws, chains), r_hats(draws, chains)
    size, ratio = (np.concatenate([np.ravel(v) for v in by.values()]) for by in (sizes, ratios))
    moved = np.isfinite(size) & np.isfinite(ratio)
    said = []
    if not moved.all():
        said.append(
            "Some parameters never moved, or there are too few draws to judge how they mix."
        )
    least, most = size[moved].min(initial=np.inf), ratio[moved].max(initial=0)
    if least < _MIN_EFFECTIVE_SIZE or most > _MAX_R_HAT:
        said.append(
            f"The chain mixes badly: its draws are worth {max(least, 0):.0f} independent ones at worst, and "
            f"R-hat reaches {most:.2f}, where 1 is best and {_MAX_R_HAT:g} the most that is trusted."
        )
    advice = "Take more steps, larger ones, or a better start."
    return (" ".join([*said, advice]),) if said else ()

"""Effective sample sizes and R-hat of chains, from released draws."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from numpyro.diagnostics import effective_sample_size, split_gelman_rubin

Arrays = Mapping[str, NDArray[np.floating]]
# Beyond these a chain is said to mix badly.
_MOST_R_HAT, _LEAST_SIZE = 1.1, 50.0
# A chain that is expected to be worth less is refused, unless somebody asked for it.
LEAST_EFFECTIVE = 100.0
_FEWEST = 4  # draws, or nothing can be said


def effective_sizes(draws: Arrays) -> dict[str, NDArray[np.floating]]:
    """How many independent draws would know as much of each mean; NaN if nothing moves."""
    return {name: _each(effective_sample_size, value) for name, value in draws.items()}


def r_hats(draws: Arrays) -> dict[str, NDArray[np.floating]]:
    """How much wider all draws are than either half of them: near one if the chain has mixed."""
    return {name: _each(split_gelman_rubin, value) for name, value in draws.items()}


def _each(measure: object, draws: NDArray[np.floating]) -> NDArray[np.floating]:
    assert callable(measure)
    if len(draws) < _FEWEST:
        return np.full(draws.shape[1:], np.nan)
    with np.errstate(all="ignore"):  # draws that never move, or are infinite
        return np.asarray(measure(draws[None].astype(np.float64)), np.float64)


def bad_mixing(draws: Arrays) -> tuple[str, ...]:
    """A sentence if some number of the posterior cannot be trusted, or nothing.

    Halves of one chain that agree are no proof that it got to the posterior.
    """
    sizes, ratios = effective_sizes(draws), r_hats(draws)
    size, ratio = (np.concatenate([np.ravel(v) for v in by.values()]) for by in (sizes, ratios))
    moved = np.isfinite(size) & np.isfinite(ratio)
    said = []
    if not moved.all():
        said.append("Some numbers never moved, or there are too few draws to tell how they mix.")
    least, most = size[moved].min(initial=np.inf), ratio[moved].max(initial=0)
    if least < _LEAST_SIZE or most > _MOST_R_HAT:
        said.append(
            f"The chain mixes badly: its draws are worth {max(least, 0):.0f} independent ones at worst, and "
            f"R-hat reaches {most:.2f}, where 1 is best."
        )
    advice = "Take more steps, larger ones, or a better start."
    return (" ".join([*said, advice]),) if said else ()

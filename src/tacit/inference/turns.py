"""Several chains that take turns, in one program and over one sequence of releases.

Every step is a step of one chain, and so one release, whose outcome decides what that chain asks next. The releases are
the same, and as many, as those of one long chain: the budget is shared, and nothing changes in what is charged. All chains
start at draws of a private approximation, so that several short ones lose no more than their burn-in.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

_CHAINS = 4
# Chains of fewer steps than this would be too short to compare.
_SHORTEST = 10


def chains_of(steps: int) -> int:
    """How many chains share so many steps."""
    return _CHAINS if steps >= _CHAINS * _SHORTEST else 1


def chains_in_words(steps: int) -> str:
    """The chains that share so many steps, at the beginning of a sentence."""
    chains = chains_of(steps)
    return "A Markov chain" if chains == 1 else f"{chains} Markov chains that share {steps} steps,"


def turns(first: int, count: int, chains: int) -> NDArray[np.int32]:
    """Which chain each of some steps belongs to."""
    return (np.arange(first, first + count) % chains).astype(np.int32)


def chain_by_chain(steps: Any, chains: int, kept: slice) -> Any:
    """What some steps gave, [steps, ...], as the kept steps of each chain, one chain after the other."""
    whole = steps[: len(steps) // chains * chains]
    return np.concatenate([whole[i::chains][kept] for i in range(chains)])

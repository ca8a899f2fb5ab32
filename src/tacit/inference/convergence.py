"""The end of a noisy optimisation, by its released trace alone: which steps may be averaged.

A steady trace is no sign that a fit is right: steps that are too short are steady, too. So this
is never reported as convergence.
"""

from itertools import pairwise
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray


class VariationalFit(NamedTuple):
    """A fitted guide, and how it got there. Follows from released values only."""

    params: Any
    trace: dict[str, NDArray[np.floating]]
    steady: bool


def finished(trace: Any, *, average: bool) -> VariationalFit:
    """The last parameters of a trace; or the average of its steady end, if there is one."""
    leaves = jax.tree.leaves(trace)
    start = steady_from(np.concatenate([leaf.reshape(len(leaf), -1) for leaf in leaves], axis=1))
    steady = start is not None
    averaged = average and steady
    params = jax.tree.map(lambda leaf: leaf[start:].mean(axis=0) if averaged else leaf[-1], trace)
    return VariationalFit(params, _named(trace), steady)


def _named(trace: Any) -> dict[str, NDArray[np.floating]]:
    """Arrays by name, also where a flow nests them."""
    leaves = jax.tree_util.tree_flatten_with_path(trace)[0]
    return {jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in leaves}


def steady_from(trace: NDArray[np.floating]) -> int | None:
    """The first of ten candidate steps from which the trace has no trend, or None.

    Each suffix of the trace is regressed on time, scaled to [0, 1]; it is steady if the
    slopes are below 0.05 on average (Jälkö et al. 2022).
    """
    steps = len(trace)
    tenths = [tenth * steps // 10 for tenth in range(11)]
    # Sums of values, and of values times their step, from each tenth to the end.
    parts = [np.asarray(trace[a:b], np.float64) for a, b in pairwise(tenths)]
    values = np.cumsum([part.sum(axis=0) for part in parts][::-1], axis=0)[::-1]
    # Not by a matrix product, whose threads would go on spinning after so little work.
    moments = [
        np.einsum("i,ij->j", np.arange(a, b, dtype=np.float64), part)
        for (a, b), part in zip(pairwise(tenths), parts, strict=True)
    ]
    timed = np.cumsum(moments[::-1], axis=0)[::-1]
    for start, value, moment in zip(tenths, values, timed, strict=False):
        length = steps - start
        if length < 10:
            return None
        centre, spread = start + (length - 1) / 2, length * (length**2 - 1) / 12
        slopes = (moment - centre * value) / spread * (length - 1)
        if np.mean(np.abs(slopes)) < 0.05:
            return start
    return None

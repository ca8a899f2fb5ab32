"""Which steps of a noisy optimisation may be averaged, from its released trace alone: free of charge.

A steady trace is no sign that a fit is right: steps that are too short are steady, too. So this
is never reported as convergence.
"""

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray


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

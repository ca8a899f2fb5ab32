"""Whether a noisy optimisation has settled, from its released trace alone: free of charge."""

import numpy as np
from numpy.typing import NDArray


def settled_from(trace: NDArray[np.floating]) -> int | None:
    """The first of ten candidate steps from which the trace has no trend, or None.

    Each suffix of the trace is regressed on time, scaled to [0, 1]; it has settled if the
    slopes are below 0.05 on average (Jälkö et al. 2022).
    """
    for tenth in range(10):
        start = tenth * len(trace) // 10
        part = np.asarray(trace[start:], dtype=np.float64)
        if len(part) < 10:
            return None
        time = np.linspace(-0.5, 0.5, len(part))
        slopes = time @ (part - part.mean(axis=0)) / (time @ time)
        if np.mean(np.abs(slopes)) < 0.05:
            return start
    return None

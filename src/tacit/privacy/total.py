"""A noisy sum of changes that several sites clipped: for a server that they trust."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit import _validate
from tacit.errors import InvalidArgument
from tacit.privacy.noise import Randomness, rounded_normals

# A release is a whole number times the grid, rounded to float32: by less than half a grid for
# whole numbers up to this.
EXACT = 2**23 - 2**9


def noisy_total(
    changes: Sequence[NDArray[Any]], noise_std: float, source: Randomness
) -> NDArray[np.int64]:
    """The sum of the sites' whole numbers, with Gaussian noise of ``noise_std`` lattice points.

    Guarantee:
        Released: the sum of integer vectors, one from each site and each clipped by the site's own
            gate, plus round(noise_std Z).
        Neighbours: add-remove and replace, of whatever is one unit of that gate.
        Sensitivity under add-remove: `points`, the lattice points of a clip, in the 2-norm.
        Sensitivity under replace: `2 * points`.
        Event: Gaussian, with a multiplier of noise_std over the lattice points of a clip.
        Public inputs: ``noise_std`` and how many sites there are.
        Theorem: F5.
    """
    std = _validate.non_negative("noise_std", noise_std)
    total: NDArray[np.int64] = np.asarray(np.sum(np.stack(changes), axis=0), np.int64)
    return total if std == 0 else total + rounded_normals(source, std, len(total))


def exact_bound(reach: float) -> int:
    """The batch bound of a mechanism whose sums, at most ``reach`` clips, are exact in float32."""
    return math.ceil(reach * 2.0**30 / EXACT)


def whole_numbers_of(released: NDArray[np.float32], clip: float, points: int) -> NDArray[np.int64]:
    """The lattice points that a release stood for. [exact-whole]"""
    grid = float(np.float32(clip) / np.float32(points))
    whole = np.rint(np.asarray(released, np.float64) / grid).astype(np.int64)
    if np.abs(whole).max(initial=0) > EXACT:
        # Beyond 16 standard deviations of noise: it does not happen.
        raise InvalidArgument("A released number is larger than the plan allows for.")
    return whole

"""The correction of the Barker test: what to add to normal noise so that the sum is logistic.

A Barker test accepts if a log-ratio plus logistic noise is positive. Where part of the noise
is normal, of variance C, the rest is a correction, which does not depend on data (Heikkilä et al.
2019, eq. 8). No distribution is exactly right. Ours is the best one on a grid: of all
symmetric point masses with the right variance, those whose sum with the normal has a
distribution function nowhere far from the logistic one. The paper's mixture of normals is in
`tacit.papers.barker`.

Tables for some variances ship in ``barker_tables.json``, which scripts/make_correction.py writes.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib.resources import files
from typing import Final

import numpy as np
from scipy.optimize import linprog
from scipy.special import expit, ndtr

from tacit import _validate
from tacit._typing import Floats
from tacit.errors import InvalidArgument
from tacit.inference.method import per_step_draws

LOGISTIC_VARIANCE: Final = math.pi**2 / 3
MIN_VARIANCE: Final = 0.05
# Point masses lie within the first; the sum is compared with the logistic up to the second.
_GRID_END, _COMPARED_UP_TO = 25.0, 30.0
# Of the linear programme, in probability: far below what a run of any length could show.
_LP_TOLERANCE = 1e-8
# So that a run's corrections are independent of its other draws under the same seed.
_CORRECTION_STREAM = 1


@dataclass(frozen=True, kw_only=True, eq=False)
class Correction:
    """A mixture of normals, or of point masses where ``spreads`` are zero, symmetric about 0.

    ``noise_variance`` is C, the variance of the normal noise that it completes.
    """

    noise_variance: float
    weights: Floats
    centres: Floats
    spreads: Floats

    @classmethod
    def mirrored(
        cls, noise_variance: float, weights: Floats, centres: Floats, spreads: Floats | None = None
    ) -> "Correction":
        """Half of each weight at a centre, half at its mirror image; and a total of one."""
        spreads = np.zeros_like(centres) if spreads is None else spreads
        side = np.concatenate([-centres, centres])
        order = np.argsort(side, kind="stable")
        return cls(
            noise_variance=noise_variance,
            weights=(np.tile(weights, 2) / (2 * weights.sum()))[order],
            centres=side[order],
            spreads=np.tile(spreads, 2)[order],
        )

    @property
    def variance(self) -> float:
        """Of the correction; pi^2/3 - C would be that of the right one, if there were one."""
        return float(self.weights @ (self.centres**2 + self.spreads**2))

    def total_distribution(self, points: Floats) -> Floats:
        """The distribution function of normal noise plus correction."""
        total = np.zeros(np.shape(points))
        scales = np.sqrt(self.noise_variance + self.spreads**2)
        for weight, centre, scale in zip(self.weights, self.centres, scales, strict=True):
            total += weight * ndtr((points - centre) / scale)
        return total

    @cached_property
    def error(self) -> float:
        """How far the chance to accept is from the exact test's, at worst: measured."""
        # The difference has no detail finer than the noise: between points it hides millionths.
        points = np.arange(0, 40, 1e-3)
        return float(np.abs(self.total_distribution(points) - expit(points)).max())

    @cached_property
    def _cumulative(self) -> Floats:
        cumulative = np.cumsum(self.weights)
        cumulative[-1] = 1.0
        return cumulative

    def draw(self, generator: np.random.Generator, count: int) -> Floats:
        """Independent corrections."""
        chosen = np.searchsorted(self._cumulative, generator.random(count), side="right")
        drawn = self.centres[chosen]
        if self.spreads.any():
            drawn = drawn + self.spreads[chosen] * generator.standard_normal(count)
        return drawn

    def draws(self, seed: Sequence[int], first: int, steps: int) -> Floats:
        """A correction for each of some steps; a step's depends on its number alone."""
        return per_step_draws(self.draw, seed, first, steps, stream=_CORRECTION_STREAM)


def logistic_correction(noise_variance: float = 2.0) -> Correction:
    """The correction for normal noise of a variance: shipped, or else made in about a second.

    >>> found = logistic_correction(2.0)
    >>> round(found.error, 5), round(found.variance + 2.0, 5), round(LOGISTIC_VARIANCE, 5)
    (0.00059, 3.28987, 3.28987)
    """
    variance = _validate.positive("noise_variance", noise_variance)
    if not (MIN_VARIANCE <= variance < LOGISTIC_VARIANCE):
        raise InvalidArgument(
            f"noise_variance must be at least {MIN_VARIANCE} and below pi^2/3, the variance of "
            f"the logistic distribution; got {noise_variance!r}."
        )
    return _cached_correction(variance)


@lru_cache(maxsize=32)
def _cached_correction(variance: float) -> Correction:
    shipped = read_corrections("tacit.inference", "barker_tables.json")
    if variance in shipped:
        return shipped[variance]
    return Correction.mirrored(variance, *best_point_masses(variance))


@lru_cache(maxsize=2)
def read_corrections(package: str, name: str) -> dict[float, Correction]:
    """The corrections in a file of a package, by their noise variance."""
    content = json.loads(files(package).joinpath(name).read_text("utf-8"))
    return {
        float(variance): Correction.mirrored(
            float(variance), **{name: np.array(values) for name, values in parts.items()}
        )
        for variance, parts in content.items()
    }


def best_point_masses(variance: float) -> tuple[Floats, Floats]:
    """Weights and centres, none negative, of the table: the optimum of a linear programme.

    The unknowns are the weights of mirrored pairs on a grid, and the largest difference
    between the two distribution functions on a grid, which is made least. The variance is
    prescribed: it costs the difference next to nothing, and without it the outermost masses,
    which hardly matter to the difference, could lie anywhere.
    """
    scale = math.sqrt(variance)
    spacing = min(0.05, scale / 5)
    centres = np.arange(0, _GRID_END, spacing)
    points = np.arange(0, _COMPARED_UP_TO, spacing)
    total = ndtr((points[:, None] - centres) / scale) + ndtr((points[:, None] + centres) / scale)
    above = np.column_stack([total / 2, -np.ones_like(points)])
    below = np.column_stack([-total / 2, -np.ones_like(points)])
    found = linprog(
        np.append(np.zeros_like(centres), 1.0),
        A_ub=np.concatenate([above, below]),
        b_ub=np.concatenate([expit(points), -expit(points)]),
        A_eq=np.stack([np.append(np.ones_like(centres), 0.0), np.append(centres**2, 0.0)]),
        b_eq=[1.0, LOGISTIC_VARIANCE - variance],
        method="highs",
        options={
            "primal_feasibility_tolerance": _LP_TOLERANCE,
            "dual_feasibility_tolerance": _LP_TOLERANCE,
        },
    )
    if found.status != 0:
        raise InvalidArgument(
            f"No correction was found for a noise_variance of {variance:g}; use another, such as 2."
        )
    used = found.x[:-1] > 0
    return found.x[:-1][used], centres[used]

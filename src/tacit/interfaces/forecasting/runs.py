"""Fits of made-up tables, by the very mechanism that a plan would execute."""

import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import jax
import numpy as np
from numpy.typing import NDArray

from tacit.accounting import Budget
from tacit.inference.base import Intervals, Method, MethodResult
from tacit.inference.exact import laplace
from tacit.inference.mixing import effective_sizes
from tacit.interfaces.forecasting.tables import Floats, Tables
from tacit.privacy.noise import Randomness
from tacit.privacy.opening import open_gate
from tacit.privacy.rows import Rows

LEVEL = 0.9
_ENDS = ((1 - LEVEL) / 2, 1 - (1 - LEVEL) / 2)


@dataclass(frozen=True)
class Fits:
    """Fits of several tables: posterior means and ends of 90% intervals, [fits, entries].

    ``converged``, ``effective`` and ``seconds`` have an entry for each fit. ``effective`` is how many independent draws the
    worst number of a chain is worth; NaN where draws are independent. ``noise_included`` says that intervals should hold the truth
    with noise and all.
    """

    mean: Floats
    low: Floats
    high: Floats
    converged: NDArray[np.bool_]
    effective: Floats
    noise_included: bool
    seconds: Floats

    @property
    def width(self) -> Floats:
        """The median width of an interval."""
        return np.asarray(np.median(self.high - self.low, axis=0))

    def error(self, truth: Floats) -> Floats:
        """The root mean square error of the posterior mean."""
        return np.asarray(np.sqrt(np.mean((self.mean - truth) ** 2, axis=0)))

    def covered(self, truth: Floats) -> NDArray[np.bool_]:
        """Which intervals hold the truth."""
        return (self.low <= truth) & (truth <= self.high)

    def chance(self, truth: Floats, effects: Floats) -> Floats:
        """How often an interval would exclude zero, on the right side, if these were the effects.

        Errors and widths are taken to be those of the effects that were simulated.
        """
        moved = effects - truth
        told = np.where(effects > 0, self.low + moved > 0, self.high + moved < 0)
        return np.asarray(np.mean(told, axis=0))

    def detectable(self, truth: Floats, share: float) -> Floats:
        """The smallest positive effect that such a share of intervals would tell from zero."""
        return np.asarray(np.maximum(np.quantile(truth - self.low, share, axis=0), 0.0))


def private_fits(tables: Tables, rows: Sequence[Rows], budget: Budget, method: Method) -> Fits:
    """Fits every table within a budget, one after the other over one compiled program.

    Args:
        tables: What made the tables.
        rows: The tables.
        budget: The budget of each fit.
        method: The method with its settings.

    Returns:
        What the fits found.
    """
    seed = tables.seed  # of the noise: nothing here has to stay private
    model, mechanism = tables.fitted, method.calibrated(tables.fitted, budget)

    def fitted(i: int) -> tuple[MethodResult, float]:
        began = time.perf_counter()
        gate = open_gate(rows[i], mechanism, Randomness(seed + i))
        return method.run(model, gate, jax.random.key(seed + i)), time.perf_counter() - began

    first = fitted(0)  # which compiles
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found, seconds = zip(first, *pool.map(fitted, range(1, len(rows))), strict=True)
    return _together(tables, found, seconds)


def exact_width(tables: Tables, rows: Sequence[Rows]) -> Floats:
    """The median width of an interval without privacy: of the exact mode and the curvature there.

    Args:
        tables: What made the tables.
        rows: The tables.

    Returns:
        The width for each entry; NaN if no mode was found in any table.
    """
    found = [laplace(tables.fitted, each, 0) for each in rows]
    modes = [each for each in found if each.converged]
    if not modes:
        return np.full(len(tables.labels), np.nan)
    return _together(tables, modes, []).width


def _together(tables: Tables, found: Sequence[MethodResult], seconds: Sequence[float]) -> Fits:
    draws = [tables.flat(each.draws) for each in found]
    ends = np.array([np.quantile(each, _ENDS, axis=0) for each in draws])
    return Fits(
        mean=np.array([each.mean(axis=0) for each in draws]),
        low=ends[:, 0],
        high=ends[:, 1],
        converged=np.array([each.converged is not False for each in found]),
        effective=np.array([_effective(each) for each in found]),
        noise_included=all(each.intervals is Intervals.INCLUDED for each in found),
        seconds=np.asarray(seconds),
    )


def _effective(found: MethodResult) -> float:
    """How many independent draws the worst number of a chain is worth; NaN without one, and 0 if one never moved."""
    if not found.chain:
        return float("nan")
    sizes = effective_sizes(found.draws, found.chains).values()
    return float(min(np.nan_to_num(each).min() for each in sizes))

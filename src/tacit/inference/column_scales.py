"""Centres and spreads of columns, from noisy sums: what a column's own bounds do not tell.

Every column comes scaled to [-1, 1] by its bounds, and every unit counts once, by the average
over its rows.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np

from tacit import _validate
from tacit._typing import Floats
from tacit.accounting import Budget, calibrate
from tacit.inference.method import no_inputs
from tacit.models.base import Row
from tacit.privacy.gate import Gate, check, run
from tacit.privacy.mechanisms import NoisySums, Release
from tacit.privacy.trace import Step

ScaleMethod = Literal["quantiles", "moments"]
# The median of a normal distribution, and one standard deviation to either side of it.
_QUANTILE_LEVELS = (0.1587, 0.5, 0.8413)
_HALVINGS = 10
# The most units that a sum can add up without wrapping around.
_BATCH_BOUND = 2**31


class ColumnScales(NamedTuple):
    """A centre and a spread for each column, in halves of the bounds' width from their middle."""

    centres: Floats
    spreads: Floats


@dataclass(frozen=True, kw_only=True)
class ScaleRelease:
    """What a release of scales does, all of it public.

    By ``"quantiles"``, the centre is the median and the spread half the width of the middle
    68%, each found by halving an interval ten times, on a noisy count of which half it is in. By
    ``"moments"``, they are mean and standard deviation, from one noisy sum.
    A column whose spread would be lost in that, such as one that is nearly always zero, keeps
    the scale of its bounds.
    """

    columns: tuple[str, ...]
    by: ScaleMethod = "quantiles"

    def __post_init__(self) -> None:
        _validate.choice("by", self.by, get_args(ScaleMethod))

    def calibrate(self, budget: Budget) -> NoisySums:
        """The releases, with the noise that a budget asks for."""
        number = len(self.columns)
        if self.by == "moments":
            steps, dimension, longest = 1, 2 * number + 1, 2.0 * number + 1
        else:
            steps, dimension = _HALVINGS, number * len(_QUANTILE_LEVELS)
            longest = number * sum(max(share, 1 - share) ** 2 for share in _QUANTILE_LEVELS)
        return NoisySums(
            sampling_rate=1.0,
            num_steps=steps,
            clip=longest**0.5,
            noise_multiplier=calibrate.noise_multiplier(budget, num_steps=steps),
            dimension=dimension,
            batch_bound=_BATCH_BOUND,
        )

    def check(self, gate: Gate) -> None:
        """Raises if the release cannot be made of rows of these shapes. Reads no row."""
        edge = jnp.zeros((len(_QUANTILE_LEVELS), len(self.columns)))
        if self.by == "moments":
            check(_moments_step(self.columns), jnp.zeros(()), no_inputs(0, 1)[0], gate)
        else:
            check(_bisection_step(self.columns), (edge, edge), no_inputs(0, 1)[0], gate)

    def run(self, gate: Gate) -> ColumnScales:
        """Centres and spreads, from what the gate releases."""
        find = _moments if self.by == "moments" else _quantiles
        centres, spreads = find(self.columns, gate)
        usable = (spreads > 2 * 2.0**-_HALVINGS) & (np.abs(centres) <= 1)
        return ColumnScales(
            np.where(usable, centres, 0.0), np.where(usable, np.minimum(spreads, 1), 1.0)
        )


def _quantiles(columns: tuple[str, ...], gate: Gate) -> tuple[Floats, Floats]:
    edge = np.ones((len(_QUANTILE_LEVELS), len(columns)), np.float32)
    (low, high), _ = run(
        gate, _bisection_step(columns), (jnp.asarray(-edge), jnp.asarray(edge)), no_inputs
    )
    below, middle, above = np.asarray((low + high) / 2, np.float64)
    return middle, (above - below) / 2


# The ends of the interval in which each quantile of each column lies.
Interval = tuple[jax.Array, jax.Array]


@lru_cache(maxsize=8)
def _bisection_step(columns: tuple[str, ...]) -> Step:
    shares = np.array(_QUANTILE_LEVELS, np.float32)[:, None].tolist()

    def excess(tried: jax.Array, rows: Row, present: jax.Array) -> jax.Array:
        """The share of a unit's rows below the tried values, less the level of each quantile."""
        values = jnp.stack([rows[name] for name in columns], axis=-1)
        below = values[:, None, :] < tried
        return (_unit_mean(below, present) - jnp.array(shares)).ravel() * present.any()

    def step(state: Interval, _: jax.Array, release: Release) -> tuple[Interval, jax.Array]:
        low, high = state
        tried = (low + high) / 2
        more = release.noisy_sum(excess, tried).reshape(tried.shape) > 0
        return (jnp.where(more, low, tried), jnp.where(more, tried, high)), jnp.zeros(())

    return step


def _moments(columns: tuple[str, ...], gate: Gate) -> tuple[Floats, Floats]:
    _, released = run(gate, _moments_step(columns), jnp.zeros(()), no_inputs)
    count, *sums = np.asarray(released[0], np.float64)
    means, squares = np.array(sums).reshape(2, len(columns)) / max(count, 1.0)
    return means, np.sqrt(np.maximum(squares - means**2, 0.0))


@lru_cache(maxsize=8)
def _moments_step(columns: tuple[str, ...]) -> Step:
    def powers(_: jax.Array, rows: Row, present: jax.Array) -> jax.Array:
        values = jnp.stack([rows[name] for name in columns], axis=-1)
        sums = [jnp.ones(1), _unit_mean(values, present), _unit_mean(values**2, present)]
        return jnp.concatenate(sums) * present.any()

    def step(state: jax.Array, _: jax.Array, release: Release) -> tuple[jax.Array, jax.Array]:
        return state, release.noisy_sum(powers, state)

    return step


def _unit_mean(values: jax.Array, present: jax.Array) -> jax.Array:
    """The mean over a unit's rows that are present."""
    kept = present.reshape(-1, *[1] * (values.ndim - 1))
    return jnp.where(kept, values, 0).sum(axis=0) / jnp.maximum(present.sum(), 1)

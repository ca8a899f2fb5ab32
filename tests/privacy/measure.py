"""What tests of the mechanism share: releases as whole numbers, and what their event says."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from tacit.accounting import events
from tacit.privacy.gate import Gate, run
from tacit.privacy.mechanisms import sum_rows
from tacit.privacy.noise import Randomness
from tacit.privacy.rows import Rows


class Said(NamedTuple):
    """One kind of step that an event has: noise over clip, the sampling rate, and how many."""

    multiplier: float
    rate: float
    steps: int


def said(mechanism):
    """What a mechanism's event says of its noise and its sampling; nothing of it from the mechanism."""
    found = []
    for leaf, times in events.leaves(mechanism.event):
        rate = 1.0
        if isinstance(leaf, events.PoissonSampledDpEvent):
            rate, leaf = leaf.sampling_probability, leaf.event  # noqa: PLW2901
        found.append(Said(leaf.noise_multiplier, rate, times))
    return found


def value(_, row):
    return row["x"]


def just_release(state, _, release):
    return state, release.noisy_sum(sum_rows(value), ())


def nothing(_, steps):
    """Inputs of steps that need none."""
    return np.zeros(steps, np.float32)


def whole_numbers(out, mechanism):
    """The lattice points of releases; each is one, or this fails."""
    points = np.asarray(out, np.float64) / float(
        np.float32(mechanism.clip) / mechanism.lattice.points
    )
    whole = np.rint(points)
    assert np.abs(points - whole).max() <= 2.0**-24 * np.abs(points).max()
    return whole.astype(np.int64)


def released(mechanism, values, seed=0, step=just_release, block=4000):
    """Releases [steps, numbers] of one gate, in lattice points; ``values`` are rows of x."""
    rows = values if isinstance(values, Rows) else Rows({"x": np.asarray(values, np.float32)})
    gate = Gate(rows, mechanism, Randomness(seed))
    return whole_numbers(run(gate, step, jnp.zeros(1), nothing, block=block)[1], mechanism)


def correlations(values, most):
    """Of a series [steps, series] with itself so many steps later, over all series; standardised."""
    centred = values - values.mean(axis=0)
    spectrum = np.fft.rfft(centred, 2 * len(values), axis=0)
    products = np.fft.irfft(np.abs(spectrum) ** 2, axis=0).sum(axis=1)[1 : most + 1]
    pairs = (len(values) - np.arange(1, most + 1)) * values.shape[1]
    return products / np.sqrt(pairs) / centred.var()


def accepted(settings, values, shifts, seed=0):
    """How often a proposal is accepted at each shift."""

    def step(state, shift, release):
        return state, release.noisy_test(lambda _, rows, __: rows["x"][0], (), shift)

    each = settings.num_steps // len(shifts)
    told = np.repeat(np.float32(shifts), each)
    gate = Gate(Rows({"x": np.asarray(values, np.float32)}), settings, Randomness(seed))
    inputs = lambda start, n: told[start : start + n]  # noqa: E731
    out = run(gate, step, jnp.zeros(1), inputs, block=4000)[1]
    return np.asarray(out).reshape(len(shifts), each).sum(axis=1), each

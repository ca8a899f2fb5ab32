"""Which units a step looks at: exact sampling, in time proportional to the sample.

Formal guarantees:
    `poisson_batches` (Lemma 2): every unit is in every step's batch with probability exactly ``rate``, independently of
        all other units and steps. No batch is cut short.
    `fixed_size_batches` (Theorem 5): every set of so many units is equally likely in every step.
    Public: the rate or the size. Who is sampled, and how wide a batch is, leaves in no release.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tacit.privacy.noise import Integers, Randomness, geometric_gaps, uniform_integers

# Fewer units than this take hardly any time.
_SMALL_TABLE = 2**12


class Batches(NamedTuple):
    """Indices of the units of several steps, padded to one width, and which are real."""

    indices: NDArray[np.int32]
    present: NDArray[np.bool_]


def poisson_batches(
    bits: Randomness, rate: float, units: int, steps: int, capacity: int
) -> Batches:
    """Every unit in every step with probability `rate`, independently. [sample-poisson]

    ``capacity`` is the usual width; a larger batch makes the block wider, so nothing is
    ever left out. Widths appear in no output.
    """
    taken = _bernoulli_positions(bits, rate, units * steps)
    starts = np.arange(steps + 1) * units
    firsts = np.searchsorted(taken, starts).astype(np.int32)
    counts = np.diff(firsts)
    width = max(capacity, int(counts.max(initial=0)))
    taken -= np.repeat(starts[:-1], counts)
    # Padding repeats indices of later units; `present` masks them.
    places = np.arange(width, dtype=np.int32)
    indices = np.append(taken, 0).astype(np.int32).take(firsts[:-1, None] + places, mode="clip")
    return Batches(indices, places < counts[:, None])


def fixed_size_batches(bits: Randomness, units: int, size: int, steps: int) -> Batches:
    """In every step so many different units, every set of them equally likely. [sample-fixed]

    Whoever comes twice is replaced by a fresh draw until all differ. Nobody is treated otherwise
    than anybody else, so no set is likelier than another. Of more than half of all units, those
    are drawn who are left out, which is quicker and as likely.
    """
    if 2 * size > units:
        kept = np.ones((steps, units), np.bool_)
        np.put_along_axis(
            kept, fixed_size_batches(bits, units, units - size, steps).indices, 0, axis=1
        )
        indices = np.nonzero(kept)[1].astype(np.int32).reshape(steps, size)
        return Batches(indices, np.ones(indices.shape, np.bool_))
    indices = np.sort(
        uniform_integers(bits, units, steps * size).astype(np.int32).reshape(steps, size)
    )
    while True:
        again = indices[:, 1:] == indices[:, :-1]
        rows = np.flatnonzero(again.any(axis=1))
        if not len(rows):
            break
        some = indices[rows]
        some[:, 1:][again[rows]] = uniform_integers(bits, units, int(again.sum()))
        indices[rows] = np.sort(some)
    return Batches(indices, np.ones(indices.shape, np.bool_))


def _bernoulli_positions(bits: Randomness, rate: float, length: int) -> Integers:
    """Positions of successes in `length` independent trials, by skipping the failures."""
    found: list[Integers] = []
    last = -1
    while last < length:
        ahead = (length - last) * rate
        gaps = geometric_gaps(bits, rate, int(ahead + 6 * ahead**0.5) + 16)
        np.minimum(gaps, length, out=gaps)
        gaps += 1
        gaps[0] += last
        positions = np.cumsum(gaps, out=gaps)
        found.append(positions)
        last = int(positions[-1])
    everything = np.concatenate(found) if len(found) > 1 else found[0]
    return everything[: np.searchsorted(everything, length)]


def typical_batch_width(rate: float, units: int) -> int:
    """A width that nearly every batch fits into, for speed only: one less than a multiple of 8, as the gate adds a place."""
    mean = rate * units
    return int(np.ceil((mean + 4 * mean**0.5 + 4) / 8) * 8) - 1


def padded_length(count: int) -> int:
    """A length of tables of about so many units, for speed only.

    It is a power of two that is not less; of large numbers, a multiple of a quarter of the one below.

    >>> [padded_length(count) for count in (100, 5000, 9000)]
    [128, 5120, 10240]
    """
    below = 1 << max(count - 1, 1).bit_length() - 1
    step = below if below < _SMALL_TABLE else below // 4
    return -(-count // step) * step

"""Larger units of privacy: everything that a site holds, or shards of it.

A group of rows is a unit like a person's rows are: the gate clips what it contributes as a whole.
"""

from collections.abc import Callable

import jax
import numpy as np
from numpy.typing import NDArray

from tacit import _validate
from tacit._typing import Floats, HostArray, PyTree
from tacit.privacy.noise import Randomness, uniform_integers
from tacit.privacy.rows import Rows, Units


def all_rows_as_unit(rows: Rows) -> Rows:
    """One unit that holds all rows."""
    fields, present = _flat_rows(rows)
    units = Units({name: values[None] for name, values in fields.items()}, present[None])
    return Rows.from_units(units, "data set")


def random_shards(rows: Rows, count: int, most_rows: int, randomness: Randomness) -> Rows:
    """Units that each hold the rows of a random share of the units, at most ``most_rows``.

    Every unit draws its shard by itself, so that taking one away moves no other [group-draw].
    A shard has room for a declared number of rows, as its width must not tell how many rows the
    others hold; further ones are left out, a rule that looks at that shard alone.
    """
    shards = _validate.count("the number of shards", count)
    most = _validate.count("the most rows of a shard", most_rows)
    fields, present = _flat_rows(rows)
    drawn = uniform_integers(randomness, shards, rows._count)
    owner = np.repeat(drawn, rows.rows_per_unit)[present]
    order = np.argsort(owner, kind="stable")
    starts = np.searchsorted(owner[order], np.arange(shards))
    place = np.arange(len(order)) - starts[owner[order]]
    kept = place < most
    where = owner[order][kept], place[kept]
    held = np.zeros((shards, most), np.bool_)
    held[where] = True
    grouped = {}
    for name, values in fields.items():
        grouped[name] = np.zeros((shards, most, *values.shape[1:]), values.dtype)
        grouped[name][where] = values[present][order][kept]
    return Rows.from_units(Units(grouped, held), "shard")


def evaluate_without_privacy(
    rows: Rows, function: Callable[..., jax.Array], given: PyTree
) -> Floats:
    """What ``function(given, rows, present)`` is for all rows, in double precision.

    NOT PRIVATE: neither clipped nor noisy. For runs that say so, and for comparisons.
    """
    fields, present = _flat_rows(rows)
    with jax.enable_x64(True):
        wide = {
            name: values.astype(np.float64) if values.dtype.kind == "f" else values
            for name, values in fields.items()
        }
        return np.asarray(jax.jit(function)(given, wide, present), np.float64)


def _flat_rows(rows: Rows) -> tuple[dict[str, HostArray], NDArray[np.bool_]]:
    """The rows of all units one after the other, and which of them are real."""
    flat = {name: values.reshape(-1, *values.shape[2:]) for name, values in rows._fields.items()}
    return flat, rows._present.ravel()

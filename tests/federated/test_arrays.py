"""Arrays in files: what is read is what was written, and nothing else is accepted."""

import io

import numpy as np
import pytest

from tacit.errors import TacitError
from tacit.federated.protocol import pack_arrays, unpack_arrays

KINDS = {"factor": ("f", 1), "applied_round": ("i", 0), "mark": ("u", 1)}


def test_arrays_come_back_as_they_were():
    held = {
        "factor": np.array([1.5, -np.inf, 1e-300]),
        "applied_round": np.int64(3),
        "mark": np.zeros(0, np.uint8),
    }
    found = unpack_arrays(pack_arrays(*held.values()), **KINDS)
    for name, values in held.items():
        assert found[name].dtype == np.asarray(values).dtype
        assert np.array_equal(found[name], values)


def pickled():
    file = io.BytesIO()
    for values in (
        np.array([{}], object),
        np.int64(3),
        np.zeros(0, np.uint8),
    ):
        np.save(file, values)
    return file.getvalue()


GOOD = pack_arrays(np.ones(2), np.int64(3), np.zeros(0, np.uint8))


@pytest.mark.parametrize(
    "data",
    [
        None,
        b"",
        b"factor <f8 2\n" + bytes(16),  # as earlier versions wrote it
        GOOD[: len(GOOD) // 2],
        GOOD + b"x",
        pickled(),
        pack_arrays(np.ones(2), np.int64(3)),
        pack_arrays(np.ones((2, 1)), np.int64(3), np.zeros(0, np.uint8)),
        pack_arrays(np.ones(2, int), np.int64(3), np.zeros(0, np.uint8)),
    ],
)
def test_anything_else_is_refused(data):
    with pytest.raises(TacitError, match="damaged, or was written by another version"):
        unpack_arrays(data, **KINDS)

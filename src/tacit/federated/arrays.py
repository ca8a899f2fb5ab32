"""Arrays as bytes, for what is kept in a file between two messages.

Arrays are written one after the other in NumPy's ``.npy`` format. An ``.npz`` archive takes several times as
long, which is more than the rest of an answer.
"""

import io
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.errors import TacitError


def written(*arrays: ArrayLike) -> bytes:
    """Arrays as bytes."""
    file = io.BytesIO()
    for values in arrays:
        np.save(file, np.asarray(values), allow_pickle=False)
    return file.getvalue()


def read(data: bytes | None, **expected: tuple[str, int]) -> dict[str, NDArray[Any]]:
    """The arrays that `written` wrote, by name.

    Args:
        data: The bytes.
        **expected: In the order of the arrays, for each name the kinds of numbers that are allowed,
            as in ``dtype.kind``, and the number of dimensions.

    Returns:
        The arrays by name.

    Raises:
        TacitError: If the bytes do not hold such arrays.
    """
    file = io.BytesIO(data or b"")
    try:
        arrays = {name: np.load(file, allow_pickle=False) for name in expected}
    except (ValueError, EOFError, OSError) as error:
        raise _damaged() from error
    for name, (kinds, dimensions) in expected.items():
        if arrays[name].dtype.kind not in kinds or arrays[name].ndim != dimensions:
            raise _damaged()
    if file.read(1):
        raise _damaged()
    return arrays


def _damaged() -> TacitError:
    return TacitError(
        "A stored state is damaged, or was written by another version of Tacit. Restore the file, or "
        "start a new run."
    )

"""Arrays as bytes, for what is kept in a file between two messages."""

import io
from typing import Any

import numpy as np


def written(**arrays: Any) -> bytes:
    """Arrays as bytes, name and type before each."""
    file = io.BytesIO()
    for name, values in arrays.items():
        array = np.asarray(values)
        head = f"{name} {array.dtype.str} {','.join(map(str, array.shape))}\n"
        file.write(head.encode() + array.tobytes())
    return file.getvalue()


def read(data: bytes | None) -> dict[str, Any]:
    """The arrays that `written` wrote."""
    file, arrays = io.BytesIO(data or b""), {}
    while head := file.readline().decode():
        name, kind, shape = head.rstrip("\n").split(" ")
        sizes = tuple(int(each) for each in shape.split(",") if each)
        count = int(np.prod(sizes, dtype=int))
        raw = file.read(count * np.dtype(kind).itemsize)
        arrays[name] = np.frombuffer(raw, kind).reshape(sizes).copy()
    return arrays

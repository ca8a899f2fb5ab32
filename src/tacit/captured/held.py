"""How many numbers a value holds, however they are nested."""

import ctypes
import datetime as dt
import re
import weakref
from array import array
from collections.abc import Collection, Iterator, Mapping
from decimal import Decimal
from enum import Enum, EnumType
from functools import partial
from io import IOBase
from itertools import chain
from numbers import Number, Rational
from sys import stdlib_module_names
from types import AsyncGeneratorType, CoroutineType, FrameType, FunctionType, TracebackType
from typing import Any

import jax
import numpy as np

# Libraries that models are written with: what is in them, and in their objects, is their own.
LIBRARIES = frozenset({"jax", "jaxlib", "numpy", "numpyro", "optax", "scipy", "tacit"})
# Modules of the standard library whose objects are what somebody put into them.
_LOOSE = frozenset({"_thread", "argparse", "ipaddress", "types", "uuid"})
# More numbers than this in one value could be rows.
MOST = 16
# Words longer than this are no words; structures deeper than this are not counted to their end.
_LONGEST_WORD, _DEEPEST = 256, 64
# What data frames, series and tensors of other libraries have.
_TABLES = (
    "__array__", "__array_interface__", "__arrow_c_array__", "__arrow_c_stream__",
    "__cuda_array_interface__", "__dataframe__", "__dlpack__",
)  # fmt: skip
# What has no parts, or parts that follow from a few numbers.
_PLAIN = (str, bytes, bytearray, range, type, jax.core.Tracer)
# What cannot be looked into; the second is what everything that ctypes makes is.
_HIDING: dict[Any, str] = {
    IOBase: "a file",
    ctypes.Structure.__mro__[1]: "memory of C",
    Iterator: "an iterator",
    CoroutineType | AsyncGeneratorType | FrameType | TracebackType: "a frame",
}
_NUMBER = re.compile(
    r"[-+]?(\d[\d_]*\.?\d*|\.\d+)(e[-+]?\d+)?|[-+]?0x[\da-f.]+(p[-+]?\d+)?", re.IGNORECASE
)
_BETWEEN = re.compile(r"[\s,;:|/\[\](){}\"']+")


def form(value: Any) -> str | None:
    """What a value is, if it is a form that could hold rows; None if it must be looked into."""
    if isinstance(value, type | jax.core.Tracer):
        return None
    if type(value) in weakref.ProxyTypes:
        return "a weak proxy"
    if _is_array(value):
        return "an array"
    if hasattr(type(value), "readline"):
        return "a file"
    return next((said for kind, said in _HIDING.items() if isinstance(value, kind)), None)


def _is_array(value: Any) -> bool:
    if isinstance(value, np.generic) and not isinstance(value, np.void | np.bytes_):
        return False
    holds = isinstance(value, np.ndarray | jax.Array | array | memoryview)
    return holds or any(hasattr(type(value), each) for each in _TABLES) or _bytes(value) > MOST


def _bytes(value: Any) -> int:
    """How many bytes a buffer has; none if it is no buffer."""
    try:
        with memoryview(value) as view:
            return view.nbytes
    except (TypeError, ValueError):
        return 0


def attributes(value: Any) -> Iterator[tuple[str, Any]]:
    """What an object has in its own dictionary and slots, but for what its class declares public."""
    declared = getattr(type(value), "declared_public", ())
    for key, each in getattr(value, "__dict__", {}).items():
        if key not in declared and key != "__doc__":
            yield key, each
    for kind in type(value).__mro__:
        slots = vars(kind).get("__slots__", ())
        for key in (slots,) if isinstance(slots, str) else slots:
            private = key.startswith("__") and not key.endswith("__")
            inside = f"_{kind.__name__.lstrip('_')}{key}" if private else key
            if key not in declared and hasattr(value, inside):
                yield key, getattr(value, inside)


def elements(value: Any) -> Iterator[Any]:
    """What is in a collection; of a mapping, its values."""
    if isinstance(value, Mapping):
        yield from value.values()
    elif isinstance(value, Collection) and not isinstance(value, _PLAIN):
        yield from value


class Numbers:
    """Counts the numbers in values; remembers what it has counted."""

    def __init__(self) -> None:
        # With the values, so that no address stands for two things.
        self._known: dict[int, tuple[Any, int]] = {}

    def of(self, value: Any, depth: int = 0) -> int:
        """How many numbers a value holds, up to one more than may be."""
        if isinstance(value, Number | np.generic | dt.date | dt.time | dt.timedelta | Enum):
            return _size(value)
        if isinstance(value, str):
            return _in_text(value)
        if id(value) not in self._known and depth < _DEEPEST:
            self._known[id(value)] = value, 0  # of a value inside itself
            total = 0
            for each in _parts(value) if form(value) is None else ():  # else it is told by itself
                total += self.of(each, depth + 1)
                if total > MOST:
                    break
            self._known[id(value)] = value, total
        return self._known.get(id(value), (value, 0))[1]


def _parts(value: Any) -> Iterator[Any]:
    """What is counted together as one value."""
    if isinstance(value, EnumType):
        members: Mapping[str, Any] = value.__members__
        yield from (each.value for each in members.values())
    elif isinstance(value, type):
        yield from (each for key, each in vars(value).items() if not key.startswith("__"))
    elif isinstance(value, FunctionType):
        yield from vars(value).values()
    elif isinstance(value, partial):
        yield from chain(value.args, value.keywords.values())
    elif not isinstance(value, _PLAIN):
        yield from elements(value)
        if _is_namespace(type(value).__module__.split(".")[0]):
            # Switches are no data.
            yield from (each for _, each in attributes(value) if not isinstance(each, bool))


def _is_namespace(module: str) -> bool:
    """Whether attributes of objects of a module's classes are anybody's: not those of libraries."""
    return module in _LOOSE or module not in LIBRARIES | stdlib_module_names


def _size(value: Any) -> int:
    """How many numbers of usual size a number stands for."""
    if isinstance(value, Decimal):
        return max(1, len(value.as_tuple().digits) // 20)
    if isinstance(value, np.generic | Enum) or not isinstance(value, Rational):
        return 1
    over = int(value.denominator).bit_length() if value.denominator != 1 else 0
    return max(1, -(-(int(value.numerator).bit_length() + over) // 64))


def _in_text(text: str) -> int:
    """One for a text that is a number; for one of many numbers, or a word without end, how many."""
    if _NUMBER.fullmatch(text):
        return -(-len(text) // 40)
    if len(text) <= MOST:
        return 0
    words = _BETWEEN.split(text)
    if any(len(word) > _LONGEST_WORD for word in words):
        return MOST + 1
    found = sum(_NUMBER.fullmatch(word) is not None for word in words)
    return found if found > MOST else 0

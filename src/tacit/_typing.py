"""Types that several packages share."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:  # results are read without it
    import jax

Array: TypeAlias = "jax.Array"
Floats: TypeAlias = NDArray[np.float64]
# Draws and other results, in single or double precision.
FloatArray: TypeAlias = NDArray[np.floating]
# An array of NumPy of any type of numbers.
HostArray: TypeAlias = NDArray[Any]
# What stands for an array where code is traced: one of NumPy or JAX, a tracer, or a shape and type.
AnyArray: TypeAlias = Any
# Any tree that JAX takes: a step's state, its inputs and what it returns are up to the algorithm.
PyTree: TypeAlias = Any
# Arrays in tuples, lists, mappings and named tuples, as JAX takes them. A function that only passes
# such a value on is better typed by a type variable.
ArrayTree: TypeAlias = (
    "jax.Array | NDArray[np.generic] | Sequence[ArrayTree] | Mapping[str, ArrayTree] | None"
)
# What JSON and YAML files hold.
JSON: TypeAlias = "bool | int | float | str | Sequence[JSON] | Mapping[str, JSON] | None"

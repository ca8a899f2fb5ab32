"""Types that several packages share."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import jax
import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = jax.Array
Floats: TypeAlias = NDArray[np.float64]
# Draws and other results, in single or double precision.
FloatArray: TypeAlias = NDArray[np.floating]
# Arrays in tuples, lists, mappings and named tuples, as JAX takes them. A function that only passes
# such a value on is better typed by a type variable.
ArrayTree: TypeAlias = (
    "jax.Array | NDArray[np.generic] | Sequence[ArrayTree] | Mapping[str, ArrayTree] | None"
)
# What JSON and YAML files hold.
JSON: TypeAlias = "bool | int | float | str | Sequence[JSON] | Mapping[str, JSON] | None"

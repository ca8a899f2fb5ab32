"""The precision of all computations with JAX: 32 bits, whichever the process has chosen."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import numpy as np

_P = ParamSpec("_P")
_R = TypeVar("_R")
_T = TypeVar("_T")
_WIDE_TYPES = {"float64", "int64", "uint64", "complex128"}


def in_32_bits(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """The same function, which runs with the 64-bit mode of JAX off.

    Samplers, lattices and stored programs are for 32 bits, but a process may have the 64-bit mode on, as PyMC's
    JAX samplers do. So every function by which others enter computations with JAX is marked with this decorator,
    and so is one that runs in a thread of its own: only the thread that runs it is switched, and only meanwhile.
    """

    @wraps(function)
    def switched(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        import jax  # some modules with such functions also serve where JAX is not needed

        with jax.enable_x64(False):
            return function(*args, **kwargs)

    return switched


def to_32_bits(tree: _T) -> _T:
    """A tree whose JAX arrays of 64 bits have 32. JAX would not convert those that were made in its 64-bit mode."""
    import jax

    if not any(map(_is_wide, jax.tree.leaves(tree))):
        return tree  # JAX would sort the keys of its mappings

    @in_32_bits
    def narrow(leaf: object) -> object:
        return jax.numpy.asarray(np.asarray(leaf)) if _is_wide(leaf) else leaf

    narrowed: _T = jax.tree.map(narrow, tree)
    return narrowed


def _is_wide(leaf: object) -> bool:
    import jax

    return isinstance(leaf, jax.Array) and str(leaf.dtype) in _WIDE_TYPES

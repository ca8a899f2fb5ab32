"""Compiling: programs that are compiled quickly."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import jax

_P = ParamSpec("_P")
_R = TypeVar("_R")

# Most programs here are large and run briefly. These options compile them in less than half the time, and they
# run as fast (benchmarks/cold_start.py).
_QUICK_OPTIONS = {"xla_backend_optimization_level": 1, "xla_cpu_use_fusion_emitters": False}


def jit(function: Callable[_P, _R], *, static: tuple[str, ...] = ()) -> Callable[_P, _R]:
    """`jax.jit` with options by which it compiles quickly. ``static`` names arguments that are not arrays."""
    options = _QUICK_OPTIONS if jax.default_backend() == "cpu" else None
    return jax.jit(function, static_argnames=static, compiler_options=options)

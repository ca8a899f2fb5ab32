"""The search for data that a function holds: what it can reach must have no rows in it."""

from array import array
from collections import deque
from collections.abc import Callable, Iterator, Mapping, ValuesView
from contextlib import suppress
from functools import partial
from logging import Logger
from numbers import Number
from sys import modules, stdlib_module_names
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import jax
import numpy as np

from tacit.errors import BoundaryError

# Libraries whose own globals are not searched for rows.
_LIBRARIES = {"jax", "jaxlib", "numpy", "numpyro", "optax", "scipy", "tacit"} | stdlib_module_names
_COLLECTIONS = (list, tuple, set, frozenset, deque, ValuesView)
# What data frames, series and tensors of other libraries have.
_TABLES = ("__array__", "__array_interface__", "__dataframe__", "__arrow_c_stream__", "__dlpack__")
# More numbers than this in a collection could be rows.
_LONG = 16


def refuse_captured(function: Callable[..., Any], *more: Any) -> None:
    """Raises if a function, or anything it reaches, holds an array from outside itself.

    The trace alone cannot tell an array made inside from one that NumPy computed, while
    tracing, from rows outside; closures, globals, attributes and defaults can. A lone number
    computed from rows beforehand cannot be told from a public one: that is up to its author.
    """
    for each in (function, *more):
        name = getattr(each, "__name__", type(each).__name__)
        _Search(name).visit(name, each)


class _Search:
    """Looks for arrays in whatever a function can reach."""

    def __init__(self, owner: str) -> None:
        self._owner = owner
        # Kept alive, so that no address stands for two things.
        self._seen: dict[int, Any] = {}

    def visit(self, name: str, value: Any) -> None:
        # A tracer is a value of the step itself, which the walk follows; a logger only takes.
        if id(value) in self._seen or isinstance(value, jax.core.Tracer | Logger):
            return
        self._seen[id(value)] = value
        if _is_array(value) or _numbers(value) > _LONG:
            raise BoundaryError(
                f"{self._owner} uses {name}, an array from outside itself, which could hold rows. "
                "Pass it as one of the model's public constants."
            )
        for inner, each in self._inside(name, value):
            self.visit(inner, each)

    def _inside(self, name: str, value: Any) -> Iterator[tuple[str, Any]]:
        if isinstance(value, Mapping):
            yield from ((f"{name}[{key!r}]", each) for key, each in value.items())
        elif isinstance(value, _COLLECTIONS):
            yield from ((name, each) for each in value)
        elif isinstance(value, partial):
            yield name, value.func
            yield from (("an argument of a partial", each) for each in value.args)
            for key, each in value.keywords.items():
                yield f"the argument {key} of a partial", each
        elif isinstance(value, MethodType | staticmethod | classmethod):
            yield name, value.__func__
            yield name, getattr(value, "__self__", None)
        elif isinstance(value, FunctionType):
            yield from _of_function(value)
        elif isinstance(value, property):
            yield from ((name, each) for each in (value.fget, value.fset))
        elif isinstance(value, type):
            yield from _of_class(name, value)
        elif not isinstance(value, ModuleType):
            yield from _of_object(name, value)


def _is_array(value: Any) -> bool:
    if isinstance(value, type | np.generic):
        return False
    holds = isinstance(value, np.ndarray | jax.Array | array | memoryview)
    text = isinstance(value, bytes | bytearray) and len(value) > _LONG
    return holds or text or any(hasattr(type(value), each) for each in _TABLES)


def _numbers(value: Any, depth: int = 4) -> int:
    """How many numbers there are in a collection of collections."""
    if isinstance(value, Number):
        return 1
    inside = value.values() if isinstance(value, Mapping) else value
    if depth == 0 or not isinstance(inside, _COLLECTIONS):
        return 0
    return sum(_numbers(each, depth - 1) for each in inside)


def _of_function(function: FunctionType) -> Iterator[tuple[str, Any]]:
    code = function.__code__
    arguments = code.co_varnames[: code.co_argcount]
    defaults = function.__defaults__ or ()
    for key, each in zip(arguments[len(arguments) - len(defaults) :], defaults, strict=True):
        yield f"the default of {key}", each
    for key, each in (function.__kwdefaults__ or {}).items():
        yield f"the default of {key}", each
    mentioned = set(_names(code))
    for key, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # nothing in it yet
            yield from _mentioned(f"{key} of its closure", cell.cell_contents, mentioned)
    for key, each in vars(function).items():
        yield f"{function.__name__}.{key}", each
    if not _is_library(function.__module__):
        for key in mentioned & function.__globals__.keys():
            yield from _mentioned(f"the global {key}", function.__globals__[key], mentioned)


def _mentioned(name: str, value: Any, names: set[str]) -> Iterator[tuple[str, Any]]:
    """A value; of a module, what the function may take from it."""
    if not isinstance(value, ModuleType):
        yield name, value
    elif not (_is_library(value.__name__) or _is_installed(value.__name__)):
        for key in names & vars(value).keys():
            yield from _mentioned(f"{name}.{key}", vars(value)[key], names)


def _of_class(name: str, kind: type) -> Iterator[tuple[str, Any]]:
    for each in kind.__mro__:
        if not (_is_library(each.__module__) or _is_installed(each.__module__)):
            for key, inner in vars(each).items():
                if key not in ("__dict__", "__weakref__", "__doc__"):
                    yield f"{name}.{key}", inner


def _of_object(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    declared = getattr(type(value), "declared_public", ())
    if hasattr(value, "__wrapped__"):  # jax.jit and other wrappers
        yield name, value.__wrapped__
    for key, each in getattr(value, "__dict__", {}).items():
        if key not in declared:
            yield f"{name}.{key}", each
    for kind in type(value).__mro__:
        slots = vars(kind).get("__slots__", ())
        for key in (slots,) if isinstance(slots, str) else slots:
            if key not in declared and hasattr(value, key):
                yield f"{name}.{key}", getattr(value, key)
    yield type(value).__name__, type(value)


def _is_library(module: str | None) -> bool:
    return (module or "").split(".")[0] in _LIBRARIES


def _is_installed(module: str) -> bool:
    """Whether a module is of a package that pip put here: tables in it are its own."""
    file = getattr(modules.get(module), "__file__", None) or ""
    return "site-packages" in file or "dist-packages" in file


def _names(code: CodeType) -> Iterator[str]:
    """Global names that a function's code, or code nested in it, mentions."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)

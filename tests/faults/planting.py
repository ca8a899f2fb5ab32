"""How a fault is planted: a few words of a function are replaced by others, and back again."""

import ast
import functools
import gc
import importlib
import inspect
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import jax


@dataclass(frozen=True)
class Change:
    """In the function at ``where`` (module:name.name), the words ``old`` become ``new``."""

    where: str
    old: str
    new: str


@dataclass(frozen=True)
class Fault:
    """Something wrong that tests must notice.

    Each of ``noticed_by`` is a test, named from the folder of tests, or several cases of one. It
    must fail by an assertion of its own while the fault is there, and pass without it.
    """

    name: str
    changes: tuple[Change, ...]
    noticed_by: tuple[str, ...]


def fault(name: str, where: str, old: str, new: str, *noticed_by: str) -> Fault:
    """A fault of one change."""
    return Fault(name, (Change(where, old, new),), noticed_by)


@contextmanager
def planted(fault: Fault) -> Iterator[None]:
    """The fault is there, for everybody who has imported the function already, and then gone.

    The code of the very function is exchanged, so that no module keeps the old one.
    """
    kept = []
    try:
        for function, code in codes(fault):
            kept.append((function, function.__code__))
            function.__code__ = code
        forget()
        yield
    finally:
        for function, code in kept:
            function.__code__ = code
        forget()


def codes(fault: Fault) -> list[tuple[FunctionType, Any]]:
    """The functions that a fault changes, and the code they are to have."""
    functions = [_function(change.where) for change in fault.changes]
    return [(f, _changed(f, c)) for f, c in zip(functions, fault.changes, strict=True)]


def forget() -> None:
    """Programs compiled and results kept by Tacit go, as they have the old code in them."""
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] == "tacit":
            for value in list(vars(module).values()):
                if isinstance(value, functools._lru_cache_wrapper):
                    value.cache_clear()
    jax.clear_caches()
    gc.collect()


def _function(where: str) -> FunctionType:
    module, _, path = where.partition(":")
    found: Any = importlib.import_module(module)
    for name in path.split("."):
        found = inspect.getattr_static(found, name)
        if isinstance(found, property):
            found = found.fget
        elif isinstance(found, functools.cached_property):
            found = found.func
        elif isinstance(found, staticmethod | classmethod):
            found = found.__func__
        found = inspect.unwrap(found) if callable(found) else found
    assert isinstance(found, FunctionType), where
    return found


def _changed(function: FunctionType, change: Change) -> Any:
    """The function's code with other words in it. The old ones must be there, once."""
    source = textwrap.dedent(inspect.getsource(function))
    count = source.count(change.old)
    assert count == 1, f"{change.where} has {change.old!r} {count} times; the fault is out of date"
    tree = ast.parse(source.replace(change.old, change.new))
    (definition,) = tree.body
    assert isinstance(definition, ast.FunctionDef)
    definition.decorator_list = []
    names = dict(function.__globals__)
    exec(compile(tree, f"<fault in {change.where}>", "exec"), names)  # noqa: S102
    made = names[definition.name].__code__
    assert made.co_freevars == function.__code__.co_freevars, change.where
    return made

"""The search for data that a function holds: what it can reach must have no rows in it.

Closures, globals that the code names, defaults, attributes, and what is in those: collections,
buffers, objects, wrappers. What cannot be looked into (iterators, files, memory of C) is refused,
and so is code that reads files or looks around. `PROOFS.md` says what is assumed of the rest.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from functools import partial
from gc import get_referents
from itertools import chain
from logging import Logger
from types import (
    BuiltinMethodType,
    CellType,
    FunctionType,
    MethodType,
    MethodWrapperType,
    ModuleType,
)
from typing import Any
from weakref import ref

import jax

from tacit.captured.held import MOST, Numbers, attributes, elements, form
from tacit.captured.mentions import (
    Mentions,
    imported,
    is_library,
    is_others,
    is_way_out,
    mentioned,
    ways_out,
    ways_out_by,
)
from tacit.errors import BoundaryError

Named = Iterator[tuple[str, Any]]


def refuse_captured(*functions: Any) -> None:
    """Raises if one of the functions, or anything it reaches, holds or reads what could be rows.

    The trace alone cannot tell an array made inside from one that NumPy computed, while
    tracing, from rows outside; closures, globals, attributes and defaults can. A few numbers
    computed from rows beforehand cannot be told from public ones: that is up to their author.
    """
    for each in functions:
        name = getattr(each, "__name__", type(each).__name__)
        _Search(name).through(name, each)


class _Search:
    """Looks into whatever a function can reach."""

    def __init__(self, owner: str) -> None:
        self._owner, self._numbers = owner, Numbers()
        # Kept alive, so that no address stands for two things.
        self._seen: dict[int, Any] = {}

    def through(self, name: str, value: Any) -> None:
        """Everything there is, from here on; no deeper than memory goes."""
        ahead: list[Named] = [iter([(name, value)])]
        while ahead:
            inner, each = next(ahead[-1], (None, None))
            if inner is None:
                ahead.pop()
            # A tracer is a value of the step itself, which the walk follows; a logger only takes.
            elif id(each) not in self._seen and not isinstance(each, jax.core.Tracer | Logger):
                self._seen[id(each)] = each
                self._refuse(inner, each)
                ahead.append(self._inside(inner, each))

    def _refuse(self, name: str, value: Any) -> None:
        if is_way_out(value):
            raise self._reaching(name)
        what = form(value)
        if what is None and self._numbers.of(value) > MOST:
            what = f"more than {MOST} numbers"
        if what is not None:
            raise BoundaryError(
                f"{self._owner} uses {name}, {what} from outside itself, which could hold rows. "
                "Pass it as one of the model's public constants."
            )

    def _reaching(self, name: str) -> BoundaryError:
        return BoundaryError(
            f"{self._owner} uses {name}, by which it could reach rows. Read what is public "
            "beforehand, and pass it as one of the model's public constants."
        )

    def _inside(self, name: str, value: Any) -> Named:
        if isinstance(value, FunctionType):
            yield from self._of_function(name, value)
        elif isinstance(value, ModuleType):
            if not is_others(value.__name__):
                yield from ((f"{name}.{key}", each) for key, each in vars(value).items())
        elif isinstance(value, type):
            yield from _of_class(name, value)
        else:
            yield from _of_wrapper(name, value)
            if isinstance(value, Mapping):
                yield f"the keys of {name}", tuple(value)
            # Keys and elements may be somebody's: they are in no name.
            yield from ((f"a value of {name}", each) for each in elements(value))
            yield from _of_object(name, value)

    def _of_function(self, name: str, function: FunctionType) -> Named:
        names = mentioned(function.__code__)
        yield from _given(function)
        yield from ((f"{name}.{key}", each) for key, each in vars(function).items())
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        for key, each in ((key, each) for key, cell in cells for each in _contents(cell)):
            yield from self._named(f"{key} of its closure", each, names)
        if is_others(function.__module__):
            if not is_library(function.__module__):
                yield from self._globals(function, names)
            return
        for way in ways_out(function):
            raise self._reaching(way)
        for key, module in imported(function):
            yield from self._named(f"the module {key}", module, names)
        yield from self._globals(function, names)

    def _globals(self, function: FunctionType, names: Mentions) -> Named:
        held = function.__globals__
        for key in sorted(names.plain & held.keys()):
            yield from self._named(f"the global {key}", held[key], names)

    def _named(self, name: str, value: Any, names: Mentions) -> Named:
        """A value that code names; of a module, what the code may take from it."""
        for way in ways_out_by(value, names.names):
            raise self._reaching(way)
        if not issubclass(type(value), ModuleType):  # not even what stands for one
            yield name, value
        elif not is_others(value.__name__) and id(value) not in self._seen:
            if names.anything:
                yield name, value
                return
            for key in sorted(names.names & vars(value).keys()):
                yield from self._named(f"{name}.{key}", vars(value)[key], names)


def _given(function: FunctionType) -> Named:
    """The defaults of a function."""
    code, defaults = function.__code__, function.__defaults__ or ()
    arguments = code.co_varnames[: code.co_argcount]
    last = zip(arguments[len(arguments) - len(defaults) :], defaults, strict=True)
    for key, each in chain(last, (function.__kwdefaults__ or {}).items()):
        yield f"the default of {key}", each


def _of_wrapper(name: str, value: Any) -> Named:
    """What is behind things that stand for others."""
    if isinstance(value, partial):
        yield name, value.func
        yield from (("an argument of a partial", each) for each in value.args)
        for key, each in value.keywords.items():
            yield f"the argument {key} of a partial", each
    for kind, behind in _BEHIND.items():
        if isinstance(value, kind):
            yield from ((name, each) for each in behind(value))


def _owner(value: Any) -> tuple[Any, ...]:
    """What a method of C belongs to; functions belong to modules."""
    return () if isinstance(value.__self__, ModuleType) else (value.__self__,)


def _contents(cell: CellType) -> tuple[Any, ...]:
    try:
        return (cell.cell_contents,)
    except ValueError:  # nothing in it yet
        return ()


_BEHIND: dict[Any, Callable[[Any], tuple[Any, ...]]] = {
    MethodType: lambda value: (value.__func__, value.__self__),
    staticmethod | classmethod: lambda value: (value.__func__,),
    BuiltinMethodType | MethodWrapperType: _owner,
    property: lambda value: (value.fget, value.fset, value.fdel),
    defaultdict: lambda value: (value.default_factory,),
    slice: lambda value: (value.start, value.stop, value.step),
    BaseException: lambda value: (value.args, value.__traceback__),
    CellType: _contents,
    ref: lambda value: (value(),),
    ContextVar: lambda value: (value.get(None),),
}


def _of_class(name: str, kind: type) -> Named:
    for each in kind.__mro__:
        if not is_others(each.__module__):
            for key, inner in vars(each).items():
                if key not in ("__dict__", "__weakref__", "__doc__"):
                    yield f"{name}.{key}", inner


def _of_object(name: str, value: Any) -> Named:
    if hasattr(value, "__wrapped__"):  # jax.jit and other wrappers
        yield name, value.__wrapped__
    yield from ((f"{name}.{key}", each) for key, each in attributes(value))
    kind = type(value)
    if is_others(kind.__module__) and not is_library(kind.__module__):
        # What code in C keeps for itself: of an indexer such as ``frame.loc``, the frame.
        kept = get_referents(value)
        yield from ((name, each) for each in kept if not isinstance(each, type | ModuleType))
    yield kind.__name__, kind

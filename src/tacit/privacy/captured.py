"""The search for data that a function holds: what it can reach must have no rows in it.

Closures, globals that the code names, defaults, attributes, and what is in those: collections, buffers,
objects, wrappers. What cannot be looked into (iterators, files, memory of C) is refused, and so is code that
reads files or looks around. `PROOFS.md` says what is assumed of the rest.
"""

import builtins
import ctypes
import datetime as dt
import re
import sys
import weakref
from array import array
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from decimal import Decimal
from dis import get_instructions
from enum import Enum, EnumType
from functools import lru_cache, partial
from gc import get_referents
from importlib import import_module
from importlib.util import resolve_name
from io import IOBase
from itertools import chain
from logging import Logger
from numbers import Number, Rational
from sys import stdlib_module_names
from types import (
    AsyncGeneratorType,
    BuiltinMethodType,
    CellType,
    CodeType,
    CoroutineType,
    FrameType,
    FunctionType,
    MethodType,
    MethodWrapperType,
    ModuleType,
    TracebackType,
    UnionType,
)
from typing import Any
from weakref import ref

import jax
import numpy as np

from tacit.errors import BoundaryError

# Libraries that models are written with: what is in them, and in their objects, is their own.
LIBRARIES = frozenset({"jax", "jaxlib", "numpy", "numpyro", "optax", "scipy", "tacit"})
# Modules of the standard library whose objects are what somebody put into them.
_DATA_MODULES = frozenset({"_thread", "argparse", "ipaddress", "types", "uuid"})
# More numbers than this in one value could be rows.
MAX_NUMBERS = 16
# Words longer than this are no words; structures deeper than this are not counted to their end.
_MAX_WORD_LENGTH, _MAX_DEPTH = 256, 64
# What data frames, series and tensors of other libraries have.
_TABLE_ATTRIBUTES = (
    "__array__", "__array_interface__", "__arrow_c_array__", "__arrow_c_stream__",
    "__cuda_array_interface__", "__dataframe__", "__dlpack__",
)  # fmt: skip
# What has no parts, or parts that follow from a few numbers.
_LEAF_TYPES = (str, bytes, bytearray, range, type, jax.core.Tracer)
# What cannot be looked into; the second is what everything that ctypes makes is.
_OPAQUE_TYPES: dict[type | UnionType, str] = {
    IOBase: "a file",
    ctypes.Structure.__mro__[1]: "memory of C",
    Iterator: "an iterator",
    CoroutineType | AsyncGeneratorType | FrameType | TracebackType: "a frame",
}
_NUMBER = re.compile(
    r"[-+]?(\d[\d_]*\.?\d*|\.\d+)(e[-+]?\d+)?|[-+]?0x[\da-f.]+(p[-+]?\d+)?", re.IGNORECASE
)
_BETWEEN = re.compile(r"[\s,;:|/\[\](){}\"']+")


def suspicious_form(value: object) -> str | None:
    """What a value is, if it is a form that could hold rows; None if it must be looked into."""
    if isinstance(value, type | jax.core.Tracer):
        return None
    if type(value) in weakref.ProxyTypes:
        return "a weak proxy"
    if _is_array(value):
        return "an array"
    if hasattr(type(value), "readline"):
        return "a file"
    return next((said for kind, said in _OPAQUE_TYPES.items() if isinstance(value, kind)), None)


def _is_array(value: object) -> bool:
    if isinstance(value, np.generic) and not isinstance(value, np.void | np.bytes_):
        return False
    holds = isinstance(value, np.ndarray | jax.Array | array | memoryview)
    return (
        holds
        or any(hasattr(type(value), each) for each in _TABLE_ATTRIBUTES)
        or _buffer_size(value) > MAX_NUMBERS
    )


def _buffer_size(value: Any) -> int:
    """How many bytes a buffer has; none if it is no buffer."""
    try:
        with memoryview(value) as view:
            return view.nbytes
    except (TypeError, ValueError):
        return 0


def attributes(value: object) -> Iterator[tuple[str, object]]:
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


def elements(value: object) -> Iterator[object]:
    """What is in a collection; of a mapping, its values."""
    if isinstance(value, Mapping):
        yield from value.values()
    elif isinstance(value, Collection) and not isinstance(value, _LEAF_TYPES):
        yield from value


class NumberCount:
    """Counts the numbers in values; remembers what it has counted."""

    def __init__(self) -> None:
        # With the values, so that no address stands for two things.
        self._known: dict[int, tuple[object, int]] = {}

    def of(self, value: object, depth: int = 0) -> int:
        """How many numbers a value holds, up to one more than may be."""
        if isinstance(value, Number | np.generic | dt.date | dt.time | dt.timedelta | Enum):
            return _number_size(value)
        if isinstance(value, str):
            return _numbers_in_text(value)
        if id(value) not in self._known and depth < _MAX_DEPTH:
            self._known[id(value)] = value, 0  # of a value inside itself
            total = 0
            for each in (
                _counted_parts(value) if suspicious_form(value) is None else ()
            ):  # else its own form gives it away
                total += self.of(each, depth + 1)
                if total > MAX_NUMBERS:
                    break
            self._known[id(value)] = value, total
        return self._known.get(id(value), (value, 0))[1]


def _counted_parts(value: object) -> Iterator[object]:
    """What is counted together as one value."""
    if isinstance(value, EnumType):
        members: Mapping[str, Enum] = value.__members__
        yield from (each.value for each in members.values())
    elif isinstance(value, type):
        yield from (each for key, each in vars(value).items() if not key.startswith("__"))
    elif isinstance(value, FunctionType):
        yield from vars(value).values()
    elif isinstance(value, partial):
        yield from chain(value.args, value.keywords.values())
    elif not isinstance(value, _LEAF_TYPES):
        yield from elements(value)
        if _is_namespace(type(value).__module__.split(".")[0]):
            # Switches are no data.
            yield from (each for _, each in attributes(value) if not isinstance(each, bool))


def _is_namespace(module: str) -> bool:
    """Whether attributes of objects of a module's classes are anybody's: not those of libraries."""
    return module in _DATA_MODULES or module not in LIBRARIES | stdlib_module_names


def _number_size(value: object) -> int:
    """How many numbers of usual size a number stands for."""
    if isinstance(value, Decimal):
        return max(1, len(value.as_tuple().digits) // 20)
    if isinstance(value, np.generic | Enum) or not isinstance(value, Rational):
        return 1
    over = int(value.denominator).bit_length() if value.denominator != 1 else 0
    return max(1, -(-(int(value.numerator).bit_length() + over) // 64))


def _numbers_in_text(text: str) -> int:
    """One for a text that is a number; for one of many numbers, or a word without end, how many."""
    if _NUMBER.fullmatch(text):
        return -(-len(text) // 40)
    if len(text) <= MAX_NUMBERS:
        return 0
    words = _BETWEEN.split(text)
    if any(len(word) > _MAX_WORD_LENGTH for word in words):
        return MAX_NUMBERS + 1
    found = sum(_NUMBER.fullmatch(word) is not None for word in words)
    return found if found > MAX_NUMBERS else 0


# Whose own globals are not searched for rows.
_LIBRARY_MODULES = LIBRARIES | sys.stdlib_module_names
# What libraries call the functions that read files, tables and connections.
_READING_NAMES = re.compile(
    r"(fd|p|url)?open(_.*)?|load(txt|mat|_.*)?|genfromtxt|from(file|regex)|mem_?map|mmap|connect|mmread"
    r"|(read|scan)_.*|urlretrieve|File(IO)?|Popen|check_output|getoutput"
)
# By which code reaches what it does not name.
_REFLECTION_NAMES = {
    "builtins": {"globals", "eval", "exec", "__import__", "open", "input", "breakpoint"},
    "sys": {"modules", "_getframe", "_current_frames"},
    "gc": {"get_objects", "get_referrers", "get_referents"},
    "inspect": {"currentframe", "stack", "trace", "getclosurevars"},
    "importlib": {"import_module", "reload"},
}
_REFLECTION_ATTRIBUTES = {
    "__builtins__", "__closure__", "__globals__", "__subclasses__", "cell_contents", "f_back",
    "f_globals", "f_locals", "gi_frame", "read_bytes", "read_text", "tb_frame",
}  # fmt: skip
# By which code takes what it likes of a module.
_DYNAMIC_ACCESS = {"getattr", "vars", "attrgetter", "__dict__", "__getattribute__", "getmembers"}


@dataclass(frozen=True)
class ReferencedNames:
    """Names in a function's code and in code nested in it.

    ``names`` are all of them, also of attributes; ``plain`` those of globals and builtins;
    ``imports`` those of modules, with how many packages up they are.
    """

    names: frozenset[str]
    plain: frozenset[str]
    imports: frozenset[tuple[int, str]]

    @property
    def anything(self) -> bool:
        """Whether the code may take things by names that it does not mention."""
        return bool(self.names & _DYNAMIC_ACCESS)


@lru_cache(maxsize=4096)
def referenced_names(code: CodeType) -> ReferencedNames:
    """The names in code."""
    plain, imports, before = set[str](), set[tuple[int, str]](), list[object]()
    for each in get_instructions(code):
        if each.opname in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"):
            plain.add(each.argval)
        elif each.opname == "IMPORT_NAME":
            levels = [level for level in before[-2:] if isinstance(level, int)]
            imports.add((levels[0] if levels else 0, each.argval))
        before.append(each.argval)
    inner = [referenced_names(each) for each in code.co_consts if isinstance(each, CodeType)]
    return ReferencedNames(
        frozenset(code.co_names).union(*(each.names for each in inner)),
        frozenset(plain).union(*(each.plain for each in inner)),
        frozenset(imports).union(*(each.imports for each in inner)),
    )


def is_third_party(module: str | None) -> bool:
    """Whether a module is of a library, or of a package that pip put here: what is in it is its own."""
    if (module or "").split(".")[0] in _LIBRARY_MODULES:
        return True
    file = getattr(sys.modules.get(module or ""), "__file__", None) or ""
    return "site-packages" in file or "dist-packages" in file


def is_modelling_library(module: str | None) -> bool:
    """Whether a module is of one of the libraries that models are written with."""
    return (module or "").split(".")[0] in _LIBRARY_MODULES


def imported_modules(function: FunctionType) -> Iterator[tuple[str, ModuleType]]:
    """The modules that a function imports when it runs."""
    package = function.__globals__.get("__package__") or ""
    for level, name in sorted(referenced_names(function.__code__).imports):
        with suppress(ImportError):  # then the function fails, too
            whole = resolve_name("." * level + name, package) if level else name
            import_module(whole)
            # What ``import a.b`` binds is a, by which the code goes on.
            yield whole, sys.modules[whole]
            yield whole.partition(".")[0], sys.modules[whole.partition(".")[0]]


def forbidden_names(function: FunctionType) -> Iterator[str]:
    """Builtins and attributes in a function's code by which it reaches what it does not name."""
    names = referenced_names(function.__code__)
    yield from sorted(names.names & _REFLECTION_ATTRIBUTES)
    own = {*_REFLECTION_NAMES["builtins"], *filter(_READING_NAMES.fullmatch, vars(builtins))}
    yield from sorted(names.plain & own - function.__globals__.keys())


def forbidden_attributes(value: Any, names: frozenset[str]) -> Iterator[str]:
    """What of these names a module, or a class or object of a library, has to reach or read things."""
    if issubclass(type(value), ModuleType):  # not what stands for one
        held, looks = vars(value), _REFLECTION_NAMES.get(value.__name__, set())
        for key in sorted(names & held.keys()):
            if key in looks or (_READING_NAMES.fullmatch(key) and is_forbidden(held[key])):
                yield f"{value.__name__}.{key}"
            elif isinstance(held[key], type) or _is_submodule(held[key], value):
                yield from forbidden_attributes(held[key], names)
        return
    kind = value if isinstance(value, type) else type(value)
    if is_third_party(kind.__module__) and not is_tacit(kind.__module__):
        for key in sorted(filter(_READING_NAMES.fullmatch, names)):
            if callable(getattr(kind, key, None)):
                yield f"{kind.__name__}.{key}"


def is_forbidden(value: object) -> bool:
    """Whether a value is itself a function of a library that reads, or all modules."""
    if value is sys.modules:
        return True
    module, name = getattr(value, "__module__", None), getattr(value, "__name__", None)
    if not callable(value) or not isinstance(module, str) or not isinstance(name, str):
        return False
    looks = any(
        name in each and value is _module_attribute(where, name)
        for where, each in _REFLECTION_NAMES.items()
    )
    return looks or bool(
        _READING_NAMES.fullmatch(name) and is_third_party(module) and not is_tacit(module)
    )


def is_tacit(module: str | None) -> bool:
    """Whether a module is Tacit's own."""
    return (module or "").split(".")[0] == "tacit"


def _is_submodule(value: object, of: ModuleType) -> bool:
    return isinstance(value, ModuleType) and value.__name__.startswith(f"{of.__name__}.")


def _module_attribute(module: str, name: str) -> object:
    return getattr(sys.modules.get(module), name, None)


Named = Iterator[tuple[str, object]]


def check_captured(*functions: object) -> None:
    """Raises if one of the functions, or anything it reaches, holds or reads what could be rows.

    The trace alone cannot tell an array made inside from one that NumPy computed, while
    tracing, from rows outside; closures, globals, attributes and defaults can. A few numbers
    computed from rows beforehand cannot be distinguished from public ones: that is up to their author.
    """
    for each in functions:
        name = getattr(each, "__name__", type(each).__name__)
        _Search(name).through(name, each)


class _Search:
    """Looks into whatever a function can reach."""

    def __init__(self, owner: str) -> None:
        self._owner, self._numbers = owner, NumberCount()
        # Kept alive, so that no address stands for two things.
        self._seen: dict[int, object] = {}

    def through(self, name: str, value: object) -> None:
        """Everything there is, from here on; no deeper than memory goes."""
        ahead: list[Named] = [iter([(name, value)])]
        while ahead:
            inner, each = next(ahead[-1], (None, None))
            if inner is None:
                ahead.pop()
            # A tracer is a value of the step itself, which the walk follows; a logger only takes.
            elif id(each) not in self._seen and not isinstance(each, jax.core.Tracer | Logger):
                self._seen[id(each)] = each
                self._check(inner, each)
                ahead.append(self._inside(inner, each))

    def _check(self, name: str, value: object) -> None:
        if is_forbidden(value):
            raise self._reaching(name)
        what = suspicious_form(value)
        if what is None and self._numbers.of(value) > MAX_NUMBERS:
            what = f"more than {MAX_NUMBERS} numbers"
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

    def _inside(self, name: str, value: object) -> Named:
        if isinstance(value, FunctionType):
            yield from self._of_function(name, value)
        elif isinstance(value, ModuleType):
            if not is_third_party(value.__name__):
                yield from ((f"{name}.{key}", each) for key, each in vars(value).items())
        elif isinstance(value, type):
            yield from _in_class(name, value)
        else:
            yield from _in_wrapper(name, value)
            if isinstance(value, Mapping):
                yield f"the keys of {name}", tuple(value)
            # Keys and elements may be somebody's: they are in no name.
            yield from ((f"a value of {name}", each) for each in elements(value))
            yield from _in_object(name, value)

    def _of_function(self, name: str, function: FunctionType) -> Named:
        names = referenced_names(function.__code__)
        yield from _defaults(function)
        yield from ((f"{name}.{key}", each) for key, each in vars(function).items())
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        for key, each in ((key, each) for key, cell in cells for each in _cell_contents(cell)):
            yield from self._named(f"{key} of its closure", each, names)
        if is_third_party(function.__module__):
            if not is_modelling_library(function.__module__):
                yield from self._globals(function, names)
            return
        for way in forbidden_names(function):
            raise self._reaching(way)
        for key, module in imported_modules(function):
            yield from self._named(f"the module {key}", module, names)
        yield from self._globals(function, names)

    def _globals(self, function: FunctionType, names: ReferencedNames) -> Named:
        held = function.__globals__
        for key in sorted(names.plain & held.keys()):
            yield from self._named(f"the global {key}", held[key], names)

    def _named(self, name: str, value: Any, names: ReferencedNames) -> Named:
        """A value that code names; of a module, what the code may take from it."""
        for way in forbidden_attributes(value, names.names):
            raise self._reaching(way)
        if not issubclass(type(value), ModuleType):  # not even what stands for one
            yield name, value
        elif not is_third_party(value.__name__) and id(value) not in self._seen:
            if names.anything:
                yield name, value
                return
            for key in sorted(names.names & vars(value).keys()):
                yield from self._named(f"{name}.{key}", vars(value)[key], names)


def _defaults(function: FunctionType) -> Named:
    """The defaults of a function."""
    code, defaults = function.__code__, function.__defaults__ or ()
    arguments = code.co_varnames[: code.co_argcount]
    last = zip(arguments[len(arguments) - len(defaults) :], defaults, strict=True)
    for key, each in chain(last, (function.__kwdefaults__ or {}).items()):
        yield f"the default of {key}", each


def _in_wrapper(name: str, value: object) -> Named:
    """What is behind things that stand for others."""
    if isinstance(value, partial):
        yield name, value.func
        yield from (("an argument of a partial", each) for each in value.args)
        for key, each in value.keywords.items():
            yield f"the argument {key} of a partial", each
    elif isinstance(value, ref):
        yield name, value()
    elif isinstance(value, ContextVar):
        yield name, value.get(None)
    elif isinstance(value, _WRAPPERS):  # functions of C belong to modules, which are their own
        yield from ((name, e) for e in get_referents(value) if not isinstance(e, ModuleType))


# What holds other things by code in C, which the garbage collector sees.
_WRAPPERS = (
    MethodType, staticmethod, classmethod, BuiltinMethodType, MethodWrapperType, property,
    defaultdict, slice, BaseException, CellType,
)  # fmt: skip


def _cell_contents(cell: CellType) -> tuple[object, ...]:
    try:
        return (cell.cell_contents,)
    except ValueError:  # nothing in it yet
        return ()


def _in_class(name: str, kind: type) -> Named:
    for each in kind.__mro__:
        if not is_third_party(each.__module__):
            for key, inner in vars(each).items():
                if key not in ("__dict__", "__weakref__", "__doc__"):
                    yield f"{name}.{key}", inner


def _in_object(name: str, value: object) -> Named:
    if hasattr(value, "__wrapped__"):  # jax.jit and other wrappers
        yield name, value.__wrapped__
    yield from ((f"{name}.{key}", each) for key, each in attributes(value))
    kind = type(value)
    if is_third_party(kind.__module__) and not is_modelling_library(kind.__module__):
        # What code in C keeps for itself: of an indexer such as ``frame.loc``, the frame.
        kept = get_referents(value)
        yield from ((name, each) for each in kept if not isinstance(each, type | ModuleType))
    yield kind.__name__, kind

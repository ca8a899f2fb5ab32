"""What a function's code refers to: globals, imports, and ways to read files."""

import builtins
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from dis import get_instructions
from functools import lru_cache
from importlib import import_module
from importlib.util import resolve_name
from types import CodeType, FunctionType, ModuleType
from typing import Any

from tacit.captured.held import LIBRARIES

# Whose own globals are not searched for rows.
_LIBRARIES = LIBRARIES | sys.stdlib_module_names
# What libraries call the functions that read files, tables and connections.
_READS = re.compile(
    r"(fd|p|url)?open(_.*)?|load(txt|mat|_.*)?|genfromtxt|from(file|regex)|mem_?map|mmap|connect|mmread"
    r"|(read|scan)_.*|urlretrieve|File(IO)?|Popen|check_output|getoutput"
)
# By which code reaches what it does not name.
_LOOKS = {
    "builtins": {"globals", "eval", "exec", "__import__", "open", "input", "breakpoint"},
    "sys": {"modules", "_getframe", "_current_frames"},
    "gc": {"get_objects", "get_referrers", "get_referents"},
    "inspect": {"currentframe", "stack", "trace", "getclosurevars"},
    "importlib": {"import_module", "reload"},
}
_ATTRIBUTES = {
    "__builtins__", "__closure__", "__globals__", "__subclasses__", "cell_contents", "f_back",
    "f_globals", "f_locals", "gi_frame", "read_bytes", "read_text", "tb_frame",
}  # fmt: skip
# By which code takes what it likes of a module.
_ANY = {"getattr", "vars", "attrgetter", "__dict__", "__getattribute__", "getmembers"}


@dataclass(frozen=True)
class Mentions:
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
        return bool(self.names & _ANY)


@lru_cache(maxsize=4096)
def mentioned(code: CodeType) -> Mentions:
    """The names in code."""
    plain, imports, before = set[str](), set[tuple[int, str]](), list[Any]()
    for each in get_instructions(code):
        if each.opname in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"):
            plain.add(each.argval)
        elif each.opname == "IMPORT_NAME":
            levels = [level for level in before[-2:] if isinstance(level, int)]
            imports.add((levels[0] if levels else 0, each.argval))
        before.append(each.argval)
    inner = [mentioned(each) for each in code.co_consts if isinstance(each, CodeType)]
    return Mentions(
        frozenset(code.co_names).union(*(each.names for each in inner)),
        frozenset(plain).union(*(each.plain for each in inner)),
        frozenset(imports).union(*(each.imports for each in inner)),
    )


def is_others(module: str | None) -> bool:
    """Whether a module is of a library, or of a package that pip put here: what is in it is its own."""
    if (module or "").split(".")[0] in _LIBRARIES:
        return True
    file = getattr(sys.modules.get(module or ""), "__file__", None) or ""
    return "site-packages" in file or "dist-packages" in file


def is_library(module: str | None) -> bool:
    """Whether a module is of one of the libraries that models are written with."""
    return (module or "").split(".")[0] in _LIBRARIES


def imported(function: FunctionType) -> Iterator[tuple[str, ModuleType]]:
    """The modules that a function imports when it runs."""
    package = function.__globals__.get("__package__") or ""
    for level, name in sorted(mentioned(function.__code__).imports):
        with suppress(ImportError):  # then the function fails, too
            whole = resolve_name("." * level + name, package) if level else name
            import_module(whole)
            # What ``import a.b`` binds is a, by which the code goes on.
            yield whole, sys.modules[whole]
            yield whole.partition(".")[0], sys.modules[whole.partition(".")[0]]


def ways_out(function: FunctionType) -> Iterator[str]:
    """Builtins and attributes in a function's code by which it reaches what it does not name."""
    names = mentioned(function.__code__)
    yield from sorted(names.names & _ATTRIBUTES)
    own = {*_LOOKS["builtins"], *filter(_READS.fullmatch, vars(builtins))}
    yield from sorted(names.plain & own - function.__globals__.keys())


def ways_out_by(value: Any, names: frozenset[str]) -> Iterator[str]:
    """What of these names a module, or a class or object of a library, has to reach or read things."""
    if issubclass(type(value), ModuleType):  # not what stands for one
        held, looks = vars(value), _LOOKS.get(value.__name__, set())
        for key in sorted(names & held.keys()):
            if key in looks or (_READS.fullmatch(key) and is_way_out(held[key])):
                yield f"{value.__name__}.{key}"
            elif isinstance(held[key], type) or _is_part(held[key], value):
                yield from ways_out_by(held[key], names)
        return
    kind = value if isinstance(value, type) else type(value)
    if is_others(kind.__module__) and not is_own(kind.__module__):
        for key in sorted(filter(_READS.fullmatch, names)):
            if callable(getattr(kind, key, None)):
                yield f"{kind.__name__}.{key}"


def is_way_out(value: Any) -> bool:
    """Whether a value is itself a function of a library that reads, or all modules."""
    if value is sys.modules:
        return True
    module, name = getattr(value, "__module__", None), getattr(value, "__name__", None)
    if not callable(value) or not isinstance(module, str) or not isinstance(name, str):
        return False
    looks = any(name in each and value is _found(where, name) for where, each in _LOOKS.items())
    return looks or bool(_READS.fullmatch(name) and is_others(module) and not is_own(module))


def is_own(module: str | None) -> bool:
    """Whether a module is Tacit's own."""
    return (module or "").split(".")[0] == "tacit"


def _is_part(value: Any, of: ModuleType) -> bool:
    return isinstance(value, ModuleType) and value.__name__.startswith(f"{of.__name__}.")


def _found(module: str, name: str) -> Any:
    return getattr(sys.modules.get(module), name, None)

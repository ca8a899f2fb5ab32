"""Compiling: programs that compile quickly, and a store of compiled programs in the user's cache folder.

Only programs whose shapes follow from public facts are stored: the text of a program has its shapes, and the store
outlives the fit.
"""

import hashlib
import os
import platform
import stat
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Generic, ParamSpec, TypeVar

import jax
from jax.experimental import serialize_executable

from tacit._files import make_private_folder, write_atomically

_P = ParamSpec("_P")
_R = TypeVar("_R")

# Most programs here are large and run briefly. These options compile them in less than half the time, and they
# run as fast (benchmarks/cold_start.py).
_QUICK_OPTIONS = {"xla_backend_optimization_level": 1, "xla_cpu_use_fusion_emitters": False}
# A folder for compiled programs other than the usual one; none if it is empty.
_FOLDER_VARIABLE = "TACIT_CACHE_DIR"
# The number of programs that are kept; the oldest go first.
_MAX_STORED = 100


def jit(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """`jax.jit` with options by which it compiles quickly."""
    return jax.jit(function, compiler_options=_compiler_options())


def _compiler_options() -> dict[str, bool | int] | None:
    return dict(_QUICK_OPTIONS) if jax.default_backend() == "cpu" else None


def stored_jit(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """The same, for a program that is compiled once for all processes of this user.

    The shapes of its arguments must follow from public facts alone, never from the number of rows.
    """
    return _StoredProgram(function)


class _StoredProgram(Generic[_P, _R]):
    """A function that is compiled for each kind of arguments, or loaded if it was compiled before."""

    def __init__(self, function: Callable[_P, _R]) -> None:
        self.__wrapped__ = function
        self._jitted = jax.jit(function, compiler_options=_compiler_options())
        self._programs: dict[object, Callable[_P, _R]] = {}

    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        leaves, tree = jax.tree.flatten((args, kwargs))
        kind = tree, tuple((each.shape, each.dtype) for each in leaves)
        if kind not in self._programs:
            self._programs[kind] = _load_or_compile(self._jitted.lower(*args, **kwargs))
        return self._programs[kind](*args, **kwargs)


def _load_or_compile(lowered: jax.stages.Lowered) -> Callable[..., _R]:
    folder = program_folder()
    if folder is None or jax.process_count() > 1:
        return lowered.compile()
    # The text has no arguments that the program does not use, but the program is called with them.
    text = f"{_platform_facts()}\n{lowered.in_avals}\n{lowered.as_text()}"
    path = folder / hashlib.sha256(text.encode()).hexdigest()
    trees = lowered.in_tree, lowered.out_tree
    with suppress(Exception):  # whatever is wrong with the file, the program is compiled again
        found: Callable[..., _R] = serialize_executable.deserialize_and_load(
            path.read_bytes(), *trees
        )
        return found
    compiled = lowered.compile()
    with suppress(
        Exception
    ):  # a full disk, or a backend that cannot do this: the program runs all the same
        packed, *_ = serialize_executable.serialize(compiled)
        make_private_folder(folder)
        write_atomically(path, packed)
        stored = sorted(folder.iterdir(), key=lambda each: each.stat().st_mtime)
        for old in stored[:-_MAX_STORED]:
            old.unlink()
    return compiled


def program_folder() -> Path | None:
    """The folder of compiled programs, which only its owner may read; None if there is none."""
    named = os.environ.get(_FOLDER_VARIABLE)
    if named is not None:
        return Path(named) if named else None
    try:
        home = Path.home()
    except RuntimeError:
        return None
    if sys.platform == "win32":
        cache = Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    elif sys.platform == "darwin":
        cache = home / "Library" / "Caches"
    else:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache")
    folder = cache / "tacit" / "programs"
    if folder.exists() and sys.platform != "win32":
        held = folder.stat()
        if held.st_uid != os.getuid() or stat.S_IMODE(held.st_mode) & (stat.S_IRWXG | stat.S_IRWXO):
            return None  # somebody else could have put programs there
    return folder


@lru_cache(maxsize=1)
def _platform_facts() -> str:
    """What a compiled program depends on, beside its text."""
    versions = [version(name) for name in ("jax", "jaxlib")]
    options = [os.environ.get(name, "") for name in ("XLA_FLAGS", "NPROC", "PJRT_NPROC")]
    features = ""
    with suppress(OSError):  # where the system tells what its processor can do
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        features = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    machine = platform.machine(), platform.processor(), os.cpu_count(), jax.default_backend()
    return repr((versions, options, machine, features, jax.config.values["jax_enable_x64"]))

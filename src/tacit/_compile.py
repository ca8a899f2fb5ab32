"""Compiling: programs that compile quickly, and a store of compiled programs in the user's cache folder.

Only programs whose shapes follow from public facts are stored: the text of a program has its shapes, and the store
outlives the fit. The folder belongs to the user alone, as the installed code does; whoever can write to either can
change what a fit does.
"""

import ast
import hashlib
import os
import pickle
import platform
import re
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

# A folder for compiled programs other than the usual one; none if it is empty.
_FOLDER_VARIABLE = "TACIT_CACHE_DIR"
# The number of programs that are kept; the oldest go first.
_MAX_STORED = 100
_STORED_NAME = re.compile("[0-9a-f]{64}")


def jit(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """`jax.jit` with options by which it compiles quickly."""
    return jax.jit(function, compiler_options=_compiler_options())


def _compiler_options() -> dict[str, bool | int] | None:
    # Most programs here are large and run briefly. These options compile them in less than half the time, and they
    # run as fast (benchmarks/cold_start.py).
    if jax.default_backend() != "cpu":
        return None
    options: dict[str, bool | int] = {"xla_backend_optimization_level": 1}
    if jax.__version_info__ < (0, 11, 1):  # later versions refuse it
        options["xla_cpu_use_fusion_emitters"] = False
    return options


def stored_jit(function: Callable[_P, _R], key: str | None = None) -> Callable[_P, _R]:
    """The same, for a program that is compiled once for all processes of this user.

    Args:
        function: The function. The shapes of its arguments must follow from public facts alone, never
            from the number of rows.
        key: What determines the program, beside these shapes and the code of this package. Without a key,
            nothing is stored.
    """
    return jit(function) if key is None else _StoredProgram(function, key)


class _StoredProgram(Generic[_P, _R]):
    """A function that is compiled for each kind of arguments, or loaded if it was compiled before."""

    def __init__(self, function: Callable[_P, _R], key: str) -> None:
        self.__wrapped__, self._key = function, key
        self._jitted = jax.jit(function, compiler_options=_compiler_options())
        self._programs: dict[object, Callable[_P, _R]] = {}

    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        leaves, tree = jax.tree.flatten((args, kwargs))
        kind = tree, (_is_in_64_bits(), *((each.shape, each.dtype) for each in leaves))
        if kind not in self._programs:
            self._programs[kind] = self._load_or_compile(kind, args, kwargs)
        return self._programs[kind](*args, **kwargs)

    def _load_or_compile(
        self, kind: tuple[object, object], args: tuple[object, ...], kwargs: dict[str, object]
    ) -> Callable[_P, _R]:
        path = _stored_path(repr((self._key, kind, _code_digest())))
        if path is not None:
            with suppress(
                Exception
            ):  # whatever is wrong with the file, the program is compiled again
                packed, result = pickle.loads(_read_own(path))  # noqa: S301 (as private as the code)
                found: Callable[_P, _R] = serialize_executable.deserialize_and_load(
                    packed,
                    jax.tree.structure((args, kwargs)),
                    result,
                    execution_devices=jax.local_devices()[:1],  # as compiled; the default is all
                )
                return found
        compiled = self._jitted.lower(*args, **kwargs).compile()
        if path is not None:
            with suppress(
                Exception
            ):  # a backend that cannot do this: the program runs all the same
                packed, _, result = serialize_executable.serialize(compiled)
                _store(path, pickle.dumps((packed, result)))
        return compiled


def remember(key: str, compute: Callable[[], _R]) -> _R:
    """What a function returns, or what it returned before for the same key and the same code of this package.

    Plain data only: numbers, texts, bytes and tuples of them, which follow from public facts.
    """
    path = _stored_path(repr((key, _code_digest())))
    if path is not None:
        with suppress(OSError, ValueError, SyntaxError):
            found: _R = ast.literal_eval(_read_own(path).decode())
            return found
    made = compute()
    if path is not None:
        _store(path, repr(made).encode())
    return made


def _stored_path(determined_by: str) -> Path | None:
    """The file of what is determined by a text and this platform; None if nothing is stored."""
    folder = program_folder()
    if folder is None or jax.process_count() > 1 or jax.config.values["jax_default_device"]:
        return None
    facts = f"{_platform_facts()} {_is_in_64_bits()}"
    return folder / hashlib.sha256(f"{facts}\n{determined_by}".encode()).hexdigest()


def _read_own(path: Path) -> bytes:
    """What a file of the user holds that nobody else may write, checked on the file that is read."""
    with path.open("rb") as file:
        held = os.fstat(file.fileno())
        if sys.platform != "win32" and (
            held.st_uid != os.getuid() or held.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        ):
            raise PermissionError(path)
        return file.read()


def _store(path: Path, content: bytes) -> None:
    with suppress(OSError):  # a full disk: nothing is stored
        make_private_folder(path.parent)
        write_atomically(path, content)
        # Nothing but what was stored here may go: the folder may have been named by the user, and hold other files.
        own = [each for each in path.parent.iterdir() if _STORED_NAME.fullmatch(each.name)]
        stored = sorted(own, key=lambda each: each.stat().st_mtime)
        for old in stored[:-_MAX_STORED]:
            old.unlink()


@lru_cache(maxsize=1)
def _code_digest() -> str:
    """The digest of the package's own code."""
    found = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("**/*.py")):
        found.update(path.read_bytes())
    return found.hexdigest()


def program_folder() -> Path | None:
    """The folder of compiled programs, which only its owner may read; None if there is none."""
    folder = _chosen_folder()
    if folder is not None and folder.exists() and sys.platform != "win32":
        held = folder.stat()
        if held.st_uid != os.getuid() or stat.S_IMODE(held.st_mode) & (stat.S_IRWXG | stat.S_IRWXO):
            return None  # somebody else could have put programs there
    return folder


def _chosen_folder() -> Path | None:
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
    return cache / "tacit" / "programs"


@lru_cache(maxsize=1)
def _platform_facts() -> str:
    """What a compiled program depends on, beside its text."""
    versions = [version(name) for name in ("jax", "jaxlib", "numpyro")]
    options = [os.environ.get(name, "") for name in ("XLA_FLAGS", "NPROC", "PJRT_NPROC")]
    features = ""
    with suppress(OSError):  # where the system tells what its processor can do
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        features = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    machine = platform.machine(), platform.processor(), os.cpu_count()
    backend = jax.default_backend(), jax.local_devices()[0].device_kind, jax.device_count()
    return repr((versions, options, machine, features, backend))


def _is_in_64_bits() -> bool:
    """Whether JAX computes in 64 bits here, which can change while a process runs."""
    return bool(jax.config.values["jax_enable_x64"])

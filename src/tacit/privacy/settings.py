"""JAX settings while a gate is at work: those that print, stop or show values are off.

And those that the last bits of a result depend on, to which a run is bound.
"""

import logging
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Lock

import jax
from jax.experimental.compilation_cache import compilation_cache

from tacit.errors import InvalidArgument, TacitError

# Loggers of JAX that were made to say less, and the levels they had; and how many gates work.
_levels: dict[logging.Logger, int] = {}
_lock, _working = Lock(), [0]
# Where compiled programs shall be stored, by all who have asked, and what was set before the first of them.
_FOLDER, _LEAST = "jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs"
_DUMPS = "jax_dump_ir_to"  # where JAX writes programs before they are compiled
_folders: dict[object, Path | None] = {}
_before: dict[str, object] = {}


@contextmanager
def quiet() -> Iterator[None]:
    """Within this no setting of the process makes JAX say or do something because of rows.

    One that stops at NaN would tell that a row has it; one that logs what is compiled, or moved to
    the device, prints shapes, which hold how many rows there are, as JAX's loggers do below a
    warning; one that stores compiled programs writes those shapes into files that others may read;
    without compilation every operation runs by itself. [gate-settings]
    """
    with ExitStack() as off:
        off.enter_context(_loggers_off())
        off.enter_context(programs_stored_in(None))
        off.enter_context(jax.transfer_guard("allow"))
        for setting in (
            jax.debug_nans, jax.debug_infs, jax.log_compiles, jax.explain_cache_misses,
            jax.enable_checks, jax.check_tracer_leaks, jax.disable_jit,
        ):  # fmt: skip
            off.enter_context(setting(False))
        yield


@contextmanager
def _loggers_off() -> Iterator[None]:
    """JAX's loggers say nothing below a warning, for as long as a gate works in any thread."""
    with _lock:
        _working[0] += 1
        for logger in _talking():
            _levels.setdefault(logger, logger.level)
            logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        with _lock:
            _working[0] -= 1
            while not _working[0] and _levels:
                logger, level = _levels.popitem()
                logger.setLevel(level)


def _talking() -> list[logging.Logger]:
    """JAX's loggers that would say more; others of its ask the first of these."""
    made = [logging.getLogger("jax"), *logging.Logger.manager.loggerDict.values()]
    return [
        each
        for each in made
        if isinstance(each, logging.Logger)
        and each.name.split(".")[0] == "jax"
        and each.getEffectiveLevel() < logging.WARNING
    ]


@contextmanager
def programs_stored_in(folder: Path | None) -> Iterator[None]:
    """Stores programs that any thread compiles meanwhile in a folder, or nowhere.

    JAX has one such setting for the whole process. So while anybody says nowhere, it is nowhere.
    """
    asked = object()
    with _lock:
        if not _folders:
            _before.update({name: jax.config.values[name] for name in (_FOLDER, _LEAST, _DUMPS)})
        _folders[asked] = folder
        _store_programs()
    try:
        yield
    finally:
        with _lock:
            del _folders[asked]
            _store_programs()


def _store_programs() -> None:
    """Tells JAX where to store programs."""
    wanted = dict(_before)
    if _folders:
        *_, last = _folders.values()
        nowhere = last is None or None in _folders.values()
        wanted |= {_FOLDER: None if nowhere else str(last), _LEAST: 0.0}
        wanted |= {_DUMPS: ""} if nowhere else {}
    if wanted[_DUMPS] != jax.config.values[_DUMPS]:
        jax.config.update(_DUMPS, wanted[_DUMPS])  # type: ignore[no-untyped-call]
    if wanted[_FOLDER] != jax.config.values[_FOLDER]:
        for name in (_FOLDER, _LEAST):
            jax.config.update(name, wanted[name])  # type: ignore[no-untyped-call]
        compilation_cache.reset_cache()  # JAX chooses the folder only once


@contextmanager
def refused_traces() -> Iterator[None]:
    """What a function cannot be traced for, in a sentence of our own.

    JAX's words may have shapes, and with them how many rows there are, so only the kind is told.
    The name of a column that is not there stands in the model's code; other keys may be shapes.
    """
    try:
        yield
    except TacitError:
        raise
    except Exception as error:  # whatever a model's own code may raise
        if isinstance(error, KeyError) and all(isinstance(key, str) for key in error.args):
            raise
        raise InvalidArgument(
            f"JAX cannot trace the model for this method ({type(error).__name__}): leave out "
            "callbacks, custom rules for gradients that do not fit, and decisions in Python that "
            "depend on a row."
        ) from None


# What decides on the last bits of what JAX computes, beside its version and XLA's flags.
_JAX_SETTINGS = (
    "jax_default_matmul_precision", "jax_default_prng_impl", "jax_disable_most_optimizations",
    "jax_enable_x64", "jax_exec_time_optimization_effort", "jax_high_dynamic_range_gumbel",
    "jax_num_cpu_devices", "jax_numpy_dtype_promotion", "jax_optimization_level",
    "jax_random_seed_offset", "jax_softmax_custom_jvp", "jax_threefry_partitionable",
    "jax_use_direct_linearize",
)  # fmt: skip
# What XLA and the libraries of linear algebra read when they are loaded.
_VARIABLES = (
    "XLA_FLAGS", "BLIS_NUM_THREADS", "GOTO_NUM_THREADS", "MKL_CBWR", "MKL_NUM_THREADS",
    "OMP_NUM_THREADS", "OPENBLAS_CORETYPE", "OPENBLAS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS",
)  # fmt: skip


def num_threads() -> int:
    """How many threads XLA computes with on the CPU, found as XLA finds it.

    A product of matrices may be cut into as many parts, which round by themselves.
    """
    for name in ("PJRT_NPROC", "NPROC"):
        with suppress(KeyError, ValueError):
            return max(0, int(os.environ[name]))
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # where the system does not tell
        return os.cpu_count() or 1


def arithmetic_settings() -> str:
    """Settings of JAX, XLA and linear algebra on which the last bits of a result depend."""
    known = jax.config.values
    held = {name: getattr(jax.config, name, known.get(name)) for name in _JAX_SETTINGS}
    variables = {name: os.environ[name] for name in _VARIABLES if name in os.environ}
    return repr((held, variables))

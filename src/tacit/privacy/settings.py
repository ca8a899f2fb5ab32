"""JAX settings while a gate is at work: those that print, stop or show values are off."""

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from threading import Lock

import jax

from tacit.errors import InvalidArgument, TacitError

# Loggers of JAX that were made to say less, and the levels they had; and how many gates work.
_levels: dict[logging.Logger, int] = {}
_lock, _working = Lock(), [0]


@contextmanager
def quiet() -> Iterator[None]:
    """Within this no setting of the process makes JAX say or do something because of rows.

    One that stops at NaN would tell that a row has it; one that logs what is compiled, or moved to
    the device, prints shapes, which hold how many rows there are, as JAX's loggers do below a
    warning; without compilation every operation runs by itself. [gate-settings]
    """
    with ExitStack() as off:
        off.enter_context(_loggers_off())
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

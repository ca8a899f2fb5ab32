"""JAX's own settings while a gate is at work: those that print, stop or look at values are off."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import jax

from tacit.errors import InvalidArgument, TacitError


@contextmanager
def quiet() -> Iterator[None]:
    """Within this no setting of the process makes JAX say or do something because of rows.

    One that stops at NaN would tell that a row has it; one that logs what is compiled prints
    shapes, which hold how many rows there are; without compilation every operation runs by itself.
    [gate-settings]
    """
    with ExitStack() as off:
        for setting in (
            jax.debug_nans, jax.debug_infs, jax.log_compiles, jax.explain_cache_misses,
            jax.enable_checks, jax.check_tracer_leaks, jax.disable_jit,
        ):  # fmt: skip
            off.enter_context(setting(False))
        yield


@contextmanager
def refused_traces() -> Iterator[None]:
    """What a function cannot be traced for, in a sentence of our own.

    JAX's words may have shapes, and with them how many rows there are, so only the kind is told.
    """
    try:
        yield
    except TacitError:
        raise
    except Exception as error:  # noqa: BLE001 (whatever a model's own code may raise)
        raise InvalidArgument(
            f"JAX cannot trace the model for this method ({type(error).__name__}): leave out "
            "callbacks, custom rules for gradients that do not fit, and decisions in Python that "
            "depend on a row."
        ) from None

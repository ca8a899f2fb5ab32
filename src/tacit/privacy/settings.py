"""JAX's own settings while a gate is at work: those that print, stop or look at values are off."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import jax


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

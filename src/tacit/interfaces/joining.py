"""Joining the processes of a run, by JAX's distributed runtime."""

import jax

from tacit.errors import InvalidArgument
from tacit.interfaces.workers import Place
from tacit.privacy.processes import Processes

# Seconds without a sign of life after which a process counts as lost.
_SILENCE = 60


def join(workers: int) -> int:
    """Joins the other processes of a run: those of `launch`, or those that a scheduler started.

    Args:
        workers: How many processes there should be.

    Returns:
        The number of this process.

    Raises:
        InvalidArgument: If JAX does not find them, or finds another number of them.
    """
    jax.config.update("jax_cpu_collectives_implementation", "gloo")  # type: ignore[no-untyped-call]
    place = Place.here()
    try:
        if place is None:
            jax.distributed.initialize(heartbeat_timeout_seconds=_SILENCE)
        else:
            jax.distributed.initialize(
                f"127.0.0.1:{place.port}",
                place.size,
                place.rank,
                coordinator_bind_address=f"127.0.0.1:{place.port}",
                heartbeat_timeout_seconds=_SILENCE,
            )
    except (ValueError, RuntimeError):
        raise InvalidArgument(
            "JAX did not find the other processes; see docs/distributed.md for job files."
        ) from None
    Processes().meet()
    if jax.process_count() != workers:
        raise InvalidArgument(
            f"The scheduler started {jax.process_count()} processes, but --workers is {workers}."
        )
    return jax.process_index()

"""Joining the processes of a run, by JAX's distributed runtime."""

from functools import partial
from importlib import import_module

import jax

from tacit.cli.workers import ProcessInfo
from tacit.errors import InvalidArgument
from tacit.privacy.distributed import Processes

_LOCALHOST = "127.0.0.1"
# Seconds without a sign of life after which a process counts as lost.
_HEARTBEAT_TIMEOUT = 60


def join_processes(workers: int) -> int:
    """Joins the other processes of a run: those of `launch`, or those that a scheduler started.

    Args:
        workers: How many processes there should be.

    Returns:
        The number of this process.

    Raises:
        InvalidArgument: If JAX does not find them, or finds another number of them.
    """
    jax.config.update("jax_cpu_collectives_implementation", "gloo")  # type: ignore[no-untyped-call]
    place = ProcessInfo.here()
    try:
        if place is None:
            jax.distributed.initialize(heartbeat_timeout_seconds=_HEARTBEAT_TIMEOUT)
        else:
            _listen_on_localhost()
            jax.distributed.initialize(
                f"{_LOCALHOST}:{place.port}",
                place.size,
                place.rank,
                coordinator_bind_address=f"{_LOCALHOST}:{place.port}",
                heartbeat_timeout_seconds=_HEARTBEAT_TIMEOUT,
            )
        Processes().meet()
    except (ValueError, RuntimeError):  # also if the name of a machine leads nowhere
        raise InvalidArgument(
            "JAX did not find the other processes; see docs/distributed.md for job files."
        ) from None
    if jax.process_count() != workers:
        raise InvalidArgument(
            f"The scheduler started {jax.process_count()} processes, but --workers is {workers}."
        )
    return jax.process_index()


def _listen_on_localhost() -> None:
    """Lets processes on one machine listen on it only.

    Gloo listens where the name of the machine leads, which may be the network, or nowhere. JAX has no
    setting for this.
    """
    inner = vars(import_module("jaxlib._jax"))
    name = "make_gloo_tcp_collectives"
    inner[name] = partial(inner[name], hostname=_LOCALHOST)

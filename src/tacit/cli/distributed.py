"""Several processes that run one command, each with files of its own.

`launch` starts them on this machine and waits; that process computes nothing and does not load JAX. In each of them
`join_processes` finds the others by JAX's distributed runtime, also if a scheduler started them.
"""

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from functools import partial
from importlib import import_module
from typing import IO, Final, NamedTuple

import typer

from tacit.errors import InvalidArgument

WORKER_VARIABLE: Final = "TACIT_WORKER"
"""The environment variable that tells a process its number, how many there are, and their port."""

EXIT_LOST_PROCESS: Final = 4
"""The exit code of a process that lost another one before anything was charged."""
# Seconds for the others to notice that one is gone, and between two looks.
_GRACE_SECONDS, _POLL_SECONDS = 30.0, 0.05
# Seconds without a sign of life after which a process counts as lost.
_HEARTBEAT_TIMEOUT = 60
_LOCALHOST = "127.0.0.1"
# Variables that a scheduler sets in each of several processes, by which JAX finds the others.
_SCHEDULER_VARIABLES = ("SLURM_STEP_NODELIST", "OMPI_COMM_WORLD_RANK", "JOB_COMPLETION_INDEX")


class ProcessInfo(NamedTuple):
    """The number of a process, how many there are, and the port of the first."""

    rank: int
    size: int
    port: int

    @classmethod
    def here(cls) -> "ProcessInfo | None":
        """The place of this process, if `launch` started it."""
        told = os.environ.get(WORKER_VARIABLE)
        return None if told is None else cls(*map(int, told.split()))


def is_scheduled() -> bool:
    """Whether a scheduler started this process, as one of several."""
    return any(name in os.environ for name in _SCHEDULER_VARIABLES)


def launch(arguments: Sequence[str], workers: int, folder: object) -> int:
    """Runs a command of the command line in several processes.

    Args:
        arguments: The command, without ``tacit``.
        workers: How many processes.
        folder: The folder of the run, which is named if it can go on there.

    Returns:
        The exit code.
    """
    port = _free_port()
    with ExitStack() as stack:
        said = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(workers)]
        started = [
            _start(arguments, ProcessInfo(rank, workers, port), said[rank])
            for rank in range(workers)
        ]
        try:
            codes = _wait_for_all(started)
        except KeyboardInterrupt:
            codes = _wait_for_all(started)
        finally:
            for each in started:
                if each.poll() is None:
                    each.kill()
        return _exit_code(codes, said, folder, again="resume" in arguments[:1])


def _start(
    arguments: Sequence[str], place: ProcessInfo, said: IO[bytes]
) -> "subprocess.Popen[bytes]":
    """A process; only the first one prints, and its errors are shown as they come."""
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "GRPC_VERBOSITY": "NONE"}
    environment = os.environ | quiet | {WORKER_VARIABLE: " ".join(map(str, place))}
    command = [sys.executable, "-m", "tacit", *arguments]
    if place.rank == 0:
        return subprocess.Popen(command, env=environment)  # noqa: S603
    nothing = subprocess.DEVNULL
    return subprocess.Popen(  # noqa: S603
        command, env=environment, stdin=nothing, stdout=nothing, stderr=said
    )


def _wait_for_all(started: Sequence["subprocess.Popen[bytes]"]) -> list[int]:
    """The exit codes of all processes; once one has failed, the others are given a while."""
    deadline = float("inf")
    while any(each.poll() is None for each in started):
        if deadline == float("inf") and any(each.poll() for each in started):
            deadline = time.monotonic() + _GRACE_SECONDS
        if time.monotonic() > deadline:
            for each in started:
                with suppress(OSError):
                    each.kill()
        time.sleep(_POLL_SECONDS)
    return [int(each.wait()) for each in started]


def _exit_code(
    codes: Sequence[int], said: Sequence[IO[bytes]], folder: object, *, again: bool = False
) -> int:
    """The exit code of the whole, after one sentence if the first process did not say it."""
    first = codes[0]
    if first == 0 or (first > 0 and first != EXIT_LOST_PROCESS):
        return first
    for code, words in zip(codes[1:], said[1:], strict=True):
        words.seek(0)
        lines = words.read().decode(errors="replace").strip().splitlines()
        if first > 0 and code > 0 and code != EXIT_LOST_PROCESS and lines:  # why it ended
            typer.echo(lines[-1], err=True)
            return code
    gone = next((rank for rank, code in enumerate(codes) if code < 0), 0)
    lost = f"Error: Process {gone} of {len(codes)} was lost, and the run ended."
    more = "Nothing more was charged." if again else "Nothing was charged."
    if first < 0:
        more = f"If it was charged, continue without another charge: tacit resume {folder}."
    typer.echo(f"{lost} {more}", err=True)
    return 1


def _free_port() -> int:
    with socket.socket() as found:
        found.bind((_LOCALHOST, 0))
        port: int = found.getsockname()[1]
        return port


def join_processes(workers: int) -> int:
    """Joins the other processes of a run: those of `launch`, or those that a scheduler started.

    Args:
        workers: How many processes there should be.

    Returns:
        The number of this process.

    Raises:
        InvalidArgument: If JAX does not find them, or finds another number of them.
    """
    import jax

    from tacit.privacy.distributed import Processes

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
            "JAX did not find the other processes; 'Large tables' in the documentation has job files."
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

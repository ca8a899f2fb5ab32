"""Several processes on one machine, each of which runs the same command with other files.

This process only starts them, and waits. It computes nothing.
"""

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import IO, Final, NamedTuple

import typer

WORKER_VARIABLE: Final = "TACIT_WORKER"
"""The environment variable that tells a process its number, how many there are, and their port."""

EXIT_LOST_PROCESS: Final = 4
"""The exit code of a process that lost another one before anything was charged."""
# Seconds for the others to notice that one is gone, and between two looks.
_GRACE_SECONDS, _POLL_SECONDS = 30.0, 0.05
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
        more = f"If it was charged, go on without another charge: tacit resume {folder}."
    typer.echo(f"{lost} {more}", err=True)
    return 1


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port

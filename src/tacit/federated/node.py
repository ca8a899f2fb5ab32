"""A site's node: Flower's SuperNode, whose messages go to the site's guard.

A SuperNode starts the program ``flwr-clientapp`` for every message, which imports Flower: two seconds of CPU. The node
imports it once. It puts a program of the same name before Flower's in the SuperNode's PATH, which only hands its
arguments over; the node then forks, and the child calls what the console script of Flower calls. Every message still
has a process of its own, with nothing of the one before in its memory. Where this is impossible, Flower's program runs
as if the node were not there. A run's code has the rights of the node's user in any case.
"""

import ctypes
import gc
import logging
import os
import select
import shlex
import shutil
import signal
import socket as socketlib
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from importlib.metadata import entry_points
from pathlib import Path
from types import FrameType

_LOG = logging.getLogger(__name__)
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
# The program that a SuperNode starts for every message.
_PROGRAM = "flwr-clientapp"
# Hands its arguments over to the node; if the node does not take them, runs Flower's program.
_HAND_OVER = """
import os, socket, sys
program, path, *arguments = sys.argv[1:]
try:
    with socket.socket(socket.AF_UNIX) as node:
        node.connect(path)
        node.sendall(b"\\0".join(map(os.fsencode, arguments)))
        node.shutdown(socket.SHUT_WR)
        taken = node.recv(1)
except OSError:
    taken = b""
if not taken:
    os.execv(program, [program, *arguments])
"""
# Seconds between two looks whether the SuperNode has ended, and for a program to hand its arguments over.
_POLL_SECONDS, _HAND_OVER_SECONDS = 0.5, 10.0
# Flower looks for a message that it has not started a program for every second, unless this says how often.
# It also tells its makers what it is used for, and asks them for new versions, unless these say that it must not.
_FLOWER_SETTINGS = {
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.25",
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
}


def supernode_command(
    socket: Path, *, superlink: str, root_certificates: Path, key: Path, port: int
) -> list[str]:
    """The command of a SuperNode whose messages go to a guard.

    Args:
        socket: The socket of the site's guard.
        superlink: The address of the SuperLink.
        root_certificates: The certificate of the study's authority.
        key: The private key of the node.
        port: The port of the node's own interface, on loopback.

    Returns:
        The command with its arguments.
    """
    return [
        "flower-supernode",
        *("--superlink", superlink),
        *("--root-certificates", os.fspath(root_certificates)),
        *("--auth-supernode-private-key", os.fspath(key)),
        *("--host", "127.0.0.1", "--port", str(port)),
        *("--node-config", f"guard='{socket.absolute()}'"),
    ]


def find_program(name: str) -> str | None:
    """The path of a program of Flower: beside this Python, or in PATH."""
    return shutil.which(name, path=_search_path())


def _search_path() -> str:
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])


def flower_environment() -> dict[str, str]:
    """The environment of Flower's programs: this one, with settings that it does not have."""
    return {**_FLOWER_SETTINGS, **os.environ}


def free_port() -> int:
    """A port on loopback that nobody uses."""
    with socketlib.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run_node(command: Sequence[str]) -> int:
    """Runs a SuperNode until it ends, and says why if it does not get in.

    Args:
        command: The command of the SuperNode; see `supernode_command`.

    Returns:
        The exit code of the SuperNode. A service manager should start the node again.
    """
    stopped: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        # What an import runs may swallow the exception, and the node must end all the same.
        stopped.append(number)
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)
    os.environ.update(flower_environment())  # for Flower in this process, too
    # There is one thread only, so that something may run before the SuperNode.
    end = _end_with_parent
    with (
        _hand_over() as (environment, listening),
        subprocess.Popen(command, preexec_fn=end, env=environment) as node,  # noqa: S603, PLW1509
    ):
        try:
            if listening is not None:
                _fork_for_messages(listening, lambda: bool(stopped) or node.poll() is not None)
            if not stopped:
                node.wait()
        except KeyboardInterrupt:
            pass
        finally:
            node.terminate()
    if node.returncode > 0:
        _LOG.error(
            "The SuperNode ended (code %d). If it says 'Failed to activate' above, the server was reached and does "
            "not take this node's key: it is not registered (tacit federated register), another process uses it, or "
            "the node lost power less than a minute ago. Otherwise the server was not reached.",
            node.returncode,
        )
    return node.returncode


@contextmanager
def _hand_over() -> Iterator[tuple[dict[str, str], socketlib.socket | None]]:
    """An environment in which the program for a message hands its arguments over, and the socket that gets them."""
    environment = {**os.environ, "PATH": _search_path()}
    program = find_program(_PROGRAM)
    if sys.platform != "linux" or program is None:
        yield environment, None
        return
    with (
        tempfile.TemporaryDirectory(prefix="tacit-") as folder,
        closing(socketlib.socket(socketlib.AF_UNIX)) as listening,
    ):
        path, script = Path(folder, "node"), Path(folder, _PROGRAM)
        try:
            listening.bind(os.fspath(path))
        except OSError:  # the name of the temporary folder is too long for a socket
            yield environment, None
            return
        listening.listen()
        words = [sys.executable, "-I", "-S", "-c", _HAND_OVER, program, os.fspath(path)]
        script.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n', "utf-8")
        script.chmod(0o700)
        yield environment | {"PATH": f"{folder}{os.pathsep}{environment['PATH']}"}, listening


def _fork_for_messages(listening: socketlib.socket, ended: Callable[[], bool]) -> None:
    """Forks for every program that hands its arguments over, until the SuperNode has ended."""
    try:
        (entry,) = entry_points(group="console_scripts", name=_PROGRAM)
        run = entry.load()
        import tacit.federated.flower  # noqa: F401 (what a study's app imports)
    except (ValueError, ImportError, AttributeError):
        listening.close()
        return
    if threading.active_count() > 1:  # they would not be in the child
        listening.close()
        return
    gc.freeze()
    children = set[int]()
    while not ended():
        if select.select([listening], [], [], _POLL_SECONDS)[0]:
            with suppress(OSError), listening.accept()[0] as connection:
                arguments = _received(connection)
                if child := os.fork():
                    children.add(child)
                    connection.sendall(b"1")
                else:
                    listening.close()
                    connection.close()
                    _run_and_exit(run, arguments)
        children -= {child for child in children if os.waitpid(child, os.WNOHANG)[0]}


def _received(connection: socketlib.socket) -> list[str]:
    """The arguments of a program."""
    connection.settimeout(_HAND_OVER_SECONDS)
    parts = list(iter(lambda: connection.recv(65536), b""))
    return [os.fsdecode(each) for each in b"".join(parts).split(b"\0")]


def _run_and_exit(run: Callable[[], object], arguments: Sequence[str]) -> None:
    """What the console script does, in a child, and nothing that the node would do afterwards."""
    code = 1
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        sys.argv = [_PROGRAM, *arguments]
        run()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 (the child must not go on as the node)
        _LOG.exception("The program for a message failed.")
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)


def _end_with_parent() -> None:
    """Asks the kernel to end this process when its parent dies, by whatever signal; on Linux only.

    A SuperNode that nobody fetches messages from would keep its site from coming back.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)

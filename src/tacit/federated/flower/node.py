"""A site's node: Flower's SuperNode, and a process that starts ClientApps without importing them anew.

Flower starts a program for every message, and each imports Flower again, which takes most of a round. Here the
SuperNode runs with ``--isolation process``, so that another process fetches messages from it. That process has
imported everything before, and forks for every message. Code that was shipped with the run is only loaded in
the fork, which ends with the message.
"""

import ctypes
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

import httpx
from flwr.proto.runtime_pb2 import AcquireTaskRequest
from flwr.supercore.constant import TaskType
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supernode.runtime.run_clientapp import run_clientapp

# Seconds between two looks for a message.
_POLL_SECONDS = 0.5
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_FORK = multiprocessing.get_context("fork")


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
        *("--isolation", "process"),
        *("--node-config", f"guard='{socket.absolute()}'"),
    ]


def run_node(command: Sequence[str], port: int) -> int:
    """Runs a SuperNode until it ends, and starts a ClientApp for every message.

    Args:
        command: The command of the SuperNode; see `supernode_command`.
        port: The port of the node's own interface.

    Returns:
        The exit code of the SuperNode. A service manager should start the node again.
    """
    signal.signal(signal.SIGTERM, _stop)
    # One thread only, so that something may run before the SuperNode.
    with subprocess.Popen(command, preexec_fn=_end_with_parent) as node:  # noqa: S603, PLW1509
        try:
            _fetch_messages(node, f"127.0.0.1:{port}")
        except KeyboardInterrupt:
            pass
        finally:
            node.terminate()
    return node.returncode


def _end_with_parent() -> None:
    """Asks the kernel to end this process when its parent dies, by whatever signal; on Linux only.

    A SuperNode that nobody fetches messages from would keep its site from coming back.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    raise KeyboardInterrupt


def _fetch_messages(node: "subprocess.Popen[bytes]", address: str) -> None:
    """Fetches messages from a SuperNode as long as it runs."""
    client = RuntimeHttpClient.from_server_address(
        address,
        insecure=True,
        root_certificates=None,
        interceptors=[RuntimeVersionHttpInterceptor(component_name="SuperExec")],
    )
    request = AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP])
    while node.poll() is None:
        try:
            token = client.AcquireTask(request).token
        except httpx.TransportError:  # it is starting, or ending
            token = ""
        if token:
            _FORK.Process(target=_run_client_app, args=(address, token, os.getpid())).start()
        multiprocessing.active_children()  # those that have ended are cleared away
        time.sleep(_POLL_SECONDS)


def _run_client_app(address: str, token: str, parent: int) -> None:
    """Runs the ClientApp of one message, in a process of its own."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    run_clientapp(address, token, insecure=True, parent_pid=parent)

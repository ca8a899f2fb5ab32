"""The guard: a process of the site that answers, so that shipped code cannot read rows.

At each site, Flower runs code that came with the run. If the node's user can read the rows, so can that
code. The guard runs as another user, from the Tacit that is installed at the site. The node's code can only
send it messages through a local socket, and gets only what the server would get.
"""

import json
import os
import socket
import socketserver
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tacit.errors import InvalidArgument, Refused
from tacit.federated.told import told

# Messages have a vector and some keys, and are never longer.
_MOST = 2**28
Answer = Callable[[dict[str, Any]], dict[str, Any]]


class Guard(socketserver.ThreadingUnixStreamServer):
    """Listens at a path, and answers one message at a time by ``answer``."""

    daemon_threads = True

    def __init__(self, path: Path, answer: Answer, *, mode: int = 0o660) -> None:
        self._answer, self._turn = answer, threading.Lock()
        if path.is_socket():
            path.unlink()  # left by a guard that died
        super().__init__(str(path), _Conversation)
        path.chmod(mode)

    def answered(self, fields: dict[str, Any]) -> dict[str, Any]:
        """The answer of the site to a message."""
        with self._turn:
            return self._answer(fields)


class _Conversation(socketserver.StreamRequestHandler):
    """One message and its answer, a line of JSON each."""

    server: Guard

    def handle(self) -> None:
        line = self.rfile.readline(_MOST)
        try:
            fields = unpacked(line)
        except (ValueError, RecursionError):
            said = told(Refused("The message cannot be read."))
        else:
            said = self.server.answered(fields)
        self.wfile.write(packed(said))


def ask(path: Path, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The answer of the guard at a path to a message."""
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(os.fspath(path))
        except OSError as error:
            raise InvalidArgument(
                f"The site's guard is not running ({error.strerror}); start tacit federated guard."
            ) from error
        connection.sendall(packed(fields))
        with connection.makefile("rb") as file:
            return unpacked(file.readline(_MOST))


def packed(fields: Mapping[str, Any]) -> bytes:
    """Fields as a line of JSON, with bytes as hexadecimal text."""
    return json.dumps(dict(fields), default=lambda value: {"hex": value.hex()}).encode() + b"\n"


def unpacked(line: bytes) -> dict[str, Any]:
    """The fields of a line."""
    fields = json.loads(line, object_hook=_bytes)
    if not isinstance(fields, dict):
        raise ValueError("a message is an object")  # noqa: TRY004 (the content is wrong, not a type)
    return fields


def _bytes(held: dict[str, Any]) -> Any:
    """Bytes, if they are marked as such."""
    if held.keys() != {"hex"}:
        return held
    if not isinstance(held["hex"], str):
        raise ValueError("bytes are text")  # noqa: TRY004 (the content is wrong, not a type)
    return bytes.fromhex(held["hex"])

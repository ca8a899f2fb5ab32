"""The guard: a process of the site that answers, so that code shipped with a run cannot read rows.

At each site, Flower runs code that came with the run. If the node's user can read the rows, so can that
code. The guard runs as another user, from the Tacit that is installed at the site. The node's code can only
send it messages through a local socket, and gets only what the server would get.

Errors at a site name its files and its remaining budget, so they go to the site's own log only; the server gets
a kind and a neutral sentence. The message of an unexpected error may contain a value from a row, so the log gets
only its type and its place in the code.

This module does not import JAX: a node that passes messages on starts a process for each of them.
"""

import json
import logging
import os
import socket
import socketserver
import threading
import traceback
from collections.abc import Callable
from pathlib import Path

from tacit.errors import BoundaryError, BudgetError, InvalidArgument, Refused, TacitError
from tacit.federated.protocol import Fields

_LOG = logging.getLogger(__name__)
# Errors of a site, the first kind that fits: the sentence that the server receives.
_SENTENCES: dict[str, tuple[type[TacitError], str]] = {
    "budget": (BudgetError, "The site's budget does not allow an answer."),
    "boundary": (BoundaryError, "The study at the site would take rows past the boundary."),
    "site": (TacitError, "The site's files or settings are invalid."),
}
_SEE_LOG = "The site's own log says more."


def answer_or_error(answer: Callable[[], Fields]) -> Fields:
    """The answer, or the kind of an error and a sentence for the server."""
    try:
        return answer()
    except TacitError as error:
        _LOG.warning("Refused: %s", error)
        return error_reply(error)
    except Exception as error:  # noqa: BLE001 (its message may contain a value from a row)
        where = "".join(traceback.format_tb(error.__traceback__))
        _LOG.error("This site could not answer: %s at\n%s", type(error).__name__, where)
        return {"kind": "failure", "error": f"The site failed. {_SEE_LOG}"}


def error_reply(error: TacitError) -> Fields:
    """An error as the server sees it: in full only if its message was written for the server."""
    if isinstance(error, Refused):
        return {"kind": "question", "error": str(error)}
    kind = next(kind for kind, (family, _) in _SENTENCES.items() if isinstance(error, family))
    return {"kind": kind, "error": f"{_SENTENCES[kind][1]} {_SEE_LOG}"}


# Messages have a vector and some keys, and are never longer.
_MAX_MESSAGE_BYTES = 2**28
AnswerMessage = Callable[[Fields], Fields]


class Guard(socketserver.ThreadingUnixStreamServer):
    """Listens at a path, and answers one message at a time by ``answer``."""

    daemon_threads = True

    def __init__(self, path: Path, answer: AnswerMessage, *, mode: int = 0o660) -> None:
        self._answer, self._lock = answer, threading.Lock()
        if path.is_socket():
            path.unlink()  # left by a guard that died
        try:
            super().__init__(str(path), _RequestHandler)
        except OSError as error:
            raise InvalidArgument(
                f"The guard cannot listen at {path} ({error}): its folder must exist, and the path have about 100 letters at "
                "most."
            ) from None
        path.chmod(mode)

    def answer(self, fields: Fields) -> Fields:
        """The answer of the site to a message."""
        with self._lock:
            return self._answer(fields)


class _RequestHandler(socketserver.StreamRequestHandler):
    """One message and its answer, a line of JSON each."""

    server: Guard

    def handle(self) -> None:
        line = self.rfile.readline(_MAX_MESSAGE_BYTES)
        try:
            fields = decode_message(line)
        except (ValueError, RecursionError):
            reply = error_reply(Refused("The message cannot be read."))
        else:
            reply = self.server.answer(fields)
        self.wfile.write(encode_message(reply))


def ask(path: Path, fields: Fields) -> Fields:
    """The answer of the guard at a path to a message."""
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(os.fspath(path))
        except OSError as error:
            raise InvalidArgument(
                f"The site's guard is not running ({error.strerror}); start tacit federated guard."
            ) from error
        connection.sendall(encode_message(fields))
        with connection.makefile("rb") as file:
            return decode_message(file.readline(_MAX_MESSAGE_BYTES))


def encode_message(fields: Fields) -> bytes:
    """Fields as a line of JSON, with bytes as hexadecimal text."""
    return json.dumps(fields, default=lambda value: {"hex": value.hex()}).encode() + b"\n"


def decode_message(line: bytes) -> Fields:
    """The fields of a line."""
    fields = json.loads(line, object_hook=_decode_bytes)
    if not isinstance(fields, dict):
        raise ValueError("a message is an object")  # noqa: TRY004 (the content is wrong, not a type)
    return fields


def _decode_bytes(value: Fields) -> Fields | bytes:
    """Bytes, if they are marked as such."""
    if value.keys() != {"hex"}:
        return value
    if not isinstance(value["hex"], str):
        raise ValueError("bytes are text")  # noqa: TRY004 (the content is wrong, not a type)
    return bytes.fromhex(value["hex"])

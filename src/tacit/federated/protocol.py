"""What a server and its sites send each other, as plain values, and arrays as bytes.

Whatever carries messages (threads, sockets, Flower) implements `Transport`. An implementation must
guarantee:

- `exchange` sends each named site its `Task` and returns the `Reply` of every site that answered in
  time. A site that did not answer in time is missing from the result, and its `Client` learns this with
  its next task. A late answer may be returned only if the site is asked the same again.
- A task may be delivered twice. The client answers twice with the same reply.
- A site that answers with an error is missing from the result; it does not end the run. What it
  said (a kind and a sentence, see `tacit.federated.guard`) is in `refused` until it answers. Sites in the
  same process raise the error instead.

The site's end is `Client.answer(task) -> Reply`. All its memory is in its journal, so a process may build a
client, answer one task, and end. Arrays that are kept in a file between two messages are written one after
the other in NumPy's ``.npy`` format: an ``.npz`` archive takes several times as long, which is more than the
rest of an answer.
"""

import hashlib
import io
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.errors import InvalidArgument, TacitError

_LOG = logging.getLogger(__name__)
_NUMBER_TYPES = ("<f8", "<i8")
# A message: numbers, text, bytes and lists of them, by name.
Fields = dict[str, Any]
# Real numbers, or whole numbers that can be masked.
Numbers = NDArray[np.float64] | NDArray[np.int64]
# Arrays of a stored state, by name.
Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Task:
    """A request to one site: update the posterior with its rows.

    Args:
        run: The name of the run.
        round: The number of the round.
        posterior: Natural parameters of the present posterior.
        applied_round: The round of the site's last answer that is in the posterior; 0 if there is none.
        applied_share: The share of each number of that answer that was applied. The site applies the same to
            its factor, so that the two agree.
        mark: Identifies a server that adds noise of its own. Another server, or one that was
            restarted without its state, would release the same answers with new noise, so its
            tasks must differ.
    """

    run: str
    round: int
    posterior: NDArray[np.float64]
    applied_round: int = 0
    applied_share: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    mark: bytes = b""

    def digest(self, site: str) -> bytes:
        """A digest that identifies this task."""
        text = f"{site}|{self.run}|{self.round}|{self.applied_round}|{len(self.applied_share)}|".encode()
        numbers = self.applied_share.tobytes() + self.posterior.tobytes()
        return hashlib.sha256(text + numbers + self.mark).digest()


@dataclass(frozen=True, kw_only=True, eq=False)
class Reply:
    """The answer of a site: its change of the posterior, before damping.

    Args:
        site: The name of the site.
        run: The name of the run.
        round: The number of the round.
        change: The change of natural parameters; or with ``grid``, whole numbers that are
            multiplied by it. Whole numbers can be masked and summed without rounding errors.
        grid: The factor of whole numbers, or None.
        members: Names of the sites whose masks cancel in the sum, as the transport asked them; empty
            without masks.
    """

    site: str
    run: str
    round: int
    change: Numbers = field(repr=False)
    grid: float | None = None
    members: tuple[str, ...] = ()

    @property
    def values(self) -> NDArray[np.float64]:
        """The change in natural parameters."""
        if self.grid is None:
            return np.asarray(self.change, np.float64)
        return self.change.astype(np.float64) * self.grid


@dataclass(frozen=True)
class Session:
    """One set of masks: an attempt at a round of a run."""

    run: str
    round: int
    attempt: int = 1

    def text(self) -> bytes:
        """The bytes that are signed, and that identify a secret. Lengths separate the fields."""
        numbers = str(self.round).encode(), str(self.attempt).encode()
        return length_prefixed(b"session", self.run.encode(), *numbers)


@dataclass(frozen=True)
class Offer:
    """A site's public key for one session, signed."""

    site: str
    key: bytes
    signature: bytes = field(repr=False)


class AnsweringSite(Protocol):
    """A site that answers tasks."""

    @property
    def name(self) -> str:
        """The site's name."""
        ...

    def answer(self, task: Task) -> Reply:
        """The reply to one task."""
        ...


class Transport(Protocol):
    """Carries tasks to sites and replies back; the module's docstring has its guarantees."""

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites."""
        ...

    @property
    def refused(self) -> Mapping[str, str]:
        """Errors of sites when they were last asked, by name."""
        ...

    @property
    def sent(self) -> bool:
        """Whether any of the last tasks has left. If not, no site's answer is bound to its round."""
        ...

    def exchange(self, tasks: Mapping[str, Task]) -> dict[str, Reply]:
        """Sends each named site its task and returns the replies by name."""
        ...


class InProcess:
    """Sites in this process, asked one after the other."""

    refused: ClassVar[Mapping[str, str]] = {}
    sent: ClassVar[bool] = True

    def __init__(self, clients: Sequence[AnsweringSite]) -> None:
        self._clients = {client.name: client for client in clients}
        if len(self._clients) != len(clients) or not clients:
            raise InvalidArgument("Pass one or more clients with different names.")

    @property
    def sites(self) -> tuple[str, ...]:
        """The clients' names, in the order given."""
        return tuple(self._clients)

    def exchange(self, tasks: Mapping[str, Task]) -> dict[str, Reply]:
        """The replies to all tasks."""
        return {name: self._clients[name].answer(task) for name, task in tasks.items()}


def matching_replies(
    run: str, tasks: Mapping[str, Task], replies: Mapping[str, Reply]
) -> dict[str, Reply]:
    """The replies that answer these tasks of a run; replies to other tasks are dropped."""
    return {
        name: reply
        for name, reply in replies.items()
        if name in tasks and (reply.run, reply.round) == (run, tasks[name].round)
    }


def pack_arrays(*arrays: ArrayLike) -> bytes:
    """Arrays as bytes."""
    file = io.BytesIO()
    for values in arrays:
        np.save(file, np.asarray(values), allow_pickle=False)
    return file.getvalue()


def unpack_arrays(data: bytes | None, **expected: tuple[str, int]) -> Arrays:
    """The arrays that `pack_arrays` wrote, by name.

    Args:
        data: The bytes.
        **expected: In the order of the arrays, for each name the kinds of numbers that are allowed,
            as in ``dtype.kind``, and the number of dimensions.

    Returns:
        The arrays by name.

    Raises:
        TacitError: If the bytes do not hold such arrays.
    """
    file = io.BytesIO(data or b"")
    try:
        arrays = {name: np.load(file, allow_pickle=False) for name in expected}
    except (ValueError, EOFError, OSError) as error:
        raise _damaged_state() from error
    for name, (kinds, dimensions) in expected.items():
        if arrays[name].dtype.kind not in kinds or arrays[name].ndim != dimensions:
            raise _damaged_state()
    if file.read(1):
        raise _damaged_state()
    return arrays


def _damaged_state() -> TacitError:
    return TacitError(
        "A stored state is damaged, or was written by another version of Tacit. Restore the file, or "
        "start a new run."
    )


def length_prefixed(*parts: bytes) -> bytes:
    """Byte strings as one, each after its length, so that no two lists of them are the same."""
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


def task_fields(
    task: Task, attempt: int = 1, offers: Sequence[Offer] = (), *, agreed: str
) -> Fields:
    """A task as the fields of a message. ``agreed`` is what the server thinks is agreed on."""
    return {
        "kind": "task",
        "agreed": agreed,
        "run": task.run,
        "round": task.round,
        "applied_round": task.applied_round,
        "applied_share": task.applied_share.astype("<f8").tobytes(),
        "posterior": task.posterior.astype("<f8").tobytes(),
        "mark": task.mark,
        "attempt": attempt,
        "sites": [offer.site for offer in offers],
        "keys": [offer.key for offer in offers],
        "signatures": [offer.signature for offer in offers],
    }


def task_from_fields(fields: Fields) -> tuple[Task, int, list[Offer]]:
    """The task of a message, the attempt, and the keys of its masks."""
    if not isinstance(fields["mark"], bytes):  # of a number Python would make so many bytes
        raise TypeError("the mark is bytes")
    task = Task(
        run=str(fields["run"]),
        round=int(fields["round"]),
        posterior=np.frombuffer(fields["posterior"], "<f8").astype(np.float64),
        applied_round=int(fields["applied_round"]),
        applied_share=np.frombuffer(fields["applied_share"], "<f8").astype(np.float64),
        mark=fields["mark"],
    )
    parts = zip(fields["sites"], fields["keys"], fields["signatures"], strict=True)
    return task, int(fields["attempt"]), [Offer(*part) for part in parts]


def reply_fields(reply: Reply) -> Fields:
    """A reply as the fields of a message."""
    kind = "<i8" if reply.change.dtype.kind == "i" else "<f8"
    grid = {} if reply.grid is None else {"grid": float(reply.grid)}
    return {
        "run": reply.run,
        "round": reply.round,
        "type": kind,
        "change": reply.change.astype(kind).tobytes(),
        **grid,
    }


def reply_from_fields(site: str, fields: Fields) -> Reply:
    """The reply of a site."""
    kind = str(fields["type"])
    if kind not in _NUMBER_TYPES:
        raise InvalidArgument(f"{site} answered with numbers of an unknown type.")
    grid = fields.get("grid")
    return Reply(
        site=site,
        run=str(fields["run"]),
        round=int(fields["round"]),
        change=np.frombuffer(fields["change"], kind).copy(),
        grid=None if grid is None else float(grid),
    )


def valid_reply(site: str, fields: Fields) -> Reply | None:
    """The reply of a site, or None if it is invalid."""
    try:
        return reply_from_fields(site, fields)
    except (TacitError, KeyError, TypeError, ValueError):
        _LOG.warning("%s sent an invalid reply.", site)
        return None


def valid_offer(site: str, fields: Fields) -> Offer | None:
    """The key of a site, or None if it is invalid."""
    key, signature = fields.get("key"), fields.get("signature")
    if isinstance(key, bytes) and isinstance(signature, bytes):
        return Offer(site, key, signature)
    _LOG.warning("%s sent an invalid key.", site)
    return None

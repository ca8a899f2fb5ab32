"""The one interface between a server and its sites, and messages as plain values.

Whoever carries messages (threads, sockets, Flower) implements `Transport`, and nothing else of
the engine needs to know. What an implementation must keep:

- `exchange` hands each named site its `Task` and returns the `Reply` of every site that answered
  in time. A site that did not is simply missing: the server counts it as not having answered,
  and an answer that comes later is dropped. Its own `Client` finds out with its next task.
- A task may be delivered twice; a client answers twice with the same reply.
- A site that answers with an error has not answered: one site does not end the run of all. What it
  said (a kind and a sentence, see `tacit.federated.told`) is in `refused` until it answers. Sites
  in this very process raise it instead, as whoever is at fault is here.

The site's end is `Client.answer(task) -> Reply`. All that it must remember is in its journal, so a
process may build a client, answer one task, and end.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from tacit.errors import InvalidArgument


@dataclass(frozen=True, kw_only=True, eq=False)
class Task:
    """What the server asks one site: to improve the posterior by what its rows say.

    ``folded`` is the round of this site's last answer that went into the posterior, and ``share``
    how much of each of its numbers did; round 0 is none. The site applies the same to its factor, so that the two
    never disagree. ``mark`` names a server that adds noise of its own: another one, or one that
    began again, would release the same answers under other noise, so its tasks are others.
    """

    run: str
    round: int
    posterior: NDArray[np.float64]
    folded: int = 0
    share: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    mark: bytes = b""

    def digest(self, site: str) -> bytes:
        """What tells this task from every other."""
        text = f"{site}|{self.run}|{self.round}|{self.folded}|{len(self.share)}|".encode()
        numbers = self.share.tobytes() + self.posterior.tobytes()
        return hashlib.sha256(text + numbers + self.mark).digest()


@dataclass(frozen=True, kw_only=True, eq=False)
class Reply:
    """What a site answers: its change, before damping.

    ``change`` is in natural parameters; or, with ``grid``, whole numbers to be multiplied by it:
    those can be masked and added up modulo a power of two without a rounding error.
    """

    site: str
    run: str
    round: int
    change: NDArray[Any] = field(repr=False)
    grid: float | None = None

    @property
    def values(self) -> NDArray[np.float64]:
        """The change in natural parameters."""
        if self.grid is None:
            return np.asarray(self.change, np.float64)
        return self.change.astype(np.float64) * self.grid


class Answers(Protocol):
    """The site's end of a conversation."""

    @property
    def name(self) -> str:
        """The site's name."""
        ...

    def answer(self, task: Task) -> Reply:
        """The reply to one task."""
        ...


class Transport(Protocol):
    """Carries tasks to sites and replies back; see this module's text for what it must keep."""

    @property
    def sites(self) -> tuple[str, ...]:
        """The sites that can be named."""
        ...

    @property
    def refused(self) -> Mapping[str, str]:
        """What sites said in place of an answer when they were last asked."""
        ...

    def exchange(self, tasks: Mapping[str, Task]) -> dict[str, Reply]:
        """Hands each named site its task; the replies of those that answered, by name."""
        ...


class InProcess:
    """Sites in this very process, asked one after the other: for study and tests."""

    refused: ClassVar[Mapping[str, str]] = {}

    def __init__(self, clients: Sequence[Answers]) -> None:
        self._clients = {client.name: client for client in clients}
        if len(self._clients) != len(clients) or not clients:
            raise InvalidArgument("Pass one or more clients with names of their own.")

    @property
    def sites(self) -> tuple[str, ...]:
        """The clients' names, in the order given."""
        return tuple(self._clients)

    def exchange(self, tasks: Mapping[str, Task]) -> dict[str, Reply]:
        """The replies to all tasks."""
        return {name: self._clients[name].answer(task) for name, task in tasks.items()}

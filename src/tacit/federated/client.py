"""The site's end: applies the outcome of its last answer, and answers the next task.

A client is built from its own settings, its rows and its journal, and believes nothing of the
server but the posterior and what was folded in. How many sites there are, how many answers it
gives, how noisy they are and what they cost is pinned in its own settings.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from tacit.accounting.journal import Answer, Journal, MemoryJournal, Terms, fresh_key
from tacit.errors import InvalidArgument, Refused, TacitError
from tacit.federated.arrays import read, written
from tacit.federated.natural import Family, Vector
from tacit.federated.transport import Reply, Task
from tacit.privacy.noise import Randomness
from tacit.privacy.rows import Rows


class Work(Protocol):
    """How a site turns rows into a change, with noise calibrated for all of its answers."""

    @property
    def size(self) -> int:
        """How many numbers a change has."""
        ...

    @property
    def grid(self) -> float | None:
        """What whole numbers of a change are multiplied by, if it is whole numbers."""
        ...

    def change(self, rows: Rows, posterior: Vector, factor: Vector, source: Randomness) -> Any:
        """The change that leaves the site. ``factor`` is the site's own."""
        ...


@dataclass(frozen=True, eq=False)
class _State:
    """What a client knows: its factor, and the round of the last answer that is in it."""

    factor: Vector
    folded: int


class Client:
    """One site: a name, rows, work, and a journal that remembers for it.

    ``rows`` may be a function that reads them: it is called when a task is to be computed, and for
    a task that is refused or repeated not at all. ``key`` draws the secret key of the noise of a
    round's answer; ``seeded`` says that it follows from a seed. With ``family`` a posterior that is
    no distribution is refused before it costs an answer. ``hidden``: only a sum of answers is public, so
    none goes into a factor of this site's own.
    """

    def __init__(
        self,
        name: str,
        rows: Rows | Callable[[], Rows],
        work: Work,
        terms: Terms,
        journal: Journal | None = None,
        key: Callable[[int], bytes] | None = None,
        *,
        seeded: bool = False,
        family: Family | None = None,
        hidden: bool = False,
    ) -> None:
        self.name, self.work, self.terms = name, work, terms
        self._given, self._seeded, self._family = rows, seeded, family
        self._hidden = hidden
        self._key = key or (lambda _: fresh_key())
        self._journal = MemoryJournal() if journal is None else journal

    def answer(self, task: Task) -> Reply:
        """The reply to a task: computed once, and repeated as often as the task is. [client-answer]"""
        self._refuse_strange(task)
        digest = task.digest(self.name)
        asked = self._journal.asked(self.terms, digest)
        if asked is None:
            state = self._settled(task)
            self._refuse_improper(task.posterior, state.factor)
            _ = self._rows  # a fault of the table is found before anything is charged
            new = Answer(task.round, digest, self._key(task.round), _packed(state))
            asked = self._journal.admit(self.terms, new)
        if asked.reply is None:
            asked = self._computed(task, asked)
        return Reply(
            site=self.name,
            run=task.run,
            round=task.round,
            change=read(asked.reply)["change"],
            grid=self.work.grid,
        )

    @property
    def factor(self) -> Vector:
        """The factor as of the last task; what became of the last answer is not known yet."""
        last = self._journal.latest(self.terms.run)
        return np.zeros(self.work.size) if last is None else _state(last).factor

    @cached_property
    def _rows(self) -> Rows:
        return self._given if isinstance(self._given, Rows) else self._given()

    def _computed(self, task: Task, asked: Answer) -> Answer:
        if asked.key is None:
            raise InvalidArgument(
                "The journal has lost the key of an answer that it does not hold."
            )
        source = Randomness.from_key(asked.key, seeded=self._seeded)
        state = _state(asked)
        change = self.work.change(self._rows, task.posterior, state.factor, source)
        reply = self._journal.finish(task.run, asked.digest, written(change=change))
        return Answer(asked.round, asked.digest, asked.key, asked.state, reply)

    def _settled(self, task: Task) -> _State:
        """The factor, after what the server says became of the last answer."""
        last = self._journal.latest(task.run)
        if last is None:
            state = _State(np.zeros(self.work.size), 0)
            if task.folded == 0:
                return state
            raise self._out_of_step(task)
        if task.round <= last.round:
            raise Refused(
                f"Round {task.round} is not new to {self.name}, and asks for something else than "
                "before; a new question needs a new round, and a server that began again with noise "
                "of its own needs a new run."
            )
        state = _state(last)
        if task.folded == state.folded:
            return state  # the last answer was not used, and is forgotten
        sized = task.share.shape == state.factor.shape and bool(np.isfinite(task.share).all())
        if task.folded == last.round and last.reply is not None and sized:
            reply = read(last.reply)["change"]
            values = reply if self.work.grid is None else reply.astype(np.float64) * self.work.grid
            return _State(state.factor + task.share * values, last.round)
        raise self._out_of_step(task)

    def _out_of_step(self, task: Task) -> TacitError:
        return Refused(
            f"The server says that round {task.folded} of {self.name} is in the posterior, which "
            "this site's journal does not know. Restore the journal, or start a new run."
        )

    def _refuse_strange(self, task: Task) -> None:
        if task.run != self.terms.run:
            raise Refused(
                f"{self.name} takes part in the run {self.terms.run!r}; this task is of {task.run!r}."
            )
        posterior = task.posterior
        if posterior.shape != (self.work.size,) or not np.isfinite(posterior).all():
            raise Refused(f"A posterior of this run is {self.work.size} finite numbers.")
        if self._hidden and task.share.any():
            # Whether a posterior is proper without it would tell, question by question, what it was.
            raise Refused(f"{self.name} keeps no answer of this run in a factor of its own.")

    def _refuse_improper(self, posterior: Vector, factor: Vector) -> None:
        family = self._family
        if family is not None and not (
            family.proper(posterior) and family.proper(posterior - factor)
        ):
            raise Refused(
                f"{self.name} was sent a posterior that is no distribution, or is none without this "
                "site's factor; nothing was charged."
            )


def _packed(state: _State) -> bytes:
    return written(factor=state.factor, folded=np.int64(state.folded))


def _state(answer: Answer) -> _State:
    held = read(answer.state)
    return _State(held["factor"], int(held["folded"]))

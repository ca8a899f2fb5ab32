"""The site's end: applies the outcome of its last answer, and answers the next task.

A client is built from its own settings, its rows and its journal. From the server it takes only the posterior
and the outcome of its last answer. The number of sites, the number of answers, their noise and their cost are
fixed in the site's own settings.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from tacit._precision import in_32_bits
from tacit.errors import InvalidArgument, Refused, TacitError
from tacit.federated.journal import Answer, Journal, MemoryJournal, RunTerms, random_key
from tacit.federated.protocol import Numbers, Reply, Task, pack_arrays, unpack_arrays
from tacit.models.exponential_families import Vector
from tacit.privacy.noise import Randomness
from tacit.privacy.rows import Rows

# Natural parameters beyond this are of no posterior, and their squares overflow single precision.
_MAX_PARAMETER = 1e18


class TaskSpace(Protocol):
    """What tasks of a run may hold: a family of distributions, or another kind of vector."""

    @property
    def size(self) -> int:
        """Length of the vector of a task."""
        ...

    def is_proper(self, vector: Vector, /) -> bool:
        """Whether a task may hold a vector."""
        ...


class ClientUpdate(Protocol):
    """How a site turns rows into a change, with noise calibrated for all of its answers."""

    @property
    def size(self) -> int:
        """Length of a change."""
        ...

    @property
    def grid(self) -> float | None:
        """The factor of a change that is whole numbers, or None."""
        ...

    def change(self, rows: Rows, posterior: Vector, factor: Vector, source: Randomness) -> Numbers:
        """The change that leaves the site. ``factor`` is the site's own factor."""
        ...


@dataclass(frozen=True, eq=False)
class _ClientState:
    """The factor of a client, and the round of the last answer that is in it."""

    factor: Vector
    applied_round: int

    def pack(self) -> bytes:
        """The state as bytes."""
        return pack_arrays(self.factor, np.int64(self.applied_round))

    @classmethod
    def unpack(cls, answer: Answer) -> "_ClientState":
        """The state of the client when it gave an answer."""
        fields = unpack_arrays(answer.state, factor=("f", 1), applied_round=("i", 0))
        return cls(fields["factor"], int(fields["applied_round"]))


class Client:
    """One site.

    Args:
        name: The name of the site.
        rows: The rows, or a function that reads them. It is called when a task is computed, and not for
            tasks that are refused or repeated.
        work: Turns rows into changes.
        terms: What the run costs.
        journal: The memory of the site; by default in this process.
        key: Returns the secret key of the noise of a round's answer; by default a new one.
        seeded: Whether keys depend on a seed.
        family: What tasks may hold: the family of the posterior. With it, an improper posterior is
            refused before it uses up an answer.
        in_factor: Whether answers go into a factor of this site. Not so where only the sum of answers
            is public.
    """

    def __init__(
        self,
        name: str,
        rows: Rows | Callable[[], Rows],
        work: ClientUpdate,
        terms: RunTerms,
        journal: Journal | None = None,
        key: Callable[[int], bytes] | None = None,
        *,
        seeded: bool = False,
        family: TaskSpace | None = None,
        in_factor: bool = True,
    ) -> None:
        self.name, self.work, self.terms = name, work, terms
        self._rows_source, self._seeded, self._family = rows, seeded, family
        self._in_factor = in_factor
        self._key = key or (lambda _: random_key())
        self._journal = MemoryJournal() if journal is None else journal

    @in_32_bits
    def answer(self, task: Task) -> Reply:
        """The reply to a task, computed once and repeated if the task is repeated. [client-answer]"""
        self._check_task(task)
        digest = task.digest(self.name)
        answer = self._journal.find(self.terms, digest)
        if answer is None:
            state = self._updated_state(task)
            self._check_proper(task.posterior, state.factor)
            _ = self._rows  # errors in the table are found before anything is charged
            new = Answer(task.round, digest, self._key(task.round), state.pack())
            answer = self._journal.admit(self.terms, new)
        if answer.reply is None:
            answer = self._compute(task, answer)
        return Reply(
            site=self.name,
            run=task.run,
            round=task.round,
            change=_stored_change(answer),
            grid=self.work.grid,
        )

    def check_charge(self) -> None:
        """Raises if the ledger would refuse the run. Charges nothing."""
        self._journal.check(self.terms)

    @property
    def factor(self) -> Vector:
        """The factor as of the last task. It does not contain the last answer yet."""
        last = self._journal.latest(self.terms.run)
        return np.zeros(self.work.size) if last is None else _ClientState.unpack(last).factor

    @cached_property
    def _rows(self) -> Rows:
        return self._rows_source if isinstance(self._rows_source, Rows) else self._rows_source()

    def _compute(self, task: Task, answer: Answer) -> Answer:
        """Computes an answer that was charged, and stores it."""
        if answer.key is None:
            raise InvalidArgument("The journal has neither an answer nor the key of its noise.")
        source = Randomness.from_key(answer.key, seeded=self._seeded)
        state = _ClientState.unpack(answer)
        change = self.work.change(self._rows, task.posterior, state.factor, source)
        reply = self._journal.finish(task.run, answer.digest, pack_arrays(change))
        return Answer(answer.round, answer.digest, answer.key, answer.state, reply)

    def _updated_state(self, task: Task) -> _ClientState:
        """The factor, updated by what the server says about the last answer."""
        last = self._journal.latest(task.run)
        if last is None:
            state = _ClientState(np.zeros(self.work.size), 0)
            if task.applied_round == 0:
                return state
            raise self._out_of_step(task)
        if task.round <= last.round:
            raise Refused(
                f"{self.name} has already been asked round {task.round}, with a different task. A new "
                "task needs a new round, and a restarted server that adds noise needs a new run."
            )
        state = _ClientState.unpack(last)
        if task.applied_round == state.applied_round or not self._in_factor:
            return state  # the last answer was not used, or goes into no factor
        sized = task.applied_share.shape == state.factor.shape and bool(
            np.isfinite(task.applied_share).all()
        )
        if task.applied_round == last.round and last.reply is not None and sized:
            reply, grid = _stored_change(last), self.work.grid
            values = reply if grid is None else reply.astype(np.float64) * grid
            return _ClientState(state.factor + task.applied_share * values, last.round)
        raise self._out_of_step(task)

    def _out_of_step(self, task: Task) -> TacitError:
        return Refused(
            f"The server has used an answer of {self.name} in round {task.applied_round}, which is not in this "
            "site's journal. Restore the journal, or start a new run."
        )

    def _check_task(self, task: Task) -> None:
        if task.run != self.terms.run:
            raise Refused(
                f"{self.name} takes part in the run {self.terms.run!r}; this task is of {task.run!r}."
            )
        size = self.work.size if self._family is None else self._family.size
        if task.posterior.shape != (size,) or not np.all(np.abs(task.posterior) < _MAX_PARAMETER):
            raise Refused(
                f"The posterior must be {size} finite numbers, each below {_MAX_PARAMETER:g}."
            )
        if not self._in_factor and task.applied_share.any():
            # Otherwise the server could find out the answer, by asking whether posteriors are proper
            # without it.
            raise Refused(f"{self.name} does not keep answers of this run in its own factor.")

    def _check_proper(self, posterior: Vector, factor: Vector) -> None:
        family = self._family
        # An answer that goes into no factor leaves nothing to take off.
        if family is not None and not (
            family.is_proper(posterior)
            and (not self._in_factor or family.is_proper(posterior - factor))
        ):
            raise Refused(
                f"{self.name} was sent an improper posterior, or one that is improper without the "
                "factor of this site; nothing was charged."
            )


def _stored_change(answer: Answer) -> Numbers:
    """The change that a stored answer has."""
    return unpack_arrays(answer.reply, change=("fi", 1))["change"]

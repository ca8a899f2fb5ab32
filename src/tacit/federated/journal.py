"""The journal of a federated site: its tasks and answers, in the file of its ledger.

A site that takes part in a run pays for a number of answers in advance. The first question charges the run in full, and
every new question uses up one of the answers. The charge, the question and the secret key of the answer's noise are
written in one transaction, before anything is computed. A question that was asked before gets the same answer again,
from the same key. So at any time, also after a crash, the ledger covers everything that has left the site.
"""

import os
from dataclasses import dataclass, replace
from typing import Protocol

import sqlalchemy as sa

from tacit.accounting import ledger_chain
from tacit.accounting.budget import Budget
from tacit.accounting.events import DpEvent
from tacit.accounting.ledger import Ledger, PendingCharge
from tacit.accounting.ledger_store import DatabaseAddress
from tacit.errors import BudgetError, InvalidArgument, Refused

_JOURNAL_METADATA = sa.MetaData()
_RUNS = sa.Table(
    "runs",
    _JOURNAL_METADATA,
    sa.Column("run", sa.String, primary_key=True),
    sa.Column("answers", sa.Integer, sa.CheckConstraint("answers > 0"), nullable=False),
    sa.Column("terms", sa.String, nullable=False),
)
_ANSWERS = sa.Table(
    "answers",
    _JOURNAL_METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("run", sa.String, nullable=False),
    sa.Column("round", sa.Integer, nullable=False),
    sa.Column("digest", sa.LargeBinary, nullable=False),
    sa.Column("key", sa.LargeBinary),
    sa.Column("state", sa.LargeBinary, nullable=False),
    sa.Column("reply", sa.LargeBinary),
    sa.UniqueConstraint("run", "digest"),
)
# The columns of an answer that never change; key and reply do.
_IMMUTABLE_COLUMNS = (
    _ANSWERS.c.id,
    _ANSWERS.c.run,
    _ANSWERS.c.round,
    _ANSWERS.c.digest,
    _ANSWERS.c.state,
)


@dataclass(frozen=True, kw_only=True)
class RunTerms:
    """What a run may do at a site: a number of answers, which together are ``event``.

    ``about`` is a digest of what is fitted and how, so that another study under the same name is another
    run. A run without privacy has neither event nor budget, and cannot be charged to a ledger.
    """

    run: str
    answers: int
    event: DpEvent | None
    budget: Budget | None
    label: str = "federated"
    about: str = ""

    def __str__(self) -> str:
        return f"{self.event!r} within {self.budget}; {self.about}"


@dataclass(frozen=True)
class Answer:
    """One question and its answer. ``state`` is the state of the site when it was asked."""

    round: int
    digest: bytes
    key: bytes | None
    state: bytes
    reply: bytes | None = None


class Journal(Protocol):
    """Where a site records its questions and answers."""

    def latest(self, run: str) -> Answer | None:
        """The last question of a run that was new."""
        ...

    def check(self, terms: RunTerms) -> None:
        """Raises if a run could not be charged, or was charged under other terms."""
        ...

    def find(self, terms: RunTerms, digest: bytes) -> Answer | None:
        """The question with this digest, if it was asked before; refused under other terms."""
        ...

    def admit(self, terms: RunTerms, answer: Answer) -> Answer:
        """Records a new question and charges for it, or refuses it.

        Returns the record in the journal: another process may have been first.
        """
        ...

    def finish(self, run: str, digest: bytes, reply: bytes) -> bytes:
        """Records the answer before it leaves. The first answer is kept, and returned."""
        ...


class MemoryJournal:
    """A journal in memory, which ends with the process: for runs without a ledger."""

    def __init__(self) -> None:
        self._answers: dict[str, dict[bytes, Answer]] = {}
        self._terms: dict[str, RunTerms] = {}

    def latest(self, run: str) -> Answer | None:
        """The last question of a run that was new."""
        answers = self._answers.get(run)
        return next(reversed(answers.values())) if answers else None

    def check(self, terms: RunTerms) -> None:
        """Nothing is charged here."""

    def find(self, terms: RunTerms, digest: bytes) -> Answer | None:
        """The question with this digest, if it was asked before; refused under other terms."""
        first = self._terms.setdefault(terms.run, terms)
        _check_same_terms(terms, first.answers, str(first))
        return self._answers.get(terms.run, {}).get(digest)

    def admit(self, terms: RunTerms, answer: Answer) -> Answer:
        """Records a new question, or refuses it."""
        answers = self._answers.setdefault(terms.run, {})
        if answer.digest in answers:
            return answers[answer.digest]
        _check_answers_left(terms, len(answers))
        _check_new_round(answer, max((each.round for each in answers.values()), default=None))
        answers[answer.digest] = answer
        return answer

    def finish(self, run: str, digest: bytes, reply: bytes) -> bytes:
        """Records the answer, unless there is one already."""
        answers = self._answers[run]
        first = answers[digest].reply or reply
        answers[digest] = replace(answers[digest], reply=first)
        return first


class LedgerJournal:
    """A journal in the file of a ledger, in the same transactions."""

    def __init__(self, ledger: Ledger) -> None:
        if isinstance(ledger.path, DatabaseAddress):
            raise InvalidArgument(
                "A federated site keeps its ledger in a file, which holds keys of noise that nobody else "
                f"may read; {ledger.path} is a database for several people."
            )
        self.ledger = ledger
        with ledger.transaction() as connection:
            _JOURNAL_METADATA.create_all(connection)
            check_answers(connection, str(ledger.path))

    def latest(self, run: str) -> Answer | None:
        """The last question of a run that was new."""
        found = sa.select(_ANSWERS).where(_ANSWERS.c.run == run).order_by(_ANSWERS.c.id.desc())
        with self.ledger.transaction() as connection:
            return _answer_from_row(connection.execute(found.limit(1)).mappings().first())

    def check(self, terms: RunTerms) -> None:
        """Raises if a run could not be charged, or was charged under other terms. Charges nothing."""
        charge = self._charge(terms)
        with self.ledger.transaction() as connection:
            run = connection.execute(_select_run(terms)).first()
            if run is None:
                self.ledger.check_charge(connection, charge)
            else:
                _check_same_terms(terms, run.answers, run.terms)

    def _charge(self, terms: RunTerms) -> PendingCharge:
        """The charge of a run."""
        if terms.event is None or terms.budget is None:
            raise BudgetError(
                "A run without privacy cannot be charged to a ledger; leave the ledger out."
            )
        return self.ledger.prepare_charge(terms.event, terms.budget, terms.label)

    def find(self, terms: RunTerms, digest: bytes) -> Answer | None:
        """The question with this digest, if it was asked before; refused under other terms."""
        with self.ledger.transaction() as connection:
            run = connection.execute(_select_run(terms)).first()
            if run is not None:
                _check_same_terms(terms, run.answers, run.terms)
            found = connection.execute(sa.select(_ANSWERS).where(_matches(terms.run, digest)))
            return _answer_from_row(found.mappings().first())

    def admit(self, terms: RunTerms, answer: Answer) -> Answer:
        """Records a new question and charges for it, in one transaction, or refuses it.

        That a round has one question only is checked again here: two processes may have read the same
        journal before.
        """
        charge = self._charge(terms)
        with self.ledger.transaction() as connection:
            run = connection.execute(_select_run(terms)).first()
            if run is None:
                self.ledger.check_unchanged(connection)
                self.ledger.append_charge(connection, charge)
                values = {"run": terms.run, "answers": terms.answers, "terms": str(terms)}
                connection.execute(sa.insert(_RUNS).values(**values))
            else:
                _check_same_terms(terms, run.answers, run.terms)
            known = sa.select(_ANSWERS).where(_matches(terms.run, answer.digest))
            if (
                first := _answer_from_row(connection.execute(known).mappings().first())
            ) is not None:
                return first
            mine = _ANSWERS.c.run == terms.run
            held = sa.select(sa.func.count(), sa.func.max(_ANSWERS.c.round)).where(mine)
            count, newest = connection.execute(held).one()
            _check_answers_left(terms, count)
            _check_new_round(answer, newest)
            connection.execute(sa.insert(_ANSWERS).values(run=terms.run, **vars(answer)))
            link_answer(connection, answer.digest, terms.run)
        return answer

    def finish(self, run: str, digest: bytes, reply: bytes) -> bytes:
        """Records the answer before it leaves. The first answer is kept, and returned.

        Two processes may have computed an answer from the same key. If rows, or a machine's rounding,
        changed in between, two answers with the same noise would reveal their difference. The key is then
        no longer needed, and is overwritten in the file. That the answer exists is a line of the ledger's chain, so that
        a copy of the ledger from before it, which still has the key, is refused by the mark.
        """
        mine = _matches(run, digest)
        with self.ledger.transaction() as connection:
            empty = sa.update(_ANSWERS).where(mine, _ANSWERS.c.reply.is_(None))
            if connection.execute(empty.values(reply=reply, key=None)).rowcount:
                ledger_chain.append_link(connection, "reply", (run, digest))
            return bytes(connection.execute(sa.select(_ANSWERS.c.reply).where(mine)).scalar_one())


@dataclass(frozen=True)
class RunProgress:
    """A run in a journal: the answers that it paid for, those that were given, and the last round of them."""

    run: str
    paid: int
    given: int
    round: int


def read_run_progress(ledger: Ledger) -> list[RunProgress]:
    """The runs in the journal of a site, in the order of their first answers."""
    held = (
        sa.select(
            _RUNS.c.run,
            _RUNS.c.answers,
            sa.func.count(_ANSWERS.c.reply),
            sa.func.max(_ANSWERS.c.round),
        )
        .join(_ANSWERS, _ANSWERS.c.run == _RUNS.c.run)
        .group_by(_RUNS.c.run, _RUNS.c.answers)
        .order_by(sa.func.min(_ANSWERS.c.id))
    )
    with ledger.transaction() as connection:
        if not sa.inspect(connection).has_table(_ANSWERS.name):
            return []  # nobody has asked yet
        return [RunProgress(*line) for line in connection.execute(held)]


def link_answer(connection: sa.Connection, digest: bytes, run: str) -> None:
    """Adds a question to the chain of the ledger."""
    found = connection.execute(sa.select(*_IMMUTABLE_COLUMNS).where(_matches(run, digest)))
    ledger_chain.append_link(connection, "answer", found.one())


def check_answers(connection: sa.Connection, location: str) -> None:
    """Raises if a question was changed after it was recorded."""
    lines = connection.execute(sa.select(*_IMMUTABLE_COLUMNS).order_by(_ANSWERS.c.id)).all()
    ledger_chain.check_lines(connection, location, "answer", lines)


def random_key() -> bytes:
    """A random key from the operating system."""
    return os.urandom(32)


def _select_run(terms: RunTerms) -> sa.Select[tuple[str, int, str]]:
    return sa.select(_RUNS).where(_RUNS.c.run == terms.run)


def _check_same_terms(terms: RunTerms, answers: int, said: str) -> None:
    if (answers, said) != (terms.answers, str(terms)):
        raise Refused(
            f"The run {terms.run!r} began under other terms (another study, method or budget), which "
            "were charged; give a new run another name."
        )


def _matches(run: str, digest: bytes) -> sa.ColumnElement[bool]:
    return sa.and_(_ANSWERS.c.run == run, _ANSWERS.c.digest == digest)


def _answer_from_row(row: sa.RowMapping | None) -> Answer | None:
    if row is None:
        return None
    return Answer(row["round"], row["digest"], row["key"], row["state"], row["reply"])


def _check_answers_left(terms: RunTerms, count: int) -> None:
    if count >= terms.answers:
        raise BudgetError(
            f"This run has used up the {terms.answers} answers that it paid for; another question "
            "needs a new run, with its own charge."
        )


def _check_new_round(answer: Answer, newest: int | None) -> None:
    if newest is not None and answer.round <= newest:
        raise Refused(
            f"Round {answer.round} was answered before, to another question; a new question needs a "
            "new round."
        )

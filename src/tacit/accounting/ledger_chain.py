"""The tables of a ledger, to which lines are only appended; a chain of hashes over them; and a mark file.

Every line of a ledger (its terms, a charge, a question that a site answers) has a link: a hash of the previous link and
of the line's own fields. If a line is changed or removed, its link no longer matches. A ledger whose last lines are
missing, such as an older copy, still has a valid chain. So a mark file beside the ledger records the number of links and
the hash of the last one. The mark is written before the transaction ends and moved into place afterwards: after a crash
it may be behind the ledger, but it is never ahead. This detects mistakes; it does not stop somebody who rewrites both
files on purpose.

A ledger on a server has no file beside it. Everybody who uses it keeps a mark of their own instead
(`tacit.accounting.ledger_store.UserMarkFile`).
"""

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import sqlalchemy as sa

from tacit._files import lock_folder, sync_folder
from tacit.accounting.budget import Budget, PastCosts, PrivacyFilter
from tacit.errors import LedgerError

# The values of a line by the names of their columns, and the same line as its digest is made of it.
Line: TypeAlias = Mapping[str, str | float]
StoredLine: TypeAlias = str | Sequence[object]


def _range_checks(column: str, upper: str) -> list[sa.CheckConstraint]:
    """Limits of a number, for each kind of database.

    SQLite compares any text as larger than any number; PostgreSQL takes "not a number" for the largest.
    """
    size = f"{column} >= 0 AND {column} {upper}"
    sqlite = f"typeof({column}) = 'real' AND {size.replace('inf', '9e999')}"
    return [
        sa.CheckConstraint(sqlite).ddl_if("sqlite"),
        sa.CheckConstraint(size.replace("inf", "'Infinity'")).ddl_if("postgresql"),
    ]


def _stopped_column(column: str) -> list[sa.schema.SchemaItem]:
    """What a run costs if it stops early: never more than otherwise, and nothing for runs that cannot."""
    size = f"stopped_{column} >= 0 AND stopped_{column} <= {column}"
    sqlite = f"stopped_{column} IS NULL OR (typeof(stopped_{column}) = 'real' AND {size})"
    return [
        sa.Column(f"stopped_{column}", sa.Float),
        sa.CheckConstraint(sqlite).ddl_if("sqlite"),
        sa.CheckConstraint(size).ddl_if("postgresql"),
    ]


_METADATA = sa.MetaData()
LINKS = sa.Table(
    "chain",
    _METADATA,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("kind", sa.String, nullable=False),
    sa.Column("digest", sa.LargeBinary, nullable=False),
    sa.Column("hash", sa.LargeBinary, nullable=False),
)
TERMS = sa.Table(
    "book",
    _METADATA,
    sa.Column(
        "id", sa.Integer, sa.CheckConstraint("id = 1"), primary_key=True, autoincrement=False
    ),
    sa.Column("epsilon", sa.Float, nullable=False),
    sa.Column("delta", sa.Float, nullable=False),
    sa.Column("adjacency", sa.String, nullable=False),
    sa.Column("unit", sa.String, nullable=False),
    sa.Column("rule", sa.String, nullable=False),
    sa.Column("order", sa.Float, nullable=False),
    *_range_checks("epsilon", "< inf"),
    *_range_checks("delta", "<= 1"),
)
CHARGES = sa.Table(
    "charges",
    _METADATA,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("time", sa.String, nullable=False),
    sa.Column("label", sa.String, nullable=False),
    sa.Column("epsilon", sa.Float, nullable=False),
    sa.Column("delta", sa.Float, nullable=False),
    sa.Column("divergence", sa.Float, nullable=False),
    sa.Column("event", sa.String, nullable=False),
    # The random name of a run that may look for its charge later; or empty.
    sa.Column("run_id", sa.String, nullable=False, server_default=""),
    *_range_checks("epsilon", "< inf"),
    *_range_checks("delta", "<= 1"),
    *_range_checks("divergence", "<= inf"),
    # Fixed with the charge: what counts instead, once the run has stopped early.
    *_stopped_column("epsilon"),
    *_stopped_column("divergence"),
)
_HAS_RUN_ID = CHARGES.c.run_id != ""
sa.Index(
    "one_charge_for_a_run",
    CHARGES.c.run_id,
    unique=True,
    sqlite_where=_HAS_RUN_ID,
    postgresql_where=_HAS_RUN_ID,
)
# The result that was released for a charge: one for each, by its digest. It is that of a run that stopped
# early, or of one that did not, and never both.
FINISHES = sa.Table(
    "finishes",
    _METADATA,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("charge", sa.Integer, sa.ForeignKey(CHARGES.c.id), nullable=False, unique=True),
    sa.Column("time", sa.String, nullable=False),
    sa.Column("digest", sa.String, nullable=False),
    sa.Column("stopped", sa.Integer, nullable=False, server_default="0"),
    sa.CheckConstraint("stopped IN (0, 1)"),
)
# Who made a charge, and what they call the run and its folder.
ENTRIES = sa.Table(
    "entries",
    _METADATA,
    sa.Column("id", sa.Integer, sa.ForeignKey(CHARGES.c.id), primary_key=True, autoincrement=False),
    sa.Column("analyst", sa.String, nullable=False),
    sa.Column("run", sa.String, nullable=False),
    sa.Column("folder", sa.String, nullable=False),
)
# Higher totals, each of which replaces the one before.
RAISES = sa.Table(
    "raises",
    _METADATA,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("time", sa.String, nullable=False),
    sa.Column("steward", sa.String, nullable=False),
    sa.Column("epsilon", sa.Float, nullable=False),
    sa.Column("delta", sa.Float, nullable=False),
    *_range_checks("epsilon", "< inf"),
    *_range_checks("delta", "<= 1"),
)
# The tables of a ledger, by the kind of their lines in the chain.
TABLES_BY_KIND = {
    "book": TERMS,
    "charge": CHARGES,
    "entry": ENTRIES,
    "finish": FINISHES,
    "raise": RAISES,
}
APPEND_ONLY_TABLES = (*(table.name for table in TABLES_BY_KIND.values()), LINKS.name)
# SQLite's triggers; those of a server are in `tacit.accounting.ledger_store`.
_APPEND_ONLY_TRIGGERS = [
    f"CREATE TRIGGER IF NOT EXISTS {table}_no_{verb.lower()} BEFORE {verb} ON {table} "
    f"BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END"
    for table in APPEND_ONLY_TABLES
    for verb in ("UPDATE", "DELETE")
]
_MARK_NOTE = "The mark of a Tacit ledger. It shows whether the ledger is complete: keep it beside the ledger."
_CHANGED_MESSAGE = (
    "was changed by another program, and no longer shows what was spent; restore its newest copy"
)


@dataclass(frozen=True)
class LedgerTerms:
    """What is fixed when a ledger is created: the unit of privacy, and the filter of its charges."""

    unit: str
    filter: PrivacyFilter


@dataclass(frozen=True)
class Charge:
    """One charge of a ledger, and whose it was.

    If the run stopped early, ``epsilon`` is that of what it did until then; ``event`` is what was requested.
    """

    time: str
    label: str
    epsilon: float
    delta: float
    event: str
    run_id: str = ""
    analyst: str = ""
    run: str = ""
    folder: str = ""
    stopped: bool = False

    @property
    def described(self) -> str:
        """The label, and that the run stopped early if it did."""
        return f"{self.label}; stopped after its count" if self.stopped else self.label


@dataclass(frozen=True)
class RaisedTotal:
    """One change of a ledger's total to a higher one."""

    time: str
    steward: str
    epsilon: float
    delta: float


def create_tables(connection: sa.Connection) -> None:
    """Creates the tables that are missing."""
    _METADATA.create_all(connection)
    if connection.dialect.name == "sqlite":
        for trigger in _APPEND_ONLY_TRIGGERS:
            connection.execute(sa.text(trigger))


def write_terms(connection: sa.Connection, terms: LedgerTerms) -> None:
    """Writes the terms of a ledger whose tables were just created.

    The first link is random, so that no two ledgers are alike.
    """
    append_link(connection, "start", (os.urandom(32),))
    total = terms.filter.total
    line: Line = {
        "unit": terms.unit,
        "rule": terms.filter.rule,
        "epsilon": total.epsilon,
        "delta": total.delta,
        "adjacency": total.adjacency,
        "order": terms.filter.order,
    }
    append_line(connection, "book", line)


def append_line(connection: sa.Connection, kind: str, line: Line, number: int | None = None) -> int:
    """Appends a line and its link; returns its number, which follows the last one unless it is passed."""
    table = TABLES_BY_KIND[kind]
    if number is None:
        last: int | None = connection.execute(sa.select(sa.func.max(table.c.id))).scalar()
        number = (last or 0) + 1
    connection.execute(sa.insert(table).values(**line, id=number))
    # The link is of the line as it was written: a server fills in who and when.
    written = connection.execute(sa.select(table).where(table.c.id == number)).one()
    append_link(connection, kind, written)
    return number


def write_finish(
    connection: sa.Connection, run_id: str, time: str, digest: str, *, stopped: bool = False
) -> bool:
    """Records that the result of a run is released; False if there is no charge for the run.

    Only a charge that says what the run costs then is one for a run that stopped early. [stop-declared]
    """
    stored = sa.select(CHARGES.c.id).where(CHARGES.c.run_id == run_id)
    if stopped:
        stored = stored.where(CHARGES.c.stopped_epsilon.is_not(None))
    charge = connection.execute(stored).scalar() if run_id else None
    if charge is not None:
        line: Line = {"charge": charge, "time": time, "digest": digest, "stopped": int(stopped)}
        append_line(connection, "finish", line)
    return charge is not None


def read_finish(connection: sa.Connection, run_id: str) -> str | None:
    """The digest of what was released for the charge of a run, or None."""
    stored = sa.select(FINISHES.c.digest).join(CHARGES).where(CHARGES.c.run_id == run_id)
    digest: str | None = connection.execute(stored).scalar()
    return digest


def read_initial_terms(connection: sa.Connection) -> LedgerTerms:
    """The terms that a ledger was created with."""
    row = connection.execute(sa.select(TERMS)).one()
    total = Budget(row.epsilon, row.delta, row.adjacency)
    return LedgerTerms(row.unit, PrivacyFilter(total, row.rule, row.order))


def read_terms(connection: sa.Connection) -> LedgerTerms:
    """The terms of a ledger, with the total that holds now."""
    terms = read_initial_terms(connection)
    for raised in read_raises(connection)[-1:]:
        total = Budget(raised.epsilon, raised.delta, terms.filter.total.adjacency)
        terms = replace(terms, filter=replace(terms.filter, total=total))
    return terms


def read_raises(connection: sa.Connection) -> list[RaisedTotal]:
    """All changes of the total, oldest first."""
    columns = (RAISES.c.time, RAISES.c.steward, RAISES.c.epsilon, RAISES.c.delta)
    rows = connection.execute(sa.select(*columns).order_by(RAISES.c.id))
    return [RaisedTotal(*row) for row in rows]


_HAS_STOPPED = sa.func.coalesce(FINISHES.c.stopped, 0) == 1


def _counted(column: str) -> sa.ColumnElement[float]:
    """What counts of a charge: the whole, unless the run is known to have stopped early. [stop-counted]"""
    return sa.case((_HAS_STOPPED, CHARGES.c[f"stopped_{column}"]), else_=CHARGES.c[column])


def read_charges(connection: sa.Connection) -> list[Charge]:
    """All charges, oldest first."""
    entry = (ENTRIES.c.analyst, ENTRIES.c.run, ENTRIES.c.folder)
    columns = (
        *(CHARGES.c[name] for name in ("time", "label")),
        _counted("epsilon"),
        *(CHARGES.c[name] for name in ("delta", "event", "run_id")),
        *(sa.func.coalesce(each, "") for each in entry),
        _HAS_STOPPED,
    )
    stored = (
        sa.select(*columns)
        .outerjoin_from(CHARGES, ENTRIES)
        .outerjoin(FINISHES, FINISHES.c.charge == CHARGES.c.id)
    )
    rows = connection.execute(stored.order_by(CHARGES.c.id))
    return [Charge(*row) for row in rows]


def read_past_costs(connection: sa.Connection) -> PastCosts:
    """The costs of all charges so far."""
    columns = (_counted("epsilon"), CHARGES.c.delta, _counted("divergence"))
    stored = sa.select(*columns).outerjoin_from(CHARGES, FINISHES).order_by(CHARGES.c.id)
    rows = connection.execute(stored).all()
    return PastCosts(*(tuple(row[i] for row in rows) for i in range(len(columns))))


@dataclass(frozen=True)
class ChainHead:
    """How many links a chain has, and the hash of the last."""

    links: int
    hash: bytes


def append_link(connection: sa.Connection, kind: str, fields: Sequence[object]) -> None:
    """Adds the link of a line to the chain."""
    before, digest = chain_head(connection), _line_digest(fields)
    values = {"kind": kind, "digest": digest, "hash": _link_hash(before.hash, kind, digest)}
    connection.execute(sa.insert(LINKS).values(id=before.links + 1, **values))


def chain_head(connection: sa.Connection) -> ChainHead:
    """The end of the chain."""
    last = sa.select(LINKS.c.id, LINKS.c.hash).order_by(LINKS.c.id.desc()).limit(1)
    row = connection.execute(last).first()
    return ChainHead(0, b"") if row is None else ChainHead(row.id, row.hash)


def check_tables(connection: sa.Connection, mark: "MarkFile", location: str) -> None:
    """Raises if the tables are not those of a ledger of this version."""
    tables = set(sa.inspect(connection).get_table_names())
    if set(APPEND_ONLY_TABLES) <= tables:
        columns = connection.execute(sa.text("SELECT * FROM finishes WHERE 1 = 0")).keys()
        if set(FINISHES.c.keys()) <= set(columns):
            return
    if {"book", "charges"} <= tables:
        raise LedgerError(
            f"{location} was written by an earlier version of Tacit, or lost a table. Restore its newest copy, "
            "or create a new ledger whose total is what this one had left."
        )
    if mark.read() is not None:
        raise LedgerError(f"{location} was emptied, or is an older copy; restore its newest copy.")
    raise LedgerError(
        f"{location} holds no ledger; create one in a new file with tacit.Ledger.new(path, total=...) or: "
        "tacit ledger new."
    )


def check_unchanged(connection: sa.Connection, location: str) -> None:
    """Raises if a line of the ledger was changed after it was written."""
    before = ChainHead(0, b"")
    for row in connection.execute(sa.select(LINKS).order_by(LINKS.c.id)):
        if (row.id, row.hash) != (before.links + 1, _link_hash(before.hash, row.kind, row.digest)):
            raise LedgerError(f"{location} {_CHANGED_MESSAGE}.")
        before = ChainHead(row.id, row.hash)
    for kind, table in TABLES_BY_KIND.items():
        check_lines(connection, location, kind, _stored_lines(connection, table))


def check_lines(
    connection: sa.Connection, location: str, kind: str, lines: Iterable[StoredLine]
) -> None:
    """Raises if the lines of a kind are not those that were added to the chain."""
    stored = sa.select(LINKS.c.digest).where(LINKS.c.kind == kind).order_by(LINKS.c.id)
    if connection.execute(stored).scalars().all() != [_line_digest(line) for line in lines]:
        raise LedgerError(f"{location} {_CHANGED_MESSAGE}.")


def _stored_lines(connection: sa.Connection, table: sa.Table) -> Sequence[StoredLine]:
    """The lines of a table in their order, as their digests are made of them.

    A server makes the digest of a line itself, of its own text for it, so that no client can add a wrong one
    (`tacit.accounting.ledger_store`).
    """
    if connection.dialect.name == "postgresql":
        texts = sa.text(f"SELECT row_to_json(line)::text FROM {table.name} AS line ORDER BY id")  # noqa: S608
        return connection.execute(texts).scalars().all()
    return connection.execute(sa.select(table).order_by(table.c.id)).all()


def _link_hash(before: bytes, kind: str, digest: bytes) -> bytes:
    return hashlib.sha256(b"\0".join((before, kind.encode(), digest))).digest()


def _line_digest(line: StoredLine) -> bytes:
    if isinstance(line, str):
        return hashlib.sha256(line.encode()).digest()
    plain = [field.hex() if isinstance(field, bytes) else field for field in line]
    return hashlib.sha256(json.dumps(plain).encode()).digest()


class MarkFile:
    """The file beside a ledger that records how many links the ledger had."""

    _hint = ""  # at the end of the message about an older copy

    def __init__(self, ledger: Path) -> None:
        self.ledger = str(ledger.resolve())
        self.path = ledger.resolve().with_name(f"{ledger.resolve().name}.mark")

    def read(self) -> ChainHead | None:
        """The content of the file, or None if there is no file."""
        try:
            content = json.loads(self.path.read_text("utf-8"))
            return ChainHead(int(content["links"]), bytes.fromhex(content["hash"]))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise LedgerError(f"{self.path} cannot be read: {error.strerror}.") from error
        except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
            raise LedgerError(
                f"{self.path} is not the mark file of a ledger; restore its newest copy."
            ) from error

    def check_not_older(self, connection: sa.Connection, marked: ChainHead | None) -> ChainHead:
        """The end of the chain that is known; raises if the ledger lacks links that the mark records.

        Args:
            connection: A transaction.
            marked: The content of the mark, read before the transaction began. Another process may
                advance the mark at any time, and a transaction does not see what is written after it.
        """
        if marked is None:
            return self._head_without_mark()
        stored = sa.select(LINKS.c.hash).where(LINKS.c.id == marked.links)
        if connection.execute(stored).scalar() != marked.hash:
            raise LedgerError(
                f"{self.ledger} is older than its mark, or another ledger: charges are missing in it; "
                f"restore its newest copy{self._hint}."
            )
        return marked

    def check_never_existed(self, location: str) -> None:
        """Raises if the mark shows that there was a ledger where there is none."""
        if self.read() is not None:
            raise LedgerError(
                f"There was a ledger at {location}: its mark file is still there. Restore its newest copy, or "
                "create a ledger under another name with the remaining budget."
            )

    def _head_without_mark(self) -> ChainHead:
        raise LedgerError(
            f"{self.ledger} has no mark file beside it ({self.path.name}), so nothing shows that it is "
            f"complete; restore the mark file, or, if you know that the ledger is the newest copy, "
            f"accept it with: tacit ledger adopt {self.ledger}."
        )

    def _mode(self) -> int:
        """Who may read and write the mark: whoever may read and write the ledger."""
        return Path(self.ledger).stat().st_mode & 0o777

    @contextmanager
    def advancing(self) -> Iterator[Callable[[ChainHead], None]]:
        """Yields a function that takes the new end of the chain. The file is updated when the context ends.

        The new content is written at once, beside the file, so that nothing is charged that cannot be
        marked. If an error is raised, the file is left as it was.
        """
        drafts: list[tuple[Path, ChainHead]] = []
        try:
            yield lambda head: drafts.append((self._write_draft(head), head))
        except BaseException:
            for draft, _ in drafts:
                draft.unlink(missing_ok=True)
            raise
        for draft, head in drafts:
            self._move_into_place(draft, head)

    def _write_draft(self, head: ChainHead) -> Path:
        text = json.dumps(
            {"note": _MARK_NOTE, "links": head.links, "hash": head.hash.hex()}, indent=1
        )
        try:
            handle, name = tempfile.mkstemp(dir=self.path.parent, prefix=f".{self.path.name}.")
            draft = Path(name)
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as file:
                    file.write(f"{text}\n")
                    file.flush()
                    os.fsync(file.fileno())
                draft.chmod(self._mode())
            except BaseException:
                draft.unlink()
                raise
        except OSError as error:
            raise LedgerError(
                f"{self.path}, the mark of the ledger, cannot be written: {error.strerror}."
            ) from error
        return draft

    def _move_into_place(self, draft: Path, head: ChainHead) -> None:
        with lock_folder(self.path.parent):
            current = self.read()
            if current is None or current.links < head.links:  # another process may have been first
                draft.replace(self.path)
                sync_folder(self.path.parent)
            else:
                draft.unlink()

"""The tables of a ledger, to which lines are only appended; a chain of hashes over them; and a mark file.

Every line of a ledger (its terms, a charge, a question that a site answers) has a link: a hash of the previous link and
of the line's own fields. If a line is changed or removed, its link no longer matches. A ledger whose last lines are
missing, such as an older copy, still has a valid chain. So a mark file beside the ledger records the number of links and
the hash of the last one. The mark is written before the transaction ends and moved into place afterwards: after a crash
it may be behind the ledger, but it is never ahead. This detects mistakes; it does not stop somebody who rewrites both
files on purpose.

A ledger on a server has no file beside it. Everybody who uses it keeps a mark of their own instead, in a folder of their
own machine or in one that all share (``TACIT_MARKS``). The first use creates the mark. An older copy of the database is
then noticed by whoever has seen a later line of it.
"""

import hashlib
import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from tacit._files import sync_folder
from tacit.accounting.budget import Budget, PastCosts
from tacit.accounting.ledger_store import (
    DatabaseAddress,
    LedgerLocation,
    file_exists,
    lock_folder,
)
from tacit.errors import LedgerError

CHAIN_METADATA = sa.MetaData()
LINKS = sa.Table(
    "chain",
    CHAIN_METADATA,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("kind", sa.String, nullable=False),
    sa.Column("digest", sa.LargeBinary, nullable=False),
    sa.Column("hash", sa.LargeBinary, nullable=False),
)
_MARK_NOTE = "The mark of a Tacit ledger. It shows whether the ledger is complete: keep it beside the ledger."
_CHANGED_MESSAGE = (
    "was changed by another program, and no longer shows what was spent; restore its newest copy"
)


@dataclass(frozen=True)
class ChainHead:
    """How many links a chain has, and the hash of the last."""

    links: int
    hash: bytes


def start_chain(connection: sa.Connection) -> None:
    """Writes the first link, which is random, so that no two ledgers are alike."""
    append_link(connection, "start", (os.urandom(32),))


def append_link(connection: sa.Connection, kind: str, fields: Sequence[Any]) -> None:
    """Adds a line to the chain."""
    before, digest = chain_head(connection), _line_digest(fields)
    values = {"kind": kind, "digest": digest, "hash": _link_hash(before.hash, kind, digest)}
    connection.execute(sa.insert(LINKS).values(id=before.links + 1, **values))


def chain_head(connection: sa.Connection) -> ChainHead:
    """The end of the chain."""
    last = sa.select(LINKS.c.id, LINKS.c.hash).order_by(LINKS.c.id.desc()).limit(1)
    found = connection.execute(last).first()
    return ChainHead(0, b"") if found is None else ChainHead(found.id, found.hash)


def check_chain(connection: sa.Connection, path: LedgerLocation) -> None:
    """Raises if a link does not follow from the one before it."""
    before = ChainHead(0, b"")
    for row in connection.execute(sa.select(LINKS).order_by(LINKS.c.id)):
        if (row.id, row.hash) != (before.links + 1, _link_hash(before.hash, row.kind, row.digest)):
            raise LedgerError(f"{path} {_CHANGED_MESSAGE}.")
        before = ChainHead(row.id, row.hash)


def read_lines(connection: sa.Connection, table: sa.Table) -> Sequence[str | Sequence[Any]]:
    """The lines of a table in their order, as their digests are made.

    A server makes the digest of a line itself, of its own text for it, so that no client can add a wrong one
    (`tacit.accounting.ledger_store`).
    """
    if connection.dialect.name == "postgresql":
        texts = sa.text(f"SELECT row_to_json(line)::text FROM {table.name} AS line ORDER BY id")  # noqa: S608
        return connection.execute(texts).scalars().all()
    return connection.execute(sa.select(table).order_by(table.c.id)).all()


def check_lines(
    connection: sa.Connection, path: LedgerLocation, kind: str, lines: Iterable[str | Sequence[Any]]
) -> None:
    """Raises if the lines of a kind are not those that were added to the chain."""
    held = sa.select(LINKS.c.digest).where(LINKS.c.kind == kind).order_by(LINKS.c.id)
    if connection.execute(held).scalars().all() != [_line_digest(line) for line in lines]:
        raise LedgerError(f"{path} {_CHANGED_MESSAGE}.")


class MarkFile:
    """The file beside a ledger that records how many links the ledger had."""

    def __init__(self, book: Path) -> None:
        self.book: LedgerLocation = book.resolve()
        self.path = book.resolve().with_name(f"{book.resolve().name}.mark")

    def read(self) -> ChainHead | None:
        """The content of the file, or None if there is no file."""
        try:
            held = json.loads(self.path.read_text("utf-8"))
            return ChainHead(int(held["links"]), bytes.fromhex(held["hash"]))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise LedgerError(f"{self.path} cannot be read: {error.strerror}.") from error
        except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
            raise LedgerError(
                f"{self.path} is not the mark file of a ledger; restore its newest copy."
            ) from error

    def refuse_older(self, connection: sa.Connection, said: ChainHead | None) -> ChainHead:
        """The end of the chain that is known; raises if the ledger lacks links that the mark records.

        Args:
            connection: A transaction.
            said: The content of the mark, read before the transaction began. Another process may
                advance the mark at any time, and a transaction does not see what is written after it.
        """
        if said is None:
            return self._unmarked()
        held = sa.select(LINKS.c.hash).where(LINKS.c.id == said.links)
        if connection.execute(held).scalar() != said.hash:
            raise LedgerError(
                f"{self.book} is older than its mark, or another ledger: charges are missing in it; "
                f"restore its newest copy{self._hint}."
            )
        return said

    _hint = ""

    def _unmarked(self) -> ChainHead:
        """What holds without a mark."""
        raise LedgerError(
            f"{self.book} has no mark file beside it ({self.path.name}), so nothing shows that it is "
            f"complete; restore the mark file, or, if you know that the ledger is the newest copy, "
            f"accept it with: tacit ledger adopt {self.book}."
        )

    def _mode(self) -> int:
        """Who may read and write the mark: whoever may read and write the ledger."""
        return Path(str(self.book)).stat().st_mode & 0o777

    @contextmanager
    def advancing(self) -> Iterator[Callable[[ChainHead], None]]:
        """Yields a function that takes the new end of the chain. The file is updated when the context ends.

        The new content is written at once, beside the file, so that nothing is charged that cannot be
        marked. If an error is raised, the file is left as it was.
        """
        made: list[tuple[Path, ChainHead]] = []
        try:
            yield lambda now: made.append((self._written(now), now))
        except BaseException:
            for file, _ in made:
                file.unlink(missing_ok=True)
            raise
        for file, now in made:
            self._place(file, now)

    def _written(self, now: ChainHead) -> Path:
        text = json.dumps(
            {"note": _MARK_NOTE, "links": now.links, "hash": now.hash.hex()}, indent=1
        )
        try:
            handle, name = tempfile.mkstemp(dir=self.path.parent, prefix=f".{self.path.name}.")
            file = Path(name)
            try:
                _write_synced(handle, f"{text}\n")
                file.chmod(self._mode())
            except BaseException:
                file.unlink()
                raise
        except OSError as error:
            raise LedgerError(
                f"{self.path}, the mark of the ledger, cannot be written: {error.strerror}."
            ) from error
        return file

    def _place(self, file: Path, now: ChainHead) -> None:
        with lock_folder(self.path.parent):
            held = self.read()
            if held is None or held.links < now.links:  # another process may have been first
                file.replace(self.path)
                sync_folder(self.path.parent)
            else:
                file.unlink()


class UserMarkFile(MarkFile):
    """What the user of a ledger on a server remembers of it."""

    def __init__(self, book: DatabaseAddress) -> None:
        self.book = book
        shared = book.database
        name = re.sub(r"[^\w.-]+", "_", shared.partition("://")[2]).strip("_")[:100]
        digest = hashlib.sha256(shared.encode()).hexdigest()[:12]
        self.path = _marks_folder() / f"{name}-{digest}.mark"
        self._hint = f" (the mark is {self.path})"

    def _unmarked(self) -> ChainHead:
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise LedgerError(
                f"{self.path.parent}, the folder for marks of ledgers, cannot be created: "
                f"{error.strerror}. Name another in the environment variable TACIT_MARKS."
            ) from None
        return ChainHead(0, b"")

    def _mode(self) -> int:
        return self.path.parent.stat().st_mode & 0o666


def _marks_folder() -> Path:
    """Where marks of ledgers on servers are kept: the same in every working folder."""
    if said := os.environ.get("TACIT_MARKS"):
        return Path(said).absolute()
    usual = Path("~/AppData/Local" if sys.platform == "win32" else "~/.local/state")
    home = os.environ.get("LOCALAPPDATA" if sys.platform == "win32" else "XDG_STATE_HOME")
    return (Path(home) if home else usual.expanduser()) / "tacit" / "marks"


def _write_synced(handle: int, text: str) -> None:
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _link_hash(before: bytes, kind: str, digest: bytes) -> bytes:
    return hashlib.sha256(b"\0".join((before, kind.encode(), digest))).digest()


def _line_digest(fields: str | Sequence[Any]) -> bytes:
    if isinstance(fields, str):
        return hashlib.sha256(fields.encode()).digest()
    plain = [field.hex() if isinstance(field, bytes) else field for field in fields]
    return hashlib.sha256(json.dumps(plain).encode()).digest()


def _range_checks(column: str, most: str) -> list[sa.CheckConstraint]:
    """What a number must be, for each kind of database.

    SQLite compares any text as larger than any number; PostgreSQL takes "not a number" for the largest.
    """
    size = f"{column} >= 0 AND {column} {most}"
    endless = size.replace("inf", "9e999")
    return [
        sa.CheckConstraint(f"typeof({column}) = 'real' AND {endless}").ddl_if("sqlite"),
        sa.CheckConstraint(size.replace("inf", "'Infinity'")).ddl_if("postgresql"),
    ]


_TABLES_METADATA = sa.MetaData()
TERMS = sa.Table(
    "book",
    _TABLES_METADATA,
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
    _TABLES_METADATA,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("time", sa.String, nullable=False),
    sa.Column("label", sa.String, nullable=False),
    sa.Column("epsilon", sa.Float, nullable=False),
    sa.Column("delta", sa.Float, nullable=False),
    sa.Column("divergence", sa.Float, nullable=False),
    sa.Column("event", sa.String, nullable=False),
    # The random name of a run that is kept on disk, by which it finds its charge; or empty.
    sa.Column("run_id", sa.String, nullable=False, server_default=""),
    *_range_checks("epsilon", "< inf"),
    *_range_checks("delta", "<= 1"),
    *_range_checks("divergence", "<= inf"),
)
_HAS_RUN_ID = CHARGES.c.run_id != ""
sa.Index(
    "one_charge_for_a_run",
    CHARGES.c.run_id,
    unique=True,
    sqlite_where=_HAS_RUN_ID,
    postgresql_where=_HAS_RUN_ID,
)
# The result that left for a charge: one for each, by its digest.
FINISHES = sa.Table(
    "finishes",
    _TABLES_METADATA,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("charge", sa.Integer, sa.ForeignKey(CHARGES.c.id), nullable=False, unique=True),
    sa.Column("time", sa.String, nullable=False),
    sa.Column("digest", sa.String, nullable=False),
)
# Who made a charge, and what they call the run and its folder.
ENTRIES = sa.Table(
    "entries",
    _TABLES_METADATA,
    sa.Column("id", sa.Integer, sa.ForeignKey(CHARGES.c.id), primary_key=True, autoincrement=False),
    sa.Column("analyst", sa.String, nullable=False),
    sa.Column("run", sa.String, nullable=False),
    sa.Column("folder", sa.String, nullable=False),
)
# Higher totals, each of which takes the place of the one before.
RAISES = sa.Table(
    "raises",
    _TABLES_METADATA,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("time", sa.String, nullable=False),
    sa.Column("steward", sa.String, nullable=False),
    sa.Column("epsilon", sa.Float, nullable=False),
    sa.Column("delta", sa.Float, nullable=False),
    *_range_checks("epsilon", "< inf"),
    *_range_checks("delta", "<= 1"),
)
# The tables of a ledger, with the kind of their lines in the chain.
TABLES_BY_KIND = {
    "book": TERMS,
    "charge": CHARGES,
    "entry": ENTRIES,
    "finish": FINISHES,
    "raise": RAISES,
}
# SQLite's triggers; those of a server are in `tacit.accounting.ledger_store`.
_APPEND_ONLY_TRIGGERS = [
    f"CREATE TRIGGER IF NOT EXISTS {table}_no_{verb.lower()} BEFORE {verb} ON {table} "
    f"BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END"
    for table in ("book", "charges", "entries", "finishes", "raises", "chain")
    for verb in ("UPDATE", "DELETE")
]


@dataclass(frozen=True)
class Charge:
    """One charge of a ledger, and whose it was."""

    time: str
    label: str
    epsilon: float
    delta: float
    event: str
    run_id: str = ""
    analyst: str = ""
    run: str = ""
    folder: str = ""


@dataclass(frozen=True)
class RaisedTotal:
    """One change of a ledger's total to a higher one."""

    time: str
    steward: str
    epsilon: float
    delta: float


def create_tables(connection: sa.Connection) -> None:
    """Creates the tables that are missing."""
    _TABLES_METADATA.create_all(connection)
    CHAIN_METADATA.create_all(connection)
    if connection.dialect.name == "sqlite":
        for trigger in _APPEND_ONLY_TRIGGERS:
            connection.execute(sa.text(trigger))


def write_terms(connection: sa.Connection, terms: Mapping[str, Any]) -> None:
    """Writes the terms of a ledger whose tables were just created."""
    start_chain(connection)
    _append_line(connection, "book", {**terms, "id": 1})


def write_charge(
    connection: sa.Connection, line: Mapping[str, Any], entry: Mapping[str, Any] | None = None
) -> None:
    """Writes a charge, whose it was if that is known, and their links."""
    number = _append_line(connection, "charge", line)
    if entry is not None:
        _append_line(connection, "entry", {"id": number, **entry})


def write_finish(connection: sa.Connection, run_id: str, time: str, digest: str) -> bool:
    """Writes that the result of a run leaves, and the link; False if there is no charge for the run."""
    held = sa.select(CHARGES.c.id).where(CHARGES.c.run_id == run_id)
    charge = connection.execute(held).scalar() if run_id else None
    if charge is not None:
        _append_line(connection, "finish", {"charge": charge, "time": time, "digest": digest})
    return charge is not None


def read_finish(connection: sa.Connection, run_id: str) -> str | None:
    """The digest of what left for the charge of a run, or None."""
    held = sa.select(FINISHES.c.digest).join(CHARGES).where(CHARGES.c.run_id == run_id)
    found: str | None = connection.execute(held).scalar()
    return found


def write_raise(connection: sa.Connection, line: Mapping[str, Any]) -> None:
    """Writes a new total and its link."""
    _append_line(connection, "raise", line)


def _append_line(connection: sa.Connection, kind: str, line: Mapping[str, Any]) -> int:
    table = TABLES_BY_KIND[kind]
    last = connection.execute(sa.select(sa.func.max(table.c.id))).scalar()
    number: int = line.get("id") or (last or 0) + 1
    connection.execute(sa.insert(table).values(**{**line, "id": number}))
    # As it was written: a server fills in who and when.
    written = connection.execute(sa.select(table).where(table.c.id == number)).one()
    append_link(connection, kind, written)
    return number


def read_initial_terms(connection: sa.Connection) -> dict[str, Any]:
    """The terms that a ledger was created with."""
    return dict(connection.execute(sa.select(TERMS)).mappings().one())


def read_terms(connection: sa.Connection) -> dict[str, Any]:
    """The terms of a ledger, with the total that holds now."""
    terms = read_initial_terms(connection)
    for each in read_raises(connection):
        terms |= {"epsilon": each.epsilon, "delta": each.delta}
    return terms


def read_raises(connection: sa.Connection) -> list[RaisedTotal]:
    """All changes of the total, oldest first."""
    columns = (RAISES.c.time, RAISES.c.steward, RAISES.c.epsilon, RAISES.c.delta)
    return [
        RaisedTotal(*row) for row in connection.execute(sa.select(*columns).order_by(RAISES.c.id))
    ]


def read_charges(connection: sa.Connection) -> list[Charge]:
    """All charges, oldest first."""
    names = ("time", "label", "epsilon", "delta", "event", "run_id")
    own = (ENTRIES.c.analyst, ENTRIES.c.run, ENTRIES.c.folder)
    held = (*(CHARGES.c[name] for name in names), *(sa.func.coalesce(each, "") for each in own))
    found = sa.select(*held).outerjoin_from(CHARGES, ENTRIES)
    return [Charge(*row) for row in connection.execute(found.order_by(CHARGES.c.id))]


def read_past_costs(connection: sa.Connection) -> PastCosts:
    """The costs of all charges so far."""
    columns = (CHARGES.c.epsilon, CHARGES.c.delta, CHARGES.c.divergence)
    rows = connection.execute(sa.select(*columns).order_by(CHARGES.c.id)).all()
    return PastCosts(*(tuple(row[i] for row in rows) for i in range(len(columns))))


def total_from_terms(terms: Mapping[str, Any]) -> Budget:
    """The total of a ledger's terms."""
    return Budget(terms["epsilon"], terms["delta"], terms["adjacency"])


def check_unchanged(connection: sa.Connection, path: LedgerLocation) -> None:
    """Raises if a line of the ledger was changed after it was written."""
    check_chain(connection, path)
    for kind, table in TABLES_BY_KIND.items():
        found = read_lines(connection, table)
        check_lines(connection, path, kind, found)


def check_tables(connection: sa.Connection, mark: MarkFile, path: LedgerLocation) -> None:
    """Raises if the file is not a ledger of this version."""
    tables = set(sa.inspect(connection).get_table_names())
    if {table.name for table in TABLES_BY_KIND.values()} | {"chain"} <= tables:
        return
    if {"book", "charges"} <= tables:
        raise LedgerError(
            f"{path} was written by an earlier version of Tacit, or lost a table. Restore its newest copy, "
            "or create a new ledger whose total is what this one had left."
        )
    if mark.read() is not None:
        raise LedgerError(f"{path} was emptied, or is an older copy; restore its newest copy.")
    raise LedgerError(
        f"{path} holds no ledger; create one in a new file with tacit.Ledger.new(path, total=...) or: "
        "tacit ledger new."
    )


def create_file(file: Path) -> None:
    """Creates an empty file for its owner only; raises if there is, or was, a ledger."""
    if not file_exists(file):
        check_never_existed(MarkFile(file), file)
    try:
        os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        raise LedgerError(
            f"{file} exists already; the terms of a ledger are fixed when it is created."
        ) from None
    except OSError as error:
        raise LedgerError(f"No ledger can be created at {file}: {error.strerror}.") from error


def check_never_existed(mark: MarkFile, path: LedgerLocation) -> None:
    """Raises if a mark shows that there was a ledger where there is none."""
    if mark.read() is not None:
        raise LedgerError(
            f"There was a ledger at {path}: its mark file is still there. Restore its newest copy, or "
            "create a ledger under another name with the remaining budget."
        )

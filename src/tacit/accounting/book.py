"""The tables of a ledger. Lines are appended to them and never changed."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from attrs import frozen

from tacit.accounting import chain
from tacit.accounting.address import Where
from tacit.accounting.budget import Budget
from tacit.accounting.filter import Spent
from tacit.accounting.store import is_there
from tacit.errors import LedgerError


def _checked(column: str, most: str) -> list[sa.CheckConstraint]:
    """What a number must be, for each kind of database.

    SQLite compares any text as larger than any number; PostgreSQL takes "not a number" for the largest.
    """
    size = f"{column} >= 0 AND {column} {most}"
    endless = size.replace("inf", "9e999")
    return [
        sa.CheckConstraint(f"typeof({column}) = 'real' AND {endless}").ddl_if("sqlite"),
        sa.CheckConstraint(size.replace("inf", "'Infinity'")).ddl_if("postgresql"),
    ]


_META = sa.MetaData()
BOOK = sa.Table(
    "book",
    _META,
    sa.Column(
        "id", sa.Integer, sa.CheckConstraint("id = 1"), primary_key=True, autoincrement=False
    ),
    sa.Column("epsilon", sa.Float, nullable=False),
    sa.Column("delta", sa.Float, nullable=False),
    sa.Column("adjacency", sa.String, nullable=False),
    sa.Column("unit", sa.String, nullable=False),
    sa.Column("rule", sa.String, nullable=False),
    sa.Column("order", sa.Float, nullable=False),
    *_checked("epsilon", "< inf"),
    *_checked("delta", "<= 1"),
)
CHARGES = sa.Table(
    "charges",
    _META,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("time", sa.String, nullable=False),
    sa.Column("label", sa.String, nullable=False),
    sa.Column("epsilon", sa.Float, nullable=False),
    sa.Column("delta", sa.Float, nullable=False),
    sa.Column("divergence", sa.Float, nullable=False),
    sa.Column("event", sa.String, nullable=False),
    # The random name of a run that is kept on disk, by which it finds its charge; or empty.
    sa.Column("run_id", sa.String, nullable=False, server_default=""),
    *_checked("epsilon", "< inf"),
    *_checked("delta", "<= 1"),
    *_checked("divergence", "<= inf"),
)
_KEPT = CHARGES.c.run_id != ""
sa.Index(
    "one_charge_for_a_run",
    CHARGES.c.run_id,
    unique=True,
    sqlite_where=_KEPT,
    postgresql_where=_KEPT,
)
# The result that left for a charge: one for each, by its digest.
FINISHES = sa.Table(
    "finishes",
    _META,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("charge", sa.Integer, sa.ForeignKey(CHARGES.c.id), nullable=False, unique=True),
    sa.Column("time", sa.String, nullable=False),
    sa.Column("digest", sa.String, nullable=False),
)
# Who made a charge, and what they call the run and its folder.
ENTRIES = sa.Table(
    "entries",
    _META,
    sa.Column("id", sa.Integer, sa.ForeignKey(CHARGES.c.id), primary_key=True, autoincrement=False),
    sa.Column("analyst", sa.String, nullable=False),
    sa.Column("run", sa.String, nullable=False),
    sa.Column("folder", sa.String, nullable=False),
)
# Higher totals, each of which takes the place of the one before.
RAISES = sa.Table(
    "raises",
    _META,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("time", sa.String, nullable=False),
    sa.Column("steward", sa.String, nullable=False),
    sa.Column("epsilon", sa.Float, nullable=False),
    sa.Column("delta", sa.Float, nullable=False),
    *_checked("epsilon", "< inf"),
    *_checked("delta", "<= 1"),
)
# The tables of a ledger, with the kind of their lines in the chain.
KINDS = {
    "book": BOOK,
    "charge": CHARGES,
    "entry": ENTRIES,
    "finish": FINISHES,
    "raise": RAISES,
}
# SQLite's triggers; those of a server are in `tacit.accounting.guard`.
_APPEND_ONLY = [
    f"CREATE TRIGGER IF NOT EXISTS {table}_no_{verb.lower()} BEFORE {verb} ON {table} "
    f"BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END"
    for table in ("book", "charges", "entries", "finishes", "raises", "chain")
    for verb in ("UPDATE", "DELETE")
]


@frozen
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


@frozen
class Raise:
    """One change of a ledger's total to a higher one."""

    time: str
    steward: str
    epsilon: float
    delta: float


def create_tables(connection: sa.Connection) -> None:
    """Creates the tables that are missing."""
    _META.create_all(connection)
    chain.META.create_all(connection)
    if connection.dialect.name == "sqlite":
        for trigger in _APPEND_ONLY:
            connection.execute(sa.text(trigger))


def write_terms(connection: sa.Connection, terms: Mapping[str, Any]) -> None:
    """Writes the terms of a ledger whose tables were just created."""
    chain.begin(connection)
    _append(connection, "book", {**terms, "id": 1})


def write_charge(
    connection: sa.Connection, line: Mapping[str, Any], entry: Mapping[str, Any] | None = None
) -> None:
    """Writes a charge, whose it was if that is known, and their links."""
    number = _append(connection, "charge", line)
    if entry is not None:
        _append(connection, "entry", {"id": number, **entry})


def write_finish(connection: sa.Connection, run_id: str, time: str, digest: str) -> bool:
    """Writes that the result of a run leaves, and the link; False if there is no charge for the run."""
    held = sa.select(CHARGES.c.id).where(CHARGES.c.run_id == run_id)
    charge = connection.execute(held).scalar() if run_id else None
    if charge is not None:
        _append(connection, "finish", {"charge": charge, "time": time, "digest": digest})
    return charge is not None


def read_finish(connection: sa.Connection, run_id: str) -> str | None:
    """The digest of what left for the charge of a run, or None."""
    held = sa.select(FINISHES.c.digest).join(CHARGES).where(CHARGES.c.run_id == run_id)
    found: str | None = connection.execute(held).scalar()
    return found


def write_raise(connection: sa.Connection, line: Mapping[str, Any]) -> None:
    """Writes a new total and its link."""
    _append(connection, "raise", line)


def _append(connection: sa.Connection, kind: str, line: Mapping[str, Any]) -> int:
    table = KINDS[kind]
    last = connection.execute(sa.select(sa.func.max(table.c.id))).scalar()
    number: int = line.get("id") or (last or 0) + 1
    connection.execute(sa.insert(table).values(**{**line, "id": number}))
    # As it was written: a server fills in who and when.
    written = connection.execute(sa.select(table).where(table.c.id == number)).one()
    chain.link(connection, kind, written)
    return number


def read_first_terms(connection: sa.Connection) -> dict[str, Any]:
    """The terms that a ledger was created with."""
    return dict(connection.execute(sa.select(BOOK)).mappings().one())


def read_terms(connection: sa.Connection) -> dict[str, Any]:
    """The terms of a ledger, with the total that holds now."""
    terms = read_first_terms(connection)
    for each in read_raises(connection):
        terms |= {"epsilon": each.epsilon, "delta": each.delta}
    return terms


def read_raises(connection: sa.Connection) -> list[Raise]:
    """All changes of the total, oldest first."""
    columns = (RAISES.c.time, RAISES.c.steward, RAISES.c.epsilon, RAISES.c.delta)
    return [Raise(*row) for row in connection.execute(sa.select(*columns).order_by(RAISES.c.id))]


def read_charges(connection: sa.Connection) -> list[Charge]:
    """All charges, oldest first."""
    names = ("time", "label", "epsilon", "delta", "event", "run_id")
    own = (ENTRIES.c.analyst, ENTRIES.c.run, ENTRIES.c.folder)
    held = (*(CHARGES.c[name] for name in names), *(sa.func.coalesce(each, "") for each in own))
    found = sa.select(*held).outerjoin_from(CHARGES, ENTRIES)
    return [Charge(*row) for row in connection.execute(found.order_by(CHARGES.c.id))]


def spent_so_far(connection: sa.Connection) -> Spent:
    """The costs of all charges so far."""
    columns = (CHARGES.c.epsilon, CHARGES.c.delta, CHARGES.c.divergence)
    rows = connection.execute(sa.select(*columns).order_by(CHARGES.c.id)).all()
    return Spent(*(tuple(row[i] for row in rows) for i in range(len(columns))))


def total_of(terms: Mapping[str, Any]) -> Budget:
    """The total of a ledger's terms."""
    return Budget(terms["epsilon"], terms["delta"], terms["adjacency"])


def refuse_changed(connection: sa.Connection, path: Where) -> None:
    """Raises if a line of the ledger was changed after it was written."""
    chain.refuse_broken(connection, path)
    for kind, table in KINDS.items():
        found = chain.lines_of(connection, table)
        chain.refuse_changed(connection, path, kind, found)


def refuse_strange(connection: sa.Connection, mark: chain.Mark, path: Where) -> None:
    """Raises if the file is not a ledger of this version."""
    tables = set(sa.inspect(connection).get_table_names())
    if {table.name for table in KINDS.values()} | {"chain"} <= tables:
        return
    if {"book", "charges", "chain"} <= tables:
        raise LedgerError(
            f"{path} was written by an earlier version of Tacit, or lost a table. Restore its newest copy, "
            "or create a new ledger whose total is what this one had left."
        )
    if mark.read() is not None:
        raise LedgerError(f"{path} was emptied, or is an older copy; restore its newest copy.")
    if {"book", "charges"} <= tables:
        raise LedgerError(
            f"{path} is a ledger of Tacit's first version; update it with: tacit ledger "
            f"adopt {path}."
        )
    raise LedgerError(
        f"{path} holds no ledger; create one in a new file with tacit.Ledger.new(path, total=...) or: "
        "tacit ledger new."
    )


def make(file: Path) -> None:
    """Creates an empty file for its owner only; raises if there is, or was, a ledger."""
    if not is_there(file):
        refuse_lost(chain.Mark(file), file)
    try:
        os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        raise LedgerError(
            f"{file} exists already; the terms of a ledger are fixed when it is created."
        ) from None
    except OSError as error:
        raise LedgerError(f"No ledger can be created at {file}: {error.strerror}.") from error


def refuse_lost(mark: chain.Mark, path: Where) -> None:
    """Raises if a mark shows that there was a ledger where there is none."""
    if mark.read() is not None:
        raise LedgerError(
            f"There was a ledger at {path}: its mark file is still there. Restore its newest copy, or "
            "create a ledger under another name with the remaining budget."
        )

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
    *_checked("epsilon", "< inf"),
    *_checked("delta", "<= 1"),
    *_checked("divergence", "<= inf"),
)
# Who made a charge, and for which run. Ledgers of earlier versions have no such table.
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
KINDS = {"book": BOOK, "charge": CHARGES, "entry": ENTRIES, "raise": RAISES}
# SQLite's triggers; those of a server are in `tacit.accounting.guard`.
_APPEND_ONLY = [
    f"CREATE TRIGGER IF NOT EXISTS {table}_no_{verb.lower()} BEFORE {verb} ON {table} "
    f"BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END"
    for table in ("book", "charges", "entries", "raises", "chain")
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
    connection.info.pop("tables", None)
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
        if not _has(connection, ENTRIES):
            create_tables(connection)
        _append(connection, "entry", {"id": number, **entry})


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
    if not _has(connection, RAISES):
        return []
    columns = (RAISES.c.time, RAISES.c.steward, RAISES.c.epsilon, RAISES.c.delta)
    return [Raise(*row) for row in connection.execute(sa.select(*columns).order_by(RAISES.c.id))]


def read_charges(connection: sa.Connection) -> list[Charge]:
    """All charges, oldest first."""
    held = (CHARGES.c.time, CHARGES.c.label, CHARGES.c.epsilon, CHARGES.c.delta, CHARGES.c.event)
    found = sa.select(*held)
    if _has(connection, ENTRIES):
        own = (ENTRIES.c.analyst, ENTRIES.c.run, ENTRIES.c.folder)
        found = sa.select(*held, *(sa.func.coalesce(each, "") for each in own))
        found = found.outerjoin_from(CHARGES, ENTRIES)
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
        there = _has(connection, table)
        found = connection.execute(sa.select(table).order_by(table.c.id)).all() if there else []
        chain.refuse_changed(connection, path, kind, found)


def refuse_strange(connection: sa.Connection, mark: chain.Mark, path: Where) -> None:
    """Raises if the file is not a ledger of this version."""
    tables = _tables(connection)
    if {"book", "charges", "chain"} <= tables:
        return
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


def _has(connection: sa.Connection, table: sa.Table) -> bool:
    return table.name in _tables(connection)


def _tables(connection: sa.Connection) -> set[str]:
    """The tables that are there, which are looked up once in a transaction."""
    if "tables" not in connection.info:
        connection.info["tables"] = set(sa.inspect(connection).get_table_names())
    found: set[str] = connection.info["tables"]
    return found

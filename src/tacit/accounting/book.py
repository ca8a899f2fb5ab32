"""The tables of a ledger. Lines are appended to them and never changed."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from attrs import frozen

from tacit.accounting import chain
from tacit.accounting.filter import Spent
from tacit.accounting.store import is_there
from tacit.errors import LedgerError

# With typeof, because SQLite compares any text as larger than any number.
_SIZED = "typeof(epsilon) = 'real' AND epsilon >= 0 AND epsilon < 9e999"
_RARE = "typeof(delta) = 'real' AND delta >= 0 AND delta <= 1"

_META = sa.MetaData()
BOOK = sa.Table(
    "book",
    _META,
    sa.Column("id", sa.Integer, sa.CheckConstraint("id = 1"), primary_key=True),
    sa.Column("epsilon", sa.Float, sa.CheckConstraint(_SIZED), nullable=False),
    sa.Column("delta", sa.Float, sa.CheckConstraint(_RARE), nullable=False),
    sa.Column("adjacency", sa.String, nullable=False),
    sa.Column("unit", sa.String, nullable=False),
    sa.Column("rule", sa.String, nullable=False),
    sa.Column("order", sa.Float, nullable=False),
)
CHARGES = sa.Table(
    "charges",
    _META,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("time", sa.String, nullable=False),
    sa.Column("label", sa.String, nullable=False),
    sa.Column("epsilon", sa.Float, sa.CheckConstraint(_SIZED), nullable=False),
    sa.Column("delta", sa.Float, sa.CheckConstraint(_RARE), nullable=False),
    sa.Column(
        "divergence",
        sa.Float,
        sa.CheckConstraint("typeof(divergence) = 'real' AND divergence >= 0"),
        nullable=False,
    ),
    sa.Column("event", sa.String, nullable=False),
)
_APPEND_ONLY = [
    f"CREATE TRIGGER IF NOT EXISTS {table}_no_{verb.lower()} BEFORE {verb} ON {table} "
    f"BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END"
    for table in ("book", "charges", "chain")
    for verb in ("UPDATE", "DELETE")
]


@frozen
class Charge:
    """One charge of a ledger."""

    time: str
    label: str
    epsilon: float
    delta: float
    event: str


def write_terms(connection: sa.Connection, terms: Mapping[str, Any]) -> None:
    """Creates the tables of a ledger, and writes its terms."""
    _META.create_all(connection)
    chain.begin(connection)
    for trigger in _APPEND_ONLY:
        connection.execute(sa.text(trigger))
    connection.execute(sa.insert(BOOK).values(**terms))
    chain.link(connection, "book", connection.execute(sa.select(BOOK)).one())


def write_charge(connection: sa.Connection, line: Mapping[str, Any]) -> None:
    """Writes a charge and its link."""
    made = connection.execute(sa.insert(CHARGES).values(**line)).inserted_primary_key
    assert made is not None
    charge = sa.select(CHARGES).where(CHARGES.c.id == made[0])
    chain.link(connection, "charge", connection.execute(charge).one())


def read_charges(connection: sa.Connection) -> list[Charge]:
    """All charges, oldest first."""
    columns = (CHARGES.c.time, CHARGES.c.label, CHARGES.c.epsilon, CHARGES.c.delta, CHARGES.c.event)
    return [Charge(*row) for row in connection.execute(sa.select(*columns).order_by(CHARGES.c.id))]


def spent_so_far(connection: sa.Connection) -> Spent:
    """The costs of all charges so far."""
    columns = (CHARGES.c.epsilon, CHARGES.c.delta, CHARGES.c.divergence)
    rows = connection.execute(sa.select(*columns).order_by(CHARGES.c.id)).all()
    return Spent(*(tuple(row[i] for row in rows) for i in range(len(columns))))


def refuse_changed(connection: sa.Connection, path: Path) -> None:
    """Raises if a line of the ledger was changed after it was written."""
    chain.refuse_broken(connection, path)
    for kind, table in (("book", BOOK), ("charge", CHARGES)):
        lines = connection.execute(sa.select(table).order_by(table.c.id)).all()
        chain.refuse_changed(connection, path, kind, lines)


def refuse_strange(connection: sa.Connection, mark: chain.Mark, path: Path) -> None:
    """Raises if the file is not a ledger of this version."""
    tables = set(sa.inspect(connection).get_table_names())
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
    if not is_there(file) and chain.Mark(file).read() is not None:
        raise LedgerError(
            f"There was a ledger at {file}: its mark file is still there. Restore its newest copy, or "
            "create a ledger under another name with the remaining budget."
        )
    try:
        os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        raise LedgerError(
            f"{file} exists already; the terms of a ledger are fixed when it is created."
        ) from None
    except OSError as error:
        raise LedgerError(f"No ledger can be created at {file}: {error.strerror}.") from error

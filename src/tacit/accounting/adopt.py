"""Accepting a ledger as it is: one from the first version, or one without its mark file."""

import os

import sqlalchemy as sa

from tacit.accounting import chain, journal
from tacit.accounting.address import Address, where_of
from tacit.accounting.book import (
    BOOK,
    CHARGES,
    create_tables,
    refuse_changed,
    write_charge,
    write_terms,
)
from tacit.accounting.ledger import Ledger
from tacit.accounting.store import engine_of, is_there, telling
from tacit.errors import LedgerError


def adopt(path: str | os.PathLike[str]) -> Ledger:
    """Accepts the ledger at a path as it is, and writes its mark file.

    Only a person can know that a ledger without a mark file is the newest copy, so this never happens by
    itself. A ledger that has a mark file is refused, and so are lines that no ledger could contain.

    Args:
        path: The file of the ledger.

    Returns:
        The ledger.

    Raises:
        LedgerError: If there is no ledger at the path, it has a mark file, or it was changed.
    """
    file = where_of(path)
    if isinstance(file, Address):
        raise LedgerError(
            f"{file} needs no adopting: who opens it first writes a mark of their own."
        )
    if not is_there(file):
        raise LedgerError(f"There is no file at {file}; a missing ledger cannot be adopted.")
    mark = chain.Mark(file)
    if mark.read() is not None:
        raise LedgerError(f"{file} has its mark file beside it and needs no adopting.")
    engine = engine_of(file)
    with telling(file), mark.advancing() as advance, engine.begin() as connection:
        tables = set(sa.inspect(connection).get_table_names())
        if not {"book", "charges"} <= tables:
            raise LedgerError(f"{file} holds no ledger.")
        if "chain" not in tables:
            _rewrite(connection, answers="answers" in tables)
        refuse_changed(connection, file)
        if "answers" in tables:
            journal.refuse_changed(connection, file)
        advance(chain.head(connection))
    with telling(file), engine.connect() as connection:
        _rebuild(connection)
    return Ledger(file)


def _rewrite(connection: sa.Connection, *, answers: bool) -> None:
    """Copies the lines of a ledger of the first version into tables of this version."""
    terms = connection.execute(sa.select(BOOK)).mappings().one()
    first = [column for column in CHARGES.c if column is not CHARGES.c.run_id]
    charges = connection.execute(sa.select(*first).order_by(CHARGES.c.id)).mappings().all()
    for table in (BOOK, CHARGES):
        table.drop(connection)
    create_tables(connection)
    write_terms(connection, dict(terms))
    for line in charges:
        write_charge(connection, dict(line))
    if answers:
        journal.link_all(connection)


def _rebuild(connection: sa.Connection) -> None:
    """Rewrites the file, so that nothing remains of data that was deleted without being overwritten."""
    driver = connection.connection.driver_connection
    assert driver is not None
    driver.execute("VACUUM")

"""Databases on a PostgreSQL server: serialisable transactions, one after the other, and readable errors."""

from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa

from tacit.accounting.address import Address
from tacit.accounting.store import PATIENCE, TryAgain
from tacit.errors import InvalidArgument, LedgerError, MissingPackage

# The tables are in a schema of their own, and found nowhere else.
SCHEMA = "tacit"
_PATH = f"SET search_path TO {SCHEMA}, pg_temp"
# A table without columns: whoever has locked it may write. Unlike a query, this statement takes no
# snapshot, so that what is read afterwards includes what the one before has written.
LOCK = f"LOCK TABLE {SCHEMA}.turn IN EXCLUSIVE MODE"
_LOCAL = (
    f"SET LOCAL lock_timeout = '{PATIENCE:.0f}s'",
    # A process that stands still in a transaction would keep all others from charging.
    f"SET LOCAL idle_in_transaction_session_timeout = '{PATIENCE:.0f}s'",
    "SET LOCAL synchronous_commit = on",
    "SET LOCAL extra_float_digits = 1",  # as where the digests of lines are made
)
_USUAL = {"connect_timeout": "10", "application_name": "tacit"}
_AGAIN = (
    "40001",  # not serialisable
    "40P01",  # deadlock
    "23505",  # somebody else wrote the same line of the chain
)
_SAID = {
    "3F000": "holds no ledger; create one with: tacit ledger new",
    "42P01": "holds no ledger; create one with: tacit ledger new",
    "42501": "does not allow this to you; only its steward may create, raise or grant, and only its "
    "analysts may charge and read",
    "55P03": "is locked by another process; try again when that is done",
    "57014": "is locked by another process; try again when that is done",
    "25P03": "has ended a transaction that stood still for too long; nothing was charged",
    "25006": "cannot be written: the server is a copy that only reads",
    "42704": "has no role of that name; the administrator creates it with CREATE ROLE",
    "42P06": "holds a ledger already; the terms of a ledger are fixed when it is created",
    "53100": "cannot be written, as the server's disk is full",
    "53300": "cannot be reached: the server has too many connections; try again later",
    "XX001": "is damaged; restore its newest copy",
    "XX002": "is damaged; restore its newest copy",
}
_UNSURE = "has lost the connection; see with tacit ledger show whether anything was charged"
# What the driver says about a connection that was not made has no code, so that its words must do.
_UNREACHED = {
    "password authentication failed": "refuses this user or this password",
    "no password supplied": "asks for a password; keep it in the file ~/.pgpass, or in PGPASSWORD",
    "does not exist": "cannot be opened: the server has no such database or no such user",
    "pg_hba.conf": "is closed to this user from this machine (see pg_hba.conf at the server)",
    "permission denied for database": "does not allow this user to connect",
    "too many clients": "cannot be reached: the server has too many connections; try again later",
    "connection slots": "cannot be reached: the server has too many connections; try again later",
    "resolve host": "cannot be reached: there is no host of that name",
    "translate host name": "cannot be reached: there is no host of that name",
    "starting up": "cannot be reached: the server is starting; try again in a moment",
    "SSL": "cannot be reached: the encrypted connection was refused (see sslmode and the certificates)",
    "certificate": "cannot be reached: the encrypted connection was refused (see the certificates)",
    "refused": "cannot be reached: no server answers there; is it running, at this host and port",
    "No such file": "cannot be reached: no server answers there; is it running, at this host and port",
    "timeout": "cannot be reached: no server answers there; is it running, at this host and port",
}


def engine_at(address: Address) -> sa.Engine:
    """Opens a database, with serialisable transactions that each have a connection of their own."""
    try:
        engine = sa.create_engine(
            address.url,
            poolclass=sa.NullPool,
            isolation_level="SERIALIZABLE",
            use_native_hstore=False,
            hide_parameters=True,
            connect_args={
                name: each for name, each in _USUAL.items() if name not in address.url.query
            },
        )
    except ModuleNotFoundError:
        raise MissingPackage("psycopg", "A ledger on a PostgreSQL server") from None

    @sa.event.listens_for(engine, "connect", insert=True)
    def _connect(connection: object, _record: object) -> None:
        with connection.cursor() as cursor:  # type: ignore[attr-defined]  # the driver is optional
            cursor.execute(_PATH)
        connection.commit()  # type: ignore[attr-defined]

    return engine


@contextmanager
def begun(engine: sa.Engine, address: Address, *, alone: bool = True) -> Iterator[sa.Connection]:
    """A transaction. All that is written inside it is saved at its end, or nothing is.

    Args:
        engine: The open database.
        address: Its address, for messages.
        alone: Whether to wait until nobody else is in such a transaction.

    Yields:
        The connection.

    Raises:
        LedgerError: If the database cannot be reached, or refuses what was asked.
    """
    try:
        connection = engine.connect()
    except (sa.exc.DBAPIError, OSError, UnicodeError) as error:
        raise LedgerError(f"{address} {_unreached(error, address)}.") from None
    except sa.exc.SQLAlchemyError:
        raise InvalidArgument("The address of the ledger has an option that is unknown.") from None
    with telling_of(address), connection, connection.begin():
        for statement in (*_LOCAL, *([LOCK] if alone else [])):
            connection.exec_driver_sql(statement)
        yield connection


@contextmanager
def telling_of(address: Address) -> Iterator[None]:
    """Turns errors of the database into a `LedgerError` that says what to do."""
    try:
        yield
    except sa.exc.DBAPIError as error:
        code = _code(error)
        said = f"{address} {address.redacted(_said(error, code))}."
        raise (TryAgain if code in _AGAIN else LedgerError)(said) from None


def _said(error: sa.exc.DBAPIError, code: str) -> str:
    if code in _SAID:
        return _SAID[code]
    if code in _AGAIN:
        return "is being written by others; try again"
    if code == "P0001":  # a rule of the ledger's own
        return f"refuses the line: {_first(error)}"
    # Text with a zero byte is refused by the driver, which has no code for it.
    if code.startswith("23") or isinstance(error, sa.exc.DataError):
        return "does not accept such a line"
    if not code or code.startswith(("08", "57P")):
        return _UNSURE
    return f"cannot be used as a ledger: {_first(error)}"


def _unreached(error: Exception, address: Address) -> str:
    text = str(error.orig if isinstance(error, sa.exc.DBAPIError) else error)
    known = (said for words, said in _UNREACHED.items() if words in text)
    first = text.strip().partition("\n")[0]
    return next(known, None) or f"cannot be reached: {address.redacted(first)}".rstrip(".")


def _code(error: sa.exc.DBAPIError) -> str:
    """PostgreSQL's code of an error; the driver's own errors have none."""
    import psycopg

    if not isinstance(error.orig, psycopg.Error):
        return ""
    code: str | None = error.orig.diag.sqlstate
    return code or ""


def _first(error: sa.exc.DBAPIError) -> str:
    return str(error.orig).strip().partition("\n")[0].rstrip(".")

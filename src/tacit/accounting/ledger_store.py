"""Where a ledger is stored: an SQLite file, or a database on a PostgreSQL server.

Opens either with durable, serialisable transactions, and turns errors of the database into messages that say what to
do. On a server, triggers and roles enforce the rules of a ledger whatever a client does: the owner of the schema is the
steward; analysts may read everything and append charges; nobody can change or remove a line; each charge is signed with
the name of the login and the server's clock, and has its link in the chain, which the server computes itself; under the rule
``"sum"`` charges never exceed the total. Whether a charge covers what its run does is checked by the client.
"""

import hashlib
import os
import re
import sqlite3
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import sqlalchemy as sa

from tacit._files import nearest_file
from tacit.accounting.ledger_chain import (
    APPEND_ONLY_TABLES,
    TABLES_BY_KIND,
    ChainHead,
    LedgerTerms,
    MarkFile,
    chain_head,
    create_tables,
    write_terms,
)
from tacit.errors import InvalidArgument, LedgerError, MissingPackage, os_error_reason

_URL_SCHEMES = ("postgresql", "postgresql+psycopg", "postgres")
_SECRET_OPTIONS = ("password", "sslpassword", "oauth_client_secret")
_EXAMPLE_URL = "postgresql://user@host:5432/database"
# An address that was made a path has lost a slash.
_URL_MADE_PATH = re.compile(r"(^|[/\\])postgres(ql)?(\+\w+)?:[/\\]")


@dataclass(frozen=True, repr=False)
class DatabaseAddress:
    """The address of a database. As text it has no password.

    ``url`` is the whole address, with the password if there is one. It is for the driver only.
    """

    url: sa.URL

    @property
    def name(self) -> str:
        """The name of the database, which may be saved and published."""
        return str(self.url.database)

    @property
    def host(self) -> str:
        """The host, or the folder of the server's socket, as the driver will find it."""
        host = self.url.host or self.url.query.get("host") or os.environ.get("PGHOST", "")
        return host if isinstance(host, str) else ",".join(host)

    @property
    def port(self) -> str:
        """The port, as the driver will find it."""
        port = self.url.port or self.url.query.get("port") or os.environ.get("PGPORT", "5432")
        return ",".join(port) if isinstance(port, tuple) else str(port)

    @property
    def database(self) -> str:
        """The database without the user: the same for everybody who shares the ledger."""
        port = "" if self.port == "5432" else f":{self.port}"
        return f"postgresql://{self.host}{port}/{self.name}"

    @property
    def without_secrets(self) -> str:
        """The address with all its options, but without secrets."""
        plain = self.url.difference_update_query(_SECRET_OPTIONS)
        plain = sa.URL.create(
            "postgresql", plain.username, None, plain.host, plain.port, plain.database, plain.query
        )
        return plain.render_as_string(hide_password=False)

    def redact(self, text: str) -> str:
        """A text without the secrets of this address."""
        secrets = (self.url.password, *(self.url.query.get(name) for name in _SECRET_OPTIONS))
        for secret in filter(None, secrets):
            for each in (secret,) if isinstance(secret, str) else secret:
                text = text.replace(each, "***")
        return text

    def __str__(self) -> str:
        user = f"{self.url.username}@" if self.url.username else ""
        return self.database.replace("://", f"://{user}", 1)

    def __repr__(self) -> str:
        return str(self)


LedgerLocation = Path | DatabaseAddress


def parse_location(path: str | os.PathLike[str]) -> LedgerLocation:
    """The file or the database that a path or an address names.

    Args:
        path: The path of a file, or the address of a database as text.

    Returns:
        A path or an address.

    Raises:
        InvalidArgument: If it is neither. The message does not repeat it: it may have a password.
    """
    text = os.fspath(path)
    if not isinstance(text, str):
        raise InvalidArgument("A ledger is a file, or a database such as " + _EXAMPLE_URL + ".")
    scheme, found, _ = text.partition("://")
    if found and isinstance(path, str) and re.fullmatch(r"[\w+.-]+", scheme):
        return _parse_address(text, scheme)
    if _URL_MADE_PATH.search(text):
        raise InvalidArgument(
            f"Pass the address of a database as text, such as '{_EXAMPLE_URL}', not as a path."
        )
    return Path(path)


def _parse_address(text: str, scheme: str) -> DatabaseAddress:
    if scheme not in _URL_SCHEMES:
        raise InvalidArgument(
            f"A ledger is a file, or a database on a PostgreSQL server such as {_EXAMPLE_URL}."
        )
    try:
        url = sa.make_url(text)
    except (sa.exc.ArgumentError, ValueError):
        url = None
    if url is None or not url.database or "/" in url.database:
        raise InvalidArgument(
            f"The address of the ledger is not complete; write it as {_EXAMPLE_URL}."
        ) from None
    return DatabaseAddress(url.set(drivername="postgresql+psycopg"))


# Seconds to wait for another process that writes.
LOCK_TIMEOUT = 60.0
_SQLITE_MESSAGES = {
    "SQLITE_BUSY": "is locked by another process; try again when that is done",
    "SQLITE_LOCKED": "is locked by another process; try again when that is done",
    "SQLITE_FULL": "cannot be written, as the disk is full; make room and try again",
    "SQLITE_READONLY": "cannot be written: it is read-only, was moved, or its folder is read-only",
    "SQLITE_CANTOPEN": "cannot be opened: it is gone, or you may not read it",
    "SQLITE_NOTADB": "is not a ledger, or is damaged",
    "SQLITE_CORRUPT": "is damaged; restore its newest copy",
    "SQLITE_IOERR": "cannot be read or written: the disk reports an error",
    "SQLITE_CONSTRAINT": "does not accept such a line",
}


class RetryTransaction(LedgerError):
    """A transaction that was undone because of another one. It may be repeated."""


def sqlite_engine(path: Path) -> sa.Engine:
    """Opens a file, which must exist, so that a transaction is on disk completely or not at all.

    Deleted data are overwritten in the file, and no log beside it keeps a copy.
    """
    address = f"{path.resolve().as_uri()}?mode=rw"  # opening must never create a file

    def connect() -> sqlite3.Connection:
        # As SQLAlchemy recommends for SQLite: the driver must not begin transactions by itself.
        return sqlite3.connect(address, uri=True, timeout=LOCK_TIMEOUT, isolation_level=None)

    # Every transaction opens the file and closes it again.
    engine = sa.create_engine("sqlite://", creator=connect, poolclass=sa.NullPool)

    @sa.event.listens_for(engine, "connect")
    def _connect(connection: sqlite3.Connection, _record: object) -> None:
        # Everything, also the removal of the journal, is on disk before commit returns.
        connection.execute("PRAGMA synchronous=EXTRA")
        connection.execute("PRAGMA journal_mode=DELETE")
        connection.execute("PRAGMA secure_delete=ON")

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


def file_exists(path: Path) -> bool:
    """Whether there is a file at a path; raises if that cannot be found out."""
    try:
        path.resolve()
        return path.exists()
    # In a folder that may not be read, or too long; with a zero byte; a link to itself.
    except (OSError, ValueError, RuntimeError) as error:
        reason = os_error_reason(error) or "it is not a path"
        raise LedgerError(
            f"No ledger can be found at the path that was passed: {reason}."
        ) from None


@contextmanager
def translate_sqlite_errors(location: LedgerLocation) -> Iterator[None]:
    """Turns errors of the database into a `LedgerError` that says what to do."""
    try:
        yield
    except sa.exc.DBAPIError as error:
        raise LedgerError(f"{location} {_sqlite_message(error.orig)}.") from error
    except sqlite3.Error as error:
        raise LedgerError(f"{location} {_sqlite_message(error)}.") from error


def _sqlite_message(error: BaseException | None) -> str:
    # Errors of Python's module have no name.
    name = getattr(error, "sqlite_errorname", "") if isinstance(error, sqlite3.Error) else ""
    kind = "_".join(name.split("_")[:2])
    return _SQLITE_MESSAGES.get(kind, f"cannot be used as a ledger: {error}")


class LedgerBackend(Protocol):
    """Where a ledger is stored."""

    location: LedgerLocation
    mark: MarkFile
    reopen_text: str  # what opens the ledger in another process; without a password

    def create(self, terms: LedgerTerms, analysts: Sequence[str]) -> None:
        """Creates a ledger; raises if there is, or was, one."""
        ...

    def begin(self) -> AbstractContextManager[sa.Connection]:
        """A transaction in which nobody else can write; errors say what to do."""
        ...

    def check_can_raise(self) -> None:
        """Raises if the total of the ledger cannot be raised."""
        ...


class SQLiteBackend:
    """An SQLite file with a mark file beside it."""

    def __init__(self, location: Path) -> None:
        self.location: LedgerLocation = location
        self._exists = file_exists(location)
        self._file = location.resolve()  # now: the working folder may change
        self.mark = MarkFile(self._file)
        self._engine = sqlite_engine(self._file)
        self.reopen_text = str(self._file)

    def create(self, terms: LedgerTerms, analysts: Sequence[str]) -> None:
        """Creates a file that only its owner can read."""
        if analysts:
            raise InvalidArgument(
                "A ledger in a file has no roles: whoever can write the file can charge; leave out analysts."
            )
        if not self._exists:
            self.mark.check_never_existed(str(self._file))
        try:
            os.close(os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            raise LedgerError(
                f"{self._file} exists already; the terms of a ledger are fixed when it is created. To charge it, "
                f'open it: tacit.Ledger("{self.location}"), or --ledger {self.location}.'
            ) from None
        except OSError as error:
            raise LedgerError(
                f"No ledger can be created at {self._file}: {error.strerror}."
            ) from error
        self._exists = True
        try:
            with self.mark.advancing() as advance, self.begin() as connection:
                create_tables(connection)
                write_terms(connection, terms)
                advance(chain_head(connection))
        except BaseException:
            self._file.unlink()
            raise

    @contextmanager
    def begin(self) -> Iterator[sa.Connection]:
        """BEGIN IMMEDIATE: nobody else may write."""
        if not self._exists and self.mark.read() is None:
            raise LedgerError(
                f"There is no ledger at {self.location}; create one with tacit.Ledger.new(path, total=...) "
                f"or: tacit ledger new.{nearest_file(str(self.location))}"
            )
        if not self._exists:
            raise LedgerError(
                f"The ledger {self.location} is gone: the mark file beside it shows that there was one. Restore "
                "its newest copy; the remaining budget cannot be known without it."
            )
        with translate_sqlite_errors(self.location), self._engine.begin() as connection:
            yield connection

    def check_can_raise(self) -> None:
        """In a file there is no steward who alone could do it."""
        raise LedgerError(
            f"The total of {self.location} was fixed when it was created; only a ledger on a server, which "
            "knows its steward, can be raised."
        )


# The tables are in a schema of their own, and found nowhere else.
SCHEMA = "tacit"
_SET_SEARCH_PATH = f"SET search_path TO {SCHEMA}, pg_temp"
# A table without columns: whoever has locked it may write. Unlike a query, this statement takes no
# snapshot, so that what is read afterwards includes what the one before has written.
LOCK_STATEMENT = f"LOCK TABLE {SCHEMA}.turn IN EXCLUSIVE MODE"
_TRANSACTION_SETTINGS = (
    f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT:.0f}s'",
    # A process that stands still in a transaction would keep all others from charging.
    f"SET LOCAL idle_in_transaction_session_timeout = '{LOCK_TIMEOUT:.0f}s'",
    "SET LOCAL synchronous_commit = on",
    "SET LOCAL extra_float_digits = 1",  # as where the digests of lines are made
)
_CONNECT_DEFAULTS = {"connect_timeout": "10", "application_name": "tacit"}
_RETRY_SQLSTATES = (
    "40001",  # not serialisable
    "40P01",  # deadlock
    "23505",  # somebody else wrote the same line of the chain
)
_SQLSTATE_MESSAGES = {
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
_CONNECTION_LOST = (
    "has lost the connection; see with tacit ledger show whether anything was charged"
)
# What the driver says about a connection that was not made has no code, so that its words must do.
_CONNECTION_MESSAGES = {
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


def postgres_engine(address: DatabaseAddress) -> sa.Engine:
    """Opens a database, with serialisable transactions that each have a connection of their own."""
    try:
        engine = sa.create_engine(
            address.url,
            poolclass=sa.NullPool,
            isolation_level="SERIALIZABLE",
            use_native_hstore=False,
            hide_parameters=True,
            connect_args={
                name: each
                for name, each in _CONNECT_DEFAULTS.items()
                if name not in address.url.query
            },
        )
    except ModuleNotFoundError:
        raise MissingPackage("psycopg", "A ledger on a PostgreSQL server") from None

    @sa.event.listens_for(engine, "connect", insert=True)
    def _connect(connection: object, _record: object) -> None:
        with connection.cursor() as cursor:  # type: ignore[attr-defined]  # the driver is optional
            cursor.execute(_SET_SEARCH_PATH)
        connection.commit()  # type: ignore[attr-defined]

    return engine


@contextmanager
def postgres_transaction(
    engine: sa.Engine, address: DatabaseAddress, *, alone: bool = True
) -> Iterator[sa.Connection]:
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
        raise LedgerError(f"{address} {_connection_message(error, address)}.") from None
    except sa.exc.SQLAlchemyError:
        raise InvalidArgument("The address of the ledger has an option that is unknown.") from None
    with translate_postgres_errors(address), connection, connection.begin():
        for statement in (*_TRANSACTION_SETTINGS, *([LOCK_STATEMENT] if alone else [])):
            connection.exec_driver_sql(statement)
        yield connection


@contextmanager
def translate_postgres_errors(address: DatabaseAddress) -> Iterator[None]:
    """Turns errors of the database into a `LedgerError` that says what to do."""
    try:
        yield
    except sa.exc.DBAPIError as error:
        code = _sqlstate(error)
        message = f"{address} {address.redact(_postgres_message(error, code))}."
        raise (RetryTransaction if code in _RETRY_SQLSTATES else LedgerError)(message) from None


def _postgres_message(error: sa.exc.DBAPIError, code: str) -> str:
    if code in _SQLSTATE_MESSAGES:
        return _SQLSTATE_MESSAGES[code]
    if code in _RETRY_SQLSTATES:
        return "is being written by others; try again"
    if code == "P0001":  # a rule of the ledger's own
        return f"refuses the line: {_first_line(error)}"
    # Text with a zero byte is refused by the driver, which has no code for it.
    if code.startswith("23") or isinstance(error, sa.exc.DataError):
        return "does not accept such a line"
    if not code or code.startswith(("08", "57P")):
        return _CONNECTION_LOST
    return f"cannot be used as a ledger: {_first_line(error)}"


def _connection_message(error: Exception, address: DatabaseAddress) -> str:
    text = str(error.orig if isinstance(error, sa.exc.DBAPIError) else error)
    known = (message for words, message in _CONNECTION_MESSAGES.items() if words in text)
    first = text.strip().partition("\n")[0]
    return next(known, None) or f"cannot be reached: {address.redact(first)}".rstrip(".")


def _sqlstate(error: sa.exc.DBAPIError) -> str:
    """PostgreSQL's code of an error; the driver's own errors have none."""
    import psycopg

    if not isinstance(error.orig, psycopg.Error):
        return ""
    code: str | None = error.orig.diag.sqlstate
    return code or ""


def _first_line(error: sa.exc.DBAPIError) -> str:
    return str(error.orig).strip().partition("\n")[0].rstrip(".")


# The total that holds now: the last line of the raises, or of the book.
_SELECT_TOTAL = (
    "SELECT epsilon, delta FROM (SELECT 0 AS id, epsilon, delta FROM book UNION ALL "
    "SELECT id, epsilon, delta FROM raises) AS totals ORDER BY id DESC LIMIT 1"
)
_SQL_NOW = (
    """to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS') || '+00:00'"""
)
_TABLE_PLACEHOLDER = "TABLE_OF_THE_KIND"  # stands for the table of the line that a link is of
# No value of a user is part of these texts.
_TRIGGER_BODIES = {
    "append_only": "RAISE EXCEPTION 'the ledger is append-only';",
    "admit_charge": f"""
        IF current_setting('transaction_isolation') <> 'serializable' THEN
            RAISE EXCEPTION 'charges need a serializable transaction';
        END IF;
        IF NEW.id <> (SELECT coalesce(max(id), 0) + 1 FROM charges) THEN
            RAISE EXCEPTION 'charges are numbered one after the other';
        END IF;
        NEW.time := {_SQL_NOW};
        {_SELECT_TOTAL} INTO total;
        SELECT coalesce(sum(CASE WHEN stopped = 1 THEN stopped_epsilon ELSE epsilon END), 0) AS epsilon,
            coalesce(sum(delta), 0) AS delta
            FROM charges LEFT JOIN finishes ON finishes.charge = charges.id INTO spent;
        IF (SELECT rule FROM book) = 'sum' AND (
            spent.epsilon + NEW.epsilon > total.epsilon * (1 + 1e-9)
            OR spent.delta + NEW.delta > total.delta * (1 + 1e-9)
        ) THEN
            RAISE EXCEPTION 'too little is left of the total';
        END IF;
        RETURN NEW;""",  # noqa: S608
    "sign_entry": """
        IF EXISTS (SELECT FROM entries WHERE id >= NEW.id) THEN
            RAISE EXCEPTION 'entries come in the order of their charges';
        END IF;
        NEW.analyst := session_user;
        RETURN NEW;""",
    "admit_finish": f"""
        IF NEW.id <> (SELECT coalesce(max(id), 0) + 1 FROM finishes) THEN
            RAISE EXCEPTION 'results are numbered one after the other';
        END IF;
        IF NOT EXISTS (SELECT FROM entries WHERE id = NEW.charge AND analyst = session_user) THEN
            RAISE EXCEPTION 'a result is recorded by the login that was charged';
        END IF;
        IF NEW.stopped = 1 AND NOT EXISTS (
            SELECT FROM charges WHERE id = NEW.charge AND stopped_epsilon IS NOT NULL
        ) THEN
            RAISE EXCEPTION 'this run was not charged as one that may stop early';
        END IF;
        NEW.time := {_SQL_NOW};
        RETURN NEW;""",  # noqa: S608
    "admit_raise": f"""
        NEW.time := {_SQL_NOW};
        NEW.steward := session_user;
        {_SELECT_TOTAL} INTO total;
        IF NEW.epsilon < total.epsilon OR NEW.delta < total.delta THEN
            RAISE EXCEPTION 'a total can only be raised';
        END IF;
        RETURN NEW;""",
    # A wrong digest by an analyst would look like a line that was changed later, and block the ledger.
    "follow_chain": rf"""
        SELECT coalesce(max(id), 0) AS id FROM chain INTO last;
        SELECT hash FROM chain WHERE id = last.id INTO before;
        IF NEW.id <> last.id + 1 THEN
            RAISE EXCEPTION 'a link must follow from the one before it';
        END IF;
        IF NEW.kind NOT IN ('charge', 'entry', 'finish')
            AND NOT has_table_privilege(session_user, 'raises', 'INSERT') THEN
            RAISE EXCEPTION 'only the steward may add such a link';
        END IF;
        IF {_TABLE_PLACEHOLDER} IS NOT NULL THEN
            EXECUTE 'SELECT row_to_json(line)::text AS text FROM ' || {_TABLE_PLACEHOLDER}
                || ' AS line ORDER BY id OFFSET $1 LIMIT 1'
                INTO line USING (SELECT count(*) FROM chain WHERE kind = NEW.kind);
            IF line.text IS NULL THEN
                RAISE EXCEPTION 'a link needs its line';
            END IF;
            NEW.digest := sha256(convert_to(line.text, 'UTF8'));
        END IF;
        NEW.hash := sha256(
            coalesce(before.hash, ''::bytea) || '\x00'::bytea || convert_to(NEW.kind, 'UTF8')
            || '\x00'::bytea || NEW.digest
        );
        RETURN NEW;""",  # noqa: S608
    "need_link": """
        IF (SELECT count(*) FROM charges) <> (SELECT count(*) FROM chain WHERE kind = 'charge')
            OR NOT EXISTS (SELECT FROM entries WHERE id = NEW.id) THEN
            RAISE EXCEPTION 'a charge needs its entry and its link';
        END IF;
        RETURN NULL;""",
    "need_finish_link": """
        IF (SELECT count(*) FROM finishes) <> (SELECT count(*) FROM chain WHERE kind = 'finish') THEN
            RAISE EXCEPTION 'a result needs its link';
        END IF;
        RETURN NULL;""",
    "need_line": """
        IF (SELECT count(*) FROM charges) <> (SELECT count(*) FROM chain WHERE kind = 'charge')
            OR (SELECT count(*) FROM entries) <> (SELECT count(*) FROM chain WHERE kind = 'entry')
            OR (SELECT count(*) FROM finishes) <> (SELECT count(*) FROM chain WHERE kind = 'finish') THEN
            RAISE EXCEPTION 'a link needs its line';
        END IF;
        RETURN NULL;""",
}
_TRIGGERS = {
    "admit_charge": "BEFORE INSERT ON charges",
    "sign_entry": "BEFORE INSERT ON entries",
    "admit_finish": "BEFORE INSERT ON finishes",
    "admit_raise": "BEFORE INSERT ON raises",
    "follow_chain": "BEFORE INSERT ON chain",
    "need_link": "AFTER INSERT ON charges DEFERRABLE INITIALLY DEFERRED",
    "need_finish_link": "AFTER INSERT ON finishes DEFERRABLE INITIALLY DEFERRED",
    "need_line": "AFTER INSERT ON chain DEFERRABLE INITIALLY DEFERRED",
}
_ANALYST_GRANTS = (
    "USAGE ON SCHEMA {schema}",
    "SELECT ON ALL TABLES IN SCHEMA {schema}",
    "INSERT ON {schema}.charges, {schema}.entries, {schema}.finishes, {schema}.chain",
    "UPDATE ON {schema}.turn",  # it has no columns: this only allows to lock it
)


def _create_schema(connection: sa.Connection) -> None:
    """Creates the schema, which belongs to whoever creates it: the steward."""
    for statement in (
        f"CREATE SCHEMA {SCHEMA}",
        f"REVOKE ALL ON SCHEMA {SCHEMA} FROM PUBLIC",
        f"CREATE TABLE {SCHEMA}.turn ()",
    ):
        connection.exec_driver_sql(statement)


def _create_triggers(connection: sa.Connection) -> None:
    """Creates the triggers, once the tables are there."""
    kinds = TABLES_BY_KIND.items()
    tables = " ".join(f"WHEN '{kind}' THEN '{table.name}'" for kind, table in kinds)
    for name, rule in _TRIGGER_BODIES.items():
        body = rule.replace(_TABLE_PLACEHOLDER, f"(CASE NEW.kind {tables} END)")
        connection.exec_driver_sql(
            f"CREATE FUNCTION {SCHEMA}.{name}() RETURNS trigger LANGUAGE plpgsql "
            f"SET search_path = {SCHEMA}, pg_temp SET extra_float_digits = 1 AS "
            f"$rule$ DECLARE total record; spent record; last record; before record; line record; BEGIN {body} END $rule$"
        )
    for name, when in _TRIGGERS.items():
        kind = "CONSTRAINT TRIGGER" if "DEFERRABLE" in when else "TRIGGER"
        connection.exec_driver_sql(
            f"CREATE {kind} {name} {when} FOR EACH ROW EXECUTE FUNCTION {SCHEMA}.{name}()"
        )
    for table in APPEND_ONLY_TABLES:
        connection.exec_driver_sql(
            f"CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {table} "
            f"FOR EACH STATEMENT EXECUTE FUNCTION {SCHEMA}.append_only()"
        )


def _grant_to_analysts(connection: sa.Connection, roles: Sequence[str]) -> None:
    """Lets roles, which must exist, charge and read."""
    quote = connection.dialect.identifier_preparer.quote_identifier
    for role in roles:
        for grant in _ANALYST_GRANTS:
            connection.exec_driver_sql(f"GRANT {grant.format(schema=SCHEMA)} TO {quote(role)}")


class UserMarkFile(MarkFile):
    """What one user of a ledger on a server remembers of it.

    It is in a folder of their own machine or in one that all share (``TACIT_MARKS``). The first use creates it.
    An older copy of the database is then noticed by whoever has seen a later line of it.
    """

    def __init__(self, address: DatabaseAddress) -> None:
        self.ledger = str(address)
        name = re.sub(r"[^\w.-]+", "_", address.database.partition("://")[2]).strip("_")[:100]
        digest = hashlib.sha256(address.database.encode()).hexdigest()[:12]
        self.path = _marks_folder() / f"{name}-{digest}.mark"
        self._hint = f" (the mark is {self.path})"

    def _head_without_mark(self) -> ChainHead:
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
    """Where marks of ledgers on servers are stored: the same in every working folder."""
    if folder := os.environ.get("TACIT_MARKS"):
        return Path(folder).absolute()
    windows = sys.platform == "win32"
    default = Path("~/AppData/Local" if windows else "~/.local/state").expanduser()
    state = os.environ.get("LOCALAPPDATA" if windows else "XDG_STATE_HOME")
    return (Path(state) if state else default) / "tacit" / "marks"


class PostgresBackend:
    """A database on a server, and the user's own mark of it."""

    def __init__(self, address: DatabaseAddress) -> None:
        self.location: LedgerLocation = address
        self._address = address
        self.mark: MarkFile = UserMarkFile(address)
        self._engine = postgres_engine(address)
        self.reopen_text = address.without_secrets

    def create(self, terms: LedgerTerms, analysts: Sequence[str]) -> None:
        """Creates the tables, and the rules and roles that the server enforces."""
        self.mark.check_never_existed(str(self.location))
        with postgres_transaction(self._engine, self._address, alone=False) as connection:
            _create_schema(connection)
            create_tables(connection)
            _create_triggers(connection)
            write_terms(connection, terms)
            _grant_to_analysts(connection, analysts)

    def begin(self) -> AbstractContextManager[sa.Connection]:
        """A serialisable transaction that has waited for its turn."""
        return postgres_transaction(self._engine, self._address)

    def check_can_raise(self) -> None:
        """The server decides by role."""


def open_backend(path: str | os.PathLike[str]) -> LedgerBackend:
    """The file or database that a path or an address names."""
    location = parse_location(path)
    if isinstance(location, DatabaseAddress):
        return PostgresBackend(location)
    return SQLiteBackend(location)

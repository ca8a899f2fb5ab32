"""SQLite files with durable transactions, and readable errors."""

import errno
import os
import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from tacit.errors import LedgerError, reason_of

if sys.platform != "win32":
    import fcntl

# Seconds to wait for another process that writes.
PATIENCE = 60.0
# Seconds to wait for another process that is about to replace a file.
_TURN = 5.0
_SAID = {
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


class TryAgain(LedgerError):
    """A transaction that was undone because of another one. It may be repeated."""


def engine_of(path: Path) -> sa.Engine:
    """Opens a file, which must exist, so that a transaction is on disk completely or not at all.

    Deleted data are overwritten in the file, and no log beside it keeps a copy.
    """
    address = f"{path.resolve().as_uri()}?mode=rw"  # opening must never create a file

    def connect() -> sqlite3.Connection:
        # As SQLAlchemy recommends for SQLite: the driver must not begin transactions by itself.
        return sqlite3.connect(address, uri=True, timeout=PATIENCE, isolation_level=None)

    # Every transaction opens the file and closes it again.
    engine = sa.create_engine("sqlite://", creator=connect, poolclass=sa.NullPool)

    @sa.event.listens_for(engine, "connect")
    def _connect(connection: Any, _record: Any) -> None:
        # Everything, also the removal of the journal, is on disk before commit returns.
        connection.execute("PRAGMA synchronous=EXTRA")
        connection.execute("PRAGMA journal_mode=DELETE")
        connection.execute("PRAGMA secure_delete=ON")

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


def is_there(path: Path) -> bool:
    """Whether there is a file at a path; raises if that cannot be found out."""
    try:
        path.resolve()
        return path.exists()
    # In a folder that may not be read, or too long; with a zero byte; a link to itself.
    except (OSError, ValueError, RuntimeError) as error:
        reason = reason_of(error) or "it is not a path"
        raise LedgerError(
            f"No ledger can be found at the path that was passed: {reason}."
        ) from None


@contextmanager
def telling(path: Path) -> Iterator[None]:
    """Turns errors of the database into a `LedgerError` that says what to do."""
    try:
        yield
    except sa.exc.DBAPIError as error:
        raise LedgerError(f"{path} {_said(error.orig)}.") from error
    except sqlite3.Error as error:
        raise LedgerError(f"{path} {_said(error)}.") from error


def _said(error: BaseException | None) -> str:
    kind = "_".join(_name(error).split("_")[:2])
    return _SAID.get(kind, f"cannot be used as a ledger: {error}")


def _name(error: BaseException | None) -> str:
    """SQLite's name of an error; errors of Python's module have none."""
    try:
        return error.sqlite_errorname if isinstance(error, sqlite3.Error) else ""
    except AttributeError:
        return ""


def sync_folder(folder: Path) -> None:
    """Puts a folder's list of names on disk, where the system can."""
    if sys.platform != "win32":  # which opens no folders
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Keeps other processes out that say the same of this folder, where the system can.

    A process that stands still must not stop the others, so they wait for a few seconds only.
    """
    if sys.platform == "win32":  # which opens no folders
        yield
        return
    handle, until = os.open(folder, os.O_RDONLY | os.O_DIRECTORY), time.monotonic() + _TURN
    try:
        while not _taken(handle) and time.monotonic() < until:
            time.sleep(0.01)
        yield
    finally:
        os.close(handle)


def _taken(handle: int) -> bool:
    """Whether a folder could be locked; also where its file system has no locks."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in {errno.EAGAIN, errno.EACCES}
    return True

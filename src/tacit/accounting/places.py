"""The two places that a ledger can be in: a file, and a database on a server."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import sqlalchemy as sa

from tacit.accounting import chain, guard, store
from tacit.accounting.address import Address, Where, where_of
from tacit.accounting.book import KINDS, create_tables, make, refuse_lost, write_terms
from tacit.accounting.server import begun, engine_at
from tacit.errors import InvalidArgument, LedgerError


class LedgerPlace(Protocol):
    """Where a ledger is."""

    where: Where
    mark: chain.Mark
    reopened: str  # what opens the place in another process; without a password

    def create(self, terms: Mapping[str, Any], analysts: Sequence[str]) -> None:
        """Creates a ledger there; raises if there is, or was, one."""
        ...

    def begin(self) -> Any:
        """A transaction as a context, alone with the ledger; errors say what to do."""
        ...

    def refuse_to_raise(self) -> None:
        """Raises if the total of a ledger cannot be raised there."""
        ...


class FilePlace:
    """An SQLite file with a mark file beside it."""

    def __init__(self, where: Path) -> None:
        self.where: Where = where
        self._there = store.is_there(where)
        self._file = where.resolve()  # now: the working folder may change
        self.mark = chain.Mark(self._file)
        self._engine = store.engine_of(self._file)
        self.reopened = str(self._file)

    def create(self, terms: Mapping[str, Any], analysts: Sequence[str]) -> None:
        """Creates a file that only its owner can read."""
        if analysts:
            raise InvalidArgument(
                "A ledger in a file has no roles: whoever can write the file can charge; leave out analysts."
            )
        make(self._file)
        self._there = True
        try:
            with self.mark.advancing() as advance, self.begin() as connection:
                create_tables(connection)
                write_terms(connection, terms)
                advance(chain.head(connection))
        except BaseException:
            self._file.unlink()
            raise

    @contextmanager
    def begin(self) -> Iterator[sa.Connection]:
        """BEGIN IMMEDIATE: nobody else may write."""
        if not self._there:
            raise self._missing()
        with store.telling(Path(str(self.where))), self._engine.begin() as connection:
            yield connection

    def refuse_to_raise(self) -> None:
        """In a file there is no steward who alone could do it."""
        raise LedgerError(
            f"The total of {self.where} was fixed when it was created; only a ledger on a server, which "
            "knows its steward, can be raised."
        )

    def _missing(self) -> LedgerError:
        if self.mark.read() is None:
            return LedgerError(
                f"There is no ledger at {self.where}; create one with tacit.Ledger.new(path, total=...) "
                "or: tacit ledger new."
            )
        return LedgerError(
            f"The ledger {self.where} is gone: the mark file beside it shows that there was one. Restore "
            "its newest copy; the remaining budget cannot be known without it."
        )


class ServerPlace:
    """A database on a server, and the user's own mark of it."""

    def __init__(self, where: Address) -> None:
        self.where: Where = where
        self._address = where
        self.mark: chain.Mark = chain.OwnMark(where)
        self._engine = engine_at(where)
        self.reopened = where.open_text

    def create(self, terms: Mapping[str, Any], analysts: Sequence[str]) -> None:
        """Creates the tables, and the rules and roles that the server enforces."""
        refuse_lost(self.mark, self.where)
        with begun(self._engine, self._address, alone=False) as connection:
            guard.open_schema(connection)
            create_tables(connection)
            guard.enforce(connection, KINDS)
            write_terms(connection, terms)
            guard.admit(connection, analysts)

    @contextmanager
    def begin(self) -> Iterator[sa.Connection]:
        """A serialisable transaction that has waited for its turn."""
        with begun(self._engine, self._address) as connection:
            yield connection

    def refuse_to_raise(self) -> None:
        """The server decides by role."""


def place_at(path: str | os.PathLike[str]) -> LedgerPlace:
    """The place that a path or an address names."""
    where = where_of(path)
    return ServerPlace(where) if isinstance(where, Address) else FilePlace(where)

"""Secrets of masks between two messages: each is used once and then deleted.

One process may offer a key and end, and another process use it for masking. So the secret is stored, and the
masked numbers replace it in one transaction.
"""

from typing import Protocol

import sqlalchemy as sa

from tacit.accounting import chain
from tacit.accounting.ledger import Ledger
from tacit.errors import Refused

_META = sa.MetaData()
_KEYS = sa.Table(
    "mask_keys",
    _META,
    sa.Column("session", sa.LargeBinary, primary_key=True),
    sa.Column("secret", sa.LargeBinary),
    sa.Column("digest", sa.LargeBinary),
    sa.Column("masked", sa.LargeBinary),
)


class MaskKeys(Protocol):
    """Stores the secrets of a site's sessions."""

    def kept(self, session: bytes, secret: bytes) -> bytes | None:
        """The secret of a session: the given one if there was none, or None if it was used."""
        ...

    def bound(self, answer: bytes, group: bytes) -> bytes:
        """The group of sites of an answer: the given one if there was none."""
        ...

    def secret(self, session: bytes) -> bytes | None:
        """The secret of a session, or None if it was used or does not exist."""
        ...

    def masked(self, session: bytes, digest: bytes) -> bytes | None:
        """The masked numbers of a session for this question, or None."""
        ...

    def spend(self, session: bytes, digest: bytes, masked: bytes) -> bytes:
        """Replaces the secret by the masked numbers and returns them.

        If the secret was used for the same question before, returns the first masked numbers; for
        another question it is refused.
        """
        ...


class MemoryMaskKeys:
    """Secrets in memory, which end with the process."""

    def __init__(self) -> None:
        self._secrets: dict[bytes, bytes] = {}
        self._groups: dict[bytes, bytes] = {}
        self._masked: dict[bytes, tuple[bytes, bytes]] = {}

    def kept(self, session: bytes, secret: bytes) -> bytes | None:
        """The secret of a session: the given one if there was none, or None if it was used."""
        if session in self._masked:
            return None
        return self._secrets.setdefault(session, secret)

    def bound(self, answer: bytes, group: bytes) -> bytes:
        """The group of sites of an answer: the given one if there was none."""
        return self._groups.setdefault(answer, group)

    def secret(self, session: bytes) -> bytes | None:
        """The secret of a session, or None if it was used or does not exist."""
        return self._secrets.get(session)

    def masked(self, session: bytes, digest: bytes) -> bytes | None:
        """The masked numbers of a session for this question, or None."""
        asked, masked = self._masked.get(session, (None, None))
        return masked if asked == digest else None

    def spend(self, session: bytes, digest: bytes, masked: bytes) -> bytes:
        """Replaces the secret by the masked numbers."""
        if self._secrets.pop(session, None) is None:
            raise _spent()
        self._masked[session] = digest, masked
        return masked


class LedgerMaskKeys:
    """Secrets in the file of a site's ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        with ledger.transaction() as connection:
            _META.create_all(connection)

    def kept(self, session: bytes, secret: bytes) -> bytes | None:
        """The secret of a session: the given one if there was none, or None if it was used."""
        with self._ledger.transaction() as connection:
            row = connection.execute(_of(session)).first()
            if row is None:
                values = {"session": session, "secret": secret}
                connection.execute(sa.insert(_KEYS).values(**values))
                return secret
            return None if row.secret is None else bytes(row.secret)

    def bound(self, answer: bytes, group: bytes) -> bytes:
        """The group of sites of an answer: the given one if there was none.

        It is a line of the ledger's chain, so that a copy of the ledger without it is refused.
        """
        with self._ledger.transaction() as connection:
            row = connection.execute(_of(answer)).first()
            if row is not None:
                return bytes(row.secret or b"")
            connection.execute(sa.insert(_KEYS).values(session=answer, secret=group))
            chain.link(connection, "group", (answer, group))
            return group

    def secret(self, session: bytes) -> bytes | None:
        """The secret of a session, or None if it was used or does not exist."""
        with self._ledger.transaction() as connection:
            row = connection.execute(_of(session)).first()
            return None if row is None else row.secret

    def masked(self, session: bytes, digest: bytes) -> bytes | None:
        """The masked numbers of a session for this question, or None."""
        with self._ledger.transaction() as connection:
            row = connection.execute(_of(session)).first()
            return None if row is None or row.digest != digest else row.masked

    def spend(self, session: bytes, digest: bytes, masked: bytes) -> bytes:
        """Replaces the secret by the masked numbers and returns them.

        If the secret was used for the same question before, returns the first masked numbers; for
        another question it is refused.
        """
        unused = sa.and_(_KEYS.c.session == session, _KEYS.c.secret.is_not(None))
        change = sa.update(_KEYS).where(unused)
        with self._ledger.transaction() as connection:
            done = connection.execute(change.values(secret=None, digest=digest, masked=masked))
            if done.rowcount == 1:
                return masked
            row = connection.execute(_of(session)).first()
        if row is None or row.digest != digest or row.masked is None:
            raise _spent()
        return bytes(row.masked)  # another process was faster, with the same question


def _of(session: bytes) -> sa.Select[tuple[bytes, bytes | None, bytes | None, bytes | None]]:
    return sa.select(_KEYS).where(_KEYS.c.session == session)


def _spent() -> Refused:
    return Refused("The key of this attempt has been used; start another attempt.")

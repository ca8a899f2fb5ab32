"""Integrity of a ledger: a chain of hashes in it, and a mark file beside it.

Every line of a ledger (its terms, a charge, a question that a site answers) has a link: a hash of the
previous link and of the line's own fields. If a line is changed or removed, its link no longer matches. A
ledger whose last lines are missing, such as an older copy, still has a valid chain. So a mark file beside
the ledger records the number of links and the hash of the last one. The mark is written before the
transaction ends and moved into place afterwards: after a crash it may be behind the ledger, but it is never
ahead. This detects mistakes; it does not stop somebody who rewrites both files on purpose.

A ledger on a server has no file beside it. Everybody who uses it keeps a mark of their own instead, in a
folder of their own machine or in one that all share (``TACIT_MARKS``). The first use creates the mark. An
older copy of the database is then noticed by whoever has seen a later line of it.
"""

import hashlib
import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from tacit.accounting.address import Address, Where
from tacit.accounting.store import alone_in, sync_folder
from tacit.errors import LedgerError

META = sa.MetaData()
LINKS = sa.Table(
    "chain",
    META,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("kind", sa.String, nullable=False),
    sa.Column("digest", sa.LargeBinary, nullable=False),
    sa.Column("hash", sa.LargeBinary, nullable=False),
)
_NOTE = "The mark of a Tacit ledger. It shows whether the ledger is complete: keep it beside the ledger."
_CHANGED = (
    "was changed by another program, and no longer shows what was spent; restore its newest copy"
)


@dataclass(frozen=True)
class Head:
    """How many links a chain has, and the hash of the last."""

    links: int
    hash: bytes


def begin(connection: sa.Connection) -> None:
    """Writes the first link, which is random, so that no two ledgers are alike."""
    link(connection, "start", (os.urandom(32),))


def link(connection: sa.Connection, kind: str, fields: Sequence[Any]) -> None:
    """Adds a line to the chain."""
    before, digest = head(connection), _digest(fields)
    values = {"kind": kind, "digest": digest, "hash": _hash(before.hash, kind, digest)}
    connection.execute(sa.insert(LINKS).values(id=before.links + 1, **values))


def head(connection: sa.Connection) -> Head:
    """The end of the chain."""
    last = sa.select(LINKS.c.id, LINKS.c.hash).order_by(LINKS.c.id.desc()).limit(1)
    found = connection.execute(last).first()
    return Head(0, b"") if found is None else Head(found.id, found.hash)


def refuse_broken(connection: sa.Connection, path: Where) -> None:
    """Raises if a link does not follow from the one before it."""
    before = Head(0, b"")
    for row in connection.execute(sa.select(LINKS).order_by(LINKS.c.id)):
        if (row.id, row.hash) != (before.links + 1, _hash(before.hash, row.kind, row.digest)):
            raise LedgerError(f"{path} {_CHANGED}.")
        before = Head(row.id, row.hash)


def lines_of(connection: sa.Connection, table: sa.Table) -> Sequence[str | Sequence[Any]]:
    """The lines of a table in their order, as their digests are made.

    A server makes the digest of a line itself, of its own text for it, so that no client can add a wrong one
    (`tacit.accounting.guard`).
    """
    if connection.dialect.name == "postgresql":
        texts = sa.text(f"SELECT row_to_json(line)::text FROM {table.name} AS line ORDER BY id")  # noqa: S608
        return connection.execute(texts).scalars().all()
    return connection.execute(sa.select(table).order_by(table.c.id)).all()


def refuse_changed(
    connection: sa.Connection, path: Where, kind: str, lines: Iterable[str | Sequence[Any]]
) -> None:
    """Raises if the lines of a kind are not those that were added to the chain."""
    held = sa.select(LINKS.c.digest).where(LINKS.c.kind == kind).order_by(LINKS.c.id)
    if connection.execute(held).scalars().all() != [_digest(line) for line in lines]:
        raise LedgerError(f"{path} {_CHANGED}.")


class Mark:
    """The file beside a ledger that records how many links the ledger had."""

    def __init__(self, book: Path) -> None:
        self.book: Where = book.resolve()
        self.path = book.resolve().with_name(f"{book.resolve().name}.mark")

    def read(self) -> Head | None:
        """The content of the file, or None if there is no file."""
        try:
            held = json.loads(self.path.read_text("utf-8"))
            return Head(int(held["links"]), bytes.fromhex(held["hash"]))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise LedgerError(f"{self.path} cannot be read: {error.strerror}.") from error
        except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
            raise LedgerError(
                f"{self.path} is not the mark file of a ledger; restore its newest copy."
            ) from error

    def refuse_older(self, connection: sa.Connection, said: Head | None) -> Head:
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

    def _unmarked(self) -> Head:
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
    def advancing(self) -> Iterator[Callable[[Head], None]]:
        """Yields a function that takes the new end of the chain. The file is updated when the context ends.

        The new content is written at once, beside the file, so that nothing is charged that cannot be
        marked. If an error is raised, the file is left as it was.
        """
        made: list[tuple[Path, Head]] = []
        try:
            yield lambda now: made.append((self._written(now), now))
        except BaseException:
            for file, _ in made:
                file.unlink(missing_ok=True)
            raise
        for file, now in made:
            self._place(file, now)

    def _written(self, now: Head) -> Path:
        text = json.dumps({"note": _NOTE, "links": now.links, "hash": now.hash.hex()}, indent=1)
        try:
            handle, name = tempfile.mkstemp(dir=self.path.parent, prefix=f".{self.path.name}.")
            file = Path(name)
            try:
                _put(handle, f"{text}\n")
                file.chmod(self._mode())
            except BaseException:
                file.unlink()
                raise
        except OSError as error:
            raise LedgerError(
                f"{self.path}, the mark of the ledger, cannot be written: {error.strerror}."
            ) from error
        return file

    def _place(self, file: Path, now: Head) -> None:
        with alone_in(self.path.parent):
            held = self.read()
            if held is None or held.links < now.links:  # another process may have been first
                file.replace(self.path)
                sync_folder(self.path.parent)
            else:
                file.unlink()


class OwnMark(Mark):
    """What the user of a ledger on a server remembers of it."""

    def __init__(self, book: Address) -> None:
        self.book = book
        shared = book.database
        name = re.sub(r"[^\w.-]+", "_", shared.partition("://")[2]).strip("_")[:100]
        digest = hashlib.sha256(shared.encode()).hexdigest()[:12]
        self.path = _folder_of_marks() / f"{name}-{digest}.mark"
        self._hint = f" (the mark is {self.path})"

    def _unmarked(self) -> Head:
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise LedgerError(
                f"{self.path.parent}, the folder for marks of ledgers, cannot be created: "
                f"{error.strerror}. Name another in the environment variable TACIT_MARKS."
            ) from None
        return Head(0, b"")

    def _mode(self) -> int:
        return self.path.parent.stat().st_mode & 0o666


def _folder_of_marks() -> Path:
    """Where marks of ledgers on servers are kept: the same in every working folder."""
    if said := os.environ.get("TACIT_MARKS"):
        return Path(said).absolute()
    usual = Path("~/AppData/Local" if sys.platform == "win32" else "~/.local/state")
    home = os.environ.get("LOCALAPPDATA" if sys.platform == "win32" else "XDG_STATE_HOME")
    return (Path(home) if home else usual.expanduser()) / "tacit" / "marks"


def _put(handle: int, text: str) -> None:
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _hash(before: bytes, kind: str, digest: bytes) -> bytes:
    return hashlib.sha256(b"\0".join((before, kind.encode(), digest))).digest()


def _digest(fields: str | Sequence[Any]) -> bytes:
    if isinstance(fields, str):
        return hashlib.sha256(fields.encode()).digest()
    plain = [field.hex() if isinstance(field, bytes) else field for field in fields]
    return hashlib.sha256(json.dumps(plain).encode()).digest()

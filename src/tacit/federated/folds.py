"""The server's state on disk, so that a server that died can continue.

Every update of the posterior is a line, written before anything that depends on it leaves the server. A server
that adds noise therefore adds it only once: either the noisy sum is in the file, or nobody has seen it. If two
servers run at once, only one can write a line, and the other stops.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa

from tacit.accounting.store import engine_of
from tacit.errors import TacitError
from tacit.federated import course
from tacit.federated.course import Course
from tacit.federated.server import AnyServer

_META = sa.MetaData()
_FOLDS = sa.Table(
    "folds",
    _META,
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("about", sa.String, nullable=False),
    sa.Column("state", sa.LargeBinary, nullable=False),
)
# What sites are bound to, beside updates: rounds that were given up, and the group of a round.
_GIVEN_UP = sa.Table("given_up", _META, sa.Column("number", sa.Integer, primary_key=True))
_GROUPS = sa.Table(
    "groups",
    _META,
    sa.Column("round", sa.Integer, primary_key=True),
    sa.Column("members", sa.JSON, nullable=False),
)


class FoldsFile:
    """The updates of one run in a file. ``about`` identifies the run and its study."""

    def __init__(self, path: Path, about: str) -> None:
        self.path, self._about = path, about
        path.touch(mode=0o600, exist_ok=True)
        self._engine = engine_of(path)
        with self._one_sentence(), self._engine.begin() as connection:
            _META.create_all(connection)
            course.META.create_all(connection)

    def resume(self, server: AnyServer, so_far: Course | None = None) -> None:
        """Restores the last state of the server, or saves the first one.

        Args:
            server: The server.
            so_far: Takes over the updates of the file; what the run is about is saved for ``status``.
        """
        with self._one_sentence(), self._engine.begin() as connection:
            lines = connection.execute(sa.select(_FOLDS).order_by(_FOLDS.c.number)).all()
        if any(line.about != self._about for line in lines):
            raise TacitError(
                f"{self.path} belongs to another run, or the study has changed. Choose another file as "
                "state, and a new name for the run of a changed study."
            )
        if not lines:
            self.keep(server)
        else:
            server.restore([line.state for line in lines])
            with self._one_sentence(), self._engine.begin() as connection:
                most = connection.execute(sa.select(sa.func.max(_GIVEN_UP.c.number))).scalar()
            server.given_up = most or 0
        if so_far is not None:
            with self._one_sentence(), self._engine.begin() as connection:
                course.write_run(connection, so_far)
                so_far.updates = course.read_updates(connection)

    @contextmanager
    def _one_sentence(self) -> Iterator[None]:
        """Errors of the file as one sentence; that somebody else wrote a line stays what it is."""
        try:
            yield
        except sa.exc.IntegrityError:
            raise
        except sa.exc.DatabaseError as error:
            raise TacitError(
                f"{self.path}, the state of the server, is damaged or cannot be written "
                f"({type(error.orig).__name__}). Restore it from a backup, or move it away: sites repeat "
                "their answers, and nothing is charged again."
            ) from None

    def keep(self, server: AnyServer, update: course.Update | None = None) -> None:
        """Saves an update, and when it was made from whose answers."""
        values = {"number": len(server.trace), "about": self._about, "state": server.packed()}
        with self._alone() as connection:
            connection.execute(sa.insert(_FOLDS).values(**values))
            if update is not None:
                course.write_update(connection, update)

    def give_up(self, number: int) -> None:
        """Saves that a round was given up, the so-manyth one."""
        with self._alone() as connection:
            connection.execute(sa.insert(_GIVEN_UP).values(number=number))

    def group_of(self, number: int) -> tuple[str, ...] | None:
        """The sites to which the answers of a round are bound, if it was asked."""
        with self._one_sentence(), self._engine.begin() as connection:
            found = connection.execute(
                sa.select(_GROUPS.c.members).where(_GROUPS.c.round == number)
            ).scalar()
        return None if found is None else tuple(found)

    def bind(self, number: int, members: tuple[str, ...]) -> None:
        """Saves the sites of a round, before they are asked."""
        with self._alone() as connection:
            connection.execute(sa.insert(_GROUPS).values(round=number, members=list(members)))

    @contextmanager
    def _alone(self) -> Iterator[sa.Connection]:
        """A transaction for a line that only one server can write."""
        try:
            with self._one_sentence(), self._engine.begin() as connection:
                yield connection
        except sa.exc.IntegrityError:
            raise TacitError(
                f"Another server of this run has written to {self.path}; this server stops."
            ) from None

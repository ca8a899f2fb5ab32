"""The server's state on disk: a server that died can continue, and people can see how far a run is.

Every update of the posterior is a line, written before anything that depends on it leaves the server. A server
that adds noise therefore adds it only once: either the noisy sum is in the file, or nobody has seen it. If two
servers run at once, only one can write a line, and the other stops. `RunStatus` has the rounds, who answered, and
the time that is left; nothing in it comes from rows.
"""

import itertools
import json
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import sqlalchemy as sa

from tacit.accounting.ledger_store import sqlite_engine
from tacit.errors import InvalidArgument, TacitError
from tacit.federated.server import AnyServer

STATUS_TABLES = sa.MetaData()
_RUN_TABLE = sa.Table(
    "run",
    STATUS_TABLES,
    sa.Column("id", sa.Integer, sa.CheckConstraint("id = 1"), primary_key=True),
    sa.Column("about", sa.String, nullable=False),
)
_UPDATES_TABLE = sa.Table(
    "updates",
    STATUS_TABLES,
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("time", sa.Float, nullable=False),
    sa.Column("answered", sa.String, nullable=False),
)
# Durations of this number of updates tell how long others will take.
_TIMED_UPDATES = 9
# As many sites are named; more are counted.
_MAX_NAMED_SITES = 5
_MINUTE, _HOUR = 60, 3600


@dataclass(frozen=True)
class Update:
    """One update of the posterior: its number, when it was made, and the sites whose answers it uses."""

    number: int
    time: float
    answered: tuple[str, ...]


@dataclass
class RunStatus:
    """How far a run is.

    Args:
        run: The name of the run.
        sites: Names of the sites.
        num_rounds: The number of rounds.
        groups: The number of groups that are asked one after the other in a round.
        budget: The budget of every site, in words.
        updates: The updates so far.
    """

    run: str
    sites: tuple[str, ...]
    num_rounds: int
    groups: int
    budget: str
    updates: list[Update] = field(default_factory=list)

    def note(self, number: int, before: Mapping[str, int], used: Mapping[str, int]) -> None:
        """Adds an update, by the numbers of used answers before and after it."""
        answered = tuple(name for name in self.sites if used[name] > before[name])
        self.updates.append(Update(number, time.time(), answered))

    @property
    def done(self) -> int:
        """The number of rounds that are done."""
        return self._number // self.groups

    @property
    def _number(self) -> int:
        return self.updates[-1].number if self.updates else 0

    @property
    def answered(self) -> set[str]:
        """The sites whose answers were used in the last round."""
        return {name for each in self.updates[-self.groups :] for name in each.answered}

    @property
    def seconds_left(self) -> float | None:
        """About how long the other rounds will take; None before the second update.

        The first update is slow, as sites compile their programs.
        """
        times = [each.time for each in self.updates[-_TIMED_UPDATES - 1 :]]
        if len(times) < 2:
            return None
        # A median, because of rounds during which the server was down.
        typical = statistics.median(b - a for a, b in itertools.pairwise(times))
        return max(typical, 0.0) * (self.num_rounds * self.groups - self._number)

    @property
    def line(self) -> str:
        """The last round in one line."""
        missing = [name for name in self.sites if name not in self.answered]
        if not missing:
            who = "all sites answered"
        elif len(missing) <= _MAX_NAMED_SITES:
            who = f"all sites but {', '.join(missing)} answered"
        else:
            who = f"{len(self.answered)} of {len(self.sites)} sites answered"
        return f"Round {self.done} of {self.num_rounds}: {who}; {self.left}."

    @property
    def left(self) -> str:
        """The time that is left, in words."""
        seconds = self.seconds_left
        if self.done >= self.num_rounds:
            return "the last round is done"
        return (
            "time left not known yet"
            if seconds is None
            else f"about {_format_duration(seconds)} left"
        )

    @property
    def sites_table(self) -> list[Sequence[str]]:
        """A line for each site: its name, how many of its answers were used, and the last round of them."""
        rows: list[Sequence[str]] = []
        for name in self.sites:
            mine = [each.number for each in self.updates if name in each.answered]
            last = str(-(-mine[-1] // self.groups)) if mine else "none"
            spent = self.budget if mine else "nothing that the server knows of"
            rows.append((name, str(len(mine)), last, spent))
        return rows


def write_run(connection: sa.Connection, course: RunStatus) -> None:
    """Writes what a run is about, once."""
    if connection.execute(sa.select(_RUN_TABLE)).first() is None:
        held = {
            "run": course.run,
            "sites": list(course.sites),
            "num_rounds": course.num_rounds,
            "groups": course.groups,
            "budget": course.budget,
        }
        connection.execute(sa.insert(_RUN_TABLE).values(id=1, about=json.dumps(held)))


def write_update(connection: sa.Connection, update: Update) -> None:
    """Writes an update."""
    answered = json.dumps(list(update.answered))
    values = {"number": update.number, "time": update.time, "answered": answered}
    connection.execute(sa.insert(_UPDATES_TABLE).values(**values))


def read_updates(connection: sa.Connection) -> list[Update]:
    """The updates in a file."""
    lines = connection.execute(sa.select(_UPDATES_TABLE).order_by(_UPDATES_TABLE.c.number)).all()
    return [Update(each.number, each.time, tuple(json.loads(each.answered))) for each in lines]


def read_run_status(path: Path) -> RunStatus:
    """How far a run is, by the server's state.

    Args:
        path: The file of the server's state.

    Returns:
        What is in the file.

    Raises:
        InvalidArgument: If it is no such file.
    """
    try:
        if not path.is_file():
            raise FileNotFoundError
        with sqlite_engine(path).connect() as connection:
            held = json.loads(connection.execute(sa.select(_RUN_TABLE.c.about)).scalar_one())
            updates = read_updates(connection)
        return RunStatus(**{**held, "sites": tuple(held["sites"])}, updates=updates)
    except (OSError, sa.exc.SQLAlchemyError, ValueError, TypeError) as error:
        raise InvalidArgument(
            f"{path} is not the state of a server, which lies beside the result as "
            f"<result>.<run>.state ({type(error).__name__})."
        ) from None


def _format_duration(seconds: float) -> str:
    """A duration in words."""
    if seconds >= 2 * _HOUR:
        return f"{seconds / _HOUR:.0f} hours"
    return f"{seconds / _MINUTE:.0f} min" if seconds >= 2 * _MINUTE else f"{seconds:.0f} s"


_STATE_TABLES = sa.MetaData()
_STATES_TABLE = sa.Table(
    "folds",
    _STATE_TABLES,
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("about", sa.String, nullable=False),
    sa.Column("state", sa.LargeBinary, nullable=False),
)
# What sites are bound to, beside updates: rounds that were given up, and the group of a round.
_ABANDONED_TABLE = sa.Table(
    "given_up", _STATE_TABLES, sa.Column("number", sa.Integer, primary_key=True)
)
_GROUPS_TABLE = sa.Table(
    "groups",
    _STATE_TABLES,
    sa.Column("round", sa.Integer, primary_key=True),
    sa.Column("members", sa.JSON, nullable=False),
)


class ServerStateFile:
    """The updates of one run in a file. ``about`` identifies the run and its study."""

    def __init__(self, path: Path, about: str) -> None:
        self.path, self._about = path, about
        path.touch(mode=0o600, exist_ok=True)
        self._engine = sqlite_engine(path)
        with self._one_sentence(), self._engine.begin() as connection:
            _STATE_TABLES.create_all(connection)
            STATUS_TABLES.create_all(connection)

    def resume(self, server: AnyServer, so_far: RunStatus | None = None) -> None:
        """Restores the last state of the server, or saves the first one.

        Args:
            server: The server.
            so_far: Takes over the updates of the file; what the run is about is saved for ``status``.
        """
        with self._one_sentence(), self._engine.begin() as connection:
            lines = connection.execute(
                sa.select(_STATES_TABLE).order_by(_STATES_TABLE.c.number)
            ).all()
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
                most = connection.execute(
                    sa.select(sa.func.max(_ABANDONED_TABLE.c.number))
                ).scalar()
            server.given_up = most or 0
        if so_far is not None:
            with self._one_sentence(), self._engine.begin() as connection:
                write_run(connection, so_far)
                so_far.updates = read_updates(connection)

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

    def keep(self, server: AnyServer, update: Update | None = None) -> None:
        """Saves an update, and when it was made from whose answers."""
        values = {"number": len(server.trace), "about": self._about, "state": server.packed()}
        with self._alone() as connection:
            connection.execute(sa.insert(_STATES_TABLE).values(**values))
            if update is not None:
                write_update(connection, update)

    def give_up(self, number: int) -> None:
        """Saves that a round was given up, the so-manyth one."""
        with self._alone() as connection:
            connection.execute(sa.insert(_ABANDONED_TABLE).values(number=number))

    def group_of(self, number: int) -> tuple[str, ...] | None:
        """The sites to which the answers of a round are bound, if it was asked."""
        with self._one_sentence(), self._engine.begin() as connection:
            found = connection.execute(
                sa.select(_GROUPS_TABLE.c.members).where(_GROUPS_TABLE.c.round == number)
            ).scalar()
        return None if found is None else tuple(found)

    def bind(self, number: int, members: tuple[str, ...]) -> None:
        """Saves the sites of a round, before they are asked."""
        with self._alone() as connection:
            connection.execute(sa.insert(_GROUPS_TABLE).values(round=number, members=list(members)))

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

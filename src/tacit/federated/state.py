"""The server's state on disk: a server that died can continue, and people can see how far a run is.

Every update of the posterior is a line, written before anything that depends on it leaves the server. A server
that adds noise therefore adds it only once: either the noisy sum is in the file, or nobody has seen it. If two
servers run at once, only one can write a line, and the other stops. `RunStatus` has the rounds, who answered, and
the time that is left; nothing in it comes from rows.
"""

import itertools
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import sqlalchemy as sa

from tacit.accounting.ledger_store import sqlite_engine
from tacit.errors import InvalidArgument, TacitError
from tacit.federated.server import Server

_TABLES = sa.MetaData()
# What the run is about, for people who ask how far it is.
_RUN = sa.Table(
    "run",
    _TABLES,
    sa.Column("id", sa.Integer, sa.CheckConstraint("id = 1"), primary_key=True),
    sa.Column("about", sa.JSON, nullable=False),
)
_UPDATES = sa.Table(
    "updates",
    _TABLES,
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("time", sa.Float, nullable=False),
    sa.Column("answered", sa.JSON, nullable=False),
)
_STATES = sa.Table(
    "states",
    _TABLES,
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("about", sa.String, nullable=False),
    sa.Column("state", sa.LargeBinary, nullable=False),
)
# What sites are bound to, beside updates: rounds that were given up, and the group of a round.
_ABANDONED = sa.Table("abandoned", _TABLES, sa.Column("number", sa.Integer, primary_key=True))
_GROUPS = sa.Table(
    "groups",
    _TABLES,
    sa.Column("round", sa.Integer, primary_key=True),
    sa.Column("members", sa.JSON, nullable=False),
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

    def add_update(self, server: Server) -> Update:
        """Adds the update that a server has just made."""
        answered = tuple(name for name in self.sites if server.applied[name].round == server.round)
        self.updates.append(Update(len(server.trace), time.time(), answered))
        return self.updates[-1]

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
            about = connection.execute(sa.select(_RUN.c.about)).scalar_one()
            updates = _read_updates(connection)
        return RunStatus(**{**about, "sites": tuple(about["sites"])}, updates=updates)
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


def _read_updates(connection: sa.Connection) -> list[Update]:
    lines = connection.execute(sa.select(_UPDATES).order_by(_UPDATES.c.number)).all()
    return [Update(each.number, each.time, tuple(each.answered)) for each in lines]


class ServerStateFile:
    """The updates of one run in a file. ``about`` identifies the run and its study."""

    def __init__(self, path: Path, about: str) -> None:
        self.path, self._about = path, about
        path.touch(mode=0o600, exist_ok=True)
        self._engine = sqlite_engine(path)
        with self._transaction() as connection:
            _TABLES.create_all(connection)

    @contextmanager
    def _transaction(self) -> Iterator[sa.Connection]:
        """A transaction. A line that another server of the run has written cannot be written again."""
        try:
            with self._engine.begin() as connection:
                yield connection
        except sa.exc.IntegrityError:
            raise TacitError(
                f"Another server of this run has written to {self.path}; this server stops."
            ) from None
        except sa.exc.DatabaseError as error:
            raise TacitError(
                f"{self.path}, the state of the server, is damaged or cannot be written "
                f"({type(error.orig).__name__}). Restore it from a backup, or move it away: sites repeat "
                "their answers, and nothing is charged again."
            ) from None

    def resume(self, server: Server, status: RunStatus | None = None) -> None:
        """Restores the last state of the server, or saves the first one.

        Args:
            server: The server.
            status: Takes over the updates of the file; what the run is about is saved for ``status``.
        """
        with self._transaction() as connection:
            lines = connection.execute(sa.select(_STATES).order_by(_STATES.c.number)).all()
            abandoned = connection.execute(sa.select(sa.func.max(_ABANDONED.c.number))).scalar()
        if any(line.about != self._about for line in lines):
            raise TacitError(
                f"{self.path} belongs to another run, or the study has changed. Choose another file as "
                "state, and a new name for the run of a changed study."
            )
        if lines:
            server.restore([line.state for line in lines], abandoned or 0)
        else:
            self.save(server)
        if status is not None:
            with self._transaction() as connection:
                if connection.execute(sa.select(_RUN)).first() is None:
                    about = {
                        "run": status.run,
                        "sites": list(status.sites),
                        "num_rounds": status.num_rounds,
                        "groups": status.groups,
                        "budget": status.budget,
                    }
                    connection.execute(sa.insert(_RUN).values(id=1, about=about))
                status.updates = _read_updates(connection)

    def save(self, server: Server, update: Update | None = None) -> None:
        """Saves an update, and when it was made from whose answers."""
        number, state = len(server.trace), server.pack_state()
        with self._transaction() as connection:
            connection.execute(
                sa.insert(_STATES).values(number=number, about=self._about, state=state)
            )
            if update is not None:
                connection.execute(sa.insert(_UPDATES).values(**asdict(update)))

    def save_abandoned(self, number: int) -> None:
        """Saves that a round was given up, the so-manyth one."""
        with self._transaction() as connection:
            connection.execute(sa.insert(_ABANDONED).values(number=number))

    def round_members(self, number: int) -> tuple[str, ...] | None:
        """The sites to which the answers of a round are bound, if it was asked."""
        query = sa.select(_GROUPS.c.members).where(_GROUPS.c.round == number)
        with self._transaction() as connection:
            members = connection.execute(query).scalar()
        return None if members is None else tuple(members)

    def bind_round(self, number: int, members: tuple[str, ...]) -> None:
        """Saves the sites of a round, before they are asked."""
        with self._transaction() as connection:
            connection.execute(sa.insert(_GROUPS).values(round=number, members=list(members)))

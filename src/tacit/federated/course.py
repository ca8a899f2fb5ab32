"""How far a run is: rounds, who answered, and the time that is left. Nothing here comes from rows."""

import itertools
import json
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import sqlalchemy as sa

from tacit.accounting.store import engine_of
from tacit.errors import InvalidArgument

META = sa.MetaData()
_RUN = sa.Table(
    "run",
    META,
    sa.Column("id", sa.Integer, sa.CheckConstraint("id = 1"), primary_key=True),
    sa.Column("about", sa.String, nullable=False),
)
_UPDATES = sa.Table(
    "updates",
    META,
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("time", sa.Float, nullable=False),
    sa.Column("answered", sa.String, nullable=False),
)
# Durations of this number of updates tell how long others will take.
_RECENT = 9
# As many sites are named; more are counted.
_NAMED = 5
_MINUTE, _HOUR = 60, 3600


@dataclass(frozen=True)
class Update:
    """One update of the posterior: its number, when it was made, and the sites whose answers it uses."""

    number: int
    time: float
    answered: tuple[str, ...]


@dataclass
class Course:
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
        times = [each.time for each in self.updates[-_RECENT - 1 :]]
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
        elif len(missing) <= _NAMED:
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
        return "time left not known yet" if seconds is None else f"about {_spoken(seconds)} left"

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


def write_run(connection: sa.Connection, course: Course) -> None:
    """Writes what a run is about, once."""
    if connection.execute(sa.select(_RUN)).first() is None:
        held = {
            "run": course.run,
            "sites": list(course.sites),
            "num_rounds": course.num_rounds,
            "groups": course.groups,
            "budget": course.budget,
        }
        connection.execute(sa.insert(_RUN).values(id=1, about=json.dumps(held)))


def write_update(connection: sa.Connection, update: Update) -> None:
    """Writes an update."""
    answered = json.dumps(list(update.answered))
    values = {"number": update.number, "time": update.time, "answered": answered}
    connection.execute(sa.insert(_UPDATES).values(**values))


def read_updates(connection: sa.Connection) -> list[Update]:
    """The updates in a file."""
    lines = connection.execute(sa.select(_UPDATES).order_by(_UPDATES.c.number)).all()
    return [Update(each.number, each.time, tuple(json.loads(each.answered))) for each in lines]


def read_course(path: Path) -> Course:
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
        with engine_of(path).connect() as connection:
            held = json.loads(connection.execute(sa.select(_RUN.c.about)).scalar_one())
            updates = read_updates(connection)
        return Course(**{**held, "sites": tuple(held["sites"])}, updates=updates)
    except (OSError, sa.exc.SQLAlchemyError, ValueError, TypeError) as error:
        raise InvalidArgument(
            f"{path} is not the state of a server, which lies beside the result as "
            f"<result>.<run>.state ({type(error).__name__})."
        ) from None


def _spoken(seconds: float) -> str:
    """A duration in words."""
    if seconds >= 2 * _HOUR:
        return f"{seconds / _HOUR:.0f} hours"
    return f"{seconds / _MINUTE:.0f} min" if seconds >= 2 * _MINUTE else f"{seconds:.0f} s"

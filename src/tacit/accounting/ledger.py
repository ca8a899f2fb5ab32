"""The budget book of a data set: durable, append-only, and checked before anything is read.

Runs are chosen after seeing earlier results, so across runs the ledger is a privacy filter:

- ``rule="sum"``: the epsilons and deltas of the runs add up (Rogers et al. 2016 prove that
  basic composition may be used so, with parameters chosen adaptively).
- ``rule="renyi"``: divergences of one order, fixed when the ledger is opened, add up, and the
  total is converted once (Feldman and Zrnic 2021, Theorem 4.3).

A run is charged in full, in one transaction, before its first read. Nothing is given back.
"""

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import numpy as np
import sqlalchemy as sa
from dp_accounting.dp_event import DpEvent

from tacit import _validate
from tacit.accounting import events, renyi
from tacit.accounting.accountants import PLD
from tacit.accounting.budget import Budget
from tacit.accounting.convert import epsilon_by_order
from tacit.errors import BudgetError, InvalidArgument, Overspent

Rule = Literal["sum", "renyi"]
# What one promise is about: a row, all rows of a person, or everything that one site holds.
UNITS = ("row", "person", "data set")

_META = sa.MetaData()
_BOOK = sa.Table(
    "book",
    _META,
    sa.Column("id", sa.Integer, sa.CheckConstraint("id = 1"), primary_key=True),
    sa.Column("epsilon", sa.Float, nullable=False),
    sa.Column("delta", sa.Float, nullable=False),
    sa.Column("adjacency", sa.String, nullable=False),
    sa.Column("unit", sa.String, nullable=False),
    sa.Column("rule", sa.String, nullable=False),
    sa.Column("order", sa.Float, nullable=False),
)
_CHARGES = sa.Table(
    "charges",
    _META,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("time", sa.String, nullable=False),
    sa.Column("label", sa.String, nullable=False),
    sa.Column("epsilon", sa.Float, nullable=False),
    sa.Column("delta", sa.Float, nullable=False),
    sa.Column("divergence", sa.Float, nullable=False),
    sa.Column("event", sa.String, nullable=False),
)
_APPEND_ONLY = [
    f"CREATE TRIGGER IF NOT EXISTS {table}_no_{verb.lower()} BEFORE {verb} ON {table} "
    f"BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END"
    for table in ("book", "charges")
    for verb in ("UPDATE", "DELETE")
]


@dataclass(frozen=True)
class Charge:
    """One line of the book."""

    time: str
    label: str
    epsilon: float
    delta: float
    event: str


class Ledger:
    """The budget of one data set, in a SQLite file that several processes may share.

    The first opening fixes total, unit, adjacency and rule; later ones may leave ``total``
    out, and are refused if they say otherwise.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        total: Budget | None = None,
        *,
        unit: str | None = None,
        rule: Rule | None = None,
    ) -> None:
        if unit is not None:
            _validate.choice("unit", unit, UNITS)
        if rule is not None:
            _validate.choice("rule", rule, ("sum", "renyi"))
        self.path = Path(path)
        if total is None and not self.path.exists():
            raise InvalidArgument(f"There is no ledger at {self.path}; name a total to open one.")
        self._engine = engine_of(self.path)
        try:
            with self._engine.begin() as connection:
                self._open(connection, total, unit, rule)
        except sa.exc.DBAPIError as error:
            raise InvalidArgument(
                f"{self.path} cannot be used as a ledger: {error.orig}."
            ) from error
        self.total: Budget
        self.unit: str
        self.rule: Rule

    def _open(
        self,
        connection: sa.Connection,
        total: Budget | None,
        unit: str | None,
        rule: str | None,
    ) -> None:
        _META.create_all(connection)
        for trigger in _APPEND_ONLY:
            connection.execute(sa.text(trigger))
        book = connection.execute(sa.select(_BOOK)).mappings().first()
        if book is None:
            if total is None:
                raise InvalidArgument(f"{self.path} holds no ledger; name a total to open one.")
            chosen = rule or "sum"
            if chosen == "renyi" and total.delta == 0:
                raise InvalidArgument('A pure budget adds up by sums; use rule="sum".')
            values = {
                "id": 1,
                "epsilon": total.epsilon,
                "delta": total.delta,
                "adjacency": total.adjacency,
                "unit": unit or "row",
                "rule": chosen,
                "order": _order(total) if chosen == "renyi" else 0.0,
            }
            connection.execute(sa.insert(_BOOK).values(**values))
            book = connection.execute(sa.select(_BOOK)).mappings().one()
        self.total = Budget(book["epsilon"], book["delta"], book["adjacency"])
        self.unit, self.rule, self._order = book["unit"], book["rule"], book["order"]
        for name, said, held in (
            ("total", total, self.total),
            ("unit", unit, self.unit),
            ("rule", rule, self.rule),
        ):
            if said is not None and said != held:
                raise InvalidArgument(
                    f"{self.path} was opened with {name} {held} and cannot be changed to {said}."
                )

    def charge(self, event: DpEvent, budget: Budget, label: str = "") -> None:
        """Books a run in full, or refuses it. Call before the first read of a row.

        ``budget`` is what the run was calibrated to; it must cover the event.
        """
        self.charge_all([(event, budget)], label)

    def charge_all(self, runs: Sequence[tuple[DpEvent, Budget]], label: str = "") -> None:
        """Books several runs, all or none."""
        lines = [self.line(event, budget, label) for event, budget in runs]
        with self.transaction() as connection:
            for line in lines:
                self.book(connection, line)

    @contextmanager
    def transaction(self) -> Iterator[sa.Connection]:
        """All that is written within is on disk at its end, or none of it is."""
        with self._engine.begin() as connection:  # BEGIN IMMEDIATE: nobody else may write
            yield connection

    def book(self, connection: sa.Connection, line: Mapping[str, Any]) -> None:
        """Books a `line` in somebody's transaction, or refuses it."""
        budget = Budget(line["epsilon"], line["delta"], self.total.adjacency)
        self._admit(connection, budget, line["divergence"])
        connection.execute(sa.insert(_CHARGES).values(**line))

    def refuse_adjacency(self, budget: Budget) -> None:
        """Raises if a run's budget protects against another change than this ledger does."""
        if budget.adjacency != self.total.adjacency:
            raise BudgetError(
                f"This ledger counts under {self.total.adjacency}, the run under "
                f"{budget.adjacency}; calibrate the run for the ledger's adjacency."
            )

    def line(self, event: DpEvent, budget: Budget, label: str) -> dict[str, Any]:
        """What a run is booked as; refused if its budget does not cover it."""
        self.refuse_adjacency(budget)
        spent = PLD().epsilon(event, budget.delta, budget.adjacency)
        if not (spent <= budget.epsilon):
            raise BudgetError(f"The run would cost more than the {budget} it declares.")
        divergence = 0.0
        if self.rule == "renyi":
            if events.without_slack(event)[1] > 0:
                raise BudgetError(
                    "Noise that sites share takes some delta besides, for which a ledger of Rényi "
                    'divergences has no place; open one with rule="sum".'
                )
            orders = np.array([self._order])
            divergence = float(renyi.divergence(event, orders, budget.adjacency)[0])
        return {
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "label": label,
            "epsilon": budget.epsilon,
            "delta": budget.delta,
            "divergence": divergence,
            "event": repr(event),
        }

    def _admit(self, connection: sa.Connection, budget: Budget, divergence: float) -> None:
        epsilon, delta, sum_of_divergences = self._sums(connection)
        if self.rule == "sum":
            fits = epsilon + budget.epsilon <= self.total.epsilon * (1 + 1e-12) and (
                delta + budget.delta <= self.total.delta * (1 + 1e-12)
            )
        else:
            total = self._convert(sum_of_divergences + divergence)
            fits = total <= self.total.epsilon
        if not fits:
            raise Overspent(
                f"The run asks for {budget}, and {self._left(connection)} is left of "
                f"{self.total}. Nothing was released and nothing charged. Ask for less, or stop here."
            )

    def _sums(self, connection: sa.Connection) -> tuple[float, float, float]:
        rows = connection.execute(
            sa.select(_CHARGES.c.epsilon, _CHARGES.c.delta, _CHARGES.c.divergence)
        ).all()
        return (
            math.fsum(row[0] for row in rows),
            math.fsum(row[1] for row in rows),
            math.fsum(row[2] for row in rows),
        )

    def _convert(self, divergence: float) -> float:
        order, value = np.array([self._order]), np.array([divergence])
        return float(epsilon_by_order(order, value, self.total.delta, "improved")[0])

    def _left(self, connection: sa.Connection) -> Budget:
        epsilon, delta, divergence = self._sums(connection)
        if self.rule == "renyi":
            spent = self._convert(divergence) if divergence else 0.0
            return Budget(
                max(self.total.epsilon - spent, 0.0), self.total.delta, self.total.adjacency
            )
        return Budget(
            max(self.total.epsilon - epsilon, 0.0),
            max(self.total.delta - delta, 0.0),
            self.total.adjacency,
        )

    @property
    def left(self) -> Budget:
        """What is left: under ``"renyi"``, about what one more run of any kind may cost."""
        with self._engine.begin() as connection:
            return self._left(connection)

    @property
    def charges(self) -> list[Charge]:
        """All lines so far, oldest first."""
        with self._engine.begin() as connection:
            rows = connection.execute(sa.select(_CHARGES).order_by(_CHARGES.c.id)).mappings()
            return [
                Charge(r["time"], r["label"], r["epsilon"], r["delta"], r["event"]) for r in rows
            ]

    def __reduce__(self) -> tuple[type["Ledger"], tuple[str]]:
        """A copy, also one in another process, is the same book: it opens the same file."""
        return type(self), (str(self.path.resolve()),)

    def __repr__(self) -> str:
        return f"Ledger({str(self.path)!r}, total={self.total}, unit={self.unit!r})"


def _order(total: Budget) -> float:
    """An order at which the conversion costs about half of the total's epsilon."""
    orders = 1 + np.geomspace(0.05, 1e5, 400)
    fixed = epsilon_by_order(orders, np.full_like(orders, 1e-9), total.delta, "improved")
    room = (total.epsilon - fixed) / orders  # of rho, were the runs Gaussian
    return float(orders[int(np.argmax(room))])


def engine_of(path: Path) -> sa.Engine:
    """A file in which a transaction is on disk as a whole, or not at all."""
    address = sa.URL.create("sqlite", database=str(path.resolve()))
    # Every transaction opens the file and closes it again: nothing lingers.
    engine = sa.create_engine(address, poolclass=sa.NullPool, connect_args={"timeout": 60})

    # SQLAlchemy's recipe for SQLite: it must not begin transactions of its own accord.
    @sa.event.listens_for(engine, "connect")
    def _connect(connection: Any, _record: Any) -> None:
        connection.isolation_level = None
        # On disk, its journal's removal too, before commit returns.
        connection.execute("PRAGMA synchronous=EXTRA")

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine

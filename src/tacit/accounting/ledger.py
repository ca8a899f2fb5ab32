"""The budget book of a data set: durable, append-only, and checked before anything is read.

Runs are chosen after seeing earlier results, so across runs the ledger is a privacy filter:

- ``rule="sum"``: the epsilons and deltas of the runs add up (Rogers et al. 2016 prove that
  basic composition may be used so, with parameters chosen adaptively).
- ``rule="renyi"``: divergences of one order, fixed when the ledger is opened, add up, and the
  total is converted once (Feldman and Zrnic 2021, Theorem 4.3).

A run is charged in full, in one transaction, before its first read. Nothing is given back.
To open a book is an act of its own (`Ledger.new`): one that is gone is never begun anew.
"""

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import sqlalchemy as sa
from dp_accounting.dp_event import DpEvent

from tacit import _validate
from tacit._format import less, stated
from tacit.accounting import chain, events, renyi
from tacit.accounting.book import (
    BOOK,
    CHARGES,
    make,
    refuse_changed,
    refuse_strange,
    write_charge,
    write_terms,
)
from tacit.accounting.budget import Budget
from tacit.accounting.convert import epsilon_by_order
from tacit.accounting.cost import cost
from tacit.accounting.store import engine_of, is_there, telling
from tacit.errors import BudgetError, InvalidArgument, LedgerError, Overspent

Rule = Literal["sum", "renyi"]
# What one promise is about: a row, all rows of a person, or everything that one site holds.
UNITS = ("row", "person", "data set")

RULES = ("sum", "renyi")
# A total is not overspent by what floating point adds to it.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Charge:
    """One line of the book."""

    time: str
    label: str
    epsilon: float
    delta: float
    event: str


class Receipt(NamedTuple):
    """What a ledger had left before a charge, and after it."""

    before: Budget
    left: Budget


class Ledger:
    """The budget of one data set, in a SQLite file that several processes may share.

    ``Ledger.new`` opens a book, once, and fixes total, unit, adjacency and rule. ``Ledger(path)``
    is the book at a path from then on; what else is said is compared with what was fixed. A book
    that is gone, older than the mark beside it, or was changed, is refused.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        total: Budget | None = None,
        *,
        unit: str | None = None,
        rule: Rule | None = None,
    ) -> None:
        self.path = Path(path)
        there = is_there(self.path)
        self._file = self.path.resolve()  # now: the working folder may change
        self._mark = chain.Mark(self._file)
        self._engine = engine_of(self._file)
        if not there:
            raise self._missing()
        with self.transaction() as connection:
            self.refuse_changed(connection)
            book = connection.execute(sa.select(BOOK)).mappings().one()
        self.total = Budget(book["epsilon"], book["delta"], book["adjacency"])
        self.unit: str = book["unit"]
        self.rule: Rule = book["rule"]
        self._order: float = book["order"]
        self._refuse_other({"total": total, "unit": unit, "rule": rule})

    @classmethod
    def new(
        cls,
        path: str | os.PathLike[str],
        total: Budget,
        *,
        unit: str = "row",
        rule: Rule = "sum",
    ) -> "Ledger":
        """Opens a book with this total: once, and for good. Refused where one is, or was.

        The file is for its owner only: at a site it also holds keys of noise.
        """
        if not isinstance(total, Budget):
            raise InvalidArgument("total must be a tacit.Budget(epsilon, delta).")
        _validate.choice("unit", unit, UNITS)
        _validate.choice("rule", rule, RULES)
        if rule == "renyi" and total.delta == 0:
            raise InvalidArgument('A pure budget adds up by sums; use rule="sum".')
        order = _order(total) if rule == "renyi" else 0.0
        terms = {"id": 1, **vars(total), "unit": unit, "rule": rule, "order": order}
        file = Path(path)
        make(file)
        try:
            mark = chain.Mark(file)
            with telling(file), mark.advancing() as advance, engine_of(file).begin() as connection:
                write_terms(connection, terms)
                advance(chain.head(connection))
        except BaseException:
            file.unlink()
            raise
        return cls(file)

    def _missing(self) -> LedgerError:
        if self._mark.read() is None:
            return LedgerError(
                f"There is no ledger at {self.path}; open one by tacit.Ledger.new(path, total=...), "
                "or by: tacit ledger new."
            )
        return LedgerError(
            f"The ledger {self.path} is gone: the mark beside it says that there was one. Put its "
            "newest copy back; what it had left cannot be known without it."
        )

    def _refuse_other(self, said: Mapping[str, Any]) -> None:
        for name, each in said.items():
            held = {"total": self.total, "unit": self.unit, "rule": self.rule}[name]
            if each is not None and each != held:
                raise InvalidArgument(
                    f"{self.path} was opened with {name} {held} and cannot be changed to {each}."
                )

    def charge(self, event: DpEvent, budget: Budget, label: str = "") -> Receipt:
        """Books a run in full, or refuses it. Call before the first read of a row.

        ``budget`` is what the run was calibrated to; it must cover the event. What is booked is
        what the event costs (`tacit.accounting.cost`), which may be less.
        """
        return self.charge_all([(event, budget)], label)[0]

    def charge_all(self, runs: Sequence[tuple[DpEvent, Budget]], label: str = "") -> list[Receipt]:
        """Books several runs, all or none."""
        lines = [self.line(event, budget, label) for event, budget in runs]
        receipts = []
        with self.transaction() as connection:
            self.refuse_changed(connection)
            for line in lines:
                before = self._left(connection)
                self.book(connection, line)
                receipts.append(Receipt(before, self._left(connection)))
        return receipts

    @contextmanager
    def transaction(self) -> Iterator[sa.Connection]:
        """All that is written within is on disk at its end, or none of it is.

        Refused if the book is not the one that its mark tells of.
        """
        mark = self._mark
        with (
            telling(self.path),
            mark.advancing() as advance,
            self._engine.begin() as connection,  # BEGIN IMMEDIATE: nobody else may write
        ):
            refuse_strange(connection, mark, self.path)
            said = mark.refuse_older(connection)
            yield connection
            if (now := chain.head(connection)).links > said.links:
                advance(now)

    def refuse_changed(self, connection: sa.Connection) -> None:
        """Raises if a line was changed: before every charge, as this object may be older than the change."""
        refuse_changed(connection, self.path)

    def book(self, connection: sa.Connection, line: Mapping[str, Any]) -> None:
        """Books a `line` in somebody's transaction, or refuses it."""
        budget = Budget(line["epsilon"], line["delta"], self.total.adjacency)
        self._admit(connection, budget, line["divergence"])
        write_charge(connection, line)

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
        charged, divergence = cost(event, budget), 0.0
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
            "epsilon": charged.epsilon,
            "delta": charged.delta,
            "divergence": divergence,
            "event": repr(event),
        }

    def _admit(self, connection: sa.Connection, budget: Budget, divergence: float) -> None:
        total, held = self.total, self._held(connection)
        if self.rule == "sum":
            epsilon = less(total.epsilon, *held["epsilon"], budget.epsilon)
            delta = less(total.delta, *held["delta"], budget.delta)
            fits = epsilon >= -_ROUNDING * total.epsilon and delta >= -_ROUNDING * total.delta
        else:
            fits = self._convert(math.fsum((*held["divergence"], divergence))) <= total.epsilon
        if not fits:
            raise Overspent(
                f"The run asks for {budget}, and {self._left(connection)} is left of "
                f"{self.total}. Nothing was released and nothing charged. Ask for less, or stop here."
            )

    def _held(self, connection: sa.Connection) -> dict[str, list[float]]:
        """What the charges so far say, by columns."""
        names = ("epsilon", "delta", "divergence")
        rows = connection.execute(sa.select(*(CHARGES.c[name] for name in names))).all()
        return {name: [row[i] for row in rows] for i, name in enumerate(names)}

    def _convert(self, divergence: float) -> float:
        order, value = np.array([self._order]), np.array([divergence])
        return float(epsilon_by_order(order, value, self.total.delta, "improved")[0])

    def _left(self, connection: sa.Connection) -> Budget:
        total, held = self.total, self._held(connection)
        if self.rule == "renyi":
            sum_of_divergences = math.fsum(held["divergence"])
            spent = stated(self._convert(sum_of_divergences)) if sum_of_divergences else 0.0
            return Budget(max(less(total.epsilon, spent), 0.0), total.delta, total.adjacency)
        return Budget(
            max(less(total.epsilon, *held["epsilon"]), 0.0),
            max(less(total.delta, *held["delta"]), 0.0),
            total.adjacency,
        )

    @property
    def left(self) -> Budget:
        """What is left: under ``"renyi"``, about what one more run of any kind may cost."""
        with self.transaction() as connection:
            return self._left(connection)

    @property
    def charges(self) -> list[Charge]:
        """All lines so far, oldest first."""
        with self.transaction() as connection:
            rows = connection.execute(sa.select(CHARGES).order_by(CHARGES.c.id)).mappings()
            return [
                Charge(r["time"], r["label"], r["epsilon"], r["delta"], r["event"]) for r in rows
            ]

    def __reduce__(self) -> tuple[type["Ledger"], tuple[str]]:
        """A copy, also one in another process, is the same book: it opens the same file."""
        return type(self), (str(self._file),)

    def __repr__(self) -> str:
        return f"Ledger({str(self.path)!r}, total={self.total}, unit={self.unit!r})"


def _order(total: Budget) -> float:
    """An order at which the conversion costs about half of the total's epsilon."""
    orders = 1 + np.geomspace(0.05, 1e5, 400)
    fixed = epsilon_by_order(orders, np.full_like(orders, 1e-9), total.delta, "improved")
    room = (total.epsilon - fixed) / orders  # of rho, were the runs Gaussian
    return float(orders[int(np.argmax(room))])

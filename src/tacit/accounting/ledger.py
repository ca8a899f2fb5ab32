"""The privacy ledger of a data set: durable, append-only, and checked before data are read.

The ledger is a privacy filter across runs (see `tacit.accounting.filter`).
A run is charged in full, in one transaction, before its first read. Nothing is refunded.
Only `Ledger.new` creates a ledger; a missing one is never recreated.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import sqlalchemy as sa
from attrs import asdict

from tacit import _validate, accounting
from tacit._html import render
from tacit.accounting import chain
from tacit.accounting.book import (
    BOOK,
    Charge,
    make,
    read_charges,
    refuse_changed,
    refuse_strange,
    spent_so_far,
    write_charge,
    write_terms,
)
from tacit.accounting.budget import Budget
from tacit.accounting.filter import RULES, PrivacyFilter, Rule
from tacit.accounting.store import engine_of, is_there, telling
from tacit.errors import BudgetError, InvalidArgument, LedgerError, Overspent

if TYPE_CHECKING:  # it takes a second to load, and showing a ledger does not need it
    from dp_accounting.dp_event import DpEvent

# Units of privacy: a row, all rows of a person, or everything that one site holds.
UNITS = ("row", "person", "data set")


class Receipt(NamedTuple):
    """The remaining budget of a ledger before and after a charge."""

    before: Budget
    left: Budget


class Ledger:
    """The privacy ledger of one data set: an SQLite file that several processes may share.

    Create a ledger once with `Ledger.new`, which fixes its total, unit, adjacency and rule.
    ``Ledger(path)`` opens it from then on.

    Args:
        path: The file of the ledger.
        total: If passed, must equal the total that the ledger was created with.
        unit: If passed, must equal the ledger's unit.
        rule: If passed, must equal the ledger's rule.

    Attributes:
        path: The file.
        total: The total budget of all charges.
        unit: The unit of privacy: ``"row"``, ``"person"`` or ``"data set"``.
        rule: How charges compose, ``"sum"`` or ``"renyi"``.

    Raises:
        LedgerError: If the file is missing, older than the mark file beside it, changed, or cannot
            be read.
        InvalidArgument: If an argument differs from what the ledger was created with.
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
        self._filter = PrivacyFilter(self.total, self.rule, book["order"])
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
        """Creates a ledger. Its terms cannot be changed later.

        The file is readable by its owner only, because at a federated site it also holds keys of
        noise.

        Args:
            path: A new file. A mark file is created beside it.
            total: The total budget of all charges. Its adjacency applies to all of them.
            unit: The unit of privacy: ``"row"``, ``"person"`` or ``"data set"`` (everything that a
                federated site holds).
            rule: How charges compose: ``"sum"`` adds epsilons and deltas; ``"renyi"`` adds Rényi
                divergences of one order, which is tighter for many small charges and needs a
                positive delta.

        Returns:
            The new ledger.

        Raises:
            LedgerError: If there is, or was, a ledger at this path, or the file cannot be written.
            InvalidArgument: If an argument is wrong.
        """
        if not isinstance(total, Budget):
            raise InvalidArgument("total must be a tacit.Budget(epsilon, delta).")
        _validate.choice("unit", unit, UNITS)
        _validate.choice("rule", rule, RULES)
        if rule == "renyi" and total.delta == 0:
            raise InvalidArgument('A pure budget adds up by sums; use rule="sum".')
        terms = {
            "id": 1,
            "unit": unit,
            "rule": rule,
            **asdict(total),
            "order": accounting.renyi_filter.order_for(total) if rule == "renyi" else 0.0,
        }
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
                f"There is no ledger at {self.path}; create one with tacit.Ledger.new(path, total=...) "
                "or: tacit ledger new."
            )
        return LedgerError(
            f"The ledger {self.path} is gone: the mark file beside it shows that there was one. Restore "
            "its newest copy; the remaining budget cannot be known without it."
        )

    def _refuse_other(self, said: Mapping[str, Any]) -> None:
        for name, each in said.items():
            held = {"total": self.total, "unit": self.unit, "rule": self.rule}[name]
            if each is not None and each != held:
                raise InvalidArgument(
                    f"{self.path} was created with {name} {held} and cannot be changed to {each}."
                )

    def charge(self, event: "DpEvent", budget: Budget, label: str = "") -> Receipt:
        """Charges a run in full, or raises. Call it before the first read of a row.

        Args:
            event: What the run does to the data.
            budget: The budget that the run was calibrated to. It must cover the event. What is
                charged is the cost of the event, which may be less.
            label: A label for the charge.

        Returns:
            The remaining budget before and after the charge.

        Raises:
            Overspent: If the ledger has too little left. Nothing is charged.
            BudgetError: If the budget does not cover the event or has another adjacency.
            LedgerError: If the file cannot be used.
        """
        return self.charge_all([(event, budget)], label)[0]

    def charge_all(
        self, runs: Sequence[tuple["DpEvent", Budget]], label: str = ""
    ) -> list[Receipt]:
        """Charges several runs in one transaction: all of them or none.

        Args:
            runs: Events and budgets, as for `charge`.
            label: A label for the charges.

        Returns:
            A receipt for each run.

        Raises:
            Overspent: If the ledger has too little left for all of them. Nothing is charged.
        """
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
        """A transaction: all that is written inside it is saved at its end, or nothing is.

        Yields:
            The connection.

        Raises:
            LedgerError: If the ledger does not match its mark file.
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
        """Raises if an earlier line of the ledger was changed. Called before every charge."""
        refuse_changed(connection, self.path)

    def book(self, connection: sa.Connection, line: Mapping[str, Any]) -> None:
        """Writes a `line` within an open transaction, or raises if too little is left."""
        budget = Budget(line["epsilon"], line["delta"], self.total.adjacency)
        spent = spent_so_far(connection)
        if not self._filter.admits(spent, budget, line["divergence"]):
            raise Overspent(
                f"The run asks for {budget}, and {self._filter.left(spent)} is left of "
                f"{self.total}. Nothing was released and nothing charged. Ask for less, or stop here."
            )
        write_charge(connection, line)

    def refuse_adjacency(self, budget: Budget) -> None:
        """Raises if a budget has another adjacency than the ledger."""
        if budget.adjacency != self.total.adjacency:
            raise BudgetError(
                f"This ledger counts under {self.total.adjacency}, the run under "
                f"{budget.adjacency}; calibrate the run for the ledger's adjacency."
            )

    def line(self, event: "DpEvent", budget: Budget, label: str) -> dict[str, Any]:
        """The line that a run is recorded as. Raises if its budget does not cover the event."""
        self.refuse_adjacency(budget)
        charged = accounting.cost.cost(event, budget)
        return {
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "label": label,
            "epsilon": charged.epsilon,
            "delta": charged.delta,
            "divergence": self._filter.divergence(event),
            "event": repr(event),
        }

    def _left(self, connection: sa.Connection) -> Budget:
        return self._filter.left(spent_so_far(connection))

    @property
    def left(self) -> Budget:
        """The remaining budget. With the rule ``"renyi"``, roughly what one more run may cost."""
        with self.transaction() as connection:
            return self._left(connection)

    @property
    def charges(self) -> list[Charge]:
        """All charges, oldest first."""
        with self.transaction() as connection:
            return read_charges(connection)

    def __reduce__(self) -> tuple[type["Ledger"], tuple[str]]:
        """A copy, also in another process, opens the same file."""
        return type(self), (str(self._file),)

    def _repr_html_(self) -> str:
        return render("ledger.html", ledger=self)

    def __repr__(self) -> str:
        return f"Ledger({str(self.path)!r}, total={self.total}, unit={self.unit!r})"

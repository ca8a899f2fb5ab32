"""The privacy ledger of a data set: durable, append-only, and checked before data are read.

The ledger is a privacy filter across runs (see `tacit.accounting.filter`).
A run is charged in full, in one transaction, before its first read. Nothing is refunded.
Only `Ledger.new` creates a ledger; a missing one is never recreated.
"""

import copy
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import sqlalchemy as sa
from attrs import asdict

from tacit import _validate, accounting
from tacit._html import render
from tacit.accounting import chain
from tacit.accounting.book import (
    Charge,
    read_charges,
    read_finish,
    read_terms,
    refuse_changed,
    refuse_strange,
    spent_so_far,
    total_of,
    write_charge,
    write_finish,
)
from tacit.accounting.budget import Budget
from tacit.accounting.filter import RULES, PrivacyFilter, Rule
from tacit.accounting.places import place_at
from tacit.accounting.stamps import folder_here, now, readable, user
from tacit.accounting.store import TryAgain
from tacit.errors import BudgetError, InvalidArgument, LedgerError, Overspent

if TYPE_CHECKING:  # it takes a second to load, and showing a ledger does not need it
    from dp_accounting.dp_event import DpEvent

T = TypeVar("T")
# Units of privacy: a row, all rows of a person, or everything that one site holds.
UNITS = ("row", "person", "data set")
# How often a transaction is tried that others undo. Each time, one of them has gone through.
_TRIES = 20


class Receipt(NamedTuple):
    """The remaining budget of a ledger before and after a charge."""

    before: Budget
    left: Budget


class Ledger:
    """The privacy ledger of one data set: an SQLite file, or a database on a PostgreSQL server.

    Several processes may share it. Create a ledger once with `Ledger.new`, which fixes its total, unit,
    adjacency and rule. ``Ledger(path)`` opens it from then on.

    Args:
        path: The file of the ledger, or the address of its database as text, such as
            ``"postgresql://anna@db.example.org/registry"``.
        total: If passed, must equal the total that the ledger was created with.
        unit: If passed, must equal the ledger's unit.
        rule: If passed, must equal the ledger's rule.

    Attributes:
        path: The file, or the address without its password.
        total: The total budget of all charges.
        unit: The unit of privacy: ``"row"``, ``"person"`` or ``"data set"``.
        rule: How charges compose, ``"sum"`` or ``"renyi"``.
        noted: The run and the folder that charges are recorded with; see `for_run`.

    Raises:
        LedgerError: If the ledger is missing, older than its mark file, changed, or cannot be read.
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
        self.place = place_at(path)
        self.path = self.place.where
        self.noted = {"run": "", "folder": ""}
        with self.transaction() as connection:
            self.refuse_changed(connection)
        self._refuse_other({"total": total, "unit": unit, "rule": rule})

    @classmethod
    def new(
        cls,
        path: str | os.PathLike[str],
        total: Budget,
        *,
        unit: str = "row",
        rule: Rule = "sum",
        analysts: Sequence[str] = (),
    ) -> "Ledger":
        """Creates a ledger. Its terms cannot be changed later.

        A file is readable by its owner only, because at a federated site it also holds keys of
        noise. In a database, whoever creates the ledger is its steward.

        Args:
            path: A new file, beside which a mark file is created; or the address of a database that
                has no ledger.
            total: The total budget of all charges. Its adjacency applies to all of them.
            unit: The unit of privacy: ``"row"``, ``"person"`` or ``"data set"`` (everything that a
                federated site holds).
            rule: How charges compose: ``"sum"`` adds epsilons and deltas; ``"renyi"`` adds Rényi
                divergences of one order, which is tighter for many small charges and needs a
                positive delta.
            analysts: In a database, the PostgreSQL roles whose members may charge and read.

        Returns:
            The new ledger.

        Raises:
            LedgerError: If there is, or was, a ledger at this path, or it cannot be written.
            InvalidArgument: If an argument is wrong.
        """
        if not isinstance(total, Budget):
            raise InvalidArgument("total must be a tacit.Budget(epsilon, delta).")
        _validate.choice("unit", unit, UNITS)
        _validate.choice("rule", rule, RULES)
        if rule == "renyi" and total.delta == 0:
            raise InvalidArgument('A pure budget adds up by sums; use rule="sum".')
        terms = {
            "unit": unit,
            "rule": rule,
            **asdict(total),
            "order": accounting.renyi_filter.order_for(total) if rule == "renyi" else 0.0,
        }
        place_at(path).create(terms, analysts)
        return cls(path)

    def for_run(self, run: str, folder: str | os.PathLike[str] | None = None) -> "Ledger":
        """The same ledger, whose next charges are recorded as those of a run.

        Args:
            run: A name for the run.
            folder: Where its results will be.

        Returns:
            The ledger for this run.
        """
        mine = copy.copy(self)
        place = "" if folder is None else folder_here(folder)
        mine.noted = {"run": readable(run), "folder": place}
        return mine

    @property
    def own_charges(self) -> list[Charge]:
        """The charges of the run of `for_run`, oldest first."""
        return [each for each in self.charges if self.noted.items() <= asdict(each).items()]

    def _refuse_other(self, said: Mapping[str, Any]) -> None:
        for name, each in said.items():
            held = {"total": self.total, "unit": self.unit, "rule": self.rule}[name]
            if each is not None and each != held:
                raise InvalidArgument(
                    f"{self.path} was created with {name} {held} and cannot be changed to {each}."
                )

    def charge(
        self, event: "DpEvent", budget: Budget, label: str = "", *, run_id: str = ""
    ) -> Receipt:
        """Charges a run in full, or raises. Call it before the first read of a row.

        Args:
            event: What the run does to the data.
            budget: The budget that the run was calibrated to. It must cover the event. What is
                charged is the cost of the event, which may be less.
            label: A label for the charge.
            run_id: The random name of a run that is kept on disk, by which `receipt` finds its charge.

        Returns:
            The remaining budget before and after the charge.

        Raises:
            Overspent: If the ledger has too little left. Nothing is charged.
            BudgetError: If the budget does not cover the event or has another adjacency.
            LedgerError: If the ledger cannot be used.
        """
        lines = [self.line(event, budget, label, run_id)]
        return _tried(lambda: self._booked(lines))[0]

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
        return _tried(lambda: self._booked(lines))

    def _booked(self, lines: Sequence[Mapping[str, Any]]) -> list[Receipt]:
        receipts = []
        with self.transaction() as connection:
            self.refuse_changed(connection)
            for line in lines:
                before = self._left(connection)
                self.book(connection, line)
                receipts.append(Receipt(before, self._left(connection)))
        return receipts

    def receipt(self, event: "DpEvent", run_id: str) -> Receipt | None:
        """The receipt of the charge of a run with this event, or None if there is no such charge.

        Args:
            event: What the run does to the data.
            run_id: The random name of the run, as for `charge`.

        Returns:
            The receipt that the charge was answered with.
        """
        with self.transaction() as connection:
            self.refuse_changed(connection)
            charges, spent = read_charges(connection), spent_so_far(connection)
        for i, charge in enumerate(charges):
            if charge.event == repr(event) and charge.run_id == run_id:
                before, after = (spent.first(count) for count in (i, i + 1))
                return Receipt(self._filter.left(before), self._filter.left(after))
        return None

    def finish(self, run_id: str, digest: str) -> str:
        """Records that the result of a run leaves. The first one is kept: a charge pays for one.

        Args:
            run_id: The random name of the run, as for `charge`.
            digest: A digest of the result.

        Returns:
            The digest of the result that was recorded first. Only that one may leave.

        Raises:
            LedgerError: If the run was not charged, or the ledger cannot be used.
        """
        return _tried(lambda: self._finished(run_id, digest))

    def _finished(self, run_id: str, digest: str) -> str:
        with self.transaction() as connection:
            self.refuse_changed(connection)
            first = read_finish(connection, run_id)
            if first is None and not write_finish(connection, run_id, now(), digest):
                raise LedgerError(f"{self.path} has no charge for the run {run_id!r}.")
        return first or digest

    def finish_of(self, run_id: str) -> str | None:
        """The digest of the result that left for the charge of a run, or None if none has."""
        with self.transaction() as connection:
            self.refuse_changed(connection)
            return read_finish(connection, run_id)

    @contextmanager
    def transaction(self) -> Iterator[sa.Connection]:
        """A transaction: all that is written inside it is saved at its end, or nothing is.

        Yields:
            The connection.

        Raises:
            LedgerError: If the ledger does not match its mark file.
        """
        mark = self.place.mark
        before = mark.read()
        with mark.advancing() as advance, self.place.begin() as connection:
            refuse_strange(connection, mark, self.path)
            said = mark.refuse_older(connection, before)
            self._read_terms(connection)
            yield connection
            if (end := chain.head(connection)).links > said.links:
                advance(end)

    def _read_terms(self, connection: sa.Connection) -> None:
        """Reads the terms, as another process may have raised the total."""
        terms = read_terms(connection)
        self.total = total_of(terms)
        self.unit: str = terms["unit"]
        self.rule: Rule = terms["rule"]
        self._filter = PrivacyFilter(self.total, self.rule, terms["order"])

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
        write_charge(connection, line, {"analyst": user(), **self.noted})

    def refuse_adjacency(self, budget: Budget) -> None:
        """Raises if a budget has another adjacency than the ledger."""
        if budget.adjacency != self.total.adjacency:
            raise BudgetError(
                f"This ledger counts under {self.total.adjacency}, the run under "
                f"{budget.adjacency}; calibrate the run for the ledger's adjacency."
            )

    def line(
        self, event: "DpEvent", budget: Budget, label: str, run_id: str = ""
    ) -> dict[str, Any]:
        """The line that a run is recorded as. Raises if its budget does not cover the event."""
        self.refuse_adjacency(budget)
        charged = accounting.cost.cost(event, budget)
        return {
            "time": now(),
            "label": label,
            "epsilon": charged.epsilon,
            "delta": charged.delta,
            "divergence": self._filter.divergence(event),
            "event": repr(event),
            "run_id": run_id,
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

    def __copy__(self) -> "Ledger":
        mine = object.__new__(type(self))
        vars(mine).update(vars(self))
        return mine

    def __deepcopy__(self, _memo: dict[int, Any]) -> "Ledger":
        """The same ledger: there are no two of one budget."""
        return copy.copy(self)

    def __reduce__(self) -> tuple[Callable[..., "Ledger"], tuple[Any, ...]]:
        """A copy in another process opens the same ledger.

        A password is not part of it: there, the driver must find it by itself (``PGPASSWORD``,
        ``~/.pgpass``).
        """
        return _opened, (type(self), self.place.reopened, self.noted)

    def _repr_html_(self) -> str:
        return render("ledger.html", ledger=self)

    def __repr__(self) -> str:
        return f"Ledger({str(self.path)!r}, total={self.total}, unit={self.unit!r})"


def _tried(write: Callable[[], T]) -> T:
    """What a transaction returns, tried again if it was undone because of others: then nothing was written."""
    for _ in range(_TRIES - 1):
        try:
            return write()
        except TryAgain:
            continue
    return write()


def _opened(kind: type[Ledger], path: str, noted: Mapping[str, str]) -> Ledger:
    found = kind(path)
    found.noted = dict(noted)
    return found

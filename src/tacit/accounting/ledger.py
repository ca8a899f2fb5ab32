"""The privacy ledger of a data set: durable, append-only, and checked before data are read.

The ledger is a privacy filter across runs (see `tacit.accounting.budget`). A run is charged in full, in one transaction,
before its first read. The charge says what counts instead if the run stops early, where it may; a line that is appended
then says that it has. Nothing else is refunded. Only `Ledger.new` creates a ledger; a missing one is never recreated.
"""

import copy
import os
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from getpass import getuser
from pathlib import Path
from typing import NamedTuple, TypeVar

import sqlalchemy as sa

from tacit import _validate, accounting
from tacit._format import format_number, subtract_decimals
from tacit._html import render_template
from tacit.accounting.budget import RULES, Budget, PastCosts, PrivacyFilter, Rule
from tacit.accounting.events import DpEvent
from tacit.accounting.ledger_chain import (
    Charge,
    LedgerTerms,
    Line,
    RaisedTotal,
    append_line,
    chain_head,
    check_tables,
    check_unchanged,
    read_charges,
    read_finish,
    read_initial_terms,
    read_past_costs,
    read_raises,
    read_terms,
    write_finish,
)
from tacit.accounting.ledger_store import DatabaseAddress, RetryTransaction, open_backend
from tacit.errors import BudgetError, InvalidArgument, LedgerError, Overspent

T = TypeVar("T")
# Units of privacy: a row, all rows of a person, or everything that one site holds.
UNITS = ("row", "person", "data set")
# How often a transaction is tried that others undo. Each time, one of them has gone through.
_MAX_ATTEMPTS = 20


class Receipt(NamedTuple):
    """The remaining budget of a ledger before and after a charge."""

    before: Budget
    left: Budget


@dataclass(frozen=True)
class PendingCharge:
    """A charge before it is written: the values of its line."""

    time: str
    label: str
    epsilon: float
    delta: float
    divergence: float
    event: str
    run_id: str
    stopped_epsilon: float | None = None
    stopped_divergence: float | None = None


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
        run_fields: The run and the folder that charges are recorded with; see `for_run`.

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
        self.backend = open_backend(path)
        self.path = self.backend.location
        self.run_fields = {"run": "", "folder": ""}
        with self.transaction() as connection:
            self.check_unchanged(connection)
        self._check_same_terms(total=total, unit=unit, rule=rule)

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
        _check_total(total)
        _validate.choice("unit", unit, UNITS)
        _validate.choice("rule", rule, RULES)
        if rule == "renyi" and total.delta == 0:
            raise InvalidArgument('A pure budget adds up by sums; use rule="sum".')
        order = accounting.renyi.ledger_order(total) if rule == "renyi" else 0.0
        open_backend(path).create(LedgerTerms(unit, PrivacyFilter(total, rule, order)), analysts)
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
        where = "" if folder is None else f"{platform.node()}:{Path(folder).absolute()}"
        mine.run_fields = {"run": storable_text(run), "folder": storable_text(where)}
        return mine

    @property
    def own_charges(self) -> list[Charge]:
        """The charges of the run of `for_run`, oldest first."""
        return [each for each in self.charges if self.run_fields.items() <= asdict(each).items()]

    def _check_same_terms(self, **passed: Budget | str | None) -> None:
        for name, value in passed.items():
            fixed = getattr(self, name)
            if value is not None and value != fixed:
                raise InvalidArgument(
                    f"{self.path} was created with {name} {fixed} and cannot be changed to {value}."
                )

    def charge(
        self,
        event: DpEvent,
        budget: Budget,
        label: str = "",
        *,
        run_id: str = "",
        stopped: DpEvent | None = None,
    ) -> Receipt:
        """Charges a run in full, or raises. Call it before anything that could leave is computed from rows.

        Args:
            event: What the run does to the data.
            budget: The budget that the run was calibrated to. It must cover the event. What is
                charged is the cost of the event, which may be less.
            label: A label for the charge.
            run_id: The random name of the run, by which `receipt` and `finish` find its charge.
            stopped: What the run does to the data until it may stop early. If it does, `finish` says so,
                and its charge counts as the cost of this.

        Returns:
            The remaining budget before and after the charge.

        Raises:
            Overspent: If the ledger has too little left. Nothing is charged.
            BudgetError: If the budget does not cover the event or has another adjacency.
            LedgerError: If the ledger cannot be used.
        """
        return self._charge([self.prepare_charge(event, budget, label, run_id, stopped)])[0]

    def charge_all(
        self,
        runs: Sequence[tuple[DpEvent, Budget]],
        label: str = "",
        *,
        run_ids: Sequence[str] | None = None,
        stopped: Sequence[DpEvent | None] | None = None,
    ) -> list[Receipt]:
        """Charges several runs in one transaction: all of them or none.

        Args:
            runs: Events and budgets, as for `charge`.
            label: A label for the charges.
            run_ids: The random name of each run, as for `charge`.
            stopped: What each run does until it may stop early, as for `charge`.

        Returns:
            A receipt for each run.

        Raises:
            Overspent: If the ledger has too little left for all of them. Nothing is charged.
        """
        names, stops = run_ids or [""] * len(runs), stopped or [None] * len(runs)
        return self._charge(
            [
                self.prepare_charge(event, budget, label, name, stop)
                for (event, budget), name, stop in zip(runs, names, stops, strict=True)
            ]
        )

    def _charge(self, charges: Sequence[PendingCharge]) -> list[Receipt]:
        def write() -> list[Receipt]:
            receipts = []
            with self.transaction() as connection:
                self.check_unchanged(connection)
                for charge in charges:
                    before = self._left(connection)
                    self.append_charge(connection, charge)
                    receipts.append(Receipt(before, self._left(connection)))
            return receipts

        return _retry(write)

    def receipt(self, event: DpEvent, run_id: str) -> Receipt | None:
        """The receipt of the charge of a run with this event, or None if there is no such charge.

        Args:
            event: What the run does to the data.
            run_id: The random name of the run, as for `charge`.

        Returns:
            The receipt that the charge was answered with; of runs that stopped early since, what counts now.
        """
        with self.transaction() as connection:
            self.check_unchanged(connection)
            charges, spent = read_charges(connection), read_past_costs(connection)
        for i, charge in enumerate(charges):
            if charge.event == repr(event) and charge.run_id == run_id:
                before, after = (spent.first(count) for count in (i, i + 1))
                return Receipt(self._filter.left(before), self._filter.left(after))
        return None

    def finish(self, run_id: str, digest: str, *, stopped: bool = False) -> str:
        """Records that the result of a run leaves. The first one is kept: a charge pays for one.

        Args:
            run_id: The random name of the run, as for `charge`.
            digest: A digest of the result.
            stopped: Whether the run stopped early, and will do no more to the data. Its charge then
                counts as it says for that case.

        Returns:
            The digest of the result that was recorded first. Only that one may leave.

        Raises:
            LedgerError: If the run was not charged, or not as one that may stop; or the ledger cannot be
                used.
        """

        def write() -> str:
            with self.transaction() as connection:
                self.check_unchanged(connection)
                first = read_finish(connection, run_id)
                if first is None and not write_finish(
                    connection, run_id, utc_now(), digest, stopped=stopped
                ):
                    which = "that may stop early" if stopped else f"{run_id!r}"
                    raise LedgerError(f"{self.path} has no charge for the run {which}.")
            return first or digest

        return _retry(write)

    def finished_digest(self, run_id: str) -> str | None:
        """The digest of the result that left for the charge of a run, or None if none has."""
        with self.transaction() as connection:
            self.check_unchanged(connection)
            return read_finish(connection, run_id)

    @contextmanager
    def transaction(self) -> Iterator[sa.Connection]:
        """A transaction: all that is written inside it is saved at its end, or nothing is.

        Yields:
            The connection.

        Raises:
            LedgerError: If the ledger does not match its mark file.
        """
        mark, location = self.backend.mark, str(self.path)
        marked = mark.read()
        with mark.advancing() as advance, self.backend.begin() as connection:
            check_tables(connection, mark, location)
            known = mark.check_not_older(connection, marked)
            # Another process may have raised the total.
            terms = read_terms(connection)
            self.total, self.unit, self.rule = terms.filter.total, terms.unit, terms.filter.rule
            self._filter = terms.filter
            yield connection
            if (end := chain_head(connection)).links > known.links:
                advance(end)

    def check_unchanged(self, connection: sa.Connection) -> None:
        """Raises if an earlier line of the ledger was changed. Called before every charge."""
        check_unchanged(connection, str(self.path))

    def check_adjacency(self, budget: Budget) -> None:
        """Raises if a budget has another adjacency than the ledger."""
        if budget.adjacency != self.total.adjacency:
            raise BudgetError(
                f"This ledger counts under {self.total.adjacency}, the run under "
                f"{budget.adjacency}; calibrate the run for the ledger's adjacency."
            )

    def check_unit(self, unit: str) -> None:
        """Raises if the ledger protects another unit of privacy."""
        if unit != self.unit:
            raise BudgetError(
                f"The ledger protects a {self.unit}, but the unit of these rows is a {unit}."
            )

    def check_left(self, budget: Budget) -> None:
        """Raises if too little is left for a run that costs all of a budget.

        What is left under the rule ``"renyi"`` depends on the event; nothing is checked then.
        """
        if self.rule == "sum":
            with self.transaction() as connection:
                self._check_left(read_past_costs(connection), budget, 0.0)

    def _check_left(self, spent: PastCosts, budget: Budget, divergence: float) -> None:
        if not self._filter.admits(spent, budget, divergence):
            raise Overspent(
                f"The run requests {budget}, and {self._filter.left(spent)} is left of "
                f"{self.total}. Nothing was released and nothing charged. Request less, or stop here."
            )

    def prepare_charge(
        self,
        event: DpEvent,
        budget: Budget,
        label: str,
        run_id: str = "",
        stopped: DpEvent | None = None,
    ) -> PendingCharge:
        """The charge of a run. Raises if its budget does not cover the event."""
        self.check_adjacency(budget)
        divergence, less = self._filter.divergence(event), {}
        if stopped is None:
            charged = accounting.accountants.cost(event, budget)
        else:
            charged, early = accounting.accountants.stopping_costs(event, stopped, budget)
            least = min(self._filter.divergence(stopped), divergence)
            less = {"stopped_epsilon": early.epsilon, "stopped_divergence": least}
        return PendingCharge(
            time=utc_now(),
            label=label,
            epsilon=charged.epsilon,
            delta=charged.delta,
            divergence=divergence,
            event=repr(event),
            run_id=run_id,
            **less,
        )

    def check_charge(self, connection: sa.Connection, charge: PendingCharge) -> None:
        """Raises if too little is left for a charge."""
        budget = Budget(charge.epsilon, charge.delta, self.total.adjacency)
        self._check_left(read_past_costs(connection), budget, charge.divergence)

    def append_charge(self, connection: sa.Connection, charge: PendingCharge) -> None:
        """Writes a charge within an open transaction, or raises if too little is left."""
        self.check_charge(connection, charge)
        number = append_line(connection, "charge", asdict(charge))
        append_line(connection, "entry", {"analyst": user_name(), **self.run_fields}, number)

    def _left(self, connection: sa.Connection) -> Budget:
        return self._filter.left(read_past_costs(connection))

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

    def __deepcopy__(self, _memo: object) -> "Ledger":
        """The same ledger: there are no two of one budget."""
        return copy.copy(self)

    def __reduce__(
        self,
    ) -> "tuple[Callable[..., Ledger], tuple[type[Ledger], str, Mapping[str, str]]]":
        """A copy in another process opens the same ledger.

        A password is not part of it: there, the driver must find it by itself (``PGPASSWORD``,
        ``~/.pgpass``).
        """
        return _reopen, (type(self), self.backend.reopen_text, self.run_fields)

    def _repr_html_(self) -> str:
        return render_template("ledger.html", ledger=self)

    def __repr__(self) -> str:
        return f"Ledger({str(self.path)!r}, total={self.total}, unit={self.unit!r})"


def _check_total(total: Budget) -> None:
    if total.advantage is not None:
        raise InvalidArgument(
            "The total of a ledger must be an epsilon and a delta, because advantages of several runs do not "
            f"add up; pass tacit.Budget({total.epsilon:g}, {total.delta:g}), and the advantage to each fit."
        )


def raise_total(ledger: Ledger, total: Budget) -> None:
    """Raises the total of a ledger on a server. The server lets only the steward do this.

    The new total is then the promise to the people in the data, for earlier charges as well. The old total
    stays recorded.

    Args:
        ledger: The ledger.
        total: The new total, nowhere lower. Under the rule ``"renyi"`` only epsilon can be raised.

    Raises:
        InvalidArgument: If it is not a higher total.
        BudgetError: If it has another adjacency.
        LedgerError: If the ledger cannot be raised, or not by you.
    """
    ledger.backend.check_can_raise()
    ledger.check_adjacency(total)
    _check_total(total)
    with ledger.transaction() as connection:
        ledger.check_unchanged(connection)
        current = ledger.total
        if ledger.rule == "renyi" and total.delta != current.delta:
            raise InvalidArgument(
                f"Only the epsilon of this ledger can be raised, as Rényi divergences add up: its delta is "
                f"{format_number(current.delta)}, and {format_number(total.delta)} was requested."
            )
        if total == current or total.epsilon < current.epsilon or total.delta < current.delta:
            raise InvalidArgument(f"The total is {current} and can only be raised; got {total}.")
        line: Line = {
            "time": utc_now(),
            "steward": user_name(),
            "epsilon": total.epsilon,
            "delta": total.delta,
        }
        append_line(connection, "raise", line)
    ledger.total = total


def adopt(path: str | os.PathLike[str]) -> Ledger:
    """Accepts the ledger in a file as it is, and writes its mark file.

    Only a person can know that a ledger without a mark file is the newest copy, so this never happens by
    itself. A ledger that has a mark file is refused, and so is one whose lines were changed.

    Args:
        path: The file of the ledger.

    Returns:
        The ledger.

    Raises:
        LedgerError: If there is no ledger at the path, it has a mark file, or it was changed.
    """
    backend = open_backend(path)
    mark, location = backend.mark, str(backend.location)
    if isinstance(backend.location, DatabaseAddress):
        raise LedgerError(
            f"{location} needs no adopting: who opens it first writes a mark of their own."
        )
    with mark.advancing() as advance, backend.begin() as connection:
        if mark.read() is not None:
            raise LedgerError(f"{location} has its mark file beside it and needs no adopting.")
        check_tables(connection, mark, location)
        check_unchanged(connection, location)
        advance(chain_head(connection))
    return Ledger(path)


@dataclass(frozen=True)
class LedgerHistory:
    """A ledger as it was at one moment.

    Attributes:
        first_total: The total that it was created with.
        total: The total that held at that moment.
        left: What was left of it.
        charges: All charges, oldest first.
        raises: All changes of the total, oldest first.
        spent: The epsilon of all charges together up to each charge.
    """

    first_total: Budget
    total: Budget
    left: Budget
    charges: list[Charge]
    raises: list[RaisedTotal]
    spent: list[float]


def read_history(ledger: Ledger) -> LedgerHistory:
    """Reads the history of a ledger, in one transaction.

    Args:
        ledger: The ledger.

    Returns:
        Its history.
    """
    with ledger.transaction() as connection:
        terms, costs = read_terms(connection), read_past_costs(connection)
        total, left = terms.filter.total, terms.filter.left
        return LedgerHistory(
            first_total=read_initial_terms(connection).filter.total,
            total=total,
            left=left(costs),
            charges=read_charges(connection),
            raises=read_raises(connection),
            spent=[
                subtract_decimals(total.epsilon, left(costs.first(count)).epsilon)
                for count in range(1, len(costs.epsilon) + 1)
            ],
        )


def _retry(write: Callable[[], T]) -> T:
    """What a transaction returns, tried again if it was undone because of others: then nothing was written."""
    for _ in range(_MAX_ATTEMPTS - 1):
        try:
            return write()
        except RetryTransaction:
            continue
    return write()


def _reopen(kind: type[Ledger], path: str, run_fields: Mapping[str, str]) -> Ledger:
    ledger = kind(path)
    ledger.run_fields = dict(run_fields)
    return ledger


def utc_now() -> str:
    """The time. A server puts its own in its place."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def user_name() -> str:
    """The user's name on this machine. A server puts the name of the login in its place."""
    try:
        return getuser()
    except (OSError, KeyError, ImportError):  # a user without a name
        return ""


def storable_text(text: str) -> str:
    r"""Text that every database can hold: names of files may have bytes that are no letters.

    >>> storable_text("runs/\udcff\0")
    'runs/??'
    """
    return text.encode("utf-8", "replace").decode().replace("\0", "?")

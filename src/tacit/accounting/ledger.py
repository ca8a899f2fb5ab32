"""The privacy ledger of a data set: durable, append-only, and checked before data are read.

The ledger is a privacy filter across runs (see `tacit.accounting.budget`). A run is charged in full, in one transaction,
before its first read. Nothing is refunded. Only `Ledger.new` creates a ledger; a missing one is never recreated.
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
from typing import Any, NamedTuple, Protocol, TypeVar

import sqlalchemy as sa

from tacit import _validate, accounting
from tacit._format import subtract_decimals
from tacit._html import render_template
from tacit.accounting import ledger_chain, ledger_store
from tacit.accounting.budget import RULES, Budget, PastCosts, PrivacyFilter, Rule
from tacit.accounting.events import DpEvent
from tacit.accounting.ledger_chain import (
    TABLES_BY_KIND,
    Charge,
    RaisedTotal,
    check_never_existed,
    check_tables,
    check_unchanged,
    create_file,
    create_tables,
    read_charges,
    read_finish,
    read_initial_terms,
    read_past_costs,
    read_raises,
    read_terms,
    total_from_terms,
    write_charge,
    write_finish,
    write_raise,
    write_terms,
)
from tacit.accounting.ledger_store import (
    DatabaseAddress,
    LedgerLocation,
    RetryTransaction,
    file_exists,
    parse_location,
    postgres_engine,
    postgres_transaction,
)
from tacit.errors import BudgetError, InvalidArgument, LedgerError, Overspent


def utc_now() -> str:
    """The time. A server puts its own in its place."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def user_name() -> str:
    """The user's name on this machine. A server puts the name of the login in its place."""
    try:
        return getuser()
    except (OSError, KeyError, ImportError):  # a user without a name
        return ""


def folder_with_host(folder: str | os.PathLike[str]) -> str:
    """A folder, with the name of this machine."""
    return storable_text(f"{platform.node()}:{Path(folder).absolute()}")


def storable_text(text: str) -> str:
    r"""Text that every database can hold: names of files may have bytes that are no letters.

    >>> storable_text("runs/\udcff\0")
    'runs/??'
    """
    return text.encode("utf-8", "replace").decode().replace("\0", "?")


class LedgerBackend(Protocol):
    """Where a ledger is."""

    where: LedgerLocation
    mark: ledger_chain.MarkFile
    reopened: str  # what opens the place in another process; without a password

    def create(self, terms: Mapping[str, Any], analysts: Sequence[str]) -> None:
        """Creates a ledger there; raises if there is, or was, one."""
        ...

    def begin(self) -> Any:
        """A transaction as a context, alone with the ledger; errors say what to do."""
        ...

    def refuse_to_raise(self) -> None:
        """Raises if the total of a ledger cannot be raised there."""
        ...


class SQLiteBackend:
    """An SQLite file with a mark file beside it."""

    def __init__(self, where: Path) -> None:
        self.where: LedgerLocation = where
        self._there = ledger_store.file_exists(where)
        self._file = where.resolve()  # now: the working folder may change
        self.mark = ledger_chain.MarkFile(self._file)
        self._engine = ledger_store.sqlite_engine(self._file)
        self.reopened = str(self._file)

    def create(self, terms: Mapping[str, Any], analysts: Sequence[str]) -> None:
        """Creates a file that only its owner can read."""
        if analysts:
            raise InvalidArgument(
                "A ledger in a file has no roles: whoever can write the file can charge; leave out analysts."
            )
        create_file(self._file)
        self._there = True
        try:
            with self.mark.advancing() as advance, self.begin() as connection:
                create_tables(connection)
                write_terms(connection, terms)
                advance(ledger_chain.chain_head(connection))
        except BaseException:
            self._file.unlink()
            raise

    @contextmanager
    def begin(self) -> Iterator[sa.Connection]:
        """BEGIN IMMEDIATE: nobody else may write."""
        if not self._there:
            raise self._missing()
        with (
            ledger_store.translate_sqlite_errors(Path(str(self.where))),
            self._engine.begin() as connection,
        ):
            yield connection

    def refuse_to_raise(self) -> None:
        """In a file there is no steward who alone could do it."""
        raise LedgerError(
            f"The total of {self.where} was fixed when it was created; only a ledger on a server, which "
            "knows its steward, can be raised."
        )

    def _missing(self) -> LedgerError:
        if self.mark.read() is None:
            return LedgerError(
                f"There is no ledger at {self.where}; create one with tacit.Ledger.new(path, total=...) "
                "or: tacit ledger new."
            )
        return LedgerError(
            f"The ledger {self.where} is gone: the mark file beside it shows that there was one. Restore "
            "its newest copy; the remaining budget cannot be known without it."
        )


class PostgresBackend:
    """A database on a server, and the user's own mark of it."""

    def __init__(self, where: DatabaseAddress) -> None:
        self.where: LedgerLocation = where
        self._address = where
        self.mark: ledger_chain.MarkFile = ledger_chain.UserMarkFile(where)
        self._engine = postgres_engine(where)
        self.reopened = where.open_text

    def create(self, terms: Mapping[str, Any], analysts: Sequence[str]) -> None:
        """Creates the tables, and the rules and roles that the server enforces."""
        check_never_existed(self.mark, self.where)
        with postgres_transaction(self._engine, self._address, alone=False) as connection:
            ledger_store.create_schema(connection)
            create_tables(connection)
            ledger_store.create_triggers(connection, TABLES_BY_KIND)
            write_terms(connection, terms)
            ledger_store.grant_to_analysts(connection, analysts)

    @contextmanager
    def begin(self) -> Iterator[sa.Connection]:
        """A serialisable transaction that has waited for its turn."""
        with postgres_transaction(self._engine, self._address) as connection:
            yield connection

    def refuse_to_raise(self) -> None:
        """The server decides by role."""


def open_backend(path: str | os.PathLike[str]) -> LedgerBackend:
    """The place that a path or an address names."""
    where = parse_location(path)
    return PostgresBackend(where) if isinstance(where, DatabaseAddress) else SQLiteBackend(where)


T = TypeVar("T")
# Units of privacy: a row, all rows of a person, or everything that one site holds.
UNITS = ("row", "person", "data set")
# How often a transaction is tried that others undo. Each time, one of them has gone through.
_MAX_ATTEMPTS = 20


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
        self.place = open_backend(path)
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
            "order": accounting.renyi.ledger_order(total) if rule == "renyi" else 0.0,
        }
        open_backend(path).create(terms, analysts)
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
        place = "" if folder is None else folder_with_host(folder)
        mine.noted = {"run": storable_text(run), "folder": place}
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
        self, event: DpEvent, budget: Budget, label: str = "", *, run_id: str = ""
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
        return _retry(lambda: self._booked(lines))[0]

    def charge_all(self, runs: Sequence[tuple[DpEvent, Budget]], label: str = "") -> list[Receipt]:
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
        return _retry(lambda: self._booked(lines))

    def _booked(self, lines: Sequence[Mapping[str, Any]]) -> list[Receipt]:
        receipts = []
        with self.transaction() as connection:
            self.refuse_changed(connection)
            for line in lines:
                before = self._left(connection)
                self.book(connection, line)
                receipts.append(Receipt(before, self._left(connection)))
        return receipts

    def receipt(self, event: DpEvent, run_id: str) -> Receipt | None:
        """The receipt of the charge of a run with this event, or None if there is no such charge.

        Args:
            event: What the run does to the data.
            run_id: The random name of the run, as for `charge`.

        Returns:
            The receipt that the charge was answered with.
        """
        with self.transaction() as connection:
            self.refuse_changed(connection)
            charges, spent = read_charges(connection), read_past_costs(connection)
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
        return _retry(lambda: self._finished(run_id, digest))

    def _finished(self, run_id: str, digest: str) -> str:
        with self.transaction() as connection:
            self.refuse_changed(connection)
            first = read_finish(connection, run_id)
            if first is None and not write_finish(connection, run_id, utc_now(), digest):
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
            check_tables(connection, mark, self.path)
            said = mark.refuse_older(connection, before)
            self._read_terms(connection)
            yield connection
            if (end := ledger_chain.chain_head(connection)).links > said.links:
                advance(end)

    def _read_terms(self, connection: sa.Connection) -> None:
        """Reads the terms, as another process may have raised the total."""
        terms = read_terms(connection)
        self.total = total_from_terms(terms)
        self.unit: str = terms["unit"]
        self.rule: Rule = terms["rule"]
        self._filter = PrivacyFilter(self.total, self.rule, terms["order"])

    def refuse_changed(self, connection: sa.Connection) -> None:
        """Raises if an earlier line of the ledger was changed. Called before every charge."""
        check_unchanged(connection, self.path)

    def book(self, connection: sa.Connection, line: Mapping[str, Any]) -> None:
        """Writes a `line` within an open transaction, or raises if too little is left."""
        budget = Budget(line["epsilon"], line["delta"], self.total.adjacency)
        spent = read_past_costs(connection)
        if not self._filter.admits(spent, budget, line["divergence"]):
            raise Overspent(
                f"The run asks for {budget}, and {self._filter.left(spent)} is left of "
                f"{self.total}. Nothing was released and nothing charged. Ask for less, or stop here."
            )
        write_charge(connection, line, {"analyst": user_name(), **self.noted})

    def refuse_adjacency(self, budget: Budget) -> None:
        """Raises if a budget has another adjacency than the ledger."""
        if budget.adjacency != self.total.adjacency:
            raise BudgetError(
                f"This ledger counts under {self.total.adjacency}, the run under "
                f"{budget.adjacency}; calibrate the run for the ledger's adjacency."
            )

    def line(self, event: DpEvent, budget: Budget, label: str, run_id: str = "") -> dict[str, Any]:
        """The line that a run is recorded as. Raises if its budget does not cover the event."""
        self.refuse_adjacency(budget)
        charged = accounting.accountants.cost(event, budget)
        return {
            "time": utc_now(),
            "label": label,
            "epsilon": charged.epsilon,
            "delta": charged.delta,
            "divergence": self._filter.divergence(event),
            "event": repr(event),
            "run_id": run_id,
        }

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

    def __deepcopy__(self, _memo: dict[int, Any]) -> "Ledger":
        """The same ledger: there are no two of one budget."""
        return copy.copy(self)

    def __reduce__(self) -> tuple[Callable[..., "Ledger"], tuple[Any, ...]]:
        """A copy in another process opens the same ledger.

        A password is not part of it: there, the driver must find it by itself (``PGPASSWORD``,
        ``~/.pgpass``).
        """
        return _reopen, (type(self), self.place.reopened, self.noted)

    def _repr_html_(self) -> str:
        return render_template("ledger.html", ledger=self)

    def __repr__(self) -> str:
        return f"Ledger({str(self.path)!r}, total={self.total}, unit={self.unit!r})"


def _retry(write: Callable[[], T]) -> T:
    """What a transaction returns, tried again if it was undone because of others: then nothing was written."""
    for _ in range(_MAX_ATTEMPTS - 1):
        try:
            return write()
        except RetryTransaction:
            continue
    return write()


def _reopen(kind: type[Ledger], path: str, noted: Mapping[str, str]) -> Ledger:
    found = kind(path)
    found.noted = dict(noted)
    return found


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
    ledger.place.refuse_to_raise()
    ledger.refuse_adjacency(total)
    with ledger.transaction() as connection:
        ledger.refuse_changed(connection)
        _check_higher(ledger, total)
        line = {
            "time": utc_now(),
            "steward": user_name(),
            "epsilon": total.epsilon,
            "delta": total.delta,
        }
        write_raise(connection, line)
    ledger.total = total


def _check_higher(ledger: Ledger, total: Budget) -> None:
    held = ledger.total
    if ledger.rule == "renyi" and total.delta != held.delta:
        raise InvalidArgument(
            f"Only the epsilon of this ledger can be raised, as Rényi divergences add up: its delta is "
            f"{held.delta:g}, and {total.delta:g} was asked for."
        )
    if total == held or total.epsilon < held.epsilon or total.delta < held.delta:
        raise InvalidArgument(f"The total is {held} and can only be raised; got {total}.")


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
    file = parse_location(path)
    if isinstance(file, DatabaseAddress):
        raise LedgerError(
            f"{file} needs no adopting: who opens it first writes a mark of their own."
        )
    if not file_exists(file):
        raise LedgerError(f"There is no file at {file}; a missing ledger cannot be adopted.")
    backend = SQLiteBackend(file)
    if backend.mark.read() is not None:
        raise LedgerError(f"{file} has its mark file beside it and needs no adopting.")
    with backend.mark.advancing() as advance, backend.begin() as connection:
        check_tables(connection, backend.mark, file)
        check_unchanged(connection, file)
        advance(ledger_chain.chain_head(connection))
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
        return _history_from_tables(connection)


def _history_from_tables(connection: sa.Connection) -> LedgerHistory:
    terms, costs = read_terms(connection), read_past_costs(connection)
    total = total_from_terms(terms)
    held = PrivacyFilter(total, terms["rule"], terms["order"])
    each = (PastCosts(*(part[:i] for part in costs)) for i in range(1, len(costs.epsilon) + 1))
    return LedgerHistory(
        first_total=total_from_terms(read_initial_terms(connection)),
        total=total,
        left=held.left(costs),
        charges=read_charges(connection),
        raises=read_raises(connection),
        spent=[subtract_decimals(total.epsilon, held.left(some).epsilon) for some in each],
    )

"""Raising the total of a ledger, which only its steward may do."""

from tacit.accounting.book import write_raise
from tacit.accounting.budget import Budget
from tacit.accounting.ledger import Ledger
from tacit.accounting.stamps import now, user
from tacit.errors import InvalidArgument


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
        _refuse_lower(ledger, total)
        line = {"time": now(), "steward": user(), "epsilon": total.epsilon, "delta": total.delta}
        write_raise(connection, line)
    ledger.total = total


def _refuse_lower(ledger: Ledger, total: Budget) -> None:
    held = ledger.total
    if ledger.rule == "renyi" and total.delta != held.delta:
        raise InvalidArgument(
            f"Only the epsilon of this ledger can be raised, as Rényi divergences add up: its delta is "
            f"{held.delta:g}, and {total.delta:g} was asked for."
        )
    if total == held or total.epsilon < held.epsilon or total.delta < held.delta:
        raise InvalidArgument(f"The total is {held} and can only be raised; got {total}.")

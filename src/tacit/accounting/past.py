"""The history of a ledger: its charges, its totals, and what was spent when."""

import sqlalchemy as sa
from attrs import frozen

from tacit._format import less
from tacit.accounting.book import (
    Charge,
    Raise,
    read_charges,
    read_first_terms,
    read_raises,
    read_terms,
    spent_so_far,
    total_of,
)
from tacit.accounting.budget import Budget
from tacit.accounting.filter import PrivacyFilter, Spent
from tacit.accounting.ledger import Ledger


@frozen
class Past:
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
    raises: list[Raise]
    spent: list[float]


def past_of(ledger: Ledger) -> Past:
    """Reads the history of a ledger, in one transaction.

    Args:
        ledger: The ledger.

    Returns:
        Its history.
    """
    with ledger.transaction() as connection:
        return _read(connection)


def _read(connection: sa.Connection) -> Past:
    terms, costs = read_terms(connection), spent_so_far(connection)
    total = total_of(terms)
    held = PrivacyFilter(total, terms["rule"], terms["order"])
    each = (Spent(*(part[:i] for part in costs)) for i in range(1, len(costs.epsilon) + 1))
    return Past(
        first_total=total_of(read_first_terms(connection)),
        total=total,
        left=held.left(costs),
        charges=read_charges(connection),
        raises=read_raises(connection),
        spent=[less(total.epsilon, held.left(some).epsilon) for some in each],
    )

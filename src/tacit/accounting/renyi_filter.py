"""The arithmetic of a ledger whose charges add up as Rényi divergences of one order.

The order is fixed when the ledger is created (Feldman and Zrnic 2021, Theorem 4.3).
"""

import numpy as np
from dp_accounting.dp_event import DpEvent

from tacit.accounting import events, renyi
from tacit.accounting.budget import Adjacency, Budget
from tacit.accounting.convert import epsilon_by_order
from tacit.errors import BudgetError


def order_for(total: Budget) -> float:
    """An order at which the conversion costs about half of the total's epsilon."""
    orders = 1 + np.geomspace(0.05, 1e5, 400)
    fixed = epsilon_by_order(orders, np.full_like(orders, 1e-9), total.delta, "improved")
    room = (total.epsilon - fixed) / orders  # of rho, were the runs Gaussian
    return float(orders[int(np.argmax(room))])


def divergence_of(event: DpEvent, order: float, adjacency: Adjacency) -> float:
    """The divergence of a run. Raises if the run needs some delta besides."""
    if events.without_slack(event)[1] > 0:
        raise BudgetError(
            "Noise that sites share takes some additional delta, which a ledger of Rényi "
            'divergences cannot record; create one with rule="sum".'
        )
    return float(renyi.divergence(event, np.array([order]), adjacency)[0])


def epsilon_of(divergence: float, order: float, delta: float) -> float:
    """The epsilon of a sum of divergences."""
    found = epsilon_by_order(np.array([order]), np.array([divergence]), delta, "improved")
    return float(found[0])

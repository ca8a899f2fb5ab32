"""The cost of a run: the number that is charged to the ledger and stated with the result."""

from dp_accounting.dp_event import DpEvent

from tacit._format import stated
from tacit.accounting.accountants import PLD
from tacit.accounting.budget import ADJACENCIES, Adjacency, Budget
from tacit.errors import BudgetError


def cost(event: DpEvent, budget: Budget) -> Budget:
    """The cost of a run within a budget, which may be less than the budget.

    The cost is the run's epsilon at the budget's delta, rounded up at the fifth digit but not above the
    budget's epsilon.

    Args:
        event: What the run does to the data.
        budget: The budget that the run was calibrated to.

    Returns:
        The cost.

    Raises:
        BudgetError: If the run costs more than the budget.
    """
    spent = PLD().epsilon(event, budget.delta, budget.adjacency)
    if not (spent <= budget.epsilon):
        raise BudgetError(f"The run would cost more than the {budget} it declares.")
    return Budget(stated(spent, budget.epsilon), budget.delta, budget.adjacency)


def costs(
    event: DpEvent, delta: float, adjacency: Adjacency, most: float | None = None
) -> dict[Adjacency, float | None]:
    """Epsilon at a delta under each adjacency, rounded as it is charged; None where no bound is known.

    ``most`` is the epsilon that was asked for, under ``adjacency``.
    """
    found = PLD().epsilons(event, delta)
    return {
        name: None
        if (spent := found[name]) is None
        # What was asked for concerns one adjacency only.
        else stated(spent, most if name == adjacency else None)
        for name in ADJACENCIES
    }

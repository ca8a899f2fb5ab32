"""Charged releases that are one noisy sum: what exploring, checking and scoring have in common.

A release has the steps of a fit: everything that can be wrong is found first, then the ledger is charged, then the gate computes the noisy sum.
"""

from dataclasses import replace
from typing import Protocol, TypeVar

from tacit import _validate
from tacit.accounting import Budget
from tacit.accounting.ledger import Ledger
from tacit.api.plan import ASSUMPTIONS, check_ledger, fit_assumptions
from tacit.data.schema import Schema
from tacit.errors import Interrupted
from tacit.privacy.gate import Gate, open_gate
from tacit.privacy.mechanisms import NoisySums
from tacit.privacy.noise import Randomness
from tacit.privacy.rows import Rows
from tacit.results.statement import PrivacyStatement

Found_co = TypeVar("Found_co", covariant=True)


class SumRelease(Protocol[Found_co]):
    """A question about all units, answered by one noisy sum. Everything in it is public."""

    def check(self, gate: Gate) -> None:
        """Raises if the release cannot be made of rows of these shapes. Reads no row."""

    def run(self, gate: Gate) -> Found_co:
        """What follows from the noisy sum that the gate releases."""


def run_release(
    release: SumRelease[Found_co],
    rows: Rows,
    mechanism: NoisySums,
    budget: Budget,
    *,
    schema: Schema | None,
    public: tuple[str, ...],
    assumption: str,
    label: str,
    ledger: Ledger | None = None,
    seed: int | None = None,
) -> tuple[Found_co, PrivacyStatement]:
    """Makes a release: checks it, charges the ledger for it, and only then asks the gate.

    Args:
        release: The question.
        rows: The rows that it is computed from.
        mechanism: The noisy sum, as it is charged.
        budget: The budget that was requested.
        schema: The schema of the rows, if they have one.
        public: What the release treats as public.
        assumption: What must not have been computed from these data.
        label: The public text of the ledger's entry.
        ledger: The ledger, or None for none.
        seed: Makes the release reproducible, and not private.

    Returns:
        What was found, and the privacy statement.

    Raises:
        BudgetError: If the ledger refuses the charge. Nothing is released.
        Interrupted: If the release was interrupted after its charge.
    """
    if seed is not None:
        _validate.count("seed", seed, least=0)
    if ledger is not None:
        check_ledger(ledger, [budget], [rows])
    gate = open_gate(rows, mechanism, Randomness(seed))
    gate.check_size()
    release.check(gate)
    statement = PrivacyStatement(
        event=mechanism.event,
        delta=budget.delta,
        adjacency=budget.adjacency,
        unit=gate.unit,
        public=public,
        assumptions=fit_assumptions(schema, (assumption, ASSUMPTIONS[1])),
        seeded=gate.seeded,
        asked=budget.epsilon,
    )
    if ledger is not None:
        receipt = ledger.charge(mechanism.event, budget, label=label)
        statement = replace(statement, budget_before=receipt.before, budget_left=receipt.left)
    try:
        return release.run(gate), statement
    except KeyboardInterrupt as error:
        raise Interrupted(
            "Interrupted. The release counts as spent: its ledger, if any, was charged before it started, and charges are "
            f"not refunded.\n{statement}"
        ) from error

"""Charged releases that are one noisy sum: what exploring, checking and scoring have in common.

A release has the steps of a fit: everything that can be wrong is found first, then the ledger is charged, then the gate computes the noisy sum.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from tacit import _validate
from tacit._format import format_epsilon
from tacit._typing import Floats
from tacit.accounting import Budget
from tacit.accounting.ledger import Ledger
from tacit.api.plan import ASSUMPTIONS, check_ledger, fit_assumptions
from tacit.data.schema import Schema
from tacit.data.tables import TableLike
from tacit.errors import Interrupted
from tacit.inference.method import SumRelease
from tacit.privacy.gate import Gate, open_gate
from tacit.privacy.mechanisms import NoisySums
from tacit.privacy.noise import Randomness
from tacit.privacy.rows import Rows
from tacit.results.statement import PrivacyStatement

Found_co = TypeVar("Found_co", covariant=True)


# The privacy statements of sites, by name; None for a site of which no answer was used.
SiteStatements = Mapping[str, PrivacyStatement | None]


class ChargedRelease(Protocol[Found_co]):
    """A question about all units, answered by one noisy sum. Everything in it is public."""

    def check(self, gate: Gate) -> None:
        """Raises if the release cannot be made of rows of these shapes. Reads no row."""

    def run(self, gate: Gate) -> Found_co:
        """What follows from the noisy sum that the gate releases."""


class SumPlan(Protocol[Found_co]):
    """A release of one noisy sum before data are read. Everything in it is public."""

    @property
    def public(self) -> tuple[str, ...]:
        """What the release treats as public."""

    @property
    def assumption(self) -> str:
        """What must not have been computed from these data."""

    @property
    def schema(self) -> Schema:
        """The schema of the rows."""

    @property
    def release(self) -> SumRelease:
        """What is asked of the rows."""

    @property
    def mechanism(self) -> NoisySums:
        """The noisy sum, as it is charged."""

    @property
    def budget(self) -> Budget:
        """The budget that was requested."""

    @property
    def identity(self) -> str:
        """All that the question depends on beside the schema, as text; the same on every machine."""

    def label(self, note: str | None = None) -> str:
        """The public text of the ledger's entry."""

    def rows(self, data: TableLike) -> Rows:
        """The rows of a table, as the release reads them."""

    def example(self) -> Rows:
        """A simulated row of the same shape."""

    def found(
        self,
        released: Floats,
        noise_std: float,
        privacy: PrivacyStatement,
        sites: SiteStatements | None = None,
    ) -> Found_co:
        """What follows from the noisy sum, with noise of this standard deviation in every number."""


def sites_sentences(sites: SiteStatements) -> list[str]:
    """Which sites' rows a result is of; nothing for one table."""
    spent = {
        name: format_epsilon(own.epsilons[own.adjacency])
        for name, own in sites.items()
        if own is not None
    }
    absent = [name for name in sites if name not in spent]
    found = [f"Sites: {', '.join(spent)}."] if spent else []
    if len(set(spent.values())) > 1:
        each = ", ".join(f"{epsilon} at {name}" for name, epsilon in spent.items())
        found.append(f"Epsilon is {each}; the privacy statement is that of the largest.")
    if absent:
        found.append(f"Without the rows of {', '.join(absent)}: no answer was used.")
    return found


def site_dicts(sites: SiteStatements) -> dict[str, dict[str, Any] | None]:
    """The statements of sites as plain data."""
    return {n: None if own is None else own.to_dict(curve=False) for n, own in sites.items()}


def release_plan(
    plan: SumPlan[Found_co],
    data: TableLike,
    *,
    ledger: Ledger | None,
    seed: int | None,
    label: str | None,
) -> Found_co:
    """Makes the release of a plan; see `run_release`."""
    released, statement = run_release(
        plan.release,
        plan.rows(data),
        plan.mechanism,
        plan.budget,
        schema=plan.schema,
        public=plan.public,
        assumption=plan.assumption,
        label=plan.label(label),
        ledger=ledger,
        seed=seed,
    )
    return plan.found(released, plan.mechanism.noise_std, statement)


def run_release(
    release: ChargedRelease[Found_co],
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

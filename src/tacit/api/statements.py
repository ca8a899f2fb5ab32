"""The privacy statement of a fit."""

from tacit.accounting.ledger import Receipt
from tacit.api.plan import Plan
from tacit.data.schema import Schema
from tacit.privacy.gate import Gate
from tacit.results.statement import PrivacyStatement

ASSUMPTIONS = (
    "no number in the model, its constants, the schema or the settings was computed from these data",
    "what a row contributes does not depend, beyond its last bits, on the rows beside it in memory",
)


def fit_assumptions(schema: Schema | None) -> tuple[str, ...]:
    """The assumptions of every fit, including earlier releases that the schema records."""
    if schema is None or not schema.released:
        return ASSUMPTIONS
    but = "; ".join(f"{each}, which counts in addition" for each in schema.released)
    return f"{ASSUMPTIONS[0]}, but for {but}", *ASSUMPTIONS[1:]


def fit_statement(plan: Plan, gate: Gate, receipt: Receipt | None) -> PrivacyStatement:
    """What a fit by a plan cost, and what was public."""
    public = [
        "the model and its prior",
        "column names, types and shapes",
        "every setting of the method",
    ]
    if plan.schema is not None:
        public.append("bounds and levels of the schema")
    if plan.size is not None:
        public.append("the declared size, and what was expected of the data")
    if gate.public_count:
        public.append(f"how many units there are, a unit being a {gate.unit}")
    return PrivacyStatement(
        event=plan.mechanism.event,
        delta=plan.budget.delta,
        adjacency=plan.budget.adjacency,
        unit=gate.unit,
        public=tuple(public),
        assumptions=(*fit_assumptions(plan.schema), *plan.method.assumptions),
        seeded=gate.seeded,
        asked=plan.budget.epsilon,
        budget_before=None if receipt is None else receipt.before,
        budget_left=None if receipt is None else receipt.left,
    )

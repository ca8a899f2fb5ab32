"""Scales of columns that are released from the data, where bounds alone say too little."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from tacit.accounting import Budget
from tacit.accounting.cost import cost
from tacit.accounting.ledger import Ledger
from tacit.data.columns import Number
from tacit.data.schema import Released, Schema
from tacit.errors import InvalidArgument
from tacit.inference.scales import By, Scales
from tacit.interfaces.fit import refuse_ledger
from tacit.interfaces.rows import encoded_rows
from tacit.privacy.gate import Gate


def private_scales(
    schema: Schema,
    data: Any,
    columns: Iterable[str],
    *,
    budget: Budget,
    by: By = "quantiles",
    ledger: Ledger | None = None,
) -> Schema:
    """The schema with centres and spreads of columns, released from the data within a budget.

    A column with wide bounds, most of whose values lie close together, has a coefficient that
    is large and hard to fit if the bounds set its scale. This asks the data instead, and pays:
    ``budget`` is charged to the ``ledger`` like a fit's, and what a fit costs comes on top. The
    schema that is returned remembers it, also in a file, and so do the statements of fits.

    ``columns`` are Numbers of the schema. ``by`` is ``"quantiles"`` (median, and half the
    width of the middle 68%) or ``"moments"`` (mean and standard deviation). Bounds stay as they
    are. Where a person is protected, each counts once.
    """
    if not isinstance(schema, Schema) or not isinstance(budget, Budget):
        raise InvalidArgument("private_scales needs a tacit.Schema and a tacit.Budget.")
    chosen = (columns,) if isinstance(columns, str) else tuple(columns)
    bounded = schema.with_columns({name: _bounded(name, schema[name]) for name in chosen})
    rows, what = encoded_rows(bounded, chosen, data), Scales(columns=chosen, by=by)
    plan = what.calibrated(budget)
    spent = cost(plan.event, budget)
    if ledger is not None:
        refuse_ledger(ledger, [budget], [rows])
        ledger.charge(plan.event, budget, label=f"scales by {by}")
    found = what.run(Gate(rows, plan))
    kinds = {
        name: _standard(_bounded(name, schema[name]), centre, spread)
        for name, centre, spread in zip(chosen, *found, strict=True)
    }
    note = Released(chosen, spent.epsilon, spent.delta, spent.adjacency)
    return schema.with_columns(kinds, released=(*schema.released, note))


def _bounded(name: str, kind: Any) -> Number:
    if not isinstance(kind, Number) or kind.shape:
        raise InvalidArgument(
            f"Column {name!r} must be a Number, one in each row, to have a scale; it is {kind.kind}."
        )
    return replace(kind, scaled=True, centre=None, spread=None)


def _standard(kind: Number, centre: float, spread: float) -> Number:
    """In the column's own unit, to four digits: more would only look precise."""
    half = (kind.high - kind.low) / 2
    middle = kind.low + half
    return replace(
        kind,
        scaled=False,
        centre=float(f"{middle + half * centre:.4g}"),
        spread=float(f"{half * spread:.4g}"),
    )

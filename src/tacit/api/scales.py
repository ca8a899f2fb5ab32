"""Private estimates of the centre and spread of columns, for columns with wide bounds."""

from collections.abc import Iterable
from dataclasses import replace

from tacit._precision import in_32_bits
from tacit.accounting import Budget
from tacit.accounting.accountants import cost
from tacit.accounting.budget import choose_budget
from tacit.accounting.ledger import Ledger
from tacit.api.release import run_release
from tacit.api.rows import encode_rows
from tacit.data.columns import Kind, Number
from tacit.data.schema import Released, Schema
from tacit.data.tables import TableLike
from tacit.errors import InvalidArgument
from tacit.inference.column_scales import ScaleMethod, ScaleRelease


@in_32_bits
def private_scales(
    schema: Schema,
    data: TableLike,
    columns: Iterable[str],
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    budget: Budget | None = None,
    by: ScaleMethod = "quantiles",
    ledger: Ledger | None = None,
) -> Schema:
    """Estimates the centre and spread of columns privately, and returns a schema with them.

    If the bounds of a column are wide and most values lie close together, its coefficient is large
    and hard to fit. This function learns a better scale from the data. Its cost is charged in
    addition to the cost of later fits. The returned schema records the release, also in a YAML
    file, and privacy statements repeat it.

    Args:
        schema: The schema of the data.
        data: The data, as for `tacit.fit`.
        columns: Names of `Number` columns that hold one number per row.
        epsilon: The epsilon that the release may cost.
        delta: The delta that it may cost; 1e-6 by default.
        budget: Epsilon, delta and the neighbouring relation, in the place of ``epsilon``.
        by: ``"quantiles"`` (the median, and half the width of the central 68%) or ``"moments"``
            (mean and standard deviation). If the unit is a person, each person counts once.
        ledger: The ledger to charge, or None for none.

    Returns:
        A schema in which the columns have ``centre`` and ``spread``. Their bounds are unchanged.

    Raises:
        InvalidArgument: If an argument or a column is wrong. Nothing is charged.
        BudgetError: If the ledger refuses the charge.
    """
    budget = choose_budget(budget, epsilon, delta)
    if not isinstance(schema, Schema):
        raise InvalidArgument("private_scales needs a tacit.Schema.")
    chosen = (columns,) if isinstance(columns, str) else tuple(columns)
    bounded = schema.with_columns({name: _check_number(name, schema[name]) for name in chosen})
    rows, what = encode_rows(bounded, chosen, data), ScaleRelease(columns=chosen, by=by)
    mechanism = what.calibrate(budget)
    spent = cost(mechanism.event, budget)
    found, _ = run_release(
        what,
        rows,
        mechanism,
        budget,
        schema=schema,
        public=("bounds and levels of the schema",),
        assumption="no number in the schema was computed from these data",
        label=f"scales of {', '.join(chosen)}, by {by}",
        ledger=ledger,
    )
    kinds = {
        name: _with_scale(_check_number(name, schema[name]), centre, spread)
        for name, centre, spread in zip(chosen, *found, strict=True)
    }
    note = Released(chosen, spent.epsilon, spent.delta, spent.adjacency)
    return schema.with_columns(kinds, released=(*schema.released, note))


def _check_number(name: str, kind: Kind) -> Number:
    if not isinstance(kind, Number) or kind.shape:
        raise InvalidArgument(
            f"Column {name!r} must be a Number, one in each row, to have a scale; it is {kind.kind}."
        )
    return replace(kind, scaled=True, centre=None, spread=None)


def _with_scale(kind: Number, centre: float, spread: float) -> Number:
    """In the column's own unit, to four digits: more would only look precise."""
    half = (kind.high - kind.low) / 2
    middle = kind.low + half
    return replace(
        kind,
        scaled=False,
        centre=float(f"{middle + half * centre:.4g}"),
        spread=float(f"{half * spread:.4g}"),
    )

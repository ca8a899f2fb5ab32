"""Exploring: counts, histograms, cross-tables, means and quantiles of a table, for one charge.

`explore` has the steps of a fit. The plan follows from public facts only, and says how wide intervals will be before a row is
read. The ledger is charged before anything is computed from rows.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np
from scipy.special import ndtri

from tacit import _validate
from tacit._format import clean_text, format_epsilon, format_number, text_table
from tacit._precision import in_32_bits
from tacit._typing import Floats
from tacit.accounting import Budget
from tacit.accounting.accountants import cost
from tacit.accounting.budget import choose_budget
from tacit.accounting.ledger import Ledger
from tacit.api.look import Look
from tacit.api.release import SiteStatements, release_plan
from tacit.api.rows import example_rows
from tacit.data.columns import Kind, Number
from tacit.data.schema import Schema
from tacit.data.tables import TableLike
from tacit.errors import InvalidArgument
from tacit.inference.table_estimates import ReleasedTables
from tacit.inference.tables import CountedColumn, Table, TableRelease, sorted_table
from tacit.models.front_ends import SchemaLike
from tacit.privacy.mechanisms import NoisySums
from tacit.privacy.rows import Rows
from tacit.results.statement import UNIT_PLURALS, PrivacyStatement

if TYPE_CHECKING:
    import pandas as pd

Counted = Literal["people", "rows"]
# The number of units that widths are given for, if none is declared.
_EXAMPLE_SIZE = 1000
_LEVEL = 0.9
_PUBLIC = (
    "the tables that were requested, and the bins of numbers",
    "column names, types and shapes",
    "bounds and levels of the schema",
)
_ASSUMPTION = "no number in the schema, the tables or their bins was computed from these data"


@in_32_bits
def explore(
    data: TableLike,
    *,
    schema: SchemaLike,
    tables: Iterable[str | Sequence[str]] | None = None,
    by: str | None = None,
    bins: Mapping[str, int | Sequence[float]] | None = None,
    count: Counted | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    budget: Budget | None = None,
    ledger: Ledger | None = None,
    seed: int | None = None,
    label: str | None = None,
) -> Look:
    """Releases tables of columns within a privacy budget: counts, means and quantiles, with intervals that contain the noise.

    All tables are one release with one charge. Missing and unreadable cells are a cell of their own in each table,
    whatever the schema says about missing values. Values outside the bounds count as the nearest bound.

    Args:
        data: A data frame, a mapping of arrays or the path of a file; see `Schema.encode`.
        schema: The public facts about the columns, or the path of a schema file.
        tables: The tables: a column, or several for a cross-table, as in ``["age", ("ward", "readmitted")]``. By default each
            column by itself. More tables mean more noise in each.
        by: A column that every table is crossed with, for `Look.table_one`.
        bins: The bins of columns of numbers: how many, or the edges between them, as in ``{"age": [40, 65]}``. By default about
            ten between round numbers. They are public: do not take them from the data.
        count: If the schema names a person column, what counts: ``"people"`` (the default; each counts once, and a person's rows
            share it equally) or ``"rows"``, which has as many times the noise as a person may have rows.
        epsilon: What the release may cost.
        delta: The delta of the budget; by default 1e-6.
        budget: The budget, instead of ``epsilon`` and ``delta``.
        ledger: The ledger of the data, charged before the release.
        seed: Makes the release reproducible. It is then not private, and its statement says so.
        label: A public note for the ledger's entry.

    Returns:
        The look, with its privacy statement in ``privacy``. What is computed from it is free.

    Raises:
        InvalidArgument: If an argument, the schema or the table's header is wrong. Nothing is charged.
        BudgetError: If the budget cannot be met, does not suit the ledger, or exceeds what the ledger has left. Nothing is charged.
        LedgerError: If the ledger cannot be used.
    """
    plan = plan_look(
        schema, tables=tables, by=by, bins=bins, count=count, epsilon=epsilon, delta=delta, budget=budget
    )  # fmt: skip
    return release_plan(plan, data, ledger=ledger, seed=seed, label=label)


class Width(NamedTuple):
    """How wide a 90% interval will be: half of it, above and below an estimate."""

    number: str
    half_width: float
    unit: str


@dataclass(frozen=True, kw_only=True, eq=False)
class LookPlan:
    """What a look will release and cost, before data are read. Print it.

    Attributes:
        schema: The schema.
        tables: The tables.
        release: What is computed from the rows.
        budget: The budget that was requested.
        mechanism: What the gate will execute. The ledger is charged for exactly this.
        size: The declared number of units, or None.
        by: The column that tables are grouped by, or None.
    """

    schema: Schema
    tables: tuple[Table, ...]
    release: TableRelease
    budget: Budget
    mechanism: NoisySums
    size: int | None = None
    by: str | None = None

    public: ClassVar[tuple[str, ...]] = _PUBLIC
    assumption: ClassVar[str] = _ASSUMPTION

    @cached_property
    def cost(self) -> Budget:
        """What is charged."""
        return cost(self.mechanism.event, self.budget)

    @property
    def counted(self) -> str:
        """What a count counts: ``"rows"`` or ``"people"``."""
        by_row = self.schema.person is None or self.release.count_rows
        return UNIT_PLURALS["row" if by_row else "person"]

    @cached_property
    def widths(self) -> tuple[Width, ...]:
        """Half the widths of 90% intervals. Those of means and ranks are for the declared size, or for a thousand."""
        blank = np.zeros(self.release.dimension)
        found = ReleasedTables(self.release, blank, self.mechanism.noise_std, _LEVEL)
        half = float(ndtri((1 + _LEVEL) / 2))
        lines = [
            Width(
                f"number of {self.counted}",
                half * float(np.sqrt(found.answers[()].variances[0])),
                "",
            )
        ]
        for table in self.tables:
            spread = half * found.count_spread(sorted_table(table))
            lines.append(Width(f"each count of {' by '.join(table)}", spread, ""))
        size = self.size or _EXAMPLE_SIZE
        for column in self.release.columns:
            if column.is_number:
                mean = half * found.sum_spread(column.name) / size
                lines.append(Width(f"mean of {column.name}", mean, column.kind.measured_in or ""))
                rank = 100 * half * found.rank_spread(column.name) / size
                lines.append(Width(f"rank of a quantile of {column.name}", rank, "percent"))
        return tuple(lines)

    def frame(self) -> "pd.DataFrame":
        """The widths as a data frame."""
        import pandas as pd

        return pd.DataFrame(self.widths)

    def label(self, note: str | None = None) -> str:
        """What a ledger's entry says of the release: its tables, and a note."""
        said = f"tables of {'; '.join(' by '.join(each) for each in self.tables)}"
        return clean_text(said if note is None else f"{said}; {note}")

    @property
    def names(self) -> list[str]:
        """The columns that are read."""
        return [each.name for each in self.release.columns]

    @property
    def identity(self) -> str:
        """All that the question depends on beside the schema, as text."""
        return repr(self.release)

    def rows(self, data: TableLike) -> Rows:
        """The rows of a table, as the release reads them."""
        schema = _in_own_units(self.schema, self.names)
        return Rows.from_encoded(*schema.encode(data, self.names, keep_missing=True))

    def example(self) -> Rows:
        """A simulated row of the same shape."""
        return example_rows(_in_own_units(self.schema, self.names), self.names)

    def found(
        self,
        released: Floats,
        noise_std: float,
        privacy: PrivacyStatement,
        sites: SiteStatements | None = None,
    ) -> Look:
        """What follows from the noisy sum, with noise of this standard deviation in every number."""
        return Look(
            schema=self.schema,
            tables=self.tables,
            by=self.by,
            estimates=ReleasedTables(self.release, released, noise_std, _LEVEL),
            privacy=privacy,
            sites=sites or {},
        )

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain data."""
        return {
            "tables": [list(each) for each in self.tables],
            "counted": self.counted,
            "unit": self.schema.unit,
            "epsilon": self.cost.epsilon,
            "delta": self.cost.delta,
            "adjacency": self.cost.adjacency,
            "size": self.size,
            "half_widths": [each._asdict() for each in self.widths],
        }

    def __repr__(self) -> str:
        return f"LookPlan(epsilon {format_epsilon(self.cost.epsilon)}; print it for widths)"

    def __str__(self) -> str:
        lines = [
            [each.number, f"± {_rounded(each.half_width)} {each.unit}".rstrip()]
            for each in self.widths
        ]
        many = UNIT_PLURALS[self.schema.unit]
        example = (
            ""
            if self.size
            else f"; {many} are not counted before the release, so pass size= for another number"
        )
        for_size = (
            f"Means and ranks are for {self.size or _EXAMPLE_SIZE:,} {self.counted}{example}."
        )
        at = (
            f"epsilon {format_epsilon(self.cost.epsilon)} at delta {format_number(self.cost.delta)}"
        )
        parts = [
            "Half the width of a 90% interval, which contains the noise:",
            text_table(lines, "lr"),
            *([for_size] if any(each.is_number for each in self.release.columns) else []),
            f"Cost: {at}, {self.cost.adjacency}, for all tables together.",
            self.cost.explain(),
            f"Unit of privacy: one {self.schema.unit}. No data has been read and nothing charged.",
        ]
        return "\n".join(parts)


def _rounded(number: float) -> str:
    """A number with two digits, or without decimals."""
    return f"{number:,.0f}" if number >= 10 else f"{float(f'{number:.2g}'):g}"


def read_schema(schema: SchemaLike) -> Schema:
    """The schema, also of a file."""
    if isinstance(schema, str | os.PathLike):
        return Schema.from_yaml(os.fspath(schema))
    if not isinstance(schema, Schema):
        raise InvalidArgument("Pass schema=tacit.Schema(...): the public facts about the columns.")
    return schema


@in_32_bits
def plan_look(
    schema: SchemaLike,
    *,
    tables: Iterable[str | Sequence[str]] | None = None,
    by: str | None = None,
    bins: Mapping[str, int | Sequence[float]] | None = None,
    count: Counted | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    budget: Budget | None = None,
    size: int | None = None,
) -> LookPlan:
    """Plans a look; see `explore` for the arguments, and `Look.plan`. Reads no data and charges nothing."""
    schema = read_schema(schema)
    chosen = choose_budget(budget, epsilon, delta)
    if size is not None:
        _validate.count("size", size)
    asked = _check_tables(schema, tables, by)
    release = build_release(schema, asked, bins, count)
    return LookPlan(
        schema=schema,
        tables=asked,
        release=release,
        budget=chosen,
        mechanism=release.calibrate(chosen),
        size=size,
        by=by,
    )


def build_release(
    schema: Schema,
    tables: tuple[Table, ...],
    bins: Mapping[str, int | Sequence[float]] | None,
    count: str | None,
) -> TableRelease:
    """What is computed from rows with a schema, for these tables and bins."""
    if count is not None:
        _validate.choice("count", count, ("people", "rows"))
    if count == "people" and schema.person is None:
        raise InvalidArgument("count='people' is for schemas that name a person column.")
    names = tuple(dict.fromkeys(name for table in tables for name in table))
    if bins is not None and not isinstance(bins, Mapping):
        raise InvalidArgument('bins must be a mapping such as {"age": [40, 65]}.')
    for name in bins or {}:
        if name not in names:
            raise InvalidArgument(f"bins has {name!r}, which is not a column of the tables.")
    columns = tuple(
        CountedColumn.build(name, schema[name], (bins or {}).get(name)) for name in names
    )
    most_rows = schema.most_rows or 1
    return TableRelease(columns, tables, most_rows, count == "rows" and most_rows > 1)


def _check_tables(
    schema: Schema, tables: Iterable[str | Sequence[str]] | None, by: str | None
) -> tuple[Table, ...]:
    """The tables, each as names of columns; those that are repeated once."""
    if by is not None and by not in schema.names:
        raise InvalidArgument(f"by must be a column of the schema; got {by!r}.")
    if isinstance(tables, str):
        raise InvalidArgument(f'tables must be a list, such as ["{tables}"].')
    asked: list[str | Sequence[str]] = [*schema.names] if tables is None else list(tables)
    found: dict[frozenset[str], Table] = {}
    for each in asked:
        table = (each,) if isinstance(each, str) else tuple(each)
        if not table or len(set(table)) < len(table) or not all(isinstance(n, str) for n in table):
            raise InvalidArgument(f"A table is a column or several different ones; got {each!r}.")
        for name in table:
            _ = schema[name]  # raises if there is no such column
        if by is not None and by not in table:
            table = (*table, by)
        found.setdefault(frozenset(table), table)
    if not found:
        raise InvalidArgument('tables must name one or more tables, such as ["age"].')
    return tuple(found.values())


def _in_own_units(schema: Schema, names: Sequence[str]) -> Schema:
    """The schema with columns that are neither scaled nor shifted."""

    def plain(kind: Kind) -> Kind:
        return (
            replace(kind, scaled=False, centre=None, spread=None)
            if isinstance(kind, Number)
            else kind
        )

    return schema.with_columns({name: plain(schema[name]) for name in names})

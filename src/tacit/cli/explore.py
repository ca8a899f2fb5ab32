"""The command ``explore``: tables of columns, within a privacy budget."""

from pathlib import Path
from typing import Annotated

import typer

import tacit
from tacit.accounting.budget import DEFAULT_DELTA
from tacit.cli.fit import reporting_interruptions
from tacit.cli.options import (
    AsJson,
    Bins,
    DeclaredSize,
    Delta,
    DryRun,
    Epsilon,
    LedgerFile,
    LedgerRelation,
    NewFolder,
    Note,
    SchemaFile,
    Seed,
    Table,
)
from tacit.cli.releases import (
    entry_note,
    ledger_and_budget,
    new_folder,
    parse_bins,
    parse_tables,
    print_and_save,
    print_plan,
)


def explore(
    data: Table,
    schema: SchemaFile,
    epsilon: Epsilon,
    table: Annotated[
        list[str] | None,
        typer.Option(
            help="Table to release: a column, or several with commas for a cross-table; repeatable. [default: each "
            "column by itself]"
        ),
    ] = None,
    by: Annotated[
        str | None, typer.Option(help="Column that every table is crossed with, for a Table 1.")
    ] = None,
    bins: Bins = None,
    count: Annotated[
        str | None, typer.Option(help="people or rows. [default: people if the schema names them]")
    ] = None,
    delta: Delta = DEFAULT_DELTA,
    ledger: LedgerFile = None,
    adjacency: LedgerRelation = None,
    out: NewFolder = Path("look"),
    size: DeclaredSize = None,
    seed: Seed = None,
    note: Note = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Look at a table: counts, means and quantiles of columns, with intervals that contain the noise."""
    charged, budget = ledger_and_budget(ledger, adjacency, epsilon, delta, out)
    declared = tacit.Schema.from_yaml(schema)
    settings = {
        "tables": parse_tables(table),
        "by": by,
        "bins": parse_bins(bins),
        "count": count,
        "budget": budget,
    }
    plan = tacit.Look.plan(declared, size=size, **settings)
    declared.check_header(data, [each.name for each in plan.release.columns])
    if dry_run:
        print_plan(plan, charged, as_json=as_json)
        return
    with new_folder(out), reporting_interruptions():
        look = tacit.explore(
            str(data),
            schema=declared,
            ledger=charged,
            seed=seed,
            label=entry_note(out, note),
            **settings,  # type: ignore[arg-type]  # it checks
        )
    print_and_save(look, out, "look.html", as_json=as_json)

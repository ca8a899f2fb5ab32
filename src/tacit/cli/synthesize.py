"""The command ``synthesize``: synthetic tables, within a privacy budget."""

from pathlib import Path
from typing import Annotated

import typer

import tacit
from tacit.accounting.budget import DEFAULT_DELTA
from tacit.cli.fit import reporting_interruptions
from tacit.cli.options import (
    AsJson,
    Bins,
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
    print_plan,
)
from tacit.errors import TacitError, Unsaved


def synthesize(
    data: Table,
    schema: SchemaFile,
    epsilon: Epsilon,
    table: Annotated[
        list[str] | None,
        typer.Option(
            help="Table to keep: a column, or several with commas that are to stay related; repeatable. [default: all pairs]"
        ),
    ] = None,
    by: Annotated[
        str | None, typer.Option(help="Column that every table is crossed with, as the outcome.")
    ] = None,
    bins: Bins = None,
    complete: Annotated[
        bool,
        typer.Option("--complete", help="No cell of the table is missing: a public fact."),
    ] = False,
    sets: Annotated[int, typer.Option(help="Number of synthetic tables.")] = 50,
    size: Annotated[
        int | None,
        typer.Option(
            help="Rows of each synthetic table, a public number. [default: about as many as the data, as released]"
        ),
    ] = None,
    delta: Delta = DEFAULT_DELTA,
    ledger: LedgerFile = None,
    adjacency: LedgerRelation = None,
    out: NewFolder = Path("synthetic"),
    seed: Seed = None,
    note: Note = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Make synthetic tables to share, with errors that contain the noise."""
    charged, budget = ledger_and_budget(ledger, adjacency, epsilon, delta, out)
    declared = tacit.Schema.from_yaml(schema)
    plan = tacit.Synthetic.plan(
        declared,
        tables=parse_tables(table),
        by=by,
        bins=parse_bins(bins),
        complete=complete,
        sets=sets,
        size=size,
        budget=budget,
    )
    declared.check_header(data, [each.name for each in plan.look.release.columns])
    if dry_run:
        print_plan(plan, charged, as_json=as_json)
        return
    with new_folder(out), reporting_interruptions():
        look = plan.release(
            str(data),
            ledger=charged,
            seed=seed,
            label=entry_note(out, note),
        )
    try:
        look.report(out)  # first, so that an interruption loses nothing that was charged
        syn = look.synthesize(complete=complete, sets=sets, size=size)
        syn.write(out / "tables")
        syn.report(out)
    except TacitError as error:
        raise Unsaved(
            f"The release was charged, but not everything could be saved in {out}. {error}"
        ) from None
    if as_json:
        typer.echo(syn.to_json())
        return
    typer.echo(f"{syn}\nPage: {out / 'synthetic.html'}")

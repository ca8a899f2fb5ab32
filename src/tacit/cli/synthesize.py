"""The command ``synthesize``: synthetic tables, within a privacy budget."""

import json
from pathlib import Path
from typing import Annotated

import typer

import tacit
from tacit.accounting.budget import DEFAULT_DELTA
from tacit.cli.explore import new_folder, parse_bins
from tacit.cli.fit import open_ledger, reporting_interruptions
from tacit.cli.options import AsJson, Delta, Epsilon, SchemaFile, Table
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
    bins: Annotated[
        list[str] | None,
        typer.Option(
            help="Bins of a number, as age=8 (so many) or age=40,65 (edges between them); repeatable."
        ),
    ] = None,
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
    ledger: Annotated[
        str | None,
        typer.Option(help="Ledger of the data, a file or a database; see tacit ledger new."),
    ] = None,
    adjacency: Annotated[
        str | None, typer.Option(help="add-remove or replace. [default: the ledger's]")
    ] = None,
    out: Annotated[Path, typer.Option(help="Output folder; must be new or empty.")] = Path(
        "synthetic"
    ),
    seed: Annotated[
        int | None, typer.Option(help="Make it reproducible. The result is then not private.")
    ] = None,
    note: Annotated[str | None, typer.Option(help="Public note for the ledger.")] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Print what it will release, without reading rows or charging."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make synthetic tables to share, with errors that contain the noise."""
    charged = open_ledger(ledger, out)
    relation = adjacency or (charged.total.adjacency if charged else "add-remove")
    declared = tacit.Schema.from_yaml(schema)
    plan = tacit.Synthetic.plan(
        declared,
        tables=[each.split(",") for each in table] if table else None,
        by=by,
        bins=dict(map(parse_bins, bins or [])),
        complete=complete,
        sets=sets,
        size=size,
        budget=tacit.Budget(epsilon, delta, relation),  # type: ignore[arg-type]  # it checks
    )
    declared.check_header(data, [each.name for each in plan.look.release.columns])
    if dry_run:
        typer.echo(json.dumps(plan.to_dict(), indent=1) if as_json else plan)
        if charged is not None and not as_json:
            typer.echo(f"The ledger {charged.path} has {charged.left} left.")
        return
    with new_folder(out), reporting_interruptions():
        look = plan.release(
            str(data),
            ledger=charged,
            seed=seed,
            label=f"in {out}" if note is None else f"in {out}; {note}",
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
    left = look.privacy.budget_left
    typer.echo(syn)
    typer.echo(
        f"{'' if left is None else f'Left: {left}.'}\nPage: {out / 'synthetic.html'}".strip()
    )

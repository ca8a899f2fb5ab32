"""The command ``explore``: tables of columns, within a privacy budget."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

import tacit
from tacit.accounting.budget import DEFAULT_DELTA
from tacit.cli.fit import ledger_line, open_ledger, reporting_interruptions
from tacit.cli.options import AsJson, Delta, Epsilon, SchemaFile, Table
from tacit.errors import InvalidArgument, TacitError, Unsaved


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
    bins: Annotated[
        list[str] | None,
        typer.Option(
            help="Bins of a number, as age=8 (so many) or age=40,65 (edges between them); repeatable."
        ),
    ] = None,
    count: Annotated[
        str | None, typer.Option(help="people or rows. [default: people if the schema names them]")
    ] = None,
    delta: Delta = DEFAULT_DELTA,
    ledger: Annotated[
        str | None,
        typer.Option(help="Ledger of the data, a file or a database; see tacit ledger new."),
    ] = None,
    adjacency: Annotated[
        str | None, typer.Option(help="add-remove or replace. [default: the ledger's]")
    ] = None,
    out: Annotated[Path, typer.Option(help="Output folder; must be new or empty.")] = Path("look"),
    size: Annotated[
        int | None,
        typer.Option(
            help="About how many rows or people, for --dry-run. A public number: do not count it in the data."
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Make it reproducible. The result is then not private.")
    ] = None,
    note: Annotated[str | None, typer.Option(help="Public note for the ledger.")] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Print how wide intervals will be, without reading rows or charging."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Look at a table: counts, means and quantiles of columns, with intervals that contain the noise."""
    charged = open_ledger(ledger, out)
    relation = adjacency or (charged.total.adjacency if charged else "add-remove")
    declared = tacit.Schema.from_yaml(schema)
    settings = {
        "tables": [each.split(",") for each in table] if table else None,
        "by": by,
        "bins": dict(map(parse_bins, bins or [])),
        "count": count,
        "budget": tacit.Budget(epsilon, delta, relation),  # type: ignore[arg-type]  # it checks
    }
    plan = tacit.Look.plan(declared, size=size, **settings)
    declared.check_header(data, [each.name for each in plan.release.columns])
    if dry_run:
        typer.echo(json.dumps(plan.to_dict(), indent=1) if as_json else plan)
        if not as_json:
            typer.echo(ledger_line(charged))
        return
    with new_folder(out), reporting_interruptions():
        look = tacit.explore(
            str(data),
            schema=declared,
            ledger=charged,
            seed=seed,
            label=f"in {out}" if note is None else f"in {out}; {note}",
            **settings,  # type: ignore[arg-type]  # it checks
        )
    typer.echo(look.to_json() if as_json else look)
    try:
        look.report(out)
    except TacitError as error:
        raise Unsaved(
            f"The tables were charged and are printed above, but they could not be saved. {error}"
        ) from None
    if not as_json:
        typer.echo(f"{ledger_line(charged)}\nPage: {out / 'look.html'}")


def parse_bins(text: str) -> tuple[str, int | list[float]]:
    """A column and its bins, from an option."""
    name, _, after = text.partition("=")
    try:
        if "," not in after and after.isdigit():
            return name, int(after)
        return name, [float(each) for each in after.split(",")]
    except ValueError:
        raise InvalidArgument(
            f"--bins takes a column and its bins, as age=8 or age=40,65; got {text!r}."
        ) from None


@contextmanager
def new_folder(out: Path) -> Iterator[None]:
    """Creates the output folder before anything is charged, and removes it if nothing was."""
    is_new = not out.exists()
    try:
        out.mkdir(parents=True, exist_ok=True)
        if any(out.iterdir()):
            raise InvalidArgument(f"{out} is not empty; pass a new folder with --out.")
    except OSError as error:
        raise InvalidArgument(f"{out} cannot be written: {error.strerror}.") from None
    try:
        yield
    except TacitError:
        if is_new:
            out.rmdir()
        raise

"""The commands of ``tacit schema``: draft, check and scale a schema."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

import tacit
from tacit.cli.options import Delta, Epsilon, SchemaFile, Table
from tacit.data import draft as drafting
from tacit.data.schema import Schema
from tacit.errors import InvalidArgument, Unsaved

app = typer.Typer(
    help="Write and check schemas: the public bounds and levels of a table.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command()
def draft(
    data: Table,
    out: Annotated[Path, typer.Option(help="Schema file to write.")] = Path("schema.yaml"),
    no_input: Annotated[
        bool, typer.Option("--no-input", help="Ask no questions; write a template to fill in.")
    ] = False,
) -> None:
    """Write a schema from the header of a table and your answers. Reads no rows."""
    if out.exists():
        raise InvalidArgument(f"{out} already exists; pass another file with --out.")
    if no_input:
        text = drafting.template(data)
        with _creating(out):
            out.write_text(text, encoding="utf-8")
        typer.echo(f"Wrote {out}. Fill in the public facts about each column.")
        return
    with _creating(out):  # before asking anything
        drafting.draft(data, _prompt).to_yaml(out)
    typer.echo(f"Wrote {out}.")


@contextmanager
def _creating(out: Path) -> Iterator[None]:
    """Creates a new file, and removes it if it is still empty at the end."""
    try:
        out.touch(exist_ok=False)
    except OSError as error:
        raise InvalidArgument(
            f"{out} must be a new file in an existing folder: {error.strerror}."
        ) from None
    try:
        yield
    finally:
        if not out.stat().st_size:
            out.unlink()


def _prompt(question: str) -> str:
    answer: str = typer.prompt(question, default="", show_default=False)
    return answer


@app.command()
def check(
    schema: Annotated[Path, typer.Argument(help="Schema, a YAML file.")],
    data: Annotated[Path | None, typer.Argument(help="A CSV or Parquet file.")] = None,
) -> None:
    """Check a schema, and whether the header of a table has its columns."""
    declared = Schema.from_yaml(schema)
    if data is not None:
        declared.refuse(data)
    typer.echo(declared)


@app.command()
def scale(
    data: Table,
    schema: SchemaFile,
    column: Annotated[list[str], typer.Option(help="Column to scale; repeatable.")],
    epsilon: Epsilon,
    delta: Delta,
    ledger: Annotated[str, typer.Option(help="Ledger of the data, a file or a database.")],
    out: Annotated[Path, typer.Option(help="Schema file to write, with scales.")],
    by: Annotated[str, typer.Option(help="quantiles or moments.")] = "quantiles",
) -> None:
    """Estimate the centre and spread of columns privately, and charge the ledger."""
    held = tacit.Ledger(ledger)
    budget = tacit.Budget(epsilon, delta, held.total.adjacency)
    declared = Schema.from_yaml(schema)
    with _creating(out):
        scaled = tacit.private_scales(
            declared,
            str(data),
            column,
            budget=budget,
            by=by,  # type: ignore[arg-type]  # it checks
            ledger=held,
        )
        typer.echo(scaled)  # first, because it was charged
        try:
            scaled.to_yaml(out)
        except OSError as error:
            raise Unsaved(
                f"The scales were charged, but {out} cannot be written ({error.strerror}). Copy the centre "
                "and spread of each column, and the note on the release, from the output above into the "
                "schema."
            ) from None

"""The commands of ``tacit schema``: draft, check and scale a schema."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from tacit.errors import InvalidArgument, Unsaved

app = typer.Typer(
    help="Write and check schemas: the public bounds and levels of a table.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Table = Annotated[Path, typer.Argument(help="A CSV or Parquet file.")]


@app.command()
def draft(
    data: Table,
    out: Annotated[Path, typer.Option(help="Schema file to write.")] = Path("schema.yaml"),
    no_input: Annotated[
        bool, typer.Option("--no-input", help="Ask no questions; write a template to fill in.")
    ] = False,
) -> None:
    """Write a schema from the header of a table and your answers. Reads no rows."""
    from tacit.data.draft import draft as drafted
    from tacit.data.draft import template

    if out.exists():
        raise InvalidArgument(f"{out} already exists; pass another file with --out.")
    if no_input:
        text = template(data)
        with _new(out):
            out.write_text(text, encoding="utf-8")
        typer.echo(f"Wrote {out}. Fill in the public facts about each column.")
        return
    with _new(out):  # before asking anything
        drafted(data, _ask).to_yaml(out)
    typer.echo(f"Wrote {out}.")


@contextmanager
def _new(out: Path) -> Iterator[None]:
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


def _ask(question: str) -> str:
    answer: str = typer.prompt(question, default="", show_default=False)
    return answer


@app.command()
def check(
    schema: Annotated[Path, typer.Argument(help="Schema, a YAML file.")],
    data: Annotated[Path | None, typer.Argument(help="A CSV or Parquet file.")] = None,
) -> None:
    """Check a schema, and whether the header of a table has its columns."""
    from tacit.data.schema import Schema

    declared = Schema.from_yaml(schema)
    if data is not None:
        declared.refuse(data)
    typer.echo(declared)


@app.command()
def scale(
    data: Table,
    schema: Annotated[Path, typer.Option(help="Schema, a YAML file.")],
    column: Annotated[list[str], typer.Option(help="Column to scale; repeatable.")],
    epsilon: Annotated[float, typer.Option(help="Privacy budget: epsilon.")],
    delta: Annotated[float, typer.Option(help="Privacy budget: delta.")],
    ledger: Annotated[Path, typer.Option(help="Ledger of the data.")],
    out: Annotated[Path, typer.Option(help="Schema file to write, with scales.")],
    by: Annotated[str, typer.Option(help="quantiles or moments.")] = "quantiles",
) -> None:
    """Estimate the centre and spread of columns privately, and charge the ledger."""
    from tacit.accounting import Budget
    from tacit.accounting.ledger import Ledger
    from tacit.data.schema import Schema
    from tacit.interfaces.scales import private_scales

    held = Ledger(ledger)
    budget = Budget(epsilon, delta, held.total.adjacency)
    declared = Schema.from_yaml(schema)
    with _new(out):
        scaled = private_scales(declared, str(data), column, budget=budget, by=by, ledger=held)  # type: ignore[arg-type]
        typer.echo(scaled)  # first, because it was charged
        try:
            scaled.to_yaml(out)
        except OSError as error:
            raise Unsaved(
                f"The scales were charged, but {out} cannot be written ({error.strerror}). Copy the centre "
                "and spread of each column, and the note on the release, from the output above into the "
                "schema."
            ) from None

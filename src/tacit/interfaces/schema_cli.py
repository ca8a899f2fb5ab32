"""``tacit schema``: the public facts about a table, drafted, checked, and scaled."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from tacit.errors import InvalidArgument, Unsaved

app = typer.Typer(
    help="The public facts about a table: bounds and levels, never read from its rows.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Table = Annotated[Path, typer.Argument(help="A CSV or Parquet file.")]


@app.command()
def draft(
    data: Table,
    out: Annotated[Path, typer.Option(help="Where to write the schema.")] = Path("schema.yaml"),
    no_input: Annotated[
        bool, typer.Option("--no-input", help="Ask nothing; leave places to fill in.")
    ] = False,
) -> None:
    """Reads a table's header, never its rows, and asks what is public about each column."""
    from tacit.data.draft import draft as drafted
    from tacit.data.draft import template

    if out.exists():
        raise InvalidArgument(f"{out} exists; name another file with --out.")
    if no_input:
        text = template(data)
        with _new(out):
            out.write_text(text, encoding="utf-8")
        typer.echo(f"Wrote {out}: fill in what is public about each column.")
        return
    with _new(out):  # before anything is asked
        drafted(data, _ask).to_yaml(out)
    typer.echo(f"Wrote {out}.")


@contextmanager
def _new(out: Path) -> Iterator[None]:
    """A new file, made at once, to be written within; it is taken back if that fails."""
    try:
        out.touch(exist_ok=False)
    except OSError as error:
        raise InvalidArgument(
            f"{out} must be a new file in a folder that exists: {error.strerror}."
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
    schema: Annotated[Path, typer.Argument(help="A schema in YAML.")],
    data: Annotated[Path | None, typer.Argument(help="A CSV or Parquet file.")] = None,
) -> None:
    """Says whether a schema can be used, and whether a table's header has its columns."""
    from tacit.data.schema import Schema

    declared = Schema.from_yaml(schema)
    if data is not None:
        declared.refuse(data)
    typer.echo(declared)


@app.command()
def scale(
    data: Table,
    schema: Annotated[Path, typer.Option(help="The schema in YAML.")],
    column: Annotated[list[str], typer.Option(help="A column to scale; give one or more.")],
    epsilon: Annotated[float, typer.Option(help="What this may cost.")],
    delta: Annotated[float, typer.Option(help="Chance that the epsilon does not hold.")],
    ledger: Annotated[Path, typer.Option(help="The data's ledger.")],
    out: Annotated[Path, typer.Option(help="Where to write the schema with scales.")],
    by: Annotated[str, typer.Option(help="quantiles or moments.")] = "quantiles",
) -> None:
    """Releases centre and spread of columns from the data, and charges the ledger for it."""
    from tacit.accounting import Budget
    from tacit.accounting.ledger import Ledger
    from tacit.data.schema import Schema
    from tacit.interfaces.scales import private_scales

    held = Ledger(ledger)
    budget = Budget(epsilon, delta, held.total.adjacency)
    declared = Schema.from_yaml(schema)
    with _new(out):
        scaled = private_scales(declared, str(data), column, budget=budget, by=by, ledger=held)  # type: ignore[arg-type]
        typer.echo(scaled)  # first: it was paid for
        try:
            scaled.to_yaml(out)
        except OSError as error:
            raise Unsaved(
                f"The scales were released and paid for, but {out} cannot be written "
                f"({error.strerror}): put centre and spread, and what is said to be from the data, "
                "into the schema as they are printed above."
            ) from None

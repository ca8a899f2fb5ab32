"""The commands of ``tacit ledger``: create the ledger of a data set, and show it."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit._format import in_digits, printed

if TYPE_CHECKING:
    from tacit.accounting.ledger import Ledger

app = typer.Typer(
    help="Create and show the privacy ledger of a data set.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

File = Annotated[Path, typer.Argument(help="File of the ledger.")]


@app.command()
def new(
    file: File,
    epsilon: Annotated[float, typer.Option(help="Total budget of all fits: epsilon.")],
    delta: Annotated[float, typer.Option(help="Total budget of all fits: delta.")],
    unit: Annotated[str, typer.Option(help="Unit of privacy: row, person or 'data set'.")] = "row",
    adjacency: Annotated[str, typer.Option(help="add-remove or replace.")] = "add-remove",
    rule: Annotated[
        str,
        typer.Option(help="How the costs of fits compose: sum, or renyi for many small fits."),
    ] = "sum",
) -> None:
    """Create a ledger. Its settings cannot be changed later."""
    from tacit.accounting import Budget
    from tacit.accounting.ledger import Ledger

    total: Any = Budget(epsilon, delta, adjacency)  # type: ignore[arg-type]
    ledger = Ledger.new(file, total, unit=unit, rule=rule)  # type: ignore[arg-type]
    typer.echo(f"Created {file}: {ledger.total} in total for every {ledger.unit}.")


@app.command()
def show(
    file: File, as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False
) -> None:
    """Show all charges and the remaining budget."""
    from tacit.accounting.ledger import Ledger

    ledger = Ledger(file)
    typer.echo(_as_json(ledger) if as_json else _as_text(ledger))


@app.command()
def adopt(file: File) -> None:
    """Accept a ledger that has lost its mark file, or was written by Tacit's first version.

    Make sure that it is the newest copy: charges that it does not contain are lost.
    """
    from tacit.accounting.adopt import adopt

    typer.echo(_as_text(adopt(file)))


def _as_json(ledger: "Ledger") -> str:
    found = {
        "total": asdict(ledger.total),
        "unit": ledger.unit,
        "rule": ledger.rule,
        "left": asdict(ledger.left),
        "charges": [asdict(charge) for charge in ledger.charges],
    }
    return json.dumps(found, indent=2)


def _as_text(ledger: "Ledger") -> str:
    lines = [
        ("when", "what", "epsilon", "delta"),
        *(
            (each.time[:19], each.label, printed(each.epsilon), in_digits(each.delta))
            for each in ledger.charges
        ),
    ]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    table = [
        "  ".join(word.ljust(width) for word, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
    if len(table) == 1:
        table = ["No charges yet."]
    rule = "epsilons and deltas add up" if ledger.rule == "sum" else "Rényi divergences add up"
    return "\n".join(
        [
            f"{ledger.path}: {ledger.total} in total for every {ledger.unit}; {rule}.",
            *table,
            f"Left: {ledger.left}.",
        ]
    )

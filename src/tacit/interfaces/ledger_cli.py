"""``tacit ledger``: open the budget book of a data set, once, and see what is left in it."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit._format import in_digits, printed

if TYPE_CHECKING:
    from tacit.accounting.ledger import Ledger

app = typer.Typer(
    help="The budget book of a data set: open it once, see what is left.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

File = Annotated[Path, typer.Argument(help="The ledger's file.")]


@app.command()
def new(
    file: File,
    epsilon: Annotated[float, typer.Option(help="How much one unit may matter, in all fits.")],
    delta: Annotated[float, typer.Option(help="Chance that the epsilon does not hold.")],
    unit: Annotated[str, typer.Option(help="What is protected: row or person.")] = "row",
    adjacency: Annotated[str, typer.Option(help="add-remove or replace.")] = "add-remove",
    rule: Annotated[
        str, typer.Option(help="How fits add up: sum, or renyi, which is for many small ones.")
    ] = "sum",
) -> None:
    """Opens a ledger. What it says here can never be changed."""
    from tacit.accounting import Budget
    from tacit.accounting.ledger import Ledger

    total: Any = Budget(epsilon, delta, adjacency)  # type: ignore[arg-type]
    ledger = Ledger.new(file, total, unit=unit, rule=rule)  # type: ignore[arg-type]
    typer.echo(f"Opened {file}: {ledger.total}, for every {ledger.unit}.")


@app.command()
def show(
    file: File, as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False
) -> None:
    """What was spent, on what, and what is left."""
    from tacit.accounting.ledger import Ledger

    ledger = Ledger(file)
    typer.echo(_as_json(ledger) if as_json else _as_text(ledger))


@app.command()
def adopt(file: File) -> None:
    """Takes a book as it is that has no mark beside it, or is of Tacit's first edition.

    Only you can tell that it is the newest: a charge that it lacks is lost.
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
        table = ["Nothing has been spent."]
    rule = "epsilons and deltas add up" if ledger.rule == "sum" else "Renyi divergences add up"
    return "\n".join(
        [
            f"{ledger.path}: {ledger.total} in all, for every {ledger.unit}; {rule}.",
            *table,
            f"Left: {ledger.left}.",
        ]
    )

"""The commands of ``tacit ledger``: create the ledger of a data set, and show it."""

import json
import textwrap
from pathlib import Path
from typing import Annotated

import typer
from attrs import asdict

import tacit
from tacit import accounting
from tacit._format import clean, in_digits, printed
from tacit.interfaces.options import AdjacencyName, AsJson
from tacit.interfaces.tables import text_table

app = typer.Typer(
    help="Create and show the privacy ledger of a data set.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

# Letters in a line of what a charge was for.
_LINE = 72

File = Annotated[Path, typer.Argument(help="File of the ledger.")]


@app.command()
def new(
    file: File,
    epsilon: Annotated[float, typer.Option(help="Total budget of all fits: epsilon.")],
    delta: Annotated[float, typer.Option(help="Total budget of all fits: delta.")],
    unit: Annotated[str, typer.Option(help="Unit of privacy: row, person or 'data set'.")] = "row",
    adjacency: AdjacencyName = "add-remove",
    rule: Annotated[
        str,
        typer.Option(help="How the costs of fits compose: sum, or renyi for many small fits."),
    ] = "sum",
) -> None:
    """Create a ledger. Its settings cannot be changed later."""
    total = tacit.Budget(epsilon, delta, adjacency)  # type: ignore[arg-type]  # it checks
    ledger = tacit.Ledger.new(file, total, unit=unit, rule=rule)  # type: ignore[arg-type]  # the same
    typer.echo(f"Created {file}: {ledger.total} in total for every {ledger.unit}.")


@app.command()
def show(file: File, as_json: AsJson = False) -> None:
    """Show all charges and the remaining budget."""
    ledger = tacit.Ledger(file)
    typer.echo(_as_json(ledger) if as_json else _as_text(ledger))


@app.command()
def adopt(file: File) -> None:
    """Accept a ledger that has lost its mark file, or was written by Tacit's first version.

    Make sure that it is the newest copy: charges that it does not contain are lost.
    """
    typer.echo(_as_text(accounting.adopt.adopt(file)))


def _as_json(ledger: "tacit.Ledger") -> str:
    found = {
        "total": asdict(ledger.total),
        "unit": ledger.unit,
        "rule": ledger.rule,
        "left": asdict(ledger.left),
        "charges": [asdict(charge) for charge in ledger.charges],
    }
    return json.dumps(found, indent=2)


def _wrapped(label: str) -> str:
    """A label in lines that fit beside the numbers."""
    return textwrap.fill(clean(label), _LINE, break_long_words=False)


def _as_text(ledger: "tacit.Ledger") -> str:
    rule = "epsilons and deltas add up" if ledger.rule == "sum" else "Rényi divergences add up"
    charges = [
        [each.time[:19], printed(each.epsilon), in_digits(each.delta), _wrapped(each.label)]
        for each in ledger.charges
    ]
    header = ["when", "epsilon", "delta", "what"]
    table = text_table(charges, "lrrl", header) if charges else "No charges yet."
    return (
        f"{ledger.path}: {ledger.total} in total for every {ledger.unit}; {rule}.\n"
        f"{table}\nLeft: {ledger.left}."
    )

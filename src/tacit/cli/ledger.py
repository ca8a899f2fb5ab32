"""The commands of ``tacit ledger``: create the ledger of a data set, and show it."""

import json
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import tacit
from tacit import accounting, results
from tacit._format import clean_text, format_epsilon, format_number, text_table
from tacit.cli.options import AdjacencyName, AsJson
from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from tacit.accounting.ledger_chain import Charge

# Characters in a line of the label of a charge.
_LABEL_WIDTH = 72

app = typer.Typer(
    help="Create and show the privacy ledger of a data set.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

LedgerAddress = Annotated[
    str,
    typer.Argument(
        metavar="LEDGER",
        help="File of the ledger, or its database as postgresql://user@host/database.",
    ),
]


@app.command()
def new(
    file: LedgerAddress,
    epsilon: Annotated[float, typer.Option(help="Total budget of all fits: epsilon.")],
    delta: Annotated[
        float,
        typer.Option(
            help="Total budget of all fits: delta. The default is ten times the delta of a fit."
        ),
    ] = 1e-5,
    schema: Annotated[
        Path | None,
        typer.Option("--schema", "-s", help="Schema of the data, which names the unit of privacy."),
    ] = None,
    unit: Annotated[
        str | None,
        typer.Option(
            help="Unit of privacy: row, person or 'data set'. [default: that of the schema]"
        ),
    ] = None,
    adjacency: AdjacencyName = "add-remove",
    rule: Annotated[
        str,
        typer.Option(help="How the costs of fits compose: sum, or renyi for many small fits."),
    ] = "sum",
    analyst: Annotated[
        list[str] | None,
        typer.Option(help="In a database: role whose members may charge and read; repeatable."),
    ] = None,
) -> None:
    """Create a ledger. Its settings cannot be changed later.

    In a database, whoever creates the ledger is its steward, and no one else can raise its total.
    """
    total = tacit.Budget(epsilon, delta, adjacency)  # type: ignore[arg-type]  # it checks
    chosen = _choose_unit(unit, schema)
    ledger = tacit.Ledger.new(file, total, unit=chosen, rule=rule, analysts=analyst or ())  # type: ignore[arg-type]  # the same
    typer.echo(f"Created {ledger.path}: {ledger.total} in total for every {ledger.unit}.")


def _choose_unit(unit: str | None, schema: Path | None) -> str:
    """The unit of privacy: the one that was passed, that of the schema, or an answer."""
    declared = None if schema is None else tacit.Schema.from_yaml(schema).unit
    if unit is not None and declared not in (None, unit):
        raise InvalidArgument(
            f"The unit of {schema} is a {declared}, and --unit says {unit}; leave --unit out."
        )
    if (found := unit or declared) is not None:
        return found
    if not sys.stdin.isatty():
        raise InvalidArgument(
            "Pass the unit of privacy: --schema FILE, whose unit is a person if it names a person column; or "
            "--unit row or --unit person. It cannot be changed later."
        )
    several = typer.confirm("Can a person have several rows in the data?", err=True)
    return "person" if several else "row"


@app.command()
def show(file: LedgerAddress, as_json: AsJson = False) -> None:
    """Show all charges and the remaining budget."""
    ledger = tacit.Ledger(file)
    typer.echo(_to_json(ledger) if as_json else _to_text(ledger))


@app.command("raise")
def raise_(
    file: LedgerAddress,
    epsilon: Annotated[float, typer.Option(help="New total of all fits: epsilon.")],
    delta: Annotated[float, typer.Option(help="New total of all fits: delta.")],
) -> None:
    """Raise the total of a ledger in a database. Only its steward may do this.

    The new total is then the promise to the people in the data, for earlier fits as well.
    """
    ledger = tacit.Ledger(file)
    before = ledger.total
    accounting.ledger.raise_total(ledger, tacit.Budget(epsilon, delta, before.adjacency))
    typer.echo(f"Raised {ledger.path} from {before} to {ledger.total}. Left: {ledger.left}.")


@app.command()
def page(
    file: LedgerAddress,
    out: Annotated[Path, typer.Option(help="HTML file to write.")] = Path("ledger.html"),
) -> None:
    """Write a page for the steward: what is left, who spent what, and the budget over time."""
    results.ledger_page.write_ledger_page(tacit.Ledger(file), out)
    typer.echo(f"Wrote {out}.")


@app.command()
def adopt(file: LedgerAddress) -> None:
    """Accept a ledger that has lost its mark file.

    Make sure that it is the newest copy: charges that it does not contain are lost.
    """
    typer.echo(_to_text(accounting.ledger.adopt(file)))


def _to_json(ledger: "tacit.Ledger") -> str:
    found = {
        "total": asdict(ledger.total),
        "unit": ledger.unit,
        "rule": ledger.rule,
        "left": asdict(ledger.left),
        "charges": [asdict(charge) for charge in ledger.charges],
        "raises": [asdict(each) for each in accounting.ledger.read_history(ledger).raises],
    }
    return json.dumps(found, indent=2)


def _to_text(ledger: "tacit.Ledger") -> str:
    rule = "epsilons and deltas add up" if ledger.rule == "sum" else "Rényi divergences add up"
    header, sides, charges = charges_table(ledger.charges)
    table = text_table(charges, sides, header) if charges else "No charges yet."
    return (
        f"{ledger.path}: {ledger.total} in total for every {ledger.unit}; {rule}.\n"
        f"{table}\nLeft: {ledger.left}."
    )


def charges_table(charges: "Sequence[Charge]") -> tuple[list[str], str, list[list[str]]]:
    """The titles, the sides and the rows of a table of charges.

    Columns that are empty for all charges, such as those of earlier versions, are left out. Labels are
    written by others, so that control characters are taken out of them.

    Args:
        charges: The charges.

    Returns:
        The arguments ``header``, ``sides`` and ``rows`` of a text table.
    """
    columns = [
        ("when", "l", [each.time[:19] for each in charges]),
        ("who", "l", [clean_text(each.analyst) for each in charges]),
        ("run", "l", [clean_text(each.run) for each in charges]),
        ("epsilon", "r", [format_epsilon(each.epsilon) for each in charges]),
        ("delta", "r", [format_number(each.delta) for each in charges]),
        (
            "what",
            "l",
            [
                textwrap.fill(clean_text(each.described), _LABEL_WIDTH, break_long_words=False)
                for each in charges
            ],
        ),
    ]
    used = [column for column in columns if any(column[2]) or column[0] == "what"]
    titles, sides, cells = zip(*used, strict=True)
    return list(titles), "".join(sides), [list(row) for row in zip(*cells, strict=True)]

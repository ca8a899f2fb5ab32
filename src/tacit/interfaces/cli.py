"""The ``tacit`` command. Heavy modules are imported inside the commands that need them."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import click
import typer
import typer.core

from tacit import __version__
from tacit.errors import Overspent, TacitError, Unsaved, place_of
from tacit.interfaces import (
    audit_cli,
    budget_cli,
    federated_cli,
    fit_cli,
    ledger_cli,
    reproduce_cli,
    schema_cli,
)

app = typer.Typer(
    name="tacit",
    help="Bayesian inference with differential privacy.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command()(fit_cli.fit)
app.command()(fit_cli.predict)
app.command()(fit_cli.report)
app.command()(audit_cli.audit)
app.add_typer(schema_cli.app, name="schema")
app.add_typer(ledger_cli.app, name="ledger")
app.add_typer(budget_cli.app, name="budget")
app.add_typer(federated_cli.app, name="federated")


app.command()(reproduce_cli.reproduce)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tacit {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Bayesian inference with differential privacy."""


@app.command()
def demo(
    epsilon: Annotated[float, typer.Option(help="Privacy budget: epsilon.")] = 1.0,
    delta: Annotated[float, typer.Option(help="Privacy budget: delta.")] = 1e-5,
) -> None:
    """Fit a private logistic regression to scikit-learn's breast-cancer data."""
    from tacit.accounting import Budget
    from tacit.interfaces import demo

    with fit_cli.telling_interruptions():
        demo.run(Budget(epsilon, delta), typer.echo)


@app.command()
def example(
    folder: Annotated[Path, typer.Argument(help="Folder to write to.")] = Path(),
) -> None:
    """Write a simulated table of hospital visits, with its schema, to try Tacit on."""
    from tacit.interfaces import example

    for path in example.write(folder):
        typer.echo(f"Wrote {path}.")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit code.

    The exit code is 2 for invalid input, with one sentence and nothing charged; 3 if the ledger has
    too little left; 130 after an interruption. It is 1 for a run that was charged but could not be
    saved, with a message that says where its result is, and for an unexpected error. Of an unexpected
    error only the type and the place are printed, because its message could contain a cell.
    """
    # Otherwise Typer escapes brackets in help for Rich, which is not used here.
    typer.core.HAS_RICH = False
    command = typer.main.get_command(app)
    try:
        result = command.main(
            args=None if arguments is None else list(arguments),
            prog_name="tacit",
            standalone_mode=False,
        )
    except Exception as error:  # noqa: BLE001 (its message may hold a cell)
        return _said(error)
    return result if isinstance(result, int) else 0


def _said(error: Exception) -> int:
    """Prints what may be printed of an error, in one sentence, and returns the exit code."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        click.echo(error.format_message(), err=True)
        return 2
    if isinstance(error, click.Abort):  # Typer itself turns Ctrl-C into 130
        click.echo("Interrupted.", err=True)
        return 130
    if isinstance(error, click.ClickException):
        return _complain(error.format_message())
    if isinstance(error, Unsaved):
        return _complain(str(error), 1)
    if isinstance(error, TacitError):
        return _complain(str(error), 3 if isinstance(error, Overspent) else 2)
    return _complain(f"Unexpected error: {place_of(error)}.", 1)


def _complain(sentence: str, code: int = 2) -> int:
    click.echo(f"Error: {' '.join(sentence.split())}", err=True)
    return code


if __name__ == "__main__":
    sys.exit(main())

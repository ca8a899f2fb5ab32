"""The ``tacit`` command: parses, calls, prints. Heavy parts load inside the commands."""

import sys
from collections.abc import Sequence
from typing import Annotated

import click
import typer

from tacit import __version__
from tacit.errors import Interrupted, TacitError
from tacit.interfaces import budget_cli, federated_cli, reproduce_cli

app = typer.Typer(
    name="tacit",
    help="Bayesian inference on data that must stay private.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
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
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Version.")
    ] = False,
) -> None:
    """Bayesian inference on data that must stay private."""


@app.command()
def demo(
    epsilon: Annotated[float, typer.Option(help="How much one person may matter.")] = 1.0,
    delta: Annotated[float, typer.Option(help="Chance that epsilon does not hold.")] = 1e-5,
) -> None:
    """Fits a private logistic regression on scikit-learn's breast-cancer data."""
    from tacit.accounting import Budget
    from tacit.interfaces import demo

    demo.run(Budget(epsilon, delta), typer.echo)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit code. Wrong input is 2 and one sentence."""
    command = typer.main.get_command(app)
    try:
        result = command.main(
            args=None if arguments is None else list(arguments),
            prog_name="tacit",
            standalone_mode=False,
        )
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return 2
    except click.ClickException as error:
        return _complain(error.format_message())
    except TacitError as error:
        return _complain(str(error))
    except Interrupted as error:
        click.echo(str(error), err=True)
        return 130
    except (click.Abort, KeyboardInterrupt):
        click.echo("Interrupted.", err=True)
        return 130
    return result if isinstance(result, int) else 0


def _complain(sentence: str) -> int:
    click.echo(f"Error: {sentence}", err=True)
    return 2


if __name__ == "__main__":
    sys.exit(main())

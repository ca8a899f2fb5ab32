"""The ``tacit`` command. A command's module is imported when the command is called, so that ``tacit --help`` is quick."""

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated

import click
import typer
import typer.core

from tacit import __version__
from tacit.cli.workers import EXIT_LOST_PROCESS, ProcessInfo
from tacit.errors import (
    DISTRIBUTION,
    PACKAGE_EXTRAS,
    LostProcess,
    MissingPackage,
    Overspent,
    TacitError,
    Unsaved,
    error_location,
)


class LazyCommand(click.Command):
    """The name and help line of a command, and the module that defines it.

    Args:
        name: The name of the command.
        line: Its help line, the first line of its help text.
        module: The module, which has the command in its Typer app ``app``.
        is_group: Whether the whole app is the command, with the commands in it as subcommands.
    """

    def __init__(self, name: str, line: str, module: str, *, is_group: bool = False) -> None:
        super().__init__(name, short_help=line)
        self._module, self._is_group = module, is_group

    def load(self) -> click.Command:
        """Imports the command.

        Returns:
            The command or group.
        """
        group = typer.main.get_group(import_module(self._module).app)
        return group if self._is_group else group.commands[str(self.name)]


class LazyGroup(typer.core.TyperGroup):
    """A group that loads a command when it is called. Listing commands loads none."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Finds the command that was asked for and loads it."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command.load() if isinstance(command, LazyCommand) else command, rest


_HERE = "tacit.cli"
COMMANDS = (
    LazyCommand(
        "fit",
        "Fit a regression, or a model in a Python file, within a privacy budget and write a report.",
        f"{_HERE}.fit",
    ),
    LazyCommand(
        "resume",
        "Go on with a fit that was interrupted, without another charge.",
        f"{_HERE}.resume",
    ),
    LazyCommand(
        "shard",
        "Deal the rows of Parquet files to shards, for fits in several processes.",
        f"{_HERE}.shard",
    ),
    LazyCommand(
        "predict",
        "Predict the outcome of new rows: its mean, or the probability of each level.",
        f"{_HERE}.fit",
    ),
    LazyCommand(
        "report",
        "Write the report of a run again, as HTML, Markdown and a registry entry.",
        f"{_HERE}.fit",
    ),
    LazyCommand(
        "explain",
        "Say in plain words what a run asked, what leaves, and what that means for one person.",
        f"{_HERE}.explain",
    ),
    LazyCommand(
        "forecast",
        "Forecast the intervals that a fit will have, before any data are read.",
        f"{_HERE}.forecast",
    ),
    LazyCommand(
        "audit",
        "Estimate a lower bound on the epsilon of a plan, on made-up rows. Reads no data.",
        f"{_HERE}.audit",
    ),
    LazyCommand(
        "reproduce",
        "Rerun the experiments of the papers and plot them beside the published results.",
        f"{_HERE}.reproduce",
    ),
    LazyCommand(
        "demo",
        "Fit who had an affair, by a survey of 6,366 women, without and with privacy.",
        f"{_HERE}.demo",
    ),
    LazyCommand(
        "example",
        "Write a simulated table of hospital visits, with its schema, to try Tacit on.",
        f"{_HERE}.example",
    ),
    LazyCommand(
        "schema",
        "Write and check schemas: the public bounds and levels of a table.",
        f"{_HERE}.schema",
        is_group=True,
    ),
    LazyCommand(
        "ledger",
        "Create and show the privacy ledger of a data set.",
        f"{_HERE}.ledger",
        is_group=True,
    ),
    LazyCommand(
        "budget",
        "Compute the privacy cost of a run, or the noise for a budget. Reads no data.",
        f"{_HERE}.budget",
        is_group=True,
    ),
    LazyCommand(
        "federated",
        "Fit one posterior to the data of several sites.",
        f"{_HERE}.federated",
        is_group=True,
    ),
)

app = typer.Typer(
    name="tacit",
    cls=LazyGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


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


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit code.

    The exit code is 2 for invalid input, with one sentence and nothing charged; 3 if the ledger has
    too little left; 130 after an interruption. It is 1 for a run that was charged but could not be
    saved, with a message that says where its result is, and for an unexpected error. Of an unexpected
    error only the type and the place are printed, because its message could contain a cell.

    Args:
        arguments: The arguments of the command line; by default those of the process.

    Returns:
        The exit code.
    """
    # Otherwise Typer escapes brackets in help for Rich, which is not used for help.
    typer.core.HAS_RICH = False
    group = typer.main.get_command(app)
    assert isinstance(group, LazyGroup)
    for command in COMMANDS:
        group.add_command(command)
    typed = sys.argv[1:] if arguments is None else list(arguments)
    try:
        result = group.main(args=typed, prog_name="tacit", standalone_mode=False, obj=typed)
    except Exception as error:  # noqa: BLE001 (its message may hold a cell)
        return _exit(_report_error(error))
    return _exit(result) if isinstance(result, int) else 0


def _exit(code: int) -> int:
    """The exit code. One of several processes that has failed ends at once: JAX would wait for others."""
    if code and ProcessInfo.here() is not None:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


def _report_error(error: Exception) -> int:  # noqa: PLR0911 (a ladder)
    """Prints what may be printed of an error, in one sentence, and returns the exit code."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        click.echo(error.format_message(), err=True)
        return 2
    if isinstance(error, click.Abort):  # Typer itself turns Ctrl-C into 130
        click.echo("Interrupted.", err=True)
        return 130
    if isinstance(error, click.ClickException):
        return _print_error(error.format_message())
    if isinstance(error, LostProcess) and ProcessInfo.here() is not None:
        return EXIT_LOST_PROCESS  # whoever started the processes says it
    if isinstance(error, TacitError):
        return _print_error(str(error), _error_code(error))
    if isinstance(error, ModuleNotFoundError) and error.name:  # a name in code, never a cell
        return _print_error(_not_installed(error.name.partition(".")[0]), 1)
    return _print_error(f"Unexpected error: {error_location(error)}.", 1)


def _not_installed(package: str) -> str:
    if package in PACKAGE_EXTRAS:
        return str(MissingPackage(package, "This command"))
    return (
        f"The package {package} is not installed. If Tacit needs it (pip show {DISTRIBUTION} lists what "
        f"it needs), install Tacit again: pip install --force-reinstall {DISTRIBUTION}."
    )


def _error_code(error: TacitError) -> int:
    if isinstance(error, Unsaved):
        return 1
    return 3 if isinstance(error, Overspent) else 2


def _print_error(sentence: str, code: int = 2) -> int:
    click.echo(f"Error: {' '.join(sentence.split())}", err=True)
    return code


if __name__ == "__main__":
    sys.exit(main())

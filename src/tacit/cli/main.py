"""The ``tacit`` command.

Every command is in a module of this package, as a function or as a Typer app of subcommands. Only the module of the command
that is called is imported; the others are listed with a name and a line of help, so that ``tacit --help`` is quick.
"""

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, NamedTuple

import typer
import typer.core

from tacit import __version__
from tacit.cli.distributed import EXIT_LOST_PROCESS, ProcessInfo
from tacit.errors import (
    DISTRIBUTION,
    PACKAGE_EXTRAS,
    LostProcess,
    MissingPackage,
    Overspent,
    TacitError,
    TooFewUnits,
    Unsaved,
    error_location,
)


class Command(NamedTuple):
    """A command: its name, its line of help, and the module of this package that has it.

    The module has a function of the command's name, or a Typer app called ``app`` for a group of
    subcommands.
    """

    name: str
    line: str
    module: str
    is_group: bool = False


COMMANDS = (
    Command("fit", "Fit a regression, or a model in a Python file, within a privacy budget and write a report.", "fit"),
    Command("resume", "Continue a fit that was interrupted, without another charge.", "fit"),
    Command("shard", "Divide the rows of Parquet files into shards, for fits in several processes.", "data"),
    Command("predict", "Predict the outcome of new rows: its mean, or the probability of each level.", "fit"),
    Command("report", "Write the report of a run again, as HTML, Markdown and a registry entry.", "fit"),
    Command("explain", "Say in plain words what a run computed, what leaves, and what that means for one person.", "fit"),
    Command("explore", "Look at a table: counts, means and quantiles of columns, with intervals that contain the noise.", "explore"),
    Command("check", "Check whether a fitted model describes the data, and name what does not fit.", "check"),
    Command("score", "Score how well a fitted model predicts rows that were kept: log density, and accuracy or R2.", "check"),
    Command("compare", "Compare models by how well they predict people who were not fitted.", "check"),
    Command("synthesize", "Make synthetic tables to share, with errors that contain the noise.", "synthesize"),
    Command("forecast", "Forecast the intervals that a fit will have, before any data are read.", "studies"),
    Command("audit", "Estimate a lower bound on the epsilon of a plan, on simulated rows. Reads no data.", "studies"),
    Command("reproduce", "Rerun the experiments of the papers and plot them beside the published results.", "reproduce"),
    Command("demo", "Fit an example without and with privacy: who had an affair, by a survey of 6,366 women.", "demo"),
    Command("example", "Write a simulated table of hospital visits, with its schema, to try Tacit on.", "data"),
    Command("schema", "Write and check schemas: the public bounds and levels of a table.", "data", is_group=True),
    Command("ledger", "Create and show the privacy ledger of a data set.", "ledger", is_group=True),
    Command("budget", "Compute the privacy cost of a run, or the noise for a budget. Reads no data.", "budget", is_group=True),
    Command("federated", "Fit one posterior to the data of several sites.", "federated", is_group=True),
)  # fmt: skip


# Exit codes of errors after which something may be charged, and of one that the budget explains.
_EXIT_CODES = {Unsaved: 1, Overspent: 3, TooFewUnits: 5}


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tacit {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Bayesian inference with differential privacy."""


def make_app(words: Sequence[str]) -> typer.Typer:
    """The app. Commands that are not among the words of the command line are listed, but not imported."""
    app = typer.Typer(
        name="tacit",
        callback=_root,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    for name, line, module, is_group in COMMANDS:
        if name not in words:
            app.command(name, short_help=line)(lambda: None)
        elif is_group:
            app.add_typer(import_module(f"tacit.cli.{module}").app, name=name)
        else:
            app.command(name)(getattr(import_module(f"tacit.cli.{module}"), name))
    return app


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit code.

    The exit code is 2 for invalid input, with one sentence and nothing charged; 3 if the ledger has
    too little left; 5 if a fit stopped after its count, and was charged for that alone; 130 after an interruption. It is 1 for a run that was charged but could not be
    saved, with a message that says where its result is, and for an unexpected error. Of an unexpected
    error only the type and the place are printed, because its message could contain a cell.

    Args:
        arguments: The arguments of the command line; by default those of the process.

    Returns:
        The exit code.
    """
    # Otherwise some versions of Typer escape brackets in help for Rich, which is not used for help.
    typer.core.HAS_RICH = False
    typed = sys.argv[1:] if arguments is None else list(arguments)
    if typed[:1] == ["predict"]:
        typed = _with_interval_of_mean(typed)
    # A shell that completes a command line passes it by one of these variables.
    completed = f"{os.environ.get('COMP_WORDS', '')} {os.environ.get('_TYPER_COMPLETE_ARGS', '')}"
    app = make_app([*typed, *completed.split()])
    try:
        result = app(args=typed, prog_name="tacit", standalone_mode=False, obj=typed)
    except Exception as error:  # noqa: BLE001 (its message may hold a cell)
        return _exit(_report_error(error))
    return _exit(result) if isinstance(result, int) else 0


def _with_interval_of_mean(typed: Sequence[str]) -> list[str]:
    """The arguments of a prediction; an interval without a word is that of the mean."""
    found = list(typed)
    for place, word in enumerate(typed):
        if word == "--interval" and (typed[place + 1 :] or ["-"])[0].startswith("-"):
            found[place] = "--interval=mean"
    return found


def _exit(code: int) -> int:
    """Returns the exit code; but one of several processes that failed ends at once, as JAX would wait for the others."""
    if code and ProcessInfo.here() is not None:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


def _report_error(error: Exception) -> int:  # noqa: PLR0911 (a ladder)
    """Prints what may be printed of an error, in one sentence, and returns the exit code."""
    if isinstance(error, typer.Abort):  # Typer itself turns Ctrl-C into 130
        typer.echo("Interrupted.", err=True)
        return 130
    # Errors of a command line. Their class is Click's or Typer's, depending on the version of Typer.
    if format_message := getattr(error, "format_message", None):
        message = format_message()
        if message.startswith("Usage:"):  # the help of a group that was called without a command
            typer.echo(message, err=True)
            return 2
        return _print_error(message)
    if isinstance(error, LostProcess) and ProcessInfo.here() is not None:
        return EXIT_LOST_PROCESS  # whoever started the processes reports it
    if isinstance(error, TacitError):
        code = next((code for kind, code in _EXIT_CODES.items() if isinstance(error, kind)), 2)
        return _print_error(str(error), code)
    if isinstance(error, ModuleNotFoundError) and error.name:  # a name in code, never a cell
        package = error.name.partition(".")[0]
        if package in PACKAGE_EXTRAS:
            return _print_error(str(MissingPackage(package, "This command")), 1)
        return _print_error(
            f"The package {package} is not installed. If Tacit needs it (pip show {DISTRIBUTION} lists "
            f"what it needs), install Tacit again: pip install --force-reinstall {DISTRIBUTION}.",
            1,
        )
    return _print_error(f"Unexpected error: {error_location(error)}.", 1)


def _print_error(sentence: str, code: int = 2) -> int:
    typer.echo(f"Error: {' '.join(sentence.split())}", err=True)
    return code


if __name__ == "__main__":
    sys.exit(main())

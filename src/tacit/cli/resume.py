"""The command ``tacit resume``."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

import tacit
from tacit import api, cli
from tacit.cli.fit import (
    RunArgument,
    check_file_count,
    check_headers,
    fit_in_folder,
    join_processes,
    print_posterior,
    reporting_interruptions,
    write_report,
)
from tacit.cli.options import Workers
from tacit.errors import InvalidArgument


def resume(
    ctx: typer.Context,
    folder: RunArgument,
    data: Annotated[
        list[Path] | None,
        typer.Option(
            help="The data, if they were moved; must be the same rows. Repeat it for files."
        ),
    ] = None,
    ledger: Annotated[
        str | None, typer.Option(help="The ledger, if it was moved; must have the charge.")
    ] = None,
    workers: Workers = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", help="Print no progress bar and no summary.")
    ] = False,
) -> None:
    """Go on with a fit that was interrupted, without another charge.

    A fit that was interrupted before it was charged begins, and is charged now. The posterior is the one that the fit would have had without the interruption. Data, schema,
    settings and versions of the software must be the same; otherwise the command refuses to go on.
    """
    run = cli.runs.RunFolder(folder)
    asked = run.request()
    if api.resume.is_finished(folder):
        typer.echo(
            f"The run in {folder} is finished, and its keys are destroyed. To write its report again, "
            f"run: tacit report {folder}."
        )
        return
    if not run.unfinished:
        raise InvalidArgument(
            f"{folder} holds no unfinished run. If nothing was charged, remove the folder and fit again."
        )
    workers = workers or int(run.notes.get("processes", 1))
    held = data or _recorded_files(run.notes)
    check_file_count(held, workers)
    rank = join_processes(ctx, workers, folder)
    check_headers(asked, held, rank, workers)
    with reporting_interruptions():
        plan = asked.plan()
        if rank > 0:
            fit_in_folder(run, asked, plan, held, None, quiet=True)
            return
        book = _recorded_ledger(folder, ledger, run.notes.get("ledger"))
        if ledger is not None:  # another one than the run was begun with must be the same ledger
            api.resume.check_charged(folder, plan, book)
        found = fit_in_folder(run, asked, plan, held, book, quiet=quiet)
        write_report(run, found)
    if not quiet:
        print_posterior(run, found)


def _recorded_files(notes: Mapping[str, str]) -> list[Path]:
    """Where the data were."""
    if "files" in notes:
        return [Path(each) for each in json.loads(notes["files"])]
    return [Path(notes["data"])]


def _recorded_ledger(folder: Path, moved: str | None, noted: str | None) -> "tacit.Ledger | None":
    """The ledger of the run, if it has one."""
    if noted is None:
        if moved is not None:
            raise InvalidArgument("The run was begun without a ledger; leave --ledger out.")
        return None
    return tacit.Ledger(moved or noted).for_run(folder.absolute().name, folder)

"""The command ``tacit resume``."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

import tacit
from tacit import interfaces
from tacit.errors import InvalidArgument
from tacit.interfaces.fit_cli import (
    Run,
    fit_in,
    joined,
    print_found,
    refuse_few,
    refuse_files,
    reported,
    telling_interruptions,
)
from tacit.interfaces.options import Workers

app = typer.Typer(rich_markup_mode=None)


@app.command()
def resume(
    ctx: typer.Context,
    folder: Run,
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
    run = interfaces.requests.Folder(folder)
    asked = run.request()
    if interfaces.kept_runs.is_finished(folder):
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
    held = data or _noted(run.notes)
    refuse_few(held, workers)
    rank = joined(ctx, workers, folder)
    refuse_files(asked, held, rank, workers)
    with telling_interruptions():
        plan = asked.plan()
        if rank > 0:
            fit_in(run, asked, plan, held, None, quiet=True)
            return
        book = _ledger(folder, ledger, run.notes.get("ledger"))
        if ledger is not None:  # another one than the run was begun with must be the same ledger
            interfaces.kept_runs.refuse_uncharged(folder, plan, book)
        found = fit_in(run, asked, plan, held, book, quiet=quiet)
        reported(run, found)
    if not quiet:
        print_found(run, found)


def _noted(notes: Mapping[str, str]) -> list[Path]:
    """Where the data were."""
    if "files" in notes:
        return [Path(each) for each in json.loads(notes["files"])]
    return [Path(notes["data"])]


def _ledger(folder: Path, moved: str | None, noted: str | None) -> "tacit.Ledger | None":
    """The ledger of the run, if it has one."""
    if noted is None:
        if moved is not None:
            raise InvalidArgument("The run was begun without a ledger; leave --ledger out.")
        return None
    return tacit.Ledger(moved or noted).for_run(folder.absolute().name, folder)

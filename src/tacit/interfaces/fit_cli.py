"""The commands ``tacit fit``, ``tacit predict`` and ``tacit report``."""

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.errors import InvalidArgument, LedgerError, TacitError, Unsaved, place_of, reason_of
from tacit.inference import methods

if TYPE_CHECKING:
    from tacit.accounting.ledger import Ledger
    from tacit.interfaces.requests import Folder, Request
    from tacit.results.posterior import Posterior

Run = Annotated[Path, typer.Argument(help="A folder written by tacit fit.")]


def fit(
    data: Annotated[Path, typer.Argument(help="The data: a CSV or Parquet file.")],
    schema: Annotated[Path, typer.Option(help="The schema of the data, a YAML file.")],
    formula: Annotated[str, typer.Option(help='The model, such as "ill ~ age + C(ward)".')],
    epsilon: Annotated[float, typer.Option(help="Privacy budget of this fit: epsilon.")],
    delta: Annotated[
        float,
        typer.Option(help="Privacy budget of this fit: delta. Choose it well below 1 / people."),
    ],
    out: Annotated[Path, typer.Option(help="Output folder; must be new or empty.")] = Path("run"),
    ledger: Annotated[
        Path | None, typer.Option(help="Ledger of the data; see tacit ledger new.")
    ] = None,
    no_ledger: Annotated[
        bool,
        typer.Option("--no-ledger", help="Run without a ledger; nothing prevents overspending."),
    ] = False,
    family: Annotated[
        str | None, typer.Option(help="Distribution of the outcome. [default: by its column kind]")
    ] = None,
    adjacency: Annotated[
        str | None, typer.Option(help="add-remove or replace. [default: the ledger's]")
    ] = None,
    method: Annotated[str, typer.Option(help=f"{methods.LISTED}.")] = methods.DEFAULT,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="Setting of the method, as name=value; repeatable."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Make the fit reproducible. The result is then not private.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan without reading rows or charging.")
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", help="Print no progress bar and no summary.")
    ] = False,
) -> None:
    """Fit a regression to a table within a privacy budget and write a report."""
    from tacit.accounting import Budget
    from tacit.interfaces.requests import Folder, requested

    book = _book(ledger, no_ledger=no_ledger or dry_run)
    relation: Any = adjacency or (book.total.adjacency if book else "add-remove")
    asked = requested(
        formula, schema, Budget(epsilon, delta, relation), family, method, set_ or [], seed
    )
    asked.schema.refuse(data, asked.columns)
    if dry_run:
        _print_plan(asked, book)
        return
    with telling_interruptions():
        found = _fitted(asked, data, book, folder := Folder(out), quiet=quiet)
        _reported(folder, found)
    if not quiet:
        left = "" if found.privacy.budget_left is None else f"Left: {found.privacy.budget_left}.\n"
        typer.echo(f"{found.summary()}\n\n{left}Report: {out / 'report.html'}")


@contextmanager
def telling_interruptions() -> Iterator[None]:
    """Prints what was charged if Ctrl-C interrupts a fit."""
    try:
        yield
    except KeyboardInterrupt as error:  # inside the fit it is an Interrupted, with a message
        usual = "Interrupted; run tacit ledger show to see whether anything was charged."
        typer.echo(str(error) or usual, err=True)
        raise typer.Exit(130) from None


def _book(path: Path | None, *, no_ledger: bool) -> "Ledger | None":
    from tacit.accounting.ledger import Ledger

    if path is None:
        if no_ledger:
            return None
        raise InvalidArgument(
            "Pass the ledger of the data with --ledger, or --no-ledger to run without one. To create a "
            "ledger, run: tacit ledger new ledger.db --epsilon 3 --delta 1e-5."
        )
    return Ledger(path)


def _print_plan(asked: "Request", book: "Ledger | None") -> None:
    typer.echo(f"{asked.glm}\n\n{asked.plan()}")
    if book is not None:
        typer.echo(f"\nThe ledger {book.path} has {book.left} left.")


def _fitted(
    asked: "Request", data: Path, book: "Ledger | None", folder: "Folder", *, quiet: bool
) -> "Posterior":
    """Fits and saves the posterior; removes the folder if nothing was charged."""
    from tacit.interfaces.fit import fit as run

    plan = asked.plan()
    named = {"ledger": book.path.name, "ledger_total": asdict(book.total)} if book else {}
    folder.make(asked, data=data.name, **named)
    before = None if book is None else len(book.charges)
    try:
        found = run(
            plan,
            str(data),
            ledger=book,
            seed=asked.seed,
            progress=not quiet and sys.stderr.isatty(),
        )
    except BaseException as error:  # an interruption, too
        if book is None or isinstance(error, LedgerError) or len(book.charges) == before:
            folder.discard()
        elif isinstance(error, TacitError):  # which otherwise means that nothing was charged
            raise Unsaved(f"The fit was charged and then failed: {error}") from None
        raise
    _saved(folder, found)
    return found


def _saved(folder: "Folder", found: "Posterior") -> None:
    """Saves the posterior, in another folder if necessary: it was charged and must not be lost."""
    try:
        folder.save(found)
    except Exception as error:  # noqa: BLE001 (whatever it is, the posterior comes first)
        typer.echo(found.summary())
        reason = reason_of(error.__cause__) or place_of(error)
        where = Path(tempfile.mkdtemp(prefix="tacit-")) / folder.posterior_path.name
        try:
            found.save(where)
        except Exception:  # noqa: BLE001
            raise Unsaved(
                f"The fit was charged, but neither {folder.path} nor {where.parent} can be written "
                f"({reason}). The summary printed above is all that is left of it."
            ) from None
        raise Unsaved(
            f"The fit was charged, but {folder.path} cannot be written ({reason}). The posterior is saved "
            f"as {where}; move it into {folder.path} and run tacit report {folder.path}."
        ) from None


def _reported(folder: "Folder", found: "Posterior") -> None:
    """Writes the report; the posterior is saved even if that fails."""
    try:
        _report(folder, found)
    except Exception as error:  # noqa: BLE001 (the same for all of them)
        typer.echo(found.summary())
        reason = reason_of(error.__cause__) or place_of(error)
        raise Unsaved(
            f"The fit was charged and its posterior is saved in {folder.path}, but the report could "
            f"not be written ({reason}). To write it, run tacit report {folder.path}."
        ) from None


def report(folder: Run) -> None:
    """Write the report of a run again, as HTML, Markdown and a registry entry."""
    from tacit.interfaces.requests import Folder

    run = Folder(folder)
    posterior = run.posterior(with_model=False)
    _warn(posterior)
    _report(run, posterior)
    typer.echo(f"Report: {folder / 'report.html'}")


def _warn(posterior: "Posterior") -> None:
    """Prints the warnings of a result: that it is not private, or did not converge."""
    for warning in posterior.warnings:
        typer.echo(warning, err=True)


def _report(folder: "Folder", posterior: "Posterior") -> None:
    from tacit.results.report import write_report

    write_report(posterior, folder.path, settings=folder.shown())


def predict(
    folder: Run,
    data: Annotated[Path, typer.Argument(help="New rows: a CSV or Parquet file.")],
    out: Annotated[Path | None, typer.Option(help="CSV file to write. [default: print]")] = None,
    interval: Annotated[
        bool, typer.Option("--interval", help="Add the ends of a 90% predictive interval.")
    ] = False,
) -> None:
    """Predict the outcome of new rows: its mean, or the probability of each level.

    If the intervals do not account for the privacy noise, their column names say so.

    Predictions have no further privacy cost. A prediction for a person's row is as private as the row.
    """
    from tacit.interfaces.predictions import write_predictions
    from tacit.interfaces.requests import Folder

    run = Folder(folder)
    levels = run.request().glm.program.outcome.facts.levels
    posterior = run.posterior(with_model=True)
    _warn(posterior)
    write_predictions(posterior, str(data), out, interval=interval, levels=levels)

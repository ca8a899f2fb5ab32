"""``tacit fit``, ``predict`` and ``report``: from a table to a page, and what is asked of it later."""

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

Run = Annotated[Path, typer.Argument(help="A folder that tacit fit wrote.")]


def fit(
    data: Annotated[Path, typer.Argument(help="A CSV or Parquet file.")],
    schema: Annotated[Path, typer.Option(help="What is public about its columns, in YAML.")],
    formula: Annotated[str, typer.Option(help='The regression, such as "ill ~ age + C(ward)".')],
    epsilon: Annotated[float, typer.Option(help="How much one unit may matter in this fit.")],
    delta: Annotated[
        float, typer.Option(help="Chance that the epsilon does not hold; well below 1 / people.")
    ],
    out: Annotated[Path, typer.Option(help="The folder to write; new or empty.")] = Path("run"),
    ledger: Annotated[
        Path | None, typer.Option(help="The data's ledger; see tacit ledger new.")
    ] = None,
    no_ledger: Annotated[
        bool, typer.Option("--no-ledger", help="Keep no book: nothing stops overspending.")
    ] = False,
    family: Annotated[
        str | None, typer.Option(help="The outcome's distribution; by its kind if left out.")
    ] = None,
    adjacency: Annotated[
        str | None, typer.Option(help="add-remove or replace; the ledger's if left out.")
    ] = None,
    method: Annotated[str, typer.Option(help=f"{methods.LISTED}.")] = methods.DEFAULT,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="A setting of the method, name=value.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Makes the fit repeatable, and not private.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan; read no row, spend nothing.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bar, no summary.")] = False,
) -> None:
    """Fits a regression to a table within a privacy budget, and writes a report."""
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
    """After Ctrl-C in a fit, says what had been spent."""
    try:
        yield
    except KeyboardInterrupt as error:  # in the fit itself it is an Interrupted, with words
        usual = "Interrupted; tacit ledger show says whether anything was spent."
        typer.echo(str(error) or usual, err=True)
        raise typer.Exit(130) from None


def _book(path: Path | None, *, no_ledger: bool) -> "Ledger | None":
    from tacit.accounting.ledger import Ledger

    if path is None:
        if no_ledger:
            return None
        raise InvalidArgument(
            "Name the data's ledger with --ledger; open one by: tacit ledger new ledger.db "
            "--epsilon 3 --delta 1e-5; or say --no-ledger."
        )
    return Ledger(path)


def _print_plan(asked: "Request", book: "Ledger | None") -> None:
    typer.echo(f"{asked.glm}\n\n{asked.plan()}")
    if book is not None:
        typer.echo(f"\nThe ledger {book.path} has {book.left} left.")


def _fitted(
    asked: "Request", data: Path, book: "Ledger | None", folder: "Folder", *, quiet: bool
) -> "Posterior":
    """The posterior, saved; the folder is taken back if nothing was spent."""
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
        elif isinstance(error, TacitError):  # which otherwise means that nothing was spent
            raise Unsaved(f"The fit was charged, and failed after that: {error}") from None
        raise
    _saved(folder, found)
    return found


def _saved(folder: "Folder", found: "Posterior") -> None:
    """Writes the posterior, elsewhere if it must be: it was paid for, and is not lost to a full disk."""
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
                f"The fit was made and paid for, but neither {folder.path} nor {where.parent} can be "
                f"written ({reason}): what was found is printed above, and is all there is."
            ) from None
        raise Unsaved(
            f"The fit was made and paid for, but {folder.path} cannot be written ({reason}): the "
            f"posterior is {where}; move it into {folder.path} and run tacit report {folder.path}."
        ) from None


def _reported(folder: "Folder", found: "Posterior") -> None:
    """Writes the report; if that fails, the posterior is there nevertheless."""
    try:
        _report(folder, found)
    except Exception as error:  # noqa: BLE001 (the same for all of them)
        typer.echo(found.summary())
        reason = reason_of(error.__cause__) or place_of(error)
        raise Unsaved(
            f"The fit was made and paid for, and its posterior is in {folder.path}, but the report "
            f"could not be written ({reason}); write it by: tacit report {folder.path}."
        ) from None


def report(folder: Run) -> None:
    """Writes a run's report again, as a page, as Markdown and as fields for a registry."""
    from tacit.interfaces.requests import Folder

    run = Folder(folder)
    posterior = run.posterior(with_model=False)
    _warn(posterior)
    _report(run, posterior)
    typer.echo(f"Report: {folder / 'report.html'}")


def _warn(posterior: "Posterior") -> None:
    """Says of what follows from a result that it is not private, or did not converge."""
    for warning in posterior.warnings:
        typer.echo(warning, err=True)


def _report(folder: "Folder", posterior: "Posterior") -> None:
    from tacit.results.report import write_report

    write_report(posterior, folder.path, settings=folder.shown())


def predict(
    folder: Run,
    data: Annotated[Path, typer.Argument(help="A CSV or Parquet file of new rows.")],
    out: Annotated[
        Path | None, typer.Option(help="A CSV file to write; printed if left out.")
    ] = None,
    interval: Annotated[
        bool, typer.Option("--interval", help="Also the ends of a 90% interval of the outcome.")
    ] = False,
) -> None:
    """Predicts the outcome of new rows: its mean, or the chance of each level.

    Ends of intervals that leave out the noise of privacy say so in their column's name.

    Costs nothing more. What is predicted for a person's row is as private as the row.
    """
    from tacit.interfaces.predictions import write_predictions
    from tacit.interfaces.requests import Folder

    run = Folder(folder)
    levels = run.request().glm.program.outcome.facts.levels
    posterior = run.posterior(with_model=True)
    _warn(posterior)
    write_predictions(posterior, str(data), out, interval=interval, levels=levels)

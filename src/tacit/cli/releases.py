"""What commands of charged releases other than fits share: explore, check, score, compare and synthesize."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import typer

import tacit
from tacit.cli.fit import ledger_line, open_ledger
from tacit.errors import InvalidArgument, TacitError, Unsaved


class ReleasePlan(Protocol):
    """What is done and costs, before data are read."""

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""


class Saved(Protocol):
    """What was released, which can be printed and saved as a page."""

    def to_json(self) -> str:
        """As JSON."""

    def report(self, folder: Path) -> None:
        """Writes the page."""


def ledger_and_budget(
    ledger: str | None,
    adjacency: str | None,
    epsilon: float,
    delta: float,
    out: Path | None = None,
) -> "tuple[tacit.Ledger | None, tacit.Budget]":
    """The ledger that was named, and the budget under its adjacency or another that was named."""
    charged = open_ledger(ledger, out)
    relation = adjacency or (charged.total.adjacency if charged else "add-remove")
    return charged, tacit.Budget(epsilon, delta, relation)  # type: ignore[arg-type]  # it checks


def print_plan(plan: ReleasePlan, charged: "tacit.Ledger | None", *, as_json: bool) -> None:
    """Prints what a release will do, and what the ledger has left."""
    typer.echo(json.dumps(plan.to_dict(), indent=1) if as_json else plan)
    if not as_json:
        typer.echo(ledger_line(charged))


def entry_note(out: Path, note: str | None) -> str:
    """What the ledger's entry says beside the release."""
    return f"in {out}" if note is None else f"in {out}; {note}"


def print_and_save(found: Saved, out: Path, page: str, *, as_json: bool) -> None:
    """Writes the page of what was released, and prints it; what cannot be saved is printed at least."""
    unsaved: TacitError | None = None
    try:
        found.report(out)
    except TacitError as error:
        unsaved = error
    typer.echo(found.to_json() if as_json else found)
    if unsaved is not None:
        raise Unsaved(
            f"The release was charged and is printed above, but it could not be saved. {unsaved}"
        ) from None
    if not as_json:
        typer.echo(f"Page: {out / page}")


def parse_tables(typed: list[str] | None) -> list[list[str]] | None:
    """Tables that were typed as names with commas."""
    return [each.split(",") for each in typed] if typed else None


def parse_bins(typed: list[str] | None) -> dict[str, int | list[float]]:
    """Bins of columns that were typed as ``age=8`` or ``age=40,65``."""
    found: dict[str, int | list[float]] = {}
    for text in typed or []:
        name, _, after = text.partition("=")
        try:
            whole = "," not in after and after.isdigit()
            found[name] = int(after) if whole else [float(each) for each in after.split(",")]
        except ValueError:
            raise InvalidArgument(
                f"--bins takes a column and its bins, as age=8 or age=40,65; got {text!r}."
            ) from None
    return found


@contextmanager
def new_folder(out: Path) -> Iterator[None]:
    """Creates the output folder before anything is charged, and removes it if nothing was."""
    is_new = not out.exists()
    try:
        out.mkdir(parents=True, exist_ok=True)
        if any(out.iterdir()):
            raise InvalidArgument(f"{out} is not empty; pass a new folder with --out.")
    except OSError as error:
        raise InvalidArgument(f"{out} cannot be written: {error.strerror}.") from None
    try:
        yield
    except TacitError:
        if is_new:
            out.rmdir()
        raise

"""The commands ``check``, ``score`` and ``compare``: whether a fitted model describes a table, how well it predicts, and which does best."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer

import tacit
from tacit.accounting.budget import DEFAULT_DELTA
from tacit.cli.fit import RunArgument, open_ledger, reporting_interruptions
from tacit.cli.options import AsJson, Delta, Epsilon, Family, SchemaFile, Table
from tacit.errors import InvalidArgument, TacitError, Unsaved

if TYPE_CHECKING:
    from tacit.results.posterior import Posterior


LedgerFile = Annotated[
    str | None,
    typer.Option(help="Ledger of the data, a file or a database; see tacit ledger new."),
]
Relation = Annotated[
    str | None,
    typer.Option("--adjacency", help="add-remove or replace. [default: the ledger's]"),
]
Seed = Annotated[
    int | None, typer.Option(help="Make it reproducible. The result is then not private.")
]
Note = Annotated[str | None, typer.Option(help="Public note for the ledger.")]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run", help="Print what it will do and cost, without reading rows or charging."
    ),
]


class _Plan(Protocol):
    """What is done and costs, before data are read."""

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""


def check(
    run: RunArgument,
    data: Table,
    epsilon: Epsilon,
    by: Annotated[
        list[str] | None,
        typer.Option(
            help="Column to check by, in the model or not; repeatable. The first three are also crossed. [default: the first "
            "five predictors]"
        ),
    ] = None,
    bins: Annotated[
        list[str] | None,
        typer.Option(
            help="Bins of a number, as age=8 (so many) or age=40,65 (edges between them); repeatable."
        ),
    ] = None,
    delta: Delta = DEFAULT_DELTA,
    ledger: LedgerFile = None,
    adjacency: Relation = None,
    out: Annotated[Path, typer.Option(help="Output folder; must be new or empty.")] = Path("check"),
    size: Annotated[
        int | None,
        typer.Option(
            help="About how many rows or people, for --dry-run. A public number: do not count it in the data."
        ),
    ] = None,
    seed: Seed = None,
    note: Note = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Check whether a fitted model describes the data, and name what does not fit."""
    charged = open_ledger(ledger, out)
    relation = adjacency or (charged.total.adjacency if charged else "add-remove")
    budget = tacit.Budget(epsilon, delta, relation)  # type: ignore[arg-type]  # it checks
    post = load_posterior(run)
    chosen = dict(map(parse_bins, bins or [])) or None
    plan = tacit.ModelCheck.plan(post, by=by, bins=chosen, budget=budget, size=size)
    read = [name for name in plan.names if name != plan.schema.person]
    plan.schema.check_header(data, read)
    if dry_run:
        _print_plan(plan, charged, as_json=as_json)
        return
    with new_folder(out), reporting_interruptions():
        found = tacit.check(
            post,
            str(data),
            by=by,
            bins=chosen,
            budget=budget,
            ledger=charged,
            seed=seed,
            label=f"in {out}" if note is None else f"in {out}; {note}",
        )
    typer.echo(found.to_json() if as_json else found)
    try:
        found.report(out)
    except TacitError as error:
        raise Unsaved(
            f"The check was charged and is printed above, but it could not be saved. {error}"
        ) from None
    if not as_json:
        left = found.privacy.budget_left
        typer.echo(
            f"{'' if left is None else f'Left: {left}.'}\nPage: {out / 'check.html'}".strip()
        )


def score(
    run: RunArgument,
    data: Table,
    epsilon: Epsilon,
    low: Annotated[
        float | None, typer.Option(help="Log densities below this count as this.")
    ] = None,
    high: Annotated[
        float | None, typer.Option(help="Log densities above this count as this.")
    ] = None,
    delta: Delta = DEFAULT_DELTA,
    ledger: LedgerFile = None,
    adjacency: Relation = None,
    seed: Seed = None,
    note: Note = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Score how well a fitted model predicts rows that were kept: log density, and accuracy or R2."""
    from tacit.api.score import plan_score

    charged, budget = _ledger_and_budget(ledger, adjacency, epsilon, delta)
    post = load_posterior(run)
    plan = plan_score(post, low=low, high=high, budget=budget)
    plan.schema.check_header(data, [n for n in plan.names if n != plan.schema.person])
    if dry_run:
        _print_plan(plan, charged, as_json=as_json)
        return
    with reporting_interruptions():
        found = tacit.score(
            post,
            str(data),
            low=low,
            high=high,
            budget=budget,
            ledger=charged,
            seed=seed,
            label=note,
        )
    typer.echo(found.to_json() if as_json else found)


def compare(
    data: Table,
    schema: SchemaFile,
    formula: Annotated[
        list[str],
        typer.Option("--formula", "-f", help="A model as a formula; repeat for each model."),
    ],
    epsilon: Epsilon,
    family: Family = None,
    train: Annotated[
        float,
        typer.Option(help="The probability with which a row or person is fitted, not scored."),
    ] = 0.7,
    delta: Delta = DEFAULT_DELTA,
    ledger: LedgerFile = None,
    adjacency: Relation = None,
    seed: Seed = None,
    note: Note = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Compare models by how well they predict people who were not fitted.

    Settings of a method need no comparison: tacit.tune searches for them on simulated tables, free of charge.
    """
    from tacit.api.score import plan_compare

    charged, budget = _ledger_and_budget(ledger, adjacency, epsilon, delta)
    declared = tacit.Schema.from_yaml(schema)
    models = {each: tacit.glm(each, family=family, schema=declared) for each in formula}
    plan = plan_compare(models, schema=declared, train=train, budget=budget)
    declared.check_header(data, [n for n in plan.names if n != declared.person])
    if dry_run:
        _print_plan(plan, charged, as_json=as_json)
        return
    with reporting_interruptions():
        found = tacit.compare(
            models,
            str(data),
            schema=declared,
            train=train,
            budget=budget,
            ledger=charged,
            seed=seed,
            label=note,
            progress=False,
        )
    typer.echo(found.to_json() if as_json else found)


def _ledger_and_budget(
    ledger: str | None, adjacency: str | None, epsilon: float, delta: float
) -> "tuple[tacit.Ledger | None, tacit.Budget]":
    """The ledger that was named, and the budget under its adjacency or another that was named."""
    charged = None if ledger is None else tacit.Ledger(ledger)
    relation = adjacency or (charged.total.adjacency if charged else "add-remove")
    return charged, tacit.Budget(epsilon, delta, relation)  # type: ignore[arg-type]  # it checks


def _print_plan(plan: "_Plan", charged: "tacit.Ledger | None", *, as_json: bool) -> None:
    """What a release will do, and what the ledger has left."""
    typer.echo(json.dumps(plan.to_dict(), indent=1) if as_json else plan)
    if charged is not None and not as_json:
        typer.echo(f"The ledger {charged.path} has {charged.left} left.")


def load_posterior(path: Path) -> "Posterior":
    """The posterior of a run or a file."""
    from tacit.cli.runs import RunFolder
    from tacit.results.posterior import Posterior

    return Posterior.load(path) if path.is_file() else RunFolder(path).posterior(with_model=True)


def parse_bins(text: str) -> tuple[str, int | list[float]]:
    """Bins that were typed as ``age=8`` or ``age=40,65``."""
    name, _, after = text.partition("=")
    try:
        if "," not in after and after.isdigit():
            return name, int(after)
        return name, [float(each) for each in after.split(",")]
    except ValueError:
        raise InvalidArgument(
            f"--bins takes a column and its bins, as age=8 or age=40,65; got {text!r}."
        ) from None


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

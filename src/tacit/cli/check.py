"""The commands ``check``, ``score`` and ``compare``: whether a fitted model describes a table, how well it predicts, and which does best."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import tacit
from tacit.accounting.budget import DEFAULT_DELTA
from tacit.cli.fit import RunArgument, reporting_interruptions
from tacit.cli.options import (
    AsJson,
    Bins,
    DeclaredSize,
    Delta,
    DryRun,
    Epsilon,
    Family,
    LedgerFile,
    LedgerRelation,
    NewFolder,
    Note,
    SchemaFile,
    Seed,
    Table,
)
from tacit.cli.releases import (
    entry_note,
    ledger_and_budget,
    new_folder,
    parse_bins,
    print_and_save,
    print_plan,
)

if TYPE_CHECKING:
    from tacit.results.posterior import Posterior


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
    bins: Bins = None,
    delta: Delta = DEFAULT_DELTA,
    ledger: LedgerFile = None,
    adjacency: LedgerRelation = None,
    out: NewFolder = Path("check"),
    size: DeclaredSize = None,
    seed: Seed = None,
    note: Note = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Check whether a fitted model describes the data, and name what does not fit."""
    charged, budget = ledger_and_budget(ledger, adjacency, epsilon, delta, out)
    post = load_posterior(run)
    chosen = parse_bins(bins) or None
    plan = tacit.ModelCheck.plan(post, by=by, bins=chosen, budget=budget, size=size)
    read = [name for name in plan.names if name != plan.schema.person]
    plan.schema.check_header(data, read)
    if dry_run:
        print_plan(plan, charged, as_json=as_json)
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
            label=entry_note(out, note),
        )
    print_and_save(found, out, "check.html", as_json=as_json)


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
    adjacency: LedgerRelation = None,
    seed: Seed = None,
    note: Note = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Score how well a fitted model predicts rows that were kept: log density, and accuracy or R2."""
    charged, budget = ledger_and_budget(ledger, adjacency, epsilon, delta)
    from tacit.api.score import plan_score  # it takes long to import

    post = load_posterior(run)
    plan = plan_score(post, low=low, high=high, budget=budget)
    plan.schema.check_header(data, [n for n in plan.names if n != plan.schema.person])
    if dry_run:
        print_plan(plan, charged, as_json=as_json)
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
    adjacency: LedgerRelation = None,
    seed: Seed = None,
    note: Note = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Compare models by how well they predict people who were not fitted.

    Settings of a method need no comparison: tacit.tune searches for them on simulated tables, free of charge.
    """
    charged, budget = ledger_and_budget(ledger, adjacency, epsilon, delta)
    from tacit.api.score import plan_compare  # it takes long to import

    declared = tacit.Schema.from_yaml(schema)
    models = {each: tacit.glm(each, family=family, schema=declared) for each in formula}
    plan = plan_compare(models, schema=declared, train=train, budget=budget)
    declared.check_header(data, [n for n in plan.names if n != declared.person])
    if dry_run:
        print_plan(plan, charged, as_json=as_json)
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


def load_posterior(path: Path) -> "Posterior":
    """The posterior of a run or a file."""
    from tacit.cli.runs import RunFolder
    from tacit.results.posterior import Posterior

    return Posterior.load(path) if path.is_file() else RunFolder(path).posterior(with_model=True)

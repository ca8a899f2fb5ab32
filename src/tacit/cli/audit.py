"""The command ``tacit audit``: test the privacy claim of a plan empirically."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

import tacit
from tacit import cli
from tacit.api.progress import progress_bar
from tacit.cli.options import AdjacencyName, AsJson, Family, Formula, MethodName, Model, Settings
from tacit.errors import InvalidArgument
from tacit.inference import registry


def audit(
    schema: Annotated[Path | None, typer.Argument(help="Schema, a YAML file.")] = None,
    formula: Formula = None,
    model: Model = None,
    demo: Annotated[bool, typer.Option("--demo", help="Audit the plan of tacit demo.")] = False,
    epsilon: Annotated[float, typer.Option(help="Claimed epsilon.")] = 1.0,
    delta: Annotated[float, typer.Option(help="Claimed delta.")] = 1e-5,
    adjacency: AdjacencyName = "add-remove",
    family: Family = None,
    method: MethodName = registry.DEFAULT,
    set_: Settings = None,
    runs: Annotated[
        int | None, typer.Option(help="Number of runs; more runs detect smaller faults.")
    ] = None,
    confidence: Annotated[float, typer.Option(help="Confidence of the lower bound.")] = 0.95,
    break_noise: Annotated[
        float,
        typer.Option(help="Run with this fraction of the charged noise, to see an audit fail."),
    ] = 1.0,
    seed: Annotated[int | None, typer.Option(help="Make the audit reproducible.")] = None,
    as_json: AsJson = False,
) -> None:
    """Estimate a lower bound on the epsilon of a plan, on made-up rows. Reads no data.

    Exit code 1 means that the claim is false, with the stated confidence. Exit code 0 means that it
    was not contradicted, which does not prove it.
    """
    budget = tacit.Budget(epsilon, delta, adjacency)  # type: ignore[arg-type]  # it checks
    if demo:
        given = (schema, formula, model, family, set_)
        if any(each is not None for each in given) or method != registry.DEFAULT:
            raise InvalidArgument(
                "--demo has its own schema, model, family, method and settings; leave them out."
            )
        plan = cli.demonstration.demo_plan(budget)
    else:
        plan = _make_plan(budget, schema, formula, model, family, method, set_)
    shown = sys.stderr.isatty() and not as_json
    with progress_bar(runs, shown=shown, what="runs") as tell:
        found = tacit.audit(
            plan,
            runs=runs,
            confidence=confidence,
            break_noise=break_noise,
            seed=seed,
            progress=tell,
        )
    typer.echo(json.dumps(found.to_dict(), indent=2) if as_json else str(found))
    if found.contradicted:
        raise typer.Exit(1)


def _make_plan(
    budget: "tacit.Budget",
    schema: Path | None,
    formula: str | None,
    model: str | None,
    family: str | None,
    method: str,
    settings: list[str] | None,
) -> "tacit.Plan":
    """Plans what was asked for."""
    if schema is None or (formula is None and model is None):
        raise InvalidArgument("Pass a schema and --formula or --model, or --demo.")
    asked = cli.runs.parse_request(
        formula, model, schema, budget, family, method, settings or [], None
    )
    return asked.plan()

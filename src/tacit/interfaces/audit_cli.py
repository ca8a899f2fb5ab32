"""The command ``tacit audit``: test the privacy claim of a plan empirically."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.errors import InvalidArgument
from tacit.inference import methods

if TYPE_CHECKING:
    from tacit.accounting import Budget
    from tacit.interfaces.plan import Plan


def audit(
    schema: Annotated[Path | None, typer.Argument(help="Schema, a YAML file.")] = None,
    formula: Annotated[
        str | None, typer.Option(help='The model, such as "ill ~ age + C(ward)".')
    ] = None,
    demo: Annotated[bool, typer.Option("--demo", help="Audit the plan of tacit demo.")] = False,
    epsilon: Annotated[float, typer.Option(help="Claimed epsilon.")] = 1.0,
    delta: Annotated[float, typer.Option(help="Claimed delta.")] = 1e-5,
    adjacency: Annotated[str, typer.Option(help="add-remove or replace.")] = "add-remove",
    family: Annotated[
        str | None, typer.Option(help="Distribution of the outcome. [default: by its column kind]")
    ] = None,
    method: Annotated[str, typer.Option(help=f"{methods.LISTED}.")] = methods.DEFAULT,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="Setting of the method, as name=value; repeatable."),
    ] = None,
    runs: Annotated[
        int | None, typer.Option(help="Number of runs; more runs detect smaller faults.")
    ] = None,
    confidence: Annotated[float, typer.Option(help="Confidence of the lower bound.")] = 0.95,
    break_noise: Annotated[
        float,
        typer.Option(help="Run with this fraction of the charged noise, to see an audit fail."),
    ] = 1.0,
    seed: Annotated[int | None, typer.Option(help="Make the audit reproducible.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Estimate a lower bound on the epsilon of a plan, on made-up rows. Reads no data.

    Exit code 1 means that the claim is false, with the stated confidence. Exit code 0 means that it
    was not contradicted, which does not prove it.
    """
    from tacit.accounting import Budget
    from tacit.interfaces.audit import audit as run

    relation: Any = adjacency
    budget = Budget(epsilon, delta, relation)
    if demo:
        plan = _of_demo(budget, schema, formula, family, method, set_)
    else:
        plan = _asked(budget, schema, formula, family, method, set_)
    found = run(
        plan,
        runs=runs,
        confidence=confidence,
        break_noise=break_noise,
        seed=seed,
        progress=_told if sys.stderr.isatty() and not as_json else None,
    )
    typer.echo(json.dumps(found.to_dict(), indent=2) if as_json else str(found))
    if found.contradicted:
        raise typer.Exit(1)


def _of_demo(budget: "Budget", *asked: Any) -> "Plan":
    from tacit.interfaces.demo import demo_plan

    if asked != (None, None, None, methods.DEFAULT, None):
        raise InvalidArgument(
            "--demo has its own schema, formula, family, method and settings; leave them out."
        )
    return demo_plan(budget)


def _asked(
    budget: "Budget",
    schema: Path | None,
    formula: str | None,
    family: str | None,
    method: str,
    settings: list[str] | None,
) -> "Plan":
    from tacit.interfaces.requests import requested

    if schema is None or formula is None:
        raise InvalidArgument("Pass a schema and --formula, or --demo.")
    return requested(formula, schema, budget, family, method, settings or [], None).plan()


def _told(done: int, runs: int) -> None:
    """Prints progress to standard error."""
    end = "\n" if done == runs else ""
    sys.stderr.write(f"\r{done:,} of {runs:,} runs {end}")
    sys.stderr.flush()

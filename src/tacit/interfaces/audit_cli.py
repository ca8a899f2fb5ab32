"""``tacit audit``: what an observer can find out by a plan's releases, beside what it claims."""

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
    schema: Annotated[
        Path | None, typer.Argument(help="What is public about the columns, in YAML.")
    ] = None,
    formula: Annotated[
        str | None, typer.Option(help='The regression, such as "ill ~ age + C(ward)".')
    ] = None,
    demo: Annotated[
        bool, typer.Option("--demo", help="Audit the plan of tacit demo instead.")
    ] = False,
    epsilon: Annotated[float, typer.Option(help="What the plan claims.")] = 1.0,
    delta: Annotated[float, typer.Option(help="Chance that epsilon does not hold.")] = 1e-5,
    adjacency: Annotated[str, typer.Option(help="add-remove or replace.")] = "add-remove",
    family: Annotated[
        str | None, typer.Option(help="The outcome's distribution; by its kind if left out.")
    ] = None,
    method: Annotated[str, typer.Option(help=f"{methods.LISTED}.")] = methods.DEFAULT,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="A setting of the method, name=value.")
    ] = None,
    runs: Annotated[
        int | None, typer.Option(help="How many runs; more see smaller faults.")
    ] = None,
    confidence: Annotated[float, typer.Option(help="With which the bound holds.")] = 0.95,
    break_noise: Annotated[
        float,
        typer.Option(help="Run with this part of the noise that is charged: to see an audit fail."),
    ] = 1.0,
    seed: Annotated[int | None, typer.Option(help="Makes the audit repeatable.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Bounds a plan's epsilon from below, on made-up rows with a canary. Reads no data.

    Exit code 1 means that the claim is false, with the stated confidence; 0 that it was not
    contradicted, which is no proof of it.
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
            "--demo has a schema, a formula, a family, a method and settings of its own: leave them out."
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
        raise InvalidArgument("Name a schema and a --formula, or say --demo.")
    return requested(formula, schema, budget, family, method, settings or [], None).plan()


def _told(done: int, runs: int) -> None:
    """On standard error, for whoever waits."""
    end = "\n" if done == runs else ""
    sys.stderr.write(f"\r{done:,} of {runs:,} runs {end}")
    sys.stderr.flush()

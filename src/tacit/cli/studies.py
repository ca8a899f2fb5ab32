"""The commands that study a plan on simulated tables, before any data are read: ``forecast`` and ``audit``."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

import tacit
from tacit._format import progress_bar
from tacit.accounting.budget import DEFAULT_DELTA
from tacit.cli.demo import demo_plan
from tacit.cli.options import (
    AdjacencyName,
    AsJson,
    Delta,
    Family,
    Formula,
    MethodName,
    Model,
    ScenarioFile,
    Settings,
)
from tacit.errors import InvalidArgument
from tacit.inference import registry


def forecast(
    schema: Annotated[Path, typer.Argument(help="The schema of the data, a YAML file.")],
    size: Annotated[
        int,
        typer.Option(
            help="About how many rows, or people if the schema names them. Must be public: do not "
            "count it in the data."
        ),
    ],
    epsilon: Annotated[str, typer.Option(help="Privacy budgets to compare, such as 0.3,1,3.")],
    delta: Delta = DEFAULT_DELTA,
    formula: Formula = None,
    model: Model = None,
    adjacency: AdjacencyName = "add-remove",
    family: Family = None,
    method: MethodName = registry.DEFAULT,
    set_: Settings = None,
    scenario: ScenarioFile = None,
    focus: Annotated[
        str | None, typer.Option(help="Parameter to write about. [default: the first]")
    ] = None,
    effect: Annotated[
        float | None,
        typer.Option(help="An effect: print how often it would be distinguished from zero."),
    ] = None,
    repeats: Annotated[int, typer.Option(help="Number of simulated tables.")] = 10,
    seed: Annotated[int, typer.Option(help="Seed of the simulated tables.")] = 0,
    as_json: AsJson = False,
    plot: Annotated[
        Path | None, typer.Option(help="Picture of widths against epsilon: a PNG, SVG or PDF file.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="HTML page to write, for a protocol or an application.")
    ] = None,
) -> None:
    """Forecast the intervals that a fit will have, before any data are read.

    Tables are simulated from the schema and the model, and fitted within each budget.
    """
    from tacit.api.forecast_result import forecast_html, plot_forecast  # they import JAX
    from tacit.cli import runs

    budgets = [
        tacit.Budget(each, delta, adjacency)  # type: ignore[arg-type]  # it checks
        for each in _parse_numbers(epsilon)
    ]
    request = runs.parse_request(
        formula,
        model,
        schema,
        budgets[0],
        family,
        method,
        runs.parse_settings(set_ or []),
        None,
        size,
        scenario,
    )
    found = tacit.forecast(
        request.model,
        request.schema,
        size=size,
        budgets=budgets,
        method=None if method == registry.DEFAULT and not set_ else request.chosen_method,
        scenario=request.scenario,
        focus=focus,
        effect=effect,
        repeats=repeats,
        seed=seed,
    )
    if plot is not None:
        plot_forecast(found, plot)
    if out is not None:
        page = forecast_html(
            found,
            model=str(request.formula or request.file),
            description=request.described,
            schema=str(request.schema),
        )
        try:
            out.write_text(page, encoding="utf-8")
        except OSError as error:
            raise InvalidArgument(f"{out} cannot be written: {error.strerror}.") from None
    typer.echo(found.to_json() if as_json else str(found))
    for index in range(0 if as_json else len(budgets)):
        for reason in found.warnings(index):
            typer.echo(reason)
    for path in (plot, out):
        if path is not None and not as_json:
            typer.echo(f"Written: {path}")


def _parse_numbers(text: str) -> list[float]:
    """Numbers separated by commas."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InvalidArgument(
            f"--epsilon takes numbers separated by commas, such as 0.3,1,3; got {text!r}."
        ) from None


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
    """Estimate a lower bound on the epsilon of a plan, on simulated rows. Reads no data.

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
        plan = demo_plan(budget)
    elif schema is None or (formula is None and model is None):
        raise InvalidArgument("Pass a schema and --formula or --model, or --demo.")
    else:
        from tacit.cli.runs import parse_request, parse_settings  # they import JAX

        settings = parse_settings(set_ or [])
        plan = parse_request(formula, model, schema, budget, family, method, settings, None).plan()
    shown = sys.stderr.isatty() and not as_json
    with progress_bar(runs, shown=shown, what="runs", label="Auditing") as report_progress:
        found = tacit.audit(
            plan,
            runs=runs,
            confidence=confidence,
            break_noise=break_noise,
            seed=seed,
            progress=report_progress,
        )
    typer.echo(json.dumps(found.to_dict(), indent=2) if as_json else str(found))
    if found.contradicted:
        raise typer.Exit(1)

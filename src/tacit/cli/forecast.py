"""The command ``tacit forecast``: what a budget will buy. It reads no data."""

from pathlib import Path
from typing import Annotated

import typer

import tacit
from tacit import cli
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
    delta: Delta,
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
        float | None, typer.Option(help="An effect: print how often it would be told from zero.")
    ] = None,
    repeats: Annotated[int, typer.Option(help="Number of made-up tables.")] = 10,
    seed: Annotated[int, typer.Option(help="Seed of the made-up tables.")] = 0,
    as_json: AsJson = False,
    plot: Annotated[
        Path | None, typer.Option(help="Picture of widths against epsilon: a PNG, SVG or PDF file.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="HTML page to write, for a protocol or an application.")
    ] = None,
) -> None:
    """Forecast the intervals that a fit will have, before any data are read.

    Tables are made up from the schema and the model, and fitted within each budget.
    """
    budgets = [
        tacit.Budget(each, delta, adjacency)  # type: ignore[arg-type]  # it checks
        for each in _parse_numbers(epsilon)
    ]
    asked = cli.runs.parse_request(
        formula, model, schema, budgets[0], family, method, set_ or [], None, size, scenario
    )
    found = tacit.forecast(
        asked.model,
        asked.schema,
        size=size,
        budgets=budgets,
        method=None if method == registry.DEFAULT and not set_ else asked.chosen_method,
        scenario=asked.scenario,
        focus=focus,
        effect=effect,
        repeats=repeats,
        seed=seed,
    )
    if plot is not None:
        cli.forecast_files.plot_forecast(found, plot)
    if out is not None:
        cli.forecast_files.write_forecast_page(found, out, asked)
    typer.echo(found.to_json() if as_json else str(found))
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

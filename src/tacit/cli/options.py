"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

from tacit.inference import registry

Epsilon = Annotated[float, typer.Option(help="Privacy budget: epsilon.")]
Delta = Annotated[
    float, typer.Option(help="Privacy budget: delta. Choose it well below 1 / number of people.")
]
AdjacencyName = Annotated[
    str,
    typer.Option("--adjacency", help="Neighbouring data sets: add-remove or replace."),
]
Table = Annotated[
    Path, typer.Argument(help="The data: a CSV, Parquet, Excel, Stata, SPSS or SAS file.")
]
SchemaFile = Annotated[
    Path, typer.Option("--schema", "-s", help="The schema of the data, a YAML file.")
]
Formula = Annotated[
    str | None,
    typer.Option("--formula", "-f", help='The model as a formula, such as "ill ~ age + C(ward)".'),
]
Model = Annotated[
    str | None,
    typer.Option(
        help="The model in a Python file instead: model.py, or model.py:name. The file must not read "
        "the data."
    ),
]
Family = Annotated[
    str | None, typer.Option(help="Distribution of the outcome. [default: by its column kind]")
]
MethodName = Annotated[
    str, typer.Option("--method", help=f"Inference method: {registry.CHOICES_TEXT}.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="Setting of the method, as name=value; repeatable."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Size = Annotated[
    int | None,
    typer.Option(
        help="About how many rows, or people if the schema names them. A public number: do not count "
        "it in the data. Settings are chosen for it, and a forecast is made."
    ),
]
ScenarioFile = Annotated[
    Path | None,
    typer.Option("--scenario", help="YAML file with what is expected of columns and effects."),
]
Workers = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Number of processes, each with files of its own: started here, or by SLURM, Open MPI or "
        "Kubernetes. [default: 1]",
    ),
]
LedgerFile = Annotated[
    str | None,
    typer.Option(
        "--ledger", help="Ledger of the data, a file or a database; see tacit ledger new."
    ),
]
LedgerRelation = Annotated[
    str | None,
    typer.Option("--adjacency", help="add-remove or replace. [default: the ledger's]"),
]
Bins = Annotated[
    list[str] | None,
    typer.Option(
        help="Bins of a number, as age=8 (so many) or age=40,65 (edges between them); repeatable."
    ),
]
NewFolder = Annotated[Path, typer.Option(help="Output folder; must be new or empty.")]
DeclaredSize = Annotated[
    int | None,
    typer.Option(
        help="About how many rows or people, for --dry-run. A public number: do not count it in the data."
    ),
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

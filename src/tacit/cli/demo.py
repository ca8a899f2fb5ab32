"""The command ``tacit demo``."""

from pathlib import Path
from typing import Annotated

import typer

from tacit import cli
from tacit.cli.fit import reporting_interruptions


def demo(
    epsilon: Annotated[float, typer.Option(help="Epsilon of the first private fit.")] = 1.0,
    smaller: Annotated[float, typer.Option(help="Epsilon of the second private fit.")] = 0.1,
    delta: Annotated[float, typer.Option(help="Delta of both.")] = 1e-5,
    out: Annotated[Path, typer.Option(help="Folder of the plot and the report.")] = Path(
        "tacit-demo"
    ),
) -> None:
    """Fit who had an affair, by a survey of 6,366 women, without and with privacy."""
    with reporting_interruptions():
        cli.demonstration.run_demo((epsilon, smaller), delta, out, typer.echo)

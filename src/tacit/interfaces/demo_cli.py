"""The command ``tacit demo``."""

from typing import Annotated

import typer

import tacit
from tacit import interfaces
from tacit.interfaces.fit_cli import telling_interruptions

app = typer.Typer(rich_markup_mode=None)


@app.command()
def demo(
    epsilon: Annotated[float, typer.Option(help="Privacy budget: epsilon.")] = 1.0,
    delta: Annotated[float, typer.Option(help="Privacy budget: delta.")] = 1e-5,
) -> None:
    """Fit a private logistic regression to scikit-learn's breast-cancer data."""
    with telling_interruptions():
        interfaces.demo.run(tacit.Budget(epsilon, delta), typer.echo)

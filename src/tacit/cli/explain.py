"""The command ``tacit explain``."""

from pathlib import Path
from typing import Annotated

import typer

from tacit import cli


def explain(
    run: Annotated[
        Path, typer.Argument(help="A folder written by tacit fit, or the file of a posterior.")
    ],
) -> None:
    """Say in plain words what a run asked, what leaves, and what that means for one person.

    For members of ethics boards, data owners and participants.
    """
    typer.echo(cli.runs.explain_run(run))

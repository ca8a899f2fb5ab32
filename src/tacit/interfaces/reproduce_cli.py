"""The command ``tacit reproduce``: rerun the experiments of the source papers."""

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import typer

from tacit.errors import InvalidArgument

_HERE = Path(__file__).resolve().parents[3] / "experiments"


app = typer.Typer(rich_markup_mode=None)


@app.command()
def reproduce(
    names: Annotated[
        list[str] | None, typer.Argument(help="Names of experiments; see --list.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Run all experiments.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Short runs, for a quick check.")] = False,
    paper: Annotated[
        bool, typer.Option("--paper", help="As long as in the papers; some take hours.")
    ] = False,
    data: Annotated[
        Path | None, typer.Option(help="Folder with abalone.csv and adult.csv.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Output folder for figures and tables.")] = None,
    listed: Annotated[bool, typer.Option("--list", help="List the experiments.")] = False,
) -> None:
    """Rerun the experiments of the papers and plot them beside the published results."""
    catalogue, reproduction, tables = _modules()
    known = {each.name: each for each in catalogue.experiments()}
    if listed:
        for each in known.values():
            typer.echo(f"{each.name:24} {each.source} {each.figure}: {each.title}")
        return
    chosen = _chosen(names or [], known, every=every)
    if quick and paper:
        raise InvalidArgument("Pass --quick or --paper, not both.")
    length = "quick" if quick else "paper" if paper else "usual"
    home = Path(catalogue.__file__ or "").parent
    target = out or (Path("reproduced") if quick else home / "results")
    setting = reproduction.Setting(length=length, data=data or tables.USUAL, out=target)
    for experiment in chosen:
        typer.echo(f"{experiment.name} ... ", nl=False)
        try:
            took = reproduction.perform(experiment, setting)
        except tables.NoData as error:
            typer.echo("no data")
            raise InvalidArgument(str(error)) from None
        typer.echo(f"{took:.0f} s")
    page = target.parent / "RESULTS.md" if out is None and not quick else target / "RESULTS.md"
    reproduction.write_results(target, page, list(known.values()))
    typer.echo(f"Wrote {page}.")


def _chosen(names: list[str], known: dict[str, Any], *, every: bool) -> list[Any]:
    for name in names:
        if name not in known:
            raise InvalidArgument(f"Unknown experiment {name!r}; see tacit reproduce --list.")
    if not names and not every:
        raise InvalidArgument("Pass names of experiments, or --all; see tacit reproduce --list.")
    return list(known.values()) if every else [known[name] for name in names]


def _modules() -> tuple[ModuleType, Any, Any]:
    """The modules of the experiments, from the repository."""
    folder = next((f for f in (Path("experiments"), _HERE) if (f / "catalogue.py").exists()), None)
    if folder is None:
        raise InvalidArgument(
            "The experiments are not installed with the library; run this command in a clone of the "
            "repository, which contains the folder experiments."
        )
    sys.path.insert(0, str(folder.resolve()))
    catalogue, reproduction, tables = map(import_module, ("catalogue", "reproduction", "tables"))
    return catalogue, reproduction, tables

"""The command ``tacit reproduce``: rerun the experiments of the source papers."""

import os
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer

from tacit.errors import InvalidArgument

_EXPERIMENTS = Path(__file__).resolve().parents[3] / "experiments"


def reproduce(
    names: Annotated[
        list[str] | None, typer.Argument(help="Names of experiments; see --list.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Run all experiments.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Short runs, for a quick check.")] = False,
    paper: Annotated[
        bool,
        typer.Option(
            "--paper", help="As many runs as in the papers, kept beside the usual results."
        ),
    ] = False,
    data: Annotated[
        Path | None, typer.Option(help="Folder with abalone.csv and adult.csv.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Experiments to run at the same time.")] = 2,
    out: Annotated[Path | None, typer.Option(help="Output folder for figures and tables.")] = None,
    listed: Annotated[bool, typer.Option("--list", help="List the experiments.")] = False,
) -> None:
    """Rerun the experiments of the papers and plot them beside the published results."""
    catalogue, reproduction, tables = _import_experiments()
    known = catalogue.experiments()
    if listed:
        for each in known:
            typer.echo(f"{each.name:24} {each.source} {each.figure}: {each.title}")
        return
    all_names = [each.name for each in known]
    for name in names or ():
        if name not in all_names:
            raise InvalidArgument(f"Unknown experiment {name!r}; see tacit reproduce --list.")
    if not names and not every:
        raise InvalidArgument("Pass names of experiments, or --all; see tacit reproduce --list.")
    if quick and paper:
        raise InvalidArgument("Pass --quick or --paper, not both.")
    length = "quick" if quick else "paper" if paper else "usual"
    home = Path(catalogue.__file__ or "").parent
    kept = out or (Path("reproduced") if quick else home / "results")
    target = kept / reproduction.PAPERS if paper else kept
    try:
        _run_all(all_names if every else names or [], length, data or tables.USUAL, target, jobs)
    except tables.NoData as error:
        raise InvalidArgument(str(error)) from None
    page = kept.parent / "RESULTS.md" if out is None and not quick else kept / "RESULTS.md"
    reproduction.write_results(kept, page, list(known))
    typer.echo(f"Wrote {page}.")


def _run_all(names: list[str], length: str, data: Path, target: Path, jobs: int) -> None:
    """Runs the experiments, several at a time in processes of their own, and prints each one's seconds."""
    if length == "quick" and (len(names) == 1 or jobs == 1):  # another process would take longer
        for name in names:
            typer.echo(f"{name}: {_run_one(name, length, data, target):.0f} s")
        return
    with ProcessPoolExecutor(jobs, get_context("spawn"), _use_one_thread) as pool:
        # The longest are among the last: they start first.
        running = {
            pool.submit(_run_one, name, length, data, target): name for name in reversed(names)
        }
        try:
            for done in as_completed(running):
                typer.echo(f"{running[done]}: {done.result():.0f} s")
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _use_one_thread() -> None:
    """Makes XLA compute on one thread in this process, which has not used it yet.

    So no number can depend on how many cores there are. Other processes use the other cores.
    """
    os.environ["NPROC"] = "1"


def _run_one(name: str, length: str, data: Path, target: Path) -> float:
    """Runs one experiment and returns the seconds that it took."""
    catalogue, reproduction, _ = _import_experiments()
    (experiment,) = (each for each in catalogue.experiments() if each.name == name)
    setting = reproduction.Setting(length=length, data=data, out=target)
    took: float = reproduction.perform(experiment, setting)
    return took


def _import_experiments() -> tuple[ModuleType, ModuleType, ModuleType]:
    """The modules of the experiments, from the repository."""
    folder = next(
        (f for f in (Path("experiments"), _EXPERIMENTS) if (f / "catalogue.py").exists()), None
    )
    if folder is None:
        raise InvalidArgument(
            "The experiments are not installed with the library; run this command in a clone of the "
            "repository, which contains the folder experiments."
        )
    if str(folder.resolve()) not in sys.path:
        sys.path.insert(0, str(folder.resolve()))
    catalogue, reproduction, tables = map(import_module, ("catalogue", "reproduction", "tables"))
    return catalogue, reproduction, tables

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
    quick: Annotated[
        bool, typer.Option("--quick", help="Short runs, for a quick check; of all without names.")
    ] = False,
    paper: Annotated[
        bool,
        typer.Option(
            "--paper", help="As many runs as in the papers, kept beside the usual results."
        ),
    ] = False,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Folder with abalone.csv and adult.csv; by default data, ../data or ../shared/data."
        ),
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Experiments to run at the same time.")] = 2,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Output folder for figures and tables; by default reproduced, or reproduced/quick."
        ),
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="List the experiments.")] = False,
) -> None:
    """Rerun the experiments of the papers and plot them beside the published results."""
    catalogue, reproduction = _import_experiments("catalogue", "reproduction")
    known = {each.name: each for each in catalogue.experiments()}
    if listed:
        for each in known.values():
            typer.echo(f"{each.name:24} {each.source} {each.figure}: {each.title}")
        return
    for name in names or ():
        if name not in known:
            raise InvalidArgument(f"Unknown experiment {name!r}; see tacit reproduce --list.")
    if not (names or every or quick):
        raise InvalidArgument(
            "Pass names of experiments, --all, or --quick for a short run of all; see tacit reproduce --list."
        )
    if quick and paper:
        raise InvalidArgument("Pass --quick or --paper, not both.")
    length = "quick" if quick else "paper" if paper else "usual"
    kept = out or (Path("reproduced/quick") if quick else Path("reproduced"))
    chosen = names if names and not every else list(known)
    needed = {name: known[name].tables[: 1 if quick else None] for name in chosen}
    folder = _data_folder(data, sorted({table for each in needed.values() for table in each}))
    _run_all(chosen, length, folder, kept / reproduction.PAPERS if paper else kept, jobs)
    committed = (Path(catalogue.__file__ or "").parent / "results").resolve()
    page = (kept.parent if kept.resolve() == committed else kept) / "RESULTS.md"
    reproduction.write_results(kept, page, list(known.values()))
    typer.echo(f"Wrote {page}.")


def _data_folder(given: Path | None, needed: list[str]) -> Path:
    """The folder with the tables that are needed: given, found, named by the user, or filled by scikit-learn."""
    home = _EXPERIMENTS.parent
    likely = [
        base / part for base in (Path(), home) for part in ("data", "../data", "../shared/data")
    ]
    folders = likely if given is None else [given]
    for folder in folders:
        if all((folder / f"{name}.csv").exists() for name in needed):
            return folder
    wanted = " and ".join(f"{name}.csv" for name in needed)
    if given is None and sys.stdin.isatty():
        told = typer.prompt(f"Folder with {wanted} (empty to download them)", default="")
        if told:
            return _data_folder(Path(told), needed)
    (tables,) = _import_experiments("tables")
    try:
        for name in needed:
            tables.rows_of(folders[0], name)
    except tables.NoData as error:
        raise InvalidArgument(str(error)) from None
    return folders[0]


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
    catalogue, reproduction = _import_experiments("catalogue", "reproduction")
    (experiment,) = (each for each in catalogue.experiments() if each.name == name)
    setting = reproduction.Setting(length=length, data=data, out=target)
    took: float = reproduction.perform(experiment, setting)
    return took


def _import_experiments(*modules: str) -> tuple[ModuleType, ...]:
    """Modules of the experiments, from the repository."""
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
    return tuple(map(import_module, modules))

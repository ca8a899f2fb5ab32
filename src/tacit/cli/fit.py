"""The commands that fit a model and read the folder of a fit: ``fit``, ``resume``, ``predict``, ``report``, ``explain``."""

import json
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import tacit
from tacit import _validate
from tacit._format import format_number, is_watched, labelled_lines, subtract_decimals
from tacit.cli import distributed
from tacit.cli.options import (
    Family,
    Formula,
    Model,
    ScenarioFile,
    Settings,
    Size,
    Workers,
)
from tacit.errors import (
    ForecastWarning,
    InvalidArgument,
    Unsaved,
    error_location,
    os_error_reason,
)
from tacit.inference import registry

if TYPE_CHECKING:
    from tacit.cli.runs import Request, RunFolder

FolderArgument = Annotated[Path, typer.Argument(help="A folder written by tacit fit.")]
RunArgument = Annotated[
    Path, typer.Argument(help="A folder written by tacit fit, or the file of a posterior.")
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print no progress bar and no summary.")]
Verbose = Annotated[
    bool,
    typer.Option("--verbose", "-v", help="Print all details of the plan and of the summary."),
]


def fit(
    ctx: typer.Context,
    data: Annotated[
        list[Path] | None,
        typer.Argument(
            help="The data: a file (CSV, Parquet, Excel, Stata, SPSS, SAS), or several files of rows."
        ),
    ] = None,
    schema: Annotated[
        Path | None,
        typer.Option("--schema", "-s", help="The schema of the data, a YAML file."),
    ] = None,
    formula: Formula = None,
    epsilon: Annotated[float | None, typer.Option(help="Privacy budget: epsilon.")] = None,
    advantage: Annotated[
        float | None,
        typer.Option(
            help="Privacy budget: the largest advantage of an attacker, between 0 and 1, instead of epsilon "
            "or beside it; see tacit budget meaning."
        ),
    ] = None,
    delta: Annotated[
        float | None,
        typer.Option(
            help="Privacy budget: delta. Choose it well below 1 / number of people. [default: 1e-6]"
        ),
    ] = None,
    model: Model = None,
    out: Annotated[
        Path | None, typer.Option(help="Output folder; must be new or empty. [default: run]")
    ] = None,
    ledger: Annotated[
        str | None,
        typer.Option(
            help="Ledger of the data, a file or a database; see tacit ledger new. Without one, nothing "
            "limits how often the data are used, and the result says so."
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            help="YAML file with any of these options; those that are typed come first. The settings.yaml "
            "of a run is one."
        ),
    ] = None,
    family: Family = None,
    adjacency: Annotated[
        str | None, typer.Option(help="add-remove or replace. [default: the ledger's]")
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(help=f"Inference method: {registry.CHOICES_TEXT}. [default: by the model]"),
    ] = None,
    set_: Settings = None,
    seed: Annotated[
        int | None, typer.Option(help="Make the fit reproducible. The result is then not private.")
    ] = None,
    size: Size = None,
    scenario: ScenarioFile = None,
    forecast: Annotated[
        str,
        typer.Option(
            help="coarse: precision by a formula. full: by fits to simulated tables; needs --size."
        ),
    ] = "coarse",
    no_forecast: Annotated[bool, typer.Option("--no-forecast", help="Make no forecast.")] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Fit even if the forecast is hopeless; do not ask.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan without reading rows or charging.")
    ] = False,
    note: Annotated[
        list[str] | None,
        typer.Option(
            "--note",
            help="Public note for the report and the ledger, as name=text: purpose, analyst, "
            "approval, title; repeatable.",
        ),
    ] = None,
    workers: Workers = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Fit a regression, or a model in a Python file, within a privacy budget and write a report."""
    from tacit.cli import runs

    typed: dict[str, object] = {
        "data": data,
        "schema": schema,
        "formula": formula,
        "model": model,
        "out": out,
        "epsilon": epsilon,
        "delta": delta,
        "adjacency": adjacency,
        "advantage": advantage,
        "ledger": ledger,
        "family": family,
        "method": method,
        "seed": seed,
        "size": size,
        "scenario": scenario,
        "settings": runs.parse_settings(set_ or []),
        "notes": runs.parse_notes(note or []),
    }
    asked = runs.FitOptions.merged(typed, config)
    files, target = asked.data, asked.out
    _check_file_count(files, workers or 1)
    _validate.choice("--forecast", forecast, ("coarse", "full"))
    forecast = "none" if no_forecast else forecast
    if forecast == "full" and asked.size is None:
        raise InvalidArgument("A full forecast needs the number of rows or people: pass --size.")
    rank = 0 if dry_run else _join_processes(ctx, workers, target)
    charged = open_ledger(asked.ledger, target)
    request = asked.request("add-remove" if charged is None else charged.total.adjacency)
    folder = runs.RunFolder(target)
    _check_headers(request, files, rank, workers or 1)
    if rank == 0:
        _check_before_model(request, charged, folder, dry_run=dry_run)
    with reporting_interruptions(folder):
        plan = request.plan(forecast=forecast != "none")
        if rank > 0:
            _fit_in_folder(folder, request, plan, files, None, quiet=True)
            return
        if forecast == "full" and request.size is not None:
            found = tacit.forecast(
                request.model,
                request.schema,
                size=request.size,
                budgets=request.budget,
                method=plan.method,
                scenario=request.scenario,
            )
            typer.echo(f"{found}\n")
        if dry_run:
            text = plan.details() if verbose else str(plan).replace("plan.details()", "--verbose")
            typer.echo(f"{text}\n{ledger_line(charged)}")
            return
        if charged is not None:
            charged.check_left(plan.cost)
        _confirm(plan, yes=yes)
        named = f"{files[0].name} and {len(files) - 1} more files"
        spent = (
            {"ledger": charged.path.name, "ledger_total": _known(charged.total)} if charged else {}
        )
        folder.make(request, data=files[0].name if len(files) == 1 else named, **spent)
        if not quiet:
            typer.echo("\n".join(_key_lines(plan, charged, verbose=verbose)))
        try:
            posterior = _fit_in_folder(folder, request, plan, files, charged, quiet=quiet)
        except BaseException:  # an interruption, too
            if folder.is_unused:
                folder.discard()
            raise
        _write_report(folder, posterior, quiet=quiet, verbose=verbose)


def _known(budget: tacit.Budget) -> dict[str, object]:
    """The numbers of a budget that it has."""
    return {name: value for name, value in asdict(budget).items() if value is not None}


def resume(
    ctx: typer.Context,
    folder: FolderArgument,
    data: Annotated[
        list[Path] | None,
        typer.Option(
            help="The data, if they were moved; must be the same rows. Repeat it for files."
        ),
    ] = None,
    ledger: Annotated[
        str | None, typer.Option(help="The ledger, if it was moved; must have the charge.")
    ] = None,
    workers: Workers = None,
    quiet: Quiet = False,
) -> None:
    """Continue a fit that was interrupted, without another charge.

    A fit that was interrupted before it was charged begins, and is charged now. The posterior is the one that the fit would have had without the interruption. Data, schema,
    settings and versions of the software must be the same; otherwise the command refuses to go on.
    """
    from tacit.api.resume import check_charged, check_not_stopped, is_finished  # they import JAX
    from tacit.cli import runs

    run = runs.RunFolder(folder)
    request = run.request()
    check_not_stopped(folder)
    if is_finished(folder):
        typer.echo(
            f"The run in {folder} is finished, and its keys are destroyed. To write its report again, "
            f"run: tacit report {folder}."
        )
        return
    if not run.unfinished:
        raise InvalidArgument(
            f"{folder} holds no unfinished run. If nothing was charged, remove the folder and fit again."
        )
    notes = run.notes
    workers = workers or int(notes.get("processes", 1))
    files = data or [
        Path(each) for each in (json.loads(notes["files"]) if "files" in notes else [notes["data"]])
    ]
    _check_file_count(files, workers)
    rank = _join_processes(ctx, workers, folder)
    _check_headers(request, files, rank, workers)
    with reporting_interruptions(run):
        plan = request.plan()
        if rank > 0:
            _fit_in_folder(run, request, plan, files, None, quiet=True)
            return
        if ledger is not None and "ledger" not in notes:
            raise InvalidArgument("The run was begun without a ledger; leave --ledger out.")
        charged = open_ledger(ledger or notes.get("ledger"), folder)
        if ledger is not None:  # another one than the run was begun with must be the same ledger
            check_charged(folder, plan, charged)
        posterior = _fit_in_folder(run, request, plan, files, charged, quiet=quiet)
        _write_report(run, posterior, quiet=quiet)


def predict(
    folder: FolderArgument,
    data: Annotated[Path, typer.Argument(help="New rows: a file, as for tacit fit.")],
    out: Annotated[Path | None, typer.Option(help="CSV file to write. [default: print]")] = None,
    interval: Annotated[
        str | None,
        typer.Option(
            help="Add the ends of a 90% interval: of the mean (the risk, for a yes/no outcome), which is "
            "the default, or of the outcome itself.",
            metavar="mean|outcome",
        ),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="The model file of the run, if it has one. Its code runs.")
    ] = None,
) -> None:
    """Predict the outcome of new rows: its mean, or the probability of each level.

    The columns of the new rows come first. If the intervals do not account for the privacy noise, their column names say so.

    Predictions have no further privacy cost. A prediction for a person's row is as private as the row.
    """
    from tacit.cli import runs

    file = None if model is None else runs.ModelFile.named(model)
    run = runs.RunFolder(folder, file)
    request = run.request()
    if file is None and request.file is not None:  # a folder from elsewhere must not run code
        raise InvalidArgument(
            f"{folder} was fitted with {request.file}; pass that file with --model, and its code will run."
        )
    # A formula is saved with the posterior.
    posterior = run.posterior(with_model=request.file is not None)
    _print_warnings(posterior)
    runs.write_predictions(posterior, str(data), out, interval=interval, levels=request.levels)


def report(
    run: RunArgument,
    out: Annotated[
        Path | None, typer.Option(help="Output folder. [default: that of the run or file]")
    ] = None,
    unit: Annotated[
        list[str] | None,
        typer.Option("--unit", help="Unit of a column's coefficient, as age=10; repeatable."),
    ] = None,
    site: Annotated[
        list[Path] | None,
        typer.Option(
            "--site",
            help="Settings of a site (site.toml): also write a report of a federated fit for its own "
            "board; repeatable.",
        ),
    ] = None,
) -> None:
    """Write the report of a run again, as HTML, Markdown and a registry entry."""
    from tacit.cli import runs

    units = runs.parse_units(unit or [])
    posterior, page = runs.write_run_report(run, out, units)
    _print_warnings(posterior)
    typer.echo(f"Report: {page}")
    for own in runs.write_site_reports(run, out, units, site) if site else ():
        typer.echo(f"Report: {own}")


def explain(
    run: RunArgument,
) -> None:
    """Say in plain words what a run computed, what leaves, and what that means for one person.

    For members of ethics boards, data owners and participants.
    """
    from tacit.cli import runs

    typer.echo(runs.explain_run(run))


def _print_warnings(posterior: "tacit.Posterior") -> None:
    """Prints the warnings of a result: that it is not private, or did not converge."""
    for warning in posterior.warnings:
        typer.echo(warning, err=True)


def _join_processes(ctx: typer.Context, workers: int | None, folder: Path) -> int:
    """The rank of this process among several. If they are still to be started, starts them, waits and exits."""
    if workers is None or workers == 1:
        return 0
    if distributed.ProcessInfo.here() is not None or distributed.is_scheduled():
        return distributed.join_processes(workers)
    raise typer.Exit(distributed.launch(ctx.obj, workers, folder))


def _check_file_count(data: list[Path], workers: int) -> None:
    """Raises if there are fewer files than processes."""
    if len(data) < workers:
        raise InvalidArgument(
            f"There are {workers} processes and {len(data)} files, and each process needs its own. Divide "
            f"the rows into files first: tacit shard FILES --into {workers}."
        )


def _check_headers(request: "Request", data: list[Path], rank: int, workers: int) -> None:
    """Raises if a file that this process reads does not fit the schema, by its header."""
    for path in data[rank::workers]:
        request.schema.check_header(path, request.columns)


def _check_before_model(
    request: "Request", ledger: "tacit.Ledger | None", folder: "RunFolder", *, dry_run: bool
) -> None:
    """Raises if the folder is in use or the ledger would refuse the charge, as far as that needs no plan."""
    if ledger is not None:
        ledger.check_unit(request.unit)
        ledger.check_adjacency(request.budget)
        if not dry_run and request.method == registry.DEFAULT:  # others may cost less
            ledger.check_left(request.budget)
    if not dry_run:
        folder.check_empty()


@contextmanager
def reporting_interruptions(run: "RunFolder | None" = None) -> Iterator[None]:
    """Prints what was charged, or how to continue the run, if Ctrl-C interrupts."""
    try:
        yield
    except KeyboardInterrupt as error:  # inside the fit it is an Interrupted, with a message
        usual = "Interrupted. Whether anything was charged, tacit ledger show LEDGER says."
        if run is not None and run.unfinished:
            usual = f"Interrupted. To continue, run: tacit resume {run.path}."
        elif run is not None and run.is_unused:
            usual = "Interrupted. Nothing was charged."
        typer.echo(str(error) or usual, err=True)
        raise typer.Exit(130) from None


def open_ledger(path: str | None, out: Path | None) -> "tacit.Ledger | None":
    """The ledger of a run in this folder, if one was named."""
    if path is None or out is None:
        return None if path is None else tacit.Ledger(path)
    return tacit.Ledger(path).for_run(out.absolute().name, out)


def ledger_line(ledger: "tacit.Ledger | None") -> str:
    """What the ledger has left, or that there is none."""
    if ledger is None:
        return "No ledger: nothing limits how often these data are used. To create one: tacit ledger new."
    return f"The ledger {ledger.path} has {ledger.left} left."


def _key_lines(
    plan: "tacit.Plan", ledger: "tacit.Ledger | None", *, verbose: bool = False
) -> list[str]:
    """What to know before the fit: the model, and what it costs."""
    if verbose:
        return [plan.details(), ledger_line(ledger), ""]
    model = plan.model_line().removeprefix("Bayesian ").partition(", Normal")[0]
    facts = [("Model", f"{model}; {plan.unit_line()}"), ("Privacy", _cost_line(plan, ledger))]
    if plan.size is not None and plan.forecast:
        facts.append(("Precision", plan.precision_line))
    return labelled_lines(facts)


def _cost_line(plan: "tacit.Plan", ledger: "tacit.Ledger | None") -> str:
    """What the fit costs, and what the ledger will have left."""
    from tacit.results.statement import changes

    cost = plan.cost
    said = f"{cost.amounts} {changes(plan.unit, cost.adjacency)}"
    if ledger is None:
        return f"{said}; no ledger, so nothing limits how often these data are used"
    if ledger.rule != "sum":
        return f"{said}; {ledger.left.amounts} left before"
    left = subtract_decimals(ledger.left.epsilon, cost.epsilon)
    if left < 0:  # which the ledger refuses
        return f"{said}; only {ledger.left.amounts} left"
    return f"{said}; {format_number(left)} of {format_number(ledger.total.epsilon)} left afterwards"


def _confirm(plan: "tacit.Plan", *, yes: bool) -> None:
    """Asks whether to go on if the forecast is hopeless."""
    if not plan.warnings or yes:
        return
    for sentence in plan.warnings:
        typer.echo(sentence, err=True)
    if not sys.stdin.isatty():
        raise InvalidArgument("Nothing was charged. To fit nevertheless, pass --yes.")
    if not typer.confirm("Spend the budget nevertheless?", default=False, err=True):
        typer.echo("Nothing was charged.", err=True)
        raise typer.Exit(2)


def _fit_in_folder(
    folder: "RunFolder",
    request: "Request",
    plan: "tacit.Plan",
    data: list[Path],
    ledger: "tacit.Ledger | None",
    *,
    quiet: bool,
) -> "tacit.Posterior":
    """Fits in a folder, from the start or from where the run there was interrupted."""
    notes = [f"{name}: {text}" for name, text in request.notes]
    with warnings.catch_warnings():  # they were printed before
        warnings.simplefilter("ignore", ForecastWarning)
        return tacit.fit(
            plan,
            str(data[0]) if len(data) == 1 else [str(each) for each in data],
            ledger=ledger,
            seed=request.seed,
            progress=not quiet and is_watched(),
            run=folder.path,
            label="; ".join([f"in {folder.path}", *notes]),
        )


def _write_report(
    folder: "RunFolder", posterior: "tacit.Posterior", *, quiet: bool, verbose: bool = False
) -> None:
    """Writes the report, and prints the summary. The posterior is saved even if that fails."""
    try:
        folder.write_report(posterior)
    except Exception as error:  # noqa: BLE001 (the same for all of them)
        typer.echo(posterior.summary())
        reason = os_error_reason(error.__cause__) or error_location(error)
        raise Unsaved(
            f"The fit was charged and its posterior is saved in {folder.path}, but the report could "
            f"not be written ({reason}). To write it, run tacit report {folder.path}."
        ) from None
    if not quiet:
        summary = posterior.summary()
        if not verbose:  # the cost was printed before the fit
            summary = replace(
                summary, privacy="" if posterior.privacy.is_private else summary.privacy
            )
        found = summary.details() if verbose else str(summary)
        report = f"Report: {folder.path / 'report.html'}"
        next_ = f"Next: tacit predict {folder.path} new.csv · tacit explain {folder.path}"
        typer.echo(f"{found}\n{report}      {next_}")

"""The commands of ``tacit budget``: the privacy cost of a run. They read no data."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tacit import accounting, results
from tacit._format import format_epsilon, format_number, text_table
from tacit.accounting import ADJACENCIES, Adjacency, Budget
from tacit.accounting.budget import ADJACENCY_WORLDS, DEFAULT_DELTA, percent_rounded_up
from tacit.accounting.events import DpEvent
from tacit.cli.options import AdjacencyName, AsJson, Delta, Epsilon
from tacit.errors import InvalidArgument, UnsupportedEvent

if TYPE_CHECKING:
    from tacit._typing import JSON

app = typer.Typer(
    help="Compute the privacy cost of a run, or the noise for a budget. Reads no data.",
    epilog="To see what a budget buys, use tacit forecast.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Noise = Annotated[float, typer.Option(help="Noise standard deviation divided by the clip.")]
Rate = Annotated[float, typer.Option(help="Probability that a person is sampled in a step.")]
Steps = Annotated[int, typer.Option(help="Number of steps.")]
AccountantName = Annotated[
    str, typer.Option("--accountant", help="pld (tightest), rdp, moments, advanced or basic.")
]
Plot = Annotated[Path | None, typer.Option(help="PNG file to draw the curves into.")]


@app.command()
def epsilon(
    noise_multiplier: Noise,
    delta: Delta,
    sampling_rate: Rate = 1.0,
    steps: Steps = 1,
    accountant: AccountantName = "pld",
    as_json: AsJson = False,
) -> None:
    """Compute the epsilon of the Poisson-sampled Gaussian mechanism."""
    chosen, run = accounting.accountant(accountant), _event(noise_multiplier, sampling_rate, steps)
    _print_cost(chosen, run, delta, noise_multiplier, sampling_rate, steps, "add-remove", as_json)


@app.command()
def noise(
    epsilon: Epsilon,
    delta: Delta,
    sampling_rate: Rate = 1.0,
    steps: Steps = 1,
    adjacency: AdjacencyName = "add-remove",
    accountant: AccountantName = "pld",
    as_json: AsJson = False,
) -> None:
    """Compute the smallest noise multiplier that meets a budget."""
    chosen, budget = accounting.accountant(accountant), _budget(epsilon, delta, adjacency)
    scale = accounting.calibrate.noise_multiplier(
        budget, sampling_rate=sampling_rate, num_steps=steps, accountant=chosen
    )
    run = _event(scale, sampling_rate, steps)
    _print_cost(chosen, run, delta, scale, sampling_rate, steps, budget.adjacency, as_json)


@app.command()
def steps(
    epsilon: Epsilon,
    delta: Delta,
    noise_multiplier: Noise,
    sampling_rate: Rate = 1.0,
    adjacency: AdjacencyName = "add-remove",
    accountant: AccountantName = "pld",
    as_json: AsJson = False,
) -> None:
    """Compute the largest number of steps that meets a budget."""
    chosen, budget = accounting.accountant(accountant), _budget(epsilon, delta, adjacency)
    most = accounting.calibrate.num_steps(
        budget, noise_multiplier=noise_multiplier, sampling_rate=sampling_rate, accountant=chosen
    )
    run = _event(noise_multiplier, sampling_rate, most)
    _print_cost(
        chosen, run, delta, noise_multiplier, sampling_rate, most, budget.adjacency, as_json
    )


@app.command()
def curve(
    noise_multiplier: Noise,
    sampling_rate: Rate = 1.0,
    steps: Steps = 1,
    delta: Delta = 1e-6,
    accountant: AccountantName = "pld",
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Compute epsilon over a range of deltas, under both adjacencies."""
    chosen, run = accounting.accountant(accountant), _event(noise_multiplier, sampling_rate, steps)
    chosen.epsilon(run, delta)  # refuses a wrong delta before any work
    curves: dict[str, accounting.Curve | None] = {
        adjacency: _curve_or_none(chosen, run, adjacency) for adjacency in ADJACENCIES
    }
    known = {adjacency: line for adjacency, line in curves.items() if line and line.deltas}
    if plot is not None:
        _plot_curves(known, plot, _title(noise_multiplier, sampling_rate, steps), delta)
    if as_json:
        _print_json(
            {
                "delta": list(next(iter(known.values())).deltas),
                "epsilon": {a: line and list(line.epsilons) for a, line in curves.items()},
                "accountant": chosen.name,
            }
        )
        return
    rows = []
    for i, at in enumerate(next(iter(known.values())).deltas):
        if i % 4 == 0:
            cells = [format_epsilon(line.epsilons[i]) if line else "-" for line in curves.values()]
            rows.append([f"{at:.0e}", *cells])
    typer.echo(text_table(rows, "lrr", ["delta", *(f"epsilon, {a}" for a in curves)]))


@app.command()
def compare(
    noise_multiplier: Noise,
    delta: Delta,
    sampling_rate: Rate = 1.0,
    steps: Steps = 1,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Compare the epsilon of one run by all accountants."""
    run = _event(noise_multiplier, sampling_rate, steps)
    found: dict[str, dict[str, float | None]] = {}
    notes: dict[str, str] = {}
    for label, each in _accountants().items():
        found[label] = {}
        for adjacency in ADJACENCIES:
            try:
                found[label][adjacency] = each.epsilon(run, delta, adjacency)
            except UnsupportedEvent as reason:
                found[label][adjacency] = None
                notes[label] = str(reason)
    if plot is not None:
        lines = {
            label: _curve_or_none(each, run, "add-remove")
            for label, each in _accountants().items()
            if any(value is not None for value in found[label].values())
        }
        drawn = {label: line for label, line in lines.items() if line and line.deltas}
        title = f"{_title(noise_multiplier, sampling_rate, steps)} (add-remove)"
        _plot_curves(drawn, plot, title, delta)
    if as_json:
        _print_json({"delta": delta, "epsilon": found, "not_available": notes})
        return
    rows = [
        [label, *(format_epsilon(value) for value in values.values())]
        for label, values in found.items()
    ]
    typer.echo(text_table(rows, "lrr", ["accountant", *(f"epsilon, {a}" for a in ADJACENCIES)]))
    for label, note in notes.items():
        typer.echo(f"{label}: {note}")


@app.command()
def meaning(
    epsilon: Annotated[float | None, typer.Option(help="Privacy budget: epsilon.")] = None,
    delta: Delta = DEFAULT_DELTA,
    advantage: Annotated[
        float | None,
        typer.Option(help="Or the largest advantage of an attacker, between 0 and 1."),
    ] = None,
    adjacency: AdjacencyName = "add-remove",
    noise_multiplier: Annotated[
        float | None, typer.Option(help="Or a run: noise standard deviation divided by the clip.")
    ] = None,
    sampling_rate: Rate = 1.0,
    steps: Steps = 1,
    as_json: AsJson = False,
) -> None:
    """Say what a budget or a run means against an attacker."""
    run, budget = None, None
    if noise_multiplier is not None:
        if epsilon is not None or advantage is not None:
            raise InvalidArgument("Pass a budget or a run, not both.")
        run = _event(noise_multiplier, sampling_rate, steps)
        spent = accounting.PLD().epsilon(run, delta, adjacency)  # type: ignore[arg-type]  # it checks
        budget = Budget(spent, delta, adjacency) if math.isfinite(spent) else None  # type: ignore[arg-type]
    else:
        chosen = math.nan if epsilon is None else epsilon
        budget = Budget(chosen, delta, adjacency, advantage)  # type: ignore[arg-type]  # it checks
        if budget.epsilon > 0 and not budget.is_pure:
            run = _event(accounting.calibrate.noise_multiplier(budget), 1.0, 1)
    found = {}
    if budget is not None:
        found["any run of this cost"] = accounting.meaning.budget_meaning(budget)
    if run is not None:
        name = "Gaussian noise (the default)" if noise_multiplier is None else "this run"
        found[name] = accounting.meaning.event_meaning(run, adjacency)  # type: ignore[arg-type]
    rates = accounting.meaning.FALSE_POSITIVE_RATES
    if as_json:
        _print_json(
            {
                "epsilon": None if budget is None else budget.epsilon,
                "delta": delta,
                "adjacency": adjacency,
                **{
                    key: {
                        "advantage": each.advantage,
                        "best_guess": each.best_guess,
                        "true_positive_rates": {
                            f"{at:g}": rate
                            for at, rate in zip(rates, each.true_positive_rates, strict=True)
                        },
                    }
                    for key, each in zip(("any_run", "run"), found.values(), strict=False)
                },
            }
        )
        return
    numbers = {
        "advantage: true less false positives": [each.advantage for each in found.values()],
        "correct guesses, if a coin decided": [each.best_guess for each in found.values()],
        **{
            f"true positives at {at:.0%} false positives": [
                each.true_positive_rates[i] for each in found.values()
            ]
            for i, at in enumerate(rates)
        },
    }
    rows = [[name, *map(percent_rounded_up, values)] for name, values in numbers.items()]
    typer.echo(text_table(rows, "l" + "r" * len(found), ["an attacker can reach at most", *found]))
    worlds = ADJACENCY_WORLDS[budget.adjacency if budget else adjacency]
    typer.echo(f"The attacker knows every other record, sees the result, and decides {worlds}.")
    if budget is not None:
        typer.echo(f"{budget}")


def _print_cost(
    accountant: "accounting.Accountant",
    run: DpEvent,
    delta: float,
    noise_multiplier: float,
    sampling_rate: float,
    steps: int,
    adjacency: Adjacency,
    as_json: bool,
) -> None:
    """Prints the cost under both adjacencies, and what it means for a person."""
    accountant.epsilon(run, delta, adjacency)  # the requested one must exist
    epsilons = accountant.epsilons(run, delta)
    if as_json:
        _print_json(
            {
                "noise_multiplier": noise_multiplier,
                "epsilon": dict(epsilons.items()),
                "delta": delta,
                "sampling_rate": sampling_rate,
                "steps": steps,
                "adjacency": adjacency,
                "accountant": accountant.name,
            }
        )
        return
    rows = [
        ["noise multiplier", format_epsilon(noise_multiplier), "noise standard deviation / clip"],
        ["sampling rate", f"{sampling_rate:g}", "probability that a person is sampled in a step"],
        ["steps", f"{steps:d}", ""],
        ["delta", format_number(delta), "probability that epsilon does not hold"],
        [
            "epsilon, add-remove",
            format_epsilon(epsilons["add-remove"]),
            "one record added or removed",
        ],
        ["epsilon, replace", format_epsilon(epsilons["replace"]), "one record replaced by another"],
    ]
    typer.echo(text_table(rows, "lrl"))
    spent = epsilons[adjacency]
    if spent is None or math.isinf(spent):
        typer.echo("There is no bound on what the result reveals about a person.")
    else:
        typer.echo(_budget(spent, delta, adjacency).explain())


def _print_json(value: "Mapping[str, JSON]") -> None:
    """Prints JSON. An infinite or unknown epsilon is null."""
    typer.echo(json.dumps(_null_if_infinite(value), indent=2))


def _null_if_infinite(value: "JSON") -> "JSON":
    if isinstance(value, dict):
        return {key: _null_if_infinite(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_null_if_infinite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _budget(epsilon: float, delta: float, adjacency: str) -> Budget:
    return Budget(epsilon, delta, adjacency)  # type: ignore[arg-type]  # it checks


def _event(noise_multiplier: float, sampling_rate: float, steps: int) -> DpEvent:
    return accounting.events.sampled_gaussian(noise_multiplier, sampling_rate, steps)


def _accountants() -> dict[str, "accounting.Accountant"]:
    from tacit.papers import accountants as papers

    return {
        "pld": accounting.PLD(),
        "rdp": accounting.Renyi(),
        "moments": papers.Moments(),
        "advanced, analytic": papers.Advanced(gaussian="analytic", slack=None),
        "advanced": papers.Advanced(),
        "basic, analytic": papers.Basic(gaussian="analytic"),
        "basic": papers.Basic(),
    }


def _curve_or_none(
    accountant: "accounting.Accountant", run: DpEvent, adjacency: Adjacency
) -> "accounting.Curve | None":
    try:
        return accountant.curve(run, adjacency)
    except UnsupportedEvent:
        return None


def _title(noise_multiplier: float, sampling_rate: float, steps: int) -> str:
    return f"noise multiplier {noise_multiplier:g}, sampling rate {sampling_rate:g}, {steps} steps"


def _plot_curves(
    curves: Mapping[str, "accounting.Curve"], path: Path, title: str, delta: float
) -> None:
    results.plots.plot_privacy_curves(curves, path, title=title, delta=delta)
    typer.echo(f"Wrote {path}.", err=True)

"""The command ``tacit demo``: who had an affair, in a survey of married women, without and with privacy.

6,366 women, one row each, from statsmodels' data set ``fair`` (Fair, 1978; the survey was made by
the magazine Redbook in 1974).
"""

import csv
import math
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import tacit
from tacit import results
from tacit.cli.fit import reporting_interruptions
from tacit.errors import MissingPackage

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Table = dict[str, NDArray[np.float64]]

_COLUMNS = ("rate_marriage", "yrs_married", "religious", "educ", "affair")
FORMULA = "affair ~ rate_marriage + yrs_married + religious + educ"
_UNITS = {"yrs_married": 10, "educ": 4}
_NUM_HELD_OUT = 1_273  # every fifth woman


def demo(
    epsilon: Annotated[float, typer.Option(help="Epsilon of the first private fit.")] = 1.0,
    smaller: Annotated[float, typer.Option(help="Epsilon of the second private fit.")] = 0.1,
    delta: Annotated[float, typer.Option(help="Delta of both.")] = 1e-5,
    out: Annotated[Path, typer.Option(help="Folder of the plot and the report.")] = Path(
        "tacit-demo"
    ),
) -> None:
    """Fit an example without and with privacy: who had an affair, by a survey of 6,366 women."""
    with reporting_interruptions():
        _run_demo((epsilon, smaller), delta, out)


def demo_plan(budget: "tacit.Budget") -> "tacit.Plan":
    """The plan of the demonstration. Reads no data."""
    # The answers that the questionnaire allows, which are public whoever answered.
    schema = tacit.Schema(
        {
            "rate_marriage": tacit.Number(1, 5),  # 1 very poor, 5 very good
            "yrs_married": tacit.Number(0, 23, measured_in="years"),
            "religious": tacit.Number(1, 4),  # 1 not, 4 strongly
            "educ": tacit.Number(9, 20, measured_in="years"),  # of school
            "affair": tacit.Binary(),
        }
    )
    return tacit.plan(tacit.glm(FORMULA, schema=schema), budget=budget)


def _run_demo(epsilons: tuple[float, float], delta: float, folder: Path) -> None:
    """Fits without privacy and with two budgets, and prints, plots and reports the results."""
    training, test = load_tables()
    results.plots.load_pyplot()  # whatever is not installed is named before anything is fitted
    budgets = [tacit.Budget(epsilon, delta) for epsilon in epsilons]
    typer.echo(
        f"Who had an affair? {len(training['affair']) + _NUM_HELD_OUT:,} married women were asked in 1974 "
        "(statsmodels' data set fair).\n"
        f"Bayesian logistic regression, {FORMULA}:\n"
    )
    first = demo_plan(budgets[0])
    # One model for all fits, so that they share a program.
    plans = [
        first,
        *(tacit.plan(first.model, first.schema, budget=budget) for budget in budgets[1:]),
    ]
    fits = {"not private": tacit.fit_without_privacy(first, training)}
    for each in plans:
        fits[f"epsilon {each.budget.epsilon:g}"] = tacit.fit(each, training)
    for line in _format_table(fits, test):
        typer.echo(line)
    # Rounded up, so that the sentence stays true.
    guess, smaller = (f"{math.ceil(budget.best_guess * 1000) / 10}%" for budget in budgets)
    typer.echo(
        "\nThe sd of a private fit includes the noise that protects the women.\n\n"
        "What this means for one of these women: somebody who knows the answers of all others, and would\n"
        f"otherwise toss a coin over whether she took part, guesses right at most {guess} of the time\n"
        f"after reading the result at epsilon {epsilons[0]:g}, and at most {smaller} of the time at epsilon "
        f"{epsilons[1]:g}. Without privacy\nnothing limits what such a reader learns about her.\n"
    )
    fits[f"epsilon {epsilons[0]:g}"].report(folder)
    title = "Log-odds of an affair: means, 50% and 90% intervals"
    results.plots.plot_comparison(fits, title, folder / "forest.png", _UNITS)
    typer.echo(f"Forest plot: {folder / 'forest.png'}     Report: {folder / 'report.html'}\n")
    typer.echo(
        "These fits have no ledger, and the accuracies were computed without protection, as only a\n"
        "demonstration may. To fit a table with a ledger, type next:\n"
        "  tacit example\n"
        "  tacit ledger new registry.db --epsilon 3 --delta 1e-5 --unit person\n"
        "  tacit fit visits.csv --schema visits.yaml --formula 'readmitted ~ age + dose + ward' \\\n"
        "      --epsilon 1 --delta 1e-6 --ledger registry.db --out run"
    )


def load_tables() -> "tuple[Table, Table]":
    """The answers of four fifths of the women, and of those who are held out."""
    import numpy as np

    found = find_spec("statsmodels")  # whose data are read without the time that importing it takes
    if found is None or not found.submodule_search_locations:
        raise MissingPackage("statsmodels", "The demonstration")
    path = Path(found.submodule_search_locations[0]) / "datasets" / "fair" / "fair.csv"
    with path.open(encoding="utf-8") as file:
        names = next(csv.reader(file))
        columns = dict(zip(names, np.loadtxt(file, delimiter=",", unpack=True), strict=True))
    columns["affair"] = (columns["affairs"] > 0).astype(int)
    order = np.random.default_rng(0).permutation(len(columns["affair"]))
    held, kept = order[:_NUM_HELD_OUT], order[_NUM_HELD_OUT:]
    training, test = ({name: columns[name][some] for name in _COLUMNS} for some in (kept, held))
    return training, test


def accuracy(posterior: "tacit.Posterior", test: "Table") -> float:
    """The share of women whose answer is predicted rightly."""
    import numpy as np

    chance = np.asarray(posterior.predict(test))
    return float(np.mean((chance > 0.5) == test["affair"]))


def _format_table(fits: "Mapping[str, tacit.Posterior]", test: "Table") -> list[str]:
    """Mean and sd of each coefficient for each fit, and the accuracy on women held out."""
    summaries = [post.summary(units=_UNITS).lines for post in fits.values()]
    lines = [f"{'log-odds of an affair':<28}" + "".join(f"{name:>22}" for name in fits)]
    for same in zip(*summaries, strict=True):
        cells = (f"{line.mean:.2f} +- {line.sd:.2f}" for line in same)
        lines.append(f"{same[0].label:<28}" + "".join(f"{cell:>22}" for cell in cells))
    right = "".join(f"{accuracy(post, test):>22.1%}" for post in fits.values())
    return [*lines, f"{'accuracy, women held out':<28}{right}"]

"""Whether forecasts come true: forecast widths beside those of real tables.

    python benchmarks/forecast.py --data ../shared/data --markdown table.md   # some minutes
    python benchmarks/forecast.py --only Abalone --repeats 2

For each table a scenario is written down from what its documentation says: means, deviations and
shares of columns, and the mean (of counts also the deviation) of the outcome. No row is read for it, nor any
coefficient. "ratio" is the width
of the 90% interval that comes out at epsilon 1 (the median of ``--repeats`` fits) over the forecast one; the last columns
are the share of parameters with a ratio between 1/1.5 and 1.5, and the others with their ratios.
The documentation of Adult and Abalone is that of the UCI repository, and of the others that of statsmodels.
"""

import argparse
import time
from pathlib import Path

import numpy as np
from real_tables import abalone, adult, affairs, visits, votes

import tacit
from tacit import Scenario, forecast
from tacit.inference.registry import default_method
from tacit.models.front_ends import adapt_model

BUDGET = tacit.Budget(1, 1e-5)
FACTOR = 1.5
HEADER = ["table", "rows", "parameters", "median ratio", "within", "seconds", "others"]

ADULT = Scenario(
    columns={
        "age": {"mean": 38.6, "sd": 13.7},
        "education_num": {"mean": 10.1, "sd": 2.6},
        "hours_per_week": {"mean": 40.4, "sd": 12.3},
        "capital_gain": {0: 0.917, 3000: 0.03, 7500: 0.03, 15000: 0.023},
        "capital_loss": {0: 0.953, 1900: 0.047},
        "sex": 0.669,
        "marital": {"Never-married": 0.33, "Married-civ-spouse": 0.46, "Divorced": 0.14, "o": 0.07},
    },
    outcome=0.239,
)
_SHELL = {
    "sex": {"F": 0.313, "I": 0.321, "M": 0.366},
    "length": {"mean": 0.524, "sd": 0.120},
    "whole_weight": {"mean": 0.829, "sd": 0.490},
    "shell_weight": {"mean": 0.239, "sd": 0.139},
}
# Sizes of one animal go together.
_TOGETHER = {
    "length": {"whole_weight": 0.93, "shell_weight": 0.9},
    "whole_weight": {"shell_weight": 0.95},
}
RINGS = Scenario(columns=_SHELL, correlations=_TOGETHER, effects={"sigma": 2.3}, outcome=9.93)
OLD = Scenario(columns=_SHELL, correlations=_TOGETHER, outcome=0.35)
VISITS = Scenario(
    columns={
        "lncoins": {"mean": 2.38, "sd": 2.04},
        "lpi": {"mean": 4.71, "sd": 2.70},
        "fmde": {"mean": 4.03, "sd": 3.47},
        "disea": {"mean": 11.2, "sd": 6.7},
        "physlm": {0: 0.88, 1: 0.12},
        "idp": 0.26,
        "hlthg": 0.36,
        "hlthf": 0.077,
        "hlthp": 0.015,
    },
    outcome={"mean": 2.86, "sd": 4.5},
    spread=0.3,
)
AFFAIRS = Scenario(
    columns={
        "rate_marriage": {1: 0.016, 2: 0.055, 3: 0.156, 4: 0.352, 5: 0.421},
        "age": {"mean": 29.1, "sd": 6.8},
        "yrs_married": {"mean": 9.0, "sd": 7.3},
        "children": {"mean": 1.4, "sd": 1.4},
        "religious": {"mean": 2.4, "sd": 0.9},
        "educ": {"mean": 14.2, "sd": 2.2},
    },
    correlations={
        "age": {"yrs_married": 0.85, "children": 0.65},
        "yrs_married": {"children": 0.75},
    },
    outcome=0.32,
    spread=0.4,  # set after a first comparison: these effects are far smaller than the prior expects
)


VOTES = Scenario(
    columns={
        "TVnews": {"mean": 3.7, "sd": 2.7},
        "selfLR": {"mean": 4.3, "sd": 1.4},
        "age": {"mean": 47, "sd": 16.4},
        "educ": {"mean": 4.6, "sd": 1.6},
        "income": {"mean": 16.3, "sd": 6},
    },
    correlations={"age": {"TVnews": 0.4}, "educ": {"income": 0.4}},
    outcome=0.42,
)


def tables(folder):
    """Names, what makes a table, and what was expected of it."""
    sizes = (1_000, 5_000, 40_000)
    made = {f"Adult {size:,}": (lambda size=size: adult(folder, size), ADULT) for size in sizes}
    return made | {
        "Abalone, linear": (lambda: abalone(folder, logistic=False), RINGS),
        "Abalone, logistic": (lambda: abalone(folder, logistic=True), OLD),
        "Visits, Poisson": (visits, VISITS),
        "Affairs, logistic": (affairs, AFFAIRS),
        "Votes, logistic": (votes, VOTES),
    }


def compared(name, make, scenario, repeats, seed):
    formula, schema, table = make()
    size = len(next(iter(table.values())))
    model = tacit.glm(formula, schema=schema)
    began = time.perf_counter()
    said = forecast(model, size=size, budgets=BUDGET, scenario=scenario, seed=seed)
    seconds = time.perf_counter() - began
    plan = tacit.plan(
        model, budget=BUDGET, method=default_method(adapt_model(model, schema), size, BUDGET)
    )
    posts = [tacit.fit(plan, table, seed=seed + i).summary() for i in range(repeats)]
    found = np.median([[line.upper - line.lower for line in each.lines] for each in posts], axis=0)
    ratios = {line.parameter: w / line.width for line, w in zip(said.lines, found, strict=True)}
    near = [1 / FACTOR <= ratio <= FACTOR for ratio in ratios.values()]
    others = ", ".join(
        f"{label} {ratio:.2f}"
        for (label, ratio), fine in zip(ratios.items(), near, strict=True)
        if not fine
    )
    middle = f"{np.median(list(ratios.values())):.2f}"
    return [
        name,
        f"{size:,}",
        str(len(near)),
        middle,
        f"{np.mean(near):.2f}",
        f"{seconds:.0f}",
        others or "-",
    ], near


def main(given=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", default=None, help="parts of names of tables")
    parser.add_argument("--markdown", type=Path, help="a file to write the table to")
    chosen, lines, within = parser.parse_args(given), [], []
    print("  ".join(HEADER))
    for name, (make, scenario) in tables(chosen.data).items():
        if chosen.only and not any(each in name for each in chosen.only):
            continue
        line, near = compared(name, make, scenario, chosen.repeats, chosen.seed)
        lines.append(line)
        within += near
        print("  ".join(line), flush=True)
    print(f"Within a factor of {FACTOR}: {np.mean(within):.2f} of {len(within)} parameters.")
    if chosen.markdown:
        rows = [HEADER, ["---"] * len(HEADER), *lines]
        chosen.markdown.write_text("".join(f"| {' | '.join(row)} |\n" for row in rows))
    return lines


if __name__ == "__main__":
    main()

"""Whether forecasts come true: forecast widths beside those of real tables.

    python benchmarks/forecast.py --data ../shared/data --markdown table.md   # some minutes
    python benchmarks/forecast.py --only Abalone --repeats 2
    python benchmarks/forecast.py --coarse --repeats 3        # without scenarios, by the formula of a plan

For each table a scenario is written down from what its documentation says: means, deviations and
shares of columns, and the mean (of counts also the deviation) of the outcome. No row is read for it, nor any
coefficient. "ratio" is the width
of the 90% interval that comes out at epsilon 1 (the median of ``--repeats`` fits) over the forecast one; the last columns
are the share of parameters with a ratio between 1/1.5 and 1.5, and the others with their ratios.
The documentation of Adult and Abalone is that of the UCI repository, and of the others that of statsmodels.

With ``--coarse``, nothing is described: the ratios are those over the ends of the range in `Plan.precision`, and for a level
that nobody has over the width that is forecast for it. "Tenths" is a simulated table whose numbers fill a tenth of
their bounds, and one level of which nobody has.
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


def tenths():
    """A table nobody described: numbers that fill a tenth of their bounds, and a level that nobody has."""
    rng, size = np.random.default_rng(0), 6000
    table = {"age": rng.uniform(30, 38, size), "dose": rng.uniform(10, 15, size)}
    table["ward"] = rng.choice(["medical", "surgical", "geriatric"], size, p=[0.7, 0.25, 0.05])
    logit = -1 + 0.1 * (table["age"] - 34) - 0.1 * (table["dose"] - 12.5)
    table["ill"] = (rng.uniform(size=size) < 1 / (1 + np.exp(-logit))).astype(int)
    schema = tacit.Schema(
        {
            "age": tacit.Number(18, 100),
            "dose": tacit.Number(0, 50),
            "ward": tacit.Category(["medical", "surgical", "geriatric"], other="other"),
            "ill": tacit.Binary(),
        }
    )
    return "ill ~ age + dose + ward", schema, table


COARSE_HEADER = ["table", "rows", "epsilon", "over narrow", "over wide", "largest over wide"]


def coarsely(name, make, epsilon, repeats, seed):
    """Widths of fits over both ends of the range of a plan's own forecast: medians, and the largest over the wide end."""
    formula, schema, table = make()
    size = len(next(iter(table.values())))
    plan = tacit.plan(formula, schema, epsilon=epsilon, delta=BUDGET.delta, size=size)
    said = plan.precision.lines
    posts = [tacit.fit(plan, table, seed=seed + i).summary() for i in range(repeats)]
    found = np.median([[line.upper - line.lower for line in each.lines] for each in posts], axis=0)
    # A level that nobody has is forecast by itself.
    labels = [line.name for line in posts[0].lines]
    absent = [
        any(
            label == f"{n}[{level}]" and not (np.asarray(table[n]) == level).any()
            for n in table
            for level in (schema[n].labels if n in schema.names else ())
        )
        for label in labels
    ]
    narrow = found / [each.spread for each in said]
    wide = found / [
        each.absent if gone else each.concentrated for each, gone in zip(said, absent, strict=True)
    ]
    worst = labels[int(wide.argmax())]
    medians = f"{np.median(narrow):.2f}", f"{np.median(wide):.2f}"
    return [name, f"{size:,}", f"{epsilon:g}", *medians, f"{wide.max():.2f} ({worst})"]


def main(given=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", default=None, help="parts of names of tables")
    parser.add_argument("--markdown", type=Path, help="a file to write the table to")
    parser.add_argument("--coarse", action="store_true", help="compare with plans instead")
    chosen, lines, within = parser.parse_args(given), [], []
    if chosen.coarse:
        print("  ".join(COARSE_HEADER))
        made = {name: make for name, (make, _) in tables(chosen.data).items()} | {"Tenths": tenths}
        for name, make in made.items():
            for epsilon in (1.0, 0.3):
                if not chosen.only or any(each in name for each in chosen.only):
                    lines.append(coarsely(name, make, epsilon, chosen.repeats, chosen.seed))
                    print("  ".join(lines[-1]), flush=True)
        write(chosen.markdown, COARSE_HEADER, lines)
        return lines
    print("  ".join(HEADER))
    for name, (make, scenario) in tables(chosen.data).items():
        if chosen.only and not any(each in name for each in chosen.only):
            continue
        line, near = compared(name, make, scenario, chosen.repeats, chosen.seed)
        lines.append(line)
        within += near
        print("  ".join(line), flush=True)
    print(f"Within a factor of {FACTOR}: {np.mean(within):.2f} of {len(within)} parameters.")
    write(chosen.markdown, HEADER, lines)
    return lines


def write(path, header, lines):
    """A table in a file, if there is to be one."""
    if path is not None:
        rows = [header, ["---"] * len(header), *lines]
        path.write_text("".join(f"| {' | '.join(row)} |\n" for row in rows))


if __name__ == "__main__":
    main()

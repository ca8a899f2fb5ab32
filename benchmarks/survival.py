"""Survival regressions at epsilon 1: what stays significant, how well risks are ordered, and agreement with lifelines.

    python benchmarks/survival.py --data ../shared/data/survival
    python benchmarks/survival.py --data ../shared/data/survival --lifelines /tmp/venv/bin/python --seeds 10

The table is flchain, the people with creatinine: 6,524 rows, one for each person, and eight covariates.
Bounds are from what is known of the quantities, not from the rows. Fits are those of `tacit.fit` by
default settings and without a declared size.

- A covariate is significant without privacy if its exact 90% (or 95%) interval excludes zero. "stay" is
  the share of these whose interval still does with privacy, on the same side, and "wrong sign" counts
  intervals that exclude zero on the other side. Shares are over all seeds.
- "C-index" is Harrell's, of the linear predictor at the posterior mean: of the fitted rows, and of a
  fifth that other fits leave out. "without" is the same without privacy.
- "held" is the share of coefficients whose 90% interval holds the exact posterior mean, "width" the
  median width over that of the exact interval, and "narrowest" the least of the coefficients' medians.

With ``--lifelines``, the interpreter of an environment that has it, the exact fits are compared with
maximum likelihood by lifelines on the same columns: the largest difference of estimates in standard
errors, and the ratios of standard errors. Cox regression has no family here, and is compared as well.
"""

import argparse
import csv
import json
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import numpy as np

import tacit

YEARS = 15.0
SCHEMA = tacit.Schema(
    {
        "age": tacit.Number(50, 100, measured_in="years"),
        "sex": tacit.Category(["F", "M"]),
        "sample_yr": tacit.Number(1995, 2003),
        "kappa": tacit.Number(0, 10),
        "lambda": tacit.Number(0, 10),
        "flc_grp": tacit.Number(1, 10),
        "creatinine": tacit.Number(0, 5),
        "mgus": tacit.Binary(yes="yes", no="no"),
        "time": tacit.Number(0, YEARS, measured_in="years"),
        "death": tacit.Binary(yes="dead", no="alive"),
    }
)
COVARIATES = ("age", "sex", "sample_yr", "kappa", "lambda", "flc_grp", "creatinine", "mgus")
FORMULA = f"censored(time, death) ~ {' + '.join(COVARIATES)}"
FAMILIES = ("weibull_ph", "piecewise_exponential", "lognormal")
CUTS = np.linspace(0, YEARS, 5)[1:-1].tolist()  # those of the family by default

# Run by the other interpreter: estimates and standard errors of coefficients, with the sign of a hazard where there is one.
LIFELINES = """
import json, sys
import lifelines as ll, pandas as pd
data, names, cuts = pd.read_csv(sys.argv[1]), json.loads(sys.argv[2]), json.loads(sys.argv[3])
found, sd = {}, data[names].std()
data[names] = (data[names] - data[names].mean()) / sd
def keep(name, table, factor=1.0):
    found[name] = [[float(table.loc[n, "coef"] / sd[n]) * factor for n in names], [float(table.loc[n, "se(coef)"] / sd[n]) * abs(factor) for n in names]]
at = dict(duration_col="time", event_col="event")
cox = ll.CoxPHFitter().fit(data, **at, fit_options={"step_size": 0.2})  # full steps do not converge
keep("cox", cox.summary)
found["cox p"] = [float(cox.summary.loc[n, "p"]) for n in names]
found["cox c"] = cox.concordance_index_
pieces = ll.CoxPHFitter(baseline_estimation_method="piecewise", breakpoints=cuts).fit(data, **at)
table = pieces.summary.reset_index()
keep("piecewise_exponential", table[table["covariate"].isin(names)].set_index("covariate"))
fit = ll.WeibullAFTFitter().fit(data, **at)
shape = float(__import__("numpy").exp(fit.params_[("rho_", "Intercept")]))
keep("weibull_ph", fit.summary.loc["lambda_"], -shape)
keep("lognormal", ll.LogNormalAFTFitter().fit(data, **at).summary.loc["mu_"])
print(json.dumps(found))
"""


def read(folder):
    """The people with creatinine."""
    with (folder / "flchain.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["creatinine"] not in {"", "NA"}]
    names = {"sample_yr": "sample.yr", "flc_grp": "flc.grp"}
    table = {name: np.array([row[names.get(name, name)] for row in rows]) for name in COVARIATES}
    for name in set(COVARIATES) - {"sex", "mgus"}:
        table[name] = table[name].astype(float)
    table["time"] = np.array([float(row["futime"]) / 365.25 for row in rows])
    table["death"] = np.array([row["death"] for row in rows])
    return table


def design(table):
    """The columns of the model's own coefficients: numbers by half of their range, others 0 and 1."""
    found = {}
    for name in COVARIATES:
        kind = SCHEMA[name]
        if kind.labels:
            found[name] = (table[name] == kind.labels[1]).astype(float)
        else:
            middle, half = (kind.low + kind.high) / 2, (kind.high - kind.low) / 2
            found[name] = (np.clip(table[name], kind.low, kind.high) - middle) / half
    return found


def coefficients(post):
    """Draws of the coefficients, on the model's own scale: [draws, covariates]."""
    draws = post.model_draws
    return np.column_stack(
        [np.asarray(draws[n], float).reshape(post.num_draws, -1) for n in COVARIATES]
    )


def concordance(risk, time, event):
    """Harrell's C: of pairs in which the first is known to have died first, how often she has the higher risk."""
    right = pairs = 0.0
    for i in np.flatnonzero(event):
        later = (time > time[i]) | ((time == time[i]) & ~event)
        right += np.sum(risk[i] > risk[later]) + 0.5 * np.sum(risk[i] == risk[later])
        pairs += np.sum(later)
    return right / pairs


def c_index(family, post, table):
    """The C-index of a posterior's mean coefficients for these rows."""
    eta = np.column_stack(list(design(table).values())) @ coefficients(post).mean(axis=0)
    risk = -eta if family == "lognormal" else eta
    return concordance(risk, table["time"], table["death"] == "dead")


@cache
def plan(family, epsilon):
    """What is fitted, by public facts alone."""
    model = tacit.glm(FORMULA, family=family, schema=SCHEMA)
    return tacit.plan(model, budget=tacit.Budget(epsilon, 1e-6))


def excluded(draws, level):
    """On which side of zero intervals lie; 0 where they hold it."""
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return np.where(low > 0, 1, np.where(high < 0, -1, 0))


def held_out(table, seed):
    """Four fifths of the rows, and the rest."""
    size = len(table["time"])
    out = np.random.default_rng(seed).permutation(size) < size // 5
    return tuple({n: v[which] for n, v in table.items()} for which in (~out, out))


def family_line(family, table, chosen):
    """A line of the first table."""
    exact = tacit.fit_without_privacy(plan(family, chosen.epsilon), table)
    ours = coefficients(exact)
    known = {level: excluded(ours, level) for level in (0.9, 0.95)}
    stay, wrong, held, widths, within, new, without = {0.9: [], 0.95: []}, 0, [], [], [], [], []
    usual = np.ptp(np.quantile(ours, [0.05, 0.95], axis=0), axis=0)
    for seed in range(chosen.seeds):
        post = tacit.fit(plan(family, chosen.epsilon), table, seed=chosen.first + seed)
        draws = coefficients(post)
        for level, side in known.items():
            found = excluded(draws, level)
            stay[level].append(found[side != 0] == side[side != 0])
        wrong += int(np.sum(excluded(draws, 0.9) == -np.sign(ours.mean(axis=0))))
        ends = np.quantile(draws, [0.05, 0.95], axis=0)
        held.append((ends[0] <= ours.mean(axis=0)) & (ours.mean(axis=0) <= ends[1]))
        widths.append(np.ptp(ends, axis=0) / usual)
        within.append(c_index(family, post, table))
        some, rest = held_out(table, seed)
        new.append(
            c_index(family, tacit.fit(plan(family, chosen.epsilon), some, seed=1000 + seed), rest)
        )
        if seed < chosen.references:
            post = tacit.fit_without_privacy(plan(family, chosen.epsilon), some)
            without.append(c_index(family, post, rest))
        print(
            family, seed, stay[0.9][-1].astype(int), f"{within[-1]:.3f} {new[-1]:.3f}", flush=True
        )
    return exact, [
        family,
        f"{np.sum(known[0.9] != 0)} of {len(COVARIATES)}",
        f"{np.mean(stay[0.9]):.0%}",
        f"{np.mean(stay[0.95]):.0%} of {np.sum(known[0.95] != 0)}",
        wrong,
        f"{c_index(family, exact, table):.3f}",
        f"{np.mean(within):.3f} ({np.min(within):.3f} to {np.max(within):.3f})",
        f"{np.mean(new):.3f} (without {np.mean(without):.3f})",
        f"{np.mean(held):.2f}",
        f"{np.median(widths):.2f}",
        f"{np.median(widths, axis=0).min():.2f}",
    ]


def by_lifelines(python, table):
    """Estimates of lifelines on the same columns."""
    columns = {
        **design(table),
        "time": np.clip(table["time"], YEARS * 1e-4, YEARS),
        "event": (table["death"] == "dead").astype(int),
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([columns, *zip(*columns.values(), strict=True)])
        command = [python, "-c", LIFELINES, str(path), json.dumps(COVARIATES), json.dumps(CUTS)]
        done = subprocess.run(  # noqa: S603 (our own program)
            command, capture_output=True, text=True, check=True
        )
    return json.loads(done.stdout.splitlines()[-1])


def show(header, lines):
    """Prints a table."""
    for row in (header, ["---"] * len(header), *lines):
        print(f"| {' | '.join(map(str, row))} |", flush=True)


def main():
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of flchain.csv")
    parser.add_argument("--lifelines", help="a Python interpreter that has lifelines")
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=FAMILIES)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=1, help="the first seed of the noise")
    parser.add_argument("--references", type=int, default=3, help="exact fits of four fifths")
    chosen = parser.parse_args()
    table = read(chosen.data)
    print(
        f"{len(table['time']):,} people, {np.sum(table['death'] == 'dead'):,} deaths, epsilon {chosen.epsilon:g} at delta 1e-6, {chosen.seeds} seeds."
    )
    found = {family: family_line(family, table, chosen) for family in chosen.families}
    header = ["family", "significant without privacy (90%)", "stay", "stay at 95%", "wrong sign", "C-index without privacy",
              "C-index", "C-index, a fifth held out", "held", "width", "narrowest"]  # fmt: skip
    show(header, [line for _, line in found.values()])
    if chosen.lifelines is None:
        return
    other, lines = by_lifelines(chosen.lifelines, table), []
    for family, (post, _) in found.items():
        draws = coefficients(post)
        for name in (family, "cox") if family != "lognormal" else (family,):
            mean, error = np.array(other[name])
            apart = np.abs(draws.mean(axis=0) - mean) / error
            ratio = draws.std(axis=0) / error
            lines.append(
                [family, name, f"{apart.max():.2f}", f"{ratio.min():.2f} to {ratio.max():.2f}"]
            )
    print()
    show(
        [
            "family, without privacy",
            "lifelines",
            "largest difference in standard errors",
            "ratios of standard errors",
        ],
        lines,
    )
    print(
        f"\nCox regression: {np.sum(np.array(other['cox p']) < 0.05)} of {len(COVARIATES)} covariates with p < .05, C-index {other['cox c']:.3f}."
    )


if __name__ == "__main__":
    main()

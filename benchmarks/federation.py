"""Federated fits by default settings beside the fit of one table: Adult, record 3, and simulated tables.

    python benchmarks/federation.py adult [--data FOLDER] [--columns 10 54] [--sites 3 10 50 200]
    python benchmarks/federation.py record [--data FOLDER] [--sites 10 200]
    python benchmarks/federation.py simulated [--models gamma probit ...] [--tables 12]
    python benchmarks/federation.py large [--rows 1e6 1e7 1e8]

``adult`` fits a formula with 10 or 54 coefficients at epsilon 1 and delta 1e-5. Each of three splits has its own
held-out fifth of the rows, and its own way of spreading the others over sites: at random, unequally (the largest site
has a hundred times the rows of the smallest), and sorted by age. "At sites" is `PooledScoring()`, and "split" has
``noise="split"``. Accuracy and mean log density are of held-out rows; "less" is how much lower they are than for the
private fit of one table, in the mean of the splits and in the worst. "Held" is the share of exact posterior means in
90% intervals, "width" the median of their widths over the exact ones, and CPU seconds are of a fit.

``record`` is the design of Heikkilä et al. 2023: 54 columns in plain JAX without a schema, epsilon 1 for ten
sites and 0.5 for 200 (`experiments/federated_adult.py`, which also runs the schemes of the paper).

``simulated`` draws parameters from the prior and tables from the model, for models of `calibration.py` and for
effects of sites, and says how many parameters are in 90% intervals, at epsilon 1.

``large`` fits a logistic regression over a site with so many rows and two with 20,000 and 3,000.
"""

import argparse
import resource
import sys
import time
from pathlib import Path

import numpy as np
from calibration import Tables, scored, seed_of
from real_tables import BUDGET, Problem, flat, interval_ends, sources

import tacit
from tacit.federated import Partitioned, PooledScoring

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "experiments"))
import federated_adult

METHODS = {"at sites": PooledScoring(), "split": PooledScoring(noise="split")}
WAYS = ("at random", "unequal", "by age")
MODELS = ("gamma", "probit", "ordinal", "poisson", "logistic-10", "site-effects")
SIMULATED = ((3, 1_000), (10, 500))  # numbers of sites, and rows of each


def line(*cells):
    print("| " + " | ".join(cells) + " |", flush=True)


def dealt(table, sites, way, seed):
    """The table of each site."""
    order = np.random.default_rng(seed).permutation(len(table["age"]))
    if way == "by age":
        order = order[np.argsort(table["age"][order], kind="stable")]
    weights = np.geomspace(100, 1, sites) if way == "unequal" else np.ones(sites)
    last = np.round(np.cumsum(weights / weights.sum()) * len(order)).astype(int)[:-1]
    return {
        f"site {i}": {name: values[part] for name, values in table.items()}
        for i, part in enumerate(np.split(order, last))
    }


class Split:
    """A split of Adult, its exact posterior, and the private fit of one table."""

    def __init__(self, source, number):
        self.number, self.problem = number, Problem(source, number)
        exact = tacit.fit_without_privacy(self.problem.model, self.problem.table)
        self.mean, self.ends = flat(exact.mean()), interval_ends(exact)
        self.pooled = self.judged(
            lambda: tacit.fit(self.problem.model, self.problem.table, budget=BUDGET, seed=number)
        )

    def judged(self, fit):
        """Accuracy, log density, coverage, width, whether it converged, and CPU seconds."""
        began = time.process_time()
        post = fit()
        seconds = time.process_time() - began
        wrong, density = self.problem.score(*self.problem.coefficients(post))
        low, high = interval_ends(post)
        held = np.mean((low <= self.mean) & (self.mean <= high))
        width = np.median((high - low) / (self.ends[1] - self.ends[0]))
        return np.array([wrong, density, held, width, bool(post.converged), seconds])

    def federated(self, sites, method):
        """The same of a fit over sites."""
        tables = dealt(self.problem.table, sites, WAYS[self.number % len(WAYS)], self.number)
        return self.judged(
            lambda: tacit.fit_federated(
                self.problem.model, tables, budget=BUDGET, method=method, seed=self.number
            )
        )


def on_adult(folder, columns, numbers):
    """Adult by formula."""
    line(
        "columns",
        "sites",
        "noise",
        "accuracy",
        "less (worst)",
        "log density",
        "less (worst)",
        "held (each)",
        "width",
        "converged",
        "CPU s",
    )
    line(*["---"] * 11)
    for count in columns:
        source = sources(folder)[f"Adult, {count} columns, 39,073"]
        splits = [Split(source, number) for number in range(3)]
        pooled = np.array([each.pooled for each in splits])
        show(count, "one table", "", pooled, pooled)
        for sites in numbers:
            for name, method in METHODS.items():
                found = np.array([each.federated(sites, method) for each in splits])
                show(count, str(sites), name, found, pooled)


def show(count, sites, noise, found, pooled):
    accuracy, density, held, width, converged, seconds = found.mean(axis=0)
    less = (pooled - found)[:, :2]
    each = ", ".join(f"{one:.2f}" for one in found[:, 2])
    line(
        str(count), sites, noise,
        f"{accuracy:.4f}", f"{less[:, 0].mean():.4f} ({less[:, 0].max():.4f})",
        f"{density:.4f}", f"{less[:, 1].mean():.4f} ({less[:, 1].max():.4f})",
        f"{held:.2f} ({each})", f"{width:.2f}", f"{converged:.2f}", f"{seconds:.0f}",
    )  # fmt: skip


def record(folder, numbers, splits):
    """Record 3, whose numbers for ten and for 200 sites are published."""
    x, y = federated_adult.adult(folder)
    line("sites", "epsilon", "method", "accuracy", "log density", "CPU s")
    line(*["---"] * 6)
    ours = {**METHODS, "Partitioned()": Partitioned()}
    for name, sites, epsilon, accuracy, density in federated_adult.PUBLISHED:
        if sites in numbers and name in ("optimised", "averaging", "virtual", "central"):
            line(
                str(sites),
                str(epsilon),
                f"{name}, published",
                str(accuracy),
                str(density or "-"),
                "-",
            )
    for sites, epsilon in ((10, 1.0), (200, 0.5)):
        for name, method in ours.items() if sites in numbers else ():
            found = []
            for seed in range(splits):
                rng, began = np.random.default_rng(seed), time.process_time()
                train, test = np.split(rng.permutation(len(y)), [round(0.8 * len(y))])
                rows = federated_adult.dealt(x[train], y[train], sites, rng)
                post = tacit.fit_federated(
                    federated_adult.logistic(x.shape[1]), rows,
                    budget=tacit.Budget(epsilon, 1e-5), method=method, seed=seed,
                )  # fmt: skip
                scores = federated_adult.scores(post, x[test], y[test])
                found.append([*scores, time.process_time() - began])
            mean, error = np.mean(found, axis=0), np.std(found, axis=0, ddof=1) / splits**0.5
            cells = [f"{mean[i]:.4f} ± {error[i]:.4f}" for i in range(2)]
            line(str(sites), str(epsilon), name, *cells, f"{mean[2]:.0f}")


def simulated(models, count):
    """Coverage of the truth, beside the fit of one table and the exact posterior."""
    line(
        "model",
        "sites",
        "rows of each",
        "noise",
        "held",
        "standard error",
        "least held parameter",
        "width over exact",
        "error over exact",
        "converged",
    )
    line(*["---"] * 10)
    for name in models:
        for sites, rows in SIMULATED:
            tables = Tables(name, sites * rows, 0, 35)
            fits = {"one table": None, **METHODS}
            for noise, method in fits.items():
                found = [compared(tables, i, sites, method) for i in range(count)]
                held, widths, errors, converged = map(np.array, zip(*found, strict=True))
                error = held.mean(axis=1).std(ddof=1) / count**0.5
                ratio = np.sqrt((errors[:, 0] ** 2).mean() / (errors[:, 1] ** 2).mean())
                line(
                    name, str(sites), f"{rows:,}", noise, f"{held.mean():.2f}", f"{error:.2f}", f"{held.mean(axis=0).min():.2f}",
                    f"{np.median(widths):.2f}", f"{ratio:.2f}", f"{converged.mean():.2f}",
                )  # fmt: skip


def compared(tables, i, sites, method):
    """What intervals of a fit hold, how wide they are, and errors of its mean and of the exact one."""
    case, table = tables.case, tables[i]
    seed = seed_of("noise", tables.name, i)
    if method is None:
        post = tacit.fit(case.model, table.rows, schema=case.schema, budget=BUDGET, seed=seed)
    else:
        places = np.arange(len(table.rows["y"])) % sites
        if "group" in table.rows:  # a group is at one site
            places = np.unique(table.rows["group"], return_inverse=True)[1] % sites
        rows = {
            f"site {j}": {name: values[places == j] for name, values in table.rows.items()}
            for j in range(sites)
        }
        post = tacit.fit_federated(
            case.model, rows, schema=case.schema, budget=BUDGET, method=method, seed=seed
        )
    draws, exact = scored(case, post), table.exact
    low, high = np.quantile(draws, [0.05, 0.95], axis=0)
    held = (low <= table.truth) & (table.truth <= high)
    widths = (high - low) / np.ptp(np.quantile(exact, [0.05, 0.95], axis=0), axis=0)
    errors = np.array([each.mean(axis=0) - table.truth for each in (draws, exact)]) / exact.std(
        axis=0
    )
    return held, widths, errors, bool(post.converged)


def large(numbers):
    """A site with very many rows beside two small ones."""
    columns = {"x": tacit.Number(-1, 1), "z": tacit.Number(-1, 1), "y": tacit.Binary()}
    schema, rng = tacit.Schema(columns), np.random.default_rng(0)

    def rows(size):
        table = {name: rng.uniform(-1, 1, size).astype(np.float32) for name in "xz"}
        chance = 1 / (1 + np.exp(-(table["x"] - 0.5 * table["z"])))
        return {**table, "y": (rng.random(size, np.float32) < chance).astype(np.int8)}

    small = {"middle": rows(20_000), "small": rows(3_000)}
    line("rows of the largest site", "x (1)", "z (-0.5)", "CPU s", "GB, with the rows")
    line(*["---"] * 5)
    for size in sorted(numbers):
        tables = {"large": rows(int(size)), **small}
        began = time.process_time()
        post = tacit.fit_federated(
            "y ~ x + z", tables, schema=schema, budget=BUDGET, size=int(size)
        )
        seconds = time.process_time() - began
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        found = [f"{np.mean(d):.4f} ± {np.std(d):.4f}" for d in (post.draws["x"], post.draws["z"])]
        line(f"{int(size):,}", *found, f"{seconds:.0f}", f"{memory:.1f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=["adult", "record", "simulated", "large"])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--columns", nargs="+", type=int, default=(10, 54))
    parser.add_argument("--sites", nargs="+", type=int, default=(3, 10, 50, 200))
    parser.add_argument("--splits", type=int, default=3, help="of record")
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--tables", type=int, default=12, help="simulated tables in a cell")
    parser.add_argument("--rows", nargs="+", type=float, default=(1e6, 1e7, 1e8), help="of large")
    given = parser.parse_args()
    if given.part == "adult":
        on_adult(given.data, given.columns, given.sites)
    elif given.part == "record":
        record(given.data, given.sites, given.splits)
    elif given.part == "large":
        large(given.rows)
    else:
        simulated(given.models, given.tables)


if __name__ == "__main__":
    main()

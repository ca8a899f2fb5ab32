"""Adult with the paper's 54 columns over sites: the default beside partitioned inference, and beside one table.

    python benchmarks/federated_columns.py [--data FOLDER] [--sites 10] [--seeds 0 1 2]

Splits, columns and the model are those of experiments/federated_adult.py: 80/20, epsilon 1, delta 1e-5, rows dealt
at random. "tuned" has the settings of that experiment. Beside accuracy and log density of the held-out rows are the
share of exact posterior modes that 90% intervals hold, their mean width, and CPU seconds of a fit.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np
from scipy.special import expit

sys.path.insert(0, str(Path(__file__).parents[1] / "experiments"))

import federated_adult

from tacit import Budget, Rows, fit, fit_federated
from tacit.federated import Partitioned, PooledScoring


def exact_mode(x, y):
    """The posterior mode for a standard normal prior, by Newton's method."""
    x, w = x.astype(np.float64), np.zeros(x.shape[1])
    for _ in range(30):
        chance = expit(x @ w)
        curvature = (x * (chance * (1 - chance))[:, None]).T @ x + np.eye(len(w))
        w = w + np.linalg.solve(curvature, x.T @ (y - chance) - w)
    return w


def measured(name, sites, seed, x, y):
    """Accuracy, log density, coverage, width and CPU seconds of one fit."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(y))
    train, test = order[: round(0.8 * len(y))], order[round(0.8 * len(y)) :]
    model, budget, began = (
        federated_adult.logistic(x.shape[1]),
        Budget(1, 1e-5),
        time.process_time(),
    )
    if name == "one table":
        post = fit(model, Rows({"x": x[train], "y": y[train]}), budget=budget, seed=seed)
    else:
        methods = {
            "noise at sites (default)": PooledScoring(),
            "noise split": PooledScoring(noise="split"),
            "Partitioned()": Partitioned(),
            "Partitioned, tuned": federated_adult.method("optimised", sites, len(train) // sites),
        }
        rows = federated_adult.dealt(x[train], y[train], sites, rng)
        post = fit_federated(model, rows, budget=budget, method=methods[name], seed=seed)
    seconds = time.process_time() - began
    mode = exact_mode(x[train], y[train])
    low, high = np.quantile(post.draws["w"], [0.05, 0.95], axis=0)
    held = np.mean((low <= mode) & (mode <= high))
    return *federated_adult.scores(post, x[test], y[test]), held, np.mean(high - low), seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--sites", type=int, default=10)
    parser.add_argument("--seeds", nargs="+", type=int, default=range(3))
    given = parser.parse_args()
    x, y = federated_adult.adult(given.data)
    print("| rows | accuracy | log density | coverage | width | CPU s |\n|---|---|---|---|---|---|")
    names = (
        "one table",
        "noise split",
        "noise at sites (default)",
        "Partitioned()",
        "Partitioned, tuned",
    )
    for name in names:
        found = [measured(name, given.sites, seed, x, y) for seed in given.seeds]
        accuracy, density, held, width, seconds = np.mean(found, axis=0)
        print(
            f"| {name} | {accuracy:.4f} | {density:.4f} | {held:.2f} | {width:.2f} | {seconds:.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()

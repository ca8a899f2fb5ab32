"""Record 3: logistic regression on Adult over ten sites, by the federated defaults and by the schemes of Heikkilä et al. 2023.

    python benchmarks/records/sites.py --data ../shared/data

The design, splits and published numbers are those of `experiments/federated_adult.py`: 80% of 48,842 rows dealt to 10 sites, 54 columns,
epsilon 1, delta 1e-5. The paper's numbers are cited; its schemes are run by that experiment with settings by hand. Here are what Tacit
does by default: `tacit.federated.PooledScoring()`, `tacit.federated.Partitioned()`, and `tacit.fit` for a curator who has all rows.
"""

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import tacit
from tacit.federated import Partitioned, PooledScoring

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "experiments"))
from federated_adult import PUBLISHED, adult, dealt, logistic, scores

METHODS = {"pooled scoring": PooledScoring, "partitioned": Partitioned, "one curator": None}


def model_of(size):
    def simulate(key, p, row):
        return {"y": jax.random.bernoulli(key, jax.nn.sigmoid(jnp.dot(row["x"], p["w"]))).astype(jnp.int32)}  # fmt: skip

    return replace(logistic(size).source, simulate=simulate).unit_model


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--rows", type=int, help="so many rows, for a quick look")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    options = parser.parse_args()
    x, y = adult(options.data)
    model, budget = model_of(x.shape[1]), tacit.Budget(1.0, 1e-5)
    print("| method | accuracy | log density | CPU s of a fit |")
    print("|---|---|---|---|")
    for name, _, _, accuracy, density in (each for each in PUBLISHED if each[1] == 10):
        print(f"| {name}, as published | {accuracy} | {density} | - |")
    for name in options.methods:
        found, took = [], []
        for seed in range(options.splits):
            rng, began = np.random.default_rng(seed), time.process_time()
            order = rng.permutation(len(y))[: options.rows]
            train, test = np.split(order, [round(0.8 * len(order))])
            if METHODS[name] is None:
                rows = tacit.Rows({"x": x[train], "y": y[train]})
                post = tacit.fit(model, rows, budget=budget, seed=seed)
            else:
                sites = dealt(x[train], y[train], 10, rng)
                post = tacit.fit_federated(
                    model, sites, budget=budget, method=METHODS[name](), seed=seed
                )
            found.append(scores(post, x[test], y[test]))
            took.append(time.process_time() - began)
        mean, error = np.mean(found, axis=0), np.std(found, axis=0, ddof=1) / len(found) ** 0.5
        print(f"| {name} | {mean[0]:.4f} ± {error[0]:.4f} | {mean[1]:.4f} ± {error[1]:.4f} | {np.median(took):.1f} |", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()

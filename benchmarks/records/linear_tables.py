"""Record 4: least squares on the tables of Wang 2018 (AdaSSP), by default fits and by SSP and AdaSSP.

    python benchmarks/records/linear_tables.py --data ../shared/data

As in the paper: columns centred and scaled, rows scaled to norm 1, the outcome centred and divided by its largest absolute value,
without an intercept, delta 1e-6, ten folds; test mean squared error, with its standard error over folds. This preparation is not private, for any of the
methods. Tacit gets the bounds -1 and 1 of every column, and nothing else: no size, no setting. SSP has a ridge of none or of
the square root of the dimension, in units of its noise. Their accounting is tight, which the paper's is not.
"""

import argparse
import csv
import time
from functools import cache
from pathlib import Path

import numpy as np
from opponents import adassp, ssp

import tacit

TABLES = ("airfoil", "bike", "concrete", "housing", "parkinsons", "wine")
# Of the author's stored results: AdaSSP at epsilon 1 and .1, and the best other at epsilon 1.
STORED = {
    "airfoil": (0.0588, 0.0912, 0.0537), "bike": (0.0287, 0.0472, 0.0313), "concrete": (0.0637, 0.1320, 0.0747),
    "housing": (0.0680, 0.0985, 0.0817), "parkinsons": (0.1330, 0.1543, 0.1355), "wine": (0.0326, 0.0627, 0.0226),
}  # fmt: skip


def prepared(path):
    with path.open(encoding="utf-8") as opened:
        rows = list(csv.DictReader(opened))
    y = np.array([float(row["y"]) for row in rows])
    x = np.array([[float(v) for name, v in row.items() if name != "y"] for row in rows])
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    y = y - y.mean()
    return x, y / np.abs(y).max()


@cache
def model_of(names):
    """One for each table, so that it compiles once."""
    kinds = {name: tacit.Number(-1, 1) for name in (*names, "y")}
    return tacit.glm(f"y ~ {' + '.join(names)} - 1", schema=tacit.Schema(kinds))


def ours(x, y, test, budget, seed):
    names = tuple(f"x{i}" for i in range(x.shape[1]))
    model = model_of(names)
    table = dict(zip(names, x.T, strict=True)) | {"y": y}
    post = tacit.fit(model, table, budget=budget, seed=seed)
    weights = np.stack([np.asarray(post.model_draws[name], float).mean() for name in names])
    return test @ weights


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--tables", nargs="+", default=TABLES)
    parser.add_argument("--folds", type=int, default=10)
    options = parser.parse_args()
    methods = {
        "Tacit": ours,
        "AdaSSP, tight": lambda x, y, t, b, s: t @ adassp(x, y, b, np.random.default_rng(s)),
        "SSP, tight": lambda x, y, t, b, s: t @ ssp(x, y, b, np.random.default_rng(s), ridge=0.0),
        "SSP, tight, ridge": lambda x, y, t, b, s: (
            t @ ssp(x, y, b, np.random.default_rng(s), ridge=x.shape[1] ** 0.5)
        ),
    }
    print("| table | epsilon | trivial | not private |", *(f"{m} |" for m in methods), "AdaSSP, stored | best other, stored | CPU s of a fit |")  # fmt: skip
    print("|" + "---|" * (len(methods) + 7))
    for name in options.tables:
        x, y = prepared(options.data / "regression" / f"{name}.csv")
        folds = np.random.default_rng(0).permutation(len(y)) % 10
        exact = [
            np.linalg.lstsq(x[folds != k], y[folds != k], rcond=None)[0]
            for k in range(options.folds)
        ]
        free = np.mean([np.mean((y[folds == k] - x[folds == k] @ w) ** 2) for k, w in enumerate(exact)])  # fmt: skip
        for place, epsilon in enumerate((1.0, 0.1)):
            budget, cells, took = tacit.Budget(epsilon, 1e-6), [], []
            for method, predict in methods.items():
                losses, refused = [], 0
                for k in range(options.folds):
                    kept, held, began = folds != k, folds == k, time.process_time()
                    try:
                        guess = predict(x[kept], y[kept], x[held], budget, k)
                    except tacit.errors.TooFewUnits:
                        refused, guess = refused + 1, 0.0  # nothing is learnt
                    losses.append(np.mean((y[held] - guess) ** 2))
                    took += [time.process_time() - began] if method == "Tacit" else []
                error = np.std(losses, ddof=1) / len(losses) ** 0.5
                told = f" ({refused} refused)" if refused else ""
                cells.append(f"{np.mean(losses):.4f} ± {error:.4f}{told}")
            stored = STORED[name][place], STORED[name][2] if epsilon == 1 else ""
            print(f"| {name} | {epsilon:g} | {np.mean(y**2):.4f} | {free:.4f} |", *(f"{c} |" for c in cells), *(f"{s} |" for s in stored), f"{np.median(took):.1f} |", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()

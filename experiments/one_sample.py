"""Accuracy of one posterior sample for logistic regression on Abalone.

    python experiments/one_sample.py --data ../shared/data            # about two minutes
    python experiments/one_sample.py --data ../shared/data --chain    # and chains, some more

One draw of the coefficients, over 80/20 splits, at delta 1e-5 under add-remove. Draws are
exact, by rejection; with --chain, the same posterior by long chains beside it, whose guarantee
is an assumption. The prior's precision m is public and matters: one row pulls with at most
power x radius, so that the draw is as private as Gaussian noise with mu = power x radius /
sqrt(m); a tighter prior allows a larger power and pulls harder towards zero.
Features are standardised with the mean and deviation of the whole table, as in
the other experiments; that is not private, and here only makes the comparison fair.
"""

import argparse
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from tables import abalone, split, standardised

from tacit import Budget, Model, OneSample, Rows, fit
from tacit.methods import ChainSampler, LogConcave, LogisticRejection
from tacit.models import Parameter

RADIUS = 2.0
# What was measured before, for one draw of a posterior like this one.
KNOWN = {0.1: 0.753, 0.3: 0.761, 1.0: 0.764}


def logistic(size, precision):
    return Model(
        parameters={"w": Parameter((size,))},
        log_prior=lambda p: -0.5 * precision * jnp.sum(p["w"] ** 2),
        log_likelihood=lambda p, row: jax.nn.log_sigmoid(
            (2 * row["y"] - 1) * jnp.dot(row["x"], p["w"])
        ),
    ).unit_model


def methods(precision, chain):
    exact = OneSample(sampler=LogisticRejection(radius=RADIUS, precision=precision))
    if not chain:
        return {"rejection": exact}
    assumed = ChainSampler(approximate="a strongly log-concave posterior, 600 steps of NUTS",
                           warm_up=400, length=200)  # fmt: skip
    claim = LogConcave(slope=RADIUS, concavity=precision, shortened=("x", RADIUS))
    return {"rejection": exact, "chain": OneSample(sampler=assumed, claim=claim)}


def accuracies(x, y, model, epsilon, method, seeds):
    """Test accuracy of one draw for each split."""
    found = []
    for seed in seeds:
        train, test = split(len(y), seed)
        rows = Rows({"x": x[train], "y": y[train]})
        post = fit(model, rows, budget=Budget(epsilon, 1e-5), method=method, seed=1000 + seed)
        found.append(np.mean((x[test] @ post.draws["w"][0] > 0) == y[test]))
    return np.array(found)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--chain", action="store_true", help="chains beside exact draws")
    parser.add_argument("--splits", type=int, default=20)
    options = parser.parse_args()
    if not (options.data / "abalone.csv").exists():
        parser.error(f"there is no abalone.csv in {options.data}; name the folder with --data")
    x, y = abalone(options.data)
    x = standardised(x)
    print(
        f"Abalone, {options.splits} splits; the larger class has {max(y.mean(), 1 - y.mean()):.3f}"
    )
    print(
        f"{'epsilon':>7} {'precision':>9} {'sampler':9} {'power':>7} {'accuracy':>8} {'s.e.':>6}",
        end="",
    )
    print(f" {'known':>6} {'s/fit':>6}")
    for epsilon, known in KNOWN.items():
        for precision in (3.0, 10.0, 30.0):
            model = logistic(x.shape[1], precision)
            for name, method in methods(precision, options.chain).items():
                began = time.perf_counter()
                found = accuracies(x, y, model, epsilon, method, range(options.splits))
                seconds = (time.perf_counter() - began) / options.splits
                power = method.calibrate(model, Budget(epsilon, 1e-5)).power
                print(
                    f"{epsilon:7.1f} {precision:9.0f} {name:9} {power:7.4f} {found.mean():8.4f} "
                    f"{found.std(ddof=1) / len(found) ** 0.5:6.4f} {known:6.3f} {seconds:6.2f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()

"""Logistic regression on Adult, split over sites, beside the figures published for it.

    python experiments/federated_adult.py --data ../shared/data            # all; about half an hour
    python experiments/federated_adult.py --data ../shared/data --quick    # fewer splits

Heikkilä et al. 2023 report test accuracy and mean test log-likelihood of private partitioned
variational inference: 10 sites at epsilon 1 and 200 sites at epsilon 0.5, delta 1e-5. Here each is
repeated over several 80/20 splits of the 48,842 rows, divided evenly over the sites. Categories are those of
the census form, and numbers are scaled by public bounds. Nothing is computed from the rows
beforehand. Epsilon is under add-remove. The noise of virtual clients is calibrated for a sensitivity of
two clips, twice that of the paper.
"""

import argparse
import csv
import time
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import expit

from tacit import Budget, Model, Rows, Variational, fit, fit_federated
from tacit.federated import Partitioned, PooledScoring
from tacit.federated.schemes import Optimised
from tacit.models import Parameter
from tacit.papers.federated import local_averaging, virtual_clients

# Name, sites, epsilon, accuracy, log-likelihood (None where the paper's table has none here).
PUBLISHED = [
    ("optimised", 10, 1.0, 0.838, -0.35),
    ("averaging", 10, 1.0, 0.842, -0.34),
    ("virtual", 10, 1.0, 0.847, -0.343),
    ("central", 10, 1.0, 0.849, -0.328),
    ("optimised", 200, 0.5, 0.813, None),
    ("virtual", 200, 0.5, 0.844, None),
    # Tacit's defaults, without settings: private scoring with noise at each site, split, and of one table.
    ("scoring", 10, 1.0, 0.838, -0.35),
    ("split", 10, 1.0, 0.847, -0.343),
    ("table", 10, 1.0, 0.849, -0.328),
    ("scoring", 200, 0.5, 0.813, None),
    ("split", 200, 0.5, 0.844, None),
]
# Public bounds; values beyond them are moved to the nearest bound.
NUMBERS = {"age": (17, 90), "education-num": (1, 16), "hours-per-week": (1, 99)}
CATEGORIES = ("workclass", "marital-status", "occupation", "relationship", "race")


def adult(path):
    with (path / "adult.csv").open() as file:
        rows = list(csv.DictReader(file))
    columns = [np.ones(len(rows))]
    for name, (low, high) in NUMBERS.items():
        values = np.clip([float(row[name]) for row in rows], low, high)
        scaled = (values - low) / (high - low) * 2 - 1
        columns.append(scaled)
        if name != "education-num":
            columns.append(scaled**2)
    for name, high in (("capital-gain", 1e5), ("capital-loss", 5e3)):
        values = np.clip([float(row[name]) for row in rows], 0, high)
        columns += [values > 0, np.log1p(values) / np.log1p(high)]
    for name in CATEGORIES:
        levels = sorted({row[name] for row in rows})  # as the census form lists them
        columns += [[row[name] == level for row in rows] for level in levels]
    columns.append([row["sex"] == "Male" for row in rows])
    columns.append([row["native-country"] == "United-States" for row in rows])
    x = np.column_stack([np.asarray(each, np.float32) for each in columns])
    return x, np.array([row["income"].startswith(">") for row in rows], np.int32)


def logistic(size):
    return Model(
        parameters={"w": Parameter((size,))},
        log_prior=lambda p: -0.5 * jnp.sum(p["w"] ** 2),
        log_likelihood=lambda p, row: jax.nn.log_sigmoid(
            (2 * row["y"] - 1) * jnp.dot(row["x"], p["w"])
        ),
        simulate=lambda key, p, row: {
            "y": jax.random.bernoulli(key, jax.nn.sigmoid(jnp.dot(row["x"], p["w"]))).astype(
                jnp.int32
            )
        },
    ).unit_model


def scores(post, x, y):
    """Accuracy and mean log-likelihood of the predictive probabilities."""
    logits = x.astype(np.float64) @ np.clip(post.draws["w"][:200].T, -1e3, 1e3)
    chance = np.clip(expit(logits).mean(axis=1), 1e-9, 1 - 1e-9)
    return np.mean((chance > 0.5) == y), np.mean(np.log(np.where(y == 1, chance, 1 - chance)))


def dealt(x, y, sites, rng):
    """The rows, divided evenly over sites at random."""
    parts = np.array_split(rng.permutation(len(y)), sites)
    return {f"site {i}": Rows({"x": x[part], "y": y[part]}) for i, part in enumerate(parts)}


def method(name, sites, rows):
    """Settings for a public, approximate number of rows at a site."""
    if name in {"scoring", "split"}:
        return PooledScoring(noise="site" if name == "scoring" else "split")
    if name == "optimised":
        rate, rounds, damping = (0.1, 6, 0.5) if rows > 1000 else (0.3, 1, 0.2)
        steps = Variational(sampling_rate=rate, num_steps=100 if rows > 1000 else 200, clip=1.5)
        return Partitioned(
            scheme=Optimised(variational=steps),
            num_rounds=rounds,
            schedule="sequential",
            damping=damping,
        )
    shards, shard_rows = rows // 10, 24
    step, rounds, damping = (0.4, 40, 0.2) if sites < 100 else (0.5, 20, 0.3)
    if name == "averaging":
        scheme = local_averaging(clip=3.0 * shards, num_shards=shards, shard_rows=shard_rows)
    else:  # under secure aggregation, as in the paper
        scheme = virtual_clients(clip=3.0, num_shards=shards, shard_rows=shard_rows, noise="split")
    return Partitioned(
        scheme=replace(scheme, mean_step=step), num_rounds=rounds, damping=damping, num_draws=2
    )


def one(name, sites, epsilon, x, y, seed):
    """The scores of one split."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(y))
    train, test = order[: round(0.8 * len(y))], order[round(0.8 * len(y)) :]
    budget, model = Budget(epsilon, 1e-5), logistic(x.shape[1])
    if name in {"central", "table"}:
        rows = Rows({"x": x[train], "y": y[train]})
        central = Variational(sampling_rate=0.02, num_steps=1500, clip=1.5)
        given = {"method": central} if name == "central" else {}
        post = fit(model, rows, budget=budget, seed=seed, **given)
    else:
        rows = dealt(x[train], y[train], sites, rng)
        settings = method(name, sites, len(train) // sites)
        post = fit_federated(model, rows, budget=budget, method=settings, seed=seed)
    return scores(post, x[test], y[test])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--quick", action="store_true", help="two splits")
    parser.add_argument("--only", help="one method by name")
    options = parser.parse_args()
    if not (options.data / "adult.csv").exists():
        parser.error(f"there is no adult.csv in {options.data}; name the folder with --data")
    x, y = adult(options.data)
    print(
        f"{'method':10} {'sites':>5} {'epsilon':>7} | {'accuracy':>8} {'s.e.':>6} {'paper':>6} "
        f"{'reached':>7} | {'log-lik.':>8} {'s.e.':>6} {'paper':>6} {'reached':>7} | seconds"
    )
    for name, sites, epsilon, accuracy, likelihood in PUBLISHED:
        if options.only not in (None, name):
            continue
        began = time.perf_counter()
        seeds = range(2 if options.quick else 5)
        found = np.array([one(name, sites, epsilon, x, y, seed) for seed in seeds], np.float64)
        mean, error = found.mean(axis=0), found.std(axis=0, ddof=1) / len(found) ** 0.5
        parts = []
        for i, paper in enumerate((accuracy, likelihood)):
            reached = "" if paper is None else "yes" if mean[i] >= paper - 2 * error[i] else "NO"
            parts.append(f"{mean[i]:8.4f} {error[i]:6.4f} {paper or '':>6} {reached:>7}")
        print(
            f"{name:10} {sites:5} {epsilon:7.2f} | {parts[0]} | {parts[1]} | "
            f"{(time.perf_counter() - began) / len(found):.0f}",
            flush=True,
        )


if __name__ == "__main__":
    main()

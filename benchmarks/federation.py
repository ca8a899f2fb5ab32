"""The default federated fit beside the default fit of the pooled table, and its coverage.

    python benchmarks/federation.py [--data FOLDER] [--part adult|coverage]
    python benchmarks/federation.py --part adult --ways age --sites 10 100 --seeds 1 2
    python benchmarks/federation.py --part coverage --tables 20

Adult, epsilon 1, delta 1e-5, for numbers of sites and ways to spread rows over them: alike (at random),
unequal (sizes that fall geometrically, the largest a hundred times the smallest) and sorted by education or
by age. A fifth of the rows is held out. "split" has shared noise. Accuracy and mean log density of
held-out rows stand beside those of the pooled private fit; seconds are of the clock, for one fit.

Coverage is that of 90% intervals for 5 sites of 1,000 and 50 of 200 made-up rows, true parameters drawn from the
prior.
"""

import argparse
import time
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from real_tables import adult
from scipy.special import expit

import tacit
from tacit import Rows
from tacit.federated import PooledScoring
from tacit.models.jax_model import Model, Parameter

BUDGET = tacit.Budget(1, 1e-5)
SITES = (3, 10, 30, 100, 300)
WAYS = ("alike", "unequal", "education", "age", "alike, split", "education, split")


def spread(table, sites, way, seed):
    """The tables of sites, by name."""
    rng, count = np.random.default_rng(seed), len(table["age"])
    order = rng.permutation(count)
    if way in {"education", "age"}:
        column = table["education_num" if way == "education" else "age"]
        order = order[np.argsort(column[order], kind="stable")]
    weights = np.geomspace(100, 1, sites) if way == "unequal" else np.ones(sites)
    ends = np.round(np.cumsum(weights / weights.sum()) * count).astype(int)[:-1]
    return {
        f"site {i}": {name: values[part] for name, values in table.items()}
        for i, part in enumerate(np.split(order, ends))
    }


def judged(post, table):
    """Accuracy and mean log density of held-out rows."""
    chance, yes = post.predict(table), table["income"] == ">50K"
    density = np.log(np.where(yes, chance, 1 - chance))
    return np.mean((chance > 0.5) == yes), np.mean(density)


def line(name, found, seconds):
    """Prints a line of the table: means over seeds, and the worst of them."""
    accuracy, density = np.mean(found, axis=0)
    worst = np.min(found, axis=0)
    print(
        f"| {name} | {accuracy:.4f} ({worst[0]:.4f}) | {density:.4f} ({worst[1]:.4f}) | {seconds:.0f} |",
        flush=True,
    )


def on_adult(folder, ways, numbers, seeds):
    """Prints the table of Adult."""
    formula, schema, table = adult(folder, 48_842)
    model = tacit.glm(formula, schema=schema)
    held = np.arange(len(table["age"])) % 5 == 0
    train, test = ({n: v[which] for n, v in table.items()} for which in (~held, held))
    print("| rows | accuracy (worst) | log density (worst) | seconds |\n|---|---|---|---|")
    began = time.perf_counter()
    pooled = [judged(tacit.fit(model, train, budget=BUDGET, seed=s), test) for s in seeds]
    line("pooled", pooled, (time.perf_counter() - began) / len(seeds))
    for name, sites in ((way, sites) for way in ways for sites in numbers):
        way, _, split = name.partition(", ")
        began = time.perf_counter()
        found = [
            judged(
                tacit.fit_federated(
                    model,
                    spread(train, sites, way, seed),
                    schema=schema,
                    budget=BUDGET,
                    method=PooledScoring(noise=split or "site"),
                    seed=seed,
                ),
                test,
            )
            for seed in seeds
        ]
        line(f"{sites} sites, {name}", found, (time.perf_counter() - began) / len(seeds))


def regression(kind, size):
    """A regression with standard normal coefficients; of counts, half as wide."""
    width = 0.5 if kind == "poisson" else 1.0

    def outcome(params, row):
        eta = row["x"] @ params["w"]
        return dist.Bernoulli(logits=eta) if kind == "logistic" else dist.Poisson(jnp.exp(eta))

    return Model(
        parameters={"w": Parameter((size,))},
        log_prior=lambda params: dist.Normal(0, width).log_prob(params["w"]).sum(),
        log_likelihood=lambda params, row: outcome(params, row).log_prob(row["y"]),
        simulate=lambda key, params, row: {"y": outcome(params, row).sample(key)},
    ).unit_model


def made_up(kind, size, count, seed):
    """Rows, and the coefficients that made them."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=size) * (0.5 if kind == "poisson" else 1.0)
    x = np.column_stack([np.ones(count), rng.normal(size=(count, size - 1))]).astype(np.float32)
    eta = x @ truth
    y = rng.binomial(1, expit(eta)) if kind == "logistic" else rng.poisson(np.exp(eta))
    return x, y.astype(np.float32), truth


def coverage(tables):
    """Prints how often 90% intervals hold the truth."""
    print("| model | sites | coverage | mean width | error |\n|---|---|---|---|---|")
    for kind, size in (("logistic", 4), ("logistic", 10), ("poisson", 3)):
        model = regression(kind, size)
        for sites, each in ((5, 1000), (50, 200)):
            hits, widths, errors = [], [], []
            for seed in range(tables):
                x, y, truth = made_up(kind, size, sites * each, seed)
                data = {f"{i}": Rows({"x": x[i::sites], "y": y[i::sites]}) for i in range(sites)}
                post = tacit.fit_federated(model, data, budget=BUDGET, seed=seed)
                low, high = np.quantile(post.draws["w"], [0.05, 0.95], axis=0)
                hits.append((low <= truth) & (truth <= high))
                widths.append(high - low)
                errors.append(post.draws["w"].mean(axis=0) - truth)
            error = np.sqrt(np.mean(np.square(errors)))
            print(
                f"| {kind}, {size} | {sites} x {each} | {np.mean(hits):.3f} | {np.mean(widths):.3f} "
                f"| {error:.3f} |",
                flush=True,
            )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    parser.add_argument("--sites", nargs="+", type=int, default=SITES)
    parser.add_argument("--seeds", nargs="+", type=int, default=range(3))
    parser.add_argument("--tables", type=int, default=100, help="made-up tables in a cell")
    parser.add_argument("--part", choices=["adult", "coverage"])
    given = parser.parse_args()
    if given.part != "coverage":
        on_adult(given.data, given.ways, given.sites, given.seeds)
    if given.part != "adult":
        coverage(given.tables)


if __name__ == "__main__":
    main()

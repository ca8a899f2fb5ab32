"""How often 90% intervals of private statistics hold the truth, noise-aware and naive.

    python benchmarks/coverage.py          # 1,000 data sets for each model; about 20 minutes
    python benchmarks/coverage.py --quick  # 200 data sets

Parameters are drawn from the prior and rows from the model, within bounds so wide that
clamping hardly ever happens. Every data set goes through the gate at epsilon .5, with
Gaussian noise (delta 1e-5) or Laplace noise (delta 0). Intervals that are right cover 90%,
less a little for the chain's length. Even predictors are not the normal ones that the
posterior takes them for: their squares vary less, so intervals are a little too wide.
"""

import argparse
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit import Budget, Rows, Statistics, conjugate
from tacit.api.fit import fit_many

LEVEL = 0.9
BUDGETS = {"gaussian": Budget(0.5, 1e-5), "laplace": Budget(0.5)}


@dataclass
class Case:
    """A model, how many rows, and a function that draws parameters and rows."""

    model: Any
    size: int
    draw: Any


def bernoulli(rng, size):
    p = rng.beta(1, 1)
    return {"probability": p}, {"y": rng.binomial(1, p, size)}


def categorical(rng, size):
    p = rng.dirichlet(np.ones(4))
    return {"probabilities": p}, {"y": rng.choice(4, size, p=p)}


def poisson(rng, size):
    rate = rng.gamma(4) / 2
    return {"rate": rate}, {"y": rng.poisson(rate, size)}


def normal(rng, size):
    variance = 0.14 / rng.gamma(8)
    mean = rng.normal(0, np.sqrt(variance))
    return {"mean": mean, "variance": variance}, {"y": rng.normal(mean, np.sqrt(variance), size)}


def predictors(rng, size, shape):
    """Two predictors with a correlation of .6, or even ones, which are not normal."""
    if shape == "even":
        return rng.uniform(-1, 1, (size, 2))
    x = rng.normal(size=(size, 2)) @ np.array([[1, 0.6], [0, 0.8]])
    return rng.uniform(-0.2, 0.2, 2) + rng.uniform(0.1, 0.2, 2) * x


def regression(rng, size, *, variance=None, shape="normal"):
    known = variance is not None
    variance = variance or 0.3 / rng.gamma(8)
    unit = 1.0 if known else np.sqrt(variance)
    intercept, slopes = unit * rng.normal(), unit * rng.normal(size=2)
    x = predictors(rng, size, shape)
    y = intercept + x @ slopes + np.sqrt(variance) * rng.normal(size=size)
    truth = {"intercept": intercept, "coefficients": slopes}
    columns = {"x1": x[:, 0], "x2": x[:, 1], "y": y}
    return truth if known else {**truth, "variance": variance}, columns


UNIT = (-1.0, 1.0)
KNOWN = conjugate.LinearRegression(
    "y", ("x1", "x2"), noise_sd=0.2, bounds=(UNIT, UNIT, (-5.0, 5.0))
)
UNKNOWN = conjugate.LinearRegression(
    "y", ("x1", "x2"), variance_shape=8.0, variance_scale=0.3, bounds=(UNIT, UNIT, UNIT)
)
CASES = {
    "Bernoulli": Case(conjugate.Bernoulli("y"), 100, bernoulli),
    "categorical, 4 levels": Case(conjugate.Categorical("y", levels=4), 150, categorical),
    "Poisson": Case(
        conjugate.Poisson("y", shape=4.0, inverse_scale=2.0, bounds=((0, 15),)), 150, poisson
    ),
    "normal": Case(
        conjugate.Normal("y", variance_shape=8.0, variance_scale=0.14, bounds=(UNIT,)), 200, normal
    ),
    "regression, known noise": Case(
        KNOWN, 300, lambda rng, size: regression(rng, size, variance=0.04)
    ),
    "regression": Case(UNKNOWN, 300, regression),
    "regression, even predictors": Case(
        UNKNOWN, 300, lambda rng, size: regression(rng, size, shape="even")
    ),
}


def data_sets(case, count, seed=0):
    rng = np.random.default_rng(seed)
    return [case.draw(rng, case.size) for _ in range(count)]


def covered(case, drawn, noise, *, noise_aware, num_draws=500):
    """For each parameter, the share of data sets whose interval holds the truth."""
    method = Statistics(noise=noise, noise_aware=noise_aware, num_draws=num_draws, sweeps=5)
    rows = [Rows(columns) for _, columns in drawn]
    budgets = [BUDGETS[noise]] * len(rows)
    posts = fit_many(case.model, rows, budgets, method, seeds=range(len(rows)))
    found = {}
    for name in case.model.names:
        ends = np.array([post.interval(LEVEL)[name] for post in posts])
        truth = np.array([parameters[name] for parameters, _ in drawn])
        found[name] = ((ends[:, 0] <= truth) & (truth <= ends[:, 1])).mean(axis=0)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="200 data sets")
    parser.add_argument("--only", default="", help="models whose name has this in it")
    chosen = parser.parse_args()
    count = 200 if chosen.quick else 1000
    error = np.sqrt(LEVEL * (1 - LEVEL) / count)
    print(f"{count} data sets, epsilon .5; the standard error of a share is {error:.1%}.\n")
    print(f"{'model':28} {'rows':>5} {'noise':9} {'parameter':16} {'aware':>7} {'naive':>7}")
    for title, case in CASES.items():
        if chosen.only not in title:
            continue
        drawn = data_sets(case, count)
        for noise in BUDGETS:
            began = time.perf_counter()
            aware, naive = (
                covered(case, drawn, noise, noise_aware=aware) for aware in (True, False)
            )
            taken = time.perf_counter() - began
            for name in aware:
                for i, (right, wrong) in enumerate(
                    zip(np.ravel(aware[name]), np.ravel(naive[name]), strict=True)
                ):
                    label = f"{name}[{i}]" if np.ndim(aware[name]) else name
                    print(
                        f"{title:28} {case.size:5d} {noise:9} {label:16} {right:7.1%} {wrong:7.1%}"
                    )
            print(f"{'':28} {taken:.0f} s", flush=True)


if __name__ == "__main__":
    main()

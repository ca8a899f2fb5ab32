"""When fits stop after their count: the threshold, what a stop costs, and what fits near it learn.

Prints a line for each epsilon. With ``--fits`` it also fits logistic and linear regressions to tables of a few sizes,
without the check, and prints how wide their narrowest interval is beside the prior's.
"""

import argparse
import math

import jax
import numpy as np
from scipy import stats

import tacit
from tacit.api.rows import model_rows
from tacit.inference.scoring import count_sd, min_count, stopping_probability
from tacit.privacy.gate import open_gate
from tacit.privacy.mechanisms import NoisySums, without_stop
from tacit.privacy.noise import Randomness

RUNS = 200_000
# Rows as multiples of the standard deviation of the count.
MULTIPLES = (0, 1, 2, 3, 4, 5, 6, 10)


def formula(family, columns):
    """A regression on columns that fill their bounds."""
    kinds = {f"x{i}": tacit.Number(0, 10) for i in range(columns)}
    kinds["y"] = tacit.Binary() if family == "bernoulli" else tacit.Number(-10, 30)
    return tacit.glm(f"y ~ {' + '.join(kinds.keys() - {'y'})}", schema=tacit.Schema(kinds), family=family)  # fmt: skip


def table(family, columns, rows, rng):
    """Rows with small effects. None of them can be used if there are none: the table has one then, without a cell."""
    x = rng.uniform(0, 10, (max(rows, 1), columns))
    eta = (x - 5) @ rng.normal(0, 0.2, columns)
    noise = rng.normal(size=len(x))
    y = rng.uniform(size=len(x)) < 1 / (1 + np.exp(-eta))
    if family == "gaussian":
        y = np.clip(10 + 3 * (eta + noise), -10, 30)
    found = {f"x{i}": x[:, i] for i in range(columns)} | {"y": y.astype(float)}
    return found if rows else {name: np.full(1, np.nan) for name in found}


def simulated_stops(mechanism, units):
    """The share of counts below the threshold, by the noise that a gate draws."""
    counts = NoisySums(
        sampling_rate=1.0,
        num_steps=RUNS,
        clip=1.0,
        noise_multiplier=mechanism.phases[0][0],
        dimension=1,
    )
    noise = counts.noise(Randomness(1), 0, RUNS)[:, 0] * counts.grid
    return float(np.mean(units + noise < min_count(mechanism)))


def print_thresholds(epsilons, delta):
    model = formula("bernoulli", 3)
    print(f"delta {delta:g}; shares of {RUNS:,} simulated counts")
    print(
        "epsilon  sd of count  stops below  goes on from  epsilon of a stop  empty stop  these stop"
    )
    for epsilon in epsilons:
        plan = tacit.plan(model, budget=tacit.Budget(epsilon, delta), forecast=False)
        sd = count_sd(plan.mechanism)
        enough = math.ceil(min_count(plan.mechanism) + stats.norm.isf(1e-3) * sd)
        assert stopping_probability(plan.mechanism, enough) <= 1e-3
        print(
            f"{epsilon:7g}  {sd:11.1f}  {min_count(plan.mechanism):11.1f}  {enough:12,}  "
            f"{plan.stopped_cost.epsilon:17.3g}  {simulated_stops(plan.mechanism, 0):10.2%}  "
            f"{simulated_stops(plan.mechanism, enough):10.3%}"
        )


def print_widths(epsilon, delta, fits):
    print(
        f"\nepsilon {epsilon:g}: width of the narrowest interval beside the prior's, mean of {fits} fits"
    )
    print("family, columns    " + "".join(f"{multiple:>8} sd" for multiple in MULTIPLES))
    for family, columns in (("bernoulli", 2), ("bernoulli", 10), ("gaussian", 4)):
        model = formula(family, columns)
        plan = tacit.plan(model, budget=tacit.Budget(epsilon, delta), forecast=False)
        mechanism, rng, line = without_stop(plan.mechanism), np.random.default_rng(0), []
        for multiple in MULTIPLES:
            rows, found = round(multiple * count_sd(mechanism)), []
            for fit in range(fits):
                private = model_rows(plan.model, plan.schema, table(family, columns, rows, rng))
                gate = open_gate(private, mechanism, Randomness(1000 * multiple + fit))
                result, _ = plan.method.posterior(plan.model, gate, jax.random.key(fit))
                found.append(result.draws.std(axis=0).min())  # where the prior has unit scale
            line.append(f"{np.mean(found):11.2f}")
        print(f"{family:10} {columns:7} {''.join(line)}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--epsilon", type=float, nargs="+", default=[0.1, 1, 8])
    parser.add_argument("--delta", type=float, default=1e-6)
    parser.add_argument("--fits", type=int, default=0)
    given = parser.parse_args()
    print_thresholds(given.epsilon, given.delta)
    if given.fits:
        print_widths(1.0, given.delta, given.fits)

"""Whether the settings for a declared size are good: their error beside the best of a grid of 30.

    python benchmarks/settings.py --models logistic-3 poisson --sizes 500 --repeats 16
    python benchmarks/settings.py --markdown table.md                 # everything; many hours
    python benchmarks/settings.py --times                             # seconds of a fit to 1e5, 1e6 and 1e7 rows

The grid has sampling rates of 0.1 to 10 times the chosen one and 60 to 2,000 steps. Settings that look at more
than ``--most`` rows in all are left out, for time. The best of the grid is found on some tables, and the chosen settings are
compared with it on others: the smallest error of many would be too small by chance.
"""

import argparse
import itertools
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from calibration import DELTA, scored, seed_of
from calibration_models import CASES

import tacit
from tacit.api.plan import build_plan
from tacit.api.rows import model_rows
from tacit.inference.registry import default_method

STEPS, FACTORS = (60, 125, 250, 500, 1000, 2000), (0.1, 0.3, 1.0, 3.0, 10.0)
HEADER = [
    "model",
    "size",
    "epsilon",
    "settings",
    "chosen",
    "error",
    "cover 90",
    "best",
    "error of best",
    "chosen over best",
]


class Tables(NamedTuple):
    """Made-up tables of one model and size, and the parameters that made them."""

    case: Any
    model: Any
    rows: list
    truth: Any


def tables(name, size, repeats, seed, part):
    case = CASES[name]()
    model = tacit.plan(case.model, case.schema, budget=tacit.Budget(1, DELTA)).model
    rows, truth = [], []
    for i in range(repeats):
        rng = np.random.default_rng(seed_of(part, name, size, i, seed))
        values, table = case.draw(rng, size)
        rows.append(model_rows(model, case.schema, table))
        truth.append(np.asarray(case.score(values)))
    return Tables(case, model, rows, np.array(truth))


def tried(made, budget, method):
    """The error of posterior means, and the coverage of 90% intervals."""
    truth = made.truth
    plan = build_plan(made.model, None, made.rows[0].blank(), budget, method)
    posts = [tacit.fit(plan, each, seed=i) for i, each in enumerate(made.rows)]
    scores = np.array([scored(made.case, post) for post in posts])
    low, high = np.quantile(scores, [0.05, 0.95], axis=1)
    error = np.sqrt(((scores.mean(axis=1) - truth) ** 2).mean())
    return float(error), float(((low <= truth) & (truth <= high)).mean())


def grid(chosen, size, most):
    rates = {min(1.0, float(f"{factor * chosen.sampling_rate:.3g}")) for factor in FACTORS}
    for rate, steps in itertools.product(sorted(rates), STEPS):
        if rate * steps * size <= most:
            yield tacit.Scoring(sampling_rate=rate, num_steps=steps, batch_bound=chosen.batch_bound)


def words(method):
    return f"{method.num_steps} x {method.sampling_rate:g}"


def cell(name, size, epsilon, chosen):
    made = tables(name, size, chosen.repeats, chosen.seed, "search")
    budget = tacit.Budget(epsilon, DELTA)
    ours = default_method(made.model, size, budget)
    errors = {m: tried(made, budget, m)[0] for m in {ours, *grid(ours, size, chosen.most)}}
    best = min(errors, key=errors.get)
    fresh = tables(name, size, 2 * chosen.repeats, chosen.seed, "compare")
    error, held = tried(fresh, budget, ours)
    least = error if best == ours else tried(fresh, budget, best)[0]
    return [
        name, f"{size:,}", f"{epsilon:g}", str(len(errors)), words(ours), f"{error:.3g}",
        f"{held:.2f}", words(best), f"{least:.3g}", f"{error / least:.2f}",
    ]  # fmt: skip


def timed(run):
    """Seconds by the clock, and of all cores together."""
    began = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - began[0], time.process_time() - began[1]


def times():
    """Seconds of a whole fit, from arrays to the posterior: a first one that compiles, and a second one."""
    case = CASES["logistic-3"]()
    print("rows  sampling rate  first fit  (CPU)  second fit  (CPU)  of these reading  (CPU)")
    for size in (100_000, 1_000_000, 10_000_000):
        rng = np.random.default_rng(0)
        x = rng.normal(size=(size, 3)).astype(np.float32)
        y = (rng.random(size) < 0.5).astype(np.int32)
        budget = tacit.Budget(1, DELTA)
        model = tacit.plan(case.model, case.schema, budget=budget).model
        method = default_method(model, size, budget)  # only the fit is timed, not a forecast
        plan = tacit.plan(case.model, case.schema, budget=budget, method=method)
        table = {"x": x, "y": y}
        taken = [*timed(lambda: tacit.fit(plan, table, seed=0))]  # noqa: B023 (called at once)
        taken += timed(lambda: tacit.fit(plan, table, seed=1))  # noqa: B023
        taken += timed(lambda: model_rows(plan.model, case.schema, table))  # noqa: B023
        words = "  ".join(f"{each:.1f}" for each in taken)
        print(f"{size:,}  {plan.method.sampling_rate:g}  {words}", flush=True)


def main(given=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--sizes", nargs="+", type=int, default=[500, 5_000, 50_000, 1_000_000])
    parser.add_argument("--epsilons", nargs="+", type=float, default=[1.0])
    parser.add_argument("--repeats", type=int, default=16)
    parser.add_argument(
        "--most", type=float, default=2e7, help="rows that a fit may look at in all"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--times", action="store_true", help="time large fits instead")
    parser.add_argument("--markdown", type=Path, help="a file to write the table to")
    chosen = parser.parse_args(given)
    if chosen.times:
        times()
        return []
    lines = []
    print("  ".join(HEADER))
    for name, size, epsilon in itertools.product(chosen.models, chosen.sizes, chosen.epsilons):
        lines.append(cell(name, size, epsilon, chosen))
        print("  ".join(lines[-1]), flush=True)
        if chosen.markdown:
            rows = [HEADER, ["---"] * len(HEADER), *lines]
            chosen.markdown.write_text("".join(f"| {' | '.join(row)} |\n" for row in rows))
    return lines


if __name__ == "__main__":
    main()

"""Effective draws, R-hat, error and coverage of every sampler of the menu, for logistic regression.

    python benchmarks/samplers.py --sizes 2000 20000 --repeats 8        # some minutes
    python benchmarks/samplers.py --data ../shared/data --sizes          # Adult alone
    python benchmarks/samplers.py --speed 1000000                        # milliseconds of a step

Tables are simulated with coefficients drawn from the prior; Adult is read from ``--data``. Each table is fitted
at epsilon 1 by each method, by what `tacit.plan` takes for it when a size is declared, and once without privacy.
"draws" is the smallest effective sample size of any coefficient, "r_hat" the largest R-hat, both in the worst
repeat. "over exact" is the root mean square error of posterior means over that of the exact posterior; on Adult, where
no truth is known, the distance from the exact mean in exact standard deviations. "cover 90" is the share of 90%
intervals that hold the truth, or on Adult the exact mean. A method that a plan refuses stands with the first words of
its refusal. Draws of the default method are independent. "seconds" are of processor time, of the quickest fit.
"""

import argparse
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import calibration_models
import jax
import numpy as np
import real_tables

import tacit
from tacit.api.rows import model_rows
from tacit.privacy.gate import open_gate, run
from tacit.privacy.mechanisms import BarkerTests, Stages
from tacit.privacy.noise import Randomness

BUDGET = tacit.Budget(1, 1e-5)
METHODS = {
    "default": tacit.Scoring,
    "barker": tacit.Barker,
    "langevin": tacit.Langevin,
    "hamiltonian": tacit.Hamiltonian,
    "statistics": tacit.Statistics,
}
HEADER = ["table", "rows", "numbers", "method", "repeats", "draws", "r_hat", "over exact", "cover 90", "seconds"]  # fmt: skip
SHORT = "income ~ age + education_num + hours_per_week + sex"


def simulated(count, size, repeats, seed):
    """Tables of the model, with the truth of each."""
    case = calibration_models.logistic(count, 1.0, 1.0, 4.0)
    for i in range(repeats):
        values, table = case.draw(np.random.default_rng([*seed, count, size, i]), size)
        yield case.model, case.schema, table, values["b"]


def adult(count, folder, repeats):
    """The same table again; its truth is not known."""
    formula, schema, table = real_tables.adult(folder, 48_842)
    glm = tacit.glm(SHORT if count == 5 else formula, schema=schema)
    for _ in range(repeats):
        yield glm, schema, table, None


def flat(draws):
    """All numbers of a posterior, [draws, numbers]."""
    return np.concatenate([np.reshape(v, (len(v), -1)) for v in draws.values()], axis=1)


@dataclass
class Table:
    """Private rows with the truth, or None where it is not known, and the exact posterior's draws."""

    model: object
    rows: tacit.Rows
    truth: np.ndarray | None
    exact: np.ndarray


@dataclass
class Fit:
    """Draws and R-hat, mean square errors of the method and of the exact posterior, and the share of intervals that hold."""

    mixing: tuple
    error: float
    exact: float
    held: float
    seconds: float


def made(tables):
    """Tables with their exact posteriors, one after the other."""
    known = {}
    for model, schema, table, truth in tables:
        adapted = known.setdefault(id(model), tacit.plan(model, schema, budget=BUDGET).model)
        rows = model_rows(adapted, schema, table)
        exact = tacit.fit_without_privacy(adapted, rows)
        yield Table(adapted, rows, truth, flat(exact.draws))


def fitted(name, table, size, seed):
    """What one method makes of a table."""
    began = time.process_time()
    method = METHODS[name]().for_size(table.model, size, BUDGET)
    post = tacit.fit(table.model, table.rows, budget=BUDGET, method=method, seed=seed)
    seconds, found, exact = time.process_time() - began, flat(post.draws), table.exact
    aim = exact.mean(axis=0) if table.truth is None else table.truth
    unit = exact.std(axis=0) if table.truth is None else np.ones(len(aim))
    low, high = np.quantile(found, [0.05, 0.95], axis=0)
    mixing = (1000, 0)
    if post.chain:
        sizes, ratios = post.effective_sizes().values(), post.r_hats().values()
        mixing = min(map(np.min, sizes)), max(map(np.max, ratios))
    return Fit(
        mixing=mixing,
        error=np.mean(np.square((found.mean(axis=0) - aim) / unit)),
        exact=1.0 if table.truth is None else np.mean(np.square(exact.mean(axis=0) - aim)),
        held=np.mean((low <= aim) & (aim <= high)),
        seconds=seconds,
    )


def cell(fits):
    """What one method made of some tables, in words."""
    over = np.sqrt(np.sum([f.error for f in fits]) / np.sum([f.exact for f in fits]))
    draws, r_hat = min(f.mixing[0] for f in fits), max(f.mixing[1] for f in fits)
    held, seconds = np.mean([f.held for f in fits]), min(f.seconds for f in fits)
    ratio = f"{r_hat:.3f}" if r_hat else "-"
    return [str(len(fits)), f"{draws:.0f}", ratio, f"{over:.2f}", f"{held:.2f}", f"{seconds:.1f}"]


def cells(names, tables, size):
    """For each method what it makes of some tables; what it did to each is told on the way."""
    found, refused = {name: [] for name in names}, {}
    for i, table in enumerate(made(tables)):
        for name in names:
            if name in refused:
                continue
            try:
                fit = fitted(name, table, size, i)
            except tacit.TacitError as error:
                refused[name] = str(error).split(";")[0]
                continue
            found[name].append(fit)
            print(f"{size} {i} {name} {cell([fit])}", file=sys.stderr, flush=True)
    for name in names:
        words = [f"refused: {refused[name]}"] + [""] * 5 if name in refused else cell(found[name])
        yield [name, *words]


def speed(size, steps=20):
    """Milliseconds of processor time of a step of Barker tests on all rows, of a plain chain and of guided ones."""
    case = calibration_models.logistic(5, 1.0, 1.0, 4.0)
    _, table = case.draw(np.random.default_rng(0), size)
    model = tacit.plan(case.model, case.schema, budget=BUDGET).model
    rows = model_rows(model, case.schema, table)
    tests = BarkerTests(num_steps=steps, ratio_bound=0.01, noise_variance=None)
    plain = tacit.Barker(num_steps=steps, ratio_bound=0.01)
    kinds = {
        "plain": plain.steps(model, tests, jax.random.key(0)),
        "guided": tacit.Barker(num_steps=steps).stages(model, Stages((tests, tests)))[1],
    }
    for name, given in kinds.items():
        taken = []
        for _ in range(4):  # the first compiles
            began = time.process_time()
            run(open_gate(rows, tests, Randomness(0)), *given)
            taken.append(time.process_time() - began)
        print(f"| {size:,} | {name} | {min(taken[1:]) / steps * 1000:.1f} |", flush=True)


def main(given=None):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--counts", nargs="+", type=int, default=[5, 10], choices=[5, 10])
    parser.add_argument("--sizes", nargs="*", type=int, default=[2000, 20_000, 200_000])
    parser.add_argument("--repeats", type=int, default=8)
    parser.add_argument("--seed", nargs="*", type=int, default=[], help="other simulated tables")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--speed", type=int, help="time steps of Barker tests on this many rows")
    parser.add_argument("--data", type=Path, help="a folder with adult.csv")
    chosen = parser.parse_args(given)
    if chosen.speed is not None:
        print("| rows | chain | milliseconds of a step |\n|---|---|---|")
        speed(chosen.speed)
        return []
    print(f"| {' | '.join(HEADER)} |\n|{'---|' * len(HEADER)}", flush=True)
    lines = []
    for count in chosen.counts:
        cases = [
            ("simulated", n, simulated(count, n, chosen.repeats, chosen.seed)) for n in chosen.sizes
        ]
        if chosen.data is not None:
            cases.append(("Adult", 48_842, adult(count, chosen.data, chosen.repeats)))
        for table, size, tables in cases:
            for words in cells(chosen.methods, tables, size):
                lines.append([table, f"{size:,}", str(count), *words])
                print(f"| {' | '.join(lines[-1])} |", flush=True)
    return lines


if __name__ == "__main__":
    main()

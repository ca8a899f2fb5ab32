"""Regressions on combined synthetic tables: how often their intervals cover the truth, and how far tables are from the data.

    python benchmarks/synthesize.py                           # simulated tables with known coefficients
    python benchmarks/synthesize.py --data adult.csv          # samples of Adult, reduced to binned columns

Every repeat releases tables of a new data set, draws synthetic tables from the release, fits a logistic regression to each and
combines them. "ignoring the noise" draws all tables from the most likely model instead. The truth is that of the distribution
that data sets are drawn from: known coefficients, or those of all rows of Adult.
"""

import argparse
import itertools
import time

import numpy as np
import pandas as pd

import tacit
from tacit.api.synthesize import draw_tables

LEVELS = (0.8, 0.9, 0.95)
SETS = 50


def logistic(design, outcome, weights):
    """Coefficients and their covariance by Newton's method, with a ridge that keeps empty cells finite."""
    found = np.zeros(design.shape[1])
    for _ in range(50):
        share = 1 / (1 + np.exp(-design @ found))
        information = (design.T * (weights * share * (1 - share))) @ design + 1e-3 * np.eye(
            len(found)
        )
        move = np.linalg.solve(information, design.T @ (weights * (outcome - share)) - 1e-3 * found)
        found = found + np.clip(move, -2, 2)
        if np.abs(move).max() < 1e-8:
            break
    return found, np.linalg.inv(information)


def regression(schema, outcome):
    """The regression of a binary outcome on all other columns, from the counts of all cells without missing values."""
    cells = list(itertools.product(*(schema[name].labels for name in schema.names)))
    columns = [np.ones(len(cells))]
    for place, name in enumerate(schema.names):
        if name != outcome:
            columns += [
                np.array([cell[place] == each for cell in cells]) * 1.0
                for each in schema[name].labels[1:]
            ]
    is_one = np.array([cell[schema.names.index(outcome)] == "1" for cell in cells]) * 1.0
    return lambda counts: logistic(np.column_stack(columns), is_one, counts)


def count(schema, frame, names):
    """The counts of cells without missing values."""
    cells = pd.MultiIndex.from_product([schema[name].labels for name in names])
    found = frame[list(names)].astype(str).value_counts()
    return np.array([float(found.get(cell, 0)) for cell in cells])


def simulated(rng, rows):
    dose, female = rng.choice(3, rows, p=[0.5, 0.3, 0.2]), rng.integers(0, 2, rows)
    old = (rng.random(rows) < 0.3 + 0.2 * female).astype(int)
    eta = -1.0 + 0.6 * (dose == 1) + 1.0 * (dose == 2) - 0.5 * female + 0.4 * old
    ill = (rng.random(rows) < 1 / (1 + np.exp(-eta))).astype(int)
    return pd.DataFrame({"dose": dose.astype(str), "female": female, "old": old, "ill": ill})


def simulated_case():
    schema = tacit.Schema(
        {
            "dose": tacit.Category(list("012")),
            "female": tacit.Binary(),
            "old": tacit.Binary(),
            "ill": tacit.Binary(),
        }
    )
    truth = np.array([-1.0, 0.6, 1.0, -0.5, 0.4])
    return schema, "ill", truth, simulated


def adult_case(path):
    """Adult: five columns. A data set is a sample of its rows with replacement, and the truth is the fit to all of them."""
    table = pd.read_csv(path, skipinitialspace=True)
    names = {each.lower().replace("_", "-"): each for each in table.columns}
    married = table[names["marital-status"]].str.startswith("Married").astype(int)
    frame = pd.DataFrame(
        {
            "age": np.digitize(table[names["age"]], [30, 40, 50]).astype(str),
            "college": (table[names["education-num"]] >= 13).astype(int),
            "married": married,
            "female": (table[names["sex"]] == "Female").astype(int),
            "high": table[names["income"]].astype(str).str.contains(">50K").astype(int),
        }
    )
    kinds = {name: tacit.Binary() for name in frame.columns}
    schema = tacit.Schema({**kinds, "age": tacit.Category(list("0123"))})
    frame = frame[list(schema.names)]
    truth, _ = regression(schema, "high")(count(schema, frame, schema.names))
    return (
        schema,
        "high",
        truth,
        lambda rng, rows: frame.iloc[rng.integers(0, len(frame), rows)].reset_index(drop=True),
    )


def present(look, names, counts):
    """Counts [tables, cells] without those of missing cells."""
    sizes = [len(look.release.column(name).labels) for name in names]
    kept = counts.reshape(-1, *sizes)[(slice(None), *(slice(-1) for _ in names))]
    return kept.reshape(len(counts), -1)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data")
    parser.add_argument("--rows", type=int, default=5000)
    parser.add_argument("--repeats", type=int, default=50)
    parser.add_argument("--epsilon", type=float, nargs="+", default=[0.1, 0.3, 1.0])
    given = parser.parse_args()
    schema, outcome, truth, draw = adult_case(given.data) if given.data else simulated_case()
    run, whole = regression(schema, outcome), tuple(schema.names)
    print(
        f"{'Adult' if given.data else 'simulated'}, {given.rows:,} rows, {given.repeats} data sets, {len(truth)} coefficients"
    )
    for epsilon in given.epsilon:
        covered = {True: [], False: []}
        widths, plain, errors, noise, mixed, begun = [], [], [], [], 0, time.process_time()
        for repeat in range(given.repeats):
            data = draw(np.random.default_rng(repeat), given.rows)
            look = tacit.explore(data, schema=schema, tables=[whole], epsilon=epsilon, seed=repeat)
            for aware in (True, False):
                syn = draw_tables(look, complete=True, sets=SETS, noise_aware=aware, seed=repeat)
                per_table = [run(each) for each in present(syn.look, whole, syn.counts(whole))]
                values, variances = zip(
                    *((found, np.diag(own)) for found, own in per_table), strict=True
                )
                found = [tacit.combine(values, variances, level=level) for level in LEVELS]
                covered[aware].append(
                    [(one.lower <= truth) & (truth <= one.upper) for one in found]
                )
                if aware:
                    mixed += not syn.messages
                    widths.append(found[1].upper - found[1].lower)
                    for pair in itertools.combinations(whole, 2):
                        real = count(schema, data, pair)
                        errors.append(present(look, pair, syn.counts(pair)).mean(axis=0) - real)
                        noise.append(
                            present(look, pair, look[pair]["count"].to_numpy()[None])[0] - real
                        )
            plain.append(2 * 1.645 * np.sqrt(np.diag(run(count(schema, data, whole))[1])))
        shares = {aware: np.mean(each, axis=(0, 2)) for aware, each in covered.items()}
        print(
            f"epsilon {epsilon:g}: coverage of 80, 90, 95% intervals "
            + ", ".join(f"{each:.1%}" for each in shares[True])
            + "; ignoring the noise "
            + ", ".join(f"{each:.1%}" for each in shares[False])
        )
        print(
            f"    width over that without privacy {np.median(np.array(widths) / np.array(plain)):.2f}; two-way counts: error of synthetic tables "
            f"{np.sqrt(np.mean(np.concatenate(errors) ** 2)):.1f}, of released tables {np.sqrt(np.mean(np.concatenate(noise) ** 2)):.1f} (root mean square); "
            f"{mixed} of {given.repeats} chains mixed; {(time.process_time() - begun) / given.repeats:.1f} CPU s each",
            flush=True,
        )


if __name__ == "__main__":
    main()

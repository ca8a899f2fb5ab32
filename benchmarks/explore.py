"""How often the intervals of `tacit.explore` contain the truth, and how far its numbers are from it beside other tools.

    python benchmarks/explore.py                                        # coverage, 1,000 tables for each epsilon
    python benchmarks/explore.py --tables 200 --by-person               # people with up to four rows
    python benchmarks/explore.py --tables 300 --others PYTHON           # errors, beside diffprivlib and OpenDP

Every table is new: 5,000 rows, an age, a number of visits, six wards of which some have few patients and one none, and an outcome. ``PYTHON``
is an interpreter that can import diffprivlib and OpenDP; `explore_others.py` runs there. All tools get the same tables and the same epsilon (for those that
have a delta, 1e-6), once for everything together and once for a single answer.
"""

import argparse
import subprocess
import tempfile
from collections import defaultdict
from pathlib import Path

import numpy as np
import pandas as pd

import tacit

WARDS = ["a", "b", "c", "d", "e", "f"]
SHARES = [0.55, 0.3, 0.11, 0.035, 0.005, 0.0]
ROWS, MOST_ROWS = 5000, 4
QUARTILES = (0.25, 0.5, 0.75)
AGE_EDGES = [10, 20, 30, 40, 50, 60, 70, 80, 90]
COLUMNS = {
    "age": tacit.Number(0, 100),
    "visits": tacit.Count(20),
    "ward": tacit.Category(WARDS),
    "ill": tacit.Binary(),
}


def simulated(rng, rows):
    """A table of patients."""
    ward = rng.choice(6, rows, p=SHARES)
    age = np.clip(rng.normal(45 + 5 * ward, 17), 0, 100)
    table = {
        "age": np.where(rng.uniform(size=rows) < 0.01, np.nan, age),
        "visits": np.minimum(rng.negative_binomial(1.5, 0.4, rows), 20),
        "ward": np.array(WARDS)[ward],
        "ill": (rng.uniform(size=rows) < 0.02 + 0.3 * (ward == 2)).astype(int),
    }
    return pd.DataFrame(table)


def by_person(rng, people):
    """The same by person: one to four rows each, and some with more, of which the first four count."""
    of = np.repeat(np.arange(people), rng.integers(1, MOST_ROWS + 2, people))
    table = simulated(rng, len(of))
    table["who"] = of
    return table


def weights(table):
    """The rows that count, and what each counts for."""
    if "who" not in table:
        return table, np.ones(len(table))
    kept = table[table.groupby("who").cumcount() < MOST_ROWS]
    return kept, 1 / kept.groupby("who")["who"].transform("size").to_numpy()


def quantile(values, own, share):
    order = np.argsort(values)
    reached = np.cumsum(own[order]) / own.sum()
    return values[order][min(np.searchsorted(reached, share - 1e-12), len(values) - 1)]


def summed(rows, own, names, cells):
    """True counts in the order of a look's frame."""
    keys = []
    for name in names:
        values = rows[name]
        if name == "age":
            values = pd.Series(np.searchsorted(AGE_EDGES, values, side="right"), rows.index).where(
                values.notna(), len(AGE_EDGES) + 1
            )
        keys.append(values)
    found = pd.Series(own, rows.index).groupby(keys).sum()
    return found.reindex(cells, fill_value=0.0).to_numpy()


def cells(names):
    levels = {
        "age": [*range(len(AGE_EDGES) + 2)],
        "visits": [*range(21)],
        "ward": WARDS,
        "ill": [0, 1],
    }
    own = [levels[name] for name in names]
    return pd.MultiIndex.from_product(own) if len(own) > 1 else pd.Index(own[0])


SIZES = ((0, 0, "0"), (0, 20, "up to 20"), (20, 200, "up to 200"), (200, np.inf, "more"))


def coverage(repeats, epsilon, people):
    """Prints how often intervals contain the truth."""
    schema = tacit.Schema(COLUMNS, **({"person": "who", "most_rows": MOST_ROWS} if people else {}))
    inside = defaultdict(list)

    def seen(kind, size, truth, lower, upper):
        inside[kind, size].append((lower <= truth + 1e-6) & (truth - 1e-6 <= upper))

    for repeat in range(repeats):
        rng = np.random.default_rng(repeat)
        table = by_person(rng, 2000) if people else simulated(rng, ROWS)
        look = tacit.explore(
            table, schema=schema, tables=["age", "visits", ("ward", "ill"), ("ward", "age")],
            bins={"age": AGE_EDGES}, epsilon=epsilon,
        )  # fmt: skip
        rows, own = weights(table)
        for names in (("age",), ("ward", "ill"), ("ward", "age")):
            frame = look[names]
            if names != ("age",):
                for name in names:
                    frame = frame[frame[name] != "missing"] if name != "age" else frame
            truth = summed(rows, own, names, cells(names))
            for low, high, size in SIZES:
                which = (truth > low) & (truth <= high) if high else truth == 0
                which &= np.arange(len(truth)) < len(frame)
                if which.any():
                    part = frame[: len(truth)][which]
                    seen("count", size, truth[which], part["lower"], part["upper"])
        groups = [("all", rows, own)]
        groups += [(w, rows[rows["ward"] == w], own[rows["ward"] == w]) for w in WARDS]
        for name in ("age", "visits"):
            alone = look.mean(name), look.quantiles(name)
            by = (
                (look.mean(name, by="ward"), look.quantiles(name, by="ward"))
                if name == "age"
                else None
            )
            for group, some, share in groups:
                values = some[name].to_numpy(float)
                kept = ~np.isnan(values)
                values, share = values[kept], share[kept]
                if not len(values) or (group != "all" and by is None):
                    continue
                size = (
                    "all rows"
                    if group == "all"
                    else f"groups of {'0-50' if share.sum() < 50 else '50-300' if share.sum() < 300 else 'more'}"
                )
                if group == "all":
                    mean, quartiles = alone
                else:
                    mean = by[0][by[0]["ward"] == group].iloc[0]
                    quartiles = by[1][by[1]["ward"] == group]
                seen(
                    f"mean of {name}",
                    size,
                    np.average(values, weights=share),
                    mean.lower,
                    mean.upper,
                )
                for (_, line), each in zip(quartiles.iterrows(), QUARTILES, strict=True):
                    seen(
                        f"quartiles of {name}",
                        size,
                        quantile(values, share, each),
                        line["lower"],
                        line["upper"],
                    )
        ill = look.mean("ill", by="ward")
        for group, some, share in groups[1:]:
            if len(some):
                line = ill[ill["ward"] == group].iloc[0]
                size = f"groups of {'0-50' if share.sum() < 50 else '50-300' if share.sum() < 300 else 'more'}"
                seen(
                    "share of ill",
                    size,
                    np.average(some["ill"], weights=share),
                    line["lower"],
                    line["upper"],
                )
    for (kind, size), found in sorted(inside.items()):
        each = np.concatenate([np.ravel(one) for one in found])
        print(f"| {epsilon:g} | {kind} | {size} | {len(each):,} | {each.mean():.3f} |", flush=True)
    for kind in ("count", "mean", "quartiles", "share"):
        each = np.concatenate(
            [np.ravel(one) for (k, _), f in inside.items() if k.startswith(kind) for one in f]
        )
        print(
            f"| {epsilon:g} | {kind} | **all** | {len(each):,} | **{each.mean():.3f}** |",
            flush=True,
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tables", type=int, default=1000)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[0.1, 1.0])
    parser.add_argument("--by-person", action="store_true")
    parser.add_argument("--others", help="a Python interpreter that has diffprivlib and OpenDP")
    settings = parser.parse_args()
    print("| epsilon | number | size | intervals | coverage |\n| --- | --- | --- | --- | --- |")
    for epsilon in settings.epsilons:
        coverage(settings.tables, epsilon, settings.by_person)


if __name__ == "__main__":
    main()

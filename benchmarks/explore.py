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
from itertools import product
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


SIZES = ((0, 20, "up to 20"), (20, 200, "up to 200"), (200, np.inf, "more"))


def of_counts(look, rows, own):
    """Kind, size, truth and interval of counts. A level that is missing has no rows in these tables, but an age may be missing."""
    for names in (("age",), ("ward", "ill"), ("ward", "age")):
        frame = look[names]
        for name in {*names} - {"age"}:
            frame = frame[frame[name] != "missing"]
        truth = summed(rows, own, names, cells(names))
        ends = frame["lower"].to_numpy(), frame["upper"].to_numpy()
        yield from _split("count", truth, "0", truth == 0, ends)
        for low, high, size in SIZES:
            yield from _split("count", truth, size, (truth > low) & (truth <= high), ends)


def _split(kind, truth, size, which, ends):
    if which.any():
        yield kind, size, truth[which], *(each[which] for each in ends)


def of_numbers(look, rows, own):
    """The same of means, quartiles and shares, of all rows and of wards."""
    wards = rows["ward"].to_numpy()
    mean, quartiles = look.mean("age", by="ward"), look.quantiles("age", by="ward")
    ill = look.mean("ill", by="ward")
    for place, ward in enumerate(["all", *WARDS]):
        member = wards == ward if place else np.ones(len(rows), bool)
        mass = own[member].sum()
        size = "0 to 50" if mass < 50 else "50 to 300" if mass < 300 else "more"
        size = f"groups of {size}" if place else "all rows"
        for name in ("age", "visits") if place == 0 else ("age",):
            values = rows[name].to_numpy(float)
            kept = member & ~np.isnan(values)
            if not kept.any():
                continue
            found = mean.iloc[place - 1] if place else look.mean(name)
            exact = np.average(values[kept], weights=own[kept])
            yield f"mean of {name}", size, exact, found.lower, found.upper
            three = quartiles.iloc[3 * place - 3 : 3 * place] if place else look.quantiles(name)
            exact = np.array([quantile(values[kept], own[kept], each) for each in QUARTILES])
            yield f"quartiles of {name}", size, exact, three["lower"], three["upper"]
        if place and member.any():
            exact = np.average(rows["ill"][member], weights=own[member])
            yield "share of ill", size, exact, ill["lower"][place - 1], ill["upper"][place - 1]


def coverage(repeats, epsilon, people):
    """Prints how often intervals contain the truth."""
    schema = tacit.Schema(COLUMNS, **({"person": "who", "most_rows": MOST_ROWS} if people else {}))
    inside = defaultdict(list)
    for repeat in range(repeats):
        rng = np.random.default_rng(repeat)
        table = by_person(rng, ROWS // 2) if people else simulated(rng, ROWS)
        look = tacit.explore(
            table,
            schema=schema,
            tables=["age", "visits", ("ward", "ill"), ("ward", "age")],
            bins={"age": AGE_EDGES},
            epsilon=epsilon,
        )
        given = look, *weights(table)
        for kind, size, truth, lower, upper in (*of_counts(*given), *of_numbers(*given)):
            right = np.ravel((lower <= truth + 1e-6) & (truth - 1e-6 <= upper)).tolist()
            inside[kind, size] += right
            inside[kind.split(" of ")[0], "**all**"] += right
    for (kind, size), found in sorted(inside.items()):
        print(
            f"| {epsilon:g} | {kind} | {size} | {len(found):,} | {np.mean(found):.3f} |", flush=True
        )


def beside_others(repeats, epsilons, python):
    """Prints mean absolute errors, of Tacit and of other tools on the same tables."""
    tables = [simulated(np.random.default_rng(place), ROWS) for place in range(repeats)]
    tables = [table.assign(age=table["age"].fillna(50.0)) for table in tables]
    with tempfile.TemporaryDirectory() as folder:
        given, answers = Path(folder) / "tables.npz", Path(folder) / "found.npz"
        columns = {name: [table[name].to_numpy() for table in tables] for name in ("ill", "age")}
        wards = [np.searchsorted(WARDS, table["ward"]) for table in tables]
        np.savez(given, ward=wards, **columns, edges=AGE_EDGES, epsilons=epsilons)
        script = Path(__file__).with_name("explore_others.py")
        subprocess.run([python, script, given, answers], check=True)  # noqa: S603
        found = dict(np.load(answers))
    schema = tacit.Schema({name: COLUMNS[name] for name in ("ward", "ill", "age")})
    asked_of_tacit = (
        ("together", ["ward", "ill", ("ward", "ill"), "age"]),
        ("alone", [("ward", "ill")]),
        ("alone", ["age"]),
    )
    for epsilon, (kind, names) in product(epsilons, asked_of_tacit):
        bins = {"age": AGE_EDGES} if "age" in names else None
        for table in tables:
            look = tacit.explore(table, schema=schema, tables=names, bins=bins, epsilon=epsilon)
            for asked, numbers in _answers(look):
                found.setdefault(f"Tacit|{kind}|{asked}|{epsilon:g}", []).append(numbers)
    tools = ["Tacit", "diffprivlib", "OpenDP, Laplace", "OpenDP, Gaussian"]
    print(
        f"| epsilon | asked | answer | {' | '.join(tools)} |\n| --- | --- | --- |{' --- |' * len(tools)}"
    )
    for epsilon, kind, (asked, exact) in product(epsilons, ("together", "alone"), _truth(tables).items()):  # fmt: skip
        own = [found.get(f"{tool}|{kind}|{asked}|{epsilon:g}") for tool in tools]
        if own[1] is not None:
            errors = " | ".join(f"{np.abs(np.array(each) - exact).mean():.3g}" for each in own)
            print(f"| {epsilon:g} | {kind} | {asked} | {errors} |")


def _truth(tables):
    """What is asked, as arrays [tables, numbers]."""
    found = {}
    for asked in ("ward", "ill", "ward by ill", "age"):
        names = tuple(asked.split(" by "))
        size = 10 if asked == "age" else None
        counts = [summed(each, np.ones(len(each)), names, cells(names))[:size] for each in tables]
        found[asked] = np.array(counts)
    found["mean"] = np.array([[each["age"].mean()] for each in tables])
    found["quartiles"] = np.array([np.quantile(each["age"], QUARTILES) for each in tables])
    return found


def _answers(look):
    """What a look says of each question that was asked."""
    names = {each.name for each in look.release.columns}
    for name in names & {"ward", "ill", "age"} if len(look.tables) > 1 else names & {"age"}:
        yield name, look[name]["count"].to_numpy()[:-1]
    if "ward" in names:
        frame = look["ward", "ill"]
        yield (
            "ward by ill",
            frame[(frame["ward"] != "missing") & (frame["ill"] != "missing")]["count"].to_numpy(),
        )
    if "age" in names:
        yield "mean", [look.mean("age").value]
        yield "quartiles", look.quantiles("age")["value"].to_numpy()


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tables", type=int, default=1000)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[0.1, 1.0])
    parser.add_argument("--by-person", action="store_true")
    parser.add_argument("--others", help="a Python interpreter that has diffprivlib and OpenDP")
    settings = parser.parse_args()
    if settings.others:
        beside_others(settings.tables, settings.epsilons, settings.others)
        return
    print("| epsilon | number | size | intervals | coverage |\n| --- | --- | --- | --- | --- |")
    for epsilon in settings.epsilons:
        coverage(settings.tables, epsilon, settings.by_person)


if __name__ == "__main__":
    main()

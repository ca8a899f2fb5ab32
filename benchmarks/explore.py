"""How often the intervals of `tacit.explore` contain the truth, and how far its numbers are from it beside other tools.

    python benchmarks/explore.py                                        # coverage, 1,000 tables for each epsilon
    python benchmarks/explore.py --tables 200 --by-person               # people with up to four rows
    python benchmarks/explore.py --tables 300 --others PYTHON           # errors, beside diffprivlib and OpenDP
    python benchmarks/explore.py --tables 200 --sites 5 --noise split   # rows of five sites, noise shared (or: site)
    python benchmarks/explore.py --tables 200 --survival                # Kaplan-Meier curves; also with --sites

Every table is new: 5,000 rows, an age, a number of visits, six wards of which some have few patients and one none, and an outcome. Tables of survival have a time in months, whether somebody died then, and an arm; half of 5,000 people are censored.
Of several sites, the largest has half of the rows, the next a quarter, and so on. ``PYTHON``
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


def released(table, schema, epsilon, tables, bins, sites, noise):
    """The look at a table, or at its rows at several sites."""
    if not sites:
        return tacit.explore(table, schema=schema, tables=tables, bins=bins, epsilon=epsilon)
    ends = [int(len(table) * (1 - 0.5**each)) for each in range(1, sites)]
    parts = zip([0, *ends], [*ends, len(table)], strict=True)
    plan = tacit.Look.plan(schema, tables=tables, bins=bins, epsilon=epsilon)
    return tacit.release_federated(
        plan,
        {f"site {i}": table.iloc[a:b] for i, (a, b) in enumerate(parts)},
        method=tacit.federated.NoisySum(noise=noise),
    )


def in_study(rng, people):
    """A table of times to death, months that are not whole."""
    death, end = 30 * rng.weibull(1.3, people), rng.uniform(0, 60, people)
    arm = rng.choice(["treated", "control"], people, p=[0.7, 0.3])
    return pd.DataFrame({"months": np.minimum(death, end), "died": death <= end, "arm": arm})


def kaplan_meier(times, died, at):
    """The share who had not died before some times."""
    died_at, deaths = np.unique(times[died], return_counts=True)
    at_risk = len(times) - np.searchsorted(np.sort(times), died_at)
    curve = np.concatenate([[1.0], np.cumprod(1 - deaths / at_risk)])
    return curve[np.searchsorted(died_at, at, side="left")]


def survival_coverage(repeats, epsilon, sites, noise):
    """Prints how often intervals of Kaplan-Meier curves contain those of the rows, and how wide they are."""
    schema = tacit.Schema(
        {
            "months": tacit.Number(0, 60),
            "died": tacit.Binary(),
            "arm": tacit.Category(["treated", "control"]),
        }
    )
    found, at = defaultdict(list), np.arange(6.0, 60.0, 6.0)
    for repeat in range(repeats):
        table = in_study(np.random.default_rng(repeat), ROWS)
        look = released(table, schema, epsilon, [("months", "died", "arm")], None, sites, noise)
        curves = look.survival("months", "died", by="arm", times=at)
        for arm in ("treated", "control"):
            own = table[table["arm"] == arm]
            truth = kaplan_meier(own["months"].to_numpy(), own["died"].to_numpy(), at)
            lines = curves[curves["arm"] == arm]
            right = (lines["lower"] - 1e-9 <= truth) & (truth <= lines["upper"] + 1e-9)
            for known in (True, False):
                shown = (lines["value"].notna() == known).to_numpy()
                widths = (lines["upper"] - lines["lower"])[shown]
                error = np.abs(lines["value"] - truth)[shown]
                found[arm, known] += zip(right[shown], widths, error, strict=True)
    for (arm, known), numbers in found.items():
        if numbers:
            right, width, error = np.mean(numbers, axis=0)
            size = f"{arm}{'' if known else ', too few at risk'}"
            print(
                f"| {epsilon:g} | survival | {size} | {len(numbers):,} | {right:.3f} | {width:.3f} | {error:.4f} |",
                flush=True,
            )


def coverage(repeats, epsilon, people, sites=0, noise="site"):
    """Prints how often intervals contain the truth."""
    schema = tacit.Schema(COLUMNS, **({"person": "who", "most_rows": MOST_ROWS} if people else {}))
    inside = defaultdict(list)
    for repeat in range(repeats):
        rng = np.random.default_rng(repeat)
        table = by_person(rng, ROWS // 2) if people else simulated(rng, ROWS)
        tables = ["age", "visits", ("ward", "ill"), ("ward", "age")]
        look = released(table, schema, epsilon, tables, {"age": AGE_EDGES}, sites, noise)
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
    parser.add_argument("--sites", type=int, default=0, help="of how many sites the rows are")
    parser.add_argument("--noise", choices=["site", "split"], default="site")
    parser.add_argument("--survival", action="store_true", help="of Kaplan-Meier curves")
    settings = parser.parse_args()
    if settings.survival:
        print("| epsilon | number | arm | intervals | coverage | width | error |")
        print("| --- | --- | --- | --- | --- | --- | --- |")
        for epsilon in settings.epsilons:
            survival_coverage(settings.tables, epsilon, settings.sites, settings.noise)
        return
    if settings.others:
        beside_others(settings.tables, settings.epsilons, settings.others)
        return
    print("| epsilon | number | size | intervals | coverage |\n| --- | --- | --- | --- | --- |")
    for epsilon in settings.epsilons:
        coverage(settings.tables, epsilon, settings.by_person, settings.sites, settings.noise)


if __name__ == "__main__":
    main()

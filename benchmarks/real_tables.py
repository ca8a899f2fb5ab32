"""Whether default fits of real tables agree with the exact posterior, within their own intervals.

    python benchmarks/real_tables.py --data ../shared/data --markdown table.md   # some minutes
    python benchmarks/real_tables.py --predict                                   # held-out rows

Each table is fitted ``--repeats`` times at epsilon 1 by `tacit.fit` without further settings, and
once without privacy. "held" is the share of coefficients and repeats whose 90% interval holds the
exact posterior mean; "wrong sign" the share whose interval excludes zero on the other side of it.
"width" is the median width over that of the exact interval. Bounds are from what is known of the
questions that were asked, not from the rows. Adult and Abalone are read from ``--data``; the
others are of statsmodels, if it is installed. With ``--predict`` a fifth of each table with a
yes-no outcome is held out, and the default's accuracy and mean log density there stand beside those
of `tacit.Variational` at the same epsilon and of the exact posterior.
"""

import argparse
import csv
import time
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

import tacit

BUDGET = tacit.Budget(1, 1e-5)
HEADER = ["table", "rows", "coefficients", "held", "wrong sign", "width", "converged", "seconds"]


def columns(path):
    """The columns of a file, by name."""
    with path.open(encoding="utf-8") as opened:
        rows = list(csv.DictReader(opened))
    return {name.replace("-", "_"): np.array([row[name] for row in rows]) for name in rows[0]}


def numbers(table, names):
    return {name: table[name].astype(float) for name in names}


def adult(folder, size):
    table = columns(folder / "adult.csv")
    chosen = np.random.default_rng(0).permutation(len(table["age"]))[:size]
    known = ("Never-married", "Married-civ-spouse", "Divorced")
    made = numbers(
        table, ["age", "education_num", "hours_per_week", "capital_gain", "capital_loss"]
    )
    made |= {"sex": table["sex"], "income": table["income"]}
    made["marital"] = np.where(
        np.isin(table["marital_status"], known), table["marital_status"], "o"
    )
    schema = tacit.Schema(
        {
            "age": tacit.Number(17, 90),
            "education_num": tacit.Number(1, 16),
            "hours_per_week": tacit.Number(1, 99),
            "capital_gain": tacit.Number(0, 20_000),
            "capital_loss": tacit.Number(0, 3_000),
            "sex": tacit.Binary(yes="Male", no="Female"),
            "marital": tacit.Category([*known, "o"]),
            "income": tacit.Binary(yes=">50K", no="<=50K"),
        }
    )
    formula = "income ~ age + education_num + hours_per_week + capital_gain + capital_loss + sex + marital"
    return formula, schema, {name: values[chosen] for name, values in made.items()}


def abalone(folder, *, logistic):
    table = columns(folder / "abalone.csv")
    made = numbers(table, ["length", "whole_weight", "shell_weight", "rings"]) | {
        "sex": table["sex"]
    }
    made["old"] = (made["rings"] > 10).astype(int)
    schema = tacit.Schema(
        {
            "sex": tacit.Category(["F", "I", "M"]),
            "length": tacit.Number(0, 1),
            "whole_weight": tacit.Number(0, 3),
            "shell_weight": tacit.Number(0, 1),
            "rings": tacit.Number(0, 30),
            "old": tacit.Binary(),
        }
    )
    outcome = "old" if logistic else "rings"
    return f"{outcome} ~ sex + length + whole_weight + shell_weight", schema, made


def visits():
    """Visits to a doctor, of the RAND health insurance experiment."""
    from statsmodels.datasets import randhie

    data = randhie.load_pandas().data
    bounds = {"lncoins": (0, 5), "lpi": (0, 8), "fmde": (0, 9), "disea": (0, 60), "physlm": (0, 1)}
    flags = ["idp", "hlthg", "hlthf", "hlthp"]
    schema = {name: tacit.Number(*ends) for name, ends in bounds.items()}
    schema |= {name: tacit.Binary() for name in flags} | {"mdvis": tacit.Count(80)}
    made = {name: data[name].to_numpy() for name in schema}
    made |= {name: made[name].astype(int) for name in [*flags, "mdvis"]}
    return f"mdvis ~ {' + '.join([*bounds, *flags])}", tacit.Schema(schema), made


def affairs():
    """Whether there was an affair, of Fair's survey."""
    from statsmodels.datasets import fair

    data = fair.load_pandas().data
    bounds = {
        "rate_marriage": (1, 5),
        "age": (17, 45),
        "yrs_married": (0, 25),
        "children": (0, 6),
        "religious": (1, 4),
        "educ": (9, 20),
    }
    schema = {name: tacit.Number(*ends) for name, ends in bounds.items()}
    made = {name: data[name].to_numpy() for name in bounds}
    made["affair"] = (data["affairs"].to_numpy() > 0).astype(int)
    schema = tacit.Schema(schema | {"affair": tacit.Binary()})
    return f"affair ~ {' + '.join(bounds)}", schema, made


def votes():
    """Whom people expected to vote for, of the American national election study of 1996."""
    from statsmodels.datasets import anes96

    data = anes96.load_pandas().data
    bounds = {
        "TVnews": (0, 7),
        "selfLR": (1, 7),
        "age": (18, 95),
        "educ": (1, 7),
        "income": (1, 24),
    }
    made = {name: data[name].to_numpy() for name in bounds}
    made["vote"] = data["vote"].to_numpy().astype(int)
    kinds = {name: tacit.Number(*ends) for name, ends in bounds.items()}
    return f"vote ~ {' + '.join(bounds)}", tacit.Schema(kinds | {"vote": tacit.Binary()}), made


def tables(folder):
    """Names of the tables, and what makes them."""
    return {
        "Adult 1,000": lambda: adult(folder, 1_000),
        "Adult 5,000": lambda: adult(folder, 5_000),
        "Adult 48,842": lambda: adult(folder, 48_842),
        "Abalone, linear": lambda: abalone(folder, logistic=False),
        "Abalone, logistic": lambda: abalone(folder, logistic=True),
        "Visits, Poisson": visits,
        "Affairs, logistic": affairs,
        "Votes, logistic": votes,
    }


def flat(values):
    return np.concatenate([np.ravel(values[name]) for name in sorted(values)])


def compared(name, make, repeats, seed):
    formula, schema, table = make()
    model = tacit.glm(formula, schema=schema)
    exact = tacit.fit_without_privacy(model, table)
    mean, (low, high) = flat(exact.mean()), (flat(v) for v in _ends(exact))
    plan, held, wrong, widths, converged = tacit.plan(model, budget=BUDGET), [], [], [], []
    began = time.perf_counter()
    for i in range(repeats):
        post = tacit.fit(plan, table, seed=seed + i)
        below, above = (flat(v) for v in _ends(post))
        held.append((below <= mean) & (mean <= above))
        wrong.append(((below > 0) & (mean < 0)) | ((above < 0) & (mean > 0)))
        widths.append((above - below) / (high - low))
        converged.append(post.converged)
    seconds = (time.perf_counter() - began) / repeats
    shares = f"{np.mean(held):.2f}", f"{np.mean(wrong):.3f}", f"{np.median(widths):.2f}"
    rows = f"{len(next(iter(table.values()))):,}"
    return [name, rows, str(len(mean)), *shares, f"{np.mean(converged):.2f}", f"{seconds:.2f}"]


def predicted(name, make, repeats, seed):
    """A line for each method, or none if the outcome is not yes or no."""
    formula, schema, table = make()
    outcome = formula.split(" ~")[0]
    yes = {"income": ">50K", "old": 1, "affair": 1, "vote": 1}.get(outcome)
    if yes is None:
        return []
    model, size = tacit.glm(formula, schema=schema), len(table[outcome])
    order = np.random.default_rng(1).permutation(size)
    fitted, held = (
        {n: v[part] for n, v in table.items()} for part in np.split(order, [size * 4 // 5])
    )
    truth = held[outcome] == yes

    def scored(posts):
        chances = [np.clip(post.predict(held), 1e-9, 1 - 1e-9) for post in posts]
        right = np.mean([(chance > 0.5) == truth for chance in chances])
        return right, np.mean([np.log(np.where(truth, chance, 1 - chance)) for chance in chances])

    seeds = range(seed, seed + repeats)
    lines = []
    for method in (None, tacit.Variational()):
        plan = tacit.plan(model, budget=BUDGET, method=method)
        lines.append((method, scored([tacit.fit(plan, fitted, seed=i) for i in seeds])))
    lines.append(("exact", scored([tacit.fit_without_privacy(model, fitted)])))
    names = {None: "default", "exact": "not private"}
    return [
        [name, names.get(method, "Variational"), f"{right:.4f}", f"{density:.4f}"]
        for method, (right, density) in lines
    ]


def _ends(post):
    ends = post.interval(0.9)
    return [{name: values[i] for name, values in ends.items()} for i in range(2)]


def main(given=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", default=None, help="parts of names of tables")
    parser.add_argument("--predict", action="store_true", help="score held-out rows instead")
    parser.add_argument("--markdown", type=Path, help="a file to write the table to")
    chosen, lines = parser.parse_args(given), []
    header = ["table", "method", "accuracy", "log density"] if chosen.predict else HEADER
    print(" ".join(f"{each:>18}" for each in header))
    for name, make in tables(chosen.data).items():
        if chosen.only and not any(each in name for each in chosen.only):
            continue
        try:
            work = predicted if chosen.predict else compared
            found = work(name, make, chosen.repeats, chosen.seed)
        except ImportError:
            print(f"{name:>18} needs statsmodels")
            continue
        for line in found if chosen.predict else [found]:
            lines.append(line)
            print(" ".join(f"{each:>18}" for each in line), flush=True)
    if chosen.markdown:
        today = datetime.now(UTC).date().isoformat()
        about = f"Default settings, epsilon 1, {chosen.repeats} repeats, {today}, tacit {tacit.__version__}."
        rows = [header, ["---"] * len(header), *lines]
        table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
        chosen.markdown.write_text(f"{about}\n\n{table}\n")
    return lines


if __name__ == "__main__":
    main()

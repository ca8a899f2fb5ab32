"""Whether default fits of real tables agree with the exact posterior, and how well they predict.

    python benchmarks/real_tables.py --data ../shared/data --markdown table.md --json table.json
    python benchmarks/real_tables.py --tables housing "Adult, 10" --repeats 2

A fifth of each table is held out. The rest, or the number of its rows that is in a table's name, is
fitted ``--repeats`` times at epsilon 1 by `tacit.fit` with default priors and settings and no
declared size, and once without privacy. Fits of a table share one plan.

The first kind of line compares posteriors. "held" is the share of numbers and repeats whose 90%
interval holds the exact posterior mean; "wrong sign" the share whose interval excludes zero on the
other side of it. "width" is the median width over that of the exact interval, and "narrowest" the
least of the numbers' own medians. "error" is the root mean square of posterior mean less exact mean
in exact standard deviations. "refused" is the share of fits that ended with an error instead of a
posterior. "CPU s" is the median CPU time of a fit after the first, which compiles.

The second kind has predictions for the held-out rows: the share of right answers or the root mean
square error, and the mean log density, each with its standard error over repeats. All repeats and
methods have the same rows, so that methods can be compared; the standard error is that of the privacy
noise, and does not tell how scores vary with the rows. With 1,000 rows of Adult and 54 columns the
log density of a fit without privacy varies by about .006 between samples. Beside the default
stand the exact posterior, `tacit.Variational`, and methods of `baselines.py`, all at the same
budget: AdaSSP and SSP for linear models, and DP-SGD (on the full batch) for logistic ones. The
baselines are favoured: their settings are those that predict the held-out rows best, and AdaSSP and
SSP, which estimate no residual standard deviation, get that of the fitted rows without noise.

Bounds are from what is known of the quantities, not from the rows. Adult, Abalone and the tables of
``regression`` are read from ``--data``; the others are of statsmodels, if it is installed. Files are
written again after every table, so that a run which ends early leaves what it has.
"""

import argparse
import csv
import json
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import baselines
import numpy as np
from scipy.special import expit, gammaln, logsumexp

import tacit

BUDGET = tacit.Budget(1, 1e-5)
DRAWS = 400  # of each posterior, for predictions

# Levels of Adult's factors, of which tables take the first few and pool the others.
LEVELS = {
    "marital": ("Never-married", "Married-civ-spouse", "Divorced", "Separated", "Widowed", "Married-spouse-absent"),
    "occupation": ("Prof-specialty", "Craft-repair", "Exec-managerial", "Adm-clerical", "Sales", "Other-service", "Machine-op-inspct", "?", "Transport-moving", "Handlers-cleaners", "Farming-fishing", "Tech-support", "Protective-serv", "Priv-house-serv"),
    "workclass": ("Private", "Self-emp-not-inc", "Local-gov", "?", "State-gov", "Self-emp-inc", "Federal-gov", "Without-pay"),
    "race": ("White", "Black", "Asian-Pac-Islander", "Amer-Indian-Eskimo"),
    "relationship": ("Husband", "Not-in-family", "Own-child", "Unmarried", "Wife"),
    "education": ("HS-grad", "Some-college", "Bachelors", "Masters", "Assoc-voc", "11th", "Assoc-acdm", "10th", "7th-8th", "Prof-school"),
}  # fmt: skip
FACTORS = {  # how many levels are named, by the number of coefficients with the intercept
    10: {"marital": 3},
    28: {"occupation": 9, "marital": 5, "workclass": 4, "race": 3},
    54: {name: len(levels) for name, levels in LEVELS.items()},
}

# Bounds of the tables of `regression`: x0, x1, ... and y. None is for zero or one. They are ends of
# scales, percentages, designs of experiments and round numbers that the quantity rarely exceeds.
REGRESSION = {
    # Hz that are heard, degrees, chord in m up to a foot, speed of the tunnel, displacement thickness
    # up to a fifth of the chord; decibels
    "airfoil": [(0, 20_000), (0, 25), (0, 0.305), (30, 75), (0, 0.061), (90, 150)],
    # year, month, day, season, year, month, hour, holiday, weekday, working day, weather, scaled
    # temperatures, humidity and wind, casual and registered riders; log of riders in the hour
    "bike": [(2011, 2012), (1, 12), (1, 31), (1, 4), None, (1, 12), (0, 23), None, (0, 6), None, (1, 4), (0, 1), (0, 1), (0, 1), (0, 1), (0, 1_000), (0, 1_000), (0, 7)],
    # kg/m3 of cement, slag, ash, water, plasticizer, coarse and fine aggregate, days; MPa
    "concrete": [(100, 600), (0, 400), (0, 300), (100, 300), (0, 40), (700, 1_200), (500, 1_000), (1, 365), (0, 100)],
    # Boston: crimes, per cent of lots and industry, river, 10 ppm of oxides, rooms, per cent of old
    # houses, distance, index of highways, tax, pupils, 1,000 (B - .63)^2, per cent; value, cut at 50
    "housing": [(0, 100), (0, 100), (0, 100), None, (0, 1), (1, 10), (0, 100), (0, 15), (1, 24), (100, 1_000), (10, 25), (0, 400), (0, 100), (0, 50)],
    # subject, age, sex, days of a trial of six months, jitter up to 10% (DDP is three times RAP),
    # shimmer up to 50% (DDA is three times APQ3), ratios, three between 0 and 1; UPDRS, up to 176
    "parkinsons": [(1, 42), (20, 100), None, (0, 200), (0, 0.1), (0, 0.001), (0, 0.1), (0, 0.1), (0, 0.3), (0, 0.5), (0, 3), (0, 0.5), (0, 0.5), (0, 0.5), (0, 1.5), (0, 1), (0, 40), (0, 1), (0, 1), (0, 1), (0, 176)],
    # acids, sugar, salt, sulphur dioxide, density, pH, sulphates, quality; per cent of alcohol
    "wine": [(3, 17), (0, 2), (0, 2), (0, 20), (0, 1), (0, 100), (0, 300), (0.98, 1.01), (2.5, 4.5), (0, 2), (0, 10), (8, 15)],
}  # fmt: skip


def columns(path):
    """The columns of a file, by name."""
    with path.open(encoding="utf-8") as opened:
        rows = list(csv.DictReader(opened))
    return {name.replace("-", "_"): np.array([row[name] for row in rows]) for name in rows[0]}


def numbers(table, names):
    return {name: table[name].astype(float) for name in names}


def adult(folder, size, coefficients=10):
    table = columns(folder / "adult.csv")
    table["marital"] = table["marital_status"]
    chosen = np.random.default_rng(0).permutation(len(table["age"]))[:size]
    kinds = {
        "age": tacit.Number(17, 90),
        "education_num": tacit.Number(1, 16),
        "hours_per_week": tacit.Number(1, 99),
        "capital_gain": tacit.Number(0, 20_000),
        "capital_loss": tacit.Number(0, 3_000),
    }
    made = numbers(table, kinds) | {"sex": table["sex"], "income": table["income"]}
    kinds["sex"] = tacit.Binary(yes="Male", no="Female")
    for name, count in FACTORS[coefficients].items():
        known = LEVELS[name][:count]
        made[name] = np.where(np.isin(table[name], known), table[name], "o")
        kinds[name] = tacit.Category([*known, "o"])
    formula = f"income ~ {' + '.join(kinds)}"
    schema = tacit.Schema(kinds | {"income": tacit.Binary(yes=">50K", no="<=50K")})
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


def regression(folder, name):
    """A table that Wang (2018) used, with all of its columns."""
    table = columns(folder / "regression" / f"{name}.csv")
    kinds = {
        column: tacit.Binary() if ends is None else tacit.Number(*ends)
        for column, ends in zip(table, REGRESSION[name], strict=True)
    }
    formula = f"y ~ {' + '.join(list(kinds)[:-1])}"
    return formula, tacit.Schema(kinds), numbers(table, kinds)


@dataclass(frozen=True)
class Source:
    """What makes a table, the family of its model, and how many rows are fitted."""

    make: object
    family: str
    rows: int | None = None


def sources(folder):
    """The tables, by name."""
    found = {
        f"Adult, {count} columns, {rows:,}": Source(
            partial(adult, folder, 48_842, count), "bernoulli", rows
        )
        for count in FACTORS
        for rows in (1_000, 5_000, 39_073)
    }
    return found | {
        "Abalone, linear": Source(partial(abalone, folder, logistic=False), "gaussian"),
        "Abalone, logistic": Source(partial(abalone, folder, logistic=True), "bernoulli"),
        "Affairs, logistic": Source(affairs, "bernoulli"),
        "Votes, logistic": Source(votes, "bernoulli"),
        "Visits, Poisson": Source(visits, "poisson"),
        "Visits, negative binomial": Source(visits, "negativebinomial"),
        **{
            f"{name.capitalize()}, linear": Source(partial(regression, folder, name), "gaussian")
            for name in REGRESSION
        },
    }


class Problem:
    """A table split at random into rows to fit and rows held out, as a table and as a design matrix."""

    def __init__(self, source, split=1):
        formula, schema, table = source.make()
        self.family, self._kinds = source.family, dict(schema.items)
        self.model = tacit.glm(formula, schema=schema, family=source.family)
        self.outcome, terms = formula.split(" ~ ")
        self._terms = terms.split(" + ")
        size = len(table[self.outcome])
        order = np.random.default_rng(split).permutation(size)
        kept, held = np.split(order, [size * 4 // 5])
        kept = kept[: source.rows]
        self.table, self.held_out = (
            {name: values[part] for name, values in table.items()} for part in (kept, held)
        )
        self.rows = len(kept)

    def design(self, table):
        """The columns of the model by formula: the intercept, then the terms."""
        made = [np.ones(len(table[self.outcome]))]
        for name in self._terms:
            kind, values = self._kinds[name], table[name]
            if kind.kind == "category":
                made += [values == level for level in kind.levels[1:]]
            elif kind.kind == "binary":
                made.append(values == _yes(kind))
            else:
                middle, half = (kind.high + kind.low) / 2, (kind.high - kind.low) / 2
                made.append((np.clip(values, kind.low, kind.high) - middle) / half)
        return np.column_stack(made).astype(float)

    def truth(self, table):
        """The outcome, as a number within its bounds."""
        kind, values = self._kinds[self.outcome], table[self.outcome]
        if kind.kind == "binary":
            return (values == _yes(kind)).astype(float)
        return np.clip(values.astype(float), kind.low, kind.high)

    def coefficients(self, post):
        """Draws of the coefficients of the design, [draws, columns], and of the scale if there is one."""
        spaced = np.linspace(0, post.num_draws - 1, min(DRAWS, post.num_draws)).astype(int)
        draws = {
            name: np.asarray(values, float)[spaced] for name, values in post.model_draws.items()
        }
        parts = [draws[name].reshape(len(spaced), -1) for name in ("Intercept", *self._terms)]
        return np.hstack(parts), draws.get("sigma", draws.get("alpha"))

    def score(self, coefficients, scale=None):
        """The test error and the mean log density of the predictive distribution of draws."""
        if not hasattr(self, "_test"):
            self._test = self.design(self.held_out), self.truth(self.held_out)[:, None]
        x, y = self._test
        with np.errstate(over="ignore", invalid="ignore"):
            at = x @ coefficients.T
            mean, density = _PREDICT[self.family](at, y, scale)
        error = mean.mean(axis=1) - y[:, 0]
        if self.family == "bernoulli":
            wrong = np.mean((error + y[:, 0] > 0.5) == (y[:, 0] > 0.5))
        else:
            wrong = np.sqrt(np.mean(error**2))
        return float(wrong), float(np.mean(logsumexp(density, axis=1) - np.log(density.shape[1])))

    @property
    def bounds(self):
        """The middle and half of the range of a numeric outcome."""
        kind = self._kinds[self.outcome]
        return (kind.high + kind.low) / 2, (kind.high - kind.low) / 2

    @property
    def longest(self):
        """The longest row of the design that the schema allows: each term adds one at most."""
        return np.sqrt(1 + len(self._terms))


def _yes(kind):
    return 1 if kind.yes is None else kind.yes


# The mean of the outcome and its log density, given the linear predictor and a scale.
def _bernoulli(at, y, _):
    return expit(at), y * at - np.logaddexp(0, at)


def _gaussian(at, y, sigma):
    return at, -0.5 * ((y - at) / sigma) ** 2 - np.log(sigma) - 0.5 * np.log(2 * np.pi)


def _poisson(at, y, _):
    mean = np.exp(at)
    return mean, y * at - mean - gammaln(y + 1)


def _negative_binomial(at, y, alpha):
    mean, log_total = np.exp(at), np.logaddexp(at, np.log(alpha))
    ways = gammaln(y + alpha) - gammaln(alpha) - gammaln(y + 1)
    return mean, ways + alpha * (np.log(alpha) - log_total) + y * (at - log_total)


_PREDICT = {
    "bernoulli": _bernoulli,
    "gaussian": _gaussian,
    "poisson": _poisson,
    "negativebinomial": _negative_binomial,
}


@dataclass(frozen=True)
class Agreement:
    """Default fits of a table beside the exact posterior. ``by_number`` has what means hide."""

    table: str
    rows: int
    coefficients: int
    held: float
    wrong_sign: float
    width: float
    narrowest: float
    error: float
    converged: float
    refused: float
    seconds: float
    first_seconds: float
    by_number: dict
    messages: list

    HEADER = ("table", "rows", "coefficients", "held", "wrong sign", "width", "narrowest", "error", "converged", "refused", "CPU s")  # fmt: skip

    def cells(self):
        """The line in words, in the order of the header."""
        counts = self.table, f"{self.rows:,}", str(self.coefficients)
        wrong = _text(self.wrong_sign, 3)
        ratios = (_text(each) for each in (self.width, self.narrowest, self.error))
        shares = (_text(each) for each in (self.converged, self.refused, self.seconds))
        return [*counts, _text(self.held), wrong, *ratios, *shares]


@dataclass(frozen=True)
class Prediction:
    """Scores of a method on the held-out rows, with standard errors over repeats."""

    table: str
    method: str
    measure: str
    error: float
    error_se: float
    log_density: float
    log_density_se: float
    seconds: float
    settings: dict

    HEADER = ("table", "method", "measure", "score", "log density", "CPU s")

    def cells(self):
        """The line in words, in the order of the header."""
        error = f"{_text(self.error, 4)} ± {_text(self.error_se, 4)}"
        density = f"{_text(self.log_density, 4)} ± {_text(self.log_density_se, 4)}"
        return [self.table, self.method, self.measure, error, density, _text(self.seconds)]


def _text(number, places=2):
    return "-" if np.isnan(number) else f"{number:.{places}f}"


def fitted(plan, table, repeats, seed):
    """Posteriors, the CPU seconds of each, and the messages of fits that were refused."""
    posts, seconds, messages = [], [], []
    for i in range(repeats):
        began = time.process_time()
        try:
            posts.append(tacit.fit(plan, table, seed=seed + i))
        except tacit.TacitError as error:
            messages.append(str(error))
        seconds.append(time.process_time() - began)
    return posts, seconds, messages


def _warm(seconds):
    return float(np.median(seconds[1:] or seconds))


def flat(values):
    return np.concatenate([np.ravel(values[name]) for name in sorted(values)]).astype(float)


def interval_ends(post):
    ends = post.interval(0.9)
    return [flat({name: values[i] for name, values in ends.items()}) for i in range(2)]


def agreement(name, problem, exact, fits):
    posts, seconds, messages = fits
    mean, (low, high) = flat(exact.mean()), interval_ends(exact)
    sd = flat({each: np.std(draws, axis=0) for each, draws in exact.draws.items()})
    if posts:
        below, above = np.moveaxis([interval_ends(post) for post in posts], 1, 0)
        held = (below <= mean) & (mean <= above)
        wrong = ((below > 0) & (mean < 0)) | ((above < 0) & (mean > 0))
        widths = (above - below) / (high - low)
        errors = np.array([flat(post.mean()) - mean for post in posts]) / sd
    else:
        held = wrong = widths = errors = np.full((1, len(mean)), np.nan)
    names = [
        f"{each}[{i}]" if np.ndim(exact.mean()[each]) else each
        for each in sorted(exact.mean())
        for i in range(np.size(exact.mean()[each]))
    ]
    by_number = {
        "name": names,
        "exact_mean": mean.tolist(),
        "exact_sd": sd.tolist(),
        "held": held.mean(axis=0).tolist(),
        "wrong_sign": wrong.mean(axis=0).tolist(),
        "width": np.median(widths, axis=0).tolist(),
        "mean_error": errors.mean(axis=0).tolist(),
        "error": np.sqrt(np.mean(errors**2, axis=0)).tolist(),
    }
    return Agreement(
        table=name,
        rows=problem.rows,
        coefficients=len(mean),
        held=float(held.mean()),
        wrong_sign=float(wrong.mean()),
        width=float(np.median(widths)),
        narrowest=float(np.median(widths, axis=0).min()),
        error=float(np.sqrt(np.mean(errors**2))),
        converged=float(np.mean([bool(post.converged) for post in posts] or [np.nan])),
        refused=len(messages) / len(seconds),
        seconds=_warm(seconds),
        first_seconds=seconds[0],
        by_number=by_number,
        messages=messages,
    )


def prediction(name, method, problem, scores, seconds=np.nan, settings=None):
    measure = "accuracy" if problem.family == "bernoulli" else "RMSE"
    scores = np.array(scores or [(np.nan, np.nan)])
    spread = np.full(2, np.nan)
    if len(scores) > 1:
        spread = scores.std(axis=0, ddof=1) / np.sqrt(len(scores))
    (error, density), (error_se, density_se) = scores.mean(axis=0).tolist(), spread.tolist()
    return Prediction(
        name, method, measure, error, error_se, density, density_se, seconds, settings or {}
    )


def baseline_predictions(name, problem, repeats, seed):
    """Lines of the baselines that fit this family, if there are any."""
    x, y = problem.design(problem.table), problem.truth(problem.table)
    if problem.family == "gaussian":
        middle, half = problem.bounds

        def score(found):
            coefficients = half * found + middle * (np.arange(len(found)) == 0)
            sigma = np.sqrt(np.mean((y - x @ coefficients) ** 2))
            return problem.score(coefficients[None], np.array([sigma]))

        found = baselines.linear(
            x, (y - middle) / half, BUDGET, repeats, seed, problem.longest, lambda each: score(each)[0]
        )  # fmt: skip
    elif problem.family == "bernoulli":

        def score(found):
            return problem.score(found[None])

        found = baselines.logistic(x, y, BUDGET, repeats, seed, lambda each: -score(each)[1])
    else:
        return
    for method, (fits, settings) in found.items():
        scores = [score(each) for each in fits]
        yield prediction(name, method, problem, scores, settings=settings)


def lines(name, source, repeats, seed):
    """All lines of a table, each as soon as it is known."""
    problem = Problem(source)

    def scores(posts):
        return [problem.score(*problem.coefficients(post)) for post in posts]

    began = time.process_time()
    exact = tacit.fit_without_privacy(problem.model, problem.table)
    seconds = time.process_time() - began
    plan = tacit.plan(problem.model, budget=BUDGET)
    fits = fitted(plan, problem.table, repeats, seed)
    yield agreement(name, problem, exact, fits)
    yield prediction(name, "default", problem, scores(fits[0]), _warm(fits[1]))
    yield prediction(name, "exact", problem, scores([exact]), seconds)
    plan = tacit.plan(problem.model, budget=BUDGET, method=tacit.Variational())
    posts, times, _ = fitted(plan, problem.table, repeats, seed)
    yield prediction(name, "Variational", problem, scores(posts), _warm(times))
    yield from baseline_predictions(name, problem, repeats, seed)


def markdown(found, repeats):
    """Both tables."""
    today = datetime.now(UTC).date().isoformat()
    parts = [f"Default settings, epsilon 1, {repeats} repeats, {today}, tacit {tacit.__version__}."]
    for kind in (Agreement, Prediction):
        rows = [each.cells() for each in found if isinstance(each, kind)]
        rows = [kind.HEADER, ["---"] * len(kind.HEADER), *rows]
        parts.append("\n".join(f"| {' | '.join(row)} |" for row in rows))
    return "\n\n".join(parts) + "\n"


def write(found, chosen):
    if chosen.markdown:
        chosen.markdown.write_text(markdown(found, chosen.repeats), encoding="utf-8")
    if chosen.json:
        plain = {
            "tacit": tacit.__version__,
            "epsilon": BUDGET.epsilon,
            "delta": BUDGET.delta,
            "repeats": chosen.repeats,
            "seed": chosen.seed,
            "agreement": [asdict(each) for each in found if isinstance(each, Agreement)],
            "prediction": [asdict(each) for each in found if isinstance(each, Prediction)],
        }
        chosen.json.write_text(json.dumps(plain, indent=1), encoding="utf-8")


def show(line):
    cells = zip(line.HEADER[1:], line.cells()[1:], strict=True)
    print(f"{line.table}: {', '.join(f'{head} {cell}' for head, cell in cells)}", flush=True)


def main(given=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tables", nargs="+", help="parts of names of tables")
    parser.add_argument("--markdown", type=Path, help="a file to write both tables to")
    parser.add_argument("--json", type=Path, help="a file to write everything to")
    chosen, found = parser.parse_args(given), []
    if chosen.repeats < 1 or chosen.seed < 0:
        parser.error("--repeats must be 1 or more, and --seed 0 or more.")
    known = sources(chosen.data)
    asked = [each.lower() for each in chosen.tables or [""]]
    if unknown := [a for a in asked if not any(a in name.lower() for name in known)]:
        parser.error(f"No table has {unknown[0]!r} in its name. Tables: {'; '.join(known)}.")
    for name, source in known.items():
        if not any(each in name.lower() for each in asked):
            continue
        try:
            for line in lines(name, source, chosen.repeats, chosen.seed):
                show(line)
                found.append(line)
                write(found, chosen)
        except ModuleNotFoundError as error:
            print(f"{name}: skipped, as {error.name} is not installed", flush=True)
    return found


if __name__ == "__main__":
    main()

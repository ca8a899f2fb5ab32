"""Whether a fit by default settings means what it says: coverage, width, error and time.

    python benchmarks/calibration.py --quick                       # a few small cells; a minute
    python benchmarks/calibration.py --models poisson crossed --sizes 1000 --epsilons 1 none
    python benchmarks/calibration.py --seed 7 --json lines.json --markdown table.md    # everything; days

Parameters are drawn from the prior and rows from the model. What `tacit.plan` chooses by default,
from public facts alone, is fitted to each table; the fits of a cell share a plan and a compiled
program. Epsilon "none" is the same method without noise. The exact posterior is by
`fit_without_privacy`: the mode, or NUTS where the posterior is far from normal, on fewer tables.

- "cover 90" and "cover 50" are the shares of numbers that intervals hold, and "worst 90" that of the
  number that is held least often.
- "over exact" is the error of posterior means over that of the exact ones: root mean squares, in
  standard deviations of the exact posterior. "over ideal" divides by sqrt(1 + s^2 d / N) more, for d
  numbers, N rows (people, or events if these are rare) and the noise s of one release on this budget.
- "width" is the median of interval widths over the exact ones. "narrowest" is the standard deviation
  over the exact one in the direction where this is smallest, in the median of the tables.
- "converged" and "misfit" are the shares of fits that say they have converged, and that outcomes do
  not suit the model. "seconds" are CPU seconds of a fit, in the median.
- "references" counts tables with an exact posterior, of which "unconverged" is not to be trusted.

Where the model is wrong about the tables, intervals should hold the exact posterior mean, which
stands for the truth; the error over exact is then sqrt(1 + distance^2), as if beside a truth.
With ``--json`` a run goes on where it ended: cells that the file has are not computed again.
"""

import argparse
import itertools
import json
import re
import sys
import time
import zlib
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from calibration_models import CASES, WRONG
from scipy.linalg import eigh

import tacit
from tacit.accounting import calibrate
from tacit.errors import TacitError
from tacit.inference.registry import METHODS_BY_COMMAND

DELTA = 1e-5
SIZES, EPSILONS = (300, 1000, 5000, 30_000), (0.3, 1.0, 3.0, None)
QUICK = {
    "models": ["logistic-3", "overdispersed"],
    "sizes": [300],
    "epsilons": [1.0, None],
    "repeats": 6,
}
SLOW = 5.0  # CPU seconds of a fit, beyond which a cell has fewer tables
# What a fit says if outcomes do not suit the model.
MISFIT = re.compile(
    r"model says|misfit|outlier|does not (fit|suit)|would fit better", re.IGNORECASE
)


@dataclass(frozen=True)
class Line:
    """A cell of the table."""

    model: str
    size: int
    epsilon: float | None
    repeats: int
    refused: int
    cover_90: float
    cover_50: float
    worst_90: float
    over_exact: float
    over_ideal: float
    width: float
    narrowest: float
    converged: float
    misfit: float
    seconds: float
    references: int
    unconverged: int

    @property
    def cell(self):
        """Which cell it is."""
        return self.model, self.size, self.epsilon


def seed_of(*parts):
    """A seed for each purpose, the same in every run."""
    return zlib.crc32(repr(parts).encode())


def scored(case, post):
    """Scores of all draws, [draws, numbers]."""
    draws = {name: np.asarray(value) for name, value in post.model_draws.items()}
    return np.asarray(_score(case)(draws), np.float64)


@cache
def _score(case):
    return jax.jit(jax.vmap(case.score))


class Table(NamedTuple):
    """Rows, the parameters that made them, and draws of the exact posterior if it was computed."""

    rows: dict
    truth: np.ndarray
    exact: np.ndarray | None
    sure: bool


class Tables:
    """The tables of a model and size, made when they are asked for."""

    def __init__(self, name, size, references, seed):
        self.name, self.size, self.seed, self.made = name, size, seed, []
        self.case = CASES[name]()
        self.by_nuts = size < self.case.nuts_below
        self.references = references if self.by_nuts else np.inf
        self.reference = self.plan(None, model=self.case.reference and self.case.reference(size))

    def plan(self, epsilon, *, method=None, declared=False, model=None):
        """What is chosen by public facts alone."""
        return tacit.plan(
            self.case.model if model is None else model,
            self.case.schema,
            budget=tacit.Budget(1.0 if epsilon is None else epsilon, DELTA),
            method=None if method is None else METHODS_BY_COMMAND[method].kind(),
            size=self.size if declared else None,
        )

    def __getitem__(self, i):
        while len(self.made) <= i:
            rng = np.random.default_rng(seed_of(self.name, self.size, len(self.made), self.seed))
            truth, rows = self.case.draw(rng, self.size)
            exact, sure = None, True
            if len(self.made) < self.references:
                method = "nuts" if self.by_nuts else None
                post = tacit.fit_without_privacy(self.reference, rows, method=method)
                exact, sure = scored(self.case, post), bool(post.converged)
            self.made.append(Table(rows, np.asarray(self.case.score(truth)), exact, sure))
        return self.made[i]


class Fit(NamedTuple):
    """A fit beside its table; what needs the exact posterior is None where there is none."""

    seconds: float
    converged: bool
    misfit: bool
    held: np.ndarray  # by 90% and 50% intervals, [2, numbers]
    squares: np.ndarray | None  # mean square errors: the fit's, the exact and the ideal one
    widths: np.ndarray | None
    narrowest: float | None


def fit(tables, plan, epsilon, i, seed):
    table, case = tables[i], tables.case
    seed = seed_of("noise", tables.name, tables.size, epsilon, i, seed)
    began = time.process_time()
    if epsilon is None:
        post = tacit.fit_without_privacy(plan, table.rows, method=plan.method, seed=seed)
    else:
        post = tacit.fit(plan, table.rows, seed=seed)
    seconds = time.process_time() - began
    draws, exact = scored(case, post), table.exact
    target = exact.mean(axis=0) if tables.name in WRONG else table.truth
    low, middle, high = np.split(np.quantile(draws, [0.05, 0.25, 0.75, 0.95], axis=0), [1, 3])
    held = [(low[0] <= target) & (target <= high[0]), (middle[0] <= target) & (target <= middle[1])]
    found = seconds, bool(post.converged), any(map(MISFIT.search, post.messages)), np.array(held)
    if exact is None:
        return Fit(*found, None, None, None)
    own, best = (
        (tables.name in WRONG) + (((each.mean(axis=0) - target) / exact.std(axis=0)) ** 2).mean()
        for each in (draws, exact)
    )
    noise = noise_of(epsilon) ** 2 * plan.model.dimension / case.informative(table.rows)
    widths = (high - low)[0] / np.ptp(np.quantile(exact, [0.05, 0.95], axis=0), axis=0)
    squares = np.array([own, best, best * (1 + noise)])
    return Fit(*found, squares, widths, narrowest(draws, exact))


@cache
def noise_of(epsilon):
    """The noise of one release of everybody's data, by its sensitivity."""
    if epsilon is None:
        return 0.0
    return calibrate.noise_multiplier(tacit.Budget(epsilon, DELTA), sampling_rate=1.0, num_steps=1)


def narrowest(draws, exact):
    """The smallest ratio of standard deviations over all directions.

    Among many directions one looks narrow by chance: it is chosen by half of the draws, and measured
    by the other half.
    """
    found = []
    for here, there in ((0, 1), (1, 0)):
        ours, theirs = (np.array_split(each, 2) for each in (draws, exact))
        covariances = (np.atleast_2d(np.cov(each[here].T)) for each in (ours, theirs))
        direction = eigh(*covariances)[1][:, 0]
        found.append(np.std(ours[there] @ direction) / np.std(theirs[there] @ direction))
    return float(np.mean(found))


def cell(tables, epsilon, chosen):
    """One line of the table."""
    plan = tables.plan(epsilon, method=chosen.method, declared=chosen.declared)
    fits, refused = [], 0
    while len(fits) + refused < chosen.repeats:
        if len(fits) >= chosen.fewest and np.median([each.seconds for each in fits]) > SLOW:
            break
        i = len(fits) + refused
        tables[i]  # an error here is none of the fit
        try:
            fits.append(fit(tables, plan, epsilon, i, chosen.seed))
        except TacitError as error:  # a table that cannot teach anything, say
            refused += 1
            print(f"{tables.name}, {tables.size:,} rows: {error}", file=sys.stderr, flush=True)
    known = [each for each in fits if each.squares is not None]
    if not known:
        return Line(tables.name, tables.size, epsilon, refused, refused, *[np.nan] * 10, 0, 0)
    own, exact, ideal = np.sqrt(np.mean([each.squares for each in known], axis=0))
    held = np.mean([each.held for each in fits], axis=0)
    return Line(
        model=tables.name,
        size=tables.size,
        epsilon=epsilon,
        repeats=len(fits) + refused,
        refused=refused,
        cover_90=float(held[0].mean()),
        cover_50=float(held[1].mean()),
        worst_90=float(held[0].min()),
        over_exact=float(own / exact),
        over_ideal=float(own / ideal),
        width=float(np.median([each.widths for each in known])),
        narrowest=float(np.median([each.narrowest for each in known])),
        converged=float(np.mean([each.converged for each in fits])),
        misfit=float(np.mean([each.misfit for each in fits])),
        seconds=float(np.median([each.seconds for each in fits])),
        references=len(known),
        unconverged=sum(not each.sure for each in tables.made),
    )


class Bar(NamedTuple):
    """What is asked of a number in so large a share of the lines that a bar is for."""

    text: str
    lines: Callable[[Line], bool]
    value: str
    passes: Callable[[Line], bool]
    share: float = 1.0

    def verdict(self, lines):
        """Whether it is met, and where not; cells without a fit are left out."""
        lines = [each for each in lines if self.lines(each) and each.references]
        failed = [each for each in lines if not self.passes(each)]
        passed = len(lines) - len(failed)
        met = "met" if passed >= self.share * len(lines) else "NOT MET"
        met = met if lines else "not tried"
        where = "; ".join(
            f"{each.model} {each.size:,} {kind(each.epsilon)}: {getattr(each, self.value):.2f}"
            for each in failed
        )
        asked = "all" if self.share == 1 else f"{self.share:.0%}"
        return f"{met}: {self.text}, in {passed} of {len(lines)} cells ({asked}){where and '. Not in '}{where}"


def is_wrong(line):
    return line.model in WRONG


def at_1_or_3(line):
    return line.epsilon in {1.0, 3.0} and not is_wrong(line)


BARS = [
    Bar(
        "epsilon 1 and 3: 90% intervals hold .85 to .95",
        at_1_or_3,
        "cover_90",
        lambda line: 0.85 <= line.cover_90 <= 0.95,
        0.9,
    ),
    Bar("... and never below .80", at_1_or_3, "cover_90", lambda line: line.cover_90 >= 0.8),
    Bar(
        "... 50% intervals hold .42 to .60",
        at_1_or_3,
        "cover_50",
        lambda line: 0.42 <= line.cover_50 <= 0.6,
        0.9,
    ),
    Bar(
        "... error at most 1.3 times the ideal",
        at_1_or_3,
        "over_ideal",
        lambda line: line.over_ideal <= 1.3,
        0.9,
    ),
    Bar("... and never above 2", at_1_or_3, "over_ideal", lambda line: line.over_ideal <= 2),
    Bar(
        "... as wide as the exact posterior in all directions (.95)",
        at_1_or_3,
        "narrowest",
        lambda line: line.narrowest >= 0.95,
    ),
    Bar(
        "epsilon .3: 90% intervals hold .85 or more",
        lambda line: line.epsilon == 0.3 and not is_wrong(line),
        "cover_90",
        lambda line: line.cover_90 >= 0.85,
    ),
    Bar(
        "no noise: error at most 1.05 times exact",
        lambda line: line.epsilon is None and not is_wrong(line),
        "over_exact",
        lambda line: line.over_exact <= 1.05,
    ),
    Bar(
        "misfit is claimed of a right model in at most .05",
        lambda line: not is_wrong(line),
        "misfit",
        lambda line: line.misfit <= 0.05,
    ),
    Bar(
        "wrong model: 90% intervals hold .85 of exact means, or misfit is mentioned in .80",
        is_wrong,
        "cover_90",
        lambda line: line.cover_90 >= 0.85 or line.misfit >= 0.8,
    ),
]


def kind(epsilon):
    return "none" if epsilon is None else f"{epsilon:g}"


def words(line):
    """The cell as text."""
    return [
        kind(value)
        if name == "epsilon"
        else f"{value:.2f}"
        if isinstance(value, float)
        else f"{value:,}"
        if isinstance(value, int)
        else value
        for name, value in asdict(line).items()
    ]


HEADER = [each.name.replace("_", " ") for each in fields(Line)]


def about(chosen):
    """What lines must have in common to stand in one table."""
    return {
        "method": chosen.method or "default",
        "declared size": chosen.declared,
        "delta": DELTA,
        "seed": chosen.seed,
    }


def markdown(lines, chosen):
    today = datetime.now(UTC).date().isoformat()
    facts = ", ".join(f"{name} {value}" for name, value in about(chosen).items())
    rows = [HEADER, ["---"] * len(HEADER), *map(words, lines)]
    table = [f"| {' | '.join(row)} |" for row in rows]
    bars = [f"- {bar.verdict(lines)}" for bar in BARS]
    return "\n".join([f"{today}, tacit {tacit.__version__}, {facts}.", "", *table, "", *bars, ""])


def finished(files, chosen):
    """The lines of other runs, or of this one before it ended."""
    lines = {}
    for path in files:
        held = json.loads(path.read_text())
        if held["about"] != about(chosen):
            raise SystemExit(f"{path} is of another run: {held['about']}.")
        lines |= {line.cell: line for line in (Line(**each) for each in held["lines"])}
    return lines


def epsilon_of(text):
    return None if text == "none" else float(text)


def arguments(given=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES)
    parser.add_argument("--epsilons", nargs="+", type=epsilon_of, default=EPSILONS)
    parser.add_argument("--repeats", type=int, default=40, help="tables in each cell")
    parser.add_argument("--fewest", type=int, default=10, help=f"if a fit takes over {SLOW:g} s")
    parser.add_argument("--references", type=int, default=20, help="tables with a run of NUTS")
    parser.add_argument(
        "--method", choices=METHODS_BY_COMMAND, help="by default what a plan chooses"
    )
    parser.add_argument("--declared", action="store_true", help="plan with the number of rows")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="a few small cells")
    parser.add_argument("--markdown", type=Path, help="a file to write the table to")
    parser.add_argument("--json", type=Path, help="a file of finished cells, to go on with")
    parser.add_argument("--also", type=Path, nargs="+", default=[], help="such files of other runs")
    chosen = parser.parse_args(given)
    if chosen.quick:
        vars(chosen).update(QUICK)
    numbers = *chosen.sizes, chosen.repeats, chosen.fewest, chosen.references
    if min(numbers) < 1 or chosen.seed < 0:
        parser.error("numbers of rows and tables must be at least 1, and the seed at least 0.")
    return chosen


def main(given=None):
    chosen, lines = arguments(given), []
    done = finished([p for p in (chosen.json, *chosen.also) if p and p.exists()], chosen)
    print(" ".join(f"{each:>11}" for each in HEADER))
    for name, size in itertools.product(chosen.models, chosen.sizes):
        tables = None
        for epsilon in chosen.epsilons:
            line = done.get((name, size, epsilon))
            if line is None:
                tables = tables or Tables(name, size, chosen.references, chosen.seed)
                line = cell(tables, epsilon, chosen)
            lines.append(line)
            print(" ".join(f"{each:>11}" for each in words(line)), flush=True)
            if chosen.json:
                held = {line.cell: line for line in (*done.values(), *lines)}.values()
                text = {"about": about(chosen), "lines": [asdict(each) for each in held]}
                chosen.json.write_text(json.dumps(text, indent=1))
            if chosen.markdown:
                chosen.markdown.write_text(markdown(lines, chosen))
        jax.clear_caches()
    print(*(bar.verdict(lines) for bar in BARS), sep="\n")
    return lines


if __name__ == "__main__":
    main()

"""Whether a fit by default settings means what it says: coverage, width, error and time.

    python benchmarks/calibration.py --quick                       # a few small cells; a minute
    python benchmarks/calibration.py --models poisson --sizes 2000 --epsilons 1 none
    python benchmarks/calibration.py --markdown table.md           # everything; many hours

Parameters are drawn from the prior and rows from the model. What `tacit.plan` chooses by default,
from public facts alone, is fitted to each table; tables of a cell go through one compiled program.
"cover" is the share of numbers that 50% and 90% intervals hold; "width" the median of the 90%
intervals'; "error" the root mean square of posterior mean less truth. Beside it are its ratios to
that of the exact posterior mean (`fit_without_privacy`: the mode, or NUTS where the posterior is
far from normal, on fewer tables) and to an ideal: the exact mode moved by noise
as it would be if the curvature were known and all the budget went into one gradient, clipped at
the square root of the dimension without harm. Epsilon "none" is the same method without noise. ``--method`` takes another method of the command line's menu instead
of the default.
"""

import argparse
import time
import zlib
from dataclasses import astuple, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path

import jax
import numpy as np
from calibration_models import CASES

import tacit
from tacit.accounting import calibrate
from tacit.inference.methods import COMMANDS
from tacit.interfaces.fit import fit_many
from tacit.interfaces.rows import rows_of

DELTA = 1e-5
SIZES, EPSILONS = (500, 2000, 10_000, 50_000), (0.3, 1.0, 3.0, None)
QUICK = {"models": ["logistic-3", "linear"], "sizes": [300], "epsilons": [1.0, None], "repeats": 6}
_MOST_ROWS = 2_000_000  # side by side in one program


@dataclass(frozen=True)
class Line:
    """A cell of the table; ``over_ideal`` is NaN where no ideal is known."""

    model: str
    size: int
    epsilon: float | None
    repeats: int
    cover_50: float
    cover_90: float
    width: float
    error: float
    over_exact: float
    over_ideal: float
    seconds: float
    references: int
    unconverged: int


def seed_of(*parts):
    """A seed for each purpose, the same in every run."""
    return zlib.crc32(repr(parts).encode())


def scored(case, post):
    """Scores of all draws, [draws, numbers]."""
    draws = {name: np.asarray(value) for name, value in post.draws.items()}
    return np.asarray(_score(case)(draws))


def _score(case):
    if case not in _SCORES:
        _SCORES[case] = jax.jit(jax.vmap(case.score))
    return _SCORES[case]


_SCORES = {}


@dataclass
class Tables:
    """The tables of a model and size, their truths, and the exact posterior of each."""

    case: object
    model: object
    rows: list
    truth: np.ndarray
    exact: np.ndarray  # means
    gains: np.ndarray | None  # variance of each score for a unit of noise in the gradient
    unconverged: int


def made(name, size, repeats, references, seed):
    case = CASES[name]()
    plan = tacit.plan(case.model, case.schema, budget=tacit.Budget(1, DELTA))
    model, rows, truth = plan.model, [], []
    for i in range(repeats):
        values, table = case.draw(np.random.default_rng(seed_of(name, size, i, seed)), size)
        rows.append(rows_of(model, case.schema, table))
        truth.append(np.asarray(case.score(values)))
    exact, gains, lost = [], [], 0
    for i in range(min(repeats, references) if case.by_nuts else repeats):
        post = exact_fit(case, model, rows[i])
        lost += not post.converged
        exact.append(scored(case, post).mean(axis=0))
        if not case.by_nuts:
            gains.append(gain(case, model, post))
    gained = np.array(gains) if gains else None
    return Tables(case, model, rows, np.array(truth), np.array(exact), gained, lost)


def exact_fit(case, model, rows):
    method = "nuts" if case.by_nuts else None
    return tacit.fit_without_privacy(model, rows, method=method)


def gain(case, model, post):
    """How much each score's variance grows by unit noise in the gradient, solved by the curvature."""
    if model not in _SLOPES:
        _SLOPES[model] = jax.jit(
            jax.jacfwd(lambda v, c: case.score(model.constrain(v, c)), argnums=0)
        )
    slope = np.asarray(_SLOPES[model](post.unconstrained_mean.astype(np.float32), model.constants))
    return ((slope @ post.unconstrained_covariance) ** 2).sum(axis=1)


_SLOPES = {}


def fitted(tables, name, size, epsilon, seed, asked=None):
    """One posterior for each table, by what a plan chooses or was asked for, and seconds for each."""
    case, model = tables.case, tables.model
    began = time.perf_counter()
    budget = tacit.Budget(1.0 if epsilon is None else epsilon, DELTA)
    method = None if asked is None else COMMANDS[asked].kind()
    method = tacit.plan(case.model, case.schema, budget=budget, method=method).method
    seeds = [seed_of("noise", name, size, epsilon, i, seed) for i in range(len(tables.rows))]
    if epsilon is None:
        posts = [
            tacit.fit_without_privacy(model, rows, method=method, seed=each)
            for rows, each in zip(tables.rows, seeds, strict=True)
        ]
    else:
        together = max(1, _MOST_ROWS // size)
        posts = []
        for start in range(0, len(seeds), together):
            some = tables.rows[start : start + together]
            chosen = seeds[start : start + together]
            posts += fit_many(model, some, [budget] * len(some), method, seeds=chosen)
    return posts, (time.perf_counter() - began) / len(posts)


def ideal(tables, epsilon):
    """The root mean square error of the ideal, on the tables with a reference."""
    squares = (tables.exact - tables.truth[: len(tables.exact)]) ** 2
    if tables.gains is None:
        return np.nan
    if epsilon is None:
        return np.sqrt(squares.mean())
    budget = tacit.Budget(epsilon, DELTA)
    noise = calibrate.noise_multiplier(budget, sampling_rate=1.0, num_steps=1)
    return np.sqrt((squares + noise**2 * tables.model.dimension * tables.gains).mean())


def cell(tables, name, size, epsilon, seed, asked=None):
    posts, seconds = fitted(tables, name, size, epsilon, seed, asked)
    scores = np.array([scored(tables.case, post) for post in posts])  # [fits, draws, numbers]
    truth, known = tables.truth, len(tables.exact)
    ends = np.quantile(scores, [0.05, 0.25, 0.75, 0.95], axis=1)
    inside = [(ends[i] <= truth) & (truth <= ends[3 - i]) for i in range(2)]
    off = scores.mean(axis=1) - truth
    exact = np.sqrt(((tables.exact - truth[:known]) ** 2).mean())
    same = np.sqrt((off[:known] ** 2).mean())
    return Line(
        model=name,
        size=size,
        epsilon=epsilon,
        repeats=len(posts),
        cover_50=float(inside[1].mean()),
        cover_90=float(inside[0].mean()),
        width=float(np.median(ends[3] - ends[0])),
        error=float(np.sqrt((off**2).mean())),
        over_exact=float(same / exact),
        over_ideal=float(same / ideal(tables, epsilon)),
        seconds=seconds,
        references=known,
        unconverged=tables.unconverged,
    )


def words(line):
    """The cell as text."""
    kinds = {"size": ",", "cover_50": ".2f", "cover_90": ".2f", "width": ".3g", "error": ".3g"}
    kinds |= {"over_exact": ".2f", "over_ideal": ".2f", "seconds": ".2f"}
    pairs = zip((each.name for each in fields(line)), astuple(line), strict=True)
    return [
        "none" if value is None else "-" if value != value else format(value, kinds.get(name, ""))  # noqa: PLR0124
        for name, value in pairs
    ]


HEADER = [each.name.replace("_", " ") for each in fields(Line)]


def markdown(lines, chosen):
    today = datetime.now(UTC).date().isoformat()
    about = f"{today}, tacit {tacit.__version__}, seed {chosen.seed}, delta {DELTA:g}."
    rows = [HEADER, ["---"] * len(HEADER), *map(words, lines)]
    return "\n".join(
        [
            f"{chosen.method or 'Default method'}, default settings, {about}",
            "",
            *(f"| {' | '.join(r)} |" for r in rows),
            "",
        ]
    )


def epsilon_of(text):
    return None if text == "none" else float(text)


def arguments(given=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES)
    parser.add_argument("--epsilons", nargs="+", type=epsilon_of, default=EPSILONS)
    parser.add_argument("--repeats", type=int, default=200, help="tables in each cell")
    parser.add_argument("--references", type=int, default=24, help="tables with a run of NUTS")
    parser.add_argument("--method", choices=COMMANDS, help="by default what a plan chooses")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="a few small cells")
    parser.add_argument("--markdown", type=Path, help="a file to write the table to")
    chosen = parser.parse_args(given)
    if chosen.quick:
        vars(chosen).update(QUICK)
    if min(*chosen.sizes, chosen.repeats, chosen.references) < 1 or chosen.seed < 0:
        parser.error("sizes, repeats and references must be at least 1, and the seed at least 0.")
    return chosen


def main(given=None):
    chosen, lines = arguments(given), []
    print(" ".join(f"{each:>12}" for each in HEADER))
    for name in chosen.models:
        for size in chosen.sizes:
            tables = made(name, size, chosen.repeats, chosen.references, chosen.seed)
            for epsilon in chosen.epsilons:
                lines.append(cell(tables, name, size, epsilon, chosen.seed, chosen.method))
                print(" ".join(f"{each:>12}" for each in words(lines[-1])), flush=True)
                if chosen.markdown:
                    chosen.markdown.write_text(markdown(lines, chosen))
    return lines


if __name__ == "__main__":
    main()

"""Nothing that follows rows leaves but by a release: with the sums cut out of all releases, nothing differs.

A release is noise added to a sum over units, or a draw whose probabilities follow such a sum. Here those sums are
zero, while noise, draws and all that is public stay. Fits to neighbouring tables, with the same keys of randomness,
must then agree to the bit in everything that they return, write, print, log or warn of. What differs was computed
from rows outside a release.
"""

import dataclasses
import functools
import io
import json
import logging
import re
import secrets
import sys
import warnings
from collections.abc import Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest

import tacit
from tacit import conjugate
from tacit.accounting import ledger as ledger_module
from tacit.cli import runs
from tacit.cli.main import main
from tacit.errors import InvalidArgument, TacitError
from tacit.federated import journal
from tacit.methods import (
    BoundedLikelihood,
    ChainSampler,
    ConjugateSampler,
    GridSampler,
    LipschitzLikelihood,
    LogConcave,
    LogisticRejection,
)
from tacit.models import Parameter
from tacit.models.base import UnitModel
from tacit.privacy import mechanisms, noise
from tacit.privacy.one_draw import chain, exact, logistic

interfaces_fit = sys.modules[tacit.fit.__module__]
BUDGET = tacit.Budget(2, 1e-5)
REPLACE = tacit.Budget(2, 1e-5, "replace")
COLUMNS = {
    "age": tacit.Number(18, 90),
    "ward": tacit.Category(["a", "b"], other="other"),
    "yes": tacit.Binary(),
    "money": tacit.Number(0, 100),
}
SCHEMA = tacit.Schema(COLUMNS)
PEOPLE = tacit.Schema(COLUMNS, person="who", most_rows=2)
NEW = {"age": [30.0, 60.0], "ward": ["a", "b"]}
SIZE = 40
SOON = "2030-01-01T00:00:00+00:00"


# Tables and their neighbours ------------------------------------------------------------------


def table():
    generator = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "age": generator.uniform(18, 90, SIZE),
            "ward": pd.Series(generator.choice(["a", "b", "c"], SIZE), dtype=object),
            "yes": pd.Series(generator.integers(0, 2, SIZE), dtype=object),
            "money": generator.uniform(0, 100, SIZE),
            "who": pd.Series([f"person {i // 2}" for i in range(SIZE)], dtype=object),
        }
    )


def with_first(**cells):
    """The table with other cells in its first row."""
    changed = table()
    for name, cell in cells.items():
        changed.loc[0, name] = cell
    return changed


def with_more(*people):
    """The table with a row more for each of some people."""
    last = [{"age": 77.7, "ward": "b", "yes": 1, "money": 99.9, "who": who} for who in people]
    more = pd.DataFrame(last).astype(table().dtypes.to_dict())
    return pd.concat([table(), more], ignore_index=True)


def far_away():
    """The table with a row more, and other first ones."""
    changed = with_more("person 99")
    for row, cells in enumerate((WILD, NOTHING)):
        for name, cell in cells.items():
            changed.loc[row, name] = cell
    return changed


OTHER = {"age": 88.8, "ward": "b", "yes": 1, "money": 99.9}
WILD = {"age": 1e308, "ward": "Smith, 41.5", "yes": 7, "money": -np.inf}
NOTHING = {"age": np.nan, "ward": None, "yes": None, "money": np.nan}
REPLACED = {"another row": OTHER, "extreme cells": WILD, "no cells": NOTHING}
NEIGHBOURS = {
    "one row more": lambda: with_more("person 99"),
    **{name: functools.partial(with_first, **cells) for name, cells in REPLACED.items()},
}
OF_PEOPLE = {
    **NEIGHBOURS,
    "a person of many rows": lambda: with_more(*["person 99"] * 5),
    "a row without a person": lambda: with_first(who=None),
}
OF_SAME_SIZE = {name: NEIGHBOURS[name] for name in REPLACED}


# What is compared -----------------------------------------------------------------------------


def forget():
    """Programs that were compiled go, as they have the sums in them or have not."""
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] == "tacit":
            for value in list(vars(module).values()):
                if isinstance(value, functools._lru_cache_wrapper):
                    value.cache_clear()
    jax.clear_caches()


@contextmanager
def cut_sums():
    """Sums over units are zero, in every release of this process."""
    whole, ratios, decided = (
        mechanisms.partial_sums,
        mechanisms.partial_ratio_sums,
        mechanisms.batch_barker_decision,
    )
    summed, units_of = exact._total_scores, chain._all_units

    def no_scores(*given):
        totals, reference = summed(*given)
        return np.zeros_like(totals), reference

    def no_units(rows):
        here, *others = units_of(rows)
        return jnp.zeros_like(here), *others

    def of_nobody(function):
        def cut(units, here, *rest):
            return function(units, jnp.zeros_like(here), *rest)

        cut.whole = function
        return cut

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mechanisms, "partial_sums", of_nobody(whole))
        patch.setattr(mechanisms, "partial_ratio_sums", of_nobody(ratios))
        patch.setattr(mechanisms, "batch_barker_decision", of_nobody(decided))
        patch.setattr(exact, "_total_scores", no_scores)
        patch.setattr(exact, "_sufficient_statistic", lambda *_: (0, 0))
        patch.setattr(logistic, "_signed_rows", lambda _, of: np.zeros((0, of.dimension)))
        patch.setattr(chain, "_all_units", no_units)
        forget()
        yield
    forget()


@pytest.fixture(scope="module", autouse=True)
def _cut():
    with cut_sums(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledger_module, "datetime", SimpleNamespace(now=lambda _: Fixed()))
        patch.setattr(runs, "datetime", SimpleNamespace(now=lambda _: Fixed()))
        yield


class Fixed:
    """A time that is always the same."""

    def isoformat(self, **_):
        return SOON


class Keys:
    """The same keys of randomness for every fit."""

    def __init__(self):
        self.drawn = 0

    def urandom(self, size):
        self.drawn += 1
        return np.random.default_rng(self.drawn).bytes(size)


def plain(value):
    """A value as something that can be compared to the bit, whatever is in it."""
    if isinstance(value, UnitModel):
        value = value.constants
    if isinstance(value, tacit.Posterior):
        value = {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if hasattr(value, "__array__"):
        array = np.asarray(value)
        content = array.tolist() if array.dtype == object else array.tobytes()
        return str(array.dtype), array.shape, content
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


def of_posterior(posterior, folder):
    """All that a posterior holds, says and writes."""
    statement, summary = posterior.privacy, posterior.summary()
    posterior.save(folder / "saved.nc")
    posterior.report(folder / "report", settings={"data": "data.csv"})
    tree = posterior.to_datatree()
    return {
        "posterior": plain(posterior),
        "shown": repr(posterior) + posterior._repr_html_(),
        "course": (posterior.course, posterior.warnings),
        "statement": (str(statement), repr(statement), statement._repr_html_()),
        "statement as JSON": statement.to_json(),
        "statement as a registry's entry": str(statement.to_registry()),
        "summary": (str(summary), summary._repr_html_(), plain(posterior.in_units().draws)),
        "tree": {node.path: node.to_dataset().to_dict() for node in tree.subtree},
    }


def of_folder(folder):
    """All files below a folder, by their bytes."""
    return {
        f"file {path.relative_to(folder)}": path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def observed(fit, rows, folder):
    """All that somebody can see of a fit who does not see its rows. An error is an output, too."""
    folder.mkdir()
    lines, streams = io.StringIO(), (io.StringIO(), io.StringIO())
    handler, root = logging.StreamHandler(lines), logging.getLogger()
    keys = SimpleNamespace(urandom=Keys().urandom, getpid=noise.os.getpid)
    level = root.level
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for module in (journal, noise):
            patch.setattr(module, "os", keys)
        patch.setattr(secrets, "token_hex", lambda size: keys.urandom(size).hex())
        patch.setattr("sys.stdout", streams[0])
        patch.setattr("sys.stderr", streams[1])
        patch.chdir(folder)
        root.addHandler(handler)
        root.setLevel(logging.DEBUG)
        try:
            found = fit(rows, folder)
        except TacitError as error:
            found = {"error": repr(error)}
        finally:
            root.removeHandler(handler)
            root.setLevel(level)
    # How long JAX took is not what it did; and in keys of its cache are counters of its own.
    own = r".*(persistent cache entry|to compile).*|in [\d.e-]+ sec|[0-9a-f]{64}"
    logged = re.sub(own, "", lines.getvalue())
    said = [(str(each.message), each.category.__name__) for each in warned]
    streamed = {"printed": streams[0].getvalue(), "on standard error": streams[1].getvalue()}
    all_of_it = {**found, **of_folder(folder), **streamed, "logged": logged, "warned": said}
    return json.loads(json.dumps(all_of_it, default=repr).replace(str(folder), "FOLDER"))


def differing(one, other):
    """Names of what is not the same; of logs, what only the other has: the first fit compiles."""
    names = sorted((one.keys() | other.keys()) - {"logged"})
    told = set(other["logged"].splitlines()) - set(one["logged"].splitlines())
    return [name for name in names if one.get(name) != other.get(name)] + sorted(told)


def leaks(fit, neighbours, folder):
    """What differs between a fit to the table and one to a neighbour, and to which."""
    base = observed(fit, table(), folder / "the table")
    assert "error" not in base, base
    return {
        name: found
        for name, made in neighbours.items()
        if (found := differing(base, observed(fit, made(), folder / name)))
    }


# The fits -------------------------------------------------------------------------------------


def fitted(model, method, rows, folder, *, schema=SCHEMA, budget=BUDGET, new=NEW):
    """Fits with a ledger, in a folder that keeps the run, and predicts public rows."""
    ledger = tacit.Ledger.new(
        folder / "ledger.db",
        total=tacit.Budget(9, 1e-3, budget.adjacency),
        unit="row" if schema is None or schema.person is None else "person",
    )
    posterior = tacit.fit(
        model, rows, schema=schema, budget=budget, method=method, ledger=ledger, run=folder / "run"
    )
    found = of_posterior(posterior, folder)
    if new is not None:
        found["predictions"] = plain(posterior.predict(new, kind="draws"))
    found["ledger"] = repr(ledger.charges) + repr(ledger.left)
    for each in folder.glob("ledger.db*"):  # SQLite's own pages
        each.unlink()
    return found


def by_formula(method, formula="yes ~ age + ward", schema=SCHEMA, **given):
    return functools.partial(
        fitted, tacit.glm(formula, schema=schema), method, schema=schema, **given
    )


def of_arrays(model, method, arrays, **given):
    """A model that takes `tacit.Rows`: arrays of float32, NaN where a cell is no number."""

    def fit(frame, folder):
        columns = {
            name: np.array([pd.to_numeric(cells, errors="coerce") for cells in frame[name]])
            for name in ("age", "yes")
        }
        rows = tacit.Rows(arrays(columns))
        return fitted(model, method, rows, folder, schema=None, new=None, **given)

    return fit


def in_numpyro(age, ward, yes=None):
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    with numpyro.plate("wards", 3):
        effect = numpyro.sample("effect", dist.Normal(0.0, 1.0))
    with numpyro.plate("rows", age.shape[0]):
        numpyro.sample("yes", dist.Bernoulli(logits=slope * age / 50 + effect[ward]), obs=yes)


def in_pymc(frame, folder):
    """The containers of the model hold the private rows, as they would in a notebook."""
    pm = pytest.importorskip("pymc")
    numbers = [
        np.nan_to_num(pd.to_numeric(frame[name], errors="coerce").to_numpy(float))  # as PyMC asks
        for name in ("age", "yes")
    ]
    with pm.Model() as model:
        age, yes = (
            pm.Data(n, each, dims="row") for n, each in zip(("age", "yes"), numbers, strict=True)
        )
        slope, shift = pm.Normal("slope", 0, 1), pm.Normal("shift", 0, 1)
        pm.Bernoulli("outcome", logit_p=shift + slope * age / 50, observed=yes, dims="row")
    return fitted(model, tacit.Variational(num_steps=5), frame, folder, new=None)


def with_estimator(kind, **settings):
    def fit(frame, folder):
        estimator = kind(
            bounds=(0, 100),
            preprocessing="none",
            ledger=tacit.Ledger.new(folder / "ledger.db", total=tacit.Budget(9, 1e-3)),
            method=tacit.Variational(num_steps=5),
            **settings,
        )
        features = frame[["age", "money"]]
        estimator.fit(features, frame["yes"])
        found = of_posterior(estimator.posterior_, folder)
        public = pd.DataFrame({"age": [20.0, 70.0], "money": [10.0, 90.0]})
        found["estimator"] = {
            name: plain(value) for name, value in vars(estimator).items() if name != "ledger"
        }
        found["predictions"] = plain(estimator.predict(public))
        for each in folder.glob("ledger.db*"):
            each.unlink()
        return found

    return fit


def by_command(*options, formula="yes ~ age + ward", schema=SCHEMA):
    """A run by the command line; all files of its folder, and what it prints."""

    def fit(frame, folder):
        frame.to_csv(folder / "data.csv", index=False)
        schema.to_yaml(folder / "schema.yaml")
        unit = "row" if schema.person is None else "person"
        book = f"ledger new book.db --epsilon 9 --delta 1e-3 --unit {unit}"
        given = "--schema schema.yaml --epsilon 2 --delta 1e-5 --yes --ledger book.db --out run"
        codes = [
            main(book.split()),
            main(["fit", "data.csv", *given.split(), "--formula", formula, *options]),
            main(["report", "run", "--out", "again"]),
            main(["explain", "run"]),
            main(["ledger", "show", "book.db"]),
        ]
        for each in [folder / "data.csv", *folder.glob("book.db*")]:
            each.unlink()
        return {
            "codes": codes,
            "posterior": plain(tacit.Posterior.load(folder / "run/posterior.nc")),
        }

    return fit


def around_a_fit(schema):
    """A check and a score of a posterior, and a comparison, on one ledger."""

    def use(frame, folder):
        book = folder / "book.db"
        ledger = tacit.Ledger.new(book, total=tacit.Budget(9, 1e-3), unit=schema.unit)
        given = {"budget": BUDGET, "ledger": ledger}
        model = tacit.glm("yes ~ age + ward", schema=schema)
        post = tacit.fit(model, frame, method=tacit.Scoring(**SHORT, check_count=False), **given)
        check = tacit.check(post, frame, by=["age", "money"], **given)
        check.report(folder / "check")
        score = post.score(frame, **given)
        models = [model, tacit.glm("yes ~ age", schema=schema)]
        compared = tacit.compare(models, frame, **given, progress=False)
        found = {
            "check": str(check) + repr(check) + check.to_json(),
            "score": str(score) + repr(score) + score.to_json(),
            "comparison": str(compared) + repr(compared) + compared.to_json(),
            "posteriors": [plain(each) for each in compared.posteriors.values()],
            "ledger": repr(ledger.charges) + repr(ledger.left),
        }
        for each in folder.glob("book.db*"):
            each.unlink()
        return found

    return use


RATE = tacit.Model(
    parameters={"w": Parameter((1,))},
    log_prior=lambda p: -0.5 * jnp.sum(p["w"] ** 2),
    log_likelihood=lambda p, row: (
        -jnp.logaddexp(0.0, -(2 * row["y"] - 1) * jnp.dot(row["x"], p["w"]))
    ),
)


def signed(columns):
    """Features of one number, which is at most one for a row as it should be, and an outcome."""
    with np.errstate(over="ignore"):
        age = columns["age"].astype(np.float32)
    return {"x": age[:, None] / 90, "y": columns["yes"].astype(np.float32)}


GRID = GridSampler(low={"w": [-2.0]}, high={"w": [2.0]}, points=40)
ENDS = {"low": {"probability": 0.05}, "high": {"probability": 0.95}}
SHORT = {"num_steps": 8}
START = tacit.Scoring(**SHORT)
ESTIMATED = {"epsilon": 2.0, "delta": 1e-5}
FITS = {
    "default": (by_formula(tacit.Scoring(**SHORT)), NEIGHBOURS),
    "default, of people": (by_formula(tacit.Scoring(**SHORT), schema=PEOPLE), OF_PEOPLE),
    "check, score and comparison": (around_a_fit(SCHEMA), NEIGHBOURS),
    "check, score and comparison, of people": (around_a_fit(PEOPLE), OF_PEOPLE),
    "variational": (by_formula(tacit.Variational(**SHORT)), NEIGHBOURS),
    "variational, NumPyro": (
        functools.partial(fitted, in_numpyro, tacit.Variational(**SHORT)),
        NEIGHBOURS,
    ),
    "variational, PyMC": (in_pymc, NEIGHBOURS),
    "langevin": (by_formula(tacit.Langevin(**SHORT, size=SIZE)), NEIGHBOURS),
    "barker": (by_formula(tacit.Barker(**SHORT, start=START)), NEIGHBOURS),
    "barker, of people": (
        by_formula(tacit.Barker(**SHORT, start=START), schema=PEOPLE),
        OF_PEOPLE,
    ),
    "barker, on batches": (
        by_formula(
            tacit.Barker(num_steps=3, batch_size=20, size=SIZE),
            budget=tacit.Budget(500, 1e-3, "replace"),
        ),
        OF_SAME_SIZE,
    ),
    "hamiltonian": (by_formula(tacit.Hamiltonian(**SHORT, start=START)), NEIGHBOURS),
    "statistics": (
        functools.partial(
            fitted, conjugate.Bernoulli("yes"), tacit.Statistics(num_draws=20), new=None
        ),
        NEIGHBOURS,
    ),
    "statistics, of a known number": (
        functools.partial(
            fitted,
            conjugate.Bernoulli("yes"),
            tacit.Statistics(num_draws=20, size=SIZE, noise="laplace"),
            new=None,
            budget=REPLACE,
        ),
        OF_SAME_SIZE,
    ),
    "statistics, by formula": (
        by_formula(tacit.Statistics(num_draws=8, burn_in=2), "money ~ age + ward"),
        NEIGHBOURS,
    ),
    "one sample, on a grid": (
        of_arrays(RATE, tacit.OneSample(sampler=GRID, claim=BoundedLikelihood(bound=3.0)), signed),
        NEIGHBOURS,
    ),
    "one sample, Lipschitz": (
        of_arrays(
            RATE,
            tacit.OneSample(sampler=GRID, claim=LipschitzLikelihood(slope=2.0, radius=1.0)),
            signed,
            budget=REPLACE,
        ),
        OF_SAME_SIZE,
    ),
    "one sample, by a statistic": (
        functools.partial(
            fitted,
            conjugate.Bernoulli("yes"),
            tacit.OneSample(sampler=ConjugateSampler(column="yes", **ENDS)),
            new=None,
        ),
        NEIGHBOURS,
    ),
    "one sample, by rejection": (
        of_arrays(RATE, tacit.OneSample(sampler=LogisticRejection()), signed),
        NEIGHBOURS,
    ),
    "one sample, by a chain": (
        of_arrays(
            RATE,
            tacit.OneSample(
                sampler=ChainSampler(approximate="one mode", warm_up=5, length=5),
                claim=LogConcave(slope=1.0, concavity=1.0, shortened=("x", 1.0)),
            ),
            signed,
        ),
        NEIGHBOURS,
    ),
    "a classifier": (
        with_estimator(tacit.PrivateBayesClassifier, classes=[0, 1], **ESTIMATED),
        NEIGHBOURS,
    ),
    "a regressor": (
        with_estimator(tacit.PrivateBayesRegressor, target_bounds=(0, 1), **ESTIMATED),
        NEIGHBOURS,
    ),
    "the command line": (by_command("--set", "num_steps=8"), NEIGHBOURS),
    "the command line, statistics": (
        by_command(
            *("--method", "statistics", "--set", "num_draws=8", "--set", "burn_in=2"),
            formula="money ~ age + ward",
        ),
        NEIGHBOURS,
    ),
    "the command line, of people": (
        by_command("--method", "variational", "--set", "num_steps=6", schema=PEOPLE),
        OF_PEOPLE,
    ),
}


# Of these a fit takes a second or two.
QUICK = ("statistics", "one sample, by a statistic")


@pytest.mark.parametrize("name", QUICK)
def test_nothing_but_releases_follows_rows(name, tmp_path):
    """All at once: a row more, one of extreme cells, and one without any."""
    fit, _ = FITS[name]
    assert leaks(fit, {"all": far_away}, tmp_path) == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", FITS)
def test_nothing_but_releases_follows_any_row(name, tmp_path):
    fit, neighbours = FITS[name]
    assert leaks(fit, neighbours, tmp_path) == {}


# Controls: what would leak is seen ------------------------------------------------------------

STATISTICS, _ = FITS["statistics"]
run_of_fit = interfaces_fit._run_method


def leaking(plan, gate, source, **given):
    """Runs a fit, and tells of its rows in all ways that there are."""
    count = gate._private._count
    print(count)  # noqa: T201
    print(count, file=sys.stderr)  # noqa: T201
    warnings.warn(f"{count} rows", UserWarning, stacklevel=1)
    logging.getLogger("tacit").debug("There are %d rows.", count)
    Path("rows.txt").write_text(str(count))
    found = run_of_fit(plan, gate, source, **given)
    trace = {**found.trace, "rows": np.array([1.0 * count])}
    return dataclasses.replace(
        found, trace=trace, messages=(*found.messages, f"There are {count} rows.")
    )


def test_leaks_that_are_there_are_seen(tmp_path, monkeypatch):
    monkeypatch.setattr(interfaces_fit, "_run_method", leaking)
    found = leaks(STATISTICS, {"all": far_away}, tmp_path)["all"]
    seen = {
        *("posterior", "course", "tree", "file saved.nc", "file run/posterior.nc"),
        *("file report/report.html", "file report/report.md", "file rows.txt"),
        *("printed", "on standard error", "warned"),
    }
    assert seen <= set(found)
    assert any(line.startswith("There are") for line in found)  # in the log


def test_a_cell_that_leaks_is_seen(tmp_path, monkeypatch):
    """The least of it: a bit of one cell, in one number."""

    def run(plan, gate, *given, **more):
        first = np.asarray(next(iter(gate._private._device_fields().fields.values())))[0]
        found = run_of_fit(plan, gate, *given, **more)
        nudged = {name: np.nextafter(each, each + first) for name, each in found.draws.items()}
        return dataclasses.replace(found, draws=nudged)

    monkeypatch.setattr(interfaces_fit, "_run_method", run)
    other = {"another row": functools.partial(with_first, yes=1 - table()["yes"][0])}
    assert "posterior" in leaks(STATISTICS, other, tmp_path)["another row"]


def test_an_error_for_one_row_is_seen(tmp_path, monkeypatch):
    def run(plan, gate, *given, **more):
        if gate._private._count > SIZE:
            raise InvalidArgument("There are too many rows.")
        return run_of_fit(plan, gate, *given, **more)

    monkeypatch.setattr(interfaces_fit, "_run_method", run)
    assert "error" in leaks(STATISTICS, NEIGHBOURS, tmp_path)["one row more"]


@pytest.mark.slow
def test_with_the_sums_in_place_fits_differ(tmp_path, monkeypatch):
    """It is the sums that were cut out: fits do look at rows."""
    forget()
    monkeypatch.setattr(mechanisms, "partial_sums", mechanisms.partial_sums.whole)
    assert "posterior" in leaks(STATISTICS, {"all": far_away}, tmp_path)["all"]
    forget()

"""Tables of counts from one noisy sum: what a unit adds, what follows without noise, and how often intervals are right."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy import optimize
from scipy.stats import norm

import tacit
from tacit.api.explore import build_release
from tacit.data.columns import MISSING_INTEGER
from tacit.inference.table_estimates import (
    Estimates,
    ReleasedTables,
    positive_intervals,
    ratio_intervals,
)
from tacit.inference.tables import contribution
from tacit.privacy.clipping import clip_to_lattice
from tacit.privacy.rows import Rows

WARDS = ["a", "b", "c"]
COLUMNS = {
    "age": tacit.Number(0, 100),
    "visits": tacit.Count(7),
    "ward": tacit.Category(WARDS),
    "ill": tacit.Binary(),
}
TABLES = (("visits",), ("ward", "ill"), ("age", "ward"), ("age", "visits"))
MOST_ROWS = 3
KINDS = ["rows", "people", "rows of people"]
BUDGET = tacit.Budget(0.5, 1e-6)


def the_schema(kind):
    people = {} if kind == "rows" else {"person": "who", "most_rows": MOST_ROWS}
    return tacit.Schema(COLUMNS, **people)


def the_release(kind):
    count = "rows" if kind == "rows of people" else None
    return build_release(the_schema(kind), TABLES, {"age": [30, 50, 70]}, count)


def the_table(rows=600, seed=0):
    """With missing cells of every kind, values at and beyond bounds, and people with too many rows."""
    rng = np.random.default_rng(seed)
    age = np.where(rng.uniform(size=rows) < 0.05, np.nan, rng.normal(50, 30, rows))
    return pd.DataFrame(
        {
            "age": np.where(rng.uniform(size=rows) < 0.02, 30.0, age),
            "visits": np.minimum(rng.poisson(2, rows), 9),
            "ward": rng.choice([*WARDS, "unknown"], rows, p=[0.7, 0.24, 0.03, 0.03]),
            "ill": rng.choice([0, 1, np.nan], rows, p=[0.6, 0.35, 0.05]),
            "who": rng.integers(0, rows // 2, rows),
        }
    )


def units(kind, table):
    release, schema = the_release(kind), the_schema(kind)
    encoded = schema.encode(table, [each.name for each in release.columns], keep_missing=True)
    return Rows.from_encoded(*encoded)._host_fields()


def vectors(kind, fields, present):
    question = the_release(kind).question()
    given = {name: jnp.asarray(values) for name, values in fields.items()}
    each = jax.jit(jax.vmap(lambda rows, own: contribution(question, rows, own)))
    return np.asarray(each(given, jnp.asarray(present)), np.float64)


def without_noise(kind, table):
    released = vectors(kind, *units(kind, table)).sum(axis=0)
    return ReleasedTables(the_release(kind), released, 1e-7)


def counted(kind, table):
    """The rows that count, as they are read, and what each counts for."""
    rows = table.assign(
        age=table["age"].clip(0, 100),
        visits=table["visits"].clip(0, 7),
        ward=table["ward"].where(table["ward"].isin(WARDS)),
    )
    if kind == "rows":
        return rows, np.ones(len(rows))
    rows = rows[rows.groupby("who").cumcount() < MOST_ROWS]
    number = rows.groupby("who")["who"].transform("size").to_numpy()
    return rows, 1 / number if kind == "people" else np.ones(len(rows))


@pytest.mark.parametrize("kind", KINDS)
def test_counts_without_noise_are_those_of_pandas(kind):
    table = the_table()
    found, (rows, weights) = without_noise(kind, table), counted(kind, table)
    age = pd.cut(rows["age"], [0, 30, 50, 70, 100.1], right=False, labels=False)
    cells = {
        "age": age.fillna(4),
        "visits": rows["visits"],
        "ward": rows["ward"].fillna("z"),
        "ill": rows["ill"].fillna(2),
    }
    levels = {"age": range(5), "visits": range(9), "ward": [*WARDS, "z"], "ill": range(3)}
    own = pd.Series(weights, rows.index)
    for names in (("age",), ("ward",), ("age", "visits"), ("age", "ward"), ("ill", "ward")):
        exact = own.groupby([cells[name] for name in names]).sum()
        index = pd.MultiIndex.from_product([levels[name] for name in names], names=names)
        exact = exact.reindex(index if len(names) > 1 else levels[names[0]], fill_value=0.0)
        shown = found.counts(names)
        assert shown.estimates.ravel() == pytest.approx(exact.to_numpy(), abs=0.02), names
        assert (shown.lower <= shown.estimates).all()
        assert (shown.estimates <= shown.upper).all()
    assert found.total.estimates[0] == pytest.approx(own.sum(), abs=0.02)
    by_row = found.shares(("ill", "ward"), ("ward",)).estimates
    exact = pd.crosstab(cells["ill"], cells["ward"], weights, aggfunc="sum").fillna(0)
    assert by_row == pytest.approx((exact / exact.sum()).to_numpy(), abs=1e-3)
    if kind != "rows":
        per_person = len(rows) / rows["who"].nunique()
        assert found.rows_per_person.estimates[0] == pytest.approx(per_person, rel=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_means_and_quantiles_without_noise_are_those_of_pandas(kind):
    table = the_table(4000)
    found, (rows, weights) = without_noise(kind, table), counted(kind, table)
    groups = {(): [np.ones(len(rows), bool)], ("ward",): [rows["ward"] == each for each in WARDS]}
    for by, members in groups.items():
        for which, member in enumerate(members):
            own, share = rows[member], weights[np.asarray(member)]
            where = which if by else ()
            for name in ("age", "visits") if not by else ("age",):
                kept = own[name].notna().to_numpy()
                values, mass = own[name].to_numpy()[kept], share[kept]
                mean = np.average(values, weights=mass)
                assert found.means(name, by).estimates[where] == pytest.approx(mean, abs=0.02)
                order = np.argsort(values, kind="stable")
                below = np.cumsum(mass[order]) / mass.sum()
                quartiles = values[order][np.searchsorted(below, [0.25, 0.5, 0.75])]
                shown = found.quantiles(name, [0.25, 0.5, 0.75], by)
                # Within one of the finest bins, or of the coarser ones that groups have.
                width = 0.5 if name == "visits" else 3.8 if by else 0.25
                assert shown.estimates[where] == pytest.approx(quartiles, abs=width)
    ill = rows["ill"].notna()
    by_ward = [
        np.average(rows["ill"][ill & (rows["ward"] == w)], weights=weights[ill & (rows["ward"] == w)])
        for w in WARDS
    ]  # fmt: skip
    assert found.proportions("ill", ("ward",)).estimates[:3] == pytest.approx(by_ward, abs=1e-3)


HOSTILE = {
    "age": [np.nan, np.inf, -np.inf, -5.0, 0.0, 29.999, 30.0, 100.0, 3e38, 1e-40],
    "visits": [0, 7, 8, -1, 2**31 - 1, MISSING_INTEGER],
    "ward": [0, 2, -1, 3, 99, -(2**31), 2**31 - 1],
    "ill": [0, 1, -1, 7, MISSING_INTEGER],
}


@pytest.mark.parametrize("kind", KINDS)
def test_no_unit_adds_more_than_one_whatever_its_rows_hold(kind):
    """And some add one, so that no noise is wasted."""
    each = list(itertools.product(*HOSTILE.values()))
    rows = {
        name: np.array(values, np.float32 if name == "age" else np.int32)
        for name, values in zip(HOSTILE, zip(*each, strict=True), strict=True)
    }
    most = the_release(kind).rows_per_unit
    rng = np.random.default_rng(1)
    # Units of equal rows, which are longest, and of any; of one row, of some and of all.
    alike = np.repeat(np.arange(len(each))[:, None], most, axis=1)
    mixed = rng.integers(0, len(each), (3000, most))
    for which in (alike, mixed):
        for number in range(most + 1):
            present = np.broadcast_to(np.arange(most) < number, which.shape)
            own = vectors(kind, {name: values[which] for name, values in rows.items()}, present)
            lengths = np.linalg.norm(own, axis=1)
            assert np.isfinite(own).all()
            assert lengths.max() <= 1 + 1e-5
            if number == 0:
                assert lengths.max() == 0
            if which is alike and number == most:
                assert lengths.max() > 0.99


@pytest.mark.parametrize("many", [False, True])
def test_the_clip_cuts_nothing_off(many):
    """Of releases of many numbers neither, for which the lattice's margin is larger."""
    tables = (("age", "ward"),) if many else (("ill",),)
    wards = tacit.Category([f"w{i}" for i in range(60 if many else 3)])
    schema = tacit.Schema({**COLUMNS, "ward": wards})
    release = build_release(schema, tables, {"age": 30} if many else None, None)
    assert (release.dimension > 10_000) == many
    mechanism = release.calibrate(BUDGET)
    row = {"age": np.float32([33.0]), "ward": np.int32([1]), "ill": np.int32([1])}
    vector = contribution(
        release.question(), {n: jnp.asarray(row[n]) for n in row}, jnp.ones(1, bool)
    )
    points = 2**20
    kept = clip_to_lattice(vector, jnp.float32(mechanism.clip), points)
    back = np.asarray(kept, np.float64) * mechanism.clip / points
    assert np.linalg.norm(vector) > 0.999
    large = np.abs(vector) > 0.01
    assert back[large] == pytest.approx(np.asarray(vector)[large], rel=3e-4)


def noisy(kind="rows", seed=0, std=20.0, table=None):
    found = without_noise(kind, the_table() if table is None else table)
    noise = np.random.default_rng(seed).normal(0, std, found.released.shape)
    return ReleasedTables(found.release, found.released + noise, std)


@pytest.mark.parametrize("seed", range(5))
def test_tables_agree_and_are_not_negative(seed):
    found = noisy(seed=seed)
    total = found.total.estimates[0]
    shown = {table: found.counts(table).estimates for table in found.release.parts if table}
    for table, own in shown.items():
        assert own.min() >= 0
        assert own.sum() == pytest.approx(total, abs=0.01)
        for i, name in enumerate(table):
            others = tuple(j for j in range(len(table)) if j != i)
            assert own.sum(axis=others) == pytest.approx(shown[name,], abs=0.01)


def test_counts_are_the_nearest_that_are_not_negative():
    """Least squares with constraints, by a general solver."""
    schema = tacit.Schema({name: COLUMNS[name] for name in ("ward", "ill")})
    release = build_release(schema, (("ill", "ward"),), None, None)
    released = np.random.default_rng(4).normal(0, 1, release.dimension) + 0.1
    found = ReleasedTables(release, released, 1.0)
    axes = [release.column(name).axes[0].counts for name in ("ill", "ward")]
    matrix = np.kron(*axes)
    mean, variance = (each.ravel() for each in found._tensor(("ill", "ward"), 0))
    margin = np.array([[(i > 0) + (j > 0) for j in range(4)] for i in range(3)]).ravel()
    precision = 1 / (variance * 4.0**margin)  # margins move less
    best = optimize.minimize(
        lambda x: ((x - mean) ** 2 * precision).sum() / precision.max(),
        np.r_[100.0, np.zeros(11)],
        constraints={"type": "ineq", "fun": lambda x: matrix @ x},
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 1000},
    )
    assert best.success
    assert (matrix @ mean).min() < -1
    assert found.counts(("ill", "ward")).estimates.ravel() == pytest.approx(matrix @ best.x, abs=0.02)  # fmt: skip


# Feldman and Cousins (1998), table X: 90% intervals of a mean that is not negative.
PUBLISHED = {-3: (0, 0.26), -2: (0, 0.40), -1: (0, 0.81), 0: (0, 1.64), 1: (0, 2.64), 2: (0.58, 3.64), 3: (1.37, 4.64)}  # fmt: skip


def test_intervals_of_counts_are_the_published_ones():
    places = np.array([*PUBLISHED], float)
    found = positive_intervals(Estimates(10 * places, np.full(len(places), 100.0)), 0.9)
    assert np.column_stack(found[1:]) == pytest.approx(10 * np.array([*PUBLISHED.values()]), abs=0.06)  # fmt: skip


@pytest.mark.parametrize("mean", [0.0, 0.01, 0.3, 1.0, 1.7, 2.5, 4.0, 40.0])
def test_an_interval_of_a_count_is_right_with_its_probability_whatever_the_count(mean):
    places = mean + np.linspace(-9, 9, 200_001)
    found = positive_intervals(Estimates(places, np.ones(len(places))), 0.9)
    right = (found.lower <= mean) & (mean <= found.upper)
    probability = (right * norm.pdf(places - mean)).sum() * (places[1] - places[0])
    assert probability == pytest.approx(0.9, abs=0.002)


def test_intervals_are_right_nine_times_in_ten():
    """Counts from none to hundreds, shares, means, and quantiles; the noise is that of epsilon 0.5."""
    table = the_table(1500)
    exact = without_noise("rows", table)
    std = the_release("rows").calibrate(BUDGET).noise_std
    rng = np.random.default_rng(5)

    def numbers(found):
        yield "counts", found.counts(("ill", "ward"))
        yield "counts", found.counts(("age", "visits"))
        yield "shares", found.shares(("ill", "ward"))
        yield "means", found.means("age")
        yield "means", found.means("visits")
        yield "shares", found.proportions("ill")
        yield "quantiles", found.quantiles("age", [0.25, 0.5, 0.75])

    truths = [each.estimates for _, each in numbers(exact)]
    right = {"counts": [], "shares": [], "means": [], "quantiles": []}
    small = []
    for _ in range(150):
        noise = rng.normal(0, std, exact.released.shape)
        found = ReleasedTables(exact.release, exact.released + noise, std)
        for truth, (kind, own) in zip(truths, numbers(found), strict=True):
            inside = (own.lower <= truth + 1e-4) & (truth - 1e-4 <= own.upper)
            right[kind].append(inside.ravel())
            if kind == "counts":
                small.append(inside[truth < 1])
    covered = {kind: np.concatenate(each).mean() for kind, each in right.items()}
    assert 0.88 < covered["counts"] < 0.94
    assert 0.88 < np.concatenate(small).mean() < 0.95
    assert 0.87 < covered["shares"] < 0.95
    assert 0.85 < covered["means"] < 0.95  # 300 of them
    assert 0.86 < covered["quantiles"] < 0.98


def test_a_group_that_may_be_empty_says_nothing_of_its_mean():
    found = noisy(std=60.0)
    means = found.means("age", ("ward",))
    last = [each[-1] for each in means]
    assert last[1] == pytest.approx(0, abs=1)
    assert last[2] == pytest.approx(100, abs=1)
    assert last[1] <= last[0] <= last[2]


def test_ratios_whose_denominator_may_be_zero_have_all_values():
    ones = np.ones(1)
    found = noisy()._ratios(("ill",), 0, [np.eye(1, 3)], [np.eye(1, 3)])._replace(
        above=0.5 * ones, below=0.5 * ones, above_variance=ones, below_variance=ones, covariance=0 * ones
    )  # fmt: skip
    (low,), (high,) = ratio_intervals(found, 0.0, 1.0, 0.9)[1:]
    assert (low, high) == (0, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_errors_are_as_large_as_expected_before_the_release(kind):
    exact, std = without_noise(kind, the_table()), 5.0
    rng = np.random.default_rng(7)
    draws = [
        ReleasedTables(exact.release, exact.released + rng.normal(0, std, exact.released.shape), std)
        for _ in range(300)
    ]  # fmt: skip
    cells = [each._linear(("ill", "ward"), 0, [each._cells("ill"), each._cells("ward")]) for each in draws]  # fmt: skip
    seen = np.sqrt(np.array([each[0] for each in cells]).var(axis=0).mean())
    assert draws[0].count_spread(("ill", "ward")) == pytest.approx(seen, rel=0.05)
    axis = exact.release.column("age").axes[2]
    sums = [each._linear(("age",), 2, [axis.sums[None]])[0][0] * 50 for each in draws]
    assert draws[0].sum_spread("age") == pytest.approx(np.std(sums), rel=0.12)

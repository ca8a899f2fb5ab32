"""Private checks of models: sums against NumPy, misfits by name, bounds, and what is charged."""

import json
from dataclasses import replace

import jax
import numpy as np
import pytest
from scipy.special import expit

import tacit
from tacit.accounting import calibrate, events
from tacit.accounting.accountants import cost
from tacit.api.check import plan_check
from tacit.api.rows import encode_rows
from tacit.api.score import gaussian_noise, plan_compare
from tacit.cli.main import main
from tacit.errors import BudgetError, InvalidArgument
from tacit.inference.model_checks import unit_vector
from tacit.models import front_ends
from tacit.privacy.noise import Randomness
from tacit.privacy.rows import Rows, Units
from tacit.results.posterior import Posterior

SIZE = 3000
SCHEMA = tacit.Schema(
    {
        "age": tacit.Number(20, 80),
        "dose": tacit.Number(0, 10),
        "ward": tacit.Category(["A", "B"]),
        "falls": tacit.Count(100),
        "ill": tacit.Binary(),
    }
)
LARGE = 60.0  # so that the noise hardly matters


def table(misfit=None, seed=0, size=SIZE):
    rng = np.random.default_rng(seed)
    age, dose = rng.uniform(20, 80, size), rng.uniform(0, 10, size)
    ward = rng.choice(["A", "B"], size)
    x, z = (age - 50) / 30, (dose - 5) / 5
    eta = 0.6 * x - 0.6 * z
    if misfit == "interaction":
        eta = eta + x * z
    rate = 0.5 * (2.5 + 1.3 * eta) ** 2 if misfit == "link" else np.exp(0.8 + eta)
    if misfit == "overdispersion":
        rate = rate * rng.gamma(2, 1 / 2, size)
    falls = rng.poisson(rate * np.where((ward == "B") & (misfit == "predictor"), 1.6, 1.0))
    if misfit == "outliers":
        falls = np.where(rng.random(size) < 0.05, rng.integers(20, 60, size), falls)
    ill = rng.random(size) < expit(eta)
    return {"age": age, "dose": dose, "ward": ward, "falls": falls, "ill": ill.astype(int)}


@pytest.fixture(scope="module")
def counts():
    return tacit.glm("falls ~ age + dose", family="poisson", schema=SCHEMA)


@pytest.fixture(scope="module")
def binary():
    model = tacit.glm("ill ~ age + dose", schema=SCHEMA)
    return tacit.fit(model, table(), epsilon=2, seed=0, progress=False)


def fitted(model, data):
    method = tacit.Scoring(check_count=False)
    return tacit.fit(model, data, epsilon=LARGE, method=method, seed=0, progress=False)


@pytest.mark.parametrize(
    ("misfit", "words"),
    [
        (None, "Nothing was found"),
        ("interaction", "a missing interaction of age and dose"),
        ("overdispersion", "overdispersion"),
        ("link", "a wrong link"),
        ("outliers", "outliers"),
        ("predictor", "a missing predictor: ward"),
    ],
)
def test_what_does_not_fit_is_named(counts, misfit, words):
    data = table(misfit)
    check = tacit.check(
        fitted(counts, data), data, by=["age", "dose", "ward"], epsilon=LARGE, seed=1
    )
    assert words in check.finding
    least = check.tests[0]
    assert (least.adjusted < 0.05) == (misfit is not None)
    assert least.adjusted >= least.p


def test_sums_are_those_of_residuals_in_bins(binary):
    data = table()
    check = tacit.check(binary, data, by=["age"], bins={"age": [40, 65]}, epsilon=LARGE, seed=1)
    b0, b1, b2 = binary.unconstrained_mean
    plan = plan_check(binary, by=["age"], bins={"age": [40, 65]}, epsilon=LARGE)
    vector = plan.release.theta
    assert np.allclose(vector, [b0, b1, b2])
    drawn = {name: each.mean() for name, each in binary.model_draws.items()}
    x, z = (data["age"] - 50) / 30, (data["dose"] - 5) / 5
    chance = expit(drawn["Intercept"] + drawn["age"] * x + drawn["dose"] * z)
    residual, bins = data["ill"] - chance, np.digitize(data["age"], [40, 65])
    means = [residual[bins == k].mean() for k in range(3)]
    assert np.allclose([each.value for each in check.cells("by age")], means, atol=0.02)
    assert abs(check.sums.count - SIZE) < 6 * 2 * check.sums.noise
    family = next(each for each in check.sums.parts if each.kind == "column")
    squares = [(residual[bins == k] ** 2).sum() for k in range(3)]
    assert np.allclose(check.sums.parts[family].squares, squares, atol=12 * check.sums.noise)


def test_no_unit_is_longer_than_the_clip(counts):
    """Whatever its rows hold, and however many there are."""
    post = fitted(counts, table())
    release = plan_check(post, by=["age", "dose", "ward"], epsilon=1).release
    vector = unit_vector(release.model, release.layout)
    rng = np.random.default_rng(0)
    many, rows = 400, 3
    fields = {
        "age": rng.choice([-1e30, 20, 33, 50, 79, np.inf, np.nan], (many, rows)).astype(np.float32),
        "dose": rng.uniform(0, 10, (many, rows)).astype(np.float32),
        "ward": rng.integers(-5, 9, (many, rows)).astype(np.int32),
        "falls": rng.choice([0, 1, 7, 100, 10**9, -4], (many, rows)).astype(np.int32),
    }
    present = rng.random((many, rows)) < 0.7
    words = rng.integers(0, 2**32, (many, 2), dtype=np.uint32)
    question = release.question()
    one = jax.jit(jax.vmap(lambda f, p, s: vector(question, f, p, s)))
    lengths = np.linalg.norm(np.asarray(one(fields, present, words), np.float64), axis=1)
    assert lengths.max() <= release.clip
    assert lengths.max() > 0.5 * release.clip  # or the noise would be larger than it need be
    assert not lengths[~present.any(axis=1)].any()


@pytest.mark.slow
def test_p_values_are_uniform_where_everything_is_right(counts):
    """Of a few tables: all tests together; benchmarks/check.py has many."""
    found = []
    for seed in range(12):
        data = table(seed=seed + 10)
        method = tacit.Scoring(check_count=False)
        post = tacit.fit(counts, data, epsilon=1, method=method, seed=seed, progress=False)
        found += [each.p for each in tacit.check(post, data, epsilon=1, seed=seed).tests]
    assert 0.35 < np.mean(found) < 0.65
    assert np.mean(np.array(found) < 0.05) < 0.15


def test_a_check_is_charged_once_and_its_page_has_the_finding(binary, tmp_path):
    ledger = tacit.Ledger.new(tmp_path / "l.db", total=tacit.Budget(1, 1e-5), unit="row")
    check = tacit.check(binary, table(), epsilon=0.5, ledger=ledger, label="for the board")
    (charge,) = ledger.charges
    assert "check of ill ~ age + dose" in charge.label
    assert charge.epsilon <= 0.5
    assert check.privacy.is_private
    check.report(tmp_path / "page")
    page = (tmp_path / "page" / "check.html").read_text()
    assert check.finding.split(":")[0] in page
    assert "<script" not in page
    held = json.loads((tmp_path / "page" / "check.json").read_text())
    assert held["finding"] == check.finding
    assert set(held["cells"]) == {"by prediction", "by age", "by dose", "by age and dose"}
    check.plot(tmp_path / "check.png")
    assert (tmp_path / "check.png").stat().st_size > 10_000


def test_nothing_is_charged_for_what_is_refused(binary, tmp_path):
    ledger = tacit.Ledger.new(tmp_path / "l.db", total=tacit.Budget(1, 1e-5), unit="row")
    given = {"epsilon": 0.5, "ledger": ledger}
    refused = [
        ({"by": ["ill"]}, "is the outcome"),
        ({"by": "age"}, "must be a list"),
        ({"by": ["height"]}, "height"),
        ({"bins": {"age": 1}}, "from 2 to 50"),
        ({"bins": {"age": [10, 40]}}, "between 20 and 80"),
        ({"by": ["ward"], "bins": {"ward": 3}}, "takes no bins"),
        ({"by": ["age"], "bins": {"dose": 3}}, "not a column that is checked by"),
    ]
    for more, words in refused:
        with pytest.raises(InvalidArgument, match=words):
            tacit.check(binary, table(), **given, **more)
    with pytest.raises(InvalidArgument, match="no column"):
        tacit.check(binary, {"age": [30.0], "dose": [1.0]}, **given)
    with pytest.raises(BudgetError):
        tacit.check(binary, table(), epsilon=3, ledger=ledger)
    plain = tacit.Model(
        parameters={"m": tacit.models.Parameter()},
        log_prior=lambda p: -0.5 * p["m"] ** 2,
        log_likelihood=lambda p, row: -((row["age"] - p["m"]) ** 2) / 2,
    )
    other = replace(binary, model=front_ends.adapt_model(plain, SCHEMA))
    with pytest.raises(InvalidArgument, match="cannot be checked"):
        tacit.check(other, table(), **given)
    assert not ledger.charges


# Scores and comparisons


def test_a_score_is_that_of_the_rows(binary):
    data = table(seed=5)
    found = tacit.score(binary, data, epsilon=LARGE, seed=0)
    mean, covariance = binary.unconstrained_mean, binary.unconstrained_covariance
    draws = {name: np.asarray(each) for name, each in binary.model_draws.items()}
    assert len(mean) == len(covariance)
    x, z = (data["age"] - 50) / 30, (data["dose"] - 5) / 5
    eta = draws["Intercept"][:, None] + np.outer(draws["age"], x) + np.outer(draws["dose"], z)
    chance = expit(eta).mean(axis=0)
    logs = np.log(np.where(data["ill"] == 1, chance, 1 - chance))
    assert abs(found.log_density.mean - logs.mean()) < 0.01
    right = np.mean((chance > 0.5) == (data["ill"] == 1))
    assert abs(found.accuracy.mean - right) < 0.01
    assert found.accuracy.rows_sd == pytest.approx(np.sqrt(right * (1 - right) / SIZE), rel=0.05)
    assert found.r2 is None
    method = binary.score(data, epsilon=LARGE, seed=0)
    assert method.to_dict() == found.to_dict()


def test_r2_is_that_of_numbers(counts):
    data = table(seed=6)
    found = tacit.score(fitted(counts, data), data, epsilon=LARGE, seed=0)
    x, z = (data["age"] - 50) / 30, (data["dose"] - 5) / 5
    error = data["falls"] - np.exp(0.8 + 0.6 * x - 0.6 * z)
    known = 1 - np.mean(error**2) / np.var(data["falls"])
    low, high = found.r2.interval()
    assert low < known < high
    assert abs(found.r2.mean - known) < 0.05


def test_a_comparison_finds_the_better_model_in_the_columns_of_arviz():
    models = ["ill ~ dose", "ill ~ age + dose"]
    found = tacit.compare(
        models, table(size=20_000), schema=SCHEMA, epsilon=5, seed=0, progress=False
    )
    frame = found.frame()
    assert list(frame.index) == models[::-1]
    assert {"rank", "elpd", "elpd_diff", "se", "dse", "warning", "scale"} <= set(frame)
    assert frame["elpd_diff"].iloc[0] == frame["dse"].iloc[0] == 0
    assert frame["elpd_diff"].iloc[1] > 0
    same = found.sums.combination(np.array([1.0, 0, 0, 0])), found.sums.difference(1, 1)
    assert same[1].sd == 0 < same[0].sd
    assert abs(found.sums.count - 6000) < 300
    assert "ill ~ age + dose predicts best" in found.finding


def test_the_score_of_a_comparison_costs_what_its_fits_do(tmp_path):
    budget = tacit.Budget(1, 1e-6)
    plan = plan_compare(
        ["ill ~ dose", "ill ~ age", "ill ~ age + dose"], schema=SCHEMA, budget=budget
    )
    assert plan.is_parallel
    assert plan.cost.epsilon <= 1
    fits = events.compose(*(each.mechanism.event for each in plan.plans))
    assert plan.event == fits
    more = tacit.Budget(2, 1e-6)
    alone = cost(events.gaussian(plan.score_noise), more)
    assert alone.epsilon == pytest.approx(cost(fits, more).epsilon, rel=1e-4)
    assert alone.epsilon > 0.98
    assert gaussian_noise(events.laplace(1.0)) is None
    assert gaussian_noise(events.sampled_gaussian(2.0, 0.5, 3)) is None
    ledger = tacit.Ledger.new(tmp_path / "l.db", total=tacit.Budget(1, 1e-5), unit="row")
    with pytest.raises(BudgetError):
        tacit.compare(["ill ~ dose", "ill ~ age"], table(), schema=SCHEMA, epsilon=2, ledger=ledger)
    with pytest.raises(InvalidArgument, match="same outcome"):
        tacit.compare(
            ["ill ~ dose", "falls ~ age"], table(), schema=SCHEMA, epsilon=1, ledger=ledger
        )
    assert not ledger.charges


def test_fits_that_are_no_gaussian_sums_and_the_score_add_up():
    budget = tacit.Budget(1, 1e-6)
    model = tacit.glm("ill ~ age", schema=SCHEMA)
    sampled = tacit.plan(model, budget=budget, method=tacit.Variational(num_steps=50))
    plan = plan_compare([sampled, "ill ~ dose"], schema=SCHEMA, budget=budget)
    assert not plan.is_parallel
    assert plan.cost.epsilon <= 1
    own = cost(events.gaussian(plan.score_noise), budget)
    fits = cost(events.compose(*(each.mechanism.event for each in plan.plans)), budget)
    assert plan.cost.epsilon > max(own.epsilon, fits.epsilon)
    assert plan.score_noise == calibrate.noise_multiplier(tacit.Budget(0.2, 1e-6 / 3), num_steps=1)


def test_a_split_deals_every_unit_to_one_part_by_its_own_coin():
    size = 4000
    rows = Rows({"x": np.arange(size)})
    first, last = rows.split(Randomness(0).child("split"), 0.7)
    held = [np.asarray(each._host_fields().fields["x"]).ravel() for each in (first, last)]
    assert sorted(np.concatenate(held)) == list(range(size))
    assert abs(len(held[0]) - 0.7 * size) < 6 * np.sqrt(size * 0.21)
    chosen = np.isin(np.arange(size), held[0])
    assert abs(np.corrcoef(chosen[1:], chosen[:-1])[0, 1]) < 6 / np.sqrt(size)
    again, _ = rows.split(Randomness().child("split"), 0.7)
    assert not np.array_equal(held[0], np.asarray(again._host_fields().fields["x"]).ravel())
    people = Rows.by_person({"x": np.arange(6)}, [1, 1, 2, 2, 3, 3], 2)
    parts = people.split(Randomness(3).child("split"), 0.5)
    for part in parts:  # whole people
        values = np.asarray(part._host_fields().fields["x"])
        assert all(b == a + 1 for a, b in values.reshape(-1, 2))
    units = Units({"x": np.zeros((1, 1), np.float32)}, np.ones((1, 1), np.bool_))
    silent = Rows._of(units, "row", 1000)
    assert sum(each._silent for each in silent.split(Randomness(1), 0.5)) == 1000


def test_people_count_once(tmp_path):
    schema = tacit.Schema({n: SCHEMA[n] for n in SCHEMA.names}, person="who", most_rows=3)
    data = table(size=1500)
    data["who"] = np.arange(1500) // 2
    post = tacit.fit("ill ~ age + dose", data, schema=schema, epsilon=2, seed=0, progress=False)
    check = tacit.check(post, data, epsilon=LARGE, seed=0)
    assert check.privacy.unit == "person"
    assert check.sums.count == pytest.approx(750, abs=15)
    assert check.sums.inverse == pytest.approx(375, abs=15)
    assert check.tests[0].adjusted > 0.01
    saved = tmp_path / "posterior.nc"
    post.save(saved)
    again = tacit.check(Posterior.load(saved), data, epsilon=LARGE, seed=0)
    assert again.p_values == pytest.approx(check.p_values)


def test_commands(binary, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    binary.save("posterior.nc")
    SCHEMA.to_yaml("schema.yaml")
    tacit.Ledger.new("l.db", total=tacit.Budget(5, 1e-5), unit="row")
    lines = np.column_stack([np.asarray(each, str) for each in table(size=500).values()])
    header = ",".join(table(size=1))
    (tmp_path / "d.csv").write_text(f"{header}\n" + "\n".join(map(",".join, lines)))
    of = ["posterior.nc", "d.csv", "--epsilon", "0.5", "--ledger", "l.db", "--json"]

    def told(*typed):
        assert main([*typed]) == 0
        return json.loads(capsys.readouterr().out)

    assert told("check", *of, "--dry-run", "--size", "500")["epsilon"] <= 0.5
    assert told("score", *of, "--dry-run")["measure"] == "accuracy"
    assert not tacit.Ledger("l.db").charges
    assert "finding" in told("check", *of, "--by", "age", "--bins", "age=40,60", "--out", "c")
    assert "accuracy" in told("score", *of)
    pair = ["-s", "schema.yaml", "-f", "ill ~ age", "-f", "ill ~ dose", "--epsilon", "1"]
    assert len(told("compare", "d.csv", *pair, "--ledger", "l.db", "--json")["models"]) == 2
    labels = [each.label for each in tacit.Ledger("l.db").charges]
    assert [each.split()[0] for each in labels] == ["check", "score", "comparison"]
    assert main(["check", *of, "--out", "c"]) == 2
    assert "not empty" in capsys.readouterr().err
    assert len(tacit.Ledger("l.db").charges) == 3


def test_extra_columns_are_read_for_the_check_alone(binary):
    plan = plan_check(binary, by=["ward"], epsilon=1)
    assert set(plan.names) == {"age", "dose", "ill", "ward"}
    rows = encode_rows(SCHEMA, plan.names, table(size=3))
    assert set(rows.names) == set(plan.names)


def test_a_comparison_refuses_what_takes_the_number_of_units_as_public(tmp_path):
    schema = tacit.Schema({"y": tacit.Binary()})
    budget = tacit.Budget(1, 1e-4, "replace")
    models = [tacit.conjugate.Bernoulli("y"), tacit.conjugate.Bernoulli("y")]
    method = tacit.Statistics(size=200)
    plans = [tacit.plan(m, schema, budget=budget, method=method, forecast=False) for m in models]
    ledger = tacit.Ledger.new(tmp_path / "l.db", total=tacit.Budget(2, 1e-3, "replace"), unit="row")
    with pytest.raises(InvalidArgument, match="how many are fitted here is secret"):
        tacit.compare(plans, {"y": np.arange(200) % 2}, budget=budget, ledger=ledger)
    assert not ledger.charges


def test_every_family_of_numbers_can_be_checked():
    """Of overdispersed counts and of shares as of others: the model that made them has no misfit."""
    rng = np.random.default_rng(3)
    x = rng.uniform(-1, 1, 3000)
    mean = np.exp(0.5 + 0.4 * x)
    outcomes = {
        "negativebinomial": (rng.poisson(mean * rng.gamma(2, 0.5, 3000)), tacit.Count(60)),
        "beta": (rng.beta(5 * expit(x), 5 * expit(-x)), tacit.Number(0, 1)),
    }
    for family, (y, kind) in outcomes.items():
        schema = tacit.Schema({"x": tacit.Number(-1, 1), "y": kind})
        post = fitted(tacit.glm("y ~ x", family=family, schema=schema), {"x": x, "y": y})
        found = tacit.check(post, {"x": x, "y": y}, epsilon=LARGE, seed=0)
        assert "nothing was found" in str(found).lower(), str(found)

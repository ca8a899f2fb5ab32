"""Private statistics: posteriors against enumeration, simulation, and the truth."""

import importlib.util
from pathlib import Path

import jax
import numpy as np
import pytest
from scipy import stats
from scipy.special import betaln, gammaln

from tacit import (
    Binary,
    Budget,
    BudgetError,
    Category,
    Count,
    Langevin,
    Ledger,
    Model,
    Number,
    Rows,
    Schema,
    Statistics,
    Variational,
    conjugate,
    fit,
    fit_without_privacy,
    plan,
)
from tacit.errors import InvalidArgument
from tacit.models import Parameter
from tacit.results import predictive

RNG = np.random.default_rng(0)
BUDGET = Budget(0.5, 1e-5)
NORMAL = conjugate.Normal("x", variance_shape=8.0, variance_scale=0.14, bounds=((-1, 1),))
YES_OR_NO = conjugate.Bernoulli("y", successes=2.0, failures=3.0)
NOISES = ["gaussian", "laplace"]
SLOWLY = pytest.mark.slow
# What is released is the subject of most tests: then draws may be few, and need no chain.
QUICK = {"noise_aware": False, "num_draws": 20}


def log_noise(noise, scale, left):
    law = stats.norm if noise == "gaussian" else stats.laplace
    return law.logpdf(left, scale=scale).sum(axis=-1)


def chain(model, seen, scale, noise, **settings):
    """Draws of the posterior of one released sum, known to be noisy."""
    method = Statistics(noise=noise, num_draws=2000, **settings)
    return method.posterior(model, np.asarray(seen), scale, jax.random.key(0))


def assert_agree(draws, mean, sd):
    """Within what a chain of a thousand independent draws or more errs by."""
    assert draws.mean(axis=0) == pytest.approx(mean, abs=0.15 * np.min(sd))
    assert draws.std(axis=0) == pytest.approx(sd, rel=0.12)


def weighted(log_weights, values):
    """Mean and sd under weights, which must not be those of a few."""
    weights = np.exp(log_weights - log_weights.max())
    assert weights.sum() ** 2 / (weights**2).sum() > 1000
    mean = np.average(values, axis=0, weights=weights)
    return mean, np.sqrt(np.average((values - mean) ** 2, axis=0, weights=weights))


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("seen", [(31.3, 11.6), (4.2, -9.5), (-3.0, -2.0)])
def test_yes_or_no_is_what_enumeration_says(noise, seen):
    no, yes = np.meshgrid(np.arange(140), np.arange(140), indexing="ij")
    chances = gammaln(no + yes + 1) - gammaln(no + 1) - gammaln(yes + 1)
    chances += betaln(yes + 2, no + 3)
    chances += log_noise(noise, 7.0, np.stack([no, yes], axis=-1) - seen)
    weights = np.exp(chances - chances.max()).ravel()
    weights /= weights.sum()
    a, b = (yes + 2).ravel(), (no + 3).ravel()
    mean = (weights * a / (a + b)).sum()
    square = (weights * a * (a + 1) / ((a + b) * (a + b + 1))).sum()
    draws = chain(YES_OR_NO, seen, 7.0, noise)["probability"]
    assert_agree(draws, mean, np.sqrt(square - mean**2))
    for level in (0.05, 0.95):  # tails, too
        below = stats.beta.cdf(np.quantile(draws, level), a, b) @ weights
        assert below == pytest.approx(level, abs=0.03)


@SLOWLY
@pytest.mark.parametrize("noise", NOISES)
def test_counts_are_what_enumeration_says(noise):
    model = conjugate.Poisson("y", shape=3.0, inverse_scale=2.0, bounds=((0, 10),))
    seen, scale = np.array([33.0, 9.0]), 4.0
    rows, total = np.meshgrid(np.arange(130), np.arange(600), indexing="ij")
    chances = stats.nbinom.logpmf(total, 3.0, 2.0 / (2.0 + rows))
    chances += log_noise(noise, scale, np.stack([rows - total / 10, total / 10], -1) - seen)
    chances[total > 10 * rows] = -np.inf
    weights = np.exp(chances - chances.max())
    weights /= weights.sum()
    rate = (3 + total) / (2 + rows)
    mean = (weights * rate).sum()
    spread = (weights * (rate**2 + rate / (2 + rows))).sum() - mean**2
    assert_agree(chain(model, seen, scale, noise)["rate"], mean, np.sqrt(spread))


@pytest.mark.parametrize(
    ("noise", "size"), [("gaussian", None), pytest.param("laplace", 100, marks=SLOWLY)]
)
def test_a_normal_is_what_simulation_says(noise, size):
    # Parameters and whole data sets from the prior, weighted by how likely the noise is.
    count, seen, scale = 60_000, np.array([104.0, 9.0, 6.0]), 10.0
    rows = RNG.integers(30, 180, count) if size is None else np.full(count, size)
    variance = 0.14 / RNG.gamma(8, size=count)
    mean = np.sqrt(variance) * RNG.normal(size=count)
    average = mean + np.sqrt(variance / rows) * RNG.normal(size=count)
    left = variance * RNG.chisquare(rows - 1)
    sums = np.stack([rows, rows * average, left + rows * average**2], axis=-1)
    weights = log_noise(noise, scale, sums - seen)
    draws = chain(NORMAL, seen, scale, noise, size=size)
    for name, values in {"mean": mean, "variance": variance}.items():
        assert_agree(draws[name], *weighted(weights, values))


@SLOWLY
@pytest.mark.parametrize("noise", NOISES)
def test_a_regression_is_what_simulation_says(noise):
    # Predictors have the prior that the chain gives them: normal, of unknown moments.
    model = conjugate.LinearRegression("y", ("x",), bounds=((-1, 1), (-1, 1)), variance_scale=0.1)
    count, rows, scale = 40_000, 60, 12.0
    spread = 0.16 / RNG.chisquare(3, count)
    centre = np.sqrt(spread) * RNG.normal(size=count)
    x = centre[:, None] + np.sqrt(spread)[:, None] * RNG.normal(size=(count, rows))
    variance = 0.1 / RNG.gamma(2, size=count)
    weights = np.sqrt(variance)[:, None] * RNG.normal(size=(count, 2))
    errors = np.sqrt(variance)[:, None] * RNG.normal(size=(count, rows))
    y = weights[:, :1] + weights[:, 1:] * x + errors
    v = [np.ones_like(x), x, y]
    sums = np.stack([(v[i] * v[j]).sum(axis=1) for i, j in model.products], axis=-1)
    seen = np.array([60.0, 12.0, 20.0, 25.0, 3.0, 18.0])
    log_weights = log_noise(noise, scale, sums - seen)
    draws = chain(model, seen, scale, noise, size=rows)
    for name, values in {"intercept": weights[:, 0], "coefficients": weights[:, 1:]}.items():
        assert_agree(draws[name], *weighted(log_weights, values))


def people(rows):
    x = np.clip(RNG.normal(0.2, 0.2, rows), -1, 1)
    y = np.clip(0.3 - 0.5 * x + 0.1 * RNG.normal(size=rows), -1, 1)
    return {"x": x.astype(np.float32), "y": y.astype(np.float32)}


@SLOWLY
def test_without_noise_or_with_little_it_is_the_conjugate_posterior():
    data = people(400)
    x, y = data["x"].astype(float), data["y"].astype(float)
    rows = Rows(data)
    regression = conjugate.LinearRegression(
        "y", ("x",), variance_shape=3.0, variance_scale=0.05, bounds=((-2, 1), (-1, 3))
    )
    design = np.stack([np.ones_like(x), x], axis=-1)
    precision = design.T @ design + np.eye(2)
    mean = np.linalg.solve(precision, design.T @ y)
    scale = 0.05 + (y @ y - mean @ precision @ mean) / 2
    variance = stats.invgamma(3 + 200, scale=scale)
    sds = np.sqrt(np.diag(np.linalg.inv(precision)) * variance.mean())
    little = fit(regression, rows, budget=Budget(1e5, 1e-5), method=Statistics(), seed=0)
    none = fit_without_privacy(regression, rows, method=Statistics(num_draws=2000))
    for post in (little, none):
        assert_agree(post.draws["intercept"], mean[0], sds[0])
        assert_agree(post.draws["coefficients"], mean[1:], sds[1:])
        assert_agree(post.draws["variance"], variance.mean(), variance.std())


@SLOWLY
def test_known_noise_with_little_noise_is_the_conjugate_posterior():
    data = people(300)
    x, y = data["x"].astype(float), data["y"].astype(float)
    model = conjugate.LinearRegression(
        "y", ("x",), noise_sd=0.1, coefficient_sd=0.5, bounds=((-1, 2), (-2, 2))
    )
    design = np.stack([np.ones_like(x), x], axis=-1)
    precision = design.T @ design / 0.01 + np.diag([1.0, 4.0])
    mean = np.linalg.solve(precision, design.T @ y / 0.01)
    sds = np.sqrt(np.diag(np.linalg.inv(precision)))
    post = fit(model, Rows(data), budget=Budget(1e5, 1e-5), method=Statistics(), seed=0)
    assert list(post.draws) == ["intercept", "coefficients"]
    assert_agree(post.draws["intercept"], mean[0], sds[0])
    assert_agree(post.draws["coefficients"], mean[1:], sds[1:])


def test_no_rows_are_the_prior():
    budget = Budget(1e4, 1e-5)  # so little noise that there are certainly none
    rows, method = Rows({"x": np.zeros(0), "y": np.zeros(0, int)}), Statistics(num_draws=2000)
    empty = fit(NORMAL, rows, budget=budget, method=method, seed=0)
    prior = stats.invgamma(8, scale=0.14)
    assert_agree(empty.draws["variance"], prior.mean(), prior.std())
    assert_agree(empty.draws["mean"], 0.0, np.sqrt(prior.mean()))
    prior = stats.beta(2, 3)
    empty = fit(YES_OR_NO, rows, budget=budget, method=method, seed=0)
    assert_agree(empty.draws["probability"], prior.mean(), prior.std())


def benchmark():
    path = Path(__file__).parents[2] / "benchmarks" / "coverage.py"
    spec = importlib.util.spec_from_file_location("coverage_benchmark", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def off(share):
    """Whether a share of 200 is further from 90% than four standard errors."""
    return abs(share - 0.9) > 4 * np.sqrt(0.09 / 200)


@SLOWLY
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize(
    "title", ["Bernoulli", "normal", "categorical, 4 levels", "Poisson", "regression"]
)
def test_intervals_cover_what_they_say(title, noise):
    shared = benchmark()
    case = shared.CASES[title]
    drawn = shared.data_sets(case, 200, seed=1)
    aware = shared.covered(case, drawn, noise, noise_aware=True, num_draws=200)
    naive = shared.covered(case, drawn, noise, noise_aware=False, num_draws=200)
    for name in aware:
        assert not np.any(off(aware[name]))
        if noise == "gaussian" or title in ("normal", "regression"):
            assert np.all(off(naive[name]))


def test_the_whole_line_with_a_schema(tmp_path, monkeypatch):
    schema = Schema({"x": Number(-1, 1), "y": Number(-1, 1), "n": Count(20), "b": Binary()})
    model = conjugate.LinearRegression("y", ("x", "n", "b"))
    planned = plan(model, schema, budget=BUDGET, method=Statistics(**QUICK))
    text = planned.details()
    assert "One noisy sum of 15 numbers" in text
    assert "all rows" in text
    data = {**people(300), "n": RNG.poisson(5, 300), "b": RNG.integers(0, 2, 300)}
    ledger = Ledger.new(tmp_path / "l.db", total=Budget(2, 1e-4))
    post = fit(planned, data, ledger=ledger)
    assert ledger.left.epsilon == pytest.approx(1.5)
    assert post.privacy.epsilons["add-remove"] == pytest.approx(0.5, rel=1e-3)
    assert post.draws["coefficients"].shape == (20, 3)
    assert post.trace["statistics"].shape == (1, 15)
    assert post.predict(data).shape == (300,)
    drawn = post.predict(data, kind="draws")
    assert drawn.shape == (20, 300)
    monkeypatch.setattr(predictive, "_MAX_BLOCK_SIZE", 20 * 70)  # blocks of 70 rows, the last of 20
    (ends,) = predictive.predictive_quantiles(post, data, [0.05, 0.95]).values()
    np.testing.assert_allclose(ends, np.quantile(drawn, [0.05, 0.95], axis=0), rtol=1e-5)
    post.save(tmp_path / "p.nc")
    assert type(post).load(tmp_path / "p.nc") == post
    with pytest.raises(BudgetError):
        fit(
            model, data, schema=schema, budget=Budget(1.6, 1e-5), method=Statistics(), ledger=ledger
        )


def test_a_fit_is_repeatable_whatever_was_fitted_before():
    method = Statistics(num_draws=2000)
    sets = [Rows({"y": RNG.integers(0, 2, 50)}) for _ in range(3)]
    model = YES_OR_NO
    first = [fit(model, s, budget=BUDGET, method=method, seed=i) for i, s in enumerate(sets)]
    again = fit(model, sets[1], budget=BUDGET, method=method, seed=1)
    assert again == first[1]


def test_laplace_needs_no_delta():
    model = conjugate.Bernoulli("y")
    rows = Rows({"y": np.ones(50, int)})
    post = fit(model, rows, budget=Budget(1.0), method=Statistics(noise="laplace", **QUICK))
    assert post.privacy.epsilons["add-remove"] == pytest.approx(1.0, rel=1e-4)
    with pytest.raises(BudgetError, match="Laplace"):
        fit(model, rows, budget=Budget(1.0), method=Statistics())


def test_a_declared_size_is_public_under_replace_only():
    model, rows = YES_OR_NO, Rows({"y": np.ones(50, int)})
    method = Statistics(size=50, num_draws=2000)
    with pytest.raises(InvalidArgument, match="add-remove protects"):
        fit(model, rows, budget=BUDGET, method=method)
    replace = Budget(0.5, 1e-5, "replace")
    known = fit(model, rows, budget=replace, method=method, seed=0)
    unknown = fit(model, rows, budget=replace, method=Statistics(num_draws=2000), seed=0)
    assert known.sd()["probability"] < unknown.sd()["probability"]
    assert "the number of rows, 50, is public" in str(known.privacy)


def test_people_count_in_full_up_to_the_declared_number():
    schema = Schema({"y": Binary()}, person="who", most_rows=4)
    model, data = (
        conjugate.Bernoulli("y"),
        {"y": np.arange(400) % 4 > 0, "who": np.arange(400) // 4},
    )
    with pytest.raises(InvalidArgument, match="most_rows"):
        plan(model, schema, budget=BUDGET, method=Statistics())
    budget = Budget(2000, 1e-5)
    whole = fit(
        model, data, schema=schema, budget=budget, method=Statistics(most_rows=4, **QUICK), seed=0
    )
    assert whole.trace["statistics"][0] == pytest.approx([100, 300], abs=1)
    assert whole.privacy.unit == "person"
    # With room for one row only, a person's rows are shrunk together: (1, 3) to norm 1.
    short = fit(
        model, data, schema=schema, budget=budget, method=Statistics(most_rows=1, **QUICK), seed=0
    )
    assert short.trace["statistics"][0] == pytest.approx(100 * np.array([1, 3]) / 10**0.5, abs=1)


@pytest.mark.parametrize("noise", NOISES)
def test_a_row_within_bounds_is_never_clipped(noise):
    corners = np.array(np.meshgrid([-1, 1], [-1, 1])).reshape(2, -1)
    model = conjugate.LinearRegression("y", ("x",), bounds=((-1, 1), (-1, 1)))
    method = Statistics(noise=noise, **QUICK)
    released = method.calibrate(model.unit_model, Budget(5000, 1e-5))
    for x, y in corners.T:
        size = np.linalg.norm([1, x, y, x * x, x * y, y * y], 1 if released.laplace else 2)
        assert size == pytest.approx(released.clip)
        rows = Rows({"x": np.full(100, x), "y": np.full(100, y)})
        post = fit(model, rows, budget=Budget(5000, 1e-5), method=method, seed=0)
        seen = post.trace["statistics"][0]
        assert seen == pytest.approx(100.0 * np.array([1, x, y, x * x, x * y, y * y]), abs=0.5)


def test_values_outside_the_bounds_are_moved_to_them():
    rows = Rows({"x": np.full(100, 1e6)})
    post = fit(NORMAL, rows, budget=Budget(5000, 1e-5), method=Statistics(**QUICK), seed=0)
    assert post.trace["statistics"][0] == pytest.approx([100, 100, 100], abs=0.5)


def test_other_models_are_refused():
    plain = Model(
        parameters={"m": Parameter()},
        log_prior=lambda p: -0.5 * p["m"] ** 2,
        log_likelihood=lambda p, row: -0.5 * (row["x"] - p["m"]) ** 2,
    ).unit_model
    rows = Rows(people(500))
    with pytest.raises(InvalidArgument, match=r"tacit\.conjugate"):
        fit(plain, rows, budget=BUDGET, method=Statistics())


@SLOWLY
def test_other_methods_fit_a_conjugate_model():
    rows = Rows(people(500))
    # The same conjugate model by other methods: near where statistics without noise are.
    truth = fit_without_privacy(NORMAL, rows, method=Statistics())
    by_guide = fit_without_privacy(
        NORMAL, rows, method=Variational(sampling_rate=0.5, num_steps=1000, clip=100.0)
    )
    for name in NORMAL.names:
        assert by_guide.mean()[name] == pytest.approx(truth.mean()[name], abs=4 * truth.sd()[name])
    chained = fit(
        NORMAL,
        rows,
        budget=Budget(20, 1e-5),
        method=Langevin(num_steps=200, clip=5.0, size=500),
        seed=0,
    )
    assert set(chained.draws) == {"mean", "variance"}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"noise": "uniform"}, "noise must be one of"),
        ({"size": 0}, "size"),
        ({"most_rows": 0.5}, "most_rows"),
        ({"num_draws": 0}, "num_draws"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, words):
    with pytest.raises(InvalidArgument, match=words):
        Statistics(**settings)


def test_columns_that_cannot_work_are_refused():
    schema = Schema(
        {"x": Number(0, 1), "c": Category(["a", "b", "c"]), "v": Number(0, 1, shape=(2,))}
    )
    for model in (
        conjugate.Bernoulli("x"),
        conjugate.Normal("c"),
        conjugate.Normal("v"),
        conjugate.Poisson("x"),
        conjugate.LinearRegression("x", ("c",)),
    ):
        with pytest.raises(InvalidArgument, match="of kind"):
            plan(model, schema, budget=BUDGET, method=Statistics())
    with pytest.raises(InvalidArgument, match="needs public bounds"):
        fit(conjugate.Normal("x"), Rows({"x": np.zeros(3)}), budget=BUDGET, method=Statistics())
    with pytest.raises(InvalidArgument, match="column"):
        fit(NORMAL, Rows({"z": np.zeros(3)}), budget=BUDGET, method=Statistics())

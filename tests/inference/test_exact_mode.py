"""The reference without privacy, beside closed forms, scipy and NUTS."""

import jax.numpy as jnp
import numpy as np
import pytest
from numpyro import distributions as dist
from scipy import optimize, stats
from scipy.special import expit, gammaln

import tacit
from tacit import Model, Rows
from tacit.errors import InvalidArgument
from tacit.inference.result import Intervals
from tacit.models import Parameter
from tacit.models.jax_model import Positive, Whole
from tacit.privacy import unclipped

RNG = np.random.default_rng(5)
N = 3000
# Very different scales, and correlated.
X = np.column_stack([np.ones(N), 300 * RNG.normal(size=N), 0.01 * RNG.normal(size=N)])
X[:, 2] += 2e-5 * X[:, 1]
X = X.astype(np.float32).astype(np.float64)  # as rows keep them
PRIOR = (100.0, 1.0, 1e4)
SDS = np.array(PRIOR)
TRUE = np.array([3.0, 0.2, -900.0])


def model(log_likelihood):
    return Model(
        parameters={"b": Parameter((3,))},
        log_prior=lambda p: -0.5 * sum((p["b"][i] / sd) ** 2 for i, sd in enumerate(PRIOR)),
        log_likelihood=log_likelihood,
    ).unit_model


def check_against_scipy(post, negative, gradient, start):
    """Mode and curvature as scipy finds them, in coordinates of like size."""
    unit = np.array([1, 1 / 300, 100])
    with np.errstate(over="ignore", invalid="ignore"):
        found = optimize.minimize(
            lambda z: negative(z * unit), np.array(start) / unit,
            jac=lambda z: gradient(z * unit) * unit, method="BFGS", options={"gtol": 1e-4},
        )  # fmt: skip
    at, wide = found.x, 1e-5
    slopes = [
        (gradient((at + wide * e) * unit) - gradient((at - wide * e) * unit)) * unit / (2 * wide)
        for e in np.eye(3)
    ]
    sd = np.sqrt(np.diag(np.linalg.inv(slopes))) * unit
    assert post.converged
    assert np.all(np.abs(post.mean()["b"] - at * unit) < 0.01 * sd)
    assert post.sd()["b"] == pytest.approx(sd, rel=0.01)


def test_linear_regression_is_the_closed_form_with_its_correlations():
    y = (X @ TRUE + 2 * RNG.normal(size=N)).astype(np.float32)
    linear = model(lambda p, row: -0.5 * ((row["y"] - row["x"] @ p["b"]) / 2) ** 2)
    post = tacit.fit_without_privacy(linear, Rows({"x": X, "y": y}))
    covariance = np.linalg.inv(X.T @ X / 4 + np.diag(SDS**-2.0))
    mean = covariance @ X.T @ y / 4
    sd = np.sqrt(np.diag(covariance))
    assert post.converged
    assert np.all(np.abs(post.mean()["b"] - mean) < 1e-3 * sd)
    scaled = post.unconstrained_covariance / np.outer(sd, sd)
    assert scaled == pytest.approx(covariance / np.outer(sd, sd), abs=1e-6)
    drawn = np.cov(post.draws["b"].T) / np.outer(sd, sd)
    assert drawn == pytest.approx(covariance / np.outer(sd, sd), abs=2e-3)
    ends = post.interval(0.9)["b"]
    assert ends[1] - ends[0] == pytest.approx(2 * stats.norm.ppf(0.95) * sd, rel=0.1)


@pytest.mark.slow
def test_a_method_of_its_own_runs_as_it_did_and_misses_those_scales():
    y = (X @ TRUE + 2 * RNG.normal(size=N)).astype(np.float32)
    linear = model(lambda p, row: -0.5 * ((row["y"] - row["x"] @ p["b"]) / 2) ** 2)
    rows, method = Rows({"x": X, "y": y}), tacit.Variational()
    post = tacit.fit_without_privacy(linear, rows, method=method)
    assert post.converged is None
    assert post.intervals == Intervals.NO_NOISE
    assert len(post.trace["mean"]) == method.num_steps
    assert abs(post.mean()["b"][2]) < 100
    exact = tacit.fit_without_privacy(linear, rows)
    assert exact.mean()["b"][2] == pytest.approx(-900, abs=20)


@pytest.mark.parametrize("often", [0.5, -2.5])
def test_logistic_regression_as_scipy_minimises_it(often):
    """NumPyro's slope at a logit of zero is wrong: a rare yes must not keep the search there."""
    y = (np.random.default_rng(6).random(N) < expit(X @ [often, 0.002, 30])).astype(np.int32)
    logistic = model(lambda p, row: dist.Bernoulli(logits=row["x"] @ p["b"]).log_prob(row["y"]))
    post = tacit.fit_without_privacy(logistic, Rows({"x": X, "y": y}))

    def negative(b):
        eta = X @ b
        return -(y * eta - np.logaddexp(0, eta)).sum() + 0.5 * np.sum((b / SDS) ** 2)

    check_against_scipy(post, negative, lambda b: X.T @ (expit(X @ b) - y) + b / SDS**2, [0, 0, 0])


def test_poisson_regression_with_large_counts_as_scipy_minimises_it():
    near = [5.0, 0.001, 10]  # far from where the search starts
    y = RNG.poisson(np.exp(X @ near)).astype(np.int32)
    poisson = model(lambda p, row: dist.Poisson(jnp.exp(row["x"] @ p["b"])).log_prob(row["y"]))
    post = tacit.fit_without_privacy(poisson, Rows({"x": X, "y": y}))

    def negative(b):
        eta = X @ b
        return -(y * eta - np.exp(eta) - gammaln(y + 1)).sum() + 0.5 * np.sum((b / SDS) ** 2)

    check_against_scipy(post, negative, lambda b: X.T @ (np.exp(X @ b) - y) + b / SDS**2, near)


def abalone_like():
    rng = np.random.default_rng(1)
    length = rng.uniform(0.1, 0.8, 4000)
    whole = 4 * length**3 * np.exp(0.15 * rng.normal(size=4000))
    shell = 0.3 * whole * np.exp(0.15 * rng.normal(size=4000))
    rings = 4 + 6 * length - 9 * whole + 40 * shell + 2.4 * rng.normal(size=4000)
    return {"length": length, "whole": whole, "shell": shell, "rings": np.clip(rings, 0, 40)}


@pytest.mark.slow
def test_correlated_columns_by_formula_come_out_as_least_squares_has_them():
    data = abalone_like()
    schema = tacit.Schema(
        {
            "length": tacit.Number(0, 1),
            "whole": tacit.Number(0, 3),
            "shell": tacit.Number(0, 1.5),
            "rings": tacit.Number(0, 40),
        }
    )
    formula = tacit.glm("rings ~ length + whole + shell", family="gaussian", schema=schema)
    post = tacit.fit_without_privacy(formula, data)
    design = np.column_stack([np.ones(4000), *(data[n] for n in ("length", "whole", "shell"))])
    squares, rest, *_ = np.linalg.lstsq(design, data["rings"])
    sigma = np.sqrt(rest[0] / 3996)
    sds = sigma * np.sqrt(np.diag(np.linalg.inv(design.T @ design)))
    shown = post.in_units()
    found, sd = shown.mean(), shown.sd()
    for place, name in enumerate(("length", "whole", "shell"), start=1):
        assert abs(found[name] - squares[place]) < 0.25 * sds[place]  # the prior is weak
        assert sd[name] == pytest.approx(sds[place], rel=0.1)
    assert found["whole"] < -6
    assert post.mean()["sigma"] == pytest.approx(sigma, rel=0.02)


def test_rows_in_many_chunks_are_the_same_sum(monkeypatch):
    y = (X @ TRUE + 2 * RNG.normal(size=N)).astype(np.float32)
    linear = model(lambda p, row: -0.5 * ((row["y"] - row["x"] @ p["b"]) / 2) ** 2)
    rows = Rows({"x": X, "y": y})
    whole = tacit.fit_without_privacy(linear, rows)
    monkeypatch.setattr(unclipped, "_MAX_UNITS_PER_CHUNK", 64)  # and 56 in the last
    parts = tacit.fit_without_privacy(linear, rows)
    assert parts.mean()["b"] == pytest.approx(whole.mean()["b"], rel=1e-7)
    assert parts.unconstrained_covariance == pytest.approx(whole.unconstrained_covariance, rel=1e-6)


def test_without_rows_it_is_the_prior():
    linear = model(lambda p, row: jnp.log(row["y"]) * p["b"][0])  # not finite on zeros
    post = tacit.fit_without_privacy(linear, Rows({"y": np.zeros(0)}))
    assert post.converged
    assert np.abs(post.mean()["b"]).max() < 1e-6
    assert post.sd()["b"] == pytest.approx(SDS, rel=1e-3)


def test_people_with_few_rows_count_by_their_rows_and_padding_never():
    """Rows that are not there would be zeros, of which a logarithm is not finite."""
    y = RNG.gamma(2.0, 3.0, 400)
    person = RNG.integers(0, 150, 400)
    gamma = Model(
        parameters={"rate": Parameter((), Positive())},
        log_prior=lambda p: -p["rate"],
        log_likelihood=lambda p, row: (
            2 * jnp.log(p["rate"]) + jnp.log(row["y"]) - p["rate"] * row["y"]
        ),
    ).unit_model
    alone = tacit.fit_without_privacy(gamma, Rows({"y": y}))
    grouped = tacit.fit_without_privacy(gamma, Rows.by_person({"y": y}, person, 20))
    # Closed form: Gamma(800 + 1, total + 1); its mode on the scale of logarithms.
    assert np.exp(alone.unconstrained_mean[0]) == pytest.approx(801 / (y.sum() + 1), rel=1e-5)
    assert grouped.unconstrained_mean == pytest.approx(alone.unconstrained_mean, abs=1e-7)
    assert grouped.unconstrained_covariance == pytest.approx(np.array([[1 / 801]]), rel=1e-4)
    assert (grouped.draws["rate"] > 0).all()


@pytest.mark.slow
def test_effects_of_people_are_integrated_out():
    """A balanced one-way layout with known noise: the likelihood of mean and spread by hand."""
    rng = np.random.default_rng(0)
    people, each = 60, 4
    effects = rng.normal(0, 1.5, people)
    y = 1 + np.repeat(effects, each) + rng.normal(0, 1, people * each)
    person = np.repeat(np.arange(people), each)

    schema = tacit.Schema({"y": tacit.Number(-12, 12)}, person="person", most_rows=each)
    post = tacit.fit_without_privacy(
        tacit.glm("y ~ (1 | person)", family="gaussian", schema=schema),
        {"y": y, "person": person},
    )
    assert post.converged
    means = y.reshape(people, each).mean(axis=1)
    within = np.sqrt(((y - np.repeat(means, each)) ** 2).sum() / (people * (each - 1)))
    assert post.mean()["Intercept"] == pytest.approx(means.mean(), abs=0.05)
    assert post.sd()["Intercept"] == pytest.approx(means.std(ddof=1) / np.sqrt(people), rel=0.1)
    assert post.mean()["sigma"] == pytest.approx(within, rel=0.05)
    between = np.sqrt(means.var(ddof=1) - within**2 / each)
    assert post.mean()["1|person_sd"] == pytest.approx(between, rel=0.1)


def test_public_constants_reach_both_functions():
    constants = {"sd": np.float32(2.0)}
    centre = Model(
        parameters={"m": Parameter(())},
        log_prior=lambda p, c: -0.5 * (p["m"] / c["sd"]) ** 2,
        log_likelihood=lambda p, row, c: -0.5 * ((row["y"] - p["m"]) / c["sd"]) ** 2,
        constants=constants,
    ).unit_model
    post = tacit.fit_without_privacy(centre, Rows({"y": np.array([6.0, 8.0])}))
    assert post.mean()["m"] == pytest.approx(14 / 3)
    assert post.sd()["m"] == pytest.approx(2 / np.sqrt(3), rel=1e-3)


def test_a_saddle_at_the_start_is_left():
    """Two like parts begin at the same place, where the gradient cannot tell them apart."""
    rng = np.random.default_rng(2)
    y = np.concatenate([rng.normal(-2, 0.5, 300), rng.normal(2, 0.5, 300)])

    def part(y, centre):
        return -0.5 * ((y - centre) / 0.5) ** 2

    two = Model(
        parameters={"c": Parameter((2,))},
        log_prior=lambda p: -0.5 * jnp.sum((p["c"] / 3) ** 2),
        log_likelihood=lambda p, row: jnp.logaddexp(
            part(row["y"], p["c"][0]), part(row["y"], p["c"][1])
        ),
    ).unit_model
    post = tacit.fit_without_privacy(two, Rows({"y": y}))
    assert post.converged
    assert np.sort(post.mean()["c"]) == pytest.approx([-2, 2], abs=0.1)


def test_a_mode_that_is_not_there_is_said():
    def endless(p, row):  # rises for ever
        return p["m"] + 0 * row["y"]

    flat = Model(
        parameters={"m": Parameter(())}, log_prior=lambda p: 0 * p["m"], log_likelihood=endless
    ).unit_model
    post = tacit.fit_without_privacy(flat, Rows({"y": np.zeros(5)}))
    assert post.converged is False
    text = str(post.summary())
    assert "DID NOT CONVERGE" in text
    assert "does not fall in all directions" in text
    assert "settled" not in text


def test_it_says_what_it_is_and_a_file_keeps_it(tmp_path):
    centre = Model(
        parameters={"m": Parameter(())},
        log_prior=lambda p: -0.5 * p["m"] ** 2,
        log_likelihood=lambda p, row: -0.5 * (row["y"] - p["m"]) ** 2,
    ).unit_model
    post = tacit.fit_without_privacy(centre, Rows({"y": np.ones(9)}))
    text = post.summary().details()
    assert text.index("NOT PRIVATE") < text.index("Exact mode with Laplace approximation")
    assert "Newton's method converged" in text
    assert "settled" not in text
    assert not post.privacy.is_private
    assert "NOT PRIVATE" in str(post.privacy)
    post.save(tmp_path / "post.nc")
    again = tacit.Posterior.load(tmp_path / "post.nc")
    assert again == post
    assert again.messages == post.messages
    assert again.converged is True
    assert again.intervals == Intervals.NO_NOISE
    assert "settled" not in post.to_datatree().attrs
    post.report(tmp_path / "report")
    page = (tmp_path / "report" / "report.md").read_text()
    assert "NOT PRIVATE" in page
    assert "converged" in page
    assert "settled" not in page


def test_a_seed_repeats_the_draws():
    centre = model(lambda p, row: -0.5 * (row["y"] - p["b"][0]) ** 2)
    rows = Rows({"y": np.ones(9)})
    one, two, other = (tacit.fit_without_privacy(centre, rows, seed=s) for s in (3, 3, 4))
    assert np.array_equal(one.draws["b"], two.draws["b"])
    assert not np.array_equal(one.draws["b"], other.draws["b"])


def mean_of():
    return model(lambda p, row: -0.5 * (row["y"] - p["b"][0]) ** 2)


def discrete():
    return Model(
        parameters={"k": Parameter((), Whole(0, 5))},
        log_prior=lambda p: 0.0 * p["k"],
        log_likelihood=lambda p, row: -((row["y"] - p["k"]) ** 2),
    ).unit_model


def impossible():
    return model(lambda p, row: jnp.log(row["y"] * jnp.ones(())) + 0 * p["b"][0])


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ({"method": "newton"}, "There is no method"),
        ({"method": tacit.Variational}, "method"),
        ({"seed": -1}, "seed"),
        ({"model": discrete()}, "'k' of the model is discrete"),
        ({"model": discrete(), "method": "nuts"}, "'k' of the model is discrete"),
        ({"model": impossible()}, "some row is impossible"),
        ({"model": model(lambda p, row: p["b"][0] * row["z"])}, "asks for 'z'"),
        ({"data": {"y": [1.0]}}, "with a schema"),
    ],
)
def test_wrong_arguments_are_one_sentence(call, words):
    given = {"model": mean_of(), "data": Rows({"y": -np.ones(4)})} | call
    with pytest.raises(InvalidArgument, match=words):
        tacit.fit_without_privacy(given.pop("model"), given.pop("data"), **given)


@pytest.mark.slow
def test_nuts_draws_from_the_posterior_where_a_normal_is_wrong():
    """A rate by few counts: the posterior is a gamma distribution, far from normal."""
    counts = Model(
        parameters={"rate": Parameter((), Positive())},
        log_prior=lambda p: -p["rate"],
        log_likelihood=lambda p, row: row["y"] * jnp.log(p["rate"]) - p["rate"],
    ).unit_model
    rows = Rows({"y": np.array([0, 1, 0], np.int32)})
    post = tacit.fit_without_privacy(counts, rows, method="nuts")
    assert post.converged
    assert post.chain
    truth = stats.gamma(2, scale=1 / 4)
    assert post.effective_sizes()["rate"] > 100
    found = post.quantiles([0.05, 0.5, 0.95])["rate"]
    assert found == pytest.approx(truth.ppf([0.05, 0.5, 0.95]), rel=0.25)
    assert "NUTS" in str(post.summary())
    assert "NOT PRIVATE" in str(post.summary())
    empty = tacit.fit_without_privacy(counts, Rows({"y": np.zeros(0, np.int32)}), method="nuts")
    assert empty.mean()["rate"] == pytest.approx(1, abs=0.2)


@pytest.mark.slow
def test_mode_and_nuts_agree_on_a_regression_of_different_scales():
    y = (X @ TRUE + 2 * RNG.normal(size=N)).astype(np.float32)
    linear = model(lambda p, row: -0.5 * ((row["y"] - row["x"] @ p["b"]) / 2) ** 2)
    rows = Rows({"x": X, "y": y})
    one, two = (tacit.fit_without_privacy(linear, rows, method=m) for m in (None, "nuts"))
    assert np.all(np.abs(one.mean()["b"] - two.mean()["b"]) < 0.2 * one.sd()["b"])
    assert two.sd()["b"] == pytest.approx(one.sd()["b"], rel=0.15)

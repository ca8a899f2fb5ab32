"""Sites fit the models of tacit.conjugate: the same posterior as one who has all rows."""

import numpy as np
import pytest
from scipy import stats

from tacit import (
    Binary,
    Budget,
    Category,
    Count,
    Ledger,
    Number,
    Rows,
    Schema,
    Statistics,
    conjugate,
    fit_federated,
    fit_without_privacy,
)
from tacit.errors import InvalidArgument
from tacit.federated import Partitioned
from tacit.federated.method import run_in_process
from tacit.federated.schemes import ClippedChanges, ClippedStatistics, OneRelease, WithoutPrivacy
from tacit.federated.targets import conjugate_target
from tacit.models.exponential_families import NormalInverseGamma

RNG = np.random.default_rng(0)
COUNT = 900
X = RNG.uniform(-1, 2, COUNT).astype(np.float32)
TABLE = {
    "x": X,
    "b": RNG.integers(0, 2, COUNT),
    "y": np.clip(3 + 2 * X + 0.5 * RNG.normal(size=COUNT), -4, 10).astype(np.float32),
    "n": np.minimum(RNG.poisson(3.0, COUNT), 20),
    "c": RNG.integers(0, 3, COUNT),
}
SCHEMA = Schema(
    {
        "x": Number(-1, 2),
        "b": Binary(),
        "y": Number(-4, 10),
        "n": Count(20),
        "c": Category(("u", "v", "w")),
    }
)
SITES = {"north": slice(0, 600), "south": slice(600, COUNT)}
CLEAR = Partitioned(scheme=WithoutPrivacy(), num_rounds=1)
MODELS = {
    "poisson": conjugate.Poisson("n", shape=2.0, inverse_scale=0.5, bounds=((0, 20),)),
    "regression": conjugate.LinearRegression(
        "y", ("x", "b"), noise_sd=0.5, coefficient_sd=2.0, bounds=((-1, 2), (0, 1), (-4, 10))
    ),
    "unknown variance": conjugate.LinearRegression(
        "y", ("x",), variance_shape=3.0, bounds=((-1, 2), (-4, 10))
    ),
    "normal": conjugate.Normal("y", mean=1.0, mean_rows=2.0, bounds=((-4, 10),)),
    "bernoulli": conjugate.Bernoulli("b", successes=2.0, failures=3.0),
    "categorical": conjugate.Categorical("c", levels=3, concentration=0.5),
}


def rows(where=slice(None)):
    return Rows({name: values[where] for name, values in TABLE.items()})


def by_site():
    return {name: rows(where) for name, where in SITES.items()}


def design():
    return np.column_stack([np.ones(COUNT), X.astype(float), TABLE["b"]])


@pytest.mark.parametrize(
    "name",
    [
        "unknown variance",
        "categorical",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("poisson", "regression", "normal", "bernoulli")
        ),
    ],
)
def test_sites_together_find_the_pooled_posterior(name):
    """Both fits draw from it, one by natural parameters and the other by scaled sums."""
    apart = fit_federated(MODELS[name], by_site(), method=CLEAR)
    pooled = fit_without_privacy(MODELS[name], rows(), method=Statistics(num_draws=4000))
    assert set(apart.draws) == set(pooled.draws)
    for parameter, draws in pooled.draws.items():
        sd = draws.std(axis=0)
        assert apart.draws[parameter].shape[1:] == draws.shape[1:]
        assert np.all(np.abs(apart.draws[parameter].mean(axis=0) - draws.mean(axis=0)) < 0.2 * sd)
        assert apart.draws[parameter].std(axis=0) == pytest.approx(sd, rel=0.15)


def test_counts_of_two_sites_are_exact():
    found = fit_federated(MODELS["poisson"], by_site(), method=CLEAR).trace["natural"][-1]
    assert found == pytest.approx([2 + TABLE["n"].sum(), 0.5 + COUNT], rel=1e-9)


def test_a_regression_of_two_sites_is_exact():
    post = fit_federated(MODELS["regression"], by_site(), method=CLEAR)
    z, y = design(), TABLE["y"].astype(float)
    precision = z.T @ z / 0.25 + np.diag([1.0, 0.25, 0.25])
    mean = np.linalg.solve(precision, z.T @ y / 0.25)
    assert post.unconstrained_mean == pytest.approx(mean, rel=1e-6)
    assert post.unconstrained_covariance == pytest.approx(np.linalg.inv(precision), rel=1e-6)


def test_an_unknown_variance_of_two_sites_is_exact():
    post = fit_federated(MODELS["unknown variance"], by_site(), method=CLEAR)
    z, y = design()[:, :2], TABLE["y"].astype(float)
    after = z.T @ z + np.eye(2)
    mean = np.linalg.solve(after, z.T @ y)
    scale = 1.0 + (y @ y - mean @ after @ mean) / 2
    expected = NormalInverseGamma(2).from_prior(mean, after, 3 + COUNT / 2, scale)
    assert post.trace["natural"][-1] == pytest.approx(expected, rel=1e-6)
    variance = stats.invgamma(3 + COUNT / 2, scale=scale)
    assert post.draws["variance"].mean() == pytest.approx(variance.mean(), rel=0.01)


@pytest.mark.parametrize(("name", "clip"), [("poisson", 25.0), ("regression", 110.0)])
@pytest.mark.parametrize("rounds", [1, 3])
def test_clipped_statistics_are_within_their_noise(name, clip, rounds):
    model, budget = MODELS[name], Budget(10, 1e-5)
    exact = fit_federated(model, by_site(), method=CLEAR).trace["natural"][-1]
    method = Partitioned(scheme=ClippedStatistics(clip=clip), num_rounds=rounds)
    prepared = method.scheme.prepare(method.setting(conjugate_target(model), budget, 2))
    std = prepared.work.mechanism.noise_std * 2**0.5  # of two sites
    found = [
        fit_federated(model, by_site(), budget=budget, method=method, seed=seed).trace["natural"][0]
        for seed in range(3)
    ]
    errors = (np.array(found) - exact) / std
    assert np.abs(errors).max() < 5
    assert 0.3 < errors.std() < 2  # there is noise


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("noise", ["site", pytest.param("server", marks=pytest.mark.slow), None])
def test_every_scheme_for_statistics_takes_every_conjugate_model(name, noise):
    """Without noise, so that what remains is the scheme: sums on a lattice of the clip."""
    target, rows = conjugate_target(MODELS[name]), by_site()
    scheme = OneRelease(clip=400.0) if noise is None else ClippedChanges(clip=1e5, noise=noise)
    method = Partitioned(scheme=scheme, num_rounds=1)
    found = run_in_process(
        method, target, rows, dict.fromkeys(rows), run="r", seed=0
    ).server.posterior
    exact = run_in_process(
        CLEAR, target, rows, dict.fromkeys(rows), run="r", seed=0
    ).server.posterior
    assert target.family.is_proper(found)
    assert found == pytest.approx(exact, rel=1e-3, abs=1e-3 * np.abs(exact).max())


def test_a_schema_declares_the_bounds_and_a_ledger_is_charged(tmp_path):
    tables = {name: {n: v[where] for n, v in TABLE.items()} for name, where in SITES.items()}
    for table in tables.values():
        table["c"] = np.array(["u", "v", "w"])[table["c"]]
    book = Ledger.new(tmp_path / "north.db", total=Budget(3, 1e-4))
    method = Partitioned(scheme=OneRelease(clip=25.0), num_rounds=1)
    post = fit_federated(
        conjugate.Poisson("n"),
        tables,
        schema=SCHEMA,
        budget=Budget(2, 1e-5),
        method=method,
        ledgers={"north": book},
        seed=0,
    )
    assert book.left.epsilon == pytest.approx(1)
    assert post.mean()["rate"] == pytest.approx(3.0, abs=0.5)
    assert post.predict(tables["south"]).shape == (300,)


def test_optimisation_of_a_model_without_gaussian_posterior_names_what_to_use():
    with pytest.raises(InvalidArgument, match="OneRelease"):
        fit_federated(MODELS["poisson"], by_site(), budget=Budget(1, 1e-5))

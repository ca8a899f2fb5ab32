"""Without noise, sites together find what one who had all the data would find."""

from dataclasses import replace
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from through_origin import through_origin

from tacit import Model, Rows, conjugate
from tacit.federated.journal import RunTerms
from tacit.federated.protocol import InProcess
from tacit.federated.pvi import PVIServer
from tacit.federated.schemes import RunSetting, WithoutPrivacy
from tacit.federated.server import Schedule, run_schedule
from tacit.federated.site import Client
from tacit.federated.targets import ApproximateTarget, conjugate_target
from tacit.models import Parameter
from tacit.models.exponential_families import DiagonalGaussian, FullGaussian, kl_divergence

RNG = np.random.default_rng(0)
SCHEDULES = {
    "synchronous": Schedule(num_rounds=3),
    "damped": Schedule(num_rounds=60, damping=0.4),
    "sequential": Schedule(num_rounds=2, kind="sequential"),
    "groups": Schedule(num_rounds=2, group_size=2),
}


def engine(target, shares, schedule, scheme=None):
    setting = RunSetting(
        target=target, budget=None, answers=schedule.num_rounds, sites=len(shares), together=1
    )
    prepared = (scheme or WithoutPrivacy()).prepare(setting)
    terms = RunTerms(run="r", answers=schedule.num_rounds + 1, event=None, budget=None)
    clients = [Client(f"site {i}", rows, prepared.work, terms) for i, rows in enumerate(shares)]
    transport = InProcess(clients)
    server = PVIServer(
        run="r",
        family=target.family,
        prior=target.prior,
        sites=transport.sites,
        damping=schedule.damping,
    )
    trace = run_schedule(server, transport, schedule)
    return server, clients, trace


def unequal_shares(columns, sizes):
    cuts = np.cumsum(sizes)[:-1]
    parts = {name: np.split(values, cuts) for name, values in columns.items()}
    return [Rows({name: part[i] for name, part in parts.items()}) for i in range(len(sizes))]


X = RNG.normal(size=(500, 4)).astype(np.float32)
Y = (X @ [1.0, -2.0, 0.5, 0.0] + 0.7 * RNG.normal(size=500)).astype(np.float32)
SIZES = [250, 100, 100, 49, 1]


@pytest.mark.parametrize("name", SCHEDULES)
def test_linear_regression_is_exact(name):
    target = through_origin(4, noise_sd=0.7, prior_sd=3.0)
    server, _, _ = engine(target, unequal_shares({"x": X, "y": Y}, SIZES), SCHEDULES[name])
    x, y = X.astype(float), Y.astype(float)
    precision = x.T @ x / 0.49 + np.eye(4) / 9
    mean = np.linalg.solve(precision, x.T @ y / 0.49)
    assert target.family.mean(server.posterior) == pytest.approx(mean, rel=1e-6, abs=1e-6)
    assert target.family.covariance(server.posterior) == pytest.approx(
        np.linalg.inv(precision), rel=1e-6, abs=1e-9
    )


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("model", ["poisson", "bernoulli", "categorical"])
def test_counts_and_shares_are_exact(name, model):
    counts = RNG.poisson(3.0, 400) % 3 if model == "categorical" else RNG.poisson(3.0, 400)
    if model == "bernoulli":
        counts = counts % 2
    chosen = {
        "poisson": conjugate.Poisson("y", shape=2.0, inverse_scale=0.5, bounds=((0, 20),)),
        "bernoulli": conjugate.Bernoulli("y", successes=2.0, failures=3.0),
        "categorical": conjugate.Categorical("y", levels=3, concentration=0.5),
    }[model]
    target = conjugate_target(chosen)
    expected = {
        "poisson": lambda: [2 + counts.sum(), 0.5 + 400],
        "bernoulli": lambda: [3 + 400 - counts.sum(), 2 + counts.sum()],
        "categorical": lambda: 0.5 + np.bincount(counts, minlength=3),
    }[model]()
    shares = unequal_shares({"y": counts}, [200, 150, 49, 1])
    server, _, _ = engine(target, shares, SCHEDULES[name])
    assert server.posterior == pytest.approx(expected, rel=1e-6)
    draws = target.named_draws(server.posterior, 1000, 0)
    assert next(iter(draws.values())).shape[0] == 1000


@pytest.mark.parametrize("name", SCHEDULES)
def test_factors_of_server_and_sites_never_differ(name):
    target = through_origin(4, noise_sd=0.7, prior_sd=3.0)
    shares = unequal_shares({"x": X, "y": Y}, SIZES)
    server, clients, _ = engine(target, shares, SCHEDULES[name])
    parts = sum(server.factors.values())
    assert target.prior + parts == pytest.approx(server.posterior, rel=1e-9)
    # One more round tells sites what became of their last answers.
    tasks = server.tasks(server.sites)
    before = {name: factor.copy() for name, factor in server.factors.items()}
    InProcess(clients).exchange(tasks)
    for client in clients:
        assert np.array_equal(client.factor, before[client.name])


def logistic(size):
    return Model(
        parameters={"w": Parameter((size,))},
        log_prior=lambda p: -0.5 * jnp.sum((p["w"] / 2) ** 2),
        log_likelihood=lambda p, row: jax.nn.log_sigmoid(
            (2 * row["y"] - 1) * jnp.dot(row["x"], p["w"])
        ),
    ).unit_model


LOGITS = X @ np.array([1.0, -1.0, 0.5, 0.0])
LABELS = (RNG.uniform(size=500) < 1 / (1 + np.exp(-LOGITS))).astype(np.int32)


@lru_cache
def central(target):
    """The stationary point of the free energy of all data, by natural gradients to the end."""
    whole = [Rows({"x": X, "y": LABELS})]
    server, _, _ = engine(target, whole, Schedule(num_rounds=30))
    return server.posterior


APPROXIMATE = {
    family: ApproximateTarget(model=logistic(4), family=family)
    for family in (DiagonalGaussian(4), FullGaussian(4))
}


@pytest.mark.parametrize("family", APPROXIMATE)
@pytest.mark.parametrize("name", ["synchronous", "sequential", "groups"])
def test_other_models_find_the_same_as_with_all_data_in_one_place(family, name):
    target = APPROXIMATE[family]
    shares = unequal_shares({"x": X, "y": LABELS}, [250, 125, 125])
    # A quick site has long stopped when a slow one gives its last answer.
    rounds = 12
    schedule = replace(SCHEDULES[name], num_rounds=rounds)
    server, _, _ = engine(target, shares, schedule)
    assert kl_divergence(family, server.posterior, central(target)) < 1e-6


def test_natural_gradients_find_the_posterior():
    target = ApproximateTarget(model=logistic(4), family=FullGaussian(4), num_draws=64)
    found = central(target)
    mean, covariance = target.family.mean(found), target.family.covariance(found)
    # By importance sampling: a posterior that is nearly Gaussian.
    proposal = stats.multivariate_normal(mean, 1.2 * covariance)
    draws = proposal.rvs(30_000, random_state=0)
    signs = 2 * LABELS - 1
    density = -(draws**2).sum(axis=1) / 8 - np.logaddexp(0, -(draws @ X.T) * signs).sum(axis=1)
    weights = density - proposal.logpdf(draws)
    weights = np.exp(weights - weights.max())
    weights /= weights.sum()
    true = weights @ draws
    sd = np.sqrt(weights @ (draws - true) ** 2)
    assert mean == pytest.approx(true, abs=0.03 * sd.min())
    assert np.sqrt(np.diag(covariance)) == pytest.approx(sd, rel=0.03)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["synchronous", "sequential"])
@pytest.mark.parametrize("sites", [2, 10])
def test_coordinates_that_are_correlated_do_not_step_too_far_together(sites, kind):
    """As if each stood alone, twelve that all but move together overshoot twelve times."""
    rng = np.random.default_rng(3)
    common = rng.normal(size=(400, 1))
    x = (0.9 * common + 0.45 * rng.normal(size=(400, 12))).astype(np.float32)
    y = (rng.uniform(size=400) < 1 / (1 + np.exp(-x @ np.linspace(-1, 1, 12)))).astype(np.int32)
    shares = unequal_shares({"x": x, "y": y}, [400 // sites] * sites)
    found = {}
    for family in (DiagonalGaussian(12), FullGaussian(12)):
        target = ApproximateTarget(model=logistic(12), family=family, num_draws=32)
        schedule = Schedule(num_rounds=100, kind=kind)
        server, _, _ = engine(target, shares, schedule)
        found[type(family)] = family, server.posterior
    # Means of the two families are not quite the same; deviations are the full posterior's.
    full, eta = found[FullGaussian]
    spread = np.sqrt(np.diag(full.covariance(eta)))
    alone, other = found[DiagonalGaussian]
    assert np.abs(alone.mean(other) - full.mean(eta)).max() < 0.25 * spread.min()

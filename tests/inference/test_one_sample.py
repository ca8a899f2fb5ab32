"""One posterior sample, from a budget to a posterior with its statement."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

import tacit
from tacit import Budget, Ledger, Model, OneSample, Rows, fit, fit_without_privacy
from tacit.accounting import PLD
from tacit.errors import BoundaryError, BudgetError, InvalidArgument, UnsupportedEvent
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
from tacit.models.jax_model import Interval, Positive, Whole
from tacit.privacy.gate import open_gate
from tacit.privacy.noise import Randomness

RNG = np.random.default_rng(0)
YES = (RNG.random(2000) < 0.7).astype(np.float32)
X = RNG.normal(size=(400, 2)).astype(np.float32) * 0.6
SIDE = (RNG.logistic(size=400) < X @ [3.0, -2.0]).astype(np.float32)


@cache
def rate():
    """A yes or no with an unknown rate, Beta(2, 2)."""
    return Model(
        parameters={"rate": Parameter((), Interval())},
        log_prior=lambda p: jnp.log(p["rate"]) + jnp.log1p(-p["rate"]),
        log_likelihood=lambda p, row: jnp.where(
            row["y"] > 0.5, jnp.log(p["rate"]), jnp.log1p(-p["rate"])
        ),
    ).unit_model


@cache
def logistic(precision=1.0):
    return Model(
        parameters={"w": Parameter((2,))},
        log_prior=lambda p: -0.5 * precision * jnp.sum(p["w"] ** 2),
        log_likelihood=lambda p, row: jax.nn.log_sigmoid(
            (2 * row["y"] - 1) * jnp.dot(row["x"], p["w"])
        ),
    ).unit_model


ENDS = {"low": {"rate": 0.05}, "high": {"rate": 0.95}}
GRID = OneSample(
    sampler=GridSampler(**ENDS, points=300), claim=BoundedLikelihood(bound=np.log(19) / 2)
)
CONJUGATE = OneSample(sampler=ConjugateSampler(column="y", **ENDS))
REJECTION = OneSample(sampler=LogisticRejection())
CHAIN = OneSample(
    sampler=ChainSampler(approximate="a likelihood with one mode", warm_up=60, length=20),
    claim=LogConcave(slope=1.0, concavity=1.0, shortened=("x", 1.0)),
)
CASES = {
    "grid": (GRID, rate(), Rows({"y": YES}), "rate"),
    "conjugate": (CONJUGATE, rate(), Rows({"y": YES}), "rate"),
    "rejection": (REJECTION, logistic(), Rows({"x": X, "y": SIDE}), "w"),
    "chain": (CHAIN, logistic(), Rows({"x": X, "y": SIDE}), "w"),
}


@pytest.mark.parametrize(
    "case", ["grid", "conjugate", "rejection", pytest.param("chain", marks=pytest.mark.slow)]
)
def test_within_the_budget_charged_and_repeatable(case, tmp_path):
    method, model, rows, name = CASES[case]
    budget = Budget(0.5, 1e-5)
    ledger = Ledger.new(tmp_path / "book.db", total=Budget(2, 1e-4))
    post = fit(model, rows, budget=budget, method=method, ledger=ledger)
    assert ledger.left.epsilon == pytest.approx(1.5)
    assert post.privacy.is_private
    assert 0.49 < post.privacy.epsilons["add-remove"] <= 0.5
    assert post.num_draws == 1
    assert np.isfinite(post.draws[name]).all()
    first, second = (fit(model, rows, budget=budget, method=method, seed=4) for _ in range(2))
    assert np.array_equal(first.draws[name], second.draws[name])
    first.save(tmp_path / "one.nc")
    again = tacit.Posterior.load(tmp_path / "one.nc")
    assert np.array_equal(again.draws[name], first.draws[name])
    assert "seeded" in str(first.summary())


@pytest.mark.parametrize(("method", "places"), [(GRID, 300), (CONJUGATE, 2**13)])
def test_draws_are_those_of_the_tempered_posterior(method, places):
    many = OneSample(sampler=method.sampler, claim=method.claim, num_draws=4000)
    few = Rows({"y": YES[:60]})
    found = fit_without_privacy(rate(), few, method=many).draws["rate"]
    exact = stats.beta(2 + YES[:60].sum(), 2 + 60 - YES[:60].sum())
    assert stats.kstest(found, exact.cdf).statistic < 2.2 / np.sqrt(4000) + 3 / places


def test_calibration_is_the_theorem():
    """Pure budgets: the power is epsilon over what a draw of the posterior itself costs."""
    for adjacency, times in (("add-remove", 2), ("replace", 4)):
        release = GRID.calibrate(rate(), Budget(0.3, 0, adjacency))
        assert release.power == pytest.approx(0.3 / (times * GRID.claim.bound), rel=1e-4)
    half = GRID.calibrate(rate(), Budget(0.3, 0))
    four = OneSample(sampler=GRID.sampler, claim=GRID.claim, num_draws=4)
    assert four.calibrate(rate(), Budget(0.3, 0)).power == pytest.approx(half.power / 4, rel=1e-3)
    generous = GRID.calibrate(rate(), Budget(100, 0))
    assert generous.power == 1
    assert PLD().epsilon(generous.event, 0) == pytest.approx(2 * GRID.claim.bound, rel=1e-6)


def test_concave_draws_cost_what_their_gaussian_does():
    """Where likelihoods only tilt, posteriors are normal and the exact cost is known."""
    release = REJECTION.calibrate(logistic(), Budget(1, 1e-5))
    power, precision = release.power, release.precision
    # Neighbouring posteriors N(power x R / m, 1 / m) and N(0, 1 / m).
    shift = power * release.radius / precision * np.sqrt(precision)
    epsilons = np.array([0.1, 0.5, 1.0])
    exact = stats.norm.cdf(shift / 2 - epsilons / shift) - np.exp(epsilons) * stats.norm.cdf(
        -shift / 2 - epsilons / shift
    )
    charged = [PLD().delta(release.event, epsilon) for epsilon in epsilons]
    assert np.all(charged >= exact * (1 - 1e-9))
    assert charged == pytest.approx(exact, rel=1e-2)
    replaced = REJECTION.calibrate(logistic(), Budget(1, 1e-5, "replace"))
    assert replaced.power == pytest.approx(power / 2, rel=1e-3)
    four = OneSample(sampler=REJECTION.sampler, num_draws=4)
    assert four.calibrate(logistic(), Budget(1, 1e-5)).power == pytest.approx(power / 2, rel=1e-3)


@pytest.mark.parametrize("rows", [0, 5, 200])
def test_neighbours_are_no_further_apart_than_charged(rows):
    """Posteriors of one coefficient with and without a row, integrated numerically."""
    release = REJECTION.calibrate(logistic(), Budget(1, 1e-5))
    places = np.linspace(-9, 9, 40_001)
    rng = np.random.default_rng(rows)
    signed = rng.uniform(-1, 1, rows)

    def posterior(signed):
        loss = np.logaddexp(0, -np.outer(places, signed)).sum(axis=1)
        density = np.exp(-0.5 * places**2 - release.power * (loss - loss.min()))
        return density / density.sum()

    for extra in (1.0, -1.0):
        pair = posterior(signed), posterior(np.append(signed, extra))
        for one, other in (pair, pair[::-1]):
            for epsilon in (0.0, 0.05, 0.2, 0.5):
                apart = np.maximum(one - np.exp(epsilon) * other, 0).sum()
                assert apart <= PLD().delta(release.event, epsilon) + 1e-9


def test_people_pull_with_all_their_rows():
    people = Rows.by_person({"x": X, "y": SIDE}, np.arange(400) // 2, most_rows=2)
    with pytest.raises(InvalidArgument, match="rows_per_unit=2"):
        fit(logistic(), people, budget=Budget(1, 1e-5), method=REJECTION)
    method = OneSample(sampler=LogisticRejection(rows_per_unit=2))
    post = fit(logistic(), people, budget=Budget(1, 1e-5), method=method)
    assert post.privacy.unit == "person"
    alone = REJECTION.calibrate(logistic(), Budget(1, 1e-5)).power
    assert method.calibrate(logistic(), Budget(1, 1e-5)).power == pytest.approx(alone / 2, rel=1e-3)


def test_lipschitz_is_for_replace_only():
    method = OneSample(
        sampler=GridSampler(low={"w": -3.0}, high={"w": 3.0}, points=30),
        claim=LipschitzLikelihood(slope=4.0, radius=1.0),
    )
    rows = Rows({"x": X, "y": SIDE})
    with pytest.raises(UnsupportedEvent, match="replace"):
        fit(logistic(), rows, budget=Budget(1, 1e-5), method=method)
    post = fit(logistic(), rows, budget=Budget(1, 1e-5, "replace"), method=method, seed=0)
    assert post.privacy.epsilons["add-remove"] is None
    assert 0.98 < post.privacy.epsilons["replace"] <= 1
    assert np.abs(post.draws["w"]).max() <= 3
    people = Rows.by_person({"x": X, "y": SIDE}, np.arange(400) // 2, most_rows=2)
    with pytest.raises(InvalidArgument, match="record"):
        fit(logistic(), people, budget=Budget(1, 1e-5, "replace"), method=method)


def test_an_assumption_must_be_stated():
    with pytest.raises(InvalidArgument, match="exact"):
        ChainSampler()
    with pytest.raises(InvalidArgument, match="exact"):
        ChainSampler(approximate="  ")


@pytest.mark.slow
def test_an_assumption_is_repeated():
    _, model, rows, _ = CASES["chain"]
    post = fit(model, rows, budget=Budget(1, 1e-5), method=CHAIN)
    said = str(post.privacy)
    assert "a likelihood with one mode" in said
    assert "concave" in said
    assert "a likelihood with one mode" in post.privacy.to_json()
    exact = fit(model, rows, budget=Budget(1, 1e-5), method=REJECTION)
    assert "exact draw" not in str(exact.privacy)


def test_a_bound_must_be_stated_and_must_suit():
    with pytest.raises(InvalidArgument, match="BoundedLikelihood or LipschitzLikelihood"):
        OneSample(sampler=GRID.sampler)
    with pytest.raises(InvalidArgument, match="BoundedLikelihood or LipschitzLikelihood"):
        OneSample(sampler=GRID.sampler, claim=LogConcave(slope=1.0, concavity=1.0))
    with pytest.raises(InvalidArgument, match="leave claim out"):
        OneSample(sampler=CONJUGATE.sampler, claim=GRID.claim)
    with pytest.raises(InvalidArgument, match="bound"):
        BoundedLikelihood(bound=-1.0)
    with pytest.raises(BudgetError):  # a normal spread is never pure
        REJECTION.calibrate(logistic(), Budget(1, 0))


def test_models_that_are_something_else_are_refused():
    rows = Rows({"x": X, "y": SIDE})

    def refused(model, method, words):
        with pytest.raises(InvalidArgument, match=words):
            fit(model, rows, budget=Budget(1, 1e-5), method=method)

    refused(logistic(precision=2.0), REJECTION, "not a logistic regression")
    refused(logistic(precision=0.1), CHAIN, "not as concave")
    refused(logistic(), CONJUGATE, "not a parameter")
    refused(
        Model(
            parameters={"rate": Parameter((), Interval())},
            log_prior=lambda p: 0.0 * p["rate"],
            log_likelihood=lambda p, row: -((row["y"] - p["rate"]) ** 2) * row["y"],
        ).unit_model,
        OneSample(sampler=ConjugateSampler(column="y", values=(0.0, 3.0), **ENDS)),
        "not linear",
    )
    wide = GridSampler(low={"w": 0.0}, high={"w": 0.0})
    refused(logistic(), OneSample(sampler=wide, claim=GRID.claim), "low < high")
    dense = GridSampler(low={"w": -1.0}, high={"w": 1.0}, points=1000)
    refused(logistic(), OneSample(sampler=dense, claim=GRID.claim), "fewer points")


def test_conjugate_models_of_counts_and_numbers():
    """Poisson with a Gamma prior, and a normal mean, against their closed forms."""
    counts = RNG.poisson(3.0, 40)
    poisson = Model(
        parameters={"mean": Parameter((), Positive())},
        log_prior=lambda p: jnp.log(p["mean"]) - p["mean"],
        log_likelihood=lambda p, row: (
            row["k"] * jnp.log(p["mean"]) - p["mean"] - jax.scipy.special.gammaln(row["k"] + 1.0)
        ),
    ).unit_model
    sampler = ConjugateSampler(column="k", values=(0, 30), low={"mean": 0.5}, high={"mean": 12.0})
    method = OneSample(sampler=sampler, num_draws=3000)
    found = fit_without_privacy(poisson, Rows({"k": counts}), method=method).draws["mean"]
    exact = stats.gamma(2 + counts.sum(), scale=1 / 41)
    assert stats.kstest(found, exact.cdf).pvalue > 1e-3
    values = RNG.normal(0.5, 1.0, 40)
    mean = Model(
        parameters={"mean": Parameter()},
        log_prior=lambda p: -0.5 * p["mean"] ** 2,
        log_likelihood=lambda p, row: -0.5 * (row["v"] - p["mean"]) ** 2,
    ).unit_model
    sampler = ConjugateSampler(
        column="v", values=(-4.0, 4.0), whole=False, low={"mean": -3.0}, high={"mean": 3.0}
    )
    method = OneSample(sampler=sampler, num_draws=3000)
    found = fit_without_privacy(mean, Rows({"v": values}), method=method).draws["mean"]
    exact = stats.norm(values.sum() / 41, 41**-0.5)
    assert stats.kstest(found, exact.cdf).pvalue > 1e-3


def test_discrete_parameters_on_a_grid():
    """How many sides a die has: all values are on the grid, at their exact probabilities."""
    rolls = RNG.integers(1, 7, 8)
    die = Model(
        parameters={"sides": Parameter((), Whole(2, 12))},
        log_prior=lambda p: 0.0 * p["sides"],
        log_likelihood=lambda p, row: jnp.where(
            row["roll"] <= p["sides"], -jnp.log(p["sides"] * 1.0), -jnp.inf
        ),
    ).unit_model
    method = OneSample(
        sampler=GridSampler(low={}, high={}), claim=BoundedLikelihood(bound=20.0), num_draws=4000
    )
    found = fit_without_privacy(die, Rows({"roll": rolls}), method=method).draws["sides"]
    sides = np.arange(rolls.max(), 13)
    expected = sides**-8.0 / np.sum(sides**-8.0)
    shares = np.array([np.mean(found == each) for each in sides])
    assert np.allclose(shares, expected, atol=4 * np.sqrt(expected.max() / 4000))
    for sampler, claim in ((CONJUGATE.sampler, None), (CHAIN.sampler, CHAIN.claim)):
        with pytest.raises(InvalidArgument, match="discrete"):
            OneSample(sampler=sampler, claim=claim).calibrate(die, Budget(1, 1e-5))


@pytest.mark.slow
def test_people_and_plans_of_a_numpyro_model():
    def model(ill=None):
        share = numpyro.sample("share", dist.Beta(2, 2))
        with numpyro.plate("data", 1 if ill is None else ill.shape[0]):
            numpyro.sample("ill", dist.Bernoulli(share), obs=ill)

    schema = tacit.Schema({"ill": tacit.Binary()}, person="id", most_rows=3)
    method = OneSample(
        sampler=GridSampler(low={"share": 0.05}, high={"share": 0.95}),
        claim=BoundedLikelihood(bound=2.0),
    )
    plan = tacit.plan(model, schema, budget=Budget(1, 0), method=method)
    said = str(plan)
    assert "500 public points" in said
    assert "one person moves a log probability ratio by at most 1" in said
    data = {"id": np.arange(6000) // 2, "ill": RNG.random(6000) < 0.3}
    post = fit(plan, data)
    assert post.privacy.unit == "person"
    assert post.draws["share"][0] == pytest.approx(0.3, abs=0.1)
    assert post.privacy.epsilons["replace"] == pytest.approx(2, rel=1e-3)


def rate_of_vectors():
    """The same model, for a column that holds a vector for each row."""
    alone = rate().source
    return Model(
        parameters=alone.parameters,
        log_prior=alone.log_prior,
        log_likelihood=lambda p, row: alone.log_likelihood(p, row).sum(),
    ).unit_model


def test_a_row_with_a_vector_where_one_number_is_read_is_refused_and_not_charged(tmp_path):
    """Else every row would count once for each row there is."""
    ledger = Ledger.new(tmp_path / "book.db", total=Budget(1, 0), unit="row")
    with pytest.raises(InvalidArgument, match="one number for each row"):
        fit(
            rate_of_vectors(),
            Rows({"y": YES[:, None]}),
            budget=Budget(1, 0),
            method=CONJUGATE,
            ledger=ledger,
        )
    assert not ledger.charges
    plan = CONJUGATE.calibrate(rate(), Budget(1, 0))
    for column in ({"y": YES[:, None]}, {"x": YES}):
        with pytest.raises(InvalidArgument, match="The sampler reads"):
            open_gate(Rows(column), plan, Randomness(0)).draw()


def test_features_of_another_length_are_refused_before_anything_is_charged(tmp_path):
    ledger = Ledger.new(tmp_path / "book.db", total=Budget(1, 1e-5), unit="row")
    wide = logistic().source
    short = Model(
        parameters=wide.parameters,
        log_prior=wide.log_prior,
        log_likelihood=lambda p, row: wide.log_likelihood(p, {**row, "x": row["x"][:2]}),
    ).unit_model
    with pytest.raises(InvalidArgument, match="a vector of 2 for each row"):
        fit(
            short,
            Rows({"x": np.c_[X, X], "y": SIDE}),
            budget=Budget(1, 1e-5),
            method=REJECTION,
            ledger=ledger,
        )
    assert not ledger.charges


def test_a_prior_that_tells_where_the_chain_is_is_refused(tmp_path):
    """A chain's path follows rows; only its end is charged for."""
    seen, plain = {"times": 0}, logistic()

    def telling(p):
        jax.debug.callback(lambda _: seen.update(times=seen["times"] + 1), p["w"])
        return plain.source.log_prior(p)

    model = Model(
        parameters=plain.source.parameters,
        log_prior=telling,
        log_likelihood=plain.source.log_likelihood,
    ).unit_model
    ledger = Ledger.new(tmp_path / "book.db", total=Budget(1, 1e-5), unit="row")
    with pytest.raises(BoundaryError, match="debug_callback"):
        fit(model, CASES["chain"][2], budget=Budget(1, 1e-5), method=CHAIN, ledger=ledger)
    assert not ledger.charges
    plan = CHAIN.calibrate(plain, Budget(1, 1e-5))
    seen["times"] = 0
    with pytest.raises(BoundaryError, match="debug_callback"):
        open_gate(CASES["chain"][2], plan).draw(model.log_prior, plain.log_likelihood, None)
    assert seen["times"] == 0

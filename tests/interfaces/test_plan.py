"""A plan says what will be done and what it costs, and touches no data."""

import warnings
from functools import cache

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import polars as pl
import pytest

import tacit
from tacit.errors import ForecastWarning, InvalidArgument

RNG = np.random.default_rng(0)
WARDS = ["A", "B", "C"]
TABLE = {
    "age": RNG.uniform(18, 100, size=4000),
    "ward": RNG.choice(["A", "B", "C", "D"], size=4000),
    "patient": RNG.integers(0, 900, size=4000),
}
EFFECTS = {"A": -1.0, "B": 0.0, "C": 1.0, "D": 0.5}
TABLE["ill"] = RNG.uniform(size=4000) < 1 / (
    1 + np.exp(-(TABLE["age"] - 59) / 41 - np.vectorize(EFFECTS.get)(TABLE["ward"]))
)
COLUMNS = {
    "age": tacit.Number(18, 100, scaled=True),
    "ward": tacit.Category(WARDS, other="other"),
    "ill": tacit.Binary(),
}
SCHEMA = tacit.Schema(COLUMNS)
BUDGET = tacit.Budget(1, 1e-6)
QUICK = tacit.Variational(num_steps=40, sampling_rate=1.0)


def model(age, ward, ill=None):
    slope = numpyro.sample("slope", dist.Normal(0, 1))
    with numpyro.plate("wards", 4):
        u = numpyro.sample("u", dist.Normal(0, 1))
    numpyro.deterministic("gap", u[2] - u[0])
    with numpyro.plate("rows", age.shape[0]):
        numpyro.sample("ill", dist.Bernoulli(logits=slope * age + u[ward]), obs=ill)


@cache
def planned():
    return tacit.plan(model, SCHEMA, budget=BUDGET, method=QUICK)


def test_says_what_it_does_and_costs():
    plan = tacit.plan(model, SCHEMA, budget=BUDGET)
    text = plan.details()
    for words in (
        "Private Fisher scoring for 5 unconstrained parameters; intervals include the noise.",
        "rows tell little more than the prior at this budget",
        "29 steps, each on all rows",
        "epsilon 1 at delta 1e-6, add-remove (requested)",
        f"epsilon {plan.epsilons['replace']:.5g} at delta 1e-6, replace",
        "if there were about 20,000 rows",
        "18 to 100",
        "3 levels and other",
    ):
        assert words in text, words
    assert 2 < plan.epsilons["replace"] < 2.2
    assert plan.seconds(10**6) >= plan.seconds(10**4) > 0


def test_costs_under_replace_when_asked():
    plan = tacit.plan(model, SCHEMA, budget=tacit.Budget(1, 1e-6, "replace"), method=QUICK)
    assert plan.epsilons["replace"] == pytest.approx(1, rel=1e-3)
    assert plan.epsilons["add-remove"] < 1


class Clock:
    """A machine that takes so long for a step, and for every unit in it; compiling takes a while."""

    def __init__(self):
        self.now, self.units, self.compiled = 0.0, 0, set()

    def perf_counter(self):
        return self.now

    def dummy_rows(self, model, schema, units):
        self.units = units
        return tacit.Rows({"age": np.zeros(units)})

    def run(self, gate, *steps):
        if self.units not in self.compiled:
            self.compiled.add(self.units)
            self.now += 30.0
        plan = gate.mechanism
        self.now += plan.num_steps * (1e-3 + 1e-6 * plan.expected_batch(self.units))


def test_the_estimate_of_time_is_that_of_the_steps(monkeypatch):
    clock = Clock()
    plan = tacit.plan(model, SCHEMA, budget=BUDGET, size=4000)
    monkeypatch.setattr("tacit.api.plan.time", clock)
    monkeypatch.setattr("tacit.api.plan.dummy_rows", clock.dummy_rows)
    monkeypatch.setattr("tacit.api.plan.run", clock.run)
    step = 1e-3 + 1e-6 * plan.mechanism.expected_batch(4000)
    assert plan.seconds(4000) == pytest.approx(plan.mechanism.num_steps * step)
    assert plan.seconds(40_000) == pytest.approx(10 * plan.seconds(4000))
    assert len(clock.compiled) == 1


def test_warns_of_columns_that_will_be_clipped():
    wide = tacit.Schema(COLUMNS | {"age": tacit.Number(18, 100)})
    assert "Most rows are clipped" in str(tacit.plan(model, wide, budget=BUDGET, method=QUICK))
    assert "Most rows are clipped" not in str(planned())


def test_clipping_is_told_before_the_charge_without_a_declared_size(tmp_path):
    wide = tacit.Schema(COLUMNS | {"age": tacit.Number(18, 100)})
    book = tacit.Ledger.new(tmp_path / "book.db", total=tacit.Budget(3, 1e-5))
    with warnings.catch_warnings():
        warnings.simplefilter("error", ForecastWarning)
        with pytest.raises(ForecastWarning, match="Most rows are clipped"):
            tacit.fit(model, TABLE, schema=wide, budget=BUDGET, method=QUICK, ledger=book)
    assert not book.charges
    # The default method's clip has no bias, and narrow columns are not clipped.
    assert tacit.plan(model, wide, budget=BUDGET).warnings == ()
    assert planned().warnings == ()


def test_every_kind_of_table_gives_the_same_fit():
    tables = (TABLE, pd.DataFrame(TABLE), pl.DataFrame(TABLE))
    fits = [tacit.fit(planned(), table, seed=1).draws["slope"] for table in tables]
    assert np.array_equal(fits[0], fits[1])
    assert np.array_equal(fits[0], fits[2])


def test_a_plan_and_its_parts_are_one_fit():
    whole = tacit.fit(planned(), TABLE, seed=2)
    parts = tacit.fit(model, TABLE, schema=SCHEMA, budget=BUDGET, method=QUICK, seed=2)
    assert np.array_equal(whole.draws["u"], parts.draws["u"])
    assert list(whole.draws) == ["slope", "u", "gap"]
    gap = whole.draws["u"][:, 2] - whole.draws["u"][:, 0]
    assert whole.draws["gap"] == pytest.approx(gap, abs=1e-5)


def test_an_unknown_ward_counts_as_other():
    post = tacit.fit_without_privacy(model, TABLE, schema=SCHEMA)
    assert post.mean()["u"] == pytest.approx([-1, 0, 1, 0.5], abs=0.3)


@pytest.fixture(scope="module")
def fitted():
    method = tacit.Variational(guide=tacit.methods.FullRank(), sampling_rate=0.2, num_steps=1500)
    return tacit.fit_without_privacy(model, TABLE, schema=SCHEMA, method=method)


def test_predictions_are_probabilities_of_the_simulation(fitted):
    new = pd.DataFrame({"age": [20.0, 95.0, np.nan, 60.0], "ward": ["A", "C", "B", "Z"]})
    logit = (np.array([20.0, 95.0, 60.0]) - 59) / 41 + [-1, 1, 0.5]
    truth = 1 / (1 + np.exp(-logit))
    mean, probit = fitted.predict(new), fitted.predict(new, kind="probit")
    draws = fitted.predict(new, kind="draws")
    there = [0, 1, 3]
    assert mean[there] == pytest.approx(truth, abs=0.08)
    assert probit[there] == pytest.approx(mean[there], abs=0.005)
    assert draws.shape == (1000, 4)
    assert np.isin(draws[:, there], (0, 1)).all()
    assert draws[:, there].mean(axis=0) == pytest.approx(mean[there], abs=0.06)
    assert np.isnan(mean[2])
    assert np.isnan(draws[:, 2]).all()


def test_probit_predictions_of_a_wide_posterior_are_integrals_over_it():
    kinds = {"a": tacit.Number(-1, 1), "y": tacit.Binary()}
    few = tacit.glm("y ~ a", schema=tacit.Schema(kinds))
    rows = {"a": [-1.0, -0.5, 0.5, 1.0], "y": [0, 0, 1, 1]}
    post = tacit.fit_without_privacy(few, rows, method="laplace", seed=0)
    new = {"a": np.array([0.25, 0.5, 0.8, 1.0])}
    draws = {name: np.asarray(post.model_draws[name], float) for name in ("Intercept", "a")}
    logits = draws["Intercept"].reshape(-1, 1) + draws["a"].reshape(-1, 1) * new["a"]
    # By quadrature, with the mean and deviation that the draws have.
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    at = logits.mean(axis=0) + nodes[:, None] * logits.std(axis=0)
    exact = weights @ (1 / (1 + np.exp(-at))) / weights.sum()
    assert logits.std(axis=0).max() > 1.9  # so that the approximation has something to do
    assert post.predict(new, kind="probit") == pytest.approx(exact, abs=0.015)


def test_a_loaded_posterior_predicts_with_its_plan(fitted, tmp_path):
    fitted.save(tmp_path / "post.nc")
    new = {"age": [50.0], "ward": ["B"]}
    loaded = tacit.Posterior.load(tmp_path / "post.nc", plan=planned())
    assert loaded.predict(new) == pytest.approx(fitted.predict(new), abs=1e-6)
    with pytest.raises(InvalidArgument, match="pass its plan"):
        tacit.Posterior.load(tmp_path / "post.nc").predict(new)


def test_two_outcomes_give_a_mapping():
    def both(age, ill=None, cost=None):
        slope = numpyro.sample("slope", dist.Normal(0, 1))
        with numpyro.plate("rows", age.shape[0]):
            seen = numpyro.sample("ill", dist.Bernoulli(logits=slope * age), obs=ill)
            numpyro.sample("cost", dist.Normal(2.0 * seen, 0.5), obs=cost)

    schema = tacit.Schema(COLUMNS | {"cost": tacit.Number(-5, 10)})
    data = TABLE | {"cost": 2.0 * TABLE["ill"]}
    post = tacit.fit_without_privacy(both, data, schema=schema)
    found = post.predict({"age": [100.0]})
    assert set(found) == {"ill", "cost"}
    # The cost of somebody new follows from whether they would be ill.
    assert found["cost"] == pytest.approx(2 * found["ill"], abs=0.2)
    with pytest.raises(InvalidArgument, match="binary outcomes with a logit"):
        post.predict({"age": [100.0]}, kind="probit")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: tacit.fit(model, TABLE, schema=SCHEMA), "Pass epsilon="),
        (lambda: tacit.fit(model, TABLE, budget=BUDGET), "Pass schema=tacit.Schema"),
        (lambda: tacit.plan(model, SCHEMA, budget=(1, 1e-6)), "Pass epsilon="),
        (lambda: tacit.plan(model, COLUMNS, budget=BUDGET), "needs a tacit.Schema"),
        (lambda: tacit.plan("model", SCHEMA, budget=BUDGET), "A formula is text"),
        (
            lambda: tacit.fit(planned(), TABLE, budget=BUDGET),
            "A plan has its own",
        ),
        (
            lambda: tacit.fit(planned(), tacit.Rows({"age": [1.0], "ill": [0]})),
            "Pass a data frame",
        ),
        (
            lambda: tacit.fit(planned(), {"age": [1.0]}),
            "has no column 'ward'",
        ),
    ],
)
def test_wrong_arguments_are_one_sentence(call, words):
    with pytest.raises(InvalidArgument, match=words):
        call()


def test_a_header_at_fault_charges_nothing(tmp_path):
    ledger = tacit.Ledger.new(tmp_path / "l.db", total=tacit.Budget(2, 1e-5))
    with pytest.raises(InvalidArgument):
        tacit.fit(planned(), {"age": [1.0]}, ledger=ledger)
    assert ledger.left.epsilon == 2
    tacit.fit(planned(), TABLE, ledger=ledger)
    assert ledger.left.epsilon == pytest.approx(1)


def test_starting_values_are_where_the_fit_begins():
    method = tacit.Variational(
        num_steps=1, sampling_rate=1.0, learning_rate=1e-9, start={"slope": 2.0, "u": 1.0}
    )
    post = tacit.fit(model, TABLE, schema=SCHEMA, budget=BUDGET, method=method, seed=0)
    assert post.trace["mean"][0] == pytest.approx([2, 1, 1, 1, 1], abs=1e-5)
    for start, words in (({"slop": 1.0}, "not a parameter"), ({"slope": np.nan}, "outside")):
        with pytest.raises(InvalidArgument, match=words):
            tacit.fit(
                model, TABLE, schema=SCHEMA, budget=BUDGET, method=tacit.Variational(start=start)
            )


def test_a_plain_model_takes_a_schema_too():
    plain = tacit.Model(
        parameters={"m": tacit.models.Parameter(())},
        log_prior=lambda p: -0.5 * p["m"] ** 2,
        log_likelihood=lambda p, row: -0.5 * (row["age"] - p["m"]) ** 2 + 0 * jnp.sum(row["ill"]),
    )
    post = tacit.fit_without_privacy(plain, TABLE, schema=SCHEMA)
    assert post.mean()["m"] == pytest.approx(0, abs=0.1)


def test_the_trial_of_a_chain_that_keeps_few_draws_takes_no_notice_of_that():
    method = tacit.Langevin(size=4000, burn_in=0.99, clip=2.0)
    plan = tacit.plan(model, SCHEMA, budget=BUDGET, method=method)
    assert plan.seconds(10**4) > 0

"""ScaleRelease that are released from the data: near the truth, paid for, and remembered."""

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import tacit
from tacit.errors import BudgetError, InvalidArgument
from tacit.inference.column_scales import ScaleRelease
from tacit.privacy.gate import Gate

RNG = np.random.default_rng(0)
ROWS = 20_000
TABLE = {
    "income": RNG.lognormal(10, 0.5, ROWS),  # bounds are far wider than most incomes
    "age": RNG.normal(50, 10, ROWS),
    "gain": np.where(RNG.uniform(size=ROWS) < 0.05, 5000.0, 0.0),
    "ill": RNG.integers(0, 2, ROWS),
}
SCHEMA = tacit.Schema(
    {
        "income": tacit.Number(0, 1e6, scaled=True),
        "age": tacit.Number(0, 120),
        "gain": tacit.Number(0, 1e5),
        "ill": tacit.Binary(),
    }
)
GENEROUS = tacit.Budget(50, 1e-6)
SMALL = tacit.Budget(0.1, 1e-6)


def test_quantiles_are_near_the_truth():
    scaled = tacit.private_scales(SCHEMA, TABLE, ["income", "age"], budget=GENEROUS)
    assert scaled["income"].centre == pytest.approx(np.exp(10), abs=1500)  # bins of 1,000
    assert scaled["income"].spread == pytest.approx(np.diff(np.exp([9.5, 10.5]))[0] / 2, abs=1500)
    assert scaled["age"].centre == pytest.approx(50, abs=0.6)
    assert scaled["age"].spread == pytest.approx(10, abs=0.6)
    assert (scaled["income"].low, scaled["income"].high) == (0, 1e6)
    encoded = scaled.encode(TABLE, ["age"]).columns["age"]
    assert abs(encoded.mean()) < 0.1
    assert 0.9 < encoded.std() < 1.1


def test_moments_are_near_the_truth():
    scaled = tacit.private_scales(SCHEMA, TABLE, ["age"], budget=GENEROUS, by="moments")
    assert scaled["age"].centre == pytest.approx(TABLE["age"].mean(), abs=0.2)
    assert scaled["age"].spread == pytest.approx(TABLE["age"].std(), abs=0.3)


def test_a_column_that_is_nearly_always_zero_keeps_its_bounds():
    scaled = tacit.private_scales(SCHEMA, TABLE, ["gain"], budget=GENEROUS)
    assert (scaled["gain"].centre, scaled["gain"].spread) == (50_000, 50_000)


def test_a_person_counts_once():
    """One person with many rows does not carry the rest along."""
    table = {"age": np.array([100.0] * 900 + [20.0] * 100), "who": [0] * 900 + [*range(1, 101)]}
    schema = tacit.Schema({"age": tacit.Number(0, 120)}, person="who", most_rows=1000)
    scaled = tacit.private_scales(
        schema, table, ["age"], budget=tacit.Budget(200, 1e-6), by="moments"
    )
    assert scaled["age"].centre == pytest.approx((100 + 100 * 20) / 101, abs=1)


@pytest.mark.parametrize("by", ["quantiles", "moments"])
def test_costs_what_was_asked_for(by):
    plan = ScaleRelease(columns=("income", "age"), by=by).calibrate(SMALL)
    spent = tacit.accounting.PLD().epsilon(plan.event, SMALL.delta)
    assert 0.099 < spent <= SMALL.epsilon


def test_noise_is_there():
    """Under a small budget two releases from the same rows differ, as much as they should."""
    few = {"age": TABLE["age"][:2000]}
    found = [
        tacit.private_scales(SCHEMA, few, ["age"], budget=SMALL, by="moments")["age"].centre
        for _ in range(12)
    ]
    # Noise of 37 * sqrt(3) units of 60 years in a sum over 2,000: about 2 years.
    assert 0.7 < np.std(found) < 6


def test_is_charged_before_and_refused_beyond(tmp_path):
    ledger = tacit.Ledger.new(tmp_path / "l.db", total=tacit.Budget(0.15, 1e-5), unit="row")
    tacit.private_scales(SCHEMA, TABLE, ["age"], budget=SMALL, ledger=ledger)
    assert ledger.left.epsilon == pytest.approx(0.05)
    with pytest.raises(BudgetError):
        tacit.private_scales(SCHEMA, TABLE, ["age"], budget=SMALL, ledger=ledger)
    assert len(ledger.charges) == 1


def test_is_remembered(tmp_path):
    scaled = tacit.private_scales(SCHEMA, TABLE, ["age"], budget=SMALL)
    scaled.to_yaml(tmp_path / "s.yaml")
    again = tacit.Schema.from_yaml(tmp_path / "s.yaml")
    assert again == scaled
    words = "centre and spread of age, released at epsilon 0.1, delta 1e-6 (add-remove)"
    assert words in str(again)

    def model(age, ill=None):
        slope = numpyro.sample("slope", dist.Normal(0, 1))
        with numpyro.plate("rows", age.shape[0]):
            numpyro.sample("ill", dist.Bernoulli(logits=slope * age), obs=ill)

    quick = tacit.Variational(num_steps=20)
    plan = tacit.plan(model, again, budget=tacit.Budget(1, 1e-6), method=quick)
    post = tacit.fit(plan, TABLE)
    assert f"but for {words}, which counts in addition" in str(post.privacy)


def test_no_rows_at_all():
    empty = {"age": np.zeros(0)}
    for by in ("quantiles", "moments"):
        scaled = tacit.private_scales(SCHEMA, empty, ["age"], budget=SMALL, by=by)
        assert np.isfinite(scaled["age"].spread)
        assert scaled["age"].spread > 0


@pytest.mark.parametrize(
    ("columns", "settings", "words"),
    [
        (["ill"], {}, "must be a Number"),
        (["agee"], {}, "did you mean 'age'"),
        ([], {}, "one or more"),
        (["age", "age"], {}, "each once"),
        (["age"], {"by": "mode"}, "by must be"),
        (["age"], {"budget": 1}, "Pass epsilon="),
    ],
)
def test_faults(columns, settings, words):
    with pytest.raises(InvalidArgument, match=words):
        tacit.private_scales(SCHEMA, TABLE, columns, **{"budget": SMALL, **settings})


def test_the_gate_is_good_for_one_release():
    what = ScaleRelease(columns=("age",))
    gate = Gate(tacit.Rows({"age": np.zeros(5)}), what.calibrate(GENEROUS))
    what.run(gate)
    with pytest.raises(tacit.errors.BoundaryError):
        what.run(gate)


def test_statements_of_sites_remember_it_too():
    released = tacit.private_scales(SCHEMA, TABLE, ["age"], budget=SMALL).released
    schema = tacit.Schema({"y": tacit.Binary()}, released=released)
    sites = {name: {"y": [0, 1, 1]} for name in ("here", "there")}
    steps = tacit.Variational(num_steps=5, sampling_rate=1.0)
    scheme = tacit.federated.schemes.Optimised(variational=steps)
    method = tacit.federated.Partitioned(scheme=scheme, num_rounds=1)
    post = tacit.fit_federated(
        tacit.glm("y ~ 1", schema=schema), sites, schema=schema, budget=SMALL, method=method
    )
    for statement in post.sites.values():
        assert "but for centre and spread of age" in statement.assumptions[0]


def test_formulas_go_by_released_scales():
    """A coefficient is per spread, and says so."""
    scaled = SCHEMA.with_columns({"age": tacit.Number(0, 120, centre=50, spread=10)})
    model = tacit.glm("ill ~ age", schema=scaled)
    assert "per 10, from 50" in str(model)
    assert "Reference: age 50." in str(model)
    low, high = SCHEMA["age"].low, SCHEMA["age"].high
    by_bounds = tacit.glm("ill ~ age", schema=SCHEMA)
    assert f"Reference: age {(low + high) / 2:g}." in str(by_bounds)
    slope = 1.5
    likely = 1 / (1 + np.exp(-slope * (TABLE["age"] - 50) / 10))
    table = {"age": TABLE["age"], "ill": RNG.uniform(size=ROWS) < likely}
    quick = tacit.Variational(num_steps=300)
    post = tacit.fit(model, table, budget=tacit.Budget(20, 1e-6), method=quick)
    assert post.model_draws["age"].mean() == pytest.approx(slope, abs=0.15)
    assert post.in_units({"age": 1}).mean()["age"] == pytest.approx(slope / 10, abs=0.015)

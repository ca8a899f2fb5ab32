"""Several sites, one posterior: from tables and a NumPyro function to statements."""

from dataclasses import replace

import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest

from tacit import (
    Binary,
    Budget,
    BudgetError,
    Ledger,
    Number,
    Schema,
    Variational,
    fit_federated,
    fit_without_privacy,
)
from tacit.errors import InvalidArgument
from tacit.federated import Partitioned
from tacit.federated.schemes import Optimised, WithoutPrivacy
from tacit.methods import FullRank, LowRank
from tacit.results.posterior import FederatedPosterior, Posterior

RNG = np.random.default_rng(0)
AGE, DOSE = RNG.uniform(-1, 1, 3000), RNG.uniform(-1, 1, 3000)
SICK = (RNG.uniform(size=3000) < 1 / (1 + np.exp(-(1.5 * AGE - DOSE + 0.3)))).astype(int)
TABLE = pd.DataFrame({"age": AGE, "dose": DOSE, "sick": SICK})
SCHEMA = Schema({"age": Number(-1, 1), "dose": Number(-1, 1), "sick": Binary()})
UNLIKE = {"north": TABLE[:1500], "south": TABLE[1500:2700], "east": TABLE[2700:]}
# Of one size, so that one program serves all.
SITES = {"north": TABLE[:1000], "south": TABLE[1000:2000], "east": TABLE[2000:]}
BUDGET = Budget(2, 1e-5)
METHOD = Partitioned(
    scheme=Optimised(variational=Variational(sampling_rate=1.0, num_steps=100)),
    num_rounds=3,
    schedule="sequential",
)


def model(age, dose, sick=None):
    b = numpyro.sample("b", dist.Normal(0, 2).expand([3]).to_event(1))
    with numpyro.plate("rows", age.shape[0]):
        logit = b[0] + b[1] * age + b[2] * dose
        numpyro.sample("sick", dist.Bernoulli(logits=logit), obs=sick)


BUDGETS = {"north": Budget(1, 1e-5), "south": Budget(2, 1e-5), "east": Budget(0.5, 1e-6)}


def first_fit(ledgers, **more):
    given = {"budget": BUDGETS, "method": METHOD, "ledgers": ledgers, "run": "first"}
    return fit_federated(model, SITES, schema=SCHEMA, **given | more)


@pytest.fixture(scope="module")
def books(tmp_path_factory):
    folder = tmp_path_factory.mktemp("books")
    return {name: Ledger.new(folder / f"{name}.db", total=Budget(3, 1e-4)) for name in SITES}


@pytest.fixture(scope="module")
def private(books):
    """A fit with a budget and a ledger for each site."""
    return first_fit(books)


@pytest.fixture(scope="module")
def seeded():
    """A fit without ledgers."""
    return first_fit(None, method=replace(METHOD, num_rounds=1), seed=3)


@pytest.mark.slow
def test_sites_together_find_what_one_would():
    central = fit_without_privacy(model, TABLE, schema=SCHEMA)
    apart = Partitioned(scheme=WithoutPrivacy(), num_rounds=10, guide=FullRank())
    post = fit_federated(model, UNLIKE, schema=SCHEMA, method=apart)
    assert post.mean()["b"] == pytest.approx(central.mean()["b"], abs=0.05)
    assert post.sd()["b"] == pytest.approx(central.sd()["b"], rel=0.15)
    assert not post.privacy.is_private
    assert post.intervals == "no noise was added"


def test_sites_with_budgets_find_the_coefficients(private):
    assert private.mean()["b"] == pytest.approx([0.3, 1.5, -1], abs=0.6)
    assert private.intervals == "noise not included"
    assert private.converged is None
    assert private.predict(TABLE[:5]).shape == (5,)
    assert private.to_datatree()["posterior"]["b"].shape == (1, 1000, 3)


def test_every_site_has_its_own_budget_and_ledger(books, private):
    post = private
    for name, budget in BUDGETS.items():
        assert post.sites[name].epsilons["add-remove"] == pytest.approx(budget.epsilon, rel=1e-3)
    assert post.privacy == post.sites["south"]  # who is promised the least
    assert post.sites["north"].budget_left.epsilon == pytest.approx(2)
    assert post.sites["east"].budget_left.epsilon == pytest.approx(2.5)
    # The same run again is the same run: the same answers, and nothing is charged.
    again = first_fit(books)
    assert np.array_equal(post.unconstrained_mean, again.unconstrained_mean)
    assert len(books["south"].charges) == 1
    with pytest.raises(BudgetError, match="left of"):
        first_fit(books, run="next")
    assert len(books["south"].charges) == 1


def test_a_run_without_privacy_has_no_place_in_a_ledger(tmp_path):
    book = Ledger.new(tmp_path / "l.db", total=Budget(3, 1e-4))
    method = Partitioned(scheme=WithoutPrivacy(), num_rounds=1)
    with pytest.raises(BudgetError, match="without privacy"):
        fit_federated(model, SITES, schema=SCHEMA, method=method, ledgers={"north": book})
    assert book.charges == []


def test_a_seed_repeats_a_fit_which_then_is_not_private(seeded):
    again = first_fit(None, method=replace(METHOD, num_rounds=1), seed=3)
    assert np.array_equal(seeded.draws["b"], again.draws["b"])
    assert "seeded" in str(seeded.privacy)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"budget": None}, "budget="),
        ({"budget": {"north": BUDGET}}, "budget for each site"),
        ({"method": Optimised()}, "Partitioned"),
        ({"method": Partitioned(scheme=WithoutPrivacy())}, "leave it out"),
        ({"method": Partitioned(guide=LowRank(rank=1))}, "MeanField"),
        ({"data": TABLE}, "names of sites"),
        ({"ledgers": {"north": "book.db"}}, "Ledger"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(settings, words):
    given = {"data": SITES, "budget": BUDGET, "method": METHOD} | settings
    with pytest.raises(InvalidArgument, match=words):
        fit_federated(model, given.pop("data"), schema=SCHEMA, **given)


def test_a_ledger_of_another_unit_is_refused(tmp_path):
    book = Ledger.new(tmp_path / "l.db", total=Budget(3, 1e-4), unit="data set")
    with pytest.raises(BudgetError, match="protects a data set"):
        fit_federated(
            model, SITES, schema=SCHEMA, budget=BUDGET, method=METHOD, ledgers={"north": book}
        )


def test_statements_of_all_sites_are_saved(tmp_path, seeded):
    seeded.save(tmp_path / "post.nc")
    again = Posterior.load(tmp_path / "post.nc")
    assert isinstance(again, FederatedPosterior)
    assert {n: s.epsilons for n, s in again.sites.items()} == {
        n: s.epsilons for n, s in seeded.sites.items()
    }
    assert list(again.sites) == list(SITES)
    assert "no ledger: nothing limits" in str(again.privacy)


@pytest.mark.slow
def test_two_models_under_one_name_are_two_runs(tmp_path):
    books = {name: Ledger.new(tmp_path / name, total=Budget(3, 1e-4)) for name in SITES}

    def fitted(model):
        return fit_federated(
            model,
            SITES,
            schema=SCHEMA,
            budget=BUDGET,
            method=replace(METHOD, num_rounds=1),
            ledgers=books,
            run="study",
        )

    def other(age, dose, sick=None):
        b = numpyro.sample("b", dist.Normal(0, 2).expand([3]).to_event(1))
        with numpyro.plate("rows", age.shape[0]):
            logit = b[0] + b[1] * age + b[2] * dose**2
            numpyro.sample("sick", dist.Bernoulli(logits=logit), obs=sick)

    first = fitted(model)
    assert np.array_equal(fitted(model).trace["natural"], first.trace["natural"])
    with pytest.raises(InvalidArgument, match="began under other terms"):
        fitted(other)
    assert [len(book.charges) for book in books.values()] == [1, 1, 1]

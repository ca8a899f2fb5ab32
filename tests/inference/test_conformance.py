"""What every method owes to whoever calls it, one test over all of them."""

import gc
import weakref
from functools import cache

import numpy as np
import pytest

import tacit
from tacit import Budget, Ledger, Rows, conjugate
from tacit.accounting import PLD
from tacit.api.fit import fit_many
from tacit.api.rows import model_rows
from tacit.errors import BudgetError, TooFewUnits
from tacit.inference.method import Method
from tacit.inference.result import Intervals
from tacit.methods import GaussianWalk

SIZE = 400
RNG = np.random.default_rng(0)
TABLE = {"y": (RNG.uniform(size=SIZE) < 0.7).astype(int)}
SCHEMA = tacit.Schema({"y": tacit.Binary()})
# A model that every method can fit: one probability.
MODEL = conjugate.Bernoulli("y").unit_model
INTERVAL = {"low": {"probability": 0.01}, "high": {"probability": 0.99}}

ADD_REMOVE, REPLACE = Budget(1, 1e-6), Budget(1, 1e-6, "replace")
QUICK = tacit.Variational(num_steps=60)
BRIEF = tacit.Scoring(num_steps=12)
METHODS = {
    "scoring": (tacit.Scoring(num_steps=12), ADD_REMOVE),
    "scoring, replace": (tacit.Scoring(num_steps=12), REPLACE),
    "variational": (QUICK, ADD_REMOVE),
    "variational, joint": (tacit.Variational(num_steps=60, gradient="joint"), REPLACE),
    "variational, shares": (tacit.Variational(num_steps=60, gradient="elbo", size=200), REPLACE),
    "variational, rates": (
        tacit.Variational(num_steps=60, sampling_rate=((0.1, 20), (0.3, 40))),
        REPLACE,
    ),
    "langevin": (tacit.Langevin(num_steps=60), ADD_REMOVE),
    "langevin, plain": (tacit.Langevin(num_steps=60, size=SIZE, clip=1.0), ADD_REMOVE),
    "hamiltonian": (tacit.Hamiltonian(num_steps=60, start=BRIEF), ADD_REMOVE),
    "hamiltonian, plain": (
        tacit.Hamiltonian(
            num_steps=40, num_leapfrog=2, step_size=0.1, gradient_clip=0.01, ratio_clip=0.01
        ),
        REPLACE,
    ),
    "penalty": (
        tacit.Hamiltonian(num_steps=60, num_leapfrog=0, step_size=0.1, ratio_clip=0.01),
        ADD_REMOVE,
    ),
    "langevin, published": (
        tacit.methods.PublishedLangevin(
            num_steps=2000, sampling_rate=0.05, step_size=1e-5, clip=1.0
        ),
        Budget(1, 1e-3),
    ),
    "barker": (tacit.Barker(num_steps=100, start=BRIEF), ADD_REMOVE),
    "barker, walk": (tacit.Barker(num_steps=100, proposal=GaussianWalk()), ADD_REMOVE),
    "barker, by bound": (tacit.Barker(ratio_bound=0.03), ADD_REMOVE),
    "barker, published": (tacit.Barker(num_steps=100, noise_variance=2.0), ADD_REMOVE),
    "barker, batches": (
        tacit.Barker(size=SIZE, tempered_size=20, batch_size=200),
        Budget(8, 1e-3, "replace"),
    ),
    "barker, from a fit": (tacit.Barker(num_steps=100, start=QUICK), ADD_REMOVE),
    "one sample, grid": (
        tacit.OneSample(
            sampler=tacit.methods.GridSampler(**INTERVAL),
            claim=tacit.methods.BoundedLikelihood(bound=5.0),
        ),
        ADD_REMOVE,
    ),
    "one sample, conjugate": (
        tacit.OneSample(sampler=tacit.methods.ConjugateSampler(column="y", **INTERVAL)),
        Budget(1),
    ),
    "statistics": (tacit.Statistics(num_draws=50), ADD_REMOVE),
    "statistics, laplace": (tacit.Statistics(noise="laplace", num_draws=50), Budget(1)),
    "statistics, naive": (tacit.Statistics(noise_aware=False, num_draws=50), ADD_REMOVE),
}
# One of each kind; all others are slow.
FAST = {
    "scoring",
    "variational",
    "langevin, plain",
    "penalty",
    "barker, published",
    "one sample, grid",
    "statistics",
}
# Settings of these may cost less than the budget: they were made for something else.
CHEAP = {"langevin, plain", "langevin, published"}


def marked(names):
    """Those that are not among the fast ones are slow."""
    return [pytest.param(n, marks=() if n in FAST else pytest.mark.slow) for n in names]


@pytest.fixture(params=marked(METHODS), ids=str)
def case(request):
    return request.param, *METHODS[request.param]


# On batches of fixed size the number of rows is public.
any_number = pytest.mark.parametrize(
    "case", marked(n for n in METHODS if n != "barker, batches"), indirect=True
)


@cache
def seeded(name):
    method, budget = METHODS[name]
    return fit(method, budget, seed=1)


def fit(method, budget, data=TABLE, **more):
    return tacit.fit(MODEL, data, schema=SCHEMA, budget=budget, method=method, **more)


def test_the_protocol_and_a_plan_without_data(case):
    _, method, budget = case
    assert isinstance(method, Method)
    plan = tacit.plan(MODEL, SCHEMA, budget=budget, method=method)
    assert "(nothing read, nothing charged)" in str(plan)
    assert method.describe(MODEL) in plan.details()
    assert plan.epsilons[budget.adjacency] <= budget.epsilon


def test_it_calibrates_itself_and_says_what_it_cost(case, tmp_path):
    name, method, budget = case
    ledger = Ledger.new(
        tmp_path / "l.db", total=Budget(1.5 * budget.epsilon, budget.delta * 3, budget.adjacency)
    )
    post = fit(method, budget, ledger=ledger)
    statement = post.privacy
    spent = statement.epsilons[budget.adjacency]
    assert spent <= budget.epsilon
    assert name in CHEAP or spent > 0.98 * budget.epsilon
    exact = PLD().epsilon(statement.event, budget.delta, budget.adjacency)
    assert exact <= spent < exact * (1 + 1e-4)  # rounded up
    assert statement.is_private
    assert statement.unit == "row"
    assert set(method.assumptions) <= set(statement.assumptions)
    assert [charge.epsilon for charge in ledger.charges] == [spent]
    assert ledger.left.epsilon == pytest.approx(1.5 * budget.epsilon - spent)
    if name not in CHEAP:
        with pytest.raises(BudgetError):
            fit(method, budget, ledger=ledger)


def test_a_seed_repeats_it_and_takes_the_guarantee_away(case):
    name, method, budget = case
    first = seeded(name)
    assert first == fit(method, budget, seed=1)
    assert not first.privacy.is_private
    assert "seeded: not private" in str(first.privacy)


def test_without_a_seed_nobody_can_repeat_it(case):
    _, method, budget = case
    first, second = (fit(method, budget) for _ in range(2))
    assert first != second


def test_what_it_returns_is_public_and_complete(case, tmp_path):
    post = seeded(case[0])
    assert tuple(post.draws) == MODEL.names
    assert np.isfinite(post.draws["probability"]).all()
    assert ((post.draws["probability"] >= 0) & (post.draws["probability"] <= 1)).all()
    tree = post.to_datatree()
    assert set(tree.children) <= {
        "posterior", "fit", "sample_stats", "diagnostics", "unconstrained_gaussian",
    }  # fmt: skip
    post.save(tmp_path / "p.nc")
    assert type(post).load(tmp_path / "p.nc") == post
    assert "probability" in str(post.summary())


INTERVALS = {
    "scoring": Intervals.INCLUDED,
    "variational": Intervals.LEFT_OUT,
    "langevin": Intervals.INCLUDED,
    "langevin, plain": Intervals.SAMPLED,
    "langevin, published": Intervals.SAMPLED,
    "barker": Intervals.INCLUDED,
    "barker, walk": Intervals.SAMPLED,
    "barker, by bound": Intervals.SAMPLED,
    "barker, published": Intervals.SAMPLED,
    "barker, batches": Intervals.SAMPLED,
    "barker, from a fit": Intervals.SAMPLED,
    "hamiltonian": Intervals.INCLUDED,
    "hamiltonian, plain": Intervals.SAMPLED,
    "penalty": Intervals.SAMPLED,
    "one sample": Intervals.SAMPLED,
    "statistics": Intervals.INCLUDED,
    "statistics, naive": Intervals.LEFT_OUT,
}


def test_it_says_what_intervals_include_and_how_it_went(case):
    name = case[0]
    post = seeded(name)
    assert post.intervals == INTERVALS.get(name, INTERVALS.get(name.split(",")[0]))
    assert post.converged in (True, False, None)
    assert post.converged is not False or post.messages
    assert all(sentence.endswith(".") for sentence in post.messages)
    text = post.summary().details()
    assert all(sentence in text for sentence in post.messages)


@any_number
@pytest.mark.parametrize("times", [0, pytest.param(3, marks=pytest.mark.slow)])
def test_shapes_do_not_follow_the_number_of_rows(case, times):
    """And no rows are no error."""
    name, method, budget = case
    table = {"y": np.tile(TABLE["y"], times)}
    if times == 0 and name == "scoring":  # unless it counts them first
        with pytest.raises(TooFewUnits):
            fit(method, budget, table, seed=1)
        return
    first, second = seeded(name), fit(method, budget, table, seed=1)
    assert np.isfinite(second.draws["probability"]).all()
    for group in ("draws", "trace", "sample_stats"):
        one, other = getattr(first, group), getattr(second, group)
        assert {n: v.shape for n, v in one.items()} == {n: v.shape for n, v in other.items()}


def test_several_fits_are_the_single_ones(case):
    """One after the other, each with its own rows and charge."""
    name, method, budget = case
    rows = model_rows(MODEL, SCHEMA, TABLE)
    both = fit_many(MODEL, [rows, rows], [budget, budget], method, seeds=[2, 1])
    assert np.array_equal(both[1].draws["probability"], seeded(name).draws["probability"])
    assert both[0] != both[1]


def test_rows_do_not_survive_the_fit(case):
    _, method, budget = case
    rows = Rows({"y": TABLE["y"]})
    post = tacit.fit(MODEL, rows, budget=budget, method=method, seed=1)  # held until the end
    held = weakref.ref(rows)
    del rows
    gc.collect()
    assert held() is None
    assert post.num_draws >= 1


def test_progress_is_told_in_steps_alone(case, capsys):
    _, method, budget = case
    fit(method, budget, seed=1, progress=True)
    shown = capsys.readouterr()
    assert shown.out == ""
    steps = tacit.plan(MODEL, SCHEMA, budget=budget, method=method).mechanism.num_steps
    assert f" {steps} steps, " in shown.err

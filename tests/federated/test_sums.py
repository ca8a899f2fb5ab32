"""Tables of several sites: the same numbers as of one, with the noise that each site was charged for."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from masked_sites import MaskedInProcess
from test_masks import IDENTITIES, ROSTER

import tacit
from tacit.accounting import PLD
from tacit.api.federated_release import release_federated, release_result, release_target
from tacit.api.score import Score
from tacit.errors import BudgetError, Interrupted, InvalidArgument, Refused, TacitError
from tacit.federated import NoisySum
from tacit.federated import sums as sums_module
from tacit.federated.masks import MaskedSite, Masker
from tacit.federated.method import FederatedResult, SiteCost, prepare_site
from tacit.federated.protocol import InProcess
from tacit.federated.server import run_schedule
from tacit.models.front_ends import adapt_model
from tacit.privacy.noise import Randomness

SCHEMA = tacit.Schema({"age": tacit.Number(0, 100), "ill": tacit.Binary()})
TABLES = ["age", ("ill", "age")]
NAMES = ("north", "south", "west")
BUDGET = tacit.Budget(1, 1e-6)
SPLIT = NoisySum(noise="split", dishonest=0)


def table_of(seed, rows):
    rng = np.random.default_rng(seed)
    ill = rng.uniform(size=rows) < 0.3
    return pd.DataFrame({"age": rng.normal(40 + 20 * ill, 12, rows), "ill": ill})


DATA = {name: table_of(seed, 400 - 100 * seed) for seed, name in enumerate(NAMES)}
POOLED = pd.concat(DATA.values())


def asked(budget=BUDGET, **changes):
    return tacit.Look.plan(SCHEMA, **{"tables": TABLES, "budget": budget, **changes})


PLAN = asked()
TARGET = release_target(PLAN)


@pytest.fixture(scope="module")
def exact():
    """The sum over all rows, with next to no noise."""
    return tacit.explore(
        POOLED, schema=SCHEMA, tables=TABLES, budget=tacit.Budget(1e4, 1e-6)
    ).estimates.released


@pytest.fixture
def ledgers(tmp_path):
    return {
        name: tacit.Ledger.new(tmp_path / f"{name}.db", total=tacit.Budget(2, 1e-5), unit="row")
        for name in NAMES
    }


def clients(method=SPLIT, budget=BUDGET, **more):
    setting = {"run": "r", "sites": 3, "budget": budget, **more}
    return [prepare_site(n, PLAN.rows(DATA[n]), method, TARGET, **setting) for n in NAMES]


def server_of(method, budget=BUDGET):
    return method.server(TARGET, NAMES, run="r", budget=budget, source=Randomness(0))


def spread(values):
    """A standard deviation about zero, and five standard errors of it."""
    own = float(np.sqrt(np.mean(np.square(values))))
    return own, 5 * own / math.sqrt(2 * np.size(values))


# One table, noise at each of three sites, and shares of noise of two and of three honest sites.
CASES = [(NoisySum(), math.sqrt(3)), (NoisySum(noise="split"), math.sqrt(1.5)), (SPLIT, 1.0)]


@pytest.mark.parametrize(("method", "times"), CASES)
def test_the_total_is_the_sum_over_all_rows_with_the_noise_that_is_declared(method, times, exact):
    errors = []
    for _ in range(3):
        look = release_federated(PLAN, DATA, method=method)
        errors.append(look.estimates.released - exact)
    assert look.estimates.noise_std == pytest.approx(times * PLAN.mechanism.noise_std, rel=1e-6)
    found, margin = spread(errors)
    assert found == pytest.approx(look.estimates.noise_std, abs=margin)
    assert abs(np.mean(errors)) < 5 * found / math.sqrt(np.size(errors))
    truth = len(POOLED)
    assert abs(look.total.value - truth) < 6 * (look.total.upper - look.total.lower)


@pytest.mark.parametrize("method", [NoisySum(), SPLIT, replace(SPLIT, dishonest=1)])
def test_what_each_site_sends_has_the_noise_that_it_was_charged_for(method):
    """Measured noise over the clip is the multiplier of the event, for shares together."""
    quiet = clients(NoisySum(), tacit.Budget(1e4, 1e-6))
    server = server_of(method)
    tasks = server.tasks(NAMES)
    sent, truth = (
        [each.answer(tasks[each.name]).values for each in sites]  # noqa: PD011 (of a reply)
        for sites in (clients(method), quiet)
    )
    least = PLAN.mechanism.noise_std / PLAN.mechanism.clip
    honest = {"site": 1, "split": 3 - method.dishonest}[method.noise]
    for own, without in zip(sent, truth, strict=True):
        found, margin = spread(own - without)
        clip = PLAN.mechanism.clip
        assert math.sqrt(honest) * found / clip == pytest.approx(least, abs=2 * margin / clip)


@pytest.mark.parametrize("method", [NoisySum(), SPLIT, replace(SPLIT, dropouts=1, spare_answers=1)])
def test_what_is_charged_is_what_is_executed_and_within_the_budget(method, ledgers):
    prepared = method.prepare(method.setting(TARGET, BUDGET, 3))
    honest = {"site": 1, "split": 3 - method.dropouts}[method.noise]
    executed = prepared.work.mechanism.noise_multiplier * math.sqrt(honest)
    alone = tacit.accounting.events.repeat(
        tacit.accounting.events.gaussian(executed), 1 + method.spare_answers
    )
    # All but the part of delta for shares that are not exactly normal.
    assert PLD().epsilon(alone, BUDGET.delta) == pytest.approx(1, abs=2e-3)
    look = release_federated(PLAN, DATA, method=method, ledgers=ledgers)
    for name in NAMES:
        (charge,) = ledgers[name].charges
        assert 0.99 < charge.epsilon <= 1
        assert look.sites[name].epsilons["add-remove"] == pytest.approx(charge.epsilon)
        assert "tables of age; ill by age" in charge.label


def test_a_site_is_charged_before_its_rows_are_asked(ledgers, monkeypatch):
    seen = []

    def run(gate, *arguments):
        seen.append([len(each.charges) for each in ledgers.values()])
        raise KeyboardInterrupt

    monkeypatch.setattr(sums_module, "run", run)
    with pytest.raises(KeyboardInterrupt):
        release_federated(PLAN, DATA, ledgers=ledgers)
    assert seen == [[1, 0, 0]]
    assert [len(each.charges) for each in ledgers.values()] == [1, 0, 0]


def test_if_one_site_cannot_pay_nobody_does(ledgers):
    for _ in range(2):
        tacit.explore(DATA["west"], schema=SCHEMA, epsilon=0.9, ledger=ledgers["west"])
    with pytest.raises(BudgetError, match="requests"):
        release_federated(PLAN, DATA, ledgers=ledgers)
    assert [len(each.charges) for each in ledgers.values()] == [0, 0, 2]


@pytest.mark.parametrize(
    "changes",
    [
        {"posterior": np.ones(1)},
        {"posterior": np.zeros(2)},
        {"run": "s"},
        {"applied_round": 1},
        {"applied_share": np.ones(1)},
    ],
)
def test_a_server_can_ask_nothing_but_the_question_of_the_study(changes, ledgers, monkeypatch):
    monkeypatch.setattr(sums_module, "run", lambda *_: pytest.fail("rows were asked"))
    method, own = NoisySum(), ledgers["west"]
    rows, setting = PLAN.rows(DATA["west"]), {"run": "r", "sites": 3, "budget": BUDGET}
    site = prepare_site("west", rows, method, TARGET, ledger=own, about="look", **setting)
    with pytest.raises(Refused):
        site.answer(replace(server_of(method).tasks(NAMES)["west"], **changes))
    assert not own.charges


def test_a_second_question_is_refused_unless_it_was_charged(ledgers):
    """A question that is repeated has the same noise, and a spare answer has its own."""
    for spare, name in ((0, "north"), (1, "west")):
        method, own = NoisySum(spare_answers=spare), ledgers[name]
        rows, setting = PLAN.rows(DATA[name]), {"run": "r", "sites": 3, "budget": BUDGET}
        site = prepare_site(name, rows, method, TARGET, ledger=own, about="look", **setting)
        task = server_of(method).tasks(NAMES)[name]
        first, again = site.answer(task), site.answer(task)
        assert np.array_equal(first.change, again.change)
        if spare:
            second = site.answer(replace(task, round=2))
            assert (second.change != first.change).all()
        with pytest.raises(BudgetError, match="answers"):
            site.answer(replace(task, round=3))
        assert len(own.charges) == 1


def test_a_run_is_charged_once_and_another_question_needs_another_name(ledgers):
    first = release_federated(PLAN, DATA, ledgers=ledgers, run="a")
    again = release_federated(PLAN, DATA, ledgers=ledgers, run="a")
    assert np.array_equal(first.estimates.released, again.estimates.released)
    assert [len(each.charges) for each in ledgers.values()] == [1, 1, 1]
    for other in (asked(tables=["age"]), asked(bins={"age": 7})):
        with pytest.raises(Refused, match="under other terms"):
            release_federated(other, DATA, ledgers=ledgers, run="a")


@pytest.mark.parametrize(("first", "then"), [(5, None), (None, 5), (5, 6)])
def test_an_answer_with_a_seed_is_never_taken_for_a_private_one(ledgers, first, then):
    release_federated(PLAN, DATA, ledgers=ledgers, run="a", seed=first)
    with pytest.raises(Refused, match="under other terms"):
        release_federated(PLAN, DATA, ledgers=ledgers, run="a", seed=then)


def test_other_bounds_of_columns_are_another_run(ledgers):
    model = "ill ~ age"
    charged = {"budget": tacit.Budget(0.5, 1e-6), "ledgers": ledgers, "run": "r"}
    method = tacit.federated.PooledScoring(num_rounds=4)
    tacit.fit_federated(model, DATA, schema=SCHEMA, method=method, **charged)
    wider = tacit.Schema({"age": tacit.Number(0, 110), "ill": tacit.Binary()})
    with pytest.raises(Refused, match="other terms"):
        tacit.fit_federated(model, DATA, schema=wider, method=method, **charged)
    assert all(len(each.charges) == 1 for each in ledgers.values())


def test_a_run_that_is_interrupted_says_how_to_go_on(ledgers, monkeypatch):
    release, asked_rows = sums_module.SumWork.change, []

    def change(self, *given):
        asked_rows.append(given)
        if len(asked_rows) == 2:
            raise KeyboardInterrupt
        return release(self, *given)

    monkeypatch.setattr(sums_module.SumWork, "change", change)
    with pytest.raises(Interrupted, match=r"run='\w+'") as stopped:
        release_federated(PLAN, DATA, ledgers=ledgers)
    assert [len(each.charges) for each in ledgers.values()] == [1, 1, 0]
    run = str(stopped.value).partition("run='")[2].partition("'")[0]
    assert release_federated(PLAN, DATA, ledgers=ledgers, run=run).total.value > 0
    assert [len(each.charges) for each in ledgers.values()] == [1, 1, 1]


def test_sites_may_have_budgets_of_their_own(ledgers):
    budgets = {n: tacit.Budget(e, 1e-6) for n, e in zip(NAMES, (0.5, 1, 2), strict=True)}
    look = release_federated(PLAN, DATA, budget=budgets, ledgers=ledgers)
    noises = [asked(each).mechanism.noise_std for each in budgets.values()]
    assert look.estimates.noise_std == pytest.approx(math.sqrt(np.sum(np.square(noises))))
    spent = {name: own.epsilons["add-remove"] for name, own in look.sites.items()}
    assert [round(each, 2) for each in spent.values()] == [0.5, 1, 2]
    assert look.privacy is look.sites["west"]
    assert "Epsilon is 0.5 at north, 1 at south, 2 at west" in str(look)
    with pytest.raises(InvalidArgument, match="share noise need the same budget"):
        release_federated(PLAN, DATA, budget=budgets, method=SPLIT)


def test_masked_answers_add_up_to_the_same_total():
    plain, masked = server_of(SPLIT), server_of(SPLIT)
    run_schedule(plain, InProcess(clients(seed=3)), SPLIT.rounds(3))
    sites = [MaskedSite(e, Masker(e.name, IDENTITIES[e.name], ROSTER)) for e in clients(seed=3)]
    run_schedule(masked, MaskedInProcess(sites), SPLIT.rounds(3))
    assert np.array_equal(plain.total, masked.total)
    assert masked.members == set(NAMES)


class Absent(InProcess):
    """West never answers."""

    asked = 0

    def exchange(self, tasks):
        self.asked += 1
        return {n: each for n, each in super().exchange(tasks).items() if n != "west"}


def test_a_site_that_never_answers_is_named_and_its_noise_is_not_counted(tmp_path):
    method = NoisySum()
    server, transport = server_of(method), Absent(clients(method))
    run_schedule(server, transport, method.rounds(3))
    assert transport.asked == 3
    noise = method.prepare(method.setting(TARGET, BUDGET, 3)).noise_std
    cost = SiteCost(event=tacit.accounting.events.gaussian(1), budget=BUDGET, noise_std=noise)
    found = FederatedResult(server=server, costs=dict.fromkeys(NAMES, cost))
    look = release_result(PLAN, found, method, dict.fromkeys(NAMES, "row"), None)
    assert look.estimates.noise_std == pytest.approx(math.sqrt(2) * PLAN.mechanism.noise_std)
    assert look.sites["west"] is None
    assert "Without the rows of west" in str(look)
    assert look.total.lower - 60 < len(DATA["north"]) + len(DATA["south"]) < look.total.upper + 60
    (tmp_path / "look.json").write_text(look.to_json())
    assert tacit.Look.load(tmp_path).to_json() == look.to_json()


def test_answers_are_used_if_at_first_nobody_answered():
    """A site is asked three times, whether or not others answered before."""

    class Late(Absent):
        def exchange(self, tasks):
            found = super().exchange(tasks)
            return found if self.asked > 1 else {}

    method = NoisySum()
    server, transport = server_of(method), Late(clients(method))
    run_schedule(server, transport, method.rounds(3))
    assert (transport.asked, server.members) == (3, {"north", "south"})


@pytest.mark.parametrize(("dropouts", "members"), [(0, None), (1, {"north", "south"})])
def test_of_shared_noise_only_enough_shares_are_a_total(dropouts, members):
    """West leaves in the middle of the round: with a spare answer the others are asked again."""
    method = replace(SPLIT, dropouts=dropouts, spare_answers=dropouts)
    roster = replace(ROSTER, dropouts=dropouts)

    class Leaving(MaskedInProcess):
        gone = False

        def exchange(self, tasks):
            there = {n: each for n, each in tasks.items() if n != "west" or not self.gone}
            replies = super().exchange(there)
            self.gone = bool(dropouts)
            return {n: each for n, each in replies.items() if n != "west"}

    sites = [MaskedSite(e, Masker(e.name, IDENTITIES[e.name], roster)) for e in clients(method)]
    server = server_of(method)
    if members is None:
        with pytest.raises(TacitError, match="No answer could be used"):
            run_schedule(server, Leaving(sites), method.rounds(3))
        assert not server.total.any()
    else:
        run_schedule(server, Leaving(sites), method.rounds(3))
        assert (server.members, server.abandoned) == (members, 1)


def test_a_server_that_starts_again_has_the_total():
    server = server_of(SPLIT)
    states = [server.pack_state()]
    run_schedule(server, InProcess(clients()), SPLIT.rounds(3))
    again = server_of(SPLIT)
    again.restore([*states, server.pack_state()])
    assert np.array_equal(again.total, server.total)
    assert (again.members, len(again.trace)) == (server.members, 1)


def test_what_makes_no_sense_is_refused():
    with pytest.raises(InvalidArgument, match=r"tacit.Look.plan"):
        release_federated("age", DATA)
    with pytest.raises(InvalidArgument, match="names of sites"):
        release_federated(PLAN, {})
    with pytest.raises(InvalidArgument, match="NoisySum"):
        release_federated(PLAN, DATA, method=tacit.federated.PooledScoring())
    with pytest.raises(InvalidArgument, match="nobody is left to add noise"):
        release_federated(PLAN, {"north": DATA["north"]}, method=NoisySum(noise="split"))
    with pytest.raises(InvalidArgument, match="spare_answers"):
        NoisySum(noise="split", dropouts=1)
    setting = {"sites": NAMES, "run": "r"}
    with pytest.raises(InvalidArgument, match="nobody is left to add noise"):
        tacit.federated_study(PLAN, method=replace(SPLIT, dishonest=3), **setting)
    with pytest.raises(InvalidArgument, match="list of names"):
        tacit.federated_study(PLAN, sites="north", run="r")
    with pytest.raises(InvalidArgument, match="Pass the model itself"):
        tacit.federated_study(tacit.plan("ill ~ age", schema=SCHEMA, epsilon=1), **setting)
    with pytest.raises(InvalidArgument, match="has its own schema and budget"):
        tacit.federated_study(PLAN, schema=SCHEMA, **setting)
    with pytest.raises(InvalidArgument, match="is for plans"):
        tacit.federated_study("ill ~ age", schema=SCHEMA, epsilon=1, method=SPLIT, **setting)


def test_wrong_ledgers_and_budgets_charge_nothing(ledgers):
    again = tacit.Ledger(ledgers["north"].path)
    for wrong, words in (
        ({"ledgers": ledgers["north"]}, "must map names of sites"),
        ({"ledgers": {**ledgers, "south": again}}, "north and south have the same ledger"),
        ({"ledgers": ledgers, "budget": dict.fromkeys(NAMES, 1.0)}, "such a budget for each site"),
        ({"ledgers": ledgers, "budget": {"north": BUDGET}}, "such a budget for each site"),
    ):
        with pytest.raises(InvalidArgument, match=words):
            release_federated(PLAN, DATA, **wrong)
    assert [len(each.charges) for each in ledgers.values()] == [0, 0, 0]


@pytest.fixture(scope="module")
def fitted():
    model = tacit.glm("ill ~ age", schema=SCHEMA)
    return tacit.fit(model, POOLED, epsilon=5, seed=0, progress=False)


@pytest.mark.parametrize("kind", ["check", "score"])
def test_checks_and_scores_of_sites_are_those_of_all_rows(fitted, kind):
    """With so little noise that the same is found, and with the noise of all sites where it matters."""
    plan = {"check": tacit.ModelCheck.plan, "score": Score.plan}[kind]
    one = {"check": tacit.check, "score": tacit.score}[kind]
    large, small = (plan(fitted, epsilon=each) for each in (1e4, 1))
    found, exact = release_federated(large, DATA), one(fitted, POOLED, epsilon=1e4)
    if kind == "check":
        assert found.p_values == pytest.approx(exact.p_values, abs=0.05)
    else:
        assert found.log_density.mean == pytest.approx(exact.log_density.mean, abs=0.01)
        assert found.accuracy.mean == pytest.approx(exact.accuracy.mean, abs=0.01)
    for method, times in CASES:
        sites = release_federated(small, DATA, method=method)
        assert sites.sums.noise == pytest.approx(times * small.mechanism.noise_std, rel=1e-6)
        assert sites.sums.count == pytest.approx(len(POOLED), abs=40 * times)
    assert "Sites: north, south, west." in str(sites)
    assert list(sites.to_dict()["sites"]) == list(NAMES)


@pytest.mark.parametrize("plan", [tacit.ModelCheck.plan, Score.plan])
def test_sites_that_check_another_posterior_or_model_are_told_apart(fitted, tmp_path, plan):
    other = replace(fitted, draws={n: each + 1e-3 for n, each in fitted.draws.items()})
    probit = adapt_model(tacit.glm("ill ~ age", schema=SCHEMA, link="probit"), SCHEMA)
    asked = [
        plan(post, epsilon=1).identity for post in (fitted, other, replace(fitted, model=probit))
    ]
    assert len(set(asked)) == 3
    fitted.save(tmp_path / "posterior.nc")
    assert plan(tacit.Posterior.load(tmp_path / "posterior.nc"), epsilon=1).identity == asked[0]


def test_scores_within_other_bounds_and_checks_are_other_questions(fitted):
    plans = (tacit.ModelCheck.plan(fitted, epsilon=1), Score.plan(fitted, epsilon=1))
    assert len({each.identity for each in (*plans, Score.plan(fitted, epsilon=1, low=-3))}) == 3

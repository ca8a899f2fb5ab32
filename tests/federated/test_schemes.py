"""Schemes: noise over true sensitivity from end to end, who is trusted, and what is found."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from through_origin import through_origin

from tacit import Budget, Ledger, Model, Rows, Variational, conjugate, fit_federated
from tacit.accounting import PLD, calibrate
from tacit.errors import BudgetError, InvalidArgument
from tacit.federated import Partitioned
from tacit.federated.method import prepare_site, run_in_process
from tacit.federated.protocol import InProcess, Reply
from tacit.federated.pvi import PVIServer
from tacit.federated.schemes import (
    ClippedChanges,
    ClippedStatistics,
    OneRelease,
    Optimised,
    RunSetting,
    WithoutPrivacy,
)
from tacit.federated.server import sum_replies
from tacit.federated.targets import ApproximateTarget, conjugate_target
from tacit.models import Parameter
from tacit.models.exponential_families import DiagonalGaussian, FullGaussian
from tacit.papers.federated import Hybrid, ShardedChanges, local_averaging, virtual_clients
from tacit.privacy.groups import all_rows_as_unit, random_shards
from tacit.privacy.noise import Randomness

BUDGET = Budget(1, 1e-5)
RNG = np.random.default_rng(0)
X = RNG.normal(size=(2000, 2)).astype(np.float32)
Y = (X @ [1.0, -0.5] + 0.5 * RNG.normal(size=2000)).astype(np.float32)
TARGET = through_origin(2, noise_sd=0.5, prior_sd=2.0)
SITES = {f"s{i}": Rows({"x": X[i::4], "y": Y[i::4]}) for i in range(4)}
STEPS = Variational(sampling_rate=0.2, num_steps=300, clip=10.0)
WIDE = Budget(200, 1e-3)


def counts():
    """One scalar a row, with a statistic of (y, 1): easy to know what it should be."""
    return conjugate_target(conjugate.Poisson("y", bounds=((0, 10**6),)))


def setting(target=TARGET, budget=BUDGET, answers=1, sites=4):
    return RunSetting(target=target, budget=budget, answers=answers, sites=sites, together=sites)


def changed(scheme, rows, seed, target=TARGET, answers=1, sites=4, posterior=None):
    """What leaves a site for one task, with noise of a seed."""
    work = scheme.prepare(setting(target, answers=answers, sites=sites)).work
    eta = target.prior if posterior is None else posterior
    reply = work.change(rows, eta, np.zeros(target.family.size), Randomness(seed))
    return np.asarray(reply, float) * (work.grid or 1.0)


SCHEMES = {
    "optimised": Partitioned(scheme=Optimised(variational=STEPS), num_rounds=4),
    "statistics": Partitioned(scheme=ClippedStatistics(clip=40.0), num_rounds=4, damping=0.5),
    "one release": Partitioned(scheme=OneRelease(clip=40.0), num_rounds=1),
    "hybrid": Partitioned(scheme=Hybrid(clip=40.0, variational=STEPS), num_rounds=2),
    "averaging": Partitioned(
        scheme=local_averaging(clip=1e4, num_shards=10, shard_rows=120), num_rounds=4
    ),
    "virtual": Partitioned(
        scheme=virtual_clients(clip=1e3, num_shards=10, shard_rows=120), num_rounds=4
    ),
    "virtual, split": Partitioned(
        scheme=virtual_clients(clip=1e3, num_shards=10, shard_rows=120, noise="split"),
        num_rounds=4,
    ),
    "data set, split": Partitioned(scheme=ClippedChanges(clip=4e3, noise="split"), num_rounds=4),
    "data set, server": Partitioned(scheme=ClippedChanges(clip=4e3, noise="server"), num_rounds=4),
    "data set, site": Partitioned(scheme=ClippedChanges(clip=4e3), num_rounds=4),
}


# Each is like one of the others but for the noise or for what is added up.
ALIKE = {"hybrid", "averaging", "virtual", "data set, site"}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow if name in ALIKE else ()) for name in SCHEMES],
)
def test_with_a_wide_budget_every_scheme_finds_the_posterior(name):
    exact = fit_federated(TARGET, SITES, method=Partitioned(scheme=WithoutPrivacy(), num_rounds=1))
    # What four sites hold is much to hide.
    budget = Budget(4000, 1e-3) if "data set" in name else WIDE
    post = fit_federated(TARGET, SITES, budget=budget, method=SCHEMES[name], seed=1)
    assert post.unconstrained_mean == pytest.approx(exact.unconstrained_mean, abs=0.06)
    assert len(post.draws["coefficients"]) == 1000


@pytest.mark.parametrize("name", SCHEMES)
def test_the_statement_says_what_it_costs_and_who_is_trusted(name):
    method = SCHEMES[name]
    post = fit_federated(TARGET, SITES, budget=BUDGET, method=method)
    assert post.privacy.is_private
    assert set(post.sites) == set(SITES)
    for statement in post.sites.values():
        assert 0.999 < statement.epsilons["add-remove"] <= 1
        assert statement.unit == ("data set" if "data set" in name else "row")
        said = str(statement)
        if method.scheme.each_message_private:
            assert "nobody but the site itself is trusted" in said
        assert ("server is trusted" in said) == ("server" in name)
        assert ("see" in said and "secure aggregation" in said) == ("split" in name)
        assert ("several sites hold" in said) == ("data set" not in name)


@pytest.mark.parametrize(
    ("scheme", "sensitivity"),
    [
        (virtual_clients(clip=2.0, num_shards=4, shard_rows=50), 2.0),
        (local_averaging(clip=2.0, num_shards=4, shard_rows=50), 2.0),
        (ClippedChanges(clip=2.0), 1.0),
        (ClippedStatistics(clip=2.0), 1.0),
    ],
)
def test_noise_is_what_the_true_sensitivity_asks_for(scheme, sensitivity):
    rows, target = Rows({"y": np.array([3, 4, 5])}), counts()
    plain = replace(scheme, steady=False) if isinstance(scheme, ClippedChanges) else scheme
    drawn = np.array([changed(plain, rows, seed, target, answers=5) for seed in range(150)])
    least = calibrate.noise_multiplier(BUDGET, num_steps=5)
    shrunk = 4 if getattr(scheme, "average", False) else 1
    expected = sensitivity * 2.0 * least / shrunk
    assert drawn.std(axis=0) == pytest.approx(np.full(2, expected), rel=0.2)


@pytest.mark.parametrize("average", [False, True])
def test_one_row_moves_a_sum_of_shards_by_up_to_two_clips(average):
    scheme = ShardedChanges(clip=1.0, num_shards=4, shard_rows=50, average=average, steady=False)
    target = through_origin(1, noise_sd=1.0, prior_sd=1e-2)

    def released(last):
        y = np.append(np.zeros(20), last)
        return changed(scheme, Rows({"x": np.full((21, 1), 1e-3), "y": y}), 0, target)

    # The same noise and the same shards: what differs is what the last row does.
    up, down = released(1e9), released(-1e9)
    gap = np.linalg.norm(up - down) * (4 if average else 1)
    assert 1.9 < gap <= 2.0001
    removed = changed(scheme, Rows({"x": np.full((20, 1), 1e-3), "y": np.zeros(20)}), 0, target)
    assert np.linalg.norm(up - removed) * (4 if average else 1) <= 2.0001


def test_a_data_set_moves_the_sum_by_one_clip():
    target = through_origin(1, noise_sd=1.0, prior_sd=1e-2)
    scheme = ClippedChanges(clip=1.0, steady=False)
    much = Rows({"x": np.full((30, 1), 1e-3), "y": np.full(30, 1e9)})
    nothing = Rows({"x": np.zeros((0, 1)), "y": np.zeros(0)})
    gap = changed(scheme, much, 0, target) - changed(scheme, nothing, 0, target)
    assert 0.99 < np.linalg.norm(gap) <= 1.0001


def test_units_draw_their_shards_by_themselves():
    values = np.arange(200)
    whole = random_shards(Rows({"y": values}), 8, 60, Randomness(3))._host_fields()
    fewer = random_shards(Rows({"y": values[:-1]}), 8, 60, Randomness(3))._host_fields()
    held = [
        [set(fields["y"][i][present[i]].tolist()) for i in range(8)]
        for fields, present in (whole, fewer)
    ]
    assert sum(len(a ^ b) for a, b in zip(*held, strict=True)) == 1
    assert set.union(*held[0]) == set(range(200))
    sizes = [
        len(random_shards(Rows({"y": values}), 2, 300, Randomness(s))._host_fields()[0]["y"][0])
        for s in range(3)
    ]
    assert sizes == [300] * 3  # the width is declared, not found


def test_shards_keep_the_rows_of_a_person_together_and_leave_out_what_is_too_much():
    people = np.repeat(np.arange(30), 3)
    rows = Rows.by_person({"y": people}, people, 2)
    fields, present = random_shards(rows, 5, 100, Randomness(1))._host_fields()
    for person in range(30):
        where = [(fields["y"][i][present[i]] == person).sum() for i in range(5)]
        assert sorted(where) == [0, 0, 0, 0, 2]
    _, present = random_shards(rows, 5, 4, Randomness(1))._host_fields()
    assert present.sum(axis=1).max() == 4
    assert all_rows_as_unit(rows)._host_fields()[1].sum() == 60


def conducted(scheme, seed, sites=4, target=None):
    target = target or counts()
    rows = {f"s{i}": Rows({"y": np.zeros(5, int)}) for i in range(sites)}
    method = Partitioned(scheme=scheme, num_rounds=1)
    found = run_in_process(method, target, rows, dict.fromkeys(rows, BUDGET), run="r", seed=seed)
    return found.server.posterior - target.prior


@pytest.mark.parametrize(("noise", "more"), [("split", np.sqrt(4 / 3)), ("server", 1.0)])
def test_noise_of_the_sum_is_enough_and_one_site_may_tell_its_own(noise, more):
    # A prior so large that the posterior is always proper: the change is what was released.
    target = replace(counts(), prior=np.array([1e6, 1e6]))
    scheme = ClippedChanges(clip=50.0, noise=noise, steady=False)
    drawn = np.array([conducted(scheme, seed, target=target) for seed in range(100)])
    least = calibrate.noise_multiplier(BUDGET)
    assert drawn.std(axis=0) == pytest.approx(np.full(2, 50 * least * more), rel=0.25)


def test_shared_noise_needs_everybody():
    method = Partitioned(scheme=ClippedChanges(clip=5.0, noise="split"), num_rounds=2)
    target, names = counts(), ("a", "b", "c")
    server = method.server(target, names, run="r", budget=BUDGET, source=Randomness(0))
    rows = Rows({"y": np.array([1, 2])})
    clients = [
        prepare_site(n, rows, method, target, run="r", sites=3, budget=BUDGET) for n in names
    ]
    tasks = server.tasks(names)
    replies = InProcess(clients).exchange(tasks)
    assert all(reply.change.dtype == np.int64 for reply in replies.values())
    del replies["b"]
    assert not server.apply_replies(tasks, replies)
    assert np.array_equal(server.posterior, target.prior)
    with pytest.raises(InvalidArgument):
        Partitioned(scheme=method.scheme, schedule="sequential")
    with pytest.raises(InvalidArgument, match="groups"):
        Partitioned(scheme=method.scheme, group_size=2).setting(target, BUDGET, 3)
    with pytest.raises(InvalidArgument, match="nobody is left"):
        method.scheme.prepare(setting(target, sites=1))


def test_subsets_share_noise_among_themselves():
    scheme = ClippedChanges(clip=5.0, noise="split", dishonest=0)
    method = Partitioned(scheme=scheme, num_rounds=3, group_size=2)
    made = method.setting(counts(), BUDGET, 4)
    assert (made.together, made.sites, made.answers) == (2, 4, 3)
    plan = scheme.prepare(made).work.mechanism
    least = calibrate.noise_multiplier(BUDGET, num_steps=3)
    assert plan.noise_multiplier == pytest.approx(least / np.sqrt(2))
    rows = {f"s{i}": Rows({"y": np.full(20, 3)}) for i in range(4)}
    found = run_in_process(method, counts(), rows, dict.fromkeys(rows, BUDGET), run="r", seed=0)
    assert len(found.trace) == 6


class Wild:
    """A site that answers with whatever comes."""

    def __init__(self, name, size, rng):
        self.name, self._size, self._rng = name, size, rng

    def answer(self, task):
        change = 100 * self._rng.standard_cauchy(self._size)
        return Reply(site=self.name, run=task.run, round=task.round, change=change)


@pytest.mark.parametrize("family", [DiagonalGaussian(3), FullGaussian(3)])
def test_whatever_sites_answer_everything_stays_proper(family):
    rng = np.random.default_rng(0)
    clients = [Wild(f"s{i}", family.size, rng) for i in range(4)]
    prior = family.from_moments(np.zeros(3), np.ones(3))
    names = tuple(each.name for each in clients)
    server = PVIServer(run="r", family=family, prior=prior, sites=names, damping=0.8)
    for _ in range(40):
        tasks = server.tasks(names)
        assert server.apply_replies(tasks, InProcess(clients).exchange(tasks))
        share = server.applied["s0"].share
        assert len(share) == family.size
        assert ((share >= 0) & (share <= 0.8)).all()
        assert family.is_proper(server.posterior)
        for factor in server.factors.values():
            assert family.is_proper(server.posterior - factor)
    assert any(not family.is_proper(factor) for factor in server.factors.values())


@pytest.mark.parametrize(
    ("change", "grid"),
    [
        (np.array([np.nan, 0.0]), None),
        (np.array([1.0, np.inf]), None),
        (np.array([1e200, 0.0]), None),
        (np.zeros(3), None),
        (np.zeros((2, 1)), None),
        (np.zeros(2, np.int64), None),
        (np.ones(2, np.int64), 0.5),
    ],
)
def test_an_answer_that_no_site_gives_is_left_out_and_the_others_count(change, grid):
    family = DiagonalGaussian(1)
    server = PVIServer(run="r", family=family, prior=np.array([1.0, 0.0]), sites=("a", "b"))
    tasks = server.tasks(("a", "b"))
    bad = Reply(site="a", run="r", round=1, change=change, grid=grid)
    good = Reply(site="b", run="r", round=1, change=np.array([2.0, 1.0]))
    server.apply_replies(tasks, {"a": bad, "b": good})
    assert np.array_equal(server.posterior, [3.0, 1.0])
    assert server.used == {"a": 0, "b": 1}
    assert server.task("a").applied_round == 0
    server.needs_all_sites = True  # noise that is shared needs all
    again = server.tasks(("a", "b"))
    replies = {"a": replace(bad, round=2), "b": replace(good, round=2)}
    assert not server.apply_replies(again, replies)


def test_vectors_of_other_sizes_are_not_added_up():
    replies = [Reply(site="a", run="r", round=1, change=np.zeros(n)) for n in (2, 3)]
    with pytest.raises(InvalidArgument, match="different sizes"):
        sum_replies(replies, np.zeros(2))


@pytest.mark.parametrize("noise", ["split", "server"])
def test_shares_of_noise_cost_the_delta_that_they_are_said_to(noise):
    budget = Budget(1, 1e-5)
    scheme = ClippedChanges(clip=1.0, noise=noise)
    setting = RunSetting(target=TARGET, budget=budget, answers=3, sites=4, together=4)
    event = scheme.prepare(setting).event
    assert PLD().epsilon(event, budget.delta) <= budget.epsilon
    # Where delta is no more than what shares take, nothing is promised.
    tiny = PLD().epsilon(event, 2.0**-41 * budget.delta)
    assert np.isinf(tiny) == (noise == "split")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: OneRelease(clip=1.0).prepare(setting(answers=2)), "num_rounds=1"),
        (lambda: ClippedChanges(clip=-1.0), "clip"),
        (lambda: ShardedChanges(clip=1.0, num_shards=3, shard_rows=0), "shard_rows"),
        (lambda: ShardedChanges(clip=1.0, num_shards=0, shard_rows=5), "num_shards"),
        (
            lambda: ShardedChanges(
                clip=1.0, num_shards=3, shard_rows=5, average=True, noise="split"
            ),
            "noise",
        ),
        (lambda: Hybrid(clip=1.0, statistics_share=1.0), "statistics_share"),
        (lambda: Optimised().prepare(setting(counts())), "Gaussian"),
        (lambda: ClippedStatistics(clip=1.0).prepare(setting(approximate())), "conjugate"),
    ],
)
def test_settings_that_cannot_work_are_refused(call, words):
    with pytest.raises(InvalidArgument, match=words):
        call()


@pytest.mark.parametrize(
    ("scheme", "settings", "words"),
    [
        (ClippedChanges, {"num_shards": 3}, "num_shards"),  # a data set is protected as a whole
        (ShardedChanges, {"num_shards": 3}, "shard_rows"),  # which must be declared
        (ClippedChanges, {"own_factors": True}, "own_factors"),  # only as the paper has it
    ],
)
def test_settings_that_a_scheme_does_not_have_are_refused(scheme, settings, words):
    with pytest.raises(TypeError, match=words):
        scheme(clip=1.0, **settings)


def approximate(log_prior=None):
    model = Model(
        parameters={"w": Parameter((2,))},
        log_prior=log_prior or (lambda p: -0.5 * jnp.sum(p["w"] ** 2)),
        log_likelihood=lambda p, row: -0.5 * (row["y"] - jnp.dot(row["x"], p["w"])) ** 2,
    ).unit_model
    return ApproximateTarget(model=model, family=DiagonalGaussian(2))


@pytest.mark.parametrize(
    ("log_prior", "words"),
    [
        (lambda p: -jnp.sum(jnp.log1p(p["w"] ** 2)), "Gaussian prior"),
        (lambda p: -0.5 * jnp.sum(p["w"]) ** 2 - 0.1 * jnp.sum(p["w"] ** 2), "correlations"),
        (lambda p: 0.0 * jnp.sum(p["w"]), "proper"),
    ],
)
def test_priors_that_sites_cannot_share_are_refused(log_prior, words):
    with pytest.raises(InvalidArgument, match=words):
        _ = approximate(log_prior).prior


def test_given_noise_must_be_covered_by_the_budget():
    with pytest.raises(BudgetError, match="costs more"):
        ClippedStatistics(clip=1.0, noise_multiplier=0.5).prepare(setting())
    event = ClippedStatistics(clip=1.0, noise_multiplier=50.0).prepare(setting()).event
    assert event.noise_multiplier == 50.0


@pytest.mark.parametrize("seed", [None, 3])
def test_a_server_that_begins_again_gets_no_second_noise_for_what_was_paid_once(tmp_path, seed):
    rows = {name: Rows({"y": np.array([1, 2])}) for name in "ab"}
    method = Partitioned(scheme=ClippedChanges(clip=5.0, noise="server"), num_rounds=1)
    ledgers = {n: Ledger.new(tmp_path / f"{n}.db", total=BUDGET, unit="data set") for n in rows}

    def again():
        budgets = dict.fromkeys(rows, BUDGET)
        return run_in_process(
            method, counts(), rows, budgets, run="r", ledgers=ledgers, seed=seed
        ).server.posterior

    first = again()
    if seed is None:
        with pytest.raises(InvalidArgument, match="needs a new run"):
            again()
    else:  # the same noise again is nothing new
        assert np.array_equal(first, again())


def test_other_data_of_a_site_move_its_change_by_two_clips_and_the_statement_says_so():
    target = counts()
    scheme = ClippedChanges(clip=5.0, noise="server")
    work = scheme.prepare(setting(target)).work
    posterior = target.prior + np.array([200.0, 100.0])

    def change(values):
        rows = Rows({"y": np.array(values)})
        return work.change(rows, posterior, np.zeros(2), Randomness(0)) * work.grid

    moved = np.linalg.norm(change([3] * 1000) - change([0]))
    assert 1.5 * scheme.clip < moved <= 2 * scheme.clip
    assert any("zeros in its place" in said for said in scheme.trust)


@pytest.mark.parametrize("seed", range(3))
def test_floors_of_statistics_and_of_factors_are_those_of_the_report(seed):
    target, damping = through_origin(1, noise_sd=0.5, prior_sd=5.0), 0.1
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(10, 1)).astype(np.float32)
    rows = Rows({"x": x, "y": (2 * x[:, 0]).astype(np.float32)})
    factor = np.array([0.7, -0.4])

    def changed(floor, number):
        scheme = ClippedStatistics(clip=16.0, noise_multiplier=5.0, floor=floor)
        terms = RunSetting(
            target=target, budget=None, answers=1, sites=1, together=1, damping=damping
        )
        return scheme.prepare(terms).work.change(rows, target.prior, factor, Randomness(number))

    below = 0
    for number in range(20):
        released = changed(None, number) + factor
        below += released[0] < 0
        # Eq. 4.20: what is released is cut off at zero, before it is damped; eq. 4.21 cuts nothing off.
        cut = np.array([max(released[0], 0.0), released[1]])
        assert changed("statistic", number) == pytest.approx(cut - factor)
        # The author's program: the factor after damping is cut off.
        after = (1 - damping) * factor + damping * released
        after[0] = max(after[0], 0.0)
        assert factor + damping * changed("factor", number) == pytest.approx(after)
    assert 0 < below < 20

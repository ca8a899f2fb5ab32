"""Pooled scoring: sums over sites are sums over rows, and the posterior is that of one table."""

import dp_accounting
import dp_accounting.pld
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy.optimize import minimize
from scipy.special import expit

import tacit
from tacit import Rows
from tacit.accounting import PLD
from tacit.api.federated import (
    default_federated_method,
    federated_posterior,
    forecast_study,
)
from tacit.api.rows import encode_rows
from tacit.errors import InvalidArgument, Refused, TacitError
from tacit.federated import Partitioned, PooledScoring
from tacit.federated.method import FederatedResult, SiteCost, prepare_site, run_in_process
from tacit.federated.pooled import QueryVector, change_metric, early_rounds
from tacit.federated.protocol import InProcess, Reply, Task
from tacit.federated.schemes import OneRelease
from tacit.federated.server import run_schedule
from tacit.inference.result import Intervals
from tacit.inference.score_contributions import split_release, unit_contribution
from tacit.inference.scoring import make_query
from tacit.inference.scoring_rounds import WhitenedQuery
from tacit.inference.whitening import Whitening
from tacit.models.jax_model import Model, Parameter
from tacit.privacy.noise import Randomness

BUDGET = tacit.Budget(8, 1e-5)
NAMES = ("north", "south", "west")


def chances(params, row):
    return dist.Bernoulli(logits=row["x"] @ params["w"])


MODEL = Model(
    parameters={"w": Parameter((2,))},
    log_prior=lambda params: dist.Normal().log_prob(params["w"]).sum(),
    log_likelihood=lambda params, row: chances(params, row).log_prob(row["y"]),
    simulate=lambda key, params, row: {"y": chances(params, row).sample(key)},
).unit_model


def table(size=1500):
    rng = np.random.default_rng(4)
    x = np.column_stack([np.ones(size), rng.normal(size=size)]).astype(np.float32)
    y = rng.binomial(1, expit(x @ [-0.7, 1.1])).astype(np.float32)
    return x, y


def sites_of():
    """Sites of different sizes: one has mostly zeros, one only ones, one the smallest predictors."""
    x, y = table()
    order = np.lexsort([x[:, 1], y])
    parts = np.split(order, [600, 1100])
    return {
        name: Rows({"x": x[part], "y": y[part]}) for name, part in zip(NAMES, parts, strict=True)
    }


def mode():
    x, y = table()

    def loss(w):
        eta = x @ w
        return np.sum(np.logaddexp(0, eta) - y * eta) + w @ w / 2

    found = minimize(loss, np.zeros(2))
    return found.x, found.hess_inv


@pytest.fixture(scope="module")
def method():
    return PooledScoring(num_rounds=10)


@pytest.fixture(scope="module")
def target(method):
    return method.target(MODEL)


@pytest.fixture(scope="module")
def finished(method, target):
    rows = sites_of()
    return run_in_process(method, target, rows, dict.fromkeys(rows, BUDGET), run="r", seed=3).server


def test_sites_that_are_nothing_alike_find_the_posterior_of_one_table(method, target, finished):
    found = method.fitted(target, finished, 0)
    mean, covariance = mode()
    spread = np.sqrt(np.diag(covariance))
    assert np.all(
        np.abs(found.unconstrained_mean - mean)
        < 4 * np.sqrt(np.diag(found.unconstrained_covariance))
    )
    assert np.all(np.abs(found.unconstrained_mean - mean) < 5 * spread)
    assert np.all(np.sqrt(np.diag(found.unconstrained_covariance)) < 4 * spread)
    assert found.intervals is Intervals.INCLUDED
    assert found.converged
    assert found.draws["w"].shape == (1000, 2)


def test_noise_that_sites_share_and_add_is_enough_for_their_budget(target):
    for noise in ("site", "split"):
        scheme = PooledScoring(noise=noise).scheme
        setting = PooledScoring(noise=noise).setting(target, BUDGET, 11)
        ready = scheme.prepare(setting)
        assert PLD().epsilon(ready.event, BUDGET.delta, "add-remove") <= BUDGET.epsilon
        std = ready.work.mechanism.noise_std
        total = std * np.sqrt(10) if noise == "split" else std  # one of them may tell its own
        composed = PLD().epsilon(
            tacit.accounting.events.gaussian(total / np.sqrt(20)), BUDGET.delta, "add-remove"
        )
        assert composed <= BUDGET.epsilon * (1 + 1e-6)


def test_answers_that_share_noise_are_whole_numbers_and_add_up_to_the_same(target):
    method = PooledScoring(num_rounds=10, noise="split")
    rows = sites_of()
    server = method.server(target, NAMES, run="r", budget=BUDGET, source=Randomness(0))
    task = server.tasks(NAMES)["north"]
    clients = {
        name: prepare_site(
            name, rows[name], method, target, run="r", sites=3, budget=BUDGET, seed=2
        )
        for name in NAMES
    }
    replies = {name: client.answer(task) for name, client in clients.items()}
    assert all(reply.change.dtype == np.int64 for reply in replies.values())
    added = np.sum([reply.change for reply in replies.values()], axis=0)
    count = added[-1] * replies["north"].grid  # the first round asks for nothing else
    std = clients["north"].work.mechanism.noise_std * np.sqrt(3)
    assert abs(count - 1500) < 6 * std
    server.apply_replies(dict.fromkeys(NAMES, task), {n: replies[n] for n in NAMES[1:]})
    assert not server.trace  # a sum without a site's noise is no sum
    again = server.tasks(NAMES)["north"]
    assert again.digest("north") == task.digest("north")  # the same round, at no cost
    server.apply_replies(dict.fromkeys(NAMES, task), replies)
    assert len(server.trace) == 1
    with pytest.raises(TacitError, match="Too few rounds"):
        server.fitted(np.random.default_rng(0))


class WithoutWest(InProcess):
    """West refuses every task."""

    def exchange(self, tasks):
        return super().exchange({name: task for name, task in tasks.items() if name != "west"})


def test_a_site_that_refused_has_no_statement(method, target):
    rows = sites_of()
    clients = [
        prepare_site(n, rows[n], method, target, run="r", sites=3, budget=BUDGET, seed=3)
        for n in NAMES
    ]
    server = method.server(target, NAMES, run="r", budget=BUDGET, source=Randomness(0))
    run_schedule(server, WithoutWest(clients), method.rounds(3))
    event = method.prepare(method.setting(target, BUDGET, 3)).event
    costs = dict.fromkeys(NAMES, SiteCost(event=event, budget=BUDGET))
    result = FederatedResult(server=server, costs=costs)
    post = federated_posterior(result, method, target, None, dict.fromkeys(NAMES, "row"), None)
    assert list(post.sites) == list(post.answers) == ["north", "south"]
    assert any(said.startswith("No answer of west was used") for said in post.messages)


@pytest.mark.parametrize(("noise", "rate"), [("site", 1.0), ("split", 0.3)])
def test_large_sites_are_counted_and_their_answers_are_used(target, noise, rate):
    """Of 400,000 rows at each of three sites, the sums of all fill more than 32 bits."""
    method, size = PooledScoring(num_rounds=10, noise=noise, sampling_rate=rate), 400_000
    x = np.ones((size, 2), np.float32)
    rows = Rows({"x": x, "y": np.arange(size, dtype=np.float32) % 2})
    server = method.server(target, NAMES, run="r", budget=BUDGET, source=Randomness(0))
    clients = {
        n: prepare_site(n, rows, method, target, run="r", sites=3, budget=BUDGET, seed=2)
        for n in NAMES
    }
    tasks = server.tasks(NAMES)
    assert server.apply_replies(tasks, {n: clients[n].answer(tasks[n]) for n in NAMES})
    deviation = server.noise_std * 3**0.5 / rate + (3 * size * (1 - rate) / rate) ** 0.5
    assert server.rounds.units == pytest.approx(3 * size, abs=6 * deviation, rel=2e-4)
    tasks = server.tasks(NAMES[:1])  # answers of these lengths are possible
    assert server.is_possible("north", clients["north"].answer(tasks["north"]).values)


def test_a_sampled_round_costs_what_is_charged_for_it(target):
    for noise in ("site", "split"):
        method = PooledScoring(noise=noise, sampling_rate=0.2)
        ready = method.prepare(method.setting(target, BUDGET, 11))
        std = ready.noise_std * (10**0.5 if noise == "split" else 1)
        event = dp_accounting.SelfComposedDpEvent(
            dp_accounting.PoissonSampledDpEvent(0.2, dp_accounting.GaussianDpEvent(std)), 20
        )
        accountant = dp_accounting.pld.PLDAccountant().compose(event)
        assert accountant.get_epsilon(BUDGET.delta) == pytest.approx(BUDGET.epsilon, rel=2e-3)
        assert PLD().epsilon(ready.event, BUDGET.delta, "add-remove") <= BUDGET.epsilon


def test_sites_that_sample_their_rows_find_the_posterior(target):
    method, rows = PooledScoring(num_rounds=10, sampling_rate=0.5), sites_of()
    server = run_in_process(
        method, target, rows, dict.fromkeys(rows, BUDGET), run="r", seed=3
    ).server
    assert server.used == dict.fromkeys(NAMES, 10)
    found, (mean, _) = method.fitted(target, server, 0), mode()
    spread = np.sqrt(np.diag(found.unconstrained_covariance))
    assert np.all(np.abs(found.unconstrained_mean - mean) < 4 * spread)


def test_a_declared_size_decides_whether_sites_sample():
    assert PooledScoring().for_size(50_000) == PooledScoring()
    assert PooledScoring().for_size(10**8).sampling_rate < 0.01
    with pytest.raises(InvalidArgument, match="size is for PooledScoring"):
        tacit.fit_federated(MODEL, sites_of(), epsilon=1, size=10**6, method=Partitioned())


class Losing(InProcess):
    """Loses the answers of one site in some rounds."""

    def exchange(self, tasks):
        replies = super().exchange(tasks)
        if tasks["west"].round in {3, 7, 8}:
            del replies["west"]
        return replies


def test_a_site_that_misses_rounds_still_counts(method, target, finished):
    rows = sites_of()
    clients = [
        prepare_site(n, rows[n], method, target, run="r", sites=3, budget=BUDGET, seed=3)
        for n in NAMES
    ]
    server = method.server(target, NAMES, run="r", budget=BUDGET, source=Randomness(0))
    kept = [server.pack_state()]
    run_schedule(
        server, Losing(clients), method.rounds(3), save=lambda s: kept.append(s.pack_state())
    )
    assert server.used == {"north": 10, "south": 10, "west": 7}
    found, whole = server.fitted(np.random.default_rng(0)), method.fitted(target, finished, 0)
    spread = np.sqrt(np.diag(whole.unconstrained_covariance))
    assert np.all(np.abs(found.unconstrained_mean - whole.unconstrained_mean) < 4 * spread)
    assert np.all(
        np.diag(found.unconstrained_covariance) > 0.8 * np.diag(whole.unconstrained_covariance)
    )

    # A server that died goes on where it was.
    other = method.server(target, NAMES, run="r", budget=BUDGET, source=Randomness(0))
    other.restore(kept[:6])
    for number in range(6, 11):
        at = method.server(target, NAMES, run="r", budget=BUDGET, source=Randomness(0))
        at.restore(kept[: number + 1])
        assert np.array_equal(np.array(at.trace), np.array(server.trace)[:number])
    assert other.used["west"] == 4
    assert np.array_equal(
        at.fitted(np.random.default_rng(0)).unconstrained_mean,
        server.fitted(np.random.default_rng(0)).unconstrained_mean,
    )


def test_a_posterior_without_a_site_is_that_of_the_others(finished):
    # South has only ones, and without it the intercept is far lower.
    whole = finished.fitted(np.random.default_rng(0))
    without = finished.fitted(np.random.default_rng(0), without=["west"])
    assert without.unconstrained_mean[0] < whole.unconstrained_mean[0] - 0.3
    assert any("without the rows of west" in said for said in without.messages)
    with pytest.raises(TacitError, match="No site is left"):
        finished.fitted(np.random.default_rng(0), without=NAMES)


def test_influence_is_how_far_the_posterior_moves_without_a_site(method, target, finished):
    begun = method.server(target, NAMES, run="r", budget=BUDGET, source=Randomness(0))
    assert begun.influence() == {}
    found = finished.influence()
    assert set(found) == set(NAMES)
    assert found["west"].moved > 5  # it has nearly all ones
    assert found["west"].notable
    spread = finished.fitted(np.random.default_rng(0)).unconstrained_covariance[0, 0] ** 0.5
    whole, without = (
        finished.fitted(np.random.default_rng(0), without=each).unconstrained_mean[0]
        for each in ((), ["west"])
    )
    assert found["west"].moved > 0.5 * abs(whole - without) / spread
    said = finished.fitted(np.random.default_rng(0)).messages
    assert any(each.startswith("Without") and "leave it out" in each for each in said)


@pytest.mark.parametrize("seed", range(3))
def test_a_large_site_is_not_accused_of_its_size(method, target, seed):
    x, y = table(12_000)
    parts = zip(NAMES, np.split(np.arange(len(y)), [300, 700]), strict=True)
    rows = {name: Rows({"x": x[part], "y": y[part]}) for name, part in parts}
    budgets = dict.fromkeys(rows, BUDGET)
    server = run_in_process(method, target, rows, budgets, run="r", seed=seed).server
    found = server.influence()
    assert found["west"].moved > 3
    assert not any(each.notable for each in found.values())
    said = server.fitted(np.random.default_rng(0)).messages
    assert any(each.startswith("Without west") and "its size" in each for each in said)
    assert not any("leave it out" in each for each in said)


@pytest.mark.parametrize("garbage", [1e9, 1e30, 300.0])
def test_an_answer_that_is_no_sum_of_clipped_vectors_is_left_out(
    method, target, finished, garbage, caplog
):
    server = method.server(target, NAMES, run="r", budget=BUDGET, source=Randomness(0))
    tasks = server.tasks(NAMES)
    answers = finished.finished[0].answers
    replies = {n: Reply(site=n, run="r", round=1, change=answers[n]) for n in NAMES}
    spoiled = answers["south"].copy()
    spoiled[:2] += np.array([garbage, -garbage]) * 10
    replies["south"] = Reply(site="south", run="r", round=1, change=spoiled)
    server.apply_replies(tasks, replies)
    assert server.used == {"north": 1, "south": 0, "west": 1}
    assert "answer of south" in caplog.text


@pytest.mark.parametrize(("factor", "used"), [(1.0, 1), (1e6, 0)])
def test_a_site_without_a_count_is_no_larger_than_the_largest(
    method, target, finished, factor, used
):
    server = method.server(target, NAMES, run="r", budget=BUDGET, source=Randomness(0))
    for round_, finished_round in enumerate(finished.finished[:2], 1):
        answers = dict(finished_round.answers)
        if round_ == 1:
            del answers["south"]
        else:
            answers["south"] = answers["south"] * factor
        tasks = server.tasks(NAMES)
        replies = {n: Reply(site=n, run="r", round=round_, change=a) for n, a in answers.items()}
        server.apply_replies(tasks, replies)
    assert server.used == {"north": 2, "south": used, "west": 2}


@pytest.mark.parametrize("spoil", ["place", "metric", "clip", "sizes", "shares", "nan"])
def test_a_question_that_no_fit_can_ask_is_refused_before_the_charge(method, target, spoil):
    rows = sites_of()["north"]
    server = method.server(target, NAMES, run="r", budget=BUDGET, source=Randomness(0))
    task = server.tasks(NAMES)["north"]
    where = {"place": 0, "metric": 2, "clip": 6, "sizes": 10, "shares": 11, "nan": 1}[spoil]
    vector = task.posterior.copy()
    vector[where] = np.nan if spoil == "nan" else -1e38
    client = prepare_site("north", rows, method, target, run="r", sites=3, budget=BUDGET, seed=3)
    with pytest.raises(Refused):
        client.answer(Task(run="r", round=1, posterior=vector))
    assert client._journal.latest("r") is None


def test_a_question_survives_its_way():
    rng, family = np.random.default_rng(0), QueryVector(3)
    vector = rng.uniform(0.1, 0.3, size=family.size)
    again = family.pack(family.unpack(vector, None))
    assert again == pytest.approx(vector, rel=1e-6)
    vector[family.size - 10] = 1.0  # sizes
    assert family.is_proper(vector)
    vector[family.size - 14] = 1e-30  # a clip whose square is zero in single precision
    assert not family.is_proper(vector)


def test_an_answer_carried_to_another_metric_is_what_the_site_would_have_said():
    """Scores and curvature of the same rows, secrets and place; no score is as long as its clip."""
    x, y = table(200)
    secrets = np.random.default_rng(2).integers(0, 2**32, (200, 2), dtype=np.uint32)
    rows = {"x": x[:, None], "y": y[:, None]}
    said = []
    for turn, clip in ((np.array([[0.3, 0.1], [0.0, 0.2]]), 3.0), (0.2 * np.eye(2), 2.0)):
        asked = WhitenedQuery(np.zeros(2), turn, clip, 5.0, 7.0, clip, 0.0, np.full(9, 9**-0.5))
        space = Whitening(np.array([-0.2, 0.3]), np.eye(2), quadratic=True)
        unit = unit_contribution(MODEL, 3)
        each = jax.vmap(unit, in_axes=(None, 0, None, 0))
        vectors = each(make_query(MODEL, space, asked), rows, np.ones(1, bool), secrets)
        total = np.asarray(vectors, np.float64).sum(axis=0)
        said.append((split_release(total, 2, asked.shares, 1.0), asked))
    (before, asked), (after, other) = said
    found = change_metric(before, asked, other)
    assert found.score == pytest.approx(after.score, rel=1e-4)
    assert found.curvature == pytest.approx(after.curvature, rel=1e-4)
    assert np.abs(before.score - after.score).max() > 0.1 * np.abs(after.score).max()


def test_a_study_with_a_schema_starts_where_the_fit_of_one_table_starts():
    schema = tacit.Schema({"y": tacit.Binary(), "x": tacit.Number(0, 5), "z": tacit.Number(-1, 1)})
    model = tacit.glm("y ~ x * z", schema=schema)
    study = tacit.federated_study(model, schema=schema, sites=NAMES, run="r", budget=BUDGET)
    method = tacit.Scoring()
    rows = encode_rows(schema, ["y", "x", "z"], {"y": [1], "x": [4.0], "z": [0.5]})
    one = method.rounds(
        study.target.model, method.without_noise(study.target.model), rows.simulated
    )
    rounds = study.server().rounds
    assert np.array_equal(rounds.public, one.public)
    assert np.linalg.cond(rounds.public) > 5  # without a schema it is round


def test_the_default_is_pooled_scoring_where_it_fits():
    assert default_federated_method(MODEL) == PooledScoring()
    silent = Model(
        parameters={"w": Parameter((2,))},
        log_prior=lambda params: -jnp.sum(params["w"] ** 2),
        log_likelihood=lambda params, row: row["y"] * params["w"][0],
    ).unit_model
    assert default_federated_method(silent) == Partitioned()
    assert (
        default_federated_method(tacit.conjugate.Poisson("visits", bounds=((0, 9),)).unit_model)
        == Partitioned()
    )
    with pytest.raises(InvalidArgument, match="cannot draw"):
        PooledScoring().target(silent)


def test_damping_of_private_optimisation_follows_the_number_of_sites():
    assert Partitioned().rounds(10).damping == pytest.approx(0.1)
    assert Partitioned(group_size=2).rounds(10).damping == pytest.approx(0.5)
    assert Partitioned(schedule="sequential").rounds(10).damping == 1


def test_any_number_of_rounds_leaves_enough_for_a_posterior(target):
    for rounds in range(4, 60):
        assert rounds - 1 - early_rounds(rounds) >= 2
    assert early_rounds(20) == 10
    fewest, budgets = PooledScoring(num_rounds=4), dict.fromkeys(NAMES, BUDGET)
    found = run_in_process(fewest, target, sites_of(), budgets, run="r", seed=1)
    assert fewest.fitted(target, found.server, 0).draws


def test_a_forecast_of_a_study_knows_its_sites_and_says_if_it_is_hopeless():
    schema = tacit.Schema({"y": tacit.Binary(), "x": tacit.Number(0, 5), "z": tacit.Number(-1, 1)})

    def widths(sites, size, **given):
        names = [f"site{i}" for i in range(sites)]
        study = tacit.federated_study("y ~ x + z", schema=schema, sites=names, run="r", epsilon=1)
        found = forecast_study(study, size, **given)
        return np.array([each.spread for each in found.lines]), found

    few, _ = widths(5, 20_000)
    many, said = widths(50, 20_000)
    split, _ = widths(50, 20_000, noise="split")
    without = [each.without_privacy for each in said.lines]
    assert np.all(many > few)
    assert np.all(few > split)
    assert np.all(split > without)
    assert not said.warnings()
    assert "hopeless" in widths(50, 1_500)[1].warnings()[0]
    assert not widths(50, 1_500, noise="split")[1].warnings()
    counts = tacit.federated_study(
        tacit.conjugate.Poisson("z"),
        schema=tacit.Schema({"z": tacit.Count(9)}),
        sites=["a", "b"],
        run="r",
        epsilon=1,
        method=Partitioned(scheme=OneRelease(clip=9.0), num_rounds=1),
    )
    with pytest.raises(InvalidArgument, match="PooledScoring"):
        forecast_study(counts, 100)

import dataclasses
import json
import math

import dp_accounting as dpa
import pytest

from tacit.accounting import PLD, Budget, Renyi, events
from tacit.accounting import accountant as by_name
from tacit.accounting.ledger import Ledger
from tacit.errors import BudgetError, InvalidArgument, TheoremDoesNotHold, UnsupportedEvent
from tacit.papers.accountants import Advanced, AnalyticGaussian, Basic, ClassicalGaussian, Moments

OWN = [
    events.BarkerTest(ratio_bound=0.1),
    events.GaussianBarkerTest(ratio_bound=0.1),
    events.SubsampledBarkerTest(batch_size=100, dataset_size=1000),
    events.BoundedPosteriorSample(likelihood_bound=0.1),
    events.LipschitzPosteriorSample(lipschitz=1.0, radius=0.1),
    events.LogConcavePosteriorSample(lipschitz=1.0, concavity=4.0),
]


@pytest.mark.parametrize("event", OWN, ids=lambda e: type(e).__name__)
def test_events_are_frozen_hashable_and_serialisable(event):
    assert isinstance(event, events.DpEvent)
    assert hash(event) == hash(dataclasses.replace(event))
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(event, dataclasses.fields(event)[0].name, 5.0)
    assert events.from_dict(json.loads(json.dumps(events.to_dict(event)))) == event


def test_compositions_are_hashable():
    run = events.compose(events.gaussian(1.0), events.sampled_gaussian(1.0, 0.1, 5))
    assert hash(run) == hash(
        events.compose(events.gaussian(1.0), events.sampled_gaussian(1, 0.1, 5))
    )


def test_leaves_multiply_out():
    inner = events.compose(events.gaussian(1.0), events.repeat(events.laplace(2.0), 3))
    found = dict(events.leaves(events.repeat(inner, 4)))
    assert found == {events.gaussian(1.0): 4, events.laplace(2.0): 12}
    assert list(events.leaves(events.NoOpDpEvent())) == []
    whole = events.PoissonSampledDpEvent(1.0, events.gaussian(2.0))
    assert list(events.leaves(whole)) == [(events.gaussian(2.0), 1)]


def test_a_schedule_costs_between_its_ends():
    def cost(noise, **steps):
        return PLD().epsilon(events.sampled_gaussian(noise, 0.01, **steps), 1e-6)

    mixed = cost([(4.0, 500), (1.0, 500)])
    assert cost(4.0, num_steps=1000) < mixed < cost(1.0, num_steps=1000)
    assert cost(1.0, num_steps=500) < mixed


def test_posterior_samples():
    bounded = events.BoundedPosteriorSample(likelihood_bound=0.25)
    assert PLD().epsilon(bounded, 0.0, "replace") == 1.0  # 4B
    assert PLD().epsilon(bounded, 0.0) == 0.5  # 2B
    assert PLD().epsilon(bounded, 1e-6, "replace") < 1.0
    lipschitz = events.LipschitzPosteriorSample(lipschitz=2.0, radius=0.25)
    assert PLD().epsilons(lipschitz, 0.0) == {"add-remove": None, "replace": 2.0}  # 4LR
    concave = events.LogConcavePosteriorSample(lipschitz=0.5, concavity=4.0)
    same = events.gaussian(4.0)  # mu = 1/4
    for adjacency in ("add-remove", "replace"):
        assert PLD().epsilon(concave, 1e-6, adjacency) == PLD().epsilon(same, 1e-6, adjacency)


def test_barker_bit_beats_the_gaussian_form():
    """And the gap is largest where the paper's noise variance is smallest."""
    bits = PLD().epsilon(events.repeat(events.BarkerTest(ratio_bound=0.01), 1000), 1e-6, "replace")
    noisy = [
        PLD().epsilon(
            events.repeat(events.GaussianBarkerTest(ratio_bound=0.01, noise_variance=c), 1000),
            1e-6,
            "replace",
        )
        for c in (0.5, 2.0, 3.2)
    ]
    assert bits < noisy[2] < noisy[1] < noisy[0]


def test_randomised_response():
    run = events.randomised_response(0.5, 2)  # the coin of thesis Example 2.7
    assert PLD().epsilon(run, 0.0, "replace") == pytest.approx(math.log(3))
    assert Basic().epsilon(run, 0.0, "replace") == pytest.approx(math.log(3))
    with pytest.raises(UnsupportedEvent, match="add-remove"):
        PLD().epsilon(run, 1e-6)
    ten = events.repeat(run, 10)
    assert PLD().epsilon(ten, 1e-6, "replace") > 3 * math.log(3)  # counted ten times


def test_gaussian_accountants_take_gaussian_noise_only():
    run = events.repeat(events.gaussian(20.0), 4)
    exact = AnalyticGaussian().epsilon(run, 1e-5)
    assert exact < ClassicalGaussian().epsilon(run, 1e-5) < 1
    assert AnalyticGaussian().delta(run, exact) == pytest.approx(1e-5, rel=1e-9)
    with pytest.raises(TheoremDoesNotHold, match="below 1"):
        ClassicalGaussian().epsilon(events.gaussian(1.0), 1e-5)
    with pytest.raises(UnsupportedEvent):
        AnalyticGaussian().epsilon(events.sampled_gaussian(1.0, 0.1, 5), 1e-5)


@pytest.mark.parametrize("accountant", [PLD(), Renyi(), Basic()], ids=lambda a: a.name)
@pytest.mark.parametrize(
    "event",
    [
        dpa.UnsupportedDpEvent(),
        dpa.ZCDpEvent(0.1),  # says nothing of its adjacency
        dpa.PoissonSampledDpEvent(0.1, dpa.LaplaceDpEvent(1.0)),
        dpa.SampledWithReplacementDpEvent(10, 5, dpa.GaussianDpEvent(1.0)),
    ],
    ids=lambda e: type(e).__name__,
)
def test_events_without_a_bound_are_refused(accountant, event):
    both = dpa.ComposedDpEvent([dpa.GaussianDpEvent(1.0), event])
    with pytest.raises(UnsupportedEvent):
        accountant.epsilon(events.from_dp_event(both), 1e-5, "replace")


def test_wrong_values_are_refused():
    wrong = [
        lambda: events.gaussian(0),
        lambda: events.gaussian(math.nan),
        lambda: events.sampled_gaussian(1.0, 0.0),
        lambda: events.sampled_gaussian(1.0, 0.1, 2.5),
        lambda: events.sampled_gaussian([], 0.1),
        lambda: events.sampled_gaussian([(1.0, 5)], 0.1, 5),
        lambda: events.fixed_batch_gaussian(1.0, 11, 10),
        lambda: events.randomised_response(0.0, 2),
        lambda: events.randomised_response(0.5, 1),
        lambda: events.repeat_and_select(events.gaussian(1.0), 0.5),
        lambda: events.repeat_and_select(events.gaussian(1.0), 2, -1),
        lambda: events.compose(events.gaussian(1.0), "more"),
        lambda: events.BarkerTest(ratio_bound=-0.1),
        lambda: events.GaussianBarkerTest(ratio_bound=0.1, noise_variance=4.0),
        lambda: events.SubsampledBarkerTest(batch_size=100, dataset_size=10),
        lambda: PLD().epsilon(events.gaussian(1.0), 1.0),
        lambda: PLD().epsilon(events.gaussian(1.0), 1e-5, "swap"),
        lambda: PLD().epsilon("gaussian", 1e-5),
        lambda: PLD().epsilon(dpa.GaussianDpEvent(1.0), 1e-5),
        lambda: events.repeat(dpa.GaussianDpEvent(1.0), 2),
        lambda: events.from_dp_event(dpa.GaussianDpEvent(0.0)),
        lambda: events.from_dp_event(events.gaussian(1.0)),
        lambda: by_name("best"),
        lambda: Renyi(orders=(0.5, 3.0)),
        lambda: Renyi(orders=()),
        lambda: Moments(max_order=0),
        lambda: Advanced(slack=5.0),
        lambda: events.SelfComposedDpEvent(events.gaussian(1.0), -3),
        lambda: events.RepeatAndSelectDpEvent(events.gaussian(1.0), 0.5, math.inf),
        lambda: events.repeat_and_select(events.gaussian(1.0), math.inf),
        lambda: events.PoissonSampledDpEvent(0.0, events.gaussian(1.0)),
        lambda: events.from_dict({"kind": "DpEvents"}),
        lambda: events.from_dict({"kind": "GaussianDpEvent", "sigma": 1.0}),
    ]
    for make in wrong:
        with pytest.raises(InvalidArgument):
            make()


def test_delta_and_epsilon_agree_for_every_accountant():
    run = events.sampled_gaussian(9.0, 0.02, 200)
    for name in ("pld", "rdp", "moments", "advanced", "basic"):
        epsilon = by_name(name).epsilon(run, 1e-5)
        assert by_name(name).delta(run, epsilon) == pytest.approx(1e-5, rel=1e-3), name


@pytest.mark.parametrize(
    ("rate", "scale", "steps", "delta"),
    [
        (2e-4, 1.049, 2148, 2.6e-11),
        pytest.param(1e-5, 0.7, 100_000, 1e-10, marks=pytest.mark.slow),
        (1e-5, 1000.0, 1_000_000, 1e-9),
    ],
)
def test_rare_jumps_and_tiny_losses_agree_both_ways(rate, scale, steps, delta):
    """Corners where one plan does not fit all: delta at epsilon(delta) is delta again."""
    run = events.sampled_gaussian(scale, rate, steps)
    epsilon = PLD().epsilon(run, delta)
    assert PLD().delta(run, epsilon) <= 1.05 * delta
    assert epsilon <= Renyi().epsilon(run, delta)


def test_whole_batches_are_full_data():
    run = events.fixed_batch_gaussian(3.0, 10, 10)
    for accountant in (PLD(), Renyi()):
        full = accountant.epsilon(events.gaussian(3.0), 1e-5, "replace")
        assert accountant.epsilon(run, 1e-5, "replace") == full


def test_selection_with_any_distribution_of_runs():
    one = events.gaussian(3.0)
    for mean, shape in ((1.00001, 0.0), (2000.0, 1e3), (1e6, 100.0), (5.0, math.inf)):
        chosen = events.repeat_and_select(one, mean, shape)
        assert PLD().epsilon(one, 1e-5) < PLD().epsilon(chosen, 1e-5) < math.inf


def test_curve_leaves_out_where_a_theorem_fails():
    run = events.sampled_gaussian(4.0, 0.02, 200)
    whole, part = PLD().curve(run), by_name("basic").curve(run)
    assert list(whole.epsilons) == sorted(whole.epsilons, reverse=True)
    assert 0 < len(part.deltas) < len(whole.deltas)


def test_slack_is_added_to_delta_by_every_accountant():
    one = events.repeat(events.gaussian(2.0), 5)
    loose = events.compose(one, events.Slack(delta=1e-6), events.Slack(delta=1e-6))
    for accountant in (PLD(), Renyi(), Moments()):
        assert accountant.epsilon(loose, 1e-5) == accountant.epsilon(one, 1e-5 - 2e-6)
        assert accountant.epsilon(loose, 1e-6) == math.inf
        assert accountant.epsilon(loose, 0.0) == math.inf
        assert accountant.delta(loose, 5.0) == accountant.delta(one, 5.0) + 2e-6 < 1
    assert PLD().epsilon(events.Slack(delta=1e-6), 1e-5) == 0


def test_a_ledger_of_divergences_has_no_place_for_slack(tmp_path):
    loose = events.compose(events.gaussian(5.0), events.Slack(delta=1e-9))
    book = Ledger.new(tmp_path / "a.db", total=Budget(3, 1e-5), rule="renyi")
    with pytest.raises(BudgetError, match="rule="):
        book.prepare_charge(loose, Budget(2, 1e-6), "run")
    assert Ledger.new(tmp_path / "b.db", total=Budget(3, 1e-5)).prepare_charge(
        loose, Budget(2, 1e-6), "run"
    )

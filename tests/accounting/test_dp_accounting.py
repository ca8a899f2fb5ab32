"""Events are those of dp-accounting, and every epsilon agrees with its accountants."""

import dataclasses
import math
import subprocess
import sys

import dp_accounting as dpa
import pytest

from tacit.accounting import PLD, Renyi, events
from tacit.errors import InvalidArgument, UnsupportedEvent

ADD_REMOVE, REPLACE = "add-remove", "replace"
RELATIONS = {
    ADD_REMOVE: dpa.NeighboringRelation.ADD_OR_REMOVE_ONE,
    REPLACE: dpa.NeighboringRelation.REPLACE_ONE,
}
RUN = events.compose(
    events.sampled_gaussian([(2.0, 100), (1.5, 50)], 0.02),
    events.repeat(events.gaussian(6.0), 3),
)
SAME = [
    events.NoOpDpEvent(),
    events.NonPrivateDpEvent(),
    events.gaussian(2.0),
    events.laplace(3.0),
    events.randomised_response(0.5, 3),
    events.sampled_gaussian(1.5, 0.1),
    events.fixed_batch_gaussian(1.5, 10, 100),
    events.TruncatedSubsampledGaussianDpEvent(1000, 0.01, 20, 1.5),
    events.repeat_and_select(events.gaussian(4.0), 3.0, math.inf),
    events.repeat(events.gaussian(2.0), 5),
    RUN,
]
OURS = [
    events.BarkerTest(ratio_bound=0.1),
    events.repeat(events.BoundedPosteriorSample(likelihood_bound=0.1), 2),
    events.compose(events.gaussian(1.0), events.Slack(delta=1e-9)),
]


def name(event):
    return type(event).__name__


@pytest.mark.parametrize("event", SAME, ids=name)
def test_the_same_event_there_and_back(event):
    theirs = events.to_dp_event(event)
    assert type(theirs).__name__ == name(event)
    assert isinstance(theirs, dpa.DpEvent)
    assert events.from_dp_event(theirs) == event
    assert dpa.DpEvent.from_named_tuple(theirs.to_named_tuple()) == theirs


def test_every_class_of_that_name_has_the_same_fields():
    kinds = [kind for kind in vars(events).values() if str(kind).endswith("DpEvent'>")]
    assert len(kinds) == 1 + len({name(event) for event in SAME} | {"PoissonSampledDpEvent"})
    for kind in kinds:
        theirs = getattr(dpa.dp_event, kind.__name__)
        ours = [field.name for field in dataclasses.fields(kind)]
        assert ours == [field.name for field in theirs.__attrs_attrs__]


@pytest.mark.parametrize("event", OURS, ids=name)
def test_events_of_our_own_have_no_counterpart(event):
    with pytest.raises(UnsupportedEvent, match="dp-accounting has no event"):
        events.to_dp_event(event)


def test_events_of_others_are_not_taken_for_theirs():
    class GaussianDpEvent(dpa.DpEvent):
        noise_multiplier = 1.0

    with pytest.raises(UnsupportedEvent, match="no event like"):
        events.from_dp_event(GaussianDpEvent())
    with pytest.raises(InvalidArgument, match="Pass an event"):
        events.from_dp_event("gaussian")


@pytest.mark.parametrize(
    ("event", "adjacency"),
    [
        (event, adjacency)
        for event in (
            events.gaussian(2.0),
            events.repeat(events.gaussian(9.0), 20),
            events.sampled_gaussian(1.5, 0.1, 50),
            events.TruncatedSubsampledGaussianDpEvent(1000, 0.01, 20, 1.5),
            RUN,
        )
        for adjacency in RELATIONS
    ]
    + [
        (events.repeat(events.laplace(3.0), 5), ADD_REMOVE),
        (events.compose(RUN, events.laplace(4.0)), ADD_REMOVE),
        # Their accountant takes a repeated randomised response for a single one.
        (events.compose(*[events.randomised_response(0.5, 3)] * 4), REPLACE),
    ],
)
def test_privacy_losses_cost_the_same(event, adjacency):
    theirs = dpa.pld.PLDAccountant(RELATIONS[adjacency])
    theirs.compose(events.to_dp_event(event))
    for delta in (1e-3, 1e-6):
        epsilon = PLD().epsilon(event, delta, adjacency)
        assert epsilon == pytest.approx(theirs.get_epsilon(delta), rel=2e-3)
        assert PLD().delta(event, epsilon, adjacency) <= delta * 1.001


@pytest.mark.parametrize(
    ("event", "adjacency"),
    [
        (events.gaussian(2.0), ADD_REMOVE),
        (events.repeat(events.laplace(3.0), 5), ADD_REMOVE),
        (events.sampled_gaussian(1.5, 0.1, 50), ADD_REMOVE),
        (events.repeat_and_select(events.gaussian(4.0), 3.0), ADD_REMOVE),
        (events.repeat_and_select(events.gaussian(4.0), 3.0, math.inf), ADD_REMOVE),
        (RUN, ADD_REMOVE),
    ],
)
def test_renyi_divergences_cost_the_same(event, adjacency):
    orders = tuple(range(2, 129))
    theirs = dpa.rdp.RdpAccountant(orders, RELATIONS[adjacency])
    theirs.compose(events.to_dp_event(event))
    for delta in (1e-3, 1e-6):
        epsilon = Renyi(orders=orders).epsilon(event, delta, adjacency)
        assert epsilon == pytest.approx(theirs.get_epsilon(delta), rel=1e-6)


def test_dp_accounting_is_an_option():
    """Without it everything is accounted for but truncated batches, and the message says what to install."""
    program = """if True:
        import sys
        sys.modules["dp_accounting"] = None
        from tacit.accounting import PLD, Budget, calibrate, events
        from tacit.errors import MissingPackage
        noise = calibrate.noise_multiplier(Budget(1, 1e-5), sampling_rate=0.01, num_steps=100)
        run = events.sampled_gaussian(noise, 0.01, 100)
        assert PLD().epsilon(run, 1e-5) <= 1
        truncated = events.TruncatedSubsampledGaussianDpEvent(1000, 0.01, 20, 1.5)
        for call in (events.to_dp_event, events.from_dp_event, lambda _: PLD().epsilon(truncated, 1e-5)):
            try:
                call(run)
            except MissingPackage as error:
                assert "tacit-bayes[dp-accounting]" in str(error)
            else:
                raise AssertionError
    """
    subprocess.run([sys.executable, "-c", program], check=True)

"""What must hold of every accountant, whatever the run."""

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.accounting import ADJACENCIES, PLD, Budget, Renyi, calibrate, events
from tacit.papers.accountants import Advanced, Basic, Moments

ACCOUNTANTS = [
    PLD(),
    Renyi(),
    Moments(),
    Advanced(gaussian="analytic"),
    Basic(gaussian="analytic"),
]

# Grids end where a run stops being one: noise 0.5 to 50, rates 1e-4 to 1, steps to 1e4.
scales = st.floats(-0.3, 1.7).map(lambda x: 10**x)
rates = st.floats(-4, 0).map(lambda x: 10**x)
steps = st.floats(0, 4).map(lambda x: round(10**x))
deltas = st.floats(-9, -2).map(lambda x: 10**x)
adjacencies = st.sampled_from(ADJACENCIES)
accountants = st.sampled_from(ACCOUNTANTS)
SLACK = 1 + 1e-3  # the stated accuracy of the grid

profile = settings(max_examples=25, deadline=None, derandomize=True)


@profile
@given(accountants, scales, rates, steps, deltas, adjacencies)
def test_more_noise_costs_less(accountant, scale, rate, count, delta, adjacency):
    less, more = (
        accountant.epsilon(events.sampled_gaussian(s, rate, count), delta, adjacency)
        for s in (scale, 1.2 * scale)
    )
    assert more <= less * SLACK


@profile
@given(accountants, scales, rates, steps, deltas, adjacencies)
def test_more_steps_cost_more(accountant, scale, rate, count, delta, adjacency):
    fewer, more = (
        accountant.epsilon(events.sampled_gaussian(scale, rate, t), delta, adjacency)
        for t in (count, count + 1 + count // 4)
    )
    assert fewer <= more * SLACK


@profile
@given(accountants, scales, rates, steps, deltas, adjacencies)
def test_looking_more_often_costs_more(accountant, scale, rate, count, delta, adjacency):
    rarer, oftener = (
        accountant.epsilon(events.sampled_gaussian(scale, q, count), delta, adjacency)
        for q in (rate / 1.3, rate)
    )
    assert rarer <= oftener * SLACK


@profile
@given(accountants, scales, rates, steps, deltas)
def test_replace_is_never_below_add_remove(accountant, scale, rate, count, delta):
    run = events.sampled_gaussian(scale, rate, count)
    add_remove = accountant.epsilon(run, delta, "add-remove")
    assert add_remove <= accountant.epsilon(run, delta, "replace") * SLACK


@profile
@given(scales, rates, steps, deltas, adjacencies)
def test_the_default_is_the_tightest(scale, rate, count, delta, adjacency):
    run = events.sampled_gaussian(scale, rate, count)
    epsilons = [each.epsilon(run, delta, adjacency) for each in ACCOUNTANTS]
    assert epsilons[0] <= min(epsilons) * SLACK


parts = st.sampled_from(
    [
        events.gaussian(3.0),
        events.laplace(5.0),
        events.sampled_gaussian(1.5, 0.02, 50),
        events.sampled_gaussian([(2.0, 10), (1.0, 5)], 0.1),
        events.BarkerTest(ratio_bound=0.05),
        events.BoundedPosteriorSample(likelihood_bound=0.1),
        events.LogConcavePosteriorSample(lipschitz=0.3, concavity=2.0),
        events.repeat_and_select(events.gaussian(5.0), 3),
    ]
)


@profile
@given(st.lists(parts, min_size=2, max_size=5), st.randoms(), adjacencies)
def test_order_of_composition_is_irrelevant(chosen, random, adjacency):
    shuffled = list(chosen)
    random.shuffle(shuffled)
    one, other = (
        PLD().epsilon(events.compose(*run), 1e-6, adjacency) for run in (chosen, shuffled)
    )
    assert math.isclose(one, other, rel_tol=1e-9)


@profile
@given(st.lists(parts, min_size=1, max_size=4), parts, adjacencies)
def test_one_more_release_costs_more(chosen, extra, adjacency):
    before = PLD().epsilon(events.compose(*chosen), 1e-6, adjacency)
    after = PLD().epsilon(events.compose(*chosen, extra), 1e-6, adjacency)
    if PLD.needs_renyi_orders(events.compose(*chosen)) == PLD.needs_renyi_orders(extra):
        assert before <= after * SLACK


@profile
@given(accountants, st.floats(0.05, 20), deltas, rates, steps, adjacencies)
def test_calibration_never_overshoots(accountant, epsilon, delta, rate, count, adjacency):
    if isinstance(accountant, Moments) and epsilon < 1.1 * math.log(1 / delta) / 32:
        return  # below what this accountant can ever show
    if delta > 0.5 * rate:
        return  # delta would allow showing a sampled record
    budget = Budget(epsilon, delta, adjacency)
    scale = calibrate.noise_multiplier(
        budget, sampling_rate=rate, num_steps=count, accountant=accountant
    )
    run = events.sampled_gaussian(scale, rate, count)
    assert Budget(accountant.epsilon(run, delta, adjacency), delta, adjacency) <= budget
    less = events.sampled_gaussian(scale * (1 - 1e-3), rate, count)
    assert accountant.epsilon(less, delta, adjacency) > epsilon

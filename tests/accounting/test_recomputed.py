"""Guarantees under replace, computed anew by other means: transforms of the loss, and integrals.

Nothing of Tacit's pairs, compositions and quadratures is called. What is taken from it are the public numbers that a gate executes,
and the guarantee that is stated for them.
"""

import math

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import gammaln, logsumexp, ndtr

import tacit
from tacit.accounting import PLD, events, renyi
from tacit.inference.registry import default_method
from tacit.models.front_ends import adapt_model

# Epsilon of the default and of Hamiltonian -----------------------------------------------------

SCHEMA = tacit.Schema({"age": tacit.Number(18, 90), "yes": tacit.Binary()})
MODEL = adapt_model(tacit.glm("yes ~ age", schema=SCHEMA), SCHEMA)
METHODS = {
    "default": None,
    "default, fewer steps": tacit.Scoring(num_steps=12),
    "Hamiltonian": tacit.Hamiltonian(),
    "Hamiltonian, from a place": tacit.Hamiltonian(
        num_steps=20,
        start={"Intercept": 0.0, "age": 0.0},
        step_size=0.1,
        gradient_clip=1.0,
        ratio_clip=1.0,
    ),
}
BUDGETS = [tacit.Budget(1, 1e-5, "replace"), tacit.Budget(4, 1e-7, "replace")]


def log_transform(rate, scale, tilt, frequencies):
    """log E_P[exp(z L)] at z = tilt + i frequency, for one step in which a unit is exchanged.

    In one world the sum has the unit's vector with the chance ``rate``, in the other one its opposite; noise is ``scale`` times
    as large as the vector. L is the logarithm of the ratio of the two densities.
    """
    step = 0.04 * min(1.0, scale)
    z = np.arange(-12 - 1 / scale, 12 + (2 + 2 * tilt) / scale, step)
    at = z * scale
    with np.errstate(divide="ignore"):  # where everybody is taken
        stays = np.log1p(-rate) - z**2 / 2
    log_p = np.logaddexp(stays, math.log(rate) - ((at - 1) / scale) ** 2 / 2)
    log_q = np.logaddexp(stays, math.log(rate) - ((at + 1) / scale) ** 2 / 2)
    loss, weight = log_p - log_q, step / math.sqrt(2 * math.pi)
    mass = weight * np.exp(log_p + tilt * loss)
    return np.array([np.log(np.sum(mass * np.exp(1j * each * loss))) for each in frequencies])


class Composed:
    """All steps of some releases, by the transform of their loss along a line of complex numbers."""

    def __init__(self, releases, tilt):
        spread = math.sqrt(sum(steps * (rate * 2 / scale) ** 2 for rate, scale, steps in releases))
        # Beyond the last one the transform is nothing; between two of them it hardly changes.
        self.width = 0.05 / max(spread, 1.0)
        frequencies = np.arange(0, 14 / min(spread, 1.0), self.width)
        self.z = tilt + 1j * frequencies
        self.logs = sum(
            steps * log_transform(rate, scale, tilt, frequencies) for rate, scale, steps in releases
        )

    def delta(self, epsilon):
        """E_P[(1 - exp(epsilon - L))+], whose transform along the line is 1 / (z (z + 1))."""
        terms = np.exp(self.logs - self.z * epsilon) / (self.z * (self.z + 1))
        assert abs(terms[-1]) < 1e-9 * abs(terms[0])
        return self.width / math.pi * float(np.sum(terms.real) - terms[0].real / 2)

    def epsilon(self, delta):
        return brentq(lambda each: math.log(max(self.delta(each), 1e-300) / delta), 0.02, 60)


def releases_of(mechanism):
    """Sampling rates, noise multipliers and numbers of steps, as the gate executes them."""
    stages = getattr(mechanism, "mechanisms", (mechanism,))
    found = {}
    for stage in stages:
        for scale, steps in stage.phases:
            key = stage.sampling_rate, scale
            found[key] = found.get(key, 0) + steps
    return [(rate, scale, steps) for (rate, scale), steps in found.items()]


def test_the_transform_gives_the_known_curve_of_one_gaussian():
    """A control: N(mu, 1) against N(0, 1) has a curve that everybody knows."""
    composed, mu = Composed([(1.0, 4.0, 9)], 1.0), 2 / 4 * 3
    for epsilon in (0.1, 1.0, 3.0, 6.0):
        known = ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu)
        assert composed.delta(epsilon) == pytest.approx(known, rel=1e-6)


@pytest.mark.parametrize("budget", BUDGETS, ids=["usual", "ample"])
@pytest.mark.parametrize("name", METHODS)
def test_epsilon_under_replace_is_that_of_the_transform(name, budget):
    method = METHODS[name] or default_method(MODEL)
    mechanism = method.calibrate(MODEL, budget)
    # The line may lie anywhere; where it lies must not matter.
    found = [Composed(releases_of(mechanism), tilt).epsilon(budget.delta) for tilt in (2.0, 5.0)]
    assert found[0] == pytest.approx(found[1], rel=1e-6)
    stated = PLD().epsilon(mechanism.event, budget.delta, "replace")
    assert found[0] * (1 - 1e-6) <= stated <= found[0] * 1.001
    assert found[0] <= budget.epsilon * (1 + 1e-6)
    assert found[0] >= budget.epsilon * 0.99  # the noise is not more than it must be


def test_a_plan_states_the_same():
    """What a plan has charged and executed is what was recomputed."""
    budget = BUDGETS[0]
    plan = tacit.plan(tacit.glm("yes ~ age", schema=SCHEMA), budget=budget)
    assert plan.mechanism == default_method(MODEL).calibrate(MODEL, budget)


# Theorem 5: the divergence of a test on a batch -------------------------------------------------

ORDERS = np.array([2.0, 3.0, 5.0, 8.0, 16.0, 32.0])


def law(others, own, size):
    """Mean and variance of what a test compares, of a batch whose other ratios are given in clips.

    ``others`` has pairs of a value and how many there are.
    """
    total = sum(value * count for value, count in others) + own
    squares = sum(value**2 * count for value, count in others) + own**2
    mean = total / size
    return math.sqrt(size) * mean, 2 - (squares / size - mean**2)


def log_density(x, laws, log_chances):
    """The logarithm of a mixture of normal densities."""
    means, variances = np.array(laws).T
    logs = -((x[:, None] - means) ** 2) / (2 * variances) - np.log(2 * math.pi * variances) / 2
    return logsumexp(logs + log_chances, axis=1)


def divergences(p, q, centre, orders=ORDERS):
    """Rényi divergences of two densities at all orders, by sums over a fine grid."""
    x = centre + np.arange(-40, 40, 0.05)
    log_p, log_q = p(x), q(x)
    logs = orders[:, None] * log_p - (orders[:, None] - 1) * log_q + math.log(0.05)
    total = logsumexp(logs, axis=1)
    assert np.all(np.maximum(logs[:, 0], logs[:, -1]) < total - 25)
    return total / (orders - 1)


def batches(size):
    """What the others of a batch may be: all alike, half and half, and all but a few."""
    for low, high in ((0, 0), (1, 1), (-1, 1), (0, 1), (-1, 0.5)):
        for share in (0.5, 0.9):
            many = round(share * (size - 1))
            yield [(low, many), (high, size - 1 - many)]


EXCHANGES = [(1, -1), (-1, 1), (0, 1), (1, 0), (-1, 0), (0.5, -1)]


def worst_given(size, orders):
    """The largest divergences that an exchange reaches, given the batch."""
    worst = np.zeros_like(orders)
    for others in batches(size):
        for own, new in EXCHANGES:
            one, other = law(others, own, size), law(others, new, size)
            p, q = (lambda x, of=of: log_density(x, [of], 0.0) for of in (one, other))
            worst = np.maximum(worst, divergences(p, q, one[0], orders))
    return worst


@pytest.mark.parametrize("size", [170, 400, 2000])
def test_a_test_on_a_given_batch_has_no_more_than_the_bound(size):
    """And the bound is within two and a half times of what an exchange reaches."""
    bound = renyi.barker_divergence(size, ORDERS, paper_bound=False)
    worst = worst_given(size, ORDERS)
    assert np.all(worst <= bound)
    few = size > 20 * ORDERS  # where the bound is meant to be used
    assert np.all(bound[few] <= 2.5 * worst[few])


@pytest.mark.parametrize(("size", "units"), [(400, 800), (400, 40_000), (2000, 10**6)])
def test_sampling_amplifies_as_the_theorem_says(size, units):
    """The sum of Wang, Balle and Kasiviswanathan, of the divergences that exchanges reach."""
    most = 8
    worst = dict(zip(range(2, most + 1), worst_given(size, np.arange(2.0, most + 1)), strict=True))
    event = events.SubsampledBarkerTest(batch_size=size, dataset_size=units)
    rate = size / units

    def amplified(order, factor):
        total = 1.0
        for j in range(2, order + 1):
            inner = factor * worst[j]
            term = min(4 * math.expm1(inner), 2 * math.exp(inner)) if j == 2 else 0.0
            term = term if j == 2 else 2 * math.exp((j - 1) * inner)
            total += math.comb(order, j) * rate**j * term
        return min(math.log(total) / (order - 1), factor * worst[order])

    for order in range(2, most + 1):
        (bound,) = renyi.subsampled_barker_divergence(event, np.array([float(order)]))
        assert amplified(order, 1.0) <= bound <= amplified(order, 2.5)


def chosen(low, high, of_low, of_high, size):
    """How many of a batch's others are low ones: all possible numbers, and their log probabilities."""
    count = np.arange(max(0, size - of_high), min(size, of_low) + 1)

    def choose(n, k):
        return gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)

    logs = choose(of_low, count) + choose(of_high, size - count) - choose(of_low + of_high, size)
    likely = logs > logs.max() - 60
    compositions = [[(low, n), (high, size - n)] for n in count[likely].tolist()]
    return compositions, logs[likely]


def sampled_mixture(low, high, own, units, size):
    """The law over all batches, of units of whom half are low ones, half high ones, and one is ``own``."""
    of_low = (units - 1) // 2
    of_high = units - 1 - of_low
    with_own, log_with = chosen(low, high, of_low, of_high, size - 1)
    without, log_without = chosen(low, high, of_low, of_high, size)
    laws = [law(each, own, size) for each in with_own] + [law(each, 0.0, size) for each in without]
    rate = size / units
    logs = np.append(math.log(rate) + log_with, math.log1p(-rate) + log_without)
    return lambda x: log_density(x, laws, logs)


PLACES = [(0, 0), (1, 1), (-1, 1), (-1, -1)]


@pytest.mark.parametrize(("size", "units"), [(170, 340), (200, 2000), (400, 40_000)])
def test_a_test_on_a_random_batch_has_no_more_than_the_bound(size, units):
    """The whole mixture over batches.

    At order two the bound is within 4 (the theorem on sampling) x 2.5 (a given batch) x 2 (which takes the least noise that a
    batch can have, where noise and the spread over batches together have variance two). At higher orders the theorem has
    terms that do not vanish with the divergence, and is further away.
    """
    event = events.SubsampledBarkerTest(batch_size=size, dataset_size=units)
    bound = renyi.subsampled_barker_divergence(event, ORDERS)
    worst = np.zeros_like(ORDERS)
    for low, high in PLACES:
        for own, new in ((1, -1), (1, 0)):
            worlds = [sampled_mixture(low, high, each, units, size) for each in (own, new)]
            centre = math.sqrt(size) * (low + high) / 2
            worst = np.maximum(worst, divergences(*worlds, centre))
            worst = np.maximum(worst, divergences(*worlds[::-1], centre))
    assert np.all(worst <= bound)
    assert bound[0] <= 20 * worst[0]


def test_the_bit_itself_has_no_more_than_the_bound():
    """What leaves is one bit: for all shifts that the server of the test could choose."""
    size, units = 200, 2000
    bound = renyi.subsampled_barker_divergence(
        events.SubsampledBarkerTest(batch_size=size, dataset_size=units), ORDERS
    )
    for low, high in PLACES:
        worlds = [chances(low, high, own, units, size) for own in (1, -1)]
        for one, other in zip(*worlds, strict=True):
            both = [np.array([c, 1 - c]) for c in (one, other)]
            logs = ORDERS[:, None] * np.log(both[0]) - (ORDERS[:, None] - 1) * np.log(both[1])
            assert np.all(logsumexp(logs, axis=1) / (ORDERS - 1) <= bound)


def chances(low, high, own, units, size):
    """How likely a test is to accept, for many shifts."""
    of_low = (units - 1) // 2
    found = 0.0
    shifts = -math.sqrt(size) * (low + high) / 2 + np.linspace(-6, 6, 25)
    for more, rate in ((1, size / units), (0, 1 - size / units)):
        mixed, logs = chosen(low, high, of_low, units - 1 - of_low, size - more)
        for others, log in zip(mixed, logs.tolist(), strict=True):
            mean, variance = law(others, own if more else 0.0, size)
            found = found + rate * math.exp(log) * ndtr((mean + shifts) / math.sqrt(variance))
    return found

"""Chains that a private approximation guides: what they add to it, and what a plan says and refuses."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.special import expit, gammaln, logit, logsumexp

import tacit
from tacit import Barker, Budget, Hamiltonian, Langevin, Model, Rows, conjugate, fit_without_privacy
from tacit.errors import InvalidArgument
from tacit.inference.chains import dummy_reference, remainder_gradient, remainder_ratio
from tacit.models import Parameter

BUDGET = Budget(1, 1e-6)


def log_logistic(x, y, theta):
    """Log-likelihood of a row, its slope and its curvature, by hand in double precision."""
    eta = x @ theta
    return y * eta - np.logaddexp(0, eta), (y - expit(eta)) * x, -expit(eta) * expit(-eta)


def remainder(x, y, place, away):
    """What an expansion to second order leaves."""
    (there, _, _), (value, slope, bend) = (log_logistic(x, y, v) for v in (place + away, place))
    return there - value - slope @ away - 0.5 * bend * (x @ away) ** 2


def blank(size):
    """A reference without a hidden part: u is always zero."""
    made = dummy_reference(Model(
        parameters={"w": Parameter((size,))},
        log_prior=lambda p: -0.5 * jnp.sum(p["w"] ** 2),
        log_likelihood=lambda p, row: p["w"] @ row["x"],
    ).unit_model)  # fmt: skip
    return made._replace(turn=jnp.zeros((size, size)))


def test_a_ratio_is_that_of_what_expansions_to_second_order_leave():
    rng = np.random.default_rng(4)
    x, place, then, now = rng.normal(size=(4, 4))
    turn, shift = rng.normal(size=(4, 4)) / 2, rng.normal(size=4)
    y = 1.0
    seen = remainder(x, y, place, then) - remainder(x, y, place, now)
    hidden = [remainder(x, y, place, shift + turn @ away) for away in (then, now)]
    expected = seen - (hidden[0] - hidden[1])

    def density(theta):
        return y * (x @ theta) - jnp.logaddexp(0.0, x @ theta)

    reference = blank(4)._replace(position=jnp.asarray(place), shift=shift, turn=turn)
    found = remainder_ratio(density, reference, place + then, place + now)
    assert float(found) == pytest.approx(expected, abs=5e-5)
    assert abs(expected) > 1e-3
    assert abs(expected - seen) > 1e-3


def test_the_slope_beyond_the_approximation_is_the_gradient_of_what_is_beyond():
    rng = np.random.default_rng(1)
    x, theta, shift = (jnp.asarray(v, jnp.float32) for v in rng.normal(size=(3, 3)))
    x, theta, place = 2 * x / jnp.linalg.norm(x), theta / 2, jnp.zeros(3)
    reference = blank(3)._replace(
        position=place, shift=0.2 * shift, turn=jnp.asarray(rng.normal(size=(3, 3)), jnp.float32) / 4,
        weight=jnp.float32(0.7),
    )  # fmt: skip

    def density(theta):
        return -jnp.logaddexp(0.0, x @ theta)

    slope = jax.grad(lambda at: remainder_ratio(density, reference, at, place))(theta)
    found = remainder_gradient(density, reference, theta)
    assert np.asarray(found) == pytest.approx(np.asarray(slope), abs=1e-5)
    assert np.abs(slope).max() > 1e-3


@pytest.mark.parametrize("noise", [0.5, 10.0, 100.0])
def test_what_noise_hides_counts_less(noise):
    """Counts with mean n exp(D), and normal noise: the likelihood of their noisy sum by convolution."""
    n, seen = 40.0, 3.0  # what is expected at the place, and the noisy sum less that
    counts = np.arange(400)
    places = np.linspace(-0.35, 0.35, 29)
    exact = [
        logsumexp(
            counts * np.log(n * np.exp(d)) - n * np.exp(d) - gammaln(counts + 1)
            + stats.norm.logpdf(n + seen, counts, np.sqrt(noise))
        )
        for d in places
    ]  # fmt: skip

    def left(d):  # the remainder: -(K - n d^2 / 2), with K the cumulant function of a count less n
        return -n * (np.exp(d) - 1 - d - d**2 / 2)

    precision = n**2 / (n + noise)
    best = seen / n
    normal = -0.5 * precision * (places - best) ** 2
    hidden = places - precision / n * (places - best)
    corrected = normal + left(places) - left(hidden)

    def off(found):
        error = found - exact
        return np.sqrt(np.average((error - np.average(error, weights=np.exp(normal))) ** 2, weights=np.exp(normal)))  # fmt: skip

    assert off(corrected) < 0.35 * off(normal)
    assert off(corrected) < 0.05


SUCCESSES, ROWS_OF_ONE = 3, Rows({"y": (np.arange(40) < 3).astype(int)})
CHAINS = {
    "barker": Barker(num_steps=3000),
    "langevin": Langevin(num_steps=6000, sampling_rate=0.5),
    "hamiltonian": Hamiltonian(num_steps=1500),
    "penalty": Hamiltonian(num_steps=2500, num_leapfrog=0),
}


def shape(draws):
    """Mean, deviation and skewness of log odds."""
    odds = logit(np.asarray(draws, np.float64))
    return odds.mean(), odds.std(), stats.skew(odds)


def test_the_approximation_itself_is_not_skewed():
    post = fit_without_privacy(conjugate.Bernoulli("y"), ROWS_OF_ONE, method=tacit.Scoring())
    assert abs(shape(post.draws["probability"])[2]) < 0.25


@pytest.mark.parametrize(
    "name",
    [
        "langevin",
        pytest.param("barker", marks=pytest.mark.slow),
        pytest.param("hamiltonian", marks=pytest.mark.slow),
        pytest.param("penalty", marks=pytest.mark.slow),
    ],
)
def test_a_chain_makes_it_as_skewed_as_the_posterior(name):
    model = conjugate.Bernoulli("y")
    post = fit_without_privacy(model, ROWS_OF_ONE, method=CHAINS[name])
    a, b = 1 + SUCCESSES, 1 + 40 - SUCCESSES
    mean, deviation, skewness = shape(np.random.default_rng(0).beta(a, b, 400_000))
    found = shape(post.draws["probability"])
    assert post.chains == 4
    assert skewness < -0.4
    assert found[2] < -0.1
    assert found[0] == pytest.approx(mean, abs=0.35 * deviation)
    assert 0.7 < found[1] / deviation < 1.5


@pytest.mark.parametrize(
    "method",
    [
        Barker(),
        pytest.param(Langevin(), marks=pytest.mark.slow),
        pytest.param(Hamiltonian(), marks=pytest.mark.slow),
    ],
    ids=lambda m: type(m).__name__,
)
def test_a_plan_says_how_many_draws_to_expect_and_spends_the_budget(method):
    schema = tacit.Schema({"y": tacit.Binary()})
    plan = tacit.plan(conjugate.Bernoulli("y"), schema, budget=BUDGET, method=method)
    shown = plan.details()
    assert "effective draws to expect" in shown
    assert 0.999 < plan.epsilons["add-remove"] <= 1
    assert plan.cost.epsilon <= 1


def plain_model():
    """One that cannot draw its outcomes."""
    return Model(
        parameters={"w": Parameter((3,))},
        log_prior=lambda p: -0.5 * jnp.sum(p["w"] ** 2),
        log_likelihood=lambda p, row: -0.5 * (row["y"] - row["x"] @ p["w"]) ** 2,
    ).unit_model


@pytest.mark.parametrize(
    "method", [Barker(size=20_000), Langevin(size=2_000)], ids=lambda m: type(m).__name__
)
def test_a_plain_chain_that_cannot_mix_is_refused_before_the_charge(method):
    rows = Rows({"x": np.zeros((4, 3)), "y": np.zeros(4)})
    with pytest.raises(InvalidArgument, match="independent draws at this budget"):
        tacit.fit(plain_model(), rows, budget=BUDGET, method=method)


def test_settings_that_contradict_each_other_are_refused():
    rows = Rows({"x": np.zeros((4, 3)), "y": np.zeros(4)})
    with pytest.raises(InvalidArgument, match="leave out settings of the walk"):
        tacit.fit(
            plain_model(),
            rows,
            budget=BUDGET,
            method=Barker(start=tacit.Scoring(), ratio_bound=0.1),
        )
    with pytest.raises(InvalidArgument, match="for a plain chain"):
        tacit.fit(plain_model(), rows, budget=BUDGET, method=Hamiltonian())
    with pytest.raises(InvalidArgument, match="needs gradient_clip"):
        tacit.fit(
            plain_model(), rows, budget=BUDGET, method=Hamiltonian(ratio_clip=1.0, step_size=0.1)
        )

"""Families of outcomes beyond the usual: against independent likelihoods, draws and refusals."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from maximum_likelihood import by_numbers
from numpyro.distributions import biject_to
from scipy import stats
from scipy.special import expit, gamma, logit, ndtr
from single_rows import row_log_likelihood, simulate_row

import tacit
from tacit.errors import InvalidArgument
from tacit.models.distributions import Ordered, Rescaled
from tacit.models.families import Predictor
from tacit.models.front_ends import adapt_model

N = 2000
LEVELS = ["poor", "fair", "good", "best"]
SCHEMA = tacit.Schema(
    {
        "x": tacit.Number(-2, 2),
        "ward": tacit.Category(["a", "b"]),
        "grade": tacit.Category(LEVELS),
        "vague": tacit.Category(["low", "high"], other="unknown"),
        "only": tacit.Category(["one"]),
        "visits": tacit.Count(200),
        "rating": tacit.Count(5, low=1),
        "below": tacit.Count(30, low=-5),
        "share": tacit.Number(0, 1),
        "narrow": tacit.Number(0.05, 0.9),
        "percent": tacit.Number(0, 100),
        "cost": tacit.Number(0.01, 100),
        "time": tacit.Number(0, 10),
        "days": tacit.Count(3650),
        "before": tacit.Number(-1, 10),
        "died": tacit.Binary(yes="dead", no="alive"),
        "end": tacit.Number(0, 10),
    }
)
RNG = np.random.default_rng(12)
X = RNG.uniform(-2, 2, N)
B = RNG.random(N) < 0.4
ETA = 0.7 * (X / 2) + 0.5 * B
SHARED = {"x": X, "ward": np.where(B, "b", "a")}


def ordinal():
    cuts = np.array([-0.8, 0.3, 1.2])
    code = np.searchsorted(cuts, ETA + RNG.logistic(size=N))

    def log_likelihood(v):
        ends = np.concatenate(
            [[-np.inf], v[2] + np.array([0, *np.cumsum(np.exp(v[3:]))]), [np.inf]]
        )
        eta = v[0] * X / 2 + v[1] * B
        return np.log(expit(ends[code + 1] - eta) - expit(ends[code] - eta))

    return {"grade": np.array(LEVELS)[code]}, log_likelihood, np.zeros(5)


def counts(*, varied):
    rate = np.exp(1 + ETA) * (RNG.gamma(2.5, 1 / 2.5, N) if varied else 1)
    y = RNG.poisson(rate) * (RNG.random(N) > 0.3)

    def log_likelihood(v):
        mean, zero = np.exp(v[2] + v[0] * X / 2 + v[1] * B), expit(v[3])
        size = np.exp(v[4]) if varied else None
        base = (
            stats.nbinom.pmf(y, size, size / (size + mean))
            if varied
            else stats.poisson.pmf(y, mean)
        )
        return np.log(zero * (y == 0) + (1 - zero) * base)

    return {"visits": y}, log_likelihood, np.zeros(5 if varied else 4)


def shares():
    mean = expit(ETA - 0.3)
    y = np.clip(RNG.beta(6 * mean, 6 * (1 - mean)), 0.001, 0.999)

    def log_likelihood(v):
        mu, kappa = expit(v[2] + v[0] * X / 2 + v[1] * B), np.exp(v[3])
        return stats.beta.logpdf(y, mu * kappa, (1 - mu) * kappa)

    return {"share": y}, log_likelihood, np.array([0, 0, 0, 1.0])


def times():
    time = np.exp(1.2 + ETA) * RNG.weibull(1.4, N)
    end = np.minimum(RNG.exponential(6.0, N), 10)
    seen, event = np.minimum(time, end), time <= end

    def log_likelihood(v):
        scale, shape = np.exp(v[2] + v[0] * X / 2 + v[1] * B), np.exp(v[3])
        weibull = stats.weibull_min(shape, scale=scale)
        return np.where(event, weibull.logpdf(seen), weibull.logsf(seen))

    table = {"time": seen, "died": np.where(event, "dead", "alive"), "end": end}
    return table, log_likelihood, np.array([0, 0, 1.0, 0])


TIMES = times()
ORDINAL = lambda post: [post["cutpoint"][:, :1], np.log(np.diff(post["cutpoint"]))]  # noqa: E731
# By name: left side, family, link, table and likelihood, parameters beside the coefficients.
CASES = {
    "ordinal": ("grade", "ordinal", "logit", ordinal(), ORDINAL),
    "zero-inflated Poisson": (
        "visits",
        "zero_inflated_poisson",
        None,
        counts(varied=False),
        lambda post: [post["Intercept"], logit(post["zero_inflation"])],
    ),
    "zero-inflated negative binomial": (
        "visits",
        "zero_inflated_negativebinomial",
        None,
        counts(varied=True),
        lambda post: [post["Intercept"], logit(post["zero_inflation"]), np.log(post["alpha"])],
    ),
    "beta": (
        "share",
        "beta",
        None,
        shares(),
        lambda post: [post["Intercept"], np.log(post["kappa"])],
    ),
    "censored": (
        "censored(time, died)",
        "weibull",
        None,
        TIMES,
        lambda post: [post["Intercept"], np.log(post["alpha"])],
    ),
    "censored at known times": (
        "censored(time, died, end)",
        "weibull",
        None,
        TIMES,
        lambda post: [post["Intercept"], np.log(post["alpha"])],
    ),
}


def model_of(case):
    left, family, link, _, _ = CASES[case]
    return tacit.glm(f"{left} ~ x + ward", family=family, link=link, schema=SCHEMA)


@pytest.fixture(scope="module")
def exact():
    """Exact fits, made when they are first needed."""
    found = {}

    def fit(case):
        if case not in found:
            data = {**SHARED, **CASES[case][3][0]}
            found[case] = tacit.fit_without_privacy(model_of(case), data)
        return found[case]

    return fit


# With known ends of follow-up, the likelihood is that of the case before.
@pytest.mark.parametrize(
    "case",
    [
        "ordinal",
        "censored",
        pytest.param("zero-inflated Poisson", marks=pytest.mark.slow),
        pytest.param("zero-inflated negative binomial", marks=pytest.mark.slow),
        pytest.param("beta", marks=pytest.mark.slow),
    ],
)
def test_a_fit_without_privacy_is_what_maximum_likelihood_finds(case, exact):
    *_, (_, log_likelihood, start), others = CASES[case]
    expected, errors = by_numbers(log_likelihood, start)
    post = exact(case)
    assert post.converged
    draws = {name: np.asarray(values, float) for name, values in post.model_draws.items()}
    parts = [draws["x"], draws["ward"], *others(draws)]
    found = np.concatenate([part.reshape(len(part), -1) for part in parts], axis=1)
    # The prior, of sd 1 and more, moves an estimate of standard error 0.1 by a hundredth.
    assert np.abs((found.mean(axis=0) - expected) / errors).max() < 0.25
    assert np.allclose(found.std(axis=0), errors, rtol=0.06)


NEW = {"x": [-1.0, 1.5], "ward": ["a", "b"]}


def test_predictions_of_ordered_levels_are_their_probabilities(exact):
    post = exact("ordinal")
    cut, x, ward = (post.model_draws[name] for name in ("cutpoint", "x", "ward"))
    for i, (at, b) in enumerate([(-0.5, 0), (0.75, 1)]):
        eta = x * at + ward[:, 0] * b
        below = expit(cut - eta[:, None])
        expected = np.diff(below, axis=1, prepend=0, append=1).mean(axis=0)
        assert np.allclose(post.predict(NEW)[i], expected, atol=1e-5)
    assert post.predict(NEW)[1, 3] > post.predict(NEW)[0, 3]  # a positive effect, a higher level
    names = [line.name for line in post.summary().lines]
    assert {"cutpoint[poor|fair]", "cutpoint[fair|good]", "cutpoint[good|best]"} < set(names)
    assert "Intercept" not in names


MEANS = {
    "zero-inflated Poisson": lambda eta, d: (1 - d["zero_inflation"]) * np.exp(eta),
    "beta": lambda eta, _: expit(eta),
    "censored": lambda eta, d: np.exp(eta) * gamma(1 + 1 / d["alpha"]),
}


@pytest.mark.parametrize(
    "case", [pytest.param(n, marks=[pytest.mark.slow] * (n != "censored")) for n in MEANS]
)
def test_predictions_of_the_other_families_are_means(case, exact):
    post, at = exact(case), np.array([-0.5, 0.75])
    d = {name: np.asarray(values, float) for name, values in post.model_draws.items()}
    eta = [d["Intercept"] + d["x"] * at[i] + d["ward"][:, 0] * i for i in range(2)]
    expected = [MEANS[case](each, d).mean() for each in eta]
    assert np.allclose(post.predict(NEW), expected, rtol=1e-4)  # and needs no time or event
    drawn = post.predict(NEW, kind="draws")
    assert drawn.min() >= 0
    assert np.allclose(drawn.mean(axis=0), expected, rtol=0.15)


def test_levels_far_in_a_tail_have_their_probability():
    schema = tacit.Schema({"x": tacit.Number(-1, 1), "y": tacit.Category(["a", "b", "c"])})
    cuts = np.array([0.0, 0.001])
    for link, fn_of in (("logit", stats.logistic), ("probit", stats.norm)):
        family = tacit.glm("y ~ x", family="ordinal", link=link, schema=schema).function.family

        @jax.jit
        def both(e, family=family, link=link):
            def log_prob(e, value):
                given = Predictor(None, link, e[None], {"cutpoint": jnp.asarray(cuts)}, {})
                return family.distribution(given).log_prob(value)[0]

            return log_prob(e, 1), jax.grad(log_prob)(e, 2)

        for at in (-9.0, 0.0, 5.0):
            found, slope = both(jnp.asarray(at))
            ends = np.sort(np.sign(at) * (cuts - at))  # in the lower tail, where digits are kept
            expected = np.log(np.diff(fn_of.cdf(ends if at else cuts))[0])
            assert np.isclose(found, expected, rtol=2e-3)
            assert np.isfinite(slope)


def test_cutpoints_are_draws_in_order():
    prior = Ordered(tacit.glm("grade ~ x", family="ordinal", schema=SCHEMA).priors["cutpoint"], 3)
    draws = np.asarray(prior.sample(jax.random.key(0), (40_000,)))
    assert (np.diff(draws, axis=1) > 0).all()
    middle = draws[:, 1] / 2.5  # the median of three normal draws
    grid = np.linspace(-5, 5, 4001)
    density = 6 * ndtr(grid) * (1 - ndtr(grid)) * stats.norm.pdf(grid)
    assert abs(middle.var() - np.trapezoid(grid**2 * density, grid)) < 0.02
    # The density on the unconstrained scale, with the slope of the map, has a total of one.
    fitted = Rescaled(Ordered(prior.base, 2), 0.7, 1.3)
    transform = biject_to(fitted.support)
    a, b = np.meshgrid(np.linspace(-9, 9, 400), np.linspace(-12, 4, 400), indexing="ij")
    numbers = jnp.stack([a.ravel(), b.ravel()], axis=1)
    values = transform(numbers)
    log_density = fitted.log_prob(values) + transform.log_abs_det_jacobian(numbers, values)
    assert abs(np.exp(log_density).sum() * (18 / 399) * (16 / 399) - 1) < 0.02


@pytest.mark.parametrize(
    "case",
    [
        "ordinal",
        pytest.param("censored", marks=pytest.mark.slow),
        pytest.param("beta", marks=pytest.mark.slow),
        pytest.param("censored at known times", marks=pytest.mark.slow),
    ],
)
def test_drawn_outcomes_have_scores_of_mean_zero(case):
    """At any parameters, and whatever the outcomes of the rows themselves are."""
    _, _, _, (columns, _, _), _ = CASES[case]
    model = adapt_model(model_of(case), SCHEMA)
    assert model.simulate is not None
    table = {name: values[:1500] for name, values in {**SHARED, **columns}.items()}
    rows = {n: jnp.asarray(v) for n, v in SCHEMA.encode(table, model.columns).columns.items()}
    near = np.random.default_rng(5).normal(0, 0.2, model.dimension)
    # Shares that vary little, so that hardly any is moved to its bounds.
    vector = model.unconstrain(
        {"kappa": 30.0} if "kappa" in model.parameters else {}
    ) + jnp.float32(near)

    @jax.jit
    def scores(keys):
        def one(key, row):
            outcomes = simulate_row(model, key, vector, row, model.constants)
            return jax.grad(partial(row_log_likelihood, model))(
                vector, row, model.constants, outcomes
            )

        return jax.vmap(one)(keys, rows)

    found = np.concatenate([scores(jax.random.split(jax.random.key(i), 1500)) for i in range(8)])
    errors = found.std(axis=0) / np.sqrt(len(found))
    assert (np.abs(found.mean(axis=0)) < 6 * errors).all()


@pytest.mark.parametrize(
    ("formula", "family", "says"),
    [
        ("visits ~ x", "ordinal", "in order, lowest first"),
        ("rating ~ x", "ordinal", "declared as a count from 1 to 5"),
        ("vague ~ x", "ordinal", "'unknown' has no place in the order"),
        ("only ~ x", "ordinal", "two levels or more"),
        ("grade ~ 0 + x", "ordinal", "cutpoints in the place of an intercept"),
        ("grade['good'] ~ x", "ordinal", "needs the bernoulli family"),
        ("cost ~ x", "zero_inflated_poisson", "needs a Count from 0"),
        ("rating ~ x", "zero_inflated_poisson", "lower bound must be 0"),
        ("below ~ x", "zero_inflated_negativebinomial", "from -5 to 30"),
        ("percent ~ x", "beta", "divide percentages by 100"),
        ("visits ~ x", "beta", "needs a Number between 0 and 1"),
        ("share ~ x", "gamma", "declare a lower bound above zero"),
        ("before ~ x", "weibull", "times cannot be negative"),
        ("grade ~ x", "weibull", "needs censored"),
        ("censored(time) ~ x", "weibull", r"censored\(time, event\) ~ x"),
        ("censored(time, died, end, x) ~ x", "weibull", r"censored\(time, event, follow_up\)"),
        ("np.log(time) ~ x", "weibull", "got 'np.log"),
        ("censored(time, end) ~ x", "weibull", "must be a Binary column: yes if the event"),
        ("censored(time, died, ward) ~ x", "weibull", "category"),
        ("censored(time, died) ~ x", "gamma", "needs the lognormal or weibull or weibull_ph"),
        ("censored(time, died) ~ x + died", "weibull", "both sides"),
        ("censored(time, dide) ~ x", "weibull", "did you mean 'died'"),
    ],
)
def test_outcomes_that_do_not_fit_are_refused(formula, family, says):
    with pytest.raises(InvalidArgument, match=says) as refused:
        tacit.glm(formula, family=family, schema=SCHEMA)
    assert str(refused.value).endswith(".")


def test_priors_of_shares_must_be_between_0_and_1():
    def made(prior):
        priors = {"zero_inflation": prior}
        return tacit.glm("visits ~ x", family="zero_inflated_poisson", schema=SCHEMA, priors=priors)

    assert "Beta(2, 8)" in str(made(("beta", 2, 8)))
    with pytest.raises(InvalidArgument, match="between 0 and 1"):
        made(("normal", 0, 1))


def test_models_say_what_their_parameters_mean():
    said = str(tacit.glm("censored(time, died) ~ x", schema=SCHEMA))  # weibull by default
    assert "Family weibull, link log; outcome: time, 0 to 10, censored unless died is dead." in said
    assert "rate at which follow-up ends" in said
    assert "drop_out" not in str(tacit.glm("censored(time, died, end) ~ x", schema=SCHEMA))
    assert "drop_out" not in str(tacit.glm("days ~ x", family="weibull", schema=SCHEMA))
    said = str(tacit.glm("grade ~ x", family="ordinal", schema=SCHEMA))
    assert "in order: poor, fair, good, best" in said
    assert "between levels, in order" in said


def test_values_at_0_and_1_are_moved_inside_by_a_public_margin():
    read = tacit.glm("share ~ x", family="beta", schema=SCHEMA).function.outcome.read
    assert np.allclose(read({"share": jnp.asarray([0.0, 0.4, 1.0])}), [0.001, 0.4, 0.999])
    read = tacit.glm("narrow ~ x", family="beta", schema=SCHEMA).function.outcome.read
    assert np.allclose(read({"narrow": jnp.asarray([0.05, 0.9])}), [0.05, 0.9])
    read = tacit.glm("censored(days, died) ~ x", schema=SCHEMA).function.outcome.read
    seen = read({"days": jnp.asarray([0, 7]), "died": jnp.asarray([0, 1])})
    assert np.allclose(seen, [[0.365, np.inf], [7, 7]])


@pytest.mark.slow
def test_a_private_fit_of_censored_times_holds_the_truth():
    data = {**SHARED, **TIMES[0]}
    model = model_of("censored")
    post = tacit.fit(tacit.plan(model, budget=tacit.Budget(4, 1e-5)), data, seed=3)
    lines = {line.name: line for line in post.summary().lines}
    truth = {"Intercept": 1.2, "x": 0.35, "ward[b]": 0.5, "alpha": 1.4, "drop_out": 1 / 6}
    truth["drop_out_shape"] = 1.0
    for name, value in truth.items():
        assert abs(lines[name].mean - value) < 4 * lines[name].sd
        assert lines[name].sd < 0.2


def test_a_forecast_does_not_take_the_mean_of_censored_times():
    budget = tacit.Budget(1, 1e-5)
    for left in ("censored(time, died)", "censored(time, died, 9)"):
        model = tacit.glm(f"{left} ~ x", schema=SCHEMA)
        with pytest.raises(InvalidArgument, match="censored times do not show"):
            tacit.forecast(model, size=100, budgets=budget, scenario=tacit.Scenario(outcome=3))

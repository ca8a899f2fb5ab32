"""Times until an event: likelihoods, draws and fits against independent ones, for all kinds of censoring."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from maximum_likelihood import by_numbers
from scipy import integrate, stats
from single_rows import row_log_likelihood, simulate_row

import tacit
from tacit.errors import InvalidArgument
from tacit.inference.score_contributions import ScoreQuery, contribution_of_scores, drawn_scores
from tacit.models.distributions import fast_sample
from tacit.models.families import Predictor
from tacit.models.front_ends import adapt_model
from tacit.models.survival import (
    CensoredTimes,
    FollowUp,
    LogNormalTimes,
    PiecewiseExponentialTimes,
    WeibullTimes,
)
from tacit.results import effects, predictive

HIGH = 6.0
STARTS, HAZARDS = (0.0, 1.0, 2.5), np.array([0.2, 0.6, 0.1])


class PiecewiseByIntegration:
    """The piecewise exponential distribution, from nothing but its hazard."""

    def sf(self, time):
        def hazard(t):
            return HAZARDS[np.searchsorted(STARTS, t, side="right") - 1]

        return np.exp(-integrate.quad(hazard, 0, time, points=[s for s in STARTS if s < time])[0])

    def pdf(self, time):
        return (self.sf(time - 1e-4) - self.sf(time + 1e-4)) / 2e-4


# Ours, and the same made another way.
TIMES = {
    "weibull": (
        lambda n: WeibullTimes(np.full(n, 0.5), np.full(n, 1.7)),
        stats.weibull_min(1.7, scale=np.exp(0.5)),
    ),
    "lognormal": (
        lambda n: LogNormalTimes(np.full(n, 0.4), np.full(n, 0.8)),
        stats.lognorm(0.8, scale=np.exp(0.4)),
    ),
    "piecewise_exponential": (
        lambda n: PiecewiseExponentialTimes(jnp.log(jnp.tile(HAZARDS, (n, 1))), STARTS),
        PiecewiseByIntegration(),
    ),
}


@pytest.mark.parametrize("name", TIMES)
def test_what_is_seen_of_a_time_has_its_probability(name):
    make, other = TIMES[name]
    pairs = [(0.3, 0.3), (1.7, np.inf), (0.0, 0.8), (1.2, 3.1), (4.0, 4.0), (5.5, np.inf)]
    expected = [
        np.log(other.pdf(a))
        if a == b
        else np.log(other.sf(a) - (0 if np.isinf(b) else other.sf(b)))
        for a, b in pairs
    ]
    fn = CensoredTimes(make(len(pairs)), (1e-3, HIGH), in_intervals=True)
    assert np.allclose(fn.log_prob(jnp.asarray(pairs)), expected, rtol=2e-4, atol=2e-4)
    mean, _ = integrate.quad(other.sf, 0, 120, limit=400)
    assert np.allclose(fn.mean, mean, rtol=1e-3)
    slope = jax.grad(
        lambda each: (
            CensoredTimes(each, (1e-3, HIGH), in_intervals=True).log_prob(jnp.asarray(pairs)).sum()
        )
    )(make(len(pairs)))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(slope))


@pytest.mark.parametrize("name", TIMES)
def test_drawn_times_have_their_distribution(name):
    make, other = TIMES[name]
    drawn = np.asarray(CensoredTimes(make(20_000), (1e-3, HIGH)).sample(jax.random.key(0)))
    for time in (0.2, 0.9, 1.5, 3.0, 8.0):
        assert np.mean(drawn > time) == pytest.approx(other.sf(time), abs=0.012)


def weibull_study(size, rng):
    """Times, and ends of follow-up that are partly the end of the study and partly drop-out."""
    time = 2.5 * rng.weibull(1.3, size)
    return time, np.minimum(4.0 * rng.weibull(1.5, size), HIGH)


def test_what_a_study_sees_is_drawn_like_what_it_saw():
    """Own and drawn pairs have one distribution, if the end of follow-up is known and if it has one of its own."""
    rng, size = np.random.default_rng(9), 40_000
    time, end = weibull_study(size, rng)
    own = np.where(time <= end, time, end), np.where(time <= end, time, np.inf)
    leaving = WeibullTimes(np.full(size, np.log(4.0)), np.full(size, 1.5))
    times = WeibullTimes(np.full(size, np.log(2.5)), np.full(size, 1.3))
    for observed in (FollowUp(limit=end), FollowUp(leaving=leaving)):
        again = np.asarray(
            fast_sample(CensoredTimes(times, (1e-3, HIGH), observed), jax.random.key(1))
        )
        for event in (True, False):
            one, other = (
                own[0][np.isfinite(own[1]) == event],
                again[np.isfinite(again[:, 1]) == event],
            )
            assert len(one) == pytest.approx(len(other[:, 0]), rel=0.03)
            assert stats.ks_2samp(one, other[:, 0]).statistic < 3.5 / np.sqrt(size)


def test_ends_of_follow_up_are_competing_events():
    """The density of a pair is that of the time and of who left, which is nobody at the end of the study."""
    pairs = [(1.7, 1.7), (2.0, np.inf), (HIGH, np.inf), (1.2, 3.1), (0.0, 0.8)]
    left = stats.weibull_min(1.5, scale=4.0)
    expected = [
        left.logsf(1.7),
        left.logpdf(2.0),
        left.logsf(HIGH),
        left.logsf(3.1),
        left.logsf(0.8),
    ]
    times, leaving = (
        WeibullTimes(np.full(5, np.log(scale)), np.full(5, shape))
        for scale, shape in ((2.5, 1.3), (4.0, 1.5))
    )
    alone, both = (
        CensoredTimes(times, (1e-3, HIGH), each, in_intervals=True).log_prob(jnp.asarray(pairs))
        for each in (FollowUp(), FollowUp(leaving=leaving))
    )
    assert np.allclose(both - alone, expected, rtol=1e-4)


def query_for_extremes(size):
    """A query of which only the part about extreme outcomes is released, the last but one."""
    shares, clip = np.eye(9)[7], np.sqrt(size)
    return ScoreQuery(np.zeros(size), np.eye(size), clip, clip, 2.0, 1.5, 0.0, shares, None)


def test_an_own_outcome_is_extreme_as_often_as_a_drawn_one():
    """Own and drawn outcomes are exchangeable, which clipping relies on."""
    rng, size = np.random.default_rng(2), 6000
    x = rng.uniform(-2, 2, size)
    time = 10 * (rng.exponential(size=size) / np.exp(0.4 + 0.5 * x)) ** (1 / 1.5)
    end = np.minimum(rng.exponential(8.0, size), 10)
    died = np.where(time <= end, "dead", "alive")
    formula = "censored(time, died) ~ x"
    model = adapt_model(tacit.glm(formula, family="weibull_ph", schema=SCHEMA), SCHEMA)
    table = {"time": np.minimum(time, end), "x": x, "died": died}
    rows = SCHEMA.encode(table, model.columns).columns
    truth = {"Intercept": 0.4, "x": 1.0, "alpha": 1.5, "drop_out": 1 / 8, "drop_out_shape": 1.0}
    vector = model.unconstrain(truth)

    @jax.jit
    @jax.vmap
    def scores(key, row):
        unit = {name: value[None] for name, value in row.items()}, jnp.ones(1, bool), None
        own = jax.grad(model.log_likelihood)(vector, *unit)
        return jnp.concatenate([own[None], drawn_scores(model, vector, *unit, key, 6)])

    found = np.asarray(scores(jax.random.split(jax.random.key(0), size), rows), np.float64)
    root = np.linalg.cholesky(np.linalg.inv(np.cov(found[:, 1].T)))
    query = query_for_extremes(model.dimension)
    parts = jax.vmap(lambda each: contribution_of_scores(query, each))(found @ root)
    extreme = np.asarray(parts)[:, -2]  # of own outcomes, less that of drawn ones
    assert abs(extreme.mean()) < 4 * extreme.std() / np.sqrt(size)


def test_outcomes_that_differ_by_rounding_are_not_extreme():
    scores = np.ones((7, 3), np.float32)
    scores[0] += 2e-7
    assert contribution_of_scores(query_for_extremes(3), jnp.asarray(scores))[-2] == 0
    scores[0] += 5
    assert contribution_of_scores(query_for_extremes(3), jnp.asarray(scores))[-2] == 1


def test_visits_and_limits_of_detection_are_drawn_as_intervals():
    size = 20_000
    time = WeibullTimes(np.full(size, np.log(2.5)), np.full(size, 1.3))
    exact = np.asarray(
        CensoredTimes(time, (1e-3, HIGH)).times.event(np.linspace(1e-4, 1, size, endpoint=False))
    )
    uniform = np.linspace(1e-4, 1, size, endpoint=False)
    visits = jnp.full(size, 1.5), jnp.full(size, 0.5)
    fn = CensoredTimes(time, (1e-3, HIGH), FollowUp(limit=HIGH, visits=visits), in_intervals=True)
    low, high = np.asarray(fn.sample_observed(uniform, uniform)).T
    seen = np.isfinite(high)
    assert ((low[seen] < exact[seen]) & (exact[seen] <= high[seen] * (1 + 1e-5))).all()
    assert np.allclose(high[seen] - low[seen], 0.5, atol=1e-4)
    assert (exact[~seen] > HIGH).all()
    assert (low[~seen] == HIGH).all()
    fn = CensoredTimes(time, (1e-3, HIGH), FollowUp(detected_from=0.7), in_intervals=True)
    low, high = np.asarray(fn.sample_observed(uniform, uniform)).T
    assert ((low == 0) == (exact < 0.7)).all()
    assert np.allclose(high[low == 0], 0.7)


N = 2500
SCHEMA = tacit.Schema(
    {
        "x": tacit.Number(-2, 2),
        "ward": tacit.Category(["a", "b"]),
        "time": tacit.Number(0, 10),
        "upper": tacit.Number(0, 10),
        "wide": tacit.Number(0, 20),
        "died": tacit.Binary(yes="dead", no="alive"),
        "status": tacit.Category(["none", "right", "left", "interval"]),
        "known": tacit.Category(["none", "right", "left"]),
        "examined": tacit.Category(["left", "right"]),
        "limited": tacit.Category(["none", "left"]),
        "odd": tacit.Category(["none", "maybe"]),
    }
)


def rows(seed=3):
    rng = np.random.default_rng(seed)
    x, b = rng.uniform(-2, 2, N), rng.random(N) < 0.4
    eta = 0.4 + 0.5 * x + 0.6 * b
    time = 10 * (rng.exponential(size=N) / np.exp(eta)) ** (1 / 1.5)
    return {"x": x, "ward": np.where(b, "b", "a")}, eta, time, rng


SHARED, ETA, TIME, RNG = rows()
X, B = SHARED["x"], SHARED["ward"] == "b"
END = np.minimum(RNG.exponential(8.0, N), 10)
SEEN, EVENT = np.minimum(TIME, END), TIME <= END
DIED = {"time": SEEN, "died": np.where(EVENT, "dead", "alive")}


def hazard_of(v):
    return np.exp(v[0] * X + v[1] * B)


def weibull_ph(v):
    alpha = np.exp(v[3])
    scaled = SEEN / 10
    hazard = np.exp(v[2]) * alpha * scaled ** (alpha - 1) / 10 * hazard_of(v)
    return EVENT * np.log(hazard) - np.exp(v[2]) * scaled**alpha * hazard_of(v)


def lognormal(v):
    fn = stats.lognorm(np.exp(v[3]), scale=np.exp(v[2] + v[0] * X + v[1] * B))
    return np.where(EVENT, fn.logpdf(SEEN), fn.logsf(SEEN))


def piecewise(v):
    """As a Poisson regression, with an offset for the time in each interval."""
    spent = np.clip(SEEN[:, None] - np.array([0.0, 4.0]), 0, [4.0, 6.0])
    here = np.stack([EVENT & (SEEN <= 4.0), EVENT & (SEEN > 4.0)], axis=1)
    mean = np.exp(v[2:4]) * spent * hazard_of(v)[:, None]
    return np.where(spent > 0, stats.poisson.logpmf(here, np.maximum(mean, 1e-300)), 0).sum(axis=1)


def coarse():
    """Visits every 2, some exact times, and ends of follow-up at a visit."""
    before = 2 * np.floor(TIME / 2)
    exact = RNG.random(N) < 0.2
    last = 2 * np.floor(END / 2)
    gone = ~exact & (before + 2 > last)
    status = np.select(
        [exact & (TIME <= 10), exact, gone, before == 0],
        ["none", "right", "right", "left"],
        "interval",
    )
    low = np.select(
        [exact, gone, before == 0], [np.minimum(TIME, 10), np.maximum(last, 0.01), 2.0], before
    )
    return {"time": low, "upper": np.where(status == "interval", before + 2, 0), "status": status}


COARSE = coarse()


def interval_weibull(v):
    alpha, low, high, status = np.exp(v[3]), COARSE["time"], COARSE["upper"], COARSE["status"]
    fn = stats.weibull_min(alpha, scale=10 * (np.exp(v[2]) * hazard_of(v)) ** (-1 / alpha))
    return np.select(
        [status == "none", status == "right", status == "left"],
        [fn.logpdf(np.maximum(low, 1e-3)), fn.logsf(low), fn.logcdf(low)],
        np.log(fn.sf(low) - fn.sf(np.maximum(high, low + 1e-9))),
    )


BY_SHAPE = lambda d: [d["Intercept"], np.log(d["alpha"])]  # noqa: E731
FITS = {
    "weibull_ph": ("censored(time, died)", DIED, weibull_ph, BY_SHAPE),
    "lognormal": (
        "censored(time, died)",
        DIED,
        lognormal,
        lambda d: [d["Intercept"], np.log(d["sigma"])],
    ),
    "piecewise_exponential": (
        "censored(time, died, cuts=4)",
        DIED,
        piecewise,
        lambda d: [d["log_hazard"]],
    ),
    "weibull_ph in intervals": (
        "censored(time, upper, status)",
        COARSE,
        interval_weibull,
        BY_SHAPE,
    ),
}


def model_of(name):
    return tacit.glm(f"{FITS[name][0]} ~ x + ward", family=name.split()[0], schema=SCHEMA)


@pytest.fixture(scope="module")
def exact():
    """Exact fits, made when they are first needed."""
    found = {}

    def fit(name):
        if name not in found:
            found[name] = tacit.fit_without_privacy(model_of(name), {**SHARED, **FITS[name][1]})
        return found[name]

    return fit


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("weibull_ph", marks=pytest.mark.slow),
        pytest.param("lognormal", marks=pytest.mark.slow),
        "piecewise_exponential",
        "weibull_ph in intervals",
    ],
)
def test_a_fit_without_privacy_is_what_maximum_likelihood_finds(name, exact):
    _, _, log_likelihood, others = FITS[name]
    expected, errors = by_numbers(log_likelihood, np.zeros(4))
    post = exact(name)
    assert post.converged
    draws = {n: np.asarray(values, float) for n, values in post.draws.items()}
    parts = [draws["x"], draws["ward"], *others(draws)]
    found = np.concatenate([part.reshape(len(part), -1) for part in parts], axis=1)
    assert np.abs((found.mean(axis=0) - expected) / errors).max() < 0.25
    assert np.allclose(found.std(axis=0), errors, rtol=0.06)


LEFTS = {
    "weibull_ph": "censored(time, died)",
    "piecewise_exponential": "censored(time, upper, status)",
    "lognormal": "censored(time, limited, 3)",
    "weibull": "censored(time, examined)",
}


@pytest.mark.parametrize(
    "family", [pytest.param(n, marks=[pytest.mark.slow] * (n != "lognormal")) for n in LEFTS]
)
def test_drawn_outcomes_have_scores_of_mean_zero(family):
    """At any parameters, and whatever the outcomes of the rows themselves are."""
    model = adapt_model(
        tacit.glm(f"{LEFTS[family]} ~ x + ward", family=family, schema=SCHEMA), SCHEMA
    )
    assert model.simulate is not None
    size = 1500
    table = {name: jnp.asarray(v) for name, v in SCHEMA.dummy_rows(size, model.columns).items()}
    near = np.random.default_rng(5).normal(0, 0.2, model.dimension)
    vector = model.unconstrain({}) + jnp.float32(near)

    @jax.jit
    def scores(keys):
        def one(key, row):
            outcomes = simulate_row(model, key, vector, row, model.constants)
            return jax.grad(partial(row_log_likelihood, model))(
                vector, row, model.constants, outcomes
            )

        return jax.vmap(one)(keys, table)

    found = np.concatenate([scores(jax.random.split(jax.random.key(i), size)) for i in range(8)])
    errors = found.std(axis=0) / np.sqrt(len(found))
    assert np.isfinite(found).all()
    assert (np.abs(found.mean(axis=0)) < 6 * errors).all()


@pytest.mark.parametrize(
    ("formula", "family", "says"),
    [
        ("censored(time, odd) ~ x", "weibull", "must be among none, right, left, interval"),
        ("censored(time, status) ~ x", "weibull_ph", "needs both of its ends"),
        ("censored(time, wide, status) ~ x", "lognormal", "declare the same longest time"),
        ("censored(time, ward, status) ~ x", "weibull", "must be among"),
        ("censored(time, upper, status, 1, 2) ~ x", "weibull", "needs a time as its outcome"),
        ("censored(time, examined, 3) ~ x", "weibull", "too many parts"),
        ("censored(time, known) ~ x", "weibull", r"as in censored\(time, known, 0.5\)"),
        ("censored(time, died, cuts=4) ~ x", "weibull_ph", "needs a time as its outcome"),
        ("censored(time, died, cuts=c(4, 12)) ~ x", "piecewise_exponential", "lie between 0 and"),
        ("time ~ 0 + x", "piecewise_exponential", "hazards of intervals in the place"),
        ("x ~ ward", "lognormal", "it cannot be negative"),
    ],
)
def test_times_that_do_not_fit_are_refused(formula, family, says):
    with pytest.raises(InvalidArgument, match=says) as refused:
        tacit.glm(formula, family=family, schema=SCHEMA)
    assert str(refused.value).endswith(".")


def test_summaries_of_proportional_hazards_have_hazard_ratios(exact):
    post = exact("piecewise_exponential")
    assert "log_hazard[4 to 10], at the reference" in post.summary().details()
    frame = post.summary().to_pandas()
    assert frame.loc["x", "hazard ratio"] == pytest.approx(np.exp(frame.loc["x", "mean"]))


@pytest.mark.parametrize("family", ["weibull", "weibull_ph", "lognormal", "piecewise_exponential"])
def test_survival_curves_are_those_of_the_model(family):
    """Survival in NumPy against the hazard in JAX, and restricted means against integrals of survival."""
    made = tacit.glm("censored(time, died) ~ x + ward", family=family, schema=SCHEMA)
    model = adapt_model(made, SCHEMA)
    means = effects.FormulaMeans.build(predictive.formula_recipe(model), SCHEMA)
    vectors = np.random.default_rng(0).normal(0, 0.3, (3, model.dimension)).astype(np.float32)
    draws = {n: np.asarray(v) for n, v in jax.vmap(model.constrain)(vectors).items()}
    columns = SCHEMA.dummy_rows(4, means.spec.predictors)
    curves = means.time_curves(draws, means.linear_predictor(draws, columns))
    for i in range(3):
        given = {name: jnp.asarray(value[i]) for name, value in draws.items()}
        eta = jnp.asarray(means.linear_predictor(draws, columns)[i])
        full = {n: jnp.asarray(v) for n, v in SCHEMA.dummy_rows(4).items()}
        fn = made.function.family.distribution(
            Predictor(made.function.outcome, "log", eta, given, full)
        )
        for time in (0.7, 4.0, 12.0):
            expected = np.exp(-fn.times.cumulative_hazard(jnp.full(4, time)))
            assert np.allclose(curves.survival(time)[i], expected, rtol=1e-4)
    grid = (
        np.linspace(0, 1, 4001)[1:] ** 3
    ) * 7.5  # finer near zero, where hazards may be infinite
    survived = np.array([np.ones_like(curves.survival(1.0)), *map(curves.survival, grid)])
    area = np.trapezoid(survived, np.append(0.0, grid), axis=0)
    assert np.allclose(curves.restricted_mean(7.5), area, rtol=1e-4)


def test_survival_is_a_data_frame_with_intervals(exact):
    post = exact("piecewise_exponential")
    found = post.survival([0, 2.0, 5.0], at={"x": [-1, 1], "ward": "all"}, rmst=5.0)
    assert len(found) == 4 * 4
    assert set(found["quantity"]) == {"survival", "restricted mean"}
    curve = found[(found["x"] == 1) & (found["ward"] == "b") & (found["quantity"] == "survival")]
    assert curve["mean"].is_monotonic_decreasing
    assert curve["mean"].iloc[0] == 1
    assert (curve["5%"] <= curve["mean"]).all()
    restricted = found[found["quantity"] == "restricted mean"].set_index(["x", "ward"])["mean"]
    assert restricted[1, "b"] < restricted[-1, "a"] < 5  # a higher hazard, a shorter time
    axes = post.plot_survival(by="ward").axes[0]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["a", "b"]
    with pytest.raises(InvalidArgument, match="times must be zero or a positive"):
        post.survival([-1.0])
    with pytest.raises(InvalidArgument, match="rmst must be a positive"):
        post.survival(rmst=0)


def test_survival_needs_a_time():
    schema = tacit.Schema({"x": tacit.Number(0, 1), "y": tacit.Binary()})
    rng = np.random.default_rng(0)
    data = {"x": rng.random(50), "y": rng.integers(0, 2, 50)}
    post = tacit.fit_without_privacy(tacit.glm("y ~ x", schema=schema), data)
    with pytest.raises(InvalidArgument, match="this is a model of the bernoulli family"):
        post.survival(3)

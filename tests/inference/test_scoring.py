"""Private Fisher scoring: scores that clipping does not bias, and posteriors that know the noise."""

from functools import lru_cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy.special import digamma, expit, polygamma

import tacit
from tacit.errors import InvalidArgument
from tacit.inference.base import Intervals
from tacit.inference.evidence import _spread
from tacit.inference.hmc import last_of_chains
from tacit.inference.methods import default_method
from tacit.inference.scores import SHARES, Given, contribution, dispersion, parts_of, width
from tacit.inference.scoring import Scoring
from tacit.inference.whitened import whitened
from tacit.interfaces.fit import fit_many, fit_without_privacy
from tacit.interfaces.front_ends.registry import as_model
from tacit.models.model import Model, Parameter, Positive
from tacit.privacy.gate import Gate, run
from tacit.privacy.mechanisms import NoisySums
from tacit.privacy.noise import Randomness
from tacit.privacy.rows import Rows

BUDGET = tacit.Budget(1, 1e-6)
SIZE = 3
MANY = 20_000  # rows, where a mean is looked at


def outcome(kind, params, row):
    """The distribution of a row's outcome."""
    eta = row["x"] @ params["w"]
    if kind == "logistic":
        return dist.Bernoulli(logits=eta)
    return dist.Poisson(jnp.exp(eta)) if kind == "poisson" else dist.Normal(eta, params["sigma"])


@lru_cache
def regression(kind):
    def log_prior(params):
        density = dist.Normal().log_prob(params["w"]).sum()
        if kind == "linear":
            density += dist.LogNormal(0, 1).log_prob(params["sigma"])
        return density

    spread = {"sigma": Parameter((), Positive())} if kind == "linear" else {}
    return Model(
        parameters={"w": Parameter((SIZE,)), **spread},
        log_prior=log_prior,
        log_likelihood=lambda params, row: outcome(kind, params, row).log_prob(row["y"]),
        simulate=lambda key, params, row: {"y": outcome(kind, params, row).sample(key)},
    )


KINDS = ("logistic", "linear", "poisson")
# Where many rows are looked at, one kind is always tried: the one that is hardest to draw.
HARDEST = [
    "poisson",
    pytest.param("logistic", marks=pytest.mark.slow),
    pytest.param("linear", marks=pytest.mark.slow),
]
TRUTH = {"w": np.array([-1.2, 0.7, -0.4]), "sigma": 0.7}


def table(kind, size, seed=0, truth=TRUTH):
    rng = np.random.default_rng(seed)
    x = np.column_stack([np.ones(size), rng.normal(size=(size, SIZE - 1))]).astype(np.float32)
    eta = x @ truth["w"]
    draws = {
        "logistic": lambda: rng.binomial(1, expit(eta)),
        "linear": lambda: rng.normal(eta, truth["sigma"]),
        "poisson": lambda: rng.poisson(np.exp(eta)),
    }
    return {"x": x, "y": draws[kind]().astype(np.float32)}


def given(theta, to_metric, clip, wide=None):
    shares = jnp.asarray(np.sqrt(SHARES[1]), jnp.float32)
    metric = jnp.asarray(to_metric, jnp.float32)
    wide = np.sqrt(len(theta)) if wide is None else wide
    return Given(theta, metric, jnp.float32(clip), jnp.float32(wide), shares, None)


@partial(jax.jit, static_argnums=0)
def contributions(model, given, rows, secrets):
    per_unit = contribution(model, 4)
    alone = jax.tree.map(lambda leaf: leaf[:, None], rows)
    present = jnp.ones(1, bool)
    return jax.vmap(lambda row, secret: per_unit(given, row, present, secret))(alone, secrets)


def secrets(size, seed=0):
    rng = np.random.default_rng(seed)
    return jnp.asarray(rng.integers(2**32, size=(size, 2), dtype=np.uint32))


def true_vector(kind):
    model = regression(kind)
    return model.start({name: TRUTH[name] for name in model.names})


@pytest.mark.parametrize("largest", [5, 30])
@pytest.mark.parametrize("kind", KINDS)
def test_no_unit_adds_more_than_the_clip_whatever_it_holds(kind, largest):
    rng, model = np.random.default_rng(1), regression(kind)
    count = 400
    sizes = 10.0 ** rng.uniform(-3, largest, size=(count, 1))
    rows = {
        "x": (sizes * rng.normal(size=(count, SIZE))).astype(np.float32),
        "y": (10.0 ** rng.uniform(-3, largest, size=count)).astype(np.float32),
    }
    rows["x"][:50] = rng.normal(size=(50, SIZE))
    rows["x"][50], rows["x"][51], rows["y"][52], rows["y"][53] = np.nan, np.inf, np.nan, -np.inf
    seen = 0
    for clip in (1e-2, 1.7, 1e3):
        for scale in (1e-4, 1.0, 1e2):
            metric = scale * rng.normal(size=(model.dimension,) * 2)
            theta = jnp.asarray(rng.normal(size=model.dimension), jnp.float32)
            wide = rng.choice([0.1, 1.7, 30.0])
            vectors = contributions(model, given(theta, metric, clip, wide), rows, secrets(count))
            assert vectors.shape == (count, width(model.dimension))
            lengths = np.linalg.norm(np.asarray(vectors, np.float64), axis=1)
            # What is not finite adds nothing: the gate sees to it.
            lengths = lengths[np.isfinite(lengths)]
            # Rounding may leave a few of these beyond it, of rows that no model means; it clips them.
            assert np.mean(lengths > 1 + 1e-5) <= (0 if largest < 10 else 0.02)
            seen += len(lengths)
    assert seen > 9 * 50


def test_rows_that_are_no_numbers_add_nothing():
    model, method = regression("linear"), Scoring(num_steps=4, sampling_rate=1.0)
    bad = [np.nan, np.inf, -np.inf, 3e38]
    rows = table("linear", 12)
    worse = {"x": np.repeat(rows["x"], 2, axis=0), "y": np.repeat(rows["y"], 2)}
    worse["x"][1::2, 1] = np.resize(bad, 12)
    plan = method.without_noise(model)
    steps = method.steps(model, plan, jax.random.key(0))
    _, seen = run(Gate(Rows(worse), plan, Randomness(1)), *steps)
    released = np.asarray(seen.released)
    assert np.isfinite(released).all()
    early = method.mechanism(model, 1.0).phases[0][1]
    share = np.sqrt([SHARES[0][-1]] * early + [SHARES[1][-1]] * (4 - early))
    assert released[:, -1] == pytest.approx(share * 12, rel=1e-4)
    assert (np.linalg.norm(released, axis=1) <= 12 + 1e-3).all()


@pytest.mark.parametrize("kind", HARDEST)
def test_at_the_truth_clipped_scores_have_mean_zero(kind):
    """Where the same clip of plain gradients is far from it."""
    count, clip = MANY, {"logistic": 0.5, "linear": 2.0, "poisson": 0.5}[kind]
    model, theta = regression(kind), true_vector(kind)
    rows = jax.tree.map(jnp.asarray, table(kind, count, seed=2))
    metric = np.eye(model.dimension)

    def off(scores):
        scores = np.asarray(scores, np.float64)
        error = scores.std(axis=0) / np.sqrt(count)
        assert (error > 1e-4).all()
        return np.abs(scores.mean(axis=0) / error).max()

    vectors = contributions(model, given(theta, metric, clip), rows, secrets(count))
    assert off(vectors[:, : model.dimension]) < 4
    gradients = jax.vmap(lambda row: jax.grad(model.row_density)(theta, row))(rows)
    lengths = jnp.linalg.norm(gradients, axis=1, keepdims=True)
    assert 0.2 < float((lengths > clip).mean()) < 0.98
    assert off(gradients * jnp.minimum(1, clip / lengths)) > 10


def parts(kind, rows, clip):
    """The parts of a release of all rows at the truth, without noise."""
    model, theta = regression(kind), true_vector(kind)
    arguments = given(theta, np.eye(model.dimension), clip)
    rows = jax.tree.map(jnp.asarray, rows)
    total = contributions(model, arguments, rows, secrets(len(rows["y"]))).sum(axis=0)
    clips = jnp.stack([arguments.clip, arguments.wide])
    return parts_of(total, model.dimension, 1.0, clips, arguments.shares)


@pytest.mark.parametrize("kind", HARDEST)
def test_own_outcomes_vary_as_much_as_drawn_ones_if_the_model_is_right(kind):
    seen = parts(kind, table(kind, MANY, seed=6), 2.0)
    assert float(seen.own / seen.slope) == pytest.approx(1, abs=0.05)
    assert float(dispersion(seen.slope, seen.own, 0.0)) < 1.05


def varied_counts(size):
    rng = np.random.default_rng(7)
    rows = table("poisson", size, seed=7)
    counts = rng.poisson(np.exp(rows["x"] @ TRUTH["w"]) * rng.gamma(0.2, 5.0, size))
    return rows | {"y": counts.astype(np.float32)}


def test_counts_that_vary_more_are_noticed():
    seen = parts("poisson", varied_counts(MANY), 3.0)
    assert float(dispersion(seen.slope, seen.own, 0.0)) > 1.5


@pytest.mark.slow
def test_counts_that_vary_more_are_said():
    rows = varied_counts(6_000)
    plain = tacit.fit(
        regression("poisson"), Rows(table("poisson", 6_000)), budget=tacit.Budget(8, 1e-5), seed=0
    )
    varied = tacit.fit(regression("poisson"), Rows(rows), budget=tacit.Budget(8, 1e-5), seed=0)
    assert not any("Outcomes vary" in each for each in plain.said)
    assert any("Outcomes vary about" in each for each in varied.said)
    assert (varied.sd()["w"] > 1.2 * plain.sd()["w"]).all()


@pytest.mark.slow
def test_a_column_that_few_rows_have_is_learned():
    """One row in a hundred tells of it: the clip must not make the metric forget it."""
    rng, truth = np.random.default_rng(8), np.array([-0.5, 0.8, 1.0])
    rows = table("logistic", 20_000, seed=8)
    rows["x"][:, 2] = rng.random(20_000) < 0.01
    rows["y"] = rng.binomial(1, expit(rows["x"] @ truth)).astype(np.float32)
    exact = fit_without_privacy(regression("logistic"), Rows(rows))
    post = tacit.fit(regression("logistic"), Rows(rows), budget=BUDGET, seed=0)
    wider = post.sd()["w"] / exact.sd()["w"]
    assert wider.max() < 8
    assert (np.abs(post.mean()["w"] - exact.mean()["w"]) < 3 * post.sd()["w"]).all()


def test_curvature_is_as_uneven_as_it_is_seen_to_be():
    rng, usual, noise = np.random.default_rng(9), 0.1, 0.3
    even = noise * rng.normal(size=45)
    uneven = even + rng.normal(size=45)
    assert _spread(even, noise, usual) < 1.5 * usual
    assert 0.6 < _spread(uneven, noise, usual) < 1.4
    assert _spread(np.zeros(0), noise, usual) == pytest.approx(usual)


@pytest.mark.parametrize(
    "kind", [KINDS[0], *(pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS[1:])]
)
def test_without_noise_it_is_about_the_exact_posterior(kind):
    rows = Rows(table(kind, 2000, seed=3))
    exact = fit_without_privacy(regression(kind), rows)
    # Draws of counts take time; and clipped, they say the same by other weights.
    rate, far = (0.1, 0.6) if kind == "poisson" else (1.0, 0.25)
    method = Scoring(sampling_rate=rate)
    post = fit_without_privacy(regression(kind), rows, method=method)
    assert post.converged
    assert post.intervals == Intervals.NO_NOISE
    sd, own = (np.sqrt(np.diag(each.unconstrained_covariance)) for each in (exact, post))
    off = (post.unconstrained_mean - exact.unconstrained_mean) / sd
    assert np.abs(off).max() < far
    assert np.abs(own / sd - 1).max() < 0.25


@pytest.mark.slow
def test_a_fit_that_has_not_arrived_says_so():
    """The truth is far from where steps start, and so few cannot get there."""
    model, truth = regression("logistic"), {"w": np.array([2.0, -2.5, 2.0])}
    rows = Rows(table("logistic", 4000, seed=4, truth=truth))
    exact = fit_without_privacy(model, rows)
    sd = np.sqrt(np.diag(exact.unconstrained_covariance))
    budget, method = tacit.Budget(8, 1e-6), Scoring(num_steps=20)
    post = tacit.fit(model, rows, budget=budget, method=method, seed=1)
    off = np.abs(post.trace["mean"][-1] - exact.unconstrained_mean) / sd
    assert off.max() > 4
    assert post.converged is False
    assert "take more steps" in post.said[0]
    assert "DID NOT CONVERGE" in str(post.summary())


@lru_cache
def many_fits():
    """Posteriors of 24 tables at epsilon 1."""
    rows = [Rows(table("logistic", 1000, seed=100 + i)) for i in range(24)]
    return fit_many(regression("logistic"), rows, [BUDGET] * 24, seeds=list(range(24)))


def test_intervals_hold_the_truth_about_as_often_as_they_say():
    ends = np.array([np.quantile(post.draws["w"], [0.05, 0.95], axis=0) for post in many_fits()])
    inside = (ends[:, 0] < TRUTH["w"]) & (TRUTH["w"] < ends[:, 1])
    assert 0.78 <= inside.mean() <= 0.99
    assert all(post.intervals == Intervals.INCLUDED for post in many_fits())
    assert sum(post.converged for post in many_fits()) >= 23


def test_many_fits_are_the_single_ones_and_seeds_repeat_them():
    def single():
        rows = Rows(table("logistic", 1000, seed=105))
        return tacit.fit(regression("logistic"), rows, budget=BUDGET, seed=5)

    first = single()
    assert first == single()
    assert first == many_fits()[5]


def test_a_model_that_cannot_draw_outcomes_goes_the_other_way():
    model = regression("logistic")
    mute = Model(
        parameters=model.parameters, log_prior=model.log_prior, log_likelihood=model.log_likelihood
    )
    rows = Rows(table("logistic", 50))
    with pytest.raises(InvalidArgument, match="cannot draw its outcomes"):
        tacit.fit(mute, rows, budget=BUDGET, method=Scoring())
    assert default_method(mute) == tacit.Variational()
    assert default_method(model) == Scoring()


def test_so_does_one_of_too_many_parameters():
    def many(size):
        return Model(
            parameters={"w": Parameter((size,))},
            log_prior=lambda p: -0.5 * jnp.sum(p["w"] ** 2),
            log_likelihood=lambda p, row: dist.Normal(p["w"].sum()).log_prob(row["y"]),
            simulate=lambda key, p, _: {"y": dist.Normal(p["w"].sum()).sample(key)},
        )

    assert default_method(many(64)) == Scoring()
    rows = Rows({"y": np.zeros(30, np.float32)})
    with pytest.raises(InvalidArgument, match=r"65 unconstrained numbers .* use tacit.Variational"):
        tacit.fit(many(65), rows, budget=BUDGET, method=Scoring())
    post = tacit.fit(many(65), rows, budget=BUDGET, seed=0)
    assert post.intervals == Intervals.LEFT_OUT
    assert "noise not included" in str(post.summary())


GROUPS = tacit.Schema({"clinic": tacit.Category(["a", "b", "c", "d"]), "y": tacit.Number(-9, 9)})


def centred(clinic, y=None):
    spread = numpyro.sample("spread", dist.HalfNormal(1.5))
    with numpyro.plate("clinics", 4):
        level = numpyro.sample("level", dist.Normal(0, spread))
    with numpyro.plate("rows", len(clinic)):
        numpyro.sample("y", dist.Normal(level[clinic], 1.0), obs=y)


def test_a_prior_that_is_not_normal_is_known_to_be():
    space = whitened(as_model(centred, GROUPS))
    assert not space.quadratic
    assert np.isfinite(space.mean).all()
    assert np.isfinite(space.scale).all()
    assert np.linalg.cond(space.scale) < 1e3


@pytest.mark.slow
def test_a_prior_that_is_not_normal_stays_the_prior():
    method = Scoring(num_steps=4)
    none = {"clinic": np.array([], object), "y": np.zeros(0)}
    prior = fit_without_privacy(centred, none, schema=GROUPS, method=method)
    spread = prior.draws["spread"]
    assert (spread > 0).all()
    assert np.quantile(spread, [0.25, 0.5, 0.75]) == pytest.approx([0.48, 1.01, 1.73], rel=0.3)


@pytest.mark.slow
def test_groups_are_learned_in_spite_of_it():
    rng = np.random.default_rng(0)
    clinic, levels = rng.integers(4, size=4000), np.array([-1.0, 0.5, 1.5, 0.0])
    data = {"clinic": np.array(list("abcd"))[clinic], "y": levels[clinic] + rng.normal(size=4000)}
    post = tacit.fit(
        centred, data, schema=GROUPS, budget=BUDGET, method=Scoring(num_steps=200), seed=0
    )
    assert (post.draws["spread"] > 0).all()
    off = (post.draws["level"].mean(axis=0) - levels) / post.draws["level"].std(axis=0)
    assert np.abs(off).max() < 4
    assert post.draws["level"].std(axis=0).max() < 0.3


def test_chains_draw_a_density_that_is_not_normal():
    """The logarithm of a gamma variate, and a normal around it."""

    def density(place, shape, _):
        return shape * place[0] - jnp.exp(place[0]) - 0.5 * (place[1] - 2 * place[0]) ** 2

    chains, shape = 4000, 3.0
    starts = jax.random.normal(jax.random.key(0), (chains, 2))
    roots = jnp.broadcast_to(jnp.eye(2), (chains, 2, 2))
    shapes = jnp.full(chains, shape)
    drawn = last_of_chains(density, shapes, None, starts, roots, jax.random.key(1))
    drawn = np.asarray(drawn, np.float64)
    mean, variance = digamma(shape), polygamma(1, shape)
    covariance = np.array([[variance, 2 * variance], [2 * variance, 4 * variance + 1]])
    error = np.sqrt(np.diag(covariance) / chains)
    assert (np.abs(drawn.mean(axis=0) - [mean, 2 * mean]) < 4 * error).all()
    assert np.cov(drawn.T) == pytest.approx(covariance, rel=0.1)
    # Its skewness, which a normal distribution has not.
    third = ((drawn[:, 0] - mean) ** 3).mean() / variance**1.5
    assert third == pytest.approx(polygamma(2, shape) / variance**1.5, abs=0.2)


def test_settings_that_make_no_sense_are_refused():
    for wrong in ({"num_steps": 3}, {"sampling_rate": 0.0}, {"num_outcomes": 1}):
        with pytest.raises(InvalidArgument, match=next(iter(wrong))):
            Scoring(**wrong)


def test_the_plan_is_as_charged():
    model = regression("logistic")
    release = Scoring().calibrated(model, BUDGET)
    assert isinstance(release, NoisySums)
    assert release.secrets
    assert release.clip == 1
    assert release.dimension == width(SIZE)
    (louder, early), (noise, late) = release.phases
    assert louder > noise
    assert early + late == 500

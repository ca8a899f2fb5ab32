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
from tacit.api.fit import fit_many, fit_without_privacy
from tacit.api.rows import encode_rows
from tacit.errors import InvalidArgument
from tacit.inference import score_contributions as scores_module
from tacit.inference.registry import default_method
from tacit.inference.result import Intervals
from tacit.inference.score_contributions import (
    MAX_CURVATURE_DIMENSION,
    ScoreQuery,
    contribution_size,
    split_release,
    unit_contribution,
)
from tacit.inference.scoring import (
    MAX_DIMENSION,
    Scoring,
    make_query,
    record_release,
    scoring_step,
)
from tacit.inference.scoring_posterior import draw_posterior
from tacit.inference.scoring_rounds import (
    COUNT_SHARES,
    EARLY_SHARES,
    LATE_DIAGONAL_SHARES,
    LATE_SHARES,
    MIN_UNITS,
    SIZING_SHARES,
    Curvature,
    CurvatureRelease,
    Rounds,
)
from tacit.inference.whitening import final_states, whiten_prior
from tacit.models.base import single_row_unit
from tacit.models.front_ends import adapt_model
from tacit.models.jax_model import Model, Parameter, Positive
from tacit.privacy.gate import Gate, run
from tacit.privacy.mechanisms import NoisySums
from tacit.privacy.noise import Randomness
from tacit.privacy.rows import Rows, Units

BUDGET, MORE = tacit.Budget(1, 1e-6), tacit.Budget(3, 1e-6)
SIZE = 3
MANY = 20_000  # rows, where a mean is looked at
FEW = 3000  # rows of the tables that are fitted, which so share a program


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
    ).unit_model


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


def rows_of(columns):
    """Rows with public ones beside them, as a schema would simulate them."""
    rows, rng = Rows(columns), np.random.default_rng(0)
    x = np.column_stack([np.ones(500), rng.uniform(-2, 2, size=(500, SIZE - 1))])
    columns = {"x": x.astype(np.float32), "y": np.zeros(500, np.float32)}
    rows.simulated = Units.single_rows(columns)
    return rows


PARTS = len(LATE_SHARES)  # of what a unit adds
# All that a round may ask for.
SHARES = {
    "count": COUNT_SHARES,
    "sizes": SIZING_SHARES,
    "early": EARLY_SHARES,
    "late": LATE_SHARES,
    "plain": LATE_DIAGONAL_SHARES,
}


def question(theta, to_metric, clip, shares=LATE_SHARES, length=None, sizes=0.0):
    length = np.sqrt(len(theta)) if length is None else length
    longest = clip * max(clip, length)
    numbers = (clip, length, 2 * longest, 1.5 * longest, sizes, np.sqrt(shares))
    return ScoreQuery(
        theta, *(jnp.asarray(each, jnp.float32) for each in (to_metric, *numbers)), None
    )


@partial(jax.jit, static_argnums=0)
def contributions(model, given, rows, secrets):
    per_unit = unit_contribution(model, 4)
    alone = jax.tree.map(lambda leaf: leaf[:, None], rows)
    present = jnp.ones(1, bool)
    return jax.vmap(lambda row, secret: per_unit(given, row, present, secret))(alone, secrets)


def secrets(size, seed=0):
    rng = np.random.default_rng(seed)
    return jnp.asarray(rng.integers(2**32, size=(size, 2), dtype=np.uint32))


def true_vector(kind):
    model = regression(kind)
    return model.unconstrain({name: TRUTH[name] for name in model.names})


@pytest.mark.parametrize("name", SHARES)
def test_shares_are_those_of_one_clip(name):
    assert sum(SHARES[name]) == pytest.approx(1, abs=1e-12)
    assert min(SHARES[name]) >= 0


def hostile(largest, count=400):
    """Rows of all sizes, and some that are no numbers."""
    rng = np.random.default_rng(1)
    sizes = 10.0 ** rng.uniform(-3, largest, size=(count, 1))
    rows = {
        "x": (sizes * rng.normal(size=(count, SIZE))).astype(np.float32),
        "y": (10.0 ** rng.uniform(-3, largest, size=count)).astype(np.float32),
    }
    rows["x"][:50] = rng.normal(size=(50, SIZE))
    rows["x"][50], rows["x"][51], rows["y"][52], rows["y"][53] = np.nan, np.inf, np.nan, -np.inf
    return rows


def finite_lengths(vectors):
    """Of what is finite; what is not adds nothing: the gate sees to it."""
    lengths = np.linalg.norm(np.asarray(vectors, np.float64), axis=1)
    return lengths[np.isfinite(lengths)]


@pytest.mark.parametrize("largest", [5, 30])
@pytest.mark.parametrize("kind", KINDS)
def test_no_unit_adds_more_than_the_clip_whatever_it_holds(kind, largest):
    rng, model, rows = np.random.default_rng(1), regression(kind), hostile(largest)
    seen = 0
    several = [*SHARES.values(), *rng.dirichlet(np.ones(PARTS), 4)]
    for clip in (1e-2, 1.7, 1e3):
        for number, shares in enumerate(several):
            metric = 10.0 ** rng.uniform(-4, 2) * rng.normal(size=(model.dimension,) * 2)
            theta = jnp.asarray(rng.normal(size=model.dimension), jnp.float32)
            length = rng.choice([0.1, 1.7, 30.0])
            asked = question(theta, metric, clip, shares, length, sizes=number % 2)
            vectors = contributions(model, asked, rows, secrets(400))
            assert vectors.shape == (400, contribution_size(model.dimension))
            lengths = finite_lengths(vectors)
            # Rounding may leave a few of these beyond it, of rows that no model means; it clips them.
            assert np.mean(lengths > 1 + 1e-5) <= (0 if largest < 10 else 0.02)
            seen += len(lengths)
    assert seen > len(several) * 3 * 50


@pytest.mark.parametrize("sizes", [0.0, 1.0])
def test_no_question_makes_a_unit_add_more(sizes):
    """Huge metrics and places, clips and lengths of next to nothing: each part keeps its bound."""
    model, rng = regression("linear"), np.random.default_rng(2)
    rows = table("linear", 400)
    seen = 0
    for place in (1.0, 1e4, 1e30, np.inf, np.nan):
        for metric in (1.0, 1e15, 1e30, np.nan):
            for clip in (1e-6, 1.0, 1e15):
                theta = jnp.asarray(place * rng.normal(size=model.dimension), jnp.float32)
                to_metric = metric * rng.normal(size=(model.dimension,) * 2)
                shares = rng.dirichlet(np.ones(PARTS))
                asked = question(theta, to_metric, clip, shares, sizes=sizes)
                lengths = finite_lengths(contributions(model, asked, rows, secrets(400)))
                assert (lengths <= 1 + 1e-5).all()
                seen += len(lengths)
    assert seen > 1000


def released(rows, **changes):
    """A noiseless release of a few rounds of the same question, by the gate."""
    model, method = regression("linear"), Scoring(num_steps=8)
    plan = method.without_noise(model)
    start = question(true_vector("linear"), np.eye(model.dimension), 1.7, SHARES["late"])
    start = start._replace(shares=jnp.full(PARTS, PARTS**-0.5, jnp.float32), **changes)
    gate = Gate(Rows(rows), plan, Randomness(1))
    step = scoring_step(model, method.num_outcomes)
    return np.asarray(run(gate, step, start, lambda _, count: np.zeros(count, np.float32))[1])


def test_rows_that_are_no_numbers_add_nothing():
    rows = table("linear", 12)
    worse = {"x": np.repeat(rows["x"], 2, axis=0), "y": np.repeat(rows["y"], 2)}
    worse["x"][1::2, 1] = np.resize([np.nan, np.inf, -np.inf, 3e38], 12)
    sums = released(worse)
    assert np.isfinite(sums).all()
    assert sums[:, -1] == pytest.approx(np.full(8, 12 * PARTS**-0.5), rel=1e-4)
    assert (np.linalg.norm(sums, axis=1) <= 12 + 1e-3).all()
    # Nor does any row by a question that is none.
    nowhere = jnp.full(regression("linear").dimension, jnp.nan)
    assert (released(worse, theta=nowhere) == 0).all()


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

    vectors = contributions(model, question(theta, metric, clip), rows, secrets(count))
    assert off(vectors[:, : model.dimension]) < 4
    gradients = jax.vmap(lambda row: jax.grad(model.log_likelihood)(theta, *single_row_unit(row)))(
        rows
    )
    lengths = jnp.linalg.norm(gradients, axis=1, keepdims=True)
    assert 0.2 < float((lengths > clip).mean()) < 0.98
    assert off(gradients * jnp.minimum(1, clip / lengths)) > 10


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 8])
def test_packed_curvature_is_the_matrix(size):
    """With its norm, so that it takes no more of the clip, and its entries."""
    rng = np.random.default_rng(size)
    vectors = rng.normal(size=(2, size))
    matrix = vectors.T @ vectors / 2
    packed = np.asarray(
        scores_module._pack_symmetric(jnp.asarray(vectors, jnp.float32)), np.float64
    )
    assert np.linalg.norm(packed) == pytest.approx(np.linalg.norm(matrix), rel=1e-5)
    shares = np.sqrt(rng.dirichlet(np.ones(PARTS)))
    score, diagonal, scalars = (
        rng.normal(size=size),
        rng.normal(size=size),
        rng.normal(size=PARTS - 3),
    )
    release = np.concatenate(
        [shares[0] * score, shares[1] * packed, shares[2] * diagonal, shares[3:] * scalars]
    )
    assert len(release) == contribution_size(size)
    sums = split_release(0.5 * release, size, shares, noise=3.0, rate=0.5)
    assert sums.score == pytest.approx(score)
    assert sums.curvature == pytest.approx(matrix, abs=1e-5)
    assert sums.diagonal == pytest.approx(diagonal)
    found = tuple(sums)[3:-1]
    assert found == pytest.approx(tuple(scalars))
    assert tuple(sums.noise.values()) == pytest.approx(tuple(3.0 / 0.5 / shares))


def test_noise_of_curvature_is_that_of_its_diagonal():
    """Others have it over root two, also those half the size apart, which come twice."""
    rng, size = np.random.default_rng(0), 4
    shares = np.sqrt(EARLY_SHARES)
    matrices = [
        split_release(rng.normal(size=contribution_size(size)), size, shares, 1.0).curvature
        for _ in range(4000)
    ]
    spread = np.std(matrices, axis=0) * shares[1]
    expected = np.where(np.eye(size) > 0, 1.0, 0.5**0.5)
    assert spread == pytest.approx(expected, rel=0.06)


def test_what_was_not_asked_for_is_not_known():
    size = MAX_CURVATURE_DIMENSION + 1
    sums = split_release(np.ones(contribution_size(size)), size, np.sqrt(COUNT_SHARES), noise=2.0)
    assert sums.curvature is None
    assert sums.units == 1
    assert not sums.score.any()
    assert sums.noise["units"] == 2
    assert sums.noise["score"] == np.inf


def about_exact(exact, post):
    """How far off a posterior is, in its own deviations, and its deviations over the exact ones."""
    sd, own = (np.sqrt(np.diag(each.unconstrained_covariance)) for each in (exact, post))
    return np.abs(post.unconstrained_mean - exact.unconstrained_mean) / own, own / sd


@pytest.mark.parametrize(
    "kind", [KINDS[0], *(pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS[1:])]
)
def test_without_noise_it_is_about_the_exact_posterior(kind):
    rows = rows_of(table(kind, FEW, seed=3))
    exact = fit_without_privacy(regression(kind), rows)
    post = fit_without_privacy(regression(kind), rows, method=Scoring())
    assert post.converged
    assert post.intervals == Intervals.NO_NOISE
    off, wider = about_exact(exact, post)
    assert off.max() < 0.5
    assert np.abs(wider - 1).max() < 0.2


def shaped(shape):
    """A logistic table of a shape that is hard to learn, all with columns as many and rows."""
    rng, truth = np.random.default_rng(8), np.array([-0.5, 0.8, 0.5])
    rows = table("logistic", FEW, seed=8)
    if shape == "rare column":
        rows["x"][:, 2] = rng.random(FEW) < 0.02
    if shape == "correlated columns":
        rows["x"][:, 2] = 0.95 * rows["x"][:, 1] + 0.3 * rows["x"][:, 2]
    if shape == "rare outcome":
        truth[0] = -3.5
    rows["y"] = rng.binomial(1, expit(rows["x"] @ truth)).astype(np.float32)
    return rows


# How much wider than without privacy intervals may be.
WIDEST = {"rare column": 5.0, "correlated columns": 2.0, "rare outcome": 3.0}


@pytest.mark.parametrize("shape", WIDEST)
def test_shapes_that_are_not_round_are_learned(shape):
    rows = rows_of(shaped(shape))
    exact = fit_without_privacy(regression("logistic"), rows)
    post = tacit.fit(regression("logistic"), rows, budget=MORE, seed=0)
    off, wider = about_exact(exact, post)
    assert post.converged
    assert off.max() < 3
    assert wider.min() > 0.7
    assert wider.max() < WIDEST[shape]
    assert not any("Outcomes vary" in each for each in post.messages)


CROSSED = tacit.Schema(
    {"a": tacit.Category(list("abcd")), "b": tacit.Category(list("uvw")), "y": tacit.Number(-9, 9)}
)


def crossed(a, b, y=None):
    mean = numpyro.sample("mean", dist.Normal(0, 1))
    with numpyro.plate("first", 4):
        first = numpyro.sample("u", dist.Normal(0, 0.7))
    with numpyro.plate("second", 3):
        second = numpyro.sample("v", dist.Normal(0, 0.7))
    with numpyro.plate("rows", len(a)):
        numpyro.sample("y", dist.Normal(mean + first[a] + second[b], 1.0), obs=y)


@pytest.mark.parametrize("length", [0.0, 1.0, 3.0])
def test_curvature_along_the_coefficients_is_learned_from_noisy_releases(length):
    """Rows with large predictors tell little of a logistic regression: curvature is least along its coefficients."""
    size, noise, rng = 10, 0.02, np.random.default_rng(5)
    points, weights = np.polynomial.hermite_e.hermegauss(60)
    variances = weights / weights.sum() * expit(length * points) * expit(-length * points)
    across, along = variances.sum(), (variances * points**2).sum()  # of Gaussian rows, exactly
    direction = np.full(size, size**-0.5)
    true = across * np.eye(size) + (along - across) * np.outer(direction, direction)
    found = []
    for _ in range(40):
        curvature, errors = Curvature(), rng.normal(size=(size, size)) * noise
        value = true + (errors + errors.T) / 2
        release = CurvatureRelease(np.eye(size), value, noise, length * direction)
        curvature.releases.append(release)
        estimate = curvature.estimate(np.eye(size), np.eye(size), length * direction)
        found.append(direction @ estimate.mean @ direction / np.trace(estimate.mean) * size)
    assert np.mean(found) == pytest.approx(size * along / np.trace(true), abs=0.15)
    assert np.std(found) < 0.25


def test_directions_that_no_row_tells_of_keep_the_width_of_the_prior():
    """Levels of crossed groups may be moved against each other; no interval may be narrower for it."""
    rng = np.random.default_rng(0)
    a, b = rng.integers(4, size=FEW), rng.integers(3, size=FEW)
    mean = 0.3 + np.array([-0.5, 0, 0.5, 0.2])[a] + np.array([0.4, -0.4, 0])[b]
    letters = {"a": np.array(list("abcd"))[a], "b": np.array(list("uvw"))[b]}
    data = letters | {"y": mean + rng.normal(size=FEW)}
    exact = fit_without_privacy(crossed, data, schema=CROSSED)
    post = tacit.fit(crossed, data, schema=CROSSED, budget=BUDGET, seed=0)
    inside = np.linalg.inv(np.linalg.cholesky(exact.unconstrained_covariance))
    ratios = np.linalg.eigvalsh(inside @ post.unconstrained_covariance @ inside.T)
    # The least of eight, of 1000 draws.
    assert np.sqrt(ratios.min()) > 0.88
    assert np.sqrt(ratios.max()) < 2.5
    assert about_exact(exact, post)[0].max() < 3


def test_rows_too_few_for_the_budget_leave_the_prior():
    """Curvature is noise then, whose size must not be taken for what the rows tell."""
    rows, budget = rows_of(table("logistic", 30)), tacit.Budget(0.02, 1e-6)
    method = tacit.Scoring(check_count=False)  # which would stop before
    for seed in range(3):
        post = tacit.fit(regression("logistic"), rows, budget=budget, method=method, seed=seed)
        assert (np.sqrt(np.diag(post.unconstrained_covariance)) > 0.9).all()
        assert any("tell little about w" in each for each in post.messages)


@lru_cache
def wide(size):
    """A regression on more columns than curvature is released of."""

    def mean(p, row):
        return row["x"] @ p["w"]

    return Model(
        parameters={"w": Parameter((size,))},
        log_prior=lambda p: dist.Normal(0, 1).log_prob(p["w"]).sum(),
        log_likelihood=lambda p, row: dist.Normal(mean(p, row), 1.0).log_prob(row["y"]),
        simulate=lambda key, p, row: {"y": dist.Normal(mean(p, row), 1.0).sample(key)},
    ).unit_model


def test_a_model_of_many_parameters_is_fitted():
    size, count = MAX_CURVATURE_DIMENSION + 2, 4000
    rng = np.random.default_rng(4)
    x, truth = rng.normal(size=(count, size)), 0.5 * rng.normal(size=size)
    columns = {"x": x, "y": x @ truth + rng.normal(size=count)}
    rows = Rows({name: each.astype(np.float32) for name, each in columns.items()})
    public = {"x": rng.uniform(-2, 2, size=(500, size)), "y": np.zeros(500)}
    rows.simulated = Units.single_rows({n: v.astype(np.float32) for n, v in public.items()})
    post = tacit.fit(wide(size), rows, budget=MORE, seed=0)
    off = (post.draws["w"].mean(axis=0) - truth) / post.draws["w"].std(axis=0)
    assert post.intervals == Intervals.INCLUDED
    assert np.mean(np.abs(off) < 1.645) > 0.75
    assert post.draws["w"].std(axis=0).max() < 0.15
    assert np.sqrt(np.mean((post.draws["w"].mean(axis=0) - truth) ** 2)) < 0.04


def answered(rounds, model, rows, noise, count, seed=0):
    """All rounds of a fit, answered without a gate; and what was released."""
    rng, space, releases = np.random.default_rng(seed), whiten_prior(model), []
    per_unit = jax.jit(
        jax.vmap(unit_contribution(model, rounds.outcomes), in_axes=(None, 0, None, 0))
    )
    alone = jax.tree.map(lambda leaf: leaf[:, None], rows)
    for number in range(count):
        asked = make_query(model, space, rounds.ask())
        words = secrets(len(rows["y"]), number)
        total = per_unit(asked, alone, jnp.ones(1, bool), words).sum(axis=0)
        releases.append(np.asarray(total) + noise[number] * rng.normal(size=total.shape))
        record_release(rounds, releases[-1])
    return releases


def test_rounds_follow_from_what_was_released():
    """The same releases lead to the same questions and the same posterior, bit for bit."""
    model, method = regression("logistic"), Scoring(num_steps=8)
    rows, noise = table("logistic", 500), np.full(8, 4.0)
    public = rows_of(rows).simulated
    first = method.rounds(model, method.mechanism(model, 4.0), public)
    releases = answered(first, model, rows, noise, 8)
    again = method.rounds(model, method.mechanism(model, 4.0), public)
    for each in releases:
        again.ask()
        record_release(again, each)
    assert again.done == first.done == 7
    for one, other in zip(first.records, again.records, strict=True):
        assert np.array_equal(one.position, other.position)
        assert np.array_equal(one.root, other.root)
    draws = [draw_posterior(model, each, np.random.default_rng(1)).draws for each in (first, again)]
    assert np.array_equal(*draws)


@pytest.mark.parametrize("slope", [0.0, np.nan])
def test_a_fit_whose_simulated_rows_tell_nothing_starts_as_if_there_were_none(slope):
    """It is charged by then, and must not end in an error of linear algebra."""
    model = Model(
        parameters={"w": Parameter((SIZE,))},
        log_prior=lambda params: dist.Normal().log_prob(params["w"]).sum(),
        log_likelihood=lambda params, row: slope * row["y"] * params["w"].sum(),
        simulate=lambda key, params, row: {"y": jax.random.normal(key)},  # noqa: ARG005
    ).unit_model
    method, simulated = Scoring(), rows_of(table("logistic", 9)).simulated
    found, without = (
        method.rounds(model, method.mechanism(model, 4.0), each).ask() for each in (simulated, None)
    )
    assert np.array_equal(found.to_metric, without.to_metric)


def test_rounds_need_no_rows():
    """What a fit is before and between its rounds follows from public numbers and releases alone."""
    rng = np.random.default_rng(0)
    simulated = rng.normal(size=(200, 5, 2))
    rounds = Rounds(lambda _: simulated, [np.zeros(2)], [1.0] * 8, early=4, outcomes=4)
    for _ in range(8):
        asked = rounds.ask()
        assert np.sum(asked.shares**2) == pytest.approx(1)
        rounds.tell(
            split_release(100 + rng.normal(size=contribution_size(2)), 2, asked.shares, 1.0)
        )
    assert np.isfinite(rounds.likelihood(rng, 100).precision).all()


def test_the_clip_follows_the_noise_of_sums_over_all_units():
    """A tenth of the units with a tenth of the noise tells as much of all as all of them do."""
    simulated, clips = np.random.default_rng(0).normal(size=(200, 5, 2)), []
    for rate in (1.0, 0.1):
        noise = [50.0 * rate] * 8
        rounds = Rounds(lambda _: simulated, [np.zeros(2)], noise, early=4, outcomes=4, rate=rate)
        release = np.zeros(contribution_size(2))
        release[-1] = 1e5 * rate
        rounds.tell(split_release(release, 2, rounds.ask().shares, noise[0], rate))
        clips.append(rounds.ask().clip)
    assert np.sqrt(2) < clips[0] < 5 * np.sqrt(2)  # neither the tightest nor the loosest
    assert clips[1] == pytest.approx(clips[0])


@pytest.mark.parametrize("seen", [-300.0, 3.0])
def test_a_count_below_zero_is_none(seen):
    """Noise may make it anything; what follows divides by it."""
    rounds = Rounds(lambda _: np.ones((9, 5, 1)), [np.zeros(1)], [1.0] * 8, early=4, outcomes=4)
    asked = rounds.ask()
    release = np.zeros(contribution_size(1))
    release[-1] = seen
    rounds.tell(split_release(release, 1, asked.shares, 400.0))
    assert rounds.units == MIN_UNITS
    assert np.isfinite(rounds.ask().to_metric).all()


def test_simulated_rows_follow_from_the_schema_alone():
    columns = {"x": tacit.Number(-1, 3), "k": tacit.Category(["a", "b"])}
    schema = tacit.Schema(columns, person="who", most_rows=4)

    def simulated(count):
        rng = np.random.default_rng(count)
        table = {
            "x": rng.uniform(-1, 3, count),
            "k": np.array(["a", "b"])[rng.integers(2, size=count)],
            "who": rng.integers(5, size=count),
        }
        return encode_rows(schema, ["x", "k"], table).simulated

    first, second = (jax.tree.leaves(simulated(count)) for count in (7, 90))
    assert all(np.array_equal(one, other) for one, other in zip(first, second, strict=True))
    people = simulated(7)
    assert people.present.shape == (250, 4)
    assert set(people.present.sum(axis=1)) == {1, 2, 3, 4}
    assert np.unique(people.fields["k"]).size >= 2
    assert (people.fields["x"] >= -1).all()
    assert (people.fields["x"] <= 3).all()


def far_too_wide():
    """Outcomes of a thousandth of what the prior expects."""
    rows = table("linear", FEW, seed=4)
    return rows | {"y": rows["y"] / 1000}


@pytest.mark.parametrize("seed", range(3))
def test_a_fit_that_has_not_arrived_says_so(seed):
    """The scale is far below where rounds start, and so few cannot get there."""
    model, rows = regression("linear"), rows_of(far_too_wide())
    post = tacit.fit(model, rows, budget=BUDGET, method=Scoring(num_steps=8), seed=seed)
    exact = fit_without_privacy(model, rows)
    assert about_exact(exact, post)[0].max() > 4
    assert post.converged is False
    assert "take more rounds" in post.messages[0]
    assert "DID NOT CONVERGE" in str(post.summary())


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_so_does_one_whose_bounds_are_far_too_wide(seed):
    post = tacit.fit(regression("linear"), rows_of(far_too_wide()), budget=MORE, seed=seed)
    assert post.converged is False
    assert "Narrow bounds" in post.messages[0]


def varied_counts(size):
    rng = np.random.default_rng(7)
    rows = table("poisson", size, seed=7)
    counts = rng.poisson(np.exp(rows["x"] @ TRUTH["w"]) * rng.gamma(0.2, 5.0, size))
    return rows | {"y": counts.astype(np.float32)}


def test_counts_that_vary_more_are_said_and_others_are_not():
    model, size, budget = regression("poisson"), 6_000, tacit.Budget(8, 1e-6)
    plain = tacit.fit(model, rows_of(table("poisson", size)), budget=budget, seed=1)
    varied = tacit.fit(model, rows_of(varied_counts(size)), budget=budget, seed=1)
    assert not any("Outcomes vary" in each for each in plain.messages)
    assert any("Outcomes vary about" in each for each in varied.messages)
    assert (varied.sd()["w"] > 1.2 * plain.sd()["w"]).all()


@lru_cache
def many_fits():
    """Posteriors of 24 tables at epsilon 1."""
    rows = [rows_of(table("logistic", 1000, seed=100 + i)) for i in range(24)]
    return fit_many(regression("logistic"), rows, [BUDGET] * 24, seeds=list(range(24)))


def test_intervals_hold_the_truth_about_as_often_as_they_say():
    ends = np.array([np.quantile(post.draws["w"], [0.05, 0.95], axis=0) for post in many_fits()])
    inside = (ends[:, 0] < TRUTH["w"]) & (TRUTH["w"] < ends[:, 1])
    assert 0.78 <= inside.mean() <= 0.99
    assert all(post.intervals == Intervals.INCLUDED for post in many_fits())
    assert sum(post.converged for post in many_fits()) >= 23


def test_no_right_model_is_said_to_be_wrong():
    assert not any("Outcomes vary" in each for post in many_fits() for each in post.messages)


def test_many_fits_are_the_single_ones_and_seeds_repeat_them():
    def single():
        rows = rows_of(table("logistic", 1000, seed=105))
        return tacit.fit(regression("logistic"), rows, budget=BUDGET, seed=5)

    first = single()
    assert first == single()
    assert first == many_fits()[5]


def test_a_model_that_cannot_draw_outcomes_goes_the_other_way():
    model = regression("logistic")
    mute = Model(
        parameters=model.source.parameters,
        log_prior=model.source.log_prior,
        log_likelihood=model.source.log_likelihood,
    ).unit_model
    rows = Rows(table("logistic", 50))
    with pytest.raises(InvalidArgument, match="cannot draw its outcomes"):
        tacit.fit(mute, rows, budget=BUDGET, method=Scoring())
    assert default_method(mute) == tacit.Variational()
    assert default_method(model) == Scoring()


def test_so_does_one_of_too_many_parameters():
    assert default_method(wide(MAX_DIMENSION)) == Scoring()
    over = MAX_DIMENSION + 1
    words = rf"this model has {over}; use tacit.Variational"
    with pytest.raises(InvalidArgument, match=words):
        Scoring().calibrate(wide(over), BUDGET)
    assert default_method(wide(over)) == tacit.Variational()


GROUPS = tacit.Schema({"clinic": tacit.Category(["a", "b", "c", "d"]), "y": tacit.Number(-9, 9)})


def centred(clinic, y=None):
    spread = numpyro.sample("spread", dist.HalfNormal(1.5))
    with numpyro.plate("clinics", 4):
        level = numpyro.sample("level", dist.Normal(0, spread))
    with numpyro.plate("rows", len(clinic)):
        numpyro.sample("y", dist.Normal(level[clinic], 1.0), obs=y)


def test_a_prior_that_is_not_normal_is_known_to_be():
    space = whiten_prior(adapt_model(centred, GROUPS))
    assert not space.quadratic
    assert np.isfinite(space.mean).all()
    assert np.isfinite(space.scale).all()
    assert np.linalg.cond(space.scale) < 1e3


@pytest.mark.slow
def test_a_prior_that_is_not_normal_stays_the_prior():
    method = Scoring(num_steps=8)
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
    post = tacit.fit(centred, data, schema=GROUPS, budget=BUDGET, seed=0)
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
    drawn = final_states(density, shapes, None, starts, roots, jax.random.key(1))
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
    for wrong in ({"num_steps": 7}, {"sampling_rate": 0.0}, {"num_outcomes": 1}):
        with pytest.raises(InvalidArgument, match=next(iter(wrong))):
            Scoring(**wrong)


def test_the_plan_is_as_charged():
    model = regression("logistic")
    release = Scoring().calibrate(model, BUDGET)
    assert isinstance(release, NoisySums)
    assert release.secrets
    assert release.clip == 1
    assert release.dimension == contribution_size(SIZE)
    (counting, once), (louder, early), (noise, late) = release.phases
    assert counting > louder > noise
    assert once == 1
    assert once + early + late == release.num_steps == 29
    # The count takes a hundredth of what noise alone decides on.
    spent = [steps / scale**2 for scale, steps in release.phases]
    assert spent[0] == pytest.approx(0.01 * sum(spent))

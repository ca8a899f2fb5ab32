"""NumPyro's automatic guides find what the Gaussian families find, and flows more."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.infer import autoguide

from tacit import Model, Rows, Variational, fit_without_privacy
from tacit.errors import InvalidArgument
from tacit.inference.guides import AutoGuide
from tacit.models import Parameter

RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 3)) @ np.array([[1, 0.8, 0], [0, 0.6, 0], [0, 0, 1]])
Y = X @ [1.0, -1.0, 0.5] + RNG.normal(size=300)
PRECISION = X.T @ X + np.eye(3)
MEAN = np.linalg.solve(PRECISION, X.T @ Y)
COVARIANCE = np.linalg.inv(PRECISION)
MODEL = Model(
    # Not in the order of the alphabet, which is the one JAX flattens in.
    parameters={"z": Parameter((1,)), "a": Parameter((2,))},
    log_prior=lambda p: -0.5 * (jnp.sum(p["z"] ** 2) + jnp.sum(p["a"] ** 2)),
    log_likelihood=lambda p, row: (
        -0.5 * (row["y"] - jnp.dot(row["x"], jnp.concatenate([p["z"], p["a"]]))) ** 2
    ),
).unit_model
ROWS = Rows({"x": X, "y": Y})


def fitted(guide, steps=3000):
    method = Variational(
        guide=guide, sampling_rate=1.0, num_steps=steps, clip=300.0, learning_rate=0.01
    )
    post = fit_without_privacy(MODEL, ROWS, method=method)
    return post, np.concatenate([post.draws["z"], post.draws["a"]], axis=1)


@pytest.mark.parametrize(
    "guide",
    [
        pytest.param(autoguide.AutoMultivariateNormal, marks=pytest.mark.slow),
        pytest.param(
            lambda model: autoguide.AutoLowRankMultivariateNormal(model, rank=2),
            marks=pytest.mark.slow,
        ),
        pytest.param(autoguide.AutoIAFNormal, marks=pytest.mark.slow),
    ],
)
def test_finds_the_posterior_with_its_correlation(guide):
    post, draws = fitted(guide)
    sd = np.sqrt(np.diag(COVARIANCE))
    assert np.abs(draws.mean(axis=0) - MEAN).max() < 0.4 * sd.min()
    assert np.cov(draws.T) == pytest.approx(COVARIANCE, abs=0.3 * sd.max() ** 2)
    assert post.unconstrained_covariance is None


def test_diagonal_finds_the_mean_and_conditional_widths():
    _, draws = fitted(autoguide.AutoDiagonalNormal)
    assert draws.mean(axis=0) == pytest.approx(MEAN, abs=0.03)
    assert draws.std(axis=0) == pytest.approx(np.diag(PRECISION) ** -0.5, rel=0.2)


@pytest.mark.slow
def test_block_flow_is_normal_where_the_posterior_is():
    _, draws = fitted(autoguide.AutoBNAFNormal, steps=1500)
    assert draws.mean(axis=0) == pytest.approx(MEAN, abs=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [autoguide.AutoMultivariateNormal, autoguide.AutoIAFNormal])
def test_draws_and_entropy_are_those_of_the_guide(kind):
    guide = AutoGuide(kind)
    params = guide.start(4)
    noise = jax.random.normal(jax.random.key(1), (4,))
    slope = jnp.linalg.slogdet(jax.jit(jax.jacobian(lambda z: guide.draw(params, z)))(noise))[1]
    assert guide.entropy(params, noise) == pytest.approx(float(slope), abs=1e-4)


@pytest.mark.parametrize(
    "kind",
    [
        autoguide.AutoDiagonalNormal,
        pytest.param(autoguide.AutoBNAFNormal, marks=pytest.mark.slow),
    ],
)
def test_a_start_moves_every_guide(kind):
    guide, centre = AutoGuide(kind), jnp.array([1.0, -2.0, 3.0])
    there = guide.draw(guide.recentre(guide.start(3), centre), jnp.zeros(3))
    moved = np.asarray(there - guide.draw(guide.start(3), jnp.zeros(3)))
    assert moved == pytest.approx(np.asarray(centre), abs=1e-5)


@pytest.mark.parametrize(
    ("guide", "words"),
    [
        (autoguide.AutoDelta, "AutoDelta has no reparametrised draw"),
        (autoguide.AutoLaplaceApproximation, "has no reparametrised draw"),
        (lambda _: None, "NoneType has no reparametrised draw"),
    ],
)
def test_refuses_what_has_no_draw(guide, words):
    with pytest.raises(InvalidArgument, match=words):
        AutoGuide(guide).start(2)
    with pytest.raises(InvalidArgument, match="A flow needs two"):
        AutoGuide(autoguide.AutoIAFNormal).start(1)


def test_refuses_a_guide_made_for_a_model():
    with pytest.raises(InvalidArgument, match="the class of a NumPyro autoguide"):
        Variational(guide=autoguide.AutoDiagonalNormal(lambda: None))

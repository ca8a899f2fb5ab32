import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tacit
from tacit.errors import InvalidArgument
from tacit.inference.maximum_entropy import (
    LogLinear,
    NoisyMoments,
    draw_posterior,
    released_moments,
)

# A cycle: elimination has to join columns that share no table.
CYCLE = LogLinear(
    ("a", "b", "c", "d"),
    (2, 3, 2, 4),
    (("a",), ("b",), ("c",), ("d",), ("a", "b"), ("b", "c"), ("c", "d"), ("a", "d")),
)


def enumerated(model):
    """All cells, and the contrasts of each."""
    cells = list(itertools.product(*map(range, model.sizes)))
    lines = []
    for cell in cells:
        at = dict(zip(model.names, cell, strict=True))
        rows = {name: model.contrasts(name)[at[name]] for name in model.names}
        products = (itertools.product(*(rows[name] for name in part)) for part in model.parts)
        lines.append([np.prod(each) for product in products for each in product])
    return cells, np.array(lines)


def test_log_normaliser_mean_and_covariance_are_those_of_all_cells():
    theta = np.random.default_rng(1).normal(size=CYCLE.dimension)
    _, contrasts = enumerated(CYCLE)
    weights = np.exp(contrasts @ theta)
    shares = weights / weights.sum()
    with jax.enable_x64(True):
        at = jnp.asarray(theta)
        found = jax.jit(jax.value_and_grad(CYCLE.log_normaliser))(at)
        hessian = np.asarray(jax.jit(jax.hessian(CYCLE.log_normaliser))(at))
    np.testing.assert_allclose(float(found[0]), np.log(weights.sum()), rtol=1e-12)
    np.testing.assert_allclose(found[1], shares @ contrasts, atol=1e-12)
    np.testing.assert_allclose(hessian, np.cov(contrasts.T, aweights=shares, ddof=0), atol=1e-12)


def test_samples_have_the_shares_of_all_cells():
    theta = np.random.default_rng(2).normal(size=CYCLE.dimension)
    cells, contrasts = enumerated(CYCLE)
    weights = np.exp(contrasts @ theta)
    drawn = CYCLE.sample(theta, 200_000, np.random.default_rng(3))
    places = np.ravel_multi_index([drawn[name] for name in CYCLE.names], CYCLE.sizes)
    shares = np.bincount(places, minlength=len(cells)) / 200_000
    expected = weights / weights.sum()
    assert (np.abs(shares - expected) < 5 * np.sqrt(expected / 200_000) + 1e-5).all()


def test_large_models_are_refused_by_public_facts():
    names = tuple("abcdefgh")
    pairs = tuple(itertools.combinations(names, 2))
    model = LogLinear(names, (9,) * 8, (*((each,) for each in names), *pairs))
    with pytest.raises(InvalidArgument, match=r"join a, b, c, .* cells together"):
        model.check_size()
    LogLinear(names, (9,) * 8, tuple((each,) for each in names)).check_size()


@pytest.mark.parametrize("complete", [(), ("age",), ("age", "ill", "ward")])
def test_released_answers_are_those_of_the_rows(complete):
    rng = np.random.default_rng(4)
    rows = 3000
    table = {
        "ward": rng.choice(["a", "b", "c"], rows, p=[0.2, 0.5, 0.3]),
        "ill": rng.integers(0, 2, rows),
        "age": rng.uniform(0, 80, rows),
    }
    kinds = {
        "ward": tacit.Category(["a", "b", "c"]),
        "ill": tacit.Binary(),
        "age": tacit.Number(0, 80),
    }
    look = tacit.explore(
        table, schema=tacit.Schema(kinds), tables=[("ward", "ill"), ("age", "ill")],
        bins={"age": [20, 40, 60]}, epsilon=20, seed=1,
    )  # fmt: skip
    model, moments = released_moments(look.estimates, complete)
    cells = {
        "ward": np.array(["abc".index(each) for each in table["ward"]]),
        "ill": table["ill"],
        "age": (table["age"] // 20).astype(int),
    }
    sums = []
    for part in model.parts:
        product = np.ones((rows, 1))
        for name in part:
            own = model.contrasts(name)[cells[name]]
            product = (product[:, :, None] * own[:, None, :]).reshape(rows, -1)
        sums.append(product.sum(axis=0))
    expected = rows * moments.constant + moments.matrix @ np.concatenate(sums)
    off = (moments.answers - expected) / np.sqrt(moments.variances)
    assert np.abs(off).max() < 4.5
    assert 0.5 < np.std(off) < 1.6


def test_draws_have_the_posterior_of_a_grid():
    model = LogLinear(("a",), (2,), (("a",),))
    # 60 rows, of which 48 are in the first cell, with noise; contrasts are +-1 / sqrt(2)
    root = 2**-0.5
    moments = NoisyMoments(
        np.array([36.0 * root]), np.array([25.0]), np.zeros(1), np.eye(1), 60.0, 16.0, model.prior_std
    )  # fmt: skip
    theta, rows = np.meshgrid(np.linspace(-1, 6, 1401), np.linspace(35, 85, 301), indexing="ij")
    share = 1 / (1 + np.exp(-2 * root * theta))
    variance = rows * 2 * share * (1 - share) + 25
    log = (
        -((moments.answers[0] - rows * root * (2 * share - 1)) ** 2) / (2 * variance)
        - np.log(variance) / 2
        - (60 - rows) ** 2 / 32
        - theta**2 / (2 * model.prior_std[0] ** 2)
    )
    weights = np.exp(log - log.max())
    weights /= weights.sum()
    drawn = draw_posterior(model, moments, 500)
    shares = 1 / (1 + np.exp(-2 * root * drawn.theta[:, 0]))
    for found, grid in ((shares, share), (drawn.rows, rows)):
        mean = (weights * grid).sum()
        sd = np.sqrt((weights * (grid - mean) ** 2).sum())
        assert abs(found.mean() - mean) < 0.25 * sd
        assert 0.8 < found.std() / sd < 1.25
    assert not drawn.messages

"""Natural parameters against densities that SciPy integrates or draws."""

import numpy as np
import pytest
from scipy import stats

from tacit.errors import InvalidArgument
from tacit.models.exponential_families import (
    STEP_FRACTION,
    DiagonalGaussian,
    Dirichlet,
    FullGaussian,
    Gamma,
    NormalInverseGamma,
    kl_divergence,
)

RNG = np.random.default_rng(0)


def spread(size):
    root = RNG.normal(size=(size, size))
    return root @ root.T + 0.1 * np.eye(size)


@pytest.mark.parametrize("family", [DiagonalGaussian(3), FullGaussian(3)])
def test_moments_come_back(family):
    mean = RNG.normal(size=3)
    covariance = spread(3) if isinstance(family, FullGaussian) else np.diag([0.5, 2.0, 9.0])
    eta = family.from_moments(mean, covariance)
    assert eta.shape == (family.size,)
    assert family.is_proper(eta)
    assert family.mean(eta) == pytest.approx(mean, rel=1e-12)
    assert family.covariance(eta) == pytest.approx(covariance, rel=1e-10, abs=1e-12)
    draws = family.draws(eta, 200_000, np.random.default_rng(1))
    assert np.cov(draws.T) == pytest.approx(covariance, abs=0.03 * covariance.max())


@pytest.mark.parametrize("family", [DiagonalGaussian(2), FullGaussian(2)])
def test_a_sum_is_the_product_of_densities(family):
    one = family.from_moments([0.0, 1.0], np.diag([1.0, 2.0]))
    matrix = spread(2) if isinstance(family, FullGaussian) else np.diag([0.3, 4.0])
    other = family.from_moments([2.0, -1.0], matrix)
    product = one + other
    points = RNG.normal(size=(5, 2))
    densities = [
        stats.multivariate_normal(family.mean(e), family.covariance(e)).logpdf(points)
        for e in (one, other, product)
    ]
    ratio = densities[0] + densities[1] - densities[2]  # a constant: the product is unnormalised
    assert ratio == pytest.approx(np.full(5, ratio[0]), rel=1e-9)
    assert family.mean(product - other) == pytest.approx(family.mean(one), abs=1e-12)


def by_draws(family, one, other, log_density):
    draws = family.draws(one, 400_000, np.random.default_rng(2))
    terms = log_density(one, draws) - log_density(other, draws)
    return terms.mean(), terms.std() / len(terms) ** 0.5


def gaussian_density(family):
    def log_density(eta, draws):
        frozen = stats.multivariate_normal(family.mean(eta), family.covariance(eta))
        return frozen.logpdf(draws)

    return log_density


def regression_density(eta, draws):
    """Weights and a variance, by the textbook's normal-inverse-gamma density."""
    matrix, shape = NormalInverseGamma(2).split(eta)
    mean = np.linalg.solve(matrix[:2, :2], matrix[:2, 2])
    scale = (matrix[2, 2] - mean @ matrix[:2, 2]) / 2
    variance, left = draws[:, 2], draws[:, :2] - mean
    normal = -np.einsum("ni,ij,nj->n", left, matrix[:2, :2], left) / (2 * variance)
    normal += np.linalg.slogdet(matrix[:2, :2])[1] / 2 - np.log(2 * np.pi * variance)
    return normal + stats.invgamma(shape, scale=scale).logpdf(variance)


CASES = {
    "diagonal": (
        DiagonalGaussian(2),
        DiagonalGaussian(2).from_moments([0.0, 1.0], [1.0, 0.5]),
        DiagonalGaussian(2).from_moments([1.0, 1.0], [2.0, 3.0]),
        gaussian_density(DiagonalGaussian(2)),
    ),
    "full": (
        FullGaussian(2),
        FullGaussian(2).from_moments([0.0, 1.0], [[1.0, 0.4], [0.4, 0.5]]),
        FullGaussian(2).from_moments([1.0, 1.0], [[2.0, -0.5], [-0.5, 3.0]]),
        gaussian_density(FullGaussian(2)),
    ),
    "gamma": (
        Gamma(),
        np.array([3.0, 2.0]),
        np.array([5.0, 1.0]),
        lambda eta, x: stats.gamma(eta[0], scale=1 / eta[1]).logpdf(x[:, 0]),
    ),
    "dirichlet": (
        Dirichlet(3),
        np.array([3.0, 2.0, 4.0]),
        np.array([1.0, 5.0, 2.0]),
        lambda eta, x: stats.dirichlet(eta).logpdf(x.T),
    ),
    "normal-inverse-gamma": (
        NormalInverseGamma(2),
        NormalInverseGamma(2).from_prior([0.5, -1.0], [[2.0, 0.5], [0.5, 1.0]], 5.0, 3.0),
        NormalInverseGamma(2).from_prior([0.0, 1.0], [[1.0, -0.2], [-0.2, 3.0]], 4.0, 2.0),
        regression_density,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_divergence_is_the_mean_log_ratio(case):
    family, one, other, log_density = CASES[case]
    mean, error = by_draws(family, one, other, log_density)
    assert kl_divergence(family, one, other) == pytest.approx(mean, abs=5 * error)
    assert kl_divergence(family, one, one) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("case", CASES)
def test_expectations_are_the_slope_of_the_log_partition(case):
    family, one, _, _ = CASES[case]
    steps = 1e-6 * np.eye(family.size)
    slope = [(family.log_partition(one + s) - family.log_partition(one - s)) / 2e-6 for s in steps]
    assert family.expected_statistics(one) == pytest.approx(slope, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("case", CASES)
def test_the_largest_step_goes_nearly_to_the_edge(case):
    family, one, _, _ = CASES[case]
    rng = np.random.default_rng(3)
    for _ in range(50):
        change = 20 * rng.normal(size=family.size)
        share = family.largest_step(one, change)
        assert ((share > 0) & (share <= 1)).all()
        assert family.is_proper(one + share * change)
        beyond = np.where(share < 1, share * 1.0001 / STEP_FRACTION, 1)
        assert (share == 1).all() or not family.is_proper(one + beyond * change)
    assert (family.largest_step(one, np.full(family.size, np.nan)) == 0).all()


def test_an_independent_coordinate_is_held_back_alone():
    family = DiagonalGaussian(2)
    eta = family.from_moments([0, 0], [1, 1])
    share = family.largest_step(eta, family.join([-2, 5], [1, 1]))
    assert share == pytest.approx([0.45, 1, 0.45, 1])


def test_improper_factors_are_vectors_all_the_same():
    family = FullGaussian(2)
    factor = family.join(-np.eye(2), [0.0, 1.0])
    assert not family.is_proper(factor)
    assert family.is_proper(family.from_moments([0, 0], 0.5 * np.eye(2)) + factor)


def test_a_clip_means_the_same_for_a_matrix_in_any_direction():
    family = FullGaussian(3)
    turn, _ = np.linalg.qr(RNG.normal(size=(3, 3)))
    matrix = spread(3)
    lengths = [
        np.linalg.norm(family.join(each, np.zeros(3))) for each in (matrix, turn @ matrix @ turn.T)
    ]
    assert lengths[0] == pytest.approx(lengths[1], rel=1e-12)
    assert lengths[0] == pytest.approx(np.linalg.norm(matrix), rel=1e-12)


def test_vectors_of_another_size_are_refused():
    with pytest.raises(InvalidArgument, match="4 numbers"):
        DiagonalGaussian(2).mean(np.ones(3))


def test_rows_of_a_regression_add_up_to_the_textbook_posterior():
    family, prior = NormalInverseGamma(2), ([1.0, 0.0], np.diag([0.5, 2.0]), 3.0, 1.5)
    z = np.column_stack([np.ones(30), RNG.normal(size=30)])
    y = z @ [2.0, -1.0] + 0.3 * RNG.normal(size=30)
    rows = sum(family.from_prior(np.zeros(2), np.zeros((2, 2)), 0.5, 0.0) for _ in y)
    v = np.column_stack([z, y])
    matrix = v.T @ v
    rows[:-1] = matrix[np.tril_indices(3)] * np.where(np.eye(3)[np.tril_indices(3)], 1, 2**0.5)
    mean, precision, shape, scale = prior
    after = precision + z.T @ z
    centre = np.linalg.solve(after, precision @ mean + z.T @ y)
    left = scale + (mean @ precision @ mean + y @ y - centre @ after @ centre) / 2
    expected = family.from_prior(centre, after, shape + 15, left)
    assert family.from_prior(*prior) + rows == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("case", CASES)
def test_a_vector_raised_to_another_is_nowhere_below_it(case):
    family, one, other, _ = CASES[case]
    assert family.at_least(one + other, one)[family.nonnegative] == pytest.approx(
        (one + other)[family.nonnegative]
    )
    raised = family.at_least(0.1 * one, one)
    assert raised[family.nonnegative] == pytest.approx(one[family.nonnegative])

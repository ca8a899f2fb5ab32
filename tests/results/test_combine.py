import numpy as np
import pytest
from scipy import stats

import tacit
from tacit.errors import InvalidArgument


def test_combined_estimates_by_hand():
    found = tacit.combine([1.0, 1.4, 1.2, 0.8], [0.02, 0.01, 0.01, 0.0], level=0.95)
    # b = 0.2 / 3, (1 + 1/4) b = 1/12, u = 0.01
    total, df = 1 / 12 - 0.01, 3 * (1 - 0.12) ** 2
    assert found.estimate[0] == pytest.approx(1.1)
    assert found.sd[0] == pytest.approx(total**0.5)
    assert found.df[0] == pytest.approx(df)
    expected = stats.t.interval(0.95, df, 1.1, total**0.5)
    np.testing.assert_allclose([found.lower[0], found.upper[0]], expected, rtol=1e-10)


def test_a_variance_that_is_not_positive_is_replaced():
    found = tacit.combine([[1.0, 0.0], [1.01, 4.0]], [[0.5, 0.1], [0.7, 0.1]], size_ratio=2)
    assert found.replaced == (True, False)
    assert found.sd[0] == pytest.approx(1.2**0.5)
    np.testing.assert_allclose(found.upper[0] - 1.005, stats.norm.ppf(0.95) * 1.2**0.5, rtol=1e-6)
    assert "take more sets" in str(found)
    assert found.to_dict()["estimates"][0]["df"] is None


def test_intervals_of_a_mean_cover_it_as_often_as_they_say():
    rng, covered = np.random.default_rng(5), []
    for _ in range(
        400
    ):  # a mean of 50 values and noise; a posterior; and synthetic tables from its draws
        known = rng.normal(0, (1 / 50 + 0.05) ** 0.5)
        centres = rng.normal(known, (1 / 50 + 0.05) ** 0.5, 40)
        tables = rng.normal(centres[:, None], 1.0, (40, 50))
        found = tacit.combine(tables.mean(axis=1), tables.var(axis=1, ddof=1) / 50)
        covered.append(found.lower[0] <= 0 <= found.upper[0])
    assert 0.85 < np.mean(covered) < 0.95


@pytest.mark.parametrize(
    ("estimates", "variances"),
    [([1.0], [1.0]), ([1.0, 2.0], [1.0]), ([1.0, np.nan], [1.0, 1.0]), ([1, 2], [-1, 1]), ("ab", [1])],
)  # fmt: skip
def test_what_cannot_be_combined_is_refused(estimates, variances):
    with pytest.raises(InvalidArgument):
        tacit.combine(estimates, variances)

"""A sum of rounded normals: near what the Gaussian mechanism's theorem is about, not it."""

import math

import numpy as np
import pytest
from scipy.special import ndtr

from tacit.errors import InvalidArgument
from tacit.privacy.distributed import extra_delta, share_distance


def rounded(std, reach):
    edges = np.arange(-reach, reach + 2) - 0.5
    upper = ndtr(-np.abs(edges) / std)  # the tail beyond an edge, to full precision
    cumulative = np.where(edges < 0, upper, 1 - upper)
    chances = np.diff(cumulative)
    right = edges[:-1] > 0
    chances[right] = (upper[:-1] - upper[1:])[right]
    return chances


def sums(chances, count):
    total = chances
    for _ in range(count - 1):
        total = np.convolve(total, chances)
    return total


def with_uniforms(std, count, reach):
    """Chances of round(sqrt(count) std Z + sum of count - 1 uniforms), from their transform."""
    step = 2 * math.pi / 1000  # sums over frequencies repeat after 1000 whole numbers
    frequency = np.arange(-20 / std, 20 / std, step)  # beyond, at most exp(-400)
    transform = (
        np.exp(-count * (std * frequency) ** 2 / 2) * np.sinc(frequency / 2 / math.pi) ** count
    )
    places = np.arange(-reach, reach + 1)
    return np.cos(np.outer(places, frequency)) @ transform * step / (2 * math.pi)


def difference(std, count, reach=40):
    shares = sums(rounded(std, reach), count)
    middle = len(shares) // 2
    shares = shares[middle - reach : middle + reach + 1]
    return float(np.abs(shares - with_uniforms(std, count, reach)).sum() / 2)


@pytest.mark.parametrize("count", [2, 3, 8])
@pytest.mark.parametrize("std", [0.3, 0.5, 0.7, 0.9, 1.2])
def test_the_bound_is_above_the_distance(std, count):
    assert with_uniforms(std, count, 40).sum() == pytest.approx(1, abs=1e-9)
    assert difference(std, count) <= share_distance(std, count) + 1e-12


def test_shares_of_few_lattice_points_are_really_no_rounded_normal():
    # With a deviation of 0.2 nearly all shares are zero: nothing is protected.
    assert difference(0.2, 8) > 0.2
    assert share_distance(0.2, 8) == 1


def test_the_bound_falls_as_fast_as_the_distance():
    slope = {of: math.log(of(1.2, 2) / of(0.9, 2)) for of in (difference, share_distance)}
    assert slope[share_distance] == pytest.approx(slope[difference], rel=0.2)
    assert slope[difference] == pytest.approx(-(math.pi**2) * (1.2**2 - 0.9**2), rel=0.2)


def test_one_share_is_the_mechanism_itself_and_many_points_leave_nothing():
    assert share_distance(0.1, 1) == 0
    assert extra_delta(8.0, 50, numbers=10**6, epsilon=10) < 1e-250
    assert extra_delta(100.0, 50, numbers=10**6, epsilon=1e4) < 1e-250
    assert extra_delta(8.0, 50, numbers=10**6, epsilon=1e4) == 1


@pytest.mark.parametrize(("std", "count"), [(0, 2), (-1, 2), (1, 0)])
def test_senseless_shares_are_refused(std, count):
    with pytest.raises(InvalidArgument):
        share_distance(std, count)

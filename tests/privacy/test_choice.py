"""Draws from a finite set: the right probabilities, whichever arithmetic decides."""

import numpy as np
import pytest
from scipy import stats

from tacit.privacy.noise import Randomness
from tacit.privacy.one_draw.exact import exact_categorical


def whole(*values):
    return np.array(values, np.int64)


def fits(drawn, probabilities):
    """Whether counts agree with probabilities, at one in ten thousand."""
    counts = np.bincount(drawn, minlength=len(probabilities))
    return stats.chisquare(counts, len(drawn) * np.asarray(probabilities)).pvalue > 1e-4


def test_probabilities_are_those_of_the_scores():
    rng = np.random.default_rng(0)
    coefficient, number = rng.normal(size=(2, 40)), rng.integers(-3, 4, (2, 40))
    drawn = exact_categorical(Randomness(0), list(zip(coefficient, number, strict=True)), 100_000)
    weights = np.exp((coefficient * number).sum(axis=0))
    assert fits(drawn, weights / weights.sum())


def test_where_double_precision_knows_nothing_high_precision_decides():
    # Scores near 1e20 that differ by a few units: their doubles are all the same.
    scores = [0, 1, 2, -1]
    terms = [
        (np.full(4, 1e4), np.full(4, 10**16)),
        (np.full(4, 0.5), whole(*(2 * s for s in scores))),
    ]
    drawn = exact_categorical(Randomness(1), terms, 4000)
    weights = np.exp(scores)
    assert fits(drawn, weights / weights.sum())


class Words:
    """Randomness that was decided beforehand."""

    def __init__(self, first, then):
        self.left = [first]
        self.then = then

    def words(self, count):
        drawn = [self.left.pop() if self.left else self.then for _ in range(count)]
        return np.array(drawn, np.uint64)


@pytest.mark.parametrize(
    ("first", "then", "expected"),
    [
        (2**62 - 1, 2**64 - 1, 0),  # just below a quarter, however many bits one looks at
        (2**62, 0, 1),
        (2**63 - 1, 2**64 - 1, 1),
        (2**63, 0, 2),
        (2**64 - 1, 2**64 - 1, 3),
        (0, 0, 0),
    ],
)
def test_next_to_an_edge_all_bits_count(first, then, expected):
    equal = [(np.zeros(4), whole(0, 0, 0, 0))]
    assert exact_categorical(Words(first, then), equal, 1)[0] == expected


def test_points_far_below_the_best_can_be_drawn():
    """The last point's weight, exp(-60) = 9e-27, is nothing to a double beside the first's."""
    terms = [(np.ones(2), whole(0, -60))]
    last = 2**64 - 1
    assert exact_categorical(Words(last, 0), terms, 1)[0] == 0  # 5e-20 below one
    assert exact_categorical(Words(last, last), terms, 1)[0] == 1

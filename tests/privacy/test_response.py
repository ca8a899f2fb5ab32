"""Randomised response: exact coins, the ratio bound, and what can be learnt from many."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from tacit.accounting import PLD, events
from tacit.errors import InvalidArgument, UnsupportedEvent
from tacit.papers.response import frequencies, randomised_response
from tacit.privacy.noise import Randomness, bernoulli

MANY = 400_000


class Given(Randomness):
    """Words that a test chooses."""

    def __init__(self, *words):
        super().__init__(0)
        self._given = list(words)

    def words(self, count):
        return np.array([self._given.pop(0) for _ in range(count)], dtype=np.uint64)


@pytest.mark.parametrize("chance", [1.0, 0.5, 1 / 3, 0.01, 1e-3])
def test_coins_have_their_chance(chance):
    heads = int(bernoulli(Randomness(1), chance, MANY).sum())
    assert stats.binomtest(heads, MANY, chance).pvalue > 1e-4


@pytest.mark.parametrize("chance", [0.3, 2.0**-30 * 1.1, 3e-40, 5e-324])
def test_coins_are_exact(chance):
    """The numbers just below and at the chance, bit by bit, for a chance of any size."""
    exact = Fraction(chance)
    words = 17
    for step, expected in ((-1, True), (0, False), (1, False)):
        value = exact.numerator * 2 ** (64 * words) // exact.denominator + step
        given = [(value >> (64 * (words - 1 - i))) % 2**64 for i in range(words)]
        assert bernoulli(Given(*given), chance, 1)[0] == expected


@pytest.mark.parametrize(("noise", "categories"), [(0.5, 2), (0.25, 3), (1.0, 4)])
def test_the_ratio_is_what_is_charged(noise, categories):
    """Chances of every output for every answer, measured; their ratio attains the bound."""
    shares = np.empty((categories, categories))
    for answer in range(categories):
        released = randomised_response(
            np.full(MANY, answer), noise, categories, Randomness(10 + answer)
        )
        shares[answer] = np.bincount(released, minlength=categories) / MANY
    expected = (1 - noise) * np.eye(categories) + noise / categories
    assert np.abs(shares - expected).max() < 4.5 / (2 * math.sqrt(MANY))
    ratios = np.log(shares[:, None] / shares[None, :])
    epsilon = PLD().epsilon(events.randomised_response(noise, categories), 0.0, "replace")
    # Standard error of a log ratio of shares no smaller than noise / categories.
    allowed = 4.5 * math.sqrt(2 / (MANY * noise / categories))
    assert ratios.max() == pytest.approx(epsilon, abs=allowed)


def test_two_coins_are_log_three():
    with pytest.raises(UnsupportedEvent):
        PLD().epsilon(events.randomised_response(0.5, 2), 0.0)
    epsilon = PLD().epsilon(events.randomised_response(0.5, 2), 0.0, "replace")
    assert epsilon == pytest.approx(math.log(3), rel=1e-9)


def test_shares_are_estimated_without_bias_and_with_their_error():
    truth = np.repeat([0, 1, 2], [1400, 500, 100])
    runs = [
        frequencies(randomised_response(truth, 0.4, 3, Randomness(seed)), 0.4, 3)
        for seed in range(300)
    ]
    estimates, errors = (np.array(each) for each in zip(*runs, strict=True))
    assert np.allclose(estimates.sum(axis=1), 1)
    spread = estimates.std(axis=0)
    away = estimates.mean(axis=0) - [0.7, 0.25, 0.05]
    assert (np.abs(away) < 4.5 * spread / math.sqrt(300)).all()
    assert (spread < errors.mean(axis=0) * 1.15).all()  # which allows for sampling, too
    assert (estimates[:, 2] < 0.02).any()  # not held at bounds, which would bias it


def test_one_answer_changes_one_output_only():
    answers = np.random.default_rng(0).integers(0, 3, size=500)
    other = answers.copy()
    other[123] = (other[123] + 1) % 3
    one, two = (randomised_response(each, 0.3, 3, Randomness(4)) for each in (answers, other))
    assert set(np.flatnonzero(one != two)) <= {123}


def test_without_a_seed_every_release_differs():
    answers = np.zeros(200, int)
    one, two = (randomised_response(answers, 1.0, 8) for _ in range(2))
    assert not np.array_equal(one, two)


def test_an_answer_outside_is_the_nearest_and_raises_nothing():
    released = randomised_response([-7, 2**62, 1], 1e-9, 3, Randomness(5))
    assert released.tolist() == [0, 2, 1]
    assert randomised_response(np.array([], int), 0.5, 2).shape == (0,)


@pytest.mark.parametrize("kind", ["bool", "int8", "uint8", "uint64", "int64"])
def test_any_whole_numbers_are_answers(kind):
    answers = np.array([0, 1, 1, 0]).astype(kind)
    assert randomised_response(answers, 1e-9, 1000, Randomness(6)).tolist() == [0, 1, 1, 0]


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (([0.5, 1.0], 0.5, 2), "whole numbers"),
        (([[0], [1]], 0.5, 2), r"shape is \(2, 1\)"),
        (([0, 1], 0.0, 2), "above 0"),
        (([0, 1], 0.5, 1), "at least 2"),
    ],
)
def test_refusals(arguments, found):
    with pytest.raises(InvalidArgument, match=found):
        randomised_response(*arguments)


def test_frequencies_of_nothing_are_refused():
    with pytest.raises(InvalidArgument, match="carry no information"):
        frequencies([0, 1], 1.0, 2)
    with pytest.raises(InvalidArgument, match="no answers"):
        frequencies(np.array([], int), 0.5, 2)

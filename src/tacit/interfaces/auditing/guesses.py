"""From guesses to a lower bound on epsilon, by counting alone.

A fair coin decides for each run which of two neighbouring data sets it has. An observer looks at
what was released and guesses the coin, or passes. Under (epsilon, delta) a guess is right with a
chance of at most e^epsilon / (1 + e^epsilon), but for runs of which each is lost with a chance of
at most delta. More right guesses than that allows are a contradiction. Nothing is assumed
of how the releases are distributed. `docs/audit.md` has the proof.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

# The part of the error probability that pays for the runs lost to delta.
_FOR_DELTA = 0.1
# Shares of the runs that an observer may guess on: the ones it is surest of.
_SHARES = np.geomspace(0.001, 1.0, 60)
_RIDGE, _ROUNDS = 1.0, 30
# How much less error than there is it plans with: on more guesses, so that luck matters less.
_CAUTION = 50

Floats = NDArray[np.float64]
Coins = NDArray[np.bool_]


@dataclass(frozen=True)
class Observer:
    """Log odds of the coin by what is seen of a run, and how sure it must be to guess."""

    weights: Floats
    centre: Floats
    spread: Floats
    least: float = 0.0

    def log_odds(self, seen: Floats) -> Floats:
        """Of heads, for each run."""
        odds: Floats = self.weights[0] + (seen - self.centre) / self.spread @ self.weights[1:]
        return odds

    def guesses(self, seen: Floats, coins: Coins) -> tuple[int, int]:
        """How many guesses are right, and how many there are."""
        odds = self.log_odds(seen)
        made = np.abs(odds) > self.least
        return int((made & ((odds > 0) == coins)).sum()), int(made.sum())


def lower_bound(right: float, guesses: float, runs: int, delta: float, error: float) -> float:
    """The largest epsilon that guesses contradict, with a chance of at most ``error`` to be wrong.

    Of ``runs`` runs, ``guesses`` were guessed on and ``right`` of them rightly. Zero if nothing
    is contradicted.
    """
    lost = stats.binom.isf(_FOR_DELTA * error, runs, delta)
    left = error - stats.binom.sf(lost, runs, delta)
    counted = right - lost
    if counted <= 0:
        return 0.0
    chance = stats.beta.ppf(left, counted, guesses - right + 1)
    return max(float(np.log(chance) - np.log1p(-chance)), 0.0)


def trained(seen: Floats, coins: Coins, fresh: int, delta: float, error: float) -> Observer:
    """An observer that has learned from some runs, for ``fresh`` others.

    It guesses where it expects the highest bound from that. Whatever it learns, the bound holds:
    the others are new to it.
    """
    spread = seen.std(axis=0)
    centre, spread = seen.mean(axis=0), np.where(spread > 0, spread, 1.0)
    standard = np.column_stack([np.ones(len(seen)), (seen - centre) / spread])
    weights = _logistic_regression(standard, coins)
    sure = np.sort(np.abs(standard @ weights))[::-1]
    places = np.unique(np.ceil(_SHARES * (len(sure) - 1)).astype(int))
    right = np.cumsum(special.expit(sure))[places - 1] / len(sure) * fresh
    bounds = [
        lower_bound(r, p / len(sure) * fresh, fresh, delta, error / _CAUTION)
        for r, p in zip(right, places, strict=True)
    ]
    return Observer(weights, centre, spread, float(sure[places[int(np.argmax(bounds))]]))


def _logistic_regression(inputs: Floats, coins: Coins) -> Floats:
    """Weights by Newton's steps, held a little towards zero so that they exist."""
    weights = np.zeros(inputs.shape[1])
    for _ in range(_ROUNDS):
        chance = special.expit(inputs @ weights)
        slope = inputs.T @ (coins - chance) - _RIDGE * weights
        curve = (inputs.T * (chance * (1 - chance))) @ inputs + _RIDGE * np.eye(len(weights))
        weights = weights + np.linalg.solve(curve, slope)
    return weights

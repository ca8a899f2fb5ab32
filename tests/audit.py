"""What audits share: can two worlds be told apart better than was claimed?

A score of a whole transcript gives a test of "in or out". Its error rates, bounded with
Clopper and Pearson, must not fall below the claimed trade-off curve. Half of the transcripts
choose a threshold; the other half bounds what it does.
"""

import numpy as np
from scipy import stats

from tacit.accounting import PLD

CONFIDENCE = 1e-4  # of a false alarm, over all scores and thresholds of one audit


def tradeoff_of(points):
    """Least false negatives at given false positives, by (epsilon, delta) that all hold."""
    epsilons, deltas = np.asarray(points, float).T

    def tradeoff(false_positives):
        a = np.asarray(false_positives)[..., None]
        steep = 1 - deltas - np.exp(epsilons) * a
        flat = np.exp(-epsilons) * (1 - deltas - a)
        return np.maximum(np.maximum(steep, flat).max(axis=-1), 0)

    return tradeoff


def claimed_tradeoff(event, adjacency="add-remove", most=12.0):
    """The same of what was charged: an event, by its whole curve."""
    epsilons = np.linspace(0, most, 61)
    return tradeoff_of([(e, PLD().delta(event, e, adjacency)) for e in epsilons])


def contradictions(inside, outside, tradeoff, confidence=CONFIDENCE):
    """Names of the scores whose error rates are certainly below the claim.

    ``inside`` and ``outside`` map names to scores, one of each transcript; larger means that
    the canary is more likely in.
    """
    alpha = confidence / len(inside) / 2
    return [name for name in inside if _below(inside[name], outside[name], tradeoff, alpha)]


def _below(inside, outside, tradeoff, alpha):
    (choose_in, fresh_in), (choose_out, fresh_out) = (_halves(s) for s in (inside, outside))
    tried = np.unique(np.concatenate([choose_in, choose_out]))
    tried = tried[:: max(len(tried) // 400, 1)]
    positives = (choose_out[:, None] > tried).mean(axis=0)
    negatives = (choose_in[:, None] <= tried).mean(axis=0)
    threshold = tried[np.argmax(tradeoff(positives) - negatives)]
    false_positives = _upper(int((fresh_out > threshold).sum()), len(fresh_out), alpha)
    false_negatives = _upper(int((fresh_in <= threshold).sum()), len(fresh_in), alpha)
    return bool(false_negatives < tradeoff(false_positives))


def _halves(scores):
    half = len(scores) // 2
    return scores[:half], scores[half:]


def _upper(errors, trials, alpha):
    return stats.beta.ppf(1 - alpha, errors + 1, trials - errors) if errors < trials else 1.0


def log_ratio(x, rate, scale):
    """Of a sampled Gaussian mechanism: steps along the last axis, in units of the clip."""
    return np.log1p(rate * np.expm1((2 * x - 1) / (2 * np.square(scale)))).sum(axis=-1)

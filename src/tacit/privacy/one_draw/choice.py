"""Exact draws from a finite set, with weights that are exponentials of sums.

As with noise, floating point only ever decides what it is sure of, by a bound on its own
error; high-precision arithmetic decides the rest, on the same random number with more bits
(PROOFS.md, Lemma 6).
"""

from collections.abc import Sequence
from typing import Final

import mpmath
import numpy as np

from tacit.privacy.noise import PRECISION, Floats, Integers, Randomness, Uniforms

# A score is a sum of products: of a public coefficient and a private whole number.
Term = tuple[Floats, Integers]
BITS: Final = 400


def choose(bits: Randomness, terms: Sequence[Term], count: int) -> Integers:
    """Independent draws of j with probability proportional to exp(score of j).

    The score of j is the sum over ``terms`` of coefficient[j] x number[j], a real number. All
    arrays have one entry for each j. [choice-edges]
    """
    scores, doubt = _scores(terms)
    edges = np.cumsum(np.exp(scores - scores.max()))
    uniform = Uniforms(bits.words(count), bits)
    target = uniform.values * edges[-1]
    last = len(edges) - 1
    found: Integers = np.minimum(np.searchsorted(edges, target, side="right"), last)
    # Below the first edge and above the last there is nothing that could be meant instead.
    below = np.where(found == 0, -np.inf, edges[found - 1])
    above = np.where(found == last, np.inf, edges[found])
    room = np.minimum(target - below, above - target)
    slack = edges[-1] * (8 * doubt + len(edges) * 2.0**-50 + 2.0**-42)
    unsure = np.flatnonzero(~(room > slack)) if doubt < 2.0**-6 else np.arange(count)
    for i in unsure.tolist():
        found[i] = _exactly(terms, scores, uniform, i)
    return found.astype(np.int64)


def _scores(terms: Sequence[Term]) -> tuple[Floats, float]:
    """Scores in double precision, and a bound on their error."""
    products = [coefficient * number.astype(np.float64) for coefficient, number in terms]
    sizes = np.sum([np.abs(product) for product in products], axis=0)
    return np.sum(products, axis=0), float(sizes.max()) * (len(terms) + 4) * 2.0**-52


def _exactly(terms: Sequence[Term], rough: Floats, uniform: Uniforms, i: int) -> int:
    """The same draw in high precision."""
    with PRECISION, mpmath.workprec(BITS):
        highest = _score(terms, int(np.argmax(rough)))
        weights = [mpmath.exp(_score(terms, j) - highest) for j in range(len(rough))]
        target, sum_so_far = uniform.exact(i) * mpmath.fsum(weights), mpmath.mpf(0)
        for j, weight in enumerate(weights):
            sum_so_far += weight
            if target < sum_so_far:
                return j
        return len(weights) - 1


def _score(terms: Sequence[Term], j: int) -> mpmath.mpf:
    products = (mpmath.mpf(float(c[j])) * int(number[j]) for c, number in terms)
    return mpmath.fsum(products)

"""Composition of dominating pairs by their privacy-loss distributions.

`composed_epsilon` and `composed_delta` bound the privacy curve of a composition from above. Parts with a
formula use it; the others are convolved on a grid (`convolve`).
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
from scipy.special import log_ndtr

from tacit.accounting.convolve import Window
from tacit.accounting.pairs import TAIL_ERROR, GaussianPair, Pair
from tacit.accounting.sketch import Part, Sketches

_UNIT = float(np.finfo(np.float64).eps)
# Windows tried for one delta.
_TRIES = 6


def composed_epsilon(parts: Sequence[Part], delta: float) -> float:
    """The smallest epsilon, rounded up, at which the composition has this delta."""
    parts = merge(parts)
    best = _pure(parts)
    if delta == 0 or not parts:
        return best
    if len(parts) == 1 and parts[0].times == 1:
        pair = parts[0].pair
        return min(best, invert(lambda epsilon: single_delta(pair, epsilon), delta))
    sketch = Sketches.of(parts).cut(math.log(delta))
    guess = float(np.min((sketch.moments - math.log(delta)) / sketch.tilts))
    for share in (1.0, 0.5, 0.0):
        composition = Window.around(sketch, share * guess, math.log(delta)).compose()
        best = min(best, composition.epsilon(delta))
        if best > composition.first or best <= 0:
            break  # otherwise the answer lies below the window, so a lower one is tried
    return best


def composed_delta(parts: Sequence[Part], epsilon: float) -> float:
    """The smallest delta, rounded up, at which the composition has this epsilon."""
    parts = merge(parts)
    if not parts or epsilon >= _pure(parts):
        return 0.0
    if len(parts) == 1 and parts[0].times == 1:
        return single_delta(parts[0].pair, epsilon)
    sketch, best = Sketches.of(parts), 1.0
    guess = min(float(np.min(sketch.moments - sketch.tilts * epsilon)), 0.0)
    for _ in range(_TRIES):
        cut = sketch.cut(guess)
        # Tilted for the epsilon at which Chernoff's bound has this delta, which is not too small.
        reach = float(np.min((cut.moments - guess) / cut.tilts))
        composition = Window.around(cut, epsilon, guess, tilt_at=max(epsilon, reach)).compose()
        bound = composition.delta(epsilon)
        best = min(best, bound)
        log_bound = math.log(max(bound - composition.beyond, 1e-290))
        if composition.beyond < 1e-4 * bound and log_bound > guess - 5:
            break
        # Delta is so much smaller than guessed that tilt and tails no longer fit.
        guess = min(log_bound, guess - 2)
    return best


def _pure(parts: Sequence[Part]) -> float:
    """The largest loss the composition can have, correctly rounded."""
    return math.fsum(part.times * part.pair.max_loss for part in parts)


def merge(parts: Sequence[Part]) -> list[Part]:
    """Counts equal pairs together, and combines all full-data Gaussians into one."""
    counts: dict[Pair, int] = {}
    for pair, times in parts:
        counts[pair] = counts.get(pair, 0) + times
    gaussian = [(pair, times) for pair, times in counts.items() if isinstance(pair, GaussianPair)]
    merged = [Part(pair, n) for pair, n in counts.items() if not isinstance(pair, GaussianPair)]
    if gaussian:
        mu = math.sqrt(math.fsum(times * pair.mu**2 for pair, times in gaussian))
        merged.append(Part(GaussianPair(mu * (1 + _UNIT * 8)), 1))
    return merged


def single_delta(pair: Pair, epsilon: float) -> float:
    """delta(epsilon) of one release, by its definition P(L > e) - exp(e) Q(L > e)."""
    if isinstance(pair, GaussianPair):
        # Balle and Wang 2018, Theorem 8, in logarithms.
        log_p = float(log_ndtr(pair.mu / 2 - epsilon / pair.mu))
        log_q = epsilon + float(log_ndtr(-pair.mu / 2 - epsilon / pair.mu))
    else:
        p, q = pair.upper(np.asarray(epsilon))
        if p <= 0:
            return 0.0
        log_p = math.log(p)
        log_q = epsilon + math.log(q) if q > 0 else -math.inf
    slack = 2 * TAIL_ERROR * (1 + abs(log_p))
    return min(1.0, math.exp(log_p) * (max(0.0, -math.expm1(log_q - log_p)) + slack))


def invert(curve: Callable[[float], float], level: float) -> float:
    """The smallest x >= 0, rounded up, where a falling curve is at most `level`."""
    if curve(0.0) <= level:
        return 0.0
    low, high = 0.0, 1.0
    while curve(high) > level:
        low, high = high, 2 * high
        if high > 1e300:
            return math.inf
    while high - low > 4 * _UNIT * high:
        middle = (low + high) / 2
        if curve(middle) <= level:
            high = middle
        else:
            low = middle
    return high

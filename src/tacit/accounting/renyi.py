"""Rényi divergences of events: what every event has, also those without a dominating pair.

At the end, the arithmetic of a ledger whose charges add up as divergences of one order, which is fixed when the
ledger is created (Feldman and Zrnic 2021, Theorem 4.3).
"""

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from scipy.special import gammaln, logsumexp

from tacit.accounting import events
from tacit.accounting.budget import Adjacency, Budget
from tacit.accounting.convert import epsilon_by_order, renyi_delta
from tacit.accounting.events import DpEvent
from tacit.accounting.pairs import (
    AddedPair,
    Array,
    BoundedRangePair,
    FinitePair,
    GaussianPair,
    LaplacePair,
    Pair,
    RemovedPair,
    ReplacedPair,
    SwappedPair,
    dominating_pairs,
)
from tacit.errors import BudgetError, UnsupportedEvent

# Orders far beyond the useful one are not evaluated: there, the divergence alone exceeds
# any gain from a smaller log(1/delta) / (order - 1) at every delta a float can hold.
_MAX_USEFUL_DIVERGENCE = 1000.0
# Points of a quadrature.
_MAX_QUADRATURE_POINTS = 2e6


def divergence(
    event: DpEvent, orders: Array, adjacency: Adjacency, *, doubled: bool = False
) -> Array:
    """Rényi divergence of the whole event at each order (ascending, above 1)."""
    total = np.zeros_like(orders)
    for leaf, count in events.leaves(event):
        total += count * _leaf_divergence(leaf, orders, adjacency, count, doubled)
    return total


def needs_integer_orders(event: DpEvent) -> bool:
    """Whether some part has a bound at whole orders only."""
    return any(
        isinstance(leaf, events.SubsampledBarkerTest)
        or (isinstance(leaf, events.RepeatAndSelectDpEvent) and needs_integer_orders(leaf.event))
        for leaf, _ in events.leaves(event)
    )


def _leaf_divergence(
    event: DpEvent, orders: Array, adjacency: Adjacency, count: int, doubled: bool
) -> Array:
    match event:
        case events.RepeatAndSelectDpEvent(event=inner, mean=mean, shape=shape):
            base = divergence(inner, orders, adjacency, doubled=doubled)
            return repeat_and_select_divergence(base, mean, shape, orders)
        case events.SubsampledBarkerTest() if adjacency == "replace":
            return subsampled_barker_divergence(event, orders)
        case _:
            pairs = dominating_pairs(event, adjacency)
            bounds = [pair_divergence(pair, orders, count, doubled) for pair in pairs]
            return np.asarray(np.max(bounds, axis=0))


def pair_divergence(  # noqa: C901, PLR0911 (a table)
    pair: Pair, orders: Array, count: int = 1, doubled: bool = False
) -> Array:
    """Rényi divergence of a dominating pair at each order.

    ``count`` only says how high orders need to go. With ``doubled`` an exchanged unit is
    accounted as the papers do, as one of twice the size, where that is larger.
    """
    match pair:
        case GaussianPair(mu=mu):
            return orders * mu**2 / 2
        case BoundedRangePair(width=width):
            # A bounded-range release is width^2/8-zCDP (Cesar and Rogers 2021).
            return np.minimum(orders * width**2 / 8, width)
        case LaplacePair(max_loss=epsilon):
            return laplace_divergence(epsilon, orders)
        case FinitePair(p=p, q=q):
            return finite_divergence(np.array(p), np.array(q), orders)
        case RemovedPair(rate=rate, scale=scale):
            return _divergence_by_order(
                orders, count, lambda a: log_moment(rate, scale, a, "remove")
            )
        case AddedPair(rate=rate, scale=scale):
            return _divergence_by_order(orders, count, lambda a: log_moment(rate, scale, a, "add"))
        case ReplacedPair(rate=rate, scale=scale):

            def moment(a: float) -> float:
                direct = log_moment(rate, scale, a, "replace")
                return max(direct, log_moment(rate, scale / 2, a, "remove")) if doubled else direct

            return _divergence_by_order(orders, count, moment)
        case SwappedPair(rate=rate, scale=scale):
            # Its curve is the larger of the two sampled curves, and a moment minus one is
            # a positive combination of points of the curve: so at most the two together.
            def both(a: float) -> float:
                logs = [log_moment(rate, scale, a, way) for way in ("remove", "add")]
                return max(logs) + math.log1p(
                    -math.expm1(-min(logs)) * math.exp(min(logs) - max(logs))
                )

            return _divergence_by_order(orders, count, both)
        case _:
            raise UnsupportedEvent(f"No Rényi bound is known for {type(pair).__name__}.")


def _divergence_by_order(orders: Array, count: int, moment: Callable[[float], float]) -> Array:
    """log-moments to divergences, ascending, as far as orders can be useful."""
    values = np.full_like(orders, math.inf)
    base = None
    for i, order in enumerate(orders):
        values[i] = moment(float(order)) / (order - 1)
        if order >= 2:
            base = values[i] if base is None else base
            if count * (values[i] - base) > _MAX_USEFUL_DIVERGENCE:
                break
    return values


def laplace_divergence(epsilon: float, orders: Array) -> Array:
    """Mironov 2017, Table II, at pure epsilon = sensitivity / scale."""
    a = orders
    logs = np.logaddexp(
        np.log(a / (2 * a - 1)) + (a - 1) * epsilon,
        np.log((a - 1) / (2 * a - 1)) - a * epsilon,
    )
    return np.maximum(logs, 0) / (a - 1)


def finite_divergence(p: Array, q: Array, orders: Array) -> Array:
    """By its definition, over the outcomes."""
    logs = np.multiply.outer(orders, np.log(p)) - np.multiply.outer(orders - 1, np.log(q))
    return np.asarray(np.maximum(logsumexp(logs, axis=1), 0) / (orders - 1))


@lru_cache(maxsize=2**14)  # composed with other parts, the same pair comes again and again
def log_moment(rate: float, scale: float, order: float, direction: str) -> float:
    """The logarithm of E_Q[(P/Q)^order] for a Poisson-sampled Gaussian; `scale` is noise std over clip.

    The integrand is analytic and decays like a Gaussian, so the trapezoidal rule
    converges exponentially; the step resolves both the noise and the turn of the mixture.
    """
    # Between which points, in noise stds, the integrand can have its mass.
    reach = {"remove": (0.0, order), "add": (1 - order, 1.0), "replace": (0.0, 2 * order)}
    low, high = (end / scale for end in reach[direction])
    step = 0.2 * min(1.0, scale)
    if (high - low + 28) / step > _MAX_QUADRATURE_POINTS:
        # Without sampling: never less, and there is next to no noise anyway.
        change = 2.0 if direction == "replace" else 1.0
        return order * (order - 1) * (change / scale) ** 2 / 2
    z: Array = step * np.arange(math.floor((low - 14) / step), math.ceil((high + 14) / step) + 1.0)
    log_weight = -(z**2) / 2 + math.log(step / math.sqrt(2 * math.pi))

    def log_ratio(at: Array) -> Array:  # of the sampled mixture to N(0)
        shift = at / scale - 0.5 / scale**2
        return np.where(
            shift < 30,
            np.log1p(rate * np.expm1(np.minimum(shift, 30))),
            np.logaddexp(math.log1p(-rate), math.log(rate) + shift),
        )

    # loss = log P/Q; base = log Q / N(0).
    if direction == "remove":
        loss, base = log_ratio(z), np.zeros_like(z)
    elif direction == "add":
        base = log_ratio(z)
        loss = -base
    else:
        base = log_ratio(-z)
        loss = log_ratio(z) - base
    total = float(logsumexp(log_weight + base + order * loss))
    if total < 0.5:
        # E_Q[P/Q] = 1, so the same moment without losing it next to one:
        power = order * loss
        series = (
            (order * (order - 1) / 2)
            * loss**2
            * (1 + (order + 1) * loss / 3 + (order**2 + order + 1) * loss**2 / 12)
        )
        excess = np.where(
            np.abs(power) < 1e-3,
            series,
            np.expm1(np.minimum(power, 50)) - order * np.expm1(np.minimum(loss, 50)),
        )
        terms = np.where(
            power < 50,
            np.exp(log_weight + base) * np.maximum(excess, 0),
            np.exp(log_weight + base + power),
        )
        total = math.log1p(float(np.sum(terms)))
    return max(total, 0.0)


def barker_divergence(batch_size: int, orders: Array, *, paper_bound: bool) -> Array:
    """Divergence of one noisy subsampled log-ratio, given the batch: Theorem 2, C = 2.

    Proof of the tight form. Scale the clipped ratios to y in [-1, 1]: the release is
    N(sqrt(b) mean(y), 2 - var(y)) up to a public shift. Exchanging one row moves the mean
    by at most 2/sqrt(b) and the variance by at most 5/b, and the noise variance stays in
    [1, 2]. In Lemma 1, with v1, v2 the noise variances and
    v = a v2 + (1-a) v1 >= v2 - 5 (a-1)/b:

    - log(sqrt(v2/v1)) <= log(1 + 5/b) / 2 <= 5/(2b);
    - v2/v <= 1 / (1 - 5 (a-1)/(b v2)) <= 1 / (1 - 5 (a-1)/b);
    - (a/2) (4/b) / v <= 2a / (b - 5 (a-1)).

    The paper's form bounds v2/v by 2b/(b - 5a) and has b - 5a in the last term too.
    """
    a, b = orders, float(batch_size)
    usable = 5 * a < b
    if paper_bound:
        room = np.where(usable, b - 5 * a, 1.0)
        middle = np.log(2 * b / room)
    else:
        room = np.where(usable, b - 5 * (a - 1), 1.0)
        middle = np.log(b / room)
    total = 2.5 / b + middle / (2 * (a - 1)) + 2 * a / room
    return np.where(usable, total, math.inf)


def subsampled_barker_divergence(event: events.SubsampledBarkerTest, orders: Array) -> Array:
    """Corollary 2, eq. (22): Theorem 2 amplified by sampling (Wang, Balle, Kasiviswanathan)."""
    log_rate = math.log(event.batch_size) - math.log(event.dataset_size)
    highest = int(min(np.max(orders), (event.batch_size - 1) // 5, 2000))
    values = np.full_like(orders, math.inf)
    if highest < 2:
        return values
    inner = np.arange(2, highest + 1, dtype=np.float64)
    plain = barker_divergence(event.batch_size, inner, paper_bound=event.paper_bound)
    log_terms = inner * log_rate + math.log(2) + (inner - 1) * plain
    second = plain[0]
    log_terms[0] = 2 * log_rate + math.log(min(4 * math.expm1(second), 2 * math.exp(second)))
    for i, order in enumerate(orders):
        if order > highest:
            continue
        if order != round(order):
            raise UnsupportedEvent("The subsampled Barker test has bounds at whole orders only.")
        j = inner[: round(order) - 1]
        log_choose = gammaln(order + 1) - gammaln(j + 1) - gammaln(order - j + 1)
        amplified = float(logsumexp(np.append(log_choose + log_terms[: len(j)], 0.0)))
        # Sampling never makes a release less private.
        values[i] = min(amplified / (order - 1), float(plain[len(j) - 1]))
    return values


def repeat_and_select_divergence(inner: Array, mean: float, shape: float, orders: Array) -> Array:
    """Papernot and Steinke 2022: Theorem 2, or Theorem 6 for a Poisson number of runs.

    ``inner`` is the divergence of one run.
    """
    if mean == 1 and shape != math.inf:
        return inner  # always exactly one run
    if math.isinf(shape):
        hints = np.log1p(1 / (orders - 1))
        deltas = np.array([renyi_delta(list(orders), list(inner), hint) for hint in hints])
        return inner + mean * deltas + math.log(mean) / (orders - 1)
    gamma = _stopping_parameter(mean, shape)
    constant = (1 + shape) * float(np.min((1 - 1 / orders) * inner - math.log(gamma) / orders))
    bound = inner + math.log(mean) / (orders - 1) + constant
    # Divergences grow with the order, so a smaller value further on holds here too.
    return np.minimum.accumulate(bound[::-1])[::-1]


def _stopping_parameter(mean: float, shape: float) -> float:
    """The gamma of the truncated negative binomial (shape 0: logarithmic) with this mean."""

    def excess(log_gamma: float) -> float:
        odds = math.expm1(-log_gamma)
        if shape == 0:
            return odds / -log_gamma - mean
        return shape * odds / -math.expm1(shape * log_gamma) - mean

    from scipy.optimize import brentq  # it takes a while to load

    log_gamma = brentq(excess, -700.0, -1e-15, xtol=1e-15)
    return math.exp(log_gamma) * (1 - 1e-10)  # smaller is the safe side


def default_orders(*, integer: bool) -> Array:
    """Orders to search: all integers up to 256, or a geometric range."""
    if integer:
        return np.arange(2.0, 257.0)
    return 1 + np.geomspace(0.02, 2e5, 90)


def refine_orders(orders: Array, best: int) -> Array:
    """More orders around the best of a range."""
    low, high = orders[max(best - 1, 0)], orders[min(best + 1, len(orders) - 1)]
    return 1 + np.geomspace(low - 1, high - 1, 24)


def ledger_order(total: Budget) -> float:
    """An order at which the conversion costs about half of the total's epsilon."""
    orders = 1 + np.geomspace(0.05, 1e5, 400)
    fixed = epsilon_by_order(orders, np.full_like(orders, 1e-9), total.delta, "improved")
    room = (total.epsilon - fixed) / orders  # of rho, were the runs Gaussian
    return float(orders[int(np.argmax(room))])


def ledger_divergence(event: DpEvent, order: float, adjacency: Adjacency) -> float:
    """The divergence of a run. Raises if the run needs some delta besides."""
    if events.split_slack(event)[1] > 0:
        raise BudgetError(
            "Noise that sites share takes some additional delta, which a ledger of Rényi "
            'divergences cannot record; create one with rule="sum".'
        )
    return float(divergence(event, np.array([order]), adjacency)[0])


def ledger_epsilon(divergence: float, order: float, delta: float) -> float:
    """The epsilon of a sum of divergences."""
    found = epsilon_by_order(np.array([order]), np.array([divergence]), delta, "improved")
    return float(found[0])

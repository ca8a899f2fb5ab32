"""Conversions between kinds of privacy guarantees.

Every conversion loses something. Prefer, in this order: computing directly for the adjacency and unit you
need (an accountant with ``adjacency="replace"``); converting a whole curve; converting one (epsilon, delta)
pair.
"""

import math
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from tacit import _validate
from tacit.accounting.budget import Budget
from tacit.accounting.pairs import Array, GaussianPair
from tacit.accounting.pld import invert_decreasing, single_delta
from tacit.errors import InvalidArgument

Conversion = Literal["improved", "basic"]


def group_privacy(budget: Budget, size: int) -> Budget:
    """The guarantee for a group, given the budget of one person.

    Delta grows exponentially with the size. It is better to make the group the unit of privacy, or to use
    `gdp_epsilon` with ``size * mu`` if the run is Gaussian.

    Args:
        budget: The budget of one person.
        size: The number of people in the group.

    Returns:
        The budget of the group.

    Examples:
        >>> print(group_privacy(Budget(0.5, 1e-6), 3))
        epsilon 1.5, delta 5.367003099e-6 (add-remove)
    """
    k = _validate.count("size", size)
    if budget.epsilon * k > 700:
        raise InvalidArgument(f"A group of {k} at {budget} has no meaningful guarantee.")
    growth = math.fsum(math.exp(i * budget.epsilon) for i in range(k))
    return Budget(k * budget.epsilon, _check_delta(budget.delta * growth), budget.adjacency)


def add_remove_to_replace(budget: Budget) -> Budget:
    """Converts an add-remove budget: replacing a record is removing one and adding another.

    (epsilon, delta) becomes (2 epsilon, (1 + exp(epsilon)) delta), by Theorems 2.6 and 2.15 of the thesis.
    This is valid but loose; prefer an accountant with ``adjacency="replace"``. (Doubling epsilon at the same
    delta is not valid.)

    Args:
        budget: The budget under add-remove.

    Returns:
        The budget under replace.

    Examples:
        >>> print(add_remove_to_replace(Budget(1, 1e-6)))
        epsilon 2, delta 3.718281828e-6 (replace)
    """
    if budget.adjacency != "add-remove":
        raise InvalidArgument("This budget already has the adjacency replace.")
    growth = 1 + _exp_or_inf(budget.epsilon) if budget.delta else 0.0
    return Budget(2 * budget.epsilon, _check_delta(budget.delta * growth), "replace")


def add_remove_curve_to_replace(curve: Callable[[float], float], delta: float) -> float:
    """Converts a whole add-remove curve by Theorem 2.15 of the thesis, at its best point.

    Computing directly with ``adjacency="replace"`` is still better.

    Args:
        curve: Delta as a function of epsilon, under add-remove.
        delta: The delta at which epsilon is wanted.

    Returns:
        Epsilon under replace.
    """
    _validate.probability("delta", delta)

    def converted(epsilon: float) -> float:
        at = curve(epsilon)
        return at * (1 + _exp_or_inf(epsilon)) if at > 0 else 0.0

    return 2 * invert_decreasing(converted, delta)


def gdp_epsilon(mu: float, delta: float) -> float:
    """Epsilon of mu-Gaussian differential privacy, which is exact (Balle and Wang 2018).

    Args:
        mu: The sensitivity divided by the noise standard deviation.
        delta: The delta at which epsilon is wanted.

    Returns:
        Epsilon; infinite if delta is zero.

    Examples:
        >>> round(gdp_epsilon(1.0, 1e-5), 4)
        4.3772
    """
    pair = GaussianPair(_validate.positive("mu", mu))
    if _validate.probability("delta", delta) == 0:
        return math.inf
    return invert_decreasing(lambda epsilon: single_delta(pair, epsilon), delta)


def gdp_delta(mu: float, epsilon: float) -> float:
    """Delta of mu-Gaussian differential privacy, which is exact (Balle and Wang 2018).

    Args:
        mu: The sensitivity divided by the noise standard deviation.
        epsilon: The epsilon at which delta is wanted.

    Returns:
        Delta.
    """
    pair = GaussianPair(_validate.positive("mu", mu))
    return single_delta(pair, _validate.non_negative("epsilon", epsilon))


def zcdp_epsilon(rho: float, delta: float) -> float:
    """Epsilon of zero-concentrated differential privacy, by the best Rényi order.

    For Gaussian noise prefer `gdp_epsilon` with mu = sqrt(2 rho), which is exact.

    Args:
        rho: The parameter of zero-concentrated differential privacy.
        delta: The delta at which epsilon is wanted.

    Returns:
        Epsilon; infinite if delta is zero.
    """
    _validate.positive("rho", rho)
    if _validate.probability("delta", delta) == 0:
        return math.inf

    def bound(log_order: float) -> float:
        order = 1 + math.exp(log_order)
        return renyi_epsilon([order], [rho * order], delta)

    centre = 0.5 * math.log(max(-math.log(delta), 1e-3) / rho)
    from scipy.optimize import minimize_scalar  # it takes a while to load

    found = minimize_scalar(bound, bounds=(centre - 5, centre + 5), method="bounded")
    return float(min(found.fun, bound(centre)))


def renyi_epsilon(
    orders: Sequence[float],
    divergences: Sequence[float],
    delta: float,
    conversion: Conversion = "improved",
) -> float:
    """Epsilon from Rényi divergences, at the best of the orders.

    Args:
        orders: The orders, all above 1.
        divergences: The divergence at each order.
        delta: The delta at which epsilon is wanted.
        conversion: ``"improved"`` (Canonne, Kamath and Steinke 2020), or ``"basic"`` (Mironov 2017), which
            the papers use and which is never better.

    Returns:
        Epsilon.
    """
    _validate.probability("delta", delta)
    return float(np.min(epsilon_by_order(*_check_orders(orders, divergences), delta, conversion)))


def renyi_delta(
    orders: Sequence[float],
    divergences: Sequence[float],
    epsilon: float,
    conversion: Conversion = "improved",
) -> float:
    """Delta from Rényi divergences, at the best of the orders.

    Args:
        orders: The orders, all above 1.
        divergences: The divergence at each order.
        epsilon: The epsilon at which delta is wanted.
        conversion: As for `renyi_epsilon`.

    Returns:
        Delta.
    """
    _validate.non_negative("epsilon", epsilon)
    return float(np.min(delta_by_order(*_check_orders(orders, divergences), epsilon, conversion)))


def epsilon_by_order(a: Array, r: Array, delta: float, conversion: Conversion) -> Array:
    """What each order's divergence says of epsilon."""
    r = _clean_divergences(r)
    if delta == 0:
        return np.where(r == 0, 0.0, math.inf)
    if conversion == "basic":
        return np.maximum(r - math.log(delta) / (a - 1), 0)
    bounds = r + np.log1p(-1 / a) - (math.log(delta) + np.log(a)) / (a - 1)
    # Total variation is at most sqrt(1 - exp(-KL)) (Bretagnolle and Huber), KL <= r.
    return np.where(-np.expm1(-r) <= delta**2, 0.0, np.maximum(bounds, 0))


def delta_by_order(a: Array, r: Array, epsilon: float, conversion: Conversion) -> Array:
    """What each order's divergence says of delta."""
    r = _clean_divergences(r)
    logs = (a - 1) * (r - epsilon)
    if conversion == "improved":
        with np.errstate(divide="ignore"):
            logs = logs + (a - 1) * np.log1p(-1 / a) - np.log(a)
            logs = np.minimum(logs, 0.5 * np.log(-np.expm1(-r)))
    return np.exp(np.minimum(logs, 0))


def _clean_divergences(divergences: Array) -> Array:
    """Nothing is claimed from a divergence that is not a number, nor from one below zero."""
    return np.where(np.isnan(divergences), math.inf, np.maximum(divergences, 0))


def _check_orders(orders: Sequence[float], divergences: Sequence[float]) -> tuple[Array, Array]:
    a, r = np.asarray(orders, float), np.asarray(divergences, float)
    if a.shape != r.shape or a.ndim != 1 or a.size == 0 or not np.all(a > 1) or not np.all(r >= 0):
        raise InvalidArgument("Pass as many orders, all above 1, as divergences, none negative.")
    return a, r


def _exp_or_inf(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf


def _check_delta(delta: float) -> float:
    if not (delta < 1):
        raise InvalidArgument("The converted delta would be 1 or more: no guarantee is left.")
    return delta

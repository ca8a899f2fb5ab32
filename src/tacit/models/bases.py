"""Splines and polynomials over the bounds of a number, which do not depend on data."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tacit.errors import InvalidArgument
from tacit.models.expressions import Columns, Expression, number
from tacit.models.formula import Node, callee_of, text_of, value_of

Basis = tuple[Callable[[Columns], jax.Array], int, str]
_MOST = 50


def _settings(node: Node, names: tuple[str, ...]) -> dict[str, Any]:
    """The arguments after the first, by name."""
    given: dict[str, Any] = {**dict(zip(names, node.args[1:], strict=False)), **node.kwargs}
    if len(node.args) - 1 > len(names) or set(given) - set(names):
        raise InvalidArgument(
            f"{text_of(node)!r} takes no other arguments than {', '.join(names)}."
        )
    return given


def _whole(node: Node, name: str, value: Any, least: int) -> int:
    found = number(value)
    if found != int(found) or not least <= found <= _MOST:
        raise InvalidArgument(
            f"{name} of {text_of(node)!r} must be a whole number from {least} to {_MOST}."
        )
    return int(found)


def standardised(inner: Expression) -> Callable[[Columns], jax.Array]:
    """A number, standardised from its bounds to [-1, 1]."""
    middle, half = (inner.low + inner.high) / 2, (inner.high - inner.low) / 2
    return lambda columns: jnp.clip((inner.read(columns) - middle) / half, -1.0, 1.0)


def polynomial(node: Node, inner: Expression) -> Basis:
    """Legendre polynomials, which are orthogonal for numbers spread evenly over the bounds."""
    given = _settings(node, ("degree",))
    if "degree" not in given:
        raise InvalidArgument(f"{text_of(node)!r} needs a degree, such as poly(x, 3).")
    degree, at = _whole(node, "degree", given["degree"], 1), standardised(inner)

    def read(columns: Columns) -> jax.Array:
        x = at(columns)
        found = [jnp.ones_like(x), x]
        for n in range(1, degree):
            found.append(((2 * n + 1) * x * found[-1] - n * found[-2]) / (n + 1))
        return jnp.stack(found[1:], axis=-1)

    span = f"{inner.low:.4g} to {inner.high:.4g}"
    return read, degree, f"Legendre polynomials over {span}, each within -1 and 1"


def spline(node: Node, inner: Expression) -> Basis:
    """B-splines whose knots are given, or evenly spaced between the bounds."""
    given = _settings(node, ("df", "knots", "degree", "intercept"))
    degree = _whole(node, "degree", given["degree"], 0) if "degree" in given else 3
    whole = value_of(given.get("intercept"), False)
    if not isinstance(whole, bool):
        raise InvalidArgument(f"intercept of {text_of(node)!r} must be True or False.")
    inside = _knots(node, inner, given, degree + (1 if whole else 0))
    middle, half = (inner.low + inner.high) / 2, (inner.high - inner.low) / 2
    ends = degree + 1
    knots = [*[-1.0] * ends, *((knot - middle) / half for knot in inside), *[1.0] * ends]
    at, size = standardised(inner), len(knots) - degree - 1
    first = 0 if whole else 1

    def read(columns: Columns) -> jax.Array:
        return _cox_de_boor(at(columns), knots, degree)[:, first:]

    places = ", ".join(f"{knot:.4g}" for knot in inside) or "none inside"
    span = f"{inner.low:.4g} to {inner.high:.4g}"
    return read, size - first, f"B-splines of degree {degree} over {span}, knots: {places}"


def _knots(node: Node, inner: Expression, given: dict[str, Any], fewest: int) -> list[float]:
    if "knots" in given:
        listed = given["knots"]
        several = listed.args if callee_of(listed) == "c" else [listed]
        knots = sorted(number(each) for each in several)
        inside = all(inner.low < knot < inner.high for knot in knots)
        if not inside or len(set(knots)) < len(knots):
            raise InvalidArgument(
                f"knots of {text_of(node)!r} must differ and lie between the bounds, "
                f"{inner.low:.4g} and {inner.high:.4g}."
            )
        if "df" in given and number(given["df"]) != len(knots) + fewest:
            raise InvalidArgument(
                f"df of {text_of(node)!r} must be {len(knots) + fewest} for this number of knots; leave "
                "it out."
            )
        return knots
    if "df" not in given:
        raise InvalidArgument(
            f"{text_of(node)!r} needs df, such as bs(x, df=5), or knots, such as "
            "bs(x, knots=c(30, 50))."
        )
    count = _whole(node, "df", given["df"], max(fewest, 1)) - fewest
    return [float(knot) for knot in np.linspace(inner.low, inner.high, count + 2)[1:-1]]


def _cox_de_boor(x: jax.Array, knots: list[float], degree: int) -> jax.Array:
    """All B-splines of a degree at x [rows]: [rows, splines]."""
    last = len(knots) - degree - 2  # the last interval includes the upper bound
    pieces = [
        (x >= low) & ((x <= high) if i == last else (x < high))
        if low < high
        else jnp.zeros_like(x, jnp.bool_)
        for i, (low, high) in enumerate(pairwise(knots))
    ]
    found = [piece.astype(jnp.float32) for piece in pieces]
    for order in range(1, degree + 1):
        found = [
            _ramp(x, knots[i], knots[i + order]) * found[i]
            + (1 - _ramp(x, knots[i + 1], knots[i + order + 1])) * found[i + 1]
            for i in range(len(found) - 1)
        ]
    return jnp.stack(found, axis=-1)


def _ramp(x: jax.Array, low: float, high: float) -> jax.Array:
    return (x - low) / (high - low) if low < high else jnp.zeros_like(x)

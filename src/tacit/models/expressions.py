"""Calculations in a formula, such as ``I(age ** 2)`` or ``np.log(dose)``.

Each is a function of one row's columns, with bounds that follow from those of the columns by
interval arithmetic, and not from data.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from formulae.terms.call_resolver import LazyCall, LazyOperator

from tacit.errors import InvalidArgument
from tacit.models.formula import Node, name_of, text_of, unlike, value_of

Columns = Mapping[str, Any]


class Facts(NamedTuple):
    """What is public about a column: its kind, bounds in its own unit, or levels.

    ``scale`` is what was taken from its values, and what they were divided by, when they were
    encoded. ``standard`` is a centre and a spread to standardise by, instead of the bounds.
    """

    kind: str
    low: float = 0.0
    high: float = 1.0
    scale: tuple[float, float] | None = None
    standard: tuple[float, float] | None = None
    levels: tuple[str, ...] = ()
    shape: tuple[int, ...] = ()

    @property
    def middle(self) -> float:
        """Between the bounds."""
        return (self.low + self.high) / 2

    @property
    def half(self) -> float:
        """Half of the distance between the bounds."""
        return (self.high - self.low) / 2


KnownColumns = Mapping[str, Facts]


@dataclass(frozen=True)
class Expression:
    """A number computed from a row's columns, in its own unit, and bounds of it."""

    read: Callable[[Columns], Any]
    low: float
    high: float
    columns: frozenset[str] = frozenset()


def facts_of(name: str, known: KnownColumns) -> Facts:
    """What is known of a column; refuses names that are none."""
    if name not in known:
        raise unlike("The formula names", name, known)
    if known[name].shape:
        raise InvalidArgument(
            f"Column {name!r} has an array in each row, which a formula cannot use; declare a "
            "column for each number."
        )
    return known[name]


def own(name: str, facts: Facts) -> Callable[[Columns], jax.Array]:
    """A column in its own unit."""
    if facts.scale is not None:
        centre, unit = facts.scale
        return lambda columns: centre + unit * columns[name]
    return lambda columns: jnp.asarray(columns[name]).astype(jnp.float32)


def expression(node: Node, known: KnownColumns) -> Expression:
    """What a calculation is for a row; refuses what has no meaning without data."""
    found = _expression(node, known)
    if not (abs(found.low) < 1e30 and abs(found.high) < 1e30):  # also refuses NaN
        raise InvalidArgument(
            f"{text_of(node)!r} is not finite, or is enormous, for some values within the bounds "
            "of its columns; change the bounds or the calculation."
        )
    return found


def _expression(node: Node, known: KnownColumns) -> Expression:
    name = name_of(node)
    if name is not None:
        facts = facts_of(name, known)
        if facts.kind == "category":
            raise InvalidArgument(f"{name!r} is a category and cannot be calculated with.")
        return Expression(own(name, facts), facts.low, facts.high, frozenset([name]))
    if isinstance(node, LazyCall):
        return _call(node, known)
    if isinstance(node, LazyOperator):
        return _operation(node, known)
    value = number(node)
    return Expression(lambda _: value, value, value)


def number(node: Node) -> float:
    """A number written in the formula."""
    if isinstance(node, LazyOperator) and node.symbol in {"-", "+"} and len(node.args) == 1:
        return number(node.args[0]) * (-1 if node.symbol == "-" else 1)
    value = value_of(node)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidArgument(f"{text_of(node)!r} must be a number.")
    return float(value)


def _call(node: Node, known: KnownColumns) -> Expression:
    name = node.callee.removeprefix("np.").removeprefix("numpy.")
    if name not in _FUNCTIONS or len(node.args) != 1 or node.kwargs:
        raise InvalidArgument(
            f"{text_of(node)!r} is not something that a formula can compute; inside a calculation "
            f"use + - * / **, and {', '.join(sorted(_FUNCTIONS))} of one argument."
        )
    inner = expression(node.args[0], known)
    function, ends = _FUNCTIONS[name]
    low, high = ends(inner.low), ends(inner.high)

    def read(columns: Columns) -> Any:
        # Rounding may carry a value past its bounds, and there a root or logarithm may have none.
        return function(jnp.clip(inner.read(columns), inner.low, inner.high))

    return Expression(read, low, high, inner.columns)


def _or_nan(function: Callable[[float], float]) -> Callable[[float], float]:
    """A function that is not a number where it is not defined."""

    def safe(value: float) -> float:
        try:
            return function(value)
        except (ValueError, OverflowError):
            return math.nan

    return safe


# All of them increasing, so that their ends are those of their argument.
_FUNCTIONS: dict[str, tuple[Callable[[jax.Array], jax.Array], Callable[[float], float]]] = {
    "I": (lambda x: x, lambda x: x),
    "exp": (jnp.exp, _or_nan(math.exp)),
    "log": (jnp.log, _or_nan(math.log)),
    "log10": (jnp.log10, _or_nan(math.log10)),
    "log1p": (jnp.log1p, _or_nan(math.log1p)),
    "log2": (jnp.log2, _or_nan(math.log2)),
    "sqrt": (jnp.sqrt, _or_nan(math.sqrt)),
}


def _operation(node: Node, known: KnownColumns) -> Expression:
    sides = [expression(each, known) for each in node.args]
    if node.symbol == "**":
        return _power(sides[0], node)
    if node.symbol not in _OPERATIONS:
        raise InvalidArgument(
            f"{text_of(node)!r} compares, which a formula cannot; put the comparison into a column "
            "of the data, declared as tacit.Binary()."
        )
    if len(sides) == 1:
        sides = [Expression(lambda _: 0.0, 0.0, 0.0), *sides]
    first, second = sides
    function = _OPERATIONS[node.symbol]
    if node.symbol == "/" and second.low <= 0 <= second.high:
        raise InvalidArgument(
            f"{text_of(node)!r} divides by what may be zero within the bounds of its columns; "
            "change the bounds or the calculation."
        )
    ends = [function(a, b) for a, b in product(*((s.low, s.high) for s in sides))]
    return Expression(
        lambda columns: function(first.read(columns), second.read(columns)),
        *_span(ends),
        first.columns | second.columns,
    )


_OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
}


def _power(base: Expression, node: Node) -> Expression:
    exponent = number(node.args[1])
    whole = exponent == int(exponent) and exponent >= 1
    if not (whole or base.low > 0):
        raise InvalidArgument(
            f"{text_of(node)!r} needs a whole exponent of at least 1, or a base whose bounds are "
            "above zero."
        )
    power: float = int(exponent) if whole else exponent
    ends = [_or_nan(lambda x: x**power)(end) for end in (base.low, base.high)]
    if whole and power % 2 == 0 and base.low < 0 < base.high:
        ends.append(0.0)
    return Expression(lambda columns: base.read(columns) ** power, *_span(ends), base.columns)


def _span(ends: list[float]) -> tuple[float, float]:
    """Lowest and highest, not a number if any of them is not."""
    known = not any(math.isnan(end) for end in ends)
    return (min(ends), max(ends)) if known else (math.nan, math.nan)

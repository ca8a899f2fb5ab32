"""Calculations in a formula, such as ``I(age ** 2)`` or ``np.log(dose)``.

Each is a function of the columns of a row. Its bounds follow from those of the columns by interval
arithmetic, not from data.
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
    """What is public about a column.

    Attributes:
        kind: Its kind: "number", "count", "binary" or "category".
        low: The lower bound, in the unit of the column.
        high: The upper bound.
        scale: What was subtracted from its values when they were encoded, and what they were then
            divided by.
        standard: A centre and a spread to standardise by, instead of the bounds.
        levels: Levels of a category.
        other: The last level, if it stands for all values that are not declared.
        shape: Shape of the value in one row.
        measure: The unit of measurement, if one is declared.
    """

    kind: str
    low: float = 0.0
    high: float = 1.0
    scale: tuple[float, float] | None = None
    standard: tuple[float, float] | None = None
    levels: tuple[str, ...] = ()
    other: str | None = None
    shape: tuple[int, ...] = ()
    measure: str | None = None

    @property
    def middle(self) -> float:
        """The middle of the bounds."""
        return (self.low + self.high) / 2

    @property
    def half(self) -> float:
        """Half of the distance between the bounds."""
        return (self.high - self.low) / 2


KnownColumns = Mapping[str, Facts]


@dataclass(frozen=True)
class Expression:
    """A number computed from the columns of a row, in its own unit, with bounds."""

    read: Callable[[Columns], Any]
    low: float
    high: float
    columns: frozenset[str] = frozenset()


def facts_of(name: str, known: KnownColumns) -> Facts:
    """What is public about a column; raises if there is no such column."""
    if name not in known:
        raise unlike("The formula names", name, known)
    if known[name].shape:
        raise InvalidArgument(
            f"Column {name!r} has an array in each row, which a formula cannot use; declare one "
            "column for each number."
        )
    return known[name]


def own(name: str, facts: Facts) -> Callable[[Columns], jax.Array]:
    """A column, decoded to its own unit."""
    if facts.scale is not None:
        centre, unit = facts.scale
        return lambda columns: centre + unit * columns[name]
    return lambda columns: jnp.asarray(columns[name]).astype(jnp.float32)


def expression(node: Node, known: KnownColumns) -> Expression:
    """A calculation as a function of columns; raises if its bounds are not finite."""
    found = _expression(node, known)
    if not (abs(found.low) < 1e30 and abs(found.high) < 1e30):  # also refuses NaN
        raise InvalidArgument(
            f"{text_of(node)!r} is infinite or too large for some values within the bounds of its "
            "columns; change the bounds or the calculation."
        )
    return found


def _expression(node: Node, known: KnownColumns) -> Expression:
    name = name_of(node)
    if name is not None:
        facts = facts_of(name, known)
        if facts.kind == "category":
            raise InvalidArgument(f"{name!r} is a category and cannot be used in a calculation.")
        return Expression(own(name, facts), facts.low, facts.high, frozenset([name]))
    if isinstance(node, LazyCall):
        return _call(node, known)
    if isinstance(node, LazyOperator):
        return _operation(node, known)
    value = number(node)
    return Expression(lambda _: value, value, value)


def number(node: Node) -> float:
    """A number in the formula."""
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
            f"A formula cannot compute {text_of(node)!r}; inside a calculation use + - * / **, and "
            f"{', '.join(sorted(_FUNCTIONS))} of one argument."
        )
    inner = expression(node.args[0], known)
    function, ends = _FUNCTIONS[name]
    low, high = ends(inner.low), ends(inner.high)

    def read(columns: Columns) -> Any:
        # Rounding may move a value beyond its bounds, where a root or logarithm may not exist.
        return function(jnp.clip(inner.read(columns), inner.low, inner.high))

    return Expression(read, low, high, inner.columns)


def _or_nan(function: Callable[[float], float]) -> Callable[[float], float]:
    """A function that returns NaN where it is not defined."""

    def safe(value: float) -> float:
        try:
            return function(value)
        except (ValueError, OverflowError):
            return math.nan

    return safe


# All of them increase, so the bounds of the argument give the bounds of the result.
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
            f"A formula cannot compare, as in {text_of(node)!r}; put the comparison into a column of "
            "the data, declared as tacit.Binary()."
        )
    if len(sides) == 1:
        sides = [Expression(lambda _: 0.0, 0.0, 0.0), *sides]
    first, second = sides
    function = _OPERATIONS[node.symbol]
    if node.symbol == "/" and second.low <= 0 <= second.high:
        raise InvalidArgument(
            f"{text_of(node)!r} may divide by zero within the bounds of its columns; change the "
            "bounds or the calculation."
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
    """The lowest and the highest; NaN if any of them is NaN."""
    known = not any(math.isnan(end) for end in ends)
    return (min(ends), max(ends)) if known else (math.nan, math.nan)

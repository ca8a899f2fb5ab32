"""The parts of a formula, and calculations in it.

`tacit.models.formula_parser` parses the text, and `tacit.models.design` gives the parts a meaning from the schema.
Calculations such as ``I(age ** 2)`` or ``np.log(dose)`` become functions of the columns of a row, whose bounds follow
from those of the columns by interval arithmetic, not from data.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import product
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from tacit.data.columns import Kind, Number
from tacit.data.schema import Schema
from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    import jax


@dataclass(frozen=True)
class ColumnName:
    """The name of a column."""

    name: str


@dataclass(frozen=True)
class Literal:
    """A number, text or True or False, as it is written."""

    value: object
    text: str


@dataclass(frozen=True)
class Operation:
    """An arithmetic operation or a comparison, of one or two sides."""

    symbol: str
    args: tuple["Node", ...]


@dataclass(frozen=True)
class Call:
    """A call of a function by name."""

    function: str
    args: tuple["Node", ...]
    kwargs: Mapping[str, "Node"]


Node = ColumnName | Literal | Operation | Call


class GroupTerm(NamedTuple):
    """A part such as ``(x | ward)``: what varies (empty for an intercept), and the groups."""

    varying: tuple[Node, ...]
    groups: tuple[Node, ...]


class ParsedFormula(NamedTuple):
    """The parts of a formula."""

    response: Node
    level: str | None
    intercept: bool
    terms: tuple[tuple[Node, ...], ...]
    grouped: tuple[GroupTerm, ...]


# How other packages write what is written differently here: patterns of text, and functions by name.
FOREIGN_SYNTAX = {
    r"\|\s*trials\(": "p(successes, trials) before ~ instead",
    r"\|\s*cens\(": "censored(time, event) before ~ instead",
    r"\|\s*weights\(": "weighted(outcome, weights) before ~ instead",
    r"\|\s*rate\(": "offset(log(x)) after ~ instead",
    r"\|\s*mi\(": "mi(x, mean, sd) after ~ instead",
    r"\|\|": "(x | group) instead, whose effects are independent of each other",
    r"\^": "** for powers instead, as in I(x ** 2)",
    r"~\s*\.\s*($|[+*-])": "the names of the columns instead",
}
_SPLINE = "bs({first}, df=4) instead, a spline with knots between the bounds"
_FOREIGN_CALLS = {
    **dict.fromkeys(("s", "ns", "cr", "cc", "cs", "rcs", "lo", "gp", "hsgp"), _SPLINE),
    **dict.fromkeys(("te", "ti", "t2"), "bs(x, df=4):bs(z, df=4) instead, a product of splines"),
    **dict.fromkeys(("factor", "as.factor", "ordered"), "C({first}) instead"),
    "mo": "C({first}) instead, or the number itself",
    **dict.fromkeys(("re", "gr", "mm"), "(1 | {first}) instead"),
    "Surv": "censored(time, event) before ~ instead, with the weibull family",
    "cbind": "p(successes, trials) before ~ instead, with the binomial family",
}


def foreign_call_hint(node: Node) -> str | None:
    """How to write a function of another package here, such as ``s(x)`` of mgcv or brms; None if it is not known.

    >>> foreign_call_hint(Call("s", (ColumnName("age"),), {}))
    'use bs(age, df=4) instead, a spline with knots between the bounds'
    """
    if not isinstance(node, Call) or node.function not in _FOREIGN_CALLS:
        return None
    is_group = literal_value(node.kwargs.get("bs")) == "re"  # mgcv's way to write effects of groups
    first = format_node(node.args[0]) if node.args else "x"
    return f"use {_FOREIGN_CALLS['re' if is_group else node.function].format(first=first)}"


def column_name(node: Node) -> str | None:
    """The column that a node names; None if it is not a name."""
    return node.name if isinstance(node, ColumnName) else None


def called_function(node: Node) -> str | None:
    """The function that a node calls; None if it is not a call."""
    return node.function if isinstance(node, Call) else None


def literal_value(node: Node | None, default: object = None) -> object:
    """The number or text that a node is; ``default`` if it is neither."""
    return node.value if isinstance(node, Literal) else default


def split_weights(node: Node) -> tuple[Node, Node | None]:
    """What is before the ~ without its weights, and the weights: ``weighted(y, w)`` is y and w."""
    if not isinstance(node, Call) or node.function != "weighted":
        return node, None
    if len(node.args) != 2 or node.kwargs:
        raise InvalidArgument(
            f"{format_node(node)!r} must be weighted(outcome, weights), such as weighted(y, w) ~ x."
        )
    return node.args[0], node.args[1]


def outcome_name(node: Node) -> str:
    """The name of an outcome: the first column that a call such as ``censored(time, event)`` names."""
    return outcome_name(node.args[0]) if isinstance(node, Call) else str(column_name(node))


def format_node(node: Node) -> str:
    """A node as text, with the brackets that it needs."""
    if isinstance(node, Call):
        named = [f"{key}={format_node(each)}" for key, each in node.kwargs.items()]
        return f"{node.function}({', '.join([*map(format_node, node.args), *named])})"
    if isinstance(node, Operation):
        inside = [
            f"({format_node(a)})" if isinstance(a, Operation) else format_node(a) for a in node.args
        ]
        return f" {node.symbol} ".join(inside) if len(inside) > 1 else f"{node.symbol}{inside[0]}"
    return node.name if isinstance(node, ColumnName) else node.text


def unknown_name_error(what: str, name: object, known: Iterable[str]) -> InvalidArgument:
    """The error for an unknown name, with the nearest known one as a hint."""
    names = list(known)
    near = get_close_matches(str(name), names, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    shown = ", ".join(names[:30]) + (", ..." if len(names) > 30 else "")
    return InvalidArgument(f"{what} {name!r}; {hint}there are {shown or 'none'}.")


Columns: TypeAlias = "Mapping[str, jax.Array]"


class NumPyColumns(dict[str, Any]):
    """Encoded columns as NumPy arrays, of which a design is computed in NumPy and in double precision.

    Predictions from saved draws need neither JAX, which takes long to import, nor its compiler.
    """


def array_module(columns: Columns) -> ModuleType:
    """The module to compute with: ``jax.numpy``, or NumPy for `NumPyColumns`."""
    if isinstance(columns, NumPyColumns):
        return np
    import jax.numpy as jnp

    return jnp


def as_float(columns: Columns, values: Any) -> "jax.Array":
    """Values as floats of the usual precision of `array_module`."""
    module = array_module(columns)
    found: jax.Array = module.asarray(values).astype(np.float64 if module is np else module.float32)
    return found


@dataclass(frozen=True)
class Expression:
    """A number computed from the columns of a row, in its own unit, with bounds."""

    read: "Callable[[Columns], jax.Array | float]"
    low: float
    high: float
    columns: frozenset[str] = frozenset()


def scalar_column(name: str, schema: Schema) -> Kind:
    """What is public about a column; raises if there is no such column."""
    if name not in schema.names:
        raise unknown_name_error("The formula names", name, schema.names)
    if schema[name].shape:
        raise InvalidArgument(
            f"Column {name!r} has an array in each row, which a formula cannot use; declare one "
            "column for each number."
        )
    column = schema[name]
    if isinstance(column, Number) and column.has_gaps:
        raise InvalidArgument(
            f"Column {name!r} is declared with missing='keep', which leaves its gaps to a model of your own; "
            "for a formula declare 'drop', or a number that replaces them."
        )
    return column


def decode_column(name: str, column: Kind) -> "Callable[[Columns], jax.Array]":
    """A column, decoded to its own unit."""
    if isinstance(column, Number) and column.scale is not None:
        centre, unit = column.scale
        return lambda columns: centre + unit * columns[name]
    return lambda columns: as_float(columns, columns[name])


def bounded_expression(node: Node, schema: Schema) -> Expression:
    """A calculation as a function of columns; raises if its bounds are not finite."""
    found = _build_expression(node, schema)
    if not (abs(found.low) < 1e30 and abs(found.high) < 1e30):  # also refuses NaN
        raise InvalidArgument(
            f"{format_node(node)!r} is infinite or too large for some values within the bounds of its "
            "columns; change the bounds or the calculation."
        )
    return found


def _build_expression(node: Node, schema: Schema) -> Expression:
    name = column_name(node)
    if name is not None:
        column = scalar_column(name, schema)
        if column.kind == "category":
            raise InvalidArgument(f"{name!r} is a category and cannot be used in a calculation.")
        return Expression(
            decode_column(name, column), float(column.low), float(column.high), frozenset([name])
        )
    if isinstance(node, Call):
        return _build_call(node, schema)
    if isinstance(node, Operation):
        return _build_operation(node, schema)
    value = literal_number(node)
    return Expression(lambda _: value, value, value)


def literal_number(node: Node) -> float:
    """A number in the formula."""
    if isinstance(node, Operation) and node.symbol in {"-", "+"} and len(node.args) == 1:
        return literal_number(node.args[0]) * (-1 if node.symbol == "-" else 1)
    value = literal_value(node)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidArgument(f"{format_node(node)!r} must be a number.")
    return float(value)


def number_list(node: Node) -> list[float]:
    """One number, or several as in ``c(30, 50)``."""
    several = node.args if isinstance(node, Call) and node.function == "c" else (node,)
    return [literal_number(each) for each in several]


# Intervals of constant hazard, if none are given.
_NUM_INTERVALS = 4


def interval_starts(outcome: Node, column: Kind) -> tuple[float, ...]:
    """Where intervals of constant hazard begin: at 0, and at the given or evenly spaced cut points."""
    given = outcome.kwargs.get("cuts") if isinstance(outcome, Call) else None
    if given is None:
        return tuple(float(each) for each in np.linspace(0, column.high, _NUM_INTERVALS + 1)[:-1])
    cuts = sorted(number_list(given))
    if len(set(cuts)) < len(cuts) or not all(0 < each < column.high for each in cuts):
        raise InvalidArgument(
            f"cuts must differ and lie between 0 and the longest time, {column.high:g}, as in "
            f"censored(time, event, cuts=c({column.high / 4:g}, {column.high / 2:g})); got "
            f"{format_node(given)!r}."
        )
    return (0.0, *cuts)


def _build_call(node: Call, schema: Schema) -> Expression:
    name = node.function.removeprefix("np.").removeprefix("numpy.")
    if name not in _FUNCTIONS and (hint := foreign_call_hint(node)) is not None:
        raise InvalidArgument(f"A formula cannot have {format_node(node)!r}; {hint}.")
    if name not in _FUNCTIONS or len(node.args) != 1 or node.kwargs:
        raise InvalidArgument(
            f"A formula cannot compute {format_node(node)!r}; inside a calculation use + - * / **, and "
            f"{', '.join(sorted(_FUNCTIONS))} of one argument."
        )
    inner = bounded_expression(node.args[0], schema)
    ends = _FUNCTIONS[name]
    low, high = ends(inner.low), ends(inner.high)

    def read(columns: Columns) -> "jax.Array":
        module = array_module(columns)
        # Rounding may move a value beyond its bounds, where a root or logarithm may not exist.
        at = module.clip(inner.read(columns), inner.low, inner.high)
        found: jax.Array = at if name == "I" else getattr(module, name)(at)
        return found

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
_FUNCTIONS: dict[str, Callable[[float], float]] = {
    "I": lambda x: x,
    "exp": _or_nan(math.exp),
    "log": _or_nan(math.log),
    "log10": _or_nan(math.log10),
    "log1p": _or_nan(math.log1p),
    "log2": _or_nan(math.log2),
    "sqrt": _or_nan(math.sqrt),
}


def _build_operation(node: Operation, schema: Schema) -> Expression:
    sides = [bounded_expression(each, schema) for each in node.args]
    if node.symbol == "**":
        return _build_power(sides[0], node)
    if node.symbol not in _OPERATIONS:
        raise InvalidArgument(
            f"A formula cannot compare, as in {format_node(node)!r}; put the comparison into a column of "
            "the data, declared as tacit.Binary()."
        )
    if len(sides) == 1:
        sides = [Expression(lambda _: 0.0, 0.0, 0.0), *sides]
    first, second = sides
    function = _OPERATIONS[node.symbol]
    if node.symbol == "/" and second.low <= 0 <= second.high:
        raise InvalidArgument(
            f"{format_node(node)!r} may divide by zero within the bounds of its columns; change the "
            "bounds or the calculation."
        )
    ends = [function(a, b) for a, b in product(*((s.low, s.high) for s in sides))]
    return Expression(
        lambda columns: function(first.read(columns), second.read(columns)),
        *_min_max(ends),
        first.columns | second.columns,
    )


_OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
}


def _build_power(base: Expression, node: Operation) -> Expression:
    exponent = literal_number(node.args[1])
    whole = exponent == int(exponent) and exponent >= 1
    if not (whole or base.low > 0):
        raise InvalidArgument(
            f"{format_node(node)!r} needs a whole exponent of at least 1, or a base whose bounds are "
            "above zero."
        )
    power: float = int(exponent) if whole else exponent
    ends = [_or_nan(lambda x: x**power)(end) for end in (base.low, base.high)]
    if whole and power % 2 == 0 and base.low < 0 < base.high:
        ends.append(0.0)
    return Expression(lambda columns: base.read(columns) ** power, *_min_max(ends), base.columns)


def _min_max(ends: list[float]) -> tuple[float, float]:
    """The lowest and the highest; NaN if any of them is NaN."""
    known = not any(math.isnan(end) for end in ends)
    return (min(ends), max(ends)) if known else (math.nan, math.nan)

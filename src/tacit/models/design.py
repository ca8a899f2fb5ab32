"""Terms and groups of a formula as columns of a design matrix, from the schema only.

Numbers are standardised to [-1, 1] by their bounds, categories are coded by their declared levels, and bases of
splines and polynomials span the bounds. Whether a category is coded with a column for every level, so that no column
is redundant, follows from the formula.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import combinations, pairwise, product
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from tacit.data.columns import DROP, Date, Kind, Number
from tacit.data.schema import Schema
from tacit.errors import InvalidArgument
from tacit.models.formula import (
    Call,
    Columns,
    Expression,
    GroupTerm,
    Node,
    ParsedFormula,
    array_module,
    as_float,
    bounded_expression,
    called_function,
    column_name,
    decode_column,
    format_node,
    literal_number,
    literal_value,
    number_list,
    scalar_column,
)
from tacit.models.interpretation import Increment, round_increment

if TYPE_CHECKING:
    import jax

Basis: TypeAlias = "tuple[Callable[[Columns], jax.Array], int, str]"
_MAX_BASIS_SIZE = 50


def _basis_arguments(node: Call, names: tuple[str, ...]) -> dict[str, Node]:
    """The arguments after the first, by name."""
    given: dict[str, Node] = {**dict(zip(names, node.args[1:], strict=False)), **node.kwargs}
    if len(node.args) - 1 > len(names) or set(given) - set(names):
        raise InvalidArgument(
            f"{format_node(node)!r} takes no other arguments than {', '.join(names)}."
        )
    return given


def _integer_argument(node: Call, name: str, value: Node, least: int) -> int:
    found = literal_number(value)
    if found != int(found) or not least <= found <= _MAX_BASIS_SIZE:
        raise InvalidArgument(
            f"{name} of {format_node(node)!r} must be a whole number from {least} to {_MAX_BASIS_SIZE}."
        )
    return int(found)


def standardize(inner: Expression) -> "Callable[[Columns], jax.Array]":
    """A number, standardised from its bounds to [-1, 1]."""
    middle, half = (inner.low + inner.high) / 2, (inner.high - inner.low) / 2
    return lambda columns: array_module(columns).clip(
        (inner.read(columns) - middle) / half, -1.0, 1.0
    )


def legendre_basis(node: Call, inner: Expression) -> Basis:
    """Legendre polynomials, which are orthogonal for numbers spread evenly over the bounds."""
    given = _basis_arguments(node, ("degree",))
    if "degree" not in given:
        raise InvalidArgument(f"{format_node(node)!r} needs a degree, such as poly(x, 3).")
    degree, at = _integer_argument(node, "degree", given["degree"], 1), standardize(inner)

    def read(columns: Columns) -> "jax.Array":
        module, x = array_module(columns), at(columns)
        found = [module.ones_like(x), x]
        for n in range(1, degree):
            found.append(((2 * n + 1) * x * found[-1] - n * found[-2]) / (n + 1))
        stacked: jax.Array = module.stack(found[1:], axis=-1)
        return stacked

    span = f"{inner.low:.4g} to {inner.high:.4g}"
    return read, degree, f"Legendre polynomials over {span}, each within -1 and 1"


def bspline_basis(node: Call, inner: Expression) -> Basis:
    """B-splines whose knots are given, or evenly spaced between the bounds."""
    given = _basis_arguments(node, ("df", "knots", "degree", "intercept"))
    degree = _integer_argument(node, "degree", given["degree"], 0) if "degree" in given else 3
    whole = literal_value(given.get("intercept"), False)
    if not isinstance(whole, bool):
        raise InvalidArgument(f"intercept of {format_node(node)!r} must be True or False.")
    inside = _spline_knots(node, inner, given, degree + (1 if whole else 0))
    middle, half = (inner.low + inner.high) / 2, (inner.high - inner.low) / 2
    ends = degree + 1
    knots = [*[-1.0] * ends, *((knot - middle) / half for knot in inside), *[1.0] * ends]
    at, size = standardize(inner), len(knots) - degree - 1
    first = 0 if whole else 1

    def read(columns: Columns) -> "jax.Array":
        return _cox_de_boor(array_module(columns), at(columns), knots, degree)[:, first:]

    places = ", ".join(f"{knot:.4g}" for knot in inside) or "none inside"
    span = f"{inner.low:.4g} to {inner.high:.4g}"
    return read, size - first, f"B-splines of degree {degree} over {span}, knots: {places}"


def _spline_knots(
    node: Call, inner: Expression, given: dict[str, Node], fewest: int
) -> list[float]:
    if "knots" in given:
        knots = sorted(number_list(given["knots"]))
        inside = all(inner.low < knot < inner.high for knot in knots)
        if not inside or len(set(knots)) < len(knots):
            raise InvalidArgument(
                f"knots of {format_node(node)!r} must differ and lie between the bounds, "
                f"{inner.low:.4g} and {inner.high:.4g}."
            )
        if "df" in given and literal_number(given["df"]) != len(knots) + fewest:
            raise InvalidArgument(
                f"df of {format_node(node)!r} must be {len(knots) + fewest} for this number of knots; leave "
                "it out."
            )
        return knots
    if "df" not in given:
        raise InvalidArgument(
            f"{format_node(node)!r} needs df, such as bs(x, df=5), or knots, such as "
            "bs(x, knots=c(30, 50))."
        )
    count = _integer_argument(node, "df", given["df"], max(fewest, 1)) - fewest
    return [float(knot) for knot in np.linspace(inner.low, inner.high, count + 2)[1:-1]]


def _cox_de_boor(
    module: ModuleType, x: "jax.Array", knots: list[float], degree: int
) -> "jax.Array":
    """All B-splines of a degree at x [rows]: [rows, splines]."""
    last = len(knots) - degree - 2  # the last interval includes the upper bound
    pieces = [
        (x >= low) & ((x <= high) if i == last else (x < high))
        if low < high
        else module.zeros_like(x, bool)
        for i, (low, high) in enumerate(pairwise(knots))
    ]
    found = [piece.astype(x.dtype) for piece in pieces]
    for order in range(1, degree + 1):
        found = [
            _ramp(module, x, knots[i], knots[i + order]) * found[i]
            + (1 - _ramp(module, x, knots[i + 1], knots[i + order + 1])) * found[i + 1]
            for i in range(len(found) - 1)
        ]
    stacked: jax.Array = module.stack(found, axis=-1)
    return stacked


def _ramp(module: ModuleType, x: "jax.Array", low: float, high: float) -> "jax.Array":
    found: jax.Array = (x - low) / (high - low) if low < high else module.zeros_like(x)
    return found


_DATA_DEPENDENT_CALLS = {"scale", "center", "standardize"}
_BASES = {"bs": bspline_basis, "poly": legendre_basis}


class DesignBlock(NamedTuple):
    """Columns [rows, size] of a design matrix.

    Attributes:
        read: Computes them from the columns of the table.
        labels: A label for each column; empty if there is only one, which needs none.
        text: What a coefficient means apart from its increments, in a few words.
        increments: The increments of the numbers that a coefficient is about.
        centre: About the mean of a column, if all levels were equally frequent.
        reference: Where all columns are zero: a value or a level, by the name of the variable.
        alone: Whether a coefficient means something without the others, unlike that of a spline.
        max_norm: The largest length that the columns of a row have together.
        exclusive: Whether at most one column of a row is not zero.
        indicator: Whether, in addition, that column is one.
    """

    read: "Callable[[Columns], jax.Array]"
    labels: tuple[str, ...]
    text: str
    increments: tuple[Increment, ...] = ()
    centre: float = 0.0
    reference: tuple[tuple[str, str], ...] = ()
    alone: bool = True
    max_norm: float = 1.0
    exclusive: bool = True
    indicator: bool = False

    @property
    def meaning(self) -> str:
        """What the model's own coefficient means, in a few words."""
        own = {each.name: each.in_model for each in self.increments}
        per = [f"per {each.words(own, named=False)}, {each.origin}" for each in self.increments]
        return "; ".join([*per, *([self.text] if self.text else [])])


@dataclass(frozen=True, eq=False)
class Component:
    """A variable or call of a term; a category has a block for each of two codings."""

    name: str
    columns: frozenset[str]
    block: DesignBlock
    full: DesignBlock | None = None  # for a category: a column for every level

    @property
    def is_category(self) -> bool:
        """Whether its coding depends on the rest of the formula."""
        return self.full is not None


def build_component(node: Node, schema: Schema) -> Component:
    """The columns of the design matrix that a variable or call stands for."""
    name = column_name(node)
    if name is not None:
        return _column_component(str(name), schema)
    if not isinstance(node, Call):
        raise InvalidArgument(
            f"{format_node(node)!r} is not a term; name columns, or put a calculation into I(...)."
        )
    if node.function in {"C", "T", "S"}:
        return _category_component(node, schema)
    if node.function == "mi":
        return _column_component(missing_predictor(node, schema).name, schema)
    if node.function in _DATA_DEPENDENT_CALLS:
        raise InvalidArgument(
            f"{format_node(node)!r} would use a mean of the data; numbers are already standardised by their "
            "bounds, so name the column itself."
        )
    if node.function in _BASES:
        inner = bounded_expression(node.args[0], schema) if node.args else None
        if inner is None or inner.low >= inner.high:
            raise InvalidArgument(
                f"{format_node(node)!r} needs a column that varies as its first argument."
            )
        read, size, meaning = _BASES[node.function](node, inner)
        labels = tuple(str(i) for i in range(1, size + 1))
        centre = 1 / (size + 1) if node.function == "bs" else 0.0
        at = (
            f"{inner.low:.4g}" if node.function == "bs" else f"the mean over {_format_range(inner)}"
        )
        block = DesignBlock(
            read, labels, meaning, (), centre, ((format_node(node.args[0]), at),), alone=False,
            max_norm=1.0 if node.function == "bs" else math.sqrt(size), exclusive=size == 1,
        )  # fmt: skip
        return Component(format_node(node), inner.columns, block)
    calculated = bounded_expression(node, schema)
    if not calculated.columns or calculated.low >= calculated.high:
        raise InvalidArgument(f"{format_node(node)!r} is the same for all rows; leave it out.")
    return _bounded_component(format_node(node), calculated)


class MissingPredictor(NamedTuple):
    """A predictor that may be missing, with its distribution where it is.

    Attributes:
        name: The column.
        column: What is public about it.
        mean: Its mean; of a binary column, the probability of a one.
        sd: Its standard deviation; None for a binary column.
        text: The distribution in words.
    """

    name: str
    column: Kind
    mean: Expression
    sd: Expression | None
    text: str

    @property
    def columns(self) -> frozenset[str]:
        """The columns that the distribution is computed from."""
        return self.mean.columns | (frozenset() if self.sd is None else self.sd.columns)


def missing_predictor(node: Call, schema: Schema) -> MissingPredictor:
    """What ``mi(x)``, ``mi(x, mean, sd)`` or, of a binary column, ``mi(x, probability)`` says."""
    name = column_name(node.args[0]) if node.args else None
    if name is None:
        raise InvalidArgument(
            f"{format_node(node)!r} must be of a column, as in mi(x, mean, sd); calculate with it outside, as "
            "in mi(x, mean, sd) + I(x ** 2)."
        )
    column, text = scalar_column(name, schema), format_node(node)
    if column.kind not in {"number", "binary"}:
        raise InvalidArgument(
            f"{text!r} must be of a Number or a Binary column; {name!r} is declared as a {column.kind}."
        )
    if column.missing != DROP:
        raise InvalidArgument(
            f"{name!r} is never missing: its declaration replaces missing values by {column.missing}; "
            "leave out missing=, or write the column without mi(...)."
        )
    wanted = ("mean", "sd") if column.kind == "number" else ("probability",)
    given = _basis_arguments(node, wanted)
    if column.kind == "number" and not given and isinstance(column, Number) and column.spread:
        centre, spread = float(column.centre or 0.0), float(column.spread)
        mean, sd = Expression(lambda _: centre, centre, centre), spread
        said = f"normal with mean {centre:.6g} and standard deviation {spread:.6g}"
        return MissingPredictor(name, column, mean, Expression(lambda _: sd, sd, sd), said)
    if set(given) != set(wanted):
        raise InvalidArgument(
            f"{text!r} needs the distribution of {name} where it is missing: mi({name}, {', '.join(wanted)}), "
            "where each is a number or is calculated from other columns"
            + (", or a centre and a spread in the schema." if column.kind == "number" else ".")
        )
    parts = [bounded_expression(given[each], schema) for each in wanted]
    if name in frozenset[str]().union(*(each.columns for each in parts)):
        raise InvalidArgument(f"{text!r} computes the distribution of {name} from {name} itself.")
    low, high = (column.low, column.high) if column.kind == "number" else (0.0, 1.0)
    if not low <= parts[0].low <= parts[0].high <= high:
        raise InvalidArgument(
            f"The {wanted[0]} in {text!r} goes from {parts[0].low:.6g} to {parts[0].high:.6g}; it must lie "
            f"between {low:.6g} and {high:.6g}."
        )
    if column.kind == "binary":
        said = f"{column.labels[1]} with probability {format_node(given['probability'])}"
        return MissingPredictor(name, column, parts[0], None, said)
    if parts[1].low <= 0:
        raise InvalidArgument(
            f"The standard deviation in {text!r} goes down to {parts[1].low:.6g}; it must be above zero."
        )
    said = f"normal with mean {format_node(given['mean'])} and standard deviation {format_node(given['sd'])}"
    return MissingPredictor(name, column, parts[0], parts[1], said)


def _missing_predictors(parts: ParsedFormula, schema: Schema) -> tuple[MissingPredictor, ...]:
    """All predictors of a formula that may be missing."""
    nodes = [n for term in parts.terms for n in term]
    nodes += [n for each in parts.grouped for n in each.varying]
    calls = [each for each in nodes if isinstance(each, Call) and each.function == "mi"]
    found: dict[str, tuple[str, MissingPredictor]] = {}
    for call in calls:
        made, text = missing_predictor(call, schema), format_node(call)
        if found.setdefault(made.name, (text, made))[0] != text:
            raise InvalidArgument(
                f"The formula says in two ways how {made.name} is distributed: {found[made.name][0]} and {text}."
            )
    predictors = tuple(made for _, made in found.values())
    for each in predictors:
        if also := each.columns & found.keys():
            raise InvalidArgument(
                f"The distribution of {each.name} cannot depend on {min(also)}, which may be missing, too."
            )
    return predictors


def _column_component(name: str, schema: Schema) -> Component:
    column = scalar_column(name, schema)
    if column.kind == "category":
        return _coded_category(name, column, "treatment", None)
    if column.kind == "binary":
        meaning, at = f"{column.labels[1]} against {column.labels[0]}", (name, column.labels[0])
        read = _as_column(decode_column(name, column))
        block = DesignBlock(read, (), meaning, centre=0.5, reference=(at,), indicator=True)
        return Component(name, frozenset([name]), block)
    found = Expression(
        decode_column(name, column), float(column.low), float(column.high), frozenset([name])
    )
    if isinstance(column, Number) and column.centre is not None and column.spread is not None:
        centre, spread = column.centre, column.spread
        return _standardized_component(
            name, found, centre, spread, f"from {centre:.4g}", column.measured_in
        )
    if isinstance(column, Date):
        middle, half = (found.low + found.high) / 2, (found.high - found.low) / 2
        origin = f"half of {column.dates[0]} to {column.dates[1]}"
        day = str(column.to_moments(np.array(middle)).astype("M8[D]"))
        return _standardized_component(
            name, found, middle, half, origin, column.measured_in, day, least=1.0
        )
    return _bounded_component(name, found, column.measured_in)


def _bounded_component(name: str, found: Expression, unit: str | None = None) -> Component:
    """A number, standardised by its bounds."""
    middle, half = (found.low + found.high) / 2, (found.high - found.low) / 2
    return _standardized_component(
        name, found, middle, half, f"half of {_format_range(found)}", unit
    )


def _standardized_component(
    name: str,
    found: Expression,
    middle: float,
    scale: float,
    origin: str,
    unit: str | None,
    at: str | None = None,
    least: float = 0.0,
) -> Component:
    """A number, standardised; its coefficient is shown per round increment of a declared unit."""
    shown = 1.0 if unit is None else max(round_increment(scale), least)
    if at is None:
        at = f"{middle:.6g}" if unit is None else f"{middle:.6g} {unit}"
    block = DesignBlock(
        read=_as_column(lambda c: (found.read(c) - middle) / scale),
        labels=(),
        text="",
        increments=(Increment(name, scale, shown, unit, origin),),
        reference=((name, at),),
        max_norm=max(abs(found.low - middle), abs(found.high - middle)) / scale,
    )
    return Component(name, found.columns, block)


def _as_column(
    read: "Callable[[Columns], jax.Array | float]",
) -> "Callable[[Columns], jax.Array]":
    return lambda columns: array_module(columns).asarray(read(columns))[:, None]


def _format_range(inner: Expression) -> str:
    return f"{inner.low:.6g} to {inner.high:.6g}"


def _category_component(node: Call, schema: Schema) -> Component:
    """C(x), C(x, Sum), C(x, Treatment("level")), T(x, "level") or S(x, "level")."""
    name = column_name(node.args[0]) if node.args else None
    column = None if name is None else scalar_column(name, schema)
    if column is None or column.kind not in {"category", "binary"}:
        raise InvalidArgument(
            f"{format_node(node)!r} must be of a column that is declared as a category."
        )
    assert name is not None
    coding, chosen = ("sum" if node.function == "S" else "treatment"), None
    further = [*node.args[1:], *node.kwargs.values()]
    if node.function == "C" and len(further) == 1 and not {*node.kwargs} - {"contrast"}:
        coding, chosen = _parse_contrast(node, further[0])
    elif node.function != "C" and len(further) == 1 and not {*node.kwargs} - {"ref", "omit"}:
        chosen = str(literal_value(further[0]))
    elif further:
        raise _unknown_coding_error(node)
    if chosen is not None and chosen not in column.labels:
        raise InvalidArgument(
            f"{format_node(node)!r} names a level that {name!r} does not have; its levels are "
            f"{', '.join(column.labels)}."
        )
    return _coded_category(name, column, coding, chosen)


def _parse_contrast(node: Call, how: Node) -> tuple[str, str | None]:
    kind = called_function(how) or column_name(how)
    values = [*how.args, *how.kwargs.values()] if isinstance(how, Call) else []
    if kind not in {"Treatment", "Sum"} or len(values) > 1:
        raise _unknown_coding_error(node)
    chosen = str(literal_value(values[0])) if values else None
    return ("sum" if kind == "Sum" else "treatment"), chosen


def _unknown_coding_error(node: Call) -> InvalidArgument:
    return InvalidArgument(
        f'{format_node(node)!r} is not a known coding; write C(x), C(x, Treatment("level")) or '
        "C(x, Sum); the levels are those of the schema."
    )


def _coded_category(name: str, column: Kind, coding: str, chosen: str | None) -> Component:
    """A coded category: treatment coding compares with one level, sum coding with the mean."""
    levels, count = column.labels, len(column.labels)
    if count < 2:
        raise InvalidArgument(f"{name!r} has a single level; leave it out.")
    default = levels[-1] if coding == "sum" else levels[0]
    at = levels.index(default if chosen is None else chosen)
    rest = tuple(level for level in levels if level != levels[at])
    against = "the mean of levels" if coding == "sum" else levels[at]
    is_sum = coding == "sum"

    def all_indicators(columns: Columns) -> "jax.Array":
        return _indicators(columns, name, count)

    def reduced_indicators(columns: Columns) -> "jax.Array":
        every = all_indicators(columns)
        others: jax.Array = array_module(columns).concatenate(
            [every[:, :at], every[:, at + 1 :]], axis=1
        )
        return others - every[:, at : at + 1] if is_sum else others

    reduced = DesignBlock(
        reduced_indicators,
        rest,
        f"against {against}",
        centre=0.0 if is_sum else 1 / count,
        reference=((name, against),),
        max_norm=math.sqrt(count - 1) if is_sum else 1.0,
        exclusive=not is_sum or count == 2,
        indicator=not is_sum,
    )
    full = DesignBlock(all_indicators, levels, "each level", centre=1 / count, indicator=True)
    return Component(name, frozenset([name]), reduced, full)


# Computed as the model runs: an array from outside could be mistaken for captured rows.
def _indicators(columns: Columns, name: str, count: int) -> "jax.Array":
    """Indicators of the level of each row: [rows, levels]."""
    module = array_module(columns)
    return as_float(columns, module.asarray(columns[name])[:, None] == module.arange(count))


def interaction_block(blocks: Sequence[DesignBlock]) -> DesignBlock:
    """All products of one column of each block."""
    if len(blocks) == 1:
        return blocks[0]

    def read(columns: Columns) -> "jax.Array":
        def times(first: "jax.Array", second: "jax.Array") -> "jax.Array":
            return (first[:, :, None] * second[:, None, :]).reshape(first.shape[0], -1)

        return reduce(times, (block.read(columns) for block in blocks))

    labels = product(*(block.labels for block in blocks if block.labels))
    return DesignBlock(
        read,
        tuple(", ".join(each) for each in labels if each),
        "; ".join(block.text for block in blocks if block.text),
        tuple(each for block in blocks for each in block.increments),
        math.prod(block.centre for block in blocks),
        tuple(each for block in blocks for each in block.reference),
        all(block.alone for block in blocks),
        math.prod(block.max_norm for block in blocks),
        all(block.exclusive for block in blocks),
        all(block.indicator for block in blocks),
    )


@dataclass(frozen=True, eq=False)
class Term:
    """A coefficient, or an array of them, and the columns that they multiply."""

    name: str
    columns: frozenset[str]
    block: DesignBlock
    is_level: bool = False  # one coefficient for each level, instead of an intercept

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the coefficients."""
        return (len(self.block.labels),) if self.block.labels else ()

    def read(self, columns: Columns) -> "jax.Array":
        """The columns that the coefficients multiply: [rows, coefficients]."""
        return self.block.read(columns)


@dataclass(frozen=True, eq=False)
class Group:
    """Effects that vary between levels of a category, or between people."""

    name: str
    columns: frozenset[str]
    varying: DesignBlock
    levels: tuple[str, ...]
    code: "Callable[[Columns], jax.Array]"
    person: str | None = None


def build_terms(
    nodes: Sequence[tuple[Node, ...]], intercept: bool, schema: Schema
) -> tuple[Term, ...]:
    """The terms of a formula except its intercept, coded so that none is redundant."""
    parts: dict[str, tuple[Component, ...]] = {}
    for term in nodes:
        found = {each.name: each for each in (build_component(node, schema) for node in term)}
        name = ":".join(found)
        if len(found) < len(term) or name in parts:
            raise InvalidArgument(f"The formula has {name!r} in two forms; leave one of them out.")
        parts[name] = tuple(found.values())
    codings = _choose_codings(parts, intercept)
    return tuple(
        term
        for name, components in parts.items()
        for term in _build_coded_terms(components, codings[name])
    )


def _choose_codings(
    parts: Mapping[str, tuple[Component, ...]], intercept: bool
) -> dict[str, list[dict[str, bool]]]:
    """For each term one or more codings, which say whether each category has all its levels.

    Only terms with the same numbers in them can make each other redundant.
    """
    alike: dict[frozenset[str], dict[str, list[str]]] = {}
    if intercept:
        alike[frozenset()] = {"Intercept": []}
    for name, components in parts.items():
        numbers = frozenset(each.name for each in components if not each.is_category)
        categories = [each.name for each in components if each.is_category]
        alike.setdefault(numbers, {})[name] = categories
    found: dict[str, list[dict[str, bool]]] = {}
    for group in alike.values():
        spanned: set[frozenset[str]] = set()
        # Terms with fewer categories come first, wherever they are in the formula.
        for name, categories in sorted(group.items(), key=lambda item: len(item[1])):
            found[name] = nonredundant_codings(categories, spanned)
    return found


def nonredundant_codings(
    categories: Sequence[str], spanned: set[frozenset[str]]
) -> list[dict[str, bool]]:
    """Codings of an interaction that add what terms before it do not span, and nothing twice.

    With a column for every level, an interaction spans the contrasts of each subset of its categories, those of
    none being the intercept. Subsets that remain are joined: a without b and a with b are a with every level of b.

    Args:
        categories: Names of the categories.
        spanned: The subsets that terms before it span; those of this term are added.
    """
    subsets = [each for n in range(len(categories) + 1) for each in combinations(categories, n)]
    codings = [dict.fromkeys(each, False) for each in subsets if frozenset(each) not in spanned]
    spanned.update(map(frozenset, subsets))
    while (joined := _join_two(codings)) is not None:
        codings = joined
    return codings


def _join_two(codings: list[dict[str, bool]]) -> list[dict[str, bool]] | None:
    """Codings of which the first two that differ in one category are joined; None if there are none."""
    for (i, short), (j, long) in combinations(enumerate(codings), 2):
        further = dict(long.items() - short.items())
        if len(further) == 1 and len(long) == len(short) + 1:
            joined = {**short, **dict.fromkeys(further, True)}
            return [*codings[:i], *codings[i + 1 : j], joined, *codings[j + 1 :]]
    return None


def _build_coded_terms(
    components: tuple[Component, ...], codings: list[dict[str, bool]]
) -> list[Term]:
    built = []
    for coding in codings:
        kept = [each for each in components if not each.is_category or each.name in coding]
        blocks = [
            each.full if each.full is not None and coding[each.name] else each.block
            for each in kept
        ]
        columns = frozenset[str]().union(*(each.columns for each in kept))
        level = all(coding.get(each.name, False) for each in kept)
        name = ":".join(each.name for each in kept)
        built.append(Term(name, columns, interaction_block(blocks), level))
    return built


def build_group(part: GroupTerm, schema: Schema, others: bool) -> Group:
    """Effects of groups; ``others`` says whether the same groups have their own intercepts."""
    varying = DesignBlock(lambda c: array_module(c).ones((len(next(iter(c.values()))), 1)), (), "")
    columns: frozenset[str] = frozenset()
    what = "1"
    if part.varying:
        parts = [build_component(node, schema) for node in part.varying]
        blocks = [each.block if others or each.full is None else each.full for each in parts]
        varying, what = interaction_block(blocks), ":".join(each.name for each in parts)
        columns = columns.union(*(each.columns for each in parts))
    person = schema.person
    # C(column) is the column.
    inner = [
        n.args[0] if isinstance(n, Call) and n.function == "C" and len(n.args) == 1 else n
        for n in part.groups
    ]
    names = [column_name(node) for node in inner]
    if person is not None and names == [person]:
        if varying.labels:
            raise InvalidArgument(f"({what}|{person}) must be of one number; use (1|{person}).")
        return Group(f"{what}|{person}", columns, varying, (), lambda c: c[person], person)
    for name, node in zip(names, part.groups, strict=True):
        if name is None or scalar_column(name, schema).kind not in {"category", "binary"}:
            raise InvalidArgument(
                f"Groups in {what}|{format_node(node)} must be a column that is declared as a category"
                + (f", or the person column {person}." if person else ".")
            )
    grouping = [str(name) for name in names]
    sizes = [len(schema[name].labels) for name in grouping]

    def code(columns: Columns) -> "jax.Array":
        found: jax.Array = array_module(columns).zeros((), np.int32)
        for name, size in zip(grouping, sizes, strict=True):
            found = found * size + columns[name]
        return found

    levels = tuple(", ".join(each) for each in product(*(schema[n].labels for n in grouping)))
    return Group(f"{what}|{':'.join(grouping)}", columns | {*grouping}, varying, levels, code)


class Design(NamedTuple):
    """The right side of a formula: what adds up to the linear predictor beside the intercept."""

    terms: tuple[Term, ...]
    groups: tuple[Group, ...]
    offsets: tuple[Expression, ...]
    missing: tuple[MissingPredictor, ...] = ()


def build_design(parts: ParsedFormula, schema: Schema) -> Design:
    """The terms, groups and offsets of a formula."""
    common = [nodes for nodes in parts.terms if not _is_offset(nodes)]
    with_intercept = [
        _format_interaction(each.groups) for each in parts.grouped if not each.varying
    ]
    return Design(
        build_terms(common, parts.intercept, schema),
        tuple(
            build_group(each, schema, _format_interaction(each.groups) in with_intercept)
            for each in parts.grouped
        ),
        tuple(_build_offset(nodes, schema) for nodes in parts.terms if _is_offset(nodes)),
        _missing_predictors(parts, schema),
    )


def _format_interaction(nodes: Sequence[Node]) -> str:
    """The nodes of an interaction as text."""
    return ":".join(format_node(node) for node in nodes)


def _is_offset(nodes: Sequence[Node]) -> bool:
    return any(called_function(node) == "offset" for node in nodes)


def _build_offset(nodes: Sequence[Node], schema: Schema) -> Expression:
    """The calculation in offset(...)."""
    offset = nodes[0]
    if len(nodes) != 1 or not isinstance(offset, Call) or len(offset.args) != 1 or offset.kwargs:
        raise InvalidArgument(f"{_format_interaction(nodes)!r} must be offset(...) of one column.")
    return bounded_expression(offset.args[0], schema)

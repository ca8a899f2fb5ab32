"""Variables and calls of a formula as columns of a design matrix, from public facts only.

Numbers are standardised to [-1, 1] by their bounds, categories are coded by their declared levels,
and bases of splines and polynomials span the bounds.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product
from typing import NamedTuple

import jax
import jax.numpy as jnp
from formulae.terms.call_resolver import LazyCall
from jax.typing import ArrayLike

from tacit.errors import InvalidArgument
from tacit.models.bases import polynomial, spline
from tacit.models.expressions import (
    Columns,
    Expression,
    Facts,
    KnownColumns,
    expression,
    facts_of,
    own,
)
from tacit.models.formula import Node, callee_of, name_of, text_of, value_of
from tacit.models.reading import Step, round_step

_FROM_DATA = {"scale", "center", "standardize"}
_BASES = {"bs": spline, "poly": polynomial}


class Block(NamedTuple):
    """Columns [rows, size] of a design matrix.

    Attributes:
        read: Computes them from the columns of the table.
        labels: A label for each column; empty if there is only one, which needs none.
        text: What a coefficient means apart from its steps, in a few words.
        steps: The steps of the numbers that a coefficient is about.
        centre: About the mean of a column, if all levels were equally frequent.
        reference: Where all columns are zero: a value or a level, by the name of the variable.
        alone: Whether a coefficient means something without the others, unlike that of a spline.
        longest: The largest length that the columns of a row have together.
        exclusive: Whether at most one column of a row is not zero.
        indicator: Whether, in addition, that column is one.
    """

    read: Callable[[Columns], jax.Array]
    labels: tuple[str, ...]
    text: str
    steps: tuple[Step, ...] = ()
    centre: float = 0.0
    reference: tuple[tuple[str, str], ...] = ()
    alone: bool = True
    longest: float = 1.0
    exclusive: bool = True
    indicator: bool = False

    @property
    def unit(self) -> float:
        """How many units of the table's columns one unit of the standardised column is."""
        return math.prod(step.own for step in self.steps)

    @property
    def meaning(self) -> str:
        """What the model's own coefficient means, in a few words."""
        own = {step.name: step.own for step in self.steps}
        per = [f"per {step.words(own, named=False)}, {step.why}" for step in self.steps]
        return "; ".join([*per, *([self.text] if self.text else [])])


@dataclass(frozen=True, eq=False)
class Component:
    """A variable or call of a term; a category has a block for each of two codings."""

    name: str
    columns: frozenset[str]
    block: Block
    full: Block | None = None  # for a category: a column for every level

    @property
    def is_category(self) -> bool:
        """Whether its coding depends on the rest of the formula."""
        return self.full is not None


def component(node: Node, known: KnownColumns) -> Component:
    """The columns of the design matrix that a variable or call stands for."""
    name = name_of(node)
    if name is not None:
        return _variable(str(name), known)
    if not isinstance(node, LazyCall):
        raise InvalidArgument(
            f"{text_of(node)!r} is not a term; name columns, or put a calculation into I(...)."
        )
    if node.callee in {"C", "T", "S"}:
        return _category(node, known)
    if node.callee in _FROM_DATA:
        raise InvalidArgument(
            f"{text_of(node)!r} would use a mean of the data; numbers are already standardised by their "
            "bounds, so name the column itself."
        )
    if node.callee in _BASES:
        inner = expression(node.args[0], known) if node.args else None
        if inner is None or inner.low >= inner.high:
            raise InvalidArgument(
                f"{text_of(node)!r} needs a column that varies as its first argument."
            )
        read, size, meaning = _BASES[node.callee](node, inner)
        labels = tuple(str(i) for i in range(1, size + 1))
        centre = 1 / (size + 1) if node.callee == "bs" else 0.0
        at = f"{inner.low:.4g}" if node.callee == "bs" else f"the mean over {_span(inner)}"
        block = Block(
            read, labels, meaning, (), centre, ((text_of(node.args[0]), at),), alone=False,
            longest=1.0 if node.callee == "bs" else math.sqrt(size), exclusive=size == 1,
        )  # fmt: skip
        return Component(text_of(node), inner.columns, block)
    return _calculation(node, expression(node, known))


def _variable(name: str, known: KnownColumns) -> Component:
    facts = facts_of(name, known)
    if facts.kind == "category":
        return _coded(name, facts, "treatment", None)
    if facts.kind == "binary":
        meaning, at = f"{facts.levels[1]} against {facts.levels[0]}", (name, facts.levels[0])
        read = _single(own(name, facts))
        block = Block(read, (), meaning, centre=0.5, reference=(at,), indicator=True)
        return Component(name, frozenset([name]), block)
    found = Expression(own(name, facts), facts.low, facts.high, frozenset([name]))
    if facts.standard is not None:
        centre, spread = facts.standard
        return _number(name, found, centre, spread, f"from {centre:.4g}", facts.measure)
    return _bounded(name, found, facts.measure)


def _bounded(name: str, found: Expression, measure: str | None = None) -> Component:
    """A number, standardised by its bounds."""
    middle, half = (found.low + found.high) / 2, (found.high - found.low) / 2
    return _number(name, found, middle, half, f"half of {_span(found)}", measure)


def _number(
    name: str, found: Expression, middle: float, own: float, why: str, measure: str | None
) -> Component:
    """A number, standardised; its coefficient is shown per round step of a declared unit."""
    step = Step(name, own, 1.0 if measure is None else round_step(own), measure, why)
    at = f"{middle:.6g}" if measure is None else f"{middle:.6g} {measure}"
    read = _single(lambda c: (found.read(c) - middle) / own)
    longest = max(abs(found.low - middle), abs(found.high - middle)) / own
    block = Block(read, (), "", (step,), reference=((name, at),), longest=longest)
    return Component(name, found.columns, block)


def _single(read: Callable[[Columns], jax.Array]) -> Callable[[Columns], jax.Array]:
    return lambda columns: read(columns)[:, None]


def _calculation(node: Node, found: Expression) -> Component:
    if not found.columns or found.low >= found.high:
        raise InvalidArgument(f"{text_of(node)!r} is the same for all rows; leave it out.")
    return _bounded(text_of(node), found)


def _span(inner: Expression) -> str:
    return f"{inner.low:.6g} to {inner.high:.6g}"


def _category(node: Node, known: KnownColumns) -> Component:
    """C(x), C(x, Sum), C(x, Treatment("level")), T(x, "level") or S(x, "level")."""
    name = name_of(node.args[0]) if node.args else None
    facts = None if name is None else facts_of(name, known)
    if facts is None or facts.kind not in {"category", "binary"}:
        raise InvalidArgument(
            f"{text_of(node)!r} must be of a column that is declared as a category."
        )
    assert name is not None
    coding, chosen = ("sum" if node.callee == "S" else "treatment"), None
    further = [*node.args[1:], *node.kwargs.values()]
    if node.callee == "C" and len(further) == 1 and not {*node.kwargs} - {"contrast"}:
        coding, chosen = _contrast(node, further[0])
    elif node.callee != "C" and len(further) == 1 and not {*node.kwargs} - {"ref", "omit"}:
        chosen = str(value_of(further[0]))
    elif further:
        raise _unknown_coding(node)
    if chosen is not None and chosen not in facts.levels:
        raise InvalidArgument(
            f"{text_of(node)!r} names a level that {name!r} does not have; its levels are "
            f"{', '.join(facts.levels)}."
        )
    return _coded(name, facts, coding, chosen)


def _contrast(node: Node, how: Node) -> tuple[str, str | None]:
    kind = callee_of(how) or name_of(how)
    values = [*how.args, *how.kwargs.values()] if isinstance(how, LazyCall) else []
    if kind not in {"Treatment", "Sum"} or len(values) > 1:
        raise _unknown_coding(node)
    chosen = str(value_of(values[0])) if values else None
    return ("sum" if kind == "Sum" else "treatment"), chosen


def _unknown_coding(node: Node) -> InvalidArgument:
    return InvalidArgument(
        f'{text_of(node)!r} is not a known coding; write C(x), C(x, Treatment("level")) or '
        "C(x, Sum); the levels are those of the schema."
    )


def _coded(name: str, facts: Facts, coding: str, chosen: str | None) -> Component:
    """A coded category: treatment coding compares with one level, sum coding with the mean."""
    levels, count = facts.levels, len(facts.levels)
    if count < 2:
        raise InvalidArgument(f"{name!r} has a single level; leave it out.")
    default = levels[-1] if coding == "sum" else levels[0]
    at = levels.index(default if chosen is None else chosen)
    rest = tuple(level for level in levels if level != levels[at])
    against = "the mean of levels" if coding == "sum" else levels[at]
    read = _without(name, count, at, minus=coding == "sum")
    centre = 0.0 if coding == "sum" else 1 / count
    one = coding == "treatment"  # of the columns is one, if any
    reduced = Block(
        read, rest, f"against {against}", centre=centre, reference=((name, against),),
        longest=1.0 if one else math.sqrt(count - 1), exclusive=one or count == 2, indicator=one,
    )  # fmt: skip
    full = Block(
        lambda columns: _indicators(columns[name], count), levels, "each level", centre=1 / count,
        indicator=True,
    )  # fmt: skip
    return Component(name, frozenset([name]), reduced, full)


# Computed as the model runs: an array from outside could be mistaken for captured rows.
def _indicators(codes: ArrayLike, count: int) -> jax.Array:
    """Indicators of the level of each row: [rows, levels]."""
    return (jnp.asarray(codes)[:, None] == jnp.arange(count)).astype(jnp.float32)


def _without(name: str, count: int, at: int, minus: bool) -> Callable[[Columns], jax.Array]:
    """Indicators of all levels but one, which is subtracted from the others if ``minus``."""

    def read(columns: Columns) -> jax.Array:
        every = _indicators(columns[name], count)
        rest = jnp.concatenate([every[:, :at], every[:, at + 1 :]], axis=1)
        return rest - every[:, at : at + 1] if minus else rest

    return read


def product_of(blocks: Sequence[Block]) -> Block:
    """All products of one column of each block."""
    if len(blocks) == 1:
        return blocks[0]

    def read(columns: Columns) -> jax.Array:
        def times(first: jax.Array, second: jax.Array) -> jax.Array:
            return (first[:, :, None] * second[:, None, :]).reshape(first.shape[0], -1)

        return reduce(times, (block.read(columns) for block in blocks))

    labels = product(*(block.labels for block in blocks if block.labels))
    return Block(
        read,
        tuple(", ".join(each) for each in labels if each),
        "; ".join(block.text for block in blocks if block.text),
        tuple(step for block in blocks for step in block.steps),
        math.prod(block.centre for block in blocks),
        tuple(each for block in blocks for each in block.reference),
        all(block.alone for block in blocks),
        math.prod(block.longest for block in blocks),
        all(block.exclusive for block in blocks),
        all(block.indicator for block in blocks),
    )

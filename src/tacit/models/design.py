"""Terms of a formula as columns of a design matrix, a row at a time, from public facts only.

Numbers are standardised by their bounds to [-1, 1], categories coded by their declared levels,
bases of splines and polynomials laid over the bounds. Which categories are coded with a
column for every level, so that none is redundant, follows from the formula.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from formulae.contrasts import pick_contrasts
from formulae.terms.call_resolver import LazyCall

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
from tacit.models.formula import Grouped, Node, callee_of, name_of, text_of, value_of

_FROM_DATA = {"scale", "center", "standardize"}
_BASES = {"bs": spline, "poly": polynomial}


class Block(NamedTuple):
    """Columns [rows, size] of a design matrix, with a label for each unless it stands alone."""

    read: Callable[[Columns], jax.Array]
    labels: tuple[str, ...]
    meaning: str
    unit: float = 1.0  # of its own, in one of the standardised
    centre: float = 0.0  # about the mean of a column, if all levels were equally frequent
    standard: bool = False  # by a declared centre and spread, and not by bounds


@dataclass(frozen=True, eq=False)
class Component:
    """A part of a term, by itself; a category has a block for either way of coding it."""

    name: str
    columns: frozenset[str]
    block: Block
    full: Block | None = None  # of a category: a column for every level

    @property
    def is_category(self) -> bool:
        """Whether its coding depends on the rest of the formula."""
        return self.full is not None


@dataclass(frozen=True, eq=False)
class Term:
    """A coefficient, or an array of them, and what they are multiplied by in a row."""

    name: str
    columns: frozenset[str]
    block: Block
    is_level: bool = False  # a level of the outcome each, in place of an intercept

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the coefficients."""
        return (len(self.block.labels),) if self.block.labels else ()

    def read(self, columns: Columns) -> jax.Array:
        """What the coefficients are multiplied by: [rows, coefficients]."""
        return self.block.read(columns)


@dataclass(frozen=True, eq=False)
class Group:
    """Effects that vary between levels of a category, or between people."""

    name: str
    columns: frozenset[str]
    varying: Block
    levels: tuple[str, ...]
    code: Callable[[Columns], jax.Array]
    person: str | None = None


def component(node: Node, known: KnownColumns) -> Component:
    """What a variable or call stands for."""
    name = name_of(node)
    if name is not None:
        return _variable(str(name), known)
    if not isinstance(node, LazyCall):
        raise InvalidArgument(
            f"{text_of(node)!r} is no term; name columns, or put a calculation into I(...)."
        )
    if node.callee in {"C", "T", "S"}:
        return _category(node, known)
    if node.callee in _FROM_DATA:
        raise InvalidArgument(
            f"{text_of(node)!r} would take a mean from the data; numbers are standardised by their "
            "bounds already, so name the column itself."
        )
    if node.callee in _BASES:
        inner = expression(node.args[0], known) if node.args else None
        if inner is None or inner.low >= inner.high:
            raise InvalidArgument(f"{text_of(node)!r} needs a column that varies, first.")
        read, size, meaning = _BASES[node.callee](node, inner)
        labels = tuple(str(i) for i in range(1, size + 1))
        centre = 1 / (size + 1) if node.callee == "bs" else 0.0
        return Component(text_of(node), inner.columns, Block(read, labels, meaning, 1.0, centre))
    return _calculation(node, expression(node, known))


def _variable(name: str, known: KnownColumns) -> Component:
    facts = facts_of(name, known)
    if facts.kind == "category":
        return _coded(name, facts, "treatment", None)
    if facts.kind == "binary":
        meaning = f"{facts.levels[1]} against {facts.levels[0]}"
        block = Block(_single(own(name, facts)), (), meaning, centre=0.5)
        return Component(name, frozenset([name]), block)
    found = Expression(own(name, facts), facts.low, facts.high, frozenset([name]))
    if facts.standard is not None:
        centre, spread = facts.standard
        meaning = f"per {spread:.4g}, from {centre:.4g}"
        read = _single(lambda c: (found.read(c) - centre) / spread)
        return Component(name, found.columns, Block(read, (), meaning, spread, 0.0, True))
    return _calculation(None, found, name)


def _single(read: Callable[[Columns], jax.Array]) -> Callable[[Columns], jax.Array]:
    return lambda columns: read(columns)[:, None]


def _calculation(node: Node, found: Expression, name: str | None = None) -> Component:
    if not found.columns or found.low >= found.high:
        raise InvalidArgument(f"{text_of(node)!r} is the same for all rows; leave it out.")
    middle, half = (found.low + found.high) / 2, (found.high - found.low) / 2
    meaning = f"per {half:.4g}, half of {found.low:.4g} to {found.high:.4g}"
    block = Block(_single(lambda c: (found.read(c) - middle) / half), (), meaning, half)
    return Component(text_of(node) if name is None else name, found.columns, block)


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
    """Treatment coding measures levels from one of them, sum coding from their mean."""
    levels, count = facts.levels, len(facts.levels)
    if count < 2:
        raise InvalidArgument(f"{name!r} has a single level, so it explains nothing; leave it out.")
    default = levels[-1] if coding == "sum" else levels[0]
    at = levels.index(default if chosen is None else chosen)
    rest = tuple(level for level in levels if level != levels[at])
    against = "the mean of levels" if coding == "sum" else levels[at]
    read = _without(name, count, at, minus=coding == "sum")
    centre = 0.0 if coding == "sum" else 1 / count
    reduced = Block(read, rest, f"each level against {against}", centre=centre)
    full = Block(
        lambda columns: _indicators(columns[name], count), levels, "each level", centre=1 / count
    )
    return Component(name, frozenset([name]), reduced, full)


# Computed as the model runs: an array from outside could not be told from one of rows.
def _indicators(codes: Any, count: int) -> jax.Array:
    """Which of the levels each row has: [rows, levels]."""
    return (jnp.asarray(codes)[:, None] == jnp.arange(count)).astype(jnp.float32)


def _without(name: str, count: int, at: int, minus: bool) -> Callable[[Columns], jax.Array]:
    """Indicators of all levels but one, which is subtracted from the others if ``minus``."""

    def read(columns: Columns) -> jax.Array:
        every = _indicators(columns[name], count)
        rest = jnp.concatenate([every[:, :at], every[:, at + 1 :]], axis=1)
        return rest - every[:, at : at + 1] if minus else rest

    return read


def terms_of(
    nodes: Sequence[tuple[Node, ...]], intercept: bool, known: KnownColumns
) -> tuple[Term, ...]:
    """The terms of a formula besides its intercept, none of which is redundant."""
    parts: dict[str, tuple[Component, ...]] = {}
    for term in nodes:
        found = {each.name: each for each in (component(node, known) for node in term)}
        name = ":".join(found)
        if len(found) < len(term) or name in parts:
            raise InvalidArgument(f"The formula has {name!r} in two forms; leave one of them out.")
        parts[name] = tuple(found.values())
    codings = _codings(parts, intercept)
    return tuple(
        term for name, components in parts.items() for term in _built(components, codings[name])
    )


def _codings(
    parts: Mapping[str, tuple[Component, ...]], intercept: bool
) -> dict[str, list[dict[str, bool]]]:
    """For each term one or more codings: whether each of its categories has all its levels.

    Terms with the same numbers in them may make each other redundant, and no others do.
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
        # A term of fewer categories is looked at first, wherever it stands.
        found |= pick_contrasts(dict(sorted(group.items(), key=lambda item: len(item[1]))))
    return found


def _built(components: tuple[Component, ...], codings: list[dict[str, bool]]) -> list[Term]:
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
        built.append(Term(name, columns, _product(blocks), level))
    return built


def _product(blocks: Sequence[Block]) -> Block:
    """All products of a column of each."""
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
        "product: " + "; ".join(block.meaning for block in blocks),
        math.prod(block.unit for block in blocks),
        math.prod(block.centre for block in blocks),
        any(block.standard for block in blocks),
    )


def group_of(part: Grouped, known: KnownColumns, person: str | None, others: bool) -> Group:
    """Effects of groups; ``others`` says that the same groups have an intercept of their own."""
    varying = Block(lambda c: jnp.ones((len(next(iter(c.values()))), 1)), (), "intercept")
    columns: frozenset[str] = frozenset()
    what = "1"
    if part.varying:
        parts = [component(node, known) for node in part.varying]
        blocks = [each.block if others or each.full is None else each.full for each in parts]
        varying, what = _product(blocks), ":".join(each.name for each in parts)
        columns = columns.union(*(each.columns for each in parts))
    names = [name_of(_inside(node)) for node in part.groups]
    if names == [person]:
        assert person is not None
        if varying.labels:
            raise InvalidArgument(f"({what}|{person}) must be of one number; use (1|{person}).")
        return Group(f"{what}|{person}", columns, varying, (), lambda c: c[person], person)
    for name, node in zip(names, part.groups, strict=True):
        if name is None or facts_of(name, known).kind not in {"category", "binary"}:
            raise InvalidArgument(
                f"Groups in {what}|{text_of(node)} must be a column that is declared as a category"
                + (f", or {person}, who a row belongs to." if person else ".")
            )
    grouping = [str(name) for name in names]
    sizes = [len(known[name].levels) for name in grouping]

    def code(columns: Columns) -> jax.Array:
        found = jnp.zeros((), jnp.int32)
        for name, size in zip(grouping, sizes, strict=True):
            found = found * size + columns[name]
        return found

    levels = tuple(", ".join(each) for each in product(*(known[n].levels for n in grouping)))
    return Group(f"{what}|{':'.join(grouping)}", columns | {*grouping}, varying, levels, code)


def _inside(node: Node) -> Node:
    """The column in C(column)."""
    return node.args[0] if callee_of(node) == "C" and len(node.args) == 1 else node

"""Terms and groups of a formula, as columns of a design matrix for each row.

Whether a category is coded with a column for every level, so that no column is redundant, follows
from the formula.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import jax
import jax.numpy as jnp
from formulae.contrasts import pick_contrasts

from tacit.errors import InvalidArgument
from tacit.models.components import Block, Component, component, product_of
from tacit.models.expressions import Columns, KnownColumns, facts_of
from tacit.models.formula import Grouped, Node, callee_of, name_of, text_of


@dataclass(frozen=True, eq=False)
class Term:
    """A coefficient, or an array of them, and the columns that they multiply."""

    name: str
    columns: frozenset[str]
    block: Block
    is_level: bool = False  # one coefficient for each level, instead of an intercept

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the coefficients."""
        return (len(self.block.labels),) if self.block.labels else ()

    def read(self, columns: Columns) -> jax.Array:
        """The columns that the coefficients multiply: [rows, coefficients]."""
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


def terms_of(
    nodes: Sequence[tuple[Node, ...]], intercept: bool, known: KnownColumns
) -> tuple[Term, ...]:
    """The terms of a formula except its intercept, coded so that none is redundant."""
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
        # Terms with fewer categories come first, wherever they are in the formula.
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
        built.append(Term(name, columns, product_of(blocks), level))
    return built


def group_of(part: Grouped, known: KnownColumns, person: str | None, others: bool) -> Group:
    """Effects of groups; ``others`` says whether the same groups have their own intercepts."""
    varying = Block(lambda c: jnp.ones((len(next(iter(c.values()))), 1)), (), "")
    columns: frozenset[str] = frozenset()
    what = "1"
    if part.varying:
        parts = [component(node, known) for node in part.varying]
        blocks = [each.block if others or each.full is None else each.full for each in parts]
        varying, what = product_of(blocks), ":".join(each.name for each in parts)
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
                + (f", or the person column {person}." if person else ".")
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

"""Parsing of formulas by the formulae library, which sees the text and no data.

The result is a list of the formula's parts. `tacit.models.design` gives them a meaning from public
facts.
"""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any, NamedTuple

from formulae import expr
from formulae.parser import ParseError, Parser
from formulae.resolver import Resolver, ResolverError
from formulae.scanner import ScanError, Scanner
from formulae.terms.call import Call
from formulae.terms.call_resolver import LazyCall, LazyOperator, LazyValue, LazyVariable
from formulae.terms.terms import Model, Term
from formulae.terms.variable import Variable

from tacit.errors import InvalidArgument

Node = Any
"""A part of a formula as formulae represents it: a variable, a call, an operation or a value."""


class Grouped(NamedTuple):
    """A part such as ``(x | ward)``: what varies (empty for an intercept), and the groups."""

    varying: tuple[Node, ...]
    groups: tuple[Node, ...]


class FormulaParts(NamedTuple):
    """The parts of a formula."""

    response: Node
    level: str | None
    intercept: bool
    terms: tuple[tuple[Node, ...], ...]
    grouped: tuple[Grouped, ...]


def parts_of(formula: str) -> FormulaParts:
    """The parts of a formula; raises `InvalidArgument` if it cannot be parsed."""
    if not isinstance(formula, str) or "~" not in formula:
        raise InvalidArgument(
            f'A formula is text such as "outcome ~ first + second"; got {formula!r}.'
        )
    model = _parsed(formula)
    if not isinstance(model, Model) or model.response is None:
        raise InvalidArgument(
            f"The formula {formula!r} needs an outcome before ~ and predictors after it."
        )
    response = model.response.term.components
    if len(response) != 1:
        raise InvalidArgument(f"The formula {formula!r} must have a single outcome before ~.")
    common = [_components(term) for term in model.common_terms]
    grouped = [
        Grouped(_components(term.expr), _components(term.factor)) for term in model.group_terms
    ]
    return FormulaParts(
        response=_node(response[0]),
        level=response[0].reference if isinstance(response[0], Variable) else None,
        intercept=() in common,
        terms=tuple(each for each in common if each),
        grouped=tuple(grouped),
    )


def _parsed(formula: str) -> Model:
    """The formula as formulae represents it; raises unless all of it was parsed."""
    try:
        parser = Parser(Scanner(formula).scan())
        tree = _tree(formula, parser)
        _refuse_lone_power(formula, tree)
        return Resolver(tree).resolve()
    except InvalidArgument:
        raise
    except (ParseError, ScanError, ResolverError) as error:
        words = str(error).strip().rstrip(".").split("\n", maxsplit=1)[0]
        raise _unreadable(formula, words[:1].lower() + words[1:]) from None
    except Exception:  # noqa: BLE001 - formulae may raise anything, whose words do not help
        raise _unreadable(formula, "it is not a formula") from None


def _tree(formula: str, parser: Parser) -> object:
    """The syntax tree of a formula; raises unless all of it was parsed."""
    try:
        tree = parser.parse()
    except ParseError:
        if parser.at_end():
            missing = "it ends early, where a term or a closing bracket is missing"
            raise _unreadable(formula, missing) from None
        raise
    if not parser.at_end():
        raise InvalidArgument(
            f"The formula {formula!r} cannot be read from {parser.peek().lexeme!r} on; put "
            "calculations into I(...), and names with special characters into backquotes."
        )
    return tree


def _unreadable(formula: str, reason: str) -> InvalidArgument:
    return InvalidArgument(f"The formula {formula!r} cannot be read: {reason}.")


def _refuse_lone_power(formula: str, tree: object) -> None:
    """Raises for a power of one column, which formulae would reduce to the column itself."""
    power = isinstance(tree, expr.Binary) and (
        tree.operator.kind == "STAR_STAR"
        and not isinstance(tree.left, expr.Grouping | expr.QuotedName)
    )
    if power:
        raise InvalidArgument(
            f"A power of a single term in {formula!r} would change nothing: (a + b)**2 stands for "
            "a + b + a:b; for a square write I(a**2)."
        )
    # Calls are not searched: inside them a power is a calculation.
    if isinstance(tree, expr.Binary):
        _refuse_lone_power(formula, tree.left)
    if isinstance(tree, expr.Binary | expr.Unary):
        _refuse_lone_power(formula, tree.right)
    if isinstance(tree, expr.Grouping):
        _refuse_lone_power(formula, tree.expression)


def _components(term: object) -> tuple[Node, ...]:
    """The variables and calls of a term; empty for an intercept."""
    return tuple(_node(each) for each in (term.components if isinstance(term, Term) else ()))


def _node(component: Variable | Call) -> Node:
    return component.call if isinstance(component, Call) else component


def name_of(node: Node) -> str | None:
    """The column that a node names; None if it is not a name."""
    return node.name if isinstance(node, LazyVariable | Variable) else None


def callee_of(node: Node) -> str | None:
    """The function that a node calls; None if it is not a call."""
    return node.callee if isinstance(node, LazyCall) else None


def value_of(node: Node, default: object = None) -> Any:
    """The number or text that a node is; ``default`` if it is neither."""
    return node.value if isinstance(node, LazyValue) else default


def text_of(node: Node) -> str:
    """A node as text, with the brackets that it needs."""
    if isinstance(node, LazyCall):
        named = [f"{key}={text_of(each)}" for key, each in node.kwargs.items()]
        return f"{node.callee}({', '.join([*map(text_of, node.args), *named])})"
    if isinstance(node, LazyOperator):
        inside = [
            f"({text_of(a)})" if isinstance(a, LazyOperator) else text_of(a) for a in node.args
        ]
        return f" {node.symbol} ".join(inside) if len(inside) > 1 else f"{node.symbol}{inside[0]}"
    return str(node) if name_of(node) is None else str(node.name)


def unlike(what: str, name: object, known: Iterable[str]) -> InvalidArgument:
    """The error for an unknown name, with the nearest known one as a hint."""
    names = list(known)
    near = get_close_matches(str(name), names, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    shown = ", ".join(names[:30]) + (", ..." if len(names) > 30 else "")
    return InvalidArgument(f"{what} {name!r}; {hint}there are {shown or 'none'}.")

"""Formulas, read by the formulae library, which is given the text and never any data.

What comes back is a list of the formula's parts. What they mean for a row is worked out from
public facts, in `tacit.models.design`.
"""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any, NamedTuple

from formulae import expr
from formulae.parser import Parser
from formulae.resolver import Resolver
from formulae.scanner import Scanner
from formulae.terms.call import Call
from formulae.terms.call_resolver import LazyCall, LazyOperator, LazyValue, LazyVariable
from formulae.terms.terms import Model, Term
from formulae.terms.variable import Variable

from tacit.errors import InvalidArgument

Node = Any
"""A part of a formula as formulae has it: a variable, a call, an operation or a value."""


class Grouped(NamedTuple):
    """A part such as ``(x | ward)``: what varies (nothing for an intercept), and between whom."""

    varying: tuple[Node, ...]
    groups: tuple[Node, ...]


class Parts(NamedTuple):
    """What a formula says."""

    response: Node
    level: str | None
    intercept: bool
    terms: tuple[tuple[Node, ...], ...]
    grouped: tuple[Grouped, ...]


def parts_of(formula: str) -> Parts:
    """The parts of a formula; one sentence says what is wrong with one that cannot be read."""
    if not isinstance(formula, str) or "~" not in formula:
        raise InvalidArgument(
            f'A formula is text such as "outcome ~ first + second"; got {formula!r}.'
        )
    model = _parsed(formula)
    if not isinstance(model, Model) or model.response is None:
        raise InvalidArgument(f"The formula {formula!r} needs an outcome and predictors around ~.")
    response = model.response.term.components
    if len(response) != 1:
        raise InvalidArgument(f"The formula {formula!r} must have a single outcome before ~.")
    common = [_components(term) for term in model.common_terms]
    grouped = [
        Grouped(_components(term.expr), _components(term.factor)) for term in model.group_terms
    ]
    return Parts(
        response=_node(response[0]),
        level=response[0].reference if isinstance(response[0], Variable) else None,
        intercept=() in common,
        terms=tuple(each for each in common if each),
        grouped=tuple(grouped),
    )


def _parsed(formula: str) -> Any:
    """The description that formulae makes of a formula, refused unless all of it was read."""
    try:
        parser = Parser(Scanner(formula).scan())
        tree = parser.parse()
        left = "" if parser.at_end() else parser.peek().lexeme
        _refuse_lone_power(formula, tree)
        model = None if left else Resolver(tree).resolve()
    except InvalidArgument:
        raise
    except Exception as error:  # noqa: BLE001 - formulae has no one family of errors
        said = str(error).strip().rstrip(".").split("\n", maxsplit=1)[0]
        # Of its own errors the words help; those of Python do not.
        own = type(error).__module__.startswith("formulae") and not said.endswith("''")
        hint = said[:1].lower() + said[1:] if own and said else "it ends early or is not a formula"
        raise InvalidArgument(f"The formula {formula!r} cannot be read: {hint}.") from None
    if left:
        raise InvalidArgument(
            f"The formula {formula!r} cannot be read from {left!r} on; put calculations into "
            "I(...), and names with other signs than letters, digits, . and _ into backquotes."
        )
    return model


def _refuse_lone_power(formula: str, tree: Any) -> None:
    """A power of one column, which would silently be the column itself."""
    power = isinstance(tree, expr.Binary) and tree.operator.kind == "STAR_STAR"
    if power and not isinstance(tree.left, expr.Grouping | expr.QuotedName):
        raise InvalidArgument(
            f"A power of a single term in {formula!r} would change nothing: (a + b)**2 stands for "
            "a + b + a:b; for a square write I(a**2)."
        )
    # Inside a call it is a calculation.
    inside = {
        expr.Binary: ("left", "right"),
        expr.Unary: ("right",),
        expr.Grouping: ("expression",),
    }
    for name in inside.get(type(tree), ()):
        _refuse_lone_power(formula, vars(tree)[name])


def _components(term: Any) -> tuple[Node, ...]:
    """The variables and calls of a term; none of an intercept."""
    return tuple(_node(each) for each in (term.components if isinstance(term, Term) else ()))


def _node(component: Any) -> Node:
    return component.call if isinstance(component, Call) else component


def name_of(node: Node) -> str | None:
    """The column that a node names, if that is what it does."""
    return node.name if isinstance(node, LazyVariable | Variable) else None


def callee_of(node: Node) -> str | None:
    """The function that a node calls, if that is what it does."""
    return node.callee if isinstance(node, LazyCall) else None


def value_of(node: Node, default: Any = None) -> Any:
    """The number or text that a node is, if it is one."""
    return node.value if isinstance(node, LazyValue) else default


def text_of(node: Node) -> str:
    """A node as a person would write it, with the brackets that it needs."""
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
    """An error for a name that is none of those that there are."""
    names = list(known)
    near = get_close_matches(str(name), names, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    shown = ", ".join(names[:30]) + (", ..." if len(names) > 30 else "")
    return InvalidArgument(f"{what} {name!r}; {hint}there are {shown or 'none'}.")

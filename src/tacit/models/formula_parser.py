"""Parsing of formulas by the formulae library, which sees the text and no data."""

from formulae import expr
from formulae.parser import ParseError, Parser
from formulae.resolver import Resolver, ResolverError
from formulae.scanner import ScanError, Scanner
from formulae.terms.call import Call as TermCall
from formulae.terms.call_resolver import LazyCall, LazyOperator, LazyValue, LazyVariable
from formulae.terms.terms import Model, Term
from formulae.terms.variable import Variable

from tacit.errors import InvalidArgument
from tacit.models.formula import (
    Call,
    ColumnName,
    GroupTerm,
    Literal,
    Node,
    Operation,
    ParsedFormula,
)


def parse(formula: str) -> ParsedFormula:
    """The parts of a formula; raises `InvalidArgument` if it cannot be parsed."""
    model = _parse(formula)
    if not isinstance(model, Model) or model.response is None:
        raise InvalidArgument(
            f"The formula {formula!r} needs an outcome before ~ and predictors after it."
        )
    response = model.response.term.components
    if len(response) != 1:
        raise InvalidArgument(f"The formula {formula!r} must have a single outcome before ~.")
    common = [_components(term) for term in model.common_terms]
    grouped = [
        GroupTerm(_components(term.expr), _components(term.factor)) for term in model.group_terms
    ]
    return ParsedFormula(
        response=_convert(response[0]),
        level=response[0].reference if isinstance(response[0], Variable) else None,
        intercept=() in common,
        terms=tuple(each for each in common if each),
        grouped=tuple(grouped),
    )


def _parse(formula: str) -> Model:
    """The formula as formulae represents it; raises unless all of it was parsed."""
    try:
        parser = Parser(Scanner(formula).scan())
        tree = _parse_tree(formula, parser)
        _check_no_lone_power(formula, tree)
        return Resolver(tree).resolve()
    except InvalidArgument:
        raise
    except (ParseError, ScanError, ResolverError) as error:
        words = str(error).strip().rstrip(".").split("\n", maxsplit=1)[0]
        raise _parse_error(formula, words[:1].lower() + words[1:]) from None
    except Exception:  # noqa: BLE001 - formulae may raise anything, whose words do not help
        raise _parse_error(formula, "it is not a formula") from None


def _parse_tree(formula: str, parser: Parser) -> object:
    """The syntax tree of a formula; raises unless all of it was parsed."""
    try:
        tree = parser.parse()
    except ParseError:
        if parser.at_end():
            missing = "it ends early, where a term or a closing bracket is missing"
            raise _parse_error(formula, missing) from None
        raise
    if not parser.at_end():
        raise InvalidArgument(
            f"The formula {formula!r} cannot be read from {parser.peek().lexeme!r} on; put "
            "calculations into I(...), and names with special characters into backquotes."
        )
    return tree


def _parse_error(formula: str, reason: str) -> InvalidArgument:
    return InvalidArgument(f"The formula {formula!r} cannot be read: {reason}.")


def _check_no_lone_power(formula: str, tree: object) -> None:
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
        _check_no_lone_power(formula, tree.left)
    if isinstance(tree, expr.Binary | expr.Unary):
        _check_no_lone_power(formula, tree.right)
    if isinstance(tree, expr.Grouping):
        _check_no_lone_power(formula, tree.expression)


def _components(term: object) -> tuple[Node, ...]:
    """The variables and calls of a term; empty for an intercept."""
    return tuple(_convert(each) for each in (term.components if isinstance(term, Term) else ()))


def _convert(node: object) -> Node:
    """A part of a formula, from what formulae represents it by."""
    if isinstance(node, TermCall):
        return _convert(node.call)
    if isinstance(node, LazyCall):
        kwargs = {name: _convert(each) for name, each in node.kwargs.items()}
        return Call(node.callee, tuple(map(_convert, node.args)), kwargs)
    if isinstance(node, LazyOperator):
        return Operation(node.symbol, tuple(map(_convert, node.args)))
    if isinstance(node, LazyVariable | Variable):
        return ColumnName(str(node.name))
    assert isinstance(node, LazyValue)
    return Literal(node.value, str(node))

"""Parsing of formulas, from the text alone.

Outside calls, operators combine sets of terms as in R: ``a*b`` stands for ``a + b + a:b``. Inside calls and ``{...}``
they calculate, with the precedence of Python.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import combinations, product
from typing import NamedTuple

from tacit.errors import InvalidArgument
from tacit.models.formula import (
    FOREIGN_SYNTAX,
    Call,
    ColumnName,
    GroupTerm,
    Literal,
    Node,
    Operation,
    ParsedFormula,
)

_TOKEN = re.compile(
    r"""\s*(?:
    (?P<name>[^\W\d][\w.]*)
    | (?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)
    | (?P<string>'[^']*'|"[^"]*")
    | (?P<quoted>`[^`]*`)
    | (?P<symbol>\*\*|[=!<>]=|[-+*/:|~()\[\]{},=<>])
    | (?P<end>\Z)
    | (?P<unknown>['"`].*|.)
    )""",
    re.VERBOSE | re.DOTALL,
)
_CONSTANTS = {"True": True, "False": False, "None": None}

# Precedence of operators, outside calls and inside.
_COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
_OF_TERMS = {"|": 1, "+": 2, "-": 2, "*": 3, "/": 3, ":": 4, "**": 6}
_OF_NUMBERS = {**dict.fromkeys(_COMPARISONS, 1), "+": 2, "-": 2, "*": 3, "/": 3, "**": 6}
_OF_SIGNS = 5

_HINTS = {
    **dict.fromkeys(_COMPARISONS, "a comparison is not a term; put it into a column of the data"),
    "|": "effects of groups are in brackets and outside calls, as in (1 | ward)",
    ":": "an interaction is outside calls",
    "[": "only an outcome that is a column can have a level in brackets",
    ")": "this bracket was not opened",
    "'": "the quotation mark is not closed",
    '"': "the quotation mark is not closed",
    "`": "the backquote is not closed",
}


class _Token(NamedTuple):
    kind: str
    text: str
    start: int


class _Terms(NamedTuple):
    """A set of terms, by keys that are the same for ``a:b`` and ``b:a``."""

    common: dict[object, tuple[Node, ...]]
    grouped: dict[object, GroupTerm]
    intercept: bool | None  # None if nothing is said about it


def parse_formula(formula: str) -> ParsedFormula:
    """The parts of a formula; raises `InvalidArgument` if it cannot be parsed."""
    if not isinstance(formula, str) or "~" not in formula:
        raise InvalidArgument(
            f'A formula is text such as "outcome ~ first + second"; got {formula!r}.'
        )
    for pattern, instead in FOREIGN_SYNTAX.items():
        if found := re.search(pattern, re.sub("`[^`]*`", "name", formula)):
            raise InvalidArgument(
                f"A formula cannot have {found[0].strip()!r}, as in {formula!r}; use {instead}."
            )
    try:
        return _Parser(formula).formula()
    except RecursionError:
        raise InvalidArgument(
            "The formula has a calculation or brackets that are nested too deeply; put what it calculates into "
            "a column of the data."
        ) from None


def formula_columns(formula: str) -> list[str]:
    """The names in a formula, which are those of columns."""
    parts = parse_formula(formula)
    ahead: list[Node] = [parts.response, *(node for term in parts.terms for node in term)]
    ahead += [node for group in parts.grouped for term in group for node in term]
    found = dict[str, None]()
    while ahead:
        node = ahead.pop(0)
        if isinstance(node, ColumnName):
            found[node.name] = None
        elif isinstance(node, Operation):
            ahead += node.args
        elif isinstance(node, Call):
            ahead += [*node.args, *node.kwargs.values()]
    return list(found)


class _Parser:
    """The tokens of a formula, and how many of them are parsed."""

    def __init__(self, formula: str) -> None:
        self.text = formula
        self.tokens = list(self.scan())
        self.position = 0

    def scan(self) -> Iterator[_Token]:
        for found in _TOKEN.finditer(self.text):
            kind = str(found.lastgroup)
            token = _Token(kind, found[kind], found.start(kind))
            if kind == "unknown":
                raise self.error(_HINTS.get(token.text[0], "unexpected character"), token)
            yield token

    @property
    def token(self) -> _Token:
        """The next token."""
        return self.tokens[self.position]

    def take(self, symbol: str) -> bool:
        """Whether the next token is this symbol, which is then parsed."""
        found = self.token.text == symbol
        self.position += found
        return found

    def expect(self, symbol: str) -> None:
        if not self.take(symbol):
            raise self.error(_HINTS.get(self.token.text, f"{symbol!r} is missing"))

    def error(self, reason: str, token: _Token | None = None) -> InvalidArgument:
        """The error at a token, by default the next one."""
        token = token or self.token
        where = f" from {token.text!r} on (character {token.start + 1}): "
        place = ": it ends early, where " if token.kind == "end" else where
        return InvalidArgument(f"The formula {self.text!r} cannot be read{place}{reason}.")

    def formula(self) -> ParsedFormula:
        tildes = [token for token in self.tokens if token.text == "~"]
        if len(tildes) > 1:
            raise self.error("there is more than one '~'", tildes[1])
        if self.token.text == "~":
            raise self.error("an outcome before it is missing")
        left = self.terms(_OF_TERMS["+"])
        outcome = [node for term in left.common.values() for node in term]
        if len(outcome) != 1 or left.grouped or left.intercept is not None:
            raise InvalidArgument(f"The formula {self.text!r} must have a single outcome before ~.")
        level = self.level() if isinstance(outcome[0], ColumnName) and self.take("[") else None
        self.expect("~")
        right = self.terms(_OF_TERMS["+"])
        if self.token.kind != "end":
            usual = (
                "put calculations into I(...), and names with special characters into backquotes"
            )
            raise self.error(_HINTS.get(self.token.text, usual))
        return ParsedFormula(
            response=outcome[0],
            level=level,
            intercept=right.intercept is not False,
            terms=tuple(right.common.values()),
            grouped=tuple(right.grouped.values()),
        )

    def level(self) -> str:
        """The level in ``outcome[level]``, after the opening bracket."""
        token = self.token
        if token.kind not in {"name", "string", "number"}:
            raise self.error("a level is missing")
        self.position += 1
        self.expect("]")
        return token.text[1:-1] if token.kind == "string" else token.text

    def terms(self, lowest: int) -> _Terms:
        """Terms that operators of at least this precedence combine."""
        left = self.term()
        while (precedence := _OF_TERMS.get(self.token.text, 0)) >= lowest:
            operator = self.token
            self.position += 1
            if operator.text == "**":
                left = self.power(left, operator)
            else:
                left = self.combine(left, operator, self.terms(precedence + 1))
        return left

    def term(self) -> _Terms:
        token = self.token
        if self.take("("):
            inside = self.terms(_OF_TERMS["|"])
            self.expect(")")
            return inside
        if self.take("+"):
            return self.terms(_OF_SIGNS)
        if self.take("-"):
            inside = self.terms(_OF_SIGNS)
            if inside.common or inside.grouped or inside.intercept is None:
                raise self.error("nothing before it can be removed", token)
            return inside._replace(intercept=not inside.intercept)
        node = self.operand()
        if not isinstance(node, Literal):
            return _Terms(_collect([(node,)]), {}, None)
        if token.kind == "number" and node.value in {0, 1}:
            return _Terms({}, {}, bool(node.value))
        raise self.error(
            "a term is a column or a call; names with special characters are in backquotes, and 0 and 1 say "
            "whether there is an intercept",
            token,
        )

    def combine(self, left: _Terms, operator: _Token, right: _Terms) -> _Terms:
        """Two sets of terms on the sides of an operator."""
        if operator.text == "+":
            said = left.intercept if right.intercept is None else right.intercept
            # What is on both sides stays as it is on the left.
            common = left.common | right.common | left.common
            return _Terms(common, left.grouped | right.grouped | left.grouped, said)
        if operator.text == "-":
            said = left.intercept if right.intercept is None else not right.intercept
            common = {key: term for key, term in left.common.items() if key not in right.common}
            grouped = {key: term for key, term in left.grouped.items() if key not in right.grouped}
            return _Terms(common, grouped, said)
        if operator.text == "|":
            return self.groups(left, operator, right)
        self.check_interacting(left, operator)
        self.check_interacting(right, operator)
        first, second = list(left.common.values()), list(right.common.values())
        found = [a + b for a, b in product(first, second)]
        if operator.text == "*":
            found = [*first, *second, *found]
        if operator.text == "/":  # (a + b) / c stands for a + b + a:b:c
            found = [*first, *(sum(first, ()) + each for each in second)]
        return _Terms(_collect(found), {}, None)

    def power(self, base: _Terms, operator: _Token) -> _Terms:
        """All interactions of up to so many terms, as in ``(a + b + c)**2``."""
        self.check_interacting(base, operator)
        if len(base.common) < 2:
            raise InvalidArgument(
                f"A power of a single term in {self.text!r} would change nothing: (a + b)**2 stands for "
                "a + b + a:b; for a square write I(a**2)."
            )
        if not re.fullmatch("[1-9][0-9]?", self.token.text):
            raise self.error("a whole number from 1 to 99 is missing")
        largest = int(self.token.text)
        self.position += 1
        orders = range(1, min(largest, len(base.common)) + 1)
        several = (each for order in orders for each in combinations(base.common.values(), order))
        return _Terms(_collect(sum(each, ()) for each in several), {}, None)

    def check_interacting(self, terms: _Terms, operator: _Token) -> None:
        if terms.grouped or terms.intercept is not None:
            raise self.error("0, 1 and effects of groups can only be added or removed", operator)

    def groups(self, left: _Terms, operator: _Token, right: _Terms) -> _Terms:
        """What varies between which groups, as in ``(x | ward)``."""
        varying = [*([] if left.intercept is False else [()]), *left.common.values()]
        if left.grouped or not varying:
            raise self.error("what varies between groups must be on its left", operator)
        if right.grouped or not right.common or right.intercept is not None:
            raise self.error("groups must be on its right", operator)
        pairs = map(GroupTerm._make, product(varying, right.common.values()))
        return _Terms({}, {(_key(each.varying), _key(each.groups)): each for each in pairs}, None)

    def calculation(self, lowest: int = 1) -> Node:
        """A calculation by operators of at least this precedence."""
        token = self.token
        left: Node
        if self.take("("):
            left = self.calculation()
            self.expect(")")
        elif self.take("+") or self.take("-"):
            left = Operation(token.text, (self.calculation(_OF_SIGNS),))
        else:
            left = self.operand()
        while (precedence := _OF_NUMBERS.get(self.token.text, 0)) >= lowest:
            symbol = self.token.text
            self.position += 1
            # Powers are computed from the right, and 2**-1 needs no brackets.
            right = self.calculation(_OF_SIGNS if symbol == "**" else precedence + 1)
            left = Operation(symbol, (left, right))
        return left

    def operand(self) -> Node:
        """A name, a call, a number or a text."""
        token = self.token
        if self.take("{"):
            inside = self.calculation()
            self.expect("}")
            return Call("I", (inside,), {})
        if token.kind not in {"name", "quoted", "number", "string"}:
            raise self.error("a term is missing")
        self.position += 1
        if token.kind == "number":
            # JAX takes no whole numbers beyond 64 bits.
            whole = token.text.isdigit() and len(token.text) < 19
            number = int(token.text) if whole else float(token.text)
            return Literal(number, str(number))
        if token.kind == "string":
            return Literal(token.text[1:-1], token.text)
        if token.text in _CONSTANTS:
            return Literal(_CONSTANTS[token.text], token.text)
        if token.kind == "quoted":
            return ColumnName(token.text[1:-1])
        return self.call(token.text) if self.take("(") else ColumnName(token.text)

    def call(self, function: str) -> Call:
        """The arguments of a call, after the opening bracket."""
        args: list[Node] = []
        kwargs: dict[str, Node] = {}
        while not self.take(")"):
            if (args or kwargs) and not self.take(","):
                raise self.error(_HINTS.get(self.token.text, "',' or ')' is missing"))
            token = self.token
            if token.kind == "name" and self.tokens[self.position + 1].text == "=":
                if token.text in kwargs:
                    raise self.error("this argument is given twice")
                self.position += 2
                kwargs[token.text] = self.calculation()
            elif kwargs:
                raise self.error("arguments without a name come first")
            else:
                args.append(self.calculation())
        return Call(function, tuple(args), kwargs)


def _key(term: Iterable[Node]) -> frozenset[str]:
    return frozenset(map(repr, term))


def _collect(terms: Iterable[tuple[Node, ...]]) -> dict[object, tuple[Node, ...]]:
    """Terms by their keys, none of them and none of their components twice."""
    found: dict[object, tuple[Node, ...]] = {}
    for term in terms:
        found.setdefault(_key(term), tuple({repr(node): node for node in term}.values()))
    return found

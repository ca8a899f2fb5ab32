"""Formulas: parsed and coded as by formulae, calculated as by Python, and refused where they cannot be read."""

import operator
import re
from unittest import mock

import pytest
from formulae.contrasts import pick_contrasts
from formulae.parser import Parser
from formulae.resolver import Resolver
from formulae.scanner import Scanner
from formulae.terms import call_resolver
from formulae.terms import terms as formulae_terms
from formulae.terms.call import Call as FormulaeCall
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tacit.errors import InvalidArgument
from tacit.models.design import nonredundant_codings
from tacit.models.formula import Call, ColumnName, GroupTerm, Literal, Operation, ParsedFormula
from tacit.models.formula_parser import parse_formula


def parse_by_formulae(formula):
    """A formula as formulae parses it; the same term twice is left as it is."""
    # It takes (a + b) * (a + b) for a + b.
    with mock.patch.object(formulae_terms.Model, "__eq__", object.__eq__):
        parser = Parser(Scanner(formula).scan())
        model = Resolver(parser.parse()).resolve()
    assert parser.at_end()
    common = [components(term) for term in model.common_terms]
    return ParsedFormula(
        response=converted(model.response.term.components[0]),
        level=getattr(model.response.term.components[0], "reference", None),
        intercept=() in common,
        terms=tuple(each for each in common if each),
        grouped=tuple(
            GroupTerm(components(each.expr), components(each.factor)) for each in model.group_terms
        ),
    )


def components(term):
    return tuple(map(converted, getattr(term, "components", ())))


def converted(node):
    if isinstance(node, FormulaeCall):
        return converted(node.call)
    if isinstance(node, call_resolver.LazyCall):
        kwargs = {name: converted(each) for name, each in node.kwargs.items()}
        return Call(node.callee, tuple(map(converted, node.args)), kwargs)
    if isinstance(node, call_resolver.LazyOperator):
        return Operation(node.symbol, tuple(map(converted, node.args)))
    if isinstance(node, call_resolver.LazyValue):
        return Literal(node.value, str(node))
    return ColumnName(node.name)


def without_repetitions(parsed):
    """For formulae, a:b and b:a differ; the first of them stays."""
    common, grouped = {}, {}
    for term in parsed.terms:
        common.setdefault(frozenset(map(repr, term)), term)
    for term in parsed.grouped:
        grouped.setdefault(tuple(frozenset(map(repr, side)) for side in term), term)
    return parsed._replace(terms=tuple(common.values()), grouped=tuple(grouped.values()))


def joined(parts, operators, most=3):
    """Text of several parts with operators between them."""
    pairs = st.lists(st.tuples(st.sampled_from(operators), parts), max_size=most - 1)
    return st.tuples(parts, pairs).map(
        lambda found: found[0] + "".join(symbol + part for symbol, part in found[1])
    )


def bracketed(text):
    return text.map("({})".format)


COLUMNS = st.sampled_from(["a", "b", "c2", "d_e", "x.y", "é", "`e f`", "`g-h`"])
NUMBERS = st.sampled_from(["0", "1", "2", "10", "0.5", ".25", "3.50"])
VALUES = st.sampled_from(["'level'", '"two words"', "True", "False", "None"])
ARITHMETIC = ["+", " - ", " * ", "/", " + "]


def calculations(inner):
    atoms = st.one_of(COLUMNS, NUMBERS, bracketed(inner), inner.map("log({})".format))
    # A sign before a power is read as in Python, not as in formulae.
    powers = st.tuples(atoms, st.sampled_from(["2", "-1", "0.5"])).map("**".join)
    signs = st.tuples(st.sampled_from("+-"), atoms).map("".join)
    return joined(st.one_of(atoms, powers, signs), ARITHMETIC)


CALCULATIONS = st.recursive(st.one_of(COLUMNS, NUMBERS), calculations, max_leaves=6)
COMPARISONS = joined(CALCULATIONS, ["==", "!=", "<", " <= ", ">", " >= "], 2)
ARGUMENTS = st.tuples(
    st.lists(st.one_of(COMPARISONS, VALUES), min_size=1, max_size=2),
    st.dictionaries(
        st.sampled_from(["df", "knots"]), st.one_of(CALCULATIONS, VALUES), max_size=2
    ).map(lambda named: [f"{name} = {value}" for name, value in named.items()]),
).map(lambda both: ", ".join(both[0] + both[1]))
CALLS = st.one_of(
    st.tuples(st.sampled_from(["I", "np.log", "bs", "weighted"]), ARGUMENTS).map(
        lambda found: f"{found[0]}({found[1]})"
    ),
    CALCULATIONS.map("{{{}}}".format),
)


@settings(max_examples=80)
@given(CALLS)
def test_calls_are_parsed_as_by_formulae(call):
    assert parse_formula(f"y ~ {call}") == parse_by_formulae(f"y ~ {call}")


ATOMS = st.sampled_from(["a", "b", "c", "`d e`", "bs(a, df=4)", "np.log(b)", "{a / b}", "I(c**2)"])
NAMES = st.sampled_from(["a", "b", "c", "g", "h"])


def compound_terms(inner):
    sums = bracketed(joined(inner, [" + ", "+"]))
    simple = st.one_of(ATOMS, bracketed(joined(ATOMS, [" + "])))
    several = st.lists(ATOMS, min_size=2, max_size=4, unique=True)
    return st.one_of(
        joined(st.one_of(inner, sums), ["*", " * ", ":"]),
        # formulae takes a/(b:c + d) for a + a:b + a:c + a:d if a is a sum.
        bracketed(st.tuples(st.one_of(ATOMS, sums), simple).map("/".join)),
        st.tuples(bracketed(several.map(" + ".join)), st.sampled_from("23")).map("**".join),
    )


TERMS = st.recursive(ATOMS, compound_terms, max_leaves=4)
VARYING = st.tuples(st.sampled_from(["", "0 + ", "1 + "]), joined(TERMS, [" + "], 2)).map("".join)
GROUPS = st.one_of(*(joined(NAMES, [symbol], 2) for symbol in (":", "/", " + ")))
GROUPED = bracketed(st.tuples(st.one_of(st.just("1"), VARYING), GROUPS).map(" | ".join))
OUTCOMES = st.sampled_from(["y", "(y)", "ward['b']", "ward[b]", "p(y, 10)", "censored(y, `d e`)"])
INTERCEPTS = st.sampled_from(["0", "1", "-1", "+1"])
ADDED = st.one_of(TERMS, joined(ATOMS, ["*", "/", ":", " + "], 4), GROUPED, INTERCEPTS)
REMOVED = st.one_of(
    st.sampled_from(["1", "(1 | g)", "(0 + a | g + h)", "(b + c | h)"]),
    joined(NAMES, [" - "]),
    bracketed(joined(NAMES, [" + "])),
)


@settings(max_examples=120)
@given(OUTCOMES, joined(ADDED, [" + ", "+"], 4), st.lists(REMOVED, max_size=2))
def test_terms_are_parsed_as_by_formulae(outcome, added, removed):
    formula = f"{outcome} ~ {added}"
    theirs = parse_by_formulae(formula)
    # It removes nothing from a sole 1, and of repeated terms only the first.
    if theirs.terms and theirs == without_repetitions(theirs):
        formula = " - ".join([formula, *removed])
        theirs = parse_by_formulae(formula)
    assert parse_formula(formula) == without_repetitions(theirs)


@given(st.lists(st.lists(st.sampled_from("abcd"), unique=True), max_size=7))
def test_categories_are_coded_as_by_formulae(terms):
    theirs = pick_contrasts(dict(enumerate(terms)))
    spanned = set()
    assert [nonredundant_codings(each, spanned) for each in terms] == list(theirs.values())


FUNCTIONS = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "**": operator.pow,
    "<": operator.lt, ">=": operator.ge, "==": operator.eq,
}  # fmt: skip
SIGNS = {"+": operator.pos, "-": operator.neg}


def calculated(node, columns):
    if isinstance(node, Literal):
        return node.value
    if isinstance(node, ColumnName):
        return columns[node.name]
    sides = [calculated(each, columns) for each in node.args]
    return (FUNCTIONS if len(sides) == 2 else SIGNS)[node.symbol](*sides)


def python_expressions(inner):
    signed = st.tuples(st.sampled_from(["-", "+", "--"]), inner).map("".join)
    return joined(
        st.one_of(inner, signed, bracketed(inner)), ["+", "-", "*", "/", "**", " * ", " - "]
    )


@settings(max_examples=80)
@given(
    joined(
        st.recursive(
            st.sampled_from(["x", "z", "2.0", "1.5", ".5", "1e-1", "2.E+0"]), python_expressions
        ),
        [" < ", ">=", "=="],
        2,
    )
)
def test_calculations_have_the_precedence_of_python(text):
    columns = {"x": 1.25, "z": 0.75}
    try:
        expected = eval(text, {}, columns)  # noqa: S307
    except (ArithmeticError, TypeError):
        expected = None
    assume(expected is not None)
    found = parse_formula(f"y ~ f({text})").terms[0][0].args[0]
    assert calculated(found, columns) == expected


@pytest.mark.parametrize(
    ("formula", "same"),
    [
        # As in R, which formulae does not follow here.
        ("y ~ a*b - b:a", "y ~ a + b"),
        ("y ~ a:b + b:a", "y ~ a:b"),
        ("y ~ (a + b)*(a + b)", "y ~ (a + b)**2"),
        ("y ~ (a + b)*(b + c)", "y ~ a + b + c + a:b + a:c + b:c"),
        ("y ~ (a + b)/(c:d + e)", "y ~ a + b + a:b:c:d + a:b:e"),
        ("y ~ (x + z - 1 | g)", "y ~ (0 + x + z | g)"),
        ("y ~ (x + 0 | g)", "y ~ (0 + x | g)"),
        ("y ~ (x + 1 | g)", "y ~ (x | g)"),
        ("y ~ (0 + a)", "y ~ a - 1"),
        ("y ~ a + 0 + 1", "y ~ a"),
        ("y ~ 0 + a - 0", "y ~ a"),
        ("y ~ (a + (1 | g))", "y ~ a + (1 | g)"),
        # What formulae cannot read.
        ("y ~ (bs(a, 3) + b)*(c + d)", "y ~ bs(a, 3) + b + c + d + (bs(a, 3) + b):(c + d)"),
        ("y ~ I(log(a)) + I(a)", "y ~ {log(a)} + {a}"),
        ("y ~ I(2e3 * a)", "y ~ I(2000.0*a)"),
        ("y ~\n\ta +\n\tb\n", "y ~ a + b"),
    ],
)
def test_formulas_that_are_the_same(formula, same):
    assert parse_formula(formula) == parse_formula(same)


def test_names_levels_and_texts_are_as_they_are_written():
    parsed = parse_formula("""`my ward`["it's"] ~ _a + `b, (c)` + C(d, 'x "y"')""")
    assert (parsed.response, parsed.level) == (ColumnName("my ward"), "it's")
    assert parsed.terms[:2] == ((ColumnName("_a"),), (ColumnName("b, (c)"),))
    assert parsed.terms[2][0].args[1] == Literal('x "y"', "'x \"y\"'")
    assert parse_formula("grade[2] ~ a").level == "2"


def test_a_formula_may_have_a_thousand_terms():
    names = [f"x{i}" for i in range(1000)]
    assert parse_formula("y ~ " + " + ".join(names)).terms == tuple((ColumnName(n),) for n in names)


@pytest.mark.parametrize(
    ("formula", "says"),
    [
        ("y ~ a * ", "ends early, where a term is missing"),
        ("y ~ bs(a, ", "ends early, where a term is missing"),
        ("y ~ bs(a, df=", "ends early, where a term is missing"),
        ("y ~ {a + 1", "ends early, where '}' is missing"),
        ("y ~ (a + b", "ends early, where ')' is missing"),
        ("~ a", "from '~' on (character 1): an outcome"),
        ("y z ~ a", "from 'z' on (character 3): '~' is missing"),
        ("a + b ~ c", "single outcome"),
        ("1 ~ a", "single outcome"),
        ("(1 | g) ~ a", "single outcome"),
        ("a:b ~ c", "single outcome"),
        ("y[ ~ a", "from '~' on (character 4): a level is missing"),
        ("y['u' ~ a", "from '~' on (character 7): ']' is missing"),
        ("log(y)['u'] ~ a", "from '[' on (character 7)"),
        ("y ~ a['u']", "from '[' on (character 6): only an outcome"),
        ("y ~ a ~ b", "from '~' on (character 7): there is more than one '~'"),
        ("y ~ a + + * b", "from '*' on (character 11): a term is missing"),
        ("y ~ a + ()", "from ')' on (character 10): a term is missing"),
        ("y ~ a) + b", "from ')' on (character 6): this bracket was not opened"),
        ("y ~ (a + b c)", "from 'c' on (character 12): ')' is missing"),
        ("y ~ f(a b)", "from 'b' on (character 9): ',' or ')' is missing"),
        ("y ~ f(a)(b)", "from '(' on (character 9)"),
        ("y ~ f(a,)", "from ')' on (character 9): a term is missing"),
        ("y ~ f(a, df=3, df=4)", "from 'df' on (character 16): this argument is given twice"),
        ("y ~ f(df=3, a)", "from 'a' on (character 13): arguments without a name"),
        ("y ~ f(a | g)", "from '|' on (character 9): effects of groups"),
        ("y ~ f(a:b)", "from ':' on (character 8): an interaction"),
        ("y ~ a | g", "from '|' on (character 7): effects of groups are in brackets"),
        ("y ~ (0 | g)", "from '|' on (character 8): what varies"),
        ("y ~ (a | 1)", "from '|' on (character 8): groups must be on its right"),
        ("y ~ ((a | g) | h)", "from '|' on (character 14): what varies"),
        ("y ~ a:(1 | g)", "from ':' on (character 6): 0, 1 and effects of groups"),
        ("y ~ (1 + a)*b", "from '*' on (character 12): 0, 1 and effects of groups"),
        ("y ~ (0 + a)**2", "from '**' on (character 12): 0, 1 and effects of groups"),
        ("y ~ -a", "from '-' on (character 5): nothing before it"),
        ("y ~ a + 3", "from '3' on (character 9): a term is a column or a call"),
        ("y ~ 'a'", "on (character 5): a term is a column or a call"),
        ("y ~ True", "from 'True' on (character 5): a term is a column or a call"),
        ("y ~ (a + b)**c", "from 'c' on (character 14): a whole number"),
        ("y ~ (a + b)**0", "from '0' on (character 14): a whole number"),
        ("y ~ (a)**2", "would change nothing"),
        ("y ~ (a > 3)", "from '>' on (character 8): a comparison is not a term"),
        ("y ~ (a + b)^2", "cannot have '^'"),
        ("y ~ a %in% b", "from '%' on (character 7): unexpected character"),
        ("y ~ 2a", "from '2' on"),
        ('y ~ f("a)', "(character 7): the quotation mark is not closed"),
        ("y ~ a + `b", "from '`b' on (character 9): the backquote is not closed"),
        ("y ~ " + "(" * 5000, "nested too deeply"),
        ("y ~ I(a" + " + a" * 5000 + ")", "nested too deeply"),
    ],
)
def test_what_cannot_be_read_is_shown_where_it_is(formula, says):
    with pytest.raises(InvalidArgument, match=re.escape(says)) as refused:
        parse_formula(formula)
    assert "\n" not in str(refused.value)
    assert str(refused.value).endswith(".")

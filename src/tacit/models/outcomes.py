"""The outcome of a formula: what its left side means for a family."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from formulae.terms.call_resolver import LazyCall

from tacit.errors import InvalidArgument
from tacit.models.expressions import Columns, Facts, KnownColumns, facts_of, number, own
from tacit.models.families import Family, Outcome
from tacit.models.formula import FormulaParts, Node, callee_of, name_of, parts_of, text_of

_USUAL = {
    "binary": "bernoulli",
    "number": "gaussian",
    "count": "poisson",
    "category": "categorical",
}


def usual_family(formula: str, known: KnownColumns) -> str:
    """The family used by default, which follows from the kind of the outcome.

    Args:
        formula: The formula.
        known: What is public about the columns.

    Returns:
        The name of the family.
    """
    parts = parts_of(formula)
    name = name_of(parts.response)
    if name is None:  # any other calculation is refused later, with a remedy
        return "binomial" if _is_proportion(parts.response) else "gaussian"
    return "bernoulli" if parts.level is not None else _USUAL[facts_of(name, known).kind]


def _is_proportion(node: Node) -> bool:
    """Whether a node is p(successes, trials)."""
    return callee_of(node) in {"p", "prop", "proportion"}


def outcome_of(parts: FormulaParts, family: Family, known: KnownColumns) -> Outcome:
    """The outcome that the left side of a formula names.

    Args:
        parts: The parts of the formula.
        family: The family.
        known: What is public about the columns.

    Raises:
        InvalidArgument: The outcome does not fit the family.
    """
    node = parts.response
    if family.name == "binomial":
        return _proportion(node, family, known)
    name = name_of(node)
    if name is None:
        raise InvalidArgument(
            f"The outcome {text_of(node)!r} must be a column, not a calculation; add the calculated "
            "values to the data as a column with its own bounds."
        )
    facts = facts_of(name, known)
    if parts.level is not None:
        return _one_level(name, facts, parts.level, family)
    if facts.kind not in family.kinds:
        raise _misfit(name, facts, family)
    if family.name in {"poisson", "negativebinomial"} and facts.low < 0:
        raise _misfit(name, facts, family)
    if family.name == "gamma" and facts.low <= 0:
        raise InvalidArgument(
            f"The gamma family needs an outcome above zero, and {name!r} may be {facts.low:g}; "
            "declare a lower bound above zero, to which lower outcomes are moved, or use the "
            "gaussian family."
        )
    if facts.kind in {"binary", "category"}:
        if len(facts.levels) < 2:
            raise _misfit(name, facts, family)
        first, *rest = facts.levels
        said = f"{name} is {first} by reference" if len(rest) > 1 else f"{name} is {rest[0]}"
        levels = tuple(rest) if family.name == "categorical" else ()
        return Outcome(
            name, frozenset([name]), facts, lambda c: c[name], levels=levels, described=said
        )
    read = own(name, facts) if facts.kind == "number" or family.name == "gaussian" else None
    said = f"{name}, {facts.low:.4g} to {facts.high:.4g}"
    return Outcome(name, frozenset([name]), facts, read or (lambda c: c[name]), described=said)


def _misfit(name: str, facts: Facts, family: Family) -> InvalidArgument:
    """The error for an outcome of the wrong kind."""
    hint = (
        f"; name one level, as in {name}['{facts.levels[0]}']"
        if (family.name == "bernoulli" and facts.kind == "category")
        else ""
    )
    return InvalidArgument(
        f"The {family.name} family needs {family.wants}; {name!r} is declared as a {facts.kind}"
        f"{'' if facts.levels else f' from {facts.low:g} to {facts.high:g}'}{hint}."
    )


def _one_level(name: str, facts: Facts, level: str, family: Family) -> Outcome:
    """A level of a category against the rest."""
    if family.name != "bernoulli":
        raise InvalidArgument(
            f"{name}['{level}'] is a binary outcome, which needs the bernoulli family; got "
            f"{family.name}."
        )
    if level not in facts.levels:
        levels = ", ".join(facts.levels) or "none"
        raise InvalidArgument(f"{name!r} has no level {level!r}; its levels are {levels}.")
    code = facts.levels.index(level)
    return Outcome(
        name,
        frozenset([name]),
        facts,
        lambda c: (c[name] == code).astype(jnp.int32),
        described=f"{name} is {level}",
    )


def _proportion(node: Node, family: Family, known: KnownColumns) -> Outcome:
    """The outcome p(successes, trials) of the binomial family."""
    names = list(node.args) if isinstance(node, LazyCall) and not node.kwargs else []
    if not _is_proportion(node) or len(names) != 2:
        raise InvalidArgument(
            f"The binomial family needs {family.wants}, such as p(cured, treated) ~ dose; got "
            f"{text_of(node)!r}."
        )
    name = name_of(names[0])
    if name is None or facts_of(name, known).kind != "count" or known[name].low < 0:
        raise InvalidArgument(f"The successes in {text_of(node)!r} must be a Count from 0 or more.")
    total = name_of(names[1])
    trials: Callable[[Columns], jax.Array]
    if total is None:
        most = number(names[1])
        if most != int(most) or most < 1:
            raise InvalidArgument(f"The trials in {text_of(node)!r} must be a whole number.")
        fixed = int(most)
        columns, trials = frozenset([name]), lambda c: jnp.full_like(c[name], fixed)
    else:
        if facts_of(total, known).kind != "count" or known[total].low < 0:
            raise InvalidArgument(f"The trials in {text_of(node)!r} must be a Count.")
        columns, trials, most = frozenset([name, total]), lambda c: c[total], known[total].high
    # More successes than trials is an error in a cell; the value is moved to the trials.
    return Outcome(
        name,
        columns,
        known[name],
        lambda c: jnp.minimum(c[name], trials(c)),
        trials=trials,
        most_trials=most,
        described=f"{text_of(names[0])} of {text_of(names[1])} trials",
    )

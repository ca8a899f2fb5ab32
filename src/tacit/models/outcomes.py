"""The outcome of a formula: what its left side means for a family."""

from collections.abc import Callable
from itertools import pairwise

import jax
import jax.numpy as jnp
from formulae.terms.call_resolver import LazyCall

from tacit.errors import InvalidArgument
from tacit.models.expressions import Columns, Facts, KnownColumns, expression, facts_of, number, own
from tacit.models.families.base import Family, Outcome
from tacit.models.families.numbers import inside
from tacit.models.families.survival import shortest
from tacit.models.formula import FormulaParts, Node, callee_of, name_of, parts_of, text_of

_USUAL = {
    "binary": "bernoulli",
    "number": "gaussian",
    "count": "poisson",
    "category": "categorical",
}
# Calls that are outcomes, and the families that they need.
_CALLS = {"p": "binomial", "prop": "binomial", "proportion": "binomial", "censored": "weibull"}


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
        return _CALLS.get(str(callee_of(parts.response)), "gaussian")
    return "bernoulli" if parts.level is not None else _USUAL[facts_of(name, known).kind]


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
    if family.name == "weibull":
        return _time(node, family, known)
    name = name_of(node)
    if name is None:
        raise _calculated(node, family)
    facts = facts_of(name, known)
    if parts.level is not None:
        return _one_level(name, facts, parts.level, family)
    _refuse_misfit(name, facts, family)
    if facts.kind in {"binary", "category"}:
        return _of_levels(name, facts, family)
    said = f"{name}, {facts.low:.4g} to {facts.high:.4g}"
    read = _own_unit(name, facts, family)
    return Outcome(name, frozenset([name]), facts, read, described=said)


def _calculated(node: Node, family: Family) -> InvalidArgument:
    """The error for an outcome that is not a column."""
    if callee_of(node) in _CALLS:
        needed = _CALLS[str(callee_of(node))]
        return InvalidArgument(
            f"The outcome {text_of(node)!r} needs the {needed} family; got {family.name}."
        )
    return InvalidArgument(
        f"The outcome {text_of(node)!r} must be a column, not a calculation; add the calculated "
        "values to the data as a column with its own bounds."
    )


def _own_unit(name: str, facts: Facts, family: Family) -> Callable[[Columns], jax.Array]:
    """Reads a number or a count in its own unit."""
    if family.name == "beta":
        low, high = inside(facts)
        decoded = own(name, facts)
        return lambda c: jnp.clip(decoded(c), low, high)
    if facts.kind == "number" or family.name == "gaussian":
        return own(name, facts)
    return lambda c: c[name]


def _of_levels(name: str, facts: Facts, family: Family) -> Outcome:
    """An outcome that is one of some levels."""
    first, *rest = facts.levels
    said = f"{name} is {first} by reference" if len(rest) > 1 else f"{name} is {rest[0]}"
    if family.cut:
        said = f"{name}, in order: {', '.join(facts.levels)}"
    return Outcome(
        name,
        frozenset([name]),
        facts,
        lambda c: c[name],
        levels=tuple(rest) if family.name == "categorical" else (),
        cutpoints=tuple(f"{a}|{b}" for a, b in pairwise(facts.levels)) if family.cut else (),
        described=said,
    )


def _refuse_misfit(name: str, facts: Facts, family: Family) -> None:
    """Raises if a column cannot be the outcome of a family."""
    if facts.kind in family.kinds:
        hint = family.fault(facts)
        if hint is None:
            return
    elif family.name == "bernoulli" and facts.kind == "category":
        hint = f"name one level, as in {name}['{facts.levels[0]}']"
    else:
        hint = None
    raise InvalidArgument(
        f"The {family.name} family needs {family.wants}; {name!r} is declared as a {facts.kind}"
        f"{'' if facts.levels else f' from {facts.low:g} to {facts.high:g}'}"
        f"{'' if hint is None else f'; {hint}'}."
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
    if _CALLS.get(str(callee_of(node))) != "binomial" or len(names) != 2:
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


def _time(node: Node, family: Family, known: KnownColumns) -> Outcome:
    """The outcome censored(time, event), or a time that is never censored."""
    call = callee_of(node) == "censored"
    given = list(node.args) if call else [node]
    name = name_of(given[0]) if given else None
    if name is None or (call and (node.kwargs or len(given) not in (2, 3))):
        raise InvalidArgument(
            "The weibull family needs a time as its outcome: time ~ x, censored(time, event) ~ x, or "
            f"censored(time, event, follow_up) ~ x; got {text_of(node)!r}."
        )
    facts = facts_of(name, known)
    _refuse_misfit(name, facts, family)
    decoded, low, high = own(name, facts), shortest(facts), facts.high
    said = f"{name}, {facts.low:.4g} to {facts.high:.4g}"
    plain = Outcome(
        name,
        frozenset([name]),
        facts,
        lambda c: jnp.clip(decoded(c), low, high),
        described=said,
    )
    return _censored(plain, node, known) if call else plain


def _censored(time: Outcome, node: Node, known: KnownColumns) -> Outcome:
    """A time that may be censored: negative in the rows where it is."""
    event = name_of(node.args[1])
    if event is None or facts_of(event, known).kind != "binary":
        raise InvalidArgument(
            f"The second part of {text_of(node)!r} must be a Binary column: yes if the event was "
            "observed at that time, no if follow-up ended before it."
        )
    found = time._replace(
        columns=time.columns | {event},
        read=lambda c: jnp.where(c[event] == 1, time.read(c), -time.read(c)),
        drops_out=True,
        described=f"{time.described}, censored unless {event} is {known[event].levels[1]}",
    )
    if len(node.args) == 2:
        return found
    end = expression(node.args[2], known)
    return found._replace(
        columns=found.columns | end.columns,
        limit=lambda c: jnp.maximum(end.read(c), shortest(time.facts)),
        drops_out=False,
    )

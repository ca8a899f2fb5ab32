"""The outcome of a formula: what its left side means for a family.

It is a column, a level of one, ``p(successes, trials)``, or a time that may be ``censored(...)``; any of them may be
``weighted(..., w)``.
"""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import jax
import jax.numpy as jnp

from tacit.data.columns import Kind
from tacit.data.schema import Schema
from tacit.errors import InvalidArgument
from tacit.models.families import (
    CUTPOINT,
    FAMILIES,
    LOG_HAZARD,
    Censoring,
    Family,
    Outcome,
    Read,
    time_bounds,
)
from tacit.models.formula import (
    Call,
    Columns,
    Node,
    ParsedFormula,
    bounded_expression,
    called_function,
    column_name,
    decode_column,
    foreign_call_hint,
    format_node,
    interval_starts,
    literal_number,
    scalar_column,
    split_weights,
)
from tacit.models.formula_parser import parse_formula

_DEFAULT_FAMILIES = {
    "binary": "bernoulli",
    "number": "gaussian",
    "count": "poisson",
    "category": "categorical",
    "date": "gaussian",  # which refuses it, and says what an outcome can be
}
# Calls that are outcomes, and the families that they need.
_OUTCOME_CALLS = {
    "p": "binomial",
    "prop": "binomial",
    "proportion": "binomial",
    "censored": "weibull",
}


def default_family(formula: str, schema: Schema) -> str:
    """The family used by default, which follows from the kind of the outcome.

    Args:
        formula: The formula.
        schema: The schema.

    Returns:
        The name of the family.
    """
    parts = parse_formula(formula)
    node, _ = split_weights(parts.response)
    name = column_name(node)
    if name is None:  # any other calculation is refused later, with a remedy
        return _OUTCOME_CALLS.get(str(called_function(node)), "gaussian")
    return (
        "bernoulli"
        if parts.level is not None
        else _DEFAULT_FAMILIES[scalar_column(name, schema).kind]
    )


def build_outcome(parts: ParsedFormula, family: Family, schema: Schema) -> Outcome:
    """The outcome that the left side of a formula names.

    Args:
        parts: The parts of the formula.
        family: The family.
        schema: The schema.

    Raises:
        InvalidArgument: The outcome does not fit the family.
    """
    node, weight = split_weights(parts.response)
    found = _unweighted_outcome(node, parts.level, family, schema)
    return found if weight is None else _weighted_outcome(found, weight, schema)


def _weighted_outcome(outcome: Outcome, node: Node, schema: Schema) -> Outcome:
    """An outcome whose log-likelihood is multiplied by a number of its row."""
    weight = bounded_expression(node, schema)
    if weight.low < 0 or weight.high <= 0:
        raise InvalidArgument(
            f"The weights {format_node(node)!r} go from {weight.low:g} to {weight.high:g}; declare "
            "bounds from 0 or more."
        )
    return outcome._replace(
        columns=outcome.columns | weight.columns,
        weight=replace(
            weight, read=lambda c: jnp.clip(jnp.asarray(weight.read(c)), weight.low, weight.high)
        ),
        description=f"{outcome.description}, weighted by {format_node(node)}",
    )


def _unweighted_outcome(node: Node, level: str | None, family: Family, schema: Schema) -> Outcome:
    if family.outcome == "proportion":
        return _proportion_outcome(node, family, schema)
    if family.outcome == "time":
        return _time_outcome(node, family, schema)
    name = column_name(node)
    if name is None:
        raise _calculated_outcome_error(node, family)
    column = scalar_column(name, schema)
    if level is not None:
        return _one_level_outcome(name, column, level, family)
    _check_outcome_kind(name, column, family)
    if column.kind in {"binary", "category"}:
        return _level_outcome(name, column, family)
    text = f"{name}, {column.low:.4g} to {column.high:.4g}"
    read = _decode_outcome(name, column, family)
    return Outcome(name, frozenset([name]), column, read, description=text)


def _calculated_outcome_error(node: Node, family: Family) -> InvalidArgument:
    """The error for an outcome that is not a column."""
    if called_function(node) in _OUTCOME_CALLS:
        needed = FAMILIES[_OUTCOME_CALLS[str(called_function(node))]].outcome
        names = " or ".join(each.name for each in FAMILIES.values() if each.outcome == needed)
        return InvalidArgument(
            f"The outcome {format_node(node)!r} needs the {names} family; got {family.name}."
        )
    if (hint := foreign_call_hint(node)) is not None:
        return InvalidArgument(f"The outcome cannot be {format_node(node)!r}; {hint}.")
    return InvalidArgument(
        f"The outcome {format_node(node)!r} must be a column, not a calculation; add the calculated "
        "values to the data as a column with its own bounds."
    )


def _decode_outcome(name: str, column: Kind, family: Family) -> Callable[[Columns], jax.Array]:
    """Reads a number or a count in its own unit."""
    if "number" not in family.kinds:
        return lambda c: c[name]
    decoded = decode_column(name, column)
    if family.outcome_bounds is None:
        return decoded
    low, high = family.outcome_bounds(column)
    return lambda c: jnp.clip(decoded(c), low, high)


def _level_outcome(name: str, column: Kind, family: Family) -> Outcome:
    """An outcome that is one of some levels."""
    first, *rest = column.labels
    text = f"{name} is {first} by reference" if len(rest) > 1 else f"{name} is {rest[0]}"
    if family.baseline == CUTPOINT:
        text = f"{name}, in order: {', '.join(column.labels)}"
    return Outcome(
        name,
        frozenset([name]),
        column,
        lambda c: c[name],
        levels=tuple(rest) if family.per_level else (),
        baseline=tuple(f"{a}|{b}" for a, b in pairwise(column.labels))
        if family.baseline == CUTPOINT
        else (),
        description=text,
    )


def _check_outcome_kind(name: str, column: Kind, family: Family) -> None:
    """Raises if a column cannot be the outcome of a family."""
    if column.kind in family.kinds:
        hint = family.problem(column)
        if hint is None:
            return
    elif "binary" in family.kinds and column.kind == "category":
        hint = f"name one level, as in {name}['{column.labels[0]}']"
    else:
        hint = None
    raise InvalidArgument(
        f"The {family.name} family needs {family.wants}; {name!r} is declared as a {column.kind}"
        f"{'' if column.labels else f' from {column.low:g} to {column.high:g}'}"
        f"{'' if hint is None else f'; {hint}'}."
    )


def _one_level_outcome(name: str, column: Kind, level: str, family: Family) -> Outcome:
    """A level of a category against the rest."""
    if "binary" not in family.kinds:
        raise InvalidArgument(
            f"{name}['{level}'] is a binary outcome, which needs the bernoulli family; got "
            f"{family.name}."
        )
    if level not in column.labels:
        levels = ", ".join(column.labels) or "none"
        raise InvalidArgument(f"{name!r} has no level {level!r}; its levels are {levels}.")
    code = column.labels.index(level)
    return Outcome(
        name,
        frozenset([name]),
        column,
        lambda c: (c[name] == code).astype(jnp.int32),
        description=f"{name} is {level}",
    )


def _proportion_outcome(node: Node, family: Family, schema: Schema) -> Outcome:
    """The outcome p(successes, trials) of the binomial family."""
    names = list(node.args) if isinstance(node, Call) and not node.kwargs else []
    if _OUTCOME_CALLS.get(str(called_function(node))) != "binomial" or len(names) != 2:
        raise InvalidArgument(
            f"The binomial family needs {family.wants}, such as p(cured, treated) ~ dose; got "
            f"{format_node(node)!r}."
        )
    name = column_name(names[0])
    if name is None or scalar_column(name, schema).kind != "count" or schema[name].low < 0:
        raise InvalidArgument(
            f"The successes in {format_node(node)!r} must be a Count from 0 or more."
        )
    total = column_name(names[1])
    trials: Callable[[Columns], jax.Array]
    if total is None:
        most = literal_number(names[1])
        if most != int(most) or most < 1:
            raise InvalidArgument(f"The trials in {format_node(node)!r} must be a whole number.")
        fixed = int(most)
        columns, trials = frozenset([name]), lambda c: jnp.full_like(c[name], fixed)
    else:
        if scalar_column(total, schema).kind != "count" or schema[total].low < 0:
            raise InvalidArgument(f"The trials in {format_node(node)!r} must be a Count.")
        columns, trials, most = frozenset([name, total]), lambda c: c[total], schema[total].high
    # More successes than trials is an error in a cell; the value is moved to the trials.
    return Outcome(
        name,
        columns,
        schema[name],
        lambda c: jnp.minimum(c[name], trials(c)),
        trials=trials,
        max_trials=most,
        description=f"{format_node(names[0])} of {format_node(names[1])} trials",
    )


# Words for how a time is known, as in Bambi and brms.
_STATUSES = ("none", "right", "left", "interval")
_TIME_FORMS = (
    "time ~ x, censored(time, event) ~ x, censored(time, event, follow_up) ~ x, "
    "censored(time, status) ~ x, or censored(lower, upper, status) ~ x"
)


def _time_outcome(node: Node, family: Family, schema: Schema) -> Outcome:
    """A time, which may be censored."""
    call = node if isinstance(node, Call) and node.function == "censored" else None
    given = [node] if call is None else list(call.args)
    name = column_name(given[0]) if given else None
    known = {"cuts"} if family.baseline == LOG_HAZARD else set()
    wrong = call is not None and (set(call.kwargs) - known or not 2 <= len(given) <= 4)
    if name is None or wrong:
        raise InvalidArgument(
            f"The {family.name} family needs a time as its outcome: {_TIME_FORMS}; got "
            f"{format_node(node)!r}."
        )
    column = scalar_column(name, schema)
    _check_outcome_kind(name, column, family)
    starts = interval_starts(node, column) if family.baseline == LOG_HAZARD else ()
    ends = [f"{each:.4g}" for each in (*starts, column.high)]
    time = _read_time(name, column, time_bounds(column)[0])
    plain = Outcome(
        name,
        frozenset([name]),
        column,
        lambda c: jnp.stack([time(c)] * 2, axis=-1),
        baseline=tuple(f"{a} to {b}" for a, b in pairwise(ends)) if starts else (),
        starts=starts,
        description=f"{name}, {column.low:.4g} to {column.high:.4g}",
    )
    if call is None:
        return plain
    second = column_name(given[1])
    if second is not None and scalar_column(second, schema).kind == "binary":
        return _censored_by_event(plain, call, time, second, schema)
    return _censored_by_status(plain, call, time, schema)


def _read_time(name: str, column: Kind, least: float) -> Read:
    decoded, high = decode_column(name, column), float(column.high)
    return lambda c: jnp.clip(decoded(c), least, high)


def _censored_by_event(
    plain: Outcome, node: Call, time: Read, event: str, schema: Schema
) -> Outcome:
    """censored(time, event) or censored(time, event, follow_up): right censoring."""
    if len(node.args) > 3:
        raise InvalidArgument(f"{format_node(node)!r} must be censored(time, event, follow_up).")

    def read(columns: Columns) -> jax.Array:
        at = time(columns)
        return jnp.stack([at, jnp.where(columns[event] == 1, at, jnp.inf)], axis=-1)

    found = plain._replace(
        columns=plain.columns | {event},
        read=read,
        censoring=Censoring(drops_out=True),
        description=f"{plain.description}, censored unless {event} is {schema[event].labels[1]}",
    )
    return found if len(node.args) == 2 else _with_known_limit(found, node.args[2], schema)


def _with_known_limit(outcome: Outcome, node: Node, schema: Schema) -> Outcome:
    """A time whose follow-up ends when a column or number says."""
    assert outcome.censoring is not None
    end, least = bounded_expression(node, schema), time_bounds(outcome.column)[0]

    def limit(columns: Columns) -> jax.Array:
        return jnp.maximum(end.read(columns), least)

    how = outcome.censoring._replace(drops_out=False, limit=limit)
    return outcome._replace(columns=outcome.columns | end.columns, censoring=how)


def _censored_by_status(plain: Outcome, node: Call, time: Read, schema: Schema) -> Outcome:
    """censored(time, status), censored(time, status, limit), censored(lower, upper, status) or with visits."""
    names = [column_name(each) for each in node.args]
    kinds = [None if each is None else scalar_column(each, schema).kind for each in names]
    place = next((i for i in (1, 2) if kinds[i : i + 1] == ["category"]), None)
    if place is None:
        raise InvalidArgument(
            f"The second part of {format_node(node)!r} must be a Binary column: yes if the event was "
            "observed at that time, no if follow-up ended before it; or there must be a Category of "
            f"the levels {', '.join(_STATUSES)}."
        )
    status, labels = str(names[place]), schema[str(names[place])].labels
    upper = _upper_column(plain, node, schema) if place == 2 else None
    if set(labels) - set(_STATUSES) or ("interval" in labels and upper is None):
        raise InvalidArgument(
            f"The levels of {status!r} must be among {', '.join(_STATUSES)}, and an interval needs both "
            f"of its ends, as in censored(lower, upper, {status}); they are {', '.join(labels)}."
        )
    rest = node.args[place + 1 :]
    if len(rest) > 1:
        raise InvalidArgument(f"{format_node(node)!r} has too many parts after {status!r}.")
    first = _read_time(plain.name, plain.column, 0.0)

    def known_as(word: str, columns: Columns) -> jax.Array:
        if word not in labels:
            return jnp.zeros(jnp.shape(columns[status]), bool)
        return columns[status] == labels.index(word)

    def read(columns: Columns) -> jax.Array:
        at = time(columns)
        after = jnp.where(known_as("left", columns), 0.0, at)
        until = jnp.where(known_as("right", columns), jnp.inf, at)
        if upper is not None:
            within = known_as("interval", columns)
            after = jnp.where(within, first(columns), after)
            until = jnp.where(within, jnp.maximum(upper[1](columns), at), until)
        return jnp.stack([after, until], axis=-1)

    found = plain._replace(
        columns=plain.columns | {status} | (set() if upper is None else {upper[0]}),
        read=read,
        description=f"{plain.description}, censored as {status} says",
    )
    return _with_follow_up(found, node, set(labels), known_as, read, rest, schema)


def _upper_column(plain: Outcome, node: Call, schema: Schema) -> tuple[str, Read]:
    """The column of the upper ends of intervals, and how to read it."""
    name = column_name(node.args[1])
    if name is None or schema[name].kind != plain.column.kind:
        raise InvalidArgument(
            f"The second part of {format_node(node)!r} must be a {plain.column.kind} column: the upper "
            "ends of intervals."
        )
    column = schema[name]
    if column.high != plain.column.high:
        raise InvalidArgument(
            f"{plain.name!r} and {name!r} are two ends of one interval; declare the same longest time for "
            f"both, not {plain.column.high:g} and {column.high:g}."
        )
    return name, _read_time(name, column, time_bounds(plain.column)[0])


def _with_follow_up(
    outcome: Outcome,
    node: Call,
    statuses: set[str],
    known_as: Callable[[str, Columns], jax.Array],
    read: Read,
    rest: tuple[Node, ...],
    schema: Schema,
) -> Outcome:
    """How rows are observed, by the statuses that they may have, and a limit or visits that may be given."""
    how = Censoring(
        drops_out="right" in statuses, in_intervals=bool(statuses & {"left", "interval"})
    )
    given = bounded_expression(rest[0], schema) if rest else None
    if given is not None:
        outcome = outcome._replace(columns=outcome.columns | given.columns)
    if "interval" in statuses:

        def visits(columns: Columns) -> tuple[jax.Array, jax.Array]:
            after, until = jnp.moveaxis(read(columns), -1, 0)
            origin = jnp.where(jnp.isinf(until), after, until)
            # Without a given time between visits, an interval's own width. Of a row that was found at its first visit,
            # only that one is known, and of one that left, none: events before are drawn as if they were seen.
            own = jnp.where(known_as("interval", columns), until - after, origin)
            own = jnp.where(known_as("right", columns), 0.0, own)
            between = own if given is None else jnp.asarray(given.read(columns))
            exact = known_as("none", columns)
            return origin, jnp.where(exact, 0.0, jnp.maximum(between, 0.0))

        return outcome._replace(censoring=how._replace(visits=visits))
    if statuses == {"left", "right"}:  # everybody was examined once
        if given is not None:
            raise InvalidArgument(
                f"{format_node(node)!r} has too many parts: everybody was examined once, at the time itself."
            )

        def examined(columns: Columns) -> jax.Array:
            after, until = jnp.moveaxis(read(columns), -1, 0)
            return jnp.where(jnp.isinf(until), after, until)

        how = how._replace(
            drops_out=False, limit=examined, visits=lambda c: (jnp.zeros(()), examined(c))
        )
        return outcome._replace(censoring=how)
    if "left" not in statuses:
        found = outcome._replace(censoring=how)
        return found if given is None else _with_known_limit(found, rest[0], schema)
    if given is None:
        raise InvalidArgument(
            f"{format_node(node)!r} needs the limit below which outcomes are only known to be below, of rows with an "
            f"exact outcome, too: a column, or a number as in censored({outcome.name}, {format_node(node.args[1])}, "
            f"{outcome.column.high / 20:g})."
        )
    limit = given

    def detected_from(columns: Columns) -> jax.Array:
        return jnp.asarray(limit.read(columns))

    return outcome._replace(censoring=how._replace(detected_from=detected_from))

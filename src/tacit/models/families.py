"""Families: distributions of a row's outcome given the linear predictor, and the outcome of a formula.

Everything here is on a public scale. By the declared bounds of the outcome, each family says where an intercept is
centred, how large coefficients may plausibly be, and in which unit the fit takes its steps. To add a family, write a
`Family` and list it in `FAMILIES`.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from formulae.terms.call_resolver import LazyCall
from jax.nn import log_sigmoid
from jax.scipy.special import log_ndtr
from numpyro import distributions as dist

from tacit.errors import InvalidArgument
from tacit.models.distributions import CensoredWeibull, ClippedDraws
from tacit.models.formula import (
    Columns,
    Facts,
    KnownColumns,
    Node,
    ParsedFormula,
    bounded_expression,
    called_function,
    column_name,
    decode_column,
    format_node,
    literal_number,
    parse_formula,
    scalar_facts,
)

# An expected outcome further beyond its bounds, on the log scale, makes no sense and may overflow.
_MAX_LOG_EXCESS = 5.0


class Outcome(NamedTuple):
    """The outcome of a row.

    Attributes:
        name: Name of the outcome.
        columns: Columns that it is computed from.
        facts: What is public about its column.
        read: Computes it from the columns.
        trials: Computes the number of trials of a binomial outcome.
        most_trials: The highest number of trials.
        levels: Levels of a categorical outcome that have their own coefficients.
        cutpoints: Names of the cutpoints between the levels of an ordinal outcome.
        limit: Computes when a row's follow-up ended or would have; None if that is not known.
        drops_out: Whether follow-up may end at times that are not known for all rows.
        described: The outcome in words.
    """

    name: str
    columns: frozenset[str]
    facts: Facts
    read: Callable[[Columns], jax.Array]
    trials: Callable[[Columns], jax.Array] | None = None
    most_trials: float = 1.0
    levels: tuple[str, ...] = ()
    cutpoints: tuple[str, ...] = ()
    limit: Callable[[Columns], jax.Array] | None = None
    drops_out: bool = False
    described: str = ""

    @property
    def ends(self) -> bool:
        """Whether follow-up may end before the event."""
        return self.drops_out or self.limit is not None


class PredictorScales(NamedTuple):
    """Public scales of a linear predictor.

    Attributes:
        middle: Where an intercept is centred.
        spread: By how much the predictor may plausibly vary.
        unit: The steps of a fit.
        between: Prior scale of standard deviations between groups.
    """

    middle: float
    spread: float
    unit: float
    between: float = 1.0


@dataclass(frozen=True, kw_only=True)
class AuxiliaryParameter:
    """A parameter of a family beside the coefficients: positive, or a share between 0 and 1.

    Attributes:
        name: Its name.
        meaning: What it means, in a few words.
        prior: Its default prior.
        start: The unit of a positive parameter, near which a fit starts.
        needed: Whether an outcome needs it.
    """

    name: str
    meaning: str
    prior: Callable[[PredictorScales], Any]
    start: Callable[[PredictorScales], float] = lambda _: 1.0
    needed: Callable[[Outcome], bool] = lambda _: True


def _no_problem(_: Facts) -> None:
    """Finds no fault with any column."""


@dataclass(frozen=True, kw_only=True)
class Family:
    """A distribution of outcomes.

    Attributes:
        name: Name of the family.
        kinds: Kinds of columns that can be its outcome.
        wants: Its outcome in words, for messages.
        links: Prior standard deviations of coefficients, by link.
        scales: Scales of the linear predictor for an outcome.
        distribution: The distribution of an outcome given link, linear predictor, further
            parameters by name, and columns.
        further: Parameters beside the coefficients.
        fault: What is wrong with a column of the right kind, and a remedy; None if nothing is.
        cut: Whether cutpoints between ordered levels take the place of the intercept.
    """

    name: str
    kinds: tuple[str, ...]
    wants: str
    links: Mapping[str, float]
    scales: Callable[[Outcome], PredictorScales]
    distribution: Callable[[Outcome, str, jax.Array, Mapping[str, Any], Columns], Any]
    further: tuple[AuxiliaryParameter, ...] = ()
    fault: Callable[[Facts], str | None] = _no_problem
    cut: bool = False

    @property
    def link(self) -> str:
        """The default link."""
        return next(iter(self.links))


def bounded_exp(outcome: Outcome, eta: jax.Array) -> jax.Array:
    """The exponential of a linear predictor, limited so that it is finite."""
    most = math.log(outcome.facts.high) + _MAX_LOG_EXCESS
    return jnp.exp(jnp.clip(eta, -2 * _MAX_LOG_EXCESS - most, most))


def unitless_scales(outcome: Outcome) -> PredictorScales:
    """Scales of log-odds and of other predictors without a unit."""
    return PredictorScales(0.0, 1.0, 1.0 / math.sqrt(max(outcome.most_trials / 8, 1.0)))


def _logits(link: str, eta: jax.Array) -> jax.Array:
    """The log-odds at a linear predictor."""
    if link == "probit":
        return jnp.asarray(log_ndtr(eta) - log_ndtr(-eta))
    if link == "cloglog":  # beyond the limits the outcome is certain
        return jnp.log(jnp.expm1(jnp.exp(jnp.clip(eta, -30.0, 4.0))))
    return eta


def _bernoulli(_: Outcome, link: str, eta: jax.Array, __: Mapping[str, Any], ___: Columns) -> Any:
    return dist.Bernoulli(logits=_logits(link, eta))


def _binomial(
    outcome: Outcome, link: str, eta: jax.Array, _: Mapping[str, Any], columns: Columns
) -> Any:
    assert outcome.trials is not None
    return dist.Binomial(outcome.trials(columns), logits=_logits(link, eta))


_BINARY_LINKS = {"logit": 2.5, "probit": 1.5, "cloglog": 2.0}

BERNOULLI = Family(
    name="bernoulli",
    kinds=("binary",),
    wants="a Binary column, or one level of a Category as in y['level']",
    links=_BINARY_LINKS,
    scales=unitless_scales,
    distribution=_bernoulli,
)
BINOMIAL = Family(
    name="binomial",
    kinds=("count",),
    wants="p(successes, trials) of two Count columns",
    links=_BINARY_LINKS,
    scales=unitless_scales,
    distribution=_binomial,
)


# Units are chosen so that a row's gradient is rarely longer than the usual clip. Clipping biases
# estimates, above all of spreads. A larger unit needs less noise, a smaller one is clipped less.
def _count_scales(outcome: Outcome) -> PredictorScales:
    # Counts are mostly far below their bound, so the middle is that of a logarithmic scale.
    middle = (math.log1p(outcome.facts.low) + math.log1p(outcome.facts.high)) / 2
    return PredictorScales(middle, 1.0, math.exp(-middle / 2))


def _poisson(
    outcome: Outcome, _: str, eta: jax.Array, further: Mapping[str, Any], __: Columns
) -> Any:
    rate = bounded_exp(outcome, eta)
    if ZERO_INFLATION.name in further:
        return dist.ZeroInflatedPoisson(further[ZERO_INFLATION.name], rate)
    return dist.Poisson(rate)


def _negative_binomial(
    outcome: Outcome, _: str, eta: jax.Array, further: Mapping[str, Any], __: Columns
) -> Any:
    counts = dist.NegativeBinomial2(bounded_exp(outcome, eta), further[ALPHA.name])
    if ZERO_INFLATION.name in further:
        return dist.ZeroInflatedDistribution(counts, gate=further[ZERO_INFLATION.name])
    return counts


def _count_problem(facts: Facts) -> str | None:
    return "counts cannot be negative" if facts.low < 0 else None


def _zero_inflated_problem(facts: Facts) -> str | None:
    return "its lower bound must be 0, of which there are many" if facts.low != 0 else None


ALPHA = AuxiliaryParameter(
    name="alpha",
    meaning="shape: the larger, the less spread out",
    prior=lambda _: dist.LogNormal(1.0, 1.5),
)
ZERO_INFLATION = AuxiliaryParameter(
    name="zero_inflation",
    meaning="share of rows that are 0 whatever the predictors say",
    prior=lambda _: dist.Beta(1.0, 1.0),
)
_WANTS_COUNT = "a Count from 0 or more"

POISSON = Family(
    name="poisson",
    kinds=("count",),
    wants=_WANTS_COUNT,
    links={"log": 2.0},
    scales=_count_scales,
    distribution=_poisson,
    fault=_count_problem,
)
NEGATIVE_BINOMIAL = Family(
    name="negativebinomial",
    kinds=("count",),
    wants=_WANTS_COUNT,
    links={"log": 2.0},
    scales=_count_scales,
    distribution=_negative_binomial,
    further=(ALPHA,),
    fault=_count_problem,
)
ZERO_INFLATED_POISSON = Family(
    name="zero_inflated_poisson",
    kinds=("count",),
    wants="a Count from 0",
    links={"log": 2.0},
    scales=_count_scales,
    distribution=_poisson,
    further=(ZERO_INFLATION,),
    fault=_zero_inflated_problem,
)
ZERO_INFLATED_NEGATIVE_BINOMIAL = Family(
    name="zero_inflated_negativebinomial",
    kinds=("count",),
    wants="a Count from 0",
    links={"log": 2.0},
    scales=_count_scales,
    distribution=_negative_binomial,
    further=(ALPHA, ZERO_INFLATION),
    fault=_zero_inflated_problem,
)


CUTPOINT = "cutpoint"
# Cutpoints that are nearer than this have nothing between them.
_MIN_CUTPOINT_GAP = 1e-6


def _categorical(_: Outcome, __: str, eta: jax.Array, ___: Mapping[str, Any], ____: Columns) -> Any:
    reference = jnp.zeros((*eta.shape[:-1], 1), eta.dtype)
    return dist.Categorical(logits=jnp.concatenate([reference, eta], axis=-1))


def _ordinal(_: Outcome, link: str, eta: jax.Array, further: Mapping[str, Any], __: Columns) -> Any:
    """The probability of a level or a lower one is F(cutpoint - eta), F by the link."""
    at = further[CUTPOINT] - eta[..., None]
    below, above = at[..., :-1], jnp.maximum(at[..., 1:], at[..., :-1] + _MIN_CUTPOINT_GAP)
    lowest, highest, between = _ORDINAL_LOG_PROBS[link]
    parts = lowest(at[..., :1]), between(below, above), highest(at[..., -1:])
    return dist.Categorical(logits=jnp.concatenate(parts, axis=-1))


def _log_logistic_between(below: jax.Array, above: jax.Array) -> jax.Array:
    """The logarithm of F(above) - F(below), without loss of digits."""
    return log_sigmoid(above) + log_sigmoid(-below) + jnp.log(-jnp.expm1(below - above))


def _log_normal_between(below: jax.Array, above: jax.Array) -> jax.Array:
    """The same for the normal distribution, in the tail that is nearer."""
    upper = below + above > 0
    near, far = jnp.where(upper, -below, above), jnp.where(upper, -above, below)
    long, short = log_ndtr(near), log_ndtr(far)
    return jnp.asarray(long + jnp.log(-jnp.expm1(jnp.minimum(short - long, -_MIN_CUTPOINT_GAP))))


# By link: log probabilities below the first cutpoint, above the last, and between two.
_ORDINAL_LOG_PROBS: Mapping[str, tuple[Any, Any, Any]] = {
    "logit": (log_sigmoid, lambda at: log_sigmoid(-at), _log_logistic_between),
    "probit": (log_ndtr, lambda at: log_ndtr(-at), _log_normal_between),
}


def _levels_problem(facts: Facts) -> str | None:
    return "declare two levels or more" if len(facts.levels) < 2 else None


def _ordinal_problem(facts: Facts) -> str | None:
    if facts.other is None:
        return _levels_problem(facts)
    return (
        f"{facts.other!r} has no place in the order; declare the column without other=, so that rows "
        "with undeclared values are left out"
    )


CATEGORICAL = Family(
    name="categorical",
    kinds=("category",),
    wants="a Category of two or more levels",
    links={"softmax": 2.5},
    scales=unitless_scales,
    distribution=_categorical,
    fault=_levels_problem,
)
ORDINAL = Family(
    name="ordinal",
    kinds=("category",),
    wants="a Category with its levels in order, lowest first",
    links={"logit": 2.5, "probit": 1.5},
    scales=unitless_scales,
    distribution=_ordinal,
    fault=_ordinal_problem,
    cut=True,
)


# The least standard deviation, in halves of the outcome's range. Below it gradients explode.
_MIN_RELATIVE_SIGMA = 1e-3
# Values of a beta outcome that is declared from 0 or to 1 are moved so far inside.
BETA_MARGIN = 1e-3
# The least mean of a beta outcome, and 1 less the largest. Beyond them gradients explode.
_MIN_BETA_MEAN = 1e-4


def _gaussian(
    outcome: Outcome, _: str, eta: jax.Array, further: Mapping[str, Any], __: Columns
) -> Any:
    least = _MIN_RELATIVE_SIGMA * outcome.facts.half
    return dist.Normal(eta, jnp.maximum(further["sigma"], least))


def _gaussian_scales(outcome: Outcome) -> PredictorScales:
    middle, half = outcome.facts.middle, outcome.facts.half
    return PredictorScales(middle, half, half / 10, half / 2)


def _gamma(
    outcome: Outcome, _: str, eta: jax.Array, further: Mapping[str, Any], __: Columns
) -> Any:
    alpha = further["alpha"]
    base = dist.Gamma(alpha, alpha / bounded_exp(outcome, eta))
    return ClippedDraws(base, outcome.facts.low, outcome.facts.high)


def _gamma_scales(outcome: Outcome) -> PredictorScales:
    middle = (math.log(outcome.facts.low) + math.log(outcome.facts.high)) / 2
    return PredictorScales(middle, 1.0, 0.4)


def _gamma_problem(facts: Facts) -> str | None:
    if facts.low > 0:
        return None
    return (
        "declare a lower bound above zero, to which lower outcomes are moved, or use the gaussian "
        "family"
    )


def _beta(outcome: Outcome, _: str, eta: jax.Array, further: Mapping[str, Any], __: Columns) -> Any:
    mean = jnp.clip(jax.nn.sigmoid(eta), _MIN_BETA_MEAN, 1 - _MIN_BETA_MEAN)
    kappa = further["kappa"]
    return ClippedDraws(dist.Beta(mean * kappa, (1 - mean) * kappa), *beta_bounds(outcome.facts))


def beta_bounds(facts: Facts) -> tuple[float, float]:
    """The bounds of a beta outcome: the declared ones, or a margin inside of 0 and 1."""
    low = BETA_MARGIN if facts.low == 0 else facts.low
    return low, 1 - BETA_MARGIN if facts.high == 1 else facts.high


def _beta_problem(facts: Facts) -> str | None:
    low, high = beta_bounds(facts)
    if facts.low >= 0 and facts.high <= 1 and low < high:
        return None
    return "divide percentages by 100, and declare bounds within 0 and 1"


GAUSSIAN = Family(
    name="gaussian",
    kinds=("number", "count"),
    wants="a Number or a Count",
    links={"identity": 1.0},
    scales=_gaussian_scales,
    distribution=_gaussian,
    further=(
        AuxiliaryParameter(
            name="sigma",
            meaning="standard deviation of the outcome given its mean",
            prior=lambda scales: dist.HalfNormal(scales.spread / 2),
            start=lambda scales: scales.spread / 4,
        ),
    ),
)
GAMMA = Family(
    name="gamma",
    kinds=("number",),
    wants="a Number whose lower bound is above zero",
    links={"log": 2.0},
    scales=_gamma_scales,
    distribution=_gamma,
    further=(
        AuxiliaryParameter(
            name="alpha",
            meaning="shape: the larger, the less spread out",
            prior=lambda _: dist.LogNormal(1.0, 1.5),
        ),
    ),
    fault=_gamma_problem,
)
BETA = Family(
    name="beta",
    kinds=("number",),
    wants="a Number between 0 and 1",
    links={"logit": 2.0},
    scales=unitless_scales,
    distribution=_beta,
    further=(
        AuxiliaryParameter(
            name="kappa",
            meaning="precision: the larger, the less spread out",
            prior=lambda _: dist.LogNormal(2.0, 1.5),
        ),
    ),
    fault=_beta_problem,
)


# The shortest time if times are declared from 0, in parts of the longest.
_SHORTEST_TIME_SHARE = 1e-4
# How far the logarithm of a typical time may be from that of the longest.
_MAX_LOG_TIME_RATIO = 12.0


def shortest_time(facts: Facts) -> float:
    """The least time that a row can have; shorter ones are moved to it."""
    return facts.low if facts.low > 0 else _SHORTEST_TIME_SHARE * facts.high


def _weibull(
    outcome: Outcome, _: str, eta: jax.Array, further: Mapping[str, Any], columns: Columns
) -> Any:
    facts = outcome.facts
    centre = math.log(facts.high)
    return CensoredWeibull(
        jnp.clip(eta, centre - _MAX_LOG_TIME_RATIO, centre + _MAX_LOG_TIME_RATIO),
        further["alpha"],
        (shortest_time(facts), facts.high),
        jnp.inf if outcome.limit is None else outcome.limit(columns),
        further.get(DROP_OUT.name),
    )


def _weibull_scales(outcome: Outcome) -> PredictorScales:
    return PredictorScales(math.log(outcome.facts.high / 2), 1.0, 0.5)


def _weibull_problem(facts: Facts) -> str | None:
    return "times cannot be negative" if facts.low < 0 else None


DROP_OUT = AuxiliaryParameter(
    name="drop_out",
    meaning="rate at which follow-up ends before the longest time",
    prior=lambda scales: dist.LogNormal(-scales.middle, 1.5),
    start=lambda scales: math.exp(-scales.middle),
    needed=lambda outcome: outcome.drops_out,
)
WEIBULL = Family(
    name="weibull",
    kinds=("number", "count"),
    wants="censored(time, event) or a time from 0 or more, a Number or a Count",
    links={"log": 2.0},
    scales=_weibull_scales,
    distribution=_weibull,
    further=(
        AuxiliaryParameter(
            name="alpha",
            meaning="shape: above 1, the hazard rises with time; below 1, it falls",
            prior=lambda _: dist.LogNormal(0.0, 1.0),
        ),
        DROP_OUT,
    ),
    fault=_weibull_problem,
)


FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        BERNOULLI,
        BINOMIAL,
        GAUSSIAN,
        POISSON,
        NEGATIVE_BINOMIAL,
        ZERO_INFLATED_POISSON,
        ZERO_INFLATED_NEGATIVE_BINOMIAL,
        GAMMA,
        BETA,
        WEIBULL,
        CATEGORICAL,
        ORDINAL,
    )
}


_DEFAULT_FAMILIES = {
    "binary": "bernoulli",
    "number": "gaussian",
    "count": "poisson",
    "category": "categorical",
}
# Calls that are outcomes, and the families that they need.
_OUTCOME_CALLS = {
    "p": "binomial",
    "prop": "binomial",
    "proportion": "binomial",
    "censored": "weibull",
}


def default_family(formula: str, known: KnownColumns) -> str:
    """The family used by default, which follows from the kind of the outcome.

    Args:
        formula: The formula.
        known: What is public about the columns.

    Returns:
        The name of the family.
    """
    parts = parse_formula(formula)
    name = column_name(parts.response)
    if name is None:  # any other calculation is refused later, with a remedy
        return _OUTCOME_CALLS.get(str(called_function(parts.response)), "gaussian")
    return (
        "bernoulli"
        if parts.level is not None
        else _DEFAULT_FAMILIES[scalar_facts(name, known).kind]
    )


def build_outcome(parts: ParsedFormula, family: Family, known: KnownColumns) -> Outcome:
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
        return _proportion_outcome(node, family, known)
    if family.name == "weibull":
        return _time_outcome(node, family, known)
    name = column_name(node)
    if name is None:
        raise _calculated_outcome_error(node, family)
    facts = scalar_facts(name, known)
    if parts.level is not None:
        return _one_level_outcome(name, facts, parts.level, family)
    _check_outcome_kind(name, facts, family)
    if facts.kind in {"binary", "category"}:
        return _level_outcome(name, facts, family)
    said = f"{name}, {facts.low:.4g} to {facts.high:.4g}"
    read = _decode_outcome(name, facts, family)
    return Outcome(name, frozenset([name]), facts, read, described=said)


def _calculated_outcome_error(node: Node, family: Family) -> InvalidArgument:
    """The error for an outcome that is not a column."""
    if called_function(node) in _OUTCOME_CALLS:
        needed = _OUTCOME_CALLS[str(called_function(node))]
        return InvalidArgument(
            f"The outcome {format_node(node)!r} needs the {needed} family; got {family.name}."
        )
    return InvalidArgument(
        f"The outcome {format_node(node)!r} must be a column, not a calculation; add the calculated "
        "values to the data as a column with its own bounds."
    )


def _decode_outcome(name: str, facts: Facts, family: Family) -> Callable[[Columns], jax.Array]:
    """Reads a number or a count in its own unit."""
    if family.name == "beta":
        low, high = beta_bounds(facts)
        decoded = decode_column(name, facts)
        return lambda c: jnp.clip(decoded(c), low, high)
    if facts.kind == "number" or family.name == "gaussian":
        return decode_column(name, facts)
    return lambda c: c[name]


def _level_outcome(name: str, facts: Facts, family: Family) -> Outcome:
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


def _check_outcome_kind(name: str, facts: Facts, family: Family) -> None:
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


def _one_level_outcome(name: str, facts: Facts, level: str, family: Family) -> Outcome:
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


def _proportion_outcome(node: Node, family: Family, known: KnownColumns) -> Outcome:
    """The outcome p(successes, trials) of the binomial family."""
    names = list(node.args) if isinstance(node, LazyCall) and not node.kwargs else []
    if _OUTCOME_CALLS.get(str(called_function(node))) != "binomial" or len(names) != 2:
        raise InvalidArgument(
            f"The binomial family needs {family.wants}, such as p(cured, treated) ~ dose; got "
            f"{format_node(node)!r}."
        )
    name = column_name(names[0])
    if name is None or scalar_facts(name, known).kind != "count" or known[name].low < 0:
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
        if scalar_facts(total, known).kind != "count" or known[total].low < 0:
            raise InvalidArgument(f"The trials in {format_node(node)!r} must be a Count.")
        columns, trials, most = frozenset([name, total]), lambda c: c[total], known[total].high
    # More successes than trials is an error in a cell; the value is moved to the trials.
    return Outcome(
        name,
        columns,
        known[name],
        lambda c: jnp.minimum(c[name], trials(c)),
        trials=trials,
        most_trials=most,
        described=f"{format_node(names[0])} of {format_node(names[1])} trials",
    )


def _time_outcome(node: Node, family: Family, known: KnownColumns) -> Outcome:
    """The outcome censored(time, event), or a time that is never censored."""
    call = called_function(node) == "censored"
    given = list(node.args) if call else [node]
    name = column_name(given[0]) if given else None
    if name is None or (call and (node.kwargs or len(given) not in (2, 3))):
        raise InvalidArgument(
            "The weibull family needs a time as its outcome: time ~ x, censored(time, event) ~ x, or "
            f"censored(time, event, follow_up) ~ x; got {format_node(node)!r}."
        )
    facts = scalar_facts(name, known)
    _check_outcome_kind(name, facts, family)
    decoded, low, high = decode_column(name, facts), shortest_time(facts), facts.high
    said = f"{name}, {facts.low:.4g} to {facts.high:.4g}"
    plain = Outcome(
        name,
        frozenset([name]),
        facts,
        lambda c: jnp.clip(decoded(c), low, high),
        described=said,
    )
    return _censored_outcome(plain, node, known) if call else plain


def _censored_outcome(time: Outcome, node: Node, known: KnownColumns) -> Outcome:
    """A time that may be censored: negative in the rows where it is."""
    event = column_name(node.args[1])
    if event is None or scalar_facts(event, known).kind != "binary":
        raise InvalidArgument(
            f"The second part of {format_node(node)!r} must be a Binary column: yes if the event was "
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
    end = bounded_expression(node.args[2], known)
    return found._replace(
        columns=found.columns | end.columns,
        limit=lambda c: jnp.maximum(end.read(c), shortest_time(time.facts)),
        drops_out=False,
    )

"""Families: distributions of a row's outcome given the linear predictor, and the outcome of a formula.

Everything here is on a public scale. By the declared bounds of the outcome, each family says where an intercept is
centred, how large coefficients may plausibly be, and in which unit the fit takes its steps. To add a family, write a
`Family` and list it in `FAMILIES`.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax.nn import log_sigmoid
from jax.scipy.special import log_ndtr
from numpyro import distributions as dist

from tacit import _validate
from tacit.data.columns import Category, Kind
from tacit.data.schema import Schema
from tacit.errors import InvalidArgument
from tacit.models.distributions import CensoredWeibull, ClippedDraws
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
    literal_number,
    parse_formula,
    scalar_column,
)

# An expected outcome further beyond its bounds, on the log scale, makes no sense and may overflow.
_MAX_LOG_EXCESS = 5.0


class Outcome(NamedTuple):
    """The outcome of a row.

    Attributes:
        name: Name of the outcome.
        columns: Columns that it is computed from.
        column: What is public about its column.
        read: Computes it from the columns.
        trials: Computes the number of trials of a binomial outcome.
        max_trials: The highest number of trials.
        levels: Levels of a categorical outcome that have their own coefficients.
        cutpoints: Names of the cutpoints between the levels of an ordinal outcome.
        limit: Computes when a row's follow-up ended or would have; None if that is not known.
        may_drop_out: Whether follow-up may end at times that are not known for all rows.
        description: The outcome in words.
    """

    name: str
    columns: frozenset[str]
    column: Kind
    read: Callable[[Columns], jax.Array]
    trials: Callable[[Columns], jax.Array] | None = None
    max_trials: float = 1.0
    levels: tuple[str, ...] = ()
    cutpoints: tuple[str, ...] = ()
    limit: Callable[[Columns], jax.Array] | None = None
    may_drop_out: bool = False
    description: str = ""

    @property
    def middle(self) -> float:
        """The middle of the bounds."""
        return (self.column.low + self.column.high) / 2

    @property
    def half_range(self) -> float:
        """Half of the distance between the bounds."""
        return (self.column.high - self.column.low) / 2

    @property
    def is_censored(self) -> bool:
        """Whether follow-up may end before the event."""
        return self.may_drop_out or self.limit is not None


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
    prior: Callable[[PredictorScales], dist.Distribution]
    start: Callable[[PredictorScales], float] = lambda _: 1.0
    needed: Callable[[Outcome], bool] = lambda _: True


class Predictor(NamedTuple):
    """What the distribution of a row's outcome is a function of.

    Attributes:
        outcome: The outcome.
        link: Name of the link.
        eta: The linear predictor: [rows], or [rows, levels].
        auxiliary: Values of the family's auxiliary parameters, and of its cutpoints, by name.
        columns: The columns of the table.
    """

    outcome: Outcome
    link: str
    eta: jax.Array
    auxiliary: Mapping[str, jax.Array]
    columns: Columns

    @property
    def logits(self) -> jax.Array:
        """The log-odds of a binary outcome."""
        if self.link == "probit":
            return jnp.asarray(log_ndtr(self.eta) - log_ndtr(-self.eta))
        if self.link == "cloglog":  # beyond the limits the outcome is certain
            return jnp.log(jnp.expm1(jnp.exp(jnp.clip(self.eta, -30.0, 4.0))))
        return self.eta

    @property
    def bounded_exp(self) -> jax.Array:
        """The exponential of the linear predictor, limited so that it is finite."""
        most = math.log(self.outcome.column.high) + _MAX_LOG_EXCESS
        return jnp.exp(jnp.clip(self.eta, -2 * _MAX_LOG_EXCESS - most, most))


class CoefficientScale(NamedTuple):
    """What coefficients are changes of, in words, and what their exponentials are called, if anything."""

    words: str
    ratio: str | None = None


# By link, unless a family says otherwise. A softmax compares each level of the outcome with the first.
_COEFFICIENT_SCALES = {
    "identity": CoefficientScale("the mean of {outcome}"),
    "log": CoefficientScale("the logarithm of the mean of {outcome}", "ratio of means"),
    "logit": CoefficientScale("the log-odds that {event}", "odds ratio"),
    "probit": CoefficientScale("the probit of the probability that {event}"),
    "cloglog": CoefficientScale("the complementary log-log of the probability that {event}"),
    "softmax": CoefficientScale(
        "the log-odds of each level of {outcome} against {first}", "odds ratio"
    ),
}


@dataclass(frozen=True, kw_only=True)
class Family:
    """A distribution of outcomes.

    Attributes:
        name: Name of the family.
        kinds: Kinds of columns that can be its outcome.
        wants: Its outcome in words, for messages.
        regression: What a regression with the default link is called.
        links: Prior standard deviations of coefficients, by link; the first is the default.
        scales: Scales of the linear predictor for an outcome.
        distribution: The distribution of an outcome given its predictor.
        auxiliary: Parameters beside the coefficients.
        problem: What is wrong with a column of the right kind, and a remedy; None if nothing is.
        cut: Whether cutpoints between ordered levels take the place of the intercept.
        coefficient_scales: What coefficients are changes of, by link, where the link does not say.
        outcome: What is before the ~ in a formula: a column, ``p(successes, trials)``, or a time
            that may be ``censored(time, event)``.
        outcome_bounds: Bounds that a number is moved to, if they are not the declared ones.
        per_level: Whether every level of the outcome but the first has its own coefficients.
    """

    name: str
    kinds: tuple[str, ...]
    wants: str
    regression: str
    links: Mapping[str, float]
    scales: Callable[[Outcome], PredictorScales]
    distribution: Callable[[Predictor], dist.Distribution]
    auxiliary: tuple[AuxiliaryParameter, ...] = ()
    problem: Callable[[Kind], str | None] = lambda _: None
    cut: bool = False
    coefficient_scales: Mapping[str, CoefficientScale] = field(default_factory=dict)
    outcome: Literal["column", "proportion", "time"] = "column"
    outcome_bounds: Callable[[Kind], tuple[float, float]] | None = None
    per_level: bool = False

    @property
    def link(self) -> str:
        """The default link."""
        return next(iter(self.links))

    def regression_name(self, link: str) -> str:
        """What a regression with a link is called."""
        return self.regression if link == self.link else f"{self.name} regression with link {link}"

    def coefficient_scale(self, link: str) -> CoefficientScale:
        """What coefficients are changes of."""
        usual = _COEFFICIENT_SCALES.get(link, CoefficientScale("the linear predictor of {outcome}"))
        return self.coefficient_scales.get(link, usual)


def unitless_scales(outcome: Outcome) -> PredictorScales:
    """Scales of log-odds and of other predictors without a unit."""
    return PredictorScales(0.0, 1.0, 1.0 / math.sqrt(max(outcome.max_trials / 8, 1.0)))


# Yes or no, and successes among trials.


def _binomial(given: Predictor) -> dist.Distribution:
    assert given.outcome.trials is not None
    return dist.Binomial(given.outcome.trials(given.columns), logits=given.logits)


_BINARY_LINKS = {"logit": 2.5, "probit": 1.5, "cloglog": 2.0}
BERNOULLI = Family(
    name="bernoulli",
    kinds=("binary",),
    wants="a Binary column, or one level of a Category as in y['level']",
    regression="logistic regression",
    links=_BINARY_LINKS,
    scales=unitless_scales,
    distribution=lambda given: dist.Bernoulli(logits=given.logits),
)
BINOMIAL = Family(
    name="binomial",
    kinds=("count",),
    wants="p(successes, trials) of two Count columns",
    regression="logistic regression",
    links=_BINARY_LINKS,
    scales=unitless_scales,
    distribution=_binomial,
    outcome="proportion",
)

# Counts.


# Units are chosen so that a row's gradient is rarely longer than the usual clip. Clipping biases
# estimates, above all of spreads. A larger unit needs less noise, a smaller one is clipped less.
def _count_scales(outcome: Outcome) -> PredictorScales:
    # Counts are mostly far below their bound, so the middle is that of a logarithmic scale.
    middle = (math.log1p(outcome.column.low) + math.log1p(outcome.column.high)) / 2
    return PredictorScales(middle, 1.0, math.exp(-middle / 2))


def _poisson(given: Predictor) -> dist.Distribution:
    if ZERO_INFLATION.name in given.auxiliary:
        return dist.ZeroInflatedPoisson(given.auxiliary[ZERO_INFLATION.name], given.bounded_exp)
    return dist.Poisson(given.bounded_exp)


def _negative_binomial(given: Predictor) -> dist.Distribution:
    counts = dist.NegativeBinomial2(given.bounded_exp, given.auxiliary[ALPHA.name])
    if ZERO_INFLATION.name in given.auxiliary:
        return dist.ZeroInflatedDistribution(counts, gate=given.auxiliary[ZERO_INFLATION.name])
    return counts


def _count_problem(column: Kind) -> str | None:
    return "counts cannot be negative" if column.low < 0 else None


def _zero_inflated_problem(column: Kind) -> str | None:
    return "its lower bound must be 0, of which there are many" if column.low != 0 else None


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
POISSON = Family(
    name="poisson",
    kinds=("count",),
    wants="a Count from 0 or more",
    regression="Poisson regression",
    links={"log": 2.0},
    scales=_count_scales,
    distribution=_poisson,
    problem=_count_problem,
    coefficient_scales={"log": _COEFFICIENT_SCALES["log"]._replace(ratio="rate ratio")},
)
NEGATIVE_BINOMIAL = replace(
    POISSON,
    name="negativebinomial",
    regression="negative binomial regression",
    distribution=_negative_binomial,
    auxiliary=(ALPHA,),
)
ZERO_INFLATED_POISSON = replace(
    POISSON,
    name="zero_inflated_poisson",
    wants="a Count from 0",
    regression="zero-inflated Poisson regression",
    auxiliary=(ZERO_INFLATION,),
    problem=_zero_inflated_problem,
)
ZERO_INFLATED_NEGATIVE_BINOMIAL = replace(
    ZERO_INFLATED_POISSON,
    name="zero_inflated_negativebinomial",
    regression="zero-inflated negative binomial regression",
    distribution=_negative_binomial,
    auxiliary=(ALPHA, ZERO_INFLATION),
)

# Levels: in no order, and in order.

CUTPOINT = "cutpoint"
# Cutpoints that are nearer than this have nothing between them.
_MIN_CUTPOINT_GAP = 1e-6


def _categorical(given: Predictor) -> dist.Distribution:
    reference = jnp.zeros((*given.eta.shape[:-1], 1), given.eta.dtype)
    return dist.Categorical(logits=jnp.concatenate([reference, given.eta], axis=-1))


def _ordinal(given: Predictor) -> dist.Distribution:
    """The probability of a level or a lower one is F(cutpoint - eta), F by the link."""
    at = given.auxiliary[CUTPOINT] - given.eta[..., None]
    below, above = at[..., :-1], jnp.maximum(at[..., 1:], at[..., :-1] + _MIN_CUTPOINT_GAP)
    if given.link == "logit":
        log_cdf, between = log_sigmoid, _log_logistic_between(below, above)
    else:
        log_cdf, between = log_ndtr, _log_normal_between(below, above)
    parts = log_cdf(at[..., :1]), between, log_cdf(-at[..., -1:])
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


def _levels_problem(column: Kind) -> str | None:
    return "declare two levels or more" if len(column.labels) < 2 else None


def _ordinal_problem(column: Kind) -> str | None:
    if not isinstance(column, Category) or column.other is None:
        return _levels_problem(column)
    return (
        f"{column.labels[-1]!r} has no place in the order; declare the column without other=, so that rows "
        "with undeclared values are left out"
    )


CATEGORICAL = Family(
    name="categorical",
    kinds=("category",),
    wants="a Category of two or more levels",
    regression="multinomial logistic regression",
    links={"softmax": 2.5},
    scales=unitless_scales,
    distribution=_categorical,
    per_level=True,
    problem=_levels_problem,
)
ORDINAL = Family(
    name="ordinal",
    kinds=("category",),
    wants="a Category with its levels in order, lowest first",
    regression="ordinal logistic regression",
    links={"logit": 2.5, "probit": 1.5},
    scales=unitless_scales,
    distribution=_ordinal,
    problem=_ordinal_problem,
    cut=True,
    coefficient_scales={
        "logit": CoefficientScale("the log-odds of a higher level of {outcome}", "odds ratio"),
        "probit": CoefficientScale("the probit of the probability of a higher level of {outcome}"),
    },
)

# Numbers: on the real line, above zero, and between 0 and 1.

# The least standard deviation, in halves of the outcome's range. Below it gradients explode.
_MIN_RELATIVE_SIGMA = 1e-3
# Values of a beta outcome that is declared from 0 or to 1 are moved so far inside.
BETA_MARGIN = 1e-3
# The least mean of a beta outcome, and 1 less the largest. Beyond them gradients explode.
_MIN_BETA_MEAN = 1e-4


def _gaussian(given: Predictor) -> dist.Distribution:
    least = _MIN_RELATIVE_SIGMA * given.outcome.half_range
    return dist.Normal(given.eta, jnp.maximum(given.auxiliary["sigma"], least))


def _gaussian_scales(outcome: Outcome) -> PredictorScales:
    half = outcome.half_range
    return PredictorScales(outcome.middle, half, half / 10, half / 2)


def _gamma(given: Predictor) -> dist.Distribution:
    alpha, column = given.auxiliary["alpha"], given.outcome.column
    return ClippedDraws(dist.Gamma(alpha, alpha / given.bounded_exp), column.low, column.high)


def _gamma_scales(outcome: Outcome) -> PredictorScales:
    middle = (math.log(outcome.column.low) + math.log(outcome.column.high)) / 2
    return PredictorScales(middle, 1.0, 0.4)


def _gamma_problem(column: Kind) -> str | None:
    if column.low > 0:
        return None
    return (
        "declare a lower bound above zero, to which lower outcomes are moved, or use the gaussian "
        "family"
    )


def _beta(given: Predictor) -> dist.Distribution:
    mean = jnp.clip(jax.nn.sigmoid(given.eta), _MIN_BETA_MEAN, 1 - _MIN_BETA_MEAN)
    kappa = given.auxiliary["kappa"]
    bounds = beta_bounds(given.outcome.column)
    return ClippedDraws(dist.Beta(mean * kappa, (1 - mean) * kappa), *bounds)


def beta_bounds(column: Kind) -> tuple[float, float]:
    """The bounds of a beta outcome: the declared ones, or a margin inside of 0 and 1."""
    low = BETA_MARGIN if column.low == 0 else column.low
    return low, 1 - BETA_MARGIN if column.high == 1 else column.high


def _beta_problem(column: Kind) -> str | None:
    low, high = beta_bounds(column)
    if column.low >= 0 and column.high <= 1 and low < high:
        return None
    return "divide percentages by 100, and declare bounds within 0 and 1"


GAUSSIAN = Family(
    name="gaussian",
    kinds=("number", "count"),
    wants="a Number or a Count",
    regression="linear regression",
    links={"identity": 1.0},
    scales=_gaussian_scales,
    distribution=_gaussian,
    auxiliary=(
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
    regression="gamma regression",
    links={"log": 2.0},
    scales=_gamma_scales,
    distribution=_gamma,
    auxiliary=(ALPHA,),
    problem=_gamma_problem,
)
BETA = Family(
    name="beta",
    kinds=("number",),
    wants="a Number between 0 and 1",
    regression="beta regression",
    links={"logit": 2.0},
    scales=unitless_scales,
    distribution=_beta,
    outcome_bounds=beta_bounds,
    auxiliary=(
        AuxiliaryParameter(
            name="kappa",
            meaning="precision: the larger, the less spread out",
            prior=lambda _: dist.LogNormal(2.0, 1.5),
        ),
    ),
    problem=_beta_problem,
    coefficient_scales={
        "logit": CoefficientScale("the log-odds of the mean of {outcome}", "ratio of odds")
    },
)

# Times until an event, which follow-up may end before.

# The shortest time if times are declared from 0, in parts of the longest.
_SHORTEST_TIME_SHARE = 1e-4
# How far the logarithm of a typical time may be from that of the longest.
_MAX_LOG_TIME_RATIO = 12.0


def shortest_time(column: Kind) -> float:
    """The least time that a row can have; shorter ones are moved to it."""
    return column.low if column.low > 0 else _SHORTEST_TIME_SHARE * column.high


def _weibull(given: Predictor) -> dist.Distribution:
    outcome = given.outcome
    centre = math.log(outcome.column.high)
    return CensoredWeibull(
        jnp.clip(given.eta, centre - _MAX_LOG_TIME_RATIO, centre + _MAX_LOG_TIME_RATIO),
        given.auxiliary["alpha"],
        (shortest_time(outcome.column), float(outcome.column.high)),
        jnp.inf if outcome.limit is None else outcome.limit(given.columns),
        given.auxiliary.get(DROP_OUT.name),
    )


DROP_OUT = AuxiliaryParameter(
    name="drop_out",
    meaning="rate at which follow-up ends before the longest time",
    prior=lambda scales: dist.LogNormal(-scales.middle, 1.5),
    start=lambda scales: math.exp(-scales.middle),
    needed=lambda outcome: outcome.may_drop_out,
)
WEIBULL = Family(
    name="weibull",
    kinds=("number", "count"),
    wants="censored(time, event) or a time from 0 or more, a Number or a Count",
    regression="Weibull regression",
    links={"log": 2.0},
    scales=lambda outcome: PredictorScales(math.log(outcome.column.high / 2), 1.0, 0.5),
    distribution=_weibull,
    outcome="time",
    auxiliary=(
        AuxiliaryParameter(
            name="alpha",
            meaning="shape: above 1, the hazard rises with time; below 1, it falls",
            prior=lambda _: dist.LogNormal(0.0, 1.0),
        ),
        DROP_OUT,
    ),
    problem=lambda column: "times cannot be negative" if column.low < 0 else None,
    coefficient_scales={"log": CoefficientScale("the logarithm of {outcome}", "ratio of times")},
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

# Names of other packages, and of the regressions themselves, for families here.
_FOREIGN_FAMILIES = {
    **dict.fromkeys(("logistic", "logit", "binary", "probit"), "bernoulli"),
    **dict.fromkeys(("normal", "linear", "ols", "identity"), "gaussian"),
    **dict.fromkeys(("nb", "negbinomial", "nbinom", "nbinom2", "quasipoisson", "negative_binomial"), "negativebinomial"),
    **dict.fromkeys(("multinomial", "softmax"), "categorical"),
    **dict.fromkeys(("cumulative", "polr", "ordered"), "ordinal"),
    **dict.fromkeys(("count", "log"), "poisson"),
    **dict.fromkeys(("zip", "hurdle_poisson"), "zero_inflated_poisson"),
    **dict.fromkeys(("zinb", "zero_inflated_negbinomial", "hurdle_negbinomial"), "zero_inflated_negativebinomial"),
    **dict.fromkeys(("cox", "coxph", "exponential", "survival"), "weibull"),
    "inverse_gaussian": "gamma",
}  # fmt: skip


def family_named(name: object) -> Family:
    """The family of a name.

    Raises:
        InvalidArgument: If there is none; of a name that another package has for one, it says which.
    """
    if isinstance(name, str) and name in FAMILIES:
        return FAMILIES[name]
    text = name if isinstance(name, str) else type(name).__name__  # an object of another package
    plain = text.removesuffix("()").strip().lower()
    known = _FOREIGN_FAMILIES.get(plain, plain if plain in FAMILIES else None)
    if known is not None:
        link = ' with link="probit"' if plain == "probit" else ""
        shown = repr(name) if isinstance(name, str) else text
        raise InvalidArgument(f'There is no family {shown}; use family="{known}"{link} instead.')
    return FAMILIES[_validate.choice("family", name, FAMILIES)]


# The outcome of a formula: what its left side means for a family.

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


def default_family(formula: str, schema: Schema) -> str:
    """The family used by default, which follows from the kind of the outcome.

    Args:
        formula: The formula.
        schema: The schema.

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
    node = parts.response
    if family.outcome == "proportion":
        return _proportion_outcome(node, family, schema)
    if family.outcome == "time":
        return _time_outcome(node, family, schema)
    name = column_name(node)
    if name is None:
        raise _calculated_outcome_error(node, family)
    column = scalar_column(name, schema)
    if parts.level is not None:
        return _one_level_outcome(name, column, parts.level, family)
    _check_outcome_kind(name, column, family)
    if column.kind in {"binary", "category"}:
        return _level_outcome(name, column, family)
    text = f"{name}, {column.low:.4g} to {column.high:.4g}"
    read = _decode_outcome(name, column, family)
    return Outcome(name, frozenset([name]), column, read, description=text)


def _calculated_outcome_error(node: Node, family: Family) -> InvalidArgument:
    """The error for an outcome that is not a column."""
    if called_function(node) in _OUTCOME_CALLS:
        needed = _OUTCOME_CALLS[str(called_function(node))]
        return InvalidArgument(
            f"The outcome {format_node(node)!r} needs the {needed} family; got {family.name}."
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
    if family.cut:
        text = f"{name}, in order: {', '.join(column.labels)}"
    return Outcome(
        name,
        frozenset([name]),
        column,
        lambda c: c[name],
        levels=tuple(rest) if family.per_level else (),
        cutpoints=tuple(f"{a}|{b}" for a, b in pairwise(column.labels)) if family.cut else (),
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


def _time_outcome(node: Node, family: Family, schema: Schema) -> Outcome:
    """The outcome censored(time, event), or a time that is never censored."""
    call = node if isinstance(node, Call) and node.function == "censored" else None
    given = [node] if call is None else list(call.args)
    name = column_name(given[0]) if given else None
    if name is None or (call is not None and (call.kwargs or len(given) not in (2, 3))):
        raise InvalidArgument(
            "The weibull family needs a time as its outcome: time ~ x, censored(time, event) ~ x, or "
            f"censored(time, event, follow_up) ~ x; got {format_node(node)!r}."
        )
    column = scalar_column(name, schema)
    _check_outcome_kind(name, column, family)
    decoded, low, high = decode_column(name, column), shortest_time(column), float(column.high)
    text = f"{name}, {column.low:.4g} to {column.high:.4g}"
    plain = Outcome(
        name,
        frozenset([name]),
        column,
        lambda c: jnp.clip(decoded(c), low, high),
        description=text,
    )
    return plain if call is None else _censored_outcome(plain, call, schema)


def _censored_outcome(time: Outcome, node: Call, schema: Schema) -> Outcome:
    """A time that may be censored: negative in the rows where it is."""
    event = column_name(node.args[1])
    if event is None or scalar_column(event, schema).kind != "binary":
        raise InvalidArgument(
            f"The second part of {format_node(node)!r} must be a Binary column: yes if the event was "
            "observed at that time, no if follow-up ended before it."
        )
    found = time._replace(
        columns=time.columns | {event},
        read=lambda c: jnp.where(c[event] == 1, time.read(c), -time.read(c)),
        may_drop_out=True,
        description=f"{time.description}, censored unless {event} is {schema[event].labels[1]}",
    )
    if len(node.args) == 2:
        return found
    end = bounded_expression(node.args[2], schema)
    return found._replace(
        columns=found.columns | end.columns,
        limit=lambda c: jnp.maximum(end.read(c), shortest_time(time.column)),
        may_drop_out=False,
    )

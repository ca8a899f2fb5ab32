"""Families: distributions of a row's outcome given the linear predictor.

Everything here is on a public scale. By the declared bounds of the outcome, each family says where an intercept is
centred, how large coefficients may plausibly be, and in which unit the fit takes its steps. To add a family, write a
`Family` and list it in `FAMILIES`.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax.nn import log_sigmoid
from jax.scipy.special import log_ndtr
from numpyro import distributions as dist

from tacit.data.columns import Category, Kind
from tacit.models.distributions import ClippedDraws
from tacit.models.formula import Columns, Expression
from tacit.models.survival import (
    CensoredTimes,
    FollowUp,
    LogNormalTimes,
    PiecewiseExponentialTimes,
    Times,
    WeibullTimes,
)

# An expected outcome further beyond its bounds, on the log scale, makes no sense and may overflow.
_MAX_LOG_EXCESS = 5.0


Read = Callable[[Columns], jax.Array]


class Censoring(NamedTuple):
    """How times are observed, by columns of their rows; see `tacit.models.survival.FollowUp`.

    Attributes:
        drops_out: Whether follow-up may end at times that are not known for all rows.
        limit: Computes when a row's follow-up ended or would have; None if that is not known.
        visits: Computes a visit, and the time between visits.
        detected_from: Computes the time from which on times are known.
        in_intervals: Whether an event may be known to lie in an interval only.
    """

    drops_out: bool = False
    limit: Read | None = None
    visits: Callable[[Columns], tuple[jax.Array, jax.Array]] | None = None
    detected_from: Read | None = None
    in_intervals: bool = False


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
        baseline: Labels of the numbers that take the place of the intercept: cutpoints between the
            levels of an ordinal outcome, or intervals of time.
        starts: Where these intervals begin.
        censoring: How times may be censored; None if they are not.
        weight: What a row's log-likelihood is multiplied by, with its bounds; None if nothing.
        description: The outcome in words.
    """

    name: str
    columns: frozenset[str]
    column: Kind
    read: Read
    trials: Read | None = None
    max_trials: float = 1.0
    levels: tuple[str, ...] = ()
    baseline: tuple[str, ...] = ()
    starts: tuple[float, ...] = ()
    censoring: Censoring | None = None
    weight: Expression | None = None
    description: str = ""

    @property
    def middle(self) -> float:
        """The middle of the bounds."""
        return (self.column.low + self.column.high) / 2

    @property
    def half_range(self) -> float:
        """Half of the distance between the bounds."""
        return (self.column.high - self.column.low) / 2


class PredictorScales(NamedTuple):
    """Public scales of a linear predictor.

    Attributes:
        middle: Where an intercept is centred.
        spread: By how much the predictor may plausibly vary.
        unit: The steps of a fit.
        between: Prior scale of standard deviations between groups.
        log_time: The logarithm of a typical time, if outcomes are times.
    """

    middle: float
    spread: float
    unit: float
    between: float = 1.0
    log_time: float = 0.0


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
        auxiliary: Values of the family's auxiliary parameters, and of its baseline, by name.
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
        baseline: What takes the place of the intercept, one number for each label of the outcome's
            ``baseline``; None if nothing does.
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
    baseline: Literal["cutpoint", "log_hazard"] | None = None
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

CUTPOINT: Final = "cutpoint"
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
    baseline=CUTPOINT,
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


def time_bounds(column: Kind) -> tuple[float, float]:
    """The shortest and the longest time that a row can have; others are moved to them."""
    high = float(column.high)
    return float(column.low) if column.low > 0 else _SHORTEST_TIME_SHARE * high, high


def _limited_time(given: Predictor) -> jax.Array:
    """The linear predictor of a logarithm of a time, limited so that the time is finite."""
    centre = math.log(given.outcome.column.high)
    return jnp.clip(given.eta, centre - _MAX_LOG_TIME_RATIO, centre + _MAX_LOG_TIME_RATIO)


def _limited_hazard(given: Predictor) -> jax.Array:
    """The linear predictor of a logarithm of a hazard, limited so that the hazard is finite."""
    return jnp.clip(given.eta, -_MAX_LOG_TIME_RATIO, _MAX_LOG_TIME_RATIO)


def _censored(given: Predictor, times: Times) -> dist.Distribution:
    """What is seen of times of this distribution."""
    outcome, columns = given.outcome, given.columns
    how = outcome.censoring or Censoring()
    follow_up = FollowUp(
        limit=jnp.inf if how.limit is None else how.limit(columns),
        leaving=_leaving(given) if how.drops_out else None,
        visits=None if how.visits is None else how.visits(columns),
        detected_from=None if how.detected_from is None else how.detected_from(columns),
    )
    return CensoredTimes(
        times, time_bounds(outcome.column), follow_up, in_intervals=how.in_intervals
    )


def _leaving(given: Predictor) -> WeibullTimes:
    """The distribution of the times at which people leave, if nothing happens before."""
    rate, shape = (given.auxiliary[each.name] for each in (DROP_OUT, DROP_OUT_SHAPE))
    eta = given.eta
    return WeibullTimes(
        jnp.broadcast_to(-jnp.log(rate), eta.shape), jnp.broadcast_to(shape, eta.shape)
    )


def _weibull(given: Predictor) -> dist.Distribution:
    return _censored(given, WeibullTimes(_limited_time(given), given.auxiliary["alpha"]))


def _weibull_ph(given: Predictor) -> dist.Distribution:
    """The cumulative hazard at the longest time is exp(eta)."""
    alpha = given.auxiliary["alpha"]
    log_scale = math.log(given.outcome.column.high) - _limited_hazard(given) / alpha
    return _censored(given, WeibullTimes(log_scale, alpha))


def _piecewise_exponential(given: Predictor) -> dist.Distribution:
    baseline = given.auxiliary[LOG_HAZARD]
    centre = -math.log(given.outcome.column.high)
    limited = jnp.clip(baseline, centre - _MAX_LOG_TIME_RATIO, centre + _MAX_LOG_TIME_RATIO)
    hazard = limited + _limited_hazard(given)[..., None]
    return _censored(given, PiecewiseExponentialTimes(hazard, given.outcome.starts))


def _lognormal(given: Predictor) -> dist.Distribution:
    sigma = jnp.maximum(given.auxiliary["sigma"], _MIN_LOG_SIGMA)
    return _censored(given, LogNormalTimes(_limited_time(given), sigma))


def _lognormal_scales(outcome: Outcome) -> PredictorScales:
    # Such outcomes are mostly far below their bound, as counts are.
    low, high = outcome.column.low, outcome.column.high
    middle = math.log(low * high) / 2 if low > 0 else math.log(high / 10)
    return PredictorScales(middle, 1.0, 0.4, log_time=middle)


LOG_HAZARD: Final = "log_hazard"
# The least standard deviation of the logarithm of an outcome. Below it gradients explode.
_MIN_LOG_SIGMA = 1e-3


def _may_drop_out(outcome: Outcome) -> bool:
    return outcome.censoring is not None and outcome.censoring.drops_out


DROP_OUT = AuxiliaryParameter(
    name="drop_out",
    meaning="rate at which follow-up ends before the longest time",
    prior=lambda scales: dist.LogNormal(-scales.log_time, 1.5),
    start=lambda scales: math.exp(-scales.log_time),
    needed=_may_drop_out,
)
DROP_OUT_SHAPE = AuxiliaryParameter(
    name="drop_out_shape",
    meaning="above 1, the rate at which follow-up ends rises with time; below 1, it falls",
    prior=lambda _: dist.LogNormal(0.5, 1.0),
    needed=_may_drop_out,
)
_SHAPE = AuxiliaryParameter(
    name="alpha",
    meaning="shape: above 1, the hazard rises with time; below 1, it falls",
    prior=lambda _: dist.LogNormal(0.0, 1.0),
)
_HAZARD_RATIO = CoefficientScale("the logarithm of the hazard of {outcome}", "hazard ratio")


def _typical_log_time(outcome: Outcome) -> float:
    return math.log(outcome.column.high / 2)


WEIBULL = Family(
    name="weibull",
    kinds=("number", "count"),
    wants="censored(time, event) or a time from 0 or more, a Number or a Count",
    regression="Weibull regression",
    links={"log": 2.0},
    scales=lambda outcome: PredictorScales(
        _typical_log_time(outcome), 1.0, 0.5, log_time=_typical_log_time(outcome)
    ),
    distribution=_weibull,
    outcome="time",
    auxiliary=(_SHAPE, DROP_OUT, DROP_OUT_SHAPE),
    problem=lambda column: "times cannot be negative" if column.low < 0 else None,
    coefficient_scales={"log": CoefficientScale("the logarithm of {outcome}", "ratio of times")},
)
WEIBULL_PH = replace(
    WEIBULL,
    name="weibull_ph",
    regression="Weibull proportional hazards regression",
    scales=lambda outcome: PredictorScales(0.0, 1.0, 0.5, log_time=_typical_log_time(outcome)),
    distribution=_weibull_ph,
    coefficient_scales={"log": _HAZARD_RATIO},
)
PIECEWISE_EXPONENTIAL = replace(
    WEIBULL,
    name="piecewise_exponential",
    regression="piecewise exponential regression",
    scales=lambda outcome: PredictorScales(
        -math.log(outcome.column.high), 1.0, 0.5, log_time=_typical_log_time(outcome)
    ),
    distribution=_piecewise_exponential,
    baseline=LOG_HAZARD,
    auxiliary=(DROP_OUT, DROP_OUT_SHAPE),
    coefficient_scales={"log": _HAZARD_RATIO},
)
LOGNORMAL = replace(
    WEIBULL,
    name="lognormal",
    wants="a Number or a Count from 0 or more, which may be censored(time, event)",
    regression="log-normal regression",
    scales=_lognormal_scales,
    distribution=_lognormal,
    auxiliary=(
        AuxiliaryParameter(
            name="sigma",
            meaning="standard deviation of the logarithm of the outcome given its mean",
            prior=lambda _: dist.HalfNormal(1.0),
            start=lambda _: 0.5,
        ),
        DROP_OUT,
        DROP_OUT_SHAPE,
    ),
    problem=lambda column: "it cannot be negative" if column.low < 0 else None,
    coefficient_scales={
        "log": CoefficientScale("the logarithm of the median of {outcome}", "ratio of medians")
    },
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
        LOGNORMAL,
        WEIBULL,
        WEIBULL_PH,
        PIECEWISE_EXPONENTIAL,
        CATEGORICAL,
        ORDINAL,
    )
}

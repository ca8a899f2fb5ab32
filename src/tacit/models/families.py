"""Families: the distribution of a row's outcome given the linear predictor.

Everything here is on a public scale. By the declared bounds of the outcome, each family says where
an intercept is centred, how large coefficients may plausibly be, and in which unit the fit takes
its steps.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import log_ndtr
from numpyro import distributions as dist

from tacit.models.expressions import Columns, Facts

# An expected outcome further beyond its bounds, on the log scale, makes no sense and may overflow.
_LOG_ROOM = 5.0
# The least standard deviation, in halves of the outcome's range. Below it gradients explode.
_LEAST_SPREAD = 1e-3


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
        described: The outcome in words.
    """

    name: str
    columns: frozenset[str]
    facts: Facts
    read: Callable[[Columns], jax.Array]
    trials: Callable[[Columns], jax.Array] | None = None
    most_trials: float = 1.0
    levels: tuple[str, ...] = ()
    described: str = ""


class PredictorScales(NamedTuple):
    """Public scales of a linear predictor: its middle, its spread and the steps of a fit."""

    middle: float
    spread: float
    unit: float


@dataclass(frozen=True, kw_only=True)
class Family:
    """A distribution of outcomes.

    Attributes:
        name: Name of the family.
        kinds: Kinds of columns that can be its outcome.
        wants: Its outcome in words, for messages.
        links: Prior standard deviations of coefficients, by link.
        scales: Scales of the linear predictor for an outcome.
        distribution: The distribution of an outcome given link, linear predictor, further parameter
            and columns.
        extra: Name of the further parameter, which is positive.
    """

    name: str
    kinds: tuple[str, ...]
    wants: str
    links: Mapping[str, float]
    scales: Callable[[Outcome], PredictorScales]
    distribution: Callable[[Outcome, str, jax.Array, Any, Columns], Any]
    extra: str | None = None

    @property
    def link(self) -> str:
        """The default link."""
        return next(iter(self.links))

    def extra_prior(self, scales: PredictorScales) -> Any:
        """The default prior of the further parameter."""
        if self.extra == "sigma":
            return dist.HalfNormal(scales.spread / 2)
        return dist.LogNormal(1.0, 1.5)

    def extra_start(self, scales: PredictorScales) -> float:
        """The start of the further parameter."""
        return scales.spread / 4 if self.extra == "sigma" else 1.0


def _logits(link: str, eta: jax.Array) -> jax.Array:
    """The log-odds at a linear predictor."""
    if link == "probit":
        return jnp.asarray(log_ndtr(eta) - log_ndtr(-eta))
    if link == "cloglog":  # beyond the limits the outcome is certain
        return jnp.log(jnp.expm1(jnp.exp(jnp.clip(eta, -30.0, 4.0))))
    return eta


def _bounded(outcome: Outcome, eta: jax.Array) -> jax.Array:
    """The exponential of a linear predictor, limited so that it is finite."""
    most = math.log(outcome.facts.high) + _LOG_ROOM
    return jnp.exp(jnp.clip(eta, -2 * _LOG_ROOM - most, most))


def _bernoulli(_: Outcome, link: str, eta: jax.Array, __: Any, ___: Columns) -> Any:
    return dist.Bernoulli(logits=_logits(link, eta))


def _binomial(outcome: Outcome, link: str, eta: jax.Array, _: Any, columns: Columns) -> Any:
    assert outcome.trials is not None
    return dist.Binomial(outcome.trials(columns), logits=_logits(link, eta))


def _gaussian(outcome: Outcome, _: str, eta: jax.Array, sigma: Any, __: Columns) -> Any:
    return dist.Normal(eta, jnp.maximum(sigma, _LEAST_SPREAD * outcome.facts.half))


def _poisson(outcome: Outcome, _: str, eta: jax.Array, __: Any, ___: Columns) -> Any:
    return dist.Poisson(_bounded(outcome, eta))


def _negative_binomial(outcome: Outcome, _: str, eta: jax.Array, alpha: Any, __: Columns) -> Any:
    return dist.NegativeBinomial2(_bounded(outcome, eta), alpha)


def _gamma(outcome: Outcome, _: str, eta: jax.Array, alpha: Any, __: Columns) -> Any:
    return dist.Gamma(alpha, alpha / _bounded(outcome, eta))


def _categorical(_: Outcome, __: str, eta: jax.Array, ___: Any, ____: Columns) -> Any:
    reference = jnp.zeros((*eta.shape[:-1], 1), eta.dtype)
    return dist.Categorical(logits=jnp.concatenate([reference, eta], axis=-1))


# Units are chosen so that a row's gradient is rarely longer than the usual clip. Clipping biases
# estimates, above all of spreads. A larger unit needs less noise, a smaller one is clipped less.
def _gamma_scales(outcome: Outcome) -> PredictorScales:
    middle = (math.log(outcome.facts.low) + math.log(outcome.facts.high)) / 2
    return PredictorScales(middle, 1.0, 0.4)


def _count_scales(outcome: Outcome) -> PredictorScales:
    # Counts are mostly far below their bound, so the middle is that of a logarithmic scale.
    middle = (math.log1p(outcome.facts.low) + math.log1p(outcome.facts.high)) / 2
    return PredictorScales(middle, 1.0, math.exp(-middle / 2))


def _plain_scales(outcome: Outcome) -> PredictorScales:
    return PredictorScales(0.0, 1.0, 1.0 / math.sqrt(max(outcome.most_trials / 8, 1.0)))


def _gaussian_scales(outcome: Outcome) -> PredictorScales:
    return PredictorScales(outcome.facts.middle, outcome.facts.half, outcome.facts.half / 10)


_BINARY_LINKS = {"logit": 2.5, "probit": 1.5, "cloglog": 2.0}
FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        Family(
            name="bernoulli",
            kinds=("binary",),
            wants="a Binary column, or one level of a Category as in y['level']",
            links=_BINARY_LINKS,
            scales=_plain_scales,
            distribution=_bernoulli,
        ),
        Family(
            name="binomial",
            kinds=("count",),
            wants="p(successes, trials) of two Count columns",
            links=_BINARY_LINKS,
            scales=_plain_scales,
            distribution=_binomial,
        ),
        Family(
            name="gaussian",
            kinds=("number", "count"),
            wants="a Number or a Count",
            links={"identity": 1.0},
            scales=_gaussian_scales,
            distribution=_gaussian,
            extra="sigma",
        ),
        Family(
            name="poisson",
            kinds=("count",),
            wants="a Count from 0 or more",
            links={"log": 2.0},
            scales=_count_scales,
            distribution=_poisson,
        ),
        Family(
            name="negativebinomial",
            kinds=("count",),
            wants="a Count from 0 or more",
            links={"log": 2.0},
            scales=_count_scales,
            distribution=_negative_binomial,
            extra="alpha",
        ),
        Family(
            name="gamma",
            kinds=("number",),
            wants="a Number whose lower bound is above zero",
            links={"log": 2.0},
            scales=_gamma_scales,
            distribution=_gamma,
            extra="alpha",
        ),
        Family(
            name="categorical",
            kinds=("category",),
            wants="a Category of two or more levels",
            links={"softmax": 2.5},
            scales=_plain_scales,
            distribution=_categorical,
        ),
    )
}

"""What a family is: the distribution of a row's outcome given the linear predictor.

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

from tacit.models.expressions import Columns, Facts

# An expected outcome further beyond its bounds, on the log scale, makes no sense and may overflow.
_LOG_ROOM = 5.0


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
class Further:
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


def _anything(_: Facts) -> None:
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
    further: tuple[Further, ...] = ()
    fault: Callable[[Facts], str | None] = _anything
    cut: bool = False

    @property
    def link(self) -> str:
        """The default link."""
        return next(iter(self.links))


def exponential(outcome: Outcome, eta: jax.Array) -> jax.Array:
    """The exponential of a linear predictor, limited so that it is finite."""
    most = math.log(outcome.facts.high) + _LOG_ROOM
    return jnp.exp(jnp.clip(eta, -2 * _LOG_ROOM - most, most))


def plain_scales(outcome: Outcome) -> PredictorScales:
    """Scales of log-odds and of other predictors without a unit."""
    return PredictorScales(0.0, 1.0, 1.0 / math.sqrt(max(outcome.most_trials / 8, 1.0)))

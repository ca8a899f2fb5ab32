"""Times until an event, which follow-up may end before."""

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from numpyro import distributions as dist

from tacit.models.distributions import CensoredWeibull
from tacit.models.expressions import Columns, Facts
from tacit.models.families.base import Family, Further, Outcome, PredictorScales

# The shortest time if times are declared from 0, in parts of the longest.
_SHORTEST = 1e-4
# How far the logarithm of a typical time may be from that of the longest.
_LOG_ROOM = 12.0


def shortest(facts: Facts) -> float:
    """The least time that a row can have; shorter ones are moved to it."""
    return facts.low if facts.low > 0 else _SHORTEST * facts.high


def _weibull(
    outcome: Outcome, _: str, eta: jax.Array, further: Mapping[str, Any], columns: Columns
) -> Any:
    facts = outcome.facts
    centre = math.log(facts.high)
    return CensoredWeibull(
        jnp.clip(eta, centre - _LOG_ROOM, centre + _LOG_ROOM),
        further["alpha"],
        (shortest(facts), facts.high),
        jnp.inf if outcome.limit is None else outcome.limit(columns),
        further.get(DROP_OUT.name),
    )


def _scales(outcome: Outcome) -> PredictorScales:
    return PredictorScales(math.log(outcome.facts.high / 2), 1.0, 0.5)


def _fault(facts: Facts) -> str | None:
    return "times cannot be negative" if facts.low < 0 else None


DROP_OUT = Further(
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
    scales=_scales,
    distribution=_weibull,
    further=(
        Further(
            name="alpha",
            meaning="shape: above 1, the hazard rises with time; below 1, it falls",
            prior=lambda _: dist.LogNormal(0.0, 1.0),
        ),
        DROP_OUT,
    ),
    fault=_fault,
)

"""Families of counts."""

import math
from collections.abc import Mapping
from typing import Any

import jax
from numpyro import distributions as dist

from tacit.models.expressions import Columns, Facts
from tacit.models.families.base import Family, Further, Outcome, PredictorScales, exponential


# Units are chosen so that a row's gradient is rarely longer than the usual clip. Clipping biases
# estimates, above all of spreads. A larger unit needs less noise, a smaller one is clipped less.
def _scales(outcome: Outcome) -> PredictorScales:
    # Counts are mostly far below their bound, so the middle is that of a logarithmic scale.
    middle = (math.log1p(outcome.facts.low) + math.log1p(outcome.facts.high)) / 2
    return PredictorScales(middle, 1.0, math.exp(-middle / 2))


def _poisson(
    outcome: Outcome, _: str, eta: jax.Array, further: Mapping[str, Any], __: Columns
) -> Any:
    rate = exponential(outcome, eta)
    if ZERO_INFLATION.name in further:
        return dist.ZeroInflatedPoisson(further[ZERO_INFLATION.name], rate)
    return dist.Poisson(rate)


def _negative_binomial(
    outcome: Outcome, _: str, eta: jax.Array, further: Mapping[str, Any], __: Columns
) -> Any:
    counts = dist.NegativeBinomial2(exponential(outcome, eta), further[ALPHA.name])
    if ZERO_INFLATION.name in further:
        return dist.ZeroInflatedDistribution(counts, gate=further[ZERO_INFLATION.name])
    return counts


def _fault(facts: Facts) -> str | None:
    return "counts cannot be negative" if facts.low < 0 else None


def _zero_fault(facts: Facts) -> str | None:
    return "its lower bound must be 0, of which there are many" if facts.low != 0 else None


ALPHA = Further(
    name="alpha",
    meaning="shape: the larger, the less spread out",
    prior=lambda _: dist.LogNormal(1.0, 1.5),
)
ZERO_INFLATION = Further(
    name="zero_inflation",
    meaning="share of rows that are 0 whatever the predictors say",
    prior=lambda _: dist.Beta(1.0, 1.0),
)
_COUNT = "a Count from 0 or more"

POISSON = Family(
    name="poisson",
    kinds=("count",),
    wants=_COUNT,
    links={"log": 2.0},
    scales=_scales,
    distribution=_poisson,
    fault=_fault,
)
NEGATIVE_BINOMIAL = Family(
    name="negativebinomial",
    kinds=("count",),
    wants=_COUNT,
    links={"log": 2.0},
    scales=_scales,
    distribution=_negative_binomial,
    further=(ALPHA,),
    fault=_fault,
)
ZERO_INFLATED_POISSON = Family(
    name="zero_inflated_poisson",
    kinds=("count",),
    wants="a Count from 0",
    links={"log": 2.0},
    scales=_scales,
    distribution=_poisson,
    further=(ZERO_INFLATION,),
    fault=_zero_fault,
)
ZERO_INFLATED_NEGATIVE_BINOMIAL = Family(
    name="zero_inflated_negativebinomial",
    kinds=("count",),
    wants="a Count from 0",
    links={"log": 2.0},
    scales=_scales,
    distribution=_negative_binomial,
    further=(ALPHA, ZERO_INFLATION),
    fault=_zero_fault,
)

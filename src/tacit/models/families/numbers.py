"""Families of numbers: on the real line, above zero, and between 0 and 1."""

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from numpyro import distributions as dist

from tacit.models.distributions import Moved
from tacit.models.expressions import Columns, Facts
from tacit.models.families.base import (
    Family,
    Further,
    Outcome,
    PredictorScales,
    exponential,
    plain_scales,
)

# The least standard deviation, in halves of the outcome's range. Below it gradients explode.
_LEAST_SPREAD = 1e-3
# Values of a beta outcome that is declared from 0 or to 1 are moved so far inside.
MARGIN = 1e-3
# The least mean of a beta outcome, and 1 less the largest. Beyond them gradients explode.
_LEAST_MEAN = 1e-4


def _gaussian(
    outcome: Outcome, _: str, eta: jax.Array, further: Mapping[str, Any], __: Columns
) -> Any:
    least = _LEAST_SPREAD * outcome.facts.half
    return dist.Normal(eta, jnp.maximum(further["sigma"], least))


def _gaussian_scales(outcome: Outcome) -> PredictorScales:
    middle, half = outcome.facts.middle, outcome.facts.half
    return PredictorScales(middle, half, half / 10, half / 2)


def _gamma(
    outcome: Outcome, _: str, eta: jax.Array, further: Mapping[str, Any], __: Columns
) -> Any:
    alpha = further["alpha"]
    base = dist.Gamma(alpha, alpha / exponential(outcome, eta))
    return Moved(base, outcome.facts.low, outcome.facts.high)


def _gamma_scales(outcome: Outcome) -> PredictorScales:
    middle = (math.log(outcome.facts.low) + math.log(outcome.facts.high)) / 2
    return PredictorScales(middle, 1.0, 0.4)


def _gamma_fault(facts: Facts) -> str | None:
    if facts.low > 0:
        return None
    return (
        "declare a lower bound above zero, to which lower outcomes are moved, or use the gaussian "
        "family"
    )


def _beta(outcome: Outcome, _: str, eta: jax.Array, further: Mapping[str, Any], __: Columns) -> Any:
    mean = jnp.clip(jax.nn.sigmoid(eta), _LEAST_MEAN, 1 - _LEAST_MEAN)
    kappa = further["kappa"]
    return Moved(dist.Beta(mean * kappa, (1 - mean) * kappa), *inside(outcome.facts))


def inside(facts: Facts) -> tuple[float, float]:
    """The bounds of a beta outcome: the declared ones, or a margin inside of 0 and 1."""
    low = MARGIN if facts.low == 0 else facts.low
    return low, 1 - MARGIN if facts.high == 1 else facts.high


def _beta_fault(facts: Facts) -> str | None:
    low, high = inside(facts)
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
        Further(
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
        Further(
            name="alpha",
            meaning="shape: the larger, the less spread out",
            prior=lambda _: dist.LogNormal(1.0, 1.5),
        ),
    ),
    fault=_gamma_fault,
)
BETA = Family(
    name="beta",
    kinds=("number",),
    wants="a Number between 0 and 1",
    links={"logit": 2.0},
    scales=plain_scales,
    distribution=_beta,
    further=(
        Further(
            name="kappa",
            meaning="precision: the larger, the less spread out",
            prior=lambda _: dist.LogNormal(2.0, 1.5),
        ),
    ),
    fault=_beta_fault,
)

"""Families of yes or no, and of successes among trials."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import log_ndtr
from numpyro import distributions as dist

from tacit.models.expressions import Columns
from tacit.models.families.base import Family, Outcome, plain_scales


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


_LINKS = {"logit": 2.5, "probit": 1.5, "cloglog": 2.0}

BERNOULLI = Family(
    name="bernoulli",
    kinds=("binary",),
    wants="a Binary column, or one level of a Category as in y['level']",
    links=_LINKS,
    scales=plain_scales,
    distribution=_bernoulli,
)
BINOMIAL = Family(
    name="binomial",
    kinds=("count",),
    wants="p(successes, trials) of two Count columns",
    links=_LINKS,
    scales=plain_scales,
    distribution=_binomial,
)

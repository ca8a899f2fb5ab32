"""Families of levels: in no order, and in order."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax.nn import log_sigmoid
from jax.scipy.special import log_ndtr
from numpyro import distributions as dist

from tacit.models.expressions import Columns, Facts
from tacit.models.families.base import Family, Outcome, plain_scales

CUTPOINT = "cutpoint"
# Cutpoints that are nearer than this have nothing between them.
_LEAST_GAP = 1e-6


def _categorical(_: Outcome, __: str, eta: jax.Array, ___: Mapping[str, Any], ____: Columns) -> Any:
    reference = jnp.zeros((*eta.shape[:-1], 1), eta.dtype)
    return dist.Categorical(logits=jnp.concatenate([reference, eta], axis=-1))


def _ordinal(_: Outcome, link: str, eta: jax.Array, further: Mapping[str, Any], __: Columns) -> Any:
    """The probability of a level or a lower one is F(cutpoint - eta), F by the link."""
    at = further[CUTPOINT] - eta[..., None]
    below, above = at[..., :-1], jnp.maximum(at[..., 1:], at[..., :-1] + _LEAST_GAP)
    lowest, highest, between = _CHANCES[link]
    parts = lowest(at[..., :1]), between(below, above), highest(at[..., -1:])
    return dist.Categorical(logits=jnp.concatenate(parts, axis=-1))


def _logistic_between(below: jax.Array, above: jax.Array) -> jax.Array:
    """The logarithm of F(above) - F(below), without loss of digits."""
    return log_sigmoid(above) + log_sigmoid(-below) + jnp.log(-jnp.expm1(below - above))


def _normal_between(below: jax.Array, above: jax.Array) -> jax.Array:
    """The same for the normal distribution, in the tail that is nearer."""
    upper = below + above > 0
    near, far = jnp.where(upper, -below, above), jnp.where(upper, -above, below)
    long, short = log_ndtr(near), log_ndtr(far)
    return jnp.asarray(long + jnp.log(-jnp.expm1(jnp.minimum(short - long, -_LEAST_GAP))))


# By link: log probabilities below the first cutpoint, above the last, and between two.
_CHANCES: Mapping[str, tuple[Any, Any, Any]] = {
    "logit": (log_sigmoid, lambda at: log_sigmoid(-at), _logistic_between),
    "probit": (log_ndtr, lambda at: log_ndtr(-at), _normal_between),
}


def _few(facts: Facts) -> str | None:
    return "declare two levels or more" if len(facts.levels) < 2 else None


def _ordinal_fault(facts: Facts) -> str | None:
    if facts.other is None:
        return _few(facts)
    return (
        f"{facts.other!r} has no place in the order; declare the column without other=, so that rows "
        "with undeclared values are left out"
    )


CATEGORICAL = Family(
    name="categorical",
    kinds=("category",),
    wants="a Category of two or more levels",
    links={"softmax": 2.5},
    scales=plain_scales,
    distribution=_categorical,
    fault=_few,
)
ORDINAL = Family(
    name="ordinal",
    kinds=("category",),
    wants="a Category with its levels in order, lowest first",
    links={"logit": 2.5, "probit": 1.5},
    scales=plain_scales,
    distribution=_ordinal,
    fault=_ordinal_fault,
    cut=True,
)

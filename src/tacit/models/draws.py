"""Draws of outcomes from their distributions, one for every entry."""

from typing import Any

import jax
from numpyro import distributions as dist

from tacit.models.effects import bare

# Densities of something that is not random, or of something else than what is drawn.
_WITHOUT = (
    dist.Delta,
    dist.IntervalCensoredDistribution,
    dist.LeftCensoredDistribution,
    dist.RightCensoredDistribution,
    dist.Unit,
)


def drawn(fn: Any, key: jax.Array) -> jax.Array:
    """A draw from a distribution; raises NotImplementedError where there is none."""
    if isinstance(bare(fn), _WITHOUT):
        raise NotImplementedError
    value: jax.Array = fn.sample(key)
    if value.shape != fn.shape():
        raise NotImplementedError
    return value

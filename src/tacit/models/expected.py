"""Means and logits of NumPyro distributions, without draws."""

import jax
import jax.numpy as jnp
from numpyro import distributions as dist

from tacit.models.effects import bare


def logit(fn: dist.Distribution) -> jax.Array | None:
    """The log odds of a binary distribution; None for others."""
    base = bare(fn)
    if not isinstance(base, dist.BernoulliLogits | dist.BernoulliProbs):
        return None
    return jnp.broadcast_to(base.logits, fn.shape())


def mean(fn: dist.Distribution) -> jax.Array | None:
    """The mean (for a category, the probabilities of all levels); None where it is not known."""
    base = bare(fn)
    if isinstance(base, dist.CategoricalLogits | dist.CategoricalProbs):
        return jnp.broadcast_to(base.probs, (*fn.shape(), base.probs.shape[-1]))
    try:
        return jnp.broadcast_to(fn.mean, fn.shape()).astype(jnp.float32)
    except NotImplementedError:
        return None

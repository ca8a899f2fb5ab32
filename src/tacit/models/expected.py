"""What is known of a NumPyro distribution without drawing from it."""

from typing import Any

import jax
import jax.numpy as jnp
from numpyro import distributions as dist

from tacit.models.effects import bare


def logit(fn: Any) -> jax.Array | None:
    """The log odds of a yes; None of what is no yes or no."""
    base = bare(fn)
    if not isinstance(base, dist.BernoulliLogits | dist.BernoulliProbs):
        return None
    return jnp.broadcast_to(base.logits, fn.shape())


def mean(fn: Any) -> jax.Array | None:
    """The mean, of a category the chances of all levels; None where it is not known."""
    base = bare(fn)
    if isinstance(base, dist.CategoricalLogits | dist.CategoricalProbs):
        return jnp.broadcast_to(base.probs, (*fn.shape(), base.probs.shape[-1]))
    try:
        return jnp.broadcast_to(fn.mean, fn.shape()).astype(jnp.float32)
    except NotImplementedError:
        return None

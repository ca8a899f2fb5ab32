"""Linear regression without an intercept, as in the report: conjugate, by its natural parameters."""

import jax.numpy as jnp
import numpy as np

from tacit import Model
from tacit.federated.targets import ConjugateTarget
from tacit.models import Parameter
from tacit.models.exponential_families import FullGaussian, packed_indices


def through_origin(size, *, noise_sd, prior_sd=1.0):
    """Column ``y``, linear in the ``size`` numbers of column ``x``, with errors of known deviation."""
    precision, family = noise_sd**-2.0, FullGaussian(size)

    def statistic(row, _):
        features = jnp.atleast_1d(row["x"])
        below, beside, scale = packed_indices(size)
        products = features[below] * features[beside] * jnp.asarray(scale, features.dtype)
        return precision * jnp.concatenate([products, features * row["y"]])

    def log_likelihood(params, row):
        expected = jnp.dot(jnp.atleast_1d(row["x"]), params["coefficients"])
        return -0.5 * precision * (row["y"] - expected) ** 2

    return ConjugateTarget(
        model=Model(
            parameters={"coefficients": Parameter((size,))},
            log_prior=lambda p: -0.5 * jnp.sum((p["coefficients"] / prior_sd) ** 2),
            log_likelihood=log_likelihood,
        ).unit_model,
        family=family,
        prior=family.from_moments(np.zeros(size), np.full(size, prior_sd**2)),
        statistic=statistic,
        from_draws=lambda drawn: {"coefficients": drawn},
    )

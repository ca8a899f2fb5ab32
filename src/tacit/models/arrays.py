"""Generalised linear models of an array of features and one target, for scikit-learn's estimators.

Features, and the target of a regression, lie between -1 and 1. A model of given sizes is made once,
so that similar fits share one compiled program.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tacit import _validate
from tacit.models.base import Parameters, Row
from tacit.models.model import Model, Parameter, Positive


@lru_cache(maxsize=64)
def classifier(features: int, classes: int, scale: float) -> Model:
    """Logistic regression for two classes, softmax regression for more."""
    scale = _validate.positive("prior_scale", scale)
    # With two classes there is one score, of the second class.
    scores = () if classes == 2 else (classes,)

    def log_likelihood(params: Parameters, row: Row) -> jax.Array:
        score = _score(params, row)
        if classes == 2:
            return jnp.asarray(row["target"] * score - jnp.logaddexp(0.0, score))
        return jax.nn.log_softmax(score)[row["target"]]

    def simulate(key: jax.Array, params: Parameters, row: Row) -> dict[str, jax.Array]:
        score = _score(params, row)
        drawn = jax.random.bernoulli if classes == 2 else jax.random.categorical
        return {"target": drawn(key, jax.nn.sigmoid(score) if classes == 2 else score)}

    return Model(
        parameters={
            "intercept": Parameter(scores),
            "coefficients": Parameter((features, *scores)),
        },
        log_prior=lambda params: (
            _normal(params["intercept"], scale) + _normal(params["coefficients"], scale)
        ),
        log_likelihood=log_likelihood,
        simulate=simulate,
    )


@lru_cache(maxsize=64)
def gaussian(features: int, scale: float) -> Model:
    """Linear regression with normal errors. Their standard deviation has a half-normal prior.

    Intercept and coefficients are in units of this standard deviation, and ``root`` is its inverse.
    The length of a row's gradient then hardly depends on it. In the usual form gradients get longer
    as errors get smaller, and clipping would halve the estimated standard deviation. `in_own_units`
    converts draws to the usual form.
    """
    scale = _validate.positive("prior_scale", scale)

    def log_prior(params: Parameters) -> jax.Array:
        root = params["root"]
        shared = _normal(params["intercept"] / root, scale) + _normal(
            params["coefficients"] / root, scale
        )
        # The Jacobian of the map to these units is root^-1 for each weight and root^-2 for root.
        return shared + _normal(1 / root, 1.0) - (features + 3) * jnp.log(root)

    def log_likelihood(params: Parameters, row: Row) -> jax.Array:
        residual = params["root"] * row["target"] - _score(params, row)
        return jnp.asarray(jnp.log(params["root"]) - 0.5 * residual**2)

    def simulate(key: jax.Array, params: Parameters, row: Row) -> dict[str, jax.Array]:
        return {"target": (_score(params, row) + jax.random.normal(key)) / params["root"]}

    return Model(
        parameters={
            "intercept": Parameter(),
            "coefficients": Parameter((features,)),
            "root": Parameter(support=Positive()),
        },
        log_prior=log_prior,
        log_likelihood=log_likelihood,
        simulate=simulate,
    )


def in_own_units(draws: Mapping[str, Any]) -> dict[str, Any]:
    """Draws of `gaussian` as intercept, coefficients and the standard deviation of errors."""
    root = np.asarray(draws["root"], np.float64)
    return {
        "intercept": draws["intercept"] / root,
        "coefficients": draws["coefficients"] / root[:, None],
        "noise": 1 / root,
    }


def _score(params: Parameters, row: Row) -> jax.Array:
    return jnp.asarray(params["intercept"] + row["features"] @ params["coefficients"])


def _normal(values: jax.Array, scale: float) -> jax.Array:
    return -0.5 * jnp.sum((values / scale) ** 2)

"""Generalised linear models of an array of features and one target, both from -1 to 1.

A model of given sizes is made once, so that fits alike share one compiled program.
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
def logistic(features: int, classes: int, scale: float) -> Model:
    """A yes or no; ``classes`` is 2."""
    del classes
    scale = _validate.positive("prior_scale", scale)

    def log_likelihood(params: Parameters, row: Row) -> jax.Array:
        score = _score(params, row)
        return jnp.asarray(row["target"] * score - jnp.logaddexp(0.0, score))

    return Model(
        parameters={"intercept": Parameter(), "coefficients": Parameter((features,))},
        log_prior=lambda params: (
            _normal(params["intercept"], scale) + _normal(params["coefficients"], scale)
        ),
        log_likelihood=log_likelihood,
    )


@lru_cache(maxsize=64)
def softmax(features: int, classes: int, scale: float) -> Model:
    """One of several classes, each with coefficients of its own."""
    scale = _validate.positive("prior_scale", scale)

    def log_likelihood(params: Parameters, row: Row) -> jax.Array:
        return jax.nn.log_softmax(_score(params, row))[row["target"]]

    return Model(
        parameters={
            "intercept": Parameter((classes,)),
            "coefficients": Parameter((features, classes)),
        },
        log_prior=lambda params: (
            _normal(params["intercept"], scale) + _normal(params["coefficients"], scale)
        ),
        log_likelihood=log_likelihood,
    )


@lru_cache(maxsize=64)
def gaussian(features: int, scale: float) -> Model:
    """A number with normal noise, whose standard deviation is half-normal of scale one.

    Intercept and coefficients are in units of the noise, and ``root`` is one over it: a row's
    gradient is then about as long whatever the noise, where in the usual form it grows as the
    noise gets less, so that clipping takes the noise for half of what it is. `in_own_units`
    goes back.
    """
    scale = _validate.positive("prior_scale", scale)

    def log_prior(params: Parameters) -> jax.Array:
        root = params["root"]
        shared = _normal(params["intercept"] / root, scale) + _normal(
            params["coefficients"] / root, scale
        )
        # The map from what the prior is about has slope root^-1 for each weight, root^-2 for root.
        return shared + _normal(1 / root, 1.0) - (features + 3) * jnp.log(root)

    def log_likelihood(params: Parameters, row: Row) -> jax.Array:
        residual = params["root"] * row["target"] - _score(params, row)
        return jnp.asarray(jnp.log(params["root"]) - 0.5 * residual**2)

    return Model(
        parameters={
            "intercept": Parameter(),
            "coefficients": Parameter((features,)),
            "root": Parameter(support=Positive()),
        },
        log_prior=log_prior,
        log_likelihood=log_likelihood,
    )


def in_own_units(draws: Mapping[str, Any]) -> dict[str, Any]:
    """Draws of the parameters people ask for, of draws of `gaussian`."""
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

"""Generalised linear models of an array of features and one target, both from -1 to 1.

A model of given sizes is made once, so that fits alike share one compiled program.
"""

from functools import lru_cache

import jax
import jax.numpy as jnp

from tacit import _validate
from tacit.models.model import Model, Parameter, Parameters, Positive, Row


@lru_cache(maxsize=64)
def logistic(features: int, classes: int, scale: float) -> Model:
    """A yes or no; ``classes`` is 2."""
    del classes
    scale = _validate.positive("prior_scale", scale)

    def log_likelihood(params: Parameters, row: Row) -> jax.Array:
        score = _score(params, row)
        return row["target"] * score - jnp.logaddexp(0.0, score)

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
    """A number with normal noise, whose standard deviation is half-normal of scale one."""
    scale = _validate.positive("prior_scale", scale)

    def log_likelihood(params: Parameters, row: Row) -> jax.Array:
        residual = (row["target"] - _score(params, row)) / params["noise"]
        return -0.5 * residual**2 - jnp.log(params["noise"])

    return Model(
        parameters={
            "intercept": Parameter(),
            "coefficients": Parameter((features,)),
            "noise": Parameter(support=Positive()),
        },
        log_prior=lambda params: (
            _normal(params["intercept"], scale)
            + _normal(params["coefficients"], scale)
            + _normal(params["noise"], 1.0)
        ),
        log_likelihood=log_likelihood,
    )


def _score(params: Parameters, row: Row) -> jax.Array:
    return params["intercept"] + row["features"] @ params["coefficients"]


def _normal(values: jax.Array, scale: float) -> jax.Array:
    return -0.5 * jnp.sum((values / scale) ** 2)

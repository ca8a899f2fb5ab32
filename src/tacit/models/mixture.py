"""Mixtures that ship with the library."""

import math

import jax
import jax.numpy as jnp
from jax.scipy.stats import norm

from tacit.models.base import Parameters, Row
from tacit.models.model import Model, Parameter


def two_means() -> Model:
    """Half the rows around theta_1, half around theta_1 + theta_2, with variance 2.

    A column ``x``; priors N(0, 10) and N(0, 1). Its posterior has two modes, which makes it a
    usual trial for samplers (Welling and Teh 2011; Heikkilä et al. 2019, Section 4).
    """

    def log_likelihood(p: Parameters, row: Row) -> jax.Array:
        places = jnp.stack([p["theta"][0], p["theta"].sum()])
        parts = norm.logpdf(row["x"], places, math.sqrt(2))
        return jnp.logaddexp(parts[0], parts[1]) - math.log(2)

    def log_prior(p: Parameters) -> jax.Array:
        return jnp.sum(norm.logpdf(p["theta"], 0, jnp.array([math.sqrt(10), 1])))

    parameters = {"theta": Parameter((2,))}
    return Model(parameters=parameters, log_prior=log_prior, log_likelihood=log_likelihood)

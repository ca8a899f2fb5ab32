"""The change that some rows make to the posterior, as pure functions that are compiled once."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp

from tacit.federated.target import Approximate, Target
from tacit.models.base import Row
from tacit.models.gaussians import DiagonalGaussian, FullGaussian
from tacit.models.matrices import triangle
from tacit.privacy.release import Release

# The posterior, the factor of the rows, and the target's constants.
Given = tuple[jax.Array, jax.Array, Any]
# The same, and the centre around which a change is expressed.
Centred = tuple[jax.Array, jax.Array, Any, jax.Array]
Change = Callable[[Given, Row, jax.Array], jax.Array]
Step = Callable[[Centred, jax.Array, Release], tuple[Centred, jax.Array]]


@lru_cache(maxsize=32)
def local_change(target: Target, weight: float, num_iterations: int) -> Change:
    """The change ``function((posterior, factor, constants), rows, present)`` of natural parameters.

    It is the likelihood of the rows, to the power ``weight``, minus the factor that stood for them. For
    models that are not conjugate, every iteration approximates the likelihood around the result of the
    last one.
    """

    def function(given: Given, rows: Row, present: jax.Array) -> jax.Array:
        posterior, factor, constants = given
        change = jnp.zeros_like(posterior)
        for _ in range(num_iterations):
            seen = target.likelihood(posterior + change, rows, present, constants)
            change = weight * seen.astype(posterior.dtype) - factor
        return change

    return function


@lru_cache(maxsize=32)
def careful_change(target: Approximate, num_iterations: int) -> Change:
    """As `local_change`, for approximate targets with a posterior without correlations.

    Without correlations, every coordinate of the mean steps as if the others were fixed. Correlated
    coordinates together then step too far, and further in every round, for any number of sites. So
    steps are reduced in directions in which the curvature of the rows exceeds that of single
    coordinates. The fixed point stays the same.
    """

    def function(given: Given, rows: Row, present: jax.Array) -> jax.Array:
        posterior, factor, constants = given
        cavity_precision, cavity_weighted = jnp.split(posterior - factor, 2)
        eta = posterior
        for _ in range(num_iterations):
            mean, slope, bend = target.seen(eta, rows, present, constants)
            precision = cavity_precision + jnp.diag(bend)
            pull = slope + cavity_weighted - cavity_precision * mean
            eta = jnp.concatenate([precision, precision * mean + _held_back(bend, pull)])
        return eta - posterior

    return function


def _held_back(bend: jax.Array, pull: jax.Array) -> jax.Array:
    """A step of the mean, reduced where coordinates together have more curvature than each alone."""
    single = jnp.abs(jnp.diag(bend))
    scale = jnp.sqrt(jnp.maximum(single, 1e-6 * single.max() + 1e-30))
    values, vectors = jnp.linalg.eigh(bend / scale[:, None] / scale)
    along = vectors.T @ (pull / scale) / jnp.maximum(values, 1.0)
    return jnp.asarray(scale * (vectors @ along))


@lru_cache(maxsize=32)
def change_step(target: Target, weight: float, num_iterations: int, *, centred: bool) -> Step:
    """A step of the gate that releases the noisy sum of the changes of groups of rows.

    A centred change has precision times (mean - present mean) in place of precision times mean.
    """
    local, family = local_change(target, weight, num_iterations), target.family
    diagonal = isinstance(family, DiagonalGaussian)
    centred = centred and isinstance(family, DiagonalGaussian | FullGaussian)

    def per_unit(given: Centred, rows: Row, present: jax.Array) -> jax.Array:
        change = local(given[:3], rows, present)
        if not centred:
            return change
        if diagonal:
            bend, slope = jnp.split(change, 2)
            return jnp.concatenate([bend, slope - bend * given[3]])
        size = len(given[3])
        below, beside, scale = triangle(size)
        matrix = jnp.zeros((size, size)).at[below, beside].set(change[:-size] / scale)
        matrix = matrix + jnp.tril(matrix, -1).T
        return jnp.concatenate([change[:-size], change[-size:] - matrix @ given[3]])

    def step(state: Centred, _: jax.Array, release: Release) -> tuple[Centred, jax.Array]:
        return state, release.noisy_unit_sum(per_unit, state)

    return step

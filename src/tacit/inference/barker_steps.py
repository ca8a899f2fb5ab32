"""The step of a chain of Barker tests: a proposal, and the gate's decision on it."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp

from tacit.inference.proposals import Proposal, inside, propose
from tacit.models.base import AnyModel, Row
from tacit.privacy.program import Step
from tacit.privacy.release import Release


def state_of(model: AnyModel, start: jax.Array, walk: Proposal) -> Any:
    """Where a chain begins: its place, the scale of its proposals, and the model's constants."""
    constants = jax.tree.map(jnp.asarray, model.constants)
    scale = jnp.float32(walk.scale or 0.0)
    return inside(start.astype(jnp.float32), model.discrete), scale, constants


@lru_cache(maxsize=32)
def step_of(power: float, walk: Proposal, model: AnyModel) -> Step:
    """The step of a chain: the same object again, so that it compiles once.

    ``power`` is what the log-likelihood is multiplied by; ``walk`` has scale one.
    """

    def ratio(
        density: Callable[[jax.Array], jax.Array], now: jax.Array, then: jax.Array
    ) -> jax.Array:
        return power * (density(then) - density(now))

    def per_row(given: Any, row: Row) -> jax.Array:
        now, then, constants = given
        return ratio(lambda theta: model.row_density(theta, row, constants), now, then)

    def per_unit(given: Any, rows: Row, present: jax.Array) -> jax.Array:
        now, then, constants = given
        return ratio(lambda theta: model.unit_density(theta, rows, present, constants), now, then)

    def step(state: Any, given: Any, release: Release) -> tuple[Any, Any]:
        theta, scale, constants = state
        noise, corrected = given
        proposed = propose(walk, theta, noise, scale, model.discrete)
        shift = model.prior_density(proposed, constants) - model.prior_density(theta, constants)
        arguments = theta, proposed, constants
        if model.whole_units:
            accepted = release.noisy_unit_test(per_unit, arguments, shift + corrected)
        else:
            accepted = release.noisy_test(per_row, arguments, shift + corrected)
        theta = jnp.where(accepted, proposed, theta)
        return (theta, scale, constants), (theta, accepted)

    return step

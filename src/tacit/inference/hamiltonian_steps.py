"""The step of a private Hamiltonian chain: one evaluation of a trajectory, and at its end the test.

A trajectory has some leapfrog steps, and so one evaluation more. Each evaluation is a step of the gate, which
releases one noisy vector: the clipped gradient, and in the last evaluation of a trajectory the
clipped log ratio too. Both are divided by their public bounds, and their squared weights add up to
one, so that no unit is longer than one.
"""

import math
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tacit.inference.base import by_stretch
from tacit.inference.reference import (
    Reference,
    like_reference,
    prior_beyond,
    ratio_beyond,
    slope_beyond,
)
from tacit.models.base import AnyModel, Row
from tacit.privacy.program import Step
from tacit.privacy.release import Release

# By how much the length of a trajectory varies, either way.
_JITTER = 0.2


class Bounds(NamedTuple):
    """Public numbers of a chain.

    A gradient is clipped to ``gradient``, and a log ratio to ``ratio`` times the distance of the two
    places. ``noise`` is the standard deviation of a log ratio over what it is clipped to.
    """

    gradient: Any
    ratio: Any
    noise: Any


class ChainState(NamedTuple):
    """Where chains are: at ``places``, the ends of their last trajectories.

    The chain whose turn it is is on a trajectory at ``here``, which began at ``old`` with this kinetic energy.
    """

    places: jax.Array
    here: jax.Array
    old: jax.Array
    momentum: jax.Array
    energy: jax.Array
    bounds: Bounds
    reference: Reference
    constants: Any


class Evaluation(NamedTuple):
    """Public inputs of an evaluation.

    ``turn`` says whose trajectory it is on.
    ``weights`` are those of gradient and ratio, ``kick`` how much of a step the gradient counts for,
    and ``drift`` how far the trajectory moves after it, or before it where there is no gradient.
    """

    turn: Any
    momentum: Any
    log_uniform: Any
    first: Any
    last: Any
    kick: Any
    drift: Any
    weights: Any


def state_of(
    model: AnyModel, bounds: Bounds, reference: Reference | None, start: Any
) -> ChainState:
    """Where chains begin: at the rows of ``start``."""
    known = like_reference(model) if reference is None else reference
    places = jnp.asarray(start, jnp.float32)
    shared = jax.tree.map(jnp.asarray, (bounds, known, model.constants))
    place = places[0]
    return ChainState(places, place, place, jnp.zeros_like(place), jnp.zeros(()), *shared)


def evaluations(
    seed: list[int],
    first: int,
    count: int,
    dimension: int,
    leapfrog: int,
    length: float,
    weights: Any,
    chains: int,
) -> Evaluation:
    """The inputs of some evaluations; ``weights`` are those of the last one of a trajectory."""
    every = leapfrog + 1
    numbers = np.arange(first, first + count)
    place, trajectory = numbers % every, numbers // every
    begin, trajectories = int(trajectory[0]), int(trajectory[-1] - trajectory[0] + 1)

    def drawn(stream: int, shape: tuple[int, ...]) -> Any:
        made = by_stretch(
            lambda rng, size: (
                rng.random((size, *shape), np.float32)
                if stream
                else rng.standard_normal((size, *shape), np.float32)
            ),
            seed,
            begin,
            trajectories,
            stream,
        )
        return made[trajectory - begin]

    last = place == leapfrog
    steps = length * (1 + _JITTER * (2 * drawn(1, ()) - 1))
    return Evaluation(
        turn=(trajectory % chains).astype(np.int32),
        momentum=drawn(0, (dimension,)),
        log_uniform=np.log(np.maximum(drawn(2, ()), 1e-30)).astype(np.float32),
        first=place == 0,
        last=last,
        kick=np.where((place == 0) | last, 0.5, 1.0).astype(np.float32) * steps,
        drift=(steps if leapfrog == 0 else np.where(last, 0.0, steps)).astype(np.float32),
        weights=np.where(last[:, None], weights, [1.0, 0.0]).astype(np.float32),
    )


@lru_cache(maxsize=32)
def step_of(model: AnyModel, *, guided: bool, gradients: bool) -> Step:
    """The step of a chain: the same object again, so that it compiles once."""
    per_unit = _contribution(model, guided=guided, gradients=gradients)
    curve = 1.0 if guided else 0.0  # of the normal part, in which a trajectory goes round

    def potential(state: ChainState, z: jax.Array) -> jax.Array:
        """The public part of the log density."""
        theta = state.reference.at(z)
        if not guided:
            return model.prior_density(theta, state.constants)
        prior = prior_beyond(model, state.reference, theta, state.constants)
        return jnp.asarray(prior - 0.5 * z @ z)

    def kicked(state: ChainState, gradient: jax.Array) -> jax.Array:
        public = jax.grad(potential, argnums=1)(state, state.here) + curve * state.here
        return jnp.asarray(gradient + public)

    def step(state: ChainState, given: Evaluation, release: Release) -> tuple[Any, Any]:
        state = _begun(state, given)
        if not gradients:
            state = _drifted(state, given.drift, curve)
        bounds, distance = state.bounds, jnp.linalg.norm(state.here - state.old)
        length = jnp.maximum(bounds.ratio * distance, 1e-12)
        places = state.reference.at(state.here), state.reference.at(state.old)
        scales = given.weights[0] / bounds.gradient, given.weights[1] / length
        arguments = *places, *scales, bounds.gradient, length, state.reference, state.constants
        total = release.noisy_unit_sum(per_unit, arguments)
        if gradients:
            gradient = kicked(state, total[:-1] / scales[0])
            state = state._replace(momentum=state.momentum + given.kick * gradient)
            state = _drifted(state, given.drift, curve)
        # Only the last evaluation has a ratio; elsewhere it is not used.
        ratio = total[-1] / jnp.maximum(scales[1], 1e-30)
        ratio = ratio + potential(state, state.here) - potential(state, state.old)
        ratio = ratio + state.energy - 0.5 * state.momentum @ state.momentum
        penalty = 0.5 * (bounds.noise * length) ** 2
        accepted = given.last & (given.log_uniform < ratio - penalty)
        here = jnp.where(given.last & ~accepted, state.old, state.here)
        ends = jnp.where(given.last, state.places.at[given.turn].set(here), state.places)
        return state._replace(here=here, places=ends), (state.reference.at(here), accepted)

    return step


def _begun(state: ChainState, given: Evaluation) -> ChainState:
    """At the first evaluation of a trajectory: where the chain is, and a new momentum."""
    fresh, begun = given.first, state.places[given.turn]
    return state._replace(
        here=jnp.where(fresh, begun, state.here),
        old=jnp.where(fresh, begun, state.old),
        momentum=jnp.where(fresh, given.momentum, state.momentum),
        energy=jnp.where(fresh, 0.5 * given.momentum @ given.momentum, state.energy),
    )


def _drifted(state: ChainState, time: jax.Array, curve: float) -> ChainState:
    """The exact motion under the normal part of the density, or in a straight line without one."""
    angle = curve * time
    along = time * jnp.sinc(angle / math.pi)
    return state._replace(
        here=jnp.cos(angle) * state.here + along * state.momentum,
        momentum=jnp.cos(angle) * state.momentum - curve * jnp.sin(angle) * state.here,
    )


def _contribution(model: AnyModel, *, guided: bool, gradients: bool) -> Any:
    """A unit's vector, no longer than one: its gradient, and its log ratio as the last number."""

    def change(density: Any, reference: Any, then: jax.Array, now: jax.Array) -> Any:
        if guided:
            return ratio_beyond(density, reference, then, now)
        return density(then) - density(now)

    def slope(density: Any, reference: Any, theta: jax.Array) -> Any:
        return slope_beyond(density, reference, theta) if guided else jax.grad(density)(theta)

    def per_unit(given: Any, rows: Row, present: jax.Array) -> jax.Array:
        here, old, to_gradient, to_ratio, clip, length, reference, constants = given
        one_row = len(present) == 1 and not model.whole_units

        def density(theta: jax.Array) -> jax.Array:
            if one_row:
                row = jax.tree.map(lambda leaf: leaf[0], rows)
                return model.row_density(theta, row, constants)
            return model.unit_density(theta, rows, present, constants)

        ratio = change(density, reference, here, old)
        last = to_ratio * jnp.clip(ratio, -length, length)
        if not gradients:
            return jnp.asarray(last[None])
        gradient = slope(density, reference, here) @ reference.root
        norm = jnp.maximum(jnp.linalg.norm(gradient), 1e-30)
        gradient = to_gradient * gradient * jnp.minimum(1.0, clip / norm)
        return jnp.append(gradient, last)

    return per_unit

"""Barker chains that a private approximation guides.

Proposals are draws of the approximation's posterior, one after the other: an independence chain, or several that take turns. The
target is that posterior times what the likelihood says beyond it (`tacit.inference.reference`). So in the
log ratio of a test, with the proposal's own ratio in it (Heikkilä et al. 2019, eq. 4), everything that is public
cancels, and the sum of units' remainders is left. Where the posterior is normal, and so nearly
everything is remainder-free, half of the proposals are accepted.
"""

from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tacit.inference.base import Intervals, MethodResult, Progress, Steps, normals, parameters
from tacit.inference.mixing import bad_mixing
from tacit.inference.reference import FirstFit, like_reference, ratio_beyond
from tacit.inference.turns import chain_by_chain, chains_in_words, chains_of, turns
from tacit.models.base import AnyModel, Row
from tacit.privacy.gate import Gate, check, run
from tacit.privacy.program import Step
from tacit.privacy.release import Release

GUIDED_STEPS = 1600
# Half of the proposals are accepted at best, so that three steps are worth one draw.
_STEPS_PER_DRAW = 3
# Fewer accepted proposals than this share say that the approximation was far off.
_FEW = 0.15


def check_guided(model: AnyModel, gate: Gate) -> None:
    """Raises what the chain would raise of the model, without reading a row."""
    chains = chains_of(gate.mechanism.num_steps)
    state = _state(model, jnp.zeros((chains, model.dimension)), like_reference(model))
    check(_step_of(model), state, (jnp.zeros(model.dimension), np.int32(0)), gate)


def guided_steps(model: AnyModel, steps: int) -> Steps:
    """The chains as steps around a made-up reference, to see how long they take."""
    chains, shape = chains_of(steps), (model.dimension,)
    state = _state(model, jnp.zeros((chains, *shape)), like_reference(model))

    def inputs(first: int, count: int) -> Any:
        return normals([0], first, count, shape), turns(first, count, chains)

    return Steps(_step_of(model), state, inputs)


def describe_guided(model: AnyModel, steps: int) -> str:
    """A line for people."""
    return (
        f"{chains_in_words(steps)} of Barker tests on all rows, for {model.dimension} unconstrained numbers. They start "
        f"from private Fisher scoring and propose its draws; about {steps // _STEPS_PER_DRAW} effective "
        "draws to expect. Intervals include the noise."
    )


def run_guided(
    fitted: FirstFit,
    model: AnyModel,
    gate: Gate,
    key: jax.Array,
    progress: Progress | None,
    kept: slice,
) -> MethodResult:
    """The approximation, and the chain's draws."""
    steps = gate.mechanism.mechanisms[1].num_steps
    chains = chains_of(steps)
    found = fitted.run(model, gate, key, progress, steps + chains)
    vectors = np.asarray(found.vectors, np.float32)
    state = _state(model, jnp.asarray(vectors[:chains]), found.reference)

    def inputs(first: int, count: int) -> Any:
        begin = chains + first
        return vectors[begin : begin + count], turns(first, count, chains)

    _, (chain, accepted) = run(found.gate, _step_of(model), state, inputs, progress=found.progress)
    draws = parameters(model, jnp.asarray(chain_by_chain(chain, chains, kept)))
    mixing = bad_mixing(draws, chains)
    return MethodResult(
        draws=draws,
        trace={"theta": chain, "accepted": accepted},
        chain=True,
        chains=chains,
        sample_stats={"accepted": chain_by_chain(accepted, chains, kept)},
        converged=False if mixing or not found.result.converged else None,
        said=(*mixing, *_acceptance(float(np.mean(accepted))), *found.result.said),
        intervals=Intervals.INCLUDED,
    )


def _acceptance(share: float) -> tuple[str, ...]:
    """What the decisions say of the approximation."""
    if share >= _FEW:
        said = f"The tests accepted {share:.0%} of the draws of private Fisher scoring; 50% is the most."
    else:
        said = (
            f"The tests accepted only {share:.0%} of the draws of private Fisher scoring, where 50% is the "
            "most: the posterior is far from that approximation."
        )
    return (said,)


def _state(model: AnyModel, places: jax.Array, reference: Any) -> Any:
    constants = jax.tree.map(jnp.asarray, model.constants)
    return places, jax.tree.map(jnp.asarray, reference), constants


@lru_cache(maxsize=32)
def _step_of(model: AnyModel) -> Step:
    """The step of a chain: the same object again, so that it compiles once."""

    def ratio(density: Any, now: jax.Array, then: jax.Array, reference: Any) -> jax.Array:
        return ratio_beyond(density, reference, then, now)

    def per_row(given: Any, row: Row) -> jax.Array:
        *places, constants = given
        return ratio(lambda theta: model.row_density(theta, row, constants), *places)

    def per_unit(given: Any, rows: Row, present: jax.Array) -> jax.Array:
        *places, constants = given
        return ratio(lambda theta: model.unit_density(theta, rows, present, constants), *places)

    def step(state: Any, given: Any, release: Release) -> tuple[Any, Any]:
        (places, reference, constants), (proposed, turn) = state, given
        now = places[turn]
        arguments = now, proposed, reference, constants
        if model.whole_units:
            accepted = release.noisy_unit_test(per_unit, arguments, jnp.zeros(()))
        else:
            accepted = release.noisy_test(per_row, arguments, jnp.zeros(()))
        now = jnp.where(accepted, proposed, now)
        return (places.at[turn].set(now), reference, constants), (now, accepted)

    return step

"""Draws of the exact posterior by NUTS. NOT PRIVATE: a reference to compare with.

NumPyro's sampler on the log posterior of all rows, unclipped and without noise, in double
precision. Where the mode can be found, coordinates are those in which the posterior is about a
standard normal there, so that parameters on different scales are no trouble.
"""

from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.infer.hmc import hmc

from tacit.errors import TacitError
from tacit.inference.base import Intervals, MethodResult
from tacit.inference.exact import (
    LogPosterior,
    constrained,
    find_mode,
    posterior_of,
    refuse_discrete,
    root_of,
    start_of,
)
from tacit.inference.mixing import bad_mixing
from tacit.models.base import AnyModel
from tacit.privacy.rows import Rows

_WARMUP = _DRAWS = 1000
_DENSE = 100  # numbers up to which the sampler learns all their correlations


def nuts(model: AnyModel, rows: Rows, seed: int) -> MethodResult:
    """One chain, begun at the mode or, if none is found, at zero on the unconstrained scale."""
    refuse_discrete(model, "NUTS")
    density = posterior_of(model, rows)
    centre, stretch = _coordinates(density, seed)
    key = jax.random.key_data(jax.random.key(seed))
    given = centre, stretch, model.constants, key
    vectors, diverging, accepted = density.likelihood.inside(_sampler(model), *given)
    if not np.isfinite(vectors).all():
        raise TacitError("NUTS found no place where the log posterior is finite.")
    draws = constrained(model, vectors)
    wrong, mixing = int(diverging.sum()), bad_mixing(draws)
    said = f"NUTS on the exact log posterior; {wrong} of {_DRAWS} transitions diverged."
    return MethodResult(
        draws=draws,
        trace={},
        chain=True,
        sample_stats={"diverging": diverging.astype(np.float64), "acceptance_rate": accepted},
        converged=wrong == 0 and not mixing,
        said=(*mixing, said),
        intervals=Intervals.NO_NOISE,
    )


def _coordinates(density: LogPosterior, seed: int) -> tuple[Any, Any]:
    """Where the chain begins, and what makes the posterior round there."""
    mode = find_mode(density, seed)
    if mode.converged:
        return mode.vector, root_of(mode.covariance)
    return start_of(density, seed), np.eye(density.model.dimension)


@lru_cache(maxsize=32)
def _sampler(model: AnyModel) -> Any:
    """The chain as a program around the sum over rows: the same object, so that it compiles once."""

    def program(total: Any, centre: Any, stretch: Any, constants: Any, key: Any) -> Any:
        def potential(place: jax.Array) -> jax.Array:
            vector = centre + stretch @ place
            return jnp.negative(model.prior_density(vector, constants) + total(vector))

        begin, sample = hmc(potential, algo="NUTS")
        state = begin(
            jnp.zeros_like(centre),
            _WARMUP,
            dense_mass=len(centre) <= _DENSE,
            rng_key=jax.random.wrap_key_data(key),
        )

        def step(state: Any, _: Any) -> Any:
            state = sample(state)
            return state, (centre + stretch @ state.z, state.diverging, state.accept_prob)

        every = jax.lax.scan(step, state, length=_WARMUP + _DRAWS)[1]
        return jax.tree.map(lambda each: each[_WARMUP:], every)

    return program

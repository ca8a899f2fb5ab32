"""A unit's log-likelihood, checked to be a plain function of that unit and public values."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from tacit.errors import BoundaryError, InvalidArgument
from tacit.privacy.check import captured, check_plain
from tacit.privacy.gate import Gate

# Of the parameters, the unit's rows, which of them are real, and public constants.
Density = Callable[[Any, Any, Any, Any], Any]


def walked(density: Callable[..., Any]) -> Callable[..., jax.Array]:
    """The same function; what runs is a trace of it that was checked. [draw-check]"""

    def run(*arguments: Any) -> jax.Array:
        first = jax.make_jaxpr(density)(*arguments)
        with jax.default_matmul_precision("highest"):  # traces anew what JAX has kept
            second = jax.make_jaxpr(density)(*arguments)
        check_plain(first)
        if captured(first, second):
            raise BoundaryError(
                "The model uses an array from outside itself, which could hold rows. Pass it "
                "as one of the model's public constants."
            )
        if [aval.shape for aval in first.out_avals] != [()]:
            raise InvalidArgument("The log-likelihood and the log prior must each be one number.")
        leaves = jax.tree.leaves(arguments)
        (found,) = jax.core.eval_jaxpr(first.jaxpr, first.consts, *leaves)
        return jnp.asarray(found, jnp.float32)

    return run


def check_density(gate: Gate, density: Density, dimension: int, constants: Any) -> None:
    """Raises what `walked` would raise, by a unit of zeros."""
    rows = gate._rows  # noqa: SLF001 (the boundary)
    blank, present = rows.made_up_unit(), rows.made_up_presence()
    jax.eval_shape(at_places(density), jnp.zeros((1, dimension)), blank, present, constants)


def check_prior(prior: Callable[..., Any], dimension: int, constants: Any) -> None:
    """Raises what `walked` would raise."""
    jax.eval_shape(walked(prior), jnp.zeros(dimension), constants)


def at_places(density: Density) -> Callable[..., jax.Array]:
    """The log-likelihood of one unit at each of many places."""
    of = walked(density)

    def values(vectors: Any, rows: Any, present: Any, constants: Any) -> jax.Array:
        if present is None:  # a unit of a single row
            rows, present = jax.tree.map(lambda leaf: leaf[None], rows), jnp.ones(1, jnp.bool_)
        return jax.vmap(lambda vector: of(vector, rows, present, constants))(vectors)

    return values

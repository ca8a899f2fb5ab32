"""A unit's log-likelihood, checked to be a plain function of that unit and public values."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from tacit.errors import BoundaryError, InvalidArgument
from tacit.privacy.check import captured, check_plain
from tacit.privacy.rows import Rows
from tacit.privacy.settings import refused_traces

# Of the parameters, the unit's rows, which of them are real, and public constants.
Density = Callable[[Any, Any, Any, Any], Any]


def walked(density: Callable[..., Any]) -> Callable[..., jax.Array]:
    """The same function; what runs is a trace of it that was checked. [draw-check]"""

    def run(*arguments: Any) -> jax.Array:
        (found,) = _run_checked(density, arguments)
        return jnp.asarray(found, jnp.float32)

    return run


def walked_with_slope(density: Callable[..., Any]) -> Callable[..., tuple[jax.Array, jax.Array]]:
    """A function's value and gradient; what runs is a trace of both that was checked.

    A function may have rules of its own for its gradient, which a trace of its value lacks.
    """
    value = walked(density)

    def run(*arguments: Any) -> tuple[jax.Array, jax.Array]:
        found, slope = _run_checked(jax.value_and_grad(value), arguments)
        return found, slope

    return run


def _run_checked(function: Callable[..., Any], arguments: tuple[Any, ...]) -> list[Any]:
    """What a function returns, by a trace of it that was checked."""
    with refused_traces():
        first = jax.make_jaxpr(function)(*arguments)
    with jax.default_matmul_precision("highest"):  # traces anew what JAX has kept
        second = jax.make_jaxpr(function)(*arguments)
    check_plain(first)
    if captured(first, second):
        raise BoundaryError(
            "The model uses an array from outside itself, which could hold rows. Pass it "
            "as one of the model's public constants."
        )
    if first.out_avals[0].shape != ():
        raise InvalidArgument("The log-likelihood and the log prior must each be one number.")
    leaves = jax.tree.leaves(arguments)
    return list(jax.core.eval_jaxpr(first.jaxpr, first.consts, *leaves))


def check_density(rows: Rows, density: Density, dimension: int, constants: Any) -> None:
    """Raises what `walked` would raise, by a unit of zeros."""
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

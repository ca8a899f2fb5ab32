"""Outcomes of a NumPyro model: which sites are outcomes, draws of them, and predictions."""

from contextlib import suppress
from typing import Any

import jax
import jax.numpy as jnp

from tacit.errors import InvalidArgument
from tacit.models.base import Parameters, Prediction, PyTree, Row
from tacit.models.draws import drawn
from tacit.models.expected import logit, mean
from tacit.models.numpyro_runs import NumPyroRuns, named_keys
from tacit.models.sites import Message, Statement


def outcome_sites(model: NumPyroRuns) -> tuple[str, ...]:
    """Sites that are observed in a row, in the model's order; none if one cannot be drawn."""
    names: list[str] = []

    def observe(message: Message) -> jax.Array:
        value: jax.Array = message["value"]
        if any(frame.name in model.row_plates for frame in message["cond_indep_stack"]):
            value = drawn(message["fn"], jax.random.key(0))
            names.append(message["name"])
        return value

    def look() -> None:
        model.run_made_up(model.parameters(jnp.zeros(model.dimension)), observe=observe)

    with suppress(Exception):  # a distribution without draws may raise anything
        jax.eval_shape(look)
        return tuple(names)
    return ()


def drawn_outcomes(
    model: NumPyroRuns,
    sites: tuple[str, ...],
    keys: tuple[jax.Array, jax.Array],
    vector: jax.Array,
    row: Row,
    constants: PyTree,
) -> dict[str, jax.Array]:
    """A draw of the outcomes of a row, by site.

    The two keys are the person's and the row's. Rows with the same key of their person have the
    same effects of that person.
    """
    if not sites:
        raise InvalidArgument(
            "The model cannot draw outcomes: it has a factor, or a distribution without draws."
        )
    person, own = keys
    key_of = named_keys(person, [each.name for each in model.person_effects])
    key_of |= named_keys(own, [*(each.name for each in model.row_effects), *sites])
    parameters = model.parameters(jax.lax.stop_gradient(vector))
    effects = {each.name: each for each in model.effects}
    found: dict[str, jax.Array] = {}

    def latent(message: Message) -> jax.Array:
        name = message["name"]
        if name not in effects:
            return parameters(message)
        return effects[name].drawn(message["fn"], key_of[name])

    def observe(message: Message) -> jax.Array:
        name = message["name"]
        if name not in sites:
            value: jax.Array = message["value"]
            return value
        found[name] = drawn(message["fn"], key_of[name])
        return found[name]

    model.run(model.single(row), constants, latent, observe=observe)
    return found


def predictions(
    model: NumPyroRuns, key: jax.Array, params: Parameters, row: Row, constants: PyTree
) -> dict[str, Prediction]:
    """Predictions of each observed site of a new row, given parameters.

    The effects of a new row and of its person are drawn.
    """
    keys: list[jax.Array] = [key]
    found: dict[str, tuple[Any, Any, Any]] = {}

    def sample(message: Message) -> jax.Array:
        keys[0], fresh = jax.random.split(keys[0])
        value: jax.Array = message["fn"].sample(fresh)
        return value

    def latent(message: Message) -> jax.Array:
        name = message["name"]
        return params[name] if name in model.places else sample(message)

    def observe(message: Message) -> jax.Array:
        value = sample(message)
        found[message["name"]] = value, mean(message["fn"]), logit(message["fn"])
        return value

    sites = model.run(model.single(row), constants, latent, observe=observe)
    return {
        name: Prediction(*(_squeezed(model, sites[name], each) for each in values))
        for name, values in found.items()
    }


def _squeezed(model: NumPyroRuns, site: Statement, value: Any) -> jax.Array | None:
    """A value without the axes of the single row and person; None stays None."""
    if value is None:
        return None
    assert site.distribution is not None
    batch = len(site.distribution.batch_shape)
    axes = tuple(batch + dim for name, dim in site.plates.items() if name in model.lengths_of_one)
    return jnp.squeeze(jnp.asarray(value), axis=axes)

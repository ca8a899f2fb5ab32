"""The digest of a study, which tells it from another study with the same name.

It depends on public values only: the settings, the prior, and the model's densities as JAX traces them for
columns of the given types. It does not depend on the rows or their number.
"""

import hashlib
import re
from collections.abc import Callable
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from tacit.federated.target import ConjugateTarget
from tacit.models.base import AnyModel
from tacit.models.natural import Vector
from tacit.privacy.rows import Rows

_ADDRESS = re.compile(r"0x[0-9a-f]+")


class Describable(Protocol):
    """What a digest needs of a target."""

    @property
    def model(self) -> AnyModel:
        """The model."""
        ...

    @property
    def family(self) -> object:
        """What tasks hold."""
        ...

    @property
    def prior(self) -> Vector:
        """Numbers of the prior."""
        ...


def described(settings: object, target: Describable, rows: Rows) -> str:
    """A digest of settings, by their ``repr``, and of a target for rows of these types."""
    unit, present = _unit(rows)
    model, traced = target.model, traced_densities(target.model, rows)
    traced += traced_draws(model, rows)
    if isinstance(target, ConjugateTarget):
        eta = jnp.asarray(target.prior)
        traced.append(_traced(target.likelihood, eta, unit, present, target.constants))
    texts = (repr(settings), repr(target.family), ", ".join(model.names), *traced)
    held = hashlib.sha256(np.asarray(target.prior, np.float64).tobytes())
    for each in texts:
        held.update(without_addresses(each).encode() + b"\0")
    return held.hexdigest()


def traced_densities(model: AnyModel, rows: Rows) -> list[str]:
    """The traces of a model's prior and likelihood, for rows of these types."""
    unit, present = _unit(rows)
    vector = jnp.zeros(model.dimension)
    return [
        _traced(model.prior_density, vector, model.constants),
        _traced(model.unit_density, vector, unit, present, model.constants),
    ]


def traced_draws(model: AnyModel, rows: Rows) -> list[str]:
    """The trace of how a model draws outcomes, for rows of these types; nothing if it cannot."""
    if not model.simulates:
        return []

    def drawn(words: jax.Array, *given: Any) -> Any:
        return model.unit_outcomes(jax.random.wrap_key_data(words), *given)

    given = jnp.zeros(model.dimension), *_unit(rows), model.constants
    return [_traced(drawn, jnp.zeros(2, jnp.uint32), *given)]


def without_addresses(text: str) -> str:
    """A text without the addresses of objects, which differ between processes."""
    return _ADDRESS.sub("", text)


def _unit(rows: Rows) -> tuple[dict[str, Any], Any]:
    """A made-up unit with columns [rows of a unit, ...], and which of its rows are present."""
    made_up, present = rows.made_up_unit(), rows.made_up_presence()
    if present is None:
        return {name: jnp.asarray(value)[None] for name, value in made_up.items()}, jnp.ones(
            1, bool
        )
    return jax.tree.map(jnp.asarray, made_up), jnp.ones(present.shape, bool)


def _traced(function: Callable[..., Any], *arguments: Any) -> str:
    """The trace of a function, and a digest of the arrays in it."""
    made = jax.make_jaxpr(function)(*arguments)
    inside = hashlib.sha256()
    for leaf in jax.tree.leaves((made.consts, arguments)):
        inside.update(np.asarray(leaf).tobytes())
    return f"{made.jaxpr} {inside.hexdigest()}"

"""Digests of functions by what JAX traces them as: a run that goes on must ask what it asked before.

A trace is digested with its constants at any depth, and with the traces of the function's derivatives, because
a function may have rules of its own for those. Nothing here depends on a value in a row or on how many rows
there are.
"""

import hashlib
import re
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from tacit.privacy.check import constants, equations
from tacit.privacy.rows import Rows

_ADDRESS = re.compile(r"(?: at )?0x[0-9a-f]+")


class Traceable(Protocol):
    """What a digest needs of a model: its functions, and the shapes that they take."""

    @property
    def constants(self) -> Any:
        """Public arrays, passed to every function."""
        ...

    @property
    def dimension(self) -> int:
        """Length of the unconstrained vector."""
        ...

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the parameters."""
        ...

    @property
    def simulates(self) -> bool:
        """Whether outcomes of a unit can be drawn."""
        ...

    def prior_density(self, vector: jax.Array, constants: Any = None) -> jax.Array:
        """Log prior of the unconstrained vector."""
        ...

    def unit_density(
        self, vector: jax.Array, rows: Any, present: jax.Array, constants: Any = None
    ) -> jax.Array:
        """Log-likelihood of the rows of a unit."""
        ...

    def unit_outcomes(
        self,
        key: jax.Array,
        vector: jax.Array,
        rows: Any,
        present: jax.Array,
        constants: Any = None,
    ) -> Any:
        """A draw of the outcomes of a unit."""
        ...


def digest_of(*parts: bytes) -> str:
    """One digest of several parts, each with its length."""
    found = hashlib.sha256()
    for each in parts:
        found.update(len(each).to_bytes(8, "big") + each)
    return found.hexdigest()


def without_addresses(text: str) -> str:
    """A text without the addresses of objects, which differ between processes."""
    return _ADDRESS.sub("", text)


def array_bytes(leaf: Any) -> bytes:
    """An array with its shape and type, as bytes; of random keys, their words."""
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    array = np.asarray(leaf)
    return f"{array.shape} {array.dtype} ".encode() + array.tobytes()


def model_digest(model: Traceable, rows: Rows) -> str:
    """A digest of a model's prior, likelihood and draws of outcomes, for rows of these types."""
    vector, unit = jnp.zeros(model.dimension), made_up_unit(rows)
    parts = [
        repr(model.names),
        density_digest(model.prior_density, vector, model.constants),
        density_digest(model.unit_density, vector, *unit, model.constants),
    ]
    if model.simulates:

        def drawn(words: jax.Array, *given: Any) -> Any:
            return model.unit_outcomes(jax.random.wrap_key_data(words), *given)

        words = jnp.zeros(2, jnp.uint32)
        parts.append(trace_digest(drawn, words, vector, *unit, model.constants))
    return digest_of(*(part.encode() for part in parts))


def made_up_unit(rows: Rows) -> tuple[Any, jax.Array]:
    """A unit with columns [rows of a unit, ...], and which of its rows are present."""
    made_up, present = rows.made_up_unit(), rows.made_up_presence()
    if present is None:  # a unit of a single row
        return jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], made_up), jnp.ones(1, bool)
    return jax.tree.map(jnp.asarray, made_up), jnp.ones(present.shape, bool)


def density_digest(function: Callable[..., Any], vector: jax.Array, *more: Any) -> str:
    """A digest of a function of a vector: of its trace, and of those of its derivatives.

    A trace of the value has the name of a function with rules of its own for derivatives, but not the
    rules. Methods take derivatives in both modes, to second order. [kept-model]
    """

    def value(vector: jax.Array) -> Any:
        return function(vector, *more)

    def along(of: Callable[..., Any]) -> Callable[..., Any]:
        return lambda at: jax.jvp(of, (at,), (jnp.ones_like(at),))[1]

    back, forth = jax.grad(value), along(value)
    found = [trace_digest(function, vector, *more).encode()]
    for each in (back, forth, along(back), along(forth)):
        try:
            found.append(trace_digest(each, vector).encode())
        except Exception as error:  # noqa: BLE001 (a model's own code, which no method can follow so)
            found.append(type(error).__name__.encode())
    return digest_of(*found)


def trace_digest(function: Callable[..., Any], *arguments: Any) -> str:
    """A digest of the trace of a function, of every array in it, and of its arguments."""
    traced = jax.make_jaxpr(function)(*arguments)
    held = [array_bytes(each) for each in (*arrays_in(traced), *jax.tree.leaves(arguments))]
    return digest_of(without_addresses(str(traced.jaxpr)).encode(), *held)


def arrays_in(traced: ClosedJaxpr) -> Iterator[Any]:
    """The arrays that a trace holds, at any depth: its text has few of them, and those shortened."""
    yield from constants(traced)
    for equation in equations(traced.jaxpr):
        for atom in equation.invars:
            if isinstance(atom, Literal) and np.ndim(atom.val):
                yield atom.val
        for value in jax.tree.leaves(
            list(equation.params.values()), is_leaf=lambda x: isinstance(x, ClosedJaxpr | Jaxpr)
        ):
            if isinstance(value, np.ndarray | jax.Array):
                yield value

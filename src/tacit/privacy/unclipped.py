"""Sums over all units as they are: neither clipped nor noisy, and NOT PRIVATE.

For references to compare private results with. Whoever computes one gets sums of a function that
was passed in, never a row; but sums give rows away, so what follows from them must be marked as
not private, as `tacit.fit_without_privacy` does. No event stands for this, and nothing is charged.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tacit.data.store import drop_pages
from tacit.privacy.rows import Rows

# Numbers of a chunk of units, each of which counts once for every coordinate of the vector.
_MAX_NUMBERS_PER_CHUNK, _MAX_UNITS_PER_CHUNK = 2**21, 2**13
Density = Callable[[jax.Array, Any, Any, Any], jax.Array]


class Derivatives(NamedTuple):
    """A sum over all units at a vector, its gradient and its second derivatives. NOT PRIVATE."""

    value: float
    gradient: NDArray[np.float64]
    hessian: NDArray[np.float64]


class UnclippedSum:
    """The sum over all units of ``density(vector, fields, present, constants)``. NOT PRIVATE.

    With ``whole_units`` the function is given all rows of a unit and which of them are real;
    else it is given each row, and ``present`` is None. In double precision, a chunk of units at
    a time, so that memory does not grow with how many there are.
    """

    def __init__(
        self, rows: Rows, density: Density, constants: Any, *, dimension: int, whole_units: bool
    ) -> None:
        self._fields, self._present = rows._fields, rows._present
        self._constants = constants
        self._count = len(next(iter(self._fields.values())))
        grouped = self._present is not None
        self._density, self._form = density, (grouped, whole_units)
        numbers = max(1, sum(each.size for each in rows.made_up_unit().values())) * dimension
        self._size = max(
            1, min(_MAX_UNITS_PER_CHUNK, _MAX_NUMBERS_PER_CHUNK // numbers, self._count)
        )

    def __repr__(self) -> str:
        return "OpenSum(NOT PRIVATE)"

    def value(self, vector: NDArray[np.float64]) -> float:
        """The sum at a vector."""
        return float(self._added(vector, 0)[0])

    def derivatives(self, vector: NDArray[np.float64]) -> Derivatives:
        """The sum at a vector, with its derivatives."""
        value, gradient, hessian = self._added(vector, 2)
        return Derivatives(float(value), gradient, hessian)

    def _added(self, vector: NDArray[np.float64], order: int) -> list[NDArray[np.float64]]:
        total = [np.zeros((len(vector),) * i) for i in range(order + 1)]
        program = _compiled_sum(self._density, *self._form, order)
        with jax.enable_x64(True):
            for chunk in self._chunks():
                found = program(
                    jnp.asarray(vector, jnp.float64), chunk, to_float64(self._constants)
                )
                total = [a + np.asarray(b) for a, b in zip(total, found, strict=True)]
        return total

    def inside(self, program: Callable[..., Any], *given: Any) -> Any:
        """What ``program(total, *given)`` returns, as one compiled program in double precision.

        ``total(vector)`` is the sum, and has a gradient. All units are in memory meanwhile.
        """
        with jax.enable_x64(True):
            chunks = list(self._chunks())
            held = jax.tree.map(lambda *parts: np.stack(parts), *chunks) if chunks else None
            run = _compiled_around(program, self._density, *self._form)
            return jax.tree.map(
                np.asarray, run(held, to_float64(self._constants), to_float64(given))
            )

    def _chunks(self) -> Iterator[Any]:
        """Columns, which rows of a unit are real, and who is there: all chunks of one size."""
        for start in range(0, self._count, self._size):
            there = np.minimum(np.arange(start, start + self._size), self._count - 1)
            fields = {name: values[there] for name, values in self._fields.items()}
            for values in self._fields.values():
                drop_pages(values)
            present = None if self._present is None else self._present[there]
            yield fields, present, np.arange(start, start + self._size) < self._count


def to_float64(values: Any) -> Any:
    """The same with floats in double precision; what is no array stays as it is."""

    def of(leaf: Any) -> Any:
        array = isinstance(leaf, jax.Array | np.ndarray | np.generic)
        floats = array and jnp.issubdtype(leaf.dtype, jnp.floating)
        return jnp.asarray(leaf, jnp.float64) if floats else leaf

    return jax.tree.map(of, values)


def _sum_over_chunk(
    density: Density, form: tuple[bool, bool], vector: jax.Array, chunk: Any, constants: Any
) -> jax.Array:
    """The sum over a chunk; what is not there is taken for a row that is, so that it is finite."""
    (fields, present, here), (grouped, whole_units) = chunk, form
    fields = to_float64(fields)
    if grouped and not whole_units:
        here = (present & here[:, None]).ravel()
        fields = {name: leaf.reshape(-1, *leaf.shape[2:]) for name, leaf in fields.items()}
        present = None
        some = jnp.where(here, jnp.arange(len(here)), jnp.argmax(here))
        fields = {name: leaf[some] for name, leaf in fields.items()}
    elif whole_units and not grouped:  # each row is a unit by itself
        fields = {name: leaf[:, None] for name, leaf in fields.items()}
        present = jnp.ones((len(here), 1), jnp.bool_)
    terms = jax.vmap(density, in_axes=(None, 0, None if present is None else 0, None))(
        vector, fields, present, constants
    )
    return jnp.where(here, terms, 0.0).sum()


@lru_cache(maxsize=32)
def _compiled_sum(density: Density, grouped: bool, whole_units: bool, order: int) -> Any:
    summed = partial(_sum_over_chunk, density, (grouped, whole_units))

    def found(vector: jax.Array, chunk: Any, constants: Any) -> Any:
        if order == 0:
            return (summed(vector, chunk, constants),)
        slope = jax.value_and_grad(summed)

        def twice(vector: jax.Array) -> Any:
            value, gradient = slope(vector, chunk, constants)
            return gradient, (value, gradient)

        hessian, (value, gradient) = jax.jacfwd(twice, has_aux=True)(vector)
        return value, gradient, hessian

    return jax.jit(found)


@lru_cache(maxsize=32)
def _compiled_around(
    program: Callable[..., Any], density: Density, grouped: bool, whole_units: bool
) -> Any:
    return jax.jit(partial(_run_on_sum, program, density, (grouped, whole_units)))


def _run_on_sum(
    program: Callable[..., Any],
    density: Density,
    form: tuple[bool, bool],
    chunks: Any,
    constants: Any,
    given: Any,
) -> Any:
    """The program on a sum whose gradient is added up with it, so that no chunk is kept."""
    slope = jax.value_and_grad(partial(_sum_over_chunk, density, form))

    def both(vector: jax.Array) -> Any:
        start = jnp.zeros((), vector.dtype), jnp.zeros_like(vector)
        if chunks is None:
            return start

        def add(so_far: Any, chunk: Any) -> Any:
            return jax.tree.map(jnp.add, so_far, slope(vector, chunk, constants)), None

        return jax.lax.scan(add, start, chunks)[0]

    total = jax.custom_vjp(lambda vector: both(vector)[0])
    total.defvjp(both, lambda gradient, change: (change * gradient,))
    return program(total, *given)

"""Sums over all units as they are: neither clipped nor noisy, and NOT PRIVATE.

For references to compare private results with. Whoever computes one gets sums of a function that
was passed in, never a row; but sums give rows away, so what follows from them must be marked as
not private, as `tacit.fit_without_privacy` does. No event stands for this, and nothing is charged.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tacit._typing import AnyArray, Floats, PyTree
from tacit.data.store import drop_pages
from tacit.privacy.rows import Rows, Units

# Numbers of a chunk of units, each of which counts once for every coordinate of the vector.
_MAX_NUMBERS_PER_CHUNK, _MAX_UNITS_PER_CHUNK = 2**21, 2**13
# Of a vector, the rows of a unit, which of them are real, and public constants.
Density = Callable[[jax.Array, PyTree, jax.Array, PyTree], jax.Array]
Chunk = tuple[Units, AnyArray]


class Derivatives(NamedTuple):
    """A sum over all units at a vector, its gradient and its second derivatives. NOT PRIVATE."""

    value: float
    gradient: Floats
    hessian: Floats


class UnclippedSum:
    """The sum over all units of ``density(vector, rows, present, constants)``. NOT PRIVATE.

    In double precision, a chunk of units at a time, so that memory does not grow with how many there are.
    """

    def __init__(self, rows: Rows, density: Density, constants: PyTree, *, dimension: int) -> None:
        self._fields, self._present = rows._fields, rows._present
        self._density, self._constants = density, constants
        self._count = len(self._present)
        numbers = max(1, sum(each.size for each in rows.dummy_unit().fields.values())) * dimension
        self._size = max(
            1, min(_MAX_UNITS_PER_CHUNK, _MAX_NUMBERS_PER_CHUNK // numbers, self._count)
        )

    def __repr__(self) -> str:
        return "UnclippedSum(NOT PRIVATE)"

    def value(self, vector: Floats) -> float:
        """The sum at a vector."""
        return float(self._add_up(vector, 0)[0])

    def derivatives(self, vector: Floats) -> Derivatives:
        """The sum at a vector, with its derivatives."""
        value, gradient, hessian = self._add_up(vector, 2)
        return Derivatives(float(value), gradient, hessian)

    def _add_up(self, vector: Floats, order: int) -> list[Floats]:
        total = [np.zeros((len(vector),) * i) for i in range(order + 1)]
        program = _compiled_sum(self._density, order)
        with jax.enable_x64(True):
            for chunk in self._chunks():
                found = program(
                    jnp.asarray(vector, jnp.float64), chunk, to_float64(self._constants)
                )
                total = [a + np.asarray(b) for a, b in zip(total, found, strict=True)]
        return total

    def inside(self, program: Callable[..., PyTree], *given: PyTree) -> PyTree:
        """What ``program(total, *given)`` returns, as one compiled program in double precision.

        ``total(vector)`` is the sum, and has a gradient. All units are in memory meanwhile.
        """
        with jax.enable_x64(True):
            chunks = list(self._chunks())
            held = jax.tree.map(lambda *parts: np.stack(parts), *chunks) if chunks else None
            run = _compiled_around(program, self._density)
            return jax.tree.map(
                np.asarray, run(held, to_float64(self._constants), to_float64(given))
            )

    def _chunks(self) -> Iterator[Chunk]:
        """Units, and which of them are there: all chunks of one size."""
        for start in range(0, self._count, self._size):
            there = np.minimum(np.arange(start, start + self._size), self._count - 1)
            fields = {name: values[there] for name, values in self._fields.items()}
            for values in self._fields.values():
                drop_pages(values)
            here = np.arange(start, start + self._size) < self._count
            yield Units(fields, self._present[there]), here


def to_float64(values: PyTree) -> PyTree:
    """The same with floats in double precision; what is no array stays as it is."""

    def widened(leaf: PyTree) -> PyTree:
        array = isinstance(leaf, jax.Array | np.ndarray | np.generic)
        floats = array and jnp.issubdtype(leaf.dtype, jnp.floating)
        return jnp.asarray(leaf, jnp.float64) if floats else leaf

    return jax.tree.map(widened, values)


def _sum_over_chunk(
    density: Density, vector: jax.Array, chunk: Chunk, constants: PyTree
) -> jax.Array:
    """The sum over a chunk. In the place of a row that is not there is one of the unit that is, so that it is finite."""

    def term(unit: Units) -> jax.Array:
        rows, present = unit
        if len(present) > 1:
            some = jnp.where(present, jnp.arange(len(present)), jnp.argmax(present))
            rows = jax.tree.map(lambda leaf: leaf[some], rows)
        return density(vector, rows, present, constants)

    units, here = chunk
    return jnp.where(here, jax.vmap(term)(to_float64(units)), 0.0).sum()


@lru_cache(maxsize=32)
def _compiled_sum(density: Density, order: int) -> Callable[..., tuple[jax.Array, ...]]:
    summed = partial(_sum_over_chunk, density)

    def with_derivatives(vector: jax.Array, chunk: Chunk, constants: PyTree) -> PyTree:
        if order == 0:
            return (summed(vector, chunk, constants),)
        slope = jax.value_and_grad(summed)

        def twice(vector: jax.Array) -> PyTree:
            value, gradient = slope(vector, chunk, constants)
            return gradient, (value, gradient)

        hessian, (value, gradient) = jax.jacfwd(twice, has_aux=True)(vector)
        return value, gradient, hessian

    return jax.jit(with_derivatives)


@lru_cache(maxsize=32)
def _compiled_around(
    program: Callable[..., PyTree], density: Density
) -> Callable[[Chunk | None, PyTree, PyTree], PyTree]:
    """A program on a sum whose gradient is added up with it, so that no chunk is kept."""
    slope = jax.value_and_grad(partial(_sum_over_chunk, density))

    def run(chunks: Chunk | None, constants: PyTree, given: PyTree) -> PyTree:
        def both(vector: jax.Array) -> tuple[jax.Array, jax.Array]:
            start = jnp.zeros((), vector.dtype), jnp.zeros_like(vector)
            if chunks is None:
                return start

            def add(so_far: PyTree, chunk: Chunk) -> tuple[PyTree, None]:
                return jax.tree.map(jnp.add, so_far, slope(vector, chunk, constants)), None

            return jax.lax.scan(add, start, chunks)[0]

        total = jax.custom_vjp(lambda vector: both(vector)[0])
        total.defvjp(both, lambda gradient, change: (change * gradient,))
        return program(total, *given)

    return jax.jit(run)

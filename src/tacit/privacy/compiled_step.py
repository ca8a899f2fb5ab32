"""A step as a program: traced on shapes, walked, and compiled.

What runs is the very trace that was walked. Rows are arguments of the program and never part of it.
"""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr
from jax.extend.core import Literal as Constant

from tacit.errors import BoundaryError
from tacit.privacy.captured import check_captured
from tacit.privacy.clipping import Lattice, RatioLattice
from tacit.privacy.mechanisms import Batch, Release, check_vmappable, noiseless_sum, release_p
from tacit.privacy.rows import Units
from tacit.privacy.trace import (
    all_equations,
    check_trace,
    scan_with_buffer,
    shares_constants,
    take_units,
    trace_constants,
    translated_trace_errors,
)

Step = Callable[[Any, Any, Release], tuple[Any, Any]]
# Where the units of a step come from: all of them, some that the program takes from memory, or
# some that were fetched on the host.
Source = Literal["everyone", "memory", "host"]
# Where in memory a function of a trace is.
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


class StepInputs(NamedTuple):
    """What a block of steps gets, with a leading axis for the steps.

    ``whom`` are the places of a step's units, or the units themselves if the host fetched them, or
    None if a step looks at everyone. ``present`` says which of the places hold a unit.
    """

    whom: Any
    present: Any
    secret: Any
    noise: Any
    given: Any


class SharedInputs(NamedTuple):
    """What is the same in all steps: the units in memory, who of them is real, clip and grid.

    ``units`` is None where the host fetches them, and ``present`` where steps look at batches.
    """

    units: Any
    present: Any
    clip: Any
    grid: Any


class _ArrayType(NamedTuple):
    """What a trace depends on of an array. Quickly made, as every run asks for it."""

    shape: tuple[int, ...]
    dtype: Any
    weak: bool

    @classmethod
    def of(cls, leaf: Any) -> "_ArrayType":
        if isinstance(leaf, np.ndarray):
            return cls(leaf.shape, leaf.dtype, False)
        if not isinstance(leaf, jax.Array | jax.ShapeDtypeStruct):
            leaf = jax.typeof(leaf)
        return cls(leaf.shape, leaf.dtype, bool(leaf.weak_type))

    def traceable(self) -> jax.ShapeDtypeStruct:
        """As JAX takes it, which has no wide numbers unless they are switched on."""
        plain = isinstance(self.dtype, np.dtype)
        dtype = jax.dtypes.canonicalize_dtype(self.dtype) if plain else self.dtype
        return jax.ShapeDtypeStruct(self.shape, dtype, weak_type=self.weak)  # type: ignore[no-untyped-call]


def first_step_shapes(tree: Any) -> Any:
    """The shapes and types of what one step gets, of inputs of several."""

    def first(leaf: Any) -> jax.ShapeDtypeStruct:
        kind = _ArrayType.of(leaf)
        return kind._replace(shape=kind.shape[1:]).traceable()

    return jax.tree.map(first, tree)


def checked_fingerprint(
    step: Step, lattice: Lattice | RatioLattice, state: Any, given: Any, batch: Batch
) -> tuple[Any, ...]:
    """Proves on shapes that a step keeps the rules of `check`, and returns what it does.

    That is a function of the shapes alone, so once is enough for arguments of the same shapes.
    """
    leaves, tree = jax.tree.flatten((state, given, batch))
    return _cached_fingerprint(step, lattice, tree, tuple(map(_ArrayType.of, leaves)))


def step_output_shapes(
    step: Step, lattice: Lattice | RatioLattice, state: Any, given: Any, batch: Batch
) -> Any:
    """The shapes of what a checked step returns: its state and its outputs."""

    def whole(state: Any, given: Any, batch: Batch) -> Any:
        return step(state, given, Release(batch, lattice))

    return jax.eval_shape(whole, state, given, batch)


@lru_cache(maxsize=32)
def _cached_fingerprint(
    step: Step, lattice: Lattice | RatioLattice, tree: Any, leaves: tuple[_ArrayType, ...]
) -> tuple[Any, ...]:
    shapes = jax.tree.unflatten(tree, [kind.traceable() for kind in leaves])
    traced, _ = _checked_trace(step, lattice, *shapes)
    with translated_trace_errors():  # before anything is charged
        check_vmappable(all_equations(traced.jaxpr))
    return _fingerprint(traced)


@lru_cache(maxsize=32)
def compile_block(
    step: Step, lattice: Lattice | RatioLattice, form: tuple[Any, ...], source: Source
) -> Callable[[SharedInputs, Any, StepInputs], tuple[Any, Any]]:
    """A block of steps as one program: of what all steps share, the state, and the steps' inputs.

    The same object again for the same arguments, so that fits which are alike compile once.
    """

    def advance(fixed: SharedInputs, state: Any, units: Units, inputs: StepInputs) -> Any:
        batch = Batch(units, inputs.secret, inputs.present, inputs.noise, fixed.clip, fixed.grid)
        return _run_trace(step, lattice, form, state, inputs.given, batch)

    def block(fixed: SharedInputs, state: Any, inputs: StepInputs) -> tuple[Any, Any]:
        if source == "everyone":

            def with_all(state: Any, inputs: StepInputs) -> Any:
                return advance(fixed, state, fixed.units, inputs._replace(present=fixed.present))

            return jax.lax.scan(with_all, state, inputs)

        def bring(whom: Any) -> Any:
            return whom if source == "host" else take_units(fixed.units, whom)

        def with_batch(state: Any, units: Units, inputs: StepInputs) -> Any:
            return advance(fixed, state, units, inputs)

        return scan_with_buffer(with_batch, bring, state, inputs)

    return jax.jit(block)


@lru_cache(maxsize=32)
def compile_step(
    step: Step, lattice: Lattice | RatioLattice, form: tuple[Any, ...]
) -> Callable[[Any, Any, Batch], tuple[Any, Any]]:
    """One step as a program: of its state, what it is given, and its batch."""

    def advance(state: Any, given: Any, batch: Batch) -> Any:
        return _run_trace(step, lattice, form, state, given, batch)

    return jax.jit(advance)


@lru_cache(maxsize=32)
def compile_sum(
    step: Step, lattice: Lattice, form: tuple[Any, ...]
) -> Callable[[Any, Any, Batch], jax.Array]:
    """The sum that a step's release would make of a batch, as integers without noise. Gate only.

    The very trace that was walked is followed up to its release. [parts-sum]
    """

    def total(state: Any, given: Any, batch: Batch) -> jax.Array:
        traced, _ = _matching_trace(step, lattice, form, state, given, batch)
        return _sum_at_release(traced, jax.tree.leaves((state, given, batch)))

    return jax.jit(total)


def _sum_at_release(traced: ClosedJaxpr, given: Sequence[Any]) -> jax.Array:
    """Follows a trace up to its release, which is in no call, and returns the sum there."""
    jaxpr = traced.jaxpr
    place = next(i for i, each in enumerate(jaxpr.eqns) if each.primitive is release_p)
    release, before = jaxpr.eqns[place], jaxpr.eqns[:place]
    wanted = [atom for atom in release.invars if not isinstance(atom, Constant)]
    start = jaxpr.replace(eqns=before, outvars=wanted)
    found = iter(jax.core.eval_jaxpr(start, traced.consts, *given))
    operands = [a.val if isinstance(a, Constant) else next(found) for a in release.invars]
    return noiseless_sum(*operands, **release.params)


def _run_trace(
    step: Step, lattice: Lattice | RatioLattice, form: tuple[Any, ...], *of: Any
) -> tuple[Any, Any]:
    """What a step makes of its state, what it is given, and its batch."""
    traced, out = _matching_trace(step, lattice, form, *of)
    leaves = jax.core.eval_jaxpr(traced.jaxpr, traced.consts, *jax.tree.leaves(of))
    found: tuple[Any, Any] = jax.tree.unflatten(jax.tree.structure(out), leaves)
    return found


def _matching_trace(
    step: Step, lattice: Lattice | RatioLattice, form: tuple[Any, ...], *of: Any
) -> tuple[ClosedJaxpr, Any]:
    """The trace of a step, if it has the form that was checked."""
    traced, out = _checked_trace(step, lattice, *of)
    if _fingerprint(traced) != form:
        raise BoundaryError("What the step does or returns depends on the width of the batch.")
    return traced, out


def _checked_trace(
    step: Step, lattice: Lattice | RatioLattice, state: Any, given: Any, batch: Batch
) -> tuple[ClosedJaxpr, Any]:
    """The trace of a step, searched, walked, and compared with another for arrays from outside."""
    check_captured(step)  # whenever its code is about to run
    first, out = _walked_trace(step, lattice, state, given, batch)
    # JAX keeps traces of its own functions, with the arrays they made; another setting that
    # is part of their key makes it trace them anew.
    with jax.default_matmul_precision("highest"):
        second, _ = _walked_trace(step, lattice, state, given, batch)
    if shares_constants(first, second):
        raise BoundaryError(
            "The step uses an array from outside itself, which could hold rows and would be "
            "compiled into the program. Pass it through the state, the inputs or the model's "
            "public constants."
        )
    return first, out


def _walked_trace(
    step: Step, lattice: Lattice | RatioLattice, state: Any, given: Any, batch: Batch
) -> tuple[ClosedJaxpr, Any]:
    """The trace of a step on these very arguments, after the walk over it."""

    def whole(state: Any, given: Any, batch: Batch) -> Any:
        return step(state, given, Release(batch, lattice))

    with translated_trace_errors():
        traced, out = jax.make_jaxpr(whole, return_shape=True)(state, given, batch)
    check_trace(traced, len(jax.tree.leaves((state, given))), batch, release_p, lattice)
    return traced, out


def _fingerprint(traced: ClosedJaxpr) -> tuple[Any, ...]:
    """What a step does but for the width of its batch, which only a release may notice.

    A step could count its batch's places while it is traced; they would be numbers in the trace.
    """
    jaxpr = traced.jaxpr
    number = {var: i for i, var in enumerate([*jaxpr.constvars, *jaxpr.invars])}
    done = []
    for equation in jaxpr.eqns:
        given = [str(a) if isinstance(a, Constant) else number[a] for a in equation.invars]
        number.update({var: len(number) + i for i, var in enumerate(equation.outvars)})
        kinds = [str(var.aval) for var in equation.outvars]
        done.append((equation.primitive.name, given, kinds, equation.params))
    made = tuple(np.asarray(each).tobytes() for each in trace_constants(traced))
    returned = tuple((aval.shape, str(aval.dtype)) for aval in traced.out_avals)
    return _ADDRESS.sub("", str(done)), made, returned

"""The gate: the one object that reads rows, and the check that a step cannot go around it.

An algorithm hands the gate a pure step function. The step sees its own state, its public
inputs, and a `Release` it must call once. Before anything runs, the step is traced on
shapes alone, and the trace is walked: rows may reach what leaves only through the release,
whose noise may be used only there. Then the same step is compiled and run over blocks of
steps, with sampling and noise drawn on the host.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from dp_accounting.dp_event import DpEvent, NonPrivateDpEvent
from jax.extend.core import ClosedJaxpr, Primitive
from jax.interpreters import batching, mlir

from tacit import _validate
from tacit.accounting import events
from tacit.errors import BoundaryError, InvalidArgument
from tacit.privacy.bound import Lattice, add_up, on_lattice
from tacit.privacy.check import captured, check_trace, refuse_captured
from tacit.privacy.fetch import scan, side_by_side, stack, take, widen
from tacit.privacy.noise import Randomness, rounded_normals
from tacit.privacy.rows import Rows
from tacit.privacy.sample import poisson_batches, usual_capacity

# Places in the batches of one block: what a block may take of memory.
_MOST_SLOTS = 2**24
Step = Callable[[Any, Any, "Release"], tuple[Any, Any]]
PerRow = Callable[[Any, dict[str, jax.Array]], jax.Array]
PerUnit = Callable[[Any, dict[str, jax.Array], jax.Array], jax.Array]


@dataclass(frozen=True, kw_only=True)
class NoisySums:
    """What a gate will do: steps that each release one noisy clipped sum. All public.

    ``noise_multiplier`` is noise std over clip, or a schedule of (multiplier, steps) pairs;
    zero is without privacy, and the event says so.
    ``batch_bound`` is a declared bound on the units in a batch; it sets the lattice, never
    the guarantee, and a batch beyond it may wrap around.
    """

    sampling_rate: float
    num_steps: int
    clip: float
    noise_multiplier: float | tuple[tuple[float, int], ...]
    dimension: int
    batch_bound: int = 2**17

    def __post_init__(self) -> None:
        _validate.rate("sampling_rate", self.sampling_rate)
        _validate.count("num_steps", self.num_steps)
        _validate.positive("clip", self.clip)
        _validate.count("dimension", self.dimension)
        _validate.count("batch_bound", self.batch_bound)
        for scale, steps in self.phases:
            _validate.non_negative("noise_multiplier", scale)
            _validate.count("the steps of a phase", steps)
        if sum(steps for _, steps in self.phases) != self.num_steps:
            raise InvalidArgument("The steps of the noise schedule must add up to num_steps.")
        _ = self.lattice  # refuses a lattice that would be too coarse

    @property
    def phases(self) -> tuple[tuple[float, int], ...]:
        """The noise schedule: multipliers and the number of steps each holds for."""
        if isinstance(self.noise_multiplier, tuple):
            return self.noise_multiplier
        return ((self.noise_multiplier, self.num_steps),)

    @property
    def event(self) -> DpEvent:
        """The event to account for: of the very numbers that are executed."""
        if any(scale == 0 for scale, _ in self.phases):
            return NonPrivateDpEvent()
        return events.sampled_gaussian(list(self.phases), self.sampling_rate)

    @property
    def lattice(self) -> Lattice:
        """One lattice for all phases, by the largest noise."""
        most = max(scale for scale, _ in self.phases)
        return Lattice(self.clip, most * self.clip, self.dimension, self.batch_bound)


class _Batch(NamedTuple):
    """One step's share of what protects or is protected."""

    rows: Any
    row_present: Any
    present: Any
    noise: Any
    clip: Any
    grid: Any


class Release:
    """Handed to a step: releases one noisy sum over the units of a Poisson sample.

    Privacy
        Released: the sum over sampled units of a vector clipped to the plan's clip in the
        2-norm, plus Gaussian noise, on the plan's lattice. Sensitivity: the clip, for a unit
        that is sampled; the pairs under add-remove and replace are those of PROOFS.md,
        Theorem 1. Event: `NoisySums.event`. Public inputs: the arguments, which the check
        proves to be free of rows.
    """

    def __init__(self, batch: _Batch, lattice: Lattice) -> None:
        self._batch, self._lattice = batch, lattice

    def noisy_sum(self, per_row: PerRow, arguments: Any) -> jax.Array:
        """The noisy sum of ``per_row(arguments, row)``, a vector, over the sampled units."""
        refuse_captured(per_row)

        def per_unit(arguments: Any, rows: Any, row_present: jax.Array | None) -> jax.Array:
            if row_present is None:  # zeroed on the lattice if not finite
                return per_row(arguments, rows).astype(jnp.float32)
            vectors = jax.vmap(lambda row: _finite(per_row(arguments, row)))(rows)
            return jnp.where(row_present[:, None], vectors, 0).sum(axis=0)

        return self._noisy_sum(per_unit, arguments)

    def noisy_unit_sum(self, per_unit: PerUnit, arguments: Any) -> jax.Array:
        """The same of ``per_unit(arguments, rows, present)``: all rows of a unit at once.

        ``present`` tells which of the rows are real. A vector that is not finite is zero.
        """
        refuse_captured(per_unit)
        one = jnp.ones(1, jnp.bool_)

        def of_unit(arguments: Any, rows: Any, row_present: jax.Array | None) -> jax.Array:
            if row_present is None:
                rows, row_present = jax.tree.map(lambda leaf: leaf[None], rows), one
            return per_unit(arguments, rows, row_present).astype(jnp.float32)

        return self._noisy_sum(of_unit, arguments)

    def _noisy_sum(self, per_unit: Callable[..., jax.Array], arguments: Any) -> jax.Array:
        batch, lattice = self._batch, self._lattice
        unit = jax.tree.map(lambda leaf: leaf[0], (batch.rows, batch.row_present))
        traced, shape = jax.make_jaxpr(per_unit, return_shape=True)(arguments, *unit)
        if shape.shape != (lattice.dimension,):
            raise BoundaryError(
                f"The plan releases {lattice.dimension} numbers a step, but a row's contribution "
                f"has shape {shape.shape}."
            )
        public = [*traced.consts, *jax.tree.leaves(arguments)]
        private = jax.tree.leaves((batch.rows, batch.row_present))
        total: jax.Array = noisy_sum_p.bind(  # type: ignore[no-untyped-call]
            *public,
            *private,
            batch.present,
            batch.noise,
            batch.clip,
            batch.grid,
            unit=traced.jaxpr,
            consts=len(traced.consts),
            public=len(public),
            lattice=lattice,
        )
        return total


def _finite(vector: jax.Array) -> jax.Array:
    """A row whose contribution is not finite contributes nothing."""
    vector = vector.astype(jnp.float32)
    return jnp.where(jnp.isfinite(vector).all(), vector, 0.0)


# A primitive, so that the check can find it; without a rule for grad, and with one for vmap
# that only `run` may use, so that neither can turn one charged release into several.
noisy_sum_p = Primitive("tacit_noisy_sum")


def _noisy_sum(
    *operands: jax.Array, unit: Any, consts: int, public: int, lattice: Lattice
) -> jax.Array:
    shared, private = operands[:public], operands[public:-4]
    present, noise, clip, grid = operands[-4:]
    run = partial(jax.core.eval_jaxpr, unit, shared[:consts], *shared[consts:])
    vectors = jax.vmap(lambda *leaves: run(*leaves)[0])(*private)
    units = jax.vmap(lambda vector: on_lattice(vector, clip, lattice.points))(vectors)
    return add_up(units, present, noise, grid, lattice)


noisy_sum_p.def_impl(_noisy_sum)  # type: ignore[no-untyped-call]
noisy_sum_p.def_abstract_eval(  # type: ignore[no-untyped-call]
    lambda *_, lattice, **__: jax.core.ShapedArray((lattice.dimension,), jnp.float32)
)
mlir.register_lowering(noisy_sum_p, mlir.lower_fun(_noisy_sum, multiple_results=False))

_stacking: ContextVar[bool] = ContextVar("stacking", default=False)


def _stacked(operands: Sequence[jax.Array], axes: Sequence[Any], **params: Any) -> Any:
    """Only `run` itself may stack releases, each with the noise of its own charged gate."""
    if not _stacking.get():
        raise BoundaryError(
            "vmap over a release would make several of one that is charged once. Run several "
            "gates through tacit.privacy.gate.run instead."
        )
    return jax.vmap(partial(_noisy_sum, **params), in_axes=tuple(axes))(*operands), 0


batching.primitive_batchers[noisy_sum_p] = _stacked


@contextmanager
def _allow_stacking() -> Iterator[None]:
    token = _stacking.set(True)
    try:
        yield
    finally:
        _stacking.reset(token)


class Gate:
    """Rows, a plan, and the randomness that protects them. Good for one run."""

    def __init__(self, rows: Rows, plan: NoisySums, randomness: Randomness | None = None) -> None:
        chosen = randomness or Randomness()
        self.plan, self.seeded, self.unit = plan, chosen.seeded, rows.unit
        self._rows, self._used = rows, False
        self._sampling, self._noise = chosen.child("sampling"), chosen.child("noise")

    def __repr__(self) -> str:
        return f"Gate({self._rows!r}, {self.plan!r})"

    def _noise_block(self, start: int, steps: int) -> Any:
        """Integer noise for a block of steps, each phase at its own scale. [gate-noise]"""
        plan, lattice, parts = self.plan, self.plan.lattice, []
        begin = 0
        for scale, length in plan.phases:
            inside = min(start + steps, begin + length) - max(start, begin)
            if inside > 0:
                std = scale * plan.clip / lattice.grid
                drawn = rounded_normals(self._noise, std, inside * plan.dimension)
                parts.append(drawn.reshape(inside, plan.dimension))
            begin += length
        noise = parts[0] if len(parts) == 1 else np.concatenate(parts)
        return noise.view(np.int32) if lattice.wide else noise.astype(np.int32)


def run(
    gates: Sequence[Gate],
    step: Step,
    states: Any,
    inputs: Callable[[int, int], Any],
    *,
    block: int = 250,
    progress: Callable[[int], None] | None = None,
) -> tuple[Any, Any]:
    """Runs a step through several gates side by side, each with its own rows and noise.

    ``states`` and what ``inputs(start, steps)`` returns have a leading axis for the gates;
    inputs have one for the steps before it. Returns the states and the stacked outputs.
    ``progress`` is told the number of steps done, every ``block`` steps and at the end, and
    nothing else: how often does not depend on how many rows there are.
    """
    plan, every = gates[0].plan, block
    _admit(gates)
    fields = [gate._rows.device_fields() for gate in gates]  # noqa: SLF001 (the boundary)
    units = [gate._rows.count for gate in gates]  # noqa: SLF001
    one = jax.tree.map(lambda leaf: leaf[0], states)
    example = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape[2:], leaf.dtype),  # type: ignore[no-untyped-call]
        jax.eval_shape(lambda: inputs(0, 1)),
    )
    expected = check(step, one, example, gates[0])
    alone = len(gates) == 1  # then rows are not copied, not even to add an axis
    stacked = fields[0] if alone else jax.tree.map(lambda *leaves: stack(leaves), *fields)
    clips = jnp.array([gate.plan.clip for gate in gates], jnp.float32)
    grids = jnp.array([gate.plan.lattice.grid for gate in gates], jnp.float32)
    capacity = max(usual_capacity(plan.sampling_rate, count) for count in units)
    block = max(1, min(block, _MOST_SLOTS // (capacity * len(gates))))
    chunk = _compiled(step, plan.lattice, expected, alone=alone)
    outputs = []
    for start in range(0, plan.num_steps, block):
        steps = min(block, plan.num_steps - start)
        drawn = [
            poisson_batches(gate._sampling, gate.plan.sampling_rate, count, steps, capacity)  # noqa: SLF001
            for gate, count in zip(gates, units, strict=True)
        ]
        width = max(batches.indices.shape[1] for batches in drawn)
        noise = side_by_side([gate._noise_block(start, steps) for gate in gates])  # noqa: SLF001
        indices = side_by_side([widen(batches.indices, width) for batches in drawn])
        present = side_by_side([widen(batches.present, width + 1) for batches in drawn])
        states, out = chunk(
            stacked, clips, grids, states, (indices, present, noise, inputs(start, steps))
        )
        outputs.append(jax.tree.map(np.asarray, out))
        done = start + steps
        if progress is not None and (done // every > start // every or done == plan.num_steps):
            progress(done if done == plan.num_steps else done // every * every)
    return states, jax.tree.map(lambda *parts: np.concatenate(parts), *outputs)


def check(step: Step, state: Any, example: Any, gate: Gate) -> tuple[Any, ...]:
    """Traces a step on made-up values and proves that it keeps the rules of `check`.

    Returns the shapes of what it returns, which must not depend on the batch. [gate-check]
    """
    lattice = gate.plan.lattice
    made_up = {name: value[None] for name, value in gate._rows.made_up_unit().items()}  # noqa: SLF001
    present = gate._rows.made_up_presence()  # noqa: SLF001
    rows = (made_up, None if present is None else present[None])
    noise = np.zeros(lattice.dimension * (2 if lattice.wide else 1), np.int32)
    batch = _Batch(*rows, np.zeros(1, np.bool_), noise, np.float32(1), np.float32(1))
    refuse_captured(step)
    leaves, tree = jax.tree.flatten((state, example, batch))
    return _expected(step, lattice, tree, tuple(_kind(leaf) for leaf in leaves))


@lru_cache(maxsize=32)
def _expected(step: Step, lattice: Lattice, tree: Any, leaves: tuple[Any, ...]) -> tuple[Any, ...]:
    """The shapes a step returns, after the walk. A function of the arguments' shapes alone.

    So once is enough for arguments of the same shapes; what is compiled is walked again.
    """
    return _shapes(_traced(step, lattice, *jax.tree.unflatten(tree, leaves))[0])


def _kind(leaf: Any) -> jax.ShapeDtypeStruct:
    kind = jax.typeof(leaf)
    return jax.ShapeDtypeStruct(  # type: ignore[no-untyped-call]
        kind.shape, kind.dtype, weak_type=kind.weak_type
    )


def _traced(
    step: Step, lattice: Lattice, state: Any, given: Any, batch: _Batch
) -> tuple[ClosedJaxpr, Any]:
    """The trace of a step, walked, and compared with another for arrays from outside."""
    first, out = _checked(step, lattice, state, given, batch)
    # JAX keeps traces of its own functions, with the arrays they made; another setting that
    # is part of their key makes it trace them anew.
    with jax.default_matmul_precision("highest"):
        second, _ = _checked(step, lattice, state, given, batch)
    if captured(first, second):
        raise BoundaryError(
            "The step uses an array from outside itself, which could hold rows and would be "
            "compiled into the program. Pass it through the state, the inputs or the model's "
            "public constants."
        )
    return first, out


def _checked(
    step: Step, lattice: Lattice, state: Any, given: Any, batch: _Batch
) -> tuple[ClosedJaxpr, Any]:
    """The trace of a step on these very arguments, after the walk over it."""

    def whole(state: Any, given: Any, batch: _Batch) -> Any:
        return step(state, given, Release(batch, lattice))

    traced, out = jax.make_jaxpr(whole, return_shape=True)(state, given, batch)
    labels: list[str | None] = [None] * len(jax.tree.leaves((state, given)))
    private = len(jax.tree.leaves((batch.rows, batch.row_present)))
    labels += [f"batch {i}" for i in range(private)] + ["present", "noise", "clip", "grid"]
    check_trace(traced, labels, noisy_sum_p, lattice)
    return traced, out


def _shapes(traced: ClosedJaxpr) -> tuple[Any, ...]:
    return tuple((aval.shape, str(aval.dtype)) for aval in traced.out_avals)


def _admit(gates: Sequence[Gate]) -> None:
    for gate in gates:
        if gate._used:  # noqa: SLF001
            raise BoundaryError("This gate has been used; what it was charged for is spent.")
        if _shape(gate.plan) != _shape(gates[0].plan):
            raise BoundaryError("Gates run side by side must agree in steps and lattice.")
        gate._used = True  # noqa: SLF001


def _shape(plan: NoisySums) -> tuple[int, int, int, bool]:
    return plan.num_steps, plan.dimension, plan.lattice.points, plan.lattice.wide


@lru_cache(maxsize=32)
def _compiled(
    step: Step, lattice: Lattice, expected: tuple[Any, ...], *, alone: bool
) -> Callable[..., Any]:
    """A block of steps as one program. Rows are its arguments, never part of it.

    What is compiled is the very trace that was walked, at the width it runs at.
    """

    def body(state: Any, clip: Any, grid: Any, x: Any) -> Any:
        (rows, row_present), present, noise, given = x
        batch = _Batch(rows, row_present, present, noise, clip, grid)
        traced, out = _traced(step, lattice, state, given, batch)
        if _shapes(traced) != expected:
            raise BoundaryError("What the step returns has a shape that depends on the batch.")
        leaves = jax.core.eval_jaxpr(
            traced.jaxpr, traced.consts, *jax.tree.leaves((state, given, batch))
        )
        return jax.tree.unflatten(jax.tree.structure(out), leaves)

    def chunk(fields: Any, clips: Any, grids: Any, states: Any, xs: Any) -> Any:
        def advance(states: Any, x: Any) -> Any:
            with _allow_stacking():
                return jax.vmap(body)(states, clips, grids, x)

        return scan(advance, jax.vmap(take), fields, states, xs)

    def single(fields: Any, clips: Any, grids: Any, states: Any, xs: Any) -> Any:
        clip, grid, state = jax.tree.map(lambda leaf: leaf[0], (clips, grids, states))
        xs = jax.tree.map(lambda leaf: leaf[:, 0], xs)
        state, out = scan(lambda state, x: body(state, clip, grid, x), take, fields, state, xs)
        return jax.tree.map(lambda leaf: leaf[None], state), jax.tree.map(lambda v: v[:, None], out)

    return jax.jit(single if alone else chunk)

"""The gate: the one object that reads rows, and the check that a step cannot go around it.

An algorithm hands the gate a pure step function. The step sees its own state, its public
inputs, and a `Release` it must call once. Before anything runs, the step is traced on
shapes alone, and the trace is walked: rows may reach what leaves only through the release,
whose noise may be used only there. Then the same step is compiled and run over blocks of
steps, with sampling and noise drawn on the host.
"""

import dataclasses
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from threading import Lock
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Literal
from numpy.typing import NDArray

from tacit.errors import BoundaryError
from tacit.privacy.captured import refuse_captured
from tacit.privacy.check import captured, check_trace, constants, equations
from tacit.privacy.fetch import held, scan, side_by_side, stack, take, widen
from tacit.privacy.noise import Randomness
from tacit.privacy.one_draw.chain import ChainDraws, check_chain, draw_by_chain
from tacit.privacy.one_draw.claims import BoundedLikelihood, LipschitzLikelihood, LogConcave
from tacit.privacy.one_draw.grid import GridDraws, check_grid, draw_from_grid
from tacit.privacy.one_draw.reject import LogisticDraws, check_rejection, draw_by_rejection
from tacit.privacy.one_draw.statistic import StatisticDraws, check_statistic, draw_by_statistic
from tacit.privacy.plans import (
    BarkerTests,
    Counting,
    NoisySums,
    SampledBarkerTests,
    SideBySide,
    Stages,
)
from tacit.privacy.release import (
    Batch,
    Release,
    allow_stacking,
    refuse_inseparable,
    release_p,
)
from tacit.privacy.rows import Rows
from tacit.privacy.sample import Batches
from tacit.privacy.settings import quiet, refused_traces

# Places in the batches of one block, for each of which sampling needs some thirty bytes; and
# bytes of a block's units, where they are fetched on the host.
_MOST_SLOTS, _MOST_BYTES = 2**21, 2**25
# Where in memory a function of a trace is.
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
Step = Callable[[Any, Any, Release], tuple[Any, Any]]
# Plans without steps: what is checked before anything is charged, and what draws.
_DRAWN: dict[type, tuple[Callable[..., None], Callable[..., NDArray[np.float64]]]] = {
    GridDraws: (check_grid, draw_from_grid),
    StatisticDraws: (check_statistic, draw_by_statistic),
    LogisticDraws: (check_rejection, draw_by_rejection),
    ChainDraws: (check_chain, draw_by_chain),
}
_PLANS = {NoisySums, BarkerTests, SampledBarkerTests, Stages, *_DRAWN}
_CLAIMS = {BoundedLikelihood, LipschitzLikelihood, LogConcave}
# Of what fields of a plan are made, which nobody can change once it is charged.
_PLAIN = {int, float, str, bool, type(None), np.float64, np.float32, np.int64, np.int32}


class Gate:
    """Rows, a plan (see `tacit.privacy.plans`), and the randomness that protects them.

    Good for one run.
    """

    def __init__(self, rows: Rows, plan: Any, randomness: Randomness | None = None) -> None:
        # Another's could say one thing and do another, or one thing now and another later.
        if type(plan) not in _PLANS or not _is_fixed(plan):
            raise BoundaryError(
                "A gate takes the plans of tacit.privacy, of plain numbers, and no others."
            )
        self._randomness = chosen = randomness or Randomness()
        self._charged = plan
        # Taken once and never given back, by whichever thread or copy of the gate comes first.
        self._private, self._use = rows, Lock()
        self._sampling, self._noise = chosen.child("sampling"), chosen.child("noise")
        # Bits that units get of their own, where the plan has them: a stream for nothing else.
        self._secret = chosen.child("secret") if has_secrets(plan) else None

    def __repr__(self) -> str:
        return f"Gate({self._private!r}, {self.plan!r})"

    @property
    def plan(self) -> Any:
        """What was charged, and will be done."""
        return self._charged

    @property
    def seeded(self) -> bool:
        """Whether the randomness can be guessed, so that nothing is private."""
        return self._randomness.seeded

    @property
    def unit(self) -> str:
        """What is protected, in a word."""
        return self._private.unit

    @quiet()
    def check_draw(self, *given: Any) -> None:
        """Raises what `draw` would raise, without reading a row."""
        check, _ = self._drawing()
        check(self.plan, self._private.blank(), *given)

    @quiet()
    def draw(self, *given: Any) -> NDArray[np.float64]:
        """What a plan of `one_draw` releases without steps: draws, one below the other.

        ``given`` is public: for a grid, the log prior of its points, a unit's density and the
        model's constants; for a chain, the prior's density, a unit's and the constants; for the
        others nothing. The draws are made here, by what the plan is, and all else stays.
        [gate-draw]
        """
        self.check_draw(*given)
        _, draw = self._drawing()
        _admit([self])
        return draw(self.plan, self._private, self._noise, *given)

    def _drawing(self) -> tuple[Callable[..., None], Callable[..., NDArray[np.float64]]]:
        if type(self.plan) not in _DRAWN:
            raise BoundaryError("This gate's plan has steps: run them instead of drawing.")
        return _DRAWN[type(self.plan)]

    def refuse_misfit(self) -> None:
        """Raises, before anything is charged, if a plan needs another public number of units."""
        for plan in self._counting():
            plan.refuse_misfit(self._private._units)

    @property
    def public_count(self) -> bool:
        """Whether a plan takes the number of units as public."""
        return bool(self._counting())

    @property
    def _looked_at(self) -> int:
        """Units that batches are drawn from; those without a row too, if their number is public."""
        return self._private._units if self.public_count else self._private._count

    def _counting(self) -> list[Any]:
        plans = self.plan.plans if isinstance(self.plan, Stages) else (self.plan,)
        return [plan for plan in plans if isinstance(plan, Counting)]

    def stages(self) -> list["Gate"]:
        """A gate for each plan of several, each with randomness of its own."""
        if not isinstance(self.plan, Stages):
            raise BoundaryError("This gate has a single plan.")
        _admit([self])
        source = self._randomness
        return [
            Gate(self._private, plan, source.child(f"stage {i}"))
            for i, plan in enumerate(self.plan.plans)
        ]


def _is_fixed(value: Any) -> bool:
    """Whether a part of a plan is what it is for good: what is done must be what was charged."""
    if type(value) in _PLANS | _CLAIMS:
        return all(_is_fixed(getattr(value, field.name)) for field in dataclasses.fields(value))
    if type(value) is tuple:
        return all(map(_is_fixed, value))
    if type(value) is not np.ndarray:
        return type(value) in _PLAIN
    below: Any = value.base
    return type(below) is bytes


@quiet()
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
    nothing else: how often does not depend on how many rows there are. Nor does what ``inputs``
    is asked for: ``block`` steps at a time, whatever runs at once.
    """
    gates = tuple(gates)  # whose elements are the same whenever they are looked at
    plan, every = gates[0].plan, min(block, gates[0].plan.num_steps)
    _admit(gates)
    alone = len(gates) == 1  # then rows are not copied, not even to add an axis
    rows = gates[0]._private
    fetched = alone and rows.on_disk and not plan.everyone
    units = [gate._looked_at for gate in gates]
    one = jax.tree.map(lambda leaf: leaf[0], states)
    example = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape[2:], leaf.dtype),  # type: ignore[no-untyped-call]
        jax.eval_shape(lambda: inputs(0, 1)),
    )
    expected = check(step, one, example, gates[0])
    stacked = None if fetched else _stacked(gates)
    if plan.everyone:
        real = [gate._private._count for gate in gates]
        present = _present(stacked, real, alone=alone)
        stacked = stacked, present
        capacity = present.shape[-1] if has_secrets(plan) else 1
    else:
        capacity = max(gate.plan.capacity(count) for gate, count in zip(gates, units, strict=True))
    clips = jnp.array([gate.plan.clip for gate in gates], jnp.float32)
    grids = clips / np.float32(plan.lattice.points)  # a power of two
    slots = min(_MOST_SLOTS, _MOST_BYTES // rows.unit_bytes) if fetched else _MOST_SLOTS
    most = max(1, min(every, slots // (capacity * len(gates))))
    block = -(-every // -(-every // most))  # parts of a block that are alike, so as to compile few
    way = "everyone" if plan.everyone else "fetched" if fetched else "taken"
    chunk = _compiled(step, plan.lattice, expected, alone=alone, way=way)
    outputs = []
    for first in range(0, plan.num_steps, every):
        end = min(first + every, plan.num_steps)
        given = inputs(first, end - first)
        for start in range(first, end, block):
            steps = min(block, end - start)
            noise = side_by_side([gate.plan.noise(gate._noise, start, steps) for gate in gates])
            here = slice(start - first, start - first + steps)
            batch: tuple[Any, ...] = ()
            width = capacity
            if not plan.everyone:
                whom, present = _batches(gates, units, steps, capacity)
                batch = rows._fetch(whom) if fetched else whom, present
                width = present.shape[-1]
            xs = *batch, _secrets(gates, steps, width), noise, _at(given, here)
            states, out = chunk(stacked, clips, grids, states, xs)
            outputs.append(jax.tree.map(np.asarray, out))
        if progress is not None:
            progress(end)
    return states, jax.tree.map(lambda *parts: np.concatenate(parts), *outputs)


def _at(given: Any, steps: slice) -> Any:
    """What was given for some of the steps."""
    return jax.tree.map(lambda leaf: leaf[steps], given)


def _stacked(gates: Sequence[Gate]) -> Any:
    """The rows of all gates, one beside the other if there are several."""
    fields = [gate._private._device_fields() for gate in gates]
    if len(fields) == 1:
        return fields[0]
    return jax.tree.map(lambda *leaves: stack(leaves), *fields)


def _present(fields: Any, units: Sequence[int], *, alone: bool) -> Any:
    """Which places hold a unit, where all units are looked at."""
    length = jax.tree.leaves(fields)[0].shape[0 if alone else 1]
    return jnp.arange(length) < (units[0] if alone else jnp.array(units)[:, None])


def _batches(gates: Sequence[Gate], units: Sequence[int], steps: int, capacity: int) -> Any:
    """Whom the steps look at, and who of them is real."""
    drawn = [
        gate.plan.batches(gate._sampling, count, steps, capacity)
        for gate, count in zip(gates, units, strict=True)
    ]
    if any(count > gate._private._count for gate, count in zip(gates, units, strict=True)):
        drawn = [_with_rows(b, g._private._count) for b, g in zip(drawn, gates, strict=True)]
    width = max(batches.indices.shape[1] for batches in drawn)
    indices = side_by_side([widen(batches.indices, width) for batches in drawn])
    return indices, side_by_side([widen(batches.present, width + 1) for batches in drawn])


def _secrets(gates: Sequence[Gate], steps: int, width: int) -> Any:
    """Words of each unit's own in some steps, from each gate's own stream; or None."""
    if not has_secrets(gates[0].plan):
        return None
    return side_by_side([gate.plan.secret(gate._secret, steps, width) for gate in gates])


def has_secrets(plan: Any) -> bool:
    """Whether a plan gives units secret bits of their own."""
    return type(plan) is NoisySums and plan.secrets


def _with_rows(batches: Batches, count: int) -> Batches:
    """Batches in which whoever has no row is nobody. [rows-silent]"""
    present = batches.present & (batches.indices < count)
    return Batches(np.minimum(batches.indices, max(count - 1, 0)), present)


@quiet()
def check(step: Step, state: Any, example: Any, gate: Gate) -> tuple[Any, ...]:
    """Traces a step on made-up values and proves that it keeps the rules of `check`.

    Returns the shapes of what it returns, which must not depend on the batch. [gate-check]
    """
    lattice = gate.plan.lattice
    made_up = {name: value[None] for name, value in gate._private.made_up_unit().items()}
    present = gate._private.made_up_presence()
    rows = (made_up, None if present is None else present[None])
    noise = np.zeros(gate.plan.words, np.int32)
    secret = np.zeros((1, 2), np.uint32) if has_secrets(gate.plan) else None
    batch = Batch(*rows, secret, np.zeros(1, np.bool_), noise, np.float32(1), np.float32(1))
    refuse_captured(step)
    leaves, tree = jax.tree.flatten((state, example, batch))
    return _expected(step, lattice, tree, tuple(_kind(leaf) for leaf in leaves))


@lru_cache(maxsize=32)
def _expected(step: Step, lattice: Any, tree: Any, leaves: tuple[Any, ...]) -> tuple[Any, ...]:
    """The shapes a step returns, after the walk. A function of the arguments' shapes alone.

    So once is enough for arguments of the same shapes; what is compiled is walked again.
    """
    traced, _ = _traced(step, lattice, *jax.tree.unflatten(tree, leaves))
    with refused_traces():  # before anything is charged
        refuse_inseparable(equations(traced.jaxpr))
    return _form(traced)


def _kind(leaf: Any) -> jax.ShapeDtypeStruct:
    kind = jax.typeof(leaf)
    return jax.ShapeDtypeStruct(  # type: ignore[no-untyped-call]
        kind.shape, kind.dtype, weak_type=kind.weak_type
    )


def _traced(
    step: Step, lattice: Any, state: Any, given: Any, batch: Batch
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
    step: Step, lattice: Any, state: Any, given: Any, batch: Batch
) -> tuple[ClosedJaxpr, Any]:
    """The trace of a step on these very arguments, after the walk over it."""

    def whole(state: Any, given: Any, batch: Batch) -> Any:
        return step(state, given, Release(batch, lattice))

    with refused_traces():
        traced, out = jax.make_jaxpr(whole, return_shape=True)(state, given, batch)
    labels: list[str | None] = [None] * len(jax.tree.leaves((state, given)))
    private = len(jax.tree.leaves((batch.rows, batch.row_present, batch.secret)))
    labels += [f"batch {i}" for i in range(private)] + ["present", "noise", "clip", "grid"]
    check_trace(traced, labels, release_p, lattice)
    return traced, out


def _form(traced: ClosedJaxpr) -> tuple[Any, ...]:
    """What a step does but for the width of its batch, which only a release may notice.

    A step could count its batch's places while it is traced; they would be numbers in the trace.
    """
    jaxpr = traced.jaxpr
    number = {var: i for i, var in enumerate([*jaxpr.constvars, *jaxpr.invars])}
    done = []
    for equation in jaxpr.eqns:
        given = [str(a) if isinstance(a, Literal) else number[a] for a in equation.invars]
        number.update({var: len(number) + i for i, var in enumerate(equation.outvars)})
        kinds = [str(var.aval) for var in equation.outvars]
        done.append((equation.primitive.name, given, kinds, equation.params))
    made = tuple(np.asarray(each).tobytes() for each in constants(traced))
    returned = tuple((aval.shape, str(aval.dtype)) for aval in traced.out_avals)
    return _ADDRESS.sub("", str(done)), made, returned


def refuse_unlike(gates: Sequence[Gate]) -> None:
    """Raises unless the plans are alike enough to run side by side; draws run one by one."""
    first, *others = [
        gate.plan.shape if isinstance(gate.plan, SideBySide) else None for gate in gates
    ]
    if any(shape != first for shape in others):
        raise BoundaryError(
            "Gates run side by side must agree in steps, lattice, whether each looks at all units and "
            "whether units get secret bits."
        )


def _admit(gates: Sequence[Gate]) -> None:
    refuse_unlike(gates)
    for gate in gates:
        if not gate._use.acquire(blocking=False):
            raise BoundaryError("This gate has been used; what it was charged for is spent.")


@lru_cache(maxsize=32)
def _compiled(
    step: Step, lattice: Any, expected: tuple[Any, ...], *, alone: bool, way: str
) -> Callable[..., Any]:
    """A block of steps as one program. Rows are its arguments, never part of it.

    What is compiled is the very trace that was walked, at the width it runs at.
    """

    def body(state: Any, clip: Any, grid: Any, batch: Any, own: Any, noise: Any, given: Any) -> Any:
        (rows, row_present), present = batch
        batch = Batch(rows, row_present, own, present, noise, clip, grid)
        traced, out = _traced(step, lattice, state, given, batch)
        if _form(traced) != expected:
            raise BoundaryError("What the step does or returns depends on the width of the batch.")
        leaves = jax.core.eval_jaxpr(
            traced.jaxpr, traced.consts, *jax.tree.leaves((state, given, batch))
        )
        return jax.tree.unflatten(jax.tree.structure(out), leaves)

    bring = held if way == "fetched" else take

    def steps(advance: Any, bring: Any, fields: Any, states: Any, xs: Any) -> Any:
        if way == "everyone":
            return jax.lax.scan(lambda states, x: advance(states, fields, *x), states, xs)

        def with_batch(states: Any, x: Any) -> Any:
            batch, present, *rest = x
            return advance(states, (batch, present), *rest)

        return scan(with_batch, bring, fields, states, xs)

    def chunk(fields: Any, clips: Any, grids: Any, states: Any, xs: Any) -> Any:
        def advance(states: Any, batch: Any, own: Any, noise: Any, given: Any) -> Any:
            with allow_stacking():
                return jax.vmap(body)(states, clips, grids, batch, own, noise, given)

        return steps(advance, jax.vmap(bring), fields, states, xs)

    def single(fields: Any, clips: Any, grids: Any, states: Any, xs: Any) -> Any:
        clip, grid, state = jax.tree.map(lambda leaf: leaf[0], (clips, grids, states))
        xs = jax.tree.map(lambda leaf: leaf[:, 0], xs)

        def advance(state: Any, batch: Any, own: Any, noise: Any, given: Any) -> Any:
            return body(state, clip, grid, batch, own, noise, given)

        state, out = steps(advance, bring, fields, state, xs)
        return jax.tree.map(lambda leaf: leaf[None], state), jax.tree.map(lambda v: v[:, None], out)

    return jax.jit(single if alone else chunk)

"""The gate: the one object that reads rows.

An algorithm hands the gate a pure step function. The step sees its own state, its public
inputs, and a `Release` it must call once. Before anything runs, the step is traced on
shapes alone, and the trace is walked: rows may reach what leaves only through the release,
whose noise may be used only there. Then the same step is compiled and run over blocks of
steps, with sampling and noise drawn on the host.
"""

import dataclasses
from collections.abc import Callable
from threading import Lock
from typing import Any, ClassVar

import attrs
import jax
import numpy as np

from tacit.errors import BoundaryError
from tacit.privacy.decisions import BarkerTests, SampledBarkerTests
from tacit.privacy.keeper import Keeper, Position, joined
from tacit.privacy.mechanisms import Mechanism, NoisySums, Stages, StepMechanism, has_secrets
from tacit.privacy.noise import Randomness
from tacit.privacy.program import (
    Everyone,
    Source,
    Step,
    StepInputs,
    checked_form,
    compiled,
    first_of,
    outcome,
)
from tacit.privacy.release import Batch
from tacit.privacy.rows import Rows
from tacit.privacy.sample import Batches, usual_length
from tacit.privacy.settings import quiet

# Places in the batches of one block, for each of which sampling needs some thirty bytes; and
# bytes of a block's units, where they are fetched on the host.
_MOST_SLOTS, _MOST_BYTES = 2**21, 2**25
# Units that steps on everyone look at in the time that a place in a batch takes.
_LOOKS = 2**7
# Of what fields of a mechanism are made, which nobody can change once it is charged.
_PLAIN = {int, float, str, bool, type(None), np.float64, np.float32, np.int64, np.int32}


class Gate:
    """Rows, a mechanism (see `tacit.privacy.mechanisms`), and the randomness that protects them.

    Good for one run.
    """

    # The mechanisms that it takes, and the other classes that their fields may have.
    _mechanisms: ClassVar[frozenset[type]] = frozenset(
        {NoisySums, BarkerTests, SampledBarkerTests, Stages}
    )
    _parts: ClassVar[frozenset[type]] = frozenset()

    def __init__(
        self,
        rows: Rows,
        mechanism: Mechanism,
        randomness: Randomness | None = None,
        keeper: Keeper | None = None,
    ) -> None:
        # Another's could say one thing and do another, or one thing now and another later.
        if type(mechanism) not in self._mechanisms or not self._is_fixed(mechanism):
            raise BoundaryError(
                "A gate takes the mechanisms of tacit.privacy, of plain numbers, and no others."
            )
        self._randomness = chosen = randomness or Randomness()
        self._charged, self._keeper = mechanism, keeper
        # Taken once and never given back, by whichever thread or copy of the gate comes first.
        self._private, self._use = rows, Lock()
        self._sampling, self._noise = chosen.child("sampling"), chosen.child("noise")
        # Bits that units get of their own, where the mechanism has them: a stream for nothing else.
        self._secret = chosen.child("secret") if has_secrets(mechanism) else None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._private!r}, {self.mechanism!r})"

    @property
    def mechanism(self) -> Any:
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

    def refuse_misfit(self) -> None:
        """Raises, before anything is charged, if a mechanism needs another public number of units."""
        for mechanism in self._of_fixed_size():
            mechanism.refuse_misfit(self._private._units)

    @property
    def public_count(self) -> bool:
        """Whether a mechanism takes the number of units as public."""
        return bool(self._of_fixed_size())

    @property
    def _looked_at(self) -> int:
        """Units that batches are drawn from; those without a row too, if their number is public."""
        return self._private._units if self.public_count else self._private._count

    @property
    def _streams(self) -> list[Randomness]:
        """All that steps draw from."""
        secret = [] if self._secret is None else [self._secret]
        return [self._sampling, self._noise, *secret]

    def _of_fixed_size(self) -> list[SampledBarkerTests]:
        """The mechanisms whose batches have a fixed size, for which the number of units is public."""
        mechanism = self.mechanism
        several = mechanism.mechanisms if isinstance(mechanism, Stages) else (mechanism,)
        return [each for each in several if isinstance(each, SampledBarkerTests)]

    def stages(self) -> list["Gate"]:
        """A gate for each mechanism of several, each with randomness of its own."""
        if not isinstance(self.mechanism, Stages):
            raise BoundaryError("This gate has a single mechanism.")
        self._use_up()
        source = self._randomness
        keeper = self._keeper
        return [
            Gate(
                self._private,
                mechanism,
                source.child(f"stage {i}"),
                None if keeper is None else keeper.stage(i),
            )
            for i, mechanism in enumerate(self.mechanism.mechanisms)
        ]

    def _use_up(self) -> None:
        """Raises if the gate has been used."""
        if not self._use.acquire(blocking=False):
            raise BoundaryError("This gate has been used: its charge is spent. Open another one.")

    def _is_fixed(self, value: Any) -> bool:
        """Whether a part of a mechanism can never change: what is done must be what was charged."""
        if type(value) in self._mechanisms | self._parts:
            # Nothing beside the fields, which could stand before what the class says.
            kind: Any = type(value)
            fields = attrs.fields(kind) if attrs.has(kind) else dataclasses.fields(kind)
            declared = {field.name for field in fields}
            return vars(value).keys() == declared and all(map(self._is_fixed, vars(value).values()))
        if type(value) is tuple:
            return all(map(self._is_fixed, value))
        if type(value) is not np.ndarray:
            return type(value) in _PLAIN
        below: Any = value.base
        return type(below) is bytes


@quiet()
def run(
    gate: Gate,
    step: Step,
    state: Any,
    inputs: Callable[[int, int], Any],
    *,
    block: int = 250,
    progress: Callable[[int], None] | None = None,
) -> tuple[Any, Any]:
    """Runs all steps of a gate's mechanism.

    Args:
        gate: The gate, which must not have been used.
        step: A pure function ``(state, input, release) -> (state, output)``.
        state: Where the steps start.
        inputs: ``inputs(first, count)`` returns the public inputs of some steps, with a leading axis
            for the steps. It is asked for ``block`` steps at a time, whatever runs at once.
        block: The number of steps between two calls of ``progress``.
        progress: Called with the number of steps done, every ``block`` steps and at the end. How often
            does not depend on the number of rows.

    Returns:
        The last state, and the outputs with a leading axis for the steps.

    Raises:
        BoundaryError: If the gate has been used, or the step would take rows past the release.
    """
    gate._use_up()
    mechanism = _of_steps(gate)
    every = min(block, mechanism.num_steps)
    given = inputs(0, every)
    form = _checked(step, state, first_of(given), gate)
    drawn = _Draws(gate, every)
    program = compiled(step, mechanism.lattice, form, drawn.source)
    done, state, outputs = _begun(gate, drawn, step, form, state, given)
    for first in range(done - done % every, mechanism.num_steps, every):
        end = min(first + every, mechanism.num_steps)
        given = given if first == 0 else inputs(first, end - first)
        for start in range(max(first, done), end, drawn.steps):
            steps = min(drawn.steps, end - start)
            here = slice(start - first, start - first + steps)
            some = jax.tree.map(lambda leaf, here=here: leaf[here], given)
            state, out = program(drawn.everyone, state, drawn.block(start, steps, some))
            outputs.append(jax.tree.map(np.asarray, out))
            _keep(gate, Position(start + steps, state, outputs))
        if progress is not None:
            progress(end)
    return state, joined(outputs)


def _begun(
    gate: Gate, drawn: "_Draws", step: Step, form: tuple[Any, ...], state: Any, given: Any
) -> Position:
    """Where the steps begin: where they were, if the gate is that of a run that goes on. [kept-run]"""
    if gate._keeper is None:
        return Position(0, state, [])
    mechanism = _of_steps(gate)
    text, made, returned = form
    blocks = drawn.steps, drawn.source  # in which words are drawn
    gate._keeper.ask(repr(mechanism), blocks, text, *made, repr(returned), state, given)

    def returns() -> Any:
        batch = _made_up(gate, mechanism)
        return outcome(step, mechanism.lattice, state, first_of(given), batch)[1]

    return gate._keeper.position(state, returns, gate._streams)


def _keep(gate: Gate, position: Position) -> None:
    if gate._keeper is not None:
        last = position.steps == gate.mechanism.num_steps
        gate._keeper.keep(position, gate._streams, last=last)


class _Draws:
    """What the host draws for blocks of steps: batches, units' secret words, and noise.

    ``steps`` of them fit into memory at once; ``everyone`` is what all of them share.
    """

    def __init__(self, gate: Gate, every: int) -> None:
        self._gate, self._mechanism, rows = gate, _of_steps(gate), gate._private
        mechanism = self._mechanism
        on_host = rows.on_disk and not mechanism.everyone
        self.source: Source = "everyone" if mechanism.everyone else "host" if on_host else "memory"
        # Of steps on everyone that draw for units, tables of about the same length share a program.
        alike = mechanism.everyone and has_secrets(mechanism)
        length = usual_length(rows._count) if alike else None
        units: Any = None if on_host else rows._device_fields(length)
        present = None
        if mechanism.everyone:
            present = np.arange(units.length) < rows._count
            # Without secret words, what bounds a block is its time: nothing is stored within one.
            places = len(present) if has_secrets(mechanism) else len(present) // _LOOKS
            self._capacity = max(1, places)
        else:
            self._capacity = mechanism.capacity(gate._looked_at)
        clip = np.float32(mechanism.clip)
        grid = clip / np.float32(mechanism.lattice.points)  # a power of two
        self.everyone = Everyone(units, present, clip, grid)
        slots = min(_MOST_SLOTS, _MOST_BYTES // rows.unit_bytes) if on_host else _MOST_SLOTS
        self.steps = _even_part(every, max(1, min(every, slots // self._capacity)))

    def block(self, start: int, steps: int, given: Any) -> StepInputs:
        """Inputs of some steps, with draws that are used for nothing else."""
        gate, mechanism = self._gate, self._mechanism
        noise = mechanism.noise(gate._noise, start, steps)
        whom = present = None
        width = self._capacity
        if not mechanism.everyone:
            batches = _batches(gate, steps, width)
            on_host = self.source == "host"
            whom = gate._private._fetch(batches.indices) if on_host else batches.indices
            present = np.pad(batches.present, [(0, 0), (0, 1)])  # a place more, for nobody
            width = present.shape[1]
        secret = None
        if isinstance(mechanism, NoisySums) and gate._secret is not None:
            secret = mechanism.secret(gate._secret, steps, width)
        return StepInputs(whom, present, secret, noise, given)


def _even_part(every: int, most: int) -> int:
    """How many of a number of steps run at once: parts that are alike, or nearly, compile once or twice.

    >>> _even_part(250, 40), _even_part(251, 40)
    (25, 36)
    """
    whole = next(part for part in range(most, 0, -1) if every % part == 0)
    return whole if 2 * whole > most else -(-every // -(-every // most))


def _batches(gate: Gate, steps: int, capacity: int) -> Batches:
    """Whom the steps look at, and who of them is real."""
    batches: Batches = gate.mechanism.batches(gate._sampling, gate._looked_at, steps, capacity)
    count = gate._private._count
    return batches if gate._looked_at == count else _with_rows(batches, count)


def _with_rows(batches: Batches, count: int) -> Batches:
    """Batches in which whoever has no row is nobody. [rows-silent]"""
    present = batches.present & (batches.indices < count)
    return Batches(np.minimum(batches.indices, max(count - 1, 0)), present)


def _of_steps(gate: Gate) -> StepMechanism:
    """The gate's mechanism, if it is one of steps."""
    mechanism = gate.mechanism
    if not isinstance(mechanism, NoisySums | BarkerTests | SampledBarkerTests):
        raise BoundaryError("This gate's mechanism is not one sequence of steps.")
    return mechanism


@quiet()
def check(step: Step, state: Any, example: Any, gate: Gate) -> tuple[Any, ...]:
    """Traces a step on shapes alone and proves that it keeps the rules of `tacit.privacy.check`.

    Args:
        step: The step, as for `run`.
        state: Where it starts.
        example: Inputs of one step, or their shapes.
        gate: The gate that it would run through. No row is read.

    Returns:
        What the step does, which must not depend on the width of the batch. [gate-check]

    Raises:
        BoundaryError: If the step would take rows past the release.
        InvalidArgument: If JAX cannot trace the step.
    """
    return _checked(step, state, example, gate)


def _checked(step: Step, state: Any, example: Any, gate: Gate) -> tuple[Any, ...]:
    mechanism = _of_steps(gate)
    return checked_form(step, mechanism.lattice, state, example, _made_up(gate, mechanism))


def _made_up(gate: Gate, mechanism: StepMechanism) -> Batch:
    """A batch of one made-up unit."""
    return Batch(
        units=gate._private.made_up_units(),
        secret=np.zeros((1, 2), np.uint32) if has_secrets(mechanism) else None,
        present=np.zeros(1, np.bool_),
        noise=np.zeros(mechanism.words, np.int32),
        clip=np.float32(1),
        grid=np.float32(1),
    )

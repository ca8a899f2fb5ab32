"""The gate: the one object that reads rows.

An algorithm hands the gate a pure step function. The step sees its own state, its public inputs, and a
`Release` it must call once. Before anything runs, the step is traced on shapes alone, and the trace is walked:
rows may reach what leaves only through the release, whose noise may be used only there. Then the same step is
compiled and run over blocks of steps, with sampling and noise drawn on the host.
"""

import dataclasses
from collections.abc import Callable, Iterator
from itertools import chain
from threading import Lock
from typing import Any, ClassVar, NamedTuple, Protocol

import jax
import numpy as np

from tacit.errors import BoundaryError
from tacit.privacy.checkpoint import GateCheckpoint, RunPosition, concatenate_outputs
from tacit.privacy.compiled_step import (
    SharedInputs,
    Source,
    Step,
    StepInputs,
    checked_fingerprint,
    compile_block,
    first_step_shapes,
    step_output_shapes,
)
from tacit.privacy.mechanisms import (
    BarkerTests,
    Batch,
    Mechanism,
    NoisySums,
    SampledBarkerTests,
    Stages,
    StepMechanism,
    has_secrets,
)
from tacit.privacy.noise import Randomness
from tacit.privacy.rows import Rows
from tacit.privacy.sampling import Batches, padded_length
from tacit.privacy.trace import silenced_jax

# Places in the batches of one block, for each of which sampling needs some thirty bytes; and
# bytes of a block's units, where they are fetched on the host.
_MAX_BATCH_PLACES, _MAX_BLOCK_BYTES = 2**21, 2**25
# Units that steps on everyone look at in the time that a place in a batch takes.
_UNITS_PER_PLACE = 2**7


class Streams(NamedTuple):
    """What steps draw from. ``secret`` are bits that units get of their own, or None."""

    sampling: Randomness
    noise: Randomness
    secret: Randomness | None

    @property
    def all(self) -> list[Randomness]:
        """The streams that there are."""
        return [each for each in self if each is not None]


class BlockRunner:
    """Runs blocks of steps on all units, with batches, secret words and noise of the host.

    ``steps`` of them fit into memory at once. Batches are of ``looked_at`` units.
    """

    def __init__(
        self, rows: Rows, mechanism: StepMechanism, looked_at: int, bits: Streams, every: int
    ) -> None:
        self._rows, self._mechanism = rows, mechanism
        self._looked_at, self._bits = looked_at, bits
        on_host = rows.on_disk and not mechanism.everyone
        self.source: Source = "everyone" if mechanism.everyone else "host" if on_host else "memory"
        # Of steps on everyone that draw for units, tables of about the same length share a program.
        alike = mechanism.everyone and has_secrets(mechanism)
        length = padded_length(rows._count) if alike else None
        units: Any = None if on_host else rows._device_fields(length)
        present = None
        if mechanism.everyone:
            present = np.arange(units.length) < rows._count
            # Without secret words, what bounds a block is its time: nothing is stored within one.
            places = len(present) if has_secrets(mechanism) else len(present) // _UNITS_PER_PLACE
            self._capacity = max(1, places)
        else:
            self._capacity = mechanism.capacity(looked_at)
        self._everyone = SharedInputs(units, present, **clip_and_grid(mechanism))
        slots = (
            min(_MAX_BATCH_PLACES, _MAX_BLOCK_BYTES // rows.unit_bytes)
            if on_host
            else _MAX_BATCH_PLACES
        )
        self.steps = even_block_length(every, max(1, min(every, slots // self._capacity)))

    def compile(self, step: Step, form: tuple[Any, ...]) -> None:
        """Makes the program of a step that was checked and has this form."""
        self._program = compile_block(step, self._mechanism.lattice, form, self.source)

    def run(self, start: int, steps: int, state: Any, given: Any) -> tuple[Any, Any]:
        """Some steps from a state: the next state, and their outputs."""
        return self._program(self._everyone, state, self._drawn(start, steps, given))

    def _drawn(self, start: int, steps: int, given: Any) -> StepInputs:
        """Inputs of some steps, with draws that are used for nothing else."""
        mechanism, bits = self._mechanism, self._bits
        noise = mechanism.noise(bits.noise, start, steps)
        whom = present = None
        width = self._capacity
        if not mechanism.everyone:
            batches = self._batches(steps, width)
            on_host = self.source == "host"
            whom = self._rows._fetch(batches.indices) if on_host else batches.indices
            present = np.pad(batches.present, [(0, 0), (0, 1)])  # a place more, for nobody
            width = present.shape[1]
        secret = None
        if isinstance(mechanism, NoisySums) and bits.secret is not None:
            secret = mechanism.secret(bits.secret, steps, width)
        return StepInputs(whom, present, secret, noise, given)

    def _batches(self, steps: int, capacity: int) -> Batches:
        """Whom the steps look at, and who of them is real."""
        looked_at, count = self._looked_at, self._rows._count
        batches = self._mechanism.batches(self._bits.sampling, looked_at, steps, capacity)
        return batches if looked_at == count else _mark_units_without_rows(batches, count)


def clip_and_grid(mechanism: StepMechanism) -> dict[str, Any]:
    """What units are clipped to, and the distance of the lattice's points."""
    clip = np.float32(mechanism.clip)
    grid = clip / np.float32(mechanism.lattice.points)  # a power of two
    return {"clip": clip, "grid": grid}


def even_block_length(every: int, most: int) -> int:
    """How many of a number of steps run at once: parts that are alike, or nearly, compile once or twice.

    >>> even_part(250, 40), even_part(251, 40)
    (25, 36)
    """
    whole = next(part for part in range(most, 0, -1) if every % part == 0)
    return whole if 2 * whole > most else -(-every // -(-every // most))


def _mark_units_without_rows(batches: Batches, count: int) -> Batches:
    """Batches in which whoever has no row is nobody. [rows-silent]"""
    present = batches.present & (batches.indices < count)
    return Batches(np.minimum(batches.indices, max(count - 1, 0)), present)


# Of what fields of a mechanism are made, which nobody can change once it is charged.
_PLAIN_TYPES = {int, float, str, bool, type(None), np.float64, np.float32, np.int64, np.int32}


class Runner(Protocol):
    """Runs blocks of a gate's steps; so many ``steps`` at once, whose words are drawn as ``source`` says."""

    steps: int
    source: Any

    def compile(self, step: Step, form: tuple[Any, ...]) -> None:
        """Makes the program of a step that was checked and has this form."""
        ...

    def run(self, start: int, steps: int, state: Any, given: Any) -> tuple[Any, Any]:
        """Some steps from a state: the next state, and their outputs."""
        ...


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
        keeper: GateCheckpoint | None = None,
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
        # Bits that units get of their own, where the mechanism has them: a stream for nothing else.
        sampling, noise = chosen.child("sampling"), chosen.child("noise")
        secret = chosen.child("secret") if has_secrets(mechanism) else None
        self._bits = Streams(sampling, noise, secret)

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

    def _blocks(self, every: int) -> Runner:
        """What runs blocks of its steps."""
        return BlockRunner(self._private, step_mechanism(self), self._looked_at, self._bits, every)

    def _streams(self) -> list[Randomness]:
        """What its steps draw from, and how far it is must be stored."""
        return self._bits.all

    def _agreed(self, position: RunPosition, returns: Callable[[], Any]) -> RunPosition:  # noqa: ARG002
        """The position that all processes of the run begin at."""
        return position

    def agreed(self, word: int) -> int:
        """A public number that all processes of the run have."""
        return word

    def _shared(self, state: Any) -> Any:
        """The state of the next step that all processes of the run have."""
        return state

    @property
    def simulated(self) -> Any:
        """Public units that were drawn from the schema alone, or None if there is no schema."""
        return self._private.simulated

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
            declared = {field.name for field in dataclasses.fields(value)}
            return vars(value).keys() == declared and all(map(self._is_fixed, vars(value).values()))
        if type(value) is tuple:
            return all(map(self._is_fixed, value))
        if type(value) is not np.ndarray:
            return type(value) in _PLAIN_TYPES
        below: Any = value.base
        return type(below) is bytes


@silenced_jax()
def run(
    gate: Gate,
    step: Step,
    state: Any,
    inputs: Callable[[int, int], Any],
    *,
    block: int = 250,
    progress: Callable[[int], None] | None = None,
    update: Callable[[Any], Any] | None = None,
) -> tuple[Any, Any]:
    """Runs all steps of a gate's mechanism.

    Args:
        gate: The gate, which must not have been used.
        step: A pure function ``(state, input, release) -> (state, output)``.
        state: Where the steps start.
        inputs: ``inputs(first, count)`` returns the public inputs of some steps, with a leading axis
            for the steps. It is asked for ``block`` steps at a time, whatever runs at once; with ``update``
            for one at a time.
        block: The number of steps between two calls of ``progress``.
        progress: Called with the number of steps done, every ``block`` steps and at the end. How often
            does not depend on the number of rows.
        update: Decides between two steps, on the host, where the next one starts: it takes a step's
            outputs and returns the next state, of the same shapes. The state that the step itself
            returns is then not used. It is given released values only [gate-update]. It must be a
            function of these and of public numbers, because a run that goes on calls it again with the
            outputs that were kept.

    Returns:
        The last state, and the outputs with a leading axis for the steps.

    Raises:
        BoundaryError: If the gate has been used, or the step would take rows past the release.
    """
    gate._use_up()
    mechanism = step_mechanism(gate)
    every = min(block, mechanism.num_steps) if update is None else 1
    given = inputs(0, every)
    form = _check_step(step, state, first_step_shapes(given), gate)
    blocks = gate._blocks(every)
    blocks.compile(step, form)
    later = (
        inputs(first, min(every, mechanism.num_steps - first))
        for first in range(every, mechanism.num_steps, every)
    )
    done, state, outputs = _start_position(gate, blocks, step, form, state, chain([given], later))
    if update is not None:
        state = gate._shared(state)
    if update is not None and done:
        for number in range(done):
            update(jax.tree.map(lambda leaf, number=number: leaf[number], outputs[0]))
    for first in range(done - done % every, mechanism.num_steps, every):
        end = min(first + every, mechanism.num_steps)
        given = given if first == 0 else inputs(first, end - first)
        for start in range(max(first, done), end, blocks.steps):
            steps = min(blocks.steps, end - start)
            here = slice(start - first, start - first + steps)
            some = jax.tree.map(lambda leaf, here=here: leaf[here], given)
            state, out = blocks.run(start, steps, state, some)
            outputs.append(jax.tree.map(np.asarray, out))
            if update is not None:
                state = gate._shared(update(jax.tree.map(lambda leaf: leaf[0], outputs[-1])))
            _store_position(gate, RunPosition(start + steps, state, outputs))
        if progress is not None and (end % block == 0 or end == mechanism.num_steps):
            progress(end)
    return state, concatenate_outputs(outputs)


def _start_position(
    gate: Gate, blocks: Runner, step: Step, form: tuple[Any, ...], state: Any, given: Iterator[Any]
) -> RunPosition:
    """Where the steps begin: where they were, if the gate is that of a run that goes on. [kept-run]

    A run that is kept asks with the inputs of all its steps, one block after the other.
    """
    mechanism, position = step_mechanism(gate), RunPosition(0, state, [])
    first = next(given)

    def returns() -> Any:
        batch = dummy_batch(gate, mechanism)
        return step_output_shapes(step, mechanism.lattice, state, first_step_shapes(first), batch)[
            1
        ]

    if gate._keeper is not None:
        text, made, returned = form
        drawn = blocks.steps, blocks.source  # how words are drawn
        asked = [repr(mechanism), drawn, text, *made, repr(returned), state, first]
        gate._keeper.ask(chain(asked, given))
        position = gate._keeper.position(state, returns, gate._streams())
    return gate._agreed(position, returns)


def _store_position(gate: Gate, position: RunPosition) -> None:
    if gate._keeper is not None:
        last = position.steps == gate.mechanism.num_steps
        gate._keeper.keep(position, gate._streams(), last=last)


def step_mechanism(gate: Gate) -> StepMechanism:
    """The gate's mechanism, if it is one of steps."""
    mechanism = gate.mechanism
    if not isinstance(mechanism, NoisySums | BarkerTests | SampledBarkerTests):
        raise BoundaryError("This gate's mechanism is not one sequence of steps.")
    return mechanism


@silenced_jax()
def check(step: Step, state: Any, example: Any, gate: Gate) -> tuple[Any, ...]:
    """Traces a step on shapes alone and proves that it keeps the rules of `tacit.privacy.trace`.

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
    return _check_step(step, state, example, gate)


def _check_step(step: Step, state: Any, example: Any, gate: Gate) -> tuple[Any, ...]:
    mechanism = step_mechanism(gate)
    return checked_fingerprint(
        step, mechanism.lattice, state, example, dummy_batch(gate, mechanism)
    )


def dummy_batch(gate: Gate, mechanism: StepMechanism) -> Batch:
    """A batch of one made-up unit."""
    return Batch(
        units=gate._private.made_up_units(),
        secret=np.zeros((1, 2), np.uint32) if has_secrets(mechanism) else None,
        present=np.zeros(1, np.bool_),
        noise=np.zeros(mechanism.words, np.int32),
        clip=np.float32(1),
        grid=np.float32(1),
    )

"""The gate: the one object that reads rows.

An algorithm hands the gate a pure step function. The step sees its own state, its public inputs, and a
`Release` it must call once. Before anything runs, the step is traced on shapes alone, and the trace is walked
(`tacit.privacy.trace`): rows may reach what leaves only through the release, whose noise may be used only there.
Then the same step is compiled and run over blocks of steps, with sampling and noise drawn on the host.

`open_gate` is the one place that chooses how a run is carried out. A plain run is a `Session`: one process,
from the first step, nothing stored. Runs that can be resumed (`tacit.privacy.checkpoint`) and runs of several
processes (`tacit.privacy.distributed`) have sessions of their own around or instead of it.

Formal guarantees:
    What leaves `run` is the outputs of the steps, which are functions of releases and public inputs.
    The mechanism that is executed is the one that was charged: it is one of a closed list of classes, made of
    plain values that nobody can change.
    A gate is good for one run, in the process that opened it. Every block of steps draws fresh words.
"""

import dataclasses
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Lock
from typing import Any, ClassVar, NamedTuple, Protocol

import jax
import numpy as np
from jax.experimental.compilation_cache import compilation_cache

from tacit._typing import AnyArray, PyTree
from tacit.errors import BoundaryError
from tacit.privacy.clipping import released_numbers, wide_integers
from tacit.privacy.mechanisms import (
    BarkerTests,
    Batch,
    Mechanism,
    NoisySums,
    SampledBarkerTests,
    Stages,
    StepMechanism,
    has_secrets,
    stopped_event,
)
from tacit.privacy.noise import Randomness
from tacit.privacy.rows import Rows, Units
from tacit.privacy.sampling import Batches, padded_length
from tacit.privacy.trace import (
    Fingerprint,
    SharedInputs,
    Step,
    StepInputs,
    checked_fingerprint,
    compile_block,
    compile_rest,
    compile_sum,
    first_step_shapes,
    step_output_shapes,
)

# Places in the batches of one block, for each of which sampling needs some thirty bytes; and
# bytes of a block's units, where they are fetched on the host.
_MAX_BATCH_PLACES, _MAX_BLOCK_BYTES = 2**21, 2**25
# Units that steps on everyone look at in the time that a place in a batch takes.
_UNITS_PER_PLACE = 2**7
# Of what fields of a mechanism are made, which nobody can change once it is charged.
_PLAIN_TYPES = {int, float, str, bool, type(None), np.float64, np.float32, np.int64, np.int32}


class Streams(NamedTuple):
    """What steps draw from. ``secret`` are bits that units get of their own, or None."""

    sampling: Randomness
    noise: Randomness
    secret: Randomness | None


class Runner(Protocol):
    """Runs blocks of a gate's steps; so many ``steps`` at once, whose words are drawn as ``source`` says."""

    steps: int
    source: str

    def compile(self, step: Step, fingerprint: Fingerprint) -> None:
        """Makes the program of a step that was checked and has this fingerprint."""
        ...

    def run(self, start: int, steps: int, state: PyTree, given: PyTree) -> tuple[PyTree, PyTree]:
        """Some steps from a state: the next state, and their outputs."""
        ...


class RunPosition(NamedTuple):
    """How many steps are done, the state after them, and the outputs of blocks of them."""

    steps: int
    state: PyTree
    outputs: list[PyTree]


class RunRequest(NamedTuple):
    """What a session learns of a run before its first step.

    ``position`` is where it starts. ``question`` gives all that decides on what is asked of the rows: bytes, and
    trees of texts, numbers and arrays. ``outputs`` gives the shapes of what a step returns beside its state.
    """

    position: RunPosition
    question: Callable[[], Iterable[PyTree]]
    outputs: Callable[[], PyTree]


class Session:
    """How a run of a gate is carried out: in this process, from the first step, with nothing stored.

    Subclasses store the run or share it between processes; here these hooks do nothing. ``is_first`` is whether
    this process draws the noise, stores the run and charges.
    """

    is_first = True

    def stage(self, number: int) -> "Session":  # noqa: ARG002
        """The session of a gate of several."""
        return self

    def runner(self, gate: "Gate", every: int) -> Runner:
        """What runs blocks of a gate's steps."""
        mechanism = gate.mechanism
        in_pieces = every == 1 and isinstance(mechanism, NoisySums) and mechanism.uses_all_units
        return PieceRunner(gate) if in_pieces else BlockRunner(gate, every)

    def streams(self, gate: "Gate") -> list[Randomness]:
        """What a gate's steps draw from, one word after the other."""
        return [each for each in gate._bits if each is not None]

    def start(self, gate: "Gate", request: RunRequest) -> RunPosition:  # noqa: ARG002
        """Where the steps begin. Called when the gate is used, before anything is computed from rows."""
        return request.position

    def start_draw(self, gate: "Gate", given: Sequence[PyTree]) -> None:
        """The same for a gate without steps."""

    def store(self, gate: "Gate", position: RunPosition) -> None:
        """Called after every block of steps, before anything of it leaves."""

    def share(self, state: PyTree) -> PyTree:
        """The state of the next step that all processes of the run have."""
        return state

    def agree(self, number: int) -> int:
        """A public number that all processes of the run have."""
        return number


class Gate:
    """Rows, a mechanism (see `tacit.privacy.mechanisms`), and the randomness that protects them.

    Good for one run. `open_gate` makes it.
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
        session: Session | None = None,
    ) -> None:
        # A foreign class could report one event and execute another, or change later.
        if type(mechanism) not in self._mechanisms or not self._is_fixed(mechanism):
            raise BoundaryError(
                "A gate takes the mechanisms of tacit.privacy, of plain numbers, and no others."
            )
        self._randomness = chosen = randomness or Randomness()
        self._charged, self._session = mechanism, session or Session()
        # Taken once and never given back, by whichever thread or copy of the gate comes first.
        self._private, self._use = rows, Lock()
        self._stopped = False
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
    def stopped(self) -> bool:
        """Whether its run stopped after `NoisySums.stop_after` steps. It is used up, so that no other will follow."""
        return self._stopped

    @property
    def unit(self) -> str:
        """What is protected, in a word."""
        return self._private.unit

    @property
    def simulated(self) -> Units | None:
        """Public units that were drawn from the schema alone, or None if there is no schema."""
        return self._private.simulated

    def agree(self, number: int) -> int:
        """A public number that all processes of the run have."""
        return self._session.agree(number)

    def check_size(self) -> None:
        """Raises, before anything is charged, if a mechanism needs another public number of units."""
        for mechanism in self._of_fixed_size():
            mechanism.check_size(self._private._units)

    @property
    def public_count(self) -> bool:
        """Whether a mechanism takes the number of units as public."""
        return bool(self._of_fixed_size())

    @property
    def _population(self) -> int:
        """Units that batches are drawn from; those without a row too, if their number is public."""
        return self._private._units if self.public_count else self._private._count

    def _of_fixed_size(self) -> list[SampledBarkerTests]:
        """The mechanisms whose batches have a fixed size, for which the number of units is public."""
        mechanism = self.mechanism
        several = mechanism.mechanisms if isinstance(mechanism, Stages) else (mechanism,)
        return [each for each in several if isinstance(each, SampledBarkerTests)]

    def stages(self) -> list["Gate"]:
        """A gate for each mechanism of several, each with randomness of its own."""
        if not isinstance(self.mechanism, Stages):
            raise BoundaryError("This gate has a single mechanism.")
        if any(map(stopped_event, self.mechanism.mechanisms)):
            raise BoundaryError("Of several mechanisms under one charge none can stop early.")
        self._use_up()
        rows, source, session = self._private, self._randomness, self._session
        return [
            Gate(rows, mechanism, source.child(f"stage {i}"), session.stage(i))
            for i, mechanism in enumerate(self.mechanism.mechanisms)
        ]

    def _use_up(self) -> None:
        """Raises if the gate has been used."""
        if not self._use.acquire(blocking=False):
            raise BoundaryError("This gate has been used: its charge is spent. Open another one.")

    def _is_fixed(self, value: object) -> bool:
        """Whether a part of a mechanism can never change: what is done must be what was charged."""
        if type(value) in self._mechanisms | self._parts:
            # No attribute of the instance may hide a method of its class.
            declared = {field.name for field in dataclasses.fields(value)}  # type: ignore[arg-type]
            return vars(value).keys() == declared and all(map(self._is_fixed, vars(value).values()))
        if type(value) is tuple:
            return all(map(self._is_fixed, value))
        if type(value) is not np.ndarray:
            return type(value) in _PLAIN_TYPES
        below: object = value.base
        return type(below) is bytes


def open_gate(
    rows: Rows,
    mechanism: Mechanism,
    randomness: Randomness | None = None,
    decorate: Callable[[Session], Session] | None = None,
) -> Gate:
    """Opens the gate for a mechanism.

    Args:
        rows: The private rows.
        mechanism: What will be done, and is charged.
        randomness: What protects the rows; by default keyed by the operating system.
        decorate: Makes another session of the run's, such as one that is stored and can be resumed
            (`tacit.privacy.checkpoint.checkpointed`).

    Returns:
        The gate, which is good for one run.

    Raises:
        BoundaryError: If the mechanism is not one of `tacit.privacy`, or could change later.
    """
    kind, session = Gate, Session()
    if type(mechanism) not in Gate._mechanisms:
        from tacit.privacy.one_draw.gate import DrawGate

        kind = DrawGate
    if type(rows) is not Rows:
        from tacit.privacy.distributed import DistributedSession, PartitionedRows

        if isinstance(rows, PartitionedRows):
            session = DistributedSession(rows, mechanism)
    if decorate is not None:
        session = decorate(session)
    return kind(rows, mechanism, randomness, session)


def step_mechanism(gate: Gate) -> StepMechanism:
    """The gate's mechanism, if it is one of steps."""
    mechanism = gate.mechanism
    if not isinstance(mechanism, NoisySums | BarkerTests | SampledBarkerTests):
        raise BoundaryError("This gate's mechanism is not one sequence of steps.")
    return mechanism


# JAX's settings. Loggers that were made to say less, and the levels they had; and how many gates work.
_saved_levels: dict[logging.Logger, int] = {}
_settings_lock, _active_gates = Lock(), [0]
# Where compiled programs shall be stored, by all who have asked, and what was set before the first of them.
_CACHE_FOLDER_OPTION = "jax_compilation_cache_dir"
_CACHE_MIN_SECONDS_OPTION = "jax_persistent_cache_min_compile_time_secs"
_DUMP_FOLDER_OPTION = "jax_dump_ir_to"  # where JAX writes programs before they are compiled
_cache_requests: dict[object, Path | None] = {}
_saved_options: dict[str, object] = {}


@contextmanager
def silenced_jax() -> Iterator[None]:
    """Within this no setting of the process makes JAX say or do something because of rows.

    One that stops at NaN would tell that a row has it; one that logs what is compiled, or moved to
    the device, prints shapes, which hold how many rows there are, as JAX's loggers do below a
    warning; one that stores compiled programs writes those shapes into files that others may read;
    without compilation every operation runs by itself. [gate-settings]
    """
    with ExitStack() as off:
        off.enter_context(_silenced_loggers())
        off.enter_context(compilation_cache_in(None))
        off.enter_context(jax.transfer_guard("allow"))
        for setting in (
            jax.debug_nans, jax.debug_infs, jax.log_compiles, jax.explain_cache_misses,
            jax.enable_checks, jax.check_tracer_leaks, jax.disable_jit,
        ):  # fmt: skip
            off.enter_context(setting(False))
        yield


@contextmanager
def _silenced_loggers() -> Iterator[None]:
    """JAX's loggers say nothing below a warning, for as long as a gate works in any thread."""
    with _settings_lock:
        _active_gates[0] += 1
        for logger in _verbose_loggers():
            _saved_levels.setdefault(logger, logger.level)
            logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        with _settings_lock:
            _active_gates[0] -= 1
            while not _active_gates[0] and _saved_levels:
                logger, level = _saved_levels.popitem()
                logger.setLevel(level)


def _verbose_loggers() -> list[logging.Logger]:
    """JAX's loggers that would say more; others of its ask the first of these."""
    made = [logging.getLogger("jax"), *logging.Logger.manager.loggerDict.values()]
    return [
        each
        for each in made
        if isinstance(each, logging.Logger)
        and each.name.split(".")[0] == "jax"
        and each.getEffectiveLevel() < logging.WARNING
    ]


@contextmanager
def compilation_cache_in(folder: Path | None) -> Iterator[None]:
    """Stores programs that any thread compiles meanwhile in a folder, or nowhere.

    JAX has one such setting for the whole process. So while anybody says nowhere, it is nowhere.
    """
    asked = object()
    with _settings_lock:
        if not _cache_requests:
            for name in (_CACHE_FOLDER_OPTION, _CACHE_MIN_SECONDS_OPTION, _DUMP_FOLDER_OPTION):
                _saved_options[name] = jax.config.values[name]
        _cache_requests[asked] = folder
        _set_compilation_cache()
    try:
        yield
    finally:
        with _settings_lock:
            del _cache_requests[asked]
            _set_compilation_cache()


def _set_compilation_cache() -> None:
    """Tells JAX where to store programs."""
    wanted = dict(_saved_options)
    if _cache_requests:
        *_, last = _cache_requests.values()
        nowhere = last is None or None in _cache_requests.values()
        wanted |= {
            _CACHE_FOLDER_OPTION: None if nowhere else str(last),
            _CACHE_MIN_SECONDS_OPTION: 0.0,
        }
        wanted |= {_DUMP_FOLDER_OPTION: ""} if nowhere else {}
    if wanted[_DUMP_FOLDER_OPTION] != jax.config.values[_DUMP_FOLDER_OPTION]:
        jax.config.update(_DUMP_FOLDER_OPTION, wanted[_DUMP_FOLDER_OPTION])  # type: ignore[no-untyped-call]
    if wanted[_CACHE_FOLDER_OPTION] != jax.config.values[_CACHE_FOLDER_OPTION]:
        for name in (_CACHE_FOLDER_OPTION, _CACHE_MIN_SECONDS_OPTION):
            jax.config.update(name, wanted[name])  # type: ignore[no-untyped-call]
        compilation_cache.reset_cache()  # JAX chooses the folder only once


@silenced_jax()
def run(
    gate: Gate,
    step: Step,
    state: PyTree,
    inputs: Callable[[int, int], PyTree],
    *,
    block: int = 250,
    progress: Callable[[int], None] | None = None,
    update: Callable[[PyTree], PyTree] | None = None,
    stop: Callable[[PyTree], bool] | None = None,
) -> tuple[PyTree, PyTree]:
    """Runs all steps of a gate's mechanism; or the first of them, if it stops early.

    Args:
        gate: The gate, which must not have been used.
        step: A pure function ``(state, input, release) -> (state, output)``.
        state: Where the steps start.
        inputs: ``inputs(first, count)`` returns the public inputs of some steps, with a leading axis
            for the steps. It is called for ``block`` steps at a time, whatever runs at once; with ``update``
            for one at a time.
        block: The number of steps between two calls of ``progress``.
        progress: Called with the number of steps done, every ``block`` steps and at the end. How often
            does not depend on the number of rows.
        update: Decides between two steps, on the host, where the next one starts: it takes a step's
            outputs and returns the next state, of the same shapes. The state that the step itself
            returns is then not used. It is given released values only [gate-update]. It must be a
            function of these and of public numbers, because a run that goes on calls it again with the
            outputs that were kept.
        stop: Decides, by the outputs of step `NoisySums.stop_after`, whether the run ends there. Needs
            ``update``. It is given released values only, and must be a function of these
            and of public numbers, too.

    Returns:
        The last state, and the outputs with a leading axis for the steps that were run: all of them,
        unless it stopped (`Gate.stopped`).

    Raises:
        BoundaryError: If the gate has been used, the step would take rows past the release, or the
            mechanism cannot stop.
    """
    gate._use_up()
    mechanism, session = step_mechanism(gate), gate._session
    total = mechanism.num_steps
    every = min(block, total) if update is None else 1
    _check_can_stop(mechanism, update, stop)
    given = inputs(0, every)
    batch, example = dummy_batch(gate, mechanism), first_step_shapes(given)
    fingerprint = checked_fingerprint(step, mechanism.lattice, state, example, batch)
    runner = session.runner(gate, every)
    runner.compile(step, fingerprint)

    def question() -> Iterator[PyTree]:
        """The step, how words are drawn, and the inputs of all steps, one block after the other."""
        text, made, returned = fingerprint
        drawn = runner.steps, runner.source
        yield from (repr(mechanism), drawn, text, *made, repr(returned), state, given)
        yield from (inputs(n, min(every, total - n)) for n in range(every, total, every))

    def output_shapes() -> PyTree:
        return step_output_shapes(step, mechanism.lattice, state, example, batch)[1]

    request = RunRequest(RunPosition(0, state, []), question, output_shapes)
    done, state, outputs = session.start(gate, request)
    if update is not None:
        state = session.share(state)
        for number in range(done):
            seen = jax.tree.map(lambda leaf, number=number: leaf[number], outputs[0])
            # A run that went beyond that step cannot have stopped there any more.
            asked = stop if number + 1 == done else None
            _follow(gate, number + 1, seen, state, update, asked)
    for first in range(done - done % every, total, every):
        if gate.stopped:
            break
        end = min(first + every, total)
        given = given if first == 0 else inputs(first, end - first)
        for start in range(max(first, done), end, runner.steps):
            steps = min(runner.steps, end - start)
            here = slice(start - first, start - first + steps)
            some = jax.tree.map(lambda leaf, here=here: leaf[here], given)
            state, out = runner.run(start, steps, state, some)
            outputs.append(jax.tree.map(np.asarray, out))
            if update is not None:
                seen = jax.tree.map(lambda leaf: leaf[0], outputs[-1])
                state = session.share(_follow(gate, start + steps, seen, state, update, stop))
            session.store(gate, RunPosition(start + steps, state, outputs))
        if progress is not None and (end % block == 0 or end == total):
            progress(end)
    return state, concatenate_outputs(outputs)


def _check_can_stop(mechanism: Mechanism, update: object, stop: object) -> None:
    """Raises if a method would stop where its mechanism does not say so, or between blocks of steps."""
    if stop is not None and (update is None or not stopped_event(mechanism)):
        raise BoundaryError("A run can stop early only if its mechanism says after which step.")


def _follow(
    gate: Gate,
    number: int,
    seen: PyTree,
    state: PyTree,
    update: Callable[[PyTree], PyTree],
    stop: Callable[[PyTree], bool] | None,
) -> PyTree:
    """What a method decides by the outputs of step ``number``: where the next one starts, or that there is none.

    Of several processes, the first one decides whether the run stops. [gate-stop]
    """
    if stop is not None and number == gate.mechanism.stop_after:
        gate._stopped = bool(gate.agree(int(stop(seen))))
    return state if gate.stopped else update(seen)


def concatenate_outputs(outputs: Sequence[PyTree]) -> PyTree:
    """The outputs of several blocks, one after the other."""
    if len(outputs) == 1:
        return outputs[0]
    return jax.tree.map(lambda *parts: np.concatenate(parts), *outputs)


@silenced_jax()
def check(step: Step, state: PyTree, example: PyTree, gate: Gate) -> Fingerprint:
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
    mechanism = step_mechanism(gate)
    batch = dummy_batch(gate, mechanism)
    return checked_fingerprint(step, mechanism.lattice, state, example, batch)


def dummy_batch(gate: Gate, mechanism: StepMechanism) -> Batch:
    """A batch of one unit of zeros."""
    return Batch(
        units=gate._private.dummy_units(),
        secret=np.zeros((1, 2), np.uint32) if has_secrets(mechanism) else None,
        present=np.zeros(1, np.bool_),
        noise=np.zeros(mechanism.noise_words, np.int32),
        clip=np.float32(1),
        grid=np.float32(1),
    )


class BlockRunner:
    """Runs blocks of steps on all units, with batches, secret words and noise of the host.

    ``steps`` of them fit into memory at once.
    """

    def __init__(self, gate: Gate, every: int) -> None:
        self._rows, self._mechanism = rows, mechanism = gate._private, step_mechanism(gate)
        self._population, self._bits = gate._population, gate._bits
        on_host = rows.on_disk and not mechanism.uses_all_units
        self.source: str = (
            "everyone" if mechanism.uses_all_units else "host" if on_host else "memory"
        )
        # Of steps on everyone that draw for units, tables of about the same length share a program.
        alike = mechanism.uses_all_units and has_secrets(mechanism)
        length = padded_length(rows._count) if alike else None
        units = None if on_host else rows._device_fields(length)
        present = None
        if mechanism.uses_all_units and units is not None:
            present = np.arange(units.length) < rows._count
            # Without secret words, what bounds a block is its time: nothing is stored within one.
            places = len(present) if has_secrets(mechanism) else len(present) // _UNITS_PER_PLACE
            self._capacity = max(1, places)
        else:
            self._capacity = mechanism.batch_width(self._population)
        self._everyone = SharedInputs(units, present, **clip_and_grid(mechanism))
        most = _MAX_BATCH_PLACES
        if on_host:
            most = min(most, _MAX_BLOCK_BYTES // rows.unit_bytes)
        self.steps = even_block_length(every, max(1, min(every, most // self._capacity)))

    def compile(self, step: Step, fingerprint: Fingerprint) -> None:
        """Makes the program of a step that was checked and has this fingerprint."""
        self._program = compile_block(step, self._mechanism.lattice, fingerprint, self.source)

    def run(self, start: int, steps: int, state: PyTree, given: PyTree) -> tuple[PyTree, PyTree]:
        """Some steps from a state: the next state, and their outputs."""
        return self._program(self._everyone, state, self._draw(start, steps, given))

    def _draw(self, start: int, steps: int, given: PyTree) -> StepInputs:
        """Inputs of some steps, with draws that are used for nothing else."""
        mechanism, bits = self._mechanism, self._bits
        noise = mechanism.noise(bits.noise, start, steps)
        whom = present = None
        width = self._capacity
        if not mechanism.uses_all_units:
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
        """Whom the steps look at, and who of them is real; whoever has no row is nobody. [rows-silent]"""
        population, count = self._population, self._rows._count
        batches = self._mechanism.batches(self._bits.sampling, population, steps, capacity)
        if population == count:
            return batches
        present = batches.present & (batches.indices < count)
        return Batches(np.minimum(batches.indices, max(count - 1, 0)), present)


# Units in a piece. Programs on pieces do not depend on how many units there are.
_PIECE_WIDTH = 2048


class PieceRunner:
    """Runs steps on all units one after the other: the sum of each piece of the units, then what follows from the sum.

    Integers add up to the same in any order. All pieces are of one width, so that the program tells nothing of
    how many units there are, and tables of all lengths share it. [gate-pieces]
    """

    steps, source = 1, "pieces"

    def __init__(self, gate: Gate) -> None:
        self._rows, self._mechanism, self._bits = gate._private, gate.mechanism, gate._bits
        self._nobody = dummy_batch(gate, self._mechanism)._replace(**clip_and_grid(self._mechanism))
        shapes = self._rows.dummy_units()
        self._nobody_chunk = (
            np.zeros(_PIECE_WIDTH, np.bool_),
            jax.tree.map(
                lambda leaf: np.zeros((_PIECE_WIDTH, *leaf.shape[1:]), leaf.dtype), shapes
            ),
        )
        chunks = self._rows._chunks(_PIECE_WIDTH)
        # Rows on disk are read anew in every step, so that few of them are in memory.
        self._pieces = None if self._rows.on_disk else [jax.device_put(each) for each in chunks]

    def compile(self, step: Step, fingerprint: Fingerprint) -> None:
        """Makes the programs of a step that was checked and has this fingerprint."""
        lattice = self._mechanism.lattice
        self._sum = compile_sum(step, lattice, fingerprint, public_width=True)
        self._rest = compile_rest(step, lattice, fingerprint)

    def run(self, start: int, steps: int, state: PyTree, given: PyTree) -> tuple[PyTree, PyTree]:
        """One step from a state: the next state, and its outputs."""
        mechanism, nobody = self._mechanism, self._nobody
        own = jax.tree.map(lambda leaf: leaf[0], given)
        state = jax.device_put(state)
        held = self._rows._chunks(_PIECE_WIDTH) if self._pieces is None else self._pieces
        # Also of an empty table: the program is stored, and its absence would tell.
        pieces = held if self._rows._count else [self._nobody_chunk]
        sums = []
        for present, units in pieces:
            batch = nobody._replace(units=units, present=present)
            if self._bits.secret is not None:
                words = mechanism.secret(self._bits.secret, 1, _PIECE_WIDTH)[0]
                batch = batch._replace(secret=words)
            sums.append(self._sum(state, own, batch))
        drawn = mechanism.noise(self._bits.noise, start, steps)[0]
        total = wide_integers(drawn, mechanism.lattice)
        for each in sums:
            total = total + wide_integers(each, mechanism.lattice)
        released = released_numbers(total, mechanism.clip, mechanism.lattice)
        state, out = self._rest(state, own, nobody, released)
        return state, jax.tree.map(lambda leaf: np.asarray(leaf)[None], out)


def clip_and_grid(mechanism: StepMechanism) -> dict[str, AnyArray]:
    """What units are clipped to, and the distance of the lattice's points."""
    clip = np.float32(mechanism.clip)
    grid = clip / np.float32(mechanism.lattice.points)  # a power of two
    return {"clip": clip, "grid": grid}


def even_block_length(every: int, most: int) -> int:
    """How many of a number of steps run at once: parts that are alike, or nearly, compile once or twice.

    >>> even_block_length(250, 40), even_block_length(251, 40)
    (25, 36)
    """
    whole = next(part for part in range(most, 0, -1) if every % part == 0)
    return whole if 2 * whole > most else -(-every // -(-every // most))

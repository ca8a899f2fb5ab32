"""Checkpoints of runs that may be interrupted: secret keys, state of each gate, and digests of the question.

The folder is for its owner only. ``keys`` is written once, before anything is charged, and overwritten when the
run is finished. ``state`` is replaced as a whole, and encrypted with one of the keys. A run that goes on must
ask what it asked before, so that its noise never answers another question: functions are compared by digests
of their traces, with constants at any depth and with the traces of derivatives, for which a function may have
rules of its own. No digest that is not keyed depends on a value in a row or on how many rows there are.
PROOFS.md says why a run that goes on is the run that was charged. [kept-run]
"""

import hashlib
import hmac
import io
import json
import os
import re
import secrets
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from tacit._files import (
    DRAFT_PREFIX,
    UNFINISHED_FOLDER,
    lock_file,
    make_private_folder,
    overwrite_with_zeros,
    remove_folder,
    sync_folder,
    write_atomically,
)
from tacit._typing import AnyArray, HostArray, PyTree
from tacit.data.store import reserve
from tacit.errors import InvalidArgument, TacitError
from tacit.privacy.gate import (
    Gate,
    Runner,
    RunPosition,
    RunRequest,
    Session,
    concatenate_outputs,
)
from tacit.privacy.noise import Randomness
from tacit.privacy.rows import Rows
from tacit.privacy.trace import all_equations, strip_colours, trace_constants

_ADDRESS = re.compile(r"(?: at )?0x[0-9a-f]+")


def combined_digest(*parts: bytes) -> str:
    """One digest of several parts, each with its length."""
    found = hashlib.sha256()
    for each in parts:
        found.update(len(each).to_bytes(8, "big") + each)
    return found.hexdigest()


def strip_addresses(text: str) -> str:
    """A text without the addresses of objects, which differ between processes."""
    return _ADDRESS.sub("", text)


def array_bytes(leaf: AnyArray) -> bytes:
    """An array with its shape and type, as bytes; of random keys, their words."""
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    array = np.asarray(leaf)
    return f"{array.shape} {array.dtype} ".encode() + array.tobytes()


def density_digest(function: Callable[..., jax.Array], vector: jax.Array, *more: PyTree) -> str:
    """A digest of a function of a vector: of its trace, and of those of its derivatives.

    A trace of the value has the name of a function with rules of its own for derivatives, but not the
    rules. Methods take derivatives in both modes, to second order. [kept-model]
    """

    def value(vector: jax.Array) -> jax.Array:
        return function(vector, *more)

    def along(of: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
        return lambda at: jax.jvp(of, (at,), (jnp.ones_like(at),))[1]

    back, forth = jax.grad(value), along(value)
    found = [trace_digest(function, vector, *more).encode()]
    for each in (back, forth, along(back), along(forth)):
        try:
            found.append(trace_digest(each, vector).encode())
        except Exception as error:  # noqa: BLE001 (a model's own code, which no method can follow so)
            found.append(type(error).__name__.encode())
    return combined_digest(*found)


def trace_digest(function: Callable[..., PyTree], *arguments: PyTree) -> str:
    """A digest of the trace of a function, of every array in it, and of its arguments."""
    traced = jax.make_jaxpr(function)(*arguments)
    held = [array_bytes(each) for each in (*trace_arrays(traced), *jax.tree.leaves(arguments))]
    text = strip_addresses(strip_colours(str(traced.jaxpr)))
    return combined_digest(text.encode(), *held)


def trace_arrays(traced: ClosedJaxpr) -> Iterator[AnyArray]:
    """The arrays that a trace holds, at any depth: its text has few of them, and those shortened."""
    yield from trace_constants(traced)
    for equation in all_equations(traced.jaxpr):
        for atom in equation.invars:
            if isinstance(atom, Literal) and np.ndim(atom.val):
                yield atom.val
        for value in jax.tree.leaves(
            list(equation.params.values()), is_leaf=lambda x: isinstance(x, ClosedJaxpr | Jaxpr)
        ):
            if isinstance(value, np.ndarray | jax.Array):
                yield value


_KEYS_FILE, _STATE_FILE, _LOCK_FILE = "keys", "state", "lock"
# Seconds between two writes: at least so many, and so many times what a write takes.
_MIN_SECONDS_BETWEEN_WRITES, _WRITE_TIME_FACTOR = 2.0, 100.0
_NONCE_BYTES: Final = 12


# What decides on the last bits of what JAX computes, beside its version and XLA's flags.
_ARITHMETIC_OPTIONS = (
    "jax_default_matmul_precision", "jax_default_prng_impl", "jax_disable_most_optimizations",
    "jax_enable_x64", "jax_exec_time_optimization_effort", "jax_high_dynamic_range_gumbel",
    "jax_num_cpu_devices", "jax_numpy_dtype_promotion", "jax_optimization_level",
    "jax_random_seed_offset", "jax_softmax_custom_jvp", "jax_threefry_partitionable",
    "jax_use_direct_linearize",
)  # fmt: skip
# What XLA and the libraries of linear algebra read when they are loaded.
_ARITHMETIC_VARIABLES = (
    "XLA_FLAGS", "BLIS_NUM_THREADS", "GOTO_NUM_THREADS", "MKL_CBWR", "MKL_NUM_THREADS",
    "OMP_NUM_THREADS", "OPENBLAS_CORETYPE", "OPENBLAS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS",
)  # fmt: skip


def num_threads() -> int:
    """How many threads XLA computes with on the CPU, found as XLA finds it.

    A product of matrices may be cut into as many parts, which round by themselves.
    """
    for name in ("PJRT_NPROC", "NPROC"):
        with suppress(KeyError, ValueError):
            return max(0, int(os.environ[name]))
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # where the system does not tell
        return os.cpu_count() or 1


def arithmetic_settings() -> str:
    """Settings of JAX, XLA and linear algebra on which the last bits of a result depend."""
    known = jax.config.values
    held = {name: getattr(jax.config, name, known.get(name)) for name in _ARITHMETIC_OPTIONS}
    variables = {name: os.environ[name] for name in _ARITHMETIC_VARIABLES if name in os.environ}
    return repr((held, variables))


class CheckpointState(NamedTuple):
    """How far a gate is: a digest of its question, and its steps, streams, states and outputs."""

    question: str
    steps: int
    drawn: tuple[int, ...]
    arrays: bytes


class Checkpoint:
    """A run that was begun and is not finished, in the folder ``unfinished`` of its own folder.

    Make it with `begin` or `open`. One process at a time may hold it.

    Attributes:
        folder: The folder of the run.
        name: A random name, which the charge of the run carries.
        notes: What the owner needs to go on, such as the path of the data.
    """

    def __init__(self, folder: Path, held: Mapping[str, Any], lock: int) -> None:
        self.folder, self._held, self._lock = folder, held, lock
        self.name: str = held["name"]
        self.notes: Mapping[str, str] = held["notes"]
        self._seal = AESGCM(bytes.fromhex(held["seal"]))
        self._states = self._read()
        self._next = time.monotonic() + _MIN_SECONDS_BETWEEN_WRITES

    @classmethod
    def begin(
        cls,
        folder: Path,
        randomness: Randomness,
        rows: Rows,
        bound: Mapping[str, str],
        notes: Mapping[str, str],
        room: int,
    ) -> "Checkpoint":
        """Writes the keys of a run, before anything is charged.

        Args:
            folder: The folder of the run, made if necessary.
            randomness: What protects the rows. Nothing may have been drawn from it.
            rows: The private rows.
            bound: What must be the same when the run goes on: digests or public words, by the words
                of the message if they differ, such as "another model".
            notes: What the owner needs to go on.
            room: About how many bytes the run will need.

        Returns:
            The run.

        Raises:
            InvalidArgument: If the folder cannot be written, or has too little room.
        """
        key, seal, mac = randomness._key, secrets.token_bytes(32), secrets.token_bytes(32)
        held = {
            "note": "Secret keys of an unfinished run of Tacit. Whoever reads them can undo its noise.",
            "name": secrets.token_hex(8),
            "key": key.hex(),
            "seeded": randomness.seeded,
            "seal": seal.hex(),
            "mac": mac.hex(),
            "rows": rows._keyed_digest(mac).hex(),
            "bound": dict(bound),
            "notes": dict(notes),
        }
        place = folder / UNFINISHED_FOLDER
        try:
            make_private_folder(place)
            return cls(
                folder, held, _write_new_keys(folder, json.dumps(held, indent=1).encode(), room)
            )
        except OSError as error:
            with suppress(OSError):
                remove_folder(place)
            raise InvalidArgument(
                f"The run cannot be kept in {folder}: {error.strerror}. Nothing was charged."
            ) from None

    @classmethod
    def open(cls, folder: Path) -> "Checkpoint":
        """Opens a run to go on with it; raises if there is none, or another process has it."""
        place = folder / UNFINISHED_FOLDER
        if not is_resumable(folder):
            raise InvalidArgument(f"{folder} holds no unfinished run.")
        lock = lock_file(place / _LOCK_FILE)
        try:
            held = json.loads((place / _KEYS_FILE).read_bytes())
            for each in place.glob(f"{DRAFT_PREFIX}*"):
                each.unlink()
            return cls(folder, held, lock)
        except (OSError, ValueError, KeyError, TypeError):
            os.close(lock)
            raise _damaged_error(place / _KEYS_FILE) from None
        except BaseException:
            os.close(lock)
            raise

    def randomness(self) -> Randomness:
        """The randomness that protects the rows, as it was at the beginning."""
        return Randomness.from_key(bytes.fromhex(self._held["key"]), seeded=self._held["seeded"])

    @property
    def started(self) -> bool:
        """Whether anything was computed from rows and stored. A question is stored before that."""
        return any(held.steps for held in self._states.values())

    @property
    def has_question(self) -> bool:
        """Whether what is asked of the rows is stored; before that, nothing can have been charged."""
        return bool(self._states)

    def renew(self, randomness: Randomness) -> None:
        """Exchanges the keys and the name of a run without a question. [kept-renewed]

        Until its question is stored a run is not bound to all that it may ask, and a copy of the
        folder could ask something else with the same noise.
        """
        held = {**self._held, "name": secrets.token_hex(8), "key": randomness._key.hex()}
        try:
            write_atomically(self.place / _KEYS_FILE, json.dumps(held, indent=1).encode())
        except OSError as error:
            raise InvalidArgument(
                f"The run cannot be kept in {self.folder}: {error.strerror}. Nothing was charged."
            ) from None
        self._held, self.name = held, held["name"]

    @property
    def place(self) -> Path:
        """The folder that only the owner can enter, where a result waits until it may leave."""
        return self.folder / UNFINISHED_FOLDER

    def check_same(self, rows: Rows, bound: Mapping[str, str]) -> None:
        """Raises if the rows or anything else differs from what the run was begun with."""
        before, mac = self._held["bound"], bytes.fromhex(self._held["mac"])
        for name in {**before, **bound}:
            held, now = before.get(name), bound.get(name)
            if held != now:
                raise self._other(f"{name} ({held}, now {now})" if _is_number(held) else name)
        if not hmac.compare_digest(rows._keyed_digest(mac).hex(), self._held["rows"]):
            raise self._other("other data")

    def _other(self, what: str) -> InvalidArgument:
        return InvalidArgument(
            f"The run in {self.folder} was begun with {what}. It can go on only as it was begun, because "
            "its noise must never answer another question. Begin a new run in another folder."
        )

    def state(self, gate: str, question: str) -> CheckpointState | None:
        """How far a gate was when it was last stored, or None; raises if it asks something else."""
        found = self._states.get(gate)
        if found is not None and found.question != question:
            raise self._other("another model, method or version of a library")
        return found

    @property
    def due(self) -> bool:
        """Whether it is time to store."""
        return time.monotonic() >= self._next

    def store(self, gate: str, state: CheckpointState, *, last: bool) -> None:
        """Stores how far a gate is, on disk before this returns.

        If it cannot be written, the last one is still there, and the run goes on. Only the ``last``
        one of a gate has to be written, as nothing may leave before it is stored.
        """
        begun = time.monotonic()
        self._states[gate] = state
        try:
            write_atomically(self.folder / UNFINISHED_FOLDER / _STATE_FILE, self._sealed())
        except OSError as error:
            if last:
                raise TacitError(
                    f"What the run found cannot be written to {self.folder} ({error.strerror})."
                ) from None
        now = time.monotonic()
        self._next = now + max(_MIN_SECONDS_BETWEEN_WRITES, _WRITE_TIME_FACTOR * (now - begun))

    def _sealed(self) -> bytes:
        """All standings as bytes: a line about each, and their arrays."""
        facts = [
            [gate, held.question, held.steps, list(held.drawn), len(held.arrays)]
            for gate, held in self._states.items()
        ]
        arrays = b"".join(held.arrays for held in self._states.values())
        nonce = os.urandom(_NONCE_BYTES)
        plain = json.dumps(facts).encode() + b"\n" + arrays
        return nonce + self._seal.encrypt(nonce, plain, self.name.encode())

    def _read(self) -> dict[str, CheckpointState]:
        path = self.folder / UNFINISHED_FOLDER / _STATE_FILE
        try:
            sealed = path.read_bytes()
            plain = self._seal.decrypt(
                sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], self.name.encode()
            )
        except FileNotFoundError:
            return {}
        except (InvalidTag, ValueError, OSError):
            raise _damaged_error(path) from None
        line, _, rest = plain.partition(b"\n")
        found = {}
        for gate, question, steps, drawn, size in json.loads(line):
            found[gate] = CheckpointState(question, steps, tuple(drawn), rest[:size])
            rest = rest[size:]
        return found

    def close(self) -> None:
        """Lets another process have the run."""
        if self._lock >= 0:
            os.close(self._lock)
        self._lock = -1

    def destroy(self) -> None:
        """Overwrites and removes the keys, and then all else, once the result is on disk."""
        overwrite_with_zeros(self.folder / UNFINISHED_FOLDER / _KEYS_FILE)
        self.close()
        destroy_checkpoint(self.folder)


def _write_new_keys(folder: Path, keys: bytes, room: int) -> int:
    """Writes the keys of a new run where there is room for it; the handle of its lock."""
    place = folder / UNFINISHED_FOLDER
    lock = lock_file(place / _LOCK_FILE)
    try:
        for each in {*place.iterdir()} - {place / _LOCK_FILE, place / _KEYS_FILE}:
            each.unlink()  # of a run that never began
        with tempfile.TemporaryFile(dir=place) as file:
            reserve(file, room)
        _check_not_begun(folder)
        write_atomically(place / _KEYS_FILE, keys)
        for each in (folder, folder.absolute().parent):
            sync_folder(each)
    except BaseException:
        os.close(lock)
        raise
    return lock


def _check_not_begun(folder: Path) -> None:
    if is_resumable(folder):
        raise InvalidArgument(f"Another process has just begun a run in {folder}.")


def is_resumable(folder: Path) -> bool:
    """Whether a folder has the keys of a run."""
    try:
        with (folder / UNFINISHED_FOLDER / _KEYS_FILE).open("rb") as keys:
            return keys.read(1) == b"{"
    except OSError:
        return False


def read_notes(folder: Path) -> tuple[str, Mapping[str, str]]:
    """The name of an unfinished run and its notes, without opening it."""
    try:
        held = json.loads((folder / UNFINISHED_FOLDER / _KEYS_FILE).read_bytes())
        return held["name"], held["notes"]
    except (OSError, ValueError, KeyError, TypeError):
        raise _damaged_error(folder / UNFINISHED_FOLDER / _KEYS_FILE) from None


def destroy_checkpoint(folder: Path) -> None:
    """Overwrites and removes the keys of a run, if there are any, and what was stored."""
    overwrite_with_zeros(folder / UNFINISHED_FOLDER / _KEYS_FILE)
    remove_folder(folder / UNFINISHED_FOLDER)


def _is_number(said: str | None) -> bool:
    """Whether what a run is bound to may be shown: a plain number, and not a digest."""
    return said is not None and said.isdecimal()


def _damaged_error(path: Path) -> TacitError:
    return TacitError(f"{path} is damaged, or belongs to another run; restore it to go on.")


def checkpointed(
    run: Checkpoint, charge: Callable[[], object] | None = None
) -> Callable[[Session], Session]:
    """Makes a session of one that is stored in a checkpoint, so that the run can go on. For `open_gate`.

    Args:
        run: The checkpoint.
        charge: Charges the run, or finds the charge that was made for it.

    Returns:
        A function from a session to one around it; of several processes, the first one stores the run.
    """

    def decorate(session: Session) -> Session:
        return CheckpointedSession(session, run, charge) if session.is_first else session

    return decorate


class CheckpointedSession(Session):
    """A session around another one, which stores how far a gate is and goes on from there. [kept-run]

    Args:
        session: The session around which it is.
        run: The checkpoint.
        charge: Charges the run, or finds the charge that was made for it.
        gate: The name of the gate in the run.
    """

    def __init__(
        self,
        session: Session,
        run: Checkpoint,
        charge: Callable[[], object] | None = None,
        gate: str = "gate",
    ) -> None:
        self._inner, self._run, self._charge = session, run, charge
        self._gate, self._question = gate, ""

    def stage(self, number: int) -> Session:
        """The session of a gate of several, which has a name of its own in the run."""
        inner = self._inner.stage(number)
        return CheckpointedSession(inner, self._run, self._charge, f"{self._gate} {number}")

    def runner(self, gate: Gate, every: int) -> Runner:
        """As of the session inside."""
        return self._inner.runner(gate, every)

    def start(self, gate: Gate, request: RunRequest) -> RunPosition:
        """Where the steps begin: where they were, with streams that are as far as they were."""
        self.ask(request.question())
        held = self._run.state(self._gate, self._question)
        if held is not None and held.steps:
            for stream, drawn in zip(self._inner.streams(gate), held.drawn, strict=True):
                stream.skip_to(drawn)
            request = request._replace(position=unpack_position(held.steps, held.arrays, request))
        return self._inner.start(gate, request)

    def start_draw(self, gate: Gate, given: Sequence[PyTree]) -> None:
        """Stores what is asked. A run that goes on draws anew, and the same."""
        mechanism, rows = gate.mechanism, gate._private.blank()
        asked: list[PyTree] = [type(mechanism).__name__, vars(mechanism)]
        if given:
            prior, density, constants = given
            vector = jnp.zeros(mechanism.dimension)
            if callable(prior):
                prior = density_digest(prior, vector, constants)
            likelihood = density_digest(density, vector, *rows.dummy_unit(), constants)
            asked += [prior, likelihood, constants]
        self.ask(asked)

    def ask(self, question: Iterable[PyTree]) -> None:
        """Says what will be asked of the rows; raises if it was something else before.

        The question is on disk before the run is charged, so that whoever copies a run that was charged
        copies its question. [kept-question]

        Args:
            question: All that decides on it: bytes, and trees of texts, numbers and arrays.
        """
        self._question = combined_digest(
            *(combined_digest(*_digestible(each)).encode() for each in question)
        )
        if self._run.state(self._gate, self._question) is None:
            self._run.store(self._gate, CheckpointState(self._question, 0, (), b""), last=True)
        if self._charge is not None:
            self._charge()

    def store(self, gate: Gate, position: RunPosition) -> None:
        """Stores a position if it is time to, or if it is the last, of a run that stops early too."""
        last = gate.stopped or position.steps == gate.mechanism.num_steps
        if last or self._run.due:
            drawn = tuple(stream.drawn for stream in self._inner.streams(gate))
            arrays = pack_position(position)
            held = CheckpointState(self._question, position.steps, drawn, arrays)
            self._run.store(self._gate, held, last=last)

    def share(self, state: PyTree) -> PyTree:
        """As of the session inside."""
        return self._inner.share(state)

    def agree(self, number: int) -> int:
        """As of the session inside."""
        return self._inner.agree(number)


def pack_position(position: RunPosition) -> bytes:
    """The state and the outputs of a position after some steps, as bytes."""
    leaves = jax.tree.leaves((position.state, concatenate_outputs(position.outputs)))
    return pack_arrays([np.asarray(leaf) for leaf in leaves])


def unpack_position(steps: int, held: bytes, request: RunRequest) -> RunPosition:
    """The position that `pack_position` wrote, of the run that is requested."""
    start = request.position.state
    arrays, inner = unpack_arrays(held), len(jax.tree.leaves(start))
    state = jax.tree.unflatten(jax.tree.structure(start), map(jax.device_put, arrays[:inner]))
    outputs = jax.tree.unflatten(jax.tree.structure(request.outputs()), arrays[inner:])
    return RunPosition(steps, state, [outputs])


def _digestible(value: PyTree) -> Iterator[bytes]:
    """What a digest takes of a value."""
    if isinstance(value, bytes):
        yield value
        return
    leaves, tree = jax.tree.flatten(value)
    yield str(tree).encode()
    for leaf in leaves:
        numbers = isinstance(leaf, np.ndarray | np.generic | jax.Array | float | int)
        yield array_bytes(leaf) if numbers else repr(leaf).encode()


def pack_arrays(arrays: Sequence[HostArray]) -> bytes:
    """Arrays as bytes."""
    file = io.BytesIO()
    for values in arrays:
        np.save(file, values, allow_pickle=False)
    return file.getvalue()


def unpack_arrays(held: bytes) -> list[HostArray]:
    """The arrays that `pack_arrays` wrote."""
    file, arrays = io.BytesIO(held), []
    while file.tell() < len(held):
        arrays.append(np.load(file, allow_pickle=False))
    return arrays

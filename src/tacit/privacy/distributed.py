"""Sums of which several parties hold a part: processes of one run, or sites of a study.

Processes of one run, and the network between them, belong to the custodian. Each samples, clips and adds up the
units of its own parts on the integer lattice; their sums and the noise of the first process are added exactly,
and only then leave as a release. Sums cross the network without noise, so it is to be as private as the rows
(PROOFS.md, Theorem 11).

Sites add noise in shares, each round(a Z) of its own. The sum of n of these is not the rounding of one normal
with deviation a sqrt(n), so the Gaussian mechanism's theorem holds up to a probability that is bounded here
(federated/PROOFS.md, Lemma F1) and comes out of delta. Or a server that they trust adds the noise.
"""

import hmac
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Final, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from numpy.typing import NDArray

from tacit import _validate
from tacit._typing import AnyArray, HostArray, PyTree
from tacit.errors import InvalidArgument, LostProcess
from tacit.privacy.checkpoint import (
    pack_arrays,
    pack_position,
    unpack_arrays,
    unpack_position,
)
from tacit.privacy.clipping import released_numbers, wide_integers
from tacit.privacy.gate import (
    Gate,
    Runner,
    RunPosition,
    RunRequest,
    Session,
    clip_and_grid,
    dummy_batch,
    even_block_length,
)
from tacit.privacy.mechanisms import Mechanism, NoisySums
from tacit.privacy.noise import Integers, Randomness, rounded_normals
from tacit.privacy.rows import Rows, Units
from tacit.privacy.trace import Fingerprint, Step, compile_rest, compile_sum

_PROCESS_AXIS: Final = "processes"
_SHARDED, _REPLICATED = PartitionSpec(_PROCESS_AXIS), PartitionSpec()  # type: ignore[no-untyped-call]
# Parts of 16 bits, so that 32 bits hold the sums of so many processes.
_LIMB_BITS: Final = 16
_MAX_PROCESSES: Final = 2**_LIMB_BITS


class Processes:
    """This process, and those that run the same program with other rows.

    Attributes:
        rank: The number of this process. Process 0 draws the noise, keeps the run and charges.
        size: How many processes there are.
    """

    def __init__(self) -> None:
        self.rank, self.size = jax.process_index(), jax.process_count()
        if self.size > _MAX_PROCESSES:
            raise InvalidArgument(
                f"There may be at most {_MAX_PROCESSES} processes; found {self.size}."
            )

    def meet(self) -> None:
        """Waits until all processes are there. Once they have met, they wait for each other longer."""
        self.add(np.zeros(1, np.int64))

    def add(self, numbers: Integers) -> Integers:
        """The sum of an array over all processes, modulo 2^64. [parts-sum]"""
        if self.size == 1:
            return numbers
        words = np.ascontiguousarray(numbers).view(np.uint64)
        limbs = np.stack(
            [words >> np.uint64(_LIMB_BITS * i) & np.uint64(_MAX_PROCESSES - 1) for i in range(4)]
        )
        sums = self._added(limbs.astype(np.uint32)).astype(np.uint64)
        total = sum((sums[i] << np.uint64(_LIMB_BITS * i) for i in range(4)), np.zeros_like(words))
        whole: Integers = np.asarray(total, np.uint64).view(np.int64)
        return whole

    def broadcast(self, content: bytes) -> bytes:
        """The content that process 0 has, in all processes."""
        if self.size == 1:
            return content
        content = content if self.rank == 0 else b""
        length = int(self.add(np.asarray([len(content)], np.int64))[0])
        padded = np.zeros(-(-max(length, 1) // 8) * 8, np.uint8)
        padded[: len(content)] = np.frombuffer(content, np.uint8)
        return self.add(padded.view(np.int64)).tobytes()[:length]

    def _added(self, limbs: NDArray[np.uint32]) -> NDArray[np.uint32]:
        mesh, program = self._program
        try:
            with _silenced_gloo():
                spread = NamedSharding(mesh, _SHARDED)
                whole = jax.make_array_from_process_local_data(spread, limbs[None])  # type: ignore[no-untyped-call]
                found: NDArray[np.uint32] = np.asarray(program(whole))[0]
        except (ValueError, RuntimeError):  # what JAX raises if a peer is gone
            raise LostProcess(
                f"Process {self.rank} of {self.size} lost another one, and the run ended."
            ) from None
        return found

    @cached_property
    def _program(self) -> tuple[Mesh, Callable[[jax.Array], jax.Array]]:
        first = {device.process_index: device for device in reversed(jax.devices())}
        mesh = Mesh(np.array([first[rank] for rank in range(self.size)]), (_PROCESS_AXIS,))

        def added(limbs: jax.Array) -> jax.Array:
            total: jax.Array = jax.lax.psum(limbs, _PROCESS_AXIS)  # type: ignore[no-untyped-call]
            return total

        summed = jax.shard_map(added, mesh=mesh, in_specs=_SHARDED, out_specs=_REPLICATED)
        return mesh, jax.jit(summed)


_gloo_connected: list[bool] = []  # whether processes of this program have met


@contextmanager
def _silenced_gloo() -> Iterator[None]:
    """Keeps what Gloo prints when processes first meet out of the standard output."""
    if _gloo_connected:
        yield
        return
    sys.stdout.flush()
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)
        _gloo_connected.append(True)


class PartitionedRows(Rows):
    """Private rows in numbered parts. No unit has rows in two of them.

    What is drawn for a part follows its number, so that results do not depend on which process
    holds it.

    Args:
        parts: The parts that this process holds, by their numbers.
        number: How many parts there are in all processes.
        processes: The processes.
        facts: Public facts that must be the same in all processes, as bytes.
    """

    def __init__(
        self, parts: Mapping[int, Rows], number: int, processes: Processes, facts: bytes = b""
    ) -> None:
        self.processes, self._parts = processes, dict(sorted(parts.items()))
        self.number = number
        self._check_complete()
        if len({each.shapes for each in self._parts.values()}) > 1:
            raise InvalidArgument("The parts must have the same columns, of the same types.")
        first = next(iter(self._parts.values()))
        self._hold(first.dummy_units(), first.unit)
        self.simulated = first.simulated
        self.check_same(repr((number, self.shapes)).encode() + facts)

    def _check_complete(self) -> None:
        """Raises in every process unless each part is in one of them, and each has one."""
        held = np.zeros(self.number + 1, np.int64)
        inside = [part for part in self._parts if 0 <= part < self.number]
        held[inside] = 1
        held[-1] = not inside or len(inside) < len(self._parts)
        held = self.processes.add(held)
        if held[-1]:
            raise InvalidArgument(
                f"There are {self.processes.size} processes for {self.number} files; each process needs a "
                "file of its own."
            )
        if (held != 1)[:-1].any():
            raise InvalidArgument(
                "Every file must be read by one process; some are missing, or given to several."
            )

    def check_same(self, facts: bytes) -> None:
        """Raises in this process if the first one has other public facts."""
        if facts != self.processes.broadcast(facts):
            raise InvalidArgument(
                "The processes of a run must have the same columns, model, method, settings and number of "
                "threads (NPROC)."
            )

    @property
    def is_first(self) -> bool:
        """Whether this process draws the noise, keeps the run and charges."""
        return self.processes.rank == 0

    def follow_digest(self) -> None:
        """Takes part in a digest for which the first process asks."""
        self._keyed_digest(b"")

    def _keyed_digest(self, key: bytes) -> bytes:
        """A keyed digest of all parts; all processes ask for it, by the key of the first. [kept-rows]"""
        key = self.processes.broadcast(key)
        total = np.zeros(4, np.int64)
        for number, rows in self._parts.items():
            named = f"part {number} of {self.number} ".encode() + rows._keyed_digest(key)
            total += np.frombuffer(hmac.digest(key, named, "sha256"), np.int64)
        return self.processes.add(total).tobytes()


# Steps between two looks at the clock, to store how far a run is.
_STEPS_PER_BLOCK = 10


class DistributedSession(Session):
    """A run of noisy sums on rows in parts, of which every process holds some. Instead of a plain session."""

    def __init__(self, rows: PartitionedRows, mechanism: Mechanism) -> None:
        if type(mechanism) is not NoisySums:
            raise InvalidArgument(
                "Rows in several files need a method of one sequence of noisy sums, such as scoring, the "
                "default, or variational inference; pass one file for other methods."
            )
        self._rows, self._processes = rows, rows.processes
        self.is_first = rows.is_first

    def runner(self, gate: Gate, every: int) -> Runner:
        """What runs steps one after the other: the sums of all parts, what follows from them."""
        return DistributedRunner(gate, self._rows, every)

    def streams(self, gate: Gate) -> list[Randomness]:
        """Parts draw by the number of the step, so that only noise has a position."""
        return [gate._bits.noise]

    def start(self, gate: Gate, request: RunRequest) -> RunPosition:  # noqa: ARG002
        """Where the first process is, after the charge. What it stored are released values."""
        position = request.position
        packed = pack_position(position) if self.is_first and position.steps else b""
        steps = self.agree(position.steps)
        held = self._processes.broadcast(packed)
        return position if self.is_first or steps == 0 else unpack_position(steps, held, request)

    def share(self, state: PyTree) -> PyTree:
        """The state of the first process: others may have rounded otherwise."""
        leaves, tree = jax.tree.flatten(state)
        held = self._processes.broadcast(pack_arrays([np.asarray(leaf) for leaf in leaves]))
        return jax.tree.unflatten(tree, unpack_arrays(held))

    def agree(self, number: int) -> int:
        """The number that the first process has."""
        return int(self._processes.broadcast(str(number).encode()))


class _PartBatch(NamedTuple):
    """What a step looks at of a part: as in `Batch`."""

    units: Units
    secret: AnyArray | None
    present: AnyArray


class _Part:
    """A part of the rows, and what steps look at of it."""

    def __init__(
        self, number: int, rows: Rows, mechanism: NoisySums, randomness: Randomness
    ) -> None:
        self._number, self._rows, self._mechanism = number, rows, mechanism
        self._randomness = randomness
        count, everyone = rows._count, mechanism.uses_all_units
        self._width = padded_width(count if everyone else mechanism.batch_width(count))
        self._all = rows._device_fields(self._width) if everyone else None

    def batch(self, step: int) -> _PartBatch:
        """The units of a step, who of them is there, and their secret words. [parts-sample]"""
        mechanism, units = self._mechanism, self._all
        if units is not None:
            present = np.arange(self._width) < self._rows._count
        else:
            bits = self._bits("sampling", step)
            batches = mechanism.batches(bits, self._rows._count, 1, self._width)
            more = padded_width(batches.present.shape[1]) - batches.present.shape[1]
            present = np.pad(batches.present[0], (0, more))
            units = self._rows._taken(np.pad(batches.indices[0], (0, more)))
        secret = None
        if mechanism.secrets:
            secret = mechanism.secret(self._bits("secret", step), 1, len(present))[0]
        return _PartBatch(units, secret, present)

    def _bits(self, purpose: str, step: int) -> Randomness:
        """A stream for one purpose in one step of this part, whichever process holds it."""
        return self._randomness.named(f"{purpose} of part {self._number} in step {step}")


class DistributedRunner:
    """Runs steps one after the other: the sum of every part, the sum of all, what follows from it."""

    def __init__(self, gate: Gate, rows: PartitionedRows, every: int) -> None:
        self._mechanism, self._bits = mechanism, bits = gate.mechanism, gate._bits
        self._processes, self._is_first = rows.processes, rows.is_first
        # The first process tells what parts draw from, but not what noise is drawn from.
        key = rows.processes.broadcast(bits.sampling._key)
        source = self._drawn_by_parts = Randomness.from_key(key, seeded=gate.seeded)
        self._parts = [_Part(n, some, mechanism, source) for n, some in rows._parts.items()]
        # A batch without units and noise.
        self._nobody = dummy_batch(gate, mechanism)._replace(**clip_and_grid(mechanism))
        self._ahead: tuple[int, list[_PartBatch]] = (-1, [])
        self.steps, self.source = even_block_length(every, min(every, _STEPS_PER_BLOCK)), "parts"

    def compile(self, step: Step, fingerprint: Fingerprint) -> None:
        """Makes the programs of a step that was checked and has this fingerprint."""
        lattice = self._mechanism.lattice
        self._sum = compile_sum(step, lattice, fingerprint)
        self._rest = compile_rest(step, lattice, fingerprint)

    def run(self, start: int, steps: int, state: PyTree, given: PyTree) -> tuple[PyTree, PyTree]:
        """Some steps from a state: the next state, and their outputs."""
        outputs = []
        # On the host, where a step's part is quicker to take; but for random keys.
        given = jax.tree.map(
            lambda leaf: np.asarray(leaf) if isinstance(leaf.dtype, np.dtype) else leaf, given
        )
        for step in range(start, start + steps):
            own = jax.tree.map(lambda leaf, at=step - start: leaf[at], given)
            released = self._noisy_sum(step, state, own)
            state, out = self._rest(state, own, self._nobody, released)
            outputs.append(out)
        return state, jax.tree.map(lambda *each: np.stack(each), *jax.device_get(outputs))

    def _noisy_sum(self, step: int, state: PyTree, given: PyTree) -> HostArray:
        """The noisy sum of a step. [parts-sum]"""
        drawn, batches = self._ahead
        if drawn != step:
            batches = [part.batch(step) for part in self._parts]
        sums = [self._sum(state, given, self._nobody._replace(**b._asdict())) for b in batches]
        if step + 1 < self._mechanism.num_steps:  # while those are computed
            self._ahead = step + 1, [part.batch(step + 1) for part in self._parts]
        mechanism = self._mechanism
        total = sum(
            (wide_integers(each, mechanism.lattice) for each in sums), np.zeros(1, np.int64)
        )
        if self._is_first:
            drawn = mechanism.noise(self._bits.noise, step, 1)[0]
            total = total + wide_integers(drawn, mechanism.lattice)
        return released_numbers(self._processes.add(total), mechanism.clip, mechanism.lattice)


def padded_width(count: int) -> int:
    """A width for so many places or a few more, so that parts of about one size share a program.

    >>> [padded_width(count) for count in (0, 15, 1000, 1025)]
    [1, 15, 1024, 1088]
    """
    step = 1 << max(0, count.bit_length() - 5)
    return max(1, -(-count // step) * step)


def share_distance(std: float, count: int) -> float:
    """A bound on the total variation between two distributions of whole numbers.

    One is the sum of ``count`` independent round(std Z). The other is round(sqrt(count) std Z + U),
    U a sum of count - 1 uniform numbers on (-1/2, 1/2): normal noise of the sum's deviation, to
    which more was done without looking at data. [noise-shares]

    >>> 0 < share_distance(1.5, 10) < 1e-5
    True
    """
    return math.exp(_log_share_distance(std, count))


def _log_share_distance(std: float, count: int) -> float:
    """The bound's logarithm, which does not underflow."""
    scale, number = _validate.positive("std", std), _validate.count("count", count)
    if number == 1:
        return -math.inf
    exponent = math.pi**2 * scale**2
    nearby = 2 / -math.expm1(-2 * exponent)
    pointwise = number * nearby + (number + 1) * nearby**2
    reach = scale * math.sqrt(2 * number * (exponent + math.log(2))) + number / 2
    # No more than any two distributions differ by.
    return min(0.0, math.log((2 * reach + 3) * pointwise + 1) - exponent)


def extra_delta(std: float, count: int, *, numbers: int, epsilon: float) -> float:
    """What is added to delta where ``numbers`` numbers get noise by ``count`` shares of ``std``.

    A mechanism within t of one that is (epsilon, delta)-private is
    (epsilon, delta + (1 + e^epsilon) t)-private.
    """
    total = math.log(_validate.count("numbers", numbers)) + _log_share_distance(std, count)
    cost = _validate.non_negative("epsilon", epsilon)
    return math.exp(min(0.0, total + cost + math.log1p(math.exp(-cost))))


# A release is a whole number times the grid, rounded to float32: by less than half a grid for
# whole numbers up to this.
MAX_EXACT_FLOAT32 = 2**23 - 2**9


def add_server_noise(
    changes: Sequence[HostArray], noise_std: float, source: Randomness
) -> NDArray[np.int64]:
    """The sum of the sites' whole numbers, with Gaussian noise of ``noise_std`` lattice points.

    Formal guarantees:
        Released: the sum of integer vectors, one from each site and each clipped by the site's own
            gate, plus round(noise_std Z).
        Neighbours: add-remove and replace, of whatever is one unit of that gate.
        Sensitivity under add-remove: `points`, the lattice points of a clip, in the 2-norm.
        Sensitivity under replace: `2 * points`.
        Event: Gaussian, with a multiplier of noise_std over the lattice points of a clip.
        Public inputs: ``noise_std`` and how many sites there are.
        Theorem: F5.
    """
    std = _validate.non_negative("noise_std", noise_std)
    total: NDArray[np.int64] = np.asarray(np.sum(np.stack(changes), axis=0), np.int64)
    return total if std == 0 else total + rounded_normals(source, std, len(total))


def exact_batch_bound(reach: float) -> int:
    """The batch bound of a mechanism whose sums, at most ``reach`` clips, are exact in float32."""
    return math.ceil(reach * 2.0**30 / MAX_EXACT_FLOAT32)


def lattice_points_from_release(
    released: NDArray[np.float32], clip: float, points: int
) -> NDArray[np.int64]:
    """The lattice points that a release stood for. [exact-whole]"""
    grid = float(np.float32(clip) / np.float32(points))
    whole = np.rint(np.asarray(released, np.float64) / grid).astype(np.int64)
    if np.abs(whole).max(initial=0) > MAX_EXACT_FLOAT32:
        # Beyond 16 standard deviations of noise: it does not happen.
        raise InvalidArgument("A released number is larger than the plan allows for.")
    return whole

"""The gate of rows in several parts, over one or several processes.

Every process samples, clips and adds up the units of its own parts on the integer lattice. Their
sums and the noise of the first process are added exactly, and only then leave as a release
(PROOFS.md, Theorem 11).
"""

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np

from tacit.errors import InvalidArgument
from tacit.privacy.blocks import clip_and_grid, even_part
from tacit.privacy.gate import Gate, Runner, made_up, of_steps
from tacit.privacy.keeper import Keeper, Position, arrays_of, packed, position_of, unpacked
from tacit.privacy.mechanisms import Mechanism, NoisySums
from tacit.privacy.noise import Integers, Randomness
from tacit.privacy.parts import Parts
from tacit.privacy.program import Step, advanced_by, summed_by
from tacit.privacy.release import Batch
from tacit.privacy.rows import Rows
from tacit.privacy.units import Units

# Steps between two looks at the clock, to store how far a run is.
_STEPS = 10


class PartGate(Gate):
    """Rows in parts, a mechanism of noisy sums, and the randomness that protects them."""

    _mechanisms: ClassVar[frozenset[type]] = frozenset({NoisySums})

    def __init__(
        self,
        rows: Parts,
        mechanism: Mechanism,
        randomness: Randomness | None = None,
        keeper: Keeper | None = None,
    ) -> None:
        if type(mechanism) is not NoisySums:
            raise InvalidArgument(
                "Rows in several files need a method of one sequence of noisy sums, such as scoring, the "
                "default, or variational inference; pass one file for other methods."
            )
        super().__init__(rows, mechanism, randomness, keeper if rows.is_first else None)
        self._rows = rows
        # The first process tells what parts draw from, but not what noise is drawn from.
        key = rows.processes.tell(self._bits.sampling._key)
        self._drawn_by_parts = Randomness.from_key(key, seeded=self._randomness.seeded)

    def _streams(self) -> list[Randomness]:
        """Parts draw by the number of the step, so that only noise has a position."""
        return [self._bits.noise]

    def _blocks(self, every: int) -> Runner:
        return PartBlocks(self, every)

    def _agreed(self, position: Position, returns: Callable[[], Any]) -> Position:
        """Where the first process is, after the charge. What it stored are released values."""
        first = self._rows.is_first
        said = arrays_of(position) if first and position.steps else b""
        steps = self.agreed(position.steps)
        told = self._rows.processes.tell(said)
        if first or steps == 0:
            return position
        return position_of(steps, told, position.state, returns)

    def _shared(self, state: Any) -> Any:
        """The state of the first process: others may have rounded otherwise."""
        leaves, tree = jax.tree.flatten(state)
        held = self._rows.processes.tell(packed([np.asarray(leaf) for leaf in leaves]))
        return jax.tree.unflatten(tree, unpacked(held))

    def agreed(self, word: int) -> int:
        """The number that the first process has."""
        return int(self._rows.processes.tell(str(word).encode()))


class _Looked(NamedTuple):
    """What a step looks at of a part: as in `Batch`."""

    units: Units
    secret: Any
    present: Any


class _Part:
    """A part of the rows, and what steps look at of it."""

    def __init__(self, number: int, rows: Rows, gate: PartGate) -> None:
        self._number, self._rows, self._mechanism = number, rows, gate.mechanism
        self._drawn = gate._drawn_by_parts
        self._all: Units | None = None
        count = rows._count
        self._width = roomy(count if self._mechanism.everyone else self._mechanism.capacity(count))
        if self._mechanism.everyone:
            self._all = rows._padded(self._width)

    def looked_at(self, step: int) -> _Looked:
        """The units of a step, who of them is there, and their secret words. [parts-sample]"""
        mechanism, units = self._mechanism, self._all
        if units is not None:
            present = np.arange(self._width) < self._rows._count
        else:
            bits = self._bits("sampling", step)
            batches = mechanism.batches(bits, self._rows._count, 1, self._width)
            more = roomy(batches.present.shape[1]) - batches.present.shape[1]
            present = np.pad(batches.present[0], (0, more))
            units = self._rows._taken(np.pad(batches.indices[0], (0, more)))
        secret = None
        if mechanism.secrets:
            secret = mechanism.secret(self._bits("secret", step), 1, len(present))[0]
        return _Looked(units, secret, present)

    def _bits(self, purpose: str, step: int) -> Randomness:
        """A stream for one purpose in one step of this part, whichever process holds it."""
        return self._drawn.named(f"{purpose} of part {self._number} in step {step}")


class PartBlocks:
    """Runs steps one after the other: the sum of every part, the sum of all, what follows from it."""

    def __init__(self, gate: PartGate, every: int) -> None:
        self._gate, self._mechanism, self._processes = gate, gate.mechanism, gate._rows.processes
        self._parts = [_Part(number, rows, gate) for number, rows in gate._rows._parts.items()]
        # A batch without units and noise.
        self._nobody = made_up(gate, of_steps(gate))._replace(**clip_and_grid(gate.mechanism))
        self._ahead: tuple[int, list[_Looked]] = (-1, [])
        self.steps, self.source = even_part(every, min(every, _STEPS)), "parts"

    def compile(self, step: Step, form: tuple[Any, ...]) -> None:
        """Makes the programs of a step that was checked and has this form."""
        lattice = self._mechanism.lattice
        self._sum, self._advance = summed_by(step, lattice, form), advanced_by(step, lattice, form)

    def run(self, start: int, steps: int, state: Any, given: Any) -> tuple[Any, Any]:
        """Some steps from a state: the next state, and their outputs."""
        outputs, given = [], jax.tree.map(_on_host, given)
        for step in range(start, start + steps):
            own = jax.tree.map(lambda leaf, at=step - start: leaf[at], given)
            state, out = self._advance(state, own, self._told(step, state, own))
            outputs.append(out)
        return state, jax.tree.map(lambda *each: np.stack(each), *jax.device_get(outputs))

    def _told(self, step: int, state: Any, given: Any) -> Batch:
        """The noisy sum of a step, in the place of the noise of a batch without units. [parts-sum]"""
        sums = [self._sum(state, given, self._batch(each)) for each in self._looked(step)]
        if step + 1 < self._mechanism.num_steps:  # while those are computed
            self._ahead = step + 1, [part.looked_at(step + 1) for part in self._parts]
        total = sum((self._wide(each) for each in sums), np.zeros(1, np.int64))
        if self._gate._rows.is_first:
            total = total + self._wide(self._mechanism.noise(self._gate._bits.noise, step, 1)[0])
        told = self._processes.add(total)
        narrow = told.view(np.int32) if self._mechanism.lattice.wide else told.astype(np.int32)
        return self._nobody._replace(noise=narrow)

    def _wide(self, words: Any) -> Integers:
        """Integers of a sum or of noise, in 64 bits."""
        numbers = np.asarray(words)
        wide: Integers = (
            numbers.view(np.int64) if self._mechanism.lattice.wide else numbers.astype(np.int64)
        )
        return wide

    def _looked(self, step: int) -> list[_Looked]:
        drawn, looked = self._ahead
        return looked if drawn == step else [part.looked_at(step) for part in self._parts]

    def _batch(self, looked: _Looked) -> Batch:
        """A part's batch, without noise."""
        return self._nobody._replace(**looked._asdict())


def _on_host(leaf: Any) -> Any:
    """Inputs as arrays of the host, whose parts are quicker to take; but for random keys."""
    return np.asarray(leaf) if isinstance(leaf.dtype, np.dtype) else leaf


def roomy(count: int) -> int:
    """A width for so many places or a few more, so that parts of about one size share a program.

    >>> roomy(0), roomy(15), roomy(1000), roomy(1025)
    (1, 15, 1024, 1088)
    """
    step = 1 << max(0, count.bit_length() - 5)
    return max(1, -(-count // step) * step)

"""Blocks of steps: what the host draws for them, and the program that runs them."""

from typing import Any, NamedTuple

import numpy as np

from tacit.privacy.mechanisms import NoisySums, StepMechanism, has_secrets
from tacit.privacy.noise import Randomness
from tacit.privacy.program import Everyone, Source, Step, StepInputs, compiled
from tacit.privacy.rows import Rows
from tacit.privacy.sample import Batches, usual_length

# Places in the batches of one block, for each of which sampling needs some thirty bytes; and
# bytes of a block's units, where they are fetched on the host.
_MOST_SLOTS, _MOST_BYTES = 2**21, 2**25
# Units that steps on everyone look at in the time that a place in a batch takes.
_LOOKS = 2**7


class Streams(NamedTuple):
    """What steps draw from. ``secret`` are bits that units get of their own, or None."""

    sampling: Randomness
    noise: Randomness
    secret: Randomness | None

    @property
    def all(self) -> list[Randomness]:
        """The streams that there are."""
        return [each for each in self if each is not None]


class Blocks:
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
        length = usual_length(rows._count) if alike else None
        units: Any = None if on_host else rows._device_fields(length)
        present = None
        if mechanism.everyone:
            present = np.arange(units.length) < rows._count
            # Without secret words, what bounds a block is its time: nothing is stored within one.
            places = len(present) if has_secrets(mechanism) else len(present) // _LOOKS
            self._capacity = max(1, places)
        else:
            self._capacity = mechanism.capacity(looked_at)
        self._everyone = Everyone(units, present, **clip_and_grid(mechanism))
        slots = min(_MOST_SLOTS, _MOST_BYTES // rows.unit_bytes) if on_host else _MOST_SLOTS
        self.steps = even_part(every, max(1, min(every, slots // self._capacity)))

    def compile(self, step: Step, form: tuple[Any, ...]) -> None:
        """Makes the program of a step that was checked and has this form."""
        self._program = compiled(step, self._mechanism.lattice, form, self.source)

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
        return batches if looked_at == count else _with_rows(batches, count)


def clip_and_grid(mechanism: StepMechanism) -> dict[str, Any]:
    """What units are clipped to, and the distance of the lattice's points."""
    clip = np.float32(mechanism.clip)
    grid = clip / np.float32(mechanism.lattice.points)  # a power of two
    return {"clip": clip, "grid": grid}


def even_part(every: int, most: int) -> int:
    """How many of a number of steps run at once: parts that are alike, or nearly, compile once or twice.

    >>> even_part(250, 40), even_part(251, 40)
    (25, 36)
    """
    whole = next(part for part in range(most, 0, -1) if every % part == 0)
    return whole if 2 * whole > most else -(-every // -(-every // most))


def _with_rows(batches: Batches, count: int) -> Batches:
    """Batches in which whoever has no row is nobody. [rows-silent]"""
    present = batches.present & (batches.indices < count)
    return Batches(np.minimum(batches.indices, max(count - 1, 0)), present)

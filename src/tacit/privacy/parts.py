"""Private rows in several parts, of which each process of a run holds some."""

import hmac
from collections.abc import Mapping

import numpy as np

from tacit.errors import InvalidArgument
from tacit.privacy.processes import Processes
from tacit.privacy.rows import Rows


class Parts(Rows):
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
        self._refuse_holes()
        if len({each.shapes for each in self._parts.values()}) > 1:
            raise InvalidArgument("The parts must have the same columns, of the same types.")
        first = next(iter(self._parts.values()))
        blank = first.blank()
        self._hold(blank._fields, blank._present)
        self.unit, self.simulated = first.unit, first.simulated
        self.refuse_others(repr((number, self.shapes)).encode() + facts)

    def _refuse_holes(self) -> None:
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

    def refuse_others(self, facts: bytes) -> None:
        """Raises in this process if the first one has other public facts."""
        if facts != self.processes.tell(facts):
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
        key = self.processes.tell(key)
        total = np.zeros(4, np.int64)
        for number, rows in self._parts.items():
            named = f"part {number} of {self.number} ".encode() + rows._keyed_digest(key)
            total += np.frombuffer(hmac.digest(key, named, "sha256"), np.int64)
        return self.processes.add(total).tobytes()

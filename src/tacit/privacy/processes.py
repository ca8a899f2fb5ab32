"""The processes of one run, by JAX's distributed runtime: whole numbers that add up exactly.

All processes, and the network between them, belong to the custodian. Sums of rows cross it without
noise, so it is to be as private as the rows (PROOFS.md, Theorem 11).
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Final

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from numpy.typing import NDArray

from tacit.errors import InvalidArgument, LostProcess
from tacit.privacy.noise import Integers

_AXIS: Final = "processes"
_SPREAD, _SAME = PartitionSpec(_AXIS), PartitionSpec()  # type: ignore[no-untyped-call]
# Parts of 16 bits, so that 32 bits hold the sums of so many processes.
_BITS: Final = 16
_MOST: Final = 2**_BITS


class Processes:
    """This process, and those that run the same program with other rows.

    Attributes:
        rank: The number of this process. Process 0 draws the noise, keeps the run and charges.
        size: How many processes there are.
    """

    def __init__(self) -> None:
        self.rank, self.size = jax.process_index(), jax.process_count()
        if self.size > _MOST:
            raise InvalidArgument(f"There may be at most {_MOST} processes; found {self.size}.")

    def meet(self) -> None:
        """Waits until all processes are there. Once they have met, they wait for each other longer."""
        self.add(np.zeros(1, np.int64))

    def add(self, numbers: Integers) -> Integers:
        """The sum of an array over all processes, modulo 2^64. [parts-sum]"""
        if self.size == 1:
            return numbers
        words = np.ascontiguousarray(numbers).view(np.uint64)
        limbs = np.stack([words >> np.uint64(_BITS * i) & np.uint64(_MOST - 1) for i in range(4)])
        sums = self._added(limbs.astype(np.uint32)).astype(np.uint64)
        total = sum((sums[i] << np.uint64(_BITS * i) for i in range(4)), np.zeros_like(words))
        whole: Integers = np.asarray(total, np.uint64).view(np.int64)
        return whole

    def tell(self, said: bytes) -> bytes:
        """What process 0 says, to all."""
        if self.size == 1:
            return said
        said = said if self.rank == 0 else b""
        length = int(self.add(np.asarray([len(said)], np.int64))[0])
        padded = np.zeros(-(-max(length, 1) // 8) * 8, np.uint8)
        padded[: len(said)] = np.frombuffer(said, np.uint8)
        return self.add(padded.view(np.int64)).tobytes()[:length]

    def _added(self, limbs: NDArray[np.uint32]) -> NDArray[np.uint32]:
        mesh, program = self._program
        try:
            with _gloo_silenced():
                spread = NamedSharding(mesh, _SPREAD)
                whole = jax.make_array_from_process_local_data(spread, limbs[None])  # type: ignore[no-untyped-call]
                found: NDArray[np.uint32] = np.asarray(program(whole))[0]
        except (ValueError, RuntimeError):  # what JAX raises if a peer is gone
            raise LostProcess(
                f"Process {self.rank} of {self.size} lost another one, and the run ended."
            ) from None
        return found

    @cached_property
    def _program(self) -> tuple[Mesh, Any]:
        first = {device.process_index: device for device in reversed(jax.devices())}
        mesh = Mesh(np.array([first[rank] for rank in range(self.size)]), (_AXIS,))

        def added(limbs: jax.Array) -> jax.Array:
            total: jax.Array = jax.lax.psum(limbs, _AXIS)  # type: ignore[no-untyped-call]
            return total

        summed = jax.shard_map(added, mesh=mesh, in_specs=_SPREAD, out_specs=_SAME)
        return mesh, jax.jit(summed)


_heard: list[bool] = []  # whether processes of this program have met


@contextmanager
def _gloo_silenced() -> Iterator[None]:
    """Keeps what Gloo prints when processes first meet out of the standard output."""
    if _heard:
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
        _heard.append(True)

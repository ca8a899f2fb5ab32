"""What a gate hands to an unfinished run, and takes from it to go on: states, outputs, streams."""

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from tacit.privacy.digest import array_bytes, digest_of
from tacit.privacy.noise import Randomness
from tacit.privacy.unfinished import Standing, Unfinished


class Position(NamedTuple):
    """How many steps are done, the state after them, and the outputs of blocks of them."""

    steps: int
    state: Any
    outputs: list[Any]


class Keeper:
    """Keeps one gate of an unfinished run.

    Args:
        run: The run.
        charge: Charges the run, or finds the charge that was made for it.
        gate: The name of the gate in the run.
    """

    def __init__(
        self, run: Unfinished, charge: Callable[[], object] | None = None, gate: str = "gate"
    ) -> None:
        self._run, self._charge, self._gate, self._question = run, charge, gate, ""

    def stage(self, number: int) -> "Keeper":
        """What keeps a gate of several."""
        return Keeper(self._run, self._charge, f"{self._gate} {number}")

    def ask(self, question: Iterable[Any]) -> None:
        """Says what will be asked of the rows; raises if it was something else before.

        The question is on disk before the run is charged, so that whoever copies a run that was charged
        copies its question. [kept-question]

        Args:
            question: All that decides on it: bytes, and trees of texts, numbers and arrays.
        """
        self._question = digest_of(*(digest_of(*_parts(each)).encode() for each in question))
        if self._run.standing(self._gate, self._question) is None:
            self._run.store(self._gate, Standing(self._question, 0, (), b""), last=True)
        if self._charge is not None:
            self._charge()

    def position(
        self, start: Any, returned: Callable[[], Any], streams: Sequence[Randomness]
    ) -> Position:
        """Where to go on, with streams that are as far as they were.

        Args:
            start: The state before the first step.
            returned: Gives the shapes of what a step returns beside its state.
            streams: The streams that the gate draws from.

        Returns:
            The position.
        """
        held = self._run.standing(self._gate, self._question)
        if held is None or held.steps == 0:
            return Position(0, start, [])
        for stream, drawn in zip(streams, held.drawn, strict=True):
            stream.skip_to(drawn)
        return position_of(held.steps, held.arrays, start, returned)

    def keep(self, position: Position, streams: Sequence[Randomness], *, last: bool) -> None:
        """Stores a position if it is time to, or if it is the last."""
        if not (last or self._run.due):
            return
        arrays = arrays_of(position)
        drawn = tuple(stream.drawn for stream in streams)
        held = Standing(self._question, position.steps, drawn, arrays)
        self._run.store(self._gate, held, last=last)


def arrays_of(position: Position) -> bytes:
    """The state and the outputs of a position after some steps, as bytes."""
    leaves = jax.tree.leaves((position.state, joined(position.outputs)))
    return packed([np.asarray(leaf) for leaf in leaves])


def position_of(steps: int, held: bytes, start: Any, returned: Callable[[], Any]) -> Position:
    """The position that `arrays_of` wrote; arguments as for `Keeper.position`."""
    arrays, inner = unpacked(held), len(jax.tree.leaves(start))
    state = jax.tree.unflatten(jax.tree.structure(start), map(jax.device_put, arrays[:inner]))
    outputs = jax.tree.unflatten(jax.tree.structure(returned()), arrays[inner:])
    return Position(steps, state, [outputs])


def joined(outputs: Sequence[Any]) -> Any:
    """The outputs of several blocks, one after the other."""
    if len(outputs) == 1:
        return outputs[0]
    return jax.tree.map(lambda *parts: np.concatenate(parts), *outputs)


def _parts(value: Any) -> Iterator[bytes]:
    """What a digest takes of a value."""
    if isinstance(value, bytes):
        yield value
        return
    leaves, tree = jax.tree.flatten(value)
    yield str(tree).encode()
    for leaf in leaves:
        numbers = isinstance(leaf, np.ndarray | np.generic | jax.Array | float | int)
        yield array_bytes(leaf) if numbers else repr(leaf).encode()


def packed(arrays: Sequence[NDArray[Any]]) -> bytes:
    """Arrays as bytes."""
    file = io.BytesIO()
    for values in arrays:
        np.save(file, values, allow_pickle=False)
    return file.getvalue()


def unpacked(held: bytes) -> list[NDArray[Any]]:
    """The arrays that `packed` wrote."""
    file, arrays = io.BytesIO(held), []
    while file.tell() < len(held):
        arrays.append(np.load(file, allow_pickle=False))
    return arrays

"""What a gate hands to an unfinished run, and takes from it to go on: states, outputs, streams."""

import io
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from tacit.privacy.noise import Randomness
from tacit.privacy.unfinished import Standing, Unfinished, digest_of


class Position(NamedTuple):
    """How many steps are done, the state after them, and the outputs of blocks of them."""

    steps: int
    state: Any
    outputs: list[Any]


class Keeper:
    """Keeps one gate of an unfinished run."""

    def __init__(self, run: Unfinished, gate: str = "gate") -> None:
        self._run, self._gate, self._question = run, gate, ""

    def stage(self, number: int) -> "Keeper":
        """What keeps a gate of several."""
        return Keeper(self._run, f"{self._gate} {number}")

    def ask(self, *question: Any) -> None:
        """Says what will be asked of the rows; raises if it was something else before.

        Args:
            *question: All that decides on it: bytes, and trees of texts, numbers and arrays.
        """
        parts = [part for each in question for part in _parts(each)]
        self._question = digest_of(*parts)
        if self._run.standing(self._gate, self._question) is None:
            self._run.store(self._gate, Standing(self._question, 0, (), b""), last=True)

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
    return _packed([np.asarray(leaf) for leaf in leaves])


def position_of(steps: int, held: bytes, start: Any, returned: Callable[[], Any]) -> Position:
    """The position that `arrays_of` wrote; arguments as for `Keeper.position`."""
    arrays, inner = _unpacked(held), len(jax.tree.leaves(start))
    state = jax.tree.unflatten(jax.tree.structure(start), map(jax.device_put, arrays[:inner]))
    outputs = jax.tree.unflatten(jax.tree.structure(returned()), arrays[inner:])
    return Position(steps, state, [outputs])


def joined(outputs: Sequence[Any]) -> Any:
    """The outputs of several blocks, one after the other."""
    if len(outputs) == 1:
        return outputs[0]
    return jax.tree.map(lambda *parts: np.concatenate(parts), *outputs)


def _parts(value: Any) -> list[bytes]:
    """What a digest takes of a value."""
    if isinstance(value, bytes):
        return [value]
    leaves, tree = jax.tree.flatten(value)
    return [str(tree).encode(), *map(_part, leaves)]


def _part(leaf: Any) -> bytes:
    if not isinstance(leaf, np.ndarray | np.generic | jax.Array | float | int):
        return repr(leaf).encode()
    array = np.asarray(leaf)
    return f"{array.shape} {array.dtype} ".encode() + array.tobytes()


def _packed(arrays: Sequence[NDArray[Any]]) -> bytes:
    file = io.BytesIO()
    for values in arrays:
        np.save(file, values, allow_pickle=False)
    return file.getvalue()


def _unpacked(held: bytes) -> list[NDArray[Any]]:
    file, arrays = io.BytesIO(held), []
    while file.tell() < len(held):
        arrays.append(np.load(file, allow_pickle=False))
    return arrays

"""Columns of text as places in one piece of bytes, read without a loop over cells where that is exact.

A cell is read by a function of that cell alone. Most cells are short and plain, and what the function
says of them is found for all at once: equal cells are read once, and plain decimals are added up digit
by digit (see `tacit.data.decimals`). Every other cell is read by the function itself.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from tacit.data.decimals import LONGEST, decimals

Rows = NDArray[np.intp]
_Number = TypeVar("_Number", np.float64, np.int32)
PADDING = bytes(64)  # which the bytes of a column must end in, so that any cell has words
_WORD = 8
# Odd numbers, by which words are mixed. Cells with equal mixtures are compared before they count as equal.
_MIX = np.array(
    [0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93] * 2, np.uint64
)
# Words of which the first so many bytes are kept.
_KEEP = np.array([(1 << 8 * size) - 1 for size in range(_WORD + 1)], "<u8")


class Texts:
    """A column of text.

    Args:
        data: Bytes, with `PADDING` at the end.
        starts: Where each cell begins.
        sizes: How many bytes each cell has.
        known: Whether bytes that are not UTF-8 stay bytes; otherwise they become replacement
            characters.
    """

    def __init__(
        self,
        data: bytes,
        starts: NDArray[np.int64],
        sizes: NDArray[np.int64],
        *,
        known: bool = False,
    ) -> None:
        self.data, self.starts, self.sizes, self.known = data, starts, sizes, known

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, some: slice) -> Self:
        return type(self)(self.data, self.starts[some], self.sizes[some], known=self.known)

    def cells(self, rows: Rows) -> list[str | bytes]:
        """The cells of some rows, one by one."""
        return [self._decoded(self.data[start:stop]) for start, stop in self.places(rows)]

    def _decoded(self, raw: bytes) -> str | bytes:
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return raw if self.known else raw.decode("utf-8", "replace")

    def numbers(self, read: Callable[[object], float]) -> NDArray[np.float64]:
        """What ``read`` says of each cell, if it reads plain decimals as Python does."""
        there, width = self._short(LONGEST)
        characters = self._words(there, width).view(np.uint8)
        values, plain = decimals(characters, self.sizes[there])
        if len(values) == len(self) and plain.all():
            return values
        found, rest = np.empty(len(self)), np.ones(len(self), np.bool_)
        found[there], rest[there] = values, ~plain
        return self._read(np.flatnonzero(rest), found, read)

    def labels(self, table: Mapping[str, int], read: Callable[[object], int]) -> NDArray[np.int32]:
        """What ``read`` says of each cell, if it says what ``table`` says of the labels in it."""
        found = np.empty(len(self), np.int32)
        known = {text.encode("utf-8", "surrogatepass"): code for text, code in table.items()}
        there, width = self._short(max(map(len, known), default=0))
        sizes = self.sizes[there]
        if not len(sizes) or not known:
            return self._read(np.arange(len(self)), found, read)
        levels = sorted(((_level(text, width), code) for text, code in known.items()))
        words = self._words(there, width)
        mixed = _mixed(words, sizes)
        place = np.searchsorted(np.array([level[0] for level, _ in levels], np.uint64), mixed)
        place = np.minimum(place, len(levels) - 1)
        hits = sizes == np.array([level[1] for level, _ in levels])[place]
        wanted = np.array([words for (_, _, *words), _ in levels], "<u8")
        hits &= _equal(words, wanted, place)
        found[there] = np.array([code for _, code in levels], np.int32)[place]
        rest = np.ones(len(self), np.bool_)
        rest[there] = ~hits
        return self._read(np.flatnonzero(rest), found, read)

    def _read(
        self, rows: Rows, found: NDArray[_Number], read: Callable[[object], float]
    ) -> NDArray[_Number]:
        """Fills in what ``read`` says of some rows; of equal cells only once."""
        if len(rows):
            firsts, same = self.distinct(rows)
            found[rows] = np.array([read(cell) for cell in self.cells(firsts)], found.dtype)[same]
        return found

    def distinct(self, rows: Rows) -> tuple[Rows, Rows]:
        """Rows of different cells, and for each of the given rows which of these has its cell.

        Long cells may count as different though they are equal.
        """
        short, width = self._short_of(rows)
        words = self._words(short, width)
        _, first, same = np.unique(
            _mixed(words, self.sizes[short]), return_index=True, return_inverse=True
        )
        equal = self.sizes[short] == self.sizes[short[first]][same]
        equal &= _equal(words, words[first], same)
        if len(short) == len(rows) and equal.all():
            return short[first], same
        place = np.full(len(self), -1, np.intp)
        place[short[equal]] = same[equal]
        alone = rows[place[rows] < 0]
        place[alone] = len(first) + np.arange(len(alone))
        return np.concatenate([short[first], alone]), place[rows]

    def made_of(self, rows: Rows, letters: bytes, digits: bytes) -> NDArray[np.bool_]:
        """Which cells are made of these letters and digits, have a digit, and are not long."""
        short, width = self._short_of(rows)
        kinds = np.zeros(256, np.uint8)
        kinds[[*letters]], kinds[[*digits]] = 1, 2
        found = kinds[self._words(short, width).view(np.uint8)]
        made = np.zeros(len(self), np.bool_)
        made[short] = (found > 0).sum(axis=1) == self.sizes[short]
        made[short] &= (found > 1).any(axis=1)
        return made[rows]

    def characters(self, rows: Rows, most: int) -> NDArray[np.uint8]:
        """The bytes of cells that have at most so many, followed by zeros."""
        width = -(-most // _WORD)
        return self._words(rows, width).view(np.uint8)[:, :most]

    def places(self, rows: Rows) -> Iterable[tuple[int, int]]:
        """Where cells begin and end in the data."""
        starts = self.starts[rows]
        return zip(starts.tolist(), (starts + self.sizes[rows]).tolist(), strict=True)

    def _short(self, most: int) -> tuple[Rows | slice, int]:
        """The rows whose cells are not longer than so many bytes, and how many words those have."""
        short = self.sizes <= min(most, len(PADDING))
        found = slice(None) if short.all() else np.flatnonzero(short)
        return found, self._width(found)

    def _short_of(self, rows: Rows) -> tuple[Rows, int]:
        """Those of some rows whose cells are not longer than the padding, and how many words they have."""
        found = rows[self.sizes[rows] <= len(PADDING)]
        return found, self._width(found)

    def _width(self, rows: Rows | slice) -> int:
        return -(-int(self.sizes[rows].max(initial=1)) // _WORD)

    def _words(self, rows: Rows | slice, width: int) -> NDArray[np.uint64]:
        """The words of cells, with zeros where a cell has no bytes any more."""
        size = width * _WORD
        every = np.ndarray((len(self.data) - size + 1,), f"V{size}", self.data, strides=(1,))
        words: NDArray[np.uint64] = every[self.starts[rows]].view("<u8").reshape(-1, width)
        left = self.sizes[rows]
        if width == 1:
            words &= _KEEP[left][:, None]
            return words
        for place in range(width):
            words[:, place] &= _KEEP[np.clip(left - place * _WORD, 0, _WORD)]
        return words


def _equal(words: NDArray[np.uint64], others: NDArray[np.uint64], place: Rows) -> NDArray[np.bool_]:
    """Which cells have the words of others, each at a place."""
    equal = np.ones(len(words), np.bool_)
    for word, other in zip(words.T, others.T, strict=True):
        equal &= word == np.ascontiguousarray(other)[place]
    return equal


def _mixed(words: NDArray[np.uint64], sizes: NDArray[np.int64]) -> NDArray[np.uint64]:
    mixed = sizes.astype(np.uint64)
    for word, factor in zip(words.T, _MIX, strict=False):
        mixed = mixed + (word ^ word >> np.uint64(32)) * factor
    return mixed


def _level(text: bytes, width: int) -> tuple[int, ...]:
    """The mixture, size and words of a label, where labels that are too long match no cell."""
    size = np.array([len(text)])
    padded = text[: width * _WORD].ljust(width * _WORD, b"\0")
    words = np.frombuffer(padded, "<u8").reshape(1, width)
    return int(_mixed(words, size)[0]), len(text), *map(int, words[0])

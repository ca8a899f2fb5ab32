"""Columns of text as places in one piece of bytes, read without a loop over cells where that is exact.

A cell is read by a function of that cell alone. Most cells are short and plain, and what the function
says of them is found for all at once: equal cells are read once, and plain decimals are added up digit
by digit (see `tacit.data.decimals`). Every other cell is read by the function itself.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self, TypeVar

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
        odd: Which cells are elsewhere; None if none are.
        exact: Those cells, as text or None, at their places.
        known: Whether bytes that are not UTF-8 stay bytes; otherwise they become replacement
            characters.
    """

    def __init__(
        self,
        data: bytes,
        starts: NDArray[np.int64],
        sizes: NDArray[np.int64],
        odd: NDArray[np.bool_] | None = None,
        exact: NDArray[Any] | None = None,
        *,
        known: bool = False,
    ) -> None:
        self.data, self.starts, self.sizes, self.known = data, starts, sizes, known
        self.odd, self.exact = odd, exact

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, some: slice) -> Self:
        odd = None if self.odd is None else self.odd[some]
        exact = None if self.exact is None else self.exact[some]
        part = self.starts[some], self.sizes[some]
        return type(self)(self.data, *part, odd, exact, known=self.known)

    def cells(self, rows: Iterable[int]) -> list[Any]:
        """The cells of some rows, one by one."""
        return [self._cell(row) for row in rows]

    def _cell(self, row: int) -> object:
        if self.odd is not None and self.exact is not None and self.odd[row]:
            return self.exact[row]
        start = self.starts[row]
        raw = self.data[start : start + self.sizes[row]]
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return raw if self.known else raw.decode("utf-8", "replace")

    def numbers(self, read: Callable[[object], float]) -> NDArray[np.float64]:
        """What ``read`` says of each cell, if it reads plain decimals as Python does."""
        there, width = self._short(LONGEST)
        rows, sizes = self.starts[there], self.sizes[there]
        characters = self._words(rows, sizes, width).view(np.uint8)
        values, plain = decimals(characters, sizes)
        if len(there) == len(self) and plain.all():
            return values
        found = np.empty(len(self))
        found[there] = values
        rest = np.ones(len(self), np.bool_)
        rest[there[plain]] = False
        return self._read(np.flatnonzero(rest), found, read)

    def labels(self, table: Mapping[str, int], read: Callable[[object], int]) -> NDArray[np.int32]:
        """What ``read`` says of each cell, if it says what ``table`` says of the labels in it."""
        found = np.empty(len(self), np.int32)
        known = {text.encode("utf-8", "surrogatepass"): code for text, code in table.items()}
        there, width = self._short(max(map(len, known), default=0))
        if not len(there) or not known:
            return self._read(np.arange(len(self)), found, read)
        levels = sorted(((_level(text, width), code) for text, code in known.items()))
        words = self._words(self.starts[there], self.sizes[there], width)
        mixed = _mixed(words, self.sizes[there])
        place = np.searchsorted(np.array([level[0] for level, _ in levels], np.uint64), mixed)
        place = np.minimum(place, len(levels) - 1)
        hits = self.sizes[there] == np.array([level[1] for level, _ in levels])[place]
        wanted = np.array([words for (_, _, *words), _ in levels], "<u8")
        hits &= (words == wanted[place]).all(axis=1)
        found[there] = np.array([code for _, code in levels], np.int32)[place]
        rest = np.ones(len(self), np.bool_)
        rest[there[hits]] = False
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
        short, width = self._short(len(PADDING), rows)
        words = self._words(self.starts[short], self.sizes[short], width)
        _, first, same = np.unique(
            _mixed(words, self.sizes[short]), return_index=True, return_inverse=True
        )
        equal = self.sizes[short] == self.sizes[short[first]][same]
        equal &= (words == words[first][same]).all(axis=1)
        if len(short) == len(rows) and equal.all():
            return short[first], same
        place = np.full(len(self), -1, np.intp)
        place[short[equal]] = same[equal]
        alone = rows[place[rows] < 0]
        place[alone] = len(first) + np.arange(len(alone))
        return np.concatenate([short[first], alone]), place[rows]

    def made_of(self, rows: Rows, letters: bytes, digits: bytes) -> NDArray[np.bool_]:
        """Which cells are made of these letters and digits, have a digit, and are not long."""
        short, width = self._short(len(PADDING), rows)
        kinds = np.zeros(256, np.uint8)
        kinds[[*letters]], kinds[[*digits]] = 1, 2
        found = kinds[self._words(self.starts[short], self.sizes[short], width).view(np.uint8)]
        made = np.zeros(len(self), np.bool_)
        made[short] = (found > 0).sum(axis=1) == self.sizes[short]
        made[short] &= (found > 1).any(axis=1)
        return made[rows]

    def places(self, rows: Rows) -> Iterable[tuple[int, int]]:
        """Where cells that are not odd begin and end in the data."""
        starts = self.starts[rows]
        return zip(starts.tolist(), (starts + self.sizes[rows]).tolist(), strict=True)

    def _short(self, most: int, rows: Rows | None = None) -> tuple[Rows, int]:
        """The rows whose cells are not longer than so many bytes, and how many words those have."""
        sizes = self.sizes if rows is None else self.sizes[rows]
        short = sizes <= min(most, len(PADDING))
        if self.odd is not None:
            short &= ~(self.odd if rows is None else self.odd[rows])
        found = np.flatnonzero(short)
        longest = int(sizes[found].max(initial=1))
        return found if rows is None else rows[found], -(-longest // _WORD)

    def _words(
        self, starts: NDArray[np.int64], sizes: NDArray[np.int64], width: int
    ) -> NDArray[np.uint64]:
        """The words of cells, with zeros where a cell has no bytes any more."""
        size = width * _WORD
        every = np.ndarray((len(self.data) - size + 1,), f"V{size}", self.data, strides=(1,))
        words: NDArray[np.uint64] = every[starts].view("<u8").reshape(len(starts), width)
        for place in range(width):
            words[:, place] &= _KEEP[np.clip(sizes - place * _WORD, 0, _WORD)]
        return words


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

"""Columns of labels: yes or no, and categories."""

from collections.abc import Iterable
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from tacit.data.cells import BOOLEANS, MISSING, UNKNOWN, WHOLE, Cells, read_labels, text_of
from tacit.data.encoded import DROP, Column
from tacit.errors import InvalidArgument

Label = str | int
_BOOLEANS = {"1": 1, "0": 0, **BOOLEANS}


def _binary_fill(value: int | str) -> int | str:
    if isinstance(value, bool) or value not in (DROP, 0, 1):
        raise InvalidArgument(f"missing must be 'drop', 0 or 1 in a binary; got {value!r}.")
    return value if isinstance(value, str) else int(value)


def _levels(value: Iterable[Label]) -> tuple[Label, ...]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise InvalidArgument(f"levels must be a list of text or integers; got {value!r}.")
    found = tuple(value)
    if not found:
        raise InvalidArgument("levels must have one level or more; got none.")
    return found


@frozen(slots=False, kw_only=True)
class Binary:
    """One of two values, encoded as int32: 1 for yes and 0 for no.

    Without labels, Booleans and 0 and 1 are accepted, also as text. With labels, only the two
    labels are. Every other cell is missing.

    Args:
        yes: The label that becomes 1.
        no: The label that becomes 0.
        missing: ``"drop"`` to leave out rows with a missing value, or 0 or 1 to replace it with.

    Examples:
        >>> Binary(yes="treated", no="control").describe()
        'treated (1) or control (0)'
    """

    yes: Label | None = None
    no: Label | None = None
    missing: int | str = field(default=DROP, converter=_binary_fill)

    kind: ClassVar[str] = "binary"
    shape: ClassVar[tuple[int, ...]] = ()
    dtype: ClassVar[np.dtype[Any]] = np.dtype(np.int32)

    def __attrs_post_init__(self) -> None:
        if (self.yes is None) != (self.no is None):
            raise InvalidArgument("Pass both yes and no, the labels in the data, or neither.")
        if self.yes is not None:
            _label_texts([self.no, self.yes])

    @property
    def _codes(self) -> dict[str, int]:
        if self.yes is None:
            return _BOOLEANS
        return {text: code for code, text in enumerate(_label_texts([self.no, self.yes]))}

    def encode(self, cells: Cells) -> Column:
        """Encodes cells, each row by itself."""
        fill = None if isinstance(self.missing, str) else self.missing
        return _without_unknowns(read_labels(cells, self._codes), fill, fill)

    def made_up(self, count: int, generator: np.random.Generator) -> NDArray[np.int32]:
        """0 or 1 with equal probability."""
        return generator.integers(0, 2, count, np.int32)

    def describe(self) -> str:
        """The two values in words."""
        return "0 or 1" if self.yes is None else f"{self.yes} (1) or {self.no} (0)"


@frozen(slots=False)
class Category:
    """One of a list of public levels, encoded as its position in the list (int32).

    Levels are compared as text: 3, 3.0, "3" and "3.0" are the same level, but "03" is another.
    Spaces around text are ignored unless a level is declared with them. A Boolean is "True" or
    "False", never 1. A cell that is not text, a number or a Boolean is missing, and so is text such
    as "" or "NA" (see `tacit.data.cells`) unless it is a level.

    Args:
        levels: The levels, text or integers.
        other: A name for all values that are not in ``levels``. They get the code after the last
            level. Without it they are missing.
        missing: ``"drop"`` to leave out rows with a missing value, or the level (or ``other``) to
            replace it with.

    Examples:
        >>> Category(["A", "B", "C"], other="other").describe()
        '3 levels and other'
    """

    levels: tuple[Label, ...] = field(converter=_levels)
    other: Label | None = field(default=None, kw_only=True)
    missing: Label = field(default=DROP, kw_only=True)

    kind: ClassVar[str] = "category"
    shape: ClassVar[tuple[int, ...]] = ()
    dtype: ClassVar[np.dtype[Any]] = np.dtype(np.int32)

    def __attrs_post_init__(self) -> None:
        if text_of(self.missing) not in [DROP, *self._codes]:
            raise InvalidArgument(
                f"missing must be 'drop', a level or the name in other; got {self.missing!r}."
            )

    @cached_property
    def _codes(self) -> dict[str, int]:
        named = [*self.levels, *([] if self.other is None else [self.other])]
        return {text: code for code, text in enumerate(_label_texts(named))}

    @property
    def size(self) -> int:
        """The number of codes."""
        return len(self._codes)

    def encode(self, cells: Cells) -> Column:
        """Encodes cells, each row by itself."""
        missing = None if self.missing == DROP else self._codes[str(text_of(self.missing))]
        unknown = missing if self.other is None else self.size - 1
        return _without_unknowns(read_labels(cells, self._codes), unknown, missing)

    def made_up(self, count: int, generator: np.random.Generator) -> NDArray[np.int32]:
        """Codes with equal probability."""
        return generator.integers(0, self.size, count, np.int32)

    def describe(self) -> str:
        """How many levels there are."""
        number = self.size - (self.other is not None)
        levels = "1 level" if number == 1 else f"{number} levels"
        return levels if self.other is None else f"{levels} and {self.other}"

    def listed(self) -> str:
        """All levels, in their order.

        >>> Category(["A", "B"], other="other").listed()
        'A, B; anything else is other'
        """
        levels = ", ".join(map(str, self.levels))
        return levels if self.other is None else f"{levels}; anything else is {self.other}"


def _without_unknowns(codes: NDArray[np.int32], unknown: int | None, missing: int | None) -> Column:
    """Applies the rules for unknown and missing labels; None leaves the row out."""
    if unknown is not None:
        codes[codes == UNKNOWN] = unknown
    if missing is not None:
        codes[codes == MISSING] = missing
    present = codes >= 0
    return Column(np.where(present, codes, np.int32(0)), present)


def _label_texts(labels: Iterable[Any]) -> list[str]:
    texts: list[str] = []
    for label in labels:
        text = text_of(label)
        if text is None or not isinstance(label, str | int) or isinstance(label, bool):
            raise InvalidArgument(
                f"Levels must be text or integers; got {label!r}; in YAML, put quotes around it."
            )
        if isinstance(label, int) and not WHOLE.fullmatch(text):
            raise InvalidArgument(f"Integer levels must be below 10^18; declare {text} as text.")
        if text in texts:
            raise InvalidArgument(f"Levels must differ, also as text; got {label!r} twice.")
        texts.append(text)
    return texts

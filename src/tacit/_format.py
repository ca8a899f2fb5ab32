"""What people see in a terminal: rounded privacy costs, harmless text, tables and progress bars."""

import math
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from io import StringIO
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

# Marks that change the direction of text: a name with one could rearrange the numbers after it.
_DIRECTION_MARKS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_JUSTIFY: dict[str, Literal["left", "right"]] = {"l": "left", "r": "right"}
_MAX_WIDTH = 10_000  # columns of text: nothing is wrapped or cut, whatever the terminal


def format_epsilon(epsilon: float | None) -> str:
    """An epsilon, rounded up at the fifth digit so that it is never printed too small.

    >>> format_epsilon(0.123441), format_epsilon(math.inf), format_epsilon(None)
    ('0.12345', 'unlimited', 'not available')
    """
    if epsilon is None:
        return "not available"
    if not (0 < epsilon < math.inf):
        return "unlimited" if epsilon else "0"
    digits = 4 - math.floor(math.log10(epsilon))
    return f"{math.ceil(epsilon * 10.0**digits - 1e-9) / 10.0**digits:.6g}"


def round_up_epsilon(epsilon: float, most: float | None = None) -> float:
    """An epsilon as it is charged and stated: as it is printed, but not above what was asked for.

    >>> round_up_epsilon(0.9999904, most=1.0), round_up_epsilon(0.527713, most=1.0), round_up_epsilon(0.333332, most=1 / 3)
    (1.0, 0.52772, 0.3333333333333333)
    """
    if not (0 < epsilon < math.inf):
        return epsilon
    rounded = float(format_epsilon(epsilon))
    return rounded if most is None or epsilon > most else min(rounded, most)


def requested_note(epsilon: float | None, most: float | None) -> str:
    """A note beside an epsilon: whether it is what was asked for, or less.

    >>> requested_note(1.0, 1.0), requested_note(0.52772, 1.0)
    ('asked for', 'at most 1 was asked for')
    """
    if epsilon is None or most is None or epsilon >= most:
        return "asked for"
    return f"at most {format_number(most)} was asked for"


def format_number(number: float) -> str:
    """A number of a budget, without the digits of rounding errors.

    >>> format_number(99.47228), format_number(0.1 + 0.2), format_number(1e-05)
    ('99.47228', '0.3', '1e-05')
    """
    return f"{number:.10g}"


def subtract_decimals(number: float, *others: float) -> float:
    """Subtracts numbers by their decimal digits, without rounding errors.

    >>> subtract_decimals(0.3, 0.1, 0.2), 0.3 - 0.1 - 0.2 == 0
    (0.0, False)
    """
    return float(Decimal(repr(number)) - sum(Decimal(repr(each)) for each in others))


def clean_text(value: object) -> str:
    r"""One line of text without control characters, which neither pages nor files can hold.

    >>> clean_text("a\n b\x00")
    'a b�'
    """
    return "".join(map(_replace_control, " ".join(str(value).split())))


def _replace_control(letter: str) -> str:
    odd = letter in _DIRECTION_MARKS or unicodedata.category(letter) in ("Cc", "Cs")
    return "\ufffd" if odd else letter


def text_table(
    rows: Iterable[Sequence[str]], sides: str, header: Sequence[str] | None = None
) -> str:
    """Lays out a table as plain text.

    Args:
        rows: The cells of each row.
        sides: For each column, ``l`` to align it left or ``r`` to align it right.
        header: The titles of the columns, or None for a table without titles.

    Returns:
        The table, one line per row, without colours.
    """
    from rich import box  # rich takes longer to import than most of Tacit's own modules
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE if header else None, show_header=header is not None)
    for title, side in zip(header or [""] * len(sides), sides, strict=True):
        table.add_column(title, justify=_JUSTIFY[side])
    for row in rows:
        table.add_row(*row)
    out = StringIO()
    # Without markup, because the labels of a ledger may contain brackets.
    console = Console(
        file=out, width=_MAX_WIDTH, markup=False, emoji=False, highlight=False, color_system=None
    )
    console.print(table)
    lines = [line.rstrip() for line in out.getvalue().splitlines()]
    return "\n".join(line for line in lines if line)


class ProgressBar:
    """A progress bar, to call with how many steps are done, and their total if it was not known."""

    def __init__(self, bar: "Progress", task: "TaskID") -> None:
        self._bar, self._task = bar, task

    def __call__(self, done: int, total: int | None = None, /) -> None:
        """Moves the bar."""
        self._bar.update(self._task, completed=done, total=total, refresh=True)


@contextmanager
def progress_bar(
    total: int | None, *, shown: bool = True, what: str = "steps"
) -> Iterator[ProgressBar | None]:
    """Shows a progress bar on standard error: what is done and the time left. Nothing comes from rows.

    Args:
        total: The number of steps, or None if it is not known yet.
        shown: Whether to show the bar at all.
        what: What the steps are called.

    Yields:
        The bar, or None if it is not shown.
    """
    if not shown:
        yield None
        return
    from rich import progress
    from rich.console import Console

    columns = (
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TextColumn(f"{what}, time left"),
        progress.TimeRemainingColumn(),
    )
    # Without a thread of its own: the bar moves when steps are done.
    with progress.Progress(*columns, console=Console(stderr=True), auto_refresh=False) as bar:
        yield ProgressBar(bar, bar.add_task(what, total=total))

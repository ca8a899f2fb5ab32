"""What people see in a terminal: rounded privacy costs, harmless text, tables and progress bars."""

import math
import sys
import textwrap
import time
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from importlib import import_module
from io import StringIO
from typing import Any, Literal

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
    """An epsilon as it is charged and stated: as it is printed, but not above what was requested.

    >>> round_up_epsilon(0.9999904, most=1.0), round_up_epsilon(0.527713, most=1.0), round_up_epsilon(0.333332, most=1 / 3)
    (1.0, 0.52772, 0.3333333333333333)
    """
    if not (0 < epsilon < math.inf):
        return epsilon
    rounded = float(format_epsilon(epsilon))
    return rounded if most is None or epsilon > most else min(rounded, most)


def requested_note(epsilon: float | None, most: float | None) -> str:
    """A note beside an epsilon: whether it is what was requested, or less.

    >>> requested_note(1.0, 1.0), requested_note(0.52772, 1.0)
    ('requested', 'at most 1 was requested')
    """
    if epsilon is None or most is None or epsilon >= most:
        return "requested"
    return f"at most {format_number(most)} was requested"


def format_number(number: float) -> str:
    """A number of a budget, without the digits of rounding errors.

    >>> format_number(99.47228), format_number(0.1 + 0.2), format_number(1e-05)
    ('99.47228', '0.3', '1e-5')
    """
    return f"{number:.10g}".replace("e-0", "e-")


def format_count(count: float, noise: float) -> str:
    """A noisy count, with half the width of its 90% interval.

    >>> format_count(8017.3, 84.2)
    '8,017 (±139)'
    """
    return f"{max(count, 0):,.0f} (±{1.645 * noise:,.0f})"


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


# Where values begin after a label, in lines such as "Privacy    epsilon 1", and how long such lines may be.
LABEL_WIDTH, _LINE_WIDTH = 11, 110


def labelled_lines(facts: Iterable[tuple[str, str]], indent: str = "") -> list[str]:
    """Lines of a label and a text, which begin in the same column; long ones go on below.

    >>> labelled_lines([("Model", "logistic regression")], indent=" ")
    [' Model      logistic regression']
    """
    blank = indent + " " * LABEL_WIDTH
    return [
        line
        for label, text in facts
        for line in textwrap.wrap(
            f"{indent}{label:<{LABEL_WIDTH}}{text}",
            _LINE_WIDTH,
            subsequent_indent=blank,
            break_long_words=False,
            break_on_hyphens=False,
        )
    ]


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
    # Without markup, because the labels of a ledger may contain brackets. In a notebook Rich would show the table at once,
    # where nobody asked to see it, and the text would be empty.
    console = Console(
        file=out,
        width=_MAX_WIDTH,
        markup=False,
        emoji=False,
        highlight=False,
        color_system=None,
        force_jupyter=False,
    )
    console.print(table)
    lines = [line.rstrip() for line in out.getvalue().splitlines()]
    return "\n".join(line for line in lines if line)


def is_watched() -> bool:
    """Whether a person sees what this process shows: in a terminal or in a notebook."""
    return _is_terminal() or _in_notebook()


def _is_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()


def _in_notebook() -> bool:
    """Whether this process is the kernel of a notebook. IPython is not imported for this."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


class ProgressBar:
    """A progress bar, to call with how many steps are done, and their total if it was not known."""

    def __init__(self, total: int | None, label: str, what: str) -> None:
        self._total, self._label, self._what = total, label, what
        self._done, self._began, self._written = 0, time.monotonic(), ""
        self._handle: Any = None

    def __call__(self, done: int, total: int | None = None, /) -> None:
        """Moves the bar."""
        self._done, self._total = done, self._total if total is None else total
        elapsed = time.monotonic() - self._began
        of = "" if self._total is None else f"/{self._total}"
        left = ""
        if self._total and done:
            left = f", {_format_seconds(elapsed * (self._total - done) / done)} left"
        self._show(f"{self._bar()}  {done}{of} {self._what}{left}")

    def close(self) -> None:
        """Ends with how many steps were done, and the time that they took."""
        elapsed = _format_seconds(time.monotonic() - self._began)
        self._show(f"{self._bar()}  {self._done} {self._what}, {elapsed}", last=True)

    def _bar(self) -> str:
        full = _BAR_LENGTH * self._done // self._total if self._total else 0
        return f"{self._label:<{LABEL_WIDTH}}{'━' * full}{'─' * (_BAR_LENGTH - full)}"

    def _show(self, text: str, *, last: bool = False) -> None:
        if _in_notebook():
            # As text that is replaced, not as a widget, which is empty when the page is opened again.
            display = import_module("IPython.display").display
            if self._handle is None:
                self._handle = display({"text/plain": text}, raw=True, display_id=True)
            else:
                self._handle.update({"text/plain": text}, raw=True)
            return
        if sys.stderr is None or not (last or _is_terminal()):
            return  # a file gets the last line alone
        blank = " " * max(0, len(self._written) - len(text))
        begin, self._written = "\r" if self._written else "", text
        encoding = getattr(sys.stderr, "encoding", None) or "utf-8"
        shown = text.encode(encoding, "replace").decode(encoding)
        sys.stderr.write(f"{begin}{shown}{blank}" + ("\n" if last else ""))
        sys.stderr.flush()


_BAR_LENGTH = 20


def _format_seconds(seconds: float) -> str:
    minutes = round(seconds) // 60
    return f"{seconds:.0f} s" if minutes < 2 else f"{minutes} min"


@contextmanager
def progress_bar(
    total: int | None, *, shown: bool = True, what: str = "steps", label: str = "Fitting"
) -> Iterator[ProgressBar | None]:
    """Shows a progress bar on standard error: what is done and the time left. Nothing comes from rows.

    Args:
        total: The number of steps, or None if it is not known yet.
        shown: Whether to show the bar at all.
        what: What the steps are called.
        label: What is going on.

    Yields:
        The bar, or None if it is not shown.
    """
    if not shown:
        yield None
        return
    bar = ProgressBar(total, label, what)
    bar(0)
    try:
        yield bar
    finally:
        bar.close()

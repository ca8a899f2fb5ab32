"""Plain-text tables, for the command line and for printed results."""

from collections.abc import Iterable, Sequence
from io import StringIO
from typing import Literal

from rich import box
from rich.console import Console
from rich.table import Table

_JUSTIFY: dict[str, Literal["left", "right"]] = {"l": "left", "r": "right"}
_MAX_WIDTH = 10_000  # columns of text: nothing is wrapped or cut, whatever the terminal


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

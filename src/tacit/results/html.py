"""Pieces of HTML for notebooks: self-contained, and in the colours of the page around them."""

import html
from collections.abc import Iterable, Sequence

_CELL = "padding:0.15em 0.9em 0.15em 0;vertical-align:top;background:transparent;border:none;"


def box(*parts: str) -> str:
    """Parts one below the other. Colours are the page's own, so dark pages stay dark."""
    style = "color:inherit;background:transparent;max-width:60em;line-height:1.45"
    return f'<div style="{style}">{"".join(parts)}</div>'


def warning(text: str) -> str:
    """White on red: legible on any page."""
    style = "background:#b3261e;color:#ffffff;font-weight:600;padding:0.4em 0.8em;margin:0 0 0.5em"
    return f'<div style="{style}">{html.escape(text)}</div>'


def paragraph(text: str) -> str:
    """A sentence or two."""
    return f'<p style="margin:0.4em 0">{html.escape(text)}</p>'


def folded(title: str, inside: str) -> str:
    """Something to open on demand."""
    return f"<details><summary>{html.escape(title)}</summary>{inside}</details>"


def table(
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    above: tuple[str, slice] | None = None,
) -> str:
    """A name in the first column, numbers to the right of it.

    ``above`` are words above some of the columns.
    """
    over = "" if above is None else f"<tr>{_over(*above)}</tr>"
    head = "".join(_cell("th", text, right=i > 0) for i, text in enumerate(header))
    body = "".join(
        f"<tr>{''.join(_cell('td', text, right=i > 0) for i, text in enumerate(row))}</tr>"
        for row in rows
    )
    return f"{_TABLE}<thead>{over}<tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def facts(rows: Iterable[tuple[str, str]]) -> str:
    """A table of names and what is to be said of them."""
    body = "".join(
        f"<tr>{_cell('th', name, right=False)}{_cell('td', said, right=False)}</tr>"
        for name, said in rows
    )
    return f"{_TABLE}<tbody>{body}</tbody></table>"


_TABLE = '<table style="border-collapse:collapse;color:inherit;background:transparent">'


def _over(words: str, columns: slice) -> str:
    style = f"{_CELL}text-align:right;font-weight:600"
    return (
        f'<th colspan="{columns.start}" style="{_CELL}"></th>'
        f'<th colspan="{columns.stop - columns.start}" style="{style}">{html.escape(words)}</th>'
    )


def _cell(tag: str, text: str, *, right: bool) -> str:
    side = "right" if right else "left"
    style = f"{_CELL}text-align:{side};font-variant-numeric:tabular-nums"
    return f'<{tag} style="{style}">{html.escape(text)}</{tag}>'

"""Reports: an HTML page, Markdown and a registry entry, in one folder."""

import contextlib
import html
import os
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tacit._format import clean_text, format_number
from tacit._html import render_template
from tacit.data.schema import Schema
from tacit.errors import TacitError
from tacit.models.interpretation import IncrementSizes
from tacit.results import drawings, statement
from tacit.results.contents import (
    LEARNS_COLUMNS,
    SITE_COLUMNS,
    WEAKEST_SITE_NOTE,
    ReportContents,
)
from tacit.results.drawings import INNER_LEVEL, INTERVAL_LEVEL
from tacit.results.summary import CONVERGENCE_SENTENCES

if TYPE_CHECKING:
    from tacit.results.posterior import Posterior


# Special characters of Markdown, anywhere and at the start of a line.
_MARKDOWN_SPECIAL = re.compile(r"([\\`*_\[\]|~$])")
_MARKDOWN_LINE_START = re.compile(r"^(\d*)([-+#=:.)])(?=[\s#=:+-]|$)")


def markdown_report(contents: ReportContents) -> str:
    """The whole text."""
    sections = (_top, _site, _posterior, _privacy, _learns, _budget, _repeat)
    blocks = [block for section in sections for block in section(contents) if block]
    return "\n\n".join(blocks) + "\n"


def _top(contents: ReportContents) -> list[str]:
    warnings = contents.posterior.warnings
    return [
        f"# {escape_markdown(contents.title)}",
        *(f"> **{escape_markdown(warning)}**" for warning in warnings),
        escape_markdown(contents.summary.trust),
        escape_markdown(contents.answer),
        _items((name, [said]) for name, said in contents.notes),
    ]


def _site(contents: ReportContents) -> list[str]:
    if contents.site is None:
        return []
    return [
        f"## What {escape_markdown(contents.site.name)} contributed",
        _items(contents.site.facts),
    ]


def _learns(contents: ReportContents) -> list[str]:
    if not contents.learns:
        return []
    return ["## Who learns what", _table(LEARNS_COLUMNS, contents.learns)]


def _posterior(contents: ReportContents) -> list[str]:
    summary = contents.summary
    table = _table(("parameter", *summary.columns()[1:]), summary.cells(), numbers=True)
    notes = [*contents.interpretation_notes, *contents.left_out, *contents.method, *contents.course]
    about = f"**{escape_markdown(summary.spread)}.** {escape_markdown(contents.about_intervals)}"
    technical = _items((contents.technical,))
    return [
        "## Posterior",
        about,
        table,
        *map(escape_markdown, notes),
        technical,
        *_expected(contents),
    ]


def _expected(contents: ReportContents) -> list[str]:
    if not contents.expected:
        return []
    header = ("half width of the 90% interval", "forecast", "result")
    return ["### What was expected", _table(header, contents.expected, numbers=True)]


def _privacy(contents: ReportContents) -> list[str]:
    statement, title = contents.statement, "## What it costs a person in the data"
    if statement.event is None:
        return [title, escape_markdown(statement.warning)]
    return [
        title,
        escape_markdown(statement.declared),
        escape_markdown(contents.epsilon_words),
        "Without a seed, the same run would have:" if statement.seeded else "",
        _items((name, [said]) for name, said in contents.costs),
        *(
            [WEAKEST_SITE_NOTE, _table(SITE_COLUMNS, contents.sites, numbers=True)]
            if contents.sites
            else []
        ),
        *_curves(contents),
        _facts(contents),
    ]


def _curves(contents: ReportContents) -> list[str]:
    if not contents.curves:
        return []
    return [
        "A run has no single epsilon: the guarantee of every line holds at once.",
        _table(*contents.statement.curve_table(), numbers=True),
    ]


def _facts(contents: ReportContents) -> str:
    return f"### What the guarantee is about\n\n{_items(contents.facts)}"


def _budget(contents: ReportContents) -> list[str]:
    spending = contents.spending
    if spending is None:
        return ["## Budget left", escape_markdown(contents.budget_words)]
    rows = [(name, format_number(size)) for _, name, size in spending.parts]
    return [
        "## Budget left",
        escape_markdown(contents.budget_words),
        _table(("", "epsilon"), rows, numbers=True),
    ]


def _repeat(contents: ReportContents) -> list[str]:
    blocks = ["## How to repeat it", _table(("setting", "value"), contents.repeat)]
    if contents.schema is not None:
        header, lines, notes = contents.schema_table
        blocks += ["### Schema", _table(header, lines), *map(escape_markdown, notes)]
    return [
        *blocks,
        "### What was done to the data",
        f"```json\n{contents.event}\n```",
        "### The privacy statement",
        f"```json\n{contents.statement.to_json()}\n```",
    ]


def escape_markdown(value: object) -> str:
    r"""Text for Markdown, in which special characters and tags are escaped.

    >>> print(escape_markdown("a*b | <i>"))
    a\*b \| &lt;i&gt;
    """
    return _MARKDOWN_LINE_START.sub(
        r"\1\\\2", _MARKDOWN_SPECIAL.sub(r"\\\1", html.escape(clean_text(value), quote=False))
    )


def _items(items: Iterable[tuple[str, Sequence[str]]]) -> str:
    return "\n".join(
        f"- **{escape_markdown(name)}**: {escape_markdown('; '.join(said))}" for name, said in items
    )


def _table(header: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: bool = False) -> str:
    rule = ["---", *(["---:" if numbers else "---"] * (len(header) - 1))]
    lines = [[escape_markdown(cell) for cell in row] for row in (header, *rows)]
    lines.insert(1, rule)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def html_report(contents: ReportContents) -> str:
    """The whole page."""
    panels = drawings.forest_panels(contents.bars)
    parts = [] if contents.spending is None else drawings.bar_segments(contents.spending.parts)
    asked = contents.statement.adjacency
    chart = (
        drawings.privacy_chart(contents.curves, contents.marked, asked=asked)
        if contents.curves
        else None
    )
    return render_template(
        "page.html",
        contents=contents,
        level=INTERVAL_LEVEL,
        half=INNER_LEVEL,
        panels=panels,
        not_drawn=len(contents.bars) - sum(len(each.bars) for each in panels),
        least=WEAKEST_SITE_NOTE,
        learns_columns=LEARNS_COLUMNS,
        site_columns=SITE_COLUMNS,
        chart=chart,
        parts=parts,
        spent="Epsilon: " + ", ".join(f"{each.name} {format_number(each.size)}" for each in parts),
    )


HTML_FILE, MARKDOWN_FILE, REGISTRY_FILE = "report.html", "report.md", "registry.yaml"


def write_report(
    posterior: "Posterior",
    folder: str | os.PathLike[str],
    *,
    settings: Mapping[str, object] | None = None,
    schema: Schema | None = None,
    units: IncrementSizes | None = None,
) -> None:
    """Writes ``report.html``, ``report.md`` and ``registry.yaml`` into a folder.

    Args:
        posterior: The posterior.
        folder: The folder, which is created if necessary.
        settings: Public facts for repeating the fit, shown in their order. Some have a further use:
            ``title`` heads the report, instead of a question made from the formula; ``notes`` (a mapping
            of names to text, such as purpose, analyst and approval) follows it; ``ledger_total`` (a
            `Budget`, or a mapping of its fields) shows how much earlier runs used.
        schema: The schema, for a posterior from a file, which has none.
        units: Other units for some columns, as for `Posterior.summary`.

    Raises:
        InvalidArgument: If a setting or a unit is wrong.
        TacitError: If a file cannot be written.
    """
    contents = ReportContents(
        posterior=posterior,
        settings=dict(settings or {}),
        schema=schema or posterior.schema,
        units=units or {},
    )
    write_files(
        Path(folder),
        {
            HTML_FILE: html_report(contents),
            MARKDOWN_FILE: markdown_report(contents),
            REGISTRY_FILE: statement.registry_yaml(
                posterior.privacy,
                federated=bool(contents.sites),
                said=(contents.about_intervals, CONVERGENCE_SENTENCES[posterior.converged]),
                warnings=posterior.warnings,
            ),
        },
    )


def write_site_report(contents: ReportContents, folder: Path) -> Path:
    """Writes the report for the board of one site, as HTML and Markdown.

    Args:
        contents: What the report says, with the part of the site.
        folder: The folder, which is created if necessary.

    Returns:
        The page.
    """
    assert contents.site is not None
    name = f"report-{contents.site.name}"
    texts = {f"{name}.html": html_report(contents), f"{name}.md": markdown_report(contents)}
    write_files(folder, texts)
    return folder / f"{name}.html"


def write_files(target: Path, texts: Mapping[str, str]) -> None:
    """Writes files into a folder."""
    try:
        target.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            write_atomically(target / name, text)
    except OSError as error:
        raise TacitError(
            f"The report could not be written to {target}: {error.strerror or error}."
        ) from error


def write_atomically(target: Path, text: str) -> None:
    """Writes a file beside the target, and then moves it there: nobody sees half a file."""
    draft = target.parent / f".{target.name}.{secrets.token_hex(4)}.part"
    try:
        draft.write_text(text, encoding="utf-8", newline="\n")
        draft.replace(target)
    finally:
        with contextlib.suppress(OSError):
            draft.unlink()

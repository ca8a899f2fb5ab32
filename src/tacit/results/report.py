"""Reports: an HTML page, Markdown and a registry entry, in one folder."""

import contextlib
import os
import re
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tacit._format import format_number
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


HTML_FILE, MARKDOWN_FILE, REGISTRY_FILE = "report.html", "report.md", "registry.yaml"


def html_report(contents: ReportContents) -> str:
    """The report as one self-contained HTML page."""
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
        weakest_site=WEAKEST_SITE_NOTE,
        learns_columns=LEARNS_COLUMNS,
        site_columns=SITE_COLUMNS,
        chart=chart,
        parts=parts,
        spent="Epsilon: " + ", ".join(f"{each.name} {format_number(each.size)}" for each in parts),
    )


def markdown_report(contents: ReportContents) -> str:
    """The report as Markdown, with tables in place of drawings."""
    text = render_template(
        "report.md",
        contents=contents,
        weakest_site=WEAKEST_SITE_NOTE,
        learns_columns=LEARNS_COLUMNS,
        site_columns=SITE_COLUMNS,
    )
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


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
                said=(contents.interval_sentence, CONVERGENCE_SENTENCES[posterior.converged]),
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

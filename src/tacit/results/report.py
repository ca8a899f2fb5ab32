"""Reports: an HTML page, Markdown and a registry entry, in one folder."""

import contextlib
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.data.schema import Schema
from tacit.errors import TacitError
from tacit.models.reading import Units
from tacit.results import markdown, registry
from tacit.results.contents import Contents
from tacit.results.page import page
from tacit.results.wording import CONVERGED

if TYPE_CHECKING:
    from tacit.results.posterior import Posterior

HTML, MARKDOWN, REGISTRY = "report.html", "report.md", "registry.yaml"


def write_report(
    posterior: "Posterior",
    folder: str | os.PathLike[str],
    *,
    settings: Mapping[str, Any] | None = None,
    schema: Schema | None = None,
    units: Units | None = None,
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
    contents = Contents(
        posterior=posterior,
        settings=dict(settings or {}),
        schema=schema or posterior.schema,
        units=units or {},
    )
    write_texts(
        Path(folder),
        {
            HTML: page(contents),
            MARKDOWN: markdown.text(contents),
            REGISTRY: registry.text(
                posterior.privacy,
                federated=bool(contents.sites),
                said=(contents.about_intervals, CONVERGED[posterior.converged]),
                warnings=posterior.warnings,
            ),
        },
    )


def write_site_report(contents: Contents, folder: Path) -> Path:
    """Writes the report for the board of one site, as HTML and Markdown.

    Args:
        contents: What the report says, with the part of the site.
        folder: The folder, which is created if necessary.

    Returns:
        The page.
    """
    assert contents.site is not None
    name = f"report-{contents.site.name}"
    texts = {f"{name}.html": page(contents), f"{name}.md": markdown.text(contents)}
    write_texts(folder, texts)
    return folder / f"{name}.html"


def write_texts(target: Path, texts: Mapping[str, str]) -> None:
    """Writes files into a folder."""
    try:
        target.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            write_text(target / name, text)
    except OSError as error:
        raise TacitError(
            f"The report could not be written to {target}: {error.strerror or error}."
        ) from error


def write_text(target: Path, text: str) -> None:
    """Writes a file beside the target, and then moves it there: nobody sees half a file."""
    draft = target.parent / f".{target.name}.{secrets.token_hex(4)}.part"
    try:
        draft.write_text(text, encoding="utf-8", newline="\n")
        draft.replace(target)
    finally:
        with contextlib.suppress(OSError):
            draft.unlink()

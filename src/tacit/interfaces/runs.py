"""What is in the folder of a run, or in the file of a posterior alone: for reports and explanations."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tacit.errors import InvalidArgument
from tacit.interfaces.requests import Folder
from tacit.interfaces.site_report import part_of
from tacit.results.contents import Contents
from tacit.results.explain import explanation
from tacit.results.posterior import Posterior
from tacit.results.report import write_report, write_site_report


def loaded(path: Path) -> Contents:
    """What a report shows of a run.

    Args:
        path: The folder that ``tacit fit`` wrote, or a file that `Posterior.save` wrote.

    Returns:
        The posterior with its settings and schema; a file alone has neither.

    Raises:
        TacitError: If it cannot be read.
    """
    if path.is_file():
        return Contents(posterior=Posterior.load(path), settings={}, schema=None)
    run = Folder(path)
    posterior = run.posterior(with_model=False)
    return Contents(posterior=posterior, settings=run.shown(), schema=posterior.schema)


def report(path: Path, out: Path | None, units: Mapping[str, float]) -> tuple[Posterior, Path]:
    """Writes the report of a run or a file; returns the posterior and the page."""
    found = loaded(path)
    folder = out or (path.parent if path.is_file() else path)
    write_report(found.posterior, folder, settings=found.settings, schema=found.schema, units=units)
    return found.posterior, folder / "report.html"


def site_reports(
    path: Path, out: Path | None, units: Mapping[str, float], sites: Sequence[Path]
) -> list[Path]:
    """Writes the report of a federated fit for each site's own board; returns the pages.

    Args:
        path: The file of the result.
        out: The folder to write to; by default that of the file.
        units: Other units for some columns.
        sites: Settings of the sites, each ``site.toml``.

    Returns:
        The pages.
    """
    found, pages = loaded(path), []
    for settings in sites:
        posterior, part = part_of(found.posterior, settings)
        contents = replace(found, posterior=posterior, site=part, units=units)
        contents = replace(contents, schema=found.schema or posterior.schema)
        pages.append(write_site_report(contents, out or path.parent))
    return pages


def explained(path: Path) -> str:
    """A run or a file in plain words."""
    return explanation(loaded(path))


def notes_of(texts: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Reads notes that were typed as ``name=text``."""
    pairs = [text.partition("=") for text in texts]
    for name, equals, text in pairs:
        if not equals or not name.strip() or not text.strip():
            raise InvalidArgument(
                "Write a note as name=text, such as --note purpose='A study of falls'."
            )
    found = tuple((name.strip(), text.strip()) for name, _, text in pairs)
    if len(dict(found)) < len(found):
        raise InvalidArgument("A note is given twice; pass each name once.")
    return found


def units_of(texts: Sequence[str]) -> dict[str, float]:
    """Reads units that were typed as ``column=number``."""
    found = {}
    for text in texts:
        name, _, size = text.rpartition("=")
        try:
            found[name] = float(size)
        except ValueError:
            name = ""
        if not name:
            raise InvalidArgument(f"Write a unit as column=number, such as age=10; got {text!r}.")
    return found

"""What `tacit federated status` does. It loads no JAX, and reads no row."""

from collections.abc import Iterator
from pathlib import Path

from tacit._format import text_table
from tacit.accounting.ledger import Ledger
from tacit.cli.ledger import charges_table
from tacit.errors import InvalidArgument
from tacit.federated.journal import read_run_progress
from tacit.federated.settings import SiteSettings
from tacit.federated.state import read_run_status

_SITES_HEADER = ("site", "answers used", "last round", "spent in this run")
_RUNS_HEADER = ("run", "answers given", "answers paid for", "last round")


def status(path: Path) -> list[str]:
    """What is known at a place of how far runs are. Nothing is charged, and no row is read.

    Args:
        path: The server's state, the settings of a site (``site.toml``), or a folder with some of
            them, such as that of a trial.

    Returns:
        A text for the server, and for every site.

    Raises:
        InvalidArgument: If there is nothing of the kind.
    """
    if path.is_dir():
        found = [*sorted(path.glob("*.state")), *sorted(path.glob("sites/*/site.toml"))]
        found = found or sorted(path.glob("site.toml"))
        if not found:
            raise InvalidArgument(
                f"{path} has neither a server's state (*.state), nor a site.toml, nor sites/*/site.toml."
            )
        return [text for each in found for text in status(each)]
    lines = _site_lines(path) if path.suffix == ".toml" else _server_lines(path)
    return ["\n".join(lines)]


def _server_lines(path: Path) -> Iterator[str]:
    course = read_run_status(path)
    so_far = course.line if course.updates else f"None of {course.num_rounds} rounds is done."
    yield f"Server ({path}), run {course.run}. {so_far}"
    yield text_table(course.sites_table, "lrrl", _SITES_HEADER)


def _site_lines(path: Path) -> Iterator[str]:
    settings = SiteSettings.from_file(path)
    if not settings.ledger.exists():
        yield f"{settings.name}: there is no ledger yet at {settings.ledger}; tacit federated open {path}."
        return
    ledger = Ledger(settings.ledger)
    yield f"{settings.name} ({path}): {ledger.left} left of {ledger.total}, for every {ledger.unit}."
    runs = read_run_progress(ledger)
    if not runs:
        yield "No run has started yet."
        return
    cells = [(each.run, str(each.given), str(each.paid), str(each.round)) for each in runs]
    yield text_table(cells, "lrrr", _RUNS_HEADER)
    header, sides, charges = charges_table(ledger.charges)
    yield text_table(charges, sides, header)

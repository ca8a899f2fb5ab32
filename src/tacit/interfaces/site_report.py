"""The report of a federated fit for the board of one site: its part, and its own ledger."""

from pathlib import Path

from attrs import evolve

from tacit.accounting.journal import runs_so_far
from tacit.accounting.ledger import Ledger
from tacit.errors import InvalidArgument
from tacit.federated.deploy import SiteSettings, load_study
from tacit.federated.engine import label_of
from tacit.results.posterior import Posterior
from tacit.results.sites import SitePart


def part_of(posterior: Posterior, path: Path) -> tuple[Posterior, SitePart]:
    """A federated result as it concerns one site.

    Args:
        posterior: The result.
        path: The settings of the site, ``site.toml``. Its ledger is read, and no row.

    Returns:
        The result with the statement of this site, and what the site did and spent.

    Raises:
        InvalidArgument: If the result is not of this site, or the site has not answered in its run.
    """
    settings = SiteSettings.from_file(path)
    if settings.name not in posterior.sites:
        raise InvalidArgument(
            f"The result is not of a federated fit with the site {settings.name}."
        )
    study, ledger = load_study(settings.study), Ledger(settings.ledger)
    run = next((each for each in runs_so_far(ledger) if each.run == study.run), None)
    if run is None:
        raise InvalidArgument(f"{settings.name} has not answered in the run {study.run!r}.")
    charges = [each for each in ledger.charges if each.label.startswith(label_of(study.run))]
    used, asked = posterior.answers.get(settings.name, (None, None))
    part = SitePart(
        name=settings.name,
        run=study.run,
        used=used,
        asked=asked,
        given=run.given,
        paid=run.paid,
        charged=sum(each.epsilon for each in charges),
        left=ledger.left,
        total=ledger.total,
    )
    return evolve(posterior, privacy=posterior.sites[settings.name]), part

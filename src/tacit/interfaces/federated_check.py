"""`tacit federated check`: what a site or the server has, and a round on made-up rows."""

from collections.abc import Iterator
from pathlib import Path

from tacit.accounting.ledger import Ledger
from tacit.errors import InvalidArgument, TacitError
from tacit.federated.deploy import OpenSite, SiteSettings, Study, load_study
from tacit.federated.engine import site_of

Line = tuple[str, str, bool]


def checked(path: Path) -> list[Line]:
    """Lines of a check: what was looked at, what was found, and whether it is in order.

    Args:
        path: The settings of a site (``site.toml``), or the file of a study at the server.

    Returns:
        The lines. Nothing is charged, and of the rows only whether they can be read is told.
    """
    if path.suffix != ".toml":
        study = load_study(path)
        return [*_agreed(study), *_round(study, study.sites[0])]
    settings = SiteSettings.from_file(path)
    site = OpenSite(settings)
    return [
        *_agreed(site.study),
        *_ledger(settings, site.study),
        *_keys(settings, site.study),
        _data(site),
        *_round(site.study, site.name),
    ]


def _agreed(study: Study) -> Iterator[Line]:
    agreement = study.agreement
    for name, value in agreement.parts:
        yield name, value, True
    yield "digest of all of these", agreement.digest, True


def _ledger(settings: SiteSettings, study: Study) -> Iterator[Line]:
    try:
        ledger = Ledger(settings.ledger, settings.total, unit=study.unit)
        left = ledger.left
    except TacitError as error:
        yield "ledger", str(error), False
        return
    yield "ledger", f"{settings.ledger}: {left}", True


def _keys(settings: SiteSettings, study: Study) -> Iterator[Line]:
    if not study.masked:
        yield "keys of masks", "not needed: every answer is private by itself", True
        return
    missing = sorted(set(study.sites) - set(settings.members))
    if settings.identity is None or not settings.identity.is_file():
        yield "keys of masks", "no signing key: tacit federated identity", False
    elif missing:
        yield "keys of masks", f"no public key of {', '.join(missing)} under [members]", False
    else:
        yield "keys of masks", "the signing key, and the public keys of all sites", True


def _data(site: OpenSite) -> Line:
    try:
        site.refuse_unreadable()
    except (TacitError, OSError) as error:
        said = str(error) if isinstance(error, InvalidArgument) else type(error).__name__
        return "data", said, False
    return "data", "can be read, and have the study's columns and unit", True


def _round(study: Study, name: str) -> Iterator[Line]:
    """A round on a made-up row, with the noise of the study, and without a ledger."""
    try:
        server = study.server()
        task = server.tasks(study.sites)[name]
        site = site_of(
            name,
            study.example,
            study.method,
            study.target,
            run=study.run,
            sites=len(study.sites),
            budget=study.budget,
        )
        reply = site.client.answer(task)
    except TacitError as error:
        yield "a round on a made-up row", str(error), False
        return
    yield "a round on a made-up row", f"an answer of {len(reply.change):,} numbers", True

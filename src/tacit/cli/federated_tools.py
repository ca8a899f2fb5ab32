"""What `tacit federated check` and `keys` do.

They are not beside the commands because they load JAX and cryptography, and the command of a node must not.
"""

import ipaddress
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tacit.accounting.ledger import Ledger
from tacit.errors import InvalidArgument, TacitError
from tacit.federated.agreement import short_digest
from tacit.federated.deploy import OpenSite, Study, load_study
from tacit.federated.method import prepare_site
from tacit.federated.settings import SiteSettings
from tacit.federated.targets import Target

CheckLine = tuple[str, str, bool]


def run_checks(path: Path) -> list[CheckLine]:
    """Lines of a check: what was looked at, what was found, and whether it is in order.

    Args:
        path: The settings of a site (``site.toml``), or the file of a study at the server.

    Returns:
        The lines. Nothing is charged, and of the rows it only says whether they can be read.
    """
    if path.suffix != ".toml":
        study = load_study(path)
        return [*_agreement_lines(study), *_trial_round_lines(study, study.sites[0])]
    return list(site_checks(OpenSite(SiteSettings.from_file(path))))


def site_checks(site: OpenSite) -> Iterator[CheckLine]:
    """The lines of a check of a site that is open."""
    yield from _agreement_lines(site.study)
    yield from _ledger_lines(site.settings, site.study)
    yield from _mask_key_lines(site.settings, site.study)
    yield _data_line(site)
    yield from _trial_round_lines(site.study, site.name)


def _agreement_lines(study: Study[Target]) -> Iterator[CheckLine]:
    agreement = study.agreement
    for name, value in agreement.parts:
        yield name, short_digest(value) if name == "schema" else value, True
    yield "digest of all of these", agreement.digest, True


def _ledger_lines(settings: SiteSettings, study: Study[Target]) -> Iterator[CheckLine]:
    try:
        ledger = Ledger(settings.ledger, settings.total, unit=study.unit)
        left = ledger.left
    except TacitError as error:
        yield "ledger", str(error), False
        return
    yield "ledger", f"{settings.ledger}: {left}", True


def _mask_key_lines(settings: SiteSettings, study: Study[Target]) -> Iterator[CheckLine]:
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


def _data_line(site: OpenSite) -> CheckLine:
    try:
        site.check_readable()
    except (TacitError, OSError) as error:
        said = str(error) if isinstance(error, InvalidArgument) else type(error).__name__
        return "data", said, False
    return "data", "can be read, and have the study's columns and unit", True


def _trial_round_lines(study: Study[Target], name: str) -> Iterator[CheckLine]:
    """A round on a simulated row, with the noise of the study, and without a ledger."""
    try:
        server = study.server()
        task = server.tasks(study.sites)[name]
        site = prepare_site(
            name,
            study.example,
            study.method,
            study.target,
            run=study.run,
            sites=len(study.sites),
            budget=study.budget,
        )
        reply = site.answer(task)
    except TacitError as error:
        yield "a round on a simulated row", str(error), False
        return
    yield "a round on a simulated row", f"an answer of {len(reply.change):,} numbers", True


_Key = ec.EllipticCurvePrivateKey
_PEM = serialization.Encoding.PEM


def write_keys(folder: Path, addresses: tuple[str, ...], sites: tuple[str, ...], days: int) -> None:
    """Writes what TLS and node authentication need into a new folder, secrets for their owner only.

    Args:
        folder: The folder to create.
        addresses: Addresses and names at which sites reach the server.
        sites: Names of the sites.
        days: For how long certificates are valid.

    Raises:
        InvalidArgument: If the folder exists, or cannot be created.
    """
    try:
        folder.mkdir(mode=0o700, parents=True)
    except OSError as error:
        raise InvalidArgument(
            f"{folder} cannot be created: {error.strerror}. Keys that exist are never replaced."
        ) from error
    authority, server = _new_key(), _new_key()
    issuer = _x509_name("study authority")
    own = _certificate(issuer, issuer, authority, authority, days)
    _write_secret(folder / "ca.key", _pem(authority))
    (folder / "ca.crt").write_bytes(own.public_bytes(_PEM))
    _write_secret(folder / "server.key", _pem(server))
    given = _certificate(_x509_name(addresses[0]), issuer, server, authority, days, addresses)
    (folder / "server.crt").write_bytes(given.public_bytes(_PEM))
    for site in sites:
        key = _new_key()
        _write_secret(folder / site, _pem(key, serialization.PrivateFormat.OpenSSH))
        public = key.public_key().public_bytes(
            serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
        )
        (folder / f"{site}.pub").write_bytes(public + b"\n")


def project_sites() -> tuple[str, ...]:
    """The sites of the project in the present folder.

    Raises:
        InvalidArgument: If this is no such folder.
    """
    found = tuple(path.parent.name for path in sorted(Path("sites").glob("*/site.toml")))
    if not found:
        raise InvalidArgument(
            "There are no sites/*/site.toml here: go to the folder that tacit federated new made, or "
            "name sites with --site."
        )
    return found


def _new_key() -> _Key:
    return ec.generate_private_key(ec.SECP384R1())


def _pem(key: _Key, kind: serialization.PrivateFormat = serialization.PrivateFormat.PKCS8) -> bytes:
    return key.private_bytes(_PEM, kind, serialization.NoEncryption())


def _x509_name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _certificate(
    subject: x509.Name,
    issuer: x509.Name,
    key: _Key,
    signer: _Key,
    days: int,
    addresses: tuple[str, ...] = (),
) -> x509.Certificate:
    """A certificate: of the authority itself, or of the server at some addresses."""
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=not addresses, path_length=None), critical=True)
    )
    if addresses:
        places = x509.SubjectAlternativeName([_alternative_name(each) for each in addresses])
        made = made.add_extension(places, critical=False)
    return made.sign(signer, hashes.SHA384())


def _alternative_name(address: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(address))
    except ValueError:
        return x509.DNSName(address)


def _write_secret(path: Path, content: bytes) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as opened:
        opened.write(content)

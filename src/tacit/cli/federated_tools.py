"""What `tacit federated check` and `keys` do.

They are not beside the commands because they load JAX and cryptography, and the command of a node must not.
"""

import ipaddress
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tacit.errors import InvalidArgument
from tacit.federated.deploy import CheckLine, OpenSite, load_study, site_checks, study_checks
from tacit.federated.settings import SiteSettings


def run_checks(path: Path) -> list[CheckLine]:
    """Lines of a check: what was looked at, what was found, and whether it is in order.

    Args:
        path: The settings of a site (``site.toml``), or the file of a study at the server.

    Returns:
        The lines. Nothing is charged, and of the rows it only says whether they can be read.
    """
    if path.suffix != ".toml":
        return list(study_checks(load_study(path)))
    return list(site_checks(OpenSite(SiteSettings.from_file(path))))


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

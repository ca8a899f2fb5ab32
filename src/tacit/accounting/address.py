"""Where a ledger is: in a file, or in a database on a PostgreSQL server."""

import os
import re
from pathlib import Path

import sqlalchemy as sa
from attrs import field, frozen

from tacit.errors import InvalidArgument

_SCHEMES = ("postgresql", "postgresql+psycopg", "postgres")
_SECRETS = ("password", "sslpassword", "oauth_client_secret")
_USUAL = "postgresql://user@host:5432/database"
# An address that was made a path has lost a slash.
_CRUSHED = re.compile(r"(^|[/\\])postgres(ql)?(\+\w+)?:[/\\]")


@frozen(repr=False, str=False)
class Address:
    """The address of a database. As text it has no password.

    ``url`` is the whole address, with the password if there is one. It is for the driver only.
    """

    url: sa.URL = field()

    @property
    def name(self) -> str:
        """The name of the database, which may be saved and published."""
        return str(self.url.database)

    @property
    def host(self) -> str:
        """The host, or the folder of the server's socket, as the driver will find it."""
        said = self.url.host or self.url.query.get("host") or os.environ.get("PGHOST", "")
        return said if isinstance(said, str) else ",".join(said)

    @property
    def port(self) -> str:
        """The port, as the driver will find it."""
        said = self.url.port or self.url.query.get("port") or os.environ.get("PGPORT", "5432")
        return ",".join(said) if isinstance(said, tuple) else str(said)

    @property
    def database(self) -> str:
        """The database without the user: the same for everybody who shares the ledger."""
        port = "" if self.port == "5432" else f":{self.port}"
        return f"postgresql://{self.host}{port}/{self.name}"

    @property
    def open_text(self) -> str:
        """The address with all its options, but without secrets."""
        plain = self.url.difference_update_query(_SECRETS)
        plain = sa.URL.create(
            "postgresql", plain.username, None, plain.host, plain.port, plain.database, plain.query
        )
        return plain.render_as_string(hide_password=False)

    def redacted(self, text: str) -> str:
        """A text without the secrets of this address."""
        held = (self.url.password, *(self.url.query.get(name) for name in _SECRETS))
        for secret in filter(None, held):
            for each in (secret,) if isinstance(secret, str) else secret:
                text = text.replace(each, "***")
        return text

    def __str__(self) -> str:
        user = f"{self.url.username}@" if self.url.username else ""
        return self.database.replace("://", f"://{user}", 1)

    def __repr__(self) -> str:
        return str(self)


Where = Path | Address


def where_of(path: str | os.PathLike[str]) -> Where:
    """The place that a path or an address names.

    Args:
        path: The path of a file, or the address of a database as text.

    Returns:
        A path or an address.

    Raises:
        InvalidArgument: If it is neither. The message does not repeat it: it may have a password.
    """
    text = os.fspath(path)
    if not isinstance(text, str):
        raise InvalidArgument("A ledger is a file, or a database such as " + _USUAL + ".")
    scheme, found, _ = text.partition("://")
    if found and isinstance(path, str) and re.fullmatch(r"[\w+.-]+", scheme):
        return _address(text, scheme)
    if _CRUSHED.search(text):
        raise InvalidArgument(
            f"Pass the address of a database as text, such as '{_USUAL}', not as a path."
        )
    return Path(path)


def _address(text: str, scheme: str) -> Address:
    if scheme not in _SCHEMES:
        raise InvalidArgument(
            f"A ledger is a file, or a database on a PostgreSQL server such as {_USUAL}."
        )
    try:
        url = sa.make_url(text)
    except (sa.exc.ArgumentError, ValueError):
        url = None
    if url is None or not url.database or "/" in url.database:
        raise InvalidArgument(
            f"The address of the ledger is not complete; write it as {_USUAL}."
        ) from None
    return Address(url.set(drivername="postgresql+psycopg"))

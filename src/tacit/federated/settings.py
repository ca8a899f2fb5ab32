"""A site's own settings, from its ``site.toml``. They do not leave the site.

This module does not import JAX, so that `tacit federated status` answers at once.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tacit.accounting import Budget
from tacit.errors import InvalidArgument


@dataclass(frozen=True, kw_only=True)
class SiteSettings:
    """A site's own settings.

    Args:
        name: The name of the site.
        study: The Python file that defines the study.
        data: The data file.
        ledger: The ledger.
        total: The total budget of the ledger, for all runs together.
        held_out: A file of rows that are not fitted, for a private score of the result.
        identity: The file of the key that the site signs with.
        members: Public keys of all sites, by name.
    """

    name: str
    study: Path
    data: Path
    ledger: Path
    total: Budget | None = None
    held_out: Path | None = None
    identity: Path | None = None
    members: Mapping[str, bytes] = field(default_factory=dict)

    @classmethod
    def from_file(cls, path: str | Path) -> "SiteSettings":
        """Reads settings from a TOML file. Paths in the file are relative to it."""
        source = Path(path).absolute()
        try:
            given, folder = tomllib.loads(source.read_text("utf-8")), source.parent
            paths = {key: folder / given[key] for key in ("held_out", "identity") if key in given}
            return cls(
                name=str(given["name"]),
                study=folder / given["study"],
                data=folder / given["data"],
                ledger=folder / given["ledger"],
                total=Budget(**given["budget"]) if "budget" in given else None,
                members={
                    name: bytes.fromhex(key) for name, key in given.get("members", {}).items()
                },
                **paths,
            )
        except (OSError, KeyError, TypeError, ValueError) as error:
            raise InvalidArgument(
                f"{source} must have the settings name, study, data and ledger: {error}."
            ) from error

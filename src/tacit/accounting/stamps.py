"""What a line of a ledger says about who wrote it, when and where."""

import os
import platform
from datetime import UTC, datetime
from getpass import getuser
from pathlib import Path


def now() -> str:
    """The time. A server puts its own in its place."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def user() -> str:
    """The user's name on this machine. A server puts the name of the login in its place."""
    try:
        return getuser()
    except (OSError, KeyError, ImportError):  # a user without a name
        return ""


def folder_here(folder: str | os.PathLike[str]) -> str:
    """A folder, with the name of this machine."""
    return f"{platform.node()}:{Path(folder).absolute()}"

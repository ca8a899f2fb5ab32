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
    return readable(f"{platform.node()}:{Path(folder).absolute()}")


def readable(text: str) -> str:
    r"""Text that every database can hold: names of files may have bytes that are no letters.

    >>> readable("runs/\udcff\0")
    'runs/??'
    """
    return text.encode("utf-8", "replace").decode().replace("\0", "?")

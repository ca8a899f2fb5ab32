"""Compiled JAX programs, kept on a site's disk from one process to the next.

A program contains the shapes of its arguments, so a program that takes rows reveals their number. Only
programs that are compiled before rows are opened are stored. The folder is private to its owner, because
whoever can write into it decides what the site runs.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tacit.errors import InvalidArgument
from tacit.privacy.settings import programs_stored_in

# Endings of the files that JAX writes.
_WRITTEN = ("-cache", "-atime")


@contextmanager
def written_to(folder: Path) -> Iterator[None]:
    """Stores programs that any thread compiles meanwhile in a private folder."""
    _make_private(folder)
    with programs_stored_in(folder):
        yield


def _make_private(folder: Path) -> None:
    """Makes a folder private; removes programs from a folder that others could access."""
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise InvalidArgument(
            f"The folder of compiled programs, {folder}, must belong to the user who runs the site."
        )
    if stat.S_IMODE(found.st_mode) != 0o700:
        folder.chmod(0o700)
        for each in folder.iterdir():
            if each.name.endswith(_WRITTEN):
                each.unlink()

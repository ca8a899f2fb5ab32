"""Programs that JAX compiled, kept on a site's disk from one process to the next.

A program has the shapes of its arguments in it, so one that takes rows tells how many there are. Only
those are written that are compiled before rows are opened, on made-up ones; and the folder is for the
site's eyes, as whoever can write into it chooses what the site runs.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import jax
from jax.experimental.compilation_cache import compilation_cache

from tacit.errors import InvalidArgument

_FOLDER, _LEAST = "jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs"
# How JAX ends the names of what it writes.
_WRITTEN = ("-cache", "-atime")


@contextmanager
def written_to(folder: Path | None) -> Iterator[None]:
    """Programs compiled meanwhile, in all threads, are kept in a folder, or nowhere."""
    if folder is not None:
        _make_private(folder)
    before = [jax.config.values[name] for name in (_FOLDER, _LEAST)]
    _set(None if folder is None else str(folder), 0.0)
    try:
        yield
    finally:
        _set(*before)


def _set(folder: str | None, least: float) -> None:
    jax.config.update(_FOLDER, folder)  # type: ignore[no-untyped-call]
    jax.config.update(_LEAST, least)  # type: ignore[no-untyped-call]
    compilation_cache.reset_cache()  # JAX decides once where to write


def _make_private(folder: Path) -> None:
    """Makes a folder for its owner alone; what others could have read or put there goes."""
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise InvalidArgument(
            f"{folder}, where compiled programs are kept, must be a folder of the user who runs this."
        )
    if stat.S_IMODE(found.st_mode) != 0o700:
        folder.chmod(0o700)
        for each in folder.iterdir():
            if each.name.endswith(_WRITTEN):
                each.unlink()

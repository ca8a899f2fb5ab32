"""Files that only their owner may read: written as a whole, overwritten, locked."""

import errno
import os
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from pathlib import Path

from tacit.errors import InvalidArgument

if sys.platform != "win32":
    import fcntl

# The files of a run: its settings, and its posterior or why it stopped without one; and the folder of one that is not finished.
SETTINGS_FILE, POSTERIOR_FILE, STOPPED_FILE = "settings.yaml", "posterior.nc", "stopped.json"
UNFINISHED_FOLDER = "unfinished"
# Seconds to wait for another process that is about to replace a file.
_FOLDER_LOCK_TIMEOUT = 5.0
# How the names of files begin that are not complete.
DRAFT_PREFIX = "draft-"


def nearest_file(path: str | os.PathLike[str], *, folder: bool = False) -> str:
    """A sentence that offers the existing file, or folder, whose path is most like one that does not exist; or nothing.

    What is offered is a name in the folder that the path names, or in the one that is most like that.
    """
    wanted = Path(path)
    try:
        parent: Path | None = wanted.parent
        if not wanted.parent.exists():
            parent = _most_similar(wanted.parent.parent, wanted.parent.name, folder=True)
        near = None if parent is None else _most_similar(parent, wanted.name, folder=folder)
    except (OSError, ValueError):
        return ""
    return "" if near is None else f" Did you mean {near}?"


def _most_similar(parent: Path, name: str, *, folder: bool) -> Path | None:
    """What is called most like this in a folder."""
    if not parent.is_dir():
        return None
    names = {each.name: each for each in parent.iterdir() if folder == each.is_dir()}
    if name in names:
        return names[name]
    near = get_close_matches(name, names, n=1)
    return names[near[0]] if near else None


def sync_folder(folder: Path) -> None:
    """Puts a folder's list of names on disk, where the system can."""
    if sys.platform != "win32":  # which opens no folders
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Keeps other processes out that say the same of this folder, where the system can.

    A process that stands still must not stop the others, so they wait for a few seconds only.
    """
    if sys.platform == "win32":  # which opens no folders
        yield
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    until = time.monotonic() + _FOLDER_LOCK_TIMEOUT
    try:
        while not _try_lock(handle) and time.monotonic() < until:
            time.sleep(0.01)
        yield
    finally:
        os.close(handle)


def _try_lock(handle: int) -> bool:
    """Whether a folder could be locked; also where its file system has no locks."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in {errno.EAGAIN, errno.EACCES}
    return True


def overwrite_with_zeros(path: Path) -> None:
    """Writes zeros over the content of a file, if there is one, on disk before this returns."""
    with suppress(FileNotFoundError), path.open("r+b") as keys:
        keys.write(bytes(os.fstat(keys.fileno()).st_size))
        keys.flush()
        os.fsync(keys.fileno())


def remove_folder(folder: Path) -> None:
    """Removes a folder with our own files in it, if there is one."""
    with suppress(FileNotFoundError, NotADirectoryError):
        for each in sorted(folder.iterdir()):
            each.unlink()
        folder.rmdir()


def make_private_folder(folder: Path) -> None:
    """Makes a folder that only its owner may look into."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    folder.chmod(0o700)
    if sys.platform != "win32" and stat.S_IMODE(folder.stat().st_mode) & 0o077:
        raise PermissionError(1, "its file system cannot keep files from others")


def write_atomically(path: Path, content: bytes) -> None:
    """Writes a file for its owner, beside it and then in its place, on disk before this returns."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=DRAFT_PREFIX)  # of mode 0600
    draft = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def lock_file(path: Path) -> int:
    """A handle of a file that one process at a time may have, until it closes it or ends."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        _lock_handle(handle)
    except OSError:
        os.close(handle)
        raise InvalidArgument(
            f"Another process is at work on the run in {path.parent.parent}; wait for it to end."
        ) from None
    return handle


def _lock_handle(handle: int) -> None:
    """Locks an open file, or raises `OSError` if another process has locked it."""
    if sys.platform == "win32":
        import msvcrt

        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)  # the first byte, which need not be there
    else:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)

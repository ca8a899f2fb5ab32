"""Paths of files, and text that was passed as a path but may contain rows."""

import os
from collections.abc import Collection
from pathlib import Path

from tacit.errors import InvalidArgument

_LONGEST, _LONGEST_PART = 1000, 255  # characters


def path_of(text: str | os.PathLike[str], what: str, endings: Collection[str]) -> Path:
    """The path that a text is: one that is there, or that looks like one that could be.

    A table's text in its place must not be repeated in an error. So a text that names nothing may be
    told only if it is a single short line, without a comma or a semicolon, with one of the ``endings``.
    """
    name = os.fsdecode(text)
    path = Path(name)
    if not _is_there(path) and not _looks_like_one(name, endings):
        raise InvalidArgument(
            f"{what} must be a path, and the text that was passed names no file; it is not repeated here, as "
            f"it may be data. Pass the path of a file that ends in {', '.join(sorted(endings))}."
        )
    return path


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # too long, or with a zero byte
        return False


def _looks_like_one(name: str, endings: Collection[str]) -> bool:
    path = Path(name)
    short = len(name) <= _LONGEST and all(len(part) <= _LONGEST_PART for part in path.parts)
    plain = name.isprintable() and not set(",;") & set(name)
    return short and plain and path.suffix.lower() in endings

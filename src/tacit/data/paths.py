"""Paths of files, and text that was passed as a path but may contain rows."""

import os
from collections.abc import Collection
from pathlib import Path

from tacit.errors import InvalidArgument

_LONGEST, _LONGEST_PART = 1000, 255  # characters


def path_of(text: str | os.PathLike[str], what: str, endings: Collection[str]) -> Path:
    """The path that a text names: of something that exists, or at least a text that looks like a path.

    The text could be a table that was passed by mistake, which errors must not repeat. So if it names
    nothing, it is repeated only if it is one short line, without comma or semicolon, with one of the
    ``endings``.
    """
    name = os.fsdecode(text)
    path = Path(name)
    if not _is_there(path) and not _looks_like_one(name, endings):
        raise InvalidArgument(
            f"{what} must be a path, but the text that was passed names no file. It is not repeated here, because "
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

"""Figures of matplotlib and ArviZ, which are optional: captions, files, and what to install."""

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from tacit.errors import InvalidArgument, MissingPackage, TacitError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FORMATS = (".png", ".pdf", ".svg")

PathLike = str | os.PathLike[str]


def caption(figure: "Figure", above: Sequence[str], words: str) -> None:
    """Adds a title to a figure, below warnings in red if there are any."""
    figure.set_layout_engine("constrained")  # ArviZ leaves no room on top
    if not above:
        figure.suptitle(words, fontsize=10, x=0.01, ha="left")
        return
    lines = "\n".join([*above, words])
    figure.suptitle(lines, fontsize=9, x=0.01, ha="left", color="#b3261e")


def is_first_generation(arviz: ModuleType) -> bool:
    """Whether the installed ArviZ is older than version 1, which has other functions."""
    return int(str(arviz.__version__).partition(".")[0]) == 0


def arviz_library() -> ModuleType:
    """ArviZ, or an error that says how to install it."""
    pyplot()
    with warnings.catch_warnings():
        # Versions before 1 announce version 1 whenever they are imported.
        warnings.simplefilter("ignore", FutureWarning)
        try:
            import arviz
        except ModuleNotFoundError as error:
            raise MissingPackage("arviz", "This plot") from error
    found: ModuleType = arviz
    return found


def pyplot() -> ModuleType:
    """Matplotlib's pyplot, or an error that says how to install it."""
    try:
        from matplotlib import pyplot as plt
    except ModuleNotFoundError as error:
        raise MissingPackage("matplotlib", "A plot") from error
    return plt


@contextmanager
def saved(path: PathLike | None) -> Iterator["Callable[[Figure], Figure]"]:
    """Yields a function that writes a figure to ``path`` and closes it.

    Without a path the figure stays open, for a notebook or a window to show. If an error is raised,
    figures that were opened meanwhile are closed.
    """
    before = set(pyplot().get_fignums())

    def keep(figure: "Figure") -> "Figure":
        if path is not None:
            _write(figure, Path(path))
            pyplot().close(figure)
        return figure

    try:
        yield keep
    except BaseException:
        for opened in set(pyplot().get_fignums()) - before:
            pyplot().close(opened)
        raise


def _write(figure: "Figure", path: Path) -> None:
    if path.suffix.lower() not in _FORMATS:
        raise InvalidArgument(f"Plots are written as {', '.join(_FORMATS)}; got {path.name!r}.")
    try:
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise TacitError(f"The plot could not be written to {path}: {error}.") from error

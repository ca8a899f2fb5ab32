"""The progress bar of a fit or an audit: what is done and the time left. Nothing comes from rows."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class ProgressCallback(Protocol):
    """A function to call with how many steps are done, and their total if it was not known."""

    def __call__(self, done: int, total: int | None = None, /) -> None:
        """Moves the bar."""


@contextmanager
def progress_bar(
    total: int | None, *, shown: bool = True, what: str = "steps"
) -> Iterator[ProgressCallback | None]:
    """Shows a progress bar on standard error.

    Args:
        total: The number of steps, or None if it is not known yet.
        shown: Whether to show the bar at all.
        what: What the steps are called.

    Yields:
        A function to call with the number of steps that are done, or None if no bar is shown.
    """
    if not shown:
        yield None
        return
    from rich.console import Console  # only where a bar is shown
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    label = TextColumn(f"{what}, time left")
    columns = BarColumn(), MofNCompleteColumn(), label, TimeRemainingColumn()
    # Without a thread of its own: the bar moves when steps are done.
    with Progress(*columns, console=Console(stderr=True), auto_refresh=False) as bar:
        task = bar.add_task(what, total=total)

        def tell(done: int, total: int | None = None, /) -> None:
            bar.update(task, completed=done, total=total, refresh=True)

        yield tell

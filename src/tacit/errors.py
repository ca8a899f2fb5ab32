"""The one family of exceptions Tacit raises on purpose.

Every message says what was expected, what was found and what to do, and none
carries a value computed from a row of data.
"""

from traceback import extract_tb


class TacitError(Exception):
    """Base of every error Tacit raises on purpose."""


class InvalidArgument(TacitError, ValueError):
    """An argument is outside the range in which the answer means anything."""


class Refused(InvalidArgument):
    """A site refuses what a server asks, in words that the server may read.

    They hold nothing but what the study says and what was asked: no path and no budget left.
    """


class BudgetError(TacitError):
    """A privacy budget cannot be met or must not be spent as asked."""


class Overspent(BudgetError):
    """A ledger has less left than is asked for; nothing was charged."""


class LedgerError(TacitError):
    """A ledger's file cannot be used: gone, locked, full, read-only, changed or an older copy."""


class Unsaved(TacitError):
    """A run was paid for, and could not be written as asked; the message says where it is."""


class UnsupportedEvent(TacitError):
    """No proved bound exists for this event with this accountant and adjacency."""


class TheoremDoesNotHold(UnsupportedEvent):
    """The accountant's theorem has a condition that these parameters do not meet."""


class BoundaryError(TacitError):
    """A step tries to take rows past the gate, or to use the gate as it must not be used."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during a run; the message says what had been charged."""


def reason_of(error: BaseException | None) -> str | None:
    """What the system says of an error of its own; None of any other."""
    return error.strerror if isinstance(error, OSError) else None


def place_of(error: BaseException) -> str:
    """An error's kind and where it was raised: all that may be told of one nobody foresaw.

    >>> try:
    ...     int("a cell's value")
    ... except ValueError as error:
    ...     place_of(error).startswith("ValueError in ")
    True
    """
    last = extract_tb(error.__traceback__)[-1]
    file = last.filename.rpartition("/")[2]
    return f"{type(error).__name__} in {file}, line {last.lineno}"

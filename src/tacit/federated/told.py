"""What the server learns about an error at a site: a kind and a neutral sentence.

Errors at a site name its files and its remaining budget, so they go to the site's own log only. The message
of an unexpected error may contain a value from a row, so the log gets only its type and its place in the code.
"""

import logging
import traceback
from collections.abc import Callable
from typing import Any

from tacit.errors import BoundaryError, BudgetError, Refused, TacitError

_LOG = logging.getLogger(__name__)
_SENTENCES: dict[str, tuple[type[TacitError], str]] = {
    "budget": (BudgetError, "The site's budget does not allow an answer."),
    "boundary": (BoundaryError, "The study at the site would take rows past the boundary."),
    "site": (TacitError, "The site's files or settings are invalid."),
}
_MORE = "The site's own log says more."


def guarded(answer: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The answer, or the kind of an error and a sentence for the server."""
    try:
        return answer()
    except TacitError as error:
        _LOG.warning("Refused: %s", error)
        return told(error)
    except Exception as error:  # noqa: BLE001 (its message may contain a value from a row)
        where = "".join(traceback.format_tb(error.__traceback__))
        _LOG.error("This site could not answer: %s at\n%s", type(error).__name__, where)
        return {"kind": "failure", "error": f"The site failed. {_MORE}"}


def told(error: TacitError) -> dict[str, Any]:
    """An error as the server sees it: in full only if its message was written for the server."""
    if isinstance(error, Refused):
        return {"kind": "question", "error": str(error)}
    kind = next(kind for kind, (family, _) in _SENTENCES.items() if isinstance(error, family))
    return {"kind": kind, "error": f"{_SENTENCES[kind][1]} {_MORE}"}

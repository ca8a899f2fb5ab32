"""What the server learns about an error at a site: a kind and a neutral sentence.

A site's errors name its files, and what its ledger has left. Those are for its own log. An error
that nobody foresaw may hold a value from a row: of that, a log gets the kind and the place.
"""

import logging
import traceback
from collections.abc import Callable
from typing import Any

from tacit.errors import BoundaryError, BudgetError, Refused, TacitError

_LOG = logging.getLogger(__name__)
_SENTENCES: dict[str, tuple[type[TacitError], str]] = {
    "budget": (BudgetError, "The site's budget does not allow an answer."),
    "boundary": (BoundaryError, "The site's study would take rows past the boundary."),
    "site": (TacitError, "The site's files or settings are not as they must be."),
}
_MORE = "The site's own log says more."


def guarded(answer: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What is answered, or in its place the kind of error and a sentence for the server."""
    try:
        return answer()
    except TacitError as error:
        _LOG.warning("Refused: %s", error)
        return told(error)
    except Exception as error:  # noqa: BLE001 (what it says may hold a row, also for a log)
        where = "".join(traceback.format_tb(error.__traceback__))
        _LOG.error("This site could not answer: %s at\n%s", type(error).__name__, where)
        return {"kind": "failure", "error": f"The site failed. {_MORE}"}


def told(error: TacitError) -> dict[str, Any]:
    """One of Tacit's errors, for the server: in its own words only if they were made for it."""
    if isinstance(error, Refused):
        return {"kind": "question", "error": str(error)}
    kind = next(kind for kind, (family, _) in _SENTENCES.items() if isinstance(error, family))
    return {"kind": kind, "error": f"{_SENTENCES[kind][1]} {_MORE}"}

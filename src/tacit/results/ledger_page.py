"""A page about a ledger for its steward: what is left, who spent what, and the budget over time."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd

import tacit
from tacit._format import in_digits, printed
from tacit._html import render
from tacit.accounting.book import Charge, Raise
from tacit.accounting.ledger import Ledger
from tacit.accounting.past import Past, past_of
from tacit.accounting.stamps import now
from tacit.errors import TacitError
from tacit.results.drawings import Axis, Share, shares
from tacit.results.report import write_text

_NOBODY = "not recorded"
# Steps between marks of a time axis, the finest first, and how their times are written.
_STEPS = (
    *((step, "%H:%M:%S") for step in ("1s", "5s", "15s")),
    *((step, "%H:%M") for step in ("1min", "5min", "15min", "1h")),
    *((step, "%m-%d %H:%M") for step in ("3h", "6h", "12h")),
    *((step, "%Y-%m-%d") for step in ("1D", "2D", "7D", "14D")),
    *((step, "%Y-%m") for step in ("MS", "3MS", "6MS")),
    *((step, "%Y") for step in ("YS", "2YS", "5YS", "10YS", "20YS")),
)
_MOST_MARKS = 4


class Spender(NamedTuple):
    """What one analyst spent."""

    name: str
    runs: int
    epsilon: float
    delta: float
    last: str


class SpendingSteps(NamedTuple):
    """Epsilon over time: what was spent, and the total, as steps."""

    spent: Sequence[tuple[pd.Timestamp, float]]
    totals: Sequence[tuple[pd.Timestamp, float]]
    first: pd.Timestamp
    last: pd.Timestamp
    top: float

    def across(self, when: pd.Timestamp) -> float:
        """The position of a time, from 0 to 1."""
        return float((when - self.first) / (self.last - self.first))

    def points(self, line: Sequence[tuple[pd.Timestamp, float]]) -> str:
        """The corners of a line of steps, on a square of 100."""
        corners, height = [], line[0][1]
        for when, value in line:
            corners += [(when, height), (when, value)]
            height = value
        corners.append((self.last, height))
        return " ".join(
            f"{100 * self.across(when):.3f},{100 * (1 - value / self.top):.3f}"
            for when, value in corners
        )

    def epsilon_ticks(self) -> list[tuple[float, str]]:
        """Round epsilons: the height of each, from 0 to 1, and its text."""
        return Axis(0.0, self.top, 1.0).ticks()

    def time_ticks(self) -> list[tuple[float, str]]:
        """Round times: the position of each, from 0 to 1, and its text."""
        for step, form in _STEPS:
            calendar = step.endswith("S")
            if not calendar and (self.last - self.first) / pd.Timedelta(step) > _MOST_MARKS + 1:
                continue
            start = self.first.normalize() if calendar else self.first.ceil(step)
            marks = pd.date_range(start, self.last, freq=step)
            marks = marks[marks >= self.first]
            if len(marks) <= _MOST_MARKS:
                return [(self.across(each), each.strftime(form)) for each in marks]
        return []


def write_page(ledger: Ledger, target: Path) -> None:
    """Writes a page about a ledger: one file, without scripts, that loads nothing.

    Args:
        ledger: The ledger.
        target: The HTML file.

    Raises:
        TacitError: If the file cannot be written.
    """
    text = page_of(ledger)
    try:
        write_text(target, text)
    except OSError as error:
        raise TacitError(f"{target} cannot be written: {error.strerror or error}.") from error


def page_of(ledger: Ledger) -> str:
    """The page as text.

    Args:
        ledger: The ledger.

    Returns:
        The HTML.
    """
    past, made = past_of(ledger), now()
    people = spenders(past.charges)
    parts = _parts(past)
    return render(
        "ledger_page.html",
        ledger=ledger,
        past=past,
        made=_minute(made),
        minute=_minute,
        nobody=_NOBODY,
        people=[_spender(each) for each in people],
        raises=[_raised(each) for each in past.raises],
        parts=parts,
        described="Epsilon: " + ", ".join(f"{p.name} {in_digits(p.size)}" for p in parts),
        steps=steps_of(past, made) if past.charges else None,
        version=tacit.__version__,
    )


def spenders(charges: Sequence[Charge]) -> list[Spender]:
    """What every analyst spent, the largest first.

    Args:
        charges: The charges of a ledger.

    Returns:
        A line for every analyst.
    """
    names = dict.fromkeys(each.analyst for each in charges)
    found = []
    for name in names:
        own = [each for each in charges if each.analyst == name]
        epsilon = math.fsum(each.epsilon for each in own)
        delta = math.fsum(each.delta for each in own)
        found.append(Spender(name or _NOBODY, len(own), epsilon, delta, own[-1].time))
    return sorted(found, key=lambda each: -each.epsilon)


def steps_of(past: Past, made: str) -> SpendingSteps:
    """The curve of the budget.

    Args:
        past: The history of a ledger.
        made: The time of the page, where the curve ends.

    Returns:
        The curve.
    """
    times = [pd.Timestamp(each.time) for each in past.charges]
    raises = [(pd.Timestamp(each.time), each.epsilon) for each in past.raises]
    ends = [*times, *(when for when, _ in raises), pd.Timestamp(made)]
    margin = max((max(ends) - min(ends)) * 0.02, pd.Timedelta(seconds=1))
    first, last = min(ends) - margin, max(ends) + margin
    return SpendingSteps(
        spent=[(first, 0.0), *zip(times, past.spent, strict=True)],
        totals=[(first, past.first_total.epsilon), *raises],
        first=first,
        last=last,
        top=1.08 * max(past.total.epsilon, *past.spent),
    )


def _parts(past: Past) -> list[Share]:
    spent = past.spent[-1] if past.spent else 0.0
    return shares([("run", "spent", spent), ("left", "left", past.left.epsilon)])


def _spender(each: Spender) -> list[str]:
    cost = [printed(each.epsilon), in_digits(each.delta)]
    return [each.name, str(each.runs), *cost, each.last[:10]]


def _raised(each: Raise) -> list[str]:
    return [_minute(each.time), each.steward, in_digits(each.epsilon), in_digits(each.delta)]


def _minute(time: str) -> str:
    return time[:16].replace("T", " ")

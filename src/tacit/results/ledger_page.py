"""A page about a ledger for its steward: what is left, who spent what, and the budget over time."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd

import tacit
from tacit._format import format_epsilon, format_number
from tacit._html import render_template
from tacit.accounting.ledger import Ledger, LedgerHistory, read_history, utc_now
from tacit.accounting.ledger_chain import Charge, RaisedTotal
from tacit.errors import TacitError
from tacit.results.drawings import Axis, BarSegment, bar_segments
from tacit.results.report import write_atomically

_NO_ANALYST = "not recorded"
# Steps between marks of a time axis, the finest first, and how their times are written.
_TICK_STEPS = (
    *((step, "%H:%M:%S") for step in ("1s", "5s", "15s")),
    *((step, "%H:%M") for step in ("1min", "5min", "15min", "1h")),
    *((step, "%m-%d %H:%M") for step in ("3h", "6h", "12h")),
    *((step, "%Y-%m-%d") for step in ("1D", "2D", "7D", "14D")),
    *((step, "%Y-%m") for step in ("MS", "3MS", "6MS")),
    *((step, "%Y") for step in ("YS", "2YS", "5YS", "10YS", "20YS")),
)
_MAX_TIME_TICKS = 4


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
        for step, form in _TICK_STEPS:
            calendar = step.endswith("S")
            if not calendar and (self.last - self.first) / pd.Timedelta(step) > _MAX_TIME_TICKS + 1:
                continue
            start = self.first.normalize() if calendar else self.first.ceil(step)
            marks = pd.date_range(start, self.last, freq=step)
            marks = marks[marks >= self.first]
            if len(marks) <= _MAX_TIME_TICKS:
                return [(self.across(each), each.strftime(form)) for each in marks]
        return []


def write_ledger_page(ledger: Ledger, target: Path) -> None:
    """Writes a page about a ledger: one file, without scripts, that loads nothing.

    Args:
        ledger: The ledger.
        target: The HTML file.

    Raises:
        TacitError: If the file cannot be written.
    """
    text = ledger_html(ledger)
    try:
        write_atomically(target, text)
    except OSError as error:
        raise TacitError(f"{target} cannot be written: {error.strerror or error}.") from error


def ledger_html(ledger: Ledger) -> str:
    """The page as text.

    Args:
        ledger: The ledger.

    Returns:
        The HTML.
    """
    past, made = read_history(ledger), utc_now()
    people = spenders(past.charges)
    parts = _budget_segments(past)
    return render_template(
        "ledger_page.html",
        ledger=ledger,
        past=past,
        made=_format_minute(made),
        minute=_format_minute,
        nobody=_NO_ANALYST,
        people=[_spender_cells(each) for each in people],
        raises=[_raise_cells(each) for each in past.raises],
        parts=parts,
        described="Epsilon: " + ", ".join(f"{p.name} {format_number(p.size)}" for p in parts),
        steps=spending_steps(past, made) if past.charges else None,
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
        found.append(Spender(name or _NO_ANALYST, len(own), epsilon, delta, own[-1].time))
    return sorted(found, key=lambda each: -each.epsilon)


def spending_steps(past: LedgerHistory, made: str) -> SpendingSteps:
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


def _budget_segments(past: LedgerHistory) -> list[BarSegment]:
    spent = past.spent[-1] if past.spent else 0.0
    return bar_segments([("run", "spent", spent), ("left", "left", past.left.epsilon)])


def _spender_cells(each: Spender) -> list[str]:
    cost = [format_epsilon(each.epsilon), format_number(each.delta)]
    return [each.name, str(each.runs), *cost, each.last[:10]]


def _raise_cells(each: RaisedTotal) -> list[str]:
    return [
        _format_minute(each.time),
        each.steward,
        format_number(each.epsilon),
        format_number(each.delta),
    ]


def _format_minute(time: str) -> str:
    return time[:16].replace("T", " ")

"""A page about a ledger for its steward: what is left, who spent what, and the budget over time."""

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import tacit
from tacit._format import format_epsilon, format_number
from tacit._html import render_template
from tacit.accounting.ledger import Ledger, LedgerHistory, read_history, utc_now
from tacit.accounting.ledger_chain import Charge
from tacit.errors import TacitError
from tacit.results.drawings import (
    Axis,
    ChartAxis,
    ChartLine,
    LineChart,
    bar_segments,
)
from tacit.results.report import write_atomically

_NO_ANALYST = "not recorded"
# Steps between ticks of a time axis, in seconds and in months, the finest first, and how times are written.
_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_SECOND_STEPS = (
    *((each, "%H:%M:%S") for each in (1, 5, 15)),
    *((each, "%H:%M") for each in (_MINUTE, 5 * _MINUTE, 15 * _MINUTE, _HOUR)),
    *((each * _HOUR, "%m-%d %H:%M") for each in (3, 6, 12)),
    *((each * _DAY, "%Y-%m-%d") for each in (1, 2, 7, 14)),
)
_MONTH_STEPS = (
    *((each, "%Y-%m") for each in (1, 3, 6)),
    *((12 * each, "%Y") for each in (1, 2, 5, 10, 20)),
)
_MAX_TIME_TICKS = 4


class Spender(NamedTuple):
    """What one analyst spent."""

    name: str
    runs: int
    epsilon: float
    delta: float
    last: str


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
    spent = past.spent[-1] if past.spent else 0.0
    parts = bar_segments([("run", "spent", spent), ("left", "left", past.left.epsilon)])
    return render_template(
        "ledger_page.html",
        ledger=ledger,
        past=past,
        made=_format_minute(made),
        minute=_format_minute,
        nobody=_NO_ANALYST,
        people=[
            [
                each.name,
                str(each.runs),
                format_epsilon(each.epsilon),
                format_number(each.delta),
                each.last[:10],
            ]
            for each in spenders(past.charges)
        ],
        raises=[
            [
                _format_minute(each.time),
                each.steward,
                format_number(each.epsilon),
                format_number(each.delta),
            ]
            for each in past.raises
        ],
        parts=parts,
        described="Epsilon: " + ", ".join(f"{p.name} {format_number(p.size)}" for p in parts),
        chart=spending_chart(past, made) if past.charges else None,
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


def spending_chart(history: LedgerHistory, made: str) -> LineChart:
    """The budget over time: what was spent, and the total, as lines of steps.

    Args:
        history: The history of a ledger.
        made: The time of the page, where the chart ends.

    Returns:
        The chart.
    """
    times = [datetime.fromisoformat(each.time).timestamp() for each in history.charges]
    raises = [
        (datetime.fromisoformat(each.time).timestamp(), each.epsilon) for each in history.raises
    ]
    ends = [*times, *(when for when, _ in raises), datetime.fromisoformat(made).timestamp()]
    margin = max((max(ends) - min(ends)) * 0.02, 1.0)
    first, last = min(ends) - margin, max(ends) + margin
    spent = [(first, 0.0), *zip(times, history.spent, strict=True)]
    totals = [(first, history.first_total.epsilon), *raises]
    top = 1.08 * max(history.total.epsilon, *history.spent)
    total, left = format_number(history.total.epsilon), format_number(history.left.epsilon)
    return LineChart(
        title="Epsilon spent over time",
        described=f"{total} in total, {left} left",
        x=ChartAxis("", first, last, time_ticks(first, last)),
        y=ChartAxis("epsilon", 0.0, top, Axis(0.0, top, 1.0).ticks()),
        lines=[
            ChartLine("total", _corners(totals, last), "other"),
            ChartLine("spent", _corners(spent, last), "asked"),
        ],
    )


def time_ticks(first: float, last: float) -> list[tuple[float, str]]:
    """Round times between two times in seconds: the position of each, from 0 to 1, and its text."""
    for seconds, form in _SECOND_STEPS:
        whole = range(math.ceil(first / seconds), math.floor(last / seconds) + 1)
        if len(whole) <= _MAX_TIME_TICKS:
            return _placed(
                [datetime.fromtimestamp(each * seconds, UTC) for each in whole], first, last, form
            )
    begin, end = datetime.fromtimestamp(first, UTC), datetime.fromtimestamp(last, UTC)
    for months, form in _MONTH_STEPS:
        numbers = range(12 * begin.year // months, 12 * (end.year + 1) // months)
        starts = [datetime(n * months // 12, 1 + n * months % 12, 1, tzinfo=UTC) for n in numbers]
        inside = [each for each in starts if begin <= each <= end]
        if len(inside) <= _MAX_TIME_TICKS:
            return _placed(inside, first, last, form)
    return []


def _placed(
    times: Sequence[datetime], first: float, last: float, form: str
) -> list[tuple[float, str]]:
    return [((each.timestamp() - first) / (last - first), each.strftime(form)) for each in times]


def _corners(steps: Sequence[tuple[float, float]], last: float) -> list[tuple[float, float]]:
    """The corners of a line that jumps at each of these times, and ends at the last."""
    corners, height = [], steps[0][1]
    for when, value in steps:
        corners += [(when, height), (when, value)]
        height = value
    return [*corners, (last, height)]


def _format_minute(time: str) -> str:
    return time[:16].replace("T", " ")

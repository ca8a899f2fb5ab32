"""One exact draw where rows count by the sum of a column: exponential families with one parameter.

The sum and the number of rows are all that the posterior needs, so the grid may be fine
whatever the number of rows, and the bound on one unit follows from the model.
"""

import attrs
import numpy as np
from dp_accounting.dp_event import DpEvent
from numpy.typing import NDArray

from tacit import _validate
from tacit.accounting import events
from tacit.errors import InvalidArgument
from tacit.privacy.noise import Randomness
from tacit.privacy.one_draw.choice import Term, choose
from tacit.privacy.one_draw.claims import (
    BELOW,
    BoundedLikelihood,
    check_column,
    check_rows_per_unit,
    draws,
    say,
)
from tacit.privacy.rows import Rows

Floats = NDArray[np.float64]


def _fixed(table: Floats) -> Floats:
    """The same numbers in memory that nobody can write to: they are charged for as they are."""
    return np.ndarray(table.shape, np.float64, table.astype(np.float64).tobytes())


@attrs.frozen(kw_only=True, eq=False, slots=False)
class StatisticDraws:
    """Draws where rows count by the sum of one column only: exponential families. All public.

    A row's log-likelihood at each of ``places`` is ``at_low`` where the column is ``low``,
    ``at_high`` where it is ``high``, and linear between, but for what is the same at all
    places. So the bound on a unit follows, and nothing is clamped but the column. The column is
    read in ``steps`` steps from low to high; a unit has up to ``rows_per_unit`` rows.
    """

    column: str
    low: float
    high: float
    steps: int
    places: Floats = attrs.field(converter=_fixed)
    prior: Floats = attrs.field(converter=_fixed)
    at_low: Floats = attrs.field(converter=_fixed)
    at_high: Floats = attrs.field(converter=_fixed)
    power: float
    rows_per_unit: int = 1
    num_draws: int = 1

    def __attrs_post_init__(self) -> None:
        _validate.rate("power", self.power)
        _validate.count("num_draws", self.num_draws)
        _validate.count("rows_per_unit", self.rows_per_unit)
        _validate.count("steps", self.steps)
        if not (self.low < self.high and np.isfinite([self.low, self.high]).all()):
            raise InvalidArgument("The lowest value of the column must be below the highest.")
        for table in (self.prior, self.at_low, self.at_high):
            if table.shape != (len(self.places),) or not np.isfinite(table).all():
                raise InvalidArgument(
                    "The prior and the log-likelihoods of the lowest and the highest value must be "
                    "finite at every point; choose ends inside the parameter's support."
                )

    @property
    def bound(self) -> float:
        """Half of what a unit's log-likelihood spans, at most."""
        spans = [float(table.max() - table.min()) for table in (self.at_low, self.at_high)]
        return self.rows_per_unit * max(*spans, 2.0**-100) / 2

    @property
    def event(self) -> DpEvent:
        """The event to account for."""
        one = BoundedLikelihood(bound=self.bound).event(self.power)
        return events.repeat(one, self.num_draws)

    @property
    def num_steps(self) -> int:
        """A release for each draw."""
        return self.num_draws

    def explain(self, unit: str, many: str) -> list[str]:
        """Lines for people."""
        where = f"{len(self.places)} public points, by {self.column} summed over all {many}"
        span = 2 * self.power * self.bound
        return [f"{draws(self.num_draws)} from {where}.", say(self.power, unit, span)]


def check_statistic(mechanism: StatisticDraws, rows: Rows) -> None:
    """Raises what `draw_by_statistic` would raise, by a row of zeros."""
    check_rows_per_unit(rows, mechanism.rows_per_unit)
    check_column(rows, mechanism.column, ())  # a longer entry would count more than once


def draw_by_statistic(mechanism: StatisticDraws, rows: Rows, bits: Randomness) -> Floats:
    """Points drawn from the posterior that the sum of a column gives.

    Guarantee:
        Released: points, each with probability proportional to exp(prior + power x (sum over rows
            of the log-likelihood at the row's value)).
        Neighbours: add-remove and replace.
        Sensitivity under add-remove: `2 * power * bound`, in the range of a log probability ratio:
            a row's log-likelihood is a mixture of two public tables, neither of which spans more.
        Sensitivity under replace: `4 * power * bound`.
        Event: `StatisticDraws.event`.
        Public inputs: the mechanism.
        Theorem: 8.
    """
    number, total = _statistic(rows, mechanism)
    factor = mechanism.power * BELOW
    low, high = (
        mechanism.at_low - mechanism.at_low.max(),
        mechanism.at_high - mechanism.at_high.max(),
    )
    ones = np.ones(len(mechanism.places), np.int64)
    terms: list[Term] = [
        (mechanism.prior, ones),
        (factor * low, number * ones),
        (factor * (high - low) / mechanism.steps, total * ones),
    ]
    drawn: Floats = mechanism.places[choose(bits, terms, mechanism.num_draws)]
    return drawn


def _statistic(rows: Rows, mechanism: StatisticDraws) -> tuple[int, int]:
    """How many rows have a value, and the sum of their steps. [draw-statistic]"""
    number = total = 0
    for here, fields, present in rows._chunks(2**14):
        values = fields[mechanism.column].astype(np.float64)
        real = np.isfinite(values) & (here if present is None else present & here[:, None])
        share = (np.clip(values, mechanism.low, mechanism.high) - mechanism.low) / (
            mechanism.high - mechanism.low
        )
        steps = np.clip(np.rint(np.where(real, share, 0.0) * mechanism.steps), 0, mechanism.steps)
        number, total = number + int(real.sum()), total + int(steps.astype(np.int64).sum())
    return number, total

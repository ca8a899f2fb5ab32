"""Counts, shares, means and quantiles with intervals, from what a release of tables says.

Estimates are linear in what was released, so each has a known normal error. The interval of a count is that of
Feldman and Cousins (1998): it never lies below zero and contains the count with its probability, however small the count is. Intervals
of shares and means are Fieller's, and those of quantiles invert the test that a rank is right. The counts that are shown are those of the nearest
tables without negative cells, by weighted least squares.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import optimize
from scipy.special import ndtr, ndtri

from tacit._typing import Floats
from tacit.inference.tables import (
    FINEST,
    PARTS,
    SHOWN,
    CountedColumn,
    Table,
    TableRelease,
    contract,
    margins,
    sorted_table,
)

# A bin is cut in two for quantiles as long as it holds more than so many standard deviations of a rank.
_SPLIT_SIZE = 2.5
# Counts this many standard deviations above zero are not expected to become negative by what others need.
_SAFE_COUNT = 6.0
# To avoid negative cells, a margin moves so many times less than a table of one column more would by the noise alone: many
# cells that are nearly empty would otherwise push the margins up.
_SLACK = 2.0
_MIN_PLACE = -35.0  # in standard deviations: farther below zero, a limit would be lost in rounding
# A number at risk is known if it is so many standard deviations of its noise.
_KNOWN_RISK = 4.0
_TOLERANCE = 1e-6  # of a count that must not be negative, in standard deviations


class Estimates(NamedTuple):
    """Estimates with normal errors, and the variances of these."""

    values: Floats
    variances: Floats


class Ratios(NamedTuple):
    """Numerators and denominators, with variances and covariances of their errors."""

    above: Floats
    below: Floats
    above_variance: Floats
    below_variance: Floats
    covariance: Floats


class Intervals(NamedTuple):
    """Estimates, and the ends of their intervals."""

    estimates: Floats
    lower: Floats
    upper: Floats


@dataclass(frozen=True, eq=False)
class ReleasedTables:
    """What follows from a release of tables. Tables and groups have their columns in alphabetical order.

    Args:
        release: What was asked.
        released: The answers.
        noise_std: The standard deviation of the noise in each of them.
        level: The probability that an interval is to have.
    """

    release: TableRelease
    released: Floats
    noise_std: float
    level: float = 0.9

    @cached_property
    def answers(self) -> dict[Table, Estimates]:
        """The answers by margin, in units of what is counted."""
        found, start, release = {}, 0, self.release
        most = float(release.rows_per_unit)
        for part in release.parts:
            shape, weights = release.shape(part), release.weights[part]
            unit = np.full(shape, most if release.count_rows else 1.0)
            if not part:
                unit[1:] = 1.0 if release.count_rows else most
            own = self.released[start : start + math.prod(shape)].reshape(shape)
            found[part] = Estimates(own * unit / weights, (self.noise_std * unit / weights) ** 2)
            start += math.prod(shape)
        return found

    @property
    def total(self) -> Intervals:
        """How many rows there are, or people if these are counted; the sum of every table."""
        values, variances = self.answers[()]
        found = positive_intervals(Estimates(values[:1], variances[:1]), self.level)
        return _including(np.maximum(self._consistent[()][None], 0.0), found)

    @property
    def rows_per_person(self) -> Intervals:
        """The mean number of rows of a person, of those that count."""
        values, variances = self.answers[()]
        order = [0, 1] if self.release.count_rows else [1, 0]
        above, below = values[order, None]
        above_variance, below_variance = variances[order, None]
        ratios = Ratios(above, below, above_variance, below_variance, np.zeros(1))
        return ratio_intervals(ratios, 1.0, float(self.release.rows_per_unit), self.level)

    def counts(self, table: Table) -> Intervals:
        """The counts of all cells of a table: not negative, and the same in all tables."""
        sums = [self.release.column(name).axes[SHOWN].counts for name in table]
        found = positive_intervals(self._linear(table, SHOWN, sums), self.level)
        values = np.maximum(contract(self._shown_answers(table, self._consistent), sums), 0.0)
        return _including(values, found)

    def shares(self, table: Table, within: Sequence[str] = ()) -> Intervals:
        """The counts of cells over that of all rows, or of all rows of a group."""
        axes = [self.release.column(name).axes[SHOWN] for name in table]
        sums = [axis.counts for axis in axes]
        wholes = [
            axis.counts if name in within else np.eye(1, axis.counts.shape[1])
            for name, axis in zip(table, axes, strict=True)
        ]
        found = ratio_intervals(self._ratios(table, SHOWN, sums, wholes), 0.0, 1.0, self.level)
        counts = self.counts(table).estimates
        others = tuple(i for i, name in enumerate(table) if name not in within)
        whole = np.maximum(counts.sum(axis=others, keepdims=True), 1e-9)
        return _including(np.minimum(counts / whole, 1.0), found)

    def proportions(self, name: str, by: Sequence[str] = ()) -> Intervals:
        """The share of the second level among values that are not missing, of all rows or of each group."""
        table = sorted_table((name, *by))
        above, below = ([self._cells(each) for each in table] for _ in range(2))
        place, axis = table.index(name), self.release.column(name).axes[SHOWN]
        above[place], below[place] = axis.counts[1:2], axis.present[None]
        ratios = self._ratios(table, SHOWN, above, below)
        return ratio_intervals(
            Ratios(*(each.squeeze(place) for each in ratios)), 0.0, 1.0, self.level
        )

    def means(self, name: str, by: Sequence[str] = ()) -> Intervals:
        """The means of a number, of all rows or of each group: [cells of the groups]."""
        column, table = self.release.column(name), sorted_table((name, *by))
        level = PARTS if by else FINEST
        axis, groups = column.axes[level], [self._cells(each) for each in table]
        place = table.index(name)
        above, below = list(groups), list(groups)
        above[place], below[place] = axis.sums[None], axis.present[None]
        ratios = self._ratios(table, level, above, below)
        found = ratio_intervals(
            Ratios(*(each.squeeze(place) for each in ratios)), -1.0, 1.0, self.level
        )
        centre, half = column.scale
        low, high = column.kind.low, column.kind.high
        return Intervals(*(np.clip(centre + half * each, low, high) for each in found))

    def quantiles(
        self, name: str, probabilities: Sequence[float], by: Sequence[str] = ()
    ) -> Intervals:
        """Quantiles of a number, of all rows or of each group: [cells of the groups, probabilities]."""
        column, table = self.release.column(name), sorted_table((name, *by))
        level = PARTS if by else FINEST
        place, axis = table.index(name), column.axes[level]
        edges, whole = ([self._cells(each) for each in table] for _ in range(2))
        edges[place], whole[place] = axis.below, axis.present[None]
        ratios = self._ratios(table, level, edges, whole)
        below, present, below_variance, present_variance, covariance = (
            np.moveaxis(each, place, -1) for each in ratios
        )
        found = np.zeros((*below.shape[:-1], len(probabilities), 3))
        for which, share in enumerate(probabilities):
            ranks = below - share * present
            spreads = np.sqrt(below_variance - 2 * share * covariance + share**2 * present_variance)
            for group in np.ndindex(below.shape[:-1]):
                spread = spreads[group]
                size = _SPLIT_SIZE * float(np.median(spread))
                kept = _needed_edges(column, level, below[group], size)
                heavy = (np.diff(kept) == 1) & (np.diff(below[group][kept]) > size)
                own = ranks[group][kept], ndtri((1 + self.level) / 2) * spread[kept]
                ends = np.array(column.edges[level])[kept]
                found[(*group, which)] = _crossings(ends, *own, heavy)
        if column.is_whole:
            found = np.stack(
                [
                    np.rint(found[..., 0]),
                    np.floor(found[..., 1] + 0.5),
                    np.ceil(found[..., 2] - 0.5),
                ],
                axis=-1,
            )
        found = np.clip(found, column.kind.low, column.kind.high)
        return Intervals(found[..., 0], found[..., 1], found[..., 2])

    def survival(self, time: str, event: str, by: Sequence[str] = ()) -> Intervals:
        """Kaplan-Meier curves at the edges of the bins of a number, for all rows or each group: [cells of the groups, edges].

        ``event`` has two levels: whether it happened at that time, or the row was censored. A hazard is the number of events in a bin over
        that of those at risk. In a bin of several values half of those who were censored count as at risk. What is not known, because noise may be
        as large as the number at risk, is NaN, between zero and the last upper end.
        """
        table = sorted_table((time, event, *by))
        column = self.release.column(time)
        axis, own = column.axes[PARTS], self.release.column(event).axes[SHOWN]
        bins = axis.counts[:-1]
        at_risk = np.cumsum(bins[::-1], axis=0)[::-1]
        single = column.is_whole and bool(np.all(np.diff(column.edges[PARTS]) == 1))
        values, variances = self._tensor(table, PARTS)
        groups = [self._cells(name) for name in table if name not in (time, event)]
        shape = tuple(len(each) for each in groups)
        found = np.zeros((*shape, len(bins) + 1, 3))

        def count(rows: Floats, levels: Floats, group: Sequence[Floats]) -> Floats:
            """Coefficients of the answers in counts of a group, a line for each of the rows."""
            others, total = iter(group), np.ones((len(rows), 1))
            for name in table:
                one = levels if name == event else rows if name == time else next(others)
                factor = np.broadcast_to(one, (len(rows), one.shape[-1]))
                total = np.einsum("ki,kj->kij", total, factor).reshape(len(rows), -1)
            return total

        for place in np.ndindex(shape):
            group = [each[i] for each, i in zip(groups, place, strict=True)]
            events, censored = (count(bins, own.counts[level], group) for level in (1, 0))
            begun = count(at_risk, own.present, group)
            found[place] = _survival_curve(
                Estimates(values.ravel(), variances.ravel()),
                events,
                censored,
                begun if single else begun - censored / 2,
                float(ndtri((1 + self.level) / 2)),
                single=single,
            )
        return Intervals(found[..., 0], found[..., 1], found[..., 2])

    def score_product(self, scores: Mapping[str, Floats]) -> Intervals:
        """The mean product of two columns' scores, one for each shown cell but the missing one, of rows that have both."""
        table = sorted_table(scores)
        axes = [self.release.column(name).axes[SHOWN] for name in table]
        above = [scores[n] @ axis.counts[:-1] for n, axis in zip(table, axes, strict=True)]
        ratios = self._ratios(
            table, SHOWN, [each[None] for each in above], [axis.present[None] for axis in axes]
        )
        most = math.prod(float(np.abs(each).max()) for each in scores.values())
        return ratio_intervals(Ratios(*(each.ravel() for each in ratios)), -most, most, self.level)

    def count_spread(self, table: Table) -> float:
        """The standard deviation of the error of a count; known before the release."""
        sums = [self.release.column(name).axes[SHOWN].counts for name in table]
        return float(np.sqrt(self._linear(table, SHOWN, sums).variances.mean()))

    def rank_spread(self, name: str) -> float:
        """The same of the number of values below a median."""
        axis = self.release.column(name).axes[FINEST]
        coefficients = axis.below[1:-1] - 0.5 * axis.present
        return float(np.sqrt(self._linear((name,), FINEST, [coefficients]).variances.mean()))

    def sum_spread(self, name: str) -> float:
        """The same of a sum of values."""
        column = self.release.column(name)
        variances = self._linear((name,), FINEST, [column.axes[FINEST].sums[None]]).variances
        return float(np.sqrt(variances[0])) * column.scale[1]

    def _cells(self, name: str) -> Floats:
        return self.release.column(name).axes[SHOWN].counts

    def _tensor(self, table: Table, level: int) -> Estimates:
        """All answers about a table, with independent errors: along each axis first the whole, then the questions.

        ``level`` is that of the table's only column of numbers, if it has one.
        """
        levels = {name: level if self.release.column(name).is_number else SHOWN for name in table}
        shape = [1 + len(self.release.column(n).axes[levels[n]].groups) for n in table]
        values, variances = np.zeros(shape), np.zeros(shape)
        for part in margins(table):
            found = self.answers[part]
            if not part:
                values.flat[0], variances.flat[0] = found.values[0], found.variances[0]
                continue
            lifts = [
                self.release.column(n).lift(asked, levels[n])
                for n, asked in self.release.asked(part)
            ]
            where = tuple(slice(1, None) if name in part else 0 for name in table)
            values[where] = contract(found.values, lifts)
            variances[where] = contract(found.variances, [each**2 for each in lifts])
        return Estimates(values, variances)

    def _linear(self, table: Table, level: int, sums: Sequence[Floats]) -> Estimates:
        """Sums over the cells of a table: products of the sums along each axis."""
        values, variances = self._tensor(table, level)
        return Estimates(contract(values, sums), contract(variances, [each**2 for each in sums]))

    def _ratios(
        self, table: Table, level: int, above: Sequence[Floats], below: Sequence[Floats]
    ) -> Ratios:
        """Ratios of such sums."""
        values, variances = self._tensor(table, level)
        both = [first * second for first, second in zip(above, below, strict=True)]
        found = (
            contract(values, above),
            contract(values, below),
            contract(variances, [each**2 for each in above]),
            contract(variances, [each**2 for each in below]),
            contract(variances, both),
        )
        return Ratios(*np.broadcast_arrays(*found))

    def _shown_answers(self, table: Table, answers: Mapping[Table, Floats]) -> Floats:
        """All answers about the shown cells of a table, as `_tensor` has them."""
        found = np.zeros([1 + len(self.release.column(n).axes[SHOWN].groups) for n in table])
        for part in margins(table):
            where = tuple(slice(1, None) if name in part else 0 for name in table)
            found[where] = answers[part]
        return found

    @cached_property
    def _consistent(self) -> dict[Table, Floats]:
        """Answers about shown cells, of the nearest tables without negative cells: least squares, weighted by the noise.

        Margins move less than the cells below them.
        """
        release, axes = (
            self.release,
            {each.name: each.axes[SHOWN] for each in self.release.columns},
        )
        shapes = {part: tuple(len(axes[name].groups) for name in part) for part in release.parts}
        values, variances = (
            {
                p: own[which][tuple(map(slice, shapes[p]))] if p else own[which][0]
                for p, own in self.answers.items()
            }
            for which in (0, 1)
        )
        starts = dict(zip(shapes, np.cumsum([0, *map(math.prod, shapes.values())]), strict=False))
        mean = np.concatenate([np.ravel(values[part]) for part in release.parts])
        spread = np.concatenate(
            [np.ravel(np.sqrt(variances[p])) * _SLACK ** len(p) for p in release.parts]
        )
        blocks = []
        for table in release.all_tables:
            if any(set(table) < set(other) for other in release.all_tables):
                continue
            block = np.zeros((math.prod(len(axes[name].counts) for name in table), len(mean)))
            for part in margins(table):
                own: Floats = np.ones((1, 1))
                for name in table:
                    counts = axes[name].counts
                    factor = counts[:, 1:] if name in part else counts[:, :1]
                    own = np.asarray(np.kron(own, factor), np.float64)
                block[:, starts[part] : starts[part] + own.shape[1]] = own
            blocks.append(block)
        nearest = mean + spread * _nearest_point(
            np.concatenate(blocks) * spread, -np.concatenate(blocks) @ mean
        )
        return {
            part: nearest[starts[part] : starts[part] + math.prod(shape)].reshape(shape)
            for part, shape in shapes.items()
        }


def _including(estimates: Floats, found: Intervals) -> Intervals:
    """Intervals with other estimates: what other cells need may move a count beyond its own interval."""
    lower, upper = np.minimum(found.lower, estimates), np.maximum(found.upper, estimates)
    return Intervals(estimates, lower, upper)


def _nearest_point(matrix: Floats, least: Floats) -> Floats:
    """The shortest vector for which no number of matrix @ vector is below ``least`` (Lawson and Hanson 1974, chapter 23)."""
    lengths = np.linalg.norm(matrix, axis=1)
    matrix, least = matrix / lengths[:, None], least / lengths
    found = np.zeros(matrix.shape[1])
    checked, broken = least > -_SAFE_COUNT, least > _TOLERANCE
    while broken.any():
        checked |= broken
        scale = float(least.max())
        stacked = np.vstack([matrix[checked].T, least[checked] / scale])
        target = np.zeros(len(stacked))
        target[-1] = 1.0
        multipliers, _ = optimize.nnls(stacked, target, maxiter=30 * stacked.shape[1])
        rest = stacked @ multipliers - target
        found = -scale * rest[:-1] / rest[-1]
        broken = (matrix @ found < least - _TOLERANCE) & ~checked
    return found


def positive_intervals(found: Estimates, level: float) -> Intervals:
    """Intervals of numbers that are not negative, by Feldman and Cousins (1998): right as often as they say, whatever the number is."""
    spread = np.sqrt(found.variances)
    lower, upper = _limits(found.values / spread, level)
    return Intervals(np.maximum(found.values, 0.0), lower * spread, upper * spread)


def _limits(places: Floats, level: float) -> tuple[Floats, Floats]:
    """The interval of a mean that is not negative, for places that are normal around it with variance one."""
    means, least, most, half = _accepted(level)
    places = np.maximum(places, _MIN_PLACE)
    lower = np.where(places < most[-1], np.interp(places, most, means), places - half)
    upper = np.where(places < 0, np.interp(places, least[1:], means[1:]), places + half)
    return lower, upper


@lru_cache(maxsize=8)
def _accepted(level: float) -> tuple[Floats, Floats, Floats, float]:
    """Means from zero on, the least and the most place that each accepts, and half the width where zero no longer matters.

    A mean accepts the places that speak least against it, compared with the best mean that is not negative, until they have the
    level's probability.
    """
    half = float(ndtri((1 + level) / 2))
    means = np.concatenate([[0.0], np.geomspace(1e-3, half, 2000)])
    low, high = np.full(len(means), float(ndtri(level))), np.full(len(means), half)
    with np.errstate(divide="ignore"):
        for _ in range(60):
            above = (low + high) / 2
            mass = ndtr(above) - ndtr(-(means**2 + above**2) / (2 * means))
            low, high = np.where(mass < level, above, low), np.where(mass < level, high, above)
        return means, (means**2 - high**2) / (2 * means), means + high, half


def ratio_intervals(found: Ratios, low: float, high: float, level: float) -> Intervals:
    """Intervals of ratios between two bounds, by Fieller's theorem; near a bound as wide as those of counts are near zero.

    Where the interval of a denominator contains zero, the interval is all values between the bounds.
    """
    above, below = found.above, found.below

    def widths(bound: float) -> tuple[NDArray[np.bool_], Floats, Floats]:
        """Whether an interval has a bound; and how far it reaches towards it and away from it."""
        variance = found.above_variance - 2 * bound * found.covariance
        spread = np.sqrt(np.maximum(variance + bound**2 * found.below_variance, 1e-12))
        place = (above - bound * below) / spread * (1 if bound == low else -1)
        place = np.maximum(place, _MIN_PLACE)
        nearest, farthest = _limits(place, level)
        return nearest <= 0, place - nearest, np.where(place < 0, farthest - place, np.nan)

    (at_low, down, up_from_low), (at_high, up, down_from_high) = widths(low), widths(high)
    down = np.where(np.isnan(down_from_high), down, down_from_high)
    up = np.where(np.isnan(up_from_low), up, up_from_low)
    lower = np.where(at_low, low, _fieller_end(found, down, -1))
    upper = np.where(at_high, high, _fieller_end(found, up, 1))
    lower = np.clip(np.where(np.isnan(lower), low, lower), low, high)
    upper = np.clip(np.where(np.isnan(upper), high, upper), low, high)
    values = above / np.maximum(below, np.sqrt(found.below_variance))
    return Intervals(np.clip(values, lower, upper), lower, upper)


def _fieller_end(found: Ratios, width: Floats, side: int) -> Floats:
    """The ratio for which the numerator less the ratio times the denominator is ``width`` standard deviations from zero.

    NaN where there is none because the denominator is too small.
    """
    above, below, above_variance, below_variance, covariance = found
    a = below**2 - width**2 * below_variance
    b = above * below - width**2 * covariance
    c = above**2 - width**2 * above_variance
    with np.errstate(all="ignore"):
        root = (b + side * np.sqrt(np.maximum(b**2 - a * c, 0.0))) / a
    return np.where((a > 0) & (below > 0), root, np.nan)


def _survival_curve(
    answers: Estimates,
    events: Floats,
    censored: Floats,
    at_risk: Floats,
    width: float,
    *,
    single: bool,
) -> Floats:
    """The survival at every edge of some bins: estimate and the ends of its interval, [edges, 3].

    Args:
        answers: The answers.
        events: Coefficients of the answers in the number of events of each bin.
        censored: The same of those that were censored.
        at_risk: The same of those at risk.
        width: Half the width of an interval, in standard deviations.
        single: Whether bins are single values, so that nobody was censored before an event of the same bin.
    """
    happened, left, number = (each @ answers.values for each in (events, censored, at_risk))
    spread = np.sqrt(at_risk**2 @ answers.variances)
    known = np.logical_and.accumulate(number > _KNOWN_RISK * spread)
    number = np.where(known, number, 1.0)
    share = np.where(known, np.minimum(happened / number, 1 - 0.5 / np.maximum(number, 1.0)), 0.0)
    # The derivative of each hazard by the answers, and those of their sums.
    slopes = (known / (number * (1 - share)))[:, None] * (events - share[:, None] * at_risk)
    margin = width * np.sqrt(np.cumsum(slopes, axis=0) ** 2 @ answers.variances)
    if (
        not single
    ):  # nobody knows how many of those who were censored were at risk: none to all of them
        doubt = np.maximum(happened, 0) * np.maximum(left, 0) / (number**2 * (1 - share))
        margin += np.cumsum(np.where(known, doubt, 0.0)) / 2
    hazard = np.cumsum(-np.log1p(-share))
    found = np.exp(-np.stack([hazard, hazard + margin, hazard - margin], axis=1))
    found = np.vstack([np.ones(3), np.where(known[:, None], found, [np.nan, 0.0, np.inf])])
    ends = np.minimum.accumulate(np.clip(found[:, 1:], 0.0, 1.0), axis=0)
    there = np.concatenate([[True], known])
    found[there, 0] = optimize.isotonic_regression(found[there, 0], increasing=False).x
    return np.column_stack([np.clip(found[:, 0], ends[:, 0], ends[:, 1]), ends])


def _needed_edges(
    column: CountedColumn, level: int, below: Floats, size: float
) -> NDArray[np.int64]:
    """Places of edges of a level, such that bins between them are as small as possible but hold more than ``size``.

    Finer ones would add noise and nothing else.
    """
    places = {
        int(p): i for i, p in enumerate(np.searchsorted(column.edges[FINEST], column.edges[level]))
    }
    ends = min(places), max(places)
    bins, kept = {ends}, set(ends)
    for node in column.tree:
        begin, middle, end = node[2:]
        if (
            (begin, end) in bins
            and node.level <= level
            and below[places[end]] - below[places[begin]] > size
        ):
            bins |= {(begin, middle), (middle, end)}
            kept.add(middle)
    return np.array([places[each] for each in sorted(kept)])


def _crossings(
    edges: Floats, ranks: Floats, margins: Floats, heavy: NDArray[np.bool_]
) -> tuple[float, float, float]:
    """Where increasing ranks are zero, and where they are with a margin more or less; between edges by a straight line.

    Inside a ``heavy`` bin, which is not cut further, nobody knows: an interval has all of it.
    """
    middle = optimize.isotonic_regression(ranks, weights=1 / np.maximum(margins, 1e-9) ** 2).x
    upper_ranks = np.maximum.accumulate(middle + margins)
    lower_ranks = np.minimum.accumulate((middle - margins)[::-1])[::-1]
    found = []
    for heights, outward in ((middle, None), (upper_ranks, 0), (lower_ranks, 1)):
        place = int(np.searchsorted(heights, 0.0, side="right" if outward else "left"))
        if place in (0, len(edges)):
            found.append(float(edges[min(place, len(edges) - 1)]))
        elif outward is not None and heavy[place - 1]:
            found.append(float(edges[place - 1 + outward]))
        else:
            low, high = heights[place - 1 : place + 1]
            share = (0.0 - low) / max(high - low, 1e-300)
            found.append(float(edges[place - 1] + share * (edges[place] - edges[place - 1])))
    return found[0], min(found[:2]), max(found[0], found[2])

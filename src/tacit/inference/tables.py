"""Counts, histograms, cross-tables, means and quantiles from one noisy sum, and intervals that contain its noise.

What is asked of the rows are differences of counts, from which all counts follow. For levels they are orthonormal
contrasts; for numbers, at every node of a binary tree over bins, the count on the left less the count on the right. A
cross-table adds products of these. So every row adds a vector of the same length, margins are asked once however many
tables have them, and all tables agree on them. How much noise a difference gets is chosen so that the requested numbers are
known best for the budget (Xiao, He, Zhang and Kifer 2023 for tables; Xiao, Wang and Gehrke 2011 for trees).

Estimates are linear in what was released, so each has a known normal error. The interval of a number is that of its
posterior under a uniform prior on the values that it may have: for a count, a truncated normal distribution. The counts that
are shown are the nearest tables without negative cells, by weighted least squares.
"""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from scipy import linalg, optimize
from scipy.special import log_ndtr, ndtr, ndtri

from tacit._typing import Floats
from tacit.accounting import Budget, calibrate
from tacit.data.columns import MISSING_INTEGER, Count, Kind, Number
from tacit.errors import InvalidArgument
from tacit.inference.method import no_inputs
from tacit.models.base import Row
from tacit.privacy.gate import Gate, run
from tacit.privacy.mechanisms import NoisySums, Release

MISSING_LABEL: Final = "missing"
Table = tuple[str, ...]
# A bin that is shown is cut into so many parts for quantiles of groups, and these again for quantiles of a column.
_PARTS_BY_GROUP, _PARTS_OF_PARTS = 8, 16
# Bins of a number that are shown, at most, unless others are asked for.
_MAX_SHOWN_BINS = 10
_MAX_LISTED_VALUES = 12  # of a count that has so few, every value is shown
# The most units that a sum can add up without wrapping around.
_BATCH_BOUND = 2**31
# A unit's vector is shorter than the clip by this share, which is more than the margin that the lattice cuts off.
_CLIP_MARGIN = 2.0**-12
_MAX_QUESTIONS = 2**17
_MAX_CELLS = 4000
# Points at which the posterior density of a ratio is computed.
_RATIO_POINTS = 1001
_RATIO_SPREADS = 8.0
# A quantile is interpolated inside a bin only if the bin holds fewer units than the error of its rank.
_INTERPOLATED_SHARE = 1.0


class Axis(NamedTuple):
    """One column of a table: its cells, the missing ones last, and what is asked about them.

    A row in a cell adds a line of ``added`` to the questions. ``groups`` are the questions that get the same noise, and
    ``sizes`` the squared length of what a row adds to each group. ``counts`` are the numbers of rows in the cells, as sums of
    the number of all rows and the answers. Of a number there are also the scaled ``middles`` of its bins and, unless a bin is a
    single value, a last question: by how many times ``reach`` values are from these middles, in sum.
    """

    added: Floats
    groups: NDArray[np.int64]
    sizes: Floats
    counts: Floats
    middles: Floats | None = None
    reach: float = 0.0

    @property
    def present(self) -> Floats:
        """The number of rows with a value, as a sum of answers."""
        return np.asarray(self.counts[:-1].sum(axis=0))

    @property
    def sums(self) -> Floats:
        """The sum of scaled values, as a sum of answers."""
        assert self.middles is not None
        found = self.middles @ self.counts[:-1]
        if self.reach:
            found[-1] += self.reach
        return np.asarray(found)

    @property
    def below(self) -> Floats:
        """The number of values below every edge but the first, as sums of answers."""
        return np.cumsum(self.counts[:-1], axis=0)

    def importance(self, shown: "Axis") -> Floats:
        """How much the noise of each answer matters: mean squares of its coefficients in what will be computed.

        Ranks and sums count in units of the least variance that they could have if nothing else was asked.
        """
        found = np.zeros(1 + len(self.groups))
        found[: 1 + len(shown.groups)] = np.mean(shown.counts**2, axis=0)
        if self.middles is not None:
            shares = np.arange(1, len(self.middles) + 1)[:, None] / len(self.middles)
            ranks = np.mean((self.below - shares * self.present) ** 2, axis=0)
            found += RW*(ranks / self._least(ranks)) + SW*self.sums**2 / self._least(self.sums**2)
        return found

    def _least(self, squares: Floats) -> float:
        """The least variance of what has these squared coefficients, for noise of variance one."""
        groups = np.concatenate([[0], self.groups + 1])
        by_group = np.bincount(groups, squares)
        return float(np.sqrt(by_group * np.concatenate([[1.0], self.sizes])).sum() ** 2)


RW,SW,IMPL,TW=.5,.5,.25,1.0
def _level_axis(size: int) -> Axis:
    contrasts = linalg.helmert(size)
    counts = np.column_stack([np.full(size, 1 / size), contrasts.T])
    return Axis(contrasts.T, np.zeros(size - 1, np.int64), np.array([1 - 1 / size]), counts)


@dataclass(frozen=True)
class CountedColumn:
    """A column and its bins; everything public.

    Args:
        name: The name.
        kind: What is public about it.
        edges: Of a number, the edges of the bins that are shown, of their parts, and of the parts' parts.
    """

    name: str
    kind: Kind
    edges: tuple[tuple[float, ...], ...] = ()

    @classmethod
    def build(cls, name: str, kind: Kind, bins: object = None) -> "CountedColumn":
        """A column with the bins that were asked for: their number, or edges between them.

        Raises:
            InvalidArgument: If the column cannot be counted, or the bins are wrong.
        """
        if kind.shape:
            raise InvalidArgument(f"Column {name!r} holds arrays, which cannot be tabled.")
        if kind.labels:
            if bins is not None:
                raise InvalidArgument(f"Column {name!r} has levels, so it needs no bins.")
            return cls(name, kind)
        assert isinstance(kind, Number | Count)
        shown = _shown_edges(name, kind, bins)
        parts = _cut(kind, shown, _PARTS_BY_GROUP)
        return cls(name, kind, (shown, parts, _cut(kind, parts, _PARTS_OF_PARTS)))

    @property
    def is_number(self) -> bool:
        """Whether it has bins instead of levels."""
        return bool(self.edges)

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """Names of the cells that are shown."""
        if not self.edges:
            return (*self.kind.labels, MISSING_LABEL)
        return (
            *itertools.starmap(self._bin_label, itertools.pairwise(self.edges[0])),
            MISSING_LABEL,
        )

    def _bin_label(self, low: float, high: float) -> str:
        if isinstance(self.kind, Count):
            first, last = math.ceil(low), math.floor(high)
            return f"{first}" if first == last else f"{first} to {last}"
        return f"{low:.6g} to {high:.6g}"

    @property
    def scale(self) -> tuple[float, float]:
        """The middle of the bounds, and half their width."""
        low, high = self.edges[0][0], self.edges[0][-1]
        return (low + high) / 2, (high - low) / 2

    @cached_property
    def axes(self) -> tuple[Axis, ...]:
        """The axis of shown bins; of a number, also those of its two kinds of parts."""
        if not self.edges:
            return (_level_axis(len(self.labels)),)
        finest = self._bin_axis(2)
        return self._bin_axis(0), self._bin_axis(1, finest), finest

    @cached_property
    def lift(self) -> Floats:
        """Answers about the first kind of parts, from those about the second."""
        _, parts, finest = self.axes
        found = np.eye(len(parts.groups), len(finest.groups))
        if parts.reach:
            edges, own = np.array(self.edges[-1]), np.array(self.edges[1])
            which = np.searchsorted(own, (edges[1:] + edges[:-1]) / 2) - 1
            assert finest.middles is not None
            assert parts.middles is not None
            away = (finest.middles - parts.middles[which]) @ finest.counts[:-1]
            found[-1] = away[1:] / parts.reach
            found[-1, : len(parts.groups) - 1] = 0.0  # but for rounding
            if finest.reach:
                found[-1, -1] = finest.reach / parts.reach
        return found

    @cached_property
    def _tree(self) -> list[tuple[int, int, int, int, int]]:
        """Nodes: level, depth in it, and the smallest bins where its left part begins, its right one, and where it ends."""
        places = [np.searchsorted(self.edges[-1], edges) for edges in self.edges]
        nodes: list[tuple[int, int, int, int, int]] = []

        def split(level: int, depth: int, first: int, last: int) -> None:
            """Splits what lies between two edges of a level, and then each of its bins by the next level."""
            own = places[level]
            if last - first > 1:
                middle = (first + last + 1) // 2
                nodes.append((level, depth, int(own[first]), int(own[middle]), int(own[last])))
                split(level, depth + 1, first, middle)
                split(level, depth + 1, middle, last)
            elif level + 1 < len(places):
                below = np.searchsorted(places[level + 1], own[[first, last]])
                split(level + 1, 0, int(below[0]), int(below[1]))

        split(0, 0, 0, len(places[0]) - 1)
        return sorted(nodes)

    def _bin_axis(self, level: int, finest: Axis | None = None) -> Axis:
        """Questions: whether there is a value; which half of each node it is in; and, of parts, how far from their middles it is."""
        nodes = [node for node in self._tree if node[0] <= level]
        edges = np.array(self.edges[level])
        starts = np.searchsorted(self.edges[-1], edges[:-1])
        added = np.zeros((len(edges), 1 + len(nodes)))
        added[:, 0] = 1.0
        added[-1, 0] = -1.0
        for place, (_, _, begin, middle, end) in enumerate(nodes, 1):
            added[:-1, place] = ((begin <= starts) & (starts < middle)) * 1.0
            added[:-1, place] -= (middle <= starts) & (starts < end)
        kinds = [(-1, 0), *((node[0], node[1]) for node in nodes)]
        order = {kind: place for place, kind in enumerate(dict.fromkeys(kinds))}
        groups = [order[kind] for kind in kinds]
        counts = np.linalg.inv(np.column_stack([np.ones(len(edges)), added]).T)
        if level == 0:
            return Axis(added, np.array(groups), np.ones(len(order)), counts)
        middles = self._middles(added, finest)
        inset = (0.5 if isinstance(self.kind, Count) else 0.0) / self.scale[1]
        scaled = (edges - self.scale[0]) / self.scale[1]
        reach = float(np.max([scaled[1:] - inset - middles, middles - scaled[:-1] - inset]))
        if reach < 1e-9:  # every bin is a single value
            return Axis(added, np.array(groups), np.ones(len(order)), counts, middles)
        groups.append(len(order))
        added = np.column_stack([added, np.zeros(len(added))])
        counts = np.column_stack([counts, np.zeros(len(counts))])
        return Axis(added, np.array(groups), np.ones(len(order) + 1), counts, middles, reach)

    def _middles(self, added: Floats, finest: Axis | None) -> Floats:
        """Public values that stand for the bins: of the smallest, their middles; of others, means by the tree's halves.

        With these, how far values are from the middle of a bin does not depend on how many are in it.
        """
        if finest is None:
            edges = np.array(self.edges[-1])
            return np.asarray(((edges[1:] + edges[:-1]) / 2 - self.scale[0]) / self.scale[1])
        assert finest.middles is not None
        whole = np.column_stack([np.ones(len(added)), added])
        return np.asarray((finest.middles @ finest.counts[:-1, : whole.shape[1]] @ whole.T)[:-1])


def _shown_edges(name: str, kind: Number | Count, bins: object) -> tuple[float, ...]:
    """Edges of the bins that are shown; of a count, halfway between two values."""
    is_count = isinstance(kind, Count)
    low, high = (kind.low - 0.5, kind.high + 0.5) if is_count else (kind.low, kind.high)
    wrong = InvalidArgument(
        f"bins[{name!r}] must be a number of bins from 2 to 200, or increasing edges between {kind.low:g} and {kind.high:g}."
    )
    if bins is None:
        if is_count and kind.high - kind.low < _MAX_LISTED_VALUES:
            return tuple(np.arange(kind.low, kind.high + 2) - 0.5)
        inner = _round_edges(kind.low, kind.high, whole=is_count)
    elif isinstance(bins, int) and not isinstance(bins, bool) and 2 <= bins <= 200:
        inner = np.linspace(low, high, bins + 1)[1:-1]
        inner = np.unique(np.ceil(inner)) if is_count else inner
    elif isinstance(bins, Sequence | np.ndarray) and not isinstance(bins, str):
        try:
            inner = np.array([float(each) for each in bins])
        except (TypeError, ValueError):
            raise wrong from None
        inner = inner[(inner != kind.low) & (inner != kind.high)] if len(inner) else inner
        if is_count and (inner % 1).any():
            raise wrong
    else:
        raise wrong
    edges = np.array([low, *(inner - 0.5 if is_count else inner), high])
    if not (len(edges) <= 201 and np.isfinite(edges).all() and (np.diff(edges) > 0).all()):
        raise wrong
    return tuple(edges.tolist())


def _round_edges(low: float, high: float, *, whole: bool) -> Floats:
    """Round numbers between two bounds, as edges of at most ten bins."""
    least = (high - low) / _MAX_SHOWN_BINS
    power = 10.0 ** math.floor(math.log10(least))
    step = next(power * each for each in (1, 2, 5, 10) if power * each >= least * (1 - 1e-9))
    step = max(step, 1.0) if whole else step
    inner = np.arange(math.floor(low / step) + 1, math.ceil(high / step)) * step
    # A narrow bin at an end is joined to the next one.
    return np.array([each for each in inner if each - low >= step / 2 and high - each >= step / 2])


def _cut(kind: Number | Count, edges: tuple[float, ...], parts: int) -> tuple[float, ...]:
    """Edges of equal parts of all bins; those of a count hold whole numbers."""
    found: list[float] = []
    for low, high in itertools.pairwise(edges):
        inside = np.linspace(low, high, parts + 1)[:-1]
        if isinstance(kind, Count):
            inside = np.unique(np.round(inside - 0.5) + 0.5)
            inside = inside[(inside >= low) & (inside < high)]
        found += inside.tolist()
    return (*found, edges[-1])


@dataclass(frozen=True)
class TableRelease:
    """What one release of tables asks, all of it public.

    Args:
        columns: The columns of the tables.
        tables: The tables, each the names of its columns in their order.
        rows_per_unit: The largest number of rows of a unit.
        count_rows: Whether every row of a person counts as one; otherwise a person does, and the person's rows share it.
    """

    columns: tuple[CountedColumn, ...]
    tables: tuple[Table, ...]
    rows_per_unit: int = 1
    count_rows: bool = False

    def __post_init__(self) -> None:
        cells = sum(math.prod(len(self.column(n).labels) for n in each) for each in self.tables)
        if cells > _MAX_CELLS or self.dimension > _MAX_QUESTIONS:
            raise InvalidArgument(
                f"The tables have {cells:,} cells, which is more than {_MAX_CELLS:,} or too many bins; ask for "
                "fewer or smaller tables."
            )

    def column(self, name: str) -> CountedColumn:
        """A column by its name."""
        return next(each for each in self.columns if each.name == name)

    @cached_property
    def parts(self) -> tuple[Table, ...]:
        """All margins of all tables, in the order in which they are asked; the first is the whole."""
        found = {part for table in self._all_tables for part in _margins(table)}
        return tuple(sorted(found, key=self._asked))

    def _asked(self, part: Table) -> "AskedMargin":
        return tuple(zip(part, self.levels(part), strict=True))

    @property
    def _all_tables(self) -> tuple[Table, ...]:
        """The tables, and each column by itself."""
        return (
            *dict.fromkeys([*((each.name,) for each in self.columns), *map(_sorted, self.tables)]),
        )

    def levels(self, part: Table) -> tuple[int, ...]:
        """How fine the bins of each column of a margin are asked: finest alone, finer if no other column has bins."""
        numbers = [self.column(name).is_number for name in part]
        if len(part) < 2:
            return tuple(2 * each for each in numbers)
        tables = [table for table in self.tables if set(part) <= set(table)]
        alone = any(sum(self.column(name).is_number for name in each) == 1 for each in tables)
        return tuple(int(each and alone) for each in numbers)

    def axes(self, part: Table) -> list[Axis]:
        """The axes of a margin as it is asked."""
        levels = self.levels(part)
        return [self.column(name).axes[level] for name, level in zip(part, levels, strict=True)]

    def shape(self, part: Table) -> tuple[int, ...]:
        """How many questions there are about a margin, along each of its columns."""
        if not part:
            return (1 if self.rows_per_unit == 1 else 2,)
        return tuple(len(axis.groups) for axis in self.axes(part))

    @cached_property
    def dimension(self) -> int:
        """How many numbers are released."""
        return sum(math.prod(self.shape(part)) for part in self.parts)

    @cached_property
    def weights(self) -> dict[Table, Floats]:
        """What each question is multiplied with, so that a row's whole vector has length one.

        By Cauchy and Schwarz the sum of V / w^2 over groups of questions is least, given the sum of p w^2, for w^2 in
        proportion to the root of V / p. V are squared coefficients of what will be computed, and p is the squared length that a
        row adds to the group.
        """
        importance = {part: np.zeros(self.shape(part)) for part in self.parts}
        importance[()][:] = TW  # how many there are; of people, also how many rows
        for table in self._all_tables:
            levels = self.levels(table)
            asked = 1.0 if table in map(_sorted, self.tables) else IMPL
            squares = {
                name: axis.importance() for name, axis in zip(table, self.axes(table), strict=True)
            }
            for part in _margins(table):
                rest = asked * math.prod(squares[name][0] for name in table if name not in part)
                if not part:
                    importance[()][0] += rest
                    continue
                own = [squares[name][1:] for name in part]
                if len(part) == 1 < len(table) and levels[table.index(part[0])]:
                    own = [own[0] @ self.column(part[0]).lift ** 2]
                shared = rest * _outer(own)
                importance[part][tuple(slice(size) for size in shared.shape)] += shared
        squared, whole = {}, 0.0
        for part, needed in importance.items():
            if not part:
                found = np.sqrt(needed)
                whole += float(found.sum())
            else:
                axes = self.axes(part)
                members = [np.equal.outer(np.arange(len(axis.sizes)), axis.groups) for axis in axes]
                sizes = _outer([axis.sizes for axis in axes])
                by_group = np.sqrt(_contract(needed, members))
                whole += float((by_group * np.sqrt(sizes)).sum())
                found = (by_group / np.sqrt(sizes))[np.ix_(*(axis.groups for axis in axes))]
            squared[part] = found
        return {part: np.sqrt(found / whole) for part, found in squared.items()}

    def calibrate(self, budget: Budget) -> NoisySums:
        """One noisy sum, with the noise that a budget asks for."""
        return NoisySums(
            sampling_rate=1.0,
            num_steps=1,
            clip=1.0 + _CLIP_MARGIN,
            noise_multiplier=calibrate.noise_multiplier(budget, num_steps=1),
            dimension=self.dimension,
            batch_bound=_BATCH_BOUND,
        )

    @property
    def question(self) -> "Question":
        """What the release is given, as arrays."""
        return Question(
            {each.name: Lookup.build(each) for each in self.columns},
            {self._asked(p): jnp.asarray(w, jnp.float32) for p, w in self.weights.items()},
            jnp.float32(self.rows_per_unit if self.count_rows else 0),
        )

    def run(self, gate: Gate) -> Floats:
        """The answers, with their noise, from what the gate releases. [tables]"""
        _, released = run(gate, _step, self.question, no_inputs)
        return np.asarray(released[0], np.float64)


def _sorted(table: Table) -> Table:
    return tuple(sorted(table))


def _margins(table: Table) -> Iterable[Table]:
    """All margins of a table, the whole first and the table itself last."""
    sizes = range(len(table) + 1)
    return itertools.chain.from_iterable(itertools.combinations(_sorted(table), n) for n in sizes)


def _outer(vectors: Sequence[Floats]) -> Floats:
    """The outer product of vectors, as a tensor."""
    found = np.ones(())
    for each in vectors:
        found = np.multiply.outer(found, each)
    return np.asarray(found)


def _contract(tensor: Floats, matrices: Sequence[Floats]) -> Floats:
    """A tensor, multiplied along each axis with the rows of a matrix."""
    found = tensor
    for each in matrices:  # the first axis becomes the last, so that they come round
        found = np.tensordot(found, each, axes=(0, 1))
    return found


# The columns of a margin, each with how fine its bins are.
AskedMargin = tuple[tuple[str, int], ...]


class Lookup(NamedTuple):
    """A column as arrays. Of a number: inner edges of its smallest bins, and the middle and half the width of its bounds.

    ``added`` is what a row in each cell adds, by how fine bins are. ``middles`` are scaled values that stand for bins, and their
    reach, where that is asked for.
    """

    edges: jax.Array | None
    scale: jax.Array | None
    added: tuple[jax.Array, ...]
    middles: tuple[tuple[jax.Array, jax.Array] | None, ...]

    @classmethod
    def build(cls, column: CountedColumn) -> "Lookup":
        """The arrays of a column."""
        axes = column.axes
        if not column.edges:
            return cls(None, None, (jnp.asarray(axes[0].added, jnp.float32),), (None,))
        finest = np.array(column.edges[-1])
        added, middles = [], []
        for axis, edges in zip(axes, column.edges, strict=True):
            which = np.searchsorted(edges, (finest[1:] + finest[:-1]) / 2) - 1
            asked = axis.added if not axis.reach else axis.added[:, :-1]
            added.append(jnp.asarray(asked[[*which, -1]], jnp.float32))
            own = None
            if axis.reach and axis.middles is not None:
                own = jnp.asarray([*axis.middles[which], 0.0], jnp.float32), jnp.float32(axis.reach)
            middles.append(own)
        edges = jnp.asarray(finest[1:-1], jnp.float32)
        scale = jnp.asarray(column.scale, jnp.float32)
        return cls(edges, scale, tuple(added), tuple(middles))


class Question(NamedTuple):
    """All that a unit's contribution depends on beside its rows.

    ``most_rows`` is the largest number of rows of a unit if each of them counts, and zero if the unit counts as one.
    """

    columns: Mapping[str, Lookup]
    weights: Mapping[AskedMargin, jax.Array]
    most_rows: jax.Array


def contribution(question: Question, rows: Row, present: jax.Array) -> jax.Array:
    """What one unit adds: a vector of length at most one, whatever its rows hold. [tables-unit]"""
    number = present.sum()
    divisor = jnp.where(question.most_rows > 0, question.most_rows, jnp.maximum(number, 1))
    share = present / divisor
    answers = {name: _row_answers(lookup, rows[name]) for name, lookup in question.columns.items()}
    parts = []
    for margin, weights in question.weights.items():
        if not margin:
            others = jnp.where(question.most_rows > 0, present.any(), number / len(present))
            found = jnp.stack([share.sum(), others])[: len(weights)]
        else:
            product = share[:, None]
            for name, level in margin:
                product = product[:, :, None] * answers[name][level][:, None, :]
                product = product.reshape(len(share), -1)
            found = product.sum(axis=0)
        parts.append(found * weights.ravel())
    return jnp.concatenate(parts)


def _row_answers(lookup: Lookup, values: jax.Array) -> list[jax.Array]:
    """What each row adds to the questions about one column, by how fine bins are: [rows, questions]."""
    if lookup.edges is None or lookup.scale is None:
        codes = jnp.where(values < 0, len(lookup.added[0]) - 1, values)
        return [lookup.added[0][codes]]
    missing = jnp.isnan(values) if values.dtype == jnp.float32 else values == MISSING_INTEGER
    inside = (values[:, None] >= lookup.edges).sum(axis=1)
    codes = jnp.where(missing, len(lookup.edges) + 1, inside)
    scaled = (values - lookup.scale[0]) / lookup.scale[1]
    found = []
    for added, middles in zip(lookup.added, lookup.middles, strict=True):
        answers = added[codes]
        if middles is not None:
            away = jnp.clip((scaled - middles[0][codes]) / middles[1], -1, 1)
            answers = jnp.column_stack([answers, jnp.where(missing, 0.0, away)])
        found.append(answers)
    return found


def _step(state: Question, _: jax.Array, release: Release) -> tuple[Question, jax.Array]:
    return state, release.noisy_sum(contribution, state)


class Estimates(NamedTuple):
    """Estimates and the variances of their normal errors."""

    values: Floats
    variances: Floats


class Ratios(NamedTuple):
    """Numerators and denominators, with the variances and covariances of their errors."""

    numerators: Floats
    denominators: Floats
    numerator_variances: Floats
    denominator_variances: Floats
    covariances: Floats


class Interval(NamedTuple):
    """The ends of intervals, and what is most likely between them."""

    estimates: Floats
    lower: Floats
    upper: Floats


@dataclass(frozen=True, eq=False)
class ReleasedTables:
    """What follows from a release of tables.

    Args:
        release: What was asked.
        released: The answers.
        noise_std: The standard deviation of the noise in each.
    """

    release: TableRelease
    released: Floats
    noise_std: float

    @cached_property
    def answers(self) -> dict[Table, Estimates]:
        """The answers in units of what is counted, by margin."""
        found, start = {}, 0
        release = self.release
        for part in release.parts:
            shape, weights = release.shape(part), release.weights[part]
            size = math.prod(shape)
            unit = np.full(shape, float(release.rows_per_unit if release.count_rows else 1))
            if not part:
                unit[1:] = 1.0 if release.count_rows else release.rows_per_unit
            own = self.released[start : start + size].reshape(shape)
            found[part] = Estimates(own * unit / weights, (self.noise_std * unit / weights) ** 2)
            start += size
        return found

    def tensor(
        self, table: Table, levels: Sequence[int], answers: Mapping[Table, Estimates] | None = None
    ) -> Estimates:
        """All answers about a table: along each axis the whole and then the questions of a level. Errors are independent."""
        axes = [self.release.column(n).axes[level] for n, level in zip(table, levels, strict=True)]
        shape = [1 + len(axis.groups) for axis in axes]
        values, variances = np.zeros(shape), np.zeros(shape)
        for part in _margins(table):
            found = (answers or self.answers)[part]
            if not part:
                values.flat[0], variances.flat[0] = found.values[0], found.variances[0]
                continue
            lifts = [
                self._lift(name, own, levels[table.index(name)])
                for name, own in zip(part, self.release.levels(part), strict=True)
            ]
            order = [part.index(name) for name in table if name in part]
            where = tuple(slice(1, None) if name in part else 0 for name in table)
            values[where] = _contract(found.values, lifts).transpose(order)
            variances[where] = _contract(found.variances, [each**2 for each in lifts]).transpose(
                order
            )
        return Estimates(values, variances)

    def _lift(self, name: str, own: int, wanted: int) -> Floats:
        """Answers about bins of one level, from those about another."""
        column = self.release.column(name)
        if own == 2 and wanted == 1:
            return column.lift
        return np.eye(len(column.axes[wanted].groups), len(column.axes[own].groups))

    def linear(self, table: Table, levels: Sequence[int], sums: Sequence[Floats]) -> Estimates:
        """Linear functions of a table, products of those along each axis."""
        tensor = self.tensor(table, levels)
        return Estimates(
            _contract(tensor.values, sums), _contract(tensor.variances, [each**2 for each in sums])
        )

    def ratios(
        self, table: Table, levels: Sequence[int], above: Sequence[Floats], below: Sequence[Floats]
    ) -> Ratios:
        """Ratios of linear functions of a table."""
        tensor = self.tensor(table, levels)
        shape = [max(len(a), len(b)) for a, b in zip(above, below, strict=True)]
        return Ratios(
            *(
                np.broadcast_to(each, shape)
                for each in (
                    _contract(tensor.values, above),
                    _contract(tensor.values, below),
                    _contract(tensor.variances, [a**2 for a in above]),
                    _contract(tensor.variances, [b**2 for b in below]),
                    _contract(tensor.variances, [a * b for a, b in zip(above, below, strict=True)]),
                )
            )
        )

    def counts(self, table: Table) -> Estimates:
        """Unbiased counts of the cells of a table, some of which may be negative."""
        levels = (0,) * len(table)
        return self.linear(
            table, levels, [self.release.column(name).axes[0].counts for name in table]
        )

    @cached_property
    def consistent(self) -> dict[Table, Estimates]:
        """Answers of the nearest tables without negative cells, by least squares weighted by the answers' noise."""
        release = self.release
        tables = [
            t for t in release._all_tables if not any(set(t) < set(o) for o in release._all_tables)
        ]
        sizes = {p: tuple(len(release.column(n).axes[0].groups) for n in p) for p in release.parts}
        starts, total = {}, 0
        means, spreads = [], []
        for part in release.parts:
            starts[part] = total
            shown = tuple(slice(size) for size in sizes[part])
            own = self.answers[part]
            values, variances = (
                (own.values[shown], own.variances[shown])
                if part
                else (own.values[:1], own.variances[:1])
            )
            means.append(values.ravel())
            spreads.append(np.sqrt(variances).ravel() * ORDER_FACTOR ** len(part))
            total += values.size
        mean, spread = np.concatenate(means), np.concatenate(spreads)
        blocks = []
        for table in tables:
            block = np.zeros((math.prod(len(release.column(n).labels) for n in table), total))
            for part in _margins(table):
                found = np.ones((1, 1))
                for name in table:
                    counts = release.column(name).axes[0].counts
                    found = np.kron(found, counts[:, 1:] if name in part else counts[:, :1])
                block[:, starts[part] : starts[part] + found.shape[1]] = found
            blocks.append(block)
        cells = np.concatenate(blocks)
        nearest = mean + spread * _nearest_point(cells * spread, -cells @ mean)
        # Rounding may leave a cell slightly negative; towards an even spread, all are positive.
        even = np.zeros(total)
        even[starts[()]] = max(nearest[starts[()]], 0.0)
        return {
            p: Estimates(
                nearest[starts[p] : starts[p] + (math.prod(sizes[p]) if p else 1)].reshape(
                    sizes[p] if p else (1,)
                ),
                np.zeros(()),
            )
            for p in release.parts
        }


ORDER_FACTOR = 1.0


def _nearest_point(matrix, least):
    """The shortest vector x with matrix @ x >= least (Lawson and Hanson 1974, chapter 23)."""
    if (least <= 0).all():
        return np.zeros(matrix.shape[1])
    scale = max(np.abs(least).max(), 1e-12)
    stacked = np.vstack([matrix.T, least / scale])
    target = np.zeros(len(stacked))
    target[-1] = 1.0
    found, _ = optimize.nnls(stacked, target, maxiter=50 * stacked.shape[1])
    rest = stacked @ found - target
    return -rest[:-1] / rest[-1] * scale


def positive_interval(found: Estimates, level: float) -> Interval:
    """Shortest intervals of numbers that are not negative, under a uniform prior: truncated normal posteriors."""
    spread = np.sqrt(found.variances)
    place = np.maximum(found.values / spread, -35.0)
    mass = ndtr(place)
    half = ndtri((1 + level * mass) / 2)
    upper = place - ndtri((1 - level) * mass)
    inside = place >= half
    lower = np.where(inside, place - half, 0.0)
    upper = np.where(inside, place + half, upper)
    return Interval(np.maximum(found.values, 0), lower * spread, upper * spread)


def ratio_interval(found: Ratios, low: float, high: float, level: float) -> Interval:
    """Shortest intervals of ratios between two bounds, under a uniform prior on numerator and denominator."""
    above, below, var_above, var_below, both = (
        np.asarray(each, float).ravel()[:, None] for each in found
    )
    var_above = var_above * (1 + 1e-9) + 1e-12
    var_below = var_below * (1 + 1e-9) + 1e-12
    middle = np.clip(above / np.maximum(below, np.sqrt(var_below)), low, high)
    spread = np.sqrt(var_above - 2 * middle * both + middle**2 * var_below) / np.maximum(
        below, np.sqrt(var_below)
    )
    begin, end = (
        np.maximum(low, middle - _RATIO_SPREADS * spread),
        np.minimum(high, middle + _RATIO_SPREADS * spread),
    )
    ratio = begin + (end - begin) * np.linspace(0, 1, _RATIO_POINTS)
    determinant = var_above * var_below - both**2
    # Along a ray (ratio, 1) times the denominator, the normal density is a normal one of the denominator.
    a = (ratio**2 * var_below - 2 * ratio * both + var_above) / determinant
    b = (
        ratio * (above * var_below - below * both) + below * var_above - above * both
    ) / determinant
    c = b / np.sqrt(a)
    # The integral of the denominator times its density, over positive denominators.
    log_tail = log_ndtr(c)
    log_density = (
        c**2 / 2
        + log_tail
        - np.log(a)
        + np.log(
            np.maximum(c + np.exp(-(c**2) / 2 - 0.5 * math.log(2 * math.pi) - log_tail), 1e-300)
        )
    )
    density = np.exp(log_density - log_density.max(axis=1, keepdims=True))
    mass = np.cumsum((density[:, 1:] + density[:, :-1]) / 2, axis=1)
    mass = np.column_stack([np.zeros(len(mass)), mass]) / mass[:, -1:]
    shape = np.shape(found.numerators)
    return Interval(*(np.reshape(each, shape) for each in _shortest(ratio, mass, level)))


def _shortest(values: Floats, mass: Floats, level: float) -> tuple[Floats, Floats, Floats]:
    medians, lows, highs = [], [], []
    for at, below in zip(values, mass, strict=True):
        starts = np.linspace(0, 1 - level, 201)
        low, high = np.interp(starts, below, at), np.interp(starts + level, below, at)
        best = np.argmin(high - low)
        lows.append(low[best])
        highs.append(high[best])
        medians.append(np.interp(0.5, below, at))
    return np.array(medians), np.array(lows), np.array(highs)

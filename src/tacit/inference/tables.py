"""Counts, histograms, cross-tables, means and quantiles from one noisy sum, and intervals that contain its noise.

What is computed from the rows are differences of counts, from which all counts follow. For levels they are orthonormal
contrasts; for numbers, at every node of a binary tree over bins, the count on the left less the count on the right. A
cross-table adds products of these. So every row adds a vector of the same length, a margin is asked once however many
tables have it, and all tables agree on it. How much noise an answer gets is chosen so that the requested numbers are
known best for the budget (Xiao, He, Zhang and Kifer 2023 for tables; Xiao, Wang and Gehrke 2011 for trees).
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
from scipy import linalg

from tacit._typing import Floats
from tacit.accounting import Budget, calibrate
from tacit.data.columns import MISSING_INTEGER, Kind
from tacit.errors import InvalidArgument
from tacit.inference.method import SumRelease
from tacit.models.base import Row
from tacit.privacy.mechanisms import NoisySums, Release
from tacit.privacy.trace import Step

MISSING_LABEL: Final = "missing"
# The names of the columns of a table, or of a margin of it.
Table = tuple[str, ...]
# The columns of a margin, each with how fine its bins are.
AskedMargin = tuple[tuple[str, int], ...]
# Of a column of numbers: the bins that are shown; their parts, for quantiles of groups; and the parts of these.
SHOWN, PARTS, FINEST = 0, 1, 2
_NUM_CUTS = {PARTS: 8, FINEST: 16}
_MAX_SHOWN_BINS = 10  # unless others are requested
_MAX_LISTED_VALUES = 12  # of a count that has so few, every value is shown
# How much ranks and sums matter beside counts, a column that is only in cross-tables beside the tables, and the
# number of rows or people beside a count.
_RANKS_AND_SUMS, _IMPLIED, _TOTAL = 0.5, 0.25, 0.1
_MAX_CELLS, _MAX_QUESTIONS = 2000, 2**17
# The most units that a sum can add up without wrapping around.
_BATCH_BOUND = 2**31
# A unit's vector is shorter than the clip by these shares, the second for each of its numbers: more than the lattice's margin
# cuts off (`privacy/clipping.py`), so that no unit is clipped and counts are not too small.
_CLIP_MARGIN, _CLIP_MARGIN_EACH = 2.0**-12, 2.0**-23


class Axis(NamedTuple):
    """One column of a table: its cells, the missing ones last, and what is counted of them.

    A row in a cell adds a line of ``added`` to the answers. ``groups`` are the questions that get the same noise, and
    ``sizes`` the squared length of what a row adds to each group. ``counts`` are the numbers of rows in the cells, as sums of
    the number of all rows and the answers. Parts of bins also have ``middles``, scaled values that stand for them, and, unless a
    part is a single value, a last question: by how many times ``reach`` values are from these middles, in sum.
    """

    added: Floats
    groups: NDArray[np.int64]
    sizes: Floats
    counts: Floats
    middles: Floats | None = None
    reach: float = 0.0

    @classmethod
    def of_levels(cls, size: int) -> "Axis":
        """The axis of a column with so many levels, the missing one included."""
        contrasts = linalg.helmert(size)
        counts = np.column_stack([np.full(size, 1 / size), contrasts.T])
        return cls(contrasts.T, np.zeros(size - 1, np.int64), np.array([1 - 1 / size]), counts)

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
        """The number of values below every edge, as sums of answers."""
        return np.vstack([np.zeros(self.counts.shape[1]), np.cumsum(self.counts[:-1], axis=0)])

    def importance(self, shown: "Axis") -> Floats:
        """How much the noise of each answer matters: mean squares of its coefficients in what will be computed.

        These are the counts of shown cells, ranks and the sum. Ranks and sums count in units of the least variance that they
        could have if nothing else was asked, which for a count is one.
        """
        found = np.zeros(1 + len(self.groups))
        found[: 1 + len(shown.groups)] = np.mean(shown.counts**2, axis=0)
        if self.middles is not None:
            shares = np.linspace(0, 1, len(self.middles) + 1)[1:, None]
            ranks = np.mean((self.below[1:] - shares * self.present) ** 2, axis=0)
            for squares in (ranks, self.sums**2):
                found += _RANKS_AND_SUMS * squares / self._least_variance(squares)
        return found

    def _least_variance(self, squares: Floats) -> float:
        """The least variance of what has these squared coefficients, for noise of variance one."""
        by_group = np.bincount(np.concatenate([[0], self.groups + 1]), squares)
        return float(np.sqrt(by_group * np.concatenate([[1.0], self.sizes])).sum() ** 2)


class Node(NamedTuple):
    """A node of a tree over bins: how fine its bins are, its depth among these, and, as places of edges, where its two halves lie."""

    level: int
    depth: int
    begin: int
    middle: int
    end: int


@dataclass(frozen=True)
class CountedColumn:
    """A column and its cells; everything public.

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
        """A column with the requested bins: their number, or the edges between them.

        Raises:
            InvalidArgument: If the column cannot be counted, or the bins are wrong.
        """
        if kind.shape:
            raise InvalidArgument(f"Column {name!r} holds arrays, so there is no table of it.")
        if kind.labels:
            if bins is not None:
                raise InvalidArgument(f"Column {name!r} has levels, so it takes no bins.")
            return cls(name, kind)
        shown = _shown_edges(name, kind, bins)
        parts = _cut(shown, _NUM_CUTS[PARTS], whole=_is_whole(kind))
        finest = _cut(parts, _NUM_CUTS[FINEST], whole=_is_whole(kind))
        return cls(name, kind, (shown, parts, finest))

    @property
    def is_number(self) -> bool:
        """Whether it has bins instead of levels."""
        return bool(self.edges)

    @property
    def is_whole(self) -> bool:
        """Whether its values are whole numbers."""
        return _is_whole(self.kind)

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """Names of the cells that are shown."""
        if not self.edges:
            return (*self.kind.labels, MISSING_LABEL)
        bins = itertools.pairwise(self.edges[SHOWN])
        return (*itertools.starmap(self._bin_label, bins), MISSING_LABEL)

    def _bin_label(self, low: float, high: float) -> str:
        if self.is_whole:
            first, last = math.ceil(low), math.floor(high)
            return f"{first}" if first == last else f"{first} to {last}"
        return f"{low:.6g} to {high:.6g}"

    @property
    def inner_edges(self) -> list[float]:
        """The edges between the bins that are shown, as `build` takes them."""
        return [edge + (0.5 if self.is_whole else 0.0) for edge in self.edges[SHOWN][1:-1]]

    @property
    def scale(self) -> tuple[float, float]:
        """The middle of the bins, and half of their whole width: scaled values are within -1 and 1."""
        low, high = self.edges[SHOWN][0], self.edges[SHOWN][-1]
        return (low + high) / 2, (high - low) / 2

    @cached_property
    def axes(self) -> tuple[Axis, ...]:
        """The axis of the cells that are shown; of a number, also those of its two kinds of parts."""
        if not self.edges:
            return (Axis.of_levels(len(self.labels)),)
        finest = self._bin_axis(FINEST, None)
        return self._bin_axis(SHOWN, finest), self._bin_axis(PARTS, finest), finest

    @cached_property
    def tree(self) -> tuple[Node, ...]:
        """The nodes, those of shown bins first; places are those of the finest edges."""
        places = [np.searchsorted(self.edges[FINEST], edges) for edges in self.edges]
        nodes: list[Node] = []

        def split(level: int, depth: int, first: int, last: int) -> None:
            """Splits what lies between two edges of a level, and then each of its bins by the next level."""
            own = places[level]
            if last - first > 1:
                middle = (first + last + 1) // 2
                nodes.append(Node(level, depth, *map(int, own[[first, middle, last]])))
                split(level, depth + 1, first, middle)
                split(level, depth + 1, middle, last)
            elif level < FINEST:
                split(
                    level + 1, 0, *map(int, np.searchsorted(places[level + 1], own[[first, last]]))
                )

        split(SHOWN, 0, 0, len(places[SHOWN]) - 1)
        return tuple(sorted(nodes))

    def bins_at(self, level: int) -> NDArray[np.int64]:
        """For each of the finest bins, the bin of a level that it lies in."""
        finest = np.array(self.edges[FINEST])
        return np.asarray(np.searchsorted(self.edges[level], (finest[1:] + finest[:-1]) / 2) - 1)

    def _bin_axis(self, level: int, finest: Axis | None) -> Axis:
        """Questions: whether there is a value; which half of each node it is in; and, of parts, how far from their middles it is."""
        nodes = [node for node in self.tree if node.level <= level]
        edges = np.array(self.edges[level])
        starts = np.searchsorted(self.edges[FINEST], edges[:-1])
        added = np.zeros((len(edges), 1 + len(nodes)))
        added[:, 0] = [*np.ones(len(starts)), -1.0]
        for place, (_, _, begin, middle, end) in enumerate(nodes, 1):
            added[:-1, place] = ((begin <= starts) & (starts < middle)) * 1.0
            added[:-1, place] -= (middle <= starts) & (starts < end)
        kinds = [None, *((node.level, node.depth) for node in nodes)]
        order = {kind: place for place, kind in enumerate(dict.fromkeys(kinds))}
        groups = [order[kind] for kind in kinds]
        counts = self._counts_by_tree(level, nodes)
        if level == SHOWN:
            return Axis(added, np.array(groups), np.ones(len(order)), counts)
        centre, half = self.scale
        scaled = (edges - centre) / half
        if finest is None or finest.middles is None:
            middles = (scaled[1:] + scaled[:-1]) / 2
        else:  # by the tree's halves: then a distance from a middle does not depend on how many are in the bin
            whole = np.column_stack([np.ones(len(edges)), added])
            middles = (finest.middles @ finest.counts[:-1, : whole.shape[1]] @ whole.T)[:-1]
        inset = 0.5 / half if self.is_whole else 0.0
        reach = float(np.max([scaled[1:] - inset - middles, middles - scaled[:-1] - inset]))
        if reach < 1e-9:  # every bin is a single value
            return Axis(added, np.array(groups), np.ones(len(order)), counts, middles)
        added, counts = (np.column_stack([each, np.zeros(len(each))]) for each in (added, counts))
        sizes = np.ones(len(order) + 1)
        return Axis(added, np.array([*groups, len(order)]), sizes, counts, middles, reach)

    def _counts_by_tree(self, level: int, nodes: Sequence[Node]) -> Floats:
        """Counts of the bins of a level, as sums of the number of all rows and the answers: half of a node, and half of its answer."""
        units = np.eye(2 + len(nodes)) / 2
        last = len(self.edges[FINEST]) - 1
        found = {(0, last): units[0] + units[1]}
        for place, (_, _, begin, middle, end) in enumerate(nodes, 2):
            whole = found[begin, end] / 2
            found[begin, middle], found[middle, end] = whole + units[place], whole - units[place]
        ends = map(int, np.searchsorted(self.edges[FINEST], self.edges[level]))
        return np.array([*(found[each] for each in itertools.pairwise(ends)), units[0] - units[1]])

    def lift(self, own: int, wanted: int) -> Floats:
        """Answers about bins of a level, as sums of the answers about finer bins."""
        parts, finer = self.axes[wanted], self.axes[own]
        found = np.eye(len(parts.groups), len(finer.groups))
        if wanted == own or parts.middles is None or finer.middles is None or not parts.reach:
            return found
        away = finer.middles - parts.middles[self.bins_at(wanted)]
        found[-1] = (away @ finer.counts[:-1])[1:] / parts.reach
        found[-1, : len(parts.groups) - 1] = 0.0  # but for rounding
        if finer.reach:
            found[-1, -1] = finer.reach / parts.reach
        return found


def _is_whole(kind: Kind) -> bool:
    return not kind.labels and kind.dtype == np.int32


def _shown_edges(name: str, kind: Kind, bins: object) -> tuple[float, ...]:
    """Edges of the bins that are shown; those of whole numbers lie halfway between two."""
    whole, shift = _is_whole(kind), 0.5 if _is_whole(kind) else 0.0
    inner: Floats | None = None
    if bins is None and whole and kind.high - kind.low < _MAX_LISTED_VALUES:
        inner = np.arange(kind.low + 1, kind.high + 1)
    elif bins is None:
        inner = _round_edges(kind.low, kind.high, whole=whole)
    elif isinstance(bins, int) and not isinstance(bins, bool):
        inner = np.linspace(kind.low, kind.high + 2 * shift, max(bins, 0) + 1)[1:-1]
        inner = np.unique(np.ceil(inner)) if whole else inner
    elif isinstance(bins, Sequence | np.ndarray) and not isinstance(bins, str):
        try:
            inner = np.array([float(each) for each in bins])
            inner = inner[(inner != kind.low) & (inner != kind.high)]
        except (TypeError, ValueError):
            inner = None
    if inner is not None and not (whole and (inner % 1).any()):
        edges = np.array([kind.low - shift, *(inner - shift), kind.high + shift])
        if 3 <= len(edges) <= 201 and (np.diff(edges) > 0).all():
            return tuple(edges.tolist())
    raise InvalidArgument(
        f"bins of {name!r} must be their number, from 2 to 200, or increasing edges between {kind.low:g} and "
        f"{kind.high:g}{', whole numbers' if whole else ''}; got {bins!r}."
    )


def _round_edges(low: float, high: float, *, whole: bool) -> Floats:
    """Round numbers between two bounds, as edges of about ten bins at most."""
    least = (high - low) / _MAX_SHOWN_BINS
    power = 10.0 ** math.floor(math.log10(least))
    step = next(power * each for each in (1, 2, 5, 10) if power * each >= least * (1 - 1e-9))
    step = max(step, 1.0) if whole else step
    inner = np.arange(math.floor(low / step) + 1, math.ceil(high / step)) * step
    # A narrow bin at an end is joined to the next one.
    return np.array([each for each in inner if min(each - low, high - each) >= step / 2])


def _cut(edges: tuple[float, ...], parts: int, *, whole: bool) -> tuple[float, ...]:
    """Edges of equal parts of all bins; parts of whole numbers hold one or more of them."""
    found: list[float] = []
    for low, high in itertools.pairwise(edges):
        inside = np.linspace(low, high, parts + 1)[:-1]
        found += (np.unique(np.floor(inside - 0.5)) + 0.5 if whole else inside).tolist()
    return (*found, edges[-1])


@dataclass(frozen=True)
class TableRelease(SumRelease):
    """What one release of tables asks, all of it public.

    Args:
        columns: The columns of the tables.
        tables: The tables, each the names of its columns.
        rows_per_unit: The largest number of rows of a unit.
        count_rows: Whether every row of a person counts as one. Otherwise a person does, and the person's rows share it.
    """

    columns: tuple[CountedColumn, ...]
    tables: tuple[Table, ...]
    rows_per_unit: int = 1
    count_rows: bool = False

    def __post_init__(self) -> None:
        cells = sum(math.prod(len(self.column(n).labels) for n in each) for each in self.tables)
        if cells > _MAX_CELLS or self.dimension > _MAX_QUESTIONS:
            raise InvalidArgument(
                f"The tables have {cells:,} cells. One release takes {_MAX_CELLS:,} at most, and fewer if columns of "
                "numbers are crossed with many levels; ask for fewer or smaller tables."
            )

    def column(self, name: str) -> CountedColumn:
        """A column by its name."""
        return next(each for each in self.columns if each.name == name)

    @cached_property
    def all_tables(self) -> tuple[Table, ...]:
        """The tables, and each column by itself; names in alphabetical order."""
        asked = [*((each.name,) for each in self.columns), *map(sorted_table, self.tables)]
        return tuple(dict.fromkeys(asked))

    def level(self, name: str, table: Table) -> int:
        """How fine the bins of a column are in a table: finest alone, parts if no other column has bins."""
        numbers = sum(self.column(each).is_number for each in table)
        if not self.column(name).is_number or numbers > 1:
            return SHOWN
        return FINEST if len(table) == 1 else PARTS

    def asked(self, part: Table) -> AskedMargin:
        """A margin as it is asked: as fine as a table needs it."""
        above = [each for each in self.all_tables if set(part) <= set(each)]
        needed = (part, *above) if len(part) == 1 else above
        return tuple((name, max(self.level(name, each) for each in needed)) for name in part)

    @cached_property
    def parts(self) -> tuple[Table, ...]:
        """All margins of all tables, in the order in which they are asked; the first is the whole."""
        found = {part for table in self.all_tables for part in margins(table)}
        return tuple(sorted(found, key=self.asked))

    def axes(self, part: Table) -> list[Axis]:
        """The axes of a margin as it is asked."""
        return [self.column(name).axes[level] for name, level in self.asked(part)]

    def shape(self, part: Table) -> tuple[int, ...]:
        """How many questions there are about a margin, along each of its columns."""
        if (
            not part
        ):  # how many there are; and how many rows people have, or how many people there are
            return (1 if self.rows_per_unit == 1 else 2,)
        return tuple(len(axis.groups) for axis in self.axes(part))

    @cached_property
    def dimension(self) -> int:
        """How many numbers are released."""
        return sum(math.prod(self.shape(part)) for part in self.parts)

    @cached_property
    def weights(self) -> dict[Table, Floats]:
        """What each answer is multiplied with, so that the vector of a row has length one or, for missing values, less.

        By Cauchy and Schwarz the sum of V / w^2 over groups of questions is least, given the sum of p w^2, for w^2 in
        proportion to the root of V / p. V is the importance of a group, and p the squared length that a row adds to it.
        """
        roots, total = {}, 0.0
        for part, needed in self._importance().items():
            if not part:
                roots[part] = np.sqrt(needed)
                total += float(roots[part].sum())
                continue
            axes = self.axes(part)
            members = [np.equal.outer(np.arange(len(axis.sizes)), axis.groups) for axis in axes]
            sizes = np.sqrt(_outer([axis.sizes for axis in axes]))
            by_group = np.sqrt(contract(needed, members))
            total += float((by_group * sizes).sum())
            roots[part] = (by_group / sizes)[np.ix_(*(axis.groups for axis in axes))]
        return {part: np.sqrt(root / total) for part, root in roots.items()}

    def _importance(self) -> dict[Table, Floats]:
        """How much the noise of each answer matters, over all tables."""
        found = {part: np.zeros(self.shape(part)) for part in self.parts}
        found[()][:] = _TOTAL
        for table in self.all_tables:
            own = {}
            for name in table:
                column = self.column(name)
                own[name] = column.axes[self.level(name, table)].importance(column.axes[SHOWN])
            own[table[0]] *= 1.0 if table in map(sorted_table, self.tables) else _IMPLIED
            for part in margins(table):
                rest = math.prod(own[name][0] for name in table if name not in part)
                if not part:
                    found[part][0] += rest
                    continue
                lifts = [
                    self.column(n).lift(asked, self.level(n, table))
                    for n, asked in self.asked(part)
                ]
                squares = [own[n][1:] @ lift**2 for n, lift in zip(part, lifts, strict=True)]
                found[part] += rest * _outer(squares)
        return found

    def calibrate(self, budget: Budget) -> NoisySums:
        """One noisy sum, with the noise that a budget asks for."""
        return NoisySums(
            sampling_rate=1.0,
            num_steps=1,
            clip=1.0 + _CLIP_MARGIN + self.dimension * _CLIP_MARGIN_EACH,
            noise_multiplier=calibrate.noise_multiplier(budget, num_steps=1),
            dimension=self.dimension,
            batch_bound=_BATCH_BOUND,
        )

    def question(self) -> "Question":
        """What the release is given, as arrays."""
        return Question(
            {each.name: Lookup.build(each) for each in self.columns},
            {self.asked(p): jnp.asarray(w, jnp.float32) for p, w in self.weights.items()},
            jnp.float32(self.rows_per_unit if self.count_rows else 0),
        )

    @property
    def step(self) -> Step:
        """The step that releases the sum."""
        return _step


def sorted_table(table: Iterable[str]) -> Table:
    """A table with its columns in alphabetical order."""
    return tuple(sorted(table))


def margins(table: Table) -> Iterable[Table]:
    """All margins of a table, the whole first and the table itself last."""
    sizes = range(len(table) + 1)
    return itertools.chain.from_iterable(itertools.combinations(table, size) for size in sizes)


def _outer(vectors: Sequence[Floats]) -> Floats:
    """The outer product of vectors, as a tensor."""
    found = np.ones(())
    for each in vectors:
        found = np.multiply.outer(found, each)
    return np.asarray(found)


def contract(tensor: Floats, matrices: Sequence[Floats]) -> Floats:
    """A tensor, multiplied along each of its axes with the rows of a matrix."""
    found = tensor
    for (
        each
    ) in matrices:  # the first axis becomes the last, so that their order is the same in the end
        found = np.tensordot(found, each, axes=(0, 1))
    return found


class Lookup(NamedTuple):
    """A column as arrays. Of a number: inner edges of its finest bins, and the middle and half the width of all.

    ``added`` is what a row in each of the finest cells adds, by how fine bins are. ``middles`` are the scaled values that
    stand for bins and their reach, where distances from them are requested.
    """

    edges: jax.Array | None
    scale: jax.Array | None
    added: tuple[jax.Array, ...]
    middles: tuple[tuple[jax.Array, jax.Array] | None, ...]

    @classmethod
    def build(cls, column: CountedColumn) -> "Lookup":
        """The arrays of a column."""
        if not column.is_number:
            return cls(None, None, (jnp.asarray(column.axes[0].added, jnp.float32),), (None,))
        added: list[jax.Array] = []
        middles: list[tuple[jax.Array, jax.Array] | None] = []
        for level, axis in enumerate(column.axes):
            bins = column.bins_at(level)
            asked = axis.added[:, :-1] if axis.reach else axis.added
            added.append(jnp.asarray(asked[[*bins, -1]], jnp.float32))
            own = None if axis.middles is None else np.array([*axis.middles[bins], 0.0], np.float32)
            middles.append(None if not axis.reach else (jnp.asarray(own), jnp.float32(axis.reach)))
        edges = jnp.asarray(column.edges[FINEST][1:-1], jnp.float32)
        return cls(edges, jnp.asarray(column.scale, jnp.float32), tuple(added), tuple(middles))

    def answers(self, values: jax.Array) -> list[jax.Array]:
        """What each row adds to the questions about the column, by how fine bins are: [rows, questions]."""
        if self.edges is None or self.scale is None:
            return [self.added[0][jnp.where(values < 0, len(self.added[0]) - 1, values)]]
        is_float = jnp.issubdtype(values.dtype, jnp.floating)
        missing = jnp.isnan(values) if is_float else values == MISSING_INTEGER
        cell = jnp.where(missing, len(self.edges) + 1, (values[:, None] >= self.edges).sum(axis=1))
        scaled = (values - self.scale[0]) / self.scale[1]
        found = []
        for added, middles in zip(self.added, self.middles, strict=True):
            own = added[cell]
            if middles is not None:
                away = jnp.clip((scaled - middles[0][cell]) / middles[1], -1, 1)
                own = jnp.column_stack([own, jnp.where(missing, 0.0, away)])
            found.append(own)
        return found


class Question(NamedTuple):
    """All that a unit's contribution depends on beside its rows.

    ``most_rows`` is the largest number of rows of a unit if each of them counts, and zero if the unit counts as one.
    """

    columns: Mapping[str, Lookup]
    weights: Mapping[AskedMargin, jax.Array]
    most_rows: jax.Array


def contribution(question: Question, rows: Row, present: jax.Array) -> jax.Array:
    """What one unit adds: a vector of length at most one, whatever its rows hold. [tables-unit]"""
    every_row, number = question.most_rows > 0, present.sum()
    share = present / jnp.where(every_row, question.most_rows, jnp.maximum(number, 1))
    answers = {name: lookup.answers(rows[name]) for name, lookup in question.columns.items()}
    found = []
    for margin, weights in question.weights.items():
        if margin:
            product = share[:, None]
            for name, level in margin:
                product = product[:, :, None] * answers[name][level][:, None, :]
                product = product.reshape(len(share), -1)
            total = product.sum(axis=0)
        else:
            others = jnp.where(every_row, present.any(), number / len(present))
            total = jnp.stack([share.sum(), others])[: len(weights)]
        found.append(total * weights.ravel())
    return jnp.concatenate(found)


def _step(state: Question, _: jax.Array, release: Release) -> tuple[Question, jax.Array]:
    return state, release.noisy_sum(contribution, state)

"""Whether a fitted model describes the rows: residuals of all units in one noisy sum, and tests that contain its noise.

Everything follows from where a row's outcome lies in the distribution that the model gives it: between the probability
a of a lower outcome and the probability b of this or a lower one. If the model is right, a number drawn uniformly
between a and b is uniform from 0 to 1, whatever the row's other columns are. So each statistic below has mean zero
given these columns, and is bounded:

- the share of rows in each of twelve bins of that uniform number;
- the residual a + b - 1, which for a binary outcome is its value less its probability (the probability-scale residual
  of Li and Shepherd 2012), in bins of a column, in bins of the prediction, and crossed over two columns;
- dispersion: the mean of (3 (2u - 1)^2 - 1) / 2 between a and b, the second Legendre polynomial;
- tails: how much of the interval from a to b is in the outer 1%, less 1%.

A posterior is a little off the true parameters, by noise or because it was fitted to these very rows. That moves the
sums along the columns of D, the sum over units of statistic times score. D is released with them, and what lies along
its columns hardly counts in the tests. How far off the posterior is, and how much of that follows from these rows, is seen
from its covariance and from the information J, the sum over units of score times score, which is released too.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.linalg import helmert, null_space
from scipy.stats import chi2

from tacit._typing import ArrayTree, Floats
from tacit.accounting import Budget, calibrate
from tacit.inference.method import SumRelease
from tacit.inference.score_contributions import score_function
from tacit.models.base import Row, UnitModel
from tacit.privacy.mechanisms import NoisySums, Release
from tacit.privacy.trace import Step

# Edges of the bins of the uniform number: narrow ones at the ends, where outliers are.
PIT_EDGES = (0.0, 0.005, 0.05, *(round(0.1 * k, 1) for k in range(1, 10)), 0.95, 0.995, 1.0)
TAIL = PIT_EDGES[1]
# How much longer second moments and products with scores would be without these weights, and counts of rows.
_PART_WEIGHT = 0.5
# The most units that a sum can add up without wrapping around, and by how much a unit's vector is shorter than the clip.
_BATCH_BOUND, _CLIP_MARGIN = 2**31, 2.0**-12
# How many posterior standard deviations along D hardly count, and the most parameters whose information is asked.
_DISCOUNT, _MOST_INFORMED = 5.0, 64
# The part of what the posterior follows from the rows that is relied on, as scores that are cut show too little information.
_RESPONSE_SHARE = 0.85
# Draws for p-values, and the least share of them that is a p-value.
_NUM_NORMALS, _LEAST_SHARE = 2**15, 0.01


@dataclass(frozen=True)
class BinnedColumn:
    """A column, or the model's prediction, in bins. All of it is public.

    Args:
        name: The name.
        labels: Names of the bins.
        edges: The inner edges of a number's bins, on the scale of encoded values; empty for levels.
        bins: For each level, its bin; empty for numbers.
        groups: For each bin, the wider bin in which it is crossed with other columns.
    """

    name: str
    labels: tuple[str, ...]
    edges: tuple[float, ...] = ()
    bins: tuple[int, ...] = ()
    groups: tuple[int, ...] = ()

    @property
    def group_labels(self) -> tuple[str, ...]:
        """Names of the wider bins."""
        found: dict[int, list[str]] = {}
        for group, label in zip(self.groups, self.labels, strict=True):
            found.setdefault(group, []).append(label)
        return tuple(self._joined(each) for each in found.values())

    def _joined(self, labels: list[str]) -> str:
        """One name for several bins beside each other."""
        if len(labels) == 1 or not self.edges:
            return " or ".join(labels)
        return f"{labels[0].split(' to ')[0]} to {labels[-1].split(' to ')[-1]}"


@dataclass(frozen=True)
class Family:
    """Questions that are tested together.

    Args:
        kind: ``"pit"``, ``"dispersion"``, ``"tails"``, ``"calibration"``, ``"column"`` or ``"pair"``.
        names: The columns, if any.
        size: How many numbers are asked.
        cells: How many cells their second moments are in.
        squared: The largest squared norm of what a row adds to the questions.
        counted: Whether rows are counted in each cell.
    """

    kind: str
    names: tuple[str, ...]
    size: int
    cells: int
    squared: float
    counted: bool = False


class Question(NamedTuple):
    """What a unit's vector depends on beside its rows. All of it is public.

    ``to_score`` maps a unit's gradient to a score of about length one. ``edges`` and ``bins`` are those of columns, and
    ``prediction`` the edges of bins of the prediction.
    """

    theta: jax.Array
    to_score: jax.Array
    edges: Mapping[str, jax.Array]
    bins: Mapping[str, jax.Array]
    prediction: jax.Array
    constants: ArrayTree


@dataclass(frozen=True)
class CheckRelease(SumRelease):
    """What a check asks. All of it is public.

    Args:
        model: The model.
        theta: The posterior mean on the unconstrained scale.
        to_score: Maps a gradient to a score of about length one: the root of the posterior covariance, over `reach`.
        reach: The length of a unit's score, in posterior standard deviations, that counts as one.
        columns: The columns.
        pairs: Pairs of columns that are crossed.
        prediction: The bins of the prediction.
        has_shape: Whether outcomes have more than two values, so that there is more to check than their mean.
        has_tails: Whether outcomes may be far out.
    """

    model: UnitModel
    theta: Floats
    to_score: Floats
    reach: float
    columns: tuple[BinnedColumn, ...]
    pairs: tuple[tuple[str, str], ...]
    prediction: BinnedColumn
    has_shape: bool = True
    has_tails: bool = True

    def column(self, name: str) -> BinnedColumn:
        """A column by its name."""
        return next(each for each in self.columns if each.name == name)

    @cached_property
    def families(self) -> tuple[Family, ...]:
        """All families of questions, in the order in which they are asked."""
        bins = len(PIT_EDGES) - 1
        found = [Family("pit", (), bins, 0, 1.0)] if self.has_shape else []
        found += [Family("dispersion", (), 1, 1, 1.0)] if self.has_shape else []
        found += [Family("tails", (), 1, 1, 1.0)] if self.has_tails else []
        size = len(self.prediction.labels)
        found += [Family("calibration", (), size, size, 1.0, True)] if size > 1 else []
        for each in self.columns:
            size = len(each.labels)
            found.append(Family("column", (each.name,), size, size, 1.0, True))
        for pair in self.pairs:
            sizes = [len(self.column(name).group_labels) for name in pair]
            squared = math.prod(1 - 1 / each for each in sizes)
            asked = math.prod(each - 1 for each in sizes)
            found.append(Family("pair", pair, asked, math.prod(sizes), squared))
        return tuple(found)

    @property
    def num_scores(self) -> int:
        """How many directions scores have."""
        return len(self.to_score)

    @property
    def num_informed(self) -> int:
        """How many directions the information is asked of: all, or none."""
        return self.num_scores if self.num_scores <= _MOST_INFORMED else 0

    @property
    def dimension(self) -> int:
        """How many numbers are released."""
        per = 1 + self.num_scores
        return (
            2
            + self.num_informed**2
            + sum(f.size * per + f.cells * (1 + f.counted) for f in self.families)
        )

    @property
    def clip(self) -> float:
        """The norm of a unit's vector, at most. [check-unit]"""
        square = _PART_WEIGHT**2
        each = (
            f.squared * (1 + square) + square * bool(f.cells) + square * f.counted
            for f in self.families
        )
        return math.sqrt((2 + bool(self.num_informed)) * square + sum(each)) * (1 + _CLIP_MARGIN)

    def calibrate(self, budget: Budget) -> NoisySums:
        """One noisy sum, with the noise that a budget asks for."""
        return NoisySums(
            sampling_rate=1.0,
            num_steps=1,
            clip=self.clip,
            noise_multiplier=calibrate.noise_multiplier(budget, num_steps=1),
            dimension=self.dimension,
            batch_bound=_BATCH_BOUND,
            secrets=True,
        )

    def question(self) -> Question:
        """What the release is given, as arrays."""
        own = self.columns
        return Question(
            jnp.asarray(self.theta, jnp.float32),
            jnp.asarray(self.to_score, jnp.float32),
            {each.name: jnp.asarray(each.edges, jnp.float32) for each in own if each.edges},
            {each.name: jnp.asarray(each.bins, jnp.int32) for each in own if each.bins},
            jnp.asarray(self.prediction.edges, jnp.float32),
            jax.tree.map(jnp.asarray, self.model.constants),
        )

    @property
    def layout(self) -> "Layout":
        """What a program of the release depends on."""
        return Layout(
            self.families,
            bool(self.num_informed),
            tuple((each.name, each.groups) for each in self.columns),
        )

    @property
    def step(self) -> Step:
        """The step that releases the sums."""
        return _check_step(self.model, self.layout)

    def found(self, released: Floats, noise: float) -> "CheckSums":
        """The released vector, taken apart, with the noise that its numbers have.

        Args:
            released: The noisy sum.
            noise: The standard deviation of the noise in every number.
        """
        count, inverse = released[:2] / _PART_WEIGHT
        at, parts = 2 + self.num_informed**2, {}
        products = released[2:at].reshape(self.num_informed, self.num_informed) / _PART_WEIGHT
        for family in self.families:
            pieces = []
            for length in (
                family.size,
                family.size * self.num_scores,
                family.cells,
                family.cells * family.counted,
            ):
                pieces.append(released[at : at + length])
                at += length
            own, by_score, squares, counts = pieces
            parts[family] = FamilySums(
                own,
                by_score.reshape(family.size, self.num_scores) / _PART_WEIGHT,
                np.maximum(squares / _PART_WEIGHT, 0.0),
                counts / _PART_WEIGHT,
            )
        return CheckSums(
            self, float(count), float(max(inverse, 0.0)), (products + products.T) / 2, parts, noise
        )


@dataclass(frozen=True)
class Layout:
    """The families of a check, whether the information is asked, and in which wider bins columns are crossed."""

    families: tuple[Family, ...]
    has_information: bool
    groups: tuple[tuple[str, tuple[int, ...]], ...]


@lru_cache(maxsize=16)
def _check_step(model: UnitModel, layout: Layout) -> Step:
    vector = unit_vector(model, layout)

    def step(state: Question, _: jax.Array, release: Release) -> tuple[Question, jax.Array]:
        return state, release.noisy_sum(vector, state)

    return step


def unit_vector(
    model: UnitModel, layout: Layout
) -> Callable[[Question, Row, jax.Array, jax.Array], jax.Array]:
    """What one unit adds: a vector that is no longer than `CheckRelease.clip`, whatever its rows hold. [check-unit]

    Of several rows it is the mean. If they share an effect, one of them counts, drawn by the unit's secret bits, as their
    outcomes are not independent.
    """
    groups = dict(layout.groups)
    place = model.place
    assert place is not None

    def vector(question: Question, rows: Row, present: jax.Array, secret: jax.Array) -> jax.Array:
        theta, constants = question.theta, question.constants
        key = jax.random.fold_in(
            jax.random.fold_in(jax.random.key(0, impl="threefry2x32"), secret[0]), secret[1]
        )
        uniform, order = jax.random.uniform(key, (2, len(present)))
        at = jax.vmap(lambda row: place(theta, row, constants))(dict(rows))
        known = jnp.isfinite(at.below) & jnp.isfinite(at.until) & jnp.isfinite(at.predicted)
        usable = present & known
        low = jnp.clip(jnp.where(usable, at.below, 0.0), 0.0, 1.0)
        placed = _Placed(
            low, jnp.clip(jnp.where(usable, at.until, 1.0), low, 1.0), at.predicted, uniform
        )
        if model.has_person_effects:
            first = jnp.argmax(jnp.where(usable, order, -1.0))
            usable = usable & (jnp.arange(len(present)) == first)
        share = usable / jnp.maximum(usable.sum(), 1)
        gradient = score_function(model)(theta, None, rows, present, constants)
        score = question.to_score @ jnp.where(jnp.isfinite(gradient), gradient, 0.0)
        score = usable.any() * score / jnp.maximum(jnp.linalg.norm(score), 1.0)
        found = [
            _PART_WEIGHT * usable.any()[None],
            _PART_WEIGHT * (usable.any() / jnp.maximum(usable.sum(), 1))[None],
        ]
        if layout.has_information:
            found.append(_PART_WEIGHT * jnp.outer(score, score).ravel())
        for family in layout.families:
            each, inside, here = _row_answers(family, groups, question, rows, placed)
            own = share @ each
            found += [own, _PART_WEIGHT * (own[:, None] * score).ravel()]
            if inside is not None:
                found.append(_PART_WEIGHT * (share @ inside) ** 2)
            if here is not None:
                found.append(_PART_WEIGHT * (share @ here))
        return jnp.concatenate(found)

    return vector


class _Placed(NamedTuple):
    """Where the outcomes of a unit's rows lie, what is predicted of them, and uniform numbers."""

    low: jax.Array
    high: jax.Array
    predicted: jax.Array
    uniform: jax.Array


def _row_answers(
    family: Family,
    groups: Mapping[str, tuple[int, ...]],
    question: Question,
    rows: Row,
    placed: _Placed,
) -> tuple[jax.Array, jax.Array | None, jax.Array | None]:
    """What each row adds to a family: its questions; what second moments are taken of; and which cell it is in, if that is counted."""
    low, high, predicted, uniform = placed
    residual = (low + high - 1)[:, None]

    def bins_of(name: str) -> jax.Array:
        values = rows[name]
        if name in question.bins:
            known = question.bins[name]
            return known[jnp.clip(values, 0, len(known) - 1)]
        return (values[:, None] >= question.edges[name]).sum(axis=1)

    if family.kind == "pit":
        at = (low + uniform * (high - low))[:, None] >= jnp.asarray(PIT_EDGES[1:-1])
        return jax.nn.one_hot(at.sum(axis=1), family.size), None, None
    if family.kind == "dispersion":
        each = _dispersion(low, high)[:, None]
        return each, each, None
    if family.kind == "tails":
        each = (_tail_share(low, high) - 2 * TAIL)[:, None]
        return each, each, None
    if family.kind == "pair":
        wide = [jnp.asarray(groups[name])[bins_of(name)] for name in family.names]
        sizes = [max(groups[name]) + 1 for name in family.names]
        first, last = (
            jnp.asarray(helmert(size).T, jnp.float32)[codes]
            for size, codes in zip(sizes, wide, strict=True)
        )
        product = (first[:, :, None] * last[:, None, :]).reshape(len(low), family.size)
        cell = jax.nn.one_hot(wide[0] * sizes[1] + wide[1], family.cells)
        return product * residual, cell * residual, None
    if family.names:
        places = bins_of(family.names[0])
    else:
        places = (predicted[:, None] >= question.prediction).sum(axis=1)
    here = jax.nn.one_hot(places, family.cells)
    return here * residual, here * residual, here


def _dispersion(low: jax.Array, high: jax.Array) -> jax.Array:
    """The mean of (3 (2u - 1)^2 - 1) / 2 between two numbers: from -1/2 to 1."""
    first, last = 2 * low - 1, 2 * high - 1
    return (first**2 + first * last + last**2 - 1) / 2


def _tail_share(low: jax.Array, high: jax.Array) -> jax.Array:
    """How much of the interval between two numbers is in the outer 1%."""
    width = high - low
    left = jnp.clip(jnp.minimum(high, TAIL) - low, 0.0, None)
    right = jnp.clip(high - jnp.maximum(low, 1 - TAIL), 0.0, None)
    middle = (low + high) / 2
    at = ((middle < TAIL) | (middle > 1 - TAIL)) * 1.0
    return jnp.where(width > 1e-6, (left + right) / jnp.maximum(width, 1e-6), at)


class FamilySums(NamedTuple):
    """What was released of a family: its sums, their products with scores, second moments and counts by cell."""

    sums: Floats
    by_score: Floats
    squares: Floats
    counts: Floats


class Test(NamedTuple):
    """A test of a family: its p-value, and the logarithm of that, which does not vanish."""

    p: float
    log_p: float


@dataclass(frozen=True)
class CheckSums:
    """What a check released, and what follows.

    Args:
        release: What was asked.
        count: The number of units, noisy.
        inverse: The sum over units of one over their number of rows, noisy.
        products: The sum over units of score times score, noisy; empty if there are many parameters.
        parts: The sums of each family.
        noise: The standard deviation of the noise in every number.
    """

    release: CheckRelease
    count: float
    inverse: float
    products: Floats
    parts: Mapping[Family, FamilySums]
    noise: float

    def contrasts(self, family: Family) -> Floats:
        """The matrix that maps released numbers to those that have mean zero."""
        if family.kind != "pit":
            return np.eye(family.size)
        return np.asarray(null_space(np.diff(PIT_EDGES)[None]).T)

    def covariance(self, family: Family) -> Floats:
        """The covariance of a family's numbers at the true parameters: by the choice of rows, and the noise."""
        sums = self.parts[family]
        if family.kind == "pit":
            rows = np.diag(np.diff(PIT_EDGES)) * self.inverse
        elif family.kind == "pair":
            sizes = [len(self.release.column(name).group_labels) for name in family.names]
            crossed = np.kron(*(helmert(each) for each in sizes))
            rows = crossed @ np.diag(sums.squares) @ crossed.T
        else:
            rows = np.diag(sums.squares)
        by = self.contrasts(family)
        return np.asarray(by @ (rows + self.noise**2 * np.eye(family.size)) @ by.T)

    @property
    def count_noise(self) -> float:
        """The standard deviation of the noise in the number of units."""
        return self.noise / _PART_WEIGHT

    @cached_property
    def response(self) -> Floats:
        """By how much the posterior mean follows the rows' scores, in units of the posterior's own covariance: at most one.

        Without noise that is one, whatever the prior is. With noise it is the inverse of the information.
        """
        if not len(self.products):
            return np.eye(self.release.num_scores) / 2
        values, vectors = np.linalg.eigh(self.products * self.release.reach**2)
        return np.asarray((vectors / np.maximum(values, 1.0)) @ vectors.T)

    def shift(self, family: Family, by_mean: Floats | None = None) -> Floats:
        """What is added to a family's covariance if posterior means differ from the truth by this, in posterior sds.

        The noise in D is taken out on average.
        """
        by = self.contrasts(family)
        off = np.eye(self.release.num_scores) if by_mean is None else by_mean
        along = by @ self.parts[family].by_score * self.release.reach
        noisy = (self.noise / _PART_WEIGHT * self.release.reach) ** 2 * float(np.trace(off))
        return np.asarray(along @ off @ along.T - noisy * np.eye(len(by)))

    def expected(self, family: Family) -> Floats:
        """The covariance of a family's numbers at the posterior mean, if the model is right."""
        own = self.covariance(family)
        off = np.eye(self.release.num_scores) - 2 * _RESPONSE_SHARE * self.response
        least = self.noise**2
        return _at_least(own + self.shift(family, off), least)

    def test(self, family: Family) -> Test:
        """Whether a family's numbers are further from zero than rows, noise and the posterior explain."""
        numbers = self.contrasts(family) @ self.parts[family].sums
        expected = self.expected(family)
        discounted = expected + _DISCOUNT**2 * _at_least(self.shift(family), 0.0)
        # Directions that are lost in rounding beside others say nothing.
        most = float(np.abs(np.diag(discounted)).max())
        discounted = _at_least(discounted, max(self.noise**2, 1e-9 * most))
        solved = np.linalg.solve(discounted, np.column_stack([numbers, expected]))
        statistic = float(numbers @ solved[:, 0])
        weights = np.linalg.eigvals(solved[:, 1:]).real
        log_p = _weighted_chi2_tail(weights, statistic)
        return Test(math.exp(log_p), log_p)

    def mean(self, family: Family) -> tuple[float, float]:
        """The mean over units of a family of one number, and its standard deviation."""
        spread = math.sqrt(float(self.expected(family)[0, 0]))
        count = max(self.count, 1.0)
        return float(self.parts[family].sums[0]) / count, spread / count

    def cell_means(self, family: Family) -> tuple[Floats, Floats]:
        """The mean residual in each cell, and its standard deviation under the model."""
        sums = self.parts[family]
        if family.kind == "pit":
            widths = np.diff(PIT_EDGES)
            total = max(float(sums.sums.sum()), 1.0)
            return sums.sums / total, np.sqrt(self.inverse * widths + self.noise**2) / total
        spread = np.sqrt(np.diag(self.expected(family)))
        counts = np.maximum(sums.counts, self.noise / _PART_WEIGHT)
        return sums.sums / counts, spread / counts


def _at_least(matrix: Floats, least: float) -> Floats:
    """A symmetric matrix whose eigenvalues are at least this."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    return np.asarray((vectors * np.maximum(values, least)) @ vectors.T)


def _weighted_chi2_tail(weights: Floats, value: float) -> float:
    """The log-probability that a weighted sum of squared normals is larger.

    By draws that are always the same ones; in the tail, which they do not reach, by three moments (Imhof 1961).
    """
    if len(weights) == 1:
        return float(chi2.logsf(value / weights[0], 1))
    share = float(np.mean(_squared_normals(len(weights)) @ weights > value))
    if share > _LEAST_SHARE:
        return math.log(share)
    first, second, third = (float((weights**k).sum()) for k in (1, 2, 3))
    degrees = second**3 / third**2
    at = degrees + (value - first) * math.sqrt(degrees / second)
    return float(chi2.logsf(max(at, 0.0), degrees))


@lru_cache(maxsize=16)
def _squared_normals(size: int) -> Floats:
    return np.random.default_rng(size).normal(size=(_NUM_NORMALS, size)) ** 2

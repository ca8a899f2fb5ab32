"""Rounds of private scoring: what to ask units for, and what follows from their noisy sums.

Nothing here sees a row. A round asks for the sums of `tacit.inference.scores` at a place, in a
metric. What comes back moves the place and the metric; the last rounds make the posterior. One
machine, several processes and several sites all add up the sums in their own way, and share this.

In a late round the sum of clipped scores is s = A (theta - place) + error, where theta is the true
vector, A the slope of the clipped score, and the error has the variance of sampling, of drawn
outcomes, and of the noise. A is a multiple of the curvature, which is released too, and so has noise
of its own. For each draw of the posterior A is drawn first, around what was seen by how noisy that
was; then theta, given A, of prior times likelihood.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from tacit.inference.curvature import (
    Array,
    Belief,
    Curvature,
    Release,
    merged,
    root_of,
    symmetric,
)
from tacit.inference.scores import MOST_CURVED, Sums, clipped

# Parts of the squared clip for score, curvature, diagonal, slope, informative units, excess,
# drawn lengths, extremes and the count: in the rounds that find out how large scores are, in the other early ones,
# which find the place and the metric, and in the late ones, which make the posterior.
SIZES_SHARES = (0.45, 0.0, 0.47, 0.03, 0.02, 0.015, 0.015, 0.0, 0.0)
EARLY_SHARES = (0.42, 0.50, 0.0, 0.03, 0.02, 0.015, 0.015, 0.0, 0.0)
LATE_SHARES = (0.62, 0.22, 0.04, 0.02, 0.01, 0.03, 0.01, 0.05, 0.0)
COUNT_SHARES = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0)
# Without the matrix of curvature its part is the diagonal's.
PLAIN_SHARES = (0.62, 0.0, 0.26, 0.02, 0.01, 0.03, 0.01, 0.05, 0.0)
SIZING_ROUNDS = 3
FEWEST = 50.0  # units, as far as the method is concerned
# Slopes are cut at these, in squared clips.
_STEEP, _STEEP_EACH = 2.0, 1.5
# The squared clip is the dimension, and more where noise is such a part of the sampling variance.
_NOISE_PART, _LOOSEST = 0.1, 25.0
# How much slopes change when the place moves by one row's standard deviation.
_BENDING = 0.3
# Slopes over curvature are those of simulated rows, to such a part; and how much slopes may differ
# from the curvature by direction.
_RATIO_SPREAD, _BY_DIRECTION = 0.12, 0.3
# How far one round may go, in standard deviations of a row.
_LONGEST = 1.0
# Least eigenvalues: of the metric beside its mean, beside the public curvature, and of slopes.
_LEAST, _LEAST_PUBLIC, _LEAST_SLOPE = 0.15, 0.01, 0.1
# What a design may be where it is not seen.
_DOUBT = 0.7
# Logarithms of sizes: what is not taken for a difference, the most of one round, and of all.
_SAME_SIZE, _MOST_RESIZED, _LEAST_SIZE, _LARGEST_SIZE = 0.7, 3.0, -6.0, 3.0
# Work that draws of the slope may take, in entries of matrices cubed.
_MOST_WORK = 2e8


class Asked(NamedTuple):
    """What a round asks units for; as in `tacit.inference.scores.Question`, but for the model.

    ``place`` and ``to_metric`` are in coordinates in which the prior is round.
    """

    place: Array
    to_metric: Array
    clip: float
    length: float
    steep: float
    steep_each: float
    sizes: float
    shares: Array


class Record(NamedTuple):
    """What a round left: where it was, in what metric, its score there and the score's noise."""

    place: Array
    root: Array
    score: Array
    variance: float
    sums: Sums
    late: bool


class Evidence(NamedTuple):
    """The likelihood for each draw of the slope: exp(pull (w - place) - (w - place) P (w - place) / 2).

    ``information`` is what one unit would tell without clip and noise, as far as is known.
    ``dispersion`` is how much longer own scores are than drawn ones, and ``extreme`` the share of units
    whose own score is extreme beyond what is drawn; each with the standard deviation of its noise, and
    the latter of chance too.
    """

    place: Array
    precision: Array  # [draws, size, size]
    pull: Array  # [draws, size]
    information: Array
    units: float
    dispersion: float
    dispersion_noise: float
    extreme: float
    extreme_noise: float
    flat: Array  # [size, directions of which no row can tell]


class Rounds:
    """The state of a fit between rounds. Follows from released values and public numbers only.

    Args:
        simulated: Gives scores of simulated rows at a place, [rows, outcomes, size], in coordinates
            in which the prior is round.
        places: Some places to look for directions of which no row can tell.
        noise: Standard deviation of the noise in each round's sums, over the units that it looks at;
            the first counts the units.
        early: How many of the rounds after the first find the place and the metric.
        outcomes: Number of outcomes that are drawn for each unit.
        rate: The part of the units that a round looks at.
    """

    def __init__(
        self,
        simulated: Callable[[Array], Array],
        places: Sequence[Array],
        noise: Sequence[float],
        early: int,
        outcomes: int,
        rate: float = 1.0,
    ) -> None:
        self.noise = np.maximum(np.asarray(noise, np.float64), 1e-3)
        self.early, self.outcomes, self.rate = early, outcomes, rate
        self._simulated = simulated
        shapes = [_second_moment(simulated(np.asarray(place, np.float64))) for place in places]
        self.size = len(shapes[0])
        self.curved = self.size <= MOST_CURVED
        together = sum(shape / max(np.trace(shape), 1e-300) for shape in shapes)
        values, vectors = np.linalg.eigh(symmetric(np.asarray(together)))
        told = values > 1e-7 * values.max()
        self.basis = np.eye(self.size) if told.all() else vectors[:, told]
        self.flat = vectors[:, ~told] if not told.all() else np.zeros((self.size, 0))
        shape = self.basis.T @ (shapes[0] + 0.01 * np.trace(shapes[0]) * together) @ self.basis
        self.public = symmetric(np.asarray(shape))
        self.root = root_of(self.public)
        self.place = np.zeros(self.basis.shape[1])
        self.curvature = Curvature()
        self.records: list[Record] = []
        self.units, self.informative = math.nan, (0.7, 0.3**2)
        self.slope, self.used_slope = (0.6, 0.3**2), (0.6, 0.3**2)
        self._level_variance, self._resized = 4.0, np.zeros(len(self.place))
        self._last_move, self._pace = np.zeros(len(self.place)), 1.0
        self.asked: Asked | None = None
        self.drowned = math.inf if self.curved else 0.0  # noise of curvature beside its mean

    @property
    def done(self) -> int:
        """How many rounds were answered, without the one that counts."""
        return len(self.records)

    @property
    def late(self) -> bool:
        """Whether the next round is one that makes the posterior."""
        return self.done >= self.early

    @property
    def _settled(self) -> bool:
        """Whether the metric stays after this round, so that late scores share one slope."""
        return self.done >= self.early

    @property
    def _late_noise(self) -> float:
        """Standard deviation of the average of sums of the late rounds, for all units."""
        return float(1 / np.sqrt(np.sum(self.noise[1 + self.early :] ** -2.0))) / self.rate

    def ask(self) -> Asked:
        """What the next round asks for."""
        directions = len(self.place)
        length, (shares, sizes) = math.sqrt(directions), self._shares()
        if math.isnan(self.units):  # one round counts the units
            clip = length
        elif (
            self.done > self.early and self.asked is not None
        ):  # late sums are averaged: in one unit
            clip, length = self.asked.clip, self.asked.length
        else:
            noise = self._late_noise**2 / LATE_SHARES[0]
            loose = _NOISE_PART * self.units * self.informative[0] / (noise * directions)
            loose = min(max(loose, 1.0), _LOOSEST)
            clip = math.sqrt(directions * loose)
            # Curvature is clipped more tightly, as its entries are noisier.
            length = math.sqrt(directions * math.sqrt(loose))
        to_metric = np.zeros((self.size, self.size))
        to_metric[:directions] = np.linalg.solve(self.root, self.basis.T)
        longest = clip**2
        self.asked = Asked(
            place=self.basis @ self.place,
            to_metric=to_metric,
            clip=clip,
            length=length,
            steep=_STEEP * longest,
            steep_each=_STEEP_EACH * longest,
            sizes=sizes,
            shares=np.sqrt(shares),
        )
        return self.asked

    def _shares(self) -> tuple[Sequence[float], float]:
        if math.isnan(self.units):
            return COUNT_SHARES, 0.0
        if self.late:
            return (LATE_SHARES if self.curved else PLAIN_SHARES), 0.0
        if self.done < SIZING_ROUNDS or not self.curved:
            return SIZES_SHARES, 1.0
        return EARLY_SHARES, 0.0

    def tell(self, sums: Sums) -> None:
        """Takes the noisy sums that the last question was answered by."""
        asked = self.asked
        assert asked is not None
        if math.isnan(self.units):
            self.units = max(sums.units, FEWEST)
            return
        directions = len(self.place)
        clip, noise = asked.clip, sums.noise
        mean, variance = self.informative
        mean, variance = merged(
            mean,
            variance + 0.05**2,
            sums.informative / self.units,
            (noise.informative / self.units) ** 2,
        )
        self.informative = min(max(mean, 0.003), 1.0), variance
        score = clip * self.root @ sums.score[:directions]
        record = Record(
            self.place, self.root, score, (clip * noise.score) ** 2, sums, late=self.late
        )
        self.records.append(record)
        if asked.sizes:
            self._resize(asked, sums)
        elif self.curved and sums.curvature is not None:
            self._reshape(asked, sums.curvature[:directions, :directions], sums)
        else:
            self._move(self.used_slope[0] * np.eye(directions), np.eye(directions))

    def _resize(self, asked: Asked, sums: Sums) -> None:
        """Corrects how large scores are in each direction, beside those of simulated rows."""
        directions = len(self.place)
        factor = math.sqrt(self.size) / self.units
        noise = sums.noise.diagonal * factor
        least = max(0.02, 0.5 * noise)
        squares = (self._simulated(asked.place) @ asked.to_metric[:directions].T) ** 2
        usual = np.clip((squares / (1 + squares)).mean(axis=(0, 1)), least, 0.97)
        seen = np.clip(sums.diagonal[:directions] * factor, least, 0.97)
        change = np.log(seen / (1 - seen)) - np.log(usual / (1 - usual))
        change = np.sign(change) * np.maximum(np.abs(change) - _SAME_SIZE, 0)
        before = 4.0 if self.done == 1 else 1.0
        doubt = (noise / np.maximum(seen * (1 - seen), 0.1)) ** 2
        change = np.clip(change, -_MOST_RESIZED, _MOST_RESIZED) * before / (before + doubt)
        resized = np.clip(self._resized + change, _LEAST_SIZE, _LARGEST_SIZE)
        sizes, self._resized = np.exp(resized - self._resized), resized
        slope = 0.7 * np.diag(sizes) * min(1.0, asked.clip / math.sqrt(sizes.sum()))
        level = float(np.trace(slope)) / directions
        moved = self._estimate(slope, 0.8 * level, slope / level, self.records[-1:])[0] - self.place
        self._go(moved, np.sqrt(sizes) * (self.root.T @ moved))
        self.root = root_of((self.root * sizes) @ self.root.T)
        self.public = self.root @ self.root.T

    def _reshape(self, asked: Asked, released: Array, sums: Sums) -> None:
        """Takes a release of curvature: moves the place, and changes the metric."""
        directions, informative = len(self.place), self.informative[0]
        factor = asked.length**2 / self.units
        seen, noise = released * factor, sums.noise.curvature * factor
        inverse = np.asarray(np.linalg.inv(self.root), np.float64)
        self.curvature.releases.append(Release(inverse, seen, noise, self.place))
        belief = self.curvature.belief(self.public, self.root, self.place)
        level = self._level(belief)
        shape = belief.mean / max(level, _mean_diagonal(belief.mean))
        factor = asked.steep / (directions * self.units)
        forgotten = 0.0 if self._settled else 0.15**2
        mean, variance = self.slope
        self.slope = merged(
            mean, variance + forgotten, sums.slope * factor, (sums.noise.slope * factor) ** 2
        )
        usual = level * self._ratio(asked)
        slope, variance = merged(*self.slope, usual, (_RATIO_SPREAD * usual) ** 2)
        self.used_slope = max(slope, 0.03 * informative), variance
        root, settled = self.root, self._settled
        length = self._move(self.used_slope[0] * _at_least(shape, 0.1), shape)
        # The trace of clipped curvature is about half of what it can be if scores are about as long as
        # the clip: a filter that knows the noise aims at that.
        wide = asked.length**2 / directions
        ratio = float(np.clip(np.trace(seen) / directions / informative / wide, 0.04 / wide, 0.93))
        spread = wide * max(ratio * (1 - ratio), 0.12 / wide)
        self._level_variance += 0.1**2 + min(length, 1.0) ** 2
        other = (noise / math.sqrt(directions) / informative / spread) ** 2
        gain = self._level_variance / (self._level_variance + other)
        self._level_variance *= 1 - gain
        if settled:
            return
        drowned = math.sqrt(2 * directions / float(np.median(belief.precision))) / level
        values, vectors = np.linalg.eigh(shape)
        values = np.clip(values, max(_LEAST, min(0.5 * drowned, 0.8)), 6.0)
        values *= (
            directions / values.sum() * np.clip((wide * ratio / (1 - ratio)) ** gain, 0.05, 20.0)
        )
        metric = root @ (vectors * values) @ vectors.T @ root.T
        # Of few rows that tell, clipped curvature is too small: no direction may fall too far.
        inside = np.linalg.inv(np.linalg.cholesky(self.public + 1e-10 * np.eye(directions)))
        values, vectors = np.linalg.eigh(symmetric(inside @ metric @ inside.T))
        turn = np.linalg.solve(inside, vectors)
        least = _LEAST_PUBLIC * values.mean()
        self.root = root_of((turn * np.maximum(values, least)) @ turn.T)

    def _ratio(self, asked: Asked) -> float:
        """Slope over the trace of curvature, for simulated rows."""
        directions = len(self.place)
        scores = self._simulated(asked.place) @ asked.to_metric[:directions].T
        kept, centred = clipped(scores, asked.clip)
        slopes = np.clip((kept * centred).sum(axis=-1), 0.0, asked.steep).mean() / directions
        squares = (centred**2).sum(axis=-1)
        wide = asked.length**2
        trace = np.mean(squares * wide / np.maximum(squares, wide)) / directions
        return float(np.clip(slopes / max(trace, 1e-9), 0.3, 4.0))

    def _extremes(self, asked: Asked) -> float:
        """How often a score is extreme by chance, by simulated rows, and that it is of one drawn one."""
        scores = self._simulated(asked.place) @ asked.to_metric[: len(self.place)].T
        lengths = np.linalg.norm(scores - scores.mean(axis=1, keepdims=True), axis=-1)
        longest = np.sort(lengths, axis=1)
        often = np.mean(longest[:, -1] > 2 * longest[:, -2]) / lengths.shape[1]
        return float(often) * (1 + 1 / self.outcomes)

    def _level(self, belief: Belief) -> float:
        """The trace of curvature over the dimension."""
        informative, size = self.informative[0], len(belief.mean)
        noise = 1 / (float(np.median(belief.precision)) * size)
        trace = _mean_diagonal(belief.mean)
        level, _ = merged(0.5 * informative, (0.25 * informative) ** 2, trace, noise)
        return max(level, 0.05 * informative)

    def _move(self, slope: Array, shape: Array) -> float:
        """Moves the place to where the scores of the last rounds cancel the prior; how far it is."""
        centre, _ = self._estimate(slope, 0.8 * self.used_slope[0], shape, self._recent())
        moved = centre - self.place
        return self._go(moved, self.root.T @ moved)

    def _go(self, moved: Array, in_rows: Array) -> float:
        """Goes a part of the way, and less if the last two moves were in opposite directions.

        Where a slope is underestimated, rounds would jump to and fro over where scores vanish.
        """
        length = float(np.linalg.norm(in_rows))
        last = self.root.T @ self._last_move
        turn = float(in_rows @ last) / max(length * float(np.linalg.norm(last)), 1e-12)
        self._pace = max(0.2, 0.6 * self._pace) if turn < -0.3 else min(1.0, 1.25 * self._pace)
        self._last_move = moved * self._pace * min(1.0, _LONGEST / max(length, 1e-12))
        self.place = self.place + self._last_move
        return length

    def _recent(self, *, finished: bool = False) -> list[Record]:
        """The later half of the rounds; of a finished fit, all late ones and half of the early ones."""
        return self.records[(min(self.done, self.early) if finished else self.done - 1) // 2 :]

    def _estimate(
        self, slope: Array, variance: float, shape: Array, records: Sequence[Record]
    ) -> tuple[Array, Array]:
        """Posterior means and precisions given the slope, or several, of a unit's score in the metric.

        ``variance`` times ``shape`` is what scores of a unit vary by.
        """
        pull, precision, at = self._likelihood(slope, variance, shape, records)
        whole = precision + np.eye(len(self.place))
        centre = np.linalg.solve(whole, (pull - at)[..., None])[..., 0]
        return at + centre, whole

    def _likelihood(
        self, slope: Array, variance: float, shape: Array, records: Sequence[Record]
    ) -> tuple[Array, Array, Array]:
        """Pulls and precisions of the scores of some rounds, around an average of their places.

        A round counts by its noise, and the less the farther away it was, as slopes differ there.
        """
        size = len(self.place)
        weights = []
        for each in records:
            away = np.sum((each.root.T @ (each.place - self.place)) ** 2)
            bent = (self.units * _BENDING * away) ** 2 / (self.units + each.variance) / size
            weights.append(1 / ((1 + bent) * each.variance))
        weight = np.array(weights) / np.sum(weights)
        score = weight @ np.array([each.score for each in records])
        at = weight @ np.array([each.place for each in records])
        noise = sum(
            w**2 * each.variance * each.root @ each.root.T
            for w, each in zip(weight, records, strict=True)
        )
        kept = self.outcomes / (self.outcomes + 1)
        # Drawn outcomes are new in every round, and so are the units if they are sampled.
        again = np.sum(weight**2) * ((1 - self.rate) / self.rate + 1 / (self.outcomes * self.rate))
        a = self.units * self.root @ slope @ self.root.T
        sampling = self.units * variance * kept * (1 + again) * self.root @ shape @ self.root.T
        gain = np.swapaxes(np.linalg.solve(sampling + noise, a), -1, -2)
        return gain @ score, symmetric(gain @ a), at

    def evidence(self, rng: np.random.Generator, count: int) -> Evidence:
        """The likelihood of the late rounds, with slopes drawn by what is known of them."""
        asked, size = self.asked, len(self.place)
        assert asked is not None
        late = [each for each in self.records if each.late]
        weight = self.noise[1 + self.early : 1 + self.early + len(late)] ** -2.0
        weight = weight / weight.sum()

        def average(name: str) -> Array:
            values = [getattr(each.sums, name) for each in late]
            return np.asarray(weight @ np.array(values)) / self.units

        def noise_of(name: str) -> float:
            values = np.array([getattr(each.sums.noise, name) for each in late])
            return float(np.sqrt(np.sum(weight**2 * values**2))) / self.units

        drawn, excess = max(float(average("drawn")), 1e-6), float(average("excess"))
        # If own outcomes vary more than the model says, by more than noise explains, so do scores.
        more = max(excess / 2, excess - 3 * noise_of("excess"))
        squared = (drawn + more) * asked.clip**2 / size
        # Unclipped scores vary by as much as their mean falls; clipped ones by a little less.
        loose = asked.clip**2 / size
        squared = max(squared, (1 - 0.3 / loose) * self.used_slope[0])
        draws = int(min(count, max(_MOST_WORK / size**3, 30)))
        slopes, shapes = self._drawn_slopes(
            rng, draws, average("diagonal")[:size], noise_of("diagonal"), asked
        )
        records = self._recent(finished=True)
        pull, precision, at = self._likelihood(slopes, squared, shapes, records)
        chosen = np.arange(count) % draws
        basis = self.basis
        full = self.root @ shapes.mean(axis=0) @ self.root.T
        return Evidence(
            place=basis @ at,
            precision=basis @ precision[chosen] @ basis.T,
            pull=pull[chosen] @ basis.T,
            information=basis @ full @ basis.T,
            units=self.units,
            dispersion=1 + excess / drawn,
            dispersion_noise=noise_of("excess") / drawn,
            extreme=float(average("extreme")),
            extreme_noise=math.sqrt(noise_of("extreme") ** 2 + self._extremes(asked) / self.units),
            flat=self.flat,
        )

    def _drawn_slopes(
        self, rng: np.random.Generator, count: int, diagonal: Array, noise: float, asked: Asked
    ) -> tuple[Array, Array]:
        """Slopes of a unit's score in the metric; and shapes of the variance that go with them."""
        size = len(self.place)
        if self.curved:
            belief = self.curvature.belief(self.public, self.root, self.place)
            # Noise may make curvature larger than it can be; its shape is then all that counts.
            level = max(self._level(belief), _mean_diagonal(belief.mean))
        else:
            spread = _DOUBT * math.sqrt(2 / size)
            entries = np.full((size, size), spread**-2)
            belief, level = Belief(np.eye(size), entries, spread, np.ones(size)), 1.0
        slope, variance = self.used_slope
        mean = belief.mean / level
        # Slopes by direction: how much more, or less, than the curvature says.
        expected = slope * np.maximum(np.diag(mean), 0.02)
        seen, doubt = diagonal * asked.steep_each / expected, noise * asked.steep_each / expected
        trust = _BY_DIRECTION**2 / (_BY_DIRECTION**2 + doubt**2)
        each = np.sqrt(np.clip(1 + trust * (seen - 1), 0.05, 20.0))
        spread = np.clip(_BY_DIRECTION * np.sqrt(1 - trust) / each**2, 0, 0.3) / 2
        factors = each * np.exp(spread * rng.normal(size=(count, size)))
        off = np.triu(rng.normal(size=(count, size, size)), 1) / math.sqrt(2)
        off = off + off.transpose(0, 2, 1)
        index = np.arange(size)
        off[:, index, index] = rng.normal(size=(count, size))
        # Where entries were not seen, a design may be farther from what was expected.
        squares = np.outer(belief.squares, belief.squares)
        told = np.maximum(belief.precision - squares / belief.spread**2, 1e-9)
        wide = max(belief.spread, _DOUBT * math.sqrt(2 / size))
        shapes = mean + off / np.sqrt(told + squares / wide**2) / level
        drowned = self.drowned = math.sqrt(2 * size / float(np.median(told))) / level
        shapes = _at_least(shapes, min(_LEAST_SLOPE, max(0.2 * drowned, 1e-5)))
        sizes = slope * np.exp(min(math.sqrt(variance) / slope, 0.7) * rng.normal(size=count))
        bent = factors[:, :, None] * shapes * factors[:, None, :]
        return sizes[:, None, None] * bent, shapes


def _second_moment(scores: Array) -> Array:
    flat = scores.reshape(-1, scores.shape[-1])
    return np.asarray(flat.T @ flat / len(flat))


def _mean_diagonal(matrix: Array) -> float:
    return float(np.trace(matrix)) / len(matrix)


def _at_least(matrix: Array, least: float) -> Array:
    values, vectors = np.linalg.eigh(symmetric(matrix))
    kept = vectors * np.maximum(values, least)[..., None, :]
    return np.asarray(kept @ np.swapaxes(vectors, -1, -2))

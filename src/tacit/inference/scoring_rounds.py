"""Rounds of private scoring: what to ask units for, and what follows from their noisy sums.

Nothing here sees a row. A round asks for the sums of `tacit.inference.score_contributions` at a position, in a
metric. The noisy sums move the position and the metric; the last rounds make the posterior. One machine, several
processes and several sites add up the sums in their own way, and share this code.

In a late round the sum of clipped scores is s = A (theta - position) + error, where theta is the true vector, A the
slope of the clipped score, and the error has the variance of sampling, of drawn outcomes, and of the noise. A is a
multiple of the curvature, which is released too, and so has noise of its own. For each draw of the posterior A is
drawn first, from what was observed and how noisy that was; then theta given A, from prior times likelihood.

The curvature of the log-likelihood is largely public: its shape is the expected information of rows simulated from
the schema, and directions that no row informs are exact zeros there. Releases correct it where they stand out of
their noise: its level, then its diagonal, then the direction of the position, in which generalised linear models bend,
then other directions (as spikes of a covariance matrix), and the other entries by shrinkage.
"""

import math
from collections.abc import Callable, Sequence
from copy import copy
from typing import NamedTuple

import numpy as np

from tacit._typing import Floats
from tacit.inference.score_contributions import (
    MAX_CURVATURE_DIMENSION,
    ScoreSums,
    clip_exchangeably,
)

# The prior mean and standard deviation of the level of curvature: its trace, clipped, over the dimension.
PRIOR_LEVEL, _LEVEL_SPREAD = 0.4, 0.4
# Prior standard deviations of entries relative to the public curvature: on the diagonal; and the least one off the
# diagonal, times the root of the dimension.
_DIAGONAL_SPREAD, _MIN_OFF_DIAGONAL_SPREAD = 0.7, 0.35
# The least ratio to the expected curvature in the direction of the position, and a position too short to have one.
_MIN_RATIO_ALONG, _MIN_LENGTH = 0.1, 1e-3
# An eigenvalue is a spike if it is so many noise standard deviations, times the root of the dimension, from the mean.
_SPIKE_THRESHOLD = 2.6
# Relative change of curvature when the position moves by one row's standard deviation, and per unit of change in
# the logarithm of the metric: by these, older releases count less.
_CHANGE_BY_POSITION, _CHANGE_BY_METRIC = 1.0, 0.4


class CurvatureRelease(NamedTuple):
    """A noisy mean curvature of a unit, at a position, in the metric of which ``inverse`` is the inverse root.

    ``noise`` is the standard deviation of an entry on the diagonal; others have it over root two.
    """

    inverse: Floats
    value: Floats
    noise: float
    position: Floats


class CurvatureEstimate(NamedTuple):
    """An estimate of the curvature in the coordinates of a metric, and the precision of each entry.

    It is shrunk towards an expected curvature. In coordinates in which that is the identity, ``spread`` is the prior
    standard deviation of entries, and ``squares`` are the squared lengths of the metric's coordinate vectors.
    """

    mean: Floats
    precision: Floats
    spread: float
    squares: Floats


def symmetric(matrix: Floats) -> Floats:
    """The symmetric part of one or several matrices."""
    return (matrix + np.swapaxes(matrix, -1, -2)) / 2


def symmetric_root(matrix: Floats) -> Floats:
    """The symmetric root: coordinates of the metric stay near those of the model."""
    values, vectors = np.linalg.eigh(symmetric(matrix))
    least = 1e-12 * values.max()
    return np.asarray((vectors * np.sqrt(np.maximum(values, least))) @ vectors.T)


def combine_estimates(
    first: float, variance: float, second: float, other: float
) -> tuple[float, float]:
    """The mean of two independent estimates, weighted by their precisions, and its variance."""
    gain = variance / (variance + other)
    return first + gain * (second - first), (1 - gain) * variance


class Curvature:
    """All releases of curvature, and the estimate that they make together."""

    def __init__(self) -> None:
        self.releases: list[CurvatureRelease] = []

    def estimate(self, public: Floats, root: Floats, position: Floats) -> CurvatureEstimate:
        """The curvature at a position, in the coordinates of a metric.

        Args:
            public: The public curvature.
            root: The root of the metric.
            position: The position.

        Returns:
            The estimate; that of the public curvature if nothing was released.
        """
        size = len(root)
        expected = PRIOR_LEVEL * public
        spread = _DIAGONAL_SPREAD
        weights = self._weights(root, position)
        if self.releases:
            raw, _ = self._least_squares(root, weights)
            expected = self._scale_public(public, raw, root, weights)
            expected = self._scale_along(position, expected, raw, root, weights)
            expected = self._add_spikes(expected, raw, root, weights)
            observed, expected_root = _in_expected_coordinates(expected, raw, root)
            noise = self._noise(expected_root, weights)
            beside = observed[np.triu_indices(size, 1)]
            least = _MIN_OFF_DIAGONAL_SPREAD / math.sqrt(size)
            beyond = float(np.sum(beside**2 - noise**2 / 2))
            found = (10 * least**2 + beyond) / (10 + len(beside))
            spread = math.sqrt(2 * max(found, (0.7 * least) ** 2))
        inverse = np.asarray(np.linalg.inv(_cholesky(expected)), np.float64)
        mean, precision = self._least_squares(root, weights, (inverse, spread))
        return CurvatureEstimate(mean, precision, spread, ((inverse @ root) ** 2).sum(axis=0))

    def _weights(self, root: Floats, position: Floats) -> Floats:
        """Precision of entries of each release, as a measurement at another position and in another metric."""
        found = []
        for each in self.releases:
            turn = each.inverse @ root
            moved = np.sum((root.T @ (each.position - position)) ** 2)
            changed = np.log(np.maximum(np.linalg.eigvalsh(turn.T @ turn), 1e-9))
            stale = _CHANGE_BY_POSITION**2 * moved / 2 + _CHANGE_BY_METRIC**2 * np.mean(changed**2)
            size = len(root)
            level = max(np.trace(each.value) / size, each.noise / math.sqrt(size))
            found.append(1 / (each.noise**2 + level**2 * stale))
        return np.array(found)

    def _least_squares(
        self, root: Floats, weights: Floats, prior: tuple[Floats, float] | None = None
    ) -> tuple[Floats, Floats]:
        """Generalised least squares in the coordinates of a metric, by conjugate gradients.

        ``prior`` is a change of coordinates after which curvature is the identity, with such a standard
        deviation. Returns the curvature and the precision of its entries.
        """
        turns = [each.inverse @ root for each in self.releases]
        values = [each.value for each in self.releases]
        precisions = list(weights)
        if prior is not None:
            turns.append(prior[0] @ root)
            values.append(np.eye(len(root)))
            precisions.append(prior[1] ** -2)
        grams = np.array([turn.T @ turn for turn in turns])
        each = np.array(precisions)
        right = sum(
            p * turn.T @ value @ turn for p, turn, value in zip(each, turns, values, strict=True)
        )
        diagonals = np.einsum("taa->ta", grams)
        entries = np.einsum("t,ta,tb->ab", each, diagonals, diagonals)

        def applied(matrix: Floats) -> Floats:
            return np.asarray(np.einsum("t,tij->ij", each, grams @ matrix @ grams))

        found = right / entries
        rest = right - applied(found)
        scaled = rest / entries
        along, size = scaled, float((rest * scaled).sum())
        for _ in range(40):
            if np.abs(rest / entries).max() < 1e-4:
                break
            changed = applied(along)
            step = size / max(float((along * changed).sum()), 1e-300)
            found, rest = found + step * along, rest - step * changed
            scaled = rest / entries
            new = float((rest * scaled).sum())
            along, size = scaled + new / size * along, new
        return symmetric(found), entries

    def _noise(self, expected_root: Floats, weights: Floats) -> float:
        """The approximate noise of all releases together, in the coordinates of another root."""
        sizes = [
            len(expected_root) / np.sum(np.linalg.inv(each.inverse @ expected_root) ** 2)
            for each in self.releases
        ]
        return 1 / math.sqrt(max(float(weights @ np.square(sizes)), 1e-300))

    def _scale_public(self, public: Floats, raw: Floats, root: Floats, weights: Floats) -> Floats:
        """The public curvature, scaled to the level and the diagonal that were observed."""
        size = len(root)
        observed, expected_root = _in_expected_coordinates(public, raw, root)
        noise = self._noise(expected_root, weights)
        level, _ = combine_estimates(
            PRIOR_LEVEL, _LEVEL_SPREAD**2, float(np.trace(observed)) / size, noise**2 / size
        )
        level = max(level, 0.2 * noise / math.sqrt(size), 0.02 * PRIOR_LEVEL)
        expected = level * public
        scale = np.diag(expected)
        noises = [np.diag(np.linalg.inv(each.inverse.T @ each.inverse)) for each in self.releases]
        precision = sum(
            weight * (scale / noise) ** 2 for weight, noise in zip(weights, noises, strict=True)
        )
        trust = _DIAGONAL_SPREAD**2 / (_DIAGONAL_SPREAD**2 + 1 / precision)
        ratio = np.diag(root @ raw @ root.T) / scale
        factor = np.sqrt(np.maximum(1 + trust * (ratio - 1), 0.03))
        return np.asarray(factor[:, None] * expected * factor)

    def _scale_along(
        self, position: Floats, expected: Floats, raw: Floats, root: Floats, weights: Floats
    ) -> Floats:
        """The expected curvature, scaled in the direction of the position to what was observed.

        In generalised linear models, curvature depends on the predictor, which varies in the direction of the
        coefficients. For Gaussian rows it differs from that of the null model in this direction alone (Stein's lemma).
        """
        observed, expected_root = _in_expected_coordinates(expected, raw, root)
        along = expected_root.T @ position
        length = float(np.linalg.norm(along))
        if length < _MIN_LENGTH:
            return expected
        along, noise = along / length, self._noise(expected_root, weights)
        found = float(along @ observed @ along)
        ratio, _ = combine_estimates(1.0, _DIAGONAL_SPREAD**2, found, noise**2)
        side = expected_root @ along
        return np.asarray(expected + (max(ratio, _MIN_RATIO_ALONG) - 1) * np.outer(side, side))

    def _add_spikes(self, expected: Floats, raw: Floats, root: Floats, weights: Floats) -> Floats:
        """The expected curvature with the directions that stand out of the noise; all others have their mean eigenvalue."""
        size = len(root)
        observed, expected_root = _in_expected_coordinates(expected, raw, root)
        noise = self._noise(expected_root, weights) / math.sqrt(2)
        values, vectors = np.linalg.eigh(observed)
        out = np.zeros(size, bool)
        for _ in range(size):
            beyond = np.abs(values - values[~out].mean()) > _SPIKE_THRESHOLD * noise * math.sqrt(
                size
            )
            if (out | beyond).sum() >= size - 1 or not (beyond & ~out).any():
                break
            out |= beyond
        least = max(0.3 * noise / math.sqrt((~out).sum()), 0.02 * float(np.mean(np.abs(values))))
        bulk = max(float(values[~out].mean()), least)
        away = values - bulk
        # Noise pushes a spike outwards and turns its direction: both are corrected (spiked covariance model).
        inner = np.sqrt(np.maximum(away**2 - 4 * noise**2 * size, 0))
        true = (np.abs(away) + inner) / 2 * np.sign(away)
        aligned = np.clip(1 - noise**2 * size / np.maximum(true**2, 1e-12), 0, 1)
        kept = np.where(out, np.maximum(bulk + true * aligned, 0.1 * bulk), bulk)
        return np.asarray(expected_root @ (vectors * kept) @ vectors.T @ expected_root.T)


def _cholesky(matrix: Floats) -> Floats:
    matrix = symmetric(matrix)
    tiny = 1e-10 * np.trace(matrix) / len(matrix)
    return np.asarray(np.linalg.cholesky(matrix + tiny * np.eye(len(matrix))))


def _in_expected_coordinates(expected: Floats, raw: Floats, root: Floats) -> tuple[Floats, Floats]:
    """A curvature in coordinates in which the expected one is the identity, and the root of the latter."""
    expected_root = _cholesky(expected)
    turn = np.linalg.solve(expected_root, root)
    return turn @ raw @ turn.T, expected_root


# Shares of the squared clip for the parts of a release, in the order of `ScoreSums`: score, curvature, diagonal, slope,
# informative units, excess, drawn lengths, extremes and the count. The first rounds find the size of scores, the other
# early ones the position and the metric, and the late ones make the posterior; one round before all counts the units.
SIZING_SHARES = (0.45, 0.0, 0.47, 0.03, 0.02, 0.015, 0.015, 0.0, 0.0)
EARLY_SHARES = (0.42, 0.50, 0.0, 0.03, 0.02, 0.015, 0.015, 0.0, 0.0)
LATE_SHARES = (0.62, 0.22, 0.04, 0.02, 0.01, 0.03, 0.01, 0.05, 0.0)
COUNT_SHARES = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0)
# Where the matrix of curvature is not released, the diagonal has its share.
LATE_DIAGONAL_SHARES = (0.62, 0.0, 0.26, 0.02, 0.01, 0.03, 0.01, 0.05, 0.0)
SIZING_ROUNDS = 3
# A noisy count below this is taken for this: later numbers are divided by it.
MIN_UNITS = 50.0
# Bounds on the slope of a unit's score: its trace, and its norm by direction, in squared clips.
_MAX_SLOPE, _MAX_DIRECTION_SLOPE = 2.0, 1.5
# The squared clip is the dimension, and up to so many times more, as long as noise stays below this share of the
# sampling variance, and that of a unit's slope below this number.
_NOISE_SHARE, _SLOPE_NOISE, _MAX_CLIP_FACTOR = 0.25, 0.05, 25.0
# Relative change of slopes when the position moves by one row's standard deviation.
_SLOPE_CHANGE = 0.3
# Relative standard deviations: of the ratio of slope to curvature around that of simulated rows, and of the slope by
# direction around a multiple of the curvature.
_SLOPE_RATIO_SPREAD, _DIRECTION_SPREAD = 0.12, 0.3
# The same with weights, whose declared bounds tell little about the ratio.
_WEIGHTED_RATIO_SPREAD = 1.0
# The longest move of one round, in standard deviations of a row.
_MAX_MOVE = 1.0
# The smallest eigenvalues: of the metric relative to their mean, and to the public curvature; and of drawn slopes.
_MIN_METRIC_EIGENVALUE, _MIN_PUBLIC_EIGENVALUE, _MIN_SLOPE_EIGENVALUE = 0.15, 0.01, 0.1
# Prior standard deviation of entries of the curvature that were not observed, times the root of half the dimension.
_UNSEEN_SPREAD = 0.7
# Of logarithms of the sizes of scores: the difference that is ignored, the most that one round changes, and the range.
_LOG_SIZE_TOLERANCE, _MAX_LOG_RESIZE, _MIN_LOG_SIZE, _MAX_LOG_SIZE = 0.7, 3.0, -6.0, 3.0
# The number of slopes that are drawn, times the dimension cubed, is at most this.
_MAX_SLOPE_WORK = 2e8


class WhitenedQuery(NamedTuple):
    """What a round asks units for; as in `tacit.inference.score_contributions.ScoreQuery`, but for the model.

    ``position`` and ``to_metric`` are in coordinates in which the prior is round.
    """

    position: Floats
    to_metric: Floats
    clip: float
    curvature_clip: float
    max_slope: float
    max_direction_slope: float
    sizing: float
    shares: Floats


class RoundRecord(NamedTuple):
    """A finished round: its position, the root of its metric, the score there, the variance of its noise, and all sums."""

    position: Floats
    root: Floats
    score: Floats
    variance: float
    sums: ScoreSums
    late: bool


class RemovedUnits(NamedTuple):
    """How many units, what they add to the score of each late round, and their share of the noise variance."""

    units: float
    scores: Sequence[Floats]
    noise_share: float


class ScoreLikelihood(NamedTuple):
    """The likelihood for each draw of the slope: exp(gradient (w - position) - (w - position) P (w - position) / 2).

    ``information`` is the estimated information of one unit without clipping and noise.
    ``dispersion`` is the ratio of squared lengths of own and drawn scores, and ``extreme`` the share of units
    whose own score is extreme, in excess of drawn ones; each with its standard deviation due to noise, the latter's
    also due to chance.
    """

    position: Floats
    precision: Floats  # [draws, size, size]
    gradient: Floats  # [draws, size]
    information: Floats
    units: float
    dispersion: float
    dispersion_noise: float
    extreme: float
    extreme_noise: float


class Rounds:
    """The state of a fit between rounds. Follows from released values and public numbers only.

    Args:
        simulated: Gives scores of simulated rows at a position, [rows, outcomes, size], in coordinates
            in which the prior is round.
        positions: Some positions at which to look for directions that no row informs.
        noise: Standard deviation of the noise in each round's sums, over the units that it looks at;
            the first counts the units.
        early: How many of the rounds after the first find the position and the metric.
        outcomes: Number of outcomes that are drawn for each unit.
        rate: The part of the units that a round looks at.
        weights: Of a model with weights, a typical weight, and the weights of the simulated rows relative to it.
    """

    def __init__(
        self,
        simulated: Callable[[Floats], Floats],
        positions: Sequence[Floats],
        noise: Sequence[float],
        early: int,
        outcomes: int,
        rate: float = 1.0,
        weights: tuple[float, Floats] | None = None,
    ) -> None:
        self.noise = np.maximum(np.asarray(noise, np.float64), 1e-3)
        self.early, self.outcomes, self.rate = early, outcomes, rate
        self._simulated = simulated
        self.typical_weight, self._relative = weights or (1.0, np.ones(1))
        self._ratio_spread = _SLOPE_RATIO_SPREAD if weights is None else _WEIGHTED_RATIO_SPREAD
        shapes = [
            _second_moment(simulated(np.asarray(position, np.float64))) for position in positions
        ]
        self.size = len(shapes[0])
        self.releases_curvature = self.size <= MAX_CURVATURE_DIMENSION
        together = sum(shape / max(np.trace(shape), 1e-300) for shape in shapes)
        values, vectors = np.linalg.eigh(symmetric(np.asarray(together)))
        informed = values > 1e-7 * values.max()
        self.basis = np.eye(self.size) if informed.all() else vectors[:, informed]
        shape = self.basis.T @ (shapes[0] + 0.01 * np.trace(shapes[0]) * together) @ self.basis
        self.public = symmetric(np.asarray(shape))
        self.root = symmetric_root(self.public)
        self.position = np.zeros(self.basis.shape[1])
        self.curvature = Curvature()
        self.records: list[RoundRecord] = []
        self.units, self.informative = math.nan, (0.7, 0.3**2)
        self.slope, self.used_slope = (0.6, 0.3**2), (0.6, 0.3**2)
        self._level_variance, self._resized = 4.0, np.zeros(len(self.position))
        self._last_move, self._pace = np.zeros(len(self.position)), 1.0
        self.query: WhitenedQuery | None = None
        # The noise of the curvature relative to its mean.
        self.curvature_noise = math.inf if self.releases_curvature else 0.0

    @property
    def done(self) -> int:
        """How many rounds were answered, without the one that counts."""
        return len(self.records)

    @property
    def late(self) -> bool:
        """Whether the next round makes the posterior. The metric then stays, so that late scores share one slope."""
        return self.done >= self.early

    @property
    def _late_noise(self) -> float:
        """Standard deviation of the average of sums of the late rounds, for all units."""
        return float(1 / np.sqrt(np.sum(self.noise[1 + self.early :] ** -2.0))) / self.rate

    def ask(self) -> WhitenedQuery:
        """What the next round asks for."""
        directions = len(self.position)
        curvature_clip, (shares, sizing) = math.sqrt(directions), self._shares()
        if math.isnan(self.units):  # one round counts the units
            clip = curvature_clip
        elif (
            self.done > self.early and self.query is not None
        ):  # late sums are averaged, so clips stay
            clip, curvature_clip = self.query.clip, self.query.curvature_clip
        else:
            noise = self._late_noise**2 / LATE_SHARES[0]
            informative = self.units * self.informative[0]
            of_slope = _MAX_SLOPE * self._late_noise / math.sqrt(LATE_SHARES[3])
            clip_factor = min(
                _NOISE_SHARE * informative / (noise * directions),
                _SLOPE_NOISE * informative / of_slope,
                _MAX_CLIP_FACTOR,
            )
            clip_factor = max(clip_factor, 1.0)
            clip = math.sqrt(directions * clip_factor)
            # Curvature is clipped more tightly, as its entries are noisier.
            curvature_clip = math.sqrt(directions * math.sqrt(clip_factor))
        to_metric = np.zeros((self.size, self.size))
        to_metric[:directions] = np.linalg.solve(self.root, self.basis.T)
        longest = clip**2
        self.query = WhitenedQuery(
            position=self.basis @ self.position,
            to_metric=to_metric,
            clip=clip,
            curvature_clip=curvature_clip,
            max_slope=_MAX_SLOPE * longest,
            max_direction_slope=_MAX_DIRECTION_SLOPE * longest,
            sizing=sizing,
            shares=np.sqrt(shares),
        )
        return self.query

    def _shares(self) -> tuple[Sequence[float], float]:
        if math.isnan(self.units):
            return COUNT_SHARES, 0.0
        if self.late:
            return (LATE_SHARES if self.releases_curvature else LATE_DIAGONAL_SHARES), 0.0
        if self.done < SIZING_ROUNDS or not self.releases_curvature:
            return SIZING_SHARES, 1.0
        return EARLY_SHARES, 0.0

    def tell(self, sums: ScoreSums) -> None:
        """Takes the noisy sums that answer the last query."""
        query = self.query
        assert query is not None
        if math.isnan(self.units):
            self.units = max(sums.units, MIN_UNITS)
            return
        directions = len(self.position)
        clip, noise = query.clip, sums.noise
        mean, variance = self.informative
        mean, variance = combine_estimates(
            mean,
            variance + 0.05**2,
            sums.informative / self.units,
            (noise["informative"] / self.units) ** 2,
        )
        self.informative = min(max(mean, 0.003), 1.0), variance
        score = clip * self.root @ sums.score[:directions]
        record = RoundRecord(
            self.position, self.root, score, (clip * noise["score"]) ** 2, sums, late=self.late
        )
        self.records.append(record)
        if query.sizing:
            self._resize(query, sums)
        elif self.releases_curvature and sums.curvature is not None:
            self._reshape(query, sums.curvature[:directions, :directions], sums)
        else:
            self._move(self.used_slope[0] * np.eye(directions), np.eye(directions))

    def _resize(self, query: WhitenedQuery, sums: ScoreSums) -> None:
        """Corrects how large scores are in each direction, beside those of simulated rows."""
        directions = len(self.position)
        factor = math.sqrt(self.size) / self.units
        noise = sums.noise["diagonal"] * factor
        least = max(0.02, 0.5 * noise)
        squares = (self._simulated(query.position) @ query.to_metric[:directions].T) ** 2
        usual = np.clip((squares / (1 + squares)).mean(axis=(0, 1)), least, 0.97)
        observed = np.clip(sums.diagonal[:directions] * factor, least, 0.97)
        change = np.log(observed / (1 - observed)) - np.log(usual / (1 - usual))
        change = np.sign(change) * np.maximum(np.abs(change) - _LOG_SIZE_TOLERANCE, 0)
        before = 4.0 if self.done == 1 else 1.0
        uncertainty = (noise / np.maximum(observed * (1 - observed), 0.1)) ** 2
        change = (
            np.clip(change, -_MAX_LOG_RESIZE, _MAX_LOG_RESIZE) * before / (before + uncertainty)
        )
        resized = np.clip(self._resized + change, _MIN_LOG_SIZE, _MAX_LOG_SIZE)
        sizes, self._resized = np.exp(resized - self._resized), resized
        slope = 0.7 * np.diag(sizes) * min(1.0, query.clip / math.sqrt(sizes.sum()))
        level = float(np.trace(slope)) / directions
        moved = (
            self._estimate(slope, 0.8 * level, slope / level, self.records[-1:])[0] - self.position
        )
        self._advance(moved, np.sqrt(sizes) * (self.root.T @ moved))
        self.root = symmetric_root((self.root * sizes) @ self.root.T)
        self.public = self.root @ self.root.T

    def _reshape(self, query: WhitenedQuery, released: Floats, sums: ScoreSums) -> None:
        """Takes a release of curvature: moves the position, and changes the metric."""
        directions, informative = len(self.position), self.informative[0]
        factor = query.curvature_clip**2 / self.units
        observed, noise = released * factor, sums.noise["curvature"] * factor
        inverse = np.asarray(np.linalg.inv(self.root), np.float64)
        self.curvature.releases.append(CurvatureRelease(inverse, observed, noise, self.position))
        estimate = self.curvature.estimate(self.public, self.root, self.position)
        level = self._level(estimate)
        shape = estimate.mean / max(level, _mean_diagonal(estimate.mean))
        factor = query.max_slope / (directions * self.units)
        forgotten = 0.0 if self.late else 0.15**2
        mean, variance = self.slope
        self.slope = combine_estimates(
            mean, variance + forgotten, sums.slope * factor, (sums.noise["slope"] * factor) ** 2
        )
        usual = level * self._ratio(query)
        slope, variance = combine_estimates(*self.slope, usual, (self._ratio_spread * usual) ** 2)
        self.used_slope = max(slope, 0.03 * informative), variance
        root, settled = self.root, self.late
        length = self._move(self.used_slope[0] * _floor_eigenvalues(shape, 0.1), shape)
        # The trace of clipped curvature is about half of what it can be if scores are about as long as
        # the clip: a filter that knows the noise aims at that.
        wide = query.curvature_clip**2 / directions
        ratio = float(
            np.clip(np.trace(observed) / directions / informative / wide, 0.04 / wide, 0.93)
        )
        spread = wide * max(ratio * (1 - ratio), 0.12 / wide)
        self._level_variance += 0.1**2 + min(length, 1.0) ** 2
        other = (noise / math.sqrt(directions) / informative / spread) ** 2
        gain = self._level_variance / (self._level_variance + other)
        self._level_variance *= 1 - gain
        if settled:
            return
        relative_noise = math.sqrt(2 * directions / float(np.median(estimate.precision))) / level
        values, vectors = np.linalg.eigh(shape)
        values = np.clip(values, max(_MIN_METRIC_EIGENVALUE, min(0.5 * relative_noise, 0.8)), 6.0)
        values *= (
            directions / values.sum() * np.clip((wide * ratio / (1 - ratio)) ** gain, 0.05, 20.0)
        )
        metric = root @ (vectors * values) @ vectors.T @ root.T
        # Where few rows are informative, clipped curvature is too small: no direction may fall far below the public one.
        to_public = np.linalg.inv(np.linalg.cholesky(self.public + 1e-10 * np.eye(directions)))
        values, vectors = np.linalg.eigh(symmetric(to_public @ metric @ to_public.T))
        turn = np.linalg.solve(to_public, vectors)
        least = _MIN_PUBLIC_EIGENVALUE * values.mean()
        self.root = symmetric_root((turn * np.maximum(values, least)) @ turn.T)

    def _ratio(self, query: WhitenedQuery) -> float:
        """Slope over the trace of curvature, for simulated rows."""
        directions = len(self.position)
        scores = self._simulated(query.position) @ query.to_metric[:directions].T
        kept, centred = clip_exchangeably(scores, query.clip)
        products = (kept * centred).sum(axis=-1) / np.maximum(self._relative, 1e-6)[:, None]
        slopes = np.clip(products, 0.0, query.max_slope).mean() / directions
        squares = (centred**2).sum(axis=-1)
        wide = query.curvature_clip**2
        trace = np.mean(squares * wide / np.maximum(squares, wide)) / directions
        return float(np.clip(slopes / max(trace, 1e-9), 0.3, 4.0))

    def _extremes(self, query: WhitenedQuery) -> float:
        """How often a score is extreme by chance, by simulated rows, and that it is of one drawn one."""
        scores = self._simulated(query.position) @ query.to_metric[: len(self.position)].T
        lengths = np.linalg.norm(scores - scores.mean(axis=1, keepdims=True), axis=-1)
        longest = np.sort(lengths, axis=1)
        often = np.mean(longest[:, -1] > 2 * longest[:, -2]) / lengths.shape[1]
        return float(often) * (1 + 1 / self.outcomes)

    def _level(self, estimate: CurvatureEstimate) -> float:
        """The trace of curvature over the dimension."""
        informative, size = self.informative[0], len(estimate.mean)
        noise = 1 / (float(np.median(estimate.precision)) * size)
        trace = _mean_diagonal(estimate.mean)
        level, _ = combine_estimates(0.5 * informative, (0.25 * informative) ** 2, trace, noise)
        return max(level, 0.05 * informative)

    def _move(self, slope: Floats, shape: Floats) -> float:
        """Moves the position to where the scores of the last rounds cancel the prior; how far it is."""
        centre, _ = self._estimate(slope, 0.8 * self.used_slope[0], shape, self._recent())
        moved = centre - self.position
        return self._advance(moved, self.root.T @ moved)

    def _advance(self, moved: Floats, in_row_sds: Floats) -> float:
        """Goes a part of the way, and less if the last two moves were in opposite directions.

        Where a slope is underestimated, rounds would jump to and fro over where scores vanish.
        """
        length = float(np.linalg.norm(in_row_sds))
        last = self.root.T @ self._last_move
        turn = float(in_row_sds @ last) / max(length * float(np.linalg.norm(last)), 1e-12)
        self._pace = max(0.2, 0.6 * self._pace) if turn < -0.3 else min(1.0, 1.25 * self._pace)
        self._last_move = moved * self._pace * min(1.0, _MAX_MOVE / max(length, 1e-12))
        self.position = self.position + self._last_move
        return length

    def _recent(self, *, finished: bool = False) -> list[RoundRecord]:
        """The later half of the rounds; of a finished fit, all late ones and half of the early ones."""
        return self.records[(min(self.done, self.early) if finished else self.done - 1) // 2 :]

    def _estimate(
        self, slope: Floats, variance: float, shape: Floats, records: Sequence[RoundRecord]
    ) -> tuple[Floats, Floats]:
        """Posterior means and precisions given the slope, or several, of a unit's score in the metric.

        ``variance`` times ``shape`` is what scores of a unit vary by.
        """
        gradient, precision, at = self._likelihood(slope, variance, shape, records)
        whole = precision + np.eye(len(self.position))
        centre = np.linalg.solve(whole, (gradient - at)[..., None])[..., 0]
        return at + centre, whole

    def _likelihood(
        self, slope: Floats, variance: float, shape: Floats, records: Sequence[RoundRecord]
    ) -> tuple[Floats, Floats, Floats]:
        """Gradients and precisions of the scores of some rounds, around an average of their positions.

        A round counts by its noise, and the less the farther away it was, as slopes differ there.
        """
        size = len(self.position)
        weights = []
        for each in records:
            away = np.sum((each.root.T @ (each.position - self.position)) ** 2)
            bent = (self.units * _SLOPE_CHANGE * away) ** 2 / (self.units + each.variance) / size
            weights.append(1 / ((1 + bent) * each.variance))
        weight = np.array(weights) / np.sum(weights)
        score = weight @ np.array([each.score for each in records])
        at = weight @ np.array([each.position for each in records])
        noise = sum(
            w**2 * each.variance * each.root @ each.root.T
            for w, each in zip(weight, records, strict=True)
        )
        kept = self.outcomes / (self.outcomes + 1)
        # Drawn outcomes are new in every round, and so are the units if they are sampled.
        again = np.sum(weight**2) * ((1 - self.rate) / self.rate + 1 / (self.outcomes * self.rate))
        a = self.units / self.typical_weight * self.root @ slope @ self.root.T
        sampling = self.units * variance * kept * (1 + again) * self.root @ shape @ self.root.T
        gain = np.swapaxes(np.linalg.solve(sampling + noise, a), -1, -2)
        return gain @ score, symmetric(gain @ a), at

    def late_posterior(self, removed: RemovedUnits | None = None) -> tuple[Floats, Floats]:
        """Mean and covariance by the late rounds and the mean slope, of all units or without some of them.

        In coordinates in which the prior is round, and taken for normal. The slope of a unit is that of all.
        """
        records = [each for each in self.records if each.late]
        rest = self
        if removed is not None:
            rest = copy(self)
            rest.units = max(self.units - removed.units, MIN_UNITS)
            records = [
                each._replace(
                    score=each.score - score, variance=(1 - removed.noise_share) * each.variance
                )
                for each, score in zip(records, removed.scores, strict=True)
            ]
        shape = np.eye(len(self.position))
        if self.releases_curvature:
            estimate = self.curvature.estimate(self.public, self.root, self.position)
            level = max(self._level(estimate), _mean_diagonal(estimate.mean))
            shape = _floor_eigenvalues(estimate.mean / level, _MIN_SLOPE_EIGENVALUE)
        slope = self.used_slope[0]
        mean, precision = rest._estimate(slope * shape, 0.8 * slope, shape, records)  # noqa: SLF001 (a copy)
        return self.basis @ mean, self.basis @ np.linalg.inv(precision) @ self.basis.T

    def likelihood(self, rng: np.random.Generator, count: int) -> ScoreLikelihood:
        """The likelihood of the late rounds, with slopes drawn by what is known of them."""
        query, size = self.query, len(self.position)
        assert query is not None
        late = [each for each in self.records if each.late]
        weight = self.noise[1 + self.early : 1 + self.early + len(late)] ** -2.0
        weight = weight / weight.sum()

        def average(name: str) -> Floats:
            values = [getattr(each.sums, name) for each in late]
            return np.asarray(weight @ np.array(values)) / self.units

        def noise_of(name: str) -> float:
            values = np.array([each.sums.noise[name] for each in late])
            return float(np.sqrt(np.sum(weight**2 * values**2))) / self.units

        drawn, excess = max(float(average("drawn")), 1e-6), float(average("excess"))
        # If own outcomes vary more than the model says, by more than noise explains, so do scores.
        more = max(excess / 2, excess - 3 * noise_of("excess"))
        squared = (drawn + more) * query.clip**2 / size
        # Unclipped scores vary by as much as their mean falls; clipped ones by a little less. Those with weights may vary by
        # more, as if there were fewer units, and intervals then are wider than those of the weighted likelihood.
        clip_factor = query.clip**2 / size
        slope = self.used_slope[0] / self.typical_weight
        squared = max(squared, (1 - 0.3 / clip_factor) * slope)
        draws = int(min(count, max(_MAX_SLOPE_WORK / size**3, 30)))
        slopes, shapes = self._drawn_slopes(
            rng, draws, average("diagonal")[:size], noise_of("diagonal"), query
        )
        records = self._recent(finished=True)
        gradient, precision, at = self._likelihood(slopes, squared, shapes, records)
        chosen = np.arange(count) % draws
        basis = self.basis
        full = self.root @ shapes.mean(axis=0) @ self.root.T
        return ScoreLikelihood(
            position=basis @ at,
            precision=basis @ precision[chosen] @ basis.T,
            gradient=gradient[chosen] @ basis.T,
            information=basis @ full @ basis.T,
            units=self.units,
            dispersion=1 + excess / drawn,
            dispersion_noise=noise_of("excess") / drawn,
            extreme=float(average("extreme")),
            extreme_noise=math.sqrt(noise_of("extreme") ** 2 + self._extremes(query) / self.units),
        )

    def _drawn_slopes(
        self,
        rng: np.random.Generator,
        count: int,
        diagonal: Floats,
        noise: float,
        query: WhitenedQuery,
    ) -> tuple[Floats, Floats]:
        """Slopes of a unit's score in the metric; and shapes of the variance that go with them."""
        size = len(self.position)
        if self.releases_curvature:
            estimate = self.curvature.estimate(self.public, self.root, self.position)
            # Noise may make curvature larger than it can be; its shape is then all that counts.
            level = max(self._level(estimate), _mean_diagonal(estimate.mean))
        else:
            spread = _UNSEEN_SPREAD * math.sqrt(2 / size)
            entries = np.full((size, size), spread**-2)
            estimate, level = CurvatureEstimate(np.eye(size), entries, spread, np.ones(size)), 1.0
        slope, variance = self.used_slope
        mean = estimate.mean / level
        # Slopes by direction: how much more, or less, than the curvature says.
        expected = slope * np.maximum(np.diag(mean), 0.02)
        observed, uncertainty = (
            diagonal * query.max_direction_slope / expected,
            noise * query.max_direction_slope / expected,
        )
        trust = _DIRECTION_SPREAD**2 / (_DIRECTION_SPREAD**2 + uncertainty**2)
        each = np.sqrt(np.clip(1 + trust * (observed - 1), 0.05, 20.0))
        spread = np.clip(_DIRECTION_SPREAD * np.sqrt(1 - trust) / each**2, 0, 0.3) / 2
        factors = each * np.exp(spread * rng.normal(size=(count, size)))
        off = np.triu(rng.normal(size=(count, size, size)), 1) / math.sqrt(2)
        off = off + off.transpose(0, 2, 1)
        index = np.arange(size)
        off[:, index, index] = rng.normal(size=(count, size))
        # Where entries were not observed, a design may be farther from what was expected.
        squares = np.outer(estimate.squares, estimate.squares)
        informed = np.maximum(estimate.precision - squares / estimate.spread**2, 1e-9)
        wide = max(estimate.spread, _UNSEEN_SPREAD * math.sqrt(2 / size))
        shapes = mean + off / np.sqrt(informed + squares / wide**2) / level
        relative_noise = self.curvature_noise = (
            math.sqrt(2 * size / float(np.median(informed))) / level
        )
        shapes = _floor_eigenvalues(
            shapes, min(_MIN_SLOPE_EIGENVALUE, max(0.2 * relative_noise, 1e-5))
        )
        sizes = slope * np.exp(min(math.sqrt(variance) / slope, 0.7) * rng.normal(size=count))
        bent = factors[:, :, None] * shapes * factors[:, None, :]
        return sizes[:, None, None] * bent, shapes


def _second_moment(scores: Floats) -> Floats:
    flat = scores.reshape(-1, scores.shape[-1])
    return np.asarray(flat.T @ flat / len(flat))


def _mean_diagonal(matrix: Floats) -> float:
    return float(np.trace(matrix)) / len(matrix)


def _floor_eigenvalues(matrix: Floats, least: float) -> Floats:
    values, vectors = np.linalg.eigh(symmetric(matrix))
    kept = vectors * np.maximum(values, least)[..., None, :]
    return np.asarray(kept @ np.swapaxes(vectors, -1, -2))

"""Curvature of the log-likelihood from noisy releases, beside what is public of it.

What a model's rows tell about its parameters has a shape that is largely public: the expected
information of rows that are simulated from the schema. Directions of which no row can tell are
exact zeros there. Releases correct it where they stand out of their noise: its level, then its
diagonal, then single directions (as spikes of a covariance matrix), and entries by shrinkage.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
# Trace of clipped curvature over the dimension, before it is seen, and its spread.
USUAL_LEVEL, _LEVEL_SPREAD = 0.4, 0.4
# How far the diagonal may be from that of the public curvature; and how far other entries are at
# least, in the roots of the dimension.
_DIAGONAL, _BESIDE = 0.7, 0.35
# Eigenvalues that stand out: so many standard deviations of noise, times the root of the dimension.
_EDGE = 2.6
# How much curvature changes when the place moves by one row's standard deviation, and with the
# logarithm of the metric, as part of it.
_BY_PLACE, _BY_METRIC = 1.0, 0.4


class Release(NamedTuple):
    """A noisy curvature of one unit in a metric: the inverse of its root, the value and its noise.

    ``noise`` is the standard deviation of an entry on the diagonal; others have it over root two.
    """

    inverse: Array
    value: Array
    noise: float
    place: Array


class Belief(NamedTuple):
    """Curvature in the coordinates of a metric, and the precision of each entry.

    ``spread`` is how far entries may be from what was expected of them, in the coordinates in which
    that is round, and ``squares`` the squared lengths of the metric's coordinates there.
    """

    mean: Array
    precision: Array
    spread: float
    squares: Array


def symmetric(matrix: Array) -> Array:
    """The symmetric part of one or several matrices."""
    return (matrix + np.swapaxes(matrix, -1, -2)) / 2


def root_of(matrix: Array) -> Array:
    """The symmetric root: coordinates of the metric stay near those of the model."""
    values, vectors = np.linalg.eigh(symmetric(matrix))
    least = 1e-12 * values.max()
    return np.asarray((vectors * np.sqrt(np.maximum(values, least))) @ vectors.T)


def merged(first: float, variance: float, second: float, other: float) -> tuple[float, float]:
    """The mean of two estimates by their variances, and its variance."""
    gain = variance / (variance + other)
    return first + gain * (second - first), (1 - gain) * variance


class Curvature:
    """All releases of curvature, and what follows from them."""

    def __init__(self) -> None:
        self.releases: list[Release] = []

    def belief(self, public: Array, root: Array, place: Array) -> Belief:
        """The curvature at a place, in the coordinates of a metric.

        Args:
            public: The public curvature.
            root: The root of the metric.
            place: The place.

        Returns:
            The belief; that of the public curvature if nothing was released.
        """
        size = len(root)
        expected = USUAL_LEVEL * public
        spread = _DIAGONAL
        weights = self._weights(root, place)
        if self.releases:
            raw, _ = self._solved(root, weights)
            expected = self._levelled(public, raw, root, weights)
            expected = self._spiked(expected, raw, root, weights)
            seen, inside = _within(expected, raw, root)
            noise = self._noise(inside, weights)
            beside = seen[np.triu_indices(size, 1)]
            least = _BESIDE / math.sqrt(size)
            beyond = float(np.sum(beside**2 - noise**2 / 2))
            found = (10 * least**2 + beyond) / (10 + len(beside))
            spread = math.sqrt(2 * max(found, (0.7 * least) ** 2))
        inverse = np.asarray(np.linalg.inv(_cholesky(expected)), np.float64)
        mean, precision = self._solved(root, weights, (inverse, spread))
        return Belief(mean, precision, spread, ((inverse @ root) ** 2).sum(axis=0))

    def _weights(self, root: Array, place: Array) -> Array:
        """Precision of entries of each release, as evidence on another place and metric."""
        found = []
        for each in self.releases:
            turn = each.inverse @ root
            moved = np.sum((root.T @ (each.place - place)) ** 2)
            changed = np.log(np.maximum(np.linalg.eigvalsh(turn.T @ turn), 1e-9))
            stale = _BY_PLACE**2 * moved / 2 + _BY_METRIC**2 * np.mean(changed**2)
            size = len(root)
            level = max(np.trace(each.value) / size, each.noise / math.sqrt(size))
            found.append(1 / (each.noise**2 + level**2 * stale))
        return np.array(found)

    def _solved(
        self, root: Array, weights: Array, prior: tuple[Array, float] | None = None
    ) -> tuple[Array, Array]:
        """Generalised least squares in the coordinates of a metric, by conjugate gradients.

        ``prior`` says that curvature is the identity after a turn, with such a spread. Returns the
        curvature and the precision of its entries.
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

        def applied(matrix: Array) -> Array:
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

    def _noise(self, inside: Array, weights: Array) -> float:
        """About the noise of all releases together, in coordinates of another root."""
        sizes = [
            len(inside) / np.sum(np.linalg.inv(each.inverse @ inside) ** 2)
            for each in self.releases
        ]
        return 1 / math.sqrt(max(float(weights @ np.square(sizes)), 1e-300))

    def _levelled(self, public: Array, raw: Array, root: Array, weights: Array) -> Array:
        """The public curvature with the level and the diagonal that were seen."""
        size = len(root)
        seen, inside = _within(public, raw, root)
        noise = self._noise(inside, weights)
        level, _ = merged(
            USUAL_LEVEL, _LEVEL_SPREAD**2, float(np.trace(seen)) / size, noise**2 / size
        )
        level = max(level, 0.2 * noise / math.sqrt(size), 0.02 * USUAL_LEVEL)
        expected = level * public
        scale = np.diag(expected)
        noises = [np.diag(np.linalg.inv(each.inverse.T @ each.inverse)) for each in self.releases]
        precision = sum(
            weight * (scale / noise) ** 2 for weight, noise in zip(weights, noises, strict=True)
        )
        trust = _DIAGONAL**2 / (_DIAGONAL**2 + 1 / precision)
        ratio = np.diag(root @ raw @ root.T) / scale
        factor = np.sqrt(np.maximum(1 + trust * (ratio - 1), 0.03))
        return np.asarray(factor[:, None] * expected * factor)

    def _spiked(self, expected: Array, raw: Array, root: Array, weights: Array) -> Array:
        """The same with the directions that stand out of the noise; of the others, the mean."""
        size = len(root)
        seen, inside = _within(expected, raw, root)
        noise = self._noise(inside, weights) / math.sqrt(2)
        values, vectors = np.linalg.eigh(seen)
        out = np.zeros(size, bool)
        for _ in range(size):
            beyond = np.abs(values - values[~out].mean()) > _EDGE * noise * math.sqrt(size)
            if (out | beyond).sum() >= size - 1 or not (beyond & ~out).any():
                break
            out |= beyond
        least = max(0.3 * noise / math.sqrt((~out).sum()), 0.02 * float(np.mean(np.abs(values))))
        bulk = max(float(values[~out].mean()), least)
        away = values - bulk
        # An eigenvalue that stands out is too far out, and its direction is not quite right.
        inner = np.sqrt(np.maximum(away**2 - 4 * noise**2 * size, 0))
        true = (np.abs(away) + inner) / 2 * np.sign(away)
        aligned = np.clip(1 - noise**2 * size / np.maximum(true**2, 1e-12), 0, 1)
        kept = np.where(out, np.maximum(bulk + true * aligned, 0.1 * bulk), bulk)
        return np.asarray(inside @ (vectors * kept) @ vectors.T @ inside.T)


def _cholesky(matrix: Array) -> Array:
    matrix = symmetric(matrix)
    tiny = 1e-10 * np.trace(matrix) / len(matrix)
    return np.asarray(np.linalg.cholesky(matrix + tiny * np.eye(len(matrix))))


def _within(expected: Array, raw: Array, root: Array) -> tuple[Array, Array]:
    """A curvature in coordinates in which the expected one is round, and their root."""
    inside = _cholesky(expected)
    turn = np.linalg.solve(inside, root)
    return turn @ raw @ turn.T, inside

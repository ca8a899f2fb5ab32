"""Distributions that lie above the posterior of logistic regression, once scaled.

Each is drawn exactly, from random bits that are drawn as far as a decision needs them. Where
they are centred and how wide they are follows the data, and matters to the time a draw takes
and not to what is drawn (PROOFS.md, Theorem 9).
"""

import math
from dataclasses import dataclass
from typing import Final, NamedTuple

import mpmath
import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.special import gammaln, ndtri

from tacit.privacy.noise import Randomness, Uniforms

Floats = NDArray[np.float64]
Exact = list[mpmath.mpf]
_TOP: Final = np.uint64(1) << np.uint64(63)
# A proposal is a little wider than the prior, to make up for rounding in where it is centred.
_WIDER: Final = 1 + 2.0**-11


class Bits(NamedTuple):
    """A batch of standard normal vectors, uniform vectors, and a uniform number for each."""

    words: NDArray[np.uint64]
    halves: Uniforms
    normals: Floats
    lengths: Uniforms
    decisions: Uniforms

    @classmethod
    def drawn(cls, bits: Randomness, count: int, dimension: int) -> "Bits":
        """Fresh ones."""
        words = bits.words(count * dimension)
        halves = Uniforms(words & ~_TOP, bits)
        normals = np.where(words & _TOP, 1.0, -1.0) * -ndtri(halves.values)
        lengths = Uniforms(bits.words(count * dimension), bits)
        decisions = Uniforms(bits.words(count), bits)
        return cls(words, halves, normals.reshape(count, dimension), lengths, decisions)

    def exact_normals(self, i: int) -> Exact:
        """A vector in high precision."""
        signs = [1 if self.words[k] & _TOP else -1 for k in self._places(i)]
        tails = [mpmath.erfinv(1 - 2 * self.halves.exact(k)) for k in self._places(i)]
        return [s * mpmath.sqrt(2) * tail for s, tail in zip(signs, tails, strict=True)]

    def exact_length(self, i: int) -> mpmath.mpf:
        """Minus the sum of logarithms of a uniform vector, in high precision."""
        return -mpmath.fsum(mpmath.log(self.lengths.exact(k)) for k in self._places(i))

    def _places(self, i: int) -> range:
        size = self.normals.shape[1]
        return range(i * size, (i + 1) * size)


class Proposals(NamedTuple):
    """Vectors; minus the log density they have, but for a constant; how large their parts are.

    A vector is wrong by less than (2 dimension + 16) 2^-50 of its ``size``.
    """

    vectors: Floats
    tilts: Floats
    sizes: Floats


class Shape(NamedTuple):
    """The log posterior where it is about highest: what an envelope is made from.

    ``height`` and ``slope`` may be wrong by ``height_error`` and, in norm, ``slope_error``.
    """

    place: Floats
    height: float
    height_error: float
    slope: Floats
    slope_error: float


@dataclass(frozen=True, eq=False)
class NormalEnvelope:
    """As wide as the prior, centred where the posterior is. [reject-normal]"""

    centre: Floats
    scale: float
    ceiling: float

    @classmethod
    def above(cls, shape: Shape, precision: float) -> "NormalEnvelope":
        """By strong concavity."""
        scale = _WIDER / math.sqrt(precision)
        centre = shape.place + shape.slope * scale**2
        lift = float(np.sum((centre - shape.place) ** 2)) / scale**2 / 2
        rounding = 2.0**-50 * (
            np.linalg.norm(shape.place) * precision + np.linalg.norm(shape.slope)
        )
        wrong = shape.slope_error + float(rounding)
        lift += wrong**2 / (2 * (precision - scale**-2))
        ceiling = shape.height + shape.height_error + lift
        return cls(centre, scale, ceiling + 2.0**-45 * (1 + abs(shape.height) + lift))

    @property
    def log_volume(self) -> float:
        """The less, the fewer proposals are rejected."""
        dimension = len(self.centre)
        return self.ceiling + dimension * math.log(self.scale * math.sqrt(2 * math.pi))

    def proposals(self, bits: Bits) -> Proposals:
        """A batch, in double precision."""
        z = bits.normals
        square = np.sum(z * z, axis=1)
        reach = self.scale * (np.sqrt(square) + z.shape[1])
        return Proposals(
            self.centre + self.scale * z, square / 2, np.linalg.norm(self.centre) + reach
        )

    def exact(self, bits: Bits, i: int) -> tuple[Exact, mpmath.mpf]:
        """One of them and its tilt, in high precision."""
        z, scale = bits.exact_normals(i), mpmath.mpf(self.scale)
        moved = [c + scale * each for c, each in zip(self.centre.tolist(), z, strict=True)]
        return moved, mpmath.fsum(each * each for each in z) / 2


@dataclass(frozen=True, eq=False)
class RadialEnvelope:
    """Falls off exponentially in the norm of the posterior's own curvature. [reject-radial]

    A vector is ``place`` + length x ``spread`` x direction; the length over ``rate`` is a sum of
    exponential variables.
    """

    place: Floats
    spread: Floats
    rate: float
    ceiling: float

    @classmethod
    def above(
        cls, shape: Shape, curvature: Floats, error: float, rows: Floats
    ) -> "RadialEnvelope | None":
        """By how fast the curvature of log sigma can change; None where it is too uncertain.

        ``curvature`` is minus the second derivative, wrong by at most ``error`` in norm.
        """
        dimension = len(shape.place)
        try:
            inverse = solve_triangular(np.linalg.cholesky(curvature), np.eye(dimension), lower=True)
        except np.linalg.LinAlgError:
            return None
        spread = np.ascontiguousarray(inverse.T)
        size = float(np.linalg.norm(spread))
        off = np.linalg.norm(spread.T @ curvature @ spread - np.eye(dimension))
        loss = float(off) + size**2 * (
            error + 2.0**-48 * dimension * float(np.linalg.norm(curvature))
        )
        pull = (float(np.linalg.norm(spread.T @ shape.slope)) + size * shape.slope_error) * 1.001
        reach = np.linalg.norm(rows @ spread, axis=1).max(initial=1e-3) * 1.001
        if not (loss < 0.1 and pull < 0.1 / (1 + reach)):
            return None
        return cls._best(shape, spread, float(reach), 1 - loss, pull)

    @classmethod
    def _best(
        cls, shape: Shape, spread: Floats, reach: float, share: float, pull: float
    ) -> "RadialEnvelope | None":
        """The tangent that makes the least volume."""
        dimension = len(shape.place)
        lengths = math.sqrt(dimension) * np.geomspace(0.2, 200, 400)
        fall = share * (np.exp(-reach * lengths) + reach * lengths - 1) / reach**2
        rates = -share * np.expm1(-reach * lengths) / reach - pull
        lifts = (rates + pull) * lengths - fall
        # Further out the curve is straight, and rounding could tip a tangent across it.
        usable = (rates > 0) & (reach * lengths < 20)
        volumes = np.where(usable, lifts - dimension * np.log(np.where(usable, rates, 1)), np.inf)
        best = int(np.argmin(volumes))
        if not usable[best]:
            return None
        lift = float(lifts[best]) + 1e-7 * (1 + float(lengths[best]))
        return cls(
            shape.place, spread, float(rates[best]), shape.height + shape.height_error + lift
        )

    @property
    def log_volume(self) -> float:
        """The less, the fewer proposals are rejected."""
        size = len(self.place)
        sphere = math.log(2) + size / 2 * math.log(math.pi) - gammaln(size / 2)
        _, log_det = np.linalg.slogdet(self.spread)
        return float(self.ceiling + sphere + log_det + gammaln(size) - size * math.log(self.rate))

    def proposals(self, bits: Bits) -> Proposals:
        """A batch, in double precision."""
        z = bits.normals
        count, size = z.shape
        tilts = -np.log(bits.lengths.values).reshape(count, size).sum(axis=1)
        norms = np.linalg.norm(z, axis=1)
        vectors = self.place + (tilts / self.rate / norms)[:, None] * (z @ self.spread.T)
        reach = np.linalg.norm(self.spread) * (tilts + size) / self.rate * (1 + size / norms)
        return Proposals(vectors, tilts, np.linalg.norm(self.place) + reach)

    def exact(self, bits: Bits, i: int) -> tuple[Exact, mpmath.mpf]:
        """One of them and its tilt, in high precision."""
        z, tilt = bits.exact_normals(i), bits.exact_length(i)
        factor = tilt / mpmath.mpf(self.rate) / mpmath.sqrt(mpmath.fsum(each * each for each in z))
        turned = [
            mpmath.fsum(a * each for a, each in zip(row, z, strict=True))
            for row in self.spread.tolist()
        ]
        moved = [p + factor * each for p, each in zip(self.place.tolist(), turned, strict=True)]
        return moved, tilt


Envelope = NormalEnvelope | RadialEnvelope

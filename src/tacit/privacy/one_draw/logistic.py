"""Exact draws from the posterior of logistic regression, by rejection.

The log posterior is concave at least as its normal prior is, and its curvature cannot change fast; so there are
distributions (envelopes) that lie above it everywhere once scaled, near its mode and not much wider: draws of those,
accepted with the ratio of the two, are exact draws of the posterior. Where envelopes are centred and how wide they
are depends on the data and does not matter: every decision is that of real arithmetic, from random bits that are
drawn as far as it needs them, so the accepted draw has the posterior's distribution and no other (PROOFS.md,
Theorem 9). How many are rejected is not released, but takes time.
"""

import math
from dataclasses import dataclass
from typing import Final, NamedTuple

import mpmath
import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.optimize import minimize
from scipy.special import expit, gammaln, ndtri

from tacit import _validate
from tacit.accounting import events
from tacit.accounting.events import DpEvent
from tacit.privacy.noise import MPMATH_LOCK, Randomness, Uniforms
from tacit.privacy.one_draw.claims import (
    ROUNDING_FACTOR,
    LogConcave,
    check_column,
    check_rows_per_unit,
    format_draws,
)
from tacit.privacy.one_draw.exact import EXACT_PRECISION
from tacit.privacy.rows import Rows

Floats = NDArray[np.float64]
Exact = list[mpmath.mpf]
_SIGN_BIT: Final = np.uint64(1) << np.uint64(63)
# A proposal is a little wider than the prior, to make up for rounding in where it is centred.
_PROPOSAL_WIDTH: Final = 1 + 2.0**-11


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
        halves = Uniforms(words & ~_SIGN_BIT, bits)
        normals = np.where(words & _SIGN_BIT, 1.0, -1.0) * -ndtri(halves.values)
        lengths = Uniforms(bits.words(count * dimension), bits)
        decisions = Uniforms(bits.words(count), bits)
        return cls(words, halves, normals.reshape(count, dimension), lengths, decisions)

    def exact_normals(self, i: int) -> Exact:
        """A vector in high precision."""
        signs = [1 if self.words[k] & _SIGN_BIT else -1 for k in self._places(i)]
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
        scale = _PROPOSAL_WIDTH / math.sqrt(precision)
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


# Numbers at a time that a batch of proposals may take, and proposals.
_MAX_NUMBERS_PER_BATCH, _MAX_PROPOSALS = 2**22, 256


@dataclass(frozen=True, kw_only=True)
class LogisticDraws:
    """Draws from the posterior of logistic regression with a normal prior. All public.

    The log odds of ``outcome`` are linear in the vector ``features``, of ``dimension`` numbers,
    which is shortened to norm ``radius``; the coefficients are normal around zero with
    ``precision``; the likelihood counts with a ``power``. A draw is rounded to multiples of
    ``resolution``.
    """

    features: str
    outcome: str
    dimension: int
    radius: float
    precision: float
    power: float
    resolution: float
    rows_per_unit: int = 1
    num_draws: int = 1

    def __post_init__(self) -> None:
        for name in ("radius", "precision", "resolution"):
            _validate.positive(name, vars(self)[name])
        for name in ("dimension", "rows_per_unit", "num_draws"):
            _validate.count(name, vars(self)[name])
        _validate.rate("power", self.power)

    @property
    def event(self) -> DpEvent:
        """The event to account for."""
        claim = LogConcave(slope=self.radius * self.rows_per_unit, concavity=self.precision)
        return events.repeat(claim.event(self.power), self.num_draws)

    @property
    def num_steps(self) -> int:
        """A release for each draw."""
        return self.num_draws

    def explain(self, unit: str, many: str) -> list[str]:
        """Lines for people."""
        pull = self.power * self.radius * self.rows_per_unit
        say = (
            f"The likelihood counts with a power of {self.power:.4g}; one {unit} pulls at the "
            f"coefficients with at most {pull:.4g}, against a prior of precision "
            f"{self.precision:.4g}."
        )
        return [f"{format_draws(self.num_draws)} by exact rejection, looking at all {many}.", say]


def check_rejection(mechanism: LogisticDraws, rows: Rows) -> None:
    """Raises what `draw_by_rejection` would raise, by a row of zeros."""
    check_rows_per_unit(rows, mechanism.rows_per_unit)
    check_column(rows, mechanism.features, (mechanism.dimension,))
    check_column(rows, mechanism.outcome, ())


def draw_by_rejection(mechanism: LogisticDraws, rows: Rows, bits: Randomness) -> Floats:
    """Coefficients drawn from the posterior of logistic regression, on the mechanism's lattice.

    Formal guarantees:
        Released: exact draws, rounded to multiples of the mechanism's resolution.
        Neighbours: add-remove and replace.
        Sensitivity under add-remove: `power * radius * rows_per_unit / sqrt(precision)`, as for
            Gaussian noise of variance one: the slope of a unit's log-likelihood, which is
            concave, over the root of the prior's precision.
        Sensitivity under replace: `2 * power * radius * rows_per_unit / sqrt(precision)`.
        Event: `LogisticDraws.event`.
        Public inputs: the mechanism.
        Theorem: 9.
    """
    target = _Target(_signed_rows(rows, mechanism), mechanism)
    return np.stack([_draw_one(target, bits) for _ in range(mechanism.num_draws)])


def _signed_rows(rows: Rows, mechanism: LogisticDraws) -> Floats:
    """Each row's features, shortened, with the sign of its outcome; zero if not finite.

    [reject-rows]
    """
    parts = [np.zeros((0, mechanism.dimension))]
    for here, (fields, present) in rows._chunks(2**14):
        real = present & here[:, None]
        features = np.asarray(fields[mechanism.features], np.float64)
        outcome = np.asarray(fields[mechanism.outcome], np.float64)
        usable = real & np.isfinite(features).all(axis=-1) & np.isfinite(outcome)
        kept = features[usable]
        length = np.linalg.norm(kept, axis=1, keepdims=True)
        longest = mechanism.radius * ROUNDING_FACTOR
        kept *= longest / np.maximum(length, longest)
        parts.append(kept * np.where(outcome[usable] > 0.5, 1.0, -1.0)[:, None])
    return np.concatenate(parts)


class _Target:
    """The log posterior, and a distribution above it, for one data set."""

    def __init__(self, rows: Floats, mechanism: LogisticDraws) -> None:
        self.rows, self.mechanism = rows, mechanism
        place = self._mode()
        shape = self._shape(place)
        curvature = self._curvature(place)
        lengths = mechanism.power * len(rows) * mechanism.radius**2 + mechanism.precision
        error = 2.0**-48 * (len(rows) + mechanism.dimension + 16) * lengths
        error *= 1 + mechanism.radius * float(np.linalg.norm(place))
        self.envelope: Envelope = NormalEnvelope.above(shape, mechanism.precision)
        radial = RadialEnvelope.above(shape, curvature, error, rows)
        if radial is not None and radial.log_volume < self.envelope.log_volume:
            self.envelope = radial

    def _mode(self) -> Floats:
        """About where the log posterior is highest; it need not be right."""
        start = np.zeros(self.mechanism.dimension)
        place: Floats = np.asarray(minimize(self._falling, start, jac=True, method="L-BFGS-B").x)
        for _ in range(3):
            place = place - np.linalg.solve(self._curvature(place), self._falling(place)[1])
        return place

    def _falling(self, theta: Floats) -> tuple[float, Floats]:
        """Minus the log posterior, and its gradient."""
        logits, mechanism = self.rows @ theta, self.mechanism
        value = (
            mechanism.power * np.logaddexp(0, -logits).sum()
            + mechanism.precision * theta @ theta / 2
        )
        slope = -mechanism.power * (expit(-logits) @ self.rows) + mechanism.precision * theta
        return float(value), slope

    def _curvature(self, theta: Floats) -> Floats:
        chance = expit(self.rows @ theta)
        weighted = self.rows * (chance * (1 - chance))[:, None]
        of_rows: Floats = self.mechanism.power * (self.rows.T @ weighted)
        return of_rows + self.mechanism.precision * np.eye(self.mechanism.dimension)

    def _shape(self, place: Floats) -> Shape:
        """Height and slope at a place, with bounds on what rounding did to them. [reject-shape]"""
        mechanism, count = self.mechanism, len(self.rows)
        value, slope = self._falling(place)
        length = float(np.linalg.norm(place)) + 1
        pull = mechanism.power * count * mechanism.radius * length * max(mechanism.radius, 1)
        rounding = 2.0**-48 * (count + mechanism.dimension + 16)
        slope_error = rounding * (pull + mechanism.precision * length)
        height_error = rounding * (abs(value) + pull + 1)
        return Shape(place, -value, height_error, -slope, slope_error)

    def log_ratios(self, proposals: Proposals) -> tuple[Floats, Floats]:
        """Log acceptance probabilities, and bounds on their errors. [reject-float]"""
        mechanism, (theta, tilts, sizes) = self.mechanism, proposals
        loss = _two_stage_sums(np.logaddexp(0, -(theta @ self.rows.T)))
        ratio = -mechanism.power * loss - mechanism.precision * np.sum(theta * theta, axis=1) / 2
        ratio += tilts - self.envelope.ceiling
        pull = mechanism.power * len(self.rows) * mechanism.radius * sizes
        parts = mechanism.power * loss + pull + mechanism.precision * sizes**2 + tilts
        steps = 2 * math.isqrt(len(self.rows)) + 4 * mechanism.dimension + 64
        return ratio, 2.0**-50 * steps * (
            parts + abs(self.envelope.ceiling) + mechanism.dimension + 1
        )

    def accepts(self, bits: Bits, i: int) -> bool:
        """The decision in high precision."""
        mechanism = self.mechanism
        with MPMATH_LOCK, mpmath.workprec(EXACT_PRECISION):
            theta, ratio = self.envelope.exact(bits, i)
            ratio -= mpmath.mpf(self.envelope.ceiling)
            ratio -= mechanism.precision * mpmath.fsum(each * each for each in theta) / 2
            for row in self.rows.tolist():
                logit = mpmath.fsum(x * each for x, each in zip(row, theta, strict=True))
                ratio -= mechanism.power * mpmath.log1p(mpmath.exp(-logit))
            return bool(mpmath.log(bits.decisions.exact(i)) < ratio)

    def rounded(self, proposals: Proposals, bits: Bits, i: int) -> Floats:
        """A proposal on the public lattice. [reject-round]"""
        unit = self.mechanism.resolution
        value = proposals.vectors[i] / unit
        whole = np.rint(value)
        doubt = 2.0**-49 * (2 * self.mechanism.dimension + 16) * proposals.sizes[i] / unit
        if (~(np.abs(value - whole) < 0.5 - doubt)).any():
            with MPMATH_LOCK, mpmath.workprec(EXACT_PRECISION):
                exact = [
                    mpmath.floor(each / unit + 0.5) for each in self.envelope.exact(bits, i)[0]
                ]
                whole = np.array([float(each) for each in exact])
        on_lattice: Floats = whole * unit
        return on_lattice


def _two_stage_sums(values: Floats) -> Floats:
    """Sums of long lines, in two stages, so that errors add up over few terms only."""
    length = values.shape[1]
    width = max(math.isqrt(length), 1)
    padded = np.pad(values, [(0, 0), (0, -length % width)])
    return np.asarray(padded.reshape(len(values), -1, width).sum(axis=2).sum(axis=1))


def _draw_one(target: _Target, bits: Randomness) -> Floats:
    """The first proposal that is accepted. [reject-loop]"""
    count = min(_MAX_PROPOSALS, _MAX_NUMBERS_PER_BATCH // (len(target.rows) + 1) + 1)
    while True:
        batch = Bits.drawn(bits, count, target.mechanism.dimension)
        proposals = target.envelope.proposals(batch)
        ratio, doubt = target.log_ratios(proposals)
        ahead = ratio - np.log(batch.decisions.values)
        for i in np.flatnonzero(~(ahead < -doubt)).tolist():
            if ahead[i] > doubt[i] or target.accepts(batch, i):
                return target.rounded(proposals, batch, i)

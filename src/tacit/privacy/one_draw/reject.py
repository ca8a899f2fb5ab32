"""One exact draw from the posterior of logistic regression, by rejection.

The log posterior is concave at least as its normal prior is, and its curvature cannot change
fast; so there are distributions that lie above it everywhere once scaled, near its mode
and not much wider: draws of those, accepted with the ratio of the two, are exact draws of the
posterior. Where they are centred depends on the data and does not matter: every decision is
that of real arithmetic, so the accepted draw has the posterior's distribution and no other
(PROOFS.md, Theorem 9). How many are rejected is not released, but takes time.
"""

import math
from dataclasses import dataclass
from typing import Any

import mpmath
import numpy as np
from dp_accounting.dp_event import DpEvent
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit

from tacit import _validate
from tacit.accounting import events
from tacit.privacy.noise import PRECISION, Randomness
from tacit.privacy.one_draw.choice import BITS
from tacit.privacy.one_draw.claims import (
    BELOW,
    LogConcave,
    check_column,
    check_rows_per_unit,
    draws,
)
from tacit.privacy.one_draw.envelope import (
    Bits,
    Envelope,
    NormalEnvelope,
    Proposals,
    RadialEnvelope,
    Shape,
)
from tacit.privacy.rows import Rows

Floats = NDArray[np.float64]
# Numbers at a time that a batch of proposals may take, and proposals.
_ROOM, _BATCH = 2**22, 256


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
        return [f"{draws(self.num_draws)} by exact rejection, looking at all {many}.", say]


def check_rejection(mechanism: LogisticDraws, rows: Rows) -> None:
    """Raises what `draw_by_rejection` would raise, by a row of zeros."""
    check_rows_per_unit(rows, mechanism.rows_per_unit)
    check_column(rows, mechanism.features, (mechanism.dimension,))
    check_column(rows, mechanism.outcome, ())


def draw_by_rejection(mechanism: LogisticDraws, rows: Rows, bits: Randomness) -> Floats:
    """Coefficients drawn from the posterior of logistic regression, on the mechanism's lattice.

    Guarantee:
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
    return np.stack([_one(target, bits) for _ in range(mechanism.num_draws)])


def _signed_rows(rows: Rows, mechanism: LogisticDraws) -> Floats:
    """Each row's features, shortened, with the sign of its outcome; zero if not finite.

    [reject-rows]
    """
    parts = [np.zeros((0, mechanism.dimension))]
    for here, fields, present in rows._chunks(2**14):
        real = here if present is None else present & here[:, None]
        features = (
            fields[mechanism.features].astype(np.float64).reshape(*real.shape, mechanism.dimension)
        )
        outcome = fields[mechanism.outcome].astype(np.float64).reshape(real.shape)
        usable = real & np.isfinite(features).all(axis=-1) & np.isfinite(outcome)
        kept = features[usable]
        length = np.linalg.norm(kept, axis=1, keepdims=True)
        kept *= mechanism.radius * BELOW / np.maximum(length, mechanism.radius * BELOW)
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
        loss = _sums(np.logaddexp(0, -(theta @ self.rows.T)))
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
        with PRECISION, mpmath.workprec(BITS):
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
            with PRECISION, mpmath.workprec(BITS):
                exact = [
                    mpmath.floor(each / unit + 0.5) for each in self.envelope.exact(bits, i)[0]
                ]
                whole = np.array([float(each) for each in exact])
        on_lattice: Floats = whole * unit
        return on_lattice


def _sums(values: Any) -> Floats:
    """Sums of long lines, in two stages, so that errors add up over few terms only."""
    length = values.shape[1]
    width = max(math.isqrt(length), 1)
    padded = np.pad(values, [(0, 0), (0, -length % width)])
    return np.asarray(padded.reshape(len(values), -1, width).sum(axis=2).sum(axis=1))


def _one(target: _Target, bits: Randomness) -> Floats:
    """The first proposal that is accepted. [reject-loop]"""
    count = min(_BATCH, _ROOM // (len(target.rows) + 1) + 1)
    while True:
        batch = Bits.drawn(bits, count, target.mechanism.dimension)
        proposals = target.envelope.proposals(batch)
        ratio, doubt = target.log_ratios(proposals)
        ahead = ratio - np.log(batch.decisions.values)
        for i in np.flatnonzero(~(ahead < -doubt)).tolist():
            if ahead[i] > doubt[i] or target.accepts(batch, i):
                return target.rounded(proposals, batch, i)

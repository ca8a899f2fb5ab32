"""One exact draw from the posterior of logistic regression, by rejection.

The log posterior is at least as concave as its normal prior, so a normal distribution of
the prior's precision, put where the posterior's mode is, lies above it everywhere after
scaling: draws of the one, accepted with the ratio of the two, are exact draws of the other.
Where it is centred depends on the data and does not matter: every decision is that of real
arithmetic, so the accepted draw has the posterior's distribution and no other (PROOFS.md,
Theorem L). How many are rejected is not released, but takes time.
"""

import math
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import mpmath
import numpy as np
from dp_accounting.dp_event import DpEvent
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, ndtri

from tacit import _validate
from tacit.accounting import events
from tacit.privacy.choice import BITS
from tacit.privacy.claims import BELOW, LogConcave, check_rows_per_unit, draws
from tacit.privacy.gate import Gate
from tacit.privacy.noise import PRECISION, Randomness, Uniforms
from tacit.privacy.rows import Rows

Floats = NDArray[np.float64]
_TOP: Final = np.uint64(1) << np.uint64(63)
# A proposal is a little wider than the prior, to make up for rounding in where it is centred.
_WIDER: Final = 1 + 2.0**-11
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
            _validate.positive(name, getattr(self, name))
        for name in ("dimension", "rows_per_unit", "num_draws"):
            _validate.count(name, getattr(self, name))
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


def draw_by_rejection(gate: Gate) -> Floats:
    """Coefficients drawn from the posterior of logistic regression, on the plan's lattice.

    Privacy
        Released: exact draws, rounded to multiples of the plan's resolution. Sensitivity: a
        row's log-likelihood is concave and its gradient no longer than the radius; the
        posterior is strongly log-concave with the prior's precision. Event:
        `LogisticDraws.event`; PROOFS.md, Theorem L. Public inputs: the plan.
    """
    plan: LogisticDraws = gate.plan
    check_rows_per_unit(gate, plan.rows_per_unit)
    rows, bits = gate.spend()
    target = _Target(_signed_rows(rows, plan), plan)
    return np.stack([_one(target, bits) for _ in range(plan.num_draws)])


def _signed_rows(rows: Rows, plan: LogisticDraws) -> Floats:
    """Each row's features, shortened, with the sign of its outcome; zero if not finite.

    [reject-rows]
    """
    parts = [np.zeros((0, plan.dimension))]
    for here, fields, present in rows.chunks(2**14):
        real = here if present is None else present & here[:, None]
        features = fields[plan.features].astype(np.float64).reshape(*real.shape, plan.dimension)
        outcome = fields[plan.outcome].astype(np.float64).reshape(real.shape)
        usable = real & np.isfinite(features).all(axis=-1) & np.isfinite(outcome)
        kept = features[usable]
        length = np.linalg.norm(kept, axis=1, keepdims=True)
        kept *= plan.radius * BELOW / np.maximum(length, plan.radius * BELOW)
        parts.append(kept * np.where(outcome[usable] > 0.5, 1.0, -1.0)[:, None])
    return np.concatenate(parts)


class _Proposals(NamedTuple):
    """A batch of standard normal vectors, and a uniform number for each."""

    words: NDArray[np.uint64]
    halves: Uniforms
    normals: Floats
    uniforms: Uniforms

    @classmethod
    def drawn(cls, bits: Randomness, count: int, dimension: int) -> "_Proposals":
        words = bits.words(count * dimension)
        halves = Uniforms(words & ~_TOP, bits)
        normals = np.where(words & _TOP, 1.0, -1.0) * -ndtri(halves.values)
        return cls(
            words, halves, normals.reshape(count, dimension), Uniforms(bits.words(count), bits)
        )

    def exact(self, i: int) -> list[mpmath.mpf]:
        """The same vector in high precision."""
        size = self.normals.shape[1]
        places = range(i * size, (i + 1) * size)
        signs = [1 if self.words[k] & _TOP else -1 for k in places]
        tails = [mpmath.erfinv(1 - 2 * self.halves.exact(k)) for k in places]
        return [s * mpmath.sqrt(2) * tail for s, tail in zip(signs, tails, strict=True)]


class _Target:
    """The log posterior and a normal distribution above it, for one data set."""

    def __init__(self, rows: Floats, plan: LogisticDraws) -> None:
        self.rows, self.plan = rows, plan
        self.scale = _WIDER / math.sqrt(plan.precision)
        mode: Floats = np.asarray(
            minimize(self._falling, np.zeros(plan.dimension), jac=True, method="L-BFGS-B").x
        )
        slope = -self._falling(mode)[1]
        self.centre = mode + slope * self.scale**2
        self.ceiling = self._ceiling(mode, slope)

    def _falling(self, theta: Floats) -> tuple[float, Floats]:
        """Minus the log posterior, and its gradient."""
        logits, plan = self.rows @ theta, self.plan
        value = plan.power * np.logaddexp(0, -logits).sum() + plan.precision * theta @ theta / 2
        slope = -plan.power * (expit(-logits) @ self.rows) + plan.precision * theta
        return float(value), slope

    def _ceiling(self, mode: Floats, slope: Floats) -> float:
        """At least what the log posterior exceeds the proposal's by, anywhere. [reject-ceiling]"""
        plan, size = self.plan, len(self.rows)
        length = float(np.linalg.norm(mode)) + 1
        pull = plan.power * size * plan.radius * length * max(plan.radius, 1)
        rounding = 2.0**-48 * (size + plan.dimension + 16)
        wrong = rounding * (pull + plan.precision * length + float(np.linalg.norm(slope)))
        spare = plan.precision - self.scale**-2
        lift = np.sum((self.centre - mode) ** 2) / self.scale**2 / 2 + wrong**2 / (2 * spare)
        height = -self._falling(mode)[0]
        return float(height + lift + rounding * (abs(height) + lift + pull + 1))

    def log_ratios(self, proposals: _Proposals) -> tuple[Floats, Floats]:
        """Log acceptance probabilities, and bounds on their errors. [reject-float]"""
        plan, z = self.plan, proposals.normals
        theta = self.centre + self.scale * z
        losses = np.logaddexp(0, -(theta @ self.rows.T))
        length = np.linalg.norm(self.centre) + self.scale * (np.linalg.norm(z, axis=1) + z.shape[1])
        loss, square = _sums(losses), np.sum(z * z, axis=1)
        ratio = -plan.power * loss - plan.precision * np.sum(theta * theta, axis=1) / 2
        ratio += square / 2 - self.ceiling
        pull = plan.power * len(self.rows) * plan.radius * length
        sizes = plan.power * loss + pull + plan.precision * length**2 + square + abs(self.ceiling)
        steps = 2 * math.isqrt(len(self.rows)) + 2 * plan.dimension + 64
        return ratio, 2.0**-50 * steps * (sizes + 1)

    def accepts(self, proposals: _Proposals, i: int) -> bool:
        """The decision in high precision."""
        plan = self.plan
        with PRECISION, mpmath.workprec(BITS):
            z = proposals.exact(i)
            theta = self._moved(z)
            ratio = mpmath.fsum(each * each for each in z) / 2 - mpmath.mpf(self.ceiling)
            ratio -= plan.precision * mpmath.fsum(each * each for each in theta) / 2
            for row in self.rows.tolist():
                logit = mpmath.fsum(x * each for x, each in zip(row, theta, strict=True))
                ratio -= plan.power * mpmath.log1p(mpmath.exp(-logit))
            return bool(mpmath.log(proposals.uniforms.exact(i)) < ratio)

    def rounded(self, proposals: _Proposals, i: int) -> Floats:
        """A proposal on the public lattice. [reject-round]"""
        unit, z = self.plan.resolution, proposals.normals[i]
        value = (self.centre + self.scale * z) / unit
        whole = np.rint(value)
        doubt = 2.0**-46 * (np.abs(self.centre) + self.scale * (np.abs(z) + 1)) / unit
        if (~(np.abs(value - whole) < 0.5 - doubt)).any():
            with PRECISION, mpmath.workprec(BITS):
                exact = [
                    mpmath.floor(each / unit + 0.5) for each in self._moved(proposals.exact(i))
                ]
                whole = np.array([float(each) for each in exact])
        on_lattice: Floats = whole * unit
        return on_lattice

    def _moved(self, z: list[mpmath.mpf]) -> list[mpmath.mpf]:
        return [
            c + mpmath.mpf(self.scale) * each
            for c, each in zip(self.centre.tolist(), z, strict=True)
        ]


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
        proposals = _Proposals.drawn(bits, count, target.plan.dimension)
        ratio, doubt = target.log_ratios(proposals)
        ahead = ratio - np.log(proposals.uniforms.values)
        for i in np.flatnonzero(~(ahead < -doubt)).tolist():
            if ahead[i] > doubt[i] or target.accepts(proposals, i):
                return target.rounded(proposals, i)

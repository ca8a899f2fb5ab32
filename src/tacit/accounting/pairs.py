"""Dominating pairs: for one release, the two distributions that are hardest to distinguish.

A pair (P, Q) dominates a release if no pair of neighbouring data sets is easier to distinguish from its output
than P is from Q. Dominating pairs compose, also when each release is chosen after seeing the earlier ones (Zhu,
Dong and Wang 2022, Theorem 10).

All that the composition in `pld` needs of a pair is how the privacy loss L = log dP/dQ is distributed under P and
under Q, given by its tails. Each tail keeps full relative precision where it is small, to within `TAIL_ERROR`.

`dominating_pairs` maps an event to its pairs. Under add-remove a sampled release has two, for the unit's removal
and its addition; every other release is symmetric and has one.
"""

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from tacit.accounting import events
from tacit.accounting.budget import Adjacency
from tacit.accounting.events import DpEvent
from tacit.errors import UnsupportedEvent

Array = NDArray[np.float64]

# Bound on the relative error of every tail below, but for an ulp of the loss itself (P and Q
# share the rounded edge, so that amounts to a grid moved by an ulp). SciPy's ndtr states
# 3.4e-14 at worst; the rest covers the rounding of its argument.
TAIL_ERROR = 2e-13


class Pair(Protocol):
    """The privacy loss of a dominating pair, by its tails."""

    @property
    def max_loss(self) -> float:
        """The largest possible loss: the epsilon of pure differential privacy."""
        ...

    def upper(self, loss: Array) -> tuple[Array, Array]:
        """P(L > loss) and Q(L > loss)."""
        ...

    def lower(self, loss: Array) -> tuple[Array, Array]:
        """P(L <= loss) and Q(L <= loss)."""
        ...


@dataclass(frozen=True)
class GaussianPair:
    """N(mu, 1) against N(0, 1): Gaussian noise, `mu` = sensitivity / noise std."""

    mu: float
    max_loss = math.inf

    def upper(self, loss: Array) -> tuple[Array, Array]:
        return ndtr(self.mu / 2 - loss / self.mu), ndtr(-self.mu / 2 - loss / self.mu)

    def lower(self, loss: Array) -> tuple[Array, Array]:
        return ndtr(loss / self.mu - self.mu / 2), ndtr(loss / self.mu + self.mu / 2)


@dataclass(frozen=True)
class RemovedPair:
    """(1-q) N(0) + q N(1) against N(0): a Poisson-sampled unit, in the data or not.

    `scale` is the noise std in units of the sensitivity.
    """

    rate: float
    scale: float
    max_loss = math.inf

    def _edge(self, loss: Array) -> Array:
        # loss = log(1 - q + q exp((2x - 1) / (2 scale^2))), solved for z = x / scale.
        q, large = self.rate, 30.0
        inner = np.maximum(np.expm1(np.minimum(loss, large)) / q, -1.0)
        with np.errstate(divide="ignore"):
            tilt = np.where(
                loss > large,
                loss - math.log(q) + np.log1p(-(1 - q) * np.exp(-np.maximum(loss, large))),
                np.log1p(inner),
            )
        return self.scale * tilt + 0.5 / self.scale

    def upper(self, loss: Array) -> tuple[Array, Array]:
        z, q = self._edge(loss), self.rate
        out = ndtr(-z)
        return (1 - q) * out + q * ndtr(1 / self.scale - z), out

    def lower(self, loss: Array) -> tuple[Array, Array]:
        z, q = self._edge(loss), self.rate
        out = ndtr(z)
        return (1 - q) * out + q * ndtr(z - 1 / self.scale), out


@dataclass(frozen=True)
class AddedPair:
    """N(0) against (1-q) N(0) + q N(1): `RemovedPair` seen from the other world."""

    rate: float
    scale: float

    @property
    def max_loss(self) -> float:
        return -math.log1p(-self.rate) if self.rate < 1 else math.inf

    def upper(self, loss: Array) -> tuple[Array, Array]:
        q, p = RemovedPair(self.rate, self.scale).lower(-loss)
        return p, q

    def lower(self, loss: Array) -> tuple[Array, Array]:
        q, p = RemovedPair(self.rate, self.scale).upper(-loss)
        return p, q


@dataclass(frozen=True)
class ReplacedPair:
    """(1-q) N(0) + q N(1) against (1-q) N(0) + q N(-1): a Poisson-sampled unit exchanged.

    Opposite vectors of full length are the worst in any dimension (the case that
    dp-accounting takes, too; src/tacit/privacy/PROOFS.md, Theorem 1).
    """

    rate: float
    scale: float
    max_loss = math.inf

    def _edge(self, loss: Array) -> Array:
        # With u = exp(x / scale^2) the loss equation is a quadratic in u, whose root is
        # log u = loss / 2 + asinh(sinh(loss / 2) (1 - q) / (q c)), c = exp(-1 / (2 scale^2)).
        q, half = self.rate, np.abs(loss) / 2
        with np.errstate(divide="ignore"):
            log_ratio = np.log(1 - q) - math.log(q) + 0.5 / self.scale**2
            log_sinh = half + np.log(-np.expm1(-2 * half)) - math.log(2)
        return self.scale * np.sign(loss) * (half + _asinh_exp(log_ratio + log_sinh))

    def upper(self, loss: Array) -> tuple[Array, Array]:
        z, q = self._edge(loss), self.rate
        out, step = ndtr(-z), 1 / self.scale
        return (1 - q) * out + q * ndtr(step - z), (1 - q) * out + q * ndtr(-step - z)

    def lower(self, loss: Array) -> tuple[Array, Array]:
        z, q = self._edge(loss), self.rate
        out, step = ndtr(z), 1 / self.scale
        return (1 - q) * out + q * ndtr(z - step), (1 - q) * out + q * ndtr(z + step)


@dataclass(frozen=True)
class SwappedPair:
    """A unit exchanged, with fixed-size batches drawn without replacement.

    `RemovedPair` above zero and `AddedPair` below, both at the sensitivity of an
    exchange (Zhu, Dong and Wang 2022, Proposition 30): `scale` is the noise std over
    twice the clip.
    """

    rate: float
    scale: float
    max_loss = math.inf

    def upper(self, loss: Array) -> tuple[Array, Array]:
        return self._join(
            loss,
            RemovedPair(self.rate, self.scale).upper(loss),
            AddedPair(self.rate, self.scale).upper(loss),
        )

    def lower(self, loss: Array) -> tuple[Array, Array]:
        return self._join(
            loss,
            RemovedPair(self.rate, self.scale).lower(loss),
            AddedPair(self.rate, self.scale).lower(loss),
        )

    @staticmethod
    def _join(
        loss: Array, above: tuple[Array, Array], below: tuple[Array, Array]
    ) -> tuple[Array, Array]:
        high = loss >= 0
        return np.where(high, above[0], below[0]), np.where(high, above[1], below[1])


@dataclass(frozen=True)
class BoundedRangePair:
    """A release whose loss lies in an interval of length `width`, wherever that sits.

    The exponential mechanism, one posterior sample, and the Barker accept bit, whose
    logit moves by at most `width`. The pair's curve is the largest hockey-stick
    divergence of two Bernoulli variables with logits a and a - width over all a
    (Dong, Durfee and Rogers 2020), attained at the logit `_log_odds` below; the
    tails follow from the curve and its slope.
    """

    width: float

    @property
    def max_loss(self) -> float:
        return self.width

    def _log_odds(self, loss: Array) -> Array:
        inside = np.clip(loss, -self.width, self.width)
        with np.errstate(divide="ignore"):
            return (
                self.width / 2
                + np.log(np.sinh(self._quarter(self.width - inside)))
                - np.log(np.sinh(self._quarter(self.width + inside)))
            )

    @staticmethod
    def _quarter(gap: Array) -> Array:
        return np.minimum(gap / 4, 700.0)

    def upper(self, loss: Array) -> tuple[Array, Array]:
        logit = self._log_odds(loss)
        return _sigmoid(logit), _sigmoid(logit - self.width)

    def lower(self, loss: Array) -> tuple[Array, Array]:
        logit = self._log_odds(loss)
        return _sigmoid(-logit), _sigmoid(self.width - logit)


@dataclass(frozen=True)
class LaplacePair:
    """Laplace noise: the loss has atoms at +-`max_loss` and spreads between them."""

    max_loss: float

    def upper(self, loss: Array) -> tuple[Array, Array]:
        top = self.max_loss
        inside = np.clip(loss, -top, top)
        p = np.where(loss < -top, 1.0, -np.expm1(-(top - inside) / 2 - math.log(2)))
        q = np.where(loss < -top, 1.0, np.exp(-(top + inside) / 2) / 2)
        return np.where(loss >= top, 0.0, p), np.where(loss >= top, 0.0, q)

    def lower(self, loss: Array) -> tuple[Array, Array]:
        top = self.max_loss
        inside = np.clip(loss, -top, top)
        p = np.where(loss >= top, 1.0, np.exp(-(top - inside) / 2) / 2)
        q = np.where(loss >= top, 1.0, -np.expm1(-(top + inside) / 2 - math.log(2)))
        return np.where(loss < -top, 0.0, p), np.where(loss < -top, 0.0, q)


@dataclass(frozen=True)
class FinitePair:
    """A release with a few outcomes, by their probabilities in the two worlds."""

    p: tuple[float, ...]
    q: tuple[float, ...]

    @property
    def max_loss(self) -> float:
        return float(np.max(self._losses()))

    def _losses(self) -> Array:
        with np.errstate(divide="ignore"):
            losses: Array = np.log(np.asarray(self.p)) - np.log(np.asarray(self.q))
        return losses

    def upper(self, loss: Array) -> tuple[Array, Array]:
        above = self._losses()[:, None] > np.atleast_1d(loss)
        return self._mass(above, loss)

    def lower(self, loss: Array) -> tuple[Array, Array]:
        below = self._losses()[:, None] <= np.atleast_1d(loss)
        return self._mass(below, loss)

    def _mass(self, chosen: NDArray[np.bool_], loss: Array) -> tuple[Array, Array]:
        shape = np.shape(loss)
        p, q = np.asarray(self.p) @ chosen, np.asarray(self.q) @ chosen
        return p.reshape(shape), q.reshape(shape)


def randomised_response_pair(noise: float, categories: int) -> FinitePair:
    """An answer kept with probability 1 - noise, else drawn from all `categories`."""
    other = noise / categories
    own, rest = 1 - noise + other, noise * (categories - 2) / categories
    same = (rest,) if rest > 0 else ()
    return FinitePair(p=(own, other, *same), q=(other, own, *same))


def _sigmoid(logit: Array) -> Array:
    small = np.exp(-np.abs(logit))
    return np.asarray(np.where(logit >= 0, 1.0, small) / (1 + small))


def _asinh_exp(exponent: Array) -> Array:
    """asinh(exp(exponent)), without overflow."""
    large = exponent > 15
    shrunk = np.exp(-2 * np.maximum(exponent, 15))
    return np.where(
        large,
        exponent + np.log1p(np.sqrt(1 + shrunk)),
        np.arcsinh(np.exp(np.minimum(exponent, 15))),
    )


def dominating_pairs(  # noqa: C901, PLR0911, PLR0912 (a table)
    event: DpEvent, adjacency: Adjacency
) -> tuple[Pair, ...]:
    """The pairs that dominate one release; raises where none is known."""
    change = 2.0 if adjacency == "replace" else 1.0
    match event:
        case events.GaussianDpEvent(noise_multiplier=scale):
            return (GaussianPair(change / scale),)
        case events.GaussianBarkerTest(ratio_bound=bound, noise_variance=variance):
            return (GaussianPair(change * bound / math.sqrt(variance)),)
        case events.LogConcavePosteriorSample(lipschitz=slope, concavity=concavity):
            return (GaussianPair(change * slope / math.sqrt(concavity)),)
        case events.LaplaceDpEvent(noise_multiplier=scale):
            return (LaplacePair(change / scale),)
        case events.BarkerTest(ratio_bound=bound):
            return (BoundedRangePair(change * bound),)
        case events.BoundedPosteriorSample(likelihood_bound=bound):
            # A unit's term lies in [-B, B] over the parameters; two units' difference in
            # [-2B, 2B]: the loss lies in an interval of twice that length.
            return (BoundedRangePair(2 * change * bound),)
        case events.LipschitzPosteriorSample(lipschitz=slope, radius=radius):
            _check_replace(event, adjacency)
            return (BoundedRangePair(4 * slope * radius),)
        case events.RandomizedResponseDpEvent(noise_parameter=noise, num_buckets=categories):
            _check_replace(event, adjacency)
            return (randomised_response_pair(noise, categories),)
        case events.PoissonSampledDpEvent(
            sampling_probability=rate, event=events.GaussianDpEvent(noise_multiplier=scale)
        ):
            if adjacency == "replace":
                return (ReplacedPair(rate, scale),)
            return RemovedPair(rate, scale), AddedPair(rate, scale)
        case events.SampledWithoutReplacementDpEvent(
            sample_size=batch,
            source_dataset_size=size,
            event=events.GaussianDpEvent(noise_multiplier=scale),
        ):
            _check_replace(event, adjacency)
            if batch == size:
                return (GaussianPair(change / scale),)
            return (SwappedPair(batch / size, scale / 2),)
        case events.SubsampledBarkerTest():
            _check_replace(event, adjacency)
    raise UnsupportedEvent(
        f"No dominating pair is known for {type(event).__name__}; "
        "describe the run with the events in tacit.accounting.events."
    )


def _check_replace(event: DpEvent, adjacency: Adjacency) -> None:
    """Refuses add-remove for an event whose theorem speaks of replacing only."""
    if adjacency != "replace":
        raise UnsupportedEvent(
            f'{type(event).__name__} has no proved bound under add-remove; use adjacency="replace".'
        )

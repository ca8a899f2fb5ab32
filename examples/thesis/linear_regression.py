"""Bayesian linear regression in closed form and by coordinate ascent: thesis Examples 3.2, 3.16.

Both read the data through four sums only, so a single noisy release of those makes both private.

python examples/thesis/linear_regression.py
"""

import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from scipy import integrate, special

from tacit.accounting import Budget, calibrate
from tacit.privacy.gate import Gate, run
from tacit.privacy.mechanisms import NoisySums, sum_rows
from tacit.privacy.noise import Randomness
from tacit.privacy.rows import Rows

PEOPLE, SLOPE, NOISE_VARIANCE = 1000, 0.7, 0.04
BUDGET = Budget(1.0, 1e-6)
# Priors: of the variance of y, inverse gamma; of the precision of w, in units of that, gamma.
SHAPE, RATE, PRECISION = 1.0, 0.1, 1.0
ALPHA, BETA = 1.0, 1.0


class Sums(NamedTuple):
    """All that either example reads of the data."""

    xx: float
    xy: float
    yy: float
    people: float


class Posterior(NamedTuple):
    """Normal-inverse-gamma: w given the variance is normal, the variance inverse gamma."""

    mean: float
    precision: float
    shape: float
    rate: float

    @property
    def slope_std(self) -> float:
        """Of w, whose marginal is Student's."""
        return math.sqrt(self.rate / (self.precision * (self.shape - 1)))

    @property
    def variance(self) -> float:
        """Mean of the variance of y."""
        return self.rate / (self.shape - 1)


def conjugate(sums: Sums, precision: float = PRECISION) -> Posterior:
    """Example 3.2. (Its b counts double where it is printed: here is half of that sum.)"""
    total = sums.xx + precision
    mean = sums.xy / total
    rate = RATE + (sums.yy - total * mean**2) / 2
    return Posterior(mean, total, SHAPE + sums.people / 2, rate)


def log_evidence(sums: Sums, precision: float = PRECISION) -> float:
    """Example 3.2's ln p(y)."""
    found = conjugate(sums, precision)
    return (
        -sums.people / 2 * math.log(2 * math.pi)
        + SHAPE * math.log(RATE)
        - special.gammaln(SHAPE)
        + special.gammaln(found.shape)
        - found.shape * math.log(found.rate)
        + math.log(precision / found.precision) / 2
    )


def log_evidence_by_integration(sums: Sums) -> float:
    """The same by adding up the joint density of y, w and the variance over a grid."""
    found = conjugate(sums)
    w = found.mean + found.slope_std * np.linspace(-9, 9, 801)[:, None]
    log_tau = math.log(found.variance) + np.linspace(-1, 1, 801) * 12 / math.sqrt(found.shape)
    residual = sums.yy - 2 * w * sums.xy + w**2 * sums.xx
    joint = (
        -sums.people / 2 * (math.log(2 * math.pi) + log_tau)
        + math.log(PRECISION / (2 * math.pi)) / 2
        + SHAPE * math.log(RATE)
        - special.gammaln(SHAPE)
        - (SHAPE + 1.5) * log_tau
        - (residual + 2 * RATE + PRECISION * w**2) / (2 * np.exp(log_tau))
        + log_tau
    )
    top = joint.max()
    inner = integrate.trapezoid(np.exp(joint - top), log_tau, axis=1)
    return top + math.log(integrate.trapezoid(inner, w[:, 0]))


def coordinate_ascent(sums: Sums, rounds: int = 50) -> tuple[Posterior, float]:
    """Example 3.16: q(w, variance) and q(precision) in turn. Also the mean of the precision."""
    expected = 1.0
    for _ in range(rounds):
        found = conjugate(sums, expected)
        square = 1 / found.precision + found.mean**2 * found.shape / found.rate
        expected = (ALPHA + 0.5) / (BETA + square / 2)
    return found, expected


def exact_mixture(sums: Sums) -> tuple[float, float, float]:
    """What 3.16 approximates: means of w, its std and the precision, by integrating over it."""
    grid = np.exp(np.linspace(-12, 6, 4001))
    logs = np.array([log_evidence(sums, each) for each in grid])
    weights = np.exp(logs - logs.max()) * grid ** (ALPHA - 1) * np.exp(-BETA * grid) * grid
    weights /= weights.sum()
    each = [conjugate(sums, precision) for precision in grid]
    means, stds = (np.array(v) for v in zip(*((p.mean, p.slope_std) for p in each), strict=True))
    mean = weights @ means
    return mean, math.sqrt(weights @ (stds**2 + means**2) - mean**2), weights @ grid


def products(_, row):
    x, y = jnp.clip(row["x"], -1, 1), jnp.clip(row["y"], -1, 1)
    return jnp.stack([x * x, x * y, y * y, jnp.ones_like(x)])


def ask(state, _, release):
    return state, release.noisy_sum(sum_rows(products), ())


def released_sums(rows: Rows, source: Randomness) -> tuple[Sums, float]:
    """All four sums in one release. With x and y in [-1, 1] no row is longer than 2."""
    settings = NoisySums(
        sampling_rate=1.0,
        num_steps=1,
        clip=2.0,
        noise_multiplier=calibrate.noise_multiplier(BUDGET),
        dimension=4,
    )
    gate = Gate(rows, settings, source)
    out = run(gate, ask, jnp.zeros(()), lambda _, steps: np.zeros(steps, np.float32))[1]
    return Sums(*out.ravel().tolist()), settings.phases[0][0] * settings.clip


def main(seed: int | None = None) -> None:
    generator = np.random.default_rng(2)
    x = generator.uniform(-1, 1, PEOPLE)
    y = SLOPE * x + math.sqrt(NOISE_VARIANCE) * generator.standard_normal(PEOPLE)
    y = np.clip(y, -1, 1)
    clear = Sums(float(x @ x), float(x @ y), float(y @ y), float(PEOPLE))
    print("Example 3.2 claims the posterior and the evidence in closed form.")
    gap = log_evidence(clear) - log_evidence_by_integration(clear)
    print(f"ln p(y) = {log_evidence(clear):.4f}; by integration it differs by {gap:.1e}.")
    found = conjugate(clear)
    print(_line("w", found), end="\n\n")

    print("Example 3.16 claims an approximation where the prior precision is unknown.")
    ascended, precision = coordinate_ascent(clear)
    mean, std, expected = exact_mixture(clear)
    print(_line("w by coordinate ascent", ascended))
    print(f"w by integration: {mean:.6f} +- {std:.6f}")
    print(f"prior precision: {precision:.4f} by coordinate ascent, {expected:.4f} by integration\n")

    noisy, noise = released_sums(Rows({"x": x, "y": y}), Randomness(seed))
    print(
        f"Both from one release of the four sums, epsilon {BUDGET.epsilon:g} at {BUDGET.delta:g}:"
    )
    print(f"noise of {noise:.2f} in each, where they are {', '.join(f'{v:.0f}' for v in clear)}.")
    private, (again, _) = conjugate(noisy), coordinate_ascent(noisy)
    print(_line("w, closed form", private))
    print(_line("w, coordinate ascent", again))
    print("(These take the noisy sums for the true ones: a fit that knows of the noise is wider.)")


def _line(name: str, found: Posterior) -> str:
    spread = f"{found.mean:.6f} +- {found.slope_std:.6f}"
    return f"{name}: {spread}; variance of y {found.variance:.6f}"


if __name__ == "__main__":
    main()

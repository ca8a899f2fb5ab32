"""Chains that a private approximation guides: the approximation, and what the likelihood says beyond it.

`tacit.inference.scoring` releases a noisy score and curvature, and its posterior knows that noise.
A chain need not pay for them again. Around a public position the log-likelihood of a unit is its value,
slope and curvature there, and a remainder of third order: tiny, where a posterior is
narrow. Chains ask the gate for sums of remainders alone. So a unit counts by a bound that is far
below what its likelihood would need, and hundreds of decisions cost little.

The noise of the score does not go away by this. Let r be a noisy score at the position whose mean is F D, where
D = theta - position and F is the information, and let the likelihood of r have precision P. The score of the rows is tilted from
the law that it has at the position, by exp(s D - K(D)), and r is s plus noise. So, to first order in the
remainder R(D) = D F D / 2 - K(D), the log-likelihood of r is that of the normal approximation plus
R(D) - R(u), u = D - F^-1 P (D - best), where ``best`` is the maximum of the normal likelihood. Without noise P
is F, u is a constant, and R counts in full. Where noise hides the score, u is near D, and R counts
for nothing, as it should: then nothing is known of the rows but what is the same for all.

Several chains take turns, in one program and over one sequence of releases. Every step is a step of one chain, and so
one release, whose outcome decides what that chain asks next. The releases are the same, and as many, as those of one
long chain: the budget is shared, and nothing changes in what is charged. All chains start at draws of the
approximation, so that several short ones lose no more than their burn-in.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tacit.accounting import Budget
from tacit.inference.method import Progress
from tacit.inference.scoring import Scoring
from tacit.inference.scoring_posterior import DEFAULT_DRAWS, ScoringResult
from tacit.inference.whitening import Whitening, whiten_prior
from tacit.models.base import UnitModel
from tacit.privacy.gate import Gate
from tacit.privacy.mechanisms import NoisySums

_NUM_CHAINS = 4
# Chains of fewer steps than this would be too short to compare.
_MIN_CHAIN_LENGTH = 10


def num_chains(steps: int) -> int:
    """How many chains share so many steps."""
    return _NUM_CHAINS if steps >= _NUM_CHAINS * _MIN_CHAIN_LENGTH else 1


def describe_chains(steps: int) -> str:
    """The chains that share so many steps, at the beginning of a sentence."""
    chains = num_chains(steps)
    return "A Markov chain" if chains == 1 else f"{chains} Markov chains that share {steps} steps,"


def chain_indices(first: int, count: int, chains: int) -> NDArray[np.int32]:
    """Which chain each of some steps belongs to."""
    return (np.arange(first, first + count) % chains).astype(np.int32)


def group_by_chain(steps: Any, chains: int, kept: slice) -> Any:
    """What some steps gave, [steps, ...], as the kept steps of each chain, one chain after the other."""
    whole = steps[: len(steps) // chains * chains]
    return np.concatenate([whole[i::chains][kept] for i in range(chains)])


Matrix = NDArray[np.float64]
Density = Callable[[jax.Array], jax.Array]
# Of the budget, what the approximation gets if nothing else is asked for.
DEFAULT_SHARE = 0.95
# Variance of one unit's log-likelihood over the approximation beyond which remainders count little.
_MAX_UNIT_VARIANCE = 0.1


class Reference(NamedTuple):
    """A normal approximation of the posterior, in the unconstrained space. All of it is public.

    A chain is at ``centre + root @ z``, where z is standard normal if the approximation is right.
    The likelihood is expanded at ``place``. ``turn`` and ``shift`` give u = shift + turn D.
    ``prior_mean`` and ``to_prior`` give coordinates in which the prior is taken to be standard normal.
    ``weight`` is near one where the approximation is narrow beside what one unit tells, and near zero
    where an expansion says nothing.
    """

    centre: Any
    root: Any
    place: Any
    turn: Any
    shift: Any
    prior_mean: Any
    to_prior: Any
    weight: Any

    def at(self, z: jax.Array) -> jax.Array:
        """The unconstrained vector."""
        return jnp.asarray(self.centre + self.root @ z)


class FirstStage(NamedTuple):
    """What a first stage gave: draws of its posterior, the normal approximation, and how it went.

    ``gate`` and ``progress`` are those of the second stage.
    """

    vectors: Matrix
    reference: Reference
    result: ScoringResult
    gate: Gate
    progress: Progress | None


def budget_share(budget: Budget, share: float) -> Budget:
    """A share of a budget."""
    return Budget(share * budget.epsilon, share * budget.delta, budget.adjacency)


@dataclass(frozen=True)
class FirstFit:
    """The first of two stages: a fit by `Scoring`, with its share of the budget.

    ``size`` is a declared number of units, for which settings are chosen.
    """

    scoring: Scoring
    share: float
    size: int | None = None

    def calibrate(self, model: UnitModel, budget: Budget) -> NoisySums:
        """What the first stage will do within its share of a budget."""
        part = budget_share(budget, self.share)
        if self.size is None:
            return self.scoring.calibrate(model, part)
        return self.scoring.for_size(model, self.size, part).calibrate(model, part)

    def _as_charged(self, mechanism: NoisySums) -> Scoring:
        return replace(
            self.scoring,
            sampling_rate=mechanism.sampling_rate,
            num_steps=mechanism.num_steps,
            batch_bound=mechanism.batch_bound,
        )

    def check(self, model: UnitModel, gate: Gate) -> Gate:
        """Raises what the first stage would raise of the model; returns the gate of the second."""
        first, second = gate.stages()
        self._as_charged(first.mechanism).check(model, first)
        return second

    def run(
        self,
        model: UnitModel,
        gate: Gate,
        key: jax.Array,
        progress: Progress | None,
        draws: int = DEFAULT_DRAWS,
    ) -> "FirstStage":
        """Runs the first stage; what it gives has the gate of the second."""
        first, second = gate.stages()
        scoring = self._as_charged(first.mechanism)
        result, _ = scoring.fitted(model, first, jax.random.fold_in(key, 1), progress, draws)
        space, done = whiten_prior(model), first.mechanism.num_steps
        later = None if progress is None else lambda steps: progress(done + steps)
        vectors = space.mean + result.draws @ space.scale.T
        return FirstStage(vectors, _reference_from_result(space, result), result, second, later)


def _reference_from_result(space: Whitening, result: ScoringResult) -> Reference:
    size, evidence = len(space.mean), result.evidence
    covariance = np.atleast_2d(np.cov(result.draws.T)) + 1e-9 * np.eye(size)
    mean, precision = result.draws.mean(axis=0), np.linalg.inv(covariance)
    information = evidence.units * evidence.information
    told = _clip_matrix(precision - np.eye(size), information)
    pull = precision @ (mean - evidence.place) + evidence.place
    inverse = np.linalg.inv(space.scale)
    made = (
        space.mean + space.scale @ mean,
        space.scale @ np.linalg.cholesky(covariance),
        space.mean + space.scale @ evidence.place,
        space.scale @ (np.eye(size) - np.linalg.solve(information, told)) @ inverse,
        space.scale @ np.linalg.solve(information, pull),
        space.mean,
        inverse,
        1 / (1 + (np.trace(evidence.information @ covariance) / _MAX_UNIT_VARIANCE) ** 2),
    )
    return Reference(*(np.asarray(each, np.float32) for each in made))


def _clip_matrix(matrix: Matrix, most: Matrix) -> Matrix:
    """The matrix, made to lie between nothing and ``most``."""
    root = np.linalg.cholesky(most)
    half = np.linalg.solve(root, matrix)
    values, vectors = np.linalg.eigh(np.linalg.solve(root, half.T))
    inside = (vectors * np.clip(values, 0.0, 1.0)) @ vectors.T
    return np.asarray(root @ inside @ root.T)


def dummy_reference(model: UnitModel) -> Reference:
    """A reference of the right shapes, for checks."""
    size = model.dimension
    vector, matrix = np.zeros(size, np.float32), np.eye(size, dtype=np.float32)
    return Reference(vector, matrix, vector, matrix, vector, vector, matrix, np.float32(1))


def remainder_ratio(
    density: Density, reference: Reference, then: jax.Array, now: jax.Array
) -> jax.Array:
    """By how much what a unit's log-likelihood adds to the normal approximation changes from ``now`` to ``then``.

    A remainder is the log-likelihood less its expansion to second order. The parts of first and second order are those of the difference d = a - b of two offsets:
    g d + d H (a + b) / 2. They need one pass over a unit where each offset by itself would need one.
    """
    place = reference.place
    offsets = then - place, now - place
    hidden = tuple(reference.shift + reference.turn @ each for each in offsets)

    def slope(at: jax.Array, along: jax.Array) -> jax.Array:
        return jnp.asarray(jax.jvp(density, (at,), (along,))[1])

    def change(to: jax.Array, off: jax.Array) -> jax.Array:
        along, middle = to - off, (to + off) / 2
        first, second = jax.jvp(lambda at: slope(at, along), (place,), (middle,))
        return jnp.asarray(density(place + to) - density(place + off) - first - second)

    # One after the other: batches of a few places over all rows are many times slower.
    return jnp.asarray(reference.weight * (change(*offsets) - change(*hidden)))


def remainder_gradient(density: Density, reference: Reference, theta: jax.Array) -> jax.Array:
    """The gradient of what is beyond the approximation, without derivatives of third order."""
    slope = jax.grad(density)

    def of(away: jax.Array) -> jax.Array:
        there, bent = jax.jvp(slope, (reference.place,), (away,))
        return jnp.asarray(slope(reference.place + away) - there - bent)

    away = theta - reference.place
    hidden = of(reference.shift + reference.turn @ away)
    return jnp.asarray(reference.weight * (of(away) - hidden @ reference.turn))


def remainder_prior(
    model: UnitModel, reference: Reference, theta: jax.Array, constants: Any
) -> jax.Array:
    """The log prior less the normal one that the approximation takes it for."""
    whitened_at = reference.to_prior @ (theta - reference.prior_mean)
    return jnp.asarray(model.prior_density(theta, constants) + 0.5 * whitened_at @ whitened_at)

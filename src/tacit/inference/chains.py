"""Markov chains by the gate's releases, plain or guided by a private approximation.

`ChainMethod` is what `Barker`, `Langevin` and `Hamiltonian` share: calibration, checks, runs and results. Each of
them adds its releases and its step. By default a fit by `tacit.inference.scoring` comes first, and guides the chain.

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

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, Generic, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tacit._typing import ArrayTree, Floats
from tacit.accounting import Budget
from tacit.accounting.events import DpEvent
from tacit.errors import InvalidArgument
from tacit.inference.diagnostics import mixing_warnings
from tacit.inference.method import (
    Density,
    Method,
    Progress,
    Steps,
    constrained_draws,
    later_progress,
    per_step_normals,
)
from tacit.inference.result import Intervals, MethodResult
from tacit.inference.scoring import Scoring
from tacit.inference.scoring_posterior import DEFAULT_DRAWS, ScoringResult
from tacit.inference.whitening import Whitening, whiten_prior
from tacit.models.base import UnitModel
from tacit.privacy.captured import check_captured
from tacit.privacy.gate import Gate, check, run
from tacit.privacy.mechanisms import Mechanism, Stages, StepMechanism

_M = TypeVar("_M", bound=StepMechanism)
_N = TypeVar("_N", bound=np.generic)
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
    """The chain that each of some steps belongs to."""
    return (np.arange(first, first + count) % chains).astype(np.int32)


def group_by_chain(steps: NDArray[_N], chains: int, kept: slice) -> NDArray[_N]:
    """Outputs [steps, ...] of interleaved chains as the kept steps of each chain, one chain after the other."""
    whole = steps[: len(steps) // chains * chains]
    return np.concatenate([whole[i::chains][kept] for i in range(chains)])


# The default share of the budget for the approximation.
DEFAULT_SHARE = 0.95
# The share of each chain's steps that a guided chain discards, as it starts at a draw of the approximation.
GUIDED_BURN_IN = 0.05
# The clip of chains without privacy: few units are clipped.
LOOSE_CLIP = 64.0
# If one unit's log-likelihood varies by more than this over the approximation, remainders count little: an expansion to
# second order is not accurate there.
_MAX_UNIT_VARIANCE = 0.1


class Reference(NamedTuple):
    """A normal approximation of the posterior, in the unconstrained space. All of it is public.

    A chain is at ``centre + root @ z``, where z is standard normal if the approximation is right.
    The likelihood is expanded at ``position``. ``turn`` and ``shift`` give u = shift + turn D.
    ``prior_mean`` and ``to_prior`` give coordinates in which the prior is taken to be standard normal.
    ``weight`` is near one where the approximation is narrow beside what one unit tells, and near zero
    where an expansion says nothing.
    """

    centre: jax.Array
    root: jax.Array
    position: jax.Array
    turn: jax.Array
    shift: jax.Array
    prior_mean: jax.Array
    to_prior: jax.Array
    weight: jax.Array

    def at(self, z: jax.Array) -> jax.Array:
        """The unconstrained vector."""
        return jnp.asarray(self.centre + self.root @ z)


class Approximation(NamedTuple):
    """What guides a chain: draws of a private posterior, its normal approximation, and how the fit went."""

    vectors: NDArray[np.float32]
    reference: Reference
    converged: bool
    messages: tuple[str, ...]


# Where a chain begins: at a public vector, or around an approximation that guides it.
Start = Approximation | jax.Array


@dataclass(frozen=True)
class FirstFit(ABC):
    """The first of two stages: another fit, with its share of the budget."""

    share: float

    @property
    @abstractmethod
    def method(self) -> Method:
        """The method of the fit."""

    def mechanism(self, model: UnitModel, budget: Budget | None) -> Mechanism:
        """What the gate will do in this stage within its share of a budget; without noise if there is none."""
        if budget is None:
            return self.method.without_noise(model)
        part = Budget(self.share * budget.epsilon, self.share * budget.delta, budget.adjacency)
        return self.sized(model, part).calibrate(model, part)

    def sized(self, model: UnitModel, budget: Budget) -> Method:  # noqa: ARG002
        """The method, with settings for a declared size if there is one."""
        return self.method

    @abstractmethod
    def check(self, model: UnitModel, gate: Gate) -> None:
        """Raises what this stage would raise of the model; the gate is its own."""

    @abstractmethod
    def run(
        self, model: UnitModel, gate: Gate, key: jax.Array, progress: Progress | None, draws: int
    ) -> Start:
        """Fits the model, with so many draws; the gate is that of this stage."""

    @abstractmethod
    def dummy_start(self, model: UnitModel, draws: int) -> Start:
        """A start of the right shapes, for checks and timings."""


@dataclass(frozen=True)
class ScoringFit(FirstFit):
    """A fit by `Scoring`, which guides the chain.

    ``size`` is a declared number of units, for which settings are chosen.
    """

    scoring: Scoring
    size: int | None = None

    @property
    def method(self) -> Scoring:
        """The method of the fit."""
        return self.scoring

    def sized(self, model: UnitModel, budget: Budget) -> Scoring:
        """The method, with settings for a declared size if there is one. It never stops by itself."""
        scoring = replace(self.scoring, check_count=False)
        return scoring if self.size is None else scoring.for_size(model, self.size, budget)

    def _as_charged(self, gate: Gate) -> Scoring:
        charged = gate.mechanism
        return replace(
            self.scoring,
            sampling_rate=charged.sampling_rate,
            num_steps=charged.num_steps,
            batch_bound=charged.batch_bound,
        )

    def check(self, model: UnitModel, gate: Gate) -> None:
        """Raises what this stage would raise of the model."""
        self._as_charged(gate).check(model, gate)

    def run(
        self, model: UnitModel, gate: Gate, key: jax.Array, progress: Progress | None, draws: int
    ) -> Approximation:
        """The approximation, with so many draws."""
        result, _ = self._as_charged(gate).posterior(model, gate, key, progress, draws)
        space = whiten_prior(model)
        vectors = np.asarray(space.mean + result.draws @ space.scale.T, np.float32)
        reference = _reference_from_result(space, result)
        return Approximation(vectors, reference, result.converged, result.messages)

    def dummy_start(self, model: UnitModel, draws: int) -> Approximation:
        """An approximation of the right shapes."""
        vectors = per_step_normals([0], 0, draws, (model.dimension,))
        return Approximation(vectors, dummy_reference(model), converged=True, messages=())


class ChainMethod(Method, Generic[_M]):
    """A Markov chain whose steps are releases of the gate: plain, or guided by a private approximation.

    A subclass is a frozen dataclass with these settings and more. It says what comes first (`first_fit`), which
    releases the chain makes (`_releases`), and what a step does with them (`_chain`).

    Attributes:
        size: A public number of units.
        burn_in: The share of the steps that is discarded at the start; None for the default.
        thin: Every ``thin``-th of the remaining draws is kept.
        plain_burn_in: The default of ``burn_in`` for a plain chain.
        releases_per_draw: How many steps of the gate make one step of the chain.
    """

    size: int | None
    burn_in: float | None
    thin: int
    plain_burn_in: ClassVar[float]

    @property
    def releases_per_draw(self) -> int:
        """How many steps of the gate make one step of the chain."""
        return 1

    @abstractmethod
    def first_fit(self, model: UnitModel) -> FirstFit | None:
        """The fit that comes first; None if the chain begins at public values."""

    @abstractmethod
    def _releases(
        self,
        model: UnitModel,
        budget: Budget | None,
        first: FirstFit | None,
        before: tuple[DpEvent, ...],
    ) -> _M:
        """The chain's releases, with what a budget leaves after the events ``before``; without noise if there is none."""

    @abstractmethod
    def _chain(self, model: UnitModel, mechanism: _M, key: jax.Array, start: Start) -> Steps:
        """The chain as steps. Each gives the chain's state, or the state and whether a proposal was accepted."""

    def _public_start(self, model: UnitModel) -> jax.Array:
        """Where a chain begins if no fit comes first."""
        return jnp.zeros(model.dimension)

    def _check_plain(self, model: UnitModel, mechanism: _M) -> None:
        """Raises if a plain chain by these settings makes no sense."""

    def _draws_needed(self, steps: int) -> int:  # noqa: ARG002
        """How many draws of the first fit a chain of so many steps uses."""
        return DEFAULT_DRAWS

    def _remarks(
        self,
        mechanism: _M,  # noqa: ARG002
        acceptance: float | None,  # noqa: ARG002
        *,
        guided: bool,  # noqa: ARG002
    ) -> tuple[str, ...]:
        """Sentences about the chain, other than on mixing."""
        return ()

    def calibrate(self, model: UnitModel, budget: Budget) -> Mechanism:
        """The chain's releases, after a first fit that has its share of the budget."""
        return self._mechanism(model, budget)

    def without_noise(self, model: UnitModel) -> Mechanism:
        """The same without privacy: little is clipped, and noise of the chain is added outside the release."""
        return self._mechanism(model, None)

    def _mechanism(self, model: UnitModel, budget: Budget | None) -> Mechanism:
        first = self.first_fit(model)
        if first is None:
            return self._releases(model, budget, None, ())
        stage = first.mechanism(model, budget)
        return Stages((stage, self._releases(model, budget, first, (stage.event,))))

    def check(self, model: UnitModel, gate: Gate) -> None:
        """Raises what `run` would raise of the model, without reading a row."""
        check_captured(*model.user_functions, self._functions)
        first = self.first_fit(model)
        start: Start = self._public_start(model)
        if first is not None:
            own, gate = gate.stages()
            first.check(model, own)
            start = first.dummy_start(model, self._draws_needed(gate.mechanism.num_steps))
        guided = isinstance(start, Approximation)
        chains, kept = self._kept(gate.mechanism, guided=guided)
        steps = gate.mechanism.num_steps // self.releases_per_draw // chains
        if not range(steps)[kept]:
            raise InvalidArgument(
                f"burn_in and thin leave no draw of {steps} steps; keep more, or take more steps."
            )
        if not guided:
            self._check_plain(model, gate.mechanism)
        step, state, inputs = self._chain(model, gate.mechanism, jax.random.key(0), start)
        check(step, state, jax.tree.map(lambda leaf: leaf[0], inputs(0, 1)), gate)

    @property
    def _functions(self) -> tuple[object, ...]:
        """Settings that are functions, which must not hold data."""
        return ()

    def _kept(self, mechanism: _M, *, guided: bool) -> tuple[int, slice]:
        """How many chains there are, and which steps of each are kept."""
        steps = mechanism.num_steps // self.releases_per_draw
        chains = num_chains(steps) if guided else 1
        default = GUIDED_BURN_IN if guided else self.plain_burn_in
        share = default if self.burn_in is None else self.burn_in
        return chains, slice(math.ceil(share * (steps // chains)), None, self.thin)

    def steps(self, model: UnitModel, mechanism: _M, key: jax.Array) -> Steps | None:
        """The chain as steps; None where another fit comes first."""
        if self.first_fit(model) is not None:
            return None
        return self._chain(model, mechanism, key, self._public_start(model))

    def stages(self, model: UnitModel, mechanism: Mechanism) -> tuple[Method, Steps] | None:
        """The fit that comes first, and the chain as steps; None if there is no such fit."""
        first = self.first_fit(model)
        if first is None or not isinstance(mechanism, Stages):
            return None
        releases = mechanism.mechanisms[1]
        start = first.dummy_start(model, self._draws_needed(releases.num_steps))
        return first.method, self._chain(model, releases, jax.random.key(0), start)

    def run(
        self, model: UnitModel, gate: Gate, key: jax.Array, progress: Progress | None = None
    ) -> MethodResult:
        """The chain's draws."""
        first = self.first_fit(model)
        start: Start = self._public_start(model)
        done = 0
        if first is not None:
            own, gate = gate.stages()
            draws = self._draws_needed(gate.mechanism.num_steps)
            start = first.run(model, own, jax.random.fold_in(key, 1), progress, draws)
            done = own.mechanism.num_steps
        steps = self._chain(model, gate.mechanism, key, start)
        _, released = run(gate, *steps, progress=later_progress(progress, done))
        return self._result(model, gate.mechanism, released, start)

    def _result(
        self,
        model: UnitModel,
        mechanism: _M,
        released: tuple[NDArray[np.floating], NDArray[np.floating]] | NDArray[np.floating],
        start: Start,
    ) -> MethodResult:
        every = self.releases_per_draw
        ends = slice(every - 1, None, every)
        chain, accepted = released if isinstance(released, tuple) else (released, None)
        trace: dict[str, NDArray[np.floating]] = {"theta": chain[ends]}
        if accepted is not None:
            trace["accepted"] = accepted[ends]
        guide = start if isinstance(start, Approximation) else None
        chains, kept = self._kept(mechanism, guided=guide is not None)
        by_chain = {name: group_by_chain(each, chains, kept) for name, each in trace.items()}
        draws = constrained_draws(model, jnp.asarray(by_chain.pop("theta")))
        mixing = mixing_warnings(draws, chains)
        acceptance = None if accepted is None else float(np.mean(trace["accepted"]))
        remarks = self._remarks(mechanism, acceptance, guided=guide is not None)
        failed = mixing or (guide is not None and not guide.converged)
        return MethodResult(
            draws=draws,
            trace=trace,
            chain=True,
            chains=chains,
            sample_stats=by_chain,
            converged=False if failed else None,
            messages=(*mixing, *remarks, *(() if guide is None else guide.messages)),
            intervals=Intervals.SAMPLED if guide is None else Intervals.INCLUDED,
        )


def _reference_from_result(space: Whitening, result: ScoringResult) -> Reference:
    size, likelihood = len(space.mean), result.likelihood
    covariance = np.atleast_2d(np.cov(result.draws.T)) + 1e-9 * np.eye(size)
    mean, precision = result.draws.mean(axis=0), np.linalg.inv(covariance)
    information = likelihood.units * likelihood.information
    told = _clip_matrix(precision - np.eye(size), information)
    pull = precision @ (mean - likelihood.position) + likelihood.position
    inverse = np.linalg.inv(space.scale)
    made = (
        space.mean + space.scale @ mean,
        space.scale @ np.linalg.cholesky(covariance),
        space.mean + space.scale @ likelihood.position,
        space.scale @ (np.eye(size) - np.linalg.solve(information, told)) @ inverse,
        space.scale @ np.linalg.solve(information, pull),
        space.mean,
        inverse,
        1 / (1 + (np.trace(likelihood.information @ covariance) / _MAX_UNIT_VARIANCE) ** 2),
    )
    return Reference._make(np.asarray(each, np.float32) for each in made)


def _clip_matrix(matrix: Floats, most: Floats) -> Floats:
    """The matrix with its eigenvalues relative to ``most`` clipped to [0, 1]."""
    root = np.linalg.cholesky(most)
    half = np.linalg.solve(root, matrix)
    values, vectors = np.linalg.eigh(np.linalg.solve(root, half.T))
    inside = (vectors * np.clip(values, 0.0, 1.0)) @ vectors.T
    return np.asarray(root @ inside @ root.T)


def dummy_reference(model: UnitModel) -> Reference:
    """A reference of the right shapes, for checks."""
    size = model.dimension
    vector, matrix = jnp.zeros(size), jnp.eye(size)
    return Reference(vector, matrix, vector, matrix, vector, vector, matrix, jnp.ones(()))


def remainder_ratio(
    density: Density, reference: Reference, then: jax.Array, now: jax.Array
) -> jax.Array:
    """The change from ``now`` to ``then`` in what a unit's log-likelihood adds to the normal approximation.

    A remainder is the log-likelihood less its expansion to second order. The parts of first and second order are those of the difference d = a - b of two offsets:
    g d + d H (a + b) / 2. They need one pass over a unit where each offset by itself would need one.
    """
    position = reference.position
    offsets = then - position, now - position
    hidden = tuple(reference.shift + reference.turn @ each for each in offsets)

    def slope(at: jax.Array, along: jax.Array) -> jax.Array:
        return jnp.asarray(jax.jvp(density, (at,), (along,))[1])

    def change(to: jax.Array, off: jax.Array) -> jax.Array:
        along, middle = to - off, (to + off) / 2
        first, second = jax.jvp(lambda at: slope(at, along), (position,), (middle,))
        return jnp.asarray(density(position + to) - density(position + off) - first - second)

    # Not by vmap: batches of a few positions over all rows are many times slower.
    return jnp.asarray(reference.weight * (change(*offsets) - change(*hidden)))


def remainder_gradient(density: Density, reference: Reference, theta: jax.Array) -> jax.Array:
    """The gradient of what a unit's log-likelihood adds to the approximation, without third derivatives."""
    slope = jax.grad(density)

    def of(away: jax.Array) -> jax.Array:
        there, bent = jax.jvp(slope, (reference.position,), (away,))
        return jnp.asarray(slope(reference.position + away) - there - bent)

    away = theta - reference.position
    hidden = of(reference.shift + reference.turn @ away)
    return jnp.asarray(reference.weight * (of(away) - hidden @ reference.turn))


def remainder_prior(
    model: UnitModel, reference: Reference, theta: jax.Array, constants: ArrayTree
) -> jax.Array:
    """The log prior less its normal approximation."""
    whitened_at = reference.to_prior @ (theta - reference.prior_mean)
    return jnp.asarray(model.log_prior(theta, constants) + 0.5 * whitened_at @ whitened_at)

"""Private Hamiltonian Monte Carlo (DP-HMC), and the penalty method.

A trajectory follows noisy clipped gradients by leapfrog steps. Whether it is kept is decided by a
noisy clipped log ratio: the noise is normal and its variance is known, so that taking half of the variance
off the log ratio makes the test exact (the penalty of Ceperley and Dewing). Räisä, Koskela and Honkela 2021;
without gradients it is the method of Yıldırım and Ermiş 2019.

A trajectory of some leapfrog steps has one evaluation more. Each evaluation is a step of the gate, which
releases one noisy vector: the clipped gradient, and in the last evaluation of a trajectory the
clipped log ratio too. Both are divided by their public bounds, and their squared weights add up to
one, so that no unit is longer than one.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

from tacit import _validate
from tacit._typing import ArrayTree, Floats
from tacit.accounting import Budget, calibrate, events
from tacit.accounting.events import DpEvent
from tacit.errors import InvalidArgument
from tacit.inference.chains import (
    DEFAULT_SHARE,
    LOOSE_CLIP,
    Approximation,
    ChainMethod,
    FirstFit,
    Reference,
    ScoringFit,
    Start,
    dummy_reference,
    num_chains,
    remainder_gradient,
    remainder_prior,
    remainder_ratio,
)
from tacit.inference.method import Density, Steps, per_step_draws, seed_from_key
from tacit.inference.scoring import Scoring
from tacit.models.base import Row, UnitModel
from tacit.privacy.mechanisms import NoisySums, Release
from tacit.privacy.trace import Step

# The default length of a guided trajectory, an angle: after a quarter of a turn the position is independent.
_QUARTER_TURN = math.pi / 2
# The relative range of the length of a trajectory, either way.
_JITTER = 0.2
# The standard deviations of noise at which clips of a guided chain are set: of a log ratio over a typical distance, and
# of the norm of a gradient.
_RATIO_NOISE, _GRADIENT_NOISE = 1.0, 0.2
_BATCH_BOUND = 2**24


class Bounds(NamedTuple):
    """Public numbers of a chain.

    A gradient is clipped to ``gradient``, and a log ratio to ``ratio`` times the distance of the two
    places. ``noise`` is the standard deviation of a log ratio over what it is clipped to.
    """

    gradient: jax.Array
    ratio: jax.Array
    noise: jax.Array


class ChainState(NamedTuple):
    """Where chains are: at ``places``, the ends of their last trajectories.

    The chain whose turn it is is on a trajectory at ``here``, which began at ``old`` with this kinetic energy.
    """

    places: jax.Array
    here: jax.Array
    old: jax.Array
    momentum: jax.Array
    energy: jax.Array
    bounds: Bounds
    reference: Reference
    constants: ArrayTree


class Evaluation(NamedTuple):
    """Public inputs of an evaluation.

    ``turn`` says whose trajectory it is on.
    ``weights`` are those of gradient and ratio, ``kick`` how much of a step the gradient counts for,
    and ``drift`` how far the trajectory moves after it, or before it where there is no gradient.
    """

    turn: jax.Array
    momentum: jax.Array
    log_uniform: jax.Array
    first: jax.Array
    last: jax.Array
    kick: jax.Array
    drift: jax.Array
    weights: jax.Array


def initial_state(
    model: UnitModel, bounds: Bounds, reference: Reference, start: jax.Array
) -> ChainState:
    """The first state of chains that begin at the rows of ``start``."""
    places = jnp.asarray(start, jnp.float32)
    shared = jax.tree.map(jnp.asarray, (bounds, reference, model.constants))
    place = places[0]
    return ChainState(places, place, place, jnp.zeros_like(place), jnp.zeros(()), *shared)


def evaluation_inputs(
    seed: list[int],
    first: int,
    count: int,
    dimension: int,
    leapfrog: int,
    length: float,
    weights: Floats,
    chains: int,
) -> Evaluation:
    """The inputs of some evaluations; ``weights`` are those of the last one of a trajectory."""
    every = leapfrog + 1
    numbers = np.arange(first, first + count)
    place, trajectory = numbers % every, numbers // every
    begin, trajectories = int(trajectory[0]), int(trajectory[-1] - trajectory[0] + 1)

    def drawn(stream: int, shape: tuple[int, ...]) -> NDArray[np.float32]:
        made = per_step_draws(
            lambda rng, size: (
                rng.random((size, *shape), np.float32)
                if stream
                else rng.standard_normal((size, *shape), np.float32)
            ),
            seed,
            begin,
            trajectories,
            stream,
        )
        return made[trajectory - begin]

    last = place == leapfrog
    steps = length * (1 + _JITTER * (2 * drawn(1, ()) - 1))
    turn = (trajectory % chains).astype(np.int32)
    momentum = drawn(0, (dimension,))
    log_uniform = np.log(np.maximum(drawn(2, ()), 1e-30)).astype(np.float32)
    kick = np.where((place == 0) | last, 0.5, 1.0).astype(np.float32) * steps
    drift = (steps if leapfrog == 0 else np.where(last, 0.0, steps)).astype(np.float32)
    both = np.where(last[:, None], weights, [1.0, 0.0]).astype(np.float32)
    return Evaluation._make([turn, momentum, log_uniform, place == 0, last, kick, drift, both])


@lru_cache(maxsize=32)
def trajectory_step(model: UnitModel, *, guided: bool, gradients: bool) -> Step:
    """The step of a chain. Cached, so that it compiles once."""
    per_unit = _unit_contribution(model, guided=guided, gradients=gradients)
    curve = 1.0 if guided else 0.0  # of the normal part, in which a trajectory goes round

    def potential(state: ChainState, z: jax.Array) -> jax.Array:
        """The public part of the log density."""
        theta = state.reference.at(z)
        if not guided:
            return model.log_prior(theta, state.constants)
        prior = remainder_prior(model, state.reference, theta, state.constants)
        return jnp.asarray(prior - 0.5 * z @ z)

    def kicked(state: ChainState, gradient: jax.Array) -> jax.Array:
        public = jax.grad(potential, argnums=1)(state, state.here) + curve * state.here
        return jnp.asarray(gradient + public)

    def step(
        state: ChainState, given: Evaluation, release: Release
    ) -> tuple[ChainState, tuple[jax.Array, jax.Array]]:
        state = _start_trajectory(state, given)
        if not gradients:
            state = _drift(state, given.drift, curve)
        bounds, distance = state.bounds, jnp.linalg.norm(state.here - state.old)
        length = jnp.maximum(bounds.ratio * distance, 1e-12)
        places = state.reference.at(state.here), state.reference.at(state.old)
        scales = given.weights[0] / bounds.gradient, given.weights[1] / length
        arguments = *places, *scales, bounds.gradient, length, state.reference, state.constants
        total = release.noisy_sum(per_unit, arguments)
        if gradients:
            gradient = kicked(state, total[:-1] / scales[0])
            state = state._replace(momentum=state.momentum + given.kick * gradient)
            state = _drift(state, given.drift, curve)
        # Only the last evaluation has a ratio; elsewhere it is not used.
        ratio = total[-1] / jnp.maximum(scales[1], 1e-30)
        ratio = ratio + potential(state, state.here) - potential(state, state.old)
        ratio = ratio + state.energy - 0.5 * state.momentum @ state.momentum
        penalty = 0.5 * (bounds.noise * length) ** 2
        accepted = given.last & (given.log_uniform < ratio - penalty)
        here = jnp.where(given.last & ~accepted, state.old, state.here)
        ends = jnp.where(given.last, state.places.at[given.turn].set(here), state.places)
        return state._replace(here=here, places=ends), (state.reference.at(here), accepted)

    return step


def _start_trajectory(state: ChainState, given: Evaluation) -> ChainState:
    """At the first evaluation of a trajectory, takes the position of the chain and a new momentum."""
    fresh, begun = given.first, state.places[given.turn]
    return state._replace(
        here=jnp.where(fresh, begun, state.here),
        old=jnp.where(fresh, begun, state.old),
        momentum=jnp.where(fresh, given.momentum, state.momentum),
        energy=jnp.where(fresh, 0.5 * given.momentum @ given.momentum, state.energy),
    )


def _drift(state: ChainState, time: jax.Array, curve: float) -> ChainState:
    """The exact motion under the normal part of the density, or in a straight line without one."""
    angle = curve * time
    along = time * jnp.sinc(angle / math.pi)
    return state._replace(
        here=jnp.cos(angle) * state.here + along * state.momentum,
        momentum=jnp.cos(angle) * state.momentum - curve * jnp.sin(angle) * state.here,
    )


# Of a release: two positions, factors of gradient and ratio, their bounds, the reference and the constants.
UnitArguments = tuple[
    jax.Array, jax.Array, jax.Array, jax.Array, jax.Array, jax.Array, Reference, ArrayTree
]


def _unit_contribution(
    model: UnitModel, *, guided: bool, gradients: bool
) -> Callable[..., jax.Array]:
    """A unit's vector, no longer than one: its gradient, and its log ratio as the last number."""

    def change(
        density: Density, reference: Reference, then: jax.Array, now: jax.Array
    ) -> jax.Array:
        if guided:
            return remainder_ratio(density, reference, then, now)
        return density(then) - density(now)

    def slope(density: Density, reference: Reference, theta: jax.Array) -> jax.Array:
        return remainder_gradient(density, reference, theta) if guided else jax.grad(density)(theta)

    def per_unit(given: UnitArguments, rows: Row, present: jax.Array) -> jax.Array:
        here, old, to_gradient, to_ratio, clip, length, reference, constants = given

        def density(theta: jax.Array) -> jax.Array:
            return model.log_likelihood(theta, rows, present, constants)

        ratio = change(density, reference, here, old)
        last = to_ratio * jnp.clip(ratio, -length, length)
        if not gradients:
            return jnp.asarray(last[None])
        gradient = slope(density, reference, here) @ reference.root
        norm = jnp.maximum(jnp.linalg.norm(gradient), 1e-30)
        gradient = to_gradient * gradient * jnp.minimum(1.0, clip / norm)
        return jnp.append(gradient, last)

    return per_unit


@dataclass(frozen=True, kw_only=True)
class Hamiltonian(ChainMethod[NoisySums]):
    """Private Hamiltonian Monte Carlo with the penalty test. All settings are public.

    By default most of the budget goes to a `Scoring` fit. The chain moves in coordinates in which that
    approximation is standard normal: the normal part of a trajectory is exact, and gradients and log ratios
    are of what the likelihood says beyond it. If ``step_size`` and the clips are passed, or a
    ``start`` at values, the chain is the plain one of the paper, on the unconstrained scale.

    Args:
        num_steps: Number of trajectories; by default 1000. After a start by `Scoring`, four chains share them.
        num_leapfrog: Number of leapfrog steps in a trajectory. With 0 there are no gradients: this is the penalty
            method, with random walks as proposals.
        step_size: Length of a leapfrog step, which varies by a fifth from trajectory to trajectory. In a guided chain
            it is an angle, by default such that a trajectory is a quarter of a turn.
        gradient_clip: Bound on the norm of one unit's gradient.
        ratio_clip: Bound on one unit's log ratio, for a distance of one between the two places.
        gradient_share: The share that gradients have of the chain's budget; log ratios have the rest.
        start: Settings of a `Scoring` fit, or public values of some parameters.
        start_share: The share of the budget that a `Scoring` fit gets.
        size: A public number of units; it need not be exact. Do not count it from private data.
        burn_in: The share of the trajectories that is discarded at the start; by default .05 after a
            `Scoring` fit, and else .2.
        thin: Keep every ``thin``-th of the remaining draws.
    """

    num_steps: int = 1000
    num_leapfrog: int = 1
    step_size: float | None = None
    gradient_clip: float | None = None
    ratio_clip: float | None = None
    gradient_share: float = 0.25
    start: Scoring | Mapping[str, ArrayLike] | None = field(default=None, compare=False)
    start_share: float = DEFAULT_SHARE
    size: int | None = None
    burn_in: float | None = None
    thin: int = 1

    declared_public: ClassVar[tuple[str, ...]] = ("start",)
    by_gradients: ClassVar[bool] = True
    plain_burn_in: ClassVar[float] = 0.2

    def __post_init__(self) -> None:
        _validate.integer("num_steps", self.num_steps)
        _validate.integer("num_leapfrog", self.num_leapfrog, least=0)
        for name in ("step_size", "gradient_clip", "ratio_clip"):
            if vars(self)[name] is not None:
                _validate.positive(name, vars(self)[name])
        _validate.count("thin", self.thin)
        shares = (
            self.gradient_share,
            self.start_share,
            0.5 if self.burn_in is None else self.burn_in,
        )
        if not (min(shares[:2]) > 0 and max(shares) < 1 and shares[2] >= 0):
            raise InvalidArgument(
                "gradient_share, start_share and burn_in must be shares of the whole, below 1."
            )

    def for_size(self, model: UnitModel, size: int, budget: Budget) -> Self:  # noqa: ARG002
        """The method for a declared size."""
        return self if self.size is not None else replace(self, size=size)

    @property
    def releases_per_draw(self) -> int:
        """The evaluations of a trajectory."""
        return self.num_leapfrog + 1

    def first_fit(self, model: UnitModel) -> FirstFit | None:
        """The fit that guides the chain; None for a plain one."""
        if isinstance(self.start, Scoring):
            return ScoringFit(self.start_share, self.start)
        plain = self.gradient_clip, self.ratio_clip, self.start
        if any(each is not None for each in plain):
            return None
        if Scoring.can_fit(model):
            return ScoringFit(self.start_share, Scoring(), self.size)
        raise InvalidArgument(
            "Hamiltonian starts from private Fisher scoring, which cannot fit this model; pass "
            "step_size=, gradient_clip= and ratio_clip= for a plain chain."
        )

    def _public_start(self, model: UnitModel) -> jax.Array:
        return jnp.asarray(model.unconstrain(self.start if isinstance(self.start, Mapping) else {}))

    def _releases(
        self,
        model: UnitModel,
        budget: Budget | None,
        first: FirstFit | None,
        before: tuple[DpEvent, ...],
    ) -> NoisySums:
        """Sums of gradients and of log ratios, as one vector, for each evaluation of the trajectories."""
        if first is None and budget is not None:
            self._check_complete()
        scale = 0.0 if budget is None else self._noise_scale(budget, first, before)
        whole = self._phases(scale)
        # The evaluations of one trajectory, repeated for each.
        phases = tuple((noise, steps // self.num_steps) for noise, steps in whole)
        return NoisySums(
            sampling_rate=1.0,
            num_steps=self.num_steps * self.releases_per_draw,
            clip=1.0,
            noise_multiplier=phases,
            dimension=model.dimension + 1 if self.num_leapfrog else 1,
            batch_bound=_BATCH_BOUND,
            rounds=self.num_steps,
        )

    def _noise_scale(
        self, budget: Budget, first: FirstFit | None, before: tuple[DpEvent, ...]
    ) -> float:
        """The least factor of the noise that meets the budget."""

        def event(scale: float) -> DpEvent:
            return events.compose(*before, events.sampled_gaussian(list(self._phases(scale)), 1.0))

        left = 1.0 if first is None else math.sqrt(1 - first.share**2)
        guess = 1 / (calibrate.approximate_mu(budget) * left)
        return calibrate.calibrate(event, budget, guess=guess)

    def _phases(self, scale: float) -> tuple[tuple[float, int], ...]:
        """Noise of the evaluations before the last one of all trajectories, and of the last ones."""
        gradient, ratio = self._multipliers(scale)
        if self.num_leapfrog == 0:
            return ((ratio, self.num_steps),)
        last = 1 / math.hypot(1 / gradient, 1 / ratio) if scale else 0.0
        return (gradient, self.num_steps * self.num_leapfrog), (last, self.num_steps)

    def _multipliers(self, scale: float) -> tuple[float, float]:
        """Noise of gradients and of log ratios, over their clips."""
        if self.num_leapfrog == 0:
            return math.inf, scale * math.sqrt(self.num_steps)
        gradient = scale * math.sqrt(self.num_steps * self.releases_per_draw / self.gradient_share)
        return gradient, scale * math.sqrt(self.num_steps / (1 - self.gradient_share))

    def _check_complete(self) -> None:
        needed = {"step_size": self.step_size, "ratio_clip": self.ratio_clip}
        if self.num_leapfrog:
            needed["gradient_clip"] = self.gradient_clip
        missing = [name for name, value in needed.items() if value is None]
        if missing:
            raise InvalidArgument(f"A plain chain needs {missing[0]}= too.")

    def bounds(
        self, model: UnitModel, releases: NoisySums, *, guided: bool
    ) -> tuple[Bounds, Floats]:
        """Clips and noise of a chain, and the weights of gradient and ratio in a trajectory's last release."""
        noise = [scale for scale, _ in releases.phases[:2]]
        size = model.dimension
        if not noise[-1]:
            usual, weights, ratio = (
                (LOOSE_CLIP, LOOSE_CLIP),
                (math.sqrt(0.5), math.sqrt(0.5)),
                0.0,
            )
        elif self.num_leapfrog == 0:
            ratio, weights = noise[0], (0.0, 1.0)
            usual = 1.0, _RATIO_NOISE / (ratio * math.sqrt(2 * size))
        else:
            ratio = 1 / math.sqrt(noise[1] ** -2 - noise[0] ** -2)
            weights = noise[1] / noise[0], noise[1] / ratio
            gradient = _GRADIENT_NOISE / (noise[0] * math.sqrt(size))
            usual = gradient, _RATIO_NOISE / (ratio * math.sqrt(2 * size))
        if not guided and noise[-1]:
            usual = self.gradient_clip or 1.0, self.ratio_clip or 1.0
        return Bounds._make(np.float32(each) for each in (*usual, ratio)), np.asarray(weights)

    def _chain(self, model: UnitModel, mechanism: NoisySums, key: jax.Array, start: Start) -> Steps:
        guided = isinstance(start, Approximation)
        bounds, weights = self.bounds(model, mechanism, guided=guided)
        if isinstance(start, Approximation):
            shape = num_chains(self.num_steps), model.dimension
            reference = start.reference
            places = jax.random.normal(jax.random.fold_in(key, 2), shape)
        else:
            reference, places = dummy_reference(model), start[None]
        seed = seed_from_key(key)
        usual = _QUARTER_TURN / max(self.num_leapfrog, 1)
        length = usual if self.step_size is None else self.step_size

        def inputs(first: int, count: int) -> Evaluation:
            numbers = model.dimension, self.num_leapfrog, length, weights
            return evaluation_inputs(seed, first, count, *numbers, len(places))

        step = trajectory_step(model, guided=guided, gradients=self.num_leapfrog > 0)
        return Steps(step, initial_state(model, bounds, reference, places), inputs)

    def describe(self, model: UnitModel) -> str:
        """A line for the printed plan."""
        kind = "Hamiltonian Monte Carlo" if self.num_leapfrog else "Markov chain of penalty tests"
        line = f"{kind} on all rows, for {model.dimension} unconstrained parameters."
        if self.first_fit(model) is None:
            return line
        chance = 2 * float(ndtr(-_RATIO_NOISE / 2))
        worth = self.num_steps * chance / (2 - chance)
        return (
            f"{line} It starts from private Fisher scoring; about {worth:.0f} effective draws to expect. "
            "Intervals include the noise."
        )

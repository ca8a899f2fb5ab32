"""Differentially private Markov chain Monte Carlo, by the Barker test (DP-MCMC).

A step proposes a move and asks the gate whether to make it. The answer, one bit, is all that
is learnt of the rows: a move is accepted with probability sigmoid(log posterior ratio), and the randomness of
the test is the privacy. So any model will do whose likelihood can be evaluated, also one with
discrete parameters, and nothing depends on whether the chain has converged.

In a plain chain proposals are a symmetric random walk. In a guided one they are draws of a private approximation
(`tacit.inference.chains`), one after the other: an independence chain, or several that take turns. Its
target is that posterior times what the likelihood says beyond it. So in the
log ratio of a test, with the proposal's own ratio in it (Heikkilä et al. 2019, eq. 4), everything that is public
cancels, and the sum of units' remainders is left. Where the posterior is normal, half of the proposals are accepted.

The published test has normal noise of variance C instead of logistic noise, and a correction: what to add to the
normal noise so that the sum is logistic. It does not depend on data (Heikkilä et al. 2019, eq. 8). No distribution is
exactly right. Ours is the best one on a grid: of all symmetric point masses with the right variance, those whose sum
with the normal has a distribution function nowhere far from the logistic one. The paper's mixture of normals is in
`tacit.papers.barker`. Tables for some variances ship in ``barker_tables.json``, which scripts/make_correction.py writes.
"""

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from importlib.resources import files
from typing import ClassVar, Final, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr
from numpy.typing import ArrayLike, NDArray
from scipy import special
from scipy.optimize import linprog

from tacit import _validate
from tacit._typing import ArrayTree, Floats
from tacit.accounting import PLD, Budget, calibrate, events
from tacit.accounting.events import DpEvent
from tacit.errors import BudgetError, InvalidArgument
from tacit.inference.chains import (
    DEFAULT_SHARE,
    LOOSE_CLIP,
    Approximation,
    ChainMethod,
    FirstFit,
    Reference,
    ScoringFit,
    Start,
    chain_indices,
    describe_chains,
    num_chains,
    remainder_ratio,
)
from tacit.inference.diagnostics import MIN_EXPECTED_EFFECTIVE_SIZE
from tacit.inference.guides import FullRank, LowRank, MeanField
from tacit.inference.method import (
    Progress,
    Steps,
    per_step_draws,
    per_step_normals,
    seed_from_key,
    tempering,
)
from tacit.inference.scoring import Scoring
from tacit.inference.variational import Variational
from tacit.models.base import DiscreteCoordinates, Row, UnitModel
from tacit.privacy.gate import Gate
from tacit.privacy.mechanisms import BarkerTests, Release, SampledBarkerTests, barker_event
from tacit.privacy.trace import Step

Tests = BarkerTests | SampledBarkerTests
_WALK_STEPS, _GUIDED_STEPS = 5000, 1600
# Half of the proposals of a guided chain are accepted at best, so that three steps are worth one draw.
_STEPS_PER_DRAW = 3
# If a smaller share of the proposals is accepted, the approximation was far from the posterior.
_LOW_ACCEPTANCE = 0.15
# The share of the budget for a variational fit to start from.
_VARIATIONAL_START_SHARE = 0.2
# Normal draws that decide a jump among whole numbers.
_DRAWS_PER_JUMP = 3
LOGISTIC_VARIANCE: Final = math.pi**2 / 3
MIN_VARIANCE: Final = 0.05
# Point masses are at most the first from zero; the sum is compared with the logistic up to the second.
_GRID_END, _COMPARED_UP_TO = 25.0, 30.0
# Tolerance of the linear programme, in probability: far below what any run could show.
_LP_TOLERANCE = 1e-8
# A stream of draws of its own, so that corrections are independent of the other draws of a seed.
_CORRECTION_STREAM = 1


@dataclass(frozen=True)
class Proposal(ABC):
    """A symmetric random walk of the real coordinates. ``scale`` is None until a method fills it in."""

    scale: float | None = None

    def __post_init__(self) -> None:
        if self.scale is not None:
            _validate.positive("scale", self.scale)

    @abstractmethod
    def move(self, noise: jax.Array) -> jax.Array:
        """A move of ``len(noise) - 2`` coordinates, at a scale of one."""


@dataclass(frozen=True)
class GaussianWalk(Proposal):
    """A random walk with normal steps.

    Args:
        scale: Standard deviation of a step in every coordinate. By default the method chooses it.
    """

    def move(self, noise: jax.Array) -> jax.Array:
        """A standard normal move."""
        return noise[:-2]


@dataclass(frozen=True)
class BoundedWalk(Proposal):
    """A random walk with steps that are uniform in a ball.

    Args:
        scale: Radius of the ball. By default the method chooses it.
    """

    def move(self, noise: jax.Array) -> jax.Array:
        """A move that is uniform in the unit ball: all but two coordinates of a point on a sphere."""
        return noise[:-2] / jnp.maximum(jnp.linalg.norm(noise), 1e-30)


def num_proposal_normals(dimension: int) -> int:
    """How many normal draws a proposal takes."""
    return dimension + 2 + _DRAWS_PER_JUMP


def propose(
    proposal: Proposal,
    theta: jax.Array,
    noise: jax.Array,
    scale: jax.Array,
    discrete: DiscreteCoordinates,
) -> jax.Array:
    """A move of the real coordinates; or, half of the time, a jump of one whole number."""
    real, jump = noise[:-_DRAWS_PER_JUMP], ndtr(noise[-_DRAWS_PER_JUMP:])
    walked = theta + scale * proposal.move(real)
    if not discrete:
        return walked
    places = jnp.array([each.coordinate for each in discrete])
    low = jnp.array([each.low for each in discrete], theta.dtype)
    high = jnp.array([each.high for each in discrete], theta.dtype)
    which = jnp.minimum((jump[0] * len(discrete)).astype(jnp.int32), len(discrete) - 1)
    values = high[which] - low[which] + 1
    further = 1 + jnp.floor(jump[1] * (values - 1) * (1 - 2.0**-20))
    place = places[which]
    jumped = theta.at[place].set(low[which] + (theta[place] - low[which] + further) % values)
    walked = walked.at[places].set(theta[places])
    jumps = True if len(discrete) == len(theta) else jump[2] < 0.5
    return jnp.where(jumps, jumped, walked)


def round_discrete(theta: jax.Array, discrete: DiscreteCoordinates) -> jax.Array:
    """A start whose whole numbers are whole."""
    for each in discrete:
        value = jnp.clip(jnp.rint(theta[each.coordinate]), each.low, each.high)
        theta = theta.at[each.coordinate].set(value)
    return theta


# The position of a walk, the scale of its proposals, and the constants of the model.
WalkState = tuple[jax.Array, jax.Array, ArrayTree]
# The positions of chains, the approximation, and the constants of the model.
GuidedState = tuple[jax.Array, Reference, ArrayTree]


def _walk_state(model: UnitModel, start: jax.Array, walk: Proposal) -> WalkState:
    """The first state of a walk."""
    constants = jax.tree.map(jnp.asarray, model.constants)
    scale = jnp.float32(walk.scale or 0.0)
    return round_discrete(start.astype(jnp.float32), model.discrete), scale, constants


@lru_cache(maxsize=32)
def _walk_step(power: float, walk: Proposal, model: UnitModel) -> Step:
    """The step of a random walk. Cached, so that it compiles once.

    ``power`` is what the log-likelihood is multiplied by; ``walk`` has scale one.
    """

    def per_unit(
        given: tuple[jax.Array, jax.Array, ArrayTree], rows: Row, present: jax.Array
    ) -> jax.Array:
        now, then, constants = given
        before, after = (model.log_likelihood(at, rows, present, constants) for at in (now, then))
        return power * (after - before)

    def step(
        state: WalkState, given: tuple[jax.Array, jax.Array], release: Release
    ) -> tuple[WalkState, tuple[jax.Array, jax.Array]]:
        theta, scale, constants = state
        noise, corrected = given
        proposed = propose(walk, theta, noise, scale, model.discrete)
        shift = model.log_prior(proposed, constants) - model.log_prior(theta, constants)
        arguments = theta, proposed, constants
        accepted = release.noisy_test(per_unit, arguments, shift + corrected)
        theta = jnp.where(accepted, proposed, theta)
        return (theta, scale, constants), (theta, accepted)

    return step


@lru_cache(maxsize=32)
def _guided_step(model: UnitModel) -> Step:
    """The step of a guided chain. Cached, so that it compiles once."""

    def per_unit(
        given: tuple[jax.Array, jax.Array, Reference, ArrayTree], rows: Row, present: jax.Array
    ) -> jax.Array:
        now, then, reference, constants = given

        def density(theta: jax.Array) -> jax.Array:
            return model.log_likelihood(theta, rows, present, constants)

        return remainder_ratio(density, reference, then, now)

    def step(
        state: GuidedState, given: tuple[jax.Array, jax.Array], release: Release
    ) -> tuple[GuidedState, tuple[jax.Array, jax.Array]]:
        (positions, reference, constants), (proposed, turn) = state, given
        now = positions[turn]
        arguments = now, proposed, reference, constants
        accepted = release.noisy_test(per_unit, arguments, jnp.zeros(()))
        now = jnp.where(accepted, proposed, now)
        return (positions.at[turn].set(now), reference, constants), (now, accepted)

    return step


@dataclass(frozen=True, kw_only=True, eq=False)
class Correction:
    """A mixture of normals, or of point masses where ``spreads`` are zero, symmetric about 0.

    ``noise_variance`` is C, the variance of the normal noise that it completes.
    """

    noise_variance: float
    weights: Floats
    centres: Floats
    spreads: Floats

    @classmethod
    def mirrored(
        cls, noise_variance: float, weights: Floats, centres: Floats, spreads: Floats | None = None
    ) -> "Correction":
        """Half of each weight at a centre, half at its mirror image; and a total of one."""
        spreads = np.zeros_like(centres) if spreads is None else spreads
        side = np.concatenate([-centres, centres])
        order = np.argsort(side, kind="stable")
        return cls(
            noise_variance=noise_variance,
            weights=(np.tile(weights, 2) / (2 * weights.sum()))[order],
            centres=side[order],
            spreads=np.tile(spreads, 2)[order],
        )

    @property
    def variance(self) -> float:
        """The variance of the correction; that of an exact one would be pi^2/3 - C."""
        return float(self.weights @ (self.centres**2 + self.spreads**2))

    def total_distribution(self, points: Floats) -> Floats:
        """The distribution function of normal noise plus correction."""
        total = np.zeros(np.shape(points))
        scales = np.sqrt(self.noise_variance + self.spreads**2)
        for weight, centre, scale in zip(self.weights, self.centres, scales, strict=True):
            total += weight * special.ndtr((points - centre) / scale)
        return total

    @cached_property
    def error(self) -> float:
        """The largest difference from the acceptance probability of the exact test."""
        # The difference has no detail finer than the noise: between points it hides millionths.
        points = np.arange(0, 40, 1e-3)
        return float(np.abs(self.total_distribution(points) - special.expit(points)).max())

    @cached_property
    def _cumulative(self) -> Floats:
        cumulative = np.cumsum(self.weights)
        cumulative[-1] = 1.0
        return cumulative

    def draw(self, generator: np.random.Generator, count: int) -> Floats:
        """Independent corrections."""
        chosen = np.searchsorted(self._cumulative, generator.random(count), side="right")
        drawn = self.centres[chosen]
        if self.spreads.any():
            drawn = drawn + self.spreads[chosen] * generator.standard_normal(count)
        return drawn

    def draws(self, seed: Sequence[int], first: int, steps: int) -> Floats:
        """A correction for each of some steps; a step's depends on its number alone."""
        return per_step_draws(self.draw, seed, first, steps, stream=_CORRECTION_STREAM)


def logistic_correction(noise_variance: float = 2.0) -> Correction:
    """The correction for normal noise of a variance: shipped, or else made in about a second.

    >>> found = logistic_correction(2.0)
    >>> round(found.error, 5), round(found.variance + 2.0, 5), round(LOGISTIC_VARIANCE, 5)
    (0.00059, 3.28987, 3.28987)
    """
    variance = _validate.positive("noise_variance", noise_variance)
    if not (MIN_VARIANCE <= variance < LOGISTIC_VARIANCE):
        raise InvalidArgument(
            f"noise_variance must be at least {MIN_VARIANCE} and below pi^2/3, the variance of "
            f"the logistic distribution; got {noise_variance!r}."
        )
    return _cached_correction(variance)


@lru_cache(maxsize=32)
def _cached_correction(variance: float) -> Correction:
    shipped = read_corrections("tacit.inference", "barker_tables.json")
    if variance in shipped:
        return shipped[variance]
    return Correction.mirrored(variance, *best_point_masses(variance))


@lru_cache(maxsize=2)
def read_corrections(package: str, name: str) -> dict[float, Correction]:
    """The corrections in a file of a package, by their noise variance."""
    content = json.loads(files(package).joinpath(name).read_text("utf-8"))
    return {
        float(variance): Correction.mirrored(
            float(variance), **{name: np.array(values) for name, values in parts.items()}
        )
        for variance, parts in content.items()
    }


def best_point_masses(variance: float) -> tuple[Floats, Floats]:
    """Weights and centres, none negative, of the table: the optimum of a linear programme.

    The unknowns are the weights of mirrored pairs on a grid, and the largest difference
    between the two distribution functions on a grid, which is made least. The variance is
    prescribed: it costs the difference next to nothing, and without it the outermost masses,
    which hardly matter to the difference, could lie anywhere.
    """
    scale = math.sqrt(variance)
    spacing = min(0.05, scale / 5)
    centres = np.arange(0, _GRID_END, spacing)
    points = np.arange(0, _COMPARED_UP_TO, spacing)
    total = special.ndtr((points[:, None] - centres) / scale) + special.ndtr(
        (points[:, None] + centres) / scale
    )
    above = np.column_stack([total / 2, -np.ones_like(points)])
    below = np.column_stack([-total / 2, -np.ones_like(points)])
    found = linprog(
        np.append(np.zeros_like(centres), 1.0),
        A_ub=np.concatenate([above, below]),
        b_ub=np.concatenate([special.expit(points), -special.expit(points)]),
        A_eq=np.stack([np.append(np.ones_like(centres), 0.0), np.append(centres**2, 0.0)]),
        b_eq=[1.0, LOGISTIC_VARIANCE - variance],
        method="highs",
        options={
            "primal_feasibility_tolerance": _LP_TOLERANCE,
            "dual_feasibility_tolerance": _LP_TOLERANCE,
        },
    )
    if found.status != 0:
        raise InvalidArgument(
            f"No correction was found for a noise_variance of {variance:g}; use another, such as 2."
        )
    used = found.x[:-1] > 0
    return found.x[:-1][used], centres[used]


@dataclass(frozen=True)
class VariationalStart(FirstFit):
    """A variational fit, at whose mean a walk begins."""

    variational: Variational

    @property
    def method(self) -> Variational:
        """The method of the fit."""
        return self.variational

    def check(self, model: UnitModel, gate: Gate) -> None:
        """Raises what this stage would raise of the model."""
        if model.discrete:
            raise InvalidArgument(
                "A variational start needs gradients, and the model has discrete parameters; "
                "start at values of some parameters instead."
            )
        self.variational.check(model, gate)
        if not isinstance(self.variational.guide, MeanField | FullRank | LowRank):
            raise InvalidArgument("A start needs a Gaussian guide, such as MeanField().")

    def run(
        self,
        model: UnitModel,
        gate: Gate,
        key: jax.Array,
        progress: Progress | None,
        draws: int,  # noqa: ARG002 (only the mean is used)
    ) -> jax.Array:
        """The mean of the guide, which is Gaussian, as `check` has seen."""
        return jnp.asarray(self.variational.run(model, gate, key, progress).unconstrained_mean)

    def dummy_start(self, model: UnitModel, draws: int) -> jax.Array:  # noqa: ARG002
        """Zero."""
        return jnp.zeros(model.dimension)


@dataclass(frozen=True, kw_only=True)
class Barker(ChainMethod[Tests]):
    """Private Markov chain Monte Carlo by Barker accept/reject tests. All settings are public.

    By default most of the budget goes to a `Scoring` fit, whose draws are proposed one after the other,
    and the tests weigh what the likelihood says beyond that approximation. Settings of the walk
    (``ratio_bound``, ``noise_variance``, ``batch_size``, ``tempered_size``, ``proposal``,
    ``lipschitz``, or a ``start`` at values) give the plain chain instead, and so do models
    that `Scoring` cannot fit.

    Every step tests a proposal on all units, and the accept decision is exact. With
    tight accounting this is the most private form. ``num_steps`` and the budget determine
    ``ratio_bound``; if the bound is passed instead, the chain is as long as the budget allows.

    Args:
        num_steps: Number of steps; by default 1600 after a start by `Scoring`, which four chains share, and 5000 for a walk.
        ratio_bound: Bound that one unit's log-likelihood ratio is clipped to.
        noise_variance: Use the published test with Gaussian noise of this variance and a correction
            (Heikkilä et al. 2019).
        batch_size: Test on random batches of this many units. This is faster for millions of rows,
            but approximate and not more private. It needs ``size`` and a budget under replace.
        size: The public number of units. Do not count it from private data. Without ``batch_size``
            it need not be exact.
        tempered_size: Scale the log-likelihood by ``tempered_size / size``, for a wider posterior
            and larger steps.
        proposal: `tacit.methods.GaussianWalk` or `tacit.methods.BoundedWalk`. By default normal steps, short enough
            that a typical row is not clipped.
        lipschitz: A Lipschitz constant of a row's log-likelihood on the unconstrained scale. Steps
            are then bounded so that nothing is clipped (Heikkilä et al. 2019, Lemma 2). If the
            constant is wrong, clipping still protects.
        start: Settings of a `Scoring` fit, whose draws are then the proposals; of a `Variational` fit
            to start from; or public values of some parameters.
        start_share: The share of the budget that a fit to start from gets: by default .95 for
            `Scoring`, and .2 for `Variational`.
        burn_in: The share of the steps that is discarded at the start; by default .05 after a start
            by `Scoring`, and else .2.
        thin: Keep every ``thin``-th of the remaining draws.
    """

    num_steps: int | None = None
    ratio_bound: float | None = None
    noise_variance: float | None = None
    batch_size: int | None = None
    size: int | None = None
    tempered_size: float | None = None
    proposal: Proposal | None = None
    lipschitz: float | None = None
    start: Scoring | Variational | Mapping[str, ArrayLike] | None = field(
        default=None, compare=False
    )
    start_share: float | None = None
    burn_in: float | None = None
    thin: int = 1

    plain_burn_in: ClassVar[float] = 0.2
    declared_public: ClassVar[tuple[str, ...]] = ("start",)

    def __post_init__(self) -> None:
        given = {name: value for name, value in vars(self).items() if value is not None}
        for name in ("num_steps", "batch_size"):
            if name in given:
                _validate.integer(name, given[name])
        for name in ("ratio_bound", "lipschitz", "noise_variance"):
            if name in given:
                _validate.positive(name, given[name])
        _validate.count("thin", self.thin)
        if not (0 <= given.get("burn_in", 0) < 1 and 0 < given.get("start_share", 0.5) < 1):
            raise InvalidArgument("burn_in and start_share must be shares of the whole, below 1.")
        if self.proposal is not None and not isinstance(self.proposal, Proposal):
            raise InvalidArgument(
                "proposal must be a GaussianWalk or BoundedWalk of tacit.methods."
            )
        if self.lipschitz is not None and isinstance(self.proposal, GaussianWalk):
            raise InvalidArgument("lipschitz works only with proposal=tacit.methods.BoundedWalk().")
        self._check_sizes()

    def _check_sizes(self) -> None:
        _ = self.tempering  # raises if the sizes make no sense
        if self.batch_size is None:
            return
        if self.size is None:
            raise InvalidArgument("batch_size needs size=, the public number of units.")
        if self.ratio_bound is not None or self.noise_variance is not None:
            raise InvalidArgument(
                "batch_size determines the bound, sqrt(batch_size) / tempered_size, and the noise "
                "variance, 2, as the proof needs them; leave out ratio_bound and noise_variance."
            )

    @property
    def tempering(self) -> float:
        """The factor that the log-likelihood is multiplied by."""
        return tempering(self.size, self.tempered_size)

    @property
    def _tempered_size(self) -> float:
        assert self.size is not None
        return float(self.size) if self.tempered_size is None else self.tempered_size

    def for_size(self, model: UnitModel, size: int, budget: Budget) -> Self:  # noqa: ARG002
        """The method for a declared size."""
        return self if self.size is not None else replace(self, size=size)

    def trial(self, num_steps: int) -> Self:
        """The same method with so few steps, all of them kept."""
        return replace(self, num_steps=num_steps, burn_in=0.0)

    def first_fit(self, model: UnitModel) -> FirstFit | None:
        """The fit whose draws are proposed, or at whose mean a walk begins; None for other walks."""
        if isinstance(self.start, Variational):
            return VariationalStart(self.start_share or _VARIATIONAL_START_SHARE, self.start)
        walk = self.proposal, self.lipschitz, self.ratio_bound, self.noise_variance
        is_walk = any(each is not None for each in (*walk, self.batch_size, self.tempered_size))
        share = self.start_share or DEFAULT_SHARE
        if isinstance(self.start, Scoring):
            if is_walk:
                raise InvalidArgument(
                    "A start by Scoring makes its own proposals and bound; leave out settings of the walk."
                )
            return ScoringFit(share, self.start)
        if self.start is not None or is_walk or not Scoring.can_fit(model):
            return None
        return ScoringFit(share, Scoring(), self.size)

    def _public_start(self, model: UnitModel) -> jax.Array:
        return jnp.asarray(model.unconstrain(self.start if isinstance(self.start, Mapping) else {}))

    def _releases(
        self,
        model: UnitModel,  # noqa: ARG002
        budget: Budget | None,
        first: FirstFit | None,
        before: tuple[DpEvent, ...],
    ) -> Tests:
        """The tests that fit a budget; without one, ratios are hardly clipped."""
        default_steps = _GUIDED_STEPS if isinstance(first, ScoringFit) else _WALK_STEPS
        if budget is None:
            return self._make_tests(LOOSE_CLIP, self.num_steps or default_steps, private=False)
        return self._tests(budget, before, default_steps)

    def _tests(self, budget: Budget, before: tuple[DpEvent, ...], default_steps: int) -> Tests:
        if self.batch_size is not None and budget.adjacency != "replace":
            raise InvalidArgument(
                "Tests on batches of fixed size have no guarantee under add-remove; pass "
                'Budget(..., adjacency="replace"), which takes the number of units as public.'
            )
        bound = self._stated_bound()
        if bound is None:
            return self._by_bound(budget, before, default_steps)
        if self.num_steps is None:
            most = calibrate.max_steps(
                lambda steps: events.compose(*before, self._make_tests(bound, steps).event), budget
            )
            return self._make_tests(bound, most)
        tests = self._make_tests(bound, self.num_steps)
        spent = PLD().epsilon(events.compose(*before, tests.event), budget.delta, budget.adjacency)
        if spent > budget.epsilon:
            raise BudgetError(
                f"{self.num_steps} tests with ratios bounded by {bound:.4g} cost epsilon "
                f"{spent:.4g}, more than {budget}; take fewer, or leave num_steps or the bound out."
            )
        return tests

    def _stated_bound(self) -> float | None:
        """The bound of ratios, where settings determine it."""
        if self.batch_size is not None:
            return math.sqrt(self.batch_size) / self._tempered_size
        if self.ratio_bound is not None or self.lipschitz is None:
            return self.ratio_bound
        if self.proposal is None or self.proposal.scale is None:
            return None
        return self.tempering * self.lipschitz * self.proposal.scale

    def _by_bound(self, budget: Budget, before: tuple[DpEvent, ...], default_steps: int) -> Tests:
        """The largest bound that the budget allows for so many steps."""
        steps = self.num_steps or default_steps
        left = 1 - (DEFAULT_SHARE if before else 0) ** 2  # of the budget, as squares add up
        inverse = calibrate.calibrate(
            lambda inverse: events.compose(
                *before, barker_event(1 / inverse, self.noise_variance, steps)
            ),
            budget,
            guess=math.sqrt(steps) / (2 * calibrate.approximate_mu(budget) * math.sqrt(left)),
        )
        return self._make_tests(min(1 / inverse, LOOSE_CLIP), steps)

    def _make_tests(self, bound: float, steps: int, *, private: bool = True) -> Tests:
        """The tests; those on batches have a bound of their own."""
        if self.batch_size is None:
            return BarkerTests(
                num_steps=steps,
                ratio_bound=bound,
                noise_variance=self.noise_variance,
                private=private,
            )
        assert self.size is not None
        return SampledBarkerTests(
            num_steps=steps,
            batch_size=self.batch_size,
            dataset_size=self.size,
            tempered_size=self._tempered_size,
            private=private,
        )

    def walk(self, model: UnitModel, tests: Tests) -> Proposal:
        """The proposal, with its scale: by default what the bound allows a typical row."""
        chosen = self.proposal or (GaussianWalk() if self.lipschitz is None else BoundedWalk())
        if chosen.scale is not None:
            return chosen
        # Bound of the likelihood's own ratio; a batch's is not tempered.
        bound = tests.clip / (self.tempering if self.batch_size is None else 1.0)
        if self.lipschitz is not None:
            return replace(chosen, scale=bound / self.lipschitz)
        # A row's gradient is about sqrt(dimension) long. Four standard deviations of its ratio are
        # not to be clipped: with two the posterior is off by a tenth.
        scale = min(bound / 4, 1.0) / math.sqrt(model.dimension)
        ball = isinstance(chosen, BoundedWalk)
        return replace(chosen, scale=scale * math.sqrt(model.dimension + 2) if ball else scale)

    def _check_plain(self, model: UnitModel, mechanism: Tests) -> None:
        """Raises if a walk by settings that nobody chose will not mix, as far as a size tells."""
        chosen = self.num_steps, self.ratio_bound, self.proposal, self.tempered_size, self.lipschitz
        if self.size is None or any(each is not None for each in chosen):
            return
        # A move is this part of a posterior standard deviation, if a row's slope is usual.
        part = (self.walk(model, mechanism).scale or 0.0) * math.sqrt(self.size)
        worth = mechanism.num_steps * min(part**2, 1.0) / 8
        if worth < MIN_EXPECTED_EFFECTIVE_SIZE:
            raise InvalidArgument(
                f"A walk of Barker tests would be worth about {worth:.0f} independent draws at this "
                f"budget and size, and {MIN_EXPECTED_EFFECTIVE_SIZE:.0f} are needed. Give the model a way to draw its "
                "outcomes, use tacit.Variational(), or choose num_steps yourself."
            )

    def _draws_needed(self, steps: int) -> int:
        """A draw of the first fit for each proposal, and for the start of each chain."""
        return steps + num_chains(steps)

    def _chain(self, model: UnitModel, mechanism: Tests, key: jax.Array, start: Start) -> Steps:
        if isinstance(start, Approximation):
            return _guided_steps(model, mechanism.num_steps, start)
        seed, walk = seed_from_key(key), self.walk(model, mechanism)
        power = self.tempering if self.batch_size is None else 1.0

        def inputs(first: int, steps: int) -> ArrayTree:
            size = num_proposal_normals(model.dimension)
            moves = per_step_normals(seed, first, steps, (size,))
            return moves, self._corrections(seed, first, steps)

        # The scale is in the state, so that chains of other scales share a compiled program.
        step = _walk_step(power, replace(walk, scale=1.0), model)
        return Steps(step, _walk_state(model, start, walk), inputs)

    def _corrections(self, seed: Sequence[int], first: int, steps: int) -> NDArray[np.float32]:
        """What makes Gaussian noise logistic; nothing where the test is exact."""
        if self.batch_size is None and self.noise_variance is None:
            return np.zeros(steps, np.float32)
        variance = 2.0 if self.noise_variance is None else self.noise_variance
        return self._correction(variance).draws(seed, first, steps).astype(np.float32)

    def _correction(self, variance: float) -> Correction:
        """The distribution that completes normal noise of a variance to logistic noise."""
        return logistic_correction(variance)

    def _remarks(
        self,
        mechanism: Tests,  # noqa: ARG002
        acceptance: float | None,
        *,
        guided: bool,
    ) -> tuple[str, ...]:
        """What the decisions say of the approximation."""
        if not guided or acceptance is None:
            return ()
        said = (
            f"The tests accepted {acceptance:.0%} of the draws of private Fisher scoring; 50% is the most."
            if acceptance >= _LOW_ACCEPTANCE
            else f"The tests accepted only {acceptance:.0%} of the draws of private Fisher scoring, where 50% is the "
            "most: the posterior is far from that approximation."
        )
        return (said,)

    def describe(self, model: UnitModel) -> str:
        """A line for the printed plan."""
        if isinstance(self.first_fit(model), ScoringFit):
            steps = self.num_steps or _GUIDED_STEPS
            return (
                f"{describe_chains(steps)} of Barker tests on all rows, for {model.dimension} unconstrained "
                "numbers. They start from private Fisher scoring and propose its draws; about "
                f"{steps // _STEPS_PER_DRAW} effective draws to expect. Intervals include the noise."
            )
        kind = "all rows" if self.batch_size is None else "random batches"
        return f"Markov chain of Barker tests on {kind}, for {model.dimension} unconstrained parameters."


def _guided_steps(model: UnitModel, steps: int, guide: Approximation) -> Steps:
    """Chains that take turns: the first draws of the approximation are their starts, the others proposals."""
    chains = num_chains(steps)
    constants = jax.tree.map(jnp.asarray, model.constants)
    reference: Reference = jax.tree.map(jnp.asarray, guide.reference)

    def inputs(first: int, count: int) -> ArrayTree:
        begin = chains + first
        return guide.vectors[begin : begin + count], chain_indices(first, count, chains)

    return Steps(
        _guided_step(model), (jnp.asarray(guide.vectors[:chains]), reference, constants), inputs
    )

"""Privacy schemes of federated fits: how sites protect their data.

A scheme is a set of public settings. From them, a budget and the number of answers, `prepare` makes what
one site does in a run (`Prepared`), with noise calibrated for all answers together. Every site does this
for itself.

`Optimised` has noise in the gradients of each site's own optimisation, `ClippedStatistics` and `OneRelease` in the
sum of sufficient statistics, and `ClippedChanges` in the whole change that a site makes to the posterior. Every release is made by the gate: clipped contributions of single units, summed, with noise.

A clipped change is computed from all rows of a group, for which the group is a unit like any other. It may depend only on the
rows of the group and on public values, so the factor that stands for the group must be public too. If every message
is private by itself (``noise="site"``), it is: the site's factor is a sum of what it sent. If only the sum over
sites is public, all groups share the factor (q - prior) / number of groups. A site that kept hidden noise in a
factor of its own would correct it in the next round and so reveal it. The noise of several rounds then protects
less than it seems to (`tacit.papers.federated.algorithm_three`).

Examples:
    >>> from tacit.federated.schemes import ClippedChanges
    >>> ClippedChanges(clip=1.0).each_message_private
    True
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, ClassVar, Generic, Literal

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from tacit import _validate
from tacit._typing import PyTree
from tacit.accounting import PLD, Budget, calibrate, events
from tacit.accounting.events import DpEvent
from tacit.errors import BudgetError, InvalidArgument
from tacit.federated.agreement import BY_NOISE, ONLY_THE_SITE, SEVERAL_SITES, ZEROS
from tacit.federated.protocol import Numbers, Reply
from tacit.federated.server import common_grid, sum_replies
from tacit.federated.site import ClientUpdate
from tacit.federated.targets import (
    ApproximateTarget,
    ConjugateTarget,
    NaturalTarget,
    T,
    gaussian_family,
    guide_for_family,
    optimise_locally,
)
from tacit.inference.method import no_inputs
from tacit.inference.variational import Variational
from tacit.models.base import Row
from tacit.models.conjugate import Constants
from tacit.models.exponential_families import DiagonalGaussian, FullGaussian, Vector, packed_indices
from tacit.privacy.distributed import (
    MAX_EXACT_FLOAT32,
    add_server_noise,
    exact_batch_bound,
    extra_delta,
    lattice_points_from_release,
)
from tacit.privacy.gate import Gate, run
from tacit.privacy.groups import all_rows_as_unit, evaluate_without_privacy
from tacit.privacy.mechanisms import NoisySums, Release, sum_rows
from tacit.privacy.noise import Randomness
from tacit.privacy.rows import Rows

# Turns the replies of a round, and the posterior that they are for, into the change of the posterior. Noise of the
# server is added here.
Aggregate = Callable[[Sequence[Reply], Vector], Vector]
# The share of delta that covers sums of shares of noise, which are not exactly normal, and the largest
# epsilon for which it is enough.
SHARES_DELTA, _SHARES_MAX_EPSILON = 2.0**-40, 100.0


@dataclass(frozen=True, kw_only=True)
class RunSetting(Generic[T]):
    """What a site knows about a run, from its own settings. Nothing of it comes by message.

    Args:
        target: What sites fit together, as the method makes it.
        budget: The budget of the site, or None for a run without privacy.
        answers: The number of answers that are charged.
        sites: The number of sites that take part.
        together: The number of sites that answer in one round.
        damping: The factor that the server multiplies changes by.
        dropouts: How many of the sites that answer together may be missing.
    """

    target: T
    budget: Budget | None
    answers: int
    sites: int
    together: int
    damping: float = 1.0
    dropouts: int = 0


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """What a site does in a run, and the event of all its answers together.

    ``in_factor`` says whether answers that were used go into a factor of the site, and ``noise_std`` has the
    standard deviation of an answer's noise, if the server must know it.
    """

    work: ClientUpdate
    event: DpEvent | None
    in_factor: bool = True
    noise_std: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Aggregation:
    """Settings of the server that a scheme needs; see `tacit.federated.server.Server`.

    ``mark`` identifies a server that adds noise; see `tacit.federated.protocol.Task`.
    """

    needs_all_sites: bool = False
    tracked: bool = True
    aggregate: Aggregate = sum_replies
    mark: bytes = b""
    grid: float | None = None


class Scheme(ABC, Generic[T]):
    """How sites protect their data. By default rows are protected, and every message is private by itself."""

    @property
    def protects(self) -> Literal["rows", "data set"]:
        """The unit of privacy: each unit of the rows, or everything that a site holds."""
        return "rows"

    @property
    def trust(self) -> tuple[str, ...]:
        """Who is trusted, in sentences for the statement."""
        return ONLY_THE_SITE, SEVERAL_SITES

    @property
    def each_message_private(self) -> bool:
        """Whether every message has enough noise by itself, so that any schedule is possible."""
        return True

    @property
    def split(self) -> bool:
        """Whether only the sum of all sites' messages has enough noise."""
        return False

    @abstractmethod
    def prepare(self, setting: RunSetting[T]) -> Prepared:
        """What a site does, with noise calibrated to its budget."""

    def aggregation(self, setting: RunSetting[T], source: Randomness) -> Aggregation:  # noqa: ARG002
        """What the server does: by default it adds the changes up."""
        return Aggregation()


def check_covered(event: DpEvent, budget: Budget | None) -> DpEvent:
    """The event, if the budget covers it; otherwise raises `BudgetError`."""
    if budget is not None:
        spent = PLD().epsilon(event, budget.delta, budget.adjacency)
        if not (spent <= budget.epsilon):
            raise BudgetError(
                f"The given noise_multiplier costs more than {budget}; leave it out to have it "
                "calibrated."
            )
    return event


def normal_noise_budget(budget: Budget) -> Budget:
    """The budget of normal noise, if sites share it: delta without twice the part that is kept for shares."""
    return replace(budget, delta=budget.delta * (1 - 2 * SHARES_DELTA))


def shares_slack(budget: Budget) -> DpEvent:
    """The event of shares of noise whose sum is not exactly normal. Lemma F1."""
    return events.Slack(delta=SHARES_DELTA * budget.delta)


def check_noise_shares(
    mechanism: NoisySums, setting: RunSetting[T], budget: Budget, honest: int, advice: str
) -> None:
    """Refuses shares of noise whose sum is further from normal than delta allows. Lemma F1.

    Args:
        mechanism: What a site releases.
        setting: The setting of the run.
        budget: The budget of a site.
        honest: The number of sites in a round that do not reveal their noise.
        advice: What to do instead.
    """
    extra = extra_delta(
        mechanism.noise_std / mechanism.grid,
        honest,
        numbers=mechanism.dimension * setting.answers,
        epsilon=max(budget.epsilon, _SHARES_MAX_EPSILON),
    )
    if extra > SHARES_DELTA * budget.delta:
        raise InvalidArgument(
            "A site's share of the noise is so few lattice points that the sum of shares is not "
            f"normal; {advice}."
        )


# The posterior, the factor of the rows, and the target's constants.
ChangeArgs = tuple[jax.Array, jax.Array, Any]
# The same, and the centre around which a change is expressed.
CentredArgs = tuple[jax.Array, jax.Array, PyTree, jax.Array]
Change = Callable[[ChangeArgs, Row, jax.Array], jax.Array]
ChangeStep = Callable[[CentredArgs, jax.Array, Release], tuple[CentredArgs, jax.Array]]


@lru_cache(maxsize=32)
def local_change(target: NaturalTarget, weight: float, num_iterations: int) -> Change:
    """The change ``function((posterior, factor, constants), rows, present)`` of natural parameters.

    It is the likelihood of the rows, to the power ``weight``, minus the factor that stood for them. For
    models that are not conjugate, every iteration approximates the likelihood around the result of the
    last one.
    """

    def function(arguments: ChangeArgs, rows: Row, present: jax.Array) -> jax.Array:
        posterior, factor, constants = arguments
        change = jnp.zeros_like(posterior)
        for _ in range(num_iterations):
            likelihood = target.likelihood(posterior + change, rows, present, constants)
            change = weight * likelihood.astype(posterior.dtype) - factor
        return change

    return function


@lru_cache(maxsize=32)
def damped_change(target: ApproximateTarget, num_iterations: int) -> Change:
    """As `local_change`, for approximate targets with a posterior without correlations.

    Without correlations, every coordinate of the mean steps as if the others were fixed. Correlated
    coordinates together then step too far, and further in every round, for any number of sites. So
    steps are reduced in directions in which the curvature of the rows exceeds that of single
    coordinates. The fixed point stays the same.
    """

    def function(arguments: ChangeArgs, rows: Row, present: jax.Array) -> jax.Array:
        posterior, factor, constants = arguments
        cavity_precision, cavity_weighted = jnp.split(posterior - factor, 2)
        eta = posterior
        for _ in range(num_iterations):
            mean, gradient, curvature = target.expected_derivatives(eta, rows, present, constants)
            precision = cavity_precision + jnp.diag(curvature)
            gradient = gradient + cavity_weighted - cavity_precision * mean
            step = _limited_step(curvature, gradient)
            eta = jnp.concatenate([precision, precision * mean + step])
        return eta - posterior

    return function


def _limited_step(curvature: jax.Array, gradient: jax.Array) -> jax.Array:
    """A step of the mean, reduced where coordinates together have more curvature than each alone."""
    diagonal = jnp.abs(jnp.diag(curvature))
    scale = jnp.sqrt(jnp.maximum(diagonal, 1e-6 * diagonal.max() + 1e-30))
    values, vectors = jnp.linalg.eigh(curvature / scale[:, None] / scale)
    coordinates = vectors.T @ (gradient / scale) / jnp.maximum(values, 1.0)
    return jnp.asarray(scale * (vectors @ coordinates))


@lru_cache(maxsize=32)
def change_step(
    target: NaturalTarget, weight: float, num_iterations: int, *, centred: bool
) -> ChangeStep:
    """A step of the gate that releases the noisy sum of the changes of groups of rows.

    A centred change has precision times (mean - present mean) in place of precision times mean.
    """
    local, family = local_change(target, weight, num_iterations), target.family
    diagonal = isinstance(family, DiagonalGaussian)
    centred = centred and isinstance(family, DiagonalGaussian | FullGaussian)

    def per_unit(arguments: CentredArgs, rows: Row, present: jax.Array) -> jax.Array:
        *others, centre = arguments
        change = local((*others,), rows, present)
        if not centred:
            return change
        if diagonal:
            precision, weighted = jnp.split(change, 2)
            return jnp.concatenate([precision, weighted - precision * centre])
        size = len(centre)
        row, column, scale = packed_indices(size)
        lower = jnp.zeros((size, size)).at[row, column].set(change[:-size] / scale)
        precision = lower + jnp.tril(lower, -1).T
        return jnp.concatenate([change[:-size], change[-size:] - precision @ centre])

    def step(state: CentredArgs, _: jax.Array, release: Release) -> tuple[CentredArgs, jax.Array]:
        return state, release.noisy_sum(per_unit, state)

    return step


@dataclass(frozen=True, kw_only=True)
class ChangePostprocessing:
    """How a released vector becomes a change of natural parameters.

    It depends on released and public values only. A ``steady`` change moves the mean as if every
    precision were larger by the noise, so that it moves little where the noise dominates. With
    ``floor``, precisions (or counts) do not fall below those of the prior, because rows can only add to
    them.

    Args:
        target: What sites fit together.
        centred: Whether the released vector is centred around the present mean.
        mean_step: Share of the change that the mean takes.
        steady: Whether the mean moves less where the noise dominates.
        floor: Whether precisions stay at least those of the prior; only for ``steady``.
    """

    target: NaturalTarget
    centred: bool
    mean_step: float
    steady: bool
    floor: bool

    def change(self, posterior: Vector, released: Vector, noise_std: float) -> Vector:
        """The change of natural parameters for a released vector with noise of ``noise_std``."""
        family, prior = self.target.family, self.target.prior
        floored = self.floor and self.steady
        if not isinstance(family, DiagonalGaussian | FullGaussian):
            after = posterior + released
            return (family.at_least(after, prior) if floored else after) - posterior
        if not self.centred:
            return released
        added_precision, weighted = family.split(released)
        mean = family.mean(posterior)
        # The server keeps q proper where noise made a precision negative; the mean needs a
        # positive one here.
        positive = family.split(family.at_least(posterior + released, prior))[0]
        precision = positive if floored else family.split(posterior)[0] + added_precision
        ridge = noise_std if self.steady else 0.0
        if isinstance(family, DiagonalGaussian):
            step = self.mean_step * weighted * positive / (positive + ridge)
            return family.join(precision, precision * mean + step) - posterior
        regularised = positive + ridge * np.eye(family.dimension)
        step = self.mean_step * positive @ np.linalg.solve(regularised, weighted)
        return family.join(precision, precision @ mean + step) - posterior


@dataclass(frozen=True)
class SumAggregation:
    """The server's part where the noise is shared or its own: a sum, and the change that it means."""

    postprocessing: ChangePostprocessing
    noise_std: float
    points: float
    source: Randomness

    def __call__(self, replies: Sequence[Reply], posterior: Vector) -> Vector:
        """The change of the posterior by the replies of a round."""
        grid = common_grid(replies)
        if grid is None:
            raise InvalidArgument("Sites answered without a lattice; their settings differ.")
        whole = add_server_noise([reply.change for reply in replies], self.points, self.source)
        return self.postprocessing.change(
            posterior, whole.astype(np.float64) * grid, self.noise_std
        )


@dataclass(frozen=True, kw_only=True)
class Optimised(Scheme[NaturalTarget]):
    """Each site maximises its local free energy by private gradients, with the cavity as its prior.

    Args:
        variational: Settings of one answer. Its guide is replaced by the family of the posterior.
        noise_multiplier: Noise over clip. By default it is calibrated to the budget; a given value
            must be covered by the budget.
    """

    variational: Variational = field(default_factory=lambda: Variational(num_steps=200))
    noise_multiplier: float | None = None

    def prepare(self, setting: RunSetting[NaturalTarget]) -> Prepared:
        """Noise for the steps of all answers. Theorem F1."""
        method = with_family_guide(self.variational, setting.target)
        rate, steps = method.constant_rate, method.num_steps * setting.answers
        noise, event = self.noise_multiplier or 0.0, None
        if setting.budget is not None and self.noise_multiplier is None:
            noise = calibrate.noise_multiplier(setting.budget, sampling_rate=rate, num_steps=steps)
        if noise > 0:
            event = check_covered(events.sampled_gaussian(noise, rate, steps), setting.budget)
        mechanism = method.mechanism(setting.target.model, noise)
        return Prepared(work=LocalOptimisation(setting.target, method, mechanism), event=event)


@dataclass(frozen=True)
class LocalOptimisation:
    """What a site computes: a local posterior, optimised by private gradients."""

    target: NaturalTarget
    method: Variational
    mechanism: NoisySums
    grid: ClassVar[None] = None

    @property
    def size(self) -> int:
        """Length of a change."""
        return self.target.family.size

    def change(self, rows: Rows, posterior: Vector, factor: Vector, source: Randomness) -> Vector:
        """The difference between the fitted and the present posterior."""
        return self.fit(rows, posterior - factor, posterior, source) - posterior

    def fit(self, rows: Rows, cavity: Vector, start: Vector, source: Randomness) -> Vector:
        """The posterior after a private optimisation from ``start``."""
        gate = Gate(rows, self.mechanism, source.child("gate"))
        key = int(source.child("model").words(1)[0] >> np.uint64(33))
        return optimise_locally(self.target, self.method, gate, cavity, start, key)


def with_family_guide(method: Variational, target: NaturalTarget) -> Variational:
    """A copy of the settings with the guide of the posterior's family."""
    return replace(method, guide=guide_for_family(gaussian_family(target)), start=None)


Floor = Literal["statistic", "factor"]
StatisticStep = Callable[[Constants, jax.Array, Release], tuple[Constants, jax.Array]]


@dataclass(frozen=True, kw_only=True)
class ClippedStatistics(Scheme[NaturalTarget]):
    """Every answer releases the statistics of a conjugate model again (eqs. 4.19-4.21 of the report).

    Args:
        clip: Bound on the 2-norm of what one unit adds to the natural parameters.
        floor: ``"statistic"`` sets released precisions (or counts) that are negative to zero, as
            eq. 4.20 does. ``"factor"`` keeps the precision of the factor, after damping, from
            becoming negative. Both bias the precision upwards. By default only the server keeps
            the posterior proper.
        noise_multiplier: Noise over clip. By default it is calibrated to the budget; a given value
            must be covered by the budget.
    """

    clip: float
    floor: Floor | None = None
    noise_multiplier: float | None = None

    def __post_init__(self) -> None:
        _validate.positive("clip", self.clip)
        if self.floor is not None:
            _validate.choice("floor", self.floor, ("statistic", "factor"))

    def prepare(self, setting: RunSetting[NaturalTarget]) -> Prepared:
        """Noise for the statistics of all answers. Theorem F2."""
        noise, event = self.noise_multiplier or 0.0, None
        if setting.budget is not None and self.noise_multiplier is None:
            noise = calibrate.noise_multiplier(setting.budget, num_steps=setting.answers)
        if noise > 0:
            repeated = events.repeat(events.gaussian(noise), setting.answers)
            event = check_covered(repeated, setting.budget)
        target = check_conjugate(setting.target)
        mechanism = statistics_mechanism(target, self.clip, noise)
        if self.floor is None:
            return Prepared(work=StatisticsRelease(target, mechanism), event=event)
        floored = _FlooredStatistics(target, mechanism, self.floor, setting.damping)
        return Prepared(work=floored, event=event)


@dataclass(frozen=True, kw_only=True)
class OneRelease(ClippedStatistics):
    """The statistics of a conjugate model are released once, with the whole budget.

    It needs one round, and its noise is that of a single release.
    """

    def prepare(self, setting: RunSetting[NaturalTarget]) -> Prepared:
        """Noise for one release. Theorem F2."""
        if setting.answers != 1:
            raise InvalidArgument("OneRelease releases statistics once: pass num_rounds=1.")
        return super().prepare(setting)


@dataclass(frozen=True)
class StatisticsRelease:
    """What a site computes: it releases the sum of the statistics of all rows."""

    target: ConjugateTarget
    mechanism: NoisySums
    grid: ClassVar[None] = None

    @property
    def size(self) -> int:
        """Length of a change."""
        return self.target.family.size

    def release(self, rows: Rows, source: Randomness) -> Vector:
        """The noisy sum of the rows' statistics."""
        gate = Gate(rows, self.mechanism, source.child("statistics"))
        constants = jax.tree.map(jnp.asarray, self.target.constants)
        _, out = run(gate, statistic_step(self.target), constants, no_inputs)
        return np.asarray(out[0], np.float64)

    def change(self, rows: Rows, posterior: Vector, factor: Vector, source: Randomness) -> Vector:  # noqa: ARG002
        """The released statistics minus the factor that stood for the rows."""
        return self.release(rows, source) - factor


@dataclass(frozen=True)
class _FlooredStatistics(StatisticsRelease):
    floor: Floor
    damping: float

    def change(self, rows: Rows, posterior: Vector, factor: Vector, source: Randomness) -> Vector:  # noqa: ARG002
        """The same, with precisions kept from being negative."""
        nonnegative = self.target.family.nonnegative
        statistics = self.release(rows, source)
        if self.floor == "statistic":
            statistics[nonnegative] = np.maximum(statistics[nonnegative], 0.0)
        change = statistics - factor
        if self.floor == "factor":
            least = -factor[nonnegative] / self.damping
            change[nonnegative] = np.maximum(change[nonnegative], least)
        return change


def statistics_mechanism(target: NaturalTarget, clip: float, noise_multiplier: float) -> NoisySums:
    """One release of the statistics of all rows."""
    return NoisySums(
        sampling_rate=1.0,
        num_steps=1,
        clip=clip,
        noise_multiplier=noise_multiplier,
        dimension=target.family.size,
    )


def check_conjugate(target: NaturalTarget) -> ConjugateTarget:
    """The target, if it is conjugate; other targets are refused."""
    if not isinstance(target, ConjugateTarget):
        raise InvalidArgument(
            "Only conjugate models (tacit.conjugate) have sufficient statistics; use Optimised() for "
            "other models."
        )
    return target


@lru_cache(maxsize=32)
def statistic_step(target: ConjugateTarget) -> StatisticStep:
    """A step of the gate that releases the sum of the rows' statistics."""

    def per_row(constants: Constants, row: Row) -> jax.Array:
        return target.statistic(row, constants)

    def step(constants: Constants, _: jax.Array, release: Release) -> tuple[Constants, jax.Array]:
        return constants, release.noisy_sum(sum_rows(per_row), constants)

    return step


NoiseSource = Literal["site", "split", "server"]


@dataclass(frozen=True, kw_only=True)
class ClippedChanges(Scheme[NaturalTarget]):
    """The change that all rows of a site make, clipped: everything that the site holds is protected.

    Args:
        clip: Bound on the 2-norm of a site's change, in natural parameters.
        noise: Who adds the noise: each ``"site"`` in full; ``"split"`` over sites, so that the sum has
            enough even if ``dishonest`` of them reveal theirs; or the ``"server"``.
        dishonest: Number of sites that may reveal or leave out their noise.
        num_iterations: Number of times that a site approximates the likelihood for one answer.
        centred: Whether to clip precision times (mean - present mean) instead of precision times
            mean. Noise in a precision then does not move the mean.
        mean_step: Share of the change that the mean takes. Use less than one for posteriors without
            correlations, where coordinates that step at once together step too far.
        steady: Whether the mean moves less where the noise dominates.
        noise_multiplier: For comparisons only: noise over clip, in place of calibration.
    """

    clip: float
    noise: NoiseSource = "site"
    dishonest: int = 1
    num_iterations: int = 1
    centred: bool = True
    mean_step: float = 1.0
    steady: bool = True
    noise_multiplier: float | None = None

    def __post_init__(self) -> None:
        _validate.positive("clip", self.clip)
        _validate.choice("noise", self.noise, ("site", "split", "server"))
        _validate.count("dishonest", self.dishonest, least=0)
        _validate.count("num_iterations", self.num_iterations)
        _validate.rate("mean_step", self.mean_step)

    @property
    def protects(self) -> Literal["rows", "data set"]:
        """Everything that a site holds."""
        return "data set"

    @property
    def num_groups(self) -> int:
        """The number of groups of a site's rows, each of which has a clipped change."""
        return 1

    @property
    def averages(self) -> bool:
        """Whether the mean of the groups' changes is released instead of their sum."""
        return False

    def group_rows(self, rows: Rows, source: Randomness) -> Rows:  # noqa: ARG002
        """The rows of a site in the groups that changes are computed for."""
        return all_rows_as_unit(rows)

    @property
    def sensitivity(self) -> float:
        """How much one unit moves the sum of changes, in clips."""
        return 1.0

    @property
    def keeps_factors(self) -> bool:
        """Whether a site's answers go into a factor of its own."""
        return self.noise == "site"

    @property
    def each_message_private(self) -> bool:
        """Whether every message has enough noise by itself."""
        return self.noise == "site"

    @property
    def split(self) -> bool:
        """Whether each site adds a share of the noise."""
        return self.noise == "split"

    @property
    def trust(self) -> tuple[str, ...]:
        """Who is trusted."""
        several = SEVERAL_SITES if self.protects == "rows" else ZEROS
        return *(each.format(dishonest=self.dishonest) for each in BY_NOISE[self.noise]), several

    def multiplier(self, setting: RunSetting[NaturalTarget]) -> float:
        """Noise of the sum, over clip."""
        if self.noise_multiplier is not None:
            return self.noise_multiplier
        budget = self._budget(setting)
        if budget is None:
            return 0.0
        least = calibrate.noise_multiplier(budget, num_steps=setting.answers)
        return self.sensitivity * least

    def _budget(self, setting: RunSetting[NaturalTarget]) -> Budget | None:
        """The budget of normal noise."""
        budget = setting.budget
        return budget if budget is None or not self.split else normal_noise_budget(budget)

    def prepare(self, setting: RunSetting[NaturalTarget]) -> Prepared:
        """Noise for all answers. Theorems F4 (rows) and F5 (data sets)."""
        noise = self.multiplier(setting)
        mechanism = self._mechanism(setting, noise)
        work = ChangeRelease(self, setting.target, mechanism, setting.sites)
        event = self._event(setting, noise, mechanism)
        return Prepared(work=work, event=event, in_factor=self.keeps_factors)

    def _event(
        self, setting: RunSetting[NaturalTarget], noise: float, mechanism: NoisySums
    ) -> DpEvent | None:
        """All answers of a site together, if they have noise."""
        if noise <= 0:
            return None
        one = events.gaussian(noise / self.sensitivity)
        event = check_covered(events.repeat(one, setting.answers), self._budget(setting))
        if self.noise == "split":
            budget = setting.budget or Budget(0.0, 0.5)  # without one, for comparisons
            honest = setting.together - self.dishonest
            check_noise_shares(
                mechanism, setting, budget, honest, 'use fewer shards, or noise="site"'
            )
            if setting.budget is not None:
                event = events.compose(event, shares_slack(budget))
        return event

    def postprocessing(self, target: NaturalTarget, *, floor: bool) -> ChangePostprocessing:
        """How a released vector becomes a change of the posterior."""
        return ChangePostprocessing(
            target=target,
            centred=self.centred,
            mean_step=self.mean_step,
            steady=self.steady,
            floor=floor,
        )

    def share(self, setting: RunSetting[NaturalTarget], noise: float) -> float:
        """A site's own noise, over clip."""
        if self.noise == "site":
            return noise
        if self.noise == "server":
            return 0.0
        honest = setting.together - self.dishonest
        if honest < 1:
            raise InvalidArgument(
                f"With {setting.together} sites in a round, {self.dishonest} of them dishonest, nobody is left "
                'to add noise; use noise="site".'
            )
        return noise / math.sqrt(honest)

    def _mechanism(self, setting: RunSetting[NaturalTarget], noise: float) -> NoisySums:
        """One release, on a lattice so coarse that sums are whole numbers in float32."""
        share = self.share(setting, noise)
        mechanism = NoisySums(
            sampling_rate=1.0,
            num_steps=1,
            clip=self.clip,
            noise_multiplier=share,
            dimension=setting.target.family.size,
            batch_bound=exact_batch_bound(self.num_groups + 16 * share),
        )
        most = mechanism.lattice.points * (self.num_groups + 16 * share)
        if self.noise != "site" and most > MAX_EXACT_FLOAT32:
            raise InvalidArgument(
                f"{mechanism.dimension} numbers from {self.num_groups} shards with this noise do not "
                'fit whole numbers; use fewer shards, guide=tacit.methods.MeanField(), or noise="site".'
            )
        return mechanism

    def aggregation(self, setting: RunSetting[NaturalTarget], source: Randomness) -> Aggregation:
        """The sum, with noise if the server adds it. Where noise is shared, all sites must answer."""
        if self.noise == "site":
            return Aggregation()
        noise = self.multiplier(setting)
        mechanism = self._mechanism(setting, noise)
        grid = ChangeRelease(self, setting.target, mechanism, setting.sites).grid
        points = noise * mechanism.lattice.points if self.noise == "server" else 0.0
        postprocessing = self.postprocessing(setting.target, floor=True)
        aggregate = SumAggregation(
            postprocessing, noise * self.clip, points, source.child("server")
        )
        # Sites repeat an answer only to this server: new noise on it would be another release.
        mark = source.child("mark").words(4).tobytes() if self.noise == "server" else b""
        return Aggregation(
            needs_all_sites=True, tracked=False, aggregate=aggregate, mark=mark, grid=grid
        )


@dataclass(frozen=True)
class ChangeRelease:
    """What a site computes: it releases the sum of a site's clipped changes."""

    scheme: ClippedChanges
    target: NaturalTarget
    mechanism: NoisySums
    sites: int

    @property
    def size(self) -> int:
        """Length of a change."""
        return self.target.family.size

    @property
    def grid(self) -> float | None:
        """What whole numbers are multiplied by, or None where every message is private by itself."""
        if self.scheme.noise == "site":
            return None
        clip, points = self.mechanism.clip, self.mechanism.lattice.points
        return float(np.float32(clip) / np.float32(points)) / self._averaged

    @property
    def _averaged(self) -> int:
        """The number of groups whose mean is released."""
        return self.scheme.num_groups if self.scheme.averages else 1

    def change(self, rows: Rows, posterior: Vector, factor: Vector, source: Randomness) -> Numbers:
        """What leaves the site: whole numbers to be added up, or the change itself."""
        scheme, lattice, groups = self.scheme, self.mechanism.lattice, self._averaged
        held = scheme.group_rows(rows, source.child("shards"))
        gate = Gate(held, self.mechanism, source.child("gate"))
        step = change_step(
            self.target, float(groups), scheme.num_iterations, centred=scheme.centred
        )
        own = self._factor(posterior, factor)
        given = posterior, own, self.target.constants, self._centre(posterior)
        _, out = run(gate, step, jax.tree.map(_to_float32, given), no_inputs)
        released = np.asarray(out[0])
        if self.grid is not None:
            return lattice_points_from_release(released, self.mechanism.clip, lattice.points)
        plain = released.astype(np.float64) / groups
        postprocessing = scheme.postprocessing(self.target, floor=False)
        return postprocessing.change(posterior, plain, self.mechanism.noise_std / groups)

    def _centre(self, posterior: Vector) -> Vector:
        """The present mean, for Gaussian families."""
        family = self.target.family
        if isinstance(family, DiagonalGaussian | FullGaussian):
            return family.mean(posterior)
        return np.zeros(1)

    def _factor(self, posterior: Vector, own: Vector) -> Vector:
        """The factor that stands for one group in the posterior."""
        groups = self.scheme.num_groups // self._averaged
        if self.scheme.keeps_factors:
            return own / groups
        return (posterior - self.target.prior) / (self.sites * groups)


def _to_float32(leaf: ArrayLike) -> jax.Array:
    """A part of a step's state: float32 where it is real."""
    array = np.asarray(leaf)
    return jnp.asarray(array.astype(np.float32) if array.dtype.kind == "f" else array)


@dataclass(frozen=True, kw_only=True)
class WithoutPrivacy(Scheme[NaturalTarget]):
    """A reference without noise. It is exact for conjugate models.

    Args:
        num_iterations: Number of times that a site approximates the likelihood for one answer.
    """

    num_iterations: int = 1

    def __post_init__(self) -> None:
        _validate.count("num_iterations", self.num_iterations)

    @property
    def trust(self) -> tuple[str, ...]:
        """Nobody is protected, so there is nothing to say."""
        return ()

    def prepare(self, setting: RunSetting[NaturalTarget]) -> Prepared:
        """Work without noise."""
        return Prepared(work=_ExactChange(setting.target, self.num_iterations), event=None)


@dataclass(frozen=True)
class _ExactChange:
    target: NaturalTarget
    num_iterations: int
    grid: ClassVar[None] = None

    @property
    def size(self) -> int:
        return self.target.family.size

    def change(self, rows: Rows, posterior: Vector, factor: Vector, source: Randomness) -> Vector:  # noqa: ARG002
        target = self.target
        function = (
            damped_change(target, self.num_iterations)
            if isinstance(target, ApproximateTarget) and isinstance(target.family, DiagonalGaussian)
            else local_change(target, 1.0, self.num_iterations)
        )
        given = posterior, factor, self.target.constants
        return np.asarray(evaluate_without_privacy(rows, function, given), np.float64)

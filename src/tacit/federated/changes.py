"""Whole changes clipped and noised: of a site, or of shards of its rows.

A change is computed in the clear from all rows of a group, clipped as a whole, and summed with
noise by the gate, for which a group is a unit like any other. It may depend on nothing but the
group's rows and what is public: so the factor that stands for the group must be public too. It is,
if every message is protected by itself (``noise="site"``), as the site's factor is then a sum
of what it sent. If only the sum over sites is public, all groups share the factor
(q - prior) / number of groups. A site that kept its own hidden noise in its factor would correct it
in the next round and so tell it: then noise of several rounds protects less than one thinks, and
no epsilon is claimed (``own_factors``; Algorithm 3 of the report is this).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from dp_accounting.dp_event import DpEvent, NonPrivateDpEvent

from tacit import _validate
from tacit.accounting import calibrate, events
from tacit.errors import InvalidArgument
from tacit.federated.factor import shared_factor
from tacit.federated.natural import DiagonalGaussian, FullGaussian, Vector, triangle
from tacit.federated.optimise import no_inputs
from tacit.federated.scheme import (
    ALONE,
    SEVERAL_SITES,
    Aggregation,
    Prepared,
    Setting,
    local_change,
)
from tacit.federated.server import common_grid
from tacit.federated.target import Target
from tacit.federated.transport import Reply
from tacit.privacy.gate import Gate, run
from tacit.privacy.groups import as_one, in_shards
from tacit.privacy.noise import Randomness
from tacit.privacy.plans import NoisySums
from tacit.privacy.release import Release
from tacit.privacy.rows import Rows
from tacit.privacy.shares import extra_delta
from tacit.privacy.total import EXACT, exact_bound, noisy_total, whole_numbers_of

Place = Literal["site", "split", "server"]
# Of delta, for a sum of shares of noise that is not quite normal.
_FOR_SHARES = 2.0**-40
_SUM_ONLY = (
    "whoever adds up the sites' messages sees nothing but their sum: single messages have too "
    "little noise to protect anyone, so they must be masked (secure aggregation)"
)
_HONEST = "at most {dishonest} of the sites tell others the noise that they added, or leave it out"
_SERVER = (
    "the server is trusted with the sites' changes, which it gets without noise, and with the "
    "noise; the way to it is encrypted"
)
_TRUST = {
    "site": (ALONE,),
    "split": (_SUM_ONLY, _HONEST),
    "server": (_SERVER,),
}
_OUTSIDE = "no guarantee: sites keep hidden noise in their own factors, and later rounds reveal it"


@dataclass(frozen=True, kw_only=True)
class ClippedChanges:
    """Changes of whole groups of rows, clipped to ``clip`` in natural parameters.

    ``protects="data set"``: a site is one group, and what is protected is everything it holds.
    ``protects="rows"``: a site's rows are spread at random over ``num_shards`` groups, and one row
    moves the sum by up to two clips; a shard has room for ``shard_rows`` rows, a declared number.
    ``average`` fits each shard as if it were all of the site's rows and takes the mean (local
    averaging); otherwise each is a small site of its own (virtual clients).

    ``noise`` is added by each ``"site"`` in full, ``"split"`` over sites so that the sum has enough
    even if ``dishonest`` of them tell theirs, or by the ``"server"``. ``centred`` clips precision
    times (mean - present mean) rather than precision times mean: the same change, but noise in a
    precision then does not move the mean. ``mean_step`` is the share of that change that the mean
    takes: below one for posteriors without correlations, where all coordinates step at once and
    together step too far. ``steady`` moves the mean less where noise drowns what
    the rows say. ``own_factors`` and a given ``noise_multiplier`` are for comparisons only.
    """

    clip: float
    protects: Literal["rows", "data set"] = "data set"
    num_shards: int = 1
    shard_rows: int | None = None
    average: bool = False
    noise: Place = "site"
    dishonest: int = 1
    num_iterations: int = 1
    centred: bool = True
    mean_step: float = 1.0
    steady: bool = True
    own_factors: bool = False
    noise_multiplier: float | None = None

    def __post_init__(self) -> None:
        _validate.positive("clip", self.clip)
        _validate.choice("protects", self.protects, ("rows", "data set"))
        _validate.choice("noise", self.noise, ("site", "split", "server"))
        _validate.count("num_shards", self.num_shards)
        _validate.count("dishonest", self.dishonest, least=0)
        _validate.count("num_iterations", self.num_iterations)
        _validate.rate("mean_step", self.mean_step)
        if self.protects == "data set" and self.num_shards > 1:
            raise InvalidArgument("A data set that is protected as a whole is not cut into shards.")
        if self.num_shards > 1 and self.shard_rows is None:
            raise InvalidArgument(
                "Declare shard_rows, the most rows of a shard: how many there are is private."
            )
        if self.own_factors and (self.noise != "split" or self.centred or self.average):
            raise InvalidArgument("own_factors is for algorithm_three(...) alone.")
        if self.average and self.noise != "site":
            raise InvalidArgument('Local averaging adds its noise at the site: noise="site".')

    @property
    def alone(self) -> bool:
        """Whether every message is protected by itself."""
        return self.noise == "site"

    @property
    def trust(self) -> tuple[str, ...]:
        """Who is trusted."""
        several = (SEVERAL_SITES,) if self.protects == "rows" else ()
        own = (_OUTSIDE,) if self.own_factors else ()
        said = (each.format(dishonest=self.dishonest) for each in _TRUST[self.noise])
        return (*own, *said, *several)

    @property
    def sensitivity(self) -> float:
        """What one unit moves the sum by, in clips: a row changes its shard from one to another."""
        return 2.0 if self.protects == "rows" else 1.0

    def multiplier(self, setting: Setting) -> float:
        """Noise of the sum over clip."""
        if self.noise_multiplier is not None:
            return self.noise_multiplier
        if setting.budget is None:
            return 0.0
        budget = setting.budget
        if self.noise == "split":
            budget = replace(budget, delta=budget.delta * (1 - _FOR_SHARES))
        least = calibrate.noise_multiplier(budget, num_steps=setting.answers)
        return self.sensitivity * least

    def prepare(self, setting: Setting) -> Prepared:
        """Noise for all answers. Theorems F4 (rows) and F5 (data sets)."""
        noise = self.multiplier(setting)
        event: DpEvent | None = None
        if self.own_factors:
            event = NonPrivateDpEvent()  # whatever the noise: see PROOFS.md
        elif noise > 0:
            event = events.repeat(events.gaussian(noise / self.sensitivity), setting.answers)
        plan = self._plan(setting, noise)
        if event is not None and self.noise == "split":
            self._refuse_coarse(setting, plan)
        work = _Changing(self, setting.target, plan, setting.sites)
        return Prepared(work=work, event=event)

    def share(self, setting: Setting, noise: float) -> float:
        """A site's own noise over clip."""
        if self.noise == "site":
            return noise
        if self.noise == "server":
            return 0.0
        honest = setting.together - self.dishonest
        if honest < 1:
            raise InvalidArgument(
                f"With {setting.together} sites in a round and {self.dishonest} dishonest ones nobody is left to "
                'add noise; use noise="site".'
            )
        return noise / math.sqrt(honest)

    def _refuse_coarse(self, setting: Setting, plan: NoisySums) -> None:
        """The sum of shares is normal but for a chance, for which delta has room. Lemma 4."""
        epsilon, delta = (
            (0.0, 1.0)
            if setting.budget is None
            else (
                setting.budget.epsilon,
                setting.budget.delta,
            )
        )
        extra = extra_delta(
            plan.lattice.noise_std / plan.lattice.grid,
            setting.together - self.dishonest,
            numbers=plan.dimension * setting.answers,
            epsilon=epsilon,
        )
        if extra > _FOR_SHARES * delta:
            raise InvalidArgument(
                "A site's share of the noise is too few lattice points for shares to add up to "
                'normal noise; use fewer shards, or noise="site".'
            )

    def _plan(self, setting: Setting, noise: float) -> NoisySums:
        """One release. The lattice is so coarse that what it gives is whole numbers in float32."""
        share = self.share(setting, noise)
        plan = NoisySums(
            sampling_rate=1.0,
            num_steps=1,
            clip=self.clip,
            noise_multiplier=share,
            dimension=setting.target.family.size,
            batch_bound=exact_bound(self.num_shards + 16 * share),
        )
        most = plan.lattice.points * (self.num_shards + 16 * share)
        if self.noise != "site" and most > EXACT:
            raise InvalidArgument(
                f"{plan.dimension} numbers from {self.num_shards} shards with this noise do not "
                'fit whole numbers; use fewer shards, guide=tacit.MeanField(), or noise="site".'
            )
        return plan

    def aggregation(self, setting: Setting, source: Randomness) -> Aggregation:
        """The sum, with noise if the server adds it; all or nothing where noise is shared."""
        if self.noise == "site":
            return Aggregation()
        if self.own_factors and self.noise == "split":
            return Aggregation(whole=True)
        noise = self.multiplier(setting)
        plan = self._plan(setting, noise)
        points = noise * plan.lattice.points if self.noise == "server" else 0.0
        std = noise * self.clip
        aggregate = _Total(self, setting.target, std, points, source.child("server"))
        return Aggregation(whole=True, tracked=False, aggregate=aggregate)


def local_averaging(*, clip: float, num_shards: int, shard_rows: int) -> ClippedChanges:
    """Every shard is fitted as if it were all of a site's rows, and the mean of changes released."""
    return ClippedChanges(
        clip=clip, protects="rows", num_shards=num_shards, shard_rows=shard_rows, average=True
    )


def virtual_clients(
    *, clip: float, num_shards: int, shard_rows: int, noise: Place = "site"
) -> ClippedChanges:
    """Every shard is a small site of its own; with ``noise="split"`` under secure aggregation."""
    return ClippedChanges(
        clip=clip, protects="rows", num_shards=num_shards, shard_rows=shard_rows, noise=noise
    )


def algorithm_three(*, clip: float, noise_multiplier: float) -> ClippedChanges:
    """The report's Algorithm 3 as printed: to reproduce it; no epsilon is claimed for it."""
    return ClippedChanges(
        clip=clip,
        noise="split",
        dishonest=0,
        centred=False,
        steady=False,
        own_factors=True,
        noise_multiplier=noise_multiplier,
    )


@dataclass(frozen=True)
class _Changing:
    scheme: ClippedChanges
    target: Target
    plan: NoisySums
    sites: int

    @property
    def size(self) -> int:
        return self.target.family.size

    @property
    def grid(self) -> float | None:
        """What whole numbers are multiplied by; plain numbers where a site's noise is enough."""
        return None if self.scheme.noise == "site" else self._grid

    @property
    def _grid(self) -> float:
        groups = self.scheme.num_shards if self.scheme.average else 1
        return float(np.float32(self.plan.clip) / np.float32(self.plan.lattice.points)) / groups

    def change(self, rows: Rows, posterior: Vector, factor: Vector, source: Randomness) -> Any:
        scheme = self.scheme
        gate = Gate(self._grouped(rows, source.child("shards")), self.plan, source.child("gate"))
        weight = float(scheme.num_shards) if scheme.average else 1.0
        step = _change_step(self.target, weight, scheme.num_iterations, scheme.centred)
        centre = self._centre(posterior)
        given = posterior, self._factor(posterior, factor), self.target.constants, centre
        _, out = run([gate], step, jax.tree.map(_leading, given), no_inputs)
        released = np.asarray(out[0, 0])
        if self.grid is not None:
            return whole_numbers_of(released, self.plan.clip, self.plan.lattice.points)
        plain = released.astype(np.float64) / (weight if scheme.average else 1.0)
        noise = self.plan.lattice.noise_std / (weight if scheme.average else 1.0)
        return settled_change(scheme, self.target, posterior, plain, noise, floor=False)

    def _centre(self, posterior: Vector) -> Vector:
        family = self.target.family
        if isinstance(family, DiagonalGaussian | FullGaussian):
            return family.mean(posterior)
        return np.zeros(1)

    def _grouped(self, rows: Rows, source: Randomness) -> Rows:
        if self.scheme.protects == "data set":
            return as_one(rows)
        most = self.scheme.shard_rows
        if most is None:
            raise InvalidArgument("Declare shard_rows, the most rows of a shard.")
        return in_shards(rows, self.scheme.num_shards, most, source)

    def _factor(self, posterior: Vector, own: Vector) -> Vector:
        """What stands for one group in the posterior."""
        groups = 1 if self.scheme.average else self.scheme.num_shards
        if self.scheme.noise == "site" or self.scheme.own_factors:
            return own / groups
        return shared_factor(posterior, self.target.prior, self.sites * groups)


@dataclass(frozen=True)
class _Total:
    """The server's part where noise is split or its own: one sum, and what it means for q."""

    scheme: ClippedChanges
    target: Target
    noise_std: float
    points: float
    source: Randomness

    def __call__(self, replies: Sequence[Reply], posterior: Vector) -> Vector:
        grid = common_grid(replies)
        if grid is None:
            raise InvalidArgument("Sites answered without a lattice; their settings differ.")
        whole = noisy_total([reply.change for reply in replies], self.points, self.source)
        change = whole.astype(np.float64) * grid
        return settled_change(
            self.scheme, self.target, posterior, change, self.noise_std, floor=True
        )


def settled_change(
    scheme: ClippedChanges,
    target: Target,
    posterior: Vector,
    released: Vector,
    noise_std: float,
    *,
    floor: bool,
) -> Vector:
    """The change of natural parameters that a released vector stands for.

    Follows from released and public values alone. A ``steady`` change moves the mean as if
    every precision were larger by the noise, so that what the noise drowns moves little; and with
    ``floor``, precisions (or counts) do not fall below the prior's, as rows can only add to them.
    """
    family = target.family
    if not isinstance(family, DiagonalGaussian | FullGaussian):
        low = target.prior if floor and scheme.steady else -np.inf
        return np.maximum(posterior + released, low) - posterior
    bend, slope = family.split(released)
    if not scheme.centred:
        return released
    precision, mean = family.split(posterior)[0], family.mean(posterior)
    least = family.split(target.prior)[0]
    after = precision + bend
    if floor and scheme.steady:
        after = _at_least(after, least)
    spare = noise_std if scheme.steady else 0.0
    if isinstance(family, DiagonalGaussian):
        # A precision that noise made negative is the guard's business; the mean needs one now.
        solid = np.maximum(after, least)
        moved = scheme.mean_step * slope * solid / (solid + spare)
        return family.join(after, after * mean + moved) - posterior
    solid = _at_least(after, least)
    firm = solid + spare * np.eye(family.dimension)
    moved = scheme.mean_step * solid @ np.linalg.solve(firm, slope)
    return family.join(after, after @ mean + moved) - posterior


def _at_least(precision: Vector, least: Vector) -> Vector:
    """The nearest precision that is nowhere below another."""
    if precision.ndim == 1:
        return np.maximum(precision, least)
    values, vectors = np.linalg.eigh(precision - least)
    return np.asarray(least + (vectors * np.maximum(values, 0)) @ vectors.T, np.float64)


@lru_cache(maxsize=32)
def _change_step(target: Target, weight: float, num_iterations: int, centred: bool) -> Any:
    local, family = local_change(target, weight, num_iterations), target.family
    diagonal = isinstance(family, DiagonalGaussian)
    centred = centred and isinstance(family, DiagonalGaussian | FullGaussian)

    def per_unit(given: Any, rows: Any, present: Any) -> Any:
        change = local(given[:3], rows, present)
        if not centred:
            return change
        if diagonal:
            bend, slope = jnp.split(change, 2)
            return jnp.concatenate([bend, slope - bend * given[3]])
        size = len(given[3])
        below, beside, scale = triangle(size)
        matrix = jnp.zeros((size, size)).at[below, beside].set(change[:-size] / scale)
        matrix = matrix + jnp.tril(matrix, -1).T
        return jnp.concatenate([change[:-size], change[-size:] - matrix @ given[3]])

    def step(state: Any, _: Any, release: Release) -> Any:
        return state, release.noisy_unit_sum(per_unit, state)

    return step


def _leading(leaf: Any) -> Any:
    """One gate's state, as float32 where it is real."""
    array = np.asarray(leaf)
    return jnp.asarray(array.astype(np.float32) if array.dtype.kind == "f" else array)[None]

"""Whole changes of the posterior, clipped and with noise: of a site, or of shards of its rows.

A change is computed from all rows of a group, clipped as a whole, and summed with noise by the gate, for
which a group is a unit like any other. A change may depend only on the rows of the group and on public
values, so the factor that stands for the group must be public too. If every message is private by itself
(``noise="site"``), it is: the site's factor is a sum of what it sent. If only the sum over sites is
public, all groups share the factor (q - prior) / number of groups. A site that kept hidden noise in a
factor of its own would correct it in the next round and so reveal it. The noise of several rounds then
protects less than it seems to, and no epsilon is claimed (``own_factors``; Algorithm 3 of the report
does this).
"""

import math
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from attrs import evolve
from dp_accounting.dp_event import DpEvent, NonPrivateDpEvent
from numpy.typing import NDArray

from tacit import _validate
from tacit.accounting import Budget, calibrate, events
from tacit.errors import InvalidArgument
from tacit.federated.factor import shared_factor
from tacit.federated.schemes.base import (
    FOR_SHARES,
    Aggregation,
    Prepared,
    RunSetting,
    covered,
    no_inputs,
    refuse_coarse_shares,
)
from tacit.federated.schemes.local_change import change_step
from tacit.federated.schemes.settle import Settling, Total
from tacit.federated.schemes.trust import BY_NOISE, NO_GUARANTEE, SEVERAL_SITES, ZEROS
from tacit.federated.target import Target
from tacit.models.gaussians import DiagonalGaussian, FullGaussian
from tacit.models.natural import Vector
from tacit.privacy.gate import Gate, run
from tacit.privacy.groups import as_one, in_shards
from tacit.privacy.mechanisms import NoisySums
from tacit.privacy.noise import Randomness
from tacit.privacy.rows import Rows
from tacit.privacy.total import EXACT, exact_bound, whole_numbers_of

Place = Literal["site", "split", "server"]


@dataclass(frozen=True, kw_only=True)
class ClippedChanges:
    """Changes of whole groups of rows, clipped to ``clip`` in natural parameters.

    Args:
        clip: Bound on the 2-norm of the change of one group.
        protects: With ``"data set"`` a site is one group, and everything it holds is protected. With
            ``"rows"`` its rows are divided at random over ``num_shards`` groups, and one row
            moves the sum by up to two clips.
        num_shards: Number of groups of a site's rows.
        shard_rows: The largest number of rows of a shard: a declared number.
        average: Whether each shard is fitted as if it were all of the site's rows and the mean is
            taken (local averaging). Otherwise each shard is a small site (virtual clients).
        noise: Who adds the noise: each ``"site"`` in full; ``"split"`` over sites, so that the sum has
            enough even if ``dishonest`` of them reveal theirs; or the ``"server"``.
        dishonest: Number of sites that may reveal or leave out their noise.
        num_iterations: Number of times that a site approximates the likelihood for one answer.
        centred: Whether to clip precision times (mean - present mean) instead of precision times
            mean. Noise in a precision then does not move the mean.
        mean_step: Share of the change that the mean takes. Use less than one for posteriors without
            correlations, where coordinates that step at once together step too far.
        steady: Whether the mean moves less where the noise dominates.
        own_factors: For comparisons only; see `algorithm_three`.
        noise_multiplier: For comparisons only: noise over clip, in place of calibration.
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
            raise InvalidArgument(
                "A data set that is protected as a whole has no shards; leave num_shards out."
            )
        if self.num_shards > 1 and self.shard_rows is None:
            raise InvalidArgument(
                "Declare shard_rows, the largest number of rows of a shard; the actual number is private."
            )
        if self.own_factors and (self.noise != "split" or self.centred or self.average):
            raise InvalidArgument("own_factors is only for algorithm_three(...).")
        if self.average and self.noise != "site":
            raise InvalidArgument('Local averaging adds its noise at the site: noise="site".')

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
        several = (SEVERAL_SITES,) if self.protects == "rows" else (ZEROS,)
        own = (NO_GUARANTEE,) if self.own_factors else ()
        said = (each.format(dishonest=self.dishonest) for each in BY_NOISE[self.noise])
        return (*own, *said, *several)

    @property
    def sensitivity(self) -> float:
        """How much one unit moves the sum, in clips: one row changes a shard from one value to another."""
        return 2.0 if self.protects == "rows" else 1.0

    def multiplier(self, setting: RunSetting) -> float:
        """Noise of the sum, over clip."""
        if self.noise_multiplier is not None:
            return self.noise_multiplier
        budget = self._budget(setting)
        if budget is None:
            return 0.0
        least = calibrate.noise_multiplier(budget, num_steps=setting.answers)
        return self.sensitivity * least

    def _budget(self, setting: RunSetting) -> Budget | None:
        """The budget of normal noise: delta without twice the part that is kept for shares of noise."""
        budget = setting.budget
        if budget is None or self.noise != "split":
            return budget
        return evolve(budget, delta=budget.delta * (1 - 2 * FOR_SHARES))

    def prepare(self, setting: RunSetting) -> Prepared:
        """Noise for all answers. Theorems F4 (rows) and F5 (data sets)."""
        noise = self.multiplier(setting)
        event: DpEvent | None = None
        if self.own_factors:
            event = NonPrivateDpEvent()  # whatever the noise: see PROOFS.md
        elif noise > 0:
            one = events.gaussian(noise / self.sensitivity)
            event = covered(events.repeat(one, setting.answers), self._budget(setting))
            if self.noise == "split" and setting.budget is not None:
                slack = events.Slack(delta=FOR_SHARES * setting.budget.delta)
                event = events.compose(event, slack)
        mechanism = self._mechanism(setting, noise)
        if event is not None and self.noise == "split" and not self.own_factors:
            self._refuse_coarse(setting, mechanism)
        work = Changing(self, setting.target, mechanism, setting.sites)
        return Prepared(work=work, event=event)

    def settling(self, target: Target, *, floor: bool) -> Settling:
        """How a released vector becomes a change of the posterior."""
        return Settling(
            target=target,
            centred=self.centred,
            mean_step=self.mean_step,
            steady=self.steady,
            floor=floor,
        )

    def share(self, setting: RunSetting, noise: float) -> float:
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

    def _refuse_coarse(self, setting: RunSetting, mechanism: NoisySums) -> None:
        """Refuses shares of noise whose sum is further from normal than delta allows. Lemma F1."""
        budget = setting.budget or Budget(0.0, 0.5)  # without one, for comparisons
        honest = setting.together - self.dishonest
        refuse_coarse_shares(
            mechanism, setting, budget, honest, 'use fewer shards, or noise="site"'
        )

    def _mechanism(self, setting: RunSetting, noise: float) -> NoisySums:
        """One release, on a lattice so coarse that sums are whole numbers in float32."""
        share = self.share(setting, noise)
        mechanism = NoisySums(
            sampling_rate=1.0,
            num_steps=1,
            clip=self.clip,
            noise_multiplier=share,
            dimension=setting.target.family.size,
            batch_bound=exact_bound(self.num_shards + 16 * share),
        )
        most = mechanism.lattice.points * (self.num_shards + 16 * share)
        if self.noise != "site" and most > EXACT:
            raise InvalidArgument(
                f"{mechanism.dimension} numbers from {self.num_shards} shards with this noise do not "
                'fit whole numbers; use fewer shards, guide=tacit.methods.MeanField(), or noise="site".'
            )
        return mechanism

    def aggregation(self, setting: RunSetting, source: Randomness) -> Aggregation:
        """The sum, with noise if the server adds it. Where noise is shared, all sites must answer."""
        if self.noise == "site":
            return Aggregation()
        noise = self.multiplier(setting)
        mechanism = self._mechanism(setting, noise)
        grid = Changing(self, setting.target, mechanism, setting.sites).grid
        if self.own_factors and self.noise == "split":
            return Aggregation(whole=True, grid=grid)
        points = noise * mechanism.lattice.points if self.noise == "server" else 0.0
        std = noise * self.clip
        settling = self.settling(setting.target, floor=True)
        aggregate = Total(settling, std, points, source.child("server"))
        # Sites repeat an answer only to this server: new noise on it would be another release.
        mark = source.child("mark").words(4).tobytes() if self.noise == "server" else b""
        return Aggregation(whole=True, tracked=False, aggregate=aggregate, mark=mark, grid=grid)


@dataclass(frozen=True)
class Changing:
    """Work that releases the sum of a site's clipped changes."""

    scheme: ClippedChanges
    target: Target
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
        return self.scheme.num_shards if self.scheme.average else 1

    def change(
        self, rows: Rows, posterior: Vector, factor: Vector, source: Randomness
    ) -> NDArray[Any]:
        """What leaves the site: whole numbers to be added up, or the change itself."""
        scheme, lattice, groups = self.scheme, self.mechanism.lattice, self._averaged
        held = self._grouped(rows, source.child("shards"))
        gate = Gate(held, self.mechanism, source.child("gate"))
        step = change_step(
            self.target, float(groups), scheme.num_iterations, centred=scheme.centred
        )
        own = self._factor(posterior, factor)
        given = posterior, own, self.target.constants, self._centre(posterior)
        _, out = run(gate, step, jax.tree.map(_as_state, given), no_inputs)
        released = np.asarray(out[0])
        if self.grid is not None:
            return whole_numbers_of(released, self.mechanism.clip, lattice.points)
        plain = released.astype(np.float64) / groups
        settling = scheme.settling(self.target, floor=False)
        return settling.change(posterior, plain, self.mechanism.noise_std / groups)

    def _centre(self, posterior: Vector) -> Vector:
        """The present mean, for Gaussian families."""
        family = self.target.family
        if isinstance(family, DiagonalGaussian | FullGaussian):
            return family.mean(posterior)
        return np.zeros(1)

    def _grouped(self, rows: Rows, source: Randomness) -> Rows:
        """The rows in the groups that changes are computed for."""
        if self.scheme.protects == "data set":
            return as_one(rows)
        most = self.scheme.shard_rows
        if most is None:
            raise InvalidArgument("Declare shard_rows, the largest number of rows of a shard.")
        return in_shards(rows, self.scheme.num_shards, most, source)

    def _factor(self, posterior: Vector, own: Vector) -> Vector:
        """The factor that stands for one group in the posterior."""
        groups = 1 if self.scheme.average else self.scheme.num_shards
        if self.scheme.noise == "site" or self.scheme.own_factors:
            return own / groups
        return shared_factor(posterior, self.target.prior, self.sites * groups)


def _as_state(leaf: Any) -> jax.Array:
    """A part of a step's state: float32 where it is real."""
    array = np.asarray(leaf)
    return jnp.asarray(array.astype(np.float32) if array.dtype.kind == "f" else array)

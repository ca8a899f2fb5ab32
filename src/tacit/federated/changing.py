"""Changes of groups of rows: how a site releases them, and what their sum means for q."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from tacit.errors import InvalidArgument
from tacit.federated.factor import shared_factor
from tacit.federated.natural import DiagonalGaussian, FullGaussian, Vector, triangle
from tacit.federated.optimise import no_inputs
from tacit.federated.scheme import local_change
from tacit.federated.server import common_grid
from tacit.federated.target import Target
from tacit.federated.transport import Reply
from tacit.privacy.gate import Gate, run
from tacit.privacy.groups import as_one, in_shards
from tacit.privacy.noise import Randomness
from tacit.privacy.plans import NoisySums
from tacit.privacy.release import Release
from tacit.privacy.rows import Rows
from tacit.privacy.total import noisy_total, whole_numbers_of


class Settings(Protocol):
    """What `tacit.federated.changes.ClippedChanges` says."""

    @property
    def protects(self) -> str:
        """What one promise is about."""
        ...

    @property
    def num_shards(self) -> int:
        """Groups of a site's rows."""
        ...

    @property
    def shard_rows(self) -> int | None:
        """Room of a group."""
        ...

    @property
    def average(self) -> bool:
        """Whether groups are averaged."""
        ...

    @property
    def noise(self) -> str:
        """Who adds noise."""
        ...

    @property
    def num_iterations(self) -> int:
        """Looks at the likelihood."""
        ...

    @property
    def centred(self) -> bool:
        """Whether changes are around the present mean."""
        ...

    @property
    def mean_step(self) -> float:
        """The share of it that the mean takes."""
        ...

    @property
    def steady(self) -> bool:
        """Whether what noise drowns moves little."""
        ...

    @property
    def own_factors(self) -> bool:
        """Whether sites keep hidden noise."""
        ...


@dataclass(frozen=True)
class Changing:
    """Work that releases the sum of a site's clipped changes."""

    scheme: Settings
    target: Target
    plan: NoisySums
    sites: int

    @property
    def size(self) -> int:
        """How many numbers a change has."""
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
        """What leaves the site: whole numbers to be added up, or the change itself."""
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
class Total:
    """The server's part where noise is split or its own: one sum, and what it means for q."""

    scheme: Settings
    target: Target
    noise_std: float
    points: float
    source: Randomness

    def __call__(self, replies: Sequence[Reply], posterior: Vector) -> Vector:
        """The change of q that the replies of a round come to."""
        grid = common_grid(replies)
        if grid is None:
            raise InvalidArgument("Sites answered without a lattice; their settings differ.")
        whole = noisy_total([reply.change for reply in replies], self.points, self.source)
        change = whole.astype(np.float64) * grid
        return settled_change(
            self.scheme, self.target, posterior, change, self.noise_std, floor=True
        )


def settled_change(
    scheme: Settings,
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

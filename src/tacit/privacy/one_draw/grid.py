"""One exact draw from a posterior on a public grid, private because a unit's say is bounded.

Scores of all points are sums over units on an integer lattice, each unit's clamped by a rule
that looks at that unit only; then a point is drawn with exactly the probabilities that the
scores have (PROOFS.md, Theorem 7). Nothing but the drawn points leaves.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tacit.errors import InvalidArgument
from tacit.privacy.noise import Randomness
from tacit.privacy.one_draw.choice import choose
from tacit.privacy.one_draw.claims import (
    BELOW,
    BoundedLikelihood,
    ClaimedDraws,
    LipschitzLikelihood,
    draws,
    say,
)
from tacit.privacy.one_draw.density import Density, at_places, check_density
from tacit.privacy.rows import Rows

# Of the clamped span; a power of two, so that scaling is exact.
_STEPS: Final = 2**20
# Units whose sum surely fits 32 bits: the shapes of the program must not tell how many there are.
_CHUNK: Final = 2**10
_MOST_POINTS: Final = 2**18
Floats = NDArray[np.float64]
GridClaim = BoundedLikelihood | LipschitzLikelihood


@dataclass(frozen=True, kw_only=True)
class GridDraws(ClaimedDraws):
    """Draws from a posterior restricted to a public grid. All public.

    Each axis of the grid has its ``points``, from ``low`` to ``high``. A unit's
    log-likelihood counts with a ``power``, and is bounded as ``claim`` says.
    """

    claim: GridClaim
    low: tuple[float, ...]
    high: tuple[float, ...]
    points: tuple[int, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        axes = list(zip(self.low, self.high, self.points, strict=True))
        if not axes or not all(low < high and points > 1 for low, high, points in axes):
            raise InvalidArgument(
                "A grid needs low < high, and two points, for every unconstrained number."
            )
        if math.prod(self.points) > _MOST_POINTS:
            raise InvalidArgument(
                f"A grid of {' x '.join(map(str, self.points))} points is more than {_MOST_POINTS}; "
                "take fewer points, or another sampler."
            )

    @property
    def places(self) -> Floats:
        """All points of the grid, one below the other."""
        ends = zip(self.low, self.high, self.points, strict=True)
        axes = [np.linspace(low, high, points) for low, high, points in ends]
        return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))

    @property
    def span(self) -> float:
        """How much a unit's score can differ between points, at most."""
        if isinstance(self.claim, BoundedLikelihood):
            return 2 * (self.power * self.claim.bound)
        return 2 * (self.power * self.claim.slope) * self.claim.radius

    def explain(self, unit: str, many: str) -> list[str]:
        """Lines for people."""
        where = f"{len(self.places)} public points, looking at all {many}"
        return [f"{draws(self.num_draws)} from {where}.", say(self.power, unit, self.span)]


def check_grid(
    mechanism: GridDraws, rows: Rows, prior: Floats, density: Density, constants: Any
) -> None:
    """Raises what `draw_from_grid` would raise, by a unit of zeros."""
    if rows.unit != "row" and isinstance(mechanism.claim, LipschitzLikelihood):
        raise InvalidArgument(
            "A Lipschitz bound is about replacing one record by another, and a person has several "
            "records; use BoundedLikelihood instead."
        )
    if np.shape(prior) != (len(mechanism.places),) or not np.isfinite(prior).any():
        raise InvalidArgument("The prior is not finite anywhere on the grid; change low and high.")
    check_density(rows, density, len(mechanism.points), constants)


def draw_from_grid(
    mechanism: GridDraws,
    rows: Rows,
    bits: Randomness,
    prior: Floats,
    density: Density,
    constants: Any,
) -> Floats:
    """Points of the mechanism's grid, drawn from the posterior with the mechanism's power.

    ``prior`` has the log prior of every point; a point without a finite one is left out.

    Guarantee:
        Released: points, each with probability proportional to exp(prior + sum over units of the
            clamped score).
        Neighbours: add-remove and replace for `BoundedLikelihood`; replace for `LipschitzLikelihood`.
        Sensitivity under add-remove: `span`, of a score below its best, in the range of a log
            probability ratio; none for `LipschitzLikelihood`.
        Sensitivity under replace: `2 * span`; for `LipschitzLikelihood` around a record of zeros.
        Event: `GridDraws.event`.
        Public inputs: the mechanism, the prior, the constants and the density, checked to be a plain
            function of one unit; for `LipschitzLikelihood` the number of units.
        Theorem: 7.
    """
    kept = np.flatnonzero(np.isfinite(prior))
    places = mechanism.places[kept]
    totals, reference = _summed(rows, mechanism.claim, density, places, constants)
    terms = [
        (prior[kept], np.ones(len(kept), np.int64)),
        (np.full(len(kept), mechanism.span / _STEPS * BELOW), totals),
    ]
    if isinstance(mechanism.claim, LipschitzLikelihood):
        everyone = rows._units
        terms.append((mechanism.power * reference, np.full(len(kept), everyone)))
    drawn: Floats = places[choose(bits, terms, mechanism.num_draws)]
    return drawn


def _summed(
    rows: Rows, claim: GridClaim, density: Density, places: Floats, constants: Any
) -> tuple[NDArray[np.int64], Floats]:
    """Each point's sum of scores over units, and the score of a unit of zeros."""
    vectors = jnp.asarray(places, jnp.float32)
    blank = rows.made_up_unit(), rows.made_up_presence()
    add, reference = _compiled(density, claim), np.zeros(len(places))
    if isinstance(claim, LipschitzLikelihood):
        reference = np.asarray(at_places(density)(vectors, *blank, constants), np.float64)
        if not np.isfinite(reference).all():
            raise InvalidArgument("A record of zeros must have a finite log-likelihood everywhere.")
    totals = np.zeros(len(places), np.int64)
    for chunk in rows._chunks(_CHUNK):
        totals += np.asarray(add(vectors, *chunk, reference.astype(np.float32), constants))
    return totals, reference


def on_steps(values: jax.Array, reference: jax.Array, claim: GridClaim) -> jax.Array:
    """A unit's scores as whole numbers, clamped to a span of so many steps; or all zero.

    Within what is below its best by the span; or within half a span of a row of zeros. [draw-unit]
    """
    if isinstance(claim, BoundedLikelihood):
        best, per_step = values.max(), _STEPS / (2 * claim.bound)
        usable = jnp.isfinite(best)  # false if any is NaN
        low, high = -_STEPS, 0
    else:
        best, per_step = reference, _STEPS / (2 * claim.slope * claim.radius)
        usable = ~jnp.isnan(values).any()
        low, high = -_STEPS // 2, _STEPS // 2
    scaled = jnp.clip((values - best) * per_step, low, high)
    whole = jnp.rint(jnp.where(usable, scaled, 0.0)).astype(jnp.int32)
    return jnp.where(usable, jnp.clip(whole, low, high), 0)  # also if NaN was taken for a number


@lru_cache(maxsize=32)
def _compiled(density: Density, claim: GridClaim) -> Callable[..., jax.Array]:
    """Sums over a chunk of units, one unit after the other. [draw-sum]

    Were units computed side by side, rounding could depend on who else is there.
    """
    values = at_places(density)

    def add(vectors: Any, here: Any, rows: Any, present: Any, reference: Any, given: Any) -> Any:
        def one(total: Any, unit: Any) -> Any:
            here, rows, present = unit
            score = on_steps(values(vectors, rows, present, given), reference, claim)
            return total + jnp.where(here, score, 0), None

        start = jnp.zeros(len(vectors), jnp.int32)
        return jax.lax.scan(one, start, (here, rows, present))[0]

    return jax.jit(add)

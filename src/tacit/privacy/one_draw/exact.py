"""Exact draws from a posterior on finitely many public points, private because a unit's influence is bounded.

On a grid, scores of all points are sums over units on an integer lattice, each unit's clamped by a rule that looks
at that unit only (PROOFS.md, Theorem 7). Where rows count by the sum of one column only, as in exponential
families with one parameter, that sum and the number of rows are all that the posterior needs (Theorem 8). Then a
point is drawn with exactly the probabilities that the scores have: as with noise, floating point only ever decides
what it is sure of, by a bound on its own error, and high-precision arithmetic decides the rest on the same random
number with more bits (Lemma 6). Nothing but the drawn points leaves.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
from numpy.typing import NDArray

from tacit import _validate
from tacit._typing import PyTree
from tacit.accounting import events
from tacit.accounting.events import DpEvent
from tacit.errors import InvalidArgument
from tacit.privacy.noise import MPMATH_LOCK, Floats, Integers, Randomness, Uniforms
from tacit.privacy.one_draw.claims import (
    ROUNDING_FACTOR,
    BoundedLikelihood,
    ClaimedDraws,
    Density,
    LipschitzLikelihood,
    check_column,
    check_density,
    check_rows_per_unit,
    densities_at,
    format_draws,
    format_influence,
)
from tacit.privacy.rows import Rows, Units

# A score is a sum of products: of a public coefficient and a private whole number.
Term = tuple[Floats, Integers]
EXACT_PRECISION: Final = 400


def exact_categorical(bits: Randomness, terms: Sequence[Term], count: int) -> Integers:
    """Independent draws of j with probability proportional to exp(score of j).

    The score of j is the sum over ``terms`` of coefficient[j] x number[j], a real number. All
    arrays have one entry for each j. [choice-edges]
    """
    scores, doubt = _scores(terms)
    edges = np.cumsum(np.exp(scores - scores.max()))
    uniform = Uniforms(bits.words(count), bits)
    target = uniform.values * edges[-1]
    last = len(edges) - 1
    found: Integers = np.minimum(np.searchsorted(edges, target, side="right"), last)
    # Below the first edge and above the last there is nothing that could be meant instead.
    below = np.where(found == 0, -np.inf, edges[found - 1])
    above = np.where(found == last, np.inf, edges[found])
    room = np.minimum(target - below, above - target)
    slack = edges[-1] * (8 * doubt + len(edges) * 2.0**-50 + 2.0**-42)
    unsure = np.flatnonzero(~(room > slack)) if doubt < 2.0**-6 else np.arange(count)
    for i in unsure.tolist():
        found[i] = _exact_index(terms, scores, uniform, i)
    return found.astype(np.int64)


def _scores(terms: Sequence[Term]) -> tuple[Floats, float]:
    """Scores in double precision, and a bound on their error."""
    products = [coefficient * number.astype(np.float64) for coefficient, number in terms]
    sizes = np.sum([np.abs(product) for product in products], axis=0)
    return np.sum(products, axis=0), float(sizes.max()) * (len(terms) + 4) * 2.0**-52


def _exact_index(terms: Sequence[Term], rough: Floats, uniform: Uniforms, i: int) -> int:
    """The same draw in high precision."""
    with MPMATH_LOCK, mpmath.workprec(EXACT_PRECISION):
        highest = _exact_score(terms, int(np.argmax(rough)))
        weights = [mpmath.exp(_exact_score(terms, j) - highest) for j in range(len(rough))]
        target, sum_so_far = uniform.exact(i) * mpmath.fsum(weights), mpmath.mpf(0)
        for j, weight in enumerate(weights):
            sum_so_far += weight
            if target < sum_so_far:
                return j
        return len(weights) - 1


def _exact_score(terms: Sequence[Term], j: int) -> mpmath.mpf:
    products = (mpmath.mpf(float(c[j])) * int(number[j]) for c, number in terms)
    return mpmath.fsum(products)


# Of the clamped span; a power of two, so that scaling is exact.
_SPAN_STEPS: Final = 2**20
# Units whose sum surely fits 32 bits: the shapes of the program must not tell how many there are.
_UNITS_PER_CHUNK: Final = 2**10
_MAX_POINTS: Final = 2**18
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
        if math.prod(self.points) > _MAX_POINTS:
            raise InvalidArgument(
                f"A grid of {' x '.join(map(str, self.points))} points is more than {_MAX_POINTS}; "
                "take fewer points, or another sampler."
            )

    @property
    def dimension(self) -> int:
        """How many axes the grid has."""
        return len(self.points)

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
        return [
            f"{format_draws(self.num_draws)} from {where}.",
            format_influence(self.power, unit, self.span),
        ]


def check_grid(
    mechanism: GridDraws, rows: Rows, prior: Floats, density: Density, constants: PyTree
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
    constants: PyTree,
) -> Floats:
    """Points of the mechanism's grid, drawn from the posterior with the mechanism's power.

    ``prior`` has the log prior of every point; a point without a finite one is left out.

    Formal guarantees:
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
    totals, reference = _total_scores(rows, mechanism.claim, density, places, constants)
    terms = [
        (prior[kept], np.ones(len(kept), np.int64)),
        (np.full(len(kept), mechanism.span / _SPAN_STEPS * ROUNDING_FACTOR), totals),
    ]
    if isinstance(mechanism.claim, LipschitzLikelihood):
        everyone = rows._units
        terms.append((mechanism.power * reference, np.full(len(kept), everyone)))
    drawn: Floats = places[exact_categorical(bits, terms, mechanism.num_draws)]
    return drawn


def _total_scores(
    rows: Rows, claim: GridClaim, density: Density, places: Floats, constants: PyTree
) -> tuple[NDArray[np.int64], Floats]:
    """Each point's sum of scores over units, and the score of a unit of zeros."""
    vectors = jnp.asarray(places, jnp.float32)
    add, reference = _compiled_total(density, claim), np.zeros(len(places))
    if isinstance(claim, LipschitzLikelihood):
        reference = np.asarray(
            densities_at(density)(vectors, rows.dummy_unit(), constants), np.float64
        )
        if not np.isfinite(reference).all():
            raise InvalidArgument("A record of zeros must have a finite log-likelihood everywhere.")
    totals = np.zeros(len(places), np.int64)
    for chunk in rows._chunks(_UNITS_PER_CHUNK):
        totals += np.asarray(add(vectors, *chunk, reference.astype(np.float32), constants))
    return totals, reference


def clamped_scores(values: jax.Array, reference: jax.Array, claim: GridClaim) -> jax.Array:
    """A unit's scores as whole numbers, clamped to a span of so many steps; or all zero.

    Within what is below its best by the span; or within half a span of a row of zeros. [draw-unit]
    """
    if isinstance(claim, BoundedLikelihood):
        best, per_step = values.max(), _SPAN_STEPS / (2 * claim.bound)
        usable = jnp.isfinite(best)  # false if any is NaN
        low, high = -_SPAN_STEPS, 0
    else:
        best, per_step = reference, _SPAN_STEPS / (2 * claim.slope * claim.radius)
        usable = ~jnp.isnan(values).any()
        low, high = -_SPAN_STEPS // 2, _SPAN_STEPS // 2
    scaled = jnp.clip((values - best) * per_step, low, high)
    whole = jnp.rint(jnp.where(usable, scaled, 0.0)).astype(jnp.int32)
    return jnp.where(usable, jnp.clip(whole, low, high), 0)  # also if NaN was taken for a number


@lru_cache(maxsize=32)
def _compiled_total(density: Density, claim: GridClaim) -> Callable[..., jax.Array]:
    """Sums over a chunk of units, one unit after the other. [draw-sum]

    Were units computed side by side, rounding could depend on who else is there.
    """
    values = densities_at(density)

    def add(
        vectors: jax.Array, here: jax.Array, units: Units, reference: jax.Array, constants: PyTree
    ) -> jax.Array:
        def one(total: jax.Array, place: tuple[jax.Array, Units]) -> tuple[jax.Array, None]:
            here, unit = place
            score = clamped_scores(values(vectors, unit, constants), reference, claim)
            return total + jnp.where(here, score, 0), None

        start = jnp.zeros(len(vectors), jnp.int32)
        return jax.lax.scan(one, start, (here, units))[0]

    return jax.jit(add)


def _immutable(table: Floats) -> Floats:
    """The same numbers in memory that nobody can write to: they are charged for as they are."""
    return np.ndarray(table.shape, np.float64, table.astype(np.float64).tobytes())


@dataclass(frozen=True, kw_only=True, eq=False)
class StatisticDraws:
    """Draws where rows count by the sum of one column only: exponential families. All public.

    A row's log-likelihood at each of ``places`` is ``at_low`` where the column is ``low``,
    ``at_high`` where it is ``high``, and linear between, but for what is the same at all
    places. So the bound on a unit follows, and nothing is clamped but the column. The column is
    read in ``steps`` steps from low to high; a unit has up to ``rows_per_unit`` rows.
    """

    column: str
    low: float
    high: float
    steps: int
    places: Floats
    prior: Floats
    at_low: Floats
    at_high: Floats
    power: float
    rows_per_unit: int = 1
    num_draws: int = 1

    def __post_init__(self) -> None:
        _validate.set_fields(
            self,
            places=_immutable(self.places),
            prior=_immutable(self.prior),
            at_low=_immutable(self.at_low),
            at_high=_immutable(self.at_high),
        )
        _validate.rate("power", self.power)
        _validate.count("num_draws", self.num_draws)
        _validate.count("rows_per_unit", self.rows_per_unit)
        _validate.count("steps", self.steps)
        if not (self.low < self.high and np.isfinite([self.low, self.high]).all()):
            raise InvalidArgument("The lowest value of the column must be below the highest.")
        for table in (self.prior, self.at_low, self.at_high):
            if table.shape != (len(self.places),) or not np.isfinite(table).all():
                raise InvalidArgument(
                    "The prior and the log-likelihoods of the lowest and the highest value must be "
                    "finite at every point; choose ends inside the parameter's support."
                )

    @property
    def bound(self) -> float:
        """Half of what a unit's log-likelihood spans, at most."""
        spans = [float(table.max() - table.min()) for table in (self.at_low, self.at_high)]
        return self.rows_per_unit * max(*spans, 2.0**-100) / 2

    @property
    def event(self) -> DpEvent:
        """The event to account for."""
        one = BoundedLikelihood(bound=self.bound).event(self.power)
        return events.repeat(one, self.num_draws)

    @property
    def num_steps(self) -> int:
        """A release for each draw."""
        return self.num_draws

    def explain(self, unit: str, many: str) -> list[str]:
        """Lines for people."""
        where = f"{len(self.places)} public points, by {self.column} summed over all {many}"
        span = 2 * self.power * self.bound
        return [
            f"{format_draws(self.num_draws)} from {where}.",
            format_influence(self.power, unit, span),
        ]


def check_statistic(mechanism: StatisticDraws, rows: Rows) -> None:
    """Raises what `draw_by_statistic` would raise, by a row of zeros."""
    check_rows_per_unit(rows, mechanism.rows_per_unit)
    check_column(rows, mechanism.column, ())  # a longer entry would count more than once


def draw_by_statistic(mechanism: StatisticDraws, rows: Rows, bits: Randomness) -> Floats:
    """Points drawn from the posterior that the sum of a column gives.

    Formal guarantees:
        Released: points, each with probability proportional to exp(prior + power x (sum over rows
            of the log-likelihood at the row's value)).
        Neighbours: add-remove and replace.
        Sensitivity under add-remove: `2 * power * bound`, in the range of a log probability ratio:
            a row's log-likelihood is a mixture of two public tables, neither of which spans more.
        Sensitivity under replace: `4 * power * bound`.
        Event: `StatisticDraws.event`.
        Public inputs: the mechanism.
        Theorem: 8.
    """
    number, total = _sufficient_statistic(rows, mechanism)
    factor = mechanism.power * ROUNDING_FACTOR
    low, high = (
        mechanism.at_low - mechanism.at_low.max(),
        mechanism.at_high - mechanism.at_high.max(),
    )
    ones = np.ones(len(mechanism.places), np.int64)
    terms: list[Term] = [
        (mechanism.prior, ones),
        (factor * low, number * ones),
        (factor * (high - low) / mechanism.steps, total * ones),
    ]
    drawn: Floats = mechanism.places[exact_categorical(bits, terms, mechanism.num_draws)]
    return drawn


def _sufficient_statistic(rows: Rows, mechanism: StatisticDraws) -> tuple[int, int]:
    """How many rows have a value, and the sum of their steps. [draw-statistic]"""
    number = total = 0
    for here, (fields, present) in rows._chunks(2**14):
        values = np.asarray(fields[mechanism.column], np.float64)
        real = np.isfinite(values) & present & here[:, None]
        share = (np.clip(values, mechanism.low, mechanism.high) - mechanism.low) / (
            mechanism.high - mechanism.low
        )
        steps = np.clip(np.rint(np.where(real, share, 0.0) * mechanism.steps), 0, mechanism.steps)
        number, total = number + int(real.sum()), total + int(steps.astype(np.int64).sum())
    return number, total

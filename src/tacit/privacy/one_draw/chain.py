"""Draws from a posterior by long chains (NUTS): approximate, and private only as far as exact.

A chain is never quite at its target, so this release rests on an assumption that no code can
check. It is made only for a caller who states it, and the privacy statement repeats it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from numpyro.infer.hmc import hmc

from tacit import _validate
from tacit._typing import PyTree
from tacit.privacy.noise import Randomness
from tacit.privacy.one_draw.claims import (
    ROUNDING_FACTOR,
    BoundedLikelihood,
    Claim,
    ClaimedDraws,
    Density,
    LipschitzLikelihood,
    LogConcave,
    check_density,
    check_prior,
    checked_function,
    checked_value_and_grad,
    format_draws,
)
from tacit.privacy.rows import Rows

# Which units are there, their columns, which rows are real, and how many units have no rows at all.
Everyone = tuple[jax.Array, dict[str, jax.Array], jax.Array, np.float32]
Prior = Callable[[jax.Array, PyTree], jax.Array]


@dataclass(frozen=True, kw_only=True)
class ChainDraws(ClaimedDraws):
    """The ends of chains that aim at a posterior. All public.

    Each draw has a chain of its own, of ``warm_up`` steps that tune it and ``length`` more. It
    is rounded to multiples of ``resolution``.
    """

    dimension: int
    warm_up: int
    length: int
    resolution: float

    def __post_init__(self) -> None:
        super().__post_init__()
        _validate.positive("resolution", self.resolution)
        for name in ("dimension", "warm_up", "length"):
            _validate.count(name, vars(self)[name])

    def explain(self, unit: str, many: str) -> list[str]:
        """Lines for people."""
        steps = f"{self.warm_up + self.length} steps on all {many}"
        return [
            f"{format_draws(self.num_draws)}, each the end of a chain of {steps}; charged as if exact.",
            f"The likelihood of a {unit} counts with a power of {self.power:.4g}.",
        ]


def check_chain(
    mechanism: ChainDraws, rows: Rows, prior: Prior, density: Density, constants: PyTree
) -> None:
    """Raises what `draw_by_chain` would raise, by a unit of zeros."""
    check_density(rows, density, mechanism.dimension, constants)
    check_prior(prior, mechanism.dimension, constants)


def draw_by_chain(
    mechanism: ChainDraws,
    rows: Rows,
    bits: Randomness,
    prior: Prior,
    density: Density,
    constants: PyTree,
) -> NDArray[np.float64]:
    """Draws from the posterior of a prior and a unit's density, on the mechanism's lattice.

    Formal guarantees:
        Released: the end of a chain for each draw, rounded to multiples of the mechanism's resolution.
        Neighbours: those of the claim, *if* the ends have the posterior's distribution, which is
            assumed.
        Sensitivity under add-remove: that of the claim. A unit's log-likelihood is clamped to what
            `BoundedLikelihood` or `LipschitzLikelihood` say; that it is as `LogConcave` says is
            assumed too.
        Sensitivity under replace: that of the claim.
        Event: `ChainDraws.event`, that of exact draws.
        Public inputs: the mechanism, the constants, and the prior and the density, checked to be plain.
        Theorem: none; see "Draws by chains".
    """
    words = bits.words(mechanism.num_draws).view(np.uint32).reshape(-1, 2)
    keys = jax.random.wrap_key_data(jnp.asarray(words))
    run = _compiled_chains(prior, density, mechanism.claim, mechanism.dimension)
    given = _all_units(rows), mechanism.power * ROUNDING_FACTOR, constants
    ends = np.asarray(
        run(keys, given, mechanism.warm_up, mechanism.warm_up + mechanism.length), np.float64
    )
    ends = np.nan_to_num(ends, nan=0.0, posinf=0.0, neginf=0.0)
    rounded: NDArray[np.float64] = np.rint(ends / mechanism.resolution) * mechanism.resolution
    return rounded


def _all_units(rows: Rows) -> Everyone:
    """All units, their rows and which are real; without any, one that does not count.

    And how many units have no rows at all. [rows-silent]
    """
    fields, present = rows._device_fields()
    here: jax.Array = jnp.arange(len(present)) < rows._count
    return here, dict(fields), present, np.float32(rows._units - rows._count)


@lru_cache(maxsize=32)
def _compiled_chains(
    prior: Prior, density: Density, claim: Claim, dimension: int
) -> Callable[..., jax.Array]:
    """Chains side by side as one program; rows are its arguments, never part of it."""
    of_unit, of_prior = (
        _finite_density(density),
        checked_function(prior),
    )  # both see where the chain is

    def potential(
        units: Everyone, power: float, constants: PyTree
    ) -> Callable[[jax.Array], jax.Array]:
        here, fields, present, silent = units
        fields = _shorten_column(fields, claim)
        blank = jax.tree.map(lambda leaf: jnp.zeros_like(leaf[0]), fields)

        def of(vector: jax.Array) -> jax.Array:
            zeros = of_unit(vector, blank, jnp.ones_like(present[0]), constants)
            each = jax.vmap(of_unit, in_axes=(None, 0, 0, None))
            values = _clip_to_claim(each(vector, fields, present, constants), zeros, claim)
            total: jax.Array = jnp.where(here, values, 0.0).sum()
            if isinstance(
                claim, LipschitzLikelihood
            ):  # a record that says nothing is as one of zeros
                total += silent * zeros
            value: jax.Array = -of_prior(vector, constants) - power * total
            return value

        return of

    begin, step = hmc(potential_fn_gen=potential, algo="NUTS")

    def chain(key: jax.Array, given: PyTree, warm_up: int, total: int) -> jax.Array:
        state = begin(jnp.zeros(dimension), warm_up, rng_key=key, model_args=given)
        last = jax.lax.fori_loop(0, total, lambda _, s: step(s, model_args=given), state)
        end: jax.Array = last.z
        return end

    def chains(keys: jax.Array, given: PyTree, warm_up: int, total: int) -> jax.Array:
        return jax.vmap(lambda key: chain(key, given, warm_up, total))(keys)

    return jax.jit(chains, static_argnums=(2, 3))


def _finite_density(density: Density) -> Callable[..., jax.Array]:
    """A density that is zero where it or its gradient is not finite, and so is its gradient.

    So one unit cannot stop a chain.
    """

    def forward(vector: jax.Array, *unit: PyTree) -> tuple[jax.Array, jax.Array]:
        value, slope = checked_value_and_grad(density)(vector, *unit)
        usable = jnp.isfinite(value) & jnp.isfinite(slope).all()
        return jnp.where(usable, value, 0.0), jnp.where(usable, slope, 0.0)

    def backward(slope: jax.Array, change: jax.Array) -> tuple[jax.Array, None, None, None]:
        return slope * change, None, None, None

    function = jax.custom_vjp(lambda *arguments: forward(*arguments)[0])
    function.defvjp(forward, backward)
    return function


def _clip_to_claim(values: jax.Array, zeros: jax.Array, claim: Claim) -> jax.Array:
    """What units' log-likelihoods count for."""
    if isinstance(claim, BoundedLikelihood):
        return jnp.clip(values, -claim.bound, claim.bound)
    if isinstance(claim, LipschitzLikelihood):
        far = claim.slope * claim.radius
        return zeros + jnp.clip(values - zeros, -far, far)
    return values


def _shorten_column(fields: dict[str, jax.Array], claim: Claim) -> dict[str, jax.Array]:
    """Rows whose vectors in the named column are no longer than stated."""
    if not isinstance(claim, LogConcave) or claim.shortened is None:
        return fields
    column, most = claim.shortened
    vectors = fields[column].astype(jnp.float32)
    if vectors.ndim == 2:  # a number for each row
        return {**fields, column: jnp.clip(vectors, -most, most)}
    lengths = jnp.linalg.norm(vectors, axis=-1, keepdims=True)
    finite = jnp.isfinite(lengths)
    scaled = jnp.where(finite, vectors, 0.0) * (
        most * (1 - 2.0**-20) / jnp.maximum(jnp.where(finite, lengths, 0.0), most)
    )
    return {**fields, column: scaled}

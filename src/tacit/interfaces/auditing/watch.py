"""What an observer sees of a run: every release, and what each says for or against the canary.

A step is wrapped. It does what it does, through the real gate; beside it the observer computes
what made-up units contribute to that step, for it knows them and all that is public. Releases
are public, too.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import log_ndtr
from numpy.typing import NDArray

from tacit.inference.base import Steps
from tacit.models.base import Row
from tacit.privacy.decisions import BarkerTests
from tacit.privacy.mechanisms import NoisySums, has_secrets
from tacit.privacy.program import Step
from tacit.privacy.release import PerRow, PerUnit, Release
from tacit.privacy.units import Units

# Mechanisms of whose releases an observer can make use.
SumsOrTests = NoisySums | BarkerTests
# Secret bits that are tried for a unit, as the observer does not know its own.
_TRIED = 8


class Watched(NamedTuple):
    """A plan whose every release an observer sees: what is charged, and the steps that are made."""

    mechanism: SumsOrTests
    steps: Steps


@dataclass(frozen=True)
class Observation:
    """One release, and what each made-up unit contributes to it if it takes part, in clips.

    Where units have secret bits, on average over them: nobody knows those of a run.
    """

    released: jax.Array
    shift: jax.Array
    units: jax.Array


class _Witness:
    """Stands for a step's release: passes it on, and keeps what is seen of it."""

    def __init__(self, release: Release, mechanism: SumsOrTests, units: Units) -> None:
        self._release, self._mechanism, self._made_up = release, mechanism, units
        self.seen: Observation

    def noisy_sum(self, per_row: PerRow, arguments: Any) -> jax.Array:
        return self._kept(self._release.noisy_sum(per_row, arguments), _rows(per_row), arguments)

    def noisy_unit_sum(self, per_unit: PerUnit, arguments: Any) -> jax.Array:
        released = self._release.noisy_unit_sum(per_unit, arguments)
        return self._kept(released, per_unit, arguments, by_secrets=has_secrets(self._mechanism))

    def noisy_test(self, per_row: PerRow, arguments: Any, shift: jax.Array) -> jax.Array:
        bit = self._release.noisy_test(per_row, arguments, shift)
        return self._kept(bit, _rows(per_row), arguments, shift)

    def noisy_unit_test(self, per_unit: PerUnit, arguments: Any, shift: jax.Array) -> jax.Array:
        bit = self._release.noisy_unit_test(per_unit, arguments, shift)
        return self._kept(bit, per_unit, arguments, shift)

    def _kept(
        self,
        released: jax.Array,
        per_unit: Callable[..., Any],
        arguments: Any,
        shift: jax.Array | float = 0.0,
        *,
        by_secrets: bool = False,
    ) -> jax.Array:
        order = 1 if isinstance(self._mechanism, NoisySums) and self._mechanism.laplace else 2

        def each(rows: Row, present: jax.Array, *own: jax.Array) -> jax.Array:
            value = _finite(per_unit(arguments, rows, present, *own)).reshape(-1)
            return value / jnp.maximum(jnp.linalg.norm(value, order), self._mechanism.clip)

        def expected(rows: Row, present: jax.Array) -> jax.Array:
            if not by_secrets:
                return each(rows, present)
            tried = jax.random.bits(jax.random.key(0, impl="threefry2x32"), (_TRIED, 2))
            return jax.vmap(lambda own: each(rows, present, own))(tried).mean(axis=0)

        clipped = jnp.asarray(jax.vmap(expected)(*self._made_up))
        self.seen = Observation(released, jnp.asarray(shift), clipped)
        return released


def _rows(per_row: PerRow) -> PerUnit:
    """What a unit contributes, if its rows contribute each by itself."""

    def per_unit(arguments: Any, rows: Row, present: jax.Array) -> jax.Array:
        values = jax.vmap(lambda row: _finite(per_row(arguments, row)))(rows)
        kept = present.reshape(-1, *[1] * (values.ndim - 1))
        return jnp.where(kept, values, 0).sum(axis=0)

    return per_unit


def _finite(value: jax.Array) -> jax.Array:
    value = value.astype(jnp.float32)
    return jnp.where(jnp.isfinite(value).all(), value, 0.0)


@lru_cache(maxsize=8)
def watched(step: Step, mechanism: SumsOrTests, others: int) -> Step:
    """A step that returns what its release says of each canary, instead of what it did.

    Its state has the made-up units beside it: so many others, then the canaries. What is said is
    a log-likelihood ratio, in which the noise is taken to be one clip wide, or for tests as it is;
    `evidence` makes scores of it.
    """

    def watching(state: Any, given: Any, release: Release) -> tuple[Any, Any]:
        own, units = state
        witness = _Witness(release, mechanism, units)
        own, _ = step(own, given, witness)  # type: ignore[arg-type]
        return (own, units), _said(mechanism, witness.seen, others)

    return watching


@lru_cache(maxsize=8)
def measured(step: Step, mechanism: SumsOrTests) -> Step:
    """A step that adds up how much alike the contributions of made-up units are.

    Its state has the units and the sums beside it.
    """

    def measuring(state: Any, given: Any, release: Release) -> tuple[Any, Any]:
        own, units, sums = state
        witness = _Witness(release, mechanism, units)
        own, _ = step(own, given, witness)  # type: ignore[arg-type]
        found = witness.seen.units
        return (own, units, sums + found @ found.T), jnp.zeros(())

    return measuring


def _said(mechanism: SumsOrTests, seen: Observation, others: int) -> jax.Array:
    rest, canaries = seen.units[:others], seen.units[others:]
    if isinstance(mechanism, BarkerTests):
        base = mechanism.clip * rest.sum() + seen.shift
        with_each = base + mechanism.clip * canaries[:, 0]
        return _log_chance(mechanism, seen.released, with_each) - _log_chance(
            mechanism, seen.released, base
        )
    total = seen.released / mechanism.clip - mechanism.sampling_rate * rest.sum(axis=0)
    if mechanism.laplace:
        return (jnp.abs(total) - jnp.abs(total - canaries)).sum(axis=1)
    return canaries @ total - jnp.square(canaries).sum(axis=1) / 2


def _log_chance(mechanism: BarkerTests, accepted: jax.Array, logit: jax.Array) -> jax.Array:
    """Of a decision, as it is charged."""
    signed = jnp.where(accepted, logit, -logit)
    if mechanism.noise_variance is None:
        return jax.nn.log_sigmoid(signed)
    return log_ndtr(signed / mechanism.noise_variance**0.5)


def evidence(mechanism: SumsOrTests, said: NDArray[np.floating]) -> NDArray[np.float64]:
    """Scores of the canaries, by what was said [steps, canaries]: log-likelihood ratios.

    Of each canary being there against nobody in its place, over the whole run.
    """
    each = said.astype(np.float64)
    if isinstance(mechanism, NoisySums):
        scales, steps = zip(*mechanism.phases, strict=True)
        noise = np.repeat(np.asarray(scales), steps)[:, None]
        each /= noise if mechanism.laplace else noise**2
        rate = mechanism.sampling_rate
        if rate < 1:
            each = np.logaddexp(np.log1p(-rate), np.log(rate) + each)
    total: NDArray[np.float64] = each.sum(axis=0)
    return total

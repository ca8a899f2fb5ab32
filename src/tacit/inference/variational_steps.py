"""Steps of private variational inference, in three forms that differ in what is clipped.

- ``aligned``: a unit's gradient of its log-likelihood with respect to theta. The chain rule through
  the guide's draw is applied to the noisy sum.
- ``joint``: the same gradient with respect to the parameters of the guide.
- ``elbo``: a unit's gradient of its share of the ELBO: its log-likelihood, plus 1/N of prior and
  entropy for a declared number N of units. This is Algorithm 1 of the papers as printed.

In the first two forms prior and entropy touch no row. They are added after the noise, exact.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree

from tacit.inference.base import noisy_gradient
from tacit.inference.guides import Guide
from tacit.models.base import AnyModel, Row
from tacit.privacy.program import Step
from tacit.privacy.release import Release


class Given(NamedTuple):
    """Public inputs of a step. ``clip`` and ``rate`` are None unless they follow a schedule."""

    noise: Any
    reset: Any
    clip: Any
    rate: Any


class StepSettings(Protocol):
    """The settings that a step depends on."""

    @property
    def family(self) -> Guide:
        """The guide."""
        ...

    @property
    def gradient(self) -> str:
        """The form of the gradient."""
        ...

    @property
    def sampling_rate(self) -> float | tuple[tuple[float, int], ...]:
        """The sampling rate, or its schedule."""
        ...

    @property
    def reset_every(self) -> int | None:
        """After how many steps the optimiser is reset, if ever."""
        ...

    @property
    def size(self) -> int | None:
        """The declared number of units, if any."""
        ...

    def transformation(self) -> optax.GradientTransformation:
        """The optimiser."""
        ...


@lru_cache(maxsize=32)
def step_of(method: StepSettings, model: AnyModel) -> Step:
    """The step of a method on a model: the same object again, so that it compiles once."""
    optimiser = method.transformation()
    ascent = _FORMS[method.gradient]

    def step(state: Any, given: Given, release: Release) -> tuple[Any, Any]:
        params, memory, constants = state
        uphill = ascent(method, model, params, given, constants, release)
        gradient = jax.tree.map(jnp.negative, uphill)
        if method.reset_every is not None:
            fresh = optimiser.init(params)
            memory = jax.tree.map(partial(_renewed, given.reset), fresh, memory)
        updates, memory = optimiser.update(gradient, memory, params)
        params = optax.apply_updates(params, updates)
        return (params, memory, constants), params

    return step


def _renewed(reset: jax.Array, fresh: jax.Array, old: jax.Array) -> jax.Array:
    """What an optimiser has gathered starts anew; its count of steps, for schedules, goes on."""
    return old if jnp.issubdtype(old.dtype, jnp.integer) else jnp.where(reset, fresh, old)


def _public(
    method: StepSettings, model: AnyModel, noise: jax.Array, constants: Any, params: Any
) -> jax.Array:
    """What no row takes part in: log prior and entropy, on average over the draws."""
    guide = method.family

    def at(each: jax.Array) -> jax.Array:
        prior = model.prior_density(guide.draw(params, each), constants)
        return prior + guide.entropy(params, each)

    return jnp.asarray(jax.vmap(at)(noise).mean())


def _with_prior(form: Callable[..., Any]) -> Callable[..., Any]:
    """A form that has the likelihood from rows, and adds what is public after the noise."""

    def ascent(
        method: StepSettings,
        model: AnyModel,
        params: Any,
        given: Given,
        constants: Any,
        release: Any,
    ) -> Any:
        from_rows = form(method, model, params, given, constants, release)
        public = jax.grad(partial(_public, method, model, given.noise, constants))(params)
        return jax.tree.map(jnp.add, from_rows, public)

    return ascent


def _all(method: StepSettings, given: Given, total: jax.Array) -> jax.Array:
    """From a sum over a batch to one over everybody, back in the gradient's own units."""
    rate: Any = method.sampling_rate if given.rate is None else given.rate
    return jnp.asarray((total if given.clip is None else total * given.clip) / rate)


def _in_clips(clip: jax.Array | None, gradient: Any) -> Any:
    """A unit's gradient, in units of the present clip if that follows a schedule."""
    return gradient if clip is None else gradient / clip


def _aligned(
    method: StepSettings,
    model: AnyModel,
    params: Any,
    given: Given,
    constants: Any,
    release: Release,
) -> Any:
    theta, pull = jax.vjp(lambda p: method.family.draw(p, given.noise[0]), params)

    def gradient(density: Callable[..., Any], theta: jax.Array, clip: Any) -> Any:
        return _in_clips(clip, jax.grad(density)(theta))

    total = noisy_gradient(release, model, gradient, (theta, given.clip, constants))
    return pull(_all(method, given, total))[0]


def _joint(
    method: StepSettings,
    model: AnyModel,
    params: Any,
    given: Given,
    constants: Any,
    release: Release,
) -> Any:
    flat, unravel = ravel_pytree(params)

    def gradient(density: Callable[..., Any], flat: jax.Array, noise: jax.Array, clip: Any) -> Any:
        expected = partial(_expected, method.family, unravel, density, noise)
        return _in_clips(clip, jax.grad(expected)(flat))

    total = noisy_gradient(release, model, gradient, (flat, given.noise, given.clip, constants))
    return unravel(_all(method, given, total))


def _expected(
    guide: Guide, unravel: Callable[..., Any], density: Any, noise: jax.Array, flat: jax.Array
) -> jax.Array:
    """A density's mean over the guide's draws."""
    params = unravel(flat)
    draws = jax.vmap(lambda each: guide.draw(params, each))(noise)
    return jnp.asarray(jax.vmap(density)(draws).mean())


def _elbo(
    method: StepSettings,
    model: AnyModel,
    params: Any,
    given: Given,
    constants: Any,
    release: Release,
) -> Any:
    flat, unravel = ravel_pytree(params)
    assert method.size is not None
    share = 1 / method.size

    def per_unit(argument: Any, rows: Row, present: jax.Array) -> Any:
        flat, noise, clip, constants = argument

        def own(flat: jax.Array) -> jax.Array:
            density = partial(_density, model, rows, present, constants)
            likelihood = _expected(method.family, unravel, density, noise, flat)
            public = _public(method, model, noise, constants, unravel(flat))
            # A unit without rows has no share either: it is as if it were not there.
            return likelihood + jnp.where(present.any(), share, 0.0) * public

        return _in_clips(clip, jax.grad(own)(flat))

    total = release.noisy_unit_sum(per_unit, (flat, given.noise, given.clip, constants))
    return unravel(_all(method, given, total))


def _density(
    model: AnyModel, rows: Row, present: jax.Array, constants: Any, theta: jax.Array
) -> jax.Array:
    """A unit's log-likelihood."""
    if len(present) == 1 and not model.whole_units:
        row = jax.tree.map(lambda leaf: leaf[0], rows)
        return jnp.where(present[0], model.row_density(theta, row, constants), 0.0)
    return model.unit_density(theta, rows, present, constants)


_FORMS: dict[str, Callable[..., Any]] = {
    "aligned": _with_prior(_aligned),
    "joint": _with_prior(_joint),
    "elbo": _elbo,
}
FORMS = tuple(_FORMS)

"""Differentially private variational inference (DPVI, DP-ADVI).

Each step draws theta from the guide once for the whole batch and asks the gate for a noisy
sum of clipped likelihood gradients. Prior, entropy and the chain rule through the draw touch
no row, so they are added after the noise and are not clipped.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree
from numpy.typing import NDArray

from tacit import _validate
from tacit.errors import InvalidArgument
from tacit.inference.convergence import settled_from
from tacit.inference.guides import Guide, MeanField, flat_size
from tacit.models.model import Model
from tacit.privacy.check import refuse_captured
from tacit.privacy.gate import Gate, NoisySums, Release, check, run

OPTIMISERS: dict[str, Callable[[Any], optax.GradientTransformation]] = {
    "adam": optax.adam,
    # From zero, as the papers have it; a little added so that a zero gradient is no division.
    "adagrad": lambda rate: optax.adagrad(rate, initial_accumulator_value=1e-12, eps=1e-12),
    "sgd": optax.sgd,
}


@dataclass(frozen=True, kw_only=True)
class Variational:
    """Settings of a variational fit. All are public, and none is read from data.

    ``gradient="aligned"`` clips and noises the gradient with respect to theta, as many numbers
    as the model has, and carries it through the draw afterwards (Jälkö et al. 2022).
    ``"joint"`` is the papers' own form: the gradient with respect to all guide parameters,
    clipped together; it may average ``num_draws`` draws of theta.

    ``clip`` bounds what one unit adds to the gradient. By default it is sqrt(dimension), the
    size of a row of that many standardised features: most gradients of a regression are
    shorter. Half of that needs half the noise, but clipping then biases the posterior.
    ``learning_rate`` by default falls from 0.02 to zero along half a cosine, so that a fit
    settles.
    """

    sampling_rate: float = 0.05
    num_steps: int = 1000
    clip: float | None = None
    guide: Guide = field(default_factory=MeanField)
    gradient: Literal["aligned", "joint"] = "aligned"
    num_draws: int = 1
    optimiser: str | optax.GradientTransformation = "adam"
    learning_rate: float | optax.Schedule | None = None
    reset_every: int | None = None
    average: bool = True
    batch_bound: int = 2**17

    def __post_init__(self) -> None:
        # Whole and plain numbers, so that a plan can be compared and compiled once.
        object.__setattr__(self, "num_steps", _validate.count("num_steps", self.num_steps))
        if self.learning_rate is not None and not callable(self.learning_rate):
            rate = _validate.positive("learning_rate", self.learning_rate)
            object.__setattr__(self, "learning_rate", rate)
        _validate.choice("gradient", self.gradient, ("aligned", "joint"))
        _validate.count("num_draws", self.num_draws)
        if self.gradient == "aligned" and self.num_draws > 1:
            raise InvalidArgument(
                "Aligned gradients share one draw of theta in a step; take more steps, or use "
                'gradient="joint".'
            )
        if isinstance(self.optimiser, str):
            _validate.choice("optimiser", self.optimiser, OPTIMISERS)
        if self.reset_every is not None:
            _validate.count("reset_every", self.reset_every)

    def plan(self, model: Model, noise_multiplier: float) -> NoisySums:
        """What the gate will do for this model."""
        size = model.dimension
        if self.gradient == "joint":
            size = flat_size(self.guide.start(model.dimension))
        return NoisySums(
            sampling_rate=self.sampling_rate,
            num_steps=self.num_steps,
            clip=model.dimension**0.5 if self.clip is None else self.clip,
            noise_multiplier=noise_multiplier,
            dimension=size,
            batch_bound=self.batch_bound,
        )

    def transformation(self) -> optax.GradientTransformation:
        """The optimiser."""
        if not isinstance(self.optimiser, str):
            return self.optimiser
        falling = optax.cosine_decay_schedule(0.02, self.num_steps)
        return OPTIMISERS[self.optimiser](
            falling if self.learning_rate is None else self.learning_rate
        )


class VariationalFit(NamedTuple):
    """A fitted guide, and how it got there. Follows from released values only."""

    params: dict[str, NDArray[np.floating]]
    trace: dict[str, NDArray[np.floating]]
    settled_from: int | None
    averaged: bool


def check_fit(method: Variational, model: Model, gate: Gate) -> None:
    """Raises what `fit_guides` would raise of the model, without reading a row."""
    supports = [parameter.support for parameter in model.parameters.values()]
    settings = (method.guide, method.optimiser, method.learning_rate, supports)
    for function in (model.log_prior, model.log_likelihood):
        refuse_captured(function, settings)
    draws = method.num_draws, method.guide.noise_size(model.dimension)
    check(_step(method, model), _start(method, model), (jnp.zeros(draws), np.bool_(0)), gate)


def _start(method: Variational, model: Model) -> Any:
    start = method.guide.start(model.dimension)
    memory = method.transformation().init(start)
    return start, memory, jax.tree.map(jnp.asarray, model.constants)


def fit_guides(
    method: Variational,
    model: Model,
    gates: Sequence[Gate],
    keys: Sequence[jax.Array],
    progress: Callable[[int], None] | None = None,
) -> list[VariationalFit]:
    """One fit for each gate, side by side in one compiled program."""
    state = _start(method, model)
    states = jax.tree.map(lambda leaf: jnp.stack([leaf] * len(gates)), state)
    draws = method.num_draws, method.guide.noise_size(model.dimension)

    stacked = jnp.stack(keys)

    def inputs(first: int, steps: int) -> Any:
        resets = np.zeros((steps, len(gates)), np.bool_)
        if method.reset_every is not None:
            resets[:] = ((first + np.arange(steps)) % method.reset_every == 0)[:, None]
        return _normals(stacked, np.uint32(first), (steps, *draws)), resets

    _, trace = run(gates, _step(method, model), states, inputs, progress=progress)
    return [
        _finish(method, jax.tree.map(lambda leaf, i=i: leaf[:, i], trace))
        for i in range(len(gates))
    ]


@partial(jax.jit, static_argnames="shape")
def _normals(keys: jax.Array, first: Any, shape: tuple[int, ...]) -> jax.Array:
    """Draws of the model for a block of steps, a stream for each key."""

    def of(key: jax.Array) -> jax.Array:
        return jax.random.normal(jax.random.fold_in(key, first), shape)

    return jax.vmap(of, out_axes=1)(keys)


@lru_cache(maxsize=32)
def _step(method: Variational, model: Model) -> Callable[[Any, Any, Release], tuple[Any, Any]]:
    """The step of a method on a model: the same object again, so that it compiles once."""
    likelihood = _aligned if method.gradient == "aligned" else _joint
    optimiser = method.transformation()

    def step(state: Any, given: Any, release: Release) -> tuple[Any, Any]:
        params, memory, constants = state
        noise, reset = given
        from_rows = likelihood(method, model, params, noise, constants, release)

        def public(params: Any) -> jax.Array:
            draws = jax.vmap(lambda each: method.guide.draw(params, each))(noise)
            prior = jax.vmap(lambda theta: model.prior_density(theta, constants))(draws)
            return prior.mean() + method.guide.entropy(params)

        gradient = jax.tree.map(lambda a, b: -(a + b), from_rows, jax.grad(public)(params))
        if method.reset_every is not None:
            fresh = optimiser.init(params)
            memory = jax.tree.map(partial(_renewed, reset), fresh, memory)
        updates, memory = optimiser.update(gradient, memory, params)
        params = optax.apply_updates(params, updates)
        return (params, memory, constants), params

    return step


def _renewed(reset: jax.Array, fresh: jax.Array, old: jax.Array) -> jax.Array:
    """What an optimiser has gathered starts anew; its count of steps, for schedules, goes on."""
    return old if jnp.issubdtype(old.dtype, jnp.integer) else jnp.where(reset, fresh, old)


def _aligned(
    method: Variational, model: Model, params: Any, noise: Any, constants: Any, release: Release
) -> Any:
    theta, pull = jax.vjp(lambda p: method.guide.draw(p, noise[0]), params)

    def per_row(arguments: Any, row: Any) -> jax.Array:
        gradient: jax.Array = jax.grad(model.row_density)(arguments[0], row, arguments[1])
        return gradient

    total = release.noisy_sum(per_row, (theta, constants)) / method.sampling_rate
    return pull(total)[0]


def _joint(
    method: Variational, model: Model, params: Any, noise: Any, constants: Any, release: Release
) -> Any:
    flat, unravel = ravel_pytree(params)

    def per_row(arguments: Any, row: Any) -> jax.Array:
        flat, noise, constants = arguments

        def expected(flat: jax.Array) -> jax.Array:
            params = unravel(flat)
            draws = jax.vmap(lambda each: method.guide.draw(params, each))(noise)
            return jax.vmap(lambda theta: model.row_density(theta, row, constants))(draws).mean()

        gradient: jax.Array = jax.grad(expected)(flat)
        return gradient

    return unravel(release.noisy_sum(per_row, (flat, noise, constants)) / method.sampling_rate)


def _finish(method: Variational, trace: dict[str, NDArray[np.floating]]) -> VariationalFit:
    flat = np.concatenate([leaf.reshape(len(leaf), -1) for leaf in trace.values()], axis=1)
    start = settled_from(flat)
    if method.average and start is not None:
        params = {name: leaf[start:].mean(axis=0) for name, leaf in trace.items()}
        return VariationalFit(params, trace, start, averaged=True)
    return VariationalFit({n: leaf[-1] for n, leaf in trace.items()}, trace, start, averaged=False)

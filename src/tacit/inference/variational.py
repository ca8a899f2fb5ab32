"""Differentially private variational inference (DPVI, DP-ADVI).

Each step draws theta from the guide once for the whole batch and asks the gate for a noisy
sum of clipped likelihood gradients. Prior, entropy and the chain rule through the draw touch
no row, so they are added after the noise and are not clipped.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from numbers import Real
from types import FunctionType
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree
from numpy.typing import ArrayLike

from tacit import _validate
from tacit.accounting import Budget, calibrate
from tacit.errors import InvalidArgument
from tacit.inference.autoguide import AutoGuide, Made
from tacit.inference.base import (
    Intervals,
    MethodResult,
    Progress,
    Steps,
    noisy_gradient,
    normals,
    parameters,
    seed_of,
)
from tacit.inference.convergence import VariationalFit, finished
from tacit.inference.guides import Guide, MeanField, flat_size
from tacit.inference.sizes import rate_for, room_for
from tacit.models.base import AnyModel
from tacit.privacy.captured import refuse_captured
from tacit.privacy.gate import Gate, check, run
from tacit.privacy.mechanisms import NoisySums
from tacit.privacy.program import Step
from tacit.privacy.release import Release

_DRAWS = 1000
_MOVING = (
    "The fit still moved when it ended. More steps, or a learning rate that falls, may help; see "
    "plot_trace()."
)
_STEADY = "The fit no longer moved when it ended. This alone does not show that a variational fit is right."
OPTIMISERS: dict[str, Callable[[Any], optax.GradientTransformation]] = {
    "adam": optax.adam,
    # From zero, as the papers have it; a little added so that a zero gradient is no division.
    "adagrad": lambda rate: optax.adagrad(rate, initial_accumulator_value=1e-12, eps=1e-12),
    "sgd": optax.sgd,
}


@dataclass(frozen=True, kw_only=True)
class Variational:
    """Private variational inference with noisy clipped gradients. All settings are public.

    The intervals do not account for the privacy noise.

    Args:
        sampling_rate: Probability that a unit is sampled in a step.
        num_steps: Number of steps.
        clip: Bound on the norm of one unit's gradient. The default, sqrt(dimension), is the norm of
            a row of that many standardised features; most gradients of a regression are shorter. A
            smaller clip needs less noise but biases the posterior.
        guide: The variational family: `tacit.methods.MeanField`, `tacit.methods.FullRank` or `tacit.methods.LowRank`; the
            class of a NumPyro autoguide with a reparametrised draw; or a function that makes one.
        gradient: ``"aligned"`` clips and perturbs the gradient with respect to the model's
            parameters, and applies the chain rule through the guide afterwards (Jälkö et al. 2022).
            ``"joint"`` clips the gradient with respect to all parameters of the guide, as in the
            original papers.
        num_draws: Draws from the guide per step, for ``gradient="joint"``.
        optimiser: The name of an optimiser, or an optax transformation.
        learning_rate: The learning rate, or an optax schedule. By default it decays from 0.02 to
            zero along half a cosine.
        reset_every: Number of steps after which the state of the optimiser is reset; by default
            never.
        average: Whether to average the late steps that no longer drift.
        batch_bound: A public bound on the number of units in a batch. It sets the integer lattice,
            not the guarantee.
        start: Public values of some parameters to start from; by default zero on the unconstrained
            scale. ``"random"`` breaks symmetries, as mixtures and neural networks need.
    """

    sampling_rate: float = 0.05
    num_steps: int = 1000
    clip: float | None = None
    guide: Guide | Callable[[Any], Any] = field(default_factory=MeanField)
    gradient: Literal["aligned", "joint"] = "aligned"
    num_draws: int = 1
    optimiser: str | optax.GradientTransformation = "adam"
    learning_rate: float | optax.Schedule | None = None
    reset_every: int | None = None
    average: bool = True
    batch_bound: int = 2**17
    start: Literal["random"] | Mapping[str, ArrayLike] | None = field(default=None, compare=False)

    declared_public: ClassVar[tuple[str, ...]] = ("start",)
    by_gradients: ClassVar[bool] = True
    assumptions: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        _guide(self.guide)
        _validate.integer("num_steps", self.num_steps)
        if self.learning_rate is not None and not callable(self.learning_rate):
            # Numbers that can be compared, so that equal methods compile once.
            if not isinstance(self.learning_rate, Real):
                raise InvalidArgument(
                    "learning_rate must be a number or an optax schedule; got "
                    f"{type(self.learning_rate).__name__}."
                )
            _validate.positive("learning_rate", self.learning_rate)
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
        if isinstance(self.start, str):
            _validate.choice("start", self.start, ("random",))

    @property
    def family(self) -> Guide:
        """The guide as a `Guide`, also if it comes from NumPyro."""
        return _guide(self.guide)

    def mechanism(self, model: AnyModel, noise_multiplier: float) -> NoisySums:
        """What the gate will do for this model."""
        size = model.dimension
        if self.gradient == "joint":
            size = flat_size(self.family.start(model.dimension))
        return NoisySums(
            sampling_rate=self.sampling_rate,
            num_steps=self.num_steps,
            clip=model.dimension**0.5 if self.clip is None else self.clip,
            noise_multiplier=noise_multiplier,
            dimension=size,
            batch_bound=self.batch_bound,
        )

    def for_size(self, model: AnyModel, size: int, budget: Budget) -> "Variational":  # noqa: ARG002
        """The method with a sampling rate for a declared size: lower for many units."""
        rate = rate_for(self.sampling_rate, size)
        return replace(self, sampling_rate=rate, batch_bound=room_for(self.batch_bound, rate, size))

    def calibrated(self, model: AnyModel, budget: Budget) -> NoisySums:
        """What the gate will do, with the least noise that meets a budget."""
        noise = calibrate.noise_multiplier(
            budget, sampling_rate=self.sampling_rate, num_steps=self.num_steps
        )
        return self.mechanism(model, noise)

    def without_noise(self, model: AnyModel) -> NoisySums:
        """The same without privacy."""
        return self.mechanism(model, 0.0)

    def check(self, model: AnyModel, gate: Gate) -> None:
        """Raises what `run` would raise of the model, without reading a row."""
        refuse_captured(*model.searched, (self.guide, self.optimiser, self.learning_rate))
        draws = self.num_draws, self.family.noise_size(model.dimension)
        state = _start(self, model, jax.random.key(0))
        check(_step(self, model), state, (jnp.zeros(draws), np.bool_(0)), gate)

    def steps(
        self,
        model: AnyModel,
        mechanism: NoisySums,  # noqa: ARG002 (it changes nothing in a step)
        key: jax.Array,
    ) -> Steps:
        """The fit as steps."""
        draws = self.num_draws, self.family.noise_size(model.dimension)
        seed = seed_of(key)

        def inputs(first: int, steps: int) -> Any:
            resets = np.zeros(steps, np.bool_)
            if self.reset_every is not None:
                resets = (first + np.arange(steps)) % self.reset_every == 0
            return normals(seed, first, steps, draws), resets

        start = _start(self, model, jax.random.fold_in(key, 2**31))
        return Steps(_step(self, model), start, inputs)

    def run(
        self, model: AnyModel, gate: Gate, key: jax.Array, progress: Progress | None = None
    ) -> MethodResult:
        """The fitted guide, and draws from it."""
        return _found(self, model, fit_guide(self, model, gate, key, progress), key)

    def trial(self, num_steps: int) -> "Variational":
        """The same method with so few steps, all of them kept."""
        return replace(self, num_steps=num_steps)

    def describe(self, model: AnyModel) -> str:
        """A line for people."""
        named = self.guide if isinstance(self.guide, type | FunctionType) else type(self.guide)
        return (
            f"Variational inference ({named.__name__} guide, {self.gradient} gradients) for "
            f"{model.dimension} unconstrained numbers."
        )

    def transformation(self) -> optax.GradientTransformation:
        """The optimiser."""
        if not isinstance(self.optimiser, str):
            return self.optimiser
        falling = optax.cosine_decay_schedule(0.02, self.num_steps)
        return OPTIMISERS[self.optimiser](
            falling if self.learning_rate is None else self.learning_rate
        )


def suits(model: AnyModel) -> bool:  # noqa: ARG001
    """Any model: what it cannot fit it refuses, with words."""
    return True


def _guide(guide: Any) -> Guide:
    made = not isinstance(guide, type)
    if made and isinstance(guide, Guide):
        return guide
    if not callable(guide) or isinstance(guide, Made if made else Guide):
        raise InvalidArgument(
            "guide must be MeanField(), FullRank(), LowRank(rank=...) or the class of a NumPyro "
            "autoguide, such as AutoIAFNormal; not a guide made for a model."
        )
    return AutoGuide(guide)


def _start(method: Variational, model: AnyModel, key: jax.Array) -> Any:
    start = method.family.start(model.dimension)
    if method.start == "random":
        start = method.family.moved(start, jax.random.normal(key, (model.dimension,)))
    elif method.start is not None:
        start = method.family.moved(start, jnp.asarray(model.start(method.start)))
    state = start, method.transformation().init(start), model.constants
    # Types as a step returns them, or the second block of steps would be compiled anew.
    return jax.tree.map(
        lambda leaf: jax.lax.convert_element_type(leaf, jnp.result_type(leaf)), state
    )


def fit_guide(
    method: Variational,
    model: AnyModel,
    gate: Gate,
    key: jax.Array,
    progress: Progress | None = None,
) -> VariationalFit:
    """The guide that a method fits through a gate."""
    _, trace = run(gate, *method.steps(model, gate.mechanism, key), progress=progress)
    return finished(trace, average=method.average)


@lru_cache(maxsize=32)
def _step(method: Variational, model: AnyModel) -> Step:
    """The step of a method on a model: the same object again, so that it compiles once."""
    likelihood = _aligned if method.gradient == "aligned" else _joint
    optimiser, guide = method.transformation(), method.family

    def step(state: Any, given: Any, release: Release) -> tuple[Any, Any]:
        params, memory, constants = state
        noise, reset = given
        from_rows = likelihood(method, model, params, noise, constants, release)

        def public(params: Any) -> jax.Array:
            def at(noise: jax.Array) -> jax.Array:
                prior = model.prior_density(guide.draw(params, noise), constants)
                return prior + guide.entropy(params, noise)

            return jax.vmap(at)(noise).mean()

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
    method: Variational, model: AnyModel, params: Any, noise: Any, constants: Any, release: Release
) -> Any:
    theta, pull = jax.vjp(lambda p: method.family.draw(p, noise[0]), params)

    def gradient(density: Callable[..., Any], theta: jax.Array) -> Any:
        return jax.grad(density)(theta)

    total = noisy_gradient(release, model, gradient, (theta, constants)) / method.sampling_rate
    return pull(total)[0]


def _joint(
    method: Variational, model: AnyModel, params: Any, noise: Any, constants: Any, release: Release
) -> Any:
    flat, unravel = ravel_pytree(params)

    def gradient(density: Callable[..., Any], flat: jax.Array, noise: jax.Array) -> Any:
        def expected(flat: jax.Array) -> jax.Array:
            params = unravel(flat)
            draws = jax.vmap(lambda each: method.family.draw(params, each))(noise)
            return jnp.asarray(jax.vmap(density)(draws).mean())

        return jax.grad(expected)(flat)

    total = noisy_gradient(release, model, gradient, (flat, noise, constants))
    return unravel(total / method.sampling_rate)


def _found(
    method: Variational, model: AnyModel, fit: VariationalFit, key: jax.Array
) -> MethodResult:
    guide, params = method.family, jax.tree.map(jnp.asarray, fit.params)
    # After the steps, in stretches that none of them uses.
    after = method.num_steps + _DRAWS
    noise = normals(seed_of(key), after, _DRAWS, (guide.noise_size(model.dimension),))
    covariance = guide.covariance(params)
    return MethodResult(
        draws=parameters(model, _drawn(guide, params, noise)),
        trace=fit.trace,
        mean=None if covariance is None else np.asarray(params["mean"]),
        covariance=None if covariance is None else np.asarray(covariance),
        converged=None if fit.steady else False,
        said=(_STEADY if fit.steady else _MOVING,),
        intervals=Intervals.LEFT_OUT,
    )


@partial(jax.jit, static_argnames="guide")
def _drawn(guide: Guide, params: Any, noise: Any) -> Any:
    return jax.vmap(lambda each: guide.draw(params, each))(noise)

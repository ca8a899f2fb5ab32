"""Differentially private variational inference (DPVI, DP-ADVI).

Each step draws theta from the guide once for the whole batch and asks the gate for a noisy sum of clipped gradients,
in one of three forms that differ in what is clipped:

- ``aligned``: a unit's gradient of its log-likelihood with respect to theta. The chain rule through
  the guide's draw is applied to the noisy sum.
- ``joint``: the same gradient with respect to the parameters of the guide.
- ``elbo``: a unit's gradient of its share of the ELBO: its log-likelihood, plus 1/N of prior and
  entropy for a declared number N of units. This is Algorithm 1 of the papers as printed.

In the first two forms prior and entropy touch no row. They are added after the noise, exact.

The end of the optimisation is averaged where the released trace has no trend. A steady trace is no sign that a fit
is right: steps that are too short are steady, too. So it is never reported as convergence.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import pairwise
from numbers import Real
from types import FunctionType
from typing import ClassVar, Literal, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree
from numpy.typing import ArrayLike, NDArray

from tacit import _validate
from tacit._typing import ArrayTree
from tacit.accounting import Budget, calibrate
from tacit.errors import InvalidArgument
from tacit.inference.guides import (
    Guide,
    GuideFactory,
    MeanField,
    Params,
    as_guide,
    num_parameters,
)
from tacit.inference.method import (
    Density,
    Inputs,
    Method,
    Progress,
    Steps,
    batch_bound_for_size,
    constrained_draws,
    later_progress,
    noisy_gradient,
    per_step_normals,
    sampling_rate_for_size,
    seed_from_key,
)
from tacit.inference.result import Intervals, MethodResult
from tacit.models.base import Row, UnitModel
from tacit.privacy.captured import check_captured
from tacit.privacy.gate import Gate, check, run
from tacit.privacy.mechanisms import Mechanism, NoisySums, Release, Stages
from tacit.privacy.trace import Step

_NUM_DRAWS = 1000
_MOVING_MESSAGE = (
    "The fit still moved when it ended. More steps, or a learning rate that falls, may help; see "
    "plot_trace()."
)
_STEADY_MESSAGE = "The fit no longer moved when it ended. This alone does not show that a variational fit is right."
OPTIMISERS: dict[str, Callable[[float | optax.Schedule], optax.GradientTransformation]] = {
    "adam": optax.adam,
    # Starting at zero, as in the papers, but for a small number that avoids a division by zero.
    "adagrad": lambda rate: optax.adagrad(rate, initial_accumulator_value=1e-12, eps=1e-12),
    "sgd": optax.sgd,
}


class VariationalFit(NamedTuple):
    """A fitted guide, its trace, and whether the trace was stationary at the end. Follows from released values only."""

    params: Params
    trace: dict[str, NDArray[np.floating]]
    steady: bool


def fit_from_trace(trace: Params, *, average: bool) -> VariationalFit:
    """The last parameters of a trace; or the average of its steady end, if there is one."""
    leaves = jax.tree.leaves(trace)
    start = stationary_start(
        np.concatenate([leaf.reshape(len(leaf), -1) for leaf in leaves], axis=1)
    )
    steady = start is not None
    averaged = average and steady
    params = jax.tree.map(lambda leaf: leaf[start:].mean(axis=0) if averaged else leaf[-1], trace)
    # Arrays by name, also where a flow nests them.
    by_name = {
        jax.tree_util.keystr(path, simple=True, separator="."): leaf
        for path, leaf in jax.tree_util.tree_flatten_with_path(trace)[0]
    }
    return VariationalFit(params, by_name, steady)


def stationary_start(trace: NDArray[np.floating]) -> int | None:
    """The first of ten candidate steps from which the trace has no trend, or None.

    Each suffix of the trace is regressed on time, scaled to [0, 1]; it is steady if the
    slopes are below 0.05 on average (Jälkö et al. 2022).
    """
    steps = len(trace)
    tenths = [tenth * steps // 10 for tenth in range(11)]
    # Sums of values, and of values times their step, from each tenth to the end.
    parts = [np.asarray(trace[a:b], np.float64) for a, b in pairwise(tenths)]
    values = np.cumsum([part.sum(axis=0) for part in parts][::-1], axis=0)[::-1]
    # Not by a matrix product, whose threads would go on spinning after so little work.
    moments = [
        np.einsum("i,ij->j", np.arange(a, b, dtype=np.float64), part)
        for (a, b), part in zip(pairwise(tenths), parts, strict=True)
    ]
    timed = np.cumsum(moments[::-1], axis=0)[::-1]
    for start, value, moment in zip(tenths, values, timed, strict=False):
        length = steps - start
        if length < 10:
            return None
        centre, spread = start + (length - 1) / 2, length * (length**2 - 1) / 12
        slopes = (moment - centre * value) / spread * (length - 1)
        if np.mean(np.abs(slopes)) < 0.05:
            return start
    return None


# Parameters of the guide, state of the optimiser, and constants of the model.
State = tuple[Params, optax.OptState, ArrayTree]


class StepInput(NamedTuple):
    """Public inputs of a step. ``clip`` and ``rate`` are None unless they follow a schedule."""

    noise: jax.Array
    reset: jax.Array
    clip: jax.Array | None
    rate: jax.Array | None


@dataclass(frozen=True, kw_only=True)
class Variational(Method):
    """Private variational inference with noisy clipped gradients. All settings are public.

    The intervals do not account for the privacy noise.

    Args:
        sampling_rate: Probability that a unit is sampled in a step, or a schedule of (probability, steps)
            pairs, whose steps add up to ``num_steps``. The noise multiplier is the same in all of them.
        num_steps: Number of steps.
        clip: Bound on the norm of one unit's gradient, or an optax schedule of bounds: a function of the
            step. Noise is proportional to the bound, so a schedule costs no more. The default,
            sqrt(dimension), is the norm of a row of that many standardised features; most gradients of
            a regression are shorter. A smaller clip needs less noise but biases the posterior.
        guide: The variational family: `tacit.methods.MeanField`, `tacit.methods.FullRank` or `tacit.methods.LowRank`; the
            class of a NumPyro autoguide with a reparametrised draw; or a function that makes one.
        gradient: What is clipped and perturbed. ``"aligned"``: a unit's log-likelihood gradient with respect
            to the model's parameters; the chain rule through the guide is applied afterwards (Jälkö et
            al. 2022). ``"joint"``: the same gradient with respect to all parameters of the guide. ``"elbo"``: a
            unit's gradient of its share of the ELBO, which is its log-likelihood plus 1/``size`` of prior
            and entropy, with respect to all parameters of the guide; this is Algorithm 1 of the
            papers as printed. In the first two forms prior and entropy are exact, because no
            row takes part in them; in the third they are clipped and sampled with the rows.
        num_draws: Draws from the guide per step, for ``gradient="joint"`` and ``"elbo"``.
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
        size: A public number of units, for ``gradient="elbo"``; by default the ``size`` of the plan. It
            need not be exact. Do not count it from private data.
    """

    sampling_rate: float | tuple[tuple[float, int], ...] = 0.05
    num_steps: int = 1000
    clip: float | optax.Schedule | None = None
    guide: Guide | GuideFactory = field(default_factory=MeanField)
    gradient: Literal["aligned", "joint", "elbo"] = "aligned"
    num_draws: int = 1
    optimiser: str | optax.GradientTransformation = "adam"
    learning_rate: float | optax.Schedule | None = None
    reset_every: int | None = None
    average: bool = True
    batch_bound: int = 2**17
    start: Literal["random"] | Mapping[str, ArrayLike] | None = field(default=None, compare=False)
    size: int | None = None

    declared_public: ClassVar[tuple[str, ...]] = ("start",)
    by_gradients: ClassVar[bool] = True

    def __post_init__(self) -> None:
        as_guide(self.guide)
        _validate.integer("num_steps", self.num_steps)
        self._check_rates()
        if self.learning_rate is not None and not callable(self.learning_rate):
            # Numbers that can be compared, so that equal methods compile once.
            if not isinstance(self.learning_rate, Real):
                raise InvalidArgument(
                    "learning_rate must be a number or an optax schedule; got "
                    f"{type(self.learning_rate).__name__}."
                )
            _validate.positive("learning_rate", self.learning_rate)
        _validate.choice("gradient", self.gradient, _GRADIENTS)
        _validate.count("num_draws", self.num_draws)
        if self.gradient == "aligned" and self.num_draws > 1:
            raise InvalidArgument(
                "Aligned gradients share one draw of theta in a step; take more steps, or use "
                'gradient="joint".'
            )
        if self.size is not None:
            _validate.count("size", self.size)
        if isinstance(self.optimiser, str):
            _validate.choice("optimiser", self.optimiser, OPTIMISERS)
        if self.reset_every is not None:
            _validate.count("reset_every", self.reset_every)
        if isinstance(self.start, str):
            _validate.choice("start", self.start, ("random",))

    def _check_rates(self) -> None:
        if not isinstance(self.sampling_rate, Sequence):
            return
        try:
            pairs = tuple((float(rate), int(steps)) for rate, steps in self.sampling_rate)
        except (TypeError, ValueError):
            raise InvalidArgument(
                "sampling_rate must be a number or a schedule of (probability, steps) pairs."
            ) from None
        constant = len(pairs) == 1
        # A tuple, so that it can be hashed.
        object.__setattr__(self, "sampling_rate", pairs[0][0] if constant else pairs)
        for rate, steps in pairs:
            _validate.rate("sampling_rate", rate)
            _validate.count("the steps of a sampling rate", steps)
        if sum(steps for _, steps in pairs) != self.num_steps:
            raise InvalidArgument("The steps of the sampling rates must add up to num_steps.")

    @property
    def family(self) -> Guide:
        """The guide as a `Guide`, also if it comes from NumPyro."""
        return as_guide(self.guide)

    @property
    def phases(self) -> tuple[tuple[float, int], ...]:
        """Sampling rates, and the number of steps that each holds for."""
        if isinstance(self.sampling_rate, tuple):
            return self.sampling_rate
        return ((self.sampling_rate, self.num_steps),)

    @property
    def constant_rate(self) -> float:
        """The sampling rate, if it is the same in all steps.

        Raises:
            InvalidArgument: If the rate follows a schedule.
        """
        if isinstance(self.sampling_rate, tuple):
            raise InvalidArgument(
                "A schedule of sampling rates cannot be used here; pass a number."
            )
        return self.sampling_rate

    def clips(self, first: int, steps: int) -> NDArray[np.float32]:
        """The clip of some steps, where it follows a schedule."""
        assert callable(self.clip)
        found = np.array([float(self.clip(first + i)) for i in range(steps)], np.float32)
        if not (np.isfinite(found) & (found > 0)).all():
            raise InvalidArgument("The schedule of clips must give positive numbers in all steps.")
        return found

    def _sums(
        self, model: UnitModel, noise_multiplier: float, rate: float, steps: int
    ) -> NoisySums:
        if self.gradient == "elbo" and self.size is None:
            raise InvalidArgument(
                'gradient="elbo" shares prior and entropy among the units; pass size=, a public '
                "number of them."
            )
        aligned = self.gradient == "aligned"
        clip = model.dimension**0.5 if self.clip is None else self.clip
        return NoisySums(
            sampling_rate=rate,
            num_steps=steps,
            # Gradients are in units of the present clip if it has a schedule (PROOFS.md, Corollary 1C).
            clip=1.0 if callable(clip) else clip,
            noise_multiplier=noise_multiplier,
            dimension=model.dimension
            if aligned
            else num_parameters(self.family.start(model.dimension)),
            batch_bound=self.batch_bound,
        )

    def mechanism(self, model: UnitModel, noise_multiplier: float) -> NoisySums:
        """What the gate will do for this model, at one sampling rate."""
        return self._sums(model, noise_multiplier, self.constant_rate, self.num_steps)

    def _stage_mechanisms(self, model: UnitModel, noise_multiplier: float) -> NoisySums | Stages:
        """What the gate will do: a stage for each sampling rate, if there are several."""
        if callable(self.clip):
            self.clips(0, self.num_steps)
        if not isinstance(self.sampling_rate, tuple):
            return self.mechanism(model, noise_multiplier)
        return Stages(tuple(self._sums(model, noise_multiplier, *phase) for phase in self.phases))

    def for_size(self, model: UnitModel, size: int, budget: Budget) -> Self:  # noqa: ARG002
        """The method with sampling rates for a declared size: lower for many units."""
        rates = [sampling_rate_for_size(rate, size) for rate, _ in self.phases]
        pairs = tuple((rate, steps) for rate, (_, steps) in zip(rates, self.phases, strict=True))
        return replace(
            self,
            sampling_rate=pairs if isinstance(self.sampling_rate, tuple) else rates[0],
            batch_bound=batch_bound_for_size(self.batch_bound, max(rates), size),
            size=size if self.gradient == "elbo" and self.size is None else self.size,
        )

    def calibrate(self, model: UnitModel, budget: Budget) -> NoisySums | Stages:
        """What the gate will do, with the least noise that meets a budget."""
        if not isinstance(self.sampling_rate, tuple):
            noise = calibrate.noise_multiplier(
                budget, sampling_rate=self.sampling_rate, num_steps=self.num_steps
            )
        else:
            noise = calibrate.calibrate(
                lambda scale: self._stage_mechanisms(model, scale).event, budget
            )
        return self._stage_mechanisms(model, noise)

    def without_noise(self, model: UnitModel) -> NoisySums | Stages:
        """The same without privacy."""
        return self._stage_mechanisms(model, 0.0)

    def describe(self, model: UnitModel) -> str:
        """A line for the printed plan."""
        named = self.guide if isinstance(self.guide, type | FunctionType) else type(self.guide)
        line = (
            f"Variational inference ({named.__name__} guide, {self.gradient} gradients) for "
            f"{model.dimension} unconstrained parameters."
        )
        if not callable(self.clip):
            return line
        first, last = self.clips(0, 1)[0], self.clips(self.num_steps - 1, 1)[0]
        return f"{line} The clip goes from {first:.4g} to {last:.4g}; sums are in units of the present clip."

    def transformation(self) -> optax.GradientTransformation:
        """The optimiser."""
        if not isinstance(self.optimiser, str):
            return self.optimiser
        falling = optax.cosine_decay_schedule(0.02, self.num_steps)
        return OPTIMISERS[self.optimiser](
            falling if self.learning_rate is None else self.learning_rate
        )

    def check(self, model: UnitModel, gate: Gate) -> None:
        """Raises what `run` would raise of the model, without reading a row."""
        settings = self.guide, self.optimiser, self.learning_rate, self.clip
        check_captured(*model.user_functions, settings)
        step, state, inputs = self.all_steps(model, jax.random.key(0))
        example = jax.tree.map(lambda leaf: leaf[0], inputs(0, 1))
        for each in _stage_gates(gate):
            check(step, state, example, each)

    def steps(
        self,
        model: UnitModel,
        mechanism: Mechanism,  # noqa: ARG002 (it changes nothing in a step)
        key: jax.Array,
    ) -> Steps | None:
        """The fit as steps; None where they come in several stages."""
        return None if isinstance(self.sampling_rate, tuple) else self.all_steps(model, key)

    def all_steps(self, model: UnitModel, key: jax.Array, params: Params | None = None) -> Steps:
        """The steps of all stages, one after the other, from given parameters of the guide if there are some."""
        draws = self.num_draws, self.family.noise_size(model.dimension)
        seed = seed_from_key(key)
        rates, lengths = zip(*self.phases, strict=True)
        every = np.repeat(np.asarray(rates, np.float32), lengths)

        def inputs(first: int, steps: int) -> StepInput:
            resets = np.zeros(steps, np.bool_)
            if self.reset_every is not None:
                resets = (first + np.arange(steps)) % self.reset_every == 0
            noise = per_step_normals(seed, first, steps, draws)
            clips = self.clips(first, steps) if callable(self.clip) else None
            varying = every[first : first + steps] if len(rates) > 1 else None
            return StepInput._make([noise, resets, clips, varying])  # on the host still

        start = _initial_state(self, model, jax.random.fold_in(key, 2**31), params)
        return Steps(variational_step(self, model), start, inputs)

    def run(
        self, model: UnitModel, gate: Gate, key: jax.Array, progress: Progress | None = None
    ) -> MethodResult:
        """The fitted guide, and draws from it."""
        return _method_result(self, model, fit_guide(self, model, gate, key, progress), key)

    def trial(self, num_steps: int) -> "Variational":
        """The same method with so few steps, all of them kept."""
        rate = max(rate for rate, _ in self.phases)
        return replace(self, num_steps=num_steps, sampling_rate=rate)


@lru_cache(maxsize=32)
def variational_step(method: Variational, model: UnitModel) -> Step:
    """The step of a method on a model. Cached, so that it compiles once."""
    optimiser = method.transformation()
    ascent = _GRADIENTS[method.gradient]

    def step(state: State, given: StepInput, release: Release) -> tuple[State, Params]:
        params, memory, constants = state
        uphill = ascent(method, model, params, given, constants, release)
        if method.gradient != "elbo":  # which has its share of prior and entropy in each unit
            public = partial(_prior_and_entropy, method, model, given.noise, constants)
            uphill = jax.tree.map(jnp.add, uphill, jax.grad(public)(params))
        gradient = jax.tree.map(jnp.negative, uphill)
        if method.reset_every is not None:
            fresh = optimiser.init(params)
            memory = jax.tree.map(partial(_reset_moments, given.reset), fresh, memory)
        updates, memory = optimiser.update(gradient, memory, params)
        params = optax.apply_updates(params, updates)
        return (params, memory, constants), params

    return step


def _reset_moments(reset: jax.Array, fresh: jax.Array, old: jax.Array) -> jax.Array:
    """Resets the moments of an optimiser, but not its count of steps, on which schedules depend."""
    return old if jnp.issubdtype(old.dtype, jnp.integer) else jnp.where(reset, fresh, old)


def _prior_and_entropy(
    method: Variational, model: UnitModel, noise: jax.Array, constants: ArrayTree, params: Params
) -> jax.Array:
    """Log prior plus entropy, averaged over the draws. Neither depends on rows."""
    guide = method.family

    def at(each: jax.Array) -> jax.Array:
        prior = model.log_prior(guide.draw(params, each), constants)
        return prior + guide.entropy(params, each)

    return jnp.asarray(jax.vmap(at)(noise).mean())


def _scale_to_population(method: Variational, given: StepInput, total: jax.Array) -> jax.Array:
    """From a sum over a batch, in units of the clip if that has a schedule, to an estimate of the sum over all units."""
    rate = method.constant_rate if given.rate is None else given.rate
    return jnp.asarray((total if given.clip is None else total * given.clip) / rate)


def _divide_by_clip(clip: jax.Array | None, gradient: jax.Array) -> jax.Array:
    """A unit's gradient, in units of the present clip if that follows a schedule."""
    return gradient if clip is None else gradient / clip


def _aligned_gradient(
    method: Variational,
    model: UnitModel,
    params: Params,
    given: StepInput,
    constants: ArrayTree,
    release: Release,
) -> Params:
    theta, pull = jax.vjp(lambda p: method.family.draw(p, given.noise[0]), params)

    def gradient(density: Density, theta: jax.Array, clip: jax.Array | None) -> jax.Array:
        return _divide_by_clip(clip, jax.grad(density)(theta))

    total = noisy_gradient(release, model, gradient, (theta, given.clip, constants))
    found: Params = pull(_scale_to_population(method, given, total))[0]
    return found


def _joint_gradient(
    method: Variational,
    model: UnitModel,
    params: Params,
    given: StepInput,
    constants: ArrayTree,
    release: Release,
) -> Params:
    flat, unravel = ravel_pytree(params)

    def gradient(
        density: Density, flat: jax.Array, noise: jax.Array, clip: jax.Array | None
    ) -> jax.Array:
        expected = partial(_mean_over_draws, method.family, unravel, density, noise)
        return _divide_by_clip(clip, jax.grad(expected)(flat))

    total = noisy_gradient(release, model, gradient, (flat, given.noise, given.clip, constants))
    found: Params = unravel(_scale_to_population(method, given, total))
    return found


def _mean_over_draws(
    guide: Guide,
    unravel: Callable[[jax.Array], Params],
    density: Density,
    noise: jax.Array,
    flat: jax.Array,
) -> jax.Array:
    """A density's mean over the guide's draws."""
    params = unravel(flat)
    draws = jax.vmap(lambda each: guide.draw(params, each))(noise)
    return jnp.asarray(jax.vmap(density)(draws).mean())


def _elbo_gradient(
    method: Variational,
    model: UnitModel,
    params: Params,
    given: StepInput,
    constants: ArrayTree,
    release: Release,
) -> Params:
    flat, unravel = ravel_pytree(params)
    assert method.size is not None
    share = 1 / method.size

    def per_unit(
        argument: tuple[jax.Array, jax.Array, jax.Array | None, ArrayTree],
        rows: Row,
        present: jax.Array,
    ) -> jax.Array:
        flat, noise, clip, constants = argument

        def own(flat: jax.Array) -> jax.Array:
            def density(theta: jax.Array) -> jax.Array:
                return model.log_likelihood(theta, rows, present, constants)

            likelihood = _mean_over_draws(method.family, unravel, density, noise, flat)
            public = _prior_and_entropy(method, model, noise, constants, unravel(flat))
            # A unit without rows has no share of the prior: it counts as absent.
            return likelihood + jnp.where(present.any(), share, 0.0) * public

        return _divide_by_clip(clip, jax.grad(own)(flat))

    total = release.noisy_sum(per_unit, (flat, given.noise, given.clip, constants))
    found: Params = unravel(_scale_to_population(method, given, total))
    return found


_GRADIENTS: dict[str, Callable[..., Params]] = {
    "aligned": _aligned_gradient,
    "joint": _joint_gradient,
    "elbo": _elbo_gradient,
}


def _initial_state(
    method: Variational, model: UnitModel, key: jax.Array, params: Params | None = None
) -> State:
    start = method.family.start(model.dimension) if params is None else params
    if method.start == "random":
        start = method.family.recentre(start, jax.random.normal(key, (model.dimension,)))
    elif method.start is not None:
        start = method.family.recentre(start, jnp.asarray(model.unconstrain(method.start)))
    # Types as a step returns them, or the second block of steps would be compiled anew.
    state: State = jax.tree.map(
        lambda leaf: jax.lax.convert_element_type(leaf, jnp.result_type(leaf)),
        (start, method.transformation().init(start), model.constants),
    )
    return state


def fit_guide(
    method: Variational,
    model: UnitModel,
    gate: Gate,
    key: jax.Array,
    progress: Progress | None = None,
    params: Params | None = None,
) -> VariationalFit:
    """The guide that a method fits through a gate, from given parameters if there are some."""
    step, state, inputs = method.all_steps(model, key, params)
    traces, done = [], 0
    for each in _stage_gates(gate):
        later = later_progress(progress, done)
        state, trace = run(each, step, state, partial(_later_inputs, inputs, done), progress=later)
        traces.append(trace)
        done += each.mechanism.num_steps
    whole = jax.tree.map(lambda *parts: np.concatenate(parts), *traces)
    return fit_from_trace(whole, average=method.average)


def _stage_gates(gate: Gate) -> list[Gate]:
    """A gate for each sampling rate."""
    return gate.stages() if isinstance(gate.mechanism, Stages) else [gate]


def _later_inputs(inputs: Inputs, done: int, first: int, steps: int) -> ArrayTree:
    return inputs(done + first, steps)


def _method_result(
    method: Variational, model: UnitModel, fit: VariationalFit, key: jax.Array
) -> MethodResult:
    guide, params = method.family, jax.tree.map(jnp.asarray, fit.params)
    # By seeds that no step uses.
    after = method.num_steps + _NUM_DRAWS
    noise = per_step_normals(
        seed_from_key(key), after, _NUM_DRAWS, (guide.noise_size(model.dimension),)
    )
    covariance = guide.covariance(params)
    return MethodResult(
        draws=constrained_draws(model, _guide_draws(guide, params, noise)),
        trace=fit.trace,
        unconstrained_mean=None if covariance is None else np.asarray(params["mean"]),
        unconstrained_covariance=None if covariance is None else np.asarray(covariance),
        converged=None if fit.steady else False,
        messages=(_STEADY_MESSAGE if fit.steady else _MOVING_MESSAGE,),
        intervals=Intervals.LEFT_OUT,
    )


@partial(jax.jit, static_argnames="guide")
def _guide_draws(guide: Guide, params: Params, noise: jax.Array) -> jax.Array:
    return jax.vmap(lambda each: guide.draw(params, each))(noise)

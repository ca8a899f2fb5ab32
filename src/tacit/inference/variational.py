"""Differentially private variational inference (DPVI, DP-ADVI).

Each step draws theta from the guide once for the whole batch and asks the gate for a noisy
sum of clipped gradients. `tacit.inference.variational_steps` has the steps.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tacit.captured.search import refuse_captured
from tacit.inference.base import (
    Intervals,
    MethodResult,
    Progress,
    Steps,
    normals,
    parameters,
    seed_of,
)
from tacit.inference.convergence import VariationalFit, finished
from tacit.inference.guides import Guide
from tacit.inference.variational_settings import VariationalSettings
from tacit.inference.variational_steps import Given, step_of
from tacit.models.base import AnyModel
from tacit.privacy.gate import Gate, check, run
from tacit.privacy.mechanisms import Stages

_DRAWS = 1000
_MOVING = (
    "The fit still moved when it ended. More steps, or a learning rate that falls, may help; see "
    "plot_trace()."
)
_STEADY = "The fit no longer moved when it ended. This alone does not show that a variational fit is right."


@dataclass(frozen=True, kw_only=True)
class Variational(VariationalSettings):
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

    def check(self, model: AnyModel, gate: Gate) -> None:
        """Raises what `run` would raise of the model, without reading a row."""
        settings = self.guide, self.optimiser, self.learning_rate, self.clip
        refuse_captured(*model.searched, settings)
        step, state, inputs = self.staged(model, jax.random.key(0))
        example = jax.tree.map(lambda leaf: leaf[0], inputs(0, 1))
        for each in _stages(gate):
            check(step, state, example, each)

    def steps(
        self,
        model: AnyModel,
        mechanism: Any,  # noqa: ARG002 (it changes nothing in a step)
        key: jax.Array,
    ) -> Steps | None:
        """The fit as steps; None where they come in several stages."""
        return None if isinstance(self.sampling_rate, tuple) else self.staged(model, key)

    def staged(self, model: AnyModel, key: jax.Array) -> Steps:
        """The steps of all stages, one after the other."""
        draws = self.num_draws, self.family.noise_size(model.dimension)
        seed = seed_of(key)
        rates, lengths = zip(*self.phases, strict=True)
        every = np.repeat(np.asarray(rates, np.float32), lengths)

        def inputs(first: int, steps: int) -> Given:
            resets = np.zeros(steps, np.bool_)
            if self.reset_every is not None:
                resets = (first + np.arange(steps)) % self.reset_every == 0
            return Given(
                noise=normals(seed, first, steps, draws),
                reset=resets,
                clip=self.clips(first, steps) if callable(self.clip) else None,
                rate=every[first : first + steps] if len(rates) > 1 else None,
            )

        start = _start(self, model, jax.random.fold_in(key, 2**31))
        return Steps(step_of(self, model), start, inputs)

    def run(
        self, model: AnyModel, gate: Gate, key: jax.Array, progress: Progress | None = None
    ) -> MethodResult:
        """The fitted guide, and draws from it."""
        return _found(self, model, fit_guide(self, model, gate, key, progress), key)

    def trial(self, num_steps: int) -> "Variational":
        """The same method with so few steps, all of them kept."""
        rate = max(rate for rate, _ in self.phases)
        return replace(self, num_steps=num_steps, sampling_rate=rate)


def suits(model: AnyModel) -> bool:  # noqa: ARG001
    """Any model: what it cannot fit it refuses, with words."""
    return True


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
    step, state, inputs = method.staged(model, key)
    traces, done = [], 0
    for each in _stages(gate):
        told = None if progress is None else partial(_told, progress, done)
        state, trace = run(each, step, state, partial(_later, inputs, done), progress=told)
        traces.append(trace)
        done += each.mechanism.num_steps
    whole = jax.tree.map(lambda *parts: np.concatenate(parts), *traces)
    return finished(whole, average=method.average)


def _stages(gate: Gate) -> list[Gate]:
    """A gate for each sampling rate."""
    return gate.stages() if isinstance(gate.mechanism, Stages) else [gate]


def _told(progress: Progress, done: int, steps: int) -> None:
    progress(done + steps)


def _later(inputs: Callable[[int, int], Any], done: int, first: int, steps: int) -> Any:
    return inputs(done + first, steps)


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
